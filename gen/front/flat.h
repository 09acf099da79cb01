/* flat.h: the flat cell, which expand.c makes (with names.c, declare.c, fold.c and bind.c), resolve.c
 * annotates (with ranges.c and prove.c) and lower.c reads. Nothing in it is conditional: options are chosen,
 * `repeat` is unrolled, every call of a `fn` has its own copy of the body. Names are bound to Symbols and
 * indices; resolve adds extents, types and index maps; lower turns it into IR. All of it lives in the arena.
 */
#ifndef CELLC_FLAT_H
#define CELLC_FLAT_H

#include "base/map.h"
#include "complex_ops.h"
#include "front.h"

enum {
    MAX_AXES_OF_VALUE = 8,   /* axes of a tensor or definition; also what one reduction may bind */
    MAX_FLAT_NODES = 200000, /* expression nodes after expansion */
    MAX_LEVELS = 4000,       /* nesting of operations, through calls */
    MAX_CALL_DEPTH = 64      /* fn calls inside fn calls */
};

typedef struct Symbol Symbol;
typedef struct FExpr FExpr;
typedef struct FIndex FIndex;
typedef struct Equation Equation;
typedef struct Instance Instance;
typedef struct Scope Scope;
typedef Vec(Symbol *) SymbolVec;
typedef Vec(Equation *) EquationVec;

typedef enum {
    SYM_DIM,
    SYM_CONST,
    SYM_OPTION,
    SYM_NUMBER, /* the index of an unrolled repeat: a number */
    SYM_INPUT,
    SYM_PARAM,
    SYM_STATE,
    SYM_OUTPUT,
    SYM_DEF,       /* a definition; a carry of a repeat at one iteration; the result of a fn */
    SYM_NEXT,      /* the next value of a state */
    SYM_INIT,      /* the initial value of a state */
    SYM_ARRAY_ARG, /* parameter of a fn, bound to an array or a slice of one */
    SYM_SCALAR_ARG, /* parameter of a fn, bound to an expression */
    SYM_COTANGENT   /* parameter of an adjoint fn behind the ';': the cotangent of the result */
} SymbolKind;

/* A constant of the language: a number, or the name of an option's choice. */
typedef struct Constant {
    bool is_name, is_int;
    double num;
    const char *name;
} Constant;

/* An axis that is read at a value: the index stands for the place, wherever `at` is that place. */
typedef struct Pin {
    IndexId index;
    FExpr *at;
} Pin;
typedef Vec(Pin) PinVec;

struct Symbol {
    SymbolKind kind;
    const char *name;    /* as the user writes it, without the prime */
    const char *ir_name; /* unique among the values of the module */
    Span span;           /* the name where it is declared or first defined */
    const CallSite *chain;
    const Stmt *decl;
    Instance *owner; /* the call it is local to, or NULL */
    bool used, failed;
    bool is_variable;    /* a grad is taken with respect to it: it is an array, whatever it is bound to */
    Constant value;         /* CONST, OPTION, NUMBER */
    const Poly *size;       /* DIM */
    int rank;               /* -1: not known before resolve (array arguments) */
    const Poly **axes;      /* NULL until known */
    const Span *axis_spans; /* where each extent comes from */
    bool declared;          /* its shape is declared: input, param, state, output, carry */
    EquationVec equations;  /* DEF, NEXT, INIT, OUTPUT: one, or pieces with constant indices */
    Symbol *next;           /* STATE and carries: what the primed name means; NULL otherwise */
    Symbol *init;           /* STATE */
    TensorId tensor;
    bool is_complex; /* declared so: the tensor has one axis more than rank, of 2 */
    Symbol *scale; /* of a type of 8 bits: what its numbers are multiplied by */
    int block; /* as many of the last axis have one scale, 0: all numbers */
    NodeType type;
    bool is_rounded; /* to what tensors are stored in: its definition says `: dtype` */
    /* ARRAY_ARG: the array it names. A NULL in `fixed` is an open axis; fixed NULL: all axes are open. */
    Symbol *base;
    Instance *via; /* the call that makes base, to be walked first; or NULL */
    FExpr **fixed;
    int nfixed;
    const IxExpr **fixed_ix; /* by resolve */
    PinVec pins;             /* the fixed axes that are read at integer values */
    FExpr *scalar;           /* SCALAR_ARG */
    /* order of evaluation */
    int mark; /* 0 not seen, 1 on the way, 2 done */
    /* lower */
    bool needed;
    NodeId node;
    NodeId im;     /* where type is TY_COMPLEX: the imaginary part, and node the real one */
    NodeId packed; /* both as one array with a last axis of 2, where it is needed; else -1 */
    bool is_array; /* node is an array of its own, else an expression */
    const Poly *past;  /* how far back other steps read it, NULL: not at all */
    bool past_grows;   /* other steps read it as far back as there are steps */
    bool has_history;
    TensorId history; /* the tensor with as many steps before the call */
    IndexId *ids; /* its own axes, then those of the call it belongs to */
    int nids;
};

