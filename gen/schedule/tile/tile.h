/* tile.h: what the parts of schedule `tile` share. tile.c decides and, with the parts in tile_kernel.h, assembles a walk kernel, tile_norm.c
 * brings a step's values into canonical indices, tile_fetch.c moves the step's vectors into shared memory,
 * tile_step.c and its parts (tile_step.h) print one step, tile_layout.c picks the layout of a state over threads.
 *
 * The chip holds one space of R rows and C columns: a state matrix lies in it, a vector along one side. Every
 * index of a step's expressions becomes the canonical index `row` or `col` (an element that the thread owns),
 * one of `par` (fixed for the block), or `any` (an element that another thread may own: it is read from
 * shared memory). */
#ifndef CELLC_TILE_H
#define CELLC_TILE_H

#include "emit/emit.h"
#include "plan/plan.h"

enum { TILE_MAX_AXES = 16, TILE_MOST_OPERATIONS = 20000, GROUP = 4 };

/* ROLE_PAR + k: the k-th parallel axis */
typedef enum { ROLE_NONE, ROLE_ROW, ROLE_COL, ROLE_MIXED, ROLE_PAR } Role;

/* Roles of a node's axes. strong: it follows from a read of a matrix that lies in registers. */
typedef struct Roles { bool done; uint8_t role[TILE_MAX_AXES]; bool strong[TILE_MAX_AXES]; } Roles;

/* Rows over cr blocks of a cluster x wr warps x lr lanes x rr registers, columns over wc warps x lc lanes x rc
 * registers; a thread's rows and columns are consecutive, or groups that are (tile_apart), and a block's rows are. */
typedef struct TileLayout { int wr, lr, rr, wc, lc, rc, cr; } TileLayout;

typedef struct StateInfo {
    TensorId tensor;
    int rank;                     /* on the chip: 0, 1, 2 */
    Role role[2];                 /* of its axes behind the parallel ones */
    const char *name, *next;      /* variables: S, S_next */
    const char *after, *adj, *prev;          /* S_after (backward: behind the step), d_S, d_S_prev */
    const char *kept, *start;     /* shared memory of backward: the segment's states; where the next checkpoint arrives */
    const char *ahead;            /* S_ahead (backward, where segments are replayed ahead): of the step that is replayed */
    bool narrow;                  /* kept in 16 bits, which lose no more than the function that makes it */
} StateInfo;

/* Which classes of outs a value of the adjoint step is for, a bit each; what is carried is always computed. */
typedef uint64_t Wants;
#define WANT_ALWAYS UINT64_MAX

/* Outs that are written for the same gradients. ref: a pointer that is NULL when none of those is asked for. */
typedef struct WantClass { Wanted args; int ref; const char *name; } WantClass;

/* A reduction: the array (over canonical axes) that is its result. */
typedef struct Red {
    NodeId array, reduce;
    int level;
    Wants wants;
    ReduceOp op;
    bool over_row, over_col;      /* bound */
    bool vary_row, vary_col;      /* what its body varies over */
    bool crossed;                 /* read at an index that the reader does not own; found while printing */
    bool far;                     /* and that its block does not own */
    bool inside;                  /* a state or another reduction reads it, not only outs */
    bool whole;                   /* over columns: a block's outs read more of it than its share */
    bool loose;                   /* vectors of which outs only read single elements: may be scattered */
    bool scattered;               /* outs only read it, each element from the lane that has it */
    bool kept;                    /* outs behind the chunk read it: the exchange buffer has it for each step */
    const char *last;             /* the last step's sums, which the step adds up across the lanes; NULL: it does its own */
    const char *name;             /* of the value that it is part of */
    const char *var, *own;        /* its variable in the step; the warp's part of it, if several add up */
    int64_t at;                   /* place in the exchange buffer */
} Red;

/* A value in global memory that a step reads from shared memory: a window of its row. */
typedef struct Fetch {
    bool is_node;
    int id;                       /* NodeId or TensorId */
    Storage st;
    int nax;
    const Poly *extent[TILE_MAX_AXES];
    const IxExpr *base[TILE_MAX_AXES];       /* over parallel indices */
    int64_t window[TILE_MAX_AXES];
    int64_t row, padded;          /* elements; padded to 16 bytes */
    bool contiguous, timed, may_be_null;
    bool stepped;                 /* a step reads it, not only what stands behind the chunk's steps; found while printing */
    bool made;                    /* nothing is copied: other warps make a chunk's rows of it in its buffer (tile_rows.c) */
    bool ahead;                   /* they read it, one chunk ahead of the steps */
    bool single;                  /* none does: it comes while its chunk is walked, into one buffer instead of two */
    Wants wants;                  /* of those who read it */
    const char *name;
    int ref;
    int piece;                    /* bytes of one asynchronous copy; 0: element by element */
} Fetch;

