/* window.c: which sums over the past go in one pass, block by block. In come reductions over values over the past
 * (Plan.past); out goes for each set of them a Window, or the reason why there is none. Nothing is known of attention:
 * a set is taken when (1) what its terms read of the past is pointwise in sums of products, each of a value that
 * belongs to one step of a pair and one that belongs to the other; (2) what a sum has columns of belongs to the other
 * step alone; (3) what a sum reads of the others is the maximum, in exp(x - max), or the sum of such terms, as a
 * divisor. Then the products are products of tiles, and the maximum may be taken as it grows. */
#include <math.h>
#include <string.h>

#include "ir/rewrite.h"
#include "window.h"

/* Where an expression is read: its indices, and its step, in terms of the first sum. */
typedef struct At { IndexId from[66]; const IxExpr *to[66]; int n; const IxExpr *step; } At;

typedef struct Search {
    const Plan *p;
    Module *m;
    Window *w;
    IndexId first_w, other;       /* the first sum's distance; what stands for the other step */
    bool by_key;
    int *visits;                  /* of nodes, for the sum at hand */
} Search;

/* Expressions share their parts, and are walked as if they did not: a few hundred visits find a softmax, and where a sum's terms
 * (second derivatives within others, say) would take more than these, it is no sum of products of a few factors. */
enum { MOST_VISITS = 1 << 14 };

static bool too_far(const Search *s)
{
    return ++*s->visits > MOST_VISITS;
}

static const Node *at(const Search *s, NodeId id)
{
    return &s->m->nodes.data[id];
}

static bool refuse(Search *s, const char *why)
{
    if (!s->w->why)
        s->w->why = why;
    return false;
}

static bool has_axis(const Node *n, IndexId i)
{
    for (int k = 0; k < n->naxes; k++)
        if (n->axes[k] == i)
            return true;
    return false;
}

static const IxExpr *composed(const Search *s, const IxExpr *e, const At *a)
{
    return ix_subst(s->m, e, a->from, a->to, a->n);
}

static const IxExpr *step_of(const Search *s, const Read *r, const At *a)
{
    return r->step ? composed(s, r->step, a) : a->step;
}

/* Inside the body of the array that is read. */
static At inside(const Search *s, const Read *r, const At *a)
{
    At in = { .n = 0, .step = step_of(s, r, a) };
    const Node *array = at(s, r->id);
    for (int i = 0; i < array->naxes; i++) {
        in.from[in.n] = array->axes[i];
        in.to[in.n++] = composed(s, r->map[i], a);
    }
    in.from[in.n] = IX_TIME;
    in.to[in.n++] = in.step;
    return in;
}

/* ---- whose it is ---- */

/* Does it vary with one step of a pair only: with the owner's, or with the other one? */
static bool one_sided(const Search *s, const IxExpr *e, bool own)
{
    if (own)
        return !ix_uses(e, s->first_w);
    const IxExpr *t = ix_index(s->m, IX_TIME), *other = ix_index(s->m, s->other);
    const IxExpr *w = s->by_key ? ix_sub(s->m, other, t) : ix_sub(s->m, t, other);
    e = ix_subst(s->m, e, &s->first_w, &w, 1);
    return !ix_uses(e, IX_TIME) && !ix_uses(e, s->first_w);
}

static bool is_timed(const Search *s, const Read *r)
{
    if (!r->is_tensor)
        return plan_timed(s->p, r->id);
    const Tensor *x = &s->m->tensors.data[r->id];
    return tensor_per_step(x);
}

static bool is_pure(const Search *s, NodeId id, const At *a, bool own)
{
    const Node *n = at(s, id);
    Read r;
    if (n->kind == N_INDEX)
        return one_sided(s, composed(s, n->ix, a), own);
    if (n->kind == N_REDUCE || too_far(s))
        return false;
    if (plan_resolve(s->p, id, &r)) {
        TensorKind kind = r.is_tensor ? s->m->tensors.data[r.id].kind : T_INPUT;
        if ((!r.is_tensor && s->p->past[r.id]) || kind == T_STATE || kind == T_DNEXT)
            return false;
        for (int i = 0; i < r.nmap; i++)
            if (!one_sided(s, composed(s, r.map[i], a), own))
                return false;
        return !is_timed(s, &r) || one_sided(s, step_of(s, &r, a), own);
    }
    for (int i = 0; i < n->nargs; i++)
        if (!is_pure(s, n->args[i], a, own))
            return false;
    return true;
}

