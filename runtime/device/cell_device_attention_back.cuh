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

// What a block owns, two operands, in shared memory or where the caller has it.
template <class M, class F> struct cell_attention_owned {
    typedef typename M::Store S;
    typedef cell_attention_fragments<S> Fragments;
    static constexpr int gap = 16 / (int)sizeof(S), key_pitch = M::keys + gap, value_pitch = M::values + gap;
    cell_smem<S> keys, values;
    __device__ __forceinline__ explicit cell_attention_owned(unsigned char *&cursor)
        : keys(cell_carve<S>(cursor, F::shape.staged ? F::own * key_pitch : 0)),
          values(cell_carve<S>(cursor, F::shape.staged ? F::own * value_pitch : 0))
    {
    }
    template <class PlaceK, class PlaceV>
    __device__ __forceinline__ void fetch(const cell_attention<M> &x, const cell_attention_rows &k,
                                          PlaceK k_place, const cell_attention_rows &v, PlaceV v_place,
                                          int first, int end) const
    {
        if (F::shape.staged) {
            cell_attention_fetch<M, F::own, M::keys>(keys, k, cell_attention_vectors<M>(k, x.keys), k_place,
                                                     first, end, 0, x.keys);
            cell_attention_fetch<M, F::own, M::values>(values, v, cell_attention_vectors<M>(v, x.values),
                                                       v_place, first, end, 0, x.values);
        }
    }
    template <int Pitch, class Place>
    __device__ __forceinline__ static void load(typename Fragments::A &a, cell_smem<S> staged,
                                                const cell_attention_rows &x, Place place, int first, int end,
                                                int64_t extent, int d, int term)
    {
        const int row = d * 64 + cell_warp() * 16;
        if constexpr (F::shape.staged != 0)
            Fragments::load_a(a, staged + (row * Pitch + term), Pitch);
        else
            Fragments::make_a(a, [&](int i, int k) {
                const int at = first + row + i;
                return at < end && term + k < extent
                           ? cell_attention_load<M>(x, place(at) + (term + k) * x.element)
                           : (typename M::Real)0;
            });
    }
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
         distance += CELL_ATTENTION_THREADS) {
        if (distance < 0 || distance >= x.distances)
            continue;
        R sum = to[distance];
        for (int row = first; row < rows; row++) {
            const int column = row / x.group - distance - j;
            if (column >= 0 && column < F::others)
                sum += tile[(row - first) * (F::others + 1) + column];
        }
        to[distance] = sum;
    }
}

