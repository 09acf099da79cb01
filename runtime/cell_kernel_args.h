/* The one argument of every generated kernel. The plan's executor fills it, the kernel reads it: pointers in
 * the order in which the kernel operation lists its buffers, the call's sizes in the order of the cell's size
 * list (B, T, the run-time dims as declared, t0), the value of the operation's time expression, and the flags
 * of the call. Valid in C, C++, CUDA C++ and NVRTC. */
#ifndef CELL_KERNEL_ARGS_H
#define CELL_KERNEL_ARGS_H

#ifdef __CUDACC_RTC__
typedef long long cell_int64;
typedef int cell_int32;
#else
#include <stdint.h>
typedef int64_t cell_int64;
typedef int32_t cell_int32;
#endif

#define CELL_MAX_PTRS 96
#define CELL_MAX_SIZES 24

enum {
    CELL_KERNEL_ACCUMULATE = 1, /* gradients are added to what the caller's buffers hold */
    CELL_KERNEL_SAVE = 2, /* forward with a reserve: what backward needs is to be stored */
    CELL_KERNEL_BF16_STATES = 4 /* with `slots`: the states' rows are of bf16 */
};

typedef struct cell_kernel_args {
    void *ptr[CELL_MAX_PTRS];        /* may be NULL where the plan's buffer may be absent */
    cell_int64 size[CELL_MAX_SIZES]; /* B, T, run-time dims in order, t0 */
    cell_int64 t;                    /* the operation's time expression, else the innermost loop's variable */
    cell_int32 flags;                /* CELL_KERNEL_* */
    cell_int32 reserved;
    /* NULL: sequence b has row b of the states. Else the rows that are read, [B], and behind them those
     * that are written. */
    const cell_int32 *slots;
} cell_kernel_args;

/* A kernel for the CPU: items [first, end) of those that the launch has, with scratch memory of the thread
 * that runs it, at a multiple of 64 bytes. Where a launch is cut decides about no result. */
typedef void (*cell_cpu_fn)(const cell_kernel_args *args, cell_int64 first, cell_int64 end, void *scratch);
/* The levels of an architecture that a library may have them for: 0 every machine, 1 to 3 x86-64-v2 to v4. */
#define CELL_CPU_COUNT 4

#endif
