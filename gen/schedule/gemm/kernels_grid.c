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
static void print_element(Kernel *k, const WalkGroup *l, const char *number)
{
    int own = gemm(k)->w->own;
    const char *units = units_of(k, l->units);
    buf_line(k->out, "const int n = %s, at = n < %s ? n : %s - 1;", number, l->elements, l->elements);
    buf_line(k->out, "const int unit = %s + at %% %d;", first_of(k), own);
    buf_line(k->out, "const int64_t b = at / %d, %s = unit < %s ? unit : %s - 1;", own, l->unit, units,
             units);
}

static void print_read_ahead(Kernel *k, const WalkGroup *l)
{
    if (l->ahead == 0)
        return;
    buf_line(k->out, "struct {%s } ahead_%d = {};", l->fields, l->number);
    k_open(k, "const auto read_%d = [&](int64_t b, int64_t %s, int64_t t, bool other)", l->number, l->unit);
    buf_line(k->out, "(void)b, (void)%s, (void)t, (void)other;", l->unit);
    k_declare_rows(k);
    if (l->once) { /* the same at all steps */
        buf_line(k->out, "if (other) {");
        buf_f(k->out, "%s", l->once);
        buf_line(k->out, "}");
    }
    if (l->early)
        buf_f(k->out, "%s", l->early);
    k->out->indent--;
    buf_line(k->out, "};");
    if (!l->fetched || !reads_behind(gemm(k)->w))
        return;
    k_open(k, "const auto fetch_%d = [&](int64_t b, int64_t %s, int64_t t)", l->number, l->unit);
    k_declare_rows(k);
    buf_f(k->out, "%s", l->fetched);
    k->out->indent--;
    buf_line(k->out, "};");
}

/* The values of the own element at step t: brought near, or read; other: this thread has had another
 * element since it last read, or none. */
static void print_fetch(Kernel *k, const WalkGroup *l, const char *t)
{
    if (!l->fetched)
        return;
    bool once = gemm(k)->w->batch * gemm(k)->w->own <= PANEL_THREADS;
    k_open(
        k,
        once ? "if (cell_thread() < %s && step + 1 < steps)"
             : "for (int begin = cell_thread(); begin < %s && step + 1 < steps; begin += CELL_PANEL_THREADS)",
        l->elements);
    print_element(k, l, once ? "cell_thread()" : "begin");
    buf_line(k->out, "fetch_%d(b, %s, %s);", l->number, l->unit, t);
    k_close(k);
}

