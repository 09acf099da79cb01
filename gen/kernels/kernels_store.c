/* kernels_store.c: where a kernel that is built as a tree stores what it computes. In come a value at the
 * indices in scope and what is kept of it; out go stores: to a buffer or an argument, and of a state where
 * the next step, and behind the last one the caller, finds it. In a wide loop what is contiguous goes as
 * vectors behind the neighbours. */
#include "base/mutate.h"
#include "code.h"
#include "plan/reads.h"

/* Behind the neighbours, under a condition or none. */
static KirOpen open_behind(Code *x, const KirExpr *condition)
{
    KirOpen open = { 0 };
    if (condition)
        open = kir_if(x->kir, condition);
    return open;
}

static void close_behind(Code *x, const KirExpr *condition, KirOpen open)
{
    if (condition)
        kir_close(x->kir, open);
}

/* A vector of what the neighbours give, which goes to the place of the first one. */
static void store_neighbours(Code *x, const char *name, const KirExpr *place, const KirExpr *value,
                             const KirExpr *condition, const KirExpr *adds)
{
    Kir *k = x->kir;
    KirBlock *body = kir_enter(k, &x->loads);
    const KirExpr *v = kir_array(k, name, code_real(x), x->n, false);
    kir_enter(k, body);
    kir_assign(k, kir_element(k, v, x->u), value);
    kir_enter(k, &x->stores);
    KirOpen open = open_behind(x, condition);
    kir_store_vector(k, place, v, x->n, adds);
    close_behind(x, condition, open);
    kir_enter(k, body);
}

/* One element, or in a wide loop the neighbours, of what is carried from step to step. */
static void store_step(Code *x, const KirExpr *p, const KirExpr *row, const Poly *pitch, const IxExpr *lin,
                       const KirExpr *value, const KirExpr *condition)
{
    if (x->wide && code_stride(x, lin, pitch) == 1) {
        const char *name = names_fresh(&x->k->locals, k_text(x->k, "w_%s", p->var->name + 2));
        const KirExpr *to = code_place(x, p, row, pitch, code_at_first(x, lin));
        store_neighbours(x, name, to, value, condition, NULL);
        return;
    }
    KirOpen open = open_behind(x, condition);
    kir_store(x->kir, code_place(x, p, row, pitch, ix_node(&x->printer, lin)), value, NULL);
    close_behind(x, condition, open);
}

/* A next state goes before the next step too, and behind the last. */
static void store_next(Code *x, NodeId id, TensorId s, const KirExpr *value)
{
    Module *m = x->k->p->m;
    const Poly *n = tensor_elements(m, s);
    Read self = read_itself(m, id);
    const IxExpr *lin = read_linear(m, &self);
    int before = x->k->pr->before[s];
    const KirExpr *next = code_add(x, x->t, code_int(x, 1));
    if (before >= 0) {
        const Buffer *b = &x->k->p->buffers.data[before];
        const KirExpr *row = code_buffer_row(x, b, 1), *p = code_written(x, REF_BEFORE, s, b->dtype);
        store_step(x, p, row, n, lin, value, code_binary(x, KB_LT, next, code_steps(x)));
    }
    if (x->walk) {
        x->walk->carries(x, s, &self, value);
        return; /* the last one is stored behind the steps */
    }
    const KirExpr *final = code_written(x, REF_FINAL, s, x->k->p->compute);
    const KirExpr *last = code_binary(x, KB_EQ, next, code_steps(x));
    KirOpen open = kir_if(x->kir, code_binary(x, KB_AND, final, last));
    kir_store(x->kir, code_place(x, final, x->b, n, ix_node(&x->printer, lin)), value, NULL);
    kir_close(x->kir, open);
}

static void store_carried(Code *x, NodeId id, TensorId of, const KirExpr *value)
{
    Module *m = x->k->p->m;
    Read self = read_itself(m, id);
    if (x->walk) {
        x->walk->carries(x, of, &self, value);
        return; /* likewise */
    }
    const KirExpr *half = code_half_row(x, x->t), *p = code_written(x, REF_CARRY, of, x->k->p->compute);
    store_step(x, p, half, tensor_elements(m, of), read_linear(m, &self), value, NULL);
}

void code_store(Code *x, NodeId id, const KirExpr *value)
{
    Module *m = x->k->p->m;
    const Storage *st = &x->k->pr->node[id];
    TensorId of = -1;
    RootKind root = root_kind(m, id, &of);
    Read self = read_itself(m, id);
    const KirExpr *memory = x->keeps ? x->keeps(x, id, value) : NULL;
    if (root == ROOT_DPREV) {
        KirOpen open = open_behind(x, memory);
        store_carried(x, id, of, value);
        close_behind(x, memory, open);
        return;
    }
    if (root == ROOT_NEXT && x->k->pr->dir == FORWARD)
        store_next(x, id, of, value);
    if (st->home == HOME_NONE || (memory && memory->kind == KX_TRUTH && !memory->whole))
        return;
    const KirExpr *row = code_row_of(x, st);
    const IxExpr *lin = storage_linear(m, &self, st);
    const Poly *pitch = st->pitch ? st->pitch : array_elements(m, id);
    bool wide = root != ROOT_DPARAM_INIT && code_stride(x, lin, pitch) == 1;
    const KirExpr *p = code_written(x, REF_NODE, id, st->dtype);
    const KirExpr *wanted = memory ? memory : k_may_be_null(x->k, st) ? p : NULL, *adds = NULL;
    if (x->walk && wanted)
        wanted = x->walk->wants(x, id, p);
    if (st->home == HOME_ARG && x->k->pr->dir == BACKWARD)
        adds = root == ROOT_DPARAM_INIT ? kir_truth(x->kir, true) : x->adds;
    if (x->k->p->summed && x->k->p->summed[id])
        adds = kir_truth(x->kir, !mutate("last-step"));
    if (wide) {
        const KirExpr *to = code_place(x, p, row, pitch, code_at_first(x, lin));
        store_neighbours(x, k_local(x->k, "w", id), to, value, wanted, adds);
        return;
    }
    KirOpen open = open_behind(x, wanted);
    const KirExpr *within = x->two ? code_at_first(x, lin) : ix_node(&x->printer, lin);
    const KirExpr *to = code_place(x, p, row, pitch, within);
    if (x->two)
        kir_store_vector(x->kir, to, x->two, code_int(x, 2), adds);
    else
        kir_store(x->kir, to, value, adds);
    close_behind(x, wanted, open);
}
