// Each primitive of the device library against values computed on the host.
//
// In: nothing. Out: `N passed, N failed`. Guaranteed: the same source checks the GPU (nvcc) and the emulator
// (g++ -x c++). The functions of cell_device_math.cuh are in device_math.cu.
#include "harness.h"

// Conversions.

KERNEL(k_widen)
{
    const int i = (int)cell_block_index(0) * cell_threads() + cell_thread();
    ((float *)args.ptr[0])[i] = cell_load<float>((const cell_bf16 *)args.ptr[2] + i);
    ((float *)args.ptr[1])[i] = cell_load_ro<float>((const cell_f16 *)args.ptr[2] + i);
}

KERNEL(k_codes)
{
    const int i = (int)cell_block_index(0) * cell_threads() + cell_thread();
    ((float *)args.ptr[0])[i] = cell_load<float>((const cell_e4m3 *)args.ptr[4] + i);
    ((float *)args.ptr[1])[i] = cell_load_ro<float>((const cell_e5m2 *)args.ptr[4] + i);
    float four[4], sixteen[16];
    if (i % 4 == 0) {
        cell_load_vec<4>(four, (const cell_e4m3 *)args.ptr[4] + i);
        for (int k = 0; k < 4; k++)
            ((float *)args.ptr[2])[i + k] = four[k];
    }
    if (i % 16 == 0) {
        cell_load_vec_ro<16>(sixteen, (const cell_e5m2 *)args.ptr[4] + i);
        for (int k = 0; k < 16; k++)
            ((float *)args.ptr[3])[i + k] = sixteen[k];
    }
}

KERNEL(k_narrow)
{
    const int i = (int)cell_block_index(0) * cell_threads() + cell_thread();
    const float v = ((const float *)args.ptr[0])[i];
    cell_store((cell_bf16 *)args.ptr[1] + i, v);
    cell_store((cell_f16 *)args.ptr[2] + i, v);
    ((float *)args.ptr[3])[i] = cell_round_to<cell_f16>(v);
}

// Rounds to `digits` binary digits with exponents from `lowest` by arithmetic, not by bits.
static double rounded(double v, int digits, int lowest, double largest)
{
    if (v == 0 || isnan(v) || isinf(v))
        return v;
    int e;
    (void)frexp(v, &e);
    const int step = (e - digits < lowest ? lowest : e - digits);
    const double r = ldexp(nearbyint(ldexp(v, -step)), step);
    return fabs(r) > largest ? copysign(INFINITY, v) : r;
}

static double format_value(unsigned bits, int exponent_bits, int fraction_bits)
{
    const int fraction = (int)(bits & ((1u << fraction_bits) - 1));
    const int exponent = (int)(bits >> fraction_bits & ((1u << exponent_bits) - 1));
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double sign = bits >> 15 ? -1.0 : 1.0;
    if (exponent == (1 << exponent_bits) - 1)
        return fraction ? NAN : sign * INFINITY;
    const int whole = exponent ? fraction + (1 << fraction_bits) : fraction;
    return sign * ldexp(whole, (exponent ? exponent : 1) - bias - fraction_bits);
}

static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static void test_widen()
{
    Array<uint16_t> bits(65536);
    Array<float> bf(65536), half(65536);
    for (unsigned i = 0; i < 65536; i++)
        bits[i] = (uint16_t)i;
    cell_kernel_args args = arguments({bf.data, half.data, bits.data});
    LAUNCH(k_widen, args, (Shape{256, 256}));
    for (unsigned i = 0; i < 65536; i++) {
        check(same(bf[i], format_value(i, 8, 7)), "bf16 %04x gives %g", i, (double)bf[i]);
        check(same(half[i], format_value(i, 5, 10)), "f16 %04x gives %g", i, (double)half[i]);
    }
}

static double small_value(unsigned bits, int fraction_bits, bool has_infinity)
{
    const unsigned largest = has_infinity ? 0x7b : 0x7e, size = bits & 0x7f;
    const int bias = has_infinity ? 15 : 7, exponent = (int)(size >> fraction_bits);
    const int fraction = (int)(size & ((1u << fraction_bits) - 1));
    if (size > largest)
        return has_infinity && size == 0x7c ? (bits & 0x80 ? -INFINITY : INFINITY) : NAN;
    const double v = ldexp(exponent ? fraction + (1 << fraction_bits) : fraction, (exponent ? exponent : 1) - bias - fraction_bits);
    return bits & 0x80 ? -v : v;
}

/* Every code, alone and in vectors. */
static void test_codes()
{
    Array<uint8_t> bits(256);
    Array<float> e4m3(256), e5m2(256), four(256), sixteen(256);
    for (unsigned i = 0; i < 256; i++)
        bits[i] = (uint8_t)i;
    cell_kernel_args args = arguments({e4m3.data, e5m2.data, four.data, sixteen.data, bits.data});
    LAUNCH(k_codes, args, (Shape{8, 32}));
    for (unsigned i = 0; i < 256; i++) {
        const double want = small_value(i, 3, false), other = small_value(i, 2, true);
        const bool minus = i >= 128;
        check(same(e4m3[i], want) && (isnan(want) || signbit(e4m3[i]) == minus), "e4m3 %02x gives %g", i,
              (double)e4m3[i]);
        check(same(e5m2[i], other) && (isnan(other) || signbit(e5m2[i]) == minus), "e5m2 %02x gives %g", i,
              (double)e5m2[i]);
        check(same(four[i], want), "e4m3 %02x in a vector of 4 gives %g", i, (double)four[i]);
        check(same(sixteen[i], other), "e5m2 %02x in a vector of 16 gives %g", i, (double)sixteen[i]);
    }
}

