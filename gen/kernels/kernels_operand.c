/* kernels_operand.c: what a kernel that is built as a tree reads, computes and stores. In come a kernel
 * with the indices in scope, and values of the IR; out go expressions and statements. A value of the
 * kernel itself is in a local or is built again where it is used. */
#include <math.h>
#include <string.h>

#include "base/mutate.h"
#include "code.h"
#include "plan/reads.h"

/* ---- pointers ---- */

static int pointer_number(Code *x, const char *name)
{
    for (int i = 0; i < x->k->pointers.len; i++)
        if (x->k->pointers.data[i].name == name)
            return i;
    bug(x->k->p->m->c, "kernels", "pointer %s is not there", name);
}

/* All that the Kernel has are declared, in its order. */
static KirVar *pointer(Code *x, const char *name)
{
    while (x->pointers.len < x->k->pointers.len) {
        int i = x->pointers.len;
        const Pointer *p = &x->k->pointers.data[i];
        KirBlock *body = kir_enter(x->kir, &x->head);
        const KirExpr *v = kir_let_as(x->kir, p->name, kir_global(code_scalar(p->type), false),
                                      kir_special(x->kir, KP_POINTER, i));
        kir_enter(x->kir, body);
        vec_push(x->kir->arena, &x->pointers, v);
    }
    return x->pointers.data[pointer_number(x, name)]->var;
}

const KirExpr *code_pointer(Code *x, RefKind kind, int id, Dtype type)
{
    return kir_var(x->kir, pointer(x, k_pointer(x->k, kind, id, type)));
}

const KirExpr *code_written(Code *x, RefKind kind, int id, Dtype type)
{
    KirVar *v = pointer(x, k_written(x->k, kind, id, type));
    v->type.written = true;
    return kir_var(x->kir, v);
}

/* ---- addresses ---- */

static const KirExpr *parity(Code *x, const KirExpr *t)
{
    return code_binary(x, KB_BITS, t, code_int(x, 1));
}

const KirExpr *code_half_row(Code *x, const KirExpr *t)
{
    return code_add(x, code_mul(x, parity(x, t), code_batch(x)), x->b);
}

/* The row of a buffer where time comes before batch. */
static const KirExpr *time_first_row(Code *x, const Buffer *buffer, int ring, int ahead)
{
    const KirExpr *step = code_time_row(x, x->t, ahead);
    const KirExpr *kept = ring > 1 ? code_binary(x, KB_MOD, step, code_int(x, ring)) : code_int(x, 0);
    if (ring && buffer->reserve)
        step = kir_select(x->kir, x->saves, step, kept);
    else if (ring)
        step = kept;
    return code_add(x, code_mul(x, step, code_batch(x)), x->b);
}

/* The row of a step of the sequence: summand by summand, but that a ROW kernel adds up first what the step is
 * counted from. */
static const KirExpr *row_of_step(Code *x, const KirExpr *t)
{
    const KirExpr *first = code_first_row(x);
    if (x->slots && !x->k->p->m->c->reverse && t->kind == KX_BINARY && t->op == KB_SUB)
        return code_sub(x, code_add(x, first, t->args[0]), t->args[1]);
    return code_move(x, first, t);
}

/* The row of a buffer of batch elements and steps; a ring keeps some steps only, unless the call saves. */
const KirExpr *code_buffer_row(Code *x, const Buffer *buffer, int ahead)
{
    int ring = buffer && (x->k->pr->dir == FORWARD || !buffer->reserve) ? buffer->ring : 0;
    bool later = (ahead > 0) != x->k->p->m->c->reverse;
    if (buffer && buffer->time_first)
        return time_first_row(x, buffer, ring, ahead);
    const KirExpr *row = x->row;
    if (!row)
        row = row_of_step(x, code_time_row(x, x->t, 0));
    if (ahead)
        row = code_binary(x, later ? KB_ADD : KB_SUB, row, code_int(x, 1));
    if (ring == 0)
        return row;
    const KirExpr *place = code_binary(x, KB_MOD, code_time_row(x, x->t, ahead), code_int(x, ring));
    const KirExpr *kept = ring == 1 ? x->b : code_add(x, code_mul(x, x->b, code_int(x, ring)), place);
    if (!buffer->reserve)
        return kept;
    if (!ahead && ring <= 2 && x->ring1 && !x->away)
        return ring == 1 ? x->ring1 : x->ring2;
    return kir_select(x->kir, x->saves, row, kept);
}

