/* check.c: `cellc check`: generated code against the evaluator. What comes in is a spec; it is compiled in
 * every variant and at several sizes, each dim another, and every backend is run on cases with short and
 * longer sequences, zero, given and default initial states. What goes out is one line per compiled cell, what
 * failed, and the count. */
#include "check.h"
#include "base/process.h"
#include "base/say.h"
#include "pipeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/texts.h"
#include "commands.h"
#include "options.h"

const Backend *const backends[] = {&reference_backend, NULL};

static const CommandHelp check_help = {
    .name = "check",
    .arguments = "SPEC",
    .summary = "prove generated code against the evaluator, which shares nothing with it",
    .about = "The evaluator walks the spec itself, in double precision with dual numbers. Outputs and final\n"
             "states must agree with it to 1e-12; every gradient must pass the dot-product test\n"
             "<u, J v> = <J'u, v> to 1e-9. Each value of each option is taken at least once. What is\n"
             "checked is the reference, compiled in double. Values are random; where a cell is not for\n"
             "any numbers, the spec says for which: `input dt in (0, 1]`, `state P[N, N] in reach`.",
    .examples = "  cellc check specs/e79.cell\n"
                "  cellc check specs/e79.cell --set bias=input --dim N=6 -v\n"
                "  cellc check specs/lstm.cell --vectors tests/vectors/lstm.vec\n",
    .compiles = true,
    .draws = true,
    .computes = true,
    .in_double = "what is checked is the reference in double; `cellc selftest` tests types and kernels",
};

typedef struct CheckRun {
    const char *path;
    const Compiler *user;         /* settings from the command line */
    EvalOutline outline;
    const char *dir;
    bool all_variants;
    bool own_sizes;               /* only the spec's own bound sizes, fewer of the open ones */
    bool judge;                   /* whether the cell can be checked, by the evaluator alone */
    VecFile *vectors;
    const char *vectors_path;
    const char *refused;          /* why sizes were not taken, the last reason; of the user's compilation */
    time_t started, said;         /* when, and when something was printed last */
    Tally tally;
} CheckRun;

/* ---- compilations */

Compiler *compiler_like(const Compiler *user, const Variant *v, const EvalSize *bound, int nbound)
{
    Compiler *c = compiler_new();
    c->dtype = DT_F64;
    c->reverse = user->reverse;
    c->lengths = user->lengths;
    c->cell = user->cell;
    c->import_dir = user->import_dir;
    c->library_dir = user->library_dir;
    texts_share(c, user);
    for (int i = 0; i < user->dims.len; i++)
        vec_push(c->arena, &c->dims, user->dims.data[i]);
    for (int i = 0; i < user->sets.len; i++)
        vec_push(c->arena, &c->sets, user->sets.data[i]);
    for (int i = 0; i < user->types.len; i++)
        vec_push(c->arena, &c->types, user->types.data[i]);
    for (int i = 0; v && i < v->n; i++)
        vec_push(c->arena, &c->sets, v->set[i]);
    for (int i = 0; i < nbound; i++)
        vec_push(c->arena, &c->dims,
                 ((Setting){bound[i].name, intern_f(c, "%lld", (long long)bound[i].value), false}));
    return c;
}

static bool given(const Compiler *user, const char *dim)
{
    for (int i = 0; i < user->dims.len; i++)
        if (strcmp(user->dims.data[i].name, dim) == 0)
            return true;
    return false;
}

static bool is_open(const EvalOutline *o, const char *dim)
{
    for (int i = 0; i < o->nopen; i++)
        if (strcmp(o->open_dims[i], dim) == 0)
            return true;
    return false;
}

/* Sizes to try, by round: each dim another, no multiples of each other; then ones; then sizes that divide one
 * another, for specs that want it; the rest are fallbacks. */
int64_t size_in_round(int round, int position)
{
    static const int64_t table[][8] = {
        {7, 5, 3, 4, 6, 2, 8, 9},  {3, 4, 5, 2, 7, 6, 9, 8},      {1, 1, 1, 1, 1, 1, 1, 1},
        {12, 6, 3, 2, 1, 1, 1, 1}, {2, 4, 8, 16, 16, 16, 16, 16}, {4, 4, 4, 4, 4, 4, 4, 4},
    };
    return table[round][position % 8];
}

