/* Runs a generated reference on arguments in storage types. In: the arguments of a checked call. Out: the
 * same, written. Guaranteed: bf16 and f16 tensors are widened exactly and rounded once, to nearest even;
 * other types are passed as they are. */
#include "reference.h"

#include <stdlib.h>

#include "half.h"

typedef struct Copies {
    void *args[CELL_MAX_ARGS];
    int64_t elements[CELL_MAX_ARGS];
} Copies;

/* The gradient of a constant is passed as it is: nobody looks at it. */
static int is_half(const cell_arg *arg) {
    return (arg->dtype == CELL_BF16 || arg->dtype == CELL_F16) && !(arg->flags & CELL_ARG_IGNORED);
}

static int is_written(const cell_desc *desc, const cell_arg *arg) {
    int output = desc->tensors[arg->tensor].kind == CELL_OUTPUT;
    return (arg->role == CELL_ROLE_VALUE && output) || arg->role == CELL_ROLE_FINAL ||
           arg->role == CELL_ROLE_D_VALUE;
}

static void widen(float *to, const uint16_t *from, int64_t n, int dtype) {
    for (int64_t i = 0; i < n; i++)
        to[i] = dtype == CELL_BF16 ? cell_bf16_to_f32(from[i]) : cell_f16_to_f32(from[i]);
}

static void narrow(uint16_t *to, const float *from, int64_t n, int dtype) {
    for (int64_t i = 0; i < n; i++)
        to[i] = dtype == CELL_BF16 ? cell_f32_to_bf16(from[i]) : cell_f32_to_f16(from[i]);
}

static cell_status copy_in(const cell_desc *desc, const cell_arg *arg, const int64_t *sizes, void *from,
                           int flags, void **to, int64_t *elements) {
    cell_status status = cell_arg_elements(desc, arg, sizes, elements);
    if (status != CELL_OK)
        return status;
    *to = malloc(sizeof(float) * ((size_t)*elements + 1));
    if (!*to)
        return CELL_OUT_OF_MEMORY;
    if (!is_written(desc, arg) || (flags & CELL_ACCUMULATE))
        widen(*to, from, *elements, arg->dtype);
    return CELL_OK;
}

cell_status cell_reference_run(const cell_desc *desc, int backward, cell_reference_fn fn,
                               const int64_t *sizes, void *const *args, void *reserve, int flags) {
    const cell_arg *list = backward ? desc->backward_args : desc->forward_args;
    int n = backward ? desc->n_backward_args : desc->n_forward_args, halves = 0;
    for (int i = 0; i < n; i++)
        halves += is_half(&list[i]) && args[i];
    if (!halves)
        return (cell_status)fn(sizes, args, reserve, flags);
    Copies *copies = calloc(1, sizeof *copies);
    cell_status status = copies ? CELL_OK : CELL_OUT_OF_MEMORY;
    for (int i = 0; i < n && status == CELL_OK; i++) {
        copies->args[i] = args[i];
        if (is_half(&list[i]) && args[i]) {
            copies->args[i] = NULL;
            status = copy_in(desc, &list[i], sizes, args[i], flags, &copies->args[i], &copies->elements[i]);
        }
    }
    if (status == CELL_OK)
        status = (cell_status)fn(sizes, copies->args, reserve, flags);
    for (int i = 0; copies && i < n; i++) {
        if (!is_half(&list[i]) || !args[i])
            continue;
        if (status == CELL_OK && is_written(desc, &list[i]))
            narrow(args[i], copies->args[i], copies->elements[i], list[i].dtype);
        free(copies->args[i]);
    }
    free(copies);
    return status;
}
