/* resident_operand.c: operands of a resident walk's products, and what the groups of a step leave to each
 * other. In comes a step's walk (resident_step.c); out go answers: who makes an operand, may blocks see by
 * its words whether they are there, and which values may stay in a register of the thread that has made
 * them. */
#include <string.h>

#include "base/mutate.h"
#include "resident.h"

static const Node *at(const Plan *p, NodeId id)
{
    return &p->m->nodes.data[id];
}

/* A block may be a step ahead of another that still reads the operand: where inference keeps that of one
 * step only, it now keeps two. What a block writes at a step others read no more, since it has waited for
 * their posts of the step before, behind their products of the one before that. */
void resident_keep_operand(Plan *p, const Program *pr, const ResidentProduct *x)
{
    Buffer *b = &p->buffers.data[pr->node[x->operand].slot];
    if (pr->dir == FORWARD && b->ring == 1 && !mutate("one-operand"))
        b->ring = 2;
}

/* A copy of the state, which the step before has made. */
bool resident_made_before(const Plan *p, NodeId operand)
{
    Read r;
    return plan_resolve(p, at(p, operand)->args[0], &r) && r.is_tensor &&
           p->m->tensors.data[r.id].kind == T_STATE;
}

/* Does the step itself make every piece of the operand, whatever copies of it lie in memory? */
bool resident_makes_operand(const Plan *p, const Program *pr, const ResidentWalk *w, const ResidentProduct *x)
{
    const Storage *lies = &pr->node[x->operand];
    int64_t piece, made = 0;
    if (x->operand_offset->nterms ||
        array_elements(p->m, x->operand) !=
            poly_mul(p->m, poly_const(p->m, x->inner), poly_mul(p->m, w->heads, x->k_units)))
        return false;
    if (x->operand_ready || lies->home == HOME_NONE)
        return x->operand_ready && x->inner == 1;
    for (NodeId id = 0; id < p->n_nodes; id++) {
        const Storage *st = &pr->node[id];
        const Node *a = at(p, id);
        int group = pr->group[id];
        if (group < 0 || st->home != lies->home || st->slot != lies->slot ||
            pr->groups.data[group].kind != G_MAP || pr->phase[id] != PHASE_DURING)
            continue;
        Read self = { .id = id, .nmap = a->naxes };
        const IxExpr *map[64];
        for (int i = 0; i < a->naxes; i++)
            map[i] = ix_index(p->m, a->axes[i]);
        self.map = map;
        if (!resident_piece(p->m, storage_linear(p->m, &self, st), array_elements(p->m, x->operand), a->axes,
                            a->naxes, &piece))
            return false;
        made |= (int64_t)1 << piece;
    }
    return made == ((int64_t)1 << x->inner) - 1;
}

/* May blocks see by the operand's words themselves whether they are there? Forward reads copies of the
 * state, which store_next writes; all else is written by k_store, which knows of no copy elsewhere. */
bool resident_marks_operand(const Plan *p, const Program *pr, const ResidentWalk *w, const ResidentProduct *x)
{
    const Storage *lies = &pr->node[x->operand];
    TensorId of;
    if (lies->home == HOME_NONE || !resident_makes_operand(p, pr, w, x))
        return false;
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (pr->group[id] >= 0 && pr->node[id].home == lies->home && pr->node[id].slot == lies->slot &&
            pr->phase[id] == PHASE_DURING && root_kind(p->m, id, &of) != ROOT_NONE)
            return false;
    if (!x->operand_ready)
        return true;
    for (TensorId t = 0; t < p->m->tensors.len; t++)
        if (pr->dir == FORWARD && p->m->tensors.data[t].kind == T_STATE && pr->before[t] == lies->slot)
            return true;
    return false;
}

/* ---- what groups leave to each other ---- */

/* What group `reader` reads, each value looked at once. */
typedef struct Crossing {
    const Plan *p;
    const Program *pr;
    const ResidentWalk *w;
    int reader;
    bool *seen, *crosses;
} Crossing;

bool resident_finds(const Program *pr, int reader, NodeId value, bool carried)
{
    int maker = pr->group[value];
    return carried ? reader < maker : reader > maker;
}

/* Is it what a pointwise group of the step makes, one element for each unit? */
static bool can_cross(const Plan *p, const Program *pr, const ResidentWalk *w, NodeId value)
{
    int own = pr->group[value];
    return own >= 0 && pr->groups.data[own].kind == G_MAP && pr->groups.data[own].phase == PHASE_DURING &&
           pr->groups.data[own].naxes == 1 &&
           array_elements(p->m, value) == resident_base(p->m, w, pr->groups.data[own].axes[0]) &&
           (pr->node[value].home == HOME_NONE || pr->node[value].dtype == p->compute);
}

static void reads_left(Crossing *x, NodeId value, bool carried)
{
    if (value >= 0 && can_cross(x->p, x->pr, x->w, value) && resident_finds(x->pr, x->reader, value, carried))
        x->crosses[value] = true;
}

static void find_left(Crossing *x, NodeId here)
{
    const Module *m = x->p->m;
    const Node *n = at(x->p, here);
    Read r;
    if (x->seen[here])
        return;
    x->seen[here] = true;
    if (n->kind != N_MAP && plan_resolve(x->p, here, &r)) {
        if (r.is_tensor && m->tensors.data[r.id].kind == T_DNEXT)
            reads_left(x, m->roots.data[m->tensors.data[r.id].of].dprev, true);
        if (r.is_tensor)
            return;
        reads_left(x, r.id, false);
        if (x->pr->node[r.id].home == HOME_NONE && x->pr->group[r.id] < 0)
            find_left(x, at(x->p, r.id)->args[0]);
        return;
    }
    for (int i = 0; i < n->nargs; i++)
        find_left(x, n->args[i]);
}

const bool *resident_crosses(const Plan *p, const Program *pr, const ResidentWalk *w)
{
    size_t nodes = (size_t)p->m->nodes.len + 1;
    Crossing x = { .p = p,
                   .pr = pr,
                   .w = w,
                   .seen = arena_alloc(p->m->arena, nodes),
                   .crosses = arena_alloc(p->m->arena, nodes) };
    for (; x.reader < pr->groups.len; x.reader++) {
        const Group *g = &pr->groups.data[x.reader];
        memset(x.seen, 0, nodes);
        for (int j = 0; g->kind == G_MAP && g->phase == PHASE_DURING && j < g->arrays.len; j++)
            find_left(&x, at(p, g->arrays.data[j])->args[0]);
    }
    return x.crosses;
}
