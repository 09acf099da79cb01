/* eval_code.h: what eval.c compiles a cell to and eval_run.c runs: trees in which every name is resolved to
 * an array or to a register that holds an index. Private to the evaluator. */
#ifndef CELLC_EVAL_CODE_H
#define CELLC_EVAL_CODE_H

#include "eval.h"
#include "eval_nest.h"

typedef struct Code Code;

/* A complex number. */
typedef struct Pair { Dual re, im; } Pair;
typedef struct Array Array;
typedef struct Instance Instance;

/* What is computed in a frame is valid until its tick changes. There is one for the cell (a step) and one per
 * use of a fn (a call); ticks are never reused. */
typedef struct Frame { uint64_t tick; } Frame;

/* An integer expression in index brackets. */
typedef enum { I_CONST, I_REG, I_STEP, I_VALUE, I_NEG, I_ADD, I_SUB, I_MUL, I_DIV, I_MOD } IxOp;
typedef struct Ix {
    IxOp op;
    int64_t k;                    /* CONST */
    int reg;                      /* REG */
    Code *value;                  /* VALUE: what an integer input says */
    struct Ix *a, *b;
} Ix;

/* One equation: a loop over the registers of its left side. */
typedef struct Equation {
    const Stmt *stmt;             /* NULL for an argument of a fn */
    int rank;
    int *reg;                     /* per axis; -1: a constant index */
    int64_t *fixed;               /* per axis, where reg is -1 */
    Code *value;
} Equation;

struct Array {
    const char *name;
    Span span;
    int rank;
    int64_t shape[EVAL_MAX_RANK], stride[EVAL_MAX_RANK];
    bool of_steps[EVAL_MAX_RANK]; /* the extent is that of T */
    int64_t count;                /* of numbers in data: two for each complex element, side by side */
    Dual *data;                   /* NULL until its shape is known */
    bool complex, type_known, type_busy;
    bool extents_known;           /* shape[] is there, but not yet whether its values are complex */
    bool shape_known, shape_busy;
    bool is_data;                 /* filled by others: never computed here */
    bool busy;                    /* being computed: meeting it again is a cycle */
    Frame *frame;
    uint64_t stamp;               /* the frame's tick when it was last computed */
    /* Inside an inner gradient single elements are computed, when they are read, and kept here. */
    Dual *element;
    uint64_t *element_stamp;
    Vec(Equation) equations;
    struct Scope *scope;          /* where its equations are read */
    bool compiled;
    bool shifted;                 /* its values at all steps are kept as they come */
    struct Array *before, *after; /* of a carried value: those of the iterations before and behind, or NULL */
    struct Array *base;           /* argument of a fn: the array that is passed, or NULL */
    bool looked_at;               /* when reads of other steps were looked for */
    int64_t back;                 /* how many steps back it is read, where that is bounded */
    bool grows;                   /* it is not: its history has all steps, step j at place j */
    int history;                  /* the tensor with the steps before the call, -1 */
    int tensor;                   /* input: its tensor; else -1 */
    bool is_variable;             /* a gradient is taken with respect to it: it is a real number */
    int64_t whole;                /* a number passed to a fn that is whole: its value, also where a double rounds it */
    Dual *past;                   /* values at other steps of the sequence, [steps][count], NULL until asked for */
    uint64_t *past_of;            /* per step: the tick of the sequence that they belong to */
    int64_t past_steps;
};

/* One use of a fn: its arguments as arrays, its body with registers and arrays of its own. */
struct Instance {
    const Expr *call;
    const Stmt *fn;
    struct Scope *scope, *caller; /* of the body; where the call stands */
    Frame frame;
    int nargs;
    Array **args;
    Array *result;
    bool compiled;
};

/* What a value was last computed for: a frame's tick and the registers that it depends on. */
typedef struct Memo {
    Frame *frame;
    uint64_t tick;                /* 0: never */
    int n;
    int *reg;
    int64_t *value;
} Memo;

typedef enum {
    C_CONST,
    C_INDEX,
    C_STEP,
    C_STEPS,
    C_LOAD,
    C_CALL1,
    C_CALL2,
    C_CALL3,
    C_PAIR,
    C_NOT,
    C_COMPARE,
    C_AND,
    C_OR,
    C_COND,
    C_REDUCE,
    C_SOFTMAX,
    C_INSTANCE,
    C_GRAD
} CodeKind;

struct Code {
    CodeKind kind;
    Span span;
    bool complex;                 /* its value is a pair: LOAD, PAIR, COND, REDUCE, INSTANCE */
    enum { WHOLE_UNKNOWN, WHOLE_NO, WHOLE_YES } whole; /* eval_is_whole; of a CONST set when it is compiled */
    enum { F_UNKNOWN, F_NONE, F_SUM, F_LESS, F_TIMES, F_QUOTIENT, F_REST, F_LEAST, F_MOST } whole_function;
                                  /* CALL2, of whole numbers; found when it is asked for (eval_whole.c) */
    double num;                   /* CONST */
    Array *array;                 /* LOAD, INSTANCE: what is read; GRAD: the variable */
    Ix **index;                   /* per axis of it; INDEX: index[0] */
    Ix *time;                     /* LOAD: the step that is read, NULL: this one */
    const Function1 *call1;
    const Function2 *call2;
    Dual (*call3)(Dual, Dual, Dual);
    Pair (*pair)(Nest *, Pair, Pair); /* PAIR: of a and b, or of a alone */
    AstOp op;                     /* COMPARE */
    ReduceOp reduce;
    int nbound;                   /* REDUCE, SOFTMAX, GRAD */
    int *bound;
    int64_t *extent;
    bool *of_steps;               /* REDUCE, SOFTMAX: per bound index: it runs over the steps so far */
    Code *a, *b, *c;              /* GRAD: a is differentiated, b is held or NULL */
    Instance *instance;
    Instance **around;            /* GRAD: the calls it stands in, outermost first */
    int naround;
    Memo memo; /* REDUCE: of kept; SOFTMAX: of kept (the total) and top; INSTANCE: of its arguments */
    Dual kept, kept_im;
    double top;
};