template <class M>
__device__ __forceinline__ void cell_attention_back_rows(const cell_attention<M> &x, int64_t block)
{
    typedef typename M::Real R;
    typedef typename M::Store S;
    typedef cell_attention_facts<M, CELL_ATTENTION_BACK_ROWS> F;
    typedef cell_attention_cursor<M, F::others> Cursor;
    typedef cell_attention_fragments<S> Fragments;
    typedef cell_attention_owned<M, F> Owned;
    constexpr int down = F::down, gap = 16 / (int)sizeof(S), tiles = F::others / 8;
    const int rows = x.steps * x.group, slab = (int)(block % F::slabs), from = slab * F::columns;
    const int tile = (int)(cell_attention_tiles(rows, F::own) - 1 - block / F::slabs), first = tile * F::own;
    const int last = first + F::own < rows ? first + F::own : rows;

    unsigned char *memory = cell_shared();
    const cell_attention_key_stages<M, CELL_ATTENTION_BACK_ROWS, M::values> stages(memory);
    const Owned owned(memory);
    const cell_smem<R> by_distance = cell_carve<R>(memory, F::distances ? F::own * (F::others + 1) : 0);
    const cell_attention_place_of_row q_place = cell_attention_row_place(x.q, x.group),
                                      dy_place = cell_attention_row_place(x.dy, x.group);
    owned.fetch(x, x.q, q_place, x.dy, dy_place, first, rows);
    if (F::distances && slab == 0)
        for (int n = 0; n < M::terms; n++)
            if (M::term_kind(n) == CELL_ATTENTION_DISTANCE)
                for (int e = cell_thread(); e < x.distances; e += CELL_ATTENTION_THREADS)
                    x.d_distance[n][(int64_t)tile * x.distances + e] = 0;

    const cell_attention_own<down> own(first, rows, x.group);
    R dq[down][F::columns / 8][4], lse[down][2], dots[down][2], d_row[cell_attention<M>::slots][down][2];
    cell_attention_clear(dq);
    CELL_UNROLL
    for (int n = 0; n < down * 2; n++) {
        const int d = n / 2, h = n % 2;
        lse[d][h] = F::softmax ? x.lse[own.i[d][h] * x.lse_row + own.r[d][h] * x.lse_head] : (R)0;
        dots[d][h] = F::softmax ? x.dots[own.i[d][h] * x.dots_row + own.r[d][h] * x.dots_head] : (R)0;
        CELL_UNROLL
        for (int t = 0; t < cell_attention<M>::slots; t++)
            d_row[t][d][h] = 0;
    }

    Cursor cursor(x, first / x.group, (last - 1) / x.group + 1);
    const int width = x.keys - from < F::columns ? (int)(x.keys - from) : F::columns;
    cell_attention_over(cursor, stages, x, 0, 0x7fffffff, [&](int stage) {
        const bool all = cursor.all();
        R s[down][tiles][4], dv[down][tiles][4];
        cell_attention_clear(s);
        cell_attention_clear(dv);
        cell_attention_add<S, false, M::keys, F::others, down>(
            s,
            [&](typename Fragments::A &a, int d, int term) {
                Owned::template load<Owned::key_pitch>(a, owned.keys, x.q, q_place, first, rows, x.keys, d,
                                                       term);
            },
            stages.key(stage), M::keys + gap);
        cell_attention_add<S, false, M::values, F::others, down>(
            dv,
            [&](typename Fragments::A &a, int d, int term) {
                Owned::template load<Owned::value_pitch>(a, owned.values, x.dy, dy_place, first, rows,
                                                         x.values, d, term);
            },
            stages.value(stage), M::values + gap);
        R distance[F::distances ? M::terms : 1][down][tiles][4];
        CELL_UNROLL
        for (int n = 0; n < down * tiles * 4; n++) {
            const int d = n / (tiles * 4), t = n / 4 % tiles, h = n % 4 / 2;
            const int at = cursor.j + t * 8 + cell_lane() % 4 * 2 + n % 2;
            const cell_attention_pair pair = { own.i[d][h], own.r[d][h],
                                               all || at < cursor.end ? at : cursor.end - 1, cursor.segment };
            const bool there = all || (at < cursor.end && M::there(x.uses, pair));
            R g[cell_attention<M>::slots] = {};
            cell_attention_adjoint<M>(x, s[d][t][n % 4], dv[d][t][n % 4], lse[d][h], dots[d][h], pair, there,
                                      g);
            CELL_UNROLL
            for (int k = 0; k < M::terms; k++) {
                if (M::term_kind(k) == CELL_ATTENTION_ROW)
                    d_row[k][d][h] += g[k];
                if constexpr (F::distances)
                    distance[k][d][t][n % 4] = g[k];
            }
        }
        cell_attention_add<S, true, F::others, F::columns, down>(
            dq, [&](typename Fragments::A &a, int d, int term) { Fragments::take_a(a, &dv[d][term / 8]); },
            stages.key(stage) + from, M::keys + gap, width);
        if constexpr (F::distances) {
            CELL_UNROLL
            for (int k = 0; k < M::terms; k++) {
                if (M::term_kind(k) != CELL_ATTENTION_DISTANCE || slab > 0 || cursor.segment > 1)
                    continue;
                cell_barrier();
                CELL_UNROLL
                for (int n = 0; n < down * tiles * 4; n++) {
                    const int d = n / (tiles * 4), t = n / 4 % tiles, row = own.row[d][n % 4 / 2];
                    by_distance[(row - first) * (F::others + 1) + t * 8 + cell_lane() % 4 * 2 + n % 2] =
                        row < rows ? distance[k][d][t][n % 4] : (R)0;
                }
                cell_barrier();
                cell_attention_add_distances<M, F>(x, x.d_distance[k] + (int64_t)tile * x.distances,
                                                   by_distance, first, last, cursor.j);
            }
        }
    });

    if (M::scaled) {
        CELL_UNROLL
        for (int n = 0; n < down * (F::columns / 8) * 4; n++)
            dq[n / (F::columns / 8 * 4)][n / 4 % (F::columns / 8)][n % 4] *= x.scale;
    }
    cell_attention_store<M>(x.dq, dq, own.row, rows, cell_attention_row_place(x.dq, x.group), from, x.keys);
    CELL_UNROLL
    for (int n = 0; n < down * 2; n++) {
        const int d = n / 2, h = n % 2, i = own.i[d][h], r = own.r[d][h];
        const bool stores = cell_lane() % 4 == 0 && own.row[d][h] < rows && slab == 0;
        CELL_UNROLL
        for (int k = 0; k < M::terms; k++) {
            if (M::term_kind(k) != CELL_ATTENTION_ROW)
                continue;
            const R sum = cell_attention_row_sum(d_row[k][d][h]);
            if (stores && x.d_row[k].at)
                cell_attention_put<M>(x.d_row[k], i * x.d_row[k].row + r * x.d_row[k].head, sum);
        }
        if constexpr (M::sink)
            if (stores && x.d_sink.at) {
                const R score = M::sink_score(x.uses, i, r) * (R)1.44269504088896340736;
                cell_attention_put<M>(x.d_sink, i * x.d_sink.row + r * x.d_sink.head,
                                      -cell_attention_power(score - lse[d][h]) * dots[d][h]);
            }
    }
}

