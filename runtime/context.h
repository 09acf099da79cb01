/* Inside the runtime only: the context, the graph cache, and the scope in which size expressions are
 * evaluated. */
#ifndef CELL_CONTEXT_H
#define CELL_CONTEXT_H

#include "cell_backend.h"

#define CELL_GRAPH_CACHE 16

/* A recorded loop. `key` holds everything that the recording depends on, as 64-bit words. */
typedef struct cell_graph_entry {
    void *graph;
    int64_t *key;
    size_t words;
    uint64_t used; /* clock of the last use, for replacement */
} cell_graph_entry;

#define CELL_KNOWN_RESERVES 16

/* At the front of every reserve: which forward call filled it. All bytes count. */
typedef struct cell_mark {
    char magic[8];
    uint64_t hash;                 /* of the instance and the version of its plan */
    uint64_t plan;                 /* of which of its plans: what they take memory for need not be the same */
    int64_t sizes[CELL_MAX_SIZES]; /* zeros behind the cell's own */
    int32_t n_sizes, reference;    /* reference: that backend's layout */
    int64_t length, slots; /* of a call in pieces (recompute.c); 0 of others */
    uint64_t call; /* of one with states in host memory, which has this mark too; 0 of others */
    char key[264]; /* of the instance, cut */
} cell_mark;
enum { CELL_MARK_BYTES = 512 };
typedef char cell_mark_fits[sizeof(cell_mark) <= CELL_MARK_BYTES && CELL_MARK_BYTES % CELL_ALIGNMENT == 0 ? 1 : -1];

typedef struct cell_known_reserve {
    const void *at; /* NULL: free */
    cell_mark mark;
    uint64_t used;
} cell_known_reserve;

/* How a call is cut whose reserve has no room for all steps (recompute.c). */
typedef struct cell_pieces {
    int64_t length,
        count; /* steps of a piece, of which the first may have less; how many. 1: it is not cut */
    int64_t slots; /* checkpoints that the reserve has room for */
    size_t checkpoint, piece,
        bytes; /* of a checkpoint, of what backward needs of a piece, of the whole reserve */
    size_t host; /* bytes of host memory, its mark and checkpoints; 0: all of them are in the reserve */
    uint64_t call; /* tells forward calls with states in host memory apart */
} cell_pieces;

#define CELL_KNOWN_PIECES 8

/* What was found for these sizes and this budget. */
typedef struct cell_known_pieces {
    const cell_desc *desc; /* NULL: free */
    size_t budget;
    int offload;
    int64_t sizes[CELL_MAX_SIZES];
    cell_pieces pieces;
} cell_known_pieces;

/* What is allocated: open addressing, at most half full. */
typedef struct cell_allocation {
    void *pointer; /* NULL: free */
    size_t bytes;
} cell_allocation;

struct cell_context {
    const void *owner; /* which copy of the runtime made it, see cell_context_check */
    const cell_backend *backend;
    void *self; /* the backend's */
    int64_t process; /* that created it */
    cell_error error;
    void *stream;    /* as the caller gave it */
    void *workspace; /* for calls that bring none; grows, never shrinks */
    size_t workspace_bytes;
    void *host; /* of cell_context_set_host */
    size_t host_bytes;
    cell_graph_entry graphs[CELL_GRAPH_CACHE];
    cell_known_reserve reserves[CELL_KNOWN_RESERVES];
    cell_known_pieces pieces[CELL_KNOWN_PIECES];
    unsigned next_pieces;
    uint64_t clock;
    int verbose;      /* CELL_VERBOSE: 1 says what is unusual, 2 waits for and times every operation */
    int graph_warned; /* a failed capture was reported */
    const cell_desc *said[64]; /* plans of which it was said how they run: in less memory, on the CPU */
    int n_said;
    cell_allocator allocator; /* alloc NULL: the backend's */
    cell_allocation *allocations;
    size_t room; /* of the table: a power of two, or 0 */
    int64_t n_allocations;
    size_t in_use, most;
};

/* Memory by the context's allocator, counted. Of a context that is destroyed, take back all. */
cell_status cell_memory_take(cell_context *ctx, void **pointer, size_t bytes);
cell_status cell_memory_give(cell_context *ctx, void *pointer, cell_error *err);
/* Gives the workspace back. */
cell_status cell_drop_workspace(cell_context *ctx);

