/* plan.h: what the fast path decides before anything is printed. The passes of plan_passes.c say when a value is
 * computed, where it lives and what is saved, tile.c how a walk kernel does its step; kernels*.c and emit_*.c print. */
#ifndef CELLC_PLAN_H
#define CELLC_PLAN_H

#include "devices.h"
#include "formula.h"
#include "reason.h"
#include "request.h"

typedef enum { FORWARD, BACKWARD } Direction;

/* When a value is computed, within one direction. */
typedef enum {
    PHASE_NONE, /* not needed in this direction */
    PHASE_PARAM, /* once: depends on params and sizes only */
    PHASE_BEFORE, /* all steps at once, before the walk over time */
    PHASE_DURING, /* step by step: it depends on what the walk carries */
    PHASE_AFTER, /* all steps at once, after the walk: it feeds nothing that is carried */
    PHASE_BETWEEN /* all steps at once, after the first of several walks and before the next;
                                   * numbers behind it: after the second, and so on */
} Phase;

/* Where a value lies in global memory: row-major [B if batched][T if timed][extents of the array's axes]. */
typedef enum { HOME_NONE, HOME_ARG, HOME_WORKSPACE, HOME_RESERVE } Home;

typedef struct Storage {
    Home home;                    /* HOME_NONE: in no memory; what reads it computes it */
    int arg;                      /* HOME_ARG: index of the tensor among this direction's arguments */
    int slot;                     /* HOME_WORKSPACE, HOME_RESERVE: index of the buffer */
    bool batched, timed;
    Dtype dtype;
    /* An alias: element e of this value is element alias_offset + e of another array's rows (a slice of a
     * stacked value). pitch is the element count of one (batch, step) row; NULL: the product of the axes.
     * Of a slice of each row along the first `lead` axes, `row` apart, e counts within the row. */
    const Poly *pitch, *alias_offset;
    int lead;
    const Poly *row;
} Storage;

/* A reference that a kernel takes as args.ptr[k]: a value of the IR, a tensor, or a role of a tensor in the
 * call. */
typedef enum {
    REF_NODE,                     /* N_ARRAY with storage */
    REF_TENSOR,                   /* input or param; T_STATE: the initial state (may be NULL: zero or
                                   * Roots.init); T_DOUT: cotangent (may be NULL) */
    REF_FINAL,                    /* T_STATE: final state (may be NULL) */
    REF_DFINAL,                   /* T_STATE: cotangent of the final state (may be NULL: zero) */
    REF_DINIT,                    /* T_STATE: gradient of the initial state (may be NULL: not wanted) */
    REF_CHECKPOINT,               /* T_STATE: its checkpoints in the reserve (NULL in inference) */
    /* The kinds below are not for walks. */
    REF_INITIAL,                  /* T_STATE: the initial state as a buffer that is always there */
    REF_CARRY,                    /* T_STATE: [2,B,axes], adjoint of the state by parity of the step */
    REF_BEFORE,                   /* T_STATE: [B,T,axes], the state before each step */
    REF_ROOT,                     /* N_ARRAY: the argument that is its root */
    REF_BUFFER                    /* a buffer of the plan */
} RefKind;
typedef struct Ref { RefKind kind; int id; } Ref;
typedef Vec(Ref) RefVec;

/* Calls with more blocks than so many on each multiprocessor are CALLS_MANY (measured on an H200, walks of
 * 32 x 32: with 2.9 of them the plan for many took E88 from 2.576 ms to 2.589 and the delta rule from 0.602
 * to 0.621, with 3.4 from 2.868 to 2.795 and from 0.755 to 0.640). */
enum { CROWD = 3 };

/* Axes that all states may begin with whose elements have a block each. */
enum { MAX_PARALLEL = 4 };

/* Arguments of backward (gradients) that a value is for, each once, in ascending order. */
typedef Vec(int) Wanted;

/* A layout that holds the states, and what the planner thinks that it costs: of cycles only the order
 * counts. */
typedef struct WalkLayout { LayoutHint layout; double cost; } WalkLayout;

/* One walk over time in one kernel, state on one SM (schedule tile). plan.c fills the first part, tile.c the
 * second. */
