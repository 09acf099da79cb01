// Sums of products of matrices in shared memory by the warps of a block, in registers (schedule chunk).
//
// In: matrices of double, float, cell_bf16 or cell_f16. Out: a tile of sums, of double for double and else of
// float, as fragments of 16 x 8, of which each thread has four elements: each() says which. Tensor cores
// multiply: bf16 and f16 as they are, float as three products of two TF32 numbers each, which lose no more
// than some units of f32, double as double. Guaranteed: the order of sums depends on the sizes only. Calls
// are made by all warps of the block.
#ifndef CELL_DEVICE_CHUNK_TILE_CUH
#define CELL_DEVICE_CHUNK_TILE_CUH

// A matrix in shared memory. Element (i, j) stands at at[i * pitch + j], or, where Across, at at[j * pitch +
// i].
template <class T, bool Across = false> struct cell_chunk_matrix {
    typedef T element;
    cell_smem<T> at;
    int pitch;
    __device__ __forceinline__ cell_smem<T> place(int i, int j) const
    {
        return Across ? at + j * pitch + i : at + i * pitch + j;
    }
    __device__ __forceinline__ cell_chunk_matrix<T, !Across> across() const { return {at, pitch}; }
};

// Elements from a line of a matrix to the next: 16 bytes more than the line, so that fragments meet few banks
// twice.
template <class T> __host__ __device__ constexpr int cell_chunk_pitch(int columns)
{
    return columns + 16 / (int)sizeof(T);
}

// Fragments: A of 16 rows and `depth` columns, B of `depth` rows and 8 columns. lanes_a, lanes_b: what a lane
// knows of a matrix from some row, or term, and column on; load_a and load_b take fragments by their distance
// from there, so that the lane's part of addresses is made once. load_two: two neighbours of B, columns from
// `column` and from column + 8 on. keep: elements of A, of which is(row, column) is not so, become 0. make_b:
// B is from(k, column).

// Where a lane knows no more than the matrix.
#define CELL_CHUNK_LANES(T)                                                                                  \
    template <bool Across>                                                                                   \
    __device__ __forceinline__ static cell_chunk_matrix<T, Across> lanes_a(                                  \
        const cell_chunk_matrix<T, Across> &m, int row, int k)                                               \
    {                                                                                                        \
        return {m.place(row, k), m.pitch};                                                                   \
    }                                                                                                        \
    template <bool Across>                                                                                   \
    __device__ __forceinline__ static cell_chunk_matrix<T, Across> lanes_b(                                  \
        const cell_chunk_matrix<T, Across> &m, int k, int column)                                            \
    {                                                                                                        \
        return {m.place(k, column), m.pitch};                                                                \
    }                                                                                                        \
    template <bool Across>                                                                                   \
    __device__ __forceinline__ static void load_two(cell_chunk_fragments &one, cell_chunk_fragments &next,   \
                                                    const cell_chunk_matrix<T, Across> &m, int k,            \
                                                    int column)                                              \
    {                                                                                                        \
        one.load_b(m, k, column);                                                                            \
        next.load_b(m, k, column + 8);                                                                       \
    }

