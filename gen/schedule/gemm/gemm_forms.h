/* gemm_forms.h: grids, shared memory and conditions of the kernels that walk all steps with the weights on chip
 * (gemm_forms.c). w: a panel of that kind. */
#ifndef CELLC_GEMM_FORMS_H
#define CELLC_GEMM_FORMS_H

#include "panel.h"
#include "plan/forms.h"

/* The kernels that a direction has, in order of preference. Where none is taken, kernels go step by step. */
void gemm_forms(const Plan *p, const Program *pr, FormList *out);

/* Blocks that walk together, all of which the device has to hold at once. */
const Formula *panel_grid(Module *m, const Panel *w);
const Formula *panel_bytes(const Plan *p, const Panel *w);
const Formula *panel_fits(const Plan *p, const Panel *w);

/* A block for each head of some sequences. */
const Formula *head_grid(Module *m, const Panel *w);
const Formula *head_bytes(const Plan *p, const Panel *w);
const Formula *head_fits(Module *m, const Panel *w);

/* A cluster for each head of some sequences; and is it faster than a block? */
const Formula *cluster_grid(Module *m, const Panel *w);
const Formula *cluster_bytes(Module *m, const Panel *w);
const Formula *cluster_fits(Module *m, const Panel *w);
const Formula *cluster_pays(Module *m, const Panel *w);

/* Blocks of some units of one sequence each. */
const Formula *columns_grid(Module *m, const Poly *units);
const Formula *columns_bytes(Module *m, const Panel *w);
const Formula *columns_fit(Module *m, const Panel *w);

#endif
