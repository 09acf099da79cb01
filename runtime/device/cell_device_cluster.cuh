// A recurrent product within one cluster, for both sides of the device library (schedule gemm).
//
// In: clusters of CELL_CLUSTER_BLOCKS blocks that each walk all steps of one head (the whole state, where there are no
// heads) for up to CELL_HEAD_BATCH sequences. A block has `Units` neighbours of the head, and a thread for each of their
// elements: neighbouring threads have neighbouring units. Out: at every step C[s, r] = sum over k of X[s, k] W[r, k];
// rows and k are stacks of pieces, each `units` long. Guaranteed: the sums of a sequence have one order, whatever
// sequences share its cluster.
//
// Each block has a copy of X, twice, by turns. Of what its threads make of the next X, every 8 neighbours gather 16
// bytes, and send them to all blocks (cell_cluster_send). A block waits until its copy is whole, multiplies its rows,
// and adds up the warps' shares of k, for one barrier of the block in a step. Who has been sent the whole X of a step
// knows that all blocks have left the step before, so the other copy may be written. Blocks without units make nothing
// and are sent nothing.
//
// A warp keeps its share of W in registers, in tiles of 16 rows and blocks of 32 along k, as cell_head has them. The
// blocks along k go by turns to the parts, so that all have work where units are few.
#ifndef CELL_DEVICE_CLUSTER_CUH
#define CELL_DEVICE_CLUSTER_CUH

enum { CELL_CLUSTER_BLOCKS = 16, CELL_CLUSTER_THREADS = 512, CELL_CLUSTER_WARPS = 16, CELL_CLUSTER_PARTS = 8 };

