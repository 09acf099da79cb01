/* plan_wanted.c: which gradients an operation is for. In come the groups of backward; out goes, for each of them and
 * for each of its arrays, the arguments that it serves, so that a call leaves out what serves none that it was given. */
#include <stdlib.h>

#include "emit/emit.h"
#include "ir/arguments.h"
#include "plan_pass.h"

static void want(Plan *p, Wanted *w, int arg)
{
    int at = 0;
    while (at < w->len && w->data[at] < arg)
        at++;
    if (at < w->len && w->data[at] == arg)
        return;
    vec_push(p->m->arena, w, arg);
    for (int i = w->len - 1; i > at; i--)
        w->data[i] = w->data[i - 1];
    w->data[at] = arg;
}

static void need_root(Plan *p, const Phasing *s, NodeId id, int arg, bool *seen)
{
    Program *pr = &p->program[s->g->dir];
    if (seen[id] || is_stored(s, id))
        return;
    seen[id] = true;
    if (pr->group[id] >= 0) {
        Group *g = &pr->groups.data[pr->group[id]];
        if (arg < 0)
            g->always = true;
        else
            want(p, &g->need, arg);
    }
    if (arg >= 0)
        want(p, &pr->wanted[id], arg);
    if (arg >= 0 && pr->phase[id] == PHASE_DURING)
        want(p, &pr->walk, arg);
    for (int i = 0; i < s->uses[id].len; i++) {
        const Read *r = &s->uses[id].data[i].read;
        if (!r->is_tensor)
            need_root(p, s, r->id, arg, seen);
        else if (arg >= 0 && p->m->tensors.data[r->id].kind == T_DINIT)
            want(p, &pr->walk, arg);
    }
}

static bool *nothing_seen(const Plan *p)
{
    bool *seen = calloc((size_t)p->n_nodes + 1, 1);
    if (!seen)
        bug(p->m->c, "plan", "out of memory");
    return seen;
}

/* A gradient of an input that is a product of the step: it is for that input alone, and a product, other than
 * a kernel, cannot leave out a result that has no place. */
static bool own_product(const Plan *p, const Phasing *s, NodeId id)
{
    TensorId of;
    const Program *pr = &p->program[s->g->dir];
    return !s->feeds[id] && root_kind(p->m, id, &of) == ROOT_DINPUT && pr->group[id] >= 0 &&
           pr->groups.data[pr->group[id]].kind == G_GEMM;
}

/* What the walk computes, with all that it reads, for its replay too: for the argument, or (-1) always. */
static void need_walk(Plan *p, const Phasing *s, int arg, bool carried)
{
    bool *seen = nothing_seen(p);
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (s->needed[id] &&
            (s->replayed[id] || (s->g->phase[id] == PHASE_DURING && (s->feeds[id] || !carried))) &&
            !own_product(p, s, id))
            need_root(p, s, id, arg, seen);
    free(seen);
}

/* The walk carries adjoints for whoever reads its results. In one kernel (tile) the rest of its step is each
 * for its own; a loop of kernels (steps) is one piece. */
void find_wanted(Plan *p, const Phasing *s)
{
    Module *m = p->m;
    CallArgs args = backward_arguments(m);
    Program *pr = &p->program[s->g->dir];
    if (s->g->dir == FORWARD)
        return;
    pr->wanted = plan_alloc(p, sizeof *pr->wanted, p->n_nodes);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Roots *of = &m->roots.data[t];
        const NodeId roots[] = { of->dinput, of->dparam, of->dparam_init, of->dpast };
        for (int k = 0; k < 4; k++) {
            if (roots[k] < 0)
                continue;
            bool *seen = nothing_seen(p);
            bool taken = m->tensors.data[t].chunk && m->tensors.data[t].kind == T_INPUT;
            NodeId root = !taken ? roots[k] : p->taken[t].is_tensor ? -1 : p->taken[t].id;
            if (root >= 0)
                need_root(p, s, root, call_arg_find(&args, t, ROLE_D_VALUE), seen);
            free(seen);
        }
        if (m->roots.data[t].dprev >= 0)
            want(p, &pr->walk, call_arg_find(&args, t, ROLE_D_VALUE));
    }
    if (!p->schedule->on_chip)
        need_walk(p, s, -1, false);
    for (int i = 0; i < pr->walk.len && p->schedule->on_chip; i++)
        need_walk(p, s, pr->walk.data[i], true);
    for (int i = 0; i < pr->groups.len; i++) {
        const Group *sums = &pr->groups.data[i];
        Group *row = sums->by_rows ? &pr->groups.data[sums->by_rows - 1] : NULL;
        for (int k = 0; row && k < sums->need.len; k++)
            want(p, &row->need, sums->need.data[k]);
        if (row)
            row->always |= sums->always;
    }
}
