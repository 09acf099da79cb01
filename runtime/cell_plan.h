/* The launch plan: what a generated library's host side is, as static data, and the functions that execute
 * it. The compiler prints one `cell_desc` per instance (a cell at bound dims, options and type); the runtime
 * checks the caller's arguments against it and runs the forward, backward or step plan on the context's
 * backend, or the generated reference C where the backend is `reference`. Everything here is constant after
 * load, and lives as long as any context that it was used with (recorded graphs are found by a plan's
 * address); no function below changes it.
 *
 * Sizes. A call's `sizes` is an array of desc->n_sizes values: B, T, the run-time dims in declared order,
 * t0 (the number of the first step, 0 unless the cell uses `t`). Bound dims are constants by now. A step call
 * has T = 1.
 *
 * Expressions are postfix programs over int64: an array of CELL_X_* codes, some followed by one operand, up
 * to CELL_X_END. A NULL expression is 0 where an offset is meant, 1 where an extent, stride or count is.
 * Overflow is an error. */
#ifndef CELL_PLAN_H
#define CELL_PLAN_H

#include "cell.h"
#include "cell_kernel_args.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CELL_PLAN_VERSION 10
#ifndef CELL_ARCHS /* whoever compiles a generated library says for which GPUs its kernels were compiled */
#define CELL_ARCHS NULL
#endif
#ifndef CELL_KERNEL_SYMBOL /* how it declares them: weak, and so NULL, where they are not in it (--kernels-apart) */
#define CELL_KERNEL_SYMBOL extern
#endif
#define CELL_ALIGNMENT    256 /* of every buffer in workspace and reserve, bytes */
#define CELL_MAX_LOOPS    4   /* nesting of LOOP operations */
#define CELL_MAX_ARGS     256
#define CELL_MAX_BUFFERS  512 /* per plan, and of the reserve */
#define CELL_MAX_STACK    32  /* of an expression */

enum { CELL_SIZE_B = 0, CELL_SIZE_T = 1, CELL_SIZE_DIM0 = 2 };

/* Codes of size expressions. DIV rounds down and MOD has the divisor's sign; a zero divisor is an error. */
enum {
    CELL_X_END,
    CELL_X_PUSH,     /* operand: the constant */
    CELL_X_SIZE,     /* operand: index into sizes */
    CELL_X_LOOPVAR,  /* operand: 0 is the outermost open loop */
    CELL_X_ATTR,     /* operand: CELL_ATTR_* */
    CELL_X_RESIDENT, /* operand: kernel index; blocks of it that the whole device holds at once */
    CELL_X_ROWS,     /* operand: n; rows of a value that is kept for n steps: T where the call saves, else n */
    CELL_X_ROW,      /* operand: n; the row of the outermost loop's step among them: t, or t mod n */
    CELL_X_FORM,     /* operand: index of a FORMS operation before this one; the number of its form that is taken */
    CELL_X_ADD,
    CELL_X_SUB,
    CELL_X_MUL,
    CELL_X_DIV,
    CELL_X_MOD,
    CELL_X_CEILDIV,
    CELL_X_MIN,
    CELL_X_MAX,
    CELL_X_LT, /* a b -- a < b ? 1 : 0 */
    CELL_X_LE,
    CELL_X_EQ
};

/* Host backends (and byte expressions evaluated without a context) see the values in brackets. */
enum {
    CELL_ATTR_SM_COUNT, /* multiprocessors [256 without a context, else 4 on host backends] */
    CELL_ATTR_SMEM_MAX, /* shared memory one block may have, bytes [232448] */
    CELL_ATTR_CAPABILITY, /* 10*major + minor [90] */
    CELL_ATTR_PRODUCTS_OF_8 /* 1: numbers of 8 bits are multiplied as they are [1] */
};

typedef const int64_t *cell_expr;

/* A declared tensor of the cell. */
typedef enum cell_tensor_kind {
    CELL_INPUT,
    CELL_PARAM,
    CELL_STATE,
    CELL_OUTPUT,
    CELL_LENGTHS,
    CELL_STARTS
} cell_tensor_kind;

/* Layout is row-major: inputs and outputs [B, T, axes], states [B, axes], params [axes], lengths [B]. Of
 * packed sequences, inputs and outputs are [total, axes], and starts [B + 1]. */
