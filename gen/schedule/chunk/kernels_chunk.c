/* kernels_chunk.c: the kernels of schedule chunk. In comes what a plan has of them (chunk_plan.c); out goes,
 * for each, a thin kernel: it finds the head and the chunk, or the values, of its block, says where that
 * head's operands lie, and calls the device library (cell_device_chunk.cuh). What memory these take is
 * computed on both sides; the kernels' text asserts that it is the same. */
#include <string.h>

#include "base/mutate.h"
#include "chunk_plan.h"
#include "emit/emit.h"
#include "kernels/kernels.h"
#include "plan/plan_pass.h"
#include "templates/chunk.h"

typedef struct Printing {
    const ChunkWalk *w;
    const ChunkSize *s;
    ChunkKind kind;
} Printing;

static const Printing *printing(const Kernel *k)
{
    return k->of_schedule;
}

static const char *buffer_name(Kernel *k, int id)
{
    const ChunkWalk *w = printing(k)->w;
    const struct {
        int id;
        const char *name;
    } names[] = { { w->records, "records" },
                  { w->saved, "saved" },
                  { w->inverse, "inverse" },
                  { w->ends, "ends" },
                  { w->corrections, "d_corrections" },
                  { w->solved, "corrections" },
                  { w->sums, "segments" },
                  { w->factors, "factors" } };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].id == id)
            return names[i].name;
    return NULL;
}

static int resident(const Kernel *k)
{
    const Printing *x = printing(k);
    ChunkFacts f = chunk_facts(k->p, x->w->cut, x->s);
    bool by_chunk = x->kind == CHUNK_REST || x->kind == CHUNK_PREP || x->kind == CHUNK_READ;
    int n = by_chunk ? chunk_resident(&f, x->kind) : 0;
    return x->kind == CHUNK_PREP && n == 1 ? 0 : n;
}

static const KernelHooks hooks = { .all_steps = true, .resident = resident, .buffer = buffer_name };

/* ---- where things lie ---- */

/* Texts: of a row's first element at the block's head, and the strides. */
typedef struct Place {
    const char *at, *row, *element;
    bool real;
    const char *given; /* the pointer, where it may be null; or NULL */
} Place;

/* The number of the sequence's first row that is walked, among all rows. */
static const char *first_row(Kernel *k, bool batched, bool timed)
{
    const char *of = !batched ? "0" : timed ? k_first_row(k, "b") : "b";
    return timed && k->p->m->c->reverse ? k_sum(k, of, "(dim_T - 1)") : of;
}

/* Of several rows of a step each has as many elements. */
static const Poly *row_pitch(Kernel *k, const Poly *pitch)
{
    const Poly *n = poly_div(k->p->m, pitch, poly_const(k->p->m, printing(k)->w->cut->updates));
    if (!n)
        bug(k->p->m->c, "kernels_chunk", "rows of a step have no pitch");
    return n;
}

static const char *row_stride(Kernel *k, bool timed, const Poly *pitch)
{
    return !timed ? "0" : k_text(k, "%s%s", k->p->m->c->reverse ? "-" : "", k_poly(k, row_pitch(k, pitch)));
}

/* Where the first row that is walked stands in its step: with --reverse it is the last one in memory. */
static const char *first_of_step(Kernel *k, bool timed, const Poly *pitch)
{
    int updates = printing(k)->w->cut->updates;
    if (!timed || !k->p->m->c->reverse || updates == 1)
        return "0";
    return k_text(k, "%d * %s", updates - 1, k_poly(k, row_pitch(k, pitch)));
}

/* Rows of a sequence. */
static const char *rows_text(Kernel *k)
{
    int updates = printing(k)->w->cut->updates;
    return updates == 1 ? "dim_T" : k_text(k, "dim_T * %d", updates);
}

/* The head's place in a row: `lin`, an element of it, at the indices of the heads. What is before and behind
 * the heads is at 0. */
static const char *head_place(Kernel *k, const IxExpr *lin, const IndexId *axes, int naxes)
{
    const int first = printing(k)->w->cut->updates > 1, end = first + printing(k)->w->cut->nheads;
    const IxExpr *zero = ix_const(k->p->m, poly_const(k->p->m, 0));
    for (int i = 0; i < naxes; i++) {
        bool head = i >= first && i < end;
        k->index[axes[i]] = head ? k_text(k, "h%d", i - first) : "0";
        lin = head ? lin : ix_subst(k->p->m, lin, &axes[i], &zero, 1);
    }
    return ix_text(&k->printer, lin);
}

