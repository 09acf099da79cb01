/* random_cell.h: random valid cells, for `cellc random` and the tests. */
#ifndef CELLC_RANDOM_CELL_H
#define CELLC_RANDOM_CELL_H

#include "cellc.h"

/* Prints a cell that the front end must accept; the same text for the same seed. All dims are small and all
 * values stay of the order of one, so that the comparison with the evaluator is sharp. */
void random_cell(Compiler *c, uint64_t seed, Buf *out);

#endif
