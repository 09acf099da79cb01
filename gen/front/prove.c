/* prove.c: indices that stay inside their arrays. In come index expressions and the conditions around them;
 * each bound is proved for all dims >= 1, or becomes a Check of the call where it depends on dims alone, or
 * is diagnosed. */
#include <string.h>

#include "resolve.h"

/* ---- text for messages ---- */

const char *poly_shown(Flat *f, const Poly *p)
{
    Buf b = { .arena = f->c->arena };
    poly_print(f->m, p, &b);
    return b.len ? intern_n(f->c, b.data, b.len) : "0";
}

const char *source_text(Flat *f, Span s)
{
    if (s.file < 0 || s.hi <= s.lo || s.hi > f->c->sources.data[s.file].len || s.hi - s.lo > 60)
        return "...";
    return intern_n(f->c, f->c->sources.data[s.file].text + s.lo, s.hi - s.lo);
}

const char *shown(Flat *f, const Symbol *s)
{
    return quoted_name(f, s->name, s->kind == SYM_NEXT);
}

const Poly *minus_one(Flat *f, const Poly *p)
{
    return poly_sub(f->m, p, poly_const(f->m, 1));
}

const Poly *negative(Flat *f, const Poly *p)
{
    return poly_mul(f->m, poly_const(f->m, -1), p);
}

/* ---- proofs ---- */

static void add_check(Flat *f, const Poly *nonneg, Span span, const char *text)
{
    Check c = { nonneg, span, text };
    for (int i = 0; i < f->m->checks.len; i++)
        if (f->m->checks.data[i].nonneg == nonneg)
            return;
    vec_push(f->c->arena, &f->m->checks, c);
}

bool require_positive(Flat *f, const Poly *extent, Span span, const CallSite *chain)
{
    const Poly *spare = minus_one(f, extent);
    if (poly_nonneg(spare))
        return true;
    bool never = extent->is_const || poly_nonneg(negative(f, extent));
    if (never)
        FLAT_ERROR(f, chain, span, "the extent '%s' is %s, but an extent is at least 1", source_text(f, span),
                   poly_shown(f, extent));
    else
        add_check(f, spare, span, intern_f(f->c, "the extent '%s' must be at least 1", source_text(f, span)));
    return !never;
}

static bool share_atom(const IxExpr *a, const IxExpr *b, const Poly **ca, const Poly **cb)
{
    for (int i = 0; i < a->nterms; i++)
        for (int k = 0; k < b->nterms; k++) {
            const IxTerm *x = &a->terms[i], *y = &b->terms[k];
            bool same = x->kind == y->kind &&
                        (x->kind == IA_INDEX ? x->index == y->index : x->arg == y->arg && x->by == y->by);
            if (same) {
                *ca = x->coef;
                *cb = y->coef;
                return true;
            }
        }
    return false;
}

/* e less the multiple of a fact that cancels an atom they share, or less the fact itself. */
static const IxExpr *less_fact(Flat *f, const IxExpr *e, const IxExpr *fact)
{
    const Poly *ce, *cf, *by = poly_const(f->m, 1);
    if (share_atom(e, fact, &ce, &cf) && cf->is_const && (cf->value == 1 || cf->value == -1)) {
        const Poly *ratio = poly_mul(f->m, ce, cf);
        if (ratio->nterms && poly_nonneg(ratio))
            by = ratio;
    }
    return ix_sub(f->m, e, ix_scale(f->m, fact, by));
}

/* c + floor(x / by) >= 0 says x + c*by >= 0, and c - floor(x / by) >= 0 says c*by + by - 1 - x >= 0. */
static const IxExpr *without_floor(Module *m, const IxExpr *e)
{
    const IxTerm *t = e->nterms == 1 ? &e->terms[0] : NULL;
    if (!t || t->kind != IA_DIV || !t->coef->is_const || (t->coef->value != 1 && t->coef->value != -1))
        return NULL;
    const IxExpr *bound = ix_const(m, poly_mul(m, e->offset, t->by));
    if (t->coef->value == 1)
        return ix_add(m, t->arg, bound);
    const Poly *rest = poly_sub(m, t->by, poly_const(m, 1));
    return ix_sub(m, ix_add(m, bound, ix_const(m, rest)), t->arg);
}

/* Does it say of numbers that are known what is not so? */
static bool is_false(Flat *f, const IxExpr *fact)
{
    return !fact->nterms && poly_nonneg(minus_one(f, negative(f, fact->offset)));
}

/* e >= 0 for all values of its indices, given the facts: under a condition that never holds, anything. */
static bool proved(const Walk *w, const IxExpr *e, int from, int depth)
{
    const Poly *lo, *hi;
    for (int i = from; i < w->nfacts; i++)
        if (is_false(w->f, w->fact[i]))
            return true;
    if (ix_range(w->f->m, e, &lo, &hi) && poly_nonneg(lo))
        return true;
    const IxExpr *plain = without_floor(w->f->m, e);
    if (plain)
        return proved(w, plain, from, depth);
    for (int i = from; depth > 0 && i < w->nfacts; i++)
        if (proved(w, less_fact(w->f, e, w->fact[i]), i, depth - 1))
            return true;
    return false;
}

