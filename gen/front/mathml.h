/* mathml.h: equations of a spec as MathML, for browsers. */
#ifndef CELLC_MATHML_H
#define CELLC_MATHML_H

#include "ast.h"

/* A statement's line: an equation, a carry, or the head of an fn (without its body, where that is a block), as one
 * <math> element with the text of the spec as its alttext. The AST is that of source. */
void mathml_statement(const Source *source, const Stmt *s, Buf *out);
/* The index of a repeat, below its bound, likewise. */
void mathml_range(const Source *source, const Binder *index, Buf *out);

#endif
