/* kernels_window.c: the kernel of sums over the past in one pass (window.c). In comes a group of such sums;
 * out goes a kernel whose block has a tile of steps of a sequence (and a place of the axes that the
 * products vary over, a head), and takes the steps that these are paired with tile by tile: products of
 * tiles give what the pairs are made of, each pair's weight is computed once, and products of tiles add
 * what is weighed. A maximum is the one of the pairs so far; where it grows, what was summed is scaled (an
 * online softmax: Milakov and Gimelshein, 2018; Dao et al., 2022). No pair lies in memory outside of the
 * block, and the order of every sum follows from sizes. What does not depend on the cell is in
 * runtime/device/cell_device_window.cuh. Its parts are in the files that window_kernel.h names. */
#include <math.h>

#include "base/mutate.h"
#include "window_kernel.h"

enum { PAIRS = WINDOW_TILE * (WINDOW_TILE + WINDOW_GAP) }; /* of a tile, with the gaps between its rows */

/* ---- shared memory ---- */

/* Elements of a dot's operand, with the padding behind each step. */
static int operand_elements(int chunk)
{
    return WINDOW_TILE * (chunk + WINDOW_PAD);
}

/* Elements of other steps that lie in shared memory at once: of a dot, or columns. */
static int column_elements(const WindowPass *s)
{
    int most = 0;
    for (int i = 0; i < s->w->n_dots; i++) {
        int n = operand_elements(s->chunk[i]);
        most = n > most ? n : most;
    }
    for (int i = 0; i < s->w->n; i++) {
        int width =
            window_sum(s, i)->along >= 0 ? window_columns_at_once(s, window_sum(s, i)) * WINDOW_TILE : 0;
        int n = WINDOW_TILE * (width + WINDOW_GAP);
        most = n > most ? n : most;
    }
    return most;
}

/* With all operands whole. */
static int64_t whole_bytes(const WindowPass *s)
{
    int64_t all = column_elements(s) + window_slots(s->w) * PAIRS + WINDOW_THREADS + WINDOW_TILE;
    for (int i = 0; i < s->w->n_dots; i++)
        all += operand_elements(s->chunk[i]);
    return all * kir_bytes(code_real(s->x));
}

/* How much of each dot is multiplied at once: all of it where that is known and little, and then what the
 * owners have is read once. */
static void choose_chunks(WindowPass *s)
{
    s->whole = true;
    for (int i = 0; i < s->w->n_dots; i++) {
        const Poly *n = window_extent(s, s->w->dots[i].along);
        s->whole = s->whole && n->is_const && n->value <= WINDOW_WHOLE;
        for (s->chunk[i] = WINDOW_TILE; s->whole && s->chunk[i] < n->value;)
            s->chunk[i] *= 2;
    }
    s->whole = s->whole && whole_bytes(s) <= WINDOW_MEMORY;
    for (int i = 0; i < s->w->n_dots && !s->whole; i++)
        s->chunk[i] = WINDOW_TILE;
}

static const KirExpr *shared(const WindowPass *s, const char *name, int n)
{
    Code *x = s->x;
    x->kir->shared = x->k->g->smem += (int64_t)n * kir_bytes(code_real(x));
    return kir_shared_array(x->kir, name, code_real(x), code_int(x, n));
}

static void declare_tiles(WindowPass *s)
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

/* ---- the loops ---- */

/* Places beyond the steps have no products, and nothing is weighed by them here. */
static void put_places(WindowPass *s, const KirExpr *extent)
{
    Code *x = s->x;
    const KirExpr *all = code_size(x, s->w->places);
    s->places = true;
    KirOpen loop = code_for(x, "from", extent, all, code_int(x, WINDOW_TILE), &s->from);
    kir_barrier(x->kir, KIR_BLOCK);
    if (s->w->max >= 0)
        window_join_maximum(s, all);
    window_put_weights(s, all);
    kir_close(x->kir, loop);
    s->places = false;
    if (s->w->max < 0)
        return;
    kir_barrier(x->kir, KIR_BLOCK);
    for (int i = 0; i < s->w->n; i++)
        if (window_sum(s, i)->along >= 0 && window_sum(s, i)->over != OVER_NOTHING)
            window_rescale(s, i);
}

