/* chunk_forms.c: the kernels of schedule chunk as operations: their order, grids and conditions, as formulas
 * over the sizes of a call. Sizes alone decide, so that forward and backward of a call agree. */
#include "base/mutate.h"
#include "chunk_plan.h"

const Formula *chunk_count(const Plan *p, const ChunkCut *c, const ChunkSize *s)
{
    return form_blocks(p->m, poly_mul(p->m, poly_dim(p->m, ATOM_T), poly_const(p->m, c->updates)), s->rows);
}

static const Formula *all_heads(const Plan *p, const ChunkCut *c)
{
    return formula_size(p->m, poly_mul(p->m, poly_dim(p->m, ATOM_B), c->n_heads));
}

/* Packed sequences have places for chunks by cell_chunk_place. */
const Formula *chunk_places(const Plan *p, const ChunkCut *c, const ChunkSize *s)
{
    Module *m = p->m;
    if (module_starts(m) < 0)
        return formula(m, F_MUL, all_heads(p, c), chunk_count(p, c, s));
    const Formula *rows = formula_size(m, poly_mul(m, module_rows(m), poly_const(m, c->updates)));
    const Formula *of_head =
        formula(m, F_ADD, formula_with(m, F_DIV, rows, s->rows), formula_size(m, poly_dim(m, ATOM_B)));
    return formula(m, F_MUL, formula_size(m, c->n_heads), of_head);
}

bool chunk_in_segments(const ChunkWalk *w)
{
    return w->in_segments;
}

bool chunk_reads_apart(const Plan *p, const ChunkCut *c)
{
    return c->corrected < 0 && !c->by_key && !c->by_value && c->other < 0 && p->compute != DT_F64;
}

/* Has each chunk a block for each block of values? */
bool chunk_by_values(const ChunkWalk *w, ChunkKind kind)
{
    return w->cut->by_value && (kind == CHUNK_PREP || kind == CHUNK_READ);
}

bool chunk_has_kernel(const Plan *p, const ChunkWalk *w, int direction, ChunkKind kind)
{
    if (kind == CHUNK_REST)
        return direction == BACKWARD;
    if (kind == CHUNK_READ)
        return direction == FORWARD && (w->cut->by_value || chunk_reads_apart(p, w->cut));
    return (kind != CHUNK_PASS && kind != CHUNK_JOIN) || chunk_in_segments(w);
}

int chunk_blocks(const Plan *p, const ChunkCut *c)
{
    return chunk_reads_apart(p, c) ? 2 * CHUNK_BLOCKS : CHUNK_BLOCKS;
}

/* As cell_chunk_segments has them. */
const Formula *chunk_segments(const Plan *p, const ChunkCut *c, const ChunkSize *s)
{
    Module *m = p->m;
    const Formula *walks = formula(m, F_MUL, all_heads(p, c), form_blocks(m, c->n_values, s->values));
    const Formula *fit =
        formula(m, F_DIV, formula_const(m, chunk_blocks(p, c)), formula_with(m, F_MAX, walks, 1));
    const Formula *n = formula(m, F_MIN, formula_with(m, F_DIV, chunk_count(p, c, s), CHUNK_SEGMENT), fit);
    const Formula *more =
        formula(m, F_MUL, formula_with(m, F_SUB, n, 1), formula(m, F_LE, formula_const(m, CHUNK_FEWEST), n));
    return formula_with(m, F_ADD, more, 1);
}

/* Of each head of each sequence: a block for each chunk; for some values, or also for some columns of a
 * segment's matrix, of each segment; for some values. */
static const Formula *grid(const Plan *p, const ChunkWalk *w, const ChunkSize *s, ChunkKind kind)
{
    Module *m = p->m;
    const ChunkCut *c = w->cut;
    const Formula *blocks = form_blocks(m, c->n_values, s->values);
    if (c->by_value && kind == CHUNK_WALK)
        return formula(m, F_MUL, all_heads(p, c),
                       form_blocks(m, poly_mul(m, c->n_keys, c->n_values), CHUNK_THREADS));
    if (chunk_by_values(w, kind))
        return formula(m, F_MUL, chunk_places(p, c, s), blocks);
    if (kind == CHUNK_PREP || kind == CHUNK_REST)
        return chunk_places(p, c, s);
    if (kind == CHUNK_READ)
        return formula(m, F_MUL, chunk_places(p, c, s), form_blocks(m, c->n_values, s->read_values));
    if (kind == CHUNK_PASS && c->corrected >= 0)
        blocks = formula(m, F_ADD, blocks, form_blocks(m, c->n_keys, s->values));
    if (kind == CHUNK_JOIN)
        blocks = form_blocks(m, c->n_values, CHUNK_JOINED);
    else if (chunk_in_segments(w))
        blocks = formula(m, F_MUL, blocks, chunk_segments(p, c, s));
    return formula(m, F_MUL, all_heads(p, c), blocks);
}

/* Does a call have this kernel? NULL: each does that takes the size. */
static const Formula *taken(const Plan *p, const ChunkCut *c, const ChunkSize *s, bool last, ChunkKind kind)
{
    const Formula *when = last ? NULL : s->when;
    if (kind != CHUNK_PASS && kind != CHUNK_JOIN)
        return when;
    if (mutate("unjoined-segments") && kind == CHUNK_JOIN)
        return formula_const(p->m, 0);
    return formula_and(p->m, when, formula(p->m, F_LT, formula_const(p->m, 1), chunk_segments(p, c, s)));
}

