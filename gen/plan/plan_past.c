/* plan_past.c: values with a place for each earlier step. In comes a module with its reads of earlier steps; out goes
 * which arrays over the past lie in no memory and are made where they are read, since memory for them would grow with
 * the square of T, or with T times a window. */
#include "plan_pass.h"

/* A window of so many steps is a short one, whose values lie in memory. */
static bool is_far(const Plan *p, IndexId i)
{
    const Poly *n = i >= IX_FIRST ? p->m->indices.data[i].extent : poly_const(p->m, 0);
    return !n->is_const || n->value > p->short_window;
}

/* Most cells do not, and need not be searched. */
static bool reads_far_back(const Plan *p)
{
    bool far = false;
    for (int i = IX_FIRST; i < p->m->indices.len; i++)
        far |= p->m->indices.data[i].extent == poly_dim(p->m, ATOM_PAST);
    for (NodeId id = 0; id < p->n_nodes && !far; id++)
        for (int k = 0; at(p, id)->step && k < at(p, id)->step->nterms; k++) {
            const IxTerm *t = &at(p, id)->step->terms[k];
            far |= t->kind == IA_INDEX && is_far(p, t->index);
        }
    return far;
}

static int axis_of(const Node *a, IndexId i)
{
    for (int k = 0; k < a->naxes; k++)
        if (a->axes[k] == i)
            return k;
    return -1;
}

static void mark_past(const Plan *p, NodeId id, int axis, int *past)
{
    const Node *a = at(p, id);
    bool each_step = rows_dep(p, id) & DEP_TIME;      /* else it is small, and the same for all steps */
    if (!past[id] && each_step && a->type == TY_REAL && !p->is_alias[id] && !p->rounded[id] && !is_root(p->m, id))
        past[id] = 1 + axis;
}

/* What an array's terms read at an index that counts distances. */
static void mark_reads_over(const Plan *p, const Uses *uses, IndexId w, int *past)
{
    for (int i = 0; i < uses->len; i++) {
        const Read *r = &uses->data[i].read;
        IndexId which;
        for (int k = 0; !r->is_tensor && k < r->nmap; k++)
            if (ix_is_index(r->map[k], &which) && which == w)
                mark_past(p, r->id, k, past);
    }
}

/* Arrays with an axis of as many places as there are steps; or one that counts back steps far away, itself or in the sums
 * that read it; and what these are made of. Readers stand behind what they read. */
static void mark_over_past(const Plan *p, int *past)
{
    for (NodeId id = p->n_nodes - 1; id >= 0; id--) {
        if (at(p, id)->kind != N_ARRAY)
            continue;
        const Node *a = at(p, id), *r = at(p, a->args[0]);
        Uses uses = plan_uses(p, id);
        for (int k = 0; k < a->naxes; k++)
            if (p->m->indices.data[a->axes[k]].extent == poly_dim(p->m, ATOM_PAST))
                mark_past(p, id, k, past);
        for (int i = 0; i < uses.len; i++) {
            const IxExpr *step = uses.data[i].read.step;
            for (int k = 0; step && k < step->nterms; k++) {
                IndexId w = step->terms[k].kind == IA_INDEX ? step->terms[k].index : IX_TIME;
                if (!is_far(p, w))
                    continue;
                if (axis_of(a, w) >= 0)
                    mark_past(p, id, axis_of(a, w), past);
                for (int b = 0; r->kind == N_REDUCE && b < r->nbound; b++)
                    if (r->bound[b] == w)
                        mark_reads_over(p, &uses, w, past);
            }
        }
        if (past[id])
            mark_reads_over(p, &uses, a->axes[past[id] - 1], past);
    }
}

