/* bind.c: names of right sides -> symbols and indices, and calls of `fn` -> instances. In come the equations
 * that expand.c collected; out go their flat expressions, and the symbols in an order in which each stands
 * after what it needs. A parameter of a fn is bound once, to an array, a slice of one or an expression;
 * nothing is substituted as text. Every name that is left is known; what was not is diagnosed and becomes
 * F_ERROR. */
#include <string.h>
#include <strings.h>

#include "base/home.h"
#include "bind.h"
#include "ir/ops.h"
#include "words.h"

static FExpr *bind(Binding *b, const Expr *e);

static FExpr *new_expr(Binding *b, FKind kind, const Expr *e, int nargs)
{
    Flat *f = b->f;
    FExpr *x = arena_alloc(f->c->arena, sizeof *x);
    f->nodes++;
    x->kind = kind;
    x->span = e->span;
    x->name_span = e->name ? e->name_span : e->span;
    x->chain = b->chain;
    x->nargs = nargs;
    x->args = nargs ? arena_alloc(f->c->arena, sizeof *x->args * (size_t)nargs) : NULL;
    x->guarded = b->guarded;
    return x;
}

static FExpr *bad(Binding *b, const Expr *e)
{
    b->eq->failed = true;
    return new_expr(b, F_ERROR, e, 0);
}

#define BIND_ERROR(b, span, ...) FLAT_ERROR((b)->f, (b)->chain, (span), __VA_ARGS__)

static bool is_named(const Binding *b, const char *name, const char *word)
{
    return name == intern(b->f->c, word);
}

/* ---- indices ---- */

static FIndex *find_index(const Binding *b, const char *name)
{
    for (const FIndex *i = b->inner; i && i != b->limit; i = i->outer)
        if (i->name == name)
            return (FIndex *)(uintptr_t)i;
    return NULL;
}

static FIndex *push_index(Binding *b, const char *name, Span span)
{
    FIndex *i = arena_alloc(b->f->c->arena, sizeof *i);
    i->name = name;
    i->span = span;
    i->outer = b->inner;
    i->id = -1;
    b->inner = i;
    return i;
}

static bool index_name_is_free(Binding *b, const Binder *binder)
{
    const FIndex *old = find_index(b, binder->name);
    if (is_named(b, binder->name, "t") || is_named(b, binder->name, "T")) {
        BIND_ERROR(b, binder->span,
                   "'%s' is reserved and cannot be an index: t is the number of the step, T the number of "
                   "steps; an equation holds at every step and names none",
                   binder->name);
        return false;
    }
    if (old) {
        BIND_ERROR(b, binder->span, "index '%s' is already bound here", binder->name);
        FLAT_NOTE(b->f, old->span, "it is bound here");
        return false;
    }
    return true;
}

/* `w:T`: as many places as there are steps. */
static bool is_steps(const Binding *b, const Expr *e)
{
    return e->kind == X_REF && !e->brackets && !e->primed && !e->time && is_named(b, e->name, "T");
}

static FIndex *bind_index(Binding *b, const Binder *binder)
{
    bool ok = index_name_is_free(b, binder);
    FIndex *i = push_index(b, binder->name, binder->span);
    i->failed = !ok;
    b->eq->failed |= !ok;
    if (binder->range) {
        i->extent = is_steps(b, binder->range) ? poly_dim(b->f->m, ATOM_PAST)
                                               : fold_extent(b->f, binder->range, b->scope, b->chain);
        i->from = binder->range->span;
        i->how = FROM_STATED;
        i->failed |= !i->extent || !require_positive(b->f, i->extent, binder->range->span, b->chain);
        b->eq->failed |= i->failed;
    }
    return i;
}

/* A name that nothing binds, in an initial value: does it rather look like a value that there is none of? */
static bool implicit_is_mistaken(Binding *b, const Expr *e)
{
    const char *near =
        b->in_index || strlen(e->name) < 2 ? NULL : suggest_value(b->f, b->scope, e->name, "value");
    const char *state = b->eq->target->name;
    if (!b->in_index && (is_initialiser(e->name) || foreign_value(e->name)))
        BIND_ERROR(b, e->span, "unknown name '%s': %s", e->name,
                   foreign_value(e->name) && strcmp(e->name, "zeros") != 0 ? foreign_value(e->name)
                   : strcmp(e->name, "zeros") == 0 ? "a state starts with 0 where nothing else is said"
                   : strcmp(e->name, "ones") == 0  ? "write 1"
                   : strcmp(e->name, "eye") == 0
                       ? intern_f(b->f->c, "write state %s[i:N, j:N] = i == j", state)
                       : "initialisers are of params, and a state may start with one, as in h0[i]");
    else if (near) {
        BIND_ERROR(b, e->span, "unknown name '%s'; did you mean '%s'?", e->name, near);
        diag_fix(b->f->c, e->name_span, near);
    } else
        return false;
    return true;
}

static FIndex *implicit_index(Binding *b, const Expr *e)
{
    if (b->nimplicit == MAX_AXES_OF_VALUE)
        return NULL;
    if (!b->in_index && strlen(e->name) > 1)
        diag(b->f->c, DIAG_WARNING, e->span,
             "'%s' is no value: it is taken as the index of axis %d, which counts 0, 1, 2, ...", e->name,
             b->nimplicit + 1);
    FIndex *i = push_index(b, e->name, e->span);
    b->implicit_index[b->nimplicit++] = i;
    return i;
}

/* ---- values ---- */

/* The equation, and those of the calls around it, need the value. */
static void add_dep(const Binding *b, Symbol *s, Span span, bool primed)
{
    for (; b; b = b->outer)
        if (b->inst == s->owner) {
            Dep d = { s, span, primed };
            vec_push(b->f->c->arena, &b->eq->deps, d);
            return;
        }
}

/* The gradients of a fn with an adjoint fn go to its parameters, at this step: nothing else may be read. */
static bool closed_fn_may_read(const Binding *b, const Expr *e, const Symbol *s)
{
    const Binding *o = b;
    while (o && !(o->inst && o->inst->closed))
        o = o->outer;
    if (!o || (s->owner && !e->time))
        return true;
    if (s->owner)
        BIND_ERROR(b, e->time->span, "fn '%s' has an adjoint fn, so it reads this step only", o->inst->fn->name);
    else
        BIND_ERROR(b, e->span, "fn '%s' has an adjoint fn, so it reads its parameters only, but '%s' is %s",
                   o->inst->fn->name, e->name, kind_name(s->kind));
    FLAT_NOTE(b->f, s->span, "'%s' is declared here", s->name);
    return false;
}

