/* attention.cu: attention's kernels (runtime/device/cell_device_attention*.cuh) alone, in bf16: causal, a
 * window, a score with a slope and a table of distances, one step against a history. Out: a line for each
 * workload: milliseconds of forward, of D, of the gradients of queries, and of keys and values, of all
 * together, as medians of calls behind each other; the rate of the products that are needed at least, and how
 * far y is off from sums in double for some rows. Needs a GPU: bench/attention.sh compiles and runs it. */
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "cell_device.cuh"

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        const cudaError_t status_ = (call);                                                                  \
        if (status_ != cudaSuccess) {                                                                        \
            fprintf(stderr, "attention.cu:%d: %s: %s\n", __LINE__, #call, cudaGetErrorString(status_));      \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

#ifndef MEMORY
#define MEMORY (227 << 10)
#endif

enum { CAUSAL = 1, WINDOW = 2, SLOPE = 4, TABLE = 8 };
template <int D, int Segments, int Facts> struct Scores {
    typedef cell_bf16 Store;
    typedef float Real;
    static constexpr int keys = D, values = D, segments = Segments, kind = CELL_ATTENTION_SOFTMAX,
                         memory = MEMORY, terms = Facts & TABLE ? 1 : 0, facts = Facts;
    static constexpr bool scaled = !(Facts & (SLOPE | TABLE)), sink = false,
                          apart = !(Facts & WINDOW) && (D > CELL_ATTENTION_BOX || scaled);
    static __host__ __device__ constexpr int term_kind(int)
    {
        return CELL_ATTENTION_DISTANCE;
    }
    struct Uses {
        float scale, slope;
        const float *table;
        int window;
    };
    static __device__ float score(const Uses &u, float dot, const cell_attention_pair &p)
    {
        float s = dot * u.scale;
        if (Facts & SLOPE)
            s -= u.slope * (float)(p.i - p.j);
        if (Facts & TABLE)
            s += p.j <= p.i ? u.table[p.i - p.j] : 0.0f;
        return s;
    }
    static __device__ float back(const Uses &u, float, const cell_attention_pair &, float d,
                                 float (&g)[terms ? terms : 1])
    {
        if (Facts & TABLE)
            g[0] = d;
        return d * u.scale;
    }
    static __device__ bool there(const Uses &u, const cell_attention_pair &p)
    {
        return (!(Facts & CAUSAL) || p.j <= p.i) && (!(Facts & WINDOW) || p.i - p.j < u.window);
    }
    static __device__ void keys_of(const Uses &u, int, int i0, int i1, int &j0, int &j1)
    {
        if (Facts & CAUSAL)
            j1 = min(j1, i1);
        if (Facts & WINDOW)
            j0 = max(j0, i0 - u.window + 1);
    }
    static __device__ void steps_of(const Uses &u, int, int j0, int j1, int &i0, int &i1)
    {
        if (Facts & CAUSAL)
            i0 = max(i0, j0);
        if (Facts & WINDOW)
            i1 = min(i1, j1 - 1 + u.window);
    }
    static __device__ bool none(const Uses &, int, int, int, int, int)
    {
        return false;
    }
    static __device__ bool all(const Uses &u, int, int i0, int i1, int j0, int j1)
    {
        return (!(Facts & CAUSAL) || j1 - 1 <= i0) && (!(Facts & WINDOW) || i1 - 1 - j0 < u.window);
    }
};

struct Call {
    const cell_bf16 *q, *k, *v, *dy;
    cell_bf16 *y, *dq, *dk, *dv;
    float *lse, *dots, *part_sums, *part_stats, *d_table;
    const float *table;
    int batch, heads, group, steps, history, window, parts; /* heads: of keys */
};

/* Tensors are [b, t, head, d]. */
template <class M> static __device__ void fill(cell_attention<M> &x, const Call &c, int64_t which)
{
    const int b = (int)(which / c.heads), h = (int)(which % c.heads), D = M::keys,
              queries = c.heads * c.group;
    const int n = M::segments == 2 ? c.history : c.steps;
    const int64_t at = ((int64_t)b * c.steps * queries + h * c.group) * D,
                  of_keys = ((int64_t)b * n * c.heads + h) * D;
    const int64_t rows = (int64_t)queries * D;
    memset(&x, 0, sizeof x);
    x.q = { c.q + at, rows, D, 1, false };
    x.y = { c.y + at, rows, D, 1, false };
    x.dy = { c.dy + at, rows, D, 1, false };
    x.out = { c.y + at, rows, D, 1, false, false };
    x.dq = { c.dq + at, rows, D, 1, false, false };
    x.lse = c.lse + which * c.steps * c.group, x.lse_row = c.group, x.lse_head = 1;
    x.dots = c.dots + which * c.steps * c.group, x.dots_row = c.group, x.dots_head = 1;
    cell_attention_segment<M> &s = x.segment[M::segments - 1];
    if (M::segments == 2)
        x.segment[0].begin = x.segment[0].end = 0;
    s.begin = 0, s.end = n;
    s.k = { c.k + of_keys, (int64_t)c.heads * D, 0, 1, false };
    s.v = { c.v + of_keys, (int64_t)c.heads * D, 0, 1, false };
    s.dk = { c.dk + of_keys, (int64_t)c.heads * D, 0, 1, false, false };
    s.dv = { c.dv + of_keys, (int64_t)c.heads * D, 0, 1, false, false };
    x.keys = x.values = D, x.steps = c.steps, x.group = c.group;
    x.scale = rsqrtf((float)D);
    x.part_sums = c.part_sums + which * c.parts * c.steps * c.group * D;
    x.part_stats = c.part_stats + which * c.parts * c.steps * c.group * 2;
    x.distances = c.steps;
    if (M::terms)
        x.d_distance[0] = c.d_table + which * c.steps * ((c.steps + 63) / 64);
    x.uses.scale = x.scale, x.uses.slope = exp2f(-8.0f * (h + 1) / queries),
    x.uses.table = c.table + h * c.steps;
    x.uses.window = c.window;
}
#define KERNEL(name, kernel, call)                                                                           \
    template <class M>                                                                                       \
    __global__ void __launch_bounds__(cell_attention_facts<M, kernel>::threads,                              \
                                      cell_attention_facts<M, kernel>::resident) name(const Call c)          \
    {                                                                                                        \
        cell_attention<M> x;                                                                                 \
        fill(x, c, blockIdx.x);                                                                              \
        call;                                                                                                \
    }
KERNEL(k_forward, CELL_ATTENTION_FORWARD,
       cell_attention_forward<M>(x, blockIdx.y / c.parts, blockIdx.y % c.parts, c.parts))
KERNEL(k_few, CELL_ATTENTION_FEW,
       (cell_attention_forward<M, CELL_ATTENTION_FEW>(x, blockIdx.y / c.parts, blockIdx.y % c.parts,
                                                      c.parts)))
KERNEL(k_rows, CELL_ATTENTION_BACK_ROWS, cell_attention_back_rows<M>(x, blockIdx.y))
KERNEL(k_keys, CELL_ATTENTION_BACK_KEYS, cell_attention_back_keys<M>(x, blockIdx.y))
template <class M> __global__ void __launch_bounds__(CELL_ATTENTION_THREADS) k_dots(const Call c)
{
    cell_attention<M> x;
    fill(x, c, blockIdx.x);
    cell_attention_dots<M>(x, blockIdx.y);
}
template <class M> __global__ void __launch_bounds__(CELL_ATTENTION_THREADS) k_combine(const Call c)
{
    cell_attention<M> x;
    fill(x, c, blockIdx.x);
    cell_attention_combine<M>(x, blockIdx.y, c.parts);
}

__global__ void draw(cell_bf16 *p, int64_t n, unsigned seed)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
         i += (int64_t)gridDim.x * blockDim.x) {
        unsigned x = (unsigned)i * 2654435761u + seed * 40503u + 12345u;
        x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu, x ^= x >> 16;
        cell_store(p + i, (float)(x & 0xffff) / 32768.0f - 1.0f);
    }
}

