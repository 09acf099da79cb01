// Chunks of a linear recurrence whose rows have a gate for each value and no correction
// (cell_device_chunk.cuh):
//
//     S[k, v] <- h[v] S[k, v] + sum_n c_n[k] z_n[v]         o_r[v] = sum_k q_r[k] S[k, v]
//
// Values do not meet: each is one recurrence, of which a chunk makes D[v] S[k, v] + B[k, v]. So nothing is walked
// but elements:
//
//     sums   B and D of each chunk, for all chunks at once
//     walk   S in front of each chunk, S <- D S + B, for each element by itself; it stands in the place of B
//     read   o of each chunk from S in front of it, for all chunks at once
//
// Backward the same with the adjoint state, dS <- D dS + B', from which `rest` makes all gradients. A chunk
// is taken in blocks of 16 rows, one behind the other. In a block, with S the state in front of it and
// G[t, s] = h_(s+1) ... h_t, for each value v,
//
//     o[t] = G[t, -1] (q_t' S) + sum_(s <= t) (q_t' c_s) G[t, s] z[s]
//     S   <- G[15, -1] S + sum_s c_s (G[15, s] z[s])
//
// and a read before its row has G[t-1, s] and s < t. Products of vectors, and those with states, are on
// tensor cores; windows are products of gates in registers, a value by some threads. So gates may be 0 or
// negative.
//
// Guaranteed: sums are of Real; operands of products of Part; one order of sums.
#ifndef CELL_DEVICE_CHUNK_VALUED_CUH
#define CELL_DEVICE_CHUNK_VALUED_CUH

// Of a chunk, of Real: B, S or dS, element (k, v) at v * keys + k, and D, element v at keys * values + v.
template <class M> __host__ __device__ constexpr int64_t cell_chunk_value_record(int64_t keys, int64_t values)
{
    return (keys + 1) * values * (int64_t)sizeof(typename M::Real);
}
template <class M>
__device__ __forceinline__ typename M::Real *cell_chunk_value_sums_of(const cell_chunk<M> &x, int64_t chunk)
{
    return (typename M::Real *)(x.records + chunk * cell_chunk_value_record<M>(x.keys, x.values));
}

