/* random.c: `cellc random`: prints random cells, or checks them and makes a failing one smaller. What comes
 * in is a seed; what goes out is specs, or the count of checks and, for each cell that fails, the smallest
 * cell that still does. A cell that the evaluator alone finds unfit, because a value or a derivative of it
 * is no number or hangs on roundings, is drawn again; how often is said. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "base/say.h"
#include "check.h"
#include "commands.h"
#include "options.h"
#include "random_cell.h"

static const CommandHelp random_help = {
    .name = "random",
    .reads = true,
    .arguments = "",
    .summary = "print a random cell, or check many against the evaluator",
    .about = "Cell number i of a run has the seed SEED + i. Where the evaluator finds a value or a "
             "derivative that is no\n"
             "number, or hangs on roundings, the seed's next draw is taken. With --check, each cell is "
             "compiled and\n"
             "compared with the evaluator; one that fails is made smaller for as long as it fails in the "
             "same way, and\n"
             "kept in the directory of --keep. With --linear they are linear in their states, which are "
             "matrices:\n"
             "many of those can be walked several steps at a time. With --gated their steps multiply vectors "
             "of their "
             "states\n"
             "by params, as gates do: many of those one kernel walks with the params on chip.",
    .examples = "  cellc random --seed 7\n"
                "  cellc random --seed 1 --check 100 --keep tests/random/failed\n",
};

typedef struct Shrink {
    Compiler *c;
    Ast *ast;
    const char *dir;
    unsigned kind;                /* the failure that is to be kept, a bit of Tally.kinds */
    int trials;
    bool smaller;
} Shrink;

enum { MAX_TRIALS = 1500, MAX_DRAWS = 50 };

/* Checks a cell in a process of its own, so that generated code that crashes is one failure. What it added
 * goes to *t. */
