// What attention's kernels share: fragments, tiles in shared memory, and the order of tiles.
//
// In: the operands of cell_device_attention.cuh. Out: products of tiles by warps, of which each has 16 rows
// of every 64; tiles of rows in shared memory, zeros behind their ends. Guaranteed: products of float are
// added in f32 after every 32 terms, since tensor cores cut off what f32 would round.
#ifndef CELL_DEVICE_ATTENTION_TILE_CUH
#define CELL_DEVICE_ATTENTION_TILE_CUH

// Fragments. A: 16 rows and `depth` terms, B: as many terms and 16 columns. Sums are fragments of 16 rows and
// 8 columns: of them a thread has elements (lane / 4, lane % 4 * 2), the next column, and the same 8 rows
// below. A comes from shared memory, or is depth / 8 fragments of sums; where terms have another order in
// these, B across has the same one. So a B across is multiplied by sums, and a B that is not by what was
// loaded.
template <class T> struct cell_attention_fragments { // bf16, f16
    typedef float Sum;
    static constexpr int depth = 16;
    typedef cell_mma_a<T> A;
    struct B {
        uint32_t x[4];
    };
    __device__ __forceinline__ static void load_a(A &a, cell_smem<T> first, int pitch)
    {
        cell_load_matrices<false>(a.x, first + (cell_lane() % 16 * pitch + cell_lane() / 16 * 8));
    }
    // from(row, term)
    template <class From> __device__ __forceinline__ static void make_a(A &a, From from)
    {
        CELL_UNROLL
        for (int r = 0; r < 4; r++) {
            const int row = cell_lane() / 4 + r % 2 * 8, k = cell_lane() % 4 * 2 + r / 2 * 8;
            a.x[r] = cell_pack<T>(from(row, k), from(row, k + 1));
        }
    }
    __device__ __forceinline__ static void take_a(A &a, const float (*sums)[4])
    {
        CELL_UNROLL
        for (int r = 0; r < 4; r++)
            a.x[r] = cell_pack<T>(sums[r / 2][r % 2 * 2], sums[r / 2][r % 2 * 2 + 1]);
    }
    // Element (term, column) stands at column * pitch + term, or, across, at term * pitch + column.
    template <bool Across> __device__ __forceinline__ static void load_b(B &b, cell_smem<T> first, int pitch)
    {
        const int lane = cell_lane();
        if constexpr (Across)
            cell_load_matrices<true>(b.x, first + (lane % 16 * pitch + lane / 16 * 8));
        else
            cell_load_matrices<false>(b.x, first + ((lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8));
    }
    __device__ __forceinline__ static void multiply(float (&sum)[4], const A &a, const B &b, int half)
    {
        cell_mma_c c = { { sum[0], sum[1], sum[2], sum[3] } };
        cell_mma(c, a, cell_mma_b<T>{ { b.x[half * 2], b.x[half * 2 + 1] } });
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            sum[i] = c.x[i];
    }
};

template <> struct cell_attention_fragments<float> {
    typedef float Sum;
    static constexpr int depth = 8;
    struct A {
        cell_mma_a<cell_tf32> hi, lo;
    };
    struct B {
        cell_mma_b<cell_tf32> hi[2], lo[2];
    };
    __device__ __forceinline__ static void put_a(A &a, int r, float v)
    {
        const cell_tf32_halves halves(v);
        a.hi.x[r] = halves.hi, a.lo.x[r] = halves.lo;
    }
    template <class From> __device__ __forceinline__ static void make_a(A &a, From from)
    {
        CELL_UNROLL
        for (int r = 0; r < 4; r++)
            put_a(a, r, from(cell_lane() / 4 + r % 2 * 8, cell_lane() % 4 + r / 2 * 4));
    }
    __device__ __forceinline__ static void load_a(A &a, cell_smem<float> first, int pitch)
    {
        make_a(a, [&](int row, int k) -> float { return first[row * pitch + k]; });
    }
    __device__ __forceinline__ static void take_a(A &a, const float (*sums)[4])
    {
        CELL_UNROLL
        for (int r = 0; r < 4; r++)
            put_a(a, r, sums[0][r % 2 * 2 + r / 2]);
    }
    template <bool Across>
    __device__ __forceinline__ static void load_b(B &b, cell_smem<float> first, int pitch)
    {
        CELL_UNROLL
        for (int half = 0; half < 2; half++) {
            CELL_UNROLL
            for (int r = 0; r < 2; r++) {
                const int column = half * 8 + cell_lane() / 4, inner = cell_lane() % 4;
                const float v =
                    first[Across ? (inner * 2 + r) * pitch + column : column * pitch + inner + r * 4];
                const cell_tf32_halves halves(v);
                b.hi[half].x[r] = halves.hi, b.lo[half].x[r] = halves.lo;
            }
        }
    }
    __device__ __forceinline__ static void multiply(float (&sum)[4], const A &a, const B &b, int half)
    {
        cell_mma_c c = { { sum[0], sum[1], sum[2], sum[3] } };
        cell_mma(c, a.lo, b.hi[half]);
        cell_mma(c, a.hi, b.lo[half]);
        cell_mma(c, a.hi, b.hi[half]);
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            sum[i] = c.x[i];
    }
};

template <> struct cell_attention_fragments<double> {
    typedef double Sum;
    static constexpr int depth = 8;
    struct A {
        double x[4];
    };
    struct B {
        double x[2][2];
    };
    template <class From> __device__ __forceinline__ static void make_a(A &a, From from)
    {
        CELL_UNROLL
        for (int r = 0; r < 4; r++)
            a.x[r] = from(cell_lane() / 4 + r % 2 * 8, cell_lane() % 4 + r / 2 * 4);
    }
    __device__ __forceinline__ static void load_a(A &a, cell_smem<double> first, int pitch)
    {
        make_a(a, [&](int row, int k) -> double { return first[row * pitch + k]; });
    }
    __device__ __forceinline__ static void take_a(A &a, const double (*sums)[4])
    {
        CELL_UNROLL
        for (int r = 0; r < 4; r++)
            a.x[r] = sums[0][r % 2 * 2 + r / 2];
    }
    template <bool Across>
    __device__ __forceinline__ static void load_b(B &b, cell_smem<double> first, int pitch)
    {
        CELL_UNROLL
        for (int half = 0; half < 2; half++) {
            CELL_UNROLL
            for (int r = 0; r < 2; r++) {
                const int column = half * 8 + cell_lane() / 4, inner = cell_lane() % 4;
                b.x[half][r] =
                    first[Across ? (inner * 2 + r) * pitch + column : column * pitch + inner + r * 4];
            }
        }
    }
    __device__ __forceinline__ static void multiply(double (&sum)[4], const A &a, const B &b, int half)
    {
        CELL_UNROLL
        for (int r = 0; r < 4; r++)
            cell_mma_double(sum[r % 2 * 2], sum[r % 2 * 2 + 1], a.x[r], b.x[half][r / 2]);
    }
};

// sums [16 Down, Columns] += A B over Terms, by a warp. load_a(A &, block of 16 rows, first term); of B a row
// has `pitch` elements, and `width` columns are there: those behind it stay as they are.
template <class T, bool Across, int Terms, int Columns, int Down, class Sum, class LoadA>
__device__ __forceinline__ void cell_attention_add(Sum (&sums)[Down][Columns / 8][4], LoadA load_a,
                                                   cell_smem<T> b, int pitch, int width = Columns)
{
    typedef cell_attention_fragments<T> F;
    constexpr int run = sizeof(T) == 4 ? (Terms % 32 ? 16 : 32) : F::depth, turns = run / F::depth;
    CELL_UNROLL
    for (int from = 0; from < Terms; from += run) {
        typename F::A a[turns][Down];
        CELL_UNROLL
        for (int k = 0; k < turns; k++) {
            CELL_UNROLL
            for (int d = 0; d < Down; d++)
                load_a(a[k][d], d, from + k * F::depth);
        }
        CELL_UNROLL
        for (int n = 0; n < Columns; n += 16) {
            if (n >= width)
                break;
            Sum part[Down][2][4];
            CELL_UNROLL
            for (int i = 0; i < Down * 8; i++)
                part[i / 8][i / 4 % 2][i % 4] =
                    sizeof(T) == 4 ? (Sum)0 : sums[i / 8][n / 8 + i / 4 % 2][i % 4];
            CELL_UNROLL
            for (int k = 0; k < turns; k++) {
                typename F::B fragment;
                const int term = from + k * F::depth;
                F::template load_b<Across>(fragment, b + (Across ? term * pitch + n : n * pitch + term),
                                           pitch);
                CELL_UNROLL
                for (int i = 0; i < Down * 2; i++)
                    F::multiply(part[i / 2][i % 2], a[k][i / 2], fragment, i % 2);
            }
            CELL_UNROLL
            for (int i = 0; i < Down * 8; i++) {
                Sum &to = sums[i / 8][n / 8 + i / 4 % 2][i % 4];
                to = sizeof(T) == 4 ? to + part[i / 8][i / 4 % 2][i % 4] : part[i / 8][i / 4 % 2][i % 4];
            }
        }
    }
}

template <int Down, int Tiles, class Sum>
__device__ __forceinline__ void cell_attention_clear(Sum (&sums)[Down][Tiles][4])
{
    CELL_UNROLL
    for (int i = 0; i < Down * Tiles * 4; i++)
        sums[i / (Tiles * 4)][i / 4 % Tiles][i % 4] = 0;
}

// ---- operands ----

// The place of row `row` of queries, or of key j: an offset in elements.
struct cell_attention_place_of_row {
    int64_t row, head;
    int group;
    __device__ __forceinline__ int64_t operator()(int n) const
    {
        return group == 1 ? n * row : n / group * row + n % group * head;
    }
};
struct cell_attention_place_of_key {
    int64_t row;
    int begin, page;
    const int32_t *pages;
    __device__ __forceinline__ int64_t operator()(int j) const
    {
        return pages ? ((int64_t)pages[(j - begin) / page] * page + (j - begin) % page) * row : j * row;
    }
};

template <class M>
__device__ __forceinline__ typename M::Real cell_attention_load(const cell_attention_rows &x, int64_t offset)
{
    typedef typename M::Real R;
    return x.real ? ((const R *)x.at)[offset] : cell_load<R>((const typename M::Store *)x.at + offset);
}

// Rows of `extent` elements may be copied 16 bytes at a time.
template <class M>
__device__ __forceinline__ bool cell_attention_vectors(const cell_attention_rows &x, int64_t extent)
{
    typedef typename M::Store S;
    return x.element == 1 && (!x.real || sizeof(S) == sizeof(typename M::Real)) &&
           (((int64_t)(uintptr_t)x.at | x.row * (int64_t)sizeof(S) | x.head * (int64_t)sizeof(S) |
             extent * (int64_t)sizeof(S)) &
            15) == 0;
}

// Rows [first, first + Rows) to shared memory, Width elements from element `from` on, zeros from row `end`
// and from element `extent` on. Copies may be under way when it returns: the caller commits and waits.
template <class M, int Rows, int Width, class Place>
__device__ __forceinline__ void cell_attention_fetch(cell_smem<typename M::Store> to,
                                                     const cell_attention_rows &x, bool vectors, Place place,
                                                     int first, int end, int from, int64_t extent)
{
    typedef typename M::Store S;
    constexpr int pitch = Width + 16 / (int)sizeof(S);
    if (vectors) {
        constexpr int each = 16 / (int)sizeof(S), pieces = Width / each;
        const S *const at = (const S *)x.at;
        CELL_UNROLL_BY(4)
        for (int e = cell_thread(); e < Rows * pieces; e += CELL_ATTENTION_THREADS) {
            const int row = e / pieces, k = e % pieces * each;
            const bool valid = first + row < end && from + k < extent;
            cell_cp_async_zfill<16>(to + (row * pitch + k), at + (valid ? place(first + row) + from + k : 0),
                                    valid);
        }
    } else {
        CELL_UNROLL_BY(1)
        for (int e = cell_thread(); e < Rows * Width; e += CELL_ATTENTION_THREADS) {
            const int row = e / Width, k = e % Width;
            const bool valid = first + row < end && from + k < extent;
            const typename M::Real v =
                valid ? cell_attention_load<M>(x, place(first + row) + (from + k) * x.element)
                      : (typename M::Real)0;
            cell_store(to + (row * pitch + k), v);
        }
    }
}

// ---- the order of tiles ----

// Tiles of `Others` keys that steps [i0, i1) may take, segment by segment.
template <class M, int Others> struct cell_attention_cursor {
    const cell_attention<M> &x;
    int i0, i1, segment, j, end;
    __device__ __forceinline__ cell_attention_cursor(const cell_attention<M> &of, int from, int to)
        : x(of), i0(from), i1(to), segment(-1), j(0), end(0)
    {
        settle();
    }
    __device__ __forceinline__ bool there() const
    {
        return segment < M::segments;
    }
    __device__ __forceinline__ void next()
    {
        j += Others;
        settle();
    }
    __device__ __forceinline__ bool all() const
    {
        return j + Others <= end && M::all(x.uses, segment, i0, i1, j, j + Others);
    }

  private:
    __device__ __forceinline__ void settle()
    {
        for (;;) {
            while (j >= end) {
                if (++segment >= M::segments)
                    return;
                j = x.segment[segment].begin, end = x.segment[segment].end;
                if (i0 < i1)
                    M::keys_of(x.uses, segment, i0, i1, j, end);
                else
                    end = j;
            }
            const int last = j + Others < end ? j + Others : end;
            if (!M::none(x.uses, segment, i0, i1, j, last))
                return;
            j += Others;
        }
    }
};

// ---- rows of a block, as a warp has them ----

// Of block d of 16 rows, half h: the row's number, which is below `rows` or not, and its step and query head.
// Rows behind the last are taken for the last one, and their results for nothing.
template <int Down> struct cell_attention_own {
    int row[Down][2], i[Down][2], r[Down][2];
    __device__ __forceinline__ cell_attention_own(int first, int rows, int group)
    {
        CELL_UNROLL
        for (int n = 0; n < Down * 2; n++) {
            const int number = first + n / 2 * 64 + cell_warp() * 16 + n % 2 * 8 + cell_lane() / 4;
            const int safe = number < rows ? number : rows - 1;
            row[n / 2][n % 2] = number;
            i[n / 2][n % 2] = group == 1 ? safe : safe / group;
            r[n / 2][n % 2] = group == 1 ? 0 : safe % group;
        }
    }
};

// Sums over the four threads that have a row.
template <class R> __device__ __forceinline__ R cell_attention_row_sum(R v)
{
    v += cell_shfl_xor(v, 1);
    return v + cell_shfl_xor(v, 2);
}

template <class M>
__device__ __forceinline__ void cell_attention_put(const cell_attention_result &x, int64_t offset,
                                                   typename M::Real v)
{
    typedef typename M::Real R;
    typedef typename M::Store S;
    if (x.real) {
        R *const p = (R *)x.at + offset;
        *p = x.adds ? *p + v : v;
    } else {
        S *const p = (S *)x.at + offset;
        cell_store(p, x.adds ? cell_load<R>(p) + v : v);
    }
}

// Sums of a warp, those of columns below `extent` of element `from` on, to the rows of a result. place(row)
// is an offset.
template <class M, int Down, int Tiles, class Place>
__device__ __forceinline__ void
cell_attention_store(const cell_attention_result &to, typename M::Real (&sums)[Down][Tiles][4],
                     const int (&row)[Down][2], int rows, Place place, int from, int64_t extent)
{
    typedef typename M::Real R;
    typedef typename M::Store S;
    if (!to.at)
        return;
    const bool pairs = to.element == 1 && !to.adds && !to.real && sizeof(S) == 2 &&
                       (((int64_t)(uintptr_t)to.at | to.row * 2 | to.head * 2 | extent * 2) & 3) == 0;
    CELL_UNROLL
    for (int n = 0; n < Down * 2; n++) {
        const int at = row[n / 2][n % 2];
        if (at >= rows)
            continue;
        const int64_t offset = place(at);
        CELL_UNROLL
        for (int t = 0; t < Tiles; t++) {
            const int column = from + t * 8 + cell_lane() % 4 * 2;
            const R two[2] = { sums[n / 2][t][n % 2 * 2], sums[n / 2][t][n % 2 * 2 + 1] };
            if (pairs) {
                if (column < extent)
                    cell_store_vec<2>((S *)to.at + offset + column, two);
            } else {
                CELL_UNROLL
                for (int e = 0; e < 2; e++)
                    if (column + e < extent)
                        cell_attention_put<M>(to, offset + (column + e) * to.element, two[e]);
            }
        }
    }
}

__device__ __forceinline__ cell_attention_place_of_row cell_attention_row_place(const cell_attention_rows &x,
                                                                                int group)
{
    return { x.row, x.head, group };
}
__device__ __forceinline__ cell_attention_place_of_row
cell_attention_row_place(const cell_attention_result &x, int group)
{
    return { x.row, x.head, group };
}
template <class M>
__device__ __forceinline__ cell_attention_place_of_key
cell_attention_key_place(const cell_attention_segment<M> &s, const cell_attention_rows &x)
{
    return { x.row, s.begin, s.page, s.pages };
}

// 2^v, and the logarithm.
__device__ __forceinline__ float cell_attention_power(float v)
{
    return cell_detail_ex2_approx(v);
}
__device__ __forceinline__ double cell_attention_power(double v)
{
    return exp2(v);
}
__device__ __forceinline__ float cell_attention_log(float v)
{
    return log2f(v);
}
__device__ __forceinline__ double cell_attention_log(double v)
{
    return log2(v);
}

#endif
