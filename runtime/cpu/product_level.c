/* Products at one level of the architecture: compiled for each, with CELL_CPU_LEVEL and the flags that
 * the level allows. */
#include "product_level.h"

#include "../half.h"
#include "pool.h"

#include <string.h>

#ifndef CELL_CPU_LEVEL
#define CELL_CPU_LEVEL 0
#endif

/* A tile's rows and vectors: what the registers hold. */
#if defined(__AVX512F__)
enum { BYTES = 64, MR = 6, NV = 4 };
#elif defined(__AVX2__)
enum { BYTES = 32, MR = 6, NV = 2 };
#elif defined(__aarch64__)
enum { BYTES = 16, MR = 8, NV = 2 };
#else
enum { BYTES = 16, MR = 4, NV = 2 };
#endif

/* DEPTH: terms of a piece, so that a block of A and a panel of B stay in L2; sums are kept in registers for
 * so long. ROWS: of an item. WHOLE: rows of A, at most, that stay in L2, packed beforehand or as they lie:
 * then an item is a panel of B, packed into the thread's own memory, which stays there too. GROUP, WIDEST:
 * panels of B of an item, more of them where there are ITEMS items anyway, fewer than GROUP where an item
 * packs no rows. MOST_ROWS: whose sums are kept beside C. SMALL: operations of an item at least. FEW: rows
 * that need no panels, and STRIP columns of which go together. TERMS_AHEAD: terms of a panel of B, which
 * lies in L2, that are asked for ahead. SECOND_CACHE: where what is packed is asked for, as
 * __builtin_prefetch says it: rows a page apart would drive one another out of L1. */
enum {
    DEPTH = 512,
    ROWS = 8 * MR,
    WHOLE = BYTES == 64 ? 512 : ROWS,
    GROUP = 4,
    WIDEST = 64,
    ITEMS = 32,
    MOST_ROWS = 16 * ROWS,
    MOST_COLUMNS = 4096,
    SMALL = 1 << 16,
    FEW = 6,
    STRIP = 64,
    TERMS_AHEAD = 8,
    SECOND_CACHE = 2
};

#define REAL float
#define REAL_TYPE CELL_F32
#define NAME(x) x##_f32
#include "product_body.h"
#undef REAL
#undef REAL_TYPE
#undef NAME
#define REAL double
#define REAL_TYPE CELL_F64
#define NAME(x) x##_f64
#include "product_body.h"

#define PASTE(level) cell_product_at_##level
#define AT(level) PASTE(level)
cell_status AT(CELL_CPU_LEVEL)(const cell_gemm_call *call, const cell_product_run *run, cell_error *err)
{
    return call->c.dtype == CELL_F64 ? product_f64(call, run, err) : product_f32(call, run, err);
}
