/* resolve.c: what each index and each expression of the flat cell means. In comes a Flat with bound names, in order of
 * evaluation; afterwards every index has an extent, every value a shape and a type, every read an index map that is
 * proved to stay inside its array (under the conditions around it, for all dims >= 1) or has a Check that the call makes,
 * and equations with constant indices cover their value. Whatever fails is diagnosed; the pass never stops at the first. */
#include <string.h>

#include "bind.h"

enum { MAX_FACTS = 24, MAX_GUARD_INDICES = 64 };

typedef struct Walk {
    Flat *f;
    Equation *eq;
    const FIndex *guard[MAX_GUARD_INDICES];   /* inferring: indices that stand in a condition around */
    int nguard;
    const IxExpr *fact[MAX_FACTS];            /* checking: what is known to be >= 0 */
    int nfacts;
} Walk;

#define WALK_ERROR(w, x, span, ...) FLAT_ERROR((w)->f, (x)->chain, (span), __VA_ARGS__)

static const char *poly_text(Flat *f, const Poly *p)
{
    Buf b = { .arena = f->c->arena };
    poly_print(f->m, p, &b);
    return b.len ? intern_n(f->c, b.data, b.len) : "0";
}

static const char *source_text(Flat *f, Span s)
{
    if (s.file < 0 || s.hi <= s.lo || s.hi > f->c->sources.data[s.file].len || s.hi - s.lo > 60)
        return "...";
    return intern_n(f->c, f->c->sources.data[s.file].text + s.lo, s.hi - s.lo);
}

static const char *shown(Flat *f, const Symbol *s)
{
    return quoted_name(f, s->name, s->kind == SYM_NEXT);
}


static const Poly *minus_one(Flat *f, const Poly *p)
{
    return poly_sub(f->m, p, poly_const(f->m, 1));
}

static const Poly *negative(Flat *f, const Poly *p)
{
    return poly_mul(f->m, poly_const(f->m, -1), p);
}

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
                   poly_text(f, extent));
    else
        add_check(f, spare, span, intern_f(f->c, "the extent '%s' must be at least 1", source_text(f, span)));
    return !never;
}

/* ---- ranges and shapes ---- */

static void infer(Walk *w, FExpr *x);
static void infer_symbols(Flat *f, SymbolVec *symbols, Walk *around);

static bool is_guarded(const Walk *w, const FIndex *i)
{
    for (int k = 0; k < w->nguard; k++)
        if (w->guard[k] == i)
            return true;
    return false;
}

static void note_origin(Flat *f, const FIndex *i)
{
    if (i->how == FROM_DECLARED)
        FLAT_NOTE(f, i->from, "'%s' runs over this axis", i->name);
    else
        FLAT_NOTE(f, i->from, "'%s' gets its range here", i->name);
}

/* The index stands alone on an axis of that extent. */
static void plain_use(Walk *w, const FExpr *at, FIndex *i, const Poly *extent, const char *array, int axis)
{
    Flat *f = w->f;
    bool guarded = is_guarded(w, i);
    if (i->failed || !extent)
        return;
    if (i->how == FROM_NOTHING || (i->how == FROM_GUARDED_USE && !guarded)) {
        i->extent = extent;
        i->from = at->span;
        i->how = guarded ? FROM_GUARDED_USE : FROM_USE;
        return;
    }
    if (i->extent == extent || i->how == FROM_STATED || guarded)
        return;
    WALK_ERROR(w, at, at->span, "index '%s' runs over %s, but axis %d of %s has extent %s", i->name,
               poly_text(f, i->extent), axis + 1, array, poly_text(f, extent));
    note_origin(f, i);
    i->failed = true;
    w->eq->failed = true;
}

static bool rank_matches(Walk *w, const FExpr *x, const Symbol *s)
{
    Flat *f = w->f;
    if (s->rank == x->nargs && (s->rank == 0 || x->brackets))
        return true;
    w->eq->failed = true;
    const char *name = shown(f, s);
    if (s->rank == 0)
        WALK_ERROR(w, x, x->span, "%s has no axes, but %d ind%s given", name, x->nargs,
                   x->nargs == 1 ? "ex is" : "ices are");
    else if (!x->brackets)
        WALK_ERROR(w, x, x->span, "%s has %d ax%s and stands here without indices: write %s%s[...]", name, s->rank,
                   s->rank == 1 ? "is" : "es", s->name, x->kind == F_CALL ? "(...)" : s->kind == SYM_NEXT ? "'" : "");
    else
        WALK_ERROR(w, x, x->span, "%s has %d ax%s, but %d ind%s given", name, s->rank, s->rank == 1 ? "is" : "es",
                   x->nargs, x->nargs == 1 ? "ex is" : "ices are");
    if (s->kind == SYM_SCALAR_ARG)
        FLAT_NOTE(f, s->scalar->span, "'%s' is this number; arrays are passed by name or as a slice, x[h,:]", s->name);
    else
        FLAT_NOTE(f, s->span, "'%s' is %s here", s->name, s->kind == SYM_DEF ? "defined" : "declared");
    if (s->kind == SYM_SCALAR_ARG || s->kind == SYM_ARRAY_ARG)
        ((Symbol *)(uintptr_t)s)->failed = true;
    return false;
}

