// What a chunk of a linear recurrence needs before its state is known: records (cell_device_chunk.cuh), one
// by each block.
//
// On tensor cores where Real is float (cell_device_chunk_scores.cuh), else here.
//
// Guaranteed: of a chunk that has no row of the sequence nothing is read or written. All sums are of Real;
// what is stored of Part is rounded once.
//
// Windows of gates are products within blocks of 16 rows and of whole blocks, t and s being rows of the
// chunk:
//
//     start[t] = a_0 ... a_(t-1)     end[s] = a_(s+1) ... a_(C-1)        from the chunk's start, to its end
//     pre[t]   = those of t's block up to t          suf[s] = those behind s in its block
//     tot[b]   = those of a block
//     pair[t, s] = a_(s+1) ... a_t, in one block     G[t, s] = pre[t] tot ... tot suf[s], in two
//
// A read behind the row takes G[t, s] and s <= t; a read before it, and w, take G[t-1, s] and s < t. Where
// several rows are one update, t stands for the first of them.
#ifndef CELL_DEVICE_CHUNK_PREP_CUH
#define CELL_DEVICE_CHUNK_PREP_CUH

enum { CELL_CHUNK_SLAB = 16 }; // keys that are in shared memory at a time; of two states up to 64
template <class M> __host__ __device__ constexpr int cell_chunk_prep_slab()
{
    return M::decay != 3 ? CELL_CHUNK_SLAB : M::keys % 64 == 0 ? 64 : M::keys % 32 == 0 ? 32 : 16;
}

// Windows of Width gates in a row: 1, or those of a slab of keys.
template <class M, int Width> struct cell_chunk_windows {
    typedef typename M::Real R;
    static constexpr int Rows = M::rows;
    static constexpr int blocks = Rows / CELL_CHUNK_BLOCK;
    cell_smem<R> gate, start, end, pre, suf,
        tot; // [rows][Width], start [rows + 1][Width], tot [blocks][Width]

    __host__ __device__ static constexpr int64_t bytes()
    {
        return 4 * cell_carve_bytes<R>(Rows * Width) + cell_carve_bytes<R>((Rows + 1) * Width) +
               cell_carve_bytes<R>(blocks * Width);
    }
    __device__ __forceinline__ void carve(unsigned char *&cursor)
    {
        gate = cell_carve<R>(cursor, Rows * Width);
        start = cell_carve<R>(cursor, (Rows + 1) * Width);
        end = cell_carve<R>(cursor, Rows * Width);
        pre = cell_carve<R>(cursor, Rows * Width);
        suf = cell_carve<R>(cursor, Rows * Width);
        tot = cell_carve<R>(cursor, blocks * Width);
    }

    // From gates, a barrier behind and one to come.
    __device__ void make()
    {
        for (int job = cell_thread(); job < (2 + blocks) * Width; job += CELL_CHUNK_THREADS) {
            const int k = job % Width, part = job / Width;
            R run = 1;
            if (part == 0) {
                for (int t = 0; t < Rows; t++) {
                    start[t * Width + k] = run;
                    run *= gate[t * Width + k];
                }
                start[Rows * Width + k] = run;
            } else if (part == 1) {
                for (int t = Rows - 1; t >= 0; t--) {
                    end[t * Width + k] = run;
                    run *= gate[t * Width + k];
                }
            } else {
                const int first = (part - 2) * CELL_CHUNK_BLOCK, last = first + CELL_CHUNK_BLOCK - 1;
                for (int t = first; t <= last; t++) {
                    run *= gate[t * Width + k];
                    pre[t * Width + k] = run;
                }
                tot[(part - 2) * Width + k] = run;
                run = 1;
                for (int t = last; t >= first; t--) {
                    suf[t * Width + k] = run;
                    run *= gate[t * Width + k];
                }
            }
        }
    }

    // The window of a read of row t as its block sees it: up to t, or to the row before.
    __device__ __forceinline__ R front(int t, int k, bool before) const
    {
        if (!before)
            return pre[t * Width + k];
        const int first = cell_chunk_front<M>(t);
        return first % CELL_CHUNK_BLOCK ? (R)pre[(first - 1) * Width + k] : (R)1;
    }
    // From behind s to the start of the block of row t, a later one than that of s.
    __device__ __forceinline__ R back(int t, int s, int k) const
    {
        R run = suf[s * Width + k];
        for (int b = s / CELL_CHUNK_BLOCK + 1; b < t / CELL_CHUNK_BLOCK; b++)
            run *= tot[b * Width + k];
        return run;
    }
    // Of rows s and t in one block, of which the read of t sees s.
    __device__ __forceinline__ R pair(int t, int s, int k, bool before) const
    {
        R run = 1;
        for (int j = s + 1; j < (before ? cell_chunk_front<M>(t) : t + 1); j++)
            run *= gate[j * Width + k];
        return run;
    }
};

