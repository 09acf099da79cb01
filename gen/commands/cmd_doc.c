/* cmd_doc.c: `cellc doc`. In: a spec and settings. Out: a page about the cell in Markdown: what the file's first
 * comment says, the equations of a step (typeset.c), sizes, options, tensors, what a step costs and, where Graphviz is
 * installed and a directory is given, the data flow as a picture. The equations are those of the file, in its order,
 * with every option's. */
#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/home.h"
#include "base/say.h"
#include "commands.h"
#include "explain.h"
#include "front/ast.h"
#include "front/typeset.h"
#include "generate.h"
#include "graph.h"
#include "options.h"

static const CommandHelp help = {
    .name = "doc",
    .arguments = "SPEC",
    .summary = "write a page about a cell: equations, shapes, options, cost, data flow",
    .about = "The page is Markdown. With -o, the data flow is drawn beside it, which wants Graphviz:\n"
             "apt-get install graphviz.",
    .examples = "  cellc doc specs/e79.cell\n"
                "  cellc doc e88 --dim N=32 -o pages        pages/e88.md, pages/e88.svg\n",
    .compiles = true,
};

typedef struct Page {
    Compiler *c;
    const Source *source;
    const Ast *ast;
    Buf *out;
    const char *batch;            /* what shapes begin with */
    uint32_t done;                /* comments before this place are on the page, or belong to declarations */
} Page;

/* ---- comments ---- */

/* The comment behind a statement on its line, without the slashes; the place where it ends, or `at`. */
static uint32_t comment_behind(const Page *p, uint32_t at, Buf *out)
{
    const char *s = p->source->text;
    uint32_t i = at, end = (uint32_t)p->source->len;
    while (i < end && strchr(" \t;,", s[i]))
        i++;
    if (i + 1 >= end || s[i] != '/' || s[i + 1] != '/')
        return at;
    for (i += 2; i < end && s[i] == ' '; i++)
        ;
    uint32_t stop = i + (uint32_t)strcspn(s + i, "\n");
    buf_f(out, "%.*s", (int)(stop - i), s + i);
    return stop;
}

/* The comments on lines of their own in front of `at`. */
static void put_comments_before(Page *p, uint32_t at, int indent)
{
    const char *s = p->source->text;
    for (uint32_t i = p->done; i + 1 < at; i++) {
        if (s[i] != '/' || s[i + 1] != '/')
            continue;
        uint32_t lo = i + 2 + (uint32_t)strspn(s + i + 2, " "), len = (uint32_t)strcspn(s + lo, "\n");
        buf_f(p->out, "%*s(%.*s)\n", indent, "", (int)len, s + lo);
        i = lo + len;
    }
    p->done = at > p->done ? at : p->done;
}