typedef struct Walk {
    Module *m;
    const Request *request;
    const Trial *trial;
    Direction dir;
    Dtype storage;                /* --dtype; compute is f32, f64 for f64 */
    int n_nodes;                  /* of_node covers these */
    const Storage *of_node;       /* per node: where an N_ARRAY lies, HOME_NONE if the walk must compute it */
    const Storage *of_forward;    /* the same in forward, which keeps states that are read behind backward's walk; or NULL */
    const Storage *of_tensor;     /* per tensor: inputs, params, T_DOUT (a T_STATE or T_DNEXT is what the walk
                                   * carries) */
    Vec(NodeId) outs;             /* arrays (with storage, timed) that the walk must write at every step */
    const Wanted *wanted;         /* per node: the gradients that an out is for; none: always written */
    const bool *from_product;     /* per node: what reads it finds it rounded (Plan) */
    const bool *made;             /* per node: depends on no state; the walk makes it for its steps
                                   * (tile_take.c). Or NULL */
    bool no_made;                 /* refused, but perhaps not where kernels make these */
    /* FORWARD carries Roots.next into the T_STATE loads of every state s; BACKWARD carries Roots.dprev of
     * step t into the T_DNEXT loads of step t-1 and replays the states from checkpoints. Saved arrays have
     * storage in the reserve. */

    const char *kernel;           /* name of the kernel */
    RefVec refs;                  /* its pointers, in the order of args.ptr */
    Vec(IndexId) parallel;        /* axes spread over blocks beside the batch */
    const Poly *blocks;           /* blocks per batch element: product of the parallel extents */
    int threads;
    int cluster;                  /* blocks that share a state, 1 if one holds it */
    int64_t smem;                 /* dynamic shared memory, bytes */
    int interval;                 /* K: steps between checkpoints; slot c holds the state before step c*K */
    int together;                 /* blocks that are to fit on an SM */
    bool shares_sm;               /* K leaves room on an SM for other blocks */
    bool spreads;                 /* it is not what it would be if others were there (CALLS_FEW) */
    bool undone;                  /* backward: steps are undone; only those behind the last checkpoint are replayed */
    Vec(WalkLayout) layouts;      /* all that it might have, the cheapest first */
    LayoutHint layout;            /* backward's, where forward must have the same one; else 0 */
    int64_t by_thread;            /* then, elements of a matrix in a checkpoint, which lies as the threads have it; else 0 */
    Buf cuda;                     /* the kernel's source */
    Buf reasons;                  /* lines for cellc explain */
    const Reason *refused;        /* why it cannot take this cell; else NULL */
    bool no_room;                 /* because of its states' size */
} Walk;

/* ---- everything around the walk: kernels over all steps, products, and (schedules steps, gemm) one step's
 * kernels */

/* A value or tensor read through resolved aliases: element sum(map[k] * stride[k]) of base. */
typedef struct Read {
    bool is_tensor;
    int id;                       /* NodeId of a non-alias N_ARRAY, or TensorId */
    int nmap;
    const IxExpr **map;
    const IxExpr *step;           /* the step that is read; NULL: the reader's own */
    TensorId past;                /* where step is given: the history with the steps before the call, or -1 */
    int npast;                    /* and the place in it: the indices behind its first */
    const IxExpr **past_map;
} Read;

/* C[m,n] = sum over k of A[m,k] B[k,n], for each of batch: extents and element strides, offsets of the first
 * element. */
typedef struct GemmSide { Read read; const Poly *row, *col, *batch, *offset; } GemmSide;
/* The operands of a product as they are stored in 8 bits, in place of copies in 16 (plan_codes.c), and
 * their scales; or why it takes the copies. */
typedef struct Codes {
    GemmSide a, b;
    TensorId scale[2];
    const char *why_not;
} Codes;
enum { CODES_MULTIPLE = 16 }; /* of numbers, that cuBLASLt wants rows and extents to be */
enum { MOST_TOGETHER = 30 }; /* products of one batch (plan_together.c) */
enum { CODES_CAPABILITY = 89 }; /* of the first devices with such products, 10 times */
typedef struct Gemm {
    const Poly *m, *n, *k, *batch;
    GemmSide a, b, c;
    bool added;                   /* to what an earlier product left in c (plan_added.c) */
    int parts[2];                 /* 1 + the copies of a and b as parts of bf16 that it may take (plan_parts.c); or 0 */
    const Codes *codes; /* both operands are copies of numbers of 8 bits; else NULL */
} Gemm;

typedef enum {
    G_MAP,                        /* one thread per element: pointwise arrays over the same axes */
    G_ROW,                        /* one warp or block per row: reductions along rows and what is pointwise
                                   * around them */
    G_COLUMN,                     /* sums over batch and time, in two stages of fixed order */
    G_SCATTER,                    /* sums over batch and time at places that integers give */
    G_GEMM,
    G_WALK,
    G_UNITS                       /* the whole step, a thread per unit */
} GroupKind;

enum { MAX_POINTERS = 96 };       /* that a kernel takes: CELL_MAX_PTRS of runtime/cell_kernel_args.h */
enum { MAX_BUFFERS = 512 };       /* of a direction's launch plan: CELL_MAX_BUFFERS of runtime/cell_plan.h */

