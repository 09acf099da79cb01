/* eval_dual.h: numbers with derivatives in DUAL_K directions at once, and every function of the language on
 * them, each with its own derivative, written apart from the compiler's operator table so that the two can be
 * compared. At kinks: relu and abs at 0 have slope 0, clamp slope 1 at its bounds, max and min of two share
 * ties half and half, sqrt has slope 0 at 0; a direction that is zero stays zero even where the slope is
 * infinite. */
#ifndef CELLC_EVAL_DUAL_H
#define CELLC_EVAL_DUAL_H

#include <math.h>
#include <stdbool.h>

enum { DUAL_K = 8 }; /* EVAL_DIRECTIONS (eval.h) */

/* The functions here take plain numbers, without levels of inner gradients (eval_nest.h): tail is NULL. */
typedef struct Tail Tail;
typedef struct Dual { double v, d[DUAL_K]; const Tail *tail; } Dual;

static inline Dual dual_of(double v)
{
    Dual r = {v, {0}, 0};
    return r;
}

/* While this is set, directions are not derivatives but bounds: d[0] is the sum of the magnitudes of the paths
 * from what was perturbed to here, d[1] the same with each path times its number of operations, and d[2] bounds
 * the error of the value, in roundings of one operation: a running error analysis, to first order. Slopes that
 * become values are then computed as others do it (eval_nest.c), so that what cancels there is counted. */
extern bool dual_magnitudes;
enum { BOUND_PATHS, BOUND_OPERATIONS, BOUND_VALUE };

/* One term of the chain rule. */
static inline double slope_times(double slope, double direction)
{
    return direction == 0 ? 0 : slope * direction;
}

/* The same for bounds: the paths that one argument brings, each one operation longer, and its error. */
static inline void dual_add_paths(Dual *r, double slope, Dual a)
{
    r->d[BOUND_PATHS] += slope_times(fabs(slope), a.d[BOUND_PATHS]);
    r->d[BOUND_OPERATIONS] += slope_times(fabs(slope), a.d[BOUND_OPERATIONS] + a.d[BOUND_PATHS]);
    r->d[BOUND_VALUE] += slope_times(fabs(slope), a.d[BOUND_VALUE]);
}

/* The bounds of a result that is rounded once. */
static inline Dual dual_rounded(Dual r)
{
    r.d[BOUND_VALUE] += fabs(r.v);
    return r;
}

/* Where a function has a kink its slope bounds no error, but it never exceeds the largest of its arguments'. */
static inline Dual dual_with_error(Dual r, double a, double b)
{
    if (dual_magnitudes)
        r.d[BOUND_VALUE] = fmax(a, b);
    return r;
}

/* A value alone: nothing comes through it but its error. */
static inline Dual dual_plain(Dual a)
{
    return dual_with_error(dual_of(a.v), a.d[BOUND_VALUE], 0);
}

static inline Dual dual_chain(Dual a, double v, double slope)
{
    Dual r = {v, {0}, 0};
    if (dual_magnitudes) {
        dual_add_paths(&r, slope, a);
        return dual_rounded(r);
    }
    for (int k = 0; k < DUAL_K; k++)
        r.d[k] = slope_times(slope, a.d[k]);
    return r;
}

/* The same for functions whose slope others compute from the value v, as 1 - v^2 or 1 + v: where it is small, that
 * is the difference of numbers near one. */
static inline Dual dual_chain_of_value(Dual a, double v, double slope)
{
    Dual r = dual_chain(a, v, slope);
    if (dual_magnitudes)
        r.d[BOUND_OPERATIONS] += slope_times(fmax(0, 1 + fabs(v) - fabs(slope)), a.d[BOUND_PATHS]);
    return r;
}

static inline Dual dual_chain2(Dual a, Dual b, double v, double slope_a, double slope_b)
{
    Dual r = {v, {0}, 0};
    if (dual_magnitudes) {
        dual_add_paths(&r, slope_a, a);
        dual_add_paths(&r, slope_b, b);
        return dual_rounded(r);
    }
    for (int k = 0; k < DUAL_K; k++)
        r.d[k] = slope_times(slope_a, a.d[k]) + slope_times(slope_b, b.d[k]);
    return r;
}

static inline Dual dual_add(Dual a, Dual b) { return dual_chain2(a, b, a.v + b.v, 1, 1); }
static inline Dual dual_sub(Dual a, Dual b) { return dual_chain2(a, b, a.v - b.v, 1, -1); }
static inline Dual dual_mul(Dual a, Dual b) { return dual_chain2(a, b, a.v * b.v, b.v, a.v); }
static inline Dual dual_neg(Dual a) { return dual_chain(a, -a.v, -1); }

static inline Dual dual_div(Dual a, Dual b)
{
    double q = a.v / b.v;
    return dual_chain2(a, b, q, 1 / b.v, -q / b.v);
}

