/* concatenated.h: products of several vectors that are added up, as one product (concatenated.c). */
#ifndef CELLC_CONCATENATED_H
#define CELLC_CONCATENATED_H

#include "ir.h"

/* The pass, where Module.stack asks for it: the sums that it gave one product in place of several are counted
 * in Module.concatenated. */
void concatenate_products(Module *m);

#endif
