/* window_pairs.c: what is computed of each pair of a tile. In come the tile's products; out go the maximum
 * so far, what scales the sums where it grows, sums without columns, and the weights of the others, in the
 * place of the products. */
#include <math.h>

#include "base/mutate.h"
#include "window_kernel.h"

/* A loop over the pairs of a thread: one owner, every fourth of the other steps. */
typedef struct PairLoop {
    KirOpen loop, valid;
    const KirExpr *step, *u;
} PairLoop;

static PairLoop open_pairs(WindowPass *s, const KirExpr *extent)
{
    Code *x = s->x;
    PairLoop p = { .u = NULL };
    const KirExpr *c;
    p.loop = window_open_whole(s, "c", s->part, code_int(x, WINDOW_TILE), 4, &c);
    if (s->places) {
        p.u = code_let(x, "u", code_add(x, s->from, c));
        p.valid = window_open_if(s, KB_LT, p.u, extent);
        return p;
    }
    const KirExpr *row = code_mul(x, c, code_int(x, WINDOW_TILE + WINDOW_GAP));
    s->at = kir_let(x->kir, "at", KT_I32, code_add(x, row, s->mine));
    p.step = code_let(x, "s", code_add(x, s->from, c));
    p.u = code_let(x, "u", s->w->by_key ? code_sub(x, p.step, x->t) : code_sub(x, x->t, p.step));
    return p;
}

static void open_valid(const WindowPass *s, const KirExpr *extent, PairLoop *p)
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

static void close_pairs(WindowPass *s, const PairLoop *p)
{
    kir_close(s->x->kir, p->loop);
    s->at = NULL;
}

/* Values over the past have names, from one term to the next. */
static void open_terms(const WindowPass *s)
{
    s->x->past_values.len = 0;
    s->x->past_keeps = true;
}

static void close_terms(const WindowPass *s)
{
    s->x->past_keeps = false;
}

/* The maximum of the pairs so far; sums so far are scaled by what it grows. */
void window_join_maximum(WindowPass *s, const KirExpr *extent)
{
    Code *x = s->x;
    Kir *k = x->kir;
    const WindowSum *sum = window_sum(s, s->w->max);
    const KirExpr *near = kir_mutable(k, "near", code_real(x), s->most);
    PairLoop p = open_pairs(s, extent);
    open_valid(s, extent, &p);
    window_bind_sum(s, sum, p.u);
    open_terms(s);
    const KirExpr *term = window_factor_value(s, sum->term);
    close_terms(s);
    kir_assign(k, near, kir_call2(k, "cell_max", near, term));
    kir_close(k, p.valid);
    close_pairs(s, &p);
    kir_assign(k, near, kir_call2(k, "cell_window_most", s->shares, near));
    const KirExpr *of[] = { s->factors, s->most, near };
    const KirExpr *scale = kir_let(k, "scale", KT_VOID, kir_call(k, "cell_window_growth", NULL, 0, of, 3));
    kir_assign(k, s->most, near);
    /* Where all terms so far are exp(-inf), none may become exp(inf - inf). */
    const KirExpr *none = kir_binary(k, KB_EQ, near, window_number(s, -HUGE_VAL));
    x->value[sum->array] = kir_let(k, "now", code_real(x), kir_select(k, none, code_int(x, 0), near));
    for (int i = 0; i < s->w->n; i++)
        if (window_sum(s, i)->over != OVER_NOTHING && window_sum(s, i)->along < 0 && !mutate("unscaled-sum"))
            kir_add(k, (KirStmt){ .kind = KI_ASSIGN, .op = KB_MUL, .x = { s->parts[i], scale } });
}

/* The weight of a pair in every sum: added to those without columns, and kept for the products. */
void window_put_weights(WindowPass *s, const KirExpr *extent)
{
    Code *x = s->x;
    Kir *k = x->kir;
    const KirExpr *weights[8] = { NULL };
    PairLoop p = open_pairs(s, extent);
    for (int i = 0; i < s->w->n && !s->places; i++)
        if (window_sum(s, i)->along >= 0)
            weights[i] = kir_mutable(k, k_text(x->k, "weight_%d", i), code_real(x), code_int(x, 0));
    open_valid(s, extent, &p);
    open_terms(s);
    for (int i = 0; i < s->w->n; i++) {
        const WindowSum *sum = window_sum(s, i);
        if (i == s->w->max || (s->places && window_extent(s, sum->w) != s->w->places))
            continue;
        window_bind_sum(s, sum, p.u);
        const KirExpr *term = window_product_value(s, &sum->weight, NULL);
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
