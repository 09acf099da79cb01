/* kernels_panel.c: CUDA text of the kernel that walks all steps of schedule gemm on the whole chip. In comes a Panel
 * (panel.c); out goes a cooperative kernel whose blocks hold their rows of the product's param in shared memory. A
 * step waits for the blocks that made the product's operand, multiplies, and computes the pointwise groups for the
 * block's own units; the operand is posted as soon as it is stored. What the next step reads and no other block makes
 * is asked for while the block waits. The groups of a step are printed here for kernels_alone.c too. */
#include <string.h>

#include "base/mutate.h"
#include "kernels/kernels.h"
#include "gemm_kernels.h"
#include "panel.h"

const char *panel_weight(Kernel *k, const Panel *w)
{
    return k_pointer(k, w->weight.is_tensor ? REF_TENSOR : REF_NODE, w->weight.id, k->p->dtype);
}

/* ---- reads ---- */

/* The piece of a stacked row that an element lies in, when it is that of the block's own unit. */
static bool own_piece(Kernel *k, const Read *r, int64_t *piece)
{
    Module *m = k->p->m;
    const IxExpr *e = walk_in_units(k, read_linear(m, r));
    const Poly *elements = r->is_tensor ? tensor_elements(m, r->id) : array_elements(m, r->id);
    return e && panel_piece(m, e, elements, k->walk->units, gemm(k)->w->naxes, piece);
}

static const char *read_once(Kernel *k, const char *s)
{
    bool first;
    int n = k_number(k, &k->walk->once_reads, s, &first);
    if (first)
        buf_line(&k->walk->once, "const %s once_%d = %s;", k->real, n, k_bare(k, s));
    return k_text(k, "once_%d", n);
}

/* What the thread has not just written itself comes from memory, which takes longer than the tensor cores do. */
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

/* Only elements of the own unit, at this step, are sure to exist, whatever conditions stand around the read. What is
 * ahead is kept as it lies in memory: to convert it would be to wait for it. */
