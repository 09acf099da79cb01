/* selftest.c: `cellc selftest`: the ladder on the user's own machine. In: specs, or none for those that come
 * with cellc, and settings. Out: a line per instance, built and run as a program would have it, on the GPU
 * where there is one, else on the reference backend, which is said; what failed; and the counts. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/say.h"
#include "base/texts.h"
#include "check.h"
#include "commands.h"
#include "generate.h"
#include "gpu.h"
#include "options.h"
#include "pipeline.h"
#include "plan/plan.h"
#include "selftest.h"

static const CommandHelp help = {
    .name = "selftest",
    .arguments = "[SPEC...]",
    .summary = "build cells on this machine and test them on its GPU, or without one on the CPU",
    .about =
        "Each cell is checked as by `cellc check`; then, in each variant, its library is built in a temporary\n"
        "directory and called at the sizes where kernels break: forward, backward and step are compared with\n"
        "the reference in double, and runs with one another. Without a SPEC, all that come with cellc are\n"
        "tested. Each variant is taken at small sizes in f32 and one other type, and the cell as it is in the\n"
        "file in bf16; with --full in every type, schedule and size. It needs a C compiler (CC), for kernels\n"
        "also nvcc; without a GPU the reference backend is tested, or with --backend emulated, by a C++ compiler\n"
        "(CXX), the kernels on the CPU. Elements at jumps (of `floor`, a comparison), where the reference itself goes\n"
        "over when its inputs are moved by roundings, are left out and counted; what roundings decide at all sizes is\n"
        "said behind SKIP, and is no failure.",
    .examples = "  cellc selftest\n"
                "  cellc selftest e79 lstm\n"
                "  cellc selftest my.cell --dim N=48 --dtype bf16 --full\n",
    .compiles = true,
    .draws = true,
    .settings = true,
    .computes = true,
};

typedef struct Self {
    Compiler *c;                  /* settings of the command line */
    Tests tests;
    OptionList dtypes, schedules;
    const char *backend;
    bool full;
    int turn;                     /* which other type comes next */
} Self;

/* ---- one spec. Labels and words of tests are in the command line's arena: they outlive its compilations. */

typedef struct Cell {
    const char *path;
    EvalOutline outline;
} Cell;

/* The settings of a compilation as words of the command line. */
static void add_settings(Self *s, Words *w, const Compiler *c, bool kernels)
{
    for (int i = 0; i < c->sets.len; i++) {
        words_add(w, "--set");
        words_add(w, intern_f(s->c, "%s=%s", c->sets.data[i].name, c->sets.data[i].value));
    }
    for (int i = 0; i < c->dims.len; i++) {
        words_add(w, "--dim");
        words_add(w, intern_f(s->c, "%s=%s", c->dims.data[i].name, c->dims.data[i].value));
    }
    for (int i = 0; i < c->types.len; i++) {
        words_add(w, "--dtype-of");
        words_add(w, intern_f(s->c, "%s=%s", c->types.data[i].name, c->types.data[i].value));
    }
    if (c->reverse)
        words_add(w, "--reverse");
    if (c->lengths)
        words_add(w, "--lengths");
    if (kernels && c->products != PRODUCTS_AUTO) {
        words_add(w, "--products");
        words_add(w, products_names[c->products]);
    }
    if (s->c->import_dir) {
        words_add(w, "--import-dir");
        words_add(w, s->c->import_dir);
    }
}

static void add_check(Self *s, const Cell *cell)
{
    const char *label =
        intern_f(s->c, "%s: the reference in double against the evaluator", cell->outline.cell);
    Test *one = test_add(&s->tests, label, NULL);
    words_add(&one->settings, intern_f(s->c, "%s:%s", cell->path, cell->outline.cell));
    add_settings(s, &one->settings, s->c, false);
}

