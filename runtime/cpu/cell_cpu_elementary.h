/* Elementary functions without a branch, in plain operations: of one `real`, or of a vector of them.
 * This text is included once for each: cell_cpu_math.h and cell_cpu_vector.h say what E_NAME(f) calls a
 * function, what its type is (E_REAL, with E_INT and E_WORD of the same size, signed and not),
 * E_OF(number) and E_WORDS(number) of a constant, E_BITS and E_FROM between numbers and words, E_FMA,
 * E_SELECT(condition, a, b) and E_OR of conditions.
 *
 * Within 3 ulp of the true value: an argument is reduced by a multiple of log 2 that is taken away in
 * two parts, and the polynomials were fitted to less than an eighth of the last place (Remez's exchange,
 * of (e^r - 1 - r) / r^2 for |r| <= log 2 / 2, and of (log((1 + s) / (1 - s)) / s - 2) / s^2 for 1 /
 * sqrt 2 <= (1 + s) / (1 - s) <= sqrt 2; e^x of f32 by scripts/cpu_math.py).
 * Infinities, zeros and what is no number give what the C library gives. */

#if CELL_CPU_DOUBLE
#define E_SHIFT 52
#define E_SIGN ((cell_word)1 << 63)
#define E_BIAS 1023
#define E_MAGIC 0x1.8p52 /* a whole number that is added to it lies in its last bits */
#define E_LN2_HIGH 6.93147180369123816490e-01
#define E_LN2_LOW 1.90821492927058770002e-10
#define E_HIGHEST 710.0
#define E_LOWEST (-746.0)
#define E_LEAST_NORMAL 0x1p-1022
#define E_MOST_SUBNORMAL 54
#define E_FULL 40.0 /* e^-x is less than half of the last place of 1 */
#else
#define E_SHIFT 23
#define E_SIGN ((cell_word)1 << 31)
#define E_BIAS 127
#define E_MAGIC 0x1.8p23f
#define E_LN2_HIGH 0x1.62e4p-1f
#define E_LN2_LOW 1.42860682030941723212e-6f
#define E_HIGHEST 89.0f
#define E_LOWEST (-104.0f)
#define E_LEAST_NORMAL 0x1p-126f
#define E_MOST_SUBNORMAL 24
#define E_FULL 20.0f
#endif

/* x = n log 2 + r, with n + E_BIAS - 1 in the last bits of `sum`; e^r - 1 - r is r^2 times the result. */
E_FUNCTION E_REAL E_NAME(reduced)(E_REAL x, E_REAL *r, E_REAL *sum)
{
    const E_REAL biased = E_OF(E_MAGIC + (E_BIAS - 1));
    const E_REAL t = E_FMA(x, E_OF((real)1.44269504088896340736), biased), n = t - biased;
    *sum = t;
    E_REAL s = E_FMA(n, E_OF(-E_LN2_HIGH), x);
    s = E_FMA(n, E_OF(-E_LN2_LOW), s);
    *r = s;
#if CELL_CPU_DOUBLE
    E_REAL p = E_FMA(s, E_OF(2.0921571354997560439e-9), E_OF(2.5105217387857132494e-8));
    p = E_FMA(s, p, E_OF(2.7557252973278132016e-7));
    p = E_FMA(s, p, E_OF(2.7557255399372260744e-6));
    p = E_FMA(s, p, E_OF(0.000024801587347268622921));
    p = E_FMA(s, p, E_OF(0.00019841269874821157098));
    p = E_FMA(s, p, E_OF(0.0013888888888874431779));
    p = E_FMA(s, p, E_OF(0.0083333333333261350499));
    p = E_FMA(s, p, E_OF(0.041666666666666683738));
    p = E_FMA(s, p, E_OF(0.16666666666666670991));
    return E_FMA(s, p, E_OF(0.5));
#else
    E_REAL p = E_FMA(s, E_OF(0.001394111024930718567f), E_OF(0.0083631812296801625986f));
    p = E_FMA(s, p, E_OF(0.041666375323421758039f));
    p = E_FMA(s, p, E_OF(0.16666576971028040381f));
    return E_FMA(s, p, E_OF(0.50000000269212648544f));
#endif
}

/* 2^(n - 1) and 2^n of such a sum, where that is normal. */
E_FUNCTION E_REAL E_NAME(half_power)(E_REAL sum)
{
    return E_FROM(E_BITS(sum) << E_SHIFT);
}
E_FUNCTION E_REAL E_NAME(full_power)(E_REAL sum)
{
    return E_FROM((E_BITS(sum) + E_WORDS(1)) << E_SHIFT);
}

