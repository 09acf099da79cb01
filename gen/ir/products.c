/* products.c: sums that are products of a matrix which all sequences share and a vector of each, however they
 * are written. In comes a module without its adjoint. Out goes the same where such a sum is one product of
 * two reads, as a GEMM takes it:
 *   - What does not vary over its index stands in front of it (`sum[j] R[i,j] * h[j] * 0.5`), a condition too
 *     (`sum[j] (m[i] > 0 ? R[i,j] * h[j] : 0)`).
 *   - Its vector becomes a value with a name (`sum[j] R[i,j] * (r[j] * h[j])`), with the vector's conditions
 *     (`sum[j] R[i,j] * (h[j] > 0 ? h[j] : 0)`).
 *   - So is its matrix where that is made of params (`sum[j] (W[i,j] - W[j,i]) * h[j]`): once in a call.
 *   - A sum of several products is as many sums, and so is one of cases that are products
 *     (`sum[j] (z[j] > 0 ? R[i,j] : Q[i,j]) * h[j]`).
 *   - So is one of a factor that adds up matrices (`sum[j] (m * R[i,j] + (1 - m) * Q[i,j]) * h[j]`).
 *   - What is read backwards, around or in strides (`h[H-1-j]`, `R[(i+1) % H,j]`, `U[i,2*j]`) is copied in
 *     order first.
 *   - One over several indices is sums one inside another where that has fewer terms (`sum[j,k] A[i,j] *
 *     B[j,k] * h[k]`, as A times B h).
 *   - That over a concatenation of which a part depends on a state and another does not is a sum of both
 *     (`sum[k] W[i,k] * (k < D ? x[k] : h[k-D])`).
 * Guaranteed: values are the same but for the order of their roundings, where no factor is infinite; sums
 * over steps, and those whose product would be small, stay as they are. */
#include <string.h>

#include "conditions.h"
#include "factors.h"
#include "marks.h"
#include "products.h"
#include "rewrite.h"

static const Node *at(const Module *m, NodeId id)
{
    return &m->nodes.data[id];
}

/* ---- the pass ---- */

static bool reads_other_steps(const Module *m, NodeId id, Marks *seen)
{
    const Node *n = at(m, id);
    if (n->step || n->kind == N_ARRAY || !marks_first(seen, id))
        return n->step != NULL;
    for (int i = 0; n->kind == N_MAP && i < n->nargs; i++)
        if (reads_other_steps(m, n->args[i], seen))
            return true;
    return false;
}

static bool too_few(const Poly *p)
{
    return p->is_const && p->value < LEAST_PRODUCT;
}

/* Has the matrix rows of its own, enough of them, and the sum enough terms? */
static bool is_large(Module *m, const Factored *f, const Node *sum)
{
    const Node *shared = at(m, f->shared), *own = at(m, f->own);
    const Poly *rows = poly_const(m, 1), *terms = rows;
    for (int i = 0; i < shared->naxes; i++)
        if (!is_among(shared->axes[i], own->axes, own->naxes))
            rows = poly_mul(m, rows, m->indices.data[shared->axes[i]].extent);
    for (int i = 0; i < sum->nbound; i++)
        terms = poly_mul(m, terms, m->indices.data[sum->bound[i]].extent);
    return !too_few(rows) && !too_few(terms);
}

/* What is made of params on one side, and on the other what one array of each sequence can have. */
static bool takes(Module *m, const Factored *f, const Node *sum)
{
    const Node *shared = at(m, f->shared);
    if (f->guarded || shared->type != TY_REAL || !is_large(m, f, sum))
        return false;
    for (int i = 0; i < sum->nbound; i++)
        if (!is_among(sum->bound[i], shared->axes, shared->naxes) ||
            !is_among(sum->bound[i], at(m, f->own)->axes, at(m, f->own)->naxes))
            return false;
    Marks *seen = marks_begin(m);
    bool steps = reads_other_steps(m, f->own, seen);
    marks_end(seen);
    return !steps && at(m, f->own)->type == TY_REAL;
}

/* As an array: first the axes that it has in common with the other side, as heads are, then its own, and
 * last those of the sum, so that a head's matrix lies in one piece and its rows one behind another. What is
 * read in another order is held, as an array that is a read and nothing else is one more name of what is
 * read. */
