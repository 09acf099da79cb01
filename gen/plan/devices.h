/* devices.h: what is known of GPUs when none is there (devices.c), and what the planner takes for granted of
 * those that it plans for. */
#ifndef CELLC_DEVICES_H
#define CELLC_DEVICES_H

#include "base/compiler.h"

/* A plan is made for these where nothing else is said: an H100 or H200. Some orders of sums follow from
 * TARGET_PROCESSORS, on all devices alike, so that results do not depend on the device. BLOCK_BYTES: shared
 * memory for a block that asks for more than 48 KB; of the SM_BYTES of a multiprocessor every block takes
 * BLOCK_TAKES beside its own. */
enum {
    TARGET_PROCESSORS = 132,
    TARGET_BLOCK_BYTES = 227 * 1024,
    TARGET_SM_BYTES = 228 * 1024,
    TARGET_BLOCK_TAKES = 1024,
    TARGET_REGISTERS = 65536,
    TARGET_THREAD_REGISTERS = 255
};

/* Of the architectures from `first` to `last`, from NVIDIA's table of compute capabilities: bytes for a block
 * and of a multiprocessor, threads and blocks that one holds, whether blocks form clusters; and how many
 * multiprocessors a GPU of them has. */
typedef struct Device {
    int first, last;
    int64_t block_bytes, sm_bytes;
    int sm_threads, sm_blocks;
    bool clusters;
    int processors;
    const char *name;             /* of that GPU */
} Device;

Device device_of(const char *arch);                 /* of one that is not known, as little as any has */
/* The most shared memory of a block on an architecture of the list that has less than `bytes`, or no clusters
 * where these are needed; 0: there is none. */
int64_t block_memory_below(const char *archs, int64_t bytes, bool clusters);
/* May blocks have so much shared memory, and form clusters where these are needed, on an architecture of the
 * list? Yes where none was named (NULL), or one that is not known, as `native`. */
bool may_run(const char *archs, int64_t bytes, bool clusters);
/* The architecture of a list such as "80 86 90a" whose blocks have most shared memory, of several the last:
 * its number. */
const char *largest_arch(Compiler *c, const char *archs);

#endif
