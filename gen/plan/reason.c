/* reason.c: why a schedule does not take a cell, as text and as a place of the spec, so that explain and a
 * performance warning say the same. In: a module, a place or a value. Out: Reasons of the module's arena. */
#include <string.h>

#include "emit/emit.h"
#include "reason.h"

static const Reason *made(const Module *m, Span at, bool gradient, const char *fmt, va_list args)
{
    Reason *r = arena_alloc(m->arena, sizeof *r);
    *r = (Reason){ arena_text(m->arena, fmt, args), at, gradient };
    return r;
}

const Reason *reason(const Module *m, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const Reason *r = made(m, (Span){ .file = -1 }, false, fmt, args);
    va_end(args);
    return r;
}

const Reason *reason_at(const Module *m, Span at, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const Reason *r = made(m, at, false, fmt, args);
    va_end(args);
    return r;
}

/* Of what a fn of another file made, where the cell uses it. */
static Span place_of(const Module *m, const Node *value)
{
    Span at = value->span;
    for (const CallSite *k = value->chain; k && at.file != m->span.file; k = k->outer)
        at = k->span;
    return at;
}

const Reason *reason_of(const Module *m, const Node *value, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const Reason *r = made(m, place_of(m, value), (value->dep & DEP_COTANGENT) != 0, fmt, args);
    va_end(args);
    return r;
}

const char *line_words(const Module *m, Span at)
{
    const char *place = source_place(m, at, false), *colon = strrchr(place, ':');
    return colon && at.file == m->span.file ? intern_f(m->c, "line %s", colon + 1) : place;
}

const char *reason_words(const Module *m, const Reason *r)
{
    const char *line = line_words(m, r->at);
    return *line ? intern_f(m->c, "%s (%s%s)", r->text, r->gradient ? "the gradient of " : "", line)
                 : r->text;
}
