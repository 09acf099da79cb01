/* chunk_forms.c: the kernels of schedule chunk as operations: their order, grids and conditions, as formulas
 * over the sizes of a call. Sizes alone decide, so that forward and backward of a call agree. */
#include "chunk_plan.h"

const Formula *chunk_count(const Plan *p, const ChunkCut *c, const ChunkSize *s)
{
    return form_blocks(p->m, poly_mul(p->m, poly_dim(p->m, ATOM_T), poly_const(p->m, c->updates)), s->rows);
}

/* A block for each chunk, or for some values, of each head of each sequence. */
static const Formula *grid(const Plan *p, const ChunkWalk *w, const ChunkSize *s, ChunkKind kind)
{
    Module *m = p->m;
    const Formula *heads = formula_size(m, poly_mul(m, poly_dim(m, ATOM_B), w->cut->n_heads));
    return formula(m, F_MUL, heads,
                   kind == CHUNK_WALK ? form_blocks(m, w->cut->n_values, s->values)
                                      : chunk_count(p, w->cut, s));
}

/* Stage n: a kernel of a state; each state of the level has all of its own one behind the other. */
bool chunk_stage(const Plan *p, const Program *pr, int level, int n, FormList *out)
{
    const ChunkWalks *all = chunk_walks(pr);
    static const char *const words[] = { "what a chunk needs before its state is known",
                                         "a walk over the chunks", "gradients of what the walk takes" };
    int kinds = CHUNK_KINDS - (pr->dir == FORWARD);
    int at = 0, left = n / kinds;
    while (at < all->len && (all->data[at].cut->level != level || left-- > 0))
        at++;
    if (at == all->len)
        return false;
    ChunkWalk *w = &all->data[at];
    ChunkKind kind = (ChunkKind)(n % kinds);
    for (int i = 0; i < w->sizes; i++) {
        const ChunkSize *s = &w->size[i];
        Form f = { .kernel = s->kernel[pr->dir][kind].name,
                   .refs = &s->kernel[pr->dir][kind].refs,
                   .words = words[kind],
                   .when = i + 1 < w->sizes ? s->when : NULL,
                   .grid = grid(p, w, s, kind),
                   .bytes = formula_const(p->m, s->kernel[pr->dir][kind].smem),
                   .threads = s->kernel[pr->dir][kind].threads,
                   .own_states = true };
        vec_push(p->m->arena, out, f);
    }
    return true;
}

/* Steps of a call of which chunks take it: all but one where they were asked for. */
static int least_steps(const Plan *p)
{
    const ChunkCut *c = chunk_cuts(p->m)->data;
    if (!p->request->unasked)
        return CHUNK_STEPS_LEAST;
    bool small =
        c->n_keys->is_const && c->n_values->is_const && c->n_keys->value * c->n_values->value < 64 * 128;
    return small ? CHUNK_PAYS_STEPS_SMALL : CHUNK_PAYS_STEPS;
}

/* Of several steps, and as many keys as there is a kernel for. */
const Formula *chunk_takes(const Plan *p)
{
    Module *m = p->m;
    const ChunkWalks *all = chunk_walks(&p->program[FORWARD]);
    const Formula *least = formula_const(m, least_steps(p));
    const Formula *takes = formula(m, F_LE, least, formula_size(m, poly_dim(m, ATOM_T)));
    for (int i = 0; i < all->len; i++)
        takes = formula_and(m, takes, all->data[i].size[all->data[i].sizes - 1].when);
    return takes;
}
