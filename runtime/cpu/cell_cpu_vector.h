/* Vectors of `real` for walks on the CPU: 64 bytes each, by the vector extensions of GCC and clang,
 * which split them where registers are shorter (compile with -Wno-psabi: no vector is passed from one
 * file to another). The order of a sum over lanes is fixed. Functions are those of
 * cell_cpu_elementary.h, or those of numbers, lane by lane. */
#ifndef CELL_CPU_VECTOR_H
#define CELL_CPU_VECTOR_H

#include <math.h>
#include <string.h>

/* A number of a row is a variable, whether anything reads it or only what it is stored in. */
#pragma GCC diagnostic ignored "-Wunused-variable"
#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>
#endif

#define CELL_V static inline __attribute__((always_inline, unused))

typedef real cell_v __attribute__((vector_size(64)));
enum { CELL_W = 64 / (int)sizeof(real) };
#if CELL_CPU_DOUBLE
typedef int64_t cell_m __attribute__((vector_size(64)));
#else
typedef int32_t cell_m __attribute__((vector_size(64)));
#endif

CELL_V cell_v cell_v_of(real x)
{
    return x - (cell_v){ 0 }; /* which compilers know to be x */
}
CELL_V cell_m cell_m_of(int condition)
{
    return (cell_m){ 0 } - (condition != 0);
}
CELL_V cell_v cell_v_load(const real *p)
{
    cell_v x;
    memcpy(&x, p, sizeof x);
    return x;
}
CELL_V void cell_v_store(real *p, cell_v x)
{
    memcpy(p, &x, sizeof x);
}
CELL_V void cell_v_fill(real *p, int n, real x)
{
    for (int c = 0; c < n; c += CELL_W)
        cell_v_store(p + c, cell_v_of(x));
}

/* a where the mask is set, else b. */
CELL_V cell_v cell_v_select(cell_m m, cell_v a, cell_v b)
{
    return (cell_v)(((cell_m)a & m) | ((cell_m)b & ~m));
}
/* The first n lanes of x, and `rest` behind them. */
CELL_V cell_v cell_v_first(cell_v x, int n, real rest)
{
    for (int l = n; l < CELL_W; l++)
        x[l] = rest;
    return x;
}

#if CELL_CPU_DOUBLE
#define CELL_V512(x) ((__m512d)(x))
#define CELL_V_FMA512(a, b, c) ((cell_v)_mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c)))
#define CELL_V_FMA256 _mm256_fmadd_pd
#define CELL_V_HALF __m256d
#else
#define CELL_V_FMA512(a, b, c) ((cell_v)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define CELL_V_FMA256 _mm256_fmadd_ps
#define CELL_V_HALF __m256
#endif

/* a * b + c, rounded once where the processor has it. */
CELL_V cell_v cell_v_fma(cell_v a, cell_v b, cell_v c)
{
#if defined(__AVX512F__)
    return CELL_V_FMA512(a, b, c);
#elif defined(__AVX2__) && defined(__FMA__)
    union {
        cell_v v;
        CELL_V_HALF h[2];
    } x = { a }, y = { b }, z = { c };
    z.h[0] = CELL_V_FMA256(x.h[0], y.h[0], z.h[0]);
    z.h[1] = CELL_V_FMA256(x.h[1], y.h[1], z.h[1]);
    return z.v;
#elif !defined(__FMA__)
    return a * b + c; /* lane by lane clang makes no vectors of it */
#else
    for (int l = 0; l < CELL_W; l++)
        c[l] = CELL_FMA(a[l], b[l], c[l]);
    return c;
#endif
}

/* ---- over lanes: halves are put together, until one is left ---- */

typedef real cell_eight __attribute__((vector_size(8 * sizeof(real))));
typedef real cell_four __attribute__((vector_size(4 * sizeof(real))));

