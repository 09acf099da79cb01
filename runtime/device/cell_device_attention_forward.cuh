// Attention forwards, and the products of y and its cotangent that backward takes.
//
// In: cell_attention. Out: y and L of each row, or, where a head's keys are split among blocks, the sums of
// each part, of which `combine` makes them. A block of 4 warps owns 64 rows, 16 of every 64 a warp's, and
// goes over tiles of keys: while one is multiplied the next is copied. The maximum of a softmax is the one so
// far: where it grows, sums are scaled.
#ifndef CELL_DEVICE_ATTENTION_FORWARD_CUH
#define CELL_DEVICE_ATTENTION_FORWARD_CUH

// The score of a pair in units of the exponential of base 2, or the weight.
template <class M>
__device__ __forceinline__ typename M::Real
cell_attention_score(const cell_attention<M> &x, typename M::Real dot, const cell_attention_pair &pair)
{
    typedef typename M::Real R;
    constexpr R unit = M::kind == CELL_ATTENTION_SOFTMAX ? (R)1.44269504088896340736 : (R)1;
    if constexpr (M::scaled)
        return dot * (x.scale * unit);
    else
        return M::score(x.uses, dot, pair) * unit;
}

// The larger one, of two numbers.
__device__ __forceinline__ float cell_attention_higher(float a, float b)
{
    return fmaxf(a, b);
}
__device__ __forceinline__ double cell_attention_higher(double a, double b)
{
    return fmax(a, b);
}

// Tiles of keys and values in shared memory, `stages` of them.
template <class M, int Kernel, int Values> struct cell_attention_key_stages {
    typedef typename M::Store S;
    typedef cell_attention_facts<M, Kernel> F;
    typedef cell_attention_matrix<S, F::others, M::keys, F::boxed> Keys;
    typedef cell_attention_matrix<S, F::others, Values, F::boxed> ValuesOf;
    // Threads that copy, and which of them this one is.
    static constexpr int threads = cell_attention_apart<F> ? F::copiers : F::threads;
    static __device__ __forceinline__ int thread()
    {
        const int number = cell_thread() - (F::threads - threads);
        return cell_attention_apart<F> ? cell_attention_opaque(number) : number;
    }
    cell_smem<S> keys, values;
    __device__ __forceinline__ explicit cell_attention_key_stages(unsigned char *&cursor)
        : keys(cell_carve<S>(cursor, F::stages * Keys::elements)),
          values(cell_carve<S>(cursor, F::stages * ValuesOf::elements))
    {
    }
    __device__ __forceinline__ Keys key(int stage) const
    {
        return { keys + stage * Keys::elements };
    }
    __device__ __forceinline__ ValuesOf value(int stage) const
    {
        return { values + stage * ValuesOf::elements };
    }

    __device__ __forceinline__ void fetch_keys(const cell_attention<M> &x, int segment, int j, int end,
                                               int stage) const
    {
        cell_attention_of_segment(x, segment, [&](const cell_attention_segment<M> &s) {
            cell_attention_fetch<M, threads>(key(stage), s.k, cell_attention_vectors<M>(s.k, x.keys),
                                             cell_attention_key_place<M>(s, s.k), j, end, 0, x.keys,
                                             thread());
        });
    }
    // Those from element `from` on.
    __device__ __forceinline__ void fetch_values(const cell_attention<M> &x, int segment, int j, int end,
                                                 int stage, int from) const
    {
        cell_attention_of_segment(x, segment, [&](const cell_attention_segment<M> &s) {
            cell_attention_fetch<M, threads>(value(stage), s.v, cell_attention_vectors<M>(s.v, x.values),
                                             cell_attention_key_place<M>(s, s.v), j, end, from, x.values,
                                             thread());
        });
    }
    __device__ __forceinline__ void fetch(const cell_attention<M> &x, int segment, int j, int end, int stage,
                                          int from) const
    {
        fetch_keys(x, segment, j, end, stage);
        fetch_values(x, segment, j, end, stage, from);
        cell_cp_async_commit();
    }
};

