// A CUDA driver and a cuBLAS whose device is the CPU, written against NVIDIA's headers, for the runtime's
// backend_driver.c: what that file believes of the interface is checked by who declares it. In: an image is the path of
// a library that holds kernels for the emulator. Out: calls do at once what they say, or, while a stream is captured,
// become part of a graph. Streams are in order with each other.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "cell_emu.h"
#include "half.h"

namespace {

struct Stream {
    bool capturing = false;
};
struct Graph {
    std::vector<std::function<void()>> work;
};
struct Function {
    cell_emu_kernel kernel;
    std::string name;
    decltype(&cell_emu_launch) launch;
    int dynamic = 48 << 10;
};

Graph *recording;
int launches, graphs;                           // for the test, which asks whether both were used
int batches; /* of products whose matrices are where arrays say */
int products_of_8, algorithms_asked;
char primary;                                   // the address is the context
CUcontext current;

/* NULL: the default stream, by either of its names. */
Stream *of(CUstream stream)
{
    return stream == CU_STREAM_LEGACY ? nullptr : reinterpret_cast<Stream *>(stream);
}

CUresult issue(CUstream stream, std::function<void()> work)
{
    if (current != (CUcontext)&primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (of(stream) && of(stream)->capturing)
        recording->work.push_back(work);
    else
        work();
    return CUDA_SUCCESS;
}

template <class T> T value(const void *p, int64_t i)
{
    return static_cast<const T *>(p)[i];
}

double load(const void *p, int64_t i, cudaDataType type)
{
    switch (type) {
    case CUDA_R_64F:
        return value<double>(p, i);
    case CUDA_R_16F:
        return cell_f16_to_f32(value<uint16_t>(p, i));
    case CUDA_R_16BF:
        return cell_bf16_to_f32(value<uint16_t>(p, i));
    case CUDA_R_8F_E4M3:
        return cell_e4m3_to_f32(value<uint8_t>(p, i));
    case CUDA_R_8F_E5M2:
        return cell_e5m2_to_f32(value<uint8_t>(p, i));
    default:
        return value<float>(p, i);
    }
}

void store(void *p, int64_t i, cudaDataType type, double v)
{
    switch (type) {
    case CUDA_R_64F:
        static_cast<double *>(p)[i] = v;
        break;
    case CUDA_R_16F:
        static_cast<uint16_t *>(p)[i] = cell_f64_to_f16(v);
        break;
    case CUDA_R_16BF:
        static_cast<uint16_t *>(p)[i] = cell_f64_to_bf16(v);
        break;
    default:
        static_cast<float *>(p)[i] = (float)v;
    }
}

CUstream blas_stream;

double factor(const void *p, bool wide)
{
    return wide ? value<double>(p, 0) : value<float>(p, 0);
}

/* One product of column-major matrices, as cuBLAS has them. */
struct Product {
    cublasOperation_t ta, tb;
    int64_t m, n, k, lda, ldb, ldc;
    cudaDataType at, bt, ct;
    double alpha, beta;

    void run(const void *a, int64_t from_a, const void *b, int64_t from_b, void *c, int64_t from_c) const
    {
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < m; i++) {
                double sum = 0;
                for (int64_t l = 0; l < k; l++)
                    sum += load(a, from_a + (ta == CUBLAS_OP_N ? l * lda + i : i * lda + l), at) *
                           load(b, from_b + (tb == CUBLAS_OP_N ? j * ldb + l : l * ldb + j), bt);
                int64_t at_c = from_c + j * ldc + i;
                store(c, at_c, ct, alpha * sum + (beta ? beta * load(c, at_c, ct) : 0));
            }
    }
};

/* Of cuBLASLt, which has products of 8 bits only, and asks of them what NVIDIA's documentation does. */
struct Layout {
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld, stride;
    int32_t count;
};
struct OfCodes {
    int32_t transposed[2];
    const float *scale[2];
};
struct Preference {
    uint64_t bytes;
    uint32_t reductions, aligned[4];
};

bool is_code(cudaDataType type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

cublasStatus_t product_fits(const OfCodes *p, const Layout *a, const Layout *b, const Layout *c)
{
    bool types = is_code(a->type) && is_code(b->type) && !(a->type == CUDA_R_8F_E5M2 && b->type == CUDA_R_8F_E5M2) &&
                 (c->type == CUDA_R_32F || c->type == CUDA_R_16F || c->type == CUDA_R_16BF);
    bool sizes = a->rows == b->rows && a->cols == c->rows && b->cols == c->cols && a->count == b->count && a->count == c->count;
    bool multiples = a->rows % 16 == 0 && a->cols % 16 == 0 && a->ld % 16 == 0 && b->ld % 16 == 0 && c->ld % 16 == 0 &&
                     a->stride % 16 == 0 && b->stride % 16 == 0 && c->stride % 16 == 0;
    bool form = p->transposed[0] && !p->transposed[1] && p->scale[0] && p->scale[1];
    return types && sizes && multiples && form ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* What was asked, for tests, by streams in the order in which they are met. */
std::string noted;
std::vector<CUstream> met;

void note(const std::string &what) { noted += what + "\n"; }

std::string name_of(CUstream s)
{
    size_t i = 0;
    while (i < met.size() && met[i] != s)
        i++;
    if (i == met.size())
        met.push_back(s);
    return "s" + std::to_string(i);
}

} // namespace

extern "C" {

const char *fake_noted(void) { return noted.c_str(); }
void fake_forget(void) { noted.clear(), met.clear(); }

/* A profiler's library, too. */
int nvtxRangePushA(const char *name) { return note("( " + std::string(name)), 0; }
int nvtxRangePop(void) { return note(")"), 0; }

int fake_launches(void) { return launches; }
int fake_graphs(void) { return graphs; }

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *v) { return *v = 13000, CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *n) { return *n = 1, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *d, int i) { return *d = i, i ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS; }

CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice)
{
    *v = a == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT                  ? 4
         : a == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? 232448
         : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR          ? 9
         : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR          ? 0
                                                                      : -1;
    return *v < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice) { return *c = (CUcontext)&primary, CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *c) { return *c = current, CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext c) { return current = c, CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult, const char **t) { return *t = "CUDA_ERROR_FAKE", CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult, const char **t) { return *t = "the fake said no", CUDA_SUCCESS; }

CUresult cuStreamCreate(CUstream *s, unsigned) { return *s = (CUstream) new Stream, CUDA_SUCCESS; }
CUresult cuStreamDestroy(CUstream s) { return delete (Stream *)s, CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream s) { return note("wait " + name_of(s)), CUDA_SUCCESS; }
CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned)
{
    std::string who = name_of(s), whom = name_of(*(CUstream *)e);
    return note(who + " waits for " + whom), CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *status)
{
    bool busy = of(s) && of(s)->capturing;
    return *status = busy ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream s, CUstreamCaptureMode mode)
{
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    ((Stream *)s)->capturing = true;
    recording = new Graph;
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream s, CUgraph *g)
{
    ((Stream *)s)->capturing = false;
    return *g = (CUgraph)recording, CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *e, unsigned flags)
{
    return *e = (CUevent) new CUstream{}, flags == CU_EVENT_DISABLE_TIMING ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuEventRecord(CUevent e, CUstream s) { return *(CUstream *)e = s, CUDA_SUCCESS; }
CUresult cuEventDestroy(CUevent e) { return delete (CUstream *)e, CUDA_SUCCESS; }

CUresult cuGraphInstantiateWithFlags(CUgraphExec *x, CUgraph g, unsigned long long)
{
    return *x = (CUgraphExec) new Graph(*(Graph *)g), CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec x, CUstream)
{
    graphs++;
    for (auto &work : ((Graph *)x)->work)
        work();
    return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph g) { return delete (Graph *)g, CUDA_SUCCESS; }
CUresult cuGraphExecDestroy(CUgraphExec x) { return delete (Graph *)x, CUDA_SUCCESS; }

CUresult cuMemPoolCreate(CUmemoryPool *p, const CUmemPoolProps *props)
{
    *p = (CUmemoryPool)&primary;
    bool right = props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
                 props->location.type == CU_MEM_LOCATION_TYPE_DEVICE && props->location.id == 0 && !props->maxSize;
    return right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute a, void *)
{
    return a == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemPoolGetAttribute(CUmemoryPool, CUmemPool_attribute a, void *value)
{
    *(cuuint64_t *)value = 4096;
    return a == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemPoolTrimTo(CUmemoryPool, size_t keep) { return note("trim " + std::to_string(keep)), CUDA_SUCCESS; }
CUresult cuMemHostAlloc(void **p, size_t n, unsigned flags)
{
    *p = aligned_alloc(256, (n + 255) / 256 * 256);
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void *p) { return free(p), CUDA_SUCCESS; }
CUresult cuMemPoolDestroy(CUmemoryPool) { return CUDA_SUCCESS; }

CUresult cuMemAlloc(CUdeviceptr *p, size_t n)
{
    void *memory = aligned_alloc(256, (n + 255) / 256 * 256);
    memset(memory, 0xff, n);                    // NaN, as a device has anything
    return *p = (CUdeviceptr)memory, CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr p) { return free((void *)p), CUDA_SUCCESS; }
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *p, size_t n, CUmemoryPool, CUstream) { return cuMemAlloc(p, n); }
CUresult cuMemFreeAsync(CUdeviceptr p, CUstream) { return cuMemFree(p); }

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s)
{
    note("copy " + name_of(s));
    return issue(s, [=] { memcpy((void *)to, (const void *)from, n); });
}
CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *rows, CUstream s)
{
    if (rows->srcMemoryType != CU_MEMORYTYPE_DEVICE || rows->dstMemoryType != CU_MEMORYTYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (rows->WidthInBytes > rows->srcPitch || rows->WidthInBytes > rows->dstPitch)
        return CUDA_ERROR_INVALID_VALUE;
    return issue(s, [copy = *rows] {
        for (size_t i = 0; i < copy.Height; i++)
            memcpy((char *)copy.dstDevice + (copy.dstY + i) * copy.dstPitch + copy.dstXInBytes,
                   (const char *)copy.srcDevice + (copy.srcY + i) * copy.srcPitch + copy.srcXInBytes,
                   copy.WidthInBytes);
    });
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t n, CUstream)
{
    return memcpy((void *)to, from, n), CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t n, CUstream s)
{
    return issue(s, [=] { memset((void *)to, byte, n); });
}
CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char byte, size_t width, size_t height, CUstream s)
{
    return issue(s, [=] {
        for (size_t i = 0; i < height; i++)
            memset((char *)to + i * pitch, byte, width);
    });
}

