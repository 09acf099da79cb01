/* kernels_window.c: the kernel of sums over the past in one pass (window.c). In comes a group of such sums; out
 * goes a kernel whose block has a tile of steps of a sequence (and a place of the axes that the products vary over,
 * a head), and takes the steps that these are paired with tile by tile: products of tiles give what the pairs are
 * made of, each pair's weight is computed once, and products of tiles add what is weighed. A maximum is the one of
 * the pairs so far; where it grows, what was summed is scaled (an online softmax: Milakov and Gimelshein, 2018; Dao
 * et al., 2022). No pair lies in memory outside of the block, and the order of every sum follows from sizes. What
 * does not depend on the cell is in runtime/device/cell_device_window.cuh. */
#include <math.h>
#include <string.h>

#include "base/mutate.h"
#include "ir/marks.h"
#include "kernels/code.h"
#include "window.h"

enum { PAIRS = WINDOW_TILE * (WINDOW_TILE + WINDOW_GAP) }; /* of a tile, with the gaps between its rows */

typedef struct Pass {
    Code *x;
    const Window *w;
    bool passes; /* over columns, beyond those that stay in registers */
    const KirExpr *base; /* of such a pass: the first column; else 0 */
    int chunk[4]; /* per dot: elements that are multiplied at once */
    bool whole; /* these are all of them: the owners' stay in shared memory */
    /* Shared memory: of the owners what they have in each dot, or in the one that is multiplied; of the other
     * steps that, or columns; tiles of pairs; a number of each thread, and one of each row. */
    const KirExpr *rows[4], *columns, *pairs[8], *shares, *factors;
    const KirExpr *thread, *mine, *part; /* the thread's row, and which of four it is there */
    const KirExpr *tile, *first, *last; /* of the owners: which tile it is, and its first and last step */
    const KirExpr *low, *high; /* the other steps */
    const KirExpr *from; /* the first one of a tile of them */
    const KirExpr *most, *parts[8], *sums[8]; /* the maximum so far; of each sum, that of the thread */
    bool places; /* pairs without another step are built */
    bool inside; /* all other steps of the tile are in the call */
    const KirExpr *at; /* where a pair lies in its tile, while it is built; NULL: it lies in none */
} Pass;

static const WindowSum *sum_of(const Pass *s, int i)
{
    return &s->w->sums[i];
}

static const Poly *extent_of(const Pass *s, IndexId i)
{
    return s->x->k->p->m->indices.data[i].extent;
}

static const KirExpr *number(const Pass *s, double v)
{
    return kir_real(s->x->kir, code_real(s->x), v);
}

static const KirExpr *as_real(const Pass *s, const KirExpr *v)
{
    return kir_convert(s->x->kir, kir_value(code_real(s->x)), v);
}

static KirOpen open_if(const Pass *s, KirBinary op, const KirExpr *a, const KirExpr *b)
{
    return kir_if(s->x->kir, code_binary(s->x, op, a, b));
}

static const KirExpr *lesser(const Pass *s, const KirExpr *a, const KirExpr *b)
{
    return kir_select(s->x->kir, code_binary(s->x, KB_LT, a, b), a, b);
}

static KirOpen open_whole(const Pass *s, const char *name, const KirExpr *first, const KirExpr *limit, int by,
                          const KirExpr **var)
{
    return kir_for(s->x->kir, name, KT_I32, first, KB_LT, limit, code_int(s->x, by), var);
}

/* ---- products ---- */

static const KirExpr *factor_value(const Pass *s, NodeId id)
{
    bool whole = k_node(s->x->k, id)->type == TY_INT;
    const KirExpr *v = expr_node(&s->x->printer, id);
    return whole ? as_real(s, v) : v;
}

static const KirExpr *product_value(const Pass *s, const Factors *f, const KirExpr *first)
{
    Kir *k = s->x->kir;
    const KirExpr *all = first;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < f->len; i++) {
            if (f->data[i].inverse != pass)
                continue;
            const KirExpr *v = factor_value(s, f->data[i].id);
            if (pass)
                all = kir_binary(k, KB_DIV, all ? all : number(s, 1), v);
            else
                all = all ? kir_binary(k, KB_MUL, all, v) : v;
        }
    if (!all)
        all = number(s, 1);
    if (f->negative)
        all = kir_neg(k, all);
    for (int i = f->n_guards - 1; i >= 0; i--)
        all = kir_select(k, expr_node(&s->x->printer, f->guards[i]), all, code_int(s->x, 0));
    return all;
}

static Pass *pass_of(const Code *x)
{
    return x->k->of_schedule;
}

/* A sum of products that lies in a tile: where its pair is built. */
static const KirExpr *dot_value(Code *x, NodeId reduce)
{
    Pass *s = pass_of(x);
    for (int i = 0; i < s->w->n_dots; i++) {
        const WindowDot *d = &s->w->dots[i];
        if (d->reduce == reduce)
            return product_value(s, &d->scale,
                                 s->at ? as_real(s, kir_element(x->kir, s->pairs[i], s->at)) : number(s, 0));
    }
    return NULL;
}

/* The value of one step: factors as they stand in the array that multiplies them, read where the sums read it. */
static const KirExpr *side_value(const Pass *s, const WindowDot *d, const Factors *f, const KirExpr *i)
{
    Code *x = s->x;
    const Node a = *k_node(x->k, d->array);
    const KirExpr *inside[64], *before[64], *t = x->t;
    const KirExpr *step = code_sub(x, ix_node(&x->printer, d->read.step), code_nodes.start(&x->printer));
    for (int j = 0; j < a.naxes; j++)
        inside[j] = ix_node(&x->printer, d->read.map[j]);
    for (int j = 0; j < a.naxes; j++) {
        before[j] = x->index[a.axes[j]];
        x->index[a.axes[j]] = inside[j];
    }
    if (d->read.step != ix_index(x->k->p->m, IX_TIME))
        x->t = step;
    x->index[d->along] = i;
    const KirExpr *v = product_value(s, f, NULL);
    for (int j = a.naxes - 1; j >= 0; j--)
        x->index[a.axes[j]] = before[j];
    x->t = t;
    return v;
}

