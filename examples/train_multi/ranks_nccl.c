/* Ranks with a GPU each, in one process; NCCL sums and sends. A context works on a stream; sums go on
 * another one and over a communicator apart, which wait for the first by events, so that the context
 * goes on meanwhile. */
#include <cuda_runtime_api.h>
#include <err.h>
#include <nccl.h>
#include <stdlib.h>

#include "ranks.h"

typedef struct Rank {
    cell_context *context;
    cudaStream_t work, sums;
    cudaEvent_t made, summed;
    ncclComm_t neighbours, all;
} Rank;

struct Ranks {
    int n;
    Rank *rank;
};

static void need(cudaError_t status)
{
    if (status != cudaSuccess)
        errx(1, "CUDA: %s", cudaGetErrorString(status));
}

static void need_nccl(ncclResult_t status)
{
    if (status != ncclSuccess)
        errx(1, "NCCL: %s", ncclGetErrorString(status));
}

Ranks *ranks_open(int n)
{
    Ranks *r = calloc(1, sizeof *r);
    ncclComm_t *made = calloc((size_t)n, sizeof *made);
    int gpus = 0;
    if (!r || !made || !(r->rank = calloc((size_t)n, sizeof *r->rank)))
        errx(1, "out of memory");
    need(cudaGetDeviceCount(&gpus));
    if (n > gpus)
        errx(1, "%d ranks take a GPU each, and there are %d", n, gpus);
    r->n = n;
    need_nccl(ncclCommInitAll(made, n, NULL));
    for (int i = 0; i < n; i++)
        r->rank[i].all = made[i];
    need_nccl(ncclCommInitAll(made, n, NULL));
    for (int i = 0; i < n; i++)
        r->rank[i].neighbours = made[i];
    free(made);
    return r;
}

cell_context *ranks_context(Ranks *r, int rank)
{
    Rank *own = &r->rank[rank];
    char why[256];
    if (cell_context_create(&own->context, CELL_BACKEND_CUDA, rank, why, sizeof why) != CELL_OK)
        errx(1, "%s", why);
    need(cudaSetDevice(rank));
    need(cudaStreamCreateWithFlags(&own->work, cudaStreamNonBlocking));
    need(cudaStreamCreateWithFlags(&own->sums, cudaStreamNonBlocking));
    need(cudaEventCreateWithFlags(&own->made, cudaEventDisableTiming));
    need(cudaEventCreateWithFlags(&own->summed, cudaEventDisableTiming));
    if (cell_context_set_stream(own->context, own->work) != CELL_OK)
        errx(1, "%s", cell_last_error(own->context));
    return own->context;
}

void ranks_close(Ranks *r)
{
    for (int i = 0; i < r->n; i++) {
        Rank *own = &r->rank[i];
        cell_context_destroy(own->context);
        need(cudaSetDevice(i));
        need_nccl(ncclCommDestroy(own->neighbours));
        need_nccl(ncclCommDestroy(own->all));
        need(cudaEventDestroy(own->made));
        need(cudaEventDestroy(own->summed));
        need(cudaStreamDestroy(own->sums));
        need(cudaStreamDestroy(own->work));
    }
    free(r->rank);
    free(r);
}

void ranks_sum(Ranks *r, int rank, double *values, size_t n)
{
    Rank *own = &r->rank[rank];
    need(cudaSetDevice(rank));
    need(cudaEventRecord(own->made, own->work));
    need(cudaStreamWaitEvent(own->sums, own->made, 0));
    need_nccl(ncclAllReduce(values, values, n, ncclDouble, ncclSum, own->all, own->sums));
}

void ranks_wait(Ranks *r, int rank)
{
    Rank *own = &r->rank[rank];
    need(cudaSetDevice(rank));
    need(cudaEventRecord(own->summed, own->sums));
    need(cudaStreamWaitEvent(own->work, own->summed, 0));
}

void ranks_send(Ranks *r, int rank, int to, const double *values, size_t n)
{
    need(cudaSetDevice(rank));
    need_nccl(ncclSend(values, n, ncclDouble, to, r->rank[rank].neighbours, r->rank[rank].work));
}

void ranks_receive(Ranks *r, int rank, int from, double *values, size_t n)
{
    need(cudaSetDevice(rank));
    need_nccl(ncclRecv(values, n, ncclDouble, from, r->rank[rank].neighbours, r->rank[rank].work));
}
