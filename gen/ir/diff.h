/* diff.h: the reverse sweep of differentiate.c for one value and one tensor or array, as inner_grad.c uses it.
 * What it makes is plain IR, which differentiates again. */
#ifndef CELLC_DIFF_H
#define CELLC_DIFF_H

#include "ir.h"

typedef struct Diff Diff;

typedef struct DiffInner {
    NodeId of;                    /* what is differentiated */
    TensorId tensor;              /* with respect to all reads of this tensor; -1: of the array */
    NodeId array;                 /* with respect to this array, as if it depended on nothing; -1: of the tensor */
    const char *(*name_of)(void *naming, NodeId array);   /* names the adjoint of an array */
    void *naming;
} DiffInner;

/* Finds what lies between the two; *inner must outlive it. */
Diff *diff_inner(Module *m, const DiffInner *inner);
/* Does this node (up to `of`) depend on the variable, by a way that a derivative takes? */
bool diff_reaches(const Diff *d, NodeId id);
/* The gradient, for a cotangent per place of `of`, as an expression over *axes, those of the variable. */
NodeId diff_inner_value(Diff *d, NodeId seed, const IndexId **axes);

#endif
