/* doc_collect.c: what a page about a cell is made of. In: the AST of a spec and its source. Out: the lines of its
 * equations in the file's order, with every option's, and its declarations, each with the comment behind it. Nothing is
 * evaluated. */
#include <ctype.h>
#include <string.h>

#include "doc.h"
#include "front/typeset.h"

typedef struct Walk {
    DocCell *d;
    uint32_t done;                /* comments before this place are taken, or belong to declarations */
} Walk;

/* ---- comments ---- */

/* The comment behind a statement on its line, without the slashes, or ""; *stop: the place where it ends, or `at`. */
static const char *comment_behind(const DocCell *d, uint32_t at, uint32_t *stop)
{
    const char *s = d->source->text;
    uint32_t i = at, end = (uint32_t)d->source->len;
    *stop = at;
    while (i < end && strchr(" \t;,", s[i]))
        i++;
    if (i + 1 >= end || s[i] != '/' || s[i + 1] != '/')
        return "";
    for (i += 2; i < end && s[i] == ' '; i++)
        ;
    *stop = i + (uint32_t)strcspn(s + i, "\n");
    return intern_n(d->c, s + i, *stop - i);
}

static const char *note_of(const DocCell *d, const Stmt *s)
{
    uint32_t stop;
    return comment_behind(d, s->span.hi, &stop);
}

static void add_line(const Walk *w, DocLine line)
{
    vec_push(w->d->c->arena, &w->d->lines, line);
}

/* The comments on lines of their own in front of `at`. */
static void add_comments_before(Walk *w, uint32_t at, int depth)
{
    const char *s = w->d->source->text;
    for (uint32_t i = w->done; i + 1 < at; i++) {
        if (s[i] != '/' || s[i + 1] != '/')
            continue;
        uint32_t lo = i + 2 + (uint32_t)strspn(s + i + 2, " "), len = (uint32_t)strcspn(s + lo, "\n");
        add_line(w, (DocLine){ LINE_COMMENT, depth, NULL, { .lo = lo, .hi = lo + len }, "" });
        i = lo + len;
    }
    w->done = at > w->done ? at : w->done;
}

/* The file's first comment, line by line; the place behind it. */
static uint32_t take_heading(DocCell *d)
{
    const char *s = d->source->text;
    Buf b = { .arena = d->c->arena };
    while (s[0] == '/' && s[1] == '/') {
        size_t len = strcspn(s, "\n"), skip = 2 + strspn(s + 2, " ");
        buf_f(&b, "%.*s\n", skip < len ? (int)(len - skip) : 0, s + (skip < len ? skip : len));
        s += len + (s[len] == '\n');
    }
    d->about = b.len ? b.data : "";
    return (uint32_t)(s - d->source->text);
}

/* ---- equations ---- */

static bool is_declaration(const Stmt *s)
{
    return s->kind == S_DIM || s->kind == S_CONST || s->kind == S_OPTION || s->kind == S_IMPORT ||
           (s->kind >= S_INPUT && s->kind <= S_RESET);
}

static bool has_kind(const StmtVec *body, StmtKind kind)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        if (s->kind == kind || has_kind(&s->body, kind) || has_kind(&s->other, kind))
            return true;
    }
    return false;
}

static bool has_size(const StmtVec *body, const char *name)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        bool size = s->kind == S_DIM || s->kind == S_CONST;
        if ((size && strcmp(s->name, name) == 0) || has_size(&s->body, name) || has_size(&s->other, name))
            return true;
    }
    return false;
}

static bool has_equations(const StmtVec *body)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        if (s->kind == S_WHEN ? has_equations(&s->body) || has_equations(&s->other) : !is_declaration(s))
            return true;
    }
    return false;
}

static void add_equations(Walk *w, const StmtVec *body, int depth);

static void add_block(Walk *w, DocLineKind kind, const Stmt *s, Span text, const StmtVec *body, int depth)
{
    add_line(w, (DocLine){ kind, depth, s, text, "" });
    add_equations(w, body, depth + 1);
}

static void add_when(Walk *w, const Stmt *s, int depth)
{
    bool first = has_equations(&s->body);
    if (first)
        add_block(w, LINE_IF, s, s->value->span, &s->body, depth);
    if (has_equations(&s->other))
        add_block(w, first ? LINE_OTHERWISE : LINE_UNLESS, s, first ? (Span){ 0 } : s->value->span, &s->other, depth);
}

static void add_function(Walk *w, const Stmt *s, int depth)
{
    Span text = s->span;
    if (s->has_body && s->body.len)
        text.hi = s->body.data[0]->span.lo;
    add_line(w, (DocLine){ LINE_FUNCTION, depth, s, text, "" });
    if (s->has_body)
        add_equations(w, &s->body, depth + 1);
}

