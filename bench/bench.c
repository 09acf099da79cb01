/* bench.c: times one generated instance on the GPU. In: the instance's description, linked in; sizes as
 * B,T,dims... on the command line. Out: one JSON object a line: medians of forward and of forward plus
 * backward with all gradients, as called and as replays of a CUDA graph of the whole call, caches cold (a
 * 256 MB buffer is written before each); the bytes that the arguments hold, the flops of the products, and
 * the memory that training needs. Inputs are random, never zero. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cell_plan.h"
#include "footprint.h"
#include "half.h"

const cell_desc *INSTANCE(void);

enum { MAX_ARGS = 128, RUNS = 30, WARM = 5 };

typedef struct Call {
    cell_context *ctx;
    const cell_desc *d;
    const int64_t *sizes;
    void *forward[MAX_ARGS], *backward[MAX_ARGS];
    cell_memory memory;
    cudaStream_t stream;
    void *flush;
} Call;

static void check(cell_context *ctx, cell_status st, const char *what)
{
    if (st == CELL_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, cell_last_error(ctx));
    exit(1);
}

static void cuda(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

static uint64_t seed = 88172645463325252ull;

static float normal(void)
{
    float s = 0;
    for (int i = 0; i < 4; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        s += (float)(seed >> 40) / 16777216.0f - 0.5f;
    }
    return s * 1.7320508f;
}

static void *argument(const cell_desc *d, const cell_arg *a, const int64_t *sizes, int64_t *bytes)
{
    int64_t n;
    void *p = NULL;
    const cell_tensor *x = &d->tensors[a->tensor];
    *bytes = 0;
    if (footprint_absent(d, a))
        return NULL;
    float scale = x->kind == CELL_PARAM ? 0.03f : 1.0f;
    cell_arg_elements(d, a, sizes, &n);
    size_t each = cell_dtype_bytes((cell_dtype)a->dtype);
    unsigned char *host = malloc((size_t)n * each + 16);
    for (int64_t i = 0; i < n; i++) {
        float v = i < 65536 ? scale * normal() : 0;
        if (i >= 65536)
            memcpy(host + (size_t)i * each, host + (size_t)(i % 65521) * each, each);
        else if (a->dtype == CELL_BF16)
            ((uint16_t *)host)[i] = cell_f32_to_bf16(v);
        else if (a->dtype == CELL_F16)
            ((uint16_t *)host)[i] = cell_f32_to_f16(v);
        else if (a->dtype == CELL_F32)
            ((float *)host)[i] = v;
        else
            ((double *)host)[i] = v;
    }
    *bytes = n * (int64_t)each;
    cuda(cudaMalloc(&p, (size_t)n * each + 16), "cudaMalloc");
    cuda(cudaMemcpy(p, host, (size_t)n * each, cudaMemcpyHostToDevice), "cudaMemcpy");
    free(host);
    return p;
}

static void run(Call *c, bool backward)
{
    check(c->ctx, cell_run_forward(c->ctx, c->d, c->sizes, c->forward, &c->memory, 0), "forward");
    if (backward)
        check(c->ctx, cell_run_backward(c->ctx, c->d, c->sizes, c->backward, &c->memory, 0), "backward");
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static float median(Call *c, bool backward, bool graph)
{
    cudaGraph_t g;
    cudaGraphExec_t exec = NULL;
    cudaEvent_t begin, end;
    float ms[RUNS];
    for (int i = 0; i < WARM; i++)
        run(c, backward);
    cuda(cudaStreamSynchronize(c->stream), "warm-up");
    if (graph) {
        cuda(cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal), "capture");
        run(c, backward);
        cuda(cudaStreamEndCapture(c->stream, &g), "end of capture");
        cuda(cudaGraphInstantiate(&exec, g, 0), "instantiate");
        cuda(cudaGraphLaunch(exec, c->stream), "replay");
    }
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    for (int i = 0; i < RUNS; i++) {
        cuda(cudaMemsetAsync(c->flush, i, 256u << 20, c->stream), "flush");
        cudaEventRecord(begin, c->stream);
        if (graph)
            cudaGraphLaunch(exec, c->stream);
        else
            run(c, backward);
        cudaEventRecord(end, c->stream);
        cuda(cudaEventSynchronize(end), "run");
        cudaEventElapsedTime(&ms[i], begin, end);
    }
    if (exec) {
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(g);
    }
    qsort(ms, RUNS, sizeof *ms, ascending);
    return ms[RUNS / 2];
}

/* Flops of the plan's products; a product inside the loop over time counts once a step. */
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
        if (op->kind != CELL_OP_GEMM)
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

static void bench(const cell_desc *d, const char *label, const int64_t *sizes)
{
    Call c = { .d = d, .sizes = sizes };
    char message[512];
    int64_t bytes, fwd_bytes = 0, bwd_bytes = 0;
    Footprint need;
    if (cell_context_create(&c.ctx, CELL_BACKEND_CUDA, 0, message, sizeof message) != CELL_OK) {
        fprintf(stderr, "%s\n", message);
        exit(1);
    }
    cuda(cudaStreamCreateWithFlags(&c.stream, cudaStreamNonBlocking), "stream");
    check(c.ctx, cell_context_set_stream(c.ctx, c.stream), "stream");
    for (int i = 0; i < d->n_forward_args; i++) {
        c.forward[i] = argument(d, &d->forward_args[i], sizes, &bytes);
        fwd_bytes += bytes;
    }
    for (int i = 0; i < d->n_backward_args; i++) {
        c.backward[i] = argument(d, &d->backward_args[i], sizes, &bytes);
        bwd_bytes += bytes;
    }
    check(c.ctx, footprint(c.ctx, d, sizes, &need), "memory");
    c.memory.reserve_bytes = need.reserve;
    c.memory.workspace_bytes = need.workspace > need.inference ? need.workspace : need.inference;
    cuda(cudaMalloc(&c.memory.reserve, need.reserve + 256), "reserve");
    cuda(cudaMalloc(&c.memory.workspace, c.memory.workspace_bytes + 256), "workspace");
    cuda(cudaMalloc(&c.flush, 256u << 20), "flush");
    float f = median(&c, false, false), fb = median(&c, true, false), fg = median(&c, false, true),
        fbg = median(&c, true, true);
    printf("{\"workload\": \"%s\", \"instance\": \"%s\", \"sizes\": [", label, d->key);
    for (int i = 0; i < d->n_sizes; i++)
        printf("%s%lld", i ? ", " : "", (long long)sizes[i]);
    printf("], \"fwd_ms\": %.4f, \"fwd_bwd_ms\": %.4f, \"fwd_graph_ms\": %.4f, \"fwd_bwd_graph_ms\": %.4f, "
           "\"fwd_bytes\": %lld, \"bwd_bytes\": %lld, \"gemm_flops\": %.4g, ",
           f, fb, fg, fbg, (long long)fwd_bytes, (long long)bwd_bytes,
           flops(d, d->forward, sizes) + flops(d, d->backward, sizes));
    footprint_print(&need);
    printf("}\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const cell_desc *d = INSTANCE();
    for (int i = 1; i + 1 < argc; i += 2) {
        int64_t sizes[CELL_MAX_SIZES] = { 0 };
        char *s = argv[i + 1];
        for (int k = 0; k < d->n_sizes && *s; k++, s += *s == ',')
            sizes[k] = strtoll(s, &s, 10);
        bench(d, argv[i], sizes);
    }
    return 0;
}
