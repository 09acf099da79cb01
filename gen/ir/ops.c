/* ops.c: the operator table: one row per operator, and all that is known of it. In: nothing. Out: op_table,
 * op_find, the C helpers behind the spellings (ops_prelude), and the table as text (`cellc ops`). Guaranteed:
 * adjoints are built from the table's own operators, so they can be differentiated again; they are right at
 * the kinks that the doc line names; and a zero cotangent stays zero where a derivative is infinite. Adding
 * an operator is adding a row (and an Op). */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutate.h"
#include "ops.h"

/* ---- building blocks of adjoints */

static NodeId num(Module *m, double v) { return node_const(m, v); }
static NodeId neg(Module *m, NodeId a) { return node_map1(m, OP_NEG, a); }
static NodeId add(Module *m, NodeId a, NodeId b) { return node_map2(m, OP_ADD, a, b); }
static NodeId sub(Module *m, NodeId a, NodeId b) { return node_map2(m, OP_SUB, a, b); }
static bool is_one(const Module *m, NodeId a)
{
    return m->nodes.data[a].kind == N_CONST && m->nodes.data[a].value == 1;
}

/* An inner gradient starts from 1. */
static NodeId mul(Module *m, NodeId a, NodeId b) { return is_one(m, a) ? b : node_map2(m, OP_MUL, a, b); }
static NodeId quo(Module *m, NodeId a, NodeId b) { return node_map2(m, OP_DIV, a, b); }
static NodeId fun(Module *m, Op op, NodeId a) { return node_map1(m, op, a); }
static NodeId is_zero(Module *m, NodeId a) { return node_map2(m, OP_EQ, a, num(m, 0)); }
static NodeId positive(Module *m, NodeId a) { return node_map2(m, OP_LT, num(m, 0), a); }

/* Is the cotangent 0 where the slope is not finite? Where it is finite, a value that is differentiated again
 * must stay a product with the cotangent: its derivative is the slope at 0 as well. */
static NodeId is_void(Module *m, NodeId g, NodeId value)
{
    NodeId zero = is_zero(m, g);
    if (!m->inner || mutate("flat-at-zero"))
        return zero;
    return node_map2(m, OP_AND, zero, node_map2(m, OP_NE, value, value));
}

/* `value`, or 0 where the cotangent is 0: for derivatives that may be infinite. */
static NodeId unless_zero(Module *m, NodeId g, NodeId value)
{
    if (is_one(m, g)) return value;
    NodeId nothing = is_void(m, g, value), zero = num(m, 0);
    const Node *n = &m->nodes.data[value];
    bool guarded = n->kind == N_MAP && n->op == OP_SELECT && n->args[0] == nothing && n->args[1] == zero;
    return guarded ? value : node_select(m, nothing, zero, value);
}

static bool nonnegative(const Module *m, NodeId id, int depth);

static bool nonnegative_map(const Module *m, const Node *n, int depth)
{
    switch (n->op) {
    case OP_SQRT: case OP_HYPOT: case OP_ABS: case OP_EXP: case OP_COSH: case OP_SIGMOID: case OP_SOFTPLUS:
    case OP_RELU:
        return true;
    case OP_MUL:
        if (n->args[0] == n->args[1]) return true;
        /* fall through */
    case OP_ADD: case OP_DIV: case OP_MIN:
        return nonnegative(m, n->args[0], depth) && nonnegative(m, n->args[1], depth);
    case OP_MAX:
        return nonnegative(m, n->args[0], depth) || nonnegative(m, n->args[1], depth);
    case OP_STOP: case OP_STE: case OP_OVERRIDE: return nonnegative(m, n->args[0], depth);
    case OP_SELECT:
        return nonnegative(m, n->args[1], depth) && nonnegative(m, n->args[2], depth);
    case OP_POW: {
        const Node *p = &m->nodes.data[n->args[1]];
        return p->kind == N_CONST && fmod(p->value, 2) == 0;
    }
    default:
        return false;
    }
}

static bool nonnegative(const Module *m, NodeId id, int depth)
{
    const Node *n = &m->nodes.data[id];
    if (depth == 0) return false;
    switch (n->kind) {
    case N_CONST: return n->value >= 0;
    case N_SIZE: return true;
    case N_ARRAY: case N_VIEW: return nonnegative(m, n->args[0], depth - 1);
    case N_REDUCE: return nonnegative(m, n->args[0], depth - 1);
    case N_MAP: return nonnegative_map(m, n, depth - 1);
    default: return false;
    }
}

/* Proved to be no zero: spares the guard around a division. Extents are at least 1. */
static bool never_zero(const Module *m, NodeId id, int depth)
{
    const Node *n = &m->nodes.data[id];
    if (depth == 0) return false;
    switch (n->kind) {
    case N_CONST: return n->value != 0;
    case N_SIZE: return true;
    case N_ARRAY: case N_VIEW: return never_zero(m, n->args[0], depth - 1);
    case N_MAP:
        if (n->op == OP_ADD)
            for (int k = 0; k < 2; k++) {
                const Node *c = &m->nodes.data[n->args[k]];
                if (c->kind == N_CONST && c->value > 0 && nonnegative(m, n->args[1 - k], 8)) return true;
            }
        if (n->op == OP_COSH) return true;
        if (n->op == OP_SQRT || n->op == OP_STOP || n->op == OP_STE || n->op == OP_OVERRIDE)
            return never_zero(m, n->args[0], depth - 1);
        if (n->op == OP_MAX)
            for (int k = 0; k < 2; k++) {
                const Node *c = &m->nodes.data[n->args[k]];
                if (c->kind == N_CONST && c->value > 0) return true;
            }
        return false;
    default: return false;
    }
}

/* Proved to be above zero. */
static bool positive_number(const Module *m, NodeId id)
{
    return never_zero(m, id, 8) && nonnegative(m, id, 8);
}

static const Node *bare(const Module *m, NodeId id)
{
    const Node *n = &m->nodes.data[id];
    while (n->kind == N_ARRAY || n->kind == N_VIEW)
        n = &m->nodes.data[n->args[0]];
    return n;
}

/* Of `c ? x : constant`: x. */
static const Node *unguarded(const Module *m, const Node *n)
{
    bool guarded = n->kind == N_MAP && n->op == OP_SELECT && m->nodes.data[n->args[2]].kind == N_CONST;
    return guarded ? bare(m, n->args[1]) : n;
}

/* e / sum of e with e = exp(s - max s), of which one place is 1; or the sum is guarded where all s are
 * -inf. */
static bool is_softmax(const Module *m, const Node *n)
{
    const Node *e = bare(m, n->args[0]), *sum = unguarded(m, bare(m, n->args[1]));
    if (sum->kind != N_REDUCE || sum->reduce != R_SUM || bare(m, sum->args[0]) != e) return false;
    if (e->kind == N_MAP && e->op == OP_SELECT) e = bare(m, e->args[1]);
    const Node *from = e->kind == N_MAP && e->op == OP_EXP ? bare(m, e->args[0]) : e;
    const Node *top = from->kind == N_MAP && from->op == OP_SUB ? bare(m, from->args[1]) : from;
    top = top->kind == N_MAP && top->op == OP_STOP ? bare(m, top->args[0]) : top;
    top = unguarded(m, top);
    return top->kind == N_REDUCE && top->reduce == R_MAX;
}

/* A quotient of sizes is one too: (q - 2) / q. */
static bool is_known(const Module *m, NodeId id, double *v)
{
    const Node *n = &m->nodes.data[id];
    double a, b;
    if (n->kind == N_MAP && n->op == OP_DIV && is_known(m, n->args[0], &a) && is_known(m, n->args[1], &b)) {
        *v = a / b;
        return true;
    }
    bool size = n->kind == N_SIZE && n->size->is_const;
    *v = size ? (double)n->size->value : n->value;
    return size || n->kind == N_CONST;
}

