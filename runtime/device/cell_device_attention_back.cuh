// Attention backwards: the gradients of queries, and of keys and values, by kernels that compute scores once
// more.
//
// In: cell_attention with L and D of each row. Out: dq, dk, dv, and sums of the gradients of what the score
// reads. Of rows, a block owns 64 and goes over keys; of keys, it owns 64 and goes over rows: so each
// gradient has one writer. Where a block's sums would not stand in its registers, several blocks (slabs) have
// the same rows and other columns.
#ifndef CELL_DEVICE_ATTENTION_BACK_CUH
#define CELL_DEVICE_ATTENTION_BACK_CUH

// The weight of a pair and the gradient of its dot, of the dot, the product of dy and v, and the row's L and
// D. Without x.scale where the score is that times dot.
template <class M>
__device__ __forceinline__ void
cell_attention_adjoint(const cell_attention<M> &x, typename M::Real &dot, typename M::Real &dv,
                       typename M::Real lse, typename M::Real dots, const cell_attention_pair &pair,
                       bool there, typename M::Real (&g)[cell_attention<M>::slots])
{
    typedef typename M::Real R;
    constexpr bool softmax = M::kind == CELL_ATTENTION_SOFTMAX;
    const R score = cell_attention_score<M>(x, dot, pair);
    const R weight = softmax ? cell_attention_power(score - lse) : score;
    R d = softmax ? weight * (dv - dots) : dv;
    if constexpr (!M::scaled)
        d = M::back(x.uses, dot, pair, d, g);
    dot = there ? weight : (R)0;
    dv = there ? d : (R)0;
    CELL_UNROLL
    for (int n = 0; n < M::terms; n++)
        g[n] = there ? g[n] : (R)0;
}

template <bool Value> struct cell_attention_always {
    static constexpr bool value = Value;
};

// ---- the gradient of queries ----

template <class M> __host__ __device__ constexpr int64_t cell_attention_back_rows_blocks(int64_t rows)
{
    typedef cell_attention_facts<M, CELL_ATTENTION_BACK_ROWS> F;
    return cell_attention_tiles(rows, F::own) * F::slabs;
}

// Adds the sums of a tile by distance to those of the block's rows: `tile` is [own][others + 1].
template <class M, class F>
__device__ __forceinline__ void cell_attention_add_distances(const cell_attention<M> &x, typename M::Real *to,
                                                             cell_smem<typename M::Real> tile, int first,
                                                             int rows, int j)
{
    typedef typename M::Real R;
    const int i0 = first / x.group, i1 = (rows - 1) / x.group; // the first and the last step
    for (int distance = i0 - (j + F::others - 1) + cell_thread(); distance <= i1 - j;
         distance += F::threads) {
        if (distance < 0 || distance >= x.distances)
            continue;
        R sum = to[distance];
        if (x.group == 1) {
            const int from = distance + j > first ? distance + j : first;
            const int end = distance + j + F::others < rows ? distance + j + F::others : rows;
            for (int row = from; row < end; row++)
                sum += tile[(row - first) * (F::others + 1) + row - distance - j];
        } else {
            for (int row = first; row < rows; row++) {
                const int column = row / x.group - distance - j;
                if (column >= 0 && column < F::others)
                    sum += tile[(row - first) * (F::others + 1) + column];
            }
        }
        to[distance] = sum;
    }
}