template <class T> struct cell_chunk_fragments { // bf16, f16
    typedef float Sum;
    static constexpr int depth = 16;
    cell_mma_a<T> a;
    cell_mma_b<T> b;
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
    template <bool Across> struct lanes { // of a matrix: an address in shared memory, bytes
        uint32_t at;
        int pitch;
        __device__ __forceinline__ uint32_t place(int i, int j) const
        {
            return at + (uint32_t)((Across ? j * pitch + i : i * pitch + j) * (int)sizeof(T));
        }
    };
    template <bool Across>
    __device__ __forceinline__ static lanes<Across> lanes_at(const cell_chunk_matrix<T, Across> &m, int i,
                                                             int j)
    {
        return {(uint32_t)__cvta_generic_to_shared(m.place(i, j)), m.pitch};
    }
    template <bool Across>
    __device__ __forceinline__ static lanes<Across> lanes_a(const cell_chunk_matrix<T, Across> &m, int row,
                                                            int k)
    {
        const int lane = cell_lane(), inner = lane % 8, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
        return Across ? lanes_at(m, row + low, k + high + inner) : lanes_at(m, row + low + inner, k + high);
    }
    template <bool Across>
    __device__ __forceinline__ static lanes<Across> lanes_b(const cell_chunk_matrix<T, Across> &m, int k,
                                                            int column)
    {
        const int lane = cell_lane(), inner = lane % 8, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
        return Across ? lanes_at(m, k + low, column + high + inner)
                      : lanes_at(m, k + low + inner, column + high);
    }
    template <bool Trans>
    __device__ __forceinline__ static void load_four(uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d,
                                                     uint32_t from)
    {
        if (Trans)
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                         : "r"(from)
                         : "memory");
        else
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                         : "r"(from)
                         : "memory");
    }
    template <bool Across>
    __device__ __forceinline__ void load_a(const lanes<Across> &m, int row, int k)
    {
        load_four<Across>(a.x[0], a.x[1], a.x[2], a.x[3], m.place(row, k));
    }
    template <bool Across>
    __device__ __forceinline__ void load_b(const lanes<Across> &m, int k, int column)
    {
        const uint32_t from = m.place(k, column);
        if (Across)
            asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                         : "=r"(b.x[0]), "=r"(b.x[1])
                         : "r"(from)
                         : "memory");
        else
            asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                         : "=r"(b.x[0]), "=r"(b.x[1])
                         : "r"(from)
                         : "memory");
    }
    template <bool Across>
    __device__ __forceinline__ static void load_two(cell_chunk_fragments &one, cell_chunk_fragments &next,
                                                    const lanes<Across> &m, int k, int column)
    {
        load_four<!Across>(one.b.x[0], one.b.x[1], next.b.x[0], next.b.x[1], m.place(k, column));
    }
    template <bool Across>
    __device__ __forceinline__ void load_a(const cell_chunk_matrix<T, Across> &m, int row, int k)
    {
        load_a(lanes_a(m, row, k), 0, 0);
    }
#else
    CELL_CHUNK_LANES(T)
    template <bool Across> void load_a(const cell_chunk_matrix<T, Across> &m, int row, int k)
    {
        cell_mma_load_a(a, m.place(row, k), Across ? 1 : m.pitch, Across ? m.pitch : 1);
    }
    template <bool Across> void load_b(const cell_chunk_matrix<T, Across> &m, int k, int column)
    {
        cell_mma_load_b(b, m.place(k, column), Across ? m.pitch : 1, Across ? 1 : m.pitch);
    }
#endif
    template <class From> __device__ __forceinline__ void make_b(From from, int k, int column)
    {
        CELL_UNROLL
        for (int r = 0; r < 2; r++) {
            const int at = k + cell_mma_inner<T>(r), j = column + cell_lane() / 4;
            b.x[r] = cell_pack<T>(from(at, j), from(at + 1, j));
        }
    }
    template <class Is> __device__ __forceinline__ static void keep(cell_mma_a<T> &x, Is is)
    {
        CELL_UNROLL
        for (int r = 0; r < 4; r++) {
            const int row = cell_lane() / 4 + (r & 1) * 8, k = cell_mma_inner<T>(r >> 1);
            x.x[r] &= (is(row, k) ? 0xffffu : 0u) | (is(row, k + 1) ? 0xffff0000u : 0u);
        }
    }
    __device__ __forceinline__ void multiply(float (&sum)[4], const cell_mma_a<T> &x) const
    {
        cell_mma_c c = {{sum[0], sum[1], sum[2], sum[3]}};
        cell_mma(c, x, b);
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            sum[i] = c.x[i];
    }
    typedef cell_mma_a<T> A;
};

