/* resident_forms.h: grids, shared memory and conditions of the kernels that walk all steps with the weights
 * on chip (resident_forms.c). */
#ifndef CELLC_RESIDENT_FORMS_H
#define CELLC_RESIDENT_FORMS_H

#include "resident.h"
#include "plan/forms.h"

/* The kernels that a direction has, in order of preference. Where none is taken, kernels go step by step. */
void resident_forms(const Plan *p, const Program *pr, FormList *out);
/* The blocks of a walk of columns: each has some units of one sequence. */
const Formula *columns_grid(const Plan *p, const ResidentWalk *w);

#endif