static void infer_read(Walk *w, FExpr *x)
{
    Symbol *s = x->sym;
    for (int i = 0; i < x->nargs; i++)
        infer(w, x->args[i]);
    if (s->failed || (s->rank && !s->axes)) {
        w->eq->failed = true;
        return;
    }
    if (!rank_matches(w, x, s))
        return;
    for (int i = 0; i < x->nargs; i++)
        if (x->args[i]->kind == F_INDEX)
            plain_use(w, x->args[i], x->args[i]->index, s->axes[i], shown(w->f, s), i);
}

static void infer_instance(Walk *w, Instance *inst);

static void infer_array_param(Walk *w, Symbol *p)
{
    Flat *f = w->f;
    const CallSite *site = p->owner->site;
    if (p->via)
        infer_instance(w, p->via);
    for (int i = 0; i < p->nfixed; i++)
        if (p->fixed[i])
            infer(w, p->fixed[i]);
    const Symbol *base = p->base;
    p->failed |= base->failed || (base->rank && !base->axes);
    if (!p->failed && p->fixed && p->nfixed != base->rank) {
        FLAT_ERROR(f, site->outer, site->span, "%s has %d ax%s, but %d %s given", shown(f, base), base->rank,
                   base->rank == 1 ? "is" : "es", p->nfixed, p->nfixed == 1 ? "is" : "are");
        FLAT_NOTE(f, base->span, "'%s' is declared here", base->name);
        p->failed = true;
    }
    if (p->failed) {
        w->eq->failed = true;
        return;
    }
    const Poly **axes = arena_alloc(f->c->arena, sizeof *axes * (size_t)(base->rank + 1));
    Span *spans = arena_alloc(f->c->arena, sizeof *spans * (size_t)(base->rank + 1));
    p->rank = 0;
    for (int i = 0; i < base->rank; i++) {
        if (p->fixed && p->fixed[i]) {
            if (p->fixed[i]->kind == F_INDEX)
                plain_use(w, p->fixed[i], p->fixed[i]->index, base->axes[i], shown(f, base), i);
            continue;
        }
        spans[p->rank] = base->axis_spans ? base->axis_spans[i] : base->span;
        axes[p->rank++] = base->axes[i];
    }
    p->axes = axes;
    p->axis_spans = spans;
}

static void infer_instance(Walk *w, Instance *inst)
{
    for (int k = 0; k < inst->nparams; k++)
        if (inst->params[k]->kind == SYM_ARRAY_ARG)
            infer_array_param(w, inst->params[k]);
        else
            infer(w, inst->params[k]->scalar);
    if (!w->eq->failed)
        infer_symbols(w->f, &inst->locals, w);
    w->eq->failed |= inst->result->failed;
}

static void mention(Walk *w, const FExpr *x)
{
    if (x->kind == F_INDEX && w->nguard < MAX_GUARD_INDICES)
        w->guard[w->nguard++] = x->index;
    if (x->kind == F_VALUE && x->sym->kind == SYM_SCALAR_ARG)
        mention(w, x->sym->scalar);
    for (int i = 0; i < x->nargs && (x->kind == F_MAP || x->kind == F_IDIV || x->kind == F_IMOD); i++)
        mention(w, x->args[i]);
}

static void require_range(Walk *w, FIndex *i, const CallSite *chain)
{
    if (i->extent || i->failed)
        return;
    if (!w->eq->failed)
        FLAT_ERROR(w->f, chain, i->span, "the range of index '%s' does not follow from a plain use: state it, '%s:N'",
                   i->name, i->name);
    i->failed = true;
    w->eq->failed = true;
}

