// The walk over the chunks of a linear recurrence, from records of `prep` (cell_device_chunk.cuh), by one
// block for one block of values of a head.
//
// Out: o of all rows, S of each chunk's start where `saved` is given, and S behind the last row. On tensor
// cores where Real is float (cell_device_chunk_pairs.cuh, or of states only cell_device_chunk_apart.cuh),
// else here.
#ifndef CELL_DEVICE_CHUNK_WALK_CUH
#define CELL_DEVICE_CHUNK_WALK_CUH

// Shared memory: S [keys][values], R [rows][values] where corrected, z of each addition that has one
// [rows][values], of Real.
template <class M> struct cell_chunk_plain {
    typedef typename M::Real R;
    typedef typename M::Part Part;
    typedef cell_chunk_record<M> record;
    static constexpr int C = M::rows, V = M::values, threads = CELL_CHUNK_THREADS;

    __host__ __device__ static constexpr int64_t smem()
    {
        return cell_carve_bytes<R>(M::keys * V) + (M::additions + M::corrected) * cell_carve_bytes<R>(C * V);
    }

    const cell_chunk<M> &x;
    int64_t first;             // value of the call
    const unsigned char *from; // the chunk's record
    cell_chunk_rows rows;
    cell_smem<R> state, correction, known[M::additions];

    __device__ __forceinline__ cell_chunk_plain(const cell_chunk<M> &of, int64_t first_value)
        : x(of), first(first_value)
    {
        auto cursor = cell_shared();
        state = cell_carve<R>(cursor, M::keys * V);
        if constexpr (record::corrections != 0)
            correction = cell_carve<R>(cursor, C * V);
        for (int n = 0; n < M::additions; n++)
            known[n] = cell_carve<R>(cursor, C * V);
    }

    __device__ __forceinline__ R element(int matrix, int at) const
    {
        return cell_load<R>((const Part *)(from + matrix) + at);
    }
    __device__ __forceinline__ R number(int numbers, int t) const { return ((const R *)(from + numbers))[t]; }
    __device__ __forceinline__ bool given(int n) const { return M::known >> n & 1; }

    // Rows of W, Q_r, E_n: the record's, or the caller's vectors, which the record's numbers belong to.
    __device__ __forceinline__ R wide(int matrix, const cell_rows &raw, int t, int k) const
    {
        if constexpr (record::by_key)
            return element(matrix, t * M::keys + k);
        else
            return cell_chunk_load<M>(raw, rows, t, k, x.keys);
    }
    __device__ __forceinline__ R factor(int numbers, int t) const
    {
        if constexpr (record::by_key)
            return 1;
        else
            return number(numbers, t);
    }

    __device__ void load_state()
    {
        const cell_chunk_state &s = x.from;
        for (int n = cell_thread(); n < M::keys * V; n += CELL_CHUNK_THREADS) {
            const int64_t k = n / V, v = first + n % V;
            R value = x.alone && k == v ? 1 : 0;
            if (cell_chunk_there<M>(s) && k < x.keys && v < x.values)
                value = cell_chunk_state_load<M>(s, k, v);
            state[n] = value;
        }
    }

    __device__ void store_state()
    {
        const cell_chunk_state &s = x.to;
        if (!cell_chunk_there<M>(s))
            return;
        for (int n = cell_thread(); n < M::keys * V; n += CELL_CHUNK_THREADS) {
            const int64_t k = n / V, v = first + n % V;
            if (k < x.keys && v < x.values)
                cell_chunk_state_store<M>(s, k, v, state[n]);
        }
    }

    __device__ void save_state(int64_t chunk)
    {
        for (int n = cell_thread(); n < M::keys * V; n += CELL_CHUNK_THREADS) {
            const int64_t k = n % M::keys, v = n / M::keys;
            if (k < x.keys && first + v < x.values)
                cell_store(x.saved + (chunk * x.values + first + v) * x.keys + k, (R)state[k * V + v]);
        }
    }

    __device__ void load_known()
    {
        for (int a = 0; a < M::additions; a++)
            for (int n = cell_thread(); given(a) && n < C * V; n += CELL_CHUNK_THREADS) {
                const cell_chunk_vector &z = x.addition[a].known;
                const int t = n / V;
                const R v = cell_chunk_load<M>(z.vector, rows, t, first + n % V, x.known_values());
                known[a][n] = v * cell_chunk_number<M>(z.number, rows, t);
            }
    }

    // R = z_0 + W S_0 + sum L_n z_n
    __device__ void correct()
    {
        cell_patches<R, C, V>([&](auto &patch) {
            patch.add(
                0, M::keys,
                [&](int t, int k) -> R { return wide(record::w, x.addition[0].weight.vector, t, k); },
                [&](int k, int v) -> R { return state[k * V + v]; });
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) {
                    patch.sum[i][j] *= factor(record::w_number, patch.row(i));
                    if (given(0))
                        patch.sum[i][j] += known[0][patch.row(i) * V + patch.column(j)];
                }
            for (int n = 1; n < M::additions; n++)
                patch.add(
                    0, C, [&](int t, int s) -> R { return element(record::l(n), t * C + s); },
                    [&](int s, int v) -> R { return known[n][s * V + v]; });
            patch.store([&](int t, int v, R sum) { correction[t * V + v] = sum; });
        });
    }

    __device__ __forceinline__ void put(const cell_chunk_result &o, int64_t t, int64_t v, R value) const
    {
        const int64_t at = t * o.row + v * o.element;
        if (!o.at || t >= x.steps || v >= x.values)
            return;
        if (o.real)
            ((R *)o.at)[at] = value;
        else
            cell_store((typename M::Store *)o.at + at, value);
    }

    // o_r = Q_r S_0 + P_r R + sum A_rn z_n
    __device__ void read(int r)
    {
        if (!x.result[r].at)
            return;
        cell_patches<R, C, V>([&](auto &patch) {
            patch.add(
                0, M::keys, [&](int t, int k) -> R { return wide(record::q(r), x.read[r].vector, t, k); },
                [&](int k, int v) -> R { return state[k * V + v]; });
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++)
                    patch.sum[i][j] *= factor(record::q_number(r), patch.row(i));
            if constexpr (record::corrections != 0)
                patch.add(
                    0, C, [&](int t, int s) -> R { return element(record::p(r), t * C + s); },
                    [&](int s, int v) -> R { return correction[s * V + v]; });
            for (int n = record::corrections; n < M::additions; n++)
                patch.add(
                    0, C, [&](int t, int s) -> R { return element(record::a(r, n), t * C + s); },
                    [&](int s, int v) -> R { return known[n][s * V + v]; });
            patch.store([&](int t, int v, R sum) {
                put(x.result[r], rows.first + t, first + v, t < rows.valid ? sum : (R)0);
            });
        });
    }

    __device__ void clear(int r)
    {
        for (int n = cell_thread(); n < C * V; n += CELL_CHUNK_THREADS)
            put(x.result[r], rows.first + n / V, first + n % V, 0);
    }

    // += D S_0 of the patch's elements: nothing else of S_0 is read, and keys of two states are neighbours.
    template <class Patch> __device__ __forceinline__ void keep(Patch &patch) const
    {
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                const int k = patch.row(i), v = patch.column(j);
                R kept = state[k * V + v];
                if constexpr (M::decay == 3)
                    kept = number(record::d, k % 2 * 2) * state[k / 2 * 2 * V + v] +
                           number(record::d, k % 2 * 2 + 1) * state[(k / 2 * 2 + 1) * V + v];
                else if constexpr (M::decay != 0)
                    kept *= number(record::d, record::by_key ? k : 0);
                patch.sum[i][j] += kept;
            }
    }

    // S_C = D S_0 + X' R + sum E_n' z_n
    __device__ void update()
    {
        cell_patches<R, M::keys, V>([&](auto &patch) {
            if constexpr (record::corrections != 0)
                patch.add(
                    0, C, [&](int k, int s) -> R { return element(record::x, s * M::keys + k); },
                    [&](int s, int v) -> R { return correction[s * V + v]; });
            for (int n = record::corrections; n < M::additions; n++)
                patch.add(
                    0, C,
                    [&](int k, int s) -> R {
                        return factor(record::e_number(n), s) *
                               wide(record::e(n), x.addition[n].column.vector, s, k);
                    },
                    [&](int s, int v) -> R { return known[n][s * V + v]; });
            keep(patch);
            patch.store([&](int k, int v, R sum) { state[k * V + v] = sum; });
        });
    }

    __device__ void step(int64_t chunk)
    {
        rows = cell_chunk_rows_of(x, chunk);
        from = x.records + chunk * record::bytes;
        if (rows.valid == 0) {
            for (int r = 0; r < M::reads; r++)
                clear(r);
            return;
        }
        load_known();
        cell_barrier();
        if (x.saved)
            save_state(chunk);
        if constexpr (record::corrections != 0) {
            correct();
            cell_barrier();
        }
        for (int r = 0; r < M::reads; r++)
            read(r);
        cell_barrier();
        update();
        cell_barrier();
    }

    __device__ void walk()
    {
        load_state();
        cell_barrier();
        const int64_t all = cell_chunk_count(x.steps, C), end = cell_chunk_clears(x) ? all : x.end;
        for (int64_t chunk = x.begin; chunk < end; chunk++)
            step(chunk);
        store_state();
    }
};

template <class M> struct cell_chunk_states;

// 0: on tensor cores, 1: here, 2: of states only
template <class M, int Kind = cell_chunk_apart<M>() ? 2 : sizeof(typename M::Real) == 8>
struct cell_chunk_walker;
template <class M> struct cell_chunk_walker<M, 0> : cell_chunk_pairs<M> {
    using cell_chunk_pairs<M>::cell_chunk_pairs;
};
template <class M> struct cell_chunk_walker<M, 1> : cell_chunk_plain<M> {
    using cell_chunk_plain<M>::cell_chunk_plain;
};
template <class M> struct cell_chunk_walker<M, 2> : cell_chunk_states<M> {
    using cell_chunk_states<M>::cell_chunk_states;
};

// Grid: a block of cell_chunk_walker<M>::threads for each M::values values of each head of each sequence;
// cell_chunk_walker<M>::smem() bytes. first: the block's first value.
template <class M> __device__ void cell_chunk_walk(const cell_chunk<M> &x, int64_t first)
{
    cell_chunk_walker<M>(x, first).walk();
}

#endif
