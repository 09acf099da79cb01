/* kernels_resident.c: CUDA text of the kernel that walks all steps of schedule gemm on the whole chip. In
 * comes a ResidentWalk (resident.c); out goes a cooperative kernel whose blocks hold their rows of the
 * product's param in shared memory. A step waits for the blocks that made the product's operand,
 * multiplies, and computes the pointwise groups for the block's own units; the operand is posted as soon as
 * it is stored. What the next step reads and no other block makes is asked for while the block waits. The
 * groups of a step are printed here for kernels_head.c too. */
#include <string.h>

#include "base/mutate.h"
#include "kernels/kernels.h"
#include "kernels_resident.h"
#include "resident.h"

const char *resident_weight(Kernel *k, const ResidentWalk *w)
{
    return k_pointer(k, w->weight.is_tensor ? REF_TENSOR : REF_NODE, w->weight.id, k->p->dtype);
}

/* The object that multiplies for a part, and its sums; of one product that is all there is. */
static const char *object(Kernel *k, const ResidentWalk *part)
{
    return gemm(k)->w->nparts ? k_text(k, "panel_%d", part->number) : "panel";
}

static const char *sums_of(Kernel *k, const ResidentWalk *part)
{
    return gemm(k)->w->nparts ? k_text(k, "sums_%d", part->number) : "sums";
}

/* A block's elements, and the units in all, of what is pointwise over these units. */
static const char *elements_of(Kernel *k, const Poly *units)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < w->nspaces; i++)
        if (w->spaces[i] == units)
            return k_text(k, "elements_%d", i);
    return "elements";
}

static const char *units_of(Kernel *k, const Poly *units)
{
    return gemm(k)->w->nparts ? poly_text(&k->printer, units) : "panel.units";
}

static const char *first_of(const Kernel *k)
{
    return gemm(k)->w->nparts ? "panel_0.first" : "panel.first";
}

/* ---- reads ---- */

/* The piece of a stacked row that an element lies in, when it is that of the block's own unit. */
static bool own_piece(Kernel *k, const Read *r, int64_t *piece)
{
    Module *m = k->p->m;
    const IxExpr *e = walk_in_units(k, read_linear(m, r));
    const Poly *elements = r->is_tensor ? tensor_elements(m, r->id) : array_elements(m, r->id);
    return e && resident_piece(m, e, elements, k->walk->units, gemm(k)->w->naxes, piece);
}

static const char *read_once(Kernel *k, const char *s)
{
    bool first;
    int n = k_number(k, &k->walk->once_reads, s, &first);
    if (first)
        buf_line(&k->walk->once, "const %s once_%d = %s;", k->real, n, k_bare(k, s));
    return k_text(k, "once_%d", n);
}

/* What the thread has not just written itself comes from memory, which takes longer than the tensor cores
 * do. */
static void fetch(Kernel *k, const Read *r, const AheadRead *as)
{
    bool own = r->is_tensor && k->p->m->tensors.data[r->id].kind == T_STATE && k->pr->dir == FORWARD;
    if (!as->timed || !as->from || own || gemm(k)->w->alone)
        return;
    if (as->offset)
        buf_line(&gemm(k)->fetched, "if (%s) cell_prefetch(%s + %s);", as->from, as->from, as->offset);
    else
        buf_line(&gemm(k)->fetched, "cell_prefetch(%s);", as->from);
}

/* Only elements of the own unit, at this step, are sure to exist, whatever conditions stand around the
 * read. What is ahead is kept as it lies in memory: to convert it would be to wait for it. */
