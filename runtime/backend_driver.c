/* CUDA without a toolkit: kernels from an image that the caller brings, by name, through the driver, which
 * is opened when it is wanted. In: what the executor issues, an image (a cubin). Out and guaranteed: as
 * backend_cuda.c, function by function; cuBLAS is the process's, or what CELL_CUBLAS or the loader's path
 * has, and so is cuBLASLt (blaslt.c). */
#include "blaslt.h"
#include "context.h"
#include "cuda_reason.h"
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLAS_WORKSPACE = 32 << 20, KERNEL_SLOTS = 256, MAX_BATCH = 65535, MAX_ATTRIBUTES = 3 };

/* A kernel that was looked at: its function, and the dynamic shared memory it was set to. */
typedef struct KernelSlot {
    const cell_kernel *kernel;
    cell_handle function;
    size_t smem;
    int counted; /* as in backend_cuda.c */
    size_t counted_smem;
    int64_t resident;
} KernelSlot;

typedef struct Device {
    cell_driver_table cu;
    cell_blas_table blas;
    int number, device; /* the caller's and the driver's */
    cell_handle context, module;
    cell_handle stream, own, capture, resume, copies; /* as in backend_cuda.c */
    int (*range_push)(const char *name); /* of a library for profilers; NULL: there is none */
    int (*range_pop)(void);
    cell_handle cublas, pool;
    cell_blaslt *blaslt; /* NULL: there is none, or the device has no products of 8 bits */
    void *blas_workspace;
    int sm_count, smem_max, capability;
    KernelSlot kernels[KERNEL_SLOTS];
} Device;

static cell_status status_of(int error) {
    switch (error) {
    case 0:
        return CELL_OK;
    case CELL_CU_OUT_OF_MEMORY:
        return CELL_OUT_OF_MEMORY;
    case CELL_CU_NO_DEVICE:
    case CELL_CU_INVALID_DEVICE:
        return CELL_NO_DEVICE;
    case CELL_CU_INVALID_IMAGE:
    case CELL_CU_NO_BINARY:
    case CELL_CU_UNSUPPORTED_PTX:
    case CELL_CU_NOT_FOUND:
        return CELL_NO_IMAGE;
    default:
        return CELL_BACKEND_FAILED;
    }
}

static cell_status check(const Device *d, int error, const char *what, cell_error *err) {
    const char *text = "?", *name = "?";
    if (error == 0)
        return CELL_OK;
    d->cu.cuGetErrorString(error, &text);
    d->cu.cuGetErrorName(error, &name);
    const char *reason = cell_cuda_reason(error);
    return cell_fail(err, status_of(error), "%s: %s (%s)%s%s", what, text, name, reason ? "; " : "",
                     reason ? reason : "");
}

static cell_status check_blas(const Device *d, int status, const char *what, cell_error *err) {
    if (status == 0)
        return CELL_OK;
    return cell_fail(err, status == CELL_BLAS_ALLOC_FAILED ? CELL_OUT_OF_MEMORY : CELL_BACKEND_FAILED,
                     "%s: cuBLAS: %s", what, d->blas.cublasGetStatusString(status));
}

/* Fills `to` with the function; C has no conversion between the two kinds of pointers. */
static cell_status find(void *library, const char *name, void *to, cell_error *err) {
    void *symbol = dlsym(library, name);
    if (!symbol) {
        cell_fail(err, CELL_BACKEND_FAILED, "%s is not in it: it is too old", name);
        return CELL_BACKEND_FAILED;
    }
    memcpy(to, &symbol, sizeof symbol);
    return CELL_OK;
}

static cell_status open_driver(Device *d, cell_error *err) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        cell_fail(err, CELL_NO_DEVICE, "no NVIDIA driver is installed on this machine");
        return CELL_NO_DEVICE;
    }
    cell_status status = CELL_OK;
#define FIND(name, arguments)                                                                                \
    if (status == CELL_OK)                                                                                   \
        status = find(library, #name, &d->cu.name, err);
    CELL_DRIVER_FUNCTIONS(FIND)
    return status; /* the driver stays to the end of the process, whoever opened it */
}