/* Has the function itself a place where it is infinite, or no number, of such arguments as it may have here? */
static bool is_singular(const Module *m, const Node *n)
{
    double power;
    switch (n->op) {
    case OP_DIV: return !never_zero(m, n->args[1], 8) && !is_softmax(m, n);
    case OP_POW:
        if (!is_known(m, n->args[1], &power) || power < 0) return !positive_number(m, n->args[0]);
        return power != floor(power) && !nonnegative(m, n->args[0], 8);
    case OP_SQRT: case OP_LOG1P: return !nonnegative(m, n->args[0], 8);
    case OP_LOG_HYPOT: return true;
    case OP_RSQRT: case OP_LOG: return !positive_number(m, n->args[0]);
    default: return false;
    }
}

bool op_has_pole(const Module *m, const Node *n)
{
    if (n->kind == N_CONST) return !isfinite(n->value);
    if (n->type != TY_REAL || n->kind == N_LOAD) return false;
    if (n->kind == N_MAP && is_singular(m, n)) return true;
    int last = n->kind == N_MAP && n->op == OP_OVERRIDE ? 1 : n->nargs;
    for (int k = n->kind == N_MAP && n->op == OP_SELECT; k < last; k++)
        if (m->nodes.data[n->args[k]].has_pole) return true;
    return false;
}

/* The same of an expression alone: what has a name or is a sum is not looked into. */
static bool has_pole_here(const Module *m, NodeId id, int depth)
{
    const Node *n = &m->nodes.data[id];
    if (depth == 0 || n->kind != N_MAP || !n->has_pole) return false;
    if (is_singular(m, n)) return true;
    for (int k = n->op == OP_SELECT; k < n->nargs; k++)
        if (has_pole_here(m, n->args[k], depth - 1)) return true;
    return false;
}

/* ---- adjoints: argument k of y = op(x), cotangent g */

#define ADJOINT(name) static NodeId name(Module *m, int k, const NodeId *x, NodeId y, NodeId g)
#define UNUSED (void)m, (void)k, (void)x, (void)y, (void)g

ADJOINT(d_none) { UNUSED; return -1; }
ADJOINT(d_real) { UNUSED; return g; }
ADJOINT(d_neg) { UNUSED; return neg(m, g); }
ADJOINT(d_add) { UNUSED; return g; }
ADJOINT(d_sub) { UNUSED; return k == 0 || mutate("wrong-sign") ? g : neg(m, g); }
ADJOINT(d_mul) { UNUSED; return mul(m, g, x[1 - k]); }

ADJOINT(d_div)
{
    NodeId slope = quo(m, g, x[1]);
    if (k == 1) slope = neg(m, mul(m, slope, y));
    return never_zero(m, x[1], 8) ? slope : unless_zero(m, g, slope);
}

/* x^p for a constant p: no pow where a product does. */
static NodeId d_pow_const(Module *m, NodeId x, double p, NodeId g)
{
    if (p == 0) return -1;
    if (p == 1) return g;
    if (p == 2) return mul(m, g, mul(m, num(m, 2), x));
    if (p == 3) return mul(m, g, mul(m, num(m, 3), mul(m, x, x)));
    NodeId slope = mul(m, g, mul(m, num(m, p), node_map2(m, OP_POW, x, num(m, p - 1))));
    bool finite = p > 1 && (p == floor(p) || nonnegative(m, x, 8));
    return finite ? slope : unless_zero(m, g, slope);
}

ADJOINT(d_pow)
{
    const Node *exponent = &m->nodes.data[x[1]];
    if (k == 0 && exponent->kind == N_CONST) return d_pow_const(m, x[0], exponent->value, g);
    NodeId zero = num(m, 0), flat, slope;
    if (k == 0) {
        flat = is_zero(m, x[1]);
        slope = mul(m, g, mul(m, x[1], node_map2(m, OP_POW, x[0], sub(m, x[1], num(m, 1)))));
    } else {
        flat = node_map2(m, OP_AND, is_zero(m, x[0]), node_map2(m, OP_LE, zero, x[1]));
        slope = mul(m, g, mul(m, y, fun(m, OP_LOG, x[0])));
    }
    return node_select(m, node_map2(m, OP_OR, is_void(m, g, slope), flat), zero, slope);
}

/* g for the larger (smaller) one, half each where they are equal. */
static NodeId d_extremum(Module *m, NodeId wins, const NodeId *x, NodeId g)
{
    NodeId tie = node_select(m, node_map2(m, OP_EQ, x[0], x[1]), mul(m, g, num(m, 0.5)), num(m, 0));
    return node_select(m, wins, g, tie);
}

ADJOINT(d_max) { UNUSED; return d_extremum(m, node_map2(m, OP_LT, x[1 - k], x[k]), x, g); }
ADJOINT(d_min) { UNUSED; return d_extremum(m, node_map2(m, OP_LT, x[k], x[1 - k]), x, g); }

static NodeId hypotenuse(Module *m, const NodeId *x) { return node_map2(m, OP_HYPOT, x[0], x[1]); }

/* (x0, x1) times a power of two that makes the larger one about 1, and the length of that: of numbers below
 * the smallest normal one the length has few digits, and of the largest it is infinite. */
typedef struct Direction { NodeId scale, part[2], length; } Direction;

static Direction direction_of(Module *m, const NodeId *x)
{
    Direction d;
    d.scale = fun(m, OP_SCALE, node_map2(m, OP_MAX, fun(m, OP_ABS, x[0]), fun(m, OP_ABS, x[1])));
    for (int i = 0; i < 2; i++)
        d.part[i] = mul(m, x[i], d.scale);
    d.length = hypotenuse(m, d.part);
    return d;
}

/* g part/whole/whole, where the whole is not below the part and its square may be infinite or 0; 0 where it is 0. */
static NodeId over_square(Module *m, NodeId g, NodeId part, NodeId whole)
{
    NodeId slope = quo(m, mul(m, g, quo(m, part, whole)), whole);
    return node_select(m, is_zero(m, whole), num(m, 0), slope);
}

/* The same of an argument and the length of both. */
static NodeId over_length_squared(Module *m, NodeId g, const NodeId *x, int part)
{
    Direction d = direction_of(m, x);
    NodeId slope = mul(m, quo(m, mul(m, g, quo(m, d.part[part], d.length)), d.length), d.scale);
    return node_select(m, is_zero(m, d.length), num(m, 0), slope);
}

/* atan2(x0, x1), 0 at the origin. */
ADJOINT(d_atan2) { UNUSED; return over_length_squared(m, k == 1 ? neg(m, g) : g, x, 1 - k); }

ADJOINT(d_hypot)
{
    UNUSED;
    Direction d = direction_of(m, x);
    return node_select(m, is_zero(m, d.length), num(m, 0), mul(m, g, quo(m, d.part[k], d.length)));
}

ADJOINT(d_log_hypot) { UNUSED; return over_length_squared(m, g, x, k); }

/* w = u + iv = sqrt(x0 + i x1): dw/dx0 = 1/(2w) = (u - iv)/(2|w|^2), dw/dx1 = i/(2w) = (v + iu)/(2|w|^2). */
static NodeId root_slope(Module *m, const NodeId *x, bool imaginary, bool negative, NodeId g)
{
    NodeId w[2] = { node_map2(m, OP_ROOT_RE, x[0], x[1]), node_map2(m, OP_ROOT_IM, x[0], x[1]) };
    g = mul(m, g, num(m, negative ? -0.5 : 0.5));
    return over_square(m, g, w[imaginary], hypotenuse(m, w));
}

ADJOINT(d_root_re) { UNUSED; return root_slope(m, x, k == 1, false, g); }
ADJOINT(d_root_im) { UNUSED; return root_slope(m, x, k == 0, k == 0, g); }

