/* One function of `real` per operator of the language, named as its row of the operator table spells it.
 * Included by cell_cpu.h. Guaranteed: within a few ulp over the whole range, the right limits at
 * infinities and large arguments, NaN in gives NaN out. */
#ifndef CELL_CPU_MATH_H
#define CELL_CPU_MATH_H

#if CELL_CPU_DOUBLE
#define CELL_CPU_LIBM(name) name
#else
#define CELL_CPU_LIBM(name) name##f
#endif
#define CELL_CPU_OF_LIBM(name, function)                                                                     \
    static inline real cell_##name(real x)                                                                   \
    {                                                                                                        \
        return CELL_CPU_LIBM(function)(x);                                                                   \
    }
CELL_CPU_OF_LIBM(erf, erf)
CELL_CPU_OF_LIBM(erfc, erfc)
CELL_CPU_OF_LIBM(sqrt, sqrt)
CELL_CPU_OF_LIBM(fabs, fabs)
CELL_CPU_OF_LIBM(rint, rint)
CELL_CPU_OF_LIBM(floor, floor)
CELL_CPU_OF_LIBM(ceil, ceil)
CELL_CPU_OF_LIBM(sin, sin)
CELL_CPU_OF_LIBM(cos, cos)
CELL_CPU_OF_LIBM(tan, tan)
CELL_CPU_OF_LIBM(atan, atan)
CELL_CPU_OF_LIBM(sinh, sinh)
CELL_CPU_OF_LIBM(cosh, cosh)
#undef CELL_CPU_OF_LIBM

