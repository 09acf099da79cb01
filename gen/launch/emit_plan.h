/* emit_plan.h: what the parts share that print launch plans: emit_buffers.c, emit_ops.c, emit_products.c, emit_resident.c, and
 * emit_plan.c, which puts the tables of an instance together. */
#ifndef CELLC_EMIT_PLAN_H
#define CELLC_EMIT_PLAN_H

#include "emit/emit.h"
#include "emit_api.h"
#include "ir/arguments.h"
#include "schedule/resident/panel.h"
#include "schedule/scan/scan.h"
#include "schedule/window/window.h"

typedef struct Print {
    Plan *p;
    Program *pr;
    Buf *host;                    /* tables, in order of need */
    Buf ops;                      /* the operations of the direction */
    int n_ops;
    CallArgs args;
    int *buffer;                  /* per plan buffer: its number in this direction's list, -1 */
    Vec(int) used;                /* plan buffers in that order */
    Vec(const char *) exprs;      /* texts of expressions that were printed, by number */
    int *reserve;                 /* per plan buffer: its place in the reserve, -1 */
    Vec(const char *) kernels;
    Buf table;                    /* rows of the kernel table */
    int refs;
    HistoryKernel *histories;
    int n_histories;
    const char *tag;              /* before the names of tables */
    const char *rows;             /* what stands for T in strides of the operand at hand; NULL: T */
    StateKernels *states;
    Buf headed, walked;           /* gemm: not zero where blocks that have a head each walk the steps, where one kernel
                                   * does; empty: none does */
} Print;

/* ---- emit_buffers.c ---- */

/* Codes of a size expression, behind those that `out` has. */
Buf emit_program_new(Print *e);
void postfix_poly(Print *e, const Poly *p, Buf *out);
void postfix_times(Print *e, const Poly *p, int each, int times, Buf *out);
void postfix_chunks(Print *e, const Poly *rows, const Poly *columns, bool by_rows, Buf *out);     /* of a column sum, as plan.h has them */
void postfix_shares(Print *e, const Poly *n, int each, int most, Buf *out);                       /* as cell_shares has them */
void postfix_columns_blocks(Print *e, const Poly *units, Buf *x);  /* that have some of these units of one sequence each (columns.c) */
const char *emit_expr_name(Print *e, const Buf *program);          /* of the expression's array; equal programs share one */
const char *emit_poly_expr(Print *e, const Poly *p);
int emit_buffer_number(Print *e, int slot);                        /* of a buffer of the plan, in the direction's list */
int emit_storage_buffer(Print *e, const Storage *st);
int emit_ref_buffer(Print *e, Ref r);
int emit_arg_of(const Print *e, TensorId t, ArgRole role);         /* the argument's number */
const char *emit_buffer_bytes(Print *e, int slot, bool in_reserve); /* the reserve has all of its rows */
void emit_buffers(Print *e, const char *dir);                      /* the direction's list */

/* ---- emit_ops.c ---- */

/* Beside its group's need: under which condition, and what becomes args.t; NULL: none. odd: it is for the rows of which
 * the group has a second kernel. */
typedef struct LaunchTerms { const char *when, *t; bool odd; } LaunchTerms;

void postfix_not(Buf *x);
const char *emit_not_expr(Print *e, const Buf *condition);
const char *emit_need_name(Print *e, const Group *g);              /* the arguments of which one must be given; "NULL": it always runs */
const char *emit_blocks_expr(Print *e, const Poly *work, int per_block);
int emit_kernel_number(Print *e, const char *name);                /* the kernel's row is open: threads, shared memory and further fields follow */
int emit_refs(Print *e, const RefVec *refs);
void emit_kernel_op(Print *e, const Group *g, const char *name, int threads, int64_t smem, const RefVec *refs, const char *gx, const char *gy);
void emit_kernel_op_with(Print *e, const Group *g, const char *name, int threads, int64_t smem, const RefVec *refs, const char *gx,
                         const char *gy, LaunchTerms terms);
void emit_group_kernel(Print *e, Group *g);
void emit_scatter_op(Print *e, Group *g);                          /* sums at places */

/* ---- emit_products.c ---- */

void postfix_copy_taken(Print *e, const Parts *x, Buf *out);       /* 1 where any of the products takes its copy */
void emit_gemm(Print *e, Group *g);

/* ---- emit_fused.c ---- */

const char *emit_unless_fused(Print *e, const Fused *f);           /* the condition of its product and its other group, each by itself */
void postfix_unless_fused(Print *e, const Fused *f, Buf *out);     /* multiplies by it */
const char *emit_ahead_rows(Print *e, const Fused *f);             /* rows of partial sums that the pair or its group leaves */
void emit_fused_kernel(Print *e, Fused *f);                        /* its row; before those conditions and its operation */
void emit_fused_op(Print *e, const Fused *f);

/* ---- emit_resident.c ---- */

void emit_panel_op(Print *e, Panel *w, const char *grid, const char *when, int kernel);
const char *emit_panel_walk(Print *e);   /* the kernels that walk all steps; the condition under which a loop is needed after all */

/* ---- emit_plan.c ---- */

void emit_states(Print *e, int which);   /* copies of states before and behind the loop; blocks that have a head do this themselves */

#endif