// A chunk's values from `first` on, Values of them, by a block of Threads: `shares` threads each.
template <class M, int Values, int Threads = CELL_CHUNK_THREADS> struct cell_chunk_valued {
    typedef typename M::Real R;
    typedef typename M::Part Part;
    typedef cell_chunk_matrix<Part> matrix;
    static constexpr int B = CELL_CHUNK_BLOCK, K = M::keys, V = Values, blocks = M::rows / B;
    static constexpr int threads = Threads, shares = threads / V, own_rows = B / shares;
    static constexpr int additions = M::additions, reads = M::reads;
    static constexpr int key_pitch = cell_chunk_pitch<Part>(K), value_pitch = cell_chunk_pitch<Part>(V);
    static constexpr int value_line = V + 1, square_line = B + 1; // of arrays of Real
    static_assert(M::corrected == 0 && M::together == 1, "values do not meet");
    static_assert(shares >= 2 && shares <= B, "a value's threads are neighbours in a warp");
    typedef cell_chunk_tile<R, K, V, threads> state_tile;
    typedef cell_chunk_tile<R, B, V, threads> rows_tile;
    typedef cell_chunk_tile<R, B, K, threads> keys_tile;
    typedef cell_chunk_tile<R, B, B, threads> square_tile;

    __host__ __device__ static constexpr int64_t keys_bytes()
    {
        return cell_carve_bytes<Part>(B * key_pitch);
    }
    __host__ __device__ static constexpr int64_t values_bytes()
    {
        return cell_carve_bytes<Part>(B * value_pitch);
    }
    __host__ __device__ static constexpr int64_t state_bytes()
    {
        return cell_carve_bytes<Part>(K * value_pitch);
    }
    __host__ __device__ static constexpr int64_t lines_bytes()
    {
        return cell_carve_bytes<R>(B * value_line);
    }
    __host__ __device__ static constexpr int64_t square_bytes()
    {
        return cell_carve_bytes<R>(B * square_line);
    }

    const cell_chunk<M> &x;
    const cell_chunk_rows rows;
    const int64_t first;

    __device__ __forceinline__ cell_chunk_valued(const cell_chunk<M> &of, int64_t chunk, int64_t first_value)
        : x(of), rows(cell_chunk_rows_of(of, chunk)), first(first_value)
    {
    }

    __device__ __forceinline__ static matrix carve_matrix(unsigned char *&cursor, int lines, int pitch)
    {
        return { cell_carve<Part>(cursor, lines * pitch), pitch };
    }

    // The thread's value, and its share of that: of a block the rows share, share + shares, ...
    __device__ __forceinline__ static int value()
    {
        return cell_thread() / shares;
    }
    __device__ __forceinline__ static int share()
    {
        return cell_thread() % shares;
    }

    // Blocks that have rows.
    __device__ __forceinline__ int used() const
    {
        return (rows.valid + B - 1) / B;
    }

    // Elements (t(i), k(i)) of a vector, i < N, where they are not there `other`. All loads are on their way
    // before one is used: so addresses are those of elements that are there. The chunk has rows.
    template <int N, class Row, class Key>
    __device__ __forceinline__ void fetch(const cell_rows &v, int64_t extent, Row t, Key k, R other,
                                          R (&to)[N]) const
    {
        typedef typename M::Store Store;
        int64_t at[N];
        CELL_UNROLL
        for (int i = 0; i < N; i++) {
            const int row = t(i) < rows.valid ? t(i) : rows.valid - 1;
            at[i] = (rows.first + row) * v.row + (k(i) < extent ? k(i) : extent - 1) * v.element;
        }
        if (v.real) {
            CELL_UNROLL
            for (int i = 0; i < N; i++)
                to[i] = ((const R *)v.at)[at[i]];
        } else {
            Store of[N];
            CELL_UNROLL
            for (int i = 0; i < N; i++)
                of[i] = ((const Store *)v.at)[at[i]];
            CELL_UNROLL
            for (int i = 0; i < N; i++)
                to[i] = cell_load<R>(&of[i]);
        }
        CELL_UNROLL
        for (int i = 0; i < N; i++)
            to[i] = t(i) < rows.valid && k(i) < extent ? to[i] : other;
    }
    __device__ __forceinline__ void load_gates(int b, R (&h)[B]) const
    {
        fetch(
            x.decay, x.values, [&](int t) { return b * B + t; }, [&](int) { return first + value(); }, (R)1,
            h);
    }
    __device__ __forceinline__ R number(const cell_chunk_vector &v, int t) const
    {
        return cell_chunk_number<M>(v.number, rows, t);
    }
    // Of the thread's rows of block b.
    __device__ __forceinline__ void own_numbers(const cell_chunk_vector &v, int b, R (&to)[own_rows]) const
    {
        auto row = [&](int j) { return b * B + j * shares + share(); };
        if (v.number.at)
            fetch(
                cell_rows{ v.number.at, v.number.row, 0, v.number.real }, 1, row, [](int) { return 0; }, (R)0,
                to);
        CELL_UNROLL
        for (int j = 0; j < own_rows; j++) {
            if (!v.number.at)
                to[j] = row(j) < rows.valid ? 1 : 0;
            to[j] *= (R)v.number.times;
        }
    }
    // Elements of the thread's value.
    __device__ __forceinline__ void own_values(const cell_rows &v, int b, R (&to)[own_rows]) const
    {
        fetch(
            v, x.values, [&](int j) { return b * B + j * shares + share(); },
            [&](int) { return first + value(); }, (R)0, to);
    }
    // z with its number.
    __device__ __forceinline__ void load_known(int n, int b, R (&z)[own_rows]) const
    {
        R by[own_rows];
        own_values(x.addition[n].known.vector, b, z);
        own_numbers(x.addition[n].known, b, by);
        CELL_UNROLL
        for (int j = 0; j < own_rows; j++)
            z[j] *= by[j];
    }

    // The block's rows of a vector without its number.
    __device__ __forceinline__ void load_keys(const matrix &to, const cell_chunk_vector &v, int b) const
    {
        constexpr int all = B * K / threads, N = all <= 8       ? all
                                                 : all % 8 == 0 ? 8
                                                 : all % 4 == 0 ? 4
                                                 : all % 2 == 0 ? 2
                                                                : 1;
        static_assert(all % N == 0, "a thread has as many elements each time");
        CELL_UNROLL_BY(1)
        for (int part = 0; part < all / N; part++) {
            auto at = [&](int i) { return (part * N + i) * threads + cell_thread(); };
            R of[N];
            fetch(
                v.vector, x.keys, [&](int i) { return b * B + at(i) / K; }, [&](int i) { return at(i) % K; },
                (R)0, of);
            CELL_UNROLL
            for (int i = 0; i < N; i++)
                cell_store(to.place(at(i) / K, at(i) % K), of[i]);
        }
    }

    // z of the thread's rows with the numbers of z and c, and in `right` with the window to the block's end.
    __device__ __forceinline__ R put_known(int b, const R (&h)[B], const matrix (&right)[additions],
                                           R (&z)[additions][own_rows]) const
    {
        R window[own_rows], run = 1;
        CELL_UNROLL
        for (int s = B - 1; s >= 0; s--) {
            if (s % shares == share())
                window[s / shares] = run;
            run *= h[s];
        }
        CELL_UNROLL
        for (int n = 0; n < additions; n++) {
            R by[own_rows];
            load_known(n, b, z[n]);
            own_numbers(x.addition[n].column, b, by);
            CELL_UNROLL
            for (int j = 0; j < own_rows; j++) {
                z[n][j] *= by[j];
                cell_store(right[n].place(j * shares + share(), value()), z[n][j] * window[j]);
            }
        }
        return run;
    }

    __device__ __forceinline__ static void scale(state_tile &sum, cell_smem<R> total)
    {
        sum.each([&](int, int v, R &s) { s *= total[v]; });
    }
    // sum = total o sum + left' right
    template <int N>
    __device__ __forceinline__ static void add(state_tile &sum, const matrix (&left)[N],
                                               const matrix (&right)[N], cell_smem<R> total)
    {
        scale(sum, total);
        CELL_UNROLL_BY(1)
        for (int n = 0; n < N; n++)
            sum.add(left[n].across(), right[n], 0, B);
    }

    // one(k, v, number of the element)
    template <class One> __device__ __forceinline__ void each_element(state_tile &sum, One one) const
    {
        sum.each([&](int k, int v, R &s) {
            if (k < x.keys && first + v < x.values)
                one(s, (first + v) * x.keys + k);
        });
    }

    // The sums of the thread's neighbours that have the same value.
    __device__ __forceinline__ static R sum_shares(R s)
    {
        CELL_UNROLL
        for (int apart = 1; apart < shares; apart *= 2)
            s += cell_shfl_xor(s, apart);
        return s;
    }
};

// ---- B and D of a chunk ----

