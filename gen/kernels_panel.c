/* kernels_panel.c: CUDA text of the kernel that walks all steps of schedules gemm and scan. In comes a Panel
 * (panel.c); out goes, for gemm, a cooperative kernel whose blocks hold their rows of the product's param in shared
 * memory. A step waits for the blocks that made the product's operand, multiplies, and computes the pointwise groups
 * for the block's own units; the operand is posted as soon as it is stored. What the next step reads and no other
 * block makes is asked for while the block waits. For scan it is a kernel whose threads have an element each, with its
 * state in registers; what several steps read is asked for at once. */
#include <string.h>

#include "kernels.h"
#include "mutate.h"
#include "panel.h"

/* ---- reads ---- */

static const IxExpr *in_units(Kernel *k, const IxExpr *e)
{
    IndexId from[16];
    const IxExpr *to[16];
    int n = 0;
    for (int i = 0; i < e->nterms; i++) {
        const IxTerm *t = &e->terms[i];
        if (t->kind != IA_INDEX || t->index < IX_FIRST || !k->meaning[t->index] || n == 16)
            return NULL;
        from[n] = t->index;
        to[n++] = k->meaning[t->index];
    }
    return ix_subst(k->p->m, e, from, to, n);
}

void panel_enter(Kernel *k, const Node *array, const IxExpr *const *map, const IxExpr **before)
{
    const IxExpr *inside[64];
    for (int i = 0; i < array->naxes; i++)
        inside[i] = k->panel ? in_units(k, map[i]) : NULL;
    for (int i = 0; i < array->naxes; i++) {
        before[i] = k->meaning[array->axes[i]];
        k->meaning[array->axes[i]] = inside[i];
    }
}

void panel_leave(Kernel *k, const Node *array, const IxExpr *const *before)
{
    for (int i = array->naxes - 1; i >= 0; i--)
        k->meaning[array->axes[i]] = before[i];
}

/* The piece of a stacked row that an element lies in, when it is that of the block's own unit. */
static bool own_piece(Kernel *k, const Read *r, int64_t *piece)
{
    const IxExpr *e = in_units(k, read_linear(k->p->m, r));
    return e && panel_piece(k->p->m, e, k->unit, k->panel->units, piece);
}

/* Only elements of the own unit, at this step, are sure to exist, whatever conditions stand around the read. */
const char *panel_read_ahead(Kernel *k, const Read *r, const char *s)
{
    Module *m = k->p->m;
    int64_t piece;
    const Poly *elements = r->is_tensor ? tensor_elements(m, r->id) : array_elements(m, r->id);
    if (!k->panel || k->away || !own_piece(k, r, &piece) || panel_times(m, elements, k->panel->units) <= piece)
        return s;
    int n = 0;
    while (n < k->panel_reads.len && strcmp(k->panel_reads.data[n], s) != 0)
        n++;
    if (n == k->panel_reads.len) {
        vec_push(m->arena, &k->panel_reads, s);
        const char *to = k->panel->product ? k_text(k, "ahead_%d", k->panel_group) : "ahead";
        buf_line(&k->early, "%s[%d] = %s;", to, n, k_bare(k, s));
    }
    return k_text(k, k->panel->product ? "ahead_%d[%d]" : "ahead_%d[u][%d]", k->panel_group, n);
}

const char *panel_sum(Kernel *k, const Read *r)
{
    int64_t piece;
    if (!own_piece(k, r, &piece))
        bug(k->p->m->c, "kernels", "a step reads a product's sum of another unit");
    int first = (int)piece * k->panel->own;
    return k_text(k, first ? "(%s)sums[(int)b * %d + own + %d]" : "(%s)sums[(int)b * %d + own]", k->real,
                  k->panel->outer * k->panel->own, first);
}

bool panel_is_product(const Kernel *k, NodeId id)
{
    return k->panel && k->panel->product && id >= 0 && id == k->panel->product->arrays.data[0];
}

