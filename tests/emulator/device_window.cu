// Products of tiles (cell_device_window.cuh) against sums made on the host in double.
//
// In: nothing. Out: `N passed, N failed`. Guaranteed: each storage type, extents that are no multiple of 8, several tiles
// of columns side by side, and infinities, with and without a weight.
#include "harness.h"

enum { WIDTH = 64 };

// ptr: rows [32, extent], columns [32, extent], values [32, WIDTH], weights [32, 32]; out: products of all rows with all
// columns [32, 32], and sums of values by weight [32, WIDTH]. size[0]: the extent.
template <class T, int Padded, class R> __global__ void k_window(const __grid_constant__ cell_kernel_args args)
{
    const int extent = (int)args.size[0];
    const R *const p_rows = (const R *)args.ptr[0], *const p_columns = (const R *)args.ptr[1];
    const R *const p_values = (const R *)args.ptr[2], *const p_weights = (const R *)args.ptr[3];
    auto cursor = cell_shared();
    cell_smem<R> rows = cell_carve<R>(cursor, 32 * (Padded + CELL_WINDOW_PAD));
    cell_smem<R> columns = cell_carve<R>(cursor, 32 * (Padded + CELL_WINDOW_PAD));
    cell_smem<R> tile = cell_carve<R>(cursor, 32 * (32 + CELL_WINDOW_GAP));
    cell_smem<R> values = cell_carve<R>(cursor, 32 * (WIDTH + CELL_WINDOW_GAP));
    for (int e = cell_thread(); e < 32 * Padded; e += 128) {
        const int step = e / Padded, i = e % Padded, in = step * (Padded + CELL_WINDOW_PAD) + i;
        rows[in] = i < extent ? p_rows[step * extent + i] : 0;
        columns[in] = i < extent ? p_columns[step * extent + i] : 0;
    }
    for (int e = cell_thread(); e < 32 * WIDTH; e += 128)
        values[e / WIDTH * (WIDTH + CELL_WINDOW_GAP) + e % WIDTH] = p_values[e];
    cell_barrier();
    R sums[8] = {};
    cell_window_multiply<T, Padded>(sums, rows, columns, extent);
    cell_window_put(tile, sums);
    cell_barrier();
    for (int e = cell_thread(); e < 1024; e += 128)
        ((R *)args.ptr[4])[e] = tile[e % 32 * (32 + CELL_WINDOW_GAP) + e / 32];
    cell_barrier();
    for (int e = cell_thread(); e < 1024; e += 128)
        tile[e % 32 * (32 + CELL_WINDOW_GAP) + e / 32] = p_weights[e];
    cell_barrier();
    R weighed[2][8] = {};
    for (int x = 0; x < 2; x++)
        cell_window_weigh<T, WIDTH>(weighed[x], tile, values + x * 32);
    for (int q = 0; q < 2; q++)
        for (int x = 0; x < 8; x++)
            ((R *)args.ptr[5])[cell_window_row(q) * WIDTH + x / 4 * 32 + cell_window_column(x % 4)] = weighed[x / 4][q * 4 + x % 4];
}

template <class R> struct Tiles {
    int extent;
    Array<R> rows, columns, values, weights, dots, sums;

    explicit Tiles(int n)
        : extent(n), rows((size_t)(32 * n)), columns((size_t)(32 * n)), values(32 * WIDTH), weights(1024), dots(1024),
          sums(32 * WIDTH)
    {
    }

    template <class T, int Padded> void run(const char *type)
    {
        cell_kernel_args args = arguments({rows.data, columns.data, values.data, weights.data, dots.data, sums.data});
        args.size[0] = extent;
        size_t bytes = 2 * (size_t)cell_carve_bytes<R>(32 * (Padded + CELL_WINDOW_PAD)) +
                       (size_t)cell_carve_bytes<R>(32 * (32 + CELL_WINDOW_GAP)) +
                       (size_t)cell_carve_bytes<R>(32 * (WIDTH + CELL_WINDOW_GAP));
        launch(type, k_window<T, Padded, R>, args, Shape{1, 128, bytes});
    }
};

static void compare(const char *type, const char *what, int at, double got, double wanted, double limit)
{
    bool ok = isfinite(wanted) ? fabs(got - wanted) <= limit : isnan(wanted) ? isnan(got) : got == wanted;
    check(ok, "%s: %s %d is %.9g, not %.9g", type, what, at, got, wanted);
}

// Terms in order, those without a weight left out. `unit` is the error of a term, relative to its size.
template <class R> static void compare_all(const char *type, Tiles<R> &t, double unit)
{
    for (int at = 0; at < 1024; at++) {
        double sum = 0, size = 0;
        for (int i = 0; i < t.extent; i++) {
            const double x = (double)t.rows[(size_t)(at / 32 * t.extent + i)] * t.columns[(size_t)(at % 32 * t.extent + i)];
            sum += x;
            size += fabs(x);
        }
        compare(type, "product", at, t.dots[(size_t)at], sum, unit * size);
    }
    for (int at = 0; at < 32 * WIDTH; at++) {
        double sum = 0, size = 0;
        for (int k = 0; k < 32; k++) {
            const double w = t.weights[(size_t)(at / WIDTH * 32 + k)];
            const double x = w == 0 ? 0 : w * t.values[(size_t)(k * WIDTH + at % WIDTH)];
            sum += x;
            size += fabs(x);
        }
        compare(type, "weighed sum", at, t.sums[(size_t)at], sum, unit * size);
    }
}

// Numbers of so many binary digits, which the type has, so that the only errors are those of the products' sums.
template <class R> static void fill(Array<R> &x, int digits, Random &random)
{
    for (size_t i = 0; i < x.count; i++)
        x[i] = (R)ldexp(nearbyint(ldexp(random.uniform(-2, 2), digits - 2)), 2 - digits);
}

template <class T, int Padded, class R> static void test_products(const char *type, int extent, int digits, double unit)
{
    Random random(7);
    Tiles<R> t(extent);
    fill(t.rows, digits, random);
    fill(t.columns, digits, random);
    fill(t.values, digits, random);
    fill(t.weights, digits, random);
    t.template run<T, Padded>(type);
    compare_all(type, t, unit);
    // Infinities stay such; one without a weight is not there at all.
    t.rows[3] = (R)INFINITY;
    t.columns[(size_t)(5 * extent)] = -(R)INFINITY;
    for (int i = 0; i < 32; i++)
        t.weights[(size_t)(i * 32 + 9)] = i < 16 ? 0 : 1;
    t.values[9 * WIDTH + 20] = (R)INFINITY;
    t.values[9 * WIDTH + 40] = (R)NAN;
    t.template run<T, Padded>(type);
    compare_all(type, t, unit);
}

template <class T, class R> static void test_type(const char *type, int digits, double unit)
{
    test_products<T, 32, R>(type, 5, digits, unit);
    test_products<T, 64, R>(type, 64, digits, unit);
    test_products<T, 128, R>(type, 100, digits, unit);
}

int main()
{
    // Sums of up to 104 terms in f32: each addition rounds by 2^-23 of the sum at most, on tensor cores too, where it
    // may be cut off. The third of the products of two halves is left out of f32: 2^-22.
    test_type<cell_bf16, float>("bf16", 8, 104 * 0x1p-23);
    test_type<cell_f16, float>("f16", 11, 104 * 0x1p-23);
    test_type<float, float>("f32", 24, 104 * 0x1p-23 + 0x1p-22);
    test_type<double, double>("f64", 53, 104 * 0x1p-53);
    return report();
}
