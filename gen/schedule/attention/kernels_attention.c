/* kernels_attention.c: the kernels of schedule attention. In comes what a plan has of them
 * (attention_plan.c); out goes, for each sum, a struct of facts with the score of a pair, its gradients, its
 * conditions, and what these say of whole tiles, and thin kernels: they find the head of their block, say
 * where its operands lie, and call the device library (cell_device_attention.cuh). */
#include <string.h>

#include "../../../runtime/cell_attention_sizes.h"
#include "attention_plan.h"
#include "base/mutate.h"
#include "emit/emit.h"
#include "kernels/kernels.h"
#include "plan/plan_pass.h"

typedef struct Printing {
    const AttentionWalk *w;
    AttentionKernel kernel;
} Printing;

static const Printing *printing(const Kernel *k)
{
    return k->of_schedule;
}

static const AttentionCut *cut_of(const Kernel *k)
{
    return printing(k)->w->cut;
}

static const char *buffer_name(Kernel *k, int id)
{
    const AttentionWalk *w = printing(k)->w;
    return id == w->sums ? "logarithms" : id == w->dots ? "dots" : NULL;
}

static int resident(const Kernel *k)
{
    return attention_resident(k->p, cut_of(k), printing(k)->kernel);
}

static const KernelHooks hooks = { .all_steps = true, .resident = resident, .buffer = buffer_name };

/* ---- where things lie */

/* Texts: of the first step's element at the block's head, and the strides; `head`: from one query of the
 * keys' head to the next. */
typedef struct Place {
    const char *at, *row, *head, *element;
    bool real;
    const char *given; /* the pointer, where it may be null; or NULL */
} Place;

static const char *sum(Kernel *k, const char *a, const char *b)
{
    return strcmp(a, "0") == 0 ? b : strcmp(b, "0") == 0 ? a : k_text(k, "%s + %s", a, b);
}

static const char *times(Kernel *k, const char *a, const Poly *n)
{
    if (strcmp(a, "0") == 0 || (n->is_const && n->value == 0))
        return "0";
    return n->is_const && n->value == 1 ? a : k_text(k, "%s * %s", a, k_poly(k, n));
}

static const Poly *coefficient(Module *m, const IxExpr *lin, IndexId i)
{
    for (int k = 0; k < lin->nterms; k++)
        if (lin->terms[k].kind == IA_INDEX && lin->terms[k].index == i)
            return lin->terms[k].coef;
    return poly_const(m, 0);
}

/* What axes of an operand are. */
typedef enum { OF_ROWS, OF_KEYS, OF_PAST } Operand;

/* The first element of the block's head: `axes` are those of the heads, with strides. */
static const char *head_place(Kernel *k, Operand of, const Poly *const *stride)
{
    const AttentionCut *c = cut_of(k);
    const char *place = "0";
    int n = of == OF_ROWS ? c->form.nheads : c->n_key_heads;
    for (int i = 0; i < n; i++) {
        int head = of == OF_ROWS ? i : c->key_of[i];
        const Poly *each = of == OF_ROWS ? poly_mul(k->p->m, c->form.heads[i].shared, stride[i]) : stride[i];
        place = sum(k, place, times(k, k_text(k, "h%d", head), each));
    }
    return place;
}

/* From one query of the keys' head to the next. */
static const char *query_stride(Kernel *k, const Poly *const *stride)
{
    const AttentionCut *c = cut_of(k);
    for (int i = 0; i < c->form.nheads; i++)
        if (!poly_is_one(c->form.heads[i].shared))
            return k_poly(k, stride[i]);
    return "0";
}

/* With `row` elements from step to step, of `pitch` for each sequence's rows. */
static Place place_at(Kernel *k, Operand of, const char *pointer, const Poly *const *stride, const Poly *row,
                      const Poly *pitch, bool batched, bool timed)
{
    bool reverse = k->p->m->c->reverse && timed;
    const char *at = head_place(k, of, stride);
    if (batched && timed)
        at = sum(k, k_text(k, "(b * dim_T%s) * %s", reverse ? " + dim_T - 1" : "", k_poly(k, pitch)), at);
    else if (batched)
        at = sum(k, times(k, "b", pitch), at);
    Place x = { .head = of == OF_ROWS ? query_stride(k, stride) : "0" };
    const char *step = timed ? k_poly(k, pitch) : "0";
    x.row = reverse ? k_text(k, "-%s", step) : step;
    if (of == OF_PAST)
        x.row = k_poly(k, row);
    x.at = strcmp(at, "0") == 0 ? pointer : k_text(k, "%s + %s", pointer, at);
    return x;
}

