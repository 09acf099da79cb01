// Each function of the device library's math against long double values computed on the host.
//
// In: nothing. Out: the largest error of each function, `N passed, N failed`. Guaranteed: values at extremes,
// infinities and NaN are among the arguments; the references use other formulas than the device does.
#include "harness.h"

typedef long double Real;

static Real ref_sigmoid(Real x) { return 1 / (1 + expl(-x)); }
static Real ref_softplus(Real x) { return x > 50 ? x : log1pl(expl(x)); }
static Real ref_logsigmoid(Real x) { return x < -50 ? x : -log1pl(expl(-x)); }
static Real ref_silu(Real x) { return x == -INFINITY ? 0 : x / (1 + expl(-x)); }
static Real ref_gelu(Real x) { return x == -INFINITY ? 0 : x * erfcl(-x / sqrtl(2)) / 2; }
static Real ref_gelu_tanh(Real x)
{
    if (fabsl(x) > 1000)
        return x > 0 ? x : x < 0 ? 0 : x;
    const Real u = sqrtl(2 / acosl(-1)) * (x + 0.044715L * x * x * x);
    return x / (1 + expl(-2 * u));
}
static Real ref_softsign(Real x) { return isinf(x) ? copysignl(1, x) : x / (1 + fabsl(x)); }
static Real ref_elu(Real x) { return x > 0 ? x : expm1l(x); }
static Real ref_mish(Real x) { return x == -INFINITY ? 0 : x * tanhl(ref_softplus(x)); }
static Real ref_hardtanh(Real x) { return isnan(x) ? x : fmaxl(-1, fminl(x, 1)); }
static Real ref_sign(Real x) { return isnan(x) ? x : (x > 0) - (x < 0); }
static Real ref_relu(Real x) { return isnan(x) ? x : x > 0 ? x : 0; }
static Real ref_rsqrt(Real x) { return 1 / sqrtl(x); }

// Largest error allowed in ulps of the result; `tail` is the power of |x| by which it may grow for negative
// x, where the result is x times a vanishing gate: rounding the gate's argument costs that much.
#define UNARY(X)                                                                                             \
    X(exp, expl, 3, 0)                                                                                       \
    X(log, logl, 3, 0)                                                                                       \
    X(log1p, log1pl, 3, 0)                                                                                   \
    X(expm1, expm1l, 3, 0)                                                                                   \
    X(sqrt, sqrtl, 1, 0)                                                                                     \
    X(rsqrt, ref_rsqrt, 3, 0)                                                                                \
    X(fabs, fabsl, 0, 0)                                                                                     \
    X(abs, fabsl, 0, 0)                                                                                      \
    X(sin, sinl, 3, 0)                                                                                       \
    X(cos, cosl, 3, 0)                                                                                       \
    X(tanh, tanhl, 3, 0)                                                                                     \
    X(erf, erfl, 3, 0)                                                                                       \
    X(erfc, erfcl, 7, 0)                                                                                     \
    X(floor, floorl, 0, 0)                                                                                   \
    X(sigmoid, ref_sigmoid, 5, 0)                                                                            \
    X(logsigmoid, ref_logsigmoid, 5, 0)                                                                      \
    X(softplus, ref_softplus, 5, 0)                                                                          \
    X(silu, ref_silu, 6, 0)                                                                                  \
    X(gelu, ref_gelu, 6, 2)                                                                                  \
    X(gelu_tanh, ref_gelu_tanh, 6, 3)                                                                        \
    X(softsign, ref_softsign, 2, 0)                                                                          \
    X(elu, ref_elu, 3, 0)                                                                                    \
    X(ceil, ceill, 0, 0)                                                                                     \
    X(tan, tanl, 4, 0)                                                                                       \
    X(atan, atanl, 3, 0)                                                                                     \
    X(sinh, sinhl, 4, 0)                                                                                     \
    X(cosh, coshl, 3, 0)                                                                                     \
    X(hardtanh, ref_hardtanh, 0, 0)                                                                          \
    X(mish, ref_mish, 8, 0)                                                                                  \
    X(rint, rintl, 0, 0)                                                                                     \
    X(sign, ref_sign, 0, 0)                                                                                  \
    X(relu, ref_relu, 0, 0)

enum {
#define X(name, reference, ulps, tail) f_##name,
    UNARY(X)
#undef X
        unary_count
};

