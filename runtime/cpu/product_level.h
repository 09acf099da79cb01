/* What product.c has of each level (product_level.c). */
#ifndef CELL_CPU_PRODUCT_LEVEL_H
#define CELL_CPU_PRODUCT_LEVEL_H

#include "cell_backend.h"

typedef struct cell_product_run {
    int threads;
    void *data;
    /* Memory until the next call of it, at a multiple of 64 bytes; NULL: there is none. */
    void *(*memory)(void *data, size_t bytes);
    /* Where B, which begins at `from`, is kept packed over several products; is_packed: it is already.
     * NULL: it is not kept. */
    void *(*kept)(void *data, const cell_gemm_call *call, const void *from, size_t bytes, int *is_packed);
} cell_product_run;

/* C has rows of neighbours, if any of its strides is 1. */
typedef cell_status cell_product_fn(const cell_gemm_call *call, const cell_product_run *run, cell_error *err);
cell_product_fn cell_product_at_0, cell_product_at_1, cell_product_at_2, cell_product_at_3;

#endif
