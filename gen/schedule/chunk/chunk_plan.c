/* chunk_plan.c: schedule chunk in the planner. In comes a plan of a module that was cut (outer.c); out goes
 * where operands, reads and their gradients lie, which kernels walk, and their buffers. Guaranteed: what a
 * kernel takes lies in memory with one stride for rows, one for keys or values and one for each axis of the
 * heads. */
#include "chunk_plan.h"
#include "emit/emit.h"
#include "plan/plan_pass.h"
#include "schedule/schedule.h"

const ChunkCuts *chunk_cuts(const Module *m)
{
    return m->cut;
}

ChunkWalks *chunk_walks(const Program *pr)
{
    return pr->beside;
}

Dtype chunk_part(const Plan *p)
{
    return p->dtype == DT_BF16 ? DT_BF16 : p->compute;
}

/* ---- where operands lie ---- */

/* Is it made of indices of the heads alone, as a group's number is? */
static bool is_of_heads(const IxExpr *e, const IndexId *axes, int heads)
{
    for (int k = 0; k < e->nterms; k++) {
        const IxTerm *t = &e->terms[k];
        bool own = t->kind != IA_INDEX && is_of_heads(t->arg, axes, heads);
        for (int i = 0; i < heads; i++)
            own |= t->kind == IA_INDEX && t->index == axes[i];
        if (!own)
            return false;
    }
    return true;
}

/* Elements of what is read from one of a step's rows to the next; NULL: those of the next step are not as far
 * away. */
static const Poly *between_rows(const Plan *p, const Node *root, const Read *r, const IxExpr *lin,
                                int updates)
{
    Module *m = p->m;
    const Poly *row = ix_coefficient(m, lin, root->axes[0]);
    bool timed = r->is_tensor ? m->tensors.data[r->id].kind != T_PARAM : rows_dep(p, r->id) & DEP_TIME;
    const Poly *step = !timed         ? poly_const(m, 0)
                       : r->is_tensor ? tensor_elements(m, r->id)
                                      : array_elements(m, r->id);
    return poly_mul(m, row, poly_const(m, updates)) == step ? row : NULL;
}

/* Is the read an element of rows, with strides along the root's axes? Behind the heads several axes count as
 * one. */
static bool has_strides(const Plan *p, NodeId root, const Read *r, const ChunkCut *c)
{
    Module *m = p->m;
    const Node *n = at(p, root);
    const int lead = c->updates > 1, heads = c->nheads + lead;
    const Tensor *t = r->is_tensor ? &m->tensors.data[r->id] : NULL;
    const IxExpr *lin = read_linear(m, r);
    if (r->step || (t && t->kind != T_PARAM && t->kind != T_DOUT && (t->kind != T_INPUT || t->lengths)))
        return false;
    if (lead && !between_rows(p, n, r, lin, c->updates))
        return false;
    for (int k = 0; k < lin->nterms; k++) {
        bool own =
            lin->terms[k].kind != IA_INDEX && is_of_heads(lin->terms[k].arg, n->axes + lead, c->nheads);
        for (int i = 0; i < n->naxes; i++)
            own |= lin->terms[k].kind == IA_INDEX && lin->terms[k].index == n->axes[i];
        if (!own)
            return false;
    }
    for (int i = heads; i + 1 < n->naxes; i++)
        if (ix_coefficient(m, lin, n->axes[i]) !=
            poly_mul(m, ix_coefficient(m, lin, n->axes[i + 1]), extent_of(p, n->axes[i + 1])))
            return false;
    return true;
}

