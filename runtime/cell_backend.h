/* What a backend gives the runtime: memory, matrix products and kernel launches on one stream of one device.
 * The executor of plans, the arguments' checks and the reference need nothing else. Four are known: cuda
 * (linked with backend_cuda.c), reference, emulated and cpu (all host memory); a program may bring its own
 * with cell_context_create_with. */
#ifndef CELL_BACKEND_H
#define CELL_BACKEND_H

#include <stdarg.h>

#include "cell.h"
#include "cell_kernel_args.h"
#include "cell_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CELL_MESSAGE_BYTES 1024

/* Where a failing function writes its sentence. */
typedef struct cell_error {
    char text[CELL_MESSAGE_BYTES];
} cell_error;

/* Sets the message and returns the status, so that a failure is one statement. err may be NULL. */
cell_status cell_fail(cell_error *err, cell_status status, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 3, 4)))
#endif
    ;

/* One kernel launch, all numbers evaluated and checked. */
typedef struct cell_launch {
    const cell_kernel *kernel; /* symbol, name, threads, cluster, cooperative */
    uint32_t grid[3];          /* each at least 1 */
    int32_t threads;           /* per block */
    size_t smem; /* dynamic shared memory, bytes; on the CPU scratch memory of a thread */
    int64_t items, grain; /* of a kernel for the CPU, in place of the grid and threads */
    const cell_kernel_args *args;
} cell_launch;

/* The least capability, times 10, that a kernel's code must be made for, and the device have; 0: any. */
static inline int cell_least_capability(const cell_kernel *kernel) {
    return kernel->cluster > 1 ? 90 : kernel->cooperative > 1 ? kernel->cooperative : 0;
}

typedef struct cell_gemm_call {
    int64_t m, n, k, batch;
    double alpha, beta;
    cell_matrix a, b, c;
    /* Of operands of 8 bits, which need one each: a number of f32 in the backend's memory; else NULL. */
    const void *a_scale, *b_scale;
    int fixed; /* 1: A, 2: B stays as it is while a loop runs (cell_backend.loop) */
    int mixes; /* of f32, bf16 and f16 any may be multiplied, and written; the sums are in f32 */
} cell_gemm_call;

#define CELL_MAX_STRANDED 16 /* kernels of a loop in strands */

/* Turns from, from + step, ... before `to` of n launches, whose items are in `strands` equal parts; args.t
 * is the turn. */
typedef struct cell_strands {
    const cell_launch *launches;
    int n;
    int64_t strands, from, to, step;
} cell_strands;

typedef cell_status (*cell_launch_fn)(const cell_launch *launch, cell_error *err);

/* n rows of `bytes` bytes, from and to memory of the backend, each a pitch of bytes behind the one before. */
typedef struct cell_row_copy {
    void *to;
    const void *from;
    size_t to_pitch, from_pitch, bytes;
    int64_t n;
} cell_row_copy;

