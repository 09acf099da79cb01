/* attention_pairs.c: what the kernels of schedule attention say of a pair of steps: what its score reads,
 * which conditions on steps it has, and what these say of whole tiles. In comes a cut sum; out
 * goes text that CUDA and C share but for what a language calls it (attention_print.h). */
#include <string.h>

#include "attention_print.h"
#include "base/mutate.h"
#include "emit/emit.h"
#include "plan/plan_pass.h"

const AttentionLanguage attention_cuda = { .unused = "[[maybe_unused]] ",
                                           .real = "Real",
                                           .load = "cell_load<Real>",
                                           .distance = "int",
                                           .uses = "x.uses.",
                                           .null = "nullptr",
                                           .least = "cell_least",
                                           .most = "cell_most",
                                           .step = "(int)",
                                           .rows = "",
                                           .result = "" };
const AttentionLanguage attention_c = { .unused = "",
                                        .real = "real",
                                        .load = "cell_load_",
                                        .distance = "int32_t",
                                        .uses = "uses.",
                                        .null = "NULL",
                                        .least = "cell_whole_min",
                                        .most = "cell_whole_max",
                                        .step = "",
                                        .rows = "(cell_attention_rows)",
                                        .result = "(cell_attention_result)" };

const Printing *attention_printing(const Kernel *k)
{
    return k->of_schedule;
}

const AttentionCut *attention_cut_of(const Kernel *k)
{
    return attention_printing(k)->w->cut;
}

const AttentionLanguage *attention_language(const Kernel *k)
{
    return attention_printing(k)->to;
}

/* ---- what the score reads */

/* What the kernel has of a node; NULL: nothing. */
static const char *has(Kernel *k, NodeId id)
{
    const AttentionCut *c = attention_cut_of(k);
    if (id == c->form.dot)
        return "dot";
    for (int i = 0; i < c->reads.len; i++)
        if (c->reads.data[i].node == id || c->reads.data[i].leaf.node == id) {
            const AttentionRead *r = &c->reads.data[i];
            if (r->leaf.side != LEAF_TABLE)
                return k_text(k, "leaf%d", i);
            return attention_language(k) == &attention_c
                       ? k_text(k, "%s_table%d(u, p)", attention_printing(k)->w->facts, i)
                       : k_text(k, "table%d(u, p)", i);
        }
    return NULL;
}

static const char *known(ExprPrinter *e, NodeId id)
{
    return has(e->data, id);
}

static const char *leaf(ExprPrinter *e, NodeId id)
{
    Kernel *k = e->data;
    const char *s = has(k, id);
    if (!s)
        bug(k->p->m->c, "kernels_attention", "a score reads what the kernel does not have");
    return s;
}

static const char *buffer_name(Kernel *k, int id)
{
    const AttentionWalk *w = attention_printing(k)->w;
    return id == w->sums ? "logarithms" : id == w->dots ? "dots" : id == w->parts ? "parts_of_sums" : NULL;
}

static int resident(const Kernel *k)
{
    return attention_resident(k->p, attention_cut_of(k), attention_printing(k)->kernel);
}

Kernel attention_kernel(Plan *p, Program *pr, Printing *x, RefVec *refs, Buf *out)
{
    static const KernelHooks hooks = { .all_steps = true, .resident = resident, .buffer = buffer_name };
    Kernel k = kernel_new(p, pr, NULL, refs, out);
    k.threads = p->request->cpu ? 1 : attention_threads(p, x->w->cut, x->kernel);
    k.hooks = &hooks;
    k.of_schedule = x;
    k.printer.leaf = leaf;
    k.printer.known = known;
    return k;
}

static const char *fields_of(Kernel *k, int i)
{
    return k_text(k, "u.leaf%d", i);
}

static Dtype read_type(Kernel *k, TensorId t)
{
    return plan_storage(k->p, k->pr, &k->p->taken[t])->dtype;
}

/* What loads a real of the operand's type. */
static const char *load_of(Kernel *k, TensorId t, const AttentionLanguage *to)
{
    static const char *const element[] = {
        [DT_F32] = "f32", [DT_BF16] = "bf16", [DT_F16] = "f16", [DT_F64] = "f64"
    };
    return to == &attention_c ? k_text(k, "%s%s", to->load, element[read_type(k, t)]) : to->load;
}

