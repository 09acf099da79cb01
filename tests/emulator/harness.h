// Runs test kernels on whatever this was compiled for: a GPU (nvcc) or the emulator (g++, clang++).
//
// In: a kernel of the generated form and its arguments. Out: memory that both host and kernel can use,
// launches that have ended when they return, and counts of checks. Guaranteed: a failing launch is a failing
// check.
#ifndef CELL_TEST_HARNESS_H
#define CELL_TEST_HARNESS_H

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "../../runtime/device/cell_device.cuh"

#ifndef __CUDACC__
#include "cell_emu.h"
#endif

// A launch and the checks that follow it count as one, or as one failure each.
static int passed, failed;
static bool group_open, group_failed;

static inline void close_group()
{
    if (group_open && !group_failed)
        passed++;
    group_open = group_failed = false;
}

static inline void open_group()
{
    close_group();
    group_open = true;
}

// The last line of a test program; gives its exit code.
static inline int report()
{
    close_group();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

static inline void check(bool ok, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline void check(bool ok, const char *format, ...)
{
    if (ok) {
        passed += group_open ? 0 : 1;
        return;
    }
    failed++;
    group_failed = true;
    if (failed > 40)
        return;
    printf("FAILED: ");
    va_list list;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
    fflush(stdout);
}

typedef void (*test_kernel)(const cell_kernel_args);

struct Shape {
    unsigned blocks = 1, threads = 32;
    size_t smem = 0;
    unsigned cluster = 1;
    bool cooperative = false;
};

#ifdef __CUDACC__
template <class T> struct Array {
    T *data;
    size_t count;
    explicit Array(size_t n) : count(n)
    {
        const cudaError_t e = cudaMallocManaged(&data, (n ? n : 1) * sizeof(T));
        if (e != cudaSuccess) {
            printf("no device memory: %s\n", cudaGetErrorString(e));
            fflush(stdout);
            exit(1);
        }
        memset(data, 0xff, n * sizeof(T));
    }
    ~Array() { cudaFree(data); }
    T &operator[](size_t i) { return data[i]; }
};

static inline bool is_on_gpu() { return true; }

static bool has_clusters()
{
    int major = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    return major >= 9;
}

static cudaError_t launch_on_device(test_kernel kernel, cell_kernel_args &args, const Shape &shape)
{
    cudaError_t e = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         (int)shape.smem);
    if (e == cudaSuccess && shape.cluster > 8)
        e = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (e != cudaSuccess)
        return e;
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(shape.blocks);
    config.blockDim = dim3(shape.threads);
    config.dynamicSmemBytes = shape.smem;
    config.attrs = attributes;
    if (shape.cluster > 1) {
        cudaLaunchAttribute &a = attributes[config.numAttrs++];
        a.id = cudaLaunchAttributeClusterDimension;
        a.val.clusterDim.x = shape.cluster;
        a.val.clusterDim.y = a.val.clusterDim.z = 1;
    }
    if (shape.cooperative) {
        cudaLaunchAttribute &a = attributes[config.numAttrs++];
        a.id = cudaLaunchAttributeCooperative;
        a.val.cooperative = 1;
    }
    void *parameters[] = {&args};
    e = cudaLaunchKernelExC(&config, (const void *)kernel, parameters);
    return e != cudaSuccess ? e : cudaDeviceSynchronize();
}

static inline void launch(const char *name, test_kernel kernel, cell_kernel_args &args, const Shape &shape)
{
    const cudaError_t e = launch_on_device(kernel, args, shape);
    check(e == cudaSuccess, "%s: %s", name, cudaGetErrorString(e));
    if (e != cudaSuccess) {
        report();
        exit(1);
    }
}
#else
template <class T> struct Array {
    std::vector<T> values;
    T *data;
    size_t count;
    explicit Array(size_t n) : values(n), data(values.data()), count(n)
    {
        if (n)
            memset((void *)data, 0xff, n * sizeof(T));
    }
    T &operator[](size_t i) { return data[i]; }
};

static inline bool is_on_gpu() { return false; }

static inline bool has_clusters() { return true; }

static inline void launch(const char *name, test_kernel kernel, cell_kernel_args &args, const Shape &shape)
{
    open_group();
    char message[256] = "";
    const uint32_t grid[3] = {shape.blocks, 1, 1};
    const int status = cell_emu_launch(kernel, name, &args, grid, shape.threads, shape.smem, shape.cluster,
                                       shape.cooperative, message, sizeof message);
    check(status == 0, "%s", message);
}
#endif

#define LAUNCH(kernel, args, shape) launch(#kernel, kernel, args, shape)
#define KERNEL(name)                                                                                         \
    extern "C" __global__ void __launch_bounds__(1024)                                                       \
        name([[maybe_unused]] const __grid_constant__ cell_kernel_args args)

static inline cell_kernel_args arguments(std::initializer_list<void *> pointers, int64_t size0 = 0,
                                         int64_t size1 = 0)
{
    cell_kernel_args args;
    memset(&args, 0, sizeof args);
    size_t i = 0;
    for (void *p : pointers)
        args.ptr[i++] = p;
    args.size[0] = size0;
    args.size[1] = size1;
    return args;
}

// A small generator of its own, so that a failure can be repeated.
struct Random {
    uint64_t state;
    explicit Random(uint64_t seed) : state(seed * 2654435761u + 88172645463325252u) {}
    uint64_t bits()
    {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state;
    }
    double uniform(double lo, double hi) { return lo + (hi - lo) * (double)(bits() >> 11) * 0x1p-53; }
    int integer(int lo, int hi) { return lo + (int)(bits() % (uint64_t)(hi - lo + 1)); }
};

#endif
