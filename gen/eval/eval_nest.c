/* eval_nest.c: arithmetic on numbers with levels. In come plain numbers and such with levels; out goes the
 * function's value with f(x + y e) = f(x) + f'(x) y e for each level, where f'(x) is evaluated on numbers of the
 * levels below, so that derivatives of derivatives are exact. The slopes are written here for themselves: neither
 * the compiler's operator table nor its adjoints are used. */
#include "eval.h"
#include "eval_nest.h"

#include <string.h>

enum { TAILS_PER_BLOCK = 1024 };

static const Tail *new_tail(Nest *n, int level, Dual factor, const Tail *next)
{
    if (n->used == n->blocks.len * TAILS_PER_BLOCK) {
        Tail *block = arena_alloc(n->arena, sizeof *block * TAILS_PER_BLOCK);
        vec_push(n->arena, &n->blocks, block);
    }
    Tail *t = &n->blocks.data[n->used / TAILS_PER_BLOCK][n->used % TAILS_PER_BLOCK];
    n->used++;
    *t = (Tail){level, factor, next};
    return t;
}

void nest_reset(Nest *n)
{
    n->used = 0;
}

static bool is_zero(Dual a)
{
    bool zero = a.v == 0 && !a.tail;
    for (int k = 0; k < DUAL_K; k++)
        zero = zero && a.d[k] == 0;
    return zero;
}

static int top_level(Dual a)
{
    return a.tail ? a.tail->level : 0;
}

static Dual below(Dual a, int level)
{
    if (top_level(a) == level)
        a.tail = a.tail->next;
    return a;
}

static Dual with(Nest *n, Dual a, int level, Dual factor)
{
    if (!is_zero(factor))
        a.tail = new_tail(n, level, factor, a.tail);
    return a;
}

Dual nest_vary(Nest *n, Dual a, int level)
{
    return with(n, a, level, dual_of(1));
}

Dual nest_factor(Dual a, int level)
{
    return level && top_level(a) == level ? a.tail->factor : dual_of(0);
}

static Dual sum(Nest *n, Dual a, Dual b)
{
    int la = top_level(a), lb = top_level(b), level = la > lb ? la : lb;
    if (level == 0)
        return dual_add(a, b);    /* its slopes are never off */
    Dual r = sum(n, below(a, level), below(b, level));
    return with(n, r, level, sum(n, nest_factor(a, level), nest_factor(b, level)));
}

/* ---- bounds: a function is taken somewhere between what its arguments may be */

static Dual moved(Dual a, double sign, bool varied)
{
    Dual r = dual_of(a.v + sign * EVAL_ROUNDING * a.d[BOUND_VALUE]);
    r.d[BOUND_PATHS] = varied;
    return r;
}

static bool has_bounds(Dual a)
{
    return dual_magnitudes && (a.d[BOUND_PATHS] != 0 || a.d[BOUND_OPERATIONS] != 0 || a.d[BOUND_VALUE] != 0);
}

/* The slope on which paths come in from an argument may be off by so much, in roundings. */
static void add_slope_error(Dual *r, double error, Dual a)
{
    if (error > 0)
        r->d[BOUND_OPERATIONS] += error * (a.d[BOUND_PATHS] + EVAL_ROUNDING * a.d[BOUND_OPERATIONS]);
}

/* What is seen at the corners of the arguments' errors: of the value, and of the slope towards one argument. It
 * includes what first order does not show where a slope is zero. */
typedef struct Corners { double value, slope; } Corners;

static void look_at(Corners *c, Dual corner, Dual here)
{
    double value = fabs(corner.v - here.v) / EVAL_ROUNDING + fabs(here.v);
    double slope = fabs(corner.d[BOUND_PATHS] - here.d[BOUND_PATHS]) / EVAL_ROUNDING;
    c->value = isfinite(value) ? fmax(c->value, value) : c->value;
    c->slope = isfinite(slope) ? fmax(c->slope, slope) : c->slope;
}

static void add_corners(Dual *r, const Corners *c, Dual a)
{
    r->d[BOUND_VALUE] = fmax(r->d[BOUND_VALUE], c->value);
    add_slope_error(r, c->slope, a);
}