static cell_status open_cublas(Device *d, cell_error *err) {
    const char *own = getenv("CELL_CUBLAS"), *names[] = {"libcublas.so.13", "libcublas.so.12"};
    void *library = own && *own ? dlopen(own, RTLD_NOW | RTLD_LOCAL) : NULL;
    /* What the process has fits its driver, which what the loader finds may not. */
    for (int i = 0; i < 4 && !library && !(own && *own); i++)
        library = dlopen(names[i % 2], RTLD_NOW | RTLD_LOCAL | (i < 2 ? RTLD_NOLOAD : 0));
    if (!library)
        return cell_fail(err, CELL_BACKEND_FAILED,
                         "cuBLAS is not there (%s); PyTorch brings it along, and CELL_CUBLAS names another", dlerror());
    cell_status status = CELL_OK;
#define FIND_BLAS(name, arguments)                                                                           \
    if (status == CELL_OK)                                                                                   \
        status = find(library, #name, &d->blas.name, err);
    CELL_BLAS_FUNCTIONS(FIND_BLAS)
    if (status == CELL_OK)
        status = find(library, "cublasGetStatusString", &d->blas.cublasGetStatusString, err);
    return status;
}

/* Other code in this thread may have chosen another device since the last call. */
static cell_status use(const Device *d, cell_error *err) {
    cell_handle current = NULL;
    if (d->cu.cuCtxGetCurrent(&current) == 0 && current == d->context)
        return CELL_OK;
    return check(d, d->cu.cuCtxSetCurrent(d->context), "cuCtxSetCurrent", err);
}

static cell_status find_device(Device *d, cell_error *err) {
    int count = 0, error = d->cu.cuInit(0);
    if (error == 0)
        error = d->cu.cuDeviceGetCount(&count);
    if (error == CELL_CU_NO_DEVICE || (error == 0 && count == 0))
        return cell_fail(err, CELL_NO_DEVICE, "no NVIDIA GPU is visible");
    if (error != 0)
        return check(d, error, "CUDA cannot start in this process", err);
    if (d->number < 0 || d->number >= count)
        return cell_fail(err, CELL_NO_DEVICE, "device %d was asked for; there are %d", d->number, count);
    return check(d, d->cu.cuDeviceGet(&d->device, d->number), "cannot find the device", err);
}

static cell_status read_attributes(Device *d, cell_error *err) {
    int major = 0, minor = 0;
    const struct {
        int attribute, *value;
    } wanted[] = {{CELL_CU_SM_COUNT, &d->sm_count},
                  {CELL_CU_SHARED_OPTIN, &d->smem_max},
                  {CELL_CU_MAJOR, &major},
                  {CELL_CU_MINOR, &minor}};
    int error = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted && error == 0; i++)
        error = d->cu.cuDeviceGetAttribute(wanted[i].value, wanted[i].attribute, d->device);
    d->capability = 10 * major + minor;
    return check(d, error, "cannot read the device's attributes", err);
}

static cell_status create_pool(Device *d, cell_error *err) {
    cell_cu_pool props = {
        .kind = CELL_CU_ALLOCATION_PINNED, .where = CELL_CU_LOCATION_DEVICE, .id = d->device};
    uint64_t keep = UINT64_MAX;
    cell_status status = check(d, d->cu.cuMemPoolCreate(&d->pool, &props), "cannot create a memory pool", err);
    if (status != CELL_OK)
        return status;
    return check(d, d->cu.cuMemPoolSetAttribute(d->pool, CELL_CU_POOL_RELEASE_THRESHOLD, &keep), "memory pool", err);
}

/* Setting the stream drops cuBLAS's workspace, so the two always go together. */
static cell_status point_blas(Device *d, cell_handle stream, cell_error *err) {
    cell_status status = check_blas(d, d->blas.cublasSetStream_v2(d->cublas, stream), "stream", err);
    if (status != CELL_OK)
        return status;
    d->stream = stream;
    return check_blas(d, d->blas.cublasSetWorkspace_v2(d->cublas, d->blas_workspace, BLAS_WORKSPACE), "workspace", err);
}

/* Without it such numbers are multiplied as copies of 16 bits. */
static void open_blaslt(Device *d)
{
    cell_error why = { .text = "" };
    const char *verbose = getenv("CELL_VERBOSE");
    if (d->capability < CELL_BLASLT_CAPABILITY)
        return;
    d->blaslt = cell_blaslt_open(&why);
    if (!d->blaslt && verbose && *verbose && strcmp(verbose, "0") != 0)
        fprintf(stderr, "cell: %s: operands of 8 bits are multiplied as copies of 16\n", why.text);
}

static cell_status create_blas(Device *d, cell_error *err) {
    cell_status status = open_cublas(d, err);
    if (status == CELL_OK)
        status = check(d, d->cu.cuMemAlloc_v2(&d->blas_workspace, BLAS_WORKSPACE), "workspace of cuBLAS", err);
    if (status == CELL_OK)
        status = check_blas(d, d->blas.cublasCreate_v2(&d->cublas), "cannot start", err);
    if (status == CELL_OK)
        status = check_blas(d, d->blas.cublasSetMathMode(d->cublas, CELL_BLAS_NO_REDUCED_PRECISION), "math mode", err);
    if (status == CELL_OK)
        open_blaslt(d);
    return status == CELL_OK ? point_blas(d, d->own, err) : status;
}

static void driver_destroy(void *self) {
    Device *d = self;
    if (!d)
        return;
    if (d->context) {
        use(d, NULL);
        cell_blaslt_close(d->blaslt);
        if (d->cublas)
            d->blas.cublasDestroy_v2(d->cublas);
        if (d->blas_workspace)
            d->cu.cuMemFree_v2(d->blas_workspace);
        if (d->own)
            d->cu.cuStreamDestroy_v2(d->own);
        if (d->capture)
            d->cu.cuStreamDestroy_v2(d->capture);
        if (d->copies)
            d->cu.cuStreamDestroy_v2(d->copies);
        if (d->pool)
            d->cu.cuMemPoolDestroy(d->pool);
        if (d->module)
            d->cu.cuModuleUnload(d->module);
        d->cu.cuDevicePrimaryCtxRelease_v2(d->device);
    }
    free(d);
}

