/* Conversions between f32 or f64 and the two 16-bit float types, held as uint16_t bit patterns, on the host. To 16
 * bits they round once, to nearest, ties to even, overflow to infinity, and keep NaN a NaN; to f32 they are exact.
 * Valid in C and C++. */
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

#endif