/* ---- products ---- */

static bool is_zero(const Search *s, NodeId id)
{
    return at(s, id)->kind == N_CONST && at(s, id)->value == 0;
}

static bool add_factor(Factors *f, NodeId id, bool inverse)
{
    if (f->len == 8)
        return false;
    f->data[f->len++] = (Factor){ id, inverse };
    return true;
}

/* Conditions come out of a product, but for those that say where a value of one step is there. */
static bool flatten(const Search *s, NodeId id, const At *a, bool inverse, Factors *out)
{
    const Node n = *at(s, id);
    if (n.kind == N_MAP && n.op == OP_MUL)
        return flatten(s, n.args[0], a, inverse, out) && flatten(s, n.args[1], a, inverse, out);
    if (n.kind == N_MAP && n.op == OP_DIV)
        return flatten(s, n.args[0], a, inverse, out) && flatten(s, n.args[1], a, !inverse, out);
    if (n.kind == N_MAP && n.op == OP_NEG) {
        out->negative = !out->negative;
        return flatten(s, n.args[0], a, inverse, out);
    }
    bool guarded = n.kind == N_MAP && n.op == OP_SELECT && is_zero(s, n.args[2]) && !inverse;
    if (guarded && !is_pure(s, id, a, false) && !is_pure(s, id, a, true)) {
        if (out->n_guards == 8)
            return false;
        out->guards[out->n_guards++] = n.args[0];
        return flatten(s, n.args[1], a, inverse, out);
    }
    return add_factor(out, id, inverse);
}

static bool same_read(const Read *a, const Read *b)
{
    bool same = a->id == b->id && a->nmap == b->nmap && a->step == b->step;
    for (int i = 0; i < a->nmap && same; i++)
        same = a->map[i] == b->map[i];
    return same;
}

/* An array over the past whose body is a sum, read in `in`. */
static bool add_dot(Search *s, const Read *r, const At *in)
{
    Window *w = s->w;
    const Node reduce = *at(s, at(s, r->id)->args[0]);
    IndexId which;
    WindowDot d = { .array = r->id, .reduce = at(s, r->id)->args[0], .along = reduce.bound[0] };
    d.read = (Read){ .id = r->id, .nmap = at(s, r->id)->naxes, .step = in->step };
    d.read.map = arena_alloc(s->m->arena, sizeof *d.read.map * (size_t)(d.read.nmap + 1));
    memcpy(d.read.map, in->to, sizeof *d.read.map * (size_t)d.read.nmap);
    for (int i = 0; i < w->n_dots; i++)
        if (w->dots[i].array == r->id)
            return same_read(&w->dots[i].read, &d.read) ||
                   refuse(s, "the products of one value with earlier ones are read at two places");
    const IxExpr *distance = in->to[s->p->past[r->id] - 1];
    const Poly *extent = s->m->indices.data[at(s, r->id)->axes[s->p->past[r->id] - 1]].extent;
    if (reduce.reduce != R_SUM || reduce.nbound != 1 || d.along < IX_FIRST)
        return refuse(s, "a value over the past is a reduction, but no sum over one index");
    if (!ix_is_index(distance, &which) || which != s->first_w || (w->extent && w->extent != extent))
        return refuse(s, "a product with earlier values is read at other distances than its own");
    Factors all = { .len = 0 };
    if (w->n_dots == 4 || !flatten(s, reduce.args[0], in, false, &all))
        return refuse(s, "too many products with earlier values");
    w->extent = extent;
    d.scale.negative = all.negative;
    for (int i = 0; i < all.n_guards; i++) {
        if (has_axis(at(s, all.guards[i]), d.along))
            return refuse(s, "a condition inside a product with earlier values varies with what is summed over");
        d.scale.guards[d.scale.n_guards++] = all.guards[i];
    }
    for (int i = 0; i < all.len; i++) {
        Factor f = all.data[i];
        bool summed = has_axis(at(s, f.id), d.along), own = is_pure(s, f.id, in, true);
        if (summed && !own && !is_pure(s, f.id, in, false))
            return refuse(s, "the terms of a sum over the past are no products of a value of this step and one of an "
                             "earlier step");
        add_factor(!summed ? &d.scale : own ? &d.own : &d.other, f.id, f.inverse);
    }
    if (!d.own.len || !d.other.len)
        return refuse(s, "the terms of a sum over the past are no products of a value of this step and one of an "
                         "earlier step");
    w->dots[w->n_dots++] = d;
    return true;
}

