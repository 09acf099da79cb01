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

/* ---- all blocks of a grid ---- */

/* Blocks for the units of each space. */
static const Formula *grid_blocks(const Plan *p, const ResidentWalk *w)
{
    Module *m = p->m;
    const Formula *clusters = form_blocks(m, w->units, w->own * w->cluster);
    for (int i = 1; i < w->nspaces; i++)
        clusters = formula(m, F_MAX, clusters, form_blocks(m, w->spaces[i], w->own * w->cluster));
    return w->cluster > 1 ? formula_with(m, F_MUL, clusters, w->cluster) : clusters;
}

static int grid_tiles(const ResidentWalk *w, const ResidentProduct *x)
{
    return x->outer * w->own * x->split / 8;
}

static int grid_slices(const ResidentProduct *x)
{
    return x->inner % x->split ? x->split : 1;
}

/* The weights in the storage type that are not in registers: of so many blocks along k some of the tiles,
 * cell_panel's held. */
static const Formula *weight_bytes(const Plan *p, const ResidentWalk *w, const ResidentProduct *x)
{
    Module *m = p->m;
    int tiles = grid_tiles(w, x), slices = grid_slices(x), pieces = x->inner * slices / x->split;
    int tile = 8 * 256 * (p->dtype == DT_F32 ? 4 : 2), halves = w->batch / PANEL_TURN;
    int ahead = slices > 1 && tiles > 2 ? 2 : tiles > 2 || halves > 1 ? 4 : 8;
    int most = resident_keep(w) / (halves * halves) / ahead;
    int held = pieces > 1 || p->dtype == DT_F32 ? 0 : tiles < most ? tiles : most;
    const Formula *weights = times(m, x->k_units, 8 * 32 * slices, pieces * tiles * tile);
    if (held > 0) {
        const Formula *steps = formula_with(m, F_MIN, times(m, x->k_units, 8 * 32 * slices, 1), ahead);
        weights = formula(m, F_SUB, weights, formula_with(m, F_MUL, steps, held * tile));
    }
    return weights;
}

/* As cell_panel::carve and emit_panel take it: the weights, the warps' shares of the sums, those of a
 * cluster's blocks, and the sums. */
static const Formula *grid_bytes(const Plan *p, const ResidentWalk *w)
{
    Module *m = p->m;
    int shares = 0, rows = 0;
    const Formula *weights = NULL;
    for (int i = 0; i < w->nproducts; i++) {
        const ResidentProduct *x = &w->products[i];
        int warps = 8 * grid_tiles(w, x) * 8 * w->batch * 4;
        shares = warps > shares ? warps : shares;
        rows += PANEL_TURN * x->outer * w->own * 4;
        if (x->first_same < i)
            continue;
        const Formula *own = weight_bytes(p, w, x);
        weights = weights ? formula(m, F_ADD, weights, own) : own;
    }
    for (int i = 0; i < w->nproducts; i++)
        if (w->products[i].split > 1)
            shares += 2 * w->cluster * w->products[i].outer * w->own * 4 * w->batch + 2 * 16;
    const Formula *sums = times(m, poly_dim(m, ATOM_B), 16, rows);
    return formula(m, F_ADD, formula_with(m, F_ADD, weights, shares), sums);
}

/* The device holds all blocks at once and the batch is small, but not too small for it. */
static const Formula *grid_fits(const Plan *p, const ResidentWalk *w)
{
    Module *m = p->m;
    const Formula *fits = formula(m, F_LE, grid_blocks(p, w), formula_resident(m, w->kernel));
    int most = narrow_storage(p) ? PANEL_BATCH_NARROW : PANEL_BATCH;
    fits = formula_and(m, fits, at_most(m, poly_dim(m, ATOM_B), most));
    if (w->batch > PANEL_TURN)
        fits = formula_and(m, fits, formula(m, F_LT, formula_const(m, PANEL_TURN), batch(m)));
    return fits;
}

/* ---- a head in a block ---- */

/* A block for each head of so many sequences that all multiprocessors have one, as far as its threads
 * suffice. */
static const Formula *head_grid(const Plan *p, const ResidentWalk *w)
{
    Module *m = p->m;
    const Formula *processors = formula_leaf(m, F_DEVICE, DEVICE_MULTIPROCESSORS);
    const Formula *heads = formula_size(m, poly_mul(m, poly_dim(m, ATOM_B), w->heads));
    const Formula *threads = formula(m, F_DIV, formula_const(m, w->threads), formula_size(m, w->units));
    const Formula *each = formula(m, F_MIN, formula(m, F_CEILDIV, heads, processors), threads);
    const Formula *blocks = formula(m, F_CEILDIV, batch(m), between(m, each, 1, w->batch));
    return formula(m, F_MUL, blocks, formula_size(m, w->heads));
}

