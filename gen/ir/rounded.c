/* rounded.c: values that the spec rounds to the storage type (`: dtype`). In comes a module in normal form; out goes the
 * same one in which a value that is no more than another one rounded, a product mostly, is rounded where it is read.
 * It is guaranteed that all who read that other value then round it, so that it may lie in memory rounded
 * (plan_rounded.c), and that it makes no difference whether they find it there or in a register. */
#include "base/mutate.h"
#include "rewrite.h"
#include "rounded.h"

static const Node *at(const Module *m, NodeId id)
{
    return &m->nodes.data[id];
}

bool is_rounding(const Module *m, NodeId id)
{
    return at(m, id)->kind == N_MAP && (at(m, id)->op == OP_BF16 || at(m, id)->op == OP_F16);
}

static bool same_rounding(const Module *m, NodeId a, NodeId b)
{
    return is_rounding(m, a) && is_rounding(m, b) && at(m, a)->op == at(m, b)->op;
}

/* Does it read steps before the call, which are as the caller gives them? */
static bool reads_history(const Module *m, NodeId read)
{
    return at(m, read)->step && at(m, read)->past >= 0;
}

/* Whoever rebuilds a read puts its guards around it again, within the rounding: what is rounded is the read. What is rounded
 * already is not rounded again, unless only what this call has made is. */
NodeId round_within_guards(Module *m, NodeId id)
{
    const Node *n = at(m, id), *read = is_rounding(m, id) ? at(m, n->args[0]) : NULL;
    if (read && same_rounding(m, id, n->args[0]) && !reads_history(m, read->args[0]))
        return n->args[0];
    if (!read || read->kind != N_MAP || read->op != OP_SELECT || at(m, read->args[2])->kind != N_CONST ||
        at(m, read->args[2])->value != 0)
        return id;
    NodeId guard = read->args[0], zero = read->args[2];
    return node_select(m, guard, round_within_guards(m, node_map1(m, n->op, read->args[1])), zero);
}

/* The array that a read is of; -1: it is no read of one. */
static NodeId array_of(const Module *m, NodeId read)
{
    const Node *n = at(m, read);
    return n->kind == N_VIEW ? n->args[0] : n->kind == N_ARRAY ? read : -1;
}

static bool is_a_root(const Module *m, NodeId id)
{
    return root_kind(m, id, &(TensorId){ 0 }) != ROOT_NONE;
}

/* What the steps carry is theirs: it lies in the type of the arithmetic. */
bool may_lie_rounded(const Module *m, NodeId array)
{
    return at(m, array)->type == TY_REAL && !(at(m, array)->dep & (DEP_STATE | DEP_COTANGENT)) && !is_a_root(m, array);
}

static bool reads_own_place(Module *m, NodeId array, NodeId read)
{
    const Node *a = at(m, array), *v = at(m, array_of(m, read));
    bool same = v->naxes == a->naxes;
    for (int i = 0; same && i < a->naxes; i++)
        same = at(m, read)->kind == N_ARRAY ? v->axes[i] == a->axes[i]
                                            : at(m, read)->map[i] == ix_index(m, a->axes[i]) &&
                                                  m->indices.data[v->axes[i]].extent == m->indices.data[a->axes[i]].extent;
    return same;
}

/* The array of which an array is no more than another name. */
static NodeId source_of(Module *m, NodeId array)
{
    NodeId read = at(m, array)->args[0], of = at(m, read)->step ? -1 : array_of(m, read);
    return of >= 0 && reads_own_place(m, array, read) ? source_of(m, of) : array;
}

/* An array that is another one rounded, which is rounded already, is that one. */
NodeId round_once(Module *m, NodeId id)
{
    const Node *a = at(m, id);
    NodeId read = a->kind == N_ARRAY && is_rounding(m, a->args[0]) ? at(m, a->args[0])->args[0] : -1;
    NodeId of = read < 0 || at(m, read)->step ? -1 : array_of(m, read);
    if (of < 0 || !reads_own_place(m, id, read) || !same_rounding(m, a->args[0], at(m, source_of(m, of))->args[0]))
        return id;
    return node_array(m, read, a->axes, a->naxes, a->name, a->span);
}

/* ---- who reads an array as it is, and who another step of it ---- */

static void find_readers(const Module *m, Readers *r, NodeId id)
{
    if (id < 0 || r->seen[id])
        return;
    r->seen[id] = true;
    for (int i = 0; i < at(m, id)->nargs; i++) {
        NodeId read = at(m, id)->args[i], array = array_of(m, read);
        if (array >= 0 && at(m, id)->kind != N_VIEW) {
            r->raw[array] |= !is_rounding(m, id);
            r->other_step[array] |= at(m, read)->step != NULL;
        }
        find_readers(m, r, read);
    }
}