// Rows that a block owns, a warp's 16 of every 64: the gradient of queries, and of what the score reads of a
// row.
template <class M> struct cell_attention_back_of_rows {
    typedef typename M::Real R;
    typedef typename M::Store S;
    typedef cell_attention_facts<M, CELL_ATTENTION_BACK_ROWS> F;
    static constexpr int tiles = F::others / 8;
    typedef R Sums[tiles][4];
    const cell_attention<M> &x;
    cell_attention_own own;
    R dq[F::columns / 8][4], lse[2], dots[2], d_row[cell_attention<M>::slots][2];

    __device__ __forceinline__ cell_attention_back_of_rows(const cell_attention<M> &of, int first)
        : x(of), own(first, of.steps * of.group, of.group)
    {
        cell_attention_clear(dq);
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            lse[h] = F::softmax ? x.lse[own.i[h] * x.lse_row + own.r[h] * x.lse_head] : (R)0;
            dots[h] = F::softmax ? x.dots[own.i[h] * x.dots_row + own.r[h] * x.dots_head] : (R)0;
            CELL_UNROLL
            for (int t = 0; t < cell_attention<M>::slots; t++)
                d_row[t][h] = 0;
        }
    }

    // Products of dy and v become gradients of the dots in s. All: all pairs are there. distance: those of
    // terms by distance, where there are any.
    template <bool All, class Cursor>
    __device__ __forceinline__ void weigh(Sums &s, Sums &dv, const Cursor &cursor,
                                          Sums (&distance)[F::distances ? M::terms : 1])
    {
        CELL_UNROLL
        for (int n = 0; n < tiles * 4; n++) {
            const int t = n / 4, h = n % 4 / 2, at = cursor.j + t * 8 + cell_lane() % 4 * 2 + n % 2;
            const cell_attention_pair pair = { own.i[h], own.r[h],
                                               All || at < cursor.end ? at : cursor.end - 1, cursor.segment };
            const bool there = All || (at < cursor.end && M::there(x.uses, pair));
            R g[cell_attention<M>::slots] = {};
            cell_attention_adjoint<M>(x, s[t][n % 4], dv[t][n % 4], lse[h], dots[h], pair, there, g);
            CELL_UNROLL
            for (int k = 0; k < M::terms; k++) {
                if (M::term_kind(k) == CELL_ATTENTION_ROW)
                    d_row[k][h] += g[k];
                if constexpr (F::distances)
                    distance[k][t][n % 4] = g[k];
            }
        }
    }
    template <class Cursor>
    __device__ __forceinline__ void weigh(Sums &s, Sums &dv, bool all, const Cursor &cursor,
                                          Sums (&distance)[F::distances ? M::terms : 1])
    {
        if (all)
            weigh<true>(s, dv, cursor, distance);
        else
            weigh<false>(s, dv, cursor, distance);
    }

    // Sums by distance of a tile of block `tile`, whose rows are [first, last), by all threads.
    template <class Cursor>
    __device__ __forceinline__ void add_distances(const Sums (&distance)[F::distances ? M::terms : 1],
                                                  cell_smem<R> by_distance, const Cursor &cursor, int tile,
                                                  int first, int last)
    {
        CELL_UNROLL
        for (int k = 0; k < M::terms; k++) {
            if (M::term_kind(k) != CELL_ATTENTION_DISTANCE || cursor.segment > 1)
                continue;
            cell_barrier();
            CELL_UNROLL
            for (int n = 0; n < tiles * 4; n++) {
                const int row = own.row[n % 4 / 2];
                by_distance[(row - first) * (F::others + 1) + n / 4 * 8 + cell_lane() % 4 * 2 + n % 2] =
                    row < x.steps * x.group ? distance[k][n / 4][n % 4] : (R)0;
            }
            cell_barrier();
            cell_attention_add_distances<M, F>(x, x.d_distance[k] + (int64_t)tile * x.distances, by_distance,
                                               first, last, cursor.j);
        }
    }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    // Goes over all tiles of a cursor, by warps for which others copy. Each product is waited for in its
    // turn: the other warpgroups multiply meanwhile, and of a product that goes on over the loop's end ptxas
    // makes a chain (C7512) in some kernels.
    template <class Queries, class Cotangents, class Stages, class Cursor>
    __device__ __forceinline__ void take_all(const Queries &queries, const Cotangents &cotangents,
                                             const Stages &stages, const cell_attention_gates<F> &gates,
                                             Cursor cursor, int first)
    {
        typedef cell_attention_gates<F> Gates;
        const cell_attention_group_of_rows<M> group(x, first);
        typename cell_attention_fragments<S>::A weights[tiles / 2];
        cell_attention_turn<F> turn;
        CELL_UNROLL_BY(1)
        for (; cursor.there(); cursor.next(x), turn.next()) {
            bool all;
            const bool takes = group.takes(x, cursor, F::others, all);
            gates(Gates::KEY_FULL, turn.stage).wait(turn.phase);
            gates(Gates::VALUE_FULL, turn.stage).wait(turn.phase);
            if (!takes) {
                gates(Gates::KEY_FREE, turn.stage).arrive();
                gates(Gates::VALUE_FREE, turn.stage).arrive();
                continue;
            }
            Sums s, dv, none[1];
            cell_attention_pairs<F, M::keys>(s, queries, stages.key(turn.stage));
            cell_attention_pairs<F, M::values>(dv, cotangents, stages.value(turn.stage));
            cell_attention_commit<F>();
            cell_attention_wait<F, 0>();
            gates(Gates::VALUE_FREE, turn.stage).arrive();
            weigh(s, dv, all, cursor, none);
            cell_attention_pack<S>(weights, dv);
            cell_attention_weighed_by<S>(dq, weights, stages.key(turn.stage), 0);
            cell_attention_commit<F>();
            cell_attention_wait<F, 0>();
            gates(Gates::KEY_FREE, turn.stage).arrive();
        }
    }
