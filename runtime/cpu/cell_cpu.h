/* What a generated kernel for the CPU may call. In: CELL_CPU_DOUBLE, 1 where it computes in double. Out:
 * `real`, loads and stores of all types of tensors, sums of lanes, integer arithmetic, and one function
 * of `real` for each operator (cell_cpu_math.h). Guaranteed: no function has a branch on the values of
 * numbers where a select does, so that loops over neighbours become vectors; a product and a sum are
 * fused by CELL_FMA only (compile with -ffp-contract=off).
 *
 * The file of an instance is compiled once for each level of CELL_CPU_LEVELS, a mask: 1 what every
 * machine of the architecture has, 2 x86-64-v2, 4 v3, 8 v4. CELL_CPU_LEVEL says which it is, 0 to 3. The
 * lowest of them has the launch plans. */
#ifndef CELL_CPU_H
#define CELL_CPU_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cell_kernel_args.h"

#ifndef CELL_CPU_LEVEL
#define CELL_CPU_LEVEL 0
#endif
#ifndef CELL_CPU_LEVELS
#define CELL_CPU_LEVELS (1 << CELL_CPU_LEVEL)
#endif
#define CELL_CPU_HAS_PLAN (CELL_CPU_LEVELS % (1 << CELL_CPU_LEVEL) == 0)

/* The table of an instance's functions at this level, and the tables of all levels for its plan. */
#define CELL_CPU_PASTE(name, level) name##_cpu_##level
#define CELL_CPU_EXPAND(name, level) CELL_CPU_PASTE(name, level)
#define CELL_CPU_TABLE(name) CELL_CPU_EXPAND(name, CELL_CPU_LEVEL)
#if CELL_CPU_LEVELS & 1
#define CELL_CPU_EXTERN_0(name) extern const cell_cpu_fn name##_cpu_0[];
#define CELL_CPU_AT_0(name) name##_cpu_0
#else
#define CELL_CPU_EXTERN_0(name)
#define CELL_CPU_AT_0(name) NULL
#endif
#if CELL_CPU_LEVELS & 2
#define CELL_CPU_EXTERN_1(name) extern const cell_cpu_fn name##_cpu_1[];
#define CELL_CPU_AT_1(name) name##_cpu_1
#else
#define CELL_CPU_EXTERN_1(name)
#define CELL_CPU_AT_1(name) NULL
#endif
#if CELL_CPU_LEVELS & 4
#define CELL_CPU_EXTERN_2(name) extern const cell_cpu_fn name##_cpu_2[];
#define CELL_CPU_AT_2(name) name##_cpu_2
#else
#define CELL_CPU_EXTERN_2(name)
#define CELL_CPU_AT_2(name) NULL
#endif
#if CELL_CPU_LEVELS & 8
#define CELL_CPU_EXTERN_3(name) extern const cell_cpu_fn name##_cpu_3[];
#define CELL_CPU_AT_3(name) name##_cpu_3
#else
#define CELL_CPU_EXTERN_3(name)
#define CELL_CPU_AT_3(name) NULL
#endif
#define CELL_CPU_CODE(name)                                                                                  \
    CELL_CPU_EXTERN_0(name)                                                                                  \
    CELL_CPU_EXTERN_1(name)                                                                                  \
    CELL_CPU_EXTERN_2(name)                                                                                  \
    CELL_CPU_EXTERN_3(name)                                                                                  \
    static const cell_cpu_fn *const code[CELL_CPU_COUNT] = { CELL_CPU_AT_0(name), CELL_CPU_AT_1(name),       \
                                                             CELL_CPU_AT_2(name), CELL_CPU_AT_3(name) };

#if CELL_CPU_DOUBLE
typedef double real;
#else
typedef float real;
#endif
typedef uint16_t cell_bf16;
typedef uint16_t cell_f16;
typedef uint8_t cell_e4m3;
typedef uint8_t cell_e5m2;

/* In front of a loop whose turns depend on no other. GCC would first unroll one of 16 turns, and find no
 * vectors in what it then has. */
