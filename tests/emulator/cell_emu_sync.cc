// Everything that makes threads wait for one another: warp operations, barriers of block and cluster,
// counters.
//
// In: calls from the device header, one per lane. Out: lanes go on when all that they wait for have come.
// Guaranteed: lanes of a warp that are in different operations, or have left the kernel, are reported; each
// synchronisation moves the clocks that the check of shared memory reads. Only what CUDA promises to order
// memory does so: a shuffle does not.
#include <string.h>

#include <algorithm>

#include "cell_emu_device.h"
#include "cell_emu_internal.h"

const char *emu_kind_name(Kind kind)
{
    static const char *const names[] = {"nothing",
                                        "cell_shfl_xor",
                                        "cell_shfl",
                                        "cell_shfl_up",
                                        "cell_shfl_down",
                                        "cell_any",
                                        "cell_all",
                                        "cell_warp_barrier",
                                        "cell_barrier_arrive",
                                        "cell_barrier",
                                        "cell_split_arrive",
                                        "cell_split_wait",
                                        "cell_cluster_arrive",
                                        "cell_cluster_wait",
                                        "cell_inbox_wait",
                                        "cell_load_matrices",
                                        "cell_mma"};
    return names[(int)kind];
}

static Warp &warp_of(Thread *t) { return t->block->warps[(size_t)t->warp()]; }

void emu_sync_reset(Cluster *cluster)
{
    cluster->ordered.assign((size_t)cluster->warps * (size_t)cluster->warps, 0);
    for (int w = 0; w < cluster->warps; w++)
        cluster->row(w)[w] = 1;
    cluster->barrier = SplitMeeting();
    cluster->barrier.rounds.assign((size_t)cluster->warps, 0);
    cluster->barrier.waits.assign((size_t)cluster->warps, 0);
    for (auto &block : cluster->blocks) {
        for (Warp &warp : block->warps) {
            warp.op = WarpOp();
            warp.arrived = warp.ended = 0;
            warp.blocked = false;
        }
        for (Meeting &meeting : block->named)
            meeting = Meeting();
        block->splits.clear();
        block->inboxes.clear();
    }
}

static void fail_diverged(const Warp &warp, const Thread *t, const char *does)
{
    emu_fail("divergent warp: thread %d is at %s while thread %d of the same warp %s", warp.first,
             emu_kind_name(warp.op.kind), t->index, does);
}

void emu_thread_ended(Thread *t)
{
    Warp &warp = warp_of(t);
    t->block->live--;
    warp.ended++;
    if (warp.arrived > 0)
        fail_diverged(warp, t, "has left the kernel");
}

// Counts this lane in. True for the last one; the others return when the warp has been woken.
static bool meet(Kind kind, int64_t a, int64_t b)
{
    Thread *t = self();
    Warp &warp = warp_of(t);
    const WarpOp op{kind, a, b};
    if (warp.ended > 0)
        emu_fail("divergent warp: thread %d calls %s after %d threads of its warp have left the kernel",
                 t->index, emu_kind_name(kind), warp.ended);
    if (warp.arrived == 0) {
        warp.op = op;
        warp.first = t->index;
    } else if (!(warp.op == op)) {
        if (warp.op.kind != kind)
            fail_diverged(warp, t, emu_kind_name(kind));
        emu_fail("divergent warp: threads %d and %d call %s with different arguments (%lld and %lld)",
                 warp.first, t->index, emu_kind_name(kind), (long long)warp.op.a, (long long)a);
    }
    if (++warp.arrived < kLanes) {
        emu_suspend();
        return false;
    }
    warp.arrived = 0;
    return true;
}

static void wake_warp(Block *block, int number)
{
    Warp &warp = block->warps[(size_t)number];
    warp.blocked = false;
    std::vector<Thread *> &ready = emu_launch->ready;
    Thread *lane = &block->threads[(size_t)number * kLanes];
    const Thread *awake = self();
    size_t n = ready.size();
    ready.resize(n + kLanes);
    for (int l = 0; l < kLanes; l++, lane++) {
        ready[n] = lane;
        n += lane != awake;
    }
    ready.resize(n);
}

// The last lane of a warp that has to wait for others.
static void block_warp(Thread *t)
{
    warp_of(t).blocked = true;
    emu_suspend();
}

