/* scan_ends.c: how a walk over units begins and ends. In comes a kernel whose step is built; out go the
 * states before the first step, or the adjoints behind the last, in registers, the final ones in memory,
 * and sums over the steps, of which the walk leaves a row for each sequence. */
#include "plan/reads.h"
#include "scan_kernel.h"

/* ---- steps ---- */

const KirExpr *scan_step_number(ScanKernel *s, const KirExpr *first, const KirExpr *u)
{
    Code *x = s->x;
    const KirExpr *last = code_sub(x, code_steps(x), code_int(x, 1));
    return s->k->pr->dir == FORWARD ? code_add(x, first, u) : code_sub(x, code_sub(x, last, first), u);
}

/* Beyond the last step it is read again: without a condition nothing has to wait for what is read. */
const KirExpr *scan_step_or_last(ScanKernel *s, const KirExpr *n)
{
    Code *x = s->x;
    bool forward = s->k->pr->dir == FORWARD;
    const KirExpr *last = forward ? code_sub(x, code_steps(x), code_int(x, 1)) : code_int(x, 0);
    return kir_select(s->kir, code_binary(x, KB_LT, n, code_steps(x)), scan_step_number(s, n, code_int(x, 0)),
                      last);
}

void scan_let_step(ScanKernel *s, const KirExpr *t)
{
    s->x->t = kir_let_var(s->kir, s->t, t);
    code_let_rows(s->x, s->rows);
}

void scan_split_units(ScanKernel *s)
{
    Code *x = s->x;
    const KirExpr *n = kir_var(s->kir, s->n), *units = code_size(x, s->w->units);
    const KirExpr *b = kir_let_var(s->kir, s->b, code_binary(x, KB_DIV, n, units));
    kir_let_var(s->kir, s->e, code_sub(x, n, code_mul(x, b, units)));
}

/* ---- states ---- */

/* Where element j of unit n, counted through all sequences, lies. */
static const KirExpr *unit_place(ScanKernel *s, int each)
{
    const KirExpr *n = kir_var(s->kir, s->n);
    if (scan_in_pairs(s))
        n = code_add(s->x, n, kir_var(s->kir, s->q));
    return each > 1 ? code_add(s->x, code_mul(s->x, n, code_int(s->x, each)), kir_var(s->kir, s->j)) : n;
}

/* The element at `place` of the state before the first step, or of the adjoint behind the last. */
static const KirExpr *first_value(ScanKernel *s, TensorId state, const KirExpr *place)
{
    Code *x = s->x;
    const Plan *p = s->k->p;
    bool forward = s->k->pr->dir == FORWARD;
    if (p->own_ends) {
        const KirExpr *from = code_pointer(x, forward ? REF_TENSOR : REF_DFINAL, state, p->compute);
        return kir_select(s->kir, from, kir_element(s->kir, from, place), code_int(x, 0));
    }
    if (forward)
        return kir_element(s->kir, code_pointer(x, REF_INITIAL, state, p->compute), place);
    const KirExpr *half = code_binary(x, KB_BITS, code_steps(x), code_int(x, 1));
    half = code_mul(x, code_mul(x, half, code_batch(x)), code_size(x, tensor_elements(p->m, state)));
    return kir_element(s->kir, code_written(x, REF_CARRY, state, p->compute), code_add(x, half, place));
}

/* Others find the state before the first step where an initial one would be. */
static void keep_initial(ScanKernel *s, TensorId state, const KirExpr *place, const KirExpr *value)
{
    Code *x = s->x;
    KirOpen own = { 0 };
    if (!s->k->p->own_ends || s->k->pr->dir != FORWARD)
        return;
    const KirExpr *to = code_written(x, REF_INITIAL, state, s->k->p->compute);
    if (s->w->chunks) {
        const KirExpr *first = code_binary(x, KB_EQ, kir_var(s->kir, s->chunk), code_int(x, 0));
        own = kir_if(s->kir, code_binary(x, KB_AND, kir_var(s->kir, s->mine), first));
    }
    kir_assign(s->kir, kir_element(s->kir, to, place), value);
    if (s->w->chunks)
        kir_close(s->kir, own);
}

/* The steps were built with these locals. */
static void declare_state(ScanKernel *s, TensorId state, const KirExpr *value)
{
    const KirVar *v = s->states[state]->var;
    kir_add(s->kir, (KirStmt){ .kind = v->type.space == KS_VALUE ? KI_VAR : KI_ARRAY,
                               .var = (KirVar *)v,
                               .x = { value } });
}

void scan_states(ScanKernel *s)
{
    for (TensorId state = 0; state < s->k->p->m->tensors.len; state++) {
        if (!scan_is_state(s, state))
            continue;
        int each = scan_elements_of_state(s, state);
        if (scan_is_one(s, each)) {
            const KirExpr *place = unit_place(s, each);
            declare_state(s, state, first_value(s, state, place));
            keep_initial(s, state, place, s->states[state]);
            continue;
        }
        declare_state(s, state, NULL);
        const KirExpr *j = scan_open_each(s, each), *place = unit_place(s, each);
        const KirExpr *element = scan_local(s, s->states[state], j);
        kir_assign(s->kir, element, first_value(s, state, place));
        keep_initial(s, state, place, element);
        scan_close_each(s, each);
    }
}

