/* Of the CUDA driver and of cuBLAS, what backend_driver.c calls: their interfaces are binary and stable, so that this
 * is compiled where no CUDA toolkit is. Names, numbers and layouts are those of cuda.h and cublas_api.h; the driver in
 * tests/python/fake_cuda.cc, which is compiled with these, holds them to it. Pointers to device memory are 64-bit
 * numbers there and void * here, which is the same to a caller on every machine that CUDA runs on. */
#ifndef CELL_DRIVER_H
#define CELL_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef void *cell_handle; /* of a context, stream, event, module, function, pool, graph */

enum { /* CUresult */
    CELL_CU_OUT_OF_MEMORY = 2,
    CELL_CU_NO_DEVICE = 100,
    CELL_CU_INVALID_DEVICE = 101,
    CELL_CU_INVALID_IMAGE = 200,
    CELL_CU_NO_BINARY = 209,
    CELL_CU_UNSUPPORTED_PTX = 222,
    CELL_CU_NOT_FOUND = 500
};

enum { /* CUdevice_attribute */
    CELL_CU_SM_COUNT = 16,
    CELL_CU_MAJOR = 75,
    CELL_CU_MINOR = 76,
    CELL_CU_SHARED_OPTIN = 97
};

enum { /* CUfunction_attribute */
    CELL_CU_MAX_THREADS = 0,
    CELL_CU_SHARED_BYTES = 1,
    CELL_CU_PTX_VERSION = 5,
    CELL_CU_MAX_DYNAMIC_SHARED = 8,
    CELL_CU_NON_PORTABLE_CLUSTER = 14
};

enum { /* CUlaunchAttributeID */
    CELL_CU_COOPERATIVE = 2,
    CELL_CU_CLUSTER = 4,
    CELL_CU_PROGRAMMATIC = 6
};

enum {
    CELL_CU_STREAM_NON_BLOCKING = 1,
    CELL_CU_EVENT_NO_TIMING = 2,
    CELL_CU_CAPTURE_RELAXED = 2,
    CELL_CU_POOL_RELEASE_THRESHOLD = 4,
    CELL_CU_POOL_HELD = 5, /* CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT */
    CELL_CU_ALLOCATION_PINNED = 1,
    CELL_CU_LOCATION_DEVICE = 1,
    CELL_CU_POINTER_MEMORY_TYPE = 2,
    CELL_CU_POINTER_DEVICE = 9,
    CELL_CU_MEMORY_DEVICE = 2
};

typedef struct cell_cu_attribute {
    int id;
    char pad[4];
    union {
        char pad[64];
        int number;
        struct {
            unsigned x, y, z;
        } dim;
    } value;
} cell_cu_attribute;

typedef struct cell_cu_launch {
    unsigned grid[3], block[3], smem;
    cell_handle stream;
    cell_cu_attribute *attributes;
    unsigned count;
} cell_cu_launch;

typedef struct cell_cu_pool {
    int kind, handles, where, id;
    void *security;
    size_t most;
    unsigned short usage;
    unsigned char reserved[54];
} cell_cu_pool;

typedef struct cell_cu_rows { /* CUDA_MEMCPY2D */
    size_t from_x, from_y;
    int from_kind;
    const void *from_host, *from;
    void *from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    int to_kind;
    void *to_host, *to, *to_array;
    size_t to_pitch;
    size_t bytes, n;
} cell_cu_rows;

