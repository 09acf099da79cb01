/* The CUDA backend: one device, one stream at a time, one cuBLAS handle. In: what the executor issues. Out:
 * asynchronous work on the stream. Guaranteed: two runs give the same bits (fixed cuBLAS workspace, no TF32,
 * no reduced-precision sums); every launch is checked; a stream of NULL is the context's own, which orders
 * itself with the legacy default stream as that one would, but can be captured. Graphs are recorded on a
 * stream of their own. Compiled only with the CUDA toolkit. */
#include "blaslt.h"
#include "context.h"
#include "cuda_reason.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define HAS_RANGES 1
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLAS_WORKSPACE = 32 << 20, KERNEL_SLOTS = 256, MAX_BATCH = 65535, MAX_ATTRIBUTES = 3 };

/* A kernel that was looked at: what it may use, and the dynamic shared memory it was set to. */
typedef struct KernelSlot {
    cell_kernel_fn symbol;
    size_t smem;
    int compute;         /* of the PTX that its code was made from: 80, 90 */
    int counted;         /* resident is what the device holds of it with counted_smem, which does not change */
    size_t counted_smem;
    int64_t resident;
} KernelSlot;

typedef struct CudaDevice {
    int device;
    cudaStream_t stream;  /* where work goes now */
    cudaStream_t own;     /* blocking with respect to the legacy default stream */
    cudaStream_t capture; /* non-blocking, for recording only */
    cudaStream_t resume;  /* stream to go back to after a recording */
    cudaStream_t copies; /* of cell_copy_begin; made by the first */
    cublasHandle_t blas;
    cell_blaslt *blaslt; /* NULL: there is none, or the device has no products of 8 bits */
    void *blas_workspace;
    cudaMemPool_t pool;
    int sm_count, smem_max, capability;
    int aloud; /* say which code runs, once */
    KernelSlot kernels[KERNEL_SLOTS];
} CudaDevice;

static cell_status status_of(cudaError_t error) {
    switch (error) {
    case cudaSuccess:
        return CELL_OK;
    case cudaErrorMemoryAllocation:
        return CELL_OUT_OF_MEMORY;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
        return CELL_NO_DEVICE;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidKernelImage:
        return CELL_NO_IMAGE;
    default:
        return CELL_BACKEND_FAILED;
    }
}

static cell_status check(cudaError_t error, const char *what, cell_error *err) {
    if (error == cudaSuccess)
        return CELL_OK;
    cudaGetLastError(); /* so that the next call does not report this failure again */
    const char *reason = cell_cuda_reason((int)error);
    return cell_fail(err, status_of(error), "%s: %s (%s)%s%s", what, cudaGetErrorString(error),
                     cudaGetErrorName(error), reason ? "; " : "", reason ? reason : "");
}

static cell_status check_blas(cublasStatus_t status, const char *what, cell_error *err) {
    if (status == CUBLAS_STATUS_SUCCESS)
        return CELL_OK;
    cell_status code = status == CUBLAS_STATUS_ALLOC_FAILED ? CELL_OUT_OF_MEMORY : CELL_BACKEND_FAILED;
    return cell_fail(err, code, "%s: cuBLAS: %s", what, cublasGetStatusString(status));
}

/* Other code in this thread may have chosen another device since the last call. */
static cell_status use(const CudaDevice *cuda, cell_error *err) {
    int current;
    if (cudaGetDevice(&current) == cudaSuccess && current == cuda->device)
        return CELL_OK;
    return check(cudaSetDevice(cuda->device), "cudaSetDevice", err);
}