/* The history that an operand of steps before the call is one of: does it have step j at place j? */
static bool grows(const Kernel *k)
{
    const Module *m = k->p->m;
    const AttentionCut *c = cut_of(k);
    for (NodeId id = 0; id < c->form.sum; id++) {
        const Node *n = k_node(k, id);
        if (n->step && n->past >= 0 && m->tensors.data[n->past].axes[0] == m->tensors.data[c->k.past].axes[0])
            return m->tensors.data[n->past].grows;
    }
    return true;
}

/* Of steps before the call, -1 is the last: its row, where place j is step j, or j + 1 steps before. */
static void turn_past(Kernel *k, Place *x)
{
    const char *row = x->row;
    if (grows(k)) {
        x->at = k_text(k, "%s + t0 * %s", x->at, row);
    } else {
        x->at = k_text(k, "%s - %s", x->at, row);
        x->row = k_text(k, "-%s", row);
    }
}

/* Where the root of a tensor lies that the kernels take. */
static Place place_of(Kernel *k, TensorId t, Operand of)
{
    Plan *p = k->p;
    Module *m = p->m;
    const Read *r = &p->taken[t];
    const Storage *st = plan_storage(p, k->pr, r);
    NodeId id = m->tensors.data[t].kind == T_OUTPUT ? m->roots.data[t].output : m->roots.data[t].dinput;
    const Node root = *k_node(k, id);
    const IxExpr *lin = storage_linear(m, r, st);
    const Poly *pitch = st->pitch      ? st->pitch
                        : r->is_tensor ? tensor_elements(m, r->id)
                                       : array_elements(m, r->id);
    const Poly *stride[MAX_DIMS + 64] = { NULL };
    const int first = of == OF_PAST;
    for (int i = first; i < root.naxes; i++)
        stride[i - first] = coefficient(m, lin, root.axes[i]);
    const char *from = k_pointer(k, r->is_tensor ? REF_TENSOR : REF_NODE, r->id, st->dtype);
    const char *offset = lin->offset->nterms ? k_poly(k, lin->offset) : "0";
    const char *base = strcmp(offset, "0") == 0 ? from : k_text(k, "%s + %s", from, offset);
    Place x = place_at(k, of, base, stride, first ? coefficient(m, lin, root.axes[0]) : NULL, pitch,
                       st->batched, st->timed);
    int heads = of == OF_ROWS ? cut_of(k)->form.nheads : cut_of(k)->n_key_heads;
    x.element = root.naxes - first > heads ? k_poly(k, stride[root.naxes - first - 1]) : "0";
    x.real = st->dtype == p->compute;
    if (r->is_tensor && (m->tensors.data[r->id].kind == T_DOUT || m->tensors.data[r->id].kind == T_HISTORY))
        x.given = from;
    if (of == OF_PAST)
        turn_past(k, &x);
    return x;
}

/* Where a tensor lies, [B, T, axes] or [B, place, axes], that the kernels write; `from` NULL. */
static Place rows_place(Kernel *k, TensorId t, Operand of, bool written)
{
    Module *m = k->p->m;
    const Tensor *x = &m->tensors.data[t];
    const Storage *st = &k->pr->tensor[t];
    const Poly *stride[MAX_DIMS + 64] = { NULL }, *n = poly_const(m, 1);
    const int first = of == OF_PAST;
    for (int i = x->rank - 1; i >= first; i--) {
        stride[i - first] = n;
        n = poly_mul(m, n, x->axes[i]);
    }
    const char *pointer = (written ? k_written : k_pointer)(k, REF_TENSOR, t, st->dtype);
    Place at = place_at(k, of, pointer, stride, n, first ? poly_mul(m, n, x->axes[0]) : n, true, !first);
    at.element = "1";
    at.real = st->dtype == k->p->compute;
    if (first)
        turn_past(k, &at);
    return at;
}

/* ---- the score */