static FExpr *bind_value(Binding *b, const Expr *e, Symbol *s, bool brackets)
{
    FExpr *x = new_expr(b, F_VALUE, e, e->args.len);
    bool before = b->in_index;
    s->used = true;
    if (e->primed) {
        if (!s->next) {
            BIND_ERROR(b, e->name_span, "'%s' is %s: only a state or a carry has a next value", s->name,
                       kind_name(s->kind));
            FLAT_NOTE(b->f, s->span, "'%s' is declared here", s->name);
            return bad(b, e);
        }
        s = s->next;
        s->used = true;
    }
    if (b->eq->target && b->eq->target->kind == SYM_INIT && s->kind != SYM_PARAM) {
        BIND_ERROR(b, e->span, "an initial value is made of params, constants and indices, but '%s' is %s",
                   e->name, kind_name(s->kind));
        return bad(b, e);
    }
    if (!closed_fn_may_read(b, e, s))
        return bad(b, e);
    x->sym = s;
    x->brackets = brackets;
    if (s->kind == SYM_DEF || s->kind == SYM_NEXT || s->kind == SYM_OUTPUT)
        add_dep(b, s, e->span, e->primed);
    b->in_index = true;
    for (int i = 0; i < e->args.len; i++)
        x->args[i] = bind(b, e->args.data[i]);
    x->time = e->time ? bind(b, e->time) : NULL;
    b->in_index = before;
    return x;
}

static FExpr *unknown_name(Binding *b, const Expr *e)
{
    Flat *f = b->f;
    FnDef *fn = map_get(&f->fns, e->name);
    int op = op_find(e->name);
    if (fn || (op >= 0 && op_table[op].in_language) || complex_find(e->name) >= 0) {
        BIND_ERROR(b, e->span, "'%s' is a function: write '%s(...)'", e->name, e->name);
        return bad(b, e);
    }
    if (b->in_index && !e->brackets) {
        const char *names[64];
        int n = 0;
        for (const FIndex *i = b->inner; i && i != b->limit && n < 64; i = i->outer)
            names[n++] = i->name;
        const char *index = suggest(e->name, names, n);
        if (index)
            BIND_ERROR(b, e->span, "unknown index '%s'; did you mean '%s'?", e->name, index);
        else
            BIND_ERROR(b, e->span, "index '%s' is free: it is bound neither on the left nor by a reduction",
                       e->name);
        diag_fix(f->c, e->name_span, index);
        return bad(b, e);
    }
    if (is_named(b, e->name, "t") || is_named(b, e->name, "T")) {
        BIND_ERROR(b, e->name_span, "'%s' is the number of %s and has no axes", e->name,
                   *e->name == 't' ? "the step" : "steps");
        return bad(b, e);
    }
    Expr bare = *e;
    bare.brackets = bare.primed = false;
    if (is_constant_pi(f, b->scope, &bare)) {
        BIND_ERROR(b, e->name_span, "'pi' is a number and has neither axes nor a next value");
        return bad(b, e);
    }
    for (const Binding *o = b->outer; o; o = o->outer)
        if (scope_find(o->scope, e->name)) {
            BIND_ERROR(b, e->name_span, "unknown name '%s': a fn outside of the cell sees only its arguments",
                       e->name);
            return bad(b, e);
        }
    unknown_value(f, b->scope, b->chain, e->name_span, e->name, e->brackets || e->primed ? "value" : "name");
    return bad(b, e);
}

static bool has_no_axes(const Symbol *s)
{
    return s->kind <= SYM_NUMBER || s->rank == 0 || s->kind == SYM_SCALAR_ARG;
}

static FExpr *ambiguous_name(Binding *b, const Expr *e, const FIndex *i, Symbol *s)
{
    s->used = true;
    BIND_ERROR(b, e->span, "'%s' could be the index or %s of that name", e->name, kind_name(s->kind));
    FLAT_NOTE(b->f, i->span, "the index is bound here");
    FLAT_NOTE(b->f, s->span, "the other is declared here");
    return bad(b, e);
}

/* Such a name is no index of an initial value. */
static bool names_function(Flat *f, const char *name)
{
    int op = op_find(name);
    return map_get(&f->fns, name) || (op >= 0 && op_table[op].in_language && !op_gives_way((Op)op));
}

static FExpr *bind_name(Binding *b, const Expr *e)
{
    FIndex *i = find_index(b, e->name);
    Symbol *s = scope_find(b->scope, e->name);
    if (i && s && has_no_axes(s))
        return ambiguous_name(b, e, i, s);
    if (!i && is_named(b, e->name, "t"))
        return new_expr(b, F_STEP, e, 0);
    if (!i && is_named(b, e->name, "T")) {
        BIND_ERROR(b, e->span,
                   "'T', the number of steps, can only be the range of an index: 'w:T'; what is divided by "
                   "the steps so far is divided by t + 1");
        return bad(b, e);
    }
    if (!i && !b->in_index && is_constant_pi(b->f, b->scope, e)) {
        FExpr *x = new_expr(b, F_NUM, e, 0);
        x->num = PI;
        return x;
    }
    if (!i && !s && b->implicit && !names_function(b->f, e->name) && implicit_is_mistaken(b, e))
        return bad(b, e);
    if (!i && !s && b->implicit && !names_function(b->f, e->name))
        i = implicit_index(b, e);
    if (i) {
        FExpr *x = new_expr(b, F_INDEX, e, 0);
        x->index = i;
        return i->failed ? bad(b, e) : x;
    }
    if (!s)
        return unknown_name(b, e);
    s->used = true;
    if (s->kind == SYM_DIM) {
        FExpr *x = new_expr(b, F_SIZE, e, 0);
        x->size = s->size;
        return s->failed ? bad(b, e) : x;
    }
    if (s->kind == SYM_CONST || s->kind == SYM_NUMBER) {
        FExpr *x = new_expr(b, F_NUM, e, 0);
        x->num = s->value.num;
        x->is_int = s->value.is_int;
        return s->failed ? bad(b, e) : x;
    }
    if (s->kind == SYM_OPTION) {
        BIND_ERROR(b, e->span, "option '%s' can only stand in the condition of a when", e->name);
        return bad(b, e);
    }
    return bind_value(b, e, s, false);
}

/* W[i,:] where no fn takes it: what to write. */
static bool leaves_axis_open(Binding *b, const Expr *e, const Symbol *s)
{
    int open = 0, letter = 0;
    const char *first = "j";
    Buf text = { .arena = b->f->c->arena };
    buf_f(&text, "%s%s[", e->name, e->primed ? "'" : "");
    for (int i = 0; i < e->args.len; i++) {
        static const char letters[] = "jklmnpqr";
        bool colon = e->args.data[i]->kind == X_COLON;
        while (colon && letters[letter + 1] && find_index(b, intern_n(b->f->c, &letters[letter], 1)))
            letter++;
        const char *given =
            colon ? intern_n(b->f->c, &letters[letter], 1) : source_text(b->f, e->args.data[i]->span);
        letter += colon && letters[letter + 1];
        first = colon && !open ? given : first;
        open += colon;
        buf_f(&text, "%s%s", i ? "," : "", given);
    }
    if (!open)
        return false;
    bool batch = s->rank >= 0 && e->args.len > s->rank;
    BIND_ERROR(b, e->span, "':' leaves an axis open only in an argument of a fn: %s%s%s",
               batch                 ? "the batch and the time are not written, and '"
               : open == e->args.len ? "each axis has an index, as in "
                                     : intern_f(b->f->c,
                                                "each axis has an index, and what is summed over one says "
                                                "so, as in sum[%s] ",
                                                first),
               batch ? e->name : text.data,
               batch ? intern_f(b->f->c, "' has %d ax%s", s->rank, s->rank == 1 ? "is" : "es") : "]");
    return true;
}

