/* emit_resident.c: the operations of a launch plan that walk all steps in one kernel: a panel, a head in a block or a cluster, columns of a
 * sequence in blocks. Out: also the conditions on sizes and device under which each of them runs. */
#include "emit_plan.h"

/* As cell_panel::carve and emit_panel take it: the weights in the storage type that are not in registers (of so many blocks
 * along k some of the tiles, cell_panel's held), the warps' shares of the sums, those of a cluster's blocks, and the sums. */
static const char *panel_smem(Print *e, const Panel *w)
{
    int own = PANEL_TURN * w->outer * w->own * 4, shared = own * w->batch / PANEL_TURN, tiles = w->outer * w->own * w->split / 8;
    int slices = w->inner % w->split ? w->split : 1, pieces = w->inner * slices / w->split;
    int shares = 8 * tiles * 8 * w->batch * 4 + (w->split > 1 ? 2 * w->split * shared + 2 * 16 : 0);
    int tile = 8 * 256 * (e->p->dtype == DT_F32 ? 4 : 2), halves = w->batch / PANEL_TURN;
    int ahead = slices > 1 && tiles > 2 ? 2 : tiles > 2 || halves > 1 ? 4 : 8, most = 16 / (halves * halves) / ahead;
    int held = pieces > 1 || e->p->dtype == DT_F32 ? 0 : tiles < most ? tiles : most;
    Buf x = emit_program_new(e);
    postfix_times(e, w->units, 8 * 32 * slices, pieces * tiles * tile, &x);
    if (held > 0) {
        postfix_times(e, w->units, 8 * 32 * slices, 1, &x);
        buf_f(&x, "CELL_X_PUSH, %d, CELL_X_MIN, CELL_X_PUSH, %d, CELL_X_MUL, CELL_X_SUB, ", ahead, held * tile);
    }
    buf_f(&x, "CELL_X_PUSH, %d, CELL_X_ADD, CELL_X_SIZE, 0, CELL_X_PUSH, 16, CELL_X_CEILDIV, CELL_X_PUSH, %d, "
              "CELL_X_MUL, CELL_X_ADD, ", shares, own);
    return emit_expr_name(e, &x);
}

static void postfix_panel_blocks(Print *e, const Panel *w, Buf *out)
{
    postfix_poly(e, w->units, out);
    buf_f(out, "CELL_X_PUSH, %d, CELL_X_CEILDIV, ", w->own * w->split);
    if (w->split > 1)
        buf_f(out, "CELL_X_PUSH, %d, CELL_X_MUL, ", w->split);
}

/* As cell_head::carve takes it, on tensor cores: the param in tiles of 16 rows and blocks of 32 along k, the operand of
 * 8 sequences, and their sums, as often as k is divided (parts). */
static const char *head_smem_tiles(Print *e, const Panel *w)
{
    Buf x = emit_program_new(e);
    postfix_times(e, w->units, 16, w->outer, &x);
    postfix_times(e, w->units, 32, w->inner, &x);
    buf_f(&x, "CELL_X_MUL, CELL_X_PUSH, 1024, CELL_X_MUL, ");
    postfix_times(e, w->units, 32, w->inner * 512, &x);
    buf_f(&x, "CELL_X_ADD, CELL_X_PUSH, 8, ");
    postfix_times(e, w->units, 16, w->outer, &x);
    buf_f(&x, "CELL_X_DIV, ");
    postfix_times(e, w->units, 32, w->inner, &x);
    buf_f(&x, "CELL_X_MIN, CELL_X_PUSH, 1, CELL_X_MAX, ");
    postfix_times(e, w->units, 16, w->outer * 16, &x);
    buf_f(&x, "CELL_X_PUSH, 4, CELL_X_ADD, CELL_X_MUL, CELL_X_PUSH, 32, CELL_X_MUL, CELL_X_ADD, ");
    return emit_expr_name(e, &x);
}