/* Finds the products in what an expression reads of the past. */
static bool find_dots(Search *s, NodeId id, const At *a)
{
    const Node n = *at(s, id);
    Read r;
    if (too_far(s))
        return refuse(s, "the terms of a sum over the past are too large");
    if (plan_resolve(s->p, id, &r)) {
        if (r.is_tensor || !s->p->past[r.id])
            return true;
        At in = inside(s, &r, a);
        return at(s, at(s, r.id)->args[0])->kind == N_REDUCE ? add_dot(s, &r, &in)
                                                              : find_dots(s, at(s, r.id)->args[0], &in);
    }
    if (n.kind == N_REDUCE && !ir_gathers(s->m, id))
        return refuse(s, "a sum stands inside an expression");
    for (int i = 0; i < n.nargs; i++)
        if (!find_dots(s, n.args[i], a))
            return false;
    return true;
}

/* ---- the maximum ---- */

typedef enum { D_NONE, D_MAX, D_LOG, D_TOTAL, D_EXP, D_SHARE, D_BAD } Degree;

static Degree degree(const Search *s, NodeId id, const At *a);

/* A sum of the same pass, read by its own row. */
static Degree of_member(const Search *s, int member, const Read *r, const At *a)
{
    const Window *w = s->w;
    const Node *first = at(s, w->sums[0].array);
    if (step_of(s, r, a) != ix_index(s->m, IX_TIME) || w->sums[member].along >= 0)
        return D_BAD;
    for (int i = 0; i < r->nmap; i++)
        if (composed(s, r->map[i], a) != ix_index(s->m, first->axes[i]))
            return D_BAD;
    return member == w->max ? D_MAX : w->sums[member].over == OVER_MAX ? D_TOTAL : D_BAD;
}

static Degree of_read(const Search *s, const Read *r, const At *a)
{
    for (int i = 0; !r->is_tensor && i < s->w->n; i++)
        if (s->w->sums[i].array == r->id)
            return of_member(s, i, r, a);
    if (r->is_tensor || !s->p->past[r->id])
        return D_NONE;
    At in = inside(s, r, a);
    return degree(s, at(s, r->id)->args[0], &in);
}

static Degree of_quotient(Degree a, Degree b)
{
    if (b == D_NONE)
        return a == D_NONE || a == D_EXP || a == D_SHARE ? a : D_BAD;
    return a == D_EXP && b == D_TOTAL ? D_SHARE : D_BAD;
}

static Degree of_product(Degree a, Degree b)
{
    Degree more = a == D_NONE ? b : a;
    return a != D_NONE && b != D_NONE ? D_BAD : more == D_NONE || more == D_EXP || more == D_SHARE ? more : D_BAD;
}

static Degree of_map(const Search *s, const Node *n, const Degree *d)
{
    bool none = true;
    for (int i = 0; i < n->nargs; i++)
        none &= d[i] == D_NONE;
    if (none)
        return D_NONE;
    switch (n->op) {
    case OP_STOP: return d[0];
    case OP_NEG: return of_quotient(d[0], D_NONE);
    case OP_EXP: return d[0] == D_LOG ? D_EXP : D_BAD;
    case OP_MUL: return of_product(d[0], d[1]);
    case OP_DIV: return of_quotient(d[0], d[1]);
    case OP_SUB:
        if (d[0] == D_NONE && d[1] == D_MAX)
            return D_LOG;
        return d[0] == d[1] && (d[0] == D_EXP || d[0] == D_SHARE) ? d[0] : D_BAD;
    case OP_ADD: return d[0] == d[1] && (d[0] == D_EXP || d[0] == D_SHARE) ? d[0] : D_BAD;
    case OP_SELECT:
        if (d[0] != D_NONE || (d[1] != D_EXP && d[1] != D_SHARE))
            return D_BAD;
        return d[2] == d[1] || is_zero(s, n->args[2]) ? d[1] : D_BAD;
    default: return D_BAD;
    }
}

