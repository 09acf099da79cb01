/* cmd_new.c: `cellc new`. In: a name, and a spec to start from. Out: a file NAME.cell with that spec's text, its cell
 * renamed. Guaranteed: no file is written over. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/home.h"
#include "base/say.h"
#include "commands.h"
#include "front/ast.h"
#include "options.h"

static const CommandHelp help = {
    .name = "new",
    .arguments = "NAME",
    .summary = "start a spec from a neighbour: NAME.cell, with the neighbour's equations",
    .about = "Change an equation, and `cellc check NAME.cell` proves the new gradients. `cellc list` shows what there is to\n"
             "start from.",
    .examples = "  cellc new mycell --from e75\n"
                "  cellc new mycell --from specs/gated_delta.cell -o my/cells/mycell.cell\n",
    .reads = true,
};

static bool is_name(const char *s)
{
    if (!isalpha((unsigned char)*s) && *s != '_')
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && *s != '_')
            return false;
    return true;
}

static int write_new(Compiler *c, const char *name, const char *from, const char *path)
{
    const char *spec = home_spec(c, from);
    int file = spec ? source_load(c, spec) : -1;
    const Ast *ast = file >= 0 ? parse_source(c, file) : NULL;
    const Stmt *cell = ast && !c->errors ? ast_cell(c, ast, NULL, true) : NULL;
    for (int i = 0; cell && i < ast->items.len; i++)
        if (ast->items.data[i]->kind == S_CELL && ast->items.data[i] != cell && !c->errors)
            diag(c, DIAG_ERROR, ast->items.data[i]->name_span, "a spec to start from has one cell, this one has more");
    if (!cell || c->errors) {
        diag_print(c, stderr);
        return 1;
    }
    const Source *s = &c->sources.data[file];
    FILE *out = fopen(path, "wbx");
    if (!out) {
        if (errno == EEXIST)
            say(DIAG_ERROR, "new", "'%s' is there already: remove it, or give another name with -o", path);
        else
            say(DIAG_ERROR, "new", "cannot write '%s': %s", path, strerror(errno));
        return 1;
    }
    fprintf(out, "// %s: from %s.\n//\n", name, cell->name);
    fwrite(s->text, 1, cell->name_span.lo, out);
    fprintf(out, "%s", name);
    bool ok = fwrite(s->text + cell->name_span.hi, 1, s->len - cell->name_span.hi, out) == s->len - cell->name_span.hi;
    if (fclose(out) != 0 || !ok) {
        say(DIAG_ERROR, "new", "cannot write '%s': %s", path, strerror(errno));
        remove(path);
        return 1;
    }
    print_shown(path);
    return 0;
}

int cmd_new(int argc, char **argv)
{
    Compiler *c = compiler_new();
    const char *operands[argc + 1], *from = NULL, *path = NULL;
    const OptionSpec table[] = {
        { "--from", "SPEC", OPT_STRING, &from, "a file, or a cell that comes with cellc" },
        { "-o", "FILE", OPT_STRING, &path, "where it goes (NAME.cell)" },
        { NULL, NULL, OPT_FLAG, NULL, NULL }
    };
    int n, rc = options_parse(&help, c, argc, argv, table, operands, &n);
    if (rc < 0 && !from)
        rc = usage_error(&help, "takes --from SPEC; `cellc list` shows what there is");
    if (rc < 0 && !is_name(operands[0]))
        rc = usage_error(&help, "'%s' cannot be the name of a cell: letters, digits and _ only, a letter first", operands[0]);
    if (rc < 0)
        rc = write_new(c, operands[0], from, path ? path : intern_f(c, "%s.cell", operands[0]));
    compiler_free(c);
    return rc;
}