bool panel_carried_here(const Kernel *k, NodeId id)
{
    return k->panel && k->panel->product && id >= 0 && k->pr->group[id] >= 0 &&
           &k->pr->groups.data[k->pr->group[id]] == k->g;
}

/* ---- writes ---- */

bool panel_waits_for(const Kernel *k, const Storage *st)
{
    if (!k->panel->product)
        return false;
    const Storage *x = &k->pr->node[k->panel->operand];
    return st->home == x->home && st->slot == x->slot;
}

/* ---- the product ---- */

/* Sequence b0 + b, piece and unit `own` of the block: to shared memory for the block itself, and to memory for
 * what comes after the steps. */
static void store_sum(Kernel *k)
{
    const Panel *w = k->panel;
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
    const char *row = k_step_row(k, st), *p = k_written(k, REF_NODE, id, st->dtype);
    if (k_may_be_null(k, st))
        buf_line(k->out, "if (%s)", p);
    buf_line(k->out, "%scell_store(%s + %s * %s + piece * panel.units + panel.first + own, sum);",
             k_may_be_null(k, st) ? "    " : "", p, row, k_poly(k, array_elements(m, id)));
}

static const Storage *operand_storage(const Kernel *k)
{
    const Storage *st = &k->pr->node[k->panel->operand];
    return st->home == HOME_NONE ? &k->p->program[FORWARD].node[k->panel->operand] : st;
}

/* The operand of sequence b0 at this step, and how far apart the sequences are. */
static void print_product(Kernel *k)
{
    const Panel *w = k->panel;
    Module *m = k->p->m;
    const Storage *st = operand_storage(k);
    const Buffer *buffer = &k->p->buffers.data[st->slot];
    const Poly *pitch = st->pitch ? st->pitch : array_elements(m, w->operand);
    const Poly *at = st->alias_offset ? poly_add(m, w->operand_offset, st->alias_offset) : w->operand_offset;
    const char *steps = "dim_T";
    if (buffer->ring && k->pr->dir == FORWARD)
        steps = k_text(k, buffer->reserve ? "(all ? dim_T : %d)" : "%d", buffer->ring);
    k_comment(k, w->product->arrays.data[0]);
    buf_line(k->out, "panel.wait(step%s);", w->operand_ready || mutate("early-wait") ? "" : " + 1");
    k_open(k, "for (int64_t b0 = 0; b0 < dim_B; b0 += CELL_PANEL_BATCH)");
    buf_line(k->out, "cell_mma_c shares[panel.tiles];");
    k->b = "b0";
    buf_line(k->out, "panel.multiply(shares, %s + %s * %s%s%s, %s * %s, dim_B - b0);",
             k_pointer(k, REF_NODE, w->operand, st->dtype), k_step_row(k, st), k_poly(k, pitch),
             at->nterms ? " + " : "", at->nterms ? poly_text(&k->printer, at) : "", steps, k_poly(k, pitch));
    k_open(k, "panel.reduce(shares, dim_B - b0, [&](int row, [[maybe_unused]] int piece, int own, float sum)");
    store_sum(k);
    k->out->indent--;
    buf_line(k->out, "});");
    buf_line(k->out, "cell_barrier();");
    k_close(k);
}

/* ---- the pointwise groups ---- */

/* A group, printed but for its loop. */
typedef struct PanelLoop { int number, ahead; const char *unit, *early, *body, *late; bool posts; } PanelLoop;

static PanelLoop print_group(Kernel *k, Group *g, int number, bool posts)
{
    IndexId unit = k_node(k, g->arrays.data[0])->axes[0];
    bool scan = !k->panel->product;      /* deeper in loops */
    Buf *out = k->out, body = { .arena = out->arena, .indent = scan ? 5 : 3 };
    PanelLoop l = { .number = number, .posts = posts };
    l.unit = k_text(k, "i_%s", k->p->m->indices.data[unit].name);
    k->early = (Buf){ .arena = out->arena, .indent = scan ? 4 : 2 };
    k->late = (Buf){ .arena = out->arena, .indent = scan ? 5 : 4 };
    k->panel_reads.len = 0;
    k->panel_group = number;
    k->g = g;
    k->b = "b";
    k->row = "bt";
    k->unit = unit;
    k->index[unit] = l.unit;
    k->out = k->now = &body;
    k_map_body(k);
    k->out = out;
    k->g = NULL;
    l.ahead = k->panel_reads.len;
    l.early = k->early.data;
    l.body = body.data;
    l.late = k->late.data;
    return l;
}