static void test_narrow()
{
    const unsigned n = 1 << 16;
    Array<float> from(n), back(n);
    Array<uint16_t> bf(n), half(n);
    Random random(1);
    for (unsigned i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)random.bits();
        if (i % 4 == 1) // a tie or near one in bf16
            bits = (bits & 0xffff0000u) | 0x8000u | (uint32_t)random.integer(-1, 1);
        memcpy(&from[i], &bits, 4);
        if (i % 4 == 2)
            from[i] = (float)ldexp(random.uniform(-1, 1), random.integer(-30, 18));
        if (i % 4 == 3) // ties of f16
            from[i] = (float)ldexp(random.integer(-4095, 4095), random.integer(-26, 5));
    }
    cell_kernel_args args = arguments({from.data, bf.data, half.data, back.data});
    LAUNCH(k_narrow, args, (Shape{256, 256}));
    for (unsigned i = 0; i < n; i++) {
        const double v = from[i];
        const double want_bf = rounded(v, 8, -133, 0x1.fep127), want_half = rounded(v, 11, -24, 65504.0);
        check(same(format_value(bf[i], 8, 7), want_bf), "%a to bf16: %04x", v, bf[i]);
        check(same(format_value(half[i], 5, 10), want_half), "%a to f16: %04x", v, half[i]);
        check(same(back[i], want_half), "%a through f16: %a", v, (double)back[i]);
    }
}

// From f64, where one step to either side of a middle is far below a step of f32: each number of 16 bits, the middle
// to the next, and the neighbours of both; in f32's subnormals and beyond its range too.
KERNEL(k_narrow_wide)
{
    const int i = (int)cell_block_index(0) * cell_threads() + cell_thread();
    const double v = ((const double *)args.ptr[0])[i];
    cell_store((cell_bf16 *)args.ptr[1] + i, v);
    cell_store((cell_f16 *)args.ptr[2] + i, v);
    ((double *)args.ptr[3])[i] = cell_round_to<cell_bf16>(v);
    ((double *)args.ptr[4])[i] = cell_load<double>((const cell_kept *)args.ptr[2] + i);
    cell_store((cell_kept *)args.ptr[5] + i, v);
}

static void put_middles(std::vector<double> &to, int exponent_bits, int fraction_bits)
{
    const unsigned infinite = 0x7fffu >> fraction_bits << fraction_bits;
    for (unsigned i = 0; i < infinite; i++) {
        const double low = format_value(i, exponent_bits, fraction_bits);
        const double next = format_value(i + 1, exponent_bits, fraction_bits);
        const double step = isinf(next) ? low - format_value(i - 1, exponent_bits, fraction_bits) : next - low;
        const double middle = low + step / 2, sign = i % 3 ? 1 : -1;
        for (double at : {low, middle})
            for (double v : {nextafter(at, -INFINITY), at, nextafter(at, (double)INFINITY)})
                to.push_back(sign * v);
    }
}

static void test_narrow_wide()
{
    std::vector<double> values = {0.0, -0.0, (double)INFINITY, -(double)INFINITY, (double)NAN, 5e-324, -5e-324, 1e300, -1e300,
                                  0x1p-149, 0x1.8p-150, 0x1p-150, 0x1.fffffffffffffp-151, 0x1.ffffffp127, 0x1.fffffeffp127};
    put_middles(values, 8, 7);
    put_middles(values, 5, 10);
    values.resize((values.size() + 255) / 256 * 256);
    const size_t n = values.size();
    Array<double> from(n), back(n), half_back(n);
    Array<uint16_t> bf(n), half(n), kept(n);
    for (size_t i = 0; i < n; i++)
        from[i] = values[i];
    cell_kernel_args args = arguments({from.data, bf.data, half.data, back.data, half_back.data, kept.data});
    LAUNCH(k_narrow_wide, args, (Shape{(unsigned)(n / 256), 256}));
    for (size_t i = 0; i < n; i++) {
        const double v = values[i], most = 65504.0;
        const double want_bf = rounded(v, 8, -133, 0x1.fep127), want_half = rounded(v, 11, -24, most);
        const double want_kept = isinf(want_half) ? copysign(most, v) : want_half;
        check(same(format_value(bf[i], 8, 7), want_bf), "%a to bf16: %04x", v, bf[i]);
        check(isnan(v) || !(bf[i] >> 15) == !signbit(v), "%a to bf16: %04x, another sign", v, bf[i]);
        check(same(format_value(half[i], 5, 10), want_half), "%a to f16: %04x", v, half[i]);
        check(same(format_value(kept[i], 5, 10), want_kept) || isnan(v), "%a kept: %04x", v, kept[i]);
        check(same(back[i], want_bf), "%a through bf16: %a", v, back[i]);
        check(same(half_back[i], want_half), "%a from f16: %a", v, half_back[i]);
    }
}

