/* bench.c: times one generated instance on the GPU. In: the instance's description, linked in; a label and sizes as
 * B,T,dims... on the command line, once or several times; -q before them for a third of the calls, and graphs only.
 * Out: one JSON object a line: medians of forward and of forward plus backward with all gradients, as called and as
 * replays of a CUDA graph of the whole call, caches cold (a 256 MB buffer is written before each); the bytes that the
 * arguments hold, the flops of the products, and the memory that training needs. Inputs are random, never zero. */
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

enum { MAX_ARGS = 128, RUNS = 30, WARM = 5, QUICK_RUNS = 9, QUICK_WARM = 2, DRAWN = 65536, PERIOD = 65521 };

typedef struct Call {
    cell_context *ctx;
    const cell_desc *d;
    const int64_t *sizes;
    void *forward[MAX_ARGS], *backward[MAX_ARGS];
    cell_memory memory;
    cudaStream_t stream;
    void *flush;
    int runs, warm;
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
    for (int64_t i = 0; i < n && i < DRAWN; i++) {
        float v = scale * normal();
        if (a->dtype == CELL_BF16)
            ((uint16_t *)host)[i] = cell_f32_to_bf16(v);
        else if (a->dtype == CELL_F16)
            ((uint16_t *)host)[i] = cell_f32_to_f16(v);
        else if (a->dtype == CELL_F32)
            ((float *)host)[i] = v;
        else
            ((double *)host)[i] = v;
    }
    for (int64_t i = DRAWN; i < n; i += PERIOD)          /* the rest repeats them, out of step with powers of two */
        memcpy(host + (size_t)i * each, host + (size_t)(i - PERIOD) * each, (size_t)(n - i < PERIOD ? n - i : PERIOD) * each);
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
    for (int i = 0; i < c->warm; i++)
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
    for (int i = 0; i < c->runs; i++) {
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
    qsort(ms, (size_t)c->runs, sizeof *ms, ascending);
    return ms[c->runs / 2];
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

static void print_result(Call *c, const char *label, bool quick, const int64_t arguments[2], const Footprint *need)
{
    const cell_desc *d = c->d;
    printf("{\"workload\": \"%s\", \"instance\": \"%s\", \"sizes\": [", label, d->key);
    for (int i = 0; i < d->n_sizes; i++)
        printf("%s%lld", i ? ", " : "", (long long)c->sizes[i]);
    printf("], ");
    if (!quick) {
        float forward = median(c, false, false), both = median(c, true, false);
        printf("\"fwd_ms\": %.4f, \"fwd_bwd_ms\": %.4f, ", forward, both);
    }
    float forward = median(c, false, true), both = median(c, true, true);
    printf("\"fwd_graph_ms\": %.4f, \"fwd_bwd_graph_ms\": %.4f, \"fwd_bytes\": %lld, \"bwd_bytes\": %lld, "
           "\"gemm_flops\": %.4g, ", forward, both, (long long)arguments[0], (long long)arguments[1],
           flops(d, d->forward, c->sizes) + flops(d, d->backward, c->sizes));
    footprint_print(need);
    printf("}\n");
    fflush(stdout);
}

static int64_t take_arguments(const Call *c, const cell_arg *list, int n, void **to)
{
    int64_t sum = 0, bytes;
    for (int i = 0; i < n; i++) {
        to[i] = argument(c->d, &list[i], c->sizes, &bytes);
        sum += bytes;
    }
    return sum;
}

static void give_back(Call *c)
{
    for (int i = 0; i < c->d->n_forward_args; i++)
        cudaFree(c->forward[i]);
    for (int i = 0; i < c->d->n_backward_args; i++)
        cudaFree(c->backward[i]);
    cudaFree(c->memory.reserve);
    cudaFree(c->memory.workspace);
}

static void bench(Call *c, const char *label, bool quick)
{
    const cell_desc *d = c->d;
    Footprint need;
    int64_t arguments[2] = { take_arguments(c, d->forward_args, d->n_forward_args, c->forward),
                             take_arguments(c, d->backward_args, d->n_backward_args, c->backward) };
    check(c->ctx, footprint(c->ctx, d, c->sizes, &need), "memory");
    c->memory = (cell_memory){ .reserve_bytes = need.reserve, .workspace_bytes = need.workspace };
    cuda(cudaMalloc(&c->memory.reserve, need.reserve + 256), "reserve");
    cuda(cudaMalloc(&c->memory.workspace, need.workspace + 256), "workspace");
    print_result(c, label, quick, arguments, &need);
    give_back(c);
}

int main(int argc, char **argv)
{
    const cell_desc *d = INSTANCE();
    bool quick = argc > 1 && strcmp(argv[1], "-q") == 0;
    Call c = { .d = d, .runs = quick ? QUICK_RUNS : RUNS, .warm = quick ? QUICK_WARM : WARM };
    char message[512];
    if (cell_context_create(&c.ctx, CELL_BACKEND_CUDA, 0, message, sizeof message) != CELL_OK) {
        fprintf(stderr, "%s\n", message);
        return 1;
    }
    cuda(cudaStreamCreateWithFlags(&c.stream, cudaStreamNonBlocking), "stream");
    check(c.ctx, cell_context_set_stream(c.ctx, c.stream), "stream");
    cuda(cudaMalloc(&c.flush, 256u << 20), "flush");
    for (int i = 1 + quick; i + 1 < argc; i += 2) {
        int64_t sizes[CELL_MAX_SIZES] = { 0 };
        char *s = argv[i + 1];
        for (int k = 0; k < d->n_sizes && *s; k++, s += *s == ',')
            sizes[k] = strtoll(s, &s, 10);
        c.sizes = sizes;
        bench(&c, argv[i], quick);
    }
    return 0;
}