#endif

    __device__ __forceinline__ void store(int from, int slab)
    {
        const int rows = x.steps * x.group;
        if (M::scaled) {
            CELL_UNROLL
            for (int n = 0; n < F::columns / 8 * 4; n++)
                dq[n / 4][n % 4] *= x.scale;
        }
        cell_attention_store<M>(x.dq, dq, own.row, rows, cell_attention_row_place(x.dq, x.group), from,
                                x.keys);
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            const int i = own.i[h], r = own.r[h];
            const bool stores = cell_lane() % 4 == 0 && own.row[h] < rows && slab == 0;
            CELL_UNROLL
            for (int k = 0; k < M::terms; k++) {
                if (M::term_kind(k) != CELL_ATTENTION_ROW)
                    continue;
                const R sum = cell_attention_row_sum(d_row[k][h]);
                if (stores && x.d_row[k].at)
                    cell_attention_put<M>(x.d_row[k], i * x.d_row[k].row + r * x.d_row[k].head, sum);
            }
            if constexpr (M::sink)
                if (stores && x.d_sink.at) {
                    const R score = M::sink_score(x.uses, i, r) * (R)1.44269504088896340736;
                    cell_attention_put<M>(x.d_sink, i * x.d_sink.row + r * x.d_sink.head,
                                          -cell_attention_power(score - lse[h]) * dots[h]);
                }
        }
    }
};