// Goes over the tiles of a cursor: body(stage) with the tile there, the next one on its way where there are
// two stages. Calls are made by all threads; skip: tiles that are left out, most: tiles that are taken.
template <class Cursor, class Stages, class M, class Body>
__device__ __forceinline__ void cell_attention_over(Cursor &cursor, const Stages &stages,
                                                    const cell_attention<M> &x, int from, int most, Body body)
{
    constexpr int count = Stages::F::stages;
    Cursor ahead = cursor;
    if (count >= 2 && ahead.there() && most > 0) {
        stages.fetch(x, ahead.segment, ahead.j, ahead.end, 0, from);
        ahead.next(x);
    }
    CELL_UNROLL_BY(1)
    for (int n = 0; n < most && cursor.there(); n++) {
        const int stage = count >= 2 ? n % 2 : 0;
        if (count >= 2) {
            cell_attention_arrived<typename Stages::F>();
            if (n + 1 < most && ahead.there()) {
                stages.fetch(x, ahead.segment, ahead.j, ahead.end, 1 - stage, from);
                ahead.next(x);
            }
        } else {
            cell_barrier();
            stages.fetch(x, cursor.segment, cursor.j, cursor.end, 0, from);
            cell_attention_arrived<typename Stages::F>();
        }
        body(stage);
        cursor.next(x);
    }
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// A warpgroup's 64 rows of those that a block owns from row `first` on, by their steps.
template <class M> struct cell_attention_group_of_rows {
    int i0, i1;
    bool any;
    __device__ __forceinline__ cell_attention_group_of_rows(const cell_attention<M> &x, int first)
    {
        const int rows = x.steps * x.group, begin = first + cell_shfl(cell_warp(), 0) / 4 * 64,
                  last = begin + 64 < rows ? begin + 64 : rows;
        any = begin < rows;
        i0 = begin / x.group, i1 = (last - 1) / x.group + 1;
    }
    // Has it pairs with the keys of a tile of `others`? all: are all pairs there?
    template <class Cursor>
    __device__ __forceinline__ bool takes(const cell_attention<M> &x, const Cursor &cursor, int others,
                                          bool &all) const
    {
        int j0 = cursor.j, j1 = j0 + others < cursor.end ? j0 + others : cursor.end;
        if (any)
            M::keys_of(x.uses, cursor.segment, i0, i1, j0, j1);
        all = any && j1 - j0 == others && M::all(x.uses, cursor.segment, i0, i1, j0, j1);
        return any && j0 < j1;
    }
};

// Copies the tiles of a cursor, at most `most`: keys one tile ahead of values.
template <class M, class F, class Stages, class Cursor>
__device__ __forceinline__ void cell_attention_bring(const cell_attention<M> &x, const Stages &stages,
                                                     const cell_attention_gates<F> &gates, Cursor cursor,
                                                     int most, int from)
{
    typedef cell_attention_gates<F> Gates;
    cell_attention_turn<F> key, value;
    cell_attention_under_way under_way;
    Cursor behind = cursor;
    CELL_UNROLL_BY(1)
    for (int n = 0; n <= most; n++) {
        const bool there = n < most && cursor.there();
        if (there) {
            under_way.wait(gates(Gates::KEY_FREE, key.stage), key.phase ^ 1);
            stages.fetch_keys(x, cursor.segment, cursor.j, cursor.end, key.stage);
            under_way.add(gates(Gates::KEY_FULL, key.stage));
            key.next();
        }
        if (n > 0) {
            under_way.wait(gates(Gates::VALUE_FREE, value.stage), value.phase ^ 1);
            stages.fetch_values(x, behind.segment, behind.j, behind.end, value.stage, from);
            under_way.add(gates(Gates::VALUE_FULL, value.stage));
            value.next();
        }
        if (!there)
            break;
        behind = cursor;
        cursor.next(x);
    }
    under_way.finish();
}
#endif

// The logarithm of the sum of a row's exponentials, in base 2 for backward, and as the caller has it.
template <class M, class R = typename M::Real>
__device__ __forceinline__ void cell_attention_put_log(const cell_attention<M> &x, int i, int r, R high,
                                                       R sum)
{
    if (x.lse)
        x.lse[i * x.lse_row + r * x.lse_head] = sum == (R)0 ? (R)CELL_INF : high + cell_attention_log(sum);
    if (x.log.at)
        cell_attention_put<M>(x.log, i * x.log.row + r * x.log.head,
                              sum == (R)0
                                  ? (R)-CELL_INF
                                  : (high + cell_attention_log(sum)) * (R)0.693147180559945309417);
}

template <class M, int Kernel> struct cell_attention_forward_rows {
    typedef typename M::Real R;
    typedef typename M::Store S;
    typedef cell_attention_facts<M, Kernel> F;
    static constexpr int tiles = F::others / 8;
    enum { SLACK = 8 }; // of the maximum: f16 has weights of 2^8, and their sums, as near as those of 1
    const cell_attention<M> &x;
    cell_attention_own own;
    R y[F::columns / 8][4];
    R high[2], sum[2],
        scale[2]; // the maximum so far; the thread's part of the sum; what y is to be scaled by

    __device__ __forceinline__ cell_attention_forward_rows(const cell_attention<M> &of, int first,
                                                           bool begins)
        : x(of), own(first, of.steps * of.group, of.group)
    {
        cell_attention_clear(y);
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            high[h] = (R)-CELL_INF;
            sum[h] = 0;
            if constexpr (M::sink)
                if (begins) {
                    high[h] = M::sink_score(x.uses, own.i[h], own.r[h]) * (R)1.44269504088896340736;
                    sum[h] = cell_lane() % 4 == 0 && high[h] > (R)-CELL_INF ? (R)1 : (R)0;
                }
        }
    }

    // Scores become weights; of a softmax less the maximum so far, which leaves NaN aside: its weight is NaN
    // anyway. All: all pairs are there, and the highest dot has the highest score where it is the score but
    // for the scale.
    template <bool All> __device__ __forceinline__ void weigh(R (&s)[tiles][4], int segment, int j, int end)
    {
        constexpr R log2e = (R)1.44269504088896340736;
        constexpr bool rising = M::scaled && All && F::softmax;
        const R unit = rising ? x.scale * log2e : (R)1;
        const auto score = [&](int h, int t) {
            R &v = s[t / 2][h * 2 + t % 2];
            const int at = j + t / 2 * 8 + cell_lane() % 4 * 2 + t % 2;
            const cell_attention_pair pair = { own.i[h], own.r[h], All || at < end ? at : end - 1, segment };
            const bool there = All || (at < end && M::there(x.uses, pair));
            v = cell_attention_score<M>(x, v, pair);
            v = there ? v : F::softmax ? (R)-CELL_INF : (R)0;
        };
        // A score that reads something of its key has it once for both rows.
        CELL_UNROLL
        for (int n = 0; n < tiles * 4 && !M::scaled; n++)
            score(n % 2, n / 2);
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            R top = (R)-CELL_INF;
            CELL_UNROLL
            for (int t = 0; t < tiles * 2; t++) {
                if (M::scaled && !rising)
                    score(h, t);
                if (F::softmax)
                    top = cell_attention_higher(top, s[t / 2][h * 2 + t % 2]);
            }
            if constexpr (F::softmax) {
                top = cell_attention_higher(top, cell_shfl_xor(top, 1));
                top = cell_attention_higher(top, cell_shfl_xor(top, 2));
                top = cell_attention_higher(high[h], top * unit);
                // Where it grows by little, weights are above 1, and sums stay as they are.
                scale[h] = 1;
                if (top - high[h] > (R)SLACK) {
                    scale[h] = cell_attention_power(high[h] - top);
                    high[h] = top;
                }
                const R base = high[h] == (R)-CELL_INF ? (R)0 : high[h];
                R total = 0;
                CELL_UNROLL
                for (int t = 0; t < tiles * 2; t++) {
                    R &v = s[t / 2][h * 2 + t % 2];
                    v = cell_attention_power(v * unit - base);
                    total += v;
                }
                sum[h] = sum[h] * scale[h] + total;
            }
        }
    }

    template <class Cursor> __device__ __forceinline__ void weigh(R (&s)[tiles][4], const Cursor &at)
    {
        weigh(s, at.all(x) && !(M::scaled && x.scale < (R)0), at);
    }
    template <class Cursor>
    __device__ __forceinline__ void weigh(R (&s)[tiles][4], bool all, const Cursor &at)
    {
        if (all)
            weigh<true>(s, at.segment, at.j, at.end);
        else
            weigh<false>(s, at.segment, at.j, at.end);
    }
    __device__ __forceinline__ void rescale()
    {
        if (F::softmax && cell_any(scale[0] != (R)1 || scale[1] != (R)1)) {
            CELL_UNROLL
            for (int t = 0; t < F::columns / 8 * 4; t++)
                y[t / 4][t % 4] *= scale[t % 4 / 2];
        }
    }

    template <class Queries, class Stages, class Cursor>
    __device__ __forceinline__ void add(const Queries &queries, const Stages &stages, int stage, int width,
                                        const Cursor &cursor)
    {
        R s[tiles][4];
        cell_attention_pairs<F, M::keys>(s, queries, stages.key(stage));
        cell_attention_commit<F>();
        cell_attention_wait<F, 0>();
        weigh(s, cursor);
        rescale();
        cell_attention_weighed<F>(y, s, stages.value(stage), 0, width);
        cell_attention_commit<F>();
        cell_attention_wait<F, 0>();
    }

    // The same for all tiles of a cursor, at most `most`: while the weights of one are multiplied by values,
    // those of the next are made. Keys are copied one tile ahead of values.
    template <class Queries, class Stages, class Cursor>
    __device__ __forceinline__ void add_all(const Queries &queries, const Stages &stages, int from, int width,
                                            Cursor cursor, int most)
    {
        if (most <= 0 || !cursor.there())
            return;
        R s[tiles][4], t[tiles][4];
        Cursor next = cursor, ahead;
        next.next(x);
        stages.fetch_keys(x, cursor.segment, cursor.j, cursor.end, 0);
        cell_cp_async_commit();
        cell_attention_arrived<F>();
        if (most > 1 && next.there())
            stages.fetch_keys(x, next.segment, next.j, next.end, 1);
        stages.fetch_values(x, cursor.segment, cursor.j, cursor.end, 0, from);
        cell_cp_async_commit();
        cell_attention_pairs<F, M::keys>(s, queries, stages.key(0));
        cell_attention_commit<F>();
        cell_attention_wait<F, 0>();
        weigh(s, cursor);
        int n = 0;
        CELL_UNROLL_BY(1)
        for (; n + 1 < most && next.there(); n++) {
            cell_attention_arrived<F>();
            ahead = next;
            ahead.next(x);
            if (n + 2 < most && ahead.there())
                stages.fetch_keys(x, ahead.segment, ahead.j, ahead.end, n % 2);
            stages.fetch_values(x, next.segment, next.j, next.end, 1 - n % 2, from);
            cell_cp_async_commit();
            cell_attention_pairs<F, M::keys>(t, queries, stages.key(1 - n % 2));
            cell_attention_commit<F>();
            cell_attention_weighed<F>(y, s, stages.value(n % 2), 0, width);
            cell_attention_commit<F>();
            cell_attention_wait<F, 1>();
            weigh(t, next);
            cell_attention_wait<F, 0>();
            rescale();
            CELL_UNROLL
            for (int i = 0; i < tiles * 4; i++)
                s[i / 4][i % 4] = t[i / 4][i % 4];
            next = ahead;
        }
        cell_attention_arrived<F>();
        cell_attention_weighed<F>(y, s, stages.value(n % 2), 0, width);
        cell_attention_commit<F>();
        cell_attention_wait<F, 0>();
    }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    // The same by warps for which others copy. A warpgroup leaves out tiles of which its own rows take no
    // pair.
    template <class Queries, class Stages, class Cursor>
    __device__ __forceinline__ void take_all(const Queries &queries, const Stages &stages,
                                             const cell_attention_gates<F> &gates, Cursor cursor, int most,
                                             int first)
    {
        typedef cell_attention_gates<F> Gates;
        const cell_attention_group_of_rows<M> group(x, first);
        typename cell_attention_fragments<S>::A weights[tiles / 2];
        cell_attention_turn<F> key, value;
        int left = most;
        bool all = false; // of the tile that is taken
        const auto take = [&] {
            const bool takes = group.takes(x, cursor, F::others, all);
            all = all && !(M::scaled && x.scale < (R)0);
            return takes;
        };
        const auto next = [&] {
            cursor.next(x);
            left--;
        };
        CELL_UNROLL_BY(1)
        while (left > 0 && cursor.there()) {
            const bool takes = take();
            gates(Gates::KEY_FULL, key.stage).wait(key.phase);
            if (!takes) {
                gates(Gates::KEY_FREE, key.stage).arrive();
                key.next();
                gates(Gates::VALUE_FULL, value.stage).wait(value.phase);
                gates(Gates::VALUE_FREE, value.stage).arrive();
                value.next();
                next();
                continue;
            }
            {
                R s[tiles][4];
                cell_attention_pairs<F, M::keys>(s, queries, stages.key(key.stage));
                cell_attention_commit<F>();
                cell_attention_wait<F, 0>();
                gates(Gates::KEY_FREE, key.stage).arrive();
                key.next();
                weigh(s, all, cursor);
                rescale();
                cell_attention_pack<S>(weights, s);
            }
            next();
            CELL_UNROLL_BY(1)
            while (left > 0 && cursor.there() && take()) {
                R s[tiles][4];
                gates(Gates::KEY_FULL, key.stage).wait(key.phase);
                cell_attention_pairs<F, M::keys>(s, queries, stages.key(key.stage));
                cell_attention_commit<F>();
                gates(Gates::VALUE_FULL, value.stage).wait(value.phase);
                cell_attention_weighed_by<S>(y, weights, stages.value(value.stage), 0);
                cell_attention_commit<F>();
                cell_attention_wait<F, 1>();
                gates(Gates::KEY_FREE, key.stage).arrive();
                key.next();
                weigh(s, all, cursor);
                cell_attention_wait<F, 0>();
                gates(Gates::VALUE_FREE, value.stage).arrive();
                value.next();
                rescale();
                cell_attention_pack<S>(weights, s);
                next();
            }
            gates(Gates::VALUE_FULL, value.stage).wait(value.phase);
            cell_attention_weighed_by<S>(y, weights, stages.value(value.stage), 0);
            cell_attention_commit<F>();
            cell_attention_wait<F, 0>();
            gates(Gates::VALUE_FREE, value.stage).arrive();
            value.next();
        }
    }