/* Every function: its name in the library, and its arguments. The result is a CUresult. */
#define CELL_DRIVER_FUNCTIONS(F)                                                                             \
    F(cuInit, (unsigned flags))                                                                              \
    F(cuDriverGetVersion, (int *version))                                                                    \
    F(cuDeviceGetCount, (int *count))                                                                        \
    F(cuDeviceGet, (int *device, int number))                                                                \
    F(cuDeviceGetAttribute, (int *value, int attribute, int device))                                         \
    F(cuDevicePrimaryCtxRetain, (cell_handle * context, int device))                                         \
    F(cuDevicePrimaryCtxRelease_v2, (int device))                                                            \
    F(cuCtxGetCurrent, (cell_handle * context))                                                              \
    F(cuCtxSetCurrent, (cell_handle context))                                                                \
    F(cuGetErrorName, (int error, const char **text))                                                        \
    F(cuGetErrorString, (int error, const char **text))                                                      \
    F(cuStreamCreate, (cell_handle * stream, unsigned flags))                                                \
    F(cuStreamDestroy_v2, (cell_handle stream))                                                              \
    F(cuStreamSynchronize, (cell_handle stream))                                                             \
    F(cuStreamWaitEvent, (cell_handle stream, cell_handle event, unsigned flags))                            \
    F(cuStreamIsCapturing, (cell_handle stream, int *status))                                                \
    F(cuStreamBeginCapture_v2, (cell_handle stream, int mode))                                               \
    F(cuStreamEndCapture, (cell_handle stream, cell_handle * graph))                                         \
    F(cuEventCreate, (cell_handle * event, unsigned flags))                                                  \
    F(cuEventRecord, (cell_handle event, cell_handle stream))                                                \
    F(cuEventDestroy_v2, (cell_handle event))                                                                \
    F(cuGraphInstantiateWithFlags, (cell_handle * ready, cell_handle graph, unsigned long long flags))       \
    F(cuGraphLaunch, (cell_handle ready, cell_handle stream))                                                \
    F(cuGraphDestroy, (cell_handle graph))                                                                   \
    F(cuGraphExecDestroy, (cell_handle ready))                                                               \
    F(cuMemPoolCreate, (cell_handle * pool, const cell_cu_pool *props))                                      \
    F(cuMemPoolSetAttribute, (cell_handle pool, int attribute, void *value))                                 \
    F(cuMemPoolGetAttribute, (cell_handle pool, int attribute, void *value))                                 \
    F(cuMemPoolTrimTo, (cell_handle pool, size_t keep))                                                      \
    F(cuMemHostAlloc, (void **pointer, size_t bytes, unsigned flags))                                        \
    F(cuMemFreeHost, (void *pointer))                                                                        \
    F(cuMemPoolDestroy, (cell_handle pool))                                                                  \
    F(cuMemAlloc_v2, (void **pointer, size_t bytes))                                                         \
    F(cuMemFree_v2, (void *pointer))                                                                         \
    F(cuMemAllocFromPoolAsync, (void **pointer, size_t bytes, cell_handle pool, cell_handle stream))         \
    F(cuMemFreeAsync, (void *pointer, cell_handle stream))                                                   \
    F(cuMemcpyAsync, (void *to, const void *from, size_t bytes, cell_handle stream))                         \
    F(cuMemcpy2DAsync_v2, (const cell_cu_rows *copy, cell_handle stream))                                    \
    F(cuMemcpyHtoDAsync_v2, (void *to, const void *from, size_t bytes, cell_handle stream))                  \
    F(cuMemsetD8Async, (void *to, unsigned char byte, size_t bytes, cell_handle stream))                     \
    F(cuMemsetD2D8Async,                                                                                     \
      (void *to, size_t pitch, unsigned char byte, size_t width, size_t height, cell_handle stream))         \
    F(cuPointerGetAttribute, (void *value, int attribute, const void *pointer))                              \
    F(cuModuleLoadData, (cell_handle * module, const void *image))                                           \
    F(cuModuleUnload, (cell_handle module))                                                                  \
    F(cuModuleGetFunction, (cell_handle * function, cell_handle module, const char *name))                   \
    F(cuFuncGetAttribute, (int *value, int attribute, cell_handle function))                                 \
    F(cuFuncSetAttribute, (cell_handle function, int attribute, int value))                                  \
    F(cuLaunchKernelEx, (const cell_cu_launch *launch, cell_handle function, void **args, void **extra))     \
    F(cuOccupancyMaxActiveBlocksPerMultiprocessor,                                                           \
      (int *blocks, cell_handle function, int threads, size_t smem))                                         \
    F(cuOccupancyMaxActiveClusters, (int *clusters, cell_handle function, const cell_cu_launch *launch))

enum { /* of cuBLAS */
    CELL_BLAS_ALLOC_FAILED = 3,
    CELL_BLAS_COMPUTE_32F = 68,
    CELL_BLAS_COMPUTE_64F = 70,
    CELL_BLAS_GEMM_DEFAULT = -1,
    CELL_BLAS_NO_REDUCED_PRECISION = 16,
    CELL_BLAS_R32F = 0,
    CELL_BLAS_R64F = 1,
    CELL_BLAS_R16F = 2,
    CELL_BLAS_R16BF = 14
};

#define CELL_BLAS_FUNCTIONS(F)                                                                               \
    F(cublasCreate_v2, (cell_handle * blas))                                                                 \
    F(cublasDestroy_v2, (cell_handle blas))                                                                  \
    F(cublasSetStream_v2, (cell_handle blas, cell_handle stream))                                            \
    F(cublasSetWorkspace_v2, (cell_handle blas, void *workspace, size_t bytes))                              \
    F(cublasSetMathMode, (cell_handle blas, int mode))                                                       \
    F(cublasScalEx_64, (cell_handle blas, int64_t n, const void *factor, int factor_type, void *x, int type, \
                        int64_t stride, int compute))                                                        \
    F(cublasGemmStridedBatchedEx_64,                                                                         \
      (cell_handle blas, int a_form, int b_form, int64_t m, int64_t n, int64_t k, const void *alpha,         \
       const void *a, int a_type, int64_t lda, long long a_stride, const void *b, int b_type, int64_t ldb,   \
       long long b_stride, const void *beta, void *c, int c_type, int64_t ldc, long long c_stride,           \
       int64_t count, int compute, int algorithm))                                                           \
    F(cublasGemmBatchedEx_64,                                                                                \
      (cell_handle blas, int a_form, int b_form, int64_t m, int64_t n, int64_t k, const void *alpha,         \
       void *const *a, int a_type, int64_t lda, void *const *b, int b_type, int64_t ldb, const void *beta,   \
       void *const *c, int c_type, int64_t ldc, int64_t count, int compute, int algorithm))

#define CELL_DRIVER_MEMBER(name, arguments) int(*name) arguments;

typedef struct cell_driver_table {
    CELL_DRIVER_FUNCTIONS(CELL_DRIVER_MEMBER)
} cell_driver_table;

typedef struct cell_blas_table {
    CELL_BLAS_FUNCTIONS(CELL_DRIVER_MEMBER)
    const char *(*cublasGetStatusString)(int status);
} cell_blas_table;

#endif
