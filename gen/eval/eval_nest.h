/* eval_nest.h: numbers that carry, beside the directions of a Dual, the derivatives of the inner gradients being
 * evaluated. Each such gradient is one level: it makes one element x + 1*e with e^2 = 0 and reads the factor of e
 * off the result. Levels nest, so a factor is itself a number with levels below. Private to the evaluator. */
#ifndef CELLC_EVAL_NEST_H
#define CELLC_EVAL_NEST_H

#include "base/util.h"
#include "eval_dual.h"

/* What a number holds of one level: a factor with levels below it only. Highest level first. */
struct Tail { int level; Dual factor; const Tail *next; };

typedef struct Nest {
    Arena *arena;
    int level;                    /* gradients being evaluated around this point */
    Vec(Tail *) blocks;           /* reused from the start when the outermost gradient is done */
    int used;
} Nest;

/* A function of the language: on plain numbers, and the slope towards each argument on any numbers. */
typedef struct Function1 { const char *name; Dual (*f)(Dual); Dual (*slope)(Nest *, Dual); } Function1;
typedef struct Function2 {
    const char *name;
    Dual (*f)(Dual, Dual);
    Dual (*slope[2])(Nest *, Dual, Dual);
} Function2;

/* NULL when there is none of that name. */
const Function1 *nest_function1(const char *name);
const Function2 *nest_function2(const char *name);
Dual nest_call1(Nest *n, const Function1 *f, Dual a);
Dual nest_call2(Nest *n, const Function2 *f, Dual a, Dual b);
Dual nest_add(Nest *n, Dual a, Dual b);
Dual nest_sub(Nest *n, Dual a, Dual b);
Dual nest_mul(Nest *n, Dual a, Dual b);
Dual nest_div(Nest *n, Dual a, Dual b);
Dual nest_exp(Nest *n, Dual a);
/* a times a power of two, which rounds nothing. */
Dual nest_shift(Nest *n, Dual a, int power);
/* The power of two with which the larger one of two numbers is about 1; even. */
int nest_shift_to_one(Dual a, Dual b);

/* a + 1*e of a level above all of a's, and the factor of that e in a number. */
Dual nest_vary(Nest *n, Dual a, int level);
Dual nest_factor(Dual a, int level);
/* Forgets all numbers with levels. */
void nest_reset(Nest *n);

#endif
