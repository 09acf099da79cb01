// Linear recurrences whose reads are made apart (cell_chunk_apart, cell_device_chunk.cuh): forward, with the
// equations of that file without corrections,
//
//     S_C = D S_0 + sum E_n' z_n         `walk`, which leaves S_0 of each chunk
//     o_r = Q_r S_0 + sum A_rn z_n       a block for each chunk, and for some values, which makes A_rn itself
//
// So only the sums of S_C stand one behind the other, and a record has numbers alone. On tensor cores, with
// f32 sums; S_0 is rounded to Part where it is an operand or saved, A and z times their numbers once more.
#ifndef CELL_DEVICE_CHUNK_APART_CUH
#define CELL_DEVICE_CHUNK_APART_CUH

// Records: numbers of E_n and Q_r with their windows, and D, by a warp whose lanes have neighbouring rows.
template <class M> struct cell_chunk_numbers {
    typedef cell_chunk_record<M> record;
    static constexpr int C = M::rows, each = C < 32 ? 1 : C / 32, lanes = C / each, threads = 32;
    static constexpr int resident = 1; // blocks that a multiprocessor is to hold
    static_assert(M::together == 1, "only corrections go together");

    const cell_chunk<M> &x;
    const cell_chunk_rows rows;
    unsigned char *const to;
    float gate[each], front, behind; // gates of the lane's rows, those before them and those behind

    __host__ __device__ static constexpr int64_t smem() { return 0; }
    __device__ __forceinline__ cell_chunk_numbers(const cell_chunk<M> &of, int64_t chunk)
        : x(of), rows(cell_chunk_rows_of(of, chunk)), to(of.records + chunk * record::bytes)
    {
    }

    __device__ __forceinline__ static int row(int i) { return cell_lane() * each + i; }

    __device__ __forceinline__ void make_windows()
    {
        float own = 1;
        CELL_UNROLL
        for (int i = 0; i < each; i++) {
            gate[i] = row(i) < rows.valid ? cell_rows_load<M>(x.decay, rows.first + row(i), 0) : 1.0f;
            own *= gate[i];
        }
        float before = own, after = own;
        CELL_UNROLL
        for (int step = 1; step < lanes; step *= 2) {
            const int lane = cell_lane();
            const float lower = cell_shfl(before, (lane - step) & 31),
                        upper = cell_shfl(after, (lane + step) & 31);
            before *= lane >= step ? lower : 1.0f;
            after *= lane + step < lanes ? upper : 1.0f;
        }
        const int lane = cell_lane();
        const float lower = cell_shfl(before, (lane - 1) & 31), upper = cell_shfl(after, (lane + 1) & 31);
        front = lane > 0 ? lower : 1.0f;
        behind = lane + 1 < lanes ? upper : 1.0f;
    }

    // Of the lane's row i: the window from the chunk's start, to a read before the row or behind it; and that
    // from behind the row to the end.
    __device__ __forceinline__ float from_start(int i, bool before) const
    {
        float run = front;
        CELL_UNROLL
        for (int j = 0; j < each; j++)
            if (j < i + !before)
                run *= gate[j];
        return run;
    }
    __device__ __forceinline__ float to_end(int i) const
    {
        float run = behind;
        CELL_UNROLL
        for (int j = 0; j < each; j++)
            if (j > i)
                run *= gate[j];
        return run;
    }

    __device__ __forceinline__ void store(int at, const cell_row_number &of, bool to_the_end,
                                          bool before) const
    {
        CELL_UNROLL
        for (int i = 0; i < each; i++) {
            float n = cell_chunk_number<M>(of, rows, row(i));
            if constexpr (M::decay == 1)
                n *= to_the_end ? to_end(i) : from_start(i, before);
            ((float *)(to + at))[row(i)] = n;
        }
    }

    __device__ void make()
    {
        if (rows.valid == 0)
            return;
        if constexpr (M::decay == 1)
            make_windows();
        if (cell_lane() >= lanes)
            return;
        CELL_UNROLL
        for (int r = 0; r < M::reads; r++)
            store(record::q_number(r), x.read[r].number, false, M::before >> r & 1);
        CELL_UNROLL
        for (int n = 0; n < M::additions; n++)
            store(record::e_number(n), x.addition[n].column.number, true, false);
        if constexpr (M::decay == 1)
            if (cell_lane() == lanes - 1)
                *(float *)(to + record::d) = from_start(each - 1, false);
    }
};

