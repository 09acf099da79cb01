/* eval_scope.h: what the parts of the evaluator's compiler share: names and their scopes, and the steps from
 * an expression to a tree. Private to the evaluator. */
#ifndef CELLC_EVAL_SCOPE_H
#define CELLC_EVAL_SCOPE_H

#include "eval_code.h"

enum {
    MAX_NODES = 4000000,
    MAX_NEST = 200,
    MAX_STEPS = 4096,
    MAX_SHAPE_DEPTH = 3000,
    MAX_ELEMENTS = 1 << 28        /* of all arrays of a cell together: 4 GB */
};

typedef enum { SY_INDEX, SY_VALUE, SY_DIM, SY_CONST, SY_OPTION, SY_FN } SymbolKind;

typedef struct Symbol {
    SymbolKind kind;
    const char *name;
    const Stmt *stmt;
    struct Scope *home;           /* FN: the scope that its body sees */
    int reg;                      /* INDEX */
    int64_t extent;               /* INDEX */
    bool of_steps;                /* INDEX: w:T */
    Array *now, *next;            /* VALUE: the value; a state's or an iterate's next */
    bool known, busy;             /* DIM, CONST, OPTION */
    int64_t size;                 /* DIM */
    double num;                   /* CONST */
    bool whole;                   /* CONST: a whole number */
    const char *choice;           /* OPTION */
    struct Symbol *older;
} Symbol;

/* Names of one level. A unit (cell, fn instance, repeat block, file) owns arrays and a frame; the levels that
 * binders open inside it share both. */
typedef struct Scope {
    struct Scope *outer, *unit;
    Frame *frame;
    Symbol *symbols;
    Vec(Instance *) instances;    /* of a unit */
    Vec(Array *) arrays;          /* of a unit: those with equations */
    Vec(struct Scope *) inner;    /* of a unit: the iterations of its repeats */
    int nest;                     /* fn calls that led here */
    Instance *instance;           /* of the body of a fn: the call */
} Scope;

/* Indices, functions and everything else have name spaces of their own. */
typedef enum { NS_INDEX, NS_FN, NS_VALUE } NameSpace;

/* Registers that a tree reads from outside itself, each once. */
typedef Vec(int) Registers;

/* eval_names.c: scopes, and what is known before the cell runs */
Scope *ev_scope_new(EvalProgram *p, Scope *outer, Frame *frame);
Scope *ev_scope_inside(EvalProgram *p, Scope *outer);
Symbol *ev_declare(EvalProgram *p, Scope *s, SymbolKind kind, const char *name, const Stmt *stmt);
Symbol *ev_find_here(const Scope *s, NameSpace space, const char *name);
Symbol *ev_find_in(const Scope *s, NameSpace space, const char *name);
/* What a name stands for in an expression: with brackets or a prime never an index. */
Symbol *ev_find(const Scope *s, const Expr *x);
int ev_new_register(EvalProgram *p);
Symbol *ev_declare_index(EvalProgram *p, Scope *s, const char *name, int64_t extent, bool of_steps);
double ev_const_symbol(EvalProgram *p, Scope *s, Symbol *y);
bool ev_dim_size(EvalProgram *p, Scope *s, Symbol *y, int64_t *out);
bool ev_size_reference(EvalProgram *p, Scope *s, const Expr *x, int64_t *out);
/* Numbers, sizes, constants and conditions: errors are diagnosed; false or NAN then. */
double ev_number(EvalProgram *p, Scope *s, const Expr *x);
bool ev_const_size(EvalProgram *p, Scope *s, const Expr *x, int64_t *out);
bool ev_holds(EvalProgram *p, Scope *s, const Expr *x);

/* eval_shape.c: arrays and their extents */
bool ev_set_shape(EvalProgram *p, Array *a);
Array *ev_array_new(EvalProgram *p, Scope *s, const char *name, Span span, int rank);
/* An array whose extents are written down. */
Array *ev_array_declared(EvalProgram *p, Scope *s, const Stmt *d, const char *name);
Array *ev_array_named(Scope *s, const Expr *x);
bool ev_range(EvalProgram *p, Scope *s, const Expr *x, int64_t *out);
/* The extent of a binder: stated, or that of the first axis of `where` that it indexes plainly. */
bool ev_binder_extent(EvalProgram *p, Scope *s, const Binder *b, const Expr *where, int64_t *out);
/* Finds the shape of an array from its equations if it is not known yet. */
bool ev_shape_of(EvalProgram *p, Array *a);

/* eval_expr.c: expressions */
Code *ev_code_new(EvalProgram *p, CodeKind kind, Span span);
/* Diagnoses and gives a tree that is NAN. */
Code *ev_failed(EvalProgram *p, const Expr *x, const char *what);
Ix *ev_ix_new(EvalProgram *p, IxOp op);
Ix *ev_compile_index(EvalProgram *p, Scope *s, const Expr *x);
/* The integer inputs in an index say where an axis of that extent is read. */
void ev_note_range(EvalProgram *p, const Ix *x, int64_t extent);
void ev_add_register(EvalProgram *p, Registers *v, int reg);
void ev_remove_bound(Registers *v, int n, const int *bound);
void ev_registers_of(EvalProgram *p, const Code *x, Registers *v);
/* Lets a tree keep its value while the frame and these registers stay as they are. */
void ev_remember(EvalProgram *p, Scope *s, Memo *m, const Registers *v);
Code *ev_compile_expr(EvalProgram *p, Scope *s, const Expr *x);

/* eval_past.c: earlier steps */
/* The tensors that stand for the steps before the call; the last thing that is compiled. */
void ev_add_histories(EvalProgram *p);
EvalTensor *ev_add_tensor(EvalProgram *p, EvalKind kind, const char *name, const Array *a, const Stmt *decl);

/* eval_complex.c: which values are complex */
bool ev_declared_complex(const Stmt *d);
bool ev_is_complex(EvalProgram *p, Scope *s, const Expr *x);
/* Of an array: declared, or found from its equations. */
bool ev_complex_of(EvalProgram *p, Array *a);
Code *ev_complex_call(EvalProgram *p, Span span, const char *name, Code *a, Code *b);

/* eval_fn.c: calls of a fn */
Stmt *ev_fn_named(Scope *s, const char *name, Scope **home);
/* The instance of a fn for one call, made when it is first asked for; NULL with a diagnostic. */
Instance *ev_instance_of(EvalProgram *p, Scope *s, const Expr *call);
Code *ev_compile_user_call(EvalProgram *p, Scope *s, const Expr *x);

/* eval_grad.c: inner gradients */
Code *ev_compile_grad(EvalProgram *p, Scope *s, const Expr *x);

/* eval.c: statements */
/* The names in x that stand for nothing yet, in the order in which they first appear: at most max. */
void ev_free_names(Scope *s, const Expr *x, int max, const char **names, int *n);
/* The array that an equation defines: a next value, an output, or a definition made by its first equation. */
Array *ev_add_definition(EvalProgram *p, Scope *s, const Stmt *e);
void ev_add_equations(EvalProgram *p, Scope *s, const StmtVec *body);

#endif