int sizes_of_round(const Compiler *user, const EvalOutline *o, int round, bool open, EvalSize *out)
{
    int n = 0;
    for (int i = 0; i < o->nall && n < MAX_CHOSEN; i++) {
        const char *name = o->all_dims[i];
        if (!given(user, name) && is_open(o, name) == open)
            out[n++] = (EvalSize){name, size_in_round(round, i)};
    }
    return n;
}

/* ---- cases */

/* first: where sequences begin, of cells that can begin anywhere. */
static const struct { int64_t batch, steps, first; CaseState state; CaseInput input; } case_table[] = {
    {1, 1, 0, CASE_STATE_ZERO, CASE_INPUT_NORMAL},    {3, 2, 1, CASE_STATE_RANDOM, CASE_INPUT_NORMAL},
    {1, 3, 0, CASE_STATE_RANDOM, CASE_INPUT_NORMAL},  {2, 5, 0, CASE_STATE_DEFAULT, CASE_INPUT_NORMAL},
    {3, 7, 0, CASE_STATE_ZERO, CASE_INPUT_NORMAL},    {1, 17, 5, CASE_STATE_RANDOM, CASE_INPUT_NORMAL},
    {2, 3, 2, CASE_STATE_RANDOM, CASE_INPUT_ZERO},    {2, 4, 0, CASE_STATE_RANDOM, CASE_INPUT_LARGE},
    {2, 0, 3, CASE_STATE_RANDOM, CASE_INPUT_NORMAL},  {0, 2, 0, CASE_STATE_RANDOM, CASE_INPUT_NORMAL},
};
static const char *const input_names[] = {"", ", zero inputs", ", large inputs"};
static const char *const state_names[] = {"random", "zero", "default"};

/* "e79 bias=none D=7 N=5" */
static const char *sizes_text(Compiler *c, const Module *m, const Eval *e)
{
    Buf b = {.arena = c->arena};
    buf_f(&b, "%s", e->cell);
    for (int i = 0; i < m->options.len; i++)
        buf_f(&b, " %s=%s", m->options.data[i].name, m->options.data[i].value);
    for (int i = 0; i < e->ndims; i++)
        buf_f(&b, " %s=%lld", e->dims[i].name, (long long)e->dims[i].value);
    return b.data;
}

/* Conditions on sizes that generated code would refuse at the call. */
bool check_sizes_allowed(const Module *m, const Eval *e, int64_t steps, int64_t first)
{
    int64_t dims[MAX_DIMS] = {0};
    dims[ATOM_T] = steps;
    dims[ATOM_PAST] = first + steps;
    for (int i = 0; i < m->dims.len && i < MAX_DIMS; i++)
        for (int j = 0; j < e->ndims; j++)
            if (strcmp(m->dims.data[i], e->dims[j].name) == 0)
                dims[i] = e->dims[j].value;
    for (int i = 0; i < m->checks.len; i++)
        if (poly_eval(m, m->checks.data[i].nonneg, dims) < 0)
            return false;
    return true;
}

/* No command works for minutes without a word: large sizes are said before they are evaluated, and then every few seconds how far
 * it is. */
static void say_progress(CheckRun *k, const Subject *s, int done, int cases)
{
    enum { LARGE = 200000, SILENT_SECONDS = 10 };
    time_t now = time(NULL);
    double elements = 0;
    if (k->tally.quiet || k->judge)
        return;
    if (progress_shown()) {
        if (now > k->started)
            progress(done, cases, s->label);
        return;
    }
    for (int i = 0; i < s->e->ntensors; i++)
        elements += (double)s->e->tensors[i].count;
    bool large = done == 0 && elements > LARGE && k->said == k->started;
    if (large)
        say(DIAG_NOTE, "check", "%s: the evaluator takes each of %.3g elements by itself, in every case; smaller sizes prove the "
                "same in less time", s->label, elements);
    else if (now - k->said >= SILENT_SECONDS)
        say(DIAG_NOTE, "check", "%s: %d of %d cases, %ld s so far", s->label, done, cases, (long)(now - k->started));
    else
        return;
    k->said = large ? k->started + 1 : now;
}