static void tick(Cluster *cluster, int warp) { cluster->row(warp)[warp]++; }

static void merge(std::vector<uint32_t> &into, const uint32_t *from, int n)
{
    if (into.empty())
        into.assign((size_t)n, 0);
    for (int i = 0; i < n; i++)
        into[(size_t)i] = std::max(into[(size_t)i], from[i]);
}

// What warp w has done until now becomes part of what the meeting has seen.
static void give(Cluster *cluster, int w, std::vector<uint32_t> &seen)
{
    tick(cluster, w); // accesses with the old clock come before whoever takes
    merge(seen, cluster->row(w), cluster->warps);
}

static void take(Cluster *cluster, int w, const std::vector<uint32_t> &seen)
{
    uint32_t *row = cluster->row(w);
    for (size_t i = 0; i < seen.size(); i++)
        row[i] = std::max(row[i], seen[i]);
}

// Shuffles and votes.

static void vote(Warp &warp, bool all)
{
    uint64_t said = all;
    for (int l = 0; l < kLanes; l++)
        said = all ? said && warp.slot[l] : said || warp.slot[l];
    for (int l = 0; l < kLanes; l++)
        warp.result[l] = said;
}

uint64_t cell_emu_shuffle(int how, uint64_t value, int operand)
{
    static const Kind kinds[] = {Kind::shfl_xor,  Kind::shfl, Kind::shfl_up,
                                 Kind::shfl_down, Kind::any,  Kind::all};
    Thread *t = self();
    Warp &warp = warp_of(t);
    const Kind kind = kinds[how];
    const int lane = t->lane();
    warp.slot[lane] = value;
    warp.payload[lane][0] = (uint32_t)operand;
    // cell_shfl may name a different lane in each; the other operands are the same in all.
    if (!meet(kind, kind == Kind::shfl ? 0 : operand, 0))
        return warp.result[lane];
    if (kind == Kind::any || kind == Kind::all)
        vote(warp, kind == Kind::all);
    else if (kind == Kind::shfl)
        for (int l = 0; l < kLanes; l++)
            warp.result[l] = warp.slot[warp.payload[l][0] & (kLanes - 1)];
    else if (kind == Kind::shfl_xor)
        for (int l = 0; l < kLanes; l++)
            warp.result[l] = warp.slot[(l ^ operand) & (kLanes - 1)];
    else
        for (int l = 0; l < kLanes; l++) {
            const int from = kind == Kind::shfl_up ? l - operand : l + operand;
            warp.result[l] = warp.slot[from < 0 || from >= kLanes ? l : from];
        }
    wake_warp(t->block, t->warp());
    return warp.result[lane];
}

// What all lanes give. It stays until all of them have come to the next meeting.
const uint64_t *cell_emu_exchange(uint64_t value)
{
    Thread *t = self();
    Warp &warp = warp_of(t);
    warp.slot[t->lane()] = value;
    if (meet(Kind::matrices, 0, 0)) {
        memcpy(warp.result, warp.slot, sizeof warp.result);
        wake_warp(t->block, t->warp());
    }
    return warp.result;
}

void cell_emu_warp_barrier(void)
{
    Thread *t = self();
    if (!meet(Kind::warp_barrier, 0, 0))
        return;
    tick(t->block->cluster, emu_cluster_warp(t));
    wake_warp(t->block, t->warp());
}

// Barriers of a block. The block's own barrier is number 0.

static void check_count(const Thread *t, int id, int64_t count, const Meeting &meeting)
{
    const int threads = (int)t->block->threads.size();
    if (id < 0 || id >= kNamedBarriers)
        emu_fail("barrier %d does not exist: 1 to 15 do", id);
    if (count <= 0 || count % kLanes || count > threads)
        emu_fail("barrier %d is for %lld threads: it takes whole warps, and the block has %d threads", id,
                 (long long)count, threads);
    if (meeting.expected && meeting.expected != count)
        emu_fail("barrier %d is for %lld threads in one place and for %lld in another", id,
                 (long long)meeting.expected, (long long)count);
}

static void complete(Block *block, Meeting &meeting)
{
    Cluster *cluster = block->cluster;
    const int base = block->rank * (int)block->warps.size();
    for (int w : meeting.waiting)
        take(cluster, base + w, meeting.seen);
    std::vector<int> waiting;
    waiting.swap(meeting.waiting);
    meeting.expected = meeting.arrived = 0;
    meeting.seen.assign(meeting.seen.size(), 0);
    for (int w : waiting)
        wake_warp(block, w);
}

