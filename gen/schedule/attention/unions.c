/* unions.c: sums over places of which some are steps of the past and others are none: a window with a
 * persistent prefix, `w < W ? past : prefix`. In comes a module in normal form; out goes the same with each
 * sum, or maximum, over such places as one over the steps and one over the others, and with values that are
 * read at one kind of place as what they are there. Guaranteed: the same values, in another order of sums. */
#include "ir/conditions.h"
#include "ir/rewrite.h"
#include "score.h"

enum { MOST_PARTS = 8, MOST_VISITS = 1 << 12 };

/* Places at which a value turns from one case to another, in their order. */
typedef struct Turns {
    Module *m;
    const Poly *at[MOST_PARTS];
    int n, left;
    bool unknown; /* there are more, or their order is not known */
} Turns;

static Node at(const Module *m, NodeId id)
{
    return m->nodes.data[id];
}

static bool is_less(Module *m, const Poly *a, const Poly *b)
{
    return poly_nonneg(poly_sub(m, poly_sub(m, b, a), poly_const(m, 1)));
}

/* Those that are no places of the index say nothing. */
static void add_turn(Turns *x, IndexId i, const Poly *place)
{
    Module *m = x->m;
    const Poly *none = poly_const(m, 0), *end = m->indices.data[i].extent;
    int k = 0;
    if (poly_nonneg(poly_sub(m, none, place)) || poly_nonneg(poly_sub(m, place, end)))
        return;
    while (k < x->n && is_less(m, x->at[k], place))
        k++;
    if (k < x->n && x->at[k] == place)
        return;
    x->unknown |= x->n == MOST_PARTS || !is_less(m, none, place) || !is_less(m, place, end) ||
                  (k < x->n && !is_less(m, place, x->at[k]));
    if (x->unknown)
        return;
    for (int n = x->n++; n > k; n--)
        x->at[n] = x->at[n - 1];
    x->at[k] = place;
}

/* `of` is the index that the value has in place of i, i + less. */
static void find_turns(Turns *x, NodeId id, IndexId of, IndexId i, const Poly *less)
{
    Module *m = x->m;
    Node n = at(m, id);
    const Poly *place;
    IndexId which;
    if (!varies_with(m, id, of) || --x->left < 0)
        return;
    if (turns_at(m, id, of, &place))
        add_turn(x, i, poly_sub(m, place, less));
    if (n.kind == N_ARRAY)
        find_turns(x, n.args[0], of, i, less);
    for (int k = 0; n.kind == N_MAP && k < n.nargs; k++)
        find_turns(x, n.args[k], of, i, less);
    for (int k = 0; n.kind == N_VIEW && !n.step && k < n.nmap; k++) {
        const IxExpr *e = n.map[k];
        Node array = at(m, n.args[0]);
        if (ix_uses(e, of) && ix_is_index(ix_sub(m, e, ix_const(m, e->offset)), &which) && which == of)
            find_turns(x, array.args[0], array.axes[k], i, poly_add(m, less, e->offset));
    }
}

static Turns turns_of(Module *m, NodeId id, IndexId i)
{
    Turns x = { .m = m, .left = MOST_VISITS };
    find_turns(&x, id, i, i, poly_const(m, 0));
    x.unknown |= x.left < 0;
    return x;
}

static bool turns(Module *m, NodeId id, IndexId i)
{
    return varies_with(m, id, i) && turns_of(m, id, i).n > 0;
}

/* The value with arrays that turn put in. */
static NodeId opened(Module *m, NodeId id, IndexId i)
{
    Node n = at(m, id);
    NodeId args[8];
    bool same = true;
    if (!turns(m, id, i))
        return id;
    if (n.kind == N_ARRAY)
        return opened(m, n.args[0], i);
    if (n.kind == N_VIEW && !n.step) {
        Node array = at(m, n.args[0]);
        return opened(m, node_subst(m, array.args[0], array.axes, n.map, array.naxes), i);
    }
    if (n.kind != N_MAP || n.nargs > 8)
        return id;
    for (int k = 0; k < n.nargs; k++) {
        args[k] = opened(m, n.args[k], i);
        same &= args[k] == n.args[k];
    }
    module_at(m, n.span, n.chain);
    return same ? id : node_map(m, n.op, args, n.nargs);
}

