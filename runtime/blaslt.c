/* blaslt.c: products of numbers of 8 bits by cuBLASLt. In: a product in BLAS terms (gemm.c) whose operands
 * are e4m3 or e5m2, each with a scale in the device's memory. Out: the same on the stream, with sums in
 * f32. Guaranteed: two runs give the same bits, partial sums are never rounded to the result's type, and
 * sums are promoted to f32 on the way (no fast accumulation). Names, numbers and layouts are those of
 * cublasLt.h; tests/python/fake_cuda.cc, which is compiled with it, holds them to it. */
#include "blaslt.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef void *Handle;

enum {
    COMPUTE_32F = 68,
    R32F = 0,
    R16F = 2,
    R16BF = 14,
    R_E4M3 = 28,
    R_E5M2 = 29,
    DESC_TRANSA = 3,
    DESC_A_SCALE = 17,
    DESC_B_SCALE = 18,
    LAYOUT_COUNT = 5,
    LAYOUT_STRIDE = 6,
    PREFER_WORKSPACE = 1,
    PREFER_REDUCTION = 3,
    PREFER_ALIGNED_A = 5,
    REDUCTION_IN_F32 = 2,
    ALIGNED = 16, /* bytes: pointers, rows of all three, and the extents k and n */
    MOST_BATCH = 65535,
    KNOWN = 32
};

typedef struct Found { /* cublasLtMatmulHeuristicResult_t */
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} Found;

#define FUNCTIONS(F)                                                                                         \
    F(cublasLtCreate, (Handle * lt))                                                                         \
    F(cublasLtDestroy, (Handle lt))                                                                          \
    F(cublasLtMatmulDescCreate, (Handle * desc, int compute, int scale))                                     \
    F(cublasLtMatmulDescDestroy, (Handle desc))                                                              \
    F(cublasLtMatmulDescSetAttribute, (Handle desc, int attribute, const void *value, size_t bytes))         \
    F(cublasLtMatrixLayoutCreate, (Handle * layout, int type, uint64_t rows, uint64_t cols, int64_t ld))     \
    F(cublasLtMatrixLayoutDestroy, (Handle layout))                                                          \
    F(cublasLtMatrixLayoutSetAttribute, (Handle layout, int attribute, const void *value, size_t bytes))     \
    F(cublasLtMatmulPreferenceCreate, (Handle * preference))                                                 \
    F(cublasLtMatmulPreferenceDestroy, (Handle preference))                                                  \
    F(cublasLtMatmulPreferenceSetAttribute,                                                                  \
      (Handle preference, int attribute, const void *value, size_t bytes))                                   \
    F(cublasLtMatmulAlgoGetHeuristic, (Handle lt, Handle desc, Handle a, Handle b, Handle c, Handle d,       \
                                       Handle preference, int wanted, Found *found, int *n))                 \
    F(cublasLtMatmul,                                                                                        \
      (Handle lt, Handle desc, const void *alpha, const void *a, Handle a_layout, const void *b,             \
       Handle b_layout, const void *beta, const void *c, Handle c_layout, void *d, Handle d_layout,          \
       const uint64_t *algorithm, void *workspace, size_t bytes, void *stream))

#define MEMBER(name, arguments) int(*name) arguments;

/* All that the choice of an algorithm depends on. */
typedef struct Key {
    int64_t m, n, k, count, lda, ldb, ldc, a_stride, b_stride, c_stride;
    int64_t a, b, c;
} Key;

typedef struct Product {
    Key key;
    uint64_t used; /* 0: free */
    Handle desc, a, b, c;
    Found found;
} Product;

struct cell_blaslt {
    FUNCTIONS(MEMBER)
    const char *(*cublasLtGetStatusString)(int status);
    Handle lt;
    Product known[KNOWN];
    uint64_t clock;
};

static void *open_library(cell_error *err)
{
    const char *own = getenv("CELL_CUBLASLT"), *names[] = { "libcublasLt.so.13", "libcublasLt.so.12" };
    int given = own && *own;
    if (given && strcmp(own, "none") == 0) {
        cell_fail(err, CELL_UNSUPPORTED, "CELL_CUBLASLT is none");
        return NULL;
    }
    void *library = given ? dlopen(own, RTLD_NOW | RTLD_LOCAL) : NULL;
    /* What the process has fits its driver, which what the loader finds may not. */
    for (int i = 0; i < 4 && !library && !given; i++)
        library = dlopen(names[i % 2], RTLD_NOW | RTLD_LOCAL | (i < 2 ? RTLD_NOLOAD : 0));
    if (!library)
        cell_fail(err, CELL_UNSUPPORTED, "cuBLASLt is not there (%s)", dlerror());
    return library;
}