template <> struct cell_chunk_fragments<float> {
    typedef float Sum;
    static constexpr int depth = 8;
    struct A {
        cell_mma_a<cell_tf32> hi, lo;
    };
    A a;
    cell_mma_b<cell_tf32> hi, lo;
    CELL_CHUNK_LANES(float)
    template <bool Across>
    __device__ __forceinline__ void load_a(const cell_chunk_matrix<float, Across> &m, int row, int k)
    {
        CELL_UNROLL
        for (int r = 0; r < 4; r++) {
            const float v =
                m.place(row + cell_lane() / 4 + (r & 1) * 8, k + cell_mma_inner<cell_tf32>(r >> 1))[0];
            const cell_tf32_halves half(v);
            a.hi.x[r] = half.hi, a.lo.x[r] = half.lo;
        }
    }
    template <bool Across>
    __device__ __forceinline__ void load_b(const cell_chunk_matrix<float, Across> &m, int k, int column)
    {
        CELL_UNROLL
        for (int r = 0; r < 2; r++) {
            const float v = m.place(k + cell_mma_inner<cell_tf32>(r), column + cell_lane() / 4)[0];
            const cell_tf32_halves half(v);
            hi.x[r] = half.hi, lo.x[r] = half.lo;
        }
    }
    template <class From> __device__ __forceinline__ void make_b(From from, int k, int column)
    {
        CELL_UNROLL
        for (int r = 0; r < 2; r++) {
            const cell_tf32_halves half(from(k + cell_mma_inner<cell_tf32>(r), column + cell_lane() / 4));
            hi.x[r] = half.hi, lo.x[r] = half.lo;
        }
    }
    template <class Is> __device__ __forceinline__ static void keep(A &x, Is is)
    {
        CELL_UNROLL
        for (int r = 0; r < 4; r++)
            if (!is(cell_lane() / 4 + (r & 1) * 8, cell_mma_inner<cell_tf32>(r >> 1)))
                x.hi.x[r] = x.lo.x[r] = 0;
    }
    __device__ __forceinline__ void multiply(float (&sum)[4], const A &x) const
    {
        cell_mma_c c = {{sum[0], sum[1], sum[2], sum[3]}};
        cell_mma(c, x.lo, hi);
        cell_mma(c, x.hi, lo);
        cell_mma(c, x.hi, hi);
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            sum[i] = c.x[i];
    }
};

template <> struct cell_chunk_fragments<double> {
    typedef double Sum;
    static constexpr int depth = 4;
    CELL_CHUNK_LANES(double)
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
    struct A {
        double x[2];
    };
    A a;
    double b;
    template <bool Across>
    __device__ __forceinline__ void load_a(const cell_chunk_matrix<double, Across> &m, int row, int k)
    {
        a.x[0] = m.place(row + cell_lane() / 4, k + cell_lane() % 4)[0];
        a.x[1] = m.place(row + 8 + cell_lane() / 4, k + cell_lane() % 4)[0];
    }
    template <bool Across>
    __device__ __forceinline__ void load_b(const cell_chunk_matrix<double, Across> &m, int k, int column)
    {
        b = m.place(k + cell_lane() % 4, column + cell_lane() / 4)[0];
    }
    template <class From> __device__ __forceinline__ void make_b(From from, int k, int column)
    {
        b = from(k + cell_lane() % 4, column + cell_lane() / 4);
    }
    template <class Is> __device__ __forceinline__ static void keep(A &x, Is is)
    {
        CELL_UNROLL
        for (int i = 0; i < 2; i++)
            if (!is(cell_lane() / 4 + i * 8, cell_lane() % 4))
                x.x[i] = 0;
    }
    __device__ __forceinline__ void multiply(double (&sum)[4], const A &x) const
    {
        CELL_UNROLL
        for (int i = 0; i < 2; i++)
            asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                : "+d"(sum[2 * i]), "+d"(sum[2 * i + 1])
                : "d"(x.x[i]), "d"(b));
    }
#else
    struct A {
        double x[2][4];
    };
    A a;
    double b[2][4];
    template <bool Across> void load_a(const cell_chunk_matrix<double, Across> &m, int row, int k)
    {
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 4; j++)
                a.x[i][j] = m.place(row + cell_lane() / 4 + i * 8, k + j)[0];
    }
    template <bool Across> void load_b(const cell_chunk_matrix<double, Across> &m, int k, int column)
    {
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 4; j++)
                b[i][j] = m.place(k + j, column + cell_lane() % 4 * 2 + i)[0];
    }
    template <class From> void make_b(From from, int k, int column)
    {
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 4; j++)
                b[i][j] = from(k + j, column + cell_lane() % 4 * 2 + i);
    }
    template <class Is> static void keep(A &x, Is is)
    {
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 4; j++)
                if (!is(cell_lane() / 4 + i * 8, j))
                    x.x[i][j] = 0;
    }
    void multiply(double (&sum)[4], const A &x) const
    {
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++)
                sum[i] += x.x[i / 2][j] * b[i % 2][j];
    }
#endif
};

#undef CELL_CHUNK_LANES

