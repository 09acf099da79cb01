/* kernels_grid.c: CUDA text of the kernel that walks all steps by the whole grid. In comes a ResidentWalk
 * whose threads take elements in turn (resident_grid.c); out goes a cooperative kernel whose blocks hold
 * their rows of the weights (cell_device_panel.cuh). A step waits for the blocks that made a product's
 * operand, multiplies, and computes the pointwise groups for the block's own units; the operand is posted
 * as soon as it is stored. What the next step reads and no other block makes is asked for while the block
 * waits. */
#include "base/mutate.h"
#include "kernels/kernels.h"
#include "kernels_resident.h"
#include "resident.h"
#include "templates/grid.h"

/* The object that multiplies for a product, and its sums; of one product that is all there is. */
static const char *object(Kernel *k, const ResidentProduct *x)
{
    return gemm(k)->w->several ? k_text(k, "panel_%d", x->number) : "panel";
}

static const char *units_of(Kernel *k, const Poly *units)
{
    return gemm(k)->w->several ? poly_text(&k->printer, units) : "panel.units";
}

static const char *first_of(const Kernel *k)
{
    return gemm(k)->w->several ? "panel_0.first" : "panel.first";
}

/* Units of a block. */
static const char *own_text(Kernel *k)
{
    return k_text(k, "%d", gemm(k)->w->own);
}

/* ---- writes ---- */

/* Other blocks wait for the operand, and take each of its words as it comes where these are marked. */
static void stores_next(Kernel *k, Stored *s)
{
    const ResidentProduct *x = resident_waits(k, NULL, s->slot);
    s->out = gemm(k)->now;
    if (x && x->marks)
        s->call = k_text(k, "%s.give(mine, ", object(k, x));
    else
        s->when = k_text(k, "mine && %s", s->when);
}

static void stores(Kernel *k, Stored *s)
{
    const ResidentProduct *x = resident_waits(k, s->st, 0);
    if (x && x->marks)
        s->call = k_text(k, "%s.give(mine, ", object(k, x));
}

static void store(Kernel *k, NodeId id, const char *value)
{
    const ResidentProduct *x = resident_waits(k, &k->pr->node[id], 0);
    resident_store(k, id, value, x, x && !x->marks ? "mine" : NULL);
}

static const char *buffer(Kernel *k, int id)
{
    return id == gemm(k)->w->posts_buffer ? "posts" : NULL;
}

static int resident(const Kernel *k)
{
    (void)k;
    return 1;
}

const KernelHooks grid_hooks = {
    .all_steps = true,
    .resident = resident,
    .buffer = buffer,
    .held = resident_held,
    .ahead = resident_read_ahead,
    .left = resident_left,
    .stores_next = stores_next,
    .stores = stores,
    .store = store,
    .leaves_out = resident_leaves_out,
    .group_done = step_sums_add,
};

/* ---- what is read ahead ---- */

/* Where a block reads little of the operand, its chain counts. Where it waits for posts first, and then
 * reads much, what is asked for before that arrives meanwhile (measured on an H200, LSTM 1024 backward in
 * f32: 8.3 ms for 8.7). */
static bool reads_behind(const ResidentWalk *w)
{
    return w->several || w->products[0].marks || w->products[0].inner % w->products[0].split != 0;
}

/* The element of a number: a sequence and a unit of the block's own. */
static const char *element(Kernel *k, const WalkGroup *l, const char *number)
{
    Buf text, *out = k_divert(k, &text);
    GridElementFrame f = { .number = number, .elements = l->elements, .unit = l->unit };
    f.first = first_of(k);
    f.own = own_text(k);
    f.units = units_of(k, l->units);
    grid_element_frame(k->out, &f);
    return k_lines(k, out);
}

static void print_read_ahead(Kernel *k, const WalkGroup *l)
{
    if (l->ahead == 0)
        return;
    GridReadsFrame f = { .fields = l->fields, .unit = l->unit, .once = l->once, .early = l->early };
    f.number = k_text(k, "%d", l->number);
    f.rows = k_lines_of(k, k_declare_rows);
    f.fetched = reads_behind(gemm(k)->w) ? l->fetched : NULL;
    grid_reads_frame(k->out, &f);
}

/* The values of the own element at step t: brought near, or read; other: this thread has had another
 * element since it last read, or none. */
