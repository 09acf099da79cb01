/* doc_json.c: what `cellc doc --json` prints, for tools that make pages. In: what doc_collect found, and the plan. Out: one
 * JSON object, of which the man page names the members. Texts are the spec's, `text`, `letter`, `value`, `init` and
 * `only_if` in Unicode (typeset.c), equations also in MathML (mathml.c). */
#include <string.h>

#include "base/say.h"
#include "doc.h"
#include "explain.h"
#include "front/mathml.h"
#include "front/typeset.h"
#include "plan/plan.h"
#include "schedule/chunk/chunk.h"

typedef struct Json {
    const DocCell *d;
    Buf *out;
} Json;

static void put_string(const Json *j, const char *key, const char *text)
{
    buf_f(j->out, "\"%s\": ", key);
    if (text)
        buf_json(j->out, text, strlen(text));
    else
        buf_f(j->out, "null");
}

static const char *in_unicode(const Json *j, const char *s, size_t n)
{
    Buf b = { .arena = j->d->c->arena };
    typeset(s, n, &b);
    return b.len ? b.data : "";
}

static const char *letter_of(const Json *j, const char *name)
{
    return in_unicode(j, name, strlen(name));
}

static const char *text_at(const Json *j, Span s)
{
    return in_unicode(j, j->d->source->text + s.lo, s.hi - s.lo);
}

/* ---- equations ---- */

static const char *mathml_of(const Json *j, const DocLine *line)
{
    Buf b = { .arena = j->d->c->arena };
    switch (line->kind) {
    case LINE_COMMENT: case LINE_IF: case LINE_OTHERWISE: case LINE_UNLESS: return NULL;
    case LINE_FOR: mathml_range(j->d->source, &line->stmt->lhs.data[0], &b); break;
    case LINE_FUNCTION: case LINE_EQUATION: mathml_statement(j->d->source, line->stmt, &b); break;
    }
    return b.data;
}

static void put_line(const Json *j, const DocLine *line)
{
    static const char *const kinds[] = { "comment", "if", "otherwise", "unless", "for", "function", "equation" };
    const Source *source = j->d->source;
    int row = 0, column;
    if (line->stmt)
        source_position(source, line->stmt->span.lo, &row, &column);
    buf_f(j->out, "{\"kind\": \"%s\", \"depth\": %d, \"line\": %d, ", kinds[line->kind], line->depth, row);
    put_string(j, "text", doc_text(j->d, line));
    buf_f(j->out, ", ");
    put_string(j, "mathml", mathml_of(j, line));
    buf_f(j->out, ", ");
    put_string(j, "note", line->note);
    buf_f(j->out, "}");
}

/* ---- declarations ---- */

static void put_size(const Json *j, const DocRow *row)
{
    const Stmt *s = row->stmt;
    put_string(j, "name", s->name);
    buf_f(j->out, ", ");
    put_string(j, "letter", letter_of(j, s->name));
    buf_f(j->out, ", ");
    put_string(j, "value", s->value ? text_at(j, s->value->span) : NULL);
}

static void put_option(const Json *j, const DocRow *row)
{
    put_string(j, "name", row->stmt->name);
    buf_f(j->out, ", \"values\": [");
    for (int i = 0; i < row->stmt->choices.len; i++) {
        buf_f(j->out, i ? ", " : "");
        buf_json(j->out, row->stmt->choices.data[i], strlen(row->stmt->choices.data[i]));
    }
    buf_f(j->out, "]");
}

static void put_tensor(const Json *j, const DocRow *row)
{
    const Stmt *s = row->stmt;
    const Domain *in = s->domain;
    const struct { const char *key, *text; } members[] = {
        { "role", doc_role(s) },
        { "name", s->name },
        { "letter", letter_of(j, s->name) },
        { "shape", doc_shape(j->d, s) },
        { "type", s->text },
        { "domain", in ? intern_n(j->d->c, j->d->source->text + in->span.lo, in->span.hi - in->span.lo) : NULL },
        { "init", s->init ? text_at(j, s->init->span) : NULL },
        { "only_if", doc_where(j->d, row) },
    };
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        buf_f(j->out, i ? ", " : "");
        put_string(j, members[i].key, members[i].text);
    }
}

