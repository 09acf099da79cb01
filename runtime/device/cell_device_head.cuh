// A recurrent product within one block, for both sides of the device library (schedule gemm).
//
// In: blocks that each walk all steps of one head (the whole state, where there are no heads) for up to
// CELL_HEAD_BATCH sequences, and a thread for each of their elements. Out: at every step C[s, r] = sum over k of
// X[s, k] W[r, k]; rows and k are stacks of pieces, each `units` long. X and C pass through shared memory, so a step
// costs two barriers and blocks need not know of one another. Guaranteed: the sums of a sequence have one order,
// whatever sequences share its block.
//
// In bf16 and f16 a warp takes tiles of 16 rows to the tensor cores, with the sequences as the 8 columns; where few
// tiles are all there are, several warps divide k. W stays in shared memory in the order in which tensor cores take
// it, or, where Units says how long a piece is and a thread's share is small, in registers. f32 and f64 have a
// thread per row, or several that divide k.
#ifndef CELL_DEVICE_HEAD_CUH
#define CELL_DEVICE_HEAD_CUH

enum { CELL_HEAD_BATCH = 8, CELL_HEAD_THREADS = 256, CELL_HEAD_WARPS = 8 };

// An element that a caller gave, or `other` where it gave nothing. room: memory that is there, of as many elements: the read
// has no condition, behind which the compiler lays out a walk's steps with more instructions. What is read there, which
// nobody may have written yet, is not used.
template <class T> __device__ __forceinline__ T cell_given(const T *given, const T *room, int64_t at, T other)
{
    const T v = (given ? given : room)[at];
    return given ? v : other;
}

