/* plan_apart.c: a step's sums along an axis whose elements lie apart, with the elements that they sum. In come the groups
 * of a direction; out go those where one kernel computes a step's elements, stores what others read of them, and adds them
 * up, in place of a kernel that writes them all and one that reads them again. */
#include "plan_pass.h"

static const Poly *coefficient(const IxExpr *e, IndexId i)
{
    for (int k = 0; k < e->nterms; k++)
        if (e->terms[k].kind == IA_INDEX && e->terms[k].index == i)
            return e->terms[k].coef;
    return NULL;
}

bool sums_apart(Plan *p, NodeId array, bool *strided)
{
    const Node *a = at(p, array), *r = at(p, a->args[0]);
    Uses uses = plan_uses(p, array);
    for (int i = 0; plan_reduces(p, array) && i < uses.len; i++) {
        const IxExpr *e = read_linear(p->m, &uses.data[i].read);
        const Poly *row = coefficient(e, a->axes[a->naxes - 1]), *along = coefficient(e, r->bound[r->nbound - 1]);
        if (uses.data[i].read.step || r->nbound != 1 || r->reduce != R_SUM || (row && poly_is_one(along)))
            return false;
        *strided |= along && poly_is_one(row);
    }
    return true;
}

/* The read is of all axes of the sum in order, and of the axis that it runs along: which of the elements' axes is that? It
 * is not their last. -1: it is no such read. */
static int axis_along(const Plan *p, NodeId sum, const Use *use)
{
    const Node *a = at(p, sum), *r = at(p, a->args[0]);
    int found = -1, next = 0;
    if (!plan_reduces(p, sum) || r->nbound != 1 || !use->plain || use->read.step || use->read.nmap != a->naxes + 1)
        return -1;
    for (int i = 0; i < use->read.nmap; i++) {
        IndexId which;
        if (!ix_is_index(use->read.map[i], &which))
            return -1;
        if (which == r->bound[0] && found < 0)
            found = i;
        else if (next == a->naxes || which != a->axes[next++])
            return -1;
    }
    return found == a->naxes ? -1 : found;
}

static bool is_heads_param(const Plan *p, const GemmSide *side)
{
    return side->read.is_tensor && p->m->tensors.data[side->read.id].kind == T_PARAM && side->batch && side->batch->nterms;
}

/* Has the step a product that each head does with its own part of a param? One kernel may walk its steps, as long as
 * what is pointwise is all that stands beside it (panel.c). */
bool has_heads(const Phasing *s)
{
    Gemm g;
    NodeId factor[2];
    for (NodeId id = 0; id < s->p->n_nodes; id++)
        if (s->needed[id] && contraction_of(s->p, id, true, &g, factor) &&
            (is_heads_param(s->p, &g.a) || is_heads_param(s->p, &g.b)))
            return true;
    return false;
}

bool sums_step_elements(const Phasing *s, NodeId sum)
{
    Plan *p = s->p;
    bool strided = false, any = false;
    Gemm g;
    NodeId factor[2];
    if (p->schedule->on_chip || p->schedule->per_unit || !plan_reduces(p, sum) || at(p, sum)->naxes == 0 ||
        rows_dep(p, sum) != (DEP_BATCH | DEP_TIME) || sums_over_batch(p, sum) || past_sums(p, sum) ||
        contraction_of(p, sum, false, &g, factor))
        return false;
    for (int i = 0; i < s->uses[sum].len; i++) {
        const Use *u = &s->uses[sum].data[i];
        bool walks = !u->read.is_tensor && !is_stored(s, u->read.id) && s->g->phase[u->read.id] == PHASE_DURING;
        if (u->read.is_tensor && carried_tensor(s, u->read.id))
            return false;
        if (walks && (plan_reduces(p, u->read.id) || axis_along(p, sum, u) < 0))
            return false;
        any |= walks;
    }
    return any && sums_apart(p, sum, &strided) && strided && !has_heads(s);
}

/* The last of the groups before `group` that the array reads; -1: it reads none. */
static int last_read(const Phasing *s, NodeId array, int group)
{
    Uses uses = uses_through(s, array);
    int last = -1;
    for (int i = 0; i < uses.len; i++) {
        int g = uses.data[i].read.is_tensor ? -1 : s->g->group[uses.data[i].read.id];
        last = g > last && g < group ? g : last;
    }
    return last;
}

