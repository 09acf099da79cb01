/* plan_pass.h: what the passes of the planner (plan_*.c) share. plan_passes.c has them in their order. Beside them,
 * only schedules include this: what the printers may ask is in plan.h. */
#ifndef CELLC_PLAN_PASS_H
#define CELLC_PLAN_PASS_H

#include "plan.h"
#include "reads.h"

/* What an array reads, through aliases: each array or tensor element once for each expression. */
typedef struct Use { Read read; bool plain; } Use;      /* plain: every map entry is an index of its own */
typedef struct Uses { Use *data; int len, cap; } Uses;

/* Per parallel axis of the walk in one kernel: which of an array's axes it is, plus 1; 0: none is known. */
typedef struct Heads { int axis[MAX_PARALLEL]; } Heads;

typedef struct Phasing {
    Plan *p;
    Program *g;
    const bool *stored;           /* forward arrays that backward finds in memory */
    bool *needed;                 /* per node: an array of this direction */
    bool *feeds;                  /* per node: reaches what is carried */
    bool *replayed;               /* per node: backward's walk computes it once more, for the states (tile) */
    Uses *uses;                   /* per node */
    int state_rank;               /* largest rank of a state */
    bool step_sums;               /* a step has sums that are no products and reach it */
    int walks; /* how many there are one behind the other; at least 1 */
    bool heads_product;           /* a step has a product that each head does with its own part of a param */
    int npar;                     /* axes of the walk's blocks; 0: there are none */
    Heads *heads;                 /* per node */
} Phasing;

/* Why schedules were refused, by their numbers in the table; NULL: they were not, or not tried. */
typedef struct Refusals {
    const Reason **why;
} Refusals;

static inline const Reason *refused(const Refusals *r, const Schedule *s)
{
    return r->why[schedule_number(s)];
}

/* An attempt at a plan, and what its passes leave for those behind them. */
typedef struct Planning {
    Plan *p;
    const Schedule *const *order; /* the schedule, with those that are tried behind it */
    Refusals *refusals;
    const Module *untouched; /* the module as no attempt has changed it */
    bool rewritten; /* by the schedule (Schedule.rewrites) */
    Phasing of[2]; /* from `phases` on: FORWARD, BACKWARD */
    bool *stored; /* likewise: per node, forward arrays that backward finds in memory */
    bool *wanted; /* from `arguments` on: per node, those of them that it reads */
    Verdict verdict; /* from `settle` on */
} Planning;

static inline const Node *at(const Plan *p, NodeId id)
{
    return &p->m->nodes.data[id];
}

static inline const Poly *extent_of(const Plan *p, IndexId i)
{
    return p->m->indices.data[i].extent;
}

/* Zeroed, for n nodes (and one more, so that none is not zero bytes); of the module's arena. */
void *plan_alloc(const Plan *p, size_t bytes, int n);

/* plan_operand.c */
void find_aliases(Plan *p);                              /* sizes what is kept per node, marks arrays that are names */
void round_operands(Plan *p);                            /* copies of what products cannot take; finds aliases */
/* Is the array a product? Then how (in g), and of which two values. one_step: within the walk. */
bool contraction_of(Plan *p, NodeId array, bool one_step, Gemm *g, NodeId factor[2]);
Dtype type_of_read(const Plan *p, const Read *r);        /* as it lies in memory */
Dtype plan_operand_type(const Plan *p);                  /* of the copies that products read */
unsigned rows_dep(const Plan *p, NodeId id);             /* DEP_BATCH, DEP_TIME: it is kept per sequence, per step */

/* plan.c */
bool steps_multiply(const Program *pr);                  /* has a step a product as a separate group? */
/* A line for each schedule that was refused. Before a plan is made: for those that every plan tells of; once it is
 * made: for those that decide by the plan (Schedule.tells). */
