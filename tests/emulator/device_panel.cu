// Recurrent products with weights in shared memory, against loops on the host: a small recurrence whose every
// step needs what all blocks made in the one before.
//
// In: nothing. Out: `N passed, N failed`. Guaranteed: the same source checks the GPU and the emulator; values are
// small integers, so that sums are exact in any order and a wrong, missing or doubled term shows.
#include "harness.h"

// x[b][t+1][k] = C[b, k] mod 7 - 3 for k of every inner piece, C the product with rows piece + unit.
// args.flags: blocks see by the operand's own words whether they are there.
template <class T, int Inner, int Outer, int Units, int Split = 1, int Batch = 16> __device__ void recurrence(const cell_kernel_args &args)
{
    const int64_t batch = args.size[0], units = args.size[1], steps = args.size[2];
    auto cursor = cell_shared();
    cell_panel<T, Inner, Outer, Units, Split, Batch> panel;
    panel.carve(cursor, units, (unsigned int *)args.ptr[3]);
    const int64_t pitch = Inner * units;
    T *const x = (T *)args.ptr[0];
    float *const c = (float *)args.ptr[2];
    typename decltype(panel)::kept kept;
    if (args.t)
        panel.load(kept, (const T *)args.ptr[1], 1, Outer * units);
    else
        panel.load(kept, (const T *)args.ptr[1], Inner * units, 1);
    panel.start();
    if (args.flags)
        panel.mark(x, pitch, batch, steps + 1, 0);
    for (int64_t t = 0; t < steps; t++) {
        panel.wait(t);
        for (int64_t b0 = 0; b0 < batch; b0 += Batch) {
            cell_mma_c sums[panel.results];
            panel.multiply(sums, kept, x + (b0 * (steps + 1) + t) * pitch, (steps + 1) * pitch, batch - b0);
            panel.reduce(sums, batch - b0, [&](int b, int piece, int own, float sum) {
                c[((t * batch + b0 + b) * Outer + piece) * units + panel.first + own] = sum;
            });
            cell_barrier();
        }
        for (int64_t begin = 0; begin < batch * Inner * Units; begin += CELL_PANEL_THREADS) {
            const int64_t n = begin + cell_thread(), b = n / (Inner * Units), i = n / Units % Inner;
            const int64_t unit = panel.first + n % Units;
            const bool mine = b < batch && unit < units;
            const float sum = mine ? c[((t * batch + b) * Outer + i % Outer) * units + unit] : 0;
            panel.give(mine, x + (b * (steps + 1) + t + 1) * pitch + i * units + unit,
                       sum - 7 * floorf(sum / 7) - 3);
        }
        panel.post();
    }
}

// Each kind: what it is called, its kernel, its type, pieces of the operand and of the product, units of a
// block, how many blocks share one, rows at once. With -DFEW the program has the first ones only, one of each
// way to hold weights and to share a product, at small sizes: run.sh instruments these, which takes three
// times as long.
#define FIRST_KINDS(KIND)                                                                                    \
    KIND("1 of 4", k_panel_1_4, cell_bf16, 1, 4, 8, 1, 16)                                                   \
    KIND("4 of 1, split by 4", k_panel_split_4, cell_bf16, 4, 1, 8, 4, 16)                                   \
    KIND("1 of 4, units split by 2", k_panel_slices, cell_bf16, 1, 4, 8, 2, 16)                              \
    KIND("1 of 1, 32 rows at once", k_panel_32_1_1, cell_bf16, 1, 1, 16, 1, 32)                              \
    KIND("1 of 4 in f32", k_panel_f32_1_4, float, 1, 4, 8, 1, 16)
