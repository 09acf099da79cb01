/* cmd_compare.c: `cellc compare`. In: two specs, or one with two settings. Out: their equations with equal
 * lines joined, what the compiler decided for each and what it costs, the memory of a call, and where the
 * values of the two first differ on equal inputs; as text or JSON. The exit code is diff's: 0 the same, 1
 * not, 2 they could not be compared. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/home.h"
#include "base/process.h"
#include "base/say.h"
#include "call_sizes.h"
#include "commands.h"
#include "compare.h"
#include "explain.h"
#include "explain_words.h"
#include "front/front.h"
#include "generate.h"
#include "pipeline.h"

static const CommandHelp help = {
    .name = "compare",
    .arguments = "A B | A [options...] -- [B] [options...]",
    .summary = "show two specs, or two settings of one, side by side, and where their values differ",
    .about =
        "Equations and what `cellc explain` says stand beside each other where the terminal has room\n"
        "for two columns, else one after the other; what is the same stands once. Then both run on equal\n"
        "random values, or those of a vector file, matched by name: outputs, states and the values inside\n"
        "that both have, in the evaluator, and if these are the same the gradients, in the reference. The\n"
        "first element that differs by more than roundings explain is said.\n"
        "Options in front of -- are A's, those behind it B's; without -- they are both's. Without a B\n"
        "behind --, B is A. Options from --vectors to --json below are of both, on whichever side.\n"
        "Exit code: 0 no difference of values (with --no-values: of all else), 1 a difference, 2 they\n"
        "could not be compared.",
    .examples = "  cellc compare gru.cell my_gru.cell\n"
                "  cellc compare e79 --set bias=none -- --set bias=input\n"
                "  cellc compare old.cell new.cell --rename W=weight,U=recurrent --vectors old.vec --brief\n"
                "  cellc compare gru lstm --sizes B=16,T=512,D=1024,H=1024 --no-values\n",
    .compiles = true,
    .draws = true,
    .settings = true,
};

/* One of the two, for what the compiler decides. */
typedef struct Compared {
    Side side;
    Compiler *user; /* its settings */
    const char *operand;
    Generated g;
    const char *equations;
    Table rows; /* label, text */
} Compared;

typedef struct Compare {
    Compiler *c;         /* what is compared lives here */
    Compiler *parsed[2]; /* of the command line: of both, or in front of -- and behind it */
    Compared of[2];
    OptionList renames;
    const char *vectors, *sizes, *archs, *within;
    int64_t batch, steps, seed, width;
    bool no_values, no_gradients, brief, json;
    Diff equations, rows, call;
    ValueRequest request;
    ValueResult values;
} Compare;

enum { SAME, DIFFERENT, TROUBLE };

/* ---- the two sides */

static bool add_side(Compare *q, int which, const Compiler *parsed, const char *operand)
{
    Compared *x = &q->of[which];
    Compiler *c = x->user = compiler_new();
    compiler_inherit(c, parsed);
    c->archs = q->archs;
    x->operand = operand;
    x->side.user = c;
    x->side.path = home_spec(c, operand);
    int file = x->side.path ? source_load(c, x->side.path) : -1;
    const Ast *ast = file >= 0 ? parse_source(c, file) : NULL;
    bool ok = ast && !c->errors && eval_outline(c, ast, NULL, &x->side.outline);
    if (ast && !ok && !c->errors)
        ast_cell(c, ast, NULL, true);
    diag_print(c, stderr);
    c->diags.len = 0; /* what parsing said would be said again */
    return ok;
}

