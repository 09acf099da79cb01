/* chunks.cu: linear recurrences in chunks (runtime/device/cell_device_chunk*.cuh), forward and backward, in
 * bf16: the kernels alone, with what they cannot be faster than. Out: for each cell and size a line for
 * each direction: milliseconds of prep, of the walk, of the walk that saves states, and of both; of the
 * walk back and of the gradients of operands (rest), with the size of each gradient. They are medians with
 * caches cold; beside each the time of its bytes, read and written once, at the rate of a copy on this
 * device; and the error of o against steps in f64. Needs a GPU: bench/chunks.sh compiles and runs it, CELL
 * being the number of one of the cells below. */
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <cstring>
#include <vector>

#include "cell_device.cuh"

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        const cudaError_t status_ = (call);                                                                  \
        if (status_ != cudaSuccess) {                                                                        \
            fprintf(stderr, "chunks.cu:%d: %s: %s\n", __LINE__, #call, cudaGetErrorString(status_));         \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

enum { FLUSH = 256 << 20, WARM = 3, CALLS = 15 };

/* Corrected: d = beta (v - a k' S), written with the column k. Decay: 0 none, 1 a number, 2 by key. */
#ifndef VALUES /* of a block of the walk: so many that there are as many blocks as multiprocessors */
#define VALUES(d) ((d) == 64 ? 64 : 32)
#endif
#ifndef STAGES
#define STAGES 3
#endif
/* What rest takes at a time is as the compiler chooses it (gen/schedule/chunk/chunk_plan.c). */
template <int D, bool Corrected, int Decay> struct Cell {
    typedef float Real;
    typedef cell_bf16 Part;
    typedef cell_bf16 Store;
    static constexpr int rows = 64, keys = D, values = VALUES(D), additions = 1, reads = 1,
                         corrected = Corrected, known = 1, before = 0, decay = Decay, together = 1,
                         stages = STAGES,
                         rest_keys = Decay != 2               ? D
                                     : Corrected == (D == 64) ? 64
                                                              : 32,
                         rest_values = D, read_values = D,
                         rest_threads = D == 64 && !(Corrected && Decay == 2) ? 256 : 512;
};

#ifndef CELL
#define CELL 0
#endif
#if CELL == 0
typedef Cell<64, true, 0> M;
static const char *const name = "delta";
#elif CELL == 1
typedef Cell<64, true, 1> M;
static const char *const name = "gated delta";
#elif CELL == 2
typedef Cell<64, false, 1> M;
static const char *const name = "linear attention, a decay";
#elif CELL == 3
typedef Cell<64, false, 2> M;
static const char *const name = "GLA";
#elif CELL == 4
typedef Cell<64, true, 2> M;
static const char *const name = "KDA";
#elif CELL == 5
typedef Cell<128, true, 0> M;
static const char *const name = "delta";
#elif CELL == 6
typedef Cell<128, true, 1> M;
static const char *const name = "gated delta";
#elif CELL == 7
typedef Cell<128, false, 1> M;
static const char *const name = "linear attention, a decay";
#elif CELL == 8
typedef Cell<128, false, 2> M;
static const char *const name = "GLA";
#elif CELL == 9
typedef Cell<128, true, 2> M;
static const char *const name = "KDA";
#endif

enum { D = M::keys };
typedef cell_chunk_record<M> Record;

/* q, k, v, o [B, T, H, D]; w as the cell has it, by key; beta and a decay that is a number [B, T, H]; decay
 * by key [B, T, H, D]. */
struct Call {
    const cell_bf16 *q, *k, *v, *w;
    const float *beta, *decay;
    cell_bf16 *o, *saved;
    float *last;
    unsigned char *records;
    /* Backward: the cotangents of o, what passes between the kernels, and gradients of q, k as a column, v
     * and w as q, of the numbers as beta, and of the decay. */
    const cell_bf16 *cotangent;
    cell_bf16 *ends, *corrections, *solved, *inverse, *gradient[4];
    float *number_gradient[2], *decay_gradient;
    int64_t B, T, H;
};

static __device__ cell_chunk<M> place(const Call &c, int64_t of)
{
    const int64_t b = of / c.H, h = of % c.H, at = (b * c.T * c.H + h) * D, row = c.H * D,
                  number = b * c.T * c.H + h;
    const int64_t chunks = cell_chunk_count(c.T, M::rows);
    cell_chunk<M> x = {};
    const cell_row_number one = { nullptr, 0, true, 1 }, beta = { c.beta + number, c.H, true, 1 };
    x.addition[0].column = { { c.k + at, row, 1, false }, M::corrected ? beta : one };
    x.addition[0].known = { { c.v + at, row, 1, false }, one };
    if (M::decay == 2) {
        x.decay = { c.decay + at, row, 1, true };
        x.addition[0].weight = { { c.w + at, row, 1, false }, { nullptr, 0, true, -1 } };
    } else {
        x.decay = { c.decay + number, c.H, 0, true };
        x.addition[0].weight = { { c.k + at, row, 1, false },
                                 { M::decay ? c.decay + number : nullptr, c.H, true, -1 } };
    }
    x.read[0] = { { c.q + at, row, 1, false }, one };
    x.result[0] = { c.o + at, row, 1, false };
    x.to = { c.last + of * D * D, D, 1, true };
    x.saved = c.saved ? c.saved + of * chunks * D * D : nullptr;
    x.records = c.records + of * chunks * Record::bytes;
    x.keys = x.values = D;
    x.steps = x.length = c.T;
    return x;
}

static __global__ void __launch_bounds__(cell_chunk_prep<M>::threads) prep(const __grid_constant__ Call c)
{
    const int64_t chunks = cell_chunk_count(c.T, M::rows);
    cell_chunk_prepare<M>(place(c, blockIdx.x / chunks), blockIdx.x % chunks);
}
static __global__ void __launch_bounds__(cell_chunk_walker<M>::threads) walk(const __grid_constant__ Call c)
{
    cell_chunk_walk<M>(place(c, blockIdx.x / (D / M::values)), blockIdx.x % (D / M::values) * M::values);
}
/* Where reads are apart: of a chunk, behind the walk. */
static __global__ void __launch_bounds__(CELL_CHUNK_THREADS) read_of(const __grid_constant__ Call c)
{
    const int64_t chunks = cell_chunk_count(c.T, M::rows);
    cell_chunk_read<M>(place(c, blockIdx.x / chunks), blockIdx.x % chunks, 0);
}

static __device__ cell_chunk_backward<M> place_back(const Call &c, int64_t of)
{
    const int64_t b = of / c.H, h = of % c.H, number = b * c.T * c.H + h, at = number * D, row = c.H * D,
                  chunks = cell_chunk_count(c.T, M::rows), state = of * chunks * D * D,
                  rows = of * chunks * M::rows * D;
    cell_chunk_backward<M> g = {};
    g.of = place(c, of);
    g.of.inverse = c.inverse + of * chunks * 2 * M::rows * M::rows;
    g.cotangent[0] = { c.cotangent + at, row, 1, false };
    g.ends = c.ends + state;
    g.corrections = c.corrections + rows, g.solved = c.solved + rows;
    g.read[0].vector = { c.gradient[0] + at, row, 1, false };
    g.column[0].vector = { c.gradient[1] + at, row, 1, false };
    g.known[0].vector = { c.gradient[2] + at, row, 1, false };
    if (M::corrected) {
        g.weight.vector = { c.gradient[3] + at, row, 1, false };
        g.column[0].number = { c.number_gradient[0] + number, c.H, 1, true };
        g.weight.number = { c.number_gradient[1] + number, c.H, 1, true };
    }
    if (M::decay)
        g.decay = { c.decay_gradient + (M::decay == 2 ? at : number), M::decay == 2 ? row : c.H, 1, true };
    return g;
}

static __global__ void __launch_bounds__(cell_chunk_prep<M>::threads)
    prep_again(const __grid_constant__ Call c)
{
    const int64_t chunks = cell_chunk_count(c.T, M::rows);
    cell_chunk_prepare<M>(place_back(c, blockIdx.x / chunks).of, blockIdx.x % chunks);
}
static __global__ void __launch_bounds__(cell_chunk_back_walker<M>::threads)
    back(const __grid_constant__ Call c)
{
    cell_chunk_walk_back<M>(place_back(c, blockIdx.x / (D / M::values)),
                            blockIdx.x % (D / M::values) * M::values);
}
static __global__ void __launch_bounds__(cell_chunk_rester<M>::threads, cell_chunk_rester<M>::resident)
    rest(const __grid_constant__ Call c)
{
    const int64_t chunks = cell_chunk_count(c.T, M::rows);
    cell_chunk_finish<M>(place_back(c, blockIdx.x / chunks), blockIdx.x % chunks);
}

/* The definition, in f64: a thread has a column of S. sums: of squares of what o is off, and of o. */
static __global__ void steps(const __grid_constant__ Call c, double *sums)
{
    const int64_t b = blockIdx.x / c.H, h = blockIdx.x % c.H;
    const int v = (int)threadIdx.x;
    double s[D] = {}, off = 0, all = 0;
    for (int64_t t = 0; t < c.T; t++) {
        const int64_t number = (b * c.T + t) * c.H + h, at = number * D;
        double d = cell_load<float>(c.v + at + v), o = 0;
        const double beta = M::corrected ? c.beta[number] : 1, a = M::decay == 1 ? c.decay[number] : 1;
        if (M::corrected)
            for (int k = 0; k < D; k++)
                d -= s[k] *
                     (M::decay == 2 ? cell_load<float>(c.w + at + k) : a * cell_load<float>(c.k + at + k));
        for (int k = 0; k < D; k++) {
            s[k] = s[k] * (M::decay == 2 ? c.decay[at + k] : a) + beta * cell_load<float>(c.k + at + k) * d;
            o += s[k] * cell_load<float>(c.q + at + k);
        }
        const double e = cell_load<float>(c.o + at + v) - o;
        off += e * e;
        all += o * o;
    }
    sums[(blockIdx.x * D + v) * 2] = off;
    sums[(blockIdx.x * D + v) * 2 + 1] = all;
}

template <class T> static T *allot(int64_t n)
{
    T *p;
    CHECK(cudaMalloc(&p, n * sizeof(T)));
    CHECK(cudaMemset(p, 0xff, n * sizeof(T)));
    return p;
}

static uint64_t seed = 88172645463325252u;
static float uniform(float from, float to)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return from + (to - from) * (float)(seed >> 40) * 0x1p-24f;
}
static cell_bf16 rounded(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    return { (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16) };
}
template <class T> static T *upload(const std::vector<T> &values)
{
    T *p = allot<T>((int64_t)values.size());
    CHECK(cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}
/* Rows of D numbers, as long as a vector of length 1 where `unit`. */
static std::vector<cell_bf16> rows_of(int64_t rows, bool unit)
{
    std::vector<cell_bf16> values((size_t)rows * D);
    std::vector<float> row(D);
    for (int64_t t = 0; t < rows; t++) {
        float sum = 0;
        for (float &v : row)
            v = uniform(-1, 1), sum += v * v;
        for (int k = 0; k < D; k++)
            values[(size_t)(t * D + k)] = rounded(row[(size_t)k] * (unit ? 1 / sqrtf(sum) : 1));
    }
    return values;
}
static float value(float v)
{
    return v;
}
static float value(cell_bf16 v)
{
    const uint32_t bits = (uint32_t)v.bits << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static double median(const std::function<void()> &call, char *flush)
{
    cudaEvent_t from, to;
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&to));
    std::vector<float> times;
    for (int i = 0; i < WARM + CALLS; i++) {
        CHECK(cudaMemsetAsync(flush, i, FLUSH));
        CHECK(cudaEventRecord(from));
        call();
        CHECK(cudaGetLastError());
        CHECK(cudaEventRecord(to));
        CHECK(cudaEventSynchronize(to));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, from, to));
        if (i >= WARM)
            times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

/* The root of the mean square. */
template <class T> static double size_of(const T *p, int64_t n)
{
    std::vector<T> host((size_t)n);
    CHECK(cudaMemcpy(host.data(), p, host.size() * sizeof(T), cudaMemcpyDeviceToHost));
    double sum = 0;
    for (T v : host)
        sum += (double)value(v) * value(v);
    return sqrt(sum / (double)n);
}

static void run_back(Call c, char *flush, double rate)
{
    const int64_t rows = c.B * c.T * c.H, chunks = c.B * c.H * cell_chunk_count(c.T, M::rows);
    const int64_t gates = rows * (M::decay == 2 ? D : 1);
    c.cotangent = upload(rows_of(rows, false));
    c.ends = allot<cell_bf16>(chunks * D * D), c.inverse = allot<cell_bf16>(chunks * 2 * M::rows * M::rows);
    c.corrections = allot<cell_bf16>(chunks * M::rows * D), c.solved = allot<cell_bf16>(chunks * M::rows * D);
    for (cell_bf16 *&p : c.gradient)
        p = allot<cell_bf16>(rows * D);
    for (float *&p : c.number_gradient)
        p = allot<float>(rows);
    c.decay_gradient = allot<float>(gates);
    CHECK(cudaFuncSetAttribute((const void *)prep_again, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               (int)cell_chunk_prep<M>::smem()));
    CHECK(cudaFuncSetAttribute((const void *)back, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               (int)cell_chunk_back_walker<M>::smem()));
    CHECK(cudaFuncSetAttribute((const void *)rest, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               (int)cell_chunk_rester<M>::smem()));
    prep_again<<<(unsigned)chunks, cell_chunk_prep<M>::threads, cell_chunk_prep<M>::smem()>>>(c);
    const double back_ms = median(
        [&] {
            back<<<(unsigned)(c.B * c.H * D / M::values), cell_chunk_back_walker<M>::threads,
                   cell_chunk_back_walker<M>::smem()>>>(c);
        },
        flush);
    const double rest_ms = median(
        [&] { rest<<<(unsigned)chunks, cell_chunk_rester<M>::threads, cell_chunk_rester<M>::smem()>>>(c); },
        flush);
    const double vector = (double)rows * D * 2, states = (double)chunks * D * D * 2,
                 square = (double)chunks * M::rows * M::rows * 2, number = (double)rows * 4;
    const double back_bytes = (double)chunks * Record::bytes + vector * (1 + (M::decay != 2)) +
                              M::corrected * vector * (1 + (M::decay != 2)) + states;
    const double rest_bytes = 2 * states + vector * 7 +
                              M::corrected * (vector * 2 + 2 * square + 4 * number) +
                              M::corrected * (M::decay == 2) * vector + (double)gates * 8 * (M::decay != 0);
    cudaFuncAttributes a;
    CHECK(cudaFuncGetAttributes(&a, (const void *)rest));
    printf(
        "%-26s back %.4f (%.4f)  rest %.4f (%.4f): %d registers, %zu bytes spilled, %lld shared; gradients",
        name, back_ms, back_bytes / rate * 1e3, rest_ms, rest_bytes / rate * 1e3, a.numRegs, a.localSizeBytes,
        (long long)cell_chunk_rester<M>::smem());
    for (int i = 0; i < 3 + M::corrected; i++)
        printf(" %.6g", size_of(c.gradient[i], rows * D));
    for (int i = 0; i < 2 * M::corrected; i++)
        printf(" %.6g", size_of(c.number_gradient[i], rows));
    if (M::decay)
        printf(" %.6g", size_of(c.decay_gradient, gates));
    printf("\n");
}

static void run(int64_t B, int64_t T, int64_t H, char *flush, double rate)
{
    const int64_t rows = B * T * H, chunks = B * H * cell_chunk_count(T, M::rows);
    Call c = {};
    const auto k = rows_of(rows, true);
    std::vector<float> beta((size_t)rows), decay((size_t)(rows * (M::decay == 2 ? D : 1)));
    for (float &v : beta)
        v = uniform(0.1f, 1);
    for (float &v : decay)
        v = uniform(0.9f, 1);
    c.q = upload(rows_of(rows, true)), c.k = upload(k), c.v = upload(rows_of(rows, false));
    if (M::decay == 2 && M::corrected) {
        auto w = k;
        for (size_t i = 0; i < w.size(); i++)
            w[i] = rounded(value(k[i]) * decay[i]);
        c.w = upload(w);
    }
    c.beta = upload(beta), c.decay = upload(decay);
    c.o = allot<cell_bf16>(rows * D), c.last = allot<float>(B * H * D * D);
    c.records = allot<unsigned char>(chunks * Record::bytes);
    c.B = B, c.T = T, c.H = H;
    cell_bf16 *const saved = allot<cell_bf16>(chunks * D * D);
    CHECK(cudaFuncSetAttribute((const void *)prep, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               (int)cell_chunk_prep<M>::smem()));
    CHECK(cudaFuncSetAttribute((const void *)walk, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               (int)cell_chunk_walker<M>::smem()));
    const auto run_prep = [&] {
        prep<<<(unsigned)chunks, cell_chunk_prep<M>::threads, cell_chunk_prep<M>::smem()>>>(c);
    };
    const auto run_walk = [&] {
        walk<<<(unsigned)(B * H * D / M::values), cell_chunk_walker<M>::threads,
               cell_chunk_walker<M>::smem()>>>(c);
        if constexpr (cell_chunk_apart<M>())
            read_of<<<(unsigned)chunks, CELL_CHUNK_THREADS, cell_chunk_reads<M>::smem()>>>(c);
    };
    if constexpr (cell_chunk_apart<M>()) {
        c.saved = saved;
        CHECK(cudaFuncSetAttribute((const void *)read_of, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   (int)cell_chunk_reads<M>::smem()));
    }
    const double prep_ms = median(run_prep, flush), walk_ms = median(run_walk, flush);
    const double both_ms = median([&] { run_prep(), run_walk(); }, flush);
    c.saved = saved;
    const double saved_ms = median(run_walk, flush);
    double *const sums = allot<double>(B * H * D * 2);
    steps<<<(unsigned)(B * H), D>>>(c, sums);
    std::vector<double> host((size_t)(B * H * D * 2));
    CHECK(cudaMemcpy(host.data(), sums, host.size() * sizeof(double), cudaMemcpyDeviceToHost));
    double off = 0, all = 0;
    for (size_t i = 0; i < host.size(); i += 2)
        off += host[i], all += host[i + 1];
    /* Bytes: vectors that each kernel reads, records, o and states. */
    const double vector = (double)rows * D * 2, numbers = (double)rows * 4,
                 records = (double)chunks * Record::bytes;
    const bool by_key = M::decay == 2;
    const double prep_bytes = vector * (2 + (by_key && M::corrected)) + numbers * M::corrected +
                              (by_key ? 2 * vector : numbers * (M::decay != 0)) + records;
    const double walk_bytes = records + vector * (by_key ? 2 : 4),
                 saved_bytes = walk_bytes + (double)chunks * D * D * 2;
    const auto floor_ms = [&](double bytes) { return bytes / rate * 1e3; };
    printf("%-26s B %lld T %5lld, %lld heads of %3d: prep %.4f (%.4f)  walk %.4f (%.4f)  saved %.4f (%.4f)  "
           "both %.4f  error %.2e\n",
           name, (long long)B, (long long)T, (long long)H, (int)D, prep_ms, floor_ms(prep_bytes), walk_ms,
           floor_ms(walk_bytes), saved_ms, floor_ms(saved_bytes), both_ms, sqrt(off / all));
    run_back(c, flush, rate);
}

int main()
{
    char *const flush = allot<char>(2 * FLUSH);
    const double copy_ms =
        median([&] { CHECK(cudaMemcpyAsync(flush, flush + FLUSH, FLUSH, cudaMemcpyDeviceToDevice)); }, flush);
    const double rate = 2.0 * FLUSH / copy_ms * 1e3;
    cudaFuncAttributes p, w;
    CHECK(cudaFuncGetAttributes(&p, (const void *)prep));
    CHECK(cudaFuncGetAttributes(&w, (const void *)walk));
    cudaDeviceProp device;
    CHECK(cudaGetDeviceProperties(&device, 0));
    printf("%s, a copy moves %.2f TB/s; prep: %d registers, %zu bytes spilled, %lld shared; walk of %d "
           "values, %d stages: %d, %zu, %lld\n",
           device.name, rate / 1e12, p.numRegs, p.localSizeBytes, (long long)cell_chunk_prep<M>::smem(),
           (int)M::values, (int)M::stages, w.numRegs, w.localSizeBytes,
           (long long)cell_chunk_walker<M>::smem());
    if (D == 64)
        run(8, 2048, 16, flush, rate);
    else
        run(2, 8192, 16, flush, rate);
    return 0;
}
