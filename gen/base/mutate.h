/* mutate.h: bugs planted on purpose, for tests/mutation: a compiler built with -DCELLC_MUTATE has the one
 * that the environment variable CELLC_MUTATE names. In every other build there is nothing of it. */
#ifndef CELLC_MUTATE_H
#define CELLC_MUTATE_H

#ifdef CELLC_MUTATE
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool mutate(const char *name)
{
    const char *wanted = getenv("CELLC_MUTATE");
    return wanted && strcmp(wanted, name) == 0;
}
#else
#define mutate(name) false
#endif

#endif
