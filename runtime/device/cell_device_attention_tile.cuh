// What attention's kernels share: fragments, tiles in shared memory, and the order of tiles.
//
// In: the operands of cell_device_attention.cuh. Out: products of tiles by warps, of which each has 16 rows
// of every 64; tiles of rows in shared memory, zeros behind their ends. Guaranteed: products of float are
// added in f32 after every 32 terms, since tensor cores cut off what f32 would round.
#ifndef CELL_DEVICE_ATTENTION_TILE_CUH
#define CELL_DEVICE_ATTENTION_TILE_CUH

// A matrix in shared memory, rows behind rows. With a gap behind each row, so that the rows of a fragment
// meet in no bank; or in boxes of 64 columns, whose rows are 128 bytes and have their eighths exchanged by
// row, as wgmma reads them: these begin at multiples of 1024 bytes.
template <class T, int Rows, int Width, bool Boxed> struct cell_attention_matrix {
    static constexpr int pitch = Width + 16 / (int)sizeof(T), box = Rows * CELL_ATTENTION_BOX,
                         elements = Boxed ? Rows * Width : Rows * pitch;
    cell_smem<T> at;
    __device__ __forceinline__ cell_smem<T> place(int row, int k) const
    {
        if constexpr (Boxed)
            return at + (k / CELL_ATTENTION_BOX * box + row * CELL_ATTENTION_BOX + ((k / 8 ^ row) & 7) * 8 +
                         k % 8);
        else
            return at + (row * pitch + k);
    }
};

// The block's shared memory; where boxes are, its first multiple of 1024 bytes (the emulator's code does not
// ask for it, and reads boxes as it does other rows).
template <class F> __device__ __forceinline__ unsigned char *cell_attention_memory()
{
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
    if constexpr (F::boxed)
        return cell_shared() + (-(uint32_t)__cvta_generic_to_shared(cell_shared()) & 1023);
#endif
    return cell_shared();
}

