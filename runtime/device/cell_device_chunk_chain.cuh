// Products of a warp that follow one another in registers: sums of one are an operand of the next (schedule
// chunk).
//
// In: matrices in shared memory, of cell_bf16, cell_f16 or float, and sums of 16 x 8 (cell_mma_c, as arrays
// of 4 floats). Out: fragments, and sums in f32. Guaranteed: products of bf16 and f16 are exact; those of
// float are three of two TF32 numbers each, which lose some units of f32. Calls are made by the whole warp.
//
// A is 16 rows by `depth`; B is `depth` by 16 columns, as two fragments of 8. A matrix whose rows lie behind
// one another is read as rows (of A its own, of B its columns'), another one across. Lines are 16-byte
// aligned.
#ifndef CELL_DEVICE_CHUNK_CHAIN_CUH
#define CELL_DEVICE_CHUNK_CHAIN_CUH

// Elements from a line of a matrix in shared memory to the next: with 16 bytes more than the line few banks
// are met twice.
template <class T> __host__ __device__ constexpr int cell_chain_pitch(int columns)
{
    return columns + 16 / (int)sizeof(T);
}

template <class T> struct cell_chain {          // bf16, f16
    static constexpr int depth = 16, tiles = 2; // tiles of 8 columns along a step
    typedef cell_mma_a<T> A;
    struct B {
        cell_mma_b<T> half[2];
    };

    // Sums s[0], s[1] are the columns of A, rounded.
    __device__ __forceinline__ static void of_sums(A &a, const float (*s)[4])
    {
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            a.x[i] = cell_pack<T>(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1]);
    }
    __device__ __forceinline__ static void to_sums(float (*s)[4], const A &a)
    {
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            cell_unpack<T>(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1], a.x[i]);
    }
    // As four words, for another warp.
    __device__ __forceinline__ static void to_words(uint32_t (&x)[4], const A &a)
    {
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            x[i] = a.x[i];
    }
    __device__ __forceinline__ static void of_words(A &a, const uint32_t (&x)[4])
    {
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            a.x[i] = x[i];
    }
    // A' as B.
    __device__ __forceinline__ static void turn(B &b, const A &a)
    {
        b.half[0] = {{a.x[0], a.x[2]}};
        b.half[1] = {{a.x[1], a.x[3]}};
    }
    // A(i, k) stands at m[i * pitch + k], or across at m[k * pitch + i].
    __device__ __forceinline__ static void rows(A &a, cell_smem<T> m, int pitch)
    {
        const int lane = cell_lane();
        cell_load_matrices<false>(a.x, m + ((lane / 8 % 2 * 8 + lane % 8) * pitch + lane / 16 * 8));
    }
    __device__ __forceinline__ static void across(A &a, cell_smem<T> m, int pitch)
    {
        const int lane = cell_lane();
        cell_load_matrices<true>(a.x, m + ((lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * 8));
    }
    // B(k, j) stands at m[j * pitch + k], or across at m[k * pitch + j].
    __device__ __forceinline__ static void rows(B &b, cell_smem<T> m, int pitch)
    {
        const int lane = cell_lane();
        set(b, [&](uint32_t(&x)[4]) {
            cell_load_matrices<false>(x, m + ((lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * 8));
        });
    }
    __device__ __forceinline__ static void across(B &b, cell_smem<T> m, int pitch)
    {
        const int lane = cell_lane();
        set(b, [&](uint32_t(&x)[4]) {
            cell_load_matrices<true>(x, m + ((lane / 8 % 2 * 8 + lane % 8) * pitch + lane / 16 * 8));
        });
    }
    template <class Load> __device__ __forceinline__ static void set(B &b, Load load)
    {
        uint32_t x[4];
        load(x);
        b.half[0] = {{x[0], x[1]}};
        b.half[1] = {{x[2], x[3]}};
    }
    // Column k of A times f[k].
    __device__ __forceinline__ static void scale(A &a, cell_smem<float> f)
    {
        CELL_UNROLL
        for (int i = 0; i < 4; i++) {
            float v[2], by[2];
            cell_unpack<T>(v[0], v[1], a.x[i]);
            cell_load_vec<2>(by, f + (cell_lane() % 4 * 2 + i / 2 * 8));
            a.x[i] = cell_pack<T>(v[0] * by[0], v[1] * by[1]);
        }
    }
    __device__ __forceinline__ static void multiply(float (&sum)[4], const A &a, const cell_mma_b<T> &b)
    {
        cell_mma_c c = {{sum[0], sum[1], sum[2], sum[3]}};
        cell_mma(c, a, b);
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            sum[i] = c.x[i];
    }
};

// The places along a step are taken in the order 0, 2, 4, 6, 1, 3, 5, 7, by A and B alike: so a thread's
// operands are neighbours, and those of a sum.
template <> struct cell_chain<float> {
    static constexpr int depth = 8, tiles = 1;
    struct A {
        cell_mma_a<cell_tf32> hi, lo;
    };
    struct Half {
        cell_mma_b<cell_tf32> hi, lo;
    };
    struct B {
        Half half[2];
    };

    __device__ __forceinline__ static void put(A &a, int i, float v)
    {
        const cell_tf32_halves parts(v);
        a.hi.x[i] = parts.hi;
        a.lo.x[i] = parts.lo;
    }
    __device__ __forceinline__ static void put(Half &b, int i, float v)
    {
        const cell_tf32_halves parts(v);
        b.hi.x[i] = parts.hi;
        b.lo.x[i] = parts.lo;
    }
    // Of register i of A: the row is this behind the lane's, the column that behind its own.
    __device__ __forceinline__ static constexpr int row(int i) { return i % 2 * 8; }
    __device__ __forceinline__ static constexpr int column(int i) { return i / 2; }
    __device__ __forceinline__ static float get(const A &a, int i)
    {
        return cell_detail_bits_float(a.hi.x[i]) + cell_detail_bits_float(a.lo.x[i]);
    }

    __device__ __forceinline__ static void of_sums(A &a, const float (*s)[4])
    {
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            put(a, i, s[0][i % 2 * 2 + i / 2]);
    }
    __device__ __forceinline__ static void to_sums(float (*s)[4], const A &a)
    {
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            s[0][i % 2 * 2 + i / 2] = get(a, i);
    }
    __device__ __forceinline__ static void to_words(uint32_t (&x)[4], const A &a)
    {
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            x[i] = cell_detail_float_bits(get(a, i));
    }
    __device__ __forceinline__ static void of_words(A &a, const uint32_t (&x)[4])
    {
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            put(a, i, cell_detail_bits_float(x[i]));
    }
    __device__ __forceinline__ static void turn(B &b, const A &a)
    {
        CELL_UNROLL
        for (int h = 0; h < 2; h++)
            b.half[h] = {{{a.hi.x[h], a.hi.x[2 + h]}}, {{a.lo.x[h], a.lo.x[2 + h]}}};
    }
    __device__ __forceinline__ static void rows(A &a, cell_smem<float> m, int pitch)
    {
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            float v[2];
            cell_load_vec<2>(v, m + ((cell_lane() / 4 + h * 8) * pitch + cell_lane() % 4 * 2));
            put(a, h, v[0]);
            put(a, 2 + h, v[1]);
        }
    }
    __device__ __forceinline__ static void across(A &a, cell_smem<float> m, int pitch)
    {
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            put(a, i, m[(cell_lane() % 4 * 2 + column(i)) * pitch + cell_lane() / 4 + row(i)]);
    }
    __device__ __forceinline__ static void rows(B &b, cell_smem<float> m, int pitch)
    {
        CELL_UNROLL
        for (int h = 0; h < 2; h++) {
            float v[2];
            cell_load_vec<2>(v, m + ((cell_lane() / 4 + h * 8) * pitch + cell_lane() % 4 * 2));
            put(b.half[h], 0, v[0]);
            put(b.half[h], 1, v[1]);
        }
    }
    __device__ __forceinline__ static void across(B &b, cell_smem<float> m, int pitch)
    {
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            put(b.half[i / 2], i % 2, m[(cell_lane() % 4 * 2 + i % 2) * pitch + cell_lane() / 4 + i / 2 * 8]);
    }
    __device__ __forceinline__ static void scale(A &a, cell_smem<float> f)
    {
        float by[2];
        cell_load_vec<2>(by, f + cell_lane() % 4 * 2);
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            put(a, i, get(a, i) * by[column(i)]);
    }
    __device__ __forceinline__ static void multiply(float (&sum)[4], const A &a, const Half &b)
    {
        cell_mma_c c = {{sum[0], sum[1], sum[2], sum[3]}};
        cell_mma(c, a.lo, b.hi);
        cell_mma(c, a.hi, b.lo);
        cell_mma(c, a.hi, b.hi);
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            sum[i] = c.x[i];
    }
};

