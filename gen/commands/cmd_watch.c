/* cmd_watch.c: `cellc watch`. In: specs and settings. Out, at first and each time that a spec or what it
 * imports is saved: its diagnostics, the summary of `cellc explain`, and the verdict of `cellc check`.
 * Guaranteed: a run is of files that have been still for a moment; what comes last is of the files as they
 * are; no error in a spec, and no file that goes, ends the command.
 *
 * A run is a process of its own, so that a save in the middle of it can end it, whatever it is doing. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file_watch.h"
#include "base/home.h"
#include "base/process.h"
#include "base/say.h"
#include "base/texts.h"
#include "call_sizes.h"
#include "check.h"
#include "commands.h"
#include "explain.h"
#include "generate.h"
#include "pipeline.h"
#include "sources.h"

static const CommandHelp help = {
    .name = "watch",
    .arguments = "SPEC...",
    .summary = "check and explain specs each time that they are saved",
    .about = "For each SPEC, at first and whenever it or a file that it imports is saved: its diagnostics,\n"
             "the summary of `cellc explain`, and the verdict of `cellc check` with the time that it took.\n"
             "A save while a spec is looked at ends that and begins again. A spec with errors, or one that\n"
             "is gone, is waited for. On a terminal each round begins on a clear screen; elsewhere lines\n"
             "follow each other. Ctrl-C ends the command.",
    .examples = "  cellc watch my.cell\n"
                "  cellc watch my.cell --set bias=input --dim N=32 --sizes B=16,T=512,D=1024\n"
                "  cellc watch my.cell other.cell --no-check\n",
    .compiles = true,
    .draws = true,
    .settings = true,
};

typedef struct Watch {
    Compiler *c;                  /* of the command line */
    const char *sizes;            /* --sizes, or NULL */
    bool no_check, all_variants, poll;
    struct WatchedSpec *spec;
    int n;
    FileWatch *files;
    bool clears;                  /* each round begins on a clear screen */
    bool idle;                    /* a round has ended, and nothing was printed since */
    bool said;                    /* something was printed at all */
    bool json;
    /* The run that is under way. */
    int running;                  /* of which spec; -1: none */
    pid_t pid;
    int ended;                    /* can be read from, to its end, when the run is over */
    const char *dir;              /* its temporary files */
} Watch;

typedef struct WatchedSpec {
    const char *operand;          /* as the user named it */
    bool due;                     /* it is to be looked at */
    bool gone;                    /* that was said */
    Arena *arena;                 /* of the paths */
    Vec(const char *) path;       /* its file, those that it imports, and where imports are looked for */
} WatchedSpec;

/* ---- one run, in a process of its own */

static double seconds_since(const struct timespec *from)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - from->tv_sec) + 1e-9 * (double)(now.tv_nsec - from->tv_nsec);
}

/* A compilation with the settings of the command line, and the path of the spec; NULL after diagnostics. */
static const char *open_spec(const Watch *w, const WatchedSpec *s, Compiler *c)
{
    compiler_inherit(c, w->c);
    return home_spec(c, s->operand);
}

static bool explain_spec(const Watch *w, const WatchedSpec *s)
{
    Generated g;
    Compiler *c = compiler_new();
    Buf out = { .arena = c->arena };
    int64_t sizes[MAX_DIMS] = { 0 };
    const char *path = open_spec(w, s, c);
    bool ok = path && generate_open(&g, c, path, NULL, true);
    diag_print(c, stderr);
    if (ok) {
        explain_summary(g.plan, g.lowered, &out);
        bool at = w->sizes && call_sizes_read(&help, g.plan->m, NULL, w->sizes, sizes) == 0;
        const char *refused = at ? explain_refused(g.plan, sizes) : NULL;
        if (refused)
            say(DIAG_ERROR, "watch", "--sizes %s, from t0 = 0: %s", w->sizes, refused);
        else if (at)
            explain_memory(g.plan, sizes, &out);
        put_shown(stdout, out.data, out.len, true);
    }
    fflush(stdout);
    compiler_free(c);
    return ok;
}

static void check_spec(const Watch *w, const WatchedSpec *s)
{
    struct timespec start;
    Tally t = { 0 };
    Compiler *c = compiler_new();
    clock_gettime(CLOCK_MONOTONIC, &start);
    const char *path = open_spec(w, s, c);
    putchar('\n');
    fflush(stdout);
    bool ok = path && check_briefly(c, path, w->all_variants, &t);
    diag_print(c, stderr);
    if (ok)
        printf("check: %d passed, %d failed; largest errors: outputs and states %.2g, gradients %.2g "
               "(%.1f s)\n", t.passed, t.failed, t.worst_forward, t.worst_gradient, seconds_since(&start));
    fflush(stdout);
    compiler_free(c);
}

