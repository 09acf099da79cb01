// What warps that have 16 values each do in a walk over the chunks of a linear recurrence, forwards
// (cell_device_chunk_pairs.cuh) and backwards (cell_device_chunk_back_warps.cuh).
//
// S' stands in registers, values as rows, in f32. Products have it as the left operand, S' B, or on the
// right, A S: sums become operands where they are (cell_device_chunk_chain.cuh). What does not depend on S
// comes through shared memory, in stages. Where nothing corrects, each element of S goes its own way: then as
// many warps share the keys of 16 values as the block has. Guaranteed: sums are f32; as an operand, and as
// saved, S is rounded to Part.
#ifndef CELL_DEVICE_CHUNK_WARPS_CUH
#define CELL_DEVICE_CHUNK_WARPS_CUH

// Threads of a walk in which a warp has S' alone, and how many warps share the keys of 16 values, each with a
// multiple of 16 of them.
template <class M> __host__ __device__ constexpr int cell_chunk_walk_threads()
{
    return cell_chunk_apart<M>() ? CELL_CHUNK_STATES_THREADS : CELL_CHUNK_THREADS;
}
template <class M> __host__ __device__ constexpr int cell_chunk_key_shares()
{
    int n = M::corrected ? 1 : cell_chunk_walk_threads<M>() / 32 / (M::values / 16);
    while (n > 1 && M::keys % (n * 16) != 0)
        n--;
    return n > 1 ? n : 1;
}

