/* selftest.h: what the two parts of `cellc selftest` share. */
#ifndef CELLC_SELFTEST_H
#define CELLC_SELFTEST_H

#include "base/process.h"

/* One thing to test, in a process of its own. */
typedef struct Test {
    const char *label;            /* "e79 bias=none N=5 bf16" */
    const char *cell;             /* NULL: `cellc check`, else its library is built and goes up the ladder */
    Words settings;               /* the spec and options, as `cellc build` and `cellc check` take them */
    const char *dir;              /* its own, temporary */
    int pid;
    bool done;
} Test;

typedef struct Tests {
    Compiler *c;
    Test *test;
    int n, cap;
    const char *program;          /* this one */
    const char *dir;              /* temporary, of all */
    bool cuda, full, verbose;
    const char *emulator;         /* the directory of its sources, where kernels are run on the CPU; or NULL */
    Words emulator_objects;       /* compiled once for all */
    int jobs;
    int passed, failed, skipped;
} Tests;

/* Adds one, with its words still to be filled. */
Test *test_add(Tests *t, const char *label, const char *cell);
/* Compiles the emulator into t->dir; false after a message. */
bool tests_emulator(Tests *t);
/* Runs all, `jobs` at a time, and prints what came out in the order of the list. */
void tests_run(Tests *t);

#endif