void tell_refusals(Plan *p, const Refusals *r, bool made);
const Reason *refuses_packed(const Module *m, const Schedule *s); /* packed sequences; NULL: it takes them */

/* plan_passes.c: runs all of them on s->p. false: the schedule does not take the cell (s->verdict). */
bool plan_run_passes(Planning *s);

/* plan_verify.c: what does not hold behind that pass, or NULL. uses: per node of a direction that has a phase, what it
 * reads. */
const char *plan_verify(const Plan *p, const char *pass, const Uses *const uses[2]);

/* plan_roots.c */
void split_roots(Plan *p);

/* plan_rounded.c */
void find_rounded(Plan *p);                              /* p->narrow */
void find_written_rounded(Plan *p);                      /* p->from_product, of the groups */
bool operand_read(const Plan *p, NodeId factor, Read *out);     /* of a product, which it takes as it lies in memory */
bool operand_is_rounded(const Plan *p, NodeId factor, const Read *r);      /* so that no copy is needed */

/* plan_past.c */
void own_slices(Plan *p);                                /* the heads of a softmax over the past, each for itself */
void find_past_values(Plan *p);                          /* p->past, p->passes */

/* plan_phase.c */
Uses plan_uses(const Plan *p, NodeId array);
/* Per node that has a phase in the direction. */
Uses *direction_uses(Plan *p, Direction dir);
Phasing phasing(Plan *p, Direction dir, const bool *stored);      /* fills the program's phases */
bool carried_tensor(const Phasing *s, TensorId t);       /* from step to step, in this direction */
bool is_stored(const Phasing *s, NodeId array);    /* by forward, so that backward need not compute it */
bool in_walk(const Phasing *s, const Read *r);    /* what is read is carried, or computed during the walk */
bool sums_over_batch(const Plan *p, NodeId array);
/* of the walk: a kernel's value, or one that an on_chip walk takes */
bool stands_in_front(const Plan *p, const Program *forward, NodeId array);

/* plan_heads.c */
bool crosses_blocks(const Phasing *s, NodeId array);     /* no block of the walk has all that it is made of; sets its heads */

/* plan_group.c */
void mark_cats(Plan *p, const Phasing *s); /* p->is_cat, in_place */
void find_summed(Plan *p, const Phasing *s); /* p->summed */
void mark_short_sums(Plan *p, const Phasing *s);         /* sums that are printed where they are read */
void make_groups(Plan *p, const Phasing *s);
bool is_root(const Module *m, NodeId id);
bool printed_inline(const Plan *p, const Program *pr, NodeId id);
bool copies_state(const Plan *p, NodeId id);

/* Through what is printed in its place and pieces laid together, too. */
Uses uses_through(const Phasing *s, NodeId array);
void into_group(Phasing *s, int group, NodeId array);
bool room_for(const Phasing *s, int group, int other);   /* has the group pointers enough for the other's arrays? */

/* plan_apart.c */
/* Is the array no sum, or one of one axis whose elements do not follow one another? strided: those of its
 * rows do. */
bool sums_apart(Plan *p, NodeId array, bool *strided);
bool sums_step_elements(const Phasing *s, NodeId sum);   /* of the step, at its own row: a kernel that has them can add them */
bool has_heads(const Phasing *s);
void join_sums_apart(Phasing *s);                        /* such sums to the kernels that have the elements */

/* plan_columns.c */
void join_columns(Plan *p, const Phasing *s);            /* sums over rows to the kernels that have the rows */
int kernel_of(const Program *pr, NodeId id);             /* the group whose kernel computes it; -1: none */

/* plan_added.c */
/* Products that are all of an argument's sum: there, without a kernel. wanted: of forward's arrays, by
 * backward. */
void add_products(Plan *p, const Phasing *s, const bool *wanted);

/* plan_rematerialise.c */
/* By its form alone: is the value pointwise, with more elements than each value of a sequence that it is
 * made of? */
