/* process.h: running other programs without a shell. */
#ifndef CELLC_PROCESS_H
#define CELLC_PROCESS_H

#include "cellc.h"

/* A command line under construction; words are kept, not copied. `full` is set when there were too many. */
typedef struct Words { const char *items[256]; int n; bool full; } Words;
void words_add(Words *w, const char *word);
/* Adds each word of `text`, which is split at blanks (no quoting); NULL adds nothing. */
void words_split(Compiler *c, Words *w, const char *text);

/* Runs the command, its output going where ours goes, and waits. Gives its exit code; 127 when it could
 * not be started (a message was printed), 128 + N when signal N ended it. `show` prints the command line
 * first, to standard error. */
int run_words(const Words *w, bool show);

#endif
