/* code.h: what kernels share that are built as trees (kir/kir.h), beside kernels.h: kernels_code.c has
 * their frames, kernels_operand.c what they read and compute, kernels_store.c what they store,
 * kernels_wide.c loops over neighbours, and kernels_early.c reads in front of what needs them. */
#ifndef CELLC_CODE_H
#define CELLC_CODE_H

#include "kernels.h"
#include "kir/kir.h"

/* Neighbours that a thread reads at once. */
typedef struct CodeVector {
    const KirExpr *pointer, *offset; /* that of the first neighbour */
    const KirExpr *elements; /* the local array that holds them, in the loop that is built */
    const char *name; /* of that */
    Dtype type;
    bool optional; /* zeros where the caller left the argument out */
    bool fixed; /* the same for all rows */
    /* ROW: how many loops over the row read it, and the last of these; what keeps it between them, or NULL */
    int loops, last_loop;
    const KirExpr *kept;
} CodeVector;

/* A number that was read, and the local that has it from then on. */
typedef struct CodeRead {
    const KirExpr *load, *local;
    const char *name; /* that was wanted for it */
} CodeRead;

/* A value that is the same for all neighbours, or its reciprocal, computed in front of them. */
typedef struct Hoisted {
    NodeId id;
    bool inverse;
    const KirExpr *local;
} Hoisted;

/* What is asked for of the next step: a place, and the pointer that may be null, or NULL; hash: kir_expr_hash
 * of the place. */
typedef struct Prefetch {
    const KirExpr *place, *given;
    uint64_t hash;
} Prefetch;

/* A pointer to a table of constants, by its number (plan_table.c). */
typedef struct CodeTable {
    int64_t number;
    KirVar *pointer;
} CodeTable;

/* A value over the past that the block has in shared memory, and where; and one that a thread has computed:
 * at a step and at places that have these values. */
typedef struct CodeTile {
    Read read;
    const KirExpr *value;
} CodeTile;
typedef struct CodePast {
    NodeId array;
    const KirExpr *t, *const *places, *local;
} CodePast;

/* Of a ROW kernel: how its loops go over vectors (kernels_wide.c). */
typedef struct CodeSlots {
    /* That a thread keeps of a row, by whose numbers the loops go: a number, or the parameter V. NULL:
     * loops go over places. */
    const KirExpr *vectors;
    const KirExpr *full; /* they fill the row exactly: true, false, or the parameter F */
    const KirExpr *length; /* elements of the row */
    const KirExpr *lane; /* the thread's number among those that share the row */
    KirVar *place; /* of the first element of a vector: e, in all loops */
    const KirExpr *number; /* of the vector, in the loop that is built: s */
} CodeSlots;

/* A read that may go ahead of its step, as its word lies in memory: what reads it, and its address, as a
 * place or, where the pointer may be null, as pointer and offset. half: a number of 16 bits, which lies in
 * a whole word; adjacent: what CodeWalk.adjacent says: if not 0, that word has the number of the thread's
 * other unit too. */
typedef struct CodeAhead {
    const KirExpr *word, *from, *offset;
    KirScalar half; /* or KT_VOID */
    bool timed; /* it differs from step to step */
    bool converted; /* of 8 bits: it is the number itself, and where it lies there is no word */
    int adjacent;
} CodeAhead;

/* Of a kernel that makes a product next to its group (kernels_fused.c). */
typedef struct CodeFused {
    const KirVar
        *product; /* the pointer to its result, whose neighbours the kernel has as numbers; or NULL */
    KirVar *given; /* these; NULL: nothing has read them */
    bool missed; /* it is read at another place, so the kernel is none */
    /* The product's operand is made ahead of it: the vectors of a row that are asked for before it is made. */
    Vec(KirVar *) fetched;
    KirBlock fetches;
} CodeFused;

struct Code;

/* What a kernel does otherwise whose threads walk all steps with units of their own (UnitWalk): its schedule
 * says so. */
