/* Products of tiles for attention on the CPU (cell_cpu_attention.h): small matrices in scratch memory, by
 * sums that stay in registers over all terms. Each element is one chain of multiply-adds in the order of its
 * terms, whatever the tile around it is. */
#ifndef CELL_CPU_ATTENTION_TILE_H
#define CELL_CPU_ATTENTION_TILE_H

#include "cell_cpu_vector.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

/* A register, and how many of them a tile's sums are: rows by vectors. */
#if defined(__AVX512F__)
enum { CELL_TILE_BYTES = 64, CELL_TILE_ROWS = 6, CELL_TILE_VECTORS = 4 };
#elif defined(__AVX2__) && defined(__FMA__)
enum { CELL_TILE_BYTES = 32, CELL_TILE_ROWS = 6, CELL_TILE_VECTORS = 2 };
#elif defined(__aarch64__)
enum { CELL_TILE_BYTES = 16, CELL_TILE_ROWS = 6, CELL_TILE_VECTORS = 4 };
#else
enum { CELL_TILE_BYTES = 16, CELL_TILE_ROWS = 4, CELL_TILE_VECTORS = 2 };
#endif
typedef real cell_r __attribute__((vector_size(CELL_TILE_BYTES)));
enum { CELL_TILE_LANES = CELL_TILE_BYTES / (int)sizeof(real) };

CELL_V cell_r cell_r_load(const real *p)
{
    cell_r x;
    memcpy(&x, p, sizeof x);
    return x;
}
CELL_V void cell_r_store(real *p, cell_r x)
{
    memcpy(p, &x, sizeof x);
}

CELL_V cell_r cell_r_of(real x)
{
    return x - (cell_r){ 0 };
}

