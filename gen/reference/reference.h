/* reference.h: the plain C of a cell (emit_c.c). */
#ifndef CELLC_REFERENCE_H
#define CELLC_REFERENCE_H

#include "ir/ir.h"

/* emit_c.c: the reference: forward, backward and step as plain C loop nests from the unsimplified IR. */
void emit_c(const Module *m, Buf *out);

#endif