/* Of `least < x ? x : other`, as a softmax guards its maximum and its total where all scores are -inf:
 * x; -1: it is something else. */
static NodeId guarded(const Search *s, const Node *n)
{
    const Node *c = n->kind == N_MAP && n->op == OP_SELECT ? at(s, n->args[0]) : NULL;
    if (!c || c->kind != N_MAP || c->op != OP_LT || c->args[1] != n->args[1])
        return -1;
    const Node *least = at(s, c->args[0]), *other = at(s, n->args[2]);
    if (least->kind != N_CONST || other->kind != N_CONST)
        return -1;
    bool top = least->value == -INFINITY && other->value == 0, total = least->value == 0 && other->value == 1;
    return top || total ? n->args[1] : -1;
}

static Degree degree(const Search *s, NodeId id, const At *a)
{
    const Node n = *at(s, id);
    Degree d[8];
    Read r;
    NodeId inner = guarded(s, &n);
    if (inner >= 0) {
        bool top = at(s, n.args[2])->value == 0;
        Degree of = degree(s, inner, a);
        if (of == (top ? D_MAX : D_TOTAL))
            return of;
    }
    if (too_far(s))
        return D_BAD;
    if (plan_resolve(s->p, id, &r))
        return of_read(s, &r, a);
    if (n.kind == N_REDUCE)
        return degree(s, n.args[0], a) == D_NONE ? D_NONE : D_BAD;
    if (n.nargs > 8)
        return D_BAD;
    for (int i = 0; i < n.nargs; i++)
        if ((d[i] = degree(s, n.args[i], a)) == D_BAD)
            return D_BAD;
    return n.kind == N_MAP ? of_map(s, &n, d) : n.nargs ? d[0] : D_NONE;
}

/* How the sum just described changes with the maximum. */
static bool find_over(Search *s, WindowSum *x, const At *a)
{
    Degree all = D_NONE;
    bool others = x->term < 0 || degree(s, x->term, a) == D_NONE;
    for (int i = 0; i < x->weight.n_guards; i++)
        others &= degree(s, x->weight.guards[i], a) == D_NONE;
    for (int i = 0; i < x->other.len; i++)
        others &= degree(s, x->other.data[i].id, a) == D_NONE;
    for (int pass = 0; pass < 2; pass++)       /* divisors behind what they divide */
        for (int i = 0; i < x->weight.len; i++)
            if (x->weight.data[i].inverse == pass)
                all = (pass ? of_quotient : of_product)(all, degree(s, x->weight.data[i].id, a));
    if (!others || (all != D_NONE && all != D_EXP && all != D_SHARE))
        return refuse(s, "a sum over the past needs another one to be finished");
    x->over = all == D_EXP ? OVER_MAX : all == D_SHARE ? OVER_TOTAL : OVER_NOTHING;
    return true;
}

/* ---- sums ---- */

/* The bound index that values over the past are read at; -1: none. */
static IndexId distance_in(const Search *s, NodeId id, const Node *reduce)
{
    const Node *n = at(s, id);
    IndexId which;
    Read r;
    if (too_far(s))
        return -1;
    if (plan_resolve(s->p, id, &r)) {
        if (r.is_tensor || !s->p->past[r.id] || !ix_is_index(r.map[s->p->past[r.id] - 1], &which))
            return -1;
        for (int i = 0; i < reduce->nbound; i++)
            if (reduce->bound[i] == which)
                return which;
        return -1;
    }
    for (int i = 0; i < n->nargs; i++)
        if ((which = distance_in(s, n->args[i], reduce)) >= 0)
            return which;
    return -1;
}

