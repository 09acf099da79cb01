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

// Fragments: A of 16 rows and `depth` columns, B of `depth` rows and 8 columns. keep: elements of A, of which
// is(row, column) is not so, become 0. make_b: B is from(k, column).
template <class T> struct cell_chunk_fragments { // bf16, f16
    typedef float Sum;
    static constexpr int depth = 16;
    cell_mma_a<T> a;
    cell_mma_b<T> b;
    template <bool Across>
    __device__ __forceinline__ void load_a(const cell_chunk_matrix<T, Across> &m, int row, int k)
    {
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
        const int lane = cell_lane(), inner = lane % 8, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
        const T *const p =
            Across ? m.place(row + low, k + high + inner) : m.place(row + low + inner, k + high);
        const uint32_t address = (uint32_t)__cvta_generic_to_shared(p);
        if (Across)
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(a.x[0]), "=r"(a.x[1]), "=r"(a.x[2]), "=r"(a.x[3])
                         : "r"(address)
                         : "memory");
        else
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(a.x[0]), "=r"(a.x[1]), "=r"(a.x[2]), "=r"(a.x[3])
                         : "r"(address)
                         : "memory");
#else
        cell_mma_load_a(a, m.place(row, k), Across ? 1 : m.pitch, Across ? m.pitch : 1);
#endif
    }
    template <bool Across>
    __device__ __forceinline__ void load_b(const cell_chunk_matrix<T, Across> &m, int k, int column)
    {
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
        const int lane = cell_lane(), inner = lane % 8, low = lane / 8 % 2 * 8;
        const T *const p = Across ? m.place(k + low, column + inner) : m.place(k + low + inner, column);
        const uint32_t address = (uint32_t)__cvta_generic_to_shared(p);
        if (Across)
            asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                         : "=r"(b.x[0]), "=r"(b.x[1])
                         : "r"(address)
                         : "memory");
        else
            asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                         : "=r"(b.x[0]), "=r"(b.x[1])
                         : "r"(address)
                         : "memory");
#else
        cell_mma_load_b(b, m.place(k, column), Across ? m.pitch : 1, Across ? 1 : m.pitch);
#endif
    }
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

// Rows x Columns sums, multiples of 16 and of 8. Warps share the rows, as far as there are 16 for each, then
// the columns.
template <class Sum, int Rows, int Columns, int Threads> struct cell_chunk_tile {
    static constexpr int warps = Threads / 32, row_warps = Rows / 16 < warps ? Rows / 16 : warps,
                         column_warps = warps / row_warps;
    static constexpr int down = (Rows / 16 + row_warps - 1) / row_warps,
                         along = (Columns / 8 + column_warps - 1) / column_warps;
    Sum x[down][along][4];

    __device__ __forceinline__ static int block(int i)
    {
        return cell_warp() % row_warps + i * row_warps;
    } // of 16 rows
    __device__ __forceinline__ static int column(int j) { return (cell_warp() / row_warps * along + j) * 8; }
    __device__ __forceinline__ static bool there(int i, int j)
    {
        return (Rows / 16 % row_warps == 0 || block(i) < Rows / 16) &&
               (along * column_warps * 8 == Columns || column(j) < Columns) &&
               (row_warps * column_warps == warps || cell_warp() < row_warps * column_warps);
    }

    __device__ __forceinline__ void clear()
    {
        CELL_UNROLL
        for (int i = 0; i < down; i++) {
            CELL_UNROLL
            for (int j = 0; j < along; j++) {
                CELL_UNROLL
                for (int r = 0; r < 4; r++)
                    x[i][j][r] = 0;
            }
        }
    }
    // two(row, column, Sum &, Sum &): of each pair of neighbours that the thread has.
    template <class Two> __device__ __forceinline__ void pairs(Two two)
    {
        CELL_UNROLL
        for (int i = 0; i < down; i++) {
            CELL_UNROLL
            for (int j = 0; j < along; j++) {
                if (!there(i, j))
                    continue;
                const int row = block(i) * 16 + cell_lane() / 4, first = column(j) + cell_lane() % 4 * 2;
                two(row, first, x[i][j][0], x[i][j][1]);
                two(row + 8, first, x[i][j][2], x[i][j][3]);
            }
        }
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
    // uses(row block, block of terms) says; elsewhere a is zero. The tile's row 0 is the matrix's row -first.
    template <class A, class B, class Uses>
    __device__ __forceinline__ void add(const A &a, const B &b, int begin, int end, Uses uses, int first = 0)
    {
        typedef cell_chunk_fragments<typename A::element> F;
        CELL_UNROLL_BY(1) // code is fetched slower than it runs
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
                typename F::A left[down];
                F f;
                CELL_UNROLL
                for (int i = 0; i < down; i++)
                    if (used[i]) {
                        f.load_a(a, block(i) * 16 - first, k16 + k);
                        left[i] = f.a;
                    }
                CELL_UNROLL
                for (int j = 0; j < along; j++) {
                    if (!there(0, j))
                        continue;
                    f.load_b(b, k16 + k, column(j));
                    CELL_UNROLL
                    for (int i = 0; i < down; i++)
                        if (used[i])
                            f.multiply(x[i][j], left[i]);
                }
            }
        }
    }
    template <class A, class B>
    __device__ __forceinline__ void add(const A &a, const B &b, int begin, int end)
    {
        add(a, b, begin, end, [](int, int) { return true; });
    }
    template <class T> __device__ __forceinline__ void store(const cell_chunk_matrix<T> &to)
    {
        pairs([&](int row, int first, Sum &a, Sum &b) {
            const Sum two[2] = {a, b};
            cell_store_vec<2>(to.place(row, first), two);
        });
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
    // to(block of 16 rows, column, the sum of one(row, column, sum) over the block's rows), once for each.
    template <class One, class To> __device__ __forceinline__ void block_sums(One one, To to)
    {
        CELL_UNROLL
        for (int i = 0; i < down; i++) {
            CELL_UNROLL
            for (int j = 0; j < along; j++) {
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    const int row = block(i) * 16 + cell_lane() / 4, c = column(j) + cell_lane() % 4 * 2 + r;
                    Sum sum =
                        there(i, j) ? one(row, c, x[i][j][r]) + one(row + 8, c, x[i][j][2 + r]) : (Sum)0;
                    sum += cell_shfl_xor(sum, 4);
                    sum += cell_shfl_xor(sum, 8);
                    sum += cell_shfl_xor(sum, 16);
                    if (there(i, j) && cell_lane() < 4)
                        to(block(i), c, sum);
                }
            }
        }
    }
};

#endif
