/* linear.h: random cells that are linear in matrix states (linear.c). */
#ifndef CHUNK_LINEAR_H
#define CHUNK_LINEAR_H

#include "base/compiler.h"

/* Prints the seed's cell, which schedule chunk's proof must admit; NULL. Spoiled: the same with a term
 * more that must be refused; gives what the reason says, in part. */
const char *linear_cell(Compiler *c, uint64_t seed, bool spoiled, Buf *out);

#endif