static void add_statement(Walk *w, const Stmt *s, int depth)
{
    if (is_declaration(s)) {
        (void)comment_behind(w->d, s->span.hi, &w->done);
        return;
    }
    add_comments_before(w, s->span.lo, depth);
    switch (s->kind) {
    case S_WHEN: add_when(w, s, depth); break;
    case S_REPEAT: add_block(w, LINE_FOR, s, s->lhs.data[0].range->span, &s->body, depth); break;
    case S_FN: add_function(w, s, depth); break;
    default:
        add_line(w, (DocLine){ LINE_EQUATION, depth, s, s->span, comment_behind(w->d, s->span.hi, &w->done) });
        return;
    }
    w->done = s->span.hi > w->done ? s->span.hi : w->done;
}

static void add_equations(Walk *w, const StmtVec *body, int depth)
{
    for (int i = 0; i < body->len; i++)
        add_statement(w, body->data[i], depth);
}

/* ---- declarations ---- */

static const Stmt *first_open_dim(const StmtVec *body, const char *name)
{
    const Stmt *found = NULL;
    for (int i = 0; i < body->len && !found; i++) {
        const Stmt *s = body->data[i];
        found = s->kind == S_DIM && !s->value && s->name == name ? s : first_open_dim(&s->body, name);
        found = found ? found : first_open_dim(&s->other, name);
    }
    return found;
}

/* A size of the caller's that several branches declare is one: is this none but the first of its declarations? */
static bool is_again(const DocCell *d, const Stmt *s)
{
    return s->kind == S_DIM && !s->value && first_open_dim(&d->cell->body, s->name) != s;
}

static void add_row(DocCell *d, DocRows *rows, const Stmt *s, const char *where)
{
    vec_push(d->c->arena, rows, ((DocRow){ s, where, note_of(d, s) }));
}

static void add_declarations(DocCell *d, const StmtVec *body, const char *where)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        if ((s->kind == S_DIM || s->kind == S_CONST) && !is_again(d, s))
            add_row(d, &d->sizes, s, where);
        if (s->kind == S_OPTION)
            add_row(d, &d->options, s, where);
        if (s->kind >= S_INPUT && s->kind <= S_RESET)
            add_row(d, &d->tensors, s, where);
        if (s->kind != S_WHEN)
            continue;
        Span at = s->value->span;
        const char *cond = intern_n(d->c, d->source->text + at.lo, at.hi - at.lo);
        const char *and = *where ? " && " : "";
        add_declarations(d, &s->body, intern_f(d->c, "%s%s%s", where, and, cond));
        add_declarations(d, &s->other, intern_f(d->c, "%s%s!(%s)", where, and, cond));
    }
}

/* ---- the whole ---- */

bool doc_walks(const DocCell *d)
{
    return has_kind(&d->cell->body, S_STATE);
}

const char *doc_shape(const DocCell *d, const Stmt *s)
{
    bool timed = s->kind != S_PARAM && s->kind != S_STATE;
    Buf b = { .arena = d->c->arena };
    buf_f(&b, "[%s%s", s->kind == S_PARAM ? "" : d->batch, timed ? ", T" : "");
    for (int k = 0; k < s->axes.len; k++) {
        Span at = s->axes.data[k]->span;
        buf_f(&b, "%s", b.len > 1 ? ", " : "");
        for (uint32_t i = at.lo; i < at.hi; i++)
            buf_f(&b, d->source->text[i] == '*' ? "·" : "%c", d->source->text[i]);
    }
    buf_f(&b, "]");
    return b.data;
}

const char *doc_text(const DocCell *d, const DocLine *line)
{
    const char *s = d->source->text;
    uint32_t lo = line->text.lo, hi = line->text.hi;
    Buf b = { .arena = d->c->arena };
    if (line->kind == LINE_COMMENT)
        return intern_n(d->c, s + lo, hi - lo);
    while (hi > lo && (isspace((unsigned char)s[hi - 1]) || strchr(";{", s[hi - 1])))
        hi--;
    if (line->kind == LINE_FOR)
        buf_f(&b, "%s < ", line->stmt->lhs.data[0].name);
    bool condition = line->kind == LINE_IF || line->kind == LINE_UNLESS;
    (condition ? typeset_condition : typeset)(s + lo, hi - lo, &b);
    return b.len ? b.data : "";
}

const char *doc_where(const DocCell *d, const DocRow *row)
{
    Buf b = { .arena = d->c->arena };
    typeset_condition(row->where, strlen(row->where), &b);
    return b.len ? b.data : "";
}

const char *doc_role(const Stmt *s)
{
    static const char *const roles[] = { "input", "param", "state", "output", "reset" };
    static const char *const fixed[] = { "const input", "const param", "const state", "const output", "const reset" };
    return (s->is_const ? fixed : roles)[s->kind - S_INPUT];
}

void doc_collect(DocCell *d)
{
    Walk w = { d, take_heading(d) };
    d->batch = has_size(&d->cell->body, "B") ? "batch" : "B";
    for (int i = 0; i < d->ast->items.len; i++)
        if (d->ast->items.data[i]->kind == S_FN)
            add_statement(&w, d->ast->items.data[i], 0);
    w.done = d->cell->name_span.hi;
    add_equations(&w, &d->cell->body, 0);
    add_declarations(d, &d->cell->body, "");
}
