/* enumerate.c: whole numbers that are no index expressions, such as i * (i - 1) / 2 + j, proved to stay inside an axis
 * by trying all values of their indices, whose extents must be known. In comes an expression that was checked, with
 * the facts around it; out goes whether each value that the facts allow is a place of the axis. */
#include "resolve.h"

enum { MAX_INDICES = 8, MAX_POINTS = 1 << 20 };

typedef struct Trial {
    Module *m;
    IndexId id[MAX_INDICES];
    int64_t extent[MAX_INDICES], at[MAX_INDICES];
    int n;
    bool ok;                      /* everything is known so far */
} Trial;

static void take_index(Trial *t, IndexId i)
{
    for (int k = 0; k < t->n; k++)
        if (t->id[k] == i)
            return;
    const Poly *extent = i < IX_FIRST ? NULL : t->m->indices.data[i].extent;
    t->ok &= t->n < MAX_INDICES && extent && extent->is_const;
    if (!t->ok)
        return;
    t->id[t->n] = i;
    t->extent[t->n++] = extent->value;
}

static void take_indices(Trial *t, const IxExpr *e)
{
    for (int i = 0; i < e->nterms && t->ok; i++)
        if (e->terms[i].kind == IA_INDEX)
            take_index(t, e->terms[i].index);
        else
            take_indices(t, e->terms[i].arg);
}

static void find_indices(Trial *t, const FExpr *x)
{
    if (x->kind == F_VALUE && x->sym->kind == SYM_SCALAR_ARG)
        x = x->sym->scalar;
    if (x->ix)
        take_indices(t, x->ix);
    for (int i = 0; i < x->nargs && !x->ix && t->ok; i++)
        find_indices(t, x->args[i]);
}

static int64_t known(Trial *t, const Poly *p)
{
    t->ok &= p->is_const;
    return p->is_const ? p->value : 0;
}

static int64_t floor_of(int64_t a, int64_t b)
{
    return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t sum_or_stop(Trial *t, int64_t a, int64_t b)
{
    int64_t r;
    t->ok &= !__builtin_add_overflow(a, b, &r);
    return t->ok ? r : 0;
}

static int64_t product_or_stop(Trial *t, int64_t a, int64_t b)
{
    int64_t r;
    t->ok &= !__builtin_mul_overflow(a, b, &r);
    return t->ok ? r : 0;
}

static int64_t ix_value(Trial *t, const IxExpr *e)
{
    int64_t sum = known(t, e->offset);
    for (int i = 0; i < e->nterms && t->ok; i++) {
        const IxTerm *term = &e->terms[i];
        int64_t v = 0;
        if (term->kind == IA_INDEX) {
            for (int k = 0; k < t->n; k++)
                v = t->id[k] == term->index ? t->at[k] : v;
        } else {
            int64_t a = ix_value(t, term->arg), by = known(t, term->by), q = floor_of(a, by);
            v = term->kind == IA_DIV ? q : by == 0 ? 0 : a - by * q;
        }
        sum = sum_or_stop(t, sum, product_or_stop(t, known(t, term->coef), v));
    }
    return sum;
}

static int64_t value_of(Trial *t, const FExpr *x)
{
    int64_t a = 0, b = 0, r = 1;
    if (x->kind == F_VALUE && x->sym->kind == SYM_SCALAR_ARG)
        x = x->sym->scalar;
    if (x->ix)
        return ix_value(t, x->ix);
    if (x->kind == F_NUM && x->is_int)
        return (int64_t)x->num;
    t->ok &= x->kind == F_IDIV || x->kind == F_IMOD || (x->kind == F_MAP && x->nargs <= 2);
    if (t->ok && x->nargs > 0)
        a = value_of(t, x->args[0]);
    if (t->ok && x->nargs > 1)
        b = value_of(t, x->args[1]);
    if (!t->ok || x->kind == F_IDIV)
        return t->ok && !(b == -1 && a == INT64_MIN) ? floor_of(a, b) : 0;
    if (x->kind == F_IMOD)
        return b == 0 || b == -1 ? 0 : a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    switch (x->op) {
    case OP_ADD: return sum_or_stop(t, a, b);
    case OP_SUB: return sum_or_stop(t, a, product_or_stop(t, b, -1));
    case OP_MUL: return product_or_stop(t, a, b);
    case OP_NEG: return product_or_stop(t, a, -1);
    case OP_MIN: return a < b ? a : b;
    case OP_MAX: return a > b ? a : b;
    case OP_POW:
        for (t->ok &= b >= 0; b > 0 && t->ok; b--)
            r = product_or_stop(t, r, a);
        return r;
    default: t->ok = false; return 0;
    }
}

/* Facts about other indices say nothing here. */
static int own_facts(const Walk *w, const Trial *t, const IxExpr **facts)
{
    int n = 0;
    for (int i = 0; i < w->nfacts; i++) {
        Trial more = *t;
        take_indices(&more, w->fact[i]);
        if (more.ok && more.n == t->n)
            facts[n++] = w->fact[i];
    }
    return n;
}

static bool next_point(Trial *t)
{
    for (int k = t->n - 1; k >= 0; k--) {
        if (++t->at[k] < t->extent[k])
            return true;
        t->at[k] = 0;
    }
    return false;
}

bool stays_inside(const Walk *w, const FExpr *at, const Poly *extent)
{
    Trial t = { .m = w->f->m, .ok = extent->is_const };
    const IxExpr *facts[MAX_FACTS];
    int64_t points = 1;
    find_indices(&t, at);
    for (int k = 0; k < t.n && points <= MAX_POINTS; k++)
        points *= t.extent[k];
    if (!t.ok || points > MAX_POINTS)
        return false;
    int n = own_facts(w, &t, facts);
    do {
        bool holds = true;
        for (int i = 0; i < n && holds; i++) {
            Trial fact = t;           /* a fact with open sizes is not looked at */
            holds = ix_value(&fact, facts[i]) >= 0 || !fact.ok;
        }
        int64_t place = holds ? value_of(&t, at) : 0;
        if (!t.ok || (holds && (place < 0 || place >= extent->value)))
            return false;
    } while (next_point(&t));
    return true;
}