template <class M> struct cell_chunk_value_sums : cell_chunk_valued<M, M::values> {
    typedef cell_chunk_valued<M, M::values> base;
    typedef typename M::Real R;
    typedef typename base::matrix matrix;
    static constexpr int most = M::additions > M::reads ? M::additions : M::reads;
    using base::B;
    using base::first;
    using base::K;
    using base::rows;
    using base::V;
    using base::x;

    __host__ __device__ static constexpr int64_t smem()
    {
        return most * (base::keys_bytes() + base::values_bytes()) + cell_carve_bytes<R>(V);
    }

    const int64_t chunk;
    unsigned char *cursor;

    __device__ __forceinline__ cell_chunk_value_sums(const cell_chunk<M> &of, int64_t number,
                                                     int64_t first_value)
        : base(of, number, first_value), chunk(number), cursor(cell_shared())
    {
    }

    __device__ void store(typename base::state_tile &sum, R whole) const
    {
        R *const to = cell_chunk_value_sums_of(x, chunk);
        this->each_element(sum, [&](R s, int64_t at) { to[at] = s; });
        if (base::share() == 0 && first + base::value() < x.values)
            to[x.keys * x.values + first + base::value()] = whole;
    }

    __device__ void make()
    {
        matrix left[M::additions], right[M::additions];
        for (int n = 0; n < M::additions; n++) {
            left[n] = base::carve_matrix(cursor, B, base::key_pitch);
            right[n] = base::carve_matrix(cursor, B, base::value_pitch);
        }
        const cell_smem<R> total = cell_carve<R>(cursor, V);
        typename base::state_tile sum;
        sum.clear();
        R whole = 1;
        for (int b = 0; b < base::used(); b++) {
            R h[B], z[M::additions][base::own_rows];
            this->load_gates(b, h);
            cell_barrier();
            for (int n = 0; n < M::additions; n++)
                this->load_keys(left[n], x.addition[n].column, b);
            const R run = this->put_known(b, h, right, z);
            if (base::share() == 0)
                total[base::value()] = run;
            whole *= run;
            cell_barrier();
            base::add(sum, left, right, total);
        }
        store(sum, whole);
    }

    // What reads give to the adjoint state in front of the chunk.
    __device__ void make_back(const cell_chunk_backward<M> &g)
    {
        matrix left[M::reads], right[M::reads];
        for (int r = 0; r < M::reads; r++) {
            left[r] = base::carve_matrix(cursor, B, base::key_pitch);
            right[r] = base::carve_matrix(cursor, B, base::value_pitch);
        }
        const cell_smem<R> total = cell_carve<R>(cursor, V);
        typename base::state_tile sum;
        sum.clear();
        R whole = 1;
        for (int b = base::used() - 1; b >= 0; b--) {
            R h[B], window[2][base::own_rows], run = 1; // before the row, and behind it
            this->load_gates(b, h);
            CELL_UNROLL
            for (int t = 0; t < B; t++) {
                const R next = run * h[t];
                if (t % base::shares == base::share())
                    window[0][t / base::shares] = run, window[1][t / base::shares] = next;
                run = next;
            }
            cell_barrier();
            for (int r = 0; r < M::reads; r++) {
                this->load_keys(left[r], x.read[r], b);
                R y[base::own_rows], by[base::own_rows];
                this->own_values(g.cotangent[r], b, y);
                this->own_numbers(x.read[r], b, by);
                CELL_UNROLL
                for (int j = 0; j < base::own_rows; j++)
                    cell_store(right[r].place(j * base::shares + base::share(), base::value()),
                               y[j] * by[j] * window[M::before >> r & 1 ? 0 : 1][j]);
            }
            if (base::share() == 0)
                total[base::value()] = run;
            whole *= run;
            cell_barrier();
            base::add(sum, left, right, total);
        }
        store(sum, whole);
    }
};

// Grid: a block of CELL_CHUNK_THREADS for each chunk, and M::values values, of each head of each sequence;
// cell_chunk_value_sums<M>::smem() bytes. Chunks without rows have no record.
template <class M> __device__ void cell_chunk_value_sum(const cell_chunk<M> &x, int64_t chunk, int64_t first)
{
    if (!cell_chunk_empty(x, chunk))
        cell_chunk_value_sums<M>(x, chunk, first).make();
}
template <class M>
__device__ void cell_chunk_value_sum_back(const cell_chunk_backward<M> &g, int64_t chunk, int64_t first)
{
    if (!cell_chunk_empty(g.of, chunk))
        cell_chunk_value_sums<M>(g.of, chunk, first).make_back(g);
}

// ---- the walk ----

enum { CELL_CHUNK_VALUE_AHEAD = 8 }; // chunks whose B and D are on their way at once

// In the place of each chunk's B the state that it begins with, or, Back, ends with, for one element of the
// head's state. save(chunk, s) is given each. Out: the last state.
template <class M, bool Back, class Save>
__device__ __forceinline__ typename M::Real cell_chunk_value_pass(const cell_chunk<M> &x, int64_t element,
                                                                  typename M::Real s, Save save)
{
    typedef typename M::Real R;
    constexpr int N = CELL_CHUNK_VALUE_AHEAD;
    const int64_t chunks = cell_chunk_count(x.length, M::rows),
                  pitch = (x.keys + 1) * x.values * (Back ? -1 : 1),
                  gate = x.keys * x.values + element / x.keys;
    R *at = cell_chunk_value_sums_of(x, Back ? chunks - 1 : 0);
    for (int64_t c = 0; c < chunks; c += N) {
        const int n = chunks - c < N ? (int)(chunks - c) : N;
        R b[N], d[N];
        CELL_UNROLL
        for (int i = 0; i < N; i++) {
            const R *const from = at + (i < n ? i : 0) * pitch;
            b[i] = from[element], d[i] = from[gate];
        }
        CELL_UNROLL
        for (int i = 0; i < N; i++)
            if (i < n) {
                at[i * pitch + element] = s;
                save(Back ? chunks - 1 - c - i : c + i, s);
                s = d[i] * s + b[i];
            }
        at += N * pitch;
    }
    return s;
}

// Grids: a block of CELL_CHUNK_THREADS for as many elements of each head of each sequence; no shared memory.
// block: the block's number. Of `g` it needs `of`, last, first and adds.
template <class M> __device__ void cell_chunk_value_walk(const cell_chunk<M> &x, int64_t block)
{
    typedef typename M::Real R;
    const int64_t e = block * CELL_CHUNK_THREADS + cell_thread(), k = e % x.keys, v = e / x.keys;
    if (v >= x.values)
        return;
    const R s =
        cell_chunk_value_pass<M, false>(x, e, cell_chunk_state_load<M>(x.from, k, v),
                                        [&](int64_t chunk, R is) {
                                            if (x.saved)
                                                cell_store(x.saved + chunk * x.keys * x.values + e, is);
                                        });
    cell_chunk_state_store<M>(x.to, k, v, s);
}
template <class M> __device__ void cell_chunk_value_walk_back(const cell_chunk_backward<M> &g, int64_t block)
{
    typedef typename M::Real R;
    const cell_chunk<M> &x = g.of;
    const int64_t e = block * CELL_CHUNK_THREADS + cell_thread(), k = e % x.keys, v = e / x.keys;
    if (v >= x.values)
        return;
    const R s =
        cell_chunk_value_pass<M, true>(x, e, cell_chunk_state_load<M>(g.last, k, v), [](int64_t, R) {});
    if (cell_chunk_there<M>(g.first))
        cell_chunk_leave<M>(g.first, k, v, s, g.adds);
}