CELL_V cell_four cell_v_fold(cell_v x)
{
#if CELL_CPU_DOUBLE
    union {
        cell_v v;
        cell_four h[2];
    } a = { x };
    return a.h[0] + a.h[1];
#else
    union {
        cell_v v;
        cell_eight h[2];
    } a = { x };
    union {
        cell_eight v;
        cell_four h[2];
    } b = { a.h[0] + a.h[1] };
    return b.h[0] + b.h[1];
#endif
}
CELL_V real cell_v_sum(cell_v x)
{
    const cell_four a = cell_v_fold(x);
    return (a[0] + a[2]) + (a[1] + a[3]);
}
/* Those of four vectors, in the same order. */
CELL_V cell_four cell_v_sum_four(cell_v w, cell_v x, cell_v y, cell_v z)
{
    const cell_four a = cell_v_fold(w), b = cell_v_fold(x), c = cell_v_fold(y), d = cell_v_fold(z);
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define CELL_V_SHUFFLES 1
#endif
#endif
#ifdef CELL_V_SHUFFLES
    const cell_four p = __builtin_shufflevector(a, b, 0, 4, 1, 5),
                    q = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const cell_four r = __builtin_shufflevector(a, b, 2, 6, 3, 7),
                    s = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    const cell_four e = p + r, f = q + s; /* lanes 0 + 2 of the first two, lanes 1 + 3 */
    return __builtin_shufflevector(e, f, 0, 1, 4, 5) + __builtin_shufflevector(e, f, 2, 3, 6, 7);
#else
    return (cell_four){ (a[0] + a[2]) + (a[1] + a[3]), (b[0] + b[2]) + (b[1] + b[3]),
                        (c[0] + c[2]) + (c[1] + c[3]), (d[0] + d[2]) + (d[1] + d[3]) };
#endif
}
CELL_V void cell_four_store(real *p, cell_four x)
{
    memcpy(p, &x, sizeof x);
}
CELL_V real cell_v_product(cell_v x)
{
    real y = x[0];
    for (int l = 1; l < CELL_W; l++)
        y *= x[l];
    return y;
}
CELL_V real cell_v_most(cell_v x)
{
    real y = x[0];
    for (int l = 1; l < CELL_W; l++)
        y = cell_max(y, x[l]);
    return y;
}
CELL_V real cell_v_least(cell_v x)
{
    real y = x[0];
    for (int l = 1; l < CELL_W; l++)
        y = cell_min(y, x[l]);
    return y;
}

/* ---- what is stored in other types ---- */

#define CELL_V_ELEMENT(name, type)                                                                           \
    CELL_V cell_v cell_v_get_##name(const type *p, int n)                                                    \
    {                                                                                                        \
        real a[CELL_W] = { 0 };                                                                              \
        cell_v x;                                                                                            \
        CELL_LANES                                                                                           \
        for (int l = 0; l < n; l++)                                                                          \
            a[l] = (real)cell_load_##name(p + l);                                                            \
        memcpy(&x, a, sizeof x);                                                                             \
        return x;                                                                                            \
    }                                                                                                        \
    CELL_V void cell_v_put_##name(type *p, cell_v x, int n)                                                  \
    {                                                                                                        \
        real a[CELL_W];                                                                                      \
        memcpy(a, &x, sizeof a);                                                                             \
        CELL_LANES                                                                                           \
        for (int l = 0; l < n; l++)                                                                          \
            cell_store_##name(p + l, a[l]);                                                                  \
    }
CELL_V_ELEMENT(f32, float)
CELL_V_ELEMENT(f64, double)
CELL_V_ELEMENT(bf16, uint16_t)
CELL_V_ELEMENT(f16, uint16_t)

#define CELL_V_CODES(name)                                                                                   \
    CELL_V cell_v cell_v_get_##name(const uint8_t *p, int n)                                                 \
    {                                                                                                        \
        real a[CELL_W] = { 0 };                                                                              \
        cell_v x;                                                                                            \
        CELL_LANES                                                                                           \
        for (int l = 0; l < n; l++)                                                                          \
            a[l] = cell_load_##name(p + l);                                                                  \
        memcpy(&x, a, sizeof x);                                                                             \
        return x;                                                                                            \
    }
CELL_V_CODES(e4m3)
CELL_V_CODES(e5m2)

CELL_V cell_v cell_v_get_i32(const int32_t *p, int n)
{
    cell_v x = { 0 };
    for (int l = 0; l < n; l++)
        x[l] = (real)p[l];
    return x;
}