/* The slope towards the exponent is taken only for a positive base, as the language has it. */
static inline Dual dual_pow(Dual a, Dual b)
{
    double v = pow(a.v, b.v);
    double da = b.v == 0 ? 0 : b.v * pow(a.v, b.v - 1);
    return dual_chain2(a, b, v, da, a.v > 0 ? v * log(a.v) : 0);
}

static inline Dual dual_max(Dual a, Dual b)
{
    double wa = a.v > b.v ? 1 : a.v < b.v ? 0 : 0.5;
    double v = isnan(a.v) || isnan(b.v) ? a.v + b.v : a.v > b.v ? a.v : b.v;
    return dual_with_error(dual_chain2(a, b, v, wa, 1 - wa), a.d[BOUND_VALUE], b.d[BOUND_VALUE]);
}

static inline Dual dual_min(Dual a, Dual b)
{
    return dual_neg(dual_max(dual_neg(a), dual_neg(b)));
}

static inline Dual dual_atan2(Dual y, Dual x)
{
    double n = hypot(y.v, x.v);
    return dual_chain2(y, x, atan2(y.v, x.v), n == 0 ? 0 : x.v / n / n, n == 0 ? 0 : -(y.v / n / n));
}

/* Integer operations on numbers: they round towards minus infinity and carry no direction. */
/* By zero, which integers of the call may be: zero. */
static inline double floor_div(double a, double b) { return b == 0 ? 0 : floor(a / b); }
static inline double floor_mod(double a, double b) { return b == 0 ? 0 : a - b * floor(a / b); }
static inline Dual dual_idiv(Dual a, Dual b) { return dual_of(floor_div(a.v, b.v)); }

/* What is left of a real number, with the sign of b: less as many b as a - rest has. */
static inline double rest_of(double a, double b)
{
    double magnitude = b == 0 ? 0 : fmod(fabs(a), fabs(b));
    if (magnitude != 0 && (a < 0) != (b < 0))
        magnitude = fabs(b) - magnitude;
    return copysign(magnitude, b);
}
static inline Dual dual_mod(Dual a, Dual b)
{
    double rest = rest_of(a.v, b.v);
    return dual_chain2(a, b, rest, b.v != 0, b.v == 0 ? 0 : -nearbyint((a.v - rest) / b.v));
}

static inline Dual dual_real(Dual a) { return a; }
static inline Dual dual_stop(Dual a) { return dual_plain(a); }
static inline Dual dual_ste(Dual y, Dual x)
{
    return dual_with_error(dual_chain(x, y.v, 1), y.d[BOUND_VALUE], 0);
}

static inline Dual dual_exp(Dual a)
{
    double v = exp(a.v);
    return dual_chain(a, v, v);
}

static inline Dual dual_log(Dual a) { return dual_chain(a, log(a.v), 1 / a.v); }
static inline Dual dual_log1p(Dual a) { return dual_chain(a, log1p(a.v), 1 / (1 + a.v)); }
static inline Dual dual_expm1(Dual a) { return dual_chain_of_value(a, expm1(a.v), exp(a.v)); }

static inline Dual dual_sqrt(Dual a)
{
    double v = sqrt(a.v);
    return dual_chain(a, v, v == 0 ? 0 : 0.5 / v);
}

static inline Dual dual_rsqrt(Dual a)
{
    double v = 1 / sqrt(a.v);
    return dual_chain(a, v, -0.5 * v / a.v);
}

static inline double sign_of(double x) { return isnan(x) ? x : (x > 0) - (x < 0); }

static inline Dual dual_abs(Dual a)
{
    return dual_with_error(dual_chain(a, fabs(a.v), sign_of(a.v)), a.d[BOUND_VALUE], 0);
}
static inline Dual dual_sign(Dual a) { return dual_of(sign_of(a.v)); }
static inline Dual dual_floor(Dual a) { return dual_of(floor(a.v)); }
static inline double nearest_even(double x)
{
    double down = floor(x), half = x - down;
    return half < 0.5 || (half == 0.5 && fmod(down, 2) == 0) ? copysign(down, x) : isfinite(x) ? copysign(down + 1, x) : x;
}
static inline Dual dual_ceil(Dual a) { return dual_of(-floor(-a.v)); }
static inline Dual dual_round(Dual a) { return dual_of(nearest_even(a.v)); }
static inline Dual dual_sin(Dual a) { return dual_chain(a, sin(a.v), cos(a.v)); }
static inline Dual dual_cos(Dual a) { return dual_chain(a, cos(a.v), -sin(a.v)); }

static inline Dual dual_tan(Dual a)
{
    double c = cos(a.v);
    return dual_chain(a, tan(a.v), 1 / (c * c));
}

