/* tile_split.c: sums over a parallel axis leave the walk. In comes a simplified module; out goes the same one
 * in which a sum of matrix values over a parallel axis (the gradient of a param that all heads share) is done
 * in two: over what lies on the chip, step by step for each head, and over the heads behind the walk. Sums of
 * vectors stay whole: they are products. */
#include "ir/rewrite.h"
#include "tile.h"

static bool on_chip(const Tile *t, const Poly *e)
{
    return e->is_const && (e->value == t->rows || e->value == t->cols);
}

static bool is_parallel(const Tile *t, IndexId i)
{
    if (i < IX_FIRST)
        return false;
    const Poly *e = t->m->indices.data[i].extent;
    for (int k = 0; k < t->npar; k++)
        if (e == t->par_extent[k] && !on_chip(t, e))
            return true;
    return false;
}

/* Does the expression read a matrix that the walk computes or carries? What was looked at is not looked at again. */
static bool reads_matrix(const Tile *t, NodeId id, bool *seen)
{
    const Node *n = &t->m->nodes.data[id];
    if (seen[id])
        return false;
    seen[id] = true;
    if (n->kind == N_LOAD || n->kind == N_ARRAY || n->kind == N_VIEW)
        return n->nmap + (n->kind == N_ARRAY ? n->naxes : 0) >= t->npar + 2 &&
               (n->dep & (DEP_STATE | DEP_COTANGENT)) &&
               (n->kind != N_LOAD || t->m->tensors.data[n->tensor].kind != T_DOUT);
    for (int i = 0; i < n->nargs; i++)
        if (reads_matrix(t, n->args[i], seen))
            return true;
    return false;
}

static NodeId split_sum(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    const Tile *t = r->data;
    Module *m = r->m;
    Node n = m->nodes.data[rebuilt];
    (void)old;
    if (!whole || n.kind != N_REDUCE || n.reduce != R_SUM || n.nbound > TILE_MAX_AXES ||
        n.naxes > TILE_MAX_AXES || !reads_matrix(t, n.args[0], arena_alloc(m->arena, (size_t)m->nodes.len)))
        return rebuilt;
    IndexId outer[TILE_MAX_AXES], inner[TILE_MAX_AXES], axes[2 * TILE_MAX_AXES];
    int nouter = 0, ninner = 0;
    for (int k = 0; k < n.nbound; k++) {
        if (is_parallel(t, n.bound[k]) || n.bound[k] < IX_FIRST)
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
    NodeId part = node_array(m, node_reduce(m, R_SUM, n.args[0], inner, ninner), axes, naxes, NULL, n.span);
    return node_reduce(m, R_SUM, part, outer, nouter);
}

void tile_split_sums(Tile *t)
{
    Rewrite r = { .m = t->m, .hook = split_sum, .data = t };
    rewrite_roots(&r);
    module_at(t->m, t->m->span, NULL);
}