/* The walk that takes or gives the tensor. */
static const ChunkCut *cut_of(const Plan *p, TensorId t)
{
    const ChunkCuts *cuts = chunk_cuts(p->m);
    for (int i = 0; i < cuts->len; i++) {
        const ChunkCut *c = &cuts->data[i];
        const TensorId decay = c->decay;
        if (decay == t)
            return c;
        for (int k = 0; k < c->added.len; k++) {
            const ChunkAdded *a = &c->added.data[k];
            const ChunkOperand *of[] = { &a->column, &a->known, &a->weight };
            for (int j = 0; j < 3; j++)
                if (of[j]->is_there && (of[j]->number == t || of[j]->vector == t))
                    return c;
        }
        for (int k = 0; k < c->reads.len; k++) {
            const ChunkGiven *g = &c->reads.data[k];
            if (g->given == t || g->weight.number == t || g->weight.vector == t)
                return c;
        }
    }
    bug(p->m->c, "chunk", "%s is of no walk", p->m->tensors.data[t].name);
}

static Read source_of(const Plan *p, TensorId t)
{
    NodeId root = between_root(p->m, t);
    Read r;
    if (plan_resolve(p, root, &r) && has_strides(p, root, &r, cut_of(p, t)) &&
        (r.is_tensor || !(p->past && p->past[r.id])))
        return r;
    return read_itself(p->m, root);
}

static void begin(Plan *p)
{
    between_sources(p, source_of);
    p->heads = chunk_cuts(p->m)->data->n_heads;
}

/* ---- storage of what passes between the step and the walk ---- */

/* Kernels write what is an argument of the call straight there. Copied: rows of several updates, of which a
 * step's output has one, and values along several axes, which may not follow one another there. */
static bool is_given(Plan *p, const Phasing *s, TensorId t, TensorId of)
{
    const ChunkCut *c = cut_of(p, of);
    return c->updates == 1 && p->m->tensors.data[t].rank <= c->nheads + 1 && between_gives(p, s, t, NULL);
}

/* What nothing reads, as the gradient of a gate that is a constant, has no place and is not made. */
static void place(Plan *p, const Phasing *f, const Phasing *b, bool *wanted)
{
    Module *m = p->m;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        bool read = x->kind == T_INPUT && x->chunk && between_is_read(b, t);
        if (x->kind == T_INPUT && x->chunk && (read || !is_given(p, f, t, t)))
            p->program[FORWARD].tensor[t] = p->program[BACKWARD].tensor[t] =
                between_storage(p, t, true, p->compute, read);
        bool wanted_back = x->kind == T_DOUT && m->tensors.data[x->of].chunk && between_is_read(b, t);
        if (wanted_back && !is_given(p, b, t, x->of))
            p->program[BACKWARD].tensor[t] = between_storage(p, t, true, p->compute, false);
        if (!x->chunk || x->kind == T_STATE || p->taken[t].is_tensor)
            continue;
        NodeId id = p->taken[t].id;
        bool forward = x->kind == T_OUTPUT || is_stored(b, id);
        if (forward)
            wanted[id] = true;
        give_storage(p, &p->program[forward ? FORWARD : BACKWARD], id, forward, true);
    }
}

/* ---- sizes of kernels ---- */

ChunkFacts chunk_facts(const Plan *p, const ChunkCut *c, const ChunkSize *s)
{
    int corrections = c->corrected >= 0;
    return (ChunkFacts){ .real = dtype_bytes(p->compute),
                         .part = dtype_bytes(chunk_part(p)),
                         .rows = s->rows,
                         .keys = s->keys,
                         .values = s->values,
                         .stages = s->stages,
                         .read_values = s->read_values,
                         .rest_keys = s->rest_keys,
                         .rest_values = s->rest_values,
                         .rest_threads = s->rest_threads,
                         .reads = c->reads.len,
                         .corrections = corrections,
                         .writes = c->added.len - corrections,
                         .decays = c->decay >= 0,
                         .by_key = c->by_key || c->other >= 0,
                         .coupled = c->other >= 0,
                         .apart = chunk_reads_apart(p, c),
                         .by_value = c->by_value };
}

static int64_t most_smem(const Plan *p, const ChunkCut *c, const ChunkSize *s)
{
    ChunkFacts f = chunk_facts(p, c, s);
    return chunk_most_smem(&f);
}