// ---- the gradients of keys and values ----

template <class M>
__device__ __forceinline__ int64_t cell_attention_back_keys_blocks(const cell_attention<M> &x)
{
    return (int64_t)cell_attention_key_tiles(x) * cell_attention_facts<M, CELL_ATTENTION_BACK_KEYS>::slabs;
}

// Tiles of the rows of steps [i0, i1), with L and D of each row: infinity and 0 behind the last one.
template <class M> struct cell_attention_row_stages {
    typedef typename M::Real R;
    typedef typename M::Store S;
    typedef cell_attention_facts<M, CELL_ATTENTION_BACK_KEYS> F;
    static constexpr int gap = 16 / (int)sizeof(S), key_pitch = M::keys + gap, value_pitch = M::values + gap;
    cell_smem<S> queries, cotangents;
    cell_smem<R> stats;
    __device__ __forceinline__ explicit cell_attention_row_stages(unsigned char *&cursor)
        : queries(cell_carve<S>(cursor, F::stages * F::others * key_pitch)),
          cotangents(cell_carve<S>(cursor, F::stages * F::others * value_pitch)),
          stats(cell_carve<R>(cursor, F::stages * F::others * 2))
    {
    }
    __device__ __forceinline__ cell_smem<S> query(int stage) const
    {
        return queries + stage * (F::others * key_pitch);
    }
    __device__ __forceinline__ cell_smem<S> cotangent(int stage) const
    {
        return cotangents + stage * (F::others * value_pitch);
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
        cell_attention_fetch<M, F::others, M::keys>(query(stage), x.q, cell_attention_vectors<M>(x.q, x.keys),
                                                    cell_attention_row_place(x.q, x.group), first, end, 0,
                                                    x.keys);
        cell_attention_fetch<M, F::others, M::values>(cotangent(stage), x.dy,
                                                      cell_attention_vectors<M>(x.dy, x.values),
                                                      cell_attention_row_place(x.dy, x.group), first, end, 0,
                                                      x.values);
        if (F::softmax && cell_thread() < F::others) {
            const int row = first + cell_thread();
            const int i = row / x.group, r = row % x.group;
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
    const cell_attention<M> &x;
    int segment, j0, j1, j, end; // j, end: of rows
    __device__ __forceinline__ cell_attention_row_cursor(const cell_attention<M> &of, int which, int from,
                                                         int to)
        : x(of), segment(which), j0(from), j1(to)
    {
        int i0 = 0, i1 = x.steps;
        M::steps_of(x.uses, segment, j0, j1, i0, i1);
        j = i0 * x.group, end = i1 * x.group;
        settle();
    }
    __device__ __forceinline__ int first_step() const
    {
        return j / x.group;
    }
    __device__ __forceinline__ int end_step() const
    {
        return ((j + Others < end ? j + Others : end) - 1) / x.group + 1;
    }
    __device__ __forceinline__ bool there() const
    {
        return j < end;
    }
    __device__ __forceinline__ void next()
    {
        j += Others;
        settle();
    }
    __device__ __forceinline__ bool all(int own) const
    {
        return j + Others <= end && j1 - j0 == own &&
               M::all(x.uses, segment, first_step(), end_step(), j0, j1);
    }

  private:
    __device__ __forceinline__ void settle()
    {
        while (j < end && M::none(x.uses, segment, first_step(), end_step(), j0, j1))
            j += Others;
    }
};

template <class M> struct cell_attention_back_of_keys {
    typedef typename M::Real R;
    typedef typename M::Store S;
    typedef cell_attention_facts<M, CELL_ATTENTION_BACK_KEYS> F;
    typedef cell_attention_row_cursor<M, F::others> Cursor;
    typedef cell_attention_fragments<S> Fragments;
    typedef cell_attention_owned<M, F> Owned;
    static constexpr int down = F::down, gap = 16 / (int)sizeof(S), tiles = F::others / 8;
    // Columns of the slab: those of dv, then those of dk.
    static constexpr bool whole = F::slabs == 1;

    __device__ __forceinline__ static void run(const cell_attention<M> &x, const cell_attention_segment<M> &s,
                                               int segment, int first, int slab)
    {
        const int last = first + F::own < s.end ? first + F::own : s.end, from = slab * F::columns;
        unsigned char *memory = cell_shared();
        const cell_attention_row_stages<M> stages(memory);
        const Owned owned(memory);
        const cell_attention_place_of_key k_place = cell_attention_key_place<M>(s, s.k),
                                          v_place = cell_attention_key_place<M>(s, s.v);
        owned.fetch(x, s.k, k_place, s.v, v_place, first, s.end);

        int key[down][2];
        R sums[down][F::columns / 8][4], d_column[cell_attention<M>::slots][down][2];
        cell_attention_clear(sums);
        CELL_UNROLL
        for (int n = 0; n < down * 2; n++) {
            key[n / 2][n % 2] = first + n / 2 * 64 + cell_warp() * 16 + n % 2 * 8 + cell_lane() / 4;
            CELL_UNROLL
            for (int k = 0; k < cell_attention<M>::slots; k++)
                d_column[k][n / 2][n % 2] = 0;
        }

        Cursor cursor(x, segment, first, last);
        cell_attention_over(cursor, stages, x, 0, 0x7fffffff, [&](int stage) {
            const bool all = cursor.all(F::own);
            R w[down][tiles][4], dv[down][tiles][4];
            cell_attention_clear(w);
            cell_attention_clear(dv);
            cell_attention_add<S, false, M::keys, F::others, down>(
                w,
                [&](typename Fragments::A &a, int d, int term) {
                    Owned::template load<Owned::key_pitch>(a, owned.keys, s.k, k_place, first, s.end, x.keys,
                                                           d, term);
                },
                stages.query(stage), M::keys + gap);
            cell_attention_add<S, false, M::values, F::others, down>(
                dv,
                [&](typename Fragments::A &a, int d, int term) {
                    Owned::template load<Owned::value_pitch>(a, owned.values, s.v, v_place, first, s.end,
                                                             x.values, d, term);
                },
                stages.cotangent(stage), M::values + gap);
            CELL_UNROLL
            for (int n = 0; n < tiles * 2; n++) {
                const int column = n / 2 * 8 + cell_lane() % 4 * 2 + n % 2, row = cursor.j + column;
                const int safe = all || row < cursor.end ? row : cursor.end - 1;
                const R lse = F::softmax ? (R)stages.lse(stage)[column] : (R)0,
                        dots = F::softmax ? (R)stages.dots(stage)[column] : (R)0;
                cell_attention_pair pair = { x.group == 1 ? safe : safe / x.group,
                                             x.group == 1 ? 0 : safe % x.group, 0, segment };
                CELL_UNROLL
                for (int e = 0; e < down * 2; e++) {
                    const int d = e / 2, h = e % 2;
                    pair.j = all || key[d][h] < s.end ? key[d][h] : s.end - 1;
                    const bool there =
                        all || (row < cursor.end && key[d][h] < s.end && M::there(x.uses, pair));
                    R g[cell_attention<M>::slots] = {};
                    cell_attention_adjoint<M>(x, w[d][n / 2][h * 2 + n % 2], dv[d][n / 2][h * 2 + n % 2], lse,
                                              dots, pair, there, g);
                    CELL_UNROLL
                    for (int k = 0; k < M::terms; k++)
                        if (M::term_kind(k) == CELL_ATTENTION_COLUMN)
                            d_column[k][d][h] += g[k];
                }
            }
            const auto weights = [&](typename Fragments::A &a, int d, int term) {
                Fragments::take_a(a, &w[d][term / 8]);
            };
            const auto gradients = [&](typename Fragments::A &a, int d, int term) {
                Fragments::take_a(a, &dv[d][term / 8]);
            };
            if constexpr (whole) {
                add<0, M::values>(sums, weights, stages.cotangent(stage), M::values + gap);
                add<M::values, M::keys>(sums, gradients, stages.query(stage), M::keys + gap);
            } else {
                add_slab(sums, weights, gradients, stages, stage, from);
            }
        });
        store(x, s, sums, key, from);
        CELL_UNROLL
        for (int n = 0; n < down * 2; n++) {
            CELL_UNROLL
            for (int k = 0; k < M::terms; k++) {
                if (M::term_kind(k) != CELL_ATTENTION_COLUMN)
                    continue;
                const R sum = cell_attention_row_sum(d_column[k][n / 2][n % 2]);
                if (s.d_column[k].at && cell_lane() % 4 == 0 && key[n / 2][n % 2] < s.end && slab == 0)
                    cell_attention_put<M>(s.d_column[k], key[n / 2][n % 2] * s.d_column[k].row, sum);
            }
        }
    }

  private:
    // Columns [From, From + Columns) of the sums.
    template <int From, int Columns, class LoadA>
    __device__ __forceinline__ static void add(R (&sums)[down][F::columns / 8][4], LoadA load_a,
                                               cell_smem<S> b, int pitch)
    {
        R part[down][Columns / 8][4];
        CELL_UNROLL
        for (int n = 0; n < down * (Columns / 8) * 4; n++)
            part[n / (Columns / 2)][n / 4 % (Columns / 8)][n % 4] =
                sums[n / (Columns / 2)][From / 8 + n / 4 % (Columns / 8)][n % 4];
        cell_attention_add<S, true, F::others, Columns, down>(part, load_a, b, pitch);
        CELL_UNROLL
        for (int n = 0; n < down * (Columns / 8) * 4; n++)
            sums[n / (Columns / 2)][From / 8 + n / 4 % (Columns / 8)][n % 4] =
                part[n / (Columns / 2)][n / 4 % (Columns / 8)][n % 4];
    }
    template <class Weights, class Gradients>
    __device__ __forceinline__ static void
    add_slab(R (&sums)[down][F::columns / 8][4], Weights weights, Gradients gradients,
             const cell_attention_row_stages<M> &stages, int stage, int from)
    {
        CELL_UNROLL
        for (int n = 0; n < F::columns; n += 16) {
            R part[down][2][4];
            CELL_UNROLL
            for (int i = 0; i < down * 8; i++)
                part[i / 8][i / 4 % 2][i % 4] = sums[i / 8][n / 8 + i / 4 % 2][i % 4];
            if (from + n < M::values)
                cell_attention_add<S, true, F::others, 16, down>(part, weights,
                                                                 stages.cotangent(stage) + (from + n),
                                                                 M::values + gap);
            else if (from + n < M::values + M::keys)
                cell_attention_add<S, true, F::others, 16, down>(part, gradients,
                                                                 stages.query(stage) + (from + n - M::values),
                                                                 M::keys + gap);
            CELL_UNROLL
            for (int i = 0; i < down * 8; i++)
                sums[i / 8][n / 8 + i / 4 % 2][i % 4] = part[i / 8][i / 4 % 2][i % 4];
        }
    }
    __device__ __forceinline__ static void store(const cell_attention<M> &x,
                                                 const cell_attention_segment<M> &s,
                                                 R (&sums)[down][F::columns / 8][4],
                                                 const int (&key)[down][2], int from)
    {
        CELL_UNROLL
        for (int n = 0; n < F::columns; n += 16) {
            const bool is_value = from + n < M::values;
            const R by = M::scaled && !is_value ? x.scale : (R)1;
            R part[down][2][4];
            CELL_UNROLL
            for (int i = 0; i < down * 8; i++)
                part[i / 8][i / 4 % 2][i % 4] = sums[i / 8][n / 8 + i / 4 % 2][i % 4] * by;
            const cell_attention_result &to = is_value ? s.dv : s.dk;
            cell_attention_store<M>(to, part, key, s.end, cell_attention_place_of_row{ to.row, 0, 1 },
                                    is_value ? from + n : from + n - M::values, is_value ? x.values : x.keys);
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
            cell_attention_back_of_keys<M>::run(x, s, n, s.begin + tile * F::own, (int)(block % F::slabs));
            done = true;
        }
        tile -= tiles;
    }
}

#endif
