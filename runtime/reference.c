/* Runs a generated reference on arguments in storage types. In: the arguments of a checked call. Out: the
 * same, written. Guaranteed: a tensor of another floating type than the reference's is given as a copy in that type, and
 * what is written is rounded once, to nearest even; integers are passed as they are. */
#include "reference.h"

#include <stdlib.h>

#include "half.h"

typedef struct Copies {
    void *args[CELL_MAX_ARGS];
    int64_t elements[CELL_MAX_ARGS];
} Copies;

/* Of the type that the reference computes in, or none of numbers. The gradient of a constant is passed as it is too:
 * it is not read. */
static int is_passed(const cell_arg *arg, int real_bytes) {
    int floating = arg->dtype == CELL_F32 || arg->dtype == CELL_F64 || arg->dtype == CELL_BF16 ||
                   arg->dtype == CELL_F16 || arg->dtype == CELL_E4M3 || arg->dtype == CELL_E5M2;
    return !floating || arg->dtype == (real_bytes == 8 ? CELL_F64 : CELL_F32) || (arg->flags & CELL_ARG_IGNORED);
}

static int is_written(const cell_desc *desc, const cell_arg *arg) {
    int output = desc->tensors[arg->tensor].kind == CELL_OUTPUT;
    return (arg->role == CELL_ROLE_VALUE && output) || arg->role == CELL_ROLE_FINAL ||
           arg->role == CELL_ROLE_D_VALUE;
}

/* Numbers of a storage type as f32 (of f64: the nearest). */
static void to_f32(float *to, const void *from, int64_t n, int dtype) {
    const uint16_t *half = from;
    const double *wide = from;
    const uint8_t *code = from;
    for (int64_t i = 0; i < n; i++)
        to[i] = dtype == CELL_BF16   ? cell_bf16_to_f32(half[i])
                : dtype == CELL_F16  ? cell_f16_to_f32(half[i])
                : dtype == CELL_E4M3 ? cell_e4m3_to_f32(code[i])
                : dtype == CELL_E5M2 ? cell_e5m2_to_f32(code[i])
                                     : (float)wide[i];
}

static void from_f32(void *to, const float *from, int64_t n, int dtype) {
    uint16_t *half = to;
    double *wide = to;
    for (int64_t i = 0; i < n; i++)
        if (dtype == CELL_F64)
            wide[i] = from[i];
        else
            half[i] = dtype == CELL_BF16 ? cell_f32_to_bf16(from[i]) : cell_f32_to_f16(from[i]);
}

/* The same for a reference in f64. */
static void to_f64(double *to, const void *from, int64_t n, int dtype) {
    const uint16_t *half = from;
    const float *single = from;
    const uint8_t *code = from;
    for (int64_t i = 0; i < n; i++)
        to[i] = dtype == CELL_BF16   ? cell_bf16_to_f32(half[i])
                : dtype == CELL_F16  ? cell_f16_to_f32(half[i])
                : dtype == CELL_E4M3 ? cell_e4m3_to_f32(code[i])
                : dtype == CELL_E5M2 ? cell_e5m2_to_f32(code[i])
                                     : single[i];
}

static void from_f64(void *to, const double *from, int64_t n, int dtype) {
    uint16_t *half = to;
    float *single = to;
    for (int64_t i = 0; i < n; i++)
        if (dtype == CELL_F32)
            single[i] = (float)from[i];
        else
            half[i] = dtype == CELL_BF16 ? cell_f64_to_bf16(from[i]) : cell_f64_to_f16(from[i]);
}

static cell_status copy_in(const cell_desc *desc, const cell_arg *arg, int real_bytes, const int64_t *sizes, void *from,
                           int flags, void **to, int64_t *elements) {
    cell_status status = cell_arg_elements(desc, arg, sizes, elements);
    if (status != CELL_OK)
        return status;
    if (*elements > (int64_t)(PTRDIFF_MAX / 8) - 1)
        return CELL_OUT_OF_MEMORY;
    *to = malloc((size_t)real_bytes * ((size_t)*elements + 1));
    if (!*to)
        return CELL_OUT_OF_MEMORY;
    if (is_written(desc, arg) && !(flags & CELL_ACCUMULATE))
        return CELL_OK;
    if (real_bytes == 8)
        to_f64(*to, from, *elements, arg->dtype);
    else
        to_f32(*to, from, *elements, arg->dtype);
    return CELL_OK;
}

static void copy_out(const cell_arg *arg, int real_bytes, void *to, const void *from, int64_t elements) {
    if (real_bytes == 8)
        from_f64(to, from, elements, arg->dtype);
    else
        from_f32(to, from, elements, arg->dtype);
}

cell_status cell_reference_run(const cell_desc *desc, int backward, cell_reference_fn fn, int real_bytes,
                               const int64_t *sizes, void *const *args, void *reserve, int flags) {
    const cell_arg *list = backward ? desc->backward_args : desc->forward_args;
    int n = backward ? desc->n_backward_args : desc->n_forward_args, converted = 0;
    for (int i = 0; i < n; i++)
        converted += args[i] && !is_passed(&list[i], real_bytes);
    if (!converted)
        return (cell_status)fn(sizes, args, reserve, flags);
    Copies *copies = calloc(1, sizeof *copies);
    cell_status status = copies ? CELL_OK : CELL_OUT_OF_MEMORY;
    for (int i = 0; i < n && status == CELL_OK; i++) {
        copies->args[i] = args[i];
        if (args[i] && !is_passed(&list[i], real_bytes)) {
            copies->args[i] = NULL;
            status = copy_in(desc, &list[i], real_bytes, sizes, args[i], flags, &copies->args[i], &copies->elements[i]);
        }
    }
    if (status == CELL_OK)
        status = (cell_status)fn(sizes, copies->args, reserve, flags);
    for (int i = 0; copies && i < n; i++) {
        if (!args[i] || is_passed(&list[i], real_bytes))
            continue;
        if (status == CELL_OK && is_written(desc, &list[i]))
            copy_out(&list[i], real_bytes, args[i], copies->args[i], copies->elements[i]);
        free(copies->args[i]);
    }
    free(copies);
    return status;
}