static FExpr *bind_ref(Binding *b, const Expr *e)
{
    if (!e->brackets && !e->primed)
        return bind_name(b, e);
    Symbol *s = scope_find(b->scope, e->name);
    if (!s && find_index(b, e->name)) {
        BIND_ERROR(b, e->name_span, "'%s' is an index and has neither axes nor a next value", e->name);
        return bad(b, e);
    }
    if (!s)
        return unknown_name(b, e);
    if (s->kind <= SYM_NUMBER && !s->failed) {
        BIND_ERROR(b, e->name_span, "'%s' is %s and has no axes", e->name, kind_name(s->kind));
        FLAT_NOTE(b->f, s->span, "'%s' is declared here", e->name);
        s->used = true;
        return bad(b, e);
    }
    if (s->kind <= SYM_NUMBER || leaves_axis_open(b, e, s))
        return bad(b, e);
    return bind_value(b, e, s, e->brackets);
}

/* ---- calls ---- */

static FExpr *bind_arguments(Binding *b, const Expr *e, FKind kind, int arity)
{
    if (e->args.len != arity) {
        bool reduces = e->args.len == 1 && (is_named(b, e->name, "max") || is_named(b, e->name, "min"));
        BIND_ERROR(b, e->span, "'%s' takes %d argument%s, but %d %s given%s%s%s", e->name, arity,
                   arity == 1 ? "" : "s", e->args.len, e->args.len == 1 ? "is" : "are",
                   reduces ? "; over an index it is " : "", reduces ? e->name : "", reduces ? "[j] x[j]" : "");
        return bad(b, e);
    }
    if (e->member) {
        BIND_ERROR(b, e->member_span, "'%s' gives a number: only a fn of yours has results to pick", e->name);
        return bad(b, e);
    }
    if (e->brackets) {
        BIND_ERROR(b, e->span,
                   "'%s' gives a number, which has no axes to index: indices stand in its argument, as in "
                   "%s(x[i])",
                   e->name, e->name);
        return bad(b, e);
    }
    FExpr *x = new_expr(b, kind, e, arity);
    x->op_text = e->name;
    for (int i = 0; i < arity; i++)
        x->args[i] = bind(b, e->args.data[i]);
    return x;
}

/* Is it a fn of std.cell, which the spec does not import? The file is parsed each time, so only the first errors ask. It is
 * read for the message alone, so it is none of the texts of this compilation. */
static bool in_std(Compiler *c, const char *name)
{
    enum { MAX_ASKED = 20 };
    const char *dir = c->errors < MAX_ASKED ? home_dir(c, HOME_SPECS) : NULL;
    if (!dir)
        return false;
    Compiler *apart = compiler_new();
    int file = source_load(apart, intern_f(apart, "%s/std.cell", dir));
    const Ast *std = file < 0 ? NULL : parse_source(apart, file);
    bool found = false;
    for (int i = 0; std && i < std->items.len; i++)
        found |= std->items.data[i]->kind == S_FN && strcmp(std->items.data[i]->name, name) == 0;
    compiler_free(apart);
    return found;
}

/* Those there are: fns first, then the language's. */
static void note_functions(Binding *b, Span at, const char *const *names, int n)
{
    Flat *f = b->f;
    Buf list = { .arena = f->c->arena };
    for (int i = 0; i < n; i++)
        buf_f(&list, "%s%s", i ? ", " : "", names[i]);
    FLAT_NOTE(f, at, "there are %s; `cellc ops` says what they do", list.data);
}

/* h(t - 1), h(t) */
static bool mentions_step(Binding *b, const Expr *e)
{
    for (int i = 0; i < e->args.len; i++) {
        const Expr *a = e->args.data[i];
        if (is_named(b,
                     a->kind == X_BINARY && a->a->kind == X_REF ? a->a->name
                     : a->kind == X_REF                         ? a->name
                                                                : "",
                     "t"))
            return true;
    }
    return false;
}

static FExpr *unknown_function(Binding *b, const Expr *e)
{
    Flat *f = b->f;
    Vec(const char *) names = { 0 };
    Symbol *s = scope_find(b->scope, e->name);
    if (s && s->kind > SYM_NUMBER) {
        BIND_ERROR(b, e->name_span, "'%s' is %s, not a function: its axes stand in brackets, '%s[%s]'%s",
                   e->name, kind_name(s->kind), e->name, index_letters(f, s->rank > 0 ? s->rank : 1),
                   !mentions_step(b, e) ? ""
                   : s->kind == SYM_STATE || s->next
                       ? "; a state without a prime is the one before the step"
                       : intern_f(f->c, "; an earlier step stands behind ';', as in %s[%s; t - 1]", e->name,
                                  index_letters(f, s->rank > 0 ? s->rank : 1)));
        return bad(b, e);
    }
    for (int i = 0; i < f->fn_names.len; i++)
        vec_push(f->c->arena, &names, f->fn_names.data[i]);
    for (int i = 0; i < OP_COUNT; i++)
        if (op_table[i].in_language)
            vec_push(f->c->arena, &names, op_table[i].name);
    for (int i = 0; i < CX_COUNT; i++)
        vec_push(f->c->arena, &names, complex_table[i].name);
    const char *here = foreign_function(f->c, e->name), *near = NULL;
    for (int i = 0; i < names.len && !near; i++)
        near = strcasecmp(e->name, names.data[i]) == 0 ? names.data[i] : NULL;
    near = near ? near : suggest(e->name, names.data, names.len);
    bool std = in_std(f->c, e->name);
    const char *more = std ? "; it is in std.cell: import \"std.cell\";"
                       : here                ? intern_f(f->c, ": %s", here)
                       : near                ? intern_f(f->c, "; did you mean '%s'?", near) : "";
    BIND_ERROR(b, e->name_span, "unknown function '%s'%s", e->name, more);
    if (std && e->span.file == f->cell->span.file)
        diag_fix(f->c, (Span){ e->span.file, f->cell->span.lo, f->cell->span.lo }, "import \"std.cell\";\n\n");
    else if (!here)
        diag_fix(f->c, e->name_span, near);
    if (!*more)
        note_functions(b, e->name_span, names.data, names.len);
    return bad(b, e);
}

