// Recurrent products whose weights stay on the chip, for both sides of the device library (schedule gemm).
//
// In: the blocks of a cooperative launch, each of which owns `Units` neighbours of a vector of `units`. Out: at
// every step C[b, r] = sum over k of X[b, k] W[r, k] for the block's rows r. Rows and k are stacks of pieces, each
// `units` long (an LSTM's four gates): row `piece * units + unit` belongs to the block of that unit. Guaranteed:
// sums have one fixed order; a warp waits for the blocks that make its part of X, not for all.
//
// The method is that of persistent RNNs (Diamos et al., 2016): the block's rows of W, its panel, are read once
// and lie in shared memory in the order in which tensor cores take them.
//
// The contraction is split over the block's 8 warps by units: warp w takes those of group w in every piece of k.
// Where an element of a fragment stands along k is free as long as both operands agree, so a lane takes 8
// neighbours, 16 bytes, of a row of X and of a row of W.
#ifndef CELL_DEVICE_PANEL_CUH
#define CELL_DEVICE_PANEL_CUH

enum { CELL_PANEL_WARPS = 8, CELL_PANEL_THREADS = 256, CELL_PANEL_BATCH = 16, CELL_PANEL_POST = 32 };

// T: storage of X and W. Inner: pieces of k. Outer: pieces of rows. Units: of a block, a multiple of 8 that
// divides 32. Split: blocks of a cluster that share their rows and divide the pieces of k, so that each reads
// only its part of X; it divides Inner.
template <class T, int Inner, int Outer, int Units, int Split = 1> struct cell_panel {
    static constexpr int covered = Units * Split;       // units whose rows the block multiplies
    static constexpr int pieces = Inner / Split;
    static constexpr int tiles = Outer * (covered / 8); // of 8 rows: piece by piece
    static constexpr int tile = 8 * CELL_PANEL_BATCH;   // elements of C in one
    static constexpr int shares = Outer * Units * CELL_PANEL_BATCH; // elements of C that are the block's own
    static constexpr int ahead = pieces > 1 ? 8 : 4;    // blocks of 32 along k that are read at once

    cell_smem<T> weights;     // [warp][piece][block of 32 along k][tile][lane][8]
    cell_smem<float> partial; // [warp][tile][16][8]
    cell_smem<float> gathered; // [2][block of the cluster][piece][16][Units]
    int units, group;         // group: units of one warp, a multiple of 32, the length of two fragments
    int first;                // the block's first unit
    int rank;                 // in the cluster
    int turn;                 // which half of `gathered` is next
    unsigned int *posts;      // [group], CELL_PANEL_POST apart
    unsigned int *own_posts;  // the one that this block posts to; NULL: nobody waits for it

    __device__ __forceinline__ void carve(unsigned char *&cursor, int64_t of_units, unsigned int *counters)
    {
        units = (int)of_units;
        group = ((units + CELL_PANEL_WARPS - 1) / CELL_PANEL_WARPS + 31) / 32 * 32;
        first = (int)cell_block_index(0) * Units;
        rank = Split > 1 ? cell_cluster_rank() : 0;
        turn = 0;
        posts = counters;
        own_posts = first < units ? counters + first / group * CELL_PANEL_POST : nullptr;
        weights = cell_carve<T>(cursor, (int64_t)CELL_PANEL_WARPS * pieces * (group / 32) * tiles * 256);
        partial = cell_carve<float>(cursor, CELL_PANEL_WARPS * tiles * tile);
        if (Split > 1)
            gathered = cell_carve<float>(cursor, 2 * Split * shares);
    }

    // W[r, k] stands at w[r * row_stride + k * k_stride]. The block's threads together; start() must follow.
    __device__ void load(const T *w, int64_t row_stride, int64_t k_stride)
    {
        const int blocks = group / 32, slots = CELL_PANEL_WARPS * pieces * blocks * tiles * 32;
        for (int slot = cell_thread(); slot < slots; slot += CELL_PANEL_THREADS) {
            const int lane = slot % 32, row_tile = slot / 32 % tiles, k_block = slot / 32 / tiles;
            const int unit = first - rank * Units + row_tile % (covered / 8) * 8 + lane / 4;
            const int within = k_block % blocks * 32 + lane % 4 * 8;
            const int k_unit = k_block / blocks / pieces * group + within;
            const int64_t row = (int64_t)(row_tile / (covered / 8)) * units + unit;
            const int64_t k = (int64_t)(rank * pieces + k_block / blocks % pieces) * units + k_unit;
            for (int i = 0; i < 8; i++) {
                T v = {};
                if (unit < units && k_unit + i < units)
                    v = w[row * row_stride + (k + i) * k_stride];
                weights[slot * 8 + i] = v;
            }
        }
    }

    // Shared memory is filled, and the cluster's other blocks are there to be written to.
    __device__ __forceinline__ void start() const
    {
        if constexpr (Split > 1)
            cell_cluster_barrier();
        else
            cell_barrier();
    }

    // What the block wrote is there for others. A block of a cluster's end may have no units; nobody waits for it.
    __device__ __forceinline__ void post() const
    {
        cell_barrier();
        if (cell_thread() == 0 && own_posts)
            cell_counter_post(own_posts);
    }

    // Called by every warp: returns when all blocks of its group have posted `rounds` times.
    __device__ __forceinline__ void wait(int64_t rounds) const
    {
        const int begin = cell_warp() * group, end = begin + group < units ? begin + group : units;
        if (cell_lane() == 0 && begin < end)
            cell_counter_wait(posts + cell_warp() * CELL_PANEL_POST,
                              (unsigned int)((end - begin + Units - 1) / Units) * (unsigned int)rounds);
        cell_warp_barrier();
    }

    // One block of 32 along k: the fragments of 16 rows of X, as `low` and `high` hold them, times all tiles.
    __device__ __forceinline__ static void multiply_block(cell_mma_c (&sums)[tiles], const uint32_t (&low)[4],
                                                          const uint32_t (&high)[4], cell_smem<T> at)
    {
        CELL_UNROLL
        for (int j = 0; j < tiles; j++) {
            uint32_t b[4];
            cell_shared_words(b, at + j * 256);
            cell_mma(sums[j], cell_mma_a<T>{{low[0], high[0], low[1], high[1]}}, cell_mma_b<T>{{b[0], b[1]}});
            cell_mma(sums[j], cell_mma_a<T>{{low[2], high[2], low[3], high[3]}}, cell_mma_b<T>{{b[2], b[3]}});
        }
    }

    // 8 neighbours of a row of X that does not lie in words of 16 bytes; 0 beyond the last unit.
    __device__ __forceinline__ static void read_single(uint32_t (&words)[4], const T *p, int left)
    {
        for (int i = 0; i < 4; i++) {
            const uint32_t lo = 2 * i < left ? (uint32_t)cell_load_bits(p + 2 * i) : 0u;
            const uint32_t hi = 2 * i + 1 < left ? (uint32_t)cell_load_bits(p + 2 * i + 1) : 0u;
            words[i] = lo | hi << 16;
        }
    }

    __device__ void multiply_single(cell_mma_c (&sums)[tiles], const T *low, const T *high, cell_smem<T> at) const
    {
        const int unit = cell_warp() * group + cell_lane() % 4 * 8;
        for (int piece = 0; piece < pieces; piece++)
            for (int k = unit; k < unit + group; k += 32) {
                uint32_t a[4], a_8[4];
                read_single(a, low + (int64_t)piece * units + k, units - k);
                read_single(a_8, high + (int64_t)piece * units + k, units - k);
                multiply_block(sums, a, a_8, at);
                at += tiles * 256;
            }
    }

    // The warp's share of the sums for the first 16 of `batch` rows of X, `pitch` elements apart. Sums of rows
    // beyond the batch are those of its first row.
    __device__ __forceinline__ void multiply(cell_mma_c (&sums)[tiles], const T *x, int64_t pitch, int64_t batch) const
    {
        const int lane = cell_lane(), blocks = group / 32, all = pieces * blocks;
        x += (int64_t)rank * pieces * units;
        const T *low = x + (lane / 4 < batch ? lane / 4 : 0) * pitch;
        const T *high = x + (lane / 4 + 8 < batch ? lane / 4 + 8 : 0) * pitch;
        cell_smem<T> at = weights + (cell_warp() * all * tiles * 32 + lane) * 8;
        CELL_UNROLL
        for (int j = 0; j < tiles; j++)
            cell_mma_zero(sums[j]);
        if (units % 8 != 0 || pitch % 8 != 0 || reinterpret_cast<uintptr_t>(x) % 16 != 0) {
            multiply_single(sums, low, high, at);
            return;
        }
        const int begin = cell_warp() * group + lane % 4 * 8;
        int unit = begin, k = begin;                 // within its piece; of the row
        for (int done = 0; done < all; done += ahead) {
            uint32_t a[ahead][4] = {}, a_8[ahead][4] = {};
            CELL_UNROLL
            for (int i = 0; i < ahead; i++) {
                if (done + i < all && unit < units) {
                    cell_load_words(a[i], low + k);
                    cell_load_words(a_8[i], high + k);
                }
                unit += 32;
                k += 32;
                if (pieces > 1 && unit >= begin + group) {
                    k += units - group;
                    unit = begin;
                }
            }
            CELL_UNROLL
            for (int i = 0; i < ahead; i++)
                if (done + i < all)
                    multiply_block(sums, a[i], a_8[i], at + i * (tiles * 256));
            at += ahead * tiles * 256;
        }
    }

    // Adds up the warps' shares, and those of the cluster's blocks: store(batch row, piece, unit of the block, sum)
    // is called once for each of the block's elements. The whole cluster; the shares may be written again only
    // behind another barrier.
    template <class Store>
    __device__ __forceinline__ void reduce(const cell_mma_c (&sums)[tiles], int64_t batch, Store store)
    {
        CELL_UNROLL
        for (int j = 0; j < tiles; j++)
            cell_mma_store_c(partial + (cell_warp() * tiles + j) * tile, 8, sums[j]);
        cell_barrier();
        CELL_UNROLL
        for (int begin = 0; begin < tiles * tile; begin += CELL_PANEL_THREADS) {
            const int n = begin + cell_thread(), row_tile = n / tile, b = n % tile / 8;
            const int piece = row_tile / (covered / 8), unit = row_tile % (covered / 8) * 8 + n % 8;
            if (n < tiles * tile && b < batch && first - rank * Units + unit < units) {
                float sum = 0;
                CELL_UNROLL
                for (int w = 0; w < CELL_PANEL_WARPS; w++) {
                    const float share = partial[w * tiles * tile + n];
                    sum += share;
                }
                if constexpr (Split == 1)
                    store(b, piece, unit, sum);
                else
                    cell_cluster_store(gathered + (turn * Split + rank) * shares
                                           + (piece * CELL_PANEL_BATCH + b) * Units + unit % Units,
                                       unit / Units, sum);
            }
        }
        if constexpr (Split > 1)
            reduce_cluster(batch, store);
    }

    // Halves of `gathered` take turns: a block that writes one has met all others at the barrier behind the other.
    template <class Store> __device__ __forceinline__ void reduce_cluster(int64_t batch, Store store)
    {
        cell_cluster_barrier();
        CELL_UNROLL
        for (int begin = 0; begin < shares; begin += CELL_PANEL_THREADS) {
            const int n = begin + cell_thread(), b = n / Units % CELL_PANEL_BATCH;
            if (n < shares && b < batch && first + n % Units < units) {
                float sum = 0;
                CELL_UNROLL
                for (int block = 0; block < Split; block++) {
                    const float share = gathered[(turn * Split + block) * shares + n];
                    sum += share;
                }
                store(b, n / (Units * CELL_PANEL_BATCH), n % Units, sum);
            }
        }
        turn ^= 1;
    }
};

#endif
