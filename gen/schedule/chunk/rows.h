/* rows.h: several updates of a step as rows of a walk (rows.c). */
#ifndef CELLC_CHUNK_ROWS_H
#define CELLC_CHUNK_ROWS_H

#include "ir/ir.h"

enum { MAX_UPDATES = 64 };

/* The value that is value[u] where the row is that of update u. Backwards in time (--reverse) the rows of a
 * step lie in memory in the other order, as its steps do. */
NodeId rows_join(Module *m, const NodeId *value, int n, IndexId row);
/* Where the row of update u lies among those of its step. */
const IxExpr *rows_place(Module *m, int update, int n);

#endif
