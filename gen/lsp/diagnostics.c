/* diagnostics.c: what is wrong in a document, as the editor shows it. In: the faults of an analysis. Out:
 * diagnostics in the document, with the places that belong to them, and edits that mend them where the
 * compiler knows some. */
#include <string.h>

#include "front/front.h"
#include "server.h"

static int severity(DiagLevel level)
{
    return level == DIAG_ERROR ? 1 : level == DIAG_WARNING ? 2 : 3;
}

/* The statement of the document that brings the file in, or its first import. */
static Span import_of(const Analysis *a, const char *path)
{
    Span found = { a->file, 0, 0 };
    bool any = false;
    for (int i = 0; a->ast && i < a->ast->items.len; i++) {
        const Stmt *s = a->ast->items.data[i];
        const char *there = s->kind == S_IMPORT && !import_refused(s->text)
                            ? import_find(a->c, a->file, s->text) : NULL;
        if (!there)
            continue;
        if (strcmp(there, path) == 0)
            return s->span;
        if (!any)
            found = s->span;
        any = true;
    }
    return found;
}

static bool in_document(const Analysis *a, const Fault *f, Span at)
{
    return at.file >= 0 && at.file < f->c->sources.len && strcmp(f->c->sources.data[at.file].path,
                                                                 a->path) == 0;
}

/* Where a fault is shown: at its place, at the call in the document that leads there, or at the import of
 * its file. */
static Span shown_at(const Analysis *a, const Fault *f)
{
    Span at = f->first->span;
    if (in_document(a, f, at))
        return at;
    for (const CallSite *k = f->first->chain; k; k = k->outer)
        if (in_document(a, f, k->span))
            return k->span;
    if (at.file < 0 || at.file >= f->c->sources.len)
        return (Span) { a->file, 0, 0 };
    return import_of(a, f->c->sources.data[at.file].path);
}

static void put_related_one(const Server *s, const Fault *f, Span at, const char *text, bool *any, Buf *out)
{
    if (at.file < 0 || at.file >= f->c->sources.len)
        return;
    buf_f(out, *any ? ", {\"location\": " : "{\"location\": ");
    put_location(s, &f->c->sources.data[at.file], at, out);
    buf_f(out, ", \"message\": ");
    put_string(out, text);
    buf_f(out, "}");
    *any = true;
}

static void put_related(const Server *s, const Analysis *a, const Fault *f, Buf *out)
{
    enum { MAX_CHAIN = 8 };
    bool any = false;
    buf_f(out, ", \"relatedInformation\": [");
    if (f->first->span.file >= 0 && !in_document(a, f, f->first->span))
        put_related_one(s, f, f->first->span, f->first->text, &any, out);
    for (int i = 0; i < f->count; i++) {
        int n = 0;
        if (i > 0)
            put_related_one(s, f, f->first[i].span, f->first[i].text, &any, out);
        for (const CallSite *k = f->first[i].chain; k && n < MAX_CHAIN; k = k->outer, n++) {
            Buf text = { .arena = out->arena };
            buf_f(&text, "in the expansion of '%s'", k->fn ? k->fn : "?");
            put_related_one(s, f, k->span, text.data, &any, out);
        }
    }
    buf_f(out, "]");
}

static void put_message(const Server *s, const Fault *f, Buf *out)
{
    Buf text = { .arena = out->arena };
    buf_f(&text, "%s", f->first->text);
    if (*f->with)
        buf_f(&text, " (with %s)", f->with);
    for (int i = 1; i < f->count && !s->related; i++)
        buf_f(&text, "\n%s", f->first[i].text);
    put_string_n(out, text.data, text.len);
}

static void put_diagnostic(const Server *s, const Document *d, const Analysis *a, const Fault *f, Buf *out)
{
    Span at = shown_at(a, f);
    buf_f(out, "{");
    put_range(s, d, "range", at.lo, at.hi, out);
    buf_f(out, ", \"severity\": %d, \"source\": \"cellc\", \"message\": ", severity(f->first->level));
    put_message(s, f, out);
    if (s->related)
        put_related(s, a, f, out);
    if (f->first->level == DIAG_WARNING && strstr(f->first->text, "is never used"))
        buf_f(out, ", \"tags\": [1]");
    buf_f(out, "}");
}

