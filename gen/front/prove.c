/* prove.c: indices that stay inside their arrays. In come index expressions and the conditions around them;
 * each bound is proved for all dims >= 1, or becomes a Check of the call where it depends on dims alone, or
 * is diagnosed. */
#include <math.h>
#include <string.h>

#include "ir/ops.h"
#include "resolve.h"

/* ---- text for messages ---- */

const char *poly_shown(Flat *f, const Poly *p)
{
    Buf b = { .arena = f->c->arena };
    poly_print_spec(f->m, p, &b);
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
        WALK_ERROR(w, r->arg, r->arg->span, "index '%s' of %s reaches %s, below 0%s", text, array,
                   poly_shown(f, lo),
                   lo == hi ? intern_f(f->c, ": the last place is %s",
                                       poly_shown(f, minus_one(f, r->array->axes[r->axis])))
                            : "");
    else if (known)
        WALK_ERROR(w, r->arg, r->arg->span, "index '%s' reaches %s, but axis %d of %s ends at %s", text,
                   poly_shown(f, hi), r->axis + 1, array,
                   poly_shown(f, minus_one(f, r->array->axes[r->axis])));
    else
        WALK_ERROR(w, r->arg, r->arg->span, "it cannot be proved that index '%s' of %s %s%s", text, array,
                   above ? "stays below its extent" : "is never below 0",
                   !has_step(r->arg)     ? ""
                   : r->array->kind == SYM_PARAM ? "; t grows without end, and t % N stays below N"
                   : r->array->next || r->array->kind == SYM_NEXT
                       ? "; a state without a prime is the one before the step"
                       : "; an earlier step stands behind ';', as in x[i; t - 1]");
    if (r->array->axis_spans)
        FLAT_NOTE(f, r->array->axis_spans[r->axis], "axis %d of %s has extent %s", r->axis + 1, array,
                  extent);
}