static bool find_outer(Search *s, const WindowSum *x, const Node *reduce)
{
    Window *w = s->w;
    int n = 0;
    for (int i = 0; i < reduce->nbound; i++) {
        IndexId b = reduce->bound[i];
        if (b == x->w)
            continue;
        if (b < IX_FIRST || n == 4 || (w->n > 0 && (n >= w->n_outer || w->outer[n] != b)))
            return refuse(s, "a sum over the past sums over other indices than its neighbours");
        w->outer[n++] = b;
    }
    if (w->n > 0 && n != w->n_outer)
        return refuse(s, "a sum over the past sums over other indices than its neighbours");
    w->n_outer = n;
    return true;
}

/* The indices of a sum as those of the first one. */
static At of_first(const Search *s, const WindowSum *x)
{
    const Node *mine = at(s, x->array), *first = at(s, s->w->n ? s->w->sums[0].array : x->array);
    At a = { .step = ix_index(s->m, IX_TIME) };
    for (int i = 0; i < mine->naxes && i < first->naxes; i++) {
        a.from[a.n] = mine->axes[i];
        a.to[a.n++] = ix_index(s->m, first->axes[i]);
    }
    a.from[a.n] = x->w;
    a.to[a.n++] = ix_index(s->m, s->first_w);
    return a;
}

/* Columns are of the other step's values only. */
static bool find_columns(Search *s, WindowSum *x, const Factors *all, const At *a)
{
    const Node *array = at(s, x->array);
    IndexId last = array->naxes ? array->axes[array->naxes - 1] : -1;
    x->along = -1;
    x->weight.negative = all->negative;
    for (int i = 0; i < all->len; i++)
        if (last >= 0 && has_axis(at(s, all->data[i].id), last) && is_pure(s, all->data[i].id, a, false) &&
            !is_pure(s, all->data[i].id, a, true))
            x->along = last;
    for (int i = 0; i < all->len; i++) {
        bool column = x->along >= 0 && has_axis(at(s, all->data[i].id), x->along);
        if (column && !is_pure(s, all->data[i].id, a, false))
            return refuse(s, "what a sum over the past has columns of is not of the other step alone");
        add_factor(column ? &x->other : &x->weight, all->data[i].id, all->data[i].inverse);
    }
    for (int i = 0; i < all->n_guards; i++) {
        if (x->along >= 0 && has_axis(at(s, all->guards[i]), x->along))
            return refuse(s, "a condition on a sum over the past varies with its columns");
        x->weight.guards[x->weight.n_guards++] = all->guards[i];
    }
    return true;
}

/* Every axis of a block says which products it needs: none are made twice. */
static bool is_used(const Search *s, const WindowSum *x, IndexId axis, const At *a)
{
    const Window *w = s->w;
    IndexId first = axis, which;
    for (int i = 0; i < a->n; i++)
        if (a->from[i] == axis && ix_is_index(a->to[i], &which))
            first = which;
    for (int i = 0; i < w->n_dots; i++)
        for (int k = 0; k < w->dots[i].read.nmap; k++)
            if (ix_uses(w->dots[i].read.map[k], first))
                return true;
    for (int i = 0; i < x->weight.n_guards; i++)
        if (has_axis(at(s, x->weight.guards[i]), axis))
            return true;
    return false;
}

/* All arrays have the block's axes in common. */
static bool find_axes(Search *s, const WindowSum *x, const At *a)
{
    Window *w = s->w;
    const Node *mine = at(s, x->array), *first = at(s, w->n ? w->sums[0].array : x->array);
    int naxes = mine->naxes - (x->along >= 0);
    bool same = w->n == 0 || naxes == w->naxes;
    for (int i = 0; i < naxes && same; i++)
        same = s->m->indices.data[mine->axes[i]].extent == s->m->indices.data[first->axes[i]].extent;
    for (int i = 0; i < naxes; i++)
        if (!is_used(s, x, mine->axes[i], a))
            return refuse(s, "a sum over the past has columns that are not of the other step alone");
    w->naxes = naxes;
    return same || refuse(s, "sums over the past vary over other axes than their neighbours");
}

/* Of the distances, or of more places, which have no step. */
static bool find_extent(Search *s, const WindowSum *x)
{
    Window *w = s->w;
    const Poly *extent = s->m->indices.data[x->w].extent;
    if (!w->extent || extent == w->extent)
        return w->extent || refuse(s, "no product with earlier values is in a sum over the past");
    if (x->along >= 0 || s->by_key || (w->places && w->places != extent) ||
        !poly_nonneg(poly_sub(s->m, extent, w->extent)))
        return refuse(s, "a sum over the past has other distances than the products in it");
    w->places = extent;
    return true;
}

