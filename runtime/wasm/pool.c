/* In place of cpu/pool.c: a module of WebAssembly has one thread, the caller's, which takes all items. */
#include "../cpu/pool.h"

#include <stdlib.h>

enum { ALIGNMENT = 64 };

/* Scratch memory, which stays for the next job. */
static void *memory;
static size_t room;

static void *scratch_of(size_t bytes)
{
    if (room < bytes) {
        free(memory);
        bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        memory = aligned_alloc(ALIGNMENT, bytes);
        room = memory ? bytes : 0;
    }
    return memory;
}

cell_status cell_pool_run(cell_pool_fn fn, const void *data, int64_t items, int64_t grain, size_t scratch,
                          int threads, cell_error *err)
{
    (void)grain, (void)threads;
    if (items <= 0)
        return CELL_OK;
    if (scratch && !scratch_of(scratch))
        return cell_fail(err, CELL_OUT_OF_MEMORY, "out of memory: %zu bytes for the thread", scratch);
    fn(data, 0, items, scratch ? memory : NULL);
    return CELL_OK;
}

int cell_pool_default(void)
{
    return 1;
}
