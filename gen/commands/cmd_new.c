/* cmd_new.c: `cellc new`. In: a name, and a spec to start from. Out: a file NAME.cell with that spec's text, its cell
 * renamed; of a file with several cells the one that FILE:CELL names. Guaranteed: no file is written over. */
#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/home.h"
#include "base/say.h"
#include "commands.h"
#include "front/ast.h"
#include "front/words.h"
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

/* The text from LO to HI, without the file's other cells and the comments right above them. */
static bool write_text(FILE *out, const Source *s, const Ast *ast, const Stmt *cell, size_t lo, size_t hi)
{
    for (int i = 0; i < ast->items.len; i++) {
        const Stmt *other = ast->items.data[i];
        size_t before = i ? ast->items.data[i - 1]->span.hi : other->span.lo, begin = before, end = other->span.hi;
        if (other->kind != S_CELL || other == cell || other->span.lo < lo || end > hi)
            continue;
        const char *line = memchr(s->text + before, '\n', other->span.lo - before);
        begin = line ? (size_t)(line - s->text) + 1 : before;
        begin = begin < lo ? lo : begin;
        size_t blanks = strspn(s->text + end, " \t\r"), rest = strcspn(s->text + end, "\n");
        if (blanks == rest || strncmp(s->text + end + blanks, "//", 2) == 0)
            end += rest + (s->text[end + rest] == '\n');
        if (fwrite(s->text + lo, 1, begin - lo, out) != begin - lo)
            return false;
        lo = end;
    }
    return fwrite(s->text + lo, 1, hi - lo, out) == hi - lo;
}

static int write_new(Compiler *c, const char *name, const char *from, const char *path)
{
    const char *spec = home_spec(c, from);
    int file = spec ? source_load(c, spec) : -1;
    const Ast *ast = file >= 0 ? parse_source(c, file) : NULL;
    const Stmt *cell = ast && !c->errors ? ast_cell(c, ast, NULL, true) : NULL;
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
    bool ok = write_text(out, s, ast, cell, 0, cell->name_span.lo) && fprintf(out, "%s", name) > 0 &&
              write_text(out, s, ast, cell, cell->name_span.hi, s->len);
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
    const char *fault = rc < 0 ? cell_name_fault(c, operands[0]) : NULL;
    if (rc < 0 && strlen(operands[0]) > MAX_NAME)
        rc = usage_error(&help, "a name has at most %d characters", MAX_NAME);
    if (rc < 0 && names_reduction(operands[0]))
        fault = "it is the name of a reduction";
    if (fault)
        rc = usage_error(&help, "a cell cannot be called '%s': %s", operands[0], fault);
    if (rc < 0)
        rc = write_new(c, operands[0], from, path ? path : intern_f(c, "%s.cell", operands[0]));
    compiler_free(c);
    return rc;
}
