/* kernels.h: what the kernels around the walk share that are printed as text; those that are built as trees
 * have code.h. kernels.c has frames, kernels_value.c reads, writes and expressions; kernels_past.c and
 * kernels_fused.c have a kind of kernel each, and kernels_walk.c what walks over the steps share. */
#ifndef CELLC_KERNELS_H
#define CELLC_KERNELS_H

#include "emit/emit.h"
#include "plan/plan.h"

/* args.ptr[i] as the kernel sees it. */
typedef struct Pointer { const char *name; Dtype type; bool written; } Pointer;

/* Neighbours that a thread reads at once. */
typedef struct Vector {
    const char *pointer, *offset; /* texts; the offset is that of the first neighbour */
    const char *name;             /* the local array that holds them */
    Dtype type;
    bool optional; /* zeros where the caller left the argument out */
} Vector;

typedef Vec(const char *) Texts;

/* One number of a row, read once for all its elements. */
typedef struct RowRead { const char *text, *name, *wanted; bool whole; } RowRead;

/* A value over the past that a block has in shared memory. */
typedef struct PastTile { Read read; const char *text; } PastTile;

/* The place of a read at an integer, which has a name at this depth of arrays that are printed in place. */
typedef struct Placed { NodeId place; int depth; const char *name; } Placed;

typedef struct Kernel Kernel;

/* Of a kernel whose threads walk all steps with units of their own (kernels_walk.c). */
typedef struct UnitWalk {
    const IndexId *units;         /* axes of the group that is printed: a thread's units */
    const IxExpr **meaning;       /* per index id: itself in terms of these, or NULL */
    int meanings;
    Texts reads;                  /* what is read ahead of its step, as it would stand in its place */
    Buf fields;                   /* a declaration for each */
    Buf early, late;              /* those reads; stores that nothing waits for */
    Texts once_reads;             /* what is the same at all steps, likewise */
    Buf once;
} UnitWalk;

/* A value's element, or a next state's where the next step finds it, as it is to be stored: `call` where,
 * value), by what `out` has, and where that may be left out, or is not always done, under a condition. */
typedef struct Stored {
    const Storage *st;            /* of the value; of a state: NULL */
    int slot;                     /* of the buffer */
    const IxExpr *lin;            /* the element's place in a row, and how long this is */
    const Poly *pitch;
    const char *value, *where, *when, *call;
    Buf *out;
} Stored;

/* A read that may go ahead of its step. The read without its conversion, the type that it then has (of half a
 * word: which it is, in a whole one), the address, as one text or, where the pointer may be null, two;
 * and whether it differs from step to step. */
typedef struct AheadRead {
    const char *text, *type, *half, *from, *offset;
    bool timed;
} AheadRead;

/* What a kernel does otherwise than those that the planner's groups have by themselves: the schedule that
 * prints it says so. A hook that is NULL: nothing. */
typedef struct KernelHooks {
    bool all_steps;               /* it walks them, so no kernel before it has to be waited for */
    bool names_places; /* the number of an element is worth computing once for all reads */
    int (*resident)(const Kernel *k);             /* blocks that an SM should hold at once; 0: whatever it
                                                   * holds */

    /* ---- names and places */
    const char *(*buffer)(Kernel *k, int id);     /* of a buffer's pointer; NULL: the usual one */
    /* an element's place in a row, or what stands for it */
    const char *(*place)(Kernel *k, const char *within);

    /* ---- reads */
    const char *(*held)(Kernel *k, const Read *r); /* a local that holds a state, an adjoint, or a
                                                           * value of the step; or NULL */
    /* stands for s, which it reads before all that is computed */
    const char *(*early)(Kernel *k, const char *p, const char *s);
    /* A local that holds what `s` reads, if it may be read ahead of its step; else s. A kernel that has this
     * hook reads nothing else before its element is computed. */
    const char *(*ahead)(Kernel *k, const Read *r, const char *s, const AheadRead *as);
    /* what another group of the step made, or s */
    const char *(*left)(Kernel *k, NodeId id, const char *s, bool carried);
    const char *(*reduce)(Kernel *k, NodeId id);  /* of a reduction that it has computed; or NULL */

    /* ---- writes */
    bool (*takes)(Kernel *k, int slot, const char *value);        /* what would go to a buffer goes
                                                                   * elsewhere */
    /* a next state, or adjoint, is kept in a local */
    bool (*carries)(Kernel *k, TensorId s, const Read *r, const char *value);
    /* it stores final states itself */
    bool (*stores_last)(Kernel *k, const char *final, const char *place, const char *value);
    void (*stores_next)(Kernel *k, Stored *s);    /* a state where the next step finds it: may change how */
    void (*stores)(Kernel *k, Stored *s);         /* any other value */
    void (*store)(Kernel *k, NodeId id, const char *value);       /* in place of k_store_value, which it
                                                                   * calls */
    const char *(*wants)(Kernel *k, NodeId id, const char *p);    /* the condition under which a value is
                                                                   * stored that may be left out */
    bool (*leaves_out)(const Kernel *k, NodeId id);       /* nothing that is run reads it in memory */
    void (*group_done)(Kernel *k);                /* behind the arrays of a MAP group */
} KernelHooks;

