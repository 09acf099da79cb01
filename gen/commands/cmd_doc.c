/* cmd_doc.c: `cellc doc`. In: a spec and settings. Out: a page about the cell in Markdown, or the same as JSON: what the
 * file's first comment says, the equations of a step, sizes, options, tensors, what a step costs and, where Graphviz is
 * installed and a directory is given, the data flow as a picture. The equations are those of the file, in its order,
 * with every option's. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/home.h"
#include "base/say.h"
#include "commands.h"
#include "doc.h"
#include "generate.h"
#include "graph.h"
#include "options.h"
#include "pipeline.h"

static const CommandHelp help = {
    .name = "doc",
    .arguments = "SPEC",
    .summary = "write a page about a cell: equations, shapes, options, cost, data flow",
    .about = "The page is Markdown; --json has the same for tools, with each equation as MathML as well. With -o,\n"
             "the data flow is drawn beside it, which wants Graphviz: apt-get install graphviz.",
    .examples = "  cellc doc specs/e79.cell\n"
                "  cellc doc e88 --dim N=32 -o pages        pages/e88.md, pages/e88.svg\n"
                "  cellc doc gru --json\n",
    .compiles = true,
};

static bool draw(const DocCell *d, Plan *plan, const char *dir)
{
    Buf dot = { .arena = d->c->arena };
    graph_dot(plan, FORWARD, &dot);
    return graph_picture(d->c, intern_f(d->c, "%s/%s.svg", dir, d->cell->name), "svg", &dot);
}

static int write_page(Compiler *c, const char *spec, const char *dir, bool json)
{
    Generated g;
    if (!generate_open(&g, c, spec, NULL, true))
        return 1;
    int file = source_load(c, spec);
    DocCell d = { .c = c, .ast = parse_source(c, file), .plan = g.plan };
    d.source = &c->sources.data[file];
    d.cell = ast_cell(c, d.ast, NULL, true);
    d.step = compile_lowered(g.lowered, step_passes);
    d.lowered = g.lowered;
    if (dir && mkdir(dir, 0777) && errno != EEXIST) {
        say(DIAG_ERROR, "doc", "cannot make '%s': %s", dir, strerror(errno));
        return 1;
    }
    bool picture = dir && draw(&d, g.plan, dir);
    Buf out = { .arena = c->arena };
    doc_collect(&d);
    if (json)
        doc_json(&d, &out);
    else
        doc_markdown(&d, picture, &out);
    buf_shown(&out);
    if (!dir)
        return fwrite(out.data, 1, out.len, stdout) == out.len ? 0 : 1;
    return write_text(intern_f(c, "%s/%s.%s", dir, d.cell->name, json ? "json" : "md"), &out) ? 0 : 1;
}

int cmd_doc(int argc, char **argv)
{
    Compiler *c = compiler_new();
    const char *operands[argc + 1], *dir = NULL;
    bool json = false;
    const OptionSpec table[] = {
        { "-o", "DIR", OPT_STRING, &dir, "write DIR/NAME.md and DIR/NAME.svg (standard output, without the picture)" },
        { "--json", NULL, OPT_FLAG, &json, "as JSON, with MathML: facts for tools that make pages (with -o: NAME.json)" },
        { NULL, NULL, OPT_FLAG, NULL, NULL }
    };
    c->archs = default_archs;
    int n, rc = options_parse(&help, c, argc, argv, table, operands, &n);
    if (rc < 0) {
        rc = write_page(c, operands[0], dir, json);
        diag_print(c, stderr);
    }
    compiler_free(c);
    return rc;
}
