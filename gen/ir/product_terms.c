/* product_terms.c: a term of a sum as the product of what all sequences share and what each has its own of,
 * with what stands in front of the sum. In comes a sum and a term of it; out go its parts. Guaranteed:
 * their product is the term, but for the order of roundings, where no factor is infinite. */
#include "factors.h"
#include "products.h"

static const Node *at(const Module *m, NodeId id)
{
    return &m->nodes.data[id];
}

bool is_among(IndexId i, const IndexId *of, int n)
{
    for (int k = 0; k < n; k++)
        if (of[k] == i)
            return true;
    return false;
}

bool varies_in_sum(const Node *n, const Node *sum)
{
    for (int i = 0; i < n->naxes; i++)
        if (is_among(n->axes[i], sum->bound, sum->nbound))
            return true;
    return false;
}

/* SHARED: the same for all sequences and steps. A factor of the sum's indices alone goes with OWN, so that a
 * param stays what the product reads. */
typedef enum { SHARED, OWN, OUTSIDE } Side;

bool is_per_row(const Node *n)
{
    return (n->dep & (DEP_BATCH | DEP_TIME)) != 0;
}

/* Over the sum's indices, and no others? */
static bool is_vector(const Node *n, const Node *sum)
{
    for (int i = 0; i < n->naxes; i++)
        if (!is_among(n->axes[i], sum->bound, sum->nbound))
            return false;
    return true;
}

static Side side_of(const Module *m, NodeId id, const Node *sum)
{
    const Node *n = at(m, id);
    return !varies_in_sum(n, sum) ? OUTSIDE : is_per_row(n) || is_vector(n, sum) ? OWN : SHARED;
}

/* The product of the factors on a side; it is divided by what divides last. */
static NodeId multiplied(Module *m, const Factors *f, const Node *sum, Side side)
{
    NodeId out = -1;
    for (int under = 0; under < 2; under++)
        for (int i = 0; i < f->all.len; i++) {
            Factor x = f->all.data[i];
            if (x.divides == (under == 1) && side_of(m, x.value, sum) == side)
                out = times_factor(m, out, x);
        }
    for (int i = 0; side != OUTSIDE && out >= 0 && i < f->guards.len; i++)
        if (side_of(m, f->guards.data[i].condition, sum) == side)
            out = node_select(m, f->guards.data[i].condition, out, node_const(m, 0));
    return out;
}

/* All conditions that do not vary over the sum's indices; -1: there is none. */
static NodeId condition_outside(Module *m, const Factors *f, const Node *sum)
{
    NodeId out = -1;
    for (int i = 0; i < f->guards.len; i++) {
        NodeId c = f->guards.data[i].condition;
        if (side_of(m, c, sum) == OUTSIDE)
            out = out < 0 ? c : node_map2(m, OP_AND, out, c);
    }
    return out;
}

/* Of `c ? x : 0`, is the condition taken apart from the factors of x? Not where the whole is one of what the
 * sum leaves, of the vector, or of what all sequences share. */
static bool is_guarded_product(const Module *m, NodeId id, const Node *sum)
{
    const Node *n = at(m, id);
    return n->kind == N_MAP && n->op == OP_SELECT && n->type == TY_REAL && is_per_row(n) &&
           !is_vector(n, sum) && varies_in_sum(n, sum) && at(m, n->args[2])->kind == N_CONST &&
           at(m, n->args[2])->value == 0;
}

static void add_factors(const Module *m, NodeId term, const Node *sum, Factors *out)
{
    const Factors f = factors_of(m, term, false);
    out->negative ^= f.negative;
    for (int i = 0; i < f.all.len; i++) {
        const Factor x = f.all.data[i];
        if (x.divides || !is_guarded_product(m, x.value, sum)) {
            vec_push(m->arena, &out->all, x);
            continue;
        }
        const Node *n = at(m, x.value);
        vec_push(m->arena, &out->guards, ((Guard){ n->args[0], n->args[1] }));
        add_factors(m, n->args[1], sum, out);
    }
}

