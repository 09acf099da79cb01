/* Steps of one sequence, for bench/wasm.sh: every cell of the library `cells`, for this machine or for WASI.
 * Arguments: rounds. Out: per cell its key and the microseconds of a step, the least of the rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cells.h"

enum { MOST = 32, SIZE = 256 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Numbers small enough that no state grows. */
static void *tensor(cell_context *ctx, const cell_desc *desc, const cell_arg *arg, const int64_t *sizes)
{
    int64_t n;
    void *memory;
    if (cell_arg_elements(desc, arg, sizes, &n) != CELL_OK ||
        cell_alloc(ctx, &memory, (size_t)n * sizeof(float)) != CELL_OK)
        exit(1);
    for (int64_t i = 0; i < n; i++)
        ((float *)memory)[i] = (float)(i % 7 - 3) * 0.01f;
    return memory;
}

static void measure(cell_context *ctx, const cell_desc *desc, int rounds)
{
    int64_t sizes[MOST] = { 1, 1 };
    void *args[MOST], *initial[MOST] = { NULL };
    double least = 1e30;
    for (int i = CELL_SIZE_DIM0; i + 1 < desc->n_sizes; i++)
        sizes[i] = SIZE;
    for (int i = 0; i < desc->n_forward_args; i++) {
        const cell_arg *arg = &desc->forward_args[i];
        int is_final = arg->role == CELL_ROLE_FINAL;
        args[i] = is_final ? initial[arg->tensor] : tensor(ctx, desc, arg, sizes);
        initial[arg->tensor] = args[i];
    }
    for (int round = 0; round < rounds; round++) {
        enum { STEPS = 200 };
        double begun = now();
        for (int step = 0; step < STEPS; step++)
            if (cell_run_step(ctx, desc, sizes, args, NULL, 0) != CELL_OK) {
                fprintf(stderr, "%s\n", cell_last_error(ctx));
                exit(1);
            }
        double each = (now() - begun) / STEPS;
        least = each < least ? each : least;
    }
    printf("%s %.2f\n", desc->key, least);
}

int main(int argc, char **argv)
{
    const cell_desc *list[MOST];
    cell_context *ctx;
    char why[256];
    int n = cells_instances(list, MOST);
    if (cell_context_create(&ctx, CELL_BACKEND_CPU, 0, why, sizeof why) != CELL_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    cell_context_set_threads(ctx, 1);
    for (int i = 0; i < n && i < MOST; i++)
        measure(ctx, list[i], argc > 1 ? atoi(argv[1]) : 20);
    cell_context_destroy(ctx);
    return 0;
}