CUresult cuPointerGetAttribute(void *v, CUpointer_attribute a, CUdeviceptr)
{
    *(unsigned *)v = a == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? CU_MEMORYTYPE_DEVICE : 0;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *m, const void *image)
{
    *m = (CUmodule)dlopen((const char *)image, RTLD_NOW | RTLD_LOCAL);
    return *m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }

CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name)
{
    void *kernel = dlsym((void *)m, name), *launch = dlsym((void *)m, "cell_emu_launch");
    if (!kernel || !launch)
        return CUDA_ERROR_NOT_FOUND;
    *f = (CUfunction) new Function{(cell_emu_kernel)kernel, name, (decltype(&cell_emu_launch))launch};
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction)
{
    *v = a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : a == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES ? 0
         : a == CU_FUNC_ATTRIBUTE_PTX_VERSION ? 90 : -1;
    return *v < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v)
{
    if (a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        ((Function *)f)->dynamic = v;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **args, void **)
{
    const Function *function = (Function *)f;
    unsigned cluster = 0;
    int cooperative = 0;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute &a = config->attrs[i];
        if (a.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            cluster = a.value.clusterDim.x;
        else if (a.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            cooperative = a.value.cooperative;
        else if (a.id != CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (config->blockDimY != 1 || config->blockDimZ != 1 || (int)config->sharedMemBytes > function->dynamic)
        return CUDA_ERROR_INVALID_VALUE;
    CUlaunchConfig c = *config;
    cell_kernel_args copy = *(cell_kernel_args *)args[0];
    return issue(config->hStream, [=] {
        const uint32_t grid[3] = {c.gridDimX, c.gridDimY, c.gridDimZ};
        char why[512];
        launches++;
        if (function->launch(function->kernel, function->name.c_str(), &copy, grid, c.blockDimX, c.sharedMemBytes,
                             cluster, cooperative, why, sizeof why)) {
            fprintf(stderr, "%s\n", why);
            abort();
        }
    });
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction, int, size_t) { return *n = 2, CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveClusters(int *n, CUfunction, const CUlaunchConfig *c)
{
    return *n = 8, c->numAttrs ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

cublasStatus_t cublasCreate(cublasHandle_t *h) { return *h = (cublasHandle_t)&primary, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasDestroy(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t s) { return blas_stream = s, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void *, size_t) { return CUBLAS_STATUS_SUCCESS; }
const char *cublasGetStatusString(cublasStatus_t) { return "the fake said no"; }

cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t mode)
{
    return mode == CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasScalEx_64(cublasHandle_t, int64_t n, const void *alpha, cudaDataType alpha_type, void *x,
                               cudaDataType type, int64_t stride, cudaDataType)
{
    double f = factor(alpha, alpha_type == CUDA_R_64F);
    issue(blas_stream, [=] {
        for (int64_t i = 0; i < n; i++)
            store(x, i * stride, type, f * load(x, i * stride, type));
    });
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int64_t m,
                                             int64_t n, int64_t k, const void *alpha, const void *a, cudaDataType at,
                                             int64_t lda, long long sa, const void *b, cudaDataType bt, int64_t ldb,
                                             long long sb, const void *beta, void *c, cudaDataType ct, int64_t ldc,
                                             long long sc, int64_t count, cublasComputeType_t compute,
                                             cublasGemmAlgo_t)
{
    if (compute != (ct == CUDA_R_64F ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    Product p = {ta, tb, m, n, k, lda, ldb, ldc, at, bt, ct, factor(alpha, ct == CUDA_R_64F), factor(beta, ct == CUDA_R_64F)};
    issue(blas_stream, [=] {
        for (int64_t z = 0; z < count; z++)
            p.run(a, z * sa, b, z * sb, c, z * sc);
    });
    return CUBLAS_STATUS_SUCCESS;
}

// Where the matrices are the arrays say when the stream comes to it.
cublasStatus_t cublasGemmBatchedEx_64(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int64_t m, int64_t n,
                                      int64_t k, const void *alpha, const void *const *a, cudaDataType at, int64_t lda,
                                      const void *const *b, cudaDataType bt, int64_t ldb, const void *beta,
                                      void *const *c, cudaDataType ct, int64_t ldc, int64_t count,
                                      cublasComputeType_t compute, cublasGemmAlgo_t)
{
    if (compute != (ct == CUDA_R_64F ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    Product p = {ta, tb, m, n, k, lda, ldb, ldc, at, bt, ct, factor(alpha, ct == CUDA_R_64F), factor(beta, ct == CUDA_R_64F)};
    batches++;
    issue(blas_stream, [=] {
        for (int64_t z = 0; z < count; z++)
            p.run(a[z], 0, b[z], 0, c[z], 0);
    });
    return CUBLAS_STATUS_SUCCESS;
}

int fake_batches(void) { return batches; }
int fake_products_of_8(void) { return products_of_8; }
int fake_algorithms_asked(void) { return algorithms_asked; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h) { return *h = (cublasLtHandle_t)&primary, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
const char *cublasLtGetStatusString(cublasStatus_t) { return "the fake said no"; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *d, cublasComputeType_t compute, cudaDataType_t scale)
{
    *d = reinterpret_cast<cublasLtMatmulDesc_t>(new OfCodes{});
    return compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    delete reinterpret_cast<OfCodes *>(d);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attribute,
                                              const void *v, size_t bytes)
{
    auto *p = reinterpret_cast<OfCodes *>(d);
    bool scale = attribute == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER || attribute == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER;
    if (scale && bytes == sizeof(void *))
        p->scale[attribute == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER] = *static_cast<const float *const *>(v);
    else if (attribute == CUBLASLT_MATMUL_DESC_TRANSA && bytes == sizeof(int32_t))
        p->transposed[0] = *static_cast<const int32_t *>(v) == CUBLAS_OP_T;
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *l, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld)
{
    *l = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, cols, ld, 0, 1});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    delete reinterpret_cast<Layout *>(l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *v, size_t bytes)
{
    auto *layout = reinterpret_cast<Layout *>(l);
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof(int32_t))
        layout->count = *static_cast<const int32_t *>(v);
    else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof(int64_t))
        layout->stride = *static_cast<const int64_t *>(v);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *p)
{
    *p = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference{0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    delete reinterpret_cast<Preference *>(p);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t to, cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *v, size_t bytes)
{
    auto *p = reinterpret_cast<Preference *>(to);
    int aligned = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == sizeof(uint64_t))
        p->bytes = *static_cast<const uint64_t *>(v);
    else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && bytes == sizeof(uint32_t))
        p->reductions = *static_cast<const uint32_t *>(v);
    else if (aligned >= 0 && aligned < 4 && bytes == sizeof(uint32_t))
        p->aligned[aligned] = *static_cast<const uint32_t *>(v);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *found, int *n)
{
    auto *p = reinterpret_cast<const Preference *>(preference);
    bool asks = wanted == 1 && p->bytes == 32 << 20 && p->reductions == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    for (uint32_t bytes : p->aligned)
        asks = asks && bytes == 16;
    algorithms_asked++;
    *n = asks;
    *found = cublasLtMatmulHeuristicResult_t{};
    found->algo.data[7] = 0x5eed;
    found->state = product_fits(reinterpret_cast<OfCodes *>(d), reinterpret_cast<Layout *>(a), reinterpret_cast<Layout *>(b),
                                reinterpret_cast<Layout *>(c));
    return asks ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t al, const void *b, cublasLtMatrixLayout_t bl, const void *beta,
                              const void *c, cublasLtMatrixLayout_t cl, void *to, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes, cudaStream_t stream)
{
    auto *p = reinterpret_cast<OfCodes *>(d);
    const Layout x = *reinterpret_cast<Layout *>(al), y = *reinterpret_cast<Layout *>(bl), z = *reinterpret_cast<Layout *>(cl);
    bool aligned = ((uintptr_t)a | (uintptr_t)b | (uintptr_t)to) % 16 == 0;
    if (product_fits(p, &x, &y, &z) != CUBLAS_STATUS_SUCCESS || algorithm->data[7] != 0x5eed || c != to || !aligned ||
        !workspace || bytes != 32 << 20)
        return CUBLAS_STATUS_INVALID_VALUE;
    double fa = factor(alpha, false), fb = factor(beta, false);
    const float *x_scale = p->scale[0], *y_scale = p->scale[1];
    products_of_8++;
    issue(stream, [=] {
        for (int64_t n = 0; n < x.count; n++)
            for (uint64_t j = 0; j < z.cols; j++)
                for (uint64_t i = 0; i < z.rows; i++) {
                    double sum = 0;
                    for (uint64_t l = 0; l < x.rows; l++)
                        sum += load(a, n * x.stride + i * x.ld + l, x.type) * load(b, n * y.stride + j * y.ld + l, y.type);
                    int64_t at = n * z.stride + j * z.ld + i;
                    store(to, at, z.type, fa * sum * *x_scale * *y_scale + (fb ? fb * load(to, at, z.type) : 0));
                }
    });
    return CUBLAS_STATUS_SUCCESS;
}

} // extern "C"
