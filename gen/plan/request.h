/* request.h: what a plan is asked for, and what attempts at it have found. A cell may be planned several
 * times: for GPUs with less shared memory, and for calls with few or many blocks; each plan has its own
 * Request, which is passed down and never changed. Within one plan the planner may try several times
 * (plan.c), by one schedule after another; what one of these knows for its next attempt is the Trial. */
#ifndef CELLC_REQUEST_H
#define CELLC_REQUEST_H

#include "base/compiler.h"
#include "schedule/schedule.h"

/* A plan is for any calls; or, beside such a one, for those whose blocks (B times the parallel extents) are
 * no more than the GPU has multiprocessors, or more than CROWD on each; or for those of several steps
 * (Schedule.cut); or for those of so few steps that laying params together for one product (ir/stacked.c)
 * takes longer than a product for each; or for those with so few states that parts of these are walked
 * (ir/split_states.c). */
typedef enum { CALLS_ANY, CALLS_FEW, CALLS_MANY, CALLS_LONG, CALLS_SHORT, CALLS_SPLIT } Calls;
struct Formula;

typedef struct Request {
    Dtype dtype;                  /* storage of inputs, params and outputs */
    const Schedule *schedule;     /* the one that is forced; or NULL */
    WalkHints hints;              /* what somebody else has chosen of a walk */
    Products products;
    const char *archs;            /* GPUs that must run the kernels; NULL: those with the most memory */
    int64_t block_memory;         /* bytes of shared memory that a block may have; 0: what the GPUs with most have */
    bool one_block;               /* there are no clusters of blocks */
    bool cpu; /* for the CPU: no products of parts, no kernels of several groups */
    Calls calls;                  /* the calls that it is for */
    const struct Formula *when; /* CALLS_SHORT: which these are */
    bool spread;                  /* CALLS_FEW: there are several multiprocessors for each state */
    bool unasked; /* the schedule cuts the step (Schedule.cut) and is not forced: it is for
                                   * calls where it pays, and for cells where it does */
    bool in_memory;               /* unasked: the plan for all calls is kernels for each step */
} Request;

typedef struct Trial {
    bool no_made;                 /* kernels make what stands in front of a walk: its steps have barriers */
    int cluster;                  /* blocks that share a state under tile; 0: not known yet */
    int interval;                 /* of such a cluster, the steps between checkpoints at most; 0: as many as have room */
    int fewer;                    /* steps between checkpoints at most, so that block_memory is kept; 0: likewise */
    unsigned along_rows;          /* bit k: the k-th vector among the states goes along the rows of square
                                   * matrices under tile, not along their columns */
} Trial;

/* The request of a compilation: for any calls, on the GPUs that have most. */
Request request_of(const Compiler *c);

#endif