const KirExpr *code_row_of(Code *x, const Storage *st)
{
    bool kept = st->home == HOME_WORKSPACE || st->home == HOME_RESERVE;
    if (st->timed && st->batched)
        return code_buffer_row(x, kept ? &x->k->p->buffers.data[st->slot] : NULL, 0);
    return st->batched ? x->b : st->timed ? code_time_row(x, x->t, 0) : code_int(x, 0);
}

const KirExpr *code_place(Code *x, const KirExpr *p, const KirExpr *row, const Poly *pitch,
                          const KirExpr *within)
{
    const KirExpr *start = code_mul(x, row, code_size(x, pitch));
    if (x->walk) /* one thread's latency: the number of the element is computed once for all reads */
        return code_add(x, p, code_move(x, start, within));
    return code_move(x, code_add(x, p, start), within);
}

static const KirExpr *place(Code *x, const KirExpr *p, const KirExpr *row, const Poly *pitch,
                            const IxExpr *within)
{
    return code_place(x, p, row, pitch, ix_node(&x->printer, within));
}

/* ---- reading values ---- */

static const KirExpr *load_number(Code *x, bool constant, bool whole, const KirExpr *at)
{
    return kir_load(x->kir, constant ? KA_LOAD_RO : KA_LOAD, whole ? KT_I64 : code_real(x), at);
}

/* Asks for the next step's element: it comes from memory while this step and the product behind it run. */
static void prefetch_next(Code *x, const Storage *st, const KirExpr *p, const Poly *pitch, const IxExpr *lin,
                          bool optional)
{
    const KirExpr *t = x->t, *row = x->row, *one = code_int(x, 1);
    bool forward = x->k->pr->dir == FORWARD, later = forward != x->k->p->m->c->reverse;
    x->t = code_binary(x, forward ? KB_ADD : KB_SUB, t, one);
    x->row = row ? code_binary(x, later ? KB_ADD : KB_SUB, row, one) : NULL;
    const KirExpr *within = x->gathers && x->wide ? code_at_first(x, lin) : ix_node(&x->printer, lin);
    const KirExpr *at = code_place(x, p, code_row_of(x, st), pitch, within);
    x->t = t;
    x->row = row;
    code_prefetch(x, at, optional ? p : NULL);
}

/* In a walk over units: what all steps have that were there before may go ahead. */
static const KirExpr *load_ahead(Code *x, const Read *r, const Storage *st, const KirExpr *p, bool optional)
{
    Module *m = x->k->p->m;
    const Poly *elements = r->is_tensor ? tensor_elements(m, r->id) : array_elements(m, r->id);
    const Poly *pitch = st->pitch ? st->pitch : elements;
    const IxExpr *lin = storage_linear(m, r, st);
    const KirExpr *row = code_row_of(x, st), *none = code_int(x, 0);
    bool whole = st->dtype == DT_I32, known = k_known_before(x->k, r);
    KirScalar type = code_scalar(st->dtype);
    CodeAhead as = { .timed = st->timed, .converted = dtype_is_fp8(st->dtype) };
    const KirExpr *at = place(x, p, row, pitch, lin);
    const KirExpr *v = load_number(x, known, whole, at);
    v = optional ? kir_select(x->kir, p, v, none) : v;
    if (whole || !known)
        return v;
    as.half = type == KT_BF16 || type == KT_F16 ? type : KT_VOID;
    as.adjacent = as.half && st->timed ? x->walk->adjacent(x, lin, pitch) : 0;
    const KirExpr *within = as.adjacent ? code_at_first(x, lin) : ix_node(&x->printer, lin);
    const KirExpr *offset = code_place(x, none, row, pitch, within);
    at = code_add(x, p, offset);
    as.from = optional ? p : at;
    as.offset = optional ? offset : NULL;
    as.word = as.half ? kir_call1(x->kir, as.adjacent ? "cell_load_two" : "cell_load_bits", at)
                      : kir_load(x->kir, KA_LOAD_RO, as.converted ? code_real(x) : type, at);
    as.word = optional ? kir_select(x->kir, p, as.word, none) : as.word;
    return x->walk->ahead(x, r, v, &as);
}

