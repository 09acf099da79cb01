// The walk back over the chunks of a linear recurrence (cell_device_chunk.cuh), by one block for one block of
// values of a head, from the records that `prep` makes of the same operands:
//
//     dR   = X dS_C + sum P_r' do_r                       where corrected
//     dS_0 = D dS_C + W' dR + sum Q_r' do_r
//
// Out: what `rest` (cell_device_chunk_rest.cuh) takes, dS_C of each chunk and the rows dR; and dS of the
// first row's state.
#ifndef CELL_DEVICE_CHUNK_BACK_CUH
#define CELL_DEVICE_CHUNK_BACK_CUH

// Gradients that `rest` leaves: of row t and key or value k at (t * row + k * element), of a number at (t *
// row). For all `steps` rows, zeros behind the length. at: null where not wanted.
struct cell_chunk_gradient {
    cell_chunk_result vector, number;
};

// One head of one sequence, backward. Pointers stand at row 0, key 0 and value 0.
template <class M> struct cell_chunk_backward {
    typedef typename M::Part Part;
    cell_chunk<M> of;              // as forward, with records that `prep` made with `inverse`, and `saved`
    cell_rows cotangent[M::reads]; // do
    cell_chunk_state last,
        first;         // dS behind the last row, null: zeros; dS in front of the first, null: not wanted
    bool adds;         // dS in front of the first row is added to what is there
    // For the walk back `ends` and `corrections` may be null: not stored.
    Part *ends;        // dS_C of each chunk, laid out as `saved`
    Part *corrections; // dR, where corrected: row t of chunk i and value v at (i * values + v) * rows + t
    Part *solved;      // d_0, where corrected, of all rows of all chunks: row t and value v at t * values + v;
                       // `rest` writes and reads it
    // The vectors of weight and column[0] may be one place, not by key: it is given the sum of both.
    cell_chunk_gradient column[M::additions], known[M::additions], weight, read[M::reads];
    cell_chunk_result decay; // of a number: element 0; of two states a_ij: element 2 i + j
};

// What is in no chunk with rows of the sequence.
template <class M> __device__ __forceinline__ bool cell_chunk_empty(const cell_chunk<M> &x, int64_t chunk)
{
    return chunk * M::rows >= x.length;
}

template <class M> __device__ __forceinline__ void cell_chunk_put(const cell_chunk_result &to, int64_t t,
                                                                  int64_t k, typename M::Real v)
{
    const int64_t at = t * to.row + k * to.element;
    if (to.real)
        cell_put((typename M::Real *)to.at + at, v, to.adds);
    else
        cell_put((typename M::Store *)to.at + at, v, to.adds);
}

// An element of a state's gradient.
template <class M>
__device__ __forceinline__ void cell_chunk_leave(const cell_chunk_state &to, int64_t k, int64_t v,
                                                 typename M::Real value, bool adds)
{
    cell_chunk_state_store<M>(to, k, v, adds ? cell_chunk_state_load<M>(to, k, v) + value : value);
}

// to[i, j] = from(i, j), of Rows x Columns.
template <class T, int Rows, int Columns, int Threads = CELL_CHUNK_THREADS, class From>
__device__ __forceinline__ void cell_chunk_stage(const cell_chunk_matrix<T> &to, From from)
{
    for (int n = cell_thread(); n < Rows * (Columns / 2); n += Threads) {
        const int i = n / (Columns / 2), j = n % (Columns / 2) * 2;
        const decltype(from(i, j)) two[2] = {from(i, j), from(i, j + 1)};
        cell_store_vec<2>(to.place(i, j), two);
    }
}

