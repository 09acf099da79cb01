// The walk over the chunks of a linear recurrence (cell_device_chunk.cuh) on tensor cores: two warps for each
// 16 values.
//
// S' stands in the registers of one, values as rows, in f32: it makes R' = z' + S' W' with S' as the left
// operand and S' += R' X with R'. The other makes o = Q S + P R with both on the right, and saves S, one
// chunk later: the first leaves S, R and z as operands in shared memory, where there is room for two chunks
// of them. Sums become operands where they are (cell_device_chunk_chain.cuh). All that does not depend on S
// is fetched `stages` chunks ahead by all threads; the one barrier of a chunk is for it and for what the
// warps leave. A stage has what the first warps take of one chunk and the others of the chunk before it.
//
// Guaranteed: S, R and o are sums in f32; as operands, and as saved, S and R are rounded to Part. z times its
// number is rounded too.
#ifndef CELL_DEVICE_CHUNK_PAIRS_CUH
#define CELL_DEVICE_CHUNK_PAIRS_CUH

template <class M> struct cell_chunk_pairs : cell_chunk_warps<M> {
    typedef cell_chunk_warps<M> base;
    typedef typename M::Part Part;
    typedef typename M::Store Store;
    typedef cell_chunk_record<M> record;
    typedef cell_chain<Part> chain;
    typedef typename chain::A A;
    static constexpr int C = M::rows, K = M::keys, V = M::values, u = M::corrected, writes = M::additions - u;
    static constexpr int depth = chain::depth, tiles = chain::tiles;
    static constexpr int square_pitch = base::square_pitch, wide_pitch = base::wide_pitch,
                         known_pitch = base::known_pitch;
    static constexpr int pairs = V / 16, threads = pairs > 2 ? pairs * 64 : 128;
    static_assert(V % 16 == 0 && V <= 64, "two warps have 16 values");

    // A stage: squares L_n, P_r, A_rn; rows of keys W, X, E_n, Q_r; z_n; floats: the record's numbers, those
    // of Q_r of the chunk before, those of z_n.
    static constexpr int squares = u * writes + (u + writes) * M::reads, wides = 2 * u + writes + M::reads;
    static constexpr int numbers = base::numbers;
    static constexpr int read_numbers = record::by_key ? 0 : M::reads * C;
    static constexpr int stage_parts =
        squares * C * square_pitch + wides * C * wide_pitch + M::additions * C * known_pitch;
    static constexpr int stage_floats = numbers + read_numbers + M::additions * C;
    // What a warp leaves of a chunk, in steps of 4 words a lane: S, R, z of the writes.
    static constexpr int left_steps = K / depth + (u + writes) * (C / depth), left = left_steps * 128;

    __host__ __device__ static constexpr int64_t smem()
    {
        return cell_carve_bytes<Part>(M::stages * stage_parts) +
               cell_carve_bytes<float>(M::stages * stage_floats) +
               cell_carve_bytes<uint32_t>(2 * pairs * left);
    }

    using base::at_number;
    using base::first;
    using base::number;
    using base::pair;
    using base::part;
    using base::state;
    using base::x;
    cell_smem<uint32_t> words; // [2][pairs][left_steps][lane][4]
    cell_smem<uint32_t> mine;  // of the pair, for the chunk at hand

    __device__ __forceinline__ cell_chunk_pairs(const cell_chunk<M> &of, int64_t first_value)
        : base(of, first_value, M::stages * stage_parts, M::stages * stage_floats)
    {
        auto cursor = cell_shared();
        cell_carve<Part>(cursor, M::stages * stage_parts);
        cell_carve<float>(cursor, M::stages * stage_floats);
        words = cell_carve<uint32_t>(cursor, 2 * pairs * left);
        this->own_value = cell_warp() % pairs * 16;
    }

    __device__ __forceinline__ static constexpr int at_l(int n) { return (n - u) * C * square_pitch; }
    __device__ __forceinline__ static constexpr int at_p(int r)
    {
        return (u * writes + r) * C * square_pitch;
    }
    __device__ __forceinline__ static constexpr int at_a(int r, int n)
    {
        return (u * (writes + M::reads) + r * writes + n - u) * C * square_pitch;
    }
    __device__ __forceinline__ static constexpr int at_wide(int i)
    {
        return squares * C * square_pitch + i * C * wide_pitch;
    }
    __device__ __forceinline__ static constexpr int at_w() { return at_wide(0); }
    __device__ __forceinline__ static constexpr int at_x() { return at_wide(1); }
    __device__ __forceinline__ static constexpr int at_e(int n) { return at_wide(u + n); }
    __device__ __forceinline__ static constexpr int at_q(int r) { return at_wide(2 * u + writes + r); }
    __device__ __forceinline__ static constexpr int at_z(int n)
    {
        return at_wide(wides) + n * C * known_pitch;
    }
    __device__ __forceinline__ static constexpr int at_q_number(int r) { return numbers + r * C; }
    __device__ __forceinline__ static constexpr int at_z_number(int n)
    {
        return numbers + read_numbers + n * C;
    }

    // Fetching, by all threads.

    template <int Columns>
    __device__ __forceinline__ static void fetch_matrix(cell_smem<Part> to, const void *from)
    {
        constexpr int each = 16 / (int)sizeof(Part), line = Columns / each, count = C * line;
        CELL_UNROLL
        for (int i = 0; i < (count + threads - 1) / threads; i++) {
            const int n = cell_thread() + i * threads;
            if (count % threads == 0 || n < count)
                cell_cp_async<16>(to + (n / line * cell_chain_pitch<Part>(Columns) + n % line * each),
                                  (const Part *)from + n * each);
        }
    }
    __device__ __forceinline__ static void fetch_floats(cell_smem<float> to, const void *from, int count)
    {
        for (int n = cell_thread() * 4; n < count; n += threads * 4)
            cell_cp_async<16>(to + n, (const float *)from + n);
    }
    __device__ __forceinline__ void fetch_wide(cell_smem<Part> to, const unsigned char *from, int matrix,
                                               const cell_rows &raw, const cell_chunk_rows &rows) const
    {
        if constexpr (record::by_key)
            fetch_matrix<K>(to, from + matrix);
        else
            cell_chunk_fetch_rows<M, K, threads>(to, raw, rows, 0, x.keys);
    }

    __device__ __forceinline__ void fetch_for_state(int64_t chunk, cell_smem<Part> to,
                                                    cell_smem<float> to_floats) const
    {
        const cell_chunk_rows rows = cell_chunk_rows_of(x, chunk);
        const unsigned char *const from = x.records + chunk * record::bytes;
        if constexpr (u != 0) {
            fetch_wide(to + at_w(), from, record::w, x.addition[0].weight.vector, rows);
            fetch_matrix<K>(to + at_x(), from + record::x);
        }
        CELL_UNROLL
        for (int n = u; n < u * M::additions; n++)
            fetch_matrix<C>(to + at_l(n), from + record::l(n));
        CELL_UNROLL
        for (int n = u; n < M::additions; n++)
            fetch_wide(to + at_e(n), from, record::e(n), x.addition[n].column.vector, rows);
        CELL_UNROLL
        for (int n = 0; n < M::additions; n++)
            if (M::known >> n & 1) {
                const cell_chunk_vector &z = x.addition[n].known;
                cell_chunk_fetch_rows<M, V, threads>(to + at_z(n), z.vector, rows, first, x.known_values());
                if (base::numbered(z.number) && cell_thread() < C)
                    to_floats[at_z_number(n) + cell_thread()] =
                        cell_chunk_number<M>(z.number, rows, cell_thread());
            }
        fetch_floats(to_floats, from + record::w_number, numbers);
    }
    __device__ __forceinline__ void fetch_for_reads(int64_t chunk, cell_smem<Part> to,
                                                    cell_smem<float> to_floats) const
    {
        const cell_chunk_rows rows = cell_chunk_rows_of(x, chunk);
        const unsigned char *const from = x.records + chunk * record::bytes;
        CELL_UNROLL
        for (int r = 0; r < M::reads; r++) {
            fetch_wide(to + at_q(r), from, record::q(r), x.read[r].vector, rows);
            if constexpr (u != 0)
                fetch_matrix<C>(to + at_p(r), from + record::p(r));
            CELL_UNROLL
            for (int n = u; n < M::additions; n++)
                fetch_matrix<C>(to + at_a(r, n), from + record::a(r, n));
            if constexpr (!record::by_key)
                fetch_floats(to_floats + at_q_number(r), from + record::q_number(r), C);
        }
    }
    // Turn 0 is the first chunk's.
    __device__ __forceinline__ void fetch(int64_t turn, int64_t chunks, int stage) const
    {
        const cell_smem<Part> to = this->parts + stage * stage_parts;
        const cell_smem<float> to_floats = this->floats + stage * stage_floats;
        if (turn < chunks)
            fetch_for_state(x.begin + turn, to, to_floats);
        if (turn > 0 && turn <= chunks && given())
            fetch_for_reads(x.begin + turn - 1, to, to_floats);
    }
    // Whether o or S of each chunk is asked for.
    __device__ __forceinline__ bool given() const
    {
        bool any = x.saved;
        CELL_UNROLL
        for (int r = 0; r < M::reads; r++)
            any |= x.result[r].at != nullptr;
        return any;
    }

    // What the first warp leaves.

    static constexpr int of_corrections = K / depth, of_known = of_corrections + u * (C / depth);
    __device__ __forceinline__ void leave(int step, const A &a) const
    {
        uint32_t four[4];
        chain::to_words(four, a);
        cell_store_vec<4>(mine + (step * 32 + cell_lane()) * 4, four);
    }
    __device__ __forceinline__ void take(A &a, int step) const
    {
        uint32_t four[4];
        cell_shared_words(four, mine + (step * 32 + cell_lane()) * 4);
        chain::of_words(a, four);
    }

    // The first warp's part of a chunk.

    __device__ __forceinline__ void load_known(A &a, int n, int s) const
    {
        chain::across(a, part + (at_z(n) + s * known_pitch + this->own()), known_pitch);
        if (base::numbered(x.addition[n].known.number))
            chain::scale(a, number + (at_z_number(n) + s));
    }

    // R' of all rows, as A of steps along them.
    __device__ __forceinline__ void correct(A (&r)[C / depth]) const
    {
        float sum[C / 8][4] = {};
        CELL_UNROLL
        for (int k = 0; k < K / depth; k++) {
            A s;
            chain::of_sums(s, state + k * tiles);
            leave(k, s);
            this->template multiply<C, false>(sum, s, part + (at_w() + k * depth), wide_pitch);
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
                    cell_load_vec<2>(by,
                                     number + (at_number(record::w_number) + (j * tiles + i) * 8 + pair()));
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
                this->template multiply<C, false>(sum, z, part + (at_l(n) + s * depth), square_pitch,
                                                  s * depth / 16 * 16);
            }
        }
        CELL_UNROLL
        for (int j = 0; j < C / depth; j++) {
            chain::of_sums(r[j], sum + j * tiles);
            leave(of_corrections + j, r[j]);
        }
    }

    __device__ __forceinline__ void update(const A *corrections)
    {
        this->decay();
        CELL_UNROLL
        for (int s = 0; s < C / depth; s++) {
            if constexpr (u != 0)
                this->template multiply<K, true>(state, corrections[s],
                                                 part + (at_x() + s * depth * wide_pitch), wide_pitch);
            CELL_UNROLL
            for (int n = u; n < M::additions; n++) {
                A z;
                load_known(z, n, s * depth);
                leave(of_known + (n - u) * (C / depth) + s, z);
                if constexpr (!record::by_key)
                    chain::scale(z, number + (at_number(record::e_number(n)) + s * depth));
                this->template multiply<K, true>(state, z, part + (at_e(n) + s * depth * wide_pitch),
                                                 wide_pitch);
            }
        }
    }

    __device__ __forceinline__ void step()
    {
        A corrections[u ? C / depth : 1] = {};
        if constexpr (u != 0)
            correct(corrections);
        else {
            CELL_UNROLL
            for (int k = 0; k < K / depth; k++) {
                A s;
                chain::of_sums(s, state + k * tiles);
                leave(k, s);
            }
        }
        update(corrections);
    }

    // The other's.

    __device__ __forceinline__ void save(int64_t chunk) const
    {
        Part *const to = x.saved + (chunk * x.values + first + this->own()) * x.keys;
        const bool whole = sizeof(Part) == 2 && x.keys == K && first + this->own() + 16 <= x.values &&
                           (uintptr_t)to % 16 == 0;
        CELL_UNROLL
        for (int k = 0; k < K / depth; k++) {
            A s;
            float v[tiles][4];
            take(s, k);
            chain::to_sums(v, s);
            if constexpr (sizeof(Part) == 2)
                if (whole) {
                    cell_chain_store(to + k * depth, K, v);
                    continue;
                }
            CELL_UNROLL
            for (int i = 0; i < tiles * 4; i++) {
                const int64_t key = k * depth + i / 4 * 8 + pair() + i % 2,
                              row = cell_lane() / 4 + i / 2 % 2 * 8;
                if (key < x.keys && first + this->own() + row < x.values)
                    cell_store(to + row * x.keys + key, v[i / 4][i % 4]);
            }
        }
    }

    __device__ __forceinline__ void read(int r, const cell_chunk_rows &rows) const
    {
        float sum[C / 16][2][4] = {};
        CELL_UNROLL
        for (int k = 0; k < K / depth; k++) {
            A s;
            take(s, k);
            this->multiply_rows(sum, part + (at_q(r) + k * depth), wide_pitch, s);
        }
        if constexpr (!record::by_key) {
            CELL_UNROLL
            for (int t = 0; t < C / 16; t++) {
                CELL_UNROLL
                for (int i = 0; i < 2; i++) {
                    const float by = number[at_q_number(r) + t * 16 + i * 8 + cell_lane() / 4];
                    CELL_UNROLL
                    for (int h = 0; h < 4; h++)
                        sum[t][h / 2][i * 2 + h % 2] *= by;
                }
            }
        }
        CELL_UNROLL
        for (int s = 0; s < C / depth; s++) {
            const int begin = s * depth / 16 * 16;
            if constexpr (u != 0) {
                A correction;
                take(correction, of_corrections + s);
                this->multiply_rows(sum, part + (at_p(r) + s * depth), square_pitch, correction, begin);
            }
            CELL_UNROLL
            for (int n = u; n < M::additions; n++) {
                A z;
                take(z, of_known + (n - u) * (C / depth) + s);
                this->multiply_rows(sum, part + (at_a(r, n) + s * depth), square_pitch, z, begin);
            }
        }
        this->store_read(x.result[r], sum, rows);
    }

    // Rows of chunks that have none of the sequence.
    __device__ void clear(int64_t from) const
    {
        for (int r = 0; r < M::reads; r++) {
            const cell_chunk_result &o = x.result[r];
            for (int64_t n = from * V + cell_thread(); o.at && n < x.steps * V; n += threads)
                if (first + n % V < x.values)
                    this->put(o, n / V, first + n % V, 0);
        }
    }

    __device__ void walk()
    {
        const int64_t last = cell_chunk_last(x), chunks = last > x.begin ? last - x.begin : 0;
        const bool keeps = cell_warp() < pairs, reads = !keeps && cell_warp() < 2 * pairs;
        if (keeps)
            this->load_state();
        for (int i = 0; i < M::stages - 1; i++) {
            fetch(i, chunks, i);
            cell_cp_async_commit();
        }
        int stage = 0;
        for (int64_t turn = 0; turn <= chunks; turn++) {
            if constexpr (M::stages > 1)
                cell_cp_async_wait<M::stages - 2>();
            cell_barrier();
            fetch(turn + M::stages - 1, chunks, stage ? stage - 1 : M::stages - 1);
            cell_cp_async_commit();
            if constexpr (M::stages == 1) {
                cell_cp_async_wait<0>();
                cell_barrier();
            }
            part = this->parts + stage * stage_parts;
            number = this->floats + stage * stage_floats;
            const int64_t chunk = x.begin + (keeps ? turn : turn - 1);
            mine = words + ((int)(chunk & 1) * pairs + cell_warp() % pairs) * left;
            if (keeps && turn < chunks)
                step();
            if (reads && turn > 0 && given()) {
                CELL_UNROLL
                for (int r = 0; r < M::reads; r++)
                    read(r, cell_chunk_rows_of(x, chunk));
                if (x.saved)
                    save(chunk);
            }
            stage = stage + 1 < M::stages ? stage + 1 : 0;
        }
        cell_cp_async_wait<0>();
        cell_barrier();
        if (keeps && x.to.at)
            this->store_state();
        if (cell_chunk_clears(x))
            clear(cell_chunk_count(x.length, C) * C);
    }
};

#endif
