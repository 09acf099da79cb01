/* window_tiles.c: tiles of elements in shared memory, and products of them. In come a dot, or a sum with
 * columns; out go the loops that read what the owners and the other steps have of it, and the calls that
 * multiply tiles: to the products of pairs, or from their weights to what stays in registers. */
#include "window_kernel.h"

/* ---- products ---- */

static const KirExpr *length_of(const WindowPass *s, int dot)
{
    return code_size(s->x, window_extent(s, s->w->dots[dot].along));
}

/* A loop over the elements of a tile of `width` to a step, a divisor of WINDOW_THREADS: a thread has the
 * same one of each step at a `place`, `in` is its place there, and i counts from `first`. */
typedef struct Elements {
    KirOpen loop;
    const KirExpr *place, *in, *i;
} Elements;

static Elements open_elements(const WindowPass *s, int width, const KirExpr *first, int behind)
{
    Code *x = s->x;
    Elements e;
    const KirExpr *side = code_binary(x, KB_DIV, s->thread, code_int(x, width));
    const KirExpr *lane = code_binary(x, KB_MOD, s->thread, code_int(x, width));
    e.loop = window_open_whole(s, "place", side, code_int(x, WINDOW_TILE), WINDOW_THREADS / width, &e.place);
    e.loop.statement->n = 4;
    const KirExpr *row = code_mul(x, e.place, code_int(x, width + behind));
    e.in = kir_let(x->kir, "in", KT_I32, code_add(x, row, lane));
    e.i = code_let(x, "i", code_add(x, first, lane));
    return e;
}

/* Reads of the other step: where all of a tile is in the call, as most tiles are, without any condition on
 * that. */
static void both_ways(WindowPass *s, int i, const KirExpr *first,
                      void (*read)(WindowPass *s, int i, const KirExpr *first))
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

static const KirExpr *other_step(const WindowPass *s, const Elements *e)
{
    return code_let(s->x, "s", code_add(s->x, s->from, e->place));
}

/* Puts a value of the other step in its place, 0 where there is no such element or step. */
static void put_other(const WindowPass *s, const Elements *e, const KirExpr *extent, const Factors *f,
                      const KirExpr *value)
{
    Code *x = s->x;
    const KirExpr *step = x->t, *none = code_int(x, 0), *there = code_binary(x, KB_LT, e->i, extent);
    if (!s->inside)
        there = code_binary(x, KB_AND, there, window_other_there(s, f, step));
    kir_assign(x->kir, kir_element(x->kir, s->columns, e->in), kir_select(x->kir, there, value, none));
}

static void assume_inside(const WindowPass *s, const KirExpr *step)
{
    Code *x = s->x;
    const KirExpr *none = code_int(x, 0), *start = code_nodes.start(&x->printer);
    if (!s->inside)
        return;
    kir_do(x->kir, kir_call1(x->kir, "cell_assume", code_binary(x, KB_GE, step, none)));
    kir_do(x->kir, kir_call1(x->kir, "cell_assume", code_binary(x, KB_LT, step, code_steps(x))));
    kir_do(x->kir, kir_call1(x->kir, "cell_assume", code_binary(x, KB_GE, start, none)));
}

static void read_own(const WindowPass *s, int dot, const KirExpr *first)
{
    Code *x = s->x;
    const WindowDot *d = &s->w->dots[dot];
    const KirExpr *t = x->t;
    Elements e = open_elements(s, s->chunk[dot], first, WINDOW_PAD);
    x->t = code_let(x, "own", window_lesser(s, code_add(x, s->first, e.place), s->last));
    window_bind_sum(s, window_sum(s, 0), code_int(x, 0));
    const KirExpr *v = window_side_value(s, d, &d->own, e.i),
                  *there = code_binary(x, KB_LT, e.i, length_of(s, dot));
    kir_assign(x->kir, kir_element(x->kir, s->rows[dot], e.in), kir_select(x->kir, there, v, code_int(x, 0)));
    x->t = t;
    kir_close(x->kir, e.loop);
}

/* What the owners have in each dot, once for all that they are paired with. */
void window_put_owners(const WindowPass *s)
{
    for (int i = 0; i < s->w->n_dots && s->whole; i++) {
        code_comment(s->x, s->w->dots[i].array);
        read_own(s, i, code_int(s->x, 0));
    }
}

