/* factors.h: a product as its factors (factors.c). */
#ifndef CELLC_FACTORS_H
#define CELLC_FACTORS_H

#include "ir.h"

typedef struct Factor {
    NodeId value;
    bool divides;
} Factor;
typedef struct Guard {
    NodeId condition, value;
} Guard; /* outside of the condition the value is 0 */
typedef struct Factors {
    Vec(Factor) all; /* in the order in which they stand; none of them a product, quotient or negative */
    Vec(Guard) guards;
    bool negative;
} Factors;

/* The factors of a value of reals: it is their product, the negative one where that is said. guards: of `c
 * ? x : 0` the factors of x, with the condition among the guards; else that is a factor as a whole. Makes
 * no nodes. */
Factors factors_of(const Module *m, NodeId value, bool guards);
/* product * f, or product / f where it divides; product -1: of nothing else. */
NodeId times_factor(Module *m, NodeId product, Factor f);

#endif