static Symbol *new_param(Binding *b, Instance *inst, int k, SymbolKind kind)
{
    Span span = inst->fn->param_spans.len > k ? inst->fn->param_spans.data[k] : inst->fn->span;
    Symbol *p = new_symbol(b->f, kind, inst->fn->params.data[k], span, inst);
    p->rank = kind == SYM_SCALAR_ARG ? 0 : -1;
    return p;
}

static FExpr *bind_fn(Binding *b, const Expr *e, const FnDef *def);

/* A bare name or a slice passes an array; so does a call without brackets whose result has axes. */
static Symbol *bind_param(Binding *b, Instance *inst, int k, const Expr *a)
{
    bool before = b->in_index;
    Symbol *p, *s = a->kind == X_REF ? scope_find(b->scope, a->name) : NULL;
    bool open = false;
    for (int i = 0; a->kind == X_REF && i < a->args.len; i++)
        open |= a->args.data[i]->kind == X_COLON;
    if (open && a->time) {
        BIND_ERROR(b, a->time->span, "a slice is passed with all its steps: name the step where it is read");
        p = new_param(b, inst, k, SYM_SCALAR_ARG);
        p->scalar = bad(b, a);
        p->failed = true;
        return p;
    }
    b->in_index = false;
    if (s && !a->brackets && !a->primed && find_index(b, a->name)) {
        FExpr *v = ambiguous_name(b, a, find_index(b, a->name), s);
        p = new_param(b, inst, k, SYM_SCALAR_ARG);
        p->scalar = v;
        p->failed = true;
    } else if (s && s->kind > SYM_NUMBER && s->kind != SYM_SCALAR_ARG && (open || !a->brackets)) {
        p = new_param(b, inst, k, SYM_ARRAY_ARG);
        Expr bare = *a;
        bare.args.len = 0;
        FExpr *v = bind_value(b, &bare, s, false);
        p->base = v->sym;
        p->failed = v->kind == F_ERROR;
        if (a->brackets) {
            p->nfixed = a->args.len;
            p->fixed = arena_alloc(b->f->c->arena, sizeof *p->fixed * (size_t)(a->args.len + 1));
            b->in_index = true;
            for (int i = 0; i < a->args.len; i++)
                p->fixed[i] = a->args.data[i]->kind == X_COLON ? NULL : bind(b, a->args.data[i]);
        }
    } else {
        const FnDef *fn = a->kind == X_CALL && !a->brackets ? map_get(&b->f->fns, a->name) : NULL;
        FExpr *v = fn ? bind_fn(b, a, fn) : bind(b, a);
        bool array = v->kind == F_CALL && !v->brackets && v->sym->rank > 0;
        p = new_param(b, inst, k, array ? SYM_ARRAY_ARG : SYM_SCALAR_ARG);
        p->failed = v->kind == F_ERROR;
        p->scalar = array ? NULL : v;
        p->base = array ? v->sym : NULL;
        p->via = array ? v->inst : NULL;
    }
    b->in_index = before;
    return p;
}

static bool call_is_legal(Binding *b, const Expr *e, const Stmt *fn)
{
    for (const CallSite *s = b->chain; s; s = s->outer)
        if (s->fn == fn->name) {
            BIND_ERROR(b, e->span, "fn '%s' calls itself", fn->name);
            return false;
        }
    if (b->depth >= MAX_CALL_DEPTH) {
        BIND_ERROR(b, e->span, "more than %d calls inside each other", MAX_CALL_DEPTH);
        return false;
    }
    if (e->args.len != fn->params.len) {
        BIND_ERROR(b, e->span, "fn '%s' takes %d argument%s, but %d %s given", fn->name, fn->params.len,
                   fn->params.len == 1 ? "" : "s", e->args.len, e->args.len == 1 ? "is" : "are");
        FLAT_NOTE(b->f, fn->name_span, "fn '%s' is defined here", fn->name);
        return false;
    }
    if (e->member && !fn->has_body) {
        BIND_ERROR(b, e->member_span, "fn '%s' has one result: '.%s' picks one of several", fn->name, e->member);
        FLAT_NOTE(b->f, fn->name_span, "fn '%s' is defined here", fn->name);
        return false;
    }
    return true;
}

/* A name that a use may pick with '.': a definition of the block, or what a repeat in it carried out. */
static bool is_member(const Instance *inst, const Symbol *s)
{
    return s && s->owner == inst && s->kind == SYM_DEF;
}

/* The definition of the block that is nearest to `name`, else the first one; NULL when there is none. */
static const char *some_member(Flat *f, const Instance *inst, const char *name, bool *near)
{
    Vec(const char *) names = { 0 };
    for (int i = 0; i < inst->locals.len; i++)
        if (!inst->locals.data[i]->next)
            vec_push(f->c->arena, &names, inst->locals.data[i]->name);
    const char *found = suggest(name, names.data, names.len);
    *near = found != NULL;
    return found ? found : names.len ? names.data[0] : NULL;
}

/* The result of a block: the definition that has its name, or the one that the use picks. */
static Symbol *result_of_block(Binding *b, const Expr *e, const Stmt *fn, const Scope *scope,
                               const Instance *inst)
{
    Symbol *own = map_get(&scope->names, fn->name);
    Symbol *picked = e->member ? map_get(&scope->names, e->member) : own;
    bool near;
    const char *other = some_member(b->f, inst, e->member ? e->member : fn->name, &near);
    if (is_member(inst, picked) && (picked == own || !is_member(inst, own)))
        return picked;
    if (is_member(inst, own))
        BIND_ERROR(b, e->member_span, "fn '%s' has one result, '%s': what else its block defines is its own",
                   fn->name, fn->name);
    else if (!other)
        BIND_ERROR(b, e->span, "the body of fn '%s' defines nothing, so it has no result", fn->name);
    else if (!e->member)
        BIND_ERROR(b, e->span,
                   "fn '%s' does not define '%s', so a use picks one of its definitions: '%s(...).%s'",
                   fn->name, fn->name, fn->name, other);
    else
        BIND_ERROR(b, e->member_span,
                   near ? "fn '%s' has no result '%s'; did you mean '%s'?" : "fn '%s' has no result '%s'",
                   fn->name, e->member, other);
    if (e->member && near && !is_member(inst, own))
        diag_fix(b->f->c, e->member_span, other);
    FLAT_NOTE(b->f, fn->name_span, "fn '%s' is defined here", fn->name);
    return NULL;
}

