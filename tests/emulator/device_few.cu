// f32 products of few rows (cell_device_few.cuh) against sums made on the host.
//
// In: nothing. Out: `N passed, N failed`. Guaranteed: both kernels of both ways that a matrix lies, one
// product and several, pitches beyond the extents, fewer rows than a kernel has and all: each element is the
// sum, of small integers, and nothing is written beside them.
#include "harness.h"

template <int Rows, bool Across>
__global__ void __launch_bounds__(CELL_FEW_THREADS, 2) k_few(const __grid_constant__ cell_kernel_args args)
{
    cell_few_rows<Rows, Across>(args);
}

static int number(uint32_t &state)
{
    state = state * 1664525u + 1013904223u;
    return (int)(state >> 24) % 7 - 3;
}

template <int Rows, bool Across> static void test_few(int products, int rows, int outs, int terms, int beside)
{
    const int x_pitch = terms + beside, w_pitch = (Across ? outs : terms) + 2 * beside,
              y_pitch = outs + 3 * beside;
    const size_t x_size = (size_t)rows * x_pitch, w_size = (size_t)(Across ? terms : outs) * w_pitch;
    const size_t y_size = (size_t)rows * y_pitch;
    Array<float> x(x_size * products), w(w_size * products), y(y_size * products);
    uint32_t state = 1;
    for (size_t i = 0; i < x.count; i++)
        x[i] = (float)number(state);
    for (size_t i = 0; i < w.count; i++)
        w[i] = (float)number(state);
    for (size_t i = 0; i < y.count; i++)
        y[i] = 1e6f;
    cell_kernel_args args;
    memset(&args, 0, sizeof args);
    for (int p = 0; p < products; p++) {
        args.ptr[p] = x.data + p * x_size;
        args.ptr[products + p] = w.data + p * w_size;
        args.ptr[2 * products + p] = y.data + p * y_size;
    }
    const int64_t sizes[6] = {rows, outs, terms, x_pitch, w_pitch, y_pitch};
    for (int i = 0; i < 6; i++)
        args.size[i] = sizes[i];
    args.t = products;
    launch("few rows", k_few<Rows, Across>, args,
           Shape{(unsigned)(products * outs / CELL_FEW_OUTS), CELL_FEW_THREADS,
                 CELL_FEW_BYTES(Rows, Across)});
    for (int p = 0; p < products; p++)
        for (int r = 0; r < rows; r++)
            for (int o = 0; o < y_pitch; o++) {
                double sum = o < outs ? 0 : 1e6;
                for (int k = 0; o < outs && k < terms; k++)
                    sum += (double)x[p * x_size + r * x_pitch + k] *
                           w[p * w_size + (Across ? k * w_pitch + o : o * w_pitch + k)];
                check(y[p * y_size + r * y_pitch + o] == (float)sum,
                      "%d rows%s, product %d: [%d, %d] is %g, not %g", Rows, Across ? " across" : "", p, r, o,
                      y[p * y_size + r * y_pitch + o], sum);
            }
}

template <int Rows, bool Across> static void test_kind()
{
    test_few<Rows, Across>(1, 9, 32, 64, 0);
    test_few<Rows, Across>(3, Rows, 64, 448, 0);
    test_few<Rows, Across>(2, Rows - 3, 96, 128, 4);
}

int main()
{
    test_kind<16, false>();
    test_kind<16, true>();
    test_kind<32, false>();
    test_kind<32, true>();
    return report();
}