/* A sum over positions (batch, time, and what else is summed over), each at one place of an axis: positions
 * are sorted by place, cut into shares, and added in that order. Rows are places of that axis, columns all
 * that is left. */
typedef struct Scatter {
    int axis;                     /* of the array */
    NodeId place;
    const Poly *rows, *columns, *inner;   /* inner: positions of a step */
    const Poly *positions;
    int keys, order, counts, partial;     /* buffers */
    RefVec refs[6];               /* of its kernels: keys, count, scan, move, sums, totals */
} Scatter;
enum { SCATTER_KEYS, SCATTER_COUNT, SCATTER_SCAN, SCATTER_MOVE, SCATTER_SUMS, SCATTER_TOTALS };
/* A block of 32 threads sorts at least SORT_EACH positions, and there are SORT_BLOCKS of them at most; sums
 * are cut into shares likewise. */
enum { SORT_EACH = 2048, SORT_BLOCKS = 64, SHARE_EACH = 32, SHARES = 2048, SCATTER_THREADS = 128 };
/* A digit's values, and the numbers that the scan has in shared memory
 * (runtime/device/cell_device_sort.cuh). */
enum { SORT_DIGITS = 256, SORT_SCANNED = 1024 + 32 };
extern const char *const scatter_kernels[6];
int scatter_threads(int kernel);                               /* per block */
int scatter_shared(int kernel);                                /* bytes of its shared memory */

enum { ROW_PARTS = 8, APART_PARTS = 16 };
/* Elements of a step from which on vectors are faster than threads: 8 neighbours each keep a large GPU
 * busy. */
enum { STEP_VECTORS = 1 << 18 };
struct Fused;

typedef struct Group {
    GroupKind kind;
    Phase phase;
    const char *kernel;           /* name; COLUMN has a second one, kernel_2 */
    Vec(NodeId) arrays;           /* in order of evaluation */
    int pointers;                 /* that these take of the kernel's, were all to lie in memory */
    int naxes;                    /* MAP: axes of the arrays; ROW: axes of a row's index; COLUMN: of sums */
    int along;                    /* ROW: 1 + the axis that sums run along, of arrays that have it beside a row's, where
                                   * it is not the last (plan_apart.c); or 0 */
    const Poly **axes;
    bool batched, timed;          /* rows run over B, over T */
    int threads;                  /* per block */
    int resident;                 /* blocks that an SM should hold at once (bounds registers); or 0 */
    int lanes;                    /* ROW: threads per row: 32, a whole block, or ROW_PARTS in as many warps */
    int share;                    /* ROW of 32 lanes: short rows that share them; 0 or 1: one row has them */
    int *depth;                   /* ROW: per array, how many reductions of the group stand before it, one
                                   * behind another */
    bool flat;                    /* MAP: few elements a row; rows and elements are one range */
    bool packed;                  /* MAP: perhaps few, the sizes say it: rows share a block */
    int64_t smem;                 /* dynamic shared memory, bytes */
    void *pass;                   /* ROW: what the schedule `pass_by` has of sums over the past that it
                                   * takes in one pass; NULL: they are none; else past too */
    const PastPass *pass_by;
    bool past;                    /* ROW: one reduction over the past (kernels_past.c); naxes: of a block's index */
    bool pointwise;               /* ROW: was a MAP, before it took sums along */
    int sums;                     /* ROW: 1 + the COLUMN group whose partial sums this kernel leaves; or 0 */
    int by_rows;                  /* COLUMN: 1 + the ROW group that leaves its partial sums; or 0 */
    int by_steps; /* COLUMN: 1 + the step's group that has all terms at hand, so that a kernel that walks all
                                   * steps leaves them, a row for each sequence (resident_sums.c) or block (resident_columns.c); or 0 */
    bool unless_walked;           /* ROW: its sums are terms of such a COLUMN, which that kernel makes itself */
    int partial;                  /* COLUMN: buffer of the partial sums */
    int threads_2;                /* COLUMN: per block of the second stage */
    RefVec refs_2;                /* COLUMN: pointers of the second stage */
    Gemm gemm;
    struct Fused *fused;          /* GEMM, MAP, ROW: one kernel may do both (plan_fused.c), or NULL */
    int together; /* GEMM: 1 + the buffer that says where the matrices are of the products
                                   * that it goes together with (plan_together.c); or 0 */
    Scatter *scatter;
    Walk *walk;
    Vec(int) reads;               /* what its arrays read from outside of it, each once: an array, or ~tensor */
    Wanted need;                  /* arguments (gradients) that this is for; empty: always */
    bool always;
    /* filled while the kernel is printed, for its launch */
    RefVec refs;
    int enough;                   /* MAP in a step, ROW along an axis: elements, rows from which on it takes vectors */
    int width;                    /* these: neighbours that a thread takes, where `multiples` are multiples of it and, in a
                                   * step, elements are many; else 1 */
    Vec(const Poly *) multiples;
    int exchanged;                /* ROW: most reductions in one exchange of a block */
    int slots;                    /* ROW: vectors of a row that stay in a thread's registers */
    const Poly *row_extent;       /* ROW: a thread for each `each` of so many elements, or for each `narrow` of them where */
    int each, narrow;             /* they start at no multiple of 16 bytes; NULL: threads */
    int64_t smem_each;            /* ROW: dynamic shared memory for each thread of the block, beside smem */
    int long_slots;               /* ROW: `slots` for rows too long for these; or 0 */
} Group;
typedef Vec(Group) GroupVec;

