/* tile_merge.c: sums that only gradients read are put together. In comes an out of a step in normal form; out
 * goes the same value in which sums over the same indices that are added up are one sum of what they sum: one
 * accumulator and one exchange instead of several. Guaranteed: only sums are merged that nothing else reads,
 * so nothing is computed twice, and none that a carried value waits for. */
#include <string.h>

#include "ir/marks.h"
#include "tile.h"

enum { MAX_TERMS = 16 };

typedef struct Term { int sign; NodeId id; } Term;
typedef struct Terms { Term of[MAX_TERMS]; int n; } Terms;
typedef struct Scaled { NodeId sum, factor; } Scaled;      /* factor: -1 for none */
typedef struct Merge {
    Step *s;
    int *parents;                 /* per node that was there: how many read it */
    bool *seen;
    NodeId *merged;               /* per node that was there, -1: not yet */
    int n;
} Merge;

static Node node(const Merge *x, NodeId id)
{
    return x->s->t->m->nodes.data[id];
}

static bool at_hand(const Merge *x, NodeId id)
{
    int state;
    return tile_stored(x->s, id) || tile_whole(x->s, id, &state);
}

static void count_parents(Merge *x, NodeId id)
{
    x->parents[id]++;
    if (x->seen[id])
        return;
    x->seen[id] = true;
    Node n = node(x, id);
    for (int i = 0; i < n.nargs && !(n.kind == N_ARRAY && at_hand(x, id)); i++)
        count_parents(x, n.args[i]);
}

static bool is_read(const Node *n)
{
    return n->kind == N_VIEW || n->kind == N_ARRAY;
}

/* A sum that only this reader takes, through values that are nothing but reads: its canonical array as the
 * reader reads it; -1: it is none. */
static NodeId own_sum(const Merge *x, NodeId id)
{
    NodeId at = id;
    for (;;) {
        const IxExpr *map[TILE_MAX_AXES];
        Node n = node(x, id);
        if (id >= x->n || !is_read(&n) || x->parents[id] != 1)
            return -1;
        NodeId array = tile_read(x->s, at, map);
        if (at_hand(x, array) || x->parents[array] != 1 || tile_wants(x->s, array) == WANT_ALWAYS)
            return -1;
        Node a = node(x, array), body = node(x, a.args[0]);
        if (body.kind == N_REDUCE)
            return body.reduce == R_SUM ? at : -1;
        id = a.args[0];
        at = is_read(&body) ? node_subst(x->s->t->m, id, a.axes, map, a.naxes) : -1;
    }
}

/* The same in every step and for every element: neither a state nor a sum of this step. */
static bool is_steady(const Merge *x, NodeId id, Marks *seen)
{
    const IxExpr *map[TILE_MAX_AXES];
    Node n = node(x, id);
    if (!marks_first(seen, id))
        return true;
    if (is_read(&n) && tile_stored(x->s, tile_read(x->s, id, map)))
        return true;
    bool ok = n.kind == N_LOAD ? !(n.dep & DEP_STATE) && !tile_state(x->s->t, n.tensor) : n.kind != N_REDUCE && !at_hand(x, id);
    for (int i = 0; i < n.nargs && ok; i++)
        ok = is_steady(x, n.args[i], seen);
    return ok;
}

static bool steady(const Merge *x, NodeId id)
{
    Marks *seen = marks_begin(x->s->t->m);
    bool ok = is_steady(x, id, seen);
    marks_end(seen);
    return ok;
}

/* May a factor stand inside a sum, whose axes are read at the indices `from`? What varies over another axis would be free
 * there, and a vector would be a multiplication for every element. */
static bool fits_inside(const Merge *x, const Node *factor, const Node *sum, const IndexId *from)
{
    for (int i = 0; i < factor->naxes; i++) {
        bool fits = false;
        for (int k = 0; k < sum->naxes; k++)
            fits |= factor->axes[i] == from[k] && sum->axes[k] != x->s->t->row && sum->axes[k] != x->s->t->col;
        if (!fits)
            return false;
    }
    return true;
}

/* A factor of a sum that only this reader takes moves into it, where the sum is read at indices alone: in its own. */
static NodeId factor_inside(const Merge *x, NodeId sum, NodeId factor)
{
    Module *m = x->s->t->m;
    const IxExpr *map[TILE_MAX_AXES], *to[TILE_MAX_AXES];
    IndexId from[TILE_MAX_AXES];
    Node a = node(x, tile_read(x->s, sum, map)), f = node(x, factor);
    for (int k = 0; k < a.naxes; k++) {
        if (!ix_is_index(map[k], &from[k]))
            return -1;
        to[k] = ix_index(m, a.axes[k]);
    }
    return !fits_inside(x, &f, &a, from) ? -1 : node_subst(m, factor, from, to, a.naxes);
}

