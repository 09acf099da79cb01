// Recurrent products by clusters of 16 blocks, against loops on the host: a small recurrence whose every step needs what
// all blocks made in the one before.
//
// In: nothing. Out: `N passed, N failed`. Guaranteed: the same source checks the GPU and the emulator; values are
// small integers, so that sums are exact in any order and a wrong, missing or doubled term shows.
#include "harness.h"

// X[s, k] of the next step is C[s, k] mod 7 - 3 for k of every inner piece, C the product with rows piece + unit. A
// cluster has `each` sequences.
template <class T, int Inner, int Outer, int Units> __device__ void recurrence(const cell_kernel_args &args)
{
    const int64_t batch = args.size[0], units = args.size[1], steps = args.size[2], each = args.size[3];
    const int64_t first = cell_block_index(0) / CELL_CLUSTER_BLOCKS * each;
    auto cursor = cell_shared();
    cell_cluster_head<T, Inner, Outer, Units> panel;
    panel.carve(cursor, units, first + each < batch ? each : batch - first);
    if (args.t)
        panel.load((const T *)args.ptr[1], 1, Outer * units);
    else
        panel.load((const T *)args.ptr[1], Inner * units, 1);
    const float *const x = (const float *)args.ptr[0];
    float *const c = (float *)args.ptr[2];
    const bool mine = panel.mine(), active = panel.active();
    const int sequence = mine ? panel.place() : 0, unit = mine ? panel.unit() : 0;
    if (active)
        for (int i = 0; i < Inner; i++)
            panel.put(mine, i, x[((first + sequence) * Inner + i) * units + unit]);
    for (int64_t t = 0; t < (panel.count > 0 ? steps : 0); t++) {
        panel.multiply();
        if (active) {
            float sum[Outer];
            for (int piece = 0; piece < Outer; piece++) {
                sum[piece] = panel.sum(sequence, piece);
                if (mine)
                    c[((t * batch + first + sequence) * Outer + piece) * units + unit] = sum[piece];
            }
            for (int i = 0; i < Inner && t + 1 < steps; i++)
                panel.put(mine, i, sum[i % Outer] - 7 * floorf(sum[i % Outer] / 7) - 3);
        }
    }
}

#define CLUSTER(name, ...)                                                                                    \
    extern "C" __global__ void __launch_bounds__(512)                                                         \
        name([[maybe_unused]] const __grid_constant__ cell_kernel_args args)                                  \
    {                                                                                                         \
        recurrence<__VA_ARGS__>(args);                                                                        \
    }
CLUSTER(k_cluster_1_1, cell_bf16, 1, 1, 64)
CLUSTER(k_cluster_1_4, cell_bf16, 1, 4, 32)
CLUSTER(k_cluster_4_1, cell_bf16, 4, 1, 32)
CLUSTER(k_cluster_3_1_narrow, cell_bf16, 3, 1, 16)

static void set(cell_bf16 &to, int v)
{
    const float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    to = cell_bf16{(uint16_t)(bits >> 16)};
}

static void try_one(const char *name, test_kernel kernel, int inner, int outer, int own, int batch, int each, int units,
                    int steps, bool transposed)
{
    const int rows = outer * units, k = inner * units, clusters = (batch + each - 1) / each;
    Array<float> x((size_t)batch * k), c((size_t)steps * batch * rows);
    Array<cell_bf16> w((size_t)rows * k);
    Random random(7);
    std::vector<int> state((size_t)batch * k), weights((size_t)rows * k), next;
    for (size_t i = 0; i < state.size(); i++)
        x[i] = (float)(state[i] = random.integer(-3, 3));
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < k; j++) {
            const int v = random.integer(0, 3) ? 0 : random.integer(-3, 3);
            weights[(size_t)r * k + j] = v;
            set(w[transposed ? (size_t)j * rows + r : (size_t)r * k + j], v);
        }
    cell_kernel_args args = arguments({x.data, w.data, c.data}, batch, units);
    args.size[2] = steps;
    args.size[3] = each;
    args.t = transposed;
    const size_t operand = (size_t)(2 * inner * ((units + 31) / 32) * CELL_HEAD_BATCH * 64);
    const size_t sums = (size_t)(CELL_CLUSTER_PARTS * CELL_HEAD_BATCH * (outer * own + 4) * 4);
    launch(name, kernel, args,
           Shape{(unsigned)(clusters * CELL_CLUSTER_BLOCKS), CELL_CLUSTER_THREADS, operand + sums + 32,
                 CELL_CLUSTER_BLOCKS});
    for (int t = 0; t < steps; t++) {
        next = state;
        for (int b = 0; b < batch; b++)
            for (int r = 0; r < rows; r++) {
                int sum = 0;
                for (int j = 0; j < k; j++)
                    sum += state[(size_t)b * k + j] * weights[(size_t)r * k + j];
                const float given = c[((size_t)t * batch + b) * rows + r];
                check(given == (float)sum, "%s, batch %d, units %d: step %d, [%d, %d] is %g, not %d", name, batch, units,
                      t, b, r, (double)given, sum);
                const int fold = sum - 7 * (int)floor(sum / 7.0) - 3;
                for (int i = r / units; i < inner; i += outer)
                    next[(size_t)b * k + i * units + r % units] = fold;
            }
        state = next;
    }
}

int main()
{
    const struct {
        const char *name;
        test_kernel kernel;
        int inner, outer, own;
    } kinds[] = {{"1 of 1", k_cluster_1_1, 1, 1, 64},
                 {"1 of 4", k_cluster_1_4, 1, 4, 32},
                 {"4 of 1", k_cluster_4_1, 4, 1, 32},
                 {"3 of 1, 16 units", k_cluster_3_1_narrow, 3, 1, 16}};
    const struct {
        int batch, each, units, steps;
        bool transposed;
    } sizes[] = {{1, 1, 1, 2, false}, {3, 2, 39, 3, true}, {8, 8, 144, 2, false}, {9, 5, 256, 2, true}};
    for (auto &kind : kinds)
        for (auto &size : sizes)
            if (has_clusters())
                try_one(kind.name, kind.kernel, kind.inner, kind.outer, kind.own, size.batch, size.each, size.units,
                        size.steps, size.transposed);
    return report();
}
