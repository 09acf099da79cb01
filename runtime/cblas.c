/* cblas.c: the CBLAS that products on the host are given to. It is opened at the first product and stays
 * open. In: a product in BLAS terms (gemm.c). Out: the same as calls of cblas_sgemm and cblas_dgemm,
 * whose sizes have 32 bits, or 64 where the library's names say so. */
#include "cblas.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_MAJOR = 101, NOT_TRANSPOSED = 111, TRANSPOSED = 112 }; /* of CBLAS's interface */

#define GEMM(name, real, size)                                                                               \
    typedef void name(int order, int a_form, int b_form, size m, size n, size k, real alpha, const real *a,  \
                      size lda, const real *b, size ldb, real beta, real *c, size ldc)
GEMM(sgemm_fn, float, int);
GEMM(dgemm_fn, double, int);
GEMM(sgemm_wide_fn, float, int64_t);
GEMM(dgemm_wide_fn, double, int64_t);

/* How a build of a library spells its names: PREFIXcblas_sgemmSUFFIX,
 * PREFIXopenblas_set_num_threadsSUFFIX. */
typedef struct Spelling {
    const char *prefix, *suffix;
    int is_wide;
} Spelling;

static const Spelling spellings[] = { { "", "", 0 }, { "scipy_", "", 0 }, { "scipy_", "64_", 1 } };

typedef struct Cblas {
    void *sgemm, *dgemm;
    int is_wide;
    void (*set_threads)(int); /* OpenBLAS's, or NULL */
    int (*get_threads)(void);
    char name[256];
} Cblas;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static Cblas found;
static _Atomic int looked;
static int inside, threads_before; /* calls that keep it to one thread; how many it had */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

static void *symbol(void *library, const Spelling *s, const char *name)
{
    char whole[64];
    snprintf(whole, sizeof whole, "%s%s%s", s->prefix, name, s->suffix);
    return dlsym(library, whole);
}

/* C has no conversion between pointers to functions and to objects. */
static void set_function(void *pointer, void *address)
{
    memcpy(pointer, &address, sizeof address);
}

/* Opens a library that has both functions; it stays to the end of the process. flags: RTLD_NOLOAD, or 0. */
static int open_cblas(const char *name, int flags)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | flags);
    for (size_t i = 0; library && i < sizeof spellings / sizeof *spellings; i++) {
        const Spelling *s = &spellings[i];
        Cblas is = {
            symbol(library, s, "cblas_sgemm"), symbol(library, s, "cblas_dgemm"), s->is_wide, NULL, NULL, ""
        };
        if (!is.sgemm || !is.dgemm)
            continue;
        void *set = symbol(library, s, "openblas_set_num_threads");
        void *get = symbol(library, s, "openblas_get_num_threads");
        if (set && get) {
            set_function(&is.set_threads, set);
            set_function(&is.get_threads, get);
        }
        snprintf(is.name, sizeof is.name, "%s", name);
        found = is;
        return 1;
    }
    if (library)
        dlclose(library);
    return 0;
}

/* One that is there for others: Python's packages bring theirs under names that no loader looks for. */
static int take_loaded(struct dl_phdr_info *info, size_t bytes, void *data)
{
    (void)bytes, (void)data;
    const char *base = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    return base && strstr(base, "openblas") && open_cblas(info->dlpi_name, RTLD_NOLOAD);
}

static cell_status look(cell_error *err)
{
    static const char *const usual[] = { "libopenblas.so.0", "libcblas.so.3", "libblas.so.3" };
    const char *own = getenv("CELL_BLAS");
    int there = 0;
    if (!own || !*own) {
        for (size_t i = 0; i < sizeof usual / sizeof *usual && !there; i++)
            there = open_cblas(usual[i], 0);
        if (!there)
            dl_iterate_phdr(take_loaded, NULL);
    } else if (strcmp(own, "none") != 0 && !open_cblas(own, 0)) {
        const char *why = dlerror();
        return cell_fail(err, CELL_BACKEND_FAILED,
                         "CELL_BLAS is '%.200s', in which cblas_sgemm and cblas_dgemm are not found (%.200s)",
                         own, why ? why : "it is a library without them");
    }
    pthread_atfork(before_fork, after_fork, after_fork);
    looked = 1;
    return CELL_OK;
}