// What lies in shared memory in 16 bits: one by one, and N at once, as two conversions would give.
template <int N> __global__ void k_keep(const __grid_constant__ cell_kernel_args args)
{
    auto cursor = cell_shared();
    cell_smem<cell_kept> alone = cell_carve<cell_kept>(cursor, 64 * N), wide = cell_carve<cell_kept>(cursor, 64 * N);
    const int at = cell_thread() * N;
    const int64_t first = cell_block_index(0) * 64 * N + at;
    float v[N];
    cell_load_vec<N>(v, (const float *)args.ptr[0] + first);
    for (int i = 0; i < N; i++)
        cell_store(alone + (at + i), v[i]);
    cell_store_vec<N>(wide + at, v);
    for (int i = 0; i < N; i++)
        ((float *)args.ptr[1])[first + i] = cell_load<float>(alone + (at + i));
    cell_load_vec<N>(v, wide + at);
    cell_store_vec<N>((float *)args.ptr[2] + first, v);
}

template <int N> static void test_keep()
{
    const unsigned blocks = 16, n = blocks * 64 * N;
    Array<float> from(n), alone(n), wide(n);
    Random random(2);
    const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, 65503.0f, 65504.0f, 65519.0f, 65520.0f, -65536.0f, 1e9f, -3e38f, INFINITY, -INFINITY, NAN};
    const unsigned n_special = sizeof special / sizeof *special;
    for (unsigned i = 0; i < n; i++)
        from[i] = i < n_special ? special[i] : (float)ldexp(random.uniform(-1, 1), random.integer(-28, i % 2 ? 0 : 20));
    cell_kernel_args args = arguments({from.data, alone.data, wide.data});
    launch("k_keep", k_keep<N>, args, Shape{blocks, 64, (size_t)(2 * cell_carve_bytes<cell_kept>(64 * N))});
    for (unsigned i = 0; i < n; i++) {
        const double half = rounded(from[i], 11, -24, 65504.0), want = isinf(half) ? copysign(65504.0, half) : half;
        check(same(alone[i], want), "%a kept: %a", (double)from[i], (double)alone[i]);
        check(same(wide[i], want), "%a kept, one of %d: %a", (double)from[i], N, (double)wide[i]);
    }
}

// Vectors.

template <int N, class T> __device__ __forceinline__ void copy_vec(const cell_kernel_args &args)
{
    using C = typename cell_compute<T>::type;
    auto cursor = cell_shared();
    cell_smem<T> stage = cell_carve<T>(cursor, 32 * N);
    const int at = cell_thread() * N;
    C v[N];
    cell_load_vec<N>(v, (const T *)args.ptr[0] + at);
    cell_store_vec<N>(stage + at, v);
    cell_barrier();
    cell_load_vec<N>(v, stage + (31 - cell_thread()) * N);
    cell_store_vec<N>((T *)args.ptr[1] + at, v);
    cell_load_vec_ro<N>(v, (const T *)args.ptr[0] + at);
    for (int i = 0; i < N; i++)
        v[i] = v[i] + C(1);
    cell_store_vec<N>((T *)args.ptr[2] + at, v);
}

template <int N, class T> __global__ void k_copy_vec(const __grid_constant__ cell_kernel_args args)
{
    copy_vec<N, T>(args);
}

template <class T> static void put(T &to, double v) { to = (T)v; }
static void put(cell_bf16 &to, double v)
{
    const float f = (float)v; // small integers only
    uint32_t bits;
    memcpy(&bits, &f, 4);
    to.bits = (uint16_t)(bits >> 16);
}
static void put(cell_f16 &to, double v)
{
    to.bits = 0;
    for (unsigned b = 0; b < 65536; b++) {
        if (format_value(b, 5, 10) == v)
            to.bits = (uint16_t)b;
    }
}
template <class T> static double get(const T &from) { return (double)from; }
static double get(const cell_bf16 &from) { return format_value(from.bits, 8, 7); }
static double get(const cell_f16 &from) { return format_value(from.bits, 5, 10); }

template <int N, class T> static void test_vec(const char *type)
{
    Array<T> from(32 * N), reversed(32 * N), plus(32 * N);
    for (int i = 0; i < 32 * N; i++)
        put(from[(size_t)i], i % 119);
    cell_kernel_args args = arguments({from.data, reversed.data, plus.data});
    launch("k_copy_vec", k_copy_vec<N, T>, args, Shape{1, 32, (size_t)cell_carve_bytes<T>(32 * N)});
    for (int i = 0; i < 32 * N; i++) {
        const int other = (31 - i / N) * N + i % N;
        check(get(reversed[(size_t)i]) == other % 119, "vector of %d %s: element %d", N, type, i);
        check(get(plus[(size_t)i]) == i % 119 + 1, "read-only vector of %d %s: element %d", N, type, i);
    }
}

template <class T> static void test_vecs(const char *type)
{
    test_vec<1, T>(type);
    test_vec<2, T>(type);
    test_vec<4, T>(type);
    test_vec<8, T>(type);
    test_vec<16, T>(type);
}

// Shuffles and reductions.

