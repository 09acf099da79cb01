/* bench.c: times one generated instance on the GPU. In: the instance's description, linked in; a label and sizes as
 * B,T,dims... on the command line, once or several times; -q before them for a third of the calls, and graphs only; -p for
 * one call of each direction behind one that is not looked at, between cudaProfilerStart and Stop: for a profiler.
 * Out: one JSON object a line: medians of forward and of forward plus backward with all gradients, as called and as
 * replays of a CUDA graph of the whole call, caches cold (a 256 MB buffer is written before each); the bytes that the
 * arguments hold, the flops of the products, and the memory that training needs. Inputs are random, never zero. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include "call.h"
#include "footprint.h"

const cell_desc *INSTANCE(void);

void call_failed(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

/* Flops of the plan's products; a product inside the loop over time counts once a step. One that may be made of parts of
 * its numbers counts as it would be without. */
static double flops(const cell_desc *d, const cell_plan *p, const int64_t *sizes)
{
    double sum = 0;
    int left = 0;
    for (int i = 0; i < p->n_ops; i++) {
        const cell_op *op = &p->ops[i];
        int64_t m, n, k, batch = 1;
        double times = left-- > 0 ? (double)sizes[CELL_SIZE_T] : 1;
        if (op->kind == CELL_OP_LOOP)
            left = op->u.loop.n_ops;
        if (op->kind != CELL_OP_GEMM || strstr(op->name, " of parts"))
            continue;
        cell_eval(op->u.gemm.m, sizes, d->n_sizes, &m);
        cell_eval(op->u.gemm.n, sizes, d->n_sizes, &n);
        cell_eval(op->u.gemm.k, sizes, d->n_sizes, &k);
        if (op->u.gemm.batch)
            cell_eval(op->u.gemm.batch, sizes, d->n_sizes, &batch);
        sum += times * 2.0 * (double)m * (double)n * (double)k * (double)batch;
    }
    return sum;
}

static void print_result(Call *c, const char *label, bool quick, const Footprint *need)
{
    const cell_desc *d = c->d;
    printf("{\"workload\": \"%s\", \"instance\": \"%s\", \"sizes\": [", label, d->key);
    for (int i = 0; i < d->n_sizes; i++)
        printf("%s%lld", i ? ", " : "", (long long)c->sizes[i]);
    printf("], ");
    if (!quick) {
        float forward = time_median(c, false, false), both = time_median(c, true, false);
        printf("\"fwd_ms\": %.4f, \"fwd_bwd_ms\": %.4f, ", forward, both);
    }
    float forward = time_median(c, false, true), both = time_median(c, true, true);
    printf("\"fwd_graph_ms\": %.4f, \"fwd_bwd_graph_ms\": %.4f, \"fwd_bytes\": %lld, \"bwd_bytes\": %lld, "
           "\"gemm_flops\": %.4g, ", forward, both, (long long)c->forward_bytes, (long long)c->backward_bytes,
           flops(d, d->forward, c->sizes) + flops(d, d->backward, c->sizes));
    footprint_print(need);
    printf("}\n");
    fflush(stdout);
}

static void profiled(Call *c)
{
    call_run(c, true);
    cudaDeviceSynchronize();
    cudaProfilerStart();
    call_run(c, true);
    cudaDeviceSynchronize();
    cudaProfilerStop();
}

static void bench(cell_context *ctx, const cell_desc *d, const char *label, const int64_t *sizes, char mode)
{
    Call c;
    Footprint need;
    call_open(&c, ctx, d, sizes);
    call_fill(&c, 1, 0);
    if (footprint(ctx, d, sizes, &need) != CELL_OK)
        call_failed("memory", cell_last_error(ctx));
    time_open(&c, mode == 'q');
    if (mode == 'p')
        profiled(&c);
    else
        print_result(&c, label, mode == 'q', &need);
    call_close(&c);
}

int main(int argc, char **argv)
{
    char mode = argc > 1 && argv[1][0] == '-' ? argv[1][1] : 0;
    const cell_desc *d = INSTANCE();
    cell_context *ctx;
    char message[512];
    if (cell_context_create(&ctx, CELL_BACKEND_CUDA, 0, message, sizeof message) != CELL_OK)
        call_failed("the GPU", message);
    for (int i = 1 + (mode != 0); i + 1 < argc; i += 2) {
        int64_t sizes[CELL_MAX_SIZES] = { 0 };
        footprint_sizes(d, argv[i + 1], sizes);
        bench(ctx, d, argv[i], sizes, mode);
    }
    cell_context_destroy(ctx);
    return 0;
}