/* Each part of exp(x0 + i x1) is what the other one's slope is made of. */
ADJOINT(d_exp_re)
{
    UNUSED;
    return unless_zero(m, g, k == 0 ? mul(m, g, y) : neg(m, mul(m, g, node_map2(m, OP_EXP_IM, x[0], x[1]))));
}
ADJOINT(d_exp_im) { UNUSED; return unless_zero(m, g, mul(m, g, k == 0 ? y : node_map2(m, OP_EXP_RE, x[0], x[1]))); }

ADJOINT(d_exp) { UNUSED; return unless_zero(m, g, mul(m, g, y)); }
ADJOINT(d_log) { UNUSED; return unless_zero(m, g, quo(m, g, x[0])); }
ADJOINT(d_log1p) { UNUSED; return unless_zero(m, g, quo(m, g, add(m, num(m, 1), x[0]))); }
ADJOINT(d_expm1) { UNUSED; return unless_zero(m, g, mul(m, g, fun(m, OP_EXP, x[0]))); }

ADJOINT(d_sqrt)
{
    UNUSED;
    NodeId slope = quo(m, mul(m, g, num(m, mutate("wrong-factor") ? 1 : 0.5)), y);
    if (positive_number(m, x[0])) return slope;
    NodeId flat = is_zero(m, y);
    if (!nonnegative(m, x[0], 8) && !is_one(m, g)) flat = node_map2(m, OP_OR, is_void(m, g, slope), flat);
    return node_select(m, flat, num(m, 0), slope);
}

ADJOINT(d_rsqrt)
{
    UNUSED;
    NodeId slope = mul(m, g, mul(m, num(m, -0.5), mul(m, y, mul(m, y, y))));
    return positive_number(m, x[0]) ? slope : unless_zero(m, g, slope);
}

ADJOINT(d_abs) { UNUSED; return mul(m, g, fun(m, OP_SIGN, x[0])); }
ADJOINT(d_sin) { UNUSED; return mul(m, g, fun(m, OP_COS, x[0])); }
ADJOINT(d_cos) { UNUSED; return neg(m, mul(m, g, fun(m, OP_SIN, x[0]))); }

/* 1 + tan^2. Of all numbers of f32 and f64, the one nearest to a pole gives a tangent whose square is
 * finite. */
ADJOINT(d_tan) { UNUSED; return mul(m, g, add(m, num(m, 1), mul(m, y, y))); }
ADJOINT(d_atan) { UNUSED; return quo(m, g, add(m, num(m, 1), mul(m, x[0], x[0]))); }
ADJOINT(d_sinh) { UNUSED; return unless_zero(m, g, mul(m, g, fun(m, OP_COSH, x[0]))); }
ADJOINT(d_cosh) { UNUSED; return unless_zero(m, g, mul(m, g, fun(m, OP_SINH, x[0]))); }

ADJOINT(d_tanh)
{
    UNUSED;
    NodeId one = num(m, m->inner && mutate("blurred-slope") ? 1 + 1e-10 : 1);
    return mul(m, g, sub(m, one, mul(m, y, y)));
}

ADJOINT(d_sigmoid) { UNUSED; return mul(m, g, mutate("wrong-row") ? y : mul(m, y, sub(m, num(m, 1), y))); }
ADJOINT(d_logsigmoid) { UNUSED; return mul(m, g, fun(m, OP_SIGMOID, neg(m, x[0]))); }
ADJOINT(d_softplus) { UNUSED; return mul(m, g, fun(m, OP_SIGMOID, x[0])); }
ADJOINT(d_relu) { UNUSED; return node_select(m, positive(m, x[0]), g, num(m, 0)); }

/* s (1 + x (1 - s)) with s = sigmoid(x) */
ADJOINT(d_silu)
{
    UNUSED;
    NodeId s = fun(m, OP_SIGMOID, x[0]), one = num(m, 1);
    return mul(m, g, mul(m, s, add(m, one, mul(m, x[0], sub(m, one, s)))));
}

/* Phi(x) + x phi(x), the normal distribution and its density */
ADJOINT(d_gelu)
{
    UNUSED;
    NodeId half = num(m, 0.5);
    NodeId cdf =
        mul(m, half, add(m, num(m, 1), fun(m, OP_ERF, mul(m, x[0], num(m, 0.70710678118654752440)))));
    NodeId bell = fun(m, OP_EXP, neg(m, mul(m, half, mul(m, x[0], x[0]))));
    return mul(m, g, add(m, cdf, mul(m, x[0], mul(m, num(m, 0.39894228040143267794), bell))));
}

/* y = x/2 (1 + tanh u) = x s with s = sigmoid(2u), u = c (x + a x^3): s + 2 x s (1 - s) c (1 + 3 a x^2). Beyond |x| = 100
 * the sigmoid is 0 or 1 in any type, also with the square of 100, and no square is infinite. */
ADJOINT(d_gelu_tanh)
{
    UNUSED;
    const double c = 0.79788456080286535588, a = 0.044715;
    NodeId one = num(m, 1), x2 = node_map2(m, OP_MIN, mul(m, x[0], x[0]), num(m, 1e4));
    NodeId s = fun(m, OP_SIGMOID, mul(m, mul(m, num(m, 2 * c), x[0]), add(m, one, mul(m, num(m, a), x2))));
    NodeId du = mul(m, num(m, 2 * c), add(m, one, mul(m, num(m, 3 * a), x2)));
    NodeId inner = mul(m, mul(m, x[0], mul(m, s, sub(m, one, s))), du);
    return mul(m, g, add(m, s, inner));
}

ADJOINT(d_softsign)
{
    UNUSED;
    NodeId d = add(m, num(m, 1), fun(m, OP_ABS, x[0]));
    return quo(m, quo(m, g, d), d);
}

ADJOINT(d_elu)
{
    UNUSED;
    return node_select(m, positive(m, x[0]), g, mul(m, g, fun(m, OP_EXP, x[0])));
}

ADJOINT(d_leaky_relu)
{
    UNUSED;
    NodeId above = positive(m, x[0]);
    if (k == 0) return node_select(m, above, g, mul(m, g, x[1]));
    return node_select(m, above, num(m, 0), mul(m, g, x[0]));
}

/* 1 where -1 < x < 1 */
ADJOINT(d_hardtanh)
{
    UNUSED;
    NodeId inside = node_map2(m, OP_LT, fun(m, OP_ABS, x[0]), num(m, 1));
    return node_select(m, inside, g, num(m, 0));
}

/* w + x w' with w = tanh(softplus(x)). Of q = e^(-2 softplus(x)) = sigmoid(-x)^2 it is (1 - q)/(1 + q), so
 * w' = 4 q/(1 + q)^2 sigmoid(x), in which nothing cancels, while 1 - w^2 does where x is large. */
ADJOINT(d_mish)
{
    UNUSED;
    NodeId off = fun(m, OP_SIGMOID, neg(m, x[0])), q = mul(m, off, off), whole = add(m, num(m, 1), q);
    NodeId w = fun(m, OP_TANH, fun(m, OP_SOFTPLUS, x[0])), s = fun(m, OP_SIGMOID, x[0]);
    NodeId bend = mul(m, mul(m, num(m, 4), quo(m, quo(m, q, whole), whole)), mul(m, x[0], s));
    return mul(m, g, add(m, w, bend));
}

/* a - b n with the whole number n = (a - y)/b: 1 and -n, and 0 where b is 0. A quotient by a small b
 * overflows. */
ADJOINT(d_remainder)
{
    UNUSED;
    NodeId whole = k == 1 ? fun(m, OP_ROUND, quo(m, sub(m, y, x[0]), x[1])) : -1;
    NodeId slope = k == 1 ? unless_zero(m, g, mul(m, g, whole)) : g;
    return never_zero(m, x[1], 8) ? slope : node_select(m, is_zero(m, x[1]), num(m, 0), slope);
}