/* An index in scope: bound by a left side or a reduction. */
struct FIndex {
    const char *name;
    Span span;
    const Poly *extent; /* NULL until known */
    Span from;          /* what gave the extent */
    enum { FROM_NOTHING, FROM_STATED, FROM_DECLARED, FROM_USE, FROM_GUARDED_USE } how;
    const FExpr *read;  /* USE, GUARDED_USE: the read that gave it, NULL: a slice; and the axis */
    int axis;
    const FIndex *outer; /* the enclosing index, through calls too */
    IndexId id;          /* -1 until resolve checks the equation */
    bool failed;
};

typedef enum {
    F_ERROR,
    F_NUM,
    F_SIZE,
    F_INDEX,
    F_STEP,
    F_VALUE, /* sym[args] */
    F_CALL,  /* inst->result[args] */
    F_MAP,   /* op(args) */
    F_COMPLEX, /* complex_op(args) */
    F_IDIV,
    F_IMOD, /* integer floor division and remainder */
    F_REDUCE,
    F_SOFTMAX,
    F_GRAD /* args: what is differentiated, the variable (a VALUE), what is held, if anything */
} FKind;

struct FExpr {
    FKind kind;
    Span span, name_span;
    const CallSite *chain;
    double num;          /* NUM */
    bool is_int;         /* NUM: written as an integer */
    const Poly *size;    /* SIZE */
    FIndex *index;       /* INDEX */
    Symbol *sym;         /* VALUE, CALL: the result */
    Instance *inst;      /* CALL */
    bool brackets;       /* VALUE, CALL */
    Op op;               /* MAP */
    ComplexOp complex_op; /* COMPLEX */
    const char *op_text; /* MAP, COMPLEX: as the user wrote it, for messages */
    ReduceOp reduce;
    int nargs;
    FExpr **args;
    FExpr *time; /* VALUE: the step that is read, or NULL */
    int nbound;
    FIndex **bound; /* REDUCE: its own; SOFTMAX: those in scope; GRAD: those that a held value is summed over */
    /* By resolve: */
    NodeType type;
    const IxExpr *ix;   /* the value as an index expression, when it is one */
    bool whole;         /* an integer that is made of integer inputs */
    PinVec pins;        /* VALUE, CALL: axes of its own that are read at integer values */
    Symbol *source;     /* VALUE, CALL: what is read after following arguments: a tensor or a definition */
    const IxExpr **map; /* VALUE, CALL: one per axis of source */
    int nmap;
    const IxExpr *step; /* VALUE: time as an index expression */
    bool guarded; /* stands in a branch of ?: */
};

typedef struct Dep {
    Symbol *sym;
    Span span;
    bool primed;
} Dep;

struct Equation {
    Symbol *target;
    const Stmt *stmt; /* S_EQ, S_FN; for an initial value the declaration */
    const Expr *body;
    Scope *scope;
    const CallSite *chain;
    int nlhs;
    FIndex **lhs;      /* NULL for a constant index */
    int64_t *constant; /* per axis, where lhs is NULL */
    FExpr *value;
    Vec(Dep) deps;
    bool failed;
};

/* One call of a fn: its own copy of the body. */
struct Instance {
    const Stmt *fn;
    const CallSite *site; /* chain inside the body */
    Symbol **params;
    int nparams;
    SymbolVec locals; /* in order of evaluation after binding */
    Symbol *result;
    bool picked; /* the result is one of several */
    struct Instance *adjoint; /* the adjoint fn, bound to the same parameters; or NULL */
    bool closed;              /* sees its parameters only: it has an adjoint fn, or is one */
    Symbol *cotangent;        /* of an adjoint fn: its parameter behind the ';' */
    Symbol **d_param;         /* of an adjoint fn: what it gives to each parameter */
    const char *key; /* by lower: what it is bound to */
    bool walked;
    bool lowered;
};

/* Names of values; a fn's or a repeat's scope stands inside another. */
struct Scope {
    Scope *outer;
    NameMap names; /* -> Symbol */
    Instance *owner;
};

/* A name that the cell's text declares or defines, and in which construct. */
typedef struct Mention {
    const Stmt *stmt;
    StmtKind inside;
} Mention;

typedef struct FnDef {
    const Stmt *fn;
    Scope *scope;
    bool imported;
} FnDef;

/* The values that an inner gradient made: from first up to end. */
typedef struct Sweep { NodeId first, end; } Sweep;

