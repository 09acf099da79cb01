// Reports of what a kernel did wrong.
//
// In: a sentence. Out: on stderr the sentence, the kernel, block and thread, the stack where a sanitizer can
// print it; then the process ends with CELL_EMU_EXIT. Guaranteed: nothing of the kernel runs afterwards.
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "cell_emu_device.h"
#include "cell_emu_internal.h"

extern "C" {
void __sanitizer_print_stack_trace(void) __attribute__((weak));
}

static void print_place()
{
    const Launch *launch = emu_launch;
    if (!launch || !launch->running)
        return;
    fprintf(stderr, "  kernel `%s'", launch->name);
    if (launch->current) {
        const uint32_t *index = launch->current->block->index;
        fprintf(stderr, ", block (%u, %u, %u), thread %d", index[0], index[1], index[2],
                launch->current->index);
    }
    fprintf(stderr, ", seed %llu\n", (unsigned long long)launch->seed);
}

// AddressSanitizer calls this before its own report.
extern "C" void __asan_on_error(void)
{
    if (emu_launch && emu_launch->running) {
        fprintf(stderr, "cell emulator: AddressSanitizer reports\n");
        print_place();
    }
}

void emu_fail(const char *format, ...)
{
    fflush(stdout);
    fprintf(stderr, "cell emulator: error: ");
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    print_place();
    if (__sanitizer_print_stack_trace && emu_launch && emu_launch->current)
        __sanitizer_print_stack_trace();
    fflush(stderr);
    _exit(CELL_EMU_EXIT);
}

void cell_emu_fail_misaligned(const void *p, size_t bytes, const char *what)
{
    emu_fail("misaligned address: %s at %p needs %zu bytes of alignment", what, p, bytes);
}

void cell_emu_fail_assumption(void)
{
    emu_fail("cell_assume: what the kernel takes for granted does not hold");
}

static void print_warp(const Block *block, size_t number)
{
    const Warp &warp = block->warps[number];
    int polling = 0;
    for (int l = 0; l < kLanes; l++)
        polling += block->threads[number * kLanes + (size_t)l].poll != nullptr;
    fprintf(stderr, "    block (%u, %u, %u) warp %zu:", block->index[0], block->index[1], block->index[2],
            number);
    if (warp.ended == kLanes)
        fprintf(stderr, " has left the kernel");
    else if (warp.blocked)
        fprintf(stderr, " waits at %s %lld", emu_kind_name(warp.op.kind), (long long)warp.op.a);
    else if (warp.arrived)
        fprintf(stderr, " %d lanes wait at %s", warp.arrived, emu_kind_name(warp.op.kind));
    if (polling)
        fprintf(stderr, " %d lanes wait for a counter", polling);
    fputc('\n', stderr);
}

static const Block *first_stuck(const Launch *launch)
{
    for (const auto &cluster : launch->clusters) {
        for (const auto &block : cluster->blocks) {
            if (block->live > 0)
                return block.get();
        }
    }
    return nullptr;
}

// A block some of whose warps are at a barrier while others have gone elsewhere is divergent; the rest is a
// deadlock.
static bool is_divergent(const Block *block)
{
    bool blocked = false, other = false;
    for (const Warp &warp : block->warps) {
        blocked = blocked || warp.blocked;
        other = other || warp.ended > 0 || (warp.blocked && !(warp.op == block->warps[0].op));
    }
    return blocked && other;
}

void emu_fail_stuck()
{
    const Launch *launch = emu_launch;
    const Block *block = first_stuck(launch);
    fflush(stdout);
    fprintf(stderr, "cell emulator: threads wait for one another:\n");
    for (size_t w = 0; block && w < block->warps.size(); w++)
        print_warp(block, w);
    if (block && is_divergent(block))
        emu_fail("divergent barrier: not all warps of the block come to it");
    if (!launch->polling.empty() && !launch->cooperative &&
        launch->grid[0] * launch->grid[1] * launch->grid[2] > 1)
        emu_fail("deadlock: blocks wait for a counter, and the launch is not cooperative");
    emu_fail("deadlock");
}