/* ---- the other step ---- */

static int least_step_in(const Pass *s, NodeId id, Marks *seen)
{
    const Kernel *k = s->x->k;
    const Node *n = k_node(k, id);
    int least = 0;
    Read r;
    if (!marks_first(seen, id))
        return 0;
    if (n->kind != N_MAP && n->kind != N_INDEX && plan_resolve(k->p, id, &r)) {
        const Tensor *past = r.past >= 0 ? &k->p->m->tensors.data[r.past] : NULL;
        return !r.step ? 0 : !past ? 2 : past->grows ? 1 : 0;
    }
    for (int i = 0; i < n->nargs; i++) {
        int x = least_step_in(s, n->args[i], seen);
        least = x > least ? x : least;
    }
    return least;
}

/* Where it must be, for what is read there: in the call, or in a history. */
static int least_step(const Pass *s, NodeId id)
{
    Marks *seen = marks_begin(s->x->k->p->m);
    int least = least_step_in(s, id, seen);
    marks_end(seen);
    return least;
}

/* Whether the other step is there; NULL: it is. */
static const KirExpr *other_there(const Pass *s, const Factors *f, const KirExpr *step)
{
    Code *x = s->x;
    const KirExpr *none = code_int(x, 0), *within = code_binary(x, KB_LT, step, code_steps(x));
    int least = 0;
    for (int i = 0; i < f->len; i++) {
        int n = least_step(s, f->data[i].id);
        least = n > least ? n : least;
    }
    if (s->w->by_key) /* what is read there may lie behind the step, and is in the call up to here */
        return code_binary(x, KB_LE, step, s->high);
    if (least == 0)
        return within;
    const KirExpr *place = least == 2 ? step : code_add(x, code_nodes.start(&x->printer), step);
    return code_binary(x, KB_AND, code_binary(x, KB_GE, place, none), within);
}

static void bind_sum(const Pass *s, const WindowSum *sum, const KirExpr *distance)
{
    code_bind_axes(s->x, sum->array);
    s->x->index[sum->w] = distance;
}

/* ---- tiles of products ---- */

static const KirExpr *length_of(const Pass *s, int dot)
{
    return code_size(s->x, extent_of(s, s->w->dots[dot].along));
}

/* A loop over the elements of a tile of `width` to a step, a divisor of WINDOW_THREADS: a thread has the same one
 * of each step at a `place`, `in` is its place there, and i counts from `first`. */
typedef struct Elements {
    KirOpen loop;
    const KirExpr *place, *in, *i;
} Elements;

static Elements open_elements(const Pass *s, int width, const KirExpr *first, int behind)
{
    Code *x = s->x;
    Elements e;
    const KirExpr *side = code_binary(x, KB_DIV, s->thread, code_int(x, width));
    const KirExpr *lane = code_binary(x, KB_MOD, s->thread, code_int(x, width));
    e.loop = open_whole(s, "place", side, code_int(x, WINDOW_TILE), WINDOW_THREADS / width, &e.place);
    e.loop.statement->n = 4;
    const KirExpr *row = code_mul(x, e.place, code_int(x, width + behind));
    e.in = kir_let(x->kir, "in", KT_I32, code_add(x, row, lane));
    e.i = code_let(x, "i", code_add(x, first, lane));
    return e;
}

/* Reads of the other step: where all of a tile is in the call, as most tiles are, without any condition on that. */
static void both_ways(Pass *s, int i, const KirExpr *first,
                      void (*read)(Pass *s, int i, const KirExpr *first))
{
    Code *x = s->x;
    const KirExpr *end = code_add(x, s->from, code_int(x, WINDOW_TILE)), *one = code_int(x, 1);
    const KirExpr *limit = s->w->by_key ? code_add(x, s->high, one) : code_steps(x);
    const KirExpr *begun = code_binary(x, KB_GE, s->from, code_int(x, 0));
    KirOpen open = kir_if(x->kir, code_binary(x, KB_AND, begun, code_binary(x, KB_LE, end, limit)));
    s->inside = true;
    read(s, i, first);
    kir_else(x->kir, &open);
    s->inside = false;
    read(s, i, first);
    kir_close(x->kir, open);
}

static const KirExpr *other_step(const Pass *s, const Elements *e)
{
    return code_let(s->x, "s", code_add(s->x, s->from, e->place));
}

/* Puts a value of the other step in its place, 0 where there is no such element or step. */
static void put_other(const Pass *s, const Elements *e, const KirExpr *extent, const Factors *f,
                      const KirExpr *value)
{
    Code *x = s->x;
    const KirExpr *step = x->t, *none = code_int(x, 0), *there = code_binary(x, KB_LT, e->i, extent);
    if (!s->inside)
        there = code_binary(x, KB_AND, there, other_there(s, f, step));
    kir_assign(x->kir, kir_element(x->kir, s->columns, e->in), kir_select(x->kir, there, value, none));
}

static void assume_inside(const Pass *s, const KirExpr *step)
{
    Code *x = s->x;
    const KirExpr *none = code_int(x, 0), *start = code_nodes.start(&x->printer);
    if (!s->inside)
        return;
    kir_do(x->kir, kir_call1(x->kir, "cell_assume", code_binary(x, KB_GE, step, none)));
    kir_do(x->kir, kir_call1(x->kir, "cell_assume", code_binary(x, KB_LT, step, code_steps(x))));
    kir_do(x->kir, kir_call1(x->kir, "cell_assume", code_binary(x, KB_GE, start, none)));
}