/* Why there is no device, as one sentence. */
static cell_status check_driver(int device, cell_error *err) {
    int driver = 0, runtime = 0, count = 0;
    cudaRuntimeGetVersion(&runtime);
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return cell_fail(err, CELL_NO_DEVICE, "no NVIDIA driver is installed on this machine");
    cudaError_t error = cudaGetDeviceCount(&count);
    cudaGetLastError();
    if (error == cudaErrorInsufficientDriver)
        return cell_fail(
            err, CELL_BACKEND_FAILED,
            "the NVIDIA driver is too old: it supports CUDA %d.%d, this library was built with %d.%d",
            driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
        return cell_fail(err, CELL_NO_DEVICE, "no NVIDIA GPU is visible");
    if (error == cudaErrorInitializationError)
        return cell_fail(err, CELL_BACKEND_FAILED, "%s", cell_cuda_reason((int)error));
    if (error != cudaSuccess)
        return check(error, "cannot count the GPUs", err);
    if (device < 0 || device >= count)
        return cell_fail(err, CELL_NO_DEVICE, "device %d was asked for; there are %d", device, count);
    return CELL_OK;
}

static cell_status read_attributes(CudaDevice *cuda, cell_error *err) {
    int major = 0, minor = 0;
    cudaError_t error = cudaDeviceGetAttribute(&cuda->sm_count, cudaDevAttrMultiProcessorCount, cuda->device);
    if (error == cudaSuccess)
        error =
            cudaDeviceGetAttribute(&cuda->smem_max, cudaDevAttrMaxSharedMemoryPerBlockOptin, cuda->device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, cuda->device);
    cuda->capability = 10 * major + minor;
    return check(error, "cannot read the device's attributes", err);
}

/* A pool of the context's own, which keeps what was freed: the default pool gives it back at every
 * synchronisation. */
static cell_status create_pool(CudaDevice *cuda, cell_error *err) {
    struct cudaMemPoolProps props;
    memset(&props, 0, sizeof props);
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = cuda->device;
    cell_status status = check(cudaMemPoolCreate(&cuda->pool, &props), "cannot create a memory pool", err);
    if (status != CELL_OK)
        return status;
    uint64_t keep = UINT64_MAX;
    return check(cudaMemPoolSetAttribute(cuda->pool, cudaMemPoolAttrReleaseThreshold, &keep), "memory pool",
                 err);
}

/* Setting the stream drops cuBLAS's workspace, so the two always go together. */
static cell_status point_blas(CudaDevice *cuda, cudaStream_t stream, cell_error *err) {
    cell_status status = check_blas(cublasSetStream(cuda->blas, stream), "stream", err);
    if (status != CELL_OK)
        return status;
    cuda->stream = stream;
    return check_blas(cublasSetWorkspace(cuda->blas, cuda->blas_workspace, BLAS_WORKSPACE), "workspace", err);
}

/* Without it such numbers are multiplied as copies of 16 bits. */
static void open_blaslt(CudaDevice *cuda)
{
    cell_error why = { .text = "" };
    if (cuda->capability < CELL_BLASLT_CAPABILITY)
        return;
    cuda->blaslt = cell_blaslt_open(&why);
    if (!cuda->blaslt && cuda->aloud)
        fprintf(stderr, "cell: %s: operands of 8 bits are multiplied as copies of 16\n", why.text);
}

static cell_status create_blas(CudaDevice *cuda, cell_error *err) {
    cell_status status = check(cudaMalloc(&cuda->blas_workspace, BLAS_WORKSPACE), "workspace of cuBLAS", err);
    if (status == CELL_OK)
        status = check_blas(cublasCreate(&cuda->blas), "cannot start", err);
    if (status == CELL_OK)
        status =
            check_blas(cublasSetMathMode(cuda->blas, CUBLAS_DEFAULT_MATH |
                                                         CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION),
                       "math mode", err);
    if (status == CELL_OK)
        open_blaslt(cuda);
    return status == CELL_OK ? point_blas(cuda, cuda->own, err) : status;
}

static void cuda_destroy(void *self) {
    CudaDevice *cuda = self;
    if (!cuda)
        return;
    use(cuda, NULL);
    cell_blaslt_close(cuda->blaslt);
    if (cuda->blas)
        cublasDestroy(cuda->blas);
    if (cuda->blas_workspace)
        cudaFree(cuda->blas_workspace);
    if (cuda->own)
        cudaStreamDestroy(cuda->own);
    if (cuda->capture)
        cudaStreamDestroy(cuda->capture);
    if (cuda->copies)
        cudaStreamDestroy(cuda->copies);
    if (cuda->pool)
        cudaMemPoolDestroy(cuda->pool);
    cudaGetLastError();
    free(cuda);
}

static cell_status open_device(CudaDevice *cuda, cell_error *err) {
    cell_status status = check(cudaSetDevice(cuda->device), "cudaSetDevice", err);
    if (status == CELL_OK)
        status = read_attributes(cuda, err);
    if (status == CELL_OK)
        status = check(cudaStreamCreate(&cuda->own), "cannot create a stream", err);
    if (status == CELL_OK)
        status = check(cudaStreamCreateWithFlags(&cuda->capture, cudaStreamNonBlocking),
                       "cannot create a stream", err);
    if (status == CELL_OK)
        status = create_pool(cuda, err);
    return status == CELL_OK ? create_blas(cuda, err) : status;
}

static cell_status cuda_create(void **self, int device, cell_error *err) {
    *self = NULL;
    cell_status status = check_driver(device, err);
    if (status != CELL_OK)
        return status;
    CudaDevice *cuda = calloc(1, sizeof *cuda);
    if (!cuda)
        return cell_fail(err, CELL_OUT_OF_MEMORY, "out of memory for a context");
    cuda->device = device;
    const char *verbose = getenv("CELL_VERBOSE");
    cuda->aloud = verbose && *verbose && strcmp(verbose, "0") != 0;
    status = open_device(cuda, err);
    if (status != CELL_OK) {
        cuda_destroy(cuda);
        return status;
    }
    *self = cuda;
    return CELL_OK;
}

static int capturing(cudaStream_t stream) {
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) {
        cudaGetLastError();
        return 1;
    }
    return status != cudaStreamCaptureStatusNone;
}

