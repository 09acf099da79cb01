/* marks.h: what a walk over a module's nodes remembers (marks.c). Parts of a value are shared: a walk that
 * goes down all arguments looks 2^n times at what is shared n deep, unless it knows where it was. A Marks is
 * that memory, for one walk: beginning one costs nothing, however many nodes there are, and nodes that are
 * made on the way are not marked. */
#ifndef CELLC_MARKS_H
#define CELLC_MARKS_H

#include "ir.h"

typedef struct Marks Marks;

/* Nothing is marked. Each is given back once, with marks_end; walks may go on inside of others. */
Marks *marks_begin(const Module *m);
/* May be NULL. */
void marks_end(Marks *w);
/* True the first time that the walk asks for this node. */
bool marks_first(Marks *w, NodeId id);
/* A number of the walk's own for a node, and what it was set to last; 0: nothing. */
void marks_set(Marks *w, NodeId id, int value);
int marks_get(const Marks *w, NodeId id);

#endif
