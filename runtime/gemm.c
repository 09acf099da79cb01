/* Matrix products. In: the row-major product of cell.h with explicit strides. Out: the same checked, turned
 * into BLAS terms (for CBLAS here and cuBLAS in backend_cuda.c, so that the layouts are translated in one
 * place), and computed on the host. Guaranteed: beta = 0 never reads C; k = 0 or alpha = 0 gives beta * C;
 * any strides on the host. */
#include "cblas.h"
#include "context.h"
#include "half.h"

#include <string.h>

static int is_float(cell_dtype dtype) {
    return dtype == CELL_F32 || dtype == CELL_F64 || dtype == CELL_BF16 || dtype == CELL_F16;
}

static int is_single(cell_dtype dtype) {
    return is_float(dtype) && dtype != CELL_F64;
}

static int is_codes(cell_dtype dtype)
{
    return dtype == CELL_E4M3 || dtype == CELL_E5M2;
}

static cell_status check_dtypes(const cell_gemm_call *call, cell_error *err) {
    cell_dtype a = call->a.dtype, b = call->b.dtype, c = call->c.dtype;
    int half = a == CELL_BF16 || a == CELL_F16;
    if (is_float(a) && a == b && (c == a || (half && c == CELL_F32)))
        return CELL_OK;
    if (is_codes(a) && is_codes(b) && !(a == CELL_E5M2 && b == CELL_E5M2) && call->a_scale && call->b_scale &&
        is_single(c))
        return CELL_OK;
    if (call->mixes && is_single(a) && is_single(b) && is_single(c))
        return CELL_OK;
    return cell_fail(
        err, CELL_UNSUPPORTED,
        "matrix product of %s by %s into %s: A and B need one floating type, C the same or f32 for "
        "bf16 and f16",
        cell_dtype_name(a), cell_dtype_name(b), cell_dtype_name(c));
}

static cell_status check_pointer(const char *name, const cell_matrix *matrix, cell_error *err) {
    if (!matrix->data)
        return cell_fail(err, CELL_NULL_POINTER, "matrix product: %s is null", name);
    if ((uintptr_t)matrix->data % cell_dtype_bytes(matrix->dtype))
        return cell_fail(err, CELL_MISALIGNED, "matrix product: %s is at %p, not a multiple of %zu bytes",
                         name, matrix->data, cell_dtype_bytes(matrix->dtype));
    return CELL_OK;
}

cell_status cell_gemm_check(const cell_gemm_call *call, cell_error *err) {
    if (call->m < 0 || call->n < 0 || call->k < 0 || call->batch < 0)
        return cell_fail(err, CELL_BAD_SIZE,
                         "matrix product: m %lld, n %lld, k %lld, batch %lld: none may be negative",
                         (long long)call->m, (long long)call->n, (long long)call->k, (long long)call->batch);
    cell_status status = check_dtypes(call, err);
    if (status != CELL_OK || call->m == 0 || call->n == 0 || call->batch == 0)
        return status;
    status = check_pointer("C", &call->c, err);
    if (status == CELL_OK && call->k > 0 && call->alpha != 0)
        status = check_pointer("A", &call->a, err);
    if (status == CELL_OK && call->k > 0 && call->alpha != 0)
        status = check_pointer("B", &call->b, err);
    return status;
}

/* Can [rows, cols] with these strides be read as row-major with a leading dimension? An extent of 1 leaves
 * its stride free. */
static int leading(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride, int64_t *ld) {
    int64_t least = cols > 1 ? cols : 1;
    if (cols > 1 && col_stride != 1)
        return 0;
    *ld = rows > 1 ? row_stride : least;
    return *ld >= least;
}

static int operand_form(const cell_matrix *matrix, int64_t rows, int64_t cols, int *transposed, int64_t *ld) {
    *transposed = 0;
    if (leading(rows, cols, matrix->row_stride, matrix->col_stride, ld))
        return 1;
    *transposed = 1;
    return leading(cols, rows, matrix->col_stride, matrix->row_stride, ld);
}

static cell_matrix transposed(cell_matrix matrix) {
    int64_t stride = matrix.row_stride;
    matrix.row_stride = matrix.col_stride;
    matrix.col_stride = stride;
    return matrix;
}

cell_blas_factor cell_blas_factor_of(double value, cell_dtype c) {
    cell_blas_factor factor = {.f64 = value};
    if (c != CELL_F64)
        factor.f32 = (float)value;
    return factor;
}

char *cell_batch_start(const cell_matrix *matrix, int64_t batch) {
    return (char *)matrix->data + batch * matrix->batch_stride * (int64_t)cell_dtype_bytes(matrix->dtype);
}

int cell_blas_form(const cell_gemm_call *call, cell_blas_call *blas, const char **which) {
    int c_transposed;
    *blas = (cell_blas_call){.m = call->m, .n = call->n, .k = call->k, .batch = call->batch};
    blas->a = call->a, blas->b = call->b, blas->c = call->c;
    blas->a_scale = call->a_scale, blas->b_scale = call->b_scale;
    *which = "C";
    if (is_codes(call->a.dtype) && call->n == 1 && call->c.row_stride == 1) {
        c_transposed = 1; /* one column as one row: cuBLASLt wants the sum along the rows of both operands */
        blas->ldc = call->m;
    } else if (!operand_form(&call->c, call->m, call->n, &c_transposed, &blas->ldc)) {
        return 0;
    }
    if (c_transposed) { /* C^T = B^T A^T, and C^T is row-major */
        blas->swapped = 1;
        blas->m = call->n, blas->n = call->m;
        blas->a = transposed(call->b), blas->b = transposed(call->a), blas->c = transposed(call->c);
        blas->a_scale = call->b_scale, blas->b_scale = call->a_scale;
    }
    *which = c_transposed ? "B" : "A";
    if (blas->k == 1 &&
        blas->a.row_stride == 1) { /* one column as one row: rows of one element begin at no vectors */
        blas->a_transposed = 1;
        blas->lda = blas->m;
    } else if (!operand_form(&blas->a, blas->m, blas->k, &blas->a_transposed, &blas->lda)) {
        return 0;
    }
    *which = c_transposed ? "A" : "B";
    return operand_form(&blas->b, blas->k, blas->n, &blas->b_transposed, &blas->ldb);
}