/* The words in front of a `--` that divides them, and those behind it. false: exit with *rc. */
static bool read_sides(Compare *q, const OptionSpec *table, int argc, char **argv, int *rc)
{
    CommandHelp second = help;
    const char *operands[argc + 1];
    int split = 1, n = 0, m = 0;
    while (split < argc && strcmp(argv[split], "--") != 0)
        split++;
    char *rest[argc - split + 1];
    bool divided = split < argc;
    rest[0] = argv[0];
    for (int i = split + 1; i < argc; i++)
        rest[i - split] = argv[i];
    for (int i = 0; i < 2; i++)
        q->parsed[i] = compiler_new();
    *rc = options_parse(&help, q->parsed[0], split, argv, table, operands, &n);
    second.arguments = "[B]";
    if (*rc < 0 && divided)
        *rc = options_parse(&second, q->parsed[1], argc - split, rest, table, operands + n, &m);
    if (*rc < 0 && n + m != 2 && !(divided && n == 1 && m == 0))
        *rc = usage_error(&help,
                          divided ? "takes one SPEC in front of -- and at most one behind it"
                                  : "takes two specs, or -- between the settings of one; got %d",
                          n);
    if (*rc < 0 && divided && n != 1)
        *rc = usage_error(&help, "takes one SPEC in front of -- and at most one behind it");
    if (*rc < 0)
        *rc = archs_check(&help, q->archs);
    bool ok = *rc < 0 && add_side(q, 0, q->parsed[0], operands[0]);
    ok = ok && add_side(q, 1, q->parsed[divided], operands[n + m == 2]);
    *rc = *rc ? TROUBLE : SAME; /* --help is no trouble */
    return ok;
}

static bool read_renames(Compare *q)
{
    Rename *list = arena_alloc(q->c->arena, sizeof *list * (size_t)(q->renames.n + 1));
    for (int i = 0; i < q->renames.n; i++) {
        const char *text = q->renames.items[i], *eq = strchr(text, '=');
        if (!eq || eq == text || !eq[1]) {
            usage_error(&help, "--rename takes A's name=B's name, not '%s'", text);
            return false;
        }
        list[i] = (Rename){ intern_n(q->c, text, (size_t)(eq - text)), intern(q->c, eq + 1) };
    }
    q->request.renames = (Renames){ list, q->renames.n };
    return true;
}

/* ---- what the compiler makes of each */

static const char *equations_of(Compare *q, const Compared *x)
{
    Compiler *c = compiler_new();
    compiler_inherit(c, x->user);
    Buf out = { .arena = c->arena };
    int file = source_load(c, x->side.path);
    const Ast *ast = parse_source(c, file);
    expand(c, ast, NULL);
    fmt_taken(c, ast, ast_cell(c, ast, NULL, false), &out);
    const char *text = intern(q->c, out.data ? out.data : "");
    compiler_free(c);
    return text;
}

/* "cell gru: reset=after, stored as f32" and "B sequences, T steps, D, H", as explain has them. */
static void add_instance(Compare *q, Compared *x, const Explain *e)
{
    static const char sizes[] = "\nrun-time sizes: ";
    char *text = e->out->data, *at = strstr(text, sizes);
    *at = 0;
    for (char *p = at + 1; *p; p++)
        *p = *p == '\n' && !p[1] ? 0 : *p;
    for (char *p = text; *p; p++)
        *p = *p == '\n' ? ' ' : *p;
    table_row(q->c, &x->rows, "cell", intern(q->c, text + strlen("cell ")), NULL);
    table_row(q->c, &x->rows, "sizes", intern(q->c, at + strlen(sizes)), NULL);
}

static const char *bytes_words(const Explain *e)
{
    const char *forward = explain_size(e, explain_sum(e, FORWARD).step);
    if (!e->m->has_grad)
        return intern_f(e->c, "%s moved per sequence and step", forward);
    return intern_f(e->c, "moved per sequence and step %s forward, %s backward", forward,
                    explain_size(e, explain_sum(e, BACKWARD).step));
}

static void find_rows(Compare *q, Compared *x)
{
    Buf out = { .arena = x->user->arena };
    Explain e = explain_of(x->g.plan, &out);
    explain_instance(&e);
    add_instance(q, x, &e);
    Table rows = explain_rows(x->g.plan, x->g.lowered);
    for (int i = 0; i < rows.rows.len; i++)
        table_row(q->c, &x->rows, rows.rows.data[i].cell[0], rows.rows.data[i].cell[1], NULL);
    table_row(q->c, &x->rows, "bytes", bytes_words(&e), NULL);
}