static void run_in_child(const Watch *w, const WatchedSpec *s)
{
    say_json(w->json);
    if (!explain_spec(w, s)) {
        put_shown(stdout, s->operand, strlen(s->operand), false);
        printf(" does not compile\n");
    } else if (!w->no_check) {
        check_spec(w, s);
    }
    fflush(NULL);
    _exit(0);
}

/* ---- what is printed around the runs */

static void put_head(Watch *w, const WatchedSpec *s)
{
    char clock[16];
    time_t now = time(NULL);
    struct tm local;
    strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&now, &local));
    if (w->clears && (w->idle || !w->said))
        fputs("\033[H\033[2J", stdout);       /* what was scrolled away stays there */
    else if (w->clears)
        fputs("\r\033[K\n", stdout);          /* over a line of progress that stands */
    else if (w->said)
        putchar('\n');
    w->idle = false;
    w->said = true;
    printf("== ");
    put_shown(stdout, s->operand, strlen(s->operand), false);
    printf(", %s\n", clock);
    fflush(stdout);
}

static void put_waiting(Watch *w)
{
    w->idle = true;
    if (w->clears) {
        putchar('\n');
        say(DIAG_NOTE, "", "waiting for changes; Ctrl-C ends");
    }
}

/* ---- runs */

static void end_run(Watch *w)
{
    close(w->ended);
    scratch_remove(w->dir);
    w->running = -1;
}

/* What a save has overtaken. */
static void cancel_run(Watch *w)
{
    process_end(w->pid);
    end_run(w);
}

static void finish_run(Watch *w)
{
    int status = 0;
    process_wait(w->pid, &status);
    if (WIFSIGNALED(status))
        say(DIAG_ERROR, "watch", "%s: signal %d ended the run", w->spec[w->running].operand,
            WTERMSIG(status));
    end_run(w);
}

/* false after a message. */
static bool start_run(Watch *w, int which)
{
    int ends[2];
    WatchedSpec *s = &w->spec[which];
    s->due = false;
    if (!(w->dir = scratch_make(w->c, "watch")))
        return false;
    put_head(w, s);
    w->pid = pipe2(ends, O_CLOEXEC) == 0 ? process_fork() : -1;
    if (w->pid < 0) {
        say(DIAG_ERROR, "watch", "cannot start a process: %s", strerror(errno));
        return false;
    }
    if (w->pid == 0)
        run_in_child(w, s);
    close(ends[1]);
    w->ended = ends[0];
    w->running = which;
    return true;
}

/* ---- files */

static void add_path(void *spec, const char *path)
{
    WatchedSpec *s = spec;
    size_t n = strlen(path) + 1;
    for (int i = 0; i < s->path.len; i++)
        if (strcmp(s->path.data[i], path) == 0)
            return;
    vec_push(s->arena, &s->path, memcpy(arena_alloc(s->arena, n), path, n));
}

/* Finds what the spec is made of now. Its file is found once: what it is called then is waited for where it
 * goes. */
static void find_files(const Watch *w, WatchedSpec *s)
{
    Compiler *c = compiler_new();
    Arena *before = s->arena;
    const char *path = s->path.len ? s->path.data[0] : NULL;
    s->arena = arena_new();
    s->path.len = s->path.cap = 0;
    s->path.data = NULL;
    /* Texts are read anew: c shares none with the command's. */
    c->import_dir = w->c->import_dir;
    c->library_dir = w->c->library_dir;
    add_path(s, path ? path : home_spec(c, s->operand));
    int file = source_load(c, s->path.data[0]);
    if (file >= 0)
        sources_read(c, file, add_path, s);
    if (before)
        arena_free(before);
    compiler_free(c);
}

static bool watch_files(Watch *w)
{
    Vec(const char *) all = { 0 };
    Arena *arena = arena_new();
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < w->spec[i].path.len; k++)
            vec_push(arena, &all, w->spec[i].path.data[k]);
    if (w->c->tuned)
        vec_push(arena, &all, w->c->tuned);
    bool ok = file_watch_set(w->files, all.data, all.len);
    arena_free(arena);
    if (!ok)
        say(DIAG_ERROR, "watch", "out of memory");
    return ok;
}

