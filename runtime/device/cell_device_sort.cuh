// cell_device_sort.cuh: a stable sort of places, for sums that a kernel adds at places which integers give. In come
// keys from 0 to `most`, one for each position; out goes an order of the positions in which keys do not fall and
// positions with one key keep theirs. It goes by digits of 8 bits, the lowest first, three kernels for each: every
// thread counts the digits of its share of the order (cell_sort_count), one block turns the counts into first places
// (cell_sort_scan), and every thread moves its share there (cell_sort_move). A thread's share depends on the number of
// positions alone, so the order is the same on every device, and nothing is counted atomically. Included by
// cell_device.cuh only.
#ifndef CELL_DEVICE_SORT_CUH
#define CELL_DEVICE_SORT_CUH

constexpr int cell_sort_digits = 256;

// How many shares of at least `Each` there are of n, at most `Most`. The launch plan has the same expression.
template <int Each, int Most> __device__ __forceinline__ int64_t cell_shares(int64_t n)
{
    const int64_t shares = (n + Each - 1) / Each;
    return shares < Most ? shares : Most;
}

// Where the share begins, and the one before it ends.
__device__ __forceinline__ int64_t cell_share(int64_t n, int64_t share, int64_t shares) { return n * share / shares; }

// Which half of `order` has the result: pass k writes the half k % 2.
__device__ __forceinline__ int64_t cell_sort_half(int64_t most)
{
    int64_t half = 0;
    for (; most >= cell_sort_digits; most /= cell_sort_digits)
        half = 1 - half;
    return half;
}

__device__ __forceinline__ int cell_sort_digit(int64_t key, int64_t pass)
{
    return (int)(key >> (8 * pass) & (cell_sort_digits - 1));
}

// What stands at a place before the pass: at first every position in its own.
__device__ __forceinline__ int64_t cell_sort_at(const int64_t *order, int64_t n, int64_t pass, int64_t at)
{
    return pass ? order[(1 - pass % 2) * n + at] : at;
}

// Blocks of one warp. `counts` is [digits][threads of the grid], `own` [digits][32]: a column for each thread.
__device__ __forceinline__ void cell_sort_count(const int64_t *keys, const int64_t *order, int64_t *counts, int64_t n,
                                                int64_t pass, cell_smem<int> own)
{
    const int64_t threads = cell_block_count(0) * 32, thread = cell_block_index(0) * 32 + cell_thread();
    for (int d = 0; d < cell_sort_digits; d++)
        own[d * 32 + cell_thread()] = 0;
    for (int64_t i = cell_share(n, thread, threads); i < cell_share(n, thread + 1, threads); i++) {
        const int at = cell_sort_digit(keys[cell_sort_at(order, n, pass, i)], pass) * 32 + cell_thread();
        const int before = own[at];
        own[at] = before + 1;
    }
    for (int d = 0; d < cell_sort_digits; d++) {
        const int count = own[d * 32 + cell_thread()];
        counts[d * threads + thread] = count;
    }
}

// One block of 1024: each count becomes the sum of those before it. `sums` has room for 1024 + 32.
__device__ __forceinline__ void cell_sort_scan(int64_t *counts, int64_t n, cell_smem<int64_t> sums)
{
    const int thread = cell_thread(), warp = thread / 32;
    const int64_t begin = cell_share(n, thread, 1024), end = cell_share(n, thread + 1, 1024);
    int64_t own = 0;
    for (int64_t i = begin; i < end; i++)
        own += counts[i];
    sums[thread] = own;
    cell_barrier();
    if (thread < 32) {
        int64_t all = 0;
        for (int i = 0; i < 32; i++) {
            const int64_t v = sums[thread * 32 + i];
            all += v;
        }
        sums[1024 + thread] = all;
    }
    cell_barrier();
    int64_t before = 0;
    for (int i = 0; i < warp; i++) {
        const int64_t v = sums[1024 + i];
        before += v;
    }
    for (int i = warp * 32; i < thread; i++) {
        const int64_t v = sums[i];
        before += v;
    }
    for (int64_t i = begin; i < end; i++) {
        const int64_t count = counts[i];
        counts[i] = before;
        before += count;
    }
}

// As cell_sort_count, from the first places.
__device__ __forceinline__ void cell_sort_move(const int64_t *keys, int64_t *order, const int64_t *counts, int64_t n,
                                               int64_t pass, cell_smem<int> own)
{
    const int64_t threads = cell_block_count(0) * 32, thread = cell_block_index(0) * 32 + cell_thread();
    for (int d = 0; d < cell_sort_digits; d++)
        own[d * 32 + cell_thread()] = 0;
    for (int64_t i = cell_share(n, thread, threads); i < cell_share(n, thread + 1, threads); i++) {
        const int64_t position = cell_sort_at(order, n, pass, i);
        const int digit = cell_sort_digit(keys[position], pass), at = digit * 32 + cell_thread();
        const int before = own[at];
        own[at] = before + 1;
        order[pass % 2 * n + counts[digit * threads + thread] + before] = position;
    }
}

// The key of an entry of the partial sums of `shares` shares of a sorted order: share k leaves the sum of its first
// key's positions in entry 2 k, and that of its last key's in entry 2 k + 1.
__device__ __forceinline__ int64_t cell_sort_entry(const int64_t *keys, const int64_t *order, int64_t n, int64_t shares,
                                                   int64_t entry)
{
    const int64_t share = entry / 2;
    return keys[order[entry % 2 ? cell_share(n, share + 1, shares) - 1 : cell_share(n, share, shares)]];
}

#endif
