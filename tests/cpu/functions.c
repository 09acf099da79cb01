/* The elementary functions of kernels for the CPU (runtime/cpu/cell_cpu_elementary.h) against the C library
 * in a wider type, over ordinary and extreme arguments: within 3 ulp, the same infinities, zeros and NaN,
 * and as a vector bit by bit what they are as numbers. In: CELL_CPU_DOUBLE. Out: `N passed, N failed`. */
#include "cell_cpu.h"
#include "cell_cpu_vector.h"

#include <float.h>
#include <stdio.h>

#if CELL_CPU_DOUBLE
typedef long double wide;
#define WIDE(f) f##l
#define LEAST DBL_MIN
#define NEXT(x) nextafter(x, INFINITY)
enum { EXPONENTS = 600 };
#else
typedef double wide;
#define WIDE(f) f
#define LEAST FLT_MIN
#define NEXT(x) nextafterf(x, INFINITY)
enum { EXPONENTS = 80 };
#endif
enum { DRAWS = 20000, MOST_ULP = 3 };

static uint64_t state = 88172645463325252u;
static int passed, failed;

static double draw(void) /* from 0 to 1 */
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) * 0x1p-53;
}

static wide exact_sigmoid(wide x)
{
    return x < 0 ? WIDE(exp)(x) / (1 + WIDE(exp)(x)) : 1 / (1 + WIDE(exp)(-x));
}
static wide exact_softplus(wide x)
{
    return (x > 0 ? x : 0) + WIDE(log1p)(WIDE(exp)(-WIDE(fabs)(x)));
}
static wide exact_logsigmoid(wide x)
{
    return (x < 0 ? x : 0) - WIDE(log1p)(WIDE(exp)(-WIDE(fabs)(x)));
}

/* Is y what the true value rounds to, up to a few units of its last place? Below the normal numbers, of the
 * least one. */
static int is_near(real y, wide exact)
{
    real nearest = (real)exact, size = (real)fabs((double)nearest);
    if (exact != exact || y != y)
        return exact != exact && y != y;
    if (nearest - nearest != 0 || y - y != 0)
        return y == nearest;
    size = size < LEAST ? LEAST : size;
    return WIDE(fabs)((wide)y - exact) <= MOST_ULP * (wide)(NEXT(size) - size);
}

static void check(const char *name, real (*f)(real), cell_v (*v)(const real *), wide (*exact)(wide), real lo,
                  real hi)
{
    static const real special[] = { 0, (real)-0.0, (real)INFINITY, -(real)INFINITY, (real)NAN, 1, -1,
                                    LEAST, -LEAST };
    const int n = DRAWS + (int)(sizeof special / sizeof *special);
    int wrong = 0;
    for (int i = 0; i < n; i++) {
        real x = (real)(lo + (hi - lo) * draw());
        if (i % 4 == 0)
            x = (real)(ldexp(1 + draw(), (int)((draw() - 0.6) * EXPONENTS)) * (draw() < 0.5 ? -1 : 1));
        if (i >= DRAWS)
            x = special[i - DRAWS];
        real in[CELL_W], y = f(x), lane;
        for (int l = 0; l < CELL_W; l++)
            in[l] = x;
        lane = v(in)[CELL_W - 1];
        if (is_near(y, exact((wide)x)) && (lane == y || (lane != lane && y != y)))
            continue;
        if (wrong++ == 0)
            printf("FAIL %s(%.17g) = %.17g, as a vector %.17g, and not %.17g\n", name, (double)x, (double)y, (double)lane,
                   (double)exact((wide)x));
    }
    *(wrong ? &failed : &passed) += 1;
}

#define CHECK(name, exact, lo, hi) check(#name, cell_##name, vector_##name, exact, lo, hi)
#define VECTOR(name)                                                                                         \
    static cell_v vector_##name(const real *x)                                                               \
    {                                                                                                        \
        return cell_v_##name(cell_v_load(x));                                                                \
    }
VECTOR(exp)
VECTOR(expm1)
VECTOR(log)
VECTOR(log1p)
VECTOR(tanh)
VECTOR(sigmoid)
VECTOR(softplus)
VECTOR(logsigmoid)

int main(void)
{
    CHECK(exp, WIDE(exp), -104, 90);
    CHECK(expm1, WIDE(expm1), -30, 90);
    CHECK(log, WIDE(log), 0, 100);
    CHECK(log1p, WIDE(log1p), (real)-0.99, 100);
    CHECK(tanh, WIDE(tanh), -12, 12);
    CHECK(sigmoid, exact_sigmoid, -80, 40);
    CHECK(softplus, exact_softplus, -80, 80);
    CHECK(logsigmoid, exact_logsigmoid, -80, 80);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
