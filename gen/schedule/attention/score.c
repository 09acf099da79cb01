/* score.c: what the score of a pair is made of. In comes a score, or a weight, in which values over the past
 * are looked through; out go the product of a value of this step and one of the other, the leaves, which each
 * belong to one step or to a place that both say, and the conditions under which the pair counts, those on
 * steps as expressions that are not negative where they hold. Guaranteed: whatever belongs to step j has the
 * same value at its own step, and every pair that counts has a step j. */
#include "ir/factors.h"
#include "score.h"

static Node at(const Proof *p, NodeId id)
{
    return p->m->nodes.data[id];
}

/* ---- whose a value is */

static const IxExpr *now(const Proof *p)
{
    return ix_index(p->m, IX_TIME);
}

/* The expression with the number of step j in place of the distance; without step j as it is. */
static const IxExpr *by_steps(const Proof *p, const IxExpr *e)
{
    const Attention *a = p->to;
    if (!a->step)
        return e;
    /* step = t - w + c, so w = t + c - s */
    const IxExpr *w = ix_sub(p->m, ix_add(p->m, a->step, ix_index(p->m, a->w)), ix_index(p->m, a->other));
    return ix_subst(p->m, e, &a->w, &w, 1);
}

/* Is the step that is read this one less the distance, and perhaps some steps more? */
static bool is_back(const Proof *p, const IxExpr *step)
{
    const IxExpr *rest = ix_sub(p->m, ix_add(p->m, step, ix_index(p->m, p->to->w)), now(p));
    return rest->nterms == 0 && poly_nonneg(poly_sub(p->m, poly_const(p->m, 0), rest->offset));
}

/* Step j is what the first value says that is read at another step. */
static bool is_other(Proof *p, const IxExpr *step)
{
    if (!p->to->step && is_back(p, step))
        p->to->step = step;
    return step == p->to->step;
}

/* An expression of step j's number alone as one of the step that takes its place; NULL: it is none. */
static const IxExpr *own_index(const Proof *p, const IxExpr *e)
{
    const IxExpr *t = p->target ? p->target : now(p);
    e = by_steps(p, e);
    if (ix_uses(e, IX_TIME) || ix_uses(e, p->to->w))
        return NULL;
    return ix_subst(p->m, e, &p->to->other, &t, 1);
}

static bool is_timed(const Node *n)
{
    return n->step || (n->dep & DEP_TIME);
}

/* A read of step j at its own step. */
static NodeId own_read(Proof *p, const Node *n)
{
    Module *m = p->m;
    const IxExpr **map = arena_alloc(m->arena, sizeof *map * (size_t)(n->nmap + 1));
    if (is_timed(n) && !(n->step && is_other(p, n->step)))
        return -1;
    for (int i = 0; i < n->nmap; i++)
        if (!(map[i] = own_index(p, n->map[i])))
            return -1;
    const IxExpr *step = n->step ? p->target : NULL;
    return n->kind == N_LOAD ? node_load_at(m, n->tensor, map, n->nmap, step, n->past)
                             : node_view_at(m, n->args[0], map, n->nmap, step, n->past);
}

static const IxExpr *room_of(const Proof *p, NodeId condition);
static bool is_nonneg(const Proof *p, const IxExpr *e);

/* The steps of the reads come first: conditions in front of them say nothing of which one j is. */
static void find_step(Proof *p, NodeId id)
{
    Node n = at(p, id);
    if (p->to->step || --p->left < 0)
        return;
    if (n.step)
        is_other(p, n.step);
    for (int i = 0; i < n.nargs && n.kind == N_MAP; i++)
        find_step(p, n.args[i]);
}

