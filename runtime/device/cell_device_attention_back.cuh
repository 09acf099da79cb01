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

template <class M>
__device__ __forceinline__ void cell_attention_back_rows(const cell_attention<M> &x, int64_t block)
{
    typedef typename M::Real R;
    typedef cell_attention_facts<M, CELL_ATTENTION_BACK_ROWS> F;
    typedef cell_attention_cursor<M, F::others> Cursor;
    constexpr int tiles = F::others / 8;
    const int rows = x.steps * x.group, slab = (int)(block % F::slabs), from = slab * F::columns;
    const int tile = (int)(cell_attention_tiles(rows, F::own) - 1 - block / F::slabs), first = tile * F::own;
    const int last = first + F::own < rows ? first + F::own : rows;

    unsigned char *memory = cell_attention_memory<F>();
    const cell_attention_key_stages<M, CELL_ATTENTION_BACK_ROWS, M::values> stages(memory);
    const cell_attention_owned<M, F, M::keys> own_queries(memory);
    const cell_attention_owned<M, F, M::values> own_cotangents(memory);
    const cell_smem<R> by_distance = cell_carve<R>(memory, F::distances ? F::own * (F::others + 1) : 0);
    const auto queries = own_queries.fetch(x.q, cell_attention_row_place(x.q, x.group), first, rows, x.keys);
    const auto cotangents =
        own_cotangents.fetch(x.dy, cell_attention_row_place(x.dy, x.group), first, rows, x.values);
    if (F::distances && slab == 0)
        for (int n = 0; n < M::terms; n++)
            if (M::term_kind(n) == CELL_ATTENTION_DISTANCE)
                for (int e = cell_thread(); e < x.distances; e += F::threads)
                    x.d_distance[n][(int64_t)tile * x.distances + e] = 0;

    const cell_attention_own own(first, rows, x.group);
    R dq[F::columns / 8][4], lse[2], dots[2], d_row[cell_attention<M>::slots][2];
    cell_attention_clear(dq);
    CELL_UNROLL
    for (int h = 0; h < 2; h++) {
        lse[h] = F::softmax ? x.lse[own.i[h] * x.lse_row + own.r[h] * x.lse_head] : (R)0;
        dots[h] = F::softmax ? x.dots[own.i[h] * x.dots_row + own.r[h] * x.dots_head] : (R)0;
        CELL_UNROLL
        for (int t = 0; t < cell_attention<M>::slots; t++)
            d_row[t][h] = 0;
    }

    Cursor cursor(x, first / x.group, (last - 1) / x.group + 1);
    const int width = x.keys - from < F::columns ? (int)(x.keys - from) : F::columns;
    cell_attention_over(cursor, stages, x, 0, 0x7fffffff, [&](int stage) {
        R s[tiles][4], dv[tiles][4];
        cell_attention_pairs<F, M::keys>(s, queries, stages.key(stage));
        cell_attention_pairs<F, M::values>(dv, cotangents, stages.value(stage));
        cell_attention_commit<F>();
        cell_attention_wait<F, 0>();
        R distance[F::distances ? M::terms : 1][tiles][4];
        const auto weigh = [&](auto always) {
            constexpr bool All = decltype(always)::value;
            CELL_UNROLL
            for (int n = 0; n < tiles * 4; n++) {
                const int t = n / 4, h = n % 4 / 2, at = cursor.j + t * 8 + cell_lane() % 4 * 2 + n % 2;
                const cell_attention_pair pair = { own.i[h], own.r[h],
                                                   All || at < cursor.end ? at : cursor.end - 1,
                                                   cursor.segment };
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
        };
        if (cursor.all(x))
            weigh(cell_attention_always<true>());
        else
            weigh(cell_attention_always<false>());
        cell_attention_weighed<F>(dq, dv, stages.key(stage), from, width);
        cell_attention_commit<F>();
        cell_attention_wait<F, 0>();
        if constexpr (F::distances) {
            CELL_UNROLL
            for (int k = 0; k < M::terms; k++) {
                if (M::term_kind(k) != CELL_ATTENTION_DISTANCE || slab > 0 || cursor.segment > 1)
                    continue;
                cell_barrier();
                CELL_UNROLL
                for (int n = 0; n < tiles * 4; n++) {
                    const int row = own.row[n % 4 / 2];
                    by_distance[(row - first) * (F::others + 1) + n / 4 * 8 + cell_lane() % 4 * 2 + n % 2] =
                        row < rows ? distance[k][n / 4][n % 4] : (R)0;
                }
                cell_barrier();
                cell_attention_add_distances<M, F>(x, x.d_distance[k] + (int64_t)tile * x.distances,
                                                   by_distance, first, last, cursor.j);
            }
        }
    });

    if (M::scaled) {
        CELL_UNROLL
        for (int n = 0; n < F::columns / 8 * 4; n++)
            dq[n / 4][n % 4] *= x.scale;
    }
    cell_attention_store<M>(x.dq, dq, own.row, rows, cell_attention_row_place(x.dq, x.group), from, x.keys);
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
    __device__ __forceinline__ void fetch(const cell_attention<M> &x, int, int first, int end, int stage,
                                          int) const
    {
        cell_attention_fetch<M, F::threads>(query(stage), x.q, cell_attention_vectors<M>(x.q, x.keys),
                                            cell_attention_row_place(x.q, x.group), first, end, 0, x.keys,
                                            cell_thread());
        cell_attention_fetch<M, F::threads>(cotangent(stage), x.dy, cell_attention_vectors<M>(x.dy, x.values),
                                            cell_attention_row_place(x.dy, x.group), first, end, 0, x.values,
                                            cell_thread());
        if (F::softmax && cell_thread() < F::others) {
            const int row = first + cell_thread(), i = x.group == 1 ? row : row / x.group,
                      r = x.group == 1 ? 0 : row % x.group;
            if (row < end) {
                cell_cp_async<(int)sizeof(R)>(lse(stage) + cell_thread(),
                                              x.lse + (i * x.lse_row + r * x.lse_head));
                cell_cp_async<(int)sizeof(R)>(dots(stage) + cell_thread(),
                                              x.dots + (i * x.dots_row + r * x.dots_head));
            } else {
                lse(stage)[cell_thread()] = (R)CELL_INF;
                dots(stage)[cell_thread()] = (R)0;
            }
        }
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
        const auto keys = own_keys.fetch(s.k, cell_attention_key_place<M>(s, s.k), first, s.end, x.keys);
        const auto values =
            own_values.fetch(s.v, cell_attention_key_place<M>(s, s.v), first, s.end, x.values);
        cell_attention_clear(sums);
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            key[h] = first + cell_warp() * 16 + h * 8 + cell_lane() / 4;
            CELL_UNROLL
            for (int k = 0; k < cell_attention<M>::slots; k++)
                d_column[k][h] = 0;
        }

        Cursor cursor(x, segment, first, last);
        cell_attention_over(cursor, stages, x, 0, 0x7fffffff, [&](int stage) {
            R w[tiles][4], dv[tiles][4];
            cell_attention_pairs<F, M::keys>(w, keys, stages.query(stage));
            cell_attention_pairs<F, M::values>(dv, values, stages.cotangent(stage));
            cell_attention_commit<F>();
            cell_attention_wait<F, 0>();
            if (cursor.all(x, F::own))
                weigh<true>(x, s, cursor, stages, stage, w, dv);
            else
                weigh<false>(x, s, cursor, stages, stage, w, dv);
            if constexpr (whole) {
                add<0, M::values>(w, stages.cotangent(stage));
                add<M::values, M::keys>(dv, stages.query(stage));
            } else {
                add_slab(w, dv, stages, stage, from);
            }
            cell_attention_commit<F>();
            cell_attention_wait<F, 0>();
        });
        store(x, s, from);
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

  private:
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