KERNEL(k_shuffles)
{
    const int l = cell_lane(), at = cell_thread();
    int *out = (int *)args.ptr[0];
    double *wide = (double *)args.ptr[1];
    out[at] = cell_shfl_xor(at, 5);
    out[64 + at] = cell_shfl(at, (l * 7 + 3) % 32);
    out[128 + at] = cell_shfl_up(at, 3);
    out[192 + at] = cell_shfl_down(at, 3);
    out[256 + at] = cell_any(at == 40);
    out[320 + at] = cell_all(at != 40);
    wide[at] = cell_shfl_xor(at + 0.25, 16);
}

static void test_shuffles()
{
    Array<int> out(384);
    Array<double> wide(64);
    cell_kernel_args args = arguments({out.data, wide.data});
    LAUNCH(k_shuffles, args, (Shape{1, 64}));
    for (int i = 0; i < 64; i++) {
        const int l = i % 32, base = i - l;
        const size_t at = (size_t)i;
        check(out[at] == base + (l ^ 5), "shfl_xor %d", i);
        check(out[64 + at] == base + (l * 7 + 3) % 32, "shfl %d", i);
        check(out[128 + at] == (l < 3 ? i : i - 3), "shfl_up %d", i);
        check(out[192 + at] == (l > 28 ? i : i + 3), "shfl_down %d", i);
        check(out[256 + at] == (base == 32), "any %d", i);
        check(out[320 + at] == (base == 0), "all %d", i);
        check(wide[at] == base + (l ^ 16) + 0.25, "shfl_xor of double %d", i);
    }
}

template <int S, int G> __global__ void k_stride(const __grid_constant__ cell_kernel_args args)
{
    const float v = ((const float *)args.ptr[0])[cell_thread()];
    float *out = (float *)args.ptr[1] + 4 * cell_thread();
    out[0] = cell_stride_sum<S, G>(v);
    out[1] = cell_stride_prod<S, G>(v);
    out[2] = cell_stride_max<S, G>(v);
    out[3] = cell_stride_min<S, G>(v);
}

template <int S, int G> static void test_stride()
{
    Array<float> in(32), out(128);
    Random random(S * 64 + G);
    for (size_t i = 0; i < 32; i++)
        in[i] = ldexpf(random.integer(0, 1) ? 1.0f : -1.0f, random.integer(-1, 1)); // exact in any order
    if (G < 32)
        in[31] = NAN; // reaches its own group only
    cell_kernel_args args = arguments({in.data, out.data});
    launch("k_stride", k_stride<S, G>, args, Shape{1, 32});
    for (int l = 0; l < 32; l++) {
        double sum = 0, prod = 1, most = -INFINITY, least = INFINITY;
        bool nan = false;
        for (int g = 0; g < G; g++) {
            const double v = in[(size_t)(l / (S * G) * (S * G) + g * S + l % S)];
            nan = nan || isnan(v);
            sum += v;
            prod *= v;
            most = fmax(most, v);
            least = fmin(least, v);
        }
        if (nan)
            sum = prod = most = least = NAN;
        const float *got = out.data + 4 * l;
        check(same(got[0], sum) && same(got[1], prod), "stride %d group %d lane %d: sum or product", S, G, l);
        check(same(got[2], most) && same(got[3], least), "stride %d group %d lane %d: max or min", S, G, l);
    }
}

template <int S, int G, int R> __global__ void k_scatter(const __grid_constant__ cell_kernel_args args)
{
    constexpr int own = cell_scatter_count(G, R);
    float v[R];
    for (int r = 0; r < R; r++)
        v[r] = ((const float *)args.ptr[0])[cell_thread() * R + r];
    cell_reduce_scatter<S, G>(v);
    const int first = cell_scatter_first<S, G, R>();
    for (int i = 0; i < own; i++)
        ((float *)args.ptr[1])[cell_thread() * R + first + i] = v[i];
    float all[R];
    cell_all_gather<S, G>(all, v);
    for (int r = 0; r < R; r++)
        ((float *)args.ptr[2])[cell_thread() * R + r] = all[r];
}

template <int S, int G, int R> static void test_scatter()
{
    Array<float> in(32 * R), held(32 * R), all(32 * R);
    Random random(S * 4096 + G * 64 + R);
    for (size_t i = 0; i < in.count; i++)
        in[i] = (float)random.integer(-99, 99);
    cell_kernel_args args = arguments({in.data, held.data, all.data});
    launch("k_scatter", k_scatter<S, G, R>, args, Shape{1, 32});
    for (int l = 0; l < 32; l++) {
        const int g = l / S % G, own = cell_scatter_count(G, R);
        const int first = R >= G ? g * (R / G) : g / (G / R);
        for (int r = 0; r < R; r++) {
            double sum = 0;
            for (int o = 0; o < G; o++)
                sum += in[(size_t)((l / (S * G) * (S * G) + o * S + l % S) * R + r)];
            const size_t at = (size_t)(l * R + r);
            const bool mine = r >= first && r < first + own;
            check(mine ? held[at] == sum : isnan(held[at]), "scatter %d %d %d lane %d value %d", S, G, R, l,
                  r);
            check(all[at] == sum, "gather %d %d %d lane %d value %d", S, G, R, l, r);
        }
    }
}