/* The same in the type of the arithmetic; each of the three begins at a multiple of 16 bytes. */
static const char *head_smem_real(Print *e, const Panel *w)
{
    int real = e->p->compute == DT_F64 ? 8 : 4;
    Buf x = emit_program_new(e);
    postfix_times(e, w->units, 1, w->inner, &x);
    postfix_times(e, w->units, 1, w->outer, &x);
    buf_f(&x, "CELL_X_PUSH, 8, CELL_X_ADD, CELL_X_MUL, CELL_X_PUSH, %d, ", HEAD_THREADS);
    postfix_times(e, w->units, 1, w->outer, &x);
    buf_f(&x, "CELL_X_DIV, CELL_X_PUSH, 8, CELL_X_MIN, CELL_X_PUSH, 1, CELL_X_MAX, ");
    postfix_times(e, w->units, 1, w->outer, &x);
    buf_f(&x, "CELL_X_PUSH, 8, CELL_X_MUL, CELL_X_MUL, CELL_X_ADD, CELL_X_PUSH, %d, CELL_X_MUL, CELL_X_PUSH, 48, "
              "CELL_X_ADD, ", real);
    return emit_expr_name(e, &x);
}

static bool narrow_storage(const Print *e)
{
    return e->p->dtype == DT_BF16 || e->p->dtype == DT_F16;
}

/* A block for each head of so many sequences that all multiprocessors have one, as far as its threads suffice. */
static const char *head_blocks(Print *e, const Panel *w)
{
    Module *m = e->p->m;
    Buf x = emit_program_new(e);
    postfix_poly(e, poly_dim(m, ATOM_B), &x);
    postfix_poly(e, poly_mul(m, poly_dim(m, ATOM_B), w->heads), &x);
    buf_f(&x, "CELL_X_ATTR, CELL_ATTR_SM_COUNT, CELL_X_CEILDIV, CELL_X_PUSH, %d, ", HEAD_THREADS);
    postfix_poly(e, w->units, &x);
    buf_f(&x, "CELL_X_DIV, CELL_X_MIN, CELL_X_PUSH, %d, CELL_X_MIN, CELL_X_PUSH, 1, CELL_X_MAX, CELL_X_CEILDIV, ",
          HEAD_BATCH);
    postfix_poly(e, w->heads, &x);
    buf_f(&x, "CELL_X_MUL, ");
    return emit_expr_name(e, &x);
}

/* As cell_cluster_head::carve takes it: the operand of 8 sequences twice, the sums of each part, and two inboxes. */
static const char *cluster_smem(Print *e, const Panel *w)
{
    Buf x = emit_program_new(e);
    postfix_times(e, w->units, 32, w->inner * 2 * HEAD_BATCH * 64, &x);
    buf_f(&x, "CELL_X_PUSH, %d, CELL_X_ADD, ", CLUSTER_PARTS * HEAD_BATCH * (w->outer * w->own + 4) * 4 + 2 * 16);
    return emit_expr_name(e, &x);
}

/* A cluster for each head of so many sequences that all clusters which the device holds have work. */
static const char *cluster_blocks(Print *e, const Panel *w, int kernel)
{
    Module *m = e->p->m;
    Buf x = emit_program_new(e);
    postfix_poly(e, poly_dim(m, ATOM_B), &x);
    postfix_poly(e, poly_mul(m, poly_dim(m, ATOM_B), w->heads), &x);
    buf_f(&x, "CELL_X_RESIDENT, %d, CELL_X_PUSH, %d, CELL_X_DIV, CELL_X_PUSH, 1, CELL_X_MAX, CELL_X_CEILDIV, "
              "CELL_X_PUSH, %d, CELL_X_MIN, CELL_X_PUSH, 1, CELL_X_MAX, CELL_X_CEILDIV, ", kernel, CLUSTER_BLOCKS,
          HEAD_BATCH);
    postfix_poly(e, w->heads, &x);
    buf_f(&x, "CELL_X_MUL, CELL_X_PUSH, %d, CELL_X_MUL, ", CLUSTER_BLOCKS);
    return emit_expr_name(e, &x);
}

