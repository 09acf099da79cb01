// lstm: CUDA kernels, written by cellc
#include "cell_device.cuh"

extern "C" __global__ void __launch_bounds__(128)
lstm_fwd_step_2(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const int64_t dim_H = args.size[3];
    const float *const p_v35 = static_cast<const float *>(args.ptr[0]);
    const float *const p_bias_ih = static_cast<const float *>(args.ptr[1]);
    const float *const p_v189 = static_cast<const float *>(args.ptr[2]);
    const float *const p_bias_hh = static_cast<const float *>(args.ptr[3]);
    float *const p_o = static_cast<float *>(args.ptr[4]);
    float *const p_f = static_cast<float *>(args.ptr[5]);
    float *const p_i = static_cast<float *>(args.ptr[6]);
    float *const p_g = static_cast<float *>(args.ptr[7]);
    float *const p_c_next = static_cast<float *>(args.ptr[8]);
    const float *const p_c_init = static_cast<const float *>(args.ptr[9]);
    float *const p_c_final = static_cast<float *>(args.ptr[10]);
    float *const p_h_before = static_cast<float *>(args.ptr[11]);
    float *const p_h_final = static_cast<float *>(args.ptr[12]);
    float *const p_h_next = static_cast<float *>(args.ptr[13]);
    float *const p_y = static_cast<float *>(args.ptr[14]);
    const bool all = args.flags & CELL_KERNEL_SAVE;
    const int64_t rows = dim_B;
    const int64_t first = cell_block_index(0) * 128 + cell_thread();
    const int64_t step = cell_block_count(0) * 128;
    for (int64_t row = cell_block_index(1); row < rows; row += cell_block_count(1)) {
        const int64_t b = row;
        const int64_t t = args.t;
        const int64_t bt = b * dim_T + t;
        const int64_t bt2 = all ? bt : b * 2 + t % 2;
        for (int64_t i_a = first; i_a < dim_H; i_a += step) {
            const float x_v35 = cell_load_ro<float>(p_v35 + bt * (4 * dim_H) + 3 * dim_H + i_a);
            const float x_bias_ih = cell_load_ro<float>(p_bias_ih + 3 * dim_H + i_a);
            const float x_v189 = cell_load_ro<float>(p_v189 + b * (4 * dim_H) + 3 * dim_H + i_a);
            const float x_bias_hh = cell_load_ro<float>(p_bias_hh + 3 * dim_H + i_a);
            const float x_v35_2 = cell_load_ro<float>(p_v35 + bt * (4 * dim_H) + dim_H + i_a);
            const float x_bias_ih2 = cell_load_ro<float>(p_bias_ih + dim_H + i_a);
            const float x_v189_2 = cell_load_ro<float>(p_v189 + b * (4 * dim_H) + dim_H + i_a);
            const float x_bias_hh2 = cell_load_ro<float>(p_bias_hh + dim_H + i_a);
            const float x_v35_3 = cell_load_ro<float>(p_v35 + bt * (4 * dim_H) + i_a);
            const float x_bias_ih3 = cell_load_ro<float>(p_bias_ih + i_a);
            const float x_v189_3 = cell_load_ro<float>(p_v189 + b * (4 * dim_H) + i_a);
            const float x_bias_hh3 = cell_load_ro<float>(p_bias_hh + i_a);
            const float x_v35_4 = cell_load_ro<float>(p_v35 + bt * (4 * dim_H) + 2 * dim_H + i_a);
            const float x_bias_ih4 = cell_load_ro<float>(p_bias_ih + 2 * dim_H + i_a);
            const float x_v189_4 = cell_load_ro<float>(p_v189 + b * (4 * dim_H) + 2 * dim_H + i_a);
            const float x_bias_hh4 = cell_load_ro<float>(p_bias_hh + 2 * dim_H + i_a);
            const float x_c = cell_load<float>(t > 0 ? p_c_next
                    + (all ? bt - 1 : b * 2 + (t - 1) % 2) * dim_H + i_a : p_c_init + b * dim_H + i_a);
            // o, lstm.cell:18: o[a:H] = sigmoid(p[3*H + a]);
            const float a_o = cell_sigmoid((((x_v35 + x_bias_ih) + x_v189) + x_bias_hh));
            if (p_o)
                cell_store(p_o + bt * dim_H + i_a, a_o);
            // f, lstm.cell:16: f[a:H] = sigmoid(p[H + a]);
            const float a_f = cell_sigmoid((((x_v35_2 + x_bias_ih2) + x_v189_2) + x_bias_hh2));
            if (p_f)
                cell_store(p_f + bt * dim_H + i_a, a_f);
            // i, lstm.cell:15: i[a:H] = sigmoid(p[a]);
            const float a_i = cell_sigmoid((((x_v35_3 + x_bias_ih3) + x_v189_3) + x_bias_hh3));
            if (p_i)
                cell_store(p_i + bt * dim_H + i_a, a_i);
            // g, lstm.cell:17: g[a:H] = tanh(p[2*H + a]);
            const float a_g = cell_tanh((((x_v35_4 + x_bias_ih4) + x_v189_4) + x_bias_hh4));
            if (p_g)
                cell_store(p_g + bt * dim_H + i_a, a_g);
            // c_next, lstm.cell:20: c'[a] = f[a] * c[a] + i[a] * g[a];
            const float a_c_next = (a_f * x_c) + (a_i * a_g);
            if (p_c_final && t + 1 == dim_T)
                cell_store(p_c_final + b * dim_H + i_a, a_c_next);
            cell_store(p_c_next + bt2 * dim_H + i_a, a_c_next);
            // h_next, lstm.cell:21: h'[a] = o[a] * tanh(c'[a]);
            const float a_h_next = a_o * cell_tanh(a_c_next);
            if (t + 1 < dim_T)
                cell_store(p_h_before + (all ? bt + 1 : b * 2 + (t + 1) % 2) * dim_H + i_a, a_h_next);
            if (p_h_final && t + 1 == dim_T)
                cell_store(p_h_final + b * dim_H + i_a, a_h_next);
            cell_store(p_h_next + (b * 2 + t % 2) * dim_H + i_a, a_h_next);
            // y, lstm.cell:22: y[a] = h'[a];
            const float a_y = a_h_next;
            cell_store(p_y + bt * dim_H + i_a, a_y);
            if (t + 1 < dim_T) {
                cell_prefetch(p_v35 + (bt + 1) * (4 * dim_H) + 3 * dim_H + i_a);
                cell_prefetch(p_v35 + (bt + 1) * (4 * dim_H) + dim_H + i_a);
                cell_prefetch(p_v35 + (bt + 1) * (4 * dim_H) + i_a);
                cell_prefetch(p_v35 + (bt + 1) * (4 * dim_H) + 2 * dim_H + i_a);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(128)
lstm_fwd_parts_0(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_D = args.size[2];
    const int64_t dim_H = args.size[3];
    const float *const p_weight_ih = static_cast<const float *>(args.ptr[0]);
    cell_bf16 *const p_parts = static_cast<cell_bf16 *>(args.ptr[1]);
    cell_split_matrix<false, true>(p_parts, p_weight_ih, 0, 4 * dim_H, dim_D, dim_D);
}

extern "C" __global__ void __launch_bounds__(128)
lstm_fwd_parts_1(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const int64_t dim_D = args.size[2];
    const float *const p_x = static_cast<const float *>(args.ptr[0]);
    cell_bf16 *const p_parts = static_cast<cell_bf16 *>(args.ptr[1]);
    cell_split_matrix<false, false>(p_parts, p_x, 0, dim_B * dim_T, dim_D, dim_D);
}

extern "C" __global__ void __launch_bounds__(256, 1)
lstm_fwd_steps(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const int64_t dim_H = args.size[3];
    const float *const p_v35 = static_cast<const float *>(args.ptr[0]);
    const float *const p_bias_ih = static_cast<const float *>(args.ptr[1]);
    const float *const p_bias_hh = static_cast<const float *>(args.ptr[2]);
    float *const p_o = static_cast<float *>(args.ptr[3]);
    float *const p_f = static_cast<float *>(args.ptr[4]);
    float *const p_i = static_cast<float *>(args.ptr[5]);
    float *const p_g = static_cast<float *>(args.ptr[6]);
    float *const p_c_next = static_cast<float *>(args.ptr[7]);
    const float *const p_c_init = static_cast<const float *>(args.ptr[8]);
    float *const p_c_final = static_cast<float *>(args.ptr[9]);
    float *const p_h_before = static_cast<float *>(args.ptr[10]);
    float *const p_h_final = static_cast<float *>(args.ptr[11]);
    float *const p_h_next = static_cast<float *>(args.ptr[12]);
    float *const p_y = static_cast<float *>(args.ptr[13]);
    int32_t *const p_posts = static_cast<int32_t *>(args.ptr[14]);
    const float *const p_weight_hh = static_cast<const float *>(args.ptr[15]);
    const float *const p_h_f32 = static_cast<const float *>(args.ptr[16]);
    const bool all = args.flags & CELL_KERNEL_SAVE;
    auto cursor = cell_shared();
    cell_panel<float, 1, 4, 8, 1> panel;
    panel.carve(cursor, dim_H, reinterpret_cast<unsigned int *>(p_posts));
    const int elements = (int)dim_B * 8;
    const int64_t steps = dim_B > 0 ? dim_T : 0;
    cell_smem<float> sums = cell_carve<float>(cursor, (dim_B + 15) / 16 * 512);
    decltype(panel)::kept kept;
    panel.load(kept, p_weight_hh, dim_H, 1);
    panel.start();
    struct { float r0; float r1; float r2; float r3; float r4; float r5; float r6; float r7; float r8;
            float r9; float r10; float r11; float r12; } ahead_0 = {};
    const auto read_0 = [&](int64_t b, int64_t i_a, int64_t t, bool other) {
        (void)b, (void)i_a, (void)t, (void)other;
        const int64_t bt = b * dim_T + t;
        if (other) {
            ahead_0.r1 = cell_load_ro<float>(p_bias_ih + 3*dim_H + i_a);
            ahead_0.r2 = cell_load_ro<float>(p_bias_hh + 3*dim_H + i_a);
            ahead_0.r4 = cell_load_ro<float>(p_bias_ih + dim_H + i_a);
            ahead_0.r5 = cell_load_ro<float>(p_bias_hh + dim_H + i_a);
            ahead_0.r7 = cell_load_ro<float>(p_bias_ih + i_a);
            ahead_0.r8 = cell_load_ro<float>(p_bias_hh + i_a);
            ahead_0.r10 = cell_load_ro<float>(p_bias_ih + 2*dim_H + i_a);
            ahead_0.r11 = cell_load_ro<float>(p_bias_hh + 2*dim_H + i_a);
        }
        ahead_0.r0 = cell_load_ro<float>(p_v35 + bt * (4*dim_H) + 3*dim_H + i_a);
        ahead_0.r3 = cell_load_ro<float>(p_v35 + bt * (4*dim_H) + dim_H + i_a);
        ahead_0.r6 = cell_load_ro<float>(p_v35 + bt * (4*dim_H) + i_a);
        ahead_0.r9 = cell_load_ro<float>(p_v35 + bt * (4*dim_H) + 2*dim_H + i_a);
        ahead_0.r12 = cell_load<float>(t > 0 ? p_c_next + (all ? bt - 1 : b * 2 + (t - 1) % 2) * dim_H + i_a
                : p_c_init + b * dim_H + i_a);
    };
    if (cell_thread() < elements && steps > 0) {
        const int n = cell_thread(), at = n < elements ? n : elements - 1;
        const int unit = panel.first + at % 8;
        const int64_t b = at / 8, i_a = unit < panel.units ? unit : panel.units - 1;
        read_0(b, i_a, 0, true);
    }
    for (int64_t step = 0; step < steps; step++) {
        const int64_t t = step;
        // part of lstm.cell:14: p[r:4*H] = sum[d] weight_ih[r,d] * x[d] + bias_ih[r] + sum[j] weight_hh[r,j]
        // * h[j] + b...
        panel.wait(step);
        for (int64_t b0 = 0; b0 < dim_B; b0 += panel.batch) {
            cell_mma_c shares[panel.results];
            panel.multiply(shares, kept, p_h_f32 + (all ? (b0 * dim_T + t) : b0 * 2 + t % 2) * dim_H,
                    (all ? dim_T : 2) * dim_H, dim_B - b0);
            panel.reduce(shares, dim_B - b0, [&](int row, int piece, int own, float sum) {
                sums[((int)b0 + row) * 32 + piece * 8 + own] = sum;
            });
            cell_barrier();
        }
        for (int begin = 0; begin < elements; begin += CELL_PANEL_THREADS) {
            const int n = begin + cell_thread(), at = n < elements ? n : elements - 1;
            const int unit = panel.first + at % 8;
            const int64_t b = at / 8, i_a = unit < panel.units ? unit : panel.units - 1;
            const int own = (int)i_a - panel.first;
            const bool mine = at == n && i_a == unit;
            const int64_t bt = b * dim_T + t;
            const int64_t bt2 = all ? bt : b * 2 + t % 2;
            if (begin > 0)
                read_0(b, i_a, t, true);
            // o, lstm.cell:18: o[a:H] = sigmoid(p[3*H + a]);
            const float a_o = cell_sigmoid((((ahead_0.r0 + ahead_0.r1) + (float)sums[(int)b * 32 + own + 24])
                    + ahead_0.r2));
            // f, lstm.cell:16: f[a:H] = sigmoid(p[H + a]);
            const float a_f = cell_sigmoid((((ahead_0.r3 + ahead_0.r4) + (float)sums[(int)b * 32 + own + 8])
                    + ahead_0.r5));
            // i, lstm.cell:15: i[a:H] = sigmoid(p[a]);
            const float a_i = cell_sigmoid((((ahead_0.r6 + ahead_0.r7) + (float)sums[(int)b * 32 + own])
                    + ahead_0.r8));
            // g, lstm.cell:17: g[a:H] = tanh(p[2*H + a]);
            const float a_g = cell_tanh((((ahead_0.r9 + ahead_0.r10) + (float)sums[(int)b * 32 + own + 16])
                    + ahead_0.r11));
            // c_next, lstm.cell:20: c'[a] = f[a] * c[a] + i[a] * g[a];
            const float a_c_next = (a_f * ahead_0.r12) + (a_i * a_g);
            // h_next, lstm.cell:21: h'[a] = o[a] * tanh(c'[a]);
            const float a_h_next = a_o * cell_tanh(a_c_next);
            if (mine && t + 1 < dim_T)
                cell_store(p_h_before + (all ? bt + 1 : b * 2 + (t + 1) % 2) * dim_H + i_a, a_h_next);
            // y, lstm.cell:22: y[a] = h'[a];
            const float a_y = a_h_next;
            if (begin + CELL_PANEL_THREADS >= elements)
                panel.post();
            if (mine) {
                if (p_o)
                    cell_store(p_o + bt * dim_H + i_a, a_o);
                if (p_f)
                    cell_store(p_f + bt * dim_H + i_a, a_f);
                if (p_i)
                    cell_store(p_i + bt * dim_H + i_a, a_i);
                if (p_g)
                    cell_store(p_g + bt * dim_H + i_a, a_g);
                if (p_c_final && t + 1 == dim_T)
                    cell_store(p_c_final + b * dim_H + i_a, a_c_next);
                cell_store(p_c_next + bt2 * dim_H + i_a, a_c_next);
                if (p_h_final && t + 1 == dim_T)
                    cell_store(p_h_final + b * dim_H + i_a, a_h_next);
                cell_store(p_h_next + (b * 2 + t % 2) * dim_H + i_a, a_h_next);
                cell_store(p_y + bt * dim_H + i_a, a_y);
            }
        }
        if (cell_thread() < elements && step + 1 < steps) {
            const int n = cell_thread(), at = n < elements ? n : elements - 1;
            const int unit = panel.first + at % 8;
            const int64_t b = at / 8, i_a = unit < panel.units ? unit : panel.units - 1;
            read_0(b, i_a, t + 1, elements > CELL_PANEL_THREADS);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 1)
lstm_fwd_pairs(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const int64_t dim_H = args.size[3];
    const float *const p_v35 = static_cast<const float *>(args.ptr[0]);
    const float *const p_bias_ih = static_cast<const float *>(args.ptr[1]);
    const float *const p_bias_hh = static_cast<const float *>(args.ptr[2]);
    float *const p_o = static_cast<float *>(args.ptr[3]);
    float *const p_f = static_cast<float *>(args.ptr[4]);
    float *const p_i = static_cast<float *>(args.ptr[5]);
    float *const p_g = static_cast<float *>(args.ptr[6]);
    float *const p_c_next = static_cast<float *>(args.ptr[7]);
    const float *const p_c_init = static_cast<const float *>(args.ptr[8]);
    float *const p_c_final = static_cast<float *>(args.ptr[9]);
    float *const p_h_before = static_cast<float *>(args.ptr[10]);
    float *const p_h_final = static_cast<float *>(args.ptr[11]);
    float *const p_h_next = static_cast<float *>(args.ptr[12]);
    float *const p_y = static_cast<float *>(args.ptr[13]);
    int32_t *const p_posts = static_cast<int32_t *>(args.ptr[14]);
    const float *const p_weight_hh = static_cast<const float *>(args.ptr[15]);
    const float *const p_h_f32 = static_cast<const float *>(args.ptr[16]);
    const bool all = args.flags & CELL_KERNEL_SAVE;
    auto cursor = cell_shared();
    cell_panel<float, 1, 4, 8, 2> panel;
    panel.carve(cursor, dim_H, reinterpret_cast<unsigned int *>(p_posts));
    const int elements = panel.first < panel.units ? (int)dim_B * 8 : 0;
    const int64_t steps = dim_B > 0 ? dim_T : 0;
    cell_smem<float> sums = cell_carve<float>(cursor, (dim_B + 15) / 16 * 512);
    decltype(panel)::kept kept;
    panel.load(kept, p_weight_hh, dim_H, 1);
    panel.start();
    struct { float r0; float r1; float r2; float r3; float r4; float r5; float r6; float r7; float r8;
            float r9; float r10; float r11; float r12; } ahead_0 = {};
    const auto read_0 = [&](int64_t b, int64_t i_a, int64_t t, bool other) {
        (void)b, (void)i_a, (void)t, (void)other;
        const int64_t bt = b * dim_T + t;
        if (other) {
            ahead_0.r1 = cell_load_ro<float>(p_bias_ih + 3*dim_H + i_a);
            ahead_0.r2 = cell_load_ro<float>(p_bias_hh + 3*dim_H + i_a);
            ahead_0.r4 = cell_load_ro<float>(p_bias_ih + dim_H + i_a);
            ahead_0.r5 = cell_load_ro<float>(p_bias_hh + dim_H + i_a);
            ahead_0.r7 = cell_load_ro<float>(p_bias_ih + i_a);
            ahead_0.r8 = cell_load_ro<float>(p_bias_hh + i_a);
            ahead_0.r10 = cell_load_ro<float>(p_bias_ih + 2*dim_H + i_a);
            ahead_0.r11 = cell_load_ro<float>(p_bias_hh + 2*dim_H + i_a);
        }
        ahead_0.r0 = cell_load_ro<float>(p_v35 + bt * (4*dim_H) + 3*dim_H + i_a);
        ahead_0.r3 = cell_load_ro<float>(p_v35 + bt * (4*dim_H) + dim_H + i_a);
        ahead_0.r6 = cell_load_ro<float>(p_v35 + bt * (4*dim_H) + i_a);
        ahead_0.r9 = cell_load_ro<float>(p_v35 + bt * (4*dim_H) + 2*dim_H + i_a);
        ahead_0.r12 = cell_load<float>(t > 0 ? p_c_next + (all ? bt - 1 : b * 2 + (t - 1) % 2) * dim_H + i_a
                : p_c_init + b * dim_H + i_a);
    };
    const auto fetch_0 = [&](int64_t b, int64_t i_a, int64_t t) {
        const int64_t bt = b * dim_T + t;
        cell_prefetch(p_v35 + bt * (4*dim_H) + 3*dim_H + i_a);
        cell_prefetch(p_v35 + bt * (4*dim_H) + dim_H + i_a);
        cell_prefetch(p_v35 + bt * (4*dim_H) + i_a);
        cell_prefetch(p_v35 + bt * (4*dim_H) + 2*dim_H + i_a);
    };
    for (int64_t step = 0; step < steps; step++) {
        const int64_t t = step;
        // part of lstm.cell:14: p[r:4*H] = sum[d] weight_ih[r,d] * x[d] + bias_ih[r] + sum[j] weight_hh[r,j]
        // * h[j] + b...
        panel.wait(step);
        for (int64_t b0 = 0; b0 < dim_B; b0 += panel.batch) {
            cell_mma_c shares[panel.results];
            panel.multiply(shares, kept, p_h_f32 + (all ? (b0 * dim_T + t) : b0 * 2 + t % 2) * dim_H,
                    (all ? dim_T : 2) * dim_H, dim_B - b0);
            if (cell_thread() < elements && b0 == 0) {
                const int n = cell_thread(), at = n < elements ? n : elements - 1;
                const int unit = panel.first + at % 8;
                const int64_t b = at / 8, i_a = unit < panel.units ? unit : panel.units - 1;
                read_0(b, i_a, t, step == 0 || elements > CELL_PANEL_THREADS);
            }
            panel.reduce(shares, dim_B - b0, [&](int row, int piece, int own, float sum) {
                sums[((int)b0 + row) * 32 + piece * 8 + own] = sum;
            });
            cell_barrier();
        }
        for (int begin = 0; begin < elements; begin += CELL_PANEL_THREADS) {
            const int n = begin + cell_thread(), at = n < elements ? n : elements - 1;
            const int unit = panel.first + at % 8;
            const int64_t b = at / 8, i_a = unit < panel.units ? unit : panel.units - 1;
            const int own = (int)i_a - panel.first;
            const bool mine = at == n && i_a == unit;
            const int64_t bt = b * dim_T + t;
            const int64_t bt2 = all ? bt : b * 2 + t % 2;
            if (begin > 0)
                read_0(b, i_a, t, true);
            // o, lstm.cell:18: o[a:H] = sigmoid(p[3*H + a]);
            const float a_o = cell_sigmoid((((ahead_0.r0 + ahead_0.r1) + (float)sums[(int)b * 32 + own + 24])
                    + ahead_0.r2));
            // f, lstm.cell:16: f[a:H] = sigmoid(p[H + a]);
            const float a_f = cell_sigmoid((((ahead_0.r3 + ahead_0.r4) + (float)sums[(int)b * 32 + own + 8])
                    + ahead_0.r5));
            // i, lstm.cell:15: i[a:H] = sigmoid(p[a]);
            const float a_i = cell_sigmoid((((ahead_0.r6 + ahead_0.r7) + (float)sums[(int)b * 32 + own])
                    + ahead_0.r8));
            // g, lstm.cell:17: g[a:H] = tanh(p[2*H + a]);
            const float a_g = cell_tanh((((ahead_0.r9 + ahead_0.r10) + (float)sums[(int)b * 32 + own + 16])
                    + ahead_0.r11));
            // c_next, lstm.cell:20: c'[a] = f[a] * c[a] + i[a] * g[a];
            const float a_c_next = (a_f * ahead_0.r12) + (a_i * a_g);
            // h_next, lstm.cell:21: h'[a] = o[a] * tanh(c'[a]);
            const float a_h_next = a_o * cell_tanh(a_c_next);
            if (mine && t + 1 < dim_T)
                cell_store(p_h_before + (all ? bt + 1 : b * 2 + (t + 1) % 2) * dim_H + i_a, a_h_next);
            // y, lstm.cell:22: y[a] = h'[a];
            const float a_y = a_h_next;
            if (begin + CELL_PANEL_THREADS >= elements)
                panel.post();
            if (mine) {
                if (p_o)
                    cell_store(p_o + bt * dim_H + i_a, a_o);
                if (p_f)
                    cell_store(p_f + bt * dim_H + i_a, a_f);
                if (p_i)
                    cell_store(p_i + bt * dim_H + i_a, a_i);
                if (p_g)
                    cell_store(p_g + bt * dim_H + i_a, a_g);
                if (p_c_final && t + 1 == dim_T)
                    cell_store(p_c_final + b * dim_H + i_a, a_c_next);
                cell_store(p_c_next + bt2 * dim_H + i_a, a_c_next);
                if (p_h_final && t + 1 == dim_T)
                    cell_store(p_h_final + b * dim_H + i_a, a_h_next);
                cell_store(p_h_next + (b * 2 + t % 2) * dim_H + i_a, a_h_next);
                cell_store(p_y + bt * dim_H + i_a, a_y);
            }
        }
        if (cell_thread() < elements && step + 1 < steps) {
            const int n = cell_thread(), at = n < elements ? n : elements - 1;
            const int unit = panel.first + at % 8;
            const int64_t b = at / 8, i_a = unit < panel.units ? unit : panel.units - 1;
            fetch_0(b, i_a, t + 1);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 1)
lstm_fwd_heads(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const int64_t dim_H = args.size[3];
    const float *const p_v35 = static_cast<const float *>(args.ptr[0]);
    const float *const p_bias_ih = static_cast<const float *>(args.ptr[1]);
    const float *const p_bias_hh = static_cast<const float *>(args.ptr[2]);
    float *const p_o = static_cast<float *>(args.ptr[3]);
    float *const p_f = static_cast<float *>(args.ptr[4]);
    float *const p_i = static_cast<float *>(args.ptr[5]);
    float *const p_g = static_cast<float *>(args.ptr[6]);
    float *const p_c_next = static_cast<float *>(args.ptr[7]);
    float *const p_h_before = static_cast<float *>(args.ptr[8]);
    float *const p_h_next = static_cast<float *>(args.ptr[9]);
    float *const p_y = static_cast<float *>(args.ptr[10]);
    const float *const p_weight_hh = static_cast<const float *>(args.ptr[11]);
    float *const p_h_init = static_cast<float *>(args.ptr[12]);
    const float *const p_h_given = static_cast<const float *>(args.ptr[13]);
    float *const p_c_init = static_cast<float *>(args.ptr[14]);
    const float *const p_c_given = static_cast<const float *>(args.ptr[15]);
    float *const p_h_final = static_cast<float *>(args.ptr[16]);
    float *const p_c_final = static_cast<float *>(args.ptr[17]);
    const bool all = args.flags & CELL_KERNEL_SAVE;
    auto cursor = cell_shared();
    cell_head<float, 1, 4, 0> panel;
    panel.carve(cursor, dim_H);
    const int64_t tiles = cell_block_count(0) / 1, each = (dim_B + tiles - 1) / tiles;
    const int64_t head = cell_block_index(0) % 1, first = cell_block_index(0) / 1 * each;
    const int own = cell_thread() % panel.units, place = cell_thread() / panel.units;
    const bool mine = place < each && first + place < dim_B;
    const int sequence = mine ? place : 0;
    const int64_t b = first + sequence, e = head * dim_H + own;
    const int64_t i_a = e;
    panel.load(p_weight_hh + head * 0 + 0, dim_H, 1);
    float sum_0 = 0;
    float sum_1 = 0;
    float sum_2 = 0;
    float sum_3 = 0;
    float s_h = cell_given(p_h_given, p_h_init, b * dim_H + e, (float)(0)), new_s_h = s_h;
    float s_c = cell_given(p_c_given, p_c_init, b * dim_H + e, (float)(0)), new_s_c = s_c;
    if (mine) {
        p_h_init[b * dim_H + e] = s_h;
        if (dim_T > 0)
            cell_store(p_h_before + (all ? b * dim_T : b * 2) * dim_H + e, s_h);
        p_c_init[b * dim_H + e] = s_c;
    }
    if (mine)
        panel.put(sequence, 0, own, s_h);
    const float once_0 = cell_load_ro<float>(p_bias_ih + 3*dim_H + i_a);
    const float once_1 = cell_load_ro<float>(p_bias_hh + 3*dim_H + i_a);
    const float once_2 = cell_load_ro<float>(p_bias_ih + dim_H + i_a);
    const float once_3 = cell_load_ro<float>(p_bias_hh + dim_H + i_a);
    const float once_4 = cell_load_ro<float>(p_bias_ih + i_a);
    const float once_5 = cell_load_ro<float>(p_bias_hh + i_a);
    const float once_6 = cell_load_ro<float>(p_bias_ih + 2*dim_H + i_a);
    const float once_7 = cell_load_ro<float>(p_bias_hh + 2*dim_H + i_a);
    struct reads_0 { float r0; float r1; float r2; float r3; };
    const auto read_0 = [&](int64_t t, auto &ahead) {
        const int64_t bt = b * dim_T + t;
        ahead.r0 = cell_load_ro<float>(p_v35 + (bt * (4*dim_H) + 3*dim_H + i_a));
        ahead.r1 = cell_load_ro<float>(p_v35 + (bt * (4*dim_H) + dim_H + i_a));
        ahead.r2 = cell_load_ro<float>(p_v35 + (bt * (4*dim_H) + i_a));
        ahead.r3 = cell_load_ro<float>(p_v35 + (bt * (4*dim_H) + 2*dim_H + i_a));
    };
    reads_0 ahead_0[8];
    CELL_UNROLL
    for (int u = 0; u < 8; u++)
        if (dim_T > 0)
            read_0(u < dim_T ? u : dim_T - 1, ahead_0[u]);
    for (int64_t begin = 0; begin < dim_T; begin += 8) {
        reads_0 next_0[8];
        CELL_UNROLL
        for (int u = 0; u < 8; u++)
            read_0(begin + 8 + u < dim_T ? begin + 8 + u : dim_T - 1, next_0[u]);
        CELL_UNROLL
        for (int u = 0; u < 8; u++) {
            if (begin + u < dim_T) {
                const int64_t t = begin + u;
                const int64_t bt = b * dim_T + t;
                const int64_t bt2 = all ? bt : b * 2 + t % 2;
                // part of lstm.cell:14: p[r:4*H] = sum[d] weight_ih[r,d] * x[d] + bias_ih[r] + sum[j]
                // weight_hh[r,j] * h[j] + b...
                panel.multiply();
                if (mine) {
                    sum_0 = panel.sum(sequence, 0, own);
                    sum_1 = panel.sum(sequence, 1, own);
                    sum_2 = panel.sum(sequence, 2, own);
                    sum_3 = panel.sum(sequence, 3, own);
                }
                if (mine) {
                    // o, lstm.cell:18: o[a:H] = sigmoid(p[3*H + a]);
                    const float a_o = cell_sigmoid((((ahead_0[u].r0 + once_0) + sum_3) + once_1));
                    // f, lstm.cell:16: f[a:H] = sigmoid(p[H + a]);
                    const float a_f = cell_sigmoid((((ahead_0[u].r1 + once_2) + sum_1) + once_3));
                    // i, lstm.cell:15: i[a:H] = sigmoid(p[a]);
                    const float a_i = cell_sigmoid((((ahead_0[u].r2 + once_4) + sum_0) + once_5));
                    // g, lstm.cell:17: g[a:H] = tanh(p[2*H + a]);
                    const float a_g = cell_tanh((((ahead_0[u].r3 + once_6) + sum_2) + once_7));
                    // c_next, lstm.cell:20: c'[a] = f[a] * c[a] + i[a] * g[a];
                    const float a_c_next = (a_f * s_c) + (a_i * a_g);
                    // h_next, lstm.cell:21: h'[a] = o[a] * tanh(c'[a]);
                    const float a_h_next = a_o * cell_tanh(a_c_next);
                    panel.put(sequence, 0, own, a_h_next);
                    if (t + 1 < dim_T)
                        cell_store(p_h_before + ((all ? bt + 1 : b * 2 + (t + 1) % 2) * dim_H + i_a),
                                a_h_next);
                    // y, lstm.cell:22: y[a] = h'[a];
                    const float a_y = a_h_next;
                    if (all)
                        cell_store(p_o + (bt * dim_H + i_a), a_o);
                    if (all)
                        cell_store(p_f + (bt * dim_H + i_a), a_f);
                    if (all)
                        cell_store(p_i + (bt * dim_H + i_a), a_i);
                    if (all)
                        cell_store(p_g + (bt * dim_H + i_a), a_g);
                    new_s_c = a_c_next;
                    cell_store(p_c_next + (bt2 * dim_H + i_a), a_c_next);
                    new_s_h = a_h_next;
                    cell_store(p_h_next + ((b * 2 + t % 2) * dim_H + i_a), a_h_next);
                    cell_store(p_y + (bt * dim_H + i_a), a_y);
                }
                s_c = new_s_c;
                s_h = new_s_h;
            }
        }
        CELL_UNROLL
        for (int u = 0; u < 8; u++)
            ahead_0[u] = next_0[u];
    }
    if (mine) {
        if (p_h_final)
            cell_store(p_h_final + (b * dim_H + e), s_h);
        if (p_c_final)
            cell_store(p_c_final + (b * dim_H + e), s_c);
    }
}

extern "C" __global__ void __launch_bounds__(128)
lstm_bwd_step_0(const __grid_constant__ cell_kernel_args args)
{
    cell_dependency_wait();
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const int64_t dim_H = args.size[3];
    const float *const p_d_h_carried = static_cast<const float *>(args.ptr[0]);
    const float *const p_d_y = static_cast<const float *>(args.ptr[1]);
    const float *const p_c_next = static_cast<const float *>(args.ptr[2]);
    float *const p_d_c_carried = static_cast<float *>(args.ptr[3]);
    const float *const p_o = static_cast<const float *>(args.ptr[4]);
    const float *const p_i = static_cast<const float *>(args.ptr[5]);
    const float *const p_g = static_cast<const float *>(args.ptr[6]);
    float *const p_v221 = static_cast<float *>(args.ptr[7]);
    float *const p_v230 = static_cast<float *>(args.ptr[8]);
    const float *const p_c_init = static_cast<const float *>(args.ptr[9]);
    const float *const p_f = static_cast<const float *>(args.ptr[10]);
    float *const p_v240 = static_cast<float *>(args.ptr[11]);
    float *const p_v250 = static_cast<float *>(args.ptr[12]);
    const int64_t rows = dim_B;
    const int64_t first = cell_block_index(0) * 128 + cell_thread();
    const int64_t step = cell_block_count(0) * 128;
    for (int64_t row = cell_block_index(1); row < rows; row += cell_block_count(1)) {
        const int64_t b = row;
        const int64_t t = args.t;
        const int64_t bt = b * dim_T + t;
        for (int64_t i_a = first; i_a < dim_H; i_a += step) {
            const float x_d_h_carried = cell_load<float>(p_d_h_carried + (((t + 1) & 1) * dim_B + b) * dim_H
                    + i_a);
            const float x_d_y = p_d_y ? cell_load_ro<float>(p_d_y + bt * dim_H + i_a) : 0;
            const float x_c_next = cell_load_ro<float>(p_c_next + bt * dim_H + i_a);
            const float x_d_c_carried = cell_load<float>(p_d_c_carried + (((t + 1) & 1) * dim_B + b) * dim_H
                    + i_a);
            const float x_o = cell_load_ro<float>(p_o + bt * dim_H + i_a);
            const float x_i = cell_load_ro<float>(p_i + bt * dim_H + i_a);
            const float x_g = cell_load_ro<float>(p_g + bt * dim_H + i_a);
            const float x_c = cell_load<float>(t > 0 ? p_c_next + (bt - 1) * dim_H + i_a
                    : p_c_init + b * dim_H + i_a);
            const float x_f = cell_load_ro<float>(p_f + bt * dim_H + i_a);
            // d_h_next, lstm.cell:21: h'[a] = o[a] * tanh(c'[a]);
            const float a_d_h_next = x_d_h_carried + x_d_y;
            // d_c_next, lstm.cell:20: c'[a] = f[a] * c[a] + i[a] * g[a];
            const float s0 = cell_tanh(x_c_next);
            const float a_d_c_next = x_d_c_carried + ((a_d_h_next * x_o) * (1.0f - (s0 * s0)));
            // d_g, lstm.cell:17: g[a:H] = tanh(p[2*H + a]);
            const float a_d_g = a_d_c_next * x_i;
            // part of lstm.cell:17: g[a:H] = tanh(p[2*H + a]);
            const float a_221 = a_d_g * (1.0f - (x_g * x_g));
            cell_store(p_v221 + bt * (4 * dim_H) + 2 * dim_H + i_a, a_221);
            // d_i, lstm.cell:15: i[a:H] = sigmoid(p[a]);
            const float a_d_i = a_d_c_next * x_g;
            // part of lstm.cell:15: i[a:H] = sigmoid(p[a]);
            const float a_230 = a_d_i * (x_i * (1.0f - x_i));
            cell_store(p_v230 + bt * (4 * dim_H) + i_a, a_230);
            // d_f, lstm.cell:16: f[a:H] = sigmoid(p[H + a]);
            const float a_d_f = a_d_c_next * x_c;
            // part of lstm.cell:16: f[a:H] = sigmoid(p[H + a]);
            const float a_240 = a_d_f * (x_f * (1.0f - x_f));
            cell_store(p_v240 + bt * (4 * dim_H) + dim_H + i_a, a_240);
            // d_o, lstm.cell:18: o[a:H] = sigmoid(p[3*H + a]);
            const float a_d_o = a_d_h_next * cell_tanh(x_c_next);
            // part of lstm.cell:18: o[a:H] = sigmoid(p[3*H + a]);
            const float a_250 = a_d_o * (x_o * (1.0f - x_o));
            cell_store(p_v250 + bt * (4 * dim_H) + 3 * dim_H + i_a, a_250);
            // d_c, lstm.cell:11: c
            const float a_d_c = a_d_c_next * x_f;
            cell_store(p_d_c_carried + ((t & 1) * dim_B + b) * dim_H + i_a, a_d_c);
            if (t > 0) {
                if (p_d_y)
                    cell_prefetch(p_d_y + (bt - 1) * dim_H + i_a);
                cell_prefetch(p_c_next + (bt - 1) * dim_H + i_a);
                cell_prefetch(p_o + (bt - 1) * dim_H + i_a);
                cell_prefetch(p_i + (bt - 1) * dim_H + i_a);
                cell_prefetch(p_g + (bt - 1) * dim_H + i_a);
                cell_prefetch(p_f + (bt - 1) * dim_H + i_a);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 2)
lstm_bwd_after_5(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const int64_t dim_H = args.size[3];
    const float *const p_d_p = static_cast<const float *>(args.ptr[0]);
    float *const p_partial = static_cast<float *>(args.ptr[1]);
    auto cursor = cell_shared();
    const cell_smem<float> scratch = cell_carve<float>(cursor, 1024);
    const int64_t rows = dim_B * dim_T;
    const int64_t columns = 4 * dim_H;
    const int64_t chunks = cell_block_count(1);
    const int64_t chunk = cell_block_index(1);
    const int64_t begin = rows * chunk / chunks;
    const int64_t end = rows * (chunk + 1) / chunks;
    const int lane = cell_thread() % 32;
    const int part = cell_thread() / 32;
    for (int64_t first = cell_block_index(0) * 32 * 4; first < columns;
            first += cell_block_count(0) * 32 * 4) {
        const int64_t e = first + lane * 4;
        float sum_d_bias_ih[4] = {};
        float sum_d_bias_hh[4] = {};
        if (e < columns) {
            for (int64_t row = begin + part; row < end; row += 8) {
                float v_d_p[4];
                cell_load_vec_ro<4>(v_d_p, p_d_p + row * (4 * dim_H) + e);
                CELL_UNROLL
                for (int u = 0; u < 4; u++) {
                    // d_bias_ih, lstm.cell:10: bias_ih
                    sum_d_bias_ih[u] += v_d_p[u];
                    // d_bias_hh, lstm.cell:10: bias_hh
                    sum_d_bias_hh[u] += v_d_p[u];
                }
            }
        }
        cell_part_store(scratch, sum_d_bias_ih);
        cell_barrier();
        if (cell_thread() < 128 && first + cell_thread() < columns)
            p_partial[chunk * columns + first + cell_thread()] = cell_part_total<4>(scratch);
        cell_barrier();
        cell_part_store(scratch, sum_d_bias_hh);
        cell_barrier();
        if (cell_thread() < 128 && first + cell_thread() < columns)
            p_partial[(chunks + chunk) * columns + first + cell_thread()] = cell_part_total<4>(scratch);
        cell_barrier();
    }
}

extern "C" __global__ void __launch_bounds__(1024, 1)
lstm_bwd_after_5_2(const __grid_constant__ cell_kernel_args args)
{
    cell_dependency_wait();
    const int64_t dim_H = args.size[3];
    const float *const p_partial = static_cast<const float *>(args.ptr[0]);
    float *const p_d_bias_ih = static_cast<float *>(args.ptr[1]);
    float *const p_d_bias_hh = static_cast<float *>(args.ptr[2]);
    const bool adds = args.flags & CELL_KERNEL_ACCUMULATE;
    auto cursor = cell_shared();
    const cell_smem<float> scratch = cell_carve<float>(cursor, 1024);
    const int64_t columns = 4 * dim_H;
    const int64_t chunks = args.t;
    const int lane = cell_thread() % 32;
    const int part = cell_thread() / 32;
    const int64_t begin = chunks * part / 32;
    const int64_t end = chunks * (part + 1) / 32;
    for (int64_t first = cell_block_index(0) * 32; first < columns; first += cell_block_count(0) * 32) {
        const int64_t column = first + lane;
        const int64_t last = column < columns ? end : begin;
        const int64_t col_r = column;
        float sum_d_bias_ih[1];
        sum_d_bias_ih[0] = cell_chunk_sum(p_partial + column, begin, last, columns);
        float sum_d_bias_hh[1];
        sum_d_bias_hh[0] = cell_chunk_sum(p_partial + chunks * columns + column, begin, last, columns);
        cell_part_store(scratch, sum_d_bias_ih);
        cell_barrier();
        if (part == 0 && column < columns) {
            const float a_d_bias_ih = cell_part_total<1>(scratch);
            if (p_d_bias_ih)
                cell_put(p_d_bias_ih + col_r, a_d_bias_ih, adds);
        }
        cell_barrier();
        cell_part_store(scratch, sum_d_bias_hh);
        cell_barrier();
        if (part == 0 && column < columns) {
            const float a_d_bias_hh = cell_part_total<1>(scratch);
            if (p_d_bias_hh)
                cell_put(p_d_bias_hh + col_r, a_d_bias_hh, adds);
        }
        cell_barrier();
    }
}

extern "C" __global__ void __launch_bounds__(128)
lstm_bwd_parts_0(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const int64_t dim_H = args.size[3];
    const float *const p_d_p = static_cast<const float *>(args.ptr[0]);
    cell_bf16 *const p_parts = static_cast<cell_bf16 *>(args.ptr[1]);
    cell_split_matrix<false, true>(p_parts, p_d_p, 0, dim_B * dim_T, 4 * dim_H, 4 * dim_H);
}

extern "C" __global__ void __launch_bounds__(128)
lstm_bwd_parts_1(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_D = args.size[2];
    const int64_t dim_H = args.size[3];
    const float *const p_weight_ih = static_cast<const float *>(args.ptr[0]);
    cell_bf16 *const p_parts = static_cast<cell_bf16 *>(args.ptr[1]);
    cell_split_matrix<true, false>(p_parts, p_weight_ih, 0, 4 * dim_H, dim_D, dim_D);
}

extern "C" __global__ void __launch_bounds__(128)
lstm_bwd_parts_2(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const int64_t dim_D = args.size[2];
    const float *const p_x = static_cast<const float *>(args.ptr[0]);
    cell_bf16 *const p_parts = static_cast<cell_bf16 *>(args.ptr[1]);
    cell_split_matrix<false, false>(p_parts, p_x, 0, dim_B * dim_T, dim_D, dim_D);
}

extern "C" __global__ void __launch_bounds__(128)
lstm_bwd_parts_3(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const int64_t dim_H = args.size[3];
    const float *const p_h_f32 = static_cast<const float *>(args.ptr[0]);
    cell_bf16 *const p_parts = static_cast<cell_bf16 *>(args.ptr[1]);
    cell_split_matrix<false, false>(p_parts, p_h_f32, 0, dim_B * dim_T, dim_H, dim_H);
}

extern "C" __global__ void __launch_bounds__(256, 1)
lstm_bwd_steps(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const int64_t dim_H = args.size[3];
    const float *const p_d_y = static_cast<const float *>(args.ptr[0]);
    const float *const p_c_next = static_cast<const float *>(args.ptr[1]);
    float *const p_d_c_carried = static_cast<float *>(args.ptr[2]);
    const float *const p_o = static_cast<const float *>(args.ptr[3]);
    const float *const p_i = static_cast<const float *>(args.ptr[4]);
    const float *const p_g = static_cast<const float *>(args.ptr[5]);
    float *const p_v221 = static_cast<float *>(args.ptr[6]);
    float *const p_v230 = static_cast<float *>(args.ptr[7]);
    const float *const p_c_init = static_cast<const float *>(args.ptr[8]);
    const float *const p_f = static_cast<const float *>(args.ptr[9]);
    float *const p_v240 = static_cast<float *>(args.ptr[10]);
    float *const p_v250 = static_cast<float *>(args.ptr[11]);
    int32_t *const p_posts = static_cast<int32_t *>(args.ptr[12]);
    const float *const p_weight_hh = static_cast<const float *>(args.ptr[13]);
    float *const p_d_h_carried = static_cast<float *>(args.ptr[14]);
    const float *const p_d_p = static_cast<const float *>(args.ptr[15]);
    float *const p_partial = static_cast<float *>(args.ptr[16]);
    auto cursor = cell_shared();
    cell_panel<float, 4, 1, 8, 2> panel;
    panel.carve(cursor, dim_H, reinterpret_cast<unsigned int *>(p_posts));
    const int elements = panel.first < panel.units ? (int)dim_B * 8 : 0;
    const int64_t steps = dim_B > 0 ? dim_T : 0;
    cell_smem<float> sums = cell_carve<float>(cursor, (dim_B + 15) / 16 * 128);
    decltype(panel)::kept kept;
    panel.load(kept, p_weight_hh, 1, dim_H);
    for (int n = cell_thread(); n < elements; n += CELL_PANEL_THREADS) {
        const int64_t b = n / 8, unit = panel.first + n % 8;
        if (unit < panel.units)
            sums[n] = p_d_h_carried[((dim_T & 1) * dim_B + b) * panel.units + unit];
    }
    panel.start();
    float total_221 = 0;
    float total_230 = 0;
    float total_240 = 0;
    float total_250 = 0;
    struct { float r0; float r1; float r2; float r3; float r4; float r5; float r6; float r7; } ahead_0 = {};
    const auto read_0 = [&](int64_t b, int64_t i_a, int64_t t, bool other) {
        (void)b, (void)i_a, (void)t, (void)other;
        const int64_t bt = b * dim_T + t;
        ahead_0.r0 = p_d_y ? cell_load_ro<float>(p_d_y + bt * dim_H + i_a) : 0;
        ahead_0.r1 = cell_load_ro<float>(p_c_next + bt * dim_H + i_a);
        ahead_0.r2 = cell_load<float>(p_d_c_carried + (((t + 1) & 1) * dim_B + b) * dim_H + i_a);
        ahead_0.r3 = cell_load_ro<float>(p_o + bt * dim_H + i_a);
        ahead_0.r4 = cell_load_ro<float>(p_i + bt * dim_H + i_a);
        ahead_0.r5 = cell_load_ro<float>(p_g + bt * dim_H + i_a);
        ahead_0.r6 = cell_load<float>(t > 0 ? p_c_next + (bt - 1) * dim_H + i_a : p_c_init + b * dim_H + i_a);
        ahead_0.r7 = cell_load_ro<float>(p_f + bt * dim_H + i_a);
    };
    if (cell_thread() < elements && steps > 0) {
        const int n = cell_thread(), at = n < elements ? n : elements - 1;
        const int unit = panel.first + at % 8;
        const int64_t b = at / 8, i_a = unit < panel.units ? unit : panel.units - 1;
        read_0(b, i_a, dim_T - 1, true);
    }
    for (int64_t step = 0; step < steps; step++) {
        const int64_t t = dim_T - 1 - step;
        for (int begin = 0; begin < elements; begin += CELL_PANEL_THREADS) {
            const int n = begin + cell_thread(), at = n < elements ? n : elements - 1;
            const int unit = panel.first + at % 8;
            const int64_t b = at / 8, i_a = unit < panel.units ? unit : panel.units - 1;
            const int own = (int)i_a - panel.first;
            const bool mine = at == n && i_a == unit;
            const int64_t bt = b * dim_T + t;
            if (begin > 0)
                read_0(b, i_a, t, true);
            // d_h_next, lstm.cell:21: h'[a] = o[a] * tanh(c'[a]);
            const float a_d_h_next = (float)sums[(int)b * 8 + own] + ahead_0.r0;
            // d_c_next, lstm.cell:20: c'[a] = f[a] * c[a] + i[a] * g[a];
            const float s0 = cell_tanh(ahead_0.r1);
            const float a_d_c_next = ahead_0.r2 + ((a_d_h_next * ahead_0.r3) * (1.0f - (s0 * s0)));
            // d_g, lstm.cell:17: g[a:H] = tanh(p[2*H + a]);
            const float a_d_g = a_d_c_next * ahead_0.r4;
            // part of lstm.cell:17: g[a:H] = tanh(p[2*H + a]);
            const float a_221 = a_d_g * (1.0f - (ahead_0.r5 * ahead_0.r5));
            if (mine) {
                cell_store(p_v221 + bt * (4*dim_H) + 2*dim_H + i_a, a_221);
            }
            // d_i, lstm.cell:15: i[a:H] = sigmoid(p[a]);
            const float a_d_i = a_d_c_next * ahead_0.r5;
            // part of lstm.cell:15: i[a:H] = sigmoid(p[a]);
            const float a_230 = a_d_i * (ahead_0.r4 * (1.0f - ahead_0.r4));
            if (mine) {
                cell_store(p_v230 + bt * (4*dim_H) + i_a, a_230);
            }
            // d_f, lstm.cell:16: f[a:H] = sigmoid(p[H + a]);
            const float a_d_f = a_d_c_next * ahead_0.r6;
            // part of lstm.cell:16: f[a:H] = sigmoid(p[H + a]);
            const float a_240 = a_d_f * (ahead_0.r7 * (1.0f - ahead_0.r7));
            if (mine) {
                cell_store(p_v240 + bt * (4*dim_H) + dim_H + i_a, a_240);
            }
            // d_o, lstm.cell:18: o[a:H] = sigmoid(p[3*H + a]);
            const float a_d_o = a_d_h_next * cell_tanh(ahead_0.r1);
            // part of lstm.cell:18: o[a:H] = sigmoid(p[3*H + a]);
            const float a_250 = a_d_o * (ahead_0.r3 * (1.0f - ahead_0.r3));
            if (mine) {
                cell_store(p_v250 + bt * (4*dim_H) + 3*dim_H + i_a, a_250);
            }
            // d_c, lstm.cell:11: c
            const float a_d_c = a_d_c_next * ahead_0.r7;
            if (begin + CELL_PANEL_THREADS >= elements)
                panel.post();
            if (mine) {
                cell_store(p_d_c_carried + ((t & 1) * dim_B + b) * dim_H + i_a, a_d_c);
                // d_bias_ih, lstm.cell:10: bias_ih
                total_221 += a_221;
                total_230 += a_230;
                total_240 += a_240;
                total_250 += a_250;
            }
        }
        if (cell_thread() < elements && step + 1 < steps) {
            const int n = cell_thread(), at = n < elements ? n : elements - 1;
            const int unit = panel.first + at % 8;
            const int64_t b = at / 8, i_a = unit < panel.units ? unit : panel.units - 1;
            read_0(b, i_a, t - 1, elements > CELL_PANEL_THREADS);
        }
        // d_h, lstm.cell:11: h
        panel.wait(step + 1);
        for (int64_t b0 = 0; b0 < dim_B; b0 += panel.batch) {
            cell_mma_c shares[panel.results];
            panel.multiply(shares, kept, p_d_p + (b0 * dim_T + t) * (4*dim_H), dim_T * (4*dim_H), dim_B - b0);
            panel.reduce(shares, dim_B - b0, [&](int row, int piece, int own, float sum) {
                sums[((int)b0 + row) * 8 + piece * 8 + own] = sum;
                if (t == 0)
                    cell_store(p_d_h_carried + (b0 + row) * dim_H + panel.first + own, sum);
            });
            cell_barrier();
        }
    }
    for (int begin = cell_thread(); begin < elements; begin += CELL_PANEL_THREADS) {
        const int n = begin, at = n < elements ? n : elements - 1;
        const int unit = panel.first + at % 8;
        const int64_t b = at / 8, i_a = unit < panel.units ? unit : panel.units - 1;
        if (i_a == unit) {
            p_partial[b * (4*dim_H) + 2*dim_H + i_a] = n >= CELL_PANEL_THREADS ? 0 : total_221;
            p_partial[b * (4*dim_H) + i_a] = n >= CELL_PANEL_THREADS ? 0 : total_230;
            p_partial[b * (4*dim_H) + dim_H + i_a] = n >= CELL_PANEL_THREADS ? 0 : total_240;
            p_partial[b * (4*dim_H) + 3*dim_H + i_a] = n >= CELL_PANEL_THREADS ? 0 : total_250;
            p_partial[(1 * dim_B + b) * (4*dim_H) + 2*dim_H + i_a] = n >= CELL_PANEL_THREADS ? 0 : total_221;
            p_partial[(1 * dim_B + b) * (4*dim_H) + i_a] = n >= CELL_PANEL_THREADS ? 0 : total_230;
            p_partial[(1 * dim_B + b) * (4*dim_H) + dim_H + i_a] = n >= CELL_PANEL_THREADS ? 0 : total_240;
            p_partial[(1 * dim_B + b) * (4*dim_H) + 3*dim_H + i_a] = n >= CELL_PANEL_THREADS ? 0 : total_250;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 1)
lstm_bwd_heads(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const int64_t dim_H = args.size[3];
    const float *const p_d_y = static_cast<const float *>(args.ptr[0]);
    const float *const p_c_next = static_cast<const float *>(args.ptr[1]);
    const float *const p_o = static_cast<const float *>(args.ptr[2]);
    const float *const p_i = static_cast<const float *>(args.ptr[3]);
    const float *const p_g = static_cast<const float *>(args.ptr[4]);
    float *const p_v221 = static_cast<float *>(args.ptr[5]);
    float *const p_v230 = static_cast<float *>(args.ptr[6]);
    const float *const p_c_init = static_cast<const float *>(args.ptr[7]);
    const float *const p_f = static_cast<const float *>(args.ptr[8]);
    float *const p_v240 = static_cast<float *>(args.ptr[9]);
    float *const p_v250 = static_cast<float *>(args.ptr[10]);
    const float *const p_weight_hh = static_cast<const float *>(args.ptr[11]);
    float *const p_d_h_carried = static_cast<float *>(args.ptr[12]);
    const float *const p_d_h_final = static_cast<const float *>(args.ptr[13]);
    float *const p_d_c_carried = static_cast<float *>(args.ptr[14]);
    const float *const p_d_c_final = static_cast<const float *>(args.ptr[15]);
    float *const p_d_h_init = static_cast<float *>(args.ptr[16]);
    float *const p_d_c_init = static_cast<float *>(args.ptr[17]);
    float *const p_partial = static_cast<float *>(args.ptr[18]);
    const bool adds = args.flags & CELL_KERNEL_ACCUMULATE;
    auto cursor = cell_shared();
    cell_head<float, 4, 1, 0> panel;
    panel.carve(cursor, dim_H);
    const int64_t tiles = cell_block_count(0) / 1, each = (dim_B + tiles - 1) / tiles;
    const int64_t head = cell_block_index(0) % 1, first = cell_block_index(0) / 1 * each;
    const int own = cell_thread() % panel.units, place = cell_thread() / panel.units;
    const bool mine = place < each && first + place < dim_B;
    const int sequence = mine ? place : 0;
    const int64_t b = first + sequence, e = head * dim_H + own;
    const int64_t i_a = e;
    panel.load(p_weight_hh + head * 0 + 0, 1, dim_H);
    float sum_0 = cell_given(p_d_h_final, p_d_h_carried, b * dim_H + e, (float)0);
    float d_c = cell_given(p_d_c_final, p_d_c_carried, b * dim_H + e, (float)0), new_d_c = d_c;
    float total_221 = 0;
    float total_230 = 0;
    float total_240 = 0;
    float total_250 = 0;
    struct reads_0 { float r0; float r1; float r2; float r3; float r4; float r5; float r6; };
    const auto read_0 = [&](int64_t t, auto &ahead) {
        const int64_t bt = b * dim_T + t;
        ahead.r0 = p_d_y ? cell_load_ro<float>(p_d_y + (bt * dim_H + i_a)) : 0;
        ahead.r1 = cell_load_ro<float>(p_c_next + (bt * dim_H + i_a));
        ahead.r2 = cell_load_ro<float>(p_o + (bt * dim_H + i_a));
        ahead.r3 = cell_load_ro<float>(p_i + (bt * dim_H + i_a));
        ahead.r4 = cell_load_ro<float>(p_g + (bt * dim_H + i_a));
        ahead.r5 = cell_load<float>(t > 0 ? p_c_next + ((bt - 1) * dim_H + i_a)
                : p_c_init + (b * dim_H + i_a));
        ahead.r6 = cell_load_ro<float>(p_f + (bt * dim_H + i_a));
    };
    reads_0 ahead_0[4];
    CELL_UNROLL
    for (int u = 0; u < 4; u++)
        if (dim_T > 0)
            read_0(u < dim_T ? dim_T - 1 - (u) : 0, ahead_0[u]);
    for (int64_t begin = 0; begin < dim_T; begin += 4) {
        reads_0 next_0[4];
        CELL_UNROLL
        for (int u = 0; u < 4; u++)
            read_0(begin + 4 + u < dim_T ? dim_T - 1 - (begin + 4 + u) : 0, next_0[u]);
        CELL_UNROLL
        for (int u = 0; u < 4; u++) {
            if (begin + u < dim_T) {
                const int64_t t = dim_T - 1 - begin - u;
                const int64_t bt = b * dim_T + t;
                if (mine) {
                    // d_h_next, lstm.cell:21: h'[a] = o[a] * tanh(c'[a]);
                    const float a_d_h_next = sum_0 + ahead_0[u].r0;
                    // d_c_next, lstm.cell:20: c'[a] = f[a] * c[a] + i[a] * g[a];
                    const float s0 = cell_tanh(ahead_0[u].r1);
                    const float a_d_c_next = d_c + ((a_d_h_next * ahead_0[u].r2) * (1.0f - (s0 * s0)));
                    // d_g, lstm.cell:17: g[a:H] = tanh(p[2*H + a]);
                    const float a_d_g = a_d_c_next * ahead_0[u].r3;
                    // part of lstm.cell:17: g[a:H] = tanh(p[2*H + a]);
                    const float a_221 = a_d_g * (1.0f - (ahead_0[u].r4 * ahead_0[u].r4));
                    panel.put(sequence, 2, own, a_221);
                    cell_store(p_v221 + (bt * (4*dim_H) + 2*dim_H + i_a), a_221);
                    // d_i, lstm.cell:15: i[a:H] = sigmoid(p[a]);
                    const float a_d_i = a_d_c_next * ahead_0[u].r4;
                    // part of lstm.cell:15: i[a:H] = sigmoid(p[a]);
                    const float a_230 = a_d_i * (ahead_0[u].r3 * (1.0f - ahead_0[u].r3));
                    panel.put(sequence, 0, own, a_230);
                    cell_store(p_v230 + (bt * (4*dim_H) + i_a), a_230);
                    // d_f, lstm.cell:16: f[a:H] = sigmoid(p[H + a]);
                    const float a_d_f = a_d_c_next * ahead_0[u].r5;
                    // part of lstm.cell:16: f[a:H] = sigmoid(p[H + a]);
                    const float a_240 = a_d_f * (ahead_0[u].r6 * (1.0f - ahead_0[u].r6));
                    panel.put(sequence, 1, own, a_240);
                    cell_store(p_v240 + (bt * (4*dim_H) + dim_H + i_a), a_240);
                    // d_o, lstm.cell:18: o[a:H] = sigmoid(p[3*H + a]);
                    const float a_d_o = a_d_h_next * cell_tanh(ahead_0[u].r1);
                    // part of lstm.cell:18: o[a:H] = sigmoid(p[3*H + a]);
                    const float a_250 = a_d_o * (ahead_0[u].r2 * (1.0f - ahead_0[u].r2));
                    panel.put(sequence, 3, own, a_250);
                    cell_store(p_v250 + (bt * (4*dim_H) + 3*dim_H + i_a), a_250);
                    // d_c, lstm.cell:11: c
                    const float a_d_c = a_d_c_next * ahead_0[u].r6;
                    new_d_c = a_d_c;
                    // d_bias_ih, lstm.cell:10: bias_ih
                    total_221 += a_221;
                    total_230 += a_230;
                    total_240 += a_240;
                    total_250 += a_250;
                }
                // d_h, lstm.cell:11: h
                panel.multiply();
                if (mine) {
                    sum_0 = panel.sum(sequence, 0, own);
                }
                d_c = new_d_c;
            }
        }
        CELL_UNROLL
        for (int u = 0; u < 4; u++)
            ahead_0[u] = next_0[u];
    }
    if (mine) {
        cell_store(p_d_h_carried + (b * dim_H + e), sum_0);
        if (p_d_h_init)
            cell_put(p_d_h_init + (b * dim_H + e), sum_0, adds);
        cell_store(p_d_c_carried + (b * dim_H + e), d_c);
        if (p_d_c_init)
            cell_put(p_d_c_init + (b * dim_H + e), d_c, adds);
    }
    if (mine) {
        p_partial[b * (4*dim_H) + 2*dim_H + i_a] = total_221;
        p_partial[b * (4*dim_H) + i_a] = total_230;
        p_partial[b * (4*dim_H) + dim_H + i_a] = total_240;
        p_partial[b * (4*dim_H) + 3*dim_H + i_a] = total_250;
        p_partial[(1 * dim_B + b) * (4*dim_H) + 2*dim_H + i_a] = total_221;
        p_partial[(1 * dim_B + b) * (4*dim_H) + i_a] = total_230;
        p_partial[(1 * dim_B + b) * (4*dim_H) + dim_H + i_a] = total_240;
        p_partial[(1 * dim_B + b) * (4*dim_H) + 3*dim_H + i_a] = total_250;
    }
}

extern "C" __global__ void __launch_bounds__(256)
lstm_init(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const int64_t dim_H = args.size[3];
    const float *const p_h_given = static_cast<const float *>(args.ptr[0]);
    float *const p_h_init = static_cast<float *>(args.ptr[1]);
    float *const p_h_before = static_cast<float *>(args.ptr[2]);
    float *const p_h_final = static_cast<float *>(args.ptr[3]);
    const float *const p_c_given = static_cast<const float *>(args.ptr[4]);
    float *const p_c_init = static_cast<float *>(args.ptr[5]);
    float *const p_c_final = static_cast<float *>(args.ptr[6]);
    const bool all = args.flags & CELL_KERNEL_SAVE;
    const int64_t first = cell_block_index(0) * 256 + cell_thread();
    const int64_t step = cell_block_count(0) * 256;
    for (int64_t n = first; n < dim_B * dim_H; n += step) {
        const int64_t b = n / dim_H;
        const int64_t e = n - b * dim_H;
        const float value = p_h_given ? p_h_given[n] : 0;
        p_h_init[n] = value;
        if (dim_T > 0)
            cell_store(p_h_before + (all ? b * dim_T : b * 2) * dim_H + e, value);
        if (dim_T == 0 && p_h_final)
            p_h_final[n] = value;
    }
    for (int64_t n = first; n < dim_B * dim_H; n += step) {
        const float value = p_c_given ? p_c_given[n] : 0;
        p_c_init[n] = value;
        if (dim_T == 0 && p_c_final)
            p_c_final[n] = value;
    }
}

extern "C" __global__ void __launch_bounds__(256)
lstm_seed(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const int64_t dim_H = args.size[3];
    const float *const p_d_h_final = static_cast<const float *>(args.ptr[0]);
    float *const p_d_h_carried = static_cast<float *>(args.ptr[1]);
    const float *const p_d_c_final = static_cast<const float *>(args.ptr[2]);
    float *const p_d_c_carried = static_cast<float *>(args.ptr[3]);
    const int64_t first = cell_block_index(0) * 256 + cell_thread();
    const int64_t step = cell_block_count(0) * 256;
    for (int64_t n = first; n < dim_B * dim_H; n += step)
        p_d_h_carried[(dim_T & 1) * dim_B * dim_H + n] = p_d_h_final ? p_d_h_final[n] : 0;
    for (int64_t n = first; n < dim_B * dim_H; n += step)
        p_d_c_carried[(dim_T & 1) * dim_B * dim_H + n] = p_d_c_final ? p_d_c_final[n] : 0;
}

extern "C" __global__ void __launch_bounds__(256)
lstm_result(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_H = args.size[3];
    float *const p_d_h_init = static_cast<float *>(args.ptr[0]);
    const float *const p_d_h_carried = static_cast<const float *>(args.ptr[1]);
    float *const p_d_c_init = static_cast<float *>(args.ptr[2]);
    const float *const p_d_c_carried = static_cast<const float *>(args.ptr[3]);
    const bool adds = args.flags & CELL_KERNEL_ACCUMULATE;
    const int64_t first = cell_block_index(0) * 256 + cell_thread();
    const int64_t step = cell_block_count(0) * 256;
    for (int64_t n = first; n < dim_B * dim_H; n += step) {
        if (p_d_h_init)
            cell_put(p_d_h_init + n, p_d_h_carried[n], adds);
    }
    for (int64_t n = first; n < dim_B * dim_H; n += step) {
        if (p_d_c_init)
            cell_put(p_d_c_init + n, p_d_c_carried[n], adds);
    }
}

