/* process.c: fork, exec and wait. In: a list of words. Out: the exit code. No shell reads the words, so
 * names with blanks or quotes in them are safe. */
#include <errno.h>
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
        size_t n = strcspn(text, " \t");
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

int run_words(const Words *w, bool show)
{
    char *argv[sizeof w->items / sizeof *w->items];
    int status;
    if (w->full) {
        fprintf(stderr, "cellc: the command %s is too long\n", w->items[0]);
        return 127;
    }
    for (int i = 0; i < w->n; i++)
        argv[i] = (char *)w->items[i];
    argv[w->n] = NULL;
    if (show)
        show_words(w);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        execvp(argv[0], argv);
        fprintf(stderr, "cellc: cannot run %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    if (pid < 0) {
        fprintf(stderr, "cellc: cannot start %s: %s\n", argv[0], strerror(errno));
        return 127;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return 127;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
