/* spelling.h: sums that are no matrix product as they are written (spelling.c). */
#ifndef CELLC_SPELLING_H
#define CELLC_SPELLING_H

#include "plan.h"

typedef struct Spelling {
    const char *because;          /* what keeps the sum from being a product: "`j <= i ? R[i,j] : 0` has no name" */
    const char *write;            /* what to write instead, in text of the spec where that can be */
} Spelling;

/* Is the sum a row reduction that would be a product with a factor that all sequences share, such as a param,
 * if it were written otherwise? Not where the product is so small that a row reduction does as well. */
bool spelling_of(const Plan *p, const Program *pr, NodeId sum, Spelling *out);
/* Is it the sum of one product of what all sequences share, such as a param, and what each has its own of? */
bool multiplies_shared(const Plan *p, NodeId sum);
/* Of a sum with both factors, what is another vector, or another condition, for each of its rows, in text
 * of the spec, so that no product has it: of `sum[j] R[i,j] * (h[j] - h[i])` `h[j] - h[i]`; NULL: there is
 * no such thing, or it cannot be written. */
const char *rows_apart(const Plan *p, NodeId sum);

#endif
