/* explain_words.h: what the files of `cellc explain` share: the plan that is explained, with what was found out about
 * its values, and words for its parts. All texts live in the compiler's arena. */
#ifndef CELLC_EXPLAIN_WORDS_H
#define CELLC_EXPLAIN_WORDS_H

#include "ir/arguments.h"
#include "plan/cost.h"
#include "plan/plan.h"

typedef struct Explain {
    const Plan *p;
    Module *m;
    Compiler *c;
    Buf *out;
    bool *forward;                /* per node: forward needs it */
    bool *backward;               /* a gradient needs it */
    bool *feeds[2];               /* per direction and node: what is carried to the next step needs it */
    bool *in_forward;             /* per buffer: forward uses it */
    NodeId *part_of;              /* per node: a named value that it is computed for, -1 */
} Explain;

Explain explain_of(const Plan *p, Buf *out);
const char *explain_size(const Explain *e, const Poly *x);     /* in the spec's names: "4*D*B*T" */
const char *explain_value(const Explain *e, NodeId id);        /* its name, or "v12 in a" */
void explain_instance(const Explain *e);                       /* prints the cell with its settings, and its sizes */
Cost explain_sum(const Explain *e, Direction d);               /* of all operations of a direction */
double explain_buffer_at(const Explain *e, int slot, const int64_t *sizes); /* bytes, of all its rows */
double explain_argument_at(const Explain *e, const CallArg *a, const int64_t *sizes); /* likewise */
const char *explain_saved(const Explain *e);                   /* what forward keeps for backward */

#endif