/* cuBLAS's workspace is one, so work on the new stream begins after the old one's. A capture may not depend
 * on work outside it; who captures waits for the device before. */
static cell_status order_streams(CudaDevice *cuda, cudaStream_t next, cell_error *err) {
    cudaEvent_t event;
    if (capturing(cuda->stream) || capturing(next))
        return CELL_OK;
    cell_status status = check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event", err);
    if (status != CELL_OK)
        return status;
    status = check(cudaEventRecord(event, cuda->stream), "event on the stream used before", err);
    if (status == CELL_OK)
        status = check(cudaStreamWaitEvent(next, event, 0), "the stream cannot wait", err);
    cudaEventDestroy(event);
    return status;
}

static cell_status cuda_set_stream(void *self, void *stream, cell_error *err) {
    CudaDevice *cuda = self;
    cudaStream_t wanted = stream ? (cudaStream_t)stream : cuda->own;
    cell_status status = use(cuda, err);
    if (status == CELL_OK)
        status = order_streams(cuda, wanted, err);
    return status == CELL_OK ? point_blas(cuda, wanted, err) : status;
}

static cell_status cuda_sync(void *self, cell_error *err) {
    CudaDevice *cuda = self;
    cell_status status = use(cuda, err);
    return status == CELL_OK ? check(cudaStreamSynchronize(cuda->stream), "work on the stream failed", err)
                             : status;
}

static cell_status cuda_alloc(void *self, void **pointer, size_t bytes, cell_error *err) {
    CudaDevice *cuda = self;
    cell_status status = use(cuda, err);
    if (status != CELL_OK)
        return status;
    cudaError_t error = cudaMallocFromPoolAsync(pointer, bytes, cuda->pool, cuda->stream);
    if (error != cudaErrorMemoryAllocation)
        return check(error, "cannot allocate", err);
    cudaGetLastError();
    return cell_fail(err, CELL_OUT_OF_MEMORY, "out of memory: %zu bytes on device %d", bytes, cuda->device);
}

static cell_status cuda_free(void *self, void *pointer, cell_error *err) {
    CudaDevice *cuda = self;
    cell_status status = use(cuda, err);
    return status == CELL_OK ? check(cudaFreeAsync(pointer, cuda->stream), "cannot free", err) : status;
}

static cell_status cuda_copy(void *self, void *to, const void *from, size_t bytes, cell_error *err) {
    CudaDevice *cuda = self;
    cell_status status = use(cuda, err);
    if (status != CELL_OK)
        return status;
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda->stream), "cannot copy",
                 err);
}

static cell_status cuda_copy_rows(void *self, const cell_row_copy *rows, cell_error *err)
{
    CudaDevice *cuda = self;
    cell_status status = use(cuda, err);
    if (status != CELL_OK)
        return status;
    return check(cudaMemcpy2DAsync(rows->to, rows->to_pitch, rows->from, rows->from_pitch, rows->bytes,
                                   (size_t)rows->n, cudaMemcpyDeviceToDevice, cuda->stream),
                 "cannot copy rows", err);
}

static cell_status cuda_transfer(void *self, void *to, const void *from, size_t bytes, cell_error *err) {
    CudaDevice *cuda = self;
    cell_status status = use(cuda, err);
    if (status == CELL_OK)
        status = check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda->stream), "cannot copy", err);
    return status == CELL_OK ? cuda_sync(self, err) : status;
}

/* From pageable memory: staged before the call returns. A graph would read the memory when it is replayed. */
static cell_status cuda_put(void *self, void *to, const void *from, size_t bytes, cell_error *err) {
    CudaDevice *cuda = self;
    cell_status status = use(cuda, err);
    if (status != CELL_OK)
        return status;
    if (capturing(cuda->stream))
        return check(cudaMemsetAsync(to, 0, bytes, cuda->stream), "cannot fill", err);
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, cuda->stream), "cannot copy", err);
}

static cell_status cuda_fill(void *self, void *to, int byte, size_t bytes, cell_error *err) {
    CudaDevice *cuda = self;
    cell_status status = use(cuda, err);
    return status == CELL_OK ? check(cudaMemsetAsync(to, byte, bytes, cuda->stream), "cannot fill", err)
                             : status;
}

static cell_status cuda_held(void *self, size_t *bytes, cell_error *err)
{
    CudaDevice *cuda = self;
    uint64_t held = 0;
    cell_status status = check(cudaMemPoolGetAttribute(cuda->pool, cudaMemPoolAttrReservedMemCurrent, &held),
                               "memory pool", err);
    *bytes = (size_t)held;
    return status;
}

static cell_status cuda_trim(void *self, size_t keep, cell_error *err)
{
    CudaDevice *cuda = self;
    cell_status status = use(cuda, err);
    return status == CELL_OK ? check(cudaMemPoolTrimTo(cuda->pool, keep), "memory pool", err) : status;
}

