// Products of f32 on tensor cores: a number as the sum of three of bf16.
//
// In: a matrix of f32. Out: a copy with three numbers of bf16 for each, of which that one is the sum: the number rounded
// to bf16, what is left of it rounded, and what is left then, which is exact (24 bits of fraction are three times 8).
// Guaranteed: exact from 2^-110 on, and below up to 2^-134; the largest finite numbers stay finite; an infinity becomes
// one and NaN. So of the nine products of the parts of x and y the six largest have x y with an error below 2^-23 |x y|.
#ifndef CELL_DEVICE_PARTS_CUH
#define CELL_DEVICE_PARTS_CUH

enum { CELL_PARTS = 3 };

// As bf16 has it, and finite where v is.
__device__ __forceinline__ float cell_bf16_nearest(float v)
{
    constexpr float most = 3.3895313892515355e38f; // of bf16, 255 * 2^120; of f32 nearly 256 * 2^120
    if (v > most && v < CELL_INF_F)
        return most;
    if (v < -most && v > -CELL_INF_F)
        return -most;
    return cell_convert<float>(cell_convert<cell_bf16>(v));
}

// N neighbours of each part, the largest first.
template <int N> __device__ __forceinline__ void cell_split(float (&parts)[CELL_PARTS][N], const float (&v)[N])
{
    CELL_UNROLL
    for (int i = 0; i < N; i++) {
        float left = v[i];
        CELL_UNROLL
        for (int part = 0; part < CELL_PARTS; part++) {
            parts[part][i] = cell_bf16_nearest(left);
            left -= parts[part][i];
        }
    }
}

// Row `row` of the copy has its parts `apart` from one another, the smallest first where Rising.
template <bool Rising, int N>
__device__ __forceinline__ void cell_split_row(cell_bf16 *to, const float *from, int64_t at, int64_t columns, int64_t apart)
{
    const int64_t first = (cell_block_index(0) * cell_threads() + cell_thread()) * N;
    for (int64_t c = first; c < columns; c += cell_block_count(0) * cell_threads() * N) {
        float v[N], parts[CELL_PARTS][N];
        cell_load_vec_or_zero<N>(v, from, at + c);
        cell_split(parts, v);
        CELL_UNROLL
        for (int part = 0; part < CELL_PARTS; part++)
            cell_store_vec<N>(to + (Rising ? CELL_PARTS - 1 - part : part) * apart + c, parts[part]);
    }
}

template <bool Planes, bool Rising, int N>
__device__ __forceinline__ void cell_split_rows(cell_bf16 *to, const float *from, int64_t offset, int64_t rows,
                                                int64_t columns, int64_t pitch)
{
    for (int64_t row = cell_block_index(1); row < rows; row += cell_block_count(1))
        cell_split_row<Rising, N>(to + row * columns * (Planes ? 1 : CELL_PARTS), from, offset + row * pitch, columns,
                                  Planes ? rows * columns : columns);
}

// The matrix stands `offset` behind `from`, its rows `pitch` apart; where `from` is null it is zero. The copy has
// [rows][parts][columns], or, as Planes, [parts][rows][columns].
template <bool Planes, bool Rising>
__device__ __forceinline__ void cell_split_matrix(cell_bf16 *to, const float *from, int64_t offset, int64_t rows,
                                                  int64_t columns, int64_t pitch)
{
    constexpr int wide = 8;
    const bool aligned = reinterpret_cast<uintptr_t>(from) % 16 == 0 && offset % 4 == 0 && pitch % 4 == 0;
    if (aligned && columns % wide == 0)
        cell_split_rows<Planes, Rising, wide>(to, from, offset, rows, columns, pitch);
    else
        cell_split_rows<Planes, Rising, 1>(to, from, offset, rows, columns, pitch);
}

#endif