/* The element of a number: a sequence and a unit of the block's own. */
static void print_element(Kernel *k, const PanelLoop *l, const char *number)
{
    int own = k->panel->own;
    buf_line(k->out, "const int64_t n = %s, at = n < elements ? n : elements - 1, b = at / %d;", number, own);
    buf_line(k->out, "const int64_t unit = panel.first + at %% %d;", own);
    buf_line(k->out, "const int64_t %s = unit < panel.units ? unit : panel.units - 1;", l->unit);
}

static void print_read_ahead(Kernel *k, const PanelLoop *l)
{
    if (l->ahead == 0)
        return;
    buf_line(k->out, "%s ahead_%d[%d];", k->real, l->number, l->ahead);
    k_open(k, "const auto read_%d = [&](int64_t b, int64_t %s, int64_t t)", l->number, l->unit);
    buf_line(k->out, "(void)b, (void)%s, (void)t;", l->unit);
    k_declare_rows(k);
    buf_f(k->out, "%s", l->early);
    k->out->indent--;
    buf_line(k->out, "};");
}

static void read_first(Kernel *k, const PanelLoop *l, const char *condition, const char *t)
{
    if (l->ahead == 0)
        return;
    k_open(k, k->panel->split > 1 ? "if (elements > 0 && %s)" : "if (%s)", condition);
    print_element(k, l, "cell_thread()");
    buf_line(k->out, "read_%d(b, %s, %s);", l->number, l->unit, t);
    k_close(k);
}