static NodeId own_value(Proof *p, NodeId id)
{
    Module *m = p->m;
    Node n = at(p, id);
    NodeId args[8];
    if (--p->left < 0 || n.nargs > 8)
        return -1;
    switch (n.kind) {
    case N_CONST:
    case N_SIZE: return id;
    case N_INDEX: {
        const IxExpr *e = own_index(p, n.ix);
        return e ? node_index(m, e) : -1;
    }
    case N_ARRAY: return varies_with(m, id, p->to->w) || is_timed(&n) ? -1 : id;
    case N_LOAD:
    case N_VIEW: return own_read(p, &n);
    case N_MAP: break;
    default: return -1;
    }
    /* That the step is there says nothing at that step. */
    if (n.op == OP_SELECT) {
        const IxExpr *room = room_of(p, n.args[0]), *own = room ? own_index(p, room) : NULL;
        if (own && is_nonneg(p, own))
            return own_value(p, n.args[1]);
    }
    for (int i = 0; i < n.nargs; i++)
        if ((args[i] = own_value(p, n.args[i])) < 0)
            return -1;
    module_at(m, n.span, n.chain);
    return node_map(m, n.op, args, n.nargs);
}

NodeId pair_of_key(Proof *p, NodeId id)
{
    find_step(p, id);
    return own_value(p, id);
}

NodeId pair_at_step(Proof *p, NodeId id, const IxExpr *step)
{
    p->target = step;
    NodeId value = own_value(p, id);
    p->target = NULL;
    return value;
}

bool pair_is_of_row(Proof *p, NodeId id)
{
    return !varies_with(p->m, id, p->to->w);
}

bool pair_reads(const Module *m, NodeId id)
{
    const Node *n = &m->nodes.data[id];
    if (n->kind == N_LOAD || n->kind == N_ARRAY || n->kind == N_VIEW)
        return true;
    for (int i = 0; i < n->nargs; i++)
        if (pair_reads(m, n->args[i]))
            return true;
    return false;
}

/* ---- conditions */

/* Proved, as numbers of steps, places and sizes are not negative; but that of step j may be. */
static bool is_nonneg(const Proof *p, const IxExpr *e)
{
    for (int i = 0; i < e->nterms; i++)
        if (!poly_nonneg(e->terms[i].coef) || e->terms[i].kind != IA_INDEX ||
            e->terms[i].index == p->to->other)
            return false;
    return poly_nonneg(e->offset);
}

static const IxExpr *as_index(const Proof *p, NodeId id)
{
    Node n = at(p, id);
    return n.kind == N_INDEX ? n.ix : n.kind == N_SIZE ? ix_const(p->m, n.size) : NULL;
}

/* A comparison of index expressions as one that is not negative where it holds, in terms of the distance. */
static const IxExpr *room_of(const Proof *p, NodeId condition)
{
    Module *m = p->m;
    Node n = at(p, condition);
    bool not = n.kind == N_MAP && n.op == OP_NOT;
    if (not )
        n = at(p, n.args[0]);
    if (n.kind != N_MAP || (n.op != OP_LE && n.op != OP_LT))
        return NULL;
    const IxExpr *a = as_index(p, n.args[not ]), *b = as_index(p, n.args[!not ]);
    if (!a || !b)
        return NULL;
    bool strict = (n.op == OP_LT) != not ;
    return ix_sub(m, ix_sub(m, b, a), ix_const(m, poly_const(m, strict)));
}

/* The two that `a <= min(b, c)` and `max(a, b) <= c` are; false: it is none of these. */
static bool halves_of(Proof *p, NodeId condition, NodeId half[2])
{
    Node n = at(p, condition);
    if (n.kind != N_MAP)
        return false;
    for (int i = 0; i < 2 && n.op == OP_AND; i++)
        half[i] = n.args[i];
    if (n.op != OP_LE && n.op != OP_LT)
        return n.op == OP_AND;
    for (int side = 0; side < 2; side++) {
        Node x = at(p, n.args[side]);
        if (x.kind != N_MAP || x.op != (side ? OP_MIN : OP_MAX))
            continue;
        for (int i = 0; i < 2; i++)
            half[i] = node_map2(p->m, n.op, side ? n.args[0] : x.args[i], side ? x.args[i] : n.args[1]);
        return true;
    }
    return false;
}