static void print_fetch(Kernel *k, const WalkGroup *l, const char *t)
{
    if (!l->fetched)
        return;
    GridFetchFrame f = { .elements = l->elements, .unit = l->unit, .t = t };
    f.once = gemm(k)->w->batch * gemm(k)->w->own <= PANEL_THREADS;
    f.element = element(k, l, f.once ? "cell_thread()" : "begin");
    f.number = k_text(k, "%d", l->number);
    grid_fetch_frame(k->out, &f);
}

static void print_read(Kernel *k, const WalkGroup *l, const char *condition, const char *t, const char *other)
{
    if (l->ahead == 0)
        return;
    GridReadFrame f = {
        .elements = l->elements, .condition = condition, .unit = l->unit, .t = t, .other = other
    };
    f.element = element(k, l, "cell_thread()");
    f.number = k_text(k, "%d", l->number);
    grid_read_frame(k->out, &f);
}

/* At the end of a step, where its groups do not read behind the product. */
static void print_next(Kernel *k, const WalkGroup *l, const char *next)
{
    if (reads_behind(gemm(k)->w))
        print_fetch(k, l, next);
    else
        print_read(k, l, "step + 1 < steps", next, k_text(k, "%s > CELL_PANEL_THREADS", l->elements));
}

/* ---- the product ---- */

/* The part's weights that are in registers, of the first with the same ones. */
static const char *kept_of(Kernel *k, const ResidentProduct *x)
{
    return gemm(k)->w->several ? k_text(k, "kept_%d", x->first_same) : "kept";
}

/* What the sum of sequence b0 + row, piece and unit `own` of the block is in memory, for what comes after the
 * steps. */
static void store_sum(Kernel *k, const ResidentProduct *x)
{
    Module *m = k->p->m;
    NodeId id = x->group->arrays.data[0];
    const Storage *st = &k->pr->node[id];
    TensorId of;
    if (root_kind(m, id, &of) == ROOT_DPREV) {
        GridStoreCarriedFrame f = { .first = first_of(k) };
        f.carry = k_written(k, REF_CARRY, of, k->p->compute);
        f.pitch = k_poly(k, tensor_elements(m, of));
        grid_store_carried_frame(k->out, &f);
        return;
    }
    k->b = "(b0 + row)";
    if (resident_sum_stays(k, x))
        return;
    GridStoreSumFrame f = { .optional = k_may_be_null(k, st), .first = first_of(k) };
    f.row = k_step_row(k, st);
    f.to = k_written(k, REF_NODE, id, st->dtype);
    f.pitch = k_poly(k, array_elements(m, id));
    f.units = gemm(k)->w->several ? k_poly(k, x->units) : "panel.units";
    grid_store_sum_frame(k->out, &f);
}

static const Storage *operand_storage(const Kernel *k, const ResidentProduct *x)
{
    const Storage *st = &k->pr->node[x->operand];
    return st->home == HOME_NONE ? &k->p->program[FORWARD].node[x->operand] : st;
}

/* Where the operand of all sequences begins, and how far apart the steps are. */
static const char *operand_at(Kernel *k, const ResidentProduct *x, const Storage *st, const char *row)
{
    const Poly *at =
        st->alias_offset ? poly_add(k->p->m, x->operand_offset, st->alias_offset) : x->operand_offset;
    const char *p = x->marks ? k_written(k, REF_NODE, x->operand, st->dtype)
                             : k_pointer(k, REF_NODE, x->operand, st->dtype);
    p = row ? k_text(k, "%s + %s", p, row) : p;
    return at->nterms ? k_text(k, "%s + %s", p, poly_text(&k->printer, at)) : p;
}

static const char *operand_pitch(Kernel *k, const ResidentProduct *x, const Storage *st)
{
    return k_poly(k, st->pitch ? st->pitch : array_elements(k->p->m, x->operand));
}

/* The product behind which a group stands, of those in order; -1: none, it stands before the first. */
static int product_before(Kernel *k, int group)
{
    const ResidentWalk *w = gemm(k)->w;
    int last = -1;
    for (int i = 0; i < w->nproducts; i++)
        if (resident_place(k->pr, &w->products[i]) <= group)
            last = i;
    return last;
}

/* While tensor cores work: what the groups behind the product read of this step, and, beside the first, those
 * before it of the next. Reads that were asked for earlier would hold up those of the operand, since a warp
 * gets its answers in order; at the end of the step before they are only brought near (print_next). */