/* What is pointwise in values over the past is one, too. */
static void mark_made_of(const Plan *p, int *past)
{
    for (NodeId id = 0; id < p->n_nodes; id++) {
        if (at(p, id)->kind != N_ARRAY || past[id] || plan_reduces(p, id))
            continue;
        Uses uses = plan_uses(p, id);
        for (int i = 0; i < uses.len; i++) {
            const Read *r = &uses.data[i].read;
            IndexId which;
            if (!r->is_tensor && past[r->id] && ix_is_index(r->map[past[r->id] - 1], &which) &&
                axis_of(at(p, id), which) >= 0)
                mark_past(p, id, axis_of(at(p, id), which), past);
        }
    }
}

/* A walk reads memory. */
static void leave_to_walk(const Plan *p, const Phasing *s, int *past)
{
    for (NodeId id = 0; id < p->n_nodes; id++) {
        bool walks = s->replayed[id] || (s->needed[id] && s->g->phase[id] == PHASE_DURING);
        Uses uses = { 0 };
        if (walks)
            uses = plan_uses(p, id);
        if (walks)
            past[id] = 0;
        for (int i = 0; i < uses.len; i++)
            if (!uses.data[i].read.is_tensor)
                past[uses.data[i].read.id] = 0;
    }
}

/* So does a product, and what it gives lies there. */
static void leave_to_products(Plan *p, int *past)
{
    for (NodeId id = 0; id < p->n_nodes; id++) {
        Gemm g;
        NodeId factor[2];
        if (at(p, id)->kind != N_ARRAY || !contraction_of(p, id, false, &g, factor))
            continue;
        Uses uses = plan_uses(p, id);
        past[id] = 0;
        for (int i = 0; i < uses.len; i++)
            if (!uses.data[i].read.is_tensor)
                past[uses.data[i].read.id] = 0;
    }
}

static int any_past(const Plan *p, const int *past)
{
    int any = 0;
    for (NodeId id = 0; id < p->n_nodes; id++)
        any |= past[id];
    return any;
}

/* Values with a place for each of many steps, at every step: memory for them would grow with the square of T, or with T
 * times a window. They are made where they are read, but for those of a walk, which is known once phases are. */
static int *past_values(Plan *p, int short_window)
{
    int *past = plan_alloc(p, sizeof *past, p->n_nodes);
    p->short_window = short_window;
    if (!reads_far_back(p))
        return NULL;
    mark_over_past(p, past);
    if (!any_past(p, past))
        return NULL;
    if (short_window == 1)
        mark_made_of(p, past);
    Phasing f = phasing(p, FORWARD, NULL), b = phasing(p, BACKWARD, stored_arrays(p, &f));
    leave_to_walk(p, &f, past);
    leave_to_walk(p, &b, past);
    leave_to_products(p, past);
    return any_past(p, past) ? past : NULL;
}

static bool takes_maxima(const Plan *p)
{
    for (NodeId id = 0; id < p->m->forward_nodes; id++)
        if (at(p, id)->kind == N_REDUCE && at(p, id)->reduce == R_MAX)
            return true;
    return false;
}

void own_slices(Plan *p)
{
    const PastPass *pass = p->plain_past || !takes_maxima(p) ? NULL : schedule_pass();
    if (!pass)
        return;
    find_aliases(p);
    int *past = plan_alloc(p, sizeof *past, p->n_nodes);
    p->short_window = 1;
    if (!reads_far_back(p))
        return;
    mark_over_past(p, past);
    mark_made_of(p, past);
    pass->own_slices(p->m, past);
}

/* A softmax over a window of any length goes in one pass; what else there is over a short one lies in memory. */
void find_past_values(Plan *p)
{
    enum { SHORT = 128 };
    const PastPass *pass = p->plain_past || !takes_maxima(p) ? NULL : schedule_pass();
    if (pass) {
        p->past = past_values(p, 1);
        p->passes = pass->found(p);
        p->past = p->passes ? p->past : NULL;
    }
    if (!p->past)
        p->past = past_values(p, SHORT);
    if (p->past)
        buf_f(&p->reasons, "values with a place for each earlier step are made where they are read: no memory for them\n");
}