// Rows x Columns sums, multiples of 16 and of 8. Warps share the rows, as far as there are 16 for each, then
// the columns. Warps of odd parts of the columns have the rows in the other order: a product of a triangle
// gives warps of the last rows the most, and warps that are row_warps apart may share a scheduler.
template <class Sum, int Rows, int Columns, int Threads> struct cell_chunk_tile {
    static constexpr int warps = Threads / 32, row_warps = Rows / 16 < warps ? Rows / 16 : warps,
                         column_warps = warps / row_warps;
    static constexpr int down = (Rows / 16 + row_warps - 1) / row_warps,
                         along = (Columns / 8 + column_warps - 1) / column_warps;
    Sum x[down][along][4];

    __device__ __forceinline__ static int block(int i) // of 16 rows
    {
        const int own = cell_warp() % row_warps, part = cell_warp() / row_warps;
        return (column_warps > 1 && part % 2 ? row_warps - 1 - own : own) + i * row_warps;
    }
    __device__ __forceinline__ static int column(int j) { return (cell_warp() / row_warps * along + j) * 8; }
    __device__ __forceinline__ static bool there(int i, int j)
    {
        return (Rows / 16 % row_warps == 0 || block(i) < Rows / 16) &&
               (along * column_warps * 8 == Columns || column(j) < Columns) &&
               (row_warps * column_warps == warps || cell_warp() < row_warps * column_warps);
    }

    // body(i, j, r) for each sum of the thread, x[i][j][r]
    template <class B> static __device__ __forceinline__ void each_sum(B body)
    {
        CELL_UNROLL
        for (int i = 0; i < down; i++) {
            CELL_UNROLL
            for (int j = 0; j < along; j++) {
                CELL_UNROLL
                for (int r = 0; r < 4; r++)
                    body(i, j, r);
            }
        }
    }
    __device__ __forceinline__ void clear()
    {
        each_sum([&](int i, int j, int r) { x[i][j][r] = 0; });
    }
    __device__ __forceinline__ void add_sums(const cell_chunk_tile &other)
    {
        each_sum([&](int i, int j, int r) { x[i][j][r] += other.x[i][j][r]; });
    }
    // two(row, column, Sum &, Sum &): of each pair of neighbours that the thread has, of blocks of 16 x 16
    // that wants(row block, block of columns) says.
    template <class Wants, class Two> __device__ __forceinline__ void pairs(Wants wants, Two two)
    {
        CELL_UNROLL
        for (int i = 0; i < down; i++) {
            CELL_UNROLL
            for (int j = 0; j < along; j++) {
                if (!there(i, j) || !wants(block(i), column(j) / 16))
                    continue;
                const int row = block(i) * 16 + cell_lane() / 4, first = column(j) + cell_lane() % 4 * 2;
                two(row, first, x[i][j][0], x[i][j][1]);
                two(row + 8, first, x[i][j][2], x[i][j][3]);
            }
        }
    }
    template <class Two> __device__ __forceinline__ void pairs(Two two)
    {
        pairs([](int, int) { return true; }, two);
    }
    // one(row, column, Sum &)
    template <class One> __device__ __forceinline__ void each(One one)
    {
        pairs([&](int row, int first, Sum &a, Sum &b) {
            one(row, first, a);
            one(row, first + 1, b);
        });
    }
    // += a b over `k` from begin to end, multiples of 16, in those blocks of 16 rows and 16 terms that
    // uses(row block, block of terms) says; elsewhere a is zero. Sums of those blocks of 16 rows and 16
    // columns that wants(row block, block of columns) leaves out stay as they are; it is asked once for the
    // rows of a warp and two neighbours of 8 columns, so a warp has one row block where it leaves some out
    // (at least Rows / 16 warps) and an even number of columns of 8, or one. The tile's row 0 is the matrix's
    // row -first.
    template <class A, class B, class Uses, class Wants>
    __device__ __forceinline__ void add(const A &a, const B &b, int begin, int end, Uses uses, Wants wants,
                                        int first = 0)
    {
        typedef cell_chunk_fragments<typename A::element> F;
        const auto from_a = F::lanes_a(a, block(0) * 16 - first, begin);
        const auto from_b = F::lanes_b(b, begin, column(0));
        CELL_UNROLL_BY(2) // not more: code is fetched slower than it runs
        for (int k16 = begin; k16 < end; k16 += 16) {
            bool used[down], any = false;
            CELL_UNROLL
            for (int i = 0; i < down; i++) {
                used[i] = there(i, 0) && uses(block(i), k16 / 16);
                any |= used[i];
            }
            if (!any)
                continue;
            CELL_UNROLL
            for (int k = 0; k < 16; k += F::depth) {
                const int term = k16 - begin + k;
                F left[down], right[along];
                CELL_UNROLL
                for (int i = 0; i < down; i++)
                    if (used[i])
                        left[i].load_a(from_a, i * row_warps * 16, term);
                CELL_UNROLL
                for (int j = 0; j < along; j += 2) {
                    if (!there(0, j) || !wants(block(0), column(j) / 16))
                        continue;
                    const bool two = j + 1 < along && there(0, j + 1);
                    if (two)
                        F::load_two(right[j], right[j + (j + 1 < along)], from_b, term, j * 8);
                    else
                        right[j].load_b(from_b, term, j * 8);
                    CELL_UNROLL
                    for (int n = j; n < along && n < j + 2; n++) {
                        CELL_UNROLL
                        for (int i = 0; i < down; i++)
                            if (used[i] && (n == j || two))
                                right[n].multiply(x[i][n], left[i].a);
                    }
                }
            }
        }
    }
    template <class A, class B, class Uses>
    __device__ __forceinline__ void add(const A &a, const B &b, int begin, int end, Uses uses)
    {
        add(a, b, begin, end, uses, [](int, int) { return true; });
    }
    template <class A, class B>
    __device__ __forceinline__ void add(const A &a, const B &b, int begin, int end)
    {
        add(a, b, begin, end, [](int, int) { return true; });
    }
    template <class T, class Wants>
    __device__ __forceinline__ void store(const cell_chunk_matrix<T> &to, Wants wants)
    {
        pairs(wants, [&](int row, int first, Sum &a, Sum &b) {
            const Sum two[2] = {a, b};
            cell_store_vec<2>(to.place(row, first), two);
        });
    }
    template <class T> __device__ __forceinline__ void store(const cell_chunk_matrix<T> &to)
    {
        store(to, [](int, int) { return true; });
    }
    // to[part * Rows + row] += the sum over the thread's part of the columns of one(row, column, sum); there
    // are column_warps parts.
    template <class One> __device__ __forceinline__ void row_sums(cell_smem<Sum> to, One one)
    {
        CELL_UNROLL
        for (int i = 0; i < down; i++) {
            CELL_UNROLL
            for (int half = 0; half < 2; half++) {
                const int row = block(i) * 16 + half * 8 + cell_lane() / 4;
                Sum sum = 0;
                CELL_UNROLL
                for (int j = 0; j < along; j++) {
                    if (!there(i, j))
                        continue;
                    CELL_UNROLL
                    for (int r = 0; r < 2; r++)
                        sum += one(row, column(j) + cell_lane() % 4 * 2 + r, x[i][j][half * 2 + r]);
                }
                sum += cell_shfl_xor(sum, 1);
                sum += cell_shfl_xor(sum, 2);
                if (there(i, 0) && cell_lane() % 4 == 0) {
                    const Sum before = to[cell_warp() / row_warps * Rows + row];
                    to[cell_warp() / row_warps * Rows + row] = before + sum;
                }
            }
        }
    }
    // Sums over the rows of a block: v has of each tile and each of two neighbours what the lane's rows give;
    // to(tile, which neighbour, sum) by the lane that has the sum, once for each. A step halves what a lane
    // has to sum, as long as that is more than one.
    template <class To> __device__ __forceinline__ static void column_sums(const Sum (&v)[along * 2], To to)
    {
        constexpr int all = along <= 1 ? 2 : along <= 2 ? 4 : along <= 4 ? 8 : along <= 8 ? 16 : along * 2;
        static_assert((all & (all - 1)) == 0, "halves");
        Sum sum[all];
        CELL_UNROLL
        for (int n = 0; n < all; n++)
            sum[n] = n < along * 2 ? v[n < along * 2 ? n : 0] : (Sum)0;
        int first = 0, count = all, leftover = 0;
        CELL_UNROLL
        for (int apart = 16; apart >= 4; apart /= 2) {
            const bool upper = (cell_lane() & apart) != 0;
            if (count == 1) {
                sum[0] += cell_shfl_xor(sum[0], apart);
                leftover |= apart;
                continue;
            }
            count /= 2;
            CELL_UNROLL
            for (int n = 0; n < all / 2; n++)
                if (n < count) {
                    const Sum away = upper ? sum[n] : sum[n + count];
                    sum[n] = (upper ? sum[n + count] : sum[n]) + cell_shfl_xor(away, apart);
                }
            first += upper ? count : 0;
        }
        if (cell_lane() & leftover)
            return;
        CELL_UNROLL
        for (int n = 0; n < (all > 8 ? all / 8 : 1); n++)
            if (first + n < along * 2)
                to((first + n) / 2, (first + n) % 2, sum[n]);
    }
};

#endif
