// Gradients of vectors and gates where a row has a gate for each key, of some keys at a time: a part of
// `rest` (cell_device_chunk_rest.cuh, which has the equations).
//
// A warp has one block of 16 rows and some of the keys. What its rows and rows of other blocks have of one
// another goes through the block's ends, as in cell_device_chunk_rest.cuh. Two rows of one block are in the
// upper and the lower half of one node of a tree of halves; a node of level l has 2^(l + 1) rows. Between
// them lies the middle of that node:
//
//     G[t, s] = window[t] window[s]
//     window[t] = a_middle ... a_t above it       window[s] = a_(s+1) ... a_(middle-1) below it
//
// So each level is a product of dA, where it has pairs of that level, and of vectors times windows; each row
// has one window a level, as it is in one half. With N[t] and H[s] the sums of a level, over rows of the
// other half:
//
//     df[t] += window[t] N[t]       f N: the derivative by window[t]
//     dc[s] += window[s] H[s]       c H: the derivative by window[s]
//
// and a gate has its derivative by the windows that it is in: those of its half that go to its row or beyond.
#ifndef CELL_DEVICE_CHUNK_SLAB_CUH
#define CELL_DEVICE_CHUNK_SLAB_CUH

template <class M> struct cell_chunk_slab {
    typedef cell_chunk_rester<M> Rest;
    typedef typename M::Real R;
    typedef typename M::Part Part;
    typedef typename Rest::keys_tile tile;
    typedef typename Rest::matrix matrix;
    static constexpr int C = M::rows, K = Rest::K, B = CELL_CHUNK_BLOCK, blocks = C / B, line = Rest::line;
    static constexpr int along = tile::along, readers = Rest::readers, additions = Rest::additions;
    static constexpr int half = B / 2;
    // Of a warp: keys, and for each key two halves of the block's rows, which its lanes share.
    static constexpr int width = along * 8, turns = (width * 2 + 31) / 32;
    static_assert(tile::down == 1, "a warp has one block of rows");
    typedef R sums[along][4]; // of a lane, as in the tile: rows row() and row() + 8, neighbours in pairs

    Rest &rest;
    const int k0; // the first key
    const bool own; // the warp has rows
    const int first; // row of its block
    const int column; // and key, from k0 on
    // Gates of a lane's keys and half blocks, and the gates' gradients.
    R gate[turns][half], dgate[turns][half];
    R reader_gradient[readers][along][4], column_gradient[additions][along][4];

    __device__ __forceinline__ cell_chunk_slab(Rest &of, int first_key)
        : rest(of), k0(first_key), own(tile::there(0, 0)), first(own ? tile::block(0) * B : 0),
          column(own ? tile::column(0) : 0)
    {
    }

    // ---- of a lane ----

    __device__ __forceinline__ int row() const
    {
        return first + cell_lane() / 4;
    }
    __device__ __forceinline__ int key(int j) const
    {
        return column + j * 8 + cell_lane() % 4 * 2;
    }
    // each(j, e): element e of tile j
    template <class Each> __device__ __forceinline__ static void each(Each one)
    {
        CELL_UNROLL
        for (int j = 0; j < along; j++) {
            CELL_UNROLL
            for (int e = 0; e < 4; e++)
                one(j, e);
        }
    }
    __device__ __forceinline__ static void clear(sums &x)
    {
        each([&](int j, int e) { x[j][e] = 0; });
    }
    // x = what array has, [C][line], of the lane's rows.
    __device__ __forceinline__ void get(sums &x, cell_smem<R> array) const
    {
        CELL_UNROLL
        for (int j = 0; j < along; j++) {
            CELL_UNROLL
            for (int h = 0; h < 2; h++) {
                R two[2];
                cell_load_vec<2>(two, array + ((row() + h * 8) * line + key(j)));
                x[j][h * 2] = two[0], x[j][h * 2 + 1] = two[1];
            }
        }
    }
    __device__ __forceinline__ void put(cell_smem<R> array, const sums &x) const
    {
        CELL_UNROLL
        for (int j = 0; j < along; j++) {
            CELL_UNROLL
            for (int h = 0; h < 2; h++) {
                const R two[2] = { x[j][h * 2], x[j][h * 2 + 1] };
                cell_store_vec<2>(array + ((row() + h * 8) * line + key(j)), two);
            }
        }
    }
    // Windows that end at a reader's row, or, before it, at the row before; 1 where `rows` rows begin with
    // it.
    __device__ __forceinline__ void get_windows(sums &x, cell_smem<R> array, bool before_it, int rows) const
    {
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            const int t = row() + h * 8;
            const int first_of = before_it ? Rest::lead(t) : t;
            const bool none = before_it && first_of % rows == 0;
            CELL_UNROLL
            for (int j = 0; j < along; j++) {
                R two[2];
                cell_load_vec<2>(two, array + ((before_it && !none ? first_of - 1 : t) * line + key(j)));
                x[j][h * 2] = none ? (R)1 : two[0], x[j][h * 2 + 1] = none ? (R)1 : two[1];
            }
        }
    }
    __device__ __forceinline__ R window_of(cell_smem<R> array, int t, int k, bool before_it, int rows) const
    {
        const int first_of = before_it ? Rest::lead(t) : t;
        if (before_it && first_of % rows == 0)
            return 1;
        return array[(before_it ? first_of - 1 : t) * line + k];
    }
    // x = a vector times its numbers.
    __device__ __forceinline__ void get_vector(sums &x, int i) const
    {
        const matrix of = rest.reader_part(i);
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            const int t = row() + h * 8;
            const R by = rest.number(i)[t];
            CELL_UNROLL
            for (int j = 0; j < along; j++) {
                R two[2];
                cell_load_vec<2>(two, of.place(t, key(j)));
                x[j][h * 2] = two[0] * by, x[j][h * 2 + 1] = two[1] * by;
            }
        }
    }
    __device__ __forceinline__ R vector_of(int i, int t, int k) const
    {
        return cell_load<R>(rest.reader_part(i).place(t, k)) * (R)rest.number(i)[t];
    }
    // Sums over the block's rows of x, one for each key: put(key, sum), by the lanes that have it.
    template <class Put> __device__ __forceinline__ void sum_rows(const sums &x, Put to) const
    {
        CELL_UNROLL
        for (int j = 0; j < along; j++) {
            CELL_UNROLL
            for (int e = 0; e < 2; e++) {
                R sum = x[j][e] + x[j][2 + e];
                sum += cell_shfl_xor(sum, 4);
                sum += cell_shfl_xor(sum, 8);
                sum += cell_shfl_xor(sum, 16);
                if (cell_lane() < 4)
                    to(key(j) + e, sum);
            }
        }
    }

    // ---- jobs of a warp's lanes: a key and half of the block's rows ----

    // job(turn, key, the half's first row within the block)
    template <class Job> __device__ __forceinline__ void jobs(Job job) const
    {
        CELL_UNROLL
        for (int i = 0; i < turns; i++) {
            const int n = cell_lane() + i * 32;
            if (width * 2 % 32 == 0 || n < width * 2)
                job(i, column + n % width, n / width * half);
        }
    }
    __device__ __forceinline__ cell_smem<R> gate_of(int p, int k) const
    {
        return rest.gate() + ((first + p) * line + k);
    }

    // Whether row p of the half block that begins at `from` is above the middle of its node.
    template <int Rows> __device__ __forceinline__ static bool above(int from, int p)
    {
        return Rows < half ? p / Rows % 2 != 0 : from != 0;
    }

    __device__ __forceinline__ void begin_gates()
    {
        jobs([&](int i, int k, int from) {
            CELL_UNROLL
            for (int p = 0; p < half; p++) {
                gate[i][p] = gate_of(from + p, k)[0];
                dgate[i][p] = 0;
            }
        });
    }

    // Windows of a level: Rows are those of half a node.
    template <int Rows> __device__ __forceinline__ void make_windows()
    {
        jobs([&](int i, int k, int from) {
            const cell_smem<R> to = rest.window() + ((first + from) * line + k);
            R run = 1;
            CELL_UNROLL
            for (int p = 0; p < half; p++) { // above the middle
                run = p % Rows ? run * gate[i][p] : gate[i][p];
                if (above<Rows>(from, p))
                    to[p * line] = run;
            }
            CELL_UNROLL
            for (int p = half - 1; p >= 0; p--) { // below it
                run = (p + 1) % Rows ? run * gate[i][p + 1 < half ? p + 1 : p] : (R)1;
                if (!above<Rows>(from, p))
                    to[p * line] = run;
            }
        });
    }

    // Derivatives by windows of a level, which lie in flow().
    template <int Rows> __device__ __forceinline__ void take_windows()
    {
        jobs([&](int i, int k, int from) {
            const cell_smem<R> by = rest.flow() + ((first + from) * line + k),
                               window = rest.window() + ((first + from) * line + k);
            R y = 0, run = 0;
            CELL_UNROLL
            for (int p = half - 1; p >= 0; p--) {
                y = (R)by[p * line] + ((p + 1) % Rows ? gate[i][p + 1 < half ? p + 1 : p] * y : (R)0);
                if (above<Rows>(from, p))
                    dgate[i][p] += y * (p % Rows ? (R)window[(p > 0 ? p - 1 : 0) * line] : (R)1);
            }
            CELL_UNROLL
            for (int p = 0; p < half; p++) {
                run = p % Rows ? gate[i][p > 0 ? p - 1 : 0] * run + (R)by[(p > 0 ? p - 1 : 0) * line] : (R)0;
                if (!above<Rows>(from, p))
                    dgate[i][p] += run * (R)window[p * line];
            }
        });
    }

    // Derivatives by pre, which lie in flow(): of readers of earlier blocks.
    __device__ __forceinline__ void take_front()
    {
        jobs([&](int i, int k, int from) {
            R y = 0;
            CELL_UNROLL_BY(1)
            for (int p = B - 1; p >= from + half; p--)
                y = (R)rest.flow()[(first + p) * line + k] + (p + 1 < B ? (R)gate_of(p + 1, k)[0] * y : (R)0);
            CELL_UNROLL
            for (int p = half - 1; p >= 0; p--) {
                const int at = first + from + p;
                y = (R)rest.flow()[at * line + k] +
                    (from + p + 1 < B ? (R)gate_of(from + p + 1, k)[0] * y : (R)0);
                dgate[i][p] += y * rest.window_before(at, k);
            }
        });
    }
    // Derivatives by suf, which lie in flow(): of additions that later blocks read.
    __device__ __forceinline__ void take_behind()
    {
        jobs([&](int i, int k, int from) {
            R run = 0;
            CELL_UNROLL_BY(1)
            for (int p = 0; p < from; p++)
                run = (R)gate_of(p, k)[0] * run + (R)rest.flow()[(first + p) * line + k];
            CELL_UNROLL
            for (int p = 0; p < half; p++) { // run: gates between an addition and the row's own
                const int at = first + from + p;
                dgate[i][p] += run * (R)rest.suf()[at * line + k];
                run = gate[i][p] * run + (R)rest.flow()[at * line + k];
            }
        });
    }

    // What goes through the whole block, from before it to behind it.
    __device__ __forceinline__ void take_whole()
    {
        jobs([&](int i, int k, int from) {
            const int block = first / B;
            R whole = 0;
            CELL_UNROLL_BY(1)
            for (int b = blocks; b > block; b--) {
                R between = rest.across()[(b * blocks + block) * K + k];
                for (int n = block + 1; n < b; n++)
                    between *= (R)rest.tot()[n * K + k];
                whole += between;
            }
            CELL_UNROLL
            for (int p = 0; p < half; p++) {
                const int at = first + from + p;
                dgate[i][p] += whole * rest.window_before(at, k) * (R)rest.suf()[at * line + k];
            }
        });
    }

    // Into flow(): derivatives by windows that end at the lane's rows, and by those that end a row before,
    // where there is one: not where `rows` rows begin.
    __device__ __forceinline__ void leave(const sums &here, const sums &row_before, int rows)
    {
        cell_warp_barrier();
        put(rest.flow(), here);
        cell_warp_barrier();
        if (!Rest::any_before)
            return;
        each([&](int j, int e) {
            const int t = row() + e / 2 * 8;
            const R sum = Rest::template sum_update<4>(row_before[j][e]);
            if (t % rows && t == Rest::lead(t)) {
                const cell_smem<R> at = rest.flow() + ((t - 1) * line + key(j) + e % 2);
                at[0] = (R)at[0] + sum;
            }
        });
        cell_warp_barrier();
    }

    // ---- rows of other blocks ----

    // From the start block by block up to the row's. here, row_before: derivatives by pre.
    __device__ __forceinline__ void read_earlier(int f, sums &gradient, sums &here, sums &row_before)
    {
        tile sum;
        sum.clear();
        rest.add_reader_start(sum, f, k0);
        if (!own)
            return;
        sums vector, window;
        get_vector(vector, f);
        get_windows(window, rest.pre(), Rest::before(f), B);
        CELL_UNROLL_BY(1)
        for (int b = 0; b < first / B; b++) {
            sums by;
            each([&](int j, int e) { by[j][e] = sum.x[0][j][e] * vector[j][e] * window[j][e]; });
            sum_rows(by, [&](int k, R s) {
                const cell_smem<R> to = rest.across() + ((first / B * blocks + b) * K + k);
                to[0] = (R)to[0] + s;
            });
            each([&](int j, int e) { sum.x[0][j][e] *= (R)rest.tot()[b * K + key(j) + e % 2]; });
            CELL_UNROLL_BY(1)
            for (int n = 0; n < additions; n++)
                sum.add(rest.scores(f, n), rest.scaled(readers + n), b * B, b * B + B);
        }
        each([&](int j, int e) {
            const R s = sum.x[0][j][e];
            gradient[j][e] = s * window[j][e];
            (Rest::before(f) ? row_before : here)[j][e] += s * vector[j][e];
        });
    }

    // From the end block by block back to the row's. here: derivatives by suf.
    __device__ __forceinline__ void add_later(int n, sums &gradient, sums &here)
    {
        tile sum;
        sum.clear();
        rest.add_column_end(sum, n, k0);
        if (!own)
            return;
        sums vector, window, by;
        get_vector(vector, readers + n);
        get(window, rest.suf());
        each([&](int j, int e) { by[j][e] = sum.x[0][j][e] * vector[j][e] * window[j][e]; });
        sum_rows(by, [&](int k, R s) {
            const cell_smem<R> to = rest.ends() + (first / B * K + k);
            to[0] = (R)to[0] + s;
        });
        CELL_UNROLL_BY(1)
        for (int b = blocks - 1; b > first / B; b--) {
            each([&](int j, int e) { sum.x[0][j][e] *= (R)rest.tot()[b * K + key(j) + e % 2]; });
            CELL_UNROLL_BY(1)
            for (int f = 0; f < readers; f++)
                sum.add(rest.scores(f, n).across(), rest.scaled(f), b * B, b * B + B);
        }
        each([&](int j, int e) {
            const R s = sum.x[0][j][e];
            gradient[j][e] = s * window[j][e];
            here[j][e] += s * vector[j][e];
        });
    }

    // ---- rows of the block ----

    // sum += dA, where it has pairs of the level, times from(row, key).
    template <class Matrix, class From>
    __device__ __forceinline__ void add_level(sums &sum, const Matrix &dA, int level, From from) const
    {
        typedef cell_chunk_fragments<Part> F;
        CELL_UNROLL
        for (int k = 0; k < B; k += F::depth) {
            F f;
            f.load_a(dA, first, first + k);
            F::keep(f.a, [&](int i, int j) { return (i ^ (k + j)) >> level == 1; });
            const typename F::A left = f.a;
            CELL_UNROLL
            for (int j = 0; j < along; j++) {
                f.make_b(from, first + k, column + j * 8);
                f.multiply(sum[j], left);
            }
        }
    }

    template <int Level> __device__ __forceinline__ void take_level()
    {
        constexpr int level = Level, rows = 1 << level;
        cell_warp_barrier();
        make_windows<rows>();
        cell_warp_barrier();
        sums here, row_before, sum, vector, window;
        clear(here), clear(row_before);
        CELL_UNROLL
        for (int f = 0; f < readers; f++) {
            clear(sum);
            CELL_UNROLL
            for (int n = 0; n < additions; n++)
                add_level(sum, rest.scores(f, n), level, [&](int s, int k) {
                    return vector_of(readers + n, s, k) * (R)rest.window()[s * line + k];
                });
            get_vector(vector, f);
            get_windows(window, rest.window(), Rest::before(f), rows);
            each([&](int j, int e) {
                reader_gradient[f][j][e] += sum[j][e] * window[j][e];
                (Rest::before(f) ? row_before : here)[j][e] += sum[j][e] * vector[j][e];
            });
        }
        get(window, rest.window());
        CELL_UNROLL
        for (int n = 0; n < additions; n++) {
            clear(sum);
            CELL_UNROLL
            for (int f = 0; f < readers; f++)
                add_level(sum, rest.scores(f, n).across(), level, [&](int t, int k) {
                    return vector_of(f, t, k) * window_of(rest.window(), t, k, Rest::before(f), rows);
                });
            get_vector(vector, readers + n);
            each([&](int j, int e) {
                column_gradient[n][j][e] += sum[j][e] * window[j][e];
                here[j][e] += sum[j][e] * vector[j][e];
            });
        }
        leave(here, row_before, rows);
        take_windows<rows>();
    }

    // A reader behind its row reads what the row adds.
    __device__ __forceinline__ void take_own_rows()
    {
        CELL_UNROLL
        for (int f = 0; f < readers; f++) {
            if (Rest::before(f))
                continue;
            CELL_UNROLL
            for (int n = 0; n < additions; n++) {
                sums vector, added;
                get_vector(vector, f);
                get_vector(added, readers + n);
                CELL_UNROLL
                for (int h = 0; h < 2; h++) {
                    const R dA = cell_load<R>(rest.scores(f, n).place(row() + h * 8, row() + h * 8));
                    CELL_UNROLL
                    for (int j = 0; j < along; j++) {
                        CELL_UNROLL
                        for (int e = h * 2; e < h * 2 + 2; e++) {
                            reader_gradient[f][j][e] += dA * added[j][e];
                            column_gradient[n][j][e] += dA * vector[j][e];
                        }
                    }
                }
            }
        }
    }

    // ---- what is left ----

    // Of a vector, with what its number has of it.
    __device__ __forceinline__ void put_vector(const cell_chunk_gradient &to, int i, const sums &gradient,
                                               cell_smem<R> number_sums)
    {
        const bool numbers = to.number.at;
        tile scaled;
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            const int t = row() + h * 8;
            const R by = rest.number(i)[t];
            R sum = 0;
            CELL_UNROLL
            for (int j = 0; j < along; j++) {
                const R a = gradient[j][h * 2], b = gradient[j][h * 2 + 1];
                scaled.x[0][j][h * 2] = a * by, scaled.x[0][j][h * 2 + 1] = b * by;
                if (numbers) {
                    R two[2];
                    cell_load_vec<2>(two, rest.reader_part(i).place(t, key(j)));
                    sum += a * two[0] + b * two[1];
                }
            }
            if (!numbers)
                continue;
            sum += cell_shfl_xor(sum, 1);
            sum += cell_shfl_xor(sum, 2);
            if (cell_lane() % 4 == 0) {
                const cell_smem<R> at = number_sums + (cell_warp() / tile::row_warps * C + t);
                at[0] = (R)at[0] + sum;
            }
        }
        rest.put_tile(rest.writes(to.vector, k0, rest.x.keys), scaled);
    }
    __device__ __forceinline__ void put_gates()
    {
        const typename Rest::writer out = rest.writes(rest.g.decay, k0, rest.x.keys);
        jobs([&](int i, int k, int from) {
            CELL_UNROLL
            for (int p = 0; p < half; p++) {
                const int t = first + from + p;
                if (t < out.lines && k < out.left)
                    out.one(out.at + t * out.row + k * out.element, t < rest.rows.valid ? dgate[i][p] : (R)0);
            }
        });
    }

    __device__ void make()
    {
        sums here, row_before;
        clear(here), clear(row_before);
        if (own)
            begin_gates();
        CELL_UNROLL
        for (int f = 0; f < readers; f++)
            read_earlier(f, reader_gradient[f], here, row_before);
        if (own) {
            leave(here, row_before, B);
            take_front();
        }
        clear(here);
        CELL_UNROLL
        for (int n = 0; n < additions; n++)
            add_later(n, column_gradient[n], here);
        if (own) {
            cell_warp_barrier();
            put(rest.flow(), here);
            cell_warp_barrier();
            take_behind();
            take_own_rows();
            take_level<0>();
            take_level<1>();
            take_level<2>();
            take_level<3>();
        }
        cell_barrier();
        rest.sum_ends();
        if (!own)
            return;
        take_whole();
        put_gates();
        CELL_UNROLL
        for (int f = 0; f < readers; f++)
            put_vector(rest.reader_result(f), f, reader_gradient[f], rest.reader_sums(f));
        CELL_UNROLL
        for (int n = 0; n < additions; n++)
            put_vector(rest.g.column[n], readers + n, column_gradient[n], rest.column_sums(n));
    }
};

#endif
