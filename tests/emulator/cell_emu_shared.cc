// Shared memory: its layout with gaps, the check for missing barriers, asynchronous copies.
//
// In: carvings and accesses from the device header. Out: arrays that lie in AddressSanitizer's poison, filled
// with 0xFF, and a report for each access that no barrier orders against an earlier one of another thread.
// Guaranteed: exact for what CUDA promises (see cell_emu_sync.cc), down to an array's elements of 4 or 8
// bytes, or to two bytes of others; two threads that write equal values without a barrier are let pass.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "cell_emu_device.h"
#include "cell_emu_internal.h"

extern "C" {
void __asan_poison_memory_region(const volatile void *at, size_t bytes) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void *at, size_t bytes) __attribute__((weak));
}

enum { kGap = 64, kPlace = 16, kMostCarvings = 256, kSeveralLanes = 32 };

static void poison(unsigned char *at, size_t bytes)
{
    if (__asan_poison_memory_region)
        __asan_poison_memory_region(at, bytes);
}

static void unpoison(unsigned char *at, size_t bytes)
{
    if (__asan_unpoison_memory_region)
        __asan_unpoison_memory_region(at, bytes);
}

void emu_shared_free(Block *block)
{
    if (!block->smem)
        return;
    unpoison(block->smem, block->capacity);
    free(block->smem);
    block->smem = nullptr;
    block->capacity = 0;
}

void emu_shared_reset(Block *block, size_t smem_bytes)
{
    const size_t capacity = (smem_bytes + 16 * kMostCarvings + kGap * kMostCarvings + 1023) / 1024 * 1024;
    if (block->capacity < capacity) {
        emu_shared_free(block);
        block->smem = (unsigned char *)aligned_alloc(1024, capacity);
        if (!block->smem)
            emu_fail("no memory for %zu bytes of shared memory", capacity);
        block->capacity = capacity;
        block->carvings.clear();
        poison(block->smem, capacity);
    }
    for (const auto &c : block->carvings)
        poison(block->smem + c.first, (c.second.bytes + 15) / 16 * 16);
    block->carvings.clear();
    block->shadow.clear();
    block->places.clear();
}

// Cells for an array of `bytes` and the gap before it.
static void grow_shadow(Block *block, size_t offset, size_t bytes, size_t element)
{
    const uint8_t shift = element == 8 ? 3 : element == 4 ? 2 : 1;
    const size_t end = (offset + bytes) / kPlace;
    size_t cells = block->shadow.size();
    block->places.reserve(end);
    while (block->places.size() < end) {
        const uint8_t here = block->places.size() < offset / kPlace ? 1 : shift;
        block->places.push_back(Place{(uint32_t)cells, here});
        cells += kPlace >> here;
    }
    const size_t warps = (size_t)block->cluster->warps, needed = cells * warps;
    if (block->readers_room < needed) {
        const size_t room = needed + needed / 2;
        std::unique_ptr<uint32_t[]> wider(new uint32_t[room]);
        std::copy_n(block->readers.get(), block->shadow.size() * warps, wider.get());
        block->readers.swap(wider);
        block->readers_room = room;
    }
    block->shadow.resize(cells);
}

// The first thread lays the array out; the others must come to the same.
unsigned char *cell_emu_carve(unsigned char *cursor, int64_t count, size_t element, size_t *advance)
{
    Block *block = self()->block;
    const size_t offset = (size_t)(cursor - block->smem);
    if (offset > block->capacity)
        emu_fail("cell_carve: the cursor does not point into this block's shared memory");
    if (count < 0)
        emu_fail("cell_carve: %lld elements", (long long)count);
    const size_t bytes = (size_t)count * element;
    const size_t padded = (bytes + 15) / 16 * 16;
    *advance = padded + kGap;
    auto found = block->carvings.find(offset);
    if (found != block->carvings.end()) {
        const Carving &old = found->second;
        if (old.bytes != bytes || old.element != element)
            emu_fail("cell_carve: %zu bytes in one thread and %zu in another at the same place", old.bytes,
                     bytes);
        return cursor;
    }
    size_t used = padded;
    if (offset > 0) {
        auto before = block->carvings.lower_bound(offset);
        if (before == block->carvings.begin())
            emu_fail("cell_carve: the cursor was moved by hand");
        const Carving &last = (--before)->second;
        if (last.offset + (last.bytes + 15) / 16 * 16 + kGap != offset)
            emu_fail("cell_carve: the cursor was moved by hand");
        used += last.used;
    }
    if (used > emu_launch->smem_bytes)
        emu_fail("too little shared memory: the launch gives %zu bytes, array %zu ends at byte %zu",
                 emu_launch->smem_bytes, block->carvings.size(), used);
    if (block->carvings.size() >= kMostCarvings)
        emu_fail("more than %d arrays in shared memory", (int)kMostCarvings);
    block->carvings[offset] = Carving{offset, bytes, element, used};
    unpoison(cursor, padded + kGap);
    memset(cursor, 0xff, padded + kGap);
    poison(cursor, padded + kGap);
    unpoison(cursor, bytes);
    grow_shadow(block, offset, padded, element);
    return cursor;
}