static char *element(const cell_matrix *matrix, int64_t batch, int64_t row, int64_t col) {
    int64_t at = batch * matrix->batch_stride + row * matrix->row_stride + col * matrix->col_stride;
    return (char *)matrix->data + at * (int64_t)cell_dtype_bytes(matrix->dtype);
}

#define LOAD_EACH(TYPE, CONVERT)                                                                             \
    for (int64_t i = 0; i < count; i++)                                                                      \
    to[i] = CONVERT(((const TYPE *)from)[i * stride])

static void load_row(double *to, const void *from, cell_dtype dtype, int64_t stride, int64_t count) {
    switch (dtype) {
    case CELL_F32:
        LOAD_EACH(float, (double));
        break;
    case CELL_F64:
        LOAD_EACH(double, );
        break;
    case CELL_BF16:
        LOAD_EACH(uint16_t, cell_bf16_to_f32);
        break;
    case CELL_F16:
        LOAD_EACH(uint16_t, cell_f16_to_f32);
        break;
    case CELL_E4M3: LOAD_EACH(uint8_t, cell_e4m3_to_f32); break;
    case CELL_E5M2: LOAD_EACH(uint8_t, cell_e5m2_to_f32); break;
    default:
        break; /* cell_gemm_check refused it */
    }
}

static double load_one(const void *from, cell_dtype dtype) {
    double value = 0;
    load_row(&value, from, dtype, 1, 1);
    return value;
}

static void store_one(void *to, cell_dtype dtype, double value) {
    switch (dtype) {
    case CELL_F32:
        *(float *)to = (float)value;
        break;
    case CELL_F64:
        *(double *)to = value;
        break;
    case CELL_BF16:
        *(uint16_t *)to = cell_f64_to_bf16(value);
        break;
    case CELL_F16:
        *(uint16_t *)to = cell_f64_to_f16(value);
        break;
    default:
        break;
    }
}

enum { TILE = 256 };

/* Columns [col, col + count) of one row of one C. Sums in double: exact enough that the order does not matter
 * to f32. */
static void plain_tile(const cell_gemm_call *call, int64_t batch, int64_t row, int64_t col, int64_t count) {
    double sum[TILE] = {0}, b[TILE] = {0};
    int64_t depth = call->alpha == 0 ? 0 : call->k;
    double alpha = call->alpha;
    if (call->a_scale)
        alpha *= (double)*(const float *)call->a_scale * (double)*(const float *)call->b_scale;
    for (int64_t p = 0; p < depth; p++) {
        double a = load_one(element(&call->a, batch, row, p), call->a.dtype);
        load_row(b, element(&call->b, batch, p, col), call->b.dtype, call->b.col_stride, count);
        for (int64_t j = 0; j < count; j++)
            sum[j] += a * b[j];
    }
    for (int64_t j = 0; j < count; j++) {
        void *c = element(&call->c, batch, row, col + j);
        double value = depth ? alpha * sum[j] : 0;
        if (call->beta != 0)
            value += call->beta * load_one(c, call->c.dtype);
        store_one(c, call->c.dtype, value);
    }
}

static void plain_gemm(const cell_gemm_call *call) {
    for (int64_t batch = 0; batch < call->batch; batch++)
        for (int64_t row = 0; row < call->m; row++)
            for (int64_t col = 0; col < call->n; col += TILE)
                plain_tile(call, batch, row, col, call->n - col < TILE ? call->n - col : TILE);
}

/* 0 if the product is not one for CBLAS. */
static int try_cblas(const cell_gemm_call *call) {
    cell_blas_call blas;
    if (!cell_cblas_takes(call, &blas))
        return 0;
    for (int64_t batch = 0; batch < blas.batch; batch++)
        cell_cblas_part(&blas, batch, 0, 0, blas.m, blas.n, call->alpha, call->beta);
    return 1;
}

cell_status cell_host_gemm(void *self, const cell_gemm_call *call, cell_error *err) {
    (void)self;
    if (call->m <= 0 || call->n <= 0 || call->batch <= 0)
        return CELL_OK;
    cell_status status = cell_cblas_find(err);
    if (status == CELL_OK && !try_cblas(call))
        plain_gemm(call);
    return status;
}

cell_status cell_gemm(cell_context *ctx, int64_t m, int64_t n, int64_t k, int64_t batch, double alpha,
                      const cell_matrix *a, const cell_matrix *b, double beta, const cell_matrix *c) {
    cell_status status = cell_context_check(ctx);
    if (status != CELL_OK)
        return status;
    if (!a || !b || !c)
        return cell_fail(&ctx->error, CELL_NULL_POINTER, "cell_gemm: the description of %s is null",
                         !a   ? "A"
                         : !b ? "B"
                              : "C");
    cell_gemm_call call = {
        .m = m, .n = n, .k = k, .batch = batch, .alpha = alpha, .beta = beta, .a = *a, .b = *b, .c = *c};
    status = cell_gemm_check(&call, &ctx->error);
    return status == CELL_OK ? ctx->backend->gemm(ctx->self, &call, &ctx->error) : status;
}