static cell_status cuda_alloc_pinned(void *self, void **pointer, size_t bytes, cell_error *err)
{
    cell_status status = use(self, err);
    if (status != CELL_OK)
        return status;
    cudaError_t error = cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
    if (error != cudaErrorMemoryAllocation)
        return check(error, "cannot allocate pinned memory", err);
    cudaGetLastError();
    return cell_fail(err, CELL_OUT_OF_MEMORY, "out of memory: %zu bytes of pinned host memory", bytes);
}

static cell_status cuda_free_pinned(void *self, void *pointer, cell_error *err)
{
    cell_status status = use(self, err);
    return status == CELL_OK ? check(cudaFreeHost(pointer), "cannot free pinned memory", err) : status;
}

/* What `next` gets from here on comes behind what `before` has. */
static cell_status behind(cudaStream_t before, cudaStream_t next, cell_error *err)
{
    cudaEvent_t event;
    cell_status status = check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event", err);
    if (status != CELL_OK)
        return status;
    status = check(cudaEventRecord(event, before), "event", err);
    if (status == CELL_OK)
        status = check(cudaStreamWaitEvent(next, event, 0), "the stream cannot wait", err);
    cudaEventDestroy(event);
    return status;
}

static cell_status cuda_copy_begin(void *self, void *to, const void *from, size_t bytes, cell_error *err)
{
    CudaDevice *cuda = self;
    cell_status status = use(cuda, err);
    if (status == CELL_OK && !cuda->copies)
        status = check(cudaStreamCreateWithFlags(&cuda->copies, cudaStreamNonBlocking),
                       "cannot create a stream", err);
    if (status == CELL_OK)
        status = behind(cuda->stream, cuda->copies, err);
    if (status != CELL_OK)
        return status;
    return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda->copies), "cannot copy", err);
}

static cell_status cuda_copy_join(void *self, cell_error *err)
{
    CudaDevice *cuda = self;
    cell_status status = use(cuda, err);
    return status == CELL_OK && cuda->copies ? behind(cuda->copies, cuda->stream, err) : status;
}

static cell_status cuda_copy_wait(void *self, cell_error *err)
{
    CudaDevice *cuda = self;
    cell_status status = use(cuda, err);
    return status == CELL_OK && cuda->copies
               ? check(cudaStreamSynchronize(cuda->copies), "a copy failed", err)
               : status;
}

#ifdef HAS_RANGES
static void cuda_range(void *self, const char *name)
{
    (void)self;
    if (name)
        nvtxRangePushA(name);
    else
        nvtxRangePop();
}
#endif

static cudaDataType_t cuda_type(cell_dtype dtype) {
    switch (dtype) {
    case CELL_F64:
        return CUDA_R_64F;
    case CELL_BF16:
        return CUDA_R_16BF;
    case CELL_F16:
        return CUDA_R_16F;
    default:
        return CUDA_R_32F;
    }
}

/* C = beta C where there is nothing to add; row by row only if rows are apart. */
static cell_status scale_one(CudaDevice *cuda, const cell_blas_call *blas, int64_t batch, double beta,
                             cell_error *err) {
    size_t element = cell_dtype_bytes(blas->c.dtype);
    char *c = cell_batch_start(&blas->c, batch);
    if (beta == 0)
        return check(cudaMemset2DAsync(c, (size_t)blas->ldc * element, 0, (size_t)blas->n * element,
                                       (size_t)blas->m, cuda->stream),
                     "cannot clear a product", err);
    int64_t rows = blas->ldc == blas->n ? 1 : blas->m,
            length = blas->ldc == blas->n ? blas->m * blas->n : blas->n;
    cell_dtype factor_type = blas->c.dtype == CELL_F64 ? CELL_F64 : CELL_F32;
    cell_blas_factor factor = cell_blas_factor_of(beta, factor_type);
    for (int64_t row = 0; row < rows; row++) {
        void *at = c + (size_t)(row * blas->ldc) * element;
        cublasStatus_t status = cublasScalEx_64(cuda->blas, length, &factor, cuda_type(factor_type), at,
                                                cuda_type(blas->c.dtype), 1, cuda_type(factor_type));
        if (status != CUBLAS_STATUS_SUCCESS)
            return check_blas(status, "scaling", err);
    }
    return CELL_OK;
}

static cell_status scale_only(CudaDevice *cuda, const cell_blas_call *blas, double beta, cell_error *err) {
    if (beta == 1)
        return CELL_OK;
    for (int64_t batch = 0; batch < blas->batch; batch++) {
        cell_status status = scale_one(cuda, blas, batch, beta, err);
        if (status != CELL_OK)
            return status;
    }
    return CELL_OK;
}

/* Row-major C = A B is column-major C^T = B^T A^T with the same memory: A and B change places, the flags
 * stay. */
