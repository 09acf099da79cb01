/* rough.c: the functions of the reference in float. In: arguments, and whether kernels with storage of 16
 * bits are to be compared, which approximate some of them. Out: what the C library gives, or that moved by as
 * much as the device's function may be off (runtime/device/cell_device_math.cuh says how much beside each),
 * up or down as a hash of argument and draw says: the same function of the same number is off by the same, as
 * on the device. How far the results of the reference move by that is what the approximations may cost a
 * cell, whatever it makes of them: 1 - tanh(x)^2 near 1 loses all its digits. */
#include <math.h>
#include <string.h>

#include "cell_rough.h"
#include "ladder.h"

#undef tanh
#undef exp
#undef log1p
#undef erf
#undef erfc

static uint32_t draw; /* 0: as the C library has them */
static uint32_t calls;
static bool parted;

void rough_approximate(uint32_t number, bool each_call)
{
    draw = number;
    calls = 0;
    parted = each_call;
}

/* 1 or -1. */
static float side(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits ^ draw * 0x9e3779b9u) * 2654435761u;
    bits = (bits ^ bits >> 15) * 2246822519u;
    return (bits ^ bits >> 13) & 1 ? 1.0f : -1.0f;
}

/* Numbers that are equal in the reference may differ in kernels by the two units of a fast division: so where
 * that is asked for each call is off by as much, another way, beside what its argument says. It shows what
 * hangs on u - mean(u) of equal numbers. */
static float apart(float y)
{
    calls = calls * 1664525u + 1013904223u + draw;
    return parted && isfinite(y) ? y + y * (calls >> 31 ? 0x1p-22f : -0x1p-22f) : y;
}

/* One operation of the device, 2^-10.9 relative, and within 1. */
float ladder_tanh(float x)
{
    float y = tanhf(x);
    return draw ? fminf(fmaxf(apart(y + y * side(x) * 0x1.13p-11f), -1), 1) : y;
}

/* Also in sigmoid and silu, which the reference makes of it: with e off by a factor 1 + d, 1/(1 + e) is off
 * by d at most, as the device's is by 2^-18 for arguments up to 16. */
float ladder_exp(float x)
{
    float y = expf(x);
    return draw && isfinite(y) ? apart(y + y * side(x) * (0x1p-21f + fabsf(x) * 0x1p-23f)) : y;
}

/* As logsigmoid's is: 2^-11 relative, and 2^-20 absolute at most. Alone, and in softplus, the device has
 * log1p to a few units of f32, so that this is too much there: but no more than a roundoff of bf16, or two of
 * f16. */
float ladder_log1p(float x)
{
    float y = log1pf(x);
    return draw && isfinite(y) ? apart(y + side(x) * fminf(fabsf(y) * 0x1p-11f, 0x1p-20f)) : y;
}

/* 2^-19 absolute, at 0 too; in gelu's slope with it. */
float ladder_erf(float x)
{
    float y = erff(x);
    return draw ? apart(y + side(x) * 0x1p-19f) : y;
}

/* Of gelu, x erfc(-x / sqrt(2)) / 2, which the device has to 2^-20 |x|. */
float ladder_erfc(float x)
{
    float y = erfcf(x);
    return draw ? apart(y + side(x) * 0x1p-19f) : y;
}