static void run_cases(CheckRun *k, Subject *s, const Backend *b, void *self)
{
    int n = (int)(sizeof case_table / sizeof *case_table), failed = k->tally.failed, passed = k->tally.passed;
    for (int i = 0; i < n; i++) {
        int64_t first = s->m->whole_past ? 0 : case_table[i].first;
        if (!check_sizes_allowed(s->m, s->e, case_table[i].steps, first))
            continue;
        const char *what = intern_f(s->c, "B=%lld T=%lld %s state%s", (long long)case_table[i].batch,
                                    (long long)case_table[i].steps, state_names[case_table[i].state],
                                    input_names[case_table[i].input]);
        Case *one = case_random(s->e, case_table[i].batch, case_table[i].steps, case_table[i].state,
                                case_table[i].input, 17 + (uint64_t)i);
        one->first = first;
        say_progress(k, s, i, n);
        (k->judge ? judge_case : check_case)(s, b, self, one, what, &k->tally);
        if (k->tally.verbose) {
            progress_end();
            printf("  %s, %s: %d failed so far\n", b->name, what, k->tally.failed - failed);
        }
    }
    progress_end();
    if (k->tally.quiet || k->tally.brief || k->own_sizes)
        return;
    printf("%s, %s: %d cases, %d checks, %d failed\n", s->label, b->name, n,
           k->tally.passed + k->tally.failed - passed - failed, k->tally.failed - failed);
    fflush(stdout);
}

/* "D=7 N=5: W is too large to evaluate" */
static void keep_reason(CheckRun *k, const Compiler *c, int from, const EvalSize *sizes, int n)
{
    Buf b = {.arena = k->user->arena};
    for (int i = 0; i < n; i++)
        buf_f(&b, "%s%s=%lld", i ? " " : "", sizes[i].name, (long long)sizes[i].value);
    for (int i = from; i < c->diags.len; i++)
        if (c->diags.data[i].level == DIAG_ERROR) {
            buf_f(&b, "%s%s", b.len ? ": " : "", c->diags.data[i].text);
            k->refused = b.data;
            return;
        }
}

/* Diagnostics of a trial at sizes that a spec need not take are dropped. */
static Eval *try_sizes(CheckRun *k, Compiler *c, const Ast *ast, const Module *m, const EvalSize *sizes, int n)
{
    int diags = c->diags.len, errors = c->errors;
    Eval *e = eval_new(c, ast, NULL, sizes, n);
    if (!e) {
        keep_reason(k, c, diags, sizes, n);
        c->diags.len = diags;
        c->errors = errors;
    }
    return e && check_sizes_allowed(m, e, 1, 0) ? e : NULL;
}

/* Has every definition of the cell written, besides its outputs. */
static void watch_all(Eval *e, const Ast *ast)
{
    const Stmt *cell = ast_cell(e->c, ast, e->cell, false);
    for (int i = 0; cell && i < cell->body.len; i++) {
        const Stmt *d = cell->body.data[i];
        const char *name = d->primed ? intern_f(e->c, "%s'", d->name) : d->name;
        if (d->kind == S_EQ && !eval_find(e, name))
            eval_watch(e, name);
    }
}

/* One compiled cell at the run-time sizes of a few rounds, on every backend. Gives how many sizes it was run
 * at. */