static bool add_sum(Search *s, NodeId array)
{
    Window *w = s->w;
    const Node reduce = *at(s, at(s, array)->args[0]);
    WindowSum x = { .array = array, .term = -1, .along = -1 };
    Factors all = { .len = 0 };
    *s->visits = 0;
    if (w->n == 8 || reduce.kind != N_REDUCE || (reduce.reduce != R_SUM && reduce.reduce != R_MAX))
        return refuse(s, "a reduction over the past is no sum and no maximum");
    if (!plan_batched(s->p, array) || !plan_timed(s->p, array))
        return refuse(s, "a sum over the past is the same for all steps");
    x.w = distance_in(s, reduce.args[0], &reduce);
    if (x.w < 0 || !find_outer(s, &x, &reduce))
        return refuse(s, "values over the past are read at other places than distances");
    if (w->n == 0)
        s->first_w = x.w;
    At a = of_first(s, &x);
    if (!find_dots(s, reduce.args[0], &a))
        return false;
    if (reduce.reduce == R_MAX) {
        if (w->max >= 0 || s->by_key)
            return refuse(s, "two maxima over the past");
        x.term = reduce.args[0];
    } else if (!flatten(s, reduce.args[0], &a, false, &all)) {
        return refuse(s, "the terms of a sum over the past have too many factors");
    }
    if (!find_columns(s, &x, &all, &a) || !find_axes(s, &x, &a) || !find_extent(s, &x) || !find_over(s, &x, &a))
        return false;
    if (*s->visits > MOST_VISITS)               /* what was answered behind the last visit is not known */
        return refuse(s, "the terms of a sum over the past are too large");
    if (reduce.reduce == R_MAX)
        w->max = w->n;
    else if (x.over == OVER_MAX && x.along < 0 && w->total < 0)
        w->total = w->n;
    w->sums[w->n++] = x;
    return true;
}

/* Every divisor is the one total. */
static bool one_total(const Window *w)
{
    int totals = 0;
    for (int i = 0; i < w->n; i++)
        totals += w->sums[i].over == OVER_MAX && w->sums[i].along < 0;
    for (int i = 0; i < w->n && totals > 1; i++)
        if (w->sums[i].over == OVER_TOTAL)
            return false;
    return true;
}

static bool build(Search *s, const NodeId *sums, int n)
{
    const char *why = s->w->why;
    *s->w = (Window){ .max = -1, .total = -1, .by_key = s->by_key, .why = why };
    s->first_w = -1;
    for (int i = 0; i < n; i++)
        if (!add_sum(s, sums[i]))
            return false;
    return one_total(s->w);
}

bool window_build(const Plan *p, const NodeId *sums, int n, Window *out)
{
    int visits = 0;
    Search s = { .p = p, .m = p->m, .w = out, .other = p->other_step, .visits = &visits };
    *out = (Window){ .max = -1 };
    if (!p->past || p->plain_past)
        return false;
    for (int k = 0; k < 2; k++) {
        s.by_key = k;
        if (build(&s, sums, n)) {
            out->why = NULL;
            return true;
        }
    }
    return false;
}

static bool joins(const Plan *p, const Group *g, NodeId array)
{
    NodeId sums[9];
    Window w;
    if (!g->pass || g->arrays.len >= 8)
        return false;
    memcpy(sums, g->arrays.data, sizeof *sums * (size_t)g->arrays.len);
    sums[g->arrays.len] = array;
    return window_build(p, sums, g->arrays.len + 1, &w);
}

static bool is_sum(const Plan *p, NodeId id)
{
    return p->m->nodes.data[id].kind == N_ARRAY && past_sums(p, id);
}

/* The sums of which a softmax and what it weighs are made are found by their form: a maximum; a sum that goes with it; and
 * one with columns that is divided by that. */
