/* devices.c: what is known of GPUs when none is there. In: architectures as --archs lists them. Out: the shared
 * memory that a block may have on them, whether blocks form clusters, and what a GPU of them holds. */
#include "devices.h"

#include <stdlib.h>
#include <string.h>

static const Device devices[] = {
    { 80, 80, 163 * 1024, 164 * 1024, 2048, 32, false, 108, "A100" },
    { 86, 86, 99 * 1024, 100 * 1024, 1536, 16, false, 84, "A40" },
    { 87, 87, 163 * 1024, 164 * 1024, 1536, 16, false, 16, "Orin" },
    { 88, 89, 99 * 1024, 100 * 1024, 1536, 24, false, 142, "L40S" },
    { 90, 99, TARGET_BLOCK_BYTES, TARGET_SM_BYTES, 2048, 32, true, TARGET_PROCESSORS, "H100 or H200" },
    { 100, 119, 227 * 1024, 228 * 1024, 2048, 32, true, 148, "B200" },
    { 120, 129, 99 * 1024, 100 * 1024, 1536, 24, true, 170, "RTX 5090" },
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

Device device_of(const char *arch)
{
    const Device *known = known_device(arch);
    return known ? *known
                 : (Device){ 0, 0, 99 * 1024, 100 * 1024, 1536, 16, false, 16, "GPU that is not known" };
}

const char *largest_arch(Compiler *c, const char *archs)
{
    const char *found = "";
    int64_t most = -1;
    while (*archs) {
        size_t n = strcspn(archs, " \t,"), digits = strspn(archs, "0123456789");
        int64_t bytes = digits ? device_of(archs).block_bytes : -1;
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
            Device d = device_of(archs);
            bool less = d.block_bytes < bytes || (clusters && !d.clusters);
            most = less && d.block_bytes > most ? d.block_bytes : most;
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
        if (n && (!known || (known->block_bytes >= bytes && (known->clusters || !clusters))))
            return true;
        archs += n + (archs[n] != 0);
    }
    return false;
}
