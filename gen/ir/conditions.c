/* conditions.c: what conditions on indices say. In come comparisons of places, which are index expressions and
 * sizes; out goes whether they hold for all values of their indices, and for which range of one of them. */
#include "conditions.h"
#include "marks.h"

static const Node *at(const Module *m, NodeId id)
{
    return &m->nodes.data[id];
}

static bool is_zero(const Module *m, NodeId id)
{
    return at(m, id)->kind == N_CONST && at(m, id)->value == 0;
}

static bool place_of(Module *m, NodeId id, const IxExpr **out)
{
    const Node *n = at(m, id);
    if (n->kind == N_INDEX)
        *out = n->ix;
    else if (n->kind == N_SIZE)
        *out = ix_const(m, n->size);
    else
        return false;
    return true;
}

/* Of a comparison of places: 1 where it holds for all of its indices' values, 0 where for none, else -1. */
static int holds(Module *m, NodeId cond)
{
    const Node *n = at(m, cond);
    const IxExpr *a, *b;
    const Poly *lo, *hi;
    if (n->kind != N_MAP || n->type != TY_BOOL)
        return -1;
    if (n->op == OP_NOT) {
        int x = holds(m, n->args[0]);
        return x < 0 ? -1 : !x;
    }
    if (n->op == OP_AND || n->op == OP_OR) {
        int decisive = n->op == OP_OR, x = holds(m, n->args[0]);
        int y = x == decisive ? x : holds(m, at(m, cond)->args[1]);
        return x == decisive || y == decisive ? decisive : x < 0 || y < 0 ? -1 : !decisive;
    }
    bool order = n->op == OP_LT || n->op == OP_LE, equal = n->op == OP_EQ || n->op == OP_NE;
    if ((!order && !equal) || !place_of(m, n->args[0], &a) || !place_of(m, n->args[1], &b))
        return -1;
    if (!ix_range(m, ix_sub(m, b, a), &lo, &hi))
        return -1;
    const Poly *least = poly_const(m, n->op == OP_LT), *one = poly_const(m, 1), *none = poly_const(m, 0);
    if (equal && lo == none && hi == none)
        return n->op == OP_EQ;
    if (equal)
        return poly_nonneg(poly_sub(m, lo, one)) || poly_nonneg(poly_sub(m, poly_sub(m, none, hi), one))
                   ? n->op == OP_NE
                   : -1;
    if (poly_nonneg(poly_sub(m, lo, least)))
        return 1;
    return poly_nonneg(poly_sub(m, poly_sub(m, least, poly_const(m, 1)), hi)) ? 0 : -1;
}

NodeId branch_taken(Module *m, NodeId id)
{
    Node n = *at(m, id);
    if (n.kind != N_MAP || n.op != OP_SELECT)
        return id;
    int t = holds(m, n.args[0]);
    if (t >= 0)
        return branch_taken(m, n.args[t ? 1 : 2]);
    return node_select(m, n.args[0], branch_taken(m, n.args[1]), branch_taken(m, n.args[2]));
}

/* `image`: 1 + what stands for a node that was looked at. */
static NodeId cases_of(Module *m, NodeId id, Marks *image)
{
    Node n = *at(m, id);
    NodeId args[4] = { -1, -1, -1, -1 }, out = id;
    if (n.kind != N_MAP && n.kind != N_REDUCE)
        return id;
    if (marks_get(image, id))
        return marks_get(image, id) - 1;
    int t = n.kind == N_MAP && n.op == OP_SELECT ? holds(m, n.args[0]) : -1;
    bool same = t < 0;
    for (int i = 0; i < n.nargs && t < 0; i++) {
        args[i] = cases_of(m, n.args[i], image);
        same &= args[i] == n.args[i];
    }
    if (t >= 0)
        out = cases_of(m, n.args[t ? 1 : 2], image);
    else if (n.kind == N_MAP && n.op == OP_ADD && (is_zero(m, args[0]) || is_zero(m, args[1])))
        out = args[is_zero(m, args[0])];
    else if (!same)
        out = n.kind == N_MAP ? node_map(m, n.op, args, n.nargs)
                              : node_reduce(m, n.reduce, args[0], n.bound, n.nbound);
    marks_set(image, id, out + 1);
    return out;
}

NodeId cases_taken(Module *m, NodeId id)
{
    Marks *image = marks_begin(m);
    NodeId out = cases_of(m, id, image);
    marks_end(image);
    return out;
}

/* ---- what the conditions around a branch say of it ---- */

/* MOST_FACTS: comparisons around a branch; MOST_NODES: that are looked at, also again behind other conditions. */
enum { MOST_FACTS = 64, MOST_NODES = 4000 };

/* Expressions that are 0 or more where the walk is. */
typedef struct Known {
    Module *m;
    const IxExpr *facts[MOST_FACTS];
    int n, left;
} Known;

/* Is it a comparison a < b or a <= b of places? *margin: what is 0 or more where it holds, b - a - 1 or b - a. */
static bool margin_of(Module *m, NodeId cond, const IxExpr **margin)
{
    const Node *n = at(m, cond);
    const IxExpr *a, *b;
    if (n->kind != N_MAP || (n->op != OP_LT && n->op != OP_LE) || !place_of(m, n->args[0], &a) ||
        !place_of(m, n->args[1], &b))
        return false;
    *margin = ix_sub(m, ix_sub(m, b, a), ix_const(m, poly_const(m, n->op == OP_LT)));
    return true;
}

/* Below 0 where the other one is not. */
static const IxExpr *other_margin(Module *m, const IxExpr *margin)
{
    const IxExpr *none = ix_const(m, poly_const(m, 0)), *one = ix_const(m, poly_const(m, 1));
    return ix_sub(m, ix_sub(m, none, margin), one);
}