/* Of a value of one step: its text, as a load of it. */
const char *attention_load(Kernel *k, int i)
{
    const AttentionRead *r = &attention_cut_of(k)->reads.data[i];
    const AttentionLanguage *to = attention_language(k);
    const char *u = fields_of(k, i);
    const bool past = r->leaf.side != LEAF_ROW && attention_cut_of(k)->history;
    const char *cast = r->leaf.whole ? "(int64_t)*" : load_of(k, r->operand.now, to),
               *cast_past = !past           ? NULL
                            : r->leaf.whole ? cast
                                            : load_of(k, r->operand.past, to);
    if (r->leaf.side == LEAF_ROW)
        return k_text(k, "%s(%s + p.i * %s_row + p.r * %s_head)", cast, u, u, u);
    const char *now = k_text(k, "%s(%s + p.j * %s_row)", cast, u, u);
    return past ? k_text(k, "p.segment == 0 ? %s : %s(%s_past + p.j * %s_past_row)", now, cast_past, u, u)
                : now;
}

static void bind_steps(Kernel *k, const char *i, const char *j)
{
    k->t = i;
    k->index[attention_cut_of(k)->form.other] = k_text(k, "(t0 + %s)", j);
}

void attention_print_sizes(Kernel *k, bool pair)
{
    const char *unused = attention_language(k)->unused;
    Module *m = k->p->m;
    const AttentionCut *c = attention_cut_of(k);
    for (int i = 0; i < 2 + m->dims.len; i++)
        buf_line(k->out, "%sconst int64_t dim_%s = u.dim_%s;", unused, api_sizes(m)[i], api_sizes(m)[i]);
    buf_line(k->out, "%sconst int64_t t0 = u.t0;", unused);
    for (int i = 0; i < c->form.nheads && pair; i++) {
        const AttentionHead *h = &c->form.heads[i];
        const char *own = poly_is_one(h->shared) ? "" : k_text(k, " * %s + p.r", k_poly(k, h->shared));
        buf_line(k->out, "%sconst int64_t h%d = u.h%d%s;", unused, i, i, own);
        k->index[h->axis] = k_text(k, "h%d", i);
    }
}

void attention_print_pair(Kernel *k)
{
    const AttentionCut *c = attention_cut_of(k);
    const char *unused = attention_language(k)->unused;
    attention_print_sizes(k, true);
    bind_steps(k, "p.i", "p.j");
    const IxExpr *step = c->form.step, *own = ix_index(k->p->m, c->form.other);
    const IxExpr *w = ix_sub(k->p->m, ix_add(k->p->m, step, ix_index(k->p->m, c->form.w)), own);
    const char *type = attention_language(k)->distance;
    buf_line(k->out, "%sconst %s w = %s;", unused, type, k_bare(k, ix_text(&k->printer, w)));
    k->index[c->form.w] = "w";
}

void attention_print_leaf(Kernel *k, int i, const char *value)
{
    const AttentionRead *r = &attention_cut_of(k)->reads.data[i];
    const AttentionLanguage *to = attention_language(k);
    buf_line(k->out, "%sconst %s leaf%d = %s;", to->unused, r->leaf.whole ? "int64_t" : to->real, i, value);
}

const char *attention_table(Kernel *k, int i, const char **inside)
{
    Module *m = k->p->m;
    const AttentionRead *x = &attention_cut_of(k)->reads.data[i];
    const TensorId t = x->operand.now;
    const Read *r = &k->p->taken[t];
    const Storage *st = plan_storage(k->p, k->pr, r);
    const Node root = *k_node(k, m->roots.data[t].output), n = *k_node(k, x->leaf.node);
    const IxExpr *lin = storage_linear(m, r, st);
    *inside = NULL;
    if (n.nmap)
        lin = ix_subst(m, lin, root.axes, n.map, n.nmap);
    for (int a = 0; a < n.nmap; a++) {
        const char *extent = k_poly(k, m->indices.data[root.axes[a]].extent);
        const char *one = k_text(k, "(uint64_t)(%s) < (uint64_t)%s", ix_text(&k->printer, n.map[a]), extent);
        *inside = *inside ? k_text(k, "%s && %s", *inside, one) : one;
    }
    return k_text(k, "%s(%s + %s)", load_of(k, t, attention_language(k)), fields_of(k, i),
                  ix_text(&k->printer, lin));
}

int attention_term_of(const Kernel *k, int read)
{
    const AttentionCut *c = attention_cut_of(k);
    int n = 0;
    for (int i = 0; i < read; i++)
        n += attention_is_term(k->p, &c->reads.data[i]);
    return n;
}

/* ---- conditions */

/* room = rows * i + keys * j + rest, for steps i and j of the call, counted from its first. */
typedef struct Room {
    int rows, keys;
    const char *rest;
} Room;