template <class M>
__device__ __forceinline__ void cell_attention_back_rows(const cell_attention<M> &x, int64_t block)
{
    typedef typename M::Real R;
    typedef cell_attention_back_of_rows<M> Mine;
    typedef typename Mine::F F;
    typedef cell_attention_cursor<M, F::others> Cursor;
    const int rows = x.steps * x.group, slab = (int)(block % F::slabs), from = slab * F::columns;
    const int tile = (int)(cell_attention_tiles(rows, F::own) - 1 - block / F::slabs), first = tile * F::own;
    const int last = first + F::own < rows ? first + F::own : rows;

    unsigned char *memory = cell_attention_memory<F>();
    const cell_attention_key_stages<M, CELL_ATTENTION_BACK_ROWS, M::values> stages(memory);
    const cell_attention_owned<M, F, M::keys> own_queries(memory);
    const cell_attention_owned<M, F, M::values> own_cotangents(memory);
    const cell_smem<R> by_distance = cell_carve<R>(memory, F::distances ? F::own * (F::others + 1) : 0);
    const auto fetch_queries = [&] {
        return own_queries.fetch(x.q, cell_attention_row_place(x.q, x.group), first, rows, x.keys);
    };
    const auto fetch_cotangents = [&] {
        return own_cotangents.fetch(x.dy, cell_attention_row_place(x.dy, x.group), first, rows, x.values);
    };
    if (F::distances && slab == 0)
        for (int n = 0; n < M::terms; n++)
            if (M::term_kind(n) == CELL_ATTENTION_DISTANCE)
                for (int e = cell_thread(); e < x.distances; e += F::threads)
                    x.d_distance[n][(int64_t)tile * x.distances + e] = 0;

    Cursor cursor(x, first / x.group, (last - 1) / x.group + 1);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    if constexpr (cell_attention_apart<F>) {
        cell_attention_by_ring<F>(
            memory,
            [&](const cell_attention_gates<F> &gates) {
                cell_attention_bring<M, F>(x, stages, gates, cursor, 0x7fffffff, 0);
            },
            [&](const cell_attention_gates<F> &gates) {
                const auto queries = fetch_queries();
                const auto cotangents = fetch_cotangents();
                cell_attention_own_arrived<F>();
                Mine mine(x, first);
                mine.take_all(queries, cotangents, stages, gates, cursor, first);
                mine.store(from, slab);
            });
        return;
    }
#endif
    const auto queries = fetch_queries();
    const auto cotangents = fetch_cotangents();
    const bool multiplies = F::copiers == 0 || cell_warp() * 16 < F::own;
    Mine mine(x, first);
    const int width = x.keys - from < F::columns ? (int)(x.keys - from) : F::columns;
    cell_attention_over(cursor, stages, x, 0, 0x7fffffff, [&](int stage) {
        if (!multiplies)
            return;
        typename Mine::Sums s, dv, distance[F::distances ? M::terms : 1];
        cell_attention_pairs<F, M::keys>(s, queries, stages.key(stage));
        cell_attention_pairs<F, M::values>(dv, cotangents, stages.value(stage));
        cell_attention_commit<F>();
        cell_attention_wait<F, 0>();
        mine.weigh(s, dv, cursor.all(x), cursor, distance);
        cell_attention_weighed<F>(mine.dq, dv, stages.key(stage), from, width);
        cell_attention_commit<F>();
        cell_attention_wait<F, 0>();
        if constexpr (F::distances)
            if (slab == 0)
                mine.add_distances(distance, by_distance, cursor, tile, first, last);
    });
    if (multiplies)
        mine.store(from, slab);
}

// ---- the gradients of keys and values ----

template <class M>
__host__ __device__ __forceinline__ int64_t cell_attention_back_keys_blocks(const cell_attention<M> &x)
{
    return (int64_t)cell_attention_key_tiles(x) * cell_attention_facts<M, CELL_ATTENTION_BACK_KEYS>::slabs;
}