static Scaled scaled_sum(const Merge *x, NodeId id);

/* Through a value that is read here only. */
static Scaled scaled_value(const Merge *x, NodeId id)
{
    const IxExpr *map[TILE_MAX_AXES];
    NodeId array = tile_read(x->s, id, map);
    Scaled of = { -1, -1 };
    if (at_hand(x, array) || x->parents[array] != 1 || tile_wants(x->s, array) == WANT_ALWAYS)
        return of;
    Node a = node(x, array);
    of = scaled_sum(x, a.args[0]);
    if (of.sum >= 0)
        of.sum = node_subst(x->s->t->m, of.sum, a.axes, map, a.naxes);
    return of;
}

/* A sum that only this reader takes, or such a sum times what does not vary over its elements. */
static Scaled scaled_sum(const Merge *x, NodeId id)
{
    Node n = node(x, id);
    Scaled of = { own_sum(x, id), -1 };
    if (of.sum >= 0 || id >= x->n || x->parents[id] != 1)
        return of;
    if (is_read(&n))
        return scaled_value(x, id);
    for (int i = 0; i < 2 && n.kind == N_MAP && n.op == OP_MUL; i++) {
        NodeId sum = own_sum(x, n.args[i]);
        NodeId factor = sum >= 0 && steady(x, n.args[1 - i]) ? factor_inside(x, sum, n.args[1 - i]) : -1;
        if (factor >= 0)
            return (Scaled){ sum, factor };
    }
    return of;
}

static int axes_on_chip(const Merge *x, NodeId id)
{
    Node n = node(x, id);
    int axes = 0;
    for (int k = 0; k < n.naxes; k++)
        axes += n.axes[k] == x->s->t->row || n.axes[k] == x->s->t->col;
    return axes;
}

/* The product with the factor at that part of it which varies least, a vector: that is computed once for many elements. */
static NodeId scale(const Merge *x, NodeId body, NodeId factor)
{
    Module *m = x->s->t->m;
    Node n = node(x, body);
    if (factor < 0)
        return body;
    if (n.kind == N_MAP && n.op == OP_NEG)
        return node_map1(m, OP_NEG, scale(x, n.args[0], factor));
    if (n.kind != N_MAP || n.op != OP_MUL || axes_on_chip(x, body) < 2)
        return node_map2(m, OP_MUL, factor, body);
    if (axes_on_chip(x, n.args[0]) < axes_on_chip(x, n.args[1]))
        return node_map2(m, OP_MUL, scale(x, n.args[0], factor), n.args[1]);
    return node_map2(m, OP_MUL, n.args[0], scale(x, n.args[1], factor));
}

static NodeId sum_body(const Merge *x, NodeId sum)
{
    const IxExpr *map[TILE_MAX_AXES];
    return node(x, tile_read(x->s, sum, map)).args[0];
}

static bool same_sums(const Merge *x, NodeId a, NodeId b)
{
    const IxExpr *map_a[TILE_MAX_AXES], *map_b[TILE_MAX_AXES];
    NodeId sa = scaled_sum(x, a).sum, sb = scaled_sum(x, b).sum;
    if (sa < 0 || sb < 0)
        return false;
    Node p = node(x, tile_read(x->s, sa, map_a)), q = node(x, tile_read(x->s, sb, map_b));
    Node r = node(x, p.args[0]), s = node(x, q.args[0]);
    return p.naxes == q.naxes && r.nbound == s.nbound &&
           memcmp(p.axes, q.axes, sizeof *p.axes * (size_t)p.naxes) == 0 &&
           memcmp(map_a, map_b, sizeof *map_a * (size_t)p.naxes) == 0 &&
           memcmp(r.bound, s.bound, sizeof *r.bound * (size_t)r.nbound) == 0;
}

/* The terms of a sum that is written out. False: there are too many. */
static bool flatten(const Merge *x, NodeId id, int sign, bool top, Terms *out)
{
    Node n = node(x, id);
    bool sum = n.kind == N_MAP && (n.op == OP_ADD || n.op == OP_SUB || n.op == OP_NEG);
    if (sum && (top || (id < x->n && x->parents[id] == 1))) {
        bool ok = flatten(x, n.args[0], n.op == OP_NEG ? -sign : sign, false, out);
        return ok && (n.nargs < 2 || flatten(x, n.args[1], n.op == OP_SUB ? -sign : sign, false, out));
    }
    if (out->n == MAX_TERMS)
        return false;
    out->of[out->n++] = (Term){ sign, id };
    return true;
}