const char *resident_read_ahead(Kernel *k, const Read *r, const char *s, const AheadRead *as)
{
    int64_t piece;
    if (k->away || gemm(k)->pieces > 1 || !own_piece(k, r, &piece))
        return s;
    if (gemm(k)->w->alone && !as->timed)
        return read_once(k, s);
    bool first;
    int n = k_number(k, &k->walk->reads, as->text, &first);
    if (first) {
        const char *to = gemm(k)->w->alone ? "ahead" : k_text(k, "ahead_%d", gemm(k)->group);
        buf_line(as->timed ? &k->walk->early : &k->walk->once, "%s.r%d = %s;", to, n, k_bare(k, as->text));
        buf_f(&k->walk->fields, " %s r%d;", as->type, n);
        fetch(k, r, as);
    }
    const char *at = k_text(k, gemm(k)->w->alone ? "ahead_%d[u].r%d" : "ahead_%d.r%d", gemm(k)->group, n);
    if (as->half)
        at = k_text(k, "%s{(uint16_t)%s}", as->half, at);
    return !as->half && strcmp(as->type, k->real) == 0 ? at : k_text(k, "cell_convert<%s>(%s)", k->real, at);
}

/* Where the reader is in one of several pieces: that of as many pieces further. */
static const char *sum_of_piece(Kernel *k, const ResidentWalk *part, const Read *r)
{
    Module *m = k->p->m;
    const IxExpr *e = walk_in_units(k, read_linear(m, r));
    int64_t further;
    if (!e || !resident_whole_pieces(m, ix_sub(m, e, ix_index(m, k->walk->units[0]))->offset, part->units,
                                     &further))
        bug(m->c, "kernels", "a step reads a product's sum of another unit");
    return k_text(k, "(%s)%s[(int)b * %d + own + (piece + %d) * %d]", k->real, sums_of(k, part),
                  part->outer * part->own, (int)further, part->own);
}

/* What the product gave for the own unit. */
static const char *sum_text(Kernel *k, const ResidentWalk *part, const Read *r)
{
    int64_t piece;
    if (gemm(k)->pieces > 1)
        return sum_of_piece(k, part, r);
    if (!own_piece(k, r, &piece))
        bug(k->p->m->c, "kernels", "a step reads a product's sum of another unit");
    if (gemm(k)->w->alone)
        return k_text(k, "sum_%d", (int)piece);
    int first = (int)piece * part->own;
    return k_text(k, first ? "(%s)%s[(int)b * %d + own + %d]" : "(%s)%s[(int)b * %d + own]", k->real,
                  sums_of(k, part), part->outer * part->own, first);
}

/* The part whose product gives the value; or NULL. */
static const ResidentWalk *part_of(const Kernel *k, NodeId id)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < resident_products(w) && id >= 0; i++)
        if (id == resident_part(w, i)->product->arrays.data[0])
            return resident_part(w, i);
    return NULL;
}

bool resident_is_product(const Kernel *k, NodeId id)
{
    return part_of(k, id);
}

const char *resident_held(Kernel *k, const Read *r)
{
    const Module *m = k->p->m;
    const Tensor *x = r->is_tensor ? &m->tensors.data[r->id] : NULL;
    NodeId id = !x ? r->id : x->kind == T_DNEXT ? m->roots.data[x->of].dprev : -1;
    const ResidentWalk *part = part_of(k, id);
    return part ? sum_text(k, part, r) : NULL;
}

/* A thread that has one element at all steps has what a group made of it in a local. */
static bool crosses(const Kernel *k, NodeId id)
{
    return gemm(k)->crosses && gemm(k)->crosses[id];
}

static const char *left_name(Kernel *k, NodeId id)
{
    bool first;
    return k_text(k, "left_%d", k_number(k, &gemm(k)->left, k_text(k, "%d", id), &first));
}

const char *resident_left(Kernel *k, NodeId id, const char *s, bool carried)
{
    if (!crosses(k, id) || !resident_finds(k->pr, (int)(k->g - k->pr->groups.data), id, carried))
        return s;
    carried = carried && !mutate("left-by-nobody");
    return k_text(k, carried ? "(alone && step > 0 ? %s : %s)" : "(alone ? %s : %s)", left_name(k, id), s);
}

/* ---- writes ---- */

static void leave_value(Kernel *k, NodeId id, const char *value)
{
    if (crosses(k, id))
        buf_line(gemm(k)->now, "%s = %s;", left_name(k, id), value);
}

