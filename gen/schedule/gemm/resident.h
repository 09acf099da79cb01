/* resident.h: steps that one kernel walks, with the weights of their product on the chip (resident.c). */
#ifndef CELLC_RESIDENT_H
#define CELLC_RESIDENT_H

#include "plan/reads.h"

/* Counters that blocks post to: 8 groups, each in a line of 128 bytes (CELL_PANEL_WARPS * CELL_PANEL_POST).
 * A batch of more than PANEL_BATCH sequences gives a product enough rows to fill the device by itself;
 * where the storage has 16 bits, one of more than PANEL_BATCH_NARROW (measured on an H200, LSTM of 1024
 * units, T 256, forward and backward, by this kernel and by launches: B 32 3.19 ms and 3.97, B 48 4.79 and
 * 4.50, B 64 6.28 and 4.75). A kernel multiplies PANEL_TURN of them at once, or, in 16 bits, PANEL_WIDE
 * (CELL_PANEL_BATCH, and cell_panel's Batch). */
enum { MARKED_BLOCKS = 64 };
enum {
    PANEL_POSTS = 8 * 32,
    PANEL_BATCH = 64,
    PANEL_BATCH_NARROW = 32,
    PANEL_TURN = 16,
    PANEL_WIDE = 32,
    PANEL_THREADS = 256
};
/* A block that has a whole head: its threads, and the most sequences that it takes (CELL_HEAD_THREADS,
 * _BATCH). */
enum { HEAD_THREADS = 256, HEAD_BATCH = 8 };
/* A cluster that has one: CELL_CLUSTER_BLOCKS, _THREADS and _PARTS; from CLUSTER_UNITS on it is faster than
 * a block (measured on an H200, E1, B 16, T 256, forward and backward: 0.43 ms for 0.47 at 32 units, 0.44
 * for 0.51 at 128, 0.46 for 1.09 at 256). */
enum { CLUSTER_BLOCKS = 16, CLUSTER_THREADS = 512, CLUSTER_PARTS = 8, CLUSTER_UNITS = 32 };

/* Blocks of columns: CELL_COLUMNS_UNITS, _MOST, _PIECES, _SLOTS, _POST and _THREADS. */
enum { COLUMNS_UNITS = 128, COLUMNS_MOST = 64, COLUMNS_PIECES = 8, COLUMNS_SLOTS = 5, COLUMNS_POST = 32 };
/* Values of each element that a step reads. By nvcc's count those beyond none forward, and one backward,
 * are spilled, with as many numbers stored and read: forward 184, 432, 684 and 940 bytes of each for 1 to
 * 4, backward 660, 1340, 2164 and 2876 stored for 1 to 4 more. At what shared memory takes these are 0.4,
 * 1.0, 1.6 and 2.1 us a step, and 1.3, 2.5, 4.1 and 5.4; the loop of kernels loses about 3 us a step
 * forward and 4 backward (bench/notes, E2), and reads them sooner. */
enum { COLUMNS_READS_FORWARD = 2, COLUMNS_READS_BACKWARD = 3 };
enum { COLUMNS_THREADS = 256, COLUMNS_SUMS = COLUMNS_MOST * COLUMNS_THREADS / 32 };

/* One kernel that walks all steps: a cooperative kernel, whose blocks hold their rows of the product's param
 * in shared memory; rows and k are stacks of pieces of `units`. Or blocks or clusters that hold a head's
 * whole param; each thread has an element. */
typedef struct ResidentWalk {
    Group *product;
    const Poly *units;
    const Poly *heads; /* 1: none; only blocks that hold one take them */
    int naxes; /* of heads, and the units */
    bool alone; /* a thread has one element for all steps, and its states in registers */
    bool cluster; /* a cluster has a head, and a block `own` of its units */
    int inner, outer; /* pieces of k, of rows */
    int own; /* units per block */
    int split; /* blocks of a cluster that divide the pieces of k */
    int batch; /* sequences that are multiplied at once */
    const Poly *k_units; /* terms of a piece of the product; mostly the units */
    struct ResidentWalk **parts; /* several products a step (resident_several.c): each as a walk; else NULL */
    int nparts;
    int number, weights; /* of a part: its number, and that of the first one with the same weights */
    int first_post; /* of a part: its first counter */
    const Poly **spaces; /* several: what a step's groups are pointwise over, each once */
    int nspaces;
    Read
        weight; /* a param, or what is made of params; [r, k] stands at weight_offset + r * row_stride + k * k_stride */
    const Poly *weight_offset, *row_stride, *k_stride, *head_stride;
    NodeId operand; /* per sequence, operand_pitch apart; contiguous along k */
    const Poly *operand_offset;
    bool operand_ready; /* the step before made it; else the kernels before the product do */
    bool marks; /* every word of it is written once, in the walk, where it has a row for
                                   * every step */
    bool marks_few; /* where the device has few blocks of the walk only (MARKED_BLOCKS) */
    int posts; /* buffer of the counters */
    Group *group; /* columns: what is pointwise, and the sums over columns */
    const Poly *columns; /* of a sequence */
    TensorId state;
    int exchange; /* buffer of the operand, twice, as blocks send it */
    bool sums; /* columns: it leaves sums of columns over all steps and its units */
    const char *kernel;
    RefVec refs; /* filled while the kernel is printed */
} ResidentWalk;