static double median(const std::function<void()> &call)
{
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    std::vector<float> times;
    for (int i = 0; i < 3; i++)
        call();
    for (int i = 0; i < 7; i++) {
        CHECK(cudaEventRecord(begin));
        for (int n = 0; n < 4; n++)
            call();
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        times.push_back(ms / 4);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}
template <class T> static T *room(int64_t n)
{
    T *p;
    CHECK(cudaMalloc(&p, (n + 1) * sizeof(T)));
    CHECK(cudaMemset(p, 0, (n + 1) * sizeof(T)));
    return p;
}
static cell_bf16 *drawn(int64_t n, unsigned seed)
{
    cell_bf16 *p = room<cell_bf16>(n);
    draw<<<1024, 256>>>(p, n, seed);
    return p;
}
static float number(cell_bf16 v)
{
    const unsigned bits = (unsigned)v.bits << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
template <class Kernel> static void allow(Kernel kernel, int smem)
{
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
}

template <class M> static void measure(const char *name, Call c, bool backward)
{
    typedef cell_attention_facts<M, CELL_ATTENTION_FORWARD> F;
    typedef cell_attention_facts<M, CELL_ATTENTION_FEW> Few;
    typedef cell_attention_facts<M, CELL_ATTENTION_BACK_ROWS> R;
    typedef cell_attention_facts<M, CELL_ATTENTION_BACK_KEYS> K;
    const int D = M::keys, n = M::segments == 2 ? c.history : c.steps, rows = c.steps * c.group;
    const int64_t all = (int64_t)c.batch * c.heads * rows, of_keys = (int64_t)c.batch * c.heads * n;
    c.q = drawn(all * D, 1), c.k = drawn(of_keys * D, 2), c.v = drawn(of_keys * D, 3),
    c.dy = drawn(all * D, 4);
    c.y = room<cell_bf16>(all * D), c.dq = room<cell_bf16>(all * D);
    c.dk = room<cell_bf16>(of_keys * D), c.dv = room<cell_bf16>(of_keys * D);
    c.lse = room<float>(all), c.dots = room<float>(all);
    c.part_sums = room<float>(c.parts > 1 ? all * D * c.parts : 1),
    c.part_stats = room<float>(all * 2 * c.parts);
    c.table = room<float>((int64_t)c.heads * c.steps);
    c.d_table = room<float>(M::terms ? (int64_t)c.batch * c.heads * c.steps * ((rows + 63) / 64) : 1);
    const unsigned heads = c.batch * c.heads;
    const bool few = rows <= Few::own;
    allow(k_forward<M>, F::smem);
    allow(k_few<M>, Few::smem);
    allow(k_rows<M>, R::smem);
    allow(k_keys<M>, K::smem);
    /* Heads come first, so that all blocks with most tiles begin first. */
    const dim3 forward_grid(heads, (unsigned)cell_attention_forward_blocks<M>(rows) * c.parts);
    const dim3 dots_grid(heads, (rows + CELL_ATTENTION_DOTS_ROWS - 1) / CELL_ATTENTION_DOTS_ROWS);
    const dim3 rows_grid(heads, (unsigned)cell_attention_tiles(rows, R::own) * R::slabs);
    const dim3 keys_grid(heads, (unsigned)cell_attention_tiles(n, K::own) * K::slabs);
    const auto forward = [&] {
        if (few)
            k_few<M><<<forward_grid, Few::threads, Few::smem>>>(c);
        else
            k_forward<M><<<forward_grid, F::threads, F::smem>>>(c);
        if (c.parts > 1)
            k_combine<M><<<dots_grid, CELL_ATTENTION_THREADS>>>(c);
    };
    const auto dots = [&] { k_dots<M><<<dots_grid, CELL_ATTENTION_THREADS>>>(c); };
    const auto of_rows = [&] { k_rows<M><<<rows_grid, R::threads, R::smem>>>(c); };
    const auto of_columns = [&] { k_keys<M><<<keys_grid, K::threads, K::smem>>>(c); };
    const double t = median(forward);
    CHECK(cudaDeviceSynchronize());
    double t_dots = 0, t_rows = 0, t_keys = 0, t_all = t;
    if (backward) {
        t_dots = median(dots), t_rows = median(of_rows), t_keys = median(of_columns);
        t_all = median([&] { forward(), dots(), of_rows(), of_columns(); });
    }
    CHECK(cudaDeviceSynchronize());

    /* Some rows of the first head in double, where the score is the plain one. */
    double worst = 0;
    std::vector<cell_bf16> q(D), k((size_t)D), v((size_t)D), y(D);
    for (int i : { 0, 77, c.steps / 2 + 3, c.steps - 1 }) {
        if (!M::scaled || i >= c.steps)
            continue;
        const int queries = c.heads * c.group;
        CHECK(cudaMemcpy(q.data(), c.q + (int64_t)i * queries * D, D * 2, cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(y.data(), c.y + (int64_t)i * queries * D, D * 2, cudaMemcpyDeviceToHost));
        std::vector<cell_bf16> ks((size_t)n * D), vs((size_t)n * D);
        CHECK(cudaMemcpy2D(ks.data(), D * 2, c.k, (size_t)c.heads * D * 2, D * 2, n, cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy2D(vs.data(), D * 2, c.v, (size_t)c.heads * D * 2, D * 2, n, cudaMemcpyDeviceToHost));
        std::vector<double> right(D, 0.0);
        double sum = 0;
        for (int j = 0; j < n; j++) {
            if (((M::facts & CAUSAL) && j > i) || ((M::facts & WINDOW) && i - j >= c.window))
                continue;
            double dot = 0;
            for (int e = 0; e < D; e++)
                dot += number(q[e]) * (double)number(ks[(size_t)j * D + e]);
            const double w = exp(dot / sqrt((double)D));
            sum += w;
            for (int e = 0; e < D; e++)
                right[e] += w * number(vs[(size_t)j * D + e]);
        }
        double off = 0, size = 0;
        for (int e = 0; e < D; e++) {
            off += pow(number(y[e]) - right[e] / sum, 2);
            size += pow(right[e] / sum, 2);
        }
        worst = std::max(worst, sqrt(off / size));
    }
    double pairs = 0;
    for (int i = 0; i < c.steps; i++)
        pairs += M::facts & WINDOW ? std::min(i + 1, c.window) : M::facts & CAUSAL ? i + 1 : n;
    const double flops = 4.0 * pairs * D * c.batch * c.heads * c.group;
    printf("%-34s forward %.4f dots %.4f rows %.4f keys %.4f all %.4f ms; %.0f, %.0f TFLOP/s; off %.1e; "
           "blocks of %d\n",
           name, t, t_dots, t_rows, t_keys, t_all, flops / t * 1e-9,
           backward ? 3.5 * flops / t_all * 1e-9 : 0.0, worst, F::threads);
    fflush(stdout);
    for (const void *p : { (const void *)c.q, (const void *)c.k, (const void *)c.v, (const void *)c.dy,
                           (const void *)c.y, (const void *)c.dq, (const void *)c.dk, (const void *)c.dv,
                           (const void *)c.lse, (const void *)c.dots, (const void *)c.part_sums,
                           (const void *)c.part_stats, (const void *)c.table, (const void *)c.d_table })
        CHECK(cudaFree((void *)p));
}

int main()
{
    /* batch, heads of keys, queries for each, steps, history, window, parts */
    Call c = {};
    c.parts = 1, c.group = 1;
    c.batch = 4, c.heads = 16, c.steps = 2048;
    measure<Scores<64, 1, CAUSAL>>("causal, 4 x 16 x 64, T 2048", c, true);
    measure<Scores<128, 1, CAUSAL>>("causal, 4 x 16 x 128, T 2048", c, true);
    measure<Scores<64, 1, CAUSAL | SLOPE | TABLE>>("slope, table, 4 x 16 x 64, T 2048", c, true);
    measure<Scores<64, 1, CAUSAL | SLOPE>>("slope, 4 x 16 x 64, T 2048", c, true);
    c.batch = 2, c.steps = 8192;
    measure<Scores<64, 1, CAUSAL>>("causal, 2 x 16 x 64, T 8192", c, true);
    measure<Scores<128, 1, CAUSAL>>("causal, 2 x 16 x 128, T 8192", c, true);
    c.batch = 4, c.steps = 4096, c.window = 256;
    measure<Scores<64, 1, CAUSAL | WINDOW>>("window 256, 4 x 16 x 64, T 4096", c, true);
    c.batch = 8, c.heads = 8, c.group = 4, c.steps = 1, c.history = 8192;
    for (int parts : { 2, 4, 8, 16 }) {
        char name[64];
        snprintf(name, sizeof name, "decode, 8 x 32 (8) x 128, %d parts", parts);
        c.parts = parts;
        measure<Scores<128, 2, 0>>(name, c, false);
    }
    return 0;
}