static void infer(Walk *w, FExpr *x)
{
    switch (x->kind) {
    case F_ERROR: w->eq->failed = true; return;
    case F_NUM: case F_SIZE: case F_INDEX: case F_STEP: return;
    case F_VALUE:
        infer_read(w, x);
        return;
    case F_CALL:
        infer_instance(w, x->inst);
        infer_read(w, x);
        return;
    case F_MAP: case F_IDIV: case F_IMOD: {
        int before = w->nguard;
        for (int i = 0; i < x->nargs; i++) {
            infer(w, x->args[i]);
            if (x->op == OP_SELECT && x->kind == F_MAP && i == 0)
                mention(w, x->args[0]);
        }
        w->nguard = before;
        return;
    }
    case F_REDUCE:
        infer(w, x->args[0]);
        for (int i = 0; i < x->nbound; i++)
            require_range(w, x->bound[i], x->chain);
        return;
    case F_SOFTMAX:
        infer(w, x->args[0]);
        return;
    }
}

/* ---- the left side ---- */

static void declared_ranges(Walk *w, Equation *eq)
{
    Flat *f = w->f;
    Symbol *t = eq->target;
    if (eq->nlhs != t->rank) {
        FLAT_ERROR(f, eq->chain, eq->stmt->name_span, "%s has %d ax%s, but %d ind%s given", shown(f, t), t->rank,
                   t->rank == 1 ? "is" : "es", eq->nlhs, eq->nlhs == 1 ? "ex is" : "ices are");
        FLAT_NOTE(f, t->span, "'%s' is declared here", t->name);
        eq->failed = true;
        return;
    }
    for (int i = 0; i < eq->nlhs; i++) {
        FIndex *x = eq->lhs[i];
        if (!x)
            continue;
        if (x->how == FROM_STATED && x->extent != t->axes[i]) {
            FLAT_ERROR(f, eq->chain, x->span, "index '%s' runs over %s, but axis %d of %s has extent %s", x->name,
                       poly_text(f, x->extent), i + 1, shown(f, t), poly_text(f, t->axes[i]));
            FLAT_NOTE(f, t->axis_spans[i], "'%s' is declared here", t->name);
            eq->failed = true;
        }
        if (x->how == FROM_STATED)
            continue;
        x->extent = t->axes[i];
        x->from = t->axis_spans[i];
        x->how = FROM_DECLARED;
    }
}

static void shape_from_left_side(Walk *w, Symbol *s)
{
    Flat *f = w->f;
    const Equation *first = s->equations.data[0];
    const Poly **axes = arena_alloc(f->c->arena, sizeof *axes * (size_t)(first->nlhs + 1));
    Span *spans = arena_alloc(f->c->arena, sizeof *spans * (size_t)(first->nlhs + 1));
    s->rank = first->nlhs;
    for (int i = 0; i < s->rank; i++) {
        int64_t top = 0;
        for (int k = 0; k < s->equations.len; k++) {
            const Equation *eq = s->equations.data[k];
            if (eq->nlhs == s->rank && !eq->lhs[i] && eq->constant[i] > top)
                top = eq->constant[i];
        }
        axes[i] = first->lhs[i] ? first->lhs[i]->extent : poly_const(f->m, top + 1);
        spans[i] = first->lhs[i] ? first->lhs[i]->span : first->stmt->name_span;
    }
    s->axes = axes;
    s->axis_spans = spans;
}

static bool pieces_agree(Flat *f, Symbol *s, const Equation *eq)
{
    const Equation *first = s->equations.data[0];
    if (eq->nlhs != first->nlhs) {
        FLAT_ERROR(f, eq->chain, eq->stmt->name_span, "%s has %d ax%s, but %d ind%s given", shown(f, s), first->nlhs,
                   first->nlhs == 1 ? "is" : "es", eq->nlhs, eq->nlhs == 1 ? "ex is" : "ices are");
        FLAT_NOTE(f, first->stmt->name_span, "another part of '%s' is here", s->name);
        return false;
    }
    for (int i = 0; i < eq->nlhs; i++) {
        if (!eq->lhs[i] != !first->lhs[i]) {
            FLAT_ERROR(f, eq->chain, eq->stmt->name_span, "all parts of %s must have their constant indices on the same "
                       "axes", shown(f, s));
            FLAT_NOTE(f, first->stmt->name_span, "another part of '%s' is here", s->name);
            return false;
        }
        if (eq->lhs[i] && eq->lhs[i]->extent != first->lhs[i]->extent) {
            FLAT_ERROR(f, eq->chain, eq->lhs[i]->span, "index '%s' runs over %s, but in another part of %s this axis has "
                       "extent %s", eq->lhs[i]->name, poly_text(f, eq->lhs[i]->extent), shown(f, s),
                       poly_text(f, first->lhs[i]->extent));
            FLAT_NOTE(f, first->lhs[i]->span, "the other part is here");
            return false;
        }
    }
    return true;
}

