/* folded.h: factors that params make, in the matrix of the product that they multiply (folded.c). */
#ifndef CELLC_FOLDED_H
#define CELLC_FOLDED_H

#include "ir.h"

/* The pass, where Module.fold asks for it: the matrices that it made are in Module.folded. */
void fold_factors(Module *m);

#endif