static inline Dual dual_atan(Dual a) { return dual_chain(a, atan(a.v), 1 / hypot(1, a.v) / hypot(1, a.v)); }
static inline Dual dual_sinh(Dual a) { return dual_chain(a, sinh(a.v), cosh(a.v)); }
static inline Dual dual_cosh(Dual a) { return dual_chain(a, cosh(a.v), sinh(a.v)); }

static inline Dual dual_tanh(Dual a)
{
    double c = cosh(a.v);
    return dual_chain_of_value(a, tanh(a.v), 1 / (c * c));
}

/* Both branches take the exponential of a negative number, so that neither overflows. */
static inline double logistic(double x)
{
    double e = exp(-fabs(x));
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

static inline Dual dual_sigmoid(Dual a)
{
    return dual_chain_of_value(a, logistic(a.v), logistic(a.v) * logistic(-a.v));
}

static inline double log_one_plus_exp(double x) { return (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }

static inline Dual dual_softplus(Dual a)
{
    return dual_chain_of_value(a, isnan(a.v) ? a.v : log_one_plus_exp(a.v), logistic(a.v));
}

static inline Dual dual_logsigmoid(Dual a)
{
    return dual_chain_of_value(a, isnan(a.v) ? a.v : -log_one_plus_exp(-a.v), logistic(-a.v));
}

/* x * sigmoid(x) with the limit 0 at minus infinity. */
static inline Dual dual_silu(Dual a)
{
    if (a.v == -INFINITY)
        return dual_of(0);
    double s = logistic(a.v), c = logistic(-a.v);
    return dual_chain_of_value(a, a.v * s, c == 0 ? s : s + a.v * s * c);
}

static inline Dual dual_relu(Dual a)
{
    return dual_with_error(dual_chain(a, a.v < 0 ? 0 : a.v, a.v > 0), a.d[BOUND_VALUE], 0);
}

static inline Dual dual_gelu(Dual a)
{
    double x = a.v, phi = 0.5 * erfc(-x * 0.70710678118654752440);
    double density = 0.39894228040143267794 * exp(-0.5 * x * x);
    if (x == -INFINITY)
        return dual_of(0);
    return dual_chain_of_value(a, x * phi, phi + (density == 0 ? 0 : x * density));
}

static inline Dual dual_gelu_tanh(Dual a)
{
    const double root = 0.79788456080286535588, cubic = 0.044715;
    double x = a.v, inner = root * (x + cubic * x * x * x), c = cosh(inner);
    double upper = logistic(2 * inner);       /* (1 + tanh(inner)) / 2 without cancellation */
    double bend = isinf(c) ? 0 : 0.5 * x * root * (1 + 3 * cubic * x * x) / (c * c);
    if (x == -INFINITY)
        return dual_of(0);
    return dual_chain_of_value(a, x * upper, upper + bend);
}

static inline Dual dual_softsign(Dual a)
{
    double n = 1 + fabs(a.v);
    return dual_chain(a, isinf(a.v) ? sign_of(a.v) : a.v / n, 1 / (n * n));
}

static inline Dual dual_elu(Dual a)
{
    return a.v > 0 ? a : dual_chain_of_value(a, expm1(a.v), exp(a.v));
}

static inline Dual dual_leaky_relu(Dual a, Dual b)
{
    return a.v > 0 ? a : dual_mul(b, a);
}

static inline Dual dual_hardtanh(Dual a)
{
    double v = a.v < -1 ? -1 : a.v > 1 ? 1 : a.v;
    return dual_with_error(dual_chain(a, v, a.v > -1 && a.v < 1), a.d[BOUND_VALUE], 0);
}

/* x tanh(softplus(x)) with the limit 0 at minus infinity; the slope of tanh as 1/cosh^2. */
static inline Dual dual_mish(Dual a)
{
    double soft = isnan(a.v) ? a.v : log_one_plus_exp(a.v), gate = tanh(soft), c = cosh(soft);
    if (a.v == -INFINITY)
        return dual_of(0);
    return dual_chain_of_value(a, a.v * gate, gate + (isinf(c) ? 0 : a.v * logistic(a.v) / c / c));
}

static inline Dual dual_erf(Dual a)
{
    return dual_chain(a, erf(a.v), 1.12837916709551257390 * exp(-a.v * a.v));
}

/* Inside and at the bounds the slope towards x is 1; outside it is 1 towards the bound that holds. */
static inline Dual dual_clamp(Dual x, Dual lo, Dual hi)
{
    double bound = fmax(lo.d[BOUND_VALUE], hi.d[BOUND_VALUE]);
    Dual r = isnan(x.v) ? x : x.v < lo.v ? lo : x.v > hi.v ? hi : x;
    return dual_with_error(r, x.d[BOUND_VALUE], bound);
}

#endif