/* The file's first comment, as paragraphs of Markdown. */
static uint32_t put_heading(Page *p, const char *name)
{
    const char *s = p->source->text;
    buf_f(p->out, "# %s\n\n", name);
    while (s[0] == '/' && s[1] == '/') {
        size_t len = strcspn(s, "\n"), skip = 2 + strspn(s + 2, " ");
        buf_f(p->out, "%.*s\n", skip < len ? (int)(len - skip) : 0, s + (skip < len ? skip : len));
        s += len + (s[len] == '\n');
    }
    return (uint32_t)(s - p->source->text);
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

static void put_text(const Page *p, uint32_t lo, uint32_t hi)
{
    const char *s = p->source->text;
    while (hi > lo && (isspace((unsigned char)s[hi - 1]) || strchr(";{", s[hi - 1])))
        hi--;
    typeset(s + lo, hi - lo, p->out);
}

static void put_equations(Page *p, const StmtVec *body, int indent);

static void skip_comments(Page *p, uint32_t to)
{
    Buf unused = { .arena = p->c->arena };
    p->done = comment_behind(p, to, &unused);
}

/* `head` of a block, and the block further in. */
static void put_block(Page *p, const char *head, Span of, const char *end, const StmtVec *body, int indent)
{
    buf_f(p->out, "%*s%s", indent, "", head);
    if (of.hi > of.lo)
        put_text(p, of.lo, of.hi);
    buf_f(p->out, "%s\n", end);
    put_equations(p, body, indent + 4);
}

static void put_function(Page *p, const Stmt *s, int indent)
{
    uint32_t lo = s->span.lo, hi = s->span.hi;
    if (s->has_body && s->body.len)
        hi = s->body.data[0]->span.lo;
    buf_f(p->out, "%*s", indent, "");
    put_text(p, lo, hi);
    buf_f(p->out, s->has_body ? ":\n" : "\n");
    if (s->has_body)
        put_equations(p, &s->body, indent + 4);
}

static void put_equation(Page *p, const Stmt *s, int indent)
{
    Buf comment = { .arena = p->c->arena };
    buf_f(p->out, "%*s", indent, "");
    put_text(p, s->span.lo, s->span.hi);
    p->done = comment_behind(p, s->span.hi, &comment);
    buf_f(p->out, comment.len ? "    (%s)\n" : "\n", comment.data);
}

static void put_statement(Page *p, const Stmt *s, int indent)
{
    if (is_declaration(s)) {
        skip_comments(p, s->span.hi);
        return;
    }
    put_comments_before(p, s->span.lo, indent);
    switch (s->kind) {
    case S_WHEN:
        if (has_equations(&s->body))
            put_block(p, "if ", s->value->span, ":", &s->body, indent);
        if (has_equations(&s->other))
            put_block(p, has_equations(&s->body) ? "otherwise" : "unless ",
                      has_equations(&s->body) ? (Span){ 0 } : s->value->span, ":", &s->other, indent);
        break;
    case S_REPEAT: {
        const Binder *n = &s->lhs.data[0];
        buf_f(p->out, "%*sfor %s < ", indent, "", n->name);
        put_block(p, "", n->range->span, ":", &s->body, indent);
        break;
    }
    case S_FN: put_function(p, s, indent); break;
    default: put_equation(p, s, indent); return;
    }
    p->done = s->span.hi > p->done ? s->span.hi : p->done;
}

static void put_equations(Page *p, const StmtVec *body, int indent)
{
    for (int i = 0; i < body->len; i++)
        put_statement(p, body->data[i], indent);
}

/* ---- declarations ---- */

/* Text in a cell of a table. */
static void put_cell(const Page *p, const char *text, size_t n, bool set)
{
    Buf b = { .arena = p->c->arena };
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
    Buf set = { .arena = p->c->arena };
    typeset(name, strlen(name), &set);
    bool same = set.len == strlen(name) && memcmp(set.data, name, set.len) == 0;
    const char *text = same ? name : intern_f(p->c, "%s (%.*s)", name, (int)set.len, set.data);
    put_cell(p, text, strlen(text), false);
}

static void put_span(const Page *p, Span s, bool set)
{
    put_cell(p, p->source->text + s.lo, s.hi - s.lo, set);
}

static void put_note(const Page *p, const Stmt *s)
{
    Buf comment = { .arena = p->c->arena };
    comment_behind(p, s->span.hi, &comment);
    put_cell(p, comment.len ? comment.data : "", comment.len, false);
    buf_f(p->out, "\n");
}

static void put_heading_once(const Page *p, bool *open, const char *title, const char *columns, const char *rule)
{
    if (!*open)
        buf_f(p->out, "\n## %s\n\n%s\n%s\n", title, columns, rule);
    *open = true;
}

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
static bool is_again(const Stmt *s, const StmtVec *cell)
{
    return s->kind == S_DIM && !s->value && first_open_dim(cell, s->name) != s;
}

static void put_sizes(const Page *p, const StmtVec *body, const StmtVec *cell, bool *open)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        if ((s->kind == S_DIM || s->kind == S_CONST) && !is_again(s, cell)) {
            put_heading_once(p, open, "Sizes and constants", "| name | value | |", "| --- | --- | --- |");
            buf_f(p->out, "|");
            put_name(p, s->name);
            if (s->value)
                put_span(p, s->value->span, true);
            else
                put_cell(p, "the caller's", 12, false);
            put_note(p, s);
        }
        put_sizes(p, &s->body, cell, open);
        put_sizes(p, &s->other, cell, open);
    }
}

static void put_options(const Page *p, const StmtVec *body, bool *open)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        if (s->kind == S_OPTION) {
            Buf values = { .arena = p->c->arena };
            for (int k = 0; k < s->choices.len; k++)
                buf_f(&values, k ? ", %s" : "**%s**", s->choices.data[k]);
            put_heading_once(p, open, "Options", "| option | values, the default first | |", "| --- | --- | --- |");
            buf_f(p->out, "| `%s` | %s |", s->name, values.data);
            put_note(p, s);
        }
        put_options(p, &s->body, open);
        put_options(p, &s->other, open);
    }
}

