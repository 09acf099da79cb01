/* split_sums.c: sums over a parallel axis leave the walk. In comes a simplified module; out goes the same one
 * in which a sum of matrix values over batch and time or a parallel axis (the gradient of a param that all
 * heads share) is done in two: over what lies on the chip, step by step for each head, and over the rest
 * behind the walk. Sums of vectors stay whole: they are products. */
#include "split_sums.h"

#include "ir/rewrite.h"

enum { MAX_AXES = 16 };

typedef struct Split {
    const SplitSums *of;
    bool any;
} Split;

int parallel_of_state(const Tensor *state)
{
    int need = state->rank - 2;
    for (int a = 0; a < state->rank; a++)
        if (!state->axes[a]->is_const)
            need = a + 1 > need ? a + 1 : need;
    return need;
}

int parallel_of_states(const Module *m, const Poly **extent)
{
    int n = 0;
    for (TensorId k = 0; k < m->tensors.len; k++) {
        const Tensor *x = &m->tensors.data[k];
        if (x->kind != T_STATE || m->roots.data[k].next < 0)
            continue;
        int need = parallel_of_state(x);
        if (need > MAX_PARALLEL)
            return -1;
        for (; n < need; n++)
            extent[n] = x->axes[n];
    }
    return n;
}

static bool on_chip(const SplitSums *s, const Poly *e)
{
    for (const int64_t *size = s->on_chip; e->is_const && *size; size++)
        if (e->value == *size)
            return true;
    return false;
}

static bool is_parallel(const SplitSums *s, IndexId i)
{
    if (i < IX_FIRST)
        return false;
    const Poly *e = s->m->indices.data[i].extent;
    for (int k = 0; k < s->npar; k++)
        if (e == s->par_extent[k] && !on_chip(s, e))
            return true;
    return false;
}

/* Elements of what is read, of sizes that are known. */
static int64_t elements_read(const Module *m, const Node *n)
{
    int64_t all = 1;
    const Node *array = n->kind == N_VIEW ? &m->nodes.data[n->args[0]] : n;
    int rank = n->kind == N_LOAD ? m->tensors.data[n->tensor].rank : array->naxes;
    for (int i = 0; i < rank; i++) {
        const Poly *e =
            n->kind == N_LOAD ? m->tensors.data[n->tensor].axes[i] : m->indices.data[array->axes[i]].extent;
        all *= e->is_const ? e->value : 1;
    }
    return all;
}

/* Does the expression read a matrix that the walk computes or carries, of so many elements? What was looked at is not
 * looked at again. */
static bool reads_matrix(const SplitSums *s, NodeId id, int64_t least, bool *seen)
{
    const Module *m = s->m;
    const Node *n = &m->nodes.data[id];
    if (seen[id])
        return false;
    seen[id] = true;
    if (n->kind == N_LOAD || n->kind == N_ARRAY || n->kind == N_VIEW)
        return n->nmap + (n->kind == N_ARRAY ? n->naxes : 0) >= s->npar + 2 &&
               (n->dep & (DEP_STATE | DEP_COTANGENT)) &&
               (n->kind != N_LOAD || m->tensors.data[n->tensor].kind != T_DOUT) &&
               elements_read(m, n) >= least;
    for (int i = 0; i < n->nargs; i++)
        if (reads_matrix(s, n->args[i], least, seen))
            return true;
    return false;
}

/* Elements of a sum's part, but for the axes of run-time size. */
static int64_t elements_made(const Module *m, const IndexId *axes, int n)
{
    int64_t all = 1;
    for (int i = 0; i < n; i++)
        all *= m->indices.data[axes[i]].extent->is_const ? m->indices.data[axes[i]].extent->value : 1;
    return all;
}

static NodeId split_sum(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    Split *split = r->data;
    const SplitSums *s = split->of;
    Module *m = r->m;
    Node n = m->nodes.data[rebuilt];
    (void)old;
    if (!whole || n.kind != N_REDUCE || n.reduce != R_SUM || n.nbound > MAX_AXES || n.naxes > MAX_AXES)
        return rebuilt;
    IndexId outer[MAX_AXES], inner[MAX_AXES], axes[2 * MAX_AXES];
    int nouter = 0, ninner = 0;
    for (int k = 0; k < n.nbound; k++) {
        if (is_parallel(s, n.bound[k]) || n.bound[k] < IX_FIRST)
            outer[nouter++] = n.bound[k];
        else
            inner[ninner++] = n.bound[k];
    }
    int naxes = 0;
    for (int k = 0; k < nouter; k++)
        if (outer[k] >= IX_FIRST)
            axes[naxes++] = outer[k];
    if (naxes == 0 && (nouter == 0 || ninner == 0))
        return rebuilt;
    for (int k = 0; k < n.naxes; k++)
        axes[naxes++] = n.axes[k];
    int64_t least = s->compact ? elements_made(m, axes, naxes) : 0;
    if (!reads_matrix(s, n.args[0], least, arena_alloc(m->arena, (size_t)m->nodes.len)))
        return rebuilt;
    split->any = true;
    NodeId part = node_array(m, node_reduce(m, R_SUM, n.args[0], inner, ninner), axes, naxes, NULL, n.span);
    return node_reduce(m, R_SUM, part, outer, nouter);
}

bool split_sums(const SplitSums *s)
{
    Split split = { .of = s };
    Rewrite r = { .m = s->m, .hook = split_sum, .data = &split };
    rewrite_roots(&r);
    module_at(s->m, s->m->span, NULL);
    return split.any;
}
