// Few heads and many steps: the chunks of a linear recurrence in segments that are walked side by side.
//
// Over the chunks of segment i a walk makes of the state S in front of it A_i S + B_i. `pass` makes all B_i
// at once, from S = 0, and, where a correction makes A_i a matrix, A_i, from the identity; else A_i is the
// product of the chunks' decays, which are in their records. `join` makes the states in front of all segments,
// one behind the other. Then the walks of the segments begin with these, at once.
//
// Backwards the same holds of the adjoint: what `pass` makes of dS behind the segment is A_i' dS + B_i, and
// `join` takes the segments in the other order.
//
// States between the kernels are of Real, element (k, v) at k * values + v, and of A_i at k * keys + v.
#ifndef CELL_DEVICE_CHUNK_SEGMENTS_CUH
#define CELL_DEVICE_CHUNK_SEGMENTS_CUH

// Blocks that a GPU has room for at once, and chunks of a segment at least. Below `FEWEST` segments `pass`
// takes what they save.
enum {
    CELL_CHUNK_BLOCKS = 132,
    CELL_CHUNK_SEGMENT = 8,
    CELL_CHUNK_FEWEST = 4,
    CELL_CHUNK_JOINED = 8,
    CELL_CHUNK_JOIN_THREADS = 256
};

// Of `blocks` walks over `chunks` chunks. Where reads are apart, a multiprocessor has two of them.
template <class M> __host__ __device__ constexpr int64_t cell_chunk_segments(int64_t blocks, int64_t chunks)
{
    const int64_t long_enough = chunks / CELL_CHUNK_SEGMENT,
                  most = CELL_CHUNK_BLOCKS * (1 + cell_chunk_apart<M>()),
                  fit = most / (blocks > 1 ? blocks : 1),
                  n = long_enough < fit ? long_enough : fit;
    return n < CELL_CHUNK_FEWEST ? 1 : n;
}

// Segment i of n; all of them have chunks where n is what cell_chunk_segments says.
template <class M> __device__ __forceinline__ void cell_chunk_cut(cell_chunk<M> &x, int64_t i, int64_t n)
{
    const int64_t chunks = cell_chunk_count(x.steps, M::rows);
    x.begin = chunks * i / n, x.end = chunks * (i + 1) / n;
}

// Where `pass` leaves a segment's B, or `alone` its A, and where its walk begins.
template <class M>
__device__ __forceinline__ cell_chunk_state cell_chunk_between(typename M::Real *p, int64_t i, int64_t keys,
                                                               int64_t values)
{
    return { p + i * keys * values, values, 1, true, false, nullptr };
}

// A segment's walk without o and saved states; block: of values, or behind them of A's columns.
template <class M>
__device__ void cell_chunk_pass(cell_chunk<M> x, int64_t i, int64_t n, int64_t block, typename M::Real *sums,
                                typename M::Real *factors)
{
    const int64_t blocks = (x.values + M::values - 1) / M::values;
    cell_chunk_cut(x, i, n);
    CELL_UNROLL
    for (int r = 0; r < M::reads; r++)
        x.result[r].at = nullptr;
    x.saved = nullptr;
    x.from = {};
    x.alone = block >= blocks;
    x.to = cell_chunk_between<M>(x.alone ? factors : sums, i, x.keys, x.alone ? x.keys : x.values);
    x.values = x.alone ? x.keys : x.values;
    cell_chunk_walk<M>(x, (x.alone ? block - blocks : block) * M::values);
}
template <class M>
__device__ void cell_chunk_pass_back(cell_chunk_backward<M> g, int64_t i, int64_t n, int64_t block,
                                     typename M::Real *sums, typename M::Real *factors)
{
    cell_chunk<M> &x = g.of;
    const int64_t blocks = (x.values + M::values - 1) / M::values;
    cell_chunk_cut(x, i, n);
    g.ends = g.corrections = nullptr;
    g.last = {};
    g.adds = false;
    x.alone = block >= blocks;
    g.first = cell_chunk_between<M>(x.alone ? factors : sums, i, x.keys, x.alone ? x.keys : x.values);
    x.values = x.alone ? x.keys : x.values;
    cell_chunk_walk_back<M>(g, (x.alone ? block - blocks : block) * M::values);
}

// The segment's own walk, from where `join` has left its first state; only the last one's leaves a state.
template <class M>
__device__ __forceinline__ void cell_chunk_begin(cell_chunk<M> &x, int64_t i, int64_t n,
                                                 typename M::Real *states)
{
    if (n == 1)
        return;
    cell_chunk_cut(x, i, n);
    x.from = cell_chunk_between<M>(states, i, x.keys, x.values);
    if (i < n - 1)
        x.to = {};
}
template <class M>
__device__ __forceinline__ void cell_chunk_begin_back(cell_chunk_backward<M> &g, int64_t i, int64_t n,
                                                      typename M::Real *states)
{
    if (n == 1)
        return;
    cell_chunk_cut(g.of, i, n);
    g.last = cell_chunk_between<M>(states, i, g.of.keys, g.of.values);
    if (i > 0)
        g.first = {};
}

