/* hover.c: what a name is. In: a place in a document. Out: Markdown: the declaration, its kind, shape and
 * type, when it is computed, and what its comment says; for a word of the language, what it means. What the
 * text of the moment does not tell, because something else in it is broken, is taken from the last text
 * without errors. */
#include <string.h>

#include "front/flat.h"
#include "server.h"

/* The variant that has the name: in the analysis, or in one before. */
typedef struct Known { Variant *v; const Symbol *symbol; const Poly *extent; } Known;

static bool same_cell(const Variant *v, const Name *n)
{
    return v->cell && (!n->cell || strcmp(v->cell->name, n->cell->name) == 0);
}

static bool has_shape(const Symbol *x)
{
    bool axes = x->rank == 0 || (x->rank > 0 && x->axes && x->axes[0]);
    return x->kind <= SYM_NUMBER || axes;
}

static Known look_in(const Analysis *a, const Name *n)
{
    Known found = { 0 };
    for (int i = 0; i < a->variants.len; i++) {
        Variant *v = a->variants.data[i];
        if (!same_cell(v, n))
            continue;
        const Poly *extent = n->kind == NAME_INDEX ? variant_extent(v, n) : NULL;
        const Symbol *x = n->kind == NAME_INDEX ? NULL : variant_symbol(v, n);
        if (extent || (x && has_shape(x)))
            return (Known) { v, x, extent };
        if (x && !found.symbol)
            found = (Known) { v, x, NULL };
    }
    return found;
}

static Known look_for(const Document *d, const Name *n)
{
    Known now = look_in(d->now, n), before = { 0 };
    while (!now.symbol && !now.extent && analysis_goes_on(d->now)) {  /* in a branch not taken so far */
        analysis_step(d->now);
        now = look_in(d->now, n);
    }
    bool told = now.extent || (now.symbol && has_shape(now.symbol));
    if (!told && d->good && d->good != d->now)
        before = look_in(d->good, n);
    return before.v ? before : now;
}

static void put_size(const Known *k, const Poly *p, Buf *out)
{
    Buf text = { .arena = out->arena };
    poly_print_spec(k->v->flat->m, p, &text);
    buf_f(out, "%s", text.data ? text.data : "?");
}

static const char *type_words(const Name *n, const Symbol *x)
{
    bool data = n->kind == NAME_INPUT || n->kind == NAME_PARAM || n->kind == NAME_OUTPUT;
    if (data && n->stmt && n->stmt->text)
        return n->stmt->text;
    if (x->is_complex || x->type == TY_COMPLEX)
        return "complex";
    if (x->is_rounded)
        return "rounded to the type of tensors";
    return x->type == TY_INT ? "whole numbers" : x->type == TY_BOOL ? "truth values" : NULL;
}

static void put_shape(const Known *k, const Name *n, Buf *out)
{
    const Symbol *x = k->symbol;
    const char *type = type_words(n, x);
    if (x->rank < 0 || (x->rank > 0 && (!x->axes || !x->axes[0])))
        return;
    buf_f(out, x->rank ? ", shape `[" : ", a number");
    for (int i = 0; i < x->rank; i++) {
        buf_f(out, i ? ", " : "");
        if (x->axes[i])
            put_size(k, x->axes[i], out);
        else
            buf_f(out, "?");
    }
    buf_f(out, x->rank ? "]`" : "");
    if (type)
        buf_f(out, ", %s", type);
}

static void put_value(const Known *k, Buf *out)
{
    const Symbol *x = k->symbol;
    if (x->kind == SYM_DIM && x->size) {
        buf_f(out, x->size->is_const ? ", here " : ", chosen at run time");
        if (x->size->is_const)
            put_size(k, x->size, out);
    } else if (x->kind == SYM_CONST) {
        buf_f(out, ", here %.10g", x->value.num);
    } else if (x->kind == SYM_OPTION && x->value.is_name) {
        buf_f(out, ", here %s", x->value.name);
    }
}

/* The words of explain on when the value is computed; NULL: it is not planned, or a part of other values. */
static const char *when_words(const Known *k, const Symbol *x)
{
    plan_variant(k->v);
    for (int i = 0; x && x->ir_name && i < k->v->when.len; i++)
        if (strcmp(k->v->when.data[i].name, x->ir_name) == 0)
            return k->v->when.data[i].words;
    return NULL;
}

static void put_phase(const Known *k, const Name *n, bool primed, Buf *out)
{
    const Symbol *x = primed && k->symbol->next ? k->symbol->next : k->symbol;
    const char *when = NULL;
    switch (n->kind) {
    case NAME_INPUT: case NAME_RESET: buf_f(out, "\n\nGiven at each step."); return;
    case NAME_PARAM: buf_f(out, "\n\nThe same at all steps and for all sequences."); return;
    case NAME_STATE:
        buf_f(out, primed ? "\n\nThe state's next value"
              : "\n\nThe value before the step; `%s'` is the one after it.", n->name);
        if (!primed)
            return;
        break;
    case NAME_OUTPUT: case NAME_DEFINITION: case NAME_CARRY: break;
    default: return;
    }
    if (n->fn && n->kind == NAME_DEFINITION) {
        buf_f(out, "\n\nOf fn `%s`, computed where it is called.", n->fn->name);
        return;
    }
    when = when_words(k, x);
    if (when && n->kind == NAME_STATE)
        buf_f(out, ", %s.", when);
    else if (when)
        buf_f(out, "\n\n%c%s.", *when >= 'a' && *when <= 'z' ? *when - 'a' + 'A' : *when, when + 1);
    else if (n->kind == NAME_STATE)
        buf_f(out, ".");
}