ADJOINT(d_erf)
{
    UNUSED;
    NodeId bell = fun(m, OP_EXP, neg(m, mul(m, x[0], x[0])));
    return mul(m, g, mul(m, num(m, 1.12837916709551257390), bell));
}

/* min(max(x, lo), hi): exactly one of the three has slope 1 */
ADJOINT(d_clamp)
{
    UNUSED;
    NodeId lo = x[1], hi = x[2], zero = num(m, 0);
    if (k == 0)
        return node_select(
            m, node_map2(m, OP_AND, node_map2(m, OP_LE, lo, x[0]), node_map2(m, OP_LE, x[0], hi)), g, zero);
    NodeId ordered = node_map2(m, OP_LE, lo, hi);
    if (k == 1) return node_select(m, node_map2(m, OP_AND, node_map2(m, OP_LT, x[0], lo), ordered), g, zero);
    return node_select(m, node_map2(m, OP_OR, node_map2(m, OP_LT, hi, x[0]), node_map1(m, OP_NOT, ordered)),
                       g, zero);
}

/* All of the cotangent goes to what stands for y in the backward direction, as it is: it can be differentiated
 * again. */
ADJOINT(d_ste)
{
    UNUSED;
    return k == 1 ? g : -1;
}

ADJOINT(d_select)
{
    UNUSED;
    if (k == 0) return -1;
    NodeId zero = num(m, 0);
    return k == 1 ? node_select(m, x[0], g, zero) : node_select(m, x[0], zero, g);
}

/* ---- values, for constant folding; the same definitions as the C helpers below */

/* The nearest number of so many bits that is a multiple of 2^least, of two the even one; infinite beyond `largest`. */
static double round_to(double x, int bits, int least, double largest)
{
    int e;
    if (x == 0 || !isfinite(x)) return x;
    frexp(x, &e);
    e = e - bits > least ? e - bits : least;
    double y = ldexp(rint(ldexp(x, -e)), e);
    return fabs(y) > largest ? copysign(INFINITY, x) : y;
}

#define EVAL(name, value) static double name(const double *x) { return value; }
EVAL(e_neg, -x[0])
EVAL(e_add, x[0] + x[1])
EVAL(e_sub, x[0] - x[1])
EVAL(e_mul, x[0] * x[1])
EVAL(e_div, x[0] / x[1])
EVAL(e_pow, pow(x[0], x[1]))
EVAL(e_max, x[0] > x[1] || x[0] != x[0] ? x[0] : x[1])
EVAL(e_min, x[0] < x[1] || x[0] != x[0] ? x[0] : x[1])
EVAL(e_atan2, atan2(x[0], x[1]))
EVAL(e_hypot, hypot(x[0], x[1]))

/* log |a + ib|, written as the C helper is. */
static double e_log_hypot(const double *x)
{
    double p = fabs(x[0]), q = fabs(x[1]), m = p > q ? p : q, n = p > q ? q : p;
    if (m < 1.5 && m * m + n * n >= 0.5) {
        double square = m * m, other = n * n;
        return 0.5 * log1p(square - 1 + other + (fma(m, m, -square) + fma(n, n, -other)));
    }
    double r = n == m ? 1 : n / m;
    return n == 0 ? log(m) : log(m) + 0.5 * log1p(r * r);
}

/* The part of sqrt(a + ib) that is the larger one; never 0 unless both are. */
static double larger_root(double a, double b)
{
    double p = fabs(a), q = fabs(b), m = p > q ? p : q, r = (p > q ? q : p) / m;
    return sqrt(m) * sqrt(0.5 * (sqrt(1 + r * r) + (p > q ? 1 : r)));
}

static double e_root_re(const double *x)
{
    double w = larger_root(x[0], x[1]);
    return x[0] == 0 && x[1] == 0 ? 0 : x[0] >= 0 ? w : fabs(x[1]) / (2 * w);
}

static double e_root_im(const double *x)
{
    double w = larger_root(x[0], x[1]);
    return x[0] == 0 && x[1] == 0 ? x[1] : x[0] >= 0 ? x[1] / (2 * w) : copysign(w, x[1]);
}

/* e^a b, also where e^a alone is infinite. */
static double exp_times(double a, double b)
{
    double e = exp(a / 2);
    return b == 0 ? b : b * e * e;
}

EVAL(e_exp_re, exp_times(x[0], cos(x[1])))
EVAL(e_exp_im, exp_times(x[0], sin(x[1])))

/* Folded only where it is the same in every type. */
static double e_scale(const double *x)
{
    int e;
    if (x[0] == 0 || !isfinite(x[0])) return 1;
    frexp(x[0], &e);
    return e < -120 || e > 120 ? NAN : ldexp(1, -e);
}

EVAL(e_exp, exp(x[0]))
EVAL(e_log, log(x[0]))
EVAL(e_log1p, log1p(x[0]))
EVAL(e_expm1, expm1(x[0]))
EVAL(e_sqrt, sqrt(x[0]))
EVAL(e_rsqrt, 1 / sqrt(x[0]))
EVAL(e_abs, fabs(x[0]))
EVAL(e_floor, floor(x[0]))
EVAL(e_ceil, ceil(x[0]))
EVAL(e_round, rint(x[0]))
EVAL(e_sign, x[0] > 0 ? 1 : x[0] < 0 ? -1 : x[0])
EVAL(e_sin, sin(x[0]))
EVAL(e_cos, cos(x[0]))
EVAL(e_tan, tan(x[0]))
EVAL(e_atan, atan(x[0]))
EVAL(e_sinh, sinh(x[0]))
EVAL(e_cosh, cosh(x[0]))
EVAL(e_tanh, tanh(x[0]))
EVAL(e_sigmoid, x[0] >= 0 ? 1 / (1 + exp(-x[0])) : exp(x[0]) / (1 + exp(x[0])))
EVAL(e_softplus, (x[0] <= 0 ? 0 : x[0]) + log1p(exp(-fabs(x[0]))))
EVAL(e_logsigmoid, (x[0] >= 0 ? 0 : x[0]) - log1p(exp(-fabs(x[0]))))
/* x times its gate, which is 0 at minus infinity and wins there. */
static double gated(double x, double gate) { return x == -INFINITY ? 0 : x * gate; }

EVAL(e_silu, gated(x[0], e_sigmoid(x)))
EVAL(e_relu, x[0] <= 0 ? 0 : x[0])
EVAL(e_gelu, gated(0.5 * x[0], erfc(-0.70710678118654752440 * x[0])))
EVAL(e_gelu_tanh,
     gated(x[0], e_sigmoid((const double[]){ 1.59576912160573071176 * x[0] * (1 + 0.044715 * x[0] * x[0]) })))
EVAL(e_softsign, isinf(x[0]) ? copysign(1, x[0]) : x[0] / (1 + fabs(x[0])))
EVAL(e_elu, x[0] > 0 ? x[0] : expm1(x[0]))
EVAL(e_leaky_relu, x[0] > 0 ? x[0] : x[1] * x[0])
EVAL(e_hardtanh, x[0] < -1 ? -1 : x[0] > 1 ? 1 : x[0])

/* tanh(softplus(x)) is n/(n + 2) with n = e^x (e^x + 2); above 0 both are divided by e^(2x). */
static double e_mish(const double *x)
{
    double e = exp(-fabs(x[0])), n = x[0] > 0 ? 1 + 2 * e : e * (e + 2);
    double gate = n / (n + 2 * (x[0] > 0 ? e * e : 1));
    return gate == 0 ? 0 : x[0] * gate;
}