static bool expand_fn(Binding *b, const Expr *e, const FnDef *def, Instance *inst)
{
    Flat *f = b->f;
    Scope *scope = arena_alloc(f->c->arena, sizeof *scope);
    int errors = f->c->errors;
    scope->outer = def->scope;
    scope->owner = inst;
    for (int k = 0; k < inst->nparams; k++)
        map_put(f->c->arena, &scope->names, inst->params[k]->name, inst->params[k]);
    if (def->fn->has_body) {
        expand_body(f, &def->fn->body, scope, inst->site, &inst->locals);
        if (f->c->errors == errors)
            inst->result = result_of_block(b, e, def->fn, scope, inst);
    } else {
        Symbol *r = new_symbol(f, SYM_DEF, def->fn->name, def->fn->name_span, inst);
        Equation *eq = arena_alloc(f->c->arena, sizeof *eq);
        *eq = (Equation){
            .target = r, .stmt = def->fn, .body = def->fn->value, .scope = scope, .chain = inst->site
        };
        r->decl = def->fn;
        r->chain = inst->site;
        r->rank = def->fn->lhs.len;
        vec_push(f->c->arena, &r->equations, eq);
        vec_push(f->c->arena, &inst->locals, r);
        inst->result = r;
    }
    if (inst->result && def->fn->has_body && def->fn->lhs.len && def->fn->lhs.len != inst->result->rank) {
        BIND_ERROR(b, inst->result->span,
                   "fn '%s' is declared with %d ind%s, but its result is defined with %d", e->name,
                   def->fn->lhs.len, def->fn->lhs.len == 1 ? "ex" : "ices", inst->result->rank);
        FLAT_NOTE(f, def->fn->name_span, "fn '%s' is defined here", e->name);
    }
    bind_symbols(f, &inst->locals, b);
    return inst->result && f->c->errors == errors;
}

/* An equation of an adjoint fn that is one expression: it gives to its one parameter. */
static void adjoint_expression(Flat *f, Instance *inst, Scope *scope, const char *name)
{
    Symbol *d = new_symbol(f, SYM_DEF, name, inst->fn->name_span, inst);
    d->decl = inst->fn;
    d->chain = inst->site;
    d->rank = inst->fn->lhs.len;
    add_equation(f, d, inst->fn, inst->fn->value, scope, inst->site);
    map_put(f->c->arena, &scope->names, name, d);
    vec_push(f->c->arena, &inst->locals, d);
}

/* The adjoint fn of a call, bound to the parameters of the call. */
static bool expand_adjoint(Binding *b, const Expr *e, Instance *of, const FnDef *def)
{
    Flat *f = b->f;
    Instance *inst = arena_alloc(f->c->arena, sizeof *inst);
    Scope *scope = arena_alloc(f->c->arena, sizeof *scope);
    CallSite *site = arena_alloc(f->c->arena, sizeof *site);
    int errors = f->c->errors;
    *site = (CallSite){ e->span, intern_f(f->c, "adjoint of %s", def->fn->name), b->chain };
    *inst = (Instance){ .fn = def->fn, .site = site, .closed = true };
    scope->outer = def->scope;
    scope->owner = inst;
    inst->cotangent = new_symbol(f, SYM_COTANGENT, def->fn->held.data[0], def->fn->span, inst);
    inst->cotangent->rank = -1;
    inst->d_param = arena_alloc(f->c->arena, sizeof *inst->d_param * (size_t)(of->nparams + 1));
    for (int k = 0; k < of->nparams; k++)
        map_put(f->c->arena, &scope->names, of->params[k]->name, of->params[k]);
    map_put(f->c->arena, &scope->names, inst->cotangent->name, inst->cotangent);
    if (def->fn->has_body)
        expand_body(f, &def->fn->body, scope, site, &inst->locals);
    else
        adjoint_expression(f, inst, scope, intern_f(f->c, "d_%s", of->params[0]->name));
    for (int k = 0; k < of->nparams && f->c->errors == errors; k++) {
        Symbol *d = map_get(&scope->names, intern_f(f->c, "d_%s", of->params[k]->name));
        inst->d_param[k] = d;
        if (is_member(inst, d))
            continue;
        BIND_ERROR(b, def->fn->name_span, "the adjoint of fn '%s' does not define 'd_%s', what '%s' gets",
                   def->fn->name, of->params[k]->name, of->params[k]->name);
    }
    bind_symbols(f, &inst->locals, b);
    of->adjoint = inst;
    return f->c->errors == errors;
}

/* The adjoint fn that counts for a call: inside an adjoint fn, functions have their derived one. */
static const FnDef *adjoint_for(const Binding *b, const char *name)
{
    for (const Binding *o = b; o; o = o->outer)
        if (o->inst && o->inst->cotangent)
            return NULL;
    return map_get(&b->f->adjoints, name);
}

static bool adjoint_is_legal(Binding *b, const Expr *e, const Instance *inst)
{
    if (!b->guarded && !inst->picked)
        return true;
    BIND_ERROR(b, e->span, inst->picked ? "fn '%s' has an adjoint fn, so it gives one result"
                                        : "fn '%s' has an adjoint fn and cannot be called under a condition",
               e->name);
    FLAT_NOTE(b->f, inst->fn->name_span, "fn '%s' is defined here", e->name);
    return false;
}

static FExpr *bind_fn(Binding *b, const Expr *e, const FnDef *def)
{
    Flat *f = b->f;
    const FnDef *adjoint = adjoint_for(b, e->name);
    if (!call_is_legal(b, e, def->fn))
        return bad(b, e);
    Instance *inst = arena_alloc(f->c->arena, sizeof *inst);
    CallSite *site = arena_alloc(f->c->arena, sizeof *site);
    *site = (CallSite){ e->span, def->fn->name, b->chain };
    inst->fn = def->fn;
    inst->site = site;
    inst->picked = e->member && e->member != def->fn->name;
    inst->nparams = e->args.len;
    inst->params = arena_alloc(f->c->arena, sizeof *inst->params * (size_t)(e->args.len + 1));
    bool ok = true;
    for (int k = 0; k < e->args.len; k++) {
        inst->params[k] = bind_param(b, inst, k, e->args.data[k]);
        ok &= !inst->params[k]->failed;
    }
    FExpr *x = new_expr(b, F_CALL, e, e->index.len);
    bool before = b->in_index;
    b->in_index = true;
    for (int i = 0; i < e->index.len; i++)
        x->args[i] = bind(b, e->index.data[i]);
    b->in_index = before;
    inst->closed = adjoint != NULL;
    for (int k = 0; adjoint && k < inst->nparams; k++)
        inst->params[k]->is_variable = true;
    if (!ok || f->too_large || (adjoint && !adjoint_is_legal(b, e, inst)) || !expand_fn(b, e, def, inst) ||
        (adjoint && !expand_adjoint(b, e, inst, adjoint)))
        return bad(b, e);
    x->inst = inst;
    x->sym = inst->result;
    x->brackets = e->brackets;
    return x;
}

/* ---- inner gradients ---- */

/* In grad(o[i], W[r,j]; g[i]) the indices of o that are bound nowhere else are bound by the grad. `hidden` are
 * those of reductions inside, and `bracket` says that e stands in brackets. */