/* That any GPU gives a block which it is planned for. */
static int64_t memory_of_block(const Request *r)
{
    int64_t least = TARGET_BLOCK_BYTES, next = r->archs ? block_memory_below(r->archs, least, false) : 0;
    for (; next; next = block_memory_below(r->archs, next, false))
        least = next;
    return least;
}

/* Chunks of a walk in shared memory. A walk of states only has as many as leave room for two blocks
 * (measured: six are no faster than three). */
enum { STAGES = 3, STATES_STAGES = 6 };

/* The largest part of `all`, a multiple of 16, with at most `most`. */
static int equal_part(int all, int most)
{
    int part = all < most ? all : most;
    while (all % part)
        part -= 16;
    return part;
}

/* Of two states rest has no tensor cores, takes a slab of keys at a time, and as many values as leave room
 * for two blocks. */
static void choose_coupled_rest(const Plan *p, const ChunkCut *c, ChunkSize *s, int64_t limit)
{
    int values = c->n_values->is_const ? (int)((c->n_values->value + 15) / 16 * 16) : 64;
    s->rest_keys = 16;
    s->rest_threads = CHUNK_THREADS;
    int v = values < 64 ? values : 64;
    for (s->rest_values = v; v > 16; s->rest_values = v = v > 32 ? 32 : 16) {
        ChunkFacts f = chunk_facts(p, c, s);
        if (chunk_smem(&f, BACKWARD, CHUNK_REST) <= limit && chunk_resident(&f, CHUNK_REST) > 1)
            return;
    }
}

/* Blocks of rest for so many keys and values at a time: 256 threads where a multiprocessor holds two of
 * them, or with `one` set 512, which fill it by themselves. In double a thread needs the registers of two.
 * */
static bool rest_fits(const Plan *p, const ChunkCut *c, ChunkSize *s, int keys, bool one, int64_t limit)
{
    s->rest_keys = equal_part(s->keys, keys);
    s->rest_threads = s->rows < 64 ? 128 : one && p->compute != DT_F64 ? 512 : 256;
    ChunkFacts f = chunk_facts(p, c, s);
    return chunk_smem(&f, BACKWARD, CHUNK_REST) <= limit && (one || chunk_resident(&f, CHUNK_REST) > 1);
}

/* With a gate for each value rest takes all keys, and as many values as leave room for two blocks, or one. */
static void choose_value_rest(const Plan *p, const ChunkCut *c, ChunkSize *s, int64_t limit)
{
    int values = c->n_values->is_const ? (int)((c->n_values->value + 15) / 16 * 16) : 64;
    s->rest_keys = s->keys;
    s->rest_threads = p->compute == DT_F64 ? CHUNK_THREADS : 2 * CHUNK_THREADS;
    for (int least = 2; least >= 1; least--)
        for (s->rest_values = values > 32   ? 64
                              : values > 16 ? 32
                                            : 16;
             s->rest_values >= 16; s->rest_values /= 2) {
            ChunkFacts f = chunk_facts(p, c, s);
            if (chunk_smem(&f, BACKWARD, CHUNK_REST) <= limit && chunk_resident(&f, CHUNK_REST) >= least)
                return;
        }
    s->rest_values = 16;
}

/* What rest takes at a time, of what fits. Measured on an H200, in bf16: all keys and values at once are
 * best, though a multiprocessor then holds one block (delta of 128 x 128: 0.84 ms, by 64 x 64 1.37; gated
 * 1.12 and 1.71); else as many of one as of the other. Where a row has a gate for each key, all values
 * count more than keys, and two blocks more than more keys (GLA of 64 x 64: two of 32 keys 0.64, one of 64
 * 0.75; KDA, where two do not fit: one of 64 keys 1.05, of 32 1.30; 128 x 128: all values by 64 keys 1.45,
 * by 32 1.79). */
