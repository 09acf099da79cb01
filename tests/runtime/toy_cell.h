/* A cell written by hand as a compiler would print it: h' = h W + x, y = (t0 + t + 1) h', with B, T and D at
 * run time, forward and backward as launch plans over C functions in the place of kernels, and the same as
 * plain loops (`model`), which serves as oracle and as the reference. W is [D,D], the initial state, the
 * cotangents and all gradients are optional. */
#ifndef TOY_CELL_H
#define TOY_CELL_H

#include "cell_backend.h"

extern const cell_desc toy_desc;

/* A backend in host memory that calls the kernels as functions, and records and replays graphs. */
const cell_backend *toy_backend(void);

/* What the backend counted, per context: self of a context of toy_backend. */
typedef struct ToyCounts {
    int launches, recorded, replayed, graphs;
} ToyCounts;
extern _Thread_local ToyCounts toy_counts;
extern _Thread_local int toy_fail_recording; /* graph_end fails */

/* Forward arguments x W h0 y hT; backward x W h0 dy dhT dx dW dh0. */
cell_status toy_forward_model(const int64_t *sizes, void *const *args, void *reserve, int flags);
cell_status toy_backward_model(const int64_t *sizes, void *const *args, void *reserve, int flags);

#endif