/* The constants of a part as one number; -1 when one is outside of its axis. */
static int64_t place_of(const Symbol *s, const Equation *eq)
{
    int64_t place = 0;
    for (int i = 0; i < eq->nlhs; i++) {
        if (eq->lhs[i])
            continue;
        if (eq->constant[i] >= s->axes[i]->value)
            return -1;
        place = place * s->axes[i]->value + eq->constant[i];
    }
    return place;
}

static const char *place_text(Flat *f, const Symbol *s, const Equation *like, int64_t place)
{
    Buf b = { .arena = f->c->arena };
    int64_t at[MAX_AXES_OF_VALUE];
    for (int i = like->nlhs - 1; i >= 0; i--)
        if (!like->lhs[i]) {
            at[i] = place % s->axes[i]->value;
            place /= s->axes[i]->value;
        }
    buf_f(&b, "%s%s[", s->name, s->kind == SYM_NEXT ? "'" : "");
    for (int i = 0; i < like->nlhs; i++)
        if (like->lhs[i])
            buf_f(&b, "%s%s", i ? "," : "", like->lhs[i]->name);
        else
            buf_f(&b, "%s%lld", i ? "," : "", (long long)at[i]);
    buf_f(&b, "]");
    return b.data;
}

/* Equations with constant indices: each place once, all places. */
static bool covers(Flat *f, Symbol *s)
{
    enum { MAX_PLACES = 4096 };
    const Equation *first = s->equations.data[0];
    int64_t places = 1;
    for (int i = 0; i < first->nlhs; i++) {
        if (first->lhs[i])
            continue;
        if (!s->axes[i]->is_const || s->axes[i]->value > MAX_PLACES || places * s->axes[i]->value > MAX_PLACES) {
            FLAT_ERROR(f, first->chain, first->stmt->name_span, s->axes[i]->is_const ? "%s has too many places for constant "
                       "indices on the left" : "constant indices on the left of %s need an axis whose extent is known "
                       "while compiling", shown(f, s));
            FLAT_NOTE(f, s->axis_spans[i], "the extent of axis %d is %s", i + 1, poly_text(f, s->axes[i]));
            return false;
        }
        places *= s->axes[i]->value;
    }
    const Equation **seen = arena_alloc(f->c->arena, sizeof *seen * (size_t)places);
    for (int k = 0; k < s->equations.len; k++) {
        const Equation *eq = s->equations.data[k];
        int64_t at = place_of(s, eq);
        if (at < 0) {
            FLAT_ERROR(f, eq->chain, eq->stmt->name_span, "a constant index of %s is outside of its axis", shown(f, s));
            return false;
        }
        if (seen[at]) {
            FLAT_ERROR(f, eq->chain, eq->stmt->name_span, "%s is defined twice", place_text(f, s, eq, at));
            FLAT_NOTE(f, seen[at]->stmt->name_span, "the first definition is here");
            return false;
        }
        seen[at] = eq;
    }
    for (int64_t at = 0; at < places; at++)
        if (!seen[at]) {
            FLAT_ERROR(f, first->chain, first->stmt->name_span, "%s gets no value", place_text(f, s, first, at));
            return false;
        }
    return true;
}

static void infer_equation(Walk *w, Equation *eq)
{
    Symbol *t = eq->target;
    w->eq = eq;
    eq->failed |= t->failed;
    if (!eq->failed && t->declared)
        declared_ranges(w, eq);
    if (eq->value && !eq->failed)
        infer(w, eq->value);
    for (int i = 0; i < eq->nlhs && !eq->failed; i++)
        if (eq->lhs[i])
            require_range(w, eq->lhs[i], eq->chain);
}

static void infer_symbol(Walk *w, Symbol *s)
{
    Equation *around = w->eq;
    for (int k = 0; k < s->equations.len; k++) {
        infer_equation(w, s->equations.data[k]);
        s->failed |= s->equations.data[k]->failed;
    }
    w->eq = around;
    if (s->failed || !s->equations.len)
        return;
    for (int k = 1; k < s->equations.len && !s->failed; k++)
        s->failed = !pieces_agree(w->f, s, s->equations.data[k]);
    if (s->failed)
        return;
    if (!s->declared)
        shape_from_left_side(w, s);
    s->failed = !covers(w->f, s);
}

static void infer_symbols(Flat *f, SymbolVec *symbols, Walk *around)
{
    Walk top = { .f = f }, *w = around ? around : &top;
    for (int i = 0; i < symbols->len; i++)
        infer_symbol(w, symbols->data[i]);
}

/* ---- ids of indices ---- */