/* Where the root of a tensor lies that the walk takes. */
static Place place_of(Kernel *k, TensorId t)
{
    Plan *p = k->p;
    Module *m = p->m;
    const Read *r = &p->taken[t];
    const Storage *st = plan_storage(p, k->pr, r);
    NodeId id = m->tensors.data[t].kind == T_OUTPUT ? m->roots.data[t].output : m->roots.data[t].dinput;
    const Node root = *k_node(k, id);
    int heads = printing(k)->w->cut->nheads + (printing(k)->w->cut->updates > 1);
    const IxExpr *lin = storage_linear(m, r, st);
    const Poly *pitch = st->pitch      ? st->pitch
                        : r->is_tensor ? tensor_elements(m, r->id)
                                       : array_elements(m, r->id);
    const char *from = k_pointer(k, r->is_tensor ? REF_TENSOR : REF_NODE, r->id, st->dtype);
    const char *head = k_bare(k, head_place(k, lin, root.axes, root.naxes));
    const char *row = first_row(k, st->batched, st->timed);
    Place x = { .row = row_stride(k, st->timed, pitch), .real = st->dtype == p->compute };
    row = k_times(k, strchr(row, '+') ? k_text(k, "(%s)", row) : row, pitch);
    row = k_sum(k, row, first_of_step(k, st->timed, pitch));
    x.at = k_sum(k, from, k_sum(k, row, head));
    x.given = r->is_tensor && m->tensors.data[r->id].kind == T_DOUT ? from : NULL;
    x.element = root.naxes > heads ? k_poly(k, ix_coefficient(m, lin, root.axes[root.naxes - 1])) : "0";
    return x;
}

/* The root that the tensor is, where the walk writes it. given: its pointer, which backward may be null. */
static Place root_place(Kernel *k, TensorId t, NodeId root)
{
    Module *m = k->p->m;
    const int rank = m->tensors.data[t].rank, heads = printing(k)->w->cut->nheads;
    const Storage *st = &k->pr->node[root];
    const Read own = read_itself(m, root);
    const IxExpr *lin = storage_linear(m, &own, st);
    const Poly *pitch = array_elements(m, root);
    IndexId *axes = arena_alloc(m->arena, sizeof *axes * ((size_t)rank + 1));
    Read r;
    plan_resolve(k->p, k_node(k, root)->args[0], &r);
    for (int i = 0; i < rank; i++)
        ix_is_index(r.map[i], &axes[i]);
    const char *to = k_written(k, REF_NODE, root, st->dtype), *row = first_row(k, true, true);
    const char *head = k_bare(k, head_place(k, lin, axes, rank));
    row = k_times(k, strchr(row, '+') ? k_text(k, "(%s)", row) : row, pitch);
    return (Place){ .at = k_sum(k, to, k_sum(k, row, head)),
                    .row = row_stride(k, true, pitch),
                    .element = rank > heads ? k_poly(k, ix_coefficient(m, lin, axes[rank - 1])) : "1",
                    .real = st->dtype == k->p->compute,
                    .given = to };
}

/* Where a tensor of all rows lies that the walk writes. */
static Place rows_place(Kernel *k, TensorId t)
{
    NodeId root = between_copy(k->p, k->pr, t);
    if (root >= 0)
        return root_place(k, t, root);
    Plan *p = k->p;
    Module *m = p->m;
    const ChunkCut *c = printing(k)->w->cut;
    const Tensor *x = &m->tensors.data[t];
    const Storage *st = &k->pr->tensor[t];
    const char *head = "0", *row = first_row(k, true, true);
    const Poly *stride = poly_const(m, 1);
    const int first = c->updates > 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        if (i >= first && i < first + c->nheads)
            head = k_sum(k, k_times(k, k_text(k, "h%d", i - first), stride), head);
        stride = poly_mul(m, stride, x->axes[i]);
    }
    row = k_times(k, strchr(row, '+') ? k_text(k, "(%s)", row) : row, stride);
    row = k_sum(k, row, first_of_step(k, true, stride));
    const char *to = k_written(k, REF_TENSOR, t, st->dtype);
    return (Place){ .at = k_sum(k, to, k_sum(k, row, head)),
                    .row = row_stride(k, true, stride),
                    .element = "1",
                    .real = st->dtype == p->compute };
}

