// Tiles of pairs of steps, for sums over the past that are made of products (attention and its gradients).
//
// In: two tiles in shared memory, 32 rows and 32 columns with k elements each, in the type of the
// arithmetic. Out: the products of every row with every column, of which each of 128 threads has 2 x 4 in
// registers: element q * 4 + x is that of row cell_window_row(q) and column cell_window_column(x). T is the
// storage type: doubles are summed up in order; what is stored in 16 bits is multiplied on the tensor cores
// as tf32, which has f16's fraction, bf16's and more, and the range of f32; f32 as three products of the
// two tf32 that a number is nearly the sum of. Guaranteed: where a sum is not finite it is made again by
// itself, as if there were no tensor cores, so that infinities stay infinities.
#ifndef CELL_DEVICE_WINDOW_CUH
#define CELL_DEVICE_WINDOW_CUH

// Of a tile of pairs, and of `Width` columns that are weighed, element (k, row or column) is at
// k * (Width + CELL_WINDOW_GAP) + row, with a width of 32 for pairs. Of an operand of a dot product element (step, k) is at
// step * (Extent + CELL_WINDOW_PAD) + k. Width and Extent are multiples of 32: lanes that read a fragment meet in no bank.
#define CELL_WINDOW_GAP 8
#define CELL_WINDOW_PAD 4

// The kernels are made for these.
template <int Gap, int Pad> __device__ __forceinline__ void cell_window_agree()
{
    static_assert(Gap == CELL_WINDOW_GAP && Pad == CELL_WINDOW_PAD, "the kernel's tiles lie otherwise");
}

__device__ __forceinline__ int cell_window_row(int q)
{
    return cell_warp() / 2 * 16 + cell_mma_c_row(2 * q);
}
__device__ __forceinline__ int cell_window_column(int x)
{
    return cell_warp() % 2 * 16 + x / 2 * 8 + cell_mma_c_column(x % 2);
}

// Where element (outer, k) of an operand is.
struct cell_window_place {
    int outer, k;
};

template <bool Skip, class R>
__device__ __forceinline__ void cell_detail_window(R (&sums)[8], cell_smem<R> rows, cell_window_place at_rows,
                                                   cell_smem<R> columns, cell_window_place at_columns, int k)
{
    CELL_UNROLL_BY(8)
    for (int i = 0; i < k; i++) {
        R b[4];
        CELL_UNROLL
        for (int x = 0; x < 4; x++)
            b[x] = columns[cell_window_column(x) * at_columns.outer + i * at_columns.k];
        CELL_UNROLL
        for (int q = 0; q < 2; q++) {
            const R a = rows[cell_window_row(q) * at_rows.outer + i * at_rows.k];
            CELL_UNROLL
            for (int x = 0; x < 4; x++)
                if (!Skip || a != 0)
                    sums[q * 4 + x] += a * b[x];
        }
    }
}

// Eight terms of each sum. Exact: of f32, else of what 16 bits hold.
template <bool Exact>
__device__ __forceinline__ void cell_detail_window_mma(cell_mma_c (&sums)[2], cell_smem<float> rows,
                                                       cell_window_place at_rows, cell_smem<float> columns,
                                                       cell_window_place at_columns)
{
    const int outer = cell_lane() >> 2, inner = cell_lane() & 3;
    cell_mma_a<cell_tf32> a, a_rest;
    CELL_UNROLL
    for (int r = 0; r < 4; r++) {
        const cell_tf32_halves v(rows[(outer + (r & 1) * 8) * at_rows.outer + (inner + (r >> 1) * 4) * at_rows.k]);
        a.x[r] = v.hi;
        a_rest.x[r] = v.lo;
    }
    CELL_UNROLL
    for (int x = 0; x < 2; x++) {
        cell_mma_b<cell_tf32> b, b_rest;
        CELL_UNROLL
        for (int r = 0; r < 2; r++) {
            const cell_tf32_halves v(columns[(outer + x * 8) * at_columns.outer + (inner + r * 4) * at_columns.k]);
            b.x[r] = v.hi;
            b_rest.x[r] = v.lo;
        }
        if constexpr (Exact) {
            cell_mma(sums[x], a, b_rest);
            cell_mma(sums[x], a_rest, b);
        }
        cell_mma(sums[x], a, b);
    }
}

