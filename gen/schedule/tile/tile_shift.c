/* tile_shift.c: vectors of a step that are read at other elements than the one that is computed (`w[h,(n +
 * 1) % N]`, as convolutions and shifts read them). In comes a module; out goes the same one, in which such
 * a vector is the result of a sum over the other side of the states of which one term is not 0: results of
 * sums lie where all threads can read them. Done only where a walk would be refused otherwise. */
#include "ir/rewrite.h"
#include "tile.h"

/* The indices of such vectors, so that equal ones are one value: by place and extent; OTHER_SIDE: of what
 * is summed over. */
typedef struct Fresh {
    int place;
    const Poly *extent;
    IndexId index;
} Fresh;
typedef struct Shift {
    const Tile *t;
    Vec(Fresh) fresh;
    bool any;
} Shift;

enum { OTHER_SIDE = -1 };

static const Poly *extent(const Module *m, IndexId i)
{
    return m->indices.data[i].extent;
}

/* Of a vector of each head: which of its axes lies on the chip; -1: it is none. */
static int chip_axis(const Tile *t, const Poly *const *axes, int n)
{
    int found = -1;
    for (int i = 0; i < n; i++) {
        bool parallel = false;
        for (int p = 0; p < t->npar; p++)
            parallel |= axes[i] == t->par_extent[p];
        if (parallel)
            continue;
        bool side = axes[i]->is_const && (axes[i]->value == t->rows || axes[i]->value == t->cols);
        if (!side || found >= 0)
            return -1;
        found = i;
    }
    return found;
}

static IndexId fresh_index(Shift *s, int place, const Poly *e)
{
    Module *m = s->t->m;
    for (int i = 0; i < s->fresh.len; i++)
        if (s->fresh.data[i].place == place && s->fresh.data[i].extent == e)
            return s->fresh.data[i].index;
    Fresh f = { place, e, module_index(m, place == OTHER_SIDE ? "o" : "v", e) };
    vec_push(m->arena, &s->fresh, f);
    return f.index;
}

/* The vector over fresh indices, as a sum. */
static NodeId shared(Shift *s, NodeId value, const IndexId *axes, int n, int chip, const Node *read)
{
    const Tile *t = s->t;
    Module *m = t->m;
    const char *name =
        read->kind == N_LOAD ? m->tensors.data[read->tensor].name : m->nodes.data[read->args[0]].name;
    bool row = extent(m, axes[chip])->value == t->rows;
    IndexId other = fresh_index(s, OTHER_SIDE, poly_const(m, row ? t->cols : t->rows));
    NodeId first = node_map2(m, OP_EQ, node_index(m, ix_index(m, other)), node_size(m, poly_const(m, 0)));
    NodeId sum = node_reduce(m, R_SUM, node_select(m, first, value, node_const(m, 0)), &other, 1);
    return node_array(m, sum, axes, n, name, read->span);
}

static bool is_carried(const Tensor *x)
{
    return x->kind == T_STATE || x->kind == T_DNEXT;
}

static NodeId hook_shift(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    Shift *s = r->data;
    Module *m = r->m;
    const Node n = m->nodes.data[old];
    const Poly *extents[TILE_MAX_AXES];
    IndexId axes[TILE_MAX_AXES], which;
    (void)whole;
    bool load = n.kind == N_LOAD && is_carried(&m->tensors.data[n.tensor]);
    bool view = n.kind == N_VIEW && (m->nodes.data[n.args[0]].dep & (DEP_STATE | DEP_COTANGENT)) &&
                m->nodes.data[m->nodes.data[n.args[0]].args[0]].kind != N_REDUCE;
    if ((!load && !view) || n.step || n.nmap > TILE_MAX_AXES)
        return rebuilt;
    NodeId array = view ? r->image[n.args[0]] : -1;
    for (int i = 0; i < n.nmap; i++)
        extents[i] = load ? m->tensors.data[n.tensor].axes[i] : extent(m, m->nodes.data[n.args[0]].axes[i]);
    int chip = chip_axis(s->t, extents, n.nmap);
    if (chip < 0 || ix_is_index(n.map[chip], &which))
        return rebuilt;
    const IxExpr *map[TILE_MAX_AXES];
    for (int i = 0; i < n.nmap; i++) {
        axes[i] = fresh_index(s, i, extents[i]);
        map[i] = ix_index(m, axes[i]);
    }
    module_at(m, n.span, n.chain);
    NodeId value = load ? node_load(m, n.tensor, map, n.nmap) : node_view(m, array, map, n.nmap);
    s->any = true;
    return node_view(m, shared(s, value, axes, n.nmap, chip, &n), n.map, n.nmap);
}

bool tile_share_vectors(Tile *t)
{
    Shift s = { .t = t };
    Rewrite r = { .m = t->m, .hook = hook_shift, .data = &s };
    rewrite_roots(&r);
    module_at(t->m, t->m->span, NULL);
    return s.any;
}
