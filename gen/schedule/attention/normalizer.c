/* normalizer.c: what else a step reads of a softmax's maximum M and total Z. Weights of places that are no
 * pairs do, exp(b - M) / Z, and so does log(Z) + M. The kernels have neither number, but L = M + log Z. In
 * come a module and a sum that is attention; out go the nodes that are M and Z, if all that is read of them
 * is the same whatever number M is: then M may be L, which is a constant for the gradient, and Z be
 * exp(L - M), which is 1. That is proved by degrees: a value has degree n where it is a number times
 * exp(n M), or, in exponents, a number and n M more. What leaves the step must have degree 0. */
#include "ir/marks.h"
#include "normalizer.h"
#include "score.h"

/* UNKNOWN is what a mark is that was not set; else SCALES + n or SHIFTS + n, of which SCALES + 0 is any value
 * that M has no part in. */
enum { UNKNOWN, OTHER, SCALES = 100, SHIFTS = 200, MOST_DEGREE = 8 };

typedef struct Degrees {
    Proof p;
    const Attentions *all;
    Marks *degree;
    Normalizer *to;
} Degrees;

static Node at(const Degrees *d, NodeId id)
{
    return d->p.m->nodes.data[id];
}

static int degree_of(Degrees *d, NodeId id);

static bool is_scale(int degree)
{
    return degree > SCALES - MOST_DEGREE && degree < SCALES + MOST_DEGREE;
}

static bool is_shift(int degree)
{
    return degree > SHIFTS - MOST_DEGREE && degree < SHIFTS + MOST_DEGREE;
}

static int scaled(int n)
{
    return is_scale(SCALES + n) ? SCALES + n : OTHER;
}

/* A shift of degree 0 is a value like others. */
static int shifted(int n)
{
    return n == 0 ? SCALES : is_shift(SHIFTS + n) ? SHIFTS + n : OTHER;
}

/* How much of M is added in a value, as far as it is no factor. */
static bool shift_in(int degree, int *n)
{
    *n = is_shift(degree) ? degree - SHIFTS : 0;
    return is_shift(degree) || degree == SCALES;
}

/* Of a + b, or a - b. */
static int of_sum(int a, int b, int sign)
{
    int x, y;
    if (is_scale(a) && a == b)
        return a;
    return shift_in(a, &x) && shift_in(b, &y) ? shifted(x + sign * y) : OTHER;
}

static bool is_zero(const Degrees *d, NodeId id)
{
    return at(d, id).kind == N_CONST && at(d, id).value == 0;
}

static int of_select(Degrees *d, NodeId id)
{
    Node n = at(d, id);
    d->p.left = 1 << 12;
    if (pair_is_guard(&d->p, id)) {
        int then = degree_of(d, n.args[1]), other = degree_of(d, n.args[2]);
        Node x = at(d, n.args[2]);
        return x.kind == N_CONST || other == then || is_shift(other) ? then : OTHER;
    }
    if (degree_of(d, n.args[0]) != SCALES)
        return OTHER;
    int then = degree_of(d, n.args[1]), other = degree_of(d, n.args[2]);
    if (is_scale(then) && is_zero(d, n.args[2]))
        return then;
    if (is_scale(other) && is_zero(d, n.args[1]))
        return other;
    return then == other ? then : OTHER;
}