typedef struct CodeWalk {
    /* A local that holds a state, an adjoint, or a value of the step; or NULL. */
    const KirExpr *(*held)(struct Code *x, const Read *r);
    /* of a local with what the thread has of a value */
    const KirExpr *(*element)(struct Code *x, const Read *r, const KirExpr *local);
    /* a value that several steps share; or NULL */
    const KirExpr *(*once)(struct Code *x, NodeId id);
    /* how many units of a thread lie side by side there, or 0; and an index for the first of them */
    int (*adjacent)(struct Code *x, const IxExpr *place, const Poly *pitch);
    const KirExpr *(*first_unit)(struct Code *x, const KirExpr *index);
    /* A local that holds what `load` reads, if it may be read ahead of its step; else `load`. */
    const KirExpr *(*ahead)(struct Code *x, const Read *r, const KirExpr *load, const CodeAhead *as);
    /* a next state, or adjoint, is kept in a local */
    void (*carries)(struct Code *x, TensorId s, const Read *r, const KirExpr *value);
    /* the condition under which a value is stored that may be left out */
    const KirExpr *(*wants)(struct Code *x, NodeId id, const KirExpr *p);
} CodeWalk;

/* A kernel that is built. Texts of its Kernel are not used, but for names and pointers. */
typedef struct Code {
    Kernel *k;
    Kir *kir;
    ExprPrinter printer;
    const KirExpr **index;        /* per index id: its value in the scope, or NULL */
    int indices;
    const KirExpr **value;        /* per node: the local that holds it in the scope, or NULL */
    int values;
    /* per node: where a kernel on the CPU keeps its values along the row, in the order of its last axis; or
     * NULL */
    const KirExpr **held;
    /* Per node, of which only one index is free: where a kernel on the CPU keeps its values by that index,
     * and which it is; table is NULL where nothing is kept. */
    const KirExpr **table;
    IndexId *table_along;
    const KirExpr *of_row; /* of a kernel on the CPU: the row that its item is a part of, or NULL */
    /* of the group's axes, by position: ids are shared and rebound in between */
    const KirExpr *own[64];
    const KirExpr *b, *t;         /* batch element and step */
    const KirExpr *step; /* of a kernel that walks over steps by itself: where the step's row lies, as
                                   * code_time_row says; NULL: the launch says it */
    /* Of such a kernel, whose block keeps values for its steps: what it has of what is read, or NULL; and,
     * of a value that is stored, keeps it, and gives the condition under which memory has it too (NULL:
     * always). It writes what it reads, so that nothing which steps make is read as a constant. */
    const KirExpr *(*finds)(struct Code *x, const Read *r);
    const KirExpr *(*keeps)(struct Code *x, NodeId id, const KirExpr *value);
    const CodeWalk *walk; /* of a kernel that walks over units, or NULL */
    CodeFused *fused; /* or NULL */
    void *of_schedule; /* what the schedule keeps that builds it */
    const KirExpr *two; /* a local with two neighbours that are stored together, or NULL */
    /* Of a reduction that the kernel has computed: its value; or NULL. */
    const KirExpr *(*reduces)(struct Code *x, NodeId id);
    /* Values over the past that terms read (kernels_past.c); where past_keeps, those that a thread has
     * computed have a name from then on. Statements in front of a value keep none. */
    Vec(CodeTile) past_tiles;
    Vec(CodePast) past_values;
    bool past_keeps;
    int inside; /* of statements in front of a value */
    /* Of packed sequences, the first row of this one, and how many steps it has; else NULL. */
    const KirExpr *first_row, *own_steps;
    const KirExpr *row;           /* b * T + t where rows run over both, else NULL */
    /* the rows of this step in rings of one and two, where one step is walked */
    const KirExpr *ring1, *ring2;
    Vec(const KirExpr *) pointers;/* beside the Kernel's */
    Vec(CodeTable) tables;
    const KirExpr **sizes;        /* B, T, the dims, t0 */
    const KirExpr *adds, *saves;
    KirBlock head;                /* pointers */
    KirBlock body;
    Vec(Placed) placed;
    Vec(const KirExpr *) places;  /* of these */
    int depth, away;              /* as in Kernel */
    int other_step; /* while another step's value is built: those of this step do not stand for it */
    /* Wide loops (kernels_wide.c): a thread takes n neighbours along one index, as many as a vector of 16
     * bytes holds of the storage type. Reads and writes that are contiguous there go as vectors before and
     * after the loop over the neighbours. Where not all of Kernel.multiples are known to be multiples of
     * the width, the kernel has n as a parameter, and runs with 1 when they are not. */
    const KirExpr *n;
    int64_t enough; /* and rows times elements must be so many; 0: any */
    bool wide; /* inside of such a loop: */
    const KirVar *along; /* that index */
    const KirExpr *u, *first; /* the number of the neighbour, and the first one */
    bool at_first; /* what is built is for that */
    bool *conditional; /* per node: behind a condition that may differ among neighbours; NULL: none is */
    int nconditional; /* nodes that there were */
    KirBlock hoists, loads, inner, stores;
    KirBlock *outside; /* where the builder stood */
    KirOpen neighbours;
    Vec(CodeVector) vectors;
    Vec(int) here; /* vectors of this loop */
    Vec(Hoisted) hoisted;
    NodeId hoisting;
    const Poly *row_extent; /* of all its loops, when that is the same */
    bool mixed; /* it is not, or a loop is not wide */
    CodeSlots *slots; /* of a ROW kernel; else NULL */
    int loops; /* so far, over vectors */
    /* Reads in front of what needs them (kernels_early.c). */
    bool one_step; /* the step comes from outside */
    bool gathers; /* reads go before everything else of the element: */
    KirBlock gathered;
    Vec(CodeRead) reads;
    /* Reads of several elements along an axis at a time, `together` of them, of which j is the number. */
    const KirVar *batch; /* the index along that axis, or NULL */
    const KirExpr *together, *j;
    KirBlock batched, batch_arrays;
    int batch_reads;
    Vec(Prefetch) prefetches;
} Code;