/* The part whose operand has a place there, or else lies in memory so; or NULL. */
static const ResidentWalk *part_that_waits(const Kernel *k, const Storage *st, int slot)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < resident_products(w); i++) {
        const Storage *x = &k->pr->node[resident_part(w, i)->operand];
        if (st ? st->home == x->home && st->slot == x->slot : x->slot == slot)
            return resident_part(w, i);
    }
    return NULL;
}

bool resident_waits_for(const Kernel *k, const Storage *st)
{
    return part_that_waits(k, st, 0);
}

bool resident_leaves_out(const Kernel *k, NodeId id)
{
    return resident_walks(k->pr)->summed && resident_walks(k->pr)->summed[id];
}

void resident_store(Kernel *k, NodeId id, const char *value, bool now, const char *condition)
{
    Buf *out = k->out;
    if (!now)
        k->out = &k->walk->late;
    if (condition)
        k_open(k, "if (%s)", condition);
    k_store_value(k, id, value);
    if (condition)
        k_close(k);
    k->out = out;
    leave_value(k, id, value);
}

/* Other blocks wait for the operand, and take each of its words as it comes where these are marked. */
static void stores_next(Kernel *k, Stored *s)
{
    const ResidentWalk *part = part_that_waits(k, NULL, s->slot);
    s->out = gemm(k)->now;
    if (part && part->marks)
        s->call = k_text(k, "%s.give(mine, ", object(k, part));
    else
        s->when = k_text(k, "mine && %s", s->when);
}

static void stores(Kernel *k, Stored *s)
{
    const ResidentWalk *part = part_that_waits(k, s->st, 0);
    if (part && part->marks)
        s->call = k_text(k, "%s.give(mine, ", object(k, part));
}

static void store(Kernel *k, NodeId id, const char *value)
{
    const ResidentWalk *part = part_that_waits(k, &k->pr->node[id], 0);
    resident_store(k, id, value, part, part && !part->marks ? "mine" : NULL);
}

static const char *buffer(Kernel *k, int id)
{
    return id == gemm(k)->w->posts ? "posts" : NULL;
}

static int resident(const Kernel *k)
{
    (void)k;
    return 1;
}