/* What a step stores of an out of the walk: all of it, or its elements at places of axes that do not lie on
 * the chip. */
typedef struct OutPart {
    NodeId original;
    NodeId array; /* over the other axes */
    const IxExpr **place; /* per axis of the original; NULL: all of the axis */
} OutPart;

typedef enum { STEP_FORWARD, STEP_REPLAY, STEP_ADJOINT } StepKind;

/* A value that lives in registers during the step: what was read, and the variable. */
typedef struct Version { NodeId read; const char *name; } Version;
typedef Vec(Version) VersionVec;

/* The step's row in arrays of this pitch, from element `first` on ("": the row's): a variable that moves with the steps.
 * last: that of the step before; NULL: nobody reads it. */
typedef struct RowOffset { const char *pitch, *first, *name, *last; } RowOffset;

struct Tile;
typedef struct Step {
    struct Tile *t;
    StepKind kind;
    NodeId *norm;                 /* per original node: its normal form, -1 */
    int nnorm;
    Vec(Roles) roles;
    Vec(int) level;               /* per node, -1 */
    Vec(Red) reds;
    Vec(NodeId) next;             /* normalised roots, one per state */
    Vec(NodeId) outs;
    Wants *wants;                 /* per node, of values that the step computes or fetches; NULL: all always */
    Wants *tensor_wants;          /* per tensor */
    int nwants;
    int depth;                    /* levels of what is carried: the rest of the step comes behind them */
    int levels, barriers;
    int64_t exchange;             /* elements of the exchange buffer, one half */
    /* while printing */
    VersionVec versions;          /* of the step */
    VersionVec locals;            /* of the open loop nest or block */
    VersionVec inner_versions;    /* of the open block of what is not always wanted */
    int *out_level;               /* per out: the level that prints it */
    bool *out_late;               /* per out: written by the next step */
    bool *out_behind;             /* per out: written behind the chunk's steps */
    bool *out_handed;             /* per out: nothing but the last step's sums, written by the step that adds them up */
    bool hands_outs;              /* there are such */
    bool *read_now;               /* per reduction: the same step reads it */
    bool *read_inside;            /* per reduction: a state or another reduction reads it */
    bool *out_scattered;          /* per out: its reductions are scattered */
    bool scattering;              /* printing such an out: its reductions are read at element i */
    bool *assigned;               /* per state: its next value is in registers */
    Buf *pre, *body;
    Buf *fetched;                 /* in front of the step: what it reads of the fetches; NULL where it is read at its place */
    Buf *inner;                   /* the open block's, NULL when none is open */
    bool is_late;                 /* printing late: rows are one step behind */
    bool is_handed;               /* printing an out that was handed on */
    Buf late;                     /* stores of a step that the one after it does, behind its barrier */
    bool behind_pays;             /* in this layout */
    bool is_behind;               /* printing what stands behind the chunk's steps */
    Buf behind;                   /* that: outs of all its steps, of what the exchange buffer has */
    Buf last_sums, finish_last;   /* variables for the last step's sums; what adds them up across the lanes */
    int now;                      /* level that is being printed */
    int rows_kept, cols_kept, ones_kept;     /* counts of versions */
    double elements;              /* cost of the loops per element */
} Step;

typedef struct Tile {
    Module *m;
    Arena *arena;
    Walk *w;
    const char *real;
    int real_bytes;
    bool fast;
    int old_nodes;                /* of_node covers these */
    const bool
        *in_forward; /* per old node, where it is looked for what backward wants saved: forward computes it */
    bool *is_out;                 /* per original node */
    int *state_of_next;           /* per original node: 1 + the state whose next value it is, or 0 */
    Vec(WantClass) classes;
    Vec(OutPart) parts; /* what a step stores */
    Vec(int) class_of; /* per part; -1: always written */
    int npar;
    const Poly *par_extent[MAX_PARALLEL];
    IndexId par[MAX_PARALLEL], row, col, any;
    const char *par_name[MAX_PARALLEL];
    int64_t rows, cols;
    Vec(StateInfo) states;
    Vec(Fetch) fetches;
    TileLayout lay;
    int K;                        /* steps between checkpoints */
    int F;                        /* steps of a chunk, fetched and written at once: K, or forward twice as many */
    bool joined;                  /* forward: steps are joined by two; found while printing */
    bool defer;                   /* outs are written behind a chunk's steps, where that can be; else late */
    bool undoes;                  /* backward finds the state before a step from the one behind it: none is kept */
    bool early;                   /* a step back reads its vectors before anything else: registers are left for them */
    bool ahead;                   /* backward replays a segment beside the steps back through the one behind it */
    Names names;                  /* of the kernel's variables */
    Step *forward, *replay, *adjoint;
    Vec(IndexId) anys;            /* one index per extent */
    const char *any_text;         /* what `any` is called in the open block */
    int64_t any_shared;           /* blocks share out so many of it by tile_share; 0: each has all */
    Vec(RowOffset) rows_out;      /* first elements of the step's rows, by pitch */
    bool initial;                 /* printing initial values: params are read from global memory */
    bool stores_halves; /* a state is being stored in bf16, for a session */
    int makers;                   /* forward: warps that make rows for the steps, behind those that walk */
    Buf made;                     /* their code */
    Vec(Buf) holes; /* values of holes of the kernel that is printed (tile_hole) */
    bool making;                  /* printing that */
    bool no_made;                 /* refused, but perhaps not where kernels make these rows */
    const Reason *refused;
    bool no_room;                 /* a larger cluster might take it */
} Tile;