void cell_emu_barrier(int id, int count, int wait)
{
    Thread *t = self();
    Block *block = t->block;
    if (!meet(wait ? Kind::barrier : Kind::arrive, id, count))
        return;
    const int64_t expected = count ? count : (int64_t)block->threads.size();
    check_count(t, id, expected, block->named[id < 0 || id >= kNamedBarriers ? 0 : id]);
    Meeting &meeting = block->named[id];
    meeting.expected = expected;
    meeting.arrived += kLanes;
    give(block->cluster, emu_cluster_warp(t), meeting.seen);
    if (wait)
        meeting.waiting.push_back(t->warp());
    const bool full = meeting.arrived == expected;
    if (full)
        complete(block, meeting);
    if (!wait)
        wake_warp(block, t->warp());
    else if (!full)
        block_warp(t);
}

// Split barriers. Warps are numbered as in the cluster, `warps` of them take part, the first being `base`.

static void split_arrive(Thread *t, SplitMeeting &split, int warps, int base, const char *name)
{
    Cluster *cluster = t->block->cluster;
    const int w = emu_cluster_warp(t);
    const size_t place = (size_t)(w - base);
    if (split.rounds[place] != split.waits[place])
        emu_fail("%s twice without a wait between", name);
    split.rounds[place]++;
    give(cluster, w, split.meeting.seen);
    if (++split.meeting.arrived < warps)
        return;
    split.meeting.arrived = 0;
    split.complete++;
    split.seen_last = split.meeting.seen;
    split.meeting.seen.assign(split.meeting.seen.size(), 0);
    std::vector<int> waiting;
    waiting.swap(split.meeting.waiting);
    const int per_block = (int)t->block->warps.size();
    for (int other : waiting) {
        take(cluster, other, split.seen_last);
        wake_warp(cluster->blocks[(size_t)(other / per_block)].get(), other % per_block);
    }
}

static void split_wait(Thread *t, SplitMeeting &split, int base, const char *name)
{
    const int w = emu_cluster_warp(t);
    const size_t place = (size_t)(w - base);
    if (split.waits[place] == split.rounds[place])
        emu_fail("%s without an arrive before it", name);
    split.waits[place]++;
    if (split.complete >= split.waits[place]) {
        take(t->block->cluster, w, split.seen_last);
        wake_warp(t->block, t->warp());
    } else {
        split.meeting.waiting.push_back(w);
        block_warp(t);
    }
}

static SplitMeeting &find_split(Thread *t, size_t offset)
{
    auto found = t->block->splits.find(offset);
    if (found == t->block->splits.end() || !found->second.ready)
        emu_fail("a split barrier is used before cell_split_init");
    SplitMeeting &split = found->second;
    const int starter = t->block->rank * (int)t->block->warps.size() + split.init_thread / kLanes;
    const bool own = split.init_thread == t->index;
    if (!own && t->block->cluster->row(emu_cluster_warp(t))[starter] <= split.init_clock)
        emu_fail("a split barrier is used without a barrier after cell_split_init");
    return split;
}

void cell_emu_split_init(size_t offset)
{
    Thread *t = self();
    if (t->index != 0)
        return;
    SplitMeeting &split = t->block->splits[offset];
    if (split.ready)
        emu_fail("cell_split_init twice on one barrier");
    split.ready = true;
    split.init_thread = t->index;
    split.init_clock = t->block->cluster->clock(emu_cluster_warp(t));
    split.rounds.assign(t->block->warps.size(), 0);
    split.waits.assign(t->block->warps.size(), 0);
}

void cell_emu_split_arrive(size_t offset)
{
    Thread *t = self();
    const int warps = (int)t->block->warps.size();
    SplitMeeting &split = find_split(t, offset);
    if (!meet(Kind::split_arrive, (int64_t)offset, 0))
        return;
    split_arrive(t, split, warps, t->block->rank * warps, "cell_split_arrive");
    wake_warp(t->block, t->warp());
}

void cell_emu_split_wait(size_t offset)
{
    Thread *t = self();
    SplitMeeting &split = find_split(t, offset);
    if (meet(Kind::split_wait, (int64_t)offset, 0))
        split_wait(t, split, t->block->rank * (int)t->block->warps.size(), "cell_split_wait");
}

