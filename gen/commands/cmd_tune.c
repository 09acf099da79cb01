/* cmd_tune.c: `cellc tune`. In: a spec, its settings, the sizes of a call. Out: a table of the candidates and what each
 * took on this machine's GPU, and DIR/CELL.tune with the fastest, which `cellc build` takes. Guaranteed: a candidate whose
 * results differ from the default's is never chosen, and neither is one that is not clearly faster. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "base/say.h"
#include "base/table.h"
#include "base/texts.h"
#include "commands.h"
#include "explain.h"
#include "generate.h"
#include "options.h"
#include "tune.h"

static const CommandHelp help = {
    .name = "tune",
    .arguments = "SPEC",
    .summary = "measure the schedules that a cell can have on this machine's GPU, and keep the fastest",
    .about = "Builds the cell with every schedule that takes it; of a walk on chip also with the layouts "
             "that the planner\n"
             "likes best, with more and fewer steps between checkpoints, and with clusters of blocks; of "
             "chunks also with\n"
             "32 and 16 steps at a time. Each must give what the default gives. Forward, and forward with "
             "backward, are\n"
             "timed as CUDA graphs at the sizes of a call, and the fastest (of training; with --inference, "
             "of forward) goes\n"
             "to DIR/CELL.tune, which cellc build -o DIR takes from there, as do emit -o DIR, --tuned FILE "
             "and, of any\n"
             "command, the directory CELLC_TUNED. An entry counts for the same program, types and bound "
             "sizes, and for\n"
             "GPUs of its architecture. --schedule goes before it.\n"
             "Without a GPU nothing is measured: --list prints the candidates, each as --schedule takes it.",
    .examples = "  cellc tune e88 --dtype bf16 --sizes B=8,T=2048,D=1024,H=32 -o out\n"
                "  cellc tune specs/e79.cell --dim N=64 --list\n"
                "  cellc build e88 --dtype bf16 -o out\n",
    .compiles = true,
    .draws = true,
};

/* One that is not faster by this much may be it by chance. */
static const double clearly = 0.99;

typedef struct Tune {
    Candidates all;
    Measure measure;
    const char *dir;
    const char *sizes;            /* as given */
    int64_t size[32];
    const char *path;             /* of CELL.tune, */
    TuneEntryVec entries;         /* and what it holds */
    int goal;                     /* which time counts: 0 forward, 1 both */
} Tune;

/* ---- sizes */

static const char *list_names(const Candidates *all)
{
    const char *text = "";
    for (int i = 0; i < all->n_sizes; i++)
        text = intern_f(all->c, "%s%s%s", text, i == 0 ? "" : i + 1 == all->n_sizes ? " and " : ", ", all->sizes[i]);
    return text;
}

static int take_size(Tune *t, bool *given, const char *text, size_t len)
{
    const Candidates *all = &t->all;
    const char *word = intern_n(all->c, text, len), *eq = strchr(word, '=');
    char *end;
    long long n = eq ? strtoll(eq + 1, &end, 10) : 0;
    int k = 0;
    if (!eq || !eq[1] || *end || n < 0 || n > 1000000000)
        return usage_error(&help, "--sizes takes NAME=N with commas between, not '%s'", word);
    while (k < all->n_sizes && (strlen(all->sizes[k]) != (size_t)(eq - word) || memcmp(all->sizes[k], word, (size_t)(eq - word))))
        k++;
    if (k == all->n_sizes)
        return usage_error(&help, "--sizes %s: the sizes of %s are %s", word, all->name, list_names(all));
    t->size[k] = n;
    given[k] = true;
    return -1;
}

/* All must be given, but t0, which is 0, and how many steps a history has room for, which is T + t0. */
static int read_sizes(Tune *t)
{
    const Candidates *all = &t->all;
    bool given[32] = { false };
    int n = all->n_sizes;
    Buf sizes = { .arena = all->c->arena }, call = { .arena = all->c->arena };
    for (const char *p = t->sizes ? t->sizes : ""; *p;) {
        size_t len = strcspn(p, ",");
        int rc = take_size(t, given, p, len);
        if (rc >= 0)
            return rc;
        p += len + (p[len] == ',');
    }
    for (int k = 0; k < n; k++) {
        bool history = strcmp(all->sizes[k], "history") == 0;
        if (history && !given[k])
            t->size[k] = t->size[1] + t->size[n - 1];     /* T + t0 */
        if (!given[k] && !history && k + 1 < n)
            return usage_error(&help, "--sizes must say what %s is, as in --sizes B=16,T=512%s", all->sizes[k],
                               n > 3 ? intern_f(all->c, ",%s=...", all->sizes[2]) : "");
        buf_f(&call, "%s%lld", k ? "," : "", (long long)t->size[k]);
        if (given[k])
            buf_f(&sizes, "%s%s=%lld", sizes.len ? "," : "", all->sizes[k], (long long)t->size[k]);
    }
    t->sizes = sizes.data;
    t->measure.call = call.data;
    return -1;
}