static void read_own(const Pass *s, int dot, const KirExpr *first)
{
    Code *x = s->x;
    const WindowDot *d = &s->w->dots[dot];
    const KirExpr *t = x->t;
    Elements e = open_elements(s, s->chunk[dot], first, WINDOW_PAD);
    x->t = code_let(x, "own", lesser(s, code_add(x, s->first, e.place), s->last));
    bind_sum(s, sum_of(s, 0), code_int(x, 0));
    const KirExpr *v = side_value(s, d, &d->own, e.i), *there = code_binary(x, KB_LT, e.i, length_of(s, dot));
    kir_assign(x->kir, kir_element(x->kir, s->rows[dot], e.in), kir_select(x->kir, there, v, code_int(x, 0)));
    x->t = t;
    kir_close(x->kir, e.loop);
}

/* What the owners have in each dot, once for all that they are paired with. */
static void put_owners(const Pass *s)
{
    for (int i = 0; i < s->w->n_dots && s->whole; i++) {
        code_comment(s->x, s->w->dots[i].array);
        read_own(s, i, code_int(s->x, 0));
    }
}

static void read_dot(Pass *s, int dot, const KirExpr *first)
{
    Code *x = s->x;
    const WindowDot *d = &s->w->dots[dot];
    const KirExpr *t = x->t;
    Elements e = open_elements(s, s->chunk[dot], first, WINDOW_PAD);
    bind_sum(s, sum_of(s, 0), code_int(x, 0));
    x->t = other_step(s, &e);
    assume_inside(s, x->t);
    put_other(s, &e, length_of(s, dot), &d->other, side_value(s, d, &d->other, e.i));
    x->t = t;
    kir_close(x->kir, e.loop);
}

static KirTemplate stored(const Pass *s)
{
    return (KirTemplate){ .type = code_scalar(s->x->k->p->dtype) };
}

/* How many of a dot's elements from `first` on are multiplied at once. */
static const KirExpr *count_of(const Pass *s, int dot, const KirExpr *first)
{
    const KirExpr *extent = length_of(s, dot), *chunk = code_int(s->x, s->chunk[dot]);
    if (s->whole)
        return extent;
    return kir_convert(s->x->kir, kir_value(KT_I32), lesser(s, code_sub(s->x, extent, first), chunk));
}

static void put_dot(Pass *s, int dot)
{
    Code *x = s->x;
    Kir *k = x->kir;
    const KirExpr *first = code_int(x, 0), *chunk = code_int(x, s->chunk[dot]);
    KirOpen loop = { 0 };
    code_comment(x, s->w->dots[dot].array);
    const KirExpr *products =
        kir_array(k, k_text(x->k, "products_%d", dot), code_real(x), code_int(x, 8), true);
    if (!s->whole)
        loop = code_for(x, "from_i", first, length_of(s, dot), chunk, &first);
    kir_barrier(k, KIR_BLOCK);
    if (!s->whole)
        read_own(s, dot, first);
    both_ways(s, dot, first, read_dot);
    kir_barrier(k, KIR_BLOCK);
    const KirTemplate by[] = { stored(s), { .value = s->chunk[dot] } };
    const KirExpr *of[] = { products, s->rows[dot], s->columns, count_of(s, dot, first) };
    kir_do(k, kir_call(k, "cell_window_multiply", by, 2, of, 4));
    if (!s->whole)
        kir_close(k, loop);
    kir_do(k, kir_call2(k, "cell_window_put", s->pairs[dot], products));
}

/* ---- pairs ---- */

/* A loop over the pairs of a thread: one owner, every fourth of the other steps. */
typedef struct PairLoop {
    KirOpen loop, valid;
    const KirExpr *step, *u;
} PairLoop;

static PairLoop open_pairs(Pass *s, const KirExpr *extent)
{
    Code *x = s->x;
    PairLoop p = { .u = NULL };
    const KirExpr *c;
    p.loop = open_whole(s, "c", s->part, code_int(x, WINDOW_TILE), 4, &c);
    if (s->places) {
        p.u = code_let(x, "u", code_add(x, s->from, c));
        p.valid = open_if(s, KB_LT, p.u, extent);
        return p;
    }
    const KirExpr *row = code_mul(x, c, code_int(x, WINDOW_TILE + WINDOW_GAP));
    s->at = kir_let(x->kir, "at", KT_I32, code_add(x, row, s->mine));
    p.step = code_let(x, "s", code_add(x, s->from, c));
    p.u = code_let(x, "u", s->w->by_key ? code_sub(x, p.step, x->t) : code_sub(x, x->t, p.step));
    return p;
}

static void open_valid(const Pass *s, const KirExpr *extent, PairLoop *p)
{
    Code *x = s->x;
    const KirExpr *begun = code_binary(x, KB_GE, p->u, code_int(x, 0));
    const KirExpr *all = code_binary(x, KB_AND, begun, code_binary(x, KB_LT, p->u, extent));
    if (s->places)
        return;
    if (s->w->by_key)
        all = code_binary(x, KB_AND, all, code_binary(x, KB_LE, p->step, s->high));
    p->valid = kir_if(x->kir, all);
}

static void close_pairs(Pass *s, const PairLoop *p)
{
    kir_close(s->x->kir, p->loop);
    s->at = NULL;
}

/* Values over the past have names, from one term to the next. */
static void open_terms(const Pass *s)
{
    s->x->past_values.len = 0;
    s->x->past_keeps = true;
}

static void close_terms(const Pass *s)
{
    s->x->past_keeps = false;
}