static int check_module(CheckRun *k, Compiler *c, const Module *m, const Ast *ast, const EvalSize *bound,
                        int nbound)
{
    int ran = 0;
    for (int i = 0; backends[i]; i++) {
        Subject s = {c, m, NULL, k->dir, k->outline.cell};
        void *self = NULL;
        for (int round = 0; round < N_ROUNDS && ran < (k->own_sizes ? 2 : WANTED_ROUNDS); round++) {
            EvalSize sizes[2 * MAX_CHOSEN];
            memcpy(sizes, bound, sizeof *sizes * (size_t)nbound);
            int open = sizes_of_round(k->user, &k->outline, round, true, sizes + nbound);
            s.e = try_sizes(k, c, ast, m, sizes, nbound + open);
            if (!s.e)
                continue;
            s.label = sizes_text(c, m, s.e);
            if (k->judge)
                watch_all(s.e, ast);
            const char *error = NULL;
            if (!self && !k->judge && !(self = backends[i]->open(&s, &error))) {
                tally(&k->tally, false, &s, "%s: %s", backends[i]->name, error);
                return 1;
            }
            run_cases(k, &s, backends[i], self);
            ran++;
            if (open == 0)
                break;
        }
        if (self)
            backends[i]->close(self);
    }
    return ran;
}

/* ---- variants */

static void add_choice(Variant *v, const EvalOption *o, int choice)
{
    if (v->n < MAX_CHOSEN)
        v->set[v->n++] = (Setting){o->name, o->choices[choice], false};
}

static bool chosen_by_user(const Compiler *user, const EvalOption *o)
{
    for (int i = 0; i < user->sets.len; i++)
        if (strcmp(user->sets.data[i].name, o->name) == 0)
            return true;
    return false;
}

int list_variants(const Compiler *user, const EvalOutline *outline, bool all, Variant *list)
{
    int n = 1;
    list[0].n = 0;
    for (int i = 0; i < outline->noptions; i++) {
        const EvalOption *o = &outline->options[i];
        int before = n;
        if (chosen_by_user(user, o))
            continue;
        for (int c = 1; c < o->nchoices; c++)
            for (int j = 0; j < (all ? before : 1) && n < MAX_VARIANTS; j++) {
                list[n] = list[j];
                add_choice(&list[n++], o, c);
            }
    }
    return n;
}

/* Compiles a variant at several bound sizes. Sizes that the spec does not take are passed over, its own are
 * not. */
static void check_variant(CheckRun *k, const Variant *v)
{
    int ran = 0, rounds = 0;
    bool wrong = false;
    for (int round = k->own_sizes ? N_ROUNDS : 0; round <= N_ROUNDS && rounds < WANTED_ROUNDS; round++) {
        EvalSize bound[MAX_CHOSEN];
        bool last = round == N_ROUNDS;            /* the spec's own sizes, when no others fit */
        int n = last ? 0 : sizes_of_round(k->user, &k->outline, round, false, bound);
        if (last && ran)
            break;
        Compiler *c = compiler_like(k->user, v, bound, n);
        Module *m = compile(c, k->path, reference_passes);
        int file = m ? source_load(c, k->path) : -1;
        const Ast *ast = file >= 0 ? parse_source(c, file) : NULL;
        int here = ast ? check_module(k, c, m, ast, bound, n) : 0;
        if (last && !m && !k->tally.quiet)
            diag_print(c, says_json() ? stderr : stdout);
        wrong |= last && !m && !k->refused;
        ran += here;
        rounds += here > 0;
        compiler_free(c);
        if (n == 0 && ran)
            break;
    }
    if (!ran) {
        Subject s = {.label = k->outline.cell};
        Buf chosen = {.arena = k->user->arena};
        for (int i = 0; i < v->n; i++)
            buf_f(&chosen, " %s=%s", v->set[i].name, v->set[i].value);
        if (wrong && chosen.len)
            tally(&k->tally, false, &s, "with%s it does not compile", chosen.data);
        else if (k->refused)
            tally(&k->tally, false, &s, "no sizes were found that this variant takes; at %s", k->refused);
        else
            tally(&k->tally, false, &s, "no sizes were found that this variant takes; give them with --dim");
    }
}

/* A dim of the command line that the file has another size for would be compiled with one and run with the
 * other. */
static bool sizes_agree(const CheckRun *k)
{
    for (int i = 0; i < k->user->dims.len; i++) {
        const Setting *d = &k->user->dims.data[i];
        int64_t in_file;
        if (vec_size(k->vectors, d->name, &in_file) && strtoll(d->value, NULL, 10) != in_file) {
            say(DIAG_ERROR, "check", "--dim %s=%s: the vectors have %s=%lld", d->name, d->value,
                    d->name, (long long)in_file);
            return false;
        }
    }
    return true;
}

