/* code.h: what kernels share that are built as trees (kir/kir.h), beside kernels.h: kernels_code.c has
 * their frames, and kernels_operand.c what they read, compute and store. */
#ifndef CELLC_CODE_H
#define CELLC_CODE_H

#include "kernels.h"
#include "kir/kir.h"

/* A kernel that is built. Texts of its Kernel are not used, but for names and pointers. */
typedef struct Code {
    Kernel *k;
    Kir *kir;
    ExprPrinter printer;
    const KirExpr **index;        /* per index id: its value in the scope, or NULL */
    int indices;
    const KirExpr **value;        /* per node: the local that holds it in the scope, or NULL */
    int values;
    /* of the group's axes, by position: ids are shared and rebound in between */
    const KirExpr *own[64];
    const KirExpr *b, *t;         /* batch element and step */
    const KirExpr *row;           /* b * T + t where rows run over both, else NULL */
    /* the rows of this step in rings of one and two, where one step is walked */
    const KirExpr *ring1, *ring2;
    Vec(const KirExpr *) pointers;/* beside the Kernel's */
    const KirExpr **sizes;        /* B, T, the dims, t0 */
    const KirExpr *adds, *saves;
    KirBlock head;                /* pointers */
    KirBlock body;
    Vec(Placed) placed;
    Vec(const KirExpr *) places;  /* of these */
    int depth, away;              /* as in Kernel */
} Code;

/* ---- kernels_code.c */

Code *code_new(Kernel *k, const char *name);
/* The kernel, cleaned and checked. */
Kir *code_end(Code *x);
/* Has one of the instance's plans before this one the same kernel by the same name? */
bool code_is_there(const Plan *p, Kir *kernel);
/* Prints it, and puts it among the instance's kernels; once: a plan for certain calls takes the kernel of
 * a plan before it, where that does the same, and else has another name for its own. */
void code_print(Plan *p, Kir *kernel, Buf *out);
void code_print_once(Plan *p, Kir *kernel, const char **name, Buf *out);
const KirExpr *code_int(Code *x, int64_t v);
const KirExpr *code_size(Code *x, const Poly *p);
const KirExpr *code_sizes(Code *x, const Poly *const *axes, int n);            /* their product */
const KirExpr *code_batch(Code *x);                                /* B and T of the call */
const KirExpr *code_steps(Code *x);
KirScalar code_real(const Code *x);                                /* what is computed with */
KirScalar code_scalar(Dtype t);
/* First element of this thread, and how many lie between its elements, where `threads` of a block share a
 * range; 0 and 1 on the CPU, where one thread has it all. */
const KirExpr *code_first(Code *x, const char *name, int threads);
const KirExpr *code_step(Code *x, const char *name, int threads);
const KirExpr *code_binary(Code *x, KirBinary op, const KirExpr *a, const KirExpr *b);
const KirExpr *code_add(Code *x, const KirExpr *a, const KirExpr *b);
const KirExpr *code_sub(Code *x, const KirExpr *a, const KirExpr *b);
const KirExpr *code_mul(Code *x, const KirExpr *a, const KirExpr *b);
/* A place, or a number, and an offset, summand by summand. */
const KirExpr *code_move(Code *x, const KirExpr *place, const KirExpr *offset);
KirOpen code_for(Code *x, const char *name, const KirExpr *first, const KirExpr *limit, const KirExpr *by,
                 const KirExpr **var);
const KirExpr *code_let(Code *x, const char *name, const KirExpr *value);      /* a whole number of 64 bits */
void code_comment(Code *x, NodeId id);
void code_split_element(Code *x, const IndexId *axes, int n, const KirExpr *e, const char *prefix);
void code_split_row(Code *x, const KirExpr *row);
const KirExpr *code_rows(Code *x);
const KirExpr *code_time_row(Code *x, const KirExpr *t, int ahead);

/* ---- kernels_operand.c */

extern const ExprNodes code_nodes;
const KirExpr *code_pointer(Code *x, RefKind kind, int id, Dtype type);
const KirExpr *code_written(Code *x, RefKind kind, int id, Dtype type);
/* Declares the shared parts of a value and gives the whole, as a real number; forgotten with `named`. */
const KirExpr *code_value(Code *x, NodeId body, Named *named);
void code_forget(Code *x, Named *named);
void code_store(Code *x, NodeId id, const KirExpr *value);

/* kernels_column.c: how many partial sums there are of each column. */
const KirExpr *code_chunks(Code *x, const KirExpr *rows, const KirExpr *columns);
/* kernels_state.c: what begins and ends a walk by steps, STATE_INIT and so on; and what a call leaves of a
 * history. */
void state_kernel(Code *x, int which);
void history_kernel(Code *x);

#endif
