/* emit.h: what the emitters share: C names, numbers, sizes, text of the spec, line breaks, and the order of a
 * call's arguments. Everything printed is a function of the module alone: output is the same on every run. */
#ifndef EMIT_H
#define EMIT_H

#include "ir/ir.h"

/* ---- emit_common.c */

/* C identifiers that are taken. A user's name keeps its spelling unless C, libm or the generated frame needs
 * it. */
typedef struct TakenName { const char *name, *base; int number; } TakenName;      /* base: what the number is behind */
typedef struct NameSlot { const char *name; int next; } NameSlot; /* next: the first number to try behind it */
typedef struct Names {
    Compiler *c;
    const struct Names *beside;   /* whose names are taken too, or NULL */
    Vec(TakenName) taken;         /* interned, in the order in which they were taken */
    NameSlot *slots;              /* the same, by hash */
    int cap;
} Names;

void names_init(Names *n, Compiler *c);                           /* takes the words of taken.c */
void names_take(Names *n, const char *name);
void names_cut(Names *n, int len);                                /* frees all but the first len taken */
/* An identifier made from `wanted` (S' becomes S_next, other odd bytes become _), numbered until it is free;
 * taken then. */
const char *names_fresh(Names *n, const char *wanted);
/* `base`, or base, join and the first number from 2 on with which it is free; taken then. */
const char *names_numbered(Names *n, const char *base, const char *join);

/* taken.c: the words of C, C++ and macros, put among the names taken; those that the plain C alone has; and whether
 * a name is such a word by its form (__x, _X, FLT_DIG), whatever number stands behind it. */
void words_take(Names *n);
void words_take_reference(Names *n);
bool is_word_by_form(const char *name);

/* Text of a number as a C expression of type real: 3, (real)0.5, (real)INFINITY. */
const char *c_number(Compiler *c, double v);
/* Text of a size over the C names of the run-time dims; *prec tells how tightly it binds (the C_ levels). */
const char *c_poly(const Module *m, const Poly *p, const char *const *dims, int *prec);
/* Elements of n axes: their product. */
const Poly *poly_product(Module *m, const Poly *const *axes, int n);
/* Of a stored element: its bytes; the runtime's constant, "CELL_BF16". */
int dtype_bytes(Dtype t);
const char *dtype_constant(Dtype t);

enum {
    C_COND = 30, C_OR = 35, C_AND = 40, C_EQ = 55, C_REL = 60,
    C_ADD = 70, C_MUL = 80, C_UNARY = 90, C_ATOM = 100
};

/* "e79.cell:41" and, with text, ": k[i:N] = ...", one line, shortened, safe inside a C comment. "" without a
 * place. */
const char *source_place(const Module *m, Span span, bool text);

/* expression.c: the expression as text of the spec, `...` below `depth` operators; inside: in parentheses
 * where it stands between others. */
void put_expression(const Module *m, NodeId id, int depth, bool inside, Buf *out);

/* Appends C, C++ or CUDA text to out with lines beyond 110 columns broken at spaces outside of strings. */
void buf_wrapped(Buf *out, const Buf *text);

/* The names that sizes of a call have in C. */
const char **api_sizes(const Module *m); /* B, T, run-time dims, t0: dims.len + 3 names */

#endif
