/* Inside the runtime only: the state of one execution of a plan, shared by the executor, its graph cache and
 * the printer. */
#ifndef CELL_RUN_H
#define CELL_RUN_H

#include "context.h"

/* Collects text in a buffer of fixed size, and counts what it would have taken. */
typedef struct cell_text {
    char *at;
    size_t bytes, used;
} cell_text;

void cell_text_add(cell_text *text, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* Which rows of the states' arrays sequences read and write: [2][B] in the backend's memory. */
typedef struct cell_slots {
    const int32_t *rows;
    int bf16; /* what the rows are of, else of the states' own type */
} cell_slots;

typedef struct cell_run {
    cell_context *ctx; /* NULL when printing */
    const cell_desc *desc;
    const cell_plan *plan;
    const int64_t *sizes;
    void *const *args; /* NULL when printing */
    const cell_arg *list;
    int n_args;
    int flags;  /* CELL_KERNEL_* */
    int saving; /* forward with a reserve, or any backward */
    const cell_memory *memory;
    void *base[CELL_MAX_BUFFERS];    /* where each buffer of the plan is; NULL: absent */
    int64_t bytes[CELL_MAX_BUFFERS]; /* how large it is, -1 when not known */
    int64_t loop[CELL_MAX_LOOPS];
    int n_loops;
    int recording;   /* inside a graph capture */
    const cell_slots *slots; /* NULL: sequence b has row b of the states */
    cell_text *text; /* print instead of running */
    cell_error *err;
} cell_run;

/* The i-th place that an operation itself reads or writes, NULL behind the last. */
const cell_ref *cell_op_ref(const cell_op *op, int i);

/* Sizes and places of the buffers. bytes: workspace needed. */
cell_status cell_layout_workspace(cell_run *run, size_t *bytes);
cell_status cell_layout_reserve(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                                int64_t *offsets, size_t *bytes, cell_error *err);
cell_status cell_layout_bind(cell_run *run);

/* A call of the direction 'f' or 's' without a reserve, whose states are rows. It must reach them: */
cell_status cell_run_slots(cell_context *ctx, const cell_desc *desc, char which, const int64_t *sizes,
                           void *const *args, const cell_slots *slots);
/* Do all operations of that call which touch states find rows? */
int cell_slots_reach(cell_context *ctx, const cell_desc *desc, char which, const int64_t *sizes);

/* Runs operations [first, first + count) of the plan. */
cell_status cell_run_ops(cell_run *run, int first, int count);
/* Runs the body of the loop at index `at` for its range, once per value. */
cell_status cell_run_loop(cell_run *run, int at);
/* As cell_run_loop, through a recorded graph where possible. */
cell_status cell_run_loop_graph(cell_run *run, int at);
/* Asks the backend whether each kernel of the plan that will run can. */
cell_status cell_run_prepare(cell_run *run);

cell_status cell_run_eval(const cell_run *run, cell_expr expr, int64_t absent, int64_t *value);

#endif