// Tiles of the rows of steps [i0, i1), with L and D of each row: infinity and 0 behind the last one.
template <class M> struct cell_attention_row_stages {
    typedef typename M::Real R;
    typedef typename M::Store S;
    typedef cell_attention_facts<M, CELL_ATTENTION_BACK_KEYS> F;
    typedef cell_attention_matrix<S, F::others, M::keys, F::boxed> Queries;
    typedef cell_attention_matrix<S, F::others, M::values, F::boxed> Cotangents;
    // Threads that copy, and which of them this one is.
    static constexpr int threads = cell_attention_apart<F> ? F::copiers : F::threads;
    static __device__ __forceinline__ int thread()
    {
        const int number = cell_thread() - (F::threads - threads);
        return cell_attention_apart<F> ? cell_attention_opaque(number) : number;
    }
    cell_smem<S> queries, cotangents;
    cell_smem<R> stats;
    __device__ __forceinline__ Queries query(int stage) const
    {
        return { queries + stage * Queries::elements };
    }
    __device__ __forceinline__ Cotangents cotangent(int stage) const
    {
        return { cotangents + stage * Cotangents::elements };
    }
    __device__ __forceinline__ cell_smem<R> lse(int stage) const
    {
        return stats + stage * (F::others * 2);
    }
    __device__ __forceinline__ cell_smem<R> dots(int stage) const
    {
        return lse(stage) + F::others;
    }
    __device__ __forceinline__ void fetch_rows(const cell_attention<M> &x, int first, int end,
                                               int stage) const
    {
        const int copier = thread();
        cell_attention_fetch<M, threads>(query(stage), x.q, cell_attention_vectors<M>(x.q, x.keys),
                                         cell_attention_row_place(x.q, x.group), first, end, 0, x.keys,
                                         copier);
        cell_attention_fetch<M, threads>(cotangent(stage), x.dy, cell_attention_vectors<M>(x.dy, x.values),
                                         cell_attention_row_place(x.dy, x.group), first, end, 0, x.values,
                                         copier);
        if (F::softmax && copier < F::others) {
            const int row = first + copier, i = x.group == 1 ? row : row / x.group,
                      r = x.group == 1 ? 0 : row % x.group;
            if (row < end) {
                cell_cp_async<(int)sizeof(R)>(lse(stage) + copier, x.lse + (i * x.lse_row + r * x.lse_head));
                cell_cp_async<(int)sizeof(R)>(dots(stage) + copier,
                                              x.dots + (i * x.dots_row + r * x.dots_head));
            } else {
                lse(stage)[copier] = (R)CELL_INF;
                dots(stage)[copier] = (R)0;
            }
        }
    }
    __device__ __forceinline__ void fetch(const cell_attention<M> &x, int, int first, int end, int stage,
                                          int) const
    {
        fetch_rows(x, first, end, stage);
        cell_cp_async_commit();
    }
};

// Tiles of rows that may take the keys [j0, j1).
template <class M, int Others> struct cell_attention_row_cursor {
    int segment, j0, j1, j, end; // j, end: of rows
    __device__ __forceinline__ cell_attention_row_cursor(const cell_attention<M> &x, int which, int from,
                                                         int to)
        : segment(which), j0(from), j1(to)
    {
        int i0 = 0, i1 = x.steps;
        M::steps_of(x.uses, segment, j0, j1, i0, i1);
        j = i0 * x.group, end = i1 * x.group;
        settle(x);
    }
    __device__ __forceinline__ int first_step(int group) const
    {
        return group == 1 ? j : j / group;
    }
    __device__ __forceinline__ int end_step(int group) const
    {
        const int last = j + Others < end ? j + Others : end;
        return group == 1 ? last : (last - 1) / group + 1;
    }
    __device__ __forceinline__ bool there() const
    {
        return j < end;
    }
    __device__ __forceinline__ void next(const cell_attention<M> &x)
    {
        j += Others;
        settle(x);
    }
    // Of keys of which the block owns `own`.
    __device__ __forceinline__ bool all(const cell_attention<M> &x, int own) const
    {
        return j + Others <= end && j1 - j0 == own &&
               M::all(x.uses, segment, first_step(x.group), end_step(x.group), j0, j1);
    }

  private:
    __device__ __forceinline__ void settle(const cell_attention<M> &x)
    {
        while (j < end && M::none(x.uses, segment, first_step(x.group), end_step(x.group), j0, j1))
            j += Others;
    }
};

