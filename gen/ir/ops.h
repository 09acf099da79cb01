/* ops.h: the operator table (ops.c). */
#ifndef CELLC_OPS_H
#define CELLC_OPS_H

#include "ir.h"

typedef struct OpRow {
    const char *name;             /* in specs and dumps */
    int arity;
    bool in_language;             /* callable by name in a spec */
    const char *c64, *c32;        /* C in double and float: formats over %s, as "tanh(%s)" */
    const char *cuda;             /* device spelling (runtime/device), the same format; type-generic */
    int cost;                     /* issue slots per element, roughly */
    bool cheap;                   /* recompute rather than save */
    bool needs_output;            /* its derivative is written with the output, not the input */
    double (*eval)(const double *args);   /* constant folding */
    /* Adjoint of argument k: an IR node built from the table's own operators. x: arguments, y: the result's
     * node, g: cotangent. Returns -1 when there is no gradient. */
    NodeId (*adjoint)(Module *m, int k, const NodeId *x, NodeId y, NodeId g);
    const char *doc;              /* definition, derivative and what happens at kinks, one line */
    const char *fast;             /* device spelling of an approximation, whose error stands beside it in
                                   * cell_device_math.cuh; for bf16 and f16. NULL: there is none */
} OpRow;
extern const OpRow op_table[OP_COUNT];
int op_find(const char *name);                                    /* -1: none */
/* What the last argument is where a call leaves it out; false: it may not. */
bool op_default(Op op, int given, double *value);
/* May a fn of the spec have the name? The function came into the language when specs had such a fn. */
bool op_gives_way(Op op);
/* The adjoint of argument k of the N_MAP `result`; the arguments are read from x and it from y, which may be arrays of
 * these; -1: there is none. A cotangent of zero stays zero where the slope is infinite or no number because an argument is,
 * as long as that comes from a pole (op_has_pole) and, of a product inside a sum, stands in that sum's own expression. */
NodeId op_adjoint(Module *m, NodeId result, int k, const NodeId *x, NodeId y, NodeId g);
/* g * factor likewise, for a factor that is made of copies of that expression. */
NodeId op_times(Module *m, NodeId g, NodeId factor, NodeId made_of);
/* May the node be infinite, or no number, though nothing overflows and the tensors are finite? Its arguments are derived. */
bool op_has_pole(const Module *m, const Node *n);

/* ops.c: the static inline helpers behind the C spellings of the ops marked in used[OP_COUNT], written in the
 * type `real` (over <tgmath.h>), and those that they call. */
void ops_prelude(Buf *out, const bool *used);

#endif
