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

static inline real cell_copysign(real x, real y)
{
    return CELL_CPU_LIBM(copysign)(x, y);
}

/* ---- the error function. Coefficients: scripts/cpu_math.py, which says their errors too. */

#if CELL_CPU_DOUBLE
enum { CELL_CPU_HALF_MANTISSA = 27 };
static const real cell_cpu_of_erf[] = {
    1.128379167095512567,    -0.3761263890318354044,    0.1128379167094500627,    -0.02686617064323777036,
    0.005223977607116422732, -0.0008548325975389692081, 0.0001205529490483970792, -0.00001492473690741966034,
    1.644742470331736241e-6, -1.62084838018717059e-7,   1.37200645467776856e-8,   -7.795898827002142242e-10
};
static const real cell_cpu_of_erfc[] = {
    1.232995118625552526,     -0.1396211168405615501,     0.01537965210261356485,
    0.06809705425456201901,   -0.1010390660359063672,     0.09373283500354308058,
    -0.06633036582240782979,  0.03716751544340617083,     -0.01619773392192027874,
    0.005031970907237180063,  -0.0007577743555898977726,  -0.0001992621537876139658,
    0.0001506269023352666702, -0.00002437939613585031128, -0.00001123825935551721825,
    5.665162424727986119e-6,  3.250627141241863839e-7,    -7.654962340849748104e-7,
    4.006400806776260706e-8,  6.61919565432773826e-8
};
#else
enum { CELL_CPU_HALF_MANTISSA = 12 };
static const real cell_cpu_of_erf[] = { 1.128379166f,    -0.3761262667f,    0.1128359472f,  -0.02685421201f,
                                        0.005189087423f, -0.0008016864287f, 7.875875063e-5f };
static const real cell_cpu_of_erfc[] = { 1.232995119f,    -0.1396210941f, 0.01537955496f,  0.06809557235f,
                                         -0.1010379241f,  0.09375954167f, -0.06631587649f, 0.03698994724f,
                                         -0.01642949371f, 0.005390008397f };
#endif
#define CELL_CPU_TERMS(of) ((int)(sizeof(of) / sizeof *(of)))

static inline real cell_cpu_polynomial(const real *c, int n, real x)
{
    real y = c[n - 1];
    for (int i = n - 2; i >= 0; i--)
        y = CELL_FMA(y, x, c[i]);
    return y;
}

/* a^2 - square, which is what rounding took. */
static inline real cell_cpu_square_rest(real a, real square)
{
#ifdef __FMA__
    return CELL_FMA(a, a, -square);
#else
    const cell_word mask = ~(((cell_word)1 << CELL_CPU_HALF_MANTISSA) - 1);
    const real high = cell_from_bits(cell_bits(a) & mask), low = a - high;
    return ((high * high - square) + 2 * high * low) + low * low;
#endif
}

/* Of x >= 0.8. */
static inline real cell_cpu_erfc_tail(real x)
{
    const real most = sizeof(real) == 8 ? (real)27.3 : (real)10.1, a = x > most ? most : x,
               y = (a - 4) / (a + 4), square = a * a;
    const real p = cell_cpu_polynomial(cell_cpu_of_erfc, CELL_CPU_TERMS(cell_cpu_of_erfc), y);
    const real bell = cell_exp(-square);
    return CELL_FMA(-bell, cell_cpu_square_rest(a, square), bell) * (p / (1 + 2 * a));
}

static inline real cell_cpu_erf_near(real x)
{
    return x * cell_cpu_polynomial(cell_cpu_of_erf, CELL_CPU_TERMS(cell_cpu_of_erf), x * x);
}

static inline real cell_erf(real x)
{
    const real a = cell_fabs(x), tail = cell_copysign(1 - cell_cpu_erfc_tail(a), x);
    return a <= (real)0.85 ? cell_cpu_erf_near(x) : tail;
}

static inline real cell_erfc(real x)
{
    const real a = cell_fabs(x), tail = cell_cpu_erfc_tail(a);
    return a <= (real)0.85 ? 1 - cell_cpu_erf_near(x) : x < 0 ? 2 - tail : tail;
}

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
/* A constant exponent of a half is a root, but for zeros below 0 and for -inf: a vector of numbers, and
 * within half a unit of the last place. */
static inline real cell_pow(real x, real y)
{
    if (__builtin_constant_p(y) && y == (real)0.5)
        return x == -(real)INFINITY ? (real)INFINITY : cell_sqrt(x + (real)0);
    return CELL_CPU_LIBM(pow)(x, y);
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

/* NaN if either is NaN, as PyTorch has it and C's fmax has not. Without a branch, which || would be; the inner
 * choice is one instruction where processors have a maximum that gives b where there is none. */
static inline real cell_max(real a, real b)
{
    const real most = a > b ? a : b;
    return a != a ? a : most;
}
static inline real cell_min(real a, real b)
{
    const real least = a < b ? a : b;
    return a != a ? a : least;
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
