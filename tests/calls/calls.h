/* calls.h: what tests that call generated C references share. Such a test loads the shared object of a cell emitted
 * with --dtype f64, makes room for the arguments of both directions, draws what a call reads, runs forward and
 * backward, and counts what it found. Values are double, but for i32 inputs. All memory lives as long as the test. */
#ifndef CALLS_H
#define CALLS_H
#include <stdbool.h>
#include <stdint.h>

#include "cell_plan.h"

/* The arguments of one direction, in the order of its list; n counts elements. */
typedef struct Args { double *p[CELL_MAX_ARGS]; int64_t n[CELL_MAX_ARGS]; } Args;
typedef struct List { const cell_desc *d; const cell_arg *arg; int n; } List;

extern int calls_passed, calls_failed;

/* The instance that `symbol` of the shared object at `path` returns; without one the test ends here, as failed. */
const cell_desc *calls_load(const char *path, const char *symbol);
List calls_forward(const cell_desc *d);
List calls_backward(const cell_desc *d);

/* B, T, 3, 4, ... for the dims, and no more room for histories than the steps need: sizes[CELL_MAX_SIZES]. */
void calls_sizes(const cell_desc *d, int64_t batch, int64_t steps, int64_t *sizes);

const char *arg_name(const List *l, int i);
cell_tensor_kind arg_kind(const List *l, int i);
bool arg_is_timed(const List *l, int i);        /* of inputs and outputs: a row per sequence and step */
bool arg_has_rows(const List *l, int i);        /* these and histories of all steps, which have a row per step, too */
bool arg_is_written(const List *l, int i);
size_t arg_bytes(const List *l, int i);         /* of one element */

/* Zeros for what a call reads, NaN for what it writes. */
Args calls_room(const List *l, const int64_t *sizes);
/* A number in [-1, 1), the next of the same series in each run of a test. */
double calls_uniform(void);
/* Is argument i a value that forward reads too? Then it is copied from there. */
bool calls_known(const List *l, int i, const Args *a, const List *forward, const Args *known);
/* Room for what the reference saves between the directions. */
void *calls_reserve(const cell_desc *d, const int64_t *sizes);
/* Forward and backward of the reference; what it refuses ends the test. */
void calls_run(const cell_desc *d, const int64_t *sizes, Args *forward, Args *backward);

/* Counts, and prints what failed: "FAIL cell: what of tensor". */
void calls_verdict(const List *l, int i, bool ok, const char *what);
/* Prints "name: N passed, N failed"; the exit code of the test. */
int calls_close(const cell_desc *d);
#endif