static Dual bounded1(const Function1 *f, Dual a)
{
    Corners c = {0, 0};
    Dual r = f->f(a);
    if (!has_bounds(a))
        return r;
    for (int i = -1; i <= 1; i += 2)
        look_at(&c, f->f(moved(a, i, true)), f->f(moved(a, 0, true)));
    add_corners(&r, &c, a);
    return r;
}

/* The slopes of a product are its factors, and off by as much. */
static void add_factor_errors(Dual *r, Dual a, Dual b)
{
    r->d[BOUND_VALUE] += EVAL_ROUNDING * a.d[BOUND_VALUE] * b.d[BOUND_VALUE];
    add_slope_error(r, b.d[BOUND_VALUE], a);
    add_slope_error(r, a.d[BOUND_VALUE], b);
}

static Dual bounded2(const Function2 *f, Dual a, Dual b)
{
    Dual r = f->f(a, b);
    if (f->f == dual_add || f->f == dual_sub || (!has_bounds(a) && !has_bounds(b)))
        return r;
    if (f->f == dual_mul) {
        add_factor_errors(&r, a, b);
        return r;
    }
    for (int to_a = 0; to_a < 2; to_a++) {
        Corners c = {0, 0};
        for (int k = 0; k < 4; k++)
            look_at(&c, f->f(moved(a, k & 1 ? 1 : -1, to_a), moved(b, k & 2 ? 1 : -1, !to_a)),
                    f->f(moved(a, 0, to_a), moved(b, 0, !to_a)));
        add_corners(&r, &c, to_a ? a : b);
    }
    return r;
}

/* A slope times a direction: where the direction is zero the product is, whatever the slope. */
static Dual along(Nest *n, Dual slope, Dual direction)
{
    int ls = top_level(slope), ld = top_level(direction), level = ls > ld ? ls : ld;
    if (is_zero(direction))
        return dual_of(0);
    if (level == 0) {
        Dual r = dual_of(slope_times(slope.v, direction.v));
        if (dual_magnitudes) {
            dual_add_paths(&r, slope.v, direction);
            dual_add_paths(&r, direction.v, slope);
            add_factor_errors(&r, slope, direction);
            return dual_rounded(r);
        }
        for (int k = 0; k < DUAL_K; k++)
            r.d[k] = slope_times(slope.v, direction.d[k]) +
                     (slope.d[k] == 0 ? 0 : slope_times(slope.d[k], direction.v));
        return r;
    }
    Dual s = below(slope, level), d = below(direction, level);
    Dual up = sum(n, along(n, nest_factor(slope, level), d), along(n, s, nest_factor(direction, level)));
    return with(n, along(n, s, d), level, up);
}

Dual nest_shift(Nest *n, Dual a, int power)
{
    Dual r = dual_of(ldexp(a.v, power));
    for (int k = 0; k < DUAL_K; k++)
        r.d[k] = ldexp(a.d[k], power);
    if (!a.tail)
        return r;
    r = nest_shift(n, (Dual){a.v, {0}, a.tail->next}, power);
    for (int k = 0; k < DUAL_K; k++)
        r.d[k] = ldexp(a.d[k], power);
    return with(n, r, a.tail->level, nest_shift(n, a.tail->factor, power));
}

int nest_shift_to_one(Dual a, Dual b)
{
    double larger = fmax(fabs(a.v), fabs(b.v));
    int e = 0;
    if (larger != 0 && isfinite(larger))
        frexp(larger, &e);
    return -(e / 2) * 2;
}

Dual nest_call1(Nest *n, const Function1 *f, Dual a)
{
    int level = top_level(a);
    if (level == 0)
        return bounded1(f, a);
    Dual low = below(a, level), r = nest_call1(n, f, low);
    return with(n, r, level, along(n, f->slope(n, low), nest_factor(a, level)));
}

