/* ranges.c: the range of each index and the shape of each value. In comes a Flat with bound names, in order
 * of evaluation; afterwards every index has an extent, every value a shape, and equations with constant
 * indices cover their value. The range of an index comes from the left side, from what is stated, or from the
 * axes that it indexes plainly in its own equation; where two of these differ both places are shown. */
#include <string.h>

#include "resolve.h"

static void infer(Walk *w, FExpr *x);
void infer_symbols(Flat *f, SymbolVec *symbols, Walk *around);

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

/* The read with two of its indices exchanged, when all are plain ones. */
static const char *exchanged_read(Flat *f, const FExpr *x, const Symbol *s, int a, int b)
{
    const char *text = intern_f(f->c, "%s%s[", s->name, s->kind == SYM_NEXT ? "'" : "");
    for (int i = 0; i < x->nargs; i++) {
        const FExpr *arg = x->args[i == a ? b : i == b ? a : i];
        if (arg->kind != F_INDEX)
            return intern_f(f->c, "'%s' and '%s' in place of each other", x->args[a]->index->name, x->args[b]->index->name);
        text = intern_f(f->c, "%s%s%s", text, i ? "," : "", arg->index->name);
    }
    return intern_f(f->c, "%s]", text);
}

/* What the read that gave the index its range would be with its axes exchanged, where that gives the extent
 * and fits the other index; else NULL. */
static const char *exchange_for(Flat *f, const FIndex *i, const Poly *extent)
{
    const FExpr *x = i->read;
    for (int m = 0; x && m < x->nargs; m++) {
        const FIndex *j = x->args[m]->kind == F_INDEX ? x->args[m]->index : NULL;
        if (j && m != i->axis && x->sym->axes[m] == extent && (!j->extent || j->extent == i->extent))
            return exchanged_read(f, x, x->sym, i->axis, m);
    }
    return NULL;
}

/* The index stands alone on an axis of that extent, in `read`, or in a slice. */
static void plain_use(Walk *w, const FExpr *at, FIndex *i, const Poly *extent, const char *array, int axis,
                      const FExpr *read)
{
    Flat *f = w->f;
    bool guarded = is_guarded(w, i);
    if (i->failed || !extent)
        return;
    if (i->how == FROM_NOTHING || (i->how == FROM_GUARDED_USE && !guarded)) {
        i->extent = extent;
        i->from = at->span;
        i->how = guarded ? FROM_GUARDED_USE : FROM_USE;
        i->read = read;
        i->axis = axis;
        return;
    }
    if (i->extent == extent || i->how == FROM_STATED || guarded)
        return;
    WALK_ERROR(w, at, at->span, "index '%s' runs over %s, but axis %d of %s has extent %s", i->name,
               poly_shown(f, i->extent), axis + 1, array, poly_shown(f, extent));
    const char *meant = exchange_for(f, i, extent);
    if (meant)
        FLAT_NOTE(f, i->from, "'%s' gets its range here, where the axes of %s look exchanged: write %s", i->name,
                  shown(f, i->read->sym), meant);
    else
        note_origin(f, i);
    if (!meant && (i->how == FROM_DECLARED || i->how == FROM_USE))
        FLAT_NOTE(f, i->span, "if only the first %s places are meant, state the range: '%s:%s'",
                  poly_shown(f, i->extent), i->name, poly_shown(f, i->extent));
    i->failed = true;
    w->eq->failed = true;
}

bool has_step(const FExpr *x)
{
    for (int i = 0; i < x->nargs; i++)
        if (has_step(x->args[i]))
            return true;
    return x->kind == F_STEP;
}