/* tile.c */
const char *tile_text(Tile *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Notes why the cell is not taken, unless that is known: the whole of it, a declaration, or a value of the
 * step. */
void tile_refuse(Tile *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void tile_refuse_at(Tile *t, Span at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void tile_refuse_of(Tile *t, const Node *value, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
const char *tile_bound_dims(const Tile *t);                        /* "N or V": what --dim may lower */
const char *tile_unique(Tile *t, const char *base);               /* a C name that is not taken yet */
int tile_resident(const Tile *t, int threads, int64_t smem);       /* blocks that an SM is to hold: what the registers are for */
const char *tile_first_row(const Tile *t); /* of the sequence: "b * T" */
int tile_ref(Tile *t, RefKind kind, int id);                      /* number of the pointer */
const char *tile_ctype(Tile *t, Dtype d);
int64_t tile_elements(const Tile *t, const StateInfo *s);         /* of one state per thread */
int tile_threads(const TileLayout *l);
bool tile_joins(const Step *s, const TileLayout *l, int barriers, int registers_left);  /* are two steps printed as one? */
bool tile_overlaps(const Tile *t);                                /* may backward replay ahead, if there is room? */
/* Text of the element number of a value over axes at indices map, row-major. */
const IxExpr *tile_linear(Tile *t, const Poly *const *axes, const IxExpr *const *map, int n);
StateInfo *tile_state(Tile *t, TensorId tensor);                  /* of a T_STATE or a T_DNEXT; NULL */
bool tile_stored(const Step *s, NodeId array);                    /* read from memory in this step */

/* tile_kernel.c, tile_forward.c: the kernel around the steps. */
int64_t tile_exchange_size(const Tile *t);                         /* elements of a step */
int tile_buffers(const Tile *t);                                  /* chunks whose vectors are in shared memory or on their way */
const char *tile_buffer(const Tile *t);                           /* the variable that says where the chunk's begin */
void tile_print_place(Tile *t, Buf *out);                         /* of step s: in the exchange buffer, in the fetches */
bool tile_has_segments(const Tile *t);                            /* forward: a loop for each segment of a chunk */

/* tile_norm.c: the step's roots in normal form: reductions over canonical indices, each an array of its own,
 * equal ones one; factors that do not vary pulled out of sums; parts that equal a stored array replaced by
 * it. */
void tile_normalise(Step *s, const NodeId *next, const NodeId *outs, int nouts);
void tile_find_saved(Step *s, bool *saved);                       /* what backward reads first */
Roles tile_roles(Step *s, NodeId id);
int tile_level(Step *s, NodeId id);
Wants tile_wants(const Step *s, NodeId array);                    /* who the value is for */
const char *tile_wanted(Tile *t, Wants w);                        /* is one of them asked for; NULL: always */
Red *tile_red(Step *s, NodeId array);                             /* NULL: not a reduction's array */
/* The array and the index of each axis that an ARRAY or VIEW node reads. */
NodeId tile_read(const Step *s, NodeId id, const IxExpr **map);
/* An array that is a state's next value, held in registers. */
bool tile_whole(const Step *s, NodeId id, int *state);
int tile_row_warps(const TileLayout *l);                          /* that divide the rows, of all blocks */
int tile_block_rows(const TileLayout *l);                         /* rows of one block, with padding */
int64_t tile_share(const Tile *t, const TileLayout *l, int64_t n); /* of n elements, for one block */

/* tile_shift.c: vectors that are read at other elements become results of sums; the module's roots change.
 * False: there are none. */
bool tile_share_vectors(Tile *t);

/* tile_merge.c: sums that only outs read and add up become one. */
void tile_merge_sums(Step *s);

/* tile_copies.c */
void tile_find_parts(Tile *t); /* t->parts: what a step stores of the walk's outs */

/* tile_fetch.c */
/* One element, converted. */
const char *tile_fetch_text(Step *s, bool is_node, int id, const IxExpr *const *map);
/* The fetch and the first element's index when the read is of consecutive elements along `along`; NULL when
 * it is not. */
const Fetch *tile_fetch_run(Step *s, bool is_node, int id, const IxExpr *const *map, IndexId along, int width,
                            const char **first);
void tile_carve_fetches(Tile *t, Buf *out);                       /* shared memory, in the kernel's head */
void tile_item_fetches(Tile *t, Buf *out);                        /* pointers, and what has no step */
bool tile_has_single(const Tile *t);
/* The body of fetch(chunk), of fetch_behind(chunk), and of fetch_rows(chunk). */
typedef enum { FETCH_STEPS, FETCH_BEHIND, FETCH_AHEAD } FetchTime;
void tile_chunk_fetches(Tile *t, FetchTime time, Buf *out);
int64_t tile_fetch_bytes(const Tile *t, int K);
bool tile_multiple(const Poly *p, int64_t of);                    /* whatever the sizes */
bool tile_ix_multiple(const IxExpr *e, int64_t of);

/* tile_rows.c: rows that warps of their own make for the steps, one chunk ahead of them. */
int tile_makers(const Tile *t);                                   /* how many warps; 0: there are no such rows */
void tile_print_made(Tile *t, Buf *out);                          /* the body of make(chunk) */
bool tile_is_made(const Tile *t, NodeId array);

/* tile_step.c: one step as statements. */
void tile_print_step(Step *s, Buf *head, Buf *out);

/* tile_place.c: where a thread's elements are. */
const char *tile_row_text(Tile *t);
const char *tile_col_text(Tile *t);
int tile_apart(const Tile *t, bool rows);
void tile_open(Tile *t, Buf *b, bool rows, bool cols);            /* loops over the thread's elements */
void tile_close(Buf *b, bool rows, bool cols);
const char *tile_owned(Tile *t, bool rows, bool cols);            /* is it within bounds; NULL: always */
const char *tile_owner(Tile *t, bool rows, bool cols);            /* does this thread store it; NULL: each */
const char *tile_origin(Tile *t, NodeId id);                      /* a comment: the spec's line */

/* tile_value.c: what a step reads. */
ExprPrinter tile_printer(Step *s);
bool tile_undoes(Step *s);                                        /* can the step be undone, without a reduction? */
void tile_print_undo(Step *s, Buf *out);                          /* the states before it, from those behind it */

/* tile_sums.c: its reductions. */
void tile_print_last_sums(Step *s, const char *steps, Buf *out);  /* of the last step of all, which no step follows */

/* tile_outs.c: what it stores. */
IndexId tile_any(Tile *t, int64_t n);                             /* an element of n that any thread may own */

/* tile_layout.c */
void tile_choose_layout(Tile *t);
void tile_choose_order(Tile *t);                                  /* of the states in a checkpoint */
int tile_run_width(const Tile *t);                                /* elements that a thread moves at once between its columns and a row */
int tile_registers(const Tile *t, const TileLayout *l);           /* estimate per thread */
void tile_choose_interval(Tile *t);
int tile_most_interval(const Tile *t);
int64_t tile_start_bytes(const Tile *t);                          /* shared memory that a segment takes whatever its steps: where its checkpoint arrives */
int tile_blocks_together(const Tile *t);                          /* on an SM: what its memory is shared by */
int64_t tile_block_room(const Tile *t);                           /* shared memory of one of the blocks on an SM */

/* ---- tile.c: what it can take, and what forward must save so that backward replays without barriers ---- */

/* NULL: it can, by clusters of trial->cluster blocks */
const Reason *tile_refuses(Module *m, const Request *request, Trial *trial);
bool tile_makes(int64_t n);                                        /* rows of so many elements, in front of
                                                                    * a chunk's steps */
/* More room: fewer steps between checkpoints than `interval`, or more blocks to a state. False: there is
 * none. */
bool tile_widen(const Request *request, Trial *trial, int interval);
/* marks arrays (per node) to save */
void tile_saved(Module *m, const Request *request, const Trial *trial, bool *saved);
int tile_interval(Module *m, const Request *request, const Trial *trial);      /* K, from shared memory */
void tile_walk(Walk *w);                                           /* decides and prints the kernel */

/* ---- tile_take.c ---- */

struct Phasing;
void tile_take(struct Phasing *s);                                 /* hook take: rows that only forward's
                                                                    * walk reads */

#endif