static bool is_dim(const EvalOutline *o, const char *name)
{
    for (int i = 0; i < o->nall; i++)
        if (strcmp(o->all_dims[i], name) == 0)
            return true;
    return false;
}

static void check_file(CheckRun *k)
{
    EvalSize sizes[MAX_CHOSEN], bound[MAX_CHOSEN];
    int n = case_sizes(&k->outline, k->vectors, sizes), nbound = 0;
    if (n < 0)
        return;
    for (int i = 0; i < n; i++)
        if (is_dim(&k->outline, sizes[i].name) && !is_open(&k->outline, sizes[i].name) && !given(k->user, sizes[i].name))
            bound[nbound++] = sizes[i];
    Compiler *c = compiler_like(k->user, NULL, bound, nbound);
    Module *m = compile(c, k->path, reference_passes);
    int file = m ? source_load(c, k->path) : -1;
    Subject s = {c, m, file >= 0 ? eval_new(c, parse_source(c, file), NULL, sizes, n) : NULL, k->dir,
                 k->outline.cell};
    if (!s.e)
        case_sizes_refused(k->vectors, sizes, n);
    for (int i = 0; s.e && backends[i]; i++) {
        const char *error = NULL;
        s.label = sizes_text(c, m, s.e);
        void *self = backends[i]->open(&s, &error);
        if (!self) {
            tally(&k->tally, false, &s, "%s: %s", backends[i]->name, error);
            continue;
        }
        Case *one = case_from_vec(s.e, k->vectors);
        if (one)
            check_vectors(&s, backends[i], self, one, k->vectors, &k->tally);
        if (one)
            check_case(&s, backends[i], self, one, "the vectors", &k->tally);
        backends[i]->close(self);
    }
    diag_print(c, stderr);
    compiler_free(c);
}

/* Reads the spec once as the user gave it: its diagnostics are the user's. */
static bool read_outline(CheckRun *k, Compiler *c)
{
    int file = source_load(c, k->path);
    Ast *ast = file >= 0 ? parse_source(c, file) : NULL;
    bool ok = ast && !c->errors && eval_outline(c, ast, NULL, &k->outline);
    if (ok && !k->vectors) {
        Compiler *trial = compiler_like(k->user, NULL, NULL, 0);
        ok = compile(trial, k->path, reference_passes) != NULL;
        diag_print(trial, stderr);
        compiler_free(trial);
    } else if (!ok) {
        if (!c->errors)
            ast_cell(c, ast, NULL, true);
        diag_print(c, stderr);
    }
    return ok;
}

static bool read_vectors(CheckRun *k, const char *path)
{
    if (!path)
        return true;
    k->vectors = vec_read(path);
    if (k->vectors && !k->vectors->error[0])
        return true;
    if (k->vectors)
        vec_print_error(k->vectors, path);
    else
        say(DIAG_ERROR, "check", "out of memory");
    return false;
}

static void check_variants(CheckRun *k, Compiler *c)
{
    Variant *list = arena_alloc(c->arena, sizeof *list * MAX_VARIANTS);
    int n = list_variants(k->user, &k->outline, k->all_variants, list);
    for (int i = 0; i < n; i++)
        check_variant(k, &list[i]);
}

static void say_rest(const Tally *t)
{
    if (t->most && t->failed > t->most)
        printf("%d more failures (-v says them all)\n", t->failed - t->most);
}

static int check_spec(CheckRun *k, Compiler *c)
{
    const char *dir = scratch_make(c, "check");
    if (!dir)
        return 1;
    k->dir = dir;
    k->started = k->said = time(NULL);
    bool ok = read_outline(k, c) && (!k->vectors || sizes_agree(k));
    if (ok && k->vectors) {
        check_file(k);
        ok = !k->vectors->error[0];
        if (!ok)
            vec_print_error(k->vectors, k->vectors_path);
    } else if (ok) {
        check_variants(k, c);
    }
    scratch_remove(dir);
    if (!ok)
        return 1;
    if (k->tally.passed)
        printf("largest errors: outputs and states %.2g, gradients %.2g\n", k->tally.worst_forward,
               k->tally.worst_gradient);
    say_rest(&k->tally);
    printf("%d passed, %d failed\n", k->tally.passed, k->tally.failed);
    return k->tally.failed > 0;
}