static NodeId as_array(Module *m, NodeId value, NodeId other, const Node *sum)
{
    const Node n = *at(m, value), o = *at(m, other);
    IndexId *axes = arena_alloc(m->arena, sizeof *axes * (size_t)(n.naxes + 1));
    int count = 0;
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < n.naxes; i++) {
            bool summed = is_among(n.axes[i], sum->bound, sum->nbound);
            bool common = is_among(n.axes[i], o.axes, o.naxes);
            if ((summed ? 2 : common ? 0 : 1) == turn)
                axes[count++] = n.axes[i];
        }
    if (is_operand(m, value))
        return value;
    return node_array(m, is_read(&n) ? node_map1(m, OP_HELD, value) : value, axes, count, NULL, sum->span);
}

/* The value where it is read: of an array's elements their expression. */
static NodeId written_out(Module *m, NodeId id)
{
    Node n = *at(m, id);
    if ((n.kind != N_VIEW && n.kind != N_ARRAY) || n.step)
        return id;
    if (n.kind == N_ARRAY)
        return n.args[0];
    Node a = *at(m, n.args[0]);
    return node_subst(m, a.args[0], a.axes, n.map, a.naxes);
}

static NodeId in_form(Module *m, NodeId id);

/* The sum over places of an index from `first` on, `count` of them. */
static NodeId part_of_sum(Module *m, const Node *sum, NodeId shared, NodeId own, IndexId along, const Poly *first,
                          const Poly *count)
{
    bool one = count->is_const && count->value == 1;
    IndexId part = one ? -1 : module_index(m, m->indices.data[along].name, count);
    IndexId *bound = arena_alloc(m->arena, sizeof *bound * (size_t)sum->nbound);
    const IxExpr *to = one ? ix_const(m, first) : ix_add(m, ix_index(m, part), ix_const(m, first));
    int n = 0;
    for (int i = 0; i < sum->nbound; i++)
        if (sum->bound[i] != along || !one)
            bound[n++] = sum->bound[i] == along ? part : sum->bound[i];
    shared = branch_taken(m, node_subst(m, shared, &along, &to, 1));
    own = branch_taken(m, node_subst(m, own, &along, &to, 1));
    return in_form(m, node_reduce(m, R_SUM, node_map2(m, OP_MUL, shared, own), bound, n));
}

/* Where the vector is a concatenation along an index of the sum, of a part that depends on a state and another that
 * does not: the sums over both; else -1. */
static NodeId split(Module *m, const Node *sum, NodeId shared, NodeId own)
{
    NodeId whole = written_out(m, own);
    const Node v = *at(m, whole);
    if (v.kind != N_MAP || v.op != OP_SELECT ||
        (at(m, v.args[1])->dep & DEP_STATE) == (at(m, v.args[2])->dep & DEP_STATE))
        return -1;
    for (int i = 0; i < sum->nbound; i++) {
        const Poly *place, *extent = m->indices.data[sum->bound[i]].extent, *one = poly_const(m, 1);
        if (!turns_at(m, v.args[0], sum->bound[i], &place))
            continue;
        const Poly *rest = poly_sub(m, extent, place);
        if (!poly_nonneg(poly_sub(m, place, one)) || !poly_nonneg(poly_sub(m, rest, one)))
            return -1;
        NodeId low = part_of_sum(m, sum, shared, whole, sum->bound[i], poly_const(m, 0), place);
        return node_map2(m, OP_ADD, low, part_of_sum(m, sum, shared, whole, sum->bound[i], place, rest));
    }
    return -1;
}

/* ---- vectors that are read in another order ---- */

/* The read with index `along` at this component, and nothing else of it changed. */
static NodeId read_plainly(Module *m, const Node *read, int component, IndexId along)
{
    const IxExpr **map = arena_alloc(m->arena, sizeof *map * (size_t)read->nmap);
    memcpy(map, read->map, sizeof *map * (size_t)read->nmap);
    map[component] = ix_index(m, along);
    return read->kind == N_LOAD ? node_load(m, read->tensor, map, read->nmap)
                                : node_view(m, read->args[0], map, read->nmap);
}

static int times_used(const Node *read, IndexId i)
{
    int n = 0;
    for (int k = 0; k < read->nmap; k++)
        n += ix_uses(read->map[k], i);
    return n;
}

/* Where the vector is read backwards or around along an index of the sum, the sum goes over these places in
 * order, and the matrix, of which a copy serves the whole call, is read so in its place. False: it is not
 * such a read. */