/* Rows that lie one behind the other, and `pitch` apart in scratch memory. */
CELL_V void cell_rows_get(real *to, const real *from, int rows, int cols, int pitch)
{
    for (int r = 0; r < rows; r++) {
        memcpy(to + r * pitch, from + r * cols, sizeof *to * (size_t)cols);
        for (int c = cols; c < pitch; c++)
            to[r * pitch + c] = 0;
    }
}
CELL_V void cell_rows_put(real *to, const real *from, int rows, int cols, int pitch, int adds)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++)
            to[r * cols + c] = adds ? to[r * cols + c] + from[r * pitch + c] : from[r * pitch + c];
}

/* ---- functions ---- */

#if CELL_CPU_DOUBLE
typedef uint64_t cell_words __attribute__((vector_size(64)));
#else
typedef uint32_t cell_words __attribute__((vector_size(64)));
#endif
#define E_FUNCTION CELL_V
#define E_NAME(name) cell_v_##name
#define E_REAL cell_v
#define E_INT cell_m
#define E_WORD cell_words
#define E_OF(x) cell_v_of(x)
#define E_WORDS(x) ((cell_words){ 0 } + (cell_word)(x))
#define E_BITS(x) ((cell_words)(x))
#define E_FROM(x) ((cell_v)(x))
#define E_FMA(a, b, c) cell_v_fma(a, b, c)
#define E_SELECT(m, a, b) cell_v_select(m, a, b)
#define E_OR(a, b) ((a) | (b))
#include "cell_cpu_elementary.h"

/* Lane by lane. */

#define CELL_V_1(name)                                                                                       \
    CELL_V cell_v cell_v_##name(cell_v x)                                                                    \
    {                                                                                                        \
        real a[CELL_W];                                                                                      \
        memcpy(a, &x, sizeof a);                                                                             \
        CELL_LANES                                                                                           \
        for (int l = 0; l < CELL_W; l++)                                                                     \
            a[l] = cell_##name(a[l]);                                                                        \
        memcpy(&x, a, sizeof a);                                                                             \
        return x;                                                                                            \
    }
#define CELL_V_2(name)                                                                                       \
    CELL_V cell_v cell_v_##name(cell_v x, cell_v y)                                                          \
    {                                                                                                        \
        real a[CELL_W], b[CELL_W];                                                                           \
        memcpy(a, &x, sizeof a);                                                                             \
        memcpy(b, &y, sizeof b);                                                                             \
        CELL_LANES                                                                                           \
        for (int l = 0; l < CELL_W; l++)                                                                     \
            a[l] = cell_##name(a[l], b[l]);                                                                  \
        memcpy(&x, a, sizeof a);                                                                             \
        return x;                                                                                            \
    }
CELL_V_1(scale_of)
CELL_V_1(sqrt)
CELL_V_1(rsqrt)
CELL_V_1(fabs)
CELL_V_1(sign)
CELL_V_1(floor)
CELL_V_1(ceil)
CELL_V_1(rint)
CELL_V_1(sin)
CELL_V_1(cos)
CELL_V_1(tan)
CELL_V_1(atan)
CELL_V_1(sinh)
CELL_V_1(cosh)
CELL_V_1(relu)
CELL_V_1(gelu)
CELL_V_1(gelu_tanh)
CELL_V_1(softsign)
CELL_V_1(elu)
CELL_V_1(hardtanh)
CELL_V_1(mish)
CELL_V_1(erf)
CELL_V_1(round_to_bf16)
CELL_V_1(round_to_f16)
CELL_V_2(pow)
CELL_V_2(max)
CELL_V_2(min)
CELL_V_2(atan2)
CELL_V_2(hypot)
CELL_V_2(log_hypot)
CELL_V_2(root_re)
CELL_V_2(root_im)
CELL_V_2(exp_re)
CELL_V_2(exp_im)
CELL_V_2(leaky_relu)
CELL_V_2(remainder)

CELL_V cell_v cell_v_clamp(cell_v x, cell_v low, cell_v high)
{
    for (int l = 0; l < CELL_W; l++)
        x[l] = cell_clamp(x[l], low[l], high[l]);
    return x;
}

#endif