static void test_groups()
{
    test_stride<1, 2>();
    test_stride<1, 4>();
    test_stride<1, 8>();
    test_stride<1, 16>();
    test_stride<1, 32>();
    test_stride<2, 2>();
    test_stride<2, 16>();
    test_stride<4, 8>();
    test_stride<8, 2>();
    test_stride<8, 4>();
    test_stride<16, 2>();
    test_scatter<1, 2, 2>();
    test_scatter<1, 8, 8>();
    test_scatter<1, 32, 32>();
    test_scatter<4, 8, 24>();
    test_scatter<8, 4, 12>();
    test_scatter<1, 32, 4>();
    test_scatter<2, 16, 1>();
    test_scatter<16, 2, 6>();
    test_scatter<1, 1, 3>();
}

KERNEL(k_block)
{
    auto cursor = cell_shared();
    cell_smem<float> scratch = cell_carve<float>(cursor, 64);
    const float v = ((const float *)args.ptr[0])[cell_thread()];
    float *out = (float *)args.ptr[1] + 5 * cell_thread();
    float sum = v, twice = 2 * v, most = v, least = v, sign = v > 0 ? 1.0f : -1.0f;
    cell_block_sum(scratch, sum, twice);
    cell_block_max(scratch, most);
    cell_block_min(scratch, least);
    cell_block_prod(scratch, sign);
    out[0] = sum;
    out[1] = most;
    out[2] = least;
    out[3] = sign;
    out[4] = twice;
}

static void test_block(unsigned threads)
{
    Array<float> in(threads), out(5 * threads);
    Random random(threads);
    double sum = 0, most = -INFINITY, least = INFINITY, prod = 1;
    for (unsigned i = 0; i < threads; i++) {
        in[i] = (float)random.integer(-500, 500);
        sum += in[i];
        most = fmax(most, in[i]);
        least = fmin(least, in[i]);
        prod *= in[i] > 0 ? 1 : -1;
    }
    cell_kernel_args args = arguments({in.data, out.data});
    LAUNCH(k_block, args, (Shape{1, threads, 256}));
    for (unsigned i = 0; i < threads; i++) {
        const float *got = out.data + 5 * i;
        check(got[0] == sum && got[1] == most && got[2] == least && got[3] == prod && got[4] == 2 * sum, "block of %u: thread %u",
              threads, i);
    }
}

// Elements of shared memory in all the places where generated code puts them.
KERNEL(k_expressions)
{
    auto cursor = cell_shared();
    cell_smem<float> a = cell_carve<float>(cursor, 32);
    cell_smem<double> wide = cell_carve<double>(cursor, 32);
    cell_smem<cell_bf16> half = cell_carve<cell_bf16>(cursor, 32);
    const int i = cell_thread();
    a[i] = (float)i;
    wide[i] = i * 0.5;
    a[i] += 2.0f;
    a[i] *= a[i] - 1.0f;
    cell_store(half + i, a[i]);
    cell_barrier();
    const cell_smem<const float> fixed = a + 1;
    const float chosen = i > 3 ? a[31 - i] : 0.0f;
    const double mixed = a[i] * wide[31 - i] + (i < 31 ? fixed[i] : -1);
    double *out = (double *)args.ptr[0] + 5 * i;
    out[0] = chosen;
    out[1] = mixed;
    out[2] = cell_max(a[i], a[31 - i]) - cell_fabs(-a[5]);
    out[3] = cell_fma(a[1], a[2], a[3]);
    out[4] = cell_load<float>(half + i);
}

static void test_expressions()
{
    Array<double> out(160);
    cell_kernel_args args = arguments({out.data});
    LAUNCH(k_expressions, args, (Shape{1, 32, 128 + 256 + 64}));
    std::vector<double> a(33, -1);
    for (int i = 0; i < 32; i++)
        a[(size_t)i] = (i + 2) * (i + 1);
    for (int i = 0; i < 32; i++) {
        const double own = a[(size_t)i], other = a[(size_t)(31 - i)];
        const double *got = out.data + 5 * i;
        check(got[0] == (i > 3 ? other : 0), "a choice, thread %d", i);
        check(got[1] == own * (31 - i) * 0.5 + a[(size_t)i + 1], "float times double, thread %d", i);
        check(got[2] == fmax(own, other) - a[5] && got[3] == a[1] * a[2] + a[3], "arguments, thread %d", i);
        check(got[4] == rounded(own, 8, -133, 0x1.fep127), "stored as bf16, thread %d", i);
    }
}

// Barriers: each step every thread takes what its neighbour wrote the step before.

KERNEL(k_rotate)
{
    auto cursor = cell_shared();
    cell_smem<int> even = cell_carve<int>(cursor, cell_threads());
    cell_smem<int> odd = cell_carve<int>(cursor, cell_threads());
    cell_split_barrier split = cell_split_carve(cursor);
    cell_split_init(split);
    cell_barrier();
    const bool use_split = args.size[1] != 0;
    const int n = cell_threads(), i = cell_thread();
    int v = i;
    for (int s = 0; s < args.size[0]; s++) {
        cell_smem<int> buffer = s % 2 ? odd : even;
        buffer[i] = v;
        if (use_split) {
            cell_split_arrive(split);
            v = v * 3 + s; // work in between
            cell_split_wait(split);
        } else {
            cell_barrier();
            v = v * 3 + s;
        }
        const int other = buffer[(i + 1) % n];
        v = (v + other) % 10007;
    }
    ((int *)args.ptr[0])[i] = v;
}