static void choose_rest(const Plan *p, const ChunkCut *c, ChunkSize *s, int64_t limit)
{
    if (c->by_value) {
        choose_value_rest(p, c, s, limit);
        return;
    }
    if (c->other >= 0) {
        choose_coupled_rest(p, c, s, limit);
        return;
    }
    int values = c->n_values->is_const ? (int)((c->n_values->value + 15) / 16 * 16) : 64;
    for (int most = s->keys > values ? s->keys : values; most >= 16; most = most > 64 ? 64 : most / 2) {
        s->rest_values = values < most ? values : most;
        bool narrow = c->by_key && p->compute == DT_F64;
        if (rest_fits(p, c, s, narrow ? 16 : c->by_key ? 32 : most, false, limit))
            return;
        for (int keys = narrow ? 16 : c->by_key ? 64 : most; keys >= 16; keys = c->by_key ? keys / 2 : 0)
            if (rest_fits(p, c, s, keys, true, limit))
                return;
    }
}

/* Values of a block that makes reads apart, whose scores are made once for all of them: as many as fit. */
static void choose_read(const Plan *p, const ChunkCut *c, ChunkSize *s, int64_t limit)
{
    int64_t values = c->n_values->is_const ? c->n_values->value : 64;
    for (s->read_values = values < 128 ? (int)(values + 15) / 16 * 16 : 128; s->read_values > 16;
         s->read_values = s->read_values > 64 ? 64 : s->read_values > 32 ? 32 : 16) {
        ChunkFacts f = chunk_facts(p, c, s);
        if (chunk_smem(&f, FORWARD, CHUNK_READ) <= limit)
            return;
    }
}

static int most_stages(const Plan *p, const ChunkCut *c, ChunkSize *s)
{
    if (!chunk_reads_apart(p, c))
        return STAGES;
    for (s->stages = STATES_STAGES; s->stages > STAGES; s->stages--) {
        ChunkFacts f = chunk_facts(p, c, s);
        if (chunk_smem(&f, FORWARD, CHUNK_WALK) <= 113 << 10)
            break;
    }
    return s->stages;
}

/* Rows of a chunk. Windows of matrices are rows x rows. With a gate for each value a block of rest takes many
 * values one part behind the other: shorter chunks are more blocks. */
static int most_rows(const ChunkCut *c)
{
    bool wide = c->by_value && !(c->n_values->is_const && c->n_values->value <= 128);
    return c->other >= 0 || wide ? 32 : 64;
}

/* The largest blocks that fit: fewer stages first, then fewer values, then fewer rows. False: none does. A
 * walk of states only has blocks of 32 values where a head has more than 64: measured on an H200 with three
 * chunks on their way, 32 heads of 128 x 128 take 0.31 ms forward, by 64 values 0.36; 128 heads of 64 x 64
 * 0.127, 0.107. */
static bool choose_blocks(const Plan *p, const ChunkCut *c, ChunkSize *s)
{
    int64_t values = c->n_values->is_const ? c->n_values->value : 64;
    int most_values = chunk_reads_apart(p, c) && values > 64 ? 32 : 64;
    if (c->by_value && s->keys * dtype_bytes(p->compute) > 512) /* a state is in a block's registers */
        values = values < 32 ? values : 32;
    int64_t limit = memory_of_block(p->request);
    int rows = p->request->hints.rows;
    int most = most_rows(c);
    for (s->rows = rows ? rows : most; s->rows >= (rows ? rows : 16); s->rows /= 2)
        for (s->values = values > 32 && most_values > 32 ? 64 : values > 16 ? 32 : 16; s->values >= 16;
             s->values /= 2)
            for (s->stages = most_stages(p, c, s); s->stages >= 1; s->stages--) {
                choose_rest(p, c, s, limit);
                choose_read(p, c, s, limit);
                if (most_smem(p, c, s) <= limit)
                    return true;
            }
    return false;
}