static void find_held_indices(Binding *b, const Expr *e, const FIndex *hidden, bool bracket, FExpr *x)
{
    if (!e)
        return;
    FIndex own[MAX_AXES_OF_VALUE];
    for (int i = 0; e->kind == X_REDUCE && i < e->binders.len && i < MAX_AXES_OF_VALUE; i++) {
        own[i] = (FIndex){ .name = e->binders.data[i].name, .outer = hidden };
        hidden = &own[i];
    }
    if (bracket && e->kind == X_REF && !e->brackets && !e->primed) {
        bool known = find_index(b, e->name) || scope_find(b->scope, e->name) || is_reserved(b->f, e->name);
        for (const FIndex *i = hidden; i; i = i->outer)
            known |= i->name == e->name;
        if (!known && x->nbound < MAX_AXES_OF_VALUE)
            x->bound[x->nbound++] = push_index(b, e->name, e->span);
    }
    for (int i = 0; i < e->args.len; i++)
        find_held_indices(b, e->args.data[i], hidden, e->kind == X_REF, x);
    for (int i = 0; i < e->index.len; i++)
        find_held_indices(b, e->index.data[i], hidden, true, x);
    find_held_indices(b, e->a, hidden, bracket, x);
    find_held_indices(b, e->b, hidden, bracket, x);
    find_held_indices(b, e->c, hidden, bracket, x);
}

/* What a grad is taken with respect to. */
static FExpr *bind_variable(Binding *b, const Expr *e)
{
    if (e->kind != X_REF || e->time) {
        BIND_ERROR(b, e->span, e->kind == X_REF
                                   ? "'grad' is taken with respect to a value of this step"
                                   : "'grad' is taken with respect to a value by its name, such as W[r,j], not "
                                     "to an expression");
        return bad(b, e);
    }
    FExpr *x = bind_ref(b, e);
    if (x->kind != F_VALUE && x->kind != F_ERROR) {
        Symbol *s = scope_find(b->scope, e->name);
        BIND_ERROR(b, e->span,
                   "'%s' is %s: 'grad' is taken with respect to an input, a param, a state, its next value or "
                   "a definition", e->name, x->kind == F_INDEX || !s ? "an index" : kind_name(s->kind));
        return bad(b, e);
    }
    if (x->kind == F_VALUE)
        x->sym->is_variable = true;
    return x;
}

static FExpr *bind_grad(Binding *b, const Expr *e)
{
    if (e->args.len != 2 || e->held.len > 1 || e->brackets || e->member) {
        const char *why = e->brackets || e->member
                              ? "'grad' gives a number: its indices stand at what it is taken with respect to, as in "
                                "grad(loss, W[r,j])"
                              : "'grad' is written grad(loss, W[r,j]) or, with one value held, "
                                "grad(o[i], W[r,j]; g[i])";
        BIND_ERROR(b, e->span, "%s", why);
        return bad(b, e);
    }
    FIndex *before = b->inner;
    bool in_index = b->in_index;
    FExpr *x = new_expr(b, F_GRAD, e, 2 + e->held.len);
    b->f->takes_grad = true;
    b->in_index = false;
    x->args[1] = bind_variable(b, e->args.data[1]);
    x->bound = arena_alloc(b->f->c->arena, sizeof *x->bound * MAX_AXES_OF_VALUE);
    if (e->held.len)
        find_held_indices(b, e->args.data[0], NULL, false, x);
    x->args[0] = bind(b, e->args.data[0]);
    if (e->held.len)
        x->args[2] = bind(b, e->held.data[0]);
    b->inner = before;
    b->in_index = in_index;
    return x;
}

static FExpr *bind_call(Binding *b, const Expr *e)
{
    const FnDef *def = map_get(&b->f->fns, e->name);
    int op = op_find(e->name);
    if (e->held.len && !is_named(b, e->name, "grad")) {
        BIND_ERROR(b, e->held.data[0]->span, "'%s' holds nothing: only grad takes arguments behind a ';'",
                   e->name);
        return bad(b, e);
    }
    if (def)
        return bind_fn(b, e, def);
    if (is_named(b, e->name, "grad"))
        return bind_grad(b, e);
    if (is_named(b, e->name, "div") || is_named(b, e->name, "mod"))
        return bind_arguments(b, e, is_named(b, e->name, "div") ? F_IDIV : F_IMOD, 2);
    int complex_op = complex_find(e->name);
    if (complex_op >= 0) {
        FExpr *x = bind_arguments(b, e, F_COMPLEX, complex_table[complex_op].arity);
        x->complex_op = (ComplexOp)complex_op;
        return x;
    }
    if (op < 0 || !op_table[op].in_language)
        return unknown_function(b, e);
    double left_out;
    bool completed = op_default((Op)op, e->args.len, &left_out);
    if (e->args.len > op_table[op].arity && op_default((Op)op, op_table[op].arity - 1, &left_out)) {
        BIND_ERROR(b, e->span, "'%s' takes %d or %d arguments, but %d are given", e->name,
                   op_table[op].arity - 1, op_table[op].arity, e->args.len);
        return bad(b, e);
    }
    FExpr *x = bind_arguments(b, e, F_MAP, op_table[op].arity - completed);
    x->op = (Op)op;
    if (completed && x->kind == F_MAP) {
        FExpr **args = arena_alloc(b->f->c->arena, sizeof *args * (size_t)op_table[op].arity);
        memcpy(args, x->args, sizeof *args * (size_t)x->nargs);
        args[x->nargs] = new_expr(b, F_NUM, e, 0);
        args[x->nargs++]->num = left_out;
        x->args = args;
    }
    return x;
}

/* ---- operators ---- */

static FExpr *bind_two(Binding *b, const Expr *e, FKind kind, Op op, const char *text, bool swap)
{
    FExpr *x = new_expr(b, kind, e, 2);
    x->op = op;
    x->op_text = text;
    x->args[swap] = bind(b, e->a);
    x->args[!swap] = bind(b, e->b);
    return x;
}

static FExpr *bind_binary(Binding *b, const Expr *e)
{
    switch (e->op) {
    case O_ADD: return bind_two(b, e, F_MAP, OP_ADD, "+", false);
    case O_SUB: return bind_two(b, e, F_MAP, OP_SUB, "-", false);
    case O_MUL: return bind_two(b, e, F_MAP, OP_MUL, "*", false);
    case O_DIV: return bind_two(b, e, b->in_index ? F_IDIV : F_MAP, OP_DIV, "/", false);
    case O_MOD: return bind_two(b, e, F_IMOD, OP_DIV, "%", false);
    case O_POW: return bind_two(b, e, F_MAP, OP_POW, "^", false);
    case O_LT: return bind_two(b, e, F_MAP, OP_LT, "<", false);
    case O_LE: return bind_two(b, e, F_MAP, OP_LE, "<=", false);
    case O_GT: return bind_two(b, e, F_MAP, OP_LT, ">", true);
    case O_GE: return bind_two(b, e, F_MAP, OP_LE, ">=", true);
    case O_EQ: return bind_two(b, e, F_MAP, OP_EQ, "==", false);
    case O_NE: return bind_two(b, e, F_MAP, OP_NE, "!=", false);
    case O_AND: return bind_two(b, e, F_MAP, OP_AND, "&&", false);
    case O_OR: return bind_two(b, e, F_MAP, OP_OR, "||", false);
    default: return bad(b, e);
    }
}

