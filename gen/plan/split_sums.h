/* split_sums.h: sums over batch and time that a walk makes its part of (split_sums.c). */
#ifndef CELLC_SPLIT_SUMS_H
#define CELLC_SPLIT_SUMS_H

#include "ir/ir.h"
#include "plan.h"

/* How many leading axes of the states are parallel: those of run-time size, and all but the last two; with
 * their extents. -1: a state has more than MAX_PARALLEL. */
int parallel_of_state(const Tensor *state);
int parallel_of_states(const Module *m, const Poly **extent);

/* Which sums are split. */
typedef struct SplitSums {
    Module *m;
    int npar;
    const Poly *par_extent[MAX_PARALLEL];
    const int64_t *on_chip; /* sizes of the states' axes behind the parallel ones, 0 behind the last */
    bool compact; /* only sums whose part has no more elements than a matrix that it reads */
} SplitSums;

/* The module's roots are made anew. False: no sum was split. */
bool split_sums(const SplitSums *s);

#endif