const char *panel_read_ahead(Kernel *k, const Read *r, const char *s, const AheadRead *as)
{
    int64_t piece;
    if (k->away || !own_piece(k, r, &piece))
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

/* What the product gave for the own unit. */
static const char *sum_text(Kernel *k, const Read *r)
{
    int64_t piece;
    if (!own_piece(k, r, &piece))
        bug(k->p->m->c, "kernels", "a step reads a product's sum of another unit");
    if (gemm(k)->w->alone)
        return k_text(k, "sum_%d", (int)piece);
    int first = (int)piece * gemm(k)->w->own;
    return k_text(k, first ? "(%s)sums[(int)b * %d + own + %d]" : "(%s)sums[(int)b * %d + own]", k->real,
                  gemm(k)->w->outer * gemm(k)->w->own, first);
}

bool panel_is_product(const Kernel *k, NodeId id)
{
    return id >= 0 && id == gemm(k)->w->product->arrays.data[0];
}

const char *panel_held(Kernel *k, const Read *r)
{
    const Module *m = k->p->m;
    const Tensor *x = r->is_tensor ? &m->tensors.data[r->id] : NULL;
    NodeId id = !x ? r->id : x->kind == T_DNEXT ? m->roots.data[x->of].dprev : -1;
    return panel_is_product(k, id) ? sum_text(k, r) : NULL;
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

const char *panel_left(Kernel *k, NodeId id, const char *s, bool carried)
{
    if (!crosses(k, id) || !panel_finds(k->pr, (int)(k->g - k->pr->groups.data), id, carried))
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

bool panel_waits_for(const Kernel *k, const Storage *st)
{
    const Storage *x = &k->pr->node[gemm(k)->w->operand];
    return st->home == x->home && st->slot == x->slot;
}

bool panel_leaves_out(const Kernel *k, NodeId id)
{
    return gemm_walks(k->pr)->summed && gemm_walks(k->pr)->summed[id];
}

void panel_store(Kernel *k, NodeId id, const char *value, bool now, const char *condition)
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
    bool gives = gemm(k)->w->marks && k->pr->node[gemm(k)->w->operand].slot == s->slot;
    s->out = gemm(k)->now;
    if (gives)
        s->call = "panel.give(mine, ";
    else
        s->when = k_text(k, "mine && %s", s->when);
}

static void stores(Kernel *k, Stored *s)
{
    if (gemm(k)->w->marks && panel_waits_for(k, s->st))
        s->call = "panel.give(mine, ";
}

static void store(Kernel *k, NodeId id, const char *value)
{
    bool waits = panel_waits_for(k, &k->pr->node[id]);
    panel_store(k, id, value, waits, waits && !gemm(k)->w->marks ? "mine" : NULL);
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

static const KernelHooks panel_hooks = {
    .all_steps = true, .resident = resident, .buffer = buffer, .held = panel_held,
    .ahead = panel_read_ahead, .left = panel_left,
    .stores_next = stores_next, .stores = stores, .store = store, .leaves_out = panel_leaves_out,
    .group_done = step_sums_add,
};

/* ---- what is read ahead ---- */

/* Where a block reads little of the operand, its chain counts. Where it waits for posts first, and then reads much, what is asked
 * for before that arrives meanwhile (measured on an H200, LSTM 1024 backward in f32: 8.3 ms for 8.7). */
static bool reads_behind(const Panel *w)
{
    return w->marks || w->inner % w->split != 0;
}

/* The element of a number: a sequence and a unit of the block's own. */
static void print_element(Kernel *k, const PanelLoop *l, const char *number)
{
    int own = gemm(k)->w->own;
    buf_line(k->out, "const int n = %s, at = n < elements ? n : elements - 1;", number);
    buf_line(k->out, "const int unit = panel.first + at %% %d;", own);
    buf_line(k->out, "const int64_t b = at / %d, %s = unit < panel.units ? unit : panel.units - 1;", own, l->unit);
}

static void print_read_ahead(Kernel *k, const PanelLoop *l)
{
    if (l->ahead == 0)
        return;
    buf_line(k->out, "struct {%s } ahead_%d = {};", l->fields, l->number);
    k_open(k, "const auto read_%d = [&](int64_t b, int64_t %s, int64_t t, bool other)", l->number, l->unit);
    buf_line(k->out, "(void)b, (void)%s, (void)t, (void)other;", l->unit);
    k_declare_rows(k);
    if (l->once) {                    /* the same at all steps */
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

/* The values of the own element at step t: brought near, or read; other: this thread has had another element since it last read,
 * or none. */
static void print_fetch(Kernel *k, const PanelLoop *l, const char *t)
{
    if (!l->fetched)
        return;
    bool once = gemm(k)->w->batch * gemm(k)->w->own <= PANEL_THREADS;
    k_open(k, once ? "if (cell_thread() < elements && step + 1 < steps)"
                   : "for (int begin = cell_thread(); begin < elements && step + 1 < steps; begin += CELL_PANEL_THREADS)");
    print_element(k, l, once ? "cell_thread()" : "begin");
    buf_line(k->out, "fetch_%d(b, %s, %s);", l->number, l->unit, t);
    k_close(k);
}

static void print_read(Kernel *k, const PanelLoop *l, const char *condition, const char *t, const char *other)
{
    if (l->ahead == 0)
        return;
    k_open(k, "if (cell_thread() < elements && %s)", condition);
    print_element(k, l, "cell_thread()");
    buf_line(k->out, "read_%d(b, %s, %s, %s);", l->number, l->unit, t, other);
    k_close(k);
}

/* At the end of a step, where its groups do not read behind the product. */
static void print_next(Kernel *k, const PanelLoop *l, const char *next)
{
    if (reads_behind(gemm(k)->w))
        print_fetch(k, l, next);
    else
        print_read(k, l, "step + 1 < steps", next, "elements > CELL_PANEL_THREADS");
}

/* ---- the product ---- */

/* Is it only the step itself that reads the product? */
bool panel_sum_stays(const Kernel *k)
{
    const Storage *st = &k->pr->node[gemm(k)->w->product->arrays.data[0]];
    const Buffer *kept = st->home == HOME_WORKSPACE && k->pr->dir == FORWARD ? &k->p->buffers.data[st->slot] : NULL;
    return kept && kept->ring == 1 && !kept->reserve;
}

/* Sequence b0 + b, piece and unit `own` of the block: to shared memory for the block itself, and to memory for
 * what comes after the steps. */
static void store_sum(Kernel *k)
{
    const Panel *w = gemm(k)->w;
    Module *m = k->p->m;
    NodeId id = w->product->arrays.data[0];
    const Storage *st = &k->pr->node[id];
    TensorId of;
    buf_line(k->out, "sums[((int)b0 + row) * %d + piece * %d + own] = sum;", w->outer * w->own, w->own);
    if (root_kind(m, id, &of) == ROOT_DPREV) {
        buf_line(k->out, "if (t == 0)");
        buf_line(k->out, "    cell_store(%s + (b0 + row) * %s + panel.first + own, sum);",
                 k_written(k, REF_CARRY, of, k->p->compute), k_poly(k, tensor_elements(m, of)));
        return;
    }
    k->b = "(b0 + row)";
    if (panel_sum_stays(k))
        return;
    const char *row = k_step_row(k, st), *p = k_written(k, REF_NODE, id, st->dtype);
    if (k_may_be_null(k, st))
        buf_line(k->out, "if (%s)", p);
    buf_line(k->out, "%scell_store(%s + %s * %s + piece * panel.units + panel.first + own, sum);",
             k_may_be_null(k, st) ? "    " : "", p, row, k_poly(k, array_elements(m, id)));
}

static const Storage *operand_storage(const Kernel *k)
{
    const Storage *st = &k->pr->node[gemm(k)->w->operand];
    return st->home == HOME_NONE ? &k->p->program[FORWARD].node[gemm(k)->w->operand] : st;
}

/* Where the operand of all sequences begins, and how far apart the steps are. */
static const char *operand_at(Kernel *k, const Storage *st, const char *row)
{
    const Panel *w = gemm(k)->w;
    const Poly *at = st->alias_offset ? poly_add(k->p->m, w->operand_offset, st->alias_offset) : w->operand_offset;
    const char *p = w->marks ? k_written(k, REF_NODE, w->operand, st->dtype)
                             : k_pointer(k, REF_NODE, w->operand, st->dtype);
    p = row ? k_text(k, "%s + %s", p, row) : p;
    return at->nterms ? k_text(k, "%s + %s", p, poly_text(&k->printer, at)) : p;
}

static const char *operand_pitch(Kernel *k, const Storage *st)
{
    return k_poly(k, st->pitch ? st->pitch : array_elements(k->p->m, gemm(k)->w->operand));
}

/* While tensor cores work: what the groups behind the product read of this step, and those before it of the next. Reads that
 * were asked for earlier would hold up those of the operand, since a warp gets its answers in order; at the end of the step before
 * they are only brought near (print_next). */
static void read_meanwhile(Kernel *k, const PanelLoop *loops, int n, int product)
{
    const char *next = k->pr->dir == FORWARD ? "t + 1" : "t - 1";
    for (int i = 0; i < n; i++)
        if (i < product)
            print_read(k, &loops[i], "b0 == 0 && step + 1 < steps", next, "elements > CELL_PANEL_THREADS");
        else
            print_read(k, &loops[i], "b0 == 0", "t", "step == 0 || elements > CELL_PANEL_THREADS");
}

/* The operand of sequence b0 at this step, and how far apart the sequences are. */
static void print_product(Kernel *k, const PanelLoop *loops, int n, int product)
{
    const Panel *w = gemm(k)->w;
    const Storage *st = operand_storage(k);
    const Buffer *buffer = &k->p->buffers.data[st->slot];
    const char *pitch = operand_pitch(k, st), *steps = "dim_T";
    if (buffer->ring && k->pr->dir == FORWARD)
        steps = k_text(k, buffer->reserve ? "(all ? dim_T : %d)" : "%d", buffer->ring);
    k_comment(k, w->product->arrays.data[0]);
    buf_line(k->out, "panel.wait(step%s);", w->operand_ready || mutate("early-wait") ? "" : " + 1");
    k_open(k, "for (int64_t b0 = 0; b0 < dim_B; b0 += panel.batch)");
    buf_line(k->out, "cell_mma_c shares[panel.results];");
    k->b = "b0";
    buf_line(k->out, "panel.multiply(shares, kept, %s, %s * %s, dim_B - b0);",
             operand_at(k, st, k_text(k, "%s * %s", k_step_row(k, st), pitch)), steps, pitch);
    if (reads_behind(w))
        read_meanwhile(k, loops, n, product);
    k_open(k, "panel.reduce(shares, dim_B - b0, [&](int row, [[maybe_unused]] int piece, int own, float sum)");
    store_sum(k);
    k->out->indent--;
    buf_line(k->out, "});");
    buf_line(k->out, "cell_barrier();");
    k_close(k);
}

/* Behind the setup. A ring of steps is not marked: its rows are written more than once. */
static void print_marks(Kernel *k)
{
    const Storage *st = operand_storage(k);
    const Buffer *buffer = &k->p->buffers.data[st->slot];
    bool ring = buffer->ring && k->pr->dir == FORWARD;
    if (!gemm(k)->w->marks || (ring && !buffer->reserve))
        return;
    if (ring)
        buf_line(k->out, "if (all)");
    buf_line(k->out, "%spanel.mark(%s, %s, dim_B, dim_T, %s);", ring ? "    " : "", operand_at(k, st, NULL),
             operand_pitch(k, st), gemm(k)->w->operand_ready ? k_time_row(k, "0", 0) : "-1");
}

/* ---- the pointwise groups ---- */

/* Blocks that own units name the unit after each group's index, threads that own an element all its axes before. */
static PanelLoop print_group(Kernel *k, Group *g, int number, bool posts)
{
    const IndexId *axes = k_node(k, g->arrays.data[0])->axes;
    bool alone = gemm(k)->w->alone;
    Buf *out = k->out, body = { .arena = out->arena, .indent = alone ? 5 : 3 };
    PanelLoop l = { .number = number, .posts = posts };
    k->walk->early = gemm(k)->fetched = (Buf){ .arena = out->arena, .indent = 2 };
    if (!alone)
        k->walk->once = (Buf){ .arena = out->arena, .indent = 3 };
    k->walk->late = (Buf){ .arena = out->arena, .indent = !alone ? 4 : gemm(k)->w->cluster ? 6 : 5 };
    if (!alone)
        k->own[0] = k_text(k, "i_%s", k->p->m->indices.data[axes[0]].name);
    l.unit = k->own[0];
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

/* As many elements at a time as the block has threads; threads beyond the last do what it does and store nothing. */
static void print_group_loop(Kernel *k, const PanelLoop *l, const char *next)
{
    k_open(k, "for (int begin = 0; begin < elements; begin += CELL_PANEL_THREADS)");
    print_element(k, l, "begin + cell_thread()");
    buf_line(k->out, "[[maybe_unused]] const int own = (int)%s - panel.first;", l->unit);
    buf_line(k->out, "const bool mine = at == n && %s == unit;", l->unit);
    k_declare_rows(k);
    if (l->ahead) {
        buf_line(k->out, "if (begin > 0)");
        buf_line(k->out, "    read_%d(b, %s, t, true);", l->number, l->unit);
    }
    buf_f(k->out, "%s", l->body);
    if (l->posts) {
        buf_line(k->out, "if (begin + CELL_PANEL_THREADS >= elements)");
        buf_line(k->out, "    panel.post();");
    }
    if (l->late) {
        buf_line(k->out, "if (mine) {");
        buf_f(k->out, "%s", l->late);
        buf_line(k->out, "}");
    }
    k_close(k);
    print_next(k, l, next);
}

/* A thread has added up all of its sequences: the first has the sums, the others nothing. */
static void print_sums(Kernel *k, const PanelLoop *l)
{
    if (!step_sums_of(k, l->number))
        return;
    k_open(k, "for (int begin = cell_thread(); begin < elements; begin += CELL_PANEL_THREADS)");
    print_element(k, l, "begin");
    k_open(k, "if (%s == unit)", l->unit);
    step_sums_store(k, l->number, mutate("every-sequence") ? "" : "n >= CELL_PANEL_THREADS ? 0 : ");
    k_close(k);
    k_close(k);
}

/* ---- the whole ---- */

/* The sums that the first step finds: the adjoint of the final state. */
static void print_seed(Kernel *k)
{
    const Panel *w = gemm(k)->w;
    TensorId of;
    if (root_kind(k->p->m, w->product->arrays.data[0], &of) != ROOT_DPREV)
        return;
    k_open(k, "for (int n = cell_thread(); n < elements; n += CELL_PANEL_THREADS)");
    buf_line(k->out, "const int64_t b = n / %d, unit = panel.first + n %% %d;", w->own, w->own);
    buf_line(k->out, "if (unit < panel.units)");
    buf_line(k->out, "    sums[n] = %s[((dim_T & 1) * dim_B + b) * panel.units + unit];",
             k_written(k, REF_CARRY, of, k->p->compute));
    k_close(k);
}

static void print_setup(Kernel *k)
{
    const Panel *w = gemm(k)->w;
    Buf *out = k->out;
    buf_line(out, "auto cursor = cell_shared();");
    buf_line(out, "cell_panel<%s, %d, %d, %d, %d%s> panel;", k_type(k->p->dtype), w->inner, w->outer, w->own, w->split,
             w->batch > PANEL_TURN ? k_text(k, ", %d", w->batch) : "");
    buf_line(out, "panel.carve(cursor, %s, reinterpret_cast<unsigned int *>(%s));",
             poly_text(&k->printer, w->units), k_written(k, REF_BUFFER, w->posts, DT_I32));
    if (w->split > 1)             /* the last cluster may have blocks without units */
        buf_line(out, "const int elements = panel.first < panel.units ? (int)dim_B * %d : 0;", w->own);
    else
        buf_line(out, "const int elements = (int)dim_B * %d;", w->own);
    buf_line(out, "const int64_t steps = dim_B > 0 ? dim_T : 0;");
    buf_line(out, "cell_smem<float> sums = cell_carve<float>(cursor, (dim_B + 15) / 16 * %d);",
             16 * w->outer * w->own);
    buf_line(out, "decltype(panel)::kept kept;");
    buf_line(out, "panel.load(kept, %s%s%s, %s, %s);", panel_weight(k, w),
             w->weight_offset->nterms ? " + " : "",
             w->weight_offset->nterms ? poly_text(&k->printer, w->weight_offset) : "",
             poly_text(&k->printer, w->row_stride), poly_text(&k->printer, w->k_stride));
    print_seed(k);
    buf_line(out, "panel.start();");
    print_marks(k);
}

PanelLoop *panel_groups(Kernel *k, int *n, int *product)
{
    Program *pr = k->pr;
    PanelLoop *loops = arena_alloc(k->p->m->arena, sizeof *loops * (size_t)(pr->groups.len + 1));
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
            loops[*n] = print_group(k, &pr->groups.data[i], *n, *n == posting);
            ++*n;
        }
    return loops;
}

static void print_walk(Kernel *k)
{
    bool forward = k->pr->dir == FORWARD;
    int n, product;
    k->one_step = true;
    k->t = "t";
    gemm(k)->step_sums.len = 0;
    PanelLoop *loops = panel_groups(k, &n, &product);
    k->row = NULL;
    print_setup(k);
    step_sums_declare(k);
    if (gemm(k)->left.len > 0)
        buf_line(k->out, "const bool alone = elements <= CELL_PANEL_THREADS;");
    for (int i = 0; i < gemm(k)->left.len; i++)
        buf_line(k->out, "%s left_%d = 0;", k->real, i);
    for (int i = 0; i < n; i++) {
        print_read_ahead(k, &loops[i]);
        if (i < product || !reads_behind(gemm(k)->w))
            print_read(k, &loops[i], "steps > 0", forward ? "0" : "dim_T - 1", "true");
    }
    k_open(k, "for (int64_t step = 0; step < steps; step++)");
    buf_line(k->out, "const int64_t t = %s;", forward ? "step" : "dim_T - 1 - step");
    for (int i = 0; i <= n; i++) {
        if (i == product)
            print_product(k, loops, n, product);
        if (i < n)
            print_group_loop(k, &loops[i], forward ? "t + 1" : "t - 1");
    }
    k_close(k);
    for (int i = 0; i < n; i++)
        print_sums(k, &loops[i]);
}

void panel_print(Plan *p, Program *pr, Panel *w, Buf *out)
{
    Kernel k = kernel_new(p, pr, NULL, &w->refs, out);
    GemmKernel own = { .w = w, .crosses = !w->alone ? panel_crosses(p, pr) : NULL };
    UnitWalk walk;
    walk_begin(&k, &walk);
    k.of_schedule = &own;
    k.hooks = w->alone ? &alone_hooks : &panel_hooks;
    k.threads = !w->alone ? PANEL_THREADS : w->cluster ? CLUSTER_THREADS : HEAD_THREADS;
    k_print(&k, w->kernel, w->alone ? print_alone : print_walk);
    walk_end(&k);
    kernel_release(&k);
}
