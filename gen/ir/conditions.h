/* conditions.h: what conditions on indices say (conditions.c). */
#ifndef CELLC_CONDITIONS_H
#define CELLC_CONDITIONS_H

#include "ir.h"

/* Takes the branches that the indices' extents decide, as deep as branches stand in one another. */
NodeId branch_taken(Module *m, NodeId id);
/* The same wherever in a value a branch stands, outside of other arrays; without zeros that are added then.
 * */
NodeId cases_taken(Module *m, NodeId id);
/* The same by the conditions around a branch as well: `r < n ? a : n <= r ? b : 0` is `r < n ? a : b`. */
NodeId conditions_known(Module *m, NodeId id);
/* The place from which on a comparison of the index with a number is another one than below it; false: it is none. */
bool turns_at(Module *m, NodeId cond, IndexId i, const Poly **place);
/* Narrows the range [lo, hi) of the index to where the condition holds; false: it says something else as well. */
bool narrow_range(Module *m, NodeId cond, IndexId i, const Poly **lo, const Poly **hi);

#endif