// The walk of states: S' in registers as in cell_device_chunk_warps.cuh. Stages have E_n and z_n, and the
// record's numbers and those of z_n.
template <class M>
struct cell_chunk_states : cell_chunk_warps<M, cell_chunk_key_shares<M>(), CELL_CHUNK_STATES_THREADS> {
    typedef cell_chunk_warps<M, cell_chunk_key_shares<M>(), CELL_CHUNK_STATES_THREADS> base;
    typedef typename M::Part Part;
    typedef cell_chunk_record<M> record;
    typedef typename base::chain chain;
    typedef typename chain::A A;
    static constexpr int C = M::rows, K = M::keys, V = M::values, threads = CELL_CHUNK_STATES_THREADS;
    static constexpr int depth = chain::depth, wide_pitch = base::wide_pitch, known_pitch = base::known_pitch,
                         numbers = base::numbers, own_keys = base::own_keys;
    static constexpr int stage_parts = M::additions * C * (wide_pitch + known_pitch),
                         stage_floats = numbers + M::additions * C;
    static_assert(V / 16 * 32 <= threads, "a warp has 16 values");

    __host__ __device__ static constexpr int64_t smem()
    {
        return cell_carve_bytes<Part>(M::stages * stage_parts) +
               cell_carve_bytes<float>(M::stages * stage_floats);
    }

    using base::at_number;
    using base::first;
    using base::number;
    using base::own_key;
    using base::part;
    using base::state;
    using base::x;

    __device__ __forceinline__ cell_chunk_states(const cell_chunk<M> &of, int64_t first_value)
        : base(of, first_value, M::stages * stage_parts, M::stages * stage_floats)
    {
    }

    __device__ __forceinline__ static constexpr int at_e(int n) { return n * C * wide_pitch; }
    __device__ __forceinline__ static constexpr int at_z(int n)
    {
        return M::additions * C * wide_pitch + n * C * known_pitch;
    }
    __device__ __forceinline__ static constexpr int at_z_number(int n) { return numbers + n * C; }

    // Turn 0 is the first chunk's.
    __device__ __forceinline__ void fetch(int64_t turn, int64_t chunks, int stage) const
    {
        if (turn >= chunks)
            return;
        const cell_smem<Part> to = this->parts + stage * stage_parts;
        const cell_smem<float> to_floats = this->floats + stage * stage_floats;
        const int64_t chunk = x.begin + turn;
        const cell_chunk_rows rows = cell_chunk_rows_of(x, chunk);
        CELL_UNROLL
        for (int n = 0; n < M::additions; n++) {
            const cell_chunk_vector &z = x.addition[n].known;
            cell_chunk_fetch_rows<M, K, threads>(to + at_e(n), x.addition[n].column.vector, rows, 0, x.keys);
            cell_chunk_fetch_rows<M, V, threads>(to + at_z(n), z.vector, rows, first, x.values);
            if (base::numbered(z.number) && cell_thread() < C)
                to_floats[at_z_number(n) + cell_thread()] =
                    cell_chunk_number<M>(z.number, rows, cell_thread());
        }
        const float *const from = (const float *)(x.records + chunk * record::bytes + record::w_number);
        for (int n = cell_thread() * 4; n < numbers; n += threads * 4)
            cell_cp_async<16>(to_floats + n, from + n);
    }

    __device__ __forceinline__ void step(int64_t chunk)
    {
        if (x.saved)
            this->save_state(chunk);
        this->decay();
        CELL_UNROLL
        for (int s = 0; s < C / depth; s++) {
            CELL_UNROLL
            for (int n = 0; n < M::additions; n++) {
                A z;
                chain::across(z, part + (at_z(n) + s * depth * known_pitch + this->own()), known_pitch);
                if (base::numbered(x.addition[n].known.number))
                    chain::scale(z, number + (at_z_number(n) + s * depth));
                chain::scale(z, number + (at_number(record::e_number(n)) + s * depth));
                this->template multiply<own_keys, true>(
                    state, z, part + (at_e(n) + s * depth * wide_pitch + own_key), wide_pitch);
            }
        }
    }

    __device__ void walk()
    {
        const int64_t last = cell_chunk_last(x), chunks = last > x.begin ? last - x.begin : 0;
        const bool works = base::works();
        if (works)
            this->load_state();
        for (int i = 0; i < M::stages - 1; i++) {
            fetch(i, chunks, i);
            cell_cp_async_commit();
        }
        int stage = 0;
        for (int64_t turn = 0; turn < chunks; turn++) {
            if constexpr (M::stages > 1)
                cell_cp_async_wait<(M::stages > 1 ? M::stages - 2 : 0)>();
            cell_barrier();
            fetch(turn + M::stages - 1, chunks, stage ? stage - 1 : M::stages - 1);
            cell_cp_async_commit();
            if constexpr (M::stages == 1) {
                cell_cp_async_wait<0>();
                cell_barrier();
            }
            part = this->parts + stage * stage_parts;
            number = this->floats + stage * stage_floats;
            if (works)
                step(x.begin + turn);
            stage = stage + 1 < M::stages ? stage + 1 : 0;
        }
        cell_cp_async_wait<0>();
        if (works && x.to.at)
            this->store_state();
    }
};

