/* rewrite.h: rebuilding a module's graph from its roots (simplify.c). A pass gives a hook; every node below a
 * root is rebuilt once, arguments first, and the hook returns what stands in its place. Old nodes stay
 * behind, unreachable. */
#ifndef CELLC_REWRITE_H
#define CELLC_REWRITE_H

#include "ir.h"

typedef struct Rewrite Rewrite;
struct Rewrite {
    Module *m;
    NodeId *image;                /* per old node, -1 while unknown */
    int n;                        /* nodes before */
    NodeId (*hook)(Rewrite *, NodeId old, NodeId rebuilt, bool whole);  /* whole: the body of an array */
    NodeId *replaced;             /* stack_projections: per old REDUCE, the node that replaces it, or -1 */
    void *data;                   /* the hook's own */
};

void rewrite_roots(Rewrite *r);

#endif