unsigned char *cell_emu_shared_base(void) { return self()->block->smem; }

size_t cell_emu_shared_offset(const void *p)
{
    return (size_t)((const unsigned char *)p - self()->block->smem);
}

// "element 3 of array 1" for a report.
static void describe(const Block *block, size_t offset, char *text, size_t bytes)
{
    auto after = block->carvings.upper_bound(offset);
    if (after == block->carvings.begin()) {
        snprintf(text, bytes, "shared memory");
        return;
    }
    const Carving &carving = (--after)->second;
    size_t number = 0;
    for (auto it = block->carvings.begin(); it != after; ++it)
        number++;
    snprintf(text, bytes, "element %zu of shared array %zu (%zu-byte elements)",
             (offset - carving.offset) / carving.element, number, carving.element);
}

struct Access {
    Block *block;        // whose memory
    const Thread *thread;
    const uint32_t *row; // what comes before the access: Cluster::ordered
    int warp;            // of the cluster
    int me;              // thread of the cluster
    size_t offset;       // in the memory
    size_t first;        // of its cells
    uint8_t shift;       // log2 of a cell's bytes
    uint32_t clock() const { return row[warp]; }
};

[[noreturn]] static void fail_race(const Access &a, size_t index, int other, const char *other_did,
                                   const char *did)
{
    char where[128];
    const Block *block = a.block;
    describe(block, a.offset + ((index - a.first) << a.shift), where, sizeof where);
    const int per_block = (int)block->threads.size();
    const Thread *t = self();
    if (block->cluster->blocks[(size_t)(other / per_block)].get() != t->block)
        emu_fail("race: thread %d of block %d of the cluster %s, thread %d of block %d %s %s without a "
                 "barrier between",
                 other % per_block, other / per_block, other_did, t->index, t->block->rank, did, where);
    emu_fail("race: thread %d %s, thread %d %s %s without a barrier between", other % per_block, other_did,
             t->index, did, where);
}

static uint32_t *readers_of(const Access &a, size_t index)
{
    const size_t warps = (size_t)a.block->cluster->warps;
    return &a.block->readers[index * warps];
}

static inline void check_writer(const Access &a, const ShadowCell &cell, size_t index, const char *did)
{
    if (cell.write_clock == 0 || cell.writer == a.me)
        return;
    if (a.row[cell.writer / kLanes] <= cell.write_clock)
        fail_race(a, index, cell.writer, "wrote", did);
}

static inline void check_reader(const Access &a, int warp, uint32_t read, size_t index)
{
    const uint32_t clock = read >> 6, lane = read & 63;
    if (clock == 0 || a.row[warp] > clock || (warp == a.warp && (int)lane == a.thread->lane()))
        return;
    const int other = warp * kLanes + (lane == kSeveralLanes ? (a.thread->lane() + 1) % kLanes : (int)lane);
    fail_race(a, index, other, "read", "wrote");
}

static inline void note_read(const Access &a, uint32_t *read)
{
    const uint32_t clock = a.clock(), lane = (uint32_t)a.thread->lane();
    const bool same = *read >> 6 == clock && (*read & 63) != lane;
    *read = clock << 6 | (same ? (uint32_t)kSeveralLanes : lane);
}

