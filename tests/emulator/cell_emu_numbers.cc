// Number formats and indices of the emulator's device side.
//
// In: bits or values. Out: the conversions that the GPU's cvt instructions make. Guaranteed: round to
// nearest, ties to even (tf32: ties away from zero, as cvt.rna), overflow to infinity, NaN to NaN.
#include <math.h>
#include <string.h>

#include "cell_emu_device.h"
#include "cell_emu_internal.h"

static uint32_t bits_of(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static float value_of(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

float cell_emu_bf16_value(uint16_t bits) { return value_of((uint32_t)bits << 16); }

uint16_t cell_emu_bf16_bits(float v)
{
    const uint32_t bits = bits_of(v);
    if (isnan(v))
        return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float cell_emu_f16_value(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float sign = bits & 0x8000 ? -1.0f : 1.0f;
    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexpf((float)fraction, -24);
    return sign * ldexpf((float)(1024 + fraction), exponent - 25);
}

float cell_emu_fp8_value(uint8_t bits, int exponent_bits, int mantissa_bits)
{
    const int most = (1 << exponent_bits) - 1, exponent = bits >> mantissa_bits & most, ones = (1 << mantissa_bits) - 1;
    const int fraction = bits & ones, least = 1 - (most >> 1) - mantissa_bits;
    const float sign = bits & 0x80 ? -1.0f : 1.0f;
    if (exponent == most && exponent_bits == 4 && fraction == ones)
        return NAN;
    if (exponent == most && exponent_bits == 5)
        return fraction ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexpf((float)fraction, least);
    return sign * ldexpf((float)(ones + 1 + fraction), exponent - 1 + least);
}

// A number of f64 or f32 in a format of 16 bits, of so many bits of fraction, with the steps of its subnormals and the first
// number that it calls infinite.
static uint16_t narrow_bits(double v, int fraction, int least, double infinite)
{
    const uint16_t infinity = (uint16_t)(0x7fff >> fraction << fraction);
    if (isnan(v))
        return 0x7fff;
    const uint16_t sign = signbit(v) ? 0x8000 : 0;
    const double size = fabs(v);
    if (size >= infinite)
        return sign | infinity;
    if (size == 0)
        return sign;
    int exponent;
    (void)frexp(size, &exponent);
    // The grid's step here: below the normals the least, else that of the power of two below.
    const int step = exponent - fraction - 1 < least ? least : exponent - fraction - 1;
    const int count = (int)nearbyint(ldexp(size, -step));
    if (step == least) // subnormal, the first normals, or rounded up to them: the bits run on
        return (uint16_t)(sign | count);
    return (uint16_t)(sign + ((step - least + 1) << fraction) + (count - (1 << fraction)));
}

// The first that is infinite lies half a step behind the largest.
uint16_t cell_emu_bf16_bits(double v) { return narrow_bits(v, 7, -133, 0x1.ffp127); }
uint16_t cell_emu_f16_bits(double v) { return narrow_bits(v, 10, -24, 65520); }
uint16_t cell_emu_f16_bits(float v) { return cell_emu_f16_bits((double)v); }

uint32_t cell_emu_tf32_bits(float v)
{
    if (isnan(v) || isinf(v))
        return bits_of(v);
    return (bits_of(v) + 0x1000) & ~(uint32_t)0x1fff;
}

float cell_emu_approximate(float exact, float input, float relative_error)
{
    uint32_t hash = bits_of(input) * 2654435761u;
    hash ^= hash >> 15;
    hash *= 2246822519u;
    hash ^= hash >> 13;
    const float unit = (float)(int32_t)hash * 0x1p-31f;
    return isfinite(exact) ? exact + exact * unit * relative_error : exact;
}

int cell_emu_thread_index(void) { return emu_launch->current->index; }
int cell_emu_thread_count(void) { return emu_launch->threads; }
int64_t cell_emu_block_index(int axis) { return emu_launch->current->block->index[axis]; }
int64_t cell_emu_block_count(int axis) { return emu_launch->grid[axis]; }
int cell_emu_cluster_rank(void) { return emu_launch->current->block->rank; }
int cell_emu_cluster_size(void) { return emu_launch->cluster_size; }
