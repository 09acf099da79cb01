/* gemm_kernels.h: what the printers of the kernels share that walk all steps of schedule gemm: kernels_panel.c, kernels_alone.c,
 * kernels_columns.c, kernels_panel_sums.c. k->panel is never NULL in the first two. */
#ifndef CELLC_GEMM_KERNELS_H
#define CELLC_GEMM_KERNELS_H

#include "kernels/kernels.h"

/* ---- kernels_panel.c */

/* All groups of a step, and behind how many of them the product stands. */
PanelLoop *panel_groups(Kernel *k, int *n, int *product);
bool panel_is_product(const Kernel *k, NodeId id);
bool panel_sum_stays(const Kernel *k);                     /* in the step: nothing else reads what the product gave */
bool panel_waits_for(const Kernel *k, const Storage *st);  /* do other blocks, or threads? */
/* Hooks: a local with the product's sum; what is read ahead; what another group of the step left; what nothing reads. */
const char *panel_held(Kernel *k, const Read *r);
const char *panel_read_ahead(Kernel *k, const Read *r, const char *s, const AheadRead *as);
const char *panel_left(Kernel *k, NodeId id, const char *s, bool carried);
bool panel_leaves_out(const Kernel *k, NodeId id);
/* Stores a value, now or behind what others wait for, under a condition or none (NULL), and leaves it to the step's other groups. */
void panel_store(Kernel *k, NodeId id, const char *value, bool now, const char *condition);

/* ---- kernels_panel_sums.c: sums over batch and time in a kernel that walks all steps. Their locals; the terms of the group
 * that is printed; whether a group (number) has any; and what stores those of sequence b, with `before` in front of each. */
void step_sums_declare(Kernel *k);
void step_sums_add(Kernel *k);
bool step_sums_of(const Kernel *k, int group);
void step_sums_store(Kernel *k, int group, const char *before);

/* ---- kernels_alone.c: a kernel whose threads have an element each for all steps */

extern const KernelHooks alone_hooks;
void print_alone(Kernel *k);

#endif