static void put_tiles(WindowPass *s)
{
    Code *x = s->x;
    const KirExpr *extent = code_size(x, s->w->extent);
    window_put_owners(s);
    KirOpen loop =
        kir_for(x->kir, "from", KT_I64, s->low, KB_LE, s->high, code_int(x, WINDOW_TILE), &s->from);
    for (int i = 0; i < s->w->n_dots; i++)
        window_put_dot(s, i);
    if (!mutate("early-weights"))
        kir_barrier(x->kir, KIR_BLOCK);
    if (s->w->max >= 0)
        window_join_maximum(s, extent);
    window_put_weights(s, extent);
    kir_barrier(x->kir, KIR_BLOCK);
    for (int i = 0, slot = 0; i < s->w->n; i++)
        if (window_sum(s, i)->along >= 0)
            window_weigh_columns(s, i, slot++);
    kir_close(x->kir, loop);
    if (s->w->places)
        put_places(s, extent);
}

/* ---- the kernel ---- */

/* What each of the window's sums begins with. */
static void declare_sums(WindowPass *s)
{
    Code *x = s->x;
    const KirExpr *none = code_int(x, 0), *eight = code_int(x, 8);
    for (int i = 0; i < s->w->n; i++) {
        const WindowSum *sum = window_sum(s, i);
        code_comment(x, sum->array);
        if (i == s->w->max) {
            s->most = kir_mutable(x->kir, "most", code_real(x), window_number(s, -HUGE_VAL));
        } else if (sum->along < 0) {
            s->parts[i] = kir_mutable(x->kir, k_text(x->k, "part_%d", i), code_real(x), none);
        } else {
            const char *name = k_text(x->k, "sums_%d", i);
            s->sums[i] = kir_array_of_arrays(x->kir, name, code_real(x),
                                             code_int(x, window_column_tiles(s, sum)), eight);
            x->kir->at->data[x->kir->at->len - 1]->n = 1;
        }
    }
}

/* The loops over bound indices of a block: those that no sum has a term for are left out. */
static void all_pairs(WindowPass *s)
{
    Code *x = s->x;
    KirOpen loops[4], some = { 0 };
    for (int i = 0; i < s->w->n_outer; i++) {
        IndexId id = s->w->outer[i];
        const char *name = k_text(x->k, "i_%s", x->k->p->m->indices.data[id].name);
        loops[i] = code_for(x, names_fresh(&x->k->locals, name), code_int(x, 0),
                            code_size(x, window_extent(s, id)), code_int(x, 1), &x->index[id]);
    }
    const KirExpr *any = window_any_terms(s);
    if (any)
        some = kir_if(x->kir, any);
    window_declare_range(s);
    put_tiles(s);
    if (any)
        kir_close(x->kir, some);
    for (int i = s->w->n_outer - 1; i >= 0; i--)
        kir_close(x->kir, loops[i]);
}

/* A loop over passes: as many columns at a time as registers hold. */
static KirOpen open_passes(WindowPass *s)
{
    Code *x = s->x;
    const KirExpr *most = NULL;
    const Poly *of = NULL;
    for (int i = 0; i < s->w->n; i++) {
        const WindowSum *sum = window_sum(s, i);
        if (sum->along < 0 || window_extent(s, sum->along) == of)
            continue;
        of = window_extent(s, sum->along);
        const KirExpr *n = window_columns(s, sum);
        most = most ? kir_select(x->kir, code_binary(x, KB_GT, n, most), n, most) : n;
    }
    return code_for(x, "base", code_int(x, 0), most, code_int(x, WINDOW_PASS * WINDOW_TILE), &s->base);
}

/* The block's place in the axes, and its steps. */
static void declare_owners(WindowPass *s, const KirExpr *n, const KirExpr *elements, const KirExpr *heads)
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
    x->t = code_let(x, "t", window_lesser(s, code_add(x, s->first, s->mine), s->last));
}

static void window_kernel(WindowPass *s)
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
        x->value[w->sums[w->total].array] = window_number(s, 1);
    if (s->passes)
        passes = open_passes(s);
    declare_sums(s);
    all_pairs(s);
    window_store_results(s);
    if (s->passes)
        kir_close(x->kir, passes);
    kir_barrier(x->kir, KIR_BLOCK);
    kir_close(x->kir, all);
}

void window_print(Kernel *k)
{
    k->g->threads = k->g->lanes = WINDOW_THREADS;
    Code *x = code_of_group(k);
    WindowPass s = { .x = x, .w = k->g->pass, .base = code_int(x, 0) };
    k->of_schedule = &s;
    x->reduces = window_dot_value;
    s.passes = window_needs_passes(&s);
    window_kernel(&s);
    code_print(k->p, code_end(x), k->out);
}