/* A copy of a product's operand in f32: each number as PARTS of bf16, of which it is the sum. The operand
 * is a matrix whose rows are neighbours, `pitch` apart; the copy has [rows][PARTS][columns], or as planes
 * [PARTS][rows][columns]. */
enum { PARTS = 3 };
typedef struct Parts {
    Read read;
    const Poly *offset, *rows, *columns, *pitch;
    bool planes;
    bool rising;                  /* the smallest part stands first */
    int buffer;
    const char *kernel;
    Vec(const Group *) products;  /* that may take it, in their order */
    RefVec refs;                  /* filled while the kernel is printed */
} Parts;

/* A product of 16 bits in one kernel with the MAP group that reads its result at its own place; or (ahead)
 * with the group that makes its left operand, a MAP or the ROW that this became as it took sums along.
 * [rows, columns] is the sum over depth of a [rows, depth] and b [columns, depth], or ahead [depth,
 * columns], whose rows are dense, with so much between them. */
enum { FUSED_MULTIPLE = 8 };      /* of elements: pitches, columns, depth */
/* As cell_device_product.cuh has them. */
enum { FUSED_THREADS = 384, FUSED_ROWS = 128, FUSED_COLUMNS = 256, FUSED_SMEM = 214400, FUSED_MAP_BYTES = 256, FUSED_BLOCKS = 512 };
/* Ahead: so many rows are made at once, of so many such groups at most, and a row is added to one of so
 * many sums as have so many vectors of columns together, whatever the device (cell_device_ahead.cuh). */
enum { AHEAD_ROWS = 1024, AHEAD_GROUPS = 4096, AHEAD_VECTORS = TARGET_PROCESSORS * 96 };
typedef struct Fused {
    Group *product, *map;
    bool ahead;
    bool shared;                  /* others of forward read the result too */
    int least;                    /* depth, or ahead columns, from which on the product takes longer than what goes with it */
    Read a, b;
    const Poly *a_offset, *b_offset, *a_pitch, *b_pitch, *c_pitch, *rows, *columns, *depth;
    int maps, made;               /* buffers of the kernel's own; ahead: counters */
    const char *kernel;
    Vec(const Poly *) multiples;  /* filled while the kernel is printed: what else is to be a multiple */
    RefVec refs;                  /* filled likewise */
} Fused;

/* A buffer of the launch plan beside the arguments. */
typedef struct Buffer {
    const char *name;
    Dtype dtype;
    const Poly *elements;         /* NULL: chunks * columns of a COLUMN group (partial sums) */
    const Poly *columns;          /* of one array */
    int arrays;
    bool by_rows;                 /* a ROW kernel leaves them */
    const Formula *bytes;         /* of all of it, where no polynomial says them; or NULL */
    const Formula *walk_rows;     /* as many chunks as a kernel that walks all steps leaves rows, if these are
                                   * more; or NULL */
    const Poly *cut;              /* columns are those of each of min(ceil(cut / each), most) shares (of a SCATTER group), or pieces (Fused) */
    int each, most;
    const char *pieces;           /* what explain calls them; NULL: chunks */
    const Parts *parts;           /* it has such a copy, where a product takes it; or NULL */
    int per_steps;                /* checkpoints: the size is elements * ceil(T / per_steps); else 0 */
    bool reserve;                 /* saved for backward */
    bool inference;               /* forward reads it itself, so it is needed without a reserve too */
    bool time_first;              /* [T][B][axes], not [B][T][axes] (plan_time.c) */
    bool untimed; /* partial sums of values that have a row for each sequence, not for each step */
    int ring;                     /* only the steps themselves read it: kept for so many steps, unless it is
                                   * saved; 0: for all */
} Buffer;
typedef Vec(Buffer) BufferVec;