template <class T, bool Skip, class R>
__device__ __forceinline__ void cell_detail_window_sums(R (&sums)[8], cell_smem<R> rows,
                                                        cell_window_place at_rows, cell_smem<R> columns,
                                                        cell_window_place at_columns, int k)
{
    if constexpr (sizeof(R) == 8) {
        cell_detail_window<Skip>(sums, rows, at_rows, columns, at_columns, k);
    } else {
        const cell_smem<R> own_rows = rows + cell_warp() / 2 * 16 * at_rows.outer;
        const cell_smem<R> own_columns = columns + cell_warp() % 2 * 16 * at_columns.outer;
        // Tensor cores cut off what f32 would round: of f32, only sums of a few terms are theirs.
        constexpr int run = sizeof(T) == 4 ? 32 : 128;
        for (int from = 0; from < k; from += run) {
            const int end = k - from < run ? k : from + run;
            cell_mma_c parts[2];
            CELL_UNROLL
            for (int x = 0; x < 2; x++)
                cell_mma_zero(parts[x]);
            CELL_UNROLL_BY(4)
            for (int i = from; i < end; i += 8)
                cell_detail_window_mma<sizeof(T) == 4>(parts, own_rows + i * at_rows.k, at_rows,
                                                       own_columns + i * at_columns.k, at_columns);
            bool finite = true;
            CELL_UNROLL
            for (int r = 0; r < 8; r++)
                finite = finite && cell_abs(parts[r / 4].x[r % 4]) < CELL_INF_F;
            if (!cell_all(finite)) {
                cell_detail_window<Skip>(sums, rows + from * at_rows.k, at_rows, columns + from * at_columns.k, at_columns,
                                         end - from);
                continue;
            }
            CELL_UNROLL
            for (int r = 0; r < 8; r++)
                sums[r % 4 / 2 * 4 + r / 4 * 2 + r % 2] += parts[r / 4].x[r % 4];
        }
    }
}

// Adds the products of the operands of a dot product, of which k elements count, and zeros follow up to a multiple of 8.
template <class T, int Extent, class R>
__device__ __forceinline__ void cell_window_multiply(R (&sums)[8], cell_smem<R> rows, cell_smem<R> columns,
                                                     int k)
{
    constexpr cell_window_place at = {Extent + CELL_WINDOW_PAD, 1};
    cell_detail_window_sums<T, false>(sums, rows, at, columns, at, k);
}

// Adds 32 rows of 32 columns, weighed by a tile of pairs: what has no weight is left out, be it a number or not.
template <class T, int Width, class R>
__device__ __forceinline__ void cell_window_weigh(R (&sums)[8], cell_smem<R> weights, cell_smem<R> columns)
{
    constexpr cell_window_place pair = {1, 32 + CELL_WINDOW_GAP}, column = {1, Width + CELL_WINDOW_GAP};
    cell_detail_window_sums<T, true>(sums, weights, pair, columns, column, 32);
}

// As a tile of pairs.
template <class R> __device__ __forceinline__ void cell_window_put(cell_smem<R> tile, const R (&sums)[8])
{
    CELL_UNROLL
    for (int q = 0; q < 2; q++) {
        CELL_UNROLL
        for (int x = 0; x < 4; x++)
            tile[cell_window_column(x) * (32 + CELL_WINDOW_GAP) + cell_window_row(q)] = sums[q * 4 + x];
    }
}

// Where pairs are pointwise, thread n has pairs of row n % 32, as have three threads more; `shares` has an
// element for each thread, `factors` one for each row. The largest of what these four threads have:
template <class R> __device__ __forceinline__ R cell_window_most(cell_smem<R> shares, R near)
{
    shares[cell_thread()] = near;
    cell_barrier();
    for (int share = 0; share < 4; share++)
        near = cell_max(near, (R)shares[cell_thread() % 32 + share * 32]);
    return near;
}

// Their sum:
template <class R> __device__ __forceinline__ R cell_window_total(cell_smem<R> shares, R part)
{
    cell_barrier();
    shares[cell_thread()] = part;
    cell_barrier();
    R sum = shares[cell_thread() % 32];
    for (int share = 1; share < 4; share++)
        sum += (R)shares[cell_thread() % 32 + share * 32];
    return sum;
}

// A row's maximum grows from `most` to `near`: gives, and leaves in `factors`, what its sums so far are to
// be scaled by.
template <class R> __device__ __forceinline__ R cell_window_growth(cell_smem<R> factors, R most, R near)
{
    const R scale = most == near ? 1 : cell_exp(most - near);
    if (cell_thread() < 32)
        factors[cell_thread()] = scale;
    return scale;
}

// Scales the sums of tiles of columns by their rows' factors.
template <int Tiles, class R>
__device__ __forceinline__ void cell_window_rescale(R (&sums)[Tiles][8], cell_smem<R> factors)
{
    CELL_UNROLL
    for (int q = 0; q < 2; q++) {
        const R scale = factors[cell_window_row(q)];
        CELL_UNROLL
        for (int x = 0; x < 4 * Tiles; x++)
            sums[x / 4][q * 4 + x % 4] *= scale;
    }
}

#endif
