/* schedule.h: a schedule, which is a way to walk over the steps of a cell: what the rest of the compiler asks
 * of one, in one struct. schedules.c has the table; a folder each has what a schedule does. Nothing outside
 * of its folder, but the table, names a schedule: the planner, the printers of kernels and of launches, and
 * the commands ask through the struct. A hook that is NULL has the answer that its comment says. */
#ifndef CELLC_SCHEDULE_H
#define CELLC_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

struct Buf;
struct FormList;
struct Formula;
struct Group;
struct Kernel;
struct Module;
struct Phasing;
struct Plan;
struct Poly;
struct Program;
struct Reason;

typedef struct Schedule Schedule;

/* Kernels that a schedule offers to the plans of all: they take several sums over the past in one pass (a
 * softmax and what it weighs). */
typedef struct PastPass {
    bool (*found)(const struct Plan *p);          /* has the cell such sums? */
    void (*own_slices)(struct Module *m, int *past);      /* what is read beyond the past becomes an array */
    /* What Group.pass is for one sum, and how many axes a block's index has; NULL: it takes none such. */
    void *(*opens)(const struct Plan *p, int32_t array, int *naxes);
    bool (*joins)(const struct Plan *p, const struct Group *g, int32_t array);
    void (*grows)(const struct Plan *p, struct Group *g);         /* it has one more array */
    void (*print)(struct Kernel *k);
    int steps;                    /* of a block's tile */
} PastPass;

/* What a schedule says of a plan that is made. why: it cannot take the cell, for this reason; NULL: it can.
 * again: another attempt may find that it can, with what is noted in the plan's Trial. said: if the schedule
 * was forced, all that there is to say was said. */
typedef struct Verdict { const struct Reason *why; bool again, said; } Verdict;

struct Schedule {
    const char *name;             /* of --schedule */
    const char *what;             /* what it does, for cellc explain */
    const char *what_on_cpu;      /* of one that the CPU has kernels for, likewise */

    /* ---- what kind of walk it is */

    bool stateless;               /* it takes cells without a state; else those that have one */
    bool on_chip;                 /* it prints the walk whole (Group.walk): what steps compute is in no group
                                   * and lies in no memory unless others read it; states do at checkpoints,
                                   * from which backward replays */
    bool per_unit;                /* a step is one group: a thread for each unit (Plan.units) walks it, and
                                   * has its states in registers */
    bool last_resort;             /* no kernel walks all steps, whatever the sizes of the call: it is warned
                                   * of */
    bool heads; /* a kernel walks all steps of a head, as an on_chip one does, in a plan as steps
                                   * has it: for a schedule that cuts, that plan's steps lie in memory */
    bool sums_steps; /* backward keeps what a step makes for the step alone, or for one sum over sequences
                                   * and steps, for one step and as that sum: memory does not grow with T for it */
    bool adds_products; /* a step's products are sums that its kernel adds, as all others; it is tried
                                   * where a schedule before it takes a cell, but has kernels for each step */
    bool sums_few; /* products of each head with a side of 8 elements or fewer are sums of rows or columns */
    const char *takes_hints; /* --schedule NAME:HINTS says how it walks (WalkHints): what these are,
                                   * "rows=N" and so on, with commas between them; or NULL */
    bool packed; /* it takes packed sequences: no kernel has the same step of several */
    bool plain_past;              /* values over the past are made at each place that reads them */

    /* ---- whether it takes a cell */

    /* A schedule that walks over several steps at once plans another module: the step without what it
     * walks, which this takes out of a module in normal form, before that has an adjoint. Its plans are for
     * calls of several steps, beside a plan by another schedule for all calls. NULL, or the reason why it
     * cannot. */
    const struct Reason *(*cut)(struct Module *m);
    /* Of one that takes cells without a state, whose plans of such a module are for all calls: what is left
     * to do once there is an adjoint. */
    void (*join)(struct Module *m);
    /* Of a module that it has cut, for tensors stored so: was it measured to be faster than the plan for all
     * calls, in the calls that it then takes (`takes`, of a request that is `unasked`)? in_memory: that plan
     * is kernels for each step, and not one kernel that walks all of them. Not asked of a schedule for cells
     * without a state, which is taken wherever it can cut. */
    bool (*pays)(const struct Module *m, int storage, bool in_memory);