// Shared memory of a block of prep: F and a matrix of scores of rows (rows + 1) Reals each, two slabs of rows
// of 17, numbers of each vector [rows], and the windows: of one gate, or of a slab.
template <class M> struct cell_chunk_plain_prep {
    typedef typename M::Real R;
    typedef typename M::Part Part;
    typedef cell_chunk_record<M> record;
    static constexpr int C = M::rows, pitch = C + 1, slab = cell_chunk_prep_slab<M>(), slab_pitch = slab + 1;
    static constexpr bool by_key = M::decay == 2;
    typedef cell_chunk_windows<M, by_key ? slab : 1> windows;
    static constexpr int threads = CELL_CHUNK_THREADS;
    static constexpr int resident = 1; // blocks that a multiprocessor is to hold

    __host__ __device__ static constexpr int64_t smem()
    {
        return 2 * cell_carve_bytes<R>(C * pitch) + 2 * cell_carve_bytes<R>(C * slab_pitch) +
               2 * cell_carve_bytes<R>(C) + (M::decay != 0 ? windows::bytes() : 0);
    }

    const cell_chunk<M> &x;
    cell_chunk_rows rows;
    unsigned char *to;
    cell_smem<R> inverse, score; // [C][pitch]
    cell_smem<R> left, right;    // [C][slab_pitch]: of the two vectors that are multiplied
    cell_smem<R> left_number, right_number;
    windows window;

    __device__ __forceinline__ cell_chunk_plain_prep(const cell_chunk<M> &of, int64_t chunk)
        : x(of), rows(cell_chunk_rows_of(of, chunk)), to(of.records + chunk * record::bytes)
    {
        carve();
    }
    // The memory behind.
    __device__ __forceinline__ unsigned char *carve()
    {
        auto cursor = cell_shared();
        inverse = cell_carve<R>(cursor, C * pitch);
        score = cell_carve<R>(cursor, C * pitch);
        left = cell_carve<R>(cursor, C * slab_pitch);
        right = cell_carve<R>(cursor, C * slab_pitch);
        left_number = cell_carve<R>(cursor, C);
        right_number = cell_carve<R>(cursor, C);
        if constexpr (M::decay != 0)
            window.carve(cursor);
        return cursor;
    }

    __device__ __forceinline__ Part *matrix(int at) const { return (Part *)(to + at); }
    __device__ __forceinline__ R *numbers(int at) const { return (R *)(to + at); }

    // Gates of the slab of keys from k0 on; behind the rows and behind K they are 1.
    __device__ void load_gates(int k0)
    {
        constexpr int width = by_key ? slab : 1;
        for (int n = cell_thread(); n < C * width; n += CELL_CHUNK_THREADS) {
            const int t = n / width, k = k0 + n % width;
            const bool there = t < rows.valid && (!by_key || k < x.keys);
            window.gate[n] = there ? cell_rows_load<M>(x.decay, rows.first + t, k) : (R)1;
        }
        cell_barrier();
        window.make();
    }

    __device__ void load_slab(cell_smem<R> slab_of, const cell_rows &v, int k0)
    {
        for (int n = cell_thread(); n < C * slab; n += CELL_CHUNK_THREADS)
            slab_of[n / slab * slab_pitch + n % slab] =
                cell_chunk_load<M>(v, rows, n / slab, k0 + n % slab, x.keys);
    }

    __device__ void load_numbers(cell_smem<R> numbers_of, const cell_row_number &v)
    {
        for (int t = cell_thread(); t < C; t += CELL_CHUNK_THREADS)
            numbers_of[t] = cell_chunk_number<M>(v, rows, t);
    }

    // Products of what the two slabs hold, added to the scores.
    __device__ void add_slab(bool before)
    {
        cell_patches<R, C, C>([&](auto &patch) {
            if constexpr (by_key)
                patch.add(
                    0, slab,
                    [&](int t, int k) -> R { return left[t * slab_pitch + k] * window.front(t, k, before); },
                    [&](int k, int s) -> R {
                        const bool earlier = s / CELL_CHUNK_BLOCK < patch.first_row / CELL_CHUNK_BLOCK;
                        return earlier ? right[s * slab_pitch + k] * window.back(patch.first_row, s, k)
                                       : (R)0;
                    });
            else
                patch.add(
                    0, slab, [&](int t, int k) -> R { return left[t * slab_pitch + k]; },
                    [&](int k, int s) -> R { return right[s * slab_pitch + k]; });
            patch.store([&](int t, int s, R sum) {
                if (!by_key || s / CELL_CHUNK_BLOCK < t / CELL_CHUNK_BLOCK)
                    score[t * pitch + s] += sum;
            });
        });
        if constexpr (by_key)
            add_pairs(before);
    }

    // Those of rows in one block.
    __device__ void add_pairs(bool before)
    {
        for (int n = cell_thread(); n < C * CELL_CHUNK_BLOCK; n += CELL_CHUNK_THREADS) {
            const int t = n / CELL_CHUNK_BLOCK,
                      s = t / CELL_CHUNK_BLOCK * CELL_CHUNK_BLOCK + n % CELL_CHUNK_BLOCK;
            if (before ? s >= cell_chunk_front<M>(t) : s > t)
                continue;
            R sum = 0;
            for (int k = 0; k < slab; k++)
                sum += left[t * slab_pitch + k] * right[s * slab_pitch + k] * window.pair(t, s, k, before);
            score[t * pitch + s] += sum;
        }
    }

    // score[t, s] = f_t G g_s, zero where the row does not see s. A barrier is behind it.
    __device__ void make_score(const cell_chunk_vector &f, const cell_chunk_vector &g, bool before)
    {
        cell_barrier();
        for (int n = cell_thread(); n < C * pitch; n += CELL_CHUNK_THREADS)
            score[n] = 0;
        load_numbers(left_number, f.number);
        load_numbers(right_number, g.number);
        for (int k0 = 0; k0 < x.keys; k0 += slab) {
            load_slab(left, f.vector, k0);
            load_slab(right, g.vector, k0);
            if constexpr (by_key)
                load_gates(k0);
            cell_barrier();
            add_slab(before);
            cell_barrier();
        }
        for (int n = cell_thread(); n < C * C; n += CELL_CHUNK_THREADS) {
            const int t = n / C, s = n % C;
            const bool seen = before ? s < cell_chunk_front<M>(t) : s <= t;
            R v = score[t * pitch + s];
            v *= left_number[t] * right_number[s];
            if constexpr (M::decay == 1)
                if (seen)
                    v *= s / CELL_CHUNK_BLOCK == t / CELL_CHUNK_BLOCK
                             ? window.pair(t, s, 0, before)
                             : window.front(t, 0, before) * window.back(t, s, 0);
            score[t * pitch + s] = seen ? v : (R)0;
        }
        cell_barrier();
    }

    __device__ void store_score(Part *m)
    {
        for (int n = cell_thread(); n < C * C; n += CELL_CHUNK_THREADS)
            cell_store(m + n, (R)score[n / C * pitch + n % C]);
    }

    // (I - score)^-1, by columns.
    __device__ void invert()
    {
        for (int j = cell_thread(); j < C; j += CELL_CHUNK_THREADS)
            for (int i = 0; i < C; i++) {
                R sum = i == j ? 1 : 0;
                for (int m = j; m < i; m++)
                    sum += score[i * pitch + m] * inverse[m * pitch + j];
                inverse[i * pitch + j] = sum;
            }
        cell_barrier();
    }

    __device__ void store_inverse()
    {
        constexpr int parts = sizeof(R) == sizeof(Part) ? 1 : 2;
        if (!x.inverse)
            return;
        Part *const f = x.inverse + rows.first / C * parts * C * C;
        for (int n = cell_thread(); n < C * C; n += CELL_CHUNK_THREADS) {
            R v = inverse[n / C * pitch + n % C];
            for (int part = 0; part < parts; part++) {
                cell_store(f + part * C * C + n, v);
                v -= cell_load<R>(f + part * C * C + n);
            }
        }
    }

    // m = score F
    __device__ void store_folded(Part *m)
    {
        cell_patches<R, C, C>([&](auto &patch) {
            patch.add(
                0, C, [&](int t, int u) -> R { return score[t * pitch + u]; },
                [&](int u, int s) -> R { return inverse[u * pitch + s]; });
            patch.store([&](int t, int s, R sum) { cell_store(m + t * C + s, sum); });
        });
    }

    // The vector of keys from k0 on with its number, from the chunk's start or to its end.
    __device__ void scale_slab(cell_smem<R> slab_of, cell_smem<R> numbers_of, bool to_end, bool before)
    {
        for (int n = cell_thread(); n < C * slab; n += CELL_CHUNK_THREADS) {
            const int t = n / slab, k = n % slab, kept = by_key ? k : 0, width = by_key ? slab : 1;
            R v = slab_of[t * slab_pitch + k];
            v *= numbers_of[t];
            if constexpr (M::decay != 0)
                v *= to_end ? window.end[t * width + kept]
                            : window.start[(before ? cell_chunk_front<M>(t) : t + 1) * width + kept];
            slab_of[t * slab_pitch + k] = v;
        }
        cell_barrier();
    }

    // m = the vector with its number and its window, or F' of that.
    __device__ void store_scaled(Part *m, const cell_chunk_vector &v, bool to_end, bool before, bool folded)
    {
        cell_barrier();
        load_numbers(right_number, v.number);
        for (int k0 = 0; k0 < M::keys; k0 += slab) {
            load_slab(right, v.vector, k0);
            if constexpr (by_key)
                load_gates(k0);
            cell_barrier();
            scale_slab(right, right_number, to_end, before);
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

    // Where the walk takes the vector itself: the number and the window of each row.
    __device__ void store_numbers(R *numbers_of, const cell_row_number &v, bool to_end, bool before)
    {
        for (int t = cell_thread(); t < C; t += CELL_CHUNK_THREADS) {
            R n = cell_chunk_number<M>(v, rows, t);
            if constexpr (M::decay == 1)
                n *= to_end ? window.end[t] : window.start[before ? cell_chunk_front<M>(t) : t + 1];
            numbers_of[t] = n;
        }
    }

    __device__ void store_whole()
    {
        if constexpr (M::decay == 1) {
            if (cell_thread() == 0)
                numbers(record::d)[0] = window.start[C];
        } else if constexpr (by_key) {
            for (int k0 = 0; k0 < M::keys; k0 += slab) {
                cell_barrier();
                load_gates(k0);
                cell_barrier();
                for (int k = cell_thread(); k < slab; k += CELL_CHUNK_THREADS)
                    numbers(record::d)[k0 + k] = window.start[C * slab + k];
            }
        }
    }

    __device__ void store_ends()
    {
        if constexpr (by_key) {
            if constexpr (record::corrections != 0)
                store_scaled(matrix(record::w), x.addition[0].weight, false, true, false);
            for (int r = 0; r < M::reads; r++)
                store_scaled(matrix(record::q(r)), x.read[r], false, M::before >> r & 1, false);
            for (int n = record::corrections; n < M::additions; n++)
                store_scaled(matrix(record::e(n)), x.addition[n].column, true, false, false);
        } else {
            if constexpr (record::corrections != 0)
                store_numbers(numbers(record::w_number), x.addition[0].weight.number, false, true);
            for (int r = 0; r < M::reads; r++)
                store_numbers(numbers(record::q_number(r)), x.read[r].number, false, M::before >> r & 1);
            for (int n = record::corrections; n < M::additions; n++)
                store_numbers(numbers(record::e_number(n)), x.addition[n].column.number, true, false);
        }
        store_whole();
    }

    __device__ void make()
    {
        if (rows.valid == 0)
            return;
        if constexpr (M::decay == 1) {
            load_gates(0);
            cell_barrier();
        }
        if constexpr (record::corrections != 0) {
            make_score(x.addition[0].weight, x.addition[0].column, true);
            invert();
            store_inverse();
            store_scaled(matrix(record::x), x.addition[0].column, true, false, true);
        }
        for (int n = record::corrections; n < (record::corrections ? M::additions : 0); n++) {
            make_score(x.addition[0].weight, x.addition[n].column, true);
            store_score(matrix(record::l(n)));
        }
        for (int r = 0; r < M::reads; r++)
            for (int n = 0; n < M::additions; n++) {
                make_score(x.read[r], x.addition[n].column, M::before >> r & 1);
                if (n < record::corrections)
                    store_folded(matrix(record::p(r)));
                else
                    store_score(matrix(record::a(r, n)));
            }
        store_ends();
    }
};

template <class M> struct cell_chunk_coupled_prep;
template <class M> struct cell_chunk_numbers;

// 0: on tensor cores, 1: here, 2: of two states, 3: where reads are apart
template <class M,
          int Kind = M::decay == 3 ? 2 : cell_chunk_apart<M>() ? 3 : sizeof(typename M::Real) == 8>
struct cell_chunk_prep;
template <class M> struct cell_chunk_prep<M, 0> : cell_chunk_scores<M> {
    using cell_chunk_scores<M>::cell_chunk_scores;
};
template <class M> struct cell_chunk_prep<M, 1> : cell_chunk_plain_prep<M> {
    using cell_chunk_plain_prep<M>::cell_chunk_plain_prep;
};
template <class M> struct cell_chunk_prep<M, 2> : cell_chunk_coupled_prep<M> {
    using cell_chunk_coupled_prep<M>::cell_chunk_coupled_prep;
};
template <class M> struct cell_chunk_prep<M, 3> : cell_chunk_numbers<M> {
    using cell_chunk_numbers<M>::cell_chunk_numbers;
};

// Grid: a block of cell_chunk_prep<M>::threads for each chunk of each head of each sequence;
// cell_chunk_prep<M>::smem() bytes. Of x it needs decay, addition, read, records, keys, steps and length.
template <class M> __device__ void cell_chunk_prepare(const cell_chunk<M> &x, int64_t chunk)
{
    cell_chunk_prep<M>(x, chunk).make();
}

#endif