/* x[t - 1, d]: the step is no index. */
static const char *step_among(const FExpr *x, const Symbol *s)
{
    bool step = x->nargs == s->rank + 1 && (has_step(x->args[0]) || has_step(x->args[x->nargs - 1]));
    return !step                                            ? ""
           : s->kind == SYM_STATE || s->kind == SYM_NEXT
               ? ": the step is no index, and a state is the one before the step"
               : ": the step is no index, it stands behind ';', as in x[i; t - 1]";
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
        WALK_ERROR(w, x, x->span, "%s has %d ax%s and stands here without indices: write %s%s%s[%s]", name,
                   s->rank, s->rank == 1 ? "is" : "es",
                   x->kind == F_CALL && x->inst->picked ? intern_f(f->c, "%s(...).", x->inst->fn->name) : "",
                   s->name,
                   x->kind == F_CALL     ? x->inst->picked ? "" : "(...)"
                   : s->kind == SYM_NEXT ? "'"
                                         : "",
                   index_letters(f, s->rank));
    else
        WALK_ERROR(w, x, x->span, "%s has %d ax%s, but %d ind%s given%s", name, s->rank,
                   s->rank == 1 ? "is" : "es", x->nargs, x->nargs == 1 ? "ex is" : "ices are", step_among(x, s));
    if (s->kind == SYM_SCALAR_ARG)
        FLAT_NOTE(f, s->scalar->span, "'%s' is this number; arrays are passed by name or as a slice, x[h,:]",
                  s->name);
    else
        FLAT_NOTE(f, s->span, "'%s' is %s here", s->name, s->kind == SYM_DEF ? "defined" : "declared");
    if (s->kind == SYM_SCALAR_ARG || s->kind == SYM_ARRAY_ARG)
        ((Symbol *)(uintptr_t)s)->failed = true;
    return false;
}

/* W[d,i] where W has the axes of i and d: an index does not fit its axis, but another one's, whose own index would fit here. */
static bool exchanged(Walk *w, const FExpr *x, const Symbol *s)
{
    for (int k = 0; k < x->nargs; k++) {
        FIndex *i = x->args[k]->kind == F_INDEX ? x->args[k]->index : NULL;
        if (!i || i->failed || i->how == FROM_NOTHING || i->how == FROM_STATED || i->how == FROM_GUARDED_USE || is_guarded(w, i) ||
            i->extent == s->axes[k])
            continue;
        for (int m = 0; m < x->nargs; m++) {
            FIndex *j = x->args[m]->kind == F_INDEX ? x->args[m]->index : NULL;
            if (m == k || !j || s->axes[m] != i->extent || !(j->how == FROM_NOTHING || j->extent == s->axes[k]))
                continue;
            WALK_ERROR(w, x->args[k], x->args[k]->span, "index '%s' runs over %s, but axis %d of %s has extent %s: its axes look "
                       "exchanged, write %s", i->name, poly_shown(w->f, i->extent), k + 1, shown(w->f, s),
                       poly_shown(w->f, s->axes[k]), exchanged_read(w->f, x, s, k, m));
            note_origin(w->f, i);
            i->failed = w->eq->failed = true;
            if (j->how == FROM_NOTHING) {           /* as it was meant, so that nothing more is said of it */
                j->extent = s->axes[k];
                j->from = x->args[m]->span;
                j->how = FROM_USE;
            }
            return true;
        }
    }
    return false;
}

/* The same where both ranges are stated: it may be meant, of a square array, as the call then checks. */
static void warn_of_exchange(const Walk *w, const FExpr *x, const Symbol *s)
{
    for (int k = 0; k < x->nargs; k++)
        for (int m = k + 1; m < x->nargs; m++) {
            const FIndex *i = x->args[k]->kind == F_INDEX ? x->args[k]->index : NULL;
            const FIndex *j = x->args[m]->kind == F_INDEX ? x->args[m]->index : NULL;
            if (!i || !j || i->how != FROM_STATED || j->how != FROM_STATED || i->extent == j->extent ||
                i->extent != s->axes[m] || j->extent != s->axes[k] || is_guarded(w, i) || is_guarded(w, j))
                continue;
            diag(w->f->c, DIAG_WARNING, x->span,
                 "the axes of %s look exchanged: index '%s' runs over %s and axis %d has extent %s; write %s", shown(w->f, s), i->name, poly_shown(w->f, i->extent), k + 1,
                 poly_shown(w->f, s->axes[k]), exchanged_read(w->f, x, s, k, m));
            return;
        }
}

