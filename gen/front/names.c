/* names.c: names of values and where they are known. In come scopes as expand.c builds them; out go symbols,
 * the text of messages about names, and for a name that is not in scope the reason, if the text of the cell
 * tells it. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "flat.h"
#include "words.h"

Symbol *scope_find(const Scope *s, const char *name)
{
    for (; s; s = s->outer) {
        Symbol *found = map_get(&s->names, name);
        if (found)
            return found;
    }
    return NULL;
}

static bool is_in_cell(const Flat *f, const Scope *s)
{
    while (s && s != f->scope)
        s = s->outer;
    return s != NULL;
}

bool is_constant_pi(const Flat *f, const Scope *scope, const Expr *e)
{
    return e->kind == X_REF && !e->brackets && !e->primed && !e->time && strcmp(e->name, "pi") == 0 &&
           !scope_find(scope, e->name) && !(is_in_cell(f, scope) && map_get(&f->mentions, e->name));
}

/* For the suggestion when a name is unknown. The order of the slots follows addresses, so ties are broken by
 * name. */
static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names of one letter are near to none, but Rr may be R, and W may be W_x where nothing else begins so. */
static const char *suggest_short(const char *name, const char *const *names, int n)
{
    const char *longer = NULL;
    size_t len = strlen(name);
    int begin = 0;
    for (int i = 0; i < n; i++) {
        if (len == 2 && names[i][0] == name[0] && !names[i][1])
            return names[i];
        if (len == 1 && names[i][0] == name[0] && names[i][1]) {
            longer = names[i];
            begin++;
        }
    }
    return begin == 1 && (!longer[2] || longer[1] == '_') ? longer : NULL;
}

const char *index_letters(Flat *f, int rank)
{
    static const char letters[] = "ijklmnpq";
    char text[2 * sizeof letters] = "";
    for (int k = 0; k < rank && k < (int)sizeof letters - 1; k++) {
        text[2 * k] = letters[k];
        text[2 * k + 1] = k < rank - 1 ? ',' : 0;
    }
    return intern(f->c, text);
}

/* x_i of a value x with one axis, W_ij of one with two: the name of the value, or NULL. */
static const Symbol *subscripted(Flat *f, const Scope *scope, const char *name, const char **indices)
{
    const char *bar = strrchr(name, '_');
    size_t n = bar ? strlen(bar + 1) : 0;
    if (!n || n > 4 || bar == name || strspn(bar + 1, "abcdefghijklmnopqrstuvwxyz0123456789") != n)
        return NULL;
    const Symbol *s = scope_find(scope, intern_n(f->c, name, (size_t)(bar - name)));
    if (!s || s->kind <= SYM_NUMBER || s->rank != (int)n)
        return NULL;
    Buf text = { .arena = f->c->arena };
    for (size_t k = 0; k < n; k++)
        buf_f(&text, "%s%c", k ? "," : "", bar[1 + k]);
    *indices = text.data;
    return s;
}

/* Is it a value, with axes or a prime; a dim or another number of an extent; or anything. */
static bool is_such(const Symbol *s, const char *what)
{
    bool number = s->kind <= SYM_NUMBER;
    return strcmp(what, "value") == 0 ? !number : strcmp(what, "dim") == 0 ? number && s->kind != SYM_OPTION : true;
}

const char *suggest_value(Flat *f, const Scope *scope, const char *name, const char *what)
{
    Vec(const char *) names = { 0 };
    if (f->c->errors > 100) /* more are not shown, and each costs a walk over all names */
        return NULL;
    for (const Scope *s = scope; s; s = s->outer)
        for (int i = 0; i < s->names.cap && names.len < 2000; i++)
            if (s->names.slots[i].key && is_such(s->names.slots[i].value, what))
                vec_push(f->c->arena, &names, s->names.slots[i].key);
    if (names.len)
        qsort(names.data, (size_t)names.len, sizeof *names.data, by_name);
    const char *near = suggest(name, names.data, names.len);
    return near ? near : suggest_short(name, names.data, names.len);
}

SymbolKind data_kind(StmtKind k)
{
    return k == S_INPUT || k == S_RESET ? SYM_INPUT : k == S_PARAM ? SYM_PARAM : k == S_STATE ? SYM_STATE : SYM_OUTPUT;
}

/* How the value of `of` at this step, the one before (-1) or the next one is written. */
static const char *other_step(Flat *f, const Symbol *of, int step)
{
    const char *at = of->rank ? "[...]" : "";
    if (of->next)
        return intern_f(f->c, "%s%s is the state before the step, %s'%s the one after it", of->name, at, of->name, at);
    if (step < 0)
        return intern_f(f->c, "%s[%st - 1] is the value of the step before", of->name, of->rank ? "...; " : "; ");
    if (step > 0)
        return intern_f(f->c, "'%s' is %s, and later steps are not known", of->name, kind_name(of->kind));
    return intern_f(f->c, "%s%s is the value of this step", of->name, at);
}

static bool names_batch(const char *name)
{
    static const char *const words[] = {"B",       "batch",  "batch_size", "bsz",   "bs", "seq",
                                        "seq_len", "seqlen", "time",       "steps", "L"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(words[i], name) == 0)
            return true;
    return false;
}

