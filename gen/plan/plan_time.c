/* plan_time.c: which buffers of the steps have time before batch. In comes a plan whose products of a step are one for
 * each sequence, since a sequence has rows of its own (slots, heads) and its steps lie between these and the next
 * sequence's. Out goes the same plan with the operands and results of these products as [T][B][axes], so that a step is
 * one product for all sequences. Guaranteed: nobody but products and the steps' own kernels reads such a buffer, and a
 * product over all steps has all of its rows in one order. */
#include "plan_pass.h"

static bool is_kept(const Storage *st)
{
    return (st->home == HOME_WORKSPACE || st->home == HOME_RESERVE) && st->slot >= 0 && st->batched && st->timed;
}

/* One product for each sequence in a step. */
static bool per_sequence(const Plan *p, const Group *g)
{
    return g->kind == G_GEMM && g->phase == PHASE_DURING && g->gemm.batch == poly_dim(p->m, ATOM_B);
}

static const Storage *storage_of(const Plan *p, int d, NodeId id)
{
    const Storage *own = &p->program[d].node[id];
    return own->home == HOME_NONE ? &p->program[FORWARD].node[id] : own;
}

/* Has the operand a row for each sequence and step, but what is carried by parity? */
static bool has_rows(const Plan *p, const Read *r)
{
    TensorId of;
    if (r->is_tensor)
        return p->m->tensors.data[r->id].kind != T_PARAM;
    return rows_dep(p, r->id) == (DEP_BATCH | DEP_TIME) && root_kind(p->m, r->id, &of) != ROOT_DPREV;
}

static bool has_time_first(const Plan *p, const Read *r)
{
    return !r->is_tensor && p->time_first[r->id];
}

static bool mark(Plan *p, int d, const Read *r)
{
    const Storage *st = r->is_tensor ? NULL : storage_of(p, d, r->id);
    if (!has_rows(p, r))
        return true;
    if (!st || !is_kept(st) || st->pitch || st->alias_offset || p->is_cat[r->id])
        return false;
    p->time_first[r->id] = true;
    return true;
}

static bool mark_products(Plan *p, bool *any)
{
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < p->program[d].groups.len; i++) {
            const Group *g = &p->program[d].groups.data[i];
            if (!per_sequence(p, g))
                continue;
            *any = true;
            if (!mark(p, d, &g->gemm.a.read) || !mark(p, d, &g->gemm.b.read) || !mark(p, d, &g->gemm.c.read))
                return false;
        }
    return true;
}

/* Do other values lie in one of these buffers? */
static bool shares_buffer(const Plan *p)
{
    for (int d = 0; d < 2; d++)
        for (NodeId id = 0; id < p->n_nodes; id++)
            for (NodeId other = 0; is_kept(&p->program[d].node[id]) && !p->time_first[id] && other < p->n_nodes; other++)
                if (p->time_first[other] && storage_of(p, d, other)->slot == p->program[d].node[id].slot)
                    return true;
    return false;
}

/* The product as it is then; false: it is none, or has its rows in two orders. */
static bool product_of(Plan *p, const Group *g, Gemm *to)
{
    NodeId factor[2];
    const Read *r[3] = { &g->gemm.a.read, &g->gemm.b.read, &g->gemm.c.read };
    int rows = 0, first = 0;
    for (int i = 0; i < 3; i++) {
        rows += has_rows(p, r[i]);
        first += has_time_first(p, r[i]);
    }
    *to = g->gemm;
    if (first == 0)
        return true;
    bool is_product = contraction_of(p, g->arrays.data[0], g->phase == PHASE_DURING, to, factor);
    to->added = g->gemm.added;
    return first == rows && is_product &&
           !per_sequence(p, &(Group){ .kind = G_GEMM, .phase = g->phase, .gemm = *to });
}

static bool fits(Plan *p, const Group *g)
{
    bool kernel = g->phase == PHASE_DURING && (g->kind == G_MAP || g->kind == G_ROW);
    Gemm to;
    if (g->kind == G_GEMM)
        return product_of(p, g, &to);
    for (int i = 0; i < g->reads.len && !kernel; i++)
        if (g->reads.data[i] >= 0 && p->time_first[g->reads.data[i]])
            return false;
    for (int i = 0; i < g->arrays.len && !kernel; i++)
        if (p->time_first[g->arrays.data[i]])
            return false;
    return true;
}

static bool all_fit(Plan *p)
{
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < p->program[d].groups.len; i++)
            if (!fits(p, &p->program[d].groups.data[i]))
                return false;
    return true;
}

static void take(Plan *p)
{
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < p->program[d].groups.len; i++) {
            Group *g = &p->program[d].groups.data[i];
            Gemm to;
            if (g->kind == G_GEMM && product_of(p, g, &to))
                g->gemm = to;
        }
    for (int d = 0; d < 2; d++)
        for (NodeId id = 0; id < p->n_nodes; id++)
            if (p->time_first[id] && is_kept(&p->program[d].node[id]))
                p->buffers.data[p->program[d].node[id].slot].time_first = true;
}

void put_time_first(Plan *p)
{
    bool any = false;
    p->time_first = plan_alloc(p, sizeof *p->time_first, p->n_nodes);
    if (mark_products(p, &any) && any && !shares_buffer(p) && all_fit(p))
        take(p);
    else
        p->time_first = NULL;
}
