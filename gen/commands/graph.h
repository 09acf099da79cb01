/* graph.h: the data flow of a cell as a picture. */
#ifndef CELLC_GRAPH_H
#define CELLC_GRAPH_H

#include "plan/plan.h"

/* Graphviz's source for one direction of p. */
void graph_dot(Plan *p, Direction d, Buf *out);
/* The picture of `dot` at `path`, format "svg" or "png", by Graphviz's `dot`. False after a message; where Graphviz is
 * missing, `path`.dot has the source then. */
bool graph_picture(Compiler *c, const char *path, const char *format, const Buf *dot);

#endif