/* ---- measuring */

static void measure_from(Tune *t, int from)
{
    Candidates *all = &t->all;
    int n = all->list.len;
    progress(from, n, intern_f(all->c, "building %d", n - from));
    measure_build(&t->measure, all, from);
    for (int k = from; k < n; k++) {
        progress(k, n, all->list.data[k].schedule);
        measure_run(&t->measure, all, k);
    }
    progress_end();
}

static const Candidate *choose(const Tune *t)
{
    const Candidate *found = &t->all.list.data[0];
    double least = found->ms[t->goal] * clearly;
    for (int i = 1; i < t->all.list.len; i++) {
        const Candidate *one = &t->all.list.data[i];
        if (one->state == TUNE_TIMED && one->ms[t->goal] < least) {
            least = one->ms[t->goal];
            found = one;
        }
    }
    return found;
}

/* ---- what is printed */

static int sort_goal;

static int by_time(const void *a, const void *b)
{
    const Candidate *x = *(Candidate *const *)a, *y = *(Candidate *const *)b;
    bool timed[] = { x->state == TUNE_TIMED, y->state == TUNE_TIMED };
    if (timed[0] != timed[1])
        return timed[0] ? -1 : 1;
    double p = x->ms[sort_goal], q = y->ms[sort_goal];
    return timed[0] && p != q ? (p > q) - (p < q) : (x > y) - (x < y);
}

static void print_list(const Candidates *all)
{
    for (int i = 0; i < all->list.len; i++)
        printf("%-50s %s\n", all->list.data[i].schedule, all->list.data[i].what);
}

static void print_table(const Tune *t, const Candidate *chosen)
{
    Compiler *c = t->all.c;
    int n = t->all.list.len;
    const Candidate **order = arena_alloc(c->arena, sizeof *order * (size_t)n), *first = &t->all.list.data[0];
    Table table = { .columns = 5, .right = 1u << 1 | 1u << 2 | 1u << 3 };
    Buf out = { .arena = c->arena };
    for (int i = 0; i < n; i++)
        order[i] = &t->all.list.data[i];
    sort_goal = t->goal;
    qsort(order, (size_t)n, sizeof *order, by_time);
    table_row(c, &table, "schedule", "forward", "and backward", "speedup", "", (char *)NULL);
    for (int i = 0; i < n; i++) {
        const Candidate *one = order[i];
        const char *note = one == chosen ? "chosen" : "";
        if (one == first)
            note = intern_f(c, "%s%sthe default, place %d of %d", note, *note ? ", " : "", i + 1, n);
        if (one->state == TUNE_TIMED)
            table_row(c, &table, one->schedule, intern_f(c, "%.4f", one->ms[0]), intern_f(c, "%.4f", one->ms[1]),
                      intern_f(c, "%.3f", first->ms[t->goal] / one->ms[t->goal]), note, (char *)NULL);
        else
            table_row(c, &table, one->schedule, "-", "-", "-",
                      intern_f(c, "%s%s", one->state == TUNE_WRONG ? "wrong: " : "", one->said), (char *)NULL);
    }
    table_print(&table, &out);
    fwrite(out.data, 1, out.len, stdout);
}

/* What differs from the default is a bug of ours, and the exit code says so. */
static int report_wrong(const Tune *t)
{
    int rc = 0;
    for (int i = 0; i < t->all.list.len; i++) {
        const Candidate *one = &t->all.list.data[i];
        if (one->state != TUNE_WRONG)
            continue;
        say(DIAG_ERROR, "tune", "a bug in cellc: %s with --schedule %s gives other results than the default: %s",
                t->all.instance, one->schedule, one->said);
        rc = 70;
    }
    return rc;
}