/* "e79 bias=none N=5 bf16", with kernels also their schedule. */
static const char *label_of(const Self *s, const Generated *g, const char *dtype)
{
    Buf b = {.arena = s->c->arena};
    buf_f(&b, "%s", g->m->name);
    for (int i = 0; i < g->m->options.len; i++)
        buf_f(&b, " %s=%s", g->m->options.data[i].name, g->m->options.data[i].value);
    for (int i = 0; i < g->m->bound.len; i++)
        buf_f(&b, " %s=%s", g->m->bound.data[i].name, g->m->bound.data[i].value);
    buf_f(&b, "%s%s %s", g->m->c->reverse ? " reversed" : "", g->m->c->lengths ? " with lengths" : "", dtype);
    if (g->plan)
        buf_f(&b, " %s", schedule_word(g->plan->schedule));
    return b.data;
}

/* One instance; false when the cell does not compile so. Those that a forced schedule does not take, or whose
 * kernels were there before, are left out. */
static bool add_instance(Self *s, const Cell *cell, const Variant *v, const EvalSize *bound, int n,
                         const char *dtype, const char *forced, unsigned *seen)
{
    Compiler *c = compiler_like(s->c, v, bound, n);
    Generated g;
    options_compile(&help, c, "--dtype", dtype);
    options_compile(&help, c, "--schedule", forced);
    bool ok = generate_open(&g, c, cell->path, NULL, s->tests.cuda || s->tests.emulator);
    unsigned kernels = 1u << (1 + (ok && g.plan ? schedule_number(g.plan->schedule) : -1));
    if (ok && !(*seen & kernels)) {
        Test *one = test_add(&s->tests, label_of(s, &g, dtype), intern(s->c, cell->outline.cell));
        *seen |= kernels;
        words_add(&one->settings, intern_f(s->c, "%s:%s", cell->path, cell->outline.cell));
        add_settings(s, &one->settings, c, true);
        words_add(&one->settings, "--dtype");
        words_add(&one->settings, dtype);
        words_add(&one->settings, "--schedule");
        words_add(&one->settings, forced);
    }
    compiler_free(c);
    return ok;
}

/* Every schedule that is wanted and takes the cell, in one type and size. */
static bool add_schedules(Self *s, const Cell *cell, const Variant *v, const EvalSize *bound, int n,
                          const char *dtype)
{
    unsigned seen = 0;
    bool any = false;
    for (int i = 0; i < s->schedules.n; i++)
        any |= add_instance(s, cell, v, bound, n, dtype, s->schedules.items[i], &seen);
    const char *const *words = schedule_choices();
    for (int i = 0; !s->schedules.n && words[i] && (i == 0 || (s->full && (s->tests.cuda || s->tests.emulator))); i++)
        any |= add_instance(s, cell, v, bound, n, dtype, words[i], &seen);
    return any;
}

/* The types for one variant; false when the cell compiles in none. */
static bool add_types(Self *s, const Cell *cell, const Variant *v, const EvalSize *bound, int n)
{
    static const char *const others[] = {"bf16", "f64", "f16"};
    bool any = false;
    for (int i = 0; i < s->dtypes.n; i++)
        any |= add_schedules(s, cell, v, bound, n, s->dtypes.items[i]);
    if (s->dtypes.n)
        return any;
    any = add_schedules(s, cell, v, bound, n, "f32");
    if (!any)
        return false;
    for (int i = 0; i < (s->full ? 3 : 1); i++)
        add_schedules(s, cell, v, bound, n, others[s->full ? i : s->turn % 3]);
    s->turn++;
    return true;
}

/* A variant at the first small sizes that it takes. */
static bool add_small(Self *s, const Cell *cell, const Variant *v)
{
    EvalSize bound[MAX_CHOSEN];
    for (int round = 0; round < N_ROUNDS; round++) {
        int n = sizes_of_round(s->c, &cell->outline, round, false, bound);
        if (n == 0)
            return false;
        if (add_types(s, cell, v, bound, n))
            return true;
    }
    return false;
}

/* The cell as it is in the file, or as the user gave its sizes. */
static bool add_as_given(Self *s, const Cell *cell, const Variant *v, bool alone)
{
    if (alone || s->full || s->dtypes.n)
        return add_types(s, cell, v, NULL, 0);
    return add_schedules(s, cell, v, NULL, 0, "bf16");
}

