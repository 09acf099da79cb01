/* process.h: running other programs without a shell, and what goes when this one ends. */
#ifndef CELLC_PROCESS_H
#define CELLC_PROCESS_H

#include <sys/types.h>

#include "compiler.h"

/* A command line under construction; words are kept, not copied. `full` is set when there were too many. */
typedef struct Words { const char *items[256]; int n; bool full; } Words;
void words_add(Words *w, const char *word);
/* Adds each word of `text`, which is split at blanks (no quoting); NULL adds nothing. */
void words_split(Compiler *c, Words *w, const char *text);

/* Runs the command, its output going where ours goes, and waits; where messages are JSON, what it prints to
 * standard error is one. Gives its exit code; 127 when it could not be started (a message was printed), 128 +
 * N when signal N ended it. `show` prints the command line first, to standard error. */
int run_words(const Words *w, bool show);

/* What the command prints to both its outputs, in c's arena; NULL when it could not be run or failed. */
const char *words_output(Compiler *c, const Words *w);

/* A command of a list that may run side by side with the others. */
typedef struct Job {
    Words words;
    const char *log;              /* the file that its output goes to, before it is printed; removed then */
    int pid, status;              /* while it runs, afterwards */
    bool started, done;
} Job;

/* Runs the commands, `at_once` at a time. What they say is printed to standard error in the order of the list,
 * whole, so that what one sees does not depend on timing. After a failure nothing new is started, and what
 * stands behind the first that failed stays unsaid. True when all succeeded. */
bool run_jobs(Job *job, int n, int at_once, bool show);
/* Processors that this process may use. */
int processors(void);

/* As fork, with nothing left in buffers; -1 with errno. The child, and what it starts, ends when a signal
 * ends this process; its messages are text. */
pid_t process_fork(void);
/* Waits for such a child, or for any (-1), and gives which; -1: there is none. *status is as waitpid's. */
pid_t process_wait(pid_t pid, int *status);
/* Ends such a child, and what it started, now; its temporary directories are its parent's to remove. */
void process_end(pid_t pid);

/* A new directory for temporary files, in c's arena; NULL after a message of the command. It is there until
 * scratch_remove, or until the process ends, by a signal too. */
const char *scratch_make(Compiler *c, const char *command);
/* Removes it, or a directory in it, with all that is in it. */
void scratch_remove(const char *dir);

/* A program that runs this one names itself, by its number, in CELLC_PARENT: where it ends, this process is
 * sent SIGTERM. The directory in CELLC_SCRATCH is one that it removes itself, unless a signal ends this
 * process. For process_run. */
/* Runs a command on the stack that it wants, and gives its exit code. Where SIGINT, SIGTERM, SIGHUP, SIGQUIT
 * or SIGPIPE comes meanwhile, what it started ends, its temporary directories go, and this process ends by
 * that signal. */
int process_run(int (*run)(int argc, char **argv), int argc, char **argv);

#endif
