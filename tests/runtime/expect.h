/* Counting checks for the runtime's tests: EXPECT tells where and what failed, report prints the last line
 * and gives the exit status. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>

static long passed, failed;

/* The first failures are told, the rest counted: a wrong stride fails thousands of cases. */
#define EXPECT(condition, ...)                                                                               \
    do {                                                                                                     \
        if (condition) {                                                                                     \
            passed++;                                                                                        \
        } else if (failed++ < 20) {                                                                          \
            printf("%s:%d: %s: ", __FILE__, __LINE__, #condition);                                           \
            printf(__VA_ARGS__);                                                                             \
            printf("\n");                                                                                    \
        }                                                                                                    \
    } while (0)

static inline int report(void) {
    printf("%ld passed, %ld failed\n", passed, failed);
    return failed != 0;
}

#endif
