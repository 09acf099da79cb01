/* ast.h: the AST, what makes it (parse.y, lex.l, tokens.c, ast.c) and what prints it (fmt.c). */
#ifndef CELLC_AST_H
#define CELLC_AST_H

#include "base/compiler.h"

typedef struct Expr Expr;
typedef struct Stmt Stmt;
typedef Vec(Expr *) ExprVec;
typedef Vec(Stmt *) StmtVec;

typedef enum {
    X_NUM,      /* 1, 2.5e-3, inf: num; is_int when written as an integer */
    X_REF,      /* name ['] [ [ args ] ] with an optional time argument: x, S'[i,j], x[d; t-w] */
    X_CALL,     /* name ( args ) [ . member ] [ [ index args ] ]: sqrt(x), l2norm(k)[i], gates(p).i[u] */
    X_UNARY,    /* op a */
    X_BINARY,   /* a op b */
    X_COND,     /* a ? b : c */
    X_REDUCE,   /* sum mean max min prod softmax [binders] a */
    X_COLON,    /* ':' as an index argument: this axis stays open (k[h,:]) */
    X_ERROR     /* what error recovery left; a diagnostic was given */
} ExprKind;

typedef enum {
    O_NONE, O_NEG, O_NOT, O_POW, O_MUL, O_DIV, O_MOD, O_ADD, O_SUB,
    O_LT, O_LE, O_GT, O_GE, O_EQ, O_NE, O_AND, O_OR
} AstOp;

/* An index that is bound (left side, reduction, repeat): `i`, `i:N`, or on a left side the constant `0`. */
typedef struct Binder {
    const char *name;             /* NULL for a constant index */
    Span span;
    Expr *range;                  /* stated extent, or NULL */
    Expr *fixed;                  /* constant index on a left side, or NULL */
} Binder;
typedef Vec(Binder) BinderVec;

struct Expr {
    ExprKind kind;
    Span span;
    const char *name;             /* REF, CALL */
    Span name_span;
    const char *member;           /* CALL: which of several results, or NULL */
    Span member_span;
    bool primed;                  /* REF: S' */
    bool brackets;                /* REF, CALL: written with [ ] */
    bool is_int;                  /* NUM */
    int parens;                   /* pairs of parentheses the user put around it */
    double num;                   /* NUM */
    AstOp op;                     /* UNARY, BINARY */
    ReduceOp reduce;              /* REDUCE */
    BinderVec binders;            /* REDUCE; for softmax only the names count */
    ExprVec args;                 /* REF: index arguments; CALL: arguments */
    ExprVec index;                /* CALL: index arguments of the result */
    Expr *time;                   /* REF: absolute or relative step after ';', or NULL */
    ExprVec held;                 /* CALL grad/adjoint forms: arguments after ';' */
    Expr *a, *b, *c;              /* UNARY a; BINARY a b; COND a b c; REDUCE body a */
};

typedef enum {
    S_IMPORT,   /* import "std.cell"; text */
    S_CELL,     /* cell name { body } */
    S_DIM,      /* dim N = 64; value or NULL */
    S_CONST,    /* const eps = 1e-6; */
    S_OPTION,   /* option bias = fixed | none | input; choices */
    S_INPUT, S_PARAM, S_STATE, S_OUTPUT,  /* one Stmt per declared name */
    S_RESET,    /* reset r; an input that says where another sequence begins */
    S_EQ,       /* name ['] [lhs] = value; */
    S_FN,       /* fn name(params)[results] = value;  or  fn name(params) { body } */
    S_WHEN,     /* when cond { body } else { other } */
    S_REPEAT,   /* repeat n:STEPS { body } */
    S_CARRY     /* carry A[N,N] = expr; inside repeat */
} StmtKind;

/* `in (low, high]`: from where tests draw values; `in reach`: of a state, what the cell gives it. */
typedef struct Domain { Expr *low, *high; bool above, below, reach; Span span; } Domain;   /* above, below: ends left out */

