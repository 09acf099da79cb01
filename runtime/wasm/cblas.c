/* In place of cblas.c: a module of WebAssembly loads no libraries, so products are done by own code
 * (cpu/product.c). CELL_BLAS is an error where it names a library. */
#include "cblas.h"

#include <stdlib.h>
#include <string.h>

cell_status cell_cblas_find(cell_error *err)
{
    const char *own = getenv("CELL_BLAS");
    if (!own || !*own || strcmp(own, "none") == 0)
        return CELL_OK;
    return cell_fail(err, CELL_BACKEND_FAILED,
                     "CELL_BLAS is '%.200s', but a module of WebAssembly loads no libraries", own);
}

const char *cell_cblas_name(void)
{
    return NULL;
}

int cell_cblas_has_single(void)
{
    return 0;
}

void cell_cblas_enter_single(void)
{
}

void cell_cblas_leave_single(void)
{
}

int cell_cblas_takes(const cell_gemm_call *call, cell_blas_call *blas)
{
    (void)call, (void)blas;
    return 0;
}

/* Never called, as no product is taken. */
void cell_cblas_part(const cell_blas_call *blas, int64_t batch, int64_t row, int64_t col, int64_t m,
                     int64_t n, double alpha, double beta)
{
    (void)blas, (void)batch, (void)row, (void)col, (void)m, (void)n, (void)alpha, (void)beta;
}