/* A read of storage that this kernel does not write: through a vector in a wide loop, else an element. */
static const KirExpr *load_storage(Code *x, const Read *r, const Storage *st, const KirExpr *p, bool optional)
{
    Module *m = x->k->p->m;
    if (x->walk)
        return load_ahead(x, r, st, p, optional);
    const Poly *elements = r->is_tensor ? tensor_elements(m, r->id) : array_elements(m, r->id);
    const Poly *pitch = st->pitch ? st->pitch : elements;
    const IxExpr *lin = storage_linear(m, r, st);
    const KirExpr *row = code_row_of(x, st);
    bool whole = st->dtype == DT_I32, inside = k_always_inside(x->k, r), known = k_known_before(x->k, r);
    int stride = x->wide && inside ? code_stride(x, lin, pitch) : -1;
    if (x->fused && p->var == x->fused->product)
        x->fused->missed |= stride != 1;
    if (stride == 1 && !whole) {
        CodeVector v = {
            .pointer = p, .type = st->dtype, .optional = optional, .fixed = !st->batched && !st->timed
        };
        v.offset = code_place(x, code_int(x, 0), row, pitch, code_at_first(x, lin));
        if (x->gathers && st->timed && known)
            prefetch_next(x, st, p, pitch, lin, optional);
        return code_vector(x, &v);
    }
    if (x->one_step && st->timed && !x->away && known && inside)
        prefetch_next(x, st, p, pitch, lin, optional);
    bool made = x->finds && !r->is_tensor && x->k->pr->phase[r->id] == PHASE_DURING;
    const KirExpr *v = load_number(x, !made, whole, place(x, p, row, pitch, lin));
    v = optional ? kir_select(x->kir, p, v, code_int(x, 0)) : v;
    const KirExpr *before = x->away ? NULL : code_read_before(x, v);
    if (before)
        return before;
    const char *name = p->var->name + 2;
    return made ? v : stride == 0 && !x->gathers ? code_hoisted_read(x, name, v) : code_early(x, r, name, v);
}

/* Where the state before the first step lies: a walk on chip (tile) has it as its first checkpoint. */
static const KirExpr *first_state(Code *x, TensorId t, const Poly *n, const IxExpr *e)
{
    const Plan *p = x->k->p;
    if (!p->schedule->on_chip)
        return place(x, code_pointer(x, REF_INITIAL, t, p->compute), x->b, n, e);
    const KirExpr *last = code_add(x, code_steps(x), code_int(x, p->interval - 1));
    const KirExpr *slots = code_binary(x, KB_DIV, last, code_int(x, p->interval));
    const KirExpr *row = code_mul(x, x->b, slots);
    if (x->first_row)
        row = code_add(x, code_binary(x, KB_DIV, x->first_row, code_int(x, p->interval)), x->b);
    return place(x, code_pointer(x, REF_CHECKPOINT, t, p->compute), row, n, e);
}

/* A state at the row that it is saved in, or as the walk began: which it is, is the same for all elements. */
static const KirExpr *load_chosen(Code *x, const KirExpr *saved, const KirExpr *row, TensorId t,
                                  const Poly *n, const IxExpr *e)
{
    const KirExpr *later = code_binary(x, KB_GT, x->t, code_int(x, 0)), *size = code_size(x, n);
    const KirExpr *first = code_pointer(x, REF_INITIAL, t, x->k->p->compute);
    const KirExpr *from = kir_select(x->kir, later, code_add(x, saved, code_mul(x, row, size)),
                                     code_add(x, first, code_mul(x, x->b, size)));
    return load_number(x, false, false, code_move(x, from, ix_node(&x->printer, e)));
}

const KirExpr *code_saved_state(Code *x, const Read *r)
{
    Module *m = x->k->p->m;
    NodeId next = m->roots.data[r->id].next;
    const Storage *st = &x->k->p->program[FORWARD].node[next];
    const Poly *n = tensor_elements(m, r->id);
    const IxExpr *e = read_linear(m, r);
    const KirExpr *row = code_buffer_row(x, &x->k->p->buffers.data[st->slot], mutate("late-load") ? 0 : -1);
    const KirExpr *saved = place(x, code_pointer(x, REF_NODE, next, st->dtype), row, n, e);
    const KirExpr *later = code_binary(x, KB_GT, x->t, code_int(x, 0));
    return kir_select(x->kir, later, saved, first_state(x, r->id, n, e));
}

/* Of the sequence before its step: in a walk over units, what this very walk makes is read there if it may
 * be. */
static const KirExpr *walked_state(Code *x, const Read *r)
{
    const KirExpr *held = x->walk->held(x, r);
    if (held)
        return held;
    const KirExpr *from = code_saved_state(x, r), *v = load_number(x, false, false, from);
    const CodeAhead as = { .word = v, .from = from, .timed = true };
    return x->k->pr->dir == BACKWARD ? x->walk->ahead(x, r, v, &as) : v;
}

