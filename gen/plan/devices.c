/* devices.c: what is known of GPUs when none is there. In: architectures as --archs lists them. Out: the shared
 * memory that a block may have on them, and whether blocks form clusters. */
#include <stdlib.h>
#include <string.h>

#include "plan.h"

/* Bytes for a block that asks for more than 48 KB, from NVIDIA's table of compute capabilities; are there clusters
 * of blocks? */
typedef struct Device { int first, last; int64_t bytes; bool clusters; } Device;
static const Device devices[] = {
    { 80, 80, 163 * 1024, false }, { 86, 86, 99 * 1024, false }, { 87, 87, 163 * 1024, false },
    { 88, 89, 99 * 1024, false },
    { 90, 119, 227 * 1024, true }, { 120, 129, 99 * 1024, true },
};

/* NULL: an architecture that is not in the table, or the one that is there ("native"). */
static const Device *known_device(const char *arch)
{
    int number = atoi(arch);
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (number >= devices[i].first && number <= devices[i].last)
            return &devices[i];
    return NULL;
}

/* Of one that is not known, as little as any has. */
static Device device(const char *arch)
{
    const Device *known = known_device(arch);
    return known ? *known : (Device){ 0, 0, 99 * 1024, false };
}

const char *largest_arch(Compiler *c, const char *archs)
{
    const char *found = "";
    int64_t most = -1;
    while (*archs) {
        size_t n = strcspn(archs, " \t,"), digits = strspn(archs, "0123456789");
        int64_t bytes = digits ? device(archs).bytes : -1;
        bool more = bytes > most || (bytes == most && atoi(archs) > atoi(found));
        if (digits && more) {
            found = intern_n(c, archs, digits);
            most = bytes;
        }
        archs += n + (archs[n] != 0);
    }
    return found;
}

int64_t block_memory_below(const char *archs, int64_t bytes, bool clusters)
{
    int64_t most = 0;
    while (archs && *archs) {
        size_t n = strcspn(archs, " \t,");
        if (n) {
            Device d = device(archs);
            bool less = d.bytes < bytes || (clusters && !d.clusters);
            most = less && d.bytes > most ? d.bytes : most;
        }
        archs += n + (archs[n] != 0);
    }
    return most;
}

bool may_run(const char *archs, int64_t bytes, bool clusters)
{
    if (!archs)
        return true;
    while (*archs) {
        size_t n = strcspn(archs, " \t,");
        const Device *known = n ? known_device(archs) : NULL;
        if (n && (!known || (known->bytes >= bytes && (known->clusters || !clusters))))
            return true;
        archs += n + (archs[n] != 0);
    }
    return false;
}