/* The forms that a call takes of what it has several of; "": none has. */
static const char *forms_taken(const Compare *q, const Compared *x, const int64_t *sizes)
{
    static const char taken[] = ": taken";
    Buf all = { .arena = x->user->arena }, out = { .arena = q->c->arena };
    explain_forms(x->g.plan, sizes, &all);
    for (const char *line = all.data ? all.data : "", *end; *line; line = end + (*end != 0)) {
        end = line + strcspn(line, "\n");
        line += strspn(line, " ");
        size_t n = (size_t)(end - line), behind = sizeof taken - 1;
        if (n > behind && memcmp(end - behind, taken, behind) == 0)
            buf_f(&out, "%s%.*s", out.len ? "; " : "", (int)(n - behind), line);
    }
    return out.data ? out.data : "";
}

/* What a call at sizes takes. */
static void find_call(Compare *q, const Compared *x, const int64_t *sizes, Table *t)
{
    Explain e = explain_of(x->g.plan, NULL);
    CallMemory m = explain_call_memory(x->g.plan, sizes);
    double rows = (double)sizes[ATOM_B] * (double)sizes[ATOM_T], mib = 1 << 20;
    static const char *const names[] = { "forward", "backward" };
    for (int d = 0; d < (x->g.plan->m->has_grad ? 2 : 1); d++) {
        Cost cost = explain_sum(&e, d);
        double flops =
            rows * explain_size_at(e.m, cost.flops, sizes) + explain_size_at(e.m, cost.flops_once, sizes);
        table_row(q->c, t, names[d],
                  intern_f(q->c, "%.4g Gflop, %.1f MiB moved", flops / 1e9,
                           (rows * explain_size_at(e.m, cost.step, sizes) +
                            explain_size_at(e.m, cost.once, sizes)) /
                               mib),
                  NULL);
    }
    table_row(q->c, t, "arguments", intern_f(q->c, "%.1f MiB", m.arguments / mib), NULL);
    table_row(q->c, t, "gradients", intern_f(q->c, "%.1f MiB", m.gradients / mib), NULL);
    table_row(q->c, t, "reserve", intern_f(q->c, "%.1f MiB", m.reserve / mib), NULL);
    table_row(
        q->c, t, "workspace",
        intern_f(q->c, "at most %.1f MiB%s", m.workspace / mib, m.partial ? ", beside partial sums" : ""),
        NULL);
    table_row(q->c, t, "inference", intern_f(q->c, "%.1f MiB in all", (m.arguments + m.inference) / mib),
              NULL);
    const char *forms = forms_taken(q, x, sizes);
    if (*forms)
        table_row(q->c, t, "takes", forms, NULL);
}

static bool compile_sides(Compare *q)
{
    bool ok = true;
    for (int i = 0; i < 2; i++) {
        Compared *x = &q->of[i];
        Compiler *c = compiler_new();
        compiler_inherit(c, x->user);
        bool made = generate_open(&x->g, c, x->side.path, NULL, true);
        diag_print(c, stderr);
        ok &= made;
        if (made) {
            x->equations = equations_of(q, x);
            find_rows(q, x);
        }
    }
    return ok;
}