Dual nest_call2(Nest *n, const Function2 *f, Dual a, Dual b)
{
    int la = top_level(a), lb = top_level(b), level = la > lb ? la : lb;
    if (level == 0)
        return bounded2(f, a, b);
    Dual x = below(a, level), y = below(b, level), r = nest_call2(n, f, x, y), factor = dual_of(0);
    if (la == level)
        factor = along(n, f->slope[0](n, x, y), nest_factor(a, level));
    if (lb == level)
        factor = sum(n, factor, along(n, f->slope[1](n, x, y), nest_factor(b, level)));
    return with(n, r, level, factor);
}

/* ---- slopes ---- */

/* Places in the tables of functions below, for what slopes are made of. */
enum { EXP, LOG, SQRT, RSQRT, ABS, SIN, COS, SIGMOID, ERF, TANH, SINH, COSH, SOFTPLUS };
enum { ADD, SUB, MUL, DIV, POW };

#define SLOPE1(name) static Dual name(Nest *n, Dual a)
#define SLOPE2(name) static Dual name(Nest *n, Dual a, Dual b)
#define UNUSED2 (void)n, (void)a, (void)b

static const Function1 functions1[33];
static const Function2 functions2[12];

static Dual call(Nest *n, int f, Dual a)
{
    return nest_call1(n, &functions1[f], a);
}

static Dual scaled(Nest *n, double k, Dual a)
{
    return nest_mul(n, dual_of(k), a);
}

static Dual reciprocal(Nest *n, Dual a)
{
    return nest_div(n, dual_of(1), a);
}

static Dual sigmoid(Nest *n, Dual a)
{
    return call(n, SIGMOID, a);
}

static Dual sigmoid_of_minus(Nest *n, Dual a)
{
    return call(n, SIGMOID, scaled(n, -1, a));
}

SLOPE1(none) { (void)n, (void)a; return dual_of(0); }
SLOPE1(plus_one) { (void)n, (void)a; return dual_of(1); }
SLOPE1(minus_one) { (void)n, (void)a; return dual_of(-1); }
SLOPE1(of_log1p) { return reciprocal(n, nest_add(n, dual_of(1), a)); }
SLOPE1(of_sqrt) { return a.v == 0 ? dual_of(0) : nest_div(n, dual_of(0.5), call(n, SQRT, a)); }
SLOPE1(of_rsqrt) { return scaled(n, -0.5, nest_div(n, call(n, RSQRT, a), a)); }
SLOPE1(of_abs) { (void)n; return dual_of(sign_of(a.v)); }
SLOPE1(of_sin) { return call(n, COS, a); }
SLOPE1(of_cos) { return scaled(n, -1, call(n, SIN, a)); }
SLOPE1(of_relu) { (void)n; return dual_of(a.v > 0); }
SLOPE1(of_elu) { return a.v > 0 ? dual_of(1) : nest_exp(n, a); }

/* s (1 - s): bounds are for those who compute it so, where 1 - s cancels. */
SLOPE1(of_sigmoid)
{
    Dual s = sigmoid(n, a);
    return nest_mul(n, s, dual_magnitudes ? nest_sub(n, dual_of(1), s) : sigmoid_of_minus(n, a));
}

/* 1/cosh^2 = 4 s(2a) s(-2a) with the logistic s; bounds are for 1 - tanh^2. */
SLOPE1(of_tanh)
{
    if (dual_magnitudes) {
        Dual y = call(n, TANH, a);
        return nest_sub(n, dual_of(1), nest_mul(n, y, y));
    }
    return scaled(n, 4, of_sigmoid(n, scaled(n, 2, a)));
}

/* 1/cos^2; bounds are for 1 + tan^2, where nothing cancels. */
SLOPE1(of_tan)
{
    Dual c = call(n, COS, a);
    return reciprocal(n, nest_mul(n, c, c));
}

SLOPE1(of_atan)
{
    return reciprocal(n, nest_add(n, dual_of(1), nest_mul(n, a, a)));
}

SLOPE1(of_sinh) { return call(n, COSH, a); }
SLOPE1(of_cosh) { return call(n, SINH, a); }
SLOPE1(of_hardtanh) { (void)n; return dual_of(fabs(a.v) < 1); }

