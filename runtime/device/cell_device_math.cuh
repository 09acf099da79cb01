// One function per operator of the language, in float and double, for both sides of the device library.
//
// In: the C math functions, and the approximations that each side supplies (cell_detail_tanh_approx,
// _ex2_approx, _lg2_approx, _rcp_approx). Out: cell_NAME(x). Guaranteed: within a few ulp over the whole range, the right
// limits at infinities and large arguments, NaN in gives NaN out. The cell_fast_* functions are for kernels
// whose storage is bf16 or f16; their error stands beside each.
#ifndef CELL_DEVICE_MATH_CUH
#define CELL_DEVICE_MATH_CUH

#if !defined(__CUDACC__) && !defined(__CUDACC_RTC__)
#include <math.h>
#define CELL_NAN ((double)NAN)
#define CELL_INF ((double)INFINITY)
#else
#define CELL_NAN __longlong_as_double(0x7ff8000000000000ll)
#define CELL_INF __longlong_as_double(0x7ff0000000000000ll)
#endif
#define CELL_NAN_F ((float)CELL_NAN)
#define CELL_INF_F ((float)CELL_INF)

#define CELL_DEFINE_MATH1(name, f32, f64)                                                                    \
    __device__ __forceinline__ float cell_##name(float x) { return f32(x); }                                 \
    __device__ __forceinline__ double cell_##name(double x) { return f64(x); }

CELL_DEFINE_MATH1(exp, expf, exp)
CELL_DEFINE_MATH1(log, logf, log)
CELL_DEFINE_MATH1(log1p, log1pf, log1p)
CELL_DEFINE_MATH1(expm1, expm1f, expm1)
CELL_DEFINE_MATH1(sqrt, sqrtf, sqrt)
CELL_DEFINE_MATH1(fabs, fabsf, fabs)
CELL_DEFINE_MATH1(rint, rintf, rint)
CELL_DEFINE_MATH1(abs, fabsf, fabs)
CELL_DEFINE_MATH1(sin, sinf, sin)
CELL_DEFINE_MATH1(cos, cosf, cos)
CELL_DEFINE_MATH1(tanh, tanhf, tanh)
CELL_DEFINE_MATH1(erf, erff, erf)
CELL_DEFINE_MATH1(erfc, erfcf, erfc)
CELL_DEFINE_MATH1(floor, floorf, floor)
CELL_DEFINE_MATH1(ceil, ceilf, ceil)
CELL_DEFINE_MATH1(tan, tanf, tan)
CELL_DEFINE_MATH1(atan, atanf, atan)
CELL_DEFINE_MATH1(sinh, sinhf, sinh)
CELL_DEFINE_MATH1(cosh, coshf, cosh)
#undef CELL_DEFINE_MATH1

__device__ __forceinline__ float cell_rsqrt(float x) { return cell_detail_rsqrt(x); }
__device__ __forceinline__ double cell_rsqrt(double x) { return cell_detail_rsqrt(x); }