/* The maximum of the pairs so far; sums so far are scaled by what it grows. */
static void join_maximum(Pass *s, const KirExpr *extent)
{
    Code *x = s->x;
    Kir *k = x->kir;
    const WindowSum *sum = sum_of(s, s->w->max);
    const KirExpr *near = kir_mutable(k, "near", code_real(x), s->most);
    PairLoop p = open_pairs(s, extent);
    open_valid(s, extent, &p);
    bind_sum(s, sum, p.u);
    open_terms(s);
    const KirExpr *term = factor_value(s, sum->term);
    close_terms(s);
    kir_assign(k, near, kir_call2(k, "cell_max", near, term));
    kir_close(k, p.valid);
    close_pairs(s, &p);
    kir_assign(k, near, kir_call2(k, "cell_window_most", s->shares, near));
    const KirExpr *of[] = { s->factors, s->most, near };
    const KirExpr *scale = kir_let(k, "scale", KT_VOID, kir_call(k, "cell_window_growth", NULL, 0, of, 3));
    kir_assign(k, s->most, near);
    /* Where all terms so far are exp(-inf), none may become exp(inf - inf). */
    const KirExpr *none = kir_binary(k, KB_EQ, near, number(s, -HUGE_VAL));
    x->value[sum->array] = kir_let(k, "now", code_real(x), kir_select(k, none, code_int(x, 0), near));
    for (int i = 0; i < s->w->n; i++)
        if (sum_of(s, i)->over != OVER_NOTHING && sum_of(s, i)->along < 0 && !mutate("unscaled-sum"))
            kir_add(k, (KirStmt){ .kind = KI_ASSIGN, .op = KB_MUL, .x = { s->parts[i], scale } });
}

/* The weight of a pair in every sum: added to those without columns, and kept for the products. */
static void put_weights(Pass *s, const KirExpr *extent)
{
    Code *x = s->x;
    Kir *k = x->kir;
    const KirExpr *weights[8] = { NULL };
    PairLoop p = open_pairs(s, extent);
    for (int i = 0; i < s->w->n && !s->places; i++)
        if (sum_of(s, i)->along >= 0)
            weights[i] = kir_mutable(k, k_text(x->k, "weight_%d", i), code_real(x), code_int(x, 0));
    open_valid(s, extent, &p);
    open_terms(s);
    for (int i = 0; i < s->w->n; i++) {
        const WindowSum *sum = sum_of(s, i);
        if (i == s->w->max || (s->places && extent_of(s, sum->w) != s->w->places))
            continue;
        bind_sum(s, sum, p.u);
        const KirExpr *term = product_value(s, &sum->weight, NULL);
        if (sum->along >= 0)
            kir_assign(k, weights[i], term);
        else
            kir_add_to(k, s->parts[i], term);
    }
    close_terms(s);
    kir_close(k, p.valid);
    int slot = 0;
    for (int i = 0; i < s->w->n && !s->places; i++)
        if (weights[i])
            kir_assign(k, kir_element(k, s->pairs[slot++], s->at), weights[i]);
    close_pairs(s, &p);
}

/* ---- columns ---- */

static const KirExpr *columns_of(const Pass *s, const WindowSum *sum)
{
    return code_size(s->x, extent_of(s, sum->along));
}

static int tiles_of(const Pass *s, const WindowSum *sum)
{
    return s->passes ? WINDOW_PASS : (int)((extent_of(s, sum->along)->value + WINDOW_TILE - 1) / WINDOW_TILE);
}

static bool needs_passes(const Pass *s)
{
    for (int i = 0; i < s->w->n; i++) {
        if (sum_of(s, i)->along < 0)
            continue;
        const Poly *n = extent_of(s, sum_of(s, i)->along);
        if (!n->is_const || n->value > WINDOW_MOST * WINDOW_TILE)
            return true;
    }
    return false;
}

/* Tiles of columns that lie in shared memory at once. */
static int columns_at_once(const Pass *s, const WindowSum *sum)
{
    int tiles = tiles_of(s, sum);
    return tiles == 1 || code_real(s->x) == KT_F64 ? 1 : tiles < 4 ? 2 : 4;
}

static void read_columns(Pass *s, int i, const KirExpr *first)
{
    Code *x = s->x;
    const WindowSum *sum = sum_of(s, i);
    const KirExpr *t = x->t, *column = code_mul(x, first, code_int(x, WINDOW_TILE));
    Elements e =
        open_elements(s, columns_at_once(s, sum) * WINDOW_TILE, code_add(x, s->base, column), WINDOW_GAP);
    bind_sum(s, sum, code_int(x, 0));
    x->index[sum->along] = e.i;
    x->t = other_step(s, &e);
    assume_inside(s, x->t);
    put_other(s, &e, columns_of(s, sum), &sum->other, product_value(s, &sum->other, NULL));
    x->t = t;
    kir_close(x->kir, e.loop);
}

static void rescale(const Pass *s, int i)
{
    kir_do(s->x->kir, kir_call2(s->x->kir, "cell_window_rescale", s->sums[i], s->factors));
}