static const KernelHooks grid_hooks = {
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
    return w->nparts || w->marks || w->inner % w->split != 0;
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
static const char *kept_of(Kernel *k, const ResidentWalk *part)
{
    return gemm(k)->w->nparts ? k_text(k, "kept_%d", part->weights) : "kept";
}

/* Is it only the step itself that reads the product? */
static bool sum_stays(const Kernel *k, const ResidentWalk *part)
{
    const Storage *st = &k->pr->node[part->product->arrays.data[0]];
    const Buffer *kept =
        st->home == HOME_WORKSPACE && k->pr->dir == FORWARD ? &k->p->buffers.data[st->slot] : NULL;
    return kept && kept->ring == 1 && !kept->reserve;
}

bool resident_sum_stays(const Kernel *k)
{
    return sum_stays(k, gemm(k)->w);
}

/* Sequence b0 + b, piece and unit `own` of the block: to shared memory for the block itself, and to memory
 * for what comes after the steps. */
static void store_sum(Kernel *k, const ResidentWalk *w)
{
    Module *m = k->p->m;
    NodeId id = w->product->arrays.data[0];
    const Storage *st = &k->pr->node[id];
    TensorId of;
    const char *units = gemm(k)->w->nparts ? k_poly(k, w->units) : "panel.units";
    buf_line(k->out, "%s[((int)b0 + row) * %d + piece * %d + own] = sum;", sums_of(k, w), w->outer * w->own,
             w->own);
    if (root_kind(m, id, &of) == ROOT_DPREV) {
        buf_line(k->out, "if (t == 0)");
        buf_line(k->out, "    cell_store(%s + (b0 + row) * %s + %s + own, sum);",
                 k_written(k, REF_CARRY, of, k->p->compute), k_poly(k, tensor_elements(m, of)), first_of(k));
        return;
    }
    k->b = "(b0 + row)";
    if (sum_stays(k, w))
        return;
    const char *row = k_step_row(k, st), *p = k_written(k, REF_NODE, id, st->dtype);
    if (k_may_be_null(k, st))
        buf_line(k->out, "if (%s)", p);
    buf_line(k->out, "%scell_store(%s + %s * %s + piece * %s + %s + own, sum);",
             k_may_be_null(k, st) ? "    " : "", p, row, k_poly(k, array_elements(m, id)), units,
             first_of(k));
}

static const Storage *operand_storage(const Kernel *k, const ResidentWalk *part)
{
    const Storage *st = &k->pr->node[part->operand];
    return st->home == HOME_NONE ? &k->p->program[FORWARD].node[part->operand] : st;
}

/* Where the operand of all sequences begins, and how far apart the steps are. */
static const char *operand_at(Kernel *k, const ResidentWalk *w, const Storage *st, const char *row)
{
    const Poly *at =
        st->alias_offset ? poly_add(k->p->m, w->operand_offset, st->alias_offset) : w->operand_offset;
    const char *p = w->marks ? k_written(k, REF_NODE, w->operand, st->dtype)
                             : k_pointer(k, REF_NODE, w->operand, st->dtype);
    p = row ? k_text(k, "%s + %s", p, row) : p;
    return at->nterms ? k_text(k, "%s + %s", p, poly_text(&k->printer, at)) : p;
}

static const char *operand_pitch(Kernel *k, const ResidentWalk *part, const Storage *st)
{
    return k_poly(k, st->pitch ? st->pitch : array_elements(k->p->m, part->operand));
}

/* The product behind which a group stands, of those in order; -1: none, it stands before the first. */
static int product_before(Kernel *k, int group)
{
    const ResidentWalk *w = gemm(k)->w;
    int last = -1;
    for (int i = 0; i < resident_products(w); i++)
        if (resident_place(k->pr, resident_part(w, i)) <= group)
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
    const ResidentWalk *w = resident_part(gemm(k)->w, product);
    const Storage *st = operand_storage(k, w);
    const Buffer *buffer = &k->p->buffers.data[st->slot];
    const char *pitch = operand_pitch(k, w, st), *steps = "dim_T", *panel = object(k, w);
    if (buffer->ring && k->pr->dir == FORWARD)
        steps = k_text(k, buffer->reserve ? "(all ? dim_T : %d)" : "%d", buffer->ring);
    k_comment(k, w->product->arrays.data[0]);
    buf_line(k->out, "%s.wait(step%s);", panel, w->operand_ready || mutate("early-wait") ? "" : " + 1");
    k_open(k, "for (int64_t b0 = 0; b0 < dim_B; b0 += %s.batch)", panel);
    buf_line(k->out, "cell_mma_c shares[%s.results];", panel);
    k->b = "b0";
    buf_line(k->out, "%s.multiply(shares, %s, %s, %s * %s, dim_B - b0);", panel, kept_of(k, w),
             operand_at(k, w, st, k_text(k, "%s * %s", k_step_row(k, st), pitch)), steps, pitch);
    if (reads_behind(gemm(k)->w))
        read_meanwhile(k, loops, n, product);
    k_open(k, "%s.reduce(shares, dim_B - b0, [&](int row, [[maybe_unused]] int piece, int own, float sum)",
           panel);
    store_sum(k, w);
    k->out->indent--;
    buf_line(k->out, "});");
    buf_line(k->out, "cell_barrier();");
    k_close(k);
}

/* An earlier part that reads the same operand, whose words are marked for both; or NULL. */
static const ResidentWalk *marked_already(const Kernel *k, const ResidentWalk *part)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < part->number; i++)
        if (w->parts[i]->operand == part->operand && w->parts[i]->marks &&
            w->parts[i]->operand_offset == part->operand_offset && w->parts[i]->inner == part->inner)
            return w->parts[i];
    return NULL;
}

