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
// addition in front of row 0 and a read behind the last. Then da_j = sum over s < j <= t of Y[t, s] G[t, j]
// G[j-1, s]: products only, so that gates of 0 have their gradient too. For t and s of j's block of 16 that
// is done pair by pair where a row has one gate, and else in halves (cell_device_chunk_slab.cuh); where t
// or s is outside of it, the sums over rows there come first:
//
//     N[t] = sum over earlier blocks of dA[t, s] c_s (from behind s to the block), which makes df of them,
//     pre[t] N[t] H[s] = sum over later blocks of dA[t, s] f_t (from the block to t), which makes dc of them,
//     suf[s] H[s] across[J] = sum over t in later and s in earlier blocks than J: the derivative by J's whole
//     product
//
// The derivative by pre[t] is f N, and that by suf[s] is c H.
#ifndef CELL_DEVICE_CHUNK_REST_CUH
#define CELL_DEVICE_CHUNK_REST_CUH

// Fetching is called, not inlined: it is needed at many places, and code that is fetched once and run once
// is slow.

// Lines x Columns elements of Part as they lie, `pitch` apart; zeros from `lines` and `columns` on.
template <class M, int Lines, int Columns, int Threads>
__device__ __attribute__((noinline)) void cell_chunk_fetch_dense(cell_chunk_matrix<typename M::Part> to,
                                                                 const typename M::Part *p, int64_t pitch,
                                                                 int64_t lines, int64_t columns)
{
    typedef typename M::Real R;
    constexpr int each = 16 / (int)sizeof(typename M::Part), words = Columns / each;
    const bool whole = pitch % each == 0 && columns % each == 0 && (uintptr_t)p % 16 == 0;
    if (whole && Threads % words == 0) { // a thread's pieces are of one place in their lines
        constexpr int step = Threads / words;
        const int j = cell_thread() % words * each, i = cell_thread() / words,
                  valid = j < columns ? (int)(lines < Lines ? lines : Lines) : 0;
        const typename M::Part *from = p + i * pitch + j;
        CELL_UNROLL
        for (int n = 0; n < Lines; n += step) {
            if (Lines % step == 0 || i + n < Lines)
                cell_cp_async_zfill<16>(to.place(i + n, j), i + n < valid ? from : p, i + n < valid);
            from += step * pitch;
        }
        return;
    }
    CELL_UNROLL_BY(1)
    for (int n = cell_thread(); n < Lines * words; n += Threads) {
        const int i = n / words, j = n % words * each;
        if (whole) {
            const bool there = i < lines && j < columns;
            cell_cp_async_zfill<16>(to.place(i, j), there ? p + i * pitch + j : p, there);
        } else {
            CELL_UNROLL_BY(1)
            for (int e = 0; e < each; e++)
                cell_store(to.place(i, j + e),
                           i < lines && j + e < columns ? cell_load<R>(p + i * pitch + j + e) : (R)0);
        }
    }
}

// Rows of a vector without its numbers, elements from k0 on.
template <class M, int Columns, int Threads>
__device__ __attribute__((noinline)) void cell_chunk_fetch_rows(cell_chunk_matrix<typename M::Part> to,
                                                                cell_rows v, cell_chunk_rows rows, int64_t k0,
                                                                int64_t extent)
{
    typedef typename M::Real R;
    typedef typename M::Part Part;
    const bool as_is = v.real ? cell_same<Part, R> : cell_same<Part, typename M::Store>;
    if (as_is && v.element == 1) {
        cell_chunk_fetch_dense<M, M::rows, Columns, Threads>(to, (const Part *)v.at + rows.first * v.row + k0,
                                                             v.row, rows.valid, extent - k0);
        return;
    }
    CELL_UNROLL_BY(1)
    for (int n = cell_thread(); n < M::rows * Columns; n += Threads)
        cell_store(to.place(n / Columns, n % Columns),
                   (R)cell_chunk_load<M>(v, rows, n / Columns, k0 + n % Columns, extent));
}

// What a block fetches first, in shared memory: lines of a matrix of Part, `pitch` elements apart, zeros from
// `lines` and `columns` on. at: null where it does not lie so, in pieces of 16 bytes.
template <class Part> struct cell_chunk_lines {
    const Part *at;
    int64_t pitch;
    int lines, columns;
};
template <class M>
__device__ __forceinline__ cell_chunk_lines<typename M::Part> cell_chunk_lines_of(const typename M::Part *at,
                                                                                  int64_t pitch,
                                                                                  int64_t lines,
                                                                                  int64_t columns)
{
    constexpr int each = 16 / (int)sizeof(typename M::Part);
    const bool whole = !((pitch | columns) & (each - 1)) && !((uintptr_t)at & 15);
    return {whole ? at : nullptr, pitch, (int)(lines < 1 << 20 ? lines : 1 << 20),
            (int)(columns < 1 << 20 ? columns : 1 << 20)};
}
// Rows of a vector without its numbers.
template <class M>
__device__ __forceinline__ cell_chunk_lines<typename M::Part> cell_chunk_lines_of(const cell_rows &v,
                                                                                  const cell_chunk_rows &rows,
                                                                                  int64_t extent)
{
    typedef typename M::Part Part;
    const bool as_is = v.real ? cell_same<Part, typename M::Real> : cell_same<Part, typename M::Store>;
    if (!as_is || v.element != 1)
        return {nullptr, 0, 0, 0};
    return cell_chunk_lines_of<M>((const Part *)v.at + rows.first * v.row, v.row, rows.valid, extent);
}
// Lines x Columns of it. False: it is to be fetched otherwise.
template <int Lines, int Columns, int Threads, class Part>
__device__ __forceinline__ bool cell_chunk_fetch_lines(const cell_chunk_matrix<Part> &to,
                                                       const cell_chunk_lines<Part> &from)
{
    constexpr int each = 16 / (int)sizeof(Part), words = Columns / each, step = Threads / words;
    if (Threads % words != 0 || !from.at)
        return false;
    const int j = cell_thread() % words * each, i = cell_thread() / words,
              valid = j < from.columns ? from.lines - i : 0;
    const Part *p = from.at + (i * from.pitch + j);
    CELL_UNROLL
    for (int n = 0; n < Lines; n += step) {
        if (Lines % step == 0 || i + n < Lines)
            cell_cp_async_zfill<16>(to.place(i + n, j), n < valid ? p : from.at, n < valid);
        p += step * from.pitch;
    }
    return true;
}

// A gradient of rows from `first` on that do nothing: zeros.
template <class M, int Threads>
__device__ __attribute__((noinline)) void cell_chunk_clear(cell_chunk_result to, int64_t first, int64_t steps,
                                                           int64_t extent)
{
    if (!to.at || to.adds)
        return;
    CELL_UNROLL_BY(1)
    for (int64_t n = cell_thread(); n < M::rows * extent && first + n / extent < steps; n += Threads)
        cell_chunk_put<M>(to, first + n / extent, n % extent, 0);
}

// Rows of keys from k0 on where a row has a gate for each.
template <class M> struct cell_chunk_slab;

