/* The threads of the cpu backend: one pool for the process, which the contexts share. */
#ifndef CELL_CPU_POOL_H
#define CELL_CPU_POOL_H

#include "cell_backend.h"

/* Items [first, end) of a job, with scratch memory of the thread. */
typedef void (*cell_pool_fn)(const void *data, int64_t first, int64_t end, void *scratch);

/* Runs fn over all items, in pieces of at least `grain`, by at most `threads` threads: the caller's and
 * others'. Returns when all is done. Of calls at the same time one has the other threads; the rest run
 * in their callers' threads. CELL_OUT_OF_MEMORY where a thread has no scratch memory. */
cell_status cell_pool_run(cell_pool_fn fn, const void *data, int64_t items, int64_t grain, size_t scratch,
                          int threads, cell_error *err);

/* OMP_NUM_THREADS (the first of a list), or else the processors that the process may run on; at least 1. */
int cell_pool_default(void);

#endif