static cell_status multiply(CudaDevice *cuda, const cell_blas_call *blas, int64_t first, int64_t count,
                            double alpha, double beta, cell_error *err) {
    int is_double = blas->c.dtype == CELL_F64;
    cell_blas_factor a_factor = cell_blas_factor_of(alpha, blas->c.dtype), b_factor = cell_blas_factor_of(beta, blas->c.dtype);
    cublasOperation_t a_form = blas->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t b_form = blas->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t status = cublasGemmStridedBatchedEx_64(
        cuda->blas, b_form, a_form, blas->n, blas->m, blas->k, &a_factor, cell_batch_start(&blas->b, first),
        cuda_type(blas->b.dtype), blas->ldb, blas->b.batch_stride, cell_batch_start(&blas->a, first),
        cuda_type(blas->a.dtype), blas->lda, blas->a.batch_stride, &b_factor, cell_batch_start(&blas->c, first),
        cuda_type(blas->c.dtype), blas->ldc, blas->c.batch_stride, count,
        is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    return check_blas(status, "matrix product", err);
}

static cell_status cuda_gemm(void *self, const cell_gemm_call *call, cell_error *err) {
    CudaDevice *cuda = self;
    cell_blas_call blas;
    const char *which;
    if (call->m == 0 || call->n == 0 || call->batch == 0)
        return CELL_OK;
    if (!cell_blas_form(call, &blas, &which))
        return cell_fail(
            err, CELL_UNSUPPORTED,
            "matrix product: %s has row and column strides of which none is 1, or rows that overlap; the "
            "CUDA backend takes no such matrix",
            which);
    cell_status status = use(cuda, err);
    if (status == CELL_OK && (call->k == 0 || call->alpha == 0))
        return scale_only(cuda, &blas, call->beta, err);
    if (status == CELL_OK && blas.a_scale)
        return cell_blaslt_gemm(cuda->blaslt, &blas, call->alpha, call->beta, cuda->blas_workspace,
                                BLAS_WORKSPACE, cuda->stream, err);
    for (int64_t first = 0; status == CELL_OK && first < blas.batch; first += MAX_BATCH) {
        int64_t count = blas.batch - first < MAX_BATCH ? blas.batch - first : MAX_BATCH;
        status = multiply(cuda, &blas, first, count, call->alpha, call->beta, err);
    }
    return status;
}

/* Of the first one's sizes and strides; where the matrices of each are is on the device. */
static cell_status cuda_gemms(void *self, const cell_gemm_call *calls, int n, void *const *places,
                              cell_error *err)
{
    CudaDevice *cuda = self;
    cell_blas_call blas;
    const char *which;
    cell_status status = CELL_OK;
    if (!cell_blas_form(&calls[0], &blas, &which)) {
        for (int i = 0; i < n && status == CELL_OK; i++)
            status = cuda_gemm(self, &calls[i], err);
        return status;
    }
    const void *const *from = (const void *const *)places;
    const void *const *a = from + (blas.swapped ? n : 0);
    const void *const *b = from + (blas.swapped ? 0 : n);
    cell_blas_factor alpha = cell_blas_factor_of(calls[0].alpha, blas.c.dtype),
                     beta = cell_blas_factor_of(calls[0].beta, blas.c.dtype);
    status = use(cuda, err);
    if (status != CELL_OK)
        return status;
    return check_blas(
        cublasGemmBatchedEx_64(cuda->blas, blas.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                               blas.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, blas.n, blas.m, blas.k, &alpha,
                               b, cuda_type(blas.b.dtype), blas.ldb, a, cuda_type(blas.a.dtype), blas.lda,
                               &beta, (void *const *)places + 2 * n, cuda_type(blas.c.dtype), blas.ldc, n,
                               blas.c.dtype == CELL_F64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                               CUBLAS_GEMM_DEFAULT),
        "matrix products", err);
}

static cell_status explain_image(const CudaDevice *cuda, const cell_kernel *kernel, cudaError_t error,
                                 cell_error *err) {
    cudaGetLastError();
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (error == cudaErrorUnsupportedPtxVersion)
        return cell_fail(err, CELL_NO_IMAGE,
                         "kernel %s: the library has no machine code for sm_%d, and its PTX, made by CUDA %d.%d, is "
                         "too new for the driver, which supports CUDA %d.%d: update the driver, or build it with "
                         "CUDA_ARCHS=%d",
                         kernel->name, cuda->capability, runtime / 1000, runtime % 1000 / 10, driver / 1000,
                         driver % 1000 / 10, cuda->capability);
    if (status_of(error) == CELL_NO_IMAGE)
        return cell_fail(err, CELL_NO_IMAGE,
                         "kernel %s: the library has no code that an sm_%d device can run; build it with "
                         "CUDA_ARCHS=%d",
                         kernel->name, cuda->capability, cuda->capability);
    return check(error, kernel->name, err);
}

static cell_status check_limits(const CudaDevice *cuda, const cell_kernel *kernel, size_t smem,
                                const struct cudaFuncAttributes *attributes, cell_error *err) {
    if (kernel->threads < 1 || kernel->threads > attributes->maxThreadsPerBlock)
        return cell_fail(err, CELL_UNSUPPORTED, "kernel %s: %d threads a block; it can have %d", kernel->name,
                         kernel->threads, attributes->maxThreadsPerBlock);
    if (smem + attributes->sharedSizeBytes > (size_t)cuda->smem_max)
        return cell_fail(err, CELL_UNSUPPORTED,
                         "kernel %s: %zu bytes of shared memory a block; the device has %d: build the library for "
                         "sm_%d too (--archs), or with --schedule steps",
                         kernel->name, smem + attributes->sharedSizeBytes, cuda->smem_max, cuda->capability);
    if (kernel->cluster > 1 && cuda->capability < 90)
        return cell_fail(err, CELL_UNSUPPORTED, "kernel %s: clusters need an sm_90 device, this one is sm_%d",
                         kernel->name, cuda->capability);
    return CELL_OK;
}

/* The kernel's slot, or the free one where it belongs; NULL when the table is full. */
static KernelSlot *slot_of(CudaDevice *cuda, cell_kernel_fn symbol) {
    uintptr_t hash = (uintptr_t)symbol / 16 * 2654435761u;
    for (int i = 0; i < KERNEL_SLOTS; i++) {
        KernelSlot *slot = &cuda->kernels[(hash + (uintptr_t)i) % KERNEL_SLOTS];
        if (slot->symbol == symbol || !slot->symbol)
            return slot;
    }
    return NULL;
}

static cell_status raise_limits(const cell_kernel *kernel, size_t smem, cell_error *err) {
    const void *symbol = (const void *)(uintptr_t)kernel->symbol;
    cudaError_t error = cudaSuccess;
    if (smem > 48 * 1024)
        error = cudaFuncSetAttribute(symbol, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    if (error == cudaSuccess && kernel->cluster > 8 &&
        cudaFuncSetAttribute(symbol, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) != cudaSuccess)
        cudaGetLastError(); /* then none is resident */
    return check(error, kernel->name, err);
}

/* Can the kernel run here with this much shared memory? Sets what has to be set, once. */
static cell_status cuda_prepare(void *self, const cell_kernel *kernel, size_t smem, cell_error *err) {
    CudaDevice *cuda = self;
    KernelSlot *slot = slot_of(cuda, kernel->symbol);
    if (slot && slot->symbol && slot->smem >= smem)
        return CELL_OK;
    cell_status status = use(cuda, err);
    if (status != CELL_OK)
        return status;
    struct cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, (const void *)(uintptr_t)kernel->symbol);
    if (error != cudaSuccess)
        return explain_image(cuda, kernel, error, err);
    if (cuda->aloud)
        fprintf(stderr, "cell: kernel %s and others: code for sm_%d, made from PTX of compute_%d, on sm_%d\n",
                kernel->name, attributes.binaryVersion, attributes.ptxVersion, cuda->capability);
    cuda->aloud = 0;
    status = check_limits(cuda, kernel, smem, &attributes, err);
    if (status == CELL_OK)
        status = raise_limits(kernel, smem, err);
    if (status == CELL_OK && slot)
        *slot = (KernelSlot){.symbol = kernel->symbol, .smem = smem, .compute = attributes.ptxVersion};
    return status;
}

static int launch_attributes(const CudaDevice *cuda, const cell_kernel *kernel,
                             cudaLaunchAttribute attributes[MAX_ATTRIBUTES]) {
    int count = 0;
    if (kernel->dependent && cuda->capability >= 90) {
        attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (kernel->cooperative) {
        attributes[count].id = cudaLaunchAttributeCooperative;
        attributes[count++].val.cooperative = 1;
    }
    if (kernel->cluster > 1) {
        attributes[count].id = cudaLaunchAttributeClusterDimension;
        attributes[count].val.clusterDim.x = (unsigned)kernel->cluster;
        attributes[count].val.clusterDim.y = 1;
        attributes[count++].val.clusterDim.z = 1;
    }
    return count;
}

static cudaLaunchConfig_t configuration(const CudaDevice *cuda, const cell_kernel *kernel, int threads,
                                        size_t smem, cudaLaunchAttribute *attributes) {
    cudaLaunchConfig_t config;
    memset(&config, 0, sizeof config);
    config.gridDim.x = kernel->cluster > 1 ? (unsigned)kernel->cluster : 1;
    config.gridDim.y = config.gridDim.z = 1;
    config.blockDim.x = (unsigned)threads;
    config.blockDim.y = config.blockDim.z = 1;
    config.dynamicSmemBytes = smem;
    config.stream = cuda->stream;
    config.attrs = attributes;
    config.numAttrs = (unsigned)launch_attributes(cuda, kernel, attributes);
    return config;
}

/* Clusters that the device holds at once: none where so many blocks, more than the 8 that are portable, cannot form one. */
static cell_status count_clusters(const CudaDevice *cuda, const cell_kernel *kernel, size_t smem, int *count, cell_error *err) {
    cudaLaunchAttribute attributes[MAX_ATTRIBUTES];
    cudaLaunchConfig_t config = configuration(cuda, kernel, kernel->threads, smem, attributes);
    cudaError_t error = cudaOccupancyMaxActiveClusters(count, (const void *)(uintptr_t)kernel->symbol, &config);
    if (error == cudaSuccess || kernel->cluster <= 8)
        return check(error, kernel->name, err);
    cudaGetLastError();
    *count = 0;
    return CELL_OK;
}

/* Code made for other devices may admit fewer threads than a launch has, where it lacks the instructions: then the device holds none
 * of it. Errors are left to cuda_prepare. */
static int admits_threads(CudaDevice *cuda, const cell_kernel *kernel) {
    struct cudaFuncAttributes attributes;
    const KernelSlot *slot = slot_of(cuda, kernel->symbol);
    if (slot && slot->symbol)
        return 1;
    if (use(cuda, NULL) == CELL_OK &&
        cudaFuncGetAttributes(&attributes, (const void *)(uintptr_t)kernel->symbol) == cudaSuccess)
        return kernel->threads <= attributes.maxThreadsPerBlock;
    cudaGetLastError();
    return 1;
}

static cell_status cuda_resident(void *self, const cell_kernel *kernel, size_t smem, int64_t *blocks,
                                 cell_error *err) {
    CudaDevice *cuda = self;
    const void *symbol = (const void *)(uintptr_t)kernel->symbol;
    int count = 0;
    *blocks = 0;
    if (smem > (size_t)cuda->smem_max || cuda->capability < cell_least_capability(kernel))
        return CELL_OK;
    KernelSlot *slot = slot_of(cuda, kernel->symbol);
    if (slot && slot->counted && slot->counted_smem == smem) {
        *blocks = slot->resident;
        return CELL_OK;
    }
    if (!admits_threads(cuda, kernel)) {
        if (slot && smem) /* a launch would ask again, since it was set to no memory */
            *slot = (KernelSlot){.symbol = kernel->symbol, .counted = 1, .counted_smem = smem};
        return CELL_OK;
    }
    cell_status status = cuda_prepare(self, kernel, smem, err);
    if (status != CELL_OK)
        return status;
    if ((slot ? slot->compute : cuda->capability) < cell_least_capability(kernel))
        return CELL_OK;
    if (kernel->cluster > 1)
        status = count_clusters(cuda, kernel, smem, &count, err);
    else
        status = check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, symbol, kernel->threads, smem),
                       kernel->name, err);
    *blocks = (int64_t)count * (kernel->cluster > 1 ? kernel->cluster : cuda->sm_count);
    if (status == CELL_OK && slot) {
        slot->counted = 1;
        slot->counted_smem = smem;
        slot->resident = *blocks;
    }
    return status;
}

