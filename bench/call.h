/* call.h: what bench.c and the program of `cellc tune` share: an instance at the sizes of a call (call.c, any backend),
 * what the call gives (results.c, any backend), and how long it takes (time.c, the GPU). */
#ifndef BENCH_CALL_H
#define BENCH_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "cell_plan.h"

/* Of the main program: says what failed, and ends. */
_Noreturn void call_failed(const char *what, const char *why);

typedef struct Call {
    cell_context *ctx;
    const cell_desc *d;
    const int64_t *sizes;
    void *forward[CELL_MAX_ARGS], *backward[CELL_MAX_ARGS];       /* what both read is one */
    int64_t forward_bytes, backward_bytes;                        /* that the arguments of a direction hold */
    cell_memory memory;
} Call;

/* call.c */
void call_open(Call *c, cell_context *ctx, const cell_desc *d, const int64_t *sizes);
/* Random inputs, params, states and cotangents, times `scale`, the same for the same numbers; with `move` each is then
 * moved to a neighbour in its type, of two the one that `move` draws. What the call writes is NaN. */
void call_fill(Call *c, double scale, uint64_t move);
void call_run(Call *c, bool backward);
bool call_writes(const cell_desc *d, const cell_arg *a);
void call_close(Call *c);

/* results.c: outputs and gradients of one call, and how far roundings may take them. */
void results_save(Call *c, const char *path);
/* NULL: they are those of the file, as far as roundings decide. Else which tensor is not, in words. */
const char *results_differ(Call *c, const char *path);

/* time.c: milliseconds, the median of 30 (quick: of 9), caches cold; replayed as a CUDA graph or as called. */
void time_open(Call *c, bool quick);
float time_median(Call *c, bool backward, bool graph);

#endif