static const KirExpr *load_state(Code *x, const Read *r)
{
    Module *m = x->k->p->m;
    NodeId next = m->roots.data[r->id].next;
    if (x->walk)
        return walked_state(x, r);
    if (x->k->p->request->cpu && !x->k->p->schedule->on_chip) {
        const Storage *st = &x->k->p->program[FORWARD].node[next];
        const KirExpr *row =
            code_buffer_row(x, &x->k->p->buffers.data[st->slot], mutate("late-load") ? 0 : -1);
        return load_chosen(x, code_pointer(x, REF_NODE, next, st->dtype), row, r->id,
                           tensor_elements(m, r->id), read_linear(m, r));
    }
    const KirExpr *v = load_number(x, x->k->g && x->k->g->along, false, code_saved_state(x, r));
    return code_early(x, r, m->tensors.data[r->id].name, v);
}

static const KirExpr *load_adjoint(Code *x, const Read *r, TensorId of)
{
    const Poly *n = tensor_elements(x->k->p->m, r->id);
    const IxExpr *lin = read_linear(x->k->p->m, r);
    const KirExpr *p = code_pointer(x, REF_CARRY, of, x->k->p->compute);
    const KirExpr *t = mutate("stale-adjoint") ? x->t : code_add(x, x->t, code_int(x, 1));
    const KirExpr *half = code_half_row(x, t);
    if (x->wide && k_always_inside(x->k, r) && code_stride(x, lin, n) == 1) {
        CodeVector v = { .pointer = p, .type = x->k->p->compute };
        v.offset = code_place(x, code_int(x, 0), half, n, code_at_first(x, lin));
        return code_vector(x, &v);
    }
    const KirExpr *v = load_number(x, x->k->g && x->k->g->along, false, place(x, p, half, n, lin));
    return code_early(x, r, p->var->name + 2, v);
}

/* Element by element: a condition on the step stands before it. */
static const KirExpr *load_history(Code *x, const Read *r, const Storage *st)
{
    x->depth++;
    const KirExpr *v = load_storage(x, r, st, code_pointer(x, REF_TENSOR, r->id, st->dtype), true);
    x->depth--;
    return v;
}

static const KirExpr *load_tensor(Code *x, const Read *r)
{
    Module *m = x->k->p->m;
    const Tensor *t = &m->tensors.data[r->id];
    const Storage *st = &x->k->pr->tensor[r->id];
    const KirExpr *found = x->finds                        ? x->finds(x, r)
                           : x->walk && t->kind == T_DNEXT ? x->walk->held(x, r)
                                                           : NULL;
    if (found)
        return found;
    switch (t->kind) {
    case T_STATE: return load_state(x, r);
    case T_DNEXT: return load_adjoint(x, r, t->of);
    case T_HISTORY:
    case T_DHISTORY: return load_history(x, r, st);
    case T_DINIT: {
        const KirExpr *given = code_pointer(x, REF_TENSOR, t->of, x->k->p->compute);
        const KirExpr *p = code_pointer(x, REF_CARRY, t->of, x->k->p->compute);
        const KirExpr *at = place(x, p, x->b, tensor_elements(m, r->id), read_linear(m, r));
        return kir_select(x->kir, given, code_int(x, 0), load_number(x, false, false, at));
    }
    default: {
        const KirExpr *p = code_pointer(x, REF_TENSOR, r->id, st->dtype);
        return load_storage(x, r, st, p, t->kind == T_DOUT);
    }
    }
}

/* Of constants: a pointer to the table, declared in front of all. */
static const KirExpr *table(Code *x, NodeId array)
{
    int64_t number = (int64_t)table_number(x->k->p, array);
    for (int i = 0; i < x->tables.len; i++)
        if (x->tables.data[i].number == number)
            return kir_var(x->kir, x->tables.data[i].pointer);
    KirBlock *body = kir_enter(x->kir, &x->head);
    const char *name = names_fresh(&x->k->locals, "table");
    const KirExpr *p =
        kir_let_as(x->kir, name, kir_global(code_real(x), false), kir_special(x->kir, KP_TABLE, number));
    kir_enter(x->kir, body);
    vec_push(x->kir->arena, &x->tables, ((CodeTable){ number, p->var }));
    return p;
}

/* May a value over the past be computed whatever condition its read stands under? Its indices are the
 * reader's own, so that it is there. */
static bool is_kept(const Code *x, NodeId array, const IxExpr *const *map)
{
    const Module *m = x->k->p->m;
    const Node *a = k_node(x->k, array);
    IndexId which;
    bool kept = x->past_keeps && x->k->p->past[array] && a->type == TY_REAL;
    for (int i = 0; i < a->naxes && kept; i++)
        kept = ix_is_index(map[i], &which) && which >= IX_FIRST &&
               m->indices.data[which].extent == m->indices.data[a->axes[i]].extent;
    return kept;
}