static Factors term_factors(const Module *m, NodeId term, const Node *sum)
{
    Factors f = { .negative = false };
    add_factors(m, term, sum, &f);
    return f;
}

/* Are there a shared factor and one that each sequence has? */
static bool has_both(const Module *m, const Factors *f, const Node *sum)
{
    bool shared = false, own = false;
    for (int i = 0; i < f->all.len; i++) {
        NodeId id = f->all.data[i].value;
        shared |= side_of(m, id, sum) == SHARED;
        own |= side_of(m, id, sum) == OWN && is_per_row(at(m, id));
    }
    return shared && own;
}

/* The condition that is another one for each sequence and row; -1: there is none. */
static NodeId condition_apart(const Module *m, const Factors *f, const Node *sum)
{
    for (int i = 0; i < f->guards.len; i++) {
        NodeId c = f->guards.data[i].condition;
        if (side_of(m, c, sum) == OWN && !is_vector(at(m, c), sum))
            return c;
    }
    return -1;
}

NodeId condition_of_rows(const Module *m, NodeId term, const Node *sum)
{
    const Factors f = term_factors(m, term, sum);
    return has_both(m, &f, sum) ? condition_apart(m, &f, sum) : -1;
}

bool has_factors(const Module *m, NodeId term, const Node *sum)
{
    const Factors f = term_factors(m, term, sum);
    return has_both(m, &f, sum) && condition_apart(m, &f, sum) < 0;
}

/* May it, of a sequence, be infinite or no number? */
static bool has_own_pole(const Module *m, NodeId id)
{
    return is_per_row(at(m, id)) && at(m, id)->has_pole;
}

bool factor_term(Module *m, NodeId term, const Node *sum, Factored *out)
{
    bool guarded = false;
    if (!has_factors(m, term, sum))
        return false;
    const Factors f = term_factors(m, term, sum);
    for (int i = 0; i < f.guards.len; i++)
        guarded |=
            side_of(m, f.guards.data[i].condition, sum) == SHARED && has_own_pole(m, f.guards.data[i].value);
    *out = (Factored){ .shared = multiplied(m, &f, sum, SHARED),
                       .own = multiplied(m, &f, sum, OWN),
                       .outside = multiplied(m, &f, sum, OUTSIDE),
                       .when = condition_outside(m, &f, sum),
                       .negative = f.negative,
                       .guarded = guarded };
    return true;
}

/* ---- reads ---- */

bool is_read(const Node *n)
{
    return (n->kind == N_LOAD || n->kind == N_VIEW || n->kind == N_ARRAY) && !n->step;
}

/* Are places along each axis counted forwards, by indices alone, and along the last one by one, as a GEMM
 * walks a matrix? */
static bool counts_forwards(const Node *read)
{
    bool by_one = read->nmap == 0;
    for (int k = 0; !by_one && k < read->map[read->nmap - 1]->nterms; k++)
        by_one = poly_is_one(read->map[read->nmap - 1]->terms[k].coef);
    if (!by_one)
        return false;
    for (int i = 0; i < read->nmap; i++)
        for (int k = 0; k < read->map[i]->nterms; k++)
            if (read->map[i]->terms[k].kind != IA_INDEX || !poly_nonneg(read->map[i]->terms[k].coef))
                return false;
    return true;
}

/* Has each of its axes one index at most, which stands nowhere else, so that a copy in the order in which
 * it is read is no larger than what is read? */
static bool is_permuted(const Node *read)
{
    int varying = 0;
    for (int i = 0; i < read->nmap; i++) {
        if (read->map[i]->nterms > 1)
            return false;
        varying += read->map[i]->nterms;
    }
    return read->naxes <= varying;
}

bool is_operand(const Module *m, NodeId id)
{
    const Node *n = at(m, id);
    if (!is_read(n))
        return false;
    for (; is_read(n); n = at(m, n->args[0])) { /* an array of a read is one more name of what is read */
        if (n->kind != N_ARRAY && !counts_forwards(n) && (!is_per_row(n) || is_permuted(n)))
            return false;
        if (n->kind == N_LOAD)
            break;
        if (n->kind == N_VIEW)
            n = at(m, n->args[0]);
    }
    return true;
}

