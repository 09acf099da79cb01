/* Conversions to and from bf16 and f16, e4m3 and e5m2. Every pattern is decoded a second time with ldexp,
 * from the definition of the format; rounding is checked at every pattern, between every two neighbours, and
 * one f32 step to each side of the middle. */
#include "cell.h"
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

/* ---- 8 bits ---- */

typedef struct Small {
    const char *name;
    int mantissa_bits, exponent_bits;
    unsigned largest; /* the pattern of the largest number */
    float (*decode)(uint8_t code);
    uint8_t (*encode)(float value);
    uint8_t (*encode_wide)(double value);
} Small;

/* By definition; of a pattern without its sign. */
static double size_of(const Small *s, unsigned pattern) {
    int bias = (1 << (s->exponent_bits - 1)) - 1;
    unsigned exponent = pattern >> s->mantissa_bits, mantissa = pattern & ((1u << s->mantissa_bits) - 1);
    return exponent == 0 ? ldexp(mantissa, 1 - bias - s->mantissa_bits)
                         : ldexp(mantissa + (1u << s->mantissa_bits),
                                 (int)exponent - bias - s->mantissa_bits);
}

/* The nearest pattern, of two the even one, found by looking at all; beyond the largest number that one. */
static unsigned nearest(const Small *s, double size) {
    unsigned best = 0;
    if (size >= size_of(s, s->largest))
        return s->largest;
    for (unsigned p = 1; p <= s->largest; p++) {
        double closer = fabs(size_of(s, p) - size) - fabs(size_of(s, best) - size);
        if (closer < 0 || (closer == 0 && p % 2 == 0))
            best = p;
    }
    return best;
}

static void check_value(const Small *s, double value) {
    unsigned want = nearest(s, fabs(value)) | (signbit(value) ? 0x80u : 0u);
    unsigned wide = s->encode_wide(value), single = s->encode((float)value);
    EXPECT(wide == want, "%s: %a gave %02x, not %02x", s->name, value, wide, want);
    if ((double)(float)value == value)
        EXPECT(single == want, "%s: f32 %a gave %02x, not %02x", s->name, value, single, want);
}

static void check_small(const Small *s) {
    unsigned infinity = s->exponent_bits == 5 ? 0x7cu : 0x80u; /* e4m3 has none */
    for (unsigned code = 0; code < 256; code++) {
        float value = s->decode((uint8_t)code);
        unsigned size = code & 0x7f;
        int negative = code >= 0x80;
        unsigned back = s->encode(value);
        if (size <= s->largest) {
            EXPECT(fabs((double)value) == size_of(s, size) && !signbit(value) == !negative,
                   "%s %02x gave %g", s->name, code, (double)value);
            EXPECT(back == code, "%s %02x became %02x", s->name, code, back);
        } else if (size == infinity) {
            EXPECT(isinf(value) && !signbit(value) == !negative, "%s %02x gave %g", s->name, code,
                   (double)value);
        } else {
            EXPECT(isnan(value), "%s %02x gave %g", s->name, code, (double)value);
            EXPECT(isnan(s->decode((uint8_t)back)), "%s %02x: a NaN became %02x", s->name, code, back);
        }
    }
    for (unsigned half = 0; half < 65536; half++) {
        float value = cell_f16_to_f32((uint16_t)half);
        if (isnan(value))
            EXPECT(isnan(s->decode(s->encode(value))), "%s: NaN %04x became %02x", s->name, half,
                   s->encode(value));
        else
            check_value(s, isinf(value) ? copysign(1e30, value) : value);
    }
    for (unsigned p = 0; p < s->largest; p++) {
        double middle = (size_of(s, p) + size_of(s, p + 1)) / 2;
        for (int sign = -1; sign < 2; sign += 2) {
            check_value(s, sign * middle);
            check_value(s, sign * nextafter(middle, 0));
            check_value(s, sign * nextafter(middle, INFINITY));
            check_value(s, sign * (double)nextafterf((float)middle, 0));
            check_value(s, sign * (double)nextafterf((float)middle, INFINITY));
        }
    }
    double ends[] = {1e300, 1e-300, 0x1p-149, 0x1.fffffep127, size_of(s, s->largest) * 1.01};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        check_value(s, ends[i]);
        check_value(s, -ends[i]);
    }
    EXPECT(s->encode(INFINITY) == s->largest && s->encode(-INFINITY) == (s->largest | 0x80u),
           "%s: infinities", s->name);
    EXPECT(isnan(s->decode(s->encode_wide(NAN))), "%s: a NaN of f64", s->name);
}

/* What comes back is as near as the header says; blocks have scales of their own. */
static void check_scaled(cell_dtype type, int64_t block) {
    enum { N = 256 };
    float values[N], back[N], scales[N];
    uint8_t codes[N];
    int64_t each = block ? block : N;
    double relative = type == CELL_E4M3 ? 0x1p-4 : 0x1p-3, from = type == CELL_E4M3 ? 0x1p-6 : 0x1p-14;
    double absolute = type == CELL_E4M3 ? 0x1p-10 : 0x1p-17;
    for (int i = 0; i < N; i++)
        values[i] = (i / 32 == 3 ? 0 : sinf((float)i * 1.7f)) * ldexpf(1, i / 32 * 7 - 20 - i % 23);
    EXPECT(cell_fp8_encode(type, N, block, values, codes, scales) == CELL_OK, "encoding");
    EXPECT(cell_fp8_decode(type, N, block, codes, scales, back) == CELL_OK, "decoding");
    for (int i = 0; i < N; i++) {
        double scale = scales[i / each], size = fabs((double)values[i]);
        double most = (size < from * scale ? absolute * scale : relative * size) + 2 * 0x1p-24 * size;
        EXPECT(fabs((double)back[i] - (double)values[i]) <= most, "%s, blocks of %d: %g became %g",
               cell_dtype_name(type), (int)block, (double)values[i], (double)back[i]);
    }
    values[7] = INFINITY;
    EXPECT(cell_fp8_encode(type, N, block, values, codes, scales) == CELL_BAD_ARGUMENT, "an infinity");
    EXPECT(cell_fp8_encode(CELL_BF16, N, block, back, codes, scales) == CELL_BAD_ARGUMENT, "another type");
    EXPECT(cell_fp8_encode(type, N, 96, back, codes, scales) == CELL_BAD_ARGUMENT, "a part of a block");
    EXPECT(cell_fp8_encode(type, N, block, NULL, codes, scales) == CELL_NULL_POINTER, "no numbers");
}

int main(void) {
    for (int block = 0; block <= 128; block += 32) {
        if (block == 96)
            continue;
        check_scaled(CELL_E4M3, block);
        check_scaled(CELL_E5M2, block);
    }
    check_small(&(Small){"e4m3", 3, 4, 0x7e, cell_e4m3_to_f32, cell_f32_to_e4m3, cell_f64_to_e4m3});
    check_small(&(Small){"e5m2", 2, 5, 0x7b, cell_e5m2_to_f32, cell_f32_to_e5m2, cell_f64_to_e5m2});
    check_format(&(Format){"f16", 10, 5, cell_f16_to_f32, cell_f32_to_f16, cell_f64_to_f16});
    check_format(&(Format){"bf16", 7, 8, cell_bf16_to_f32, cell_f32_to_bf16, cell_f64_to_bf16});
    return report();
}
