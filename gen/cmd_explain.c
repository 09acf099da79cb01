/* cmd_explain.c: `cellc explain`. In: a spec and settings. Out: what the compiler decided, as explain.c words
 * it: instance, schedule and why, every tensor and value with its phase, where it lies and what it costs. */
#include "commands.h"
#include "explain.h"
#include "generate.h"
#include "options.h"

static const CommandHelp help = {
    .name = "explain",
    .arguments = "SPEC",
    .summary = "print what the compiler decided for a spec, and why",
    .examples = "  cellc explain specs/e79.cell\n"
                "  cellc explain specs/e79.cell --set bias=input --dim N=32 --dtype bf16\n"
                "  cellc explain specs/e79.cell --schedule steps\n"
                "  cellc explain specs/e79.cell --dump-after lower\n",
    .compiles = true,
};

int cmd_explain(int argc, char **argv)
{
    Compiler *c = compiler_new();
    const char *operands[argc + 1];
    const OptionSpec table[] = {
        { "--archs", "LIST", OPT_STRING, &c->archs, "GPUs it is for, e.g. \"80 90\" (80 86 89 90)" },
        { NULL, NULL, OPT_FLAG, NULL, NULL }
    };
    c->archs = default_archs;
    int n, rc = options_parse(&help, c, argc, argv, table, operands, &n);
    if (rc < 0) {
        Generated g;
        bool ok = generate_open(&g, c, operands[0], NULL, true);
        diag_print(c, stderr);
        rc = !ok;
        if (ok) {
            Buf out = { .arena = c->arena };
            explain(g.plan, &out);
            fwrite(out.data, 1, out.len, stdout);
        }
    }
    compiler_free(c);
    return rc;
}