#if CELL_CPU_DOUBLE
typedef int64_t cell_whole;
typedef uint64_t cell_word;
#else
typedef int32_t cell_whole;
typedef uint32_t cell_word;
#endif
static inline cell_word cell_bits(real x)
{
    cell_word bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline real cell_from_bits(cell_word bits)
{
    real x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
#define E_FUNCTION static inline
#define E_NAME(name) cell_##name
#define E_REAL real
#define E_INT cell_whole
#define E_WORD cell_word
#define E_OF(x) (x)
#define E_WORDS(x) ((cell_word)(x))
#define E_BITS(x) cell_bits(x)
#define E_FROM(x) cell_from_bits(x)
#define E_FMA(a, b, c) CELL_FMA(a, b, c)
#define E_SELECT(m, a, b) ((m) ? (a) : (b))
#define E_OR(a, b) ((a) || (b))
#include "cell_cpu_elementary.h"

static inline real cell_rsqrt(real x)
{
    return (real)1 / cell_sqrt(x);
}
static inline real cell_atan2(real y, real x)
{
    return CELL_CPU_LIBM(atan2)(y, x);
}
static inline real cell_hypot(real x, real y)
{
    return CELL_CPU_LIBM(hypot)(x, y);
}
static inline real cell_pow(real x, real y)
{
    return CELL_CPU_LIBM(pow)(x, y);
}
static inline real cell_copysign(real x, real y)
{
    return CELL_CPU_LIBM(copysign)(x, y);
}
/* Rounded once, on any machine. */
static inline real cell_fma(real a, real b, real c)
{
    return CELL_CPU_LIBM(fma)(a, b, c);
}
static inline real cell_mul(real a, real b)
{
    return a * b;
}

/* NaN if either is NaN, as PyTorch has it and C's fmax has not. */
static inline real cell_max(real a, real b)
{
    return a > b || a != a ? a : b;
}
static inline real cell_min(real a, real b)
{
    return a < b || a != a ? a : b;
}
static inline real cell_clamp(real x, real lo, real hi)
{
    return cell_min(cell_max(x, lo), hi);
}

/* The power of two that brings |x| to between 1/2 and 1, as far as that is a normal number. */
static inline real cell_scale_of(real x)
{
    int e = 0, most = sizeof(real) == 8 ? 1022 : 126;
    CELL_CPU_LIBM(frexp)(x, &e);
    e = e < -most ? -most : e > most ? most : e;
    return x == 0 || x - x != 0 ? (real)1 : CELL_CPU_LIBM(ldexp)((real)1, -e);
}

/* log |a + ib|. Near 1 the rounding of the squares is added again. */
static inline real cell_log_hypot(real a, real b)
{
    const real p = cell_fabs(a), q = cell_fabs(b), m = p > q ? p : q, n = p > q ? q : p;
    if (m < (real)1.5 && m * m + n * n >= (real)0.5) {
        const real square = m * m, other = n * n;
        return (real)0.5 *
               cell_log1p((square - 1) + other + (cell_fma(m, m, -square) + cell_fma(n, n, -other)));
    }
    const real r = n == m ? (real)1 : n / m;
    return n == 0 ? cell_log(m) : cell_log(m) + (real)0.5 * cell_log1p(r * r);
}

/* The part of sqrt(a + ib) that is the larger one; no number at 0. */
static inline real cell_larger_root(real a, real b)
{
    const real p = cell_fabs(a), q = cell_fabs(b), m = p > q ? p : q, r = (p > q ? q : p) / m;
    return cell_sqrt(m) * cell_sqrt((real)0.5 * (cell_sqrt(1 + r * r) + (p > q ? (real)1 : r)));
}
static inline real cell_root_re(real a, real b)
{
    const real w = cell_larger_root(a, b);
    return a == 0 && b == 0 ? (real)0 : a >= 0 ? w : cell_fabs(b) / (2 * w);
}
static inline real cell_root_im(real a, real b)
{
    const real w = cell_larger_root(a, b);
    return a == 0 && b == 0 ? b : a >= 0 ? b / (2 * w) : cell_copysign(w, b);
}

/* e^a b, also where e^a alone overflows. */
static inline real cell_exp_times(real a, real b)
{
    const real e = cell_exp((real)0.5 * a);
    return b == 0 ? b : b * e * e;
}
static inline real cell_exp_re(real a, real b)
{
    return cell_exp_times(a, cell_cos(b));
}
static inline real cell_exp_im(real a, real b)
{
    return cell_exp_times(a, cell_sin(b));
}

static inline real cell_ste(real y, real x)
{
    return (void)x, y;
}
static inline real cell_override(real y, real x, real g)
{
    return (void)x, (void)g, y;
}

/* erfc keeps the tail of negative x, where 1 + erf would cancel. */
static inline real cell_gelu(real x)
{
    return cell_gated(x, (real)0.5 * cell_erfc(-x * (real)0.70710678118654752440));
}
/* 0.5 (1 + tanh(u)) is sigmoid(2 u). The polynomial is factored so that no inf - inf appears. */
static inline real cell_gelu_tanh(real x)
{
    const real u = (real)0.79788456080286535588 * x * (1 + (real)0.044715 * x * x);
    return cell_gated(x, cell_sigmoid(2 * u));
}
/* x tanh(log(1 + e^x)): the gate is n / (n + 2) with n = e^x (e^x + 2), above 0 with both divided by e^2x. */
static inline real cell_mish(real x)
{
    const real e = cell_exp(-cell_fabs(x)), square = e * e;
    const real n = x < 0 ? square + 2 * e : 1 + 2 * e, rest = x < 0 ? (real)2 : 2 * square;
    return cell_gated(x, n / (n + rest));
}
/* Beyond 2^64 it is 1 or -1 in any type, and no infinity is divided by another. */
static inline real cell_softsign(real x)
{
    const real most = (real)18446744073709551616.0, y = x > most ? most : x < -most ? -most : x;
    return y / (1 + cell_fabs(y));
}
/* What is left of a real a, with the sign of b; 0 where b is 0. */
static inline real cell_remainder(real a, real b)
{
    const real rest = b == 0 ? (real)0 : CELL_CPU_LIBM(fmod)(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
/* The sign's zero is x itself, so that NaN stays NaN. */
static inline real cell_sign(real x)
{
    return x > 0 ? (real)1 : x < 0 ? (real)-1 : x;
}
static inline real cell_elu(real x)
{
    return x > 0 ? x : cell_expm1(x);
}
static inline real cell_leaky_relu(real x, real a)
{
    return x > 0 ? x : a * x;
}
static inline real cell_hardtanh(real x)
{
    return cell_clamp(x, -1, 1);
}
static inline real cell_relu(real x)
{
    return x < 0 ? (real)0 : x;
}

#endif
