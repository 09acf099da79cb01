/* selftest_run.c: runs the tests of `cellc selftest`. In: a list of instances. Out: a line for each, what
 * failed below it, and the counts. An instance is built by `cellc build` as a user would, its reference once
 * more in double under names of its own, and both are linked with libladder.a, which is what `make check`
 * runs. Guaranteed: a test that ends without a result has failed. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/home.h"
#include "base/say.h"
#include "base/toolkit.h"
#include "selftest.h"
#include "front/ast.h"

enum { SECONDS = 1800, SHOWN = 6 }; /* of one process; lines of a failure */

Test *test_add(Tests *t, const char *label, const char *cell)
{
    if (t->n == t->cap) {
        int cap = t->cap ? 2 * t->cap : 64;
        Test *grown = arena_alloc(t->c->arena, sizeof *grown * (size_t)cap);
        if (t->n)
            memcpy(grown, t->test, sizeof *grown * (size_t)t->n);
        t->test = grown;
        t->cap = cap;
    }
    Test *one = &t->test[t->n];
    *one = (Test){.label = label, .cell = cell, .dir = intern_f(t->c, "%s/%d", t->dir, t->n)};
    t->n++;
    return one;
}

/* ---- one test, in its own process */

/* The reference once more, under the names that the ladder calls: the library has it too. */
static void put_reference(FILE *f, const Test *one, const char *real, const char *prefix)
{
    static const char *const names[] = {"forward", "backward", "step", "reserve_bytes", "real_bytes"};
    fprintf(f, "#define CELL_REAL %s\n", real);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        fprintf(f, "#define %s_ref_%s ladder_%s_%s\n", one->cell, names[i], prefix, names[i]);
    fprintf(f, "#include \"%s_ref.c\"\n", one->cell);
}

/* In float, which tells what roundings do. */
static bool write_rough(const Test *one, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    fprintf(f, "#include \"cell_rough.h\"\n");
    put_reference(f, one, "float", "rough");
    return fclose(f) == 0;
}

static bool write_glue(const Test *one, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return false;
    put_reference(f, one, "double", "ref");
    fprintf(f, "struct cell_desc;\nconst struct cell_desc *%s_instance(void);\n", one->cell);
    fprintf(f, "const struct cell_desc *ladder_instance(void);\n");
    fprintf(f, "const struct cell_desc *ladder_instance(void) { return %s_instance(); }\n", one->cell);
    return fclose(f) == 0;
}

static int build_library(const Tests *t, const Test *one)
{
    Words w = {0};
    words_add(&w, t->program);
    words_add(&w, "build");
    for (int i = 0; i < one->settings.n; i++)
        words_add(&w, one->settings.items[i]);
    words_split(t->c, &w, t->cuda ? "--archs native -o" : "--no-cuda -o");
    words_add(&w, one->dir);
    return run_words(&w, t->verbose);
}

static int link_ladder(const Tests *t, const Test *one, const char *glue, const char *rough, const char *target)
{
    Compiler *c = t->c;
    Words w = {0};
    words_split(c, &w, c_compiler());
    words_split(c, &w, "-std=c11 -O2 -ffp-contract=off");
    /* Not CFLAGS: what they do to the library must not happen to what it is compared with. */
    words_add(&w, intern_f(c, "-I%s", home_dir(c, HOME_INCLUDE)));
    words_add(&w, intern_f(c, "-I%s", one->dir));
    words_add(&w, glue);
    words_add(&w, rough);
    words_add(&w, intern_f(c, "%s/libladder.a", home_dir(c, HOME_LIB)));
    words_add(&w, intern_f(c, "%s/lib%s.so", one->dir, library_name(c, one->cell)));
    words_add(&w, intern_f(c, "-Wl,-rpath,%s", one->dir));
    toolkit_libraries(c, NULL, &w);
    words_split(c, &w, "-lpthread -lm -o");
    words_add(&w, target);
    return run_words(&w, t->verbose);
}

/* ---- kernels on the CPU: the same .cu, compiled as C++ for the emulator */

static const char *cxx_compiler(void)
{
    const char *cxx = getenv("CXX");
    return cxx && *cxx ? cxx : "c++";
}