static void size_walk(Plan *p, ChunkWalk *w)
{
    Module *m = p->m;
    const Poly *n = w->cut->n_keys;
    const Formula *keys = formula_size(m, n);
    for (int padded = 16; padded <= CHUNK_KEYS; padded *= 2) {
        ChunkSize s = { .keys = n->is_const ? (int)((n->value + 15) / 16 * 16) : padded };
        if (!choose_blocks(p, w->cut, &s))
            break;
        s.when = n->is_const ? NULL : formula_with(m, F_LE, keys, s.keys);
        w->size[w->sizes++] = s;
        if (n->is_const)
            break;
    }
}

/* The name of what is of one of several states or sizes. */
static const char *name_of(const Plan *p, const ChunkWalks *all, const ChunkWalk *w, const ChunkSize *s,
                           const char *what)
{
    Compiler *c = p->m->c;
    const char *state = all->len > 1 ? intern_f(c, "_%s", p->m->tensors.data[w->cut->state].name) : "";
    const char *keys = w->sizes > 1 ? intern_f(c, "_%d", s->keys) : "";
    return intern_f(c, "%s_%s%s%s", p->m->name, what, state, keys);
}

static void name_walk(Plan *p, const ChunkWalks *all, ChunkWalk *w)
{
    static const char *const what[] = { "prep", "pass", "join", "walk", "read", "rest" };
    for (int i = 0; i < w->sizes; i++) {
        ChunkSize *s = &w->size[i];
        ChunkFacts f = chunk_facts(p, w->cut, s);
        s->facts = name_of(p, all, w, s, "chunk");
        for (int d = 0; d < 2; d++)
            for (ChunkKind k = 0; k < CHUNK_KINDS; k++) {
                s->kernel[d][k].name = name_of(
                    p, all, w, s, intern_f(p->m->c, "%s_chunk_%s", d == FORWARD ? "fwd" : "bwd", what[k]));
                s->kernel[d][k].smem = chunk_smem(&f, d, k);
                s->kernel[d][k].threads = chunk_threads(&f, d, k);
            }
    }
}

/* What a buffer has of each chunk of a head, or, from SUM on, of each segment of a call that has them. */
typedef enum { RECORD, STATE, INVERSE, ROWS, SUM, FACTOR } OfChunk;

static const Formula *of_chunk(const Plan *p, const ChunkWalk *w, const ChunkSize *s, OfChunk what)
{
    Module *m = p->m;
    ChunkFacts f = chunk_facts(p, w->cut, s);
    if (what == RECORD && f.by_value) {
        const Poly *n = poly_mul(m, poly_add(m, w->cut->n_keys, poly_const(m, 1)), w->cut->n_values);
        return formula_with(m, F_MUL, formula_size(m, n), f.real);
    }
    switch (what) {
    case RECORD: return formula_const(m, chunk_record(&f));
    case INVERSE: return formula_const(m, (int64_t)f.rows * f.rows * f.part * (f.real == f.part ? 1 : 2));
    case STATE:
        return formula_with(m, F_MUL, formula_size(m, poly_mul(m, w->cut->n_keys, w->cut->n_values)), f.part);
    case SUM:
        return formula_with(m, F_MUL, formula_size(m, poly_mul(m, w->cut->n_keys, w->cut->n_values)), f.real);
    case FACTOR:
        return formula_with(m, F_MUL, formula_size(m, poly_mul(m, w->cut->n_keys, w->cut->n_keys)), f.real);
    default: return formula_with(m, F_MUL, formula_size(m, w->cut->n_values), (int64_t)f.rows * f.part);
    }
}

/* How many chunks, or segments, of all heads a buffer has. */
static const Formula *count_of(const Plan *p, const ChunkCut *c, const ChunkSize *s, OfChunk what)
{
    Module *m = p->m;
    if (what < SUM)
        return chunk_places(p, c, s);
    const Formula *heads = formula_size(m, poly_mul(m, poly_dim(m, ATOM_B), c->n_heads));
    const Formula *n = chunk_segments(p, c, s);
    n = formula(m, F_MUL, n, formula(m, F_LT, formula_const(m, 1), n));
    return formula(m, F_MUL, heads, n);
}