static bool turn_component(Module *m, const Node *sum, NodeId *shared, NodeId *own, int component)
{
    const Node read = *at(m, *own);
    const IxTerm t = read.map[component]->terms[0];
    IndexId along = t.index;
    if (t.kind == IA_INDEX && is_among(along, sum->bound, sum->nbound)) { /* coef * (extent - 1 - j) + ... */
        const Poly *last = poly_sub(m, m->indices.data[along].extent, poly_const(m, 1));
        const IxExpr *to = ix_sub(m, ix_const(m, last), ix_index(m, along));
        *shared = node_subst(m, *shared, &along, &to, 1);
        *own = node_subst(m, *own, &along, &to, 1);
        return true;
    }
    const IxExpr *arg = t.arg;
    if (t.kind != IA_MOD || !poly_is_one(t.coef) || read.map[component]->offset != poly_const(m, 0) ||
        arg->nterms != 1 || arg->terms[0].kind != IA_INDEX || !poly_is_one(arg->terms[0].coef))
        return false;
    along = arg->terms[0].index;
    if (!is_among(along, sum->bound, sum->nbound) || t.by != m->indices.data[along].extent ||
        times_used(&read, along) != 1)
        return false;
    const IxExpr *to = ix_mod(m, ix_sub(m, ix_index(m, along), ix_const(m, arg->offset)), t.by);
    *shared = node_subst(m, *shared, &along, &to, 1);
    *own = read_plainly(m, &read, component, along);
    return true;
}

static void turn_vector(Module *m, const Node *sum, NodeId *shared, NodeId *own)
{
    NodeId matrix = *shared, vector = *own;
    while (at(m, vector)->kind != N_LOAD && !is_operand(m, vector) && written_out(m, vector) != vector &&
           is_read(at(m, written_out(m, vector))))
        vector = written_out(m, vector);
    const Node n = *at(m, vector);
    if (!is_read(&n) || is_operand(m, vector))
        return;
    for (int k = 0; k < n.nmap; k++) {
        const IxExpr *e = at(m, vector)->map[k];
        bool forwards = e->nterms == 0 || (e->terms[0].kind == IA_INDEX && poly_nonneg(e->terms[0].coef));
        if (e->nterms > 1 || (!forwards && !turn_component(m, sum, &matrix, &vector, k)))
            return;
    }
    if (!is_operand(m, vector))
        return;
    *shared = matrix;
    *own = vector;
}

/* The sum of the term as a product, without its sign. */
static NodeId product_of(Module *m, const Factored *f, const Node *sum)
{
    NodeId shared = f->shared, own = f->own;
    turn_vector(m, sum, &shared, &own);
    NodeId out = split(m, sum, shared, own);
    if (out < 0) {
        NodeId matrix = as_array(m, shared, own, sum);
        NodeId product = node_map2(m, OP_MUL, matrix, as_array(m, own, shared, sum));
        out = node_reduce(m, R_SUM, product, sum->bound, sum->nbound);
    }
    if (f->outside >= 0)
        out = node_map2(m, OP_MUL, f->outside, out);
    return f->when >= 0 ? node_select(m, f->when, out, node_const(m, 0)) : out;
}

/* ---- sums over several indices ---- */

static bool has_axis(const Node *n, IndexId i)
{
    return is_among(i, n->axes, n->naxes);
}

/* Do the factors that vary over `along` span all axes of the others, and are there others? Factors that vary
 * over no index of the sum do not count. */
static bool leaves_axes(const Module *m, const Factors *f, const Node *sum, IndexId along, bool *others)
{
    bool leaves = false;
    *others = false;
    for (int i = 0; i < f->all.len; i++) {
        const Node *n = at(m, f->all.data[i].value);
        if (has_axis(n, along) || !varies_in_sum(n, sum))
            continue;
        *others = true;
        for (int k = 0; k < n->naxes; k++) {
            bool spanned = false;
            for (int o = 0; o < f->all.len; o++) {
                const Node *inner = at(m, f->all.data[o].value);
                spanned |= has_axis(inner, along) && has_axis(inner, n->axes[k]);
            }
            leaves |= !spanned;
        }
    }
    return leaves;
}

/* Is the sum over `along` of the factors that vary over it a product of what is shared and a vector? */
static bool is_product_along(const Module *m, const Factors *f, IndexId along)
{
    bool shared = false, own = false;
    for (int i = 0; i < f->all.len; i++) {
        const Node *n = at(m, f->all.data[i].value);
        shared |= has_axis(n, along) && !is_per_row(n) && n->naxes > 1;
        own |= has_axis(n, along) && is_per_row(n);
    }
    return shared && own;
}

/* Are the terms along it equal? */
static bool is_constant_along(const Module *m, const Factors *f, IndexId along)
{
    for (int i = 0; i < f->all.len; i++)
        if (has_axis(at(m, f->all.data[i].value), along))
            return false;
    return true;
}

