/* size.h: sizes and index expressions, interned per module (size.c). */
#ifndef CELLC_SIZE_H
#define CELLC_SIZE_H

#include "base/compiler.h"

/* An integer polynomial over the cell's run-time dims (bound dims are numbers already), with exact quotients
 * as atoms. Interned per module: equal polynomials are equal pointers. */
typedef struct Poly Poly;
/* atoms: sorted, repeated for powers */
typedef struct PolyTerm { int64_t coef; int natoms; int *atoms; } PolyTerm;
struct Poly { int nterms; PolyTerm *terms; bool is_const; int64_t value; };
typedef struct Quotient { const Poly *num, *den; } Quotient;
/* Atom k < module dims: that dim. Above: module->quotients[k - MAX_DIMS]. */
/* The last three are no dims of the spec: the steps from step 0 to the end of the call, which is what `w:T` runs over,
 * the batch size, and the number of the call's steps. What lower adds to the dims is not counted in MAX_USER_DIMS, which
 * leaves room for it, B, T and t0 in CELL_MAX_SIZES of the runtime. */
enum { MAX_USER_DIMS = 20, ATOM_PAST = MAX_USER_DIMS + 1, ATOM_B, ATOM_T, MAX_DIMS };

const Poly *poly_const(Module *m, int64_t v);
const Poly *poly_dim(Module *m, int dim);
const Poly *poly_add(Module *m, const Poly *a, const Poly *b);
const Poly *poly_sub(Module *m, const Poly *a, const Poly *b);
const Poly *poly_mul(Module *m, const Poly *a, const Poly *b);
const Poly *poly_div(Module *m, const Poly *a, const Poly *b);    /* exact; NULL when it cannot be */
bool poly_is_one(const Poly *p);                                  /* NULL is not */
bool poly_nonneg(const Poly *p);                                  /* proved >= 0 for all dims >= 1 */
int64_t poly_eval(const Module *m, const Poly *p, const int64_t *dims);
const char *dim_text(const Module *m, int dim);                   /* in texts that have the call's B and t0 as well: "B2" */
const char *dim_words(const Module *m, int dim);                  /* "B2 (dim B of the spec)" */
void poly_print(const Module *m, const Poly *p, Buf *out);        /* as a user would write it, with dim_text: 2*H*N + H*V */
void poly_print_spec(const Module *m, const Poly *p, Buf *out);   /* the same with the spec's names */
void poly_print_api(const Module *m, const Poly *p, Buf *out);    /* and with those of the C interface (api_sizes) */
void poly_print_c(const Module *m, const Poly *p, Buf *out, const char *prefix);   /* in C */

typedef int32_t IndexId;
/* Index ids; the first stand only in reductions, N_INDEX and steps: batch, the number of the step, and the
 * number of the call's first step. */
enum { IX_BATCH = 0, IX_TIME = 1, IX_START = 2, IX_FIRST = 3 };

typedef struct IxExpr IxExpr;
typedef enum { IA_INDEX, IA_DIV, IA_MOD } IxAtomKind;
typedef struct IxTerm {
    const Poly *coef;
    IxAtomKind kind;
    IndexId index;                /* IA_INDEX */
    const IxExpr *arg;            /* IA_DIV, IA_MOD: floor(arg / by), arg - by*floor(arg / by) */
    const Poly *by;
} IxTerm;
struct IxExpr { const Poly *offset; int nterms; IxTerm *terms; }; /* offset + sum coef*atom; interned */

const IxExpr *ix_const(Module *m, const Poly *p);
const IxExpr *ix_index(Module *m, IndexId i);
const IxExpr *ix_add(Module *m, const IxExpr *a, const IxExpr *b);
const IxExpr *ix_sub(Module *m, const IxExpr *a, const IxExpr *b);
const IxExpr *ix_scale(Module *m, const IxExpr *a, const Poly *by);
const IxExpr *ix_div(Module *m, const IxExpr *a, const Poly *by); /* floor; simplifies when exact */
const IxExpr *ix_mod(Module *m, const IxExpr *a, const Poly *by);
const IxExpr *ix_subst(Module *m, const IxExpr *a, const IndexId *from, const IxExpr *const *to, int n);
bool ix_uses(const IxExpr *a, IndexId i);
const Poly *ix_coefficient(Module *m, const IxExpr *a,
                           IndexId i); /* outside of divisions; 0: it is not there */
bool ix_is_index(const IxExpr *a, IndexId *which);                /* a plain index */
/* Does it count through its indices without gaps, from its offset on? Then how many there are. */
bool ix_counts(Module *m, const IxExpr *e, const Poly **count);
/* Bounds over all values of its indices: *lo and *hi are set when they follow from the extents; false if not
 * known. */
bool ix_range(Module *m, const IxExpr *a, const Poly **lo, const Poly **hi);
void ix_print(const Module *m, const IxExpr *a, Buf *out);
/* No index or size is taken to be larger; four times that does not leave 64 bits. */
#define WHOLE_INDEX 0x1p60
/* What the index, quotient or remainder of a term does not exceed. */
double ix_term_most(const Module *m, const IxTerm *t);

#endif