bool is_shared_matrix(const Module *m, NodeId id)
{
    const Node *n = at(m, id);
    bool shared = !(n->dep & (DEP_BATCH | DEP_TIME | DEP_INPUT | DEP_STATE)) && (n->dep & DEP_PARAM);
    return shared && is_operand(m, id) && n->type == TY_REAL &&
           (n->kind != N_LOAD || m->tensors.data[n->tensor].dtype == m->c->dtype);
}

bool is_vector_of_rows(const Module *m, NodeId id)
{
    const Node *n = at(m, id);
    return is_operand(m, id) && n->type == TY_REAL && (n->dep & DEP_BATCH);
}

/* ---- cases ---- */

/* The factor of the term that is `c ? a : b` of each sequence, and neither a vector nor 0 in the second
 * case; -1: there is none. */
static int factor_in_cases(const Module *m, const Factors *f, const Node *sum)
{
    for (int i = 0; i < f->all.len; i++) {
        const Node *n = at(m, f->all.data[i].value);
        if (!f->all.data[i].divides && n->kind == N_MAP && n->op == OP_SELECT && n->type == TY_REAL &&
            is_per_row(n) && varies_in_sum(n, sum) && !is_vector(n, sum) &&
            !(at(m, n->args[2])->kind == N_CONST && at(m, n->args[2])->value == 0))
            return i;
    }
    return -1;
}

bool has_cases(const Module *m, NodeId term, const Node *sum)
{
    const Factors f = factors_of(m, term, false);
    return (at(m, term)->dep & DEP_PARAM) && factor_in_cases(m, &f, sum) >= 0;
}

/* product * all of the factors but those that are taken; 1: there are none. */
static NodeId times_others(Module *m, NodeId product, const Factors *f, const bool *taken)
{
    for (int under = 0; under < 2; under++)
        for (int i = 0; i < f->all.len; i++)
            if (!taken[i] && f->all.data[i].divides == (under == 1))
                product = times_factor(m, product, f->all.data[i]);
    if (product < 0)
        product = node_const(m, 1);
    return f->negative ? node_map1(m, OP_NEG, product) : product;
}

/* ---- sums as factors ---- */

/* Is a matrix that all sequences share among the factors of the value? */
static bool has_matrix(const Module *m, NodeId id, const Node *sum)
{
    const Factors f = factors_of(m, id, false);
    for (int i = 0; i < f.all.len; i++)
        if (!f.all.data[i].divides && side_of(m, f.all.data[i].value, sum) == SHARED)
            return true;
    return false;
}

/* The factor of the term that adds up what each sequence has and matrices that all share; -1: there is
 * none. */
static int mixed_factor(const Module *m, const Factors *f, const Node *sum)
{
    NodeId terms[MOST_TERMS];
    bool negative[MOST_TERMS];
    for (int i = 0; i < f->all.len; i++) {
        const Node *n = at(m, f->all.data[i].value);
        if (f->all.data[i].divides || n->kind != N_MAP || (n->op != OP_ADD && n->op != OP_SUB) ||
            !is_per_row(n) || is_vector(n, sum) || !varies_in_sum(n, sum))
            continue;
        for (int k = added_terms(m, f->all.data[i].value, terms, negative) - 1; k >= 0; k--)
            if (has_matrix(m, terms[k], sum))
                return i;
    }
    return -1;
}

bool has_mixed_sum(const Module *m, NodeId term, const Node *sum)
{
    const Factors f = factors_of(m, term, false);
    return mixed_factor(m, &f, sum) >= 0;
}

