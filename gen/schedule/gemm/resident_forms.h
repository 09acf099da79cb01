/* resident_forms.h: grids, shared memory and conditions of the kernels that walk all steps with the weights on chip
 * (resident_forms.c). w: a panel of that kind. */
#ifndef CELLC_RESIDENT_FORMS_H
#define CELLC_RESIDENT_FORMS_H

#include "plan/formula.h"
#include "panel.h"

/* Blocks that walk together, all of which the device has to hold at once. */
const Formula *panel_grid(Module *m, const Panel *w);
const Formula *panel_bytes(const Plan *p, const Panel *w);
const Formula *panel_fits(const Plan *p, const Panel *w);

/* A block for each head of some sequences. */
const Formula *head_grid(Module *m, const Panel *w);
const Formula *head_bytes(const Plan *p, const Panel *w);
const Formula *head_fits(Module *m, const Panel *w);

/* A cluster for each head of some sequences. May it be faster than a block, and is it? */
const Formula *cluster_grid(Module *m, const Panel *w);
const Formula *cluster_bytes(Module *m, const Panel *w);
const Formula *cluster_fits(Module *m, const Panel *w);
bool cluster_may_pay(const Panel *w);
const Formula *cluster_pays(Module *m, const Panel *w);

/* Blocks of some units of one sequence each. */
const Formula *columns_grid(Module *m, const Poly *units);
const Formula *columns_bytes(Module *m, const Panel *w);
const Formula *columns_fit(Module *m, const Panel *w);

#endif