/* ---- the fields of cell_chunk ---- */

static void print_rows(Kernel *k, const char *field, const Place *x)
{
    ChunkRowsFrame f = {
        .field = field, .given = x->given, .at = x->at, .row = x->row, .element = x->element
    };
    f.real = x->real ? "true" : "false";
    f.zero = k_text(k, "%s_zero", printing(k)->s->facts);
    chunk_rows_frame(k->out, &f);
}

static void print_operand(Kernel *k, const char *field, const ChunkOperand *o)
{
    if (!o->is_there)
        return;
    Place vector = {
        .at = k_text(k, "&%s_one", printing(k)->s->facts), .row = "0", .element = "0", .real = true
    };
    if (o->vector >= 0)
        vector = place_of(k, o->vector);
    print_rows(k, k_text(k, "x.%s.vector", field), &vector);
    if (o->number >= 0) {
        Place number = place_of(k, o->number);
        buf_line(k->out, "x.%s.number = { %s, %s, %s, %.17g };", field, number.at, number.row,
                 number.real ? "true" : "false", o->scale);
    } else {
        buf_line(k->out, "x.%s.number = { nullptr, 0, true, %.17g };", field, o->scale);
    }
}

static const Poly *state_stride(const Plan *p, const ChunkCut *c, int axis)
{
    const Tensor *t = &p->m->tensors.data[c->state];
    const Poly *n = poly_const(p->m, 1);
    for (int i = t->rank - 1; i > axis; i--)
        n = poly_mul(p->m, n, t->axes[i]);
    return n;
}

static bool is_packed(const Kernel *k)
{
    return module_starts(k->p->m) >= 0;
}

/* Of a buffer of all chunks, how many are before those of the block's head. */
static const char *own_chunks(const Kernel *k)
{
    return is_packed(k) ? "own" : "(b * heads + head) * chunks";
}

/* The block's part of a buffer that has `each` elements for a chunk. */
static const char *of_head(Kernel *k, int buffer, const char *each)
{
    const char *p = k_written(k, REF_BUFFER, buffer, chunk_part(k->p));
    return k_text(k, "%s + %s * (%s)", p, own_chunks(k), each);
}

/* Where the states lie of which `of` gives the pointers: one, or two. */
static void print_state(Kernel *k, const char *field, RefKind kind,
                        const char *(*of)(Kernel *, RefKind, int, Dtype))
{
    Module *m = k->p->m;
    const ChunkCut *c = printing(k)->w->cut;
    const TensorId states[] = { c->state, c->other };
    const char *at[2] = { "nullptr", "nullptr" }, *head = k_times(k, "b", tensor_elements(m, c->state));
    for (int i = 0; i < c->nheads; i++)
        head = k_sum(k, head, k_times(k, k_text(k, "h%d", i), state_stride(k->p, c, c->heads[i])));
    for (int i = 0; i < 2 && states[i] >= 0; i++) {
        const char *p = of(k, kind, states[i], k->p->compute);
        at[i] = k_text(k, "%s ? (void *)(%s + %s) : nullptr", p, p, head);
    }
    const char *value = c->nvalues ? k_poly(k, state_stride(k->p, c, c->values[c->nvalues - 1])) : "0";
    const char *two = c->other >= 0 ? k_text(k, ", true, %s", at[mutate("one-state") ? 0 : 1]) : "";
    buf_line(k->out, "%s = { %s, %s, %s, true%s };", field, at[0], k_poly(k, state_stride(k->p, c, c->key)),
             value, two);
}

/* ---- kernels ---- */

typedef struct Same {
    const char *what;
    int64_t n;
} Same;

static const char *asserted(const Plan *p, const ChunkSize *s, const Same *same, size_t n)
{
    Buf text = { .arena = p->m->arena };
    for (size_t i = 0; i < n; i++)
        buf_line(&text, "static_assert(%s == %lld, \"the compiler has another number\");",
                 intern_f(p->m->c, same[i].what, s->facts), (long long)same[i].n);
    return template_lines(&text);
}

