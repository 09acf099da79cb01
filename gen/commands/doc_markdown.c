/* doc_markdown.c: the page of `cellc doc` in Markdown. In: what doc_collect found. Out: what the file's first comment says,
 * the equations of a step (typeset.c), sizes, options, tensors, what a step costs, and the place of its picture. */
#include <string.h>

#include "doc.h"
#include "explain.h"
#include "front/typeset.h"

typedef struct Page {
    const DocCell *d;
    Buf *out;
} Page;

static void put_line(const Page *p, const DocLine *line)
{
    static const char *const before[] = { "(", "if ", "otherwise", "unless ", "for ", "", "" };
    static const char *const behind[] = { ")", ":", ":", ":", ":", "", "" };
    buf_f(p->out, "%*s%s%s", 4 * line->depth, "", before[line->kind], doc_text(p->d, line));
    bool block = line->kind == LINE_FUNCTION && line->stmt->has_body;
    buf_f(p->out, *line->note ? "%s    (%s)\n" : "%s\n", block ? ":" : behind[line->kind], line->note);
}

static void put_equations(const Page *p)
{
    buf_f(p->out, "\n## A step\n\n```text\n");
    for (int i = 0; i < p->d->lines.len; i++)
        put_line(p, &p->d->lines.data[i]);
    buf_f(p->out, "```\n\n%sFunctions that are not defined here are those of std.cell or of the "
                  "language (`cellc ops`).\n", doc_walks(p->d) ? "A prime marks a state after the step. " : "");
}

/* Text in a cell of a table. */
static void put_cell(const Page *p, const char *text, size_t n, bool set)
{
    Buf b = { .arena = p->d->c->arena };
    if (set)
        typeset(text, n, &b);
    else
        buf_f(&b, "%.*s", (int)n, text);
    buf_f(p->out, " ");
    for (size_t i = 0; i < b.len; i++)
        buf_f(p->out, b.data[i] == '|' ? "\\|" : "%c", b.data[i]);
    buf_f(p->out, " |");
}

/* A name as the caller writes it, with the letter that the equations have for it. */
static void put_name(const Page *p, const char *name)
{
    Buf set = { .arena = p->d->c->arena };
    typeset(name, strlen(name), &set);
    bool same = set.len == strlen(name) && memcmp(set.data, name, set.len) == 0;
    const char *text = same ? name : intern_f(p->d->c, "%s (%.*s)", name, (int)set.len, set.data);
    put_cell(p, text, strlen(text), false);
}

static void put_span(const Page *p, Span s)
{
    put_cell(p, p->d->source->text + s.lo, s.hi - s.lo, true);
}

static void put_note(const Page *p, const DocRow *row)
{
    put_cell(p, row->note, strlen(row->note), false);
    buf_f(p->out, "\n");
}

static void put_sizes(const Page *p)
{
    const DocRows *rows = &p->d->sizes;
    buf_f(p->out, rows->len ? "\n## Sizes and constants\n\n| name | value | |\n| --- | --- | --- |\n" : "");
    for (int i = 0; i < rows->len; i++) {
        const Stmt *s = rows->data[i].stmt;
        buf_f(p->out, "|");
        put_name(p, s->name);
        if (s->value)
            put_span(p, s->value->span);
        else
            put_cell(p, "the caller's", 12, false);
        put_note(p, &rows->data[i]);
    }
}

static void put_options(const Page *p)
{
    const DocRows *rows = &p->d->options;
    buf_f(p->out, rows->len ? "\n## Options\n\n| option | values, the default first | |\n| --- | --- | --- |\n" : "");
    for (int i = 0; i < rows->len; i++) {
        const Stmt *s = rows->data[i].stmt;
        buf_f(p->out, "| `%s` | ", s->name);
        for (int k = 0; k < s->choices.len; k++)
            buf_f(p->out, k ? ", %s" : "**%s**", s->choices.data[k]);
        buf_f(p->out, " |");
        put_note(p, &rows->data[i]);
    }
}

static void put_tensor(const Page *p, const DocRow *row)
{
    const Stmt *s = row->stmt;
    Buf shape = { .arena = p->d->c->arena };
    buf_f(&shape, "%s", doc_shape(p->d, s));
    if (s->domain)
        buf_f(&shape, " in %.*s", (int)(s->domain->span.hi - s->domain->span.lo),
              p->d->source->text + s->domain->span.lo);
    buf_f(p->out, "| %s |", doc_role(s));
    put_name(p, s->name);
    put_cell(p, shape.data, shape.len, false);
    if (s->init)
        put_span(p, s->init->span);
    else
        buf_f(p->out, s->kind == S_STATE ? " 0, or the caller's |" : " |");
    const char *where = doc_where(p->d, row);
    put_cell(p, where, strlen(where), false);
    put_note(p, row);
}

void doc_markdown(const DocCell *d, bool picture, Buf *out)
{
    Page p = { d, out };
    buf_f(out, "# %s\n\n%s", d->cell->name, d->about);
    put_equations(&p);
    put_sizes(&p);
    put_options(&p);
    buf_f(out, "\n## Tensors\n\n%s sequences of T steps.\n\n| | name | shape | begins as | only if | |\n"
               "| --- | --- | --- | --- | --- | --- |\n", d->batch);
    for (int i = 0; i < d->tensors.len; i++)
        put_tensor(&p, &d->tensors.data[i]);
    buf_f(out, "\n## What it costs\n\n```text\n");
    explain_cost(d->plan, out);
    buf_f(out, "```\n");
    if (picture)
        buf_f(out, "\n## Data flow\n\n![the data flow of a step, forward](%s.svg)\n", d->cell->name);
}
