/* plan_roots.c: the first pass of the planner. In comes a module; out goes one whose roots are only ever written: a root
 * that other arrays read is a copy of what they read. A value that is carried and pointwise stays as it is. */
#include "plan_pass.h"

/* A root that other arrays read gets a copy as the root, so that a root is only ever written. The copy may be
 * a node that there is, and that is read: then a copy of that. nodes: how many `read` knows. */
static NodeId split_root(Plan *p, NodeId root, const bool *read, int nodes)
{
    if (root < 0 || !read[root])
        return root;
    Node n = *at(p, root);
    NodeId copy = root;
    while (copy < nodes && read[copy])
        copy = node_array(p->m, copy, n.axes, n.naxes, n.name, n.span);
    return copy;
}

static void mark_reads(const Plan *p, NodeId id, bool *seen, bool *read)
{
    if (id < 0 || seen[id])
        return;
    seen[id] = true;
    for (int i = 0; i < at(p, id)->nargs; i++) {
        NodeId a = at(p, id)->args[i];
        if (at(p, a)->kind == N_ARRAY)
            read[a] = true;
        mark_reads(p, a, seen, read);
    }
}

void split_roots(Plan *p)
{
    Module *m = p->m;
    int n = m->nodes.len;
    bool *seen = plan_alloc(p, 1, n), *read = plan_alloc(p, 1, n);
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int k = 0; k < ROOT_COUNT; k++)
            mark_reads(p, m->roots.data[t].of[k], seen, read);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        for (int k = 0; k < ROOT_LAST; k++) {
            NodeId root = m->roots.data[t].of[k];
            bool carried = k == ROOT_NEXT || k == ROOT_INIT;
            if (carried && (root < 0 || !plan_reduces(p, root)))
                continue;
            if (carried)
                read[root] = true;
            m->roots.data[t].of[k] = split_root(p, root, read, n);
        }
    }
}