static const char *same_of_values(const Plan *p, const ChunkSize *s, const ChunkFacts *f)
{
    const Same same[] = {
        { "cell_chunk_value_sums<%s>::smem()", chunk_smem(f, FORWARD, CHUNK_PREP) },
        { "cell_chunk_value_reader<%s>::smem()", chunk_smem(f, FORWARD, CHUNK_READ) },
        { "cell_chunk_value_rester<%s>::smem()", chunk_smem(f, BACKWARD, CHUNK_REST) },
    };
    return asserted(p, s, same, sizeof same / sizeof *same);
}

/* What the text asserts. */
static const char *same_numbers(const Plan *p, const ChunkWalk *w, const ChunkSize *s)
{
    ChunkFacts f = chunk_facts(p, w->cut, s);
    if (f.by_value)
        return same_of_values(p, s, &f);
    const Same same[] = { { "cell_chunk_record<%s>::bytes", chunk_record(&f) },
                          { "cell_chunk_prep<%s>::smem()", chunk_smem(&f, FORWARD, CHUNK_PREP) },
                          { "cell_chunk_walker<%s>::smem()", chunk_smem(&f, FORWARD, CHUNK_WALK) },
                          { "cell_chunk_back_walker<%s>::smem()", chunk_smem(&f, BACKWARD, CHUNK_WALK) },
                          { "cell_chunk_rester<%s>::smem()", chunk_smem(&f, BACKWARD, CHUNK_REST) },
                          { "cell_chunk_joiner<%s>::smem()", chunk_smem(&f, FORWARD, CHUNK_JOIN) },
                          { "cell_chunk_walker<%s>::threads", chunk_threads(&f, FORWARD, CHUNK_WALK) },
                          { "cell_chunk_rester<%s>::threads", chunk_threads(&f, BACKWARD, CHUNK_REST) },
                          { "cell_chunk_back_walker<%s>::threads", chunk_threads(&f, BACKWARD, CHUNK_WALK) },
                          { "cell_chunk_prep<%s>::threads", chunk_threads(&f, FORWARD, CHUNK_PREP) },
                          { "cell_chunk_prep<%s>::resident", chunk_resident(&f, CHUNK_PREP) },
                          { "cell_chunk_rester<%s>::resident", chunk_resident(&f, CHUNK_REST) },
                          { "cell_chunk_reads<%s>::smem()", chunk_smem(&f, FORWARD, CHUNK_READ) },
                          { "cell_chunk_reads<%s>::resident", chunk_resident(&f, CHUNK_READ) } };
    const size_t of_reads = 2, n = sizeof same / sizeof *same - (f.apart ? 0 : of_reads);
    return asserted(p, s, same, n);
}

static void set_sizes(const Plan *p, const ChunkSize *s, ChunkFactsFrame *f)
{
    Compiler *c = p->m->c;
    f->rows = intern_f(c, "%d", s->rows);
    f->keys = intern_f(c, "%d", s->keys);
    f->values = intern_f(c, "%d", s->values);
    f->stages = intern_f(c, "%d", s->stages);
    f->read_values = intern_f(c, "%d", s->read_values);
    f->rest_keys = intern_f(c, "%d", s->rest_keys);
    f->rest_values = intern_f(c, "%d", s->rest_values);
    f->rest_threads = intern_f(c, "%d", s->rest_threads);
}

static void print_facts(const Plan *p, const ChunkWalk *w, const ChunkSize *s, Buf *out)
{
    const ChunkCut *c = w->cut;
    unsigned known = 0, before = 0;
    for (int i = 0; i < c->added.len; i++)
        known |= (unsigned)c->added.data[i].known.is_there << i;
    for (int i = 0; i < c->reads.len; i++)
        before |= (unsigned)c->reads.data[i].before << i;
    ChunkFactsFrame f = { .facts = s->facts, .real = p->compute == DT_F64 ? "double" : "float" };
    f.part_type = k_type(chunk_part(p));
    f.store = k_type(p->dtype);
    set_sizes(p, s, &f);
    f.additions = intern_f(p->m->c, "%d", c->added.len);
    f.reads = intern_f(p->m->c, "%d", c->reads.len);
    f.corrected = c->corrected >= 0 ? "1" : "0";
    f.known = intern_f(p->m->c, "%u", known);
    f.before = intern_f(p->m->c, "%u", before);
    f.decay = c->decay < 0 ? "0" : c->other >= 0 ? "3" : c->by_value ? "4" : c->by_key ? "2" : "1";
    f.together = intern_f(p->m->c, "%d", c->together);
    f.same = same_numbers(p, w, s);
    chunk_facts_frame(out, &f);
    buf_line(out, "%s", "");
}

