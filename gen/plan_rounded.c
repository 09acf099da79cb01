/* plan_rounded.c: values that the spec rounds to the storage type (`: dtype`). In comes a module; out goes the same
 * one in which a value that is no more than another one rounded, a product mostly, is rounded where it is read; and
 * which arrays then lie in memory in the storage type. It is guaranteed that whoever reads such an array rounds what
 * it reads, so that it makes no difference whether that came from memory or from a register. */
#include "mutate.h"
#include "plan_pass.h"
#include "rewrite.h"

static bool is_rounding(const Plan *p, NodeId id)
{
    const Node *n = at(p, id);
    return n->kind == N_MAP && n->op == (p->dtype == DT_F16 ? OP_F16 : OP_BF16);
}

/* The array that a read is of; -1: it is no read of one. */
static NodeId array_of(const Plan *p, NodeId read)
{
    const Node *n = at(p, read);
    return n->kind == N_VIEW ? n->args[0] : n->kind == N_ARRAY ? read : -1;
}

/* What the steps carry is theirs: it lies in the type of the arithmetic. */
static bool may_lie_rounded(const Plan *p, NodeId array)
{
    return at(p, array)->type == TY_REAL && !(at(p, array)->dep & (DEP_STATE | DEP_COTANGENT)) && !is_root(p->m, array);
}

static bool reads_own_place(const Plan *p, NodeId array, NodeId read)
{
    const Node *a = at(p, array), *v = at(p, array_of(p, read));
    bool same = v->naxes == a->naxes;
    for (int i = 0; same && i < a->naxes; i++)
        same = at(p, read)->kind == N_ARRAY ? v->axes[i] == a->axes[i]
                                            : at(p, read)->map[i] == ix_index(p->m, a->axes[i]) &&
                                                  extent_of(p, v->axes[i]) == extent_of(p, a->axes[i]);
    return same;
}

/* ---- who reads an array as it is, and who another step of it ---- */

typedef struct Readers { const Plan *p; bool *seen, *raw, *other_step; } Readers;

static void find_readers(Readers *r, NodeId id)
{
    const Plan *p = r->p;
    if (id < 0 || r->seen[id])
        return;
    r->seen[id] = true;
    for (int i = 0; i < at(p, id)->nargs; i++) {
        NodeId read = at(p, id)->args[i], array = array_of(p, read);
        if (array >= 0 && at(p, id)->kind != N_VIEW) {
            r->raw[array] |= !is_rounding(p, id);
            r->other_step[array] |= at(p, read)->step != NULL;
        }
        find_readers(r, read);
    }
}

static Readers readers_of(const Plan *p)
{
    const Module *m = p->m;
    int n = m->nodes.len;
    Readers r = { .p = p, .seen = plan_alloc(p, 1, n), .raw = plan_alloc(p, 1, n), .other_step = plan_alloc(p, 1, n) };
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const NodeId roots[] = { m->output.data[t], m->next.data[t], m->init.data[t], m->dinput.data[t],
                                 m->dparam.data[t], m->dprev.data[t], m->dparam_init.data[t],
                                 m->dpast.data[t], m->last.data[t] };
        for (int k = 0; k < 9; k++)
            find_readers(&r, roots[k]);
    }
    return r;
}

/* ---- a value that is another one rounded, where it is read ---- */

/* The read that the array is, rounded; -1: it is more than that, or what it reads is read as it is as well. */
static NodeId rounded_read(const Plan *p, const Readers *r, NodeId array)
{
    NodeId body = at(p, array)->args[0], read = is_rounding(p, body) ? at(p, body)->args[0] : -1;
    NodeId of = read < 0 ? -1 : array_of(p, read);
    if (of < 0 || at(p, read)->step || r->raw[of] || !may_lie_rounded(p, of) || is_root(p->m, array))
        return -1;
    return r->other_step[array] && !reads_own_place(p, array, read) ? -1 : read;
}