__device__ __forceinline__ float cell_atan2(float y, float x) { return atan2f(y, x); }
__device__ __forceinline__ double cell_atan2(double y, double x) { return atan2(y, x); }
__device__ __forceinline__ float cell_hypot(float x, float y) { return hypotf(x, y); }
__device__ __forceinline__ double cell_hypot(double x, double y) { return hypot(x, y); }
__device__ __forceinline__ float cell_pow(float x, float y) { return powf(x, y); }
__device__ __forceinline__ double cell_pow(double x, double y) { return pow(x, y); }
__device__ __forceinline__ float cell_detail_fmod(float x, float y) { return fmodf(x, y); }
__device__ __forceinline__ double cell_detail_fmod(double x, double y) { return fmod(x, y); }
__device__ __forceinline__ float cell_copysign(float x, float y) { return copysignf(x, y); }
__device__ __forceinline__ double cell_copysign(double x, double y) { return copysign(x, y); }
__device__ __forceinline__ float cell_fma(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double cell_fma(double a, double b, double c) { return fma(a, b, c); }

// NaN if either is NaN, as PyTorch has it and C's fmax has not.
template <class T> __device__ __forceinline__ T cell_detail_max(T a, T b) { return a > b || a != a ? a : b; }
template <class T> __device__ __forceinline__ T cell_detail_min(T a, T b) { return a < b || a != a ? a : b; }

// The power of two that brings |x| to between 1/2 and 1, as far as that is a normal number.
__device__ __forceinline__ float cell_scale_of(float x)
{
    int e = 0;
    frexpf(x, &e);
    return x == 0.0f || x - x != 0.0f ? 1.0f : ldexpf(1.0f, e < -126 ? 126 : e > 126 ? -126 : -e);
}
__device__ __forceinline__ double cell_scale_of(double x)
{
    int e = 0;
    frexp(x, &e);
    return x == 0.0 || x - x != 0.0 ? 1.0 : ldexp(1.0, e < -1022 ? 1022 : e > 1022 ? -1022 : -e);
}

// log |a + ib|. Near 1 the rounding of the squares is added again.
template <class T> __device__ __forceinline__ T cell_detail_log_hypot(T a, T b)
{
    const T p = cell_fabs(a), q = cell_fabs(b), m = p > q ? p : q, n = p > q ? q : p;
    if (m < T(1.5) && m * m + n * n >= T(0.5)) {
        const T square = m * m, other = n * n;
        return T(0.5) * cell_log1p((square - T(1)) + other + (cell_fma(m, m, -square) + cell_fma(n, n, -other)));
    }
    const T r = n == m ? T(1) : n / m;
    return n == T(0) ? cell_log(m) : cell_log(m) + T(0.5) * cell_log1p(r * r);
}

// The part of sqrt(a + ib) that is the larger one; no number at 0.
template <class T> __device__ __forceinline__ T cell_detail_larger_root(T a, T b)
{
    const T p = cell_fabs(a), q = cell_fabs(b), m = p > q ? p : q, r = (p > q ? q : p) / m;
    return cell_sqrt(m) * cell_sqrt(T(0.5) * (cell_sqrt(T(1) + r * r) + (p > q ? T(1) : r)));
}
template <class T> __device__ __forceinline__ T cell_detail_root_re(T a, T b)
{
    const T w = cell_detail_larger_root(a, b);
    return a == T(0) && b == T(0) ? T(0) : a >= T(0) ? w : cell_fabs(b) / (T(2) * w);
}
template <class T> __device__ __forceinline__ T cell_detail_root_im(T a, T b)
{
    const T w = cell_detail_larger_root(a, b);
    return a == T(0) && b == T(0) ? b : a >= T(0) ? b / (T(2) * w) : cell_copysign(w, b);
}

// e^a b, also where e^a alone overflows.
template <class T> __device__ __forceinline__ T cell_detail_exp_times(T a, T b)
{
    const T e = cell_exp(T(0.5) * a);
    return b == T(0) ? b : b * e * e;
}

// 1 / (1 + exp(-x)) with an exponential that cannot overflow; keeps its relative accuracy down to the
// smallest results.
template <class T> __device__ __forceinline__ T cell_detail_sigmoid(T x)
{
    const T e = cell_exp(-cell_fabs(x));
    return (x < T(0) ? e : T(1)) / (T(1) + e);
}

template <class T> __device__ __forceinline__ T cell_detail_softplus(T x)
{
    return cell_detail_max(x, T(0)) + cell_log1p(cell_exp(-cell_fabs(x)));
}

template <class T> __device__ __forceinline__ T cell_detail_logsigmoid(T x)
{
    return cell_detail_min(x, T(0)) - cell_log1p(cell_exp(-cell_fabs(x)));
}

// x times its gate. The gate's zero wins at -inf, where the product would be NaN.
template <class T> __device__ __forceinline__ T cell_detail_gated(T x, T gate)
{
    return gate == T(0) ? T(0) : cell_mul(x, gate);
}

template <class T> __device__ __forceinline__ T cell_detail_gelu(T x)
{
    // erfc keeps the tail of negative x, where 1 + erf would cancel.
    return cell_detail_gated(x, T(0.5) * cell_erfc(-x * T(0.70710678118654752440)));
}

template <class T> __device__ __forceinline__ T cell_detail_gelu_tanh(T x)
{
    // 0.5 * (1 + tanh(u)) is sigmoid(2 u). The polynomial is factored so that no inf - inf appears.
    const T u = T(0.79788456080286535588) * x * (T(1) + T(0.044715) * x * x);
    return cell_detail_gated(x, cell_detail_sigmoid(T(2) * u));
}

// x tanh(log(1 + e^x)): the gate is n / (n + 2) with n = e^x (e^x + 2), above 0 with both divided by e^2x.
template <class T> __device__ __forceinline__ T cell_detail_mish(T x)
{
    const T e = cell_exp(-cell_fabs(x)), square = e * e;
    const T n = x < T(0) ? square + T(2) * e : T(1) + T(2) * e, rest = x < T(0) ? T(2) : T(2) * square;
    return cell_detail_gated(x, n / (n + rest));
}

// Beyond 2^64 it is 1 or -1 in any type, and no infinity is divided by another.
template <class T> __device__ __forceinline__ T cell_detail_softsign(T x)
{
    const T most = T(18446744073709551616.0), y = x > most ? most : x < -most ? -most : x;
    return y / (T(1) + cell_fabs(y));
}

// What is left of a real a, with the sign of b; 0 where b is 0.
template <class T> __device__ __forceinline__ T cell_detail_remainder(T a, T b)
{
    const T rest = b == T(0) ? T(0) : cell_detail_fmod(a, b);
    return rest != T(0) && (rest < T(0)) != (b < T(0)) ? rest + b : rest;
}

// The sign's zero is x itself, so that NaN stays NaN.
template <class T> __device__ __forceinline__ T cell_detail_sign(T x)
{
    return x > T(0) ? T(1) : x < T(0) ? T(-1) : x;
}

#define CELL_DEFINE_FROM_DETAIL(T)                                                                           \
    __device__ __forceinline__ T cell_max(T a, T b) { return cell_detail_max(a, b); }                        \
    __device__ __forceinline__ T cell_min(T a, T b) { return cell_detail_min(a, b); }                        \
    __device__ __forceinline__ T cell_clamp(T x, T lo, T hi) { return cell_min(cell_max(x, lo), hi); }       \
    __device__ __forceinline__ T cell_log_hypot(T a, T b) { return cell_detail_log_hypot(a, b); }            \
    __device__ __forceinline__ T cell_root_re(T a, T b) { return cell_detail_root_re(a, b); }                \
    __device__ __forceinline__ T cell_root_im(T a, T b) { return cell_detail_root_im(a, b); }                \
    __device__ __forceinline__ T cell_exp_re(T a, T b) { return cell_detail_exp_times(a, cell_cos(b)); }     \
    __device__ __forceinline__ T cell_exp_im(T a, T b) { return cell_detail_exp_times(a, cell_sin(b)); }     \
    __device__ __forceinline__ T cell_ste(T y, T) { return y; }                                              \
    __device__ __forceinline__ T cell_override(T y, T, T) { return y; }                                      \
    __device__ __forceinline__ T cell_sigmoid(T x) { return cell_detail_sigmoid(x); }                        \
    __device__ __forceinline__ T cell_logsigmoid(T x) { return cell_detail_logsigmoid(x); }                  \
    __device__ __forceinline__ T cell_softplus(T x) { return cell_detail_softplus(x); }                      \
    __device__ __forceinline__ T cell_silu(T x) { return cell_detail_gated(x, cell_detail_sigmoid(x)); }     \
    __device__ __forceinline__ T cell_gelu(T x) { return cell_detail_gelu(x); }                              \
    __device__ __forceinline__ T cell_gelu_tanh(T x) { return cell_detail_gelu_tanh(x); }                    \
    __device__ __forceinline__ T cell_softsign(T x) { return cell_detail_softsign(x); }                      \
    __device__ __forceinline__ T cell_elu(T x) { return x > T(0) ? x : cell_expm1(x); }                      \
    __device__ __forceinline__ T cell_leaky_relu(T x, T a) { return x > T(0) ? x : a * x; }                  \
    __device__ __forceinline__ T cell_hardtanh(T x) { return cell_clamp(x, T(-1), T(1)); }                   \
    __device__ __forceinline__ T cell_mish(T x) { return cell_detail_mish(x); }                              \
    __device__ __forceinline__ T cell_remainder(T a, T b) { return cell_detail_remainder(a, b); }            \
    __device__ __forceinline__ T cell_sign(T x) { return cell_detail_sign(x); }                              \
    __device__ __forceinline__ T cell_relu(T x) { return x < T(0) ? T(0) : x; }

CELL_DEFINE_FROM_DETAIL(float)
CELL_DEFINE_FROM_DETAIL(double)
#undef CELL_DEFINE_FROM_DETAIL

__device__ __forceinline__ int cell_max(int a, int b) { return a > b ? a : b; }
__device__ __forceinline__ int cell_min(int a, int b) { return a < b ? a : b; }

// A place that an integer input gives: whether it is on the axis, and the place on the axis that is nearest to it,
// which may be read whatever the integer is.
__device__ __forceinline__ bool cell_inside(int64_t place, int64_t extent) { return place >= 0 && place < extent; }
__device__ __forceinline__ int64_t cell_nearest(int64_t place, int64_t extent)
{
    return place < 0 ? 0 : place < extent ? place : extent - 1;
}

// Packed sequences: the one that a row belongs to, its first row, and how many steps it has, of at most `most`. Whatever the
// numbers are, no row is outside of all `total` rows.
// The last of n for which begins(i) holds, as it does for 0 and for all before one for which it does.
template <class P> __device__ __forceinline__ int64_t cell_detail_last(int64_t n, P begins)
{
    int64_t low = 0, high = n;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (begins(middle))
            low = middle;
        else
            high = middle;
    }
    return low;
}
__device__ __forceinline__ int64_t cell_sequence_of(const int32_t *starts, int64_t sequences, int64_t row)
{
    return cell_detail_last(sequences, [&](int64_t b) { return starts[b] <= row; });
}
__device__ __forceinline__ int64_t cell_first_row(const int32_t *starts, int64_t sequence, int64_t total)
{
    return cell_nearest(starts[sequence], total + 1);
}
__device__ __forceinline__ int64_t cell_own_steps(const int32_t *starts, int64_t sequence, int64_t total,
                                                  int64_t most)
{
    const int64_t first = cell_first_row(starts, sequence, total),
                  next = cell_first_row(starts, sequence + 1, total);
    return cell_nearest(next - first, most + 1);
}

