/* emit_plan.h: what the parts share that print launch plans: emit_buffers.c, emit_ops.c, emit_products.c,
 * emit_walk.c, and emit_plan.c, which puts the tables of an instance together. */
#ifndef CELLC_EMIT_PLAN_H
#define CELLC_EMIT_PLAN_H

#include "emit/emit.h"
#include "emit_api.h"
#include "ir/arguments.h"
#include "plan/forms.h"

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
    KernelNames kernels;
    Buf table;                    /* rows of the kernel table */
    int refs;
    HistoryKernel *histories;
    int n_histories;
    const char *tag;              /* before the names of tables */
    const Formula *rows;          /* what stands for T in strides of the operand that is printed; NULL: T */
    StateKernels *states;
    const Formula *walked;        /* one kernel walks all steps; NULL: none does */
    const Formula *own_states;    /* it begins and ends the walk by itself; NULL: none does */
    struct CpuPlan *cpu; /* emit_cpu.c: kernels for the CPU; or NULL */
} Print;
typedef struct CpuPlan CpuPlan;

/* ---- emit_buffers.c ---- */

/* The name of its array, which equal ones share; of no formula (NULL) "NULL". */
const char *emit_expr(Print *e, const Formula *f);
const char *emit_poly_expr(Print *e, const Poly *p);
const char *emit_number_expr(Print *e, int64_t v);
const char *emit_blocks_expr(Print *e, const Poly *work, int per_block);
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

const char *emit_need_name(Print *e, const Group *g);              /* the arguments of which one must be given; "NULL": it always runs */
bool emit_has_kernel(const Print *e, const char *name);             /* has it a row in the table? */
int emit_kernel_index(const Print *e, const char *name);            /* of one that has a row */
int emit_kernel_number(Print *e, const char *name);                /* the kernel's row is open: threads, shared memory and further fields follow */
int emit_cpu_row(Print *e, const char *name); /* likewise, of a kernel for the CPU */
void emit_limit_refs(Print *e, const char *name, const RefVec *refs); /* too many are an error */
/* The field of a walk back that says what others want; "". */
const char *emit_wanted(Print *e, const Group *g, const RefVec *refs);
void emit_zeros(Print *e, const Group *g); /* what no position of a SCATTER group adds to */
int emit_refs(Print *e, const RefVec *refs);
void emit_kernel_op(Print *e, const Group *g, const char *name, int threads, int64_t smem, const RefVec *refs, const char *gx, const char *gy);
void emit_kernel_op_with(Print *e, const Group *g, const char *name, int threads, int64_t smem, const RefVec *refs, const char *gx,
                         const char *gy, LaunchTerms terms);
void emit_group_kernel(Print *e, Group *g);
void emit_scatter_op(Print *e, Group *g);                          /* sums at places */

/* ---- emit_products.c ---- */

void emit_gemm(Print *e, Group *g);
int emit_together(Print *e, int i); /* the products that go together, from group i on; the last of them */
void emit_places_kernel(const Plan *p, Buf *cuda); /* that says where their matrices are; if there are such */

/* ---- emit_fused.c ---- */

void emit_fused_kernel(Print *e, const Fused *f);           /* its row, in front of what names it */
void emit_fused_op(Print *e, const Fused *f);

/* ---- emit_walk.c ---- */

void emit_walk(Print *e, bool states);   /* the operations of all steps; states: kernels begin the walk, where
                                          * it does not do so itself */

/* ---- emit_plan.c ---- */

void emit_states(Print *e, int which);   /* copies of states before and behind the walk */
void emit_phase(Print *e, Phase phase);  /* the operations of its groups */

/* Do kernels of their own begin and end the walk? */
bool emit_has_state_kernels(const Plan *p);
int emit_find_histories(Plan *p, HistoryKernel *out); /* in the order in which they are written */
void emit_directions(Print *e, int *n_reserve); /* the tables of both directions, and of the reserve */
const char *emit_schedule_words(const Plan *p);
/* More buffers or kernels than there may be: an error, and true. */
bool emit_is_too_large(const Plan *p);

/* An operation that has others inside: those that are printed until it is closed. head: what stands between
 * its name and the number of these. */
typedef struct Opened { Buf before; int at; } Opened;
Opened emit_open(Print *e);
bool emit_drop_empty(Print *e, const Opened *o);     /* nothing was printed inside: takes it back */
void emit_close(Print *e, const Opened *o, const char *name, const char *head);
void emit_forms_end(Print *e, const Opened *o, const char *name);    /* they are forms of one piece of work */
/* when: a condition's name, or "NULL" */
void emit_list_end(Print *e, const Opened *o, const char *name, const char *when);

#endif