static void read_meanwhile(Kernel *k, const WalkGroup *loops, int n, int product)
{
    const char *next = k->pr->dir == FORWARD ? "t + 1" : "t - 1";
    for (int i = 0; i < n; i++) {
        int behind = product_before(k, i);
        const char *other = k_text(k, "%s > CELL_PANEL_THREADS", loops[i].elements);
        if (behind < 0 && product == 0)
            print_read(k, &loops[i], "b0 == 0 && step + 1 < steps", next, other);
        else if (behind == product)
            print_read(k, &loops[i], "b0 == 0", "t", k_text(k, "step == 0 || %s", other));
    }
}

/* Rows of a sequence: in a ring as many as this has. */
static const char *rows_of(Kernel *k, const Buffer *buffer)
{
    if (!buffer->ring || k->pr->dir == BACKWARD)
        return "dim_T";
    return k_text(k, buffer->reserve ? "(all ? dim_T : %d)" : "%d", buffer->ring);
}

/* The operand of sequence b0 at this step, and how far apart the sequences are. */
static void print_product(Kernel *k, const WalkGroup *loops, int n, int product)
{
    const ResidentProduct *x = &gemm(k)->w->products[product];
    const Storage *st = operand_storage(k, x);
    Buf text, *out = k_divert(k, &text);
    k_comment(k, x->group->arrays.data[0]);
    GridProductFrame f = { .comment = k_lines(k, out), .panel = object(k, x), .kept = kept_of(k, x) };
    f.pitch = operand_pitch(k, x, st);
    f.made = x->operand_ready || mutate("early-wait") ? "" : " + 1";
    k->b = "b0";
    f.operand = operand_at(k, x, st, k_text(k, "%s * %s", k_step_row(k, st), f.pitch));
    f.steps = rows_of(k, &k->p->buffers.data[st->slot]);
    out = k_divert(k, &text);
    if (reads_behind(gemm(k)->w))
        read_meanwhile(k, loops, n, product);
    f.meanwhile = k_lines(k, out);
    f.sums = resident_sums_name(k, x);
    f.rows = k_text(k, "%d", x->outer * gemm(k)->w->own);
    f.own = own_text(k);
    out = k_divert(k, &text);
    store_sum(k, x);
    f.store = k_lines(k, out);
    grid_product_frame(k->out, &f);
}

/* An earlier part that reads the same operand, whose words are marked for both; or NULL. */
static const ResidentProduct *marked_already(const Kernel *k, const ResidentProduct *x)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < x->number; i++)
        if (w->products[i].operand == x->operand && w->products[i].marks &&
            w->products[i].operand_offset == x->operand_offset && w->products[i].inner == x->inner)
            return &w->products[i];
    return NULL;
}

/* When they are marked; NULL: always. */
static const char *marked_when(Kernel *k, const ResidentProduct *x, bool ring)
{
    if (!x->marks_few)
        return ring ? "all" : NULL;
    return k_text(k, "%scell_block_count(0) <= %d", ring ? "all && " : "", MARKED_BLOCKS);
}

/* Behind the setup. A ring of steps is not marked: its rows are written more than once. */
static void print_marks(Kernel *k, const ResidentProduct *x)
{
    const Storage *st = operand_storage(k, x);
    const Buffer *buffer = &k->p->buffers.data[st->slot];
    bool ring = buffer->ring && k->pr->dir == FORWARD;
    GridMarksFrame f = { .panel = object(k, x) };
    if (!x->marks || (ring && !buffer->reserve))
        return;
    if (marked_already(k, x)) {
        f.same = object(k, marked_already(k, x));
    } else {
        f.when = marked_when(k, x, ring);
        f.operand = operand_at(k, x, st, NULL);
        f.pitch = operand_pitch(k, x, st);
        f.first = x->operand_ready ? k_time_row(k, "0", 0) : "-1";
    }
    grid_marks_frame(k->out, &f);
}

/* ---- the pointwise groups ---- */

/* What waits for an operand that the group has made whole. */
static const char *posts(Kernel *k, const WalkGroup *l)
{
    const ResidentWalk *w = gemm(k)->w;
    Buf text, *out = k_divert(k, &text);
    for (int i = 0; i < w->nproducts; i++)
        if (w->several ? resident_maker(k->p, k->pr, &w->products[i]) == l->number : l->posts)
            buf_line(k->out, "%s.post();", object(k, &w->products[i]));
    return k_lines(k, out);
}

