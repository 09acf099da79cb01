/* kernels_window.c: CUDA text of sums over the past in one pass (window.c). In comes a group of such sums; out goes a
 * kernel whose block has a tile of steps of a sequence (and a place of the axes that the products vary over, a head),
 * and takes the steps that these are paired with tile by tile: products of tiles give what the pairs are made of, each
 * pair's weight is computed once, and products of tiles add what is weighed. A maximum is the one of the pairs so far;
 * where it grows, what was summed is scaled (an online softmax: Milakov and Gimelshein, 2018; Dao et al., 2022). No
 * pair lies in memory outside of the block, and the order of every sum follows from sizes. */
#include <string.h>

#include "base/mutate.h"
#include "ir/marks.h"
#include "kernels/kernels.h"
#include "window.h"

#define TILE "32"                 /* WINDOW_TILE, in texts */
enum { PAIRS = WINDOW_TILE * (WINDOW_TILE + WINDOW_GAP) };      /* of a tile, with the gaps between its rows */

typedef struct Printing {
    Kernel *k;
    const Window *w;
    Node first;                   /* array of the first sum */
    bool passes;                  /* over columns, beyond those that stay in registers */
    const char *slots[8];         /* tiles of pairs */
    int chunk[4];                 /* per dot: elements that are multiplied at once */
    bool whole;                   /* these are all of them: the owners' stay in shared memory */
    bool places;                  /* pairs without another step are printed */
    bool inside;                  /* all other steps of the tile are in the call */
} Printing;

static const WindowSum *sum_of(const Printing *s, int i)
{
    return &s->w->sums[i];
}

/* ---- products ---- */

static const char *product_text(Kernel *k, const Factors *f, const char *first)
{
    const char *all = first;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < f->len; i++) {
            if (f->data[i].inverse != pass)
                continue;
            const char *s = expr_text(&k->printer, f->data[i].id);
            if (pass)
                all = k_text(k, "%s / (%s)", all ? all : k_text(k, "(%s)1", k->real), s);
            else
                all = all ? k_text(k, "%s * (%s)", all, s) : k_text(k, "(%s)", s);
        }
    if (!all)
        all = k_text(k, "(%s)1", k->real);
    if (f->negative)
        all = k_text(k, "-(%s)", all);
    for (int i = f->n_guards - 1; i >= 0; i--)
        all = k_text(k, "(%s ? %s : 0)", expr_text(&k->printer, f->guards[i]), all);
    return all;
}

/* What the kernel keeps (Kernel.of_schedule): the pass, while it is printed, and whether its products lie in
 * tiles at this place; else there are none. */
typedef struct InPass { const Window *w; bool pairs; } InPass;

/* A sum of products that lies in a tile: where its pair is printed. */
static const char *window_dot(Kernel *k, NodeId reduce)
{
    const InPass *in = k->of_schedule;
    const Window *w = in->w;
    for (int i = 0; w && i < w->n_dots; i++) {
        const char *pair = in->pairs ? k_text(k, "(%s)pairs_%d[at]", k->real, i) : "0";
        if (w->dots[i].reduce == reduce)
            return k_text(k, "(%s)", product_text(k, &w->dots[i].scale, pair));
    }
    return NULL;
}

/* The value of one step: factors as they stand in the array that multiplies them, read where the sums read it. */
static const char *side_text(Printing *s, const WindowDot *d, const Factors *f)
{
    Kernel *k = s->k;
    const Node a = *k_node(k, d->array);
    const char *inside[64], *before[64], *t = k->t;
    const char *step = k_text(k, "(%s - t0)", ix_text(&k->printer, d->read.step));
    for (int i = 0; i < a.naxes; i++)
        inside[i] = ix_text(&k->printer, d->read.map[i]);
    for (int i = 0; i < a.naxes; i++) {
        before[i] = k->index[a.axes[i]];
        k->index[a.axes[i]] = inside[i];
    }
    if (d->read.step != ix_index(k->p->m, IX_TIME))
        k->t = step;
    k->index[d->along] = "i";
    const char *text = product_text(k, f, NULL);
    for (int i = a.naxes - 1; i >= 0; i--)
        k->index[a.axes[i]] = before[i];
    k->t = t;
    return text;
}

/* ---- the other step ---- */

