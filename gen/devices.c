/* devices.c: what is known of GPUs when none is there. In: architectures as --archs lists them. Out: the shared
 * memory that a block may have on them. */
#include <stdlib.h>
#include <string.h>

#include "plan.h"

/* Bytes for a block that asks for more than 48 KB, from NVIDIA's table of compute capabilities. */
static const struct { int first, last; int64_t bytes; } memory[] = {
    { 70, 72, 96 * 1024 },  { 75, 75, 64 * 1024 },  { 80, 80, 163 * 1024 },   { 86, 86, 99 * 1024 },
    { 87, 87, 163 * 1024 }, { 88, 89, 99 * 1024 },  { 90, 119, 227 * 1024 },  { 120, 129, 99 * 1024 },
};

/* Of an architecture that is not in the table, or of the one that is there ("native"), as little as any has. */
static int64_t block_memory(const char *arch)
{
    int number = atoi(arch);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (number >= memory[i].first && number <= memory[i].last)
            return memory[i].bytes;
    return 64 * 1024;
}

int64_t block_memory_below(const char *archs, int64_t bytes)
{
    int64_t most = 0;
    while (archs && *archs) {
        size_t n = strcspn(archs, " \t,");
        if (n) {
            int64_t here = block_memory(archs);
            most = here < bytes && here > most ? here : most;
        }
        archs += n + (archs[n] != 0);
    }
    return most;
}