// Shares: of the keys, each of a warp. Threads: of the block.
template <class M, int Shares = 1, int Threads = CELL_CHUNK_THREADS> struct cell_chunk_warps {
    typedef typename M::Part Part;
    typedef typename M::Store Store;
    typedef cell_chunk_record<M> record;
    typedef cell_chain<Part> chain;
    typedef typename chain::A A;
    typedef typename chain::B B;
    static constexpr int C = M::rows, K = M::keys, V = M::values, u = M::corrected, writes = M::additions - u;
    static constexpr int own_keys = K / Shares; // of a warp
    static constexpr int depth = chain::depth, tiles = chain::tiles;
    static constexpr int square_pitch = cell_chain_pitch<Part>(C), wide_pitch = cell_chain_pitch<Part>(K),
                         known_pitch = cell_chain_pitch<Part>(V);
    static constexpr int each = 16 / (int)sizeof(Part); // elements of 16 bytes

    static constexpr int numbers = (record::bytes - record::w_number) / (int)sizeof(float); // of a record
    __device__ __forceinline__ static constexpr int at_number(int of)
    {
        return (of - record::w_number) / (int)sizeof(float);
    }

    const cell_chunk<M> &x;
    const int64_t first;   // value of the block
    int own_value, own_key; // the warp's first value, of the block, and key
    cell_smem<Part> parts; // of all stages
    cell_smem<float> floats;
    cell_smem<Part> part; // of the chunk at hand
    cell_smem<float> number;
    float state[own_keys / 8][4];

    // Elements of all stages.
    __device__ __forceinline__ cell_chunk_warps(const cell_chunk<M> &of, int64_t first_value, int parts_count,
                                                int floats_count)
        : x(of), first(first_value), own_value(cell_warp() % (V / 16) * 16),
          own_key(Shares == 1 ? 0 : cell_warp() / (V / 16) * own_keys)
    {
        auto cursor = cell_shared();
        parts = cell_carve<Part>(cursor, parts_count);
        floats = cell_carve<float>(cursor, floats_count);
    }

    // Fetching, by all threads.

    template <int Columns>
    __device__ __forceinline__ void fetch_matrix(cell_smem<Part> to, const Part *from) const
    {
        constexpr int line = Columns / each;
        CELL_UNROLL
        for (int i = 0; i < (C * line + Threads - 1) / Threads; i++) {
            const int n = cell_thread() + i * Threads;
            if (C * line % Threads == 0 || n < C * line)
                cell_cp_async<16>(to + (n / line * cell_chain_pitch<Part>(Columns) + n % line * each),
                                  from + n * each);
        }
    }

    __device__ __forceinline__ static bool numbered(const cell_row_number &v) { return v.at || v.times != 1; }

    // The warp's part.

    __device__ __forceinline__ static bool works() { return cell_warp() < V / 16 * Shares; }
    __device__ __forceinline__ int own() const { return own_value; }
    // Of the lane: register i of a tile of S' is the value `value(i)` of the block and the key `pair() + i %
    // 2` of the tile.
    __device__ __forceinline__ int value(int i) const { return own() + cell_lane() / 4 + i / 2 * 8; }
    __device__ __forceinline__ static int pair() { return cell_lane() % 4 * 2; }

    __device__ __forceinline__ void load_state()
    {
        const cell_chunk_state &s = x.from;
        CELL_UNROLL
        for (int j = 0; j < own_keys / 8; j++) {
            CELL_UNROLL
            for (int i = 0; i < 4; i++) {
                const int64_t k = own_key + j * 8 + pair() + i % 2, v = first + value(i);
                state[j][i] = x.alone && k == v ? 1 : 0;
                if (cell_chunk_there<M>(s) && k < x.keys && v < x.values)
                    state[j][i] = cell_chunk_state_load<M>(s, k, v);
            }
        }
    }

    __device__ __forceinline__ void store_state() const
    {
        const cell_chunk_state &s = x.to;
        CELL_UNROLL
        for (int j = 0; j < own_keys / 8; j++) {
            CELL_UNROLL
            for (int i = 0; i < 4; i++) {
                const int64_t k = own_key + j * 8 + pair() + i % 2, v = first + value(i);
                if (k < x.keys && v < x.values)
                    cell_chunk_state_store<M>(s, k, v, state[j][i]);
            }
        }
    }

    // 16-byte stores where a row of 16 bits is whole; four or two tiles of S' at a time.
    __device__ __forceinline__ void save_state(int64_t chunk) const
    {
        Part *const to = x.saved + (chunk * x.values + first) * x.keys;
        if constexpr (sizeof(Part) == 2 && own_keys % 32 == 0)
            if (x.keys == K && (uintptr_t)to % 16 == 0) {
                CELL_UNROLL
                for (int j = 0; j < own_keys / 8; j += 4) {
                    CELL_UNROLL
                    for (int half = 0; half < 2; half++) {
                        uint32_t words[4];
                        CELL_UNROLL
                        for (int i = 0; i < 4; i++)
                            words[i] = cell_pack<Part>(state[j + i][half * 2], state[j + i][half * 2 + 1]);
                        cell_quad_turn(words);
                        if (first + value(half * 2) < x.values)
                            cell_store_words(
                                to + value(half * 2) * K + own_key + (j + cell_lane() % 4) * 8, words);
                    }
                }
                return;
            }
        if constexpr (sizeof(Part) == 2 && own_keys % 32 != 0)
            if (x.keys == K && (uintptr_t)to % 16 == 0 && first + own() + 16 <= x.values) {
                CELL_UNROLL
                for (int j = 0; j < own_keys / 8; j += 2)
                    cell_chain_store(to + own() * K + own_key + j * 8, K, state + j);
                return;
            }
        CELL_UNROLL
        for (int j = 0; j < own_keys / 8; j++) {
            CELL_UNROLL
            for (int i = 0; i < 4; i++) {
                const int64_t k = own_key + j * 8 + pair() + i % 2;
                if (k < x.keys && first + value(i) < x.values)
                    cell_store(to + value(i) * x.keys + k, state[j][i]);
            }
        }
    }

    // sum[j] += of columns j * 8 of `a` times the rows of the matrix that stand for them.
    template <int Columns, bool Across>
    __device__ __forceinline__ void multiply(float (*sum)[4], const A &a, cell_smem<Part> m, int pitch,
                                             int begin = 0) const
    {
        CELL_UNROLL
        for (int j = 0; j < Columns / 16; j++) {
            if (j * 16 < begin)
                continue;
            B b;
            if constexpr (Across)
                chain::across(b, m + j * 16, pitch);
            else
                chain::rows(b, m + j * 16 * pitch, pitch);
            CELL_UNROLL
            for (int h = 0; h < 2; h++)
                chain::multiply(sum[j * 2 + h], a, b.half[h]);
        }
    }

    // o of 16 values, rows along the tiles, += the matrix's row t times what `a`' stands for; rows before
    // `begin` have none of it.
    __device__ __forceinline__ void multiply_rows(float (*sum)[2][4], cell_smem<Part> m, int pitch,
                                                  const A &a, int begin = 0) const
    {
        B b;
        chain::turn(b, a);
        CELL_UNROLL
        for (int t = 0; t < C / 16; t++) {
            if (t * 16 < begin)
                continue;
            A rows;
            chain::rows(rows, m + t * 16 * pitch, pitch);
            CELL_UNROLL
            for (int h = 0; h < 2; h++)
                chain::multiply(sum[t][h], rows, b.half[h]);
        }
    }

    __device__ __forceinline__ void put(const cell_chunk_result &o, int64_t t, int64_t v, float value) const
    {
        const int64_t at = t * o.row + v * o.element;
        if (o.real)
            ((float *)o.at)[at] = value;
        else
            cell_store((Store *)o.at + at, value);
    }

    __device__ __forceinline__ void store_read(const cell_chunk_result &o, float (*sum)[2][4],
                                               const cell_chunk_rows &rows) const
    {
        if (!o.at)
            return;
        const int left = (int)(x.steps - rows.first < C ? x.steps - rows.first : C);
        const int64_t v0 = first + own();
        CELL_UNROLL
        for (int t = 0; t < C / 16; t++) {
            CELL_UNROLL
            for (int i = 0; i < 8; i++)
                if (t * 16 + cell_lane() / 4 + i / 2 % 2 * 8 >= rows.valid)
                    sum[t][i / 4][i % 4] = 0;
        }
        if constexpr (sizeof(Store) == 2) {
            Store *const to = (Store *)o.at + rows.first * o.row + v0;
            if (!o.real && o.element == 1 && o.row % 8 == 0 && (uintptr_t)to % 16 == 0 &&
                v0 + 16 <= x.values) {
                CELL_UNROLL
                for (int t = 0; t < C / 16; t++) {
                    uint32_t words[4]; // of a row's first and second 8 values, of the lane's two rows
                    CELL_UNROLL
                    for (int i = 0; i < 4; i++)
                        words[i] = cell_pack<Store>(sum[t][i % 2][i / 2 * 2], sum[t][i % 2][i / 2 * 2 + 1]);
                    cell_quad_turn(words);
                    const int row = t * 16 + cell_lane() / 4 + cell_lane() % 4 / 2 * 8;
                    if (row < left)
                        cell_store_words(to + row * o.row + cell_lane() % 2 * 8, words);
                }
                return;
            }
        }
        CELL_UNROLL
        for (int t = 0; t < C / 16; t++) {
            CELL_UNROLL
            for (int i = 0; i < 8; i++) {
                const int row = t * 16 + cell_lane() / 4 + i / 2 % 2 * 8;
                const int64_t v = v0 + i / 4 * 8 + pair() + i % 2;
                if (row < left && v < x.values)
                    put(o, rows.first + row, v, sum[t][i / 4][i % 4]);
            }
        }
    }

    // By D; Back: by D', which differs where two states feed one another. A lane has both of a key.
    template <bool Back = false> __device__ __forceinline__ void decay()
    {
        if constexpr (M::decay == 3) {
            float d[4];
            cell_load_vec<4>(d, number + at_number(record::d));
            CELL_UNROLL
            for (int j = 0; j < own_keys / 8; j++) {
                CELL_UNROLL
                for (int i = 0; i < 4; i += 2) {
                    const float s[2] = {state[j][i], state[j][i + 1]};
                    state[j][i] = d[0] * s[0] + d[Back ? 2 : 1] * s[1];
                    state[j][i + 1] = d[Back ? 1 : 2] * s[0] + d[3] * s[1];
                }
            }
        } else {
            CELL_UNROLL
            for (int j = 0; j < (M::decay != 0 ? own_keys / 8 : 0); j++) {
                float by[2];
                if constexpr (record::by_key)
                    cell_load_vec<2>(by, number + (at_number(record::d) + own_key + j * 8 + pair()));
                else
                    by[0] = by[1] = number[at_number(record::d)];
                CELL_UNROLL
                for (int i = 0; i < 4; i++)
                    state[j][i] *= by[i % 2];
            }
        }
    }
};

#endif
