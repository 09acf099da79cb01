/* split_states.h: an axis of the states in parts that walk by themselves (split_states.c). */
#ifndef CELLC_SPLIT_STATES_H
#define CELLC_SPLIT_STATES_H

#include "ir.h"

/* PART_COLUMNS: elements of a part along the axis. LEAST_ELEMENTS: of a matrix state whose axis is taken
 * apart (measured on an H200, E88's step in bf16 with 8 to 64 states of all sequences, both ways: of
 * 128 x 128, 1.6 to 5 times as fast in parts of 16; of 64 x 64, 1.2 to 1.8 times; of 32 x 32, 0.8 times). */
enum { PART_COLUMNS = 16, LEAST_ELEMENTS = 64 * 64 };

/* Has it a matrix state of LEAST_ELEMENTS or more, with an axis that parts divide? */
bool may_split_states(const Module *m);
/* The pass: the axis Module.side of the matrix states, counted from the last one, becomes two, parts and what a
 * part has of it, in all values that have it; 0: none does. Module.parts is the number of parts, or 0. */
void split_states(Module *m);

#endif