/* As many elements at a time as the block has threads; threads beyond the last do what it does and store nothing. */
static void print_group_loop(Kernel *k, const PanelLoop *l, const char *next)
{
    k_open(k, "for (int64_t begin = 0; begin < elements; begin += CELL_PANEL_THREADS)");
    print_element(k, l, "begin + cell_thread()");
    buf_line(k->out, "[[maybe_unused]] const int own = (int)%s - panel.first;", l->unit);
    buf_line(k->out, "const bool mine = at == n && %s == unit;", l->unit);
    k_declare_rows(k);
    if (l->ahead) {
        buf_line(k->out, "if (begin > 0)");
        buf_line(k->out, "    read_%d(b, %s, t);", l->number, l->unit);
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
    read_first(k, l, "step + 1 < steps", next);
}

/* ---- the whole ---- */

/* The sums that the first step finds: the adjoint of the final state. */
static void print_seed(Kernel *k)
{
    const Panel *w = k->panel;
    TensorId of;
    if (root_kind(k->p->m, w->product->arrays.data[0], &of) != ROOT_DPREV)
        return;
    k_open(k, "for (int64_t n = cell_thread(); n < elements; n += CELL_PANEL_THREADS)");
    buf_line(k->out, "const int64_t b = n / %d, unit = panel.first + n %% %d;", w->own, w->own);
    buf_line(k->out, "if (unit < panel.units)");
    buf_line(k->out, "    sums[n] = %s[((dim_T & 1) * dim_B + b) * panel.units + unit];",
             k_written(k, REF_CARRY, of, k->p->compute));
    k_close(k);
}

static void print_setup(Kernel *k)
{
    const Panel *w = k->panel;
    Buf *out = k->out;
    buf_line(out, "auto cursor = cell_shared();");
    buf_line(out, "cell_panel<%s, %d, %d, %d, %d> panel;", k_type(k->p->dtype), w->inner, w->outer, w->own,
             w->split);
    buf_line(out, "panel.carve(cursor, %s, reinterpret_cast<unsigned int *>(%s));",
             poly_text(&k->printer, w->units), k_written(k, REF_BUFFER, w->posts, DT_I32));
    if (w->split > 1)             /* the last cluster may have blocks without units */
        buf_line(out, "const int64_t elements = panel.first < panel.units ? dim_B * %d : 0;", w->own);
    else
        buf_line(out, "const int64_t elements = dim_B * %d;", w->own);
    buf_line(out, "const int64_t steps = dim_B > 0 ? dim_T : 0;");
    buf_line(out, "cell_smem<float> sums = cell_carve<float>(cursor, (dim_B + 15) / 16 * %d);",
             16 * w->outer * w->own);
    buf_line(out, "panel.load(%s%s%s, %s, %s);", k_pointer(k, REF_TENSOR, w->weight, k->p->dtype),
             w->weight_offset->nterms ? " + " : "",
             w->weight_offset->nterms ? poly_text(&k->printer, w->weight_offset) : "",
             poly_text(&k->printer, w->row_stride), poly_text(&k->printer, w->k_stride));
    print_seed(k);
    buf_line(out, "panel.start();");
}

/* Which groups are loops, and behind how many of them the product stands. */
static int print_groups(Kernel *k, PanelLoop *loops, int *product)
{
    Program *pr = k->pr;
    int n = 0, all = 0;
    for (int i = 0; i < pr->groups.len; i++) {
        if (&pr->groups.data[i] == k->panel->product)
            *product = all;
        else
            all += pr->groups.data[i].phase == PHASE_DURING;
    }
    int posting = k->panel->operand_ready ? all - 1 : *product - 1;
    for (int i = 0; i < pr->groups.len; i++)
        if (pr->groups.data[i].phase == PHASE_DURING && pr->groups.data[i].kind == G_MAP) {
            loops[n] = print_group(k, &pr->groups.data[i], n, n == posting);
            n++;
        }
    return n;
}

static void print_walk(Kernel *k)
{
    PanelLoop *loops = arena_alloc(k->p->m->arena, sizeof *loops * (size_t)(k->pr->groups.len + 1));
    bool forward = k->pr->dir == FORWARD;
    int product = 0;
    k->one_step = true;
    k->t = "t";
    int n = print_groups(k, loops, &product);
    k->row = NULL;
    print_setup(k);
    for (int i = 0; i < n; i++) {
        print_read_ahead(k, &loops[i]);
        read_first(k, &loops[i], "steps > 0", forward ? "0" : "dim_T - 1");
    }
    k_open(k, "for (int64_t step = 0; step < steps; step++)");
    buf_line(k->out, "const int64_t t = %s;", forward ? "step" : "dim_T - 1 - step");
    for (int i = 0; i <= n; i++) {
        if (i == product)
            print_product(k);
        if (i < n)
            print_group_loop(k, &loops[i], forward ? "t + 1" : "t - 1");
    }
    k_close(k);
}

/* ---- scan ---- */

const char *scan_state(Kernel *k, TensorId s)
{
    return k->panel && !k->panel->product ? k_text(k, "%s_%s", k->pr->dir == FORWARD ? "s" : "d",
                                                   k->p->m->tensors.data[s].name) : NULL;
}

void scan_update(Kernel *k, TensorId s, const char *value)
{
    const char *name = scan_state(k, s);
    if (name)
        buf_line(&k->updates, "%s = %s;", name, value);
}

/* The state before the first step, or the adjoint behind the last. */
static void print_scan_states(Kernel *k)
{
    Plan *p = k->p;
    for (TensorId s = 0; s < p->m->tensors.len; s++) {
        if (p->m->tensors.data[s].kind != T_STATE)
            continue;
        bool forward = k->pr->dir == FORWARD;
        const char *from = forward ? k_pointer(k, REF_INITIAL, s, p->compute) : k_written(k, REF_CARRY, s, p->compute);
        buf_line(k->out, forward ? "%s %s = %s[n];" : "%s %s = %s[(dim_T & 1) * elements + n];", k->real,
                 scan_state(k, s), from);
    }
}

/* Steps whose reads are under way together: as many as registers hold. */
static int scan_depth(const PanelLoop *loops, int n)
{
    int reads = 0;
    for (int i = 0; i < n; i++)
        reads += loops[i].ahead;
    return reads <= 6 ? 8 : reads <= 12 ? 4 : 2;
}

static void print_scan_reads(Kernel *k, const PanelLoop *l, int depth)
{
    if (l->ahead == 0)
        return;
    buf_line(k->out, "%s ahead_%d[%d][%d];", k->real, l->number, depth, l->ahead);
    k_open(k, "const auto read_%d = [&](int64_t t, %s (&ahead)[%d])", l->number, k->real, l->ahead);
    k_declare_rows(k);
    buf_f(k->out, "%s", l->early);
    k->out->indent--;
    buf_line(k->out, "};");
    buf_line(k->out, "CELL_UNROLL");
    buf_line(k->out, "for (int u = 0; u < %d; u++)", depth);
    buf_line(k->out, "    if (begin + u < dim_T)");
    buf_line(k->out, "        read_%d(%s, ahead_%d[u]);", l->number,
             k->pr->dir == FORWARD ? "begin + u" : "dim_T - 1 - begin - u", l->number);
}

static void print_scan(Kernel *k)
{
    PanelLoop *loops = arena_alloc(k->p->m->arena, sizeof *loops * (size_t)(k->pr->groups.len + 1));
    const Panel *w = k->panel;
    int n = 0;
    k->one_step = true;
    k->t = "t";
    k->updates = (Buf){ .arena = k->out->arena, .indent = 5 };
    for (int i = 0; i < k->pr->groups.len; i++)
        if (k->pr->groups.data[i].phase == PHASE_DURING) {
            loops[n] = print_group(k, &k->pr->groups.data[i], n, false);
            n++;
        }
    int depth = scan_depth(loops, n);
    const char *units = poly_text(&k->printer, w->units);
    buf_line(k->out, "const int64_t elements = dim_B * %s;", k_poly(k, w->units));
    k_open(k, "for (int64_t n = cell_block_index(0) * %d + cell_thread(); n < elements; n += cell_block_count(0) * %d)",
           SCAN_THREADS, SCAN_THREADS);
    buf_line(k->out, "const int64_t b = n / (%s), %s = n - b * (%s);", units, loops[0].unit, units);
    for (int i = 1; i < n; i++)
        if (strcmp(loops[i].unit, loops[0].unit) != 0)
            buf_line(k->out, "[[maybe_unused]] const int64_t %s = %s;", loops[i].unit, loops[0].unit);
    print_scan_states(k);
    k_open(k, "for (int64_t begin = 0; begin < dim_T; begin += %d)", depth);
    for (int i = 0; i < n; i++)
        print_scan_reads(k, &loops[i], depth);
    buf_line(k->out, "CELL_UNROLL");
    k_open(k, "for (int u = 0; u < %d; u++)", depth);
    k_open(k, "if (begin + u < dim_T)");
    buf_line(k->out, "const int64_t t = %s;", k->pr->dir == FORWARD ? "begin + u" : "dim_T - 1 - begin - u");
    k_declare_rows(k);
    for (int i = 0; i < n; i++)
        buf_f(k->out, "%s%s", loops[i].body, loops[i].late ? loops[i].late : "");
    buf_f(k->out, "%s", k->updates.data ? k->updates.data : "");
    k_close(k);
    k_close(k);
    k_close(k);
    k_close(k);
}

void emit_panel(Plan *p, Program *pr, Buf *out)
{
    Kernel k = kernel_new(p, pr, NULL, &pr->panel->refs, out);
    k.panel = pr->panel;
    k.threads = pr->panel->product ? PANEL_THREADS : SCAN_THREADS;
    k_print(&k, pr->panel->kernel, pr->panel->product ? print_walk : print_scan);
}
