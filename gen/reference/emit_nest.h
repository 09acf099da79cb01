/* emit_nest.h: the C emitter's inner part (emit_nest.c): values as C expressions and arrays as loop nests,
 * shared with emit_c.c, which builds the file around them. */
#ifndef EMIT_NEST_H
#define EMIT_NEST_H

#include "emit/emit.h"

typedef struct Text {
    const char *s;
    int prec;
} Text; /* C expression and how tightly it binds (C_ levels) */

/* A member of the generated `Step`: what one step of one sequence reads and writes. */
typedef struct Member {
    const char *type;             /* "const real *", "real *", "int64_t" */
    const char *name;
    const char *comment;
    const Poly *elements;         /* of memory that the function takes for it; NULL: set by the caller */
    bool used;                    /* by the function that is being printed */
    bool taken;                   /* its memory, by any function of this direction */
} Member;

/* Where the value of an N_ARRAY (or of a reduction kept as an array) is found. */
typedef struct Slot {
    int member;                   /* -1: none */
    const char *local;            /* a scalar's variable in the function, or NULL */
} Slot;

typedef struct Region {
    int parent, depth;
} Region; /* a branch of a select within one scope; 0: the scope */
/* operations: of its text, were nothing in it named; MANY or more are not counted. */
typedef struct ScopeNode { NodeId id; int region, uses, operations; bool direct; } ScopeNode;
typedef struct ScopeSelect { NodeId id; int region[2]; } ScopeSelect;

/* One loop body's expression: which nodes it uses more than once, and in which branches. */
typedef struct Scope {
    Vec(ScopeNode) nodes;
    Vec(Region) regions;
    Vec(ScopeSelect) selects;
} Scope;

typedef struct Assumed {
    NodeId cond;
    bool holds;
    int serial;
} Assumed; /* what an open branch knows, since when */

typedef struct CGen {
    Module *m;
    Compiler *c;
    Arena *arena;
    Buf *out;                     /* where statements go now */
    Names names;                  /* of members: the whole file's */
    Names locals;                 /* of the open blocks */
    Vec(Member) members;
    int *tensor_member;           /* per tensor, -1: none */
    int *tensor_steps;            /* per tensor: its values at all steps, -1: only this step's are read */
    int *node_steps;              /* per node: likewise of an array */
    int *dim_member;              /* per run-time dim; ATOM_T: the number of steps, -1 */
    int time_member, start_member;
    Slot *slot;                   /* per node, for the function that is being printed */
    bool *kept;                   /* per node: a REDUCE that has an array of its own */
    NodeId *same_as;              /* per node: an array that holds exactly this value, else -1 */
    NodeId inside; /* the array whose nest is being printed: its own value is not read from it */
    const char **env;             /* per index: its C variable, NULL when not bound */
    int *env_serial;              /* per index: when it was bound */
    const char **memo;            /* per node: C variable that holds it, in the open blocks */
    int *memo_serial;
    Vec(NodeId) memo_stack;
    Vec(Assumed) assumed;
    int *where;                   /* per node: scratch for scopes; 0 when unused */
    int *stamp;                   /* per node: scratch for walks */
    int serial;
    bool used_op[OP_COUNT];
    bool used_square, used_floor_div, used_floor_mod;
    bool used_whole[OP_MUL + 1];      /* of integers that go round at the end of 64 bits: ADD, SUB, MUL */
} CGen;

const Node *cgen_node(const CGen *g, NodeId id);
/* Marks the member as used by the current function; its name. */
const char *cgen_use(CGen *g, int member);
/* C text of a size, over the dims' members; with at least the given precedence (parenthesised if it must). */
const char *cgen_size(CGen *g, const Poly *p, int prec);
/* Bound indices of a REDUCE without batch and time: those are the walk's own loops. -> how many. */
int cgen_bounds(const CGen *g, NodeId id, IndexId *out);
/* Is the value of this node read from an array here? */
NodeId cgen_array_of(const CGen *g, NodeId id);                   /* the array, or -1 */

/* Prints `target OP= value` for all elements of the array node (or kept reduction) id: one loop nest. `op` is
 * "=" or "+=". target: a member, indexed by the axes; -1: the slot's local. */
void cgen_nest(CGen *g, NodeId id, int target, const char *op, bool declare);

/* A block: statements printed between open and close are indented behind `header`, in braces unless they are
 * one line. */
typedef struct Block { Buf *outer; Buf body; int locals, memos; } Block;
void cgen_open(CGen *g, Block *b);
void cgen_close(CGen *g, Block *b, const char *header);

#endif