#if !CELL_CPU_DOUBLE
/* e^x of a number that is not below E_LOWEST, as 2^m twice: x = 2 m log 2 + r. So 2^m is normal wherever the
 * result is a number, and comes from the sum with E_MAGIC by one shift. What is too large for m keeps a
 * large r. */
E_FUNCTION E_REAL E_NAME(twice)(E_REAL x)
{
    const E_REAL biased = E_OF(E_MAGIC + E_BIAS);
    E_REAL t = E_FMA(x, E_OF((real)0.72134752044448170368), biased);
    t = E_SELECT(t > E_MAGIC + E_BIAS + 65, E_OF(E_MAGIC + E_BIAS + 65), t);
    const E_REAL m = t - biased, h = E_FROM(E_BITS(t) << E_SHIFT);
    const E_REAL r = E_FMA(m, E_OF(-2 * E_LN2_LOW), E_FMA(m, E_OF(-2 * E_LN2_HIGH), x));
    E_REAL p = E_FMA(r, E_OF(2.50345825865e-5f), E_OF(0.000200744776229f));
    p = E_FMA(r, p, E_OF(0.00138883278373f));
    p = E_FMA(r, p, E_OF(0.00833277161703f));
    p = E_FMA(r, p, E_OF(0.0416666700411f));
    p = E_FMA(r, p, E_OF(0.166666700454f));
    p = E_FMA(r, p, E_OF(0.5f));
    return (1 + E_FMA(r * r, p, r)) * h * h;
}

E_FUNCTION E_REAL E_NAME(exp)(E_REAL x)
{
    return E_NAME(twice)(E_SELECT(x < E_LOWEST, E_OF(E_LOWEST), x));
}
#else
/* 2^n, of a number whose power is normal. */
E_FUNCTION E_REAL E_NAME(power)(E_INT n)
{
    return E_FROM(((E_WORD)n + E_WORDS(E_BIAS)) << E_SHIFT);
}

/* e^x of a number between E_LOWEST and E_HIGHEST: 2^n itself may be neither normal nor finite. */
E_FUNCTION E_REAL E_NAME(twice)(E_REAL x)
{
    E_REAL r, sum;
    const E_REAL q = E_NAME(reduced)(x, &r, &sum);
    const E_INT n = (E_INT)(E_BITS(sum) - E_BITS(E_OF(E_MAGIC + (E_BIAS - 1)))), half = n >> 1;
    return (1 + E_FMA(r * r, q, r)) * E_NAME(power)(half) * E_NAME(power)(n - half);
}

E_FUNCTION E_REAL E_NAME(exp)(E_REAL x)
{
    x = E_SELECT(x > E_HIGHEST, E_OF(E_HIGHEST), x);
    return E_NAME(twice)(E_SELECT(x < E_LOWEST, E_OF(E_LOWEST), x));
}
#endif

E_FUNCTION E_REAL E_NAME(expm1)(E_REAL x)
{
    E_REAL r, sum;
    const E_REAL given = x;
    x = E_SELECT(x > E_HIGHEST, E_OF(E_HIGHEST), x);
    x = E_SELECT(x < -E_FULL, E_OF(-E_FULL), x);
    const E_REAL q = E_NAME(reduced)(x, &r, &sum), h = E_NAME(half_power)(sum);
    const E_REAL y = 2 * E_FMA(h, E_FMA(r * r, q, r), h - (real)0.5);
    return E_SELECT(given == 0, given, y);
}

E_FUNCTION E_REAL E_NAME(log)(E_REAL x)
{
    const E_REAL scaled = E_SELECT(x < E_LEAST_NORMAL, x * (real)((cell_word)1 << E_MOST_SUBNORMAL), x);
    const E_WORD half = E_BITS(E_OF((real)0.70710678118654752440)), bits = E_BITS(scaled) - half;
    const E_INT exponent = (E_INT)bits >> E_SHIFT;
    const E_REAL m = E_FROM((bits & E_WORDS(((cell_word)1 << E_SHIFT) - 1)) + half);
    const E_REAL k = (E_FROM(E_BITS(E_OF(E_MAGIC)) + (E_WORD)exponent) - E_MAGIC) -
                     E_SELECT(x < E_LEAST_NORMAL, E_OF((real)E_MOST_SUBNORMAL), E_OF((real)0));
    const E_REAL f = m - 1, s = f / (2 + f), z = s * s, square = (real)0.5 * f * f;
#if CELL_CPU_DOUBLE
    E_REAL p = E_FMA(z, E_OF(0.14619096121590578327), E_OF(0.15331497788594996337));
    p = E_FMA(z, p, E_OF(0.1818289620863055553));
    p = E_FMA(z, p, E_OF(0.2222221103171089603));
    p = E_FMA(z, p, E_OF(0.28571428626651706348));
    p = E_FMA(z, p, E_OF(0.39999999999897888066));
    p = E_FMA(z, p, E_OF(0.66666666666666697485));
#else
    E_REAL p = E_FMA(z, E_OF(0.29583087717074869751f), E_OF(0.39988695853608683024f));
    p = E_FMA(z, p, E_OF(0.66666685322527302487f));
#endif
    const E_REAL low = E_FMA(s, E_FMA(z, p, square), k * E_LN2_LOW);
    E_REAL y = E_FMA(k, E_OF(E_LN2_HIGH), f - (square - low));
    y = E_SELECT(x == (real)INFINITY, x, y);
    y = E_SELECT(x == 0, E_OF(-(real)INFINITY), y);
    return E_SELECT(x >= 0, y, E_OF((real)NAN));
}