/* 1 where the device holds all blocks at once and the batch is small, but not too small for it; else 0. */
static void postfix_panel_fits(Print *e, const Panel *w, int kernel, Buf *x)
{
    postfix_panel_blocks(e, w, x);
    buf_f(x, "CELL_X_RESIDENT, %d, CELL_X_LE, CELL_X_SIZE, 0, CELL_X_PUSH, %d, CELL_X_LE, CELL_X_MUL, ", kernel,
          narrow_storage(e) ? PANEL_BATCH_NARROW : PANEL_BATCH);
    if (w->batch > PANEL_TURN)
        buf_f(x, "CELL_X_PUSH, %d, CELL_X_SIZE, 0, CELL_X_LT, CELL_X_MUL, ", PANEL_TURN);
}

/* 1 where a block has a thread for each unit, and room for the head. */
static void postfix_head_fits(Print *e, const Panel *w, int kernel, Buf *x)
{
    postfix_poly(e, w->units, x);
    buf_f(x, "CELL_X_PUSH, %d, CELL_X_LE, CELL_X_PUSH, 1, CELL_X_RESIDENT, %d, CELL_X_LE, CELL_X_MUL, ", HEAD_THREADS,
          kernel);
}

/* 1 where a cluster has room for the head, the device for a cluster, and the batch is small. */
static void postfix_cluster_fits(Print *e, const Panel *w, int kernel, Buf *x)
{
    postfix_poly(e, w->units, x);
    buf_f(x, "CELL_X_PUSH, %d, CELL_X_LE, CELL_X_PUSH, %d, CELL_X_RESIDENT, %d, CELL_X_LE, CELL_X_MUL, ",
          CLUSTER_BLOCKS * w->own, CLUSTER_BLOCKS, kernel);
    postfix_poly(e, poly_mul(e->p->m, poly_dim(e->p->m, ATOM_B), w->heads), x);
    buf_f(x, "CELL_X_PUSH, %d, CELL_X_LE, CELL_X_MUL, ", PANEL_BATCH);
}

void emit_panel_op(Print *e, Panel *w, const char *grid, const char *when, int kernel)
{
    int list = emit_refs(e, &w->refs);
    buf_f(&e->ops,
          "    { .name = \"%s\", .kind = CELL_OP_KERNEL, .when = %s,\n"
          "      .u.kernel = { .kernel = %d, .n_refs = %d, .grid = { %s, NULL, NULL }, .refs = %srefs_%d } },\n",
          w->kernel, when, kernel, w->refs.len, grid, e->tag, list);
    e->n_ops++;
}

/* 1 where a cluster is faster than a block that has room for the head too: a block's step grows with the units squared. Only
 * while the device holds all clusters at once, of up to 8 sequences each. */
static void postfix_cluster_pays(Print *e, const Panel *w, int kernel, Buf *x)
{
    postfix_cluster_fits(e, w, kernel, x);
    buf_f(x, "CELL_X_PUSH, %d, ", CLUSTER_UNITS);
    postfix_poly(e, w->units, x);
    buf_f(x, "CELL_X_LE, CELL_X_MUL, ");
    postfix_poly(e, poly_dim(e->p->m, ATOM_B), x);
    buf_f(x, "CELL_X_RESIDENT, %d, CELL_X_PUSH, %d, CELL_X_DIV, CELL_X_LE, CELL_X_MUL, ", kernel,
          CLUSTER_BLOCKS / HEAD_BATCH);
}

/* Of several heads each takes a cluster, which a block would do. */
static bool cluster_may_pay(const Panel *w)
{
    return w->heads->is_const && w->heads->value == 1;
}

/* Where the kernels of heads and of clusters do not run; -1: there is no such kernel. */
static void postfix_neither(Print *e, int head, int cluster, Buf *x)
{
    if (head >= 0) {
        postfix_head_fits(e, e->pr->head, head, x);
        postfix_not(x);
        buf_f(x, "CELL_X_MUL, ");
    }
    if (cluster >= 0) {
        postfix_cluster_fits(e, e->pr->cluster, cluster, x);
        postfix_not(x);
        buf_f(x, "CELL_X_MUL, ");
    }
}

/* The kernel's number in the table. */
static int head_number(Print *e, Panel *w)
{
    int kernel = emit_kernel_number(e, w->kernel);
    buf_f(&e->table, ", .threads = %d, .smem = %s },\n", HEAD_THREADS,
          narrow_storage(e) ? head_smem_tiles(e, w) : head_smem_real(e, w));
    return kernel;
}