/* Stage n: a kernel of a state; each state of the level has all of its own one behind the other. */
bool chunk_stage(const Plan *p, const Program *pr, int level, int n, FormList *out)
{
    const ChunkWalks *all = chunk_walks(pr);
    static const char *const words[] = { "what a chunk needs before its state is known",
                                         "walks over segments of the chunks, without their first states",
                                         "first states of the segments", "a walk over the chunks",
                                         "what is read of them, of each chunk by itself",
                                         "gradients of what the walk takes" };
    static const char *const of_values[2][CHUNK_KINDS] = {
        { [CHUNK_PREP] = "what each chunk adds to its state",
          [CHUNK_WALK] = "states in front of chunks, each element by itself",
          [CHUNK_READ] = "reads" },
        { [CHUNK_PREP] = "what the reads of each chunk add to the state's gradient",
          [CHUNK_WALK] = "gradients of the states behind chunks, each element by itself",
          [CHUNK_REST] = "gradients of what the walk takes" }
    };
    ChunkWalk *w = NULL;
    ChunkKind kind = CHUNK_PREP;
    for (int i = 0; i < all->len && !w; i++)
        for (ChunkKind k = 0; all->data[i].cut->level == level && k < CHUNK_KINDS && !w; k++)
            if (chunk_has_kernel(p, &all->data[i], pr->dir, k) && n-- == 0) {
                w = &all->data[i];
                kind = k;
            }
    if (!w)
        return false;
    for (int i = 0; i < w->sizes; i++) {
        const ChunkSize *s = &w->size[i];
        Form f = { .kernel = s->kernel[pr->dir][kind].name,
                   .refs = &s->kernel[pr->dir][kind].refs,
                   .words = w->cut->by_value ? of_values[pr->dir == BACKWARD][kind] : words[kind],
                   .when = taken(p, w->cut, s, i + 1 == w->sizes, kind),
                   .grid = grid(p, w, s, kind),
                   .bytes = formula_const(p->m, s->kernel[pr->dir][kind].smem),
                   .threads = s->kernel[pr->dir][kind].threads,
                   .own_states = true };
        vec_push(p->m->arena, out, f);
    }
    return true;
}

/* Has the cell one state, with one update a step and one read, and no other? */
bool chunk_is_single(const Module *m)
{
    const ChunkCuts *cuts = chunk_cuts(m);
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (tensor_steps(&m->tensors.data[t]))
            return false;
    return cuts->len == 1 && cuts->data->updates == 1 && cuts->data->reads.len == 1;
}

/* Steps of a call of which chunks take it: all but one where they were asked for. Of packed sequences their
 * mean, of which the last chunk has half of its rows. */
static int least_steps(const Plan *p)
{
    const Module *m = p->m;
    const ChunkCut *c = chunk_cuts(m)->data;
    if (!p->request->unasked)
        return CHUNK_STEPS_LEAST;
    if (c->other >= 0 && !p->request->in_memory)
        return CHUNK_PAYS_STEPS_COUPLED;
    bool small =
        c->n_keys->is_const && c->n_values->is_const && c->n_keys->value * c->n_values->value < 64 * 128;
    int half = module_starts(m) < 0 ? 0 : chunk_walks(&p->program[FORWARD])->data->size->rows / 2;
    if (c->by_value && !p->request->in_memory)
        return CHUNK_PAYS_STEPS_VALUED + half;
    if (p->dtype == DT_BF16 && chunk_is_single(m))
        return (small ? CHUNK_PAYS_STEPS_SMALL : CHUNK_PAYS_STEPS) + half;
    return (small ? CHUNK_PAYS_STEPS_OTHER_SMALL : CHUNK_PAYS_STEPS_OTHER) + half;
}

/* With a gate for each value. */
static const Formula *few_values(const Plan *p, const ChunkCut *c)
{
    const Formula *values = formula(p->m, F_MUL, all_heads(p, c), formula_size(p->m, c->n_values));
    bool wide = c->n_values->is_const && c->n_values->value >= CHUNK_WIDE && c->n_keys->is_const &&
                c->n_keys->value <= CHUNK_WIDE_KEYS;
    int most = wide ? CHUNK_PAYS_VALUES_WIDE : CHUNK_PAYS_VALUES;
    return formula(p->m, F_LE, values, formula_const(p->m, most));
}

/* Where chunks compute in wide types, or without tensor cores, a walk on chip that fills the GPU is as fast.
 * */
static const Formula *few_enough(const Plan *p, const Formula *takes)
{
    const ChunkCut *c = chunk_cuts(p->m)->data;
    if (c->by_value && p->request->unasked && !p->request->in_memory)
        return formula_and(p->m, takes, few_values(p, c));
    if (!p->request->unasked || p->request->in_memory || (p->dtype == DT_BF16 && c->other < 0))
        return takes;
    int most = c->other >= 0 ? CHUNK_PAYS_HEADS_COUPLED : CHUNK_BLOCKS;
    return formula_and(p->m, takes, formula(p->m, F_LE, all_heads(p, c), formula_const(p->m, most)));
}

/* Of several steps, and as many keys as there is a kernel for. */
const Formula *chunk_takes(const Plan *p)
{
    Module *m = p->m;
    const ChunkWalks *all = chunk_walks(&p->program[FORWARD]);
    const Formula *least = formula_const(m, least_steps(p));
    const Formula *takes = formula(m, F_LE, least, formula_size(m, poly_dim(m, ATOM_T)));
    /* Of packed sequences T is what no sequence is longer than: there the mean counts. */
    if (module_starts(m) >= 0 && p->request->unasked)
        takes = formula(m, F_LE, formula(m, F_MUL, least, formula_size(m, poly_dim(m, ATOM_B))),
                        formula_size(m, module_rows(m)));
    takes = few_enough(p, takes);
    for (int i = 0; i < all->len; i++)
        takes = formula_and(m, takes, all->data[i].size[all->data[i].sizes - 1].when);
    return takes;
}