static bool check_apart(const Compiler *c, const Buf *text, const char *dir, bool quiet, Tally *t)
{
    int ends[2], status = 0;
    Tally got = *t;
    pid_t pid = pipe(ends) == 0 ? process_fork() : -1;
    if (pid == 0) {
        check_text(c, text->data, text->len, dir, quiet, &got);
        fflush(NULL);
        _exit(write(ends[1], &got, sizeof got) == (ssize_t)sizeof got ? 0 : 1);
    }
    if (pid < 0) {
        say(DIAG_ERROR, "random", "cannot start a process: %s", strerror(errno));
        exit(70);
    }
    close(ends[1]);
    bool whole = read(ends[0], &got, sizeof got) == (ssize_t)sizeof got;
    close(ends[0]);
    process_wait(pid, &status);
    if (whole) {
        bool ok = got.failed == t->failed;
        *t = got;
        return ok;
    }
    t->failed++;
    t->kinds |= 1u << FAIL_RUN;
    t->passed++;                  /* it compiled, else it could not have crashed */
    if (!quiet)
        printf("FAILED: the check ends with signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return false;
}

/* It compiles, some check fails as it did at first, and not because the cell has no numbers. */
static bool still_fails(Shrink *s)
{
    Tally t = {0};
    Buf text = {.arena = s->c->arena};
    s->trials++;
    fmt_ast(s->c, s->ast, true, &text);
    check_apart(s->c, &text, s->dir, true, &t);
    unsigned gravest = t.kinds & -t.kinds;
    if (!s->kind)
        s->kind = gravest;
    return t.passed > 0 && gravest && gravest == s->kind && judge_text(s->c, text.data, text.len, s->dir);
}

/* Tries to put something smaller in the place of an expression. */
static bool try_replace(Shrink *s, Expr **at, Expr *by)
{
    Expr *old = *at;
    if (!by || s->trials > MAX_TRIALS)
        return false;
    *at = by;
    if (still_fails(s))
        return s->smaller = true;
    *at = old;
    return false;
}

static void shrink_expr(Shrink *s, Expr **at)
{
    static Expr half = {.kind = X_NUM, .num = 0.5};
    while (*at && (*at)->kind != X_NUM && (*at)->kind != X_REF) {
        Expr *x = *at;
        bool done = try_replace(s, at, &half) || try_replace(s, at, x->a) || try_replace(s, at, x->b) ||
                    try_replace(s, at, x->c);
        for (int i = 0; !done && i < x->args.len; i++)
            done = try_replace(s, at, x->args.data[i]);
        if (!done)
            break;
    }
    Expr *x = *at;
    if (!x || x->kind == X_NUM)
        return;
    if (x->kind == X_REF) {
        try_replace(s, at, &half);
        return;
    }
    shrink_expr(s, &x->a);
    shrink_expr(s, &x->b);
    shrink_expr(s, &x->c);
    for (int i = 0; x->kind == X_CALL && i < x->args.len; i++)
        shrink_expr(s, &x->args.data[i]);
}

/* Leaves out statements, one at a time, for as long as the rest still fails. */
static void shrink_body(Shrink *s, StmtVec *body)
{
    for (int i = body->len - 1; i >= 0 && s->trials < MAX_TRIALS; i--) {
        Stmt *gone = body->data[i];
        memmove(&body->data[i], &body->data[i + 1], sizeof *body->data * (size_t)(body->len - i - 1));
        body->len--;
        if (still_fails(s)) {
            s->smaller = true;
            continue;
        }
        memmove(&body->data[i + 1], &body->data[i], sizeof *body->data * (size_t)(body->len - i));
        body->data[i] = gone;
        body->len++;
        shrink_body(s, &gone->body);
        if (gone->kind == S_EQ)
            shrink_expr(s, &gone->value);
    }
}

/* Leaves out a declared name with everything that is said of it. */
static void shrink_names(Shrink *s, StmtVec *body)
{
    StmtVec before = *body;
    before.data = arena_alloc(s->c->arena, sizeof *before.data * (size_t)(body->len + 1));
    for (int i = body->len - 1; i >= 0 && s->trials < MAX_TRIALS; i--) {
        if (i >= body->len || !body->data[i]->name)
            continue;
        const char *name = body->data[i]->name;
        memcpy(before.data, body->data, sizeof *body->data * (size_t)body->len);
        before.len = body->len;
        int kept = 0;
        for (int k = 0; k < before.len; k++)
            if (before.data[k]->name != name)
                body->data[kept++] = before.data[k];
        body->len = kept;
        if (kept == before.len - 1 || !still_fails(s)) {      /* single statements are left to shrink_body */
            memcpy(body->data, before.data, sizeof *body->data * (size_t)before.len);
            body->len = before.len;
        } else {
            s->smaller = true;
        }
    }
}

static Buf smallest(Compiler *c, const Buf *text, const char *dir)
{
    Shrink s = {.c = c, .dir = dir};
    Buf out = {.arena = c->arena};
    s.ast = parse_source(c, source_add(c, "random.cell", text->data, text->len));
    if (!still_fails(&s))
        return *text;             /* it does not compile: that cannot be made smaller by this rule */
    do {
        s.smaller = false;
        for (int i = 0; i < s.ast->items.len; i++)
            shrink_names(&s, &s.ast->items.data[i]->body);
        shrink_body(&s, &s.ast->items);
    } while (s.smaller && s.trials < MAX_TRIALS);
    fmt_ast(c, s.ast, false, &out);
    return out;
}

static void keep_failed(Compiler *c, const Buf *text, uint64_t seed, const char *dir, const char *keep)
{
    Tally t = {.most = 3};
    printf("the cell of seed %llu fails; making it smaller\n", (unsigned long long)seed);
    fflush(stdout);
    Buf small = smallest(c, text, dir);
    printf("%.*s", (int)small.len, small.data);
    check_apart(c, &small, dir, false, &t);
    if (!keep)
        return;
    const char *path = intern_f(c, "%s/seed_%llu%s%s.cell", keep, (unsigned long long)seed, c->lengths ? "--lengths" : "",
                                c->reverse ? "--reverse" : "");
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(small.data, 1, small.len, f) != small.len || fclose(f) != 0)
        say(DIAG_ERROR, "random", "cannot write %s: %s", path, strerror(errno));
    else
        printf("kept as %s\n", shown_text(c, path));
}