static void test_rotate(bool split)
{
    const unsigned n = 128;
    const int steps = 9;
    Array<int> out(n);
    cell_kernel_args args = arguments({out.data}, steps, split);
    LAUNCH(k_rotate, args, (Shape{1, n, 2 * n * sizeof(int) + 16}));
    std::vector<int> v(n), next(n);
    for (unsigned i = 0; i < n; i++)
        v[i] = (int)i;
    for (int s = 0; s < steps; s++) {
        for (unsigned i = 0; i < n; i++)
            next[i] = (v[i] * 3 + s + v[(i + 1) % n]) % 10007;
        v = next;
    }
    for (unsigned i = 0; i < n; i++)
        check(out[i] == v[i], "%s barrier: thread %u has %d, not %d", split ? "split" : "block", i, out[i],
              v[i]);
}

// Warp 0 produces, the others consume: a full and an empty barrier.
KERNEL(k_producer)
{
    enum { full = 1, empty = 2 };
    auto cursor = cell_shared();
    cell_smem<int> slot = cell_carve<int>(cursor, 32);
    const int steps = (int)args.size[0], all = cell_threads();
    int sum = 0;
    for (int s = 0; s < steps; s++) {
        if (cell_warp() == 0) {
            if (s > 0)
                cell_barrier_wait(empty, all);
            slot[cell_lane()] = s * 32 + cell_lane();
            cell_barrier_arrive(full, all);
        } else {
            cell_barrier_wait(full, all);
            const int v = slot[(cell_lane() + cell_warp()) % 32];
            sum += v;
            if (s + 1 < steps)
                cell_barrier_arrive(empty, all);
        }
    }
    ((int *)args.ptr[0])[cell_thread()] = sum;
}

static void test_producer()
{
    Array<int> out(128);
    const int steps = 7;
    cell_kernel_args args = arguments({out.data}, steps);
    LAUNCH(k_producer, args, (Shape{1, 128, 128}));
    for (int i = 32; i < 128; i++) {
        const int lane = (i % 32 + i / 32) % 32;
        check(out[(size_t)i] == steps * (steps - 1) / 2 * 32 + steps * lane, "named barriers: thread %d", i);
    }
}

KERNEL(k_warp_exchange)
{
    auto cursor = cell_shared();
    cell_smem<cell_bf16> row = cell_carve<cell_bf16>(cursor, cell_threads());
    cell_store(row + cell_thread(), (float)cell_lane());
    cell_warp_barrier();
    ((float *)args.ptr[0])[cell_thread()] = cell_load<float>(row + (cell_thread() ^ 9));
}

static void test_warp_exchange()
{
    Array<float> out(96);
    cell_kernel_args args = arguments({out.data});
    LAUNCH(k_warp_exchange, args, (Shape{1, 96, 192}));
    for (int i = 0; i < 96; i++)
        check(out[(size_t)i] == ((i % 32) ^ 9), "warp barrier: thread %d", i);
}

// Clusters.

KERNEL(k_cluster)
{
    auto cursor = cell_shared();
    cell_smem<float> mine = cell_carve<float>(cursor, 32);
    cell_smem<double> sent = cell_carve<double>(cursor, 32);
    const int rank = cell_cluster_rank(), size = cell_cluster_size(), l = cell_lane();
    mine[l] = (float)(rank * 100 + l);
    cell_cluster_barrier();
    float sum = 0;
    for (int b = 0; b < size; b++)
        sum += cell_cluster_load(mine + l, b);
    cell_cluster_store(sent + l, (rank + 1) % size, rank + 0.5);
    cell_cluster_arrive();
    cell_cluster_wait();
    const double got = sent[l];
    const int64_t at = cell_block_index(0) * 32 + l;
    ((float *)args.ptr[0])[at] = sum;
    ((double *)args.ptr[1])[at] = got;
}

static void test_cluster(unsigned size)
{
    const unsigned blocks = size * 3;
    Array<float> sums(blocks * 32);
    Array<double> sent(blocks * 32);
    cell_kernel_args args = arguments({sums.data, sent.data});
    LAUNCH(k_cluster, args, (Shape{blocks, 32, 128 + 256, size}));
    for (unsigned i = 0; i < blocks * 32; i++) {
        const unsigned rank = i / 32 % size;
        check(sums[i] == (float)(100 * (size * (size - 1) / 2) + size * (i % 32)), "cluster of %u: load %u",
              size, i);
        check(sent[i] == (rank + size - 1) % size + 0.5, "cluster of %u: store %u", size, i);
    }
}

// Counters.

KERNEL(k_grid)
{
    int *cells = (int *)args.ptr[0];
    unsigned *counter = (unsigned *)args.ptr[1];
    const int64_t blocks = cell_block_count(0), b = cell_block_index(0);
    const int n = cell_threads(), i = cell_thread();
    for (int s = 0; s < args.size[0]; s++) {
        const int v = cells[((s % 2) * blocks + (b + 1) % blocks) * n + (i + 1) % n];
        cells[(((s + 1) % 2) * blocks + b) * n + i] = v + 1;
        cell_grid_barrier(counter);
    }
}

