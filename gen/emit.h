/* emit.h: what the emitters share: C names, numbers, sizes, text of the spec, line breaks, and the order of a
 * call's arguments. Everything printed is a function of the module alone: output is the same on every run. */
#ifndef EMIT_H
#define EMIT_H

#include "cellc.h"

/* ops.c: the static inline helpers behind the C spellings of the ops marked in used[OP_COUNT], written in the
 * type `real` (over <tgmath.h>), and those that they call. */
void ops_prelude(Buf *out, const bool *used);

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
/* Appends a size as a postfix program of the launch plan (CELL_X_ codes). rows: codes for T instead of the call's, or NULL. */
void emit_postfix(const Module *m, const Poly *p, const char *rows, Buf *out);

enum {
    C_COND = 30, C_OR = 35, C_AND = 40, C_EQ = 55, C_REL = 60,
    C_ADD = 70, C_MUL = 80, C_UNARY = 90, C_ATOM = 100
};

/* "e79.cell:41" and, with text, ": k[i:N] = ...", one line, shortened, safe inside a C comment. "" without a
 * place. */
const char *source_place(const Module *m, Span span, bool text);

/* Appends C, C++ or CUDA text to out with lines beyond 110 columns broken at spaces outside of strings. */
void buf_wrapped(Buf *out, const Buf *text);

/* One argument of a generated call. Forward takes inputs, params, initial states, outputs, final states;
 * backward takes inputs, params, initial states, d outputs, d final states, d inputs, d params, d initial
 * states: each group in the order of declaration, each tensor with a slot (without gradient the slot is
 * ignored). */
typedef enum { ROLE_VALUE, ROLE_FINAL, ROLE_D_VALUE, ROLE_D_OUT, ROLE_D_FINAL } ArgRole;   /* as cell_role */
typedef struct CallArg { TensorId tensor; ArgRole role; bool optional; } CallArg;
typedef struct CallArgs { CallArg *data; int len, cap; } CallArgs;
CallArgs forward_arguments(const Module *m);
CallArgs backward_arguments(const Module *m);
int call_arg_find(const CallArgs *args, TensorId t, ArgRole role);            /* its number, -1: none */
bool wants_gradient(const Module *m, TensorId t); /* input, param or state with a gradient */

/* emit_host.c: the functions of the C interface, over the runtime: tables, and thin entry points, as C. With
 * a plan, the tables that the plan's emitter printed between head and this are named in it. */
typedef struct HostPlan HostPlan;
struct HostPlan {
    const char *forward, *backward, *step;    /* names of cell_plan objects, NULL: none */
    const char *kernels, *reserve;            /* names of arrays, NULL: none */
    int n_kernels, n_reserve;
    int64_t block_memory;                     /* the most shared memory that a block takes */
    const char *how;                          /* schedule and interval, in words */
    const HostPlan *smaller;                  /* for devices that have less, or NULL */
    const HostPlan *other;                    /* for certain calls, and behind it perhaps for others; or NULL */
    const char *name, *takes;                 /* of such a one: of its description, and of the expression that says whether a call is one of these */
};
void emit_host(const Module *m, Buf *out);
void emit_host_plan(const Module *m, const HostPlan *plan, Buf *out);
void emit_host_head(const Module *m, Buf *out); /* comment and includes, before the plan's tables */

#endif