// Of four words of each of the four lanes of a quad: lane i gets word i of all, in the order of the lanes.
__device__ __forceinline__ void cell_quad_turn(uint32_t (&x)[4])
{
    const int lane = cell_lane();
    CELL_UNROLL
    for (int step = 1; step <= 2; step *= 2) {
        const bool odd = (lane & step) != 0;
        CELL_UNROLL
        for (int n = 0; n < 2; n++) {
            const int i = step == 1 ? n * 2 : n, j = i + step;
            const uint32_t got = cell_shfl_xor(odd ? x[i] : x[j], step);
            if (odd)
                x[i] = got;
            else
                x[j] = got;
        }
    }
}

template <class A, class B> constexpr bool cell_same = false;
template <class A> constexpr bool cell_same<A, A> = true;

// Four elements of a chunk's row t as they come.
template <class M>
__device__ __forceinline__ void cell_chunk_load_four(float (&x)[4], const cell_rows &v,
                                                     const cell_chunk_rows &rows, int t, int64_t k,
                                                     int64_t extent)
{
    CELL_UNROLL
    for (int e = 0; e < 4; e++)
        x[e] = cell_chunk_load<M>(v, rows, t, k + e, extent);
}

// Rows of a vector to shared memory by all threads of a block, as asynchronous copies where they lie as they
// are wanted; elements from `begin` on, zeros behind the sequence's rows and behind `extent`. Lines have
// cell_chain_pitch(Columns).
template <class M, int Columns, int Threads = CELL_CHUNK_THREADS>
__device__ __forceinline__ void cell_chunk_fetch_rows(cell_smem<typename M::Part> to, const cell_rows &v,
                                                      const cell_chunk_rows &rows, int64_t begin,
                                                      int64_t extent)
{
    typedef typename M::Part Part;
    constexpr int each = 16 / (int)sizeof(Part), line = Columns / each, count = M::rows * line;
    const bool as_is = v.real ? cell_same<Part, typename M::Real> : cell_same<Part, typename M::Store>;
    const Part *const from = (const Part *)v.at + rows.first * v.row + begin;
    const bool whole =
        as_is && v.element == 1 && v.row % each == 0 && extent % each == 0 && (uintptr_t)from % 16 == 0;
    constexpr int pitch = cell_chain_pitch<Part>(Columns), turns = (count + Threads - 1) / Threads;
    if (whole) {
        const bool there = cell_thread() % line * each + begin < extent;
        const int k = there ? cell_thread() % line * each : 0, valid = there ? rows.valid : 0;
        CELL_UNROLL
        for (int i = 0; i < turns; i++) {
            const int n = cell_thread() + i * Threads;
            if constexpr (Threads % line == 0) { // a thread's pieces are of one place in their rows
                const int t = cell_thread() / line + i * (Threads / line);
                if (count % Threads == 0 || t < M::rows)
                    cell_cp_async_zfill<16>(to + (t * pitch + cell_thread() % line * each),
                                            t < valid ? from + (t * v.row + k) : from, t < valid);
            } else if (n < count) {
                const bool given = n / line < rows.valid && begin + n % line * each < extent;
                cell_cp_async_zfill<16>(to + (n / line * pitch + n % line * each),
                                        given ? from + (n / line * v.row + n % line * each) : from, given);
            }
        }
        return;
    }
    const float *const floats = (const float *)v.at + rows.first * v.row + begin;
    const bool fours = sizeof(Part) == 2 && v.real && v.element == 1 && v.row % 4 == 0 &&
                       extent % each == 0 && (uintptr_t)floats % 16 == 0;
    constexpr int together = turns < 4 ? turns : 4; // pieces that are on their way before one is stored
    CELL_UNROLL_BY(1)
    for (int i = 0; i < turns; i += together) {
        float x[together][each];
        CELL_UNROLL
        for (int j = 0; j < together; j++) {
            const int n = cell_thread() + (i + j) * Threads, t = n / line, k = n % line * each;
            const bool given = n < count && t < rows.valid && begin + k < extent;
            CELL_UNROLL
            for (int e = 0; e < each; e += 4) {
                float four[4] = {};
                if (given && fours)
                    cell_load_vec<4>(four, floats + (t * v.row + k + e));
                else if (given)
                    cell_chunk_load_four<M>(four, v, rows, t, begin + k + e, extent);
                CELL_UNROLL
                for (int f = 0; f < 4; f++)
                    x[j][e + f] = four[f];
            }
        }
        CELL_UNROLL
        for (int j = 0; j < together; j++) {
            const int n = cell_thread() + (i + j) * Threads;
            if (n < count)
                cell_store_vec<each>(to + (n / line * pitch + n % line * each), x[j]);
        }
    }
}

