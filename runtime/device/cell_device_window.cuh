// Tiles of pairs of steps, for sums over the past that are made of products (attention and its gradients).
//
// In: two tiles in shared memory, k rows of 32 elements each, CELL_WINDOW_PITCH apart. Out: the sums over k of the products
// of every element of the one with every element of the other, of which each of 128 threads has 4 x 2 in registers: rows
// 4 * (thread / 16) + q, columns thread % 16 + 16 * x. Guaranteed: k is summed over in order.
#ifndef CELL_DEVICE_WINDOW_CUH
#define CELL_DEVICE_WINDOW_CUH

#define CELL_WINDOW_PITCH 33

template <bool Skip, class R>
__device__ __forceinline__ void cell_detail_window(R (&sums)[4][2], cell_smem<R> rows, cell_smem<R> columns, int k)
{
    const int row = cell_thread() / 16 * 4, column = cell_thread() % 16;
    CELL_UNROLL_BY(8)
    for (int i = 0; i < k; i++) {
        R a[4], b[2];
        CELL_UNROLL
        for (int q = 0; q < 4; q++)
            a[q] = rows[i * CELL_WINDOW_PITCH + row + q];
        CELL_UNROLL
        for (int x = 0; x < 2; x++)
            b[x] = columns[i * CELL_WINDOW_PITCH + column + 16 * x];
        CELL_UNROLL
        for (int q = 0; q < 4; q++) {
            CELL_UNROLL
            for (int x = 0; x < 2; x++)
                if (!Skip || a[q] != 0)
                    sums[q][x] += a[q] * b[x];
        }
    }
}

template <class R>
__device__ __forceinline__ void cell_window_multiply(R (&sums)[4][2], cell_smem<R> rows, cell_smem<R> columns, int k)
{
    cell_detail_window<false>(sums, rows, columns, k);
}

// Of rows that are weights: what has none is left out, be it a number or not.
template <class R>
__device__ __forceinline__ void cell_window_weigh(R (&sums)[4][2], cell_smem<R> rows, cell_smem<R> columns, int k)
{
    cell_detail_window<true>(sums, rows, columns, k);
}

// As the rows of a tile: element [column][row].
template <class R> __device__ __forceinline__ void cell_window_put(cell_smem<R> tile, const R (&sums)[4][2])
{
    const int row = cell_thread() / 16 * 4, column = cell_thread() % 16;
    CELL_UNROLL
    for (int q = 0; q < 4; q++) {
        CELL_UNROLL
        for (int x = 0; x < 2; x++)
            tile[(column + 16 * x) * CELL_WINDOW_PITCH + row + q] = sums[q][x];
    }
}

#endif