// Block b waits for block b - 1 in each round, as a pipeline does.
KERNEL(k_chain)
{
    int *cells = (int *)args.ptr[0];
    unsigned *counters = (unsigned *)args.ptr[1];
    const int64_t b = cell_block_index(0);
    const int n = cell_threads(), i = cell_thread();
    for (int s = 0; s < args.size[0]; s++) {
        if (b > 0)
            cell_block_wait(counters + b - 1, (unsigned)s + 1);
        const int before = b > 0 ? cells[(s * cell_block_count(0) + b - 1) * n + (i + 7) % n] : s;
        cells[(s * cell_block_count(0) + b) * n + i] = before + 1;
        cell_block_post(counters + b);
    }
}

static void test_counters()
{
    const unsigned blocks = 6, n = 64;
    const int steps = 10;
    Array<int> cells(2 * blocks * n), rows(steps * blocks * n);
    Array<unsigned> counters(blocks + 1);
    for (unsigned i = 0; i < blocks * n; i++)
        cells[i] = (int)i;
    for (unsigned i = 0; i <= blocks; i++)
        counters[i] = 0;
    cell_kernel_args args = arguments({cells.data, counters.data + blocks}, steps);
    LAUNCH(k_grid, args, (Shape{blocks, n, 0, 1, true}));
    for (unsigned i = 0; i < blocks * n; i++) {
        const unsigned b = (i / n + steps) % blocks, c = (i % n + steps) % n;
        check(cells[i] == (int)(b * n + c) + steps, "grid barrier: cell %u is %d", i, cells[i]);
    }
    args = arguments({rows.data, counters.data}, steps);
    LAUNCH(k_chain, args, (Shape{blocks, n, 0, 1, true}));
    for (int s = 0; s < steps; s++) {
        for (unsigned i = 0; i < blocks * n; i++)
            check(rows[(size_t)s * blocks * n + i] == s + 1 + (int)(i / n), "chain: step %d cell %u", s, i);
    }
}

// Asynchronous copies: a ring of three stages.

template <int Bytes> __global__ void k_ring(const __grid_constant__ cell_kernel_args args)
{
    enum { stages = 3, per = Bytes / 4 };
    const int *from = (const int *)args.ptr[0];
    int *out = (int *)args.ptr[1];
    const int steps = (int)args.size[0], width = cell_threads() * per, at = cell_thread() * per;
    auto cursor = cell_shared();
    cell_smem<int> ring = cell_carve<int>(cursor, stages * width);
    for (int s = 0; s < stages - 1; s++) {
        if (s < steps)
            cell_cp_async<Bytes>(ring + s * width + at, from + s * width + at);
        cell_cp_async_commit();
    }
    for (int s = 0; s < steps; s++) {
        cell_cp_async_wait<stages - 2>();
        cell_barrier(); // the stage is there for all, and all are done with the stage that is filled next
        const int next = s + stages - 1;
        // The last element of each step is predicated off and must come as zero.
        if (next < steps)
            cell_cp_async_zfill<Bytes>(ring + next % stages * width + at, from + next * width + at,
                                       cell_thread() != cell_threads() - 1);
        cell_cp_async_commit();
        for (int e = 0; e < per; e++) {
            const int v = ring[s % stages * width + (width - 1 - at - e)];
            out[s * width + at + e] = v;
        }
    }
}

template <int Bytes> static void test_ring()
{
    const int steps = 8, width = 64 * Bytes / 4, per = Bytes / 4;
    Array<int> from((size_t)(steps * width)), out((size_t)(steps * width));
    for (int i = 0; i < steps * width; i++)
        from[(size_t)i] = i * 17 + 1;
    cell_kernel_args args = arguments({from.data, out.data}, steps);
    launch("k_ring", k_ring<Bytes>, args, Shape{1, 64, (size_t)(3 * width) * sizeof(int)});
    for (int s = 0; s < steps; s++) {
        for (int i = 0; i < width; i++) {
            const int source = width - 1 - i;
            const bool zero = s >= 2 && source >= width - per;
            const int want = zero ? 0 : from[(size_t)(s * width + source)];
            check(out[(size_t)(s * width + i)] == want, "cp.async of %d bytes: step %d element %d", Bytes, s,
                  i);
        }
    }
}

// The rows of a chunk's steps: as they lie, turned round in time, and zeros where there are none. Behind the last, nothing is written.

template <int Bytes, int Pieces, int Steps, int Threads> __global__ void k_steps(const __grid_constant__ cell_kernel_args args)
{
    enum { per = Bytes / 4, row = Pieces * per, pitch = row + 4 };
    const int *from = (const int *)args.ptr[0];
    int *out = (int *)args.ptr[1];
    const int steps = (int)args.size[0], first = cell_threads() - Threads;
    auto cursor = cell_shared();
    cell_smem<int> rows = cell_carve<int>(cursor, (Steps + 1) * pitch);
    for (int i = cell_thread(); i < (Steps + 1) * pitch; i += cell_threads())
        rows[i] = -1;
    cell_barrier();
    if (cell_thread() >= first)
        cell_copy_steps<Bytes, Pieces, pitch, Steps, Threads>(rows, from, args.size[1], steps, cell_thread() - first, from != nullptr);
    cell_cp_async_commit();
    cell_cp_async_wait<0>();
    cell_barrier();
    for (int i = cell_thread(); i < (Steps + 1) * pitch; i += cell_threads()) {
        const int v = rows[i];
        out[i] = v;
    }
}