// The language's integer `/` and `%` inside brackets: the quotient is rounded down, the remainder has the
// sign of b.
template <class T> __device__ __forceinline__ T cell_detail_floordiv(T a, T b)
{
    const T q = a / b, r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? q - 1 : q;
}
__device__ __forceinline__ int cell_floordiv(int a, int b) { return cell_detail_floordiv(a, b); }
__device__ __forceinline__ int64_t cell_floordiv(int64_t a, int64_t b) { return cell_detail_floordiv(a, b); }
__device__ __forceinline__ int64_t cell_floordiv(int64_t a, int b)
{
    return cell_detail_floordiv<int64_t>(a, b);
}
__device__ __forceinline__ int64_t cell_floordiv(int a, int64_t b)
{
    return cell_detail_floordiv<int64_t>(a, b);
}
__device__ __forceinline__ int cell_floormod(int a, int b) { return a - b * cell_floordiv(a, b); }
__device__ __forceinline__ int64_t cell_floormod(int64_t a, int64_t b) { return a - b * cell_floordiv(a, b); }
__device__ __forceinline__ int64_t cell_floormod(int64_t a, int b) { return a - b * cell_floordiv(a, b); }
__device__ __forceinline__ int64_t cell_floormod(int a, int64_t b) { return a - b * cell_floordiv(a, b); }

