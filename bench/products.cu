/* products.cu: the workloads' matrix products in bf16 by each algorithm that cuBLASLt's heuristics offer, beside what cublasGemmEx takes, which the
 * runtime calls. Out: a line for each, the median of 30 calls by turns in ms, caches cold. Needs a GPU:
 *     nvcc -O2 -std=c++17 -arch=sm_90 -o products bench/products.cu -lcublas -lcublasLt && ./products */
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#define CHECK(call)                                                                    \
    do {                                                                               \
        int status_ = (int)(call);                                                     \
        if (status_ != 0) {                                                            \
            fprintf(stderr, "products.cu:%d: %s: error %d\n", __LINE__, #call, status_); \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

enum { WORKSPACE = 32 << 20, FLUSH = 256 << 20, MOST = 16, WARM = 6, CALLS = 30 };

/* Column-major C[m,n] = op(A)[m,k] op(B)[k,n]; 1: transposed. */
struct Product {
    const char *name;
    int ta, tb;
    long m, n, k;
};

struct Run {
    std::string name;
    std::function<void()> call;
    std::vector<float> times;
};

static const Product products[] = {
    {"linear_gelu p", 1, 0, 4096, 8192, 4096},    {"linear_gelu d_x", 0, 0, 4096, 8192, 4096},  {"linear_gelu d_W", 0, 1, 4096, 4096, 8192},
    {"e88_64x32 qkv", 1, 0, 6144, 16384, 1024},   {"e88_64x32 y", 1, 0, 1024, 16384, 2048},     {"e88_64x32 d_o", 0, 0, 2048, 16384, 1024},
    {"e88_64x32 d_x", 0, 0, 1024, 16384, 6144},   {"e88_64x32 d_qkv", 0, 1, 1024, 6144, 16384}, {"e88_64x32 d_W_o", 0, 1, 2048, 1024, 16384},
    {"lstm_1024 W x", 1, 0, 4096, 8192, 1024},    {"lstm_1024 d_x", 0, 0, 1024, 8192, 4096},    {"lstm_1024 d_W", 0, 1, 1024, 4096, 8192},
    {"e79_n32 W x", 1, 0, 128, 8192, 1024},       {"e79_n32 d_W", 0, 1, 1024, 128, 8192},
};

/* Normal numbers: what the tensor cores take depends on how many bits change. */
__global__ void fill(__nv_bfloat16 *x, long n, unsigned seed)
{
    for (long i = (long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x) {
        unsigned a = (unsigned)i * 2654435761u + seed;
        a = (a ^ a >> 16) * 0x85ebca6bu;
        a = (a ^ a >> 13) * 0xc2b2ae35u;
        a ^= a >> 16;
        unsigned b = a * 747796405u + 2891336453u;
        b ^= b >> 15;
        x[i] = __float2bfloat16(sqrtf(-2 * logf(((a >> 8) + 1) / 16777217.0f)) * cospif(2 * ((b >> 8) / 16777216.0f)));
    }
}

static float median(std::vector<float> &times)
{
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

static int attribute(const cublasLtMatmulAlgo_t &algorithm, cublasLtMatmulAlgoConfigAttributes_t which, size_t bytes)
{
    int value = 0;
    size_t wrote;
    cublasLtMatmulAlgoConfigGetAttribute(&algorithm, which, &value, bytes, &wrote);
    return value;
}

/* What all calls share. */
struct Machine {
    __nv_bfloat16 *a, *b, *c;
    void *workspace, *flush;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    cublasHandle_t blas;
    cublasLtHandle_t lt;
};

static const float one = 1, zero = 0;

static Machine open_machine(long most)
{
    Machine m;
    CHECK(cudaMalloc(&m.a, sizeof *m.a * most));
    CHECK(cudaMalloc(&m.b, sizeof *m.b * most));
    CHECK(cudaMalloc(&m.c, sizeof *m.c * most));
    CHECK(cudaMalloc(&m.workspace, WORKSPACE));
    CHECK(cudaMalloc(&m.flush, FLUSH));
    fill<<<1024, 256>>>(m.a, most, 1);
    fill<<<1024, 256>>>(m.b, most, 2);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaStreamCreate(&m.stream));
    CHECK(cudaEventCreate(&m.begin));
    CHECK(cudaEventCreate(&m.end));
    CHECK(cublasCreate(&m.blas));
    CHECK(cublasSetStream(m.blas, m.stream));
    CHECK(cublasSetWorkspace(m.blas, m.workspace, WORKSPACE));
    CHECK(cublasLtCreate(&m.lt));
    return m;
}

/* A call for each algorithm that the heuristics offer. */
static void add_algorithms(const Machine &m, const Product &p, std::vector<Run> &runs)
{
    cublasOperation_t ta = p.ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb = p.tb ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t la, lb, lc;
    cublasLtMatmulPreference_t wishes;
    cublasLtMatmulHeuristicResult_t found[MOST];
    size_t bytes = WORKSPACE;
    int count = 0;
    CHECK(cublasLtMatmulDescCreate(&what, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CHECK(cublasLtMatmulDescSetAttribute(what, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta));
    CHECK(cublasLtMatmulDescSetAttribute(what, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb));
    CHECK(cublasLtMatrixLayoutCreate(&la, CUDA_R_16BF, p.ta ? p.k : p.m, p.ta ? p.m : p.k, p.ta ? p.k : p.m));
    CHECK(cublasLtMatrixLayoutCreate(&lb, CUDA_R_16BF, p.tb ? p.n : p.k, p.tb ? p.k : p.n, p.tb ? p.n : p.k));
    CHECK(cublasLtMatrixLayoutCreate(&lc, CUDA_R_16BF, p.m, p.n, p.m));
    CHECK(cublasLtMatmulPreferenceCreate(&wishes));
    CHECK(cublasLtMatmulPreferenceSetAttribute(wishes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    CHECK(cublasLtMatmulAlgoGetHeuristic(m.lt, what, la, lb, lc, lc, wishes, MOST, found, &count));
    CHECK(cublasLtMatmulPreferenceDestroy(wishes));
    for (int i = 0; i < count; i++) {
        cublasLtMatmulAlgo_t algorithm = found[i].algo;
        std::string name = std::to_string(i) + ": tile " + std::to_string(attribute(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, sizeof(int))) +
                           ", cluster " + std::to_string(attribute(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, sizeof(short))) + ", split " +
                           std::to_string(attribute(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, sizeof(int)));
        runs.push_back({name, [=] {
                            CHECK(cublasLtMatmul(m.lt, what, &one, m.a, la, m.b, lb, &zero, m.c, lc, m.c, lc, &algorithm, m.workspace, WORKSPACE,
                                                 m.stream));
                        }, {}});
    }
}

/* All calls by turns. */
static void time_runs(const Machine &m, std::vector<Run> &runs)
{
    for (int turn = 0; turn < WARM + CALLS; turn++)
        for (Run &run : runs) {
            float ms;
            CHECK(cudaMemsetAsync(m.flush, 0, FLUSH, m.stream));
            CHECK(cudaEventRecord(m.begin, m.stream));
            run.call();
            CHECK(cudaEventRecord(m.end, m.stream));
            CHECK(cudaEventSynchronize(m.end));
            CHECK(cudaEventElapsedTime(&ms, m.begin, m.end));
            if (turn >= WARM)
                run.times.push_back(ms);
        }
}

int main()
{
    const Machine m = open_machine(16384L * 6144);
    for (const Product &p : products) {
        std::vector<Run> runs;
        runs.push_back({"cublasGemmEx", [=, &p] {
                            CHECK(cublasGemmEx(m.blas, p.ta ? CUBLAS_OP_T : CUBLAS_OP_N, p.tb ? CUBLAS_OP_T : CUBLAS_OP_N, p.m, p.n, p.k, &one, m.a,
                                               CUDA_R_16BF, p.ta ? p.k : p.m, m.b, CUDA_R_16BF, p.tb ? p.n : p.k, &zero, m.c, CUDA_R_16BF, p.m,
                                               CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
                        }, {}});
        add_algorithms(m, p, runs);
        time_runs(m, runs);
        printf("%s: m=%ld n=%ld k=%ld%s%s\n", p.name, p.m, p.n, p.k, p.ta ? " A transposed" : "", p.tb ? " B transposed" : "");
        for (Run &run : runs)
            printf("   %.4f %s\n", median(run.times), run.name.c_str());
    }
    return 0;
}