static bool compare_texts(Compare *q)
{
    const Renames *r = &q->request.renames;
    int64_t sizes[2][MAX_DIMS] = { { 0 } };
    Table call[2] = { { 0 }, { 0 } };
    if (!compile_sides(q))
        return false;
    for (int i = 0; q->sizes && i < 2; i++) {
        const Plan *p = q->of[i].g.plan;
        if (call_sizes_read(&help, p->m, q->of[!i].g.plan->m, q->sizes, sizes[i]) != 0)
            return false;
        const char *refused = explain_refused(p, sizes[i]);
        if (refused) {
            usage_error(&help, "--sizes %s, of %s from t0 = 0: %s", q->sizes, q->of[i].operand, refused);
            return false;
        }
        find_call(q, &q->of[i], sizes[i], &call[i]);
    }
    q->equations = diff_texts(q->c, r, q->of[0].equations, q->of[1].equations);
    q->rows = diff_rows(q->c, r, &q->of[0].rows, &q->of[1].rows);
    q->call = diff_rows(q->c, r, &call[0], &call[1]);
    return true;
}

/* ---- values */

/* Half a unit in the last place of 1. */
static bool read_unit(Compare *q)
{
    static const struct {
        const char *name;
        double unit;
    } units[] = {
        { "f64", 0x1p-53 },
        { "f32", 0x1p-24 },
        { "f16", 0x1p-11 },
        { "bf16", 0x1p-8 },
    };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(q->within, units[i].name) == 0) {
            q->request.unit = units[i].unit;
            return true;
        }
    usage_error(&help, "--within takes one of f64, f32, f16, bf16, not '%s'", q->within);
    return false;
}

static bool read_vectors(Compare *q)
{
    VecFile *f = q->request.vectors = q->vectors ? vec_read(q->vectors) : NULL;
    q->request.vectors_path = q->vectors;
    if (f && f->error[0])
        vec_print_error(f, q->vectors);
    return !f || !f->error[0];
}

static bool run_both(Compare *q)
{
    q->request.first = &q->of[0].side;
    q->request.second = &q->of[1].side;
    q->request.batch = q->batch;
    q->request.steps = q->steps;
    q->request.seed = q->seed;
    q->request.gradients = !q->no_gradients;
    const char *dir = scratch_make(q->c, "compare");
    q->of[0].side.s.dir = q->of[1].side.s.dir = dir;
    bool ok = dir && read_vectors(q);
    if (ok)
        q->values = compare_values(q->c, &q->request);
    if (dir)
        scratch_remove(dir);
    if (q->values.error && *q->values.error)
        say(DIAG_ERROR, "compare", "%s", q->values.error);
    return ok && !q->values.error;
}

static bool same_values(const Compare *q)
{
    return !q->values.differ.len && !q->values.alone.len;
}

static bool same(const Compare *q)
{
    if (!q->no_values)
        return same_values(q);
    return diff_same(&q->equations) && diff_same(&q->rows) && diff_same(&q->call);
}

/* ---- what is printed */

static const char *distance(Compiler *c, const Difference *d)
{
    double apart = d->first > d->second ? d->first - d->second : d->second - d->first;
    return intern_f(c, "%.3g", apart);
}

static const char *compared_words(const Compare *q)
{
    return q->values.gradients ? "outputs, states and gradients" : "outputs and states";
}

static void put_values(const Compare *q, Buf *out)
{
    enum { MOST_SHOWN = 12 };
    Table t = { 0 };
    const ValueResult *v = &q->values;
    buf_f(out, "\nvalues\n");
    for (int i = 0; i < v->alone.len; i++)
        put_paragraph(v->alone.data[i], 2, out);
    for (int i = 0; i < v->differ.len && i < MOST_SHOWN; i++) {
        const Difference *d = &v->differ.data[i];
        if (i == 0)
            table_row(q->c, &t, "", "first place", "first", "second", "apart by", "tolerance", NULL);
        table_row(q->c, &t, d->what, d->where, intern_f(q->c, "%.9g", d->first),
                  intern_f(q->c, "%.9g", d->second), distance(q->c, d), intern_f(q->c, "%.1e", d->tolerance),
                  NULL);
    }
    if (v->differ.len)
        table_print(&t, out);
    if (v->differ.len > MOST_SHOWN)
        buf_f(out, "  and %d more\n", v->differ.len - MOST_SHOWN);
    if (v->differ.len)
        put_paragraph(intern_f(q->c, "with %s; %s", v->of, v->sizes), 2, out);
}

