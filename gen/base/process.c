/* process.c: fork, exec and wait. In: a list of words, or many lists. Out: exit codes. Guaranteed: no shell
 * reads the words, so names with blanks or quotes in them are safe; commands that run side by side do not mix
 * what they print. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "process.h"

void words_add(Words *w, const char *word)
{
    /* One slot stays free for the NULL that execvp wants. */
    if (w->n + 1 == (int)(sizeof w->items / sizeof *w->items))
        w->full = true;
    else
        w->items[w->n++] = word;
}

void words_split(Compiler *c, Words *w, const char *text)
{
    while (text && *text) {
        size_t n = strcspn(text, " \t\n");
        if (n)
            words_add(w, intern_n(c, text, n));
        text += n + (text[n] != 0);
    }
}

static void show_words(const Words *w)
{
    for (int i = 0; i < w->n; i++)
        fprintf(stderr, "%s%s", i ? " " : "+ ", w->items[i]);
    fputc('\n', stderr);
}

/* Starts the command, with both its outputs in the file `log` unless that is NULL; its process, or -1. */
static pid_t start_words(const Words *w, const char *log)
{
    char *argv[sizeof w->items / sizeof *w->items];
    for (int i = 0; i < w->n; i++)
        argv[i] = (char *)w->items[i];
    argv[w->n] = NULL;
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    int file = log ? open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600) : -1;
    if (file >= 0) {
        dup2(file, STDOUT_FILENO);
        dup2(file, STDERR_FILENO);
        close(file);
    }
    execvp(argv[0], argv);
    fprintf(stderr, "cellc: cannot run %s: %s\n", argv[0], strerror(errno));
    fflush(stderr);
    _exit(127);
}

static int exit_code(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool too_long(const Words *w)
{
    if (w->full)
        fprintf(stderr, "cellc: the command %s is too long\n", w->items[0]);
    return w->full;
}

int run_words(const Words *w, bool show)
{
    int status;
    if (too_long(w))
        return 127;
    if (show)
        show_words(w);
    pid_t pid = start_words(w, NULL);
    if (pid < 0) {
        fprintf(stderr, "cellc: cannot start %s: %s\n", w->items[0], strerror(errno));
        return 127;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return 127;
    return exit_code(status);
}

const char *words_output(Compiler *c, const Words *w)
{
    const char *tmp = getenv("TMPDIR");
    char path[4096], text[4096];
    snprintf(path, sizeof path, "%s/cellc-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    int file = w->full ? -1 : mkstemp(path), status = -1;
    if (file < 0)
        return NULL;
    pid_t pid = start_words(w, path);
    while (pid > 0 && waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            pid = -1;
    Buf out = { .arena = c->arena };
    for (ssize_t n; pid > 0 && (n = read(file, text, sizeof text)) > 0;)
        buf_f(&out, "%.*s", (int)n, text);
    close(file);
    unlink(path);
    return pid > 0 && exit_code(status) == 0 ? out.data : NULL;
}

/* ---- many commands ---- */

static void start_job(Job *job)
{
    job->started = true;
    job->pid = job->words.full ? -1 : (int)start_words(&job->words, job->log);
    job->done = job->pid < 0;
    job->status = job->done ? 127 : 0;
}

/* Waits until one of the jobs that run has ended. */
static void wait_for_one(Job *job, int n)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, 0)) < 0 && errno == EINTR)
        continue;
    for (int i = 0; i < n; i++)
        if (job[i].started && !job[i].done && (pid < 0 || job[i].pid == pid)) {
            job[i].done = true;
            job[i].status = pid < 0 ? 127 : exit_code(status);
        }
}

static void print_job(const Job *job, bool show)
{
    char text[4096];
    size_t n;
    if (too_long(&job->words))
        return;
    if (show)
        show_words(&job->words);
    if (job->pid < 0)
        fprintf(stderr, "cellc: cannot start %s\n", job->words.items[0]);
    FILE *f = fopen(job->log, "r");
    while (f && (n = fread(text, 1, sizeof text, f)) > 0)
        fwrite(text, 1, n, stderr);
    if (f)
        fclose(f);
}

bool run_jobs(Job *job, int n, int at_once, bool show)
{
    int next = 0, running = 0, printed = 0;
    bool ok = true, said = true;
    while (printed < next || (ok && next < n)) {
        while (ok && next < n && running < at_once) {
            start_job(&job[next]);
            running += !job[next].done;
            ok = !job[next++].done;
        }
        if (running && !job[printed].done) {
            wait_for_one(job, next);
            running = 0;
            for (int i = 0; i < next; i++) {
                running += !job[i].done;
                ok = ok && (!job[i].done || job[i].status == 0);
            }
        }
        for (; printed < next && job[printed].done; printed++) {
            if (said)
                print_job(&job[printed], show);
            said = said && job[printed].status == 0;
            unlink(job[printed].log);
        }
    }
    return ok;
}

int processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}
