/* forms.h: grids, shared memory and conditions of kernels, as formulas over a plan's sizes (forms.c). Those
 * of the walks on chip stand with their schedules. */
#ifndef CELLC_FORMS_H
#define CELLC_FORMS_H

#include "formula.h"
#include "plan.h"

/* One way to walk over all steps in a kernel. Of a list the first whose condition holds is taken. */
typedef struct Form {
    const char *kernel;
    const RefVec *refs;           /* its pointers, once it is printed */
    const char *words;            /* what it is, for people */
    const Formula *when;          /* NULL: it always may */
    const Formula *grid,
        *bytes; /* bytes of shared memory; NULL: none. On the CPU items, and bytes of scratch */
    const Formula *work; /* on the CPU: of an item, operations, roughly */
    int threads, cluster, cooperative;     /* as in cell_kernel */
    bool own_states;              /* it begins and ends the walk by itself; else other kernels do */
    const Poly *posts;            /* counters that its blocks post to, which are 0 before; or NULL */
    int posts_buffer;             /* of the plan, which has them */
} Form;
typedef struct FormList { Form *data; int len, cap; } FormList;

/* Which of an instance's plans a call gets: of those for certain calls (Plan.other), is it one of these; has
 * the device, for which there may be a smaller plan, the memory that the blocks of this one take, and
 * clusters? */
const Formula *form_takes_call(const Plan *p);
/* Of a plan that walks states in parts, when it has few enough: for half of the multiprocessors at most; smaller
 * states, and those of which backward undoes the steps, where each of their parts has a multiprocessor, and for
 * more steps than one (measured on an H200, 8 to 128 states of 64 x 64 to 128 x 128:
 * bench/notes/2026-11-28-states-in-parts.md). */
const Formula *form_few_states(const Plan *p);
const Formula *form_device_runs(const Plan *p);

const Formula *form_blocks(Module *m, const Poly *work, int per_block);
/* of a column sum, as plan.h has them */
const Formula *form_chunks(const Plan *p, const Poly *rows, const Poly *columns, bool by_rows);
/* as cell_shares has them */
const Formula *form_shares(Module *m, const Poly *n, int each, int most);
const Poly *form_rows(const Plan *p, const Group *g);              /* that a group's kernel goes over */

/* Of a kernel that takes vectors: elements, or vectors of them where all rows are such, so many to a
 * block. */
const Formula *form_vector_blocks(const Plan *p, const Group *g, const Poly *elements, int per_block);
/* ROW: threads of a block whose row stays in registers, `each` elements to a thread; and is its kernel for
 * odd rows the one to take? */
const Formula *form_row_threads(const Plan *p, const Group *g, int each);
const Formula *form_row_is_long(const Plan *p, const Group *g, int64_t smem);
const Formula *form_row_is_odd(const Plan *p, const Group *g);

/* Does the product take parts (plan_parts.c), and does any product take this copy? */
const Formula *form_takes_parts(const Plan *p, const Program *pr, const Gemm *g);
const Formula *form_copy_taken(const Plan *p, const Program *pr, const Parts *x);

/* Do the products of a set go as one batch (plan_together.c)? g is the first one of these. */
const Formula *form_goes_together(const Plan *p, Direction d, const Gemm *g);

/* Does the product take its operands' codes (plan_codes.c); and, of a group of their copies, is any of
 * these read? NULL: always. */
const Formula *form_takes_codes(const Plan *p, const Gemm *g);
const Formula *form_copies_read(const Plan *p, const Program *pr, const Group *g);

/* Pairs (plan_fused.c): does one kernel do both? The sums that each row is added to one of, and the rows of
 * partial sums that the pair or its group leaves. */
const Formula *form_fused(const Plan *p, const Fused *f);
const Formula *form_ahead_lanes(const Plan *p, const Fused *f);
const Formula *form_ahead_rows(const Plan *p, const Fused *f);

#endif