static int of_map(Degrees *d, NodeId id)
{
    Node n = at(d, id);
    int of[2] = { SCALES, SCALES }, x;
    if (n.op == OP_SELECT)
        return of_select(d, id);
    for (int i = 0; i < n.nargs; i++) {
        int a = degree_of(d, at(d, id).args[i]);
        if (i < 2)
            of[i] = a;
        else if (a != SCALES)
            return OTHER;
    }
    if (of[0] == SCALES && of[1] == SCALES)
        return SCALES;
    if (of[0] == OTHER || of[1] == OTHER)
        return OTHER;
    switch (n.op) {
    case OP_NEG: return is_scale(of[0]) ? of[0] : shifted(SHIFTS - of[0]);
    case OP_ADD: return of_sum(of[0], of[1], 1);
    case OP_SUB: return of_sum(of[0], of[1], -1);
    case OP_MUL: return is_scale(of[0]) && is_scale(of[1]) ? scaled(of[0] + of[1] - 2 * SCALES) : OTHER;
    case OP_DIV: return is_scale(of[0]) && is_scale(of[1]) ? scaled(of[0] - of[1]) : OTHER;
    case OP_EXP: return shift_in(of[0], &x) ? scaled(x) : OTHER;
    case OP_LOG: return is_scale(of[0]) ? shifted(of[0] - SCALES) : OTHER;
    default: return OTHER;
    }
}

static bool is_cut(const Degrees *d, NodeId id)
{
    for (int i = 0; i < d->all->len; i++)
        if (d->all->data[i].sum == id)
            return true;
    return false;
}

/* Is it M or Z, over exactly the heads? */
static int own_degree(Degrees *d, NodeId id)
{
    const Attention *a = d->p.to;
    Node n = at(d, id);
    if (n.type != TY_REAL || n.naxes != a->nheads || n.kind == N_VIEW)
        return UNKNOWN;
    for (int i = 0; i < a->nheads; i++)
        if (!varies_with(d->p.m, id, a->heads[i].axis))
            return UNKNOWN;
    d->p.left = 1 << 12;
    NodeId value = pair_open(&d->p, id);
    NormalizerRead r = { id, value == a->total };
    if (value != a->shift && value != a->total)
        return UNKNOWN;
    vec_push(d->p.m->arena, &d->to->reads, r);
    return r.total ? scaled(-1) : shifted(1);
}

static int find_degree(Degrees *d, NodeId id)
{
    Node n = at(d, id);
    int own = pair_needs_sum(&d->p, id) && !is_cut(d, id) ? own_degree(d, id) : UNKNOWN;
    if (own != UNKNOWN)
        return own;
    if (is_cut(d, id) || !n.nargs)
        return SCALES;
    if (n.kind == N_MAP)
        return of_map(d, id);
    int degree = degree_of(d, n.args[0]);
    if (n.kind == N_ARRAY || (n.kind == N_VIEW && !n.step) || degree == SCALES)
        return degree;
    return n.kind == N_REDUCE && n.reduce == R_SUM && is_scale(degree) ? degree : OTHER;
}

static int degree_of(Degrees *d, NodeId id)
{
    int degree = marks_get(d->degree, id);
    if (degree == UNKNOWN) {
        degree = find_degree(d, id);
        marks_set(d->degree, id, degree);
    }
    return degree;
}

static bool is_free(Degrees *d, NodeId id)
{
    return id < 0 || degree_of(d, id) == SCALES;
}

/* What kernels read of a sum is read as well. */
static bool operands_are_free(Degrees *d, const Attention *a)
{
    bool is = is_free(d, a->q) && is_free(d, a->k_pair) && is_free(d, a->v_pair) && is_free(d, a->factor) &&
              is_free(d, a->rest) && is_free(d, a->score);
    for (int i = 0; i < a->leaves.len; i++)
        is = is_free(d, a->leaves.data[i].node) && is;
    for (int i = 0; i < a->conditions.len; i++)
        is = is_free(d, a->conditions.data[i].node) && is;
    return is;
}

bool attention_normalizer(Module *m, const Attentions *all, Attention *a, Normalizer *out)
{
    Degrees d = { .p = { .m = m, .to = a }, .all = all, .degree = marks_begin(m), .to = out };
    bool is = true;
    *out = (Normalizer){ 0 };
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int k = 0; k < ROOT_COUNT; k++)
            is = is_free(&d, m->roots.data[t].of[k]) && is;
    for (int i = 0; i < all->len; i++)
        is = operands_are_free(&d, &all->data[i]) && is;
    marks_end(d.degree);
    return is;
}