#if defined(__clang__)
#define CELL_LANES _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define CELL_LANES _Pragma("GCC ivdep") _Pragma("GCC unroll 1")
#else
#define CELL_LANES
#endif

/* Asks for the cache lines of n elements from p on; they need not exist. */
#define cell_ahead(p, n) cell_cpu_ahead(p, (int64_t)sizeof *(p) * (n))
static inline void cell_cpu_ahead(const void *p, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch((const void *)((uintptr_t)p + (uintptr_t)i));
}

#ifdef __FMA__
#define CELL_FMA(a, b, c)                                                                                    \
    (sizeof(real) == 8 ? (real)__builtin_fma(a, b, c)                                                        \
                       : (real)__builtin_fmaf((float)(a), (float)(b), (float)(c)))
#else
#define CELL_FMA(a, b, c) ((a) * (b) + (c))
#endif

/* ---- types */

static inline float cell_cpu_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t cell_cpu_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float cell_cpu_bf16_to_f32(uint16_t half)
{
    return cell_cpu_from_bits((uint32_t)half << 16);
}

/* To nearest, ties to even; NaN stays NaN. */
static inline uint16_t cell_cpu_f32_to_bf16(float value)
{
    uint32_t bits = cell_cpu_bits(value), rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : rounded);
}

/* The exponent is moved by a product with 2^112, which makes a subnormal number a normal one. */
static inline float cell_cpu_f16_to_f32(uint16_t half)
{
    uint32_t magnitude = (uint32_t)(half & 0x7fffu) << 13;
    uint32_t bits = cell_cpu_bits(cell_cpu_from_bits(magnitude) * 0x1p112f);
    bits = (half & 0x7c00u) == 0x7c00u ? magnitude | 0x7f800000u : bits;
    return cell_cpu_from_bits(bits | (uint32_t)(half & 0x8000u) << 16);
}

/* Results below 2^-14 are rounded by the sum with 1/2, whose last bit is 2^-24. */
static inline uint16_t cell_cpu_f32_to_f16(float value)
{
    uint32_t bits = cell_cpu_bits(value), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    uint32_t normal = (size + 0xfffu + (size >> 13 & 1u) - 0x38000000u) >> 13;
    uint32_t small = cell_cpu_bits(cell_cpu_from_bits(size) + 0.5f) - 0x3f000000u;
    uint32_t large = size > 0x7f800000u ? 0x7e00u | (size >> 13 & 0x3ffu) : 0x7c00u;
    uint32_t result = size < 0x38800000u ? small : size >= 0x477ff000u ? large : normal;
    return (uint16_t)(sign | result);
}

#if CELL_CPU_DOUBLE
/* A double becomes f32 by rounding to odd first, so that it is rounded once. */
static inline float cell_cpu_single(double value)
{
    float nearest = (float)value;
    uint32_t bits = cell_cpu_bits(nearest);
    double size = fabs(value), got = fabs((double)nearest);
    bits = got > size ? bits - 1 : bits;
    return got == size || value != value ? nearest : cell_cpu_from_bits(bits | 1u);
}
#else
static inline float cell_cpu_single(float value)
{
    return value;
}
#endif

#define CELL_CPU_PLAIN(type, name)                                                                           \
    static inline real cell_load_##name(const type *p)                                                       \
    {                                                                                                        \
        return (real)*p;                                                                                     \
    }                                                                                                        \
    static inline void cell_store_##name(type *p, real v)                                                    \
    {                                                                                                        \
        *p = (type)v;                                                                                        \
    }                                                                                                        \
    static inline void cell_put_##name(type *p, real v, bool adds)                                           \
    {                                                                                                        \
        *p = (type)(adds ? (real)*p + v : v);                                                                \
    }                                                                                                        \
    static inline void cell_store_vec_##name(int n, type *p, const real *v)                                  \
    {                                                                                                        \
        for (int i = 0; i < n; i++)                                                                          \
            p[i] = (type)v[i];                                                                               \
    }
