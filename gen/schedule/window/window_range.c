/* window_range.c: which steps a block is paired with. In come the conditions of the terms; out go the first
 * and the last other step that any sum has a term for, and a condition on the block's loops where no sum
 * has one at all. */
#include "ir/marks.h"
#include "window_kernel.h"

/* ---- the steps that a block is paired with ---- */

/* One end of the distances of a sum at the step in scope: declares it, with what limits it. */
static const KirExpr *limit_of(const WindowPass *s, const PastLimits *limits, const Poly *all,
                               PastLimitKind kind)
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
        KirOpen open = window_open_if(s, until ? KB_GT : KB_LT, end, at);
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
static const KirExpr *range_end(const WindowPass *s, const PastLimits *limits, bool last)
{
    Code *x = s->x;
    const KirExpr *t = x->t, *step = last ? s->last : s->first, *all = NULL, *one = code_int(x, 1);
    PastLimitKind kind = s->w->by_key == last ? PAST_UNTIL : PAST_FROM;
    for (int i = 0; i < s->w->n; i++) {
        bool again = false;
        for (int j = 0; j < i; j++)
            again |= window_extent(s, window_sum(s, i)->w) == window_extent(s, window_sum(s, j)->w) &&
                     same_limits(&limits[i], &limits[j], kind);
        if (again)
            continue;
        x->t = step;
        window_bind_sum(s, window_sum(s, i), NULL);
        const KirExpr *end = limit_of(s, &limits[i], window_extent(s, window_sum(s, i)->w), kind);
        x->t = t;
        const KirExpr *other = s->w->by_key ? code_add(x, step, end) : code_sub(x, step, end);
        if (kind == PAST_UNTIL)
            other = s->w->by_key ? code_sub(x, other, one) : code_add(x, other, one);
        if (!all) {
            all = kir_mutable(x->kir, last ? "high" : "low", KT_I64, other);
            continue;
        }
        KirOpen open = window_open_if(s, last ? KB_GT : KB_LT, other, all);
        kir_assign(x->kir, all, other);
        kir_close(x->kir, open);
    }
    return all;
}

void window_declare_range(WindowPass *s)
{
    Code *x = s->x;
    PastLimits limits[8] = { { 0 } };
    for (int i = 0; i < s->w->n; i++)
        past_limits(x->k, window_sum(s, i)->array, window_sum(s, i)->w, s->w->by_key ? -1 : 1, &limits[i]);
    s->low = range_end(s, limits, false);
    s->high = range_end(s, limits, true);
    if (!s->w->by_key)
        return;
    KirOpen open = window_open_if(s, KB_GE, s->high, code_steps(x));
    kir_assign(x->kir, s->high, code_sub(x, code_steps(x), code_int(x, 1)));
    kir_close(x->kir, open);
}

/* ---- where no sum has terms ---- */

static bool all_of_block(const WindowPass *s, NodeId guard, const WindowSum *sum, Marks *seen)
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

static bool of_block(const WindowPass *s, NodeId guard, const WindowSum *sum)
{
    Marks *seen = marks_begin(s->x->k->p->m);
    bool is = all_of_block(s, guard, sum, seen);
    marks_end(seen);
    return is;
}

static const KirExpr *both(const WindowPass *s, const KirExpr *a, const KirExpr *b)
{
    return a && b ? code_binary(s->x, KB_AND, a, b) : a ? a : b;
}

/* Each part of a conjunction once. */
static const KirExpr *block_guard_in(const WindowPass *s, NodeId guard, const WindowSum *sum, Marks *seen)
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
static const KirExpr *block_guard(const WindowPass *s, NodeId guard, const WindowSum *sum)
{
    Marks *seen = marks_begin(s->x->k->p->m);
    const KirExpr *e = block_guard_in(s, guard, sum, seen);
    marks_end(seen);
    return e;
}

/* NULL: there may be some wherever the block is. */
const KirExpr *window_any_terms(const WindowPass *s)
{
    const KirExpr *any = NULL, *before = NULL;
    for (int i = 0; i < s->w->n; i++) {
        const WindowSum *sum = window_sum(s, i);
        const KirExpr *all = NULL;
        window_bind_sum(s, sum, code_int(s->x, 0));
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
