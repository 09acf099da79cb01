/* The CBLAS of the process: libraries link with none, and run where there is none. */
#ifndef CELL_CBLAS_H
#define CELL_CBLAS_H

#include "context.h"

/* Finds the CBLAS that CELL_BLAS names ("none": none), or else one of the usual names, or else an
 * OpenBLAS that the process has loaded already, as NumPy does. Fails only where CELL_BLAS names what is
 * none. */
cell_status cell_cblas_find(cell_error *err);
/* What was found, NULL: nothing. As the loader was asked for it. */
const char *cell_cblas_name(void);
/* Is it known how to keep it to one thread? */
int cell_cblas_has_single(void);

/* Between the two, calls run in the thread that they come from. Of the whole process: other users of the same
 * library get one thread as well, until the last of them is left. */
void cell_cblas_enter_single(void);
void cell_cblas_leave_single(void);

/* 1 if a product is one that CBLAS has: of f32 or f64, with strides and sizes that it can express. */
int cell_cblas_takes(const cell_gemm_call *call, cell_blas_call *blas);
/* Rows [row, row + m) and columns [col, col + n) of C, of one of the batch. */
void cell_cblas_part(const cell_blas_call *blas, int64_t batch, int64_t row, int64_t col, int64_t m,
                     int64_t n, double alpha, double beta);

#endif