// o of a chunk's rows and of V values from `first` on: a warp has 16 rows.
template <class M> struct cell_chunk_reads : cell_chunk_scores<M> {
    typedef cell_chunk_scores<M> base;
    typedef typename M::Part Part;
    typedef typename M::Store Store;
    typedef cell_chain<Part> chain;
    typedef typename chain::A A;
    typedef typename chain::B B;
    static constexpr int C = M::rows, K = M::keys, V = M::read_values, threads = CELL_CHUNK_THREADS;
    static constexpr int depth = chain::depth, tiles = chain::tiles, wide_pitch = base::wide_pitch,
                         known_pitch = cell_chain_pitch<Part>(V);
    // Behind what scores take: S_0 [V][wide_pitch], z_n [C][known_pitch]; numbers of z_n.
    static constexpr int held = V * wide_pitch + M::additions * C * known_pitch;
    static_assert(V % 16 == 0 && C / 16 * 32 <= threads, "a warp has 16 rows");

    __host__ __device__ static constexpr int64_t smem()
    {
        return base::smem() + cell_carve_bytes<Part>(held) + cell_carve_bytes<float>(M::additions * C);
    }
    // Blocks that a multiprocessor is to hold, of its 228 KiB, with 1 KiB more for each.
    static constexpr int resident = smem() <= 44 << 10   ? 5
                                    : smem() <= 56 << 10 ? 4
                                    : smem() <= 75 << 10 ? 3
                                    : smem() <= 113 << 10 ? 2
                                                          : 1;

    using base::own;
    using base::rows;
    using base::x;
    const int64_t chunk, first;
    cell_smem<Part> state, known;
    cell_smem<float> known_number;

    __device__ __forceinline__ cell_chunk_reads(const cell_chunk<M> &of, int64_t chunk_of,
                                                int64_t first_value)
        : base(of, chunk_of), chunk(chunk_of), first(first_value)
    {
        auto cursor = cell_shared();
        cell_carve<Part>(cursor, base::parts);
        cell_carve<float>(cursor, base::floats());
        state = cell_carve<Part>(cursor, held);
        known = state + V * wide_pitch;
        known_number = cell_carve<float>(cursor, M::additions * C);
    }

    __device__ __forceinline__ void fetch_all() const
    {
        cell_chunk_fetch_dense<M, V, K, threads>({state, wide_pitch},
                                                 x.saved + (chunk * x.values + first) * x.keys, x.keys,
                                                 x.values - first, x.keys);
        CELL_UNROLL
        for (int n = 0; n < M::additions; n++)
            cell_chunk_fetch_rows<M, V>(known + n * C * known_pitch, x.addition[n].known.vector, rows, first,
                                        x.values);
        this->fetch(); // on their way before a number is waited for
        if (cell_thread() < C) {
            CELL_UNROLL
            for (int n = 0; n < M::additions; n++)
                known_number[n * C + cell_thread()] =
                    cell_chunk_number<M>(x.addition[n].known.number, rows, cell_thread());
        }
    }

    // += Q S_0, of the warp's rows.
    __device__ __forceinline__ void add_state(float (*sum)[4], int r) const
    {
        const cell_smem<Part> q = this->place(base::reader(r)) + own() * 16 * wide_pitch;
        CELL_UNROLL_BY(4)
        for (int k = 0; k < K; k += depth) {
            A a;
            chain::rows(a, q + k, wide_pitch);
            CELL_UNROLL
            for (int j = 0; j < V / 16; j++) {
                B b;
                chain::rows(b, state + (j * 16 * wide_pitch + k), wide_pitch);
                CELL_UNROLL
                for (int h = 0; h < 2; h++)
                    chain::multiply(sum[j * 2 + h], a, b.half[h]);
            }
        }
        CELL_UNROLL
        for (int half = 0; half < 2; half++) {
            const float by = number_of(r, own() * 16 + base::lane_row(half * 2));
            CELL_UNROLL
            for (int j = 0; j < V / 8; j++) {
                CELL_UNROLL
                for (int e = 0; e < 2; e++)
                    sum[j][half * 2 + e] *= by;
            }
        }
    }
    // Of row t: q's number and its window from the chunk's start.
    __device__ __forceinline__ float number_of(int r, int t) const
    {
        const int behind = M::before >> r & 1 ? cell_chunk_front<M>(t) : t + 1; // the window's last gate
        float n = this->number[base::reader(r) * C + t];
        if constexpr (M::decay == 1)
            n *= behind ? (float)this->start[behind - 1] : 1.0f;
        return n;
    }

    // += A_rn z_n
    __device__ __forceinline__ void add_known(float (*sum)[4], int r, int n) const
    {
        float score[C / 8][4];
        this->score(score, base::reader(r), base::column(n), M::before >> r & 1);
        const cell_smem<Part> z = known + n * C * known_pitch;
        CELL_UNROLL
        for (int s = 0; s < C / depth; s++) {
            if (s * depth / 16 > own())
                continue;
            A a;
            CELL_UNROLL
            for (int j = 0; j < tiles; j++) {
                float by[2];
                cell_load_vec<2>(by, known_number + (n * C + (s * tiles + j) * 8 + base::lane_column(0)));
                CELL_UNROLL
                for (int i = 0; i < 4; i++)
                    score[s * tiles + j][i] *= by[i % 2];
            }
            chain::of_sums(a, score + s * tiles);
            CELL_UNROLL
            for (int j = 0; j < V / 16; j++) {
                B b;
                chain::across(b, z + (s * depth * known_pitch + j * 16), known_pitch);
                CELL_UNROLL
                for (int h = 0; h < 2; h++)
                    chain::multiply(sum[j * 2 + h], a, b.half[h]);
            }
        }
    }

    // Rows behind the sequence's are 0.
    __device__ __forceinline__ void store(int r, float (*sum)[4]) const
    {
        const cell_chunk_result &o = x.result[r];
        const int left = (int)(x.steps - rows.first < C ? x.steps - rows.first : C);
        CELL_UNROLL
        for (int j = 0; j < V / 8; j++) {
            CELL_UNROLL
            for (int i = 0; i < 4; i++)
                if (own() * 16 + base::lane_row(i) >= rows.valid)
                    sum[j][i] = 0;
        }
        Store *const to = (Store *)o.at + rows.first * o.row + first;
        const bool whole = sizeof(Store) == 2 && !o.real && o.element == 1 && o.row % 8 == 0 &&
                           (uintptr_t)to % 16 == 0 && own() * 16 + 16 <= left;
        CELL_UNROLL
        for (int j = 0; j < V / 16; j++) {
            if constexpr (sizeof(Store) == 2)
                if (whole && first + j * 16 + 16 <= x.values) {
                    cell_chain_store(to + own() * 16 * o.row + j * 16, o.row, sum + j * 2);
                    continue;
                }
            CELL_UNROLL
            for (int i = 0; i < 8; i++) {
                const int t = own() * 16 + base::lane_row(i % 4);
                const int64_t v = first + j * 16 + i / 4 * 8 + base::lane_column(i % 4),
                              at = (rows.first + t) * o.row + v * o.element;
                if (t >= left || v >= x.values)
                    continue;
                if (o.real)
                    ((float *)o.at)[at] = sum[j * 2 + i / 4][i % 4];
                else
                    cell_store((Store *)o.at + at, sum[j * 2 + i / 4][i % 4]);
            }
        }
    }

    __device__ void make()
    {
        const bool works = own() < C / 16;
        if (rows.valid != 0) {
            fetch_all();
            cell_cp_async_wait<0>();
            cell_barrier();
            this->make_ends();
            cell_barrier();
        }
        CELL_UNROLL_BY(1)
        for (int r = 0; r < M::reads; r++) {
            float sum[V / 8][4] = {};
            if (!works || !x.result[r].at)
                continue;
            if (rows.valid != 0) {
                add_state(sum, r);
                CELL_UNROLL_BY(1)
                for (int n = 0; n < M::additions; n++)
                    add_known(sum, r, n);
            }
            store(r, sum);
        }
    }
};

// Grid: a block of CELL_CHUNK_THREADS for each M::read_values values of each chunk of each head of each
// sequence; cell_chunk_reads<M>::smem() bytes. first: the block's first value. Behind the walk, of which it
// takes `saved`.
template <class M> __device__ void cell_chunk_read(const cell_chunk<M> &x, int64_t chunk, int64_t first)
{
    if constexpr (cell_chunk_apart<M>())
        cell_chunk_reads<M>(x, chunk, first).make();
}

#endif