/* The kernels of a direction that may walk all steps (Program.walks); each may be NULL. */
typedef struct ResidentWalks {
    ResidentWalk *panel;
    ResidentWalk *pairs; /* the same, of clusters of two blocks that divide the operand */
    ResidentWalk *wide; /* one of these for more sequences than it multiplies at once */
    ResidentWalk *head; /* blocks that have a head each */
    ResidentWalk *cluster; /* clusters that have a head each */
    ResidentWalk *columns; /* blocks that have some units of one sequence (resident_columns.c) */
    bool *summed; /* per node, only sums that such kernels take along read it; NULL: there
                                   * are none */
} ResidentWalks;

static inline ResidentWalks *resident_walks(const Program *pr)
{
    return pr->walks;
}

/* resident_columns.c: sets ResidentWalks.columns of both directions, behind put_time_first. What the walk
 * sums itself is behind it then. */
void columns_find(Plan *p);
const Poly *columns_posts(const Plan *p); /* counters that its blocks post to */
/* The value whose sum over batch and time a sum of columns is; or -1. */
NodeId columns_term(const Plan *p, NodeId sum);

/* Decides for both directions of a plan with schedule gemm; sets all of ResidentWalks but columns, or why
 * there is nothing to set. */
void resident_find(Plan *p, const Reason *why[2]);
/* Takes a group of the step as the one product of a walk; false: it is none, or not the only one. */
bool resident_take_product(ResidentWalk *w, Group *g);
/* How often `whole` contains `part`, as a number; 0 when that is not one. */
int64_t resident_times(Module *m, const Poly *whole, const Poly *part);
/* Elements of an array over these axes. */
const Poly *resident_whole(Module *m, const IndexId *axes, int naxes);
/* Is element `linear` of a value of so many elements that of these axes' own unit in one of its pieces, and
 * in which? */
bool resident_piece(Module *m, const IxExpr *linear, const Poly *elements, const IndexId *axes, int naxes,
                    int64_t *piece);

/* May a kernel that walks all steps keep it on chip: does it lie in memory before the first step, the same
 * for all sequences, in the type in which it is multiplied? */
bool resident_is_weight(const Plan *p, const Program *pr, const Read *r);
/* Counters that its blocks post to. */
int resident_posts(const ResidentWalk *w);
/* Per node: does one pointwise group of the step make it, an element for each unit, and another find it
 * there (resident_finds)? */
const bool *resident_crosses(const Plan *p, const Program *pr);
/* Does group `reader` find in the place of the value, of which there is one for all steps, what it reads?
 * Of its own step it comes behind the group that makes it, of the step before (carried) before that group. */
bool resident_finds(const Program *pr, int reader, NodeId value, bool carried);

/* kernels_resident.c, kernels_columns.c: the text of a kernel; fills its refs. */
void resident_print(Plan *p, Program *pr, ResidentWalk *w, Buf *out);
void columns_print(Plan *p, Program *pr, Buf *out); /* of ResidentWalks.columns */

/* The products of a walk, of which there is one at least. */
static inline int resident_products(const ResidentWalk *w)
{
    return w->nparts ? w->nparts : 1;
}
const ResidentWalk *resident_part(const ResidentWalk *w, int i);
/* Fragments of the weights that a thread may keep in registers (cell_panel's Keep): with weights of several
 * products it has none to spare. */
int resident_keep(const ResidentWalk *w);

/* resident_several.c: a walk for steps of several products; NULL, and why, where a step has a part that
 * forbids it. */
ResidentWalk *resident_several(Plan *p, Program *pr, const Reason **why);
/* resident.c, for these: whether the product of `w` is such a one, and fills what it is made of; what is
 * pointwise reads of the step its own unit's values only; how a step's values may be stored, and who makes
 * the operand. */
bool resident_takes_product(const Plan *p, const Program *pr, ResidentWalk *w);
bool resident_takes_map(const Plan *p, const Program *pr, const ResidentWalk *w, const Group *g);
bool resident_made_before(const Plan *p, NodeId operand);
bool resident_marks_operand(const Plan *p, const Program *pr, const ResidentWalk *w);
void resident_keep_operand(Plan *p, const Program *pr, const ResidentWalk *w);
int resident_split(const Plan *p, const ResidentWalk *w);
const Reason *resident_beside(const Plan *p, const Group *g);
const char *resident_value_name(const Plan *p, NodeId id);
/* What the group of the step that makes a value is pointwise over, or whose pieces a product's rows are;
 * NULL: it is not made in a step, or by groups of different ones. */
const Poly *resident_space(const Plan *p, const Program *pr, const ResidentWalk *w, NodeId id);
/* What a group over this axis is pointwise over: the axis, or units that it is some pieces of and that other
 * groups are over. */
const Poly *resident_base(Module *m, const ResidentWalk *w, const Poly *axis);
/* Where `offset` is a multiple of the units, perhaps a negative one, that multiple is left in `pieces`. */
bool resident_whole_pieces(Module *m, const Poly *offset, const Poly *units, int64_t *pieces);
/* The place, among the groups of a step that are pointwise, of the last one that makes the operand; -1:
 * none. */
int resident_maker(const Plan *p, const Program *pr, const ResidentWalk *part);
/* Groups of the step that are pointwise and stand before a part's product. */
int resident_place(const Program *pr, const ResidentWalk *part);

/* resident_sums.c: which sums over batch and time the kernels that walk all steps take along. */
void resident_sums(Plan *p, Program *pr, const ResidentWalk *w);
/* The values of the step that lie side by side in the row that a sum adds up, if it is such a row; else 0. */
int resident_sum_pieces(const Plan *p, NodeId sum, NodeId *row, Piece *out, int max);

#endif
