/* The same call with 1, 2 and 5 threads, forward, backward and inference, has the same bits; and so has
 * a call in a child of a fork. In: an instance, linked under the name below; sizes B,T,dims... on the
 * command line. NO_CHILD: not the fork, for emulators that have no threads in a child of threads. */
#include "cell_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern const cell_desc *threads_instance(void);

static int passed, failed, skipped;

static void check(int right, const char *what)
{
    passed += right;
    failed += !right;
    if (!right)
        printf("FAIL %s\n", what);
}

static uint32_t state = 1;

static double draw(void)
{
    state = state * 1664525u + 1013904223u;
    return (double)(state >> 8) / (1 << 23) - 1;
}

static void fill(void *at, cell_dtype dtype, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float v = (float)(draw() * 0.5);
        uint32_t bits;
        memcpy(&bits, &v, sizeof bits);
        switch (dtype) {
        case CELL_F32: ((float *)at)[i] = v; break;
        case CELL_F64: ((double *)at)[i] = v; break;
        case CELL_BF16: ((uint16_t *)at)[i] = (uint16_t)(bits >> 16); break;
        case CELL_F16:
            ((uint16_t *)at)[i] = (uint16_t)((bits >> 16 & 0x8000) | 0x3000 | (bits >> 13 & 0x3ff));
            break;
        case CELL_I32: ((int32_t *)at)[i] = (int32_t)(state >> 30); break;
        default: ((char *)at)[i] = 0;
        }
    }
}

/* The arguments of a direction: what is given is drawn, the rest is zero. */
static void **arguments(const cell_desc *desc, const cell_arg *list, int n, const int64_t *sizes,
                        int backward)
{
    void **args = calloc((size_t)n + 1, sizeof *args);
    state = 1;
    for (int i = 0; i < n; i++) {
        int64_t count = 0;
        const cell_tensor *tensor = &desc->tensors[list[i].tensor];
        if (cell_arg_elements(desc, &list[i], sizes, &count) != CELL_OK || list[i].flags & CELL_ARG_IGNORED)
            continue;
        args[i] = aligned_alloc(64, (size_t)(count * 8 + 64) / 64 * 64 + 64);
        memset(args[i], 0, (size_t)(count * 8 + 64));
        int given =
            list[i].role == CELL_ROLE_VALUE ? tensor->kind != CELL_OUTPUT : list[i].role >= CELL_ROLE_D_OUT;
        if (given && tensor->kind == CELL_LENGTHS)
            for (int64_t k = 0; k < count; k++)
                ((int32_t *)args[i])[k] = (int32_t)sizes[CELL_SIZE_T];
        else if (given && tensor->kind == CELL_STARTS)
            for (int64_t k = 0; k < count; k++)
                ((int32_t *)args[i])[k] = (int32_t)(k * sizes[CELL_SIZE_T]);
        else if (given)
            fill(args[i], (cell_dtype)list[i].dtype, count);
        (void)backward;
    }
    return args;
}

typedef struct Result {
    void **forward, **inference, **backward;
    void *reserve;
} Result;

static cell_status run(const cell_desc *desc, const int64_t *sizes, int threads, Result *out)
{
    cell_context *ctx;
    char message[256] = "";
    size_t bytes = 0;
    if (cell_context_create(&ctx, CELL_BACKEND_CPU, 0, message, sizeof message) != CELL_OK)
        return CELL_BACKEND_FAILED;
    cell_context_set_threads(ctx, threads);
    cell_status status = cell_reserve_bytes(ctx, desc, sizes, &bytes);
    out->reserve = bytes ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
    cell_memory memory = { .reserve = out->reserve, .reserve_bytes = bytes };
    out->forward = arguments(desc, desc->forward_args, desc->n_forward_args, sizes, 0);
    out->inference = arguments(desc, desc->forward_args, desc->n_forward_args, sizes, 0);
    out->backward = arguments(desc, desc->backward_args, desc->n_backward_args, sizes, 1);
    if (status == CELL_OK)
        status = cell_run_forward(ctx, desc, sizes, out->inference, NULL, 0);
    if (status == CELL_OK)
        status = cell_run_forward(ctx, desc, sizes, out->forward, &memory, 0);
    if (status == CELL_OK && desc->ref_backward)
        status = cell_run_backward(ctx, desc, sizes, out->backward, &memory, 0);
    if (status != CELL_OK)
        printf("FAIL %s\n", cell_last_error(ctx));
    cell_context_destroy(ctx);
    return status;
}

static int same(const cell_desc *desc, const cell_arg *list, int n, const int64_t *sizes, void *const *a,
                void *const *b)
{
    for (int i = 0; i < n; i++) {
        int64_t count = 0;
        cell_arg_elements(desc, &list[i], sizes, &count);
        if (a[i] && memcmp(a[i], b[i], (size_t)count * cell_dtype_bytes((cell_dtype)list[i].dtype)) != 0)
            return 0;
    }
    return 1;
}

static int same_results(const cell_desc *desc, const int64_t *sizes, const Result *a, const Result *b)
{
    return same(desc, desc->forward_args, desc->n_forward_args, sizes, a->forward, b->forward) &&
           same(desc, desc->forward_args, desc->n_forward_args, sizes, a->forward, b->inference) &&
           same(desc, desc->backward_args, desc->n_backward_args, sizes, a->backward, b->backward);
}

/* A child has no threads of its parent's, and makes its own. */
static int child_is_same(const cell_desc *desc, const int64_t *sizes, const Result *one)
{
    int status = 1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        Result own;
        _exit(run(desc, sizes, 2, &own) != CELL_OK || !same_results(desc, sizes, one, &own));
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv)
{
    const cell_desc *desc = threads_instance();
    for (int i = 1; i < argc; i++) {
        int64_t sizes[32] = { 0 };
        char *at = argv[i];
        for (int n = 0; n < desc->n_sizes && *at; n++, at += *at == ',')
            sizes[n] = strtoll(at, &at, 10);
        if (desc->total)
            sizes[desc->total] = sizes[CELL_SIZE_B] * sizes[CELL_SIZE_T];
        Result one, other;
        check(run(desc, sizes, 1, &one) == CELL_OK, "with one thread");
        check(run(desc, sizes, 2, &other) == CELL_OK && same_results(desc, sizes, &one, &other),
              "with 2 threads");
        check(run(desc, sizes, 5, &other) == CELL_OK && same_results(desc, sizes, &one, &other),
              "with 5 threads");
        if (getenv("NO_CHILD"))
            skipped++;
        else
            check(child_is_same(desc, sizes, &one), "in a child");
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed > 0;
}
