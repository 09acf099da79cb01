// What the emulator's files share: the objects of a launch in flight, and who does what with them.
//
// A Launch runs Clusters (of one block unless the launch asks for more), a Cluster has Blocks, a Block has
// Warps of 32 Threads. Everything lives in one Launch per thread of the program and is used again by the next
// one.
#ifndef CELL_EMU_INTERNAL_H
#define CELL_EMU_INTERNAL_H

#include <stdint.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cell_emu.h"

enum { kLanes = 32, kNamedBarriers = 16, kMaxThreads = 1024, kMaxCluster = 16 };

struct Block;
struct Cluster;

// A stack and where it was left.
struct Fiber {
    void *sp = nullptr;
    char *stack = nullptr; // lowest usable byte; nullptr for the program's own stack
    size_t bytes = 0;
    void *fake_stack = nullptr; // AddressSanitizer's
};

enum class Kind {
    none,
    shfl_xor,
    shfl,
    shfl_up,
    shfl_down,
    any,
    all,
    warp_barrier,
    arrive,
    barrier,
    split_arrive,
    split_wait,
    cluster_arrive,
    cluster_wait,
    inbox_wait,
    matrices,
    mma
};

// What a warp does together. Lanes that name different ones at the same time have diverged.
struct WarpOp {
    Kind kind = Kind::none;
    int64_t a = 0, b = 0;
    bool operator==(const WarpOp &o) const { return kind == o.kind && a == o.a && b == o.b; }
};

// One cp.async on its way.
struct Copy {
    unsigned char *to;
    const unsigned char *from; // nullptr: zeros
    int bytes;
    bool late; // reads its source when it lands, else has read it already
    unsigned char data[16];
};

struct Thread {
    Fiber fiber;
    Block *block = nullptr;
    int index = 0; // in the block
    int cluster_warp = 0;
    bool done = true;
    const volatile unsigned *poll = nullptr; // the counter or the word that it spins on
    unsigned poll_value = 0;
    bool poll_differs = false;               // a word that is to differ from that, not a counter that is to reach it
    bool polled() const { return poll_differs ? *poll != poll_value : (int)(*poll - poll_value) >= 0; }
    std::vector<Copy> copies;    // oldest first
    std::vector<size_t> commits; // ends of the committed groups in `copies`
    int lane() const { return index % kLanes; }
    int warp() const { return index / kLanes; }
};

struct Warp {
    WarpOp op;
    int arrived = 0;      // lanes in op
    int ended = 0;        // lanes that have left the kernel
    int first = 0;        // the thread that came first
    bool blocked = false; // all lanes have arrived and wait for other warps
    uint64_t slot[kLanes];
    uint64_t result[kLanes];
    uint32_t payload[kLanes][10];
};

// Collects warps until `expected` have come; `seen` is what they had done by then.
struct Meeting {
    int64_t expected = 0; // threads; 0: nobody has come
    int64_t arrived = 0;
    std::vector<uint32_t> seen;
    std::vector<int> waiting; // warps of the block (of the cluster, for the cluster's)
};

// A barrier in two halves: those who come in round n may go on when all have.
struct SplitMeeting {
    Meeting meeting;
    std::vector<uint32_t> seen_last; // `seen` of the last complete round
    std::vector<uint32_t> rounds;    // per warp: how often it has arrived
    std::vector<uint32_t> waits;     // per warp: how often it has waited
    uint32_t complete = 0;           // rounds that are over
    bool ready = false;              // initialised
    uint32_t init_clock = 0;
    int init_thread = 0;
};

// Counts the bytes that blocks of the cluster send; a round is over when as many have come as it expects.
struct Inbox {
    std::vector<uint32_t> seen, seen_last; // what the senders had done: in this round, and in the last complete one
    std::vector<uint32_t> waits;           // per warp: how often it has waited
    std::vector<int> waiting;              // warps of the block
    uint32_t complete = 0;                 // rounds that are over
    int expected = -1, come = 0;           // bytes; -1: not yet said
    bool ready = false;                    // initialised
};

// An array in shared memory, for messages and for the place of the next.
struct Carving {
    size_t offset, bytes, element;
    size_t used; // bytes that the GPU's layout uses up to its end
};

