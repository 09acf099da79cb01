/* plan_summed.c: what steps make for a sum over sequences and steps alone is added up as they make it. In come
 * backward's phases, of a module whose sums a schedule has split (split_sums.c: the gradient of a param that
 * meets a matrix state); out goes p->summed: arrays of which memory has a row for each sequence, zeros in front
 * of the walk, to which every step adds its own, so that the sum behind the walk is one over sequences.
 * Guaranteed: nothing else reads such an array, no product makes it, and the order of all sums is fixed. */
#include "plan_pass.h"

static bool is_one_of(const IndexId *axes, int n, IndexId which)
{
    for (int i = 0; i < n; i++)
        if (axes[i] == which)
            return true;
    return false;
}

/* Each place of what is read is read for one place of the sum's indices. */
static bool reads_each_once(const Plan *p, const Node *sum, const Node *reduce, const Read *r)
{
    bool *seen = plan_alloc(p, 1, p->m->indices.len);
    IndexId which;
    for (int i = 0; i < r->nmap; i++) {
        if (!ix_is_index(r->map[i], &which) || seen[which] ||
            extent_of(p, which) != extent_of(p, at(p, r->id)->axes[i]))
            return false;
        seen[which] = true;
    }
    for (int i = 0; i < reduce->nbound; i++)
        if (reduce->bound[i] >= IX_FIRST && !seen[reduce->bound[i]])
            return false;
    for (int i = 0; i < sum->naxes; i++)
        if (!is_one_of(reduce->bound, reduce->nbound, sum->axes[i]) && !seen[sum->axes[i]])
            return false;
    return true;
}

/* The array of which this is the sum over sequences, steps, and perhaps axes of its own; -1: there is none. */
static NodeId term_of(const Plan *p, NodeId sum)
{
    const Node *a = at(p, sum), *n = at(p, a->args[0]);
    Read r;
    if (n->kind != N_REDUCE || n->reduce != R_SUM || !is_one_of(n->bound, n->nbound, IX_BATCH) ||
        !is_one_of(n->bound, n->nbound, IX_TIME) || !plan_resolve(p, n->args[0], &r))
        return -1;
    return !r.is_tensor && !r.step && reads_each_once(p, a, n, &r) ? r.id : -1;
}

static int readers(const Phasing *s, NodeId id)
{
    int n = 0;
    for (NodeId by = 0; by < s->p->n_nodes; by++)
        for (int i = 0; s->needed[by] && i < s->uses[by].len; i++)
            n += !s->uses[by].data[i].read.is_tensor && s->uses[by].data[i].read.id == id;
    return n;
}

static bool is_made_for_sum(const Phasing *s, NodeId id)
{
    Plan *p = s->p;
    const Program *pr = s->g;
    Gemm product;
    NodeId factor[2];
    const unsigned rows = DEP_BATCH | DEP_TIME;
    return s->needed[id] && pr->phase[id] == PHASE_DURING && (rows_dep(p, id) & rows) == rows &&
           !is_root(p->m, id) && pr->node[id].home == HOME_NONE && !printed_inline(p, pr, id) &&
           !p->is_alias[id] && !p->is_cat[id] && !p->rounded[id] && !p->narrow[id] &&
           !(p->kept && p->kept[id]) && !past_sums(p, id) && !contraction_of(p, id, true, &product, factor) &&
           readers(s, id) == 1;
}

NodeId summed_term(const Plan *p, NodeId sum)
{
    NodeId id = p->summed && plan_reduces(p, sum) ? term_of(p, sum) : -1;
    return id >= 0 && p->summed[id] ? id : -1;
}

void find_summed(Plan *p, const Phasing *s)
{
    if (!p->schedule->sums_steps || p->request->cpu || module_starts(p->m) >= 0)
        return;
    for (NodeId sum = 0; sum < p->n_nodes; sum++) {
        if (!s->needed[sum] || s->g->phase[sum] != PHASE_AFTER || !plan_reduces(p, sum) ||
            !sums_over_batch(p, sum))
            continue;
        NodeId id = term_of(p, sum);
        if (id < 0 || !is_made_for_sum(s, id))
            continue;
        if (!p->summed)
            p->summed = plan_alloc(p, 1, p->n_nodes);
        p->summed[id] = true;
    }
}
