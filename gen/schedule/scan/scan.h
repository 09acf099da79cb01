/* scan.h: the units of schedule scan, and what one thread may compute of a step (scan.c). */
#ifndef CELLC_SCAN_H
#define CELLC_SCAN_H

#include "plan/forms.h"

/* Units and steps for which chunks of time pay: more units fill a device by themselves, fewer steps are one chunk. In pairs, a
 * block has 64 units instead of 32 from so many on. SCAN_WIDE: units whose words are 16 bytes. */
enum { SCAN_THREADS = 64, SCAN_WIDE = 8, CHUNK_UNITS = 1 << 17, CHUNK_STEPS = 16, BLOCK_UNITS = 1 << 14 };

/* A kernel that walks all steps, a thread for each unit; or (chunks) chunks of them at once. */
typedef struct ScanWalk {
    const Poly *units;
    int chunks;                   /* of steps of 32 units, which a block walks at once; or 0 */
    bool pairs;                   /* each of its threads has two neighbours of the units */
    bool replays;                 /* backward: a chunk's states are made anew from that before it, which is
                                   * all that forward's chunks save of them */
    int steps;                    /* of a chunk; filled while the kernel is printed */
    int64_t staged;               /* bytes of shared memory that the next chunk's reads arrive in; filled
                                   * likewise */
    const char *kernel;
    RefVec refs;                  /* filled likewise */
    Buf cuda;                     /* the text of chunks, which are printed before their place */
} ScanWalk;

/* The kernels of a direction (Program.walks). */
typedef struct ScanWalks {
    ScanWalk *walk, *chunks;      /* chunks: where states are linear; or NULL */
    NodeId *slope;                /* per state of which the next one (backward: the adjoint before the
                                   * step) is slope times it plus what does not depend on it; -1: 0. NULL:
                                   * not all are such */
} ScanWalks;

static inline ScanWalks *scan_walks(const Program *pr)
{
    return pr->walks;
}

/* The units of a cell's states; NULL: it has none, and why. */
Units *scan_units(Module *m, const Reason **why);
/* scan_axes.c: arrays of a step have the unit's axes in front. */
void scan_order_axes(Module *m, const Units *units);
/* Elements of a unit times the terms of a sum, where they are few; else 0. */
int64_t scan_terms(const Plan *p, NodeId array);
/* Are all elements of a unit few, with the terms of what it sums over, and is the unit that of the states? */
bool scan_form(const Plan *p, NodeId array);
/* The same of its axes alone. */
bool scan_axes(const Plan *p, NodeId array);
/* May the walk add its terms to sums over batch and time? */
bool scan_sums(const Plan *p, const Program *pr, NodeId sum);
/* Of all states, in registers of one thread. */
int64_t scan_state_elements(const Plan *p);
/* Threads of a block, and the numbers in its shared memory. */
int scan_threads(const ScanWalk *w);
int64_t scan_shared(const Plan *p, const ScanWalk *w);
/* scan_forms.c: the kernels of a direction, in order of preference. */
void scan_forms(const Plan *p, const Program *pr, FormList *out);
/* Is the value that is read there the own unit's, of a reader with these axes? */
bool scan_own(const Plan *p, const IndexId *axes, const Read *r);
/* Elements of an array or tensor behind its unit. */
int64_t scan_inner(const Plan *p, const Read *r);
/* Which of them is read. */
const IxExpr *scan_inner_linear(const Plan *p, const Read *r);
/* Once a plan is made: why a step of a direction is not such that each unit walks by itself; or NULL. */
const Reason *scan_refused(const Plan *p, const Program *pr);
/* The part of that which shows as soon as a direction's groups are made. */
const Reason *scan_too_many(const Plan *p, const Program *pr);
/* kernels_scan.c: the text of a walk's kernel; fills its refs. */
void scan_print(Plan *p, Program *pr, ScanWalk *w, Buf *out);
/* Takes the kernels of both directions into the plan. */
void scan_kernels(Plan *p);

#endif
