/* resident_forms.c: grids, shared memory and conditions of the kernels that walk all steps with the weights
 * on chip: a panel in each of many blocks, a head in a block or a cluster, columns of a sequence in blocks.
 * In: what resident.c and resident_columns.c found. Out: formulas over the sizes of a call and the device. */
#include "resident_forms.h"

/* `times` for each `each` of p, or part of it. */
static const Formula *times(Module *m, const Poly *p, int each, int64_t times)
{
    return formula_with(m, F_MUL, form_blocks(m, p, each), times);
}

static const Formula *between(Module *m, const Formula *x, int64_t least, int64_t most)
{
    return formula_with(m, F_MAX, formula_with(m, F_MIN, x, most), least);
}

static const Formula *at_most(Module *m, const Poly *p, int64_t most)
{
    return formula_with(m, F_LE, formula_size(m, p), most);
}

static const Formula *batch(Module *m)
{
    return formula_size(m, poly_dim(m, ATOM_B));
}

static bool narrow_storage(const Plan *p)
{
    return p->dtype == DT_BF16 || p->dtype == DT_F16;
}

/* ---- a panel in each block ---- */

/* Blocks for the units of each space. */
static const Formula *grid_blocks(Module *m, const ResidentWalk *w)
{
    const Formula *clusters = form_blocks(m, w->units, w->own * w->split);
    for (int i = 1; i < w->nspaces; i++)
        clusters = formula(m, F_MAX, clusters, form_blocks(m, w->spaces[i], w->own * w->split));
    return w->split > 1 ? formula_with(m, F_MUL, clusters, w->split) : clusters;
}

/* As cell_panel::carve and emit_panel take it: the weights in the storage type that are not in registers (of
 * so many blocks along k some of the tiles, cell_panel's held), the warps' shares of the sums, those of a
 * cluster's blocks, and the sums. */
static int grid_tiles(const ResidentWalk *w)
{
    return w->outer * w->own * w->split / 8;
}

static int grid_slices(const ResidentWalk *w)
{
    return w->inner % w->split ? w->split : 1;
}

static const Formula *weight_bytes(const Plan *p, const ResidentWalk *w, int keep)
{
    Module *m = p->m;
    int tiles = grid_tiles(w), slices = grid_slices(w), pieces = w->inner * slices / w->split;
    int tile = 8 * 256 * (p->dtype == DT_F32 ? 4 : 2), halves = w->batch / PANEL_TURN;
    int ahead = slices > 1 && tiles > 2 ? 2 : tiles > 2 || halves > 1 ? 4 : 8;
    int most = keep / (halves * halves) / ahead;
    int held = pieces > 1 || p->dtype == DT_F32 ? 0 : tiles < most ? tiles : most;
    const Formula *weights = times(m, w->k_units, 8 * 32 * slices, pieces * tiles * tile);
    if (held > 0) {
        const Formula *steps = formula_with(m, F_MIN, times(m, w->k_units, 8 * 32 * slices, 1), ahead);
        weights = formula(m, F_SUB, weights, formula_with(m, F_MUL, steps, held * tile));
    }
    return weights;
}

static const Formula *grid_bytes(const Plan *p, const ResidentWalk *w)
{
    Module *m = p->m;
    int shares = 0, rows = 0;
    const Formula *weights = NULL;
    for (int i = 0; i < resident_products(w); i++) {
        const ResidentWalk *part = resident_part(w, i);
        int own = PANEL_TURN * part->outer * part->own * 4;
        int warps = 8 * grid_tiles(part) * 8 * part->batch * 4;
        const Formula *own_weights = weight_bytes(p, part, resident_keep(w));
        shares = warps > shares ? warps : shares;
        rows += own;
        if (w->nparts && part->weights < i)
            continue;
        weights = weights ? formula(m, F_ADD, weights, own_weights) : own_weights;
    }
    for (int i = 0; i < resident_products(w); i++) {
        const ResidentWalk *part = resident_part(w, i);
        if (part->split == 1)
            continue;
        shares += 2 * w->split * part->outer * part->own * 4 * part->batch + 2 * 16;
    }
    const Formula *sums = times(m, poly_dim(m, ATOM_B), 16, rows);
    return formula(m, F_ADD, formula_with(m, F_ADD, weights, shares), sums);
}

/* The device holds all blocks at once and the batch is small, but not too small for it. */
static const Formula *grid_fits(const Plan *p, const ResidentWalk *w)
{
    Module *m = p->m;
    const Formula *fits = formula(m, F_LE, grid_blocks(m, w), formula_resident(m, w->kernel));
    int most = narrow_storage(p) ? PANEL_BATCH_NARROW : PANEL_BATCH;
    fits = formula_and(m, fits, at_most(m, poly_dim(m, ATOM_B), most));
    if (w->batch > PANEL_TURN)
        fits = formula_and(m, fits, formula(m, F_LT, formula_const(m, PANEL_TURN), batch(m)));
    return fits;
}

/* ---- a head in a block ---- */

/* A block for each head of so many sequences that all multiprocessors have one, as far as its threads
 * suffice. */