static cell_status check_grid(void *self, const cell_launch *launch, cell_error *err) {
    const cell_kernel *kernel = launch->kernel;
    if (kernel->cluster > 1 && launch->grid[0] % (unsigned)kernel->cluster)
        return cell_fail(err, CELL_UNSUPPORTED, "kernel %s: %u blocks along x in clusters of %d",
                         kernel->name, launch->grid[0], kernel->cluster);
    if (!kernel->cooperative)
        return CELL_OK;
    int64_t most = 0, wanted = (int64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    cell_status status = cuda_resident(self, kernel, launch->smem, &most, err);
    if (status != CELL_OK || wanted <= most)
        return status;
    return cell_fail(err, CELL_UNSUPPORTED, "kernel %s: %lld blocks must run at once; the device holds %lld",
                     kernel->name, (long long)wanted, (long long)most);
}

static cell_status cuda_launch(void *self, const cell_launch *launch, cell_error *err) {
    CudaDevice *cuda = self;
    cudaLaunchAttribute attributes[MAX_ATTRIBUTES];
    cell_status status = cuda_prepare(self, launch->kernel, launch->smem, err);
    if (status == CELL_OK)
        status = check_grid(self, launch, err);
    if (status == CELL_OK)
        status = use(cuda, err);
    if (status != CELL_OK)
        return status;
    cudaLaunchConfig_t config = configuration(cuda, launch->kernel, launch->threads, launch->smem, attributes);
    config.gridDim.x = launch->grid[0];
    config.gridDim.y = launch->grid[1];
    config.gridDim.z = launch->grid[2];
    cell_kernel_args args = *launch->args;
    void *pointers[] = {&args};
    return check(cudaLaunchKernelExC(&config, (const void *)(uintptr_t)launch->kernel->symbol, pointers),
                 launch->kernel->name, err);
}

static int64_t cuda_attribute(void *self, int attribute) {
    const CudaDevice *cuda = self;
    switch (attribute) {
    case CELL_ATTR_SM_COUNT:
        return cuda->sm_count;
    case CELL_ATTR_SMEM_MAX:
        return cuda->smem_max;
    case CELL_ATTR_CAPABILITY:
        return cuda->capability;
    case CELL_ATTR_PRODUCTS_OF_8: return cuda->blaslt != NULL;
    }
    return 0;
}

static cell_status cuda_check_pointer(void *self, const void *pointer, const char *what, cell_error *err) {
    CudaDevice *cuda = self;
    struct cudaPointerAttributes attributes;
    cudaError_t error = cudaPointerGetAttributes(&attributes, pointer);
    if (error != cudaSuccess && error != cudaErrorInvalidValue)
        return check(error, what, err);
    cudaGetLastError();
    if (error == cudaErrorInvalidValue || attributes.type == cudaMemoryTypeUnregistered ||
        attributes.type == cudaMemoryTypeHost)
        return cell_fail(err, CELL_WRONG_DEVICE,
                         "%s is at %p in host memory; wanted memory of CUDA device %d", what, pointer,
                         cuda->device);
    if (attributes.type == cudaMemoryTypeDevice && attributes.device != cuda->device)
        return cell_fail(err, CELL_WRONG_DEVICE, "%s is on CUDA device %d; wanted device %d", what,
                         attributes.device, cuda->device);
    return CELL_OK;
}

static int cuda_graph_busy(void *self) {
    return capturing(((const CudaDevice *)self)->stream);
}

static cell_status cuda_graph_begin(void *self, cell_error *err) {
    CudaDevice *cuda = self;
    cudaStream_t resume = cuda->stream;
    cell_status status = use(cuda, err);
    if (status == CELL_OK)
        status = point_blas(cuda, cuda->capture, err);
    if (status == CELL_OK)
        status = check(cudaStreamBeginCapture(cuda->capture, cudaStreamCaptureModeRelaxed),
                       "cannot begin a graph", err);
    cuda->resume = resume;
    if (status != CELL_OK)
        point_blas(cuda, resume, NULL);
    return status;
}

static cell_status cuda_graph_end(void *self, void **graph, cell_error *err) {
    CudaDevice *cuda = self;
    cudaGraph_t recorded = NULL;
    cudaGraphExec_t ready = NULL;
    *graph = NULL;
    cell_status status = check(cudaStreamEndCapture(cuda->capture, &recorded), "cannot end a graph", err);
    cell_status back = point_blas(cuda, cuda->resume, status == CELL_OK ? err : NULL);
    if (status == CELL_OK)
        status = back;
    if (status == CELL_OK)
        status = check(cudaGraphInstantiate(&ready, recorded, 0), "cannot instantiate a graph", err);
    if (recorded)
        cudaGraphDestroy(recorded);
    *graph = ready;
    return status;
}

static cell_status cuda_graph_run(void *self, void *graph, cell_error *err) {
    CudaDevice *cuda = self;
    cell_status status = use(cuda, err);
    return status == CELL_OK ? check(cudaGraphLaunch(graph, cuda->stream), "cannot launch a graph", err)
                             : status;
}

static void cuda_graph_free(void *self, void *graph) {
    (void)self;
    if (graph)
        cudaGraphExecDestroy(graph);
}

const cell_backend *cell_cuda_backend(void) {
    static const cell_backend backend = {
        .name = "cuda",
        .kind = CELL_BACKEND_CUDA,
        .create = cuda_create,
        .destroy = cuda_destroy,
        .set_stream = cuda_set_stream,
        .sync = cuda_sync,
        .alloc = cuda_alloc,
        .free = cuda_free,
        .copy = cuda_copy,
        .copy_rows = cuda_copy_rows,
        .transfer = cuda_transfer,
        .put = cuda_put,
        .fill = cuda_fill,
        .gemm = cuda_gemm,
        .gemms = cuda_gemms,
        .launch = cuda_launch,
        .prepare = cuda_prepare,
        .attribute = cuda_attribute,
        .resident = cuda_resident,
        .check_pointer = cuda_check_pointer,
        .held = cuda_held,
        .trim = cuda_trim,
        .alloc_pinned = cuda_alloc_pinned,
        .free_pinned = cuda_free_pinned,
        .copy_begin = cuda_copy_begin,
        .copy_join = cuda_copy_join,
        .copy_wait = cuda_copy_wait,
#ifdef HAS_RANGES
        .range = cuda_range,
#endif
        .graph_busy = cuda_graph_busy,
        .graph_begin = cuda_graph_begin,
        .graph_end = cuda_graph_end,
        .graph_run = cuda_graph_run,
        .graph_free = cuda_graph_free,
    };
    return &backend;
}
