/* param_gradients.h: gradients of params as products of all steps (param_gradients.c). */
#ifndef CELLC_PARAM_GRADIENTS_H
#define CELLC_PARAM_GRADIENTS_H

#include "ir.h"

/* The pass, behind differentiate. The order of roundings changes: a sum over the steps, then the factors that are the
 * same in each. */
void form_gradients(Module *m);

#endif