// The states in front of all segments, of a block of CELL_CHUNK_JOINED values from `first` on, in place of
// `sums`.
template <class M> struct cell_chunk_joiner {
    typedef typename M::Real R;
    static constexpr int V = CELL_CHUNK_JOINED, threads = CELL_CHUNK_JOIN_THREADS,
                         each = (M::keys * V + threads - 1) / threads; // elements of a thread

    __host__ __device__ static constexpr int64_t smem()
    {
        return cell_carve_bytes<R>(M::keys * V) + cell_carve_bytes<R>(M::keys);
    }

    const cell_chunk<M> &x;
    const int64_t first;
    cell_smem<R> state, decay; // [keys][V], [keys]

    __device__ __forceinline__ cell_chunk_joiner(const cell_chunk<M> &of, int64_t first_value)
        : x(of), first(first_value)
    {
        auto cursor = cell_shared();
        state = cell_carve<R>(cursor, M::keys * V);
        decay = cell_carve<R>(cursor, M::keys);
    }

    // Of a state that the call gave, zeros where it is not there.
    __device__ void load(const cell_chunk_state &s)
    {
        for (int n = cell_thread(); n < M::keys * V; n += threads) {
            const int64_t k = n / V, v = first + n % V;
            state[n] = k < x.keys && v < x.values ? cell_chunk_state_load<M>(s, k, v) : (R)0;
        }
    }

    // The product of a segment's decays; of two states a matrix, which is made by one thread.
    __device__ void multiply_decays(int64_t i, int64_t n)
    {
        const int64_t chunks = cell_chunk_count(x.steps, M::rows), begin = chunks * i / n,
                      all = cell_chunk_count(x.length, M::rows),
                      end = chunks * (i + 1) / n < all ? chunks * (i + 1) / n : all;
        auto of = [&](int64_t c) {
            return (const R *)(x.records + c * cell_chunk_record<M>::bytes + cell_chunk_record<M>::d);
        };
        if constexpr (M::decay == 3) {
            R run[4] = {1, 0, 0, 1};
            for (int64_t c = begin; cell_thread() == 0 && c < end; c++) {
                const R *const d = of(c);
                const R next[4] = {d[0] * run[0] + d[1] * run[2], d[0] * run[1] + d[1] * run[3],
                                   d[2] * run[0] + d[3] * run[2], d[2] * run[1] + d[3] * run[3]};
                for (int k = 0; k < 4; k++)
                    run[k] = next[k];
            }
            for (int k = 0; cell_thread() == 0 && k < 4; k++)
                decay[k] = run[k];
        } else {
            for (int k = cell_thread(); k < M::keys; k += threads) {
                R run = 1;
                if constexpr (M::decay != 0)
                    for (int64_t c = begin; c < end; c++)
                        run *= of(c)[M::decay == 2 ? k : 0];
                decay[k] = run;
            }
        }
        cell_barrier();
    }

    // An element of A state, or backwards of A' state, where A is what multiply_decays has made.
    template <bool Back> __device__ __forceinline__ R decayed(int job) const
    {
        const int k = job / V;
        if constexpr (M::decay == 3) {
            const int i = k % 2, first = job - i * V;
            return decay[Back ? i : i * 2] * state[first] + decay[Back ? i + 2 : i * 2 + 1] * state[first + V];
        } else {
            return (R)decay[k] * (R)state[job];
        }
    }

    // state = A state + B of the segment, in whose place it has stood before.
    template <bool Back> __device__ void step(int64_t i, int64_t n, R *sums, const R *factors)
    {
        const cell_chunk_state to = cell_chunk_between<M>(sums, i, x.keys, x.values);
        static_assert(threads % V == 0, "a thread's elements are of one value");
        R sum[each];
        const R *row[each]; // of A, one for each element
        if constexpr (M::corrected == 0)
            multiply_decays(i, n);
        CELL_UNROLL
        for (int e = 0; e < each; e++) {
            const int job = cell_thread() + e * threads, k = job / V;
            const int64_t v = first + job % V;
            sum[e] = 0;
            row[e] = factors + i * x.keys * x.keys;
            if (k >= x.keys || v >= x.values)
                continue;
            R *const at = (R *)to.at + k * to.key + v;
            sum[e] = *at;
            *at = state[job];
            row[e] += k * x.keys;
            if constexpr (M::corrected == 0)
                sum[e] += decayed<Back>(job);
        }
        CELL_UNROLL_BY(8)
        for (int j = 0; j < (M::corrected ? (int)x.keys : 0); j++) {
            CELL_UNROLL
            for (int e = 0; e < each; e++)
                sum[e] += row[e][j] * (R)state[j * V + cell_thread() % V];
        }
        cell_barrier();
        CELL_UNROLL
        for (int e = 0; e < each; e++)
            if (cell_thread() + e * threads < M::keys * V)
                state[cell_thread() + e * threads] = sum[e];
        cell_barrier();
    }
};

// Grids. Of pass: a block of the walk's threads and memory for each cell_chunk_pass_blocks of each segment of
// each head of each sequence. Of join: one of CELL_CHUNK_JOIN_THREADS for each CELL_CHUNK_JOINED values of each
// head; cell_chunk_joiner<M>::smem() bytes.
template <class M> __host__ __device__ constexpr int64_t cell_chunk_pass_blocks(int64_t keys, int64_t values)
{
    return (values + M::values - 1) / M::values + (M::corrected ? (keys + M::values - 1) / M::values : 0);
}
template <class M>
__device__ void cell_chunk_join(const cell_chunk<M> &x, int64_t n, int64_t block, typename M::Real *sums,
                                const typename M::Real *factors)
{
    cell_chunk_joiner<M> join(x, block * CELL_CHUNK_JOINED);
    join.load(x.from);
    cell_barrier();
    for (int64_t i = 0; i < n; i++)
        join.template step<false>(i, n, sums, factors);
}
template <class M>
__device__ void cell_chunk_join_back(const cell_chunk_backward<M> &g, int64_t n, int64_t block,
                                     typename M::Real *sums, const typename M::Real *factors)
{
    cell_chunk_joiner<M> join(g.of, block * CELL_CHUNK_JOINED);
    join.load(g.last);
    cell_barrier();
    for (int64_t i = n - 1; i >= 0; i--)
        join.template step<true>(i, n, sums, factors);
}

#endif
