// Gradients of the operands of a linear recurrence (cell_device_chunk.cuh), one chunk by each block, behind
// `back` (cell_device_chunk_back.cuh), from S_0 and dS_C of the chunk and the rows dR.
//
// A reader f of the state is a read r, with y_f = do_r and f = q_r, or the correction, with y_f = dR and f =
// w; it sees S before its row or behind it. With d_n the rows that are added, z_n or, of the correction, d_0
// = F R:
//
//     dA_fn = y_f d_n' where f sees the row, else 0        A_fn = f G c_n
//     dz_0  = dR            dz_n = sum A_fn' y_f + E_n dS_C
//     df    = (y_f S_0') o G[t, start]  + sum_n (dA_fn o G) c_n
//     dc_n  = (d_n dS_C') o G[end, s]   + sum_f (dA_fn o G)' f
//
// The rows of the correction obey d = z + W S_0 + L d: so their adjoint dR is that of L d too, and dL is dR
// d' as if L were the scores of a read. Neither F nor P nor X needs an adjoint.
//
// Gates: let Y[t, s] be the derivative by the window G[t, s] = a_(s+1) ... a_t, S_0 and dS_C being an
// addition in front of row 0 and a read behind the last. With y_t[s] = Y[t, s] + a_(t+1) y_(t+1)[s], da_t =
// sum over s < t of y_t[s] G[t-1, s]: products only, so that gates of 0 have their gradient too. A number per
// row has a matrix Y. A number per key has this for rows t and s of one block of 16, key by key; where t or s
// is outside of the gate's block, the sums over rows there come first:
//
//     N[t] = sum over earlier blocks of dA[t, s] c_s (from behind s to the block), which makes df of them,
//     pre[t] N[t] H[s] = sum over later blocks of dA[t, s] f_t (from the block to t), which makes dc of them,
//     suf[s] H[s] across[J] = sum over t in later and s in earlier blocks than J: the derivative by J's whole
//     product
#ifndef CELL_DEVICE_CHUNK_REST_CUH
#define CELL_DEVICE_CHUNK_REST_CUH

