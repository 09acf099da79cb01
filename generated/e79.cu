// e79: CUDA kernels, written by cellc
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

extern "C" __global__ void __launch_bounds__(256)
e79_fwd_before_1(const __grid_constant__ cell_kernel_args args)
{
    [[maybe_unused]] const int64_t dim_B = args.size[0], dim_T = args.size[1];
    [[maybe_unused]] const int64_t dim_D = args.size[2];
    [[maybe_unused]] const int64_t t0 = args.size[3];
    const int64_t rows = dim_B * dim_T, elements = 1;
    const int lane = cell_thread() % 32;
    for (int64_t n = cell_block_index(0) * 8 + cell_thread() / 32; n < rows * elements;
            n += cell_block_count(0) * 8) {
        const int64_t row = n / elements;
        [[maybe_unused]] const int64_t r = n - row * elements;
        [[maybe_unused]] const int64_t b = row / dim_T, t = row % dim_T;
        float a163 = 0;
        float a191 = 0;
        if (64 % 4 == 0) {
            for (int64_t e = (lane) * 4; e < 64; e += (32) * 4) {
                float l0[4];
                cell_load_vec_ro<4>(l0, ((float *)args.ptr[0]) + row * (256) + e);
                float l1[4];
                cell_load_vec_ro<4>(l1, ((float *)args.ptr[0]) + row * (256) + (192 + e));
                CELL_UNROLL
                for (int u = 0; u < 4; u++) {
                    [[maybe_unused]] const int64_t i_j = e + u;
                    // part of e79.cell:30: kn[i] = k[i] / (sqrt(sum[j] k[j]^2) + 1e-6);
                    a163 = a163 + ((l0[u] * l0[u]));
                    // part of e79.cell:31: mn[i] = m[i] / (sqrt(sum[j] m[j]^2) + 1e-6);
                    a191 = a191 + ((l1[u] * l1[u]));
                }
            }
        } else {
            for (int64_t e = lane; e < 64; e += 32) {
                [[maybe_unused]] const int64_t i_j = e;
                // part of e79.cell:30: kn[i] = k[i] / (sqrt(sum[j] k[j]^2) + 1e-6);
                a163 = a163 + ((cell_load_ro<float>(((float *)args.ptr[0]) + row * (256) + i_j)
                        * cell_load_ro<float>(((float *)args.ptr[0]) + row * (256) + i_j)));
                // part of e79.cell:31: mn[i] = m[i] / (sqrt(sum[j] m[j]^2) + 1e-6);
                a191 = a191 + ((cell_load_ro<float>(((float *)args.ptr[0]) + row * (256) + (192 + i_j))
                        * cell_load_ro<float>(((float *)args.ptr[0]) + row * (256) + (192 + i_j))));
            }
        }
        a163 = cell_warp_sum(a163);
        a191 = cell_warp_sum(a191);
        if (lane == 0) {
            if (((float *)args.ptr[1]))
                cell_store(((float *)args.ptr[1]) + row * (1) + 0, a163);
        }
        if (lane == 0) {
            if (((float *)args.ptr[2]))
                cell_store(((float *)args.ptr[2]) + row * (1) + 0, a191);
        }
        if (64 % 4 == 0) {
            for (int64_t e = (lane) * 4; e < 64; e += (32) * 4) {
                float l0[4];
                cell_load_vec_ro<4>(l0, ((float *)args.ptr[0]) + row * (256) + e);
                const float h164 = cell_sqrt(a163);
                const float h165 = (h164 + 1e-06f);
                float s167[4];
                float l1[4];
                cell_load_vec_ro<4>(l1, ((float *)args.ptr[0]) + row * (256) + (192 + e));
                const float h192 = cell_sqrt(a191);
                const float h193 = (h192 + 1e-06f);
                float s195[4];
                CELL_UNROLL
                for (int u = 0; u < 4; u++) {
                    [[maybe_unused]] const int64_t i_i = e + u;
                    // kn, e79.cell:30: kn[i] = k[i] / (sqrt(sum[j] k[j]^2) + 1e-6);
                    const float a167 = (l0[u] / h165);
                    s167[u] = a167;
                    // mn, e79.cell:31: mn[i] = m[i] / (sqrt(sum[j] m[j]^2) + 1e-6);
                    const float a195 = (l1[u] / h193);
                    s195[u] = a195;
                }
                cell_store_vec<4>(((float *)args.ptr[3]) + row * (64) + e, s167);
                cell_store_vec<4>(((float *)args.ptr[4]) + row * (64) + e, s195);
            }
        } else {
            for (int64_t e = lane; e < 64; e += 32) {
                [[maybe_unused]] const int64_t i_i = e;
                // kn, e79.cell:30: kn[i] = k[i] / (sqrt(sum[j] k[j]^2) + 1e-6);
                const float a167 = (cell_load_ro<float>(((float *)args.ptr[0]) + row * (256) + i_i)
                        / (cell_sqrt(a163) + 1e-06f));
                cell_store(((float *)args.ptr[3]) + row * (64) + i_i, a167);
                // mn, e79.cell:31: mn[i] = m[i] / (sqrt(sum[j] m[j]^2) + 1e-6);
                const float a195 = (cell_load_ro<float>(((float *)args.ptr[0]) + row * (256) + (192 + i_i))
                        / (cell_sqrt(a191) + 1e-06f));
                cell_store(((float *)args.ptr[4]) + row * (64) + i_i, a195);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 2)
e79_fwd_walk(const __grid_constant__ cell_kernel_args args)
{
    const int64_t B = args.size[0], T = args.size[1];
    const int64_t dim_D = args.size[2];
    const int64_t time0 = args.size[3];
    const int lane = cell_lane(), warp = cell_warp();
    const int lane_row = lane / 2, lane_col = lane % 2;
    const int warp_row = warp / 4, warp_col = warp % 4;
    // Of 64 x 64: 2 x 8 elements a thread, 16 x 2 lanes, 2 x 4 warps.
    const int row0 = (warp_row * 16 + lane_row) * 2, col0 = (warp_col * 2 + lane_col) * 8;
    const int last_row = 63, last_col = 63;
    unsigned char *cursor = cell_shared();
    cell_smem<float> kn_s = cell_carve<float>(cursor, 512);
    cell_smem<float> mn_s = cell_carve<float>(cursor, 512);
    cell_smem<float> b_s_gate_s = cell_carve<float>(cursor, 64);
    cell_smem<float> W_kvqm_x_s = cell_carve<float>(cursor, 2048);
    cell_smem<float> b_m_gate_s = cell_carve<float>(cursor, 64);
    cell_smem<float> ex = cell_carve<float>(cursor, 3072);
    for (int64_t item = cell_block_index(0); item < B * (1); item += cell_block_count(0)) {
        const int64_t b = item;
        const int64_t chunks = (T + 3) / 4;
        const float *kn_s_g = (const float *)args.ptr[4] + (b * T * (64) + 0);
        const float *mn_s_g = (const float *)args.ptr[5] + (b * T * (64) + 0);
        const float *b_s_gate_s_g = (const float *)args.ptr[6] + (0);
        for (int x = cell_thread(); x < 64; x += 256)
            b_s_gate_s[x] = b_s_gate_s_g[x];
        const float *W_kvqm_x_s_g = (const float *)args.ptr[7] + (b * T * (256) + 0);
        const float *b_m_gate_s_g = (const float *)args.ptr[12] + (0);
        for (int x = cell_thread(); x < 64; x += 256)
            b_m_gate_s[x] = b_m_gate_s_g[x];
        // The vectors of steps [4 chunk, 4 chunk + 4) on their way into half a buffer.
        auto fetch = [&](int64_t chunk) {
            const int64_t t0 = chunk * 4;
            const int steps = T - t0 < 4 ? (int)(T - t0) : 4, half = (int)(chunk & 1) * 4;
            if (warp == 0)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(kn_s + ((half + s) * 64 + x), kn_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 1)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(mn_s + ((half + s) * 64 + x), mn_s_g + (t0 + s) * (64) + x);
                }
            for (int p = cell_thread(); p < steps * 64; p += 256) {
                const int s = p / 64, x = p % 64 * 4;
                cell_cp_async<16>(W_kvqm_x_s + ((half + s) * 256 + x), W_kvqm_x_s_g + (t0 + s) * (256) + x);
            }
            cell_cp_async_commit();
        };
        float S[2][8];
        CELL_UNROLL
        for (int r = 0; r < 2; r++) {
            CELL_UNROLL
            for (int c = 0; c < 8; c++) {
                S[r][c] = ((float *)args.ptr[0]) ? ((float *)args.ptr[0])[b * (4096)
                        + (64 * (row0 + r) + (col0 + c))] : 0;
            }
        }
        float M[2][8];
        CELL_UNROLL
        for (int r = 0; r < 2; r++) {
            CELL_UNROLL
            for (int c = 0; c < 8; c++) {
                M[r][c] = ((float *)args.ptr[1]) ? ((float *)args.ptr[1])[b * (4096)
                        + (64 * (row0 + r) + (col0 + c))] : 0;
            }
        }
        if (chunks > 0)
            fetch(0);
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            const int64_t t0 = chunk * 4;
            const int steps = T - t0 < 4 ? (int)(T - t0) : 4, half = (int)(chunk & 1) * 4;
            cell_cp_async_wait<0>();
            cell_barrier();
            if (chunk + 1 < chunks)
                fetch(chunk + 1);
            if (((float *)args.ptr[2])) {
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 8; c++) {
                        ((float *)args.ptr[2])[(b * chunks + chunk) * (4096)
                                + (64 * (row0 + r) + (col0 + c))] = S[r][c];
                    }
                }
            }
            if (((float *)args.ptr[3])) {
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 8; c++) {
                        ((float *)args.ptr[3])[(b * chunks + chunk) * (4096)
                                + (64 * (row0 + r) + (col0 + c))] = M[r][c];
                    }
                }
            }
            for (int s = 0; s < steps; s++) {
                const int64_t t = t0 + s;
                const int flip = (int)(t & 1) * 1536;
                const int slot = half + s;
                (void)flip, (void)slot;
                float S_next[2][8];
                float M_next[2][8];
                float kn_c[8];
                cell_load_vec<8>(kn_c, kn_s + (slot * 64 + 0 + col0));
                float kn_r[2];
                cell_load_vec<2>(kn_r, kn_s + (slot * 64 + 0 + row0));
                float mn_c[8];
                cell_load_vec<8>(mn_c, mn_s + (slot * 64 + 0 + col0));
                float own_sum_sr[2] = { 0, 0 };
                float own_sum_sc[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
                float own_sum_ds[2] = { 0, 0 };
                float own_sum_dm[2] = { 0, 0 };
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 8; c++) {
                        own_sum_sr[r] += (M[r][c] * kn_c[c]);
                        own_sum_sc[c] += (M[r][c] * kn_r[r]);
                        own_sum_ds[r] += (S[r][c] * kn_c[c]);
                        own_sum_dm[r] += (M[r][c] * mn_c[c]);
                    }
                }
                cell_reduce_scatter_op<cell_op_sum, 1, 2>(own_sum_sr);
                CELL_UNROLL
                for (int i = 0; i < 1; i++)
                    ex[flip + 0 + warp_col * 64 + row0 + cell_scatter_first<1, 2, 2>() + i] = own_sum_sr[i];
                cell_reduce_scatter_op<cell_op_sum, 2, 16>(own_sum_sc);
                if (lane / 2 % 2 == 0) {
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 256 + warp_row * 64 + col0 + cell_scatter_first<2, 16, 8>() + i]
                                = own_sum_sc[i];
                }
                cell_reduce_scatter_op<cell_op_sum, 1, 2>(own_sum_ds);
                CELL_UNROLL
                for (int i = 0; i < 1; i++)
                    ex[flip + 384 + warp_col * 64 + row0 + cell_scatter_first<1, 2, 2>() + i] = own_sum_ds[i];
                cell_reduce_scatter_op<cell_op_sum, 1, 2>(own_sum_dm);
                CELL_UNROLL
                for (int i = 0; i < 1; i++)
                    ex[flip + 640 + warp_col * 64 + row0 + cell_scatter_first<1, 2, 2>() + i] = own_sum_dm[i];
                cell_barrier();
                float sum_sr[2];
                cell_load_vec<2>(sum_sr, ex + (flip + 0 + row0));
                float part[2];
                cell_load_vec<2>(part, ex + (flip + 64 + row0));
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    sum_sr[r] = sum_sr[r] + part[r];
                }
                float part_2[2];
                cell_load_vec<2>(part_2, ex + (flip + 128 + row0));
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    sum_sr[r] = sum_sr[r] + part_2[r];
                }
                float part_3[2];
                cell_load_vec<2>(part_3, ex + (flip + 192 + row0));
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    sum_sr[r] = sum_sr[r] + part_3[r];
                }
                float b_s_gate_r[2];
                cell_load_vec<2>(b_s_gate_r, b_s_gate_s + (0 + row0));
                float sr_r[2];  // sr[i]   = sigmoid(sum[j] M[i,j] * kn[j] + bs[i])
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    sr_r[r] = cell_sigmoid((sum_sr[r] + b_s_gate_r[r]));
                }
                float sum_sc[8];
                cell_load_vec<8>(sum_sc, ex + (flip + 256 + col0));
                float part_4[8];
                cell_load_vec<8>(part_4, ex + (flip + 320 + col0));
                CELL_UNROLL
                for (int c = 0; c < 8; c++) {
                    sum_sc[c] = sum_sc[c] + part_4[c];
                }
                float b_s_gate_c[8];
                cell_load_vec<8>(b_s_gate_c, b_s_gate_s + (0 + col0));
                float sc_c[8];  // sc[j]   = sigmoid(sum[i] M[i,j] * kn[i] + bs[j])
                CELL_UNROLL
                for (int c = 0; c < 8; c++) {
                    sc_c[c] = cell_sigmoid((sum_sc[c] + b_s_gate_c[c]));
                }
                float W_kvqm_x_r[2];
                cell_load_vec<2>(W_kvqm_x_r, W_kvqm_x_s + (slot * 256 + 64 + row0));
                float sum_ds[2];
                cell_load_vec<2>(sum_ds, ex + (flip + 384 + row0));
                float part_5[2];
                cell_load_vec<2>(part_5, ex + (flip + 448 + row0));
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    sum_ds[r] = sum_ds[r] + part_5[r];
                }
                float part_6[2];
                cell_load_vec<2>(part_6, ex + (flip + 512 + row0));
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    sum_ds[r] = sum_ds[r] + part_6[r];
                }
                float part_7[2];
                cell_load_vec<2>(part_7, ex + (flip + 576 + row0));
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    sum_ds[r] = sum_ds[r] + part_7[r];
                }
                float ds_r[2];  // ds[i]   = v[i] - sum[j] S[i,j] * kn[j]
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    ds_r[r] = (W_kvqm_x_r[r] - sum_ds[r]);
                }
                float mn_r[2];
                cell_load_vec<2>(mn_r, mn_s + (slot * 64 + 0 + row0));
                float W_kvqm_x_c[8];
                cell_load_vec<8>(W_kvqm_x_c, W_kvqm_x_s + (slot * 256 + 128 + col0));
                float own_sum_mr[2] = { 0, 0 };
                float own_sum_mc[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
                float own_sum_r[2] = { 0, 0 };
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 8; c++) {
                        // S'[i,j] = sr[i] * S[i,j] * sc[j] + ds[i] * kn[j]
                        S_next[r][c] = (((sr_r[r] * S[r][c]) * sc_c[c]) + (ds_r[r] * kn_c[c]));
                        own_sum_mr[r] += (S_next[r][c] * mn_c[c]);
                        own_sum_mc[c] += (S_next[r][c] * mn_r[r]);
                        own_sum_r[r] += (S_next[r][c] * W_kvqm_x_c[c]);
                    }
                }
                cell_reduce_scatter_op<cell_op_sum, 1, 2>(own_sum_mr);
                CELL_UNROLL
                for (int i = 0; i < 1; i++)
                    ex[flip + 896 + warp_col * 64 + row0 + cell_scatter_first<1, 2, 2>() + i] = own_sum_mr[i];
                cell_reduce_scatter_op<cell_op_sum, 2, 16>(own_sum_mc);
                if (lane / 2 % 2 == 0) {
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 1152 + warp_row * 64 + col0 + cell_scatter_first<2, 16, 8>() + i]
                                = own_sum_mc[i];
                }
                cell_reduce_scatter_op<cell_op_sum, 1, 2>(own_sum_r);
                CELL_UNROLL
                for (int i = 0; i < 1; i++)
                    ex[flip + 1280 + warp_col * 64 + row0 + cell_scatter_first<1, 2, 2>() + i] = own_sum_r[i];
                if (args.ptr[8] && cell_thread() < 64) {
                    const int x = cell_thread();
                    const float b_s_gate = cell_load<float>(b_s_gate_s + x);
                    const float sr = cell_sigmoid((((float)ex[flip + 0 + x] + (float)ex[flip + 64 + x]
                            + (float)ex[flip + 128 + x] + (float)ex[flip + 192 + x]) + b_s_gate));
                    cell_store((float *)args.ptr[8] + ((b * T + t) * (64) + x), sr);
                }
                if (args.ptr[9] && (cell_thread() + 192) % 256 < 64) {
                    const int x = (cell_thread() + 192) % 256;
                    const float b_s_gate_2 = cell_load<float>(b_s_gate_s + x);
                    const float sc = cell_sigmoid((((float)ex[flip + 256 + x] + (float)ex[flip + 320 + x])
                            + b_s_gate_2));
                    cell_store((float *)args.ptr[9] + ((b * T + t) * (64) + x), sc);
                }
                if (args.ptr[10] && (cell_thread() + 128) % 256 < 64) {
                    const int x = (cell_thread() + 128) % 256;
                    const float W_kvqm_x = cell_load<float>(W_kvqm_x_s + (slot * 256 + (64 + x)));
                    const float ds = (W_kvqm_x - ((float)ex[flip + 384 + x] + (float)ex[flip + 448 + x]
                            + (float)ex[flip + 512 + x] + (float)ex[flip + 576 + x]));
                    cell_store((float *)args.ptr[10] + ((b * T + t) * (64) + x), ds);
                }
                if (args.ptr[11] && (cell_thread() + 64) % 256 < 64) {
                    const int x = (cell_thread() + 64) % 256;
                    const float W_kvqm_x_2 = cell_load<float>(W_kvqm_x_s + (slot * 256 + (64 + x)));
                    const float ds_2 = (W_kvqm_x_2 - ((float)ex[flip + 384 + x] + (float)ex[flip + 448 + x]
                            + (float)ex[flip + 512 + x] + (float)ex[flip + 576 + x]));
                    const float dm = (ds_2 - ((float)ex[flip + 640 + x] + (float)ex[flip + 704 + x]
                            + (float)ex[flip + 768 + x] + (float)ex[flip + 832 + x]));
                    cell_store((float *)args.ptr[11] + ((b * T + t) * (64) + x), dm);
                }
                cell_barrier();
                float sum_mr[2];
                cell_load_vec<2>(sum_mr, ex + (flip + 896 + row0));
                float part_8[2];
                cell_load_vec<2>(part_8, ex + (flip + 960 + row0));
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    sum_mr[r] = sum_mr[r] + part_8[r];
                }
                float part_9[2];
                cell_load_vec<2>(part_9, ex + (flip + 1024 + row0));
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    sum_mr[r] = sum_mr[r] + part_9[r];
                }
                float part_10[2];
                cell_load_vec<2>(part_10, ex + (flip + 1088 + row0));
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    sum_mr[r] = sum_mr[r] + part_10[r];
                }
                float b_m_gate_r[2];
                cell_load_vec<2>(b_m_gate_r, b_m_gate_s + (0 + row0));
                float mr_r[2];  // mr[i]   = sigmoid(sum[j] S'[i,j] * mn[j] + bm[i])
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    mr_r[r] = cell_sigmoid((sum_mr[r] + b_m_gate_r[r]));
                }
                float sum_mc[8];
                cell_load_vec<8>(sum_mc, ex + (flip + 1152 + col0));
                float part_11[8];
                cell_load_vec<8>(part_11, ex + (flip + 1216 + col0));
                CELL_UNROLL
                for (int c = 0; c < 8; c++) {
                    sum_mc[c] = sum_mc[c] + part_11[c];
                }
                float b_m_gate_c[8];
                cell_load_vec<8>(b_m_gate_c, b_m_gate_s + (0 + col0));
                float mc_c[8];  // mc[j]   = sigmoid(sum[i] S'[i,j] * mn[i] + bm[j])
                CELL_UNROLL
                for (int c = 0; c < 8; c++) {
                    mc_c[c] = cell_sigmoid((sum_mc[c] + b_m_gate_c[c]));
                }
                float sum_dm[2];
                cell_load_vec<2>(sum_dm, ex + (flip + 640 + row0));
                float part_12[2];
                cell_load_vec<2>(part_12, ex + (flip + 704 + row0));
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    sum_dm[r] = sum_dm[r] + part_12[r];
                }
                float part_13[2];
                cell_load_vec<2>(part_13, ex + (flip + 768 + row0));
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    sum_dm[r] = sum_dm[r] + part_13[r];
                }
                float part_14[2];
                cell_load_vec<2>(part_14, ex + (flip + 832 + row0));
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    sum_dm[r] = sum_dm[r] + part_14[r];
                }
                float dm_r[2];  // dm[i]   = ds[i] - sum[j] M[i,j] * mn[j]
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    dm_r[r] = (ds_r[r] - sum_dm[r]);
                }
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 8; c++) {
                        // M'[i,j] = mr[i] * M[i,j] * mc[j] + dm[i] * mn[j]
                        M_next[r][c] = (((mr_r[r] * M[r][c]) * mc_c[c]) + (dm_r[r] * mn_c[c]));
                    }
                }
                if (args.ptr[13] && cell_thread() < 64) {
                    const int x = cell_thread();
                    const float b_m_gate = cell_load<float>(b_m_gate_s + x);
                    const float mr = cell_sigmoid((((float)ex[flip + 896 + x] + (float)ex[flip + 960 + x]
                            + (float)ex[flip + 1024 + x] + (float)ex[flip + 1088 + x]) + b_m_gate));
                    cell_store((float *)args.ptr[13] + ((b * T + t) * (64) + x), mr);
                }
                if (args.ptr[14] && (cell_thread() + 192) % 256 < 64) {
                    const int x = (cell_thread() + 192) % 256;
                    const float b_m_gate_2 = cell_load<float>(b_m_gate_s + x);
                    const float mc = cell_sigmoid((((float)ex[flip + 1152 + x] + (float)ex[flip + 1216 + x])
                            + b_m_gate_2));
                    cell_store((float *)args.ptr[14] + ((b * T + t) * (64) + x), mc);
                }
                if (args.ptr[15] && (cell_thread() + 128) % 256 < 64) {
                    const int x = (cell_thread() + 128) % 256;
                    cell_store((float *)args.ptr[15] + ((b * T + t) * (64) + x),
                            ((float)ex[flip + 1280 + x] + (float)ex[flip + 1344 + x]
                            + (float)ex[flip + 1408 + x] + (float)ex[flip + 1472 + x]));
                }
                if (args.ptr[16] && (cell_thread() + 64) % 256 < 64) {
                    const int x = (cell_thread() + 64) % 256;
                    const float y = (((float)ex[flip + 1280 + x] + (float)ex[flip + 1344 + x]
                            + (float)ex[flip + 1408 + x] + (float)ex[flip + 1472 + x])
                            * cell_silu(((float)ex[flip + 1280 + x] + (float)ex[flip + 1344 + x]
                            + (float)ex[flip + 1408 + x] + (float)ex[flip + 1472 + x])));
                    cell_store((float *)args.ptr[16] + ((b * T + t) * (64) + x), y);
                }
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 8; c++) {
                        S[r][c] = S_next[r][c];
                    }
                }
                CELL_UNROLL
                for (int r = 0; r < 2; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 8; c++) {
                        M[r][c] = M_next[r][c];
                    }
                }
            }
        }
        if (((float *)args.ptr[17])) {
            CELL_UNROLL
            for (int r = 0; r < 2; r++) {
                CELL_UNROLL
                for (int c = 0; c < 8; c++) {
                    ((float *)args.ptr[17])[b * (4096) + (64 * (row0 + r) + (col0 + c))] = S[r][c];
                }
            }
        }
        if (((float *)args.ptr[18])) {
            CELL_UNROLL
            for (int r = 0; r < 2; r++) {
                CELL_UNROLL
                for (int c = 0; c < 8; c++) {
                    ((float *)args.ptr[18])[b * (4096) + (64 * (row0 + r) + (col0 + c))] = M[r][c];
                }
            }
        }
        cell_barrier();
    }
}