/* The last line: what to know where nothing else is read. */
static const char *verdict(const Compare *q)
{
    const ValueResult *v = &q->values;
    if (q->no_values)
        return same(q) ? "nothing differs" : "they differ, as shown; values were not compared";
    const char *rest =
        v->alone.len > 1 ? intern_f(q->c, ", and %d more without a partner", v->alone.len - 1) : "";
    const char *alone = v->alone.len ? intern_f(q->c, "%s%s; ", v->alone.data[0], rest) : "";
    if (v->differ.len) {
        const Difference *d = &v->differ.data[0];
        return intern_f(q->c,
                        "%svalues differ, first in %s at %s: %.9g and %.9g, apart by %s, tolerance %.1e",
                        alone, d->what, d->where, d->first, d->second, distance(q->c, d), d->tolerance);
    }
    const char *equal = q->vectors ? intern_f(q->c, "%s are equal on the values of %s (%s)",
                                              compared_words(q), q->vectors, v->sizes)
                                   : intern_f(q->c, "%s are equal in %d cases of random values (%s)",
                                              compared_words(q), v->cases, v->sizes);
    return intern_f(q->c, "%s%s", alone, equal);
}

static int width_of(const Compare *q)
{
    struct winsize terminal;
    const char *columns = getenv("COLUMNS");
    if (q->width)
        return (int)(q->width < 1000 ? q->width : 1000);
    if (isatty(1) && ioctl(1, TIOCGWINSZ, &terminal) == 0 && terminal.ws_col)
        return terminal.ws_col;
    int n = columns ? atoi(columns) : 0;
    return n > 0 && n < 1000 ? n : TABLE_WIDTH;
}

static void put_text(const Compare *q)
{
    Buf out = { .arena = q->c->arena };
    int width = width_of(q);
    if (!q->brief) {
        buf_f(&out, "- %s\n+ %s\n", q->of[0].operand, q->of[1].operand);
        buf_f(&out, "\nequations\n");
        diff_print(q->c, &q->equations, width, &out);
        buf_f(&out, "\nexplained\n");
        diff_print(q->c, &q->rows, width, &out);
        if (q->sizes) {
            buf_f(&out, "\na call at %s\n", q->sizes);
            diff_print(q->c, &q->call, width, &out);
        }
        if (!q->no_values && !same_values(q))
            put_values(q, &out);
        buf_f(&out, "\n");
    }
    buf_f(&out, "%s\n", verdict(q));
    put_shown(stdout, out.data, out.len, true);
}

static void put_json_string(const char *name, const char *text, Buf *out)
{
    buf_f(out, "\"%s\": ", name);
    buf_json(out, text, strlen(text));
}

/* A number, or as a string what JSON has no number for. */
static void put_json_number(const char *name, double x, Buf *out)
{
    if (x - x == 0)
        buf_f(out, "\"%s\": %.17g", name, x);
    else
        buf_f(out, "\"%s\": \"%s\"", name, x != x ? "nan" : x > 0 ? "inf" : "-inf");
}

static void put_json_values(const Compare *q, Buf *out)
{
    const ValueResult *v = &q->values;
    buf_f(out, "{\"equal\": %s, ", same_values(q) ? "true" : "false");
    put_json_string("of", v->of, out);
    buf_f(out, ", ");
    put_json_string("sizes", v->sizes, out);
    buf_f(out, ", \"cases\": %d, \"gradients\": %s, \"alone\": [", v->cases, v->gradients ? "true" : "false");
    for (int i = 0; i < v->alone.len; i++) {
        buf_f(out, i ? ", " : "");
        buf_json(out, v->alone.data[i], strlen(v->alone.data[i]));
    }
    buf_f(out, "], \"differ\": [");
    for (int i = 0; i < v->differ.len; i++) {
        const Difference *d = &v->differ.data[i];
        buf_f(out, "%s\n    {", i ? "," : "");
        put_json_string("what", d->what, out);
        buf_f(out, ", ");
        put_json_string("where", d->where, out);
        buf_f(out, ", ");
        put_json_number("first", d->first, out);
        buf_f(out, ", ");
        put_json_number("second", d->second, out);
        buf_f(out, ", ");
        put_json_number("tolerance", d->tolerance, out);
        buf_f(out, "}");
    }
    buf_f(out, "%s]}", v->differ.len ? "\n  " : "");
}