int terms_of_mixed_sum(Module *m, NodeId term, const Node *sum, NodeId out[MOST_TERMS])
{
    const Factors f = factors_of(m, term, false);
    int which = mixed_factor(m, &f, sum);
    bool negative[MOST_TERMS], *taken = arena_alloc(m->arena, (size_t)f.all.len + 1);
    NodeId terms[MOST_TERMS];
    int n = added_terms(m, f.all.data[which].value, terms, negative);
    taken[which] = true;
    NodeId others = times_others(m, -1, &f, taken);
    for (int i = 0; i < n; i++) {
        out[i] = node_map2(m, OP_MUL, terms[i], others);
        out[i] = negative[i] ? node_map1(m, OP_NEG, out[i]) : out[i];
    }
    return n;
}

bool factor_dot(Module *m, NodeId term, const Node *sum, Factored *out)
{
    const Factors f = factors_of(m, term, false);
    for (int i = 0; i < f.all.len; i++) {
        const Side side = side_of(m, f.all.data[i].value, sum);
        if (side == SHARED || (side == OWN && !is_vector(at(m, f.all.data[i].value), sum)))
            return false;
    }
    *out = (Factored){ .shared = -1,
                       .own = multiplied(m, &f, sum, OWN),
                       .outside = multiplied(m, &f, sum, OUTSIDE),
                       .when = -1,
                       .negative = f.negative };
    return out->own >= 0;
}

/* Marks factors that both have. */
static void mark_common(const Factors *a, const Factors *b, bool *of_a, bool *of_b)
{
    for (int i = 0; i < a->all.len; i++)
        for (int k = 0; k < b->all.len && !of_a[i]; k++) {
            bool same = a->all.data[i].value == b->all.data[k].value &&
                        a->all.data[i].divides == b->all.data[k].divides;
            of_a[i] = same && !of_b[k];
            of_b[k] |= of_a[i];
        }
}

static bool *none_of(Module *m, const Factors *f)
{
    return arena_alloc(m->arena, sizeof(bool) * (size_t)(f->all.len + 1));
}

int terms_of_cases(Module *m, NodeId term, const Node *sum, NodeId out[2])
{
    const Factors f = factors_of(m, term, false);
    int which = factor_in_cases(m, &f, sum);
    const Node cases = *at(m, f.all.data[which].value);
    const Factors a = factors_of(m, cases.args[1], false), b = factors_of(m, cases.args[2], false);
    bool *of_a = none_of(m, &a), *of_b = none_of(m, &b), *taken = none_of(m, &f);
    mark_common(&a, &b, of_a, of_b);
    NodeId value[2] = { times_others(m, -1, &a, of_a), times_others(m, -1, &b, of_b) };
    taken[which] = true;
    NodeId whole = times_others(m, -1, &f, taken);
    for (int i = 0; i < a.all.len; i++)
        if (of_a[i])
            whole = times_factor(m, whole, a.all.data[i]);
    NodeId selected = node_select(m, cases.args[0], value[0], value[1]), zero = node_const(m, 0);
    const Node *n = at(m, selected);
    if (!is_per_row(n) || is_vector(n, sum) || !varies_in_sum(n, sum)) {
        out[0] = node_map2(m, OP_MUL, whole, selected);
        return 1;
    }
    for (int i = 0; i < 2; i++) {
        NodeId when = i ? node_map1(m, OP_NOT, cases.args[0]) : cases.args[0];
        out[i] = node_map2(m, OP_MUL, whole, node_select(m, when, value[i], zero));
    }
    return 2;
}

/* ---- terms ---- */

static int add_terms(const Module *m, NodeId id, bool negative, NodeId *out, bool *negatives, int n)
{
    const Node *t = at(m, id);
    if (n < 0 || n == MOST_TERMS)
        return -1;
    if (t->kind == N_MAP && (t->op == OP_ADD || t->op == OP_SUB)) {
        n = add_terms(m, t->args[0], negative, out, negatives, n);
        return add_terms(m, t->args[1], negative != (t->op == OP_SUB), out, negatives, n);
    }
    negatives[n] = negative;
    out[n] = id;
    return n + 1;
}

int added_terms(const Module *m, NodeId id, NodeId out[MOST_TERMS], bool negative[MOST_TERMS])
{
    return add_terms(m, id, false, out, negative, 0);
}
