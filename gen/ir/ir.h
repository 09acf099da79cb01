/* ir.h: the IR: tensors, nodes, a module, its builders (ir.c), its text form (ir_text.c, ir_parse.c) and the passes from
 * module to module (differentiate.c, simplify.c). */
#ifndef CELLC_IR_H
#define CELLC_IR_H

#include "base/range.h"
#include "size.h"

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
    bool starts; /* T_INPUT: what --packed adds, the first row of each sequence and of none, [B + 1] */
    bool chunk;                   /* between the step and a walk in chunks (schedule/chunk), so no argument of
                                   * a call: an output that the walk takes, an input that it gives; or a state
                                   * whose steps are the walk's alone, with no next value here */
    int level; /* of `chunk`: how many walks stand before that one, of what it reads */
    bool grows;                   /* T_HISTORY: of all steps, step j at place j; a call leaves its own behind them */
    Dtype dtype;                  /* storage; a state: the compute type */
    bool complex;                 /* the last axis, of 2, is the real and the imaginary part */
    bool inner; /* state: the third axis from the end lies in memory behind the second (split_states.c) */
    int rank;
    const Poly **axes;
    const char *init;             /* param: its initialiser, "xavier", "const", ...; else NULL */
    double init_arg[2];
    const Range *range;           /* input, param, state, history: where tests draw its values; NULL: anywhere */
    bool reach;                   /* state, history: tests give it what the cell gives it */
    const char *init_text[2];     /* of a number made of dims that are chosen at run time, the text; else NULL */
    Span span;
} Tensor;

/* Has the tensor a row for each step? */
static inline bool tensor_per_step(const Tensor *t)
{
    return (t->kind == T_INPUT && !t->lengths && !t->starts) || t->kind == T_OUTPUT || t->kind == T_DOUT;
}

/* A state that the module's own steps carry. */
static inline bool tensor_steps(const Tensor *t)
{
    return t->kind == T_STATE && !t->chunk;
}

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
    OP_HYPOT, OP_LOG_HYPOT, OP_ROOT_RE, OP_ROOT_IM, OP_EXP_RE, OP_EXP_IM, OP_SCALE,
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

/* Roots: what a cell computes of a tensor, -1: nothing. The axes of a root are the tensor's, in order. root_table
 * says of which tensors each kind is. */
typedef enum {
    ROOT_NONE = -1,
    ROOT_OUTPUT, ROOT_NEXT, ROOT_INIT,
    ROOT_DINPUT, ROOT_DPARAM, ROOT_DPREV, ROOT_DPARAM_INIT, ROOT_DPAST,
    ROOT_LAST,
    ROOT_COUNT
} RootKind;
typedef union Roots {
    struct {
        NodeId output;            /* its value */
        NodeId next;              /* its next value */
        NodeId init;              /* its initial value when the caller gives none; -1 is zero */
        NodeId dinput;            /* gradient at the step */
        NodeId dparam;            /* gradient, reduced over batch and time */
        NodeId dprev;             /* adjoint of the state before the step */
        NodeId dparam_init;       /* what comes through learned initial states, reduced over batch */
        NodeId dpast;             /* gradient of what came before the call */
        NodeId last;              /* the last steps of the call, the latest first */
    };
    NodeId of[ROOT_COUNT];        /* the same by kind */
} Roots;
typedef struct RootRow {
    const char *word;             /* in dumps */
    TensorKind of;
    const char *what;             /* in messages */
} RootRow;
extern const RootRow root_table[ROOT_COUNT];

/* Which vectors' products with several params are made one: those that depend on no state, of whole
 * params, if what a walk on chip fetches of them begins at whole vectors; those that depend on no state;
 * all; and besides, products of several vectors that are added up. */