// ---- reads ----

template <class M> struct cell_chunk_value_reader : cell_chunk_valued<M, M::values> {
    typedef cell_chunk_valued<M, M::values> base;
    typedef typename M::Real R;
    typedef typename M::Part Part;
    typedef typename base::matrix matrix;
    using base::B;
    using base::first;
    using base::K;
    using base::rows;
    using base::V;
    using base::x;

    __host__ __device__ static constexpr int64_t smem()
    {
        return (M::additions + M::reads) * base::keys_bytes() + M::additions * base::values_bytes() +
               base::state_bytes() + M::reads * M::additions * base::square_bytes() +
               M::reads * base::lines_bytes() + cell_carve_bytes<R>(V);
    }

    const int64_t chunk;
    matrix left[M::additions], right[M::additions], query[M::reads], state;
    cell_smem<R> score[M::reads][M::additions], start[M::reads], total; // q' c; q' S; D of a block

    __device__ __forceinline__ cell_chunk_value_reader(const cell_chunk<M> &of, int64_t number,
                                                       int64_t first_value)
        : base(of, number, first_value), chunk(number)
    {
        auto cursor = cell_shared();
        for (int n = 0; n < M::additions; n++) {
            left[n] = base::carve_matrix(cursor, B, base::key_pitch);
            right[n] = base::carve_matrix(cursor, B, base::value_pitch);
        }
        for (int r = 0; r < M::reads; r++) {
            query[r] = base::carve_matrix(cursor, B, base::key_pitch);
            start[r] = cell_carve<R>(cursor, B * base::value_line);
            for (int n = 0; n < M::additions; n++)
                score[r][n] = cell_carve<R>(cursor, B * base::square_line);
        }
        state = base::carve_matrix(cursor, K, base::value_pitch);
        total = cell_carve<R>(cursor, V);
    }

    __device__ __forceinline__ void put(int r, int t, int v, R value) const
    {
        if (x.result[r].at && rows.first + t < x.steps && first + v < x.values)
            cell_chunk_put<M>(x.result[r], rows.first + t, first + v, t < rows.valid ? value : (R)0);
    }

    // Rows from `t` on have no values.
    __device__ void clear(int t)
    {
        for (int r = 0; r < M::reads; r++)
            for (int n = t * V + cell_thread(); n < M::rows * V; n += base::threads)
                put(r, n / V, n % V, 0);
    }

    // Of a block, with the state in front of it in shared memory.
    __device__ void multiply()
    {
        for (int r = 0; r < M::reads; r++) {
            const bool before = M::before >> r & 1;
            typename base::rows_tile of_state;
            of_state.clear();
            of_state.add(query[r], state, 0, K);
            of_state.each([&](int t, int v, R &s) { start[r][t * base::value_line + v] = s; });
            for (int n = 0; n < M::additions; n++) {
                typename base::square_tile of_column;
                of_column.clear();
                of_column.add(query[r], left[n].across(), 0, K);
                of_column.each([&](int t, int s, R &sum) {
                    score[r][n][t * base::square_line + s] = s <= t - before ? sum : (R)0;
                });
            }
        }
    }

    __device__ __forceinline__ void read(int r, int b, const R (&h)[B],
                                         const R (&z)[M::additions][base::own_rows]) const
    {
        const bool before = M::before >> r & 1;
        R o[B] = {}, run = 1;
        CELL_UNROLL
        for (int n = 0; n < M::additions; n++) {
            CELL_UNROLL
            for (int j = 0; j < base::own_rows; j++) {
                const int s = j * base::shares + base::share();
                R kept = z[n][j];
                CELL_UNROLL
                for (int t = j * base::shares; t < B; t++) {
                    const R next = t > s ? kept * h[t] : kept;
                    o[t] += (R)score[r][n][t * base::square_line + s] * (before ? kept : next);
                    kept = next;
                }
            }
        }
        R by[base::own_rows];
        this->own_numbers(x.read[r], b, by);
        CELL_UNROLL
        for (int t = 0; t < B; t++) {
            const R next = run * h[t], all = base::sum_shares(o[t]);
            if (t % base::shares == base::share())
                put(r, b * B + t, base::value(),
                    by[t / base::shares] *
                        (all + (before ? run : next) * (R)start[r][t * base::value_line + base::value()]));
            run = next;
        }
    }

    __device__ void make()
    {
        typename base::state_tile sum;
        sum.clear();
        const R *const from = cell_chunk_value_sums_of(x, chunk);
        this->each_element(sum, [&](R &s, int64_t at) { s = from[at]; });
        for (int b = 0; b < base::used(); b++) {
            R h[B], z[M::additions][base::own_rows];
            this->load_gates(b, h);
            cell_barrier();
            for (int n = 0; n < M::additions; n++)
                this->load_keys(left[n], x.addition[n].column, b);
            for (int r = 0; r < M::reads; r++)
                this->load_keys(query[r], x.read[r], b);
            const R run = this->put_known(b, h, right, z);
            if (base::share() == 0)
                total[base::value()] = run;
            sum.store(state);
            cell_barrier();
            multiply();
            cell_barrier();
            CELL_UNROLL
            for (int r = 0; r < M::reads; r++)
                read(r, b, h, z);
            if (b + 1 < base::used())
                base::add(sum, left, right, total);
        }
        clear(base::used() * B);
    }
};

// Grid: as cell_chunk_value_sum; cell_chunk_value_reader<M>::smem() bytes.
template <class M> __device__ void cell_chunk_value_read(const cell_chunk<M> &x, int64_t chunk, int64_t first)
{
    cell_chunk_value_reader<M> reader(x, chunk, first);
    if (cell_chunk_empty(x, chunk))
        reader.clear(0);
    else
        reader.make();
}