static void put_tensor(const Page *p, const Stmt *s, const char *where)
{
    static const char *const kinds[] = { "input", "param", "state", "output", "reset" };
    bool timed = s->kind != S_PARAM && s->kind != S_STATE;
    Buf shape = { .arena = p->c->arena };
    buf_f(&shape, "[%s%s", s->kind == S_PARAM ? "" : p->batch, timed ? ", T" : "");
    for (int k = 0; k < s->axes.len; k++) {
        Span at = s->axes.data[k]->span;
        buf_f(&shape, "%s", shape.len > 1 ? ", " : "");
        for (uint32_t i = at.lo; i < at.hi; i++)
            buf_f(&shape, p->source->text[i] == '*' ? "·" : "%c", p->source->text[i]);
    }
    buf_f(&shape, "]");
    if (s->domain)
        buf_f(&shape, " in %.*s", (int)(s->domain->span.hi - s->domain->span.lo), p->source->text + s->domain->span.lo);
    buf_f(p->out, "| %s%s |", s->is_const ? "const " : "", kinds[s->kind - S_INPUT]);
    put_name(p, s->name);
    put_cell(p, shape.data, shape.len, false);
    if (s->init)
        put_span(p, s->init->span, true);
    else
        buf_f(p->out, s->kind == S_STATE ? " 0, or the caller's |" : " |");
    put_cell(p, where, strlen(where), true);
    put_note(p, s);
}

static void put_tensors(const Page *p, const StmtVec *body, const char *where)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        if (s->kind >= S_INPUT && s->kind <= S_RESET)
            put_tensor(p, s, where);
        if (s->kind != S_WHEN)
            continue;
        Span at = s->value->span;
        const char *cond = intern_f(p->c, "%.*s", (int)(at.hi - at.lo), p->source->text + at.lo);
        const char *and = *where ? " && " : "";
        put_tensors(p, &s->body, intern_f(p->c, "%s%s%s", where, and, cond));
        put_tensors(p, &s->other, intern_f(p->c, "%s%s!(%s)", where, and, cond));
    }
}

/* ---- the page ---- */

static void put_page(Page *p, const Stmt *cell, const Plan *plan, bool picture)
{
    bool sizes = false, options = false;
    p->batch = has_size(&cell->body, "B") ? "batch" : "B";
    p->done = put_heading(p, cell->name);
    buf_f(p->out, "\n## A step\n\n```text\n");
    for (int i = 0; i < p->ast->items.len; i++)
        if (p->ast->items.data[i]->kind == S_FN)
            put_statement(p, p->ast->items.data[i], 0);
    p->done = cell->name_span.hi;
    put_equations(p, &cell->body, 0);
    bool walks = has_kind(&cell->body, S_STATE);
    buf_f(p->out, "```\n\n%sFunctions that are not defined here are those of std.cell or of the "
                  "language (`cellc ops`).\n", walks ? "A prime marks a state after the step. " : "");
    put_sizes(p, &cell->body, &cell->body, &sizes);
    put_options(p, &cell->body, &options);
    buf_f(p->out, "\n## Tensors\n\n%s sequences of T steps.\n\n| | name | shape | begins as | only if | |\n"
                  "| --- | --- | --- | --- | --- | --- |\n", p->batch);
    put_tensors(p, &cell->body, "");
    buf_f(p->out, "\n## What it costs\n\n```text\n");
    explain_cost(plan, p->out);
    buf_f(p->out, "```\n");
    if (picture)
        buf_f(p->out, "\n## Data flow\n\n![the data flow of a step, forward](%s.svg)\n", cell->name);
}

static int write_page(Compiler *c, const char *spec, const char *dir)
{
    Generated g;
    if (!generate_open(&g, c, spec, NULL, true))
        return 1;
    int file = source_load(c, spec);
    Page p = { .c = c, .ast = parse_source(c, file), .out = &(Buf){ .arena = c->arena } };
    p.source = &c->sources.data[file];
    const Stmt *cell = ast_cell(c, p.ast, NULL, true);
    bool picture = false;
    if (dir) {
        Buf dot = { .arena = c->arena };
        if (mkdir(dir, 0777) && errno != EEXIST) {
            say(DIAG_ERROR, "doc", "cannot make '%s': %s", dir, strerror(errno));
            return 1;
        }
        graph_dot(g.plan, FORWARD, &dot);
        picture = graph_picture(c, intern_f(c, "%s/%s.svg", dir, cell->name), "svg", &dot);
    }
    put_page(&p, cell, g.plan, picture);
    buf_shown(p.out);
    if (!dir)
        return fwrite(p.out->data, 1, p.out->len, stdout) == p.out->len ? 0 : 1;
    return write_text(intern_f(c, "%s/%s.md", dir, cell->name), p.out) ? 0 : 1;
}

int cmd_doc(int argc, char **argv)
{
    Compiler *c = compiler_new();
    const char *operands[argc + 1], *dir = NULL;
    const OptionSpec table[] = {
        { "-o", "DIR", OPT_STRING, &dir, "write DIR/NAME.md and DIR/NAME.svg (standard output, without the picture)" },
        { NULL, NULL, OPT_FLAG, NULL, NULL }
    };
    c->archs = default_archs;
    int n, rc = options_parse(&help, c, argc, argv, table, operands, &n);
    if (rc < 0) {
        rc = write_page(c, operands[0], dir);
        diag_print(c, stderr);
    }
    compiler_free(c);
    return rc;
}