static bool room_of(Kernel *k, const AttentionCondition *x, Room *out)
{
    Module *m = k->p->m;
    const Attention *a = &attention_cut_of(k)->form;
    if (!x->room)
        return false;
    const Poly *rows = ix_coefficient(m, x->room, IX_TIME), *keys = ix_coefficient(m, x->room, a->other);
    const IxExpr *start = ix_index(m, IX_START), *to[2] = { start, start };
    const IndexId from[2] = { IX_TIME, a->other };
    const IxExpr *rest = ix_subst(m, x->room, from, to, 2);
    for (int i = 0; i < x->room->nterms; i++)
        if (x->room->terms[i].kind != IA_INDEX)
            return false;
    for (int i = 0; i < a->nheads; i++)
        if (ix_uses(rest, a->heads[i].axis))
            return false;
    if (!rows->is_const || !keys->is_const || rows->value < -1 || rows->value > 1 || keys->value < -1 ||
        keys->value > 1)
        return false;
    *out = (Room){ (int)rows->value, (int)keys->value, ix_text(&k->printer, rest) };
    return true;
}

/* The least, or the most, that c times a step of [first, last) is. */
static const char *end_of(Kernel *k, int c, const char *name, bool most)
{
    if (c == 0)
        return "0";
    bool last = (c > 0) == most;
    const char *x = k_text(k, last ? "(int64_t)(%s1 - 1)" : "(int64_t)%s0", name);
    return c > 0 ? x : k_text(k, "-%s", x);
}

/* Narrows the other steps to those that one of the tile's may go with: `x` are the tile's, c their sign. */
static void print_narrow(Kernel *k, int own, int other, const char *rest, const char *tile, const char *name)
{
    const AttentionLanguage *to = attention_language(k);
    const char *most = end_of(k, own, tile, true);
    if (other == 0)
        return;
    if (other > 0) {
        buf_line(k->out, "if (%s0 < -(%s + %s))", name, most, rest);
        buf_line(k->out, "    %s0 = %s%s(%s1, -(%s + %s));", name, to->step, to->least, name, most, rest);
    } else {
        int behind = !mutate("short-tiles");
        buf_line(k->out, "if (%s1 > %s + %s + %d)", name, most, rest, behind);
        buf_line(k->out, "    %s1 = %s%s(%s0, %s + %s + %d);", name, to->step, to->most, name, most, rest,
                 behind);
    }
}

const char *attention_room(Kernel *k, const AttentionCondition *x)
{
    Room r;
    if (!room_of(k, x, &r) || r.rows * r.keys > 0)
        return NULL;
    const char *sum = r.rows && r.keys ? (r.rows > 0 ? "p.i - p.j" : "p.j - p.i")
                      : r.rows         ? (r.rows > 0 ? "p.i" : "-p.i")
                      : r.keys         ? (r.keys > 0 ? "p.j" : "-p.j")
                                       : "0";
    return k_text(k, "%s >= cell_attention_bound(%s)", sum, r.rest);
}

bool attention_is_ranged(Kernel *k, const AttentionCondition *x)
{
    Room r;
    return room_of(k, x, &r);
}

void attention_print_range(Kernel *k, int side)
{
    const AttentionConditions *all = &attention_cut_of(k)->form.conditions;
    attention_print_sizes(k, false);
    for (int i = 0; i < all->len; i++) {
        Room r;
        if (room_of(k, &all->data[i], &r))
            print_narrow(k, side ? r.keys : r.rows, side ? r.rows : r.keys, r.rest, side ? "j" : "i",
                         side ? "i" : "j");
    }
}

/* The integer of an input that a side of a condition is; -1: it is none. */
static int integer_read(const AttentionCut *c, NodeId id)
{
    for (int i = 0; i < c->reads.len; i++)
        if (c->reads.data[i].leaf.whole && c->reads.data[i].leaf.node == id)
            return i;
    return -1;
}

/* The least and the most of an integer over a tile's rows or keys. */
static void print_ends(Kernel *k, int read)
{
    const AttentionCut *c = attention_cut_of(k);
    const bool keys = c->reads.data[read].leaf.side == LEAF_KEY;
    const char *name = k_text(k, "u.leaf%d", read);
    const char *now = k_text(k, "%s, %s_row", name, name);
    const char *side = keys ? "j" : "i";
    if (keys && c->history) {
        buf_line(k->out, "const %s%d = segment == 0 ? cell_attention_ends_of(%s, %s0, %s1)",
                 "cell_attention_ends ends", read, now, side, side);
        buf_line(k->out, "    : cell_attention_ends_of(%s_past, %s_past_row, %s0, %s1);", name, name, side,
                 side);
    } else {
        buf_line(k->out, "const cell_attention_ends ends%d = cell_attention_ends_of(%s, %s0, %s1);", read,
                 now, side, side);
    }
}