typedef struct cell_tensor {
    const char *name;
    cell_tensor_kind kind;
    cell_dtype dtype;
    int rank;              /* of the declared axes, batch and time not counted */
    const cell_expr *axes; /* rank extents, functions of sizes only */
} cell_tensor;

/* One entry of a call's argument list: a declared tensor in a role. */
typedef enum cell_role {
    CELL_ROLE_VALUE,   /* input, param, initial state or output of that name */
    CELL_ROLE_FINAL,   /* the state after the last step */
    CELL_ROLE_D_VALUE, /* gradient that backward produces: of an input, param, or initial state */
    CELL_ROLE_D_OUT,   /* cotangent of an output, given to backward */
    CELL_ROLE_D_FINAL  /* cotangent of a final state, given to backward */
} cell_role;

enum {
    CELL_ARG_OPTIONAL = 1, /* NULL allowed: initial value, zero cotangent, result not wanted */
    CELL_ARG_IGNORED = 2,  /* neither read nor written: what would be the gradient of a constant */
    CELL_ARG_PAST = 4      /* steps before the first: NULL only where that is step 0, before which all is zero */
};

typedef struct cell_arg {
    int16_t tensor; /* index into desc->tensors */
    uint8_t role;   /* cell_role */
    uint8_t flags;  /* CELL_ARG_* */
    uint8_t dtype;  /* cell_dtype of this argument; a gradient may be f32 where its tensor is bf16 */
} cell_arg;

/* Where a plan's buffer lives. */
typedef enum cell_origin {
    CELL_FROM_ARG,                  /* index: argument of the call; NULL if the caller gave none */
    CELL_FROM_WORKSPACE,            /* laid out by the runtime; holds nothing before the first operation that names it */
    CELL_FROM_RESERVE,              /* index: into desc->reserve; NULL in a forward without a reserve */
    CELL_FROM_ARG_OR_WORKSPACE,     /* the argument if given, else workspace */
    CELL_FROM_RESERVE_OR_WORKSPACE, /* reserve if given, else workspace */
    CELL_FROM_NOWHERE               /* always NULL */
} cell_origin;

typedef struct cell_buffer {
    const char *name;
    uint8_t origin;  /* cell_origin; ignored in desc->reserve */
    uint8_t dtype;   /* cell_dtype, unit of offsets */
    int16_t index;   /* see cell_origin */
    cell_expr bytes; /* size in workspace or reserve; not needed for CELL_FROM_ARG and CELL_FROM_RESERVE */
} cell_buffer;

/* A place inside a buffer. */
typedef struct cell_ref {
    int16_t buffer;   /* index into plan->buffers */
    cell_expr offset; /* in elements of the buffer's dtype; may use loop variables */
} cell_ref;

typedef enum cell_op_kind {
    CELL_OP_GEMM,
    CELL_OP_KERNEL,
    CELL_OP_LOOP,
    CELL_OP_FILL,
    CELL_OP_COPY,
    CELL_OP_FORMS,
    CELL_OP_LIST,
    CELL_OP_PRODUCTS
} cell_op_kind;

/* An operation runs when all of this holds: `need` is NULL or at least one listed argument is non-NULL;
 * `unless` is NULL or all its arguments are NULL; `when` is NULL or not zero; and its flags fit the call. A
 * LOOP, FORMS, LIST or PRODUCTS that does not run skips its operations. */
enum {
    CELL_OP_SAVE_ONLY = 1,       /* forward with a reserve only */
    CELL_OP_INFER_ONLY = 2,      /* forward without a reserve only */
    CELL_OP_OVERWRITE_ONLY = 4,  /* not when the call accumulates gradients */
    CELL_OP_ACCUMULATE_ONLY = 8, /* only when it does */
    CELL_OP_GRAPH = 16           /* LOOP: capture as a graph where the backend can */
};

typedef struct cell_operand {
    cell_ref at;
    cell_expr row, col, batch; /* strides in elements; NULL row or col is 1, NULL batch is 0 */
} cell_operand;

/* CELL_BETA_ACCUMULATE: 1 if the call accumulates, else 0. */
typedef enum cell_beta { CELL_BETA_ZERO, CELL_BETA_ONE, CELL_BETA_ACCUMULATE } cell_beta;

