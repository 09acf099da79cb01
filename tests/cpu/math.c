/* The functions of runtime/cpu/cell_cpu_math.h against libm in a wider type, over the whole range of
 * float (one of each 2048 bit patterns, of both signs) or of double (random patterns). Compiled for both
 * types: CELL_CPU_DOUBLE. The limits are in units of the last place of the result; below the least
 * normal number in those of that. */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

#include "cell_cpu.h"

static int passed, failed;

#if CELL_CPU_DOUBLE
typedef long double wide;
#define WIDE(name) name##l
#else
typedef double wide;
#define WIDE(name) name
#endif

static wide wide_sigmoid(wide x)
{
    return 1 / (1 + WIDE(exp)(-x));
}

static real half_power(real x)
{
    return cell_pow(x, (real)0.5);
}
static wide wide_half_power(wide x)
{
    return WIDE(pow)(x, (wide)0.5);
}

typedef struct Function {
    const char *name;
    real (*own)(real);
    wide (*exact)(wide);
    double ulps;
} Function;

static const Function functions[] = {
    { "exp", cell_exp, WIDE(exp), 2 },
    { "log", cell_log, WIDE(log), 2 },
    { "log1p", cell_log1p, WIDE(log1p), 4 },
    { "expm1", cell_expm1, WIDE(expm1), 3 },
    { "tanh", cell_tanh, WIDE(tanh), 4 },
    { "erf", cell_erf, WIDE(erf), 3 },
    { "erfc", cell_erfc, WIDE(erfc), 8 },
    { "sigmoid", cell_sigmoid, wide_sigmoid, 4 },
    { "pow of a half", half_power, wide_half_power, 0.51 },
};

/* Units of the last place between the two; 0 where both are no number, or the same infinity. */
static double distance(real got, wide wanted)
{
    real nearest = (real)wanted;
    if (wanted != wanted || isinf(nearest) || got != got || isinf(got))
        return (got != got && wanted != wanted) || got == nearest ||
                       (isinf(nearest) && got >= (sizeof(real) == 8 ? (real)DBL_MAX : (real)FLT_MAX))
                   ? 0
                   : 1e9;
    int e;
    WIDE(frexp)(wanted, &e);
    int least = sizeof(real) == 8 ? -1021 : -125, digits = sizeof(real) == 8 ? 53 : 24;
    wide unit = WIDE(ldexp)(1, (e < least ? least : e) - digits);
    return (double)(WIDE(fabs)((wide)got - wanted) / unit);
}

static void check(const Function *f)
{
    double worst = 0;
    real at = 0;
    uint64_t state = 1;
    for (int64_t i = 0; i < 1 << 21; i++) {
        real x;
#if CELL_CPU_DOUBLE
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t word = (state ^ state >> 29) * 0x9e3779b97f4a7c15u;
        if (i % 2) /* numbers of ordinary size, else any pattern */
            word = (word & 0x800fffffffffffffu) | (uint64_t)(1023 - 30 + word % 41) << 52;
#else
        uint32_t word = (uint32_t)i << 11 | (uint32_t)(i * 2654435761u) >> 21;
        (void)state;
#endif
        memcpy(&x, &word, sizeof x);
        double d = distance(f->own(x), f->exact(x));
        if (d > worst) {
            worst = d;
            at = x;
        }
    }
    real special[] = { 0, (real)-0.0, INFINITY, -INFINITY, NAN, 1, -1, FLT_MIN, FLT_MAX, -FLT_MAX };
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        double d = distance(f->own(special[i]), f->exact(special[i]));
        if (d > worst) {
            worst = d;
            at = special[i];
        }
    }
    passed += worst <= f->ulps;
    failed += worst > f->ulps;
    if (worst > f->ulps)
        printf("FAIL %s: %g ulp at %.17g, at most %g\n", f->name, worst, (double)at, f->ulps);
    if (getenv("VERBOSE"))
        printf("%s: %g ulp at %.17g\n", f->name, worst, (double)at);
}

/* 16 bits: all patterns to f32 and back. */
static void check_halves(void)
{
    int wrong = 0;
    for (uint32_t i = 0; i < 1 << 16; i++) {
        uint16_t h = (uint16_t)i;
        float b = cell_cpu_bf16_to_f32(h), f = cell_cpu_f16_to_f32(h);
        wrong += b == b && cell_cpu_f32_to_bf16(b) != h;
        wrong += f == f && cell_cpu_f32_to_f16(f) != h;
        wrong += f != f && (cell_cpu_f32_to_f16(f) & 0x7fff) <= 0x7c00;
    }
    passed += !wrong;
    failed += wrong > 0;
    if (wrong)
        printf("FAIL %d patterns of 16 bits do not come back\n", wrong);
}

/* 8 bits: all codes, by definition. */
static double code_value(unsigned code, int mantissa_bits, unsigned largest, bool has_infinity)
{
    unsigned size = code & 0x7f;
    int exponent = (int)(size >> mantissa_bits), ones = (1 << mantissa_bits) - 1, fraction = (int)size & ones;
    int least = 1 - (mantissa_bits == 3 ? 7 : 15) - mantissa_bits;
    double v = ldexp(exponent ? ones + 1 + fraction : fraction, exponent ? exponent - 1 + least : least);
    v = size <= largest ? v : has_infinity && size == largest + 1 ? (double)INFINITY : (double)NAN;
    return code & 0x80 ? -v : v;
}

static void check_codes(void)
{
    int wrong = 0;
    for (unsigned i = 0; i < 256; i++) {
        uint8_t code = (uint8_t)i;
        double a = (double)cell_load_e4m3(&code), want = code_value(i, 3, 0x7e, false);
        double b = (double)cell_load_e5m2(&code), other = code_value(i, 2, 0x7b, true);
        wrong += (a != want || signbit(a) != signbit(want)) && !(a != a && want != want);
        wrong += (b != other || signbit(b) != signbit(other)) && !(b != b && other != other);
    }
    passed += !wrong;
    failed += wrong > 0;
    if (wrong)
        printf("FAIL %d codes of 8 bits are other numbers\n", wrong);
}

int main(void)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        check(&functions[i]);
    check_halves();
    check_codes();
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
