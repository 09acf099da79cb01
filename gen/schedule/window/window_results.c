/* window_results.c: what a block stores. In come sums that are complete, of a thread's pairs or in its
 * registers; out go totals of rows, sums divided by them, and their stores. */
#include "window_kernel.h"

static const KirExpr *positive_total(const WindowPass *s)
{
    const KirExpr *total = s->parts[s->w->total], *none = window_number(s, 0);
    return kir_select(s->x->kir, code_binary(s->x, KB_GT, total, none), total, window_number(s, 1));
}

static void store_sum(const WindowPass *s, int i)
{
    Code *x = s->x;
    const WindowSum *sum = window_sum(s, i);
    const KirExpr *value = i == s->w->max ? s->most : s->parts[i], *none = code_int(x, 0);
    if (sum->over == OVER_TOTAL)
        value = code_binary(x, KB_DIV, value, positive_total(s));
    window_bind_sum(s, sum, none);
    const KirExpr *one = code_binary(x, KB_EQ, s->part, none);
    one = code_binary(x, KB_AND, one, code_binary(x, KB_LT, code_add(x, s->first, s->mine), code_steps(x)));
    if (s->passes)
        one = code_binary(x, KB_AND, one, code_binary(x, KB_EQ, s->base, none));
    KirOpen open = kir_if(x->kir, one);
    code_store(x, sum->array, value);
    kir_close(x->kir, open);
}

static const KirExpr *own_row(const WindowPass *s, const KirExpr *q)
{
    return kir_call1(s->x->kir, "cell_window_row", q);
}

static void store_columns(const WindowPass *s, int i)
{
    Code *x = s->x;
    Kir *k = x->kir;
    const WindowSum *sum = window_sum(s, i);
    const KirExpr *q, *n, *divisor = NULL, *t = x->t, *four = code_int(x, 4);
    KirOpen rows = window_open_whole(s, "q", code_int(x, 0), code_int(x, 2), 1, &q);
    rows.statement->n = -1;
    const KirExpr *own = code_let(x, "own", code_add(x, s->first, own_row(s, q)));
    if (sum->over == OVER_TOTAL)
        divisor = kir_let(k, "divisor", code_real(x), kir_element(k, s->factors, own_row(s, q)));
    KirOpen all =
        window_open_whole(s, "x", code_int(x, 0), code_int(x, 4 * window_column_tiles(s, sum)), 1, &n);
    all.statement->n = -1;
    const KirExpr *tile = code_binary(x, KB_DIV, n, four), *within = code_binary(x, KB_MOD, n, four);
    const KirExpr *column = code_add(x, s->base, code_mul(x, tile, code_int(x, WINDOW_TILE)));
    column = code_let(x, "i", code_add(x, column, kir_call1(k, "cell_window_column", within)));
    KirOpen open = kir_if(k, code_binary(x, KB_AND, code_binary(x, KB_LT, own, code_steps(x)),
                                         code_binary(x, KB_LT, column, window_columns(s, sum))));
    window_bind_sum(s, sum, code_int(x, 0));
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

void window_store_results(const WindowPass *s)
{
    Code *x = s->x;
    Kir *k = x->kir;
    const Window *w = s->w;
    for (int i = 0; i < w->n; i++)
        if (i != w->max && window_sum(s, i)->along < 0)
            kir_assign(k, s->parts[i], kir_call2(k, "cell_window_total", s->shares, s->parts[i]));
    if (w->total >= 0) {
        kir_barrier(k, KIR_BLOCK);
        KirOpen open = window_open_if(s, KB_EQ, s->part, code_int(x, 0));
        /* The total of a row without a pair is 0, and so are its sums. */
        kir_assign(k, kir_element(k, s->factors, s->mine), positive_total(s));
        kir_close(k, open);
    }
    kir_barrier(k, KIR_BLOCK);
    for (int i = 0; i < w->n; i++)
        (window_sum(s, i)->along < 0 ? store_sum : store_columns)(s, i);
}