/* ---- kernels_code.c */

Code *code_new(Kernel *k, const char *name);
Code *code_of_group(Kernel *k); /* the group's kernel */
/* Drops all that was built but for pointers and sizes: it is built once more. */
void code_begin_again(Code *x);
/* The kernel, cleaned and checked. */
Kir *code_end(Code *x);
/* Begins what an entry of the kernel does: sizes are its own from then on. */
void code_open_entry(Code *x, const char *name);
void code_close_entry(Code *x);
/* Has one of the instance's plans before this one the same kernel by the same name? */
bool code_is_there(const Plan *p, Kir *kernel);
/* Prints it, and puts it among the instance's kernels; once: a plan for certain calls takes the kernel of
 * a plan before it, where that does the same, and else has another name for its own. */
void code_print(Plan *p, Kir *kernel, Buf *out);
void code_print_once(Plan *p, Kir *kernel, const char **name, Buf *out);
const KirExpr *code_int(Code *x, int64_t v);
const KirExpr *code_size(Code *x, const Poly *p);
const KirExpr *code_sizes(Code *x, const Poly *const *axes, int n);            /* their product */
const KirExpr *code_batch(Code *x); /* B of the call */
const KirExpr *code_steps(Code *x); /* T, or the steps of this sequence */
/* Once x->b is known: of packed sequences, names where its rows begin and how many there are. */
void code_sequence(Code *x);
const KirExpr *code_first_row(Code *x); /* of the sequence: b * T */
KirScalar code_real(const Code *x);                                /* what is computed with */
KirScalar code_scalar(Dtype t);
/* Declares the row of this step, and those that it has in rings of one and two, as these variables. */
void code_let_rows(Code *x, KirVar *const row[3]);
/* First element of this thread, and how many lie between its elements, where `threads` of a block share a
 * range; 0 and 1 on the CPU, where one thread has it all. */
