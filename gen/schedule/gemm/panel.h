/* panel.h: steps that one kernel walks, with the weights of their product on the chip (panel.c). */
#ifndef CELLC_PANEL_H
#define CELLC_PANEL_H

#include "plan/reads.h"

/* Counters that blocks post to: 8 groups, each in a line of 128 bytes (CELL_PANEL_WARPS * CELL_PANEL_POST). A batch
 * of more than PANEL_BATCH sequences gives a product enough rows to fill the device by itself; where the storage has 16 bits, one
 * of more than PANEL_BATCH_NARROW (measured on an H200, LSTM of 1024 units, T 256, forward and backward, by this kernel and by
 * launches: B 32 3.19 ms and 3.97, B 48 4.79 and 4.50, B 64 6.28 and 4.75). A kernel multiplies PANEL_TURN of them at once, or, in
 * 16 bits, PANEL_WIDE (CELL_PANEL_BATCH, and cell_panel's Batch). */
enum { PANEL_POSTS = 8 * 32, PANEL_BATCH = 64, PANEL_BATCH_NARROW = 32, PANEL_TURN = 16, PANEL_WIDE = 32, PANEL_THREADS = 256 };
/* A block that has a whole head: its threads, and the most sequences that it takes (CELL_HEAD_THREADS, _BATCH). */
enum { HEAD_THREADS = 256, HEAD_BATCH = 8 };
/* A cluster that has one: CELL_CLUSTER_BLOCKS, _THREADS and _PARTS; from CLUSTER_UNITS on it is faster than a block (measured
 * on an H200, E1, B 16, T 256, forward and backward: 0.43 ms for 0.47 at 32 units, 0.44 for 0.51 at 128, 0.46 for 1.09 at 256). */
enum { CLUSTER_BLOCKS = 16, CLUSTER_THREADS = 512, CLUSTER_PARTS = 8, CLUSTER_UNITS = 32 };

/* Blocks of columns: CELL_COLUMNS_UNITS, _MOST, _PIECES, _SLOTS, _POST and _THREADS. */
enum { COLUMNS_UNITS = 128, COLUMNS_MOST = 64, COLUMNS_PIECES = 8, COLUMNS_SLOTS = 5, COLUMNS_POST = 32 };
/* Values of each element that a step reads. By nvcc's count those beyond none forward, and one backward, are spilled, with as many
 * numbers stored and read: forward 184, 432, 684 and 940 bytes of each for 1 to 4, backward 660, 1340, 2164 and 2876 stored for
 * 1 to 4 more. At what shared memory takes these are 0.4, 1.0, 1.6 and 2.1 us a step, and 1.3, 2.5, 4.1 and 5.4; the loop of kernels
 * loses about 3 us a step forward and 4 backward (E2, docs/performance.md), and reads them sooner. */
enum { COLUMNS_READS_FORWARD = 2, COLUMNS_READS_BACKWARD = 3 };
enum { COLUMNS_THREADS = 256, COLUMNS_SUMS = COLUMNS_MOST * COLUMNS_THREADS / 32 };

/* columns.c: sets Program.columns of both directions, behind put_time_first. What the walk sums itself is behind it then. */
void columns_find(Plan *p);
const Poly *columns_posts(const Plan *p);                /* counters that its blocks post to */
/* The value whose sum over batch and time a sum of columns is; or -1. */
NodeId columns_term(const Plan *p, NodeId sum);

/* Decides for both directions of a plan with schedule gemm; sets Program.panel. */
void panel_find(Plan *p);
/* How often `whole` contains `part`, as a number; 0 when that is not one. */
int64_t panel_times(Module *m, const Poly *whole, const Poly *part);
/* Elements of an array over these axes. */
const Poly *panel_whole(Module *m, const IndexId *axes, int naxes);
/* Is element `linear` of a value of so many elements that of these axes' own unit in one of its pieces, and in which? */
bool panel_piece(Module *m, const IxExpr *linear, const Poly *elements, const IndexId *axes, int naxes, int64_t *piece);

/* Counters that its blocks post to. */
int panel_posts(const Panel *w);
/* Per node: does one pointwise group of the step make it, an element for each unit, and another find it there (panel_finds)? */
const bool *panel_crosses(const Plan *p, const Program *pr);
/* Does group `reader` find in the place of the value, of which there is one for all steps, what it reads? Of its own step it
 * comes behind the group that makes it, of the step before (carried) before that group. */
bool panel_finds(const Program *pr, int reader, NodeId value, bool carried);

/* kernels_panel.c, kernels_columns.c: the text of a kernel; fills its refs. */
void panel_print(Plan *p, Program *pr, Panel *w, Buf *out);
void columns_print(Plan *p, Program *pr, Buf *out);              /* of Program.columns */
/* gemm_launch.c: hooks begins, launch_walks. */
struct Print;
bool gemm_begins(const Program *pr);
bool gemm_launch(struct Print *e, const Formula **loop);

/* panel_sums.c: which sums over batch and time the kernels that walk all steps take along. */
void panel_sums(Plan *p, Program *pr, const Panel *w);
/* The values of the step that lie side by side in the row that a sum adds up, if it is such a row; else 0. */
int panel_sum_pieces(const Plan *p, NodeId sum, NodeId *row, Piece *out, int max);

#endif