template <class M, bool Coupled = M::decay == 3> struct cell_chunk_rester {
    typedef typename M::Real R;
    typedef typename M::Part Part;
    typedef typename M::Store Store;
    typedef cell_chunk_record<M> record;
    typedef cell_chunk_matrix<Part> matrix;
    static constexpr int C = M::rows, V = M::rest_values, threads = M::rest_threads;
    static constexpr int B = CELL_CHUNK_BLOCK, blocks = C / B;
    static constexpr bool by_key = M::decay == 2, by_number = M::decay == 1;
    static constexpr int corrections = record::corrections, readers = M::reads + corrections,
                         additions = M::additions;
    // Keys at a time.
    static constexpr int K = M::rest_keys;
    static_assert(M::keys % K == 0, "keys come in equal parts");
    static constexpr int parts_of_inverse = sizeof(R) == sizeof(Part) ? 1 : 2;
    static constexpr int each = 16 / (int)sizeof(Part); // elements of 16 bytes
    typedef cell_chunk_tile<R, C, C, threads> square;
    typedef cell_chunk_tile<R, C, V, threads> values_tile;
    typedef cell_chunk_tile<R, C, K, threads> keys_tile;
    static constexpr int line = K + 4; // of arrays by row and key: fragments meet few banks twice
    static constexpr int gates = by_key ? line : 1; // from those of a row to those of the next
    static constexpr int totals = by_key ? K : 1; // of a block's gates
    static constexpr bool any_before = corrections || (M::before & ((1 << M::reads) - 1)) != 0;

    // Matrices of Part: dA_fn with its windows and numbers [C][C], where F and what `prep` has made lie
    // before; f and c [C][K]; y_f and d_n, of a write z [C][V]; S_0 and dS_C [V][K]; by key f and c once
    // more [C][K], with their numbers and their windows in the block, where one of the record's lies
    // before.
    static constexpr int square_size = C * cell_chunk_pitch<Part>(C),
                         keys_size = C * cell_chunk_pitch<Part>(K),
                         values_size = C * cell_chunk_pitch<Part>(V),
                         state_size = V * cell_chunk_pitch<Part>(K);
    static constexpr int at_vectors = readers * additions * square_size,
                         at_rows = at_vectors + (readers + additions) * keys_size,
                         at_states = at_rows + (readers + additions) * values_size,
                         at_scaled = at_states + 2 * state_size,
                         part_count = at_scaled + (by_key ? (readers + additions) * keys_size : 0);
    // Of R: numbers; gradients of numbers and derivatives by windows from the start and to the end, in as
    // many parts as warps share a row, or a column; one for each thread; windows. Where a row has one gate:
    // the pairs within blocks, what is between two blocks, Y within blocks, derivatives by pre and suf in
    // parts as above, and those by the windows between two blocks, of which the start and the end are one
    // each. By key: windows of a level and derivatives by windows [C][line], and sums by block.
    static constexpr int row_parts = C * keys_tile::column_warps, value_parts = C * values_tile::column_warps,
                         column_parts = by_key ? keys_tile::column_warps : blocks;
    static constexpr int at_sums = (readers + 2 * additions) * C,
                         at_known_sums = at_sums + (readers + 2) * row_parts,
                         at_column_sums = at_known_sums + additions * value_parts,
                         at_threads = at_column_sums + additions * C * column_parts,
                         at_gates = at_threads + threads,
                         at_pairs = at_gates + (M::decay ? 3 * C * gates + blocks * totals : 0) +
                                    (by_number ? 2 * C + 1 : 0),
                         at_between = at_pairs + (by_number ? C * (B + 1) : 0),
                         at_inner = at_between + (by_number ? blocks * blocks : 0),
                         at_earlier = at_inner + (by_number ? C * (B + 1) : 0),
                         at_later = at_earlier + (by_number ? C * square::column_warps : 0),
                         at_through = at_later + (by_number ? C * blocks : 0),
                         at_values = at_through + (by_number ? (blocks + 1) * (blocks + 1) : 0),
                         at_across = at_values + (by_key ? 2 * C * line : 0),
                         at_ends = at_across + (by_key ? (blocks + 1) * blocks * K : 0),
                         real_count = at_ends + (by_key ? (blocks + 1) * K : 0);

    __host__ __device__ static constexpr int64_t smem()
    {
        return cell_carve_bytes<cell_chunk_backward<M>>(1) + cell_carve_bytes<lines>(line_count) +
               cell_carve_bytes<Part>(part_count) +
               cell_carve_bytes<R>(real_count);
    }

    // Blocks that a multiprocessor should hold at once, of the 228 KB that the largest have.
    static constexpr int resident = smem() <= 113 << 10 ? 2 : 1;

    // What is fetched first, one for each matrix: vectors of readers and additions, cotangents and z, S_0 and
    // dS_C, parts of F. dR has a place and is fetched otherwise.
    typedef cell_chunk_lines<Part> lines;
    static constexpr int at_row_lines = readers + additions, at_state_lines = 2 * at_row_lines,
                         at_inverse_lines = at_state_lines + 2,
                         line_count = at_inverse_lines + corrections * parts_of_inverse;

    const cell_chunk_backward<M> &g; // in shared memory: its arrays are read at places that are no constants
    const cell_chunk<M> &x;
    const int64_t chunk;
    const cell_chunk_rows rows;
    const unsigned char *const from;
    cell_smem<lines> first;
    cell_smem<Part> parts;
    cell_smem<R> reals;

    __device__ __forceinline__ cell_chunk_rester(const cell_chunk_backward<M> &of, unsigned char *cursor,
                                                 int64_t chunk_of)
        : g(of), x(of.of), chunk(chunk_of), rows(cell_chunk_rows_of(of.of, chunk_of)),
          from(of.of.records + chunk_of * record::bytes)
    {
        first = cell_carve<lines>(cursor, line_count);
        parts = cell_carve<Part>(cursor, part_count);
        reals = cell_carve<R>(cursor, real_count);
    }

    // ---- where things are ----

    __device__ __forceinline__ matrix scores(int f, int n) const
    {
        return { parts + (f * additions + n) * square_size, cell_chunk_pitch<Part>(C) };
    }
    __device__ __forceinline__ matrix reader_part(int f) const
    {
        return { parts + (at_vectors + f * keys_size), cell_chunk_pitch<Part>(K) };
    }
    __device__ __forceinline__ matrix column_part(int n) const
    {
        return reader_part(readers + n);
    }
    __device__ __forceinline__ matrix cotangent(int f) const
    {
        return { parts + (at_rows + f * values_size), cell_chunk_pitch<Part>(V) };
    }
    __device__ __forceinline__ matrix added(int n) const
    {
        return cotangent(readers + n);
    }
    __device__ __forceinline__ matrix start() const
    {
        return { parts + at_states, cell_chunk_pitch<Part>(K) };
    }
    __device__ __forceinline__ matrix end() const
    {
        return { parts + (at_states + state_size), cell_chunk_pitch<Part>(K) };
    }
    __device__ __forceinline__ matrix scaled(int i) const // readers, then columns
    {
        return { parts + (at_scaled + i * keys_size), cell_chunk_pitch<Part>(K) };
    }
    __device__ __forceinline__ matrix of_record() const
    {
        return scaled(0);
    }

    __device__ __forceinline__ cell_smem<R> number(int i) const
    {
        return reals + i * C;
    } // readers, then columns
    __device__ __forceinline__ cell_smem<R> reader_number(int f) const
    {
        return number(f);
    }
    __device__ __forceinline__ cell_smem<R> column_number(int n) const
    {
        return number(readers + n);
    }
    __device__ __forceinline__ cell_smem<R> known_number(int n) const
    {
        return reals + (readers + additions + n) * C;
    }
    __device__ __forceinline__ cell_smem<R> reader_sums(int f) const
    {
        return reals + (at_sums + f * row_parts);
    }
    __device__ __forceinline__ cell_smem<R> row_sums() const
    {
        return reader_sums(readers);
    }
    __device__ __forceinline__ cell_smem<R> known_sums(int n) const
    {
        return reals + (at_known_sums + n * value_parts);
    }
    __device__ __forceinline__ cell_smem<R> column_sums(int n) const
    {
        return reals + (at_column_sums + n * C * column_parts);
    }
    // Products of gates: gate[t], pre[t] up to t and suf[t] behind it, in their block, tot[block]; start[t]
    // in front of t and end[t] behind it.
    __device__ __forceinline__ cell_smem<R> gate() const
    {
        return reals + at_gates;
    }
    __device__ __forceinline__ cell_smem<R> pre() const
    {
        return gate() + C * gates;
    }
    __device__ __forceinline__ cell_smem<R> suf() const
    {
        return gate() + 2 * C * gates;
    }
    __device__ __forceinline__ cell_smem<R> tot() const
    {
        return gate() + 3 * C * gates;
    }
    __device__ __forceinline__ cell_smem<R> start_window() const
    {
        return tot() + blocks * totals;
    }
    __device__ __forceinline__ cell_smem<R> end_window() const
    {
        return start_window() + C + 1;
    }
    // The gates of t's block before it.
    __device__ __forceinline__ R window_before(int t, int k) const
    {
        return t % B ? (R)pre()[(t - 1) * gates + k] : (R)1;
    }
    // Of a reader of row t: up to t, or to the row before its update.
    __device__ __forceinline__ R front_window(int t, int k, bool before_it) const
    {
        return before_it ? window_before(lead(t), k) : (R)pre()[t * gates + k];
    }
    // The first row of t's update.
    __device__ __forceinline__ static constexpr int lead(int t)
    {
        return cell_chunk_front<M>(t);
    }
    // The sum of what the rows of an update have, which stand in lanes so far apart.
    template <int Apart> __device__ __forceinline__ static R sum_update(R v)
    {
        CELL_UNROLL
        for (int i = 1; i < M::together; i *= 2)
            v += cell_shfl_xor(v, i * Apart);
        return v;
    }
    __device__ __forceinline__ cell_smem<R> pairs() const
    {
        return reals + at_pairs;
    } // [C][B + 1]
    __device__ __forceinline__ cell_smem<R> between() const
    {
        return reals + at_between;
    } // [block][earlier block]
    __device__ __forceinline__ cell_smem<R> inner() const
    {
        return reals + at_inner;
    } // [C][B + 1], as pairs
    __device__ __forceinline__ cell_smem<R> earlier() const
    {
        return reals + at_earlier;
    } // [part][C]
    __device__ __forceinline__ cell_smem<R> later() const
    {
        return reals + at_later;
    } // [block that reads][C]
    // Of additions of a block, or the start, -1, and readers of a later one, or the end.
    __device__ __forceinline__ cell_smem<R> through(int reads, int adds) const
    {
        return reals + (at_through + reads * (blocks + 1) + adds + 1);
    }
    // [C][line]: windows of a level, and derivatives by windows
    __device__ __forceinline__ cell_smem<R> window() const
    {
        return reals + at_values;
    }
    __device__ __forceinline__ cell_smem<R> flow() const
    {
        return window() + C * line;
    }
    __device__ __forceinline__ cell_smem<R> across() const
    {
        return reals + at_across;
    } // [block or end][earlier][K]
    __device__ __forceinline__ cell_smem<R> ends() const
    {
        return reals + at_ends;
    } // [block or start][K]

    // ---- operands ----

    __device__ __forceinline__ static constexpr bool is_read(int f)
    {
        return f < M::reads;
    }
    __device__ __forceinline__ static constexpr bool before(int f)
    {
        return !is_read(f) || (M::before >> f & 1);
    }
    __device__ __forceinline__ static constexpr bool sees(int f, int t, int s)
    {
        return before(f) ? s < lead(t) : s <= t;
    }
    __device__ __forceinline__ static constexpr bool given(int n)
    {
        return M::known >> n & 1;
    }
    __device__ __forceinline__ const cell_chunk_vector &reader(int f) const
    {
        return is_read(f) ? x.read[f] : x.addition[0].weight;
    }
    __device__ __forceinline__ const cell_chunk_gradient &reader_result(int f) const
    {
        return is_read(f) ? g.read[f] : g.weight;
    }
    __device__ __forceinline__ R read_vector(int f, int t, int64_t k) const
    {
        return cell_chunk_load<M>(reader(f).vector, rows, t, k, x.keys);
    }
    __device__ __forceinline__ R column_vector(int n, int t, int64_t k) const
    {
        return cell_chunk_load<M>(x.addition[n].column.vector, rows, t, k, x.keys);
    }
    __device__ __forceinline__ R known_vector(int n, int t, int64_t v) const
    {
        return cell_chunk_load<M>(x.addition[n].known.vector, rows, t, v, x.values);
    }

    // ---- fetching: what is fetched is there behind arrived() ----

    __device__ __forceinline__ void arrived()
    {
        cell_cp_async_commit();
        cell_cp_async_wait<0>();
        cell_barrier();
    }
    template <int Lines, int Columns>
    __device__ __forceinline__ void fetch_dense(const matrix &to, const Part *p, int64_t pitch, int64_t lines,
                                                int64_t columns)
    {
        cell_chunk_fetch_dense<M, Lines, Columns, threads>(to, p, pitch, lines, columns);
    }
    // Rows of a vector without its numbers, elements from k0 on.
    template <int Columns>
    __device__ __forceinline__ void fetch_rows(const matrix &to, const cell_rows &v, int64_t k0,
                                               int64_t extent)
    {
        cell_chunk_fetch_rows<M, Columns, threads>(to, v, rows, k0, extent);
    }
    __device__ __forceinline__ void fetch_state(const matrix &to, const Part *states, int64_t k0, int64_t v0)
    {
        fetch_dense<V, K>(to, states + (chunk * x.values + v0) * x.keys + k0, x.keys, x.values - v0,
                          x.keys - k0);
    }
    // dR lies by value: pieces of 16 bytes of two neighbours, loaded while others are fetched and put down by
    // row.
    static constexpr int correction_jobs = V / 2 * (C / each),
                         correction_turns = (correction_jobs + threads - 1) / threads;
    struct correction_pieces {
        cell_vec<Part, each> of[correction_turns][2];
    };
    __device__ __forceinline__ void load_corrections(correction_pieces &pieces, int64_t v0) const
    {
        CELL_UNROLL
        for (int i = 0; i < correction_turns; i++) {
            const int n = cell_thread() + i * threads, v = n % (V / 2) * 2, t = n / (V / 2) * each;
            CELL_UNROLL
            for (int e = 0; e < 2; e++) {
                pieces.of[i][e].clear();
                if (n < correction_jobs && v0 + v + e < x.values)
                    pieces.of[i][e].template load<false>(g.corrections +
                                                         (chunk * x.values + v0 + v + e) * C + t);
            }
        }
    }
    __device__ __forceinline__ void put_corrections(const correction_pieces &pieces) const
    {
        const matrix to = cotangent(M::reads);
        CELL_UNROLL
        for (int i = 0; i < correction_turns; i++) {
            const int n = cell_thread() + i * threads, v = n % (V / 2) * 2, t = n / (V / 2) * each;
            R one[each], next[each];
            pieces.of[i][0].values(one);
            pieces.of[i][1].values(next);
            CELL_UNROLL
            for (int e = 0; e < each; e++) {
                const R two[2] = { one[e], next[e] };
                if (n < correction_jobs)
                    cell_store_vec<2>(to.place(t + e, v), two);
            }
        }
    }
    __device__ __forceinline__ void fetch_corrections(int64_t v0)
    {
        correction_pieces pieces;
        load_corrections(pieces, v0);
        put_corrections(pieces);
    }
    __device__ __forceinline__ void fetch_cotangent(int f, int64_t v0)
    {
        if (is_read(f))
            fetch_rows<V>(cotangent(f), g.cotangent[f], v0, x.values);
        else
            fetch_corrections(v0);
    }
    // z_n without its number; or d_0 as solve() has left it.
    __device__ __forceinline__ void fetch_added(int n, int64_t v0, bool solved)
    {
        if (solved && n < corrections)
            fetch_dense<C, V>(added(n), g.solved + rows.first * x.values + v0, x.values, C, x.values - v0);
        else if (given(n))
            fetch_rows<V>(added(n), x.addition[n].known.vector, v0, x.values);
    }
    __device__ __forceinline__ void fetch_square(int f, int n, const Part *m)
    {
        fetch_dense<C, C>(scores(f, n), m, C, C, C);
    }
    __device__ __forceinline__ const Part *record_part(int at) const
    {
        return (const Part *)(from + at);
    }
    __device__ __forceinline__ R record_number(int at, int t) const
    {
        return ((const R *)(from + at))[t];
    }

    // Whether all values, or all keys too, are fetched once, in front of everything.
    __device__ __forceinline__ bool one_values() const
    {
        return x.values <= V;
    }
    __device__ __forceinline__ static constexpr bool one_keys()
    {
        return M::keys == K;
    }

    __device__ __forceinline__ const cell_chunk_vector &vector_of(int i) const // of readers, then columns
    {
        return i < readers ? reader(i) : x.addition[i - readers].column;
    }
    __device__ __forceinline__ lines states(const Part *of) const
    {
        return cell_chunk_lines_of<M>(of + chunk * x.values * x.keys, x.keys, x.values, x.keys);
    }
    __device__ __forceinline__ lines lines_of(int i) const
    {
        if (i < at_row_lines)
            return cell_chunk_lines_of<M>(vector_of(i).vector, rows, x.keys);
        const int row = i - at_row_lines, n = row - readers;
        if (i < at_state_lines)
            return row < M::reads ? cell_chunk_lines_of<M>(g.cotangent[row], rows, x.values)
                   : n >= 0 && given(n)
                       ? cell_chunk_lines_of<M>(x.addition[n].known.vector, rows, x.values)
                       : lines{};
        if (i < at_inverse_lines)
            return states(i == at_state_lines ? x.saved : g.ends);
        return cell_chunk_lines_of<M>(
            x.inverse + (chunk * parts_of_inverse + i - at_inverse_lines) * C * C, C, C, C);
    }

    __device__ void fetch_all()
    {
        correction_pieces pieces;
        if constexpr (corrections != 0)
            load_corrections(pieces, 0);
        if (cell_thread() < line_count)
            first[cell_thread()] = lines_of(cell_thread());
        cell_barrier();
        CELL_UNROLL_BY(1)
        for (int i = 0; !by_key && i < at_row_lines; i++)
            if (!cell_chunk_fetch_lines<C, K, threads>(reader_part(i), (lines)first[i]))
                fetch_rows<K>(reader_part(i), vector_of(i).vector, 0, x.keys);
        CELL_UNROLL_BY(1)
        for (int i = 0; i < at_row_lines; i++)
            if (!cell_chunk_fetch_lines<C, V, threads>(cotangent(i), (lines)first[at_row_lines + i])) {
                if (i < M::reads)
                    fetch_cotangent(i, 0);
                else if (i >= readers)
                    fetch_added(i - readers, 0, false);
            }
        CELL_UNROLL_BY(1)
        for (int i = 0; i < 2; i++) {
            const matrix to = { parts + (at_states + i * state_size), cell_chunk_pitch<Part>(K) };
            if (!cell_chunk_fetch_lines<V, K, threads>(to, (lines)first[at_state_lines + i]))
                fetch_state(to, i ? g.ends : x.saved, 0, 0);
        }
        CELL_UNROLL_BY(1)
        for (int i = 0; i < corrections * parts_of_inverse; i++)
            if (!cell_chunk_fetch_lines<C, C, threads>(scores(i, 0), (lines)first[at_inverse_lines + i]))
                fetch_square(i, 0, x.inverse + (chunk * parts_of_inverse + i) * C * C);
        if constexpr (corrections != 0)
            put_corrections(pieces);
    }

    // Fetches again, where not all is there: what a product takes.
    template <class Fetch> __device__ __forceinline__ void need(bool there, Fetch fetch)
    {
        if (there)
            return;
        cell_barrier();
        fetch();
        arrived();
    }
    __device__ __forceinline__ void need_rows(int f, int n, int64_t v0)
    {
        need(one_values(), [&] {
            fetch_cotangent(f, v0);
            fetch_added(n, v0, true);
        });
    }

    // ---- windows ----

    // Of gates of the keys from k0 on: 1 behind the rows and behind K. A barrier is behind it.
    __device__ void make_windows(int k0)
    {
        const cell_rows decay = x.decay;
        const int valid = rows.valid;
        const int64_t row = rows.first, left = x.keys - k0;
        for (int job = cell_thread(); job < blocks * totals; job += threads) {
            const int k = job % totals, block = job / totals;
            R own[B], run = 1;
            CELL_UNROLL
            for (int i = 0; i < B; i++)
                own[i] = block * B + i < valid && k < left
                             ? cell_rows_load<M>(decay, row + block * B + i, k0 + k)
                             : (R)1;
            CELL_UNROLL
            for (int i = 0; i < B; i++) {
                run *= own[i];
                gate()[(block * B + i) * gates + k] = own[i];
                pre()[(block * B + i) * gates + k] = run;
            }
            tot()[block * totals + k] = run;
            run = 1;
            CELL_UNROLL
            for (int i = B - 1; i >= 0; i--) {
                suf()[(block * B + i) * gates + k] = run;
                run *= own[i];
            }
        }
        cell_barrier();
    }

    // Of one gate a row, by the threads of the rows, each with its own; others of their warps have 1. A
    // barrier is behind it.
    __device__ __forceinline__ void make_pairs(R own)
    {
        const int t = cell_thread(), lane = cell_lane(), place = lane % B;
        if (t < (C + 31) / 32 * 32) {
            R run = 1, behind = 1;
            CELL_UNROLL
            for (int i = 0; i < B; i++) {
                const R before_it = cell_shfl(own, (lane - i) & 31), after = cell_shfl(own, (lane + i) & 31);
                if (t < C) // what is behind t is not seen, but is read
                    pairs()[t * (B + 1) + ((place - i) & (B - 1))] = run;
                if (i <= place)
                    run *= before_it;
                if (i > 0 && place + i < B)
                    behind *= after;
            }
            if (t < C) {
                gate()[t] = own;
                pre()[t] = run;
                suf()[t] = behind;
                if (place == B - 1)
                    tot()[t / B] = run;
            }
        }
        cell_barrier();
        make_ends();
        cell_barrier();
    }

    __device__ __forceinline__ void make_ends()
    {
        const int s = cell_thread(), block = s / B;
        if (s < C) {
            R start_run = window_before(s, 0), end_run = suf()[s];
            for (int b = 0; b < block; b++)
                start_run *= (R)tot()[b];
            for (int b = block + 1; b < blocks; b++)
                end_run *= (R)tot()[b];
            start_window()[s] = start_run;
            end_window()[s] = end_run;
            if (s == C - 1)
                start_window()[C] = start_run * (R)gate()[s];
        } else if (s < C + blocks * blocks) {
            const int n = s - C;
            R run = 1;
            for (int b = n % blocks + 1; b < n / blocks; b++)
                run *= (R)tot()[b];
            between()[n] = run;
        }
    }

    __device__ __forceinline__ R from_start(int f, int t) const
    {
        return by_number ? (R)start_window()[before(f) ? lead(t) : t + 1] : (R)1;
    }
    __device__ __forceinline__ R to_end(int s) const
    {
        return by_number ? (R)end_window()[s] : (R)1;
    }

    // Number i: of readers, of columns and of z.
    __device__ __forceinline__ R load_number(int i, int t) const
    {
        if (i < readers)
            return cell_chunk_number<M>(reader(i).number, rows, t);
        if (i < readers + additions)
            return cell_chunk_number<M>(x.addition[i - readers].column.number, rows, t);
        const int n = i - readers - additions;
        return given(n) ? cell_chunk_number<M>(x.addition[n].known.number, rows, t) : (R)0;
    }
    __device__ void load_numbers()
    {
        R own = 1;
        if constexpr (by_number)
            if (cell_thread() < rows.valid)
                own = cell_rows_load<M>(x.decay, rows.first + cell_thread(), 0);
        CELL_UNROLL_BY(1)
        for (int job = cell_thread(); job < (readers + 2 * additions) * C; job += threads)
            number(job / C)[job % C] = load_number(job / C, job % C);
        for (int n = cell_thread(); n < at_gates - at_sums; n += threads)
            reals[at_sums + n] = 0;
        if constexpr (by_number) {
            for (int n = cell_thread(); n < at_values - at_inner; n += threads)
                reals[at_inner + n] = 0;
            make_pairs(own);
        }
    }

    // The number that is left out of d_n as it is fetched.
    __device__ __forceinline__ R added_number(int n, int s) const
    {
        if constexpr (additions == corrections)
            return 1;
        return n < corrections ? (R)1 : (R)known_number(n)[s];
    }

    // ---- d_0 = F R, R = z_0 + sum L_n z_n + W S_0 ----

    __device__ void add_start(values_tile &sum, int64_t v0)
    {
        CELL_UNROLL_BY(1)
        for (int k0 = 0; k0 < M::keys; k0 += K) {
            need(!by_key && one_values() && one_keys(), [&] {
                if (by_key)
                    fetch_dense<C, K>(of_record(), record_part(record::w) + k0, M::keys, C, K);
                else
                    fetch_rows<K>(reader_part(M::reads), reader(M::reads).vector, k0, x.keys);
                fetch_state(start(), x.saved, k0, v0);
            });
            sum.add(by_key ? of_record() : reader_part(M::reads), start().across(), 0, K);
        }
        if constexpr (!by_key)
            sum.each([&](int t, int, R &s) { s *= record_number(record::w_number, t); });
    }

    __device__ void add_known(values_tile &sum, int n, int64_t v0)
    {
        cell_barrier();
        cell_chunk_stage<Part, C, C, threads>(scores(readers - 1, 0), [&](int t, int s) -> R {
            return cell_load<R>(record_part(record::l(n)) + t * C + s) * (R)known_number(n)[s];
        });
        if (!one_values())
            fetch_added(n, v0, false);
        arrived();
        sum.add(scores(readers - 1, 0), added(n), 0, C, [](int t, int s) { return s <= t; });
    }

    __device__ void solve(int64_t v0)
    {
        values_tile sum;
        sum.clear();
        add_start(sum, v0);
        CELL_UNROLL_BY(1)
        for (int n = corrections; n < additions; n++)
            add_known(sum, n, v0);
        need(one_values() && additions == 1, [&] {
            fetch_added(0, v0, false);
            fetch_square(0, 0, x.inverse + chunk * parts_of_inverse * C * C);
            if constexpr (parts_of_inverse == 2)
                fetch_square(1, 0, x.inverse + (chunk * 2 + 1) * C * C);
        });
        if (given(0))
            sum.pairs([&](int t, int v, R &a, R &b) {
                R two[2];
                cell_load_vec<2>(two, added(0).place(t, v));
                a += two[0] * (R)known_number(0)[t];
                b += two[1] * (R)known_number(0)[t];
            });
        cell_barrier();
        sum.store(added(0));
        cell_barrier();
        sum.clear();
        for (int part = 0; part < parts_of_inverse; part++)
            sum.add(scores(part, 0), added(0), 0, C, [](int t, int s) { return s <= t; });
        cell_barrier();
        if (one_values())
            sum.store(added(0));
        else
            sum.each([&](int t, int v, R &s) {
                if (v0 + v < x.values)
                    cell_store(g.solved + (rows.first + t) * x.values + v0 + v, s);
            });
    }

    // ---- gradients of z ----

    // Where rows of the chunk go, elements from k0 on.
    struct writer {
        unsigned char *at;
        int64_t row, element; // bytes
        bool real, adds, two; // of R; to what is there; neighbours go together, which are not added
        int lines, left; // rows that there are, and elements

        __device__ __forceinline__ void one(unsigned char *p, R v) const
        {
            if (real)
                cell_put((R *)p, v, adds);
            else
                cell_put((Store *)p, v, adds);
        }
        // Of a row two neighbours, where they go together; k is even.
        template <class T> __device__ __forceinline__ static void pair(T *to, R a, R b)
        {
            const R both[2] = { a, b };
            cell_store_vec<2>(to, both);
        }
        // The lane's N elements where neighbours do not; place(n, t, k): where element n is. A loop:
        // code that few calls need would stand between what the others run, and a block fetches that
        // once.
        template <int N, class Place> __device__ __forceinline__ void each(const R (&v)[N], Place place) const
        {
            CELL_UNROLL_BY(1)
            for (int n = 0; n < N; n++) {
                int t, k;
                place(n, t, k);
                if (t < lines && k < left)
                    one(at + t * row + k * element, v[n]);
            }
        }
    };
    // T is what the rows have, and neighbours go together.
    template <class T, class Tile>
    __device__ __forceinline__ static void put_pairs(const writer &out, Tile &sum)
    {
        const int k = Tile::column(0) + cell_lane() % 4 * 2;
        CELL_UNROLL
        for (int n = 0; n < Tile::down * 2; n++) {
            const int i = n / 2, t = Tile::block(i) * B + cell_lane() / 4 + n % 2 * 8;
            const int left = Tile::there(i, 0) && t < out.lines ? out.left - k : 0;
            T *const to = (T *)(out.at + t * out.row) + k;
            CELL_UNROLL
            for (int j = 0; j < Tile::along; j++)
                if (j * 8 < left && Tile::there(i, j))
                    writer::pair(to + j * 8, sum.x[i][j][n % 2 * 2], sum.x[i][j][n % 2 * 2 + 1]);
        }
    }
    template <class Tile> __device__ __forceinline__ static void put_tile(const writer &out, Tile &sum)
    {
        if (out.two) {
            if (cell_same<Store, R> || out.real)
                put_pairs<R>(out, sum);
            else
                put_pairs<Store>(out, sum);
            return;
        }
        R all[Tile::down * Tile::along * 4];
        CELL_UNROLL
        for (int n = 0; n < Tile::down * Tile::along * 4; n++)
            all[n] = sum.x[n / 4 / Tile::along][n / 4 % Tile::along][n % 4];
        out.each(all, [](int n, int &t, int &k) {
            const int i = n / 4 / Tile::along, j = n / 4 % Tile::along;
            t = Tile::there(i, j) ? Tile::block(i) * B + cell_lane() / 4 + n % 4 / 2 * 8 : C;
            k = Tile::column(j) + cell_lane() % 4 * 2 + n % 2;
        });
    }
    __device__ __forceinline__ writer writes(const cell_chunk_result &to, int64_t k0, int64_t extent) const
    {
        constexpr int most = K > V ? K : V;
        const int size = to.real ? (int)sizeof(R) : (int)sizeof(Store);
        const int64_t row = to.row * size, left = x.steps - rows.first, there = extent - k0;
        unsigned char *const at = (unsigned char *)to.at + rows.first * row + k0 * to.element * size;
        return { at,
                 row,
                 to.element * size,
                 to.real,
                 to.adds,
                 to.element == 1 && !to.adds && !(there & 1) && !(row & (2 * size - 1)) &&
                     !((uintptr_t)at & (unsigned)(2 * size - 1)),
                 !to.at ? 0 : (int)(left < C ? left : C),
                 (int)(there < most ? there : most) };
    }

    __device__ void put_known(int n, values_tile &sum, int64_t v0)
    {
        const cell_chunk_gradient &to = g.known[n];
        if (to.number.at)
            sum.row_sums(known_sums(n), [&](int t, int v, R s) { return s * known_vector(n, t, v0 + v); });
        const writer out = writes(to.vector, v0, x.values);
        sum.pairs([&](int t, int, R &a, R &b) {
            const R by = known_number(n)[t];
            a *= by;
            b *= by;
        });
        put_tile(out, sum);
    }

    __device__ void make_known(int n, int64_t v0)
    {
        values_tile sum;
        sum.clear();
        CELL_UNROLL_BY(1)
        for (int k0 = 0; k0 < M::keys; k0 += K) {
            need(!by_key && one_values() && one_keys(), [&] {
                if (by_key)
                    fetch_dense<C, K>(of_record(), record_part(record::e(n)) + k0, M::keys, C, K);
                else
                    fetch_rows<K>(column_part(n), x.addition[n].column.vector, k0, x.keys);
                fetch_state(end(), g.ends, k0, v0);
            });
            sum.add(by_key ? of_record() : column_part(n), end().across(), 0, K);
        }
        if constexpr (!by_key)
            sum.each([&](int s, int, R &v) { v *= record_number(record::e_number(n), s); });
        CELL_UNROLL_BY(1)
        for (int f = 0; f < readers; f++) {
            if constexpr (cell_chunk_apart<M>()) {
                make_read(f, n);
            } else {
                cell_barrier();
                fetch_square(0, 0, record_part(is_read(f) ? record::a(f, n) : record::l(n)));
            }
            if (!one_values())
                fetch_cotangent(f, v0);
            arrived();
            sum.add(scores(0, 0).across(), cotangent(f), 0, C, [](int s, int t) { return s <= t; });
        }
        put_known(n, sum, v0);
    }

    // A_fn, which records do not have where reads are apart, to scores(0, 0).
    __device__ void make_read(int f, int n)
    {
        square sum;
        sum.clear();
        add_vectors(sum, f, n);
        weigh(sum, f, n, [](int) { return (R)1; });
        cell_barrier();
        sum.store(scores(0, 0), below);
    }

    // += f c_n', of blocks that may see one another, without numbers.
    __device__ void add_vectors(square &sum, int f, int n)
    {
        CELL_UNROLL_BY(1)
        for (int k0 = 0; k0 < M::keys; k0 += K) {
            need(one_keys(), [&] {
                fetch_rows<K>(reader_part(f), reader(f).vector, k0, x.keys);
                fetch_rows<K>(column_part(n), x.addition[n].column.vector, k0, x.keys);
            });
            sum.add(reader_part(f), column_part(n).across(), 0, K, [](int, int) { return true; }, below);
        }
    }

    __device__ void make_corrected_known(int64_t v0)
    {
        values_tile sum;
        need(one_values(), [&] { fetch_cotangent(M::reads, v0); });
        sum.pairs([&](int t, int v, R &a, R &b) {
            R two[2];
            cell_load_vec<2>(two, cotangent(M::reads).place(t, v));
            a = two[0];
            b = two[1];
        });
        put_known(0, sum, v0);
    }

    // ---- dA ----

    // Blocks of 16 x 16 in which a row may see an addition. Others are neither made nor read.
    __device__ __forceinline__ static constexpr bool below(int row_block, int block)
    {
        return block <= row_block;
    }

    // Whether derivatives by windows of one gate a row are wanted.
    __device__ __forceinline__ bool wants_gates() const
    {
        return by_number && g.decay.at;
    }

    // With its windows and the numbers of f, c_n and d_n; by key that of d_n only.
    __device__ void make_scores(int f, int n)
    {
        square sum;
        sum.clear();
        CELL_UNROLL_BY(1)
        for (int64_t v0 = 0; v0 < x.values; v0 += V) {
            need_rows(f, n, v0);
            sum.add(cotangent(f), added(n).across(), 0, V, [](int, int) { return true; }, below);
        }
        const bool of_reader = reader_result(f).number.at, of_column = g.column[n].number.at;
        if (!by_key && (wants_gates() || of_reader || of_column))
            take_scores(sum, f, n, of_reader, of_column);
        else if (!by_key)
            weigh(sum, f, n, [&](int s) { return added_number(n, s); });
        else
            sum.pairs(below, [&](int t, int s, R &a, R &b) {
                a = sees(f, t, s) ? a * added_number(n, s) : (R)0;
                b = sees(f, t, s + 1) ? b * added_number(n, s + 1) : (R)0;
            });
        sum.store(scores(f, n), below);
    }
    // Where a row has one gate or none: sums of rows of f's and of c_n's, times the numbers of both, what
    // `more` gives for a column, and the windows; 0 where a row does not see another. Of additions of an
    // earlier block the window is a product of a row's and a column's.
    template <class More> __device__ __forceinline__ void weigh(square &sum, int f, int n, More more) const
    {
        static_assert(square::down == 1, "a warp has whole blocks");
        const int block = square::block(0), first = block * B + cell_lane() / 4;
        if (!square::there(0, 0))
            return;
        R row[2], front[2];
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            row[h] = reader_number(f)[first + h * 8];
            front[h] = by_number ? row[h] * front_window(first + h * 8, 0, before(f)) : row[h];
        }
        CELL_UNROLL
        for (int j = 0; j < square::along; j++) {
            const int adds = square::column(j) / B, s = square::column(j) + cell_lane() % 4 * 2;
            if (!square::there(0, j) || adds > block)
                continue;
            R column[2];
            CELL_UNROLL
            for (int e = 0; e < 2; e++) {
                column[e] = (R)column_number(n)[s + e] * more(s + e);
                if (by_number && adds < block)
                    column[e] *= (R)between()[block * blocks + adds] * (R)suf()[s + e];
            }
            CELL_UNROLL
            for (int r = 0; r < 4; r++) {
                const int t = first + r / 2 * 8;
                R by = (adds < block ? front[r / 2] : row[r / 2]) * column[r % 2];
                if (by_number && adds == block)
                    by *= (R)pairs()[pair_row(f, t) * (B + 1) + (s + r % 2) % B];
                sum.x[0][j][r] = adds < block || sees(f, t, s + r % 2) ? sum.x[0][j][r] * by : (R)0;
            }
        }
    }
    // Whose line of pairs() a reader of row t takes.
    __device__ __forceinline__ static int pair_row(int f, int t)
    {
        const int row = before(f) ? lead(t) - 1 : t;
        return row < 0 ? 0 : row;
    }

    // Where a row has one gate or none: the same, and what the windows and the numbers have of it. The
    // derivative by them is dA o f c'. A window of a reader before its row ends at the row before.
    __device__ void take_scores(square &dA, int f, int n, bool of_reader, bool of_column)
    {
        square raw;
        raw.clear();
        add_vectors(raw, f, n);
        cell_barrier(); // another reader's row is another thread's
        if (square::there(0, 0))
            take_block(dA, raw, f, n, of_reader, of_column);
    }

    // Of a warp's block of rows, of which a lane has two, 8 apart.
    struct row_terms {
        R number[2], front[2]; // the reader's number, its window from the block's first row
        R through[2];          // sums over an earlier block
        R earlier[2];          // and over all of them, with the windows between
        R own[2];              // and over the block itself
        R column[square::along * 2]; // of each column sums over rows: with number and window of rows
    };

    // The same for the warp's block of rows. dA becomes the score.
    __device__ __forceinline__ void take_block(square &dA, const square &raw, int f, int n, bool of_reader,
                                               bool of_column)
    {
        static_assert(square::down == 1 && (blocks == 1 || square::along % 2 == 0),
                      "a warp has whole blocks");
        const int block = square::block(0), first = block * B + cell_lane() / 4;
        row_terms of = {};
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            of.number[h] = reader_number(f)[first + h * 8];
            of.front[h] = by_number ? front_window(first + h * 8, 0, before(f)) : (R)1;
        }
        CELL_UNROLL
        for (int j = 0; j < square::along; j++) {
            const int adds = square::column(j) / B;
            if (!square::there(0, j) || adds > block)
                continue;
            if (adds == block) {
                take_own(of, dA.x[0][j], raw.x[0][j], j, f, n);
                continue;
            }
            const R gap = by_number ? (R)between()[block * blocks + adds] : (R)1;
            take_earlier(of, dA.x[0][j], raw.x[0][j], j, n, gap);
            if (j % 2)
                end_block(of, block, adds, gap);
        }
        if (wants_gates()) {
            const R by_row[2] = { of.earlier[0] * of.number[0], of.earlier[1] * of.number[1] };
            put_earlier(block, by_row, before(f));
        }
        if (of_reader)
            put_reader_sums(of, f);
        if (wants_gates() || of_column)
            put_columns(of, block, n);
    }
    // Of additions of an earlier block all are seen, and the window is a product of a row's and a column's.
    __device__ __forceinline__ void take_earlier(row_terms &of, R (&dA)[4], const R (&raw)[4], int j, int n,
                                                 R gap)
    {
        const int s = square::column(j) + cell_lane() % 4 * 2;
        R added_by[2], column[2];
        CELL_UNROLL
        for (int e = 0; e < 2; e++) {
            added_by[e] = added_number(n, s + e);
            column[e] = by_number ? (R)column_number(n)[s + e] * (R)suf()[s + e] : (R)column_number(n)[s + e];
        }
        CELL_UNROLL
        for (int r = 0; r < 4; r++) {
            const R v = dA[r] * added_by[r % 2], made = v * raw[r], by = of.number[r / 2] * of.front[r / 2];
            of.through[r / 2] += made * column[r % 2];
            of.column[j * 2 + r % 2] += made * by;
            dA[r] = v * by * (column[r % 2] * gap);
        }
    }
    // Behind the tiles of an earlier block.
    __device__ __forceinline__ void end_block(row_terms &of, int block, int adds, R gap)
    {
        if (wants_gates()) {
            const R low = of.number[0] * of.front[0], high = of.number[1] * of.front[1];
            const R sum = cell_warp_sum(of.through[0] * low + of.through[1] * high);
            if (cell_lane() == 0)
                through(block, adds)[0] = (R)through(block, adds)[0] + sum;
        }
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            of.earlier[h] += of.through[h] * gap;
            of.through[h] = 0;
        }
    }
    __device__ __forceinline__ void take_own(row_terms &of, R (&dA)[4], const R (&raw)[4], int j, int f,
                                             int n)
    {
        const int first = square::block(0) * B + cell_lane() / 4,
                  column = square::column(j) + cell_lane() % 4 * 2;
        CELL_UNROLL
        for (int r = 0; r < 4; r++) {
            const int t = first + r / 2 * 8, s = column + r % 2;
            const bool there = sees(f, t, s);
            const R number_of = column_number(n)[s], numbers = of.number[r / 2] * number_of;
            const R v = dA[r] * added_number(n, s);
            R made = there ? v * raw[r] : (R)0, window = 1;
            if constexpr (by_number) {
                window = pairs()[pair_row(f, t) * (B + 1) + s % B];
                put_pair(f, t, s, there, made * numbers);
                window = there ? window : (R)0;
                made *= window;
            }
            of.own[r / 2] += made * number_of;
            of.column[j * 2 + r % 2] += made * of.number[r / 2];
            dA[r] = there ? v * numbers * window : (R)0;
        }
    }
    __device__ __forceinline__ void put_reader_sums(const row_terms &of, int f)
    {
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            R sum = of.own[h] + of.earlier[h] * of.front[h];
            sum += cell_shfl_xor(sum, 1);
            sum += cell_shfl_xor(sum, 2);
            const cell_smem<R> to = reader_sums(f) + (cell_warp() / square::row_warps * C +
                                                      square::block(0) * B + cell_lane() / 4 + h * 8);
            if (cell_lane() % 4 == 0)
                to[0] = (R)to[0] + sum;
        }
    }
    __device__ __forceinline__ void put_columns(row_terms &of, int block, int n)
    {
        square::column_sums(of.column, [&](int j, int e, R sum) {
            const int s = square::column(j) + cell_lane() % 4 * 2 + e, adds = s / B;
            if (adds > block || s >= C)
                return;
            if (by_number && adds < block) {
                sum *= (R)between()[block * blocks + adds];
                const cell_smem<R> to = later() + (block * C + s);
                to[0] = (R)to[0] + sum * (R)column_number(n)[s];
                sum *= (R)suf()[s];
            }
            const cell_smem<R> to = column_sums(n) + (block * C + s);
            to[0] = (R)to[0] + sum;
        });
    }
    // Those of an update end before it.
    __device__ __forceinline__ void put_pair(int f, int t, int s, bool there, R derivative)
    {
        if (M::together > 1 && before(f)) {
            derivative = sum_update<4>(derivative);
            there &= t == lead(t);
        }
        if (!there)
            return;
        const cell_smem<R> to = inner() + ((before(f) ? lead(t) - 1 : t) * (B + 1) + s % B);
        to[0] = (R)to[0] + derivative;
    }
    // What windows that end a row before have of a block's first row is not of its pre.
    __device__ __forceinline__ void put_earlier(int block, const R (&by_row)[2], bool before_it)
    {
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            const int t = block * B + cell_lane() / 4 + h * 8;
            R sum = by_row[h];
            sum += cell_shfl_xor(sum, 1);
            sum += cell_shfl_xor(sum, 2);
            if (before_it)
                sum = sum_update<4>(sum);
            if (cell_lane() % 4 || (before_it && (t % B == 0 || t != lead(t))))
                continue;
            const cell_smem<R> to = earlier() + (cell_warp() / square::row_warps * C + t - before_it);
            to[0] = (R)to[0] + sum;
        }
    }

    // ---- y_f S_0', d_n dS_C' ----

    __device__ void add_reader_start(keys_tile &sum, int f, int k0)
    {
        CELL_UNROLL_BY(1)
        for (int64_t v0 = 0; v0 < x.values; v0 += V) {
            need(one_values() && (by_key || one_keys()), [&] {
                if (!one_values())
                    fetch_cotangent(f, v0);
                fetch_state(start(), x.saved, k0, v0);
            });
            sum.add(cotangent(f), start(), 0, V);
        }
    }
    __device__ void add_column_end(keys_tile &sum, int n, int k0)
    {
        CELL_UNROLL_BY(1)
        for (int64_t v0 = 0; v0 < x.values; v0 += V) {
            need(one_values() && (by_key || one_keys()), [&] {
                if (!one_values())
                    fetch_added(n, v0, true);
                fetch_state(end(), g.ends, k0, v0);
            });
            sum.add(added(n), end(), 0, V);
        }
        if (n >= corrections)
            sum.each([&](int s, int, R &v) { v *= (R)known_number(n)[s]; });
    }

    // ---- gradients of f and c where a row has one number ----

    // What a row's vector and the sums make, by which the row's windows and its number have their gradients.
    __device__ __forceinline__ void sum_rows(keys_tile &sum, const matrix &vector)
    {
        sum.row_sums(row_sums(), [&](int t, int k, R s) { return s * cell_load<R>(vector.place(t, k)); });
        cell_barrier();
    }
    __device__ __forceinline__ R take_row(int t)
    {
        R sum = 0;
        for (int part = 0; part < keys_tile::column_warps; part++) {
            sum += row_sums()[part * C + t];
            row_sums()[part * C + t] = 0;
        }
        return sum;
    }

    // own(row) of each row, and where a row has one gate take(row, whether there is one, what own() gave)
    // by all lanes of a warp.
    template <class Own, class Take> __device__ __forceinline__ void rows_by_warps(Own own, Take take)
    {
        for (int t = cell_thread(); t < (C + 31) / 32 * 32; t += threads) {
            const R derivative = t < C ? own(t) : (R)0;
            if (wants_gates())
                take(t < C ? t : C - 1, t < C, derivative);
        }
    }
    // What a row's reader has of S_0, and what its addition is to dS_C, by their windows.
    __device__ __forceinline__ void take_start(int f, int t, bool there, R derivative)
    {
        const R sum = before(f) ? sum_update<1>(there ? derivative : (R)0) : derivative;
        if (there && (!before(f) || (t % B && t == lead(t)))) {
            const cell_smem<R> to = earlier() + (before(f) ? t - 1 : t);
            to[0] = (R)to[0] + sum * (R)start_window()[t / B * B];
        }
        add_through(through(t / B, -1), there, derivative * front_window(t, 0, before(f)));
    }
    __device__ __forceinline__ void take_end(int s, bool there, R derivative)
    {
        if (there)
            later()[s] = (R)later()[s] + derivative * (R)end_window()[s / B * B + B - 1];
        add_through(through(blocks, s / B), there, derivative * (R)suf()[s]);
    }
    __device__ __forceinline__ void add_through(cell_smem<R> to, bool there, R sum)
    {
        CELL_UNROLL
        for (int i = 1; i < B; i *= 2)
            sum += cell_shfl_xor(sum, i);
        if (there && cell_lane() % B == 0)
            to[0] = (R)to[0] + sum;
    }

    // Are the gradients of w's and of the first column's vector one, of a vector that is both?
    __device__ __forceinline__ bool joined() const
    {
        const cell_chunk_result &a = g.weight.vector, &b = g.column[0].vector;
        return corrections != 0 && a.at && a.at == b.at && a.element == b.element;
    }

    // held: of w, where its gradient goes with the first column's.
    __device__ void make_reader(int f, int k0, keys_tile &held)
    {
        keys_tile sum;
        sum.clear();
        need(one_keys(), [&] { fetch_rows<K>(reader_part(f), reader(f).vector, k0, x.keys); });
        add_reader_start(sum, f, k0);
        if (wants_gates() || reader_result(f).number.at) {
            sum_rows(sum, reader_part(f));
            rows_by_warps(
                [&](int t) {
                    const R had = take_row(t), before_it = reader_sums(f)[t];
                    reader_sums(f)[t] = before_it + had * from_start(f, t);
                    return had * (R)reader_number(f)[t];
                },
                [&](int t, bool there, R derivative) { take_start(f, t, there, derivative); });
            cell_barrier();
        }
        sum.each([&](int t, int, R &s) { s *= from_start(f, t) * (R)reader_number(f)[t]; });
        CELL_UNROLL_BY(1)
        for (int n = 0; n < additions; n++) {
            need(one_keys(), [&] { fetch_rows<K>(column_part(n), x.addition[n].column.vector, k0, x.keys); });
            sum.add(scores(f, n), column_part(n), 0, C, [](int t, int s) { return s <= t; });
        }
        if (!is_read(f) && joined()) {
            held = sum;
            return;
        }
        const writer out = writes(reader_result(f).vector, k0, x.keys);
        put_tile(out, sum);
    }

    __device__ void make_column(int n, int k0, const keys_tile &held)
    {
        keys_tile sum;
        sum.clear();
        need(one_keys(), [&] { fetch_rows<K>(column_part(n), x.addition[n].column.vector, k0, x.keys); });
        add_column_end(sum, n, k0);
        if (wants_gates() || g.column[n].number.at) {
            sum_rows(sum, column_part(n));
            rows_by_warps(
                [&](int s) {
                    const R had = take_row(s), before_it = column_sums(n)[s];
                    column_sums(n)[s] = before_it + had * to_end(s);
                    return had * (R)column_number(n)[s];
                },
                [&](int s, bool there, R derivative) { take_end(s, there, derivative); });
            cell_barrier();
        }
        sum.each([&](int s, int, R &v) { v *= to_end(s) * (R)column_number(n)[s]; });
        CELL_UNROLL_BY(1)
        for (int f = 0; f < readers; f++) {
            need(one_keys(), [&] { fetch_rows<K>(reader_part(f), reader(f).vector, k0, x.keys); });
            sum.add(scores(f, n).across(), reader_part(f), 0, C, [](int s, int t) { return s <= t; });
        }
        if (n == 0 && joined())
            sum.add_sums(held);
        const writer out = writes(g.column[n].vector, k0, x.keys);
        put_tile(out, sum);
    }

    // ---- the gradient of one gate a row ----

    // By the window of the whole chunk.
    __device__ void add_whole()
    {
        R sum = 0;
        if (one_values() && one_keys()) {
            for (int n = cell_thread(); n < V * K; n += threads)
                sum += cell_load<R>(start().place(n / K, n % K)) * cell_load<R>(end().place(n / K, n % K));
        } else {
            for (int64_t n = cell_thread(); n < x.keys * x.values; n += threads) {
                const int64_t at = chunk * x.keys * x.values + n;
                sum += cell_load<R>(x.saved + at) * cell_load<R>(g.ends + at);
            }
        }
        sum = cell_warp_sum(sum);
        if (cell_lane() == 0)
            reals[at_threads + cell_warp()] = sum;
        cell_barrier();
        if (cell_thread() == 0) {
            sum = through(blocks, -1)[0];
            for (int i = 0; i < threads / 32; i++)
                sum += reals[at_threads + i];
            through(blocks, -1)[0] = sum;
        }
        cell_barrier();
    }

    // The derivative by the product of a block's gates, of readers in the block `reads` or at the end.
    __device__ __forceinline__ R whole(int block, int reads) const
    {
        R sum = 0, gap = 1;
        for (int b = block + 1; b < reads; b++)
            gap *= (R)tot()[b];
        for (int adds = block - 1; adds >= -1; adds--) {
            sum += (R)through(reads, adds)[0] * gap;
            if (adds >= 0)
                gap *= (R)tot()[adds];
        }
        return sum;
    }

    // Four lanes have a row; each takes a fourth of the block's rows behind it, of those before it, and of
    // the blocks that read.
    __device__ void make_gate()
    {
        static_assert(blocks <= 4 && C * 4 % 32 == 0, "a lane takes one block that reads, or the end");
        add_whole();
        const writer out = writes(g.decay, 0, 1);
        CELL_UNROLL_BY(1)
        for (int job = cell_thread(); job < C * 4; job += threads) {
            const int row = job / 4, share = job % 4, block = row / B, first = block * B;
            const cell_smem<R> kept =
                pairs() + (row > 0 ? row - 1 : 0) * (B + 1); // from a row to the one before
            const R front = window_before(row, 0), behind = suf()[row];
            R sum = block + 1 + share <= blocks ? whole(block, block + 1 + share) * front * behind : (R)0;
            CELL_UNROLL_BY(1)
            for (int t = row + share; t < first + B; t += 4) {
                R reads = 0;
                for (int part = 0; part < square::column_warps; part++)
                    reads += earlier()[part * C + t];
                reads *= front;
                CELL_UNROLL_BY(1)
                for (int s = 0; s < row - first; s++)
                    reads += (R)inner()[t * (B + 1) + s] * (R)kept[s];
                sum += reads * (R)pairs()[t * (B + 1) + row - first];
            }
            CELL_UNROLL_BY(1)
            for (int s = share; s < row - first; s += 4) {
                R adds = 0;
                for (int part = 0; part < blocks; part++)
                    adds += later()[part * C + first + s];
                sum += adds * (R)kept[s] * behind;
            }
            sum += cell_shfl_xor(sum, 1);
            sum += cell_shfl_xor(sum, 2);
            if (share == 0 && row < out.lines)
                out.one(out.at + row * out.row, row < rows.valid ? sum : (R)0);
        }
    }

    // ---- by key ----

    // Behind it all of the keys from k0 on is there.
    __device__ void load_slab(int k0)
    {
        cell_barrier();
        CELL_UNROLL_BY(1)
        for (int i = 0; i < readers + additions; i++)
            fetch_rows<K>(reader_part(i),
                          i < readers ? reader(i).vector : x.addition[i - readers].column.vector, k0, x.keys);
        if (one_values()) {
            fetch_state(start(), x.saved, k0, 0);
            fetch_state(end(), g.ends, k0, 0);
        }
        cell_cp_async_commit();
        for (int n = cell_thread(); n < real_count - at_across; n += threads)
            reals[at_across + n] = 0;
        make_windows(k0);
        arrived();
        scale_vectors();
        sum_states(k0);
    }

    // f times pre and c times suf, with their numbers: 16 bytes of each vector at a time.
    __device__ void scale_vectors()
    {
        constexpr int words = K / each, some = each < 4 ? each : 4;
        CELL_UNROLL_BY(1)
        for (int n = cell_thread(); n < C * words; n += threads) {
            const int t = n / words, k = n % words * each;
            CELL_UNROLL
            for (int i = 0; i < readers + additions; i++) {
                const bool front = i < readers && before(i), none = front && lead(t) % B == 0;
                const int row = front && !none ? lead(t) - 1 : t; // whose gate is the window's last
                const R by = number(i)[t];
                R v[each];
                cell_load_vec<each>(v, reader_part(i).place(t, k));
                CELL_UNROLL
                for (int at = 0; at < each; at += some) {
                    R window[some];
                    cell_load_vec<some>(window, (i < readers ? pre() : suf()) + (row * line + k + at));
                    CELL_UNROLL
                    for (int e = 0; e < some; e++)
                        v[at + e] *= none ? by : by * window[e];
                }
                cell_store_vec<each>(scaled(i).place(t, k), v);
            }
        }
    }

    // Of each key S_0 times dS_C, by the window of the whole chunk. A barrier is behind it.
    __device__ void sum_states(int k0)
    {
        constexpr int shares = threads / K;
        const int k = cell_thread() % K;
        R sum = 0;
        if (one_values()) {
            for (int v = cell_thread() / K; v < V; v += shares)
                sum += cell_load<R>(start().place(v, k)) * cell_load<R>(end().place(v, k));
        } else if (k0 + k < x.keys) {
            for (int64_t v = cell_thread() / K; v < x.values; v += shares) {
                const int64_t at = (chunk * x.values + v) * x.keys + k0 + k;
                sum += cell_load<R>(x.saved + at) * cell_load<R>(g.ends + at);
            }
        }
        reals[at_threads + cell_thread()] = sum;
        cell_barrier();
        if (cell_thread() < K) {
            sum = 0;
            for (int i = 0; i < shares; i++)
                sum += reals[at_threads + i * K + k];
            ends()[blocks * K + k] = sum;
        }
    }

    // Derivatives by whole blocks of what the read behind the last row has. A barrier is behind it.
    __device__ void sum_ends()
    {
        for (int k = cell_thread(); k < K; k += threads) {
            R run = ends()[blocks * K + k];
            CELL_UNROLL_BY(1)
            for (int b = 0; b < blocks; b++) {
                across()[(blocks * blocks + b) * K + k] = run;
                run = run * (R)tot()[b * K + k] + (R)ends()[b * K + k];
            }
        }
        cell_barrier();
    }

    __device__ void make_slab(int k0)
    {
        load_slab(k0);
        cell_chunk_slab<M> slab(*this, k0);
        slab.make();
    }

    // ---- all ----

    // Gradients of the numbers, whose sums lie in `count` parts.
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
        fetch_all();
        load_numbers();
        arrived();
        CELL_UNROLL_BY(1)
        for (int64_t v0 = 0; corrections && v0 < x.values; v0 += V)
            solve(v0);
        CELL_UNROLL_BY(1)
        for (int64_t v0 = 0; v0 < x.values; v0 += V) {
            if constexpr (corrections != 0)
                if (given(0))
                    make_corrected_known(v0);
            CELL_UNROLL_BY(1)
            for (int n = corrections; n < additions; n++)
                make_known(n, v0);
        }
        cell_barrier();
        CELL_UNROLL_BY(1)
        for (int f = 0; f < readers; f++)
            CELL_UNROLL_BY(1)
        for (int n = 0; n < additions; n++)
            make_scores(f, n);
        cell_barrier();
        CELL_UNROLL_BY(1)
        for (int k0 = 0; k0 < M::keys; k0 += K) {
            if constexpr (by_key) {
                make_slab(k0);
            } else {
                keys_tile held;
                held.clear();
                CELL_UNROLL_BY(1)
                for (int f = 0; f < readers; f++)
                    make_reader(f, k0, held);
                CELL_UNROLL_BY(1)
                for (int n = 0; n < additions; n++)
                    make_column(n, k0, held);
            }
        }
        cell_barrier();
        if (wants_gates())
            make_gate();
        CELL_UNROLL_BY(1)
        for (int f = 0; f < readers; f++)
            put_number(reader_result(f), reader(f).number, reader_sums(f), keys_tile::column_warps);
        CELL_UNROLL_BY(1)
        for (int n = 0; n < additions; n++) {
            put_number(g.column[n], x.addition[n].column.number, column_sums(n), column_parts);
            if (given(n))
                put_number(g.known[n], x.addition[n].known.number, known_sums(n), values_tile::column_warps);
        }
    }

    // Of a chunk without rows.
    __device__ void clear(const cell_chunk_gradient &to, int64_t extent)
    {
        cell_chunk_clear<M, threads>(to.vector, rows.first, x.steps, extent);
        cell_chunk_clear<M, threads>(to.number, rows.first, x.steps, 1);
    }
    __device__ void clear_all()
    {
        CELL_UNROLL_BY(1)
        for (int f = 0; f < readers; f++)
            clear(reader_result(f), x.keys);
        CELL_UNROLL_BY(1)
        for (int n = 0; n < additions; n++) {
            clear(g.column[n], x.keys);
            if (given(n))
                clear(g.known[n], x.values);
        }
        if constexpr (M::decay != 0)
            clear({ g.decay, {} }, by_key ? x.keys : 1);
    }
};

#include "cell_device_chunk_slab.cuh"

template <class M> struct cell_chunk_coupled_rester;
template <class M> struct cell_chunk_rester<M, true> : cell_chunk_coupled_rester<M> {
    using cell_chunk_coupled_rester<M>::cell_chunk_coupled_rester;
};

// Grid: a block of cell_chunk_rester<M>::threads for each chunk of each head of each sequence;
// cell_chunk_rester<M>::smem() bytes.
template <class M> __device__ void cell_chunk_finish(const cell_chunk_backward<M> &g, int64_t chunk)
{
    auto cursor = cell_shared();
    const cell_smem<cell_chunk_backward<M>> of = cell_carve<cell_chunk_backward<M>>(cursor, 1);
    if (cell_thread() == 0)
        of[0] = g;
    cell_barrier();
    cell_chunk_rester<M> rest(cell_shared_struct(of), cursor, chunk);
    if (cell_chunk_empty(g.of, chunk))
        rest.clear_all();
    else
        rest.make();
}

#endif