/* Before minutes of measuring: can the choice be kept? With the entries that are there. */
static bool can_keep(Tune *t)
{
    Compiler *c = t->all.c;
    t->path = intern_f(c, "%s/%s.tune", t->dir, t->all.name);
    if (!make_dirs(c, t->dir))
        return false;
    if (access(t->path, F_OK) == 0 && !tune_read(c, t->path, &t->entries)) {
        diag_print(c, stderr);
        say(DIAG_ERROR, "tune", "nothing was measured, as nothing could be written to %s", t->path);
        return false;
    }
    if (access(t->dir, W_OK) != 0 || (access(t->path, F_OK) == 0 && access(t->path, W_OK) != 0)) {
        say(DIAG_ERROR, "tune", "nothing was measured, as %s cannot be written: %s", t->path, strerror(errno));
        return false;
    }
    return true;
}

static int keep(Tune *t, const Candidate *chosen)
{
    Compiler *c = t->all.c;
    const Candidate *first = &t->all.list.data[0];
    tune_put(c, &t->entries, (TuneEntry){ .instance = t->all.instance, .program = t->all.program, .gpu = t->measure.gpu,
                                       .arch = t->all.arch, .sizes = t->sizes, .schedule = chosen->schedule,
                                       .ms = { chosen->ms[0], chosen->ms[1] }, .default_ms = { first->ms[0], first->ms[1] } });
    return !tune_write(c, t->path, &t->entries);
}

static int tune(Tune *t)
{
    Candidates *all = &t->all;
    if (!can_keep(t))
        return 1;
    printf("%s, %s on %s: %d candidates\n", all->instance, t->sizes, t->measure.gpu, all->list.len);
    fflush(stdout);
    measure_from(t, 0);
    if (all->list.data[0].state != TUNE_TIMED) {
        say(DIAG_ERROR, "tune", "the default schedule: %s", all->list.data[0].said);
        return 1;
    }
    if (candidates_combine(all))
        measure_from(t, all->list.len - 1);
    const Candidate *chosen = choose(t);
    print_table(t, chosen);
    int bug = report_wrong(t), rc = keep(t, chosen);
    return bug ? bug : rc;
}

int cmd_tune(int argc, char **argv)
{
    Compiler *c = compiler_new();
    Tune t = { .all = { .c = c, .layouts = 24 }, .measure = { .c = c }, .dir = "generated" };
    const char *operands[argc + 1];
    bool list = false, inference = false;
    int64_t jobs = processors();
    const OptionSpec table[] = {
        { "--sizes", "LIST", OPT_STRING, &t.sizes, "of the call that is timed, e.g. B=16,T=512,D=1024" },
        { "-o", "DIR", OPT_STRING, &t.dir, "where CELL.tune goes, beside the library (./generated)" },
        { "--inference", NULL, OPT_FLAG, &inference, "choose by forward alone" },
        { "--layouts", "N", OPT_INT, &t.all.layouts, "so many layouts of a walk, the planner's best first (24)" },
        { "--list", NULL, OPT_FLAG, &list, "print the candidates, measure nothing" },
        { "--archs", "ARCH", OPT_STRING, &t.all.arch, "with --list: the GPU they are for (90)" },
        { "--jobs", "N", OPT_INT, &jobs, "compilers to run at once (as many as there are processors)" },
        { "-v", NULL, OPT_FLAG, &t.measure.verbose, "show the commands that are run" },
        { NULL, NULL, OPT_FLAG, NULL, NULL }
    };
    int n, rc = options_parse(&help, c, argc, argv, table, operands, &n);
    if (rc < 0 && texts_closed(c))
        rc = usage_error(&help, "--sources is not for this command, which runs others that read the files");
    if (rc < 0 && (c->scheduled || c->tuned))
        rc = usage_error(&help, "--%s is what tune finds out", c->scheduled ? "schedule" : "tuned");
    if (rc < 0 && t.all.arch && !list)
        rc = usage_error(&help, "--archs goes with --list: what is measured is this machine's GPU");
    if (rc < 0 && t.all.arch)
        rc = archs_check(&help, t.all.arch);
    t.measure.jobs = jobs < 1 ? 1 : jobs < 64 ? (int)jobs : 64;
    t.goal = !inference;
    if (rc < 0 && !list)
        rc = measure_open(&t.measure, help.name);
    if (rc < 0) {
        t.all.spec = operands[0];
        t.all.arch = list ? (t.all.arch ? t.all.arch : "90") : t.measure.arch;
        rc = candidates_find(&t.all) ? -1 : 1;
        diag_print(c, stderr);
    }
    if (rc < 0 && list) {
        print_list(&t.all);
        rc = 0;
    }
    if (rc < 0)
        rc = read_sizes(&t);
    if (rc < 0)
        rc = tune(&t);
    measure_close(&t.measure);
    compiler_free(c);
    return rc;
}
