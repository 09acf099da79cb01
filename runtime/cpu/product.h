/* Matrix products of the cpu backend (product.c), for a call that cell_gemm_check has passed. Results
 * depend on the level of the machine, not on the number of threads. */
#ifndef CELL_CPU_PRODUCT_H
#define CELL_CPU_PRODUCT_H

#include "cell_backend.h"

/* Memory that a context keeps for its products: zeros at first. */
typedef struct cell_products {
    void *memory;
    size_t bytes;
    int loops; /* open ones */
    struct cell_packed *packed; /* operands that stay as they are in these */
} cell_products;

cell_status cell_cpu_product(cell_products *own, const cell_gemm_call *call, int level, int threads,
                             cell_error *err);
/* From here on to the end, operands that a call says are fixed are packed once. */
void cell_products_loop(cell_products *own, int begins);
void cell_products_free(cell_products *own);

/* The highest level of its architecture that this machine has: 0 to 3 for x86-64 (v1 to v4). The variable
 * CELL_CPU_LEVEL caps it, for tests and comparisons. */
int cell_cpu_machine_level(void);

#endif