/* C[m,n] = alpha A[m,k] B[k,n] + beta C; dtypes are those of the buffers, as in cell_gemm. An operand A or B
 * that is an optional argument which the caller left out counts as zeros. */
typedef struct cell_gemm_op {
    cell_expr m, n, k, batch;
    double alpha;
    cell_beta beta;
    cell_operand a, b, c;
    int16_t a_scale,
        b_scale; /* of operands of 8 bits: 1 + the buffers that begin with their scales; else 0 */
} cell_gemm_op;

/* Of a kernel for the CPU the grid is how many items it has, and how many of them a thread takes at least.
 * Not launched when an extent of the grid is 0. Extents beyond the hardware's limits are cut to them (x
 * 2^31-1, y and z 65535), so kernels walk their work grid-stride. */
typedef struct cell_kernel_op {
    int16_t kernel; /* index into desc->kernels */
    int16_t n_refs;
    cell_expr grid[3];
    const cell_ref *refs; /* become args.ptr[0..n_refs) */
    cell_expr t;          /* becomes args.t; NULL: variable of the innermost loop, or 0 */
    /* NULL, or per pointer NULL or arguments (ended by -1): with none of them given the pointer is NULL, since
     * nobody reads what the kernel would write there. */
    const int16_t *const *wanted;
} cell_kernel_op;

/* Runs the next n_ops operations for var = from, from+step, … while var < to, or var > to if step < 0. */
typedef struct cell_loop_op {
    cell_expr from, to; /* NULL: 0 */
    int32_t step;
    int32_t n_ops;
    /* On the CPU, of a loop of kernels: the items of each kernel fall into this number of equal parts, side by side, and
     * nothing that is of one part reads what another writes, whatever the turn; NULL: a turn waits for the one before. */
    cell_expr strands;
} cell_loop_op;

/* LIST runs the next n_ops operations. FORMS has them as forms of one piece of work, in order of preference: the first whose
 * `when` holds is taken, and no other runs. Conditions of forms depend on sizes and the device only, so the same form is
 * taken whenever it is asked (CELL_X_FORM); n_ops counts what is inside of LOOP, FORMS, LIST and PRODUCTS
 * too. */
typedef struct cell_list_op {
    int32_t n_ops;
} cell_list_op;

/* Runs the next n_ops operations, of which no product reads or writes what another one of them writes.
 * Products of equal sizes and strides go together, as one call of the backend where it has such
 * (cell_backend.gemms): they come behind the other operations inside, and `kernel` writes before where
 * their matrices are, at `places`. */
typedef struct cell_products_op {
    int32_t n_ops;
    int16_t kernel; /* index into desc->kernels */
    /* 1 + index of the first of the kernels for f32 products of few rows (cell_few_sizes.h); 0: none. */
    int16_t few;
    cell_expr together; /* 0: they run one by one, in their order */
    cell_ref places; /* three pointers for each of CELL_MAX_TOGETHER products */
} cell_products_op;
#define CELL_MAX_TOGETHER 30 /* products of one operation */

/* FILL sets `bytes` bytes to `byte`; COPY copies them from `from`, which must not overlap. */
typedef struct cell_memory_op {
    cell_ref to, from;
    cell_expr bytes;
    int32_t byte;
} cell_memory_op;

typedef struct cell_op {
    const char *name;             /* for messages, `cellc explain` and traces */
    uint8_t kind;                 /* cell_op_kind */
    uint8_t flags;                /* CELL_OP_SAVE_ONLY … */
    const int16_t *need, *unless; /* argument indices, ended by -1 */
    cell_expr when;
    union {
        cell_gemm_op gemm;
        cell_kernel_op kernel;
        cell_loop_op loop;
        cell_memory_op memory;
        cell_list_op list; /* FORMS, LIST */
        cell_products_op products;
    } u;
} cell_op;

typedef struct cell_plan {
    const cell_buffer *buffers;
    const cell_op *ops;
    int32_t n_buffers, n_ops;
} cell_plan;

/* A generated kernel. On CUDA `symbol` is the host stub, in the emulator the function itself; where an image holds the
 * kernels it is NULL, and `name` finds them. */
typedef void (*cell_kernel_fn)(cell_kernel_args args);

