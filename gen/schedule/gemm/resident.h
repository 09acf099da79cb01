/* resident.h: resident walks. One kernel walks all steps of a direction, and the weights of its products
 * stay on the chip (persistent RNNs). Each walk is a value of one model, ResidentWalk: what shares a
 * sequence, where its elements and the weights lie, how the shares of a product's operand are exchanged,
 * how many sequences are taken at once. All of them walk step by step. A direction has a list of walks, in
 * order of preference (ResidentWalks). */
#ifndef CELLC_RESIDENT_H
#define CELLC_RESIDENT_H

#include "plan/reads.h"

/* Counters that blocks post to: 8 groups, each in a line of 128 bytes (CELL_PANEL_WARPS * CELL_PANEL_POST).
 * A batch of more than PANEL_BATCH sequences gives a product enough rows to fill the device by itself;
 * where the storage has 16 bits, one of more than PANEL_BATCH_NARROW (measured on an H200, LSTM of 1024
 * units, T 256, forward and backward, by this kernel and by launches: B 32 3.19 ms and 3.97, B 48 4.79 and
 * 4.50, B 64 6.28 and 4.75). A kernel multiplies PANEL_TURN of them at once, or, in 16 bits, PANEL_WIDE
 * (CELL_PANEL_BATCH, and cell_panel's Batch). */
enum {
    PANEL_POSTS = 8 * 32,
    PANEL_BATCH = 64,
    PANEL_BATCH_NARROW = 32,
    PANEL_TURN = 16,
    PANEL_WIDE = 32,
    PANEL_THREADS = 256
};
/* With so many blocks at most ResidentProduct.marks_few holds. */
enum { MARKED_BLOCKS = 64 };
/* A block that has a whole head: its threads, and the most sequences that it takes (CELL_HEAD_THREADS,
 * _BATCH). */
enum { HEAD_THREADS = 256, HEAD_BATCH = 8 };
/* A cluster that has one: CELL_CLUSTER_BLOCKS, _THREADS and _PARTS; from CLUSTER_UNITS on it is faster than
 * a block (measured on an H200, E1, B 16, T 256, forward and backward: 0.43 ms for 0.47 at 32 units, 0.44
 * for 0.51 at 128, 0.46 for 1.09 at 256). */
enum { CLUSTER_BLOCKS = 16, CLUSTER_THREADS = 512, CLUSTER_PARTS = 8, CLUSTER_UNITS = 32 };

/* Blocks of columns: CELL_COLUMNS_UNITS, _MOST, _PIECES, _SLOTS, _POST and _THREADS. */
enum { COLUMNS_UNITS = 128, COLUMNS_MOST = 64, COLUMNS_PIECES = 8, COLUMNS_SLOTS = 5, COLUMNS_POST = 32 };
enum { COLUMNS_VECTOR = 8 }; /* units of 16 bytes, of which a row is some whole ones */
/* Values of each element that a step reads. By nvcc's count those beyond none forward, and one backward,
 * are spilled, with as many numbers stored and read: forward 184, 432, 684 and 940 bytes of each for 1 to
 * 4, backward 660, 1340, 2164 and 2876 stored for 1 to 4 more. At what shared memory takes these are 0.4,
 * 1.0, 1.6 and 2.1 us a step, and 1.3, 2.5, 4.1 and 5.4; the loop of kernels loses about 3 us a step
 * forward and 4 backward (bench/notes, E2), and reads them sooner. */
enum { COLUMNS_READS_FORWARD = 2, COLUMNS_READS_BACKWARD = 3 };
enum { COLUMNS_THREADS = 256, COLUMNS_SUMS = COLUMNS_MOST * COLUMNS_THREADS / 32 };

/* ---- the model */

/* Which blocks have the units of a sequence between them, or of one of its heads, and so multiply its
 * vectors. */
typedef enum {
    SHARE_GRID, /* all blocks of the grid have some units of all sequences each */
    SHARE_BLOCK, /* a block has a head of some sequences */
    SHARE_CLUSTER, /* a cluster has a head of some sequences, and its blocks some units each */
    SHARE_COLUMNS, /* some blocks have a sequence of many columns, and some units of all of these each */
    SHARINGS
} Sharing;

/* Where the elements of a step are computed, and what passes from one step to the next lies. */
typedef enum {
    ELEMENTS_IN_TURN, /* a thread takes one after the other; states lie in memory */
    ELEMENTS_OF_THREAD, /* a thread has the same one at all steps, and its states in registers */
    ELEMENTS_OF_SUMS /* a thread has those whose sums a product leaves in its registers */
} Elements;

/* Where the weights lie while the steps go by. */
typedef enum {
    WEIGHTS_SHARED, /* in a block's shared memory */
    WEIGHTS_REGISTERS, /* in registers of its threads */
    WEIGHTS_BOTH /* in registers as far as there is room, else in shared memory */
} Weights;