Readers readers_of(const Module *m)
{
    size_t n = (size_t)m->nodes.len + 1;
    Readers r = { arena_alloc(m->arena, n), arena_alloc(m->arena, n), arena_alloc(m->arena, n) };
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int k = 0; k < ROOT_COUNT; k++)
            find_readers(m, &r, m->roots.data[t].of[k]);
    return r;
}

/* ---- a value that is another one rounded, where it is read ---- */

/* A sum, whose adjoint does not read it; and not of tensors that the spec stores in another type: a product of these is
 * written in that. */
static bool is_sum(const Module *m, NodeId array)
{
    const Node *sum = at(m, at(m, array)->args[0]);
    if (sum->kind != N_REDUCE || sum->reduce != R_SUM)
        return false;
    const Node *term = at(m, sum->args[0]);
    for (int i = 0; term->kind == N_MAP && i < term->nargs; i++) {
        const Node *factor = at(m, term->args[i]);
        if (factor->kind == N_LOAD && m->tensors.data[factor->tensor].dtype != m->c->dtype)
            return false;
    }
    return true;
}

/* The read that the array is, rounded; -1: it is more than that, or what it reads is read as it is as well. */
static NodeId rounded_read(Module *m, const Readers *r, NodeId array)
{
    NodeId body = at(m, array)->args[0], read = is_rounding(m, body) ? at(m, body)->args[0] : -1;
    NodeId of = read < 0 ? -1 : array_of(m, read);
    if (of < 0 || at(m, read)->step || r->raw[of] || !is_sum(m, of) || !may_lie_rounded(m, of) ||
        is_a_root(m, array))
        return -1;
    return r->other_step[array] && !reads_own_place(m, array, read) ? -1 : read;
}

/* A read without the guards that its builder put around it: those of the read in whose place it stands are there. */
static NodeId without_guards(const Module *m, NodeId read)
{
    while (at(m, read)->kind == N_MAP)
        read = at(m, read)->args[1];
    return read;
}

/* What a read of an array gives that is another one rounded, from that one. */
static NodeId rounded_there(Module *m, NodeId reader)
{
    const Node to = *at(m, reader), a = *at(m, array_of(m, reader)), body = *at(m, a.args[0]), v = *at(m, body.args[0]);
    NodeId of = array_of(m, body.args[0]);
    const IxExpr *map[64], *place[64];
    for (int i = 0; i < a.naxes; i++)
        place[i] = to.kind == N_VIEW ? to.map[i] : ix_index(m, a.axes[i]);
    int n = at(m, of)->naxes;
    for (int i = 0; i < n; i++) {
        const IxExpr *own = v.kind == N_VIEW ? v.map[i] : ix_index(m, at(m, of)->axes[i]);
        own = mutate("first-slice") ? ix_sub(m, own, ix_const(m, own->offset)) : own;
        map[i] = ix_subst(m, own, a.axes, place, a.naxes);
    }
    NodeId there = node_view_at(m, of, map, n, to.step, to.step ? to.past : -1);
    return node_map1(m, body.op, without_guards(m, there));
}

static NodeId hook_rounded(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    const bool *taken = r->data;          /* per old array */
    Module *m = r->m;
    const Node before = *at(m, old), now = *at(m, rebuilt);
    NodeId args[4];
    bool any = false;
    (void)whole;
    if (now.kind != before.kind || now.nargs != before.nargs || now.kind == N_VIEW)
        return round_within_guards(m, rebuilt);
    for (int i = 0; i < before.nargs; i++) {
        NodeId array = array_of(m, before.args[i]);
        bool here = array >= 0 && taken[array];
        any |= here;
        args[i] = here ? rounded_there(m, without_guards(m, now.args[i])) : now.args[i];
    }
    if (!any)
        return round_within_guards(m, rebuilt);
    switch (now.kind) {
    case N_MAP: return node_map(m, now.op, args, now.nargs);
    case N_REDUCE: return node_reduce(m, now.reduce, args[0], now.bound, now.nbound);
    default: return node_array(m, args[0], now.axes, now.naxes, now.name, now.span);
    }
}

void round_where_read(Module *m)
{
    int n = m->nodes.len;
    bool any = false, *taken = arena_alloc(m->arena, (size_t)n + 1);
    Readers r = readers_of(m);
    for (NodeId id = 0; id < n; id++) {
        NodeId read = r.seen[id] && at(m, id)->kind == N_ARRAY ? rounded_read(m, &r, id) : -1;
        taken[id] = read >= 0;
        any |= taken[id];
        if (taken[id] && !at(m, array_of(m, read))->name && reads_own_place(m, id, read))
            m->nodes.data[array_of(m, read)].name = at(m, id)->name;
    }
    Rewrite rewrite = { .m = m, .hook = hook_rounded, .data = taken };
    if (any)
        rewrite_roots(&rewrite);
}