static FExpr *bind_condition(Binding *b, const Expr *e)
{
    FExpr *x = new_expr(b, F_MAP, e, 3);
    bool before = b->guarded;
    x->op = OP_SELECT;
    x->op_text = "?:";
    x->args[0] = bind(b, e->a);
    b->guarded = true;
    x->args[1] = bind(b, e->b);
    x->args[2] = bind(b, e->c);
    b->guarded = before;
    return x;
}

static FExpr *bind_softmax(Binding *b, const Expr *e)
{
    FExpr *x = new_expr(b, F_SOFTMAX, e, 1);
    x->nbound = e->binders.len;
    x->bound = arena_alloc(b->f->c->arena, sizeof *x->bound * (size_t)(e->binders.len + 1));
    for (int i = 0; i < e->binders.len; i++) {
        const Binder *binder = &e->binders.data[i];
        x->bound[i] = binder->name ? find_index(b, binder->name) : NULL;
        if (!x->bound[i] || binder->range) {
            BIND_ERROR(b, binder->span,
                       x->bound[i] ? "softmax normalises along an index in scope; its range is stated where "
                                     "it is bound"
                                   : "softmax normalises along an index in scope, but '%s' is not bound here",
                       binder->name ? binder->name : "this");
            return bad(b, e);
        }
        for (int k = 0; k < i; k++)
            if (x->bound[k] == x->bound[i]) {
                BIND_ERROR(b, binder->span, "index '%s' stands twice", binder->name);
                return bad(b, e);
            }
    }
    x->args[0] = bind(b, e->a);
    return x;
}

static FExpr *bind_reduction(Binding *b, const Expr *e)
{
    if (e->reduce == R_SOFTMAX)
        return bind_softmax(b, e);
    FIndex *before = b->inner;
    bool in_index = b->in_index;
    FExpr *x = new_expr(b, F_REDUCE, e, 1);
    x->reduce = e->reduce;
    x->nbound = e->binders.len;
    x->bound = arena_alloc(b->f->c->arena, sizeof *x->bound * (size_t)(e->binders.len + 1));
    if (e->binders.len > MAX_AXES_OF_VALUE) {
        BIND_ERROR(b, e->span, "a reduction binds at most %d indices", MAX_AXES_OF_VALUE);
        return bad(b, e);
    }
    for (int i = 0; i < e->binders.len; i++) {
        if (!e->binders.data[i].name) {
            BIND_ERROR(b, e->binders.data[i].span, "a reduction binds the name of an index");
            return bad(b, e);
        }
        x->bound[i] = bind_index(b, &e->binders.data[i]);
    }
    b->in_index = false;
    x->args[0] = bind(b, e->a);
    b->in_index = in_index;
    /* Indices that an initial value introduced inside belong to the whole of it. */
    FIndex *kept = before;
    for (int i = 0; b->implicit && i < b->nimplicit; i++)
        if (!find_index(&(Binding){ .inner = before, .limit = b->limit }, b->implicit_index[i]->name)) {
            b->implicit_index[i]->outer = kept;
            kept = b->implicit_index[i];
        }
    b->inner = kept;
    return x;
}

static FExpr *bind_any(Binding *b, const Expr *e)
{
    Flat *f = b->f;
    if (f->nodes > MAX_FLAT_NODES) {
        if (!f->too_large)
            BIND_ERROR(b, e->span, "the cell is too large: more than %d operations after expansion",
                       MAX_FLAT_NODES);
        f->too_large = true;
        return bad(b, e);
    }
    switch (e->kind) {
    case X_NUM: {
        FExpr *x = new_expr(b, F_NUM, e, 0);
        x->num = e->num;
        x->is_int = e->is_int;
        return x;
    }
    case X_REF: return bind_ref(b, e);
    case X_CALL: return bind_call(b, e);
    case X_UNARY: {
        FExpr *x = new_expr(b, F_MAP, e, 1);
        x->op = e->op == O_NOT ? OP_NOT : OP_NEG;
        x->op_text = e->op == O_NOT ? "!" : "-";
        x->args[0] = bind(b, e->a);
        return x;
    }
    case X_BINARY: return bind_binary(b, e);
    case X_COND: return bind_condition(b, e);
    case X_REDUCE: return bind_reduction(b, e);
    case X_COLON:
        BIND_ERROR(b, e->span, "':' leaves an axis open only in an argument of a fn");
        return bad(b, e);
    case X_ERROR: break;
    }
    return bad(b, e);
}

/* Later passes recurse as deep as the flat expressions nest, through calls as well. */
static FExpr *bind(Binding *b, const Expr *e)
{
    if (b->level >= MAX_LEVELS) {
        BIND_ERROR(b, e->span, "more than %d operations inside each other, through definitions and calls", MAX_LEVELS);
        return bad(b, e);
    }
    b->level++;
    FExpr *x = bind_any(b, e);
    b->level--;
    return x;
}

/* ---- equations ---- */

static void bind_left_side(Binding *b, Equation *eq)
{
    const BinderVec *lhs = &eq->stmt->lhs;
    Flat *f = b->f;
    if (lhs->len > MAX_AXES_OF_VALUE) {
        BIND_ERROR(b, eq->stmt->name_span, "a value has at most %d axes", MAX_AXES_OF_VALUE);
        eq->failed = true;
        return;
    }
    eq->nlhs = lhs->len;
    eq->lhs = arena_alloc(f->c->arena, sizeof *eq->lhs * (size_t)(lhs->len + 1));
    eq->constant = arena_alloc(f->c->arena, sizeof *eq->constant * (size_t)(lhs->len + 1));
    for (int i = 0; i < lhs->len; i++) {
        const Binder *binder = &lhs->data[i];
        Symbol *number = binder->name ? scope_find(b->scope, binder->name) : NULL;
        bool declared = eq->stmt->kind == S_STATE || eq->stmt->kind == S_CARRY;
        if (number && number->kind == SYM_NUMBER && declared) {
            BIND_ERROR(b, binder->span, "'%s' is the index of a repeat and cannot be that of an axis", binder->name);
            eq->failed = true;
        } else if (number && number->kind == SYM_NUMBER) {
            eq->constant[i] = (int64_t)number->value.num;
        } else if (binder->name) {
            eq->lhs[i] = bind_index(b, binder);
        } else if (!binder->fixed || !fold_integer(f, binder->fixed, b->scope, b->chain,
                                                   "an index on the left", &eq->constant[i])) {
            eq->failed = true;
        } else if (eq->constant[i] < 0) {
            BIND_ERROR(b, binder->span, "index %lld is below 0", (long long)eq->constant[i]);
            eq->failed = true;
        }
    }
}

