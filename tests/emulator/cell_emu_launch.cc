// Launches: which blocks run when, and which thread runs next.
//
// In: cell_emu_launch. Out: every thread of every block has run the kernel to its end. Guaranteed: one seed
// gives one order; stacks are used again, so that a small launch costs microseconds.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "cell_emu_internal.h"

__thread Launch *emu_launch = nullptr;

static uint64_t environment_number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, nullptr, 0) : otherwise;
}

uint64_t emu_random(Launch *launch)
{
    uint64_t x = launch->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return launch->random = x;
}

static Launch *own_launch()
{
    if (!emu_launch)
        emu_launch = new Launch();
    if (!emu_launch->seeded) {
        emu_launch->seed = environment_number("CELL_EMU_SEED", 1);
        emu_launch->seeded = true;
    }
    return emu_launch;
}

void cell_emu_set_seed(uint64_t seed)
{
    Launch *launch = own_launch();
    launch->seed = seed;
}

static Thread *draw_ready(Launch *launch)
{
    const size_t n = launch->ready.size();
    if (n == 0)
        return nullptr;
    const size_t i = (size_t)((emu_random(launch) >> 32) * n >> 32); // a division would take longer than the rest
    Thread *thread = launch->ready[i];
    launch->ready[i] = launch->ready[n - 1];
    launch->ready.pop_back();
    return thread;
}

// One of those that can run. Where there are many, whose stacks are more than the processor keeps near, the
// two behind it are drawn too, so that the stack of one and the place of the other's are on the way from memory
// meanwhile. Of few, that would leave out orders in which a thread runs as soon as it is woken.
static Thread *take_ready(Launch *launch)
{
    enum { kMany = 2 * kLanes };
    Thread *thread = launch->next ? launch->next : draw_ready(launch);
    launch->next = launch->later;
    launch->later = nullptr;
    if (launch->ready.size() > kMany) {
        if (!launch->next)
            launch->next = draw_ready(launch);
        launch->later = draw_ready(launch);
        __builtin_prefetch(launch->later);
    }
    if (launch->next)
        fiber_expect(&launch->next->fiber);
    return thread;
}

void emu_suspend()
{
    Launch *launch = emu_launch;
    Thread *self = launch->current;
    Thread *next = take_ready(launch);
    launch->current = next;
    fiber_switch(&self->fiber, next ? &next->fiber : &launch->main);
}

static void thread_main()
{
    fiber_entered();
    for (;;) {
        Launch *launch = emu_launch;
        launch->kernel(*launch->args);
        Thread *self = launch->current;
        self->done = true;
        self->copies.clear();
        self->commits.clear();
        launch->live--;
        emu_thread_ended(self);
        emu_suspend();
    }
}

// Threads that spin on a counter or a word are looked at when nothing else can run.
static bool wake_pollers(Launch *launch)
{
    std::vector<Thread *> still;
    for (Thread *thread : launch->polling) {
        if (thread->polled()) {
            launch->ready.push_back(thread);
        } else {
            still.push_back(thread);
        }
    }
    launch->polling.swap(still);
    return !launch->ready.empty();
}

static void run_ready(Launch *launch)
{
    while (launch->live > 0) {
        if (!launch->next && launch->ready.empty() && !wake_pollers(launch))
            emu_fail_stuck();
        launch->current = take_ready(launch);
        fiber_switch(&launch->main, &launch->current->fiber);
        launch->current = nullptr;
    }
}

static void size_block(Block *block, int threads, size_t stack_bytes)
{
    for (Thread &thread : block->threads) {
        if ((int)block->threads.size() == threads)
            break;
        if (thread.fiber.stack)
            fiber_destroy(&thread.fiber);
    }
    if ((int)block->threads.size() != threads) {
        block->threads.clear();
        block->threads.resize((size_t)threads);
    }
    block->warps.assign((size_t)threads / kLanes, Warp());
    for (int i = 0; i < threads; i++) {
        Thread &thread = block->threads[(size_t)i];
        thread.block = block;
        thread.index = i;
        thread.cluster_warp = block->rank * (threads / kLanes) + i / kLanes;
        if (!thread.fiber.stack)
            fiber_create(&thread.fiber, stack_bytes, i, thread_main);
    }
}

// Makes room for `count` clusters, keeping the stacks of those that are there.
static void size_clusters(Launch *launch, size_t count)
{
    static const size_t default_stack = 262144;
    const size_t stack_bytes = environment_number("CELL_EMU_STACK", default_stack);
    while (launch->clusters.size() < count)
        launch->clusters.emplace_back(new Cluster());
    for (size_t c = 0; c < count; c++) {
        Cluster *cluster = launch->clusters[c].get();
        while ((int)cluster->blocks.size() < launch->cluster_size)
            cluster->blocks.emplace_back(new Block());
        for (size_t b = 0; b < cluster->blocks.size(); b++) {
            Block *block = cluster->blocks[b].get();
            block->cluster = cluster;
            block->rank = (int)b;
            if ((int)b < launch->cluster_size)
                size_block(block, launch->threads, stack_bytes);
        }
        cluster->warps = launch->cluster_size * (launch->threads / kLanes);
    }
}

