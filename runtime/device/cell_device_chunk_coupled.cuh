// Chunks of two states that feed one another (cell_device_chunk.cuh): what needs no state, and gradients. The
// walks are those of all recurrences.
//
// With A_t the row's matrix of 2 x 2 numbers, windows are products of such matrices,
//
//     G[t, s] = A_t ... A_(s+1)     start[t] = A_(t-1) ... A_0
//
// so that a score of f and c is sum_ij G_ij[t, s] (f_i' c_j), with f_i the elements 2 k + i of f. A read
// behind the row takes G[t, s] and s <= t; a read before it, and w, take G[t-1, s] and s < t. G is made by
// the recursion over all of the chunk: it has no inverse, and gates may be 0.
//
// Guaranteed: sums are of Real, none on tensor cores; one order of sums.
#ifndef CELL_DEVICE_CHUNK_COUPLED_CUH
#define CELL_DEVICE_CHUNK_COUPLED_CUH

// Windows of a chunk, element 2 i + j of each.
template <class M> struct cell_chunk_matrices {
    typedef typename M::Real R;
    static constexpr int C = M::rows;
    static_assert(M::together == 1, "each row is an update");
    cell_smem<R> gate, window, start; // [C], [C][C] of s <= t, [C + 1]

    __host__ __device__ static constexpr int64_t bytes()
    {
        return cell_carve_bytes<R>(C * 4) + cell_carve_bytes<R>(C * C * 4) + cell_carve_bytes<R>((C + 1) * 4);
    }
    __device__ __forceinline__ void carve(unsigned char *&cursor)
    {
        gate = cell_carve<R>(cursor, C * 4);
        window = cell_carve<R>(cursor, C * C * 4);
        start = cell_carve<R>(cursor, (C + 1) * 4);
    }

    // Behind the rows they are the identity. Barriers are behind it.
    __device__ void make(const cell_chunk<M> &x, const cell_chunk_rows &rows)
    {
        for (int n = cell_thread(); n < C * 4; n += CELL_CHUNK_THREADS)
            gate[n] = n / 4 < rows.valid ? cell_rows_load<M>(x.decay, rows.first + n / 4, n % 4)
                                         : (R)(n % 4 % 3 == 0);
        cell_barrier();
        for (int s = cell_thread(); s <= C; s += CELL_CHUNK_THREADS) { // C: from the start
            R g[4] = {1, 0, 0, 1};
            put(s, s == C ? -1 : s, g);
            for (int t = s == C ? 0 : s + 1; t < C; t++) {
                const R a[4] = {gate[t * 4], gate[t * 4 + 1], gate[t * 4 + 2], gate[t * 4 + 3]};
                const R next[4] = {a[0] * g[0] + a[1] * g[2], a[0] * g[1] + a[1] * g[3],
                                   a[2] * g[0] + a[3] * g[2], a[2] * g[1] + a[3] * g[3]};
                for (int i = 0; i < 4; i++)
                    g[i] = next[i];
                put(s, t, g);
            }
        }
        cell_barrier();
    }
    // Of s, or where s is C the start, up to and with row t.
    __device__ __forceinline__ void put(int s, int t, const R (&g)[4]) const
    {
        for (int i = 0; i < 4; i++)
            if (s == C)
                start[(t + 1) * 4 + i] = g[i];
            else
                window[(t * C + s) * 4 + i] = g[i];
    }
};

// The last row whose matrix a reader of row t has.
__device__ __forceinline__ constexpr int cell_chunk_seen(int t, bool before)
{
    return before ? t - 1 : t;
}

