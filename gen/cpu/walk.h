/* walk.h: what the parts of a walk on the CPU share. walk_step.c finds what a step computes, in which passes
 * over the states and in which loops of them; walk_read.c says where a value that is read lies; walk_expr.c
 * prints an expression, of one element or of a vector of neighbours; walk_pass.c prints a step, walk.c the
 * function around the steps.
 *
 * A function takes items: places of the batch and of the parallel axes (heads), on which nothing mixes. The
 * states of one item lie in the thread's scratch memory while it walks over all steps. Every value of a step
 * is left with at most two indices of its own, one of which may be bound by a sum: `row` is that of an outer
 * loop, `col` that of an inner one, whose neighbours are the lanes of a vector. */
#ifndef CELLC_CPU_WALK_H
#define CELLC_CPU_WALK_H

#include "emit/emit.h"
#include "plan/plan.h"

/* WALK_ROWS: rows that a pass takes at once. */
enum { WALK_AXES = 16, WALK_ALIGN = 16, WALK_ROWS = 4 };

/* What an axis of a value is for an item: a parallel axis (par, not own), one of the value's own (own),
 * or both in one, the parallel index outermost. */
typedef struct WalkAxis {
    int par;
    bool own;
    int64_t n;
    IndexId local;
} WalkAxis;

/* Where an element that is read lies. */
typedef enum {
    AT_MEMORY, /* an argument, a value in the workspace or the reserve */
    AT_STATE, /* the state before the step */
    AT_AFTER, /* the way back: the state behind it */
    AT_ADJOINT, /* the adjoint of the state behind it */
    AT_VALUE, /* a value of the step */
    AT_PLACE /* nowhere: it is computed where it is read */
} WalkAt;
typedef struct WalkRead {
    WalkAt at;
    bool tensor; /* AT_MEMORY: `id` is a tensor */
    int id; /* a node or tensor; the number of the state or value */
    int n;
    /* over the reader's indices; of states and values: of their own axes only */
    const IxExpr *map[WALK_AXES];
} WalkRead;

/* Which indices stand for what: those of the array that is printed, in terms of the value's own and the
 * parallel ones. */
typedef struct WalkFrame {
    int n;
    const IndexId *from;
    const IxExpr *to[WALK_AXES];
} WalkFrame;

typedef struct WalkValue {
    NodeId array;
    int naxes;
    WalkAxis axes[WALK_AXES];
    int rank; /* own axes */
    int own[2]; /* which they are */
    bool reduces;
    ReduceOp op;
    NodeId body; /* behind the reduction */
    int nbound;
    IndexId bound[2];
    IndexId row, col; /* the loops' indices; -1: none */
    int64_t rows, cols; /* and how long they are, else 1 */
    bool over_row, over_col; /* bound by the reduction */
    int pass; /* even: no loop over rows; odd: one */
    int level; /* within the pass, for a row: behind what it waits for */
    bool with_rows; /* wanted: whoever has rows reads it at its own */
    int next_of; /* 1 + the state whose next value (or adjoint) it is; or 0 */
    bool out; /* it is stored in memory */
    bool variable; /* it lies in no memory: all readers are in its own loop */
    bool one_row; /* one row of it does: all readers are in its pass */
    const char *name; /* of where it lies */
    /* of the variable that has an element or vector of it, for each row at once */
    const char *var[WALK_ROWS];
} WalkValue;

typedef struct WalkState {
    TensorId tensor;
    const Tensor *t;
    int rank;
    int64_t extent[2];
    int64_t pitch, elements; /* of a row, and of all, in scratch memory: rows begin at whole vectors */
    NodeId root; /* the step's next value of it */
    const char *now, *next; /* what the step reads and writes */
    const char *after; /* the way back: the state behind the step */
    const char *adjoint;
    bool in_place; /* the next value may overwrite this one */
} WalkState;

typedef enum { WALK_FORWARD, WALK_REPLAY, WALK_BACK } WalkKind;

struct CpuWalk;
typedef struct WalkStep {
    struct CpuWalk *w;
    WalkKind kind;
    Vec(WalkValue) values; /* in the order of their arrays: each behind what it reads */
    int *value_of; /* per node: 1 + its number among them, or 0 */
    int passes;
} WalkStep;

/* A text that is computed once in a scope, and the variable that holds it. */
typedef struct WalkLocal {
    const char *text, *name;
} WalkLocal;
typedef struct WalkScope {
    Buf *out;
    Vec(WalkLocal) locals;
} WalkScope;