typedef struct cell_kernel {
    const char *name;
    cell_kernel_fn symbol;
    int32_t threads;     /* per block; with `block` the most it may have */
    int32_t cluster;     /* blocks per cluster along x; 0 or 1: none */
    /* All blocks must be resident: the grid is checked against the device. Above 1: of code for no capability below this (90:
     * 9.0) none is. Clusters are so too. */
    int32_t cooperative;
    cell_expr smem;      /* dynamic shared memory in bytes, NULL 0; a function of sizes only */
    int32_t dependent;   /* calls cell_dependency_wait(): may be launched while the kernel before ends */
    cell_expr block;     /* threads per block where they follow from sizes: a multiple of 32; else NULL */
    /* Of a kernel for the CPU: the tables of functions per level, NULL where the library has none, and its
     * place in them. smem: bytes of scratch memory. */
    const cell_cpu_fn *const *code;
    int32_t number;
    int32_t slots; /* 1: it finds the rows of states by args.slots */
} cell_kernel;

/* A condition on the sizes that the compiler could not prove: value >= 0, else the call fails. */
typedef struct cell_check {
    cell_expr value;
    const char *message;
} cell_check;

/* What distinguishes an instance: bound dims ("N" "64"), options ("bias" "input"), "dtype" "bf16". */
typedef struct cell_binding {
    const char *name, *value;
} cell_binding;

/* The generated reference. `args` in the order of the plan's argument list, host memory; reserve NULL in
 * inference; flags CELL_ACCUMULATE or 0. Arguments are already checked. */
typedef cell_status (*cell_ref_fn)(const int64_t *sizes, void *const *args, void *reserve, int flags);

/* Where the values of a tensor are, as the caller promises: nothing that runs depends on it. An end that is
 * left out of the range does not count here but for integers, whose ends are numbers that it has. */
typedef struct cell_domain {
    int32_t kind;          /* 0: anywhere; 1: from low to high; 2: of a state, where the cell leaves it */
    double low, high;      /* beyond 1e308: there is no end */
} cell_domain;

typedef struct cell_desc {
    int32_t plan_version; /* CELL_PLAN_VERSION */
    const char *name;     /* of the cell */
    const char *key;      /* "e79:N=64,bias=input,dtype=bf16" */
    const cell_binding *bindings;
    const char *const *size_names; /* n_sizes names: "B", "T", dims, "t0" */
    const cell_tensor *tensors;
    const cell_arg *forward_args; /* inputs, params, initial states, outputs, final states */
    /* inputs, params, initial states, d outputs, d final states, d inputs, d params, d initial states */
    const cell_arg *backward_args;
    const cell_check *checks;
    const cell_kernel *kernels;
    const cell_buffer *reserve; /* laid out in this order */
    /* NULL where the instance was built without device code; then only the reference backend can run it. With
     * a NULL step beside a forward, step runs the forward plan with T = 1. */
    const cell_plan *forward, *backward, *step;
    cell_ref_fn ref_forward, ref_backward; /* NULL where not built */
    size_t (*ref_reserve_bytes)(const int64_t *sizes);
    int32_t n_bindings, n_sizes, n_tensors, n_forward_args, n_backward_args, n_checks, n_kernels, n_reserve;
    /* The plans' schedule in words, and the most shared memory that a block of a kernel takes. */
    const char *how;
    int64_t block_memory;
    /* Forms of the instance: descriptions of which everything but plans, kernels and reserve is the same, in order of
     * preference: those from `preferred` on along `next`, this one, and those behind it along `next`. A call gets the first whose
     * `takes` (an expression over sizes, the device and its own kernels; NULL: always) is not 0, or else the last. */
    const struct cell_desc *preferred, *next;
    cell_expr takes;
    const char *archs;         /* "80 90": what the library has machine code for, and of the last PTX; NULL: unknown */
    int32_t pointer_alignment; /* bytes, of every non-empty argument that kernels see; 0 means 16 */
    const cell_expr *places;   /* per tensor: of integers, the extent of an axis that they say places of; else NULL */
    int32_t room;                 /* the size that says how many steps histories have room for, which may be 0; 0: there is none */
    int32_t total; /* of packed sequences: the size that says how many rows they have; 0: others */
    const cell_domain *domains;   /* per tensor: what the spec says of its values, for tests; NULL: nothing */
    const struct cell_desc *cpu; /* the same with plans and kernels for the CPU; NULL: there are none */
    const char *program; /* what the cell computes, as a hash; NULL: not said */
    int32_t counts_steps; /* 1: a call that continues another must say t0 */
    int32_t take,
        put; /* 1 + index of the kernels that bring rows of states into a dense array, and back; 0: none */
} cell_desc;