template <class M> struct cell_chunk_coupled_prep : cell_chunk_plain_prep<M> {
    typedef cell_chunk_plain_prep<M> base;
    typedef typename M::Real R;
    typedef typename M::Part Part;
    typedef cell_chunk_record<M> record;
    static constexpr int C = M::rows, pitch = base::pitch, slab = base::slab, slab_pitch = base::slab_pitch;
    static_assert(M::keys % slab == 0, "keys come in equal parts");
    using base::inverse;
    using base::left;
    using base::left_number;
    using base::right;
    using base::right_number;
    using base::rows;
    using base::score;
    using base::x;

    __host__ __device__ static constexpr int64_t smem()
    {
        return base::smem() + cell_chunk_matrices<M>::bytes();
    }

    cell_chunk_matrices<M> of;

    __device__ __forceinline__ cell_chunk_coupled_prep(const cell_chunk<M> &head, int64_t chunk)
        : base(head, chunk)
    {
        auto cursor = this->carve();
        of.carve(cursor);
    }

    // What the two slabs give of the scores.
    __device__ void add_slab(bool before)
    {
        cell_patches<R, C, C>([&](auto &patch) {
            R all[4][4] = {};
            for (int ij = 0; ij < 4; ij++) {
                for (int i = 0; i < 4; i++)
                    for (int j = 0; j < 4; j++)
                        patch.sum[i][j] = 0;
                patch.add(
                    0, slab / 2, [&](int t, int k) -> R { return left[t * slab_pitch + 2 * k + ij / 2]; },
                    [&](int k, int s) -> R { return right[s * slab_pitch + 2 * k + ij % 2]; });
                for (int i = 0; i < 4; i++)
                    for (int j = 0; j < 4; j++) {
                        const int t = cell_chunk_seen(patch.row(i), before), s = patch.column(j);
                        if (s <= t)
                            all[i][j] += patch.sum[i][j] * of.window[(t * C + s) * 4 + ij];
                    }
            }
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++)
                    score[patch.row(i) * pitch + patch.column(j)] += all[i][j];
        });
    }

    __device__ void make_score(const cell_chunk_vector &f, const cell_chunk_vector &g, bool before)
    {
        cell_barrier();
        for (int n = cell_thread(); n < C * pitch; n += CELL_CHUNK_THREADS)
            score[n] = 0;
        this->load_numbers(left_number, f.number);
        this->load_numbers(right_number, g.number);
        for (int k0 = 0; k0 < x.keys; k0 += slab) {
            this->load_slab(left, f.vector, k0);
            this->load_slab(right, g.vector, k0);
            cell_barrier();
            add_slab(before);
            cell_barrier();
        }
        for (int n = cell_thread(); n < C * C; n += CELL_CHUNK_THREADS)
            score[n / C * pitch + n % C] *= left_number[n / C] * right_number[n % C];
        cell_barrier();
    }

    // f_t from the chunk's start: element j is sum f_i start_ij; or c_s to its end: element i is sum G_ij
    // c_j.
    __device__ void scale_slab(bool to_end, bool before)
    {
        for (int n = cell_thread(); n < C * (slab / 2); n += CELL_CHUNK_THREADS) {
            const int t = n / (slab / 2), at = t * slab_pitch + n % (slab / 2) * 2;
            const R by = right_number[t], v[2] = {by * right[at], by * right[at + 1]};
            const cell_smem<R> g = to_end ? of.window + ((C - 1) * C + t) * 4
                                          : of.start + (cell_chunk_seen(t, before) + 1) * 4;
            right[at] = v[0] * g[0] + v[1] * g[to_end ? 1 : 2];
            right[at + 1] = v[0] * g[to_end ? 2 : 1] + v[1] * g[3];
        }
        cell_barrier();
    }

    // m = the vector with its number and its window, or F' of that.
    __device__ void store_scaled(int m_at, const cell_chunk_vector &v, bool to_end, bool before, bool folded)
    {
        Part *const m = this->matrix(m_at);
        cell_barrier();
        this->load_numbers(right_number, v.number);
        for (int k0 = 0; k0 < M::keys; k0 += slab) {
            this->load_slab(right, v.vector, k0);
            cell_barrier();
            scale_slab(to_end, before);
            if (folded)
                cell_patches<R, C, slab>([&](auto &patch) {
                    patch.add(
                        0, C, [&](int s, int t) -> R { return inverse[t * pitch + s]; },
                        [&](int t, int k) -> R { return right[t * slab_pitch + k]; });
                    patch.store([&](int s, int k, R sum) { cell_store(m + s * M::keys + k0 + k, sum); });
                });
            else
                for (int n = cell_thread(); n < C * slab; n += CELL_CHUNK_THREADS)
                    cell_store(m + n / slab * M::keys + k0 + n % slab,
                               (R)right[n / slab * slab_pitch + n % slab]);
            cell_barrier();
        }
    }

    __device__ void make_corrected()
    {
        make_score(x.addition[0].weight, x.addition[0].column, true);
        this->invert();
        this->store_inverse();
        store_scaled(record::x, x.addition[0].column, true, false, true);
        for (int n = 1; n < M::additions; n++) {
            make_score(x.addition[0].weight, x.addition[n].column, true);
            this->store_score(this->matrix(record::l(n)));
        }
        store_scaled(record::w, x.addition[0].weight, false, true, false);
    }

    __device__ void make()
    {
        if (rows.valid == 0)
            return;
        of.make(x, rows);
        if constexpr (record::corrections != 0)
            make_corrected();
        for (int r = 0; r < M::reads; r++) {
            const bool before = M::before >> r & 1;
            for (int n = 0; n < M::additions; n++) {
                make_score(x.read[r], x.addition[n].column, before);
                if (n < record::corrections)
                    this->store_folded(this->matrix(record::p(r)));
                else
                    this->store_score(this->matrix(record::a(r, n)));
            }
            store_scaled(record::q(r), x.read[r], false, before, false);
        }
        for (int n = record::corrections; n < M::additions; n++)
            store_scaled(record::e(n), x.addition[n].column, true, false, false);
        for (int i = cell_thread(); i < 4; i += CELL_CHUNK_THREADS)
            this->numbers(record::d)[i] = of.start[C * 4 + i];
    }
};

