// Whether a tensor is what it should be, in a type of some precision.
//
// In: what is right (in double), the same made with errors of the type's size in everything that is rounded
// (Blur), and what kernels made. Out: true, or a sentence. The limits follow from how far the errors moved
// what is right: it tells, of this tensor with these operands, what one rounding of everything amounts to.
// Chunks and tiles round fewer things than the plain sums do, but each passes more operations (a window, a
// score, a row of an inverse and three products, say), each summed in more bits than the operands have. Eight
// such movements leave room for them; what is wrong in form is off by the size of the tensor.
#ifndef CELL_TEST_JUDGE_H
#define CELL_TEST_JUDGE_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <string>
#include <vector>

#include "harness.h"

typedef std::vector<double> Numbers;

// ---- types on the host ----

static double value_of(double v)
{
    return v;
}
static double value_of(float v)
{
    return v;
}
static double value_of(cell_bf16 v)
{
    const uint32_t bits = (uint32_t)v.bits << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static double value_of(cell_f16 v)
{
    const int exponent = v.bits >> 10 & 31, fraction = v.bits & 1023;
    const double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return v.bits & 0x8000 ? -size : size;
}
static void put_value(double &to, double v)
{
    to = v;
}
static void put_value(float &to, double v)
{
    to = (float)v;
}
static void put_value(cell_bf16 &to, double v)
{
    const float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    to.bits = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static void put_value(cell_f16 &to, double v)
{
    int exponent = -13; // below 2^-14 the last digit stays
    if (v != 0)
        frexp(v, &exponent);
    exponent = exponent < -13 ? -13 : exponent;
    const int units = (int)nearbyint(ldexp(fabs(v), 11 - exponent));
    to.bits = (uint16_t)((v < 0 ? 0x8000 : 0) | (((exponent + 14) << 10) + units - 1024));
}

// unit: half of the distance of 1 to the next number; of float what three products of TF32 leave. least: what
// sums of numbers below the type's smallest normal one may be off by; of float tensor cores may take these
// for 0.
template <class T> struct Type;
template <> struct Type<double> {
    static constexpr double unit = 0x1p-53, least = 0x1p-1018;
};
template <> struct Type<float> {
    static constexpr double unit = 0x1p-22, least = 0x1p-122;
};
template <> struct Type<cell_bf16> {
    static constexpr double unit = 0x1p-9, least = 0x1p-122;
};
template <> struct Type<cell_f16> {
    static constexpr double unit = 0x1p-12, least = 0x1p-21;
};

// Errors that a machine of less precision makes: what is rounded is off by up to `size` of itself. For the
// movement of results by which differences from them are judged.
struct Blur {
    double size;
    uint64_t state;
    double of(double v)
    {
        if (size == 0)
            return v;
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return v * (1 + size * (2 * ((double)(state >> 11) * 0x1p-53) - 1));
    }
};

static inline double rms(const Numbers &x)
{
    double sum = 0;
    for (double e : x)
        sum += e * e;
    return x.empty() ? 0 : sqrt(sum / (double)x.size());
}

// `unit` is the type's rounding, half of the distance of 1 to the next number, `least` what any number may be
// off by. `moved` are runs with errors of one unit.
static inline bool same_tensor(const Numbers &right, const std::vector<const Numbers *> &moved,
                               const Numbers &made, double unit, double least, std::string &why)
{
    const double size = rms(right);
    double movement = 0;
    Numbers own(right.size(), 0.0);
    for (const Numbers *run : moved) {
        Numbers off(right.size());
        for (size_t i = 0; i < right.size(); i++) {
            off[i] = (*run)[i] - right[i];
            own[i] = fmax(own[i], fabs(off[i]));
        }
        movement = fmax(movement, rms(off));
    }
    // Of n errors of one size the largest is about sqrt(2 ln n) of it.
    const double limit = 8 * (movement + unit * size) + least, most = sqrt(2 * log((double)right.size() + 3));
    char text[300];
    if (right.size() != made.size()) {
        why = "another size";
        return false;
    }
    Numbers off(right.size());
    for (size_t i = 0; i < right.size(); i++) {
        off[i] = made[i] - right[i];
        const double of_element = most * limit + 8 * (own[i] + unit * fabs(right[i]));
        if (!(fabs(off[i]) <= of_element)) {
            snprintf(text, sizeof text,
                     "element %zu is %.9g, not %.9g: off by %.2g, at most %.2g (tensor %.2g, moved %.2g)", i,
                     made[i], right[i], fabs(off[i]), of_element, size, movement);
            why = text;
            return false;
        }
    }
    if (!(rms(off) <= limit)) {
        snprintf(text, sizeof text, "off by %.3g of %.3g, at most %.3g", rms(off), size, limit);
        why = text;
        return false;
    }
    return true;
}

#endif