/* Does a hold wherever b does? */
static bool follows(const Proof *p, const IxExpr *a, const IxExpr *b)
{
    return is_nonneg(p, ix_sub(p->m, a, b));
}

/* No step of the call is later than its last one. */
static bool holds_at_last(const Proof *p, const IxExpr *room)
{
    Module *m = p->m;
    const IndexId time = IX_TIME;
    const IxExpr *last =
        ix_add(m, ix_index(m, IX_START), ix_const(m, poly_sub(m, poly_dim(m, ATOM_T), poly_const(m, 1))));
    const Poly *by = ix_coefficient(m, room, IX_TIME);
    return by->is_const && by->value == -1 && is_nonneg(p, ix_subst(m, room, &time, &last, 1));
}

static bool is_known(Proof *p, NodeId condition)
{
    const IxExpr *room = room_of(p, condition);
    if (room && holds_at_last(p, room))
        return true;
    room = room ? by_steps(p, room) : NULL;
    if (room && is_nonneg(p, room))
        return true;
    for (int i = 0; i < p->to->conditions.len; i++) {
        const AttentionCondition *c = &p->to->conditions.data[i];
        if (c->node == condition || (room && c->room && follows(p, room, by_steps(p, c->room))))
            return true;
    }
    return false;
}

bool pair_is_implied(Proof *p, NodeId condition)
{
    NodeId half[2];
    if (halves_of(p, condition, half))
        return pair_is_implied(p, half[0]) && pair_is_implied(p, half[1]);
    return is_known(p, condition);
}

void pair_condition(Proof *p, NodeId condition)
{
    NodeId half[2];
    if (halves_of(p, condition, half)) {
        pair_condition(p, half[0]);
        pair_condition(p, half[1]);
        return;
    }
    if (is_known(p, condition))
        return;
    AttentionCondition c = { condition, room_of(p, condition) };
    vec_push(p->m->arena, &p->to->conditions, c);
}

/* Does a row certainly have a pair for which the condition holds: that of distance 0? */
static bool holds_at_once(Proof *p, NodeId condition)
{
    Module *m = p->m;
    const IxExpr *zero = ix_const(m, poly_const(m, 0));
    NodeId now = node_subst(m, condition, &p->to->w, &zero, 1), half[2];
    Node n = at(p, now);
    if (halves_of(p, now, half))
        return holds_at_once(p, half[0]) && holds_at_once(p, half[1]);
    if (n.kind == N_CONST)
        return n.value != 0;
    if (n.kind == N_MAP && n.op == OP_EQ)
        return n.args[0] == n.args[1];
    const IxExpr *room = room_of(p, now);
    return room && is_nonneg(p, room);
}

/* Has every pair for which it does not hold no step j, so that nothing is weighed there? */
static bool is_of_steps(Proof *p, NodeId condition)
{
    const IxExpr *room = room_of(p, condition);
    return room && p->to->step && follows(p, by_steps(p, room), ix_index(p->m, p->to->other));
}

/* A score that is as good as none: beside any other that a score of f32 can be, its weight is 0. */
static bool is_none(const Proof *p, NodeId id, bool *finite)
{
    Node n = at(p, id);
    double sign = n.kind == N_MAP && n.op == OP_NEG ? -1 : 1;
    if (sign < 0)
        n = at(p, n.args[0]);
    *finite = n.kind == N_CONST && sign * n.value > -1e300;
    return n.kind == N_CONST && sign * n.value <= -1e29;
}

