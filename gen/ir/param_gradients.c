/* param_gradients.c: sums over batch and time of a param's gradient, where the param is no operand of a
 * product by itself. In comes a module behind differentiate; out goes the same one in which such a sum is
 * made of sums of products of two step vectors, which a GEMM computes: factors and conditions that are the
 * same in every step stand behind them, and what a condition leaves of an index is a matrix of its own. So
 * of `sum[j] (W[i,j] - W[j,i]) * h[j]` one product gives both parts of the gradient, and of `sum[k] W[i,k]
 * * (k < D ? x[k] : h[k-D])` two give its columns. What a matrix goes through before it is multiplied, a
 * quotient by a norm or a softmax, has an adjoint that is linear in the matrix's: sums over places and
 * guards (`d == 0 ? 0 : d / n`) stand behind the sum over the steps too, and are computed once. Other sums
 * stay as they are. */
#include "conditions.h"
#include "factors.h"
#include "ir.h"
#include "param_gradients.h"
#include "rewrite.h"

/* MOST_NODES: of a gradient's value that are looked at. */
enum { MOST_AXES = 32, MOST_NODES = 1000 };

static const Node *at(const Module *m, NodeId id)
{
    return &m->nodes.data[id];
}

static NodeId node_of(const Module *m, const Node *n)
{
    return (NodeId)(n - m->nodes.data);
}

static bool has_axis(const Node *n, IndexId i)
{
    for (int k = 0; k < n->naxes; k++)
        if (n->axes[k] == i)
            return true;
    return false;
}

/* The same in every step of every sequence. */
static bool is_fixed(const Node *n)
{
    return !(n->dep & (DEP_BATCH | DEP_TIME | DEP_INPUT | DEP_STATE | DEP_COTANGENT));
}

static bool is_read(const Node *n)
{
    return n->kind == N_LOAD || n->kind == N_VIEW || n->kind == N_ARRAY;
}

/* ---- sums over the steps ---- */

/* The sum over batch and time of a param's gradient, taken apart. */
typedef struct Total {
    Module *m;
    const Node *sum;
    bool found;                   /* a product of two step vectors */
    int left;                     /* nodes that may still be looked at */
} Total;

static NodeId sum_of(Total *t, NodeId value)
{
    return node_reduce(t->m, R_SUM, value, t->sum->bound, t->sum->nbound);
}

/* Do the two vary over an index each that the other does not? Those of both are heads. */
static bool span_matrix(const Node *a, const Node *b)
{
    bool own[2] = { false, false };
    for (int i = 0; i < a->naxes; i++)
        own[0] |= !has_axis(b, a->axes[i]);
    for (int i = 0; i < b->naxes; i++)
        own[1] |= !has_axis(a, b->axes[i]);
    return own[0] && own[1];
}

/* Two vectors of the step, and factors that are the same in every step: the sum is a product of two
 * matrices, and the factors stand behind it. -1: it is something else. */
static NodeId total_of_product(Total *t, NodeId id)
{
    Module *m = t->m;
    const Factors f = factors_of(m, id, false);
    NodeId moving[2];
    int n = 0;
    for (int i = 0; i < f.all.len; i++) {
        const Factor x = f.all.data[i];
        const Node *v = at(m, x.value);
        if (is_fixed(v))
            continue;
        if (n == 2 || x.divides || !is_read(v) || v->naxes == 0)
            return -1;
        moving[n++] = x.value;
    }
    if (n != 2 || !span_matrix(at(m, moving[0]), at(m, moving[1])))
        return -1;
    t->found = true;
    NodeId sum = sum_of(t, node_map2(m, OP_MUL, moving[0], moving[1]));
    for (int i = 0; i < f.all.len; i++)
        if (is_fixed(at(m, f.all.data[i].value)))
            sum = times_factor(m, sum, f.all.data[i]);
    return f.negative ? node_map1(m, OP_NEG, sum) : sum;
}

