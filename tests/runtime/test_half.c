/* Conversions to and from bf16 and f16. Every pattern is decoded a second time with ldexp, from the
 * definition of the format; rounding is checked at every pattern, between every two neighbours, and one f32
 * step to each side of the middle. */
#include "expect.h"
#include "half.h"

#include <math.h>

typedef struct Format {
    const char *name;
    int mantissa_bits, exponent_bits;
    float (*decode)(uint16_t half);
    uint16_t (*encode)(float value);
    uint16_t (*encode_wide)(double value);
} Format;

static int bias(const Format *format) {
    return (1 << (format->exponent_bits - 1)) - 1;
}

static uint16_t infinity_of(const Format *format) {
    return (uint16_t)(((1 << format->exponent_bits) - 1) << format->mantissa_bits);
}

/* The value of a finite pattern, by definition. */
static double value_of(const Format *format, unsigned pattern) {
    unsigned mantissa = pattern & ((1u << format->mantissa_bits) - 1);
    int exponent = (int)(pattern & 0x7fff) >> format->mantissa_bits;
    double magnitude = exponent == 0 ? ldexp(mantissa, 1 - bias(format) - format->mantissa_bits)
                                     : ldexp(mantissa + (1u << format->mantissa_bits),
                                             exponent - bias(format) - format->mantissa_bits);
    return pattern & 0x8000 ? -magnitude : magnitude;
}

static void check_pattern(const Format *format, unsigned pattern) {
    float value = format->decode((uint16_t)pattern);
    unsigned magnitude = pattern & 0x7fff, infinite = infinity_of(format);
    if (magnitude > infinite) {
        EXPECT(isnan(value), "%s %04x gave %g", format->name, pattern, (double)value);
        unsigned back = format->encode(value);
        EXPECT((back & 0x7fff) > infinite, "%s %04x became %04x", format->name, pattern, back);
        return;
    }
    if (magnitude == infinite)
        EXPECT(isinf(value) && !signbit(value) == !(pattern & 0x8000), "%s %04x gave %g", format->name,
               pattern, (double)value);
    else
        EXPECT((double)value == value_of(format, pattern) && !signbit(value) == !(pattern & 0x8000),
               "%s %04x gave %g", format->name, pattern, (double)value);
    EXPECT(format->encode(value) == pattern, "%s %04x became %04x", format->name, pattern,
           format->encode(value));
}

/* Between a pattern and the next larger in magnitude; the step after the largest finite one goes to infinity.
 */
static void check_gap(const Format *format, unsigned pattern) {
    int precise = pattern + 1 < infinity_of(format);
    double low = value_of(format, pattern);
    double high = precise ? value_of(format, pattern + 1) : 2 * low - value_of(format, pattern - 1);
    float middle = (float)((low + high) / 2);
    unsigned even = pattern & 1 ? pattern + 1 : pattern;
    for (int sign = 0; sign < 2; sign++) {
        unsigned bit = sign ? 0x8000 : 0;
        float at = sign ? -middle : middle;
        float below = nextafterf(at, 0), above = nextafterf(at, sign ? -INFINITY : INFINITY);
        EXPECT((double)middle != (low + high) / 2 || format->encode(at) == (even | bit),
               "%s %04x tie gave %04x", format->name, pattern | bit, format->encode(at));
        EXPECT(format->encode(below) == (pattern | bit), "%s %04x below gave %04x", format->name,
               pattern | bit, format->encode(below));
        EXPECT(format->encode(above) == ((pattern + 1) | bit), "%s %04x above gave %04x", format->name,
               pattern | bit, format->encode(above));
        /* In f64 there are numbers nearer to the middle, which f32 would round to it. */
        double exact = sign ? -(low + high) / 2 : (low + high) / 2;
        double inside = nextafter(exact, 0), outside = nextafter(exact, sign ? -INFINITY : INFINITY);
        EXPECT(format->encode_wide(exact) == (even | bit), "%s %04x tie of f64 gave %04x", format->name, pattern | bit,
               format->encode_wide(exact));
        EXPECT(format->encode_wide(inside) == (pattern | bit), "%s %04x just below gave %04x", format->name,
               pattern | bit, format->encode_wide(inside));
        EXPECT(format->encode_wide(outside) == ((pattern + 1) | bit), "%s %04x just above gave %04x", format->name,
               pattern | bit, format->encode_wide(outside));
    }
}

static void check_format(const Format *format) {
    for (unsigned pattern = 0; pattern < 65536; pattern++)
        check_pattern(format, pattern);
    for (unsigned pattern = 0; pattern < infinity_of(format); pattern++)
        check_gap(format, pattern);
    EXPECT(format->encode(3.402823466e38f) == infinity_of(format), "%s: the largest f32", format->name);
    EXPECT(format->encode(0x1p-149f) == 0, "%s: the smallest f32", format->name);
    EXPECT((format->encode(cell_f32_from_bits(0x7f800001u)) & 0x7fff) > infinity_of(format),
           "%s: a NaN with a low payload", format->name);
    EXPECT((format->encode_wide(NAN) & 0x7fff) > infinity_of(format), "%s: a NaN of f64", format->name);
    EXPECT(format->encode_wide(-1e300) == (infinity_of(format) | 0x8000), "%s: beyond f32", format->name);
    EXPECT(format->encode_wide(-1e-300) == 0x8000, "%s: below f32", format->name);
}

int main(void) {
    check_format(&(Format){"f16", 10, 5, cell_f16_to_f32, cell_f32_to_f16, cell_f64_to_f16});
    check_format(&(Format){"bf16", 7, 8, cell_bf16_to_f32, cell_f32_to_bf16, cell_f64_to_bf16});
    return report();
}