static NodeId add_up(Module *m, NodeId sum, int sign, NodeId term)
{
    if (sum < 0)
        return sign < 0 ? node_map1(m, OP_NEG, term) : term;
    return node_map2(m, sign < 0 ? OP_SUB : OP_ADD, sum, term);
}

/* Terms first, ... that are equal sums, as one; marks them done. */
static NodeId one_sum(const Merge *x, const Terms *t, int first, bool *done)
{
    Module *m = x->s->t->m;
    const IxExpr *map[TILE_MAX_AXES];
    NodeId id = t->of[first].id, read = scaled_sum(x, id).sum, body = -1;
    for (int i = first; i < t->n; i++)
        if (!done[i] && same_sums(x, id, t->of[i].id)) {
            done[i] = true;
            Scaled one = scaled_sum(x, t->of[i].id);
            NodeId of = node(x, sum_body(x, one.sum)).args[0];
            body = add_up(m, body, t->of[i].sign, scale(x, of, one.factor));
        }
    Node a = node(x, tile_read(x->s, read, map)), r = node(x, a.args[0]);
    NodeId sum = node_reduce(m, R_SUM, body, r.bound, r.nbound);
    NodeId array = node_array(m, sum, a.axes, a.naxes, NULL, a.span);
    if (!m->nodes.data[sum].name)
        m->nodes.data[sum].name = r.name;
    return node_view(m, array, map, a.naxes);
}

static NodeId merged(Merge *x, NodeId id);

static NodeId merged_sum(Merge *x, NodeId id)
{
    Module *m = x->s->t->m;
    Terms t = { .n = 0 };
    bool done[MAX_TERMS] = { false };
    int equal = 0;
    if (!flatten(x, id, 1, true, &t))
        return id;
    for (int i = 0; i < t.n; i++)
        for (int k = 0; k < i; k++)
            equal += same_sums(x, t.of[k].id, t.of[i].id);
    NodeId sum = -1;
    for (int i = 0; i < t.n; i++) {
        if (done[i])
            continue;
        bool more = false;
        for (int k = i + 1; k < t.n; k++)
            more |= same_sums(x, t.of[i].id, t.of[k].id);
        if (more)
            sum = add_up(m, sum, 1, one_sum(x, &t, i, done));
        else
            sum = add_up(m, sum, t.of[i].sign, merged(x, t.of[i].id));
    }
    return equal ? sum : id;
}

static NodeId merged_fresh(Merge *x, NodeId id)
{
    Module *m = x->s->t->m;
    Node n = node(x, id);
    NodeId args[4];
    module_at(m, n.span, n.chain);
    if (n.kind == N_ARRAY) {
        if (at_hand(x, id) || node(x, n.args[0]).kind == N_REDUCE || tile_wants(x->s, id) == WANT_ALWAYS)
            return id;
        return node_array(m, merged(x, n.args[0]), n.axes, n.naxes, n.name, n.span);
    }
    if (n.kind == N_VIEW) {
        NodeId array = merged(x, n.args[0]);
        return array == n.args[0] ? id : node_view(m, array, n.map, n.nmap);
    }
    if (n.kind != N_MAP)
        return id;
    if (n.op == OP_ADD || n.op == OP_SUB) {
        NodeId sum = merged_sum(x, id);
        if (sum != id)
            return sum;
    }
    for (int i = 0; i < n.nargs; i++)
        args[i] = merged(x, n.args[i]);
    return node_map(m, n.op, args, n.nargs);
}

static NodeId merged(Merge *x, NodeId id)
{
    if (id >= x->n)
        return id;
    if (x->merged[id] < 0)
        x->merged[id] = merged_fresh(x, id);
    return x->merged[id];
}

void tile_merge_sums(Step *s)
{
    Tile *t = s->t;
    Merge x = { .s = s, .n = t->m->nodes.len };
    size_t n = (size_t)x.n + 1;
    x.parents = arena_alloc(t->arena, sizeof *x.parents * n);
    x.seen = arena_alloc(t->arena, n);
    x.merged = arena_alloc(t->arena, sizeof *x.merged * n);
    memset(x.merged, 0xff, sizeof *x.merged * n);
    for (int k = 0; k < s->next.len; k++)
        count_parents(&x, s->next.data[k]);
    for (int k = 0; k < s->outs.len; k++)
        count_parents(&x, s->outs.data[k]);
    for (int k = 0; k < s->outs.len; k++)
        s->outs.data[k] = merged(&x, s->outs.data[k]);
}