static void print_head(Kernel *k)
{
    Module *m = k->p->m;
    const ChunkCut *c = printing(k)->w->cut;
    const Poly *stride = poly_const(m, 1);
    for (int i = c->nheads - 1; i >= 0; i--) {
        const Poly *n = m->tensors.data[c->state].axes[c->heads[i]];
        const char *digit =
            stride->is_const && stride->value == 1 ? "head" : k_text(k, "head / %s", k_poly(k, stride));
        buf_line(k->out, "[[maybe_unused]] const int64_t h%d = %s;", i,
                 i ? k_text(k, "%s %% %s", digit, k_poly(k, n)) : digit);
        stride = poly_mul(m, stride, n);
    }
}

static void print_operands(Kernel *k)
{
    const ChunkCut *c = printing(k)->w->cut;
    if (c->decay >= 0) {
        Place decay = place_of(k, c->decay);
        print_rows(k, "x.decay", &decay);
    }
    for (int i = 0; i < c->added.len; i++) {
        print_operand(k, k_text(k, "addition[%d].column", i), &c->added.data[i].column);
        print_operand(k, k_text(k, "addition[%d].known", i), &c->added.data[i].known);
        print_operand(k, k_text(k, "addition[%d].weight", i), &c->added.data[i].weight);
    }
    for (int i = 0; i < c->reads.len; i++)
        print_operand(k, k_text(k, "read[%d]", i), &c->reads.data[i].weight);
}

static void print_first(Kernel *k)
{
    RefKind from = k->p->own_ends ? REF_TENSOR : REF_INITIAL;
    print_state(k, "x.from", from, k_pointer);
}

static void print_results(Kernel *k)
{
    const ChunkCut *c = printing(k)->w->cut;
    for (int i = 0; i < c->reads.len; i++) {
        Place to = rows_place(k, c->reads.data[i].given);
        buf_line(k->out, "x.result[%d] = { %s, %s, %s, %s, false };", i, to.at, to.row, to.element,
                 to.real ? "true" : "false");
    }
}

/* The states in front of chunks, which a call without a reserve keeps only where reads are made of them. */
static void print_saved(Kernel *k)
{
    const Printing *x = printing(k);
    const char *saved = k_written(k, REF_BUFFER, x->w->saved, chunk_part(k->p)),
               *own = of_head(k, x->w->saved, "x.keys * x.values");
    if (chunk_reads_apart(k->p, x->w->cut))
        buf_line(k->out, "x.saved = %s;", own);
    else
        buf_line(k->out, "x.saved = %s ? %s : nullptr;", saved, own);
}

static void print_walk(Kernel *k)
{
    if (!chunk_reads_apart(k->p, printing(k)->w->cut) && !printing(k)->w->cut->by_value)
        print_results(k);
    print_first(k);
    print_state(k, "x.to", REF_FINAL, k_written);
    print_saved(k);
}

static void print_read(Kernel *k)
{
    print_results(k);
    print_saved(k);
}

/* What `pass` leaves of the head's segments. */
static void print_segments(Kernel *k)
{
    const ChunkWalk *w = printing(k)->w;
    const char *real = k_type(k->p->compute), *sums = k_written(k, REF_BUFFER, w->sums, k->p->compute);
    buf_line(k->out, "%s *const sums = %s + (b * heads + head) * segments * x.keys * x.values;", real, sums);
    if (printing(k)->kind == CHUNK_WALK)
        return;
    if (w->factors < 0)
        buf_line(k->out, "%s *const factors = nullptr;", real);
    else
        buf_line(k->out, "%s *const factors = %s + (b * heads + head) * segments * x.keys * x.keys;", real,
                 k_written(k, REF_BUFFER, w->factors, k->p->compute));
}