/* Fills `to` with the function; C has no conversion between the two kinds of pointers. */
static int find(void *library, const char *name, void *to, cell_error *err)
{
    void *symbol = dlsym(library, name);
    if (!symbol)
        cell_fail(err, CELL_UNSUPPORTED, "cuBLASLt has no %s: it is too old", name);
    memcpy(to, &symbol, sizeof symbol);
    return symbol != NULL;
}

cell_blaslt *cell_blaslt_open(cell_error *err)
{
    void *library = open_library(err);
    cell_blaslt *lt = library ? calloc(1, sizeof *lt) : NULL;
    int whole = lt != NULL;
#define FIND(name, arguments) whole = whole && find(library, #name, &lt->name, err);
    FUNCTIONS(FIND)
    whole = whole && find(library, "cublasLtGetStatusString", &lt->cublasLtGetStatusString, err);
    int status = whole ? lt->cublasLtCreate(&lt->lt) : 0;
    if (status != 0)
        cell_fail(err, CELL_UNSUPPORTED, "cuBLASLt cannot start: %s", lt->cublasLtGetStatusString(status));
    if (whole && status == 0)
        return lt;
    free(lt);
    return NULL;
}

static void forget(cell_blaslt *lt, Product *p)
{
    Handle layouts[] = { p->a, p->b, p->c };
    for (int i = 0; i < 3; i++)
        if (layouts[i])
            lt->cublasLtMatrixLayoutDestroy(layouts[i]);
    if (p->desc)
        lt->cublasLtMatmulDescDestroy(p->desc);
    *p = (Product){ .used = 0 };
}

void cell_blaslt_close(cell_blaslt *lt)
{
    if (!lt)
        return;
    for (int i = 0; i < KNOWN; i++)
        forget(lt, &lt->known[i]);
    lt->cublasLtDestroy(lt->lt);
    free(lt);
}

static int type_of(cell_dtype dtype)
{
    return dtype == CELL_E4M3   ? R_E4M3
           : dtype == CELL_E5M2 ? R_E5M2
           : dtype == CELL_BF16 ? R16BF
           : dtype == CELL_F16  ? R16F
                                : R32F;
}

static int multiple_at(const void *pointer, int64_t ld, int64_t stride, cell_dtype dtype)
{
    int64_t bytes = (int64_t)cell_dtype_bytes(dtype);
    return (uintptr_t)pointer % ALIGNED == 0 && ld * bytes % ALIGNED == 0 && stride * bytes % ALIGNED == 0;
}

/* Row-major C[m,n] = A B is column-major C^T[n,m] = B^T A^T: cuBLASLt's first operand is B, which lies
 * transposed, rows of k; its second is A, rows of k too. */
static int fits(const cell_blas_call *x)
{
    return !x->a_transposed && x->b_transposed && x->k % ALIGNED == 0 && x->n % ALIGNED == 0 &&
           multiple_at(x->a.data, x->lda, x->a.batch_stride, x->a.dtype) &&
           multiple_at(x->b.data, x->ldb, x->b.batch_stride, x->b.dtype) &&
           multiple_at(x->c.data, x->ldc, x->c.batch_stride, x->c.dtype);
}

static int layout(cell_blaslt *lt, Handle *to, cell_dtype dtype, int64_t rows, int64_t cols, int64_t ld,
                  int64_t count, int64_t stride)
{
    int32_t n = (int32_t)count;
    int status = lt->cublasLtMatrixLayoutCreate(to, type_of(dtype), (uint64_t)rows, (uint64_t)cols, ld);
    if (status == 0 && count > 1)
        status = lt->cublasLtMatrixLayoutSetAttribute(*to, LAYOUT_COUNT, &n, sizeof n);
    if (status == 0 && count > 1)
        status = lt->cublasLtMatrixLayoutSetAttribute(*to, LAYOUT_STRIDE, &stride, sizeof stride);
    return status;
}

static int choose(cell_blaslt *lt, Product *p, size_t bytes)
{
    Handle preference = NULL;
    uint64_t most = bytes;
    uint32_t reduction = REDUCTION_IN_F32, aligned = ALIGNED;
    int n = 0, status = lt->cublasLtMatmulPreferenceCreate(&preference);
    if (status == 0)
        status = lt->cublasLtMatmulPreferenceSetAttribute(preference, PREFER_WORKSPACE, &most, sizeof most);
    if (status == 0)
        status = lt->cublasLtMatmulPreferenceSetAttribute(preference, PREFER_REDUCTION, &reduction,
                                                          sizeof reduction);
    for (int i = 0; i < 4 && status == 0; i++)
        status = lt->cublasLtMatmulPreferenceSetAttribute(preference, PREFER_ALIGNED_A + i, &aligned,
                                                          sizeof aligned);
    if (status == 0)
        status = lt->cublasLtMatmulAlgoGetHeuristic(lt->lt, p->desc, p->a, p->b, p->c, p->c, preference, 1,
                                                    &p->found, &n);
    if (preference)
        lt->cublasLtMatmulPreferenceDestroy(preference);
    return status == 0 ? p->found.state : status;
}