#endif

    // Sums of the row become y, or stay the sums of a part.
    __device__ __forceinline__ void finish(int part, bool split, int slab)
    {
        const int rows = x.steps * x.group, from = slab * F::columns;
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            const int row = own.row[h];
            if (F::softmax) {
                sum[h] = cell_attention_row_sum(sum[h]);
                const R by = split ? (R)1 : sum[h] == (R)0 ? (R)0 : (R)1 / sum[h];
                CELL_UNROLL
                for (int t = 0; t < F::columns / 8 * 2; t++)
                    y[t / 2][h * 2 + t % 2] *= by;
            }
            if (cell_lane() % 4 != 0 || row >= rows || slab > 0)
                continue;
            if (split) {
                R *const to = x.part_stats + ((int64_t)part * rows + row) * 2;
                to[0] = high[h], to[1] = sum[h];
            } else if (F::softmax) {
                cell_attention_put_log<M>(x, own.i[h], own.r[h], high[h], sum[h]);
            }
        }
        if (split) {
            const cell_attention_result to = {
                x.part_sums + (int64_t)part * rows * x.values, x.values, 0, 1, true, false
            };
            cell_attention_store<M>(to, y, own.row, rows, cell_attention_place_of_row{ x.values, 0, 1 }, from,
                                    x.values);
        } else {
            cell_attention_store<M>(x.out, y, own.row, rows, cell_attention_row_place(x.out, x.group), from,
                                    x.values);
            cell_attention_store<M>(x.kept, y, own.row, rows, cell_attention_row_place(x.kept, x.group), from,
                                    x.values);
        }
    }
};