cell_status cell_cblas_find(cell_error *err)
{
    cell_status status = CELL_OK;
    if (looked)
        return CELL_OK;
    pthread_mutex_lock(&lock);
    if (!looked)
        status = look(err);
    pthread_mutex_unlock(&lock);
    return status;
}

const char *cell_cblas_name(void)
{
    return looked && found.sgemm ? found.name : NULL;
}

int cell_cblas_has_single(void)
{
    return looked && found.set_threads;
}

void cell_cblas_enter_single(void)
{
    if (!cell_cblas_has_single())
        return;
    pthread_mutex_lock(&lock);
    if (inside++ == 0) {
        threads_before = found.get_threads();
        found.set_threads(1);
    }
    pthread_mutex_unlock(&lock);
}

void cell_cblas_leave_single(void)
{
    if (!cell_cblas_has_single())
        return;
    pthread_mutex_lock(&lock);
    if (--inside == 0)
        found.set_threads(threads_before);
    pthread_mutex_unlock(&lock);
}

static int fits(const cell_blas_call *blas)
{
    return found.is_wide || (blas->m <= INT_MAX && blas->n <= INT_MAX && blas->k <= INT_MAX &&
                             blas->lda <= INT_MAX && blas->ldb <= INT_MAX && blas->ldc <= INT_MAX);
}

int cell_cblas_takes(const cell_gemm_call *call, cell_blas_call *blas)
{
    const char *which;
    int is_typed = (call->a.dtype == CELL_F32 || call->a.dtype == CELL_F64) &&
                   call->b.dtype == call->a.dtype && call->c.dtype == call->a.dtype;
    return cell_cblas_name() && is_typed && call->k > 0 && call->alpha != 0 &&
           cell_blas_form(call, blas, &which) && fits(blas);
}

#define MULTIPLY(function, real, size)                                                                       \
    do {                                                                                                     \
        function *multiply;                                                                                  \
        set_function(&multiply, sizeof(real) == 8 ? found.dgemm : found.sgemm);                              \
        multiply(ROW_MAJOR, blas->a_transposed ? TRANSPOSED : NOT_TRANSPOSED,                                \
                 blas->b_transposed ? TRANSPOSED : NOT_TRANSPOSED, (size)m, (size)n, (size)blas->k,          \
                 (real)alpha, (const real *)a, (size)blas->lda, (const real *)b, (size)blas->ldb,            \
                 (real)beta, (real *)c, (size)blas->ldc);                                                    \
    } while (0)

void cell_cblas_part(const cell_blas_call *blas, int64_t batch, int64_t row, int64_t col, int64_t m,
                     int64_t n, double alpha, double beta)
{
    int64_t bytes = (int64_t)cell_dtype_bytes(blas->c.dtype);
    const char *a = cell_batch_start(&blas->a, batch) + row * (blas->a_transposed ? 1 : blas->lda) * bytes;
    const char *b = cell_batch_start(&blas->b, batch) + col * (blas->b_transposed ? blas->ldb : 1) * bytes;
    char *c = cell_batch_start(&blas->c, batch) + (row * blas->ldc + col) * bytes;
    if (blas->c.dtype == CELL_F64 && found.is_wide)
        MULTIPLY(dgemm_wide_fn, double, int64_t);
    else if (blas->c.dtype == CELL_F64)
        MULTIPLY(dgemm_fn, double, int);
    else if (found.is_wide)
        MULTIPLY(sgemm_wide_fn, float, int64_t);
    else
        MULTIPLY(sgemm_fn, float, int);
}
