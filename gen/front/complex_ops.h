/* complex_ops.h: complex values between resolve and the IR: the functions that only they have, and their arithmetic
 * on pairs of real nodes. */
#ifndef CELLC_COMPLEX_OPS_H
#define CELLC_COMPLEX_OPS_H

#include "ir/ir.h"

typedef enum { CX_COMPLEX, CX_RE, CX_IM, CX_CONJ, CX_ARG, CX_CIS, CX_COUNT } ComplexOp;

typedef struct ComplexRow {
    const char *name;             /* in specs */
    int arity;
    const char *doc;
} ComplexRow;
extern const ComplexRow complex_table[CX_COUNT];
int complex_find(const char *name);                               /* -1: none */
bool complex_takes(Op op);        /* is there a row of the operator table for a complex argument? */

enum { MAX_COMPLEX_POWER = 64 };  /* largest exponent of a complex value, by magnitude */

/* im -1: a real number. */
typedef struct Complex { NodeId re, im; } Complex;
NodeId complex_im(Module *m, Complex z);                          /* 0 for a real number */
Complex complex_map(Module *m, Op op, const Complex *x);          /* op_table's op, of which an argument is complex */
Complex complex_call(Module *m, ComplexOp op, const Complex *x);
Complex complex_power(Module *m, Complex z, int64_t n);
NodeId complex_abs(Module *m, Complex z);

#endif