static void print_group_loop(Kernel *k, const WalkGroup *l, const char *next)
{
    GridGroupFrame f = { .elements = l->elements, .unit = l->unit, .body = l->body, .late = l->late };
    f.element = element(k, l, "begin + cell_thread()");
    f.first = first_of(k);
    f.rows = k_lines_of(k, k_declare_rows);
    f.ahead = l->ahead;
    f.number = k_text(k, "%d", l->number);
    f.pieces = l->pieces > 1 ? k_text(k, "%d", l->pieces) : NULL;
    f.index = l->index;
    f.units = units_of(k, l->units);
    f.posts = l->posts ? posts(k, l) : NULL;
    f.several = gemm(k)->w->several;
    Buf text, *out = k_divert(k, &text);
    print_next(k, l, next);
    f.next = k_lines(k, out);
    grid_group_frame(k->out, &f);
}

static void print_sums(Kernel *k, const WalkGroup *l)
{
    if (!step_sums_of(k, l->number))
        return;
    GridSumsFrame f = { .elements = l->elements, .unit = l->unit };
    f.element = element(k, l, "begin");
    Buf text, *out = k_divert(k, &text);
    step_sums_store(k, l->number, mutate("every-sequence") ? "" : "n >= CELL_PANEL_THREADS ? 0 : ");
    f.store = k_lines(k, out);
    grid_sums_frame(k->out, &f);
}

/* ---- the whole ---- */

/* The sums that the first step finds: the adjoint of the final state. */
static void print_seed(Kernel *k, const ResidentProduct *x)
{
    TensorId of;
    if (root_kind(k->p->m, x->group->arrays.data[0], &of) != ROOT_DPREV)
        return;
    GridSeedFrame f = { .elements = resident_elements(k, x->units),
                        .own = own_text(k),
                        .first = first_of(k) };
    f.units = units_of(k, x->units);
    f.sums = resident_sums_name(k, x);
    f.carry = k_written(k, REF_CARRY, of, k->p->compute);
    f.pitch = gemm(k)->w->several ? k_poly(k, x->units) : f.units;
    grid_seed_frame(k->out, &f);
}

static const char *product_type(Kernel *k, const ResidentProduct *x)
{
    const char *keep = gemm(k)->w->several
                           ? k_text(k, ", %d, %d", gemm(k)->w->batch, resident_keep(gemm(k)->w))
                       : gemm(k)->w->batch > PANEL_TURN ? k_text(k, ", %d", gemm(k)->w->batch)
                                                        : "";
    return k_text(k, "cell_panel<%s, %d, %d, %d, %d%s>", k_type(k->p->dtype), x->inner, x->outer,
                  gemm(k)->w->own, x->split, keep);
}

static void print_load(Kernel *k, const ResidentProduct *x)
{
    GridLoadFrame f = { .panel = object(k, x), .kept = kept_of(k, x), .weight = resident_weight_from(k, x) };
    f.row = poly_text(&k->printer, x->row_stride);
    f.k = poly_text(&k->printer, x->k_stride);
    grid_load_frame(k->out, &f);
}

static void print_sums_place(Kernel *k, const ResidentProduct *x)
{
    buf_line(k->out, "cell_smem<float> %s = cell_carve<float>(cursor, (dim_B + 15) / 16 * %d);",
             resident_sums_name(k, x), 16 * x->outer * gemm(k)->w->own);
}

/* Floats that the warps of a block leave of a sum, of the largest product. */
static const char *largest_shares(Kernel *k)
{
    const ResidentWalk *w = gemm(k)->w;
    int shares = 0;
    for (int i = 0; i < w->nproducts; i++) {
        int own = 8 * (w->products[i].outer * w->own * w->products[i].split / 8) * 8 * w->batch;
        shares = own > shares ? own : shares;
    }
    return k_text(k, "%d", shares);
}

static void print_panels(Kernel *k)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < w->nproducts; i++) {
        const ResidentProduct *x = &w->products[i];
        GridPanelFrame f = { .type = product_type(k, x), .number = k_text(k, "%d", i) };
        f.same = x->first_same < i ? k_text(k, "%d", x->first_same) : NULL;
        f.post = k_text(k, "%d", x->first_post);
        f.units = poly_text(&k->printer, x->units);
        f.k_units = poly_text(&k->printer, x->k_units);
        grid_panel_frame(k->out, &f);
    }
}

static void print_elements_of(Kernel *k)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < w->nspaces; i++)
        buf_line(k->out, "const int elements_%d = %s < %s ? (int)dim_B * %d : 0;", i, first_of(k),
                 units_of(k, w->spaces[i]), w->own);
}

static void print_sums_places(Kernel *k)
{
    for (int i = 0; i < gemm(k)->w->nproducts; i++)
        print_sums_place(k, &gemm(k)->w->products[i]);
}