/* Of an array, which may be a name of another one. */
static bool is_expression(const Node *body)
{
    return body->kind == N_MAP || body->kind == N_VIEW || body->kind == N_ARRAY;
}

/* Does the condition compare places of an index of the sum with those of another index? */
static bool pins(const Module *m, NodeId cond, const Node *sum)
{
    const Node *c = at(m, cond);
    if (c->kind != N_MAP || !is_fixed(c))
        return false;
    if (c->op == OP_AND)
        return pins(m, c->args[0], sum) || pins(m, c->args[1], sum);
    bool bound = false, other = false;
    for (int i = 0; c->op == OP_EQ && i < c->naxes; i++) {
        bool is_bound = false;
        for (int k = 0; k < sum->nbound; k++)
            is_bound |= c->axes[i] == sum->bound[k];
        *(is_bound ? &bound : &other) = true;
    }
    return bound && other && at(m, c->args[0])->kind == N_INDEX && at(m, c->args[1])->kind == N_INDEX;
}

/* A sum over places of one sequence and step. */
static bool is_own_sum(const Node *n)
{
    bool own = n->kind == N_REDUCE && n->reduce == R_SUM && n->nbound > 0;
    for (int i = 0; own && i < n->nbound; i++)
        own = n->bound[i] >= IX_FIRST;
    return own;
}

/* A sum over places of what is read across a matrix of each step, along other lines than its rows and
 * columns, as the gradient of a circulant matrix's params has it, or at the one place that a condition
 * leaves, as that of a param read in strides: the matrix is made of two step vectors, and summed over the
 * steps first, as a product, it is read once. */
static bool has_terms_across(const Module *m, const Node *sum)
{
    const Node *v = at(m, sum->args[0]);
    bool across = v->kind == N_MAP && v->op == OP_SELECT && pins(m, v->args[0], sum);
    while (v->kind == N_MAP && v->op == OP_SELECT && is_fixed(at(m, v->args[0]))) /* the guard of a read */
        v = at(m, v->args[1]);
    for (int i = 0; v->kind == N_VIEW && !v->step && i < v->nmap; i++)
        across |= v->map[i]->nterms > 0 && !ix_is_index(v->map[i], &(IndexId){ 0 });
    return across;
}

static bool reads_across(const Module *m, NodeId id)
{
    const Node *sum = at(m, id);
    return is_own_sum(sum) && has_terms_across(m, sum);
}

/* Does the comparison leave one place of the index, `c*j + o == e`? Then this place, (e - o) / c, and the
 * condition that it is one. */
static bool solves(Module *m, NodeId cond, IndexId j, const IxExpr **place, NodeId *is_place)
{
    const Node *c = at(m, cond);
    if (c->kind != N_MAP || c->op != OP_EQ || at(m, c->args[0])->kind != N_INDEX ||
        at(m, c->args[1])->kind != N_INDEX)
        return false;
    for (int k = 0; k < 2; k++) {
        const IxExpr *own = at(m, at(m, cond)->args[k])->ix, *other = at(m, at(m, cond)->args[1 - k])->ix;
        const IxTerm *t = own->terms;
        if (own->nterms != 1 || t->kind != IA_INDEX || t->index != j || ix_uses(other, j) ||
            !t->coef->is_const || t->coef->value < 1)
            continue;
        const IxExpr *rest = ix_sub(m, other, ix_const(m, own->offset));
        const IxExpr *none = ix_const(m, poly_const(m, 0));
        *place = ix_div(m, rest, t->coef);
        NodeId whole = node_map2(m, OP_EQ, node_index(m, ix_mod(m, rest, t->coef)), node_index(m, none));
        NodeId from = node_map2(m, OP_LE, node_index(m, none), node_index(m, *place));
        NodeId to = node_map2(m, OP_LT, node_index(m, *place), node_size(m, m->indices.data[j].extent));
        *is_place = node_map2(m, OP_AND, whole, node_map2(m, OP_AND, from, to));
        return true;
    }
    return false;
}

