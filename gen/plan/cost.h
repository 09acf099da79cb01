/* cost.h: bytes and flops of one step of one sequence, and what is moved once per call (cost.c). */
#ifndef CELLC_COST_H
#define CELLC_COST_H

#include "plan.h"

typedef struct Cost {
    const Poly *flops;            /* per sequence and step; one per operator and element, a product's multiply and add two */
    const Poly *flops_once;       /* per call: of params alone, and what each sequence has once */
    const Poly *step;             /* bytes read and written per sequence and step */
    const Poly *once;             /* bytes per call: params, their gradients, what is the same for all */
} Cost;
bool computed_where_read(const Plan *p, const Program *g, NodeId array);  /* by no operation of its own */
Cost cost_of_array(const Plan *p, const Program *g, NodeId array);   /* what it writes, and its flops */
const Cost *cost_of_groups(const Plan *p, const Program *g);        /* reads, writes and flops, per group */
Cost cost_sum(const Plan *p, Cost a, Cost b);

#endif
