/* Products of numbers of 8 bits, by cuBLASLt. It is opened when it is wanted, and a machine may have none. */
#ifndef CELL_BLASLT_H
#define CELL_BLASLT_H

#include "context.h"

typedef struct cell_blaslt cell_blaslt;

/* The process's, or what CELL_CUBLASLT or the loader's path has; it belongs to the device that is current.
 * NULL, and the reason in err, where there is none, or CELL_CUBLASLT is "none". */
cell_blaslt *cell_blaslt_open(cell_error *err);
void cell_blaslt_close(cell_blaslt *lt);
/* The least capability, times 10, of a device with such products. */
enum { CELL_BLASLT_CAPABILITY = 89 };
/* Of cell_gemm_check's products those whose operands have scales: C = alpha a_scale b_scale A B + beta C on
 * the stream. CELL_UNSUPPORTED where the operands do not lie as cuBLASLt takes them. */
cell_status cell_blaslt_gemm(cell_blaslt *lt, const cell_blas_call *blas, double alpha, double beta,
                             void *workspace, size_t bytes, void *stream, cell_error *err);

#endif
