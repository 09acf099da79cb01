/* cmd_explain.c: `cellc explain`. In: a spec and settings. Out: what the compiler made of it: the
 * instance, every tensor with its shape and bytes, and every value of the step with what it depends on. */
#include <inttypes.h>
#include <string.h>

#include "commands.h"
#include "options.h"

static const CommandHelp help = {
    .name = "explain",
    .arguments = "SPEC",
    .summary = "print what the compiler decided for a spec, and why",
    .examples = "  cellc explain specs/e79.cell\n"
                "  cellc explain specs/e79.cell --set bias=input --dim N=32 --dtype bf16\n"
                "  cellc explain specs/e79.cell --dump-after lower\n",
    .compiles = true,
};

static void put_axes(const Module *m, const Poly *const *axes, int n, const char *front, Buf *out)
{
    buf_f(out, "[%s", front);
    for (int i = 0; i < n; i++) {
        buf_f(out, "%s", i || front[0] ? ", " : "");
        poly_print(m, axes[i], out);
    }
    buf_f(out, "]");
}

static void put_instance(const Module *m, Buf *out)
{
    buf_f(out, "cell %s", m->name);
    for (int i = 0; i < m->bound.len; i++)
        buf_f(out, " %s=%s", m->bound.data[i].name, m->bound.data[i].value);
    for (int i = 0; i < m->options.len; i++)
        buf_f(out, " %s=%s", m->options.data[i].name, m->options.data[i].value);
    buf_f(out, " dtype=%s\n", dtype_names[m->c->dtype]);
    buf_f(out, "run-time sizes: B, T");
    for (int i = 0; i < m->dims.len; i++)
        buf_f(out, ", %s", m->dims.data[i]);
    buf_f(out, "\n\n");
}

static const char *kind_name(const Tensor *t)
{
    switch (t->kind) {
    case T_INPUT: return "input";
    case T_PARAM: return "param";
    case T_STATE: return "state";
    case T_OUTPUT: return "output";
    default: return NULL;
    }
}

static int dtype_bytes(Dtype d)
{
    return d == DT_F64 ? 8 : d == DT_BF16 || d == DT_F16 ? 2 : 4;
}

static void put_tensors(const Module *m, Buf *out)
{
    buf_f(out, "tensors\n");
    for (int i = 0; i < m->tensors.len; i++) {
        const Tensor *t = &m->tensors.data[i];
        const char *kind = kind_name(t);
        if (!kind)
            continue;
        buf_f(out, "  %-7s %-20s ", kind, t->name);
        put_axes(m, t->axes, t->rank, t->kind == T_PARAM ? "" : t->kind == T_STATE ? "B" : "B, T", out);
        buf_f(out, ", %d bytes each%s\n", dtype_bytes(t->dtype), t->no_grad ? ", no gradient" : "");
    }
}

/* What a value depends on says when it can be computed. */
static const char *phase_name(unsigned dep)
{
    if (dep & DEP_STATE)
        return "every step, one after the other: depends on a state";
    if (dep & (DEP_INPUT | DEP_TIME))
        return "all steps at once: depends on no state";
    if (dep & DEP_PARAM)
        return "once: depends on params only";
    return "constant";
}

static void put_values(const Module *m, Buf *out)
{
    buf_f(out, "\nvalues\n");
    for (int i = 0; i < m->nodes.len; i++) {
        const Node *n = &m->nodes.data[i];
        const Poly *axes[64];
        if (n->kind != N_ARRAY || !n->name || n->naxes > 64)
            continue;
        for (int k = 0; k < n->naxes; k++)
            axes[k] = m->indices.data[n->axes[k]].extent;
        size_t start = out->len;
        buf_f(out, "  %-8s ", n->name);
        put_axes(m, axes, n->naxes, "", out);
        int width = (int)(out->len - start);
        buf_f(out, "%*s%s\n", width < 24 ? 24 - width : 1, "", phase_name(n->dep));
    }
}

static void put_checks(const Module *m, Buf *out)
{
    if (m->checks.len)
        buf_f(out, "\nchecked at the call\n");
    for (int i = 0; i < m->checks.len; i++) {
        buf_f(out, "  ");
        poly_print(m, m->checks.data[i].nonneg, out);
        buf_f(out, " >= 0: %s\n", m->checks.data[i].text);
    }
}

int cmd_explain(int argc, char **argv)
{
    Compiler *c = compiler_new();
    const char *operands[argc + 1];
    const OptionSpec table[] = { { NULL, NULL, OPT_FLAG, NULL, NULL } };
    int n, rc = options_parse(&help, c, argc, argv, table, operands, &n);
    if (rc < 0) {
        Module *m = compile(c, operands[0], front_passes);
        diag_print(c, stderr);
        rc = !m || c->errors;
        if (!rc) {
            Buf out = { .arena = c->arena };
            put_instance(m, &out);
            put_tensors(m, &out);
            put_values(m, &out);
            put_checks(m, &out);
            fwrite(out.data, 1, out.len, stdout);
        }
    }
    compiler_free(c);
    return rc;
}