/* Where a thread walks one place of the axes that all states begin with, a unit. */
typedef struct Units {
    int naxes;
    const Poly **axes;
    const Poly *units;            /* their product */
    IndexId pair;                 /* stands for which of two neighbours, where a thread has two */
} Units;

typedef struct Program {
    Direction dir;
    Phase *phase;                 /* per node */
    int *group;                   /* per node: index of its group, -1 */
    Storage *node;                /* per node */
    Storage *tensor;              /* per tensor */
    GroupVec groups;
    int *initial;                 /* per T_STATE: buffer of the initial state [B,axes] (steps), -1 */
    int *carry;                   /* per T_STATE: buffer of the adjoint [2,B,axes] (steps, BACKWARD), -1 */
    int *before;                  /* per T_STATE: buffer of the states before each step [B,T,axes], a
                                   * product's operand; -1 */
    int *checkpoint;              /* per T_STATE: buffer of the checkpoints (tile), -1 */
    Wanted *wanted;               /* per node: the gradients that it is for (BACKWARD) */
    Wanted walk;                  /* and the whole walk */
    bool *taken;                  /* per node, what no state feeds but the walk computes all the same; or
                                   * NULL */
    bool one_kernel;              /* one kernel may walk all steps, or does */
    const Reason *unwalked; /* why none does, where the schedule knows */
    bool in_chunks;               /* and it may take chunks of them side by side */
    void *walks;                  /* what the schedule has of such kernels; or NULL */
    void *beside; /* likewise, of walks beside the module */
    Vec(Parts *) parts;
    bool *in_products;            /* per node: a product gives it, or reads it */
    bool *in_place; /* per node: of BACKWARD, made where it is read: its pieces lie elsewhere, or it is a
                                   * short sum for the steps */
    TensorId *given; /* per node: a root that is what kernels beside the module give and nothing else, and
                                   * that they write where it lies: 1 + that tensor; else 0. NULL: there are none */
} Program;

struct Kir;
/* Those of the plans of an instance that were built so far; scratch: where they are built where no other plan
 * may have the same one, so that none is kept once it is printed; NULL: all are kept. open: those in scratch
 * that are not printed yet. */
typedef struct Kernels { struct Kir **data; int len, cap; Arena *scratch; int open; } Kernels;

/* Issue slots for an element of a value: made for each kernel that reads it, or made once, stored and read
 * by each. */
typedef struct UnstoredCost {
    int made, stored;
} UnstoredCost;