/* What forward and backward have of the recurrence, beside sizes. */
static void print_chunk(Kernel *k)
{
    const Printing *x = printing(k);
    if (k->pr->dir == BACKWARD && x->w->inverse >= 0) {
        int parts = chunk_part(k->p) == k->p->compute ? 1 : 2;
        buf_line(k->out, "x.inverse = %s;",
                 of_head(k, x->w->inverse, k_text(k, "%d", x->s->rows * x->s->rows * parts)));
    }
    if (x->kind != CHUNK_JOIN && !(x->w->cut->by_value && x->kind == CHUNK_WALK))
        print_operands(k);
}

static TensorId cotangent_of(const Module *m, TensorId of)
{
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (m->tensors.data[t].kind == T_DOUT && m->tensors.data[t].of == of)
            return t;
    return -1;
}

static void print_gradient(Kernel *k, const char *field, TensorId of)
{
    TensorId t = of < 0 ? -1 : cotangent_of(k->p->m, of);
    if (t < 0 || (k->pr->tensor[t].home == HOME_NONE && between_copy(k->p, k->pr, t) < 0))
        return;
    Place x = rows_place(k, t);
    const char *at = x.given ? k_text(k, "%s ? %s : nullptr", x.given, x.at) : x.at;
    const char *adds = x.given && !mutate("overwritten-gradients") ? "adds" : "false";
    buf_line(k->out, "g.%s = { %s, %s, %s, %s, %s };", field, at, x.row, x.element, x.real ? "true" : "false",
             adds);
}

static void print_gradients(Kernel *k, const char *field, const ChunkOperand *o)
{
    if (!o->is_there)
        return;
    print_gradient(k, k_text(k, "%s.vector", field), o->vector);
    print_gradient(k, k_text(k, "%s.number", field), o->number);
}

static void print_rest(Kernel *k)
{
    const Printing *x = printing(k);
    const ChunkCut *c = x->w->cut;
    for (int i = 0; i < c->added.len; i++) {
        print_gradients(k, k_text(k, "column[%d]", i), &c->added.data[i].column);
        print_gradients(k, k_text(k, "known[%d]", i), &c->added.data[i].known);
        print_gradients(k, "weight", &c->added.data[i].weight);
    }
    for (int i = 0; i < c->reads.len; i++)
        print_gradients(k, k_text(k, "read[%d]", i), &c->reads.data[i].weight);
    print_gradient(k, "decay", c->decay);
    if (c->corrected < 0)
        return;
    buf_line(k->out, "g.solved = %s;", of_head(k, x->w->solved, k_text(k, "%d * x.values", x->s->rows)));
}

static void print_last(Kernel *k)
{
    print_state(k, "g.last", REF_DFINAL, k_pointer);
}

static void print_cotangents(Kernel *k)
{
    const ChunkCut *c = printing(k)->w->cut;
    for (int i = 0; i < c->reads.len; i++) {
        Place from = place_of(k, c->reads.data[i].given);
        print_rows(k, k_text(k, "g.cotangent[%d]", i), &from);
    }
}

/* What the walk back leaves for `rest`. */
static void print_left(Kernel *k)
{
    const Printing *x = printing(k);
    buf_line(k->out, "g.ends = %s;", of_head(k, x->w->ends, "x.keys * x.values"));
    if (x->w->cut->corrected >= 0)
        buf_line(k->out, "g.corrections = %s;",
                 of_head(k, x->w->corrections, k_text(k, "%d * x.values", x->s->rows)));
}

/* Fields of g. */
static void print_backward_uses(Kernel *k)
{
    const Printing *x = printing(k);
    const bool by_value = x->w->cut->by_value;
    if (x->kind == CHUNK_JOIN) {
        print_last(k);
        return;
    }
    if (!by_value || x->kind != CHUNK_WALK)
        print_cotangents(k);
    if (x->kind == CHUNK_PASS || x->kind == CHUNK_PREP)
        return;
    if (!by_value)
        print_left(k);
    if (x->kind == CHUNK_REST) {
        print_rest(k);
        return;
    }
    print_last(k);
    print_state(k, "g.first", k->p->own_ends ? REF_DINIT : REF_CARRY, k_written);
    if (k->p->own_ends)
        buf_line(k->out, "g.adds = args.flags & CELL_KERNEL_ACCUMULATE;");
}