// The read of a warp that is not the only one since the last write. Rows are not cleared before: what lies
// outside of `first` to `last` does not count.
static void note_among_several(const Access &a, ShadowCell &cell, size_t index)
{
    uint32_t *reads = readers_of(a, index);
    const int w = a.warp;
    if (cell.first == cell.last)
        reads[cell.first] = cell.read;
    if (w < cell.first) {
        memset(reads + w, 0, (size_t)(cell.first - w) * sizeof *reads);
        cell.first = (uint16_t)w;
    } else if (w > cell.last) {
        memset(reads + cell.last + 1, 0, (size_t)(w - cell.last) * sizeof *reads);
        cell.last = (uint16_t)w;
    }
    note_read(a, &reads[w]);
}

static inline void read_cell(const Access &a, ShadowCell &cell, size_t index)
{
    check_writer(a, cell, index, "read");
    if (cell.read && (cell.first != a.warp || cell.last != a.warp)) {
        note_among_several(a, cell, index);
        return;
    }
    note_read(a, &cell.read);
    cell.first = cell.last = (uint16_t)a.warp;
}

static inline void write_cell(const Access &a, ShadowCell &cell, size_t index, bool same_value)
{
    if (!same_value)
        check_writer(a, cell, index, "wrote");
    if (cell.read && cell.first == cell.last) {
        check_reader(a, cell.first, cell.read, index);
    } else if (cell.read) {
        const uint32_t *reads = readers_of(a, index);
        for (int w = cell.first; w <= cell.last; w++)
            check_reader(a, w, reads[w], index);
    }
    cell.read = 0;
    cell.write_clock = a.clock();
    cell.writer = (uint16_t)a.me;
}

[[noreturn]] static void fail_pending(const Access &a, bool write)
{
    emu_fail("cp.async: thread %d %s shared memory that a copy is still on its way to", a.thread->index,
             write ? "writes" : "reads");
}

static inline void touch_cell(const Access &a, ShadowCell &cell, size_t index, bool write, bool same_value)
{
    if (cell.pending)
        fail_pending(a, write);
    if (write)
        write_cell(a, cell, index, same_value);
    else
        read_cell(a, cell, index);
}

// Whether an access that finds the cell so looks at Block::readers too.
static inline bool wants_readers(const Access &a, const ShadowCell &cell, bool write)
{
    return cell.read && (cell.first != cell.last || (!write && cell.first != a.warp));
}

static inline bool same_cell(const ShadowCell &a, const ShadowCell &b)
{
    static_assert(sizeof a == 2 * sizeof(uint64_t), "a cell has no gaps");
    uint64_t x[2], y[2];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    return ((x[0] ^ y[0]) | (x[1] ^ y[1])) == 0;
}

// The cells of `bytes` at an offset.
static inline void find_cells(const Block *block, size_t offset, size_t bytes, size_t *first, size_t *last)
{
    const size_t end = offset + bytes - 1;
    if (offset >= block->capacity || end / kPlace >= block->places.size())
        emu_fail("access to shared memory that no array lies in");
    const Place from = block->places[offset / kPlace], to = block->places[end / kPlace];
    *first = from.cell + (offset % kPlace >> from.shift);
    *last = to.cell + (end % kPlace >> to.shift);
}

// An access to several cells most often finds all of them as it finds the first, and leaves them so.
static inline void touch(Block *block, const void *p, size_t bytes, bool write, bool same_value)
{
    const Thread *t = self();
    const int warp = emu_cluster_warp(t);
    const size_t offset = (size_t)((const unsigned char *)p - block->smem);
    size_t first, last;
    find_cells(block, offset, bytes, &first, &last);
    const Access a{block, t,      t->block->cluster->row(warp), warp, warp * kLanes + t->lane(),
                   offset, first, block->places[offset / kPlace].shift};
    ShadowCell *cells = block->shadow.data();
    const ShadowCell before = cells[first];
    touch_cell(a, cells[first], first, write, same_value);
    if (first == last)
        return;
    const ShadowCell after = cells[first];
    const bool alike = !wants_readers(a, before, write);
    for (size_t c = first + 1; c <= last; c++) {
        if (alike && same_cell(cells[c], before))
            cells[c] = after;
        else
            touch_cell(a, cells[c], c, write, same_value);
    }
}