/* The name of such a value at this step and at these places; or NULL. */
static const KirExpr *kept_value(const Code *x, NodeId array, const KirExpr *const *places)
{
    for (int i = 0; i < x->past_values.len; i++) {
        const CodePast *v = &x->past_values.data[i];
        bool same = v->array == array && kir_equal(v->t, x->t);
        for (int j = 0; same && j < k_node(x->k, array)->naxes; j++)
            same = kir_equal(v->places[j], places[j]);
        if (same)
            return v->local;
    }
    return NULL;
}

static const KirExpr *keep_value(Code *x, NodeId array, const KirExpr *const *places, const KirExpr *value)
{
    size_t size = sizeof *places * (size_t)k_node(x->k, array)->naxes;
    const KirExpr **own = arena_alloc(x->kir->arena, size + sizeof *own);
    memcpy(own, places, size);
    const KirExpr *local = kir_let(x->kir, names_fresh(&x->k->locals, "past"), code_real(x), value);
    vec_push(x->kir->arena, &x->past_values, ((CodePast){ array, x->t, own, local }));
    return local;
}

static const KirExpr *in_place(Code *x, NodeId array, const IxExpr *const *map)
{
    const Node a = *k_node(x->k, array);
    const Read r = { .id = array, .nmap = a.naxes, .map = (const IxExpr **)(uintptr_t)map };
    if (k_has_table(x->k, &r))
        return load_number(x, true, false,
                           code_move(x, table(x, array), ix_node(&x->printer, read_linear(x->k->p->m, &r))));
    const KirExpr *inside[64] = { NULL }, *before[64] = { NULL };
    const IxExpr *meant[64];
    bool beyond[64] = { false };
    walk_enter(x->k, &a, map, meant);
    for (int i = 0; i < a.naxes; i++) {
        inside[i] = ix_node(&x->printer, map[i]);
        beyond[i] = !k_is_inside(x->k, map[i], x->k->p->m->indices.data[a.axes[i]].extent);
    }
    bool kept = is_kept(x, array, map);
    const KirExpr *local = kept ? kept_value(x, array, inside) : NULL;
    if (local) {
        walk_leave(x->k, &a, meant);
        return local;
    }
    for (int i = 0; i < a.naxes; i++) {
        before[i] = x->index[a.axes[i]];
        x->index[a.axes[i]] = inside[i];
        bool was = x->k->beyond[a.axes[i]];
        x->k->beyond[a.axes[i]] = beyond[i];
        beyond[i] = was;
    }
    x->depth++;
    const KirExpr *v = expr_node(&x->printer, a.args[0]);
    x->depth--;
    for (int i = a.naxes - 1; i >= 0; i--) {
        x->index[a.axes[i]] = before[i];
        x->k->beyond[a.axes[i]] = beyond[i];
    }
    walk_leave(x->k, &a, meant);
    return kept && !x->inside ? keep_value(x, array, inside, v) : v;
}

/* An element of a value that is kept along the row, where the read is of this row, and inside of it whatever
 * stands around it; NULL: it is not. */
static const KirExpr *load_held(Code *x, const Read *r)
{
    const Node *n = k_node(x->k, r->id);
    int last = n->naxes - 1;
    if (!x->held || !x->held[r->id] || x->away || !k_always_inside(x->k, r))
        return NULL;
    for (int i = 0; i < last; i++)
        if (!kir_equal(ix_node(&x->printer, r->map[i]), x->own[i]))
            return NULL;
    return load_number(x, false, false, code_add(x, x->held[r->id], ix_node(&x->printer, r->map[last])));
}

/* A value of this very kernel at the reader's own indices is in a local or lies in its row, or is built
 * again where it is used. */
static const KirExpr *load_array(Code *x, const Read *r)
{
    Kernel *k = x->k;
    bool here = k->g && k->pr->group[r->id] >= 0 && &k->pr->groups.data[k->pr->group[r->id]] == k->g;
    if (here && x->value[r->id] && !x->other_step)
        return x->walk ? x->walk->element(x, r, x->value[r->id]) : x->value[r->id];
    const KirExpr *held = x->walk    ? x->walk->held(x, r)
                          : here     ? load_held(x, r)
                          : x->finds ? x->finds(x, r)
                                     : NULL;
    if (held)
        return held;
    const Storage *st = &k->pr->node[r->id];
    if (here || st->home == HOME_NONE || (k->g && plan_rematerialises(k->p, k->pr, k->g->phase, r->id)))
        return in_place(x, r->id, r->map);
    return load_storage(x, r, st, code_pointer(x, REF_NODE, r->id, st->dtype), false);
}

