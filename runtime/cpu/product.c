/* Products on the CPU. In: a product in strides. Out: the same, turned so that rows of the result are
 * neighbours, in blocks for CBLAS, where there is one and it is faster; else handed to the code for the
 * machine's level (product_level.c). Operands that stay the same over the steps of a loop are
 * packed once, which no CBLAS does. */
#include "product.h"

#include "../cblas.h"
#include "pool.h"
#include "product_level.h"

#include <stdlib.h>

typedef struct cell_packed {
    struct cell_packed *next;
    cell_matrix of; /* data: of the matrix of the batch */
    int64_t k, n;
    void *memory;
} cell_packed;

enum { ALIGNMENT = 64 };

static void *aligned(size_t bytes)
{
    return aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

static void *memory(void *data, size_t bytes)
{
    cell_products *own = data;
    if (own->bytes < bytes) {
        free(own->memory);
        own->memory = aligned(bytes);
        own->bytes = own->memory ? bytes : 0;
    }
    return own->memory;
}

/* Without memory for it, it is packed each time. */
static void *kept(void *data, const cell_gemm_call *call, const void *from, size_t bytes, int *is_packed)
{
    cell_products *own = data;
    const cell_matrix *b = &call->b;
    *is_packed = 0;
    if (!own->loops || !(call->fixed & 2) || bytes == 0)
        return NULL;
    for (cell_packed *p = own->packed; p; p = p->next)
        if (p->of.data == from && p->of.dtype == b->dtype && p->of.row_stride == b->row_stride &&
            p->of.col_stride == b->col_stride && p->k == call->k && p->n == call->n) {
            *is_packed = 1;
            return p->memory;
        }
    cell_packed *new = malloc(sizeof *new);
    void *place = new ? aligned(bytes) : NULL;
    if (!place) {
        free(new);
        return NULL;
    }
    *new = (cell_packed){ own->packed, *b, call->k, call->n, place };
    new->of.data = (void *)(uintptr_t)from;
    own->packed = new;
    return place;
}

void cell_products_loop(cell_products *own, int begins)
{
    own->loops += begins ? 1 : -1;
    while (own->loops == 0 && own->packed) {
        cell_packed *next = own->packed->next;
        free(own->packed->memory);
        free(own->packed);
        own->packed = next;
    }
}

void cell_products_free(cell_products *own)
{
    free(own->memory);
    own->memory = NULL;
    own->bytes = 0;
}

static cell_matrix turned(cell_matrix x)
{
    int64_t stride = x.row_stride;
    x.row_stride = x.col_stride;
    x.col_stride = stride;
    return x;
}

/* C^T = B^T A^T. */
static cell_gemm_call transposed(const cell_gemm_call *call)
{
    cell_gemm_call t = *call;
    t.m = call->n;
    t.n = call->m;
    t.a = turned(call->b);
    t.b = turned(call->a);
    t.c = turned(call->c);
    t.fixed = (call->fixed & 1) << 1 | (call->fixed & 2) >> 1;
    return t;
}

/* A result with fewer columns than rows of few is one of few rows. */
static int is_turned(const cell_gemm_call *call)
{
    if (call->c.col_stride == 1 && call->n > 1)
        return call->n <= 4 && call->m > 16;
    return call->c.row_stride == 1 || call->n == 1;
}

/* Nothing is multiplied: beta * C. */
static cell_gemm_call without_terms(const cell_gemm_call *call)
{
    cell_gemm_call none = *call;
    none.k = 0;
    return none;
}

/* ---- by CBLAS: blocks of the result, each a call of one thread; their sizes follow from the product's */

/* LEAST: rows and columns of a product for CBLAS; OPERATIONS, too. Where registers have 64 bytes (AVX512, a
 * level), own panels are faster than OpenBLAS (docs/cpu.md) from TILED elements of the result on, unless B
 * has more than HEAVY elements and is packed for fewer than MANY rows. Blocks have ROWS x COLUMNS, less where
 * there would be few of them and a block is PIECE operations or more, more where there would be more than
 * MOST; EDGE: a multiple of what tiles have. */
enum {
    LEAST = 32,
    OPERATIONS = 1 << 20,
    AVX512 = 3,
    TILED = 1 << 14,
    HEAVY = 1 << 20,
    MANY = 512,
    ROWS = 512,
    COLUMNS = 1024,
    FEW = 4,
    PIECE = 1 << 23,
    MOST = 64,
    EDGE = 48
};

typedef struct Blocks {
    const cell_gemm_call *call;
    cell_blas_call blas;
    int64_t rows, cols, down, across;
} Blocks;

static int64_t parts(int64_t n, int64_t of)
{
    return (n + of - 1) / of;
}

static void multiply_blocks(const void *data, int64_t first, int64_t end, void *scratch)
{
    const Blocks *x = data;
    (void)scratch;
    for (int64_t item = first; item < end; item++) {
        int64_t of = item % (x->down * x->across), row = of / x->across * x->rows,
                col = of % x->across * x->cols;
        int64_t m = x->blas.m - row, n = x->blas.n - col;
        cell_cblas_part(&x->blas, item / (x->down * x->across), row, col, m < x->rows ? m : x->rows,
                        n < x->cols ? n : x->cols, x->call->alpha, x->call->beta);
    }
}

static void halve(int64_t *n)
{
    *n = parts(*n / 2, EDGE) * EDGE;
}

/* Without a known way to keep the library to one thread it gets the product whole. */
static Blocks blocks_of(const cell_gemm_call *call, const cell_blas_call *blas)
{
    Blocks x = { call, *blas, blas->m, blas->n, 1, 1 };
    if (cell_cblas_has_single()) {
        x.rows = blas->m < ROWS ? blas->m : ROWS, x.cols = blas->n < COLUMNS ? blas->n : COLUMNS;
        while (parts(blas->m, x.rows) * parts(blas->n, x.cols) > MOST)
            *(x.rows < blas->m ? &x.rows : &x.cols) *= 2;
        while (parts(blas->m, x.rows) * parts(blas->n, x.cols) * call->batch < FEW &&
               x.rows * x.cols * blas->k >= 2 * PIECE && (x.rows >= 2 * EDGE || x.cols >= 2 * EDGE))
            halve(x.rows > x.cols ? &x.rows : &x.cols);
    }
    x.down = parts(blas->m, x.rows);
    x.across = parts(blas->n, x.cols);
    return x;
}

static int is_for_panels(const cell_gemm_call *call, int level)
{
    return level == AVX512 && call->m * call->n >= TILED && (call->m >= MANY || call->n * call->k <= HEAVY);
}

static int is_for_cblas(const cell_products *own, const cell_gemm_call *call, int level, cell_blas_call *blas)
{
    int is_kept = own->loops > 0 && call->fixed;
    return !is_kept && !is_for_panels(call, level) && call->m >= LEAST && call->n >= LEAST &&
           call->m * call->n * call->k >= OPERATIONS && cell_cblas_takes(call, blas);
}

static cell_status by_cblas(const cell_gemm_call *call, const cell_blas_call *blas, int threads,
                            cell_error *err)
{
    Blocks x = blocks_of(call, blas);
    cell_cblas_enter_single();
    cell_status status = cell_pool_run(multiply_blocks, &x, x.down * x.across * call->batch, 1, 0,
                                       cell_cblas_has_single() ? threads : 1, err);
    cell_cblas_leave_single();
    return status;
}

cell_status cell_cpu_product(cell_products *own, const cell_gemm_call *call, int level, int threads,
                             cell_error *err)
{
    cell_gemm_call of = *call;
    if (call->m <= 0 || call->n <= 0 || call->batch <= 0)
        return CELL_OK;
    if (call->k == 0 || call->alpha == 0) {
        of = without_terms(call);
        return cell_host_gemm(NULL, &of, err);
    }
    cell_blas_call blas;
    cell_status status = cell_cblas_find(err);
    if (status != CELL_OK)
        return status;
    if (is_turned(call))
        of = transposed(call);
    if (is_for_cblas(own, &of, level, &blas))
        return by_cblas(&of, &blas, threads, err);
    cell_product_run run = { threads, own, memory, kept };
#if defined(__x86_64__)
    static cell_product_fn *const at[] = { cell_product_at_0, cell_product_at_1, cell_product_at_2,
                                           cell_product_at_3 };
    return at[level](&of, &run, err);
#else
    (void)level;
    return cell_product_at_0(&of, &run, err);
#endif
}