    /* Why it is tried in front of those that stand before it in the order; NULL (and no hook): it is not. */
    const char *(*leads)(const struct Module *m);
    /* Makes sums of the module over, as its walk wants them, before anything else; false: there are none such.
     * An attempt has a module of its own. */
    bool (*rewrites)(struct Module *m);
    /* Before anything is planned: why it cannot take the cell; NULL: perhaps it can. May leave what it found
     * in the plan. */
    const struct Reason *(*refuses)(struct Plan *p);
    /* When all kernels of a plan are known; no hook: it takes the cell. */
    Verdict (*settle)(struct Plan *p);
    bool plans_as_next; /* a plan for which that said no is one of the next schedule in the order,
                                   * where neither of them rewrites the module */
    /* Is why it was refused worth a line of this plan? No hook: it is, of each. */
    bool (*tells)(const struct Plan *p);

    /* ---- the plan */

    /* Of a module that it has cut: once values are known, where operands and gradients of reads lie
     * (Plan.taken); once phases and the storage of arguments are known, that of what passes between the
     * step and the walk. `wanted`: per forward array, what backward is to find. */
    void (*begin)(struct Plan *p);
    void (*place)(struct Plan *p, const struct Phasing *forward, const struct Phasing *backward,
                  bool *wanted);
    /* The parallel axes of an on_chip walk: those that all states begin with whose elements have a block
     * each; their extents, at most MAX_PARALLEL; -1: more. No hook: it has none. */
    int (*blocks)(const struct Module *m, const struct Poly **extent);
    /* Marks the forward arrays of an on_chip walk that backward wants saved. */
    void (*saves)(struct Plan *p, bool *saved);
    /* per_unit: may a thread compute an array that the walk does not need itself? */
    bool (*takes_value)(const struct Plan *p, int32_t array);
    /* Once phases are known: what it takes into the walk beside, which it marks (Program.taken). */
    void (*take)(struct Phasing *s);
    /* per_unit: may the walk add the terms of a sum over batch and time? */
    bool (*takes_sum)(const struct Plan *p, const struct Program *pr, int32_t sum);
    /* Why a step of a direction is none for it, as far as that is planned: phases, or groups too; and of the
     * latter, what shows by their number. NULL: it takes it. */
    const struct Reason *(*refuses_step)(const struct Plan *p, const struct Program *pr);
    const struct Reason *(*refuses_groups)(const struct Plan *p, const struct Program *pr);
    /* Once a direction has all but what walks: adds that. Backward comes first. */
    void (*add_walk)(struct Plan *p, const struct Phasing *s);
    /* Finds the kernels that may walk all steps in place of the step's own, in a plan that is made but for
     * them. */
    void (*find_walks)(struct Plan *p);
    /* Flops of those kernels per sequence and step, which are in no group; no hook: there are none such. */
    const struct Poly *(*walk_flops)(const struct Plan *p, const struct Program *pr);
    bool (*has_tiles)(const struct Program *pr);  /* do these need instructions of sm_90a? No hook: they do
                                                   * not */

    const PastPass *pass;         /* or NULL */

    /* ---- what is printed of the kernels that walk all steps */

    /* The kernels of a direction, behind those of its groups. */
    void (*print_walks)(struct Plan *p, struct Program *pr, struct Buf *cuda);
    /* The same in C, of a plan for the CPU; no hook: it has none there. */
    void (*print_cpu)(struct Plan *p, struct Program *pr, struct Buf *c);
    /* Their forms, in order of preference (plan/forms.h). No hook: none. Where none may walk, the kernels of
     * a step do, over and over. */
    void (*forms)(const struct Plan *p, const struct Program *pr, struct FormList *out);
    /* Kernels that follow one another: the forms of stage `n` of a direction's walks of that level
     * (Tensor.level), of which one runs; false: there is none such. */
    bool (*stage)(const struct Plan *p, const struct Program *pr, int level, int n, struct FormList *out);
    /* Of a plan for CALLS_LONG: which calls these are. */
    const struct Formula *(*takes)(const struct Plan *p);
};

/* The one that cuts the step of cells that have a state, or none. */
const Schedule *schedule_that_cuts(bool stateless);
/* The kernels of the first that has some; or NULL. */
const PastPass *schedule_pass(void);

/* In the order in which they are listed; NULL behind the last. */
extern const Schedule *const schedules[];
/* In the order in which they are tried where none is forced. */
extern const Schedule *const schedule_order[];

/* Kernels and products, in a loop of the launch plan where there are steps: takes any cell that has a state,
 * or none. */
const Schedule *schedule_plain(bool stateless);

int schedule_count(void);
const Schedule *schedule_named(const char *name);               /* NULL: there is none, or it is "auto" */
/* Words that --schedule takes: "auto" and the names, with NULL behind the last. */
const char *const *schedule_choices(void);
const char *schedule_word(const Schedule *s);                   /* NULL: "auto" */
int schedule_number(const Schedule *s);                         /* in the list; -1: none */

#endif