static void print_backward(Kernel *k)
{
    const Printing *x = printing(k);
    ChunkBackwardFrame f = { .facts = x->s->facts };
    if (x->kind == CHUNK_REST)
        f.saved = of_head(k, x->w->saved, "x.keys * x.values");
    f.uses = k_lines_of(k, print_backward_uses);
    chunk_backward_frame(k->out, &f);
}

static bool by_segment(const Printing *x)
{
    return x->kind == CHUNK_PASS || (x->kind == CHUNK_WALK && chunk_in_segments(x->w));
}

/* What blocks of a head are for, and how many there are. */
static void set_shares(Kernel *k, ChunkFrame *f)
{
    const Printing *x = printing(k);
    const ChunkCut *c = x->w->cut;
    f->heads = k_bare(k, k_poly(k, c->n_heads));
    f->rows = rows_text(k);
    f->length = k_text(k, "%d", x->s->rows);
    f->by_chunk = x->kind == CHUNK_PREP || x->kind == CHUNK_REST || x->kind == CHUNK_READ;
    f->values = k_poly(k, c->n_values);
    f->divided = x->kind == CHUNK_READ || chunk_by_values(x->w, x->kind);
    const bool reads_apart = x->kind == CHUNK_READ && !c->by_value,
               by_element = c->by_value && x->kind == CHUNK_WALK;
    const int each = reads_apart ? x->s->read_values : by_element ? CHUNK_THREADS : x->s->values;
    if (by_element)
        f->values = k_poly(k, poly_mul(k->p->m, c->n_keys, c->n_values));
    f->each = k_text(k, "%d", each);
    f->each_less = k_text(k, "%d", each - 1);
    f->segments = chunk_in_segments(x->w);
    f->segmented = by_segment(x);
    if (!f->segments)
        f->shares = "blocks";
    else if (x->kind == CHUNK_JOIN)
        f->shares = k_text(k, "(%s + %d) / %d", f->values, CHUNK_JOINED - 1, CHUNK_JOINED);
    else if (x->kind == CHUNK_WALK)
        f->shares = "blocks * segments";
    else
        f->shares = k_text(k, "cell_chunk_pass_blocks<%s>(%s, %s) * segments", x->s->facts,
                           k_bare(k, k_poly(k, c->n_keys)), k_bare(k, f->values));
}

static void print_sequence(Kernel *k)
{
    k->b = "b";
    k_declare_sequence(k);
}

/* Where chunks of packed sequences stand: cell_chunk_place. */
static void set_places(Kernel *k, ChunkFrame *f)
{
    const int updates = printing(k)->w->cut->updates;
    f->packed = is_packed(k);
    f->own = own_chunks(k);
    f->starts = f->total = f->updates = f->first = f->all_rows = f->sequence = "";
    if (!f->packed)
        return;
    f->places = f->by_chunk;
    f->walks = !f->by_chunk;
    f->starts = k_starts(k);
    f->total = k_bare(k, k_poly(k, module_rows(k->p->m)));
    f->updates = k_text(k, "%d", updates);
    f->first = mutate("meeting-places") ? "0 * first_row"
               : updates == 1           ? "first_row"
                                        : k_text(k, "first_row * %d", updates);
    f->all_rows = k_poly(k, poly_mul(k->p->m, module_rows(k->p->m), poly_const(k->p->m, updates)));
    f->sequence = k_lines_of(k, print_sequence);
}

static void print_call_of_values(Kernel *k)
{
    const Printing *x = printing(k);
    const bool back = k->pr->dir == BACKWARD;
    const char *facts = x->s->facts, *of = back ? "g" : "x", *which = back ? "_back" : "";
    if (x->kind == CHUNK_PREP)
        buf_line(k->out, "cell_chunk_value_sum%s<%s>(%s, share, block * %d);", which, facts, of,
                 x->s->values);
    else if (x->kind == CHUNK_WALK)
        buf_line(k->out, "cell_chunk_value_walk%s<%s>(%s, share);", which, facts, of);
    else if (back)
        buf_line(k->out, "cell_chunk_value_rest<%s>(g, share);", facts);
    else
        buf_line(k->out, "cell_chunk_value_read<%s>(x, share, block * %d);", facts, x->s->values);
}

