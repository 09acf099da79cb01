/* cellc.h: the one header of the compiler. What every pass shares stands here: memory, sources and
 * diagnostics, the AST (parse, expand, eval), sizes and index expressions, the IR, and the prototypes of all
 * passes, grouped by file. Everything is allocated in the compilation's arena and freed at once with it;
 * strings are interned, so that equal names are equal pointers. */
#ifndef CELLC_H
#define CELLC_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---------------------------------------------------------------- util.c: memory and strings */

typedef struct Arena Arena;
Arena *arena_new(void);
void arena_free(Arena *a);
void *arena_alloc(Arena *a, size_t bytes);                       /* zeroed, 16-byte aligned, never NULL */
/* Gives `old` where there is room behind it, else a copy; `old` is released then. */
void *arena_grow(Arena *a, void *old, size_t old_bytes, size_t new_bytes);
void arena_release(Arena *a, void *p, size_t bytes);              /* of which nobody reads anything any more */
const char *arena_text(Arena *a, const char *fmt, va_list ap);    /* formatted */

/* A growable array: struct { T *data; int len, cap; }. */
#define Vec(T) struct { T *data; int len, cap; }
#define vec_push(arena, v, x)                                                                                \
    do {                                                                                                     \
        if ((v)->len == (v)->cap) {                                                                          \
            int cap_ = (v)->cap ? 2 * (v)->cap : 8;                                                          \
            (v)->data = arena_grow((arena), (v)->data, sizeof *(v)->data * (size_t)(v)->cap,                 \
                                   sizeof *(v)->data * (size_t)cap_);                                        \
            (v)->cap = cap_;                                                                                 \
        }                                                                                                    \
        (v)->data[(v)->len++] = (x);                                                                         \
    } while (0)

