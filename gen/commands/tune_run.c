/* tune_run.c: how `cellc tune` measures. In: candidates and the sizes of a call. Out: of each its milliseconds, or what
 * was wrong with it. A candidate is built by `cellc build` for this machine's GPU and linked with libtime.a, whose program
 * runs in a process of its own: what one candidate does to its context no other one sees. Guaranteed: only a GPU is
 * measured. Times may come from a file instead, for tests (CELLC_TUNE_TIMES): then nothing is built, and nothing is run. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/home.h"
#include "base/process.h"
#include "base/say.h"
#include "base/toolkit.h"
#include "gpu.h"
#include "options.h"
#include "tune.h"
#include "front/ast.h"

/* ---- times that were measured elsewhere: "gpu NAME", "arch 90", and a line "SCHEDULE ANSWER" for each candidate */

/* What stands behind the word at the beginning of a line; NULL: there is no such line. */
static const char *line_of(Compiler *c, const char *text, const char *word)
{
    size_t n = strlen(word);
    while (*text) {
        size_t len = strcspn(text, "\n");
        if (len > n && strncmp(text, word, n) == 0 && text[n] == ' ')
            return intern_n(c, text + n + 1, len - n - 1);
        text += len + (text[len] == '\n');
    }
    return NULL;
}

static int open_times(Measure *m, const char *command, const char *path)
{
    int file = source_load(m->c, path);
    if (file < 0) {
        diag_print(m->c, stderr);
        return 1;
    }
    m->times = m->c->sources.data[file].text;
    m->gpu = line_of(m->c, m->times, "gpu");
    m->arch = line_of(m->c, m->times, "arch");
    if (m->gpu && m->arch) {
        say(DIAG_NOTE, command, "times are those in %s: nothing is measured", path);
        return -1;
    }
    say(DIAG_ERROR, command, "%s has no line '%s'", path, m->gpu ? "arch" : "gpu");
    return 1;
}

int measure_open(Measure *m, const char *command)
{
    const char *times = getenv("CELLC_TUNE_TIMES"), *why;
    if (times && *times)
        return open_times(m, command, times);
    if (!home_dir(m->c, HOME_LIB) || !home_dir(m->c, HOME_INCLUDE) || !home_dir(m->c, HOME_TIME)) {
        say(DIAG_ERROR, command, "the runtime is not where cellc is; run make, or set CELLC_HOME");
        return 1;
    }
    if ((why = gpu_refused(m->c)) || (gpu_identify(m->c, &m->gpu, &m->arch) ? NULL : (why = "no GPU (the driver names none)"))) {
        say(DIAG_ERROR, command, "%s: nothing can be measured here; --list prints the candidates", why);
        return 1;
    }
    if (!(m->dir = scratch_make(m->c, command)))
        return 1;
    m->program = home_program(m->c);
    return -1;
}

/* ---- building */

static const char *place(const Measure *m, int k, const char *name)
{
    return intern_f(m->c, "%s/%d/%s", m->dir, k, name);
}

/* The settings of the command line, for the k-th candidate. */
static void add_settings(const Candidates *all, int k, Words *w)
{
    Compiler *c = all->c;
    for (int i = 0; i < c->sets.len; i++) {
        words_add(w, "--set");
        words_add(w, intern_f(c, "%s=%s", c->sets.data[i].name, c->sets.data[i].value));
    }
    for (int i = 0; i < c->dims.len; i++) {
        words_add(w, "--dim");
        words_add(w, intern_f(c, "%s=%s", c->dims.data[i].name, c->dims.data[i].value));
    }
    for (int i = 0; i < c->types.len; i++) {
        words_add(w, "--dtype-of");
        words_add(w, intern_f(c, "%s=%s", c->types.data[i].name, c->types.data[i].value));
    }
    words_split(c, w, c->reverse ? "--reverse" : NULL);
    words_split(c, w, c->lengths ? "--lengths" : NULL);
    if (c->products != PRODUCTS_AUTO)
        words_split(c, w, intern_f(c, "--products %s", products_names[c->products]));
    if (c->import_dir) {
        words_add(w, "--import-dir");
        words_add(w, c->import_dir);
    }
    words_split(c, w, intern_f(c, "--dtype %s --schedule %s --archs %s --jobs 1", dtype_names[c->dtype],
                               all->list.data[k].schedule, all->arch));
}

static bool write_glue(const Candidates *all, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    fprintf(f, "struct cell_desc;\nconst struct cell_desc *%s_instance(void);\nconst struct cell_desc *timed_instance(void);\n"
               "const struct cell_desc *timed_instance(void) { return %s_instance(); }\n", all->name, all->name);
    return fclose(f) == 0;
}