typedef struct Plan Plan;
struct Plan {
    Module *m;
    const Request *request;
    Trial *trial;                 /* the attempt that this plan is */
    Dtype dtype;                  /* storage */
    Dtype compute;                /* f32, or f64 for f64 */
    const Schedule *schedule;
    BufferVec buffers;            /* of both directions; Storage.slot counts through it */
    Program program[2];           /* FORWARD, BACKWARD */
    bool *is_alias;               /* per node: an array that is printed where it is used */
    int *past;                    /* per node: an array over the past, which lies nowhere and is made where it is read:
                                   * 1 + the axis that counts distances; else 0. NULL: there are none */
    IndexId other_step;           /* stands for the other step of a pair, where window.c asks whose a value is */
    int short_window;             /* so many distances are few: values over them lie in memory */
    const char *how;              /* of a plan for the CPU: how it goes there, in words (explain_cpu) */
    bool passes;                  /* a softmax over the past goes in one pass */
    bool attains;                 /* an adjoint asks where a maximum or a minimum is attained: a value that
                                   * backward computes again must have the extremum's bits */
    bool plain_past;              /* values over the past are made where they are read, however many read
                                   * them */
    bool *time_first;             /* per node: its buffer has time before batch; NULL: none has */
    bool *rounded;                /* per node: a copy in the storage type, for tensor cores */
    bool *narrow;                 /* per node: lies in the storage type, as its readers round it (plan_rounded.c) */
    struct Read *taken;           /* per tensor of Tensor.chunk: where its root, an operand or the gradient of
                                   * a read, lies; or NULL */
    bool *kept;                   /* per node: these, which are not made where they are read; or NULL */
    bool *summed; /* per node: of backward, a step adds it to what the steps before it made, and memory has
                                   * a row of it for each sequence (plan_summed.c); NULL: none is */
    bool *from_product;           /* per node: such an array that only products write, so that it is nowhere unrounded */
    bool operands_copied; /* the copies that products take are made */
    bool adds_products; /* Schedule.adds_products, and a step has one */
    bool *again; /* per node: of forward, and computed again in backward, as one of its arrays */
    bool *rematerialised; /* per node: of forward, and made once more where it is read behind
                                   * backward's walk */
    bool *unstored; /* per node: made where it is read, as that costs less than memory; NULL: not
                                   * known yet */
    UnstoredCost *unstored_cost; /* per node: of these */
    const double **table; /* per node: of these, the elements of what depends on constants only, which
                                   * is read from a table in the text of the kernels; else NULL */
    bool *table_read; /* per node: some text reads it */
    bool *opens_row;              /* per node: pointwise, in the direction that is being grouped made by who sums its rows */
    bool *is_cat;                 /* per node: its pieces lie in its storage; nothing computes it */
    int n_nodes;
    int interval;                 /* tile: steps between checkpoints */
    bool shares_sm;               /* tile: they are so few that several blocks fit on an SM */
    int together;                 /* tile: blocks that are to fit there */
    bool spreads;                 /* CALLS_FEW: the walks are others too, whatever the interval */
    LayoutHint layout;            /* tile: of both directions, where a checkpoint lies as the threads have it... */
    int64_t by_thread;            /* ...with so many elements of a matrix; else 0 */
    int cluster;                  /* tile: blocks that share a state; else 1 */
    const Poly *heads; /* of a sequence, which kernels beside the module walk; NULL: there are none */
    Units *units;                 /* where a thread walks one; else NULL */
    bool own_ends;                /* then the walks may begin with the states that the call gives and leave
                                   * the final ones, and the same of the adjoints; else other kernels do */
    const Reason *refused;        /* why the steps turned out to be none for the schedule */
    int64_t block_memory;         /* the most shared memory that a block of a kernel takes */
    Plan *smaller;                /* for GPUs of --archs whose blocks have less than that; or NULL */
    Calls calls;                  /* tile: that the plan is for */
    Plan *other;                  /* tile: the same cell for certain calls, and behind it perhaps for others; or NULL */
    Buf reasons;                  /* lines for cellc explain */
    Buf dump; /* --dump-after: its text behind that pass; empty where it is none of plan_passes */
    Kernels *kernels;             /* while they are printed */
    int *uses, n_uses;            /* per node: scratch of the printers, zero between uses */
};

/* plan.c. NULL with an error when the forced schedule cannot take the cell. m: simplified, differentiated,
 * simplified. */
const Plan *plan_of(const Plan *first, Calls calls);   /* the one of its plans that is for such calls, or itself */
const char *plan_suffix(Calls calls);  /* of the names of kernels that only such calls take: "_roomy", "_crowded" */
Plan *plan_make(Module *m, const Request *request);
/* plan_passes.c: the passes that make one, in their order; --dump-after takes their names. */
struct Planning;
typedef struct PlanPass {
    const char *name;
    void (*run)(struct Planning *s);
    const char *what; /* what the plan has then, for the help */
} PlanPass;
extern const PlanPass plan_passes[]; /* a row with a NULL name ends it */
/* plan_text.c: as text, as that pass left it; plan_read.c: the plan that a text is of, with its pass, or NULL and what
 * is wrong. */
void plan_print(const Plan *p, const char *pass, Buf *out);
Plan *plan_read(Compiler *c, const char *text, size_t len, const char **pass, const char **wrong);
/* Walks of a direction, in their order: those beside the module, by level, and that of the module's own
 * states, which is first in forward and last in backward. */
int plan_walk_count(const Plan *p);
bool plan_steps(const Plan *p); /* has the module states of its own? */
int plan_walk_place(const Plan *p, Direction dir, int level); /* in that order; level -1: the steps' own */
/* cuda.c: the plans of what the front end made of a spec; names of C begin with `name`. NULL with errors. */
Plan *cuda_plan(const Module *lowered, const char *name);
/* Where no schedule is forced: why sums over the past are not taken out of the step for kernels that go over
 * them by tiles (Schedule.cut, of cells without a state). NULL: they are. */
const struct Reason *cuda_sums_stay(const Module *lowered);
/* Asks the passes of the module for what the plan has: for which vectors products with several params are
 * one, and whether factors go into matrices and sums are written out. What is said of the plan is not. */
void cuda_settle(Module *lowered);
/* Which axis of the matrix states, counted from the last, the plan for calls with few states takes apart; 1
 * where there is no such plan. */
int cuda_split_side(const Module *lowered);
/* The plan for the CPU of the same; NULL where it has none, which is no error. not_cut: why it is none with
 * sums over the past taken out of the step; not_walked: why its steps are not walked by a kernel as the
 * schedule `refused` would. NULL: they are, or it was not asked. */