/* All tiles of columns, so many at a time as lie in shared memory at once, weighed by the pairs. */
static void weigh_columns(Pass *s, int i, int slot)
{
    Code *x = s->x;
    Kir *k = x->kir;
    const WindowSum *sum = sum_of(s, i);
    int tiles = tiles_of(s, sum), group = columns_at_once(s, sum);
    const KirExpr *first = code_int(x, 0), *all = code_int(x, tiles), *tile;
    KirOpen several = { 0 }, there = { 0 };
    if (sum->over != OVER_NOTHING && s->w->max >= 0)
        rescale(s, i);
    if (tiles > group) {
        several = open_whole(s, "tile_x", first, all, group, &first);
        several.statement->n = -1;
    }
    both_ways(s, i, first, read_columns);
    kir_barrier(k, KIR_BLOCK);
    KirOpen loop =
        open_whole(s, "x", first, tiles > group ? code_add(x, first, code_int(x, group)) : all, 1, &tile);
    loop.statement->n = -1;
    if (tiles % group)
        there = open_if(s, KB_LT, tile, all);
    const KirTemplate by[] = { stored(s), { .value = group * WINDOW_TILE } };
    const KirExpr *at = code_mul(x, code_sub(x, tile, first), code_int(x, WINDOW_TILE));
    const KirExpr *of[] = { kir_element(k, s->sums[i], tile), s->pairs[slot], code_add(x, s->columns, at) };
    kir_do(k, kir_call(k, "cell_window_weigh", by, 2, of, 3));
    if (tiles % group)
        kir_close(k, there);
    kir_close(k, loop);
    kir_barrier(k, KIR_BLOCK);
    if (tiles > group)
        kir_close(k, several);
}

/* ---- the loops ---- */

/* One end of the distances of a sum at the step in scope: declares it, with what limits it. */
static const KirExpr *limit_of(const Pass *s, const PastLimits *limits, const Poly *all, PastLimitKind kind)
{
    Code *x = s->x;
    bool until = kind == PAST_UNTIL;
    const char *name = names_fresh(&x->k->locals, until ? "end" : "begin");
    const KirExpr *end = kir_mutable(x->kir, name, KT_I64, until ? code_size(x, all) : code_int(x, 0));
    for (int i = 0; i <= limits->len; i++) {
        bool fewer = i == limits->len && until && all == s->w->places;
        if (!fewer && (i == limits->len || limits->data[i].kind != kind))
            continue;
        const KirExpr *at = fewer ? code_size(x, s->w->extent) : ix_node(&x->printer, limits->data[i].at);
        KirOpen open = open_if(s, until ? KB_GT : KB_LT, end, at);
        kir_assign(x->kir, end, at);
        kir_close(x->kir, open);
    }
    return end;
}

/* Do two sums have the same distances there? They are paired with the same steps then. */
static bool same_limits(const PastLimits *a, const PastLimits *b, PastLimitKind kind)
{
    int j = 0;
    for (int i = 0; i < a->len; i++) {
        if (a->data[i].kind != kind)
            continue;
        while (j < b->len && b->data[j].kind != kind)
            j++;
        if (j == b->len || a->data[i].at != b->data[j++].at)
            return false;
    }
    while (j < b->len && b->data[j].kind != kind)
        j++;
    return j == b->len;
}

/* The other steps that one end of a tile has pairs with, in any of the sums. */
static const KirExpr *range_end(const Pass *s, const PastLimits *limits, bool last)
{
    Code *x = s->x;
    const KirExpr *t = x->t, *step = last ? s->last : s->first, *all = NULL, *one = code_int(x, 1);
    PastLimitKind kind = s->w->by_key == last ? PAST_UNTIL : PAST_FROM;
    for (int i = 0; i < s->w->n; i++) {
        bool again = false;
        for (int j = 0; j < i; j++)
            again |= extent_of(s, sum_of(s, i)->w) == extent_of(s, sum_of(s, j)->w) &&
                     same_limits(&limits[i], &limits[j], kind);
        if (again)
            continue;
        x->t = step;
        bind_sum(s, sum_of(s, i), NULL);
        const KirExpr *end = limit_of(s, &limits[i], extent_of(s, sum_of(s, i)->w), kind);
        x->t = t;
        const KirExpr *other = s->w->by_key ? code_add(x, step, end) : code_sub(x, step, end);
        if (kind == PAST_UNTIL)
            other = s->w->by_key ? code_sub(x, other, one) : code_add(x, other, one);
        if (!all) {
            all = kir_mutable(x->kir, last ? "high" : "low", KT_I64, other);
            continue;
        }
        KirOpen open = open_if(s, last ? KB_GT : KB_LT, other, all);
        kir_assign(x->kir, all, other);
        kir_close(x->kir, open);
    }
    return all;
}

static void declare_range(Pass *s)
{
    Code *x = s->x;
    PastLimits limits[8] = { { 0 } };
    for (int i = 0; i < s->w->n; i++)
        past_limits(x->k, sum_of(s, i)->array, sum_of(s, i)->w, s->w->by_key ? -1 : 1, &limits[i]);
    s->low = range_end(s, limits, false);
    s->high = range_end(s, limits, true);
    if (!s->w->by_key)
        return;
    KirOpen open = open_if(s, KB_GE, s->high, code_steps(x));
    kir_assign(x->kir, s->high, code_sub(x, code_steps(x), code_int(x, 1)));
    kir_close(x->kir, open);
}

/* Places beyond the steps have no products, and nothing is weighed by them here. */
static void put_places(Pass *s, const KirExpr *extent)
{
    Code *x = s->x;
    const KirExpr *all = code_size(x, s->w->places);
    s->places = true;
    KirOpen loop = code_for(x, "from", extent, all, code_int(x, WINDOW_TILE), &s->from);
    kir_barrier(x->kir, KIR_BLOCK);
    if (s->w->max >= 0)
        join_maximum(s, all);
    put_weights(s, all);
    kir_close(x->kir, loop);
    s->places = false;
    if (s->w->max < 0)
        return;
    kir_barrier(x->kir, KIR_BLOCK);
    for (int i = 0; i < s->w->n; i++)
        if (sum_of(s, i)->along >= 0 && sum_of(s, i)->over != OVER_NOTHING)
            rescale(s, i);
}