static int least_step_in(const Printing *s, NodeId id, Marks *seen)
{
    const Kernel *k = s->k;
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
static int least_step(const Printing *s, NodeId id)
{
    Marks *seen = marks_begin(s->k->p->m);
    int least = least_step_in(s, id, seen);
    marks_end(seen);
    return least;
}

static const char *other_there(const Printing *s, const Factors *f)
{
    int least = 0;
    for (int i = 0; i < f->len; i++) {
        int x = least_step(s, f->data[i].id);
        least = x > least ? x : least;
    }
    if (s->w->by_key)
        return "s <= high";       /* what is read there may lie behind s, and is in the call up to here */
    if (least == 0)
        return "s < dim_T";
    return least == 2 ? "s >= 0 && s < dim_T" : "t0 + s >= 0 && s < dim_T";
}

static void bind_sum(Printing *s, const WindowSum *x, const char *distance)
{
    k_bind_axes(s->k, x->array);
    s->k->index[x->w] = distance;
}

static void open_block(Kernel *k)
{
    buf_line(k->out, "{");
    k->out->indent++;
}

/* ---- tiles of products ---- */

static const char *extent_of(Printing *s, int dot)
{
    return poly_text(&s->k->printer, s->k->p->m->indices.data[s->w->dots[dot].along].extent);
}

/* A loop over the elements of a tile of `width` to a step, a divisor of WINDOW_THREADS: a thread has the same one of each
 * step at a `place`, `in` is its place there, and i counts from `first`. */
static void open_elements(Printing *s, int width, const char *first, const char *behind)
{
    Kernel *k = s->k;
    buf_line(k->out, "CELL_UNROLL_BY(4)");
    k_open(k, "for (int place = cell_thread() / %d; place < " TILE "; place += %d)", width, WINDOW_THREADS / width);
    buf_line(k->out, "const int in = place * (%d + %s) + cell_thread() %% %d;", width, behind, width);
    buf_line(k->out, "const int64_t i = %scell_thread() %% %d;", first, width);
}

/* Reads of the other step: where all of a tile is in the call, as most tiles are, without any condition on that. */
static void both_ways(Printing *s, int i, void (*read)(Printing *s, int i))
{
    Kernel *k = s->k;
    for (int inside = 1; inside >= 0; inside--) {
        if (inside)
            k_open(k, "if (from >= 0 && from + " TILE " <= %s)", s->w->by_key ? "high + 1" : "dim_T");
        s->inside = inside;
        read(s, i);
        k->out->indent--;
        buf_line(k->out, inside ? "} else {" : "}");
        k->out->indent += inside;
    }
}

/* "columns[in] = ...", 0 where there is no such element or step. */
static void put_other(Printing *s, const char *extent, const Factors *f, const char *value)
{
    Kernel *k = s->k;
    buf_line(k->out, "const int64_t s = from + place;");
    if (s->inside) {
        buf_line(k->out, "cell_assume(s >= 0);");
        buf_line(k->out, "cell_assume(s < dim_T);");
        buf_line(k->out, "cell_assume(t0 >= 0);");
    }
    buf_line(k->out, "columns[in] = i < %s%s%s ? %s : 0;", extent, s->inside ? "" : " && ", s->inside ? "" : other_there(s, f),
             value);
}

/* The same for a dot's operand. */
static void open_operand(Printing *s, int dot)
{
    open_elements(s, s->chunk[dot], s->whole ? "" : "from_i + ", "CELL_WINDOW_PAD");
}

static const char *rows_name(Printing *s, int dot)
{
    return s->whole ? k_text(s->k, "rows_%d", dot) : "rows";
}

static void read_own(Printing *s, int dot)
{
    Kernel *k = s->k;
    const WindowDot *d = &s->w->dots[dot];
    open_operand(s, dot);
    buf_line(k->out, "[[maybe_unused]] const int64_t own = first + place < last ? first + place : last;");
    bind_sum(s, sum_of(s, 0), "0");
    k->t = "own";
    buf_line(k->out, "%s[in] = i < %s ? %s : 0;", rows_name(s, dot), extent_of(s, dot), side_text(s, d, &d->own));
    k->t = "t";
    k_close(k);
}

/* What the owners have in each dot, once for all that they are paired with. */
static void print_owners(Printing *s)
{
    Kernel *k = s->k;
    for (int i = 0; i < s->w->n_dots && s->whole; i++) {
        k_comment(k, s->w->dots[i].array);
        read_own(s, i);
    }
}

static void read_dot(Printing *s, int dot)
{
    Kernel *k = s->k;
    const WindowDot *d = &s->w->dots[dot];
    open_operand(s, dot);
    bind_sum(s, sum_of(s, 0), "0");
    k->t = "s";
    put_other(s, extent_of(s, dot), &d->other, side_text(s, d, &d->other));
    k->t = "t";
    k_close(k);
}

static void print_dot(Printing *s, int number)
{
    Kernel *k = s->k;
    const WindowDot *d = &s->w->dots[number];
    const char *extent = extent_of(s, number);
    int chunk = s->chunk[number];
    k_comment(k, d->array);
    open_block(k);
    buf_line(k->out, "%s sums[2][4] = {};", k->real);
    if (!s->whole)
        k_open(k, "for (int64_t from_i = 0; from_i < %s; from_i += %d)", extent, chunk);
    buf_line(k->out, "cell_barrier();");
    if (!s->whole)
        read_own(s, number);
    both_ways(s, number, read_dot);
    buf_line(k->out, "cell_barrier();");
    const char *count = s->whole ? extent : k_text(k, "(int)(%s - from_i < %d ? %s - from_i : %d)", extent, chunk, extent, chunk);
    buf_line(k->out, "cell_window_multiply<%s, %d>(sums, %s, columns, %s);", k_type(k->p->dtype), chunk,
             rows_name(s, number), count);
    if (!s->whole)
        k_close(k);
    buf_line(k->out, "cell_window_put(%s, sums);", s->slots[number]);
    k_close(k);
}

/* ---- pairs ---- */

/* Opens a loop over the pairs of a thread: one owner, every fourth of the other steps. */
static void open_pairs(Printing *s, const char *extent)
{
    Kernel *k = s->k;
    k_open(k, "for (int c = part; c < " TILE "; c += 4)");
    if (s->places) {
        buf_line(k->out, "const int64_t u = from + c;");
        k_open(k, "if (u < %s)", extent);
        return;
    }
    buf_line(k->out, "[[maybe_unused]] const int at = c * (" TILE " + CELL_WINDOW_GAP) + mine;");
    buf_line(k->out, "const int64_t s = from + c, u = %s;", s->w->by_key ? "s - t" : "t - s");
}

static void open_valid(Printing *s, const char *extent)
{
    if (!s->places)
        k_open(s->k, "if (u >= 0 && u < %s%s)", extent, s->w->by_key ? " && s <= high" : "");
}

static void print_maximum(Printing *s, const char *extent)
{
    Kernel *k = s->k;
    const WindowSum *x = sum_of(s, s->w->max);
    buf_line(k->out, "%s near = most;", k->real);
    open_pairs(s, extent);
    open_valid(s, extent);
    bind_sum(s, x, "u");
    k->past_values.len = 0;
    k->past_keeps = true;
    const char *term = k_bare(k, expr_text(&k->printer, x->term));
    k->past_keeps = false;
    buf_line(k->out, "near = cell_max(near, (%s)%s);", k->real, k_text(k, "(%s)", term));
    k_close(k);
    k_close(k);
    buf_line(k->out, "shares[cell_thread()] = near;");
    buf_line(k->out, "cell_barrier();");
    buf_line(k->out, "for (int share = 0; share < 4; share++)");
    buf_line(k->out, "    near = cell_max(near, (%s)shares[mine + share * " TILE "]);", k->real);
    buf_line(k->out, "const %s scale = most == near ? 1 : cell_exp(most - near);", k->real);
    buf_line(k->out, "if (part == 0)");
    buf_line(k->out, "    factors[mine] = scale;");
    buf_line(k->out, "most = near;");
    /* Where all terms so far are exp(-inf), none may become exp(inf - inf). */
    buf_line(k->out, "[[maybe_unused]] const %s now = near == -CELL_INF ? 0 : near;", k->real);
    for (int i = 0; i < s->w->n; i++)
        if (sum_of(s, i)->over != OVER_NOTHING && sum_of(s, i)->along < 0 && !mutate("unscaled-sum"))
            buf_line(k->out, "part_%d *= scale;", i);
}

/* The weight of a pair in every sum: added to those without columns, and kept for the products. */
static void print_weights(Printing *s, const char *extent)
{
    Kernel *k = s->k;
    open_pairs(s, extent);
    for (int i = 0; i < s->w->n && !s->places; i++)
        if (sum_of(s, i)->along >= 0)
            buf_line(k->out, "%s weight_%d = 0;", k->real, i);
    open_valid(s, extent);
    k->past_values.len = 0;
    k->past_keeps = true;
    for (int i = 0; i < s->w->n; i++) {
        const WindowSum *x = sum_of(s, i);
        bool more = k->p->m->indices.data[x->w].extent == s->w->places;
        if (i == s->w->max || (s->places && !more))
            continue;
        bind_sum(s, x, "u");
        const char *term = k_bare(k, product_text(k, &x->weight, NULL));
        buf_line(k->out, x->along >= 0 ? "weight_%d = %s;" : "part_%d += %s;", i, term);
    }
    k->past_keeps = false;
    k_close(k);
    int slot = 0;
    for (int i = 0; i < s->w->n && !s->places; i++)
        if (sum_of(s, i)->along >= 0)
            buf_line(k->out, "%s[at] = weight_%d;", s->slots[slot++], i);
    if (!s->places)
        k_close(k);
}

/* ---- columns ---- */

static const char *columns_text(Printing *s, const WindowSum *x)
{
    return poly_text(&s->k->printer, s->k->p->m->indices.data[x->along].extent);
}

static int tiles_of(const Printing *s, const WindowSum *x)
{
    const Poly *n = s->k->p->m->indices.data[x->along].extent;
    return s->passes ? WINDOW_PASS : (int)((n->value + WINDOW_TILE - 1) / WINDOW_TILE);
}

static bool needs_passes(const Kernel *k, const Window *w)
{
    for (int i = 0; i < w->n; i++) {
        if (w->sums[i].along < 0)
            continue;
        const Poly *n = k->p->m->indices.data[w->sums[i].along].extent;
        if (!n->is_const || n->value > WINDOW_MOST * WINDOW_TILE)
            return true;
    }
    return false;
}

/* Tiles of columns that lie in shared memory at once. */
static int columns_at_once(const Printing *s, const WindowSum *x)
{
    int tiles = tiles_of(s, x);
    return tiles == 1 || strcmp(s->k->real, "double") == 0 ? 1 : tiles < 4 ? 2 : 4;
}

static void read_columns(Printing *s, int i)
{
    Kernel *k = s->k;
    const WindowSum *x = sum_of(s, i);
    int group = columns_at_once(s, x);
    open_elements(s, group * WINDOW_TILE, k_text(k, "%s%s", s->passes ? "base + " : "",
                                                 tiles_of(s, x) > group ? "tile_x * " TILE " + " : ""), "CELL_WINDOW_GAP");
    bind_sum(s, x, "0");
    k->index[x->along] = "i";
    k->t = "s";
    const char *value = product_text(k, &x->other, NULL);
    k->t = "t";
    put_other(s, columns_text(s, x), &x->other, value);
    k_close(k);
}

static void print_columns(Printing *s, int i, int slot)
{
    Kernel *k = s->k;
    const WindowSum *x = sum_of(s, i);
    if (x->over != OVER_NOTHING && s->w->max >= 0) {
        buf_line(k->out, "CELL_UNROLL");
        k_open(k, "for (int q = 0; q < 2; q++)");
        buf_line(k->out, "const %s scale_q = factors[cell_window_row(q)];", k->real);
        buf_line(k->out, "CELL_UNROLL");
        buf_line(k->out, "for (int x = 0; x < %d; x++)", 4 * tiles_of(s, x));
        buf_line(k->out, "    sums_%d[x / 4][q][x %% 4] *= scale_q;", i);
        k_close(k);
    }
    int tiles = tiles_of(s, x), group = columns_at_once(s, x), width = group * WINDOW_TILE;
    const char *first = tiles > group ? "tile_x" : "0";
    if (tiles > group) {
        buf_line(k->out, "CELL_UNROLL");
        k_open(k, "for (int tile_x = 0; tile_x < %d; tile_x += %d)", tiles, group);
    } else {
        open_block(k);
    }
    both_ways(s, i, read_columns);
    buf_line(k->out, "cell_barrier();");
    buf_line(k->out, "CELL_UNROLL");
    buf_line(k->out, "for (int x = %s; x < %s; x++)", first, tiles > group ? k_text(k, "tile_x + %d", group) : k_text(k, "%d", tiles));
    if (tiles % group)
        buf_line(k->out, "    if (x < %d)", tiles);
    buf_line(k->out, "    %scell_window_weigh<%s, %d>(sums_%d[x], %s, columns + (x - %s) * " TILE ");", tiles % group ? "    " : "",
             k_type(k->p->dtype), width, i, s->slots[slot], first);
    buf_line(k->out, "cell_barrier();");
    k_close(k);
}

/* ---- the loops ---- */

/* The lines that say of `name`, which is the first or the last distance at step t. */
static const char *limits_of(Printing *s, const WindowSum *x, const char *t, const char *name)
{
    Kernel *k = s->k;
    Buf *out = k->out, limits = { .arena = out->arena, .indent = out->indent };
    k->t = t;
    k->out = &limits;
    bind_sum(s, x, "u");
    const Poly *all = k->p->m->indices.data[x->w].extent;
    past_limits(k, x->array, x->w);
    if (all == s->w->places) {
        buf_line(k->out, "if (end > %s)", poly_text(&k->printer, s->w->extent));
        buf_line(k->out, "    end = %s;", poly_text(&k->printer, s->w->extent));
    }
    k->out = out;
    k->t = "t";
    Buf lines = { .arena = out->arena };
    for (const char *line = limits.data, *next; *line; line = next) {
        next = strchr(line, '\n') + 1;
        const char *text = intern_n(k->p->m->c, line, (size_t)(next - line));
        if (strstr(text, name))
            buf_f(&lines, "%s", text);
    }
    return lines.data;
}

/* The other steps that one end of a tile has pairs with, in any of the sums. */
static void print_end(Printing *s, bool last)
{
    Kernel *k = s->k;
    const char *t = last ? "last" : "first", *name = last ? "high" : "low", *known[8];
    const char *end = s->w->by_key ? last ? "%s + end - 1" : "%s + begin" : last ? "%s - begin" : "%s - end + 1";
    int n = 0;
    for (int i = 0; i < s->w->n; i++) {
        const char *limits = limits_of(s, sum_of(s, i), t, s->w->by_key == last ? "end" : "begin");
        bool again = false;
        for (int j = 0; j < n; j++)
            again |= strcmp(known[j], limits) == 0;
        if (again)
            continue;
        known[n++] = limits;
        open_block(k);
        buf_f(k->out, "%s", limits);
        if (n > 1)
            buf_line(k->out, "if (%s %s %s)", k_text(k, end, t), last ? ">" : "<", name);
        buf_line(k->out, "%s%s = %s;", n > 1 ? "    " : "", name, k_text(k, end, t));
        k_close(k);
    }
}

static void print_range(Printing *s)
{
    buf_line(s->k->out, "int64_t low, high;");
    print_end(s, false);
    print_end(s, true);
    if (!s->w->by_key)
        return;
    buf_line(s->k->out, "if (high >= dim_T)");
    buf_line(s->k->out, "    high = dim_T - 1;");
}

static void print_tiles(Printing *s)
{
    Kernel *k = s->k;
    const char *extent = poly_text(&k->printer, s->w->extent);
    ((InPass *)k->of_schedule)->pairs = true;
    print_owners(s);
    k_open(k, "for (int64_t from = low; from <= high; from += " TILE ")");
    for (int i = 0; i < s->w->n_dots; i++)
        print_dot(s, i);
    if (!mutate("early-weights"))
        buf_line(k->out, "cell_barrier();");
    if (s->w->max >= 0)
        print_maximum(s, extent);
    print_weights(s, extent);
    buf_line(k->out, "cell_barrier();");
    for (int i = 0, slot = 0; i < s->w->n; i++)
        if (sum_of(s, i)->along >= 0)
            print_columns(s, i, slot++);
    k_close(k);
    if (!s->w->places)
        return;
    /* Places beyond the steps have no products, and nothing is weighed by them here. */
    s->places = true;
    ((InPass *)k->of_schedule)->pairs = false;
    const char *all = poly_text(&k->printer, s->w->places);
    k_open(k, "for (int64_t from = %s; from < %s; from += " TILE ")", extent, all);
    buf_line(k->out, "cell_barrier();");
    if (s->w->max >= 0)
        print_maximum(s, all);
    print_weights(s, all);
    k_close(k);
    if (s->w->max >= 0) {
        buf_line(k->out, "cell_barrier();");
        for (int i = 0; i < s->w->n; i++)
            if (sum_of(s, i)->along >= 0 && sum_of(s, i)->over != OVER_NOTHING) {
                buf_line(k->out, "CELL_UNROLL");
                buf_line(k->out, "for (int x = 0; x < %d; x++)", 8 * tiles_of(s, sum_of(s, i)));
                buf_line(k->out, "    sums_%d[x / 8][x / 4 %% 2][x %% 4] *= factors[cell_window_row(x / 4 %% 2)];", i);
            }
    }
    k_close(k);
}

/* ---- results ---- */

static void print_total(Printing *s, int i)
{
    Kernel *k = s->k;
    buf_line(k->out, "cell_barrier();");
    buf_line(k->out, "shares[cell_thread()] = part_%d;", i);
    buf_line(k->out, "cell_barrier();");
    buf_line(k->out, "part_%d = shares[mine];", i);
    buf_line(k->out, "for (int share = 1; share < 4; share++)");
    buf_line(k->out, "    part_%d += (%s)shares[mine + share * " TILE "];", i, k->real);
}

static void print_sum(Printing *s, int i)
{
    Kernel *k = s->k;
    const WindowSum *x = sum_of(s, i);
    const char *value = i == s->w->max ? "most" : k_text(k, "part_%d", i);
    if (x->over == OVER_TOTAL)
        value = k_text(k, "%s / (part_%d > 0 ? part_%d : 1)", value, s->w->total, s->w->total);
    bind_sum(s, x, "0");
    k_open(k, "if (part == 0 && first + mine < dim_T%s)", s->passes ? " && base == 0" : "");
    k_store(k, x->array, value);
    k_close(k);
}

static void print_matrix(Printing *s, int i)
{
    Kernel *k = s->k;
    const WindowSum *x = sum_of(s, i);
    const char *value = k_text(k, "sums_%d[x / 4][q][x %% 4]", i);
    if (x->over == OVER_TOTAL)
        value = k_text(k, "%s / divisor", value);
    buf_line(k->out, "CELL_UNROLL");
    k_open(k, "for (int q = 0; q < 2; q++)");
    buf_line(k->out, "const int64_t own = first + cell_window_row(q);");
    if (x->over == OVER_TOTAL)
        buf_line(k->out, "const %s divisor = factors[cell_window_row(q)];", k->real);
    buf_line(k->out, "CELL_UNROLL");
    k_open(k, "for (int x = 0; x < %d; x++)", 4 * tiles_of(s, x));
    buf_line(k->out, "const int64_t i = %sx / 4 * " TILE " + cell_window_column(x %% 4);", s->passes ? "base + " : "");
    k_open(k, "if (own < dim_T && i < %s)", columns_text(s, x));
    bind_sum(s, x, "0");
    k->index[x->along] = "i";
    k->t = "own";
    k_store(k, x->array, value);
    k->t = "t";
    k_close(k);
    k_close(k);
    k_close(k);
}

static void print_results(Printing *s)
{
    Kernel *k = s->k;
    const Window *w = s->w;
    for (int i = 0; i < w->n; i++)
        if (i != w->max && sum_of(s, i)->along < 0)
            print_total(s, i);
    if (w->total >= 0) {
        buf_line(k->out, "cell_barrier();");
        buf_line(k->out, "if (part == 0)");
        /* The total of a row without a pair is 0, and so are its sums. */
        buf_line(k->out, "    factors[mine] = part_%d > 0 ? part_%d : 1;", w->total, w->total);
    }
    buf_line(k->out, "cell_barrier();");
    for (int i = 0; i < w->n; i++)
        if (sum_of(s, i)->along < 0)
            print_sum(s, i);
        else
            print_matrix(s, i);
}

/* ---- the kernel ---- */

static void carve(Printing *s, const char *name, int n)
{
    Kernel *k = s->k;
    buf_line(k->out, "cell_smem<%s> %s = cell_carve<%s>(cursor, %d);", k->real, name, k->real, n);
    k->g->smem += (int64_t)n * (strcmp(k->real, "double") == 0 ? 8 : 4);
}

/* Elements of a dot's operand, with the padding behind each step. */
static int operand_elements(int chunk)
{
    return WINDOW_TILE * (chunk + WINDOW_PAD);
}

/* Elements of other steps that lie in shared memory at once: of a dot, or columns. */
static int column_elements(const Printing *s)
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
static int64_t whole_bytes(const Printing *s)
{
    int64_t all = column_elements(s) + window_slots(s->w) * PAIRS + WINDOW_THREADS + WINDOW_TILE;
    for (int i = 0; i < s->w->n_dots; i++)
        all += operand_elements(s->chunk[i]);
    return all * (strcmp(s->k->real, "double") == 0 ? 8 : 4);
}

/* How much of each dot is multiplied at once: all of it where that is known and little, and then what the owners have
 * is read once. */
static void choose_chunks(Printing *s)
{
    s->whole = true;
    for (int i = 0; i < s->w->n_dots; i++) {
        const Poly *n = s->k->p->m->indices.data[s->w->dots[i].along].extent;
        s->whole = s->whole && n->is_const && n->value <= WINDOW_WHOLE;
        for (s->chunk[i] = WINDOW_TILE; s->whole && s->chunk[i] < n->value;)
            s->chunk[i] *= 2;
    }
    s->whole = s->whole && whole_bytes(s) <= WINDOW_MEMORY;
    for (int i = 0; i < s->w->n_dots && !s->whole; i++)
        s->chunk[i] = WINDOW_TILE;
}

static void carve_tiles(Printing *s)
{
    Kernel *k = s->k;
    int slots = window_slots(s->w);
    choose_chunks(s);
    k->g->smem = 0;
    buf_line(k->out, "static_assert(CELL_WINDOW_GAP == %d && CELL_WINDOW_PAD == %d);", WINDOW_GAP, WINDOW_PAD);
    buf_line(k->out, "auto cursor = cell_shared();");
    for (int i = 0; i < s->w->n_dots && (s->whole || i == 0); i++)
        carve(s, rows_name(s, i), operand_elements(s->chunk[i]));
    carve(s, "columns", column_elements(s));
    for (int i = 0; i < slots; i++) {
        s->slots[i] = k_text(k, "pairs_%d", i);
        carve(s, s->slots[i], PAIRS);
    }
    carve(s, "shares", WINDOW_THREADS);
    carve(s, "factors", WINDOW_TILE);
    buf_line(k->out, "const int mine = cell_thread() %% " TILE ", part = cell_thread() / " TILE ";");
}

/* The loops over bound indices of a block: those that no sum has a term for are left out. */
static int open_outer(Printing *s)
{
    Kernel *k = s->k;
    int n = 0;
    for (int i = 0; i < s->w->n_outer; i++, n++) {
        const Index *b = &k->p->m->indices.data[s->w->outer[i]];
        const char *name = names_fresh(&k->locals, k_text(k, "i_%s", b->name));
        k_open(k, "for (int64_t %s = 0; %s < %s; %s++)", name, name, poly_text(&k->printer, b->extent), name);
        k->index[s->w->outer[i]] = name;
    }
    return n;
}

static bool all_of_block(const Printing *s, NodeId guard, const WindowSum *x, Marks *seen)
{
    const Kernel *k = s->k;
    const Node *n = k_node(k, guard), *a = k_node(k, x->array);
    if (!marks_first(seen, guard))
        return true;
    if (n->kind == N_INDEX && (ix_uses(n->ix, IX_TIME) || ix_uses(n->ix, IX_START) || ix_uses(n->ix, x->w)))
        return false;
    if (n->kind != N_INDEX && n->kind != N_SIZE && n->kind != N_CONST && n->kind != N_MAP)
        return false;
    for (int i = 0; i < n->nargs; i++)
        if (!all_of_block(s, n->args[i], x, seen))
            return false;
    return x->along < 0 || n->kind != N_INDEX || !ix_uses(n->ix, a->axes[a->naxes - 1]);
}

static bool of_block(const Printing *s, NodeId guard, const WindowSum *x)
{
    Marks *seen = marks_begin(s->k->p->m);
    bool is = all_of_block(s, guard, x, seen);
    marks_end(seen);
    return is;
}

/* Each part of a conjunction once. */
static const char *block_guard_in(Printing *s, NodeId guard, const WindowSum *x, Marks *seen)
{
    Kernel *k = s->k;
    const Node n = *k_node(k, guard);
    if (!marks_first(seen, guard))
        return NULL;
    if (n.kind == N_MAP && n.op == OP_AND) {
        const char *a = block_guard_in(s, n.args[0], x, seen), *b = block_guard_in(s, n.args[1], x, seen);
        return a && b ? k_text(k, "%s && %s", a, b) : a ? a : b;
    }
    return of_block(s, guard, x) ? expr_text(&k->printer, guard) : NULL;
}

/* A part of a condition that says of a block's loops that no sum has terms in them. */
static const char *block_guard(Printing *s, NodeId guard, const WindowSum *x)
{
    Marks *seen = marks_begin(s->k->p->m);
    const char *text = block_guard_in(s, guard, x, seen);
    marks_end(seen);
    return text;
}

static const char *any_terms(Printing *s)
{
    Kernel *k = s->k;
    const char *any = NULL;
    for (int i = 0; i < s->w->n; i++) {
        const WindowSum *x = sum_of(s, i);
        const char *all = NULL;
        bind_sum(s, x, "0");
        for (int g = 0; g < x->weight.n_guards; g++) {
            const char *one = block_guard(s, x->weight.guards[g], x);
            all = all && one ? k_text(k, "%s && %s", all, one) : one ? one : all;
        }
        if (!all)
            return "true";
        if (!any || strcmp(any, all) != 0)
            any = any ? k_text(k, "(%s) || (%s)", any, all) : all;
    }
    return any;
}

/* What each of the window's sums begins with. */
static void declare_sums(const Printing *s)
{
    Kernel *k = s->k;
    for (int i = 0; i < s->w->n; i++) {
        k_comment(k, s->w->sums[i].array);
        if (i == s->w->max)
            buf_line(k->out, "%s most = -CELL_INF;", k->real);
        else if (s->w->sums[i].along < 0)
            buf_line(k->out, "%s part_%d = 0;", k->real, i);
        else
            buf_line(k->out, "%s sums_%d[%d][2][4] = {};", k->real, i, tiles_of(s, &s->w->sums[i]));
    }
}

/* A loop over passes: as many columns at a time as registers hold. */
static void open_passes(Printing *s)
{
    Kernel *k = s->k;
    const char *any = NULL;
    for (int i = 0; i < s->w->n; i++)
        if (s->w->sums[i].along >= 0)
            any = k_text(k, any ? "%s || base < %s" : "%sbase < %s", any ? any : "", columns_text(s, &s->w->sums[i]));
    k_open(k, "for (int64_t base = 0; %s; base += %d)", any, WINDOW_PASS * WINDOW_TILE);
}

static void print_window(Kernel *k)
{
    Printing s = { .k = k, .w = k->g->pass };
    const Window *w = s.w;
    const char *elements = k_product(k, k->g->axes, k->g->naxes);
    s.first = *k_node(k, w->sums[0].array);
    s.passes = needs_passes(k, w);
    k->past_tiles.len = k->past_values.len = 0;
    ((InPass *)k->of_schedule)->w = w;
    k->rows_apart = w->by_key ? -1 : 1;
    carve_tiles(&s);
    buf_line(k->out, "const int64_t elements = %s, heads = dim_B * elements, tiles = (dim_T + 31) / 32;", elements);
    k_open(k, "for (int64_t n = cell_block_index(0); n < heads * tiles; n += cell_block_count(0))");
    /* Blocks that have most pairs come first. */
    buf_line(k->out, w->by_key ? "const int64_t tile = n / heads;" : "const int64_t tile = tiles - 1 - n / heads;");
    buf_line(k->out, "const int64_t b = n %% heads / elements;");
    buf_line(k->out, "[[maybe_unused]] const int64_t r = n %% elements;");
    k_split_element(k, s.first.axes, w->naxes, "r", "row");
    k_keep_axes(k, w->sums[0].array);
    buf_line(k->out, "const int64_t first = tile * " TILE ", last = first + 31 < dim_T ? first + 31 : dim_T - 1;");
    buf_line(k->out, "const int64_t t = first + mine < last ? first + mine : last;");
    k->b = "b";
    k->t = "t";
    k->row = NULL;
    k->depth = 1;                 /* nothing is kept from pair to pair */
    if (w->max >= 0)
        k->value[w->sums[w->max].array] = "now";
    if (w->total >= 0)
        k->value[w->sums[w->total].array] = k_text(k, "((%s)1)", k->real);
    if (s.passes)
        open_passes(&s);
    declare_sums(&s);
    int loops = open_outer(&s);
    k_open(k, "if (%s)", any_terms(&s));
    print_range(&s);
    print_tiles(&s);
    k_close(k);
    while (loops--)
        k_close(k);
    print_results(&s);
    if (s.passes)
        k_close(k);
    buf_line(k->out, "cell_barrier();");
    k_close(k);
    if (w->max >= 0)
        k->value[w->sums[w->max].array] = NULL;
    if (w->total >= 0)
        k->value[w->sums[w->total].array] = NULL;
    k->depth = 0;
    ((InPass *)k->of_schedule)->w = NULL;
    k->rows_apart = 0;
}

void window_print(Kernel *k)
{
    static const KernelHooks hooks = { .reduce = window_dot };
    InPass in = { 0 };
    k->hooks = &hooks;
    k->of_schedule = &in;
    k->threads = k->g->threads = k->g->lanes = WINDOW_THREADS;
    k_print(k, k->g->kernel, print_window);
}