void cell_emu_cluster_arrive(void)
{
    Thread *t = self();
    if (!meet(Kind::cluster_arrive, 0, 0))
        return;
    split_arrive(t, t->block->cluster->barrier, t->block->cluster->warps, 0, "cell_cluster_arrive");
    wake_warp(t->block, t->warp());
}

void cell_emu_cluster_wait(void)
{
    Thread *t = self();
    if (meet(Kind::cluster_wait, 0, 0))
        split_wait(t, t->block->cluster->barrier, 0, "cell_cluster_wait");
}

// Inboxes.

static Inbox &find_inbox(Block *block, size_t offset)
{
    auto found = block->inboxes.find(offset);
    if (found == block->inboxes.end() || !found->second.ready)
        emu_fail("an inbox is used before cell_inbox_init");
    return found->second;
}

// Ends the round when all of it has come.
static void close_round(Block *block, Inbox &inbox)
{
    if (inbox.expected < 0 || inbox.come < inbox.expected)
        return;
    if (inbox.come > inbox.expected)
        emu_fail("an inbox expects %d bytes and is sent %d", inbox.expected, inbox.come);
    const int base = block->rank * (int)block->warps.size();
    inbox.come = 0;
    inbox.expected = -1;
    inbox.complete++;
    inbox.seen_last = inbox.seen;
    inbox.seen.assign(inbox.seen.size(), 0);
    std::vector<int> waiting;
    waiting.swap(inbox.waiting);
    for (int w : waiting) {
        take(block->cluster, base + w, inbox.seen_last);
        wake_warp(block, w);
    }
}

void cell_emu_inbox_init(size_t offset)
{
    Thread *t = self();
    if (t->index != 0)
        return;
    Inbox &inbox = t->block->inboxes[offset];
    if (inbox.ready)
        emu_fail("cell_inbox_init twice on one inbox");
    inbox.ready = true;
    inbox.waits.assign(t->block->warps.size(), 0);
}

void cell_emu_inbox_expect(size_t offset, int bytes)
{
    Thread *t = self();
    Inbox &inbox = find_inbox(t->block, offset);
    if (inbox.expected >= 0)
        emu_fail("cell_inbox_expect twice in a round");
    inbox.expected = bytes;
    give(t->block->cluster, emu_cluster_warp(t), inbox.seen);
    close_round(t->block, inbox);
}

void cell_emu_inbox_wait(size_t offset)
{
    Thread *t = self();
    Inbox &inbox = find_inbox(t->block, offset);
    if (!meet(Kind::inbox_wait, (int64_t)offset, 0))
        return;
    if (++inbox.waits[(size_t)t->warp()] <= inbox.complete) {
        take(t->block->cluster, emu_cluster_warp(t), inbox.seen_last);
        wake_warp(t->block, t->warp());
    } else {
        inbox.waiting.push_back(t->warp());
        block_warp(t);
    }
}

void cell_emu_inbox_send(size_t offset, int rank, int bytes)
{
    Thread *t = self();
    Block *to = t->block->cluster->blocks[(size_t)rank].get();
    Inbox &inbox = find_inbox(to, offset);
    inbox.come += bytes;
    give(t->block->cluster, emu_cluster_warp(t), inbox.seen);
    close_round(to, inbox);
}

// Counters. Other threads run only while this one is suspended, so plain additions are atomic.

static void poll(const unsigned *word, unsigned value, bool differs)
{
    Thread *t = self();
    t->poll = word;
    t->poll_value = value;
    t->poll_differs = differs;
    while (!t->polled()) {
        emu_launch->polling.push_back(t);
        emu_suspend();
    }
    t->poll = nullptr;
}

void cell_emu_counter_wait(const unsigned *counter, unsigned value)
{
    poll(counter, value, false);
}

void cell_emu_word_wait(const unsigned *word, unsigned value)
{
    poll(word, value, true);
}

// C += A B over a warp: sums in double, rounded once, where the hardware's order is not known.

template <int Type> static float operand_value(uint32_t word, int half)
{
    const uint16_t bits = (uint16_t)(word >> (half * 16));
    // A bf16 is the upper half of an f32; of the 32 bits of a tf32 the lower 13 are not read.
    const uint32_t read = Type == CELL_EMU_BF16 ? (uint32_t)bits << 16 : word & 0xffffe000u;
    float value;
    if (Type == CELL_EMU_F16)
        return cell_emu_f16_value(bits);
    memcpy(&value, &read, sizeof value);
    return value;
}