bool grows_from_operands(const Plan *p, const Read *r);
/* Are there any? */
bool find_unstored(Plan *p, const Phasing *f, const Phasing *b); /* p->unstored, by the costs of both ways */
bool find_rematerialised(Plan *p, const Phasing *f, const Phasing *b, bool *stored); /* p->rematerialised */
bool find_computed_again(Plan *p, const Phasing *f, const Phasing *b, bool *stored);

/* plan_storage.c */
int add_buffer(Plan *p, const char *name, Dtype dtype, const Poly *elements, bool reserve, bool inference);
const Poly *row_count(Plan *p, bool batched, bool timed);
bool *stored_arrays(Plan *p, const Phasing *forward); /* per node: backward may find it in memory */
void tensor_storage(Plan *p, Program *pr);
void root_storage(Plan *p, Program *pr);
void carry_storage(Plan *p);                             /* of both directions */
void give_storage(Plan *p, Program *pr, NodeId id, bool reserve, bool inference);
void next_storage(Plan *p, const Phasing *s, const Phasing *backward, const bool *wanted);
void store_read_values(Plan *p, const Phasing *s, bool *wanted);  /* marks what forward must keep for backward */
void finish_cats(Plan *p, Program *pr);
void find_rings(Plan *p, const Phasing *s);

/* plan_between.c: of tensors between the step and the kernels of a schedule that cuts it. Where each is
 * taken from; the value of one that the step makes; does the direction read it; a buffer for it. */
void between_sources(Plan *p, Read (*source)(const Plan *p, TensorId t));
NodeId between_root(const Module *m, TensorId t);
bool between_is_read(const Phasing *s, TensorId t);
/* Gives the tensor the place of an argument of the call, for which no kernel then copies: where one is
 * nothing but the tensor, at places that are the argument's axes in any order, and nothing else reads
 * it. adds: whether the kernels can add what else the argument is, or NULL. False: it wants storage.
 * between_copy: that root, or -1. */
bool between_gives(Plan *p, const Phasing *s, TensorId t,
                   bool (*adds)(const Plan *p, NodeId root, NodeId more));
/* What reads the tensor in such a root; more: what is added to it, or -1. */
NodeId between_body(const Plan *p, NodeId root, TensorId t, NodeId *more);
NodeId between_copy(const Plan *p, const Program *pr, TensorId t);
/* between_kept: of all steps, for backward alone: where there is none, forward leaves it out. */
Storage between_kept(Plan *p, TensorId t, Dtype dtype);
Storage between_storage(Plan *p, TensorId t, bool timed, Dtype dtype, bool reserve);

/* plan_time.c */
void put_time_first(Plan *p);                            /* once it is known that no kernel walks the steps */

/* plan_codes.c */
void find_codes(Plan *p); /* once storage is final */
/* The product as it reads tensors in place of its operands. */
bool codes_contraction(Plan *p, NodeId array, TensorId a, TensorId b, Gemm *to);

/* plan_parts.c */
void find_parts(Plan *p);                                /* once storage is final */

/* plan_fused.c */
void find_fused(Plan *p);                                /* once storage is final */

/* plan_together.c */
void find_together(Plan *p); /* once no product changes */

/* plan_wanted.c */
void find_wanted(Plan *p, const Phasing *s);

/* plan_slow.c: performance warnings: where no kernel walks the steps, and why other schedules did not take
 * them, by their numbers; and at values that would be faster if they were written otherwise. */
/* Its steps are kernels, and none walks all of them. */
bool plan_unwalked(const Plan *p, const Program *pr);
void warn_of_schedule(Plan *p, const Reason *const *why);
void warn_of_values(Plan *p);

/* plan_shape.c */
void finish_groups(Plan *p, Program *pr);                /* threads, lanes, orders, buffers of partial sums */
bool rows_are_neighbours(Plan *p, const Group *g);
void name_kernels(Plan *p, Program *pr);

#endif