static void infer_read(Walk *w, FExpr *x)
{
    Symbol *s = x->sym;
    for (int i = 0; i < x->nargs; i++)
        infer(w, x->args[i]);
    if (x->time)
        infer(w, x->time);
    if (s->failed || (s->rank && !s->axes)) {
        w->eq->failed = true;
        return;
    }
    if (!rank_matches(w, x, s) || exchanged(w, x, s))
        return;
    warn_of_exchange(w, x, s);
    for (int i = 0; i < x->nargs; i++)
        if (x->args[i]->kind == F_INDEX)
            plain_use(w, x->args[i], x->args[i]->index, s->axes[i], shown(w->f, s), i, x);
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
                plain_use(w, p->fixed[i], p->fixed[i]->index, base->axes[i], shown(f, base), i, NULL);
            continue;
        }
        spans[p->rank] = base->axis_spans ? base->axis_spans[i] : base->span;
        axes[p->rank++] = base->axes[i];
    }
    p->axes = axes;
    p->axis_spans = spans;
}

/* The cotangent has the axes of the result, and what a parameter gets those of the parameter. */
static void infer_adjoint(Walk *w, Instance *of)
{
    Instance *inst = of->adjoint;
    Symbol *g = inst->cotangent;
    g->rank = of->result->rank;
    g->axes = of->result->axes;
    g->axis_spans = of->result->axis_spans;
    for (int k = 0; k < of->nparams; k++) {
        Symbol *d = inst->d_param[k];
        d->declared = true;
        d->span = of->params[k]->span;
        d->rank = of->params[k]->rank;
        d->axes = of->params[k]->axes;
        d->axis_spans = of->params[k]->axis_spans;
    }
    infer_symbols(w->f, &inst->locals, w);
    for (int i = 0; i < inst->locals.len; i++)
        w->eq->failed |= inst->locals.data[i]->failed;
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
    if (inst->adjoint && !w->eq->failed)
        infer_adjoint(w, inst);
}

static void mention(Walk *w, const FExpr *x)
{
    if (x->kind == F_INDEX && w->nguard < MAX_GUARD_INDICES)
        w->guard[w->nguard++] = x->index;
    if (x->kind == F_VALUE && x->sym->kind == SYM_SCALAR_ARG)
        mention(w, x->sym->scalar);
    bool operation = x->kind == F_MAP || x->kind == F_COMPLEX || x->kind == F_IDIV || x->kind == F_IMOD;
    for (int i = 0; i < x->nargs && operation; i++)
        mention(w, x->args[i]);
}

/* An extent that the spec has, for what a message says to write. */
static const char *some_extent(const Flat *f)
{
    return f->m->dims.len ? f->m->dims.data[0] : f->m->bound.len ? f->m->bound.data[0].name : "4";
}

static void require_range(Walk *w, FIndex *i, const CallSite *chain)
{
    if (i->extent || i->failed)
        return;
    if (!w->eq->failed)
        FLAT_ERROR(w->f, chain, i->span,
                   "the range of index '%s' does not follow from a plain use: state it, as in '%s:%s'", i->name,
                   i->name, some_extent(w->f));
    i->failed = true;
    w->eq->failed = true;
}