/* Bytes of workspace that forward, backward and step of this instance need at `sizes` (the largest of them),
 * on the context's backend, or with ctx NULL on any. 0 is a valid answer; wrong sizes give CELL_BAD_SIZE. */
cell_status cell_workspace_bytes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                 size_t *bytes);
/* Of them, those that inference needs: a forward call without a reserve. With T = 1: a step. */
cell_status cell_inference_bytes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                 size_t *bytes);
/* And those that training needs: forward with a reserve, and backward. */
cell_status cell_training_bytes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                size_t *bytes);
/* Bytes that forward saves for backward, likewise. */
cell_status cell_reserve_bytes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes, size_t *bytes);

/* For calls with CELL_RECOMPUTE: the bytes of a reserve that has at most `budget`, and of the workspace
 * that training with it wants; a pointer may be NULL. Steps are cut into pieces: the reserve holds the
 * states in front of some of them, and what backward needs of one; backward computes the others again,
 * one after the other. The fewest and longest pieces are taken for which there is room. Where pieces
 * have the states between them in less room than all in front of them, each is computed up to 4 times
 * more than once. With a budget for all steps it is the call without the flag. CELL_TOO_SMALL: *reserve
 * is the least. Give forward and backward a reserve of that many bytes, and the flag. */
cell_status cell_recompute_bytes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                 size_t budget, size_t *reserve, size_t *workspace);
/* The same for calls with CELL_RECOMPUTE | CELL_OFFLOAD, and the bytes of host memory that they want
 * (cell_context_set_host): there lie the states in front of all pieces but the first and the last two. The
 * reserve has at most two pieces' states, so each step is computed once more at most. Copies run beside
 * the pieces. *host is 0 where there are no more than three pieces. */
cell_status cell_offload_bytes(cell_context *ctx, const cell_desc *desc, const int64_t *sizes, size_t budget,
                               size_t *reserve, size_t *host, size_t *workspace);

/* The memory a call may use, owned by the caller. workspace NULL with workspace_bytes 0: the runtime takes it
 * from the context's pool for the call. reserve NULL in forward: inference. */
typedef struct cell_memory {
    void *workspace;
    size_t workspace_bytes;
    void *reserve;
    size_t reserve_bytes;
} cell_memory;

/* Run one direction. `args` in the order of desc->forward_args or desc->backward_args; `memory` may be NULL
 * where no reserve is given. All arguments are checked before anything is written. cell_run_step takes
 * forward arguments and T = 1, and never a reserve. Initial and final state may be the same buffer. */
cell_status cell_run_forward(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                             void *const *args, const cell_memory *memory, int flags);
cell_status cell_run_backward(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                              void *const *args, const cell_memory *memory, int flags);
cell_status cell_run_step(cell_context *ctx, const cell_desc *desc, const int64_t *sizes, void *const *args,
                          const cell_memory *memory, int flags);

/* Elements of the argument's tensor at `sizes` (batch and time included). */
cell_status cell_arg_elements(const cell_desc *desc, const cell_arg *arg, const int64_t *sizes,
                              int64_t *elements);

/* The first instance of the cell `name` whose bindings contain every wanted one (`name` NULL: of any cell),
 * or NULL; then, if `ctx` is given, its message says which instances there are. */
const cell_desc *cell_find_instance(cell_context *ctx, const cell_desc *const *list, int n_list,
                                    const char *name, const cell_binding *wanted, int n_wanted);

/* Value of an expression of sizes alone; CELL_BAD_SIZE if it overflows, divides by 0, or is malformed. */
cell_status cell_eval(cell_expr expr, const int64_t *sizes, int n_sizes, int64_t *value);

/* Prints the plan of one direction at `sizes` as text, for `cellc explain` and tests: every operation with
 * its evaluated sizes. `which` is 'f', 'b' or 's'. Writes at most `bytes` with a final NUL, returns the
 * length needed. */
size_t cell_plan_text(const cell_desc *desc, char which, const int64_t *sizes, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