#define OTHER_KINDS(KIND)                                                                                    \
    KIND("1 of 1", k_panel_1_1, cell_bf16, 1, 1, 8, 1, 16)                                                   \
    KIND("4 of 1", k_panel_4_1, cell_bf16, 4, 1, 8, 1, 16)                                                   \
    KIND("3 of 3", k_panel_3_3_wide, cell_bf16, 3, 3, 16, 1, 16)                                             \
    KIND("1 of 1, 32 units", k_panel_1_1_widest, cell_bf16, 1, 1, 32, 1, 16)                                 \
    KIND("3 of 3, split by 3", k_panel_split_3, cell_bf16, 3, 3, 8, 3, 16)                                   \
    KIND("4 of 2, split by 2", k_panel_split_2_of_4, cell_bf16, 4, 2, 16, 2, 16)                             \
    KIND("2 of 1, units split by 3", k_panel_slices_3, cell_bf16, 2, 1, 8, 3, 16)                            \
    KIND("3 of 3, 32 rows at once", k_panel_32_3_3, cell_bf16, 3, 3, 8, 1, 32)                               \
    KIND("4 of 1, split by 4, 32 rows at once", k_panel_32_split_4, cell_bf16, 4, 1, 16, 4, 32)              \
    KIND("1 of 4, units split by 2, 32 rows at once", k_panel_32_slices, cell_bf16, 1, 4, 8, 2, 32)          \
    KIND("1 of 4 in f32, units split by 2", k_panel_f32_slices, float, 1, 4, 8, 2, 16)                       \
    KIND("4 of 1 in f32, split by 2", k_panel_f32_split_2_of_4, float, 4, 1, 8, 2, 16)                       \
    KIND("3 of 3 in f32", k_panel_f32_3_3, float, 3, 3, 8, 1, 16)
#ifdef FEW
#define KINDS(KIND) FIRST_KINDS(KIND)
#else
#define KINDS(KIND) FIRST_KINDS(KIND) OTHER_KINDS(KIND)
#endif

#define PANEL(what, kernel, type, inner, outer, own, split, at_once)                                         \
    extern "C" __global__ void __launch_bounds__(256)                                                        \
        kernel([[maybe_unused]] const __grid_constant__ cell_kernel_args args)                               \
    {                                                                                                        \
        recurrence<type, inner, outer, own, split, at_once>(args);                                           \
    }
KINDS(PANEL)
#ifndef FEW
PANEL(, k_panel_1_4_wide, cell_bf16, 1, 4, 16, 1, 16)
#endif

static int value_of(cell_bf16 v)
{
    const uint32_t bits = (uint32_t)v.bits << 16;
    float f;
    memcpy(&f, &bits, 4);
    return (int)f;
}

static int value_of(float v) { return (int)v; }

static void set(float &to, int v) { to = (float)v; }

static void set(cell_bf16 &to, int v)
{
    const float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    to = cell_bf16{(uint16_t)(bits >> 16)};
}