static void put_choices(const Request *r, const Name *option, Buf *out)
{
    bool any = false;
    for (int i = 0; i < r->a->names->all.len; i++) {
        const Name *x = r->a->names->all.data[i];
        if (x->option != option)
            continue;
        buf_f(out, any ? ", `%s`" : "\n\nIts choices are `%s` (the default)", x->name);
        any = true;
    }
}

static void put_name(const Request *r, const Use *u, Buf *out)
{
    const Name *n = u->name;
    Compiler *c = r->a->c;
    const Source *source = &c->sources.data[n->span.file];
    const char *comment = comment_of(r->m->arena, source, n->kind == NAME_CHOICE ? NULL : n->stmt);
    Known k = { 0 };
    if (n->kind != NAME_FN && n->kind != NAME_CELL && n->kind != NAME_CHOICE)
        k = look_for(r->d, n);
    buf_f(out, "```cell\n%s\n```\n\n%c%s", declaration_text(c, source, n), name_kind_words(n)[0] - 'a' + 'A',
          name_kind_words(n) + 1);
    if (n->kind == NAME_CHOICE)
        buf_f(out, " `%s`", n->option->name);
    if (k.symbol)
        put_value(&k, out);
    if (k.symbol && k.symbol->kind > SYM_NUMBER)
        put_shape(&k, n, out);
    if (k.extent) {
        buf_f(out, ", from 0 to below `");
        put_size(&k, k.extent, out);
        buf_f(out, "`");
    }
    if (n->kind == NAME_FN && n->span.file != r->a->file)
        buf_f(out, " of `%s`", source->path);
    if (k.v && *k.v->with)
        buf_f(out, ", with `%s`", k.v->with);
    if (k.symbol)
        put_phase(&k, n, u->primed, out);
    if (n->kind == NAME_OPTION)
        put_choices(r, n, out);
    if (*comment)
        buf_f(out, "\n\n%s", comment);
}

/* The word at the place, where it is none of the spec; NULL: there is no word. */
static const char *word_at(const Request *r, Span *at)
{
    const Source *s = &r->a->c->sources.data[r->a->file];
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    uint32_t lo = r->at < s->len ? r->at : (uint32_t)s->len, hi = lo;
    while (lo > 0 && s->text[lo - 1] && strchr(letters, s->text[lo - 1]))
        lo--;
    while (hi < s->len && s->text[hi] && strchr(letters, s->text[hi]))
        hi++;
    *at = (Span) { r->a->file, lo, hi };
    return hi > lo ? intern_n(r->a->c, s->text + lo, hi - lo) : NULL;
}

/* Is the place in a comment or a string? */
static bool in_comment(const Request *r)
{
    const Source *s = &r->a->c->sources.data[r->a->file];
    uint32_t i = r->at < s->len ? r->at : (uint32_t)s->len;
    bool quoted = false;
    while (i > 0 && s->text[i - 1] != '\n')
        i--;
    for (; i < r->at && i < s->len; i++) {
        if (!quoted && s->text[i] == '/' && s->text[i + 1] == '/')
            return true;
        quoted ^= s->text[i] == '"';
    }
    return quoted;
}

/* The thing of the last text without errors that has the word as its name. */
static const Use *use_before(const Document *d, const char *word)
{
    for (int i = 0; d->good && d->good != d->now && d->good->names && i < d->good->names->uses.len; i++) {
        const Use *u = &d->good->names->uses.data[i];
        if (u->name && strcmp(u->name->name, word) == 0)
            return u;
    }
    return NULL;
}

int answer_hover(Request *r, const char **why)
{
    (void)why;
    const Use *u = r->a->names ? names_at(r->a->names, r->at) : NULL;
    Buf text = { .arena = r->m->arena };
    Span at;
    const char *word = in_comment(r) ? NULL : word_at(r, &at);
    if (u && u->name) {
        put_name(r, u, &text);
        at = u->span;
    } else if (word && language_word(r->a->c, word)) {
        buf_f(&text, "%s", language_word(r->a->c, word));
    } else if (word && use_before(r->d, word)) {
        Request before = *r;
        before.a = r->d->good;
        put_name(&before, use_before(r->d, word), &text);
    }
    if (!text.len)
        return 0;
    buf_f(&r->out, "{\"contents\": ");
    put_markup(&r->out, text.data, text.len, r->s->marks_hover);
    buf_f(&r->out, ", ");
    put_range(r->s, r->d, "range", at.lo, at.hi, &r->out);
    buf_f(&r->out, "}");
    return 0;
}
