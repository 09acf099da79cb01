/* copies.h: axes of which only certain places are read (copies.c). */
#ifndef CELLC_COPIES_H
#define CELLC_COPIES_H

#include "ir.h"

/* The pass: a definition with such an axis becomes one definition for each of these places. */
void split_copies(Module *m);

#endif