template <class T>
static void try_one(const char *name, test_kernel kernel, int inner, int outer, int own, int split,
                    int batch, int units, int steps, bool transposed, bool marks, int at_once)
{
    const int rows = outer * units, k = inner * units, blocks = (units + own * split - 1) / (own * split) * split;
    const int slices = inner % split ? split : 1, group = ((units + 8 * slices - 1) / (8 * slices) + 31) / 32 * 32;
    Array<T> x((size_t)(steps + 1) * batch * k + 16 / sizeof(T)), w((size_t)rows * k); // x: in whole vectors
    Array<float> c((size_t)steps * batch * rows);
    Array<unsigned> posts((size_t)(8 * slices * CELL_PANEL_POST));
    Random random(7);
    std::vector<int> state((size_t)batch * k), weights((size_t)rows * k), next;
    for (size_t i = 0; i < posts.count; i++)
        posts[i] = 0;
    for (int &v : state)
        v = random.integer(-3, 3);
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < k; j++) {
            const int v = random.integer(0, 3) ? 0 : random.integer(-3, 3);
            weights[(size_t)r * k + j] = v;
            set(w[transposed ? (size_t)j * rows + r : (size_t)r * k + j], v);
        }
    const auto place = [&](size_t i, int t) { return (i / k * (size_t)(steps + 1) + t) * k + i % k; };
    for (size_t i = 0; i < state.size(); i++)
        set(x[place(i, 0)], state[i]);
    cell_kernel_args args = arguments({x.data, w.data, c.data, posts.data}, batch, units);
    args.size[2] = steps;
    args.t = transposed;
    args.flags = marks;
    const int tiles = outer * own * split / 8, pieces = inner * slices / split, blocks_along = pieces * (group / 32);
    const int halves = at_once / 16, ahead = std::min(tiles <= 2 ? 8 : slices > 1 ? 2 : 4, 8 / halves);
    const int held = sizeof(T) == 4 || pieces > 1 ? 0 : std::min(tiles, 16 / (halves * halves) / ahead);
    size_t smem = 8 * (size_t)(blocks_along * tiles - std::min(blocks_along, ahead) * held) * 256 * sizeof(T) +
                  (size_t)(8 * tiles * 32 * at_once);
    if (split > 1)
        smem += (size_t)(2 * split * outer * own * at_once * 4 + 32);
    Shape shape = {(unsigned)blocks, 256, smem, (unsigned)split, true};
    launch(name, kernel, args, shape);
    for (int t = 0; t < steps; t++) {
        next = state;
        for (int b = 0; b < batch; b++)
            for (int r = 0; r < rows; r++) {
                int sum = 0;
                for (int j = 0; j < k; j++)
                    sum += state[(size_t)b * k + j] * weights[(size_t)r * k + j];
                check(c[((size_t)t * batch + b) * rows + r] == (float)sum,
                      "%s, batch %d, units %d: step %d, [%d, %d] is %g, not %d", name, batch, units, t, b, r,
                      (double)c[((size_t)t * batch + b) * rows + r], sum);
                const int fold = sum - 7 * (int)floor(sum / 7.0) - 3;
                for (int i = r / units; i < inner; i += outer)
                    next[(size_t)b * k + i * units + r % units] = fold;
            }
        state = next;
        for (size_t i = 0; i < state.size(); i++)
            check(value_of(x[place(i, t + 1)]) == state[i], "%s: x after step %d", name, t);
    }
}

#define ROW(what, kernel, type, inner, outer, own, split, at_once)                                           \
    { what, kernel, try_one<type>, inner, outer, own, split, at_once },

int main()
{
    const struct {
        const char *name;
        test_kernel kernel;
        decltype(&try_one<float>) try_it;
        int inner, outer, own, split, at_once;
    } kinds[] = {KINDS(ROW)};
    const struct {
        int batch, units, steps;
    } sizes[] = {{1, 1, 2}, {3, 7, 3}, {16, 32, 2}, {17, 40, 3}, {2, 64, 5}, {25, 72, 2}, {33, 24, 2},
#ifndef FEW
                 {3, 100, 3}, {5, 250, 2}, {9, 272, 2},
#endif
    };
    // On the emulator a kind takes one of the two largest sizes, in turn, and that one way: they are most of
    // its time.
    const auto takes = [](int way, int batch, int units, bool odd) {
        const bool largest = units >= 250 && !is_on_gpu() && !getenv("FULL");
        const bool in_turn = (way == 2) == (units > 256) && odd == (units > 256);
        return (way != 1 || batch <= 3) && (!largest || in_turn);
    };
    bool odd = false;
    for (auto &kind : kinds) {
        odd = !odd;
        for (auto &size : sizes)
            for (int way = 0; way < 3; way++)
                if ((kind.split == 1 || has_clusters()) && takes(way, size.batch, size.units, odd))
                    kind.try_it(kind.name, kind.kernel, kind.inner, kind.outer, kind.own, kind.split,
                                size.batch, size.units, size.steps, way == 1, way == 2, kind.at_once);
    }
#ifndef FEW
    // So many that a warp's share of k is read in two rounds, of which the weights are in registers for the first.
    for (int units : {1060, 1062})
        try_one<cell_bf16>("1 of 4, 16 units", k_panel_1_4_wide, 1, 4, 16, 1, 2, units, is_on_gpu() ? 2 : 1,
                           false, true, 16);
#endif
    return report();
}