/* At the place and the step of a read of the array. The guards of that read stand around it already. */
static NodeId read_there(Module *m, const Node *array, NodeId read, const Node *reader)
{
    const Node v = m->nodes.data[read];
    NodeId of = v.kind == N_VIEW ? v.args[0] : read;
    const IxExpr *map[64], *to[64];
    const Node *target = &m->nodes.data[of];
    int n = target->naxes;
    for (int i = 0; i < array->naxes; i++)
        to[i] = reader->kind == N_VIEW ? reader->map[i] : ix_index(m, array->axes[i]);
    for (int i = 0; i < n; i++)
        map[i] = ix_subst(m, v.kind == N_VIEW ? v.map[i] : ix_index(m, target->axes[i]), array->axes, to, array->naxes);
    NodeId there = node_view_at(m, of, map, n, reader->step, reader->past);
    while (m->nodes.data[there].kind == N_MAP)
        there = m->nodes.data[there].args[1];
    return there;
}

typedef struct Rounded { const Plan *p; NodeId *read; } Rounded;       /* read: per old array, or -1 */

static NodeId hook_rounded(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    const Rounded *w = r->data;
    Module *m = r->m;
    NodeId array = old < r->n ? array_of(w->p, old) : -1;
    (void)whole;
    if (array < 0 || w->read[array] < 0 || is_root(m, old))
        return rebuilt;
    const Node reader = m->nodes.data[old], of = m->nodes.data[array];
    return node_map1(m, m->nodes.data[of.args[0]].op, read_there(m, &of, w->read[array], &reader));
}

void round_where_read(Plan *p)
{
    Module *m = p->m;
    int n = m->nodes.len;
    bool any = false;
    if (p->dtype != DT_BF16 && p->dtype != DT_F16)
        return;
    Readers r = readers_of(p);
    Rounded w = { p, plan_alloc(p, sizeof *w.read, n) };
    for (NodeId id = 0; id < n; id++) {
        w.read[id] = r.seen[id] && at(p, id)->kind == N_ARRAY ? rounded_read(p, &r, id) : -1;
        NodeId of = w.read[id] < 0 ? -1 : array_of(p, w.read[id]);
        if (of >= 0 && !at(p, of)->name && reads_own_place(p, id, w.read[id]))
            m->nodes.data[of].name = at(p, id)->name;
        any |= of >= 0;
    }
    Rewrite rewrite = { .m = m, .hook = hook_rounded, .data = &w };
    if (any)
        rewrite_roots(&rewrite);
}

/* ---- which arrays lie in the storage type ---- */

static bool says_rounded(const Plan *p, NodeId array)
{
    return is_rounding(p, at(p, array)->args[0]) && may_lie_rounded(p, array);
}

/* A product of operands in another type cannot be written in this one. */
static bool product_of_other_type(Plan *p, NodeId array)
{
    Gemm g;
    NodeId factor[2];
    Read a;
    return contraction_of(p, array, false, &g, factor) && operand_read(p, factor[0], &a) && type_of_read(p, &a) != p->dtype;
}

void find_rounded(Plan *p)
{
    if (p->dtype != DT_BF16 && p->dtype != DT_F16)
        return;
    Readers r = readers_of(p);
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (r.seen[id] && at(p, id)->kind == N_ARRAY)
            p->narrow[id] = says_rounded(p, id) || (!r.raw[id] && may_lie_rounded(p, id));
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (p->narrow[id] && !says_rounded(p, id) && product_of_other_type(p, id))
            p->narrow[id] = false;
}

bool operand_read(const Plan *p, NodeId factor, Read *out)
{
    if (!is_rounding(p, factor))
        return plan_resolve(p, factor, out);
    return plan_resolve(p, at(p, factor)->args[0], out) && !out->is_tensor && !out->step &&
           (!p->operands_copied || p->narrow[out->id]);
}

bool operand_is_rounded(const Plan *p, NodeId factor, const Read *r)
{
    return is_rounding(p, factor) || (!r->is_tensor && says_rounded(p, r->id));
}
