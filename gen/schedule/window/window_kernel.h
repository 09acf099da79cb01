/* window_kernel.h: a kernel of schedule window while it is built as a tree (kernels_window.c).
 * window_values.c has what pairs of steps are made of, window_tiles.c tiles of elements in shared memory
 * and products of them, window_pairs.c what is computed of each pair, window_range.c which steps a block is
 * paired with, and window_results.c what it stores. */
#ifndef CELLC_WINDOW_KERNEL_H
#define CELLC_WINDOW_KERNEL_H

#include "kernels/code.h"
#include "window.h"

typedef struct WindowPass {
    Code *x;
    const Window *w;
    bool passes; /* over columns, beyond those that stay in registers */
    const KirExpr *base; /* of such a pass: the first column; else 0 */
    int chunk[4]; /* per dot: elements that are multiplied at once */
    bool whole; /* these are all of them: the owners' stay in shared memory */
    /* Shared memory: of the owners what they have in each dot, or in the one that is multiplied; of the other
     * steps that, or columns; tiles of pairs; a number of each thread, and one of each row. */
    const KirExpr *rows[4], *columns, *pairs[8], *shares, *factors;
    const KirExpr *thread, *mine, *part; /* the thread's row, and which of four it is there */
    const KirExpr *tile, *first, *last; /* of the owners: which tile it is, and its first and last step */
    const KirExpr *low, *high; /* the other steps */
    const KirExpr *from; /* the first one of a tile of them */
    const KirExpr *most, *parts[8], *sums[8]; /* the maximum so far; of each sum, that of the thread */
    bool places; /* pairs without another step are built */
    bool inside; /* all other steps of the tile are in the call */
    const KirExpr *at; /* where a pair lies in its tile, while it is built; NULL: it lies in none */
} WindowPass;

/* ---- window_values.c */

const WindowSum *window_sum(const WindowPass *s, int i);
const Poly *window_extent(const WindowPass *s, IndexId i);
const KirExpr *window_number(const WindowPass *s, double v);
KirOpen window_open_if(const WindowPass *s, KirBinary op, const KirExpr *a, const KirExpr *b);
const KirExpr *window_lesser(const WindowPass *s, const KirExpr *a, const KirExpr *b);
KirOpen window_open_whole(const WindowPass *s, const char *name, const KirExpr *first, const KirExpr *limit,
                          int by, const KirExpr **var);
const KirExpr *window_factor_value(const WindowPass *s, NodeId id);
const KirExpr *window_product_value(const WindowPass *s, const Factors *f,
                                    const KirExpr *first); /* NULL: 1 */
const KirExpr *window_dot_value(Code *x, NodeId reduce);
const KirExpr *window_side_value(const WindowPass *s, const WindowDot *d, const Factors *f, const KirExpr *i);
const KirExpr *window_other_there(const WindowPass *s, const Factors *f, const KirExpr *step);
void window_bind_sum(const WindowPass *s, const WindowSum *sum, const KirExpr *distance);

/* ---- window_tiles.c */

void window_put_owners(const WindowPass *s);
void window_put_dot(WindowPass *s, int dot);
const KirExpr *window_columns(const WindowPass *s, const WindowSum *sum);
int window_column_tiles(const WindowPass *s, const WindowSum *sum); /* that stay in registers */
int window_columns_at_once(const WindowPass *s, const WindowSum *sum);
bool window_needs_passes(const WindowPass *s);
void window_rescale(const WindowPass *s, int i);
void window_weigh_columns(WindowPass *s, int i, int slot);

/* ---- window_pairs.c */

void window_join_maximum(WindowPass *s, const KirExpr *extent);
void window_put_weights(WindowPass *s, const KirExpr *extent);

/* ---- window_range.c */

void window_declare_range(WindowPass *s);
const KirExpr *window_any_terms(const WindowPass *s);

/* ---- window_results.c */

void window_store_results(const WindowPass *s);

#endif
