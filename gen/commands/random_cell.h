/* random_cell.h: random valid cells, for `cellc random` and the tests. */
#ifndef CELLC_RANDOM_CELL_H
#define CELLC_RANDOM_CELL_H

#include "base/compiler.h"

/* What the cells of a seed are compiled with: lengths, reverse. */
void random_settings(uint64_t seed, Compiler *c);
/* Prints a cell that the front end must accept; the same text for the same seed and draw: the draws from 0 are the
 * cells that a seed has. All dims are small, and values are meant to stay of the order of one, so that the comparison
 * with the evaluator is sharp; inner gradients may exceed that, which judge_text finds. c has the settings of the seed. */
void random_cell(Compiler *c, uint64_t seed, int draw, Buf *out);
/* Prints a cell that is linear in matrix states (random_linear.c), which schedule chunk's proof must admit;
 * NULL. Spoiled: the same with a term more that must be refused; gives what the reason says, in part. */
const char *random_linear_cell(Compiler *c, uint64_t seed, bool spoiled, Buf *out);
/* Prints a cell whose steps multiply vectors of their states by params (random_gated.c), as gates do. */
void random_gated_cell(Compiler *c, uint64_t seed, Buf *out);

#endif