typedef struct CpuWalk {
    Plan *p;
    Program *pr;
    Module *m;
    Arena *arena;
    Walk *walk;
    bool is_double;
    int lanes; /* of a vector of `real` */
    int npar;
    const Poly *par_extent[MAX_PARALLEL];
    IndexId par[MAX_PARALLEL];
    Vec(WalkState) states;
    int interval; /* steps between checkpoints */
    bool *is_out; /* per node */
    int *after_of; /* per node: 1 + the state whose next value it is; or 0 */
    const Reason *refused;
    RefVec refs; /* the function's pointers */
    int64_t scratch; /* elements of `real` taken so far */
    Names names;
    Buf carves; /* declarations of what lies in scratch memory */

    /* while printing */
    WalkStep *step;
    const WalkValue *value;
    const WalkFrame *frame;
    int depth; /* of arrays that are computed in place around what is printed */
    bool vector; /* vectors of neighbours along `col`; else one element */
    int tail; /* the last vector has so many of them; 0: all */
    int rows, row; /* the pass takes so many rows at once, and this one of them is printed */
    bool guarded; /* under a condition: nothing is computed ahead of it */
    const char *col_text; /* of the index `col`, of one element */
    const char *lane; /* of one element: which lane of a vector's variables it is; or NULL */
    WalkScope step_head, row_head, body; /* the open scopes, from the outermost on */
    WalkScope *scalars; /* the scope that numbers are computed in; NULL: where they are used */
    int *uses; /* per node: how many read it in the expression that is printed */
    const char **memo; /* per node: its text */
    int n_uses;
    Vec(NodeId) touched; /* nodes with either */
    int numbered; /* variables so far */
} CpuWalk;

/* walk_step.c: what a step computes, and in which order. */
WalkStep *walk_step(CpuWalk *w, WalkKind kind);

/* walk_read.c */
void walk_refuse(CpuWalk *w, const Node *of, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const char *walk_text(CpuWalk *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool walk_stored(const CpuWalk *w, NodeId array); /* it lies in memory before the walk */
void walk_frame(CpuWalk *w, const WalkValue *v, WalkFrame *out);
const IxExpr *walk_ix(CpuWalk *w, const WalkFrame *f, const IxExpr *e);
/* Of a LOAD, VIEW or ARRAY. `values` may be NULL: every array that lies nowhere is AT_VALUE, and id the
 * node. */
WalkRead walk_read(CpuWalk *w, const WalkStep *s, const WalkFrame *f, NodeId id);
/* The frame of an array that is computed where it is read. */
WalkFrame walk_place_frame(CpuWalk *w, const WalkRead *r);
/* Calls for each read below an expression, through what is computed in place. */
typedef void WalkEach(void *data, const WalkRead *r, NodeId id);
void walk_each_read(CpuWalk *w, const WalkStep *s, const WalkFrame *f, NodeId id, WalkEach *each, void *data);
bool walk_is_index(const IxExpr *e, IndexId i);
int64_t walk_padded(const CpuWalk *w, int64_t n); /* up to whole vectors */
int walk_ref(CpuWalk *w, RefKind kind, int id);
const char *walk_name(CpuWalk *w, const char *base);
/* So many elements of scratch memory, called so. */
void walk_carve(CpuWalk *w, const char *name, int64_t elements);
const char *walk_element(const CpuWalk *w, Dtype d); /* what its loads and stores are called by: "f32" */
const char *walk_ctype(const CpuWalk *w, Dtype d);
bool walk_plain(const CpuWalk *w, Dtype d); /* it is what is computed in */

/* walk_expr.c */
const char *walk_ix_text(CpuWalk *w, const IxExpr *e);
const char *walk_poly_text(CpuWalk *w, const Poly *p);
/* The expression, in vector mode as a vector, converted and spread out; else as one number. */
const char *walk_real(CpuWalk *w, NodeId id);
void walk_begin_expression(CpuWalk *w, NodeId id); /* counts uses: once for each expression to print */
/* The address of an element in memory, and whether neighbours along `col` are neighbours there. The
 * index of the value's own axes is one of the two. */
const char *walk_address(CpuWalk *w, const WalkRead *r, bool *adjacent);
const char *walk_store_address(CpuWalk *w, const WalkValue *v);
/* A product's factors, if the expression is one that an accumulation may take. */
bool walk_product(CpuWalk *w, NodeId id, NodeId factors[2]);

/* walk_pass.c: one step as statements. */
void walk_print_step(CpuWalk *w, WalkStep *s, Buf *out);

/* walk.c: the whole function of the program's G_WALK group. False: it takes it not, and w->refused says
 * why. */
bool walk_print(CpuWalk *w, Plan *p, Program *pr, Group *g, Buf *out);

#endif