NodeId pair_masks(Proof *p, NodeId score)
{
    Module *m = p->m;
    for (;;) {
        Node n = at(p, score);
        bool finite, turned;
        if (n.kind != N_MAP || n.op != OP_SELECT)
            return score;
        turned = is_none(p, n.args[1], &finite);
        if (!turned && !is_none(p, n.args[2], &finite))
            return score;
        NodeId condition = turned ? node_map1(m, OP_NOT, n.args[0]) : n.args[0];
        if (finite && !is_of_steps(p, condition) && !holds_at_once(p, condition))
            return score;
        pair_condition(p, condition);
        score = n.args[turned ? 2 : 1];
    }
}

/* ---- the product */

static NodeId times(Proof *p, NodeId product, Factor f)
{
    return times_factor(p->m, product, f);
}

static NodeId dot_of(Proof *p, NodeId own, NodeId other)
{
    Module *m = p->m;
    Attention *a = p->to;
    IndexId axes[64];
    int n = 0;
    for (int i = 0; i < a->nheads; i++)
        axes[n++] = a->heads[i].axis;
    axes[n++] = a->w;
    NodeId sum = node_reduce(m, R_SUM, node_map2(m, OP_MUL, own, other), &a->along, 1);
    return node_array(m, sum, axes, n, intern(m->c, "dot"), at(p, a->sum).span);
}

/* A sum of products as scale * dot, under the conditions that do not follow from those of the pair. */
static NodeId take_product(Proof *p, NodeId id)
{
    Module *m = p->m;
    Attention *a = p->to;
    Node n = at(p, id);
    NodeId own = -1, other = -1, scale = -1;
    if (n.reduce != R_SUM || n.nbound != 1 || n.bound[0] < IX_FIRST) {
        pair_refuse(p, id, "a reduction in the score is no sum over one index");
        return -1;
    }
    a->along = n.bound[0];
    Factors f = factors_of(m, n.args[0], true);
    for (int i = 0; i < f.all.len; i++) {
        NodeId x = f.all.data[i].value;
        if (!varies_with(m, x, a->along))
            scale = times(p, scale, f.all.data[i]);
        else if (pair_is_of_row(p, x))
            own = times(p, own, f.all.data[i]);
        else if (pair_of_key(p, x) >= 0)
            other = times(p, other, f.all.data[i]);
        else {
            pair_refuse(p, x,
                        "the terms of a sum in the score are no products of a value of this step and "
                        "one of the other step");
            return -1;
        }
    }
    if (own < 0 || other < 0) {
        pair_refuse(p, id, "a sum in the score has no product of a value of this step and one of the other");
        return -1;
    }
    a->q = own;
    a->k_pair = other;
    a->k = pair_of_key(p, other);
    a->dot = dot_of(p, own, other);
    NodeId value = scale < 0 ? a->dot : node_map2(m, OP_MUL, scale, a->dot);
    if (f.negative)
        value = node_map1(m, OP_NEG, value);
    for (int i = f.guards.len - 1; i >= 0; i--) {
        NodeId c = f.guards.data[i].condition;
        if (varies_with(m, c, a->along)) {
            pair_refuse(p, c, "a condition in the products of the score varies with what is summed over");
            return -1;
        }
        if (!pair_is_implied(p, c))
            value = node_select(m, c, value, node_const(m, 0));
    }
    return value;
}

typedef struct Product {
    NodeId sum, value;
} Product;

/* The score with the sum of products replaced. */
static NodeId put_product(Proof *p, NodeId id, Product *x)
{
    Node n = at(p, id);
    NodeId args[8];
    bool same = true;
    if (p->to->why || --p->left < 0)
        return id;
    if (n.kind == N_REDUCE && !ir_gathers(p->m, id)) {
        if (x->sum < 0) {
            x->sum = id;
            x->value = take_product(p, id);
        }
        if (x->sum != id)
            pair_refuse(p, id, "the score has several sums of products");
        return x->value;
    }
    if (n.kind == N_MAP && n.op == OP_SELECT && pair_is_implied(p, n.args[0]))
        return put_product(p, n.args[1], x);
    for (int i = 0; n.kind == N_MAP && i < n.nargs && i < 8; i++) {
        args[i] = put_product(p, n.args[i], x);
        same &= args[i] == n.args[i];
    }
    if (p->to->why || n.kind != N_MAP || same)
        return id;
    module_at(p->m, n.span, n.chain);
    return node_map(p->m, n.op, args, n.nargs);
}