/* How what threads make of an operand reaches all that multiply it. */
typedef enum {
    EXCHANGE_SHARED, /* through a block's shared memory, at its barriers */
    EXCHANGE_CLUSTER, /* by stores to the shared memory of all blocks of a cluster, which count them */
    EXCHANGE_MEMORY /* through memory: blocks that have stored it post, or its words tell by themselves
                       * whether they are there (ResidentProduct.marks). The
                       * device has to hold all blocks at once */
} Exchange;

/* A product of every step with weights on the chip. Its rows, and the terms of its sums (k), are pieces that
 * follow one another: rows of `units` each, terms of `k_units`. */
typedef struct ResidentProduct {
    Group *group;
    int number; /* of the walk's products, in their order in a step */
    const Poly *units, *k_units;
    int inner, outer; /* pieces of k, of rows */
    int split; /* blocks of a cluster that divide the pieces of k; 1: each multiplies all */
    Read weight; /* a param, or what is made of params: [r, k] stands at
                                   * weight_offset + r * row_stride + k * k_stride */
    const Poly *weight_offset, *row_stride, *k_stride, *head_stride;
    int first_same; /* number of the first product with the same weights, which share their place */
    NodeId operand; /* per sequence, contiguous along k */
    const Poly *operand_offset;
    bool operand_ready; /* the step before made it; else the groups before the product do */
    bool marks; /* every word of it is written once, in the walk, where it has a row for every step */
    bool marks_few; /* only where the device has few blocks of the walk (MARKED_BLOCKS) */
    int first_post; /* its first counter, of the walk's posts */
} ResidentProduct;

typedef struct ResidentWalk {
    Sharing sharing;
    Elements elements;
    Weights weights;
    Exchange exchange;
    const char *kernel;
    RefVec refs; /* its pointers; filled while the kernel is printed */

    const Poly *heads; /* of a sequence, which do not read one another; 1: there are none */
    const Poly *columns; /* of its products, for each sequence and head */
    const Poly *units; /* of a head, in each column: the last axis of a state */
    int naxes; /* of an element: those of heads and columns, and the units */
    const Poly *
        *spaces; /* what its groups are over, or over some pieces of, each once: the units come first */
    int nspaces;
    ResidentProduct *products; /* one at least */
    int nproducts;
    bool several; /* it has several products, or groups over several spaces or pieces of one: a thread takes
                   * these in turn, and each product has a place of its own for its sums */

    int threads; /* of a block */
    int own; /* units of each space that a block has, at most */
    int batch; /* sequences that are multiplied at once, at most */
    int cluster; /* blocks of a cluster; 1: there are none */
    const Poly *posts; /* counters that its blocks post to; NULL: they post nothing */
    int posts_buffer; /* which has them */
    int exchange_buffer; /* of the operand as blocks send it, twice; -1: they read it where it lies */
    bool sums; /* it takes sums over batch and time along (Group.by_steps) */
} ResidentWalk;

/* The kernels that may walk all steps of a direction (Program.walks), in order of preference. */
typedef struct ResidentWalks {
    ResidentWalk **data;
    int len, cap;
    bool *summed; /* per node, only sums that such kernels take along read it; NULL: there are none */
} ResidentWalks;

static inline ResidentWalks *resident_walks(const Program *pr)
{
    return pr->walks;
}

/* Has it instructions of sm_90a, which multiply tiles from shared memory into registers? */
static inline bool resident_has_tiles(const ResidentWalk *w)
{
    return w->elements == ELEMENTS_OF_SUMS;
}

/* ---- resident.c */

/* Sets the walks of both directions but those of columns, or says why there is none. */
void resident_find(Plan *p, const Reason *why[2]);
ResidentWalk *resident_new(Plan *p, Sharing sharing, Elements elements, Exchange exchange);
/* A walk of the same step, with products of its own, whose kernel's name ends so. */
ResidentWalk *resident_copy(Plan *p, const Program *pr, const ResidentWalk *w, const char *suffix);
void resident_add(Plan *p, Program *pr, ResidentWalk *w); /* behind those that are preferred */
const char *resident_way(const Program *pr); /* "forward" or "backward" */

/* ---- resident_head.c: adds a walk of a head by a block, and by a cluster, where there can be one */

void resident_block(Plan *p, Program *pr, const ResidentWalk *step);
void resident_cluster(Plan *p, Program *pr, const ResidentWalk *step);

/* ---- resident_grid.c: walks by the whole grid, as which a step is found */

/* Units of a block, blocks of a cluster, where weights lie. */
void resident_divide(Plan *p, ResidentWalk *w);
void resident_grid(Plan *p, Program *pr, const ResidentWalk *step); /* adds them */
/* Fragments of the weights that a thread may keep in registers (cell_panel's Keep). */
int resident_keep(const ResidentWalk *w);