// Operands in as many parts as hold nearly all of an f32: two of bf16 or f16, of which the second is what
// rounding left of the first; a float is split by its products.
template <class T> struct cell_chain_parts {
    typedef cell_chain<T> chain;
    static constexpr int count = sizeof(T) == 2 ? 2 : 1;
    typename chain::A part[count];

    __device__ __forceinline__ void of_sums(const float (*s)[4])
    {
        chain::of_sums(part[0], s);
        if constexpr (count == 2) {
            float left[chain::tiles][4];
            chain::to_sums(left, part[0]);
            CELL_UNROLL
            for (int j = 0; j < chain::tiles; j++) {
                CELL_UNROLL
                for (int i = 0; i < 4; i++)
                    left[j][i] = s[j][i] - left[j][i];
            }
            chain::of_sums(part[1], left);
        }
    }
    __device__ __forceinline__ void to_sums(float (*s)[4]) const
    {
        chain::to_sums(s, part[0]);
        if constexpr (count == 2) {
            float more[chain::tiles][4];
            chain::to_sums(more, part[1]);
            CELL_UNROLL
            for (int j = 0; j < chain::tiles; j++) {
                CELL_UNROLL
                for (int i = 0; i < 4; i++)
                    s[j][i] += more[j][i];
            }
        }
    }
    // Two tiles of sums += these times a matrix that is exact, or one in parts, each `apart` behind the one
    // before.
    template <bool Across>
    __device__ __forceinline__ void multiply(float (*sum)[4], cell_smem<T> m, int pitch) const
    {
        typename chain::B b;
        load<Across>(b, m, pitch);
        CELL_UNROLL
        for (int i = count - 1; i >= 0; i--)
            add(sum, part[i], b);
    }
    template <bool Across>
    __device__ __forceinline__ void multiply_parts(float (*sum)[4], cell_smem<T> m, int pitch,
                                                   int apart) const
    {
        typename chain::B b;
        if constexpr (count == 2) {
            load<Across>(b, m + apart, pitch);
            add(sum, part[0], b);
        }
        multiply<Across>(sum, m, pitch);
    }

    // ... times the transpose of others: rows of 16 columns.
    __device__ __forceinline__ void multiply_turned(float (*sum)[4], const cell_chain_parts &right) const
    {
        typename chain::B b;
        if constexpr (count == 2) {
            chain::turn(b, right.part[1]);
            add(sum, part[0], b);
        }
        chain::turn(b, right.part[0]);
        CELL_UNROLL
        for (int i = count - 1; i >= 0; i--)
            add(sum, part[i], b);
    }

  private:
    template <bool Across>
    __device__ __forceinline__ static void load(typename chain::B &b, cell_smem<T> m, int pitch)
    {
        if constexpr (Across)
            chain::across(b, m, pitch);
        else
            chain::rows(b, m, pitch);
    }
    __device__ __forceinline__ static void add(float (*sum)[4], const typename chain::A &a,
                                               const typename chain::B &b)
    {
        CELL_UNROLL
        for (int h = 0; h < 2; h++)
            chain::multiply(sum[h], a, b.half[h]);
    }
};