static void refuse(Self *s, const char *path, Compiler *c)
{
    diag_print(c, stderr);
    printf("%s: does not compile: 0 passed, 1 failed, 0 skipped\n", shown_text(c, path));
    s->tests.failed++;
}

/* Says why a variant does not compile as the user wants it. */
static void refuse_variant(Self *s, const Cell *cell, const Variant *v)
{
    Compiler *c = compiler_like(s->c, v, NULL, 0);
    Generated g;
    options_compile(&help, c, "--dtype", s->dtypes.n ? s->dtypes.items[0] : "f32");
    options_compile(&help, c, "--schedule", s->schedules.n ? s->schedules.items[0] : "auto");
    generate_open(&g, c, cell->path, NULL, s->tests.cuda || s->tests.emulator);
    refuse(s, cell->path, c);
    compiler_free(c);
}

static void add_variants(Self *s, const Cell *cell)
{
    Variant *list = arena_alloc(s->c->arena, sizeof *list * MAX_VARIANTS);
    int n = list_variants(s->c, &cell->outline, false, list);
    add_check(s, cell);
    for (int i = 0; i < n; i++) {
        bool small = add_small(s, cell, &list[i]);
        if ((i == 0 || s->full || !small) && !add_as_given(s, cell, &list[i], !small))
            refuse_variant(s, cell, &list[i]);
    }
}

/* What the front end warns of in the user's cell; its errors are said where it is refused. */
static void say_warnings(Self *s, const char *path)
{
    Compiler *c = compiler_like(s->c, NULL, NULL, 0);
    if (compile(c, path, front_passes) && !c->errors)
        diag_print(c, stderr);
    compiler_free(c);
}

/* A file without a cell, as std.cell, is passed over where nobody named it. */
static void add_spec(Self *s, const char *path, bool named)
{
    Compiler *c = compiler_new();
    Cell cell = {.path = path};
    compiler_inherit(c, s->c);
    int file = source_load(c, path);
    Ast *ast = file >= 0 ? parse_source(c, file) : NULL;
    bool ok = ast && !c->errors && eval_outline(c, ast, NULL, &cell.outline);
    if (ok) {
        if (named)
            say_warnings(s, path);
        add_variants(s, &cell);
    } else if (named || c->errors) {
        if (!c->errors)
            ast_cell(c, ast, NULL, true);
        refuse(s, path, c);
    }
    compiler_free(c);
}

static void add_named(Self *s, const char *name)
{
    s->c->cell = NULL;
    const char *path = home_spec(s->c, name);
    if (path) {
        add_spec(s, path, true);
        return;
    }
    refuse(s, name, s->c);
    s->c->diags.len = 0;
    s->c->errors = 0;
}

static int is_spec(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 5 && strcmp(e->d_name + n - 5, ".cell") == 0;
}

static bool add_shipped(Self *s)
{
    const char *dir = home_dir(s->c, HOME_SPECS);
    struct dirent **list;
    int n = dir ? scandir(dir, &list, is_spec, alphasort) : -1;
    if (n <= 0) {
        say(DIAG_ERROR, "selftest", "the specs are not where cellc is; set CELLC_HOME");
        return false;
    }
    for (int i = 0; i < n; i++) {
        add_spec(s, intern_f(s->c, "%s/%s", dir, list[i]->d_name), false);
        free(list[i]);
    }
    free(list);
    return true;
}

/* ---- what is tested on */