/* CELL_OK if ctx is a context of this copy of the runtime. */
cell_status cell_context_check(cell_context *ctx);
/* Frees every recorded graph. */
void cell_graphs_clear(cell_context *ctx);
/* Makes ctx->workspace hold at least `bytes`. */
cell_status cell_context_workspace(cell_context *ctx, size_t bytes);

/* What an expression may refer to. */
typedef struct cell_scope {
    const int64_t *sizes;
    int n_sizes;
    const int64_t *loop; /* values of the open loops, outermost first */
    int n_loops;
    int saving;            /* the call fills or reads a reserve */
    cell_context *ctx;     /* NULL: attributes are upper bounds */
    const cell_desc *desc; /* for CELL_X_RESIDENT; may be NULL */
    const cell_plan *plan; /* for CELL_X_FORM; may be NULL */
    int before;            /* operations of the plan before this one may be asked for their form */
} cell_scope;

/* How many operations the one at `at` spans: LOOP, FORMS and LIST take theirs along. 0: it leaves [at, end). */
int cell_op_span(const cell_plan *plan, int at, int end);
/* The form of the FORMS operation at `at` that is taken: its number, and its index (-1: none holds). */
cell_status cell_form_taken(const cell_scope *scope, int at, int64_t *number, int *index, cell_error *err);

/* The value of an expression, `absent` if it is NULL. */
cell_status cell_eval_in(const cell_scope *scope, cell_expr expr, int64_t absent, int64_t *value,
                         cell_error *err);

/* As cell_arg_elements, with a message. */
cell_status cell_arg_count(const cell_desc *desc, const cell_arg *arg, const int64_t *sizes,
                           int64_t *elements, cell_error *err);
/* "dS (initial)", "y": how messages call an argument. */
const char *cell_arg_name(const cell_desc *desc, const cell_arg *arg, char *text, size_t bytes);
/* Does backward or forward write this argument? */
int cell_arg_written(const cell_desc *desc, const cell_arg *arg);

/* What every entry point requires of the description and the sizes. */
cell_status cell_check_sizes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes, cell_error *err);
/* What a call requires of its arguments and memory; need: bytes of workspace and of reserve. */
cell_status cell_check_args(cell_context *ctx, const cell_desc *desc, const cell_arg *list, int n_list,
                            const int64_t *sizes, void *const *args, const cell_memory *memory,
                            const size_t need[2], cell_error *err);

/* "B=2 T=5 D=8 t0=0" */
void cell_list_sizes(const cell_desc *desc, const int64_t *sizes, char *text, size_t bytes);

/* After forward: marks the reserve, and the host memory that it used, as filled by this call, or, if that
 * failed, by none. pieces: how it was cut, or NULL. */
cell_status cell_reserve_mark(cell_context *ctx, const cell_desc *desc, const int64_t *sizes, void *reserve,
                              int filled, const cell_pieces *pieces);
/* Before backward: is the reserve that of a forward call at these sizes, cut likewise, as far as can be
 * known, and the host memory that of the same call? */
cell_status cell_reserve_check(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                               const void *reserve, const cell_pieces *pieces);

/* A call with CELL_RECOMPUTE, which stands for forward or backward. whole: its reserve has room for all
 * steps, so nothing was done yet. */
cell_status cell_run_recompute(cell_context *ctx, const cell_desc *desc, int is_backward,
                               const int64_t *sizes, void *const *args, const cell_memory *memory, int flags,
                               int *whole);

/* Checks dtypes, sizes, strides and pointers of a product. */
cell_status cell_gemm_check(const cell_gemm_call *call, cell_error *err);

/* A product in BLAS terms: all matrices row-major, A [m,k] or its transpose, B likewise, C [m,n] with unit
 * column stride. */
typedef struct cell_blas_call {
    int64_t m, n, k, batch;
    int a_transposed, b_transposed;
    int swapped; /* C^T = B^T A^T is computed: a is the call's B */
    int64_t lda, ldb, ldc;
    cell_matrix a, b, c;
    const void *a_scale, *b_scale; /* of operands of 8 bits; else NULL */
} cell_blas_call;

/* 0 if the strides are none that a BLAS can express; then name of the matrix in *which. */
int cell_blas_form(const cell_gemm_call *call, cell_blas_call *blas, const char **which);

/* A host number in the type in which cuBLAS wants its factors: double where C is, else float. */
typedef union cell_blas_factor {
    float f32;
    double f64;
} cell_blas_factor;
cell_blas_factor cell_blas_factor_of(double value, cell_dtype c);
/* Where the matrix of that number in a batch begins. */
char *cell_batch_start(const cell_matrix *matrix, int64_t batch);

#endif