// T: storage of X and W, of 2 bytes. Inner: pieces of k. Outer: pieces of rows. Units: of a block, a multiple of 16.
template <class T, int Inner, int Outer, int Units> struct cell_cluster_head {
    static constexpr int tall = Units / 16, tiles = Outer * tall;             // tiles of a piece, of the block
    static constexpr int stacks = tiles % 2 == 0 ? 2 : 1;                     // of warps, which share the tiles
    static constexpr int own_tiles = tiles / stacks;                          // of a warp
    static constexpr int most_blocks = Inner * CELL_CLUSTER_BLOCKS * Units / 32; // along k
    static constexpr int depth = (most_blocks + CELL_CLUSTER_PARTS - 1) / CELL_CLUSTER_PARTS; // of a warp
    static constexpr int pitch = 16 * tiles + 4;                              // no two lanes meet in a bank
    static constexpr int chunk = CELL_HEAD_BATCH * 32;                        // of X, for a block along k

    cell_smem<T> operand, next;    // [block along k: unit / 32, piece][sequence][32]
    cell_smem<float> sums;         // [part][sequence][pitch]
    cell_inbox inbox, next_inbox;
    int units, count;              // of the head; sequences of the cluster
    int first;                     // the block's first unit
    uint32_t weights[own_tiles][depth][8];

    // Sequences of the thread's cluster, of which there are `of_count`.
    __device__ __forceinline__ void carve(unsigned char *&cursor, int64_t of_units, int64_t of_count)
    {
        units = (int)of_units;
        first = cell_cluster_rank() * Units;
        count = first < units ? (int)of_count : 0;
        operand = cell_carve<T>(cursor, blocks() * chunk);
        next = cell_carve<T>(cursor, blocks() * chunk);
        sums = cell_carve<float>(cursor, CELL_CLUSTER_PARTS * CELL_HEAD_BATCH * pitch);
        inbox = cell_inbox_carve(cursor);
        next_inbox = cell_inbox_carve(cursor);
    }

    __device__ __forceinline__ int blocks() const { return (units + 31) / 32 * Inner; }
    __device__ __forceinline__ int part() const { return cell_warp() % CELL_CLUSTER_PARTS; }
    __device__ __forceinline__ int stack() const { return cell_warp() / CELL_CLUSTER_PARTS; }
    // The blocks that have units, and the thread's element: a sequence, and a unit of the head.
    __device__ __forceinline__ int peers() const { return (units + Units - 1) / Units; }
    __device__ __forceinline__ int place() const { return cell_thread() / Units; }
    __device__ __forceinline__ int unit() const { return first + cell_thread() % Units; }
    __device__ __forceinline__ bool mine() const { return place() < count && unit() < units; }
    // Whether any thread of the warp has an element; those of one that has none do their part of the product only.
    __device__ __forceinline__ bool active() const { return cell_any(mine()); }

    // W[r, k] stands at w[r * row_stride + k * k_stride]. The cluster's threads together, before anything is put.
    __device__ void load(const T *w, int64_t row_stride, int64_t k_stride)
    {
        CELL_UNROLL
        for (int t = 0; t < own_tiles; t++)
            CELL_UNROLL
            for (int d = 0; d < depth; d++)
                load_block(weights[t][d], stack() * own_tiles + t, d * CELL_CLUSTER_PARTS + part(), w, row_stride, k_stride);
        for (int n = cell_thread(); n < blocks() * chunk; n += CELL_CLUSTER_THREADS) {
            operand[n] = T{};
            next[n] = T{};
        }
        cell_inbox_init(inbox);
        cell_inbox_init(next_inbox);
        cell_barrier();
        expect(inbox);
        expect(next_inbox);
        cell_cluster_barrier();
    }

    __device__ __forceinline__ void load_block(uint32_t (&a)[8], int tile, int block, const T *w, int64_t row_stride,
                                               int64_t k_stride) const
    {
        const int k = block / Inner * 32 + cell_lane() % 4 * 8;
        CELL_UNROLL
        for (int half = 0; half < 2; half++) {
            const int row = first + tile % tall * 16 + half * 8 + cell_lane() / 4;
            const T *from = w + ((int64_t)(tile / tall) * units + row) * row_stride
                            + ((int64_t)(block % Inner) * units + k) * k_stride;
            CELL_UNROLL
            for (int i = 0; i < 8; i++) {
                const bool inside = tile < tiles && row < units && k + i < units;
                const uint32_t bits = inside ? cell_load_bits(from + i * k_stride) : 0u;
                a[half * 4 + i / 2] = i % 2 ? a[half * 4 + i / 2] | bits << 16 : bits;
            }
        }
    }

    // A round of an inbox: X of all the cluster's sequences.
    __device__ __forceinline__ void expect(const cell_inbox &b) const
    {
        if (cell_thread() == 0)
            cell_inbox_expect(b, Inner * count * ((units + 7) / 8) * 16);
    }

    // The thread's element of a piece of X. Whole warps come, where they are active(); what is not mine() counts as 0.
    // A product must follow.
    template <class V> __device__ __forceinline__ void put(bool mine, int piece, V value) const
    {
        const uint32_t bits = mine ? cell_convert<T>(value).bits : 0u;
        const uint32_t other = cell_shfl_xor(bits, 1);
        const uint32_t pair = cell_lane() % 2 ? other | bits << 16 : bits | other << 16;
        uint32_t words[4];
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            words[i] = cell_shfl(pair, (cell_lane() & ~7) + 2 * i);
        const int from = unit() & ~7;
        if (place() >= count || from >= units)
            return;
        const cell_smem<T> to = operand + (from / 32 * Inner + piece) * chunk + place() * 32 + from % 32;
        CELL_UNROLL
        for (int i = 0; i < CELL_CLUSTER_BLOCKS; i += 8)
            if (i + cell_lane() % 8 < peers())
                cell_cluster_send(to, i + cell_lane() % 8, inbox, words);
    }

    // C of what was put, by the block's threads together; what sum() gave before is gone.
    __device__ __forceinline__ void multiply()
    {
        cell_inbox_wait(inbox);
        expect(inbox);
        uint32_t x[depth][4];
        CELL_UNROLL
        for (int d = 0; d < depth; d++) {
            CELL_UNROLL
            for (int i = 0; i < 4; i++)
                x[d][i] = 0;
            if (has(d) && cell_lane() / 4 < count)
                cell_shared_words(x[d], operand + (d * CELL_CLUSTER_PARTS + part()) * chunk + cell_lane() * 8);
        }
        cell_mma_c c[own_tiles];
        CELL_UNROLL
        for (int t = 0; t < own_tiles; t++)
            cell_mma_zero(c[t]);
        CELL_UNROLL
        for (int d = 0; d < depth; d++)
            if (has(d))
                multiply_block(c, d, x[d]);
        if (multiplies())
            store(c);
        take_turns();
        cell_barrier();
    }

    // 16 along k, then the 16 others: the tiles' sums do not wait for one another.
    __device__ __forceinline__ void multiply_block(cell_mma_c (&c)[own_tiles], int d, const uint32_t (&x)[4]) const
    {
        CELL_UNROLL
        for (int i = 0; i < 4; i += 2)
            CELL_UNROLL
            for (int t = 0; t < own_tiles; t++) {
                const uint32_t(&a)[8] = weights[t][d];
                cell_mma(c[t], cell_mma_a<T>{{a[i], a[4 + i], a[i + 1], a[5 + i]}}, cell_mma_b<T>{{x[i], x[i + 1]}});
            }
    }

    // Whether the warp has a share of the product, and an entry of its weights.
    __device__ __forceinline__ bool multiplies() const { return stacks == 2 || stack() == 0; }
    __device__ __forceinline__ bool has(int d) const
    {
        return multiplies() && d * CELL_CLUSTER_PARTS + part() < blocks();
    }

    __device__ __forceinline__ void store(const cell_mma_c (&c)[own_tiles])
    {
        const int at = (part() * CELL_HEAD_BATCH + cell_mma_c_column(0)) * pitch + stack() * own_tiles * 16
                       + cell_mma_c_row(0);
        CELL_UNROLL
        for (int t = 0; t < own_tiles; t++)
            CELL_UNROLL
            for (int r = 0; r < 4; r++)
                sums[at + t * 16 + (cell_mma_c_column(r) - cell_mma_c_column(0)) * pitch + cell_mma_c_row(r)
                     - cell_mma_c_row(0)] = c[t].x[r];
    }

    __device__ __forceinline__ void take_turns()
    {
        const cell_smem<T> x = operand;
        operand = next;
        next = x;
        const cell_inbox b = inbox;
        inbox = next_inbox;
        next_inbox = b;
    }

    // Of the thread's unit.
    __device__ __forceinline__ float sum(int sequence, int piece) const
    {
        const int at = sequence * pitch + piece * Units + cell_thread() % Units;
        float parts[CELL_CLUSTER_PARTS];
        CELL_UNROLL
        for (int i = 0; i < CELL_CLUSTER_PARTS; i++)
            parts[i] = sums[at + i * CELL_HEAD_BATCH * pitch];
        CELL_UNROLL
        for (int n = CELL_CLUSTER_PARTS / 2; n > 0; n /= 2)
            CELL_UNROLL
            for (int i = 0; i < n; i++)
                parts[i] += parts[i + n];
        return parts[0];
    }
};

#endif