typedef struct IdList { Vec(IndexId) ids; } IdList;

/* One id per name and extent, but never that of an index around this one, in callers as well. */
static void give_id(Flat *f, FIndex *i)
{
    IdList *list = map_get(&f->index_ids, i->name);
    if (i->id >= 0)
        return;
    if (!list) {
        list = arena_alloc(f->c->arena, sizeof *list);
        map_put(f->c->arena, &f->index_ids, i->name, list);
    }
    for (int k = 0; k < list->ids.len && i->id < 0; k++) {
        IndexId id = list->ids.data[k];
        bool taken = f->m->indices.data[id].extent != i->extent;
        for (const FIndex *o = i->outer; o && !taken; o = o->outer)
            taken = o->id == id;
        if (!taken)
            i->id = id;
    }
    if (i->id < 0) {
        i->id = module_index(f->m, i->name, i->extent);
        vec_push(f->c->arena, &list->ids, i->id);
    }
}

/* ---- proofs ---- */

static bool share_atom(const IxExpr *a, const IxExpr *b, const Poly **ca, const Poly **cb)
{
    for (int i = 0; i < a->nterms; i++)
        for (int k = 0; k < b->nterms; k++) {
            const IxTerm *x = &a->terms[i], *y = &b->terms[k];
            bool same = x->kind == y->kind && (x->kind == IA_INDEX ? x->index == y->index : x->arg == y->arg && x->by == y->by);
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

/* e >= 0 for all values of its indices, given the facts. */
static bool proved(const Walk *w, const IxExpr *e, int from, int depth)
{
    const Poly *lo, *hi;
    if (ix_range(w->f->m, e, &lo, &hi) && poly_nonneg(lo))
        return true;
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
    const Poly *minus = poly_const(f->m, 0), *one = poly_const(f->m, 1);
    for (int i = 0; i < p->nterms; i++)
        if (p->terms[i].coef < 0) {
            const Poly *term = poly_const(f->m, -p->terms[i].coef);
            for (int k = 0; k < p->terms[i].natoms; k++) {
                PolyTerm atom = { .coef = 1, .natoms = 1, .atoms = &p->terms[i].atoms[k] };
                Poly single = { .nterms = 1, .terms = &atom };
                term = poly_mul(f->m, term, poly_mul(f->m, one, &single));
            }
            minus = poly_add(f->m, minus, term);
        }
    return intern_f(f->c, "%s <= %s", poly_text(f, minus), poly_text(f, poly_add(f->m, p, minus)));
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

typedef struct Reach { Flat *f; const FExpr *arg; const Symbol *array; int axis; } Reach;

static void report_bound(const Walk *w, const Reach *r, const IxExpr *ix, bool above)
{
    Flat *f = w->f;
    const Poly *lo, *hi;
    const char *text = source_text(f, r->arg->span), *array = shown(f, r->array);
    const char *extent = poly_text(f, r->array->axes[r->axis]);
    bool known = ix_range(f->m, ix, &lo, &hi);
    if (known && !above)
        WALK_ERROR(w, r->arg, r->arg->span, "index '%s' of %s reaches %s, below 0", text, array, poly_text(f, lo));
    else if (known)
        WALK_ERROR(w, r->arg, r->arg->span, "index '%s' reaches %s, but axis %d of %s ends at %s", text,
                   poly_text(f, hi), r->axis + 1, array, poly_text(f, minus_one(f, r->array->axes[r->axis])));
    else
        WALK_ERROR(w, r->arg, r->arg->span, "it cannot be proved that index '%s' of %s %s", text, array,
                   above ? "stays below its extent" : "is never below 0");
    if (r->array->axis_spans)
        FLAT_NOTE(f, r->array->axis_spans[r->axis], "axis %d of %s has extent %s", r->axis + 1, array, extent);
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
    add_check(f, check, r->arg->span, intern_f(f->c, "index '%s' of %s %s only if %s", source_text(f, r->arg->span),
              shown(f, r->array), above ? "stays inside its axis" : "is never below 0", comparison_text(f, check)));
}

static void require_inside(const Walk *w, const FExpr *arg, const IxExpr *ix, const Symbol *array, int axis)
{
    Flat *f = w->f;
    Reach r = { f, arg, array, axis };
    int errors = f->c->errors;
    require_bound(w, &r, ix, ix, false);
    if (f->c->errors == errors)
        require_bound(w, &r, ix, ix_sub(f->m, ix_const(f->m, minus_one(f, array->axes[axis])), ix), true);
}

/* ---- conditions ---- */

static void add_fact(Walk *w, const IxExpr *nonneg)
{
    if (w->nfacts < MAX_FACTS && nonneg->nterms)
        w->fact[w->nfacts++] = nonneg;
}

/* a != b says something where b is the least or the greatest value of a. */
static void differs(Walk *w, const IxExpr *d)
{
    Module *m = w->f->m;
    const Poly *lo, *hi;
    const IxExpr *one = ix_const(m, poly_const(m, 1));
    if (!ix_range(m, d, &lo, &hi))
        return;
    if (poly_nonneg(lo))
        add_fact(w, ix_sub(m, d, one));
    if (poly_nonneg(negative(w->f, hi)))
        add_fact(w, ix_sub(m, ix_scale(m, d, poly_const(m, -1)), one));
}

static void assume(Walk *w, const FExpr *x, bool truth)
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

/* ---- types, maps and bounds ---- */

static void check(Walk *w, FExpr *x);
static void check_symbol(Walk *w, Symbol *s);

static bool ix_is_small(const IxExpr *e)
{
    bool ok = e->nterms <= 64 && poly_is_small(e->offset);
    for (int i = 0; i < e->nterms && ok; i++)
        ok = poly_is_small(e->terms[i].coef);
    return ok;
}

static void set_ix(Walk *w, FExpr *x, const IxExpr *ix)
{
    if (ix && !ix_is_small(ix)) {
        WALK_ERROR(w, x, x->span, "this index expression has too many terms or too large numbers");
        w->eq->failed = true;
        ix = NULL;
    }
    x->ix = ix;
}

static void need_number(Walk *w, const FExpr *x, const char *by)
{
    if (x->type != TY_BOOL || x->kind == F_ERROR)
        return;
    WALK_ERROR(w, x, x->span, "%s needs a number, but this is a condition; write '... ? 1 : 0' to count with it", by);
    w->eq->failed = true;
}

static void need_condition(Walk *w, const FExpr *x, const char *by)
{
    if (x->type == TY_BOOL || x->kind == F_ERROR)
        return;
    WALK_ERROR(w, x, x->span, "%s needs a condition, but this is a number; compare it, as in '... != 0'", by);
    w->eq->failed = true;
}

static bool reads_a_value(const FExpr *x)
{
    if ((x->kind == F_VALUE && x->sym->kind != SYM_SCALAR_ARG) || x->kind == F_CALL || x->kind == F_REDUCE)
        return true;
    if (x->kind == F_VALUE)
        return reads_a_value(x->sym->scalar);
    for (int i = 0; i < x->nargs; i++)
        if (reads_a_value(x->args[i]))
            return true;
    return false;
}

static const IxExpr *as_index(Walk *w, FExpr *x)
{
    check(w, x);
    if (x->ix || w->eq->failed)
        return x->ix;
    if (reads_a_value(x))
        WALK_ERROR(w, x, x->span, "a value as an index is not supported yet");
    else
        WALK_ERROR(w, x, x->span, "an index must be a whole number that is affine in the indices, such as '2*i + 1' or "
                   "'(i + 1) %% N'");
    w->eq->failed = true;
    return NULL;
}

static const IxExpr **check_args(Walk *w, FExpr *x, const Symbol *array)
{
    const IxExpr **ix = arena_alloc(w->f->c->arena, sizeof *ix * (size_t)(x->nargs + 1));
    for (int i = 0; i < x->nargs; i++) {
        ix[i] = as_index(w, x->args[i]);
        if (!ix[i])
            return NULL;
        require_inside(w, x->args[i], ix[i], array, i);
    }
    return ix;
}

/* Follows arguments of calls to the array that is read, completing the map with the axes that the call fixed. */
static void follow(Walk *w, FExpr *x, const IxExpr **ix)
{
    Symbol *s = x->sym;
    while (s->kind == SYM_ARRAY_ARG) {
        const Symbol *base = s->base;
        const IxExpr **full = arena_alloc(w->f->c->arena, sizeof *full * (size_t)(base->rank + 1));
        int open = 0;
        for (int i = 0; i < base->rank; i++)
            full[i] = s->fixed && s->fixed[i] ? s->fixed_ix[i] : ix[open++];
        ix = full;
        s = s->base;
    }
    x->source = s;
    x->map = ix;
    x->nmap = s->rank;
    x->type = s->kind == SYM_DEF || s->kind == SYM_OUTPUT || s->kind == SYM_NEXT ? s->type : TY_REAL;
    if (x->type == TY_INT)
        x->type = TY_REAL;
}

static void check_array_param(Walk *w, Symbol *p)
{
    p->fixed_ix = arena_alloc(w->f->c->arena, sizeof *p->fixed_ix * (size_t)(p->nfixed + 1));
    for (int i = 0; i < p->nfixed; i++)
        if (p->fixed[i]) {
            p->fixed_ix[i] = as_index(w, p->fixed[i]);
            if (p->fixed_ix[i])
                require_inside(w, p->fixed[i], p->fixed_ix[i], p->base, i);
        }
}

static void check_instance(Walk *w, Instance *inst)
{
    for (int k = 0; k < inst->nparams; k++) {
        Symbol *p = inst->params[k];
        if (p->via)
            check_instance(w, p->via);
        if (p->kind == SYM_ARRAY_ARG)
            check_array_param(w, p);
        else
            check(w, p->scalar);
    }
    for (int i = 0; i < inst->locals.len && !w->eq->failed; i++) {
        check_symbol(w, inst->locals.data[i]);
        w->eq->failed |= inst->locals.data[i]->failed;
    }
}

static void check_read(Walk *w, FExpr *x)
{
    if (x->kind == F_VALUE && x->sym->kind == SYM_SCALAR_ARG) {
        x->type = x->sym->scalar->type;
        x->ix = x->sym->scalar->ix;
        return;
    }
    if (x->kind == F_CALL)
        check_instance(w, x->inst);
    if (w->eq->failed)
        return;
    const IxExpr **ix = check_args(w, x, x->sym);
    if (ix)
        follow(w, x, ix);
}

static void check_whole(Walk *w, FExpr *x)
{
    Flat *f = w->f;
    const char *op = x->op_text ? x->op_text : x->kind == F_IDIV ? "/" : "%";
    const IxExpr *ix[2];
    x->type = TY_INT;
    for (int i = 0; i < 2; i++) {
        check(w, x->args[i]);
        if (x->args[i]->type != TY_INT && !w->eq->failed) {
            WALK_ERROR(w, x->args[i], x->args[i]->span, "'%s' here needs whole numbers, but this is %s", op,
                       x->args[i]->type == TY_BOOL ? "a condition" : "a real number");
            w->eq->failed = true;
        }
        ix[i] = w->eq->failed ? NULL : as_index(w, x->args[i]);
        if (!ix[i])
            return;
    }
    const Poly *by = ix[1]->offset;
    if (ix[1]->nterms || (by->is_const && by->value < 1)) {
        WALK_ERROR(w, x->args[1], x->args[1]->span, ix[1]->nterms ? "'%s' divides by a size or a constant, not by an index"
                   : "'%s' divides by a number that is not positive", op);
        w->eq->failed = true;
        return;
    }
    require_positive(f, by, x->args[1]->span, x->chain);
    set_ix(w, x, x->kind == F_IDIV ? ix_div(f->m, ix[0], by) : ix_mod(f->m, ix[0], by));
}

static const char *operand_of(Flat *f, const FExpr *x)
{
    return intern_f(f->c, "'%s'", x->op_text ? x->op_text : "this operation");
}

static void check_arithmetic(Walk *w, FExpr *x)
{
    Module *m = w->f->m;
    const char *by = operand_of(w->f, x);
    bool whole = true;
    for (int i = 0; i < x->nargs; i++) {
        check(w, x->args[i]);
        need_number(w, x->args[i], by);
        whole &= x->args[i]->type == TY_INT;
    }
    const IxExpr *a = x->args[0]->ix, *b = x->nargs > 1 ? x->args[1]->ix : NULL;
    bool ring = x->op == OP_ADD || x->op == OP_SUB || x->op == OP_MUL || x->op == OP_NEG;
    x->type = whole && (ring || x->op == OP_MIN || x->op == OP_MAX) ? TY_INT : TY_REAL;
    if (!whole || !ring || !a || (x->nargs > 1 && !b))
        return;
    if (x->op == OP_ADD)
        set_ix(w, x, ix_add(m, a, b));
    else if (x->op == OP_SUB)
        set_ix(w, x, ix_sub(m, a, b));
    else if (x->op == OP_NEG)
        set_ix(w, x, ix_scale(m, a, poly_const(m, -1)));
    else if (!a->nterms)
        set_ix(w, x, ix_scale(m, b, a->offset));
    else if (!b->nterms)
        set_ix(w, x, ix_scale(m, a, b->offset));
}

static void check_choice(Walk *w, FExpr *x)
{
    int before = w->nfacts;
    check(w, x->args[0]);
    need_condition(w, x->args[0], "'?:'");
    for (int i = 1; i < 3; i++) {
        assume(w, x->args[0], i == 1);
        check(w, x->args[i]);
        w->nfacts = before;
    }
    NodeType a = x->args[1]->type, b = x->args[2]->type;
    if ((a == TY_BOOL) != (b == TY_BOOL) && !w->eq->failed) {
        WALK_ERROR(w, x, x->span, "one branch of '?:' is a condition, the other a number");
        w->eq->failed = true;
    }
    x->type = a == TY_BOOL ? TY_BOOL : a == TY_INT && b == TY_INT ? TY_INT : TY_REAL;
}

static void check_map(Walk *w, FExpr *x)
{
    const char *by = operand_of(w->f, x);
    switch (x->op) {
    case OP_SELECT:
        check_choice(w, x);
        return;
    case OP_LT: case OP_LE: case OP_EQ: case OP_NE:
        for (int i = 0; i < 2; i++) {
            check(w, x->args[i]);
            need_number(w, x->args[i], by);
        }
        x->type = TY_BOOL;
        return;
    case OP_AND: case OP_OR: case OP_NOT:
        for (int i = 0; i < x->nargs; i++) {
            check(w, x->args[i]);
            need_condition(w, x->args[i], by);
        }
        x->type = TY_BOOL;
        return;
    default:
        check_arithmetic(w, x);
        return;
    }
}

/* Inside a softmax its indices run over their whole range again: what a condition around says of them is void. */
static void check_softmax(Walk *w, FExpr *x)
{
    const IxExpr *kept[MAX_FACTS];
    int before = w->nfacts;
    memcpy(kept, w->fact, sizeof kept);
    w->nfacts = 0;
    for (int i = 0; i < before; i++) {
        bool about = false;
        for (int k = 0; k < x->nbound; k++)
            about |= ix_uses(kept[i], x->bound[k]->id);
        if (!about)
            w->fact[w->nfacts++] = kept[i];
    }
    check(w, x->args[0]);
    memcpy(w->fact, kept, sizeof kept);
    w->nfacts = before;
    need_number(w, x->args[0], "softmax");
    x->type = TY_REAL;
}

static void check(Walk *w, FExpr *x)
{
    Module *m = w->f->m;
    x->type = TY_REAL;
    switch (x->kind) {
    case F_ERROR: w->eq->failed = true; return;
    case F_NUM:
        if (x->is_int && x->num <= 1 << 28 && x->num >= -(1 << 28))
            x->ix = ix_const(m, poly_const(m, (int64_t)x->num));
        x->type = x->is_int ? TY_INT : TY_REAL;
        return;
    case F_SIZE:
        x->ix = ix_const(m, x->size);
        x->type = TY_INT;
        return;
    case F_INDEX:
        x->ix = ix_index(m, x->index->id);
        x->type = TY_INT;
        return;
    case F_STEP:
        x->ix = ix_index(m, IX_TIME);
        x->type = TY_INT;
        return;
    case F_VALUE: case F_CALL: check_read(w, x); return;
    case F_MAP: check_map(w, x); return;
    case F_IDIV: case F_IMOD: check_whole(w, x); return;
    case F_REDUCE:
        for (int i = 0; i < x->nbound; i++)
            give_id(w->f, x->bound[i]);
        check(w, x->args[0]);
        need_number(w, x->args[0], "a reduction");
        x->type = TY_REAL;
        return;
    case F_SOFTMAX: check_softmax(w, x); return;
    }
}

static void check_symbol(Walk *w, Symbol *s)
{
    Equation *around = w->eq;
    s->type = TY_REAL;
    for (int k = 0; k < s->equations.len && !s->failed; k++) {
        Equation *eq = s->equations.data[k];
        w->eq = eq;
        for (int i = 0; i < eq->nlhs; i++)
            if (eq->lhs[i])
                give_id(w->f, eq->lhs[i]);
        check(w, eq->value);
        if (k && (eq->value->type == TY_BOOL) != (s->type == TY_BOOL) && !eq->failed) {
            WALK_ERROR(w, eq->value, eq->value->span, "this part of %s is a %s, but the first is not", shown(w->f, s),
                       eq->value->type == TY_BOOL ? "condition" : "number");
            eq->failed = true;
        }
        s->type = eq->value->type;
        if (s->declared)
            need_number(w, eq->value, shown(w->f, s));
        s->failed |= eq->failed;
    }
    w->eq = around;
}

bool resolve(Compiler *c, Flat *f)
{
    Walk w = { .f = f };
    infer_symbols(f, &f->symbols, NULL);
    for (int i = 0; i < f->symbols.len; i++)
        if (!f->symbols.data[i]->failed)
            check_symbol(&w, f->symbols.data[i]);
    return c->errors == 0;
}
