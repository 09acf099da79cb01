/* hints.h: what stands behind --schedule NAME: (hints.c). */
#ifndef CELLC_HINTS_H
#define CELLC_HINTS_H

#include "base/compiler.h"
#include "schedule/schedule.h"

/* Reads "cluster=4:interval=2" for a schedule that takes hints; NULL, or what is wrong with it, with "--
 * schedule NAME" to stand before it. */
const char *hints_read(Compiler *c, const char *text, const Schedule *s, WalkHints *hints);
/* What hints_read reads, "" for none. */
const char *hints_text(Compiler *c, const WalkHints *hints);
/* As "2x16/1x4". */
const char *layout_text(Compiler *c, const LayoutHint *layout);
/* May a walk in this direction (1: backward) have this layout? */
bool hints_allow(const WalkHints *hints, int direction, const LayoutHint *layout);
/* Do they leave the planner no layout to choose? */
bool hints_choose(const WalkHints *hints, int direction);

#endif