// Where the cells of 16 bytes of shared memory are, and log2 of the bytes of one.
struct Place {
    uint32_t cell;
    uint8_t shift;
};

// The last accesses to an element of shared memory, or to two bytes of it. A read is clock << 6 | lane (32:
// several lanes). Where one warp alone has read since the last write, which is most often so, its read is
// here; else those of warps `first` to `last` are in Block::readers.
struct ShadowCell {
    uint32_t write_clock = 0; // 0: never written
    uint32_t read = 0;        // 0: not read since
    uint16_t writer = 0;      // thread of the cluster
    uint16_t pending = 0;     // cp.asyncs that have not landed
    uint16_t first = 0, last = 0; // warps of the cluster
};

struct Block {
    Cluster *cluster = nullptr;
    int rank = 0; // in the cluster
    uint32_t index[3] = {0, 0, 0};
    int live = 0;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    Meeting named[kNamedBarriers];
    std::map<size_t, SplitMeeting> splits; // by offset in shared memory
    std::map<size_t, Inbox> inboxes;       // likewise
    unsigned char *smem = nullptr;
    size_t capacity = 0; // bytes behind smem, gaps included
    std::map<size_t, Carving> carvings;
    std::vector<ShadowCell> shadow;
    std::vector<Place> places;           // per 16 bytes
    std::unique_ptr<uint32_t[]> readers; // per cell and warp of the cluster, where several warps have read
    size_t readers_room = 0;             // numbers that fit there
};

// Clocks order accesses: a warp's clock counts its synchronisations; ordered[w][v] says that accesses of warp
// v before that clock come before whatever w does now.
struct Cluster {
    std::vector<std::unique_ptr<Block>> blocks;
    int warps = 0; // of all blocks
    std::vector<uint32_t> ordered;
    SplitMeeting barrier;
    uint32_t *row(int warp) { return &ordered[(size_t)warp * warps]; }
    uint32_t clock(int warp) { return ordered[(size_t)warp * warps + warp]; }
};

struct Launch {
    cell_emu_kernel kernel = nullptr;
    const char *name = "?";
    std::set<std::string> names; // of the kernels since cell_emu_launched was called
    const cell_kernel_args *args = nullptr;
    uint32_t grid[3] = {1, 1, 1};
    int threads = 0;
    size_t smem_bytes = 0;
    int cluster_size = 1;
    bool cooperative = false;
    bool running = false;
    uint64_t seed = 0, random = 1;
    bool seeded = false;
    Fiber main;
    Thread *current = nullptr;
    std::vector<Thread *> ready;
    Thread *next = nullptr;  // runs next, drawn ahead
    Thread *later = nullptr; // runs behind that one
    std::vector<Thread *> polling;
    int live = 0; // threads that have not ended
    std::vector<std::unique_ptr<Cluster>> clusters;
};

// Read in every call of a kernel: not by a function, which AddressSanitizer would look at besides.
extern __thread Launch *emu_launch __attribute__((tls_model("initial-exec")));

inline Thread *self() { return emu_launch->current; }

// cell_emu_fiber.cc
void fiber_create(Fiber *fiber, size_t bytes, int color, void (*entry)());
void fiber_destroy(Fiber *fiber);
void fiber_switch(Fiber *from, Fiber *to);
void fiber_entered(); // first thing in a new fiber
// Has the processor fetch what a switch to it reads.
inline void fiber_expect(const Fiber *fiber)
{
    const char *at = (const char *)fiber->sp;
    __builtin_prefetch(at);
    __builtin_prefetch(at + 64);
    __builtin_prefetch(at + 128);
}

// cell_emu_launch.cc
uint64_t emu_random(Launch *launch);
void emu_suspend(); // until somebody calls emu_wake for this thread
inline void emu_wake(Thread *thread) { emu_launch->ready.push_back(thread); }

// cell_emu_sync.cc
const char *emu_kind_name(Kind kind);
inline int emu_cluster_warp(const Thread *t) { return t->cluster_warp; }
void emu_thread_ended(Thread *thread);
void emu_sync_reset(Cluster *cluster);

// cell_emu_shared.cc
void emu_shared_reset(Block *block, size_t smem_bytes);
void emu_shared_free(Block *block);

// cell_emu_report.cc: print what went wrong, where, and end the process.
[[noreturn]] void emu_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void emu_fail_stuck();

#endif