static const Formula *head_grid(Module *m, const ResidentWalk *w)
{
    const Formula *processors = formula_leaf(m, F_DEVICE, DEVICE_MULTIPROCESSORS);
    const Formula *heads = formula_size(m, poly_mul(m, poly_dim(m, ATOM_B), w->heads));
    const Formula *threads = formula(m, F_DIV, formula_const(m, HEAD_THREADS), formula_size(m, w->units));
    const Formula *each = formula(m, F_MIN, formula(m, F_CEILDIV, heads, processors), threads);
    const Formula *blocks = formula(m, F_CEILDIV, batch(m), between(m, each, 1, HEAD_BATCH));
    return formula(m, F_MUL, blocks, formula_size(m, w->heads));
}

/* As cell_head::carve takes it, on tensor cores: the param in tiles of 16 rows and blocks of 32 along k, the
 * operand of 8 sequences, and their sums, as often as k is divided (parts). */
static const Formula *head_bytes_tiles(Module *m, const ResidentWalk *w)
{
    const Formula *rows = times(m, w->units, 16, w->outer), *depth = times(m, w->units, 32, w->inner);
    const Formula *param = formula_with(m, F_MUL, formula(m, F_MUL, rows, depth), 1024);
    const Formula *operand = times(m, w->units, 32, w->inner * 512);
    const Formula *parts = formula(m, F_MIN, formula(m, F_DIV, formula_const(m, 8), rows), depth);
    const Formula *pitch = formula_with(m, F_ADD, times(m, w->units, 16, w->outer * 16), 4);
    const Formula *all = formula(m, F_MUL, formula_with(m, F_MAX, parts, 1), pitch);
    const Formula *sums = formula_with(m, F_MUL, all, 32);
    return formula(m, F_ADD, formula(m, F_ADD, param, operand), sums);
}

/* The same in the type of the arithmetic; each of the three begins at a multiple of 16 bytes. */
static const Formula *head_bytes_real(const Plan *p, const ResidentWalk *w)
{
    Module *m = p->m;
    const Formula *depth = times(m, w->units, 1, w->inner), *rows = times(m, w->units, 1, w->outer);
    const Formula *read = formula(m, F_MUL, depth, formula_with(m, F_ADD, rows, 8));
    const Formula *parts = between(m, formula(m, F_DIV, formula_const(m, HEAD_THREADS), rows), 1, 8);
    const Formula *sums = formula(m, F_MUL, parts, formula_with(m, F_MUL, rows, 8));
    const Formula *numbers =
        formula_with(m, F_MUL, formula(m, F_ADD, read, sums), p->compute == DT_F64 ? 8 : 4);
    return formula_with(m, F_ADD, numbers, 48);
}

static const Formula *head_bytes(const Plan *p, const ResidentWalk *w)
{
    return narrow_storage(p) ? head_bytes_tiles(p->m, w) : head_bytes_real(p, w);
}

/* A block has a thread for each unit, and room for the head. */
static const Formula *head_fits(Module *m, const ResidentWalk *w)
{
    const Formula *room = formula(m, F_LE, formula_const(m, 1), formula_resident(m, w->kernel));
    return formula_and(m, at_most(m, w->units, HEAD_THREADS), room);
}

/* ---- a head in a cluster ---- */

/* A cluster for each head of so many sequences that all clusters which the device holds have work. */
static const Formula *cluster_grid(Module *m, const ResidentWalk *w)
{
    const Formula *heads = formula_size(m, poly_mul(m, poly_dim(m, ATOM_B), w->heads));
    const Formula *held = formula_with(m, F_DIV, formula_resident(m, w->kernel), CLUSTER_BLOCKS);
    const Formula *each = formula(m, F_CEILDIV, heads, formula_with(m, F_MAX, held, 1));
    const Formula *clusters = formula(m, F_CEILDIV, batch(m), between(m, each, 1, HEAD_BATCH));
    return formula_with(m, F_MUL, formula(m, F_MUL, clusters, formula_size(m, w->heads)), CLUSTER_BLOCKS);
}

/* As cell_cluster_head::carve takes it: the operand of 8 sequences twice, the sums of each part, and two
 * inboxes. */
static const Formula *cluster_bytes(Module *m, const ResidentWalk *w)
{
    return formula_with(m, F_ADD, times(m, w->units, 32, w->inner * 2 * HEAD_BATCH * 64),
                        CLUSTER_PARTS * HEAD_BATCH * (w->outer * w->own + 4) * 4 + 2 * 16);
}

/* A cluster has room for the head, the device for a cluster, and the batch is small. */
static const Formula *cluster_fits(Module *m, const ResidentWalk *w)
{
    const Formula *room = formula(m, F_LE, formula_const(m, CLUSTER_BLOCKS), formula_resident(m, w->kernel));
    const Formula *fits = formula_and(m, at_most(m, w->units, CLUSTER_BLOCKS * w->own), room);
    return formula_and(m, fits, at_most(m, poly_mul(m, poly_dim(m, ATOM_B), w->heads), PANEL_BATCH));
}