template <class T> __device__ __forceinline__ void all_unary(const cell_kernel_args &args)
{
    const int64_t n = args.size[0], i = cell_block_index(0) * cell_threads() + cell_thread();
    if (i >= n)
        return;
    const T x = ((const T *)args.ptr[0])[i];
    T *out = (T *)args.ptr[1];
#define X(name, reference, ulps, tail) out[f_##name * n + i] = cell_##name(x);
    UNARY(X)
#undef X
}

KERNEL(k_unary_float) { all_unary<float>(args); }
KERNEL(k_unary_double) { all_unary<double>(args); }

template <class T> struct Format;
template <> struct Format<float> {
    static constexpr int digits = 24, lowest = -149;
    static constexpr double largest = 3.4028234663852886e38;
};
template <> struct Format<double> {
    static constexpr int digits = 53, lowest = -1074;
    static constexpr double largest = 1.7976931348623157e308;
};

// The distance between numbers of T near v.
template <class T> static Real ulp(Real v)
{
    int e = 0;
    (void)frexpl(v, &e);
    const int step = e - Format<T>::digits < Format<T>::lowest ? Format<T>::lowest : e - Format<T>::digits;
    return ldexpl(1, step);
}

// In ulps; infinite when one is NaN or infinite and the other is not.
template <class T> static double error_of(T got, Real want)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (fabsl(want) > (Real)Format<T>::largest || isinf(got)) {
        const bool near = fabsl(want) > (Real)Format<T>::largest * (1 - ldexpl(1, 3 - Format<T>::digits));
        return near && (isinf(got) || isfinite((double)want)) && (got > 0) == (want > 0) ? 0 : INFINITY;
    }
    return (double)(fabsl((Real)got - want) / ulp<T>(want));
}

// In ulps. A gate below the normal numbers has lost digits, and x times it has lost |x| times as much.
template <class T> static double allowed(const double limit[2], T x, Real want)
{
    const double size = fabs((double)x);
    double ulps = limit[0] + 0.51;
    if (x < 0 && isfinite(size) && limit[1] > 0)
        ulps *= 1 + pow(size, limit[1]);
    if (x < -1 && isfinite(size) && isfinite((double)want))
        ulps +=
            (double)(size * ldexpl(1, Format<T>::lowest) / ulp<T>(want)) * (fabs((double)want) < 1 ? 1 : 0);
    return ulps;
}

template <class T> static void fill_arguments(Array<T> &x)
{
    static const double special[] = {0.0,    -0.0,  INFINITY, -INFINITY, NAN,    1,     -1,  0.5,  -0.5,
                                     1000,   -1000, 1e30,     -1e30,     88.5,   -88.5, 103, -103, 709.5,
                                     -709.5, 745,   -745,     1e-30,     -1e-30, 20,    -20, 9,    -9,
                                     1e-8,   -1e-8, 16.6,     -16.6,     37,     -37};
    Random random(3);
    const size_t specials = sizeof special / sizeof *special;
    for (size_t i = 0; i < x.count; i++) {
        if (i < specials)
            x[i] = (T)special[i];
        else if (i % 3 == 0)
            x[i] = (T)random.uniform(-10, 10);
        else if (i % 3 == 1)
            x[i] = (T)random.uniform(-100, 100);
        else
            x[i] = (T)copysign(exp2(random.uniform(-40, 8)), random.uniform(-1, 1));
    }
}

template <class T> static void check_unary(const char *type, test_kernel kernel)
{
    static const char *const names[] = {
#define X(name, reference, ulps, tail) #name,
        UNARY(X)
#undef X
    };
    static Real (*const references[])(Real) = {
#define X(name, reference, ulps, tail) reference,
        UNARY(X)
#undef X
    };
    static const double limits[][2] = {
#define X(name, reference, ulps, tail) {ulps, tail},
        UNARY(X)
#undef X
    };
    const size_t n = 8192;
    Array<T> x(n), out(n * unary_count);
    fill_arguments(x);
    cell_kernel_args args = arguments({x.data, out.data}, (int64_t)n);
    launch(type, kernel, args, Shape{(unsigned)(n / 256), 256});
    printf("%s, largest errors as parts of what is allowed:", type);
    for (size_t f = 0; f < unary_count; f++) {
        double worst = 0;
        for (size_t i = 0; i < n; i++) {
            const Real want = references[f]((Real)x[i]);
            const T got = out[f * n + i];
            const double e = error_of<T>(got, want) / allowed<T>(limits[f], x[i], want);
            worst = fmax(worst, e);
            check(e <= 1, "%s of %s %a is %a, not %a: %g of what is allowed", names[f], type, (double)x[i],
                  (double)got, (double)want, e);
        }
        printf(" %s %.2f", names[f], worst);
    }
    printf("\n");
}

