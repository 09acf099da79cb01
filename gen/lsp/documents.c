/* documents.c: the texts that the editor has open. In: their changes. Out: an analysis of each that is up to
 * date whenever somebody asks, and ranges in the editor's units. Guaranteed: a text is looked at once after
 * each change of it or of what it reads, and the last analysis without errors is kept beside the one of the
 * text. */
#include <stdlib.h>
#include <string.h>

#include "base/say.h"
#include "server.h"

void put_string_n(Buf *out, const char *text, size_t n)
{
    buf_json(out, text, n);
}

void put_string(Buf *out, const char *text)
{
    buf_json(out, text, strlen(text));
}

void put_markup(Buf *out, const char *text, size_t n, bool marks)
{
    Buf plain = { .arena = out->arena };
    for (size_t i = 0; i < n && !marks; i++) {
        size_t line = strncmp(text + i, "```", 3) == 0 ? strcspn(text + i, "\n") + 1 : 0;
        if (line)
            i += line - 1;
        else if (text[i] != '`')
            buf_f(&plain, "%c", text[i]);
    }
    if (marks)
        buf_f(out, "{\"kind\": \"markdown\", \"value\": ");
    put_string_n(out, marks ? text : plain.data ? plain.data : "", marks ? n : plain.len);
    buf_f(out, marks ? "}" : "");
}

static char *copy_of(const char *text)
{
    char *copy = strdup(text);
    if (!copy) {
        say(DIAG_ERROR, "lsp", "out of memory");
        exit(70);
    }
    return copy;
}

Document *document_find(const Server *s, const char *uri)
{
    for (Document *d = s->documents; d && uri; d = d->next)
        if (strcmp(d->uri, uri) == 0)
            return d;
    return NULL;
}

Document *document_at(const Server *s, const char *path)
{
    for (Document *d = s->documents; d; d = d->next)
        if (strcmp(d->path, path) == 0)
            return d;
    return NULL;
}

Document *document_open(Server *s, const char *uri, const char *text, size_t len)
{
    Document *d = document_find(s, uri);
    if (!d) {
        Arena *arena = arena_new();
        d = calloc(1, sizeof *d);
        if (!d) {
            say(DIAG_ERROR, "lsp", "out of memory");
            exit(70);
        }
        d->uri = copy_of(uri);
        d->path = copy_of(uri_path(arena, uri));
        arena_free(arena);
        d->next = s->documents;
        s->documents = d;
    }
    text_set(&d->text, text, len);
    documents_stale(s);
    return d;
}

static void forget(Document *d)
{
    if (d->good != d->now)
        analysis_free(d->good);
    analysis_free(d->now);
    d->now = d->good = NULL;
}

void document_close(Server *s, Document *d)
{
    for (Document **at = &s->documents; *at; at = &(*at)->next)
        if (*at == d) {
            *at = d->next;
            break;
        }
    forget(d);
    text_free(&d->text);
    free(d->uri);
    free(d->path);
    free(d);
    documents_stale(s);
}

void documents_stale(Server *s)
{
    for (Document *d = s->documents; d; d = d->next)
        d->dirty = d->tell = true;
}

void document_changed(Server *s, Document *d)
{
    for (Document *o = s->documents; o; o = o->next)
        if (o == d || !o->now || analysis_reads(o->now, d->path))
            o->dirty = o->tell = true;
}

/* What an analysis reads; `instead` stands for the text of d. The list is in the arena. */
static Sources sources_of(const Server *s, const Document *d, const char *instead, size_t len, Arena *arena)
{
    int n = 0;
    for (const Document *o = s->documents; o; o = o->next)
        n++;
    OpenText *open = arena_alloc(arena, sizeof *open * (size_t)(n + 1));
    n = 0;
    for (const Document *o = s->documents; o; o = o->next)
        open[n++] = o == d && instead ? (OpenText) { o->path, instead, len }
                                      : (OpenText) { o->path, o->text.data ? o->text.data : "", o->text.len };
    return (Sources) { open, n, s->import_dir, s->library_dir };
}

Analysis *document_try(const Server *s, const Document *d, const char *text, size_t len)
{
    Arena *arena = arena_new();
    Sources from = sources_of(s, d, text, len, arena);
    Analysis *a = analyse(&from, d->path);
    arena_free(arena);
    return a;
}

Analysis *document_look(Server *s, Document *d)
{
    if (!d->dirty && d->now)
        return d->now;
    Analysis *old = d->now;
    d->now = document_try(s, d, NULL, 0);
    if (d->now->sound) {
        if (d->good != old)
            analysis_free(d->good);
        d->good = d->now;
    }
    if (old != d->good)
        analysis_free(old);
    d->dirty = false;
    return d->now;
}

uint32_t document_bias(const Document *d)
{
    return d->text.len >= 3 && memcmp(d->text.data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

static void put_text_range(const Text *t, PlaceUnits units, const char *key, size_t lo, size_t hi, Buf *out)
{
    Place from = text_place(t, lo, units), to = text_place(t, hi, units);
    buf_f(out, "\"%s\": {\"start\": {\"line\": %d, \"character\": %d}, \"end\": {\"line\": %d, \"character\": %d}}",
          key, from.line, from.character, to.line, to.character);
}

void put_range(const Server *s, const Document *d, const char *key, uint32_t lo, uint32_t hi, Buf *out)
{
    uint32_t bias = document_bias(d);
    put_text_range(&d->text, s->units, key, lo + bias, (hi > lo ? hi : lo) + bias, out);
}

void put_location(const Server *s, const Source *source, Span at, Buf *out)
{
    const Document *d = document_at(s, source->path);
    Buf uri = { .arena = out->arena };
    if (d)
        buf_f(&uri, "%s", d->uri);
    else
        path_uri(source->path, &uri);
    buf_f(out, "{\"uri\": ");
    put_string_n(out, uri.data ? uri.data : "", uri.len);
    buf_f(out, ", ");
    if (d) {
        put_range(s, d, "range", at.lo, at.hi, out);
    } else {
        Text t = { 0 };
        text_set(&t, source->text, source->len);
        put_text_range(&t, s->units, "range", at.lo, at.hi, out);
        text_free(&t);
    }
    buf_f(out, "}");
}