/* A condition with the comparison that leaves one place of the index in another form; -1: it has none. */
static NodeId solved(Module *m, NodeId cond, IndexId j, const IxExpr **place)
{
    NodeId is_place;
    const Node c = *at(m, cond);
    if (solves(m, cond, j, place, &is_place))
        return is_place;
    for (int k = 0; k < 2 && c.kind == N_MAP && c.op == OP_AND; k++) {
        NodeId part = solved(m, c.args[k], j, place);
        if (part >= 0)
            return node_map2(m, OP_AND, part, c.args[1 - k]);
    }
    return -1;
}

/* The sum over places; what a condition leaves at one place of the index is read there. */
static NodeId sum_over_places(Module *m, NodeId terms, const Node *sum)
{
    const Node n = *at(m, terms);
    const IxExpr *place;
    bool zero = n.kind == N_MAP && n.op == OP_SELECT && at(m, n.args[2])->kind == N_CONST &&
                at(m, n.args[2])->value == 0;
    NodeId cond = zero && sum->nbound == 1 ? solved(m, n.args[0], sum->bound[0], &place) : -1;
    if (cond < 0)
        return node_reduce(m, R_SUM, terms, sum->bound, sum->nbound);
    NodeId value = node_select(m, cond, n.args[1], n.args[2]);
    return branch_taken(m, node_subst(m, value, sum->bound, &place, 1));
}

/* Of `d == 0 ? 0 : x`, where x is d times factors that are the same in every step: d. So the adjoint of a
 * quotient is written, and of a function whose slope may be infinite. -1: it is something else. */
static NodeId guarded_adjoint(const Module *m, NodeId id)
{
    const Node *n = at(m, id);
    if (n->kind != N_MAP || n->op != OP_SELECT)
        return -1;
    const Node *cond = at(m, n->args[0]), *none = at(m, n->args[1]);
    if (cond->kind != N_MAP || cond->op != OP_EQ || is_fixed(cond) || none->kind != N_CONST ||
        none->value != 0)
        return -1;
    const Node *zero = at(m, cond->args[1]);
    const Factors f = factors_of(m, n->args[2], false);
    int moving = 0;
    for (int i = 0; i < f.all.len; i++) {
        const Factor x = f.all.data[i];
        if (is_fixed(at(m, x.value)))
            continue;
        if (x.value != cond->args[0] || x.divides)
            return -1;
        moving++;
    }
    return zero->kind == N_CONST && zero->value == 0 && moving == 1 ? cond->args[0] : -1;
}

/* The array's expression, where the node is one or reads one at the same step; else -1. */
static NodeId expression_read(const Module *m, const Node *n)
{
    if ((n->kind != N_VIEW && n->kind != N_ARRAY) || n->step)
        return -1;
    return n->kind == N_VIEW ? at(m, n->args[0])->args[0] : n->args[0];
}

/* What stands in a matrix of each step: products of two step vectors, and how long the axes are that both
 * vectors of one have, which are those of heads. */
typedef struct Terms {
    int left;                     /* nodes that may still be looked at */
    int products;
    const Poly *heads[MOST_AXES];
    int nheads;
} Terms;

static void add_head(Terms *t, const Poly *extent)
{
    for (int i = 0; i < t->nheads; i++)
        if (t->heads[i] == extent)
            return;
    if (t->nheads < MOST_AXES)
        t->heads[t->nheads++] = extent;
    else
        t->left = 0;
}

/* Does the sum, perhaps one over steps too, go over an axis as long as heads are? Then it may be theirs:
 * behind the sum over the steps there would be a matrix for each. */
static bool sums_heads(const Module *m, const Node *sum, const Terms *t)
{
    for (int i = 0; i < sum->nbound; i++)
        for (int k = 0; sum->bound[i] >= IX_FIRST && k < t->nheads; k++)
            if (m->indices.data[sum->bound[i]].extent == t->heads[k])
                return true;
    return false;
}

