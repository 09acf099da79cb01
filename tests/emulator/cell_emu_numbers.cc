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

uint16_t cell_emu_f16_bits(float v)
{
    if (isnan(v))
        return 0x7fff;
    const uint16_t sign = signbit(v) ? 0x8000 : 0;
    const float size = fabsf(v);
    if (size >= 65520.0f) // half way from the largest to what would come next
        return sign | 0x7c00;
    if (size < 0x1p-25f)
        return sign;
    int exponent;
    (void)frexpf(size, &exponent);
    // The grid's step here: 2^-24 below the normals, else 2^-10 of the power of two below.
    const int step = exponent - 11 < -24 ? -24 : exponent - 11;
    const int count = (int)nearbyintf(ldexpf(size, -step));
    if (step == -24) // subnormal, or rounded up to the first normal: the bits run on
        return (uint16_t)(sign | count);
    return (uint16_t)(sign + ((step + 25) << 10) + (count - 1024));
}

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