/* Of several heads each takes a cluster, which a block would do. */
static bool cluster_may_pay(const ResidentWalk *w)
{
    return w->heads->is_const && w->heads->value == 1;
}

/* A cluster is faster than a block that has room for the head too: a block's step grows with the units
 * squared. Only while the device holds all clusters at once, of up to 8 sequences each. */
static const Formula *cluster_pays(Module *m, const ResidentWalk *w)
{
    const Formula *held = formula_with(m, F_DIV, formula_resident(m, w->kernel), CLUSTER_BLOCKS / HEAD_BATCH);
    const Formula *large = formula(m, F_LE, formula_const(m, CLUSTER_UNITS), formula_size(m, w->units));
    return formula_and(m, formula_and(m, cluster_fits(m, w), large), formula(m, F_LE, batch(m), held));
}

/* ---- columns of a sequence ---- */

const Formula *columns_grid(Module *m, const Poly *units)
{
    return formula(m, F_MUL, form_blocks(m, units, COLUMNS_UNITS), batch(m));
}

/* As cell_columns::carve takes it: the own piece, those of other blocks, the weights that are not in
 * registers, barriers, and what sums of columns over the block's warps take. */
static const Formula *columns_bytes(Module *m, const ResidentWalk *w)
{
    enum { PIECE = COLUMNS_UNITS * COLUMNS_MOST * 2, WEIGHTS = COLUMNS_UNITS * COLUMNS_UNITS };
    return formula_with(m, F_ADD, times(m, w->units, COLUMNS_UNITS, WEIGHTS),
                        (1 + COLUMNS_SLOTS) * PIECE + (COLUMNS_SLOTS + 1) * 16 +
                            (w->sums ? COLUMNS_SUMS * 4 : 0));
}

/* The device holds all blocks at once, blocks hold the weights, and units are whole vectors of 16 bytes. */
static const Formula *columns_fit(Module *m, const ResidentWalk *w)
{
    const Formula *fit = formula(m, F_LE, columns_grid(m, w->units), formula_resident(m, w->kernel));
    fit = formula_and(m, fit, at_most(m, w->units, COLUMNS_UNITS * COLUMNS_PIECES));
    fit = formula_and(m, fit, formula_multiple(m, w->units, 8));
    return formula_and(m, fit, at_most(m, w->columns, COLUMNS_MOST));
}

/* ---- in order ---- */

static Form form_of(const ResidentWalk *w, const char *words, const Formula *when, const Formula *grid,
                    const Formula *bytes, int threads)
{
    return (Form){ .kernel = w->kernel,
                   .refs = &w->refs,
                   .words = words,
                   .when = when,
                   .grid = grid,
                   .bytes = bytes,
                   .threads = threads,
                   .posts_buffer = w->posts };
}

static void add_head(const Plan *p, const ResidentWalk *w, FormList *out)
{
    Form f = form_of(w, "a block for each head", head_fits(p->m, w), head_grid(p->m, w), head_bytes(p, w),
                     HEAD_THREADS);
    f.own_states = true;
    vec_push(p->m->arena, out, f);
}

static void add_cluster(const Plan *p, const ResidentWalk *w, const Formula *when, FormList *out)
{
    Form f = form_of(w, "a cluster for each head", when, cluster_grid(p->m, w), cluster_bytes(p->m, w),
                     CLUSTER_THREADS);
    f.cluster = CLUSTER_BLOCKS;
    f.own_states = true;
    vec_push(p->m->arena, out, f);
}

static void add_panel(const Plan *p, const ResidentWalk *w, const char *words, FormList *out)
{
    Form f = form_of(w, words, grid_fits(p, w), grid_blocks(p->m, w), grid_bytes(p, w), PANEL_THREADS);
    f.cluster = w->split;
    f.cooperative = 1;
    f.posts = poly_const(p->m, resident_posts(w));
    vec_push(p->m->arena, out, f);
}

static void add_columns(const Plan *p, const ResidentWalk *w, FormList *out)
{
    Form f = form_of(w, "blocks of some units of one sequence each", columns_fit(p->m, w),
                     columns_grid(p->m, w->units), columns_bytes(p->m, w), COLUMNS_THREADS);
    f.cooperative = 90;
    f.posts = columns_posts(p);
    vec_push(p->m->arena, out, f);
}

void resident_forms(const Plan *p, const Program *pr, FormList *out)
{
    const ResidentWalks *w = resident_walks(pr);
    if (w->columns) {
        add_columns(p, w->columns, out);
        return;
    }
    if (w->head && w->cluster && cluster_may_pay(w->head))
        add_cluster(p, w->cluster, cluster_pays(p->m, w->cluster), out);
    if (w->head)
        add_head(p, w->head, out);
    if (w->cluster)
        add_cluster(p, w->cluster, cluster_fits(p->m, w->cluster), out);
    if (w->wide)
        add_panel(p, w->wide, "all blocks together, more sequences at once", out);
    if (w->pairs)
        add_panel(p, w->pairs, "all blocks together, in pairs", out);
    if (w->panel)
        add_panel(p, w->panel, "all blocks together", out);
}
