/* zeros.h: calls of an instance with zeros for arguments, for tests of what follows from sizes and not from values. */
#ifndef TESTS_TILE_ZEROS_H
#define TESTS_TILE_ZEROS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cell.h"
#include "cell_plan.h"

const cell_desc *ladder_instance(void);

/* The arguments of both directions at these sizes, and a reserve that a forward call has filled. The process's end frees them. */
typedef struct Zeros {
    int64_t sizes[CELL_MAX_SIZES];
    void *forward[CELL_MAX_ARGS], *backward[CELL_MAX_ARGS];
    cell_memory memory;
} Zeros;

/* Ends the program where the status is an error. */
static void must(cell_context *ctx, cell_status status)
{
    if (status == CELL_OK)
        return;
    fprintf(stderr, "%s: %s\n", cell_status_string(status), ctx ? cell_last_error(ctx) : "no context");
    exit(1);
}

static void *zeros_of(const cell_desc *d, const cell_arg *a, const int64_t *sizes)
{
    int64_t n = 0;
    must(NULL, cell_arg_elements(d, a, sizes, &n));
    void *p = NULL;
    size_t bytes = (size_t)n * cell_dtype_bytes((cell_dtype)a->dtype);
    if (posix_memalign(&p, 256, bytes + 256))
        exit(1);
    return memset(p, 0, bytes + 256);
}

/* text: B,T and the run-time dims. */
static void zeros_forward(Zeros *z, cell_context *ctx, const char *text)
{
    const cell_desc *d = ladder_instance();
    char *s = (char *)text;
    memset(z, 0, sizeof *z);
    for (int k = 0; k < d->n_sizes && *s; k++, s += *s == ',')
        z->sizes[k] = strtoll(s, &s, 10);
    for (int i = 0; i < d->n_forward_args; i++)
        z->forward[i] = zeros_of(d, &d->forward_args[i], z->sizes);
    for (int i = 0; i < d->n_backward_args; i++)
        z->backward[i] = zeros_of(d, &d->backward_args[i], z->sizes);
    must(ctx, cell_reserve_bytes(ctx, d, z->sizes, &z->memory.reserve_bytes));
    if (posix_memalign(&z->memory.reserve, 256, z->memory.reserve_bytes))
        exit(1);
    must(ctx, cell_run_forward(ctx, d, z->sizes, z->forward, &z->memory, 0));
    /* Backward reads forward's arguments where they are. */
    for (int i = 0; i < d->n_backward_args; i++)
        for (int k = 0; k < d->n_forward_args; k++)
            if (d->backward_args[i].tensor == d->forward_args[k].tensor &&
                d->backward_args[i].role == CELL_ROLE_VALUE && d->forward_args[k].role == CELL_ROLE_VALUE)
                z->backward[i] = z->forward[k];
}

#endif