/* What is left of a, with the sign of b; 0 where b is 0. */
static double e_remainder(const double *x)
{
    double rest = x[1] == 0 ? 0 : fmod(x[0], x[1]);
    return rest != 0 && (rest < 0) != (x[1] < 0) ? rest + x[1] : rest;
}

EVAL(e_erf, erf(x[0]))
EVAL(e_clamp, e_min((const double[]){e_max(x), x[2]}))
EVAL(e_idiv, x[1] == 0 ? 0 : floor(x[0] / x[1]))
EVAL(e_imod, x[1] == 0 ? 0 : x[0] - x[1] * floor(x[0] / x[1]))
EVAL(e_ipow, pow(x[0], x[1]))
EVAL(e_bf16, round_to(x[0], 8, -133, 0x1.fep127))
EVAL(e_f16, round_to(x[0], 11, -24, 65504))
EVAL(e_real, x[0])
EVAL(e_stop, x[0])
EVAL(e_ste, x[0])
EVAL(e_override, x[0])
EVAL(e_select, x[0] != 0 ? x[1] : x[2])
EVAL(e_lt, x[0] < x[1])
EVAL(e_le, x[0] <= x[1])
EVAL(e_eq, x[0] == x[1])
EVAL(e_ne, x[0] != x[1])
EVAL(e_and, x[0] != 0 && x[1] != 0)
EVAL(e_or, x[0] != 0 || x[1] != 0)
EVAL(e_not, x[0] == 0)

/* ---- the table */

#define INFIX(op) "(%s " op " %s)", "(%s " op " %s)", "(%s " op " %s)"
/* a function of libm: name in double, name in float, name on the device */
#define LIBM(f) f "(%s)", f "f(%s)", "cell_" f "(%s)"
/* a helper of ops_prelude, written in the type `real` */
#define HELPER(f) f "(%s)", f "(%s)", "cell_" f "(%s)"