// Blocks of a head, without parts: tiles of rows times slabs.
template <class M, int Kernel = CELL_ATTENTION_FORWARD>
__host__ __device__ constexpr int64_t cell_attention_forward_blocks(int64_t rows)
{
    typedef cell_attention_facts<M, Kernel> F;
    return cell_attention_tiles(rows, F::own) * F::slabs;
}

// Block `block` of a head; of the tiles of its keys, part `part` of `parts`, where more than one with
// x.part_sums and x.part_stats.
template <class M, int Kernel = CELL_ATTENTION_FORWARD>
__device__ __forceinline__ void cell_attention_forward(const cell_attention<M> &x, int64_t block,
                                                       int part = 0, int parts = 1)
{
    typedef cell_attention_facts<M, Kernel> F;
    typedef cell_attention_cursor<M, F::others> Cursor;
    const int rows = x.steps * x.group, slab = (int)(block % F::slabs), from = slab * F::columns;
    // The last rows may have most keys.
    const int first = (int)(cell_attention_tiles(rows, F::own) - 1 - block / F::slabs) * F::own;
    const int last = first + F::own < rows ? first + F::own : rows;

    unsigned char *memory = cell_attention_memory<F>();
    const cell_attention_key_stages<M, Kernel, F::columns> stages(memory);
    const cell_attention_owned<M, F, M::keys> owned(memory);
    const auto fetch = [&] {
        return owned.fetch(x.q, cell_attention_row_place(x.q, x.group), first, rows, x.keys);
    };

    Cursor cursor(x, first / x.group, (last - 1) / x.group + 1);
    int most = 0x7fffffff;
    if (parts > 1) {
        int all = 0;
        for (Cursor c = cursor; c.there(); c.next(x))
            all++;
        const int begin = (int)((int64_t)all * part / parts);
        most = (int)((int64_t)all * (part + 1) / parts) - begin;
        for (int i = 0; i < begin; i++)
            cursor.next(x);
    }
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    if constexpr (cell_attention_apart<F>) {
        cell_attention_by_ring<F>(
            memory,
            [&](const cell_attention_gates<F> &gates) {
                cell_attention_bring<M, F>(x, stages, gates, cursor, most, from);
            },
            [&](const cell_attention_gates<F> &gates) {
                const auto queries = fetch();
                cell_attention_own_arrived<F>();
                cell_attention_forward_rows<M, Kernel> mine(x, first, part == 0);
                mine.take_all(queries, stages, gates, cursor, most, first);
                mine.finish(part, parts > 1, slab);
            });
        return;
    }
#endif
    const auto queries = fetch();
    const bool multiplies = F::copiers == 0 || cell_warp() * 16 < F::own;
    cell_attention_forward_rows<M, Kernel> mine(x, first, part == 0);
    const int width = x.values - from < F::columns ? (int)(x.values - from) : F::columns;
    if constexpr (F::boxed && F::copiers == 0)
        mine.add_all(queries, stages, from, width, cursor, most);
    else
        cell_attention_over(cursor, stages, x, from, most, [&](int stage) {
            if (multiplies)
                mine.add(queries, stages, stage, width, cursor);
        });
    if (multiplies)
        mine.finish(part, parts > 1, slab);
}