static int cluster_number(Print *e, Panel *w)
{
    int kernel = emit_kernel_number(e, w->kernel);
    buf_f(&e->table, ", .threads = %d, .smem = %s, .cluster = %d },\n", CLUSTER_THREADS, cluster_smem(e, w),
          CLUSTER_BLOCKS);
    return kernel;
}

/* cluster: the kernel of clusters that have a head, or -1; where that is faster, this does not run. */
static void print_head(Print *e, Panel *w, int kernel, int cluster)
{
    Buf when = emit_program_new(e);
    postfix_head_fits(e, w, kernel, &when);
    if (cluster >= 0 && cluster_may_pay(w)) {
        postfix_cluster_pays(e, e->pr->cluster, cluster, &when);
        postfix_not(&when);
        buf_f(&when, "CELL_X_MUL, ");
    }
    emit_panel_op(e, w, head_blocks(e, w), emit_expr_name(e, &when), kernel);
}

/* head: the kernel of blocks that have a head, or -1; where that runs, this does not. */
static void print_cluster(Print *e, Panel *w, int kernel, int head)
{
    Buf when = emit_program_new(e);
    postfix_cluster_fits(e, w, kernel, &when);
    if (head >= 0 && cluster_may_pay(w)) {
        postfix_head_fits(e, e->pr->head, head, &when);
        postfix_not(&when);
        postfix_cluster_pays(e, w, kernel, &when);
        buf_f(&when, "CELL_X_MAX, CELL_X_MUL, ");
    } else {
        postfix_neither(e, head, -1, &when);
    }
    emit_panel_op(e, w, cluster_blocks(e, w, kernel), emit_expr_name(e, &when), kernel);
}

/* A kernel of blocks that walk all steps together, and its number. */
typedef struct Grid { Panel *panel; int kernel; } Grid;

/* head, cluster: the kernels that come before this one, or -1; and `before` others. */
static int print_grid_panel(Print *e, Panel *w, int head, int cluster, const Grid *before, int n)
{
    Buf blocks = emit_program_new(e), fits = emit_program_new(e);
    postfix_panel_blocks(e, w, &blocks);
    int kernel = emit_kernel_number(e, w->kernel);
    buf_f(&e->table, ", .threads = %d, .smem = %s, .cluster = %d, .cooperative = 1 },\n", PANEL_THREADS,
          panel_smem(e, w), w->split);
    postfix_panel_fits(e, w, kernel, &fits);
    postfix_neither(e, head, cluster, &fits);
    for (int i = 0; i < n; i++) {
        postfix_panel_fits(e, before[i].panel, before[i].kernel, &fits);
        postfix_not(&fits);
        buf_f(&fits, "CELL_X_MUL, ");
    }
    const char *when = emit_expr_name(e, &fits);
    buf_f(&e->ops,
          "    { .name = \"posts\", .kind = CELL_OP_FILL, .when = %s,\n"
          "      .u.memory = { .to = { %d, NULL }, .bytes = %s } },\n",
          when, emit_buffer_number(e, w->posts), emit_poly_expr(e, poly_const(e->p->m, panel_posts(w) * 4)));
    e->n_ops++;
    emit_panel_op(e, w, emit_expr_name(e, &blocks), when, kernel);
    return kernel;
}

/* As cell_columns::carve takes it: the own piece, those of other blocks, the weights that are not in registers, barriers, and
 * what sums of columns over the block's warps take. */
static const char *columns_smem(Print *e, const Panel *w)
{
    enum { PIECE = COLUMNS_UNITS * COLUMNS_MOST * 2, WEIGHTS = COLUMNS_UNITS * COLUMNS_UNITS };
    Buf x = emit_program_new(e);
    postfix_times(e, w->units, COLUMNS_UNITS, WEIGHTS, &x);
    buf_f(&x, "CELL_X_PUSH, %d, CELL_X_ADD, ",
          (1 + COLUMNS_SLOTS) * PIECE + (COLUMNS_SLOTS + 1) * 16 + (w->sums ? COLUMNS_SUMS * 4 : 0));
    return emit_expr_name(e, &x);
}

