// lstm: CUDA kernels, written by cellc
#include "cell_device.cuh"

// Chunks of rows whose sums are added in order; the launch plan has the same expression.
static __device__ __forceinline__ int64_t column_chunks(int64_t rows, int64_t columns)
{
    const int64_t spans = columns > 256 ? (columns + 255) / 256 : 1;
    int64_t chunks = (rows + 63) / 64;
    chunks = chunks > 256 ? 256 : chunks;
    chunks = chunks > 512 / spans ? 512 / spans : chunks;
    return chunks > 1 ? chunks : 1;
}

extern "C" __global__ void __launch_bounds__(128)
lstm_fwd_step_2(const __grid_constant__ cell_kernel_args args)
{
    [[maybe_unused]] const int64_t dim_B = args.size[0], dim_T = args.size[1];
    [[maybe_unused]] const int64_t dim_D = args.size[2];
    [[maybe_unused]] const int64_t dim_H = args.size[3];
    [[maybe_unused]] const int64_t t0 = args.size[4];
    [[maybe_unused]] const bool all = args.flags & CELL_KERNEL_SAVE;   // steps are kept
    const int64_t rows = dim_B, elements = dim_H;
    for (int64_t row = cell_block_index(1); row < rows; row += cell_block_count(1)) {
        [[maybe_unused]] const int64_t b = row, t = args.t;
        for (int64_t e = cell_block_index(0) * 128 + cell_thread(); e < elements;
                e += cell_block_count(0) * 128) {
            [[maybe_unused]] const int64_t i_a = e;
            // o, lstm.cell:18: o[a:H] = sigmoid(p[3*H + a]);
            const float a195 = cell_sigmoid((((cell_load_ro<float>(((float *)args.ptr[0])
                    + (b * dim_T + t) * (4*dim_H) + (3*dim_H + i_a))
                    + cell_load_ro<float>(((float *)args.ptr[1]) + (3*dim_H + i_a)))
                    + cell_load_ro<float>(((float *)args.ptr[2]) + (b) * (4*dim_H) + (3*dim_H + i_a)))
                    + cell_load_ro<float>(((float *)args.ptr[3]) + (3*dim_H + i_a))));
            if (((float *)args.ptr[4]))
                cell_store(((float *)args.ptr[4]) + (b * dim_T + t) * (dim_H) + i_a, a195);
            // f, lstm.cell:16: f[a:H] = sigmoid(p[H + a]);
            const float a199 = cell_sigmoid((((cell_load_ro<float>(((float *)args.ptr[0])
                    + (b * dim_T + t) * (4*dim_H) + (dim_H + i_a))
                    + cell_load_ro<float>(((float *)args.ptr[1]) + (dim_H + i_a)))
                    + cell_load_ro<float>(((float *)args.ptr[2]) + (b) * (4*dim_H) + (dim_H + i_a)))
                    + cell_load_ro<float>(((float *)args.ptr[3]) + (dim_H + i_a))));
            if (((float *)args.ptr[5]))
                cell_store(((float *)args.ptr[5]) + (b * dim_T + t) * (dim_H) + i_a, a199);
            // i, lstm.cell:15: i[a:H] = sigmoid(p[a]);
            const float a203 = cell_sigmoid((((cell_load_ro<float>(((float *)args.ptr[0])
                    + (b * dim_T + t) * (4*dim_H) + i_a) + cell_load_ro<float>(((float *)args.ptr[1]) + i_a))
                    + cell_load_ro<float>(((float *)args.ptr[2]) + (b) * (4*dim_H) + i_a))
                    + cell_load_ro<float>(((float *)args.ptr[3]) + i_a)));
            if (((float *)args.ptr[6]))
                cell_store(((float *)args.ptr[6]) + (b * dim_T + t) * (dim_H) + i_a, a203);
            // g, lstm.cell:17: g[a:H] = tanh(p[2*H + a]);
            const float a206 = cell_tanh((((cell_load_ro<float>(((float *)args.ptr[0])
                    + (b * dim_T + t) * (4*dim_H) + (2*dim_H + i_a))
                    + cell_load_ro<float>(((float *)args.ptr[1]) + (2*dim_H + i_a)))
                    + cell_load_ro<float>(((float *)args.ptr[2]) + (b) * (4*dim_H) + (2*dim_H + i_a)))
                    + cell_load_ro<float>(((float *)args.ptr[3]) + (2*dim_H + i_a))));
            if (((float *)args.ptr[7]))
                cell_store(((float *)args.ptr[7]) + (b * dim_T + t) * (dim_H) + i_a, a206);
            // c_next, lstm.cell:20: c'[a] = f[a] * c[a] + i[a] * g[a];
            const float a209 = ((a199 * cell_load<float>(t > 0
                    ? ((float *)args.ptr[9]) + (all ? b * dim_T + (t - 1) : b * 2 + (t - 1) % 2) * dim_H
                    + i_a : ((float *)args.ptr[8]) + b * dim_H + i_a)) + (a203 * a206));
            if (((float *)args.ptr[10]) && t + 1 == dim_T)
                cell_store(((float *)args.ptr[10]) + b * dim_H + i_a, a209);
            cell_store(((float *)args.ptr[9]) + (all ? b * dim_T + t : b * 2 + t % 2) * (dim_H) + i_a, a209);
            // h_next, lstm.cell:21: h'[a] = o[a] * tanh(c'[a]);
            const float a274 = (a195 * cell_tanh(a209));
            if (t + 1 < dim_T)
                cell_store(((float *)args.ptr[11]) + (all ? b * dim_T + (t + 1) : b * 2 + (t + 1) % 2)
                        * dim_H + i_a, a274);
            if (((float *)args.ptr[12]) && t + 1 == dim_T)
                cell_store(((float *)args.ptr[12]) + b * dim_H + i_a, a274);
            cell_store(((float *)args.ptr[13]) + (all ? b * dim_T + t : b * 2 + t % 2) * (dim_H) + i_a, a274);
            // y, lstm.cell:22: y[a] = h'[a];
            const float a280 = a274;
            cell_store(((float *)args.ptr[14]) + (b * dim_T + t) * (dim_H) + i_a, a280);
        }
    }
}