template <class T> __device__ __forceinline__ void all_binary(const cell_kernel_args &args)
{
    const int64_t n = args.size[0], i = cell_block_index(0) * cell_threads() + cell_thread();
    if (i >= n)
        return;
    const T x = ((const T *)args.ptr[0])[i], y = ((const T *)args.ptr[1])[i];
    T *out = (T *)args.ptr[2];
    out[i] = cell_max(x, y);
    out[n + i] = cell_min(x, y);
    out[2 * n + i] = cell_atan2(x, y);
    out[3 * n + i] = cell_pow(cell_abs(x), y);
    out[4 * n + i] = cell_clamp(x, T(-1), T(2));
    out[5 * n + i] = cell_hypot(x, y);
    out[6 * n + i] = cell_log_hypot(x, y);
    out[7 * n + i] = cell_root_re(x, y);
    out[8 * n + i] = cell_root_im(x, y);
    out[9 * n + i] = cell_exp_re(x, y);
    out[10 * n + i] = cell_exp_im(x, y);
    out[13 * n + i] = x * cell_scale_of(x);
    out[11 * n + i] = cell_leaky_relu(x, y);
    out[12 * n + i] = cell_remainder(x, y);
}

KERNEL(k_binary_float) { all_binary<float>(args); }
KERNEL(k_binary_double) { all_binary<double>(args); }

// What complex functions are made of, a + ib. An exponential's argument is halved, and its error
// doubled; so it goes with the cosine's or the sine's.
template <class T> static void check_complex(const T *out, size_t n, Real a, Real b, const char *type)
{
    const Real size = hypotl(a, b), largest = sizeof(T) == 4 ? 0x1.fffffep127L : 0x1.fffffffffffffp1023L;
    const Real large = fmaxl(fabsl(a), fabsl(b)), small = fminl(fabsl(a), fabsl(b));
    const Real w = sqrtl((size + fabsl(a)) / 2), other = b / (2 * w), e = expl(a);
    const double x = (double)a, y = (double)b;
    check(error_of<T>(out[5 * n], size) <= 2, "hypot(%a, %a) of %s", x, y, type);
    check(error_of<T>(out[6 * n], 0.5L * log1pl((large - 1) * (large + 1) + small * small)) <= 6 || error_of<T>(out[6 * n], logl(size)) <= 6,
          "log_hypot(%a, %a) of %s", x, y, type);
    if (size == 0)
        return;
    check(error_of<T>(out[7 * n], a >= 0 ? w : fabsl(other)) <= 5, "root_re(%a, %a) of %s", x, y, type);
    check(error_of<T>(out[8 * n], a >= 0 ? other : copysignl(w, b)) <= 5, "root_im(%a, %a) of %s", x, y, type);
    for (int part = 0; part < 2; part++) {
        const Real want = e * (part ? sinl(b) : cosl(b));
        const T got = out[(9 + part) * n];
        if (fabsl(want) < largest && fabsl(a) < (sizeof(T) == 4 ? 160 : 1400))
            check(error_of<T>(got, want) <= 10, "exp_%s(%a, %a) of %s: %a", part ? "im" : "re", x, y, type, (double)got);
    }
    check(a == 0 || fabsl(out[13 * n]) < 1, "scale(%a) of %s", x, type);
}