template <class M> struct cell_attention_back_of_keys {
    typedef typename M::Real R;
    typedef typename M::Store S;
    typedef cell_attention_facts<M, CELL_ATTENTION_BACK_KEYS> F;
    typedef cell_attention_row_cursor<M, F::others> Cursor;
    typedef cell_attention_row_stages<M> Stages;
    static constexpr int tiles = F::others / 8;
    // Columns of the slab: those of dv, then those of dk. Where there is one slab, each has its sums.
    static constexpr bool whole = F::slabs == 1;
    R sums[F::columns / 8][4], d_column[cell_attention<M>::slots][2];
    int key[2];

    __device__ __forceinline__ void run(const cell_attention<M> &x, const cell_attention_segment<M> &s,
                                        int segment, int first, int slab)
    {
        const int last = first + F::own < s.end ? first + F::own : s.end, from = slab * F::columns;
        unsigned char *memory = cell_attention_memory<F>();
        const cell_smem<S> queries = cell_carve<S>(memory, F::stages * Stages::Queries::elements);
        const cell_smem<S> cotangents = cell_carve<S>(memory, F::stages * Stages::Cotangents::elements);
        const cell_attention_owned<M, F, M::keys> own_keys(memory);
        const cell_attention_owned<M, F, M::values> own_values(memory);
        const Stages stages = { queries, cotangents, cell_carve<R>(memory, F::stages * F::others * 2) };
        const auto fetch_keys = [&] {
            return own_keys.fetch(s.k, cell_attention_key_place<M>(s, s.k), first, s.end, x.keys);
        };
        const auto fetch_values = [&] {
            return own_values.fetch(s.v, cell_attention_key_place<M>(s, s.v), first, s.end, x.values);
        };
        Cursor cursor(x, segment, first, last);
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
        if constexpr (cell_attention_apart<F>) {
            cell_attention_by_ring<F>(
                memory, [&](const cell_attention_gates<F> &gates) { bring(x, stages, gates, cursor); },
                [&](const cell_attention_gates<F> &gates) {
                    const auto keys = fetch_keys();
                    const auto values = fetch_values();
                    cell_attention_own_arrived<F>();
                    clear(first);
                    take_all(x, s, keys, values, stages, gates, cursor, first);
                    store(x, s, from, slab);
                });
            return;
        }
#endif
        const auto keys = fetch_keys();
        const auto values = fetch_values();
        const bool multiplies = F::copiers == 0 || cell_warp() * 16 < F::own;
        clear(first);
        cell_attention_over(cursor, stages, x, 0, 0x7fffffff, [&](int stage) {
            if (!multiplies)
                return;
            R w[tiles][4], dv[tiles][4];
            cell_attention_pairs<F, M::keys>(w, keys, stages.query(stage));
            cell_attention_pairs<F, M::values>(dv, values, stages.cotangent(stage));
            cell_attention_commit<F>();
            cell_attention_wait<F, 0>();
            weigh(x, s, cursor, stages, stage, w, dv, cursor.all(x, F::own));
            if constexpr (whole) {
                add<0, M::values>(w, stages.cotangent(stage));
                add<M::values, M::keys>(dv, stages.query(stage));
            } else {
                add_slab(w, dv, stages, stage, from);
            }
            cell_attention_commit<F>();
            cell_attention_wait<F, 0>();
        });
        if (multiplies)
            store(x, s, from, slab);
    }

  private:
    __device__ __forceinline__ void clear(int first)
    {
        cell_attention_clear(sums);
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            key[h] = first + cell_warp() * 16 + h * 8 + cell_lane() / 4;
            CELL_UNROLL
            for (int k = 0; k < cell_attention<M>::slots; k++)
                d_column[k][h] = 0;
        }
    }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    // Copies the tiles of a cursor.
    static __device__ __forceinline__ void bring(const cell_attention<M> &x, const Stages &stages,
                                                 const cell_attention_gates<F> &gates, Cursor cursor)
    {
        typedef cell_attention_gates<F> Gates;
        cell_attention_turn<F> turn;
        cell_attention_under_way under_way;
        CELL_UNROLL_BY(1)
        for (; cursor.there(); cursor.next(x), turn.next()) {
            under_way.wait(gates(Gates::KEY_FREE, turn.stage), turn.phase ^ 1);
            stages.fetch_rows(x, cursor.j, cursor.end, turn.stage);
            under_way.add(gates(Gates::KEY_FULL, turn.stage));
        }
        under_way.finish();
    }
    // Goes over all of them, by warps for which others copy. A warpgroup leaves out tiles whose rows take
    // none of its 64 keys.
    template <class Keys, class Values>
    __device__ __forceinline__ void take_all(const cell_attention<M> &x, const cell_attention_segment<M> &s,
                                             const Keys &keys, const Values &values, const Stages &stages,
                                             const cell_attention_gates<F> &gates, Cursor cursor, int first)
    {
        typedef cell_attention_gates<F> Gates;
        const int begin = first + cell_shfl(cell_warp(), 0) / 4 * 64,
                  last = begin + 64 < s.end ? begin + 64 : s.end;
        cell_attention_turn<F> turn;
        CELL_UNROLL_BY(1)
        for (; cursor.there(); cursor.next(x), turn.next()) {
            const int i0 = cursor.first_step(x.group), i1 = cursor.end_step(x.group);
            int least = i0, most = i1;
            if (begin < last)
                M::steps_of(x.uses, cursor.segment, begin, last, least, most);
            const bool takes = begin < last && least < most,
                       all = takes && last - begin == 64 && cursor.j + F::others <= cursor.end &&
                             M::all(x.uses, cursor.segment, i0, i1, begin, last);
            gates(Gates::KEY_FULL, turn.stage).wait(turn.phase);
            if (takes) {
                R w[tiles][4], dv[tiles][4];
                cell_attention_pairs<F, M::keys>(w, keys, stages.query(turn.stage));
                cell_attention_pairs<F, M::values>(dv, values, stages.cotangent(turn.stage));
                cell_attention_commit<F>();
                cell_attention_wait<F, 0>();
                weigh(x, s, cursor, stages, turn.stage, w, dv, all);
                add<0, M::values>(w, stages.cotangent(turn.stage));
                add<M::values, M::keys>(dv, stages.query(turn.stage));
                cell_attention_commit<F>();
                cell_attention_wait<F, 0>();
            }
            gates(Gates::KEY_FREE, turn.stage).arrive();
        }
    }
