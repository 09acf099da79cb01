// The walk back over the chunks of a linear recurrence (cell_device_chunk_back.cuh) on tensor cores. It is the
// walk of cell_device_chunk_warps.cuh with other matrices, the chunks in the other order: dS' stands in
// registers, 16 values as rows in each warp, and
//
//     dR'  = dS_C' X' + sum do_r' P_r            where X stands for W, and P_r, do_r for L_n, z_n
//     dS_0' = dS_C' D + dR' W + sum do_r' Q_r    where W stands for X, and Q_r, do_r for E_n, z_n
//
// Guaranteed: dS and dR are sums in f32; as operands, and as they are left for `rest`, they are rounded to Part.
#ifndef CELL_DEVICE_CHUNK_BACK_WARPS_CUH
#define CELL_DEVICE_CHUNK_BACK_WARPS_CUH

template <class M>
struct cell_chunk_back_warps
    : cell_chunk_warps<M, cell_chunk_key_shares<M>(), cell_chunk_walk_threads<M>()> {
    typedef cell_chunk_warps<M, cell_chunk_key_shares<M>(), cell_chunk_walk_threads<M>()> walk_on;
    static constexpr int threads = cell_chunk_walk_threads<M>();
    typedef typename M::Part Part;
    typedef typename M::Store Store;
    typedef typename walk_on::record record;
    typedef typename walk_on::chain chain;
    typedef typename chain::A A;
    typedef typename chain::B B;
    static constexpr int C = M::rows, K = M::keys, V = M::values, u = M::corrected;
    static constexpr int depth = chain::depth, tiles = chain::tiles;
    static constexpr int square_pitch = walk_on::square_pitch, wide_pitch = walk_on::wide_pitch,
                         known_pitch = walk_on::known_pitch, numbers = walk_on::numbers;

    // A stage: P_r, then X and W where corrected, Q_r, do_r; and the record's numbers.
    static constexpr int squares = u * M::reads, wides = 2 * u + M::reads;
    static constexpr int stage_parts =
        squares * C * square_pitch + wides * C * wide_pitch + M::reads * C * known_pitch;

    __host__ __device__ static constexpr int64_t smem()
    {
        return cell_carve_bytes<Part>(M::stages * stage_parts) + cell_carve_bytes<float>(M::stages * numbers);
    }

    const cell_chunk_backward<M> &g;
    using walk_on::first;
    using walk_on::number;
    using walk_on::own;
    using walk_on::own_key;
    using walk_on::own_keys;
    using walk_on::pair;
    using walk_on::part;
    using walk_on::state;
    using walk_on::value;

    // `backward`: g.of with what the walk starts from, leaves and saves.
    __device__ __forceinline__ cell_chunk_back_warps(const cell_chunk_backward<M> &of, const cell_chunk<M> &backward,
                                                     int64_t first_value)
        : walk_on(backward, first_value, M::stages * stage_parts, M::stages * numbers), g(of)
    {
    }

    __device__ __forceinline__ static constexpr int at_p(int r) { return r * C * square_pitch; }
    __device__ __forceinline__ static constexpr int at_wide(int i)
    {
        return squares * C * square_pitch + i * C * wide_pitch;
    }
    static constexpr int x_at = at_wide(0), w_at = at_wide(1);
    __device__ __forceinline__ static constexpr int at_q(int r) { return at_wide(2 * u + r); }
    __device__ __forceinline__ static constexpr int at_cotangent(int r)
    {
        return at_wide(wides) + r * C * known_pitch;
    }

    __device__ __forceinline__ void fetch(int64_t chunk, int stage) const
    {
        const cell_smem<Part> to = this->parts + stage * stage_parts;
        const cell_smem<float> to_floats = this->floats + stage * numbers;
        const cell_chunk_rows rows = cell_chunk_rows_of(g.of, chunk);
        const unsigned char *const from = g.of.records + chunk * record::bytes;
        if constexpr (u != 0) {
            this->template fetch_matrix<K>(to + x_at, (const Part *)(from + record::x));
            if constexpr (record::by_key)
                this->template fetch_matrix<K>(to + w_at, (const Part *)(from + record::w));
            else
                cell_chunk_fetch_rows<M, K, threads>(to + w_at, g.of.addition[0].weight.vector, rows, 0,
                                                     g.of.keys);
        }
        CELL_UNROLL
        for (int r = 0; r < M::reads; r++) {
            if constexpr (u != 0)
                this->template fetch_matrix<C>(to + at_p(r), (const Part *)(from + record::p(r)));
            if constexpr (record::by_key)
                this->template fetch_matrix<K>(to + at_q(r), (const Part *)(from + record::q(r)));
            else
                cell_chunk_fetch_rows<M, K, threads>(to + at_q(r), g.of.read[r].vector, rows, 0, g.of.keys);
            cell_chunk_fetch_rows<M, V, threads>(to + at_cotangent(r), g.cotangent[r], rows, first,
                                        g.of.known_values());
        }
        CELL_UNROLL
        for (int i = 0; i < (numbers / 4 + threads - 1) / threads; i++) {
            const int n = cell_thread() + i * threads;
            if (n < numbers / 4)
                cell_cp_async<16>(to_floats + n * 4, (const float *)(from + record::w_number) + n * 4);
        }
    }

    // dR' of all rows; corrections: as A of steps along them, with the numbers of W.
    __device__ __forceinline__ void correct(int64_t chunk, A *corrections)
    {
        float sum[C / 8][4] = {};
        CELL_UNROLL
        for (int k = 0; k < K / depth; k++) {
            A s;
            chain::of_sums(s, state + k * tiles);
            this->template multiply<C, false>(sum, s, part + (x_at + k * depth), wide_pitch);
        }
        CELL_UNROLL
        for (int r = 0; r < M::reads; r++) {
            CELL_UNROLL
            for (int s = 0; s < C / depth; s++) { // row s of P_r has nothing behind column s
                A y;
                chain::across(y, part + (at_cotangent(r) + s * depth * known_pitch + own()), known_pitch);
                CELL_UNROLL
                for (int j = 0; j < s * depth / 16 + 1; j++) {
                    B b;
                    chain::across(b, part + (at_p(r) + s * depth * square_pitch + j * 16), square_pitch);
                    CELL_UNROLL
                    for (int h = 0; h < 2; h++)
                        chain::multiply(sum[j * 2 + h], y, b.half[h]);
                }
            }
        }
        if (g.corrections)
            save(g.corrections + (chunk * g.of.values + first) * C, sum);
        CELL_UNROLL
        for (int j = 0; j < C / 8; j++) {
            float by[2] = {1, 1};
            if constexpr (!record::by_key)
                cell_load_vec<2>(by, number + (walk_on::at_number(record::w_number) + j * 8 + pair()));
            CELL_UNROLL
            for (int e = 0; e < 4; e++)
                sum[j][e] *= by[e % 2];
        }
        CELL_UNROLL
        for (int s = 0; s < C / depth; s++)
            chain::of_sums(corrections[s], sum + s * tiles);
    }

    // dR' to lines of C elements for each value.
    __device__ __forceinline__ void save(Part *to, const float (*sum)[4]) const
    {
        if constexpr (sizeof(Part) == 2 && C % 32 == 0)
            if ((uintptr_t)to % 16 == 0) {
                CELL_UNROLL
                for (int j = 0; j < C / 8; j += 4) {
                    CELL_UNROLL
                    for (int half = 0; half < 2; half++) {
                        uint32_t words[4];
                        CELL_UNROLL
                        for (int i = 0; i < 4; i++)
                            words[i] = cell_pack<Part>(sum[j + i][half * 2], sum[j + i][half * 2 + 1]);
                        cell_quad_turn(words);
                        if (first + value(half * 2) < g.of.values)
                            cell_store_words(to + value(half * 2) * C + (j + cell_lane() % 4) * 8, words);
                    }
                }
                return;
            }
        CELL_UNROLL
        for (int j = 0; j < C / 8; j++) {
            CELL_UNROLL
            for (int i = 0; i < 4; i++)
                if (first + value(i) < g.of.values)
                    cell_store(to + value(i) * C + j * 8 + pair() + i % 2, sum[j][i]);
        }
    }

    __device__ __forceinline__ void step(int64_t chunk)
    {
        if (g.ends)
            this->save_state(chunk);
        A corrections[u ? C / depth : 1] = {};
        if constexpr (u != 0)
            correct(chunk, corrections);
        this->template decay<true>();
        CELL_UNROLL
        for (int s = 0; s < C / depth; s++) {
            if constexpr (u != 0)
                this->template multiply<own_keys, true>(
                    state, corrections[s], part + (w_at + s * depth * wide_pitch + own_key), wide_pitch);
            CELL_UNROLL
            for (int r = 0; r < M::reads; r++) {
                A y;
                chain::across(y, part + (at_cotangent(r) + s * depth * known_pitch + own()), known_pitch);
                if constexpr (!record::by_key)
                    chain::scale(y, number + (walk_on::at_number(record::q_number(r)) + s * depth));
                this->template multiply<own_keys, true>(
                    state, y, part + (at_q(r) + s * depth * wide_pitch + own_key), wide_pitch);
            }
        }
    }

    __device__ __forceinline__ void leave() const
    {
        const cell_chunk_state &to = g.first;
        CELL_UNROLL
        for (int j = 0; j < own_keys / 8; j++) {
            CELL_UNROLL
            for (int i = 0; i < 4; i++) {
                const int64_t k = own_key + j * 8 + pair() + i % 2, v = first + value(i);
                if (k < g.of.keys && v < g.of.values)
                    cell_chunk_leave<M>(to, k, v, state[j][i], g.adds);
            }
        }
    }

    __device__ void walk()
    {
        const int64_t begin = g.of.begin, end = cell_chunk_last(g.of);
        const bool works = walk_on::works();
        if (works)
            this->load_state();
        for (int i = 0; i < M::stages - 1; i++) {
            if (end - 1 - i >= begin)
                fetch(end - 1 - i, i);
            cell_cp_async_commit();
        }
        int stage = 0;
        for (int64_t chunk = end - 1; chunk >= begin; chunk--) {
            if constexpr (M::stages > 1)
                cell_cp_async_wait<(M::stages > 1 ? M::stages - 2 : 0)>();
            cell_barrier();
            if (chunk - (M::stages - 1) >= begin)
                fetch(chunk - (M::stages - 1), stage ? stage - 1 : M::stages - 1);
            cell_cp_async_commit();
            if constexpr (M::stages == 1) {
                cell_cp_async_wait<0>();
                cell_barrier();
            }
            part = this->parts + stage * stage_parts;
            number = this->floats + stage * numbers;
            if (works)
                step(chunk);
            stage = stage + 1 < M::stages ? stage + 1 : 0;
        }
        cell_cp_async_wait<0>();
        if (works && cell_chunk_there<M>(g.first))
            leave();
    }
};

#endif