/* Behind the setup. A ring of steps is not marked: its rows are written more than once. */
static void print_marks(Kernel *k, const ResidentWalk *part)
{
    const Storage *st = operand_storage(k, part);
    const Buffer *buffer = &k->p->buffers.data[st->slot];
    bool ring = buffer->ring && k->pr->dir == FORWARD;
    if (!part->marks || (ring && !buffer->reserve))
        return;
    if (marked_already(k, part)) {
        buf_line(k->out, "%s.marks = %s.marks;", object(k, part), object(k, marked_already(k, part)));
        return;
    }
    const char *when = !part->marks_few ? ring ? "if (all)" : NULL
                                        : k_text(k, "if (%scell_block_count(0) <= %d)", ring ? "all && " : "",
                                                 MARKED_BLOCKS);
    if (when)
        buf_line(k->out, "%s", when);
    buf_line(k->out, "%s%s.mark(%s, %s, dim_B, dim_T, %s);", when ? "    " : "", object(k, part),
             operand_at(k, part, st, NULL), operand_pitch(k, part, st),
             part->operand_ready ? k_time_row(k, "0", 0) : "-1");
}

/* ---- the pointwise groups ---- */

/* Blocks that own units name the unit after each group's index, threads that own an element all its axes
 * before. */
static WalkGroup print_group(Kernel *k, Group *g, int number, bool posts)
{
    const IndexId *axes = k_node(k, g->arrays.data[0])->axes;
    bool alone = gemm(k)->w->alone;
    Buf *out = k->out, body = { .arena = out->arena, .indent = alone ? 5 : 3 };
    WalkGroup l = { .number = number, .posts = posts };
    k->walk->early = gemm(k)->fetched = (Buf){ .arena = out->arena, .indent = 2 };
    if (!alone)
        k->walk->once = (Buf){ .arena = out->arena, .indent = 3 };
    k->walk->late = (Buf){ .arena = out->arena, .indent = !alone ? 4 : gemm(k)->w->cluster ? 6 : 5 };
    if (!alone)
        k->own[0] = k_text(k, "i_%s", k->p->m->indices.data[axes[0]].name);
    l.unit = k->own[0];
    l.units = resident_base(k->p->m, gemm(k)->w, g->axes[g->naxes - 1]);
    l.pieces =
        l.units == g->axes[g->naxes - 1] ? 1 : (int)resident_times(k->p->m, g->axes[g->naxes - 1], l.units);
    gemm(k)->pieces = l.pieces;
    if (l.pieces > 1) {
        l.index = k->own[0];
        l.unit = k_text(k, "%s_unit", k->own[0]);
    }
    l.elements = elements_of(k, l.units);
    for (int i = 0; i < g->naxes; i++)
        k->index[axes[i]] = k->own[i];
    k->walk->fields = (Buf){ .arena = out->arena };
    k->walk->reads.len = 0;
    gemm(k)->group = number;
    k->g = g;
    k->b = "b";
    k->row = "bt";
    k->walk->units = axes;
    k->out = gemm(k)->now = &body;
    k_map_body(k);
    k->out = out;
    k->g = NULL;
    l.ahead = k->walk->reads.len;
    l.early = k->walk->early.data;
    l.fetched = gemm(k)->fetched.data;
    l.once = alone ? NULL : k->walk->once.data;
    l.fields = k->walk->fields.data;
    l.body = body.data;
    l.late = k->walk->late.data;
    return l;
}