static void read_dot(WindowPass *s, int dot, const KirExpr *first)
{
    Code *x = s->x;
    const WindowDot *d = &s->w->dots[dot];
    const KirExpr *t = x->t;
    Elements e = open_elements(s, s->chunk[dot], first, WINDOW_PAD);
    window_bind_sum(s, window_sum(s, 0), code_int(x, 0));
    x->t = other_step(s, &e);
    assume_inside(s, x->t);
    put_other(s, &e, length_of(s, dot), &d->other, window_side_value(s, d, &d->other, e.i));
    x->t = t;
    kir_close(x->kir, e.loop);
}

static KirTemplate stored(const WindowPass *s)
{
    return (KirTemplate){ .type = code_scalar(s->x->k->p->dtype) };
}

/* How many of a dot's elements from `first` on are multiplied at once. */
static const KirExpr *count_of(const WindowPass *s, int dot, const KirExpr *first)
{
    const KirExpr *extent = length_of(s, dot), *chunk = code_int(s->x, s->chunk[dot]);
    if (s->whole)
        return extent;
    return kir_convert(s->x->kir, kir_value(KT_I32), window_lesser(s, code_sub(s->x, extent, first), chunk));
}

void window_put_dot(WindowPass *s, int dot)
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

/* ---- columns ---- */

const KirExpr *window_columns(const WindowPass *s, const WindowSum *sum)
{
    return code_size(s->x, window_extent(s, sum->along));
}

int window_column_tiles(const WindowPass *s, const WindowSum *sum)
{
    return s->passes ? WINDOW_PASS
                     : (int)((window_extent(s, sum->along)->value + WINDOW_TILE - 1) / WINDOW_TILE);
}

bool window_needs_passes(const WindowPass *s)
{
    for (int i = 0; i < s->w->n; i++) {
        if (window_sum(s, i)->along < 0)
            continue;
        const Poly *n = window_extent(s, window_sum(s, i)->along);
        if (!n->is_const || n->value > WINDOW_MOST * WINDOW_TILE)
            return true;
    }
    return false;
}

/* Tiles of columns that lie in shared memory at once. */
int window_columns_at_once(const WindowPass *s, const WindowSum *sum)
{
    int tiles = window_column_tiles(s, sum);
    return tiles == 1 || code_real(s->x) == KT_F64 ? 1 : tiles < 4 ? 2 : 4;
}

static void read_columns(WindowPass *s, int i, const KirExpr *first)
{
    Code *x = s->x;
    const WindowSum *sum = window_sum(s, i);
    const KirExpr *t = x->t, *column = code_mul(x, first, code_int(x, WINDOW_TILE));
    Elements e = open_elements(s, window_columns_at_once(s, sum) * WINDOW_TILE, code_add(x, s->base, column),
                               WINDOW_GAP);
    window_bind_sum(s, sum, code_int(x, 0));
    x->index[sum->along] = e.i;
    x->t = other_step(s, &e);
    assume_inside(s, x->t);
    put_other(s, &e, window_columns(s, sum), &sum->other, window_product_value(s, &sum->other, NULL));
    x->t = t;
    kir_close(x->kir, e.loop);
}

void window_rescale(const WindowPass *s, int i)
{
    kir_do(s->x->kir, kir_call2(s->x->kir, "cell_window_rescale", s->sums[i], s->factors));
}

/* All tiles of columns, in turns of as many as lie in shared memory at once, weighed by the pairs. */
void window_weigh_columns(WindowPass *s, int i, int slot)
{
    Code *x = s->x;
    Kir *k = x->kir;
    const WindowSum *sum = window_sum(s, i);
    int tiles = window_column_tiles(s, sum), group = window_columns_at_once(s, sum);
    const KirExpr *first = code_int(x, 0), *all = code_int(x, tiles), *tile;
    KirOpen several = { 0 }, there = { 0 };
    if (sum->over != OVER_NOTHING && s->w->max >= 0)
        window_rescale(s, i);
    if (tiles > group) {
        several = window_open_whole(s, "tile_x", first, all, group, &first);
        several.statement->n = -1;
    }
    both_ways(s, i, first, read_columns);
    kir_barrier(k, KIR_BLOCK);
    KirOpen loop = window_open_whole(s, "x", first,
                                     tiles > group ? code_add(x, first, code_int(x, group)) : all, 1, &tile);
    loop.statement->n = -1;
    if (tiles % group)
        there = window_open_if(s, KB_LT, tile, all);
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