/* Which cells are drawn. */
typedef enum { DRAW_ANY, DRAW_LINEAR, DRAW_GATED } Drawn;

/* The first draw of a seed that can be checked, or its linear or gated cell, in which nothing is no number.
 * Gives how many came before it. */
static int draw_cell(Compiler *c, uint64_t seed, Drawn drawn, const char *dir, Buf *out)
{
    random_settings(seed, c);
    if (drawn != DRAW_ANY) {
        *out = (Buf){ .arena = c->arena };
        if (drawn == DRAW_LINEAR)
            random_linear_cell(c, seed, false, out);
        else
            random_gated_cell(c, seed, out);
        return 0;
    }
    for (int draw = 0; draw < MAX_DRAWS; draw++) {
        Buf text = {.arena = c->arena};
        random_cell(c, seed, draw, &text);
        *out = text;
        if (judge_text(c, text.data, text.len, dir))
            return draw;
    }
    say(DIAG_ERROR, "random", "seed %llu: no draw can be checked", (unsigned long long)seed);
    exit(70);
}

static int print_one(Compiler *c, int64_t seed, Drawn drawn, const char *dir)
{
    Buf text = {.arena = c->arena};
    draw_cell(c, (uint64_t)seed, drawn, dir, &text);
    return fwrite(text.data, 1, text.len, stdout) == text.len ? 0 : 1;
}

static int check_many(int64_t seed, int64_t n, Drawn drawn, const char *dir, const char *keep)
{
    Tally t = {0};
    int64_t failed = 0, again = 0;
    printf("%lld random cells from seed %lld\n", (long long)n, (long long)seed);
    for (int64_t i = 0; i < n; i++) {
        Compiler *c = compiler_new();
        Buf text;
        again += draw_cell(c, (uint64_t)(seed + i), drawn, dir, &text);
        if (!check_apart(c, &text, dir, true, &t)) {
            failed++;
            keep_failed(c, &text, (uint64_t)(seed + i), dir, keep);
        }
        fflush(stdout);
        compiler_free(c);
    }
    printf("%lld cells were drawn again\n", (long long)again);
    printf("%d checks; largest errors: outputs and states %.2g, gradients %.2g\n", t.passed + t.failed,
           t.worst_forward, t.worst_gradient);
    printf("%lld passed, %lld failed\n", (long long)(n - failed), (long long)failed);
    return failed > 0;
}

int cmd_random(int argc, char **argv)
{
    Compiler *c = compiler_new();
    int64_t seed = 1, check = -1;
    bool linear = false, gated = false;
    const char *keep = NULL, *operands[argc + 1];
    const OptionSpec table[] = {
        { "--seed", "S", OPT_INT, &seed, "of the first cell (1)" },
        { "--linear", NULL, OPT_FLAG, &linear, "of the cells that are linear in states that are matrices" },
        { "--gated", NULL, OPT_FLAG, &gated, "of the cells whose steps multiply their states by params" },
        { "--check", "N", OPT_INT, &check, "check N cells instead of printing one" },
        { "--keep", "DIR", OPT_STRING, &keep, "write cells that fail there, made smaller" },
        { NULL, NULL, OPT_FLAG, NULL, NULL },
    };
    int n, rc = options_parse(&random_help, c, argc, argv, table, operands, &n);
    if (rc < 0) {
        const Drawn drawn = linear ? DRAW_LINEAR : gated ? DRAW_GATED : DRAW_ANY;
        const char *dir = scratch_make(c, "random");
        rc = !dir        ? 1
             : check < 0 ? print_one(c, seed, drawn, dir)
                         : check_many(seed, check, drawn, dir, keep);
        if (dir)
            scratch_remove(dir);
    }
    compiler_free(c);
    return rc;
}