extern "C" __global__ void __launch_bounds__(256)
e79_bwd_before_0(const __grid_constant__ cell_kernel_args args)
{
    [[maybe_unused]] const int64_t dim_B = args.size[0], dim_T = args.size[1];
    [[maybe_unused]] const int64_t dim_D = args.size[2];
    [[maybe_unused]] const int64_t t0 = args.size[3];
    const int64_t rows = dim_B * dim_T, elements = 64;
    for (int64_t n = cell_block_index(0) * 256 + cell_thread(); n < rows * elements;
            n += cell_block_count(0) * 256) {
        const int64_t row = n / elements;
        [[maybe_unused]] const int64_t e = n - row * elements;
        [[maybe_unused]] const int64_t b = row / dim_T, t = row % dim_T;
        [[maybe_unused]] const int64_t i_i = e;
        // d_r, e79.cell:43: r[i] = sum[j] S'[i,j] * q[j];
        const float v231_0 = cell_sigmoid(cell_load_ro<float>(((float *)args.ptr[0]) + row * (64) + i_i));
        const float a239 = (((((float *)args.ptr[1]) ? cell_load_ro<float>(((float *)args.ptr[1])
                + row * (64) + i_i) : (float)0) * cell_silu(cell_load_ro<float>(((float *)args.ptr[0])
                + row * (64) + i_i))) + (((((float *)args.ptr[1])
                ? cell_load_ro<float>(((float *)args.ptr[1]) + row * (64) + i_i) : (float)0)
                * cell_load_ro<float>(((float *)args.ptr[0]) + row * (64) + i_i))
                * (v231_0 * (1.0f + (cell_load_ro<float>(((float *)args.ptr[0]) + row * (64) + i_i)
                * (1.0f - v231_0))))));
        cell_store(((float *)args.ptr[2]) + row * (64) + i_i, a239);
    }
}