// Two tiles of sums, 16 x 16, to memory, rounded; `to` and lines of `pitch` are aligned to 16 bytes.
template <class T>
__device__ __forceinline__ void cell_chain_store(T *to, int64_t pitch, const float (*sum)[4])
{
    const int row = cell_lane() / 4, pair = cell_lane() % 4 * 2;
    if constexpr (sizeof(T) == 2) {
        uint32_t words[4]; // of a row's first and second 8 columns, of the lane's two rows
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            words[i] = cell_pack<T>(sum[i % 2][i / 2 * 2], sum[i % 2][i / 2 * 2 + 1]);
        cell_quad_turn(words);
        cell_store_words(to + (row + cell_lane() % 4 / 2 * 8) * pitch + cell_lane() % 2 * 8, words);
    } else {
        CELL_UNROLL
        for (int i = 0; i < 4; i++) {
            const float two[2] = {sum[i % 2][i / 2 * 2], sum[i % 2][i / 2 * 2 + 1]};
            cell_store_vec<2>(to + (row + i / 2 * 8) * pitch + i % 2 * 8 + pair, two);
        }
    }
}

template <class T> __device__ __forceinline__ void cell_clear_words(T *to)
{
    const uint32_t none[4] = {};
    cell_store_words(to, none);
}
// Zeros in the place of two tiles.
template <class T> __device__ __forceinline__ void cell_chain_clear(T *to, int64_t pitch)
{
    constexpr int each = 16 / (int)sizeof(T), line = 16 / each;
    CELL_UNROLL
    for (int n = cell_lane(); n < 16 * line; n += 32)
        cell_clear_words(to + n / line * pitch + n % line * each);
}

#endif