static void put_tiles(Pass *s)
{
    Code *x = s->x;
    const KirExpr *extent = code_size(x, s->w->extent);
    put_owners(s);
    KirOpen loop =
        kir_for(x->kir, "from", KT_I64, s->low, KB_LE, s->high, code_int(x, WINDOW_TILE), &s->from);
    for (int i = 0; i < s->w->n_dots; i++)
        put_dot(s, i);
    if (!mutate("early-weights"))
        kir_barrier(x->kir, KIR_BLOCK);
    if (s->w->max >= 0)
        join_maximum(s, extent);
    put_weights(s, extent);
    kir_barrier(x->kir, KIR_BLOCK);
    for (int i = 0, slot = 0; i < s->w->n; i++)
        if (sum_of(s, i)->along >= 0)
            weigh_columns(s, i, slot++);
    kir_close(x->kir, loop);
    if (s->w->places)
        put_places(s, extent);
}

/* ---- results ---- */

static const KirExpr *positive_total(const Pass *s)
{
    const KirExpr *total = s->parts[s->w->total], *none = number(s, 0);
    return kir_select(s->x->kir, code_binary(s->x, KB_GT, total, none), total, number(s, 1));
}

static void store_sum(const Pass *s, int i)
{
    Code *x = s->x;
    const WindowSum *sum = sum_of(s, i);
    const KirExpr *value = i == s->w->max ? s->most : s->parts[i], *none = code_int(x, 0);
    if (sum->over == OVER_TOTAL)
        value = code_binary(x, KB_DIV, value, positive_total(s));
    bind_sum(s, sum, none);
    const KirExpr *one = code_binary(x, KB_EQ, s->part, none);
    one = code_binary(x, KB_AND, one, code_binary(x, KB_LT, code_add(x, s->first, s->mine), code_steps(x)));
    if (s->passes)
        one = code_binary(x, KB_AND, one, code_binary(x, KB_EQ, s->base, none));
    KirOpen open = kir_if(x->kir, one);
    code_store(x, sum->array, value);
    kir_close(x->kir, open);
}

static const KirExpr *own_row(const Pass *s, const KirExpr *q)
{
    return kir_call1(s->x->kir, "cell_window_row", q);
}

static void store_columns(const Pass *s, int i)
{
    Code *x = s->x;
    Kir *k = x->kir;
    const WindowSum *sum = sum_of(s, i);
    const KirExpr *q, *n, *divisor = NULL, *t = x->t, *four = code_int(x, 4);
    KirOpen rows = open_whole(s, "q", code_int(x, 0), code_int(x, 2), 1, &q);
    rows.statement->n = -1;
    const KirExpr *own = code_let(x, "own", code_add(x, s->first, own_row(s, q)));
    if (sum->over == OVER_TOTAL)
        divisor = kir_let(k, "divisor", code_real(x), kir_element(k, s->factors, own_row(s, q)));
    KirOpen all = open_whole(s, "x", code_int(x, 0), code_int(x, 4 * tiles_of(s, sum)), 1, &n);
    all.statement->n = -1;
    const KirExpr *tile = code_binary(x, KB_DIV, n, four), *within = code_binary(x, KB_MOD, n, four);
    const KirExpr *column = code_add(x, s->base, code_mul(x, tile, code_int(x, WINDOW_TILE)));
    column = code_let(x, "i", code_add(x, column, kir_call1(k, "cell_window_column", within)));
    KirOpen open = kir_if(k, code_binary(x, KB_AND, code_binary(x, KB_LT, own, code_steps(x)),
                                         code_binary(x, KB_LT, column, columns_of(s, sum))));
    bind_sum(s, sum, code_int(x, 0));
    x->index[sum->along] = column;
    x->t = own;
    const KirExpr *at = code_add(x, code_mul(x, q, four), within);
    const KirExpr *v = kir_element(k, kir_element(k, s->sums[i], tile), at);
    code_store(x, sum->array, divisor ? code_binary(x, KB_DIV, v, divisor) : v);
    x->t = t;
    kir_close(k, open);
    kir_close(k, all);
    kir_close(k, rows);
}

static void store_results(const Pass *s)
{
    Code *x = s->x;
    Kir *k = x->kir;
    const Window *w = s->w;
    for (int i = 0; i < w->n; i++)
        if (i != w->max && sum_of(s, i)->along < 0)
            kir_assign(k, s->parts[i], kir_call2(k, "cell_window_total", s->shares, s->parts[i]));
    if (w->total >= 0) {
        kir_barrier(k, KIR_BLOCK);
        KirOpen open = open_if(s, KB_EQ, s->part, code_int(x, 0));
        /* The total of a row without a pair is 0, and so are its sums. */
        kir_assign(k, kir_element(k, s->factors, s->mine), positive_total(s));
        kir_close(k, open);
    }
    kir_barrier(k, KIR_BLOCK);
    for (int i = 0; i < w->n; i++)
        (sum_of(s, i)->along < 0 ? store_sum : store_columns)(s, i);
}

/* ---- shared memory ---- */

/* Elements of a dot's operand, with the padding behind each step. */
static int operand_elements(int chunk)
{
    return WINDOW_TILE * (chunk + WINDOW_PAD);
}

/* Elements of other steps that lie in shared memory at once: of a dot, or columns. */
static int column_elements(const Pass *s)
{
    int most = 0;
    for (int i = 0; i < s->w->n_dots; i++) {
        int n = operand_elements(s->chunk[i]);
        most = n > most ? n : most;
    }
    for (int i = 0; i < s->w->n; i++) {
        int width = sum_of(s, i)->along >= 0 ? columns_at_once(s, sum_of(s, i)) * WINDOW_TILE : 0;
        int n = WINDOW_TILE * (width + WINDOW_GAP);
        most = n > most ? n : most;
    }
    return most;
}