/* The index stands for the reader's step, as x->t has it before the read goes to another. */
static void bind_readers_step(Code *x, IndexId here)
{
    if (here >= x->indices) {
        x->index = arena_grow(x->kir->arena, x->index, sizeof *x->index * (size_t)x->indices,
                              sizeof *x->index * (size_t)(here + 64));
        memset(x->index + x->indices, 0, sizeof *x->index * (size_t)(here + 64 - x->indices));
        x->indices = here + 64;
    }
    x->index[here] = x->printer.nodes->index(&x->printer, IX_TIME);
}

/* The value of a step before the call. */
static const KirExpr *load_past(Code *x, const Read *of)
{
    Read r = k_past(x->k->p->m, of);
    return load_history(x, &r, &x->k->pr->tensor[of->past]);
}

/* Another step's value: the same read with that step in place of this one. Nothing that is kept for this
 * step is used. */
static const KirExpr *load_at_step(Code *x, const Read *of)
{
    const KirExpr *t = x->t, *row = x->row, *past = of->past >= 0 ? load_past(x, of) : NULL;
    Read own = *of;
    const Read *r = &own;
    IndexId here = k_readers_step(x->k->p->m, &own);
    if (here >= 0)
        bind_readers_step(x, here);
    if (!mutate("unmoved-step"))
        x->t = code_sub(x, ix_node(&x->printer, r->step), x->printer.nodes->start(&x->printer));
    x->row = NULL;
    x->depth++;
    x->away++;
    x->other_step++;
    const KirExpr *v = r->is_tensor ? load_tensor(x, r) : load_array(x, r);
    x->other_step--;
    x->away--;
    x->depth--;
    const KirExpr *there = code_binary(x, KB_GE, x->t, code_int(x, 0));
    x->t = t;
    x->row = row;
    return past ? kir_select(x->kir, there, v, past) : v;
}

/* Of a place: from here on it is named where it is used twice. It would be in a read at a place that a
 * read gives. */
enum { LARGE_PLACE = 24 };

/* At most `most`. What has statements in front of it has that many, whatever stands behind them: to repeat it
 * would repeat these. */
static int nodes_of(const KirExpr *e, int most)
{
    int n = 1;
    if (e->kind == KX_WITHIN)
        return most;
    for (int i = 0; i < e->nargs && n < most; i++)
        n += nodes_of(e->args[i], most - n);
    return n;
}

/* A read at places that values give: at the nearest place inside, and 0 where that is not the place. Large
 * places have a name in front of it. */
static const KirExpr *gather(Code *x, NodeId id)
{
    Module *m = x->k->p->m;
    const Node r = *k_node(x->k, id);
    const KirExpr *before[64] = { NULL }, *at[64] = { NULL }, *inside = kir_truth(x->kir, true);
    KirBlock *named = NULL, *outer = x->kir->at;
    NodeId pinned[64];
    bool only = false, gathers = x->gathers, wide = x->wide;
    int placed = x->placed.len;
    x->depth++;
    for (int i = 0; i < r.nbound; i++) {
        pinned[i] = ir_pinned(m, r.args[0], r.bound[i], r.bound, r.nbound, &only);
        at[i] = expr_node(&x->printer, pinned[i]);
    }
    for (int i = 0; i < r.nbound; i++) {
        const KirExpr *extent = code_size(x, m->indices.data[r.bound[i]].extent);
        bool large = nodes_of(at[i], LARGE_PLACE) >= LARGE_PLACE;
        if (large && (r.type == TY_INT || !(gathers || wide))) {
            named = named ? named : arena_alloc(m->arena, sizeof *named);
            kir_enter(x->kir, named);
            at[i] = code_let(x, names_fresh(&x->k->locals, "at"), at[i]);
            vec_push(m->arena, &x->placed, ((Placed){ .place = pinned[i], .depth = x->depth }));
            vec_push(m->arena, &x->places, at[i]);
        }
        inside = code_binary(x, KB_AND, inside, kir_call2(x->kir, "cell_inside", at[i], extent));
        before[i] = x->index[r.bound[i]];
        x->index[r.bound[i]] = kir_call2(x->kir, "cell_nearest", at[i], extent);
    }
    NodeId term = only && r.nbound == 1 ? k_node(x->k, r.args[0])->args[1] : r.args[0];
    x->away += named != NULL; /* nothing of it is kept, or read elsewhere */
    x->inside += named != NULL;
    x->gathers = gathers && !named;
    x->wide = wide && !named;
    const KirExpr *v = expr_node(&x->printer, term);
    x->inside -= named != NULL;
    x->away -= named != NULL;
    x->gathers = gathers;
    x->wide = wide;
    kir_enter(x->kir, outer);
    x->placed.len = x->places.len = placed;
    for (int i = r.nbound - 1; i >= 0; i--)
        x->index[r.bound[i]] = before[i];
    x->depth--;
    if (!mutate("gather-outside"))
        v = kir_select(x->kir, inside, v, code_int(x, 0));
    return named ? kir_within(x->kir, named, v) : v;
}

