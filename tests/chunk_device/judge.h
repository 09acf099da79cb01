// Whether a tensor is what it should be, in a type of some precision.
//
// In: what is right (in double), the same made with errors of the type's size at every step (steps.h: Blur),
// and what kernels made. Out: true, or a sentence. The limits follow from how far the errors moved what is
// right: it tells, of this tensor with these operands, what one rounding of every state, row and adjoint
// amounts to. The chunk form rounds fewer things than the steps do, but each passes more operations: a
// window, a score, a row of the inverse and three products, each summed in more bits than the operands have.
// Eight such movements leave room for them; what is wrong in form is off by the size of the tensor.
#ifndef CHUNK_DEVICE_JUDGE_H
#define CHUNK_DEVICE_JUDGE_H

#include <math.h>
#include <stdio.h>

#include <string>

#include "steps.h"

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
