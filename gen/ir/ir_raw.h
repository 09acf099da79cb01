/* ir_raw.h: what ir.c, size.c and ir_parse.c share below the builders of ir.h: making nodes and index
 * expressions with exactly the content that is given, where the builders would guard, fold or split it. */
#ifndef CELLC_IR_RAW_H
#define CELLC_IR_RAW_H

#include "ir.h"

enum { MAX_NODE_AXES = 32 };      /* more in one value is a bug of the compiler */

/* The one value of this kind that equals key: found, or made. */
enum { CONS_POLY = 1, CONS_IX, CONS_NODE };
void *module_cons(Module *m, int kind, uint64_t hash, const void *key,
                  bool (*same)(const void *, const void *), void *(*make)(Module *, const void *));

/* The node with this content (axes are taken for an N_ARRAY only); axes, type and dependences are computed,
 * the span is module_at's. An equal node that exists already is given back. */
NodeId node_build(Module *m, Node n);

/* offset + terms, in the order given. */
const IxExpr *ix_intern(Module *m, const Poly *offset, IxTerm *terms, int n);

/* The words of the text form in the order of TensorKind, Dtype and ReduceOp, each list with NULL at its end.
 * */
extern const char *const ir_tensor_kinds[];
extern const char *const ir_dtypes[];
extern const char *const ir_reductions[];

#endif
