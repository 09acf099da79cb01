/* time.c: how long a call takes on the GPU. In: a call with its memory. Out: medians of 30 runs after 5 that do not count
 * (quick: of 9 after 2), caches cold (256 MB are written before each), as replays of a CUDA graph of the whole call or as
 * called. */
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "call.h"

enum { RUNS = 30, WARM = 5, QUICK_RUNS = 9, QUICK_WARM = 2 };

static cudaStream_t stream;
static void *flush;
static int runs, warm;

static void cuda(cudaError_t e, const char *what)
{
    if (e != cudaSuccess)
        call_failed(what, cudaGetErrorString(e));
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void time_open(Call *c, bool quick)
{
    runs = quick ? QUICK_RUNS : RUNS;
    warm = quick ? QUICK_WARM : WARM;
    if (!flush) {
        cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
        cuda(cudaMalloc(&flush, 256u << 20), "flush");
    }
    if (cell_context_set_stream(c->ctx, stream) != CELL_OK)
        call_failed("stream", cell_last_error(c->ctx));
}

float time_median(Call *c, bool backward, bool graph)
{
    cudaGraph_t g;
    cudaGraphExec_t exec = NULL;
    cudaEvent_t begin, end;
    float ms[RUNS];
    for (int i = 0; i < warm; i++)
        call_run(c, backward);
    cuda(cudaStreamSynchronize(stream), "warm-up");
    if (graph) {
        cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
        call_run(c, backward);
        cuda(cudaStreamEndCapture(stream, &g), "end of capture");
        cuda(cudaGraphInstantiate(&exec, g, 0), "instantiate");
        cuda(cudaGraphLaunch(exec, stream), "replay");
    }
    cuda(cudaEventCreate(&begin), "event");
    cuda(cudaEventCreate(&end), "event");
    for (int i = 0; i < runs; i++) {
        cuda(cudaMemsetAsync(flush, i, 256u << 20, stream), "flush");
        cuda(cudaEventRecord(begin, stream), "begin");
        if (graph)
            cuda(cudaGraphLaunch(exec, stream), "replay");
        else
            call_run(c, backward);
        cuda(cudaEventRecord(end, stream), "end");
        cuda(cudaEventSynchronize(end), "run");
        cuda(cudaEventElapsedTime(&ms[i], begin, end), "time");
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    if (exec) {
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(g);
    }
    qsort(ms, (size_t)runs, sizeof *ms, ascending);
    return ms[runs / 2];
}
