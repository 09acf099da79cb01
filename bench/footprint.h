/* footprint.h: the memory that training a cell needs at given sizes, by kind. In: a context, whose device decides which
 * plans are taken and how many blocks their partial sums are for, an instance and sizes. Out: bytes, as the caller has to
 * allocate them: the runtime's own answers for reserve and workspace, and every argument once. */
#ifndef BENCH_FOOTPRINT_H
#define BENCH_FOOTPRINT_H

#include "cell_plan.h"

typedef struct Footprint {
    int64_t arguments;            /* inputs, params, states before and behind, outputs */
    int64_t gradients;            /* those that backward is given and those that it makes */
    size_t reserve, workspace, inference;  /* workspace: of forward with a reserve and of backward */
    int64_t peak;                 /* all of it but inference, which is the workspace of a call without a reserve */
} Footprint;

/* The sizes of a call from a text such as "16,512,1024": B, T and the dims that are open, in the instance's order. */
/* Steps of packed sequence b, of at most T: a quarter of them, half, three quarters and all, in turn. */
int64_t footprint_steps(int64_t b, int64_t T);
void footprint_sizes(const cell_desc *d, const char *text, int64_t *sizes);
/* Does a call of the benchmarks leave this argument out? Nothing comes behind, and nothing came before but
 * where t0 says so: then the histories are there that the call reads. */
int footprint_absent(const cell_desc *d, const cell_arg *a, const int64_t *sizes);
cell_status footprint(cell_context *ctx, const cell_desc *d, const int64_t *sizes, Footprint *f);
/* As the members of a JSON object. */
void footprint_print(const Footprint *f);

#endif