/* What the kernel has of a node; NULL: nothing. */
static const char *has(Kernel *k, NodeId id)
{
    const AttentionCut *c = cut_of(k);
    if (id == c->form.dot)
        return "dot";
    for (int i = 0; i < c->reads.len; i++)
        if (c->reads.data[i].node == id || c->reads.data[i].leaf.node == id) {
            const AttentionRead *r = &c->reads.data[i];
            return r->leaf.side == LEAF_TABLE ? k_text(k, "table%d(u, p)", i) : k_text(k, "leaf%d", i);
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

static const char *fields_of(Kernel *k, int i)
{
    return k_text(k, "u.leaf%d", i);
}

static Dtype read_type(Kernel *k, TensorId t)
{
    return plan_storage(k->p, k->pr, &k->p->taken[t])->dtype;
}

/* Of a value of one step: its text, as a load of it. */
static const char *load_text(Kernel *k, int i)
{
    const AttentionRead *r = &cut_of(k)->reads.data[i];
    const char *u = fields_of(k, i);
    const char *cast = r->leaf.whole ? "(int64_t)*" : "cell_load<Real>";
    if (r->leaf.side == LEAF_ROW)
        return k_text(k, "%s(%s + p.i * %s_row + p.r * %s_head)", cast, u, u, u);
    const char *now = k_text(k, "%s(%s + p.j * %s_row)", cast, u, u);
    if (!cut_of(k)->history)
        return now;
    return k_text(k, "p.segment == 0 ? %s : %s(%s_past + p.j * %s_past_row)", now, cast, u, u);
}

static void bind_steps(Kernel *k, const char *i, const char *j)
{
    k->t = i;
    k->index[cut_of(k)->form.other] = k_text(k, "(t0 + %s)", j);
}

/* Sizes and the pair's heads, for what is printed in a function of the struct. */
static void print_sizes(Kernel *k, bool pair)
{
    Module *m = k->p->m;
    const AttentionCut *c = cut_of(k);
    for (int i = 0; i < 2 + m->dims.len; i++)
        buf_line(k->out, "[[maybe_unused]] const int64_t dim_%s = u.dim_%s;", api_sizes(m)[i],
                 api_sizes(m)[i]);
    buf_line(k->out, "[[maybe_unused]] const int64_t t0 = u.t0;");
    for (int i = 0; i < c->form.nheads && pair; i++) {
        const AttentionHead *h = &c->form.heads[i];
        const char *own = poly_is_one(h->shared) ? "" : k_text(k, " * %s + p.r", k_poly(k, h->shared));
        buf_line(k->out, "[[maybe_unused]] const int64_t h%d = u.h%d%s;", i, i, own);
        k->index[h->axis] = k_text(k, "h%d", i);
    }
}

static void print_pair(Kernel *k)
{
    const AttentionCut *c = cut_of(k);
    print_sizes(k, true);
    bind_steps(k, "p.i", "p.j");
    const IxExpr *step = c->form.step, *own = ix_index(k->p->m, c->form.other);
    const IxExpr *w = ix_sub(k->p->m, ix_add(k->p->m, step, ix_index(k->p->m, c->form.w)), own);
    buf_line(k->out, "[[maybe_unused]] const int64_t w = %s;", k_bare(k, ix_text(&k->printer, w)));
    k->index[c->form.w] = "w";
    for (int i = 0; i < c->reads.len; i++)
        if (c->reads.data[i].leaf.side != LEAF_TABLE)
            buf_line(k->out, "[[maybe_unused]] const %s leaf%d = %s;",
                     c->reads.data[i].leaf.whole ? "int64_t" : "Real", i, load_text(k, i));
}

static void open_function(Kernel *k, const char *gives, const char *name, const char *args)
{
    k_open(k, "static __device__ __forceinline__ %s %s(const Uses &u, %s)", gives, name, args);
}

static void print_table(Kernel *k, int i)
{
    Module *m = k->p->m;
    const AttentionRead *x = &cut_of(k)->reads.data[i];
    const TensorId t = x->operand.now;
    const Read *r = &k->p->taken[t];
    const Storage *st = plan_storage(k->p, k->pr, r);
    const Node root = *k_node(k, m->roots.data[t].output), n = *k_node(k, x->leaf.node);
    const IxExpr *lin = storage_linear(m, r, st);
    open_function(k, "Real", k_text(k, "table%d", i), "const cell_attention_pair &p");
    print_sizes(k, true);
    bind_steps(k, "p.i", "p.j");
    const IxExpr *w = ix_sub(m, ix_add(m, cut_of(k)->form.step, ix_index(m, cut_of(k)->form.w)),
                             ix_index(m, cut_of(k)->form.other));
    buf_line(k->out, "[[maybe_unused]] const int64_t w = %s;", k_bare(k, ix_text(&k->printer, w)));
    k->index[cut_of(k)->form.w] = "w";
    if (n.nmap)
        lin = ix_subst(m, lin, root.axes, n.map, n.nmap);
    buf_line(k->out, "return cell_load<Real>(%s + %s);", fields_of(k, i), ix_text(&k->printer, lin));
    k_close(k);
}

static int term_of(const Kernel *k, int read)
{
    const AttentionCut *c = cut_of(k);
    int n = 0;
    for (int i = 0; i < read; i++)
        n += attention_is_term(k->p, &c->reads.data[i]);
    return n;
}

static void print_score(Kernel *k)
{
    const AttentionCut *c = cut_of(k);
    open_function(k, "Real", "score", "[[maybe_unused]] Real dot, const cell_attention_pair &p");
    print_pair(k);
    buf_line(k->out, "return %s;", k_bare(k, expr_text(&k->printer, c->score)));
    k_close(k);
    open_function(k, "Real", "back",
                  "[[maybe_unused]] Real dot, const cell_attention_pair &p, Real d, "
                  "[[maybe_unused]] Real (&g)[terms ? terms : 1]");
    print_pair(k);
    for (int i = 0; i < c->reads.len; i++)
        if (attention_is_term(k->p, &c->reads.data[i]))
            buf_line(k->out, "g[%d] = d * (%s);", term_of(k, i),
                     expr_text(&k->printer, c->reads.data[i].slope));
    buf_line(k->out, "return d * (%s);", expr_text(&k->printer, c->slope));
    k_close(k);
    open_function(k, "Real", "sink_score", "int, int");
    buf_line(k->out, "(void)u;");
    buf_line(k->out, "return 0;");
    k_close(k);
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
    const Attention *a = &cut_of(k)->form;
    if (!x->room)
        return false;
    const Poly *rows = coefficient(m, x->room, IX_TIME), *keys = coefficient(m, x->room, a->other);
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
    const char *most = end_of(k, own, tile, true);
    if (other == 0)
        return;
    if (other > 0) {
        buf_line(k->out, "if (%s0 < -(%s + %s))", name, most, rest);
        buf_line(k->out, "    %s0 = (int)cell_least(%s1, -(%s + %s));", name, name, most, rest);
    } else {
        int behind = !mutate("short-tiles");
        buf_line(k->out, "if (%s1 > %s + %s + %d)", name, most, rest, behind);
        buf_line(k->out, "    %s1 = (int)cell_most(%s0, %s + %s + %d);", name, name, most, rest, behind);
    }
}

static void print_ranges(Kernel *k)
{
    const AttentionConditions *all = &cut_of(k)->form.conditions;
    static const char *const name[2] = { "keys_of", "steps_of" };
    static const char *const args[2] = {
        "[[maybe_unused]] int segment, [[maybe_unused]] int i0, [[maybe_unused]] int i1, int &j0, int &j1",
        "[[maybe_unused]] int segment, [[maybe_unused]] int j0, [[maybe_unused]] int j1, int &i0, int &i1"
    };
    buf_line(k->out, "static __device__ __forceinline__ int64_t cell_least(int64_t a, int64_t b) { return a "
                     "< b ? a : b; }");
    buf_line(k->out, "static __device__ __forceinline__ int64_t cell_most(int64_t a, int64_t b) { return a > "
                     "b ? a : b; }");
    for (int side = 0; side < 2; side++) {
        open_function(k, "void", name[side], args[side]);
        print_sizes(k, false);
        for (int i = 0; i < all->len; i++) {
            Room r;
            if (room_of(k, &all->data[i], &r))
                print_narrow(k, side ? r.keys : r.rows, side ? r.rows : r.keys, r.rest, side ? "j" : "i",
                             side ? "i" : "j");
        }
        k_close(k);
    }
}

/* Of a tile: whether no pair is there, or all are. */
static void print_tiles(Kernel *k, bool all)
{
    const AttentionConditions *of = &cut_of(k)->form.conditions;
    bool sure = true;
    open_function(k, "bool", all ? "all" : "none",
                  "[[maybe_unused]] int segment, [[maybe_unused]] int i0, [[maybe_unused]] int i1, "
                  "[[maybe_unused]] int j0, [[maybe_unused]] int j1");
    print_sizes(k, false);
    for (int i = 0; i < of->len; i++) {
        Room r;
        if (!room_of(k, &of->data[i], &r)) {
            sure = false;
            continue;
        }
        buf_line(k->out, "if (%s + %s + %s < 0)", end_of(k, r.rows, "i", !all), end_of(k, r.keys, "j", !all),
                 r.rest);
        buf_line(k->out, "    return %s;", all ? "false" : "true");
    }
    buf_line(k->out, "return %s;", all && (sure || mutate("sure-tiles")) ? "true" : "false");
    k_close(k);
}

static void print_conditions(Kernel *k)
{
    const AttentionConditions *all = &cut_of(k)->form.conditions;
    open_function(k, "bool", "there", "const cell_attention_pair &p");
    print_pair(k);
    for (int i = 0; i < all->len; i++) {
        const AttentionCondition *c = &all->data[i];
        if (mutate("lost-condition") && i + 1 == all->len)
            continue;
        const char *s =
            c->room ? k_text(k, "%s >= 0", ix_text(&k->printer, c->room)) : expr_text(&k->printer, c->node);
        buf_line(k->out, "if (!(%s))", s);
        buf_line(k->out, "    return false;");
    }
    buf_line(k->out, "return true;");
    k_close(k);
    print_ranges(k);
    print_tiles(k, false);
    print_tiles(k, true);
}

/* ---- facts */

static void print_uses(Kernel *k)
{
    Module *m = k->p->m;
    const AttentionCut *c = cut_of(k);
    k_open(k, "struct Uses");
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
    k->out->indent--;
    buf_line(k->out, "};");
}

static void print_kinds(Kernel *k)
{
    const AttentionCut *c = cut_of(k);
    const char *kinds = "CELL_ATTENTION_ROW";
    for (int i = c->reads.len - 1; i >= 0; i--)
        if (attention_is_term(k->p, &c->reads.data[i]))
            kinds = k_text(k, "n == %d ? %s : %s", term_of(k, i),
                           c->reads.data[i].leaf.side == LEAF_ROW ? "CELL_ATTENTION_ROW"
                                                                  : "CELL_ATTENTION_COLUMN",
                           kinds);
    k_open(k, "static __host__ __device__ constexpr int term_kind([[maybe_unused]] int n)");
    buf_line(k->out, "return %s;", kinds);
    k_close(k);
}

static void print_facts(Kernel *k)
{
    const Plan *p = k->p;
    const AttentionCut *c = cut_of(k);
    k_comment(k, c->form.sum);
    k_open(k, "struct %s", printing(k)->w->facts);
    buf_line(k->out, "typedef %s Store;", k_type(p->dtype));
    buf_line(k->out, "typedef %s Real;", k->real);
    buf_line(k->out, "static constexpr int keys = %d, values = %d, segments = %d, memory = %d, terms = %d,",
             attention_padded(c->keys), attention_padded(c->values), 1 + c->history,
             (int)CELL_ATTENTION_LEAST_MEMORY, term_of(k, c->reads.len));
    buf_line(k->out, "                     kind = CELL_ATTENTION_%s;",
             c->form.kind == ATTENTION_SOFTMAX ? "SOFTMAX" : "WEIGHTS");
    buf_line(k->out, "static constexpr bool scaled = %s, sink = false;",
             c->scale >= 0 && c->form.kind == ATTENTION_SOFTMAX ? "true" : "false");
    print_kinds(k);
    print_uses(k);
    for (int i = 0; i < c->reads.len; i++)
        if (c->reads.data[i].leaf.side == LEAF_TABLE)
            print_table(k, i);
    print_score(k);
    print_conditions(k);
    k->out->indent--;
    buf_line(k->out, "};");
    buf_line(k->out, "[[maybe_unused]] static __device__ const %s %s_zero = 0;\n", k->real,
             printing(k)->w->facts);
}

/* ---- the fields of cell_attention */

static void print_rows(Kernel *k, const char *field, const Place *x)
{
    const char *flag = x->real ? "true" : "false";
    if (x->given) { /* what the call leaves out is 0, or not looked at */
        buf_line(k->out, "if (%s)", x->given);
        buf_line(k->out, "    %s = { %s, %s, %s, %s, %s };", field, x->at, x->row, x->head, x->element, flag);
        buf_line(k->out, "else");
        buf_line(k->out, "    %s = { &%s_zero, 0, 0, 0, true };", field, printing(k)->w->facts);
        return;
    }
    buf_line(k->out, "%s = { %s, %s, %s, %s, %s };", field, x->at, x->row, x->head, x->element, flag);
}

static void print_result(Kernel *k, const char *field, TensorId t, Operand of)
{
    if (t < 0 || k->pr->tensor[t].home == HOME_NONE)
        return;
    Place x = rows_place(k, t, of, true);
    buf_line(k->out, "%s = { %s, %s, %s, %s, %s, false };", field, x.at, x.row, x.head, x.element,
             x.real ? "true" : "false");
}

static void print_leaf(Kernel *k, const char *name, const Place *x, bool head)
{
    buf_line(k->out, x->given ? "x.uses.%s = %s ? %s : nullptr;" : "x.uses.%s = %s%s;", name,
             x->given ? x->given : "", x->at);
    buf_line(k->out, "x.uses.%s_row = %s;", name, x->row);
    if (head)
        buf_line(k->out, "x.uses.%s_head = %s;", name, x->head);
}

/* An integer of an input, now or in its history. */
static Place whole_place(Kernel *k, const AttentionRead *r, bool past)
{
    Module *m = k->p->m;
    const Node n = *k_node(k, past || r->leaf.side == LEAF_ROW ? r->leaf.node : r->leaf.value);
    TensorId t = past ? k_node(k, r->leaf.node)->past : n.tensor;
    const Storage *st = &k->pr->tensor[t];
    const Tensor *x = &m->tensors.data[t];
    const Node own = *k_node(k, r->leaf.side == LEAF_KEY ? r->leaf.value : r->leaf.node);
    const IxExpr *lin = ix_const(m, poly_const(m, 0));
    const Poly *stride = poly_const(m, 1);
    for (int i = own.nmap - 1; i >= 0; i--) {
        lin = ix_add(m, lin, ix_scale(m, own.map[i], stride));
        stride = poly_mul(m, stride, x->axes[i + past]);
    }
    const char *pointer = k_pointer(k, REF_TENSOR, t, st->dtype);
    for (int i = 0; i < cut_of(k)->form.nheads; i++)
        k->index[cut_of(k)->form.heads[i].axis] =
            k_text(k, "(h%d * %s)", i, k_poly(k, cut_of(k)->form.heads[i].shared));
    const char *element = ix_text(&k->printer, lin);
    const char *rows =
        past ? k_text(k, "b * %s", k_poly(k, poly_mul(m, stride, x->axes[0])))
             : k_text(k, "(b * dim_T%s) * %s", m->c->reverse ? " + dim_T - 1" : "", k_poly(k, stride));
    if (x->lengths) /* one number of the sequence */
        return (Place){ .at = k_text(k, "%s + b", pointer), .row = "0", .head = "0", .element = "0" };
    const Poly *head = poly_const(m, 0);
    for (int i = 0; i < cut_of(k)->form.nheads; i++)
        if (!poly_is_one(cut_of(k)->form.heads[i].shared))
            head = coefficient(m, lin, cut_of(k)->form.heads[i].axis);
    Place at = { .at = k_text(k, "%s + %s + %s", pointer, rows, element),
                 .row = past || !m->c->reverse ? k_poly(k, stride) : k_text(k, "-%s", k_poly(k, stride)),
                 .head = k_poly(k, head),
                 .element = "0",
                 .given = past ? pointer : NULL };
    if (past)
        turn_past(k, &at);
    return at;
}

static void print_leaves(Kernel *k)
{
    Module *m = k->p->m;
    const AttentionCut *c = cut_of(k);
    for (int i = 0; i < 2 + m->dims.len; i++)
        buf_line(k->out, "x.uses.dim_%s = dim_%s;", api_sizes(m)[i], api_sizes(m)[i]);
    buf_line(k->out, "x.uses.t0 = t0;");
    for (int i = 0; i < c->form.nheads; i++)
        buf_line(k->out, "x.uses.h%d = h%d;", i, i);
    for (int i = 0; i < c->reads.len; i++) {
        const AttentionRead *r = &c->reads.data[i];
        const char *name = k_text(k, "leaf%d", i);
        if (r->leaf.side == LEAF_TABLE) {
            const Read *of = &k->p->taken[r->operand.now];
            const Storage *st = plan_storage(k->p, k->pr, of);
            buf_line(k->out, "x.uses.%s = %s;", name,
                     k_pointer(k, of->is_tensor ? REF_TENSOR : REF_NODE, of->id, st->dtype));
            continue;
        }
        Operand side = r->leaf.side == LEAF_ROW ? OF_ROWS : OF_KEYS;
        Place x = r->leaf.whole ? whole_place(k, r, false) : place_of(k, r->operand.now, side);
        print_leaf(k, name, &x, side == OF_ROWS);
        if (side == OF_ROWS || !c->history)
            continue;
        x = r->leaf.whole ? whole_place(k, r, true) : place_of(k, r->operand.past, OF_PAST);
        print_leaf(k, k_text(k, "%s_past", name), &x, false);
    }
}

static void print_segment(Kernel *k, int n, bool past)
{
    const AttentionCut *c = cut_of(k);
    Operand of = past ? OF_PAST : OF_KEYS;
    Place key = place_of(k, past ? c->k.past : c->k.now, of),
          value = place_of(k, past ? c->v.past : c->v.now, of);
    print_rows(k, k_text(k, "x.segment[%d].k", n), &key);
    print_rows(k, k_text(k, "x.segment[%d].v", n), &value);
    if (past) {
        const char *places = k_poly(k, k->p->m->tensors.data[c->k.past].axes[0]);
        buf_line(k->out, "x.segment[%d].begin = -(int)(t0 < %s ? t0 : %s);", n, places, places);
    } else {
        buf_line(k->out, "x.segment[%d].end = (int)dim_T;", n);
    }
    if (printing(k)->kernel != ATTENTION_KEYS)
        return;
    TensorId dk = past ? c->k.d_past : attention_cotangent(k->p->m, c->k.now);
    TensorId dv = past ? c->v.d_past : attention_cotangent(k->p->m, c->v.now);
    print_result(k, k_text(k, "x.segment[%d].dk", n), dk, of);
    print_result(k, k_text(k, "x.segment[%d].dv", n), dv, of);
    for (int i = 0; i < c->reads.len; i++) {
        const AttentionRead *r = &c->reads.data[i];
        if (r->leaf.side == LEAF_KEY && attention_is_term(k->p, r))
            print_result(k, k_text(k, "x.segment[%d].d_column[%d]", n, term_of(k, i)),
                         past ? r->operand.d_past : attention_cotangent(k->p->m, r->operand.now), of);
    }
}

/* Of a row: [B, T, heads, queries]. */
static void print_buffer(Kernel *k, const char *field, int buffer)
{
    if (buffer < 0)
        return;
    const AttentionCut *c = cut_of(k);
    const char *rows = k_poly(k, poly_mul(k->p->m, c->heads, c->group)), *group = k_poly(k, c->group);
    const char *pointer = k_written(k, REF_BUFFER, buffer, k->p->compute);
    buf_line(k->out, "x.%s = %s ? %s + b * dim_T * %s + head * %s : nullptr;", field, pointer, pointer, rows,
             group);
    buf_line(k->out, "x.%s_row = %s;", field, rows);
    buf_line(k->out, "x.%s_head = 1;", field);
}

static void print_gradients(Kernel *k)
{
    const AttentionCut *c = cut_of(k);
    Place dy = place_of(k, c->given, OF_ROWS);
    print_rows(k, "x.dy", &dy);
    if (c->form.kind == ATTENTION_SOFTMAX) {
        Place y = rows_place(k, c->given, OF_ROWS, false);
        print_rows(k, "x.y", &y);
    }
    print_buffer(k, "dots", printing(k)->w->dots);
    if (printing(k)->kernel != ATTENTION_ROWS)
        return;
    print_result(k, "x.dq", attention_cotangent(k->p->m, c->q), OF_ROWS);
    for (int i = 0; i < c->reads.len; i++) {
        const AttentionRead *r = &c->reads.data[i];
        if (r->leaf.side == LEAF_ROW && attention_is_term(k->p, r))
            print_result(k, k_text(k, "x.d_row[%d]", term_of(k, i)),
                         attention_cotangent(k->p->m, r->operand.now), OF_ROWS);
    }
}

static void print_head(Kernel *k)
{
    Module *m = k->p->m;
    const AttentionCut *c = cut_of(k);
    const Poly *stride = poly_const(m, 1);
    for (int i = c->form.nheads - 1; i >= 0; i--) {
        const AttentionHead *h = &c->form.heads[i];
        const Poly *n = poly_div(m, m->indices.data[h->axis].extent, h->shared);
        const char *digit = poly_is_one(stride) ? "head" : k_text(k, "head / %s", k_poly(k, stride));
        buf_line(k->out, "[[maybe_unused]] const int64_t h%d = %s;", i,
                 k_text(k, "%s %% %s", digit, k_poly(k, n)));
        stride = poly_mul(m, stride, n);
    }
}

static const char *tiles_text(Kernel *k)
{
    const AttentionCut *c = cut_of(k);
    AttentionKernel kind = printing(k)->kernel;
    int own = attention_own(k->p, c, kind), slabs = attention_slabs(k->p, c, kind);
    if (kind != ATTENTION_KEYS)
        return k_text(k, "cell_attention_tiles(dim_T * %s, %d) * %d", k_poly(k, c->group), own, slabs);
    const char *now = k_text(k, "cell_attention_tiles(dim_T, %d)", own);
    if (!c->history)
        return k_text(k, "%s * %d", now, slabs);
    const char *places = k_poly(k, k->p->m->tensors.data[c->k.past].axes[0]);
    return k_text(k, "(%s + cell_attention_tiles(t0 < %s ? t0 : %s, %d)) * %d", now, places, places, own,
                  slabs);
}

static void body(Kernel *k)
{
    static const char *const calls[] = { "forward", "dots", "back_rows", "back_keys" };
    const AttentionCut *c = cut_of(k);
    const char *facts = printing(k)->w->facts;
    AttentionKernel kind = printing(k)->kernel;
    if (attention_smem(k->p, c, kind))
        buf_line(
            k->out,
            "static_assert(cell_attention_facts<%s, CELL_ATTENTION_%s>::smem == %lld, \"the compiler has "
            "another number\");",
            facts,
            kind == ATTENTION_FORWARD ? "FORWARD"
            : kind == ATTENTION_ROWS  ? "BACK_ROWS"
                                      : "BACK_KEYS",
            (long long)attention_smem(k->p, c, kind));
    buf_line(k->out, "const int64_t heads = %s, tiles = %s;", k_bare(k, k_poly(k, c->heads)), tiles_text(k));
    k_open(k, "for (int64_t n = cell_block_index(0); n < dim_B * heads * tiles; n += cell_block_count(0))");
    buf_line(k->out, "const int64_t head = n %% heads, b = n / heads %% dim_B, block = n / heads / dim_B;");
    print_head(k);
    buf_line(k->out, "cell_attention<%s> x = {};", facts);
    buf_line(k->out, "x.keys = %d;", c->keys);
    buf_line(k->out, "x.values = %d;", c->values);
    buf_line(k->out, "x.steps = (int)dim_T;");
    buf_line(k->out, "x.group = (int)%s;", k_poly(k, c->group));
    if (c->scale >= 0)
        buf_line(k->out, "x.scale = %s;", k_bare(k, expr_text(&k->printer, c->scale)));
    print_leaves(k);
    Place q = place_of(k, c->q, OF_ROWS);
    print_rows(k, "x.q", &q);
    print_segment(k, 0, false);
    if (c->history)
        print_segment(k, 1, true);
    print_buffer(k, "lse", printing(k)->w->sums);
    if (kind == ATTENTION_FORWARD)
        print_result(k, "x.out", c->given, OF_ROWS);
    else
        print_gradients(k);
    buf_line(k->out, "cell_attention_%s<%s>(x, block);", calls[kind], facts);
    buf_line(k->out, "cell_barrier();");
    k_close(k);
}

static Kernel new_kernel(Plan *p, Program *pr, Printing *x, RefVec *refs, Buf *cuda)
{
    Kernel k = kernel_new(p, pr, NULL, refs, cuda);
    k.threads = attention_threads(p, x->w->cut, x->kernel);
    k.hooks = &hooks;
    k.of_schedule = x;
    k.printer.leaf = leaf;
    k.printer.known = known;
    return k;
}

void attention_print(Plan *p, Program *pr, Buf *cuda)
{
    AttentionWalks *all = attention_walks(pr);
    AttentionKernel first = pr->dir == FORWARD ? ATTENTION_FORWARD : ATTENTION_DOTS;
    AttentionKernel last = pr->dir == FORWARD ? ATTENTION_FORWARD : ATTENTION_KEYS;
    for (int i = 0; i < all->len; i++) {
        AttentionWalk *w = &all->data[i];
        Printing x = { w, first };
        if (pr->dir == FORWARD) {
            RefVec none = { 0 };
            Kernel k = new_kernel(p, pr, &x, &none, cuda);
            k.printer.data = &k;
            print_facts(&k);
            kernel_release(&k);
        } else if (p->m->roots.data[w->cut->given].dinput < 0) {
            continue;
        }
        for (x.kernel = first; x.kernel <= last; x.kernel++) {
            if (x.kernel == ATTENTION_DOTS && w->cut->form.kind != ATTENTION_SOFTMAX)
                continue;
            Kernel k = new_kernel(p, pr, &x, &w->kernel[x.kernel].refs, cuda);
            k_print(&k, w->kernel[x.kernel].name, body);
            kernel_release(&k);
        }
    }
}
