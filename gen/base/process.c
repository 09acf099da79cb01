/* process.c: fork, exec and wait. In: a list of words, or many lists. Out: exit codes. Guaranteed: no shell
 * reads the words, so names with blanks or quotes in them are safe; commands that run side by side do not mix
 * what they print; when a signal ends this process, what it started ends too, and its temporary directories go.
 *
 * A child is the leader of a process group, so that what it starts in turn (cc1, ptxas) ends with it. A command runs in a
 * thread; the first thread waits for it, or for a signal, and does then what no handler of a signal may. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "process.h"
#include "say.h"

/* ---- what goes when the process ends ---- */

enum { MOST_CHILDREN = 2048, MOST_SCRATCH = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;      /* of what follows; a process that a signal ends keeps it */
static pid_t children[MOST_CHILDREN];
static int n_children;
static char *scratch[MOST_SCRATCH];
static const char *lent;          /* a directory of the parent's, for the time that this process runs */
static bool follows;              /* is in the process group that its parent made for it */

static const int ending[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };
enum { N_ENDING = sizeof ending / sizeof *ending };

static sem_t wake;                /* of the first thread */
static pthread_t first;           /* which ends the process */
static atomic_int ended_by;       /* a signal, or 0 */
static atomic_bool command_ended;

/* A write to a closed pipe would go on where it was refused, and again. */
static void on_signal(int sig)
{
    int before = errno, none = 0;
    atomic_compare_exchange_strong(&ended_by, &none, sig);
    sem_post(&wake);
    errno = before;
    while (sig == SIGPIPE && !pthread_equal(pthread_self(), first))    /* `kill -PIPE` may come to the first thread */
        pause();
}

/* What was ignored when the process began, as under nohup, stays so. */
static void handle_signals(void (*handler)(int))
{
    for (int i = 0; i < N_ENDING; i++) {
        struct sigaction now, with = { .sa_handler = handler, .sa_flags = SA_RESTART };
        if (sigaction(ending[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaction(ending[i], &with, NULL);
    }
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static void remove_tree(const char *dir)
{
    /* What still runs may write there meanwhile. */
    for (int i = 0; i < 3 && nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS) != 0; i++)
        continue;
}

static void remove_scratch(void)
{
    for (int i = 0; i < MOST_SCRATCH; i++)
        if (scratch[i])
            remove_tree(scratch[i]);
}

/* Has the group of a child ended? What ended is waited for, so that it goes. */
static bool group_ended(pid_t child)
{
    while (waitpid(-1, NULL, WNOHANG) > 0)
        continue;
    return kill(-child, 0) != 0;
}

static void end_children(void)
{
    enum { PATIENCE_MS = 3000, STEP_MS = 10 };
    prctl(PR_SET_CHILD_SUBREAPER, 1);         /* what a child started becomes one where the child ends first */
    for (int i = 0; !follows && i < n_children; i++) {
        kill(-children[i], SIGTERM);
        kill(-children[i], SIGCONT);
    }
    for (int ms = 0, left = n_children; !follows && left && ms < PATIENCE_MS; ms += STEP_MS) {
        left = 0;
        for (int i = 0; i < n_children; i++)
            left += !group_ended(children[i]);
        if (left)
            nanosleep(&(struct timespec) { .tv_nsec = STEP_MS * 1000000 }, NULL);
    }
    for (int i = 0; !follows && i < n_children; i++)
        kill(-children[i], SIGKILL);
}

static _Noreturn void end_by(int sig)
{
    sigset_t set;
    pthread_mutex_lock(&lock);
    end_children();
    remove_scratch();
    if (lent)
        remove_tree(lent);
    signal(sig, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, sig);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(sig);
    _exit(128 + sig);
}

typedef struct Call { int (*run)(int argc, char **argv); int argc; char **argv; int code; } Call;

static void *run_call(void *call)
{
    Call *c = call;
    c->code = c->run(c->argc, c->argv);
    atomic_store(&command_ended, true);
    sem_post(&wake);
    return NULL;
}

/* A stack of a GiB, of which only what is used is taken from memory: passes recurse along the operands of a
 * value, and a cell may have 200,000 operations of which each reads the one before. Where so much cannot be
 * had (ulimit -v) it is less. */
static bool start_thread(pthread_t *thread, Call *call)
{
    pthread_attr_t with;
    bool runs = false;
    if (pthread_attr_init(&with) != 0)
        return false;
    for (size_t bytes = (size_t)1 << 30; !runs && bytes >= (size_t)1 << 24; bytes /= 4)
        runs = pthread_attr_setstacksize(&with, bytes) == 0 && pthread_create(thread, &with, run_call, call) == 0;
    pthread_attr_destroy(&with);
    return runs;
}

/* What a parent in another language says of itself; not for what is started here. */
static void follow_parent(void)
{
    const char *parent = getenv("CELLC_PARENT"), *dir = getenv("CELLC_SCRATCH");
    /* Not where another program stands between. */
    if (parent && getppid() == (pid_t)strtol(parent, NULL, 10)) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        lent = dir && *dir ? strdup(dir) : NULL;
    }
    unsetenv("CELLC_PARENT");
    unsetenv("CELLC_SCRATCH");
}

int process_run(int (*run)(int argc, char **argv), int argc, char **argv)
{
    Call call = { run, argc, argv, 70 };
    pthread_t thread;
    atexit(remove_scratch);
    if (sem_init(&wake, 0, 0) != 0)
        return run(argc, argv);
    first = pthread_self();
    handle_signals(on_signal);
    follow_parent();
    if (!start_thread(&thread, &call)) {
        handle_signals(SIG_DFL);
        return run(argc, argv);
    }
    while (!atomic_load(&command_ended)) {
        while (sem_wait(&wake) != 0)
            continue;
        if (atomic_load(&ended_by))
            end_by(atomic_load(&ended_by));
    }
    pthread_join(thread, NULL);
    handle_signals(SIG_DFL);      /* what is left to write is written by this thread */
    return call.code;
}

/* ---- temporary directories ---- */

const char *scratch_make(Compiler *c, const char *command)
{
    const char *tmp = getenv("TMPDIR");
    int at = 0;
    tmp = tmp && *tmp ? tmp : "/tmp";
    /* No program that is given a file in it takes its name for an option. */
    char *dir = (char *)(uintptr_t)intern_f(c, "%s%s/cellc-XXXXXX", *tmp == '-' || *tmp == '@' ? "./" : "", tmp);
    char *kept = malloc(strlen(dir) + 1);
    pthread_mutex_lock(&lock);
    while (at < MOST_SCRATCH && scratch[at])
        at++;
    bool made = kept && at < MOST_SCRATCH && mkdtemp(strcpy(kept, dir));
    if (made)
        scratch[at] = kept;
    pthread_mutex_unlock(&lock);
    if (made)
        return intern(c, kept);
    say(DIAG_ERROR, command, "cannot make %s: %s", dir, strerror(errno));
    free(kept);
    return NULL;
}

void scratch_remove(const char *dir)
{
    remove_tree(dir);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_SCRATCH; i++)
        if (scratch[i] && strcmp(scratch[i], dir) == 0) {
            free(scratch[i]);
            scratch[i] = NULL;
        }
    pthread_mutex_unlock(&lock);
}

/* ---- children ---- */

pid_t process_fork(void)
{
    fflush(NULL);
    pthread_mutex_lock(&lock);
    errno = EAGAIN;
    pid_t pid = n_children < MOST_CHILDREN ? fork() : -1;
    if (pid == 0) {
        if (!follows)
            setpgid(0, 0);
        follows = true;
        n_children = 0;
        lent = NULL;
        for (int i = 0; i < MOST_SCRATCH; i++)
            if (scratch[i])                   /* what a compiler that is killed leaves goes with it */
                setenv("TMPDIR", scratch[i], 1);
        memset(scratch, 0, sizeof scratch);
        handle_signals(SIG_DFL);
        signal(SIGTTOU, SIG_IGN);             /* it is not the terminal's group, and may print there */
        prctl(PR_SET_PDEATHSIG, SIGTERM);     /* where its parent cannot tell it */
        say_json(false);
    } else if (pid > 0) {
        if (!follows)
            setpgid(pid, pid);                /* whichever of the two is first */
        children[n_children++] = pid;
    }
    pthread_mutex_unlock(&lock);
    return pid;
}

pid_t process_wait(pid_t pid, int *status)
{
    siginfo_t ended = { 0 };
    int rc;
    while ((rc = waitid(pid > 0 ? P_PID : P_ALL, pid > 0 ? (id_t)pid : 0, &ended, WEXITED | WNOWAIT)) != 0 && errno == EINTR)
        continue;
    /* One that is waited for is no child any more at the same moment: its number may be another's then. */
    pthread_mutex_lock(&lock);
    pid = rc == 0 ? waitpid(ended.si_pid, status, 0) : -1;
    for (int i = 0; i < n_children; i++)
        if (children[i] == pid)
            children[i] = children[--n_children];
    pthread_mutex_unlock(&lock);
    return pid;
}

void process_end(pid_t pid)
{
    siginfo_t ended = { 0 };
    int status;
    kill(-pid, SIGTERM);
    while (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT) != 0 && errno == EINTR)
        continue;
    kill(-pid, SIGKILL);                      /* the group is its own until it is waited for */
    process_wait(pid, &status);
}

/* ---- one command ---- */

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
    Buf line = { .arena = arena_new() };
    for (int i = 0; i < w->n; i++)
        buf_f(&line, "%s%s", i ? " " : "+ ", w->items[i]);
    say(DIAG_NOTE, "", "%s", line.data);
    arena_free(line.arena);
}

