/* How a generated reference is called with tensors in storage types. The reference computes on arrays of one type,
 * f32 or f64; cell_reference_run converts the arguments of every other type to that, calls it, and rounds what it
 * wrote back to storage: so values are rounded where they are stored in a declared tensor, nowhere else. */
#ifndef CELL_REFERENCE_H
#define CELL_REFERENCE_H

#include "cell_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The generated function: 0, or CELL_OUT_OF_MEMORY. */
typedef int (*cell_reference_fn)(const int64_t *sizes, void *const *args, void *reserve, int flags);

/* Runs `fn`, which computes on numbers of real_bytes (4: f32, 8: f64), on args in the order of desc->forward_args, or
 * desc->backward_args if `backward`. Arguments and sizes were checked by the caller. CELL_OUT_OF_MEMORY leaves the
 * arguments as they were. */
cell_status cell_reference_run(const cell_desc *desc, int backward, cell_reference_fn fn, int real_bytes,
                               const int64_t *sizes, void *const *args, void *reserve, int flags);

#ifdef __cplusplus
}
#endif

#endif
