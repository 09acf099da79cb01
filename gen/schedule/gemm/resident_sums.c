/* resident_sums.c: sums over batch and time that a kernel which walks all steps takes along. In come the
 * steps that such a kernel walks (resident.c); out goes, for each COLUMN group, the group of the step that
 * has all of its terms in registers, and which values nothing reads but such sums. Guaranteed: a thread that
 * walks has the terms of its own units, and asks for nothing in memory that the step does not read anyway. */
#include "resident.h"

static const Node *at(const Plan *p, NodeId id)
{
    return &p->m->nodes.data[id];
}

int resident_sum_pieces(const Plan *p, NodeId sum, NodeId *row, Piece *out, int max)
{
    Module *m = p->m;
    Read r, self = read_itself(m, sum);
    if (!plan_resolve(p, at(p, at(p, sum)->args[0])->args[0], &r) || r.is_tensor || r.step ||
        read_linear(m, &r) != read_linear(m, &self) || array_elements(m, r.id) != array_elements(m, sum))
        return 0;
    *row = r.id;
    int n = cat_pieces(m, r.id, true, out, max);
    return n > 1 ? n : 0;
}

/* ---- terms ---- */

/* The group of the step that is asked about, and the axes of the sum. */
typedef struct Terms {
    const Plan *p;
    const Program *pr;
    int group;
    const IndexId *axes;
    bool walks;
} Terms;

static bool reads_at_hand(void *of, const Read *r)
{
    Terms *x = of;
    const Module *m = x->p->m;
    const Group *g = &x->pr->groups.data[x->group];
    IndexId which;
    if (r->step || (r->is_tensor && m->tensors.data[r->id].kind == T_DNEXT))
        return false;
    if (r->is_tensor || x->pr->phase[r->id] != PHASE_DURING)
        return group_reads(g, r->is_tensor ? ~r->id : r->id);
    x->walks = true;
    for (int i = 0; i < r->nmap; i++)
        if (!ix_is_index(r->map[i], &which) || which != x->axes[i])
            return false;
    return x->pr->group[r->id] == x->group && r->nmap == g->naxes;
}

static bool at_hand(Terms *x, NodeId value)
{
    return every_read(x->p, value, reads_at_hand, x);
}

static bool same_units(const Plan *p, const Group *g, NodeId sum)
{
    const Node *a = at(p, sum);
    for (int i = 0; i < a->naxes && i < g->naxes; i++)
        if (p->m->indices.data[a->axes[i]].extent != g->axes[i])
            return false;
    return a->naxes == g->naxes;
}

/* A sum over batch and time alone, of what the group makes of its own units. */
static bool sums_group(Terms *x, NodeId sum)
{
    const Node *r = at(x->p, at(x->p, sum)->args[0]);
    const Group *g = &x->pr->groups.data[x->group];
    Piece pieces[32];
    NodeId row;
    if (r->reduce != R_SUM || r->nbound != 2 || r->bound[0] >= IX_FIRST || r->bound[1] >= IX_FIRST)
        return false;
    int n = resident_sum_pieces(x->p, sum, &row, pieces, 32);
    for (int i = 0; i < n; i++)
        if (x->pr->group[pieces[i].array] != x->group)
            return false;
    x->walks |= n > 0;
    x->axes = at(x->p, sum)->axes;
    return n > 0 || (same_units(x->p, g, sum) && at_hand(x, r->args[0]));
}

/* ---- groups ---- */

/* Does this group of the step have all terms, and does any of the sums need the walk at all? */
static bool has_terms(const Plan *p, const Program *pr, const ResidentWalk *w, const Group *sums, int group)
{
    const Group *g = &pr->groups.data[group];
    Terms x = { .p = p, .pr = pr, .group = group };
    if (g->phase != PHASE_DURING || g->kind != G_MAP ||
        resident_base(p->m, w, g->axes[g->naxes - 1]) != g->axes[g->naxes - 1])
        return false;
    for (int i = 0; i < sums->arrays.len; i++)
        if (!sums_group(&x, sums->arrays.data[i]))
            return false;
    return x.walks;
}

/* Is it read by sums of its own group alone? */
static bool only_summed(const Plan *p, const Program *pr, NodeId id)
{
    TensorId of;
    bool summed = false;
    if (pr->group[id] < 0 || pr->phase[id] != PHASE_DURING || pr->node[id].home != HOME_WORKSPACE ||
        root_kind(p->m, id, &of) != ROOT_NONE)
        return false;
    for (int i = 0; i < pr->groups.len; i++) {
        const Group *g = &pr->groups.data[i];
        if (!group_reads(g, id))
            continue;
        if (g->by_steps != 1 + pr->group[id])
            return false;
        summed = true;
    }
    return summed;
}

/* A thread of the whole chip's walk has the same unit in all its elements. */
void resident_sums(Plan *p, Program *pr, const ResidentWalk *w)
{
    bool any = false;
    for (int c = 0; c < pr->groups.len && PANEL_THREADS % w->own == 0; c++) {
        Group *sums = &pr->groups.data[c];
        for (int i = 0; sums->kind == G_COLUMN && !sums->by_rows && !sums->by_steps && i < c; i++)
            sums->by_steps = has_terms(p, pr, w, sums, i) ? 1 + i : 0;
        if (!sums->by_steps)
            continue;
        p->buffers.data[sums->partial].walk_rows = formula_size(p->m, poly_dim(p->m, ATOM_B));
        any = true;
    }
    if (!any)
        return;
    for (int i = 0; i < resident_walks(pr)->len; i++)
        resident_walks(pr)->data[i]->sums = true;
    resident_walks(pr)->summed = arena_alloc(p->m->arena, (size_t)p->n_nodes + 1);
    for (NodeId id = 0; id < p->n_nodes; id++)
        resident_walks(pr)->summed[id] = only_summed(p, pr, id);
}
