/* eval.h: the evaluator of cells, the independent oracle of the compiler. It walks the AST as parsed, in f64
 * with dual numbers, and shares nothing with the passes that make code: it has its own reading of imports,
 * options, `when`, `fn`, `repeat`, ranges and guards, and its own derivative of every function. */
#ifndef CELLC_EVAL_H
#define CELLC_EVAL_H

#include "base/range.h"
#include "front/ast.h"

/* EVAL_ROOM: steps that a history has room for, where all earlier steps are read and the sizes do not say. */
enum { EVAL_DIRECTIONS = 8, EVAL_MAX_RANK = 10, EVAL_ROOM = 24 };

/* The roundings of one operation: on a path, those of its slope (up to four, with the library's functions), of the
 * product with it and of the sum; of a value, those of the function and of an argument made for it. */
#define EVAL_ROUNDING (6 * 0x1p-53)

typedef enum { EV_INPUT, EV_PARAM, EV_STATE, EV_OUTPUT, EV_WATCH } EvalKind;

/* One tensor of the cell and what the caller binds to it. Row-major f64; `value` and `tangent` are the
 * caller's. */
typedef struct EvalTensor {
    const char *name;
    EvalKind kind;
    bool no_grad;                 /* const, or an integer */
    bool is_int;
    int64_t below;                /* an integer: the largest extent of an axis that it says a place of; 0: none */
    bool lengths;                 /* input: how many steps each sequence has, [B] */
    int rank;                     /* without batch and time */
    int64_t shape[EVAL_MAX_RANK];
    int64_t count;                /* elements of one step, one state or one param */
    bool has_init;                /* state: the spec gives its initial value */
    bool has_range;               /* its values are drawn from here */
    Range range;
    bool reach;                   /* state: what the cell gives it after a few steps */
    double centre;                /* param: the one number that the spec starts it from; else 0 */
    const Stmt *decl;             /* NULL for EV_WATCH */
    int scale; /* of 8 bits: the tensor with its scales; else 0, as a tensor stands before its scales */
    int64_t block; /* as many numbers have one scale; 0: all */
    /* Input [B,T,shape] (lengths [B]), param [shape], state [B,shape]: read. A state may stay NULL: the spec's initial
     * value, or zero. A tangent may be NULL: zero in that direction. */
    const double *value;
    const double *tangent[EVAL_DIRECTIONS];
    /* Output and watched value [B,T,shape], final state [B,shape]: written where not NULL. */
    double *out;
    double *out_tangent[EVAL_DIRECTIONS];
} EvalTensor;

typedef struct EvalSize { const char *name; int64_t value; } EvalSize;

typedef struct Eval {
    Compiler *c;
    EvalTensor *tensors;          /* in order of declaration, watched values last */
    int ntensors;
    EvalSize *dims;               /* all dims of the cell with their values */
    int ndims;
    const char *cell;
    const char *run_error;        /* why eval_run returned false */
    Span run_error_span;
    /* Set by the caller for a run that bounds roundings: out_tangent[0] is then the sum over all paths from
     * tangent[0], which is not negative, of their magnitudes, out_tangent[1] the same with each path times its
     * number of operations, and out_tangent[2] what the value itself may be off by, in roundings of one operation
     * (EVAL_ROUNDING). */
    bool magnitudes;
    struct EvalProgram *program;
} Eval;

/* The cell's name, its dims without a value (neither a default nor c->dims nor sizes), its options and their
 * choices: what a caller must know before it can choose sizes. All arrays live in c's arena. */
typedef struct EvalOption { const char *name; const char **choices; int nchoices; } EvalOption;
typedef struct EvalOutline {
    const char *cell;
    const char **open_dims;
    int nopen;
    const char **all_dims;
    int nall;
    EvalOption *options;
    int noptions;
} EvalOutline;
bool eval_outline(Compiler *c, const Ast *ast, const char *cell, EvalOutline *out);

/* Compiles a cell for evaluation: `cell` names it, NULL takes the file's last cell. Dims come from sizes,
 * then from c->dims, then from their defaults; options and constants from c->sets. NULL with diagnostics in c
 * when the cell is not valid. Everything lives in c's arena. */
Eval *eval_new(Compiler *c, const Ast *ast, const char *cell, const EvalSize *sizes, int nsizes);

/* Adds a definition of the cell as a tensor to be written at every step; -1 when there is none of that name.
 * A primed name is the next value of a state. Invalidates pointers into e->tensors. */
int eval_watch(Eval *e, const char *name);
EvalTensor *eval_find(Eval *e, const char *name);

/* Runs T steps (numbered from t0) of B sequences with what is bound. false when an index leaves its array or
 * a value is missing: run_error says which. B = 0 and T = 0 are legal. */
bool eval_run(Eval *e, int64_t batch, int64_t steps, int64_t t0);

/* Makes the shapes those of so many steps, where T is a range of the cell; eval_run does it first. A watched
 * value of such a shape is known by it only afterwards. */
bool eval_for_steps(Eval *e, int64_t steps);

#endif