/* With all operands whole. */
static int64_t whole_bytes(const Pass *s)
{
    int64_t all = column_elements(s) + window_slots(s->w) * PAIRS + WINDOW_THREADS + WINDOW_TILE;
    for (int i = 0; i < s->w->n_dots; i++)
        all += operand_elements(s->chunk[i]);
    return all * kir_bytes(code_real(s->x));
}

/* How much of each dot is multiplied at once: all of it where that is known and little, and then what the owners
 * have is read once. */
static void choose_chunks(Pass *s)
{
    s->whole = true;
    for (int i = 0; i < s->w->n_dots; i++) {
        const Poly *n = extent_of(s, s->w->dots[i].along);
        s->whole = s->whole && n->is_const && n->value <= WINDOW_WHOLE;
        for (s->chunk[i] = WINDOW_TILE; s->whole && s->chunk[i] < n->value;)
            s->chunk[i] *= 2;
    }
    s->whole = s->whole && whole_bytes(s) <= WINDOW_MEMORY;
    for (int i = 0; i < s->w->n_dots && !s->whole; i++)
        s->chunk[i] = WINDOW_TILE;
}

static const KirExpr *shared(const Pass *s, const char *name, int n)
{
    Code *x = s->x;
    x->kir->shared = x->k->g->smem += (int64_t)n * kir_bytes(code_real(x));
    return kir_shared_array(x->kir, name, code_real(x), code_int(x, n));
}

static void declare_tiles(Pass *s)
{
    Code *x = s->x;
    const KirTemplate layout[] = { { .value = WINDOW_GAP }, { .value = WINDOW_PAD } };
    choose_chunks(s);
    x->k->g->smem = 0;
    kir_do(x->kir, kir_call(x->kir, "cell_window_agree", layout, 2, NULL, 0));
    for (int i = 0; i < s->w->n_dots; i++) {
        const char *name = s->whole ? k_text(x->k, "rows_%d", i) : "rows";
        s->rows[i] = s->whole || i == 0 ? shared(s, name, operand_elements(s->chunk[i])) : s->rows[0];
    }
    s->columns = shared(s, "columns", column_elements(s));
    for (int i = 0; i < window_slots(s->w); i++)
        s->pairs[i] = shared(s, k_text(x->k, "pairs_%d", i), PAIRS);
    s->shares = shared(s, "shares", WINDOW_THREADS);
    s->factors = shared(s, "factors", WINDOW_TILE);
    const KirExpr *each = code_int(x, WINDOW_TILE);
    s->thread = kir_special(x->kir, KP_THREAD, 0);
    s->mine = kir_let(x->kir, "mine", KT_I32, code_binary(x, KB_MOD, s->thread, each));
    s->part = kir_let(x->kir, "part", KT_I32, code_binary(x, KB_DIV, s->thread, each));
}

/* ---- where no sum has terms ---- */

static bool all_of_block(const Pass *s, NodeId guard, const WindowSum *sum, Marks *seen)
{
    const Kernel *k = s->x->k;
    const Node *n = k_node(k, guard), *a = k_node(k, sum->array);
    if (!marks_first(seen, guard))
        return true;
    if (n->kind == N_INDEX && (ix_uses(n->ix, IX_TIME) || ix_uses(n->ix, IX_START) || ix_uses(n->ix, sum->w)))
        return false;
    if (n->kind != N_INDEX && n->kind != N_SIZE && n->kind != N_CONST && n->kind != N_MAP)
        return false;
    for (int i = 0; i < n->nargs; i++)
        if (!all_of_block(s, n->args[i], sum, seen))
            return false;
    return sum->along < 0 || n->kind != N_INDEX || !ix_uses(n->ix, a->axes[a->naxes - 1]);
}

static bool of_block(const Pass *s, NodeId guard, const WindowSum *sum)
{
    Marks *seen = marks_begin(s->x->k->p->m);
    bool is = all_of_block(s, guard, sum, seen);
    marks_end(seen);
    return is;
}

static const KirExpr *both(const Pass *s, const KirExpr *a, const KirExpr *b)
{
    return a && b ? code_binary(s->x, KB_AND, a, b) : a ? a : b;
}

/* Each part of a conjunction once. */
static const KirExpr *block_guard_in(const Pass *s, NodeId guard, const WindowSum *sum, Marks *seen)
{
    const Node n = *k_node(s->x->k, guard);
    if (!marks_first(seen, guard))
        return NULL;
    if (n.kind == N_MAP && n.op == OP_AND) {
        const KirExpr *a = block_guard_in(s, n.args[0], sum, seen);
        return both(s, a, block_guard_in(s, n.args[1], sum, seen));
    }
    return of_block(s, guard, sum) ? expr_node(&s->x->printer, guard) : NULL;
}

/* A part of a condition that says of a block's loops that no sum has terms in them. */
static const KirExpr *block_guard(const Pass *s, NodeId guard, const WindowSum *sum)
{
    Marks *seen = marks_begin(s->x->k->p->m);
    const KirExpr *e = block_guard_in(s, guard, sum, seen);
    marks_end(seen);
    return e;
}

/* NULL: there may be some wherever the block is. */
static const KirExpr *any_terms(const Pass *s)
{
    const KirExpr *any = NULL, *before = NULL;
    for (int i = 0; i < s->w->n; i++) {
        const WindowSum *sum = sum_of(s, i);
        const KirExpr *all = NULL;
        bind_sum(s, sum, code_int(s->x, 0));
        for (int g = 0; g < sum->weight.n_guards; g++)
            all = both(s, all, block_guard(s, sum->weight.guards[g], sum));
        if (!all)
            return NULL;
        if (!any || !kir_equal(before, all))
            any = any ? code_binary(s->x, KB_OR, any, all) : all;
        before = all;
    }
    return any;
}

/* ---- the kernel ---- */