// Shared memory: dS [keys][values], dR and do_r [rows][values], and what is multiplied by them, `slab`
// columns of a matrix of the record at a time, all of Part.
template <class M> struct cell_chunk_back_plain {
    typedef typename M::Real R;
    typedef typename M::Part Part;
    typedef cell_chunk_record<M> record;
    typedef cell_chunk_matrix<Part> matrix;
    static constexpr int C = M::rows, V = M::values, K = M::keys;
    static constexpr int slab = K % 64 == 0 ? 64 : K % 32 == 0 ? 32 : 16;
    static constexpr int staged = slab > C ? slab : C;

    __host__ __device__ static constexpr int64_t smem()
    {
        return cell_carve_bytes<Part>(K * cell_chunk_pitch<Part>(V)) +
               (M::reads + record::corrections) * cell_carve_bytes<Part>(C * cell_chunk_pitch<Part>(V)) +
               cell_carve_bytes<Part>(C * cell_chunk_pitch<Part>(staged));
    }

    const cell_chunk_backward<M> &g;
    const cell_chunk<M> &x;
    int64_t first;
    const unsigned char *from;
    cell_chunk_rows rows;
    matrix state, correction, stage, cotangent[M::reads];
    cell_chunk_tile<R, K, V, CELL_CHUNK_THREADS> sum; // dS

    __device__ __forceinline__ static matrix carve(unsigned char *&cursor, int lines, int columns)
    {
        const int pitch = cell_chunk_pitch<Part>(columns);
        return {cell_carve<Part>(cursor, lines * pitch), pitch};
    }
    __device__ __forceinline__ cell_chunk_back_plain(const cell_chunk_backward<M> &of, int64_t first_value)
        : g(of), x(of.of), first(first_value)
    {
        auto cursor = cell_shared();
        state = carve(cursor, K, V);
        if constexpr (record::corrections != 0)
            correction = carve(cursor, C, V);
        for (int r = 0; r < M::reads; r++)
            cotangent[r] = carve(cursor, C, V);
        stage = carve(cursor, C, staged);
    }

    // Keys k0 to k0 + slab of W, Q_r or X.
    __device__ void stage_slab(int wide, const cell_rows *raw, int numbers, int k0)
    {
        cell_barrier();
        cell_chunk_stage<Part, C, slab>(stage, [&](int t, int k) -> R {
            if (!raw)
                return cell_load<R>((const Part *)(from + wide) + t * K + k0 + k);
            return cell_chunk_load<M>(*raw, rows, t, k0 + k, x.keys) * ((const R *)(from + numbers))[t];
        });
        cell_barrier();
    }

    // dR
    __device__ void correct()
    {
        cell_chunk_tile<R, C, V, CELL_CHUNK_THREADS> rows_sum;
        rows_sum.clear();
        for (int k0 = 0; k0 < K; k0 += slab) {
            stage_slab(record::x, nullptr, 0, k0);
            rows_sum.add(stage, matrix{state.place(k0, 0), state.pitch}, 0, slab);
        }
        for (int r = 0; r < M::reads; r++) {
            cell_barrier();
            cell_chunk_stage<Part, C, C>(stage, [&](int t, int s) -> R {
                return cell_load<R>((const Part *)(from + record::p(r)) + t * C + s);
            });
            cell_barrier();
            rows_sum.add(stage.across(), cotangent[r], 0, C, [](int s, int t) { return s <= t; });
        }
        rows_sum.store(correction);
        if (g.corrections)
            rows_sum.each([&](int t, int v, R &sum_of) {
                if (first + v < x.values)
                    cell_store(g.corrections + (rows.first / C * x.values + first + v) * C + t, sum_of);
            });
    }

    // dS += A' b of keys k0 to k0 + slab
    __device__ __forceinline__ void add_slab(const matrix &b, int k0)
    {
        sum.add(
            stage.across(), b, 0, C, [&](int key, int) { return key >= k0 / 16 && key < (k0 + slab) / 16; },
            [](int, int) { return true; }, k0);
    }

    __device__ void decay()
    {
        const R *const d = (const R *)(from + record::d);
        if constexpr (M::decay == 3) // D', of dS_C as it was put down
            sum.each([&](int k, int v, R &s) {
                s = d[k % 2] * cell_load<R>(state.place(k / 2 * 2, v)) +
                    d[2 + k % 2] * cell_load<R>(state.place(k / 2 * 2 + 1, v));
            });
        else if constexpr (M::decay != 0)
            sum.each([&](int k, int, R &v) { v *= d[record::by_key ? k : 0]; });
    }

    __device__ void step(int64_t chunk)
    {
        rows = cell_chunk_rows_of(x, chunk);
        from = x.records + chunk * record::bytes;
        cell_barrier();
        sum.store(state);
        if (g.ends)
            sum.each([&](int k, int v, R &s) {
                if (k < x.keys && first + v < x.values)
                    cell_store(g.ends + (chunk * x.values + first + v) * x.keys + k, s);
            });
        for (int r = 0; r < M::reads; r++)
            cell_chunk_stage<Part, C, V>(cotangent[r], [&](int t, int v) -> R {
                return cell_chunk_load<M>(g.cotangent[r], rows, t, first + v, x.known_values());
            });
        cell_barrier();
        if constexpr (record::corrections != 0)
            correct();
        decay();
        for (int k0 = 0; k0 < K; k0 += slab) {
            if constexpr (record::corrections != 0) {
                stage_slab(record::w, record::by_key ? nullptr : &x.addition[0].weight.vector,
                           record::w_number, k0);
                add_slab(correction, k0);
            }
            for (int r = 0; r < M::reads; r++) {
                stage_slab(record::q(r), record::by_key ? nullptr : &x.read[r].vector, record::q_number(r),
                           k0);
                add_slab(cotangent[r], k0);
            }
        }
    }

    __device__ void walk()
    {
        sum.clear();
        if (x.alone)
            sum.each([&](int k, int v, R &s) { s = k == first + v ? 1 : 0; });
        const cell_chunk_state &end = g.last, &start = g.first;
        if (cell_chunk_there<M>(end))
            sum.each([&](int k, int v, R &s) {
                if (k < x.keys && first + v < x.values)
                    s = cell_chunk_state_load<M>(end, k, first + v);
            });
        for (int64_t chunk = cell_chunk_last(x); chunk-- > x.begin;)
            step(chunk);
        if (cell_chunk_there<M>(start))
            sum.each([&](int k, int v, R &s) {
                if (k < x.keys && first + v < x.values)
                    cell_chunk_leave<M>(start, k, first + v, s, g.adds);
            });
    }
};