/* tanh(u) + x tanh'(u) sigmoid(x) with u = softplus(x) */
SLOPE1(of_mish)
{
    Dual u = call(n, SOFTPLUS, a), bend = nest_mul(n, of_tanh(n, u), sigmoid(n, a));
    return a.v == -INFINITY ? dual_of(0) : nest_add(n, call(n, TANH, u), nest_mul(n, a, bend));
}

SLOPE1(of_silu)
{
    return a.v == -INFINITY ? dual_of(0) : nest_add(n, sigmoid(n, a), nest_mul(n, a, of_sigmoid(n, a)));
}

static Dual bell(Nest *n, double rate, Dual a)
{
    return nest_exp(n, scaled(n, -rate, nest_mul(n, a, a)));
}

SLOPE1(of_gelu)
{
    Dual phi = nest_add(n, dual_of(0.5), scaled(n, 0.5, call(n, ERF, scaled(n, 0.70710678118654752440, a))));
    return nest_add(n, phi, scaled(n, 0.39894228040143267794, nest_mul(n, a, bell(n, 0.5, a))));
}

/* x s(u), u = 2 r (x + c x^3) */
SLOPE1(of_gelu_tanh)
{
    const double twice_root = 1.59576912160573071176, cubic = 0.044715;
    if (fabs(a.v) > 1e3)
        return dual_of(a.v > 0);      /* all else is below 1e-300 */
    Dual square = nest_mul(n, a, a);
    Dual u = scaled(n, twice_root, nest_mul(n, a, nest_add(n, dual_of(1), scaled(n, cubic, square))));
    Dual du = scaled(n, twice_root, nest_add(n, dual_of(1), scaled(n, 3 * cubic, square)));
    return nest_add(n, sigmoid(n, u), nest_mul(n, a, nest_mul(n, of_sigmoid(n, u), du)));
}

SLOPE1(of_softsign)
{
    Dual d = nest_add(n, dual_of(1), call(n, ABS, a));
    return reciprocal(n, nest_mul(n, d, d));
}

SLOPE1(of_erf)
{
    return scaled(n, 1.12837916709551257390, bell(n, 1, a));
}

SLOPE2(one) { UNUSED2; return dual_of(1); }
SLOPE2(opposite) { UNUSED2; return dual_of(-1); }
SLOPE2(nothing) { UNUSED2; return dual_of(0); }
SLOPE2(first) { UNUSED2; return a; }
SLOPE2(second) { UNUSED2; return b; }
SLOPE2(of_dividend) { (void)a; return reciprocal(n, b); }
SLOPE2(of_divisor) { return scaled(n, -1, nest_div(n, nest_div(n, a, b), b)); }

SLOPE2(of_base)
{
    if (b.v == 0)
        return dual_of(0);
    return nest_mul(n, b, nest_call2(n, &functions2[POW], a, nest_sub(n, b, dual_of(1))));
}

SLOPE2(of_exponent)
{
    if (!(a.v > 0))
        return dual_of(0);
    return nest_mul(n, nest_call2(n, &functions2[POW], a, b), call(n, LOG, a));
}

SLOPE2(of_leaky_first) { (void)n; return a.v > 0 ? dual_of(1) : b; }
SLOPE2(of_leaky_second) { (void)n, (void)b; return a.v > 0 ? dual_of(0) : a; }
SLOPE2(of_mod_first) { (void)n, (void)a; return dual_of(b.v != 0); }
SLOPE2(of_mod_second) { (void)n; return dual_of(b.v == 0 ? 0 : -nearbyint((a.v - rest_of(a.v, b.v)) / b.v)); }

static double share(double a, double b) { return a > b ? 1 : a < b ? 0 : 0.5; }
SLOPE2(of_max_first) { (void)n; return dual_of(share(a.v, b.v)); }
SLOPE2(of_max_second) { (void)n; return dual_of(share(b.v, a.v)); }

static Dual over_square(Nest *n, Dual x, Dual a, Dual b)
{
    int shift = nest_shift_to_one(a, b);
    a = nest_shift(n, a, shift);
    b = nest_shift(n, b, shift);
    Dual square = nest_add(n, nest_mul(n, a, a), nest_mul(n, b, b));
    return square.v == 0 ? dual_of(0) : nest_shift(n, nest_div(n, nest_shift(n, x, shift), square), shift);
}
SLOPE2(of_atan2_first) { return over_square(n, b, a, b); }
SLOPE2(of_atan2_second) { return over_square(n, scaled(n, -1, a), a, b); }

