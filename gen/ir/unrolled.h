/* unrolled.h: sums over a few places, written out (unrolled.c). */
#ifndef CELLC_UNROLLED_H
#define CELLC_UNROLLED_H

#include "ir.h"

/* The pass, where Module.unroll asks for it: the sums that it wrote out are counted in Module.unrolled. */
void unroll_sums(Module *m);

#endif