/* Bytes of all chunks of all heads, in the form that the call takes. */
static const Formula *all_bytes(const Plan *p, const ChunkWalk *w, OfChunk what)
{
    Module *m = p->m;
    const Formula *all = NULL;
    for (int i = w->sizes - 1; i >= 0; i--) {
        const ChunkSize *s = &w->size[i];
        const Formula *n = formula(m, F_MUL, count_of(p, w->cut, s, what), of_chunk(p, w, s, what));
        if (!all || !s->when) {
            all = n;
            continue;
        }
        all =
            formula(m, F_ADD, formula(m, F_MUL, n, s->when), formula(m, F_MUL, all, formula_not(m, s->when)));
    }
    return all;
}

/* inference: it is needed without a reserve, too. */
static int chunk_buffer(Plan *p, const ChunkWalk *w, const char *name, OfChunk what, bool reserve,
                        bool inference)
{
    const char *state = p->m->tensors.data[w->cut->state].name;
    Dtype type = what < SUM ? chunk_part(p) : p->compute;
    int b = add_buffer(p, intern_f(p->m->c, name, state), type, NULL, reserve, inference);
    p->buffers.data[b].bytes = all_bytes(p, w, what);
    return b;
}

/* For people. */
static void tell_walk(Plan *p, const ChunkWalk *w)
{
    Buf bytes = { .arena = p->m->arena };
    const char *part = chunk_part(p) == p->compute ? "" : ", products and saved states in bf16";
    for (int i = 0; i < w->sizes; i++) {
        const ChunkSize *s = &w->size[i];
        ChunkFacts f = chunk_facts(p, w->cut, s);
        if (f.by_value)
            buf_f(&p->reasons,
                  "state %s: chunks of %d steps, %s%d keys, %d values a block, and a gate for each value%s\n",
                  p->m->tensors.data[w->cut->state].name, s->rows, s->when ? "up to " : "", s->keys,
                  s->values, part);
        else
            buf_f(&p->reasons,
                  "state %s: chunks of %d steps, %s%d keys, %d values a block, %lld bytes of each chunk "
                  "between "
                  "its kernels%s\n",
                  p->m->tensors.data[w->cut->state].name, s->rows, s->when ? "up to " : "", s->keys,
                  s->values, (long long)chunk_record(&f), part);
    }
    formula_words(p->m, all_bytes(p, w, STATE), &bytes);
    buf_f(&p->reasons, "saved for backward: the state in front of each chunk, %s bytes\n", bytes.data);
    if (w->cut->by_value) {
        buf_f(&p->reasons,
              "all chunks are taken side by side: from one to the next only elements of the state "
              "are multiplied and added\n");
        return;
    }
    if (!chunk_in_segments(w)) {
        buf_f(&p->reasons, "few heads are not walked in segments side by side: %s\n",
              module_starts(p->m) < 0 ? "the number of keys is open" : "sequences are packed");
        return;
    }
    buf_f(&p->reasons,
          "few heads, at most %d blocks of values, are walked in segments side by side, where each has %d "
          "steps or more\n",
          chunk_blocks(p, w->cut) / CHUNK_FEWEST, CHUNK_SEGMENT * w->size[0].rows);
}