static bool is_product(const Module *m, const Factors *f, Terms *t)
{
    const Node *moving[2];
    int n = 0;
    for (int i = 0; i < f->all.len; i++) {
        const Factor x = f->all.data[i];
        if (is_fixed(at(m, x.value)))
            continue;
        if (n == 2 || x.divides || !is_read(at(m, x.value)))
            return false;
        moving[n++] = at(m, x.value);
    }
    if (n != 2 || !span_matrix(moving[0], moving[1]))
        return false;
    t->products++;
    for (int i = 0; i < moving[0]->naxes; i++)
        if (moving[0]->axes[i] >= IX_FIRST && has_axis(moving[1], moving[0]->axes[i]))
            add_head(t, m->indices.data[moving[0]->axes[i]].extent);
    return true;
}

/* The one factor that is not the same in every step; -1: there are others. */
static NodeId moving_factor(const Module *m, const Factors *f)
{
    NodeId moving = -1;
    for (int i = 0; i < f->all.len; i++) {
        if (is_fixed(at(m, f->all.data[i].value)))
            continue;
        if (moving >= 0 || f->all.data[i].divides)
            return -1;
        moving = f->all.data[i].value;
    }
    return moving;
}

/* Is a matrix of each step made of products of two step vectors and of vectors alone? Then summed over the
 * steps first, as products, it is read once. Makes no nodes. */
static bool of_products(const Module *m, NodeId id, Terms *t)
{
    const Node *n = at(m, id);
    NodeId body = expression_read(m, n), adjoint = guarded_adjoint(m, id);
    if (--t->left < 0 || is_fixed(n))
        return n->kind == N_CONST && n->value == 0;
    if (body >= 0 && n->naxes > 1)
        return (is_expression(at(m, body)) || is_own_sum(at(m, body))) && of_products(m, body, t);
    if (body >= 0) { /* a vector: with products in it, or as it is */
        Terms inside = { .left = t->left };
        if ((is_expression(at(m, body)) || is_own_sum(at(m, body))) && of_products(m, body, &inside)) {
            t->products += inside.products;
            for (int i = 0; i < inside.nheads; i++)
                add_head(t, inside.heads[i]);
        }
        return true;
    }
    if (is_own_sum(n) && !reads_across(m, id))
        return of_products(m, n->args[0], t) && t->products > 0 && !sums_heads(m, n, t);
    if (n->kind != N_MAP)
        return false;
    if (n->op == OP_ADD || n->op == OP_SUB)
        return of_products(m, n->args[0], t) && of_products(m, n->args[1], t);
    if (adjoint >= 0)
        return of_products(m, adjoint, t);
    if (n->op == OP_SELECT && is_fixed(at(m, n->args[0])))
        return of_products(m, n->args[1], t) && of_products(m, n->args[2], t);
    const Factors f = factors_of(m, id, false);
    if (is_product(m, &f, t))
        return true;
    NodeId moving = moving_factor(m, &f);
    return moving >= 0 && moving != id && of_products(m, moving, t);
}

static bool has_products(const Module *m, NodeId id)
{
    Terms t = { .left = MOST_NODES };
    return of_products(m, id, &t) && t.products > 0 && t.left > 0;
}

/* Of a sum over steps and places: may it be summed over the places behind the steps? */
static bool has_own_products(const Module *m, const Node *sum)
{
    Terms t = { .left = MOST_NODES };
    return of_products(m, sum->args[0], &t) && t.products > 0 && t.left > 0 && !sums_heads(m, sum, &t);
}

/* A sum over places of such a matrix, or that matrix where an adjoint is not 0. */
static bool is_linear_in_products(const Module *m, NodeId id)
{
    bool sum = is_own_sum(at(m, id)) && !reads_across(m, id); /* of one place of each that is another thing */
    return (sum || guarded_adjoint(m, id) >= 0) && has_products(m, id);
}

/* Is there a product of two step vectors in the sum of a value, as total_of would take it apart? Makes no
 * nodes. */
