/* random_maker.h: what the makers of random cells draw and write with. m: a struct with
 * the members `Random random` and `Compiler *c`. */
#ifndef CELLC_RANDOM_MAKER_H
#define CELLC_RANDOM_MAKER_H

#include "case.h"

/* A number from 0 to n - 1; true in `percent` of 100 draws; a text that lives as long as the compiler. */
#define below(m, n) ((int)random_below(&(m)->random, (n)))
#define chance(m, percent) (below(m, 100) < (percent))
#define TEXT(m, ...) intern_f((m)->c, __VA_ARGS__)

#endif