/* What waits for an operand that the group has made whole. */
static void print_posts(Kernel *k, const WalkGroup *l)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < resident_products(w); i++)
        if (w->nparts ? resident_maker(k->p, k->pr, w->parts[i]) == l->number : l->posts)
            buf_line(k->out, "    %s.post();", object(k, resident_part(w, i)));
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
    bool several = gemm(k)->w->nparts;
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
static void print_seed(Kernel *k, const ResidentWalk *w)
{
    const char *units = units_of(k, w->units);
    TensorId of;
    if (root_kind(k->p->m, w->product->arrays.data[0], &of) != ROOT_DPREV)
        return;
    k_open(k, "for (int n = cell_thread(); n < %s; n += CELL_PANEL_THREADS)", elements_of(k, w->units));
    buf_line(k->out, "const int64_t b = n / %d, unit = %s + n %% %d;", w->own, first_of(k), w->own);
    buf_line(k->out, "if (unit < %s)", units);
    buf_line(k->out, "    %s[n] = %s[((dim_T & 1) * dim_B + b) * %s + unit];", sums_of(k, w),
             k_written(k, REF_CARRY, of, k->p->compute), gemm(k)->w->nparts ? k_poly(k, w->units) : units);
    k_close(k);
}

static const char *product_type(Kernel *k, const ResidentWalk *w)
{
    const char *keep = gemm(k)->w->nparts      ? k_text(k, ", %d, %d", w->batch, resident_keep(gemm(k)->w))
                       : w->batch > PANEL_TURN ? k_text(k, ", %d", w->batch)
                                               : "";
    return k_text(k, "cell_panel<%s, %d, %d, %d, %d%s>", k_type(k->p->dtype), w->inner, w->outer, w->own,
                  w->split, keep);
}

static void print_load(Kernel *k, const ResidentWalk *w)
{
    buf_line(k->out, "%s.load(%s, %s%s%s, %s, %s);", object(k, w), kept_of(k, w), resident_weight(k, w),
             w->weight_offset->nterms ? " + " : "",
             w->weight_offset->nterms ? poly_text(&k->printer, w->weight_offset) : "",
             poly_text(&k->printer, w->row_stride), poly_text(&k->printer, w->k_stride));
}

/* The products share the place where a block's warps leave their shares of a sum. */
static void print_parts(Kernel *k)
{
    const ResidentWalk *w = gemm(k)->w;
    Buf *out = k->out;
    int shares = 0;
    for (int i = 0; i < w->nparts; i++) {
        int own = 8 * (w->parts[i]->outer * w->own * w->parts[i]->split / 8) * 8 * w->batch;
        shares = own > shares ? own : shares;
    }
    buf_line(out, "cell_smem<float> shares_of_all = cell_carve<float>(cursor, %d);", shares);
    buf_line(out, "unsigned int *const counters = reinterpret_cast<unsigned int *>(%s);",
             k_written(k, REF_BUFFER, w->posts, DT_I32));
    for (int i = 0; i < w->nparts; i++) {
        const ResidentWalk *part = w->parts[i];
        buf_line(out, "%s panel_%d;", product_type(k, part), i);
        if (part->weights < i)
            buf_line(out, "panel_%d.carve_again(cursor, panel_%d, counters + %d);", i, part->weights,
                     part->first_post);
        else
            buf_line(out, "panel_%d.carve_one(cursor, shares_of_all, %s, %s, counters + %d);", i,
                     poly_text(&k->printer, part->units), poly_text(&k->printer, part->k_units),
                     part->first_post);
    }
    for (int i = 0; i < w->nspaces; i++)
        buf_line(out, "const int elements_%d = %s < %s ? (int)dim_B * %d : 0;", i, first_of(k),
                 units_of(k, w->spaces[i]), w->own);
}

static void print_sums_place(Kernel *k, const ResidentWalk *part)
{
    buf_line(k->out, "cell_smem<float> %s = cell_carve<float>(cursor, (dim_B + 15) / 16 * %d);",
             sums_of(k, part), 16 * part->outer * part->own);
}

