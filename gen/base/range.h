/* range.h: a range of real numbers, as a declaration has it. */
#ifndef CELLC_RANGE_H
#define CELLC_RANGE_H

#include "compiler.h"

/* Numbers from low to high, which may be infinite; above, below: the end itself is none of them. */
typedef struct Range { double low, high; bool above, below; } Range;

/* "(0, 1]", interned. */
const char *range_text(Compiler *c, const Range *r);
bool range_has(const Range *r, double v);

#endif
