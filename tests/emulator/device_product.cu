// Products and what is computed from their elements (cell_device_product.cuh) against sums made on the host.
//
// In: nothing. Out: `N passed, N failed`. Guaranteed: both types, extents that tiles and stages do not fit, pitches beyond the
// extents, one block and several, C stored and not: each element is the sum rounded once, the body sees each once, and
// nothing is written beside them. On a GPU it needs sm_90a; elsewhere the kernel is to admit fewer threads than it takes.
#include "harness.h"

// ptr: A, B, C, what the body makes, how often it came, maps; size: rows, columns, depth, pitches of A, B and C.
template <class T>
__global__ void __launch_bounds__(CELL_PRODUCT_THREADS, 1) k_product(const __grid_constant__ cell_kernel_args args)
{
    const int64_t columns = args.size[1];
    T *const p_y = (T *)args.ptr[3];
    int32_t *const p_count = (int32_t *)args.ptr[4];
    const cell_product<T> x = {(const T *)args.ptr[0], args.size[3], (const T *)args.ptr[1], args.size[4],
                               (T *)args.ptr[2],       args.size[5], args.size[0],           columns,
                               args.size[2],           args.ptr[5]};
    cell_multiply(x, [&](int64_t row, int64_t column, const float(&v)[8]) {
        float w[8];
        CELL_UNROLL
        for (int i = 0; i < 8; i++)
            w[i] = 0.5f * v[i];
        cell_store_vec<8>(p_y + row * columns + column, w);
        p_count[(row * columns + column) / 8] += 1;
    });
}

// The types on the host: how many digits they have, and the value of what is stored, which is no number below 2^-14.
template <class T> constexpr int digits = 8;
template <> constexpr int digits<cell_f16> = 11;
static double value(cell_bf16 x)
{
    const uint32_t bits = (uint32_t)x.bits << 16;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}
static double value(cell_f16 x)
{
    const int exponent = x.bits >> 10 & 31;
    const double size = exponent ? ldexp(1024 + (x.bits & 1023), exponent - 25) : 0;
    return x.bits & 0x8000 ? -size : size;
}
template <class T> static double rounded(double v)
{
    int exponent;
    const double part = frexp(v, &exponent);
    return ldexp(nearbyint(ldexp(part, digits<T>)), exponent - digits<T>);
}
static void put(cell_bf16 &x, int v)
{
    const float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    x.bits = (uint16_t)(bits >> 16);
}
static void put(cell_f16 &x, int v)
{
    int exponent;
    const double part = frexp(abs(v), &exponent);
    x.bits = (uint16_t)(v == 0 ? 0 : (v < 0) << 15 | (exponent + 14) << 10 | ((int)ldexp(part, 11) & 1023));
}

// Whole numbers, whose sums are exact in any order. What is beside the extents is NaN.
template <class T> static void fill(Array<T> &x, int64_t rows, int64_t columns, int64_t pitch, Random &random)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++)
            put(x[(size_t)(row * pitch + column)], random.integer(-9, 9));
}

template <class T>
static void test_product(const char *type, int64_t rows, int64_t columns, int64_t depth, int64_t beside, unsigned blocks,
                         bool stored)
{
    char name[96];
    snprintf(name, sizeof name, "%s %d x %d x %d, %d beside, %u blocks, C %s", type, (int)rows, (int)columns, (int)depth,
             (int)beside, blocks, stored ? "stored" : "not stored");
    Random random((uint64_t)(rows + columns + depth));
    const int64_t a_pitch = depth + beside, b_pitch = depth + 2 * beside, c_pitch = columns + 3 * beside;
    Array<T> a((size_t)(rows * a_pitch)), b((size_t)(columns * b_pitch)), c((size_t)(rows * c_pitch));
    Array<T> y((size_t)(rows * columns));
    Array<int32_t> count((size_t)(rows * columns / 8));
    Array<uint8_t> maps((size_t)(blocks * CELL_PRODUCT_MAP_BYTES));
    fill(a, rows, depth, a_pitch, random);
    fill(b, columns, depth, b_pitch, random);
    for (size_t i = 0; i < count.count; i++)
        count[i] = 0;
    cell_kernel_args args = arguments({a.data, b.data, stored ? c.data : nullptr, y.data, count.data, maps.data}, rows, columns);
    args.size[2] = depth, args.size[3] = a_pitch, args.size[4] = b_pitch, args.size[5] = c_pitch;
    launch(name, k_product<T>, args, Shape{blocks, 384, CELL_PRODUCT_SMEM});
    for (size_t i = 0; i < count.count; i++)
        check(count[i] == 1, "%s: the body came %d times to vector %d", name, count[i], (int)i);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < c_pitch; column++) {
            const T got = c[(size_t)(row * c_pitch + column)];
            if (!stored || column >= columns) {
                check(got.bits == 0xffff, "%s: C [%d, %d] was written", name, (int)row, (int)column);
                if (column >= columns)
                    continue;
            }
            double sum = 0;
            for (int64_t k = 0; k < depth; k++)
                sum += value(a[(size_t)(row * a_pitch + k)]) * value(b[(size_t)(column * b_pitch + k)]);
            const double wanted = rounded<T>(sum), made = value(y[(size_t)(row * columns + column)]);
            check(!stored || value(got) == wanted, "%s: C [%d, %d] is %g, not %g", name, (int)row, (int)column, value(got),
                  wanted);
            check(made == 0.5 * wanted, "%s: the body made %g of [%d, %d], not %g", name, made, (int)row, (int)column,
                  0.5 * wanted);
        }
}

template <class T> static void test_type(const char *type)
{
    test_product<T>(type, 1, 8, 8, 0, 1, true);
    test_product<T>(type, 1, 264, 72, 8, 2, false);
    test_product<T>(type, 127, 248, 200, 0, 1, true);
    test_product<T>(type, 129, 264, 72, 24, 3, true);
    test_product<T>(type, 300, 520, 40, 8, 1, true);
    test_product<T>(type, 300, 520, 40, 0, 2, false);
}

int main()
{
#ifdef __CUDACC__
    cudaFuncAttributes kernel;
    if (cudaFuncGetAttributes(&kernel, (const void *)k_product<cell_bf16>) == cudaSuccess && kernel.maxThreadsPerBlock < 384) {
        check(kernel.maxThreadsPerBlock == 32, "an empty kernel admits %d threads", kernel.maxThreadsPerBlock);
        return report();
    }
#endif
    test_type<cell_bf16>("bf16");
    test_type<cell_f16>("f16");
    return report();
}