static void infer(Walk *w, FExpr *x)
{
    switch (x->kind) {
    case F_ERROR: w->eq->failed = true; return;
    case F_NUM:
    case F_SIZE:
    case F_INDEX:
    case F_STEP: return;
    case F_VALUE: infer_read(w, x); return;
    case F_CALL:
        infer_instance(w, x->inst);
        infer_read(w, x);
        return;
    case F_MAP:
    case F_COMPLEX:
    case F_IDIV:
    case F_IMOD: {
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
    case F_SOFTMAX: infer(w, x->args[0]); return;
    case F_GRAD:
        for (int i = 0; i < x->nargs; i++)
            infer(w, x->args[i]);
        for (int i = 0; i < x->nbound; i++)
            require_range(w, x->bound[i], x->chain);
        return;
    }
}

/* ---- the left side ---- */

static void declared_ranges(Walk *w, Equation *eq)
{
    Flat *f = w->f;
    Symbol *t = eq->target;
    if (eq->nlhs != t->rank) {
        if (eq->nlhs == 0)
            FLAT_ERROR(f, eq->chain, eq->stmt->name_span,
                       "%s has %d ax%s and stands here without indices: write %s%s[%s] = ...", shown(f, t), t->rank,
                       t->rank == 1 ? "is" : "es", t->name, t->kind == SYM_NEXT ? "'" : "", index_letters(f, t->rank));
        else
            FLAT_ERROR(f, eq->chain, eq->stmt->name_span, "%s has %d ax%s, but %d ind%s given", shown(f, t),
                       t->rank, t->rank == 1 ? "is" : "es", eq->nlhs, eq->nlhs == 1 ? "ex is" : "ices are");
        FLAT_NOTE(f, t->span, "'%s' is declared here", t->name);
        eq->failed = true;
        return;
    }
    for (int i = 0; i < eq->nlhs; i++) {
        FIndex *x = eq->lhs[i];
        if (!x)
            continue;
        if (x->how == FROM_STATED && x->extent != t->axes[i]) {
            FLAT_ERROR(f, eq->chain, x->span, "index '%s' runs over %s, but axis %d of %s has extent %s",
                       x->name, poly_shown(f, x->extent), i + 1, shown(f, t), poly_shown(f, t->axes[i]));
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
        FLAT_ERROR(f, eq->chain, eq->stmt->name_span, "%s has %d ax%s, but %d ind%s given", shown(f, s),
                   first->nlhs, first->nlhs == 1 ? "is" : "es", eq->nlhs,
                   eq->nlhs == 1 ? "ex is" : "ices are");
        FLAT_NOTE(f, first->stmt->name_span, "another part of '%s' is here", s->name);
        return false;
    }
    for (int i = 0; i < eq->nlhs; i++) {
        if (!eq->lhs[i] != !first->lhs[i]) {
            FLAT_ERROR(f, eq->chain, eq->stmt->name_span,
                       "all parts of %s must have their constant indices on the same "
                       "axes",
                       shown(f, s));
            FLAT_NOTE(f, first->stmt->name_span, "another part of '%s' is here", s->name);
            return false;
        }
        if (eq->lhs[i] && eq->lhs[i]->extent != first->lhs[i]->extent) {
            FLAT_ERROR(f, eq->chain, eq->lhs[i]->span,
                       "index '%s' runs over %s, but in another part of %s this axis has "
                       "extent %s",
                       eq->lhs[i]->name, poly_shown(f, eq->lhs[i]->extent), shown(f, s),
                       poly_shown(f, first->lhs[i]->extent));
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
        if (!s->axes[i]->is_const || s->axes[i]->value > MAX_PLACES ||
            places * s->axes[i]->value > MAX_PLACES) {
            if (s->axes[i]->is_const)
                FLAT_ERROR(f, first->chain, first->stmt->name_span,
                           "%s has too many places for constant indices on the left: at most %d; write a "
                           "definition over an index, with a condition", shown(f, s), MAX_PLACES);
            else
                FLAT_ERROR(f, first->chain, first->stmt->name_span,
                           "constant indices on the left of %s need an axis whose extent is known while "
                           "compiling", shown(f, s));
            FLAT_NOTE(f, s->axis_spans[i], "the extent of axis %d is %s", i + 1, poly_shown(f, s->axes[i]));
            return false;
        }
        places *= s->axes[i]->value;
    }
    const Equation **seen = arena_alloc(f->c->arena, sizeof *seen * (size_t)places);
    for (int k = 0; k < s->equations.len; k++) {
        const Equation *eq = s->equations.data[k];
        int64_t at = place_of(s, eq);
        if (at < 0) {
            FLAT_ERROR(f, eq->chain, eq->stmt->name_span, "a constant index of %s is outside of its axis",
                       shown(f, s));
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
            FLAT_ERROR(f, first->chain, first->stmt->name_span, "%s gets no value",
                       place_text(f, s, first, at));
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
    if (!fits(s->axes, s->rank)) {
        FLAT_ERROR(w->f, s->chain, s->span, "%s has more than 2^48 elements", shown(w->f, s));
        s->failed = true;
        return;
    }
    s->failed = !covers(w->f, s);
}

void infer_symbols(Flat *f, SymbolVec *symbols, Walk *around)
{
    Walk top = { .f = f }, *w = around ? around : &top;
    for (int i = 0; i < symbols->len; i++)
        infer_symbol(w, symbols->data[i]);
}