static void publish(Server *s, const Document *d, const Analysis *a)
{
    Arena *arena = arena_new();
    Buf out = { .arena = arena };
    buf_f(&out, "{\"uri\": ");
    put_string(&out, d->uri);
    if (a && d->has_version)
        buf_f(&out, ", \"version\": %d", d->version);
    buf_f(&out, ", \"diagnostics\": [");
    for (int i = 0; a && i < a->faults.len; i++) {
        buf_f(&out, i ? ", " : "");
        put_diagnostic(s, d, a, &a->faults.data[i], &out);
    }
    buf_f(&out, "]}");
    rpc_notify(s->rpc, "textDocument/publishDiagnostics", &out);
    arena_free(arena);
}

void diagnostics_tell(Server *s, Document *d)
{
    const Analysis *a = document_look(s, d);
    d->tell = false;
    d->told = a->faults.len;
    publish(s, d, a);
}

void diagnostics_forget(Server *s, const Document *d)
{
    publish(s, d, NULL);
}

/* ---- what mends a fault */

static const char *fix_title(const Analysis *a, const Diag *first, Arena *arena)
{
    Buf title = { .arena = arena };
    size_t n = strcspn(first->fix, "\n");
    const char *text = a->c->sources.data[a->file].text;
    if (first->fix_span.hi > first->fix_span.lo)
        buf_f(&title, "write '%s' in place of '%.*s'", first->fix,
              (int)(first->fix_span.hi - first->fix_span.lo),
              text + first->fix_span.lo);
    else
        buf_f(&title, "put in '%.*s'", (int)n, first->fix);
    return title.data;
}

static bool touches(Span a, uint32_t lo, uint32_t hi)
{
    return a.lo <= hi && lo <= a.hi;
}

int answer_code_action(Request *r, const char **why)
{
    const Json *range = json_member(r->params, "range"), *start = json_member(range, "start"),
                        *end = json_member(range, "end");
    int line = json_int(json_member(start, "line"), -1), end_line = json_int(json_member(end, "line"), -1);
    if (line < 0 || end_line < 0) {
        *why = "the range of the code action is missing";
        return RPC_INVALID_PARAMS;
    }
    uint32_t bias = document_bias(r->d);
    Place from = { line, json_int(json_member(start, "character"), 0) },
                 to = { end_line, json_int(json_member(end, "character"), 0) };
    uint32_t lo = (uint32_t)text_offset(&r->d->text, from, r->s->units),
                  hi = (uint32_t)text_offset(&r->d->text, to, r->s->units);
    lo -= lo < bias ? lo : bias;
    hi -= hi < bias ? hi : bias;
    bool any = false;
    analysis_finish(r->a);
    buf_f(&r->out, "[");
    for (int i = 0; r->s->mends && i < r->a->faults.len; i++) {
        const Fault *f = &r->a->faults.data[i];
        if (!f->first->fix || !in_document(r->a, f, f->first->fix_span) ||
            !touches(shown_at(r->a, f), lo, hi))
            continue;
        buf_f(&r->out, "%s{\"title\": ", any ? ", " : "");
        put_string(&r->out, fix_title(r->a, f->first, r->m->arena));
        buf_f(&r->out, ", \"kind\": \"quickfix\", \"isPreferred\": true, \"diagnostics\": [");
        put_diagnostic(r->s, r->d, r->a, f, &r->out);
        buf_f(&r->out, "], \"edit\": {\"changes\": {");
        put_string(&r->out, r->d->uri);
        buf_f(&r->out, ": [{");
        put_range(r->s, r->d, "range", f->first->fix_span.lo, f->first->fix_span.hi, &r->out);
        buf_f(&r->out, ", \"newText\": ");
        put_string(&r->out, f->first->fix);
        buf_f(&r->out, "}]}}}");
        any = true;
    }
    buf_f(&r->out, "]");
    return 0;
}