/* ---- leaves */

static void add_leaf(Proof *p, LeafSide side, NodeId node, NodeId value)
{
    Attention *a = p->to;
    for (int i = 0; i < a->leaves.len; i++)
        if (a->leaves.data[i].node == node)
            return;
    AttentionLeaf leaf = { side, node, value, at(p, node).type == TY_INT };
    vec_push(p->m->arena, &a->leaves, leaf);
}

static bool is_leaf_type(const Node *n)
{
    return n->type == TY_REAL || (n->type == TY_INT && n->kind == N_LOAD);
}

static bool find_leaves(Proof *p, NodeId id)
{
    Module *m = p->m;
    Node n = at(p, id);
    NodeId key;
    if (id == p->to->dot || !pair_reads(m, id))
        return true;
    if (--p->left < 0)
        return pair_refuse(p, p->to->sum, "its score is too large");
    if (is_leaf_type(&n) && pair_is_of_row(p, id)) {
        add_leaf(p, LEAF_ROW, id, id);
        return true;
    }
    if (is_leaf_type(&n) && (key = pair_of_key(p, id)) >= 0) {
        add_leaf(p, LEAF_KEY, id, key);
        return true;
    }
    if (n.kind == N_LOAD || n.kind == N_ARRAY || n.kind == N_VIEW) {
        if (n.type == TY_REAL && !(n.dep & (DEP_TIME | DEP_BATCH))) {
            add_leaf(p, LEAF_TABLE, id, id);
            return true;
        }
        return pair_refuse(p, id,
                           "the score reads a value of a step at a place that both steps say, or of "
                           "another step than its keys");
    }
    if (n.kind != N_MAP)
        return pair_refuse(p, id, "a reduction stands in the score");
    for (int i = 0; i < n.nargs; i++)
        if (!find_leaves(p, n.args[i]))
            return false;
    return true;
}

bool pair_score(Proof *p, NodeId score)
{
    Attention *a = p->to;
    Product x = { -1, -1 };
    a->score = put_product(p, score, &x);
    if (a->why)
        return false;
    if (x.sum < 0)
        return pair_refuse(p, a->sum,
                           "its weights have no product of a value of this step and one of the other");
    if (!find_leaves(p, a->score))
        return false;
    for (int i = 0; i < a->conditions.len; i++)
        if (!a->conditions.data[i].room && !find_leaves(p, a->conditions.data[i].node))
            return false;
    return true;
}

/* ---- steps and heads */

/* A condition on the pair's steps that is not spelt in the spec. */
static void add_room(Proof *p, const IxExpr *room)
{
    AttentionCondition c = { -1, room };
    for (int i = 0; i < p->to->conditions.len; i++)
        if (p->to->conditions.data[i].room && follows(p, room, by_steps(p, p->to->conditions.data[i].room)))
            return;
    vec_push(p->m->arena, &p->to->conditions, c);
}

/* Drops conditions that follow from another one. */
static void drop_rooms(Proof *p)
{
    AttentionConditions all = p->to->conditions;
    p->to->conditions.len = 0;
    for (int i = 0; i < all.len; i++) {
        bool again = false;
        for (int k = 0; k < all.len && all.data[i].room; k++) {
            const IxExpr *room = all.data[k].room;
            bool other = k != i && room && (k < i || room != all.data[i].room);
            again |= other && follows(p, all.data[i].room, room);
        }
        if (!again)
            p->to->conditions.data[p->to->conditions.len++] = all.data[i];
    }
}