/* What each of the window's sums begins with. */
static void declare_sums(Pass *s)
{
    Code *x = s->x;
    const KirExpr *none = code_int(x, 0), *eight = code_int(x, 8);
    for (int i = 0; i < s->w->n; i++) {
        const WindowSum *sum = sum_of(s, i);
        code_comment(x, sum->array);
        if (i == s->w->max) {
            s->most = kir_mutable(x->kir, "most", code_real(x), number(s, -HUGE_VAL));
        } else if (sum->along < 0) {
            s->parts[i] = kir_mutable(x->kir, k_text(x->k, "part_%d", i), code_real(x), none);
        } else {
            const char *name = k_text(x->k, "sums_%d", i);
            s->sums[i] =
                kir_array_of_arrays(x->kir, name, code_real(x), code_int(x, tiles_of(s, sum)), eight);
            x->kir->at->data[x->kir->at->len - 1]->n = 1;
        }
    }
}

/* The loops over bound indices of a block: those that no sum has a term for are left out. */
static void all_pairs(Pass *s)
{
    Code *x = s->x;
    KirOpen loops[4], some = { 0 };
    for (int i = 0; i < s->w->n_outer; i++) {
        IndexId id = s->w->outer[i];
        const char *name = k_text(x->k, "i_%s", x->k->p->m->indices.data[id].name);
        loops[i] = code_for(x, names_fresh(&x->k->locals, name), code_int(x, 0),
                            code_size(x, extent_of(s, id)), code_int(x, 1), &x->index[id]);
    }
    const KirExpr *any = any_terms(s);
    if (any)
        some = kir_if(x->kir, any);
    declare_range(s);
    put_tiles(s);
    if (any)
        kir_close(x->kir, some);
    for (int i = s->w->n_outer - 1; i >= 0; i--)
        kir_close(x->kir, loops[i]);
}

/* A loop over passes: as many columns at a time as registers hold. */
static KirOpen open_passes(Pass *s)
{
    Code *x = s->x;
    const KirExpr *most = NULL;
    const Poly *of = NULL;
    for (int i = 0; i < s->w->n; i++) {
        const WindowSum *sum = sum_of(s, i);
        if (sum->along < 0 || extent_of(s, sum->along) == of)
            continue;
        of = extent_of(s, sum->along);
        const KirExpr *n = columns_of(s, sum);
        most = most ? kir_select(x->kir, code_binary(x, KB_GT, n, most), n, most) : n;
    }
    return code_for(x, "base", code_int(x, 0), most, code_int(x, WINDOW_PASS * WINDOW_TILE), &s->base);
}

/* The block's place in the axes, and its steps. */
static void declare_owners(Pass *s, const KirExpr *n, const KirExpr *elements, const KirExpr *heads)
{
    Code *x = s->x;
    const Node first = *k_node(x->k, s->w->sums[0].array);
    const KirExpr *rest = code_binary(x, KB_MOD, n, heads), *last = code_int(x, WINDOW_TILE - 1);
    x->b = code_let(x, "b", code_binary(x, KB_DIV, rest, elements));
    const KirExpr *r = code_let(x, "r", code_binary(x, KB_MOD, n, elements));
    code_split_element(x, first.axes, s->w->naxes, r, "row");
    code_keep_axes(x, s->w->sums[0].array);
    s->first = code_let(x, "first", code_mul(x, s->tile, code_int(x, WINDOW_TILE)));
    const KirExpr *end = code_add(x, s->first, last), *steps = code_steps(x);
    s->last = code_let(x, "last",
                       kir_select(x->kir, code_binary(x, KB_LT, end, steps), end,
                                  code_sub(x, steps, code_int(x, 1))));
    x->t = code_let(x, "t", lesser(s, code_add(x, s->first, s->mine), s->last));
}

static void window_kernel(Pass *s)
{
    Code *x = s->x;
    const Window *w = s->w;
    Group *g = x->k->g;
    KirOpen passes = { 0 };
    declare_tiles(s);
    const KirExpr *n, *elements = code_let(x, "elements", code_sizes(x, g->axes, g->naxes));
    const KirExpr *heads = code_let(x, "heads", code_mul(x, code_batch(x), elements));
    const KirExpr *more = code_add(x, code_steps(x), code_int(x, WINDOW_TILE - 1));
    const KirExpr *tiles = code_let(x, "tiles", code_binary(x, KB_DIV, more, code_int(x, WINDOW_TILE)));
    KirOpen all = code_for(x, "n", kir_special(x->kir, KP_BLOCK, 0), code_mul(x, heads, tiles),
                           kir_special(x->kir, KP_BLOCKS, 0), &n);
    /* Blocks that have most pairs come first. */
    const KirExpr *number_of_tile = code_binary(x, KB_DIV, n, heads),
                  *behind = code_sub(x, tiles, code_int(x, 1));
    s->tile = code_let(x, "tile", w->by_key ? number_of_tile : code_sub(x, behind, number_of_tile));
    declare_owners(s, n, elements, heads);
    x->depth = 1; /* nothing is kept from pair to pair */
    if (w->total >= 0)
        x->value[w->sums[w->total].array] = number(s, 1);
    if (s->passes)
        passes = open_passes(s);
    declare_sums(s);
    all_pairs(s);
    store_results(s);
    if (s->passes)
        kir_close(x->kir, passes);
    kir_barrier(x->kir, KIR_BLOCK);
    kir_close(x->kir, all);
}

void window_print(Kernel *k)
{
    k->g->threads = k->g->lanes = WINDOW_THREADS;
    Code *x = code_of_group(k);
    Pass s = { .x = x, .w = k->g->pass, .base = code_int(x, 0) };
    k->of_schedule = &s;
    x->reduces = dot_value;
    s.passes = needs_passes(&s);
    window_kernel(&s);
    code_print(k->p, code_end(x), k->out);
}