/* a == b, a <= b and a < b of integers of both steps hold for no pair of a tile, or for all, by the
 * least and the most of each; false: the condition is none of these. In a tile of several queries a
 * row's integer is that of its step. */
static bool print_integers(Kernel *k, const AttentionCondition *x, bool all)
{
    const AttentionCut *c = attention_cut_of(k);
    const Node n = x->node < 0 ? (Node){ .kind = N_CONST } : *k_node(k, x->node);
    if (x->room || n.kind != N_MAP || (n.op != OP_EQ && n.op != OP_LE && n.op != OP_LT))
        return false;
    const int a = integer_read(c, n.args[0]), b = integer_read(c, n.args[1]);
    if (a < 0 || b < 0 || c->reads.data[a].leaf.side == c->reads.data[b].leaf.side)
        return false;
    const int row = c->reads.data[a].leaf.side == LEAF_ROW ? a : b;
    const char *empty = "i0 < i1 && j0 < j1";
    k_open(k, "if (u.leaf%d_head == 0 && %s)", row, empty);
    print_ends(k, a);
    print_ends(k, b);
    const char *none = n.op == OP_EQ   ? "ends%d.most < ends%d.least || ends%d.most < ends%d.least"
                       : n.op == OP_LE ? "ends%d.least > ends%d.most"
                                       : "ends%d.least >= ends%d.most";
    const char *every = n.op == OP_EQ   ? "ends%d.most != ends%d.least || ends%d.most != ends%d.least"
                        : n.op == OP_LE ? "ends%d.most > ends%d.least"
                                        : "ends%d.most >= ends%d.least";
    const char *holds = mutate("unlike-tiles") ? "true" : k_text(k, all ? every : none, a, b, b, a);
    buf_line(k->out, "if (%s)", holds);
    buf_line(k->out, "    return %s;", all ? "false" : "true");
    if (all) {
        k->out->indent--;
        buf_line(k->out, "} else {");
        k->out->indent++;
        buf_line(k->out, "return false;");
    }
    k_close(k);
    return true;
}

/* Of a tile: whether no pair is there, or all are. */
void attention_print_tiles(Kernel *k, bool all)
{
    const AttentionConditions *of = &attention_cut_of(k)->form.conditions;
    bool sure = true;
    attention_print_sizes(k, false);
    for (int i = 0; i < of->len; i++) {
        Room r;
        if (!room_of(k, &of->data[i], &r))
            continue;
        buf_line(k->out, "if (%s + %s + %s < 0)", end_of(k, r.rows, "i", !all), end_of(k, r.keys, "j", !all),
                 r.rest);
        buf_line(k->out, "    return %s;", all ? "false" : "true");
    }
    for (int i = 0; i < of->len; i++) {
        Room r;
        if (!room_of(k, &of->data[i], &r))
            sure &= print_integers(k, &of->data[i], all);
    }
    buf_line(k->out, "return %s;", all && (sure || mutate("sure-tiles")) ? "true" : "false");
}

void attention_print_uses(Kernel *k)
{
    Module *m = k->p->m;
    const AttentionCut *c = attention_cut_of(k);
    for (int i = 0; i < 2 + m->dims.len; i++)
        buf_line(k->out, "int64_t dim_%s;", api_sizes(m)[i]);
    buf_line(k->out, "int64_t t0;");
    for (int i = 0; i < c->form.nheads; i++)
        buf_line(k->out, "int64_t h%d;", i);
    for (int i = 0; i < c->reads.len; i++) {
        const AttentionRead *r = &c->reads.data[i];
        const char *type = r->leaf.whole ? k_type(m->tensors.data[k_node(k, r->leaf.node)->tensor].dtype)
                                         : k_type(read_type(k, r->operand.now));
        buf_line(k->out, "const %s *leaf%d;", type, i);
        if (r->leaf.side == LEAF_ROW)
            buf_line(k->out, "int64_t leaf%d_row, leaf%d_head;", i, i);
        if (r->leaf.side != LEAF_KEY)
            continue;
        buf_line(k->out, "int64_t leaf%d_row;", i);
        if (!c->history)
            continue;
        buf_line(k->out, "const %s *leaf%d_past;",
                 r->leaf.whole ? type : k_type(read_type(k, r->operand.past)), i);
        buf_line(k->out, "int64_t leaf%d_past_row;", i);
    }
}
