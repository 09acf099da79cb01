/* explain.h: what `cellc explain` prints. In words, by explain.c; cost.c counted. */
#ifndef CELLC_EXPLAIN_H
#define CELLC_EXPLAIN_H

#include "base/table.h"
#include "emit/emit.h"
#include "plan/plan.h"

/* p: as plan_make gave it. lowered: the module that it is of, as it comes from the front end. */
/* explain_summary.c: about ten lines, for a person that writes cells. */
void explain_summary(const Plan *p, const Module *lowered, Buf *out);
/* What the plan for the CPU is, and why it is none of the faster kinds that it might be. */
const char *explain_cpu(const Module *lowered, const CpuChoice *x);
/* Its rows, a label and words each; a row without a label goes on with the one before. */
Table explain_rows(const Plan *p, const Module *lowered);
/* Its words on the schedule, the work of a step and the memory. */
typedef struct ExplainLine { const char *schedule, *work, *memory; } ExplainLine;
ExplainLine explain_line(const Plan *p);
/* Gives for each value of the spec that forward computes its name, and when: "computed at each step, in the walk over time",
 * "read from W", ... */
void explain_when(const Plan *p, void (*give)(void *with, const char *name, const char *when), void *with);
/* ---- explain.c: these, and all the rest. */
void explain(const Plan *p, const Module *lowered, Buf *out);
/* What the call would be refused for at sizes, by atom; NULL: nothing. */
const char *explain_refused(const Plan *p, const int64_t sizes[MAX_DIMS]);
/* Bytes of a call at such sizes, as far as they are known without a device; partial: sums in pieces come to
 * them. */
typedef struct CallMemory {
    double arguments, gradients, reserve, workspace, inference;
    bool partial;
} CallMemory;
CallMemory explain_call_memory(const Plan *p, const int64_t sizes[MAX_DIMS]);
/* A size in numbers that do not wrap: sizes that no machine has room for are asked about as well. */
double explain_size_at(const Module *m, const Poly *x, const int64_t *sizes);
/* explain_budget.c: what a budget for the reserve does to a call of such sizes. */
void explain_budget(const Plan *p, const int64_t sizes[MAX_DIMS], Buf *out);
/* Bytes of a call at such sizes, as the runtime would say but for what shares memory. */
void explain_memory(const Plan *p, const int64_t sizes[MAX_DIMS], Buf *out);
/* explain_forms.c: which form of the plan, of walks and of products a call of such sizes takes, and why not those before it. */
void explain_forms(const Plan *p, const int64_t sizes[MAX_DIMS], Buf *out);
/* Of it: the instance, the schedule, and what a step costs in each direction. */
void explain_cost(const Plan *p, Buf *out);

#endif