static void print_loads(Kernel *k)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < w->nproducts; i++) {
        if (w->products[i].first_same != i)
            continue;
        GridLoadKeptFrame f = { .number = k_text(k, "%d", i), .more = i + 1 < w->nproducts };
        Buf text, *out = k_divert(k, &text);
        print_load(k, &w->products[i]);
        f.load = k_lines(k, out);
        grid_load_kept_frame(k->out, &f);
    }
}

static void print_starts(Kernel *k)
{
    for (int i = 0; i < gemm(k)->w->nproducts; i++) {
        print_seed(k, &gemm(k)->w->products[i]);
        buf_line(k->out, "panel_%d.start();", i);
    }
}

static void print_all_marks(Kernel *k)
{
    for (int i = 0; i < gemm(k)->w->nproducts; i++)
        print_marks(k, &gemm(k)->w->products[i]);
}

static void print_the_sums_place(Kernel *k)
{
    print_sums_place(k, gemm(k)->w->products);
}

static void print_the_load(Kernel *k)
{
    print_load(k, gemm(k)->w->products);
}

static void print_the_seed(Kernel *k)
{
    print_seed(k, gemm(k)->w->products);
}

/* What stands in front of the steps. The kernel's pointers are numbered in the order in which they are
 * named. */
static void set_up(Kernel *k, GridFrame *f)
{
    const ResidentWalk *w = gemm(k)->w;
    f->several = w->several;
    f->posts = k_written(k, REF_BUFFER, w->posts_buffer, DT_I32);
    f->own = own_text(k);
    if (w->several) {
        f->shares = largest_shares(k);
        f->panels = k_lines_of(k, print_panels);
        f->elements_of = k_lines_of(k, print_elements_of);
        f->sums_places = k_lines_of(k, print_sums_places);
        f->loads = k_lines_of(k, print_loads);
        f->starts = k_lines_of(k, print_starts);
    } else {
        f->panel = product_type(k, w->products);
        f->units = poly_text(&k->printer, w->units);
        f->cluster = w->cluster > 1;
        f->sums_place = k_lines_of(k, print_the_sums_place);
        f->load = k_lines_of(k, print_the_load);
        f->seed = k_lines_of(k, print_the_seed);
    }
    f->marks = k_lines_of(k, print_all_marks);
    f->step_sums = k_lines_of(k, step_sums_declare);
}

static void print_left(Kernel *k)
{
    for (int i = 0; i < gemm(k)->left.len; i++)
        buf_line(k->out, "%s left_%d = 0;", k->real, i);
}

/* The products that stand before a group, in their order. */
static void print_products_at(Kernel *k, const WalkGroup *loops, int n, int group)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < w->nproducts; i++)
        if (resident_place(k->pr, &w->products[i]) == group)
            print_product(k, loops, n, i);
}

static void print_step(Kernel *k, const WalkGroup *loops, int n)
{
    for (int i = 0; i <= n; i++) {
        print_products_at(k, loops, n, i);
        if (i < n)
            print_group_loop(k, &loops[i], k->pr->dir == FORWARD ? "t + 1" : "t - 1");
    }
}

static void print_reads(Kernel *k, const WalkGroup *loops, int n)
{
    for (int i = 0; i < n; i++) {
        print_read_ahead(k, &loops[i]);
        if (product_before(k, i) < 0 || !reads_behind(gemm(k)->w))
            print_read(k, &loops[i], "steps > 0", k->pr->dir == FORWARD ? "0" : "dim_T - 1", "true");
    }
}

void print_grid(Kernel *k)
{
    int n, product;
    GridFrame f = { 0 };
    WalkGroup *loops = resident_groups(k, &n, &product);
    k->row = NULL;
    set_up(k, &f);
    if (gemm(k)->left.len > 0)
        f.alone = gemm(k)->w->several ? k_text(k, "dim_B * %d", gemm(k)->w->own) : "elements";
    f.left = k_lines_of(k, print_left);
    Buf text, *out = k_divert(k, &text);
    print_reads(k, loops, n);
    f.reads = k_lines(k, out);
    f.t = k->pr->dir == FORWARD ? "step" : "dim_T - 1 - step";
    out = k_divert(k, &text);
    print_step(k, loops, n);
    f.step = k_lines(k, out);
    out = k_divert(k, &text);
    for (int i = 0; i < n; i++)
        print_sums(k, &loops[i]);
    f.sums = k_lines(k, out);
    grid_frame(k->out, &f);
}