static void start_cluster(Launch *launch, Cluster *cluster, uint64_t number)
{
    emu_sync_reset(cluster);
    for (int b = 0; b < launch->cluster_size; b++) {
        Block *block = cluster->blocks[(size_t)b].get();
        const uint64_t linear = number * (uint64_t)launch->cluster_size + (uint64_t)b;
        block->index[0] = (uint32_t)(linear % launch->grid[0]);
        block->index[1] = (uint32_t)(linear / launch->grid[0] % launch->grid[1]);
        block->index[2] = (uint32_t)(linear / launch->grid[0] / launch->grid[1]);
        block->live = launch->threads;
        emu_shared_reset(block, launch->smem_bytes);
        for (Thread &thread : block->threads) {
            thread.done = false;
            launch->ready.push_back(&thread);
        }
        launch->live += launch->threads;
    }
}

// The i-th of `count` in an order that visits each once: an affine walk with a step prime to the count.
struct Shuffle {
    uint64_t count, step, start;
    Shuffle(Launch *launch, uint64_t n) : count(n), step(1), start(n ? emu_random(launch) % n : 0)
    {
        for (int tries = 0; n > 2 && tries < 64; tries++) {
            step = 1 + emu_random(launch) % (n - 1);
            if (std::__gcd(step, n) == 1)
                return;
        }
        step = 1;
    }
    uint64_t at(uint64_t i) const { return (uint64_t)(((unsigned __int128)i * step + start) % count); }
};

static int refuse(char *message, size_t bytes, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int refuse(char *message, size_t bytes, const char *format, ...)
{
    if (message && bytes) {
        va_list list;
        va_start(list, format);
        vsnprintf(message, bytes, format, list);
        va_end(list);
    }
    return -1;
}

static int check_shape(const Launch *launch, uint32_t threads, uint32_t cluster, char *message, size_t bytes)
{
    const unsigned long long limit = environment_number("CELL_EMU_SMEM", 232448);
    const uint32_t *grid = launch->grid;
    const char *name = launch->name;
    if (threads == 0 || threads > kMaxThreads)
        return refuse(message, bytes, "kernel `%s': %u threads per block, allowed are 1 to %d", name, threads,
                      kMaxThreads);
    if (threads % kLanes)
        return refuse(message, bytes, "kernel `%s': %u threads per block is not a multiple of 32", name,
                      threads);
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0)
        return refuse(message, bytes, "kernel `%s': grid %u x %u x %u has no blocks", name, grid[0], grid[1],
                      grid[2]);
    if (grid[0] > 2147483647u || grid[1] > 65535 || grid[2] > 65535)
        return refuse(message, bytes, "kernel `%s': grid %u x %u x %u is too large", name, grid[0], grid[1],
                      grid[2]);
    if (launch->smem_bytes > limit)
        return refuse(message, bytes, "kernel `%s': %zu bytes of shared memory, a block may have %llu", name,
                      launch->smem_bytes, limit);
    if (cluster > kMaxCluster)
        return refuse(message, bytes, "kernel `%s': clusters of %u blocks, allowed are up to %d", name,
                      cluster, kMaxCluster);
    if (cluster > 1 && grid[0] % cluster)
        return refuse(message, bytes, "kernel `%s': grid of %u is not a multiple of the cluster's %u", name,
                      grid[0], cluster);
    return 0;
}

static void run_clusters(Launch *launch, uint64_t count)
{
    const uint64_t together = launch->cooperative ? count : 1;
    size_clusters(launch, together);
    const Shuffle order(launch, count);
    for (uint64_t i = 0; i < count; i += together) {
        for (uint64_t c = 0; c < together; c++)
            start_cluster(launch, launch->clusters[c].get(), order.at(i + c));
        run_ready(launch);
    }
}

uint64_t cell_emu_launched(void)
{
    uint64_t sum = 0;
    for (const std::string &name : own_launch()->names)
        sum += std::hash<std::string>()(name);
    own_launch()->names.clear();
    return sum;
}

int cell_emu_launch(cell_emu_kernel kernel, const char *name, const cell_kernel_args *args,
                    const uint32_t grid[3], uint32_t threads, size_t smem_bytes, uint32_t cluster,
                    int cooperative, char *message, size_t message_bytes)
{
    static const uint64_t most_resident_threads = 1u << 17;
    Launch *launch = own_launch();
    launch->kernel = kernel;
    launch->name = name ? name : "?";
    launch->args = args;
    memcpy(launch->grid, grid, sizeof launch->grid);
    launch->smem_bytes = smem_bytes;
    if (check_shape(launch, threads, cluster, message, message_bytes))
        return -1;
    launch->threads = (int)threads;
    launch->cluster_size = cluster > 1 ? (int)cluster : 1;
    launch->cooperative = cooperative != 0;
    launch->random = launch->seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
    if (launch->random == 0)
        launch->random = 1;
    const uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    if (launch->cooperative && blocks > most_resident_threads / threads)
        return refuse(message, message_bytes, "kernel `%s': a cooperative launch of %llu blocks does not fit",
                      launch->name, (unsigned long long)blocks);
    launch->names.insert(launch->name);
    launch->running = true;
    run_clusters(launch, blocks / (uint64_t)launch->cluster_size);
    launch->running = false;
    return 0;
}

void cell_emu_release(void)
{
    Launch *launch = emu_launch;
    if (!launch)
        return;
    for (auto &cluster : launch->clusters) {
        for (auto &block : cluster->blocks) {
            for (Thread &thread : block->threads) {
                if (thread.fiber.stack)
                    fiber_destroy(&thread.fiber);
            }
            emu_shared_free(block.get());
        }
    }
    delete launch;
    emu_launch = nullptr;
}