#define CELL_CPU_HALF(name)                                                                                  \
    static inline real cell_load_##name(const uint16_t *p)                                                   \
    {                                                                                                        \
        return (real)cell_cpu_##name##_to_f32(*p);                                                           \
    }                                                                                                        \
    static inline void cell_store_##name(uint16_t *p, real v)                                                \
    {                                                                                                        \
        *p = cell_cpu_f32_to_##name(cell_cpu_single(v));                                                     \
    }                                                                                                        \
    static inline void cell_put_##name(uint16_t *p, real v, bool adds)                                       \
    {                                                                                                        \
        cell_store_##name(p, adds ? cell_load_##name(p) + v : v);                                            \
    }                                                                                                        \
    static inline void cell_store_vec_##name(int n, uint16_t *p, const real *v)                              \
    {                                                                                                        \
        for (int i = 0; i < n; i++)                                                                          \
            cell_store_##name(p + i, v[i]);                                                                  \
    }                                                                                                        \
    static inline real cell_round_to_##name(real v)                                                          \
    {                                                                                                        \
        return (real)cell_cpu_##name##_to_f32(cell_cpu_f32_to_##name(cell_cpu_single(v)));                   \
    }
CELL_CPU_PLAIN(float, f32)
CELL_CPU_PLAIN(double, f64)
CELL_CPU_HALF(bf16)
CELL_CPU_HALF(f16)

/* Numbers of 8 bits are only read. No step on the way is below the smallest normal number, which some
 * callers' threads (XLA's) take for 0. */
static inline real cell_load_e4m3(const uint8_t *p)
{
    uint32_t size = *p & 0x7fu, sign = (uint32_t)(*p & 0x80u) << 24;
    uint32_t small = cell_cpu_bits((float)(int32_t)size * 0x1p-9f), large = (size << 20) + 0x3c000000u;
    uint32_t bits = size < 8 ? small : size == 0x7fu ? 0x7fc00000u : large;
    return (real)cell_cpu_from_bits(bits | sign);
}
static inline real cell_load_e5m2(const uint8_t *p)
{
    uint32_t size = *p & 0x7fu, sign = (uint32_t)(*p & 0x80u) << 24;
    uint32_t small = cell_cpu_bits((float)(int32_t)size * 0x1p-16f), large = (size << 21) + 0x38000000u;
    uint32_t bits = size < 4 ? small : size >= 0x7cu ? size << 21 | 0x7f800000u : large;
    return (real)cell_cpu_from_bits(bits | sign);
}
#undef CELL_CPU_PLAIN
#undef CELL_CPU_HALF

static inline int64_t cell_load_i32(const int32_t *p)
{
    return *p;
}
static inline void cell_store_i32(int32_t *p, int64_t v)
{
    *p = (int32_t)v;
}
static inline void cell_store_vec_i32(int n, int32_t *p, const int32_t *v)
{
    memcpy(p, v, (size_t)n * sizeof *p);
}
/* 16 bytes as they lie. */
static inline void cell_load_words(uint32_t *words, const void *from)
{
    memcpy(words, from, 16);
}
static inline void cell_store_words(void *to, const uint32_t *words)
{
    memcpy(to, words, 16);
}

#include "cell_cpu_math.h"

/* ---- n lanes, 16 or 64, in a fixed tree: sixteens are joined, then halves until one is left */

#define CELL_CPU_TREE(name, join)                                                                            \
    static inline real cell_lanes_##name(int n, const real *lanes)                                           \
    {                                                                                                        \
        real s[16], a[8], b[4];                                                                              \
        for (int i = 0; i < 16; i++)                                                                         \
            s[i] = n == 16 ? lanes[i]                                                                        \
                           : join(join(lanes[i], lanes[i + 16]), join(lanes[i + 32], lanes[i + 48]));        \
        for (int i = 0; i < 8; i++)                                                                          \
            a[i] = join(s[i], s[i + 8]);                                                                     \
        for (int i = 0; i < 4; i++)                                                                          \
            b[i] = join(a[i], a[i + 4]);                                                                     \
        return join(join(b[0], b[2]), join(b[1], b[3]));                                                     \
    }
