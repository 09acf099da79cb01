/* scan.h: the units of schedule scan, and what one thread may compute of a step (scan.c). */
#ifndef CELLC_SCAN_H
#define CELLC_SCAN_H

#include "plan/formula.h"
#include "plan/plan.h"

/* Units and steps for which chunks of time pay: more units fill a device by themselves, fewer steps are one chunk. In pairs, a
 * block has 64 units instead of 32 from so many on. SCAN_WIDE: units whose words are 16 bytes. */
enum { SCAN_THREADS = 64, SCAN_WIDE = 8, CHUNK_UNITS = 1 << 17, CHUNK_STEPS = 16, BLOCK_UNITS = 1 << 14 };

/* The units of a cell's states; NULL: it has none, and why. */
Units *scan_units(Module *m, const char **why);
/* Are all elements of a unit few, with the terms of what it sums over, and is the unit that of the states? */
bool scan_form(const Plan *p, NodeId array);
/* The same of its axes alone. */
bool scan_axes(const Plan *p, NodeId array);
/* May the walk add its terms to sums over batch and time? */
bool scan_sums(const Plan *p, const Program *pr, NodeId sum);
/* Of all states, in registers of one thread. */
int64_t scan_state_elements(const Plan *p);
/* Threads of a block, and the numbers in its shared memory. */
int scan_threads(const Panel *w);
int64_t scan_shared(const Plan *p, const Panel *w);
/* scan_forms.c: the grid of the kernel that walks all steps, or of that which walks chunks of them at once; and do chunks pay? */
const Formula *scan_grid(Module *m, const Panel *w);
const Formula *scan_chunks_pay(Module *m, const Panel *w);
/* Is the value that is read there the own unit's, of a reader with these axes? */
bool scan_own(const Plan *p, const IndexId *axes, const Read *r);
/* Elements of an array or tensor behind its unit. */
int64_t scan_inner(const Plan *p, const Read *r);
/* Which of them is read. */
const IxExpr *scan_inner_linear(const Plan *p, const Read *r);
/* Once a plan is made: why a step of a direction is not such that each unit walks by itself; or NULL. */
const char *scan_refused(const Plan *p, const Program *pr);
/* The part of that which shows as soon as a direction's groups are made. */
const char *scan_too_many(const Program *pr);
/* kernels_scan.c: the text of a walk's kernel; fills its refs. */
void scan_print(Plan *p, Program *pr, Panel *w, Buf *out);
/* scan_launch.c: hook launch_walks. */
struct Print;
bool scan_launch(struct Print *e, const Formula **loop);
/* Takes the kernels of both directions into the plan. */
void scan_kernels(Plan *p);

#endif