// The same of integers that the call gives: 0 where b is 0. What leaves the 64 bits goes round, as in two's complement.
__device__ __forceinline__ int64_t cell_whole_sum(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
__device__ __forceinline__ int64_t cell_whole_difference(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}
__device__ __forceinline__ int64_t cell_whole_product(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}
__device__ __forceinline__ int64_t cell_whole_quotient(int64_t a, int64_t b)
{
    if (b == 0 || b == -1) return b ? cell_whole_difference(0, a) : 0;
    return cell_floordiv(a, b);
}
__device__ __forceinline__ int64_t cell_whole_remainder(int64_t a, int64_t b)
{
    int64_t rest = b == 0 || b == -1 ? 0 : a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

__device__ __forceinline__ int64_t cell_whole_power(int64_t a, int64_t b)
{
    int64_t power = 1;
    for (; b > 0; b--) power = cell_whole_product(power, a);
    return power;
}

// tanh to 2^-10.9 relative (one special-function operation); exactly +-1 for large |x|.
__device__ __forceinline__ float cell_fast_tanh(float x) { return cell_detail_tanh_approx(x); }

// exp to (2^-21 + |x| 2^-23) relative; results below 2^-126 are 0.
__device__ __forceinline__ float cell_fast_exp(float x)
{
    return cell_detail_ex2_approx(x * 1.4426950408889634f);
}

// sigmoid to 2^-18 relative for |x| < 16 (two special-function operations); 0 below about -88.
__device__ __forceinline__ float cell_fast_sigmoid(float x)
{
    return cell_detail_rcp_approx(1.0f + cell_detail_ex2_approx(x * -1.4426950408889634f));
}

// log(sigmoid(x)) to 2^-11 relative and 2^-20 absolute, for x above -1; below, to 2^-20 relative. Near 1, a logarithm's
// error is absolute: where exp(-x) is small, two terms of the series are better.
__device__ __forceinline__ float cell_fast_logsigmoid(float x)
{
    const float e = cell_detail_ex2_approx(fabsf(x) * -1.4426950408889634f);
    const float log = e < 0x1p-10f ? e - 0.5f * e * e : 0.69314718055994531f * cell_detail_lg2_approx(1.0f + e);
    return (x < 0 ? x : 0.0f) - log;
}

// sigmoid to 2^-11.9 absolute with one special-function operation. Not for gates that are multiplied over
// many steps.
__device__ __forceinline__ float cell_coarse_sigmoid(float x)
{
    return cell_fma(0.5f, cell_detail_tanh_approx(0.5f * x), 0.5f);
}

// a / b to 2 ulp where |b| is in 2^-126 .. 2^126.
__device__ __forceinline__ float cell_fast_div(float a, float b) { return cell_mul(a, cell_detail_rcp_approx(b)); }
__device__ __forceinline__ float cell_fast_silu(float x) { return cell_mul(x, cell_fast_sigmoid(x)); }

// erfc(x) for x >= 0: a formula of 1.5e-7 absolute (Abramowitz, Stegun 1964, 7.1.26).
__device__ __forceinline__ float cell_detail_fast_erfc(float x)
{
    const float t = cell_detail_rcp_approx(1.0f + 0.3275911f * x);
    const float p = (((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t;
    return (p + 0.254829592f) * t * cell_detail_ex2_approx(-1.4426950408889634f * x * x);
}

// erf to 2^-19 absolute (its exponential and reciprocal are approximate too), and x Phi(x) to 2^-20 |x|.
__device__ __forceinline__ float cell_fast_erf(float x)
{
    const float tail = cell_detail_fast_erfc(cell_fabs(x));
    return x < 0.0f ? tail - 1.0f : 1.0f - tail;
}

// What both sides of the normal distribution have in common, of a = |x|: the density exp(-x^2 / 2), and what the tail's area
// Phi(-a) is over that (Abramowitz, Stegun 1964, 26.2.17, their factor 1 / sqrt(2 pi) in the coefficients; 7.5e-8 absolute).
struct cell_detail_normal {
    float bell, tail;
};
__device__ __forceinline__ cell_detail_normal cell_detail_fast_normal(float a)
{
    const float t = cell_detail_rcp_approx(cell_fma(0.2316419f, a, 1.0f));
    const float p = (((0.5307027145f * t - 0.7265760135f) * t + 0.7107068705f) * t - 0.142248368f) * t;
    return {cell_detail_ex2_approx(-0.72134752f * a * a), (p + 0.127414796f) * t};
}
// x Phi(x): of a negative x it is -|x| Phi(-|x|), of a positive one x less than that. Beyond 40 the tail is 0.
__device__ __forceinline__ float cell_fast_gelu(float x)
{
    const float a = cell_detail_min_number(cell_fabs(x), 40.0f);
    const cell_detail_normal normal = cell_detail_fast_normal(a);
    return cell_fma(-a, cell_mul(normal.tail, normal.bell), cell_detail_positive(x));
}
// Its derivative Phi(x) + x exp(-x^2 / 2) / sqrt(2 pi), to 2^-19 absolute.
__device__ __forceinline__ float cell_fast_gelu_slope(float x)
{
    const float a = cell_fabs(x);
    const cell_detail_normal normal = cell_detail_fast_normal(a);
    const float low = cell_mul(cell_fma(-0.39894228f, a, normal.tail), normal.bell);
    return x < 0.0f ? low : 1.0f - low;
}

// sqrt to 2^-22 relative.
__device__ __forceinline__ float cell_fast_sqrt(float x) { return cell_detail_sqrt_approx(x); }

// A double kernel is never fast.
__device__ __forceinline__ double cell_fast_sqrt(double x) { return cell_sqrt(x); }
__device__ __forceinline__ double cell_fast_div(double a, double b) { return a / b; }
__device__ __forceinline__ double cell_fast_erf(double x) { return cell_erf(x); }
__device__ __forceinline__ double cell_fast_gelu(double x) { return cell_gelu(x); }
__device__ __forceinline__ double cell_fast_gelu_slope(double x)
{
    return 0.5 * cell_erfc(-0.70710678118654752440 * x) + x * (0.39894228040143267794 * cell_exp(-0.5 * x * x));
}
__device__ __forceinline__ double cell_fast_silu(double x) { return cell_silu(x); }
__device__ __forceinline__ double cell_fast_tanh(double x) { return cell_tanh(x); }
__device__ __forceinline__ double cell_fast_exp(double x) { return cell_exp(x); }
__device__ __forceinline__ double cell_fast_sigmoid(double x) { return cell_sigmoid(x); }
__device__ __forceinline__ double cell_fast_logsigmoid(double x) { return cell_logsigmoid(x); }
__device__ __forceinline__ double cell_coarse_sigmoid(double x) { return cell_sigmoid(x); }

#endif