/* Over which of its indices the term is summed first, for the sum over the others of what that gives: its
 * factors do not have all axes that the term has, so that both sums together have fewer terms than the one;
 * or the sum is one number, and is a product with a matrix that all sequences share, which then is
 * read once for all of them. Of several indices the last one that makes such a product, else the last. -1:
 * there is none. */
static IndexId first_summed(const Module *m, const Factors *f, const Node *sum)
{
    IndexId found = -1;
    bool product = false;
    for (int i = 0; i < sum->nbound; i++) {
        bool others, fewer = leaves_axes(m, f, sum, sum->bound[i], &others);
        bool is_product = is_product_along(m, f, sum->bound[i]);
        if (is_constant_along(m, f, sum->bound[i]))
            return sum->bound[i];
        if (others && (fewer || (is_product && sum->naxes == 0)) && (is_product || !product)) {
            found = sum->bound[i];
            product = is_product;
        }
    }
    return found;
}

static bool factors_read_other_steps(const Module *m, const Factors *f)
{
    bool steps = false;
    Marks *seen = marks_begin(m);
    for (int i = 0; i < f->all.len; i++)
        steps |= reads_other_steps(m, f->all.data[i].value, seen);
    marks_end(seen);
    return steps;
}

/* Is the term summed by one index first, and then by the others? */
static bool is_nested(const Module *m, NodeId term, const Node *sum)
{
    if (sum->nbound < 2)
        return false;
    const Factors f = factors_of(m, term, false);
    return first_summed(m, &f, sum) >= 0 && !factors_read_other_steps(m, &f);
}

typedef enum { FIRST_SUM, SECOND_SUM, BEHIND_BOTH } Place;

static Place place_of(const Module *m, NodeId factor, const Node *sum, IndexId first)
{
    const Node *n = at(m, factor);
    return has_axis(n, first) ? FIRST_SUM : varies_in_sum(n, sum) ? SECOND_SUM : BEHIND_BOTH;
}

static NodeId product_at(Module *m, const Factors *f, const Node *sum, IndexId first, Place place)
{
    NodeId out = -1;
    for (int under = 0; under < 2; under++)
        for (int i = 0; i < f->all.len; i++)
            if (f->all.data[i].divides == (under == 1) &&
                place_of(m, f->all.data[i].value, sum, first) == place)
                out = times_factor(m, out, f->all.data[i]);
    return out;
}

/* The sum of such a term, without its sign. */
static NodeId nested(Module *m, const Factors *f, const Node *sum)
{
    IndexId first = first_summed(m, f, sum);
    IndexId *others = arena_alloc(m->arena, sizeof *others * (size_t)sum->nbound);
    int n = 0;
    for (int i = 0; i < sum->nbound; i++)
        if (sum->bound[i] != first)
            others[n++] = sum->bound[i];
    NodeId value = product_at(m, f, sum, first, SECOND_SUM);
    NodeId behind = product_at(m, f, sum, first, BEHIND_BOTH);
    NodeId terms = product_at(m, f, sum, first, FIRST_SUM);
    NodeId number = node_size(m, m->indices.data[first].extent);
    if (terms < 0) /* a number of equal ones */
        behind = behind >= 0 ? node_map2(m, OP_MUL, behind, number) : number;
    else
        value = node_map2(m, OP_MUL, value, in_form(m, node_reduce(m, R_SUM, terms, &first, 1)));
    NodeId out = in_form(m, node_reduce(m, R_SUM, value, others, n));
    return behind >= 0 ? node_map2(m, OP_MUL, behind, out) : out;
}

/* a: -1 for none. */
static NodeId plus(Module *m, NodeId a, NodeId b, bool negative)
{
    if (a < 0)
        return negative ? node_map1(m, OP_NEG, b) : b;
    return node_map2(m, negative ? OP_SUB : OP_ADD, a, b);
}

/* Is the sum over places, and not over steps, a gather or a sum of integers? */
static bool sums_places(const Module *m, NodeId id)
{
    const Node *r = at(m, id);
    if (r->kind != N_REDUCE || r->reduce != R_SUM || r->type != TY_REAL || ir_gathers(m, id))
        return false;
    for (int i = 0; i < r->nbound; i++)
        if (r->bound[i] < IX_FIRST)
            return false;
    return true;
}

bool is_plain_product(const Module *m, const Node *sum)
{
    const Node *n = at(m, sum->args[0]);
    return n->kind == N_MAP && n->op == OP_MUL && is_operand(m, n->args[0]) && is_operand(m, n->args[1]);
}

