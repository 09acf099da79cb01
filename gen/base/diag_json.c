/* diag_json.c: what is said about sources, for programs (editors, bindings). In: a diagnostic and the notes behind
 * it. Out: one JSON object on a line of its own:
 *
 *     {"level": "error", "message": "...", "file": "a.cell", "line": 3, "column": 5, "end_line": 3,
 *      "end_column": 9, "text": "the first line of the range", "notes": [...]}
 *
 * Lines and columns count from 1, columns in characters; the end is behind the range's last character. What has no
 * place (a wrong --set, say) has no file, line, column or text. A note has the members of its diagnostic, without
 * notes; an expansion of a fn is one. */
#include <string.h>

#include "compiler.h"
#include "say.h"

static void put_place(const Compiler *c, Span span, Buf *out)
{
    const Source *s = &c->sources.data[span.file];
    uint32_t lo = span.lo < s->len ? span.lo : (uint32_t)s->len, hi = span.hi < s->len ? span.hi : (uint32_t)s->len;
    int line, column, end_line, end_column;
    source_position(s, lo, &line, &column);
    source_position(s, hi > lo ? hi : lo, &end_line, &end_column);
    const char *text = s->text + s->line_start[line - 1];
    size_t len = (line < s->lines ? s->line_start[line] : s->len) - s->line_start[line - 1];
    while (len && (text[len - 1] == '\n' || text[len - 1] == '\r'))
        len--;
    buf_f(out, ", \"file\": ");
    buf_json(out, s->path, strlen(s->path));
    buf_f(out, ", \"line\": %d, \"column\": %d, \"end_line\": %d, \"end_column\": %d, \"text\": ", line, column,
          end_line, end_column);
    buf_json(out, text, len);
}

static void put_one(const Compiler *c, DiagLevel level, Span span, const char *text, Buf *out)
{
    buf_f(out, "{\"level\": \"%s\", \"message\": ", level_word(level));
    buf_json(out, text, strlen(text));
    if (span.file >= 0 && span.file < c->sources.len)
        put_place(c, span, out);
}

static void put_note(const Compiler *c, Span span, const char *text, bool *any, Buf *out)
{
    buf_f(out, *any ? ", " : "");
    put_one(c, DIAG_NOTE, span, text, out);
    buf_f(out, "}");
    *any = true;
}

static void put_chain(const Compiler *c, const CallSite *chain, bool *any, Buf *out)
{
    for (; chain; chain = chain->outer) {
        Buf text = { .arena = c->arena };
        buf_f(&text, "in the expansion of '%s'", chain->fn ? chain->fn : "?");
        put_note(c, chain->span, text.data, any, out);
    }
}

void diag_json(const Compiler *c, const Diag *first, int count, FILE *to)
{
    Buf out = { .arena = c->arena };
    bool any = false;
    put_one(c, first->level, first->span, first->text, &out);
    buf_f(&out, ", \"notes\": [");
    put_chain(c, first->chain, &any, &out);
    for (int i = 1; i < count; i++) {
        put_note(c, first[i].span, first[i].text, &any, &out);
        put_chain(c, first[i].chain, &any, &out);
    }
    buf_f(&out, "]}\n");
    fwrite(out.data, 1, out.len, to);
}