struct Kernel {
    const KernelHooks *hooks;     /* never NULL */
    Plan *p;
    Program *pr;
    Group *g;
    RefVec *refs;
    Buf *out;
    int threads;                  /* per block, at most */
    const char *real;
    const char **index;           /* per index id: its text in the scope, or NULL */
    bool *beyond;                 /* per index id: that text may lie outside of its extent, under the condition it stands under */
    int indices;                  /* so many there is room for */
    const char **value;           /* per node: the local that holds it in the scope, or NULL */
    int values;
    const char *b, *t;            /* text of the batch element and the step */
    const char *row;              /* text of b*T + t where rows run over both, else NULL */
    bool one_step;                /* t comes from outside */
    /* texts of the group's axes, by position: ids are shared and rebound in between */
    const char *own[64];
    Vec(Pointer) pointers;        /* beside refs */
    Names pointer_names, locals;
    /* Wide loops: a thread takes neighbours along one index, as many as a vector of 16 bytes holds of the
     * storage type; reads and writes that are contiguous there go as vectors before and after the loop over
     * the neighbours. Where not all of `multiples` are known to be multiples of the width, the kernel is a
     * template over the width N, and runs with 1 when they are not. */
    const char *n;                /* text of the width: N, or the number */
    int wide;                     /* the width inside a wide loop, else 0 */
    const char *along;            /* text of that index; ids are rebound */
    bool at_first;                /* print the loop's index as that of the first neighbour */
    Vec(const Poly *) multiples;
    Vec(Vector) vectors;
    Vec(int) here;                /* vectors of this loop */
    Buf hoists, loads, stores;    /* before the loop, before and after the neighbours */
    bool gathers;                 /* reads go before everything else of the element: */
    Buf gathered;
    /* values computed before the neighbours: 2*id, and 2*id + 1 for a reciprocal */
    Vec(NodeId) hoisted;
    NodeId hoisting;
    Vec(RowRead) reads;
    Vec(const char *) prefetches; /* statements, for the next step */
    UnitWalk *walk; /* kernels_walk.c: of a kernel that walks all steps, or NULL */
    int numbered;                 /* locals: the same node may have one in several arrays */
    Vec(PastTile) past_tiles;     /* kernels_past.c: what terms read */
    Vec(RowRead) past_values;     /* what a thread has computed over the past, by its text, where past_keeps */
    bool past_keeps;
    void *of_schedule;            /* what the schedule keeps that prints the kernel */
    int loops_inside;             /* of expressions: reductions that are printed in place */
    int functions_inside;         /* functions without names around what is printed, which have places as parameters */
    Vec(Placed) placed;           /* these places, as long as they are printed */
    const Parts *parts;           /* the copy that the kernel makes */
    const Fused *fused; /* the product that it makes; or NULL */
    TensorId history;             /* whose last steps the kernel writes */
    int depth;                    /* of arrays printed in place: locals are made at depth 0 only */
    int away;                     /* while another step's value is printed */
    ExprPrinter printer;
};