static void print_read(Kernel *k, const WalkGroup *l, const char *condition, const char *t, const char *other)
{
    if (l->ahead == 0)
        return;
    k_open(k, "if (cell_thread() < %s && %s)", l->elements, condition);
    print_element(k, l, "cell_thread()");
    buf_line(k->out, "read_%d(b, %s, %s, %s);", l->number, l->unit, t, other);
    k_close(k);
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

/* Sequence b0 + b, piece and unit `own` of the block: to shared memory for the block itself, and to memory
 * for what comes after the steps. */
static void store_sum(Kernel *k, const ResidentProduct *x)
{
    Module *m = k->p->m;
    NodeId id = x->group->arrays.data[0];
    const Storage *st = &k->pr->node[id];
    TensorId of;
    const char *units = gemm(k)->w->several ? k_poly(k, x->units) : "panel.units";
    buf_line(k->out, "%s[((int)b0 + row) * %d + piece * %d + own] = sum;", resident_sums_name(k, x),
             x->outer * gemm(k)->w->own, gemm(k)->w->own);
    if (root_kind(m, id, &of) == ROOT_DPREV) {
        buf_line(k->out, "if (t == 0)");
        buf_line(k->out, "    cell_store(%s + (b0 + row) * %s + %s + own, sum);",
                 k_written(k, REF_CARRY, of, k->p->compute), k_poly(k, tensor_elements(m, of)), first_of(k));
        return;
    }
    k->b = "(b0 + row)";
    if (resident_sum_stays(k, x))
        return;
    const char *row = k_step_row(k, st), *p = k_written(k, REF_NODE, id, st->dtype);
    if (k_may_be_null(k, st))
        buf_line(k->out, "if (%s)", p);
    buf_line(k->out, "%scell_store(%s + %s * %s + piece * %s + %s + own, sum);",
             k_may_be_null(k, st) ? "    " : "", p, row, k_poly(k, array_elements(m, id)), units,
             first_of(k));
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

/* The operand of sequence b0 at this step, and how far apart the sequences are. */
static void print_product(Kernel *k, const WalkGroup *loops, int n, int product)
{
    const ResidentProduct *x = &gemm(k)->w->products[product];
    const Storage *st = operand_storage(k, x);
    const Buffer *buffer = &k->p->buffers.data[st->slot];
    const char *pitch = operand_pitch(k, x, st), *steps = "dim_T", *panel = object(k, x);
    if (buffer->ring && k->pr->dir == FORWARD)
        steps = k_text(k, buffer->reserve ? "(all ? dim_T : %d)" : "%d", buffer->ring);
    k_comment(k, x->group->arrays.data[0]);
    buf_line(k->out, "%s.wait(step%s);", panel, x->operand_ready || mutate("early-wait") ? "" : " + 1");
    k_open(k, "for (int64_t b0 = 0; b0 < dim_B; b0 += %s.batch)", panel);
    buf_line(k->out, "cell_mma_c shares[%s.results];", panel);
    k->b = "b0";
    buf_line(k->out, "%s.multiply(shares, %s, %s, %s * %s, dim_B - b0);", panel, kept_of(k, x),
             operand_at(k, x, st, k_text(k, "%s * %s", k_step_row(k, st), pitch)), steps, pitch);
    if (reads_behind(gemm(k)->w))
        read_meanwhile(k, loops, n, product);
    k_open(k, "%s.reduce(shares, dim_B - b0, [&](int row, [[maybe_unused]] int piece, int own, float sum)",
           panel);
    store_sum(k, x);
    k->out->indent--;
    buf_line(k->out, "});");
    buf_line(k->out, "cell_barrier();");
    k_close(k);
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

/* Behind the setup. A ring of steps is not marked: its rows are written more than once. */
static void print_marks(Kernel *k, const ResidentProduct *x)
{
    const Storage *st = operand_storage(k, x);
    const Buffer *buffer = &k->p->buffers.data[st->slot];
    bool ring = buffer->ring && k->pr->dir == FORWARD;
    if (!x->marks || (ring && !buffer->reserve))
        return;
    if (marked_already(k, x)) {
        buf_line(k->out, "%s.marks = %s.marks;", object(k, x), object(k, marked_already(k, x)));
        return;
    }
    const char *when =
        !x->marks_few ? ring ? "if (all)" : NULL
                      : k_text(k, "if (%scell_block_count(0) <= %d)", ring ? "all && " : "", MARKED_BLOCKS);
    if (when)
        buf_line(k->out, "%s", when);
    buf_line(k->out, "%s%s.mark(%s, %s, dim_B, dim_T, %s);", when ? "    " : "", object(k, x),
             operand_at(k, x, st, NULL), operand_pitch(k, x, st),
             x->operand_ready ? k_time_row(k, "0", 0) : "-1");
}

/* ---- the pointwise groups ---- */

/* What waits for an operand that the group has made whole. */
static void print_posts(Kernel *k, const WalkGroup *l)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < w->nproducts; i++)
        if (w->several ? resident_maker(k->p, k->pr, &w->products[i]) == l->number : l->posts)
            buf_line(k->out, "    %s.post();", object(k, &w->products[i]));
}

static void print_late(Kernel *k, const WalkGroup *l)
{
    if (!l->late)
        return;
    buf_line(k->out, "if (mine) {");
    buf_f(k->out, "%s", l->late);
    buf_line(k->out, "}");
}

/* As many elements at a time as the block has threads; threads beyond the last do what it does and store
 * nothing. Of several spaces a block may have nothing of one: others wait for its posts none the less. */
static void print_group_loop(Kernel *k, const WalkGroup *l, const char *next)
{
    bool several = gemm(k)->w->several;
    k_open(k, "for (int begin = 0; begin < %s; begin += CELL_PANEL_THREADS)", l->elements);
    print_element(k, l, "begin + cell_thread()");
    buf_line(k->out, "[[maybe_unused]] const int own = (int)%s - %s;", l->unit, first_of(k));
    buf_line(k->out, "const bool mine = at == n && %s == unit;", l->unit);
    k_declare_rows(k);
    if (l->ahead) {
        buf_line(k->out, "if (begin > 0)");
        buf_line(k->out, "    read_%d(b, %s, t, true);", l->number, l->unit);
    }
    if (l->pieces > 1) {
        k_open(k, "for (int piece = 0; piece < %d; piece++)", l->pieces);
        buf_line(k->out, "const int64_t %s = piece * %s + %s;", l->index, units_of(k, l->units), l->unit);
    }
    buf_f(k->out, "%s", l->body);
    if (l->pieces > 1) {
        print_late(k, l);
        k_close(k);
    }
    if (l->posts) {
        buf_line(k->out,
                 several ? "if (begin + CELL_PANEL_THREADS >= %s) {"
                         : "if (begin + CELL_PANEL_THREADS >= %s)",
                 l->elements);
        print_posts(k, l);
        if (several)
            buf_line(k->out, "}");
    }
    if (l->pieces == 1)
        print_late(k, l);
    k_close(k);
    if (l->posts && several) {
        buf_line(k->out, "if (%s == 0) {", l->elements);
        print_posts(k, l);
        buf_line(k->out, "}");
    }
    print_next(k, l, next);
}

/* A thread has added up all of its sequences: the first has the sums, the others nothing. */
static void print_sums(Kernel *k, const WalkGroup *l)
{
    if (!step_sums_of(k, l->number))
        return;
    k_open(k, "for (int begin = cell_thread(); begin < %s; begin += CELL_PANEL_THREADS)", l->elements);
    print_element(k, l, "begin");
    k_open(k, "if (%s == unit)", l->unit);
    step_sums_store(k, l->number, mutate("every-sequence") ? "" : "n >= CELL_PANEL_THREADS ? 0 : ");
    k_close(k);
    k_close(k);
}

/* ---- the whole ---- */

/* The sums that the first step finds: the adjoint of the final state. */
static void print_seed(Kernel *k, const ResidentProduct *x)
{
    const char *units = units_of(k, x->units);
    TensorId of;
    if (root_kind(k->p->m, x->group->arrays.data[0], &of) != ROOT_DPREV)
        return;
    k_open(k, "for (int n = cell_thread(); n < %s; n += CELL_PANEL_THREADS)", resident_elements(k, x->units));
    buf_line(k->out, "const int64_t b = n / %d, unit = %s + n %% %d;", gemm(k)->w->own, first_of(k),
             gemm(k)->w->own);
    buf_line(k->out, "if (unit < %s)", units);
    buf_line(k->out, "    %s[n] = %s[((dim_T & 1) * dim_B + b) * %s + unit];", resident_sums_name(k, x),
             k_written(k, REF_CARRY, of, k->p->compute), gemm(k)->w->several ? k_poly(k, x->units) : units);
    k_close(k);
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
    buf_line(k->out, "%s.load(%s, %s%s%s, %s, %s);", object(k, x), kept_of(k, x), resident_weight(k, x),
             x->weight_offset->nterms ? " + " : "",
             x->weight_offset->nterms ? poly_text(&k->printer, x->weight_offset) : "",
             poly_text(&k->printer, x->row_stride), poly_text(&k->printer, x->k_stride));
}

/* The products share the place where a block's warps leave their shares of a sum. */
static void print_products(Kernel *k)
{
    const ResidentWalk *w = gemm(k)->w;
    Buf *out = k->out;
    int shares = 0;
    for (int i = 0; i < w->nproducts; i++) {
        int own = 8 * (w->products[i].outer * w->own * w->products[i].split / 8) * 8 * w->batch;
        shares = own > shares ? own : shares;
    }
    buf_line(out, "cell_smem<float> shares_of_all = cell_carve<float>(cursor, %d);", shares);
    buf_line(out, "unsigned int *const counters = reinterpret_cast<unsigned int *>(%s);",
             k_written(k, REF_BUFFER, w->posts_buffer, DT_I32));
    for (int i = 0; i < w->nproducts; i++) {
        const ResidentProduct *x = &w->products[i];
        buf_line(out, "%s panel_%d;", product_type(k, x), i);
        if (x->first_same < i)
            buf_line(out, "panel_%d.carve_again(cursor, panel_%d, counters + %d);", i, x->first_same,
                     x->first_post);
        else
            buf_line(out, "panel_%d.carve_one(cursor, shares_of_all, %s, %s, counters + %d);", i,
                     poly_text(&k->printer, x->units), poly_text(&k->printer, x->k_units), x->first_post);
    }
    for (int i = 0; i < w->nspaces; i++)
        buf_line(out, "const int elements_%d = %s < %s ? (int)dim_B * %d : 0;", i, first_of(k),
                 units_of(k, w->spaces[i]), w->own);
}

static void print_sums_place(Kernel *k, const ResidentProduct *x)
{
    buf_line(k->out, "cell_smem<float> %s = cell_carve<float>(cursor, (dim_B + 15) / 16 * %d);",
             resident_sums_name(k, x), 16 * x->outer * gemm(k)->w->own);
}

static void print_setup_several(Kernel *k)
{
    const ResidentWalk *w = gemm(k)->w;
    print_products(k);
    buf_line(k->out, "const int64_t steps = dim_B > 0 ? dim_T : 0;");
    for (int i = 0; i < w->nproducts; i++)
        print_sums_place(k, &w->products[i]);
    for (int i = 0; i < w->nproducts; i++)
        if (w->products[i].first_same == i) {
            buf_line(k->out, "decltype(panel_%d)::kept kept_%d;", i, i);
            print_load(k, &w->products[i]);
            if (i + 1 < w->nproducts) /* the weights that go to registers pass through the same place */
                buf_line(k->out, "cell_barrier();");
        }
    for (int i = 0; i < w->nproducts; i++) {
        print_seed(k, &w->products[i]);
        buf_line(k->out, "panel_%d.start();", i);
    }
    for (int i = 0; i < w->nproducts; i++)
        print_marks(k, &w->products[i]);
}

static void print_setup(Kernel *k)
{
    const ResidentWalk *w = gemm(k)->w;
    Buf *out = k->out;
    buf_line(out, "auto cursor = cell_shared();");
    if (w->several) {
        print_setup_several(k);
        return;
    }
    buf_line(out, "%s panel;", product_type(k, w->products));
    buf_line(out, "panel.carve(cursor, %s, reinterpret_cast<unsigned int *>(%s));",
             poly_text(&k->printer, w->units), k_written(k, REF_BUFFER, w->posts_buffer, DT_I32));
    if (w->cluster > 1) /* the last cluster may have blocks without units */
        buf_line(out, "const int elements = panel.first < panel.units ? (int)dim_B * %d : 0;", w->own);
    else
        buf_line(out, "const int elements = (int)dim_B * %d;", w->own);
    buf_line(out, "const int64_t steps = dim_B > 0 ? dim_T : 0;");
    print_sums_place(k, w->products);
    buf_line(out, "decltype(panel)::kept kept;");
    print_load(k, w->products);
    print_seed(k, w->products);
    buf_line(out, "panel.start();");
    print_marks(k, w->products);
}

/* The products that stand before a group, in their order. */
static void print_products_at(Kernel *k, const WalkGroup *loops, int n, int group)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < w->nproducts; i++)
        if (resident_place(k->pr, &w->products[i]) == group)
            print_product(k, loops, n, i);
}