extern "C" __global__ void __launch_bounds__(256, 4)
e79_bwd_after_1(const __grid_constant__ cell_kernel_args args)
{
    [[maybe_unused]] const int64_t dim_B = args.size[0], dim_T = args.size[1];
    [[maybe_unused]] const int64_t dim_D = args.size[2];
    [[maybe_unused]] const int64_t t0 = args.size[3];
    auto cursor = cell_shared();
    cell_smem<float> scratch = cell_carve<float>(cursor, 256);
    const int64_t rows = dim_B * dim_T, columns = 64;
    const int64_t chunks = cell_block_count(1), chunk = cell_block_index(1);
    const int64_t begin = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
    const int lane = cell_thread() % 32, part = cell_thread() / 32;
    if (columns % 4 == 0) {
        const int64_t blocks = (columns + 127) / 128;
        for (int64_t block = cell_block_index(0); block < blocks; block += cell_block_count(0)) {
            const int64_t e = (block * 32 + lane) * 4;
            float sum_478[4] = {};
            float sum_480[4] = {};
            if (e < columns) {
                for (int64_t row = begin + part; row < end; row += 8) {
                    [[maybe_unused]] const int64_t b = row / dim_T, t = row % dim_T;
                    float l0[4];
                    cell_load_vec_ro<4>(l0, ((float *)args.ptr[0]) + row * (64) + e);
                    float l1[4];
                    cell_load_vec_ro<4>(l1, ((float *)args.ptr[1]) + row * (64) + e);
                    CELL_UNROLL
                    for (int u = 0; u < 4; u++) {
                        [[maybe_unused]] const int64_t i_column = e + u;
                        // d_b_s_gate, e79.cell:20: b_s_gate
                        sum_478[u] += l0[u];
                        // d_b_m_gate, e79.cell:20: b_m_gate
                        sum_480[u] += l1[u];
                    }
                }
            }
            for (int u = 0; u < 4; u++) {
                scratch[cell_thread()] = sum_478[u];
                cell_barrier();
                if (part == 0 && e < columns) {
                    float total = 0;
                    for (int w = 0; w < 8; w++) {
                        const float v = scratch[w * 32 + lane];
                        total += v;
                    }
                    ((float *)args.ptr[2])[(0 * chunks + chunk) * columns + e + u] = total;
                }
                cell_barrier();
            }
            for (int u = 0; u < 4; u++) {
                scratch[cell_thread()] = sum_480[u];
                cell_barrier();
                if (part == 0 && e < columns) {
                    float total = 0;
                    for (int w = 0; w < 8; w++) {
                        const float v = scratch[w * 32 + lane];
                        total += v;
                    }
                    ((float *)args.ptr[2])[(1 * chunks + chunk) * columns + e + u] = total;
                }
                cell_barrier();
            }
        }
    } else {
        const int64_t blocks = (columns + 31) / 32;
        for (int64_t block = cell_block_index(0); block < blocks; block += cell_block_count(0)) {
            const int64_t e = (block * 32 + lane) * 1;
            float sum_478[1] = {};
            float sum_480[1] = {};
            if (e < columns) {
                [[maybe_unused]] const int64_t col_i = e;
                for (int64_t row = begin + part; row < end; row += 8) {
                    [[maybe_unused]] const int64_t b = row / dim_T, t = row % dim_T;
                    // d_b_s_gate, e79.cell:20: b_s_gate
                    sum_478[0] += cell_load_ro<float>(((float *)args.ptr[0]) + row * (64) + col_i);
                    // d_b_m_gate, e79.cell:20: b_m_gate
                    sum_480[0] += cell_load_ro<float>(((float *)args.ptr[1]) + row * (64) + col_i);
                }
            }
            for (int u = 0; u < 1; u++) {
                scratch[cell_thread()] = sum_478[u];
                cell_barrier();
                if (part == 0 && e < columns) {
                    float total = 0;
                    for (int w = 0; w < 8; w++) {
                        const float v = scratch[w * 32 + lane];
                        total += v;
                    }
                    ((float *)args.ptr[2])[(0 * chunks + chunk) * columns + e + u] = total;
                }
                cell_barrier();
            }
            for (int u = 0; u < 1; u++) {
                scratch[cell_thread()] = sum_480[u];
                cell_barrier();
                if (part == 0 && e < columns) {
                    float total = 0;
                    for (int w = 0; w < 8; w++) {
                        const float v = scratch[w * 32 + lane];
                        total += v;
                    }
                    ((float *)args.ptr[2])[(1 * chunks + chunk) * columns + e + u] = total;
                }
                cell_barrier();
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 4)
e79_bwd_after_1_2(const __grid_constant__ cell_kernel_args args)
{
    [[maybe_unused]] const int64_t dim_B = args.size[0], dim_T = args.size[1];
    [[maybe_unused]] const int64_t dim_D = args.size[2];
    [[maybe_unused]] const int64_t t0 = args.size[3];
    auto cursor = cell_shared();
    cell_smem<float> scratch = cell_carve<float>(cursor, 256);
    const int64_t rows = dim_B * dim_T, columns = 64;
    const int64_t chunks = column_chunks(rows, columns);
    const int lane = cell_thread() % 32, part = cell_thread() / 32;
    const int64_t begin = chunks * part / 8, end = chunks * (part + 1) / 8;
    const int64_t blocks = (columns + 31) / 32;
    for (int64_t block = cell_block_index(0); block < blocks; block += cell_block_count(0)) {
        const int64_t column = block * 32 + lane;
        [[maybe_unused]] const int64_t col_i = column;
        float part_478 = 0;
        CELL_UNROLL_BY(8)
        for (int64_t chunk = begin; chunk < end && column < columns; chunk++)
            part_478 += cell_load_ro<float>(((float *)args.ptr[0]) + (0 * chunks + chunk) * columns + column);
        scratch[cell_thread()] = part_478;
        cell_barrier();
        if (part == 0 && column < columns) {
            float sum_478 = 0;
            for (int w = 0; w < 8; w++) {
                const float v = scratch[w * 32 + lane];
                sum_478 += v;
            }
            if (((float *)args.ptr[1]))
                cell_store(((float *)args.ptr[1]) + col_i,
                        args.flags & CELL_KERNEL_ACCUMULATE ? cell_load<float>(((float *)args.ptr[1])
                        + col_i) + sum_478 : sum_478);
        }
        cell_barrier();
        float part_480 = 0;
        CELL_UNROLL_BY(8)
        for (int64_t chunk = begin; chunk < end && column < columns; chunk++)
            part_480 += cell_load_ro<float>(((float *)args.ptr[0]) + (1 * chunks + chunk) * columns + column);
        scratch[cell_thread()] = part_480;
        cell_barrier();
        if (part == 0 && column < columns) {
            float sum_480 = 0;
            for (int w = 0; w < 8; w++) {
                const float v = scratch[w * 32 + lane];
                sum_480 += v;
            }
            if (((float *)args.ptr[2]))
                cell_store(((float *)args.ptr[2]) + col_i,
                        args.flags & CELL_KERNEL_ACCUMULATE ? cell_load<float>(((float *)args.ptr[2])
                        + col_i) + sum_480 : sum_480);
        }
        cell_barrier();
    }
}

extern "C" __global__ void __launch_bounds__(256)
e79_bwd_after_2(const __grid_constant__ cell_kernel_args args)
{
    [[maybe_unused]] const int64_t dim_B = args.size[0], dim_T = args.size[1];
    [[maybe_unused]] const int64_t dim_D = args.size[2];
    [[maybe_unused]] const int64_t t0 = args.size[3];
    const int64_t rows = dim_B * dim_T, elements = 1;
    const int lane = cell_thread() % 32;
    for (int64_t n = cell_block_index(0) * 8 + cell_thread() / 32; n < rows * elements;
            n += cell_block_count(0) * 8) {
        const int64_t row = n / elements;
        [[maybe_unused]] const int64_t r = n - row * elements;
        [[maybe_unused]] const int64_t b = row / dim_T, t = row % dim_T;
        float a493 = 0;
        float a531 = 0;
        if (64 % 4 == 0) {
            for (int64_t e = (lane) * 4; e < 64; e += (32) * 4) {
                float l0[4];
                cell_load_vec_ro<4>(l0, ((float *)args.ptr[0]) + row * (64) + e);
                const float h192 = cell_sqrt(cell_load_ro<float>(((float *)args.ptr[1]) + row * (1) + 0));
                const float h193 = (h192 + 1e-06f);
                float l1[4];
                cell_load_vec_ro<4>(l1, ((float *)args.ptr[2]) + row * (64) + e);
                float l2[4];
                cell_load_vec_ro<4>(l2, ((float *)args.ptr[3]) + row * (64) + e);
                const float h164 = cell_sqrt(cell_load_ro<float>(((float *)args.ptr[4]) + row * (1) + 0));
                const float h165 = (h164 + 1e-06f);
                float l3[4];
                cell_load_vec_ro<4>(l3, ((float *)args.ptr[5]) + row * (64) + e);
                CELL_UNROLL
                for (int u = 0; u < 4; u++) {
                    [[maybe_unused]] const int64_t i_i = e + u;
                    // part of e79.cell:31: mn[i] = m[i] / (sqrt(sum[j] m[j]^2) + 1e-6);
                    a493 = a493 + ((-((l0[u] / h193) * l1[u])));
                    // part of e79.cell:30: kn[i] = k[i] / (sqrt(sum[j] k[j]^2) + 1e-6);
                    a531 = a531 + ((-((l2[u] / h165) * l3[u])));
                }
            }
        } else {
            for (int64_t e = lane; e < 64; e += 32) {
                [[maybe_unused]] const int64_t i_i = e;
                // part of e79.cell:31: mn[i] = m[i] / (sqrt(sum[j] m[j]^2) + 1e-6);
                a493 = a493 + ((-((cell_load_ro<float>(((float *)args.ptr[0]) + row * (64) + i_i)
                        / (cell_sqrt(cell_load_ro<float>(((float *)args.ptr[1]) + row * (1) + 0)) + 1e-06f))
                        * cell_load_ro<float>(((float *)args.ptr[2]) + row * (64) + i_i))));
                // part of e79.cell:30: kn[i] = k[i] / (sqrt(sum[j] k[j]^2) + 1e-6);
                a531 = a531 + ((-((cell_load_ro<float>(((float *)args.ptr[3]) + row * (64) + i_i)
                        / (cell_sqrt(cell_load_ro<float>(((float *)args.ptr[4]) + row * (1) + 0)) + 1e-06f))
                        * cell_load_ro<float>(((float *)args.ptr[5]) + row * (64) + i_i))));
            }
        }
        a493 = cell_warp_sum(a493);
        a531 = cell_warp_sum(a531);
        // part of e79.cell:31: mn[i] = m[i] / (sqrt(sum[j] m[j]^2) + 1e-6);
        const float v192_0 = cell_sqrt(cell_load_ro<float>(((float *)args.ptr[1]) + row * (1) + 0));
        const float a497 = ((v192_0 == 0.0f) ? 0.0f : ((a493 * 0.5f) / v192_0));
        if (64 % 4 == 0 && !(args.flags & CELL_KERNEL_ACCUMULATE)) {
            for (int64_t e = (lane) * 4; e < 64; e += (32) * 4) {
                float l0[4];
                cell_load_vec_ro<4>(l0, ((float *)args.ptr[6]) + row * (256) + (192 + e));
                float l1[4];
                cell_load_vec_ro<4>(l1, ((float *)args.ptr[0]) + row * (64) + e);
                const float h192 = cell_sqrt(cell_load_ro<float>(((float *)args.ptr[1]) + row * (1) + 0));
                const float h193 = (h192 + 1e-06f);
                float s501[4];
                CELL_UNROLL
                for (int u = 0; u < 4; u++) {
                    [[maybe_unused]] const int64_t i_i = e + u;
                    // d_m, e79.cell:16: m[i:N] = sum[d] W_kvqm[3*N + i, d] * x[d];
                    const float v498_1 = (a497 * l0[u]);
                    const float a501 = ((l1[u] / h193) + (v498_1 + v498_1));
                    s501[u] = a501;
                }
                cell_store_vec<4>(((float *)args.ptr[7]) + row * (64) + e, s501);
            }
        } else {
            for (int64_t e = lane; e < 64; e += 32) {
                [[maybe_unused]] const int64_t i_i = e;
                // d_m, e79.cell:16: m[i:N] = sum[d] W_kvqm[3*N + i, d] * x[d];
                const float v498_2 = (a497 * cell_load_ro<float>(((float *)args.ptr[6]) + row * (256)
                        + (192 + i_i)));
                const float a501 = ((cell_load_ro<float>(((float *)args.ptr[0]) + row * (64) + i_i)
                        / (cell_sqrt(cell_load_ro<float>(((float *)args.ptr[1]) + row * (1) + 0)) + 1e-06f))
                        + (v498_2 + v498_2));
                cell_store(((float *)args.ptr[7]) + row * (64) + i_i, a501);
            }
        }
        // part of e79.cell:30: kn[i] = k[i] / (sqrt(sum[j] k[j]^2) + 1e-6);
        const float v164_3 = cell_sqrt(cell_load_ro<float>(((float *)args.ptr[4]) + row * (1) + 0));
        const float a535 = ((v164_3 == 0.0f) ? 0.0f : ((a531 * 0.5f) / v164_3));
        if (64 % 4 == 0 && !(args.flags & CELL_KERNEL_ACCUMULATE)) {
            for (int64_t e = (lane) * 4; e < 64; e += (32) * 4) {
                float l0[4];
                cell_load_vec_ro<4>(l0, ((float *)args.ptr[6]) + row * (256) + e);
                float l1[4];
                cell_load_vec_ro<4>(l1, ((float *)args.ptr[3]) + row * (64) + e);
                const float h164 = cell_sqrt(cell_load_ro<float>(((float *)args.ptr[4]) + row * (1) + 0));
                const float h165 = (h164 + 1e-06f);
                float s539[4];
                CELL_UNROLL
                for (int u = 0; u < 4; u++) {
                    [[maybe_unused]] const int64_t i_i = e + u;
                    // d_k, e79.cell:13: k[i:N] = sum[d] W_kvqm[i,d] * x[d];
                    const float v536_4 = (a535 * l0[u]);
                    const float a539 = ((l1[u] / h165) + (v536_4 + v536_4));
                    s539[u] = a539;
                }
                cell_store_vec<4>(((float *)args.ptr[8]) + row * (64) + e, s539);
            }
        } else {
            for (int64_t e = lane; e < 64; e += 32) {
                [[maybe_unused]] const int64_t i_i = e;
                // d_k, e79.cell:13: k[i:N] = sum[d] W_kvqm[i,d] * x[d];
                const float v536_5 = (a535 * cell_load_ro<float>(((float *)args.ptr[6]) + row * (256) + i_i));
                const float a539 = ((cell_load_ro<float>(((float *)args.ptr[3]) + row * (64) + i_i)
                        / (cell_sqrt(cell_load_ro<float>(((float *)args.ptr[4]) + row * (1) + 0)) + 1e-06f))
                        + (v536_5 + v536_5));
                cell_store(((float *)args.ptr[8]) + row * (64) + i_i, a539);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
e79_bwd_after_3(const __grid_constant__ cell_kernel_args args)
{
    [[maybe_unused]] const int64_t dim_B = args.size[0], dim_T = args.size[1];
    [[maybe_unused]] const int64_t dim_D = args.size[2];
    [[maybe_unused]] const int64_t t0 = args.size[3];
    const int64_t rows = dim_B * dim_T, elements = 256;
    for (int64_t row = cell_block_index(1); row < rows; row += cell_block_count(1)) {
        [[maybe_unused]] const int64_t b = row / dim_T, t = row % dim_T;
        if (elements % 4 == 0 && !(args.flags & CELL_KERNEL_ACCUMULATE)) {
            for (int64_t e = (cell_block_index(0) * 256 + cell_thread()) * 4; e < elements;
                    e += (cell_block_count(0) * 256) * 4) {
                float l0[4];
                cell_load_vec_ro<4>(l0, ((float *)args.ptr[0]) + row * (64) + (-128 + e));
                float l1[4];
                cell_load_vec_ro<4>(l1, ((float *)args.ptr[1]) + row * (64) + (-192 + e));
                float l2[4];
                cell_load_vec_ro<4>(l2, ((float *)args.ptr[2]) + row * (64) + (-64 + e));
                float l3[4];
                cell_load_vec_ro<4>(l3, ((float *)args.ptr[3]) + row * (64) + e);
                float s1310[4];
                CELL_UNROLL
                for (int u = 0; u < 4; u++) {
                    [[maybe_unused]] const int64_t i_r = e + u;
                    // d_W_kvqm_x, e79.cell:13: k[i:N] = sum[d] W_kvqm[i,d] * x[d];
                    const float a1310 = (((((((int64_t)0 <= (-128 + i_r)) && ((-128 + i_r) < (int64_t)64))
                            ? ((((int64_t)0 <= (-128 + i_r)) && ((-128 + i_r) < (int64_t)64))
                            ? ((((int64_t)0 <= (-128 + i_r)) && ((-128 + i_r) < (int64_t)64)) ? l0[u] : 0.0f)
                            : 0.0f) : 0.0f) + (((int64_t)0 <= (-192 + i_r))
                            ? (((int64_t)0 <= (-192 + i_r)) ? (((int64_t)0 <= (-192 + i_r)) ? l1[u] : 0.0f)
                            : 0.0f) : 0.0f)) + ((((int64_t)0 <= (-64 + i_r)) && ((-64 + i_r) < (int64_t)64))
                            ? ((((int64_t)0 <= (-64 + i_r)) && ((-64 + i_r) < (int64_t)64))
                            ? ((((int64_t)0 <= (-64 + i_r)) && ((-64 + i_r) < (int64_t)64)) ? l2[u] : 0.0f)
                            : 0.0f) : 0.0f)) + ((i_r < (int64_t)64) ? ((i_r < (int64_t)64)
                            ? ((i_r < (int64_t)64) ? l3[u] : 0.0f) : 0.0f) : 0.0f));
                    s1310[u] = a1310;
                }
                cell_store_vec<4>(((float *)args.ptr[4]) + row * (256) + e, s1310);
            }
        } else {
            for (int64_t e = cell_block_index(0) * 256 + cell_thread(); e < elements;
                    e += cell_block_count(0) * 256) {
                [[maybe_unused]] const int64_t i_r = e;
                // d_W_kvqm_x, e79.cell:13: k[i:N] = sum[d] W_kvqm[i,d] * x[d];
                const float a1310 = (((((((int64_t)0 <= (-128 + i_r)) && ((-128 + i_r) < (int64_t)64))
                        ? ((((int64_t)0 <= (-128 + i_r)) && ((-128 + i_r) < (int64_t)64))
                        ? ((((int64_t)0 <= (-128 + i_r)) && ((-128 + i_r) < (int64_t)64))
                        ? cell_load_ro<float>(((float *)args.ptr[0]) + row * (64) + (-128 + i_r)) : 0.0f)
                        : 0.0f) : 0.0f) + (((int64_t)0 <= (-192 + i_r))
                        ? (((int64_t)0 <= (-192 + i_r)) ? (((int64_t)0 <= (-192 + i_r))
                        ? cell_load_ro<float>(((float *)args.ptr[1]) + row * (64) + (-192 + i_r)) : 0.0f)
                        : 0.0f) : 0.0f)) + ((((int64_t)0 <= (-64 + i_r)) && ((-64 + i_r) < (int64_t)64))
                        ? ((((int64_t)0 <= (-64 + i_r)) && ((-64 + i_r) < (int64_t)64))
                        ? ((((int64_t)0 <= (-64 + i_r)) && ((-64 + i_r) < (int64_t)64))
                        ? cell_load_ro<float>(((float *)args.ptr[2]) + row * (64) + (-64 + i_r)) : 0.0f)
                        : 0.0f) : 0.0f)) + ((i_r < (int64_t)64) ? ((i_r < (int64_t)64)
                        ? ((i_r < (int64_t)64) ? cell_load_ro<float>(((float *)args.ptr[3]) + row * (64)
                        + i_r) : 0.0f) : 0.0f) : 0.0f));
                cell_store(((float *)args.ptr[4]) + row * (256) + i_r, a1310);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 1)
e79_bwd_walk(const __grid_constant__ cell_kernel_args args)
{
    const int64_t B = args.size[0], T = args.size[1];
    const int64_t dim_D = args.size[2];
    const int64_t time0 = args.size[3];
    const int lane = cell_lane(), warp = cell_warp();
    const int lane_row = lane / 4, lane_col = lane % 4;
    const int warp_row = warp / 4, warp_col = warp % 4;
    // Of 64 x 64: 4 x 4 elements a thread, 8 x 4 lanes, 2 x 4 warps.
    const int row0 = (warp_row * 8 + lane_row) * 4, col0 = (warp_col * 4 + lane_col) * 4;
    const int last_row = 63, last_col = 63;
    // Which gradients are asked for: what only others need is left out.
    const bool want_d_q = args.ptr[0] != nullptr;
    const bool want_d_bm = args.ptr[1] != nullptr;
    const bool want_d_bs = args.ptr[2] != nullptr;
    const bool want_d_ds = args.ptr[4] != nullptr;
    unsigned char *cursor = cell_shared();
    cell_smem<float> sr_s = cell_carve<float>(cursor, 512);
    cell_smem<float> sc_s = cell_carve<float>(cursor, 512);
    cell_smem<float> ds_s = cell_carve<float>(cursor, 512);
    cell_smem<float> kn_s = cell_carve<float>(cursor, 512);
    cell_smem<float> mr_s = cell_carve<float>(cursor, 512);
    cell_smem<float> mc_s = cell_carve<float>(cursor, 512);
    cell_smem<float> dm_s = cell_carve<float>(cursor, 512);
    cell_smem<float> mn_s = cell_carve<float>(cursor, 512);
    cell_smem<float> d_r_s = cell_carve<float>(cursor, 512);
    cell_smem<float> W_kvqm_x_s = cell_carve<float>(cursor, 2048);
    cell_smem<float> S_kept = cell_carve<float>(cursor, 16384);
    cell_smem<float> S_start = cell_carve<float>(cursor, 4096);
    cell_smem<float> M_kept = cell_carve<float>(cursor, 16384);
    cell_smem<float> M_start = cell_carve<float>(cursor, 4096);
    cell_smem<float> ex = cell_carve<float>(cursor, 5376);
    for (int64_t item = cell_block_index(0); item < B * (1); item += cell_block_count(0)) {
        const int64_t b = item;
        const int64_t chunks = (T + 3) / 4;
        const float *sr_s_g = (const float *)args.ptr[8] + (b * T * (64) + 0);
        const float *sc_s_g = (const float *)args.ptr[9] + (b * T * (64) + 0);
        const float *ds_s_g = (const float *)args.ptr[10] + (b * T * (64) + 0);
        const float *kn_s_g = (const float *)args.ptr[11] + (b * T * (64) + 0);
        const float *mr_s_g = (const float *)args.ptr[12] + (b * T * (64) + 0);
        const float *mc_s_g = (const float *)args.ptr[13] + (b * T * (64) + 0);
        const float *dm_s_g = (const float *)args.ptr[14] + (b * T * (64) + 0);
        const float *mn_s_g = (const float *)args.ptr[15] + (b * T * (64) + 0);
        const float *d_r_s_g = (const float *)args.ptr[16] + (b * T * (64) + 0);
        const float *W_kvqm_x_s_g = (const float *)args.ptr[17] + (b * T * (256) + 0);
        // The vectors of steps [4 chunk, 4 chunk + 4) on their way into half a buffer.
        auto fetch = [&](int64_t chunk) {
            const int64_t t0 = chunk * 4;
            const int steps = T - t0 < 4 ? (int)(T - t0) : 4, half = (int)(chunk & 1) * 4;
            CELL_UNROLL
            for (int r = 0; r < 4; r++) {
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    cell_cp_async<4>(S_start + ((r * 4 + c) * 256 + cell_thread()),
                            ((float *)args.ptr[20]) + ((b * chunks + chunk) * (4096)
                            + (64 * (row0 + r) + (col0 + c))));
                }
            }
            CELL_UNROLL
            for (int r = 0; r < 4; r++) {
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    cell_cp_async<4>(M_start + ((r * 4 + c) * 256 + cell_thread()),
                            ((float *)args.ptr[21]) + ((b * chunks + chunk) * (4096)
                            + (64 * (row0 + r) + (col0 + c))));
                }
            }
            if (warp == 0)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(sr_s + ((half + s) * 64 + x), sr_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 1)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(sc_s + ((half + s) * 64 + x), sc_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 2)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(ds_s + ((half + s) * 64 + x), ds_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 3)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(kn_s + ((half + s) * 64 + x), kn_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 4)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(mr_s + ((half + s) * 64 + x), mr_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 5)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(mc_s + ((half + s) * 64 + x), mc_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 6)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(dm_s + ((half + s) * 64 + x), dm_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 7)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(mn_s + ((half + s) * 64 + x), mn_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 0)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(d_r_s + ((half + s) * 64 + x), d_r_s_g + (t0 + s) * (64) + x);
                }
            for (int p = cell_thread(); p < steps * 64; p += 256) {
                const int s = p / 64, x = p % 64 * 4;
                cell_cp_async<16>(W_kvqm_x_s + ((half + s) * 256 + x), W_kvqm_x_s_g + (t0 + s) * (256) + x);
            }
            cell_cp_async_commit();
        };
        float d_S[4][4];
        CELL_UNROLL
        for (int r = 0; r < 4; r++) {
            CELL_UNROLL
            for (int c = 0; c < 4; c++) {
                d_S[r][c] = ((float *)args.ptr[6]) ? ((float *)args.ptr[6])[b * (4096)
                        + (64 * (row0 + r) + (col0 + c))] : 0;
            }
        }
        float d_M[4][4];
        CELL_UNROLL
        for (int r = 0; r < 4; r++) {
            CELL_UNROLL
            for (int c = 0; c < 4; c++) {
                d_M[r][c] = ((float *)args.ptr[7]) ? ((float *)args.ptr[7])[b * (4096)
                        + (64 * (row0 + r) + (col0 + c))] : 0;
            }
        }
        if (chunks > 0)
            fetch(chunks - 1);
        for (int64_t chunk = chunks - 1; chunk >= 0; chunk--) {
            const int64_t t0 = chunk * 4;
            const int steps = T - t0 < 4 ? (int)(T - t0) : 4, half = (int)(chunk & 1) * 4;
            cell_cp_async_wait<0>();
            float S[4][4];
            CELL_UNROLL
            for (int r = 0; r < 4; r++) {
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    S[r][c] = S_start[(r * 4 + c) * 256 + cell_thread()];
                }
            }
            float M[4][4];
            CELL_UNROLL
            for (int r = 0; r < 4; r++) {
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    M[r][c] = M_start[(r * 4 + c) * 256 + cell_thread()];
                }
            }
            cell_barrier();
            if (chunk > 0)
                fetch(chunk - 1);
            for (int s = 0; s < steps; s++) {
                const int64_t t = t0 + s;
                const int flip = (int)(t & 1) * 2688;
                const int slot = half + s;
                (void)flip, (void)slot;
                (void)t;
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        S_kept[(s * 16 + r * 4 + c) * 256 + cell_thread()] = S[r][c];
                    }
                }
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        M_kept[(s * 16 + r * 4 + c) * 256 + cell_thread()] = M[r][c];
                    }
                }
                float S_next[4][4];
                float M_next[4][4];
                float sr_r[4];
                cell_load_vec<4>(sr_r, sr_s + (slot * 64 + 0 + row0));
                float sc_c[4];
                cell_load_vec<4>(sc_c, sc_s + (slot * 64 + 0 + col0));
                float ds_r[4];
                cell_load_vec<4>(ds_r, ds_s + (slot * 64 + 0 + row0));
                float kn_c[4];
                cell_load_vec<4>(kn_c, kn_s + (slot * 64 + 0 + col0));
                float mr_r[4];
                cell_load_vec<4>(mr_r, mr_s + (slot * 64 + 0 + row0));
                float mc_c[4];
                cell_load_vec<4>(mc_c, mc_s + (slot * 64 + 0 + col0));
                float dm_r[4];
                cell_load_vec<4>(dm_r, dm_s + (slot * 64 + 0 + row0));
                float mn_c[4];
                cell_load_vec<4>(mn_c, mn_s + (slot * 64 + 0 + col0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        // S'[i,j] = sr[i] * S[i,j] * sc[j] + ds[i] * kn[j]
                        S_next[r][c] = (((sr_r[r] * S[r][c]) * sc_c[c]) + (ds_r[r] * kn_c[c]));
                        // M'[i,j] = mr[i] * M[i,j] * mc[j] + dm[i] * mn[j]
                        M_next[r][c] = (((mr_r[r] * M[r][c]) * mc_c[c]) + (dm_r[r] * mn_c[c]));
                    }
                }
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        S[r][c] = S_next[r][c];
                    }
                }
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        M[r][c] = M_next[r][c];
                    }
                }
            }
            float S_after[4][4];
            CELL_UNROLL
            for (int r = 0; r < 4; r++) {
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    S_after[r][c] = S[r][c];
                }
            }
            float M_after[4][4];
            CELL_UNROLL
            for (int r = 0; r < 4; r++) {
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    M_after[r][c] = M[r][c];
                }
            }
            // What other warps finish for the caller only is written one step late.
            auto late = [&](int s) {
                const int64_t t = t0 + s;
                const int flip = (int)(t & 1) * 2688;
                const int slot = half + s;
                (void)flip, (void)slot;
                    if (want_d_q) {
                        if ((cell_thread() + 64) % 256 < 64) {
                            const int x = (cell_thread() + 64) % 256;
                            cell_store((float *)args.ptr[0] + ((b * T + t) * (64) + x),
                                    ((float)ex[flip + 1280 + x] + (float)ex[flip + 1344 + x]));
                        }
                        if (cell_thread() < 64) {
                            const int x = cell_thread();
                            const float d_mn = (((float)ex[flip + 1408 + x] + (float)ex[flip + 1472 + x]
                                    + (float)ex[flip + 1536 + x] + (float)ex[flip + 1600 + x])
                                    + ((((float)ex[flip + 1664 + x] + (float)ex[flip + 1728 + x])
                                    + ((float)ex[flip + 1792 + x] + (float)ex[flip + 1856 + x]))
                                    + ((float)ex[flip + 1920 + x] + (float)ex[flip + 1984 + x])));
                            cell_store((float *)args.ptr[3] + ((b * T + t) * (64) + x), d_mn);
                        }
                        if ((cell_thread() + 192) % 256 < 64) {
                            const int x = (cell_thread() + 192) % 256;
                            const float d_kn = (((float)ex[flip + 2048 + x] + (float)ex[flip + 2112 + x]
                                    + (float)ex[flip + 2176 + x] + (float)ex[flip + 2240 + x])
                                    + ((((float)ex[flip + 2304 + x] + (float)ex[flip + 2368 + x])
                                    + ((float)ex[flip + 2432 + x] + (float)ex[flip + 2496 + x]))
                                    + ((float)ex[flip + 2560 + x] + (float)ex[flip + 2624 + x])));
                            cell_store((float *)args.ptr[5] + ((b * T + t) * (64) + x), d_kn);
                        }
                    }
            };
            for (int s = steps - 1; s >= 0; s--) {
                const int64_t t = t0 + s;
                const int flip = (int)(t & 1) * 2688;
                const int slot = half + s;
                (void)flip, (void)slot;
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        S[r][c] = S_kept[(s * 16 + r * 4 + c) * 256 + cell_thread()];
                    }
                }
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        M[r][c] = M_kept[(s * 16 + r * 4 + c) * 256 + cell_thread()];
                    }
                }
                float d_S_prev[4][4];
                float d_M_prev[4][4];
                float mn_c_2[4];
                cell_load_vec<4>(mn_c_2, mn_s + (slot * 64 + 0 + col0));
                float mr_r_2[4];
                cell_load_vec<4>(mr_r_2, mr_s + (slot * 64 + 0 + row0));
                float mc_c_2[4];
                cell_load_vec<4>(mc_c_2, mc_s + (slot * 64 + 0 + col0));
                float own_sum_d_dm[4] = { 0, 0, 0, 0 };
                float own_sum_d_mc[4] = { 0, 0, 0, 0 };
                float own_sum_d_mr[4] = { 0, 0, 0, 0 };
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        own_sum_d_dm[r] += (d_M[r][c] * mn_c_2[c]);
                        own_sum_d_mc[c] += ((d_M[r][c] * mr_r_2[r]) * M[r][c]);
                        own_sum_d_mr[r] += ((d_M[r][c] * mc_c_2[c]) * M[r][c]);
                    }
                }
                cell_reduce_scatter_op<cell_op_sum, 1, 4>(own_sum_d_dm);
                CELL_UNROLL
                for (int i = 0; i < 1; i++)
                    ex[flip + 0 + warp_col * 64 + row0 + cell_scatter_first<1, 4, 4>() + i] = own_sum_d_dm[i];
                cell_reduce_scatter_op<cell_op_sum, 4, 8>(own_sum_d_mc);
                if (lane / 4 % 2 == 0) {
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 256 + warp_row * 64 + col0 + cell_scatter_first<4, 8, 4>() + i]
                                = own_sum_d_mc[i];
                }
                cell_reduce_scatter_op<cell_op_sum, 1, 4>(own_sum_d_mr);
                CELL_UNROLL
                for (int i = 0; i < 1; i++)
                    ex[flip + 384 + warp_col * 64 + row0 + cell_scatter_first<1, 4, 4>() + i]
                            = own_sum_d_mr[i];
                cell_barrier();
                float d_r_r[4];
                cell_load_vec<4>(d_r_r, d_r_s + (slot * 64 + 0 + row0));
                float W_kvqm_x_c[4];
                cell_load_vec<4>(W_kvqm_x_c, W_kvqm_x_s + (slot * 256 + 128 + col0));
                float sum_d_mc[4];
                cell_load_vec<4>(sum_d_mc, ex + (flip + 256 + col0));
                float part[4];
                cell_load_vec<4>(part, ex + (flip + 320 + col0));
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    sum_d_mc[c] = sum_d_mc[c] + part[c];
                }
                float value_c[4];  // adjoint of mc[j]   = sigmoid(sum[i] S'[i,j] * mn[i] + bm[j])
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    value_c[c] = (sum_d_mc[c] * (mc_c_2[c] * (1.0f - mc_c_2[c])));
                }
                float mn_r[4];
                cell_load_vec<4>(mn_r, mn_s + (slot * 64 + 0 + row0));
                float sum_d_mr[4];
                cell_load_vec<4>(sum_d_mr, ex + (flip + 384 + row0));
                float part_2[4];
                cell_load_vec<4>(part_2, ex + (flip + 448 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_d_mr[r] = sum_d_mr[r] + part_2[r];
                }
                float part_3[4];
                cell_load_vec<4>(part_3, ex + (flip + 512 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_d_mr[r] = sum_d_mr[r] + part_3[r];
                }
                float part_4[4];
                cell_load_vec<4>(part_4, ex + (flip + 576 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_d_mr[r] = sum_d_mr[r] + part_4[r];
                }
                float value_r[4];  // adjoint of mr[i]   = sigmoid(sum[j] S'[i,j] * mn[j] + bm[i])
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    value_r[r] = (sum_d_mr[r] * (mr_r_2[r] * (1.0f - mr_r_2[r])));
                }
                float kn_c_2[4];
                cell_load_vec<4>(kn_c_2, kn_s + (slot * 64 + 0 + col0));
                float sr_r_2[4];
                cell_load_vec<4>(sr_r_2, sr_s + (slot * 64 + 0 + row0));
                float sc_c_2[4];
                cell_load_vec<4>(sc_c_2, sc_s + (slot * 64 + 0 + col0));
                float own_sum_d_ds[4] = { 0, 0, 0, 0 };
                float own_sum_d_sc[4] = { 0, 0, 0, 0 };
                float own_sum_d_sr[4] = { 0, 0, 0, 0 };
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        const float d_S_next = (((d_S[r][c] + (d_r_r[r] * W_kvqm_x_c[c]))
                                + (value_c[c] * mn_r[r])) + (value_r[r] * mn_c_2[c]));
                        own_sum_d_ds[r] += (d_S_next * kn_c_2[c]);
                        own_sum_d_sc[c] += ((d_S_next * sr_r_2[r]) * S[r][c]);
                        own_sum_d_sr[r] += ((d_S_next * sc_c_2[c]) * S[r][c]);
                    }
                }
                cell_reduce_scatter_op<cell_op_sum, 1, 4>(own_sum_d_ds);
                CELL_UNROLL
                for (int i = 0; i < 1; i++)
                    ex[flip + 640 + warp_col * 64 + row0 + cell_scatter_first<1, 4, 4>() + i]
                            = own_sum_d_ds[i];
                cell_reduce_scatter_op<cell_op_sum, 4, 8>(own_sum_d_sc);
                if (lane / 4 % 2 == 0) {
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 896 + warp_row * 64 + col0 + cell_scatter_first<4, 8, 4>() + i]
                                = own_sum_d_sc[i];
                }
                cell_reduce_scatter_op<cell_op_sum, 1, 4>(own_sum_d_sr);
                CELL_UNROLL
                for (int i = 0; i < 1; i++)
                    ex[flip + 1024 + warp_col * 64 + row0 + cell_scatter_first<1, 4, 4>() + i]
                            = own_sum_d_sr[i];
                cell_barrier();
                float sum_d_dm[4];
                cell_load_vec<4>(sum_d_dm, ex + (flip + 0 + row0));
                float part_5[4];
                cell_load_vec<4>(part_5, ex + (flip + 64 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_d_dm[r] = sum_d_dm[r] + part_5[r];
                }
                float part_6[4];
                cell_load_vec<4>(part_6, ex + (flip + 128 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_d_dm[r] = sum_d_dm[r] + part_6[r];
                }
                float part_7[4];
                cell_load_vec<4>(part_7, ex + (flip + 192 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_d_dm[r] = sum_d_dm[r] + part_7[r];
                }
                float sum_d_ds[4];
                cell_load_vec<4>(sum_d_ds, ex + (flip + 640 + row0));
                float part_8[4];
                cell_load_vec<4>(part_8, ex + (flip + 704 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_d_ds[r] = sum_d_ds[r] + part_8[r];
                }
                float part_9[4];
                cell_load_vec<4>(part_9, ex + (flip + 768 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_d_ds[r] = sum_d_ds[r] + part_9[r];
                }
                float part_10[4];
                cell_load_vec<4>(part_10, ex + (flip + 832 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_d_ds[r] = sum_d_ds[r] + part_10[r];
                }
                float d_ds_r[4];  // adjoint of ds[i]   = v[i] - sum[j] S[i,j] * kn[j]
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    d_ds_r[r] = (sum_d_dm[r] + sum_d_ds[r]);
                }
                float value_r_2[4];  // adjoint of ds[i]   = v[i] - sum[j] S[i,j] * kn[j]
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    value_r_2[r] = (-d_ds_r[r]);
                }
                float value_r_3[4];  // adjoint of dm[i]   = ds[i] - sum[j] M[i,j] * mn[j]
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    value_r_3[r] = (-sum_d_dm[r]);
                }
                float sum_d_sc[4];
                cell_load_vec<4>(sum_d_sc, ex + (flip + 896 + col0));
                float part_11[4];
                cell_load_vec<4>(part_11, ex + (flip + 960 + col0));
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    sum_d_sc[c] = sum_d_sc[c] + part_11[c];
                }
                float value_c_2[4];  // adjoint of sc[j]   = sigmoid(sum[i] M[i,j] * kn[i] + bs[j])
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    value_c_2[c] = (sum_d_sc[c] * (sc_c_2[c] * (1.0f - sc_c_2[c])));
                }
                float kn_r[4];
                cell_load_vec<4>(kn_r, kn_s + (slot * 64 + 0 + row0));
                float sum_d_sr[4];
                cell_load_vec<4>(sum_d_sr, ex + (flip + 1024 + row0));
                float part_12[4];
                cell_load_vec<4>(part_12, ex + (flip + 1088 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_d_sr[r] = sum_d_sr[r] + part_12[r];
                }
                float part_13[4];
                cell_load_vec<4>(part_13, ex + (flip + 1152 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_d_sr[r] = sum_d_sr[r] + part_13[r];
                }
                float part_14[4];
                cell_load_vec<4>(part_14, ex + (flip + 1216 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_d_sr[r] = sum_d_sr[r] + part_14[r];
                }
                float value_r_4[4];  // adjoint of sr[i]   = sigmoid(sum[j] M[i,j] * kn[j] + bs[i])
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    value_r_4[r] = (sum_d_sr[r] * (sr_r_2[r] * (1.0f - sr_r_2[r])));
                }
                float own_sum_d_q[4] = { 0, 0, 0, 0 };
                float own_sum_d_mn[4] = { 0, 0, 0, 0 };
                float own_sum_d_mn_2[4] = { 0, 0, 0, 0 };
                float own_sum_d_mn_3[4] = { 0, 0, 0, 0 };
                float own_sum_d_mn_4[4] = { 0, 0, 0, 0 };
                float own_sum_d_kn[4] = { 0, 0, 0, 0 };
                float own_sum_d_kn_2[4] = { 0, 0, 0, 0 };
                float own_sum_d_kn_3[4] = { 0, 0, 0, 0 };
                float own_sum_d_kn_4[4] = { 0, 0, 0, 0 };
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        const float d_S_next_2 = (((d_S[r][c] + (d_r_r[r] * W_kvqm_x_c[c]))
                                + (value_c[c] * mn_r[r])) + (value_r[r] * mn_c_2[c]));
                        // adjoint of S
                        d_S_prev[r][c] = ((value_r_2[r] * kn_c_2[c])
                                + ((d_S_next_2 * sc_c_2[c]) * sr_r_2[r]));
                        // adjoint of M
                        d_M_prev[r][c] = ((((value_r_3[r] * mn_c_2[c])
                                + ((d_M[r][c] * mc_c_2[c]) * mr_r_2[r])) + (value_c_2[c] * kn_r[r]))
                                + (value_r_4[r] * kn_c_2[c]));
                    }
                }
                if (want_d_q) {
                    float dm_r_2[4];
                    cell_load_vec<4>(dm_r_2, dm_s + (slot * 64 + 0 + row0));
                    float ds_r_2[4];
                    cell_load_vec<4>(ds_r_2, ds_s + (slot * 64 + 0 + row0));
                    CELL_UNROLL
                    for (int r = 0; r < 4; r++) {
                        CELL_UNROLL
                        for (int c = 0; c < 4; c++) {
                            own_sum_d_q[c] += (d_r_r[r] * S_after[r][c]);
                            own_sum_d_mn[r] += (value_c[c] * S_after[r][c]);
                            own_sum_d_mn_2[c] += (d_M[r][c] * dm_r_2[r]);
                            own_sum_d_mn_3[c] += (value_r_3[r] * M[r][c]);
                            own_sum_d_mn_4[c] += (value_r[r] * S_after[r][c]);
                            own_sum_d_kn[r] += (value_c_2[c] * M[r][c]);
                            const float d_S_next_3 = (((d_S[r][c] + (d_r_r[r] * W_kvqm_x_c[c]))
                                    + (value_c[c] * mn_r[r])) + (value_r[r] * mn_c_2[c]));
                            own_sum_d_kn_2[c] += (d_S_next_3 * ds_r_2[r]);
                            own_sum_d_kn_3[c] += (value_r_2[r] * S[r][c]);
                            own_sum_d_kn_4[c] += (value_r_4[r] * M[r][c]);
                        }
                    }
                    cell_reduce_scatter_op<cell_op_sum, 4, 8>(own_sum_d_q);
                    if (lane / 4 % 2 == 0) {
                        CELL_UNROLL
                        for (int i = 0; i < 1; i++)
                            ex[flip + 1280 + warp_row * 64 + col0 + cell_scatter_first<4, 8, 4>() + i]
                                    = own_sum_d_q[i];
                    }
                    cell_reduce_scatter_op<cell_op_sum, 1, 4>(own_sum_d_mn);
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 1408 + warp_col * 64 + row0 + cell_scatter_first<1, 4, 4>() + i]
                                = own_sum_d_mn[i];
                    cell_reduce_scatter_op<cell_op_sum, 4, 8>(own_sum_d_mn_2);
                    if (lane / 4 % 2 == 0) {
                        CELL_UNROLL
                        for (int i = 0; i < 1; i++)
                            ex[flip + 1664 + warp_row * 64 + col0 + cell_scatter_first<4, 8, 4>() + i]
                                    = own_sum_d_mn_2[i];
                    }
                    cell_reduce_scatter_op<cell_op_sum, 4, 8>(own_sum_d_mn_3);
                    if (lane / 4 % 2 == 0) {
                        CELL_UNROLL
                        for (int i = 0; i < 1; i++)
                            ex[flip + 1792 + warp_row * 64 + col0 + cell_scatter_first<4, 8, 4>() + i]
                                    = own_sum_d_mn_3[i];
                    }
                    cell_reduce_scatter_op<cell_op_sum, 4, 8>(own_sum_d_mn_4);
                    if (lane / 4 % 2 == 0) {
                        CELL_UNROLL
                        for (int i = 0; i < 1; i++)
                            ex[flip + 1920 + warp_row * 64 + col0 + cell_scatter_first<4, 8, 4>() + i]
                                    = own_sum_d_mn_4[i];
                    }
                    cell_reduce_scatter_op<cell_op_sum, 1, 4>(own_sum_d_kn);
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 2048 + warp_col * 64 + row0 + cell_scatter_first<1, 4, 4>() + i]
                                = own_sum_d_kn[i];
                    cell_reduce_scatter_op<cell_op_sum, 4, 8>(own_sum_d_kn_2);
                    if (lane / 4 % 2 == 0) {
                        CELL_UNROLL
                        for (int i = 0; i < 1; i++)
                            ex[flip + 2304 + warp_row * 64 + col0 + cell_scatter_first<4, 8, 4>() + i]
                                    = own_sum_d_kn_2[i];
                    }
                    cell_reduce_scatter_op<cell_op_sum, 4, 8>(own_sum_d_kn_3);
                    if (lane / 4 % 2 == 0) {
                        CELL_UNROLL
                        for (int i = 0; i < 1; i++)
                            ex[flip + 2432 + warp_row * 64 + col0 + cell_scatter_first<4, 8, 4>() + i]
                                    = own_sum_d_kn_3[i];
                    }
                    cell_reduce_scatter_op<cell_op_sum, 4, 8>(own_sum_d_kn_4);
                    if (lane / 4 % 2 == 0) {
                        CELL_UNROLL
                        for (int i = 0; i < 1; i++)
                            ex[flip + 2560 + warp_row * 64 + col0 + cell_scatter_first<4, 8, 4>() + i]
                                    = own_sum_d_kn_4[i];
                    }
                }
                if (want_d_bm) {
                    if (cell_thread() < 64) {
                        const int x = cell_thread();
                        const float mr = cell_load<float>(mr_s + (slot * 64 + x));
                        const float mc = cell_load<float>(mc_s + (slot * 64 + x));
                        const float d_bm = ((((float)ex[flip + 384 + x] + (float)ex[flip + 448 + x]
                                + (float)ex[flip + 512 + x] + (float)ex[flip + 576 + x])
                                * (mr * (1.0f - mr))) + (((float)ex[flip + 256 + x]
                                + (float)ex[flip + 320 + x]) * (mc * (1.0f - mc))));
                        cell_store((float *)args.ptr[1] + ((b * T + t) * (64) + x), d_bm);
                    }
                }
                if (want_d_bs) {
                    if ((cell_thread() + 192) % 256 < 64) {
                        const int x = (cell_thread() + 192) % 256;
                        const float sr = cell_load<float>(sr_s + (slot * 64 + x));
                        const float sc = cell_load<float>(sc_s + (slot * 64 + x));
                        const float d_bs = ((((float)ex[flip + 1024 + x] + (float)ex[flip + 1088 + x]
                                + (float)ex[flip + 1152 + x] + (float)ex[flip + 1216 + x])
                                * (sr * (1.0f - sr))) + (((float)ex[flip + 896 + x]
                                + (float)ex[flip + 960 + x]) * (sc * (1.0f - sc))));
                        cell_store((float *)args.ptr[2] + ((b * T + t) * (64) + x), d_bs);
                    }
                }
                if (want_d_ds) {
                    if ((cell_thread() + 128) % 256 < 64) {
                        const int x = (cell_thread() + 128) % 256;
                        const float d_ds = (((float)ex[flip + 0 + x] + (float)ex[flip + 64 + x]
                                + (float)ex[flip + 128 + x] + (float)ex[flip + 192 + x])
                                + ((float)ex[flip + 640 + x] + (float)ex[flip + 704 + x]
                                + (float)ex[flip + 768 + x] + (float)ex[flip + 832 + x]));
                        cell_store((float *)args.ptr[4] + ((b * T + t) * (64) + x), d_ds);
                    }
                }
                if (s + 1 < steps) late(s + 1);
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        d_S[r][c] = d_S_prev[r][c];
                    }
                }
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        S_after[r][c] = S[r][c];
                    }
                }
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        d_M[r][c] = d_M_prev[r][c];
                    }
                }
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        M_after[r][c] = M[r][c];
                    }
                }
            }
            cell_barrier();
            late(0);
        }
        if (((float *)args.ptr[18])) {
            CELL_UNROLL
            for (int r = 0; r < 4; r++) {
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    ((float *)args.ptr[18])[b * (4096) + (64 * (row0 + r) + (col0 + c))] = args.flags
                            & CELL_KERNEL_ACCUMULATE ? ((float *)args.ptr[18])[b * (4096)
                            + (64 * (row0 + r) + (col0 + c))] + d_S[r][c] : d_S[r][c];
                }
            }
        }
        if (((float *)args.ptr[19])) {
            CELL_UNROLL
            for (int r = 0; r < 4; r++) {
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    ((float *)args.ptr[19])[b * (4096) + (64 * (row0 + r) + (col0 + c))] = args.flags
                            & CELL_KERNEL_ACCUMULATE ? ((float *)args.ptr[19])[b * (4096)
                            + (64 * (row0 + r) + (col0 + c))] + d_M[r][c] : d_M[r][c];
                }
            }
        }
        cell_barrier();
    }
}