static void add_walk(Plan *p, const Phasing *s)
{
    Module *m = p->m;
    const ChunkCuts *cuts = chunk_cuts(m);
    if (s->g->dir == FORWARD)
        return;
    ChunkWalks *all = arena_alloc(m->arena, sizeof *all);
    all->data = arena_alloc(m->arena, sizeof *all->data * (size_t)cuts->len);
    all->len = cuts->len;
    for (int i = 0; i < cuts->len; i++) {
        ChunkWalk *w = &all->data[i];
        *w = (ChunkWalk){ .cut = &cuts->data[i],
                          .inverse = -1,
                          .ends = -1,
                          .corrections = -1,
                          .solved = -1,
                          .sums = -1,
                          .factors = -1 };
        size_walk(p, w);
        w->in_segments = w->sizes == 1 && module_starts(m) < 0 && !w->cut->by_value;
        name_walk(p, all, w);
        w->records = chunk_buffer(p, w, "%s records", RECORD, false, true);
        w->saved = chunk_buffer(p, w, "%s of each chunk", STATE, true, chunk_reads_apart(p, w->cut));
        tell_walk(p, w);
        if (!w->cut->by_value)
            w->ends = chunk_buffer(p, w, "d_%s of each chunk", STATE, false, true);
        if (chunk_in_segments(w))
            w->sums = chunk_buffer(p, w, "%s of each segment", SUM, false, true);
        if (w->cut->corrected < 0)
            continue;
        if (chunk_in_segments(w))
            w->factors = chunk_buffer(p, w, "%s segments' factors", FACTOR, false, true);
        w->inverse = chunk_buffer(p, w, "%s inverses", INVERSE, false, true);
        w->corrections = chunk_buffer(p, w, "d_%s corrections", ROWS, false, true);
        w->solved = chunk_buffer(p, w, "%s corrections", ROWS, false, true);
    }
    p->program[FORWARD].beside = p->program[BACKWARD].beside = all;
}

/* ---- what it cannot take ---- */

static bool values_are_one(Module *m, const ChunkCut *c)
{
    const Tensor *t = &m->tensors.data[c->state];
    for (int i = 0; i + 1 < c->nvalues; i++)
        for (int k = c->values[i] + 1; k < c->values[i + 1]; k++)
            if (!t->axes[k]->is_const || t->axes[k]->value != 1)
                return false;
    return true;
}

static void find_walks(Plan *p);

/* The schedule that walks the states which stay in the module, a thread for each of their units. */
static const Schedule *by_units(void)
{
    int i = 0;
    while (!schedules[i]->per_unit)
        i++;
    return schedules[i];
}

static void find_all_walks(Plan *p)
{
    by_units()->find_walks(p);
    find_walks(p);
}

static void print_all_walks(Plan *p, Program *pr, Buf *cuda)
{
    by_units()->print_walks(p, pr, cuda);
    chunk_print(p, pr, cuda);
}

/* Both: what stays in the module is planned by the other schedule. */
static const Reason *take_units(Plan *p)
{
    Schedule *both = arena_alloc(p->m->arena, sizeof *both);
    const Schedule *own = p->schedule;
    const Reason *why = by_units()->refuses(p);
    *both = *by_units();
    both->name = own->name;
    both->what = own->what;
    both->takes_hints = own->takes_hints;
    both->cut = own->cut;
    both->pays = own->pays;
    both->begin = own->begin;
    both->place = own->place;
    both->add_walk = own->add_walk;
    both->find_walks = find_all_walks;
    both->print_walks = print_all_walks;
    both->stage = own->stage;
    both->takes = own->takes;
    both->leads = NULL;
    p->schedule = both;
    return why;
}