/* Starts the command; its process, or -1. Where `log` is a file, its messages go there and, if `both`, what
 * it prints. */
static pid_t start_words(const Words *w, int log, bool both)
{
    char *argv[sizeof w->items / sizeof *w->items];
    for (int i = 0; i < w->n; i++)
        argv[i] = (char *)w->items[i];
    argv[w->n] = NULL;
    pid_t pid = process_fork();
    if (pid != 0)
        return pid;
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0)
        dup2(nothing, STDIN_FILENO);
    if (log >= 0 && both)
        dup2(log, STDOUT_FILENO);
    if (log >= 0)
        dup2(log, STDERR_FILENO);
    execvp(argv[0], argv);
    say(DIAG_ERROR, NULL, "cannot run %s: %s", argv[0], strerror(errno));
    _exit(127);
}

static int exit_code(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool too_long(const Words *w)
{
    if (w->full)
        say(DIAG_ERROR, NULL, "the command %s is too long", w->items[0]);
    return w->full;
}

/* All that is in a file, as a string of an arena's. */
static const char *text_of(Arena *arena, int file)
{
    char text[4096];
    Buf out = { .arena = arena };
    lseek(file, 0, SEEK_SET);
    for (ssize_t n; (n = read(file, text, sizeof text)) > 0;)
        buf_f(&out, "%.*s", (int)n, text);
    return out.data ? out.data : "";
}

/* What a program said, as an error where it failed. */
static void say_log(int file, int status)
{
    Arena *arena = arena_new();
    say_lines(status ? DIAG_ERROR : DIAG_WARNING, text_of(arena, file));
    arena_free(arena);
}

int run_words(const Words *w, bool show)
{
    int status = 0, log = says_json() ? memfd_create("log", MFD_CLOEXEC) : -1;
    if (too_long(w))
        return 127;
    if (show)
        show_words(w);
    pid_t pid = start_words(w, log, false);
    if (pid < 0)
        say(DIAG_ERROR, NULL, "cannot start %s: %s", w->items[0], strerror(errno));
    int code = pid < 0 || process_wait(pid, &status) < 0 ? 127 : exit_code(status);
    if (log >= 0) {
        say_log(log, code);
        close(log);
    }
    return code;
}

const char *words_output(Compiler *c, const Words *w)
{
    int file = w->full ? -1 : memfd_create("output", MFD_CLOEXEC), status = 1;
    if (file < 0)
        return NULL;
    pid_t pid = start_words(w, file, true);
    bool ok = pid > 0 && process_wait(pid, &status) > 0 && exit_code(status) == 0;
    const char *text = ok ? text_of(c->arena, file) : NULL;
    close(file);
    return text;
}

/* ---- many commands ---- */

static void start_job(Job *job)
{
    job->started = true;
    int log = open(job->log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    job->pid = job->words.full ? -1 : (int)start_words(&job->words, log, true);
    if (log >= 0)
        close(log);
    job->done = job->pid < 0;
    job->status = job->done ? 127 : 0;
}

/* Waits until one of the jobs that run has ended. */
static void wait_for_one(Job *job, int n)
{
    int status;
    pid_t pid = process_wait(-1, &status);
    for (int i = 0; i < n; i++)
        if (job[i].started && !job[i].done && (pid < 0 || job[i].pid == pid)) {
            job[i].done = true;
            job[i].status = pid < 0 ? 127 : exit_code(status);
        }
}

static void print_job(const Job *job, bool show)
{
    if (too_long(&job->words))
        return;
    if (show)
        show_words(&job->words);
    if (job->pid < 0)
        say(DIAG_ERROR, NULL, "cannot start %s", job->words.items[0]);
    int log = open(job->log, O_RDONLY | O_CLOEXEC);
    if (log >= 0) {
        say_log(log, job->status);
        close(log);
    }
}

/* What a compiler makes: the last of its words, without folders. */
static const char *name_of(const Job *job)
{
    const char *last = job->words.n ? job->words.items[job->words.n - 1] : "";
    const char *slash = strrchr(last, '/');
    return slash ? slash + 1 : last;
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
        progress(next - running, n, name_of(&job[printed]));
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
    progress_end();
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
