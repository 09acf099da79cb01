/* scan_axes.c: the unit's axes first. In come a module and the axes that its states begin with; out goes
 * the same module, in which the arrays of a step have these axes in front, in this order, as states have.
 * Sums have their axes in the order of their factors (`sum[i] C[a,i] * P[h,i,b]` is over a, h, b), which
 * says nothing; a thread of the walk has all elements behind the unit's axes. Guaranteed: values are the
 * same, and roots keep the axes that their tensors have. */
#include "ir/marks.h"
#include "ir/rewrite.h"
#include "scan.h"

enum { MOST_AXES = 32 };

typedef struct Order {
    const Units *units;
    Marks *fixed;
} Order;

static const Node *at(const Module *m, NodeId id)
{
    return &m->nodes.data[id];
}

/* Which axis of the array stands at each place afterwards; false: they stay as they are. Of axes of equal
 * extents the first is taken for the unit's. A sum over all steps, such as a param's gradient, is no unit's:
 * its matrix lies as the copies behind it read it. */
static bool order_of(const Order *o, const Module *m, NodeId array, int *axis)
{
    const Node *a = at(m, array);
    bool used[MOST_AXES] = { false }, moves = false;
    int n = 0;
    bool of_step = (a->dep & (DEP_STATE | DEP_COTANGENT)) && (a->dep & (DEP_BATCH | DEP_TIME));
    if (a->kind != N_ARRAY || a->naxes > MOST_AXES || !of_step || marks_get(o->fixed, array))
        return false;
    for (; n < o->units->naxes; n++) {
        int i = 0;
        while (i < a->naxes && (used[i] || m->indices.data[a->axes[i]].extent != o->units->axes[n]))
            i++;
        if (i == a->naxes)
            return false;
        used[i] = true;
        moves |= i != n;
        axis[n] = i;
    }
    for (int i = 0; i < a->naxes; i++)
        if (!used[i])
            axis[n++] = i;
    return moves;
}

static NodeId hook_order(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    Module *m = r->m;
    const Order *o = r->data;
    const Node n = *at(m, old);
    int axis[MOST_AXES];
    (void)whole;
    if (n.kind == N_ARRAY && order_of(o, m, old, axis)) {
        IndexId axes[MOST_AXES];
        for (int i = 0; i < n.naxes; i++)
            axes[i] = n.axes[axis[i]];
        return node_array(m, at(m, rebuilt)->args[0], axes, n.naxes, n.name, n.span);
    }
    if (n.kind == N_VIEW && order_of(o, m, n.args[0], axis)) {
        const IxExpr *map[MOST_AXES];
        for (int i = 0; i < n.nmap; i++)
            map[i] = n.map[axis[i]];
        return node_view(m, r->image[n.args[0]], map, n.nmap);
    }
    return rebuilt;
}

/* What a root is, or what is read at other steps, lies in memory as it is. */
static void fix(const Module *m, NodeId id, Marks *seen, Marks *fixed)
{
    const Node *n = at(m, id);
    if (!marks_first(seen, id))
        return;
    if (n->kind == N_VIEW && n->step)
        marks_set(fixed, n->args[0], 1);
    for (int i = 0; i < n->nargs; i++)
        fix(m, n->args[i], seen, fixed);
}

void scan_order_axes(Module *m, const Units *units)
{
    Order o = { units, marks_begin(m) };
    Marks *seen = marks_begin(m);
    int axis[MOST_AXES];
    bool any = false;
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int k = 0; k < ROOT_COUNT; k++)
            if (m->roots.data[t].of[k] >= 0) {
                marks_set(o.fixed, m->roots.data[t].of[k], 1);
                fix(m, m->roots.data[t].of[k], seen, o.fixed);
            }
    for (NodeId id = 0; id < m->nodes.len && !any; id++)
        any = marks_get(seen, id) && order_of(&o, m, id, axis);
    marks_end(seen);
    Rewrite r = { .m = m, .hook = hook_order, .data = &o };
    if (any)
        rewrite_roots(&r);
    marks_end(o.fixed);
    module_at(m, m->span, NULL);
}