/* Reading 'state S[N,N] = P[j,i]' as P would surprise when the next value is written as S'[i,j]. */
static bool order_is_misleading(Binding *b, const Equation *eq)
{
    const Symbol *t = eq->target, *state = scope_find(b->scope, t->name);
    const Symbol *next = t->kind == SYM_INIT ? (state ? state->next : NULL) : t->next;
    for (int k = 0; next && k < next->equations.len; k++) {
        const BinderVec *lhs = &next->equations.data[k]->stmt->lhs;
        for (int i = 0; i < b->nimplicit; i++)
            for (int j = 0; j < lhs->len; j++)
                if (lhs->data[j].name == b->implicit_index[i]->name && j != i) {
                    BIND_ERROR(
                        b, b->implicit_index[i]->span,
                        "index '%s' stands for axis %d of '%s', as indices of an initial "
                        "value count in the order in which they appear, but for axis %d on the left of %s'",
                        lhs->data[j].name, i + 1, t->name, j + 1, t->name);
                    FLAT_NOTE(b->f, lhs->data[j].span, "'%s' is axis %d here", lhs->data[j].name, j + 1);
                    return true;
                }
    }
    return false;
}

/* The indices of an initial value stand for the axes in the order of their first appearance. */
static void implicit_left_side(Binding *b, Equation *eq)
{
    Symbol *t = eq->target;
    if (t->failed)
        return;
    eq->nlhs = t->rank;
    eq->lhs = arena_alloc(b->f->c->arena, sizeof *eq->lhs * (size_t)(t->rank + 1));
    eq->constant = arena_alloc(b->f->c->arena, sizeof *eq->constant * (size_t)(t->rank + 1));
    if (b->nimplicit && b->nimplicit != t->rank && !eq->failed) {
        BIND_ERROR(b, eq->body->span, "the initial value of '%s' has %d ind%s, but '%s' has %d ax%s", t->name,
                   b->nimplicit, b->nimplicit == 1 ? "ex" : "ices", t->name, t->rank,
                   t->rank == 1 ? "is" : "es");
        eq->failed = true;
        return;
    }
    eq->failed |= order_is_misleading(b, eq);
    for (int i = 0; i < t->rank; i++)
        eq->lhs[i] = b->nimplicit ? b->implicit_index[i]
                                  : push_index(b, intern_f(b->f->c, "i%d", i), t->axis_spans[i]);
}

static void bind_equation(Flat *f, Equation *eq, const Binding *outer)
{
    Binding b = {
        .f = f, .scope = eq->scope, .inst = eq->target->owner, .eq = eq, .outer = outer, .chain = eq->chain
    };
    b.inner = outer ? outer->inner : NULL;
    b.limit = b.inner;
    b.depth = outer ? outer->depth + 1 : 0;
    b.level = outer ? outer->level : 0;
    b.guarded = outer && outer->guarded;
    b.implicit = (eq->stmt->kind == S_STATE || eq->stmt->kind == S_CARRY) && !eq->stmt->lhs.len;
    if (!b.implicit)
        bind_left_side(&b, eq);
    if (eq->body)
        eq->value = bind(&b, eq->body);
    if (b.implicit)
        implicit_left_side(&b, eq);
    eq->failed |= !eq->body;
}

/* ---- order of evaluation ---- */

typedef struct Visit {
    Symbol *sym;
    int equation, dep;
    Span use;
} Visit;
typedef Vec(Visit) Visits;

static void report_cycle(Flat *f, const Visits *stack, Symbol *back, Span use)
{
    int from = stack->len - 1;
    back->failed = true;
    while (from > 0 && stack->data[from].sym != back)
        from--;
    Buf text = { .arena = f->c->arena };
    for (int i = from; i < stack->len; i++)
        if (i < from + 6 || i == stack->len - 1)
            buf_f(&text, "%s%s -> ", stack->data[i].sym->name,
                  stack->data[i].sym->kind == SYM_NEXT ? "'" : "");
        else if (i == from + 6)
            buf_f(&text, "... -> ");
    buf_f(&text, "%s%s", back->name, back->kind == SYM_NEXT ? "'" : "");
    const char *name = quoted_name(f, back->name, back->kind == SYM_NEXT);
    Span where = back->equations.len ? back->equations.data[0]->stmt->name_span : back->span;
    FLAT_ERROR(f, back->chain, where, "%s depends on itself: %s", name, text.data);
    for (int i = from + 1; i < stack->len && i < from + 8; i++)
        FLAT_NOTE(f, stack->data[i].use, "%s is used here",
                  quoted_name(f, stack->data[i].sym->name, stack->data[i].sym->kind == SYM_NEXT));
    FLAT_NOTE(f, use, "%s is used here", name);
}

static bool next_dep(Visit *v, Dep *out)
{
    for (; v->equation < v->sym->equations.len; v->equation++, v->dep = 0) {
        const Equation *eq = v->sym->equations.data[v->equation];
        if (v->dep < eq->deps.len) {
            *out = eq->deps.data[v->dep++];
            return true;
        }
    }
    return false;
}

/* Depth first, on a stack of its own: chains of definitions may be long. */
static void visit(Flat *f, Symbol *root, SymbolVec *order)
{
    Visits stack = { 0 };
    Visit first = { .sym = root };
    vec_push(f->c->arena, &stack, first);
    root->mark = 1;
    while (stack.len) {
        Visit *top = &stack.data[stack.len - 1];
        Dep d;
        if (!next_dep(top, &d)) {
            top->sym->mark = 2;
            vec_push(f->c->arena, order, top->sym);
            stack.len--;
        } else if (d.sym->mark == 1) {
            report_cycle(f, &stack, d.sym, d.span);
        } else if (d.sym->mark == 0) {
            Visit v = { .sym = d.sym, .use = d.span };
            d.sym->mark = 1;
            vec_push(f->c->arena, &stack, v);
        }
    }
}

void bind_symbols(Flat *f, SymbolVec *symbols, const Binding *outer)
{
    SymbolVec order = { 0 };
    for (int i = 0; i < symbols->len; i++)
        for (int k = 0; k < symbols->data[i]->equations.len; k++)
            bind_equation(f, symbols->data[i]->equations.data[k], outer);
    for (int i = 0; i < symbols->len; i++)
        if (symbols->data[i]->mark == 0)
            visit(f, symbols->data[i], &order);
    *symbols = order;
}