static void add_includes(const Tests *t, Words *w)
{
    const char *include = home_dir(t->c, HOME_INCLUDE);
    words_add(w, intern_f(t->c, "-I%s", include));
    words_add(w, intern_f(t->c, "-I%s/device", include));
    words_add(w, intern_f(t->c, "-I%s", t->emulator));
}

bool tests_emulator(Tests *t)
{
    static const char *const parts[] = {"fiber", "launch", "sync", "shared", "report", "numbers", "backend"};
    enum { PARTS = sizeof parts / sizeof *parts };
    Job job[PARTS] = {{.pid = 0}};
    for (int i = 0; i < PARTS; i++) {
        const char *object = intern_f(t->c, "%s/emu_%s.o", t->dir, parts[i]);
        words_split(t->c, &job[i].words, cxx_compiler());
        words_split(t->c, &job[i].words, "-std=c++17 -O2 -fPIC -c");
        add_includes(t, &job[i].words);
        words_add(&job[i].words, intern_f(t->c, "%s/cell_emu_%s.cc", t->emulator, parts[i]));
        words_add(&job[i].words, "-o");
        words_add(&job[i].words, object);
        job[i].log = intern_f(t->c, "%s.log", object);
        words_add(&t->emulator_objects, object);
    }
    return run_jobs(job, PARTS, t->jobs, t->verbose);
}

static int compile_part(const Tests *t, const Test *one, bool cxx, const char *source, const char *object)
{
    Words w = {0};
    words_split(t->c, &w, cxx ? cxx_compiler() : c_compiler());
    words_split(t->c, &w, cxx ? "-std=c++17 -O1 -fPIC -Wno-unknown-pragmas" : "-std=c11 -O1 -fPIC -ffp-contract=off");
    add_includes(t, &w);
    words_add(&w, intern_f(t->c, "-I%s", one->dir));
    words_split(t->c, &w, cxx ? "-x c++ -c" : "-c");
    words_add(&w, source);
    words_add(&w, "-o");
    words_add(&w, object);
    return run_words(&w, t->verbose);
}

/* In place of a library: the files of one, compiled and linked into the ladder. */
static int build_emulated(const Tests *t, const Test *one, const char *glue, const char *rough, const char *target)
{
    Compiler *c = t->c;
    const char *base = intern_f(c, "%s/%s", one->dir, one->cell);
    const char *const sources[] = {intern_f(c, "%s.cu", base), intern_f(c, "%s.c", base), intern_f(c, "%s_ref.c", base), glue, rough};
    enum { SOURCES = sizeof sources / sizeof *sources };
    Words link = {0};
    int rc = 0;
    words_split(c, &link, cxx_compiler());
    for (int i = 0; i < SOURCES && rc == 0; i++) {
        const char *object = intern_f(c, "%s.%d.o", base, i);
        rc = compile_part(t, one, i == 0, sources[i], object);
        words_add(&link, object);
    }
    for (int i = 0; i < t->emulator_objects.n; i++)
        words_add(&link, t->emulator_objects.items[i]);
    words_add(&link, intern_f(c, "%s/libladder.a", home_dir(c, HOME_LIB)));
    words_add(&link, intern_f(c, "%s/libcell.a", home_dir(c, HOME_LIB)));
    toolkit_libraries(c, NULL, &link);
    words_split(c, &link, "-lpthread -lm -o");
    words_add(&link, target);
    return rc ? rc : run_words(&link, t->verbose);
}

static int emit_files(const Tests *t, const Test *one)
{
    Words w = {0};
    words_add(&w, t->program);
    words_add(&w, "emit");
    for (int i = 0; i < one->settings.n; i++)
        words_add(&w, one->settings.items[i]);
    words_add(&w, "-o");
    words_add(&w, one->dir);
    return run_words(&w, t->verbose);
}