// y and L of the parts of a head's rows, by all blocks of it: block `block` takes CELL_ATTENTION_DOTS_ROWS
// rows.
template <class M>
__device__ __forceinline__ void cell_attention_combine(const cell_attention<M> &x, int64_t block, int parts)
{
    typedef typename M::Real R;
    constexpr bool softmax = M::kind == CELL_ATTENTION_SOFTMAX;
    const int rows = x.steps * x.group, first = (int)block * CELL_ATTENTION_DOTS_ROWS;
    const int last = first + CELL_ATTENTION_DOTS_ROWS < rows ? first + CELL_ATTENTION_DOTS_ROWS : rows;
    const cell_attention_place_of_row out = cell_attention_row_place(x.out, x.group),
                                      kept = cell_attention_row_place(x.kept, x.group);
    for (int row = first + cell_warp(); row < last; row += CELL_ATTENTION_THREADS / 32) {
        R high = (R)-CELL_INF, sum = 0;
        for (int p = 0; softmax && p < parts; p++) {
            const R *const stats = x.part_stats + ((int64_t)p * rows + row) * 2;
            high = stats[0] > high || stats[0] != stats[0] ? stats[0] : high;
        }
        const R base = high == (R)-CELL_INF ? (R)0 : high;
        for (int p = 0; softmax && p < parts; p++) {
            const R *const stats = x.part_stats + ((int64_t)p * rows + row) * 2;
            sum += stats[1] * cell_attention_power(stats[0] - base);
        }
        for (int e = cell_lane(); e < x.values; e += 32) {
            R y = 0;
            for (int p = 0; p < parts; p++) {
                const R by =
                    softmax ? cell_attention_power(x.part_stats[((int64_t)p * rows + row) * 2] - base) : (R)1;
                const R v = x.part_sums[((int64_t)p * rows + row) * x.values + e];
                y += by == (R)0 ? (R)0 : by * v;
            }
            if (softmax)
                y = sum == (R)0 ? (R)0 : y / sum;
            if (x.out.at)
                cell_attention_put<M>(x.out, out(row) + e * x.out.element, y);
            if (x.kept.at)
                cell_attention_put<M>(x.kept, kept(row) + e * x.kept.element, y);
        }
        if (softmax && cell_lane() == 0)
            cell_attention_put_log<M>(x, row / x.group, row % x.group, high, sum);
    }
}