/* ---- sums */

typedef struct Part {
    IndexId index;
    const Poly *extent;
    NodeId value;
    bool past;
} Part;

/* The terms at places [from, to). */
static Part part_of(Module *m, NodeId terms, IndexId i, const Poly *from, const Poly *to)
{
    Part p = { .extent = poly_sub(m, to, from) };
    p.index = module_index(m, m->indices.data[i].name, p.extent);
    const IxExpr *own = poly_is_one(p.extent) ? ix_const(m, poly_const(m, 0)) : ix_index(m, p.index);
    const IxExpr *place = ix_add(m, own, ix_const(m, from));
    p.value = cases_taken(m, node_subst(m, terms, &i, &place, 1));
    p.past = pair_reads_back(m, p.value, p.index);
    return p;
}

static NodeId part_reduced(Module *m, const Node *reduce, const Part *p)
{
    if (poly_is_one(p->extent))
        return p->value;
    NodeId value = node_reduce(m, reduce->reduce, p->value, &p->index, 1);
    Node n = at(m, value);
    return p->past ? node_array(m, value, n.axes, n.naxes, NULL, reduce->span) : value;
}

static NodeId split_reduction(Module *m, NodeId id)
{
    Node n = at(m, id);
    Part parts[MOST_PARTS + 1];
    if (n.nbound != 1 || n.bound[0] < IX_FIRST || (n.reduce != R_SUM && n.reduce != R_MAX))
        return id;
    IndexId i = n.bound[0];
    Turns x = turns_of(m, n.args[0], i);
    if (!x.n || x.unknown)
        return id;
    NodeId terms = opened(m, n.args[0], i), out = -1;
    int past = 0;
    for (int k = 0; k <= x.n; k++) {
        parts[k] = part_of(m, terms, i, k ? x.at[k - 1] : poly_const(m, 0),
                           k < x.n ? x.at[k] : m->indices.data[i].extent);
        past += parts[k].past;
    }
    if (!past || past > x.n)
        return id;
    module_at(m, n.span, n.chain);
    for (int k = 0; k <= x.n; k++) {
        NodeId part = part_reduced(m, &n, &parts[k]);
        out = out < 0 ? part : node_map2(m, n.reduce == R_SUM ? OP_ADD : OP_MAX, out, part);
    }
    return out;
}

/* ---- reads */

/* What an array is at places that are all of one case. */
static NodeId case_read(Module *m, NodeId id)
{
    Node n = at(m, id), array = at(m, n.args[0]);
    NodeId value = array.args[0];
    bool some = false;
    for (int k = 0; k < array.naxes; k++) {
        some |= turns(m, value, array.axes[k]);
        value = opened(m, value, array.axes[k]);
    }
    if (!some)
        return id;
    value = cases_taken(m, node_subst(m, value, array.axes, n.map, array.naxes));
    Node v = at(m, value);
    for (int k = 0; k < v.naxes; k++)
        if (turns(m, value, v.axes[k]))
            return id;
    return node_array(m, value, v.axes, v.naxes, array.name, n.span);
}

static NodeId hook(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    Module *m = r->m;
    const Node n = at(m, rebuilt);
    bool *split = r->data;
    NodeId out = rebuilt;
    (void)old;
    (void)whole;
    if (n.kind == N_REDUCE)
        *split |= (out = split_reduction(m, rebuilt)) != rebuilt;
    if (n.kind == N_VIEW && !n.step && *split)
        out = case_read(m, rebuilt);
    return out;
}

bool attention_split(Module *m)
{
    bool split = false;
    Rewrite r = { .m = m, .hook = hook, .data = &split };
    rewrite_roots(&r);
    module_at(m, m->span, NULL);
    return split;
}