/* A state and its next value. */
typedef struct StateSlot { Array *now, *next, *init; int tensor; } StateSlot;
typedef struct TensorSlot { Array *array; int tensor; } TensorSlot;

typedef struct EvalProgram {
    Compiler *c;
    Arena *arena;
    Eval *e;
    Frame frame;                  /* of the cell: one tick per step */
    uint64_t ticks;
    int64_t *regs;
    int nregs, cap_regs;
    int depth;
    Nest nest;
    int64_t t, steps;
    int64_t elements;             /* of all its arrays so far */
    int64_t first, sequence;      /* number of the first step; which sequence of the batch */
    uint64_t sequence_tick;
    int away;                     /* while another step than the current one is looked at */
    int lengths;                  /* the tensor that says how many steps each sequence has; -1: all */
    Vec(Array *) resets;          /* inputs that say where another sequence begins */
    uint64_t began_tick;          /* of the sequence for which is known that at step began_at it has begun at began */
    int64_t began_at, began;
    bool began_anew;              /* and that by a reset */
    /* Per register: the range of an index; -1 where it is no index, or as long as the steps are many. */
    int64_t *extents;
    bool of_steps;                /* the extent that was found last is that of T */
    bool whole_past;              /* steps are read that no history has */
    bool counts_anew;             /* the number of the step is read; where there are resets, it counts from the last one */
    Vec(Array *) looked_back;     /* arrays that are read at other steps */
    bool has_room;                /* is there such a history? */
    int64_t room;                 /* steps that a history has room for that grows */
    int64_t extent_T;             /* what T was as a range when the cell was compiled; 0: it is none */
    const Ast *ast;               /* to compile it again for another T */
    Vec(TensorSlot) inputs, params, outputs, watches;
    Vec(StateSlot) states;
    Vec(Array *) shifted;         /* of the cell, read at other steps by name */
    struct Scope *cell_scope;
    bool has_domains;             /* a declaration says where its values are drawn from */
    bool constants_only;          /* while a constant is computed: no values may be read */
    int nodes;                    /* compiled so far, against runaway expansion */
    const char *error;
    Span error_span;
} EvalProgram;

/* eval_run.c: the value of a tree with the registers as they are. */
Dual eval_code(EvalProgram *p, Code *x);
/* LOAD, INSTANCE: the element; its imaginary part goes to *im, NULL: it is real. */
Dual eval_load(EvalProgram *p, Code *x, Dual *im);
bool eval_memo_holds(EvalProgram *p, Memo *m);
void eval_memo_set(EvalProgram *p, Memo *m);
void eval_fail(EvalProgram *p, Span span, const char *text);
void eval_compute(EvalProgram *p, Array *a);
void eval_run_equations(EvalProgram *p, Array *a);
/* The place of an element in x's array, by its index expressions; -1 with an error when it is outside. */
int64_t eval_place(EvalProgram *p, const Code *x);
/* The next point of a box of registers, last axis first; false after the last one, with all back at 0. */
bool eval_advance(EvalProgram *p, int n, const int *reg, const int64_t *extent);
/* Puts the registers at the first point; false when there is none. */
bool eval_start(EvalProgram *p, int n, const int *reg, const int64_t *extent);
enum { MAX_BOUND = 64 };          /* indices of one reduction */
/* How many places the bound indices of a reduction have at this step, into `room` where that is not x->extent. */
const int64_t *eval_extents(EvalProgram *p, const Code *x, int64_t *room);

int64_t eval_ix(EvalProgram *p, const Ix *x, Span span);

/* eval_past.c: what is bound to a tensor, from element `from` on; a value at the step that the read names; a
 * value kept for later steps; the histories of a sequence at its end. */
void eval_read(const Eval *e, Dual *to, int64_t count, const EvalTensor *t, int64_t from);
Dual eval_at_step(EvalProgram *p, const Code *x, const int64_t *place, int64_t at, Dual *im);
void eval_keep(EvalProgram *p, Array *a);
void eval_leave(EvalProgram *p);
/* Does another sequence begin at the step? At which step did the one of this step begin (0: with the first call)? */
bool eval_is_reset(EvalProgram *p, int64_t step);
int64_t eval_began(EvalProgram *p);
int64_t eval_row(const EvalProgram *p, int64_t step);
/* Has the sequence the step, counted from the call's first? */
bool eval_within(const EvalProgram *p, int64_t step);

/* eval_complex.c: the value of any tree; a real one has no imaginary part. */
Pair eval_pair(EvalProgram *p, Code *x);

/* eval_whole.c: is it a whole number, of 64 bits? Then its value. Sums, products and quotients of these. */
bool eval_is_whole(const EvalProgram *p, Code *x);
int64_t eval_whole(EvalProgram *p, Code *x);
int64_t eval_whole_sum(int64_t a, int64_t b);
int64_t eval_whole_minus(int64_t a);
int64_t eval_whole_product(int64_t a, int64_t b);
int64_t eval_whole_quotient(int64_t a, int64_t b);
int64_t eval_whole_rest(int64_t a, int64_t b);

/* eval_grad.c */
Dual eval_grad(EvalProgram *p, Code *x);

#endif