CELL_V cell_r cell_r_fma(cell_r a, cell_r b, cell_r c)
{
#if defined(__AVX512F__)
    return cell_v_fma(a, b, c);
#elif defined(__AVX2__) && defined(__FMA__)
    return (cell_r)CELL_V_FMA256((CELL_V_HALF)a, (CELL_V_HALF)b, (CELL_V_HALF)c);
#elif defined(__aarch64__) && CELL_CPU_DOUBLE
    return (cell_r)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#elif defined(__aarch64__)
    return (cell_r)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

/* Of numbers, rounded as in a register. */
CELL_V real cell_tile_fma(real a, real b, real c)
{
#if defined(__aarch64__)
    return sizeof(real) == 8 ? (real)__builtin_fma((double)a, (double)b, (double)c)
                             : (real)__builtin_fmaf((float)a, (float)b, (float)c);
#else
    return CELL_FMA(a, b, c);
#endif
}

/* Elementary functions of registers: GCC takes longer vectors apart, into numbers where they are compared. */
#if CELL_CPU_DOUBLE
typedef int64_t cell_r_int __attribute__((vector_size(CELL_TILE_BYTES)));
typedef uint64_t cell_r_word __attribute__((vector_size(CELL_TILE_BYTES)));
#else
typedef int32_t cell_r_int __attribute__((vector_size(CELL_TILE_BYTES)));
typedef uint32_t cell_r_word __attribute__((vector_size(CELL_TILE_BYTES)));
#endif
/* a where the mask is set, else b. */
CELL_V cell_r cell_r_select(cell_r_int m, cell_r a, cell_r b)
{
    return (cell_r)(((cell_r_int)a & m) | ((cell_r_int)b & ~m));
}
#define E_FUNCTION CELL_V
#define E_NAME(name) cell_r_##name
#define E_REAL cell_r
#define E_INT cell_r_int
#define E_WORD cell_r_word
#define E_OF(x) cell_r_of(x)
#define E_WORDS(x) ((cell_r_word){ 0 } + (cell_word)(x))
#define E_BITS(x) ((cell_r_word)(x))
#define E_FROM(x) ((cell_r)(x))
#define E_FMA(a, b, c) cell_r_fma(a, b, c)
#define E_SELECT(m, a, b) cell_r_select(m, a, b)
#define E_OR(a, b) ((a) | (b))
#include "cell_cpu_elementary.h"

/* The operands of C (+)= A B: element (i, p) of A at i * a_row + p * a_col, rows of B and C `b_row` and
 * `c_row` apart. */
typedef struct cell_tile_operands {
    const real *a, *b;
    real *c;
    int64_t a_row, a_col, b_row, c_row;
} cell_tile_operands;

/* rows and vectors are constants where this is called. */
CELL_V void cell_tile(const int rows, const int vectors, int64_t k, const cell_tile_operands *x, int adds)
{
    const real *a = x->a, *b = x->b;
    const int64_t a_row = x->a_row, a_col = x->a_col, b_row = x->b_row;
    cell_r sum[CELL_TILE_ROWS][CELL_TILE_VECTORS];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = adds ? cell_r_load(x->c + i * x->c_row + v * CELL_TILE_LANES) : (cell_r){ 0 };
    for (int64_t p = 0; p < k; p++, a += a_col, b += b_row) {
        cell_r right[CELL_TILE_VECTORS];
        for (int v = 0; v < vectors; v++)
            right[v] = cell_r_load(b + v * CELL_TILE_LANES);
        for (int i = 0; i < rows; i++) {
            const cell_r left = a[i * a_row] - (cell_r){ 0 }; /* in all lanes */
            for (int v = 0; v < vectors; v++)
                sum[i][v] = cell_r_fma(left, right[v], sum[i][v]);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++)
            cell_r_store(x->c + i * x->c_row + v * CELL_TILE_LANES, sum[i][v]);
}

/* The rows of a strip of `vectors` columns. */
CELL_V void cell_tile_strip(const int vectors, int64_t m, int64_t k, cell_tile_operands x, int adds)
{
#define CELL_TILE_STEP(n)                                                                                    \
    for (; m >= (n); m -= (n)) {                                                                             \
        cell_tile(n, vectors, k, &x, adds);                                                                  \
        x.a += (n)*x.a_row;                                                                                  \
        x.c += (n)*x.c_row;                                                                                  \
    }
#if defined(__AVX2__) || defined(__aarch64__)
    CELL_TILE_STEP(6)
#endif
    CELL_TILE_STEP(4)
    CELL_TILE_STEP(2)
    CELL_TILE_STEP(1)
#undef CELL_TILE_STEP
}

/* C [m][n] (+)= A [m][k] B [k][n]; n is a multiple of 64 bytes. */
static __attribute__((noinline, unused)) void cell_tile_product(int64_t m, int64_t n, int64_t k,
                                                                cell_tile_operands x, int adds)
{
    const int whole = CELL_TILE_VECTORS * CELL_TILE_LANES;
    for (; n >= whole; n -= whole, x.b += whole, x.c += whole)
        cell_tile_strip(CELL_TILE_VECTORS, m, k, x, adds);
#if defined(__AVX512F__) /* elsewhere 64 bytes are a strip or two */
    for (; n >= 2 * CELL_TILE_LANES; n -= 2 * CELL_TILE_LANES) {
        cell_tile_strip(2, m, k, x, adds);
        x.b += 2 * CELL_TILE_LANES, x.c += 2 * CELL_TILE_LANES;
    }
    if (n > 0)
        cell_tile_strip(1, m, k, x, adds);
#endif
}

/* The same added term by term, without those whose factor in A is 0: what stands beside it in B may be no
 * number. */
static __attribute__((noinline, unused)) void cell_tile_sparse(int64_t m, int64_t n, int64_t k,
                                                               cell_tile_operands x)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t p = 0; p < k; p++) {
            const real a = x.a[i * x.a_row + p * x.a_col];
            for (int64_t e = 0; e < n && a != 0; e++)
                x.c[i * x.c_row + e] = cell_tile_fma(a, x.b[p * x.b_row + e], x.c[i * x.c_row + e]);
        }
}

CELL_V int cell_tile_is_finite(const real *x, int64_t n)
{
    cell_v none = { 0 };
    for (int64_t e = 0; e < n; e += CELL_W)
        none += 0 * cell_v_load(x + e);
    return cell_v_sum(none) == 0;
}

#endif