template <class T> static void check_binary(const char *type, test_kernel kernel)
{
    const size_t n = 4096;
    Array<T> x(n), y(n), out(14 * n);
    fill_arguments(x);
    fill_arguments(y);
    for (size_t i = 0; i < n; i++) {
        const size_t j = i * 1237 % n;
        if (j > i) {
            const T swap = y[i];
            y[i] = y[j];
            y[j] = swap;
        }
    }
    for (size_t i = 0; i < 32; i++) {
        x[64 + i] = (T)NAN;
        x[96 + i] = y[96 + i];
    }
    cell_kernel_args args = arguments({x.data, y.data, out.data}, (int64_t)n);
    launch(type, kernel, args, Shape{(unsigned)(n / 256), 256});
    for (size_t i = 0; i < n; i++) {
        const Real a = x[i], b = y[i];
        const bool nan = isnan(a) || isnan(b);
        const double ax = (double)a, by = (double)b;
        check(error_of<T>(out[i], nan ? (Real)NAN : a > b ? a : b) == 0, "max(%g, %g) of %s", ax, by, type);
        check(error_of<T>(out[n + i], nan     ? (Real)NAN
                                      : a < b ? a
                                              : b) == 0,
              "min(%g, %g) of %s", ax, by, type);
        check(error_of<T>(out[2 * n + i], atan2l(a, b)) <= 4, "atan2(%a, %a) of %s", ax, by, type);
        const Real power = powl(fabsl(a), b);
        const double e = error_of<T>(out[3 * n + i], power);
        check(e <= 9, "pow(%a, %a) of %s: %g ulp", ax, by, type, e);
        const Real clamped = isnan(a) ? a : a < -1 ? -1 : a > 2 ? 2 : a;
        check(error_of<T>(out[4 * n + i], clamped) == 0, "clamp(%g) of %s", ax, type);
        check(error_of<T>(out[11 * n + i], a > 0 ? a : a * b) <= 0.51, "leaky_relu(%a, %a) of %s", ax, by,
              type);
        /* exact, then b is added once; by an infinite b a sum of two signs is infinite */
        const Real rest = b == 0 ? 0 : fmodl(a, b);
        const Real whole = rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
        check(error_of<T>(out[12 * n + i], nan && b != 0 ? (Real)NAN : whole) <= 0.51,
              "remainder(%a, %a) of %s: %a", ax, by, type, (double)out[12 * n + i]);
        if (isfinite(a) && isfinite(b))
            check_complex<T>(&out[i], n, a, b, type);
    }
}

// The fast functions within the errors that stand beside them.

KERNEL(k_fast)
{
    const int64_t n = args.size[0], i = cell_block_index(0) * cell_threads() + cell_thread();
    if (i >= n)
        return;
    const float x = ((const float *)args.ptr[0])[i];
    float *out = (float *)args.ptr[1];
    out[i] = cell_fast_tanh(x);
    out[n + i] = cell_fast_exp(x);
    out[2 * n + i] = cell_fast_sigmoid(x);
    out[3 * n + i] = cell_coarse_sigmoid(x);
    out[4 * n + i] = cell_fast_erf(x);
    out[5 * n + i] = cell_fast_gelu(x);
    out[6 * n + i] = cell_fast_logsigmoid(x);
    out[7 * n + i] = cell_fast_gelu_slope(x);
}