static void require_bound(const Walk *w, const Reach *r, const IxExpr *ix, const IxExpr *nonneg, bool above)
{
    Flat *f = w->f;
    if (proved(w, nonneg, 0, 3) || stays_inside(w, r->arg, r->array->axes[r->axis]))
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

/* What a name stands for where that is one expression of this step: an argument, a definition, the result of
 * a fn. */
static const FExpr *definition_of(const FExpr *x)
{
    const Symbol *s = x->sym;
    if (x->kind == F_VALUE && s->kind == SYM_SCALAR_ARG && !s->is_variable)
        return s->scalar;
    s = (x->kind == F_VALUE || x->kind == F_CALL) && !x->time ? x->source : NULL;
    bool one = s && s->kind == SYM_DEF && !s->is_rounded && !s->is_variable && !s->failed && s->equations.len == 1;
    const Equation *eq = one && !(s->owner && s->owner->adjoint) ? s->equations.data[0] : NULL;
    for (int i = 0; eq && i < eq->nlhs; i++)
        if (!eq->lhs[i])
            return NULL;
    return eq ? eq->value : NULL;
}

/* How many expressions are looked at for one condition. */
enum { MAX_LOOKED_AT = 1000 };

static int truth_of(const FExpr *x, int *left);

static bool is_exact_float(double v) { return (double)(float)v == v; }

/* A number that is known when the cell is compiled, if the arithmetic of every type gives it exactly. */
static bool known_number(const FExpr *x, int *left, double *out)
{
    double a[3] = { 0 };
    if (--*left < 0)
        return false;
    if (x->ix || (x->kind == F_NUM && x->is_int)) {
        *out = x->ix ? (double)x->ix->offset->value : x->num;
        return !x->ix || (!x->ix->nterms && x->ix->offset->is_const);
    }
    const FExpr *of = definition_of(x);
    bool whole = x->type == TY_INT;
    if (of && of->type != TY_BOOL && known_number(of, left, out))
        return whole || is_exact_float(*out);
    if (x->kind == F_NUM) {
        *out = x->num;
        return is_exact_float(*out);
    }
    bool division = x->kind == F_IDIV || x->kind == F_IMOD;
    if ((x->kind != F_MAP && !division) || (x->type != TY_INT && x->type != TY_REAL) || x->nargs > 3)
        return false;
    if (x->kind == F_MAP && x->op == OP_SELECT) {
        int taken = truth_of(x->args[0], left);
        return taken >= 0 && known_number(x->args[taken ? 1 : 2], left, out) && (whole || is_exact_float(*out));
    }
    for (int i = 0; i < x->nargs; i++)
        if (!known_number(x->args[i], left, &a[i]) || (!whole && !is_exact_float(a[i])))
            return false;
    Op op = x->kind == F_IDIV ? OP_IDIV : x->kind == F_IMOD ? OP_IMOD : x->op;
    switch (op) {
    case OP_NEG: case OP_ADD: case OP_SUB: case OP_MUL: case OP_DIV: case OP_MIN: case OP_MAX: case OP_ABS: case OP_SIGN:
    case OP_FLOOR: case OP_CEIL: case OP_ROUND: case OP_RELU: case OP_CLAMP: case OP_REMAINDER: case OP_REAL: case OP_STOP:
    case OP_IDIV: case OP_IMOD: break;
    default: return false;
    }
    *out = op_table[op].eval(a);
    return whole ? fabs(*out) <= 0x1p53 : is_exact_float(*out);
}

static int truth_of(const FExpr *x, int *left)
{
    const FExpr *of = definition_of(x);
    double u, v;
    if (--*left < 0 || x->type != TY_BOOL || (!of && x->kind != F_MAP))
        return -1;
    if (of)
        return truth_of(of, left);
    if (x->op == OP_SELECT) {
        int taken = truth_of(x->args[0], left);
        return taken < 0 ? -1 : truth_of(x->args[taken ? 1 : 2], left);
    }
    if (x->op == OP_NOT || x->op == OP_AND || x->op == OP_OR) {
        int a = truth_of(x->args[0], left), decisive = x->op == OP_OR;
        int b = x->op == OP_NOT || a == decisive ? a : truth_of(x->args[1], left);
        if (x->op == OP_NOT)
            return a < 0 ? -1 : !a;
        return a == decisive || b == decisive ? decisive : a < 0 || b < 0 ? -1 : !decisive;
    }
    if (x->op < OP_LT || x->op > OP_NE || !known_number(x->args[0], left, &u) || !known_number(x->args[1], left, &v))
        return -1;
    bool whole = x->args[0]->type == TY_INT && x->args[1]->type == TY_INT;
    if (!whole && !(is_exact_float(u) && is_exact_float(v)))
        return -1;
    return x->op == OP_LT ? u < v : x->op == OP_LE ? u <= v : (u == v) == (x->op == OP_EQ);
}

int decided(const FExpr *condition)
{
    int left = MAX_LOOKED_AT;
    return truth_of(condition, &left);
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

/* A condition that a definition holds is of the definition's indices: what stands for them at a read. */
typedef struct Reading {
    const FExpr *read;            /* of the definition */
    const struct Reading *around; /* that of the definition in which it is read */
} Reading;

/* A comparison's side, in the indices of the place where the condition stands; NULL: it is no index
 * expression. */
static const IxExpr *side(Walk *w, const FExpr *x, const Reading *in)
{
    const IxExpr *e = x->ix;
    for (; in && e; in = in->around) {
        IndexId from[MAX_AXES_OF_VALUE];
        const Equation *eq = in->read->source->equations.data[0];
        for (int i = 0; i < eq->nlhs; i++)
            from[i] = eq->lhs[i]->id;
        e = ix_subst(w->f->m, e, from, in->read->map, eq->nlhs);
    }
    return e;
}

/* left: how many parts are still looked at. What is shared is looked at again, and there are no more than
 * MAX_FACTS facts. */
static void assume_in(Walk *w, const FExpr *x, bool truth, const Reading *in, int *left)
{
    Module *m = w->f->m;
    const FExpr *of = definition_of(x);
    if (--*left < 0 || x->type != TY_BOOL || (!of && x->kind != F_MAP))
        return;
    if (of && x->kind == F_VALUE && x->sym->kind == SYM_SCALAR_ARG) {
        assume_in(w, of, truth, in, left);
        return;
    }
    if (of) {
        Reading inner = { x, in };
        assume_in(w, of, truth, &inner, left);
        return;
    }
    if (x->op == OP_NOT) {
        assume_in(w, x->args[0], !truth, in, left);
        return;
    }
    if (x->op == OP_AND || x->op == OP_OR) {
        bool both = (x->op == OP_AND) == truth;
        for (int i = 0; i < 2; i++)
            if (both || decided(x->args[!i]) == !truth)
                assume_in(w, x->args[i], truth, in, left);
        return;
    }
    const IxExpr *a = x->op >= OP_LT && x->op <= OP_NE ? side(w, x->args[0], in) : NULL;
    const IxExpr *b = a ? side(w, x->args[1], in) : NULL;
    if (!b)
        return;
    const IxExpr *d = ix_sub(m, b, a), *back = ix_scale(m, d, poly_const(m, -1));
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

void assume(Walk *w, const FExpr *condition, bool truth)
{
    int known = decided(condition), left = MAX_LOOKED_AT;
    if (known < 0)
        assume_in(w, condition, truth, NULL, &left);
    else if (known != truth)
        add_fact(w, ix_const(w->f->m, poly_const(w->f->m, -1)));      /* there anything may be read */
}