static void put_rows(const Json *j, const char *key, const DocRows *rows, void (*put)(const Json *, const DocRow *))
{
    buf_f(j->out, ",\n\"%s\": [", key);
    for (int i = 0; i < rows->len; i++) {
        buf_f(j->out, i ? ",\n  {" : "\n  {");
        put(j, &rows->data[i]);
        buf_f(j->out, ", ");
        put_string(j, "note", rows->data[i].note);
        buf_f(j->out, "}");
    }
    buf_f(j->out, "]");
}

/* ---- what the compiler found ---- */

/* Axes of the largest state as the spec declares it. Linear, or in chunks: each group of states that feed one another,
 * where what other groups hold is given. */
static void put_states(const Json *j)
{
    int axes = 0;
    bool complex = false;
    for (int i = 0; i < j->d->tensors.len; i++) {
        const Stmt *s = j->d->tensors.data[i].stmt;
        if (s->kind != S_STATE)
            continue;
        axes = s->axes.len > axes ? s->axes.len : axes;
        complex |= s->text && strcmp(s->text, "complex") == 0;
    }
    bool walks = doc_walks(j->d);
    buf_f(j->out, ",\n\"state_axes\": ");
    buf_f(j->out, walks ? "%d" : "null", axes);
    buf_f(j->out, ",\n\"complex\": %s", complex ? "true" : "false");
    if (!walks) {
        buf_f(j->out, ",\n\"linear\": null,\n\"chunks\": null");
        return;
    }
    ChunkForm f = chunk_find(j->d->step);
    bool linear = true, chunks = true;
    for (int i = 0; i < f.ncomponents; i++) {
        const ChunkComponent *k = &f.components[i];
        linear &= ir_is_affine(j->d->step, k->states, k->nstates);
        chunks &= k->verdict == CHUNK_QUALIFIES || k->verdict == CHUNK_COLUMN;
    }
    buf_f(j->out, ",\n\"linear\": %s,\n\"chunks\": %s", linear ? "true" : "false", chunks ? "true" : "false");
}

static void put_summary(const Json *j)
{
    Table t = explain_rows(j->d->plan, j->d->lowered);
    buf_f(j->out, ",\n\"summary\": [");
    for (int i = 0; i < t.rows.len; i++) {
        buf_f(j->out, i ? ",\n  {" : "\n  {");
        put_string(j, "label", t.rows.data[i].cell[0]);
        buf_f(j->out, ", ");
        put_string(j, "text", t.rows.data[i].cell[1]);
        buf_f(j->out, "}");
    }
    buf_f(j->out, "]");
}

void doc_json(const DocCell *d, Buf *out)
{
    Json j = { d, out };
    Buf cost = { .arena = d->c->arena };
    buf_f(out, "{");
    put_string(&j, "cell", d->cell->name);
    buf_f(out, ",\n");
    put_string(&j, "about", d->about);
    buf_f(out, ",\n\"lines\": [");
    for (int i = 0; i < d->lines.len; i++) {
        buf_f(out, i ? ",\n  " : "\n  ");
        put_line(&j, &d->lines.data[i]);
    }
    buf_f(out, "]");
    put_rows(&j, "sizes", &d->sizes, put_size);
    put_rows(&j, "options", &d->options, put_option);
    put_rows(&j, "tensors", &d->tensors, put_tensor);
    put_states(&j);
    buf_f(out, ",\n\"schedule\": {");
    put_string(&j, "name", d->plan->schedule->name);
    buf_f(out, ", ");
    put_string(&j, "what", d->plan->schedule->what);
    buf_f(out, "}");
    put_summary(&j);
    explain_cost(d->plan, &cost);
    buf_f(out, ",\n");
    put_string(&j, "cost", cost.data);
    buf_f(out, "}\n");
}