static inline real cell_cpu_plus(real a, real b)
{
    return a + b;
}
static inline real cell_cpu_times(real a, real b)
{
    return a * b;
}
CELL_CPU_TREE(sum, cell_cpu_plus)
CELL_CPU_TREE(prod, cell_cpu_times)
CELL_CPU_TREE(max, cell_max)
CELL_CPU_TREE(min, cell_min)
#undef CELL_CPU_TREE

/* ---- places and integers */

static inline bool cell_inside(int64_t place, int64_t extent)
{
    return place >= 0 && place < extent;
}
static inline int64_t cell_nearest(int64_t place, int64_t extent)
{
    return place < 0 ? 0 : place < extent ? place : extent - 1;
}
/* Packed sequences: the one that a row belongs to, its first row, and how many steps it has. They were checked. */
static inline int64_t cell_sequence_of(const int32_t *starts, int64_t sequences, int64_t row)
{
    int64_t low = 0, high = sequences; /* the last sequence that begins at the row or before it */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (starts[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}
static inline int64_t cell_first_row(const int32_t *starts, int64_t sequence, int64_t total)
{
    (void)total;
    return starts[sequence];
}
static inline int64_t cell_own_steps(const int32_t *starts, int64_t sequence, int64_t total, int64_t most)
{
    (void)total, (void)most;
    return starts[sequence + 1] - starts[sequence];
}
static inline int64_t cell_floordiv(int64_t a, int64_t b)
{
    const int64_t q = a / b, r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? q - 1 : q;
}
static inline int64_t cell_floormod(int64_t a, int64_t b)
{
    return a - b * cell_floordiv(a, b);
}
/* Of integers that the call gives: what leaves the 64 bits goes round, and a quotient by 0 is 0. */
static inline int64_t cell_whole_sum(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
static inline int64_t cell_whole_difference(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}
static inline int64_t cell_whole_product(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}
static inline int64_t cell_whole_quotient(int64_t a, int64_t b)
{
    if (b == 0 || b == -1)
        return b ? cell_whole_difference(0, a) : 0;
    return cell_floordiv(a, b);
}
static inline int64_t cell_whole_remainder(int64_t a, int64_t b)
{
    int64_t rest = b == 0 || b == -1 ? 0 : a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
static inline int64_t cell_whole_power(int64_t a, int64_t b)
{
    int64_t power = 1;
    for (; b > 0; b--)
        power = cell_whole_product(power, a);
    return power;
}
static inline int64_t cell_whole_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t cell_whole_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* As the device library cuts the rows of a sum of columns into chunks. */
static inline int64_t cell_column_chunks(int64_t each, int64_t most, int64_t blocks, int64_t least,
                                         int64_t span, int64_t group, int64_t rows, int64_t columns)
{
    const int64_t cut = cell_whole_min((rows + each - 1) / each, most);
    const int64_t across = cell_whole_max((columns + span - 1) / span, 1);
    return cell_whole_max(cell_whole_min(cut, cell_whole_max(blocks / across * group, least)), 1);
}

/* Positions 0 to n - 1 in the order of their keys, 0 to places, of equal ones in their own. starts:
 * places + 2 numbers. */
static inline void cell_sort_places(const int64_t *keys, int64_t *order, int64_t n, int64_t places,
                                    void *starts)
{
    int64_t *start = starts;
    memset(start, 0, (size_t)(places + 2) * sizeof *start);
    for (int64_t i = 0; i < n; i++)
        start[keys[i] + 1]++;
    for (int64_t i = 0; i < places; i++)
        start[i + 1] += start[i];
    for (int64_t i = 0; i < n; i++)
        order[start[keys[i]]++] = i;
}
/* Behind the sorted positions that have the key of that at `from`; and does it have another key than the
 * one before it? */
static inline int64_t cell_place_end(const int64_t *keys, const int64_t *order, int64_t n, int64_t from)
{
    const int64_t key = keys[order[from]];
    while (from < n && keys[order[from]] == key)
        from++;
    return from;
}
static inline bool cell_place_begins(const int64_t *keys, const int64_t *order, int64_t at)
{
    return at == 0 || keys[order[at - 1]] != keys[order[at]];
}

#endif