template <class Bits> static inline bool same_bits(const void *p, const void *value)
{
    Bits x, y;
    memcpy(&x, p, sizeof x);
    memcpy(&y, value, sizeof y);
    return x == y;
}

// Whether a write leaves what is there. AddressSanitizer's memcmp would check both sides once more.
static inline bool same_bytes(const void *p, const void *value, size_t bytes)
{
    if (bytes == 4)
        return same_bits<uint32_t>(p, value);
    if (bytes == 2)
        return same_bits<uint16_t>(p, value);
    if (bytes == 8)
        return same_bits<uint64_t>(p, value);
    const unsigned char *x = (const unsigned char *)p, *y = (const unsigned char *)value;
    unsigned char differs = 0;
    for (size_t i = 0; i < bytes; i++)
        differs |= (unsigned char)(x[i] ^ y[i]);
    return differs == 0;
}

void cell_emu_read(const void *p, size_t bytes) { touch(self()->block, p, bytes, false, false); }

void cell_emu_write(const void *p, const void *value, size_t bytes)
{
    touch(self()->block, p, bytes, true, same_bytes(p, value, bytes));
}

// The place of p in the shared memory of another block of the cluster.
unsigned char *cell_emu_remote(const void *p, int rank, size_t bytes, const void *value)
{
    Thread *t = self();
    Cluster *cluster = t->block->cluster;
    if (rank < 0 || rank >= emu_launch->cluster_size)
        emu_fail("block %d of a cluster of %d", rank, emu_launch->cluster_size);
    Block *target = cluster->blocks[(size_t)rank].get();
    unsigned char *there = target->smem + ((const unsigned char *)p - t->block->smem);
    if (target->live < (int)target->threads.size())
        emu_fail(
            "block %d of the cluster has threads that have ended, thread %d still reaches into its memory",
            rank, t->index);
    if ((size_t)(there - target->smem) / kPlace >= target->places.size())
        emu_fail("block %d of the cluster has not carved its shared memory: a cluster barrier is missing",
                 rank);
    touch(target, there, bytes, value != nullptr, value && same_bytes(there, value, bytes));
    return there;
}

// Asynchronous copies.

static void mark_pending(Block *block, const void *to, int bytes, int change)
{
    size_t first, last;
    find_cells(block, (size_t)((const unsigned char *)to - block->smem), (size_t)bytes, &first, &last);
    for (size_t c = first; c <= last; c++)
        block->shadow[c].pending = (uint16_t)(block->shadow[c].pending + change);
}

// `from` nullptr writes zeros. The source may be read any time until the wait: a coin decides when.
void cell_emu_copy(void *to, const void *from, int bytes)
{
    Thread *t = self();
    Copy copy{(unsigned char *)to,
              (const unsigned char *)from,
              bytes,
              (emu_random(emu_launch) >> 20 & 1) != 0,
              {0}};
    touch(t->block, to, (size_t)bytes, true, false);
    if (from && !copy.late)
        memcpy(copy.data, from, (size_t)bytes);
    memset(to, 0xff, (size_t)bytes);
    mark_pending(t->block, to, bytes, 1);
    t->copies.push_back(copy);
}

void cell_emu_copy_commit(void) { self()->commits.push_back(self()->copies.size()); }

void cell_emu_copy_wait(int youngest)
{
    Thread *t = self();
    if (t->commits.size() <= (size_t)youngest)
        return;
    const size_t groups = t->commits.size() - (size_t)youngest;
    const size_t end = t->commits[groups - 1];
    for (size_t i = 0; i < end; i++) {
        Copy &copy = t->copies[i];
        if (copy.from && copy.late)
            memcpy(copy.data, copy.from, (size_t)copy.bytes);
        mark_pending(t->block, copy.to, copy.bytes, -1);
        touch(t->block, copy.to, (size_t)copy.bytes, true, false);
        memcpy(copy.to, copy.data, (size_t)copy.bytes);
    }
    t->copies.erase(t->copies.begin(), t->copies.begin() + (long)end);
    t->commits.erase(t->commits.begin(), t->commits.begin() + (long)groups);
    for (size_t &commit : t->commits)
        commit -= end;
}
