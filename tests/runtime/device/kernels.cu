/* The kernels of toy_cell.h for CUDA, and three that need what a launch must set up: much shared memory, a
 * cooperative grid, clusters. */
#include <cooperative_groups.h>

#include "cell_kernel_args.h"

/* ptr: x, hs at t+1, y. */
extern "C" __global__ void toy_step(const __grid_constant__ cell_kernel_args args) {
    long long total = args.size[0] * args.size[2], d_size = args.size[2];
    const float *x = (const float *)args.ptr[0];
    float *h = (float *)args.ptr[1], *y = (float *)args.ptr[2];
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < total;
         i += (long long)gridDim.x * blockDim.x) {
        long long at = (i / d_size * args.size[1] + args.t) * d_size + i % d_size;
        h[i] += x[at];
        y[at] = (float)(args.size[3] + args.t + 1) * h[i];
    }
}

/* ptr: dy or NULL, dh, g at t, dx or NULL. */
extern "C" __global__ void toy_back(const __grid_constant__ cell_kernel_args args) {
    long long total = args.size[0] * args.size[2], d_size = args.size[2];
    const float *dy = (const float *)args.ptr[0], *dh = (const float *)args.ptr[1];
    float *g = (float *)args.ptr[2], *dx = (float *)args.ptr[3];
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < total;
         i += (long long)gridDim.x * blockDim.x) {
        long long at = (i / d_size * args.size[1] + args.t) * d_size + i % d_size;
        float value = dh[i] + (dy ? (float)(args.size[3] + args.t + 1) * dy[at] : 0.0f);
        g[i] = value;
        if (dx)
            dx[at] = value + (args.flags & CELL_KERNEL_ACCUMULATE ? dx[at] : 0.0f);
    }
}

/* ptr: dh, dh0. */
extern "C" __global__ void toy_add(const __grid_constant__ cell_kernel_args args) {
    long long total = args.size[0] * args.size[2];
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < total;
         i += (long long)gridDim.x * blockDim.x)
        ((float *)args.ptr[1])[i] += ((const float *)args.ptr[0])[i];
}

/* Each of size[0] blocks writes what it read back from the far end of 100,000 bytes of shared memory. ptr:
 * out. */
extern "C" __global__ void toy_much_shared(const __grid_constant__ cell_kernel_args args) {
    extern __shared__ float shared[];
    shared[24999 - threadIdx.x] = (float)(blockIdx.x + 1);
    __syncthreads();
    if (threadIdx.x == 0)
        ((float *)args.ptr[0])[blockIdx.x] = shared[24999];
}

/* Each block adds 1 to the next one's place after all have written theirs. ptr: out. */
extern "C" __global__ void toy_cooperative(const __grid_constant__ cell_kernel_args args) {
    float *out = (float *)args.ptr[0];
    if (threadIdx.x == 0)
        out[blockIdx.x] = (float)blockIdx.x;
    cooperative_groups::this_grid().sync();
    if (threadIdx.x == 0)
        out[(blockIdx.x + 1) % gridDim.x] += 1.0f;
}

/* Each block writes its rank in its cluster. ptr: out. */
extern "C" __global__ void toy_cluster(const __grid_constant__ cell_kernel_args args) {
    unsigned rank = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    if (threadIdx.x == 0)
        ((float *)args.ptr[0])[blockIdx.x] = (float)rank;
}