typedef struct CpuChoice {
    Plan *plan;
    const struct Reason *not_cut, *not_walked;
    const Schedule *refused;
} CpuChoice;
CpuChoice cpu_choice(const Module *lowered, const char *name);
Group *plan_walk(const Plan *p, int direction);                /* the kernel that walks the steps; or NULL */
const Poly *walk_blocks(const Program *pr);                   /* of each sequence; NULL without a walk */
/* Is it the number of heads of what walks on chip or in chunks? */
bool plan_counts_heads(const Plan *p, const Program *pr, const Poly *extent);
bool plan_batched(const Plan *p, NodeId array);               /* is it kept per sequence, per step? */
bool plan_timed(const Plan *p, NodeId array);
bool plan_reduces(const Plan *p, NodeId array);               /* is it a sum, maximum, ...? */
/* Do readers of this phase compute it once more? */
bool plan_rematerialises(const Plan *p, const Program *pr, Phase reader, NodeId array);
bool plan_resolve(const Plan *p, NodeId read, Read *out);    /* through aliases; false: it is no plain read */
const Poly *array_elements(Module *m, NodeId array);
const Poly *tensor_elements(Module *m, TensorId t);


/* Has a kernel of the plan, or of those that lead on from it, products by instructions of sm_90a
 * (cell_device_mma.cuh, cell_device_product.cuh)? */
bool plan_has_tiles(const Plan *p);

/* The smaller kernels of schedule steps, for all states: the initial states, the seeds of their adjoints, the
 * results. */
typedef struct StateKernels { const char *name[3]; RefVec refs[3]; } StateKernels;
enum { STATE_INIT, STATE_SEED, STATE_RESULT };
/* What a call leaves of a history, in one kernel at the end of forward. */
typedef struct HistoryKernel { TensorId history; const char *name; RefVec refs; } HistoryKernel;
/* Into how many chunks the rows (batch and time) of a COLUMN group are cut: at least `rows` rows each, at
 * most `most` chunks, and no more than `least` chunks or `group` times as many as make `blocks` blocks of
 * `span` columns: max(1, min(ceil(rows / cut.rows), cut.most, max(cut.least, cut.group * floor(cut.blocks /
 * ceil(columns / cut.span))))). */
enum { COLUMN_WIDTH = 32 };
typedef struct ColumnCut { int rows, most, blocks, least, span, group; } ColumnCut;
ColumnCut column_cut(const Plan *p, bool by_rows);
/* ROW: the kernel for rows that are not all multiples of 16 bytes, or take `long_slots`. */
const char *plan_odd_kernel(const Plan *p, const Group *g);
int plan_width(const Plan *p);                     /* elements of a vector of 16 bytes of the storage type */

/* past_reads.c: is it a reduction over the past of values over the past? How many of its first axes do these
 * vary over? */
bool past_sums(const Plan *p, NodeId array);
int past_rows(const Plan *p, NodeId array);
/* Reads of values over the past in an expression, each once; and the index bound by a reduction that counts
 * distances: -1: none does. */
typedef Vec(Read) PastReads;
void past_reads(const Plan *p, NodeId id, PastReads *out);
bool past_reads_use(const PastReads *reads, IndexId i);
IndexId past_distance(const Plan *p, const Node *r, const PastReads *reads);

/* plan_parts.c: products of f32 for all steps that are large go to tensor cores. Is the operand's k its
 * last axis? */
bool parts_along_k(const GemmSide *s, bool left);
/* Of those that do where sizes are to decide: least extents, elements of the result, and terms.
 * PARTS_PIECE: k of the largest parts' sums that tensor cores add up by themselves. */
enum { PARTS_EXTENT = 256, PARTS_RESULT = 1 << 20, PARTS_MULTIPLE = 8, PARTS_PIECE = 512, PARTS_THREADS = 128 };
#define PARTS_TERMS ((int64_t)1 << 32)
const Storage *plan_storage(const Plan *p, const Program *pr, const Read *r);

/* plan_summed.c: the array of Plan.summed of which this is the sum over sequences; -1: it is none such. */
NodeId summed_term(const Plan *p, NodeId sum);

/* plan_table.c: the name of a table is made of what is in it. */
uint64_t table_number(const Plan *p, NodeId array);
/* Those that are read, each once, in that memory ("__device__ ", or "" for the CPU). */
void put_tables(const Plan *const *plans, int n, const char *memory, Buf *out);