/* 1 where the device holds all blocks at once, blocks hold the weights, and units are whole vectors of 16 bytes; else 0. */
static void postfix_columns_fit(Print *e, const Panel *w, int kernel, Buf *x)
{
    postfix_columns_blocks(e, w->units, x);
    buf_f(x, "CELL_X_RESIDENT, %d, CELL_X_LE, ", kernel);
    postfix_poly(e, w->units, x);
    buf_f(x, "CELL_X_PUSH, %d, CELL_X_LE, CELL_X_MUL, ", COLUMNS_UNITS * COLUMNS_PIECES);
    postfix_poly(e, w->units, x);
    buf_f(x, "CELL_X_PUSH, 8, CELL_X_MOD, CELL_X_PUSH, 0, CELL_X_EQ, CELL_X_MUL, ");
    postfix_poly(e, w->columns, x);
    buf_f(x, "CELL_X_PUSH, %d, CELL_X_LE, CELL_X_MUL, ", COLUMNS_MOST);
}

static const char *print_columns(Print *e)
{
    Panel *w = e->pr->columns;
    Buf blocks = emit_program_new(e), fit = emit_program_new(e);
    int kernel = emit_kernel_number(e, w->kernel);
    buf_f(&e->table, ", .threads = %d, .smem = %s, .cooperative = 90 },\n", COLUMNS_THREADS, columns_smem(e, w));
    postfix_columns_blocks(e, w->units, &blocks);
    postfix_columns_fit(e, w, kernel, &fit);
    const char *when = emit_expr_name(e, &fit);
    buf_f(&e->ops,
          "    { .name = \"posts\", .kind = CELL_OP_FILL, .when = %s,\n"
          "      .u.memory = { .to = { %d, NULL }, .bytes = %s } },\n",
          when, emit_buffer_number(e, w->posts), emit_poly_expr(e, poly_mul(e->p->m, columns_posts(e->p), poly_const(e->p->m, 4))));
    e->n_ops++;
    emit_panel_op(e, w, emit_expr_name(e, &blocks), when, kernel);
    e->walked = emit_program_new(e);
    postfix_columns_fit(e, w, kernel, &e->walked);
    return emit_not_expr(e, &e->walked);
}

/* The kernels that walk all steps, and the condition under which the loop of kernels is needed after all. */
const char *emit_panel_walk(Print *e)
{
    Panel *w = e->pr->panel, *h = e->pr->head, *c = e->pr->cluster;
    if (e->pr->columns)
        return print_columns(e);
    if (!w && !h && !c)
        return "NULL";
    int head = h ? head_number(e, h) : -1, cluster = c ? cluster_number(e, c) : -1, forms = (h != NULL) + (c != NULL);
    if (h)
        print_head(e, h, head, cluster);
    if (c)
        print_cluster(e, c, cluster, head);
    if (forms) {
        e->headed = emit_program_new(e);
        if (h)
            postfix_head_fits(e, h, head, &e->headed);
        if (c)
            postfix_cluster_fits(e, c, cluster, &e->headed);
        if (forms > 1)
            buf_f(&e->headed, "CELL_X_ADD, ");
        emit_states(e, e->pr->dir == FORWARD ? STATE_INIT : STATE_SEED);
    }
    Panel *all[] = { e->pr->wide, e->pr->pairs, w };
    Grid grids[3];
    int n = 0;
    for (int i = 0; i < 3; i++)
        if (all[i]) {
            grids[n] = (Grid){ all[i], print_grid_panel(e, all[i], head, cluster, grids, n) };
            n++;
        }
    e->walked = emit_program_new(e);
    if (forms)
        buf_f(&e->walked, "%s", e->headed.data);
    for (int i = 0; i < n; i++) {
        postfix_panel_fits(e, grids[i].panel, grids[i].kernel, &e->walked);
        buf_f(&e->walked, "%s", forms || i > 0 ? "CELL_X_ADD, " : "");
    }
    return emit_not_expr(e, &e->walked);
}