static const Reason *refuses(Plan *p)
{
    Module *m = p->m;
    const ChunkCuts *cuts = chunk_cuts(m);
    const Reason *why = plan_steps(p) ? take_units(p) : NULL;
    if (why)
        return why;
    for (int i = 0; i < cuts->len; i++) {
        const ChunkCut *c = &cuts->data[i];
        const char *name = m->tensors.data[c->state].name;
        ChunkSize s = { .keys = c->n_keys->is_const ? (int)((c->n_keys->value + 15) / 16 * 16) : 16 };
        int states = c->other >= 0 ? 2 : 1;
        if (c->n_keys->is_const && c->n_keys->value > CHUNK_KEYS)
            return reason_at(m, m->tensors.data[c->state].span, "state `%s` has %d keys, and chunks take %d",
                             name, (int)c->n_keys->value / states, CHUNK_KEYS / states);
        if (c->added.len == 0)
            return reason_at(m, m->tensors.data[c->state].span, "nothing is added to state `%s`", name);
        if (c->reads.len == 0)
            return reason_at(m, m->tensors.data[c->state].span, "state `%s` is never read", name);
        if (!values_are_one(m, c))
            return reason_at(m, m->tensors.data[c->state].span,
                             "the axes of the values of state `%s` are no neighbours", name);
        if (!choose_blocks(p, c, &s))
            return reason_at(m, m->tensors.data[c->state].span,
                             "the shared memory of a block does not hold a chunk of state `%s`", name);
    }
    return NULL;
}

/* There is no kernel to be found. */
static void find_walks(Plan *p)
{
    int64_t most = p->block_memory;
    const ChunkWalks *all = chunk_walks(&p->program[FORWARD]);
    for (int i = 0; i < all->len; i++)
        for (int k = 0; k < all->data[i].sizes; k++) {
            int64_t n = most_smem(p, all->data[i].cut, &all->data[i].size[k]);
            most = n > most ? n : most;
        }
    p->block_memory = most;
}

static const Reason *cut(Module *m)
{
    ChunkCuts *cuts = arena_alloc(m->arena, sizeof *cuts);
    const Reason *why = chunk_cut(m, cuts);
    if (!why)
        m->cut = cuts;
    return why;
}

/* Where nothing else walks all steps by one kernel, any state pays. Beside a walk on chip: in bf16 states of
 * which one has as many elements as were measured (of several updates or reads, CHUNK_PAYS_WIDE), whatever
 * goes with it (mLSTM, DeltaProduct), or two that feed one another; in f32 and f16 one state with one update
 * in a step and one read, and so in all of them with a gate for each value. In f64 nothing was measured. */
static bool pays(const Module *m, int storage, bool in_memory)
{
    const ChunkCuts *cuts = chunk_cuts(m);
    bool simple = true, corrects_by_key = false, coupled = false, by_value = false;
    int64_t most = 0;
    for (int i = 0; i < cuts->len; i++) {
        const ChunkCut *c = &cuts->data[i];
        bool sized = c->n_keys->is_const && c->n_values->is_const && c->n_keys->value <= CHUNK_KEYS;
        int64_t elements = sized ? c->n_keys->value * c->n_values->value : 0;
        if (!sized && !in_memory)
            return false;
        most = elements > most ? elements : most;
        simple &= c->updates == 1 && c->reads.len == 1;
        corrects_by_key |= c->by_key && c->corrected >= 0;
        coupled |= c->other >= 0;
        by_value |= c->by_value;
    }
    if (storage == DT_F64)
        return false;
    if (in_memory)
        return true;
    if (by_value)
        return chunk_is_single(m) && most >= CHUNK_PAYS_VALUED;
    if (coupled)
        return storage == DT_BF16 && chunk_is_single(m) && most >= CHUNK_PAYS_COUPLED;
    if (storage != DT_BF16)
        return chunk_is_single(m) && most >= CHUNK_PAYS_WIDE;
    return most >= (!simple ? CHUNK_PAYS_WIDE : corrects_by_key ? CHUNK_PAYS_BY_KEY : CHUNK_PAYS_NARROW);
}

const Schedule chunk_schedule = { .name = "chunk",
                                  .what = "linear states C steps at a time, by products",
                                  .takes_hints = "rows=STEPS",
                                  .packed = true,
                                  .cut = cut,
                                  .pays = pays,
                                  .refuses = refuses,
                                  .begin = begin,
                                  .place = place,
                                  .add_walk = add_walk,
                                  .find_walks = find_walks,
                                  .print_walks = chunk_print,
                                  .stage = chunk_stage,
                                  .takes = chunk_takes };