static bool has_product(const Module *m, NodeId id, int *left)
{
    const Node *n = at(m, id);
    if (--*left < 0 || is_fixed(n))
        return false;
    if ((n->kind == N_VIEW || n->kind == N_ARRAY) && !n->step) {
        NodeId body = expression_read(m, n);
        return is_linear_in_products(m, body) ||
               ((is_expression(at(m, body)) || reads_across(m, body)) && has_product(m, body, left));
    }
    if (is_linear_in_products(m, id))
        return true;
    if (reads_across(m, id))
        return has_product(m, n->args[0], left);
    if (n->kind != N_MAP)
        return false;
    if (n->op == OP_ADD || n->op == OP_SUB)
        return has_product(m, n->args[0], left) || has_product(m, n->args[1], left);
    if (n->op == OP_SELECT && is_fixed(at(m, n->args[0])))
        return (n->naxes > 1 && at(m, n->args[1])->naxes < n->naxes) || has_product(m, n->args[1], left) ||
               has_product(m, n->args[2], left);
    const Factors f = factors_of(m, id, false);
    const Node *moving[2];
    int count = 0;
    for (int i = 0; i < f.all.len; i++) {
        const Node *v = at(m, f.all.data[i].value);
        if (is_fixed(v))
            continue;
        /* the guard of a read */
        while (v->kind == N_MAP && v->op == OP_SELECT && guarded_adjoint(m, node_of(m, v)) < 0)
            v = at(m, v->args[1]);
        if (count < 2)
            moving[count] = v;
        count++;
    }
    if (count == 1 && (f.all.len > 1 || f.negative))
        return moving[0]->naxes < n->naxes || has_product(m, node_of(m, moving[0]), left);
    return count == 2 && is_read(moving[0]) && is_read(moving[1]) && span_matrix(moving[0], moving[1]);
}

static NodeId total_of(Total *t, NodeId id);

/* The array where the condition holds, else 0. */
static NodeId range_of(const Total *t, NodeId cond, NodeId array, const IxExpr *const *map, int n)
{
    return branch_taken(t->m, node_select(t->m, cond, node_view(t->m, array, map, n), node_const(t->m, 0)));
}

/* What a condition leaves of an index is an index of its own, so that the sum is a matrix by itself, which
 * lies in its place of the gradient. -1: the condition is no range, or the sum no product. */
static NodeId total_of_range(Total *t, NodeId cond, NodeId value)
{
    Module *m = t->m;
    const Node v = *at(m, value);
    for (int i = 0; i < v.naxes && v.naxes <= MOST_AXES; i++) {
        IndexId along = v.axes[i], axes[MOST_AXES];
        const Poly *lo = poly_const(m, 0), *hi = m->indices.data[along].extent;
        const IxExpr *map[MOST_AXES];
        bool found = t->found;
        int n = 0;
        if (!narrow_range(m, cond, along, &lo, &hi) || !poly_nonneg(lo))
            continue;
        const Poly *count = poly_sub(m, hi, lo);
        bool one = count->is_const && count->value == 1;
        IndexId own = one ? -1 : module_index(m, m->indices.data[along].name, count);
        const IxExpr *to = one ? ix_const(m, lo) : ix_add(m, ix_index(m, own), ix_const(m, lo));
        for (int k = 0; k < v.naxes; k++)
            if (k != i || !one) {
                axes[n] = k == i ? own : v.axes[k];
                map[n++] = k == i ? ix_sub(m, ix_index(m, along), ix_const(m, lo)) : ix_index(m, v.axes[k]);
            }
        const Factors f = factors_of(m, node_subst(m, value, &along, &to, 1), false);
        NodeId part = -1;
        for (int k = 0; k < f.all.len; k++)
            part = times_factor(m, part,
                                (Factor){ branch_taken(m, f.all.data[k].value), f.all.data[k].divides });
        t->found = false;
        NodeId total = total_of(t, f.negative ? node_map1(m, OP_NEG, part) : part);
        bool product = t->found || one;
        t->found |= found;
        if (product)
            return range_of(t, cond, node_array(m, total, axes, n, NULL, t->sum->span), map, n);
    }
    return -1;
}