static int build_one(const Measure *m, const Candidates *all, int k)
{
    Compiler *c = m->c;
    const char *dir = place(m, k, "."), *glue = place(m, k, "glue.c"), *clocks = home_dir(c, HOME_TIME),
               *nvcc = toolkit_nvcc(c);
    Words build = { 0 }, link = { 0 };
    words_add(&build, m->program);
    words_add(&build, "build");
    words_add(&build, home_operand(c, all->spec));
    add_settings(all, k, &build);
    words_add(&build, "-o");
    words_add(&build, dir);
    int rc = run_words(&build, m->verbose);
    if (rc)
        return rc;
    if (!write_glue(all, glue))
        return 1;
    words_split(c, &link, c_compiler());
    words_split(c, &link, "-std=c11 -D_GNU_SOURCE -O2");
    words_add(&link, intern_f(c, "-I%s", home_dir(c, HOME_INCLUDE)));
    words_add(&link, intern_f(c, "-I%s", clocks));
    toolkit_headers(c, nvcc, &link);
    words_add(&link, glue);
    words_add(&link, intern_f(c, "%s/time.c", clocks));
    words_add(&link, intern_f(c, "%s/libtime.a", home_dir(c, HOME_LIB)));
    words_add(&link, intern_f(c, "%s/lib%s.so", dir, library_name(c, all->name)));
    words_add(&link, intern_f(c, "-Wl,-rpath,%s", dir));
    toolkit_libraries(c, nvcc, &link);
    words_split(c, &link, "-lm -o");
    words_add(&link, place(m, k, "time"));
    return run_words(&link, m->verbose);
}

static pid_t start_build(const Measure *m, const Candidates *all, int k)
{
    pid_t pid = mkdir(intern_f(m->c, "%s/%d", m->dir, k), 0777) == 0 ? process_fork() : -1;
    if (pid)
        return pid;
    int out = open(place(m, k, "log"), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (out < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(1);
    int rc = build_one(m, all, k);
    fflush(NULL);
    _exit(rc);
}

/* The last line that a build printed. */
static const char *last_line(const Measure *m, int k)
{
    char line[1024], last[1024] = "nothing was said";
    FILE *f = fopen(place(m, k, "log"), "r");
    while (f && fgets(line, sizeof line, f))
        if (line[strspn(line, " \n")])
            memcpy(last, line, sizeof last);
    if (f)
        fclose(f);
    last[strcspn(last, "\n")] = 0;
    return intern(m->c, last);
}

static void wait_for_build(const Measure *m, Candidates *all, const pid_t *pid)
{
    int status;
    pid_t ended = process_wait(-1, &status);
    for (int k = 0; k < all->list.len; k++)
        if (pid[k] == ended && status) {
            all->list.data[k].state = TUNE_FAILED;
            all->list.data[k].said = intern_f(m->c, "does not build: %s", last_line(m, k));
        }
}

void measure_build(Measure *m, Candidates *all, int from)
{
    if (m->times)
        return;
    pid_t *pid = arena_alloc(m->c->arena, sizeof *pid * (size_t)(all->list.len + 1));
    int running = 0;
    for (int k = from; k < all->list.len; k++) {
        if (running == m->jobs) {
            wait_for_build(m, all, pid);
            running--;
        }
        pid[k] = start_build(m, all, k);
        running += pid[k] > 0;
        if (pid[k] < 0) {
            all->list.data[k].state = TUNE_FAILED;
            all->list.data[k].said = "does not build: no process was to be had";
        }
    }
    for (; running; running--)
        wait_for_build(m, all, pid);
}

/* ---- running */

/* "times 1.1 5.75", "wrong d_W ...", "failed ...": the last line of what a program printed. */
static void take_answer(Compiler *c, Candidate *one, const char *text)
{
    size_t len = text ? strlen(text) : 0;
    while (len && text[len - 1] == '\n')
        len--;
    size_t from = len;
    while (from && text[from - 1] != '\n')
        from--;
    const char *last = text ? intern_n(c, text + from, len - from) : "";
    one->state = TUNE_FAILED;
    one->said = "ended without a result";
    if (sscanf(last, "times %lf %lf", &one->ms[0], &one->ms[1]) == 2 && one->ms[0] > 0 && one->ms[1] > 0) {
        one->state = TUNE_TIMED;
        one->said = NULL;
    } else if (strncmp(last, "wrong ", 6) == 0) {
        one->state = TUNE_WRONG;
        one->said = last + 6;
    } else if (strncmp(last, "failed ", 7) == 0) {
        one->said = last + 7;
    }
}

void measure_run(Measure *m, Candidates *all, int k)
{
    Candidate *one = &all->list.data[k];
    Words w = { 0 };
    if (one->state != TUNE_OPEN)
        return;
    if (m->times) {
        const char *line = line_of(m->c, m->times, one->schedule);
        take_answer(m->c, one, line ? line : "failed no time was given");
        return;
    }
    words_add(&w, place(m, k, "time"));
    words_add(&w, m->call);
    words_add(&w, k ? "--against" : "--save");
    words_add(&w, intern_f(m->c, "%s/results", m->dir));
    take_answer(m->c, one, words_output(m->c, &w));
}

void measure_close(Measure *m)
{
    if (m->dir)
        scratch_remove(m->dir);
}