/* A reduction as an expression: a loop in front of its value. */
static const KirExpr *reduce_in_place(Code *x, NodeId id)
{
    const Node r = *k_node(x->k, id);
    KirBlock *body = arena_alloc(x->kir->arena, sizeof *body), *outer = kir_enter(x->kir, body);
    const KirExpr *before[64], *start;
    KirOpen loops[64];
    bool extreme = r.reduce == R_MAX || r.reduce == R_MIN;
    start = extreme ? kir_real(x->kir, code_real(x), r.reduce == R_MAX ? -HUGE_VAL : HUGE_VAL)
                    : code_int(x, r.reduce == R_PROD);
    const KirExpr *sum = kir_mutable(x->kir, names_fresh(&x->k->locals, "within"), code_real(x), start);
    for (int i = 0; i < r.nbound; i++) {
        const Index *b = &x->k->p->m->indices.data[r.bound[i]];
        const char *name = names_fresh(&x->k->locals, k_text(x->k, "i_%s", b->name));
        before[i] = x->index[r.bound[i]];
        loops[i] = code_for(x, name, code_int(x, 0), code_size(x, b->extent), code_int(x, 1),
                            &x->index[r.bound[i]]);
    }
    bool gathers = x->gathers, wide = x->wide;
    x->gathers = x->wide = false;
    x->depth++;
    x->inside++;
    const KirExpr *term = expr_node(&x->printer, r.args[0]);
    x->inside--;
    x->depth--;
    x->gathers = gathers;
    x->wide = wide;
    if (extreme)
        kir_assign(x->kir, sum, kir_call2(x->kir, r.reduce == R_MAX ? "cell_max" : "cell_min", sum, term));
    else
        kir_add(x->kir, (KirStmt){ .kind = KI_ASSIGN, .op = r.reduce == R_PROD ? KB_MUL : KB_ADD,
                                   .x = { sum, term } });
    for (int i = r.nbound - 1; i >= 0; i--) {
        kir_close(x->kir, loops[i]);
        x->index[r.bound[i]] = before[i];
    }
    kir_enter(x->kir, outer);
    return kir_within(x->kir, body, sum);
}

/* ---- what the printer of expressions asks for ---- */

const KirExpr *code_read(Code *x, const Read *r)
{
    return r->step ? load_at_step(x, r) : r->is_tensor ? load_tensor(x, r) : load_array(x, r);
}

/* A value over the past that the block has read before; or NULL. */
static const KirExpr *past_tile(const Code *x, const Read *r)
{
    for (int i = 0; i < x->past_tiles.len; i++) {
        const Read *t = &x->past_tiles.data[i].read;
        bool same = !r->is_tensor && t->id == r->id && t->nmap == r->nmap && t->step == r->step;
        for (int j = 0; j < r->nmap && same; j++)
            same = t->map[j] == r->map[j];
        if (same)
            return x->past_tiles.data[i].value;
    }
    return NULL;
}

static const KirExpr *leaf(ExprPrinter *e, NodeId id)
{
    Code *x = e->data;
    Read r;
    if (ir_gathers(x->k->p->m, id))
        return gather(x, id);
    if (plan_resolve(x->k->p, id, &r)) {
        const KirExpr *tile = x->depth ? NULL : past_tile(x, &r);
        return tile ? tile : code_read(x, &r);
    }
    const Node *n = k_node(x->k, id);
    const KirExpr *made = n->kind == N_REDUCE && x->reduces ? x->reduces(x, id) : NULL;
    if (made)
        return made;
    n = k_node(x->k, id);
    if (n->kind == N_REDUCE && x->k->p->past)
        return reduce_in_place(x, id);
    if (n->kind == N_ARRAY || n->kind == N_VIEW)
        return expr_node(e, k_node(x->k, n->kind == N_VIEW ? n->args[0] : id)->args[0]);
    bug(x->k->p->m->c, "kernels", "a reduction inside an expression");
}

/* An element of a table that the kernel keeps of the node; NULL: it keeps none, or the element may not be in
 * it. */
static const KirExpr *tabled(Code *x, NodeId id)
{
    if (!x->table || id >= x->values || !x->table[id] || x->away || x->other_step)
        return NULL;
    const IndexId along = x->table_along[id];
    return x->k->beyond[along] || !x->index[along] ? NULL
                                                   : kir_element(x->kir, x->table[id], x->index[along]);
}