/* A condition without what is asked in front of it and holds for every pair: that step j is there. */
static NodeId put_implied(Proof *p, NodeId id)
{
    Node n = at(p, id);
    NodeId args[8];
    bool same = true;
    if (n.kind != N_MAP || n.nargs > 8 || --p->left < 0)
        return id;
    if (n.op == OP_SELECT && pair_is_implied(p, n.args[0]))
        return put_implied(p, n.args[1]);
    for (int i = 0; i < n.nargs; i++) {
        args[i] = put_implied(p, n.args[i]);
        same &= args[i] == n.args[i];
    }
    module_at(p->m, n.span, n.chain);
    return same ? id : node_map(p->m, n.op, args, n.nargs);
}

bool pair_steps(Proof *p)
{
    Module *m = p->m;
    Attention *a = p->to;
    const IxExpr *s = ix_index(m, a->other), *w = by_steps(p, ix_index(m, a->w));
    bool there = a->kind == ATTENTION_WEIGHTS;
    for (int i = 0; i < a->conditions.len; i++) {
        AttentionCondition *c = &a->conditions.data[i];
        c->room = c->room ? by_steps(p, c->room) : NULL;
        there |= c->room && follows(p, s, c->room);
    }
    if (!there)
        return pair_refuse(p, a->sum, "places without a step count: those of steps before the first");
    add_room(p, s);
    add_room(p, w);
    if (a->distances != poly_dim(m, ATOM_PAST))
        add_room(p, ix_sub(m, ix_const(m, poly_sub(m, a->distances, poly_const(m, 1))), w));
    drop_rooms(p);
    for (int i = 0; i < a->conditions.len; i++)
        if (!a->conditions.data[i].room)
            a->conditions.data[i].node = put_implied(p, a->conditions.data[i].node);
    return true;
}

/* How a value of keys depends on an axis of the heads: not at all (NULL), or by its place divided. */
static bool is_shared(const IxExpr *e, IndexId axis, const Poly **by)
{
    for (int i = 0; i < e->nterms; i++) {
        const IxTerm *t = &e->terms[i];
        IndexId which;
        if (t->kind == IA_INDEX && t->index != axis)
            continue;
        if (t->kind != IA_INDEX && !ix_uses(t->arg, axis))
            continue;
        if (t->kind != IA_DIV || !ix_is_index(t->arg, &which) || (*by && *by != t->by))
            return false;
        *by = t->by;
    }
    return true;
}

static bool all_shared(Proof *p, NodeId id, IndexId axis, const Poly **by)
{
    Node n = at(p, id);
    if (!varies_with(p->m, id, axis))
        return true;
    if (n.kind == N_ARRAY)
        return false;
    if (n.kind == N_INDEX)
        return is_shared(n.ix, axis, by);
    for (int i = 0; i < n.nmap; i++)
        if (!is_shared(n.map[i], axis, by))
            return false;
    for (int i = 0; n.kind == N_MAP && i < n.nargs; i++)
        if (!all_shared(p, n.args[i], axis, by))
            return false;
    return true;
}

/* One axis may be shared; of others each place has other keys. */
bool pair_heads(Proof *p)
{
    Module *m = p->m;
    Attention *a = p->to;
    bool some = false;
    for (int i = 0; i < a->nheads; i++) {
        IndexId axis = a->heads[i].axis;
        const Poly *by = NULL, *n = m->indices.data[axis].extent, *one = poly_const(m, 1);
        bool shared = all_shared(p, a->k, axis, &by) && all_shared(p, a->v, axis, &by);
        for (int k = 0; k < a->leaves.len; k++)
            if (a->leaves.data[k].side == LEAF_KEY)
                shared = shared && all_shared(p, a->leaves.data[k].value, axis, &by);
        by = !shared ? one : by ? by : n;
        if (some || !poly_div(m, n, by))
            by = one;
        a->heads[i].shared = by;
        some |= !poly_is_one(by);
    }
    return true;
}
