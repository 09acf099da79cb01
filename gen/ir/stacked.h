/* stacked.h: products of one vector with several params as one product (stacked.c). */
#ifndef CELLC_STACKED_H
#define CELLC_STACKED_H

#include "ir.h"

/* The pass: of which vectors, Module.stack says; what it made is counted in Module.stacked. */
void stack_products(Module *m);

#endif
