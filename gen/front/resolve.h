/* resolve.h: what ranges.c, prove.c and resolve.c share: the walk over the equations. */
#ifndef CELLC_RESOLVE_H
#define CELLC_RESOLVE_H

#include "bind.h"

enum { MAX_FACTS = 24, MAX_GUARD_INDICES = 64 };

typedef struct Walk {
    Flat *f;
    Equation *eq;
    const FIndex *guard[MAX_GUARD_INDICES]; /* inferring: indices that stand in a condition around */
    int nguard;
    const IxExpr *fact[MAX_FACTS]; /* checking: what is known to be >= 0 */
    int nfacts;
} Walk;

#define WALK_ERROR(w, x, span, ...) FLAT_ERROR((w)->f, (x)->chain, (span), __VA_ARGS__)

/* ranges.c: extents and shapes of the symbols and of all calls in them; `around` is the walk of a calling
 * equation. */
void infer_symbols(Flat *f, SymbolVec *symbols, Walk *around);
/* Does it name t, the number of the step? */
bool has_step(const FExpr *x);

/* prove.c */
const char *poly_shown(Flat *f, const Poly *p);
const char *shown(Flat *f, const Symbol *s); /* the name in quotes, or with its prime */
const Poly *minus_one(Flat *f, const Poly *p);
const Poly *negative(Flat *f, const Poly *p);
/* 0 <= ix < the extent of that axis, under the walk's facts; a failure is diagnosed at `arg`. */
void require_inside(const Walk *w, const FExpr *arg, const IxExpr *ix, const Symbol *array, int axis);
/* enumerate.c: is a whole number that is no index expression below the extent, and not below 0, for all values of its
 * indices that the walk's facts allow? Only where their extents are known. */
bool stays_inside(const Walk *w, const FExpr *at, const Poly *extent);
/* The step is this one or an earlier one, under the walk's facts; a failure is diagnosed at `time`. */
void require_not_later(const Walk *w, const FExpr *time, const IxExpr *step, const Symbol *array);
/* The truth of a checked condition on numbers that are known when the cell is compiled, such as the index of
 * a repeat: 1, 0; else -1. */
int decided(const FExpr *condition);
/* Adds what follows from a checked condition being true or false. */
void assume(Walk *w, const FExpr *condition, bool truth);

#endif