/* A value by cases, of which one depends on a state and the other does not? */
static bool is_mixed(const Module *m, NodeId read)
{
    const Node *n = at(m, read);
    if (n->kind == N_VIEW)
        n = at(m, n->args[0]);
    if (n->kind == N_ARRAY)
        n = at(m, n->args[0]);
    return n->kind == N_MAP && n->op == OP_SELECT &&
           (at(m, n->args[1])->dep & DEP_STATE) != (at(m, n->args[2])->dep & DEP_STATE);
}

static bool may_change(const Module *m, NodeId id)
{
    NodeId terms[MOST_TERMS];
    bool negative[MOST_TERMS];
    if (!sums_places(m, id))
        return false;
    const Node *term = at(m, at(m, id)->args[0]);
    if (is_plain_product(m, at(m, id)) && !is_mixed(m, term->args[0]) && !is_mixed(m, term->args[1]))
        return false;
    for (int i = added_terms(m, at(m, id)->args[0], terms, negative) - 1; i >= 0; i--)
        if (has_factors(m, terms[i], at(m, id)) || is_nested(m, terms[i], at(m, id)) ||
            has_cases(m, terms[i], at(m, id)) || has_mixed_sum(m, terms[i], at(m, id)))
            return true;
    return false;
}

static bool is_product_term(Module *m, NodeId term, const Node *sum, Factored *f)
{
    return factor_term(m, term, sum, f) && takes(m, f, sum);
}

/* The term itself; or, where each of its cases, or of what a factor adds up, gives a product or a number,
 * these. */
static int parts_of(Module *m, NodeId term, const Node *sum, NodeId part[MOST_TERMS])
{
    Factored f;
    const bool mixed = has_mixed_sum(m, term, sum);
    int n = mixed                     ? terms_of_mixed_sum(m, term, sum, part)
            : has_cases(m, term, sum) ? terms_of_cases(m, term, sum, part)
                                      : 0;
    for (int i = 0; i < n; i++)
        if (!is_product_term(m, part[i], sum, &f) && !(mixed && factor_dot(m, part[i], sum, &f)))
            n = 0;
    if (n == 0)
        part[n++] = term;
    return n;
}

/* The sum of a term, the whole one or a part, in its form; -1: it has none. *minus: is it subtracted? */
static NodeId sum_of_term(Module *m, NodeId term, const Node *sum, bool whole, bool *minus)
{
    Factored f;
    if (is_nested(m, term, sum)) {
        const Factors of = factors_of(m, term, false);
        *minus ^= of.negative;
        return nested(m, &of, sum);
    }
    if (is_product_term(m, term, sum, &f)) {
        *minus ^= f.negative;
        return product_of(m, &f, sum);
    }
    if (whole || !factor_dot(m, term, sum, &f))
        return -1;
    *minus ^= f.negative;
    NodeId dot = node_reduce(m, R_SUM, f.own, sum->bound, sum->nbound);
    return f.outside < 0 ? dot : node_map2(m, OP_MUL, f.outside, dot);
}

/* A sum in its form; anything else is itself. */
static NodeId in_form(Module *m, NodeId rebuilt)
{
    NodeId terms[MOST_TERMS], out = -1, rest = -1;
    bool negative[MOST_TERMS];
    if (!may_change(m, rebuilt))
        return rebuilt;
    const Node sum = *at(m, rebuilt);
    int n = added_terms(m, sum.args[0], terms, negative);
    module_at(m, sum.span, sum.chain);
    for (int i = 0; i < n; i++) {
        NodeId part[MOST_TERMS];
        int parts = parts_of(m, terms[i], &sum, part);
        for (int k = 0; k < parts; k++) {
            bool minus = negative[i];
            NodeId made = sum_of_term(m, part[k], &sum, parts == 1, &minus);
            if (made >= 0)
                out = plus(m, out, made, minus);
            else
                rest = plus(m, rest, part[k], minus);
        }
    }
    if (out < 0)
        return rebuilt;
    return rest < 0 ? out : plus(m, out, node_reduce(m, R_SUM, rest, sum.bound, sum.nbound), false);
}

static NodeId hook_products(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    (void)old;
    (void)whole;
    return in_form(r->m, rebuilt);
}

void make_products(Module *m)
{
    bool any = false;
    for (NodeId id = 0; id < m->nodes.len && !any; id++)
        any = may_change(m, id);
    if (!any)
        return;
    Rewrite r = { .m = m, .hook = hook_products };
    rewrite_roots(&r);
    module_at(m, m->span, NULL);
}