// T: storage of X and W. Inner: pieces of k. Outer: pieces of rows. Units: of a piece, or 0 where only a call says.
template <class T, int Inner, int Outer, int Units = 0> struct cell_head {
    // Of a piece, with padding: tiles of 16 rows, blocks of 32 along k.
    __device__ __forceinline__ int tall() const { return ((Units ? Units : units) + 15) / 16; }
    __device__ __forceinline__ int deep() const { return ((Units ? Units : units) + 31) / 32; }
    __device__ __forceinline__ int tiles() const { return Outer * tall(); }
    __device__ __forceinline__ int blocks() const { return Inner * deep(); }
    __device__ __forceinline__ int pitch() const { return 16 * tiles() + 4; }      // no two lanes meet in a bank
    __device__ __forceinline__ int parts() const { return parts_of(tiles(), blocks()); }

    // By how many warps the k of a tile is divided: as many as find work.
    __host__ __device__ static constexpr int parts_of(int tiles, int blocks)
    {
        return tiles >= CELL_HEAD_WARPS ? 1 : CELL_HEAD_WARPS / tiles < blocks ? CELL_HEAD_WARPS / tiles : blocks;
    }

    // What a warp keeps in registers, when the sizes are known and it is little.
    static constexpr int known_tiles = Outer * ((Units + 15) / 16), known_blocks = Inner * ((Units + 31) / 32);
    static constexpr int known_parts = Units ? parts_of(known_tiles, known_blocks) : 1;
    static constexpr int jobs = (known_tiles * known_parts + CELL_HEAD_WARPS - 1) / CELL_HEAD_WARPS;
    static constexpr int depth = (known_blocks + known_parts - 1) / known_parts;
    static constexpr bool kept = Units > 0 && jobs * depth * 8 <= 64;

    cell_smem<T> weights;    // [tile of 16 rows][block of 32 along k][half][lane][8]
    cell_smem<T> operand;    // [block of 32 along k][sequence][32]
    cell_smem<float> sums;   // [part][sequence][pitch]
    int units;
    static constexpr bool even = known_tiles * known_parts % CELL_HEAD_WARPS == 0;
    uint32_t own[kept ? jobs : 1][kept ? depth : 1][8];
    int from[kept ? jobs : 1], to[kept ? jobs : 1];    // where a job finds its operand, and leaves its first sum

    __device__ __forceinline__ void carve(unsigned char *&cursor, int64_t of_units)
    {
        units = (int)of_units;
        weights = cell_carve<T>(cursor, (int64_t)tiles() * blocks() * 512);
        operand = cell_carve<T>(cursor, blocks() * 256);
        sums = cell_carve<float>(cursor, parts() * CELL_HEAD_BATCH * pitch());
    }

    // W[r, k] stands at w[r * row_stride + k * k_stride]. The block's threads together; X is zero behind it.
    __device__ void load(const T *w, int64_t row_stride, int64_t k_stride)
    {
        const int slots = tiles() * blocks() * 64;
        for (int slot = cell_thread(); slot < slots; slot += CELL_HEAD_THREADS) {
            const int lane = slot % 32, half = slot / 32 % 2, block = slot / 64 % blocks(), tile = slot / 64 / blocks();
            const int row = tile % tall() * 16 + half * 8 + lane / 4, k = block % deep() * 32 + lane % 4 * 8;
            const T *from = w + ((int64_t)(tile / tall()) * units + row) * row_stride
                            + ((int64_t)(block / deep()) * units + k) * k_stride;
            for (int i = 0; i < 8; i++) {
                T v = {};
                if (row < units && k + i < units)
                    v = from[i * k_stride];
                weights[slot * 8 + i] = v;
            }
        }
        for (int n = cell_thread(); n < blocks() * 256; n += CELL_HEAD_THREADS)
            operand[n] = T{};
        cell_barrier();
        if constexpr (kept)
            keep();
    }

    // The share of the warp's job: a tile, and some of its blocks along k.
    __device__ __forceinline__ int first_block(int part) const { return blocks() * part / parts(); }

    __device__ __forceinline__ void keep()
    {
        CELL_UNROLL
        for (int j = 0; j < jobs; j++) {
            const int job = cell_warp() + j * CELL_HEAD_WARPS, tile = job % known_tiles, part = job / known_tiles;
            from[j] = (part < known_parts ? first_block(part) : 0) * 256 + cell_lane() * 8;
            to[j] = (part * CELL_HEAD_BATCH + cell_mma_c_column(0)) * pitch() + tile * 16 + cell_mma_c_row(0);
            cell_keep(from[j]);
            cell_keep(to[j]);
            CELL_UNROLL
            for (int d = 0; d < depth; d++) {
                CELL_UNROLL
                for (int i = 0; i < 8; i++)
                    own[j][d][i] = 0;
                if (part < known_parts && first_block(part) + d < first_block(part + 1))
                    read_weights(own[j][d], tile, first_block(part) + d);
            }
        }
    }

    __device__ __forceinline__ void read_weights(uint32_t (&a)[8], int tile, int block) const
    {
        uint32_t low[4], high[4];
        const cell_smem<T> at = weights + ((tile * blocks() + block) * 64 + cell_lane()) * 8;
        cell_shared_words(low, at);
        cell_shared_words(high, at + 256);
        CELL_UNROLL
        for (int i = 0; i < 4; i++) {
            a[i] = low[i];
            a[4 + i] = high[i];
        }
    }

    // Two sums, so that one product of 16 along k need not wait for the other.
    __device__ __forceinline__ static void add(cell_mma_c (&c)[2], const uint32_t (&a)[8], const uint32_t (&x)[4])
    {
        cell_mma(c[0], cell_mma_a<T>{{a[0], a[4], a[1], a[5]}}, cell_mma_b<T>{{x[0], x[1]}});
        cell_mma(c[1], cell_mma_a<T>{{a[2], a[6], a[3], a[7]}}, cell_mma_b<T>{{x[2], x[3]}});
    }

    // first: where the lane's first element of the tile belongs.
    __device__ __forceinline__ void store(const cell_mma_c (&c)[2], int first)
    {
        CELL_UNROLL
        for (int r = 0; r < 4; r++)
            sums[first + (cell_mma_c_column(r) - cell_mma_c_column(0)) * pitch() + cell_mma_c_row(r) - cell_mma_c_row(0)] =
                c[0].x[r] + c[1].x[r];
    }

    // Element k of X for a sequence of the block.
    template <class V> __device__ __forceinline__ void put(int sequence, int piece, int unit, V value)
    {
        cell_store(operand + ((piece * deep() + unit / 32) * CELL_HEAD_BATCH + sequence) * 32 + unit % 32, value);
    }

    // C of what was put, by the block's threads together; what sum() gave before is gone.
    __device__ __forceinline__ void multiply()
    {
        cell_barrier();
        if constexpr (kept)
            multiply_kept();
        else
            multiply_shared();
        cell_barrier();
    }

    // A share never ends behind the last block; what it has beyond its own are zeros.
    __device__ __forceinline__ void multiply_kept()
    {
        CELL_UNROLL
        for (int j = 0; j < jobs; j++) {
            cell_mma_c c[2];
            cell_mma_zero(c[0]);
            cell_mma_zero(c[1]);
            CELL_UNROLL
            for (int d = 0; d < depth; d++) {
                uint32_t x[4];
                cell_shared_words(x, operand + (from[j] + d * 256));
                add(c, own[j][d], x);
            }
            if (even || cell_warp() + j * CELL_HEAD_WARPS < known_tiles * known_parts)
                store(c, to[j]);
        }
    }

    __device__ __forceinline__ void multiply_shared()
    {
        for (int job = cell_warp(); job < tiles() * parts(); job += CELL_HEAD_WARPS) {
            const int tile = job % tiles(), part = job / tiles(), end = first_block(part + 1);
            cell_mma_c c[2];
            cell_mma_zero(c[0]);
            cell_mma_zero(c[1]);
            CELL_UNROLL_BY(4)
            for (int block = first_block(part); block < end; block++) {
                uint32_t a[8], x[4];
                read_weights(a, tile, block);
                cell_shared_words(x, operand + block * 256 + cell_lane() * 8);
                add(c, a, x);
            }
            store(c, (part * CELL_HEAD_BATCH + cell_mma_c_column(0)) * pitch() + tile * 16 + cell_mma_c_row(0));
        }
    }

    __device__ __forceinline__ float sum(int sequence, int piece, int unit) const
    {
        const int at = sequence * pitch() + piece * tall() * 16 + unit;
        float all = sums[at];
        CELL_UNROLL
        for (int part = 1; part < CELL_HEAD_WARPS; part++)
            if (part < parts())
                all += sums[at + part * CELL_HEAD_BATCH * pitch()];
        return all;
    }
};