void print_grid(Kernel *k)
{
    bool forward = k->pr->dir == FORWARD;
    int n, product;
    k->one_step = true;
    k->t = "t";
    gemm(k)->step_sums.len = 0;
    WalkGroup *loops = resident_groups(k, &n, &product);
    k->row = NULL;
    print_setup(k);
    step_sums_declare(k);
    if (gemm(k)->left.len > 0 && gemm(k)->w->several)
        buf_line(k->out, "const bool alone = dim_B * %d <= CELL_PANEL_THREADS;", gemm(k)->w->own);
    else if (gemm(k)->left.len > 0)
        buf_line(k->out, "const bool alone = elements <= CELL_PANEL_THREADS;");
    for (int i = 0; i < gemm(k)->left.len; i++)
        buf_line(k->out, "%s left_%d = 0;", k->real, i);
    for (int i = 0; i < n; i++) {
        print_read_ahead(k, &loops[i]);
        if (product_before(k, i) < 0 || !reads_behind(gemm(k)->w))
            print_read(k, &loops[i], "steps > 0", forward ? "0" : "dim_T - 1", "true");
    }
    k_open(k, "for (int64_t step = 0; step < steps; step++)");
    buf_line(k->out, "const int64_t t = %s;", forward ? "step" : "dim_T - 1 - step");
    for (int i = 0; i <= n; i++) {
        print_products_at(k, loops, n, i);
        if (i < n)
            print_group_loop(k, &loops[i], forward ? "t + 1" : "t - 1");
    }
    k_close(k);
    for (int i = 0; i < n; i++)
        print_sums(k, &loops[i]);
}
