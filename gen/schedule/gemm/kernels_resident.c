/* kernels_resident.c: CUDA text of resident walks, as far as several share it. In comes a ResidentWalk
 * (resident.h); out go the pointwise groups of its steps but for the loops around them, and the whole
 * kernel, by the printer for where its elements lie (kernels_grid.c, kernels_head.c, kernels_columns.c). */
#include <string.h>

#include "base/mutate.h"
#include "kernels/kernels.h"
#include "kernels_resident.h"
#include "resident.h"

const char *resident_weight(Kernel *k, const ResidentProduct *x)
{
    return k_pointer(k, x->weight.is_tensor ? REF_TENSOR : REF_NODE, x->weight.id, k->p->dtype);
}

const char *resident_weight_from(Kernel *k, const ResidentProduct *x)
{
    const char *weight = resident_weight(k, x);
    if (!x->weight_offset->nterms)
        return weight;
    return k_text(k, "%s + %s", weight, poly_text(&k->printer, x->weight_offset));
}

/* Has a thread one element for all steps? */
static bool has_element(const Kernel *k)
{
    return gemm(k)->w->elements == ELEMENTS_OF_THREAD;
}

const char *resident_sums_name(Kernel *k, const ResidentProduct *x)
{
    return gemm(k)->w->several ? k_text(k, "sums_%d", x->number) : "sums";
}

const char *resident_elements(Kernel *k, const Poly *units)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < w->nspaces && w->several; i++)
        if (w->spaces[i] == units)
            return k_text(k, "elements_%d", i);
    return "elements";
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
    if (!as->timed || !as->from || own || has_element(k))
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
    if (has_element(k) && !as->timed)
        return read_once(k, s);
    bool first;
    int n = k_number(k, &k->walk->reads, as->text, &first);
    if (first) {
        const char *to = has_element(k) ? "ahead" : k_text(k, "ahead_%d", gemm(k)->group);
        buf_line(as->timed ? &k->walk->early : &k->walk->once, "%s.r%d = %s;", to, n, k_bare(k, as->text));
        buf_f(&k->walk->fields, " %s r%d;", as->type, n);
        fetch(k, r, as);
    }
    const char *at = k_text(k, has_element(k) ? "ahead_%d[u].r%d" : "ahead_%d.r%d", gemm(k)->group, n);
    if (as->half)
        at = k_text(k, "%s{(uint16_t)%s}", as->half, at);
    return !as->half && strcmp(as->type, k->real) == 0 ? at : k_text(k, "cell_convert<%s>(%s)", k->real, at);
}

/* Where the reader is in one of several pieces: that of as many pieces further. */
static const char *sum_of_piece(Kernel *k, const ResidentProduct *x, const Read *r)
{
    Module *m = k->p->m;
    const IxExpr *e = walk_in_units(k, read_linear(m, r));
    int64_t further;
    if (!e ||
        !resident_whole_pieces(m, ix_sub(m, e, ix_index(m, k->walk->units[0]))->offset, x->units, &further))
        bug(m->c, "kernels", "a step reads a product's sum of another unit");
    return k_text(k, "(%s)%s[(int)b * %d + own + (piece + %d) * %d]", k->real, resident_sums_name(k, x),
                  x->outer * gemm(k)->w->own, (int)further, gemm(k)->w->own);
}

/* What the product gave for the own unit. */
static const char *sum_text(Kernel *k, const ResidentProduct *x, const Read *r)
{
    int64_t piece;
    if (gemm(k)->pieces > 1)
        return sum_of_piece(k, x, r);
    if (!own_piece(k, r, &piece))
        bug(k->p->m->c, "kernels", "a step reads a product's sum of another unit");
    if (has_element(k))
        return k_text(k, "sum_%d", (int)piece);
    int first = (int)piece * gemm(k)->w->own;
    return k_text(k, first ? "(%s)%s[(int)b * %d + own + %d]" : "(%s)%s[(int)b * %d + own]", k->real,
                  resident_sums_name(k, x), x->outer * gemm(k)->w->own, first);
}

/* The product that gives the value; or NULL. */
static const ResidentProduct *product_of(const Kernel *k, NodeId id)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < w->nproducts && id >= 0; i++)
        if (id == w->products[i].group->arrays.data[0])
            return &w->products[i];
    return NULL;
}