template <class M> struct cell_chunk_rester {
    typedef typename M::Real R;
    typedef typename M::Part Part;
    typedef cell_chunk_record<M> record;
    typedef cell_chunk_matrix<Part> matrix;
    static constexpr int C = M::rows, V = M::values, threads = CELL_CHUNK_THREADS,
                         blocks = C / CELL_CHUNK_BLOCK;
    static constexpr bool by_key = M::decay == 2, by_number = M::decay == 1;
    static constexpr int corrections = record::corrections, readers = M::reads + corrections,
                         additions = M::additions;
    static constexpr int B = CELL_CHUNK_BLOCK;
    static constexpr int K = by_key || M::keys % 32 ? 16 : M::keys % 64 ? 32 : 64; // keys at a time
    static constexpr int parts = sizeof(R) == sizeof(Part) ? 1 : 2;                // of F
    static constexpr int wide = C > V ? (C > K ? C : K) : V > K ? V : K; // columns of what is staged
    typedef cell_chunk_windows<R, C, by_key ? K : 1> windows;
    typedef cell_chunk_tile<R, C, C, threads> square;
    typedef cell_chunk_tile<R, C, V, threads> values_tile;
    typedef cell_chunk_tile<R, C, K, threads> keys_tile;
    static constexpr int Y = C + 1;    // rows and columns of Y: row t at t + 1, the start at 0
    static constexpr int line = K + 1; // of arrays by row and key

    // Of Part: matrices dA_fn [C][C], two that are multiplied, of at most max(C, V, K) lines; by key also f
    // and c of a slab of keys with their windows. Of Real: numbers and their gradients [C] each, windows, and
    // Y [C + 1][C + 1] or, by key, arrays [C][K].
    __host__ __device__ static constexpr int64_t smem()
    {
        return readers * additions * cell_carve_bytes<Part>(C * cell_chunk_pitch<Part>(C)) +
               2 * cell_carve_bytes<Part>(wide * cell_chunk_pitch<Part>(wide)) +
               (2 * readers + 3 * additions) * cell_carve_bytes<R>(C) +
               (readers + 2 * additions + 2) * cell_carve_bytes<R>(C * threads / 32) +
               cell_carve_bytes<R>(threads) + (M::decay != 0 ? windows::bytes() : 0) +
               (by_number ? cell_carve_bytes<R>(Y * (Y + 1)) : 0) +
               (by_key ? (readers + additions) * cell_carve_bytes<Part>(C * cell_chunk_pitch<Part>(K)) +
                             (2 * readers + 2 * additions + 2) * cell_carve_bytes<R>(C * line) +
                             cell_carve_bytes<R>((blocks + 1) * blocks * K) +
                             cell_carve_bytes<R>((blocks + 1) * K)
                       : 0);
    }

    const cell_chunk_backward<M> &g;
    const cell_chunk<M> &x;
    const int64_t chunk;
    const cell_chunk_rows rows;
    const unsigned char *const from;
    matrix scores[readers][additions]; // dA, with windows where a row has one number
    matrix left, right;
    cell_smem<R> reader_number[readers], column_number[additions], known_number[additions];
    cell_smem<R> reader_sums[readers], column_sums[additions],
        known_sums[additions];         // gradients of numbers, in parts
    cell_smem<R> start_sums, end_sums; // derivatives by windows from the start, and to the end, in parts
    cell_smem<R> threads_sums;
    windows window;
    cell_smem<R> pairs; // Y
    // By key:
    matrix reader_part[readers], column_part[additions]; // f from its block's start, c to its block's end
    cell_smem<R> reader_value[readers], column_value[additions], reader_gradient[readers],
        column_gradient[additions];
    cell_smem<R> front, behind; // sums of f N by the row up to which a window goes, and of c H by the row
    cell_smem<R> across;        // [block or end][earlier block][K]
    cell_smem<R> ends;          // [block or start][K]: by whole windows

    __device__ __forceinline__ static matrix carve(unsigned char *&cursor, int lines, int columns)
    {
        const int pitch = cell_chunk_pitch<Part>(columns);
        return {cell_carve<Part>(cursor, lines * pitch), pitch};
    }
    __device__ __forceinline__ cell_chunk_rester(const cell_chunk_backward<M> &of, int64_t chunk_of)
        : g(of),
          x(of.of),
          chunk(chunk_of),
          rows(cell_chunk_rows_of(of.of, chunk_of)),
          from(of.of.records + chunk_of * record::bytes)
    {
        auto cursor = cell_shared();
        for (int f = 0; f < readers; f++)
            for (int n = 0; n < additions; n++)
                scores[f][n] = carve(cursor, C, C);
        left = carve(cursor, wide, wide);
        right = carve(cursor, wide, wide);
        for (int f = 0; f < readers; f++) {
            reader_number[f] = cell_carve<R>(cursor, C);
            reader_sums[f] = cell_carve<R>(cursor, C * threads / 32);
        }
        for (int n = 0; n < additions; n++) {
            column_number[n] = cell_carve<R>(cursor, C);
            known_number[n] = cell_carve<R>(cursor, C);
            column_sums[n] = cell_carve<R>(cursor, C * threads / 32);
            known_sums[n] = cell_carve<R>(cursor, C * threads / 32);
        }
        start_sums = cell_carve<R>(cursor, C * threads / 32);
        end_sums = cell_carve<R>(cursor, C * threads / 32);
        threads_sums = cell_carve<R>(cursor, threads);
        if constexpr (M::decay != 0)
            window.carve(cursor);
        if constexpr (by_number)
            pairs = cell_carve<R>(cursor, Y * (Y + 1));
        if constexpr (by_key) {
            for (int f = 0; f < readers; f++) {
                reader_part[f] = carve(cursor, C, K);
                reader_value[f] = cell_carve<R>(cursor, C * line);
                reader_gradient[f] = cell_carve<R>(cursor, C * line);
            }
            for (int n = 0; n < additions; n++) {
                column_part[n] = carve(cursor, C, K);
                column_value[n] = cell_carve<R>(cursor, C * line);
                column_gradient[n] = cell_carve<R>(cursor, C * line);
            }
            front = cell_carve<R>(cursor, C * line);
            behind = cell_carve<R>(cursor, C * line);
            across = cell_carve<R>(cursor, (blocks + 1) * blocks * K);
            ends = cell_carve<R>(cursor, (blocks + 1) * K);
        }
    }

    // ---- operands ----

    __device__ __forceinline__ static constexpr bool is_read(int f) { return f < M::reads; }
    __device__ __forceinline__ static constexpr bool before(int f)
    {
        return !is_read(f) || (M::before >> f & 1);
    }
    __device__ __forceinline__ static constexpr bool sees(int f, int t, int s)
    {
        return before(f) ? s < t : s <= t;
    }
    __device__ __forceinline__ static constexpr bool given(int n) { return M::known >> n & 1; }
    __device__ __forceinline__ const cell_chunk_vector &reader(int f) const
    {
        return is_read(f) ? x.read[f] : x.addition[0].weight;
    }
    __device__ __forceinline__ const cell_chunk_gradient &reader_result(int f) const
    {
        return is_read(f) ? g.read[f] : g.weight;
    }

    // y_f
    __device__ __forceinline__ R cotangent(int f, int t, int64_t v) const
    {
        if (is_read(f))
            return cell_chunk_load<M>(g.cotangent[f], rows, t, v, x.values);
        return v < x.values ? cell_load<R>(g.corrections + (chunk * x.values + v) * C + t) : (R)0;
    }
    // d_n
    __device__ __forceinline__ R added(int n, int t, int64_t v) const
    {
        if (n < corrections)
            return v < x.values ? cell_load<R>(g.solved + (rows.first + t) * x.values + v) : (R)0;
        return cell_chunk_load<M>(x.addition[n].known.vector, rows, t, v, x.values) * known_number[n][t];
    }
    // S_0 and dS_C
    __device__ __forceinline__ R of_state(const Part *states, int64_t k, int64_t v) const
    {
        return k < x.keys && v < x.values ? cell_load<R>(states + (chunk * x.values + v) * x.keys + k) : (R)0;
    }
    __device__ __forceinline__ R read_vector(int f, int t, int64_t k) const
    {
        return cell_chunk_load<M>(reader(f).vector, rows, t, k, x.keys);
    }
    __device__ __forceinline__ R column_vector(int n, int t, int64_t k) const
    {
        return cell_chunk_load<M>(x.addition[n].column.vector, rows, t, k, x.keys);
    }

    template <int Rows, int Columns, class From>
    __device__ __forceinline__ void stage(const matrix &to, From from_of)
    {
        cell_chunk_stage<Part, Rows, Columns>(to, from_of);
    }

    // ---- windows where a row has one number ----

    // The window of f from s to t; s = -1: from the start.
    __device__ __forceinline__ R seen(int f, int t, int s) const
    {
        if constexpr (by_number) {
            if (s / B == t / B)
                return window.pair(t, s, 0, before(f));
            return window.front(t, 0, before(f)) * window.back(t, s, 0);
        }
        return 1;
    }
    __device__ __forceinline__ R from_start(int f, int t) const
    {
        return by_number ? (R)window.start[t + (before(f) ? 0 : 1)] : (R)1;
    }
    __device__ __forceinline__ R to_end(int s) const { return by_number ? (R)window.end[s] : (R)1; }

    __device__ void load_numbers()
    {
        for (int t = cell_thread(); t < C; t += threads) {
            for (int f = 0; f < readers; f++)
                reader_number[f][t] = cell_chunk_number<M>(reader(f).number, rows, t);
            for (int n = 0; n < additions; n++) {
                column_number[n][t] = cell_chunk_number<M>(x.addition[n].column.number, rows, t);
                known_number[n][t] =
                    given(n) ? cell_chunk_number<M>(x.addition[n].known.number, rows, t) : (R)0;
            }
        }
        for (int t = cell_thread(); t < C * threads / 32; t += threads) {
            for (int f = 0; f < readers; f++)
                reader_sums[f][t] = 0;
            for (int n = 0; n < additions; n++) {
                column_sums[n][t] = 0;
                known_sums[n][t] = 0;
            }
            start_sums[t] = 0;
            end_sums[t] = 0;
        }
        threads_sums[cell_thread()] = 0;
        if constexpr (by_number) {
            for (int n = cell_thread(); n < Y * (Y + 1); n += threads)
                pairs[n] = 0;
            load_gates(0);
        }
        cell_barrier();
    }

    __device__ void load_gates(int k0)
    {
        constexpr int width = by_key ? K : 1;
        for (int n = cell_thread(); n < C * width; n += threads) {
            const int t = n / width, k = k0 + n % width;
            const bool there = t < rows.valid && (!by_key || k < x.keys);
            window.gate[n] = there ? cell_rows_load<M>(x.decay, rows.first + t, k) : (R)1;
        }
        cell_barrier();
        window.make();
        cell_barrier();
    }

    // ---- d_0 = F R, R = z_0 + sum L_n z_n + W S_0 ----

    __device__ void add_start(values_tile &sum, int64_t v0)
    {
        for (int k0 = 0; k0 < M::keys; k0 += K) {
            cell_barrier();
            stage<C, K>(left, [&](int t, int k) -> R {
                if constexpr (by_key)
                    return cell_load<R>((const Part *)(from + record::w) + t * M::keys + k0 + k);
                else
                    return read_vector(M::reads, t, k0 + k) * ((const R *)(from + record::w_number))[t];
            });
            stage<V, K>(right, [&](int v, int k) -> R { return of_state(x.saved, k0 + k, v0 + v); });
            cell_barrier();
            sum.add(left, right.across(), 0, K);
        }
    }

    __device__ __forceinline__ void stage_square(int at)
    {
        stage<C, C>(left,
                    [&](int t, int s) -> R { return cell_load<R>((const Part *)(from + at) + t * C + s); });
    }

    __device__ void solve(int64_t v0)
    {
        values_tile sum;
        sum.clear();
        add_start(sum, v0);
        for (int n = corrections; n < additions; n++) {
            cell_barrier();
            stage_square(record::l(n));
            stage<C, V>(right, [&](int s, int v) -> R { return added(n, s, v0 + v); });
            cell_barrier();
            sum.add(left, right, 0, C, [](int t, int s) { return s <= t; });
        }
        sum.each([&](int t, int v, R &s) {
            if (given(0))
                s += cell_chunk_load<M>(x.addition[0].known.vector, rows, t, v0 + v, x.values) *
                     known_number[0][t];
        });
        cell_barrier();
        sum.store(right);
        sum.clear();
        for (int part = 0; part < parts; part++) {
            cell_barrier();
            stage<C, C>(left, [&](int t, int s) -> R {
                return cell_load<R>(x.inverse + ((chunk * parts + part) * C + t) * C + s);
            });
            cell_barrier();
            sum.add(left, right, 0, C, [](int t, int s) { return s <= t; });
        }
        sum.each([&](int t, int v, R &s) {
            if (v0 + v < x.values)
                cell_store(g.solved + (rows.first + t) * x.values + v0 + v, s);
        });
    }

    // ---- dA ----

    __device__ void make_scores(int f, int n)
    {
        square sum;
        sum.clear();
        for (int64_t v0 = 0; v0 < x.values; v0 += V) {
            cell_barrier();
            stage<C, V>(left, [&](int t, int v) -> R { return cotangent(f, t, v0 + v); });
            stage<C, V>(right, [&](int s, int v) -> R { return added(n, s, v0 + v); });
            cell_barrier();
            sum.add(left, right.across(), 0, V);
        }
        if constexpr (by_number)
            add_pairs(sum, f, n);
        sum.each([&](int t, int s, R &v) { v = sees(f, t, s) ? v * seen(f, t, s) : (R)0; });
        sum.store(scores[f][n]);
    }

    // Y += dA o f c', where the window of a reader before its row ends at the row before.
    __device__ void add_pairs(square &sum, int f, int n)
    {
        square raw;
        raw.clear();
        for (int k0 = 0; k0 < M::keys; k0 += K) {
            cell_barrier();
            stage_reader(left, f, k0);
            stage_column(right, n, k0);
            cell_barrier();
            raw.add(left, right.across(), 0, K);
        }
        CELL_UNROLL
        for (int i = 0; i < square::down; i++) {
            CELL_UNROLL
            for (int j = 0; j < square::along; j++) {
                if (!square::there(i, j))
                    continue;
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    const int t = square::block(i) * 16 + cell_mma_c_row(r),
                              s = square::column(j) + cell_mma_c_column(r);
                    const int at = (t + (before(f) ? 0 : 1)) * (Y + 1) + s + 1;
                    if (sees(f, t, s)) {
                        const R had = pairs[at];
                        pairs[at] = had + sum.x[i][j][r] * raw.x[i][j][r];
                    }
                }
            }
        }
    }

    __device__ __forceinline__ void stage_reader(const matrix &to, int f, int k0)
    {
        stage<C, K>(to, [&](int t, int k) -> R { return read_vector(f, t, k0 + k) * reader_number[f][t]; });
    }
    __device__ __forceinline__ void stage_column(const matrix &to, int n, int k0)
    {
        stage<C, K>(to, [&](int t, int k) -> R { return column_vector(n, t, k0 + k) * column_number[n][t]; });
    }

    // ---- gradients of z ----

    __device__ void put_known(int n, values_tile &sum, int64_t v0)
    {
        const cell_chunk_gradient &to = g.known[n];
        sum.row_sums(known_sums[n], [&](int t, int v, R s) {
            return s * cell_chunk_load<M>(x.addition[n].known.vector, rows, t, v0 + v, x.values);
        });
        if (to.vector.at)
            sum.each([&](int t, int v, R &s) {
                if (rows.first + t < x.steps && v0 + v < x.values)
                    cell_chunk_put<M>(to.vector, rows.first + t, v0 + v, s * known_number[n][t]);
            });
    }

    __device__ void make_known(int n, int64_t v0)
    {
        values_tile sum;
        sum.clear();
        for (int f = 0; f < readers; f++) {
            cell_barrier();
            stage_square(is_read(f) ? record::a(f, n) : record::l(n));
            stage<C, V>(right, [&](int t, int v) -> R { return cotangent(f, t, v0 + v); });
            cell_barrier();
            sum.add(left.across(), right, 0, C, [](int s, int t) { return s <= t; });
        }
        for (int k0 = 0; k0 < M::keys; k0 += K) {
            cell_barrier();
            stage<C, K>(left, [&](int s, int k) -> R {
                if constexpr (by_key)
                    return cell_load<R>((const Part *)(from + record::e(n)) + s * M::keys + k0 + k);
                else
                    return column_vector(n, s, k0 + k) * ((const R *)(from + record::e_number(n)))[s];
            });
            stage<V, K>(right, [&](int v, int k) -> R { return of_state(g.ends, k0 + k, v0 + v); });
            cell_barrier();
            sum.add(left, right.across(), 0, K);
        }
        put_known(n, sum, v0);
    }

    __device__ void make_corrected_known(int64_t v0)
    {
        values_tile sum;
        sum.each([&](int t, int v, R &s) { s = cotangent(M::reads, t, v0 + v); });
        put_known(0, sum, v0);
    }

    // ---- y_f S_0', d_n dS_C' ----

    __device__ void add_reader_start(keys_tile &sum, int f, int k0)
    {
        for (int64_t v0 = 0; v0 < x.values; v0 += V) {
            cell_barrier();
            stage<C, V>(left, [&](int t, int v) -> R { return cotangent(f, t, v0 + v); });
            stage<V, K>(right, [&](int v, int k) -> R { return of_state(x.saved, k0 + k, v0 + v); });
            cell_barrier();
            sum.add(left, right, 0, V);
        }
    }
    __device__ void add_column_end(keys_tile &sum, int n, int k0)
    {
        for (int64_t v0 = 0; v0 < x.values; v0 += V) {
            cell_barrier();
            stage<C, V>(left, [&](int t, int v) -> R { return added(n, t, v0 + v); });
            stage<V, K>(right, [&](int v, int k) -> R { return of_state(g.ends, k0 + k, v0 + v); });
            cell_barrier();
            sum.add(left, right, 0, V);
        }
    }

    __device__ __forceinline__ void put_keys(const cell_chunk_gradient &to, int t, int64_t k, R gradient,
                                             R number)
    {
        if (to.vector.at && rows.first + t < x.steps && k < x.keys)
            cell_chunk_put<M>(to.vector, rows.first + t, k, gradient * number);
    }

    // ---- gradients of f and c where a row has one number ----

    __device__ void make_reader(int f, int k0)
    {
        keys_tile sum;
        sum.clear();
        add_reader_start(sum, f, k0);
        if constexpr (by_number)
            sum.row_sums(start_sums, [&](int t, int k, R s) {
                return s * read_vector(f, t, k0 + k) * reader_number[f][t];
            });
        sum.each([&](int t, int, R &s) { s *= from_start(f, t); });
        for (int n = 0; n < additions; n++) {
            cell_barrier();
            stage_column(right, n, k0);
            cell_barrier();
            sum.add(scores[f][n], right, 0, C, [](int t, int s) { return s <= t; });
        }
        sum.row_sums(reader_sums[f], [&](int t, int k, R s) { return s * read_vector(f, t, k0 + k); });
        sum.each([&](int t, int k, R &s) { put_keys(reader_result(f), t, k0 + k, s, reader_number[f][t]); });
        if constexpr (by_number)
            take_starts(f);
    }

    // What start_sums has is by the window of f, which ends at the row or before it.
    __device__ void take_starts(int f)
    {
        cell_barrier();
        for (int t = cell_thread(); t < C; t += threads) {
            R sum = 0;
            for (int part = 0; part < keys_tile::column_warps; part++) {
                sum += start_sums[part * C + t];
                start_sums[part * C + t] = 0;
            }
            const int at = (t + (before(f) ? 0 : 1)) * (Y + 1);
            const R had = pairs[at];
            pairs[at] = had + sum;
        }
    }

    __device__ void make_column(int n, int k0)
    {
        keys_tile sum;
        sum.clear();
        add_column_end(sum, n, k0);
        if constexpr (by_number)
            sum.row_sums(end_sums, [&](int t, int k, R s) {
                return s * column_vector(n, t, k0 + k) * column_number[n][t];
            });
        sum.each([&](int t, int, R &s) { s *= to_end(t); });
        for (int f = 0; f < readers; f++) {
            cell_barrier();
            stage_reader(right, f, k0);
            cell_barrier();
            sum.add(scores[f][n].across(), right, 0, C, [](int s, int t) { return s <= t; });
        }
        sum.row_sums(column_sums[n], [&](int t, int k, R s) { return s * column_vector(n, t, k0 + k); });
        sum.each([&](int t, int k, R &s) { put_keys(g.column[n], t, k0 + k, s, column_number[n][t]); });
    }

    // ---- the gradient of one gate a row ----

    __device__ void add_whole()
    {
        R sum = 0;
        for (int64_t n = cell_thread(); n < x.keys * x.values; n += threads) {
            const int64_t at = chunk * x.keys * x.values + n;
            sum += cell_load<R>(x.saved + at) * cell_load<R>(g.ends + at);
        }
        threads_sums[cell_thread()] = sum;
        cell_barrier();
        if (cell_thread() == 0) {
            sum = pairs[C * (Y + 1)];
            for (int i = 0; i < threads; i++)
                sum += threads_sums[i];
            pairs[C * (Y + 1)] = sum;
        }
        for (int s = cell_thread(); s < C; s += threads) {
            R end = pairs[C * (Y + 1) + s + 1];
            for (int part = 0; part < keys_tile::column_warps; part++)
                end += end_sums[part * C + s];
            pairs[C * (Y + 1) + s + 1] = end;
        }
        cell_barrier();
    }

    __device__ void make_gate()
    {
        add_whole();
        for (int s = cell_thread() - 1; s < C;
             s += threads) { // a column of Y: what is added by row s, or at the start
            R y = 0;
            for (int t = C - 1; t > s; t--) {
                y = pairs[(t + 1) * (Y + 1) + s + 1] + (t + 1 < C ? (R)window.gate[t + 1] : (R)0) * y;
                pairs[(t + 1) * (Y + 1) + s + 1] = y;
            }
            R kept = 1; // from behind s up to the row before t
            for (int t = s + 1; t < C; t++) {
                y = pairs[(t + 1) * (Y + 1) + s + 1];
                pairs[(t + 1) * (Y + 1) + s + 1] = y * kept;
                kept *= window.gate[t];
            }
        }
        cell_barrier();
        for (int t = cell_thread(); t < C; t += threads) {
            R sum = 0;
            for (int s = -1; s < t; s++)
                sum += pairs[(t + 1) * (Y + 1) + s + 1];
            if (g.decay.at && rows.first + t < x.steps)
                cell_chunk_put<M>(g.decay, rows.first + t, 0, t < rows.valid ? sum : (R)0);
        }
    }

    // ---- by key ----

    __device__ void load_slab(int k0)
    {
        cell_barrier();
        load_gates(k0);
        for (int n = cell_thread(); n < C * K; n += threads) {
            const int t = n / K, k = n % K;
            for (int f = 0; f < readers; f++) {
                const R v = read_vector(f, t, k0 + k) * reader_number[f][t];
                reader_value[f][t * line + k] = v;
                cell_store(reader_part[f].place(t, k), v * window.front(t, k, before(f)));
            }
            for (int c = 0; c < additions; c++) {
                const R v = column_vector(c, t, k0 + k) * column_number[c][t];
                column_value[c][t * line + k] = v;
                cell_store(column_part[c].place(t, k), v * (R)window.suf[t * K + k]);
            }
            front[t * line + k] = 0;
            behind[t * line + k] = 0;
        }
        for (int n = cell_thread(); n < (blocks + 1) * blocks * K; n += threads)
            across[n] = 0;
        for (int n = cell_thread(); n < (blocks + 1) * K; n += threads)
            ends[n] = 0;
        cell_barrier();
        for (int n = cell_thread(); n < K; n += threads) {
            R sum = 0;
            for (int64_t v = 0; v < x.values; v++)
                sum += of_state(x.saved, k0 + n, v) * of_state(g.ends, k0 + n, v);
            ends[blocks * K + n] = sum;
        }
    }

    // From the start block by block up to the row's.
    __device__ void make_reader_by_key(int f, int k0)
    {
        keys_tile sum;
        sum.clear();
        add_reader_start(sum, f, k0);
        for (int b = 0; b < blocks; b++) {
            sum.block_sums(
                [&](int t, int k, R s) {
                    return s * (R)reader_value[f][t * line + k] * window.front(t, k, before(f));
                },
                [&](int block, int k, R s) {
                    if (block > b) {
                        const R had = across[(block * blocks + b) * K + k];
                        across[(block * blocks + b) * K + k] = had + s;
                    }
                });
            sum.each([&](int t, int k, R &s) {
                if (t / B > b)
                    s *= (R)window.tot[b * K + k];
            });
            for (int n = 0; n < additions; n++)
                sum.add(scores[f][n], column_part[n], b * B, b * B + B, [](int t, int s) { return s < t; });
        }
        sum.each([&](int t, int k, R &s) {
            reader_gradient[f][t * line + k] = s * window.front(t, k, before(f));
            const int up_to = before(f) ? t - 1 : t;
            if (up_to / B == t / B && up_to >= 0) {
                const R had = front[up_to * line + k];
                front[up_to * line + k] = had + s * (R)reader_value[f][t * line + k];
            }
        });
        cell_barrier();
    }

    // From the end block by block back to the row's.
    __device__ void make_column_by_key(int n, int k0)
    {
        keys_tile sum;
        sum.clear();
        add_column_end(sum, n, k0);
        sum.block_sums([&](int s, int k,
                           R v) { return v * (R)column_value[n][s * line + k] * (R)window.suf[s * K + k]; },
                       [&](int block, int k, R v) {
                           const R had = ends[block * K + k];
                           ends[block * K + k] = had + v;
                       });
        for (int b = blocks - 1; b > 0; b--) {
            sum.each([&](int s, int k, R &v) {
                if (s / B < b)
                    v *= (R)window.tot[b * K + k];
            });
            for (int f = 0; f < readers; f++)
                sum.add(scores[f][n].across(), reader_part[f], b * B, b * B + B,
                        [](int s, int t) { return s < t; });
        }
        sum.each([&](int s, int k, R &v) {
            column_gradient[n][s * line + k] = v * (R)window.suf[s * K + k];
            const R had = behind[s * line + k];
            behind[s * line + k] = had + v * (R)column_value[n][s * line + k];
        });
    }

    // Rows of one block, by one thread for each key. da: the block's gates' gradients.
    __device__ void add_block(int first, int k, R (&da)[B])
    {
        R gate[B], kept[B], sum[B];
        CELL_UNROLL
        for (int i = 0; i < B; i++)
            gate[i] = window.gate[(first + i) * K + k];
        for (int n = 0; n < additions; n++)
            for (int s = 0; s < B; s++) {
                const R c = column_value[n][(first + s) * line + k];
                R run = 1;
                CELL_UNROLL
                for (int t = 0; t < B; t++) { // G[t, s], and what is read through it
                    run = t <= s ? (R)1 : run * gate[t];
                    kept[t] = run;
                    sum[t] = 0;
                }
                for (int f = 0; f < readers; f++) {
                    CELL_UNROLL
                    for (int t = 0; t < B; t++) {
                        const int reads_at = before(f) ? t + 1 : t;
                        if (t < s || reads_at >= B)
                            continue;
                        const int row = first + reads_at;
                        const R dA = cell_load<R>(scores[f][n].place(row, first + s));
                        sum[t] += dA * (R)reader_value[f][row * line + k];
                        const R had = reader_gradient[f][row * line + k];
                        reader_gradient[f][row * line + k] = had + dA * kept[t] * c;
                    }
                }
                R y = 0;
                CELL_UNROLL
                for (int t = B - 1; t >= 0; t--) {
                    if (t < s)
                        continue;
                    y = sum[t] + (t + 1 < B ? gate[t + 1] : (R)0) * y;
                    if (t > s)
                        da[t] += y * kept[t - 1] * c;
                }
                const R had = column_gradient[n][(first + s) * line + k];
                column_gradient[n][(first + s) * line + k] = had + y;
            }
    }

    // Windows that go out of the block on one side or on both.
    __device__ void add_across(int first, int k, R (&da)[B])
    {
        const int block = first / B;
        R y = 0, run = 0, whole = 0;
        for (int t = B - 1; t >= 0; t--) {
            y = (R)front[(first + t) * line + k] +
                (t + 1 < B ? (R)window.gate[(first + t + 1) * K + k] : (R)0) * y;
            da[t] += y * window.front(first + t, k, true);
        }
        for (int b = blocks; b > block; b--) {
            R between = across[(b * blocks + block) * K + k];
            for (int i = block + 1; i < b; i++)
                between *= (R)window.tot[i * K + k];
            whole += between;
        }
        for (int t = 0; t < B; t++) {
            if (t > 0)
                run = (R)window.gate[(first + t - 1) * K + k] * run + (R)behind[(first + t - 1) * line + k];
            da[t] += (run + whole * window.front(first + t, k, true)) * (R)window.suf[(first + t) * K + k];
        }
    }

    __device__ void make_gates_by_key(int k0)
    {
        for (int k = cell_thread(); k < K; k += threads) { // the read behind the last row
            R run = ends[blocks * K + k];
            for (int b = 0; b < blocks; b++) {
                across[(blocks * blocks + b) * K + k] = run;
                run = run * (R)window.tot[b * K + k] + (R)ends[b * K + k];
            }
        }
        cell_barrier();
        for (int job = cell_thread(); job < blocks * K; job += threads) {
            const int first = job / K * B, k = job % K;
            R da[B] = {};
            add_block(first, k, da);
            add_across(first, k, da);
            for (int t = 0; t < B; t++)
                if (g.decay.at && rows.first + first + t < x.steps && k0 + k < x.keys)
                    cell_chunk_put<M>(g.decay, rows.first + first + t, k0 + k,
                                      first + t < rows.valid ? da[t] : (R)0);
        }
        cell_barrier();
    }

    __device__ void put_slab(int k0)
    {
        for (int n = cell_thread(); n < C * K; n += threads) {
            const int t = n / K, k = n % K;
            for (int f = 0; f < readers; f++)
                put_keys(reader_result(f), t, k0 + k, reader_gradient[f][t * line + k], reader_number[f][t]);
            for (int c = 0; c < additions; c++)
                put_keys(g.column[c], t, k0 + k, column_gradient[c][t * line + k], column_number[c][t]);
        }
        for (int t = cell_thread(); t < C; t += threads)
            for (int k = 0; k < K; k++) {
                for (int f = 0; f < readers; f++)
                    reader_sums[f][t] += (R)reader_gradient[f][t * line + k] * read_vector(f, t, k0 + k);
                for (int c = 0; c < additions; c++)
                    column_sums[c][t] += (R)column_gradient[c][t * line + k] * column_vector(c, t, k0 + k);
            }
    }

    __device__ void make_slab(int k0)
    {
        load_slab(k0);
        for (int f = 0; f < readers; f++)
            make_reader_by_key(f, k0);
        for (int n = 0; n < additions; n++)
            make_column_by_key(n, k0);
        cell_barrier();
        make_gates_by_key(k0);
        put_slab(k0);
    }

    // ---- all ----

    // Gradients of the numbers, whose sums over keys or values lie in `count` parts.
    __device__ void put_number(const cell_chunk_gradient &to, const cell_row_number &number,
                               cell_smem<R> sums, int count)
    {
        for (int t = cell_thread(); to.number.at && t < C && rows.first + t < x.steps; t += threads) {
            R sum = 0;
            for (int part = 0; part < count; part++)
                sum += sums[part * C + t];
            cell_chunk_put<M>(to.number, rows.first + t, 0, t < rows.valid ? sum * (R)number.times : (R)0);
        }
    }

    __device__ void make()
    {
        load_numbers();
        for (int64_t v0 = 0; corrections && v0 < x.values; v0 += V)
            solve(v0);
        for (int f = 0; f < readers; f++)
            for (int n = 0; n < additions; n++)
                make_scores(f, n);
        for (int64_t v0 = 0; v0 < x.values; v0 += V) {
            if constexpr (corrections != 0)
                if (given(0))
                    make_corrected_known(v0);
            for (int n = corrections; n < additions; n++)
                make_known(n, v0);
        }
        for (int k0 = 0; k0 < M::keys; k0 += K) {
            if constexpr (by_key) {
                make_slab(k0);
            } else {
                for (int f = 0; f < readers; f++)
                    make_reader(f, k0);
                for (int n = 0; n < additions; n++)
                    make_column(n, k0);
            }
        }
        cell_barrier();
        if constexpr (by_number)
            make_gate();
        for (int f = 0; f < readers; f++)
            put_number(reader_result(f), reader(f).number, reader_sums[f],
                       by_key ? 1 : keys_tile::column_warps);
        for (int n = 0; n < additions; n++) {
            put_number(g.column[n], x.addition[n].column.number, column_sums[n],
                       by_key ? 1 : keys_tile::column_warps);
            if (given(n))
                put_number(g.known[n], x.addition[n].known.number, known_sums[n], values_tile::column_warps);
        }
    }

    // Of a chunk without rows.
    __device__ void clear(const cell_chunk_gradient &to, int64_t extent)
    {
        for (int64_t n = cell_thread(); n < C * extent; n += threads)
            if (to.vector.at && rows.first + n / extent < x.steps)
                cell_chunk_put<M>(to.vector, rows.first + n / extent, n % extent, 0);
        for (int t = cell_thread(); t < C; t += threads)
            if (to.number.at && rows.first + t < x.steps)
                cell_chunk_put<M>(to.number, rows.first + t, 0, 0);
    }
    __device__ void clear_all()
    {
        for (int f = 0; f < readers; f++)
            clear(reader_result(f), x.keys);
        for (int n = 0; n < additions; n++) {
            clear(g.column[n], x.keys);
            if (given(n))
                clear(g.known[n], x.values);
        }
        if constexpr (M::decay != 0)
            clear({g.decay, {}}, by_key ? x.keys : 1);
    }
};

// Grid: a block of CELL_CHUNK_THREADS for each chunk of each head of each sequence;
// cell_chunk_rester<M>::smem() bytes.
template <class M> __device__ void cell_chunk_finish(const cell_chunk_backward<M> &g, int64_t chunk)
{
    cell_chunk_rester<M> rest(g, chunk);
    if (cell_chunk_empty(g.of, chunk))
        rest.clear_all();
    else
        rest.make();
}

#endif