// ---- gradients ----
//
// Of a block, for each value, with dS the adjoint of the state behind it. Slot u of readers is what reads
// behind row u, or before row u + 1, or, of the last row, the state behind the block:
//
//     e_n[u, s] = sum_r (q_r' c_n) do_r + (at u = 15) c_n' dS
//     e[u, -1]  = sum_r (q_r' S) do_r + (at u = 15) S' dS                  of the state in front
//     dz_n[s]   = sum_u G[u, s] e_n[u, s]
//     y[t, s]   = sum_n z_n[s] e_n[t, s] + h_(t+1) y[t+1, s]
//     dh[t]     = sum_(s < t) y[t, s] G[t-1, s]
//
// and, summed over values, with G or, of reads before, G[t-1, s],
//
//     P_rn[t, s] = sum_v do_r[t] G[t, s] z_n[s]
//     dq_r[t]    = sum_(n, s) P_rn[t, s] c_n[s] + S (do_r G[t, -1])
//     dc_n[s]    = sum_(r, t) P_rn[t, s] q_r[t] + dS (z_n G[15, s])
template <class M> struct cell_chunk_value_rester : cell_chunk_valued<M, M::rest_values, M::rest_threads> {
    typedef cell_chunk_valued<M, M::rest_values, M::rest_threads> base;
    typedef typename M::Real R;
    typedef typename M::Part Part;
    typedef typename base::matrix matrix;
    using base::B;
    using base::blocks;
    using base::K;
    using base::rows;
    using base::V;
    using base::x;
    static constexpr int C = M::rows, additions = M::additions, reads = M::reads, vectors = reads + additions,
                         pairs = reads * additions, threads = base::threads, warps = threads / 32;
    static constexpr int key_line = K + 1, square_pitch = cell_chunk_pitch<Part>(B),
                         value_line = base::value_line, line = base::square_line;

    // Matrices of Part: q_r and c_n; z_n and do_r with windows, do_r also with its number; S in front of each
    // block, and dS; P_rn with numbers. Of Real: dq_r and dc_n [C][K + 1]; h, z_n with its number, do_r, q_r'
    // S, c_n' dS [16][V + 1]; q_r' c_n, P_rn by warp and of each block [16][17]; sums of gradients of z's
    // numbers [C]; numbers of vectors [16]; D and S' dS of a block [V].
    __host__ __device__ static constexpr int64_t smem()
    {
        return cell_carve_bytes<cell_chunk_backward<M>>(1) +
               cell_carve_bytes<Part>(vectors * B * base::key_pitch) +
               cell_carve_bytes<Part>((additions + 2 * reads) * B * base::value_pitch) +
               cell_carve_bytes<Part>((blocks + 1) * K * base::value_pitch) +
               cell_carve_bytes<Part>(2 * B * square_pitch) + cell_carve_bytes<R>(vectors * C * key_line) +
               cell_carve_bytes<R>((1 + 2 * additions + 2 * reads) * B * value_line) +
               cell_carve_bytes<R>(pairs * B * line) + cell_carve_bytes<R>(pairs * warps * B * line) +
               cell_carve_bytes<R>(pairs * blocks * B * line) + cell_carve_bytes<R>(additions * C) +
               cell_carve_bytes<R>(vectors * B) + 2 * cell_carve_bytes<R>(V);
    }

    const cell_chunk_backward<M> &g;
    const int64_t chunk;
    cell_smem<Part> keys, values, states, squares;
    cell_smem<R> d_key, lines;
    cell_smem<R> score, part, sum_of, d_number, number_row, total, whole;

    __device__ __forceinline__ cell_chunk_value_rester(const cell_chunk_backward<M> &of,
                                                       unsigned char *cursor, int64_t number)
        : base(of.of, number, 0), g(of), chunk(number)
    {
        keys = cell_carve<Part>(cursor, vectors * B * base::key_pitch);
        values = cell_carve<Part>(cursor, (additions + 2 * reads) * B * base::value_pitch);
        states = cell_carve<Part>(cursor, (blocks + 1) * K * base::value_pitch);
        squares = cell_carve<Part>(cursor, 2 * B * square_pitch);
        d_key = cell_carve<R>(cursor, vectors * C * key_line);
        lines = cell_carve<R>(cursor, (1 + 2 * additions + 2 * reads) * B * value_line);
        score = cell_carve<R>(cursor, pairs * B * line);
        part = cell_carve<R>(cursor, pairs * warps * B * line);
        sum_of = cell_carve<R>(cursor, pairs * blocks * B * line);
        d_number = cell_carve<R>(cursor, additions * C);
        number_row = cell_carve<R>(cursor, vectors * B);
        total = cell_carve<R>(cursor, V);
        whole = cell_carve<R>(cursor, V);
    }

    __device__ __forceinline__ matrix key(int i) const
    {
        return { keys + i * B * base::key_pitch, base::key_pitch };
    }
    __device__ __forceinline__ matrix of_values(int i) const
    {
        return { values + i * B * base::value_pitch, base::value_pitch };
    }
    __device__ __forceinline__ matrix known_end(int n) const
    {
        return of_values(n);
    }
    __device__ __forceinline__ matrix back(int r) const
    {
        return of_values(additions + r);
    }
    __device__ __forceinline__ matrix back_number(int r) const
    {
        return of_values(additions + reads + r);
    }
    // In front of block b; of `blocks`, dS.
    __device__ __forceinline__ matrix state(int b) const
    {
        return { states + b * K * base::value_pitch, base::value_pitch };
    }
    __device__ __forceinline__ matrix pair(int i) const
    {
        return { squares + i * B * square_pitch, square_pitch };
    }
    __device__ __forceinline__ cell_smem<R> row_line(int i) const
    {
        return lines + i * B * value_line;
    }
    __device__ __forceinline__ cell_smem<R> gate_row() const
    {
        return row_line(0);
    }
    __device__ __forceinline__ cell_smem<R> known_row(int n) const
    {
        return row_line(1 + n);
    }
    __device__ __forceinline__ cell_smem<R> end(int n) const
    {
        return row_line(1 + additions + n);
    }
    __device__ __forceinline__ cell_smem<R> cotangent(int r) const
    {
        return row_line(1 + 2 * additions + r);
    }
    __device__ __forceinline__ cell_smem<R> start(int r) const
    {
        return row_line(1 + 2 * additions + reads + r);
    }

    // Vector i: of reads, then columns.
    __device__ __forceinline__ const cell_chunk_vector &vector(int i) const
    {
        return i < reads ? x.read[i] : x.addition[i - reads].column;
    }
    __device__ __forceinline__ const cell_chunk_gradient &result(int i) const
    {
        return i < reads ? g.read[i] : g.column[i - reads];
    }
    __device__ __forceinline__ static constexpr bool before(int r)
    {
        return M::before >> r & 1;
    }
    __device__ __forceinline__ cell_smem<R> d_row(int i, int t) const
    {
        return d_key + (i * C + t) * key_line;
    }
    __device__ __forceinline__ bool there(int64_t v) const
    {
        return v < x.values;
    }

    // ---- S in front of each block of the values from v0 on ----

    __device__ void make_states(base &of)
    {
        typename base::state_tile sum;
        sum.clear();
        const Part *const saved = x.saved + chunk * x.keys * x.values;
        of.each_element(sum, [&](R &s, int64_t at) { s = cell_load<R>(saved + at); });
        for (int b = 0; b < base::used(); b++) {
            sum.store(state(b));
            if (b + 1 == base::used())
                return;
            R h[B], z[additions][base::own_rows];
            matrix left[additions], right[additions];
            of.load_gates(b, h);
            cell_barrier();
            CELL_UNROLL
            for (int n = 0; n < additions; n++) {
                left[n] = key(reads + n);
                right[n] = known_end(n);
                of.load_keys(left[n], x.addition[n].column, b);
            }
            const R run = of.put_known(b, h, right, z);
            if (base::share() == 0)
                total[base::value()] = run;
            cell_barrier();
            base::add(sum, left, right, total);
        }
    }

    // ---- a block ----

    // What stands in shared memory of a block's rows; a barrier is in front of it and behind.
    __device__ void load(base &of, int b, const R (&h)[B])
    {
        load_numbers(b);
        for (int i = 0; i < vectors; i++)
            of.load_keys(key(i), vector(i), b);
        R to_end[base::own_rows], window[2][base::own_rows], run = 1;
        CELL_UNROLL
        for (int s = B - 1; s >= 0; s--) {
            if (s % base::shares == base::share())
                to_end[s / base::shares] = run;
            run *= h[s];
        }
        if (base::share() == 0)
            total[base::value()] = run;
        run = 1;
        CELL_UNROLL
        for (int t = 0; t < B; t++) {
            const R next = run * h[t];
            if (t % base::shares == base::share()) {
                window[0][t / base::shares] = run, window[1][t / base::shares] = next;
                gate_row()[t * value_line + base::value()] = h[t];
            }
            run = next;
        }
        const int v = base::value();
        R of_row[base::own_rows], by[base::own_rows];
        for (int n = 0; n < additions; n++) {
            of.load_known(n, b, of_row);
            CELL_UNROLL
            for (int j = 0; j < base::own_rows; j++) {
                const int s = j * base::shares + base::share();
                known_row(n)[s * value_line + v] = of_row[j];
                cell_store(known_end(n).place(s, v), of_row[j] * to_end[j]);
            }
        }
        for (int r = 0; r < reads; r++) {
            of.own_values(g.cotangent[r], b, of_row);
            of.own_numbers(x.read[r], b, by);
            CELL_UNROLL
            for (int j = 0; j < base::own_rows; j++) {
                const int s = j * base::shares + base::share();
                const R w = window[before(r) ? 0 : 1][j];
                cotangent(r)[s * value_line + v] = of_row[j];
                cell_store(back(r).place(s, v), of_row[j] * w);
                cell_store(back_number(r).place(s, v), of_row[j] * w * by[j]);
            }
        }
    }
    // Without those of values: a barrier is behind it.
    __device__ void load_numbers(int b)
    {
        for (int n = cell_thread(); n < vectors * B; n += threads)
            number_row[n] = this->number(vector(n / B), b * B + n % B);
    }
    __device__ __forceinline__ R number_of(int i, int t) const
    {
        return number_row[i * B + t];
    }

    // q' S, c' dS, q' c with their numbers, S' dS, and what states give dq and dc.
    __device__ void multiply(int b)
    {
        const matrix &d_state = state(blocks);
        for (int i = 0; i < vectors; i++) {
            typename base::rows_tile of_state;
            of_state.clear();
            of_state.add(key(i), i < reads ? state(b) : d_state, 0, K);
            const cell_smem<R> to = i < reads ? start(i) : end(i - reads);
            of_state.each([&](int t, int v, R &s) { to[t * value_line + v] = s * number_of(i, t); });
            typename base::keys_tile of_values;
            of_values.clear();
            if (i < reads)
                of_values.add(back(i), state(b).across(), 0, V);
            else
                of_values.add(known_end(i - reads), d_state.across(), 0, V);
            of_values.each([&](int t, int k, R &s) { d_row(i, b * B + t)[k] += s; });
        }
        for (int r = 0; r < reads; r++)
            for (int n = 0; n < additions; n++) {
                typename base::square_tile of_column;
                of_column.clear();
                of_column.add(key(r), key(reads + n).across(), 0, K);
                of_column.each([&](int t, int s, R &sum) {
                    const R by = number_of(r, t) * number_of(reads + n, s);
                    score[(r * additions + n) * B * line + t * line + s] =
                        s <= t - before(r) ? sum * by : (R)0;
                });
            }
        R sum = 0;
        CELL_UNROLL_BY(4)
        for (int k = base::share(); k < K; k += base::shares)
            sum += cell_load<R>(state(b).place(k, base::value())) *
                   cell_load<R>(d_state.place(k, base::value()));
        sum = base::sum_shares(sum);
        if (base::share() == 0)
            whole[base::value()] = sum;
    }

    // P_rn of the values of each warp: a thread has a row s and some values.
    __device__ void pair_rows()
    {
        const int s = cell_lane() % B;
        for (int r = 0; r < reads; r++)
            for (int n = 0; n < additions; n++) {
                R p[B] = {};
                for (int v = cell_thread() / B; v < V; v += threads / B) {
                    R kept = known_row(n)[s * value_line + v];
                    CELL_UNROLL
                    for (int t = 0; t < B; t++) {
                        const R next = t > s ? kept * (R)gate_row()[t * value_line + v] : kept;
                        if (s <= t - before(r))
                            p[t] += (R)cotangent(r)[t * value_line + v] * (before(r) ? kept : next);
                        kept = next;
                    }
                }
                CELL_UNROLL
                for (int t = 0; t < B; t++) {
                    const R both = p[t] + cell_shfl_xor(p[t], B);
                    if (cell_lane() < B)
                        part[(((r * additions + n) * warps + cell_warp()) * B + t) * line + s] = both;
                }
            }
    }
    __device__ void add_pairs(int b)
    {
        for (int n = cell_thread(); n < pairs * B * B; n += threads) {
            const int of = n / (B * B), at = n / B % B * line + n % B;
            R sum = sum_of[(of * blocks + b) * B * line + at];
            for (int w = 0; w < warps; w++)
                sum += part[(of * warps + w) * B * line + at];
            sum_of[(of * blocks + b) * B * line + at] = sum;
        }
    }

    // e_n[u, s] of the thread's value, but for the state behind the block; s is -1 of the state in front. It
    // is 0 where u < s.
    __device__ __forceinline__ R slot(int n, int u, int s) const
    {
        const int v = base::value();
        R e = 0;
        CELL_UNROLL
        for (int r = 0; r < reads; r++) {
            const int t = before(r) ? u + 1 : u;
            if (t < B) {
                const R by = s < 0 ? (R)start(r)[t * value_line + v]
                                   : (R)score[(r * additions + n) * B * line + t * line + s];
                e += by * (R)cotangent(r)[t * value_line + v];
            }
        }
        return e;
    }

    // dz_n of the row s, in the place of c_n' dS, and what it gives to dh. First: s is not before it. Front:
    // s is -1.
    template <int First, bool Front>
    __device__ __forceinline__ void back_row(int s, const R (&h)[B], R (&dh)[B])
    {
        const int v = base::value();
        R window[B], e[B], run = 1;
        CELL_UNROLL
        for (int t = First; t < B; t++) {
            run = t > s ? run * h[t] : run;
            window[t] = run, e[t] = 0;
        }
        CELL_UNROLL
        for (int n = 0; n < (Front ? 1 : additions); n++) {
            const R z = Front ? (R)1 : (R)known_row(n)[s * value_line + v];
            R dz = 0;
            CELL_UNROLL
            for (int u = First; u < B; u++) {
                R of = slot(n, u, s);
                if (u == B - 1)
                    of += Front ? (R)whole[v] : (R)end(n)[s * value_line + v];
                dz += window[u] * of;
                e[u] += z * of;
            }
            if (!Front)
                end(n)[s * value_line + v] = dz;
        }
        R y = 0;
        CELL_UNROLL
        for (int t = B - 1; t >= First; t--) {
            y = t + 1 < B ? e[t] + h[t + 1 < B ? t + 1 : t] * y : e[t];
            dh[t] += t > s ? y * (t > First ? window[t > First ? t - 1 : t] : (R)1) : (R)0;
        }
    }
    template <int J> __device__ __forceinline__ void back_rows(const R (&h)[B], R (&dh)[B])
    {
        back_row<J * base::shares, false>(J * base::shares + base::share(), h, dh);
        if constexpr (J + 1 < base::own_rows)
            back_rows<J + 1>(h, dh);
    }

    __device__ void make_rows(const base &of, int b, const R (&h)[B])
    {
        R dh[B] = {};
        if (base::share() == base::shares - 1) // which has the fewest of what rows before give
            back_row<0, true>(-1, h, dh);
        back_rows<0>(h, dh);
        CELL_UNROLL
        for (int t = 0; t < B; t++) {
            const R sum = base::sum_shares(dh[t]);
            const int at = b * B + t;
            if (t % base::shares == base::share() && g.decay.at && rows.first + at < x.steps &&
                there(of.first + base::value()))
                cell_chunk_put<M>(g.decay, rows.first + at, of.first + base::value(),
                                  at < rows.valid ? sum : (R)0);
        }
    }

    // dz_n, from where make_rows has left it.
    __device__ void put_known_gradients(const base &of, int b)
    {
        for (int n = 0; n < additions; n++) {
            const cell_chunk_gradient &to = g.known[n];
            const cell_chunk_vector &z = x.addition[n].known;
            for (int j = cell_thread(); to.vector.at && j < B * V; j += threads) {
                const int t = b * B + j / V;
                const int64_t v = of.first + j % V;
                if (rows.first + t < x.steps && there(v))
                    cell_chunk_put<M>(to.vector, rows.first + t, v,
                                      (R)end(n)[j / V * value_line + j % V] * this->number(z, t));
            }
            if (!to.number.at)
                continue;
            const int row = cell_thread() / (threads / B), t = b * B + row;
            R sum = 0;
            for (int v = cell_thread() % (threads / B); v < V; v += threads / B)
                sum += cell_chunk_load<M>(z.vector, rows, t, of.first + v, x.values) *
                       (R)end(n)[row * value_line + v];
            sum = sum_row(sum);
            if (cell_thread() % (threads / B) == 0)
                d_number[n * C + t] += sum;
        }
    }
    // Over the threads of a row.
    __device__ __forceinline__ static R sum_row(R sum)
    {
        CELL_UNROLL
        for (int apart = 1; apart < threads / B; apart *= 2)
            sum += cell_shfl_xor(sum, apart);
        return sum;
    }

    __device__ void make_values(int64_t v0)
    {
        base of(x, chunk, v0);
        typename base::state_tile d_state;
        make_states(of);
        d_state.clear();
        const R *const last = cell_chunk_value_sums_of(x, chunk);
        of.each_element(d_state, [&](R &s, int64_t at) { s = last[at]; });
        for (int b = base::used() - 1; b >= 0; b--) {
            R h[B];
            of.load_gates(b, h);
            cell_barrier();
            d_state.store(state(blocks));
            load(of, b, h);
            cell_barrier();
            multiply(b);
            cell_barrier();
            pair_rows();
            make_rows(of, b, h);
            cell_barrier();
            add_pairs(b);
            put_known_gradients(of, b);
            base::scale(d_state, total);
            for (int r = 0; r < reads; r++)
                d_state.add(key(r).across(), back_number(r), 0, B);
        }
        cell_barrier();
    }

    // ---- sums over values ----

    // What rows of a block give one another of dq and dc: P_rn with the number of each, barriers between.
    __device__ void add_rows(int b)
    {
        for (int r = 0; r < reads; r++)
            for (int n = 0; n < additions; n++) {
                const cell_smem<R> p = sum_of + ((r * additions + n) * blocks + b) * B * line;
                for (int i = cell_thread(); i < B * B; i += threads) {
                    const int t = i / B, at = i % B;
                    const R sum = p[t * line + at];
                    cell_store(pair(0).place(t, at), sum * number_of(reads + n, at));
                    cell_store(pair(1).place(t, at), sum * number_of(r, t));
                }
                cell_barrier();
                typename base::keys_tile of_columns, of_queries;
                of_columns.clear();
                of_columns.add(pair(0), key(reads + n), 0, B);
                of_columns.each([&](int t, int k, R &sum) { d_row(r, b * B + t)[k] += sum; });
                of_queries.clear();
                of_queries.add(pair(1).across(), key(r), 0, B);
                of_queries.each([&](int t, int k, R &sum) { d_row(reads + n, b * B + t)[k] += sum; });
                cell_barrier();
            }
    }

    __device__ void put_keys(int b)
    {
        for (int i = 0; i < vectors; i++) {
            const cell_chunk_gradient &to = result(i);
            for (int n = cell_thread(); to.vector.at && n < B * K; n += threads) {
                const int t = b * B + n / K, k = n % K;
                if (rows.first + t < x.steps && k < x.keys)
                    cell_chunk_put<M>(to.vector, rows.first + t, k, (R)d_row(i, t)[k] * number_of(i, n / K));
            }
            if (!to.number.at)
                continue;
            const int t = b * B + cell_thread() / (threads / B);
            R sum = 0;
            for (int k = cell_thread() % (threads / B); k < K; k += threads / B)
                sum += cell_chunk_load<M>(vector(i).vector, rows, t, k, x.keys) * (R)d_row(i, t)[k];
            put_number(to.number, vector(i).number, t, sum_row(sum));
        }
        for (int n = 0; n < additions; n++) {
            const int t = b * B + cell_thread() / (threads / B);
            if (g.known[n].number.at)
                put_number(g.known[n].number, x.addition[n].known.number, t, d_number[n * C + t]);
        }
    }
    __device__ __forceinline__ void put_number(const cell_chunk_result &to, const cell_row_number &number,
                                               int t, R sum) const
    {
        if (cell_thread() % (threads / B) == 0 && rows.first + t < x.steps)
            cell_chunk_put<M>(to, rows.first + t, 0, t < rows.valid ? sum * (R)number.times : (R)0);
    }

    // ---- all ----

    __device__ void make()
    {
        for (int n = cell_thread(); n < vectors * C * key_line; n += threads)
            d_key[n] = 0;
        for (int n = cell_thread(); n < pairs * blocks * B * line; n += threads)
            sum_of[n] = 0;
        for (int n = cell_thread(); n < additions * C; n += threads)
            d_number[n] = 0;
        cell_barrier();
        for (int64_t v0 = 0; v0 < x.values; v0 += V)
            make_values(v0);
        for (int b = 0; b < base::used(); b++) {
            cell_barrier();
            load_numbers(b);
            for (int i = 0; i < vectors; i++)
                this->load_keys(key(i), vector(i), b);
            cell_barrier();
            add_rows(b);
            put_keys(b);
        }
        clear_from(base::used() * B);
    }

    // Rows of the call from t on that have no block.
    __device__ void clear_from(int t)
    {
        const int64_t from = rows.first + t, end = rows.first + C < x.steps ? rows.first + C : x.steps;
        for (int i = 0; i < vectors; i++)
            clear(result(i), from, end, x.keys);
        for (int n = 0; n < additions; n++)
            clear(g.known[n], from, end, x.values);
        clear({ g.decay, {} }, from, end, x.values);
    }
    __device__ void clear(const cell_chunk_gradient &to, int64_t from, int64_t end, int64_t extent)
    {
        for (int64_t n = cell_thread(); to.vector.at && !to.vector.adds && n < (end - from) * extent;
             n += threads)
            cell_chunk_put<M>(to.vector, from + n / extent, n % extent, 0);
        for (int64_t n = cell_thread(); to.number.at && !to.number.adds && n < end - from; n += threads)
            cell_chunk_put<M>(to.number, from + n, 0, 0);
    }
};

// Grid: a block of M::rest_threads for each chunk of each head of each sequence;
// cell_chunk_value_rester<M>::smem() bytes.
template <class M> __device__ void cell_chunk_value_rest(const cell_chunk_backward<M> &g, int64_t chunk)
{
    auto cursor = cell_shared();
    const cell_smem<cell_chunk_backward<M>> of = cell_carve<cell_chunk_backward<M>>(cursor, 1);
    if (cell_thread() == 0)
        of[0] = g;
    cell_barrier();
    cell_chunk_value_rester<M> rest(cell_shared_struct(of), cursor, chunk);
    if (cell_chunk_empty(g.of, chunk))
        rest.clear_from(0);
    else
        rest.make();
}

#endif