static void put_json(const Compare *q)
{
    Buf out = { .arena = q->c->arena };
    buf_f(&out, "{");
    put_json_string("first", q->of[0].operand, &out);
    buf_f(&out, ", ");
    put_json_string("second", q->of[1].operand, &out);
    buf_f(&out, ", \"same\": %s,\n  ", same(q) ? "true" : "false");
    put_json_string("verdict", verdict(q), &out);
    buf_f(&out, ",\n  \"equations\": ");
    diff_json(&q->equations, &out);
    buf_f(&out, ",\n  \"explained\": ");
    diff_json(&q->rows, &out);
    buf_f(&out, ",\n  \"call\": ");
    diff_json(&q->call, &out);
    buf_f(&out, ",\n  \"values\": ");
    if (q->no_values)
        buf_f(&out, "null");
    else
        put_json_values(q, &out);
    buf_f(&out, "}\n");
    fwrite(out.data, 1, out.len, stdout);
}

static int compare(Compare *q)
{
    if (!read_renames(q) || !read_unit(q) || !compare_texts(q) || (!q->no_values && !run_both(q)))
        return TROUBLE;
    (q->json ? put_json : put_text)(q);
    return same(q) ? SAME : DIFFERENT;
}

int cmd_compare(int argc, char **argv)
{
    Compare q = {
        .c = compiler_new(), .batch = 2, .steps = 5, .seed = 1, .archs = default_archs, .within = "f64"
    };
    const OptionSpec table[] = {
        { "--vectors", "FILE", OPT_STRING, &q.vectors,
          "compare values on a vector file; sizes come from it" },
        { "--rename", "A=B", OPT_LIST, &q.renames, "what is called A in the first is B in the second" },
        { "--sizes", "LIST", OPT_STRING, &q.sizes,
          "say too what a call takes at B=16,T=512,D=1024, of both cells" },
        { "--archs", "LIST", OPT_STRING, &q.archs, "GPUs it is for, e.g. \"80 90\" (80 86 89 90)" },
        { "--batch", "B", OPT_INT, &q.batch, "sequences of random values (2)" },
        { "--steps", "T", OPT_INT, &q.steps, "steps of random values (5)" },
        { "--seed", "S", OPT_INT, &q.seed, "of random values (1)" },
        { "--within", "TYPE", OPT_STRING, &q.within, "roundings of this type are no difference (f64)" },
        { "--no-values", NULL, OPT_FLAG, &q.no_values, "run nothing" },
        { "--no-gradients", NULL, OPT_FLAG, &q.no_gradients, "compare outputs and states only" },
        { "--brief", NULL, OPT_FLAG, &q.brief, "print the last line only" },
        { "--width", "N", OPT_INT, &q.width, "columns to print in (those of the terminal, or 110)" },
        { "--json", NULL, OPT_FLAG, &q.json, "as JSON, all of it" },
        { NULL, NULL, OPT_FLAG, NULL, NULL }
    };
    int rc;
    if (read_sides(&q, table, argc, argv, &rc))
        rc = compare(&q);
    vec_free(q.request.vectors);
    for (int i = 0; i < 2; i++) {
        if (q.of[i].g.c)
            compiler_free(q.of[i].g.c);
        if (q.of[i].user)
            compiler_free(q.of[i].user);
        if (q.parsed[i])
            compiler_free(q.parsed[i]);
    }
    compiler_free(q.c);
    return rc;
}