const KirExpr *code_first(Code *x, const char *name, int threads);
const KirExpr *code_step(Code *x, const char *name, int threads);
const KirExpr *code_binary(Code *x, KirBinary op, const KirExpr *a, const KirExpr *b);
const KirExpr *code_add(Code *x, const KirExpr *a, const KirExpr *b);
const KirExpr *code_sub(Code *x, const KirExpr *a, const KirExpr *b);
const KirExpr *code_mul(Code *x, const KirExpr *a, const KirExpr *b);
/* A place, or a number, and an offset, summand by summand. */
const KirExpr *code_move(Code *x, const KirExpr *place, const KirExpr *offset);
KirOpen code_for(Code *x, const char *name, const KirExpr *first, const KirExpr *limit, const KirExpr *by,
                 const KirExpr **var);
const KirExpr *code_let(Code *x, const char *name, const KirExpr *value);      /* a whole number of 64 bits */
void code_comment(Code *x, NodeId id);
void code_split_element(Code *x, const IndexId *axes, int n, const KirExpr *e, const char *prefix);
void code_split_row(Code *x, const KirExpr *row);
const KirExpr *code_rows(Code *x);
const KirExpr *code_time_row(Code *x, const KirExpr *t, int ahead);

/* Arrays of one group may name their axes differently: each position has one index. */
void code_keep_axes(Code *x, NodeId first);
void code_bind_axes(Code *x, NodeId array);

/* kernels_map.c: the group's arrays at the indices in scope, behind the reads that they need. */
void code_map_element(Code *x, void *data);

/* kernels_column.c: adds the row's term to a sum of this column, or of neighbours. */
void code_column_term(Code *x, NodeId id, const KirExpr *sum);

/* kernels_column.c: a ROW kernel that sums its rows for a COLUMN group too: before the rows, at an element of
 * a row, and behind the rows. */
typedef struct RowSums {
    const Group *of;
    const KirExpr *rows, *row; /* how many there are, and the one that is built */
    const KirExpr *chunk; /* of the block: its number */
    const KirExpr *sums[64]; /* of each array: the thread's columns */
} RowSums;
void column_open(Code *x, RowSums *s);
void column_add(Code *x, const RowSums *s, const KirExpr *along);
void column_flush(Code *x, const RowSums *s, const KirExpr *lanes);

/* ---- kernels_wide.c */

typedef struct CodeLoop {
    IndexId along; /* the index that runs */
    const Poly *extent;
    const KirExpr *first; /* the thread's number among those that share the loop */
    const KirExpr *step; /* and how many they are */
    void (*body)(Code *x, void *data);
    void *data;
    const IndexId *outer; /* axes before that index, so that the loop is over all elements; or NULL */
    int n_outer;
    const KirExpr *elements; /* and how many these are */
} CodeLoop;

/* In vectors where something is contiguous along the index. */
void code_loop(Code *x, const CodeLoop *l);
bool code_can_be_wide(const Code *x, const Poly *extent, bool outer);
/* The neighbours from `first` on: the body is built for one of them. What is the same for all goes to
 * `hoists`, or, where that is NULL, in front of them. */
typedef struct CodeNeighbours {
    IndexId along;
    const KirExpr *first;
    void (*body)(Code *x, void *data);
    void *data;
    KirBlock *hoists;
} CodeNeighbours;
void code_neighbours(Code *x, const CodeNeighbours *n);
/* Over the numbers of a thread's vectors in its row, `lanes` threads sharing it: their place is in scope
 * where they are not beyond its end. */
typedef struct SlotLoop {
    KirOpen loop, inside;
} SlotLoop;
KirTemplate code_template(const KirExpr *e); /* a number, or a parameter */
SlotLoop code_open_slots(Code *x, const KirExpr *count, const KirExpr *lanes);
void code_close_slots(Code *x, SlotLoop l);
/* How many times `step` elements, what all threads take at once, are the row. */
const KirExpr *code_count_slots(Code *x, const KirExpr *step);
/* The coefficient of the wide loop's index in an address: 0, 1, or something else (-1). What else the
 * address is made of must be a multiple of the width. */