struct Flat {
    Compiler *c;
    Module *m;
    const Stmt *cell;
    Scope *globals; /* what a fn outside the cell sees: nothing */
    Scope *scope;   /* the cell's names */
    NameMap fns;    /* -> FnDef */
    Vec(const char *) fn_names;
    NameMap adjoints; /* of fns, by the fn's name -> FnDef */
    Vec(const FnDef *) adjoint_list;
    NameMap files; /* imported paths -> Stmt */
    NameMap ir_names; /* those that are taken -> the number that unique_ir_name tries first for another one */
    NameMap arrays; /* "value axes..." -> the NodeId of its first array */
    SymbolVec
        symbols; /* values of the cell itself, in order of declaration; after expand in order of evaluation */
    Vec(const Ast *) asts;
    int nodes;
    bool takes_grad;     /* `grad` stands in it */
    bool too_large;
    NameMap index_ids; /* "name" -> list of ids, see resolve */
    NameMap param_ids; /* "axis extent" -> IndexId of an axis of a parameter */
    SymbolVec resets;    /* inputs that say where another sequence begins */
    TensorId lengths;    /* with --lengths: how many steps each sequence has; else -1 */
    NodeId age;          /* where there are some: how many steps the sequence has, up to as far as is looked back */
    const Poly *longest; /* how far that is, where it is bounded; NULL: nowhere */
    bool all_flags;      /* and that as far back as there are steps, or the steps of the sequence are counted */
    bool counts_steps;   /* and the number of the step is read */
    Vec(Sweep) sweeps; /* of inner gradients */
    NameMap gradients; /* what an inner gradient is of -> its name, see inner_grad.c */
    NameMap mentions;  /* -> Mention: what the cell's text defines anywhere, also where it is dropped */
    bool lost;         /* a when or repeat could not be expanded: its names are missing for that reason */
};

/* diagnostics with the chain of calls; notes follow with diag() */
#define FLAT_ERROR(f, chain, span, ...)                                                                      \
    do {                                                                                                     \
        diag((f)->c, DIAG_ERROR, (span), __VA_ARGS__);                                                       \
        if (chain)                                                                                           \
            diag_chain((f)->c, (chain));                                                                     \
    } while (0)
#define FLAT_NOTE(f, span, ...) diag((f)->c, DIAG_NOTE, (span), __VA_ARGS__)

/* names.c */
Symbol *scope_find(const Scope *s, const char *name);
/* "i,j": an index for each of `rank` axes, for what a message says to write. */
const char *index_letters(Flat *f, int rank);
/* What the user wrote there, or "...". */
const char *source_text(Flat *f, Span s);
Symbol *new_symbol(Flat *f, SymbolKind kind, const char *name, Span span, Instance *owner);
const char *kind_name(SymbolKind k); /* "an input" */
const char *quoted_name(Flat *f, const char *name, bool primed);
const char *unique_ir_name(Flat *f, const char *base);
/* Puts a name into a scope; false, with a diagnostic, when it is taken there. */
bool declare(Flat *f, Scope *scope, Symbol *s, const CallSite *chain);
bool is_reserved(Flat *f, const char *name); /* t, T */
/* Is it `pi`, which the cell's text does not define? Then it is PI. */
bool is_constant_pi(const Flat *f, const Scope *scope, const Expr *e);
#define PI 3.14159265358979323846
SymbolKind data_kind(StmtKind k);
void find_mentions(Flat *f, const StmtVec *body, StmtKind inside);

/* declare.c */
extern const Span no_span;
void declare_dim(Flat *f, Scope *scope, const Stmt *s, const CallSite *chain);
void declare_const(Flat *f, Scope *scope, const Stmt *s, const CallSite *chain);
void declare_option(Flat *f, Scope *scope, const Stmt *s, const CallSite *chain);
bool is_tensor_type(const char *name);
bool fits(const Poly *const *axes, int rank);
void declare_axes(Flat *f, Symbol *d, const Stmt *s, const Scope *scope, const CallSite *chain);
void declare_data(Flat *f, Scope *scope, const Stmt *s, SymbolVec *out);
/* domain.c: what stands behind `in`, into the tensor, whose type and initialiser are read. */
void read_domain(Flat *f, const Stmt *s, const Scope *scope, Tensor *t);
/* initialiser.c: what stands behind a param's '~', into the tensor. */
bool is_initialiser(const char *name);
void read_initialiser(Flat *f, const Stmt *s, const Scope *scope, Tensor *t);

/* expand.c */
void add_equation(Flat *f, Symbol *target, const Stmt *s, const Expr *body, Scope *scope,
                  const CallSite *chain);
/* Declares the statements of a body in scope and collects its equations; repeats are unrolled. New values go
 * to *out. */
void expand_body(Flat *f, const StmtVec *body, Scope *scope, const CallSite *chain, SymbolVec *out);
/* The name in scope that is nearest to it, of what is asked for: "value", "dim" or "name" (anything); or
 * NULL. */
const char *suggest_value(Flat *f, const Scope *scope, const char *name, const char *what);
/* Reports a name that is not in scope, saying why if the cell's text tells; silent when an earlier error
 * explains it. */
void unknown_value(Flat *f, const Scope *scope, const CallSite *chain, Span span, const char *name,
                   const char *what);

/* fold.c: values known while compiling. Errors are reported; false then. */
bool fold_constant(Flat *f, const Expr *e, const Scope *scope, const CallSite *chain, Constant *out);
bool fold_condition(Flat *f, const Expr *e, const Scope *scope, const CallSite *chain, bool *out);
bool fold_integer(Flat *f, const Expr *e, const Scope *scope, const CallSite *chain, const char *what,
                  int64_t *out);
/* An extent: an integer polynomial in dims; NULL after an error. */
const Poly *fold_extent(Flat *f, const Expr *e, const Scope *scope, const CallSite *chain);

#endif
