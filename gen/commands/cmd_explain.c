/* cmd_explain.c: `cellc explain`. In: a spec and settings. Out: what the compiler decided: a summary
 * (explain_summary.c); with --all the instance, the schedule and why, every tensor and value with its phase, where it
 * lies and what it costs (explain.c); at sizes that were given, the memory of a call. */
#include "base/say.h"
#include "call_sizes.h"
#include "commands.h"
#include "explain.h"
#include "generate.h"
#include "options.h"
#include "pipeline.h"

static const CommandHelp help = {
    .name = "explain",
    .arguments = "SPEC",
    .summary = "print what the compiler decided for a spec, and why",
    .examples = "  cellc explain specs/e79.cell\n"
                "  cellc explain specs/e79.cell --all\n"
                "  cellc explain specs/e79.cell --set bias=input --dim N=32 --dtype bf16\n"
                "  cellc explain specs/e79.cell --schedule steps\n"
                "  cellc explain specs/lstm.cell --sizes B=16,T=512,D=1024,H=1024\n"
                "  cellc explain specs/e79.cell --dump-after lower\n",
    .compiles = true,
};

int cmd_explain(int argc, char **argv)
{
    Compiler *c = compiler_new();
    const char *operands[argc + 1];
    const char *at = NULL;
    int64_t sizes[MAX_DIMS] = { 0 };
    bool all = false;
    const OptionSpec table[] = {
        { "--all", NULL, OPT_FLAG, &all, "every operation, value and buffer, and all reasons" },
        { "--archs", "LIST", OPT_STRING, &c->archs, "GPUs it is for, e.g. \"80 90\" (80 86 89 90)" },
        { "--sizes", "LIST", OPT_STRING, &at, "say too what memory a call takes at B=16,T=512,D=1024, and which kernels" },
        { NULL, NULL, OPT_FLAG, NULL, NULL }
    };
    c->archs = default_archs;
    int n, rc = options_parse(&help, c, argc, argv, table, operands, &n);
    if (rc < 0)
        rc = archs_check(&help, c->archs);
    if (rc < 0) {
        Generated g;
        bool ok = generate_open(&g, c, operands[0], NULL, true);
        diag_print(c, stderr);
        rc = ok && at ? call_sizes_read(&help, g.plan->m, NULL, at, sizes) : !ok;
        const char *refused = rc == 0 && at ? explain_refused(g.plan, sizes) : NULL;
        if (refused)
            rc = usage_error(&help, "--sizes %s, from t0 = 0: %s", at, refused);
        if (rc == 0) {
            Buf out = { .arena = c->arena };
            (all ? explain : explain_summary)(g.plan, g.lowered, &out);
            if (!all)
                buf_f(&out, "\n--all says what each operation and value costs, where it lies, and why.\n");
            if (at) {
                explain_memory(g.plan, sizes, &out);
                explain_forms(g.plan, sizes, &out);
            }
            put_shown(stdout, out.data, out.len, true);
        }
    }
    compiler_free(c);
    return rc;
}