/* As cell_head::carve takes it, on tensor cores: the param in tiles of 16 rows and blocks of 32 along k, the
 * operand of 8 sequences, and their sums, as often as k is divided (parts). */
static const Formula *head_bytes_tiles(Module *m, const ResidentWalk *w)
{
    const ResidentProduct *x = w->products;
    const Formula *rows = times(m, w->units, 16, x->outer), *depth = times(m, w->units, 32, x->inner);
    const Formula *param = formula_with(m, F_MUL, formula(m, F_MUL, rows, depth), 1024);
    const Formula *operand = times(m, w->units, 32, x->inner * 512);
    const Formula *parts = formula(m, F_MIN, formula(m, F_DIV, formula_const(m, 8), rows), depth);
    const Formula *pitch = formula_with(m, F_ADD, times(m, w->units, 16, x->outer * 16), 4);
    const Formula *all = formula(m, F_MUL, formula_with(m, F_MAX, parts, 1), pitch);
    const Formula *sums = formula_with(m, F_MUL, all, 32);
    return formula(m, F_ADD, formula(m, F_ADD, param, operand), sums);
}

/* The same in the type of the arithmetic; each of the three begins at a multiple of 16 bytes. */
static const Formula *head_bytes_real(const Plan *p, const ResidentWalk *w)
{
    Module *m = p->m;
    const ResidentProduct *x = w->products;
    const Formula *depth = times(m, w->units, 1, x->inner), *rows = times(m, w->units, 1, x->outer);
    const Formula *read = formula(m, F_MUL, depth, formula_with(m, F_ADD, rows, 8));
    const Formula *parts = between(m, formula(m, F_DIV, formula_const(m, w->threads), rows), 1, 8);
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
static const Formula *head_fits(const Plan *p, const ResidentWalk *w)
{
    Module *m = p->m;
    const Formula *room = formula(m, F_LE, formula_const(m, 1), formula_resident(m, w->kernel));
    return formula_and(m, at_most(m, w->units, w->own), room);
}

/* ---- a head in a cluster ---- */

/* A cluster for each head of so many sequences that all clusters which the device holds have work. */
static const Formula *cluster_grid(const Plan *p, const ResidentWalk *w)
{
    Module *m = p->m;
    const Formula *heads = formula_size(m, poly_mul(m, poly_dim(m, ATOM_B), w->heads));
    const Formula *held = formula_with(m, F_DIV, formula_resident(m, w->kernel), w->cluster);
    const Formula *each = formula(m, F_CEILDIV, heads, formula_with(m, F_MAX, held, 1));
    const Formula *clusters = formula(m, F_CEILDIV, batch(m), between(m, each, 1, w->batch));
    return formula_with(m, F_MUL, formula(m, F_MUL, clusters, formula_size(m, w->heads)), w->cluster);
}

/* As cell_cluster_head::carve takes it: the operand of 8 sequences twice, the sums of each part, and two
 * inboxes. */
static const Formula *cluster_bytes(const Plan *p, const ResidentWalk *w)
{
    Module *m = p->m;
    const ResidentProduct *x = w->products;
    return formula_with(m, F_ADD, times(m, w->units, 32, x->inner * 2 * w->batch * 64),
                        CLUSTER_PARTS * w->batch * (x->outer * w->own + 4) * 4 + 2 * 16);
}

/* A cluster has room for the head, the device for a cluster, and the batch is small. */
static const Formula *cluster_fits(const Plan *p, const ResidentWalk *w)
{
    Module *m = p->m;
    const Formula *room = formula(m, F_LE, formula_const(m, w->cluster), formula_resident(m, w->kernel));
    const Formula *fits = formula_and(m, at_most(m, w->units, w->cluster * w->own), room);
    return formula_and(m, fits, at_most(m, poly_mul(m, poly_dim(m, ATOM_B), w->heads), PANEL_BATCH));
}

/* A cluster is faster than a block that has room for the head too: a block's step grows with the units
 * squared. Only while the device holds all clusters at once, of up to 8 sequences each; NULL: never, since of
 * several heads each takes a cluster, which a block would do. */
static const Formula *cluster_pays(const Plan *p, const ResidentWalk *w)
{
    Module *m = p->m;
    if (!poly_is_one(w->heads))
        return NULL;
    const Formula *held = formula_with(m, F_DIV, formula_resident(m, w->kernel), w->cluster / w->batch);
    const Formula *large = formula(m, F_LE, formula_const(m, CLUSTER_UNITS), formula_size(m, w->units));
    return formula_and(m, formula_and(m, cluster_fits(p, w), large), formula(m, F_LE, batch(m), held));
}

/* ---- columns of a sequence ---- */

const Formula *columns_grid(const Plan *p, const ResidentWalk *w)
{
    return formula(p->m, F_MUL, form_blocks(p->m, w->units, w->own), batch(p->m));
}

/* As cell_columns::carve takes it: the own piece, those of other blocks, the weights that are not in
 * registers, barriers, and what sums of columns over the block's warps take. */
static const Formula *columns_bytes(const Plan *p, const ResidentWalk *w)
{
    Module *m = p->m;
    enum { PIECE = COLUMNS_UNITS * COLUMNS_MOST * 2, WEIGHTS = COLUMNS_UNITS * COLUMNS_UNITS };
    return formula_with(m, F_ADD, times(m, w->units, COLUMNS_UNITS, WEIGHTS),
                        (1 + COLUMNS_SLOTS) * PIECE + (COLUMNS_SLOTS + 1) * 16 +
                            (w->sums ? COLUMNS_SUMS * 4 : 0));
}

/* The device holds all blocks at once, blocks hold the weights, and units are whole vectors of 16 bytes. */
static const Formula *columns_fit(const Plan *p, const ResidentWalk *w)
{
    Module *m = p->m;
    const Formula *fit = formula(m, F_LE, columns_grid(p, w), formula_resident(m, w->kernel));
    fit = formula_and(m, fit, at_most(m, w->units, COLUMNS_UNITS * COLUMNS_PIECES));
    fit = formula_and(m, fit, formula_multiple(m, w->units, COLUMNS_VECTOR));
    return formula_and(m, fit, at_most(m, w->columns, COLUMNS_MOST));
}

/* ---- in order ---- */

static const char *grid_words(const ResidentWalk *w)
{
    return w->batch > PANEL_TURN          ? "all blocks together, more sequences at once"
           : grid_slices(w->products) > 1 ? "all blocks together, in pairs"
                                          : "all blocks together";
}

static const char *block_words(const ResidentWalk *w)
{
    (void)w;
    return "a block for each head";
}

static const char *cluster_words(const ResidentWalk *w)
{
    (void)w;
    return "a cluster for each head";
}

static const char *columns_words(const ResidentWalk *w)
{
    (void)w;
    return "blocks of some units of one sequence each";
}

/* What a form takes by who shares a sequence: when it fits, and when, or NULL, it goes before the walks
 * that are preferred to it where they fit. */
typedef const Formula *OfWalk(const Plan *p, const ResidentWalk *w);
static const struct {
    const char *(*words)(const ResidentWalk *w);
    OfWalk *fits, *grid, *bytes, *pays;
} of_sharing[SHARINGS] = {
    [SHARE_GRID] = { grid_words, grid_fits, grid_blocks, grid_bytes, NULL },
    [SHARE_BLOCK] = { block_words, head_fits, head_grid, head_bytes, NULL },
    [SHARE_CLUSTER] = { cluster_words, cluster_fits, cluster_grid, cluster_bytes, cluster_pays },
    [SHARE_COLUMNS] = { columns_words, columns_fit, columns_grid, columns_bytes, NULL },
};

/* What exchanges through memory waits for blocks, which the device has to hold at once; what has states in
 * registers begins and ends the walk by itself. */
static void add(const Plan *p, const ResidentWalk *w, const Formula *when, FormList *out)
{
    bool waits = w->exchange == EXCHANGE_MEMORY;
    Form f = { .kernel = w->kernel,
               .refs = &w->refs,
               .words = of_sharing[w->sharing].words(w),
               .when = when,
               .grid = of_sharing[w->sharing].grid(p, w),
               .bytes = of_sharing[w->sharing].bytes(p, w),
               .threads = w->threads,
               .cluster = w->cluster,
               .cooperative = !waits                  ? 0
                              : resident_has_tiles(w) ? 90
                                                      : 1,
               .own_states = w->elements == ELEMENTS_OF_THREAD,
               .posts = w->posts,
               .posts_buffer = w->posts_buffer };
    vec_push(p->m->arena, out, f);
}

void resident_forms(const Plan *p, const Program *pr, FormList *out)
{
    const ResidentWalks *walks = resident_walks(pr);
    for (int i = 1; i < walks->len; i++) {
        const ResidentWalk *w = walks->data[i];
        OfWalk *pays = of_sharing[w->sharing].pays;
        const Formula *when = pays ? pays(p, w) : NULL;
        if (when)
            add(p, w, when, out);
    }
    for (int i = 0; i < walks->len; i++)
        add(p, walks->data[i], of_sharing[walks->data[i]->sharing].fits(p, walks->data[i]), out);
}