/* name, arity, in the language, C double, C float, device, cost, cheap, needs output, value, adjoint, doc, fast */
const OpRow op_table[OP_COUNT] = {
    [OP_NEG] = { "neg", 1, false, "(-%s)", "(-%s)", "(-%s)", 1, true, false, e_neg, d_neg, "-a", NULL },
    [OP_ADD] = { "add", 2, false, INFIX("+"), 1, true, false, e_add, d_add, "a + b", NULL },
    [OP_SUB] = { "sub", 2, false, INFIX("-"), 1, true, false, e_sub, d_sub, "a - b", NULL },
    [OP_MUL] = { "mul", 2, false, INFIX("*"), 1, true, false, e_mul, d_mul, "a * b", NULL },
    [OP_DIV] = { "div", 2, false, INFIX("/"), 9, false, true, e_div, d_div,
                 "a / b; derivatives 1/b, -a/b^2; a zero cotangent stays zero where b = 0",
                 "cell_fast_div(%s, %s)" },
    [OP_POW] = { "pow", 2, true, "pow(%s, %s)", "powf(%s, %s)", "cell_pow(%s, %s)", 40, false, true, e_pow,
                 d_pow,
                 "a^b, also written so; a negative a needs an integer b; d/da = b a^(b-1), d/db = a^b "
                 "log(a), 0 at a = 0 <= b", NULL },
    [OP_MAX] = { "max", 2, true, "max_of(%s, %s)", "max_of(%s, %s)", "cell_max(%s, %s)", 1, true, false,
                 e_max, d_max, "the larger one, NaN if one is NaN; where a = b each gets half the gradient",
                 NULL },
    [OP_MIN] = { "min", 2, true, "min_of(%s, %s)", "min_of(%s, %s)", "cell_min(%s, %s)", 1, true, false,
                 e_min, d_min,
                 "the smaller one, NaN if one is NaN; where a = b each gets half the gradient", NULL },
    [OP_ATAN2] = { "atan2", 2, true, "atan2(%s, %s)", "atan2f(%s, %s)", "cell_atan2(%s, %s)", 40, false,
                   false, e_atan2, d_atan2,
                   "angle of the point (b, a); derivatives b/(a^2+b^2), -a/(a^2+b^2), 0 at the origin",
                   NULL },
    [OP_HYPOT] = { "hypot", 2, false, "hypot(%s, %s)", "hypotf(%s, %s)", "cell_hypot(%s, %s)", 16, false, true, e_hypot,
                   d_hypot, "|a + ib| without squares that overflow; derivatives a/|a + ib|, b/|a + ib|, 0 at 0",
                   NULL },
    [OP_LOG_HYPOT] = { "log_hypot", 2, false, "log_hypot(%s, %s)", "log_hypot(%s, %s)", "cell_log_hypot(%s, %s)", 40, false,
                       false, e_log_hypot, d_log_hypot, "log |a + ib|; derivatives a/|a + ib|^2, b/|a + ib|^2, 0 at 0",
                       NULL },
    [OP_ROOT_RE] = { "root_re", 2, false, "root_re(%s, %s)", "root_re(%s, %s)", "cell_root_re(%s, %s)", 40, false, false,
                     e_root_re, d_root_re, "the real part of sqrt(a + ib), which is not negative; derivatives 0 at 0",
                     NULL },
    [OP_ROOT_IM] = { "root_im", 2, false, "root_im(%s, %s)", "root_im(%s, %s)", "cell_root_im(%s, %s)", 40, false, false,
                     e_root_im, d_root_im, "the imaginary part of sqrt(a + ib), with the sign of b; derivatives 0 at 0",
                     NULL },
    [OP_EXP_RE] = { "exp_re", 2, false, "exp_re(%s, %s)", "exp_re(%s, %s)", "cell_exp_re(%s, %s)", 40, false, false,
                    e_exp_re, d_exp_re, "the real part of exp(a + ib), also where e^a alone overflows",
                    NULL },
    [OP_EXP_IM] = { "exp_im", 2, false, "exp_im(%s, %s)", "exp_im(%s, %s)", "cell_exp_im(%s, %s)", 40, false, false,
                    e_exp_im, d_exp_im, "the imaginary part of exp(a + ib), also where e^a alone overflows; 0 where b = 0",
                    NULL },
    [OP_SCALE] = { "scale", 1, false, HELPER("scale_of"), 8, true, false, e_scale, d_none,
                   "the power of two that brings |x| to between 1/2 and 1, as far as that is a normal number; no gradient",
                   NULL },
    [OP_EXP] = { "exp", 1, true, LIBM("exp"), 8, false, true, e_exp, d_exp,
                 "e^x; its own derivative; a zero cotangent stays zero where it overflows",
                 "cell_fast_exp(%s)" },
    [OP_LOG] = { "log", 1, true, LIBM("log"), 10, false, false, e_log, d_log,
                 "natural logarithm; derivative 1/x; a zero cotangent stays zero at 0", NULL },
    [OP_LOG1P] = { "log1p", 1, true, LIBM("log1p"), 14, false, false, e_log1p, d_log1p,
                   "log(1 + x); derivative 1/(1 + x)", NULL },
    [OP_EXPM1] = { "expm1", 1, true, LIBM("expm1"), 14, false, false, e_expm1, d_expm1,
                   "e^x - 1; derivative e^x", NULL },
    [OP_SQRT] = { "sqrt", 1, true, LIBM("sqrt"), 8, false, true, e_sqrt, d_sqrt,
                  "square root; derivative 1/(2 sqrt(x)), taken as 0 at 0",
                  "cell_fast_sqrt(%s)" },
    [OP_RSQRT] = { "rsqrt", 1, true, "(1 / sqrt(%s))", "(1 / sqrtf(%s))", "cell_rsqrt(%s)", 6, false, true,
                   e_rsqrt, d_rsqrt, "1/sqrt(x); derivative -x^(-3/2)/2; a zero cotangent stays zero at 0",
                   NULL },
    [OP_ABS] = { "abs", 1, true, "fabs(%s)", "fabsf(%s)", "cell_fabs(%s)", 1, true, false, e_abs, d_abs,
                 "|x|; derivative sign(x), 0 at 0", NULL },
    [OP_SIGN] = { "sign", 1, true, HELPER("sign"), 2, true, false, e_sign, d_none,
                  "-1, 0 or 1; no gradient", NULL },
    [OP_FLOOR] = { "floor", 1, true, LIBM("floor"), 1, true, false, e_floor, d_none,
                   "the largest integer that is not above x; no gradient", NULL },
    [OP_CEIL] = { "ceil", 1, true, LIBM("ceil"), 1, true, false, e_ceil, d_none,
                  "the smallest integer that is not below x; no gradient", NULL },
    [OP_ROUND] = { "round", 1, true, LIBM("rint"), 1, true, false, e_round, d_none,
                   "the nearest integer, of two the even one; no gradient", NULL },
    [OP_SIN] = { "sin", 1, true, LIBM("sin"), 16, false, false, e_sin, d_sin, "sine; derivative cos(x)",
                 NULL },
    [OP_COS] = { "cos", 1, true, LIBM("cos"), 16, false, false, e_cos, d_cos, "cosine; derivative -sin(x)",
                 NULL },
    [OP_TAN] = { "tan", 1, true, LIBM("tan"), 24, false, true, e_tan, d_tan, "tangent; derivative 1 + y^2",
                 NULL },
    [OP_ATAN] = { "atan", 1, true, LIBM("atan"), 24, false, false, e_atan, d_atan,
                  "arc tangent, from -pi/2 to pi/2; derivative 1/(1 + x^2)", NULL },
    [OP_SINH] = { "sinh", 1, true, LIBM("sinh"), 16, false, false, e_sinh, d_sinh,
                  "hyperbolic sine; derivative cosh(x); a zero cotangent stays zero where it overflows",
                  NULL },
    [OP_COSH] = { "cosh", 1, true, LIBM("cosh"), 16, false, false, e_cosh, d_cosh,
                  "hyperbolic cosine; derivative sinh(x); a zero cotangent stays zero where it overflows",
                  NULL },
    [OP_TANH] = { "tanh", 1, true, LIBM("tanh"), 16, false, true, e_tanh, d_tanh,
                  "hyperbolic tangent; derivative 1 - y^2",
                  "cell_fast_tanh(%s)" },
    [OP_SIGMOID] = { "sigmoid", 1, true, HELPER("sigmoid"), 16, false, true, e_sigmoid, d_sigmoid,
                     "1/(1 + e^-x); derivative y (1 - y)",
                     "cell_fast_sigmoid(%s)" },
    [OP_LOGSIGMOID] = { "logsigmoid", 1, true, HELPER("logsigmoid"), 24, false, false, e_logsigmoid,
                        d_logsigmoid, "log(sigmoid(x)); derivative sigmoid(-x)",
                        "cell_fast_logsigmoid(%s)" },
    [OP_SILU] = { "silu", 1, true, HELPER("silu"), 17, false, false, e_silu, d_silu,
                  "x sigmoid(x); derivative s (1 + x (1 - s)) with s = sigmoid(x)",
                  "cell_fast_silu(%s)" },
    [OP_RELU] = { "relu", 1, true, HELPER("relu"), 1, true, false, e_relu, d_relu,
                  "max(x, 0); derivative 0 at 0", NULL },
    [OP_GELU] = { "gelu", 1, true, HELPER("gelu"), 30, false, false, e_gelu, d_gelu,
                  "x Phi(x) with the normal distribution Phi (erf); derivative Phi(x) + x phi(x)",
                  "cell_fast_gelu(%s)" },
    [OP_GELU_TANH] = { "gelu_tanh", 1, true, HELPER("gelu_tanh"), 22, false, false, e_gelu_tanh, d_gelu_tanh,
                       "x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the common approximation of gelu",
                       NULL },
    [OP_SOFTPLUS] = { "softplus", 1, true, HELPER("softplus"), 24, false, false, e_softplus, d_softplus,
                      "log(1 + e^x); derivative sigmoid(x)", NULL },
    [OP_SOFTSIGN] = { "softsign", 1, true, HELPER("softsign"), 10, false, false, e_softsign, d_softsign,
                      "x/(1 + |x|); derivative 1/(1 + |x|)^2", NULL },
    [OP_ELU] = { "elu", 1, true, HELPER("elu"), 15, false, false, e_elu, d_elu,
                 "x where x > 0, else e^x - 1; derivative 1, else e^x", NULL },
    [OP_LEAKY_RELU] = { "leaky_relu", 2, true, "leaky_relu(%s, %s)", "leaky_relu(%s, %s)",
                        "cell_leaky_relu(%s, %s)", 2, true, false, e_leaky_relu, d_leaky_relu,
                        "x where x > 0, else a x, a = 0.01 if left out; derivatives 1 and 0, else a and x",
                        NULL },
    [OP_HARDTANH] = { "hardtanh", 1, true, HELPER("hardtanh"), 2, true, false, e_hardtanh, d_hardtanh,
                      "x cut to [-1, 1]; derivative 1 between, 0 at both bounds and beyond", NULL },
    [OP_MISH] = { "mish", 1, true, HELPER("mish"), 24, false, false, e_mish, d_mish,
                  "x w with w = tanh(log(1 + e^x)); derivative w + x (1 - w^2) sigmoid(x)", NULL },
    [OP_ERF] = { "erf", 1, true, LIBM("erf"), 24, false, false, e_erf, d_erf,
                 "error function; derivative 2/sqrt(pi) e^(-x^2)",
                 "cell_fast_erf(%s)" },
    [OP_CLAMP] = { "clamp", 3, true, "clamp(%s, %s, %s)", "clamp(%s, %s, %s)", "cell_clamp(%s, %s, %s)", 2,
                   true, false, e_clamp, d_clamp,
                   "min(max(x, lo), hi); derivative 1 from lo to hi, both included; else lo or hi gets it",
                   NULL },
    [OP_REMAINDER] = { "remainder", 2, false, "remainder_of(%s, %s)", "remainder_of(%s, %s)",
                       "cell_remainder(%s, %s)", 24, false, true, e_remainder, d_remainder,
                       "a - b floor(a/b) of real numbers, with the sign of b, also a % b and mod(a, b); 0 where "
                       "b = 0; derivatives 1, -floor(a/b)", NULL },
    [OP_IDIV] = { "idiv", 2, false, "whole_quotient(%s, %s)", "whole_quotient(%s, %s)", "cell_whole_quotient(%s, %s)", 20,
                  true, false, e_idiv, d_none, "a / b of integers, rounded down; 0 where b = 0", NULL },
    [OP_IMOD] = { "imod", 2, false, "whole_remainder(%s, %s)", "whole_remainder(%s, %s)", "cell_whole_remainder(%s, %s)",
                  20, true, false, e_imod, d_none, "a - b div(a, b) of integers, with the sign of b; 0 where b = 0",
                  NULL },
    [OP_IPOW] = { "ipow", 2, false, "whole_power(%s, %s)", "whole_power(%s, %s)", "cell_whole_power(%s, %s)", 20, true,
                  false, e_ipow, d_none, "a^b of integers, b not negative", NULL },
    [OP_BF16] = { "to_bf16", 1, false, "to_bf16(%s)", "to_bf16(%s)", "cell_round_to<cell_bf16>(%s)", 2, true, false,
                  e_bf16, d_real, "x rounded to bf16, to the nearest, of two the even one; derivative 1",
                  NULL },
    [OP_F16] = { "to_f16", 1, false, "to_f16(%s)", "to_f16(%s)", "cell_round_to<cell_f16>(%s)", 2, true, false,
                 e_f16, d_real, "x rounded to f16, to the nearest, of two the even one; derivative 1", NULL },
    [OP_REAL] = { "real", 1, true, "(%s)", "(%s)", "(%s)", 0, true, false, e_real, d_real,
                  "x as a real number, for integers; derivative 1", NULL },
    [OP_STOP] = { "stop", 1, true, "%s", "%s", "%s", 0, true, false, e_stop, d_none,
                  "x; lets no gradient through", NULL },
    [OP_HELD] = { "held", 1, false, "%s", "%s", "%s", 0, true, false, e_real, d_real,
                  "x, a number for inner gradients; derivative 1; gone when these are taken", NULL },
    [OP_STE] = { "ste", 2, true, "ste(%s, %s)", "ste(%s, %s)", "cell_ste(%s, %s)", 0, true, false, e_ste, d_ste,
                 "y forwards, x backwards: the value of the first, derivative 0 and 1", NULL },
    [OP_OVERRIDE] = { "override", 3, false, "override(%s, %s, %s)", "override(%s, %s, %s)",
                      "cell_override(%s, %s, %s)", 0, true, false, e_override, d_none,
                      "the first; the second gets the third for its adjoint (an adjoint fn), the first nothing",
                      NULL },
    [OP_SELECT] = { "select", 3, false, "(%s ? %s : %s)", "(%s ? %s : %s)", "(%s ? %s : %s)", 1, true, false,
                    e_select, d_select, "c ? a : b; only the branch taken is computed and gets a gradient",
                    NULL },
    [OP_LT] = { "lt", 2, false, INFIX("<"), 1, true, false, e_lt, d_none, "a < b", NULL },
    [OP_LE] = { "le", 2, false, INFIX("<="), 1, true, false, e_le, d_none, "a <= b", NULL },
    [OP_EQ] = { "eq", 2, false, INFIX("=="), 1, true, false, e_eq, d_none, "a == b", NULL },
    [OP_NE] = { "ne", 2, false, INFIX("!="), 1, true, false, e_ne, d_none, "a != b", NULL },
    [OP_AND] = { "and", 2, false, INFIX("&&"), 1, true, false, e_and, d_none, "a && b", NULL },
    [OP_OR] = { "or", 2, false, INFIX("||"), 1, true, false, e_or, d_none, "a || b", NULL },
    [OP_NOT] = { "not", 1, false, "(!%s)", "(!%s)", "(!%s)", 1, true, false, e_not, d_none, "!a", NULL },
};