void unknown_value(Flat *f, const Scope *scope, const CallSite *chain, Span span, const char *name,
                   const char *what)
{
    const Mention *m = map_get(&f->mentions, name);
    const char *near = suggest_value(f, scope, name, what);
    const Symbol *of;
    const char *base, *indices;
    int step;
    bool in_cell = is_in_cell(f, scope);
    if (m && in_cell && f->lost)
        return;
    if (m && in_cell && m->inside == S_WHEN)
        FLAT_ERROR(f, chain, span, "'%s' is only defined in a branch of a when that is not taken", name);
    else if (m && in_cell && m->inside == S_REPEAT)
        FLAT_ERROR(f, chain, span, "'%s' is local to the repeat that defines it", name);
    else if (m && in_cell && m->stmt->kind >= S_INPUT && m->stmt->kind <= S_RESET)
        FLAT_ERROR(f, chain, span, "'%s' is %s, but a constant is needed here", name,
                   kind_name(data_kind(m->stmt->kind)));
    else if (m && in_cell && m->stmt->kind >= S_DIM && m->stmt->kind <= S_OPTION)
        FLAT_ERROR(f, chain, span, "'%s' is declared later: constants and dims use what stands above them",
                   name);
    else if (foreign_step(f->c, name, &base, &step) && (of = scope_find(scope, base)) && of->kind > SYM_NUMBER)
        FLAT_ERROR(f, chain, span, "unknown %s '%s'; %s", what, name, other_step(f, of, step));
    else if (strcmp(what, "dim") == 0 && names_batch(name))
        FLAT_ERROR(f, chain, span,
                   "unknown dim '%s': the batch and the time are not written, a cell says one step of one "
                   "sequence",
                   name);
    else if (strcmp(what, "name") == 0 && (of = subscripted(f, scope, name, &indices)))
        FLAT_ERROR(f, chain, span, "unknown name '%s': indices stand in brackets, %s[%s]", name, of->name,
                   indices);
    else if (strcmp(what, "name") == 0 && foreign_value(name) && !(near && strcasecmp(near, name) == 0))
        FLAT_ERROR(f, chain, span, "unknown name '%s': %s", name, foreign_value(name));
    else if (near) {
        FLAT_ERROR(f, chain, span, "unknown %s '%s'; did you mean '%s'?", what, name, near);
        diag_fix(f->c, span, near);
    } else
        FLAT_ERROR(f, chain, span, "unknown %s '%s'%s", what, name,
                   strcmp(what, "name") == 0 ? ", neither a value nor an index in scope" : "");
    if (m && in_cell && (m->inside || m->stmt->kind != S_EQ))
        FLAT_NOTE(f, m->stmt->name_span, "it is %s here", m->stmt->kind == S_EQ ? "defined" : "declared");
}

void find_mentions(Flat *f, const StmtVec *body, StmtKind inside)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        bool named = s->kind != S_FN && s->kind != S_WHEN && s->kind != S_REPEAT && s->name && !s->primed;
        if (named && !map_get(&f->mentions, s->name)) {
            Mention *m = arena_alloc(f->c->arena, sizeof *m);
            *m = (Mention){ s, s->kind == S_CARRY ? 0 : inside };
            map_put(f->c->arena, &f->mentions, s->name, m);
        }
        if (s->kind == S_WHEN || s->kind == S_REPEAT) {
            find_mentions(f, &s->body, s->kind);
            find_mentions(f, &s->other, s->kind);
        }
    }
}

const char *kind_name(SymbolKind k)
{
    switch (k) {
    case SYM_DIM: return "a dim";
    case SYM_CONST: return "a constant";
    case SYM_OPTION: return "an option";
    case SYM_NUMBER: return "the index of a repeat";
    case SYM_INPUT: return "an input";
    case SYM_PARAM: return "a param";
    case SYM_STATE: return "a state";
    case SYM_OUTPUT: return "an output";
    case SYM_DEF: return "a definition";
    case SYM_NEXT: return "the next value of a state";
    case SYM_INIT: return "an initial value";
    case SYM_ARRAY_ARG:
    case SYM_SCALAR_ARG:
    case SYM_COTANGENT: return "a parameter of the function";
    }
    return "a name";
}

Symbol *new_symbol(Flat *f, SymbolKind kind, const char *name, Span span, Instance *owner)
{
    Symbol *s = arena_alloc(f->c->arena, sizeof *s);
    s->kind = kind;
    s->name = name;
    s->span = span;
    s->owner = owner;
    s->tensor = -1;
    s->node = s->im = s->packed = -1;
    return s;
}

bool is_reserved(Flat *f, const char *name)
{
    return name == intern(f->c, "t") || name == intern(f->c, "T");
}

/* Puts a name into a scope; false, with a diagnostic, when it is taken there. */
bool declare(Flat *f, Scope *scope, Symbol *s, const CallSite *chain)
{
    Symbol *old = map_get(&scope->names, s->name);
    if (is_reserved(f, s->name)) {
        FLAT_ERROR(f, chain, s->span, "'%s' is reserved: t is the number of the step, T the number of steps",
                   s->name);
        return false;
    }
    if (old) {
        FLAT_ERROR(f, chain, s->span, "'%s' is already the name of %s", s->name, kind_name(old->kind));
        FLAT_NOTE(f, old->span, "'%s' is declared here", s->name);
        old->failed = true;
        return false;
    }
    map_put(f->c->arena, &scope->names, s->name, s);
    return true;
}

/* 'x', but x' as it is: a prime in quotes is hard to read. */
const char *quoted_name(Flat *f, const char *name, bool primed)
{
    return intern_f(f->c, primed ? "%s'" : "'%s'", name);
}