/* Of the row's values the sum reads none, and of the map's elements those at its own row along one axis, the same for all
 * sums: *along. */
static bool sums_map(const Phasing *s, NodeId sum, int map, int row, int *along)
{
    Uses uses = uses_through(s, sum);
    for (int i = 0; i < uses.len; i++) {
        int g = uses.data[i].read.is_tensor ? -1 : s->g->group[uses.data[i].read.id];
        int axis = g == map ? axis_along(s->p, sum, &uses.data[i]) : *along;
        if (g == row || (g == map && (axis < 0 || (*along >= 0 && axis != *along))))
            return false;
        *along = axis;
    }
    return true;
}

static bool same_rows(const Phasing *s, const Group *map, const Group *row, int along)
{
    const Node *sum = NULL;
    if (map->naxes != row->naxes + 1 || map->batched != row->batched || map->timed != row->timed)
        return false;
    for (int i = 0; i < row->naxes; i++)
        if (row->axes[i] != map->axes[i + (i >= along)])
            return false;
    for (int i = 0; i < row->arrays.len; i++) {
        sum = at(s->p, at(s->p, row->arrays.data[i])->args[0]);
        if (plan_reduces(s->p, row->arrays.data[i]) &&
            s->p->m->indices.data[sum->bound[0]].extent != map->axes[along])
            return false;
    }
    return true;
}

/* What the kernel keeps of a sum for each of its threads takes 8 KiB of a block's shared memory, and any GPU has 48. */
enum { MOST_SUMS = 6, NEIGHBOURS = 32 };

static int count_sums(const Plan *p, const Group *g)
{
    int n = 0;
    for (int i = 0; i < g->arrays.len; i++)
        n += plan_reduces(p, g->arrays.data[i]);
    return n;
}

/* Where neighbours are fewer than a warp's threads, a thread for each element finds more to do than one for each row. */
static bool has_neighbours(const Group *row)
{
    const Poly *last = row->axes[row->naxes - 1];
    return !last->is_const || last->value >= NEIGHBOURS;
}

/* The map whose elements the row's sums add up; -1: there is none, or something stands between the two. */
static int map_of(Phasing *s, int number, int *along)
{
    Plan *p = s->p;
    const Group *row = &s->g->groups.data[number];
    int map = -1;
    if (row->kind != G_ROW || row->phase != PHASE_DURING || row->past || row->naxes == 0 || !row->batched ||
        !rows_are_neighbours(p, row) || !has_neighbours(row) || count_sums(p, row) > MOST_SUMS)
        return -1;
    for (int i = 0; i < row->arrays.len; i++) {
        int last = last_read(s, row->arrays.data[i], number);
        map = last > map ? last : map;
    }
    if (map < 0 || s->g->groups.data[map].kind != G_MAP || s->g->groups.data[map].phase != PHASE_DURING)
        return -1;
    for (int i = 0; i < row->arrays.len; i++) {
        NodeId id = row->arrays.data[i];
        if (!plan_reduces(p, id) && last_read(s, id, number) == map)
            return -1;
        if (plan_reduces(p, id) && !sums_map(s, id, map, number, along))
            return -1;
    }
    return *along >= 0 && same_rows(s, &s->g->groups.data[map], row, *along) ? map : -1;
}

static void drop_group(Program *pr, const Plan *p, int group)
{
    for (NodeId id = 0; id < p->n_nodes; id++)
        pr->group[id] -= pr->group[id] > group;
    for (int i = group; i + 1 < pr->groups.len; i++)
        pr->groups.data[i] = pr->groups.data[i + 1];
    pr->groups.len--;
}

/* The map becomes a row kernel over the sums' rows. */
static void join(Phasing *s, int map, int number, int along)
{
    Program *pr = s->g;
    Group *to = &pr->groups.data[map], from = pr->groups.data[number];
    for (int i = 0; i < from.arrays.len; i++)
        into_group(s, map, from.arrays.data[i]);
    to->kind = G_ROW;
    to->along = 1 + along;
    to->naxes = from.naxes;
    to->axes = from.axes;
    drop_group(pr, s->p, number);
}

void join_sums_apart(Phasing *s)
{
    for (int i = 0; i < s->g->groups.len; i++) {
        int along = -1, map = map_of(s, i, &along);
        if (map >= 0 && room_for(s, map, i))
            join(s, map, i--, along);
    }
}