/* The context that PyTorch and the CUDA runtime have as well. */
static cell_status open_device(Device *d, cell_error *err) {
    cell_status status = open_driver(d, err);
    if (status == CELL_OK)
        status = find_device(d, err);
    if (status == CELL_OK)
        status = check(d, d->cu.cuDevicePrimaryCtxRetain(&d->context, d->device), "cannot open the device", err);
    if (status == CELL_OK)
        status = use(d, err);
    if (status == CELL_OK)
        status = read_attributes(d, err);
    if (status == CELL_OK)
        status = check(d, d->cu.cuStreamCreate(&d->own, 0), "cannot create a stream", err);
    if (status == CELL_OK)
        status = check(d, d->cu.cuStreamCreate(&d->capture, CELL_CU_STREAM_NON_BLOCKING), "cannot create a stream", err);
    if (status == CELL_OK)
        status = create_pool(d, err);
    return status == CELL_OK ? create_blas(d, err) : status;
}

/* Ranges are shown by the library that profilers bring, or that CELL_NVTX names. */
static void open_ranges(Device *d)
{
    const char *own = getenv("CELL_NVTX");
    void *library = dlopen(own && *own ? own : "libnvToolsExt.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return;
    if (find(library, "nvtxRangePushA", &d->range_push, NULL) != CELL_OK ||
        find(library, "nvtxRangePop", &d->range_pop, NULL) != CELL_OK)
        d->range_push = NULL;
}

static cell_status driver_create(void **self, int device, cell_error *err) {
    Device *d = calloc(1, sizeof *d);
    *self = NULL;
    if (!d)
        return cell_fail(err, CELL_OUT_OF_MEMORY, "out of memory for a context");
    d->number = device;
    cell_status status = open_device(d, err);
    if (status != CELL_OK) {
        driver_destroy(d);
        return status;
    }
    open_ranges(d);
    *self = d;
    return CELL_OK;
}

static int capturing(const Device *d, cell_handle stream) {
    int status = 0;
    return d->cu.cuStreamIsCapturing(stream, &status) != 0 || status != 0;
}

/* cuBLAS's workspace is one, so work on the new stream begins after the old one's. A capture may not depend
 * on work outside it; who captures waits for the device before. */
static cell_status order_streams(Device *d, cell_handle next, cell_error *err) {
    cell_handle event;
    if (capturing(d, d->stream) || capturing(d, next))
        return CELL_OK;
    cell_status status = check(d, d->cu.cuEventCreate(&event, CELL_CU_EVENT_NO_TIMING), "event", err);
    if (status != CELL_OK)
        return status;
    status = check(d, d->cu.cuEventRecord(event, d->stream), "event on the stream used before", err);
    if (status == CELL_OK)
        status = check(d, d->cu.cuStreamWaitEvent(next, event, 0), "the stream cannot wait", err);
    d->cu.cuEventDestroy_v2(event);
    return status;
}

static cell_status driver_set_stream(void *self, void *stream, cell_error *err) {
    Device *d = self;
    cell_handle wanted = stream ? stream : d->own;
    cell_status status = use(d, err);
    if (status == CELL_OK)
        status = order_streams(d, wanted, err);
    return status == CELL_OK ? point_blas(d, wanted, err) : status;
}

static cell_status driver_sync(void *self, cell_error *err) {
    Device *d = self;
    cell_status status = use(d, err);
    return status == CELL_OK ? check(d, d->cu.cuStreamSynchronize(d->stream), "work on the stream failed", err) : status;
}

static cell_status driver_alloc(void *self, void **pointer, size_t bytes, cell_error *err) {
    Device *d = self;
    cell_status status = use(d, err);
    if (status != CELL_OK)
        return status;
    int error = d->cu.cuMemAllocFromPoolAsync(pointer, bytes, d->pool, d->stream);
    if (error != CELL_CU_OUT_OF_MEMORY)
        return check(d, error, "cannot allocate", err);
    return cell_fail(err, CELL_OUT_OF_MEMORY, "out of memory: %zu bytes on device %d", bytes, d->number);
}

static cell_status driver_free(void *self, void *pointer, cell_error *err) {
    Device *d = self;
    cell_status status = use(d, err);
    return status == CELL_OK ? check(d, d->cu.cuMemFreeAsync(pointer, d->stream), "cannot free", err) : status;
}

static cell_status driver_copy(void *self, void *to, const void *from, size_t bytes, cell_error *err) {
    Device *d = self;
    cell_status status = use(d, err);
    return status == CELL_OK ? check(d, d->cu.cuMemcpyAsync(to, from, bytes, d->stream), "cannot copy", err) : status;
}

static cell_status driver_copy_rows(void *self, const cell_row_copy *rows, cell_error *err)
{
    Device *d = self;
    cell_status status = use(d, err);
    const cell_cu_rows copy = { .from_kind = CELL_CU_MEMORY_DEVICE,
                                .from = rows->from,
                                .from_pitch = rows->from_pitch,
                                .to_kind = CELL_CU_MEMORY_DEVICE,
                                .to = rows->to,
                                .to_pitch = rows->to_pitch,
                                .bytes = rows->bytes,
                                .n = (size_t)rows->n };
    return status == CELL_OK ? check(d, d->cu.cuMemcpy2DAsync_v2(&copy, d->stream), "cannot copy rows", err)
                             : status;
}

static cell_status driver_transfer(void *self, void *to, const void *from, size_t bytes, cell_error *err) {
    cell_status status = driver_copy(self, to, from, bytes, err);
    return status == CELL_OK ? driver_sync(self, err) : status;
}

static cell_status driver_fill(void *self, void *to, int byte, size_t bytes, cell_error *err) {
    Device *d = self;
    cell_status status = use(d, err);
    if (status != CELL_OK)
        return status;
    return check(d, d->cu.cuMemsetD8Async(to, (unsigned char)byte, bytes, d->stream), "cannot fill", err);
}

/* From pageable memory: staged before the call returns. A graph would read the memory when it is replayed. */
static cell_status driver_put(void *self, void *to, const void *from, size_t bytes, cell_error *err) {
    Device *d = self;
    cell_status status = use(d, err);
    if (status != CELL_OK)
        return status;
    if (capturing(d, d->stream))
        return driver_fill(self, to, 0, bytes, err);
    return check(d, d->cu.cuMemcpyHtoDAsync_v2(to, from, bytes, d->stream), "cannot copy", err);
}

static cell_status driver_held(void *self, size_t *bytes, cell_error *err)
{
    Device *d = self;
    uint64_t held = 0;
    cell_status status =
        check(d, d->cu.cuMemPoolGetAttribute(d->pool, CELL_CU_POOL_HELD, &held), "memory pool", err);
    *bytes = (size_t)held;
    return status;
}

static cell_status driver_trim(void *self, size_t keep, cell_error *err)
{
    Device *d = self;
    cell_status status = use(d, err);
    return status == CELL_OK ? check(d, d->cu.cuMemPoolTrimTo(d->pool, keep), "memory pool", err) : status;
}

static cell_status driver_alloc_pinned(void *self, void **pointer, size_t bytes, cell_error *err)
{
    Device *d = self;
    cell_status status = use(d, err);
    if (status != CELL_OK)
        return status;
    int error = d->cu.cuMemHostAlloc(pointer, bytes, 0);
    if (error != CELL_CU_OUT_OF_MEMORY)
        return check(d, error, "cannot allocate pinned memory", err);
    return cell_fail(err, CELL_OUT_OF_MEMORY, "out of memory: %zu bytes of pinned host memory", bytes);
}

static cell_status driver_free_pinned(void *self, void *pointer, cell_error *err)
{
    Device *d = self;
    cell_status status = use(d, err);
    return status == CELL_OK ? check(d, d->cu.cuMemFreeHost(pointer), "cannot free pinned memory", err)
                             : status;
}

/* What `next` gets from here on comes behind what `before` has. */
static cell_status behind(Device *d, cell_handle before, cell_handle next, cell_error *err)
{
    cell_handle event;
    cell_status status = check(d, d->cu.cuEventCreate(&event, CELL_CU_EVENT_NO_TIMING), "event", err);
    if (status != CELL_OK)
        return status;
    status = check(d, d->cu.cuEventRecord(event, before), "event", err);
    if (status == CELL_OK)
        status = check(d, d->cu.cuStreamWaitEvent(next, event, 0), "the stream cannot wait", err);
    d->cu.cuEventDestroy_v2(event);
    return status;
}

static cell_status driver_copy_begin(void *self, void *to, const void *from, size_t bytes, cell_error *err)
{
    Device *d = self;
    cell_status status = use(d, err);
    if (status == CELL_OK && !d->copies)
        status = check(d, d->cu.cuStreamCreate(&d->copies, CELL_CU_STREAM_NON_BLOCKING),
                       "cannot create a stream", err);
    if (status == CELL_OK)
        status = behind(d, d->stream, d->copies, err);
    return status == CELL_OK ? check(d, d->cu.cuMemcpyAsync(to, from, bytes, d->copies), "cannot copy", err)
                             : status;
}

static cell_status driver_copy_join(void *self, cell_error *err)
{
    Device *d = self;
    cell_status status = use(d, err);
    return status == CELL_OK && d->copies ? behind(d, d->copies, d->stream, err) : status;
}

static cell_status driver_copy_wait(void *self, cell_error *err)
{
    Device *d = self;
    cell_status status = use(d, err);
    return status == CELL_OK && d->copies
               ? check(d, d->cu.cuStreamSynchronize(d->copies), "a copy failed", err)
               : status;
}

static void driver_range(void *self, const char *name)
{
    const Device *d = self;
    if (d->range_push && name)
        d->range_push(name);
    else if (d->range_push)
        d->range_pop();
}

static int blas_type(cell_dtype dtype) {
    switch (dtype) {
    case CELL_F64:
        return CELL_BLAS_R64F;
    case CELL_BF16:
        return CELL_BLAS_R16BF;
    case CELL_F16:
        return CELL_BLAS_R16F;
    default:
        return CELL_BLAS_R32F;
    }
}

/* C = beta C where there is nothing to add; row by row only if rows are apart. */
static cell_status scale_one(Device *d, const cell_blas_call *blas, int64_t batch, double beta, cell_error *err) {
    size_t element = cell_dtype_bytes(blas->c.dtype);
    char *c = cell_batch_start(&blas->c, batch);
    if (beta == 0)
        return check(d, d->cu.cuMemsetD2D8Async(c, (size_t)blas->ldc * element, 0, (size_t)blas->n * element,
                                                (size_t)blas->m, d->stream), "cannot clear a product", err);
    int64_t rows = blas->ldc == blas->n ? 1 : blas->m, length = blas->ldc == blas->n ? blas->m * blas->n : blas->n;
    int type = blas_type(blas->c.dtype == CELL_F64 ? CELL_F64 : CELL_F32);
    cell_blas_factor factor = cell_blas_factor_of(beta, blas->c.dtype);
    for (int64_t row = 0; row < rows; row++) {
        int status = d->blas.cublasScalEx_64(d->cublas, length, &factor, type, c + (size_t)(row * blas->ldc) * element,
                                             blas_type(blas->c.dtype), 1, type);
        if (status != 0)
            return check_blas(d, status, "scaling", err);
    }
    return CELL_OK;
}

/* Row-major C = A B is column-major C^T = B^T A^T with the same memory: A and B change places, the flags stay. */
static cell_status multiply(Device *d, const cell_blas_call *blas, int64_t first, int64_t count, double alpha,
                            double beta, cell_error *err) {
    cell_blas_factor a_factor = cell_blas_factor_of(alpha, blas->c.dtype), b_factor = cell_blas_factor_of(beta, blas->c.dtype);
    int compute = blas->c.dtype == CELL_F64 ? CELL_BLAS_COMPUTE_64F : CELL_BLAS_COMPUTE_32F;
    int status = d->blas.cublasGemmStridedBatchedEx_64(
        d->cublas, blas->b_transposed, blas->a_transposed, blas->n, blas->m, blas->k, &a_factor,
        cell_batch_start(&blas->b, first), blas_type(blas->b.dtype), blas->ldb, blas->b.batch_stride,
        cell_batch_start(&blas->a, first), blas_type(blas->a.dtype), blas->lda, blas->a.batch_stride, &b_factor,
        cell_batch_start(&blas->c, first), blas_type(blas->c.dtype), blas->ldc, blas->c.batch_stride, count, compute,
        CELL_BLAS_GEMM_DEFAULT);
    return check_blas(d, status, "matrix product", err);
}

static cell_status driver_gemm(void *self, const cell_gemm_call *call, cell_error *err) {
    Device *d = self;
    cell_blas_call blas;
    const char *which;
    if (call->m == 0 || call->n == 0 || call->batch == 0)
        return CELL_OK;
    if (!cell_blas_form(call, &blas, &which))
        return cell_fail(err, CELL_UNSUPPORTED,
                         "matrix product: %s has row and column strides of which none is 1, or rows that overlap; the "
                         "CUDA backend takes no such matrix", which);
    int nothing = call->k == 0 || call->alpha == 0;
    cell_status status = use(d, err);
    for (int64_t batch = 0; status == CELL_OK && nothing && call->beta != 1 && batch < blas.batch; batch++)
        status = scale_one(d, &blas, batch, call->beta, err);
    if (status == CELL_OK && !nothing && blas.a_scale)
        return cell_blaslt_gemm(d->blaslt, &blas, call->alpha, call->beta, d->blas_workspace, BLAS_WORKSPACE,
                                d->stream, err);
    for (int64_t first = 0; status == CELL_OK && !nothing && first < blas.batch; first += MAX_BATCH) {
        int64_t count = blas.batch - first < MAX_BATCH ? blas.batch - first : MAX_BATCH;
        status = multiply(d, &blas, first, count, call->alpha, call->beta, err);
    }
    return status;
}

/* Of the first one's sizes and strides; where the matrices of each are is on the device. */
static cell_status driver_gemms(void *self, const cell_gemm_call *calls, int n, void *const *places,
                                cell_error *err)
{
    Device *d = self;
    cell_blas_call blas;
    const char *which;
    cell_status status = CELL_OK;
    if (!cell_blas_form(&calls[0], &blas, &which)) {
        for (int i = 0; i < n && status == CELL_OK; i++)
            status = driver_gemm(self, &calls[i], err);
        return status;
    }
    const int compute = blas.c.dtype == CELL_F64 ? CELL_BLAS_COMPUTE_64F : CELL_BLAS_COMPUTE_32F;
    void *const *a = places + (blas.swapped ? n : 0), *const *b = places + (blas.swapped ? 0 : n);
    cell_blas_factor alpha = cell_blas_factor_of(calls[0].alpha, blas.c.dtype),
                     beta = cell_blas_factor_of(calls[0].beta, blas.c.dtype);
    status = use(d, err);
    if (status != CELL_OK)
        return status;
    return check_blas(d,
                      d->blas.cublasGemmBatchedEx_64(d->cublas, blas.b_transposed, blas.a_transposed, blas.n,
                                                     blas.m, blas.k, &alpha, b, blas_type(blas.b.dtype),
                                                     blas.ldb, a, blas_type(blas.a.dtype), blas.lda, &beta,
                                                     places + 2 * n, blas_type(blas.c.dtype), blas.ldc, n,
                                                     compute, CELL_BLAS_GEMM_DEFAULT),
                      "matrix products", err);
}

/* The kernel's slot, or the free one where it belongs; NULL when the table is full. */
static KernelSlot *slot_of(Device *d, const cell_kernel *kernel) {
    uintptr_t hash = (uintptr_t)kernel / sizeof *kernel * 2654435761u;
    for (int i = 0; i < KERNEL_SLOTS; i++) {
        KernelSlot *slot = &d->kernels[(hash + (uintptr_t)i) % KERNEL_SLOTS];
        if (slot->kernel == kernel || !slot->kernel)
            return slot;
    }
    return NULL;
}

static cell_status check_limits(const Device *d, const cell_kernel *kernel, cell_handle function, size_t smem,
                                cell_error *err) {
    int threads = 0, fixed = 0;
    int error = d->cu.cuFuncGetAttribute(&threads, CELL_CU_MAX_THREADS, function);
    if (error == 0)
        error = d->cu.cuFuncGetAttribute(&fixed, CELL_CU_SHARED_BYTES, function);
    if (error != 0)
        return check(d, error, kernel->name, err);
    if (kernel->threads < 1 || kernel->threads > threads)
        return cell_fail(err, CELL_UNSUPPORTED, "kernel %s: %d threads a block; it can have %d", kernel->name,
                         kernel->threads, threads);
    if (smem + (size_t)fixed > (size_t)d->smem_max)
        return cell_fail(err, CELL_UNSUPPORTED, "kernel %s: %zu bytes of shared memory a block; the device has %d",
                         kernel->name, smem + (size_t)fixed, d->smem_max);
    if (kernel->cluster > 1 && d->capability < 90)
        return cell_fail(err, CELL_UNSUPPORTED, "kernel %s: clusters need an sm_90 device, this one is sm_%d",
                         kernel->name, d->capability);
    return CELL_OK;
}

static cell_status raise_limits(const Device *d, const cell_kernel *kernel, cell_handle function, size_t smem,
                                cell_error *err) {
    int error = 0;
    if (smem > 48 * 1024)
        error = d->cu.cuFuncSetAttribute(function, CELL_CU_MAX_DYNAMIC_SHARED, (int)smem);
    if (error == 0 && kernel->cluster > 8)
        d->cu.cuFuncSetAttribute(function, CELL_CU_NON_PORTABLE_CLUSTER, 1); /* where it fails, none is resident */
    return check(d, error, kernel->name, err);
}

/* The kernel's function, set so that it can run here with this much shared memory. */
static cell_status look(Device *d, const cell_kernel *kernel, size_t smem, cell_handle *function, cell_error *err) {
    KernelSlot *slot = slot_of(d, kernel);
    if (slot && slot->kernel && slot->smem >= smem) {
        *function = slot->function;
        return CELL_OK;
    }
    if (!d->module)
        return cell_fail(err, CELL_NO_IMAGE, "kernel %s: the context has no image; give it one with "
                                             "cell_context_create_image", kernel->name);
    cell_status status = use(d, err);
    if (status == CELL_OK && d->cu.cuModuleGetFunction(function, d->module, kernel->name) != 0)
        status = cell_fail(err, CELL_NO_IMAGE, "kernel %s is not in the context's image", kernel->name);
    if (status == CELL_OK)
        status = check_limits(d, kernel, *function, smem, err);
    if (status == CELL_OK)
        status = raise_limits(d, kernel, *function, smem, err);
    if (status == CELL_OK && slot)
        *slot = (KernelSlot){.kernel = kernel, .function = *function, .smem = smem};
    return status;
}

static cell_status driver_prepare(void *self, const cell_kernel *kernel, size_t smem, cell_error *err) {
    cell_handle function = NULL;
    return look(self, kernel, smem, &function, err);
}

static void describe(const Device *d, const cell_kernel *kernel, int threads, size_t smem,
                     cell_cu_attribute attributes[MAX_ATTRIBUTES], cell_cu_launch *launch) {
    unsigned count = 0;
    memset(attributes, 0, sizeof *attributes * MAX_ATTRIBUTES);
    if (kernel->dependent && d->capability >= 90) {
        attributes[count].id = CELL_CU_PROGRAMMATIC;
        attributes[count++].value.number = 1;
    }
    if (kernel->cooperative) {
        attributes[count].id = CELL_CU_COOPERATIVE;
        attributes[count++].value.number = 1;
    }
    if (kernel->cluster > 1) {
        attributes[count].id = CELL_CU_CLUSTER;
        attributes[count].value.dim.x = (unsigned)kernel->cluster;
        attributes[count].value.dim.y = attributes[count].value.dim.z = 1;
        count++;
    }
    *launch = (cell_cu_launch){.grid = {kernel->cluster > 1 ? (unsigned)kernel->cluster : 1, 1, 1},
                               .block = {(unsigned)threads, 1, 1},
                               .smem = (unsigned)smem,
                               .stream = d->stream,
                               .attributes = attributes,
                               .count = count};
}

/* As in backend_cuda.c. */
static cell_status count_clusters(Device *d, const cell_kernel *kernel, cell_handle function, size_t smem, int *count,
                                  cell_error *err) {
    cell_cu_attribute attributes[MAX_ATTRIBUTES];
    cell_cu_launch launch;
    describe(d, kernel, kernel->threads, smem, attributes, &launch);
    int error = d->cu.cuOccupancyMaxActiveClusters(count, function, &launch);
    if (error == 0 || kernel->cluster <= 8)
        return check(d, error, kernel->name, err);
    *count = 0;
    return CELL_OK;
}

/* As in backend_cuda.c: code without a kernel's instructions may admit fewer threads than its launches have. */
static int admits_threads(Device *d, const cell_kernel *kernel) {
    const KernelSlot *slot = slot_of(d, kernel);
    cell_handle function = NULL;
    int threads;
    if ((slot && slot->kernel) || !d->module || use(d, NULL) != CELL_OK ||
        d->cu.cuModuleGetFunction(&function, d->module, kernel->name) != 0 ||
        d->cu.cuFuncGetAttribute(&threads, CELL_CU_MAX_THREADS, function) != 0)
        return 1;
    return kernel->threads <= threads;
}

static cell_status driver_resident(void *self, const cell_kernel *kernel, size_t smem, int64_t *blocks,
                                   cell_error *err) {
    Device *d = self;
    cell_handle function = NULL;
    int count = 0;
    *blocks = 0;
    if (smem > (size_t)d->smem_max || d->capability < cell_least_capability(kernel))
        return CELL_OK;
    KernelSlot *slot = slot_of(d, kernel);
    if (slot && slot->counted && slot->counted_smem == smem) {
        *blocks = slot->resident;
        return CELL_OK;
    }
    if (!admits_threads(d, kernel)) {
        if (slot && smem) /* a launch would ask again, since it was set to no memory */
            *slot = (KernelSlot){.kernel = kernel, .counted = 1, .counted_smem = smem};
        return CELL_OK;
    }
    cell_status status = look(d, kernel, smem, &function, err);
    if (status != CELL_OK)
        return status;
    if (cell_least_capability(kernel)) {
        int compute = 0;
        status = check(d, d->cu.cuFuncGetAttribute(&compute, CELL_CU_PTX_VERSION, function), kernel->name, err);
        if (status != CELL_OK || compute < cell_least_capability(kernel))
            return status;
    }
    if (kernel->cluster > 1)
        status = count_clusters(d, kernel, function, smem, &count, err);
    else
        status = check(d, d->cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, function, kernel->threads, smem),
                       kernel->name, err);
    *blocks = (int64_t)count * (kernel->cluster > 1 ? kernel->cluster : d->sm_count);
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
        return cell_fail(err, CELL_UNSUPPORTED, "kernel %s: %u blocks along x in clusters of %d", kernel->name,
                         launch->grid[0], kernel->cluster);
    if (!kernel->cooperative)
        return CELL_OK;
    int64_t most = 0, wanted = (int64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    cell_status status = driver_resident(self, kernel, launch->smem, &most, err);
    if (status != CELL_OK || wanted <= most)
        return status;
    return cell_fail(err, CELL_UNSUPPORTED, "kernel %s: %lld blocks must run at once; the device holds %lld",
                     kernel->name, (long long)wanted, (long long)most);
}

static cell_status driver_launch(void *self, const cell_launch *launch, cell_error *err) {
    Device *d = self;
    cell_handle function = NULL;
    cell_status status = look(d, launch->kernel, launch->smem, &function, err);
    if (status == CELL_OK)
        status = check_grid(self, launch, err);
    if (status == CELL_OK)
        status = use(d, err);
    if (status != CELL_OK)
        return status;
    cell_cu_attribute attributes[MAX_ATTRIBUTES];
    cell_cu_launch config;
    describe(d, launch->kernel, launch->threads, launch->smem, attributes, &config);
    memcpy(config.grid, launch->grid, sizeof config.grid);
    cell_kernel_args args = *launch->args;
    void *pointers[] = {&args};
    return check(d, d->cu.cuLaunchKernelEx(&config, function, pointers, NULL), launch->kernel->name, err);
}

static int64_t driver_attribute(void *self, int attribute) {
    const Device *d = self;
    switch (attribute) {
    case CELL_ATTR_SM_COUNT:
        return d->sm_count;
    case CELL_ATTR_SMEM_MAX:
        return d->smem_max;
    case CELL_ATTR_CAPABILITY:
        return d->capability;
    case CELL_ATTR_PRODUCTS_OF_8: return d->blaslt != NULL;
    }
    return 0;
}

static cell_status driver_check_pointer(void *self, const void *pointer, const char *what, cell_error *err) {
    Device *d = self;
    int kind = 0, device = 0;
    cell_status status = use(d, err);
    if (status != CELL_OK)
        return status;
    if (d->cu.cuPointerGetAttribute(&kind, CELL_CU_POINTER_MEMORY_TYPE, pointer) != 0 || kind != CELL_CU_MEMORY_DEVICE)
        return cell_fail(err, CELL_WRONG_DEVICE, "%s is at %p in host memory; wanted memory of CUDA device %d", what,
                         pointer, d->number);
    if (d->cu.cuPointerGetAttribute(&device, CELL_CU_POINTER_DEVICE, pointer) == 0 && device != d->number)
        return cell_fail(err, CELL_WRONG_DEVICE, "%s is on CUDA device %d; wanted device %d", what, device, d->number);
    return CELL_OK;
}

static int driver_graph_busy(void *self) {
    const Device *d = self;
    return capturing(d, d->stream);
}

static cell_status driver_graph_begin(void *self, cell_error *err) {
    Device *d = self;
    cell_handle resume = d->stream;
    cell_status status = use(d, err);
    if (status == CELL_OK)
        status = point_blas(d, d->capture, err);
    if (status == CELL_OK)
        status = check(d, d->cu.cuStreamBeginCapture_v2(d->capture, CELL_CU_CAPTURE_RELAXED), "cannot begin a graph",
                       err);
    d->resume = resume;
    if (status != CELL_OK)
        point_blas(d, resume, NULL);
    return status;
}

static cell_status driver_graph_end(void *self, void **graph, cell_error *err) {
    Device *d = self;
    cell_handle recorded = NULL, ready = NULL;
    cell_status status = check(d, d->cu.cuStreamEndCapture(d->capture, &recorded), "cannot end a graph", err);
    cell_status back = point_blas(d, d->resume, status == CELL_OK ? err : NULL);
    if (status == CELL_OK)
        status = back;
    if (status == CELL_OK)
        status = check(d, d->cu.cuGraphInstantiateWithFlags(&ready, recorded, 0), "cannot instantiate a graph", err);
    if (recorded)
        d->cu.cuGraphDestroy(recorded);
    *graph = ready;
    return status;
}

static cell_status driver_graph_run(void *self, void *graph, cell_error *err) {
    Device *d = self;
    cell_status status = use(d, err);
    return status == CELL_OK ? check(d, d->cu.cuGraphLaunch(graph, d->stream), "cannot launch a graph", err) : status;
}

static void driver_graph_free(void *self, void *graph) {
    const Device *d = self;
    if (graph)
        d->cu.cuGraphExecDestroy(graph);
}

static const cell_backend driver_backend = {
    .name = "cuda",
    .kind = CELL_BACKEND_CUDA,
    .create = driver_create,
    .destroy = driver_destroy,
    .set_stream = driver_set_stream,
    .sync = driver_sync,
    .alloc = driver_alloc,
    .free = driver_free,
    .copy = driver_copy,
    .copy_rows = driver_copy_rows,
    .transfer = driver_transfer,
    .held = driver_held,
    .trim = driver_trim,
    .alloc_pinned = driver_alloc_pinned,
    .free_pinned = driver_free_pinned,
    .copy_begin = driver_copy_begin,
    .copy_join = driver_copy_join,
    .copy_wait = driver_copy_wait,
    .range = driver_range,
    .put = driver_put,
    .fill = driver_fill,
    .gemm = driver_gemm,
    .gemms = driver_gemms,
    .launch = driver_launch,
    .prepare = driver_prepare,
    .attribute = driver_attribute,
    .resident = driver_resident,
    .check_pointer = driver_check_pointer,
    .graph_busy = driver_graph_busy,
    .graph_begin = driver_graph_begin,
    .graph_end = driver_graph_end,
    .graph_run = driver_graph_run,
    .graph_free = driver_graph_free,
};

cell_status cell_context_create_image(cell_context **ctx, int device, const void *image, char *message,
                                      size_t message_bytes) {
    cell_error err = {""};
    cell_status status = cell_context_create_with(ctx, &driver_backend, device, message, message_bytes);
    if (status != CELL_OK || !image)
        return status;
    Device *d = (*ctx)->self;
    status = use(d, &err);
    if (status == CELL_OK)
        status = check(d, d->cu.cuModuleLoadData(&d->module, image), "the kernels' image", &err);
    if (status == CELL_OK)
        return status;
    if (message && message_bytes)
        snprintf(message, message_bytes, "%s", err.text);
    cell_context_destroy(*ctx);
    *ctx = NULL;
    return status;
}