static const Function1 functions1[33] = {
    [EXP] = {"exp", dual_exp, nest_exp},
    [LOG] = {"log", dual_log, reciprocal},
    [SQRT] = {"sqrt", dual_sqrt, of_sqrt},
    [RSQRT] = {"rsqrt", dual_rsqrt, of_rsqrt},
    [ABS] = {"abs", dual_abs, of_abs},
    [SIN] = {"sin", dual_sin, of_sin},
    [COS] = {"cos", dual_cos, of_cos},
    [SIGMOID] = {"sigmoid", dual_sigmoid, of_sigmoid},
    [ERF] = {"erf", dual_erf, of_erf},
    [TANH] = {"tanh", dual_tanh, of_tanh},
    [SINH] = {"sinh", dual_sinh, of_sinh},
    [COSH] = {"cosh", dual_cosh, of_cosh},
    [SOFTPLUS] = {"softplus", dual_softplus, sigmoid},
    {"tan", dual_tan, of_tan},
    {"atan", dual_atan, of_atan},
    {"ceil", dual_ceil, none},
    {"hardtanh", dual_hardtanh, of_hardtanh},
    {"mish", dual_mish, of_mish},
    {"log1p", dual_log1p, of_log1p},
    {"expm1", dual_expm1, nest_exp},
    {"sign", dual_sign, none},
    {"floor", dual_floor, none},
    {"round", dual_round, none},
    {"logsigmoid", dual_logsigmoid, sigmoid_of_minus},
    {"silu", dual_silu, of_silu},
    {"relu", dual_relu, of_relu},
    {"gelu", dual_gelu, of_gelu},
    {"gelu_tanh", dual_gelu_tanh, of_gelu_tanh},
    {"softsign", dual_softsign, of_softsign},
    {"elu", dual_elu, of_elu},
    {"real", dual_real, plus_one},
    {"stop", dual_stop, none},
    {"-", dual_neg, minus_one},
};
static const Function2 functions2[12] = {
    [ADD] = {"+", dual_add, {one, one}},
    [SUB] = {"-", dual_sub, {one, opposite}},
    [MUL] = {"*", dual_mul, {second, first}},
    [DIV] = {"/", dual_div, {of_dividend, of_divisor}},
    [POW] = {"pow", dual_pow, {of_base, of_exponent}},
    {"max", dual_max, {of_max_first, of_max_second}},
    {"min", dual_min, {of_max_second, of_max_first}},
    {"atan2", dual_atan2, {of_atan2_first, of_atan2_second}},
    {"div", dual_idiv, {nothing, nothing}},
    {"mod", dual_mod, {of_mod_first, of_mod_second}},
    {"leaky_relu", dual_leaky_relu, {of_leaky_first, of_leaky_second}},
    {"ste", dual_ste, {nothing, one}},
};

const Function1 *nest_function1(const char *name)
{
    for (size_t i = 0; i < sizeof functions1 / sizeof *functions1; i++)
        if (strcmp(functions1[i].name, name) == 0)
            return &functions1[i];
    return NULL;
}

const Function2 *nest_function2(const char *name)
{
    for (size_t i = 0; i < sizeof functions2 / sizeof *functions2; i++)
        if (strcmp(functions2[i].name, name) == 0)
            return &functions2[i];
    return NULL;
}

Dual nest_add(Nest *n, Dual a, Dual b) { return nest_call2(n, &functions2[ADD], a, b); }
Dual nest_sub(Nest *n, Dual a, Dual b) { return nest_call2(n, &functions2[SUB], a, b); }
Dual nest_mul(Nest *n, Dual a, Dual b) { return nest_call2(n, &functions2[MUL], a, b); }
Dual nest_div(Nest *n, Dual a, Dual b) { return nest_call2(n, &functions2[DIV], a, b); }
Dual nest_exp(Nest *n, Dual a) { return nest_call1(n, &functions1[EXP], a); }