/* `self` is what create made. Functions return a status and leave the sentence in err. */
typedef struct cell_backend {
    const char *name;
    cell_backend_kind kind;
    int host_memory; /* buffers may be read and written by the CPU */
    cell_status (*create)(void **self, int device, cell_error *err);
    void (*destroy)(void *self);
    cell_status (*set_stream)(void *self, void *stream, cell_error *err);
    void (*set_threads)(void *self, int threads); /* NULL: it has none of its own */
    cell_status (*sync)(void *self, cell_error *err);
    cell_status (*alloc)(void *self, void **pointer, size_t bytes, cell_error *err);
    cell_status (*free)(void *self, void *pointer, cell_error *err);
    /* copy: backend memory, in stream order. transfer: any memory, and waits. */
    cell_status (*copy)(void *self, void *to, const void *from, size_t bytes, cell_error *err);
    cell_status (*transfer)(void *self, void *to, const void *from, size_t bytes, cell_error *err);
    /* The same, of rows apart; NULL: they are copied one by one. */
    cell_status (*copy_rows)(void *self, const cell_row_copy *rows, cell_error *err);
    /* A few bytes of host memory, which the caller may change at once, in stream order; zeros where the
     * stream is being captured. NULL: not possible. */
    cell_status (*put)(void *self, void *to, const void *from, size_t bytes, cell_error *err);
    cell_status (*fill)(void *self, void *to, int byte, size_t bytes, cell_error *err);
    cell_status (*gemm)(void *self, const cell_gemm_call *call, cell_error *err);
    /* n products of equal sizes, strides and types, of one batch each and with k > 0. places: in memory of
     * the backend, written in stream order: pointers to all A, then to all B, then to all C, at multiples
     * of 16 bytes. NULL: they go one by one. */
    cell_status (*gemms)(void *self, const cell_gemm_call *calls, int n, void *const *places,
                         cell_error *err);
    cell_status (*launch)(void *self, const cell_launch *launch, cell_error *err); /* NULL: runs no plans */
    void (*loop)(void *self, int begins); /* around the steps of a loop that is no graph; may be NULL */
    /* All turns of a loop of kernels in strands (cell_loop_op); NULL: turn by turn. */
    cell_status (*strands)(void *self, const cell_strands *loop, cell_error *err);
    /* Called for every kernel of a call before any work is issued: can it run here? May be NULL. */
    cell_status (*prepare)(void *self, const cell_kernel *kernel, size_t smem, cell_error *err);
    int64_t (*attribute)(void *self, int attribute); /* CELL_ATTR_* */
    /* Blocks that the whole device holds at once; 0 where it cannot run them, or its code admits no block
     * of so many threads. */
    cell_status (*resident)(void *self, const cell_kernel *kernel, size_t smem, int64_t *blocks,
                            cell_error *err);
    /* Is the pointer usable on this device? NULL: always. */
    cell_status (*check_pointer)(void *self, const void *pointer, const char *what, cell_error *err);
    /* Bytes that the pool has from the device, and back to it but for `keep`. NULL: there is no pool. */
    cell_status (*held)(void *self, size_t *bytes, cell_error *err);
    cell_status (*trim)(void *self, size_t keep, cell_error *err);
    /* Pinned memory, and copies on a stream of their own (cell_copy_begin). NULL: host memory, at once. */
    cell_status (*alloc_pinned)(void *self, void **pointer, size_t bytes, cell_error *err);
    cell_status (*free_pinned)(void *self, void *pointer, cell_error *err);
    cell_status (*copy_begin)(void *self, void *to, const void *from, size_t bytes, cell_error *err);
    cell_status (*copy_join)(void *self, cell_error *err);
    cell_status (*copy_wait)(void *self, cell_error *err);
    /* What a profiler shows around the work that is issued: a name opens a range, NULL closes it. NULL: no
     * such. */
    void (*range)(void *self, const char *name);
    /* Graphs, all NULL where there are none. Between begin and end, work is recorded, not run. graph_end
     * gives NULL and a status when recording failed. graph_busy: does the caller capture the stream already?
     */
    int (*graph_busy)(void *self);
    cell_status (*graph_begin)(void *self, cell_error *err);
    cell_status (*graph_end)(void *self, void **graph, cell_error *err);
    cell_status (*graph_run)(void *self, void *graph, cell_error *err);
    void (*graph_free)(void *self, void *graph);
} cell_backend;

const cell_backend *cell_reference_backend(void);
/* Always there as a table; its launch reports CELL_UNSUPPORTED where no emulator is linked in. */
const cell_backend *cell_emulated_backend(void);
const cell_backend *cell_cpu_backend(void);
/* Present where backend_cuda.c is linked. */
const cell_backend *cell_cuda_backend(void);

/* The emulator's whole interface to the runtime: define this function and link it, and CELL_BACKEND_EMULATED
 * works. Runs the kernel to its end before it returns. */
cell_status cell_emulator_launch(const cell_launch *launch, cell_error *err);

/* As cell_context_create, with a backend of the caller's, which must outlive the context. */
cell_status cell_context_create_with(cell_context **ctx, const cell_backend *backend, int device,
                                     char *message, size_t message_bytes);

/* Host pieces, for backends in host memory. */
cell_status cell_host_alloc(void *self, void **pointer, size_t bytes, cell_error *err);
cell_status cell_host_free(void *self, void *pointer, cell_error *err);
cell_status cell_host_copy(void *self, void *to, const void *from, size_t bytes, cell_error *err);
cell_status cell_host_fill(void *self, void *to, int byte, size_t bytes, cell_error *err);
cell_status cell_host_gemm(void *self, const cell_gemm_call *call, cell_error *err);

#ifdef __cplusplus
}
#endif

#endif