static int climb(const Tests *t, const Test *one)
{
    const char *glue = intern_f(t->c, "%s/ladder.c", one->dir);
    const char *rough = intern_f(t->c, "%s/rough.c", one->dir);
    const char *target = intern_f(t->c, "%s/ladder", one->dir);
    Words w = {0};
    int rc = t->emulator ? emit_files(t, one) : build_library(t, one);
    if (rc == 0 && !(write_glue(one, glue) && write_rough(one, rough))) {
        say(DIAG_ERROR, "selftest", "cannot write in %s: %s", one->dir, strerror(errno));
        rc = 1;
    }
    if (rc == 0)
        rc = t->emulator ? build_emulated(t, one, glue, rough, target) : link_ladder(t, one, glue, rough, target);
    if (rc)
        return rc;
    setenv("CELL_BACKEND", t->emulator ? "emulated" : t->cuda ? "cuda" : "reference", 1);
    words_add(&w, target);
    if (t->full)
        words_add(&w, "--full");
    return run_words(&w, t->verbose);
}

static int check(const Tests *t, const Test *one)
{
    Words w = {0};
    words_add(&w, t->program);
    words_add(&w, "check");
    for (int i = 0; i < one->settings.n; i++)
        words_add(&w, one->settings.items[i]);
    return run_words(&w, t->verbose);
}

/* Where what a test says goes. */
static const char *log_of(const Tests *t, const Test *one)
{
    return intern_f(t->c, "%s/log", one->dir);
}

static void start(Tests *t, Test *one)
{
    const char *log = log_of(t, one);
    one->pid = mkdir(one->dir, 0777) == 0 ? process_fork() : -1;
    if (one->pid)
        return;
    int out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (out < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(1);
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    /* What loops for ever must end, here and in what this process starts. */
    setrlimit(RLIMIT_CPU, &(struct rlimit){SECONDS, SECONDS});
    int rc = one->cell ? climb(t, one) : check(t, one);
    fflush(NULL);
    _exit(rc);
}

/* ---- what came out */

/* "..: N passed, N failed[, N skipped]" at the end of a line. */
static bool read_counts(const char *line, int *passed, int *failed, int *skipped)
{
    const char *colon = strrchr(line, ':');
    *skipped = 0;
    return sscanf(colon ? colon + 1 : line, " %d passed, %d failed, %d skipped", passed, failed, skipped) >= 2;
}

static void show_lines(FILE *log, const char *beginning, int most)
{
    char line[1024];
    int shown = 0;
    rewind(log);
    while (shown < most && fgets(line, sizeof line, log)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, beginning, strlen(beginning)) == 0 && line[0]) {
            printf("    ");
            print_shown(line);
            shown++;
        }
    }
}

static void report(Tests *t, const Test *one)
{
    char line[1024], last[1024] = "";
    int passed = 0, failed = 0, skipped = 0;
    FILE *log = fopen(log_of(t, one), "r");
    while (log && fgets(line, sizeof line, log))
        memcpy(last, line, sizeof last);
    bool result = read_counts(last, &passed, &failed, &skipped) && passed + failed + skipped > 0;
    if (!result) {
        printf("%s: ended without a result\n", one->label);
        passed = skipped = 0;
        failed = 1;
    } else {
        printf("%s: %d passed, %d failed, %d skipped\n", one->label, passed, failed, skipped);
    }
    if (log && (failed || t->verbose))
        show_lines(log, result && !t->verbose ? "FAIL" : "", t->verbose ? INT_MAX : SHOWN);
    if (log && !t->verbose) {
        show_lines(log, "SKIP", SHOWN);
        show_lines(log, "note", SHOWN);
    }
    if (log)
        fclose(log);
    t->passed += passed;
    t->failed += failed;
    t->skipped += skipped;
    fflush(stdout);
}

static void wait_for_one(Tests *t, int *running)
{
    int status;
    pid_t pid = process_wait(-1, &status);
    for (int i = 0; i < t->n; i++)
        if (t->test[i].pid == pid && !t->test[i].done) {
            t->test[i].done = true;
            (*running)--;
        }
}

void tests_run(Tests *t)
{
    int started = 0, running = 0;
    for (int told = 0; told < t->n; told++) {
        Test *one = &t->test[told];
        while (!one->done) {
            while (started < t->n && running < t->jobs) {
                Test *next = &t->test[started++];
                start(t, next);
                next->done = next->pid < 0;
                running += next->pid > 0;
            }
            if (!one->done) {
                progress(told, t->n, one->label);
                wait_for_one(t, &running);
            }
        }
        progress_end();
        report(t, one);
        scratch_remove(one->dir);
    }
}