typedef enum { STACK_NONE, STACK_FETCHED, STACK_INPUTS, STACK_ALL, STACK_COLUMNS } Stacking;

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
    Vec(Quotient) quotients;      /* each must be exact: checked at the call */
    Vec(Index) indices;
    Vec(Tensor) tensors;          /* in order of declaration; then what differentiate adds */
    Vec(Node) nodes;              /* arguments stand before their uses */
    Vec(Check) checks;
    Vec(Roots) roots;             /* per tensor */
    bool has_grad;                /* after differentiate */
    bool whole_past;              /* steps are read that no history has: a call must begin with step 0 */
    int forward_nodes;            /* nodes [0, forward_nodes) existed before differentiate */
    int levels; /* of walks beside the module, 1 + the largest Tensor.level; or 0 */
    const void *cut;              /* what a schedule took out of the step (Schedule.cut); or NULL */
    /* What the pass `split` is asked for: an axis of the matrix states from the last, 1 or 2; or 0. */
    int side;
    int parts; /* the number of parts that it made of that axis; or 0 */
    Stacking stack; /* what the pass is asked for, and how many products it made */
    int stacked;
    bool fold; /* what the pass `folded` is asked for: factors that params make go into a product's matrix */
    bool unroll; /* likewise, of `unrolled`: sums over a few places are written out; how many were */
    int unrolled;
    Vec(NodeId) folded; /* the matrices that have such factors */
    int concatenated; /* sums that have one product for several vectors */
    Vec(NodeId) joined; /* its matrices that are no params */
    const char *concatenated_of; /* the vectors, in words */
    const char *apart; /* why others have a product each, in words; or NULL */
    int fewer; /* products that these take the place of, without themselves */
    const Poly *laid; /* elements of the matrices that are made for them in each call */
    bool inner;                   /* an adjoint that is made now will be differentiated again */
    struct ConsTable *cons;       /* hash-consing of nodes, Poly and IxExpr */
    struct Marks **marks;         /* those that no walk has (marks.c) */
    const Poly *small[66];        /* constants from -1 on, where they were made */
    Span at;                      /* module_at */
    const CallSite *at_chain;
};

Module *module_new(Compiler *c, const char *name);
/* A module with the same content: what is added to one of them, or changed, is not in the other. */
Module *module_copy(const Module *from);
/* Its nodes, which it then has no more: a pass that changes the axes of tensors makes all of them again, and the
 * roots. Ids are places in what comes out. */
const Node *module_take_nodes(Module *m);
void module_release(Module *m);   /* of a copy that nothing reads any more: its nodes are gone */
IndexId module_index(Module *m, const char *name, const Poly *extent);        /* a fresh index */
TensorId module_tensor(Module *m, Tensor t);
/* One between the step and kernels that compute a part of it, with numbers of the type that is computed in. */
TensorId module_tensor_between(Module *m, Tensor t, const IndexId *axes, int n);
/* With --packed, the tensor that says where the rows of each sequence begin, [B + 1]; -1: each has T of them. */
TensorId module_starts(const Module *m);
/* The rows of all sequences together: B T, or with --packed a size of the call. */
const Poly *module_rows(Module *m);

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
/* The same of a module that was planned: attempts may have left nodes that no root needs, equal ones and sums with a
 * name among them. */
Module *ir_parse_tried(Compiler *c, const char *text, size_t len);
const Poly *ir_parse_size(Module *m, const char *text,
                          size_t len); /* as poly_print prints it; NULL: it is none */
/* Marks the value and all that it is made of; id < 0: nothing. marked: per node. */
void ir_mark(const Module *m, NodeId id, bool *marked);
void ir_verify(const Module *m, const char *pass);                /* bug() names the pass that broke it */

/* Which root an array is, and of which tensor; ROOT_NONE: it is none. */
RootKind root_kind(const Module *m, NodeId id, TensorId *of);

/* affine.c: are the next values of these states affine in the states before the step, as their expressions stand? */
bool ir_is_affine(const Module *m, const TensorId *states, int nstates);
/* simplify.c: folding, dead code, stacked projections of one input become one product. Same values up to
 * rounding order of nothing. */
void simplify(Module *m);
/* differentiate.c: adds the adjoint graph and its roots. */
void differentiate(Module *m);

#endif