template <int Bytes, int Pieces, int Steps, int Threads> static void test_steps()
{
    const int per = Bytes / 4, row = Pieces * per, pitch = row + 4, apart = row + 8;
    Array<int> from((size_t)(Steps * apart)), out((size_t)((Steps + 1) * pitch));
    for (int i = 0; i < Steps * apart; i++)
        from[(size_t)i] = i * 17 + 1;
    for (int steps = 0; steps <= Steps; steps++)
        for (int way = 0; way < 3; way++) {
            int *first = way == 2 ? nullptr : way == 1 && steps ? from.data + (steps - 1) * apart : from.data;
            cell_kernel_args args = arguments({first, out.data}, steps, way == 1 ? -apart : apart);
            launch("k_steps", k_steps<Bytes, Pieces, Steps, Threads>, args,
                   Shape{1, Threads + 32, ((size_t)((Steps + 1) * pitch) * sizeof(int) + 15) / 16 * 16});
            for (int s = 0; s <= Steps; s++)
                for (int i = 0; i < pitch; i++) {
                    const int source = way == 1 ? steps - 1 - s : s;
                    const int want = s >= steps || i >= row ? -1 : way == 2 ? 0 : from[(size_t)(source * apart + i)];
                    check(out[(size_t)(s * pitch + i)] == want, "%d pieces of %d bytes, %d of %d steps, way %d: step %d element %d",
                          Pieces, Bytes, steps, Steps, way, s, i);
                }
        }
}

// Tensor cores. Small integers are exact; A in global memory, B in shared memory, stored along n.

template <class T, class Stored> __global__ void k_mma(const __grid_constant__ cell_kernel_args args)
{
    enum { k = cell_mma_shape<T>::k };
    auto cursor = cell_shared();
    cell_smem<Stored> b_rows = cell_carve<Stored>(cursor, k * 8);
    for (int i = cell_lane(); i < k * 8; i += 32)
        cell_store(b_rows + i, cell_load<float>((const Stored *)args.ptr[1] + i));
    cell_warp_barrier();
    cell_mma_a<T> a;
    cell_mma_b<T> b;
    cell_mma_c c;
    cell_mma_load_c(c, (const float *)args.ptr[2], 8);
    cell_mma_load_a(a, (const Stored *)args.ptr[0], k);
    cell_mma_load_b(b, b_rows, 1, 8); // B[k, j] at k * 8 + j
    cell_mma(c, a, b);
    cell_mma_store_c((float *)args.ptr[3], 8, c);
}

template <class T, class Stored> static void test_mma(const char *type)
{
    const int k = cell_mma_shape<T>::k;
    Array<Stored> a((size_t)(16 * k)), b((size_t)(k * 8));
    Array<float> c(128), out(128);
    Random random(5);
    for (size_t i = 0; i < a.count; i++)
        put(a[i], random.integer(-9, 9));
    for (size_t i = 0; i < b.count; i++)
        put(b[i], random.integer(-9, 9));
    for (size_t i = 0; i < 128; i++)
        c[i] = (float)random.integer(-9, 9);
    cell_kernel_args args = arguments({a.data, b.data, c.data, out.data});
    launch("k_mma", k_mma<T, Stored>, args, Shape{1, 32, (size_t)cell_carve_bytes<Stored>(k * 8)});
    for (int i = 0; i < 16; i++) {
        for (int j = 0; j < 8; j++) {
            double sum = c[(size_t)(i * 8 + j)];
            for (int d = 0; d < k; d++)
                sum += get(a[(size_t)(i * k + d)]) * get(b[(size_t)(d * 8 + j)]);
            check(out[(size_t)(i * 8 + j)] == sum, "mma %s: (%d, %d) is %g, not %g", type, i, j,
                  (double)out[(size_t)(i * 8 + j)], sum);
        }
    }
}

int main()
{
    test_widen();
    test_codes();
    test_narrow();
    test_narrow_wide();
    test_keep<2>();
    test_keep<4>();
    test_keep<8>();
    test_vecs<cell_bf16>("bf16");
    test_vecs<cell_f16>("f16");
    test_vecs<float>("f32");
    test_vecs<double>("f64");
    test_shuffles();
    test_groups();
    for (unsigned threads : {32u, 64u, 96u, 128u, 512u, 1024u})
        test_block(threads);
    test_expressions();
    test_rotate(false);
    test_rotate(true);
    test_producer();
    test_warp_exchange();
    if (has_clusters()) {
        for (unsigned size : {1u, 2u, 4u, 8u})
            test_cluster(size);
    } else {
        printf("clusters: not on this device\n");
    }
    test_counters();
    test_ring<4>();
    test_ring<8>();
    test_ring<16>();
    test_steps<16, 8, 12, 32>();
    test_steps<16, 4, 7, 64>();
    test_steps<16, 3, 5, 32>();
    test_steps<8, 5, 9, 96>();
    test_steps<4, 1, 24, 32>();
    test_mma<cell_bf16, cell_bf16>("bf16");
    test_mma<cell_f16, cell_f16>("f16");
    test_mma<cell_tf32, float>("tf32");
    return report();
}