static const KirExpr *known(ExprPrinter *e, NodeId id)
{
    Code *x = e->data;
    const KirExpr *kept = tabled(x, id);
    if (kept)
        return kept;
    for (int i = x->placed.len - 1; i >= 0; i--)
        if (x->placed.data[i].place == id && x->placed.data[i].depth == x->depth)
            return x->places.data[i];
    const KirExpr *once = x->walk && (x->depth || !x->value[id]) ? x->walk->once(x, id) : NULL;
    if (once)
        return once;
    const KirExpr *chosen = code_chosen(x, id);
    if (chosen)
        return chosen;
    const Node *n = k_node(x->k, id);
    if (x->depth || n->kind != N_MAP)
        return NULL;
    if (x->value[id])
        return x->value[id];
    return id != x->hoisting && code_same_for_all(x, n) ? code_hoist(x, id, false) : NULL;
}

static const KirExpr *reciprocal(ExprPrinter *e, NodeId id)
{
    Code *x = e->data;
    return code_same_for_all(x, k_node(x->k, id)) ? code_hoist(x, id, true) : NULL;
}

static const KirExpr *index_of(ExprPrinter *e, IndexId i)
{
    Code *x = e->data;
    const KirExpr *start = x->sizes[x->k->p->m->dims.len + 2];
    if (i == IX_TIME)
        return code_add(x, start, x->t);
    if (i == IX_START)
        return start;
    if (!x->index[i])
        bug(x->k->p->m->c, "kernels", "index %s is not in scope", x->k->p->m->indices.data[i].name);
    if (x->at_first && x->walk)
        return x->walk->first_unit(x, x->index[i]);
    bool along = x->index[i]->kind == KX_VAR && x->index[i]->var == x->along;
    return x->at_first && along ? x->first : x->index[i];
}

static const KirExpr *size_of(ExprPrinter *e, int dim)
{
    Code *x = e->data;
    return dim == ATOM_B ? x->sizes[0] : dim == ATOM_T ? code_steps(x) : x->sizes[2 + dim];
}

static const KirExpr *start_of(ExprPrinter *e)
{
    return index_of(e, IX_START);
}

const ExprNodes code_nodes = { .leaf = leaf,
                               .index = index_of,
                               .known = known,
                               .reciprocal = reciprocal,
                               .size = size_of,
                               .start = start_of };

/* ---- locals for what an expression uses more than once ---- */

/* A count below zero: it was here. */
static void name_shared(Code *x, NodeId id, int *uses, Named *named)
{
    const Node n = *k_node(x->k, id);
    if (uses[id] < 0)
        return;
    uses[id] = -uses[id];
    if (n.kind != N_MAP || tabled(x, id))
        return;
    for (int i = 0; i < n.nargs; i++)
        name_shared(x, n.args[i], uses, named);
    if (uses[id] > -2 || x->value[id] || code_same_for_all(x, &n) ||
        (n.type != TY_REAL && k_is_short(x->k, id)))
        return;
    const char *name = k_text(x->k, "s%d", x->k->numbered++);
    const KirExpr *v = expr_node(&x->printer, id);
    KirScalar type = n.type == TY_BOOL ? KT_BOOL : n.type == TY_INT ? KT_I64 : code_real(x);
    x->value[id] = kir_let(x->kir, name, type, v);
    vec_push(x->kir->arena, named, id);
}

const KirExpr *code_value(Code *x, NodeId body, Named *named)
{
    int *uses = k_count_uses(x->k, body);
    name_shared(x, body, uses, named);
    k_clear_uses(x->k, body, uses);
    const KirExpr *v = expr_node(&x->printer, body);
    return k_node(x->k, body)->type == TY_REAL ? v : kir_convert(x->kir, kir_value(code_real(x)), v);
}

void code_forget(Code *x, Named *named)
{
    for (int i = 0; i < named->len; i++)
        x->value[named->data[i]] = NULL;
    named->len = 0;
}

/* ---- the element of an array ---- */

void code_array(Code *x, NodeId id, Named *kept)
{
    Named named = { 0 };
    code_comment(x, id);
    const KirExpr *v = code_value(x, k_node(x->k, id)->args[0], &named);
    x->value[id] = kir_let(x->kir, k_local(x->k, "a", id), code_real(x), v);
    code_forget(x, &named);
    vec_push(x->kir->arena, kept, id);
    if (k_is_stored(x->k, id))
        code_store(x, id, x->value[id]);
}
