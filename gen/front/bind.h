/* bind.h: what expand.c and resolve.c use of bind.c and of each other, beside flat.h. */
#ifndef CELLC_BIND_H
#define CELLC_BIND_H

#include "flat.h"

/* Where an expression is bound: its scope, the indices in scope, the equation it belongs to, the call around
 * it. */
typedef struct Binding {
    Flat *f;
    Scope *scope;
    Instance *inst;
    Equation *eq;
    const struct Binding *outer; /* of the call that is being expanded */
    FIndex *inner;               /* innermost index in scope */
    const FIndex *limit;         /* names of indices are looked up to here, not beyond the call */
    const CallSite *chain;
    int depth;     /* calls */
    int level;     /* nesting of operations, through calls */
    bool in_index; /* inside brackets: / and % are integer operations */
    bool guarded;  /* in a branch of ?: */
    bool implicit; /* an initial value: unknown bare names are indices */
    int nimplicit;
    FIndex *implicit_index[MAX_AXES_OF_VALUE];
} Binding;

/* Binds the equations of the symbols, expanding calls, and puts the symbols into an order of evaluation. A
 * cycle is diagnosed. */
void bind_symbols(Flat *f, SymbolVec *symbols, const Binding *outer);

/* lower.c: is there a reduction in the expression, outside of arrays? Also true when it is too large to see. */
bool has_reduction(const Module *m, NodeId id, int *budget);
/* inner_grad.c: the gradient that an F_GRAD asks for, of a value under a cotangent (held -1: 1). */
NodeId inner_grad(Flat *f, const FExpr *x, NodeId of, NodeId held);

/* Extents are at least 1: an error (and false) where that cannot be, a check at the call where it is not
 * certain. */
bool require_positive(Flat *f, const Poly *extent, Span span, const CallSite *chain);
bool poly_is_small(const Poly *p);

#endif