// Operand elements of the tile, as [inner][outer]: outer is a row of A or a column of B. `word` is the first of
// its registers in the payload.
template <int Type, int OuterBlocks>
static void gather_tile(const Warp &warp, int word, double tile[16][8 * OuterBlocks])
{
    const int per_word = Type == CELL_EMU_TF32 ? 1 : 2;
    for (int l = 0; l < kLanes; l++) {
        for (int r = 0; r < 2 * OuterBlocks; r++) {
            const int outer = l / 4 + r % OuterBlocks * 8;
            const int inner = l % 4 * per_word + r / OuterBlocks * 4 * per_word;
            for (int h = 0; h < per_word; h++)
                tile[inner + h][outer] = operand_value<Type>(warp.payload[l][word + r], h);
        }
    }
}

template <int Type> static void multiply(Warp &warp)
{
    double a[16][16], b[16][8], sum[16][8];
    gather_tile<Type, 2>(warp, 4, a);
    gather_tile<Type, 1>(warp, 8, b);
    const int depth = Type == CELL_EMU_TF32 ? 8 : 16;
    float c[4];
    for (int l = 0; l < kLanes; l++) {
        memcpy(c, warp.payload[l], sizeof c);
        for (int r = 0; r < 4; r++)
            sum[l / 4 + r / 2 * 8][l % 4 * 2 + r % 2] = c[r];
    }
    for (int k = 0; k < depth; k++) // each sum by rising k
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++)
                sum[i][j] += a[k][i] * b[k][j];
    for (int l = 0; l < kLanes; l++) {
        for (int r = 0; r < 4; r++)
            c[r] = (float)sum[l / 4 + r / 2 * 8][l % 4 * 2 + r % 2];
        memcpy(warp.payload[l], c, sizeof c);
    }
}

void cell_emu_mma(int type, float c[4], const uint32_t a[4], const uint32_t b[2])
{
    Thread *t = self();
    Warp &warp = warp_of(t);
    uint32_t *payload = warp.payload[t->lane()];
    memcpy(payload, c, 4 * sizeof *c);
    memcpy(payload + 4, a, 4 * sizeof *a);
    memcpy(payload + 8, b, 2 * sizeof *b);
    if (meet(Kind::mma, type, 0)) {
        if (type == CELL_EMU_BF16)
            multiply<CELL_EMU_BF16>(warp);
        else if (type == CELL_EMU_F16)
            multiply<CELL_EMU_F16>(warp);
        else
            multiply<CELL_EMU_TF32>(warp);
        wake_warp(t->block, t->warp());
    }
    memcpy(c, payload, 4 * sizeof *c);
}

// C [8, 8] += A [8, 4] B [4, 8] in doubles, term by term: a lane has A's element (lane / 4, lane % 4), B's
// (lane % 4, lane / 4), and of C a row's two neighbours.
void cell_emu_mma_double(double c[2], double a, double b)
{
    Thread *t = self();
    Warp &warp = warp_of(t);
    uint32_t *payload = warp.payload[t->lane()];
    memcpy(payload, c, 2 * sizeof *c);
    memcpy(payload + 4, &a, sizeof a);
    memcpy(payload + 6, &b, sizeof b);
    if (meet(Kind::mma, CELL_EMU_F64, 0)) {
        double x[kLanes], y[kLanes], sum[2];
        for (int l = 0; l < kLanes; l++) {
            memcpy(&x[l], &warp.payload[l][4], sizeof x[l]);
            memcpy(&y[l], &warp.payload[l][6], sizeof y[l]);
        }
        for (int l = 0; l < kLanes; l++) {
            memcpy(sum, warp.payload[l], sizeof sum);
            for (int h = 0; h < 2; h++) {
                for (int k = 0; k < 4; k++)
                    sum[h] += x[l / 4 * 4 + k] * y[l % 4 * 8 + h * 4 + k];
            }
            memcpy(warp.payload[l], sum, sizeof sum);
        }
        wake_warp(t->block, t->warp());
    }
    memcpy(c, payload, 2 * sizeof *c);
}