extern "C" __global__ void __launch_bounds__(128)
lstm_bwd_step_0(const __grid_constant__ cell_kernel_args args)
{
    cell_dependency_wait();
    [[maybe_unused]] const int64_t dim_B = args.size[0], dim_T = args.size[1];
    [[maybe_unused]] const int64_t dim_D = args.size[2];
    [[maybe_unused]] const int64_t dim_H = args.size[3];
    [[maybe_unused]] const int64_t t0 = args.size[4];
    const int64_t rows = dim_B, elements = dim_H;
    for (int64_t row = cell_block_index(1); row < rows; row += cell_block_count(1)) {
        [[maybe_unused]] const int64_t b = row, t = args.t;
        for (int64_t e = cell_block_index(0) * 128 + cell_thread(); e < elements;
                e += cell_block_count(0) * 128) {
            [[maybe_unused]] const int64_t i_a = e;
            // d_h_next, lstm.cell:21: h'[a] = o[a] * tanh(c'[a]);
            const float a66 = (cell_load<float>(((float *)args.ptr[0]) + (((t + 1) & 1) * dim_B + b) * dim_H
                    + i_a) + (((float *)args.ptr[1]) ? cell_load_ro<float>(((float *)args.ptr[1])
                    + (b * dim_T + t) * (dim_H) + i_a) : (float)0));
            // d_c_next, lstm.cell:20: c'[a] = f[a] * c[a] + i[a] * g[a];
            const float v210_0 = cell_tanh(cell_load_ro<float>(((float *)args.ptr[2])
                    + (b * dim_T + t) * (dim_H) + i_a));
            const float a215 = (cell_load<float>(((float *)args.ptr[3]) + (((t + 1) & 1) * dim_B + b) * dim_H
                    + i_a) + ((a66 * cell_load_ro<float>(((float *)args.ptr[4]) + (b * dim_T + t) * (dim_H)
                    + i_a)) * (1.0f - (v210_0 * v210_0))));
            // d_g, lstm.cell:17: g[a:H] = tanh(p[2*H + a]);
            const float a217 = (a215 * cell_load_ro<float>(((float *)args.ptr[5]) + (b * dim_T + t) * (dim_H)
                    + i_a));
            // part of lstm.cell:17: g[a:H] = tanh(p[2*H + a]);
            const float a221 = (a217 * (1.0f - (cell_load_ro<float>(((float *)args.ptr[6])
                    + (b * dim_T + t) * (dim_H) + i_a) * cell_load_ro<float>(((float *)args.ptr[6])
                    + (b * dim_T + t) * (dim_H) + i_a))));
            cell_store(((float *)args.ptr[7]) + (b * dim_T + t) * (4*dim_H) + (2*dim_H + i_a), a221);
            // d_i, lstm.cell:15: i[a:H] = sigmoid(p[a]);
            const float a226 = (a215 * cell_load_ro<float>(((float *)args.ptr[6]) + (b * dim_T + t) * (dim_H)
                    + i_a));
            // part of lstm.cell:15: i[a:H] = sigmoid(p[a]);
            const float a230 = (a226 * (cell_load_ro<float>(((float *)args.ptr[5])
                    + (b * dim_T + t) * (dim_H) + i_a) * (1.0f - cell_load_ro<float>(((float *)args.ptr[5])
                    + (b * dim_T + t) * (dim_H) + i_a))));
            cell_store(((float *)args.ptr[8]) + (b * dim_T + t) * (4*dim_H) + i_a, a230);
            // d_f, lstm.cell:16: f[a:H] = sigmoid(p[H + a]);
            const float a236 = (a215 * cell_load<float>(t > 0
                    ? ((float *)args.ptr[2]) + (b * dim_T + (t - 1)) * dim_H + i_a
                    : ((float *)args.ptr[9]) + b * dim_H + i_a));
            // part of lstm.cell:16: f[a:H] = sigmoid(p[H + a]);
            const float a240 = (a236 * (cell_load_ro<float>(((float *)args.ptr[10])
                    + (b * dim_T + t) * (dim_H) + i_a) * (1.0f - cell_load_ro<float>(((float *)args.ptr[10])
                    + (b * dim_T + t) * (dim_H) + i_a))));
            cell_store(((float *)args.ptr[11]) + (b * dim_T + t) * (4*dim_H) + (dim_H + i_a), a240);
            // d_o, lstm.cell:18: o[a:H] = sigmoid(p[3*H + a]);
            const float a246 = (a66 * cell_tanh(cell_load_ro<float>(((float *)args.ptr[2])
                    + (b * dim_T + t) * (dim_H) + i_a)));
            // part of lstm.cell:18: o[a:H] = sigmoid(p[3*H + a]);
            const float a250 = (a246 * (cell_load_ro<float>(((float *)args.ptr[4])
                    + (b * dim_T + t) * (dim_H) + i_a) * (1.0f - cell_load_ro<float>(((float *)args.ptr[4])
                    + (b * dim_T + t) * (dim_H) + i_a))));
            cell_store(((float *)args.ptr[12]) + (b * dim_T + t) * (4*dim_H) + (3*dim_H + i_a), a250);
            // d_c, lstm.cell:11: c
            const float a279 = (a215 * cell_load_ro<float>(((float *)args.ptr[10])
                    + (b * dim_T + t) * (dim_H) + i_a));
            cell_store(((float *)args.ptr[3]) + ((t & 1) * dim_B + b) * dim_H + i_a, a279);
            if (t > 0) {
                if (((float *)args.ptr[1])) cell_prefetch(((float *)args.ptr[1])
                        + (b * dim_T + (t - 1)) * (dim_H) + i_a);
                cell_prefetch(((float *)args.ptr[2]) + (b * dim_T + (t - 1)) * (dim_H) + i_a);
                cell_prefetch(((float *)args.ptr[4]) + (b * dim_T + (t - 1)) * (dim_H) + i_a);
                cell_prefetch(((float *)args.ptr[5]) + (b * dim_T + (t - 1)) * (dim_H) + i_a);
                cell_prefetch(((float *)args.ptr[6]) + (b * dim_T + (t - 1)) * (dim_H) + i_a);
                cell_prefetch(((float *)args.ptr[10]) + (b * dim_T + (t - 1)) * (dim_H) + i_a);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 4)
lstm_bwd_after_5(const __grid_constant__ cell_kernel_args args)
{
    [[maybe_unused]] const int64_t dim_B = args.size[0], dim_T = args.size[1];
    [[maybe_unused]] const int64_t dim_D = args.size[2];
    [[maybe_unused]] const int64_t dim_H = args.size[3];
    [[maybe_unused]] const int64_t t0 = args.size[4];
    auto cursor = cell_shared();
    cell_smem<float> scratch = cell_carve<float>(cursor, 256);
    const int64_t rows = dim_B * dim_T, columns = 4*dim_H;
    const int64_t chunks = cell_block_count(1), chunk = cell_block_index(1);
    const int64_t begin = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
    const int lane = cell_thread() % 32, part = cell_thread() / 32;
    if (columns % 4 == 0 && (4*dim_H) % 4 == 0) {
        const int64_t blocks = (columns + 127) / 128;
        for (int64_t block = cell_block_index(0); block < blocks; block += cell_block_count(0)) {
            const int64_t e = (block * 32 + lane) * 4;
            float sum_271[4] = {};
            float sum_272[4] = {};
            if (e < columns) {
                for (int64_t row = begin + part; row < end; row += 8) {
                    [[maybe_unused]] const int64_t b = row / dim_T, t = row % dim_T;
                    float l0[4];
                    cell_load_vec_ro<4>(l0, ((float *)args.ptr[0]) + row * (4*dim_H) + e);
                    CELL_UNROLL
                    for (int u = 0; u < 4; u++) {
                        [[maybe_unused]] const int64_t i_column = e + u;
                        // d_bias_ih, lstm.cell:10: bias_ih
                        sum_271[u] += l0[u];
                        // d_bias_hh, lstm.cell:10: bias_hh
                        sum_272[u] += l0[u];
                    }
                }
            }
            for (int u = 0; u < 4; u++) {
                scratch[cell_thread()] = sum_271[u];
                cell_barrier();
                if (part == 0 && e < columns) {
                    float total = 0;
                    for (int w = 0; w < 8; w++) {
                        const float v = scratch[w * 32 + lane];
                        total += v;
                    }
                    ((float *)args.ptr[1])[(0 * chunks + chunk) * columns + e + u] = total;
                }
                cell_barrier();
            }
            for (int u = 0; u < 4; u++) {
                scratch[cell_thread()] = sum_272[u];
                cell_barrier();
                if (part == 0 && e < columns) {
                    float total = 0;
                    for (int w = 0; w < 8; w++) {
                        const float v = scratch[w * 32 + lane];
                        total += v;
                    }
                    ((float *)args.ptr[1])[(1 * chunks + chunk) * columns + e + u] = total;
                }
                cell_barrier();
            }
        }
    } else {
        const int64_t blocks = (columns + 31) / 32;
        for (int64_t block = cell_block_index(0); block < blocks; block += cell_block_count(0)) {
            const int64_t e = (block * 32 + lane) * 1;
            float sum_271[1] = {};
            float sum_272[1] = {};
            if (e < columns) {
                [[maybe_unused]] const int64_t col_r = e;
                for (int64_t row = begin + part; row < end; row += 8) {
                    [[maybe_unused]] const int64_t b = row / dim_T, t = row % dim_T;
                    // d_bias_ih, lstm.cell:10: bias_ih
                    sum_271[0] += cell_load_ro<float>(((float *)args.ptr[0]) + row * (4*dim_H) + col_r);
                    // d_bias_hh, lstm.cell:10: bias_hh
                    sum_272[0] += cell_load_ro<float>(((float *)args.ptr[0]) + row * (4*dim_H) + col_r);
                }
            }
            for (int u = 0; u < 1; u++) {
                scratch[cell_thread()] = sum_271[u];
                cell_barrier();
                if (part == 0 && e < columns) {
                    float total = 0;
                    for (int w = 0; w < 8; w++) {
                        const float v = scratch[w * 32 + lane];
                        total += v;
                    }
                    ((float *)args.ptr[1])[(0 * chunks + chunk) * columns + e + u] = total;
                }
                cell_barrier();
            }
            for (int u = 0; u < 1; u++) {
                scratch[cell_thread()] = sum_272[u];
                cell_barrier();
                if (part == 0 && e < columns) {
                    float total = 0;
                    for (int w = 0; w < 8; w++) {
                        const float v = scratch[w * 32 + lane];
                        total += v;
                    }
                    ((float *)args.ptr[1])[(1 * chunks + chunk) * columns + e + u] = total;
                }
                cell_barrier();
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 4)
lstm_bwd_after_5_2(const __grid_constant__ cell_kernel_args args)
{
    [[maybe_unused]] const int64_t dim_B = args.size[0], dim_T = args.size[1];
    [[maybe_unused]] const int64_t dim_D = args.size[2];
    [[maybe_unused]] const int64_t dim_H = args.size[3];
    [[maybe_unused]] const int64_t t0 = args.size[4];
    auto cursor = cell_shared();
    cell_smem<float> scratch = cell_carve<float>(cursor, 256);
    const int64_t rows = dim_B * dim_T, columns = 4*dim_H;
    const int64_t chunks = column_chunks(rows, columns);
    const int lane = cell_thread() % 32, part = cell_thread() / 32;
    const int64_t begin = chunks * part / 8, end = chunks * (part + 1) / 8;
    const int64_t blocks = (columns + 31) / 32;
    for (int64_t block = cell_block_index(0); block < blocks; block += cell_block_count(0)) {
        const int64_t column = block * 32 + lane;
        [[maybe_unused]] const int64_t col_r = column;
        float part_271 = 0;
        CELL_UNROLL_BY(8)
        for (int64_t chunk = begin; chunk < end && column < columns; chunk++)
            part_271 += cell_load_ro<float>(((float *)args.ptr[0]) + (0 * chunks + chunk) * columns + column);
        scratch[cell_thread()] = part_271;
        cell_barrier();
        if (part == 0 && column < columns) {
            float sum_271 = 0;
            for (int w = 0; w < 8; w++) {
                const float v = scratch[w * 32 + lane];
                sum_271 += v;
            }
            if (((float *)args.ptr[1]))
                cell_store(((float *)args.ptr[1]) + col_r,
                        args.flags & CELL_KERNEL_ACCUMULATE ? cell_load<float>(((float *)args.ptr[1])
                        + col_r) + sum_271 : sum_271);
        }
        cell_barrier();
        float part_272 = 0;
        CELL_UNROLL_BY(8)
        for (int64_t chunk = begin; chunk < end && column < columns; chunk++)
            part_272 += cell_load_ro<float>(((float *)args.ptr[0]) + (1 * chunks + chunk) * columns + column);
        scratch[cell_thread()] = part_272;
        cell_barrier();
        if (part == 0 && column < columns) {
            float sum_272 = 0;
            for (int w = 0; w < 8; w++) {
                const float v = scratch[w * 32 + lane];
                sum_272 += v;
            }
            if (((float *)args.ptr[2]))
                cell_store(((float *)args.ptr[2]) + col_r,
                        args.flags & CELL_KERNEL_ACCUMULATE ? cell_load<float>(((float *)args.ptr[2])
                        + col_r) + sum_272 : sum_272);
        }
        cell_barrier();
    }
}

extern "C" __global__ void __launch_bounds__(256)
lstm_init_5(const __grid_constant__ cell_kernel_args args)
{
    [[maybe_unused]] const int64_t dim_B = args.size[0], dim_T = args.size[1];
    [[maybe_unused]] const int64_t dim_D = args.size[2];
    [[maybe_unused]] const int64_t dim_H = args.size[3];
    [[maybe_unused]] const int64_t t0 = args.size[4];
    [[maybe_unused]] const bool all = args.flags & CELL_KERNEL_SAVE;   // steps are kept
    const int64_t elements = dim_H;
    for (int64_t n = cell_block_index(0) * 256 + cell_thread(); n < dim_B * elements;
            n += cell_block_count(0) * 256) {
        [[maybe_unused]] const int64_t b = n / elements, e = n - b * elements;
        const float value = ((float *)args.ptr[0]) ? ((float *)args.ptr[0])[n] : (float)0;
        ((float *)args.ptr[1])[n] = value;
        if (dim_T > 0)
            cell_store(((float *)args.ptr[2]) + (all ? b * dim_T + 0 : b * 2 + 0 % 2) * elements + e, value);
        if (dim_T == 0 && ((float *)args.ptr[3]))
            ((float *)args.ptr[3])[n] = value;
    }
}

extern "C" __global__ void __launch_bounds__(256)
lstm_seed_5(const __grid_constant__ cell_kernel_args args)
{
    [[maybe_unused]] const int64_t dim_B = args.size[0], dim_T = args.size[1];
    [[maybe_unused]] const int64_t dim_D = args.size[2];
    [[maybe_unused]] const int64_t dim_H = args.size[3];
    [[maybe_unused]] const int64_t t0 = args.size[4];
    const int64_t elements = dim_H;
    for (int64_t n = cell_block_index(0) * 256 + cell_thread(); n < dim_B * elements;
            n += cell_block_count(0) * 256) {
        ((float *)args.ptr[1])[(dim_T & 1) * dim_B * elements + n] = ((float *)args.ptr[0])
                ? ((float *)args.ptr[0])[n] : (float)0;
    }
}

extern "C" __global__ void __launch_bounds__(256)
lstm_result_5(const __grid_constant__ cell_kernel_args args)
{
    [[maybe_unused]] const int64_t dim_B = args.size[0], dim_T = args.size[1];
    [[maybe_unused]] const int64_t dim_D = args.size[2];
    [[maybe_unused]] const int64_t dim_H = args.size[3];
    [[maybe_unused]] const int64_t t0 = args.size[4];
    const int64_t elements = dim_H;
    for (int64_t n = cell_block_index(0) * 256 + cell_thread(); n < dim_B * elements;
            n += cell_block_count(0) * 256) {
        if (((float *)args.ptr[0]))
            ((float *)args.ptr[0])[n] = args.flags & CELL_KERNEL_ACCUMULATE
                    ? ((float *)args.ptr[0])[n] + ((float *)args.ptr[1])[n] : ((float *)args.ptr[1])[n];
    }
}

extern "C" __global__ void __launch_bounds__(256)
lstm_init_6(const __grid_constant__ cell_kernel_args args)
{
    [[maybe_unused]] const int64_t dim_B = args.size[0], dim_T = args.size[1];
    [[maybe_unused]] const int64_t dim_D = args.size[2];
    [[maybe_unused]] const int64_t dim_H = args.size[3];
    [[maybe_unused]] const int64_t t0 = args.size[4];
    [[maybe_unused]] const bool all = args.flags & CELL_KERNEL_SAVE;   // steps are kept
    const int64_t elements = dim_H;
    for (int64_t n = cell_block_index(0) * 256 + cell_thread(); n < dim_B * elements;
            n += cell_block_count(0) * 256) {
        [[maybe_unused]] const int64_t b = n / elements, e = n - b * elements;
        const float value = ((float *)args.ptr[0]) ? ((float *)args.ptr[0])[n] : (float)0;
        ((float *)args.ptr[1])[n] = value;
        if (dim_T == 0 && ((float *)args.ptr[2]))
            ((float *)args.ptr[2])[n] = value;
    }
}

extern "C" __global__ void __launch_bounds__(256)
lstm_seed_6(const __grid_constant__ cell_kernel_args args)
{
    [[maybe_unused]] const int64_t dim_B = args.size[0], dim_T = args.size[1];
    [[maybe_unused]] const int64_t dim_D = args.size[2];
    [[maybe_unused]] const int64_t dim_H = args.size[3];
    [[maybe_unused]] const int64_t t0 = args.size[4];
    const int64_t elements = dim_H;
    for (int64_t n = cell_block_index(0) * 256 + cell_thread(); n < dim_B * elements;
            n += cell_block_count(0) * 256) {
        ((float *)args.ptr[1])[(dim_T & 1) * dim_B * elements + n] = ((float *)args.ptr[0])
                ? ((float *)args.ptr[0])[n] : (float)0;
    }
}

extern "C" __global__ void __launch_bounds__(256)
lstm_result_6(const __grid_constant__ cell_kernel_args args)
{
    [[maybe_unused]] const int64_t dim_B = args.size[0], dim_T = args.size[1];
    [[maybe_unused]] const int64_t dim_D = args.size[2];
    [[maybe_unused]] const int64_t dim_H = args.size[3];
    [[maybe_unused]] const int64_t t0 = args.size[4];
    const int64_t elements = dim_H;
    for (int64_t n = cell_block_index(0) * 256 + cell_thread(); n < dim_B * elements;
            n += cell_block_count(0) * 256) {
        if (((float *)args.ptr[0]))
            ((float *)args.ptr[0])[n] = args.flags & CELL_KERNEL_ACCUMULATE
                    ? ((float *)args.ptr[0])[n] + ((float *)args.ptr[1])[n] : ((float *)args.ptr[1])[n];
    }
}