// Gradients of a chunk's operands. With y_f the cotangents of reads and of w (dR), d_n the rows that are
// added (of a correction d = F R), and vectors with their numbers,
//
//     dA_fn = y_f d_n'     dF_f = y_f S_0'     dE_n = d_n dS_C'     df_i  = sum_n dA_fn (sum_j G_ij c_nj) +
// sum_j start_ij dF_fj     dc_nj = sum_f dA_fn' (sum_i G_ij f_i) + sum_i G_ij[C-1] dE_ni     dG_ij[t, s] =
// sum_fn dA_fn[t, s] (f_i' c_nj), at t = C - 1 also dE_ni' c_nj; dstart_ij[t] = dF_fj' f_i, at
// t = C also sum dS_Ci' S_0j
//
// and from those of G those of A: for each s, Y_t = dG[t, s] + A_(t+1)' Y_(t+1), dA_t += Y_t G[t-1, s]'.
enum { CELL_CHUNK_COUPLED_SLAB = 32 }; // keys that rest takes at a time
template <class M> struct cell_chunk_coupled_rester {
    typedef typename M::Real R;
    typedef typename M::Part Part;
    typedef cell_chunk_record<M> record;
    static constexpr int C = M::rows, V = M::rest_values, threads = CELL_CHUNK_THREADS;
    static constexpr int slab = CELL_CHUNK_COUPLED_SLAB; // behind the last key there are zeros
    static constexpr int corrections = record::corrections, readers = M::reads + corrections,
                         additions = M::additions, vectors = readers + additions;
    static constexpr int square_pitch = C + 1, value_pitch = V + 1, slab_pitch = slab + 1;
    static constexpr int wide = V > slab ? V : slab;
    static_assert(M::rest_threads == threads, "rest has a thread for each patch");

    // Of Real: dA_fn [C][C + 1]; y_f and d_n [C][V + 1]; S_0 and dS_C [slab][V + 1]; of each vector its slab,
    // and dF_f and dE_n of it, [C][slab + 1]; what goes out [C][wide + 1]; numbers of vectors and of z, and
    // sums of their gradients [C]; dG, dstart, and of each key of a slab its part of the last.
    static constexpr int scores = readers * additions * C * square_pitch,
                         at_rows = scores,
                         at_states = at_rows + vectors * C * value_pitch,
                         at_slabs = at_states + 2 * slab * value_pitch,
                         at_out = at_slabs + 2 * vectors * C * slab_pitch,
                         at_numbers = at_out + C * (wide + 1),
                         at_sums = at_numbers + (vectors + additions) * C,
                         at_window = at_sums + (vectors + additions) * C,
                         at_start = at_window + C * C * 4,
                         at_whole = at_start + (C + 1) * 4,
                         count = at_whole + slab / 2 * 4;

    __host__ __device__ static constexpr int64_t smem()
    {
        return cell_carve_bytes<cell_chunk_backward<M>>(1) + cell_chunk_matrices<M>::bytes() +
               cell_carve_bytes<R>(count);
    }
    static constexpr int resident = smem() <= 113 << 10 ? 2 : 1;

    const cell_chunk_backward<M> &g;
    const cell_chunk<M> &x;
    const int64_t chunk;
    const cell_chunk_rows rows;
    const unsigned char *const from;
    cell_chunk_matrices<M> of;
    cell_smem<R> reals;

    __device__ __forceinline__ cell_chunk_coupled_rester(const cell_chunk_backward<M> &back,
                                                         unsigned char *cursor, int64_t chunk_of)
        : g(back), x(back.of), chunk(chunk_of), rows(cell_chunk_rows_of(back.of, chunk_of)),
          from(back.of.records + chunk_of * record::bytes)
    {
        of.carve(cursor);
        reals = cell_carve<R>(cursor, count);
    }

    // ---- where things are ----

    __device__ __forceinline__ cell_smem<R> score(int f, int n) const
    {
        return reals + (f * additions + n) * C * square_pitch;
    }
    __device__ __forceinline__ cell_smem<R> cotangent(int f) const
    {
        return reals + at_rows + f * C * value_pitch;
    }
    __device__ __forceinline__ cell_smem<R> added(int n) const { return cotangent(readers + n); }
    __device__ __forceinline__ cell_smem<R> state(bool end) const
    {
        return reals + at_states + (end ? slab * value_pitch : 0);
    }
    // Vector i, of readers, then columns: its slab with numbers, and dF_f or dE_n.
    __device__ __forceinline__ cell_smem<R> vector(int i) const { return reals + at_slabs + i * C * slab_pitch; }
    __device__ __forceinline__ cell_smem<R> edge(int i) const { return vector(vectors + i); }
    __device__ __forceinline__ cell_smem<R> out() const { return reals + at_out; }
    __device__ __forceinline__ cell_smem<R> number(int i) const { return reals + at_numbers + i * C; }
    __device__ __forceinline__ cell_smem<R> sums(int i) const { return reals + at_sums + i * C; }
    __device__ __forceinline__ cell_smem<R> d_window() const { return reals + at_window; }
    __device__ __forceinline__ cell_smem<R> d_start() const { return reals + at_start; }
    __device__ __forceinline__ cell_smem<R> whole() const { return reals + at_whole; }

    __device__ __forceinline__ static constexpr bool is_read(int f) { return f < M::reads; }
    __device__ __forceinline__ static constexpr bool before(int f)
    {
        return !is_read(f) || (M::before >> f & 1);
    }
    __device__ __forceinline__ static constexpr bool given(int n) { return M::known >> n & 1; }
    // Operand i: readers, columns, then z.
    __device__ __forceinline__ const cell_chunk_vector &operand(int i) const
    {
        return i < M::reads   ? x.read[i]
               : i < readers  ? x.addition[0].weight
               : i < vectors  ? x.addition[i - readers].column
                              : x.addition[i - vectors].known;
    }
    __device__ __forceinline__ const cell_chunk_gradient &result(int i) const
    {
        return i < M::reads  ? g.read[i]
               : i < readers ? g.weight
               : i < vectors ? g.column[i - readers]
                             : g.known[i - vectors];
    }
    __device__ __forceinline__ static constexpr bool there(int i) { return i < vectors || given(i - vectors); }
    __device__ __forceinline__ R record_element(int matrix, int at) const
    {
        return cell_load<R>((const Part *)(from + matrix) + at);
    }
    // Of S_0, or dS_C.
    __device__ __forceinline__ R state_element(bool end, int64_t k, int64_t v) const
    {
        if (k >= x.keys || v >= x.values)
            return 0;
        return cell_load<R>((end ? g.ends : x.saved) + (chunk * x.values + v) * x.keys + k);
    }

    // ---- rows ----

    // F of rows t and s, of its parts.
    __device__ __forceinline__ R inverse(int t, int s) const
    {
        constexpr int parts = sizeof(R) == sizeof(Part) ? 1 : 2;
        const Part *const f = x.inverse + (chunk * parts * C + t) * C + s;
        return cell_load<R>(f) + (parts == 2 ? cell_load<R>(f + C * C) : (R)0);
    }

    // Keys from k0 on and values from v0 on of S_0, or dS_C.
    __device__ void load_state(bool end, int k0, int64_t v0)
    {
        for (int n = cell_thread(); n < slab * V; n += threads)
            state(end)[n % slab * value_pitch + n / slab] = state_element(end, k0 + n % slab, v0 + n / slab);
    }

    // W S_0 of the values from v0 on, to out().
    __device__ void add_start(int64_t v0)
    {
        const cell_smem<R> w = edge(vectors - 1); // a slab
        for (int k0 = 0; k0 < M::keys; k0 += slab) {
            for (int n = cell_thread(); n < C * slab; n += threads) {
                const int t = n / slab, k = k0 + n % slab;
                w[t * slab_pitch + n % slab] =
                    k < M::keys ? record_element(record::w, t * M::keys + k) : (R)0;
            }
            load_state(false, k0, v0);
            cell_barrier();
            cell_patches<R, C, V>([&](auto &patch) {
                patch.add(
                    0, slab, [&](int t, int k) -> R { return w[t * slab_pitch + k]; },
                    [&](int k, int v) -> R { return state(false)[k * value_pitch + v]; });
                patch.store([&](int t, int v, R sum) {
                    const int at = t * (wide + 1) + v;
                    out()[at] = sum + (k0 ? (R)out()[at] : (R)0);
                });
            });
            cell_barrier();
        }
    }

    // d = F R, R = z_0 + sum L_n z_n + W S_0, of the values from v0 on: in the place of d_0, and, where these
    // are not all values, for later in g.solved.
    __device__ void solve(int64_t v0)
    {
        static_assert(C <= 64, "F lies where the slabs of vectors do");
        const cell_smem<R> f = vector(0); // [C][C + 1]
        add_start(v0);
        for (int n = cell_thread(); n < C * C; n += threads)
            f[n / C * square_pitch + n % C] = n % C <= n / C ? inverse(n / C, n % C) : (R)0;
        cell_patches<R, C, V>([&](auto &patch) {
            for (int n = corrections; n < additions; n++)
                patch.add(
                    0, C, [&](int t, int s) -> R { return record_element(record::l(n), t * C + s); },
                    [&](int s, int v) -> R { return added(n)[s * value_pitch + v]; });
            patch.store([&](int t, int v, R sum) {
                const R z = given(0) ? cell_chunk_load<M>(x.addition[0].known.vector, rows, t, v0 + v, x.values) *
                                           (R)number(vectors)[t]
                                     : (R)0;
                out()[t * (wide + 1) + v] += sum + z;
            });
        });
        cell_barrier();
        cell_patches<R, C, V>([&](auto &patch) {
            patch.add(
                0, patch.first_row + 4, [&](int t, int s) -> R { return f[t * square_pitch + s]; },
                [&](int s, int v) -> R { return out()[s * (wide + 1) + v]; });
            patch.store([&](int t, int v, R sum) {
                added(0)[t * value_pitch + v] = sum;
                if (!one_values() && v0 + v < x.values)
                    cell_store(g.solved + (chunk * C + t) * x.values + v0 + v, sum);
            });
        });
        cell_barrier();
    }

    // y_f and d_n of the values from v0 on; again: d_0 was solved before. A barrier is behind it.
    __device__ void load_rows(int64_t v0, bool again)
    {
        cell_barrier();
        for (int i = 0; i < vectors; i++) {
            const int a = i - readers;
            if (i == M::reads && corrections) {
                for (int n = cell_thread(); n < C * V; n += threads) { // rows are neighbours there
                    const int t = n % C, v = n / C;
                    cotangent(i)[t * value_pitch + v] =
                        v0 + v < x.values ? cell_load<R>(g.corrections + (chunk * x.values + v0 + v) * C + t)
                                          : (R)0;
                }
                continue;
            }
            for (int n = cell_thread(); n < C * V && (again || a < 0 || a >= corrections); n += threads) {
                const int t = n / V, v = n % V;
                R value = 0;
                if (a < 0)
                    value = cell_chunk_load<M>(g.cotangent[i], rows, t, v0 + v, x.values);
                else if (a >= corrections)
                    value = cell_chunk_load<M>(x.addition[a].known.vector, rows, t, v0 + v, x.values) *
                            (R)number(vectors + a)[t];
                else if (v0 + v < x.values)
                    value = cell_load<R>(g.solved + (chunk * C + t) * x.values + v0 + v);
                cotangent(i)[t * value_pitch + v] = value;
            }
        }
        cell_barrier();
        if constexpr (corrections != 0)
            if (!again)
                solve(v0);
    }
    __device__ __forceinline__ bool one_values() const { return x.values <= V; }

    // ---- what goes out ----

    // Of operand i the elements from k0 on, `columns` of them: what out() has is the gradient of number times
    // vector.
    __device__ void put(int i, int64_t k0, int columns, int64_t extent)
    {
        const cell_chunk_gradient &to = result(i);
        cell_barrier();
        static_assert(C * 4 % threads == 0 || threads % (C * 4) == 0, "whole warps take rows");
        for (int n = cell_thread(); to.number.at && n < C * 4; n += threads) { // four threads a row
            const int t = n / 4;
            R sum = 0;
            CELL_UNROLL_BY(8)
            for (int k = n % 4; k < columns; k += 4)
                sum += cell_chunk_load<M>(operand(i).vector, rows, t, k0 + k, extent) *
                       (R)out()[t * (wide + 1) + k];
            sum += cell_shfl_xor(sum, 1);
            sum += cell_shfl_xor(sum, 2);
            if (n % 4 == 0)
                sums(i)[t] += sum;
        }
        for (int n = cell_thread(); to.vector.at && n < C * columns; n += threads) {
            const int t = n / columns, k = n % columns;
            if (rows.first + t < x.steps && k0 + k < extent)
                cell_chunk_put<M>(to.vector, rows.first + t, k0 + k,
                                  (R)out()[t * (wide + 1) + k] * (R)number(i)[t]);
        }
        cell_barrier();
    }

    // dz_0 = dR; dz_n = sum_f A_fn' y_f + E_n dS_C, where A of w is L.
    __device__ void make_known(int n, int64_t v0)
    {
        cell_patches<R, C, V>([&](auto &patch) {
            if (n >= corrections) {
                for (int f = 0; f < readers; f++) {
                    const int m = is_read(f) ? record::a(f, n) : record::l(n);
                    patch.add(
                        patch.first_row, C, [&](int s, int t) -> R { return record_element(m, t * C + s); },
                        [&](int t, int v) -> R { return cotangent(f)[t * value_pitch + v]; });
                }
                patch.add(
                    0, M::keys, [&](int s, int k) -> R { return record_element(record::e(n), s * M::keys + k); },
                    [&](int k, int v) -> R { return state_element(true, k, v0 + v); });
            }
            patch.store([&](int t, int v, R sum) {
                out()[t * (wide + 1) + v] =
                    n < corrections ? (R)cotangent(M::reads)[t * value_pitch + v] : sum;
            });
        });
        put(vectors + n, v0, V, x.values);
    }

    // dA_fn += y_f d_n' of the values that are there.
    __device__ void add_scores()
    {
        for (int f = 0; f < readers; f++)
            for (int n = 0; n < additions; n++)
                cell_patches<R, C, C>([&](auto &patch) {
                    patch.add(
                        0, V, [&](int t, int v) -> R { return cotangent(f)[t * value_pitch + v]; },
                        [&](int v, int s) -> R { return added(n)[s * value_pitch + v]; });
                    patch.store([&](int t, int s, R sum) {
                        if (s <= cell_chunk_seen(t, before(f)))
                            score(f, n)[t * square_pitch + s] += sum;
                    });
                });
    }

    // ---- keys ----

    // dF_f, dE_n and what the window of the whole chunk has, of a slab of keys, summed over values.
    __device__ void make_edges(int k0)
    {
        for (int64_t v0 = 0; v0 < x.values; v0 += V) {
            if (!one_values())
                load_rows(v0, true);
            load_state(false, k0, v0);
            load_state(true, k0, v0);
            cell_barrier();
            for (int i = 0; i < vectors; i++)
                cell_patches<R, C, slab>([&](auto &patch) {
                    patch.add(
                        0, V, [&](int t, int v) -> R { return cotangent(i)[t * value_pitch + v]; },
                        [&](int v, int k) -> R { return state(i >= readers)[k * value_pitch + v]; });
                    patch.store([&](int t, int k, R sum) { edge(i)[t * slab_pitch + k] += sum; });
                });
            for (int n = cell_thread(); n < slab / 2 * 4; n += threads) {
                R sum = 0;
                for (int v = 0; v < V; v++)
                    sum += state(true)[(n / 4 * 2 + n % 4 / 2) * value_pitch + v] *
                           state(false)[(n / 4 * 2 + n % 2) * value_pitch + v];
                whole()[n] += sum;
            }
            cell_barrier();
        }
    }

    __device__ void load_slab(int k0)
    {
        cell_barrier();
        for (int i = 0; i < vectors; i++)
            for (int n = cell_thread(); n < C * slab; n += threads) {
                const int t = n / slab, k = n % slab;
                vector(i)[t * slab_pitch + k] =
                    cell_chunk_load<M>(operand(i).vector, rows, t, k0 + k, x.keys) * (R)number(i)[t];
                edge(i)[t * slab_pitch + k] = 0;
            }
        cell_barrier();
    }

    // dG within the chunk.
    __device__ void add_windows()
    {
        for (int f = 0; f < readers; f++) {
            for (int n = 0; n < additions; n++)
                cell_patches<R, C, C>([&](auto &patch) {
                    for (int ij = 0; ij < 4; ij++) {
                        for (int i = 0; i < 4; i++)
                            for (int j = 0; j < 4; j++)
                                patch.sum[i][j] = 0;
                        patch.add(
                            0, slab / 2,
                            [&](int t, int k) -> R { return vector(f)[t * slab_pitch + 2 * k + ij / 2]; },
                            [&](int k, int s) -> R {
                                return vector(readers + n)[s * slab_pitch + 2 * k + ij % 2];
                            });
                        patch.store([&](int t, int s, R sum) {
                            const int seen = cell_chunk_seen(t, before(f));
                            if (s <= seen)
                                d_window()[(seen * C + s) * 4 + ij] +=
                                    sum * (R)score(f, n)[t * square_pitch + s];
                        });
                    }
                });
            cell_barrier(); // another reader's rows are of other windows
        }
    }

    // dG from the start, and to the end.
    __device__ void add_edges()
    {
        for (int job = cell_thread(); job < C * 4; job += threads) {
            const int t = job / 4, i = job % 4 / 2, j = job % 2;
            R end = 0;
            for (int n = 0; n < additions; n++)
                for (int k = 0; k < slab; k += 2)
                    end += edge(readers + n)[t * slab_pitch + k + i] * vector(readers + n)[t * slab_pitch + k + j];
            d_window()[((C - 1) * C + t) * 4 + job % 4] += end;
        }
        for (int job = cell_thread(); job < (C + 1) * 4; job += threads) {
            const int at = job / 4, i = job % 4 / 2, j = job % 2;
            R sum = 0;
            for (int f = 0; f < readers; f++) {
                const int t = before(f) ? at : at - 1;
                for (int k = 0; k < slab && t >= 0 && t < C; k += 2)
                    sum += edge(f)[t * slab_pitch + k + j] * vector(f)[t * slab_pitch + k + i];
            }
            d_start()[job] += sum;
        }
    }

    __device__ void put_reader(int f, int k0)
    {
        cell_patches<R, C, slab>([&](auto &patch) {
            const int i = patch.first_column % 2;
            for (int n = 0; n < additions; n++)
                patch.add(
                    0, 2 * (patch.first_row + 4),
                    [&](int t, int sj) -> R {
                        const int s = sj / 2, seen = cell_chunk_seen(t, before(f));
                        return s <= seen ? score(f, n)[t * square_pitch + s] *
                                               of.window[(seen * C + s) * 4 + i * 2 + sj % 2]
                                         : (R)0;
                    },
                    [&](int sj, int k) -> R {
                        return vector(readers + n)[sj / 2 * slab_pitch + k - i + sj % 2];
                    });
            patch.store([&](int t, int k, R sum) {
                const cell_smem<R> start = of.start + (cell_chunk_seen(t, before(f)) + 1) * 4 + i * 2;
                const int at = t * slab_pitch + k - i;
                out()[t * (wide + 1) + k] = sum + start[0] * edge(f)[at] + start[1] * edge(f)[at + 1];
            });
        });
        put(f, k0, slab, x.keys);
    }

    __device__ void put_column(int n, int k0)
    {
        cell_patches<R, C, slab>([&](auto &patch) {
            const int j = patch.first_column % 2;
            for (int f = 0; f < readers; f++)
                patch.add(
                    2 * patch.first_row, 2 * C,
                    [&](int s, int ti) -> R {
                        const int t = ti / 2, seen = cell_chunk_seen(t, before(f));
                        return s <= seen ? score(f, n)[t * square_pitch + s] *
                                               of.window[(seen * C + s) * 4 + ti % 2 * 2 + j]
                                         : (R)0;
                    },
                    [&](int ti, int k) -> R { return vector(f)[ti / 2 * slab_pitch + k - j + ti % 2]; });
            patch.store([&](int s, int k, R sum) {
                const cell_smem<R> end = of.window + ((C - 1) * C + s) * 4 + j;
                const int at = s * slab_pitch + k - j;
                out()[s * (wide + 1) + k] =
                    sum + end[0] * edge(readers + n)[at] + end[2] * edge(readers + n)[at + 1];
            });
        });
        put(readers + n, k0, slab, x.keys);
    }

    // ---- gates ----

    // Y_t G[t-1, s]' in the place of dG[t, s], for each s, and for the start.
    __device__ void turn_windows()
    {
        for (int s = cell_thread(); s <= C; s += threads) {
            R y[4] = {};
            for (int t = C - 1; t > (s == C ? -1 : s); t--) {
                const cell_smem<R> at = s == C ? d_start() + (t + 1) * 4 : d_window() + (t * C + s) * 4,
                                   kept = s == C ? of.start + t * 4 : of.window + ((t - 1) * C + s) * 4;
                R next[4] = {};
                for (int ij = 0; ij < 4; ij++) {
                    if (t + 1 < C)
                        next[ij] = of.gate[(t + 1) * 4 + ij / 2] * y[ij % 2] +
                                   of.gate[(t + 1) * 4 + 2 + ij / 2] * y[2 + ij % 2];
                    next[ij] += at[ij];
                }
                for (int ij = 0; ij < 4; ij++)
                    y[ij] = next[ij];
                for (int ij = 0; ij < 4; ij++)
                    at[ij] = y[ij / 2 * 2] * kept[ij % 2 * 2] + y[ij / 2 * 2 + 1] * kept[ij % 2 * 2 + 1];
            }
        }
    }

    __device__ void make_gates()
    {
        for (int ij = cell_thread(); ij < 4; ij += threads) {
            R sum = d_start()[C * 4 + ij];
            for (int k = 0; k < slab / 2; k++)
                sum += whole()[k * 4 + ij];
            d_start()[C * 4 + ij] = sum;
        }
        cell_barrier();
        turn_windows();
        cell_barrier();
        for (int job = cell_thread(); g.decay.at && job < C * 4; job += threads) {
            const int t = job / 4;
            R sum = d_start()[(t + 1) * 4 + job % 4];
            for (int s = 0; s < t; s++)
                sum += d_window()[(t * C + s) * 4 + job % 4];
            if (rows.first + t < x.steps)
                cell_chunk_put<M>(g.decay, rows.first + t, job % 4, t < rows.valid ? sum : (R)0);
        }
    }

    // ---- all ----

    __device__ void begin()
    {
        for (int n = cell_thread(); n < count; n += threads)
            reals[n] = 0;
        cell_barrier();
        for (int n = cell_thread(); n < (vectors + additions) * C; n += threads)
            if (there(n / C))
                number(n / C)[n % C] = cell_chunk_number<M>(operand(n / C).number, rows, n % C);
        of.make(x, rows);
    }

    __device__ void make()
    {
        begin();
        for (int64_t v0 = 0; v0 < x.values; v0 += V) {
            load_rows(v0, false);
            for (int n = 0; n < additions; n++)
                if (given(n))
                    make_known(n, v0);
            add_scores();
        }
        for (int k0 = 0; k0 < M::keys; k0 += slab) {
            load_slab(k0);
            make_edges(k0);
            add_windows();
            add_edges();
            for (int f = 0; f < readers; f++)
                put_reader(f, k0);
            for (int n = 0; n < additions; n++)
                put_column(n, k0);
        }
        cell_barrier();
        make_gates();
        for (int n = cell_thread(); n < (vectors + additions) * C; n += threads) {
            const int i = n / C, t = n % C;
            if (there(i) && result(i).number.at && rows.first + t < x.steps)
                cell_chunk_put<M>(result(i).number, rows.first + t, 0,
                                  t < rows.valid ? (R)sums(i)[t] * (R)operand(i).number.times : (R)0);
        }
    }

    // Of a chunk without rows.
    __device__ void clear_all()
    {
        for (int i = 0; i < vectors + additions; i++) {
            if (!there(i))
                continue;
            cell_chunk_clear<M, threads>(result(i).vector, rows.first, x.steps, i < vectors ? x.keys : x.values);
            cell_chunk_clear<M, threads>(result(i).number, rows.first, x.steps, 1);
        }
        cell_chunk_clear<M, threads>(g.decay, rows.first, x.steps, 4);
    }
};

#endif