/* Could it hold for sizes that someone would use? It is tried on some with every dim above 1. */
static bool may_be_nonneg(const Module *m, const Poly *p)
{
    int64_t dims[MAX_DIMS];
    uint64_t random = 1;
    for (int round = 0; round < 64; round++) {
        for (int i = 0; i < MAX_DIMS; i++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            dims[i] = (int64_t)2 << (random >> 60);
        }
        if (poly_eval(m, p, dims) >= 0)
            return true;
    }
    return false;
}

/* p >= 0 as a comparison without minus signs: N <= D. */
static const char *comparison_text(Flat *f, const Poly *p)
{
    const Poly *minus = poly_const(f->m, 0);
    for (int i = 0; i < p->nterms; i++)
        if (p->terms[i].coef < 0) {
            const Poly *term = poly_const(f->m, -p->terms[i].coef);
            for (int k = 0; k < p->terms[i].natoms; k++)
                term = poly_mul(f->m, term, poly_dim(f->m, p->terms[i].atoms[k]));
            minus = poly_add(f->m, minus, term);
        }
    return intern_f(f->c, "%s <= %s", poly_shown(f, minus), poly_shown(f, poly_add(f->m, p, minus)));
}

/* A condition on dims alone from which e >= 0 follows; NULL when there is none that could hold. */
static const Poly *sufficient(const Walk *w, const IxExpr *e)
{
    Flat *f = w->f;
    const Poly *lo, *hi, *ca, *cb;
    bool touched = false;
    for (int i = 0; i < w->nfacts; i++)
        touched |= share_atom(e, w->fact[i], &ca, &cb);
    for (int i = touched ? 0 : -1; i < w->nfacts; i++) {
        const IxExpr *rest = i < 0 ? e : less_fact(f, e, w->fact[i]);
        if (ix_range(f->m, rest, &lo, &hi) && !lo->is_const && may_be_nonneg(f->m, lo))
            return lo;
    }
    return NULL;
}

typedef struct Reach {
    Flat *f;
    const FExpr *arg;
    const Symbol *array;
    int axis;
} Reach;

static void report_bound(const Walk *w, const Reach *r, const IxExpr *ix, bool above)
{
    Flat *f = w->f;
    const Poly *lo, *hi;
    const char *text = source_text(f, r->arg->span), *array = shown(f, r->array);
    const char *extent = poly_shown(f, r->array->axes[r->axis]);
    bool known = ix_range(f->m, ix, &lo, &hi);
    if (known && !above)
        WALK_ERROR(w, r->arg, r->arg->span, "index '%s' of %s reaches %s, below 0", text, array,
                   poly_shown(f, lo));
    else if (known)
        WALK_ERROR(w, r->arg, r->arg->span, "index '%s' reaches %s, but axis %d of %s ends at %s", text,
                   poly_shown(f, hi), r->axis + 1, array,
                   poly_shown(f, minus_one(f, r->array->axes[r->axis])));
    else
        WALK_ERROR(w, r->arg, r->arg->span, "it cannot be proved that index '%s' of %s %s", text, array,
                   above ? "stays below its extent" : "is never below 0");
    if (r->array->axis_spans)
        FLAT_NOTE(f, r->array->axis_spans[r->axis], "axis %d of %s has extent %s", r->axis + 1, array,
                  extent);
}

static void require_bound(const Walk *w, const Reach *r, const IxExpr *ix, const IxExpr *nonneg, bool above)
{
    Flat *f = w->f;
    if (proved(w, nonneg, 0, 3))
        return;
    const Poly *check = sufficient(w, nonneg);
    if (!check) {
        report_bound(w, r, ix, above);
        w->eq->failed = true;
        return;
    }
    add_check(f, check, r->arg->span,
              intern_f(f->c, "index '%s' of %s %s only if %s", source_text(f, r->arg->span),
                       shown(f, r->array), above ? "stays inside its axis" : "is never below 0",
                       comparison_text(f, check)));
}

void require_inside(const Walk *w, const FExpr *arg, const IxExpr *ix, const Symbol *array, int axis)
{
    Flat *f = w->f;
    Reach r = { f, arg, array, axis };
    int errors = f->c->errors;
    require_bound(w, &r, ix, ix, false);
    if (f->c->errors == errors)
        require_bound(w, &r, ix, ix_sub(f->m, ix_const(f->m, minus_one(f, array->axes[axis])), ix), true);
}

