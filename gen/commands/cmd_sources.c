/* cmd_sources.c: `cellc sources`. In: a spec. Out: the paths of the files that it is made of, itself and what it imports,
 * in the order in which they are read; or one file with all of them. Guaranteed: these are the files that every command
 * reads for this spec, however its options are chosen; a spec with errors has sources as well. */
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/say.h"
#include "base/texts.h"
#include "commands.h"
#include "front/front.h"
#include "options.h"
#include "sources.h"

static const CommandHelp help = {
    .name = "sources",
    .arguments = "SPEC",
    .summary = "list the files that a spec is made of, or pack them into one",
    .about = "A pack is what a spec is at this moment, for another directory or machine: with --sources every command reads\n"
             "it in place of files. An import that is not found is left out; the command that compiles says so. A file has one\n"
             "place, however often and through whatever links it is imported.",
    .examples = "  cellc sources specs/e79.cell\n"
                "  cellc sources --pack specs/e79.cell > e79.pack\n"
                "  cellc explain --sources e79.pack -\n",
    .reads = true,
};

static bool seen(const Compiler *c, const char *path)
{
    for (int i = 0; i < c->sources.len; i++)
        if (strcmp(c->sources.data[i].path, path) == 0)
            return true;
    return false;
}

/* What is wrong with an import is said where the spec is compiled, save that it is there and cannot be read,
 * which a pack does not tell: that stays of the diagnostics. */
void sources_read(Compiler *c, int file, SourcesLooked looked, void *data)
{
    int said = c->diags.len;
    const Ast *ast = parse_source(c, file);
    c->diags.len = said;
    for (int i = 0; i < ast->items.len; i++) {
        const Stmt *s = ast->items.data[i];
        const char *places[MOST_IMPORT_PLACES];
        if (s->kind != S_IMPORT || import_refused(s->text))
            continue;
        for (int k = 0, n = looked ? import_places(c, file, s->text, places) : 0; k < n; k++)
            looked(data, places[k]);
        const char *path = import_find(c, file, s->text);
        int imported = path && !seen(c, path) ? source_import(c, path, s->text_span) : -1;
        if (imported >= 0)
            sources_read(c, imported, looked, data);
    }
}

/* A path as it is may have any byte but 0 in it, line breaks too: it is for programs. */
static void put_source(const char *path, bool whole)
{
    if (whole)
        fwrite(path, 1, strlen(path) + 1, stdout);
    else
        print_shown(path);
}

static int sources(Compiler *c, const char *spec, bool pack, bool null)
{
    int file = source_load(c, spec);
    if (file >= 0)
        sources_read(c, file, NULL, NULL);
    if (c->diags.len) {
        diag_print(c, stderr);
        return 1;
    }
    if (pack)
        texts_write(c, stdout);
    for (int i = 0; !pack && i < c->sources.len; i++)
        put_source(c->sources.data[i].path, null);
    return fflush(stdout) != 0;
}

int cmd_sources(int argc, char **argv)
{
    Compiler *c = compiler_new();
    const char *from = NULL, *operands[argc + 1];
    bool pack = false, null = false;
    const OptionSpec table[] = {
        {"--pack", NULL, OPT_FLAG, &pack, "print one file that holds all of them, for --sources"},
        {"--null", NULL, OPT_FLAG, &null,
         "end each path by a zero byte, and print it as it is: for programs"},
        {"--import-dir", "DIR", OPT_STRING, &c->import_dir, "look here too for what the spec imports"},
        {"--sources", "FILE", OPT_STRING, &from,
         "take what this pack has from it, the spec too (SPEC is - then), the rest from files"},
        {NULL, NULL, OPT_FLAG, NULL, NULL}};
    int n, rc = options_parse(&help, c, argc, argv, table, operands, &n);
    if (rc < 0 && from && strcmp(operands[0], "-") != 0)
        rc = usage_error(&help, "with --sources the SPEC is -, not '%s'", operands[0]);
    if (rc < 0 && pack && null)
        rc = usage_error(&help, "--pack and --null exclude each other");
    if (rc < 0 && from && !texts_read(c, from, false))
        rc = 1;
    const char *spec = rc < 0 && !from ? home_spec(c, operands[0]) : texts_path(c, TEXT_SPEC, 0);
    if (rc < 0 && !spec)
        diag_print(c, stderr);
    if (rc < 0)
        rc = spec ? sources(c, spec, pack, null) : 1;
    compiler_free(c);
    return rc;
}
