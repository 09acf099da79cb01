/* emit.h: what the emitters share: C names, text of the spec, and printing of operators. Everything printed is a function
 * of the module alone, so output is the same on every run. */
#ifndef EMIT_H
#define EMIT_H

#include "cellc.h"

/* ops.c: the static inline helpers behind the C spellings of the ops marked in used[OP_COUNT], written in the type `real`
 * (over <tgmath.h>), and those that they call. */
void ops_prelude(Buf *out, const bool *used);

#endif
