/* rounded.h: who rounds what it reads to the storage type (rounded.c). */
#ifndef CELLC_ROUNDED_H
#define CELLC_ROUNDED_H

#include "ir.h"

/* Per node: a root needs it; an array that is read as it is, or at another step. */
typedef struct Readers { bool *seen, *raw, *other_step; } Readers;

Readers readers_of(const Module *m);
bool is_rounding(const Module *m, NodeId id);
NodeId round_within_guards(Module *m, NodeId id);       /* a rounded read, as the read is guarded; else id itself */
NodeId round_once(Module *m, NodeId id);                /* an array that rounds what is rounded, without that; else id */
bool may_lie_rounded(const Module *m, NodeId array);
void round_where_read(Module *m);

#endif