static bool spec_changed(const Watch *w, const WatchedSpec *s)
{
    bool changed = w->c->tuned && file_watch_changed(w->files, w->c->tuned);
    for (int i = 0; i < s->path.len; i++)
        changed |= file_watch_changed(w->files, s->path.data[i]);
    return changed;
}

/* A spec that is gone comes back, or stays away: nothing is due until then. */
static void note_gone(WatchedSpec *s)
{
    bool there = access(s->path.data[0], F_OK) == 0;
    s->due = there;
    if (!there && !s->gone)
        say(DIAG_NOTE, "watch", "%s is gone; waiting for it to come back", s->operand);
    s->gone = !there;
}

static bool take_changes(Watch *w)
{
    for (int i = 0; i < w->n; i++) {
        WatchedSpec *s = &w->spec[i];
        if (!spec_changed(w, s))
            continue;
        if (i == w->running)
            cancel_run(w);
        note_gone(s);
        find_files(w, s);
    }
    file_watch_forget(w->files);
    return watch_files(w);
}

/* ---- the command */

static int next_due(const Watch *w)
{
    int i = 0;
    while (i < w->n && !w->spec[i].due)
        i++;
    return i < w->n ? i : -1;
}

/* Goes on until a signal ends the process; gives the exit code where it cannot go on. */
static int watch(Watch *w)
{
    for (;;) {
        int next = w->running < 0 ? next_due(w) : -1;
        if (next >= 0 && !start_run(w, next))
            return 1;
        if (w->running < 0 && !w->idle)
            put_waiting(w);
        if (file_watch_wait(w->files, w->running >= 0 ? w->ended : -1) == WATCH_READY)
            finish_run(w);
        else if (!take_changes(w))
            return 1;
    }
}

static bool open_files(Watch *w, const char *const *operands, int n)
{
    const char *terminal = getenv("TERM");
    w->n = n;
    w->spec = arena_alloc(w->c->arena, sizeof *w->spec * (size_t)n);
    w->clears = isatty(1) && terminal && strcmp(terminal, "dumb") != 0 && !w->json;
    if (!(w->files = file_watch_new(w->poll)))
        return false;
    for (int i = 0; i < n; i++) {
        Compiler *c = compiler_new();
        const char *path = home_spec(c, operands[i]);
        bool there = path && source_load(c, path) >= 0;
        diag_print(c, stderr);
        compiler_free(c);
        if (!there)
            return false;
        w->spec[i] = (WatchedSpec){ .operand = operands[i], .due = true };
        find_files(w, &w->spec[i]);
    }
    if (!watch_files(w))
        return false;
    if (!w->poll && !file_watch_reports(w->files))
        say(DIAG_NOTE, "watch", "the system reports no changes of files; they are looked at "
                                "four times a second");
    return true;
}

int cmd_watch(int argc, char **argv)
{
    Watch w = { .c = compiler_new(), .running = -1, .json = says_json() };
    const char *operands[argc + 1];
    const OptionSpec table[] = {
        { "--sizes", "LIST", OPT_STRING, &w.sizes, "say too what memory a call takes at B=16,T=512,D=1024" },
        { "--archs", "LIST", OPT_STRING, &w.c->archs, "GPUs that it is for, e.g. \"80 90\" (80 86 89 90)" },
        { "--all-variants", NULL, OPT_FLAG, &w.all_variants,
          "check every combination of options, not each value once" },
        { "--no-check", NULL, OPT_FLAG, &w.no_check, "explain only" },
        { "--poll", NULL, OPT_FLAG, &w.poll,
          "look at the files four times a second: for folders of other machines" },
        { NULL, NULL, OPT_FLAG, NULL, NULL }
    };
    w.c->archs = default_archs;
    int n, rc = options_parse(&help, w.c, argc, argv, table, operands, &n);
    if (rc < 0)
        rc = archs_check(&help, w.c->archs);
    if (rc < 0 && texts_closed(w.c))
        rc = usage_error(&help, "--sources: nothing in a pack changes");
    if (rc < 0)
        rc = open_files(&w, operands, n) ? watch(&w) : 1;
    file_watch_free(w.files);
    for (int i = 0; i < w.n; i++)
        if (w.spec[i].arena)
            arena_free(w.spec[i].arena);
    compiler_free(w.c);
    return rc;
}