/* Locals made for the shared parts of an expression, to be forgotten at the end of their scope. */
typedef Vec(NodeId) Named;

/* ---- kernels.c */

const Node *k_node(const Kernel *k, NodeId id);
const char *k_text(Kernel *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Texts of a + b and of a factor a times n, without what "0" or 1 adds nothing to. */
const char *k_sum(Kernel *k, const char *a, const char *b);
const char *k_times(Kernel *k, const char *a, const Poly *n);
const char *k_type(Dtype t);                       /* in CUDA */
const char *k_bare(Kernel *k, const char *s);      /* without the parentheses around the whole */
const char *k_poly(Kernel *k, const Poly *p);      /* as a factor */
const char *k_product(Kernel *k, const Poly *const *axes, int n);
/* The place of s in the list, where it is new there (first) at the end. */
int k_number(Kernel *k, Texts *list, const char *s, bool *first);
int k_width(const Kernel *k);                      /* neighbours in a vector of the storage type */

void k_print(Kernel *k, const char *name, void (*body)(Kernel *k));
void k_open(Kernel *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void k_close(Kernel *k);
/* What is printed from k_divert on goes to `text`, until k_lines gives it as the value of a template's
 * hole, and printing goes on where it was (k_divert's value). k_lines_of: what a function prints. */
Buf *k_divert(Kernel *k, Buf *text);
const char *k_lines(Kernel *k, Buf *out);
const char *k_lines_of(Kernel *k, void (*print)(Kernel *k));
void k_comment(Kernel *k, NodeId id);              /* the line of the spec that a value comes from */
const char *k_rows(Kernel *k);                     /* how many rows the group has */
void k_split_row(Kernel *k, const char *row);
/* The row of step t, and `ahead` steps later, among the rows of a sequence: a reversed cell begins with the last. */
const char *k_time_row(Kernel *k, const char *t, int ahead);
const char *k_first_row(Kernel *k, const char *b); /* of sequence b: "b * dim_T" */
/* Of packed sequences: where each begins, [B + 1]; and, for sequence k->b, lines with its first_row and its
 * own dim_T. */
const char *k_starts(Kernel *k);
void k_declare_sequence(Kernel *k);
/* Declares bt, the row of sequence b at step t, and the rows that it has in rings of one and two. */
void k_declare_rows(Kernel *k);
void k_split_element(Kernel *k, const IndexId *axes, int n, const char *e, const char *prefix);
void k_keep_axes(Kernel *k, NodeId first);
void k_bind_axes(Kernel *k, NodeId array);

/* Prints what asks for the next step's elements at this index, or (NULL) at any, which is then asked for. */
void k_prefetches(Kernel *k, const char *index);
/* For kernels that print the loop over the neighbours themselves. */
void k_wide_begin(Kernel *k, IndexId along, Buf *inner);
void k_wide_end(Kernel *k, Buf *out, const Buf *inner);

/* ---- kernels_value.c */

const char *k_pointer(Kernel *k, RefKind kind, int id, Dtype type);
const char *k_written(Kernel *k, RefKind kind, int id, Dtype type);     /* the same, to be written through */
const char *k_read(Kernel *k, const Read *r); /* a value that is read, in its place */
const char *k_body(Kernel *k, NodeId body, Named *named);
void k_forget(Kernel *k, Named *named);
/* Per node, how often a value uses it; to be cleared. */
int *k_count_uses(Kernel *k, NodeId body);
void k_clear_uses(Kernel *k, NodeId body, int *uses);
/* Is a condition, or a whole number, as short as a name would be? */
bool k_is_short(const Kernel *k, NodeId id);
/* A read of another step has places in the reader's step: gives the new index that stands for it in r's map,
 * to be bound; -1: no place has it. */
IndexId k_readers_step(Module *m, Read *r);
Read k_past(Module *m, const Read *of);            /* of a history, in place of a step before the call */
const char *k_local(Kernel *k, const char *prefix, NodeId id);          /* a fresh name for a value */
void k_store(Kernel *k, NodeId id, const char *value);
void k_element(Kernel *k, NodeId id,
               Named *kept); /* one of its arrays, at axes that are bound; forgotten with `kept` */
void k_map_body(Kernel *k); /* the arrays of a MAP group at the indices in scope */
/* Stores the value of an array's element at the indices in scope, to all places where it is kept. */
void k_store_value(Kernel *k, NodeId id, const char *value);
const char *k_step_row(Kernel *k, const Storage *st);                   /* of sequence k->b at this step */
const char *k_before_step(Kernel *k, TensorId s, int ahead);            /* where a state before that step begins */
bool k_may_be_null(const Kernel *k, const Storage *st);
bool k_is_stored(const Kernel *k, NodeId id);
bool k_always_inside(Kernel *k, const Read *r);    /* whatever condition it stands under */
bool k_is_inside(const Kernel *k, const IxExpr *e, const Poly *extent); /* an index, likewise */
bool k_known_before(const Kernel *k, const Read *r); /* of all steps, before the walk */
bool k_has_table(Kernel *k, const Read *r); /* of constants: it is read there, by its table_number */
bool k_need_multiple(Kernel *k, const Poly *e);    /* of the width; false: it never is */
const char *k_leaf(ExprPrinter *e, NodeId id);
const char *k_known(ExprPrinter *e, NodeId id);
const char *k_reciprocal(ExprPrinter *e, NodeId id);
const char *k_index(ExprPrinter *e, IndexId i);

/* ---- one kind each */

void emit_map(Kernel *k);
void emit_row(Kernel *k);
void emit_apart(Kernel *k);
int apart_width(const Kernel *k);                  /* neighbours of a thread of such a kernel */
void emit_past(Kernel *k);
/* Which distances w the terms of a reduction over the past have, at the indices of a row: from `at` on,
 * those before it, or none where it is below zero. rows_apart: the limits are for a tile of rows, along
 * which they may rise by so much from row to row; 0: for one row. */
typedef enum { PAST_FROM, PAST_UNTIL, PAST_NONE } PastLimitKind;
typedef struct PastLimit {
    PastLimitKind kind;
    const IxExpr *at;
} PastLimit;
typedef Vec(PastLimit) PastLimits;
void past_limits(Kernel *k, NodeId array, IndexId w, int rows_apart, PastLimits *out);
void emit_column_sums(Kernel *k);
void emit_column_totals(Kernel *k);
Kernel kernel_new(Plan *p, Program *pr, Group *g, RefVec *refs, Buf *out);
void kernel_release(Kernel *k);

/* kernels_state.c: the initial state that a call gets which gives none, where its axes are bound; and an
 * initial state's stores at a place of [B, axes], where backward finds it and where the first step does. */
const char *state_learned(Kernel *k, TensorId s);
void state_store_initial(Kernel *k, TensorId s, const char *place, const char *value);

/* ---- kernels_walk.c: kernels that walk all steps */

/* A group of a step that one kernel walks, printed but for its loop. posts: an operand is whole behind it;
 * elements: the local that says how many a block has; units: of the group's last axis. */
typedef struct WalkGroup {
    int number, ahead;
    const char *unit, *elements, *fields, *early, *fetched, *once, *body, *late;
    const Poly *units;
    const char *index; /* of several pieces: the element in the piece of a unit */
    int pieces;
    bool posts;
} WalkGroup;
/* Of a kernel, which has it from then on; and its end. */
void walk_begin(Kernel *k, UnitWalk *w);
void walk_end(Kernel *k);
/* In terms of the units and the loops around; NULL: it has other parts. */
const IxExpr *walk_in_units(Kernel *k, const IxExpr *e);
/* Around an array that is printed in place. They do nothing where k->walk is NULL. */
void walk_enter(Kernel *k, const Node *array, const IxExpr *const *map, const IxExpr **before);
void walk_leave(Kernel *k, const Node *array, const IxExpr *const *before);
/* The local that has a state of a thread, or the adjoint of its next value. */
const char *state_name(Kernel *k, TensorId s);
int walk_depth(int64_t registers); /* steps whose reads are under way: as many as registers hold */

#endif