#endif

    // Dots become weights, and products of dy and v the gradients of dots. All: all pairs are there.
    template <bool All>
    __device__ __forceinline__ void weigh(const cell_attention<M> &x, const cell_attention_segment<M> &s,
                                          const Cursor &cursor, const Stages &stages, int stage,
                                          R (&w)[tiles][4], R (&dv)[tiles][4])
    {
        R lse_of[2] = {}, dots_of[2] = {};
        CELL_UNROLL
        for (int n = 0; n < tiles * 2; n++) {
            const int column = n / 2 * 8 + cell_lane() % 4 * 2 + n % 2, row = cursor.j + column;
            const int safe = All || row < cursor.end ? row : cursor.end - 1;
            if (F::softmax && n % 2 == 0) {
                cell_load_vec<2>(lse_of, stages.lse(stage) + column);
                cell_load_vec<2>(dots_of, stages.dots(stage) + column);
            }
            const R lse = lse_of[n % 2], dots = dots_of[n % 2];
            cell_attention_pair pair = { x.group == 1 ? safe : safe / x.group,
                                         x.group == 1 ? 0 : safe % x.group, 0, cursor.segment };
            CELL_UNROLL
            for (int h = 0; h < 2; h++) {
                pair.j = All || key[h] < s.end ? key[h] : s.end - 1;
                const bool there = All || (row < cursor.end && key[h] < s.end && M::there(x.uses, pair));
                R g[cell_attention<M>::slots] = {};
                cell_attention_adjoint<M>(x, w[n / 2][h * 2 + n % 2], dv[n / 2][h * 2 + n % 2], lse, dots,
                                          pair, there, g);
                CELL_UNROLL
                for (int k = 0; k < M::terms; k++)
                    if (M::term_kind(k) == CELL_ATTENTION_COLUMN)
                        d_column[k][h] += g[k];
            }
        }
    }
    __device__ __forceinline__ void weigh(const cell_attention<M> &x, const cell_attention_segment<M> &s,
                                          const Cursor &cursor, const Stages &stages, int stage,
                                          R (&w)[tiles][4], R (&dv)[tiles][4], bool all)
    {
        if (all)
            weigh<true>(x, s, cursor, stages, stage, w, dv);
        else
            weigh<false>(x, s, cursor, stages, stage, w, dv);
    }
    // Columns [From, From + Columns) of the sums.
    template <int From, int Columns, class Matrix>
    __device__ __forceinline__ void add(const R (&weights)[tiles][4], const Matrix &right)
    {
        cell_attention_weighed<F>(*reinterpret_cast<R(*)[Columns / 8][4]>(&sums[From / 8]), weights, right, 0,
                                  Columns);
    }
    __device__ __forceinline__ void add_slab(const R (&w)[tiles][4], const R (&dv)[tiles][4],
                                             const Stages &stages, int stage, int from)
    {
        CELL_UNROLL
        for (int n = 0; n < F::columns; n += 16) {
            R(&part)[2][4] = *reinterpret_cast<R(*)[2][4]>(&sums[n / 8]);
            if (from + n < M::values)
                cell_attention_weighed<F>(part, w, stages.cotangent(stage), from + n, 16);
            else if (from + n < M::values + M::keys)
                cell_attention_weighed<F>(part, dv, stages.query(stage), from + n - M::values, 16);
        }
    }
    __device__ __forceinline__ void add_more(const cell_attention_more &more, R (&part)[2][4], int from,
                                             int64_t extent)
    {
        if (!more.from.at)
            return;
        CELL_UNROLL
        for (int n = 0; n < 8; n++) {
            const int j = key[n % 4 / 2], column = from + n / 4 * 8 + cell_lane() % 4 * 2 + n % 2;
            if (j >= more.begin && j < more.end && column < extent)
                part[n / 4][n % 4] +=
                    cell_attention_load<M>(more.from, j * more.from.row + column * more.from.element);
        }
    }
    __device__ __forceinline__ void store(const cell_attention<M> &x, const cell_attention_segment<M> &s,
                                          int from, int slab)
    {
        store_sums(x, s, from);
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            CELL_UNROLL
            for (int k = 0; k < M::terms; k++) {
                if (M::term_kind(k) != CELL_ATTENTION_COLUMN)
                    continue;
                const R sum = cell_attention_row_sum(d_column[k][h]);
                if (s.d_column[k].at && cell_lane() % 4 == 0 && key[h] < s.end && slab == 0)
                    cell_attention_put<M>(s.d_column[k], key[h] * s.d_column[k].row, sum);
            }
        }
    }
    __device__ __forceinline__ void store_sums(const cell_attention<M> &x, const cell_attention_segment<M> &s,
                                               int from)
    {
        CELL_UNROLL
        for (int n = 0; n < F::columns; n += 16) {
            const bool is_value = from + n < M::values;
            const R by = M::scaled && !is_value ? x.scale : (R)1;
            R part[2][4];
            CELL_UNROLL
            for (int i = 0; i < 8; i++)
                part[i / 4][i % 4] = sums[n / 8 + i / 4][i % 4] * by;
            const cell_attention_result &to = is_value ? s.dv : s.dk;
            const int column = is_value ? from + n : from + n - M::values;
            add_more(is_value ? s.more_v : s.more_k, part, column, is_value ? x.values : x.keys);
            cell_attention_store<M>(to, part, key, s.end, cell_attention_place_of_row{ to.row, 0, 1 }, column,
                                    is_value ? x.values : x.keys);
        }
    }
};

// Block `block` of cell_attention_back_keys_blocks(x).
template <class M>
__device__ __forceinline__ void cell_attention_back_keys(const cell_attention<M> &x, int64_t block)
{
    typedef cell_attention_facts<M, CELL_ATTENTION_BACK_KEYS> F;
    int tile = (int)(block / F::slabs);
    bool done = false;
    CELL_UNROLL
    for (int n = 0; n < M::segments; n++) {
        const cell_attention_segment<M> &s = x.segment[n];
        const int tiles = (s.end - s.begin + F::own - 1) / F::own;
        if (!done && tile < tiles) {
            cell_attention_back_of_keys<M> mine;
            mine.run(x, s, n, s.begin + tile * F::own, (int)(block % F::slabs));
            done = true;
        }
        tile -= tiles;
    }
}

#endif