/* kernels*.c: CUDA text of the MAP, ROW and COLUMN groups of a program; fills their refs. */
void emit_group(Plan *p, Program *pr, Group *g, Buf *out);        /* its kernels; fills its refs */
void emit_scatter(Plan *p, Program *pr, Group *g, Buf *out);      /* the six of a SCATTER group */
void emit_state_kernels(Plan *p, StateKernels *k, Buf *out);
void emit_history_kernel(Plan *p, HistoryKernel *h, Buf *out);
void emit_parts_kernel(Plan *p, Program *pr, Parts *x, Buf *out);
/* plan_codes.c: may the product read the codes; are they copies that such products alone read? */
bool takes_codes(const Gemm *g);
bool copies_codes(const Plan *p, const Program *pr, const Group *g);
/* kernels_column.c: the pair that leaves the sums' partial sums where one kernel does both; or NULL. */
const Fused *column_ahead(const Program *pr, const Group *g);
bool emit_fused(Plan *p, Program *pr, Fused *f, Buf *out);        /* false: it cannot be, and the text is none */
/* emit_plan.c: the launch plans, kernel table and reserve as C, and the whole .cu with its kernels. */
void emit_cuda(Plan *p, Buf *cuda, Buf *host);
/* emit_cpu.c: NAME_cpu.c of a plan for the CPU. */
void emit_cpu(Plan *p, const char *name, Buf *out);

/* cuda_expr.c: one scalar expression of the IR as one of a kernel. The printer asks for what it cannot know:
 * an index, and a LOAD, VIEW, ARRAY or REDUCE node at the current indices, as nodes of the kernel IR or, for
 * kernels that are still printed as text, as texts. All live in the arena. */
/* nvcc may fuse a product and a sum where it likes, and where one expression is printed twice, for calls
 * that want all gradients and for others, or forward and for replay, it need not like the same. So a sum
 * that has a product in it is written as a multiply-add, of two the first; or all is written so, and
 * nothing else may be fused. */
typedef enum { FUSE_FREELY, FUSE_FIRST, FUSE_WRITTEN } Fuse;

typedef struct ExprPrinter ExprPrinter;
struct Kir;
struct KirExpr;
typedef struct ExprNodes {
    const struct KirExpr *(*leaf)(ExprPrinter *, NodeId);
    const struct KirExpr *(*index)(ExprPrinter *, IndexId);
    const struct KirExpr *(*known)(ExprPrinter *, NodeId);            /* may give NULL */
    const struct KirExpr *(*reciprocal)(ExprPrinter *, NodeId); /* where fast; may give NULL */
    const struct KirExpr *(*size)(ExprPrinter *, int dim);           /* of a call: a dim, ATOM_B or ATOM_T */
    const struct KirExpr *(*start)(ExprPrinter *);                   /* the call's first step */
} ExprNodes;
struct ExprPrinter {
    Module *m;
    const char *real;             /* "float" or "double" */
    bool fast;                    /* approximate tanh and exp (bf16, f16 only) */
    bool in_c; /* text is C for the CPU, not CUDA */
    /* Places are summed up as x + -1 * y, not x - y: of a difference nvcc knows that it does not overflow,
     * and splits loops over the past by their conditions. */
    bool adds;
    Fuse fuse;
    struct Kir *kir;              /* what nodes are made for */
    const ExprNodes *nodes;       /* NULL: the kernel is printed as text, and these are asked for texts: */
    const char *(*leaf)(ExprPrinter *, NodeId);
    const char *(*index)(ExprPrinter *, IndexId);                  /* IX_TIME: the step's number */
    /* May be NULL, and give NULL: a local that holds the node; fast: 1/node, kept outside a loop. */
    const char *(*known)(ExprPrinter *, NodeId);
    const char *(*reciprocal)(ExprPrinter *, NodeId);
    void *data;
    const bool *rounded;          /* per node of so many: rounding what is read of it changes nothing; may be NULL */
    int n_rounded;
    struct { const Poly *of; const char *text; } polys[64];       /* equal sizes are one, and are asked for often */
};
const struct KirExpr *expr_node(ExprPrinter *p, NodeId n);
const struct KirExpr *ix_node(ExprPrinter *p, const IxExpr *e);
const struct KirExpr *poly_node(ExprPrinter *p, const Poly *e);
const char *expr_text(ExprPrinter *p, NodeId n);
const char *expr_rounded(ExprPrinter *p, NodeId n);   /* a product of reals is rounded before anything is added to it */
/* A product of reals added to `sum`, or subtracted from it, as a written multiply-add; NULL: it is none. */
const char *expr_added(ExprPrinter *p, NodeId n, bool minus, const char *sum);
const char *ix_text(ExprPrinter *p, const IxExpr *e);              /* int64 arithmetic, floor division */
const char *poly_text(ExprPrinter *p, const Poly *e);              /* over the run-time dims, "dim_D" */

#endif
