/* constant.h: values that depend on nothing but constants (constant.c). */
#ifndef CELLC_CONSTANT_H
#define CELLC_CONSTANT_H

#include "ir.h"

/* MOST_ELEMENTS: of a table. MOST_VALUES: that are computed for one. */
enum { MOST_ELEMENTS = 1 << 14, MOST_VALUES = 1 << 21 };

/* The elements of a real array or other value, in row-major order of its axes (one, where it has none),
 * computed in double; their number in *count. NULL: it depends on more than constants, is too large, would
 * take too long, or is somewhere no number. The arena is the module's. */
const double *constant_elements(const Module *m, NodeId id, int64_t *count);

#endif