/* Does the cotangent vary over all that the result does? Where it does not, a sum stands between the two, and its gradient is
 * a product of matrices, which a guard around each of its products would break. */
static bool is_own_cotangent(const Module *m, NodeId result, NodeId g)
{
    const Node *y = &m->nodes.data[result], *c = &m->nodes.data[g];
    for (int i = 0; i < y->naxes; i++) {
        bool found = false;
        for (int k = 0; k < c->naxes; k++)
            found |= c->axes[k] == y->axes[i];
        if (!found) return false;
    }
    return true;
}

/* Is the slope towards argument k infinite, or no number, where an argument is? */
static bool slope_has_pole(const Module *m, Op op, int k, const NodeId *args, NodeId result, NodeId g)
{
    enum { DEPTH = 8 };
    switch (op) {
    case OP_NEG: case OP_ADD: case OP_SUB: case OP_MAX: case OP_MIN: case OP_CLAMP: case OP_RELU: case OP_STE: case OP_SELECT:
        return false;
    case OP_MUL:
        if (is_own_cotangent(m, result, g)) return m->nodes.data[args[1 - k]].has_pole;
        return has_pole_here(m, args[1 - k], DEPTH);
    default: break;
    }
    for (int i = 0; i < op_table[op].arity; i++)
        if (m->nodes.data[args[i]].has_pole) return true;
    return false;
}

NodeId op_adjoint(Module *m, NodeId result, int k, const NodeId *x, NodeId y, NodeId g)
{
    Node n = m->nodes.data[result];
    NodeId slope = op_table[n.op].adjoint ? op_table[n.op].adjoint(m, k, x, y, g) : -1;
    if (slope < 0 || slope == g || !slope_has_pole(m, n.op, k, n.args, result, g) || mutate("infinite-factor"))
        return slope;
    return unless_zero(m, g, slope);
}

NodeId op_times(Module *m, NodeId g, NodeId factor, NodeId made_of)
{
    NodeId product = mul(m, g, factor);
    return m->nodes.data[made_of].has_pole ? unless_zero(m, g, product) : product;
}

int op_find(const char *name)
{
    for (int k = 0; k < OP_COUNT; k++)
        if (strcmp(op_table[k].name, name) == 0) return k;
    return -1;
}

bool op_default(Op op, int given, double *value)
{
    *value = 0.01;
    return op == OP_LEAKY_RELU && given == 1;
}

bool op_gives_way(Op op)
{
    switch (op) {
    case OP_CEIL: case OP_TAN: case OP_ATAN: case OP_SINH: case OP_COSH: case OP_LEAKY_RELU: case OP_HARDTANH:
    case OP_MISH:
        return true;
    default: return false;
    }
}

/* ---- the C helpers */

typedef struct Helper {
    Op op;
    Op uses;
    const char *text;
} Helper; /* uses: another helper it calls, or its own op */