static void store_last(ScanKernel *s, TensorId state)
{
    Code *x = s->x;
    const Plan *p = s->k->p;
    bool forward = s->k->pr->dir == FORWARD, ends = p->own_ends, asked = forward || ends;
    int each = scan_elements_of_state(s, state);
    const KirExpr *to = code_written(x,
                                     forward ? REF_FINAL
                                     : ends  ? REF_DINIT
                                             : REF_CARRY,
                                     state, p->compute);
    KirOpen wanted = { 0 };
    if (asked)
        wanted = kir_if(s->kir, to);
    const KirExpr *j = scan_open_each(s, each), *place = code_add(x, to, unit_place(s, each));
    kir_store(s->kir, place, scan_local(s, s->states[state], j), forward || !ends ? NULL : x->adds);
    scan_close_each(s, each);
    if (asked)
        kir_close(s->kir, wanted);
}

/* The final states, or the adjoints of the initial ones. Where there is no step, and other kernels begin
 * the walk, these have written them. */
void scan_last_states(ScanKernel *s)
{
    Code *x = s->x;
    const Plan *p = s->k->p;
    bool walked = s->w->chunks || !p->own_ends;
    const KirExpr *steps = code_steps(x), *any = code_binary(x, KB_GT, steps, code_int(x, 0));
    KirOpen there = { 0 };
    if (s->w->chunks) {
        const KirExpr *chunk =
            code_binary(x, KB_DIV, code_sub(x, steps, code_int(x, 1)), code_int(x, s->steps));
        chunk = code_binary(x, KB_EQ, code_binary(x, KB_MOD, chunk, s->chunks), kir_var(s->kir, s->chunk));
        any = code_binary(x, KB_AND, code_binary(x, KB_AND, kir_var(s->kir, s->mine), any), chunk);
    }
    if (walked)
        there = kir_if(s->kir, any);
    for (TensorId state = 0; state < p->m->tensors.len; state++) {
        const Roots *of = &p->m->roots.data[state];
        if (scan_is_state(s, state) && (s->k->pr->dir == FORWARD ? of->next : of->dprev) >= 0)
            store_last(s, state);
    }
    if (walked)
        kir_close(s->kir, there);
}

/* ---- sums over batch and time ---- */

void scan_declare_sum(ScanKernel *s, const Group *g, int number)
{
    KirVar *v = s->sums[g->arrays.data[number]]->var;
    bool one = v->type.space == KS_VALUE;
    kir_add(s->kir, (KirStmt){ .kind = one ? KI_VAR : KI_ARRAY,
                               .var = v,
                               .n = !one,
                               .x = { one ? code_int(s->x, 0) : NULL } });
}

/* Chunks of the same units' steps: their sums are added up in order. */
static void store_sum_of_chunks(ScanKernel *s, const KirExpr *partial, const KirExpr *sum, int number,
                                int64_t elements)
{
    Code *x = s->x;
    Kir *k = s->kir;
    const KirExpr *j = elements > 1 ? kir_var(k, s->j) : NULL, *own = s->units, *v;
    const KirExpr *thread = kir_special(k, KP_THREAD, 0), *units = code_size(x, s->w->units);
    kir_barrier(k, KIR_BLOCK);
    scan_open_pair(s);
    const KirExpr *at = code_add(x, code_mul(x, kir_var(k, s->chunk), own), kir_var(k, s->unit));
    at = scan_in_pairs(s) ? code_add(x, at, kir_var(k, s->q)) : at;
    kir_assign(k, kir_element(k, s->maps, at), scan_local(s, sum, j));
    scan_close_pair(s);
    kir_barrier(k, KIR_BLOCK);
    const KirExpr *unit = code_add(x, s->first, thread);
    KirOpen mine = kir_if(k, code_binary(x, KB_AND, code_binary(x, KB_LT, thread, own),
                                         code_binary(x, KB_LT, unit, s->elements)));
    const KirExpr *total = kir_mutable(k, "total", code_real(x), code_int(x, 0));
    KirOpen loop = kir_for(k, "v", KT_I32, code_int(x, 0), KB_LT, s->chunks, code_int(x, 1), &v);
    const KirExpr *part = kir_element(k, s->maps, code_add(x, code_mul(x, v, own), thread));
    kir_add_to(k, total, part);
    kir_close(k, loop);
    const KirExpr *row = code_mul(x, code_mul(x, code_int(x, number), code_batch(x)), units);
    row = code_add(x, code_add(x, row, s->first), thread);
    const KirExpr *to = code_add(x, code_mul(x, row, code_int(x, elements)), j ? j : code_int(x, 0));
    kir_assign(k, kir_element(k, partial, to), total);
    kir_close(k, mine);
}

void scan_store_sum(ScanKernel *s, const Group *g, int number)
{
    Code *x = s->x;
    NodeId id = g->arrays.data[number];
    int64_t elements = scan_array_inner(s, id);
    const KirExpr *j = elements > 1 ? kir_var(s->kir, s->j) : NULL;
    const KirExpr *partial = code_written(x, REF_BUFFER, g->partial, s->k->p->compute);
    if (elements > 1)
        scan_open_loop(s, s->j, code_int(x, elements));
    if (s->w->chunks) {
        store_sum_of_chunks(s, partial, s->sums[id], number, elements);
    } else {
        const KirExpr *row = code_mul(x, code_int(x, number), code_batch(x));
        row = code_mul(x, code_add(x, row, kir_var(s->kir, s->b)), code_size(x, s->w->units));
        row = code_add(x, row, kir_var(s->kir, s->e));
        const KirExpr *at = code_add(x, code_mul(x, row, code_int(x, elements)), j ? j : code_int(x, 0));
        kir_assign(s->kir, kir_element(s->kir, partial, at), scan_local(s, s->sums[id], j));
    }
    if (elements > 1)
        scan_close_loop(s);
}