typedef struct Compiler Compiler;
const char *intern(Compiler *c, const char *s);
const char *intern_n(Compiler *c, const char *s, size_t n);
const char *intern_f(Compiler *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A growing text buffer; emitters print into it. */
/* dropped: what is printed goes nowhere. */
typedef struct Buf { Arena *arena; char *data; size_t len, cap; int indent; bool dropped; } Buf;
Buf buf_like(const Buf *b);                                       /* empty, as far in, dropped if b is */
void buf_release(Buf *b);                                         /* empty again; its text is gone */
void buf_f(Buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));   /* append */
/* indent, append, newline */
void buf_line(Buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_json(Buf *b, const char *s, size_t len);                 /* a JSON string, with its quotes */
/* Bytes of the well-formed UTF-8 sequence at p, or 0 when there is none. */
int utf8_len(const unsigned char *p, const unsigned char *end);

/* ---------------------------------------------------------------- diag.c: sources and diagnostics */

/* Byte offsets [lo, hi) in sources[file]; file -1: none. */
typedef struct Span { int32_t file; uint32_t lo, hi; } Span;

typedef struct Source {
    const char *path;             /* as the user wrote it */
    const char *text;             /* len bytes, then a NUL; may contain NULs when the input is broken */
    size_t len;
    uint32_t *line_start;         /* byte offset of each line */
    int lines;
} Source;

/* A chain of fn expansions, innermost first; printed as notes "in the expansion of ...". */
typedef struct CallSite { Span span; const char *fn; const struct CallSite *outer; } CallSite;

/* DIAG_PERF prints "performance warning" */
typedef enum { DIAG_ERROR, DIAG_WARNING, DIAG_PERF, DIAG_NOTE } DiagLevel;

/* A note belongs to the diag before it. */
typedef struct Diag { DiagLevel level; Span span; const char *text; const CallSite *chain; } Diag;

/* -> file number; text is copied */
int source_add(Compiler *c, const char *path, const char *text, size_t len);
int source_load(Compiler *c, const char *path);                         /* -> file number or -1 with a diag */
int source_import(Compiler *c, const char *path, Span at);              /* the same of what is imported there */
void source_position(const Source *s, uint32_t offset, int *line, int *column);   /* both from 1 */
void diag(Compiler *c, DiagLevel level, Span span, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void diag_chain(Compiler *c, const CallSite *chain);              /* attach a call chain to the last diag */
/* The nearest of n names within an edit distance of max(1, len/3), or NULL. */
const char *suggest(const char *name, const char *const *names, int n);
/* words.c: what to write in place of what other languages have: of a function, of sum_d, of an initialiser, of the character
 * that a text begins with, of OWNER.BEHIND (behind: the text behind the '.'), of a statement's first word. NULL: not known. */
const char *foreign_function(Compiler *c, const char *name);
const char *foreign_reduction(Compiler *c, const char *name);
const char *foreign_initialiser(const char *name);
const char *foreign_character(const char *text, size_t len);
const char *foreign_member(Compiler *c, const char *owner, size_t owner_len, const char *behind);
const char *foreign_statement(const char *word);
/* Is the name one of another step, as h_prev (*step -1), h_t (0), h_next (1)? Then *base is h. */
bool foreign_step(Compiler *c, const char *name, const char **base, int *step);
/* All, in source order: with carets, or as c->diagnostics_json says as JSON (diag_json.c). */
void diag_print(Compiler *c, FILE *out);
/* One object on a line: a diagnostic and the notes behind it. */
void diag_json(const Compiler *c, const Diag *first, int count, FILE *out);
/* exits with 70 */
void bug(Compiler *c, const char *pass, const char *fmt, ...) __attribute__((format(printf, 3, 4), noreturn));

/* ---------------------------------------------------------------- ast: what parse gives */

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
typedef enum { R_SUM, R_MEAN, R_MAX, R_MIN, R_PROD, R_SOFTMAX } ReduceOp;

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
    BinderVec lhs;                /* EQ, FN: indices on the left; REPEAT: the one index with its range */
    Expr *init;                   /* PARAM: after '~' (a CALL or REF); STATE, CARRY: after '=' */
    Expr *value;                  /* DIM, CONST, EQ, FN, WHEN (the condition) */
    Vec(const char *) choices;    /* OPTION: its values, the first is the default */
    Vec(Span) choice_spans;
    Vec(const char *) params;     /* FN */
    Vec(Span) param_spans;
    Vec(const char *) held;       /* FN: parameters after ';' (adjoint fn f(u; g)) */
    StmtVec body;                 /* CELL, FN block, WHEN, REPEAT */
    StmtVec other;                /* WHEN: else */
    bool has_body;                /* FN: block form */
};

/* ---------------------------------------------------------------- the compilation */

typedef enum { DT_F32, DT_BF16, DT_F16, DT_F64, DT_I32 } Dtype;
/* A plan is for any calls; or, beside such a one, for those whose blocks (B times the parallel extents) are no more than the GPU has
 * multiprocessors, or more than CROWD on each. */
typedef enum { CALLS_ANY, CALLS_FEW, CALLS_MANY } Calls;

typedef enum { SCHED_AUTO, SCHED_STEPS, SCHED_MAP, SCHED_TILE, SCHED_GEMM, SCHED_SCAN, SCHED_WINDOW } Schedule;

/* How products for all steps are made: large ones of f32 from parts of bf16, and large ones of 16 bits in one kernel with what is
 * computed from them; none so; all of the former; all of the latter. */
typedef enum { PRODUCTS_AUTO, PRODUCTS_PLAIN, PRODUCTS_PARTS, PRODUCTS_FUSED } Products;

/* settings.c: the words for types ("f32", ...), schedules ("auto", ...) and forms of the products, in the order of the enums,
 * with NULL behind the last. */
extern const char *const dtype_names[];
extern const char *const schedule_names[];
extern const char *const products_names[];

typedef struct Setting { const char *name, *value; bool used; } Setting;   /* --dim N=32, --set bias=input */

/* How a state's rows and columns lie over a warp's lanes and a block's warps; all 0: the planner chooses. */
typedef struct LayoutHint { int row_lanes, col_lanes, row_warps, col_warps; } LayoutHint;
/* --schedule tile:cluster=4:interval=2:...: what somebody else has chosen of a walk; 0: the planner does. */
typedef struct TileHints {
    int cluster;                  /* blocks that share a state */
    int interval;                 /* steps between checkpoints */
    int warps;                    /* of a block, where the direction has no layout below */
    LayoutHint layout[2];         /* forward, backward */
} TileHints;

typedef struct Module Module;

struct Compiler {
    Arena *arena;
    struct Texts *texts;          /* of the files that were read (texts.h), shared with compilations made from this one */
    Vec(Source) sources;
    Vec(Diag) diags;
    int errors;
    struct InternTable *interned;
    struct Names *words;          /* of C, which no generated name may be (emit_common.c); NULL: not asked for yet */
    Vec(Setting) dims;            /* --dim */
    Vec(Setting) sets;            /* --set: options and constants */
    Dtype dtype;                  /* --dtype: storage of inputs, params and outputs */
    Schedule schedule;            /* --schedule */
    TileHints tile;               /* what stands behind --schedule tile: */
    bool scheduled;               /* --schedule was given */
    const char *tuned;            /* --tuned: a file of `cellc tune`; NULL: looked for */
    const char *tuned_dir;        /* where the library will lie, and perhaps such a file; NULL: it will not */
    bool is_tuned;                /* the schedule is from one */
    bool reverse;                 /* --reverse: time is walked from the last step to the first */
    Products products;            /* --products */
    bool lengths;                 /* --lengths: the call says how many steps each sequence has */
    const char *cell;             /* SPEC:NAME, the cell of a file that has several; NULL: the only one */
    const char *import_dir;       /* --import-dir: where imports are looked for next to the importing file's own directory */
    const char *library_dir;      /* and then here: where std.cell lies; NULL if it is not there */
    const char *dump_after;       /* pass name or NULL */
    bool diagnostics_json;        /* --diagnostics json */
    const char *archs;            /* --archs: GPUs that must run the kernels; NULL: those with the most memory */
    /* While a plan is made for GPUs that have less shared memory than others; 0: for those that have most. */
    int64_t block_memory;         /* bytes that a block may have */
    int interval;                 /* steps between checkpoints, at most */
    bool one_block;               /* there are no clusters of blocks */
    Calls calls;                  /* while a plan is made: the calls that it is for */
    bool spread;                  /* CALLS_FEW: there are several multiprocessors for each state */
};

Compiler *compiler_new(void);
void compiler_free(Compiler *c);

/* ---------------------------------------------------------------- size.c: sizes and index expressions,
 * interned */

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
void poly_print(const Module *m, const Poly *p, Buf *out);        /* as a user would write it: 2*H*N + H*V */
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
bool ix_is_index(const IxExpr *a, IndexId *which);                /* a plain index */
/* Bounds over all values of its indices: *lo and *hi are set when they follow from the extents; false if not
 * known. */
bool ix_range(Module *m, const IxExpr *a, const Poly **lo, const Poly **hi);
void ix_print(const Module *m, const IxExpr *a, Buf *out);
/* No index or size is taken to be larger; four times that does not leave 64 bits. */
#define WHOLE_INDEX 0x1p60
/* What the index, quotient or remainder of a term does not exceed. */
double ix_term_most(const Module *m, const IxTerm *t);

/* ---------------------------------------------------------------- ir.c: the IR */

typedef int32_t NodeId;           /* -1: none */
typedef int32_t TensorId;

typedef struct Index { const char *name; const Poly *extent; const IxExpr *alone; /* ix_index, once asked for */ } Index;

typedef enum {
    T_INPUT, T_PARAM,             /* T_INPUT [B,T,axes], T_PARAM [axes] */
    T_STATE,                      /* the state before the step, [B,axes] */
    T_HISTORY,                    /* what the steps before the call gave, [B,K,axes]: of input `of`, or of a
                                   * definition (of -1); place j is j + 1 steps before the first, or step j (grows) */
    T_OUTPUT,                     /* never loaded */
    T_DOUT,                       /* cotangent of an output, [B,T,axes]; of = that output */
    T_DNEXT,                      /* adjoint of a state's next value, [B,axes]; of = that state */
    T_DINIT,                      /* of the initial state, likewise; used by dparam_init only */
    T_DHISTORY,                   /* of the history that the call leaves, [B,K,axes]; of = the T_HISTORY */
    T_COTANGENT                   /* of the result of a fn with an adjoint fn; differentiate replaces it */
} TensorKind;

typedef struct Tensor {
    const char *name;
    TensorKind kind;
    TensorId of;
    bool no_grad;                 /* const param, const input, integer */
    bool lengths;                 /* T_INPUT: what --lengths adds, one number per sequence, [B] */
    bool grows;                   /* T_HISTORY: of all steps, step j at place j; a call leaves its own behind them */
    Dtype dtype;                  /* storage; a state: the compute type */
    bool complex;                 /* the last axis, of 2, is the real and the imaginary part */
    int rank;
    const Poly **axes;
    const char *init;             /* param: its initialiser, "xavier", "const", ...; else NULL */
    double init_arg[2];
    const char *init_text[2];     /* of a number made of dims that are chosen at run time, the text; else NULL */
    Span span;
} Tensor;

typedef enum {
    N_CONST,    /* value */
    N_SIZE,     /* size, as a number */
    N_INDEX,    /* ix, as a number; IX_TIME stands for the step's number t */
    N_LOAD,     /* tensor[map] */
    N_ARRAY,    /* args[0] as an array over exactly these axes: a value of the spec, or what is kept */
    N_VIEW,     /* an N_ARRAY read at map: one index expression per axis of the array, in its order */
    N_MAP,      /* op(args), pointwise */
    N_REDUCE    /* reduction of args[0] over bound */
} NodeKind;

/* TY_COMPLEX is of expressions before lower: nodes are real, a complex value is two of them. */
typedef enum { TY_REAL, TY_INT, TY_BOOL, TY_COMPLEX } NodeType;

/* Rows of the operator table (ops.c). Comparison and logic give TY_BOOL; OP_SELECT evaluates only the branch
 * it takes. */
typedef enum {
    OP_NEG, OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_POW, OP_MAX, OP_MIN, OP_ATAN2,
    OP_HYPOT, OP_LOG_HYPOT, OP_ROOT_RE, OP_ROOT_IM, OP_EXP_TIMES, OP_SCALE,
    OP_EXP, OP_LOG, OP_LOG1P, OP_EXPM1, OP_SQRT, OP_RSQRT, OP_ABS, OP_SIGN, OP_FLOOR, OP_CEIL, OP_ROUND,
    OP_SIN, OP_COS, OP_TAN, OP_ATAN, OP_SINH, OP_COSH, OP_TANH,
    OP_SIGMOID, OP_LOGSIGMOID, OP_SILU, OP_RELU, OP_GELU, OP_GELU_TANH, OP_SOFTPLUS, OP_SOFTSIGN, OP_ELU,
    OP_LEAKY_RELU, OP_HARDTANH, OP_MISH, OP_ERF, OP_CLAMP, OP_REMAINDER,
    OP_IDIV, OP_IMOD, OP_IPOW,    /* of integers */
    OP_BF16, OP_F16,              /* rounded to what tensors are stored in */
    OP_REAL, OP_STOP, OP_HELD, OP_STE, OP_OVERRIDE, OP_SELECT, OP_LT, OP_LE, OP_EQ, OP_NE, OP_AND, OP_OR, OP_NOT,
    OP_COUNT
} Op;

/* What a value depends on (bits of Node.dep). */
enum { DEP_BATCH = 1, DEP_TIME = 2, DEP_PARAM = 4, DEP_INPUT = 8, DEP_STATE = 16, DEP_COTANGENT = 32 };

#define WHOLE_LARGEST 0x1p63

typedef struct Node {
    NodeKind kind;
    Op op;                        /* MAP */
    ReduceOp reduce;              /* REDUCE: R_SUM, R_MAX, R_MIN, R_PROD */
    NodeType type;
    int naxes;                    /* the indices it varies over (without batch and time), in order */
    IndexId *axes;
    unsigned dep;
    bool has_pole;                /* may be infinite or no number though nothing overflows: 1/x, log(x), sqrt(x) */
    int nargs;
    NodeId *args;                 /* MAP; REDUCE, ARRAY: args[0]; VIEW: args[0] is the N_ARRAY it reads */
    TensorId tensor;              /* LOAD */
    int nmap;                     /* LOAD, VIEW: one per axis of what is read, in its order */
    const IxExpr **map;
    const IxExpr *step;           /* LOAD, VIEW: the step that is read, counted as IX_TIME is; NULL: this step */
    TensorId past;                /* where step is given: the T_HISTORY with the steps before the first, or -1 */
    int nbound;                   /* REDUCE: bound indices; IX_BATCH and IX_TIME may be among them */
    IndexId *bound;
    double value;                 /* CONST */
    double most;                  /* TY_INT: what its magnitude does not exceed; WHOLE_LARGEST: nothing is known */
    const Poly *size;             /* SIZE */
    const IxExpr *ix;             /* INDEX */
    const char *name;             /* of a value of the spec; "d_sr" for its adjoint; else NULL */
    Span span;                    /* where it comes from */
    const CallSite *chain;
} Node;

typedef struct Check { const Poly *nonneg; Span span; const char *text; } Check;  /* must hold at the call */

struct Module {
    Compiler *c;
    Arena *arena;
    const char *name;             /* of the cell, and what generated C names begin with */
    const char *cell;             /* of the cell, when name was made longer; else NULL */
    Span span;
    Vec(const char *) dims;       /* run-time dims, in order of declaration */
    const char **size_names;      /* of a call in C: B, T, dims, t0; NULL: not asked for yet (api_sizes) */
    Vec(Setting) bound;           /* dims that are bound: name, value */
    Vec(Setting) options;         /* option values in force */
    int cluster;                  /* blocks that share a state under tile, as far as planned; 0: not yet */
    bool no_made;                 /* what stands in front of a walk is made by kernels: its steps have barriers */
    int interval;                 /* and their steps between checkpoints, at most; 0: as many as one thinks */
    Vec(Quotient) quotients;      /* each must be exact: checked at the call */
    Vec(Index) indices;
    Vec(Tensor) tensors;          /* in order of declaration; then what differentiate adds */
    Vec(Node) nodes;              /* arguments stand before their uses */
    Vec(Check) checks;
    /* Roots, one slot per tensor (-1: none). The axes of a root are the tensor's axes, in order. */
    Vec(NodeId) output;           /* T_OUTPUT: its value */
    Vec(NodeId) next;             /* T_STATE: its next value */
    Vec(NodeId) last;             /* T_HISTORY: the last steps of the call, the latest first */
    Vec(NodeId) init;             /* T_STATE: its initial value when the caller gives none; -1 is zero */
    /* After differentiate: */
    bool has_grad;
    Vec(NodeId) dinput;           /* T_INPUT: gradient at the step */
    Vec(NodeId) dparam;           /* T_PARAM: reduced over batch and time */
    Vec(NodeId) dprev;            /* T_STATE: adjoint of the state before the step */
    Vec(NodeId) dparam_init;      /* T_PARAM: what comes through learned initial states, reduced over batch */
    Vec(NodeId) dpast;            /* T_HISTORY: gradient of what came before the call */
    bool whole_past;              /* steps are read that no history has: a call must begin with step 0 */
    int forward_nodes;            /* nodes [0, forward_nodes) existed before differentiate */
    bool inner;                   /* an adjoint that is made now will be differentiated again */
    struct ConsTable *cons;       /* hash-consing of nodes, Poly and IxExpr */
    const Poly *small[66];        /* constants from -1 on, where they were made */
    Span at;                      /* module_at */
    const CallSite *at_chain;
};

Module *module_new(Compiler *c, const char *name);
IndexId module_index(Module *m, const char *name, const Poly *extent);        /* a fresh index */
TensorId module_tensor(Module *m, Tensor t);

/* Builders: hash-consed (equal nodes are one), types, axes and dep computed. Span and name of the first one
 * made win; node_named gives a name by making a fresh node only when another name is already there. */
NodeId node_const(Module *m, double v);
NodeId node_bool(Module *m, bool v);
NodeId node_size(Module *m, const Poly *p);
NodeId node_whole(Module *m, int64_t v);                          /* a constant as a whole number: an N_SIZE */
NodeId node_index(Module *m, const IxExpr *ix);
NodeId node_load(Module *m, TensorId t, const IxExpr *const *map, int n);
/* An identity map gives the array itself. */
NodeId node_view(Module *m, NodeId array, const IxExpr *const *map, int n);
/* The same reads at another step; 0 where that step is neither one of this call nor in the history `past` (-1:
 * none). step NULL: this step. */
NodeId node_load_at(Module *m, TensorId t, const IxExpr *const *map, int n, const IxExpr *step, TensorId past);
NodeId node_view_at(Module *m, NodeId array, const IxExpr *const *map, int n, const IxExpr *step, TensorId past);
/* Is the step one of the call's, or in the history? -1: certainly. */
NodeId node_has_step(Module *m, const IxExpr *step, TensorId past);
/* v, which is the same at every step, as a value that varies with the step: so that a read of an earlier one keeps its step, and
 * finds the caller's history before the call. */
NodeId node_of_every_step(Module *m, NodeId v);
/* With lengths, is the step one of its sequence? Of steps before the call a history tells: it has zeros for others. Only
 * where a sequence begins within the call, with its own last row, there is none before. -1: there are no lengths. */
NodeId node_in_sequence(Module *m, const IxExpr *step);
/* How many of the call's steps a sequence has, from none to all, as an integer; -1: there are no lengths. */
NodeId node_steps_of_sequence(Module *m);
NodeId node_map(Module *m, Op op, const NodeId *args, int n);
NodeId node_map1(Module *m, Op op, NodeId a);
NodeId node_map2(Module *m, Op op, NodeId a, NodeId b);
NodeId node_select(Module *m, NodeId cond, NodeId a, NodeId b);
NodeId node_reduce(Module *m, ReduceOp r, NodeId a, const IndexId *bound, int n);
/* An N_ARRAY: the value as an array over exactly these axes in this order (broadcasting where it does not
 * vary). Every equation of the spec makes one: `kn[i] = ...` has the axis i even when its right side does not
 * vary. An array is closed: its axes are its own, a use reads it through node_view, or directly where the map
 * would be the identity. An index id may be shared by many equations (lower makes one id per name and
 * extent); a REDUCE may bind an id that is free elsewhere. */
NodeId node_array(Module *m, NodeId a, const IndexId *axes, int n, const char *name, Span span);
/* The expression with indices replaced (in maps and N_INDEX), bound ones renamed where they would capture.
 * Where IX_TIME is among them, values of the step become reads at the other step: an array where it stands,
 * sums and what is carried as arrays of their own. */
NodeId node_subst(Module *m, NodeId a, const IndexId *from, const IxExpr *const *to, int n);
/* What a fn has instead of its derived adjoint: the N_ARRAY of its result, called NAME, holds override(value, u,
 * a), one around the other for several parameters. u is the N_ARRAY of a parameter, and a, over the axes of u, is
 * its adjoint, written with loads of the T_COTANGENT tensor NAME_cotangent, whose axes are those of the result.
 * Once differentiated, an array is no more than its value: this makes it so, in place. */
void module_drop_overrides(Module *m);
/* Span and chain given to nodes made from here on (lower sets it per equation). */
void module_at(Module *m, Span span, const CallSite *chain);

/* The place that a condition pins an index to: in `i == place && ... ? value : 0` the value of an integer node that
 * does not vary over the n given indices; -1: none. `only`: set when nothing else is in the condition. */
NodeId ir_pinned(const Module *m, NodeId select, IndexId i, const IndexId *over, int n, bool *only);
/* A sum of which a pinned term at most is not 0: a read at places that integer values give. */
bool ir_gathers(const Module *m, NodeId reduce);
/* Where a history has a step before the call. */
const IxExpr *ir_history_place(Module *m, TensorId history, const IxExpr *step);
/* The definition whose history a T_HISTORY is; -1: that of an input. */
NodeId ir_history_source(const Module *m, TensorId history);
void ir_print(const Module *m, Buf *out);                         /* text form, parses back */
Module *ir_parse(Compiler *c, const char *text, size_t len);      /* NULL with diags when it is not IR */
void ir_verify(const Module *m, const char *pass);                /* bug() names the pass that broke it */

/* ---------------------------------------------------------------- ops.c: the operator table */

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

/* ---------------------------------------------------------------- hints.c: what stands behind --schedule tile: */

/* Reads "cluster=4:interval=2"; NULL, or what is wrong with it, with "--schedule tile" to stand before it. */
const char *hints_read(Compiler *c, const char *text, TileHints *hints);
/* What hints_read reads, "" for none. */
const char *hints_text(Compiler *c, const TileHints *hints);
/* As "2x16/1x4". */
const char *layout_text(Compiler *c, const LayoutHint *layout);
/* May a walk in this direction (1: backward) have this layout? */
bool hints_allow(const TileHints *hints, int direction, const LayoutHint *layout);
/* Do they leave the planner no layout to choose? */
bool hints_choose(const TileHints *hints, int direction);

/* ---------------------------------------------------------------- passes, one file each */

/* parse.y, lex.l, ast.c: text -> AST. Never fails: what is broken is diagnosed and left out. */
typedef struct Ast { StmtVec items; int file; } Ast;              /* top level: imports, fns, cells */
Ast *parse_source(Compiler *c, int file);
/* What a state or a carry starts from, as a number: a condition is 1 where it holds, else 0. */
const Expr *ast_initial(Compiler *c, const Expr *init);
/* The cell called `name`, or as SPEC:NAME said it (c->cell), or else the file's only one. NULL after a diagnostic; without one where
 * the file has no cell and none is `required`. */
const Stmt *ast_cell(Compiler *c, const Ast *ast, const char *name, bool required);

/* fmt.c: AST (with the comments of its source) -> canonical text. */
void fmt_ast(Compiler *c, const Ast *ast, bool explicit_form, Buf *out);

/* expand.c: the path of what the file `from` imports by that name: beside it, in import_dir, in the library; NULL where
 * it is in none of them. A file has one path, the first that led to it. */
const char *import_find(Compiler *c, int from, const char *name);
/* expand.c: why nothing of that name can be imported, wherever it is; NULL where it can. */
const char *import_refused(const char *name);
/* expand.c: imports, options, when, fn, repeat -> a flat cell: declarations and equations only, nothing
 * conditional. */
typedef struct FlatStmt FlatStmt;
typedef struct Flat Flat;         /* expand's result, private to expand.c, resolve.c and lower.c (flat.h) */
Flat *expand(Compiler *c, const Ast *ast, const char *cell_name);
/* resolve.c: names, ranges, shapes, bounds, single assignment, cycles, types; annotates the flat cell. */
bool resolve(Compiler *c, Flat *flat);
/* lower.c: flat cell -> IR. */
Module *lower(Compiler *c, Flat *flat);
/* The three in a row, with verification; NULL when there are errors. */
Module *front_end(Compiler *c, const char *path);

/* simplify.c: folding, dead code, stacked projections of one input become one product. Same values up to
 * rounding order of nothing. */
void simplify(Module *m);
/* differentiate.c: adds the adjoint graph and its roots. */
void differentiate(Module *m);

/* emit_c.c: the reference: forward, backward and step as plain C loop nests from the unsimplified IR. */
void emit_c(const Module *m, Buf *out);
/* emit_header.c: the C API of the generated library; emit_manifest.c: the JSON that bindings read. */
void emit_header(const Module *m, Buf *out);
void emit_manifest(const Module *m, Buf *out);

#endif