/* The sum of a value of which is_linear_in_products says so. */
static NodeId total_of_linear(Total *t, NodeId id)
{
    Module *m = t->m;
    const Node n = *at(m, id);
    NodeId adjoint = guarded_adjoint(m, id);
    t->found = true;
    if (adjoint < 0)
        return node_reduce(m, R_SUM, total_of(t, n.args[0]), n.bound, n.nbound);
    const Factors f = factors_of(m, n.args[2], false);
    NodeId all = total_of(t, adjoint), value = all, none = node_const(m, 0);
    for (int i = 0; i < f.all.len; i++)
        if (f.all.data[i].value != adjoint)
            value = times_factor(m, value, f.all.data[i]);
    value = f.negative ? node_map1(m, OP_NEG, value) : value;
    return node_select(m, node_map2(m, OP_EQ, all, none), none, value);
}

/* The sum of a value: of its terms, of what its fixed factors and conditions leave, of an array's
 * expression. */
static NodeId total_of(Total *t, NodeId id)
{
    Module *m = t->m;
    Node n = *at(m, id);
    NodeId product = --t->left < 0 || n.kind != N_MAP ? -1 : total_of_product(t, id);
    if (product >= 0)
        return product;
    if (t->left < 0 || (n.kind == N_CONST && n.value == 0))
        return n.kind == N_CONST ? id : sum_of(t, id);
    if (is_linear_in_products(m, id))
        return total_of_linear(t, id);
    if ((n.kind == N_VIEW || n.kind == N_ARRAY) && !n.step && !is_fixed(&n)) {
        NodeId array = n.kind == N_VIEW ? n.args[0] : id;
        Node a = *at(m, array);
        Total inside = { m, t->sum, false, t->left };
        bool inner = is_expression(at(m, a.args[0])) || reads_across(m, a.args[0]) ||
                     is_linear_in_products(m, a.args[0]);
        NodeId body = inner ? total_of(&inside, a.args[0]) : -1;
        t->left = inside.left;
        if (!inside.found)
            return sum_of(t, id);
        t->found = true;
        NodeId all = node_array(m, body, a.axes, a.naxes, NULL, a.span);
        return n.kind == N_VIEW ? node_view(m, all, n.map, n.nmap) : all;
    }
    if (reads_across(m, id)) {
        Total inside = { m, t->sum, false, t->left };
        NodeId terms = total_of(&inside, n.args[0]);
        t->left = inside.left;
        t->found |= inside.found;
        return inside.found ? sum_over_places(m, terms, &n) : sum_of(t, id);
    }
    if (n.kind != N_MAP)
        return sum_of(t, id);
    if (n.op == OP_NEG)
        return node_map1(m, OP_NEG, total_of(t, n.args[0]));
    if (n.op == OP_ADD || n.op == OP_SUB) {
        NodeId a = total_of(t, n.args[0]);
        return node_map2(m, n.op, a, total_of(t, n.args[1]));
    }
    for (int k = 0; k < 2 && (n.op == OP_MUL || n.op == OP_DIV); k++)
        if (is_fixed(at(m, n.args[1 - k])) && (n.op == OP_MUL || k == 0)) {
            NodeId rest = total_of(t, n.args[k]);
            t->found |= at(m, n.args[k])->naxes < n.naxes; /* of a row or column, a matrix */
            return node_map2(m, n.op, k ? n.args[0] : rest, k ? rest : n.args[1]);
        }
    if (n.op == OP_SELECT && is_fixed(at(m, n.args[0]))) {
        bool zero = at(m, n.args[2])->kind == N_CONST && at(m, n.args[2])->value == 0;
        NodeId part = zero ? total_of_range(t, n.args[0], n.args[1]) : -1;
        if (part >= 0)
            return part;
        NodeId a = total_of(t, n.args[1]);
        t->found |= zero && n.naxes > 1 && at(m, n.args[1])->naxes < n.naxes;     /* of a matrix, a row or column */
        return branch_taken(m, node_select(m, n.args[0], a, total_of(t, n.args[2])));
    }
    return sum_of(t, id);
}

