/* rows.c: values of a step's updates, of which each is a row of the walk, as one value over an index that
 * counts them. In: a node for each update. Out: one node. What has the same form in all of them, with places
 * that go on by the same distance (k[h,0,i], k[h,1,i], as a `repeat` gives), is read at the index itself, so
 * that it stays the caller's own; all else is chosen by the index. */
#include "base/mutate.h"
#include "rows.h"

static const Node *at(const Module *m, NodeId id)
{
    return &m->nodes.data[id];
}

/* Place u is the first one plus u times a distance. */
static const IxExpr *join_places(Module *m, const IxExpr *const *place, int n, const IxExpr *row)
{
    const IxExpr *apart = ix_sub(m, place[1], place[0]);
    if (apart->nterms)
        return NULL;
    for (int u = 2; u < n; u++)
        if (ix_sub(m, place[u], place[u - 1]) != apart)
            return NULL;
    return ix_add(m, place[0], ix_scale(m, row, apart->offset));
}

static NodeId join_form(Module *m, const NodeId *value, int n, const IxExpr *row);

static bool join_map(Module *m, const NodeId *value, int n, const IxExpr *row, const IxExpr **map)
{
    for (int i = 0; i < at(m, value[0])->nmap; i++) {
        const IxExpr *place[MAX_UPDATES];
        for (int u = 0; u < n; u++)
            place[u] = at(m, value[u])->map[i];
        map[i] = join_places(m, place, n, row);
        if (!map[i])
            return false;
    }
    return true;
}

/* -1: they have no form in common. */
static NodeId join_read(Module *m, const NodeId *value, int n, const IxExpr *row)
{
    const Node first = *at(m, value[0]);
    const IxExpr **map = arena_alloc(m->arena, sizeof *map * (size_t)(first.nmap + 1));
    for (int u = 0; u < n; u++) {
        const Node *x = at(m, value[u]);
        if (x->tensor != first.tensor || x->nmap != first.nmap || x->step || first.step ||
            (x->kind == N_VIEW && x->args[0] != first.args[0]))
            return -1;
    }
    if (!join_map(m, value, n, row, map))
        return -1;
    return first.kind == N_LOAD ? node_load(m, first.tensor, map, first.nmap)
                                : node_view(m, first.args[0], map, first.nmap);
}

static NodeId join_operands(Module *m, const NodeId *value, int n, const IxExpr *row)
{
    const Node first = *at(m, value[0]);
    NodeId *args = arena_alloc(m->arena, sizeof *args * (size_t)(first.nargs + 1));
    for (int i = 0; i < first.nargs; i++) {
        NodeId each[MAX_UPDATES];
        for (int u = 0; u < n; u++)
            each[u] = at(m, value[u])->args[i];
        args[i] = join_form(m, each, n, row);
        if (args[i] < 0)
            return -1;
    }
    return node_map(m, first.op, args, first.nargs);
}

static NodeId join_form(Module *m, const NodeId *value, int n, const IxExpr *row)
{
    bool same = true, alike = true;
    const Node first = *at(m, value[0]);
    for (int u = 1; u < n; u++) {
        const Node *x = at(m, value[u]);
        same &= value[u] == value[0];
        alike &= x->kind == first.kind && x->op == first.op && x->nargs == first.nargs;
    }
    if (same)
        return value[0];
    if (!alike)
        return -1;
    switch (first.kind) {
    case N_LOAD:
    case N_VIEW: return join_read(m, value, n, row);
    case N_MAP: return join_operands(m, value, n, row);
    default: return -1;
    }
}

const IxExpr *rows_place(Module *m, int update, int n)
{
    return ix_const(m, poly_const(m, m->c->reverse ? n - 1 - update : update));
}

NodeId rows_join(Module *m, const NodeId *value, int n, IndexId row)
{
    const IxExpr *counts = ix_index(m, row);
    if (m->c->reverse && !mutate("straight-update"))
        counts = ix_sub(m, ix_const(m, poly_const(m, n - 1)), counts);
    NodeId x = n > MAX_UPDATES ? -1 : n == 1 ? value[0] : join_form(m, value, n, counts);
    if (x >= 0)
        return x;
    x = value[n - 1];
    for (int u = n - 2; u >= 0; u--) {
        NodeId is = node_map2(m, OP_EQ, node_index(m, counts), node_whole(m, u));
        x = node_select(m, is, value[u], x);
    }
    return x;
}