// Without tensor cores: C is R, the type of the arithmetic and of storage.
template <class R, int Inner, int Outer> struct cell_head_real {
    cell_smem<R> weights;    // [k][row]
    cell_smem<R> operand;    // [k][sequence]
    cell_smem<R> sums;       // [part][sequence][row]
    int units, rows, parts;

    __device__ __forceinline__ void carve(unsigned char *&cursor, int64_t of_units)
    {
        units = (int)of_units;
        rows = Outer * units;
        parts = rows < CELL_HEAD_THREADS ? CELL_HEAD_THREADS / rows : 1;
        parts = parts < CELL_HEAD_WARPS ? parts : CELL_HEAD_WARPS;
        weights = cell_carve<R>(cursor, (int64_t)Inner * units * rows);
        operand = cell_carve<R>(cursor, Inner * units * CELL_HEAD_BATCH);
        sums = cell_carve<R>(cursor, parts * CELL_HEAD_BATCH * rows);
    }

    __device__ void load(const R *w, int64_t row_stride, int64_t k_stride)
    {
        for (int n = cell_thread(); n < Inner * units * rows; n += CELL_HEAD_THREADS)
            weights[n] = w[n % rows * row_stride + n / rows * k_stride];
        for (int n = cell_thread(); n < Inner * units * CELL_HEAD_BATCH; n += CELL_HEAD_THREADS)
            operand[n] = 0;
        cell_barrier();
    }

    __device__ __forceinline__ void put(int sequence, int piece, int unit, R value)
    {
        operand[(piece * units + unit) * CELL_HEAD_BATCH + sequence] = value;
    }

    __device__ __forceinline__ void multiply()
    {
        cell_barrier();
        for (int job = cell_thread(); job < rows * parts; job += CELL_HEAD_THREADS) {
            const int row = job % rows, part = job / rows, end = Inner * units * (part + 1) / parts;
            R all[CELL_HEAD_BATCH] = {};
            for (int k = Inner * units * part / parts; k < end; k++) {
                const R w = weights[k * rows + row];
                R x[CELL_HEAD_BATCH];
                cell_load_vec<CELL_HEAD_BATCH>(x, operand + k * CELL_HEAD_BATCH);
                CELL_UNROLL
                for (int s = 0; s < CELL_HEAD_BATCH; s++)
                    all[s] += w * x[s];
            }
            CELL_UNROLL
            for (int s = 0; s < CELL_HEAD_BATCH; s++)
                sums[(part * CELL_HEAD_BATCH + s) * rows + row] = all[s];
        }
        cell_barrier();
    }

    __device__ __forceinline__ R sum(int sequence, int piece, int unit) const
    {
        R all = 0;
        for (int part = 0; part < parts; part++)
            all += sums[(part * CELL_HEAD_BATCH + sequence) * rows + piece * units + unit];
        return all;
    }
};
template <int Inner, int Outer, int Units> struct cell_head<float, Inner, Outer, Units>
    : cell_head_real<float, Inner, Outer> {};
template <int Inner, int Outer, int Units> struct cell_head<double, Inner, Outer, Units>
    : cell_head_real<double, Inner, Outer> {};

#endif
