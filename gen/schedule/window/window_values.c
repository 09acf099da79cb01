/* window_values.c: what pairs of steps are made of. In comes a kernel that is being built; out go factors
 * and products of them, as values of a pair, of one of its steps, or of a tile of products, and whether the
 * other step is there. */
#include "ir/marks.h"
#include "window_kernel.h"

const WindowSum *window_sum(const WindowPass *s, int i)
{
    return &s->w->sums[i];
}

const Poly *window_extent(const WindowPass *s, IndexId i)
{
    return s->x->k->p->m->indices.data[i].extent;
}

const KirExpr *window_number(const WindowPass *s, double v)
{
    return kir_real(s->x->kir, code_real(s->x), v);
}

static const KirExpr *as_real(const WindowPass *s, const KirExpr *v)
{
    return kir_convert(s->x->kir, kir_value(code_real(s->x)), v);
}

KirOpen window_open_if(const WindowPass *s, KirBinary op, const KirExpr *a, const KirExpr *b)
{
    return kir_if(s->x->kir, code_binary(s->x, op, a, b));
}

const KirExpr *window_lesser(const WindowPass *s, const KirExpr *a, const KirExpr *b)
{
    return kir_select(s->x->kir, code_binary(s->x, KB_LT, a, b), a, b);
}

KirOpen window_open_whole(const WindowPass *s, const char *name, const KirExpr *first, const KirExpr *limit,
                          int by, const KirExpr **var)
{
    return kir_for(s->x->kir, name, KT_I32, first, KB_LT, limit, code_int(s->x, by), var);
}

/* ---- products ---- */

const KirExpr *window_factor_value(const WindowPass *s, NodeId id)
{
    bool whole = k_node(s->x->k, id)->type == TY_INT;
    const KirExpr *v = expr_node(&s->x->printer, id);
    return whole ? as_real(s, v) : v;
}

const KirExpr *window_product_value(const WindowPass *s, const Factors *f, const KirExpr *first)
{
    Kir *k = s->x->kir;
    const KirExpr *all = first;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < f->len; i++) {
            if (f->data[i].inverse != pass)
                continue;
            const KirExpr *v = window_factor_value(s, f->data[i].id);
            if (pass)
                all = kir_binary(k, KB_DIV, all ? all : window_number(s, 1), v);
            else
                all = all ? kir_binary(k, KB_MUL, all, v) : v;
        }
    if (!all)
        all = window_number(s, 1);
    if (f->negative)
        all = kir_neg(k, all);
    for (int i = f->n_guards - 1; i >= 0; i--)
        all = kir_select(k, expr_node(&s->x->printer, f->guards[i]), all, code_int(s->x, 0));
    return all;
}

static WindowPass *pass_of(const Code *x)
{
    return x->k->of_schedule;
}

/* A sum of products that lies in a tile: where its pair is built. */
const KirExpr *window_dot_value(Code *x, NodeId reduce)
{
    WindowPass *s = pass_of(x);
    for (int i = 0; i < s->w->n_dots; i++) {
        const WindowDot *d = &s->w->dots[i];
        if (d->reduce == reduce)
            return window_product_value(s, &d->scale,
                                        s->at ? as_real(s, kir_element(x->kir, s->pairs[i], s->at))
                                              : window_number(s, 0));
    }
    return NULL;
}

/* The value of one step: factors as they stand in the array that multiplies them, read where the sums read
 * it. */
const KirExpr *window_side_value(const WindowPass *s, const WindowDot *d, const Factors *f, const KirExpr *i)
{
    Code *x = s->x;
    const Node a = *k_node(x->k, d->array);
    const KirExpr *inside[64] = { NULL }, *before[64], *t = x->t;
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
    const KirExpr *v = window_product_value(s, f, NULL);
    for (int j = a.naxes - 1; j >= 0; j--)
        x->index[a.axes[j]] = before[j];
    x->t = t;
    return v;
}

/* ---- the other step ---- */

static int least_step_in(const WindowPass *s, NodeId id, Marks *seen)
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
static int least_step(const WindowPass *s, NodeId id)
{
    Marks *seen = marks_begin(s->x->k->p->m);
    int least = least_step_in(s, id, seen);
    marks_end(seen);
    return least;
}

/* Whether the other step is there; NULL: it is. */
const KirExpr *window_other_there(const WindowPass *s, const Factors *f, const KirExpr *step)
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

void window_bind_sum(const WindowPass *s, const WindowSum *sum, const KirExpr *distance)
{
    code_bind_axes(s->x, sum->array);
    s->x->index[sum->w] = distance;
}