static bool weighs(const Plan *p, NodeId max, NodeId total)
{
    Window w;
    NodeId sums[3] = { max, total };
    if (!window_build(p, sums, 2, &w) || w.total != 1)
        return false;
    for (sums[2] = total + 1; sums[2] < p->n_nodes; sums[2]++)
        if (is_sum(p, sums[2]) && window_build(p, sums, 3, &w) && w.sums[2].over == OVER_TOTAL && w.sums[2].along >= 0)
            return true;
    return false;
}

static bool found(const Plan *p)
{
    for (NodeId max = 0; p->past && max < p->n_nodes; max++) {
        Window w;
        if (!is_sum(p, max) || !window_build(p, &max, 1, &w) || w.max != 0)
            continue;
        for (NodeId total = max + 1; total < p->n_nodes; total++)
            if (is_sum(p, total) && weighs(p, max, total))
                return true;
    }
    return false;
}

const char *window_refuses(const Plan *p)
{
    const char *why = NULL;
    for (NodeId id = 0; p->past && id < p->n_nodes; id++) {
        Window w;
        if (p->program[FORWARD].group[id] < 0 || !is_sum(p, id))
            continue;
        if (!window_build(p, &id, 1, &w))
            return w.why ? w.why : "a sum over the past is none of products";
        why = "it weighs nothing by a softmax over the past";
    }
    return why ? why : "it has no softmax over the past of products with earlier values";
}

/* ---- slices ---- */

/* Is it so many places further than an index, and no distance any more? */
static bool is_beyond(const IxExpr *e)
{
    return e->nterms == 1 && e->terms[0].kind == IA_INDEX && e->terms[0].coef->is_const && e->terms[0].coef->value == 1 &&
           poly_nonneg(e->offset) && !(e->offset->is_const && e->offset->value == 0);
}

static NodeId hook_slice(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    Module *m = r->m;
    const int *past = r->data;
    const Node was = m->nodes.data[old], view = m->nodes.data[rebuilt];
    (void)whole;
    if (was.kind != N_VIEW || view.kind != N_VIEW || view.step || !past[was.args[0]] ||
        !is_beyond(view.map[past[was.args[0]] - 1]))
        return rebuilt;
    const Node array = m->nodes.data[view.args[0]];
    if (m->nodes.data[array.args[0]].kind == N_REDUCE)
        return rebuilt;
    NodeId body = node_subst(m, array.args[0], array.axes, view.map, array.naxes);
    return node_array(m, body, view.axes, view.naxes, array.name, array.span);
}

/* What is read of values over the past (by the axis that counts distances, plus one) at places beyond the
 * distances, such as a prefix, becomes an array of its own, so that products may have it. */
static void own_slices(Module *m, int *past)
{
    Rewrite r = { .m = m, .hook = hook_slice, .data = past };
    rewrite_roots(&r);
}

int window_slots(const Window *w)
{
    int columns = 0;
    for (int i = 0; i < w->n; i++)
        columns += w->sums[i].along >= 0;
    return columns > w->n_dots ? columns : w->n_dots;
}

/* ---- the schedule ---- */

/* A cell whose softmax over the past goes in one pass. */
static Verdict settle(Plan *p)
{
    return (Verdict){ .why = p->passes ? NULL : reason(p->m, "%s", window_refuses(p)) };
}

static bool tells(const Plan *p)
{
    return p->past != NULL;
}

static void *opens(const Plan *p, NodeId array, int *naxes)
{
    Window w, *own;
    if (!window_build(p, &array, 1, &w))
        return NULL;
    own = arena_alloc(p->m->arena, sizeof *own);
    *own = w;
    *naxes = w.naxes;
    return own;
}

static void grows(const Plan *p, Group *g)
{
    window_build(p, g->arrays.data, g->arrays.len, g->pass);
}

static const PastPass pass = {
    .found = found,
    .own_slices = own_slices,
    .opens = opens,
    .joins = joins,
    .grows = grows,
    .print = window_print,
    .steps = WINDOW_TILE,
};

const Schedule window_schedule = {
    .name = "window",
    .what = "a softmax over the past goes in one pass, by tiles of steps, and so do its gradients",
    .stateless = true,
    .settle = settle,
    .plans_as_next = true,
    .tells = tells,
    .pass = &pass,
};