// Fragments. A: 16 rows and `depth` terms, B: as many terms and 16 columns. Sums are fragments of 16 rows and
// 8 columns: of them a thread has elements (lane / 4, lane % 4 * 2), the next column, and the same 8 rows
// below. A comes from shared memory, or is depth / 8 fragments of sums; where terms have another order in
// these, B across has the same one. So a B across is multiplied by sums, and a B that is not by what was
// loaded. Of a matrix, element (term, column) of B stands in row `column`, or, across, in row `term`.
template <class T> struct cell_attention_fragments { // bf16, f16
    typedef float Sum;
    static constexpr int depth = 16;
    typedef cell_mma_a<T> A;
    struct B {
        uint32_t x[4];
    };
    template <class Matrix>
    __device__ __forceinline__ static void load_a(A &a, const Matrix &m, int row, int term)
    {
        cell_load_matrices<false>(a.x, m.place(row + cell_lane() % 16, term + cell_lane() / 16 * 8));
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
    template <bool Across, class Matrix>
    __device__ __forceinline__ static void load_b(B &b, const Matrix &m, int term, int column)
    {
        const int lane = cell_lane();
        if constexpr (Across)
            cell_load_matrices<true>(b.x, m.place(term + lane % 16, column + lane / 16 * 8));
        else
            cell_load_matrices<false>(b.x,
                                      m.place(column + lane % 8 + lane / 16 * 8, term + lane / 8 % 2 * 8));
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
    template <class Matrix>
    __device__ __forceinline__ static void load_a(A &a, const Matrix &m, int row, int term)
    {
        make_a(a, [&](int i, int k) -> float { return m.place(row + i, term + k)[0]; });
    }
    __device__ __forceinline__ static void take_a(A &a, const float (*sums)[4])
    {
        CELL_UNROLL
        for (int r = 0; r < 4; r++)
            put_a(a, r, sums[0][r % 2 * 2 + r / 2]);
    }
    template <bool Across, class Matrix>
    __device__ __forceinline__ static void load_b(B &b, const Matrix &m, int term, int column)
    {
        CELL_UNROLL
        for (int half = 0; half < 2; half++) {
            CELL_UNROLL
            for (int r = 0; r < 2; r++) {
                const int n = column + half * 8 + cell_lane() / 4, inner = cell_lane() % 4;
                const float v =
                    (Across ? m.place(term + inner * 2 + r, n) : m.place(n, term + inner + r * 4))[0];
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
    template <class Matrix>
    __device__ __forceinline__ static void load_a(A &a, const Matrix &m, int row, int term)
    {
        make_a(a, [&](int i, int k) -> double { return m.place(row + i, term + k)[0]; });
    }
    __device__ __forceinline__ static void take_a(A &a, const double (*sums)[4])
    {
        CELL_UNROLL
        for (int r = 0; r < 4; r++)
            a.x[r] = sums[0][r % 2 * 2 + r / 2];
    }
    template <bool Across, class Matrix>
    __device__ __forceinline__ static void load_b(B &b, const Matrix &m, int term, int column)
    {
        CELL_UNROLL
        for (int half = 0; half < 2; half++) {
            CELL_UNROLL
            for (int r = 0; r < 2; r++) {
                const int n = column + half * 8 + cell_lane() / 4, inner = cell_lane() % 4;
                b.x[half][r] =
                    (Across ? m.place(term + inner * 2 + r, n) : m.place(n, term + inner + r * 4))[0];
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

// sums [16, 8 Tiles] += A B over Terms, by a warp. load_a(A &, first term); columns from `from` on of the
// matrix, of which `width` are there: sums of those behind them stay as they are.
template <class T, bool Across, int Terms, int Tiles, class Sum, class LoadA, class Matrix>
__device__ __forceinline__ void cell_attention_add(Sum (&sums)[Tiles][4], LoadA load_a, const Matrix &b,
                                                   int from, int width)
{
    typedef cell_attention_fragments<T> F;
    constexpr int run = sizeof(T) == 4 ? (Terms % 32 ? 16 : 32) : F::depth, turns = run / F::depth;
    CELL_UNROLL
    for (int first = 0; first < Terms; first += run) {
        typename F::A a[turns];
        CELL_UNROLL
        for (int k = 0; k < turns; k++)
            load_a(a[k], first + k * F::depth);
        CELL_UNROLL
        for (int n = 0; n < Tiles * 8; n += 16) {
            if (n >= width)
                break;
            Sum part[2][4];
            CELL_UNROLL
            for (int i = 0; i < 8; i++)
                part[i / 4][i % 4] = sizeof(T) == 4 ? (Sum)0 : sums[n / 8 + i / 4][i % 4];
            CELL_UNROLL
            for (int k = 0; k < turns; k++) {
                typename F::B fragment;
                F::template load_b<Across>(fragment, b, first + k * F::depth, from + n);
                F::multiply(part[0], a[k], fragment, 0);
                F::multiply(part[1], a[k], fragment, 1);
            }
            CELL_UNROLL
            for (int i = 0; i < 8; i++) {
                Sum &to = sums[n / 8 + i / 4][i % 4];
                to = sizeof(T) == 4 ? to + part[i / 4][i % 4] : part[i / 4][i % 4];
            }
        }
    }
}

template <int Tiles, class Sum> __device__ __forceinline__ void cell_attention_clear(Sum (&sums)[Tiles][4])
{
    CELL_UNROLL
    for (int i = 0; i < Tiles * 4; i++)
        sums[i / 4][i % 4] = 0;
}

// Products of boxes by wgmma: a warpgroup has 64 rows of sums. What is begun and committed is done, and may
// be read and its operands written, behind a wait. Elsewhere it is done at once.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
template <class F> constexpr bool cell_attention_by_groups = F::boxed;

// The first of 16 terms at an address: 1024 bytes between every 8 rows, lines of 128 bytes exchanged by row.
// Of an operand across with 128 columns, `next` bytes between its boxes.
template <class T> __device__ __forceinline__ uint64_t cell_attention_operand(const T *p, int next = 16)
{
    return (uint64_t)(1u << 30 | 1024 >> 4) << 32 |
           ((uint32_t)next >> 4 << 16 | (uint32_t)__cvta_generic_to_shared(p) >> 4);
}

#define CELL_DETAIL_32                                                                                       \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "   \
    "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define CELL_DETAIL_64                                                                                       \
    CELL_DETAIL_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
                   "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define CELL_DETAIL_FOUR(c) "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
#define CELL_DETAIL_EIGHT(c)                                                                                 \
    CELL_DETAIL_FOUR(c[0]), CELL_DETAIL_FOUR(c[1]), CELL_DETAIL_FOUR(c[2]), CELL_DETAIL_FOUR(c[3]),          \
        CELL_DETAIL_FOUR(c[4]), CELL_DETAIL_FOUR(c[5]), CELL_DETAIL_FOUR(c[6]), CELL_DETAIL_FOUR(c[7])
#define CELL_DETAIL_SIXTEEN(c) CELL_DETAIL_EIGHT(c), CELL_DETAIL_EIGHT((c + 8))
// C [64, 8 Tiles] (+)= A B, of A in shared memory and B whose rows are columns of C; of A in registers and B
// across.
#define CELL_DETAIL_GROUP(T, type, tiles, columns, sums, all, a0, a1, a2, a3, a4)                            \
    __device__ __forceinline__ void cell_attention_group(T, cell_attention_columns<tiles>, float(*c)[4],     \
                                                         uint64_t a, uint64_t b, bool adds)                  \
    {                                                                                                        \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " a2 ", 0; "                                            \
                     "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " {" sums "}, " a0 \
                     ", " a1 ", p, 1, 1, 0, 0; }"                                                            \
                     : all(c)                                                                                \
                     : "l"(a), "l"(b), "r"((int)adds));                                                      \
    }                                                                                                        \
    __device__ __forceinline__ void cell_attention_group(T, cell_attention_columns<tiles>, float(*c)[4],     \
                                                         const uint32_t(&a)[4], uint64_t b)                  \
    {                                                                                                        \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." type "." type " {" sums          \
                     "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " a4 ", 1, 1, 1, 1;"                              \
                     : all(c)                                                                                \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                  \
    }
#define CELL_DETAIL_GROUPS(T, type)                                                                          \
    CELL_DETAIL_GROUP(T, type, 8, "64", CELL_DETAIL_32, CELL_DETAIL_EIGHT, "%32", "%33", "%34", "%35",       \
                      "%36")                                                                                 \
    CELL_DETAIL_GROUP(T, type, 16, "128", CELL_DETAIL_64, CELL_DETAIL_SIXTEEN, "%64", "%65", "%66", "%67",   \
                      "%68")
template <int Tiles> struct cell_attention_columns {
};
CELL_DETAIL_GROUPS(cell_bf16, "bf16")
CELL_DETAIL_GROUPS(cell_f16, "f16")
#undef CELL_DETAIL_GROUPS
#undef CELL_DETAIL_GROUP
#undef CELL_DETAIL_SIXTEEN
#undef CELL_DETAIL_EIGHT
#undef CELL_DETAIL_FOUR
#undef CELL_DETAIL_64
#undef CELL_DETAIL_32

template <class F> __device__ __forceinline__ void cell_attention_commit()
{
    if constexpr (F::boxed)
        cell_tile_commit();
}
template <class F, int N> __device__ __forceinline__ void cell_attention_wait()
{
    if constexpr (F::boxed)
        cell_tile_wait<N>();
}
#else
template <class F> constexpr bool cell_attention_by_groups = false;
template <class F> __device__ __forceinline__ void cell_attention_commit()
{
}
template <class F, int N> __device__ __forceinline__ void cell_attention_wait()
{
}
#endif

// Do some of the block's warps only copy? Else all copy, and those of them that have no rows do nothing else.
template <class F> constexpr bool cell_attention_apart = cell_attention_by_groups<F> &&F::copiers > 0;
// Threads that copy what the block owns, the first ones.
template <class F>
constexpr int cell_attention_owners = cell_attention_apart<F> ? F::threads - F::copiers : F::threads;

// What a block owns, in shared memory, as the left operand: the warp's rows of it.
template <class T, class Matrix> struct cell_attention_staged {
    typedef cell_attention_fragments<T> Fragments;
    Matrix matrix;
    __device__ __forceinline__ void load(typename Fragments::A &a, int term) const
    {
        Fragments::load_a(a, matrix, cell_warp() * 16, term);
    }
};

// sums = left right' over Terms: of pairs of rows.
template <class F, int Terms, class T, int Tiles, class Sum, class Left, int Rows>
__device__ __forceinline__ void
cell_attention_pairs(Sum (&sums)[Tiles][4], const Left &left,
                     const cell_attention_matrix<T, Rows, Terms, F::boxed> &right)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    if constexpr (F::boxed) {
        // The same for all of a warp, as the compiler sees: so the operands' addresses are in few registers.
        const uint64_t from = cell_attention_operand(left.matrix.at + cell_shfl(cell_warp(), 0) / 4 * 4096),
                       to = cell_attention_operand(right.at);
        cell_tile_begin();
        CELL_UNROLL
        for (int term = 0; term < Terms; term += 16)
            cell_attention_group(T(), cell_attention_columns<Tiles>(), sums,
                                 from + (term / 64 * left.matrix.box + term % 64) / 8,
                                 to + (term / 64 * right.box + term % 64) / 8, term > 0);
        return;
    }
#endif
    cell_attention_clear(sums);
    cell_attention_add<T, false, Terms>(
        sums, [&](typename cell_attention_fragments<T>::A &a, int term) { left.load(a, term); }, right, 0,
        Tiles * 8);
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
template <class T, int Weights, class A>
__device__ __forceinline__ void cell_attention_pack(A (&a)[Weights / 2], const float (&weights)[Weights][4])
{
    CELL_UNROLL
    for (int i = 0; i < Weights / 2; i++)
        cell_attention_fragments<T>::take_a(a[i], &weights[i * 2]);
}
// What cell_attention_weighed does, of boxes, by wgmma.
template <class T, int Tiles, int Pieces, class A, class Matrix>
__device__ __forceinline__ void cell_attention_weighed_by(float (&sums)[Tiles][4], const A (&a)[Pieces],
                                                          const Matrix &right, int from)
{
    const uint64_t at = cell_attention_operand(right.at + from / 64 * right.box, right.box * 2);
    cell_tile_begin();
    CELL_UNROLL
    for (int i = 0; i < Pieces; i++)
        cell_attention_group(T(), cell_attention_columns<Tiles>(), sums, a[i].x, at + i * 1024 / 8);
}
#endif

// sums += weights right over the right's rows: columns from `from` on, of which `width` are there.
template <class F, class T, int Tiles, int Weights, class Sum, int Width>
__device__ __forceinline__ void
cell_attention_weighed(Sum (&sums)[Tiles][4], const Sum (&weights)[Weights][4],
                       const cell_attention_matrix<T, Weights * 8, Width, F::boxed> &right, int from,
                       int width)
{
    typedef cell_attention_fragments<T> Fragments;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    if constexpr (F::boxed) {
        typename Fragments::A a[Weights / 2];
        cell_attention_pack<T>(a, weights);
        cell_attention_weighed_by<T>(sums, a, right, from);
        return;
    }
#endif
    cell_attention_add<T, true, Weights * 8>(
        sums, [&](typename Fragments::A &a, int term) { Fragments::take_a(a, &weights[term / 8]); }, right,
        from, width);
}

// ---- operands ----

// The place of row `row` of queries, or of key j: an offset in elements; even: n * row.
struct cell_attention_place_of_row {
    int64_t row, head;
    int group;
    __device__ __forceinline__ bool even() const
    {
        return group == 1;
    }
    __device__ __forceinline__ int64_t operator()(int n) const
    {
        return group == 1 ? n * row : n / group * row + n % group * head;
    }
};
struct cell_attention_place_of_key {
    int64_t row;
    int begin, page;
    const int32_t *pages;
    __device__ __forceinline__ bool even() const
    {
        return !pages;
    }
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

// The number itself, of which a compiler knows nothing: so what is computed from it is computed where it is
// needed, and takes no register over a loop around it.
__device__ __forceinline__ int cell_attention_opaque(int v)
{
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
    asm volatile("" : "+r"(v));
#endif
    return v;
}

// Rows [first, first + Rows) to shared memory, Width elements from element `from` on, zeros from row `end`
// and from element `extent` on, by all `Threads`, of which this is
// `thread`. Copies may be under way when it returns: the caller commits and waits.
template <class M, int Threads, int Rows, int Width, bool Boxed, class Place>
__device__ __forceinline__ void
cell_attention_fetch(const cell_attention_matrix<typename M::Store, Rows, Width, Boxed> &to,
                     const cell_attention_rows &x, bool vectors, Place place, int first, int end, int from,
                     int64_t extent, int thread)
{
    typedef typename M::Store S;
    constexpr int each = 16 / (int)sizeof(S), pieces = Width / each;
    if (vectors && Threads % pieces == 0 && place.even()) {
        constexpr int step = Threads / pieces; // rows between those that a thread copies
        const int row = thread / pieces, k = thread % pieces * each, left = end - first;
        const bool inside = from + k < extent;
        const S *p = (const S *)x.at + (first + row) * place.row + (from + k);
        CELL_UNROLL
        for (int n = 0; n < Rows; n += step) {
            const bool valid = inside && row + n < left;
            if (Rows % step == 0 || row + n < Rows)
                cell_cp_async_zfill<16>(to.place(row + n, k), valid ? p : (const S *)x.at, valid);
            p += step * place.row;
        }
    } else if (vectors) {
        const S *const at = (const S *)x.at;
        CELL_UNROLL_BY(1)
        for (int e = thread; e < Rows * pieces; e += Threads) {
            const int row = e / pieces, k = e % pieces * each;
            const bool valid = first + row < end && from + k < extent;
            cell_cp_async_zfill<16>(to.place(row, k), at + (valid ? place(first + row) + from + k : 0),
                                    valid);
        }
    } else {
        CELL_UNROLL_BY(1)
        for (int e = thread; e < Rows * Width; e += Threads) {
            const int row = e / Width, k = e % Width;
            const bool valid = first + row < end && from + k < extent;
            const typename M::Real v =
                valid ? cell_attention_load<M>(x, place(first + row) + (from + k) * x.element)
                      : (typename M::Real)0;
            cell_store(to.place(row, k), v);
        }
    }
}

// Rows that a block owns, an operand of Width elements: in shared memory, or where the caller has them.
template <class M, class Place> struct cell_attention_unstaged {
    typedef cell_attention_fragments<typename M::Store> Fragments;
    const cell_attention_rows &x;
    Place place;
    int first, end;
    int64_t extent;
    __device__ __forceinline__ void load(typename Fragments::A &a, int term) const
    {
        Fragments::make_a(a, [&](int i, int k) {
            const int at = first + cell_warp() * 16 + i;
            return at < end && term + k < extent
                       ? cell_attention_load<M>(x, place(at) + (term + k) * x.element)
                       : (typename M::Real)0;
        });
    }
};
template <class M, class F, int Width> struct cell_attention_owned {
    typedef typename M::Store S;
    typedef cell_attention_matrix<S, F::own, Width, F::boxed> Matrix;
    Matrix matrix;
    __device__ __forceinline__ explicit cell_attention_owned(unsigned char *&cursor)
        : matrix{ cell_carve<S>(cursor, F::staged ? Matrix::elements : 0) }
    {
    }
    // Begins copies, of which the caller closes the group; gives what the products take.
    template <class Place>
    __device__ __forceinline__ auto fetch(const cell_attention_rows &x, Place place, int first, int end,
                                          int64_t extent) const
    {
        if constexpr (F::staged) {
            cell_attention_fetch<M, cell_attention_owners<F>>(matrix, x, cell_attention_vectors<M>(x, extent),
                                                              place, first, end, 0, extent, cell_thread());
            return cell_attention_staged<S, Matrix>{ matrix };
        } else {
            return cell_attention_unstaged<M, Place>{ x, place, first, end, extent };
        }
    }
};

// ---- the order of tiles ----

// Calls body(x.segment[segment]) with a number that is known where it is compiled, so that x stays in
// registers, and what is the same for all calls is known of each segment.
template <class M, class Body>
__device__ __forceinline__ void cell_attention_of_segment(const cell_attention<M> &x, int segment, Body body)
{
    CELL_UNROLL
    for (int n = 0; n < M::segments; n++)
        if (M::segments == 1 || n == segment)
            body(x.segment[n]);
}

// The least i that is not negative with `rest` added, of those that an int can be.
__device__ __forceinline__ int cell_attention_bound(int64_t rest)
{
    const int64_t least = -rest, most = 0x7fffffff;
    return (int)(least < -most ? -most : least > most ? most : least);
}

// Tiles of `Others` keys that steps [i0, i1) may take, segment by segment.
template <class M, int Others> struct cell_attention_cursor {
    int i0, i1, segment, j, end;
    __device__ __forceinline__ cell_attention_cursor()
    {
    }
    __device__ __forceinline__ cell_attention_cursor(const cell_attention<M> &x, int from, int to)
        : i0(from), i1(to), segment(-1), j(0), end(0)
    {
        settle(x);
    }
    __device__ __forceinline__ bool there() const
    {
        return segment < M::segments;
    }
    __device__ __forceinline__ void next(const cell_attention<M> &x)
    {
        j += Others;
        settle(x);
    }
    __device__ __forceinline__ bool all(const cell_attention<M> &x) const
    {
        return j + Others <= end && M::all(x.uses, segment, i0, i1, j, j + Others);
    }

  private:
    __device__ __forceinline__ void settle(const cell_attention<M> &x)
    {
        for (;;) {
            while (j >= end) {
                if (++segment >= M::segments)
                    return;
                cell_attention_of_segment(x, segment, [&](const cell_attention_segment<M> &s) {
                    j = s.begin, end = s.end;
                });
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

// Of the warp's 16 rows the two that a thread has: their numbers, which are below `rows` or not, steps and
// query heads. Rows behind the last are taken for the last one, and their results for nothing.
struct cell_attention_own {
    int row[2], i[2], r[2];
    __device__ __forceinline__ cell_attention_own(int first, int rows, int group)
    {
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            const int number = first + cell_warp() * 16 + h * 8 + cell_lane() / 4;
            const int safe = number < rows ? number : rows - 1;
            row[h] = number;
            i[h] = group == 1 ? safe : safe / group;
            r[h] = group == 1 ? 0 : safe % group;
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
template <class M, int Tiles, class Place>
__device__ __forceinline__ void cell_attention_store(const cell_attention_result &to,
                                                     typename M::Real (&sums)[Tiles][4], const int (&row)[2],
                                                     int rows, Place place, int from, int64_t extent)
{
    typedef typename M::Real R;
    typedef typename M::Store S;
    if (!to.at)
        return;
    const bool pairs = to.element == 1 && !to.adds && !to.real && sizeof(S) == 2 &&
                       (((int64_t)(uintptr_t)to.at | to.row * 2 | to.head * 2 | extent * 2) & 3) == 0;
    CELL_UNROLL
    for (int h = 0; h < 2; h++) {
        const int at = row[h];
        if (at >= rows)
            continue;
        const int64_t offset = place(at);
        CELL_UNROLL
        for (int t = 0; t < Tiles; t++) {
            const int column = from + t * 8 + cell_lane() % 4 * 2;
            const R two[2] = { sums[t][h * 2], sums[t][h * 2 + 1] };
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