int code_stride(Code *x, const IxExpr *lin, const Poly *pitch);
/* The element of this neighbour in a vector that is read before them. */
const KirExpr *code_vector(Code *x, const CodeVector *v);
/* Of neighbours: the element of a param that conditions choose for all of them alike, as part of a vector;
 * NULL: it is no such choice. */
const KirExpr *code_chosen(Code *x, NodeId id);
const KirExpr *code_at_first(Code *x, const IxExpr *lin);
bool code_same_for_all(const Code *x, const Node *n);
const KirExpr *code_hoist(Code *x, NodeId id, bool inverse);
/* Are the sizes what vectors of this width need? */
const KirExpr *code_fits(Code *x, int64_t width);
/* Makes the width a parameter with entries that choose it, or the number that it is known to be. */
void code_settle_width(Code *x);

/* ---- kernels_early.c */

/* What is built in `body` stands behind the reads that it gathers. */
typedef struct Gather {
    KirBlock body;
    KirBlock *outer;
} Gather;
void code_gather(Code *x, Gather *g);
void code_gather_end(Code *x, Gather *g);
/* Is it one of the reads that go by several elements at a time? */
bool code_is_batched(const Code *x, const KirExpr *place);
/* The local that has what is read, or NULL. */
const KirExpr *code_read_before(const Code *x, const KirExpr *load);
/* A read of an element in front of all that is computed and written there, or itself. `name`: of what. */
const KirExpr *code_early(Code *x, const Read *r, const char *name, const KirExpr *load);
/* A read that is the same for all neighbours, before them. */
const KirExpr *code_hoisted_read(Code *x, const char *name, const KirExpr *load);
void code_prefetch(Code *x, const KirExpr *place, const KirExpr *given);
/* Asks for what the next step needs: at this index, or (NULL) at any. */
void code_prefetches(Code *x, const KirVar *index);

/* ---- kernels_operand.c */

extern const ExprNodes code_nodes;
const KirExpr *code_pointer(Code *x, RefKind kind, int id, Dtype type);
const KirExpr *code_written(Code *x, RefKind kind, int id, Dtype type);
/* Declares the shared parts of a value and gives the whole, as a real number; forgotten with `named`. */
const KirExpr *code_value(Code *x, NodeId body, Named *named);
void code_forget(Code *x, Named *named);
const KirExpr *code_read(Code *x, const Read *r); /* a value that is read, at the indices in scope */
/* The value of an array's element at the indices in scope, as a local; stored where it is kept. */
void code_array(Code *x, NodeId id, Named *kept);
/* Where a state lies before its step, in memory. */
const KirExpr *code_saved_state(Code *x, const Read *r);
const KirExpr *code_half_row(Code *x, const KirExpr *t); /* of what is carried, at this step */
const KirExpr *code_buffer_row(Code *x, const Buffer *buffer, int ahead);
const KirExpr *code_row_of(Code *x, const Storage *st);
/* Of element `within` of a row. */
const KirExpr *code_place(Code *x, const KirExpr *p, const KirExpr *row, const Poly *pitch,
                          const KirExpr *within);

/* ---- kernels_store.c */

/* Stores the value of an array's element at the indices in scope, to all places where it is kept. */
void code_store(Code *x, NodeId id, const KirExpr *value);

/* kernels_scatter.c: int64 in a buffer of pairs; the group's sum; the step, sequence and further indices of
 * a position; and all axes of the array but that of the places, of column e. */
const KirExpr *scatter_numbers(Code *x, const char *name, int buffer, bool written);
Node scatter_reduction(const Code *x);
void scatter_split_position(Code *x, const Scatter *of, const KirExpr *position);
void scatter_split_column(Code *x, const Scatter *of, const KirExpr *e);

/* kernels_column.c: how many partial sums there are of each column. */
const KirExpr *code_chunks(Code *x, const KirExpr *rows, const KirExpr *columns);
/* kernels_state.c: what begins and ends a walk by steps, STATE_INIT and so on; and what a call leaves of a
 * history. */
void state_kernel(Code *x, int which);
void history_kernel(Code *x);

#endif
