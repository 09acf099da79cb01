/* cmd_graph.c: `cellc graph`. In: a spec and settings. Out: its data flow in one direction (graph.c) for Graphviz, or
 * as a picture where `dot` is installed. */
#include <string.h>

#include "commands.h"
#include "generate.h"
#include "graph.h"
#include "options.h"

static const CommandHelp help = {
    .name = "graph",
    .arguments = "SPEC",
    .summary = "draw the data flow of a spec by phase (dot, SVG, PNG, PDF)",
    .about = "Boxes are when a value is computed: before the walk over the steps (all steps at once), step by step, after it.\n"
             "SVG, PNG and PDF want Graphviz: apt-get install graphviz.",
    .examples = "  cellc graph specs/e88.cell > e88.dot\n"
                "  cellc graph specs/e88.cell -o e88.svg\n"
                "  cellc graph specs/e79.cell --set bias=input --backward -o e79_backward.svg\n",
    .compiles = true,
};

static const char *const texts[] = { "dot", "gv", NULL }, *const pictures[] = { "svg", "png", "pdf", NULL };

static bool is_one_of(const char *const *list, const char *word)
{
    while (*list && strcmp(*list, word) != 0)
        list++;
    return *list != NULL;
}

/* What stands behind the last '.' of the file's name; "" when there is none. */
static const char *suffix_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    return dot ? dot + 1 : "";
}

static int write_graph(Compiler *c, const char *path, const Buf *dot)
{
    if (!path)
        return fwrite(dot->data, 1, dot->len, stdout) == dot->len ? 0 : 1;
    if (is_one_of(pictures, suffix_of(path)))
        return graph_picture(c, path, suffix_of(path), dot) ? 0 : 1;
    return write_text(path, dot) ? 0 : 1;
}

int cmd_graph(int argc, char **argv)
{
    Compiler *c = compiler_new();
    const char *operands[argc + 1], *path = NULL;
    bool backward = false;
    const OptionSpec table[] = {
        { "--backward", NULL, OPT_FLAG, &backward, "the gradients' data flow, instead of forward's" },
        { "-o", "FILE", OPT_STRING, &path, "write there: .dot or .gv, or by Graphviz .svg, .png or .pdf (standard output)" },
        { NULL, NULL, OPT_FLAG, NULL, NULL }
    };
    c->archs = default_archs;
    int n, rc = options_parse(&help, c, argc, argv, table, operands, &n);
    if (rc < 0 && path && !is_one_of(texts, suffix_of(path)) && !is_one_of(pictures, suffix_of(path)))
        rc = usage_error(&help, "-o takes a file that ends in .dot, .gv, .svg, .png or .pdf, not '%s'", path);
    if (rc < 0) {
        Generated g;
        bool ok = generate_open(&g, c, operands[0], NULL, true);
        diag_print(c, stderr);
        rc = !ok;
        if (ok) {
            Buf out = { .arena = c->arena };
            graph_dot(g.plan, backward ? BACKWARD : FORWARD, &out);
            rc = write_graph(c, path, &out);
        }
    }
    compiler_free(c);
    return rc;
}