bool resident_is_product(const Kernel *k, NodeId id)
{
    return product_of(k, id);
}

const char *resident_held(Kernel *k, const Read *r)
{
    const Module *m = k->p->m;
    const Tensor *of = r->is_tensor ? &m->tensors.data[r->id] : NULL;
    NodeId id = !of ? r->id : of->kind == T_DNEXT ? m->roots.data[of->of].dprev : -1;
    const ResidentProduct *x = product_of(k, id);
    return x ? sum_text(k, x, r) : NULL;
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

const ResidentProduct *resident_waits(const Kernel *k, const Storage *st, int slot)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < w->nproducts; i++) {
        const Storage *lies = &k->pr->node[w->products[i].operand];
        if (st ? st->home == lies->home && st->slot == lies->slot : lies->slot == slot)
            return &w->products[i];
    }
    return NULL;
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

/* ---- the product ---- */

bool resident_sum_stays(const Kernel *k, const ResidentProduct *x)
{
    const Storage *st = &k->pr->node[x->group->arrays.data[0]];
    const Buffer *kept =
        st->home == HOME_WORKSPACE && k->pr->dir == FORWARD ? &k->p->buffers.data[st->slot] : NULL;
    return kept && kept->ring == 1 && !kept->reserve;
}

/* ---- the pointwise groups ---- */

/* Blocks that own units name the unit after each group's index, threads that own an element all its axes
 * before. */
static WalkGroup print_group(Kernel *k, Group *g, int number, bool posts)
{
    const IndexId *axes = k_node(k, g->arrays.data[0])->axes;
    bool alone = has_element(k);
    Buf *out = k->out, body = { .arena = out->arena };
    WalkGroup l = { .number = number, .posts = posts };
    k->walk->early = k->walk->late = gemm(k)->fetched = (Buf){ .arena = out->arena };
    if (!alone)
        k->walk->once = (Buf){ .arena = out->arena };
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
    l.elements = resident_elements(k, l.units);
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

static bool is_waited_for(const Kernel *k, int group)
{
    const ResidentWalk *w = gemm(k)->w;
    for (int i = 0; i < w->nproducts; i++)
        if (resident_maker(k->p, k->pr, &w->products[i]) == group)
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
        if (&pr->groups.data[i] == gemm(k)->w->products[0].group)
            *product = all;
        else
            all += pr->groups.data[i].phase == PHASE_DURING;
    }
    int posting = gemm(k)->w->products[0].operand_ready ? all - 1 : *product - 1;
    for (int i = 0; i < pr->groups.len; i++)
        if (pr->groups.data[i].phase == PHASE_DURING && pr->groups.data[i].kind == G_MAP) {
            loops[*n] = print_group(k, &pr->groups.data[i], *n,
                                    gemm(k)->w->several ? is_waited_for(k, *n) : *n == posting);
            ++*n;
        }
    return loops;
}

/* What prints by where elements lie. */
static const struct {
    const KernelHooks *hooks;
    void (*print)(Kernel *k);
} printers[] = {
    [ELEMENTS_IN_TURN] = { &grid_hooks, print_grid },
    [ELEMENTS_OF_THREAD] = { &head_hooks, print_head },
    [ELEMENTS_OF_SUMS] = { &columns_hooks, print_columns },
};

static void print_walk(Kernel *k)
{
    k->one_step = true;
    k->t = "t";
    gemm(k)->step_sums.len = 0;
    printers[gemm(k)->w->elements].print(k);
}

void resident_print(Plan *p, Program *pr, ResidentWalk *w, Buf *out)
{
    bool sums = w->elements == ELEMENTS_OF_SUMS, turns = w->elements == ELEMENTS_IN_TURN;
    Kernel k = kernel_new(p, pr, sums ? columns_group(pr) : NULL, &w->refs, out);
    GemmKernel own = { .w = w, .crosses = turns ? resident_crosses(p, pr, w) : NULL };
    UnitWalk walk;
    if (!sums)
        walk_begin(&k, &walk);
    k.of_schedule = &own;
    k.hooks = printers[w->elements].hooks;
    k.threads = w->threads;
    k_print(&k, w->kernel, print_walk);
    if (!sums)
        walk_end(&k);
    kernel_release(&k);
}
