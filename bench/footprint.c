/* footprint.c: see footprint.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "footprint.h"

int64_t footprint_steps(int64_t b, int64_t T)
{
    return T * (b % 4 + 1) / 4;
}

void footprint_sizes(const cell_desc *d, const char *text, int64_t *sizes)
{
    char *end;
    for (int k = 0; k < d->n_sizes && *text; k++) {
        sizes[k] = strtoll(text, &end, 10);
        text = end + (*end == ',');
    }
    for (int64_t b = 0; d->total && b < sizes[CELL_SIZE_B]; b++)
        sizes[d->total] += footprint_steps(b, sizes[CELL_SIZE_T]);
}

/* The last size, of cells that ask for it. */
static int64_t steps_before(const cell_desc *d, const int64_t *sizes)
{
    return strcmp(d->size_names[d->n_sizes - 1], "t0") == 0 ? sizes[d->n_sizes - 1] : 0;
}

int footprint_absent(const cell_desc *d, const cell_arg *a, const int64_t *sizes)
{
    const cell_tensor *x = &d->tensors[a->tensor];
    const int history = x->kind == CELL_STATE && strstr(x->name, "_history");
    const int read = a->role == CELL_ROLE_VALUE && steps_before(d, sizes) > 0;
    return (history && !read) || (a->flags & CELL_ARG_IGNORED);
}

static cell_status add(const cell_desc *d, const cell_arg *a, const int64_t *sizes, int64_t *sum)
{
    int64_t n = 0;
    if (footprint_absent(d, a, sizes))
        return CELL_OK;
    cell_status status = cell_arg_elements(d, a, sizes, &n);
    *sum += n * (int64_t)cell_dtype_bytes((cell_dtype)a->dtype);
    return status;
}

cell_status footprint(cell_context *ctx, const cell_desc *d, const int64_t *sizes, Footprint *f)
{
    *f = (Footprint){ 0 };
    cell_status status = cell_reserve_bytes(ctx, d, sizes, &f->reserve);
    if (status == CELL_OK)
        status = cell_training_bytes(ctx, d, sizes, &f->workspace);
    if (status == CELL_OK)
        status = cell_inference_bytes(ctx, d, sizes, &f->inference);
    for (int i = 0; i < d->n_forward_args && status == CELL_OK; i++)
        status = add(d, &d->forward_args[i], sizes, &f->arguments);
    /* Backward's inputs, params and initial states are those of forward. */
    for (int i = 0; i < d->n_backward_args && status == CELL_OK; i++)
        if (d->backward_args[i].role != CELL_ROLE_VALUE)
            status = add(d, &d->backward_args[i], sizes, &f->gradients);
    f->peak = f->arguments + f->gradients + (int64_t)f->reserve + (int64_t)f->workspace;
    return status;
}

void footprint_print(const Footprint *f)
{
    printf("\"argument_bytes\": %lld, \"gradient_bytes\": %lld, \"reserve_bytes\": %zu, \"workspace_bytes\": %zu, "
           "\"inference_bytes\": %zu, \"peak_bytes\": %lld", (long long)f->arguments, (long long)f->gradients, f->reserve,
           f->workspace, f->inference, (long long)f->peak);
}