struct Stmt {
    StmtKind kind;
    Span span;                    /* the whole statement */
    const char *name;
    Span name_span;
    const char *text;             /* IMPORT: the path; declarations, EQ: the type after ':' or NULL */
    Span text_span;
    bool primed;                  /* EQ */
    bool brackets;                /* EQ, declarations: written with [ ] */
    bool is_const;                /* INPUT, PARAM: const; FN: adjoint fn */
    ExprVec axes;                 /* declarations, CARRY: extents */
    const Domain *domain;         /* INPUT, PARAM, STATE: what stands behind `in`, or NULL */
    BinderVec lhs;                /* EQ, FN: indices on the left; REPEAT: the one index with its range */
    Expr *init;                   /* PARAM: after '~' (a CALL or REF); STATE, CARRY: after '=' */
    Expr *value;                  /* DIM, CONST, EQ, FN, WHEN (the condition) */
    Vec(const char *) choices;    /* OPTION: its values, the first is the default */
    Vec(Span) choice_spans;
    Vec(const char *) params;     /* FN */
    Vec(Span) param_spans;
    Vec(const char *) held;       /* FN: parameters after ';' (adjoint fn f(u; g)) */
    Vec(Span) held_spans;
    StmtVec body;                 /* CELL, FN block, WHEN, REPEAT */
    StmtVec other;                /* WHEN: else */
    bool has_body;                /* FN: block form */
    bool took_body, took_other;   /* WHEN: expand took the branch, in any iteration or call */
};

/* parse.y, lex.l, ast.c: text -> AST. Never fails: what is broken is diagnosed and left out. */
typedef struct Ast { StmtVec items; int file; } Ast;              /* top level: imports, fns, cells */
Ast *parse_source(Compiler *c, int file);
/* The type that a declared tensor has: what --dtype-of says of it, or else the spec; NULL: neither does. */
const char *ast_type(const Compiler *c, const Stmt *s);
/* Of a type of 8 bits: how many numbers of the last axis share a scale, 0: all of the tensor. -1: it is
 * another type. */
int fp8_block(const char *type);
/* The declaration of the scales of a tensor whose type is of 8 bits: NAME_scale, a constant of f32. */
const Stmt *ast_scales(Compiler *c, const Stmt *of);
/* What a state or a carry starts from, as a number: a condition is 1 where it holds, else 0. */
const Expr *ast_initial(Compiler *c, const Expr *init);
/* The cell called `name`, or as SPEC:NAME said it (c->cell), or else the file's only one. NULL after a diagnostic; without one where
 * the file has no cell and none is `required`. */
const Stmt *ast_cell(Compiler *c, const Ast *ast, const char *name, bool required);

/* The words of the language, from 0 on, NULL behind the last: those that begin a statement, and the reductions (tokens.c);
 * types of tensors (declare.c); initialisers (initialiser.c). */
const char *statement_word_at(int i);
const char *reduction_at(int i);
const char *tensor_type_at(int i);
const char *initialiser_at(int i);

/* fmt.c: AST (with the comments of its source) -> canonical text. */
void fmt_ast(Compiler *c, const Ast *ast, bool explicit_form, Buf *out);
/* fmt.c: what is left of a cell, and of the file's own functions, with c's settings, after expand has taken
 * branches of this AST: the branches of each `when` that were taken, and the values that constants and dims
 * are bound to. A statement a line, however long; without comments, options and imports. */
void fmt_taken(Compiler *c, const Ast *ast, const Stmt *cell, Buf *out);

enum { MAX_NAME = 128 };          /* characters: files, whose names have at most 255, are called after cells */

/* cell_name.c: why a cell, or a library, cannot have this name, whose files and C functions are called after it; NULL: it can. */
const char *cell_name_fault(Compiler *c, const char *name);
/* Does -lNAME mean a library that programs have already? The library of a cell that is called so has another
 * name. */
bool is_system_library(const char *name);
const char *library_name(Compiler *c, const char *cell);

#endif