// Where Real is float: cell_device_chunk_back_warps.cuh.
template <class M> struct cell_chunk_back_warps;
template <class M, bool Wide = sizeof(typename M::Real) == 8> struct cell_chunk_back_walker {
    static constexpr int threads = CELL_CHUNK_THREADS;
    __host__ __device__ static constexpr int64_t smem() { return cell_chunk_back_plain<M>::smem(); }
    __device__ __forceinline__ static void walk(const cell_chunk_backward<M> &g, int64_t first)
    {
        cell_chunk_back_plain<M>(g, first).walk();
    }
};
template <class M> struct cell_chunk_back_walker<M, false> {
    static constexpr int threads = cell_chunk_walk_threads<M>();
    __host__ __device__ static constexpr int64_t smem() { return cell_chunk_back_warps<M>::smem(); }
    __device__ __forceinline__ static void walk(const cell_chunk_backward<M> &g, int64_t first)
    {
        cell_chunk<M> backward = g.of;
        backward.from = g.last;
        backward.saved = g.ends;
        cell_chunk_back_warps<M>(g, backward, first).walk();
    }
};

// Grid: a block of cell_chunk_back_walker<M>::threads for each M::values values of each head of each
// sequence; cell_chunk_back_walker<M>::smem() bytes. first: the block's first value. Of `g` it needs `of`,
// cotangent, last, first, ends and corrections.
template <class M> __device__ void cell_chunk_walk_back(const cell_chunk_backward<M> &g, int64_t first)
{
    cell_chunk_back_walker<M>::walk(g, first);
}

#endif