/* What 1 + x has lost is added again. */
E_FUNCTION E_REAL E_NAME(log1p)(E_REAL x)
{
    const E_REAL u = 1 + x, rest = (x - (u - 1)) / u;
    const E_REAL y = E_NAME(log)(u) + E_SELECT(E_OR(u == 0, u == (real)INFINITY), E_OF((real)0), rest);
    return E_SELECT(x == 0, x, y);
}

/* Of |x|, by e = exp(2 |x|) - 1 as above, without what only other arguments need; the sign is put back. */
E_FUNCTION E_REAL E_NAME(tanh)(E_REAL x)
{
    E_REAL r, sum;
    const E_WORD sign = E_BITS(x) & E_WORDS(E_SIGN);
    const E_REAL size = E_FROM(E_BITS(x) ^ sign);
    const E_REAL most = E_SELECT(size > E_FULL / 2, E_OF(E_FULL / 2), size);
    const E_REAL q = E_NAME(reduced)(2 * most, &r, &sum), h = E_NAME(half_power)(sum);
    const E_REAL e = 2 * E_FMA(h, E_FMA(r * r, q, r), h - (real)0.5), y = e / (e + 2);
    return E_FROM(E_BITS(y) | sign);
}

/* e^-|x|, which cannot overflow. */
E_FUNCTION E_REAL E_NAME(decay)(E_REAL x)
{
    x = E_FROM(E_BITS(x) | E_WORDS(E_SIGN));
    return E_NAME(twice)(E_SELECT(x < E_LOWEST, E_OF(E_LOWEST), x));
}

/* 1 / (1 + exp(-x)) with an exponential that cannot overflow; keeps its relative accuracy down to the
 * smallest results. */
E_FUNCTION E_REAL E_NAME(sigmoid)(E_REAL x)
{
    const E_REAL e = E_NAME(decay)(x);
    return E_SELECT(x < 0, e, E_OF((real)1)) / (1 + e);
}
E_FUNCTION E_REAL E_NAME(softplus)(E_REAL x)
{
    const E_REAL e = E_NAME(decay)(x);
    return E_SELECT(x < 0, E_OF((real)0), x) + E_NAME(log1p)(e);
}
E_FUNCTION E_REAL E_NAME(logsigmoid)(E_REAL x)
{
    const E_REAL e = E_NAME(decay)(x);
    return E_SELECT(x < 0, x, E_OF((real)0)) - E_NAME(log1p)(e);
}
/* x times its gate. The gate's zero wins at -inf, where the product would be NaN. */
E_FUNCTION E_REAL E_NAME(gated)(E_REAL x, E_REAL gate)
{
    return E_SELECT(gate == 0, E_OF((real)0), x * gate);
}
E_FUNCTION E_REAL E_NAME(silu)(E_REAL x)
{
    return E_NAME(gated)(x, E_NAME(sigmoid)(x));
}

#undef E_SHIFT
#undef E_SIGN
#undef E_BIAS
#undef E_MAGIC
#undef E_LN2_HIGH
#undef E_LN2_LOW
#undef E_HIGHEST
#undef E_LOWEST
#undef E_LEAST_NORMAL
#undef E_MOST_SUBNORMAL
#undef E_FULL
#undef E_FUNCTION
#undef E_NAME
#undef E_REAL
#undef E_INT
#undef E_WORD
#undef E_OF
#undef E_WORDS
#undef E_BITS
#undef E_FROM
#undef E_FMA
#undef E_SELECT
#undef E_OR
