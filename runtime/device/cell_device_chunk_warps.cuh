// The walk over the chunks of a linear recurrence (cell_device_chunk.cuh) on tensor cores: warps do not wait for one another.
//
// S' stands in registers, 16 values as rows in each warp, in f32. Then R' = z' + S' W' has S' as the left operand, S' += R' X has
// R', and o = Q S + P R has both on the right: sums become operands where they are (cell_device_chunk_chain.cuh). Only what does
// not depend on S passes through shared memory, fetched `stages` chunks ahead, with one barrier for each chunk.
//
// Guaranteed: S, R and o are sums in f32; as operands, and as saved, S and R are rounded to Part. z times its number is rounded too.
#ifndef CELL_DEVICE_CHUNK_WARPS_CUH
#define CELL_DEVICE_CHUNK_WARPS_CUH

template <class M> struct cell_chunk_warps {
    typedef typename M::Part Part;
    typedef typename M::Store Store;
    typedef cell_chunk_record<M> record;
    typedef cell_chain<Part> chain;
    typedef typename chain::A A;
    typedef typename chain::B B;
    static constexpr int C = M::rows, K = M::keys, V = M::values, u = M::corrected, writes = M::additions - u;
    static constexpr int depth = chain::depth, tiles = chain::tiles;
    static constexpr int square_pitch = cell_chain_pitch<Part>(C), wide_pitch = cell_chain_pitch<Part>(K),
                         known_pitch = cell_chain_pitch<Part>(V);
    static constexpr int each = 16 / (int)sizeof(Part); // elements of 16 bytes

    // A stage: matrices of Part, each with its pitch, and rows of floats. Of the record are W, X, P, A and L, Q and E where the
    // decay is by key, and the rows of numbers; else w, q and c are the caller's.
    static constexpr int squares = u * M::reads + writes * M::reads + u * writes, wides = 2 * u + M::reads + writes;
    static constexpr int numbers = (record::bytes - record::w_number) / (int)sizeof(float);
    static constexpr int stage_parts = squares * C * square_pitch + wides * C * wide_pitch + M::additions * C * known_pitch;
    static constexpr int stage_floats = numbers + M::additions * C;

    __host__ __device__ static constexpr int64_t smem()
    {
        return cell_carve_bytes<Part>(M::stages * stage_parts) + cell_carve_bytes<float>(M::stages * stage_floats);
    }

    const cell_chunk<M> &x;
    const int64_t first; // value of the block
    int own_value;       // the warp's first, of the block
    cell_smem<Part> parts; // of all stages
    cell_smem<float> floats;
    cell_smem<Part> part; // of the chunk at hand
    cell_smem<float> number;
    float state[K / 8][4];

    // The sizes of all stages; the walk back has other ones.
    __device__ __forceinline__ cell_chunk_warps(const cell_chunk<M> &of, int64_t first_value,
                                                int parts_count = M::stages * stage_parts,
                                                int floats_count = M::stages * stage_floats)
        : x(of), first(first_value), own_value(cell_warp() * 16)
    {
        auto cursor = cell_shared();
        parts = cell_carve<Part>(cursor, parts_count);
        floats = cell_carve<float>(cursor, floats_count);
    }

    // Where a matrix stands in a stage; n: of a write.
    __device__ __forceinline__ static constexpr int at_p(int r) { return r * C * square_pitch; }
    __device__ __forceinline__ static constexpr int at_a(int r, int n) { return (u * M::reads + r * writes + n - u) * C * square_pitch; }
    __device__ __forceinline__ static constexpr int at_l(int n) { return ((u + writes) * M::reads + n - u) * C * square_pitch; }
    __device__ __forceinline__ static constexpr int at_wide(int i) { return squares * C * square_pitch + i * C * wide_pitch; }
    __device__ __forceinline__ static constexpr int at_w() { return at_wide(0); }
    __device__ __forceinline__ static constexpr int at_x() { return at_wide(1); }
    __device__ __forceinline__ static constexpr int at_q(int r) { return at_wide(2 * u + r); }
    __device__ __forceinline__ static constexpr int at_e(int n) { return at_wide(2 * u + M::reads + n - u); }
    __device__ __forceinline__ static constexpr int at_z(int n) { return at_wide(wides) + n * C * known_pitch; }
    // Rows of numbers, and those of z.
    __device__ __forceinline__ static constexpr int at_number(int of) { return (of - record::w_number) / (int)sizeof(float); }
    __device__ __forceinline__ static constexpr int at_z_number(int n) { return numbers + n * C; }

    // Fetching, by all threads.

    template <int Columns> __device__ __forceinline__ void fetch_matrix(cell_smem<Part> to, const Part *from) const
    {
        constexpr int line = Columns / each;
        CELL_UNROLL
        for (int i = 0; i < (C * line + CELL_CHUNK_THREADS - 1) / CELL_CHUNK_THREADS; i++) {
            const int n = cell_thread() + i * CELL_CHUNK_THREADS;
            if (C * line % CELL_CHUNK_THREADS == 0 || n < C * line)
                cell_cp_async<16>(to + (n / line * cell_chain_pitch<Part>(Columns) + n % line * each), from + n * each);
        }
    }

    __device__ __forceinline__ static bool numbered(const cell_row_number &v) { return v.at || v.times != 1; }

    __device__ __forceinline__ void fetch_numbers(cell_smem<float> to, const cell_row_number &v, const cell_chunk_rows &rows) const
    {
        const int t = cell_thread();
        if (numbered(v) && t < C)
            to[t] = cell_chunk_number<M>(v, rows, t);
    }

    __device__ __forceinline__ void fetch(int64_t chunk, int stage) const
    {
        const cell_smem<Part> to = parts + stage * stage_parts;
        const cell_smem<float> to_floats = floats + stage * stage_floats;
        const cell_chunk_rows rows = cell_chunk_rows_of(x, chunk);
        const unsigned char *const from = x.records + chunk * record::bytes;
        const auto matrix = [&](int at) { return (const Part *)(from + at); };
        if constexpr (u != 0) {
            fetch_matrix<K>(to + at_x(), matrix(record::x));
            CELL_UNROLL
            for (int r = 0; r < M::reads; r++)
                fetch_matrix<C>(to + at_p(r), matrix(record::p(r)));
            CELL_UNROLL
            for (int n = u; n < M::additions; n++)
                fetch_matrix<C>(to + at_l(n), matrix(record::l(n)));
        }
        CELL_UNROLL
        for (int r = 0; r < M::reads; r++) {
            CELL_UNROLL
            for (int n = u; n < M::additions; n++)
                fetch_matrix<C>(to + at_a(r, n), matrix(record::a(r, n)));
        }
        if constexpr (record::by_key) {
            if constexpr (u != 0)
                fetch_matrix<K>(to + at_w(), matrix(record::w));
            CELL_UNROLL
            for (int r = 0; r < M::reads; r++)
                fetch_matrix<K>(to + at_q(r), matrix(record::q(r)));
            CELL_UNROLL
            for (int n = u; n < M::additions; n++)
                fetch_matrix<K>(to + at_e(n), matrix(record::e(n)));
        } else {
            if constexpr (u != 0)
                cell_chunk_fetch_rows<M, K>(to + at_w(), x.addition[0].weight.vector, rows, 0, x.keys);
            CELL_UNROLL
            for (int r = 0; r < M::reads; r++)
                cell_chunk_fetch_rows<M, K>(to + at_q(r), x.read[r].vector, rows, 0, x.keys);
            CELL_UNROLL
            for (int n = u; n < M::additions; n++)
                cell_chunk_fetch_rows<M, K>(to + at_e(n), x.addition[n].column.vector, rows, 0, x.keys);
        }
        CELL_UNROLL
        for (int n = 0; n < M::additions; n++)
            if (M::known >> n & 1) {
                cell_chunk_fetch_rows<M, V>(to + at_z(n), x.addition[n].known.vector, rows, first, x.values);
                fetch_numbers(to_floats + at_z_number(n), x.addition[n].known.number, rows);
            }
        CELL_UNROLL
        for (int i = 0; i < (numbers / 4 + CELL_CHUNK_THREADS - 1) / CELL_CHUNK_THREADS; i++) {
            const int n = cell_thread() + i * CELL_CHUNK_THREADS;
            if (n < numbers / 4)
                cell_cp_async<16>(to_floats + n * 4, (const float *)(from + record::w_number) + n * 4);
        }
    }

    // The warp's part.

    __device__ __forceinline__ int own() const { return own_value; }
    // Of the lane: register i of a tile of S' is the value `value(i)` of the block and the key `pair() + i % 2` of the tile.
    __device__ __forceinline__ int value(int i) const { return own() + cell_lane() / 4 + i / 2 * 8; }
    __device__ __forceinline__ static int pair() { return cell_lane() % 4 * 2; }

    __device__ __forceinline__ void load_state()
    {
        const cell_chunk_state &s = x.from;
        CELL_UNROLL
        for (int j = 0; j < K / 8; j++) {
            CELL_UNROLL
            for (int i = 0; i < 4; i++) {
                const int64_t k = j * 8 + pair() + i % 2, v = first + value(i), at = k * s.key + v * s.value;
                state[j][i] = 0;
                if (s.at && k < x.keys && v < x.values)
                    state[j][i] = s.real ? ((const float *)s.at)[at] : cell_load<float>((const Store *)s.at + at);
            }
        }
    }

    __device__ __forceinline__ void store_state() const
    {
        const cell_chunk_state &s = x.to;
        CELL_UNROLL
        for (int j = 0; j < K / 8; j++) {
            CELL_UNROLL
            for (int i = 0; i < 4; i++) {
                const int64_t k = j * 8 + pair() + i % 2, v = first + value(i), at = k * s.key + v * s.value;
                if (!s.at || k >= x.keys || v >= x.values)
                    continue;
                if (s.real)
                    ((float *)s.at)[at] = state[j][i];
                else
                    cell_store((Store *)s.at + at, state[j][i]);
            }
        }
    }

    // 16-byte stores where a row of 16 bits is whole; four tiles of S' at a time.
    __device__ __forceinline__ void save_state(int64_t chunk) const
    {
        Part *const to = x.saved + (chunk * x.values + first) * x.keys;
        if constexpr (sizeof(Part) == 2 && K % 32 == 0)
            if (x.keys == K && (uintptr_t)to % 16 == 0) {
                CELL_UNROLL
                for (int j = 0; j < K / 8; j += 4) {
                    CELL_UNROLL
                    for (int half = 0; half < 2; half++) {
                        uint32_t words[4];
                        CELL_UNROLL
                        for (int i = 0; i < 4; i++)
                            words[i] = cell_pack<Part>(state[j + i][half * 2], state[j + i][half * 2 + 1]);
                        cell_quad_turn(words);
                        if (first + value(half * 2) < x.values)
                            cell_store_words(to + value(half * 2) * K + (j + cell_lane() % 4) * 8, words);
                    }
                }
                return;
            }
        CELL_UNROLL
        for (int j = 0; j < K / 8; j++) {
            CELL_UNROLL
            for (int i = 0; i < 4; i++) {
                const int64_t k = j * 8 + pair() + i % 2;
                if (k < x.keys && first + value(i) < x.values)
                    cell_store(to + value(i) * x.keys + k, state[j][i]);
            }
        }
    }

    // z_n' of rows s, as A.
    __device__ __forceinline__ void load_known(A &a, int n, int s) const
    {
        chain::across(a, part + (at_z(n) + s * known_pitch + own()), known_pitch);
        if (numbered(x.addition[n].known.number))
            chain::scale(a, number + (at_z_number(n) + s));
    }

    // sum[j] += of columns j * 8 of `a` times the rows of the matrix that stand for them.
    template <int Columns, bool Across>
    __device__ __forceinline__ void multiply(float (*sum)[4], const A &a, cell_smem<Part> m, int pitch, int begin = 0) const
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

    // R' of all rows, as A of steps along them.
    __device__ __forceinline__ void correct(A (&r)[C / depth]) const
    {
        float sum[C / 8][4] = {};
        CELL_UNROLL
        for (int k = 0; k < K / depth; k++) {
            A s;
            chain::of_sums(s, state + k * tiles);
            multiply<C, false>(sum, s, part + (at_w() + k * depth), wide_pitch);
        }
        CELL_UNROLL
        for (int j = 0; j < C / depth; j++) {
            float known[tiles][4] = {};
            if constexpr ((M::known & 1) != 0) {
                A z;
                load_known(z, 0, j * depth);
                chain::to_sums(known, z);
            }
            CELL_UNROLL
            for (int i = 0; i < tiles; i++) {
                float by[2] = {1, 1};
                if constexpr (!record::by_key)
                    cell_load_vec<2>(by, number + (at_number(record::w_number) + (j * tiles + i) * 8 + pair()));
                CELL_UNROLL
                for (int e = 0; e < 4; e++)
                    sum[j * tiles + i][e] = sum[j * tiles + i][e] * by[e % 2] + known[i][e];
            }
        }
        CELL_UNROLL
        for (int n = 1; n < M::additions; n++) {
            CELL_UNROLL
            for (int s = 0; s < C / depth; s++) {
                A z;
                load_known(z, n, s * depth);
                multiply<C, false>(sum, z, part + (at_l(n) + s * depth), square_pitch, s * depth / 16 * 16);
            }
        }
        CELL_UNROLL
        for (int j = 0; j < C / depth; j++)
            chain::of_sums(r[j], sum + j * tiles);
    }

    // o of 16 values, rows along the tiles, += the matrix's row t times what `a`' stands for; rows before `begin` have none of it.
    __device__ __forceinline__ void multiply_rows(float (*sum)[2][4], cell_smem<Part> m, int pitch, const A &a, int begin = 0) const
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

    __device__ __forceinline__ void read(int r, const A *corrections, const cell_chunk_rows &rows) const
    {
        float sum[C / 16][2][4] = {};
        CELL_UNROLL
        for (int k = 0; k < K / depth; k++) {
            A s;
            chain::of_sums(s, state + k * tiles);
            multiply_rows(sum, part + (at_q(r) + k * depth), wide_pitch, s);
        }
        if constexpr (!record::by_key) {
            CELL_UNROLL
            for (int t = 0; t < C / 16; t++) {
                CELL_UNROLL
                for (int i = 0; i < 2; i++) {
                    const float by = number[at_number(record::q_number(r)) + t * 16 + i * 8 + cell_lane() / 4];
                    CELL_UNROLL
                    for (int h = 0; h < 4; h++)
                        sum[t][h / 2][i * 2 + h % 2] *= by;
                }
            }
        }
        CELL_UNROLL
        for (int s = 0; s < C / depth; s++) {
            const int begin = s * depth / 16 * 16;
            if constexpr (u != 0)
                multiply_rows(sum, part + (at_p(r) + s * depth), square_pitch, corrections[s], begin);
            CELL_UNROLL
            for (int n = u; n < M::additions; n++) {
                A z;
                load_known(z, n, s * depth);
                multiply_rows(sum, part + (at_a(r, n) + s * depth), square_pitch, z, begin);
            }
        }
        store_read(x.result[r], sum, rows);
    }

    __device__ __forceinline__ void put(const cell_chunk_result &o, int64_t t, int64_t v, float value) const
    {
        const int64_t at = t * o.row + v * o.element;
        if (o.real)
            ((float *)o.at)[at] = value;
        else
            cell_store((Store *)o.at + at, value);
    }

    __device__ __forceinline__ void store_read(const cell_chunk_result &o, float (*sum)[2][4], const cell_chunk_rows &rows) const
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
            if (!o.real && o.element == 1 && o.row % 8 == 0 && (uintptr_t)to % 16 == 0 && v0 + 16 <= x.values) {
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

    __device__ __forceinline__ void decay()
    {
        CELL_UNROLL
        for (int j = 0; j < (M::decay != 0 ? K / 8 : 0); j++) {
            float by[2];
            if constexpr (record::by_key)
                cell_load_vec<2>(by, number + (at_number(record::d) + j * 8 + pair()));
            else
                by[0] = by[1] = number[at_number(record::d)];
            CELL_UNROLL
            for (int i = 0; i < 4; i++)
                state[j][i] *= by[i % 2];
        }
    }

    __device__ __forceinline__ void update(const A *corrections)
    {
        decay();
        CELL_UNROLL
        for (int s = 0; s < C / depth; s++) {
            if constexpr (u != 0)
                multiply<K, true>(state, corrections[s], part + (at_x() + s * depth * wide_pitch), wide_pitch);
            CELL_UNROLL
            for (int n = u; n < M::additions; n++) {
                A z;
                load_known(z, n, s * depth);
                if constexpr (!record::by_key)
                    chain::scale(z, number + (at_number(record::e_number(n)) + s * depth));
                multiply<K, true>(state, z, part + (at_e(n) + s * depth * wide_pitch), wide_pitch);
            }
        }
    }

    __device__ __forceinline__ void step(int64_t chunk)
    {
        const cell_chunk_rows rows = cell_chunk_rows_of(x, chunk);
        if (x.saved)
            save_state(chunk);
        A corrections[u ? C / depth : 1] = {};
        if constexpr (u != 0)
            correct(corrections);
        CELL_UNROLL
        for (int r = 0; r < M::reads; r++)
            read(r, corrections, rows);
        update(corrections);
    }

    // Rows of chunks that have none of the sequence.
    __device__ void clear(int64_t from)
    {
        for (int r = 0; r < M::reads; r++) {
            const cell_chunk_result &o = x.result[r];
            for (int64_t n = from * V + cell_thread(); o.at && n < x.steps * V; n += CELL_CHUNK_THREADS)
                if (first + n % V < x.values)
                    put(o, n / V, first + n % V, 0);
        }
    }

    __device__ void walk()
    {
        const int64_t chunks = cell_chunk_count(x.length, C);
        const bool works = own() < V;
        if (works)
            load_state();
        for (int i = 0; i < M::stages - 1; i++) {
            if (i < chunks)
                fetch(i, i);
            cell_cp_async_commit();
        }
        int stage = 0;
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            if constexpr (M::stages > 1)
                cell_cp_async_wait<M::stages - 2>();
            cell_barrier();
            if (chunk + M::stages - 1 < chunks)
                fetch(chunk + M::stages - 1, stage ? stage - 1 : M::stages - 1);
            cell_cp_async_commit();
            if constexpr (M::stages == 1) {
                cell_cp_async_wait<0>();
                cell_barrier();
            }
            part = parts + stage * stage_parts;
            number = floats + stage * stage_floats;
            if (works)
                step(chunk);
            stage = stage + 1 < M::stages ? stage + 1 : 0;
        }
        cell_cp_async_wait<0>();
        cell_barrier();
        if (works && x.to.at)
            store_state();
        clear(chunks * C);
    }
};

#endif