/* ---- resident_columns.c: adds the walks of columns, behind put_time_first, or says what a step with a
 * product of columns lacks. */

void resident_columns(Plan *p, const Reason *why[2]);
/* The value whose sum over batch and time a sum of columns is; or -1. */
NodeId columns_term(const Plan *p, NodeId sum);
TensorId columns_state(const Plan *p, const ResidentWalk *w); /* the cell's one state; -1: it has another */
Group *columns_group(const Program *pr); /* of a step: all that it has beside the product; or NULL */

/* ---- resident_step.c: what a step must be for a walk */

/* The step of a direction as a walk by the whole grid; NULL, and why, where it has a part that forbids it. */
ResidentWalk *resident_step(Plan *p, Program *pr, const Reason **why);
/* Takes a group of the step as the one product of a walk; false: it is none, or not the only one. */
bool resident_take_product(Plan *p, ResidentWalk *w, Group *g);
/* How often `whole` contains `part`, as a number; 0 when that is not one. */
int64_t resident_times(Module *m, const Poly *whole, const Poly *part);
/* Where `offset` is a multiple of the units, perhaps a negative one, that multiple is left in `pieces`. */
bool resident_whole_pieces(Module *m, const Poly *offset, const Poly *units, int64_t *pieces);
/* Elements of an array over these axes. */
const Poly *resident_whole(Module *m, const IndexId *axes, int naxes);
/* Is element `linear` of a value of so many elements that of these axes' own unit in one of its pieces, and
 * in which? */
bool resident_piece(Module *m, const IxExpr *linear, const Poly *elements, const IndexId *axes, int naxes,
                    int64_t *piece);
/* What a group over this axis is pointwise over: the axis, or the space that it is some pieces of. */
const Poly *resident_base(Module *m, const ResidentWalk *w, const Poly *axis);
/* May a kernel that walks all steps keep it on chip: does it lie in memory before the first step, the same
 * for all sequences, in the type in which it is multiplied? */
bool resident_is_weight(const Plan *p, const Program *pr, const Read *r);
/* Is the product one of weights with a vector, in pieces? Fills what it is made of. */
bool resident_takes_product(const Plan *p, const Program *pr, const ResidentWalk *w, ResidentProduct *x);
/* Does what is pointwise read of the step its own unit's values only? */
bool resident_takes_map(const Plan *p, const Program *pr, const ResidentWalk *w, const Group *g);
const Reason *resident_beside(const Plan *p, const Group *g);
const char *resident_value_name(const Plan *p, NodeId id);

/* resident_operand.c: who makes a product's operand, and how it may lie. */
bool resident_made_before(const Plan *p, NodeId operand);
bool resident_makes_operand(const Plan *p, const Program *pr, const ResidentWalk *w,
                            const ResidentProduct *x);
bool resident_marks_operand(const Plan *p, const Program *pr, const ResidentWalk *w,
                            const ResidentProduct *x);
void resident_keep_operand(Plan *p, const Program *pr, const ResidentProduct *x);
/* Per node: does one pointwise group of the step make it, an element for each unit, and another find it there
 * (resident_finds)? */
const bool *resident_crosses(const Plan *p, const Program *pr, const ResidentWalk *w);
/* Does group `reader` find in the place of the value, of which there is one for all steps, what it reads?
 * Of its own step it comes behind the group that makes it, of the step before (carried) before that group. */
bool resident_finds(const Program *pr, int reader, NodeId value, bool carried);

/* ---- resident_several.c: steps of several products, or of groups over several spaces */

ResidentWalk *resident_several(Plan *p, Program *pr, const Reason **why);
/* What the group of the step that makes a value is pointwise over, or whose pieces a product's rows are;
 * NULL: it is not made in a step, or by groups of different ones. */
const Poly *resident_space(const Plan *p, const Program *pr, const ResidentWalk *w, NodeId id);
/* The place, among the groups of a step that are pointwise, of the last one that makes the operand; -1:
 * none. */
int resident_maker(const Plan *p, const Program *pr, const ResidentProduct *x);
/* Groups of the step that are pointwise and stand before a product. */
int resident_place(const Program *pr, const ResidentProduct *x);

/* ---- resident_sums.c: which sums over batch and time the walks of a direction take along */

void resident_sums(Plan *p, Program *pr, const ResidentWalk *w);
/* The values of the step that lie side by side in the row that a sum adds up, if it is such a row; else 0. */
int resident_sum_pieces(const Plan *p, NodeId sum, NodeId *row, Piece *out, int max);

/* ---- kernels_resident.c: the text of a walk's kernel; fills its refs. */

void resident_print(Plan *p, Program *pr, ResidentWalk *w, Buf *out);

#endif