// D of CELL_ATTENTION_DOTS_ROWS rows; eight threads have a row.
template <class M>
__device__ __forceinline__ void cell_attention_dots(const cell_attention<M> &x, int64_t block)
{
    typedef typename M::Real R;
    typedef typename M::Store S;
    const int rows = x.steps * x.group;
    const cell_attention_place_of_row y = cell_attention_row_place(x.y, x.group),
                                      dy = cell_attention_row_place(x.dy, x.group);
    const bool vectors =
        cell_attention_vectors<M>(x.y, x.values) && cell_attention_vectors<M>(x.dy, x.values);
    for (int n = 0; n < CELL_ATTENTION_DOTS_ROWS; n += CELL_ATTENTION_THREADS / 8) {
        const int row = (int)block * CELL_ATTENTION_DOTS_ROWS + n + cell_thread() / 8;
        R sum = 0;
        if (row < rows && vectors) {
            constexpr int each = 16 / (int)sizeof(S);
            for (int e = cell_thread() % 8 * each; e < x.values; e += 8 * each) {
                R a[each], b[each];
                cell_load_vec<each>(a, (const S *)x.y.at + y(row) + e);
                cell_load_vec<each>(b, (const S *)x.dy.at + dy(row) + e);
                CELL_UNROLL
                for (int k = 0; k < each; k++)
                    sum += a[k] * b[k];
            }
        } else if (row < rows) {
            for (int e = cell_thread() % 8; e < x.values; e += 8)
                sum += cell_attention_load<M>(x.y, y(row) + e * x.y.element) *
                       cell_attention_load<M>(x.dy, dy(row) + e * x.dy.element);
        }
        sum += cell_shfl_xor(sum, 1);
        sum += cell_shfl_xor(sum, 2);
        sum += cell_shfl_xor(sum, 4);
        if (row < rows && cell_thread() % 8 == 0) {
            const int i = row / x.group, r = row % x.group;
            const int64_t at = i * x.d_lse.row + r * x.d_lse.head;
            x.dots[i * x.dots_row + r * x.dots_head] =
                sum - (x.d_lse.at ? cell_attention_load<M>(x.d_lse, at) : (R)0);
        }
    }
}

#endif