/* The library's function for the kernel, of a block of the head. */
static void print_call(Kernel *k)
{
    const Printing *x = printing(k);
    const bool back = k->pr->dir == BACKWARD;
    if (x->w->cut->by_value) {
        print_call_of_values(k);
        return;
    }
    const char *facts = x->s->facts, *of = back ? "g" : "x", *which = back ? "_back" : "";
    ChunkWalkFrame walk = { .segments = chunk_in_segments(x->w), .back = which, .facts = facts, .of = of };
    switch (x->kind) {
    case CHUNK_PREP: buf_line(k->out, "cell_chunk_prepare<%s>(x, share);", facts); break;
    case CHUNK_REST: buf_line(k->out, "cell_chunk_finish<%s>(g, share);", facts); break;
    case CHUNK_READ:
        buf_line(k->out, "cell_chunk_read<%s>(x, share, block * %d);", facts, x->s->read_values);
        break;
    case CHUNK_PASS:
        buf_line(k->out, "cell_chunk_pass%s<%s>(%s, segment, segments, block, sums, factors);", which, facts,
                 of);
        break;
    case CHUNK_JOIN:
        buf_line(k->out, "cell_chunk_join%s<%s>(%s, segments, share, sums, factors);", which, facts, of);
        break;
    default: walk.values = k_text(k, "%d", x->s->values); chunk_walk_frame(k->out, &walk);
    }
}

static void print_uses(Kernel *k)
{
    const Printing *x = printing(k);
    if (k->pr->dir == BACKWARD && (x->kind != CHUNK_PREP || x->w->cut->by_value))
        print_backward(k);
    else if (x->kind == CHUNK_READ && x->w->cut->by_value)
        print_results(k);
    else if (x->kind == CHUNK_WALK)
        print_walk(k);
    else if (x->kind == CHUNK_READ)
        print_read(k);
    else if (x->kind == CHUNK_JOIN)
        print_first(k);
}

static void body(Kernel *k)
{
    const Printing *x = printing(k);
    ChunkFrame f = { .facts = x->s->facts, .sums = "" };
    set_shares(k, &f);
    set_places(k, &f);
    f.head = k_lines_of(k, print_head);
    f.n_keys = k_bare(k, k_poly(k, x->w->cut->n_keys));
    f.n_values = k_bare(k, k_poly(k, x->w->cut->n_values));
    f.record = k_text(k,
                      x->w->cut->by_value ? "cell_chunk_value_record<%s>(x.keys, x.values)"
                                          : "cell_chunk_record<%s>::bytes",
                      x->s->facts);
    f.records = k_written(k, REF_BUFFER, x->w->records, chunk_part(k->p));
    f.operands = k_lines_of(k, print_chunk);
    f.uses = k_lines_of(k, print_uses);
    if (x->kind == CHUNK_JOIN || by_segment(x))
        f.sums = k_lines_of(k, print_segments);
    f.call = k_lines_of(k, print_call);
    chunk_frame(k->out, &f);
}

static void print_kernel(Plan *p, Program *pr, const ChunkWalk *w, ChunkSize *s, ChunkKind kind, Buf *cuda)
{
    Printing x = { w, s, kind };
    Kernel k = kernel_new(p, pr, NULL, &s->kernel[pr->dir][kind].refs, cuda);
    k.threads = s->kernel[pr->dir][kind].threads;
    k.hooks = &hooks;
    k.of_schedule = &x;
    k_print(&k, s->kernel[pr->dir][kind].name, body);
    kernel_release(&k);
}

void chunk_print(Plan *p, Program *pr, Buf *cuda)
{
    ChunkWalks *all = chunk_walks(pr);
    for (int i = 0; i < all->len; i++)
        for (int n = 0; n < all->data[i].sizes; n++) {
            ChunkSize *s = &all->data[i].size[n];
            if (pr->dir == FORWARD)
                print_facts(p, &all->data[i], s, cuda);
            for (ChunkKind kind = 0; kind < CHUNK_KINDS; kind++)
                if (chunk_has_kernel(p, &all->data[i], pr->dir, kind))
                    print_kernel(p, pr, &all->data[i], s, kind, cuda);
        }
}