static void assume(Known *k, NodeId cond, bool truth)
{
    const Node *n = at(k->m, cond);
    const IxExpr *margin;
    if (n->kind == N_MAP && n->op == OP_NOT) {
        assume(k, n->args[0], !truth);
    } else if (n->kind == N_MAP && n->op == (truth ? OP_AND : OP_OR)) {
        assume(k, n->args[0], truth);
        assume(k, at(k->m, cond)->args[1], truth);
    } else if (k->n < MOST_FACTS && margin_of(k->m, cond, &margin)) {
        k->facts[k->n++] = truth ? margin : other_margin(k->m, margin);
    }
}

/* 0 or more by its indices' extents, or since a fact is no more than it? */
static bool follows(Known *k, const IxExpr *margin)
{
    const Poly *lo, *hi;
    bool known = ix_range(k->m, margin, &lo, &hi) && poly_nonneg(lo);
    for (int i = 0; i < k->n && !known; i++)
        known = ix_range(k->m, ix_sub(k->m, margin, k->facts[i]), &lo, &hi) && poly_nonneg(lo);
    return known;
}

/* What is left to ask of a condition; *truth: 1 and 0 where nothing is, else -1. */
static NodeId left_of(Known *k, NodeId cond, int *truth)
{
    Module *m = k->m;
    const Node n = *at(m, cond);
    const IxExpr *margin;
    *truth = -1;
    if (n.kind == N_MAP && (n.op == OP_AND || n.op == OP_OR)) {
        int decisive = n.op == OP_OR, a, b;
        NodeId first = left_of(k, n.args[0], &a), second = left_of(k, n.args[1], &b);
        *truth = a == decisive || b == decisive ? decisive : a >= 0 && b >= 0 ? !decisive : -1;
        return a >= 0 ? second : b >= 0 ? first : node_map2(m, n.op, first, second);
    }
    if (margin_of(m, cond, &margin))
        *truth = follows(k, margin) ? 1 : follows(k, other_margin(m, margin)) ? 0 : -1;
    return cond;
}

static NodeId known_of(Known *k, NodeId id);

static NodeId branch_behind(Known *k, NodeId cond, bool truth, NodeId branch)
{
    int n = k->n;
    assume(k, cond, truth);
    NodeId out = known_of(k, branch);
    k->n = n;
    return out;
}

static NodeId known_of(Known *k, NodeId id)
{
    Module *m = k->m;
    const Node n = *at(m, id);
    NodeId args[4];
    bool same = true;
    int truth;
    if (n.kind != N_MAP || --k->left < 0)
        return id;
    if (n.op == OP_SELECT) {
        NodeId cond = left_of(k, n.args[0], &truth);
        if (truth >= 0)
            return known_of(k, n.args[truth ? 1 : 2]);
        NodeId then = branch_behind(k, cond, true, n.args[1]);
        NodeId other = branch_behind(k, cond, false, n.args[2]);
        bool changed = cond != n.args[0] || then != n.args[1] || other != n.args[2];
        return changed ? node_select(m, cond, then, other) : id;
    }
    for (int i = 0; i < n.nargs; i++) {
        args[i] = known_of(k, n.args[i]);
        same &= args[i] == n.args[i];
    }
    return same ? id : node_map(m, n.op, args, n.nargs);
}

NodeId conditions_known(Module *m, NodeId id)
{
    Known k = { .m = m, .left = MOST_NODES };
    NodeId out = known_of(&k, id);
    return k.left < 0 ? id : out;
}

bool turns_at(Module *m, NodeId cond, IndexId i, const Poly **place)
{
    const Node *n = at(m, cond);
    const IxExpr *a, *b;
    IndexId which;
    if (n->kind != N_MAP || (n->op != OP_LT && n->op != OP_LE) || !place_of(m, n->args[0], &a) ||
        !place_of(m, n->args[1], &b))
        return false;
    bool up = a->nterms == 0;         /* number < index */
    const IxExpr *of = up ? b : a, *number = up ? a : b;
    if (number->nterms || !ix_is_index(ix_sub(m, of, ix_const(m, of->offset)), &which) || which != i)
        return false;
    *place = poly_add(m, poly_sub(m, number->offset, of->offset), poly_const(m, up == (n->op == OP_LT)));
    return true;
}

bool narrow_range(Module *m, NodeId cond, IndexId i, const Poly **lo, const Poly **hi)
{
    const Node *n = at(m, cond);
    const Poly *place, *one = poly_const(m, 1);
    const IxExpr *a, *b;
    IndexId which;
    if (n->kind == N_MAP && n->op == OP_AND)
        return narrow_range(m, n->args[0], i, lo, hi) &&
               narrow_range(m, at(m, cond)->args[1], i, lo, hi);
    if (n->kind == N_MAP && n->op == OP_EQ && place_of(m, n->args[0], &a) && place_of(m, n->args[1], &b)) {
        const IxExpr *d = a->nterms ? ix_sub(m, a, b) : ix_sub(m, b, a);
        if (!ix_is_index(ix_sub(m, d, ix_const(m, d->offset)), &which) || which != i)
            return false;
        *lo = poly_sub(m, poly_const(m, 0), d->offset);
        *hi = poly_add(m, *lo, one);
        return true;
    }
    if (!turns_at(m, cond, i, &place))
        return false;
    n = at(m, cond);
    bool up = at(m, n->args[1])->kind == N_INDEX && place_of(m, n->args[0], &a) && a->nterms == 0;
    if (up && poly_nonneg(poly_sub(m, place, *lo)))
        *lo = place;
    else if (!up && poly_nonneg(poly_sub(m, *hi, place)))
        *hi = place;
    return true;
}