static void check_fast()
{
    const size_t n = 8192;
    Array<float> x(n), out(8 * n);
    fill_arguments(x);
    cell_kernel_args args = arguments({x.data, out.data}, (int64_t)n);
    LAUNCH(k_fast, args, (Shape{(unsigned)(n / 256), 256}));
    double worst[8] = {0};
    for (size_t i = 0; i < n; i++) {
        const double v = x[i];
        if (isnan(v)) {
            for (size_t f = 0; f < 8; f++)
                check(isnan(out[f * n + i]), "fast function %zu of NaN", f);
            continue;
        }
        const double th = tanh(v), ex = exp(v), sg = (double)ref_sigmoid(v);
        const double e_tanh = th == 0 ? fabs(out[i]) : fabs(out[i] - th) / fabs(th);
        worst[0] = fmax(worst[0], e_tanh);
        check(e_tanh <= exp2(-10.9), "fast_tanh(%a) is %a: %g relative", v, (double)out[i], e_tanh);
        if (ex > 0x1p127 || ex < 0x1p-126)
            check(out[n + i] == (ex > 1 ? INFINITY : 0) || (ex > 0x1p127 && out[n + i] > 0x1p126f) ||
                      (ex < 0x1p-126 && out[n + i] < 0x1.01p-126f),
                  "fast_exp(%a) is %a", v, (double)out[n + i]);
        else {
            const double e = fabs(out[n + i] - ex) / ex;
            worst[1] = fmax(worst[1], e / (0x1p-21 + fabs(v) * 0x1p-23));
            check(e <= 0x1p-21 + fabs(v) * 0x1p-23, "fast_exp(%a): %g relative", v, e);
        }
        const double e_sigmoid = fabs(out[2 * n + i] - sg) / fmax(sg, 1e-300);
        if (fabs(v) < 16) {
            worst[2] = fmax(worst[2], e_sigmoid);
            check(e_sigmoid <= 0x1p-18, "fast_sigmoid(%a): %g relative", v, e_sigmoid);
        } else {
            check(fabs(out[2 * n + i] - sg) <= 0x1p-18, "fast_sigmoid(%a) is %a", v, (double)out[2 * n + i]);
        }
        worst[3] = fmax(worst[3], fabs(out[3 * n + i] - sg));
        check(fabs(out[3 * n + i] - sg) <= exp2(-11.9), "coarse_sigmoid(%a) is %a", v,
              (double)out[3 * n + i]);
        const double e_erf = fabs(out[4 * n + i] - erf(v)), got = out[5 * n + i];
        const double gelu = v < -40 ? 0 : 0.5 * v * erfc(-0.70710678118654752440 * v);
        worst[4] = fmax(worst[4], e_erf);
        check(e_erf <= 0x1p-19, "fast_erf(%a) is %a", v, (double)out[4 * n + i]);
        if (isfinite(v) && v != 0)
            worst[5] = fmax(worst[5], fabs(got - gelu) / fabs(v));
        const double ls = (double)ref_logsigmoid(v), e_ls = ls == out[6 * n + i] ? 0 : fabs(out[6 * n + i] - ls);
        if (fabs(v) < 80)
            worst[6] = fmax(worst[6], e_ls / fabs(ls));
        check(e_ls <= 0x1p-20 * fmax(1, fabs(ls)) && (fabs(v) >= 80 || e_ls <= 0x1p-11 * fabs(ls)),
              "fast_logsigmoid(%a) is %a, should be %a", v, (double)out[6 * n + i], ls);
        if (isfinite(v)) {
            const double slope = 0.5 * erfc(-0.70710678118654752440 * v) + v * 0.39894228040143267794 * exp(-0.5 * v * v);
            const double e_slope = fabs(out[7 * n + i] - slope);
            worst[7] = fmax(worst[7], e_slope);
            check(e_slope <= 0x1p-19, "fast_gelu_slope(%a) is %a, should be %a", v, (double)out[7 * n + i], slope);
        }
        check(got == gelu || fabs(got - gelu) <= fabs(v) * 0x1p-20, "fast_gelu(%a) is %a", v, got);
    }
    printf("fast functions, largest errors: tanh 2^%.2f, exp %.2f of its bound, sigmoid 2^%.2f, coarse "
           "sigmoid 2^%.2f, erf 2^%.2f, gelu 2^%.2f |x|, logsigmoid 2^%.2f, slope of gelu 2^%.2f\n",
           log2(worst[0]), worst[1], log2(worst[2]), log2(worst[3]), log2(worst[4]), log2(worst[5]),
           log2(worst[6]), log2(worst[7]));
}

KERNEL(k_integers)
{
    const int i = cell_thread(), a = i - 16;
    int64_t *out = (int64_t *)args.ptr[0];
    for (int b = 1; b <= 5; b++) {
        out[(b - 1) * 128 + i] = cell_floordiv(a, b);
        out[(b - 1) * 128 + 32 + i] = cell_floormod(a, b);
        out[(b - 1) * 128 + 64 + i] = cell_floordiv(a * ((int64_t)1 << 33), -b);
        out[(b - 1) * 128 + 96 + i] = cell_floormod((int64_t)a, -b);
    }
    double *special = (double *)args.ptr[1];
    special[0] = CELL_NAN;
    special[1] = CELL_INF;
    special[2] = (double)CELL_NAN_F;
    special[3] = (double)-CELL_INF_F;
}

static void check_integers()
{
    Array<int64_t> out(640);
    Array<double> special(4);
    cell_kernel_args args = arguments({out.data, special.data});
    LAUNCH(k_integers, args, (Shape{1, 32}));
    for (int i = 0; i < 160; i++) {
        const int a = i % 32 - 16, b = i / 32 + 1;
        const int64_t *got = out.data + i / 32 * 128 + i % 32;
        const double big = ldexp(a, 33);
        check((double)got[0] == floor((double)a / b), "floordiv(%d, %d)", a, b);
        check((double)got[32] == a - b * floor((double)a / b), "floormod(%d, %d)", a, b);
        check((double)got[64] == floor(big / -b), "floordiv(%g, %d)", big, -b);
        check((double)got[96] == a + b * floor((double)a / -b), "floormod(%d, %d)", a, -b);
    }
    check(isnan(special[0]) && isnan(special[2]), "CELL_NAN");
    check(special[1] == INFINITY && special[3] == -INFINITY, "CELL_INF");
}

int main()
{
    check_integers();
    check_unary<float>("float", k_unary_float);
    check_unary<double>("double", k_unary_double);
    check_binary<float>("float", k_binary_float);
    check_binary<double>("double", k_binary_double);
    check_fast();
    return report();
}