static int describe(cell_blaslt *lt, Product *p, const cell_blas_call *x, int64_t count)
{
    int32_t transposed = 1;
    int status = lt->cublasLtMatmulDescCreate(&p->desc, COMPUTE_32F, R32F);
    if (status == 0)
        status = lt->cublasLtMatmulDescSetAttribute(p->desc, DESC_TRANSA, &transposed, sizeof transposed);
    if (status == 0)
        status = layout(lt, &p->a, x->b.dtype, x->k, x->n, x->ldb, count, x->b.batch_stride);
    if (status == 0)
        status = layout(lt, &p->b, x->a.dtype, x->k, x->m, x->lda, count, x->a.batch_stride);
    if (status == 0)
        status = layout(lt, &p->c, x->c.dtype, x->n, x->m, x->ldc, count, x->c.batch_stride);
    return status;
}

static int set_scales(cell_blaslt *lt, const Product *p, const cell_blas_call *x)
{
    int status = lt->cublasLtMatmulDescSetAttribute(p->desc, DESC_A_SCALE, &x->b_scale, sizeof x->b_scale);
    if (status == 0)
        status = lt->cublasLtMatmulDescSetAttribute(p->desc, DESC_B_SCALE, &x->a_scale, sizeof x->a_scale);
    return status;
}

/* The product as it was described before; else it is described in place of the one that was used longest
 * ago. */
static int product_of(cell_blaslt *lt, const cell_blas_call *x, int64_t count, size_t bytes, Product **to)
{
    Key key = { x->m,
                x->n,
                x->k,
                count,
                x->lda,
                x->ldb,
                x->ldc,
                x->a.batch_stride,
                x->b.batch_stride,
                x->c.batch_stride,
                x->a.dtype,
                x->b.dtype,
                x->c.dtype };
    Product *oldest = &lt->known[0];
    for (int i = 0; i < KNOWN; i++) {
        Product *p = &lt->known[i];
        if (p->used && memcmp(&p->key, &key, sizeof key) == 0) {
            *to = p;
            p->used = ++lt->clock;
            return set_scales(lt, p, x);
        }
        oldest = p->used < oldest->used ? p : oldest;
    }
    forget(lt, oldest);
    int status = describe(lt, oldest, x, count);
    if (status == 0)
        status = set_scales(lt, oldest, x);
    if (status == 0)
        status = choose(lt, oldest, bytes);
    if (status != 0) {
        forget(lt, oldest);
        return status;
    }
    oldest->key = key;
    oldest->used = ++lt->clock;
    *to = oldest;
    return 0;
}

cell_status cell_blaslt_gemm(cell_blaslt *lt, const cell_blas_call *blas, double alpha, double beta,
                             void *workspace, size_t bytes, void *stream, cell_error *err)
{
    float a_factor = (float)alpha, b_factor = (float)beta;
    if (!lt || !fits(blas))
        return cell_fail(err, CELL_UNSUPPORTED, "matrix product of 8 bits: %s",
                         lt ? "cuBLASLt takes rows along the sum, and multiples of 16"
                            : "there is no cuBLASLt");
    for (int64_t first = 0; first < blas->batch; first += MOST_BATCH) {
        int64_t count = blas->batch - first < MOST_BATCH ? blas->batch - first : MOST_BATCH;
        Product *p = NULL;
        int status = product_of(lt, blas, count, bytes, &p);
        void *c = cell_batch_start(&blas->c, first);
        if (status == 0)
            status = lt->cublasLtMatmul(lt->lt, p->desc, &a_factor, cell_batch_start(&blas->b, first), p->a,
                                        cell_batch_start(&blas->a, first), p->b, &b_factor, c, p->c, c, p->c,
                                        p->found.algorithm, workspace, bytes, stream);
        if (status != 0)
            return cell_fail(
                err, CELL_BACKEND_FAILED,
                "matrix product of 8 bits, m %lld, n %lld, k %lld: cuBLASLt: %s; CELL_CUBLASLT=none "
                "multiplies copies of 16 bits",
                (long long)blas->m, (long long)blas->n, (long long)blas->k,
                lt->cublasLtGetStatusString(status));
    }
    return CELL_OK;
}
