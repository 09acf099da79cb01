/* cmd_list.c: `cellc list`. In: the directory of the cells that come with cellc, or another. Out: a table of its
 * cells: name, states, options with their values, and what the first sentence of the file's first comment says. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/home.h"
#include "base/say.h"
#include "base/table.h"
#include "commands.h"
#include "explain.h"
#include "front/ast.h"
#include "options.h"

static const CommandHelp help = {
    .name = "list",
    .arguments = "[DIR]",
    .summary = "list the cells that come with cellc, or those of a directory",
    .about = "The name of a cell that comes with cellc stands for its file in every command. docs/cells.md says more of\n"
             "each: its origin and the schedule that it takes.",
    .examples = "  cellc list\n"
                "  cellc list my/cells\n"
                "  cellc explain e88\n",
    .reads = true,
};

/* The first comment as one line, up to the end of its first sentence. */
static const char *first_sentence(Compiler *c, const char *text)
{
    Buf out = { .arena = c->arena };
    int nested = 0;
    for (const char *p = text; p[0] == '/' && p[1] == '/';) {
        const char *end = p + strcspn(p, "\n");
        for (p += 2 + strspn(p + 2, " "); p < end; p++) {
            nested += *p == '(';
            if (*p != ' ' || (out.len && out.data[out.len - 1] != ' '))
                buf_f(&out, "%c", *p);
            nested -= *p == ')' && nested > 0;
            bool ends = !nested && *p == '.' && (p + 1 == end || p[1] == ' ') && out.len > 1;
            if (ends && !(p - text > 2 && p[-1] >= 'A' && p[-1] <= 'Z'))    /* no initial */
                goto done;
        }
        buf_f(&out, " ");
        p = end + (*end == '\n');
    }
done:
    while (out.len && strchr(" .", out.data[out.len - 1]))
        out.data[--out.len] = 0;
    return out.data ? out.data : "";
}

static void put_declarations(const Source *source, const StmtVec *body, Buf *states, Buf *options)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        if (s->kind == S_STATE) {
            buf_f(states, "%s%s", states->len ? ", " : "", s->name);
            for (int k = 0; k < s->axes.len; k++) {
                Span at = s->axes.data[k]->span;
                buf_f(states, "%s%.*s", k ? "," : "[", (int)(at.hi - at.lo), source->text + at.lo);
            }
            buf_f(states, s->axes.len ? "]" : "");
        }
        if (s->kind == S_OPTION) {
            buf_f(options, "%s%s: ", options->len ? "; " : "option ", s->name);
            for (int k = 0; k < s->choices.len; k++)
                buf_f(options, "%s%s", k ? " | " : "", s->choices.data[k]);
        }
        put_declarations(source, &s->body, states, options);
        put_declarations(source, &s->other, states, options);
    }
}

static void put_file(Compiler *c, const char *path, Table *t)
{
    int file = source_load(c, path);
    Ast *ast = file >= 0 ? parse_source(c, file) : NULL;
    for (int i = 0; ast && i < ast->items.len; i++) {
        const Stmt *s = ast->items.data[i];
        Buf states = { .arena = c->arena }, options = { .arena = c->arena };
        if (s->kind != S_CELL)
            continue;
        const Source *source = &c->sources.data[file];
        put_declarations(source, &s->body, &states, &options);
        table_row(c, t, s->name, first_sentence(c, source->text), (char *)NULL);
        if (states.data)
            table_row(c, t, "", intern_f(c, "  state %s", states.data), (char *)NULL);
        if (options.data)
            table_row(c, t, "", intern_f(c, "  %s", options.data), (char *)NULL);
    }
}

static int spec_only(const struct dirent *e)
{
    const char *dot = strrchr(e->d_name, '.');
    return dot && strcmp(dot, ".cell") == 0;
}

static int list(Compiler *c, const char *dir)
{
    struct dirent **found;
    int n = scandir(dir, &found, spec_only, versionsort);
    if (n < 0) {
        say(DIAG_ERROR, "list", "cannot read '%s': %s", dir, strerror(errno));
        return 1;
    }
    Table t = { .columns = 2 };
    for (int i = 0; i < n; i++) {
        put_file(c, intern_f(c, "%s/%s", dir, found[i]->d_name), &t);
        free(found[i]);
    }
    free(found);
    Buf out = { .arena = c->arena };
    table_print(&t, &out);
    put_shown(stdout, out.data, out.len, true);
    diag_print(c, stderr);
    return c->errors > 0;
}

int cmd_list(int argc, char **argv)
{
    Compiler *c = compiler_new();
    const char *operands[argc + 1];
    const OptionSpec table[] = { { NULL, NULL, OPT_FLAG, NULL, NULL } };
    int n, rc = options_parse(&help, c, argc, argv, table, operands, &n);
    if (rc < 0) {
        const char *dir = n ? operands[0] : home_dir(c, HOME_SPECS);
        if (!dir)
            say(DIAG_ERROR, "list", "the cells that come with cellc are not there; set CELLC_HOME");
        rc = dir ? list(c, dir) : 1;
    }
    compiler_free(c);
    return rc;
}
