// Products of few rows in f32 (runtime/ops.c: few_rows): of each of args.t products Y = X W, Y[r, o] = sum
// over k of X[r, k] W[k, o]; a few rows of X, and a large W that is read once. args.ptr has where all X are,
// all W, all Y, which begin at 16 bytes; args.size: rows, at most Rows; outs, a multiple of CELL_FEW_OUTS;
// terms, a multiple of CELL_FEW_TERMS; and what lies between rows of X, of W and of Y, multiples of 4. W lies
// by terms (Across: element (k, o) at k * pitch + o) or by outs (at o * pitch + k).
//
// A block owns CELL_FEW_OUTS outs of one product and streams their terms through shared memory. Each of its 8
// warps sums every eighth part of these; the block adds the warps' sums up in their order, so that a result
// depends on nothing but its operands. Measured on an H200: bench/results/h200-few-rows.txt.
#ifndef CELL_DEVICE_FEW_CUH
#define CELL_DEVICE_FEW_CUH

#include "../cell_few_sizes.h"

template <int Rows, bool Across> struct cell_few {
    static constexpr int outs = CELL_FEW_OUTS, terms = CELL_FEW_TERMS, pad = 4, warps = CELL_FEW_THREADS / 32;
    // A thread's own: rows 4 apart, and outs: neighbours (Across) or 8 apart.
    static constexpr int own_rows = Rows / 4, own_outs = outs / 8;
    static constexpr int matrix_rows = Across ? terms : outs, matrix_columns = Across ? outs : terms;
    static constexpr int pitch = matrix_columns + pad, row_pitch = terms + pad;
    static constexpr int vector = matrix_rows * pitch, stage = vector + Rows * row_pitch,
                         stages = CELL_FEW_STAGES(Rows);
    static_assert(warps * 8 == terms, "each warp has 8 terms of a stage");
    static_assert(warps * 16 * outs <= stages * stage, "the warps' sums of 16 rows have room");

    cell_smem<float> memory;
    const float *x, *w;
    int64_t rows, first, x_pitch, w_pitch;
    float sums[own_rows][own_outs];

    // Terms from `step * terms` on are asked for.
    __device__ __forceinline__ void fetch(int64_t step)
    {
        const cell_smem<float> to = memory + (int)(step % stages) * stage;
        const int64_t from = step * terms;
        for (int i = cell_thread(); i < matrix_rows * matrix_columns / 4; i += CELL_FEW_THREADS) {
            const int row = i / (matrix_columns / 4), column = i % (matrix_columns / 4) * 4;
            const int64_t place =
                Across ? (from + row) * w_pitch + first + column : (first + row) * w_pitch + from + column;
            cell_cp_async<16>(to + (row * pitch + column), w + place);
        }
        for (int i = cell_thread(); i < Rows * terms / 4; i += CELL_FEW_THREADS) {
            const int row = i / (terms / 4), column = i % (terms / 4) * 4;
            const bool valid = row < rows;
            cell_cp_async_zfill<16>(to + (vector + row * row_pitch + column),
                                    x + (valid ? row * x_pitch + from + column : 0), valid);
        }
    }

    static __device__ __forceinline__ void load(float (&v)[4], cell_smem<float> from)
    {
        uint32_t words[4];
        cell_shared_words(words, from);
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            v[i] = cell_detail_bits_float(words[i]);
    }

    // Four terms of a stage, from k on.
    __device__ __forceinline__ void multiply(cell_smem<float> from, int k)
    {
        const int out = cell_lane() % 8, row = cell_lane() / 8;
        float own[own_rows][4], of[4];
        CELL_UNROLL
        for (int i = 0; i < own_rows; i++)
            load(own[i], from + (vector + (row + 4 * i) * row_pitch + k));
        CELL_UNROLL
        for (int q = 0; q < 4; q++) { // a term of all outs, or an out's terms
            load(of, from + (Across ? (k + q) * pitch + out * 4 : (out + 8 * q) * pitch + k));
            CELL_UNROLL
            for (int i = 0; i < own_rows; i++)
                CELL_UNROLL
                for (int e = 0; e < 4; e++)
                    sums[i][Across ? e : q] =
                        cell_fma(own[i][Across ? q : e], of[e], sums[i][Across ? e : q]);
        }
    }

    // 16 rows at a time.
    __device__ __forceinline__ void put(float *y, int64_t y_pitch)
    {
        const int out = cell_lane() % 8, row = cell_lane() / 8;
        CELL_UNROLL
        for (int part = 0; part < Rows / 16; part++) {
            CELL_UNROLL
            for (int i = 0; i < 4; i++)
                CELL_UNROLL
                for (int j = 0; j < own_outs; j++)
                    memory[(cell_warp() * 16 + i * 4 + row) * outs + (Across ? out * 4 + j : out + 8 * j)] =
                        sums[part * 4 + i][j];
            cell_barrier();
            for (int i = cell_thread(); i < 16 * outs; i += CELL_FEW_THREADS) {
                const int64_t at = part * 16 + i / outs;
                float total = 0;
                for (int of = 0; of < warps; of++)
                    total += memory[of * 16 * outs + i];
                if (at < rows)
                    y[at * y_pitch + first + i % outs] = total;
            }
            cell_barrier();
        }
    }
};

template <int Rows, bool Across> __device__ __forceinline__ void cell_few_rows(const cell_kernel_args &args)
{
    using Few = cell_few<Rows, Across>;
    auto cursor = cell_shared();
    const int64_t of = cell_block_index(0) / (args.size[1] / Few::outs), steps = args.size[2] / Few::terms;
    Few few;
    few.memory = cell_carve<float>(cursor, Few::stages * Few::stage);
    few.x = (const float *)args.ptr[of];
    few.w = (const float *)args.ptr[args.t + of];
    few.rows = args.size[0];
    few.first = cell_block_index(0) % (args.size[1] / Few::outs) * Few::outs;
    few.x_pitch = args.size[3];
    few.w_pitch = args.size[4];
    CELL_UNROLL
    for (int i = 0; i < Few::own_rows; i++)
        CELL_UNROLL
        for (int j = 0; j < Few::own_outs; j++)
            few.sums[i][j] = 0;
    cell_dependency_wait();
    for (int64_t step = 0; step < Few::stages - 1; step++) {
        if (step < steps)
            few.fetch(step);
        cell_cp_async_commit();
    }
    for (int64_t step = 0; step < steps; step++) {
        cell_cp_async_wait<Few::stages - 2>();
        cell_barrier();
        if (step + Few::stages - 1 < steps)
            few.fetch(step + Few::stages - 1);
        cell_cp_async_commit();
        const cell_smem<float> here = few.memory + (int)(step % Few::stages) * Few::stage;
        few.multiply(here, cell_warp() * 8);
        few.multiply(here, cell_warp() * 8 + 4);
    }
    cell_cp_async_wait<0>();
    cell_barrier();
    few.put((float *)args.ptr[2 * args.t + of], args.size[5]);
}

#endif