/* Is it a sum over steps of more than one product as it is? */
static bool may_change(const Module *m, NodeId id)
{
    const Node *sum = at(m, id);
    int steps = 0;
    if (sum->kind != N_REDUCE || sum->reduce != R_SUM || sum->nbound > MOST_AXES)
        return false;
    for (int i = 0; i < sum->nbound; i++)
        steps += sum->bound[i] < IX_FIRST;
    if (steps == 0)
        return false;
    const Node *value = at(m, sum->args[0]);
    bool plain = value->kind == N_MAP && value->op == OP_MUL;
    for (int k = 0; k < 2 && plain; k++)
        plain = is_read(at(m, value->args[k])) && !is_fixed(at(m, value->args[k]));
    if (plain)
        return false;
    if (steps < sum->nbound)
        return !has_terms_across(m, sum) && has_own_products(m, sum);
    return has_product(m, sum->args[0], &(int){ MOST_NODES });
}

/* Of a sum over steps and places: that over these, behind the one over steps. */
static NodeId total_of_both(Module *m, const Node *sum)
{
    IndexId steps[MOST_AXES], places[MOST_AXES];
    Node over = *sum;
    int n = 0, own = 0;
    for (int i = 0; i < sum->nbound; i++)
        *(sum->bound[i] < IX_FIRST ? &steps[n++] : &places[own++]) = sum->bound[i];
    over.bound = steps;
    over.nbound = n;
    Total t = { m, &over, false, MOST_NODES };
    NodeId all = total_of(&t, sum->args[0]);
    return !t.found || t.left < 0 ? -1 : own ? node_reduce(m, R_SUM, all, places, own) : all;
}

/* A sum over axes of one element, as the axis of a gate's row in a stack is: the element. */
static bool is_of_one(const Module *m, NodeId id)
{
    const Node *sum = at(m, id);
    bool one = sum->kind == N_REDUCE && sum->reduce == R_SUM && sum->nbound <= MOST_AXES;
    for (int i = 0; one && i < sum->nbound; i++)
        one = sum->bound[i] >= IX_FIRST && poly_is_one(m->indices.data[sum->bound[i]].extent);
    return one;
}

/* Is it a sum over the steps of such a one? */
static bool is_sum_of_one(const Module *m, NodeId id)
{
    const Node *sum = at(m, id);
    bool steps = sum->kind == N_REDUCE && sum->reduce == R_SUM && is_of_one(m, sum->args[0]);
    for (int i = 0; steps && i < sum->nbound; i++)
        steps = sum->bound[i] < IX_FIRST;
    return steps;
}

static NodeId sum_of_elements(Module *m, NodeId id)
{
    const Node sum = *at(m, id), one = *at(m, sum.args[0]);
    const IxExpr *first[MOST_AXES];
    for (int i = 0; i < one.nbound; i++)
        first[i] = ix_const(m, poly_const(m, 0));
    module_at(m, sum.span, sum.chain);
    NodeId element = node_subst(m, one.args[0], one.bound, first, one.nbound);
    return node_reduce(m, R_SUM, element, sum.bound, sum.nbound);
}

static NodeId hook_gradient(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    Module *m = r->m;
    (void)old;
    (void)whole;
    if (is_sum_of_one(m, rebuilt))
        rebuilt = sum_of_elements(m, rebuilt);
    if (!may_change(m, rebuilt))
        return rebuilt;
    Node sum = *at(m, rebuilt);
    module_at(m, sum.span, sum.chain);
    NodeId parts = total_of_both(m, &sum);
    return parts >= 0 ? parts : rebuilt;
}

void form_gradients(Module *m)
{
    bool any = false;
    for (NodeId id = m->forward_nodes; id < m->nodes.len && !any; id++)
        any = may_change(m, id) || is_sum_of_one(m, id);
    if (!any)
        return;
    Rewrite r = { .m = m, .hook = hook_gradient };
    rewrite_roots(&r);
    module_at(m, m->span, NULL);
}
