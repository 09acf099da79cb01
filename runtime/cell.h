/* The public interface of the cell runtime. A `cell_context` owns a device, a stream, BLAS handles and a
 * message; the generated entry points take one and return a status. Work is asynchronous on the context's
 * stream where the backend is asynchronous. There is no global mutable state: any function may be called from
 * several threads at once, on different contexts. When a call fails because of its arguments, nothing was
 * written. */
#ifndef CELL_H
#define CELL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cell_status {
    CELL_OK = 0,
    CELL_NULL_POINTER, /* a tensor or structure that the call needs was not given */
    CELL_BAD_SIZE,     /* a size is negative, overflows, or violates a condition of the cell */
    CELL_MISALIGNED,   /* a pointer's alignment is less than the kernels need */
    CELL_TOO_SMALL,    /* workspace or reserve smaller than asked for */
    CELL_OUT_OF_MEMORY,
    CELL_WRONG_DEVICE,   /* a pointer belongs to the host or to another device */
    CELL_NO_DEVICE,      /* no such device, or none at all */
    CELL_NO_IMAGE,       /* the library has no code that this device and driver can run */
    CELL_UNSUPPORTED,    /* legal, but this backend or this library cannot do it; the message says what can */
    CELL_BAD_ARGUMENT,   /* any other wrong argument */
    CELL_BACKEND_FAILED, /* the device or its library reported an error */
    CELL_NO_INSTANCE     /* no compiled instance fits what was asked for */
} cell_status;

typedef enum cell_dtype {
    CELL_F32,
    CELL_BF16,
    CELL_F16,
    CELL_F64,
    CELL_I32,
    CELL_BOOL, /* one byte, 0 or 1 */
    CELL_E4M3, /* 8 bits: 4 of exponent, 3 of fraction; to 448, no infinity (float8_e4m3fn) */
    CELL_E5M2 /* 8 bits: 5 of exponent, 2 of fraction; to 57344 */
} cell_dtype;

typedef enum cell_backend_kind {
    CELL_BACKEND_AUTO, /* CELL_BACKEND if set, else cuda when a device can be used, else cpu */
    CELL_BACKEND_CUDA,
    CELL_BACKEND_REFERENCE, /* the generated plain C, in host memory */
    CELL_BACKEND_EMULATED, /* the generated kernels on the CPU; only where an emulator is linked in */
    CELL_BACKEND_CPU /* kernels for the CPU, on threads; the reference where the library has none */
} cell_backend_kind;

enum {
    CELL_ACCUMULATE = 1, /* backward adds to the gradient buffers instead of overwriting them */
    /* Forward and backward: reserve_bytes is a budget. What has no room there backward computes again
     * (cell_recompute_bytes). */
    CELL_RECOMPUTE = 2,
    /* Beside CELL_RECOMPUTE: the states in front of the pieces go to host memory (cell_offload_bytes). */
    CELL_OFFLOAD = 4
};

typedef struct cell_context cell_context;

/* One word or short phrase for a status; never NULL. */
const char *cell_status_string(cell_status status);
/* "f32", "bf16", …; "?" for a value that is no dtype. */
const char *cell_dtype_name(cell_dtype dtype);
/* Size of one element, 0 for a value that is no dtype. */
size_t cell_dtype_bytes(cell_dtype dtype);

/* Creates a context for `backend` on device number `device` (0 for host backends). The environment variable
 * CELL_BACKEND (auto, cuda, reference, emulated, cpu) decides when `backend` is CELL_BACKEND_AUTO. On failure
 * *ctx is NULL; if `message` is not NULL it receives one sentence, cut to message_bytes. The caller destroys
 * the context. */
cell_status cell_context_create(cell_context **ctx, cell_backend_kind backend, int device, char *message,
                                size_t message_bytes);
/* A context on GPU number `device` through the driver alone, whose kernels come from `image`: a cubin that
 * holds them under their names, such as NVRTC makes of a generated NAME.cu. Needs no CUDA toolkit, neither
 * when this is compiled nor now, and takes libraries that were built with --kernels-apart. cuBLAS is that
 * of the process, or else CELL_CUBLAS, or what the loader finds. With image NULL there are no kernels, only
 * memory and products. */
cell_status cell_context_create_image(cell_context **ctx, int device, const void *image, char *message,
                                      size_t message_bytes);
/* Waits for the context's work and frees what it owns; NULL is ignored. The caller's stream stays. */
void cell_context_destroy(cell_context *ctx);
/* Later calls run on `stream` (a cudaStream_t, or NULL for the context's own, which is ordered with the
 * legacy default stream); host backends ignore it. The stream used before must still exist: the new one waits
 * for it. On cuda, calls leave the context's device as the thread's current one. */
cell_status cell_context_set_stream(cell_context *ctx, void *stream);
/* What went wrong in the last failing call on this context; "" if none failed. Owned by the context,
 * overwritten by the next failure. With ctx NULL: a fixed sentence. */
const char *cell_last_error(const cell_context *ctx);
/* Threads that calls on the cpu backend use at most, the caller's among them; 0: OMP_NUM_THREADS, or else as
 * many as there are processors for the process. Other backends ignore it. Results do not depend on it. */
cell_status cell_context_set_threads(cell_context *ctx, int threads);
/* Host memory for calls with CELL_OFFLOAD from here on; NULL with 0 bytes: none. cell_alloc_pinned gives such
 * memory. Forward fills it, its backward wants the same, and between them nothing else may write it. */
cell_status cell_context_set_host(cell_context *ctx, void *host, size_t bytes);
/* "cuda", "reference", "emulated" or "cpu"; "none" with ctx NULL. */
const char *cell_backend_name(const cell_context *ctx);
cell_backend_kind cell_backend_of(const cell_context *ctx);
/* Waits until everything issued on the context's stream is done, and reports what went wrong there. */
cell_status cell_synchronize(cell_context *ctx);

