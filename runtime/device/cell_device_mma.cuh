// Matrix products on tensor cores, one warp, f32 accumulators, for both sides of the device library.
//
// In: fragments that the load functions fill from rows in global or shared memory. Out: C += A B with A [16,
// k], B [k, 8], k = 16 for bf16 and f16, 8 for tf32. Guaranteed: the placement of elements in lanes is known
// to this file only. All calls are made by the whole warp.
//
// Type tags: cell_bf16, cell_f16, cell_tf32 (f32 values rounded to 10 bits of fraction).
#ifndef CELL_DEVICE_MMA_CUH
#define CELL_DEVICE_MMA_CUH

template <class T> struct cell_mma_a {
    uint32_t x[4];
};
template <class T> struct cell_mma_b {
    uint32_t x[2];
};
struct cell_mma_c {
    float x[4];
};

template <class T> struct cell_mma_shape {
    static constexpr int m = 16, n = 8, k = 16;
};
template <> struct cell_mma_shape<cell_tf32> {
    static constexpr int m = 16, n = 8, k = 8;
};

// One register of a fragment: elements (row, k0) and (row, k0 + 1) of 16 bits, or one tf32. `step` is the
// distance of elements along k, `p` points at the first.
template <class T> struct cell_mma_word {
    template <class P> __device__ __forceinline__ static uint32_t load(P p, int64_t step)
    {
        const T lo = cell_load<T>(p), hi = cell_load<T>(p + step);
        return (uint32_t)lo.bits | (uint32_t)hi.bits << 16;
    }
};
template <> struct cell_mma_word<cell_tf32> {
    template <class P> __device__ __forceinline__ static uint32_t load(P p, int64_t)
    {
        return cell_detail_tf32_bits(cell_load<float>(p));
    }
};

// Where register r of a fragment begins: outer is the row of A or the column of B, inner the place along k.
template <class T> __device__ __forceinline__ int cell_mma_inner(int r)
{
    constexpr bool pairs = cell_mma_shape<T>::k == 16;
    return (cell_lane() & 3) * (pairs ? 2 : 1) + r * (pairs ? 8 : 4);
}

// A[i, k] stands at p[i * row_stride + k * k_stride]; P is a pointer or a cell_smem to any storage type.
template <class T, class P> __device__ __forceinline__ void cell_mma_load_a(cell_mma_a<T> &a, P p,
                                                                            int64_t row_stride,
                                                                            int64_t k_stride = 1)
{
    const int row = cell_lane() >> 2;
    CELL_UNROLL
    for (int r = 0; r < 4; r++)
        a.x[r] = cell_mma_word<T>::load(
            p + (row + (r & 1) * 8) * row_stride + cell_mma_inner<T>(r >> 1) * k_stride, k_stride);
}

// B[k, j] stands at p[k * k_stride + j * column_stride]; the default is a B whose columns are contiguous
// along k.
template <class T, class P> __device__ __forceinline__ void cell_mma_load_b(cell_mma_b<T> &b, P p,
                                                                            int64_t column_stride,
                                                                            int64_t k_stride = 1)
{
    const int column = cell_lane() >> 2;
    CELL_UNROLL
    for (int r = 0; r < 2; r++)
        b.x[r] =
            cell_mma_word<T>::load(p + column * column_stride + cell_mma_inner<T>(r) * k_stride, k_stride);
}

// Register r of C is the element (cell_mma_c_row(r), cell_mma_c_column(r)) of the 16 x 8 tile.
__device__ __forceinline__ int cell_mma_c_row(int r) { return (cell_lane() >> 2) + (r >> 1) * 8; }
__device__ __forceinline__ int cell_mma_c_column(int r) { return (cell_lane() & 3) * 2 + (r & 1); }

__device__ __forceinline__ void cell_mma_zero(cell_mma_c &c)
{
    CELL_UNROLL
    for (int r = 0; r < 4; r++)
        c.x[r] = 0.0f;
}

template <class P> __device__ __forceinline__ void cell_mma_load_c(cell_mma_c &c, P p, int64_t row_stride)
{
    CELL_UNROLL
    for (int r = 0; r < 4; r++)
        c.x[r] = cell_load<float>(p + cell_mma_c_row(r) * row_stride + cell_mma_c_column(r));
}