enum { MOST_SAID = 20 };     /* failures: one that is everywhere would hide the first */

bool check_briefly(Compiler *c, const char *path, bool all_variants, Tally *t)
{
    CheckRun k = {.user = c, .path = path, .all_variants = all_variants,
                  .tally = {.brief = true, .most = MOST_SAID}};
    int said = c->diags.len, file = source_load(c, path);
    Ast *ast = file >= 0 ? parse_source(c, file) : NULL;
    bool ok = ast && !c->errors && eval_outline(c, ast, NULL, &k.outline);
    ok = ok && (k.dir = scratch_make(c, "check")) != NULL;
    c->diags.len = ok ? said : c->diags.len;      /* the caller has printed the warnings */
    if (!ok)
        return false;
    k.started = k.said = time(NULL);
    check_variants(&k, c);
    scratch_remove(k.dir);
    say_rest(&k.tally);
    *t = k.tally;
    return true;
}

/* Runs k on a cell that is given as text. false: it cannot be read. */
static bool run_text(CheckRun *run, const Compiler *like, const char *text, size_t len, const char *dir, bool quiet)
{
    Compiler *c = compiler_new();
    c->lengths = like->lengths;
    c->reverse = like->reverse;
    CheckRun k = *run;
    k.user = c;
    k.dir = dir;
    k.own_sizes = true;
    k.tally.quiet = quiet;
    k.path = intern_f(c, "%s/random.cell", dir);
    FILE *f = fopen(k.path, "wb");
    bool ok = f && fwrite(text, 1, len, f) == len;
    ok = f && fclose(f) == 0 && ok;
    int file = ok ? source_load(c, k.path) : -1;
    Ast *ast = file >= 0 ? parse_source(c, file) : NULL;
    Variant v = {.n = 0};
    bool read = ast && !c->errors && eval_outline(c, ast, NULL, &k.outline);
    if (read)
        check_variant(&k, &v);
    if (!quiet && c->errors)
        diag_print(c, stdout);
    unlink(k.path);
    compiler_free(c);
    k.tally.quiet = run->tally.quiet;
    run->tally = k.tally;
    return read;
}

bool check_text(const Compiler *like, const char *text, size_t len, const char *dir, bool quiet, Tally *t)
{
    CheckRun k = {.tally = *t};
    int failed = t->failed;
    if (!run_text(&k, like, text, len, dir, quiet)) {
        k.tally.failed++;
        k.tally.kinds |= 1u << FAIL_RUN;
    }
    *t = k.tally;
    return t->failed == failed;
}

bool judge_text(const Compiler *like, const char *text, size_t len, const char *dir)
{
    CheckRun k = {.judge = true};
    return !run_text(&k, like, text, len, dir, true) || k.tally.failed == 0 || k.tally.passed == 0;
}

int cmd_check(int argc, char **argv)
{
    Compiler *c = compiler_new();
    CheckRun k = {.user = c};
    const char *vectors = NULL, *operands[argc + 1];
    const OptionSpec table[] = {
        {"--vectors", "FILE", OPT_STRING, &vectors,
         "compare every tensor of a vector file; sizes come from it"},
        {"--all-variants", NULL, OPT_FLAG, &k.all_variants,
         "every combination of options, not each value once"},
        {"-v", NULL, OPT_FLAG, &k.tally.verbose, "a line per case, and all failures"},
        {NULL, NULL, OPT_FLAG, NULL, NULL},
    };
    int n, rc = options_parse(&check_help, c, argc, argv, table, operands, &n);
    if (rc < 0) {
        k.tally.most = k.tally.verbose ? 0 : MOST_SAID;
        k.path = operands[0];
        k.vectors_path = vectors;
        rc = read_vectors(&k, vectors) ? check_spec(&k, c) : 1;
    }
    vec_free(k.vectors);
    compiler_free(c);
    return rc;
}