/* Memory that the context's backend computes in (stream-ordered pool on cuda), aligned to 256 bytes at least.
 * bytes = 0 gives a NULL pointer and CELL_OK. Free with cell_free on the same context. */
cell_status cell_alloc(cell_context *ctx, void **pointer, size_t bytes);
cell_status cell_free(cell_context *ctx, void *pointer);
/* Copies between any of host and device memory, and waits for it: afterwards `to` may be read on the host. */
cell_status cell_copy(cell_context *ctx, void *to, const void *from, size_t bytes);
/* Sets bytes of backend memory, in stream order. */
cell_status cell_fill(cell_context *ctx, void *to, int byte, size_t bytes);

/* Numbers of 8 bits (type CELL_E4M3 or CELL_E5M2) with scales, in host memory. `block` consecutive numbers
 * have one scale, 0: all `count` of them; where a tensor's type has blocks, they are that long and lie along
 * its last axis. The scale of a block is its largest magnitude divided by the type's largest number (1 where
 * all are 0), and a code is the one nearest to the number divided by the scale, of two the even one. So a
 * number is off by at most 2^-4 (e4m3) or 2^-3 (e5m2) of itself, or, where it is below 2^-6 or 2^-14 of the
 * scale, by 2^-10 or 2^-17 of the scale, and by two roundings of f32. CELL_BAD_ARGUMENT: another type, a
 * count that is no multiple of the block, a number that is not finite; then nothing was written. */
cell_status cell_fp8_encode(cell_dtype type, int64_t count, int64_t block, const float *values,
                            uint8_t *codes, float *scales);
/* codes[i] times its scale. */
cell_status cell_fp8_decode(cell_dtype type, int64_t count, int64_t block, const uint8_t *codes,
                            const float *scales, float *values);

/* Where a context's memory comes from, if not from the backend's pool: what cell_alloc gives, and the
 * workspace of calls that bring none. On cuda it is the device's, and `stream` the cudaStream_t in whose
 * order it is used; elsewhere NULL. */
typedef struct cell_allocator {
    void *user;
    void *(*alloc)(void *user, size_t bytes, void *stream); /* at a multiple of 256; NULL: there is none */
    void (*free)(void *user, void *pointer, size_t bytes, void *stream);
} cell_allocator;

/* From here on; NULL: the backend's pool again. The structure is copied. CELL_BAD_ARGUMENT while something is
 * allocated: it goes back to where it came from. */
cell_status cell_context_set_allocator(cell_context *ctx, const cell_allocator *allocator);

typedef struct cell_pool_state {
    size_t in_use; /* bytes that cell_alloc gave and cell_free has not got, and the context's workspace */
    size_t most; /* the most there ever were, since the context began or cell_pool_forget_most */
    size_t held; /* bytes that the backend's pool has from the device, in use or not; elsewhere in_use */
    int64_t allocations; /* in use */
} cell_pool_state;

cell_status cell_pool_read(cell_context *ctx, cell_pool_state *state);
cell_status cell_pool_forget_most(cell_context *ctx);
/* Frees the context's workspace and the graphs that it has recorded, and gives back to the device what the
 * pool holds unused, but for `keep` bytes. What was freed in stream order goes back when the
 * stream is there: cell_synchronize before. */
cell_status cell_pool_trim(cell_context *ctx, size_t keep);

/* Host memory that a device reaches by itself, which asynchronous copies want; on host backends memory as
 * any. Free it with cell_free_pinned on the same context. */
cell_status cell_alloc_pinned(cell_context *ctx, void **pointer, size_t bytes);
cell_status cell_free_pinned(cell_context *ctx, void *pointer);
/* A copy beside the calls that come: it begins when what was issued before is done, and runs on a stream of
 * its own. Neither memory may be touched until it is done. Between a device and the host it overlaps where
 * the host's memory is pinned. */
cell_status cell_copy_begin(cell_context *ctx, void *to, const void *from, size_t bytes);
/* Calls from here on wait for the copies that were begun; the caller does not. */
cell_status cell_copy_join(cell_context *ctx);
/* The caller waits for them. */
cell_status cell_copy_wait(cell_context *ctx);

/* A matrix, or a batch of them, in backend memory. Strides count elements; element (i,j) of matrix b is
 * data[b*batch_stride + i*row_stride + j*col_stride]. To transpose, exchange the strides. */
typedef struct cell_matrix {
    void *data;
    cell_dtype dtype; /* f32, f64, bf16 or f16 */
    int64_t row_stride, col_stride, batch_stride;
} cell_matrix;

/* C[m,n] = alpha * A[m,k] B[k,n] + beta * C, for each of `batch` matrices. A and B have one dtype; C has
 * the same or, where theirs is bf16 or f16, f32. Sums are kept in f32, for f64 in f64 (never TF32). Any
 * size may be 0: k = 0 leaves beta * C, and so does alpha = 0, which does not read A and B. beta = 0 does
 * not read C. The matrices of C must not overlap each other or A or B. On cuda one of the two strides of
 * each matrix must be 1 (or its extent be 1), else CELL_UNSUPPORTED and nothing is written; the host takes
 * any, and computes by the CBLAS that the loader finds, or that CELL_BLAS names (none: by own code, as
 * where there is none). */
cell_status cell_gemm(cell_context *ctx, int64_t m, int64_t n, int64_t k, int64_t batch, double alpha,
                      const cell_matrix *a, const cell_matrix *b, double beta, const cell_matrix *c);

#ifdef __cplusplus
}
#endif

#endif