template <class P>
__device__ __forceinline__ void cell_mma_store_c(P p, int64_t row_stride, const cell_mma_c &c)
{
    CELL_UNROLL
    for (int r = 0; r < 4; r++)
        cell_store(p + cell_mma_c_row(r) * row_stride + cell_mma_c_column(r), c.x[r]);
}

// Two numbers as T in a word, the first in its lower half, and back.
template <class T> __device__ __forceinline__ uint32_t cell_pack(float low, float high) { return cell_detail_two(T(), low, high); }
template <class T> __device__ __forceinline__ void cell_unpack(float &low, float &high, uint32_t word)
{
    low = cell_convert<float>(T{(uint16_t)word});
    high = cell_convert<float>(T{(uint16_t)(word >> 16)});
}

// A number of f32 as nearly the sum of two of tf32, for products of it on the tensor cores: x y is nearly
// x.hi y.hi + x.hi y.lo + x.lo y.hi. Of an infinity and of NaN the second is NaN, and so are these. The first is rounded by
// an addition to the bits: a conversion is four instructions, as it looks for what is not finite. The second is what is
// left, of 12 bits at most; tensor cores read 11 of them, which is as near as rounding it would be.
struct cell_tf32_halves {
    uint32_t hi, lo;
    __device__ __forceinline__ explicit cell_tf32_halves(float v)
    {
        hi = (cell_detail_float_bits(v) + 0x1000u) & 0xffffe000u;
        lo = cell_detail_float_bits(v - cell_detail_bits_float(hi));
    }
};

// C += A B. The order of the sums within one call is the hardware's.
template <class T>
__device__ __forceinline__ void cell_mma(cell_mma_c &c, const cell_mma_a<T> &a, const cell_mma_b<T> &b)
{
    cell_detail_mma(T(), c.x, a.x, b.x);
}

// Doubles: C [8, 8] += A [8, 4] B [4, 8] by cell_mma_double(c0, c1, a, b) (in cell_device_cuda.cuh): a thread has A's element
// (lane / 4, lane % 4), B's (lane % 4, lane / 4), and C's (lane / 4, lane % 4 * 2) and the next column.

// Tiles: C [64, 64] += A [64, 16] B [16, 64] by 4 warps, of which each has 16 rows of C, as the 8 fragments of its columns in
// their order. A tile of B, or of A in shared memory, has two halves of 8 along k, each 64 rows of 8 neighbours along k.
// What is multiplied between cell_tile_begin and cell_tile_commit is a group; cell_tile_wait<N> returns when all groups but
// the last N are done, and only then may C be read and what the group reads be written. sm_90a has instructions for it.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// In cell_device_cuda.cuh.
#else
__device__ __forceinline__ void cell_tile_begin() {}
__device__ __forceinline__ void cell_tile_commit() {}
template <int N> __device__ __forceinline__ void cell_tile_wait() {}

template <class T> __device__ __forceinline__ uint32_t cell_tile_word(cell_smem<T> half, int row)
{
    const T lo = half[row * 8 + cell_lane() % 4 * 2], hi = half[row * 8 + cell_lane() % 4 * 2 + 1];
    return (uint32_t)lo.bits | (uint32_t)hi.bits << 16;
}

// A: the warp's rows, a fragment.
template <class T>
__device__ __forceinline__ void cell_tile_multiply(float (&c)[32], const uint32_t (&a)[4], cell_smem<T> b, bool adds)
{
    CELL_UNROLL
    for (int j = 0; j < 8; j++) {
        cell_mma_c sum;
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            sum.x[i] = adds ? c[j * 4 + i] : 0.0f;
        const int column = j * 8 + cell_lane() / 4;
        cell_mma(sum, cell_mma_a<T>{{a[0], a[1], a[2], a[3]}},
                 cell_mma_b<T>{{cell_tile_word<T>(b, column), cell_tile_word<T>(b + 512, column)}});
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            c[j * 4 + i] = sum.x[i];
    }
}
template <class T>
__device__ __forceinline__ void cell_tile_multiply(float (&c)[32], cell_smem<T> a, cell_smem<T> b)
{
    const int row = cell_warp() % 4 * 16 + cell_lane() / 4;
    const uint32_t words[4] = {cell_tile_word<T>(a, row), cell_tile_word<T>(a, row + 8),
                               cell_tile_word<T>(a + 512, row), cell_tile_word<T>(a + 512, row + 8)};
    cell_tile_multiply<T>(c, words, b, true);
}
#endif

#endif
