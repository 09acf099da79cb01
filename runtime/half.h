/* Conversions between f32 or f64 and the two 16-bit float types, held as uint16_t bit patterns, and the two
 * 8-bit ones, held as uint8_t, on the host. To 16 bits they round once, to nearest, ties to even, overflow
 * to infinity, and keep NaN a NaN. To 8 bits likewise, but what is beyond the largest number, infinities
 * too, becomes that number. To f32 they are exact. Valid in C and C++. */
#ifndef CELL_HALF_H
#define CELL_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t cell_f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float cell_f32_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float cell_bf16_to_f32(uint16_t half) {
    return cell_f32_from_bits((uint32_t)half << 16);
}

static inline uint16_t cell_f32_to_bf16(float value) {
    uint32_t bits = cell_f32_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u); /* a payload in the low half only must not become infinity */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float cell_f16_to_f32(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 0x1fu;
    uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0x1f)
        return cell_f32_from_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent != 0)
        return cell_f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float magnitude = (float)mantissa * 0x1p-24f; /* zero and subnormals, exact in f32 */
    return cell_f32_from_bits(sign | cell_f32_bits(magnitude));
}

/* Magnitudes below 2^-14: count units of 2^-24. */
static inline uint16_t cell_f16_subnormal(uint32_t bits) {
    uint32_t exponent = bits >> 23;
    if (exponent < 102)
        return 0;
    uint32_t shift = 126 - exponent;
    uint32_t mantissa = (bits & 0x7fffffu) | 0x800000u;
    uint32_t units = mantissa >> shift;
    uint32_t rest = mantissa & ((1u << shift) - 1);
    uint32_t tie = 1u << (shift - 1);
    return (uint16_t)(units + (rest > tie || (rest == tie && (units & 1))));
}

static inline uint16_t cell_f32_to_f16(float value) {
    uint32_t bits = cell_f32_bits(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
    if (bits >= 0x477ff000u) /* 65520, halfway between the largest finite value and the next power of two */
        return (uint16_t)(sign | 0x7c00u);
    if (bits < 0x38800000u)
        return (uint16_t)(sign | cell_f16_subnormal(bits));
    bits += 0xfffu + (bits >> 13 & 1u);
    return (uint16_t)(sign | (bits - 0x38000000u) >> 13);
}

/* f32 next to value on the side of zero, its last bit set where that is not exact: rounded to fewer bits it gives what
 * value gives, which the nearest f32 does not. */
static inline float cell_f64_to_f32_sticky(double value) {
    float nearest = (float)value;
    uint32_t bits = cell_f32_bits(nearest);
    if ((double)nearest == value || value != value)
        return nearest;
    double size = value < 0 ? -value : value, got = nearest < 0 ? -(double)nearest : (double)nearest;
    if (got > size)
        bits--; /* patterns of one sign are in the order of magnitudes */
    return cell_f32_from_bits(bits | 1u);
}

static inline uint16_t cell_f64_to_bf16(double value) {
    return cell_f32_to_bf16(cell_f64_to_f32_sticky(value));
}

static inline uint16_t cell_f64_to_f16(double value) {
    return cell_f32_to_f16(cell_f64_to_f32_sticky(value));
}

/* 8 bits: a sign, then an exponent, then MANTISSA bits. e4m3 (bias 7) has no infinity and one NaN for each
 * sign, all bits set; e5m2 (bias 15) is the upper half of an f16. */
static inline float cell_e5m2_to_f32(uint8_t code)
{
    return cell_f16_to_f32((uint16_t)((uint16_t)code << 8));
}

static inline float cell_e4m3_to_f32(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80u) << 24, exponent = code >> 3 & 0xfu, mantissa = code & 7u;
    if (exponent == 0xf && mantissa == 7)
        return cell_f32_from_bits(sign | 0x7fc00000u);
    if (exponent != 0)
        return cell_f32_from_bits(sign | (exponent + 120) << 23 | mantissa << 20);
    return cell_f32_from_bits(sign | cell_f32_bits((float)mantissa * 0x1p-9f));
}

/* bits is the pattern of a magnitude that is at most the largest number; below 2^(1 - bias) steps are as
 * large as there. */
static inline uint8_t cell_fp8_magnitude(uint32_t bits, uint32_t mantissa, uint32_t bias)
{
    uint32_t exponent = bits >> 23, shift = 23 - mantissa;
    if (exponent > 127 - bias) {
        bits += (1u << (shift - 1)) - 1 + (bits >> shift & 1u);
        return (uint8_t)((bits - ((127 - bias) << 23)) >> shift);
    }
    uint32_t down = shift + (128 - bias - exponent);
    if (down > 25 || exponent == 0)
        return 0;
    uint32_t whole = (bits & 0x7fffffu) | 0x800000u, units = whole >> down, rest = whole & ((1u << down) - 1);
    uint32_t tie = 1u << (down - 1);
    return (uint8_t)(units + (rest > tie || (rest == tie && (units & 1u))));
}

static inline uint8_t cell_f32_to_e4m3(float value)
{
    uint32_t bits = cell_f32_bits(value), size = bits & 0x7fffffffu;
    uint8_t sign = (uint8_t)(bits >> 24 & 0x80u);
    if (size > 0x7f800000u)
        return (uint8_t)(sign | 0x7fu);
    return (uint8_t)(sign | cell_fp8_magnitude(size > 0x43e00000u ? 0x43e00000u : size, 3, 7)); /* 448 */
}

static inline uint8_t cell_f32_to_e5m2(float value)
{
    uint32_t bits = cell_f32_bits(value), size = bits & 0x7fffffffu;
    uint8_t sign = (uint8_t)(bits >> 24 & 0x80u);
    if (size > 0x7f800000u)
        return (uint8_t)(sign | 0x7eu);
    return (uint8_t)(sign | cell_fp8_magnitude(size > 0x47600000u ? 0x47600000u : size, 2, 15)); /* 57344 */
}

static inline uint8_t cell_f64_to_e4m3(double value)
{
    return cell_f32_to_e4m3(cell_f64_to_f32_sticky(value));
}

static inline uint8_t cell_f64_to_e5m2(double value)
{
    return cell_f32_to_e5m2(cell_f64_to_f32_sticky(value));
}

#endif