/* -1 to go on. */
static int choose_backend(Self *s)
{
    const char *wanted = s->backend ? s->backend : getenv("CELL_BACKEND");
    if (!wanted || !*wanted)
        wanted = "auto";
    bool cuda = strcmp(wanted, "cuda") == 0, any = strcmp(wanted, "auto") == 0;
    if (strcmp(wanted, "emulated") == 0) {
        s->tests.emulator = home_dir(s->c, HOME_EMULATOR);
        if (s->tests.emulator)
            printf("kernels are tested on the CPU, by an emulator\n");
        else
            say(DIAG_ERROR, "selftest", "the emulator is not where cellc is; set CELLC_HOME");
        return s->tests.emulator ? -1 : 1;
    }
    if (!cuda && !any && strcmp(wanted, "reference") != 0)
        return usage_error(&help, "--backend takes one of auto, cuda, reference, emulated, not '%s'", wanted);
    const char *why = cuda || any ? gpu_refused(s->c) : NULL;
    if (cuda && why) {
        say(DIAG_ERROR, "selftest", "%s", why);
        return 1;
    }
    s->tests.cuda = (cuda || any) && !why;
    if (why)
        printf("%s: the reference backend is tested\n", why);
    else
        printf(s->tests.cuda ? "kernels are tested on the GPU\n" : "the reference backend is tested\n");
    return -1;
}

static int check_lists(Self *s)
{
    Compiler *trial = compiler_new();
    int rc = -1;
    for (int i = 0; i < s->dtypes.n && rc < 0; i++)
        rc = options_compile(&help, trial, "--dtype", s->dtypes.items[i]);
    for (int i = 0; i < s->schedules.n && rc < 0; i++)
        rc = options_compile(&help, trial, "--schedule", s->schedules.items[i]);
    compiler_free(trial);
    return rc;
}

static int self_test(Self *s, const char *const *specs, int n)
{
    Compiler *c = s->c;
    const char *dir = scratch_make(c, "selftest");
    if (!dir)
        return 1;
    s->tests.c = c;
    s->tests.program = home_program(c);
    s->tests.dir = dir;
    s->tests.full = s->full;
    bool ok = n > 0 || add_shipped(s);
    for (int i = 0; i < n; i++)
        add_named(s, specs[i]);
    ok = ok && (!s->tests.emulator || tests_emulator(&s->tests));
    if (ok)
        tests_run(&s->tests);
    scratch_remove(dir);
    if (!ok)
        return 1;
    printf("%d passed, %d failed, %d skipped\n", s->tests.passed, s->tests.failed, s->tests.skipped);
    return s->tests.failed > 0 || s->tests.passed == 0;
}

int cmd_selftest(int argc, char **argv)
{
    Self s = {.c = compiler_new()};
    const char *operands[argc + 1];
    int64_t jobs = processors();
    const OptionSpec table[] = {
        {"--dtype", "TYPE", OPT_LIST, &s.dtypes, "only this type, or these: \"f32 bf16\", or given twice"},
        {"--schedule", "NAME", OPT_LIST, &s.schedules, "only this schedule, or these"},
        {"--full", NULL, OPT_FLAG, &s.full, "every type, schedule and size: hours of nvcc for all cells"},
        {"--backend", "NAME", OPT_STRING, &s.backend, "auto (default), cuda, reference, or emulated: the kernels on the CPU, slowly"},
        {"--jobs", "N", OPT_INT, &jobs, "instances that are built and tested at once (processors)"},
        {"-v", NULL, OPT_FLAG, &s.tests.verbose, "show what every test says, and the commands that are run"},
        {NULL, NULL, OPT_FLAG, NULL, NULL},
    };
    int n, rc = options_parse(&help, s.c, argc, argv, table, operands, &n);
    if (rc < 0 && texts_closed(s.c))
        rc = usage_error(&help, "--sources is not for this command, which runs others that read the files");
    if (rc < 0)
        rc = check_lists(&s);
    if (rc < 0 && (!home_dir(s.c, HOME_LIB) || !home_dir(s.c, HOME_INCLUDE))) {
        say(DIAG_ERROR, "selftest", "the runtime is not where cellc is; run make, or set CELLC_HOME");
        rc = 1;
    }
    s.tests.jobs = jobs < 1 ? 1 : jobs < 64 ? (int)jobs : 64;
    if (rc < 0)
        rc = choose_backend(&s);
    if (rc < 0)
        rc = self_test(&s, operands, n);
    compiler_free(s.c);
    return rc;
}
