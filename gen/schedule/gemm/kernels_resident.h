/* kernels_resident.h: what the printers of the kernels share that walk all steps of schedule gemm:
 * kernels_resident.c, kernels_grid.c, kernels_head.c, kernels_columns.c, kernels_resident_sums.c. */
#ifndef CELLC_KERNELS_RESIDENT_H
#define CELLC_KERNELS_RESIDENT_H

#include "kernels/kernels.h"
#include "resident.h"

/* A sum over batch and time that a thread adds up as it walks the steps: the local that has it, which equal
 * terms of a group share, and the column of the partial sums that it goes to. */
typedef struct StepSum {
    const char *name, *term;
    bool shares;
    int group;
    int buffer, number;
    const char *columns, *column;
} StepSum;

/* kernels_columns.c: what a read of a thread that has some columns and units depends on. */
typedef enum { COLUMNS_OF_NONE, COLUMNS_OF_UNIT, COLUMNS_OF_COLUMN, COLUMNS_OF_BOTH } ColumnsPart;

/* The parts of such a kernel: texts of an element's indices; locals and what reads them before a product,
 * what is stored behind it, and the values that this keeps. */
typedef struct ColumnsText {
    const char *unit, *column;
    const char *own, *place; /* what stands for an element's place, units beside each other, and what
                                   * it is */
    bool element; /* what is printed is of an element */
    Buf names, reads[COLUMNS_OF_BOTH + 1], late, last;
    Texts kept;
    Texts rows[2]; /* where those places begin, of reads and of stores */
    Buf row_names[2];
} ColumnsText;

/* What such a kernel keeps while it is printed (Kernel.of_schedule). */
typedef struct GemmKernel {
    const ResidentWalk *w;
    int group; /* number of the group that is printed */
    int pieces; /* of its axis, of which a thread has a unit each; mostly 1 */
    const bool *crosses; /* per node: resident_crosses, where a thread has one element at all steps;
                                   * or NULL */
    ColumnsText *columns; /* kernels_columns.c: while it is printed */
    Texts left; /* values that one group of a step makes and another reads, by their
                                   * nodes */
    Buf fetched; /* what brings reads ahead near before */
    Buf *now; /* stores that others wait for */
    Buf updates; /* of threads that have an element: the step's new states */
    Vec(StepSum) step_sums; /* of the groups that are printed */
} GemmKernel;

static inline GemmKernel *gemm(const Kernel *k)
{
    return k->of_schedule;
}

/* ---- kernels_resident.c */

const char *resident_weight(Kernel *k, const ResidentProduct *x); /* its pointer */
const char *resident_weight_from(Kernel *k,
                                 const ResidentProduct *x); /* where its part of the param begins */
const char *resident_sums_name(Kernel *k, const ResidentProduct *x); /* where a block has its sums */
/* The local that says how many elements a block has of what is pointwise over these units. */
const char *resident_elements(Kernel *k, const Poly *units);

/* All groups of a step, and behind how many of them the product stands. */
WalkGroup *resident_groups(Kernel *k, int *n, int *product);
bool resident_is_product(const Kernel *k, NodeId id);
bool resident_sum_stays(const Kernel *k, const ResidentProduct *x); /* in the step: nothing else reads it */
/* The product whose operand lies as the storage says, or, without one, in that slot: others wait for it. Or
 * NULL. */
const ResidentProduct *resident_waits(const Kernel *k, const Storage *st, int slot);
/* Hooks: a local with the product's sum; what is read ahead; what another group of the step left; what
 * nothing reads. */
const char *resident_held(Kernel *k, const Read *r);
const char *resident_read_ahead(Kernel *k, const Read *r, const char *s, const AheadRead *as);
const char *resident_left(Kernel *k, NodeId id, const char *s, bool carried);
bool resident_leaves_out(const Kernel *k, NodeId id);
/* Stores a value, now or behind what others wait for, under a condition or none (NULL), and leaves it to the
 * step's other groups. */
void resident_store(Kernel *k, NodeId id, const char *value, bool now, const char *condition);

/* ---- kernels_resident_sums.c: sums over batch and time in a kernel that walks all steps. Their locals; the
 * terms of the group that is printed; whether a group (number) has any; and what stores those of sequence b,
 * with `before` in front of each. */
void step_sums_declare(Kernel *k);
void step_sums_add(Kernel *k);
bool step_sums_of(const Kernel *k, int group);
void step_sums_store(Kernel *k, int group, const char *before);

/* ---- kernels_grid.c, kernels_head.c, kernels_columns.c: a kernel each, by where its elements lie */

extern const KernelHooks grid_hooks, head_hooks, columns_hooks;
void print_grid(Kernel *k);
void print_head(Kernel *k);
void print_columns(Kernel *k);

#endif