void require_not_later(const Walk *w, const FExpr *time, const IxExpr *step, const Symbol *array)
{
    Module *m = w->f->m;
    const IxExpr *back = ix_sub(m, ix_index(m, IX_TIME), step);
    const Poly *lo, *hi;
    if (proved(w, back, 0, 3))
        return;
    const char *text = source_text(w->f, time->span), *name = shown(w->f, array);
    if (ix_range(m, back, &lo, &hi) && poly_nonneg(minus_one(w->f, negative(w->f, hi))))
        WALK_ERROR(w, time, time->span, "step '%s' of %s is later than this one, and only earlier ones are known",
                   text, name);
    else
        WALK_ERROR(w, time, time->span,
                   "it cannot be proved that step '%s' of %s is not later than this one; a condition around it "
                   "can say so: '%s <= t ? ... : 0'",
                   text, name, text);
    w->eq->failed = true;
}

/* ---- conditions ---- */

/* A fact that another one implies is not kept. */
static void add_fact(Walk *w, const IxExpr *nonneg)
{
    for (int i = 0; i < w->nfacts; i++) {
        const IxExpr *less = ix_sub(w->f->m, w->fact[i], nonneg);
        if (less->nterms)
            continue;
        if (poly_nonneg(negative(w->f, less->offset)))
            return;
        if (poly_nonneg(less->offset)) {
            w->fact[i] = nonneg;
            return;
        }
    }
    bool never = is_false(w->f, nonneg);
    if (never && w->nfacts == MAX_FACTS)
        w->nfacts--;
    if (w->nfacts < MAX_FACTS && (nonneg->nterms || never))
        w->fact[w->nfacts++] = nonneg;
}

/* The truth of a condition on numbers that are known, such as those of a repeat: 1, 0, or -1. */
static int decided(const FExpr *x)
{
    if (x->kind == F_VALUE && x->sym->kind == SYM_SCALAR_ARG)
        x = x->sym->scalar;
    if (x->kind != F_MAP)
        return -1;
    if (x->op == OP_NOT || x->op == OP_AND || x->op == OP_OR) {
        int a = decided(x->args[0]), b = x->op == OP_NOT ? a : decided(x->args[1]), decisive = x->op == OP_OR;
        if (x->op == OP_NOT)
            return a < 0 ? -1 : !a;
        return a == decisive || b == decisive ? decisive : a < 0 || b < 0 ? -1 : !decisive;
    }
    const IxExpr *a = x->op >= OP_LT && x->op <= OP_NE ? x->args[0]->ix : NULL, *b = a ? x->args[1]->ix : NULL;
    if (!b || a->nterms || b->nterms || !a->offset->is_const || !b->offset->is_const)
        return -1;
    int64_t u = a->offset->value, v = b->offset->value;
    return x->op == OP_LT ? u < v : x->op == OP_LE ? u <= v : (u == v) == (x->op == OP_EQ);
}

/* a != b says something where b is the least or the greatest value of a. */
static void differs(Walk *w, const IxExpr *d)
{
    Module *m = w->f->m;
    const IxExpr *one = ix_const(m, poly_const(m, 1)), *back = ix_scale(m, d, poly_const(m, -1));
    bool least = proved(w, d, 0, 1), most = proved(w, back, 0, 1);
    if (least)
        add_fact(w, ix_sub(m, d, one));
    if (most)
        add_fact(w, ix_sub(m, back, one));
}

void assume(Walk *w, const FExpr *x, bool truth)
{
    Module *m = w->f->m;
    if (x->kind == F_VALUE && x->sym->kind == SYM_SCALAR_ARG)
        x = x->sym->scalar;
    if (x->kind != F_MAP)
        return;
    if (x->op == OP_NOT) {
        assume(w, x->args[0], !truth);
        return;
    }
    if ((x->op == OP_AND && truth) || (x->op == OP_OR && !truth)) {
        assume(w, x->args[0], truth);
        assume(w, x->args[1], truth);
        return;
    }
    if (x->op == OP_AND || x->op == OP_OR) {
        int a = decided(x->args[0]), b = decided(x->args[1]), off = x->op == OP_AND;
        if (a == off)
            assume(w, x->args[1], truth);
        else if (b == off)
            assume(w, x->args[0], truth);
        return;
    }
    if (x->op < OP_LT || x->op > OP_NE || !x->args[0]->ix || !x->args[1]->ix)
        return;
    const IxExpr *d = ix_sub(m, x->args[1]->ix, x->args[0]->ix), *back = ix_scale(m, d, poly_const(m, -1));
    const IxExpr *one = ix_const(m, poly_const(m, 1));
    if (x->op == OP_LT)
        add_fact(w, truth ? ix_sub(m, d, one) : back);
    else if (x->op == OP_LE)
        add_fact(w, truth ? d : ix_sub(m, back, one));
    else if ((x->op == OP_EQ) == truth) {
        add_fact(w, d);
        add_fact(w, back);
    } else {
        differs(w, d);
    }
}