static const Helper helpers[] = {
    { OP_MAX, OP_MAX,
      "/* The larger one; NaN if one of them is. */\n"
      "static inline real max_of(real a, real b) { return a > b || a != a ? a : b; }\n" },
    { OP_MIN, OP_MIN,
      "/* The smaller one; NaN if one of them is. */\n"
      "static inline real min_of(real a, real b) { return a < b || a != a ? a : b; }\n" },
    { OP_LOG_HYPOT, OP_LOG_HYPOT,
      "/* log |a + ib|. Near 1 the rounding of the squares is added again. */\n"
      "static inline real log_hypot(real a, real b)\n{\n"
      "    real p = fabs(a), q = fabs(b), m = p > q ? p : q, n = p > q ? q : p;\n"
      "    if (m < (real)1.5 && m * m + n * n >= (real)0.5) {\n"
      "        real square = m * m, other = n * n;\n"
      "        return (real)0.5 * log1p(square - 1 + other + (fma(m, m, -square) + fma(n, n, -other)));\n    }\n"
      "    real r = n == m ? 1 : n / m;\n"
      "    return n == 0 ? log(m) : log(m) + (real)0.5 * log1p(r * r);\n}\n" },
    { OP_ROOT_RE, OP_ROOT_RE,
      "/* The real part of sqrt(a + ib). */\n"
      "static inline real root_re(real a, real b)\n{\n"
      "    real p = fabs(a), q = fabs(b), m = p > q ? p : q, r = (p > q ? q : p) / m;\n"
      "    real w = sqrt(m) * sqrt((sqrt(1 + r * r) + (p > q ? 1 : r)) / 2);     /* the larger part */\n"
      "    return m == 0 ? 0 : a >= 0 ? w : q / (2 * w);\n}\n" },
    { OP_ROOT_IM, OP_ROOT_IM,
      "/* The imaginary part of sqrt(a + ib), with the sign of b. */\n"
      "static inline real root_im(real a, real b)\n{\n"
      "    real p = fabs(a), q = fabs(b), m = p > q ? p : q, r = (p > q ? q : p) / m;\n"
      "    real w = sqrt(m) * sqrt((sqrt(1 + r * r) + (p > q ? 1 : r)) / 2);     /* the larger part */\n"
      "    return m == 0 ? b : a >= 0 ? b / (2 * w) : copysign(w, b);\n}\n" },
    { OP_EXP_RE, OP_EXP_RE,
      "/* e^a cos b, also where e^a alone overflows. */\n"
      "static inline real exp_re(real a, real b)\n{\n    real e = exp(a / 2), c = cos(b);\n"
      "    return c == 0 ? c : c * e * e;\n}\n" },
    { OP_EXP_IM, OP_EXP_IM,
      "/* e^a sin b, also where e^a alone overflows. */\n"
      "static inline real exp_im(real a, real b)\n{\n    real e = exp(a / 2), s = sin(b);\n"
      "    return s == 0 ? s : s * e * e;\n}\n" },
    { OP_SCALE, OP_SCALE,
      "/* The power of two that brings |x| to between 1/2 and 1, as far as that is a normal number. */\n"
      "static inline real scale_of(real x)\n{\n    const int most = sizeof(real) == sizeof(float) ? 126 : 1022;\n    int e;\n"
      "    if (x == 0 || !isfinite(x))\n        return 1;\n    frexp(x, &e);\n"
      "    return ldexp((real)1, e < -most ? most : e > most ? -most : -e);\n}\n" },
    { OP_SIGN, OP_SIGN, "static inline real sign(real x) { return x > 0 ? 1 : x < 0 ? -1 : x; }\n" },
    { OP_SIGMOID, OP_SIGMOID,
      "/* 1/(1 + e^-x), written so that e^|x| is never computed: it would overflow. */\n"
      "static inline real sigmoid(real x)\n{\n    real e = exp(-fabs(x));\n    return (x >= 0 ? 1 : e) / (1 "
      "+ e);\n}\n" },
    { OP_LOGSIGMOID, OP_LOGSIGMOID,
      "static inline real logsigmoid(real x) { return (x >= 0 ? 0 : x) - log1p(exp(-fabs(x))); }\n" },
    { OP_SILU, OP_SIGMOID,
      "/* x sigmoid(x), 0 at minus infinity. */\n"
      "static inline real silu(real x) { return x == -INFINITY ? 0 : x * sigmoid(x); }\n" },
    { OP_RELU, OP_RELU, "static inline real relu(real x) { return x <= 0 ? 0 : x; }\n" },
    { OP_GELU, OP_GELU,
      "/* x Phi(x); erfc keeps the tail that 1 + erf would cancel. */\n"
      "static inline real gelu(real x)\n{\n"
      "    return x == -INFINITY ? 0 : (real)0.5 * x * erfc((real)-0.70710678118654752440 * x);\n}\n" },
    { OP_GELU_TANH, OP_SIGMOID,
      "/* x/2 (1 + tanh u) as x sigmoid(2u), which does not cancel where x < 0. */\n"
      "static inline real gelu_tanh(real x)\n{\n"
      "    real gate = sigmoid((real)1.59576912160573071176 * x * (1 + (real)0.044715 * x * x));\n"
      "    return x == -INFINITY ? 0 : x * gate;\n}\n" },
    { OP_SOFTPLUS, OP_SOFTPLUS,
      "/* log(1 + e^x) without overflow. */\n"
      "static inline real softplus(real x) { return (x <= 0 ? 0 : x) + log1p(exp(-fabs(x))); }\n" },
    { OP_SOFTSIGN, OP_SOFTSIGN,
      "static inline real softsign(real x)\n{\n"
      "    return isinf(x) ? copysign((real)1, x) : x / (1 + fabs(x));\n}\n" },
    { OP_ELU, OP_ELU, "static inline real elu(real x) { return x > 0 ? x : expm1(x); }\n" },
    { OP_LEAKY_RELU, OP_LEAKY_RELU,
      "static inline real leaky_relu(real x, real a) { return x > 0 ? x : a * x; }\n" },
    { OP_HARDTANH, OP_HARDTANH,
      "static inline real hardtanh(real x) { return x < -1 ? -1 : x > 1 ? 1 : x; }\n" },
    { OP_MISH, OP_MISH,
      "/* x tanh(log(1 + e^x)) by exponentials that do not overflow, in sums that do not cancel. */\n"
      "static inline real mish(real x)\n{\n"
      "    real e = exp(-fabs(x)), n = x > 0 ? 1 + 2 * e : e * (e + 2);\n"
      "    real gate = n / (n + 2 * (x > 0 ? e * e : 1));\n"
      "    return gate == 0 ? 0 : x * gate;\n}\n" },
    { OP_REMAINDER, OP_REMAINDER,
      "/* What is left of a, with the sign of b; 0 where b is 0. */\n"
      "static inline real remainder_of(real a, real b)\n{\n    real rest = b == 0 ? 0 : fmod(a, b);\n"
      "    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;\n}\n" },
    { OP_CLAMP, OP_CLAMP,
      "static inline real clamp(real x, real lo, real hi)\n{\n"
      "    real raised = x > lo || x != x ? x : lo;\n"
      "    return raised < hi || raised != raised ? raised : hi;\n}\n" },
    { OP_IDIV, OP_IDIV,
      "/* a / b of integers, rounded down; 0 where b is 0. */\n"
      "static inline int64_t whole_quotient(int64_t a, int64_t b)\n{\n"
      "    if (b == 0 || b == -1)\n        return b ? (int64_t)(0 - (uint64_t)a) : 0;\n"
      "    return a / b - (a % b != 0 && (a < 0) != (b < 0));\n}\n" },
    { OP_IMOD, OP_IMOD,
      "/* What is left of a, with the sign of b; 0 where b is 0. */\n"
      "static inline int64_t whole_remainder(int64_t a, int64_t b)\n{\n"
      "    int64_t rest = b == 0 || b == -1 ? 0 : a % b;\n"
      "    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;\n}\n" },
    { OP_IPOW, OP_IPOW,
      "/* a^b of integers; b is not negative. */\n"
      "static inline int64_t whole_power(int64_t a, int64_t b)\n{\n    int64_t power = 1;\n"
      "    for (; b > 0; b--)\n        power = (int64_t)((uint64_t)power * (uint64_t)a);\n    return power;\n}\n" },
    { OP_BF16, OP_BF16,
      "/* The nearest number of bf16, of two the even one: 8 bits, steps of at least 2^-133. */\n"
      "static inline real to_bf16(real x)\n{\n    int e;\n    if (x == 0 || !isfinite(x))\n        return x;\n"
      "    frexp(x, &e);\n    e = e - 8 > -133 ? e - 8 : -133;\n    real y = ldexp(rint(ldexp(x, -e)), e);\n"
      "    return fabs(y) > (real)0x1.fep127 ? copysign(INFINITY, x) : y;\n}\n" },
    { OP_F16, OP_F16,
      "/* The nearest number of f16, of two the even one: 11 bits, steps of at least 2^-24. */\n"
      "static inline real to_f16(real x)\n{\n    int e;\n    if (x == 0 || !isfinite(x))\n        return x;\n"
      "    frexp(x, &e);\n    e = e - 11 > -24 ? e - 11 : -24;\n    real y = ldexp(rint(ldexp(x, -e)), e);\n"
      "    return fabs(y) > (real)65504 ? copysign(INFINITY, x) : y;\n}\n" },
    { OP_OVERRIDE, OP_OVERRIDE,
      "static inline real override(real y, real u, real a)\n{\n    (void)u;\n    (void)a;\n    return y;\n}\n" },
    { OP_STE, OP_STE,
      "/* y forwards; backwards it is x. */\n"
      "static inline real ste(real y, real x)\n{\n    (void)x;\n    return y;\n}\n" },
};

void ops_prelude(Buf *out, const bool *used)
{
    bool wanted[OP_COUNT];
    memcpy(wanted, used, sizeof wanted);
    const int n = (int)(sizeof helpers / sizeof helpers[0]);
    for (int k = 0; k < n; k++)
        if (wanted[helpers[k].op]) wanted[helpers[k].uses] = true;
    for (int k = 0; k < n; k++)
        if (wanted[helpers[k].op]) buf_f(out, "%s\n", helpers[k].text);
}

/* ---- cellc ops */