static void print_setup_several(Kernel *k)
{
    const ResidentWalk *w = gemm(k)->w;
    print_parts(k);
    buf_line(k->out, "const int64_t steps = dim_B > 0 ? dim_T : 0;");
    for (int i = 0; i < w->nparts; i++)
        print_sums_place(k, w->parts[i]);
    for (int i = 0; i < w->nparts; i++)
        if (w->parts[i]->weights == i) {
            buf_line(k->out, "decltype(panel_%d)::kept kept_%d;", i, i);
            print_load(k, w->parts[i]);
            if (i + 1 < w->nparts) /* the weights that go to registers pass through the same place */
                buf_line(k->out, "cell_barrier();");
        }
    for (int i = 0; i < w->nparts; i++) {
        print_seed(k, w->parts[i]);
        buf_line(k->out, "panel_%d.start();", i);
    }
    for (int i = 0; i < w->nparts; i++)
        print_marks(k, w->parts[i]);
}

static void print_setup(Kernel *k)
{
    const ResidentWalk *w = gemm(k)->w;
    Buf *out = k->out;
    buf_line(out, "auto cursor = cell_shared();");
    if (w->nparts) {
        print_setup_several(k);
        return;
    }
    buf_line(out, "%s panel;", product_type(k, w));
    buf_line(out, "panel.carve(cursor, %s, reinterpret_cast<unsigned int *>(%s));",
             poly_text(&k->printer, w->units), k_written(k, REF_BUFFER, w->posts, DT_I32));
    if (w->split > 1) /* the last cluster may have blocks without units */
        buf_line(out, "const int elements = panel.first < panel.units ? (int)dim_B * %d : 0;", w->own);
    else
        buf_line(out, "const int elements = (int)dim_B * %d;", w->own);
    buf_line(out, "const int64_t steps = dim_B > 0 ? dim_T : 0;");
    print_sums_place(k, w);
    buf_line(out, "decltype(panel)::kept kept;");
    print_load(k, w);
    print_seed(k, w);
    buf_line(out, "panel.start();");
    print_marks(k, w);
}

static bool is_waited_for(const Kernel *k, int group)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < w->nparts; i++)
        if (resident_maker(k->p, k->pr, w->parts[i]) == group)
            return true;
    return false;
}

WalkGroup *resident_groups(Kernel *k, int *n, int *product)
{
    Program *pr = k->pr;
    WalkGroup *loops = arena_alloc(k->p->m->arena, sizeof *loops * (size_t)(pr->groups.len + 1));
    int all = 0;
    *n = *product = 0;
    for (int i = 0; i < pr->groups.len; i++) {
        if (&pr->groups.data[i] == gemm(k)->w->product)
            *product = all;
        else
            all += pr->groups.data[i].phase == PHASE_DURING;
    }
    int posting = gemm(k)->w->operand_ready ? all - 1 : *product - 1;
    for (int i = 0; i < pr->groups.len; i++)
        if (pr->groups.data[i].phase == PHASE_DURING && pr->groups.data[i].kind == G_MAP) {
            loops[*n] = print_group(k, &pr->groups.data[i], *n,
                                    gemm(k)->w->nparts ? is_waited_for(k, *n) : *n == posting);
            ++*n;
        }
    return loops;
}

/* The products that stand before a group, in their order. */
static void print_products_at(Kernel *k, const WalkGroup *loops, int n, int group)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < resident_products(w); i++)
        if (resident_place(k->pr, resident_part(w, i)) == group)
            print_product(k, loops, n, i);
}

static void print_walk(Kernel *k)
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
    if (gemm(k)->left.len > 0 && gemm(k)->w->nparts)
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

void resident_print(Plan *p, Program *pr, ResidentWalk *w, Buf *out)
{
    Kernel k = kernel_new(p, pr, NULL, &w->refs, out);
    GemmKernel own = { .w = w, .crosses = !w->alone ? resident_crosses(p, pr) : NULL };
    UnitWalk walk;
    walk_begin(&k, &walk);
    k.of_schedule = &own;
    k.hooks = w->alone ? &head_hooks : &grid_hooks;
    k.threads = !w->alone ? PANEL_THREADS : w->cluster ? CLUSTER_THREADS : HEAD_THREADS;
    k_print(&k, w->kernel, w->alone ? print_head : print_walk);
    walk_end(&k);
    kernel_release(&k);
}
