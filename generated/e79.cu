// e79: CUDA kernels, written by cellc
#include "cell_device.cuh"

extern "C" __global__ void __launch_bounds__(256)
e79_fwd_before_1(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const float *const p_W_kvqm_x = static_cast<const float *>(args.ptr[0]);
    float *const p_v163 = static_cast<float *>(args.ptr[1]);
    float *const p_v191 = static_cast<float *>(args.ptr[2]);
    float *const p_kn = static_cast<float *>(args.ptr[3]);
    float *const p_mn = static_cast<float *>(args.ptr[4]);
    const int64_t rows = dim_B * dim_T;
    const cell_place<1> lane = cell_thread() % 16;
    const int64_t all_rows = rows;
    for (int64_t first = cell_block_index(0) * 16 + cell_warp() * 2; first < all_rows;
            first += cell_block_count(0) * 16) {
        const bool mine = first + cell_lane() / 16 < all_rows;
        const int64_t row = mine ? first + cell_lane() / 16 : all_rows - 1;
        const cell_place<1> length = mine ? 64 : 0;
        cell_row<float, 4, 1> row_W_kvqm_x;
        cell_row<float, 4, 1> row_W_kvqm_x2;
        CELL_UNROLL_BY(1)
        for (cell_place<1> s = 0; s < 1; s++) {
            const cell_place<1> e = (s * 16 + lane) * 4;
            if (e < length) {
                row_W_kvqm_x.load(s, p_W_kvqm_x + row * 256 + e);
                row_W_kvqm_x2.load(s, p_W_kvqm_x + row * 256 + 192 + e);
            }
        }
        float a_163 = 0;
        float a_191 = 0;
        CELL_UNROLL_BY(1)
        for (cell_place<1> s = 0; s < cell_slots<1>(length, 64); s++) {
            const cell_place<1> e = (s * 16 + lane) * 4;
            if (e < length) {
                float v_W_kvqm_x[4];
                row_W_kvqm_x.values(v_W_kvqm_x, s, p_W_kvqm_x + row * 256 + e);
                float v_W_kvqm_x2[4];
                row_W_kvqm_x2.values(v_W_kvqm_x2, s, p_W_kvqm_x + row * 256 + 192 + e);
                CELL_UNROLL
                for (int u = 0; u < 4; u++) {
                    // part of e79.cell:30: kn[i] = k[i] / (sqrt(sum[j] k[j]^2) + 1e-6);
                    a_163 += v_W_kvqm_x[u] * v_W_kvqm_x[u];
                    // part of e79.cell:31: mn[i] = m[i] / (sqrt(sum[j] m[j]^2) + 1e-6);
                    a_191 += v_W_kvqm_x2[u] * v_W_kvqm_x2[u];
                }
            }
        }
        a_163 = cell_group_sum<16>(a_163);
        a_191 = cell_group_sum<16>(a_191);
        if (lane == 0 && mine) {
            if (p_v163)
                cell_store(p_v163 + row, a_163);
        }
        if (lane == 0 && mine) {
            if (p_v191)
                cell_store(p_v191 + row, a_191);
        }
        const float h164 = cell_sqrt(a_163);
        const float h165 = h164 + 1e-06f;
        const float h192 = cell_sqrt(a_191);
        const float h193 = h192 + 1e-06f;
        CELL_UNROLL_BY(1)
        for (cell_place<1> s = 0; s < cell_slots<1>(length, 64); s++) {
            const cell_place<1> e = (s * 16 + lane) * 4;
            if (e < length) {
                float v_W_kvqm_x[4];
                row_W_kvqm_x.values(v_W_kvqm_x, s, p_W_kvqm_x + row * 256 + e);
                float w_kn[4];
                float v_W_kvqm_x2[4];
                row_W_kvqm_x2.values(v_W_kvqm_x2, s, p_W_kvqm_x + row * 256 + 192 + e);
                float w_mn[4];
                CELL_UNROLL
                for (int u = 0; u < 4; u++) {
                    // kn, e79.cell:30: kn[i] = k[i] / (sqrt(sum[j] k[j]^2) + 1e-6);
                    const float a_kn = v_W_kvqm_x[u] / h165;
                    w_kn[u] = a_kn;
                    // mn, e79.cell:31: mn[i] = m[i] / (sqrt(sum[j] m[j]^2) + 1e-6);
                    const float a_mn = v_W_kvqm_x2[u] / h193;
                    w_mn[u] = a_mn;
                }
                cell_store_vec<4>(p_kn + row * 64 + e, w_kn);
                cell_store_vec<4>(p_mn + row * 64 + e, w_mn);
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
    const int lane_row = lane / 8, lane_col = lane % 8;
    const int warp_row = warp / 2, warp_col = warp % 2;
    // Of 64 x 64: 4 x 4 elements a thread, 4 x 8 lanes, 4 x 2 warps.
    const int row0 = (warp_row * 4 + lane_row) * 4, col0 = (warp_col * 8 + lane_col) * 4;
    const int last_row = 63, last_col = 63;
    unsigned char *cursor = cell_shared();
    cell_smem<float> kn_s = cell_carve<float>(cursor, 512);
    cell_smem<float> mn_s = cell_carve<float>(cursor, 512);
    cell_smem<float> b_s_gate_s = cell_carve<float>(cursor, 64);
    cell_smem<float> W_kvqm_x_s = cell_carve<float>(cursor, 2048);
    cell_smem<float> b_m_gate_s = cell_carve<float>(cursor, 64);
    cell_smem<float> ex = cell_carve<float>(cursor, 5760);
    for (int64_t item = cell_block_index(0); item < B * (1); item += cell_block_count(0)) {
        const int64_t b = item;
        const int64_t chunks = (T + 3) / 4;
        const float *kn_s_g = (const float *)args.ptr[10] + (b * T * (64) + 0);
        const float *mn_s_g = (const float *)args.ptr[11] + (b * T * (64) + 0);
        const float *b_s_gate_s_g = (const float *)args.ptr[12] + (0);
        for (int x = cell_thread(); x < 64; x += 256)
            b_s_gate_s[x] = b_s_gate_s_g[x];
        const float *W_kvqm_x_s_g = (const float *)args.ptr[13] + (b * T * (256) + 0);
        const float *b_m_gate_s_g = (const float *)args.ptr[14] + (0);
        for (int x = cell_thread(); x < 64; x += 256)
            b_m_gate_s[x] = b_m_gate_s_g[x];
        // The vectors of steps [4 chunk, 4 chunk + 4) on their way into half a buffer.
        auto fetch = [&](int64_t chunk) {
            const int64_t t0 = chunk * 4;
            const int steps = T - t0 < 4 ? (int)(T - t0) : 4, half = (int)(chunk & 1) * 4;
            if (warp == 0)
                CELL_UNROLL_BY(1)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(kn_s + ((half + s) * 64 + x), kn_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 1)
                CELL_UNROLL_BY(1)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(mn_s + ((half + s) * 64 + x), mn_s_g + (t0 + s) * (64) + x);
                }
            CELL_UNROLL_BY(1)
            for (int p = cell_thread(); p < steps * 64; p += 256) {
                const int s = p / 64, x = p % 64 * 4;
                cell_cp_async<16>(W_kvqm_x_s + ((half + s) * 256 + x), W_kvqm_x_s_g + (t0 + s) * (256) + x);
            }
            cell_cp_async_commit();
        };
        float S[4][4];
        CELL_UNROLL
        for (int r = 0; r < 4; r++) {
            CELL_UNROLL
            for (int c = 0; c < 4; c++) {
                S[r][c] = ((float *)args.ptr[0]) ? ((float *)args.ptr[0])[b * (4096)
                        + (64 * (row0 + r) + (col0 + c))] : 0;
            }
        }
        float M[4][4];
        CELL_UNROLL
        for (int r = 0; r < 4; r++) {
            CELL_UNROLL
            for (int c = 0; c < 4; c++) {
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
            if (((float *)args.ptr[15])) {
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c += 4) {
                        float some[4];
                        CELL_UNROLL
                        for (int i = 0; i < 4; i++)
                            some[i] = S[r][c + i];
                        cell_store_vec<4>(((float *)args.ptr[15])
                                + ((b * ((T + 3) / 4) + chunk) * (4096) + (64 * (row0 + r) + (col0 + c))),
                                some);
                    }
                }
            }
            if (((float *)args.ptr[16])) {
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c += 4) {
                        float some[4];
                        CELL_UNROLL
                        for (int i = 0; i < 4; i++)
                            some[i] = M[r][c + i];
                        cell_store_vec<4>(((float *)args.ptr[16])
                                + ((b * ((T + 3) / 4) + chunk) * (4096) + (64 * (row0 + r) + (col0 + c))),
                                some);
                    }
                }
            }
            float last_sum_r[4] = { 0, 0, 0, 0 };
            for (int s = 0; s < steps; s++) {
                const int64_t t = t0 + s;
                const int flip = s * 1152;
                const int slot = half + s;
                (void)t, (void)flip, (void)slot;
                float S_next[4][4];
                float M_next[4][4];
                float kn_c[4];
                cell_load_vec<4>(kn_c, kn_s + (slot * 64 + 0 + col0));
                float kn_r[4];
                cell_load_vec<4>(kn_r, kn_s + (slot * 64 + 0 + row0));
                float mn_c[4];
                cell_load_vec<4>(mn_c, mn_s + (slot * 64 + 0 + col0));
                float b_s_gate_r[4];
                cell_load_vec<4>(b_s_gate_r, b_s_gate_s + (0 + row0));
                float b_s_gate_c[4];
                cell_load_vec<4>(b_s_gate_c, b_s_gate_s + (0 + col0));
                float W_kvqm_x_r[4];
                cell_load_vec<4>(W_kvqm_x_r, W_kvqm_x_s + (slot * 256 + 64 + row0));
                float mn_r[4];
                cell_load_vec<4>(mn_r, mn_s + (slot * 64 + 0 + row0));
                float W_kvqm_x_c[4];
                cell_load_vec<4>(W_kvqm_x_c, W_kvqm_x_s + (slot * 256 + 128 + col0));
                float b_m_gate_r[4];
                cell_load_vec<4>(b_m_gate_r, b_m_gate_s + (0 + row0));
                float b_m_gate_c[4];
                cell_load_vec<4>(b_m_gate_c, b_m_gate_s + (0 + col0));
                float own_sum_sr[4] = { 0, 0, 0, 0 };
                float own_sum_sc[4] = { 0, 0, 0, 0 };
                float own_sum_ds[4] = { 0, 0, 0, 0 };
                float own_sum_dm[4] = { 0, 0, 0, 0 };
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        own_sum_sr[r] += (M[r][c] * kn_c[c]);
                        own_sum_sc[c] += (M[r][c] * kn_r[r]);
                        own_sum_ds[r] += (S[r][c] * kn_c[c]);
                        own_sum_dm[r] += (M[r][c] * mn_c[c]);
                    }
                }
                cell_reduce_scatter_op<cell_op_sum, 1, 8>(last_sum_r);
                if (lane / 1 % 2 == 0) {
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 1024 + warp_col * 64 + row0 + cell_scatter_first<1, 8, 4>() + i]
                                = last_sum_r[i];
                }
                cell_reduce_scatter_op<cell_op_sum, 1, 8>(own_sum_sr);
                if (lane / 1 % 2 == 0) {
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 0 + warp_col * 64 + row0 + cell_scatter_first<1, 8, 4>() + i]
                                = own_sum_sr[i];
                }
                cell_reduce_scatter_op<cell_op_sum, 8, 4>(own_sum_sc);
                CELL_UNROLL
                for (int i = 0; i < 1; i++)
                    ex[flip + 128 + warp_row * 64 + col0 + cell_scatter_first<8, 4, 4>() + i] = own_sum_sc[i];
                cell_reduce_scatter_op<cell_op_sum, 1, 8>(own_sum_ds);
                if (lane / 1 % 2 == 0) {
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 384 + warp_col * 64 + row0 + cell_scatter_first<1, 8, 4>() + i]
                                = own_sum_ds[i];
                }
                cell_reduce_scatter_op<cell_op_sum, 1, 8>(own_sum_dm);
                if (lane / 1 % 2 == 0) {
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 512 + warp_col * 64 + row0 + cell_scatter_first<1, 8, 4>() + i]
                                = own_sum_dm[i];
                }
                cell_barrier();
                float sum_sr[4];
                cell_load_vec<4>(sum_sr, ex + (flip + 0 + row0));
                float part[4];
                cell_load_vec<4>(part, ex + (flip + 64 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_sr[r] = sum_sr[r] + part[r];
                }
                float sr_r[4];  // sr[i]   = sigmoid(sum[j] M[i,j] * kn[j] + bs[i])
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sr_r[r] = cell_sigmoid((sum_sr[r] + b_s_gate_r[r]));
                }
                float sum_sc[4];
                cell_load_vec<4>(sum_sc, ex + (flip + 128 + col0));
                float part_2[4];
                cell_load_vec<4>(part_2, ex + (flip + 192 + col0));
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    sum_sc[c] = sum_sc[c] + part_2[c];
                }
                float part_3[4];
                cell_load_vec<4>(part_3, ex + (flip + 256 + col0));
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    sum_sc[c] = sum_sc[c] + part_3[c];
                }
                float part_4[4];
                cell_load_vec<4>(part_4, ex + (flip + 320 + col0));
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    sum_sc[c] = sum_sc[c] + part_4[c];
                }
                float sc_c[4];  // sc[j]   = sigmoid(sum[i] M[i,j] * kn[i] + bs[j])
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    sc_c[c] = cell_sigmoid((sum_sc[c] + b_s_gate_c[c]));
                }
                float sum_ds[4];
                cell_load_vec<4>(sum_ds, ex + (flip + 384 + row0));
                float part_5[4];
                cell_load_vec<4>(part_5, ex + (flip + 448 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_ds[r] = sum_ds[r] + part_5[r];
                }
                float ds_r[4];  // ds[i]   = v[i] - sum[j] S[i,j] * kn[j]
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    ds_r[r] = (W_kvqm_x_r[r] - sum_ds[r]);
                }
                float own_sum_mr[4] = { 0, 0, 0, 0 };
                float own_sum_mc[4] = { 0, 0, 0, 0 };
                float own_sum_r[4] = { 0, 0, 0, 0 };
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        // S'[i,j] = sr[i] * S[i,j] * sc[j] + ds[i] * kn[j]
                        S_next[r][c] = cell_fma((sr_r[r] * S[r][c]), sc_c[c], cell_mul(ds_r[r], kn_c[c]));
                        own_sum_mr[r] += (S_next[r][c] * mn_c[c]);
                        own_sum_mc[c] += (S_next[r][c] * mn_r[r]);
                        own_sum_r[r] += (S_next[r][c] * W_kvqm_x_c[c]);
                    }
                }
                cell_reduce_scatter_op<cell_op_sum, 1, 8>(own_sum_mr);
                if (lane / 1 % 2 == 0) {
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 640 + warp_col * 64 + row0 + cell_scatter_first<1, 8, 4>() + i]
                                = own_sum_mr[i];
                }
                cell_reduce_scatter_op<cell_op_sum, 8, 4>(own_sum_mc);
                CELL_UNROLL
                for (int i = 0; i < 1; i++)
                    ex[flip + 768 + warp_row * 64 + col0 + cell_scatter_first<8, 4, 4>() + i] = own_sum_mc[i];
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    last_sum_r[r] = own_sum_r[r];
                }
                cell_barrier();
                float sum_mr[4];
                cell_load_vec<4>(sum_mr, ex + (flip + 640 + row0));
                float part_6[4];
                cell_load_vec<4>(part_6, ex + (flip + 704 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_mr[r] = sum_mr[r] + part_6[r];
                }
                float mr_r[4];  // mr[i]   = sigmoid(sum[j] S'[i,j] * mn[j] + bm[i])
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    mr_r[r] = cell_sigmoid((sum_mr[r] + b_m_gate_r[r]));
                }
                float sum_mc[4];
                cell_load_vec<4>(sum_mc, ex + (flip + 768 + col0));
                float part_7[4];
                cell_load_vec<4>(part_7, ex + (flip + 832 + col0));
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    sum_mc[c] = sum_mc[c] + part_7[c];
                }
                float part_8[4];
                cell_load_vec<4>(part_8, ex + (flip + 896 + col0));
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    sum_mc[c] = sum_mc[c] + part_8[c];
                }
                float part_9[4];
                cell_load_vec<4>(part_9, ex + (flip + 960 + col0));
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    sum_mc[c] = sum_mc[c] + part_9[c];
                }
                float mc_c[4];  // mc[j]   = sigmoid(sum[i] S'[i,j] * mn[i] + bm[j])
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    mc_c[c] = cell_sigmoid((sum_mc[c] + b_m_gate_c[c]));
                }
                float sum_dm[4];
                cell_load_vec<4>(sum_dm, ex + (flip + 512 + row0));
                float part_10[4];
                cell_load_vec<4>(part_10, ex + (flip + 576 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_dm[r] = sum_dm[r] + part_10[r];
                }
                float dm_r[4];  // dm[i]   = ds[i] - sum[j] M[i,j] * mn[j]
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    dm_r[r] = (ds_r[r] - sum_dm[r]);
                }
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        // M'[i,j] = mr[i] * M[i,j] * mc[j] + dm[i] * mn[j]
                        M_next[r][c] = cell_fma((mr_r[r] * M[r][c]), mc_c[c], cell_mul(dm_r[r], mn_c[c]));
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
            {
                const int flip = steps * 1152;
                cell_reduce_scatter_op<cell_op_sum, 1, 8>(last_sum_r);
                if (lane / 1 % 2 == 0) {
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 1024 + warp_col * 64 + row0 + cell_scatter_first<1, 8, 4>() + i]
                                = last_sum_r[i];
                }
            }
            cell_barrier();
            CELL_UNROLL_BY(1)
            for (int p = cell_thread(); p < steps * 64; p += 256) {
                const int s = p / 64, x = p % 64;
                const int64_t t = t0 + s;
                const int flip = s * 1152;
                const int slot = half + s;
                (void)t, (void)flip, (void)slot;
                (void)x;
                if (args.ptr[2]) {
                    const float b_s_gate = cell_load<float>(b_s_gate_s + x);
                    const float sr = cell_sigmoid((((float)ex[flip + 0 + x] + (float)ex[flip + 64 + x])
                            + b_s_gate));
                    cell_store((float *)args.ptr[2] + ((b * T + t) * (64) + x), sr);
                }
                if (args.ptr[3]) {
                    const float b_s_gate_2 = cell_load<float>(b_s_gate_s + x);
                    const float sc = cell_sigmoid((((float)ex[flip + 128 + x] + (float)ex[flip + 192 + x]
                            + (float)ex[flip + 256 + x] + (float)ex[flip + 320 + x]) + b_s_gate_2));
                    cell_store((float *)args.ptr[3] + ((b * T + t) * (64) + x), sc);
                }
                if (args.ptr[4]) {
                    const float W_kvqm_x = cell_load<float>(W_kvqm_x_s + (slot * 256 + (64 + x)));
                    const float ds = (W_kvqm_x - ((float)ex[flip + 384 + x] + (float)ex[flip + 448 + x]));
                    cell_store((float *)args.ptr[4] + ((b * T + t) * (64) + x), ds);
                }
                if (args.ptr[5]) {
                    const float b_m_gate = cell_load<float>(b_m_gate_s + x);
                    const float mr = cell_sigmoid((((float)ex[flip + 640 + x] + (float)ex[flip + 704 + x])
                            + b_m_gate));
                    cell_store((float *)args.ptr[5] + ((b * T + t) * (64) + x), mr);
                }
                if (args.ptr[6]) {
                    const float b_m_gate_2 = cell_load<float>(b_m_gate_s + x);
                    const float mc = cell_sigmoid((((float)ex[flip + 768 + x] + (float)ex[flip + 832 + x]
                            + (float)ex[flip + 896 + x] + (float)ex[flip + 960 + x]) + b_m_gate_2));
                    cell_store((float *)args.ptr[6] + ((b * T + t) * (64) + x), mc);
                }
                if (args.ptr[7]) {
                    const float W_kvqm_x_2 = cell_load<float>(W_kvqm_x_s + (slot * 256 + (64 + x)));
                    const float ds_2 = (W_kvqm_x_2 - ((float)ex[flip + 384 + x] + (float)ex[flip + 448 + x]));
                    const float dm = (ds_2 - ((float)ex[flip + 512 + x] + (float)ex[flip + 576 + x]));
                    cell_store((float *)args.ptr[7] + ((b * T + t) * (64) + x), dm);
                }
                if (args.ptr[8]) {
                    cell_store((float *)args.ptr[8] + ((b * T + t) * (64) + x),
                            ((float)ex[flip + 2176 + x] + (float)ex[flip + 2240 + x]));
                }
                if (args.ptr[9]) {
                    const float y = (((float)ex[flip + 2176 + x] + (float)ex[flip + 2240 + x])
                            * cell_silu(((float)ex[flip + 2176 + x] + (float)ex[flip + 2240 + x])));
                    cell_store((float *)args.ptr[9] + ((b * T + t) * (64) + x), y);
                }
            }
        }
        if (((float *)args.ptr[17])) {
            CELL_UNROLL
            for (int r = 0; r < 4; r++) {
                CELL_UNROLL
                for (int c = 0; c < 4; c += 4) {
                    float some[4];
                    CELL_UNROLL
                    for (int i = 0; i < 4; i++)
                        some[i] = S[r][c + i];
                    cell_store_vec<4>(((float *)args.ptr[17])
                            + (b * (4096) + (64 * (row0 + r) + (col0 + c))), some);
                }
            }
        }
        if (((float *)args.ptr[18])) {
            CELL_UNROLL
            for (int r = 0; r < 4; r++) {
                CELL_UNROLL
                for (int c = 0; c < 4; c += 4) {
                    float some[4];
                    CELL_UNROLL
                    for (int i = 0; i < 4; i++)
                        some[i] = M[r][c + i];
                    cell_store_vec<4>(((float *)args.ptr[18])
                            + (b * (4096) + (64 * (row0 + r) + (col0 + c))), some);
                }
            }
        }
        cell_barrier();
    }
}

extern "C" __global__ void __launch_bounds__(128)
e79_fwd_parts_0(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_D = args.size[2];
    const float *const p_W_kvqm = static_cast<const float *>(args.ptr[0]);
    cell_bf16 *const p_parts = static_cast<cell_bf16 *>(args.ptr[1]);
    cell_split_matrix<false, true>(p_parts, p_W_kvqm, 0, 256, dim_D, dim_D);
}

extern "C" __global__ void __launch_bounds__(128)
e79_fwd_parts_1(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const int64_t dim_D = args.size[2];
    const float *const p_x = static_cast<const float *>(args.ptr[0]);
    cell_bf16 *const p_parts = static_cast<cell_bf16 *>(args.ptr[1]);
    cell_split_matrix<false, false>(p_parts, p_x, 0, dim_B * dim_T, dim_D, dim_D);
}

extern "C" __global__ void __launch_bounds__(256)
e79_bwd_before_0(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const float *const p_r = static_cast<const float *>(args.ptr[0]);
    const float *const p_d_y = static_cast<const float *>(args.ptr[1]);
    float *const p_d_r = static_cast<float *>(args.ptr[2]);
    const int64_t rows = dim_B * dim_T;
    const int64_t elements = 64;
    const int64_t first = cell_block_index(0) * 256 + cell_thread();
    const int64_t step = cell_block_count(0) * 256;
    for (int64_t n = first; n < rows * elements; n += step) {
        const int64_t row = n / elements;
        const int64_t e = n - row * elements;
        const int64_t i_i = e;
        const float x_r = cell_load_ro<float>(p_r + row * 64 + i_i);
        const float x_d_y = p_d_y ? cell_load_ro<float>(p_d_y + row * 64 + i_i) : 0;
        // d_r, e79.cell:43: r[i] = sum[j] S'[i,j] * q[j];
        const float s0 = cell_sigmoid(x_r);
        const float a_d_r = (x_d_y * cell_silu(x_r)) + ((x_d_y * x_r) * (s0 * (1.0f + (x_r * (1.0f - s0)))));
        cell_store(p_d_r + row * 64 + i_i, a_d_r);
    }
}

extern "C" __global__ void __launch_bounds__(256, 2)
e79_bwd_after_1(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const float *const p_d_bs = static_cast<const float *>(args.ptr[0]);
    const float *const p_d_bm = static_cast<const float *>(args.ptr[1]);
    float *const p_partial = static_cast<float *>(args.ptr[2]);
    auto cursor = cell_shared();
    const cell_smem<float> scratch = cell_carve<float>(cursor, 1024);
    const int64_t rows = dim_B * dim_T;
    const int64_t columns = 64;
    const int64_t chunks = cell_block_count(1);
    const int64_t chunk = cell_block_index(1);
    const int64_t begin = rows * chunk / chunks;
    const int64_t end = rows * (chunk + 1) / chunks;
    const int lane = cell_thread() % 32;
    const int part = cell_thread() / 32;
    for (int64_t first = cell_block_index(0) * 32 * 4; first < columns;
            first += cell_block_count(0) * 32 * 4) {
        const int64_t e = first + lane * 4;
        float sum_d_b_s_gate[4] = {};
        float sum_d_b_m_gate[4] = {};
        if (e < columns) {
            for (int64_t row = begin + part; row < end; row += 8) {
                float v_d_bs[4];
                cell_load_vec_ro<4>(v_d_bs, p_d_bs + row * 64 + e);
                float v_d_bm[4];
                cell_load_vec_ro<4>(v_d_bm, p_d_bm + row * 64 + e);
                CELL_UNROLL
                for (int u = 0; u < 4; u++) {
                    // d_b_s_gate, e79.cell:20: b_s_gate
                    sum_d_b_s_gate[u] += v_d_bs[u];
                    // d_b_m_gate, e79.cell:20: b_m_gate
                    sum_d_b_m_gate[u] += v_d_bm[u];
                }
            }
        }
        cell_part_store(scratch, sum_d_b_s_gate);
        cell_barrier();
        if (cell_thread() < 128 && first + cell_thread() < columns)
            p_partial[chunk * columns + first + cell_thread()] = cell_part_total<4>(scratch);
        cell_barrier();
        cell_part_store(scratch, sum_d_b_m_gate);
        cell_barrier();
        if (cell_thread() < 128 && first + cell_thread() < columns)
            p_partial[(chunks + chunk) * columns + first + cell_thread()] = cell_part_total<4>(scratch);
        cell_barrier();
    }
}

extern "C" __global__ void __launch_bounds__(1024, 1)
e79_bwd_after_1_2(const __grid_constant__ cell_kernel_args args)
{
    cell_dependency_wait();
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const float *const p_partial = static_cast<const float *>(args.ptr[0]);
    float *const p_d_b_s_gate = static_cast<float *>(args.ptr[1]);
    float *const p_d_b_m_gate = static_cast<float *>(args.ptr[2]);
    const bool adds = args.flags & CELL_KERNEL_ACCUMULATE;
    auto cursor = cell_shared();
    const cell_smem<float> scratch = cell_carve<float>(cursor, 1024);
    const int64_t rows = dim_B * dim_T;
    const int64_t columns = 64;
    const int64_t chunks = cell_column_chunks<64, 256, 512, 1, 256, 1>(rows, columns);
    const int lane = cell_thread() % 32;
    const int part = cell_thread() / 32;
    const int64_t begin = chunks * part / 32;
    const int64_t end = chunks * (part + 1) / 32;
    for (int64_t first = cell_block_index(0) * 32; first < columns; first += cell_block_count(0) * 32) {
        const int64_t column = first + lane;
        const int64_t last = column < columns ? end : begin;
        const int64_t col_i = column;
        float sum_d_b_s_gate[1];
        sum_d_b_s_gate[0] = cell_chunk_sum(p_partial + column, begin, last, columns);
        float sum_d_b_m_gate[1];
        sum_d_b_m_gate[0] = cell_chunk_sum(p_partial + chunks * columns + column, begin, last, columns);
        cell_part_store(scratch, sum_d_b_s_gate);
        cell_barrier();
        if (part == 0 && column < columns) {
            const float a_d_b_s_gate = cell_part_total<1>(scratch);
            if (p_d_b_s_gate)
                cell_put(p_d_b_s_gate + col_i, a_d_b_s_gate, adds);
        }
        cell_barrier();
        cell_part_store(scratch, sum_d_b_m_gate);
        cell_barrier();
        if (part == 0 && column < columns) {
            const float a_d_b_m_gate = cell_part_total<1>(scratch);
            if (p_d_b_m_gate)
                cell_put(p_d_b_m_gate + col_i, a_d_b_m_gate, adds);
        }
        cell_barrier();
    }
}

extern "C" __global__ void __launch_bounds__(256)
e79_bwd_after_2(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const float *const p_d_mn = static_cast<const float *>(args.ptr[0]);
    const float *const p_v191 = static_cast<const float *>(args.ptr[1]);
    const float *const p_W_kvqm_x = static_cast<const float *>(args.ptr[2]);
    const float *const p_d_kn = static_cast<const float *>(args.ptr[3]);
    const float *const p_v163 = static_cast<const float *>(args.ptr[4]);
    float *const p_d_m = static_cast<float *>(args.ptr[5]);
    float *const p_d_k = static_cast<float *>(args.ptr[6]);
    const int64_t rows = dim_B * dim_T;
    const cell_place<1> lane = cell_thread() % 16;
    const int64_t all_rows = rows;
    for (int64_t first = cell_block_index(0) * 16 + cell_warp() * 2; first < all_rows;
            first += cell_block_count(0) * 16) {
        const bool mine = first + cell_lane() / 16 < all_rows;
        const int64_t row = mine ? first + cell_lane() / 16 : all_rows - 1;
        const cell_place<1> length = mine ? 64 : 0;
        cell_row<float, 4, 1> row_d_mn;
        cell_row<float, 4, 1> row_W_kvqm_x;
        cell_row<float, 4, 1> row_d_kn;
        cell_row<float, 4, 1> row_W_kvqm_x2;
        CELL_UNROLL_BY(1)
        for (cell_place<1> s = 0; s < 1; s++) {
            const cell_place<1> e = (s * 16 + lane) * 4;
            if (e < length) {
                row_d_mn.load(s, p_d_mn + row * 64 + e);
                row_W_kvqm_x.load(s, p_W_kvqm_x + row * 256 + 192 + e);
                row_d_kn.load(s, p_d_kn + row * 64 + e);
                row_W_kvqm_x2.load(s, p_W_kvqm_x + row * 256 + e);
            }
        }
        float a_493 = 0;
        float a_531 = 0;
        const float r_v191 = cell_load_ro<float>(p_v191 + row);
        const float h192 = cell_sqrt(r_v191);
        const float h193 = h192 + 1e-06f;
        const float r_v163 = cell_load_ro<float>(p_v163 + row);
        const float h164 = cell_sqrt(r_v163);
        const float h165 = h164 + 1e-06f;
        CELL_UNROLL_BY(1)
        for (cell_place<1> s = 0; s < cell_slots<1>(length, 64); s++) {
            const cell_place<1> e = (s * 16 + lane) * 4;
            if (e < length) {
                float v_d_mn[4];
                row_d_mn.values(v_d_mn, s, p_d_mn + row * 64 + e);
                float v_W_kvqm_x[4];
                row_W_kvqm_x.values(v_W_kvqm_x, s, p_W_kvqm_x + row * 256 + 192 + e);
                float v_d_kn[4];
                row_d_kn.values(v_d_kn, s, p_d_kn + row * 64 + e);
                float v_W_kvqm_x2[4];
                row_W_kvqm_x2.values(v_W_kvqm_x2, s, p_W_kvqm_x + row * 256 + e);
                CELL_UNROLL
                for (int u = 0; u < 4; u++) {
                    // part of e79.cell:31: mn[i] = m[i] / (sqrt(sum[j] m[j]^2) + 1e-6);
                    a_493 += -((v_d_mn[u] / h193) * (v_W_kvqm_x[u] / (cell_sqrt(r_v191) + 1e-06f)));
                    // part of e79.cell:30: kn[i] = k[i] / (sqrt(sum[j] k[j]^2) + 1e-6);
                    a_531 += -((v_d_kn[u] / h165) * (v_W_kvqm_x2[u] / (cell_sqrt(r_v163) + 1e-06f)));
                }
            }
        }
        a_493 = cell_group_sum<16>(a_493);
        a_531 = cell_group_sum<16>(a_531);
        // part of e79.cell:31: mn[i] = m[i] / (sqrt(sum[j] m[j]^2) + 1e-6);
        const float s0 = cell_sqrt(r_v191);
        const float a_497 = (s0 == 0.0f) ? 0.0f : ((a_493 * 0.5f) / s0);
        CELL_UNROLL_BY(1)
        for (cell_place<1> s = 0; s < cell_slots<1>(length, 64); s++) {
            const cell_place<1> e = (s * 16 + lane) * 4;
            if (e < length) {
                float v_W_kvqm_x[4];
                row_W_kvqm_x.values(v_W_kvqm_x, s, p_W_kvqm_x + row * 256 + 192 + e);
                float v_d_mn[4];
                row_d_mn.values(v_d_mn, s, p_d_mn + row * 64 + e);
                float w_d_m[4];
                CELL_UNROLL
                for (int u = 0; u < 4; u++) {
                    // d_m, e79.cell:16: m[i:N] = sum[d] W_kvqm[3*N + i, d] * x[d];
                    const float s1 = a_497 * v_W_kvqm_x[u];
                    const float a_d_m = (v_d_mn[u] / h193) + (s1 + s1);
                    w_d_m[u] = a_d_m;
                }
                cell_store_vec<4>(p_d_m + row * 256 + 192 + e, w_d_m);
            }
        }
        // part of e79.cell:30: kn[i] = k[i] / (sqrt(sum[j] k[j]^2) + 1e-6);
        const float s2 = cell_sqrt(r_v163);
        const float a_535 = (s2 == 0.0f) ? 0.0f : ((a_531 * 0.5f) / s2);
        CELL_UNROLL_BY(1)
        for (cell_place<1> s = 0; s < cell_slots<1>(length, 64); s++) {
            const cell_place<1> e = (s * 16 + lane) * 4;
            if (e < length) {
                float v_W_kvqm_x2[4];
                row_W_kvqm_x2.values(v_W_kvqm_x2, s, p_W_kvqm_x + row * 256 + e);
                float v_d_kn[4];
                row_d_kn.values(v_d_kn, s, p_d_kn + row * 64 + e);
                float w_d_k[4];
                CELL_UNROLL
                for (int u = 0; u < 4; u++) {
                    // d_k, e79.cell:13: k[i:N] = sum[d] W_kvqm[i,d] * x[d];
                    const float s3 = a_535 * v_W_kvqm_x2[u];
                    const float a_d_k = (v_d_kn[u] / h165) + (s3 + s3);
                    w_d_k[u] = a_d_k;
                }
                cell_store_vec<4>(p_d_k + row * 256 + e, w_d_k);
            }
        }
    }
}

template <bool every> static __device__ __forceinline__ void e79_bwd_walk_of(const cell_kernel_args &args)
{
    const int64_t B = args.size[0], T = args.size[1];
    const int64_t dim_D = args.size[2];
    const int64_t time0 = args.size[3];
    const int lane = cell_lane(), warp = cell_warp();
    const int lane_row = lane / 8, lane_col = lane % 8;
    const int warp_row = warp / 2, warp_col = warp % 2;
    // Of 64 x 64: 4 x 4 elements a thread, 4 x 8 lanes, 4 x 2 warps.
    const int row0 = (warp_row * 4 + lane_row) * 4, col0 = (warp_col * 8 + lane_col) * 4;
    const int last_row = 63, last_col = 63;
    // Which gradients are asked for: what only others need is left out.
    const bool want_d_q = every || args.ptr[0];
    const bool want_d_bm = every || args.ptr[1];
    const bool want_d_bs = every || args.ptr[2];
    const bool want_d_ds = every || args.ptr[4];
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
    cell_smem<float> S_start = S_kept + 12288;
    cell_smem<float> M_kept = cell_carve<float>(cursor, 16384);
    cell_smem<float> M_start = M_kept + 12288;
    cell_smem<float> ex = cell_carve<float>(cursor, 8192);
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
        // The states that a chunk's replay starts from, on their way into the place of its last step.
        auto fetch_start = [&](int64_t chunk) {
            CELL_UNROLL
            for (int r = 0; r < 4; r++) {
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    if (c % 4 == 0)
                        cell_cp_async<16>(S_start + (((r * 4 + c) / 4 * 256 + cell_thread()) * 4
                                + (r * 4 + c) % 4), ((float *)args.ptr[20])
                                + ((b * chunks + chunk) * (4096) + (64 * (row0 + r) + (col0 + c))));
                }
            }
            CELL_UNROLL
            for (int r = 0; r < 4; r++) {
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    if (c % 4 == 0)
                        cell_cp_async<16>(M_start + (((r * 4 + c) / 4 * 256 + cell_thread()) * 4
                                + (r * 4 + c) % 4), ((float *)args.ptr[21])
                                + ((b * chunks + chunk) * (4096) + (64 * (row0 + r) + (col0 + c))));
                }
            }
            cell_cp_async_commit();
        };
        // The vectors of steps [4 chunk, 4 chunk + 4) on their way into half a buffer.
        auto fetch = [&](int64_t chunk) {
            const int64_t t0 = chunk * 4;
            const int steps = T - t0 < 4 ? (int)(T - t0) : 4, half = (int)(chunk & 1) * 4;
            if (warp == 0)
                CELL_UNROLL_BY(1)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(sr_s + ((half + s) * 64 + x), sr_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 1)
                CELL_UNROLL_BY(1)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(sc_s + ((half + s) * 64 + x), sc_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 2)
                CELL_UNROLL_BY(1)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(ds_s + ((half + s) * 64 + x), ds_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 3)
                CELL_UNROLL_BY(1)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(kn_s + ((half + s) * 64 + x), kn_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 4)
                CELL_UNROLL_BY(1)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(mr_s + ((half + s) * 64 + x), mr_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 5)
                CELL_UNROLL_BY(1)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(mc_s + ((half + s) * 64 + x), mc_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 6)
                CELL_UNROLL_BY(1)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(dm_s + ((half + s) * 64 + x), dm_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 7)
                CELL_UNROLL_BY(1)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(mn_s + ((half + s) * 64 + x), mn_s_g + (t0 + s) * (64) + x);
                }
            if (warp == 0)
                CELL_UNROLL_BY(1)
                for (int p = lane; p < steps * 16; p += 32) {
                    const int s = p / 16, x = p % 16 * 4;
                    cell_cp_async<16>(d_r_s + ((half + s) * 64 + x), d_r_s_g + (t0 + s) * (64) + x);
                }
            CELL_UNROLL_BY(1)
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
        if (chunks > 0) {
            fetch_start(chunks - 1);
            fetch(chunks - 1);
        }
        for (int64_t chunk = chunks - 1; chunk >= 0; chunk--) {
            const int64_t t0 = chunk * 4;
            const int steps = T - t0 < 4 ? (int)(T - t0) : 4, half = (int)(chunk & 1) * 4;
            cell_cp_async_wait<0>();
            float S[4][4];
            CELL_UNROLL
            for (int e = 0; e < 4; e++) {
                float some[4];
                cell_load_vec<4>(some, S_start + ((e) * 256 + cell_thread()) * 4);
                CELL_UNROLL
                for (int i = 0; i < 4; i++)
                    S[(e * 4 + i) / 4][(e * 4 + i) % 4] = some[i];
            }
            float M[4][4];
            CELL_UNROLL
            for (int e = 0; e < 4; e++) {
                float some[4];
                cell_load_vec<4>(some, M_start + ((e) * 256 + cell_thread()) * 4);
                CELL_UNROLL
                for (int i = 0; i < 4; i++)
                    M[(e * 4 + i) / 4][(e * 4 + i) % 4] = some[i];
            }
            cell_barrier();
            if (chunk > 0)
                fetch(chunk - 1);
            for (int s = 0; s < steps; s++) {
                const int64_t t = t0 + s;
                const int flip = s * 2048;
                const int slot = half + s;
                (void)t, (void)flip, (void)slot;
                CELL_UNROLL
                for (int e = 0; e < 4; e++) {
                    float some[4];
                    CELL_UNROLL
                    for (int i = 0; i < 4; i++)
                        some[i] = S[(e * 4 + i) / 4][(e * 4 + i) % 4];
                    cell_store_vec<4>(S_kept + ((s * 4 + e) * 256 + cell_thread()) * 4, some);
                }
                CELL_UNROLL
                for (int e = 0; e < 4; e++) {
                    float some[4];
                    CELL_UNROLL
                    for (int i = 0; i < 4; i++)
                        some[i] = M[(e * 4 + i) / 4][(e * 4 + i) % 4];
                    cell_store_vec<4>(M_kept + ((s * 4 + e) * 256 + cell_thread()) * 4, some);
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
                        S_next[r][c] = cell_fma((sr_r[r] * S[r][c]), sc_c[c], cell_mul(ds_r[r], kn_c[c]));
                        // M'[i,j] = mr[i] * M[i,j] * mc[j] + dm[i] * mn[j]
                        M_next[r][c] = cell_fma((mr_r[r] * M[r][c]), mc_c[c], cell_mul(dm_r[r], mn_c[c]));
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
            for (int s = steps - 1; s >= 0; s--) {
                const int64_t t = t0 + s;
                const int flip = s * 2048;
                const int slot = half + s;
                (void)t, (void)flip, (void)slot;
                CELL_UNROLL
                for (int e = 0; e < 4; e++) {
                    float some[4];
                    cell_load_vec<4>(some, S_kept + ((s * 4 + e) * 256 + cell_thread()) * 4);
                    CELL_UNROLL
                    for (int i = 0; i < 4; i++)
                        S[(e * 4 + i) / 4][(e * 4 + i) % 4] = some[i];
                }
                CELL_UNROLL
                for (int e = 0; e < 4; e++) {
                    float some[4];
                    cell_load_vec<4>(some, M_kept + ((s * 4 + e) * 256 + cell_thread()) * 4);
                    CELL_UNROLL
                    for (int i = 0; i < 4; i++)
                        M[(e * 4 + i) / 4][(e * 4 + i) % 4] = some[i];
                }
                if (s == steps - 1 && chunk > 0)
                    fetch_start(chunk - 1);
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
                cell_reduce_scatter_op<cell_op_sum, 1, 8>(own_sum_d_dm);
                if (lane / 1 % 2 == 0) {
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 0 + warp_col * 64 + row0 + cell_scatter_first<1, 8, 4>() + i]
                                = own_sum_d_dm[i];
                }
                cell_reduce_scatter_op<cell_op_sum, 8, 4>(own_sum_d_mc);
                CELL_UNROLL
                for (int i = 0; i < 1; i++)
                    ex[flip + 128 + warp_row * 64 + col0 + cell_scatter_first<8, 4, 4>() + i]
                            = own_sum_d_mc[i];
                cell_reduce_scatter_op<cell_op_sum, 1, 8>(own_sum_d_mr);
                if (lane / 1 % 2 == 0) {
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 384 + warp_col * 64 + row0 + cell_scatter_first<1, 8, 4>() + i]
                                = own_sum_d_mr[i];
                }
                cell_barrier();
                float sum_d_mr[4];
                cell_load_vec<4>(sum_d_mr, ex + (flip + 384 + row0));
                float part[4];
                cell_load_vec<4>(part, ex + (flip + 448 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_d_mr[r] = sum_d_mr[r] + part[r];
                }
                float value_r[4];  // adjoint of mr[i]   = sigmoid(sum[j] S'[i,j] * mn[j] + bm[i])
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    value_r[r] = (sum_d_mr[r] * (mr_r_2[r] * (1.0f - mr_r_2[r])));
                }
                float sum_d_mc[4];
                cell_load_vec<4>(sum_d_mc, ex + (flip + 128 + col0));
                float part_2[4];
                cell_load_vec<4>(part_2, ex + (flip + 192 + col0));
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    sum_d_mc[c] = sum_d_mc[c] + part_2[c];
                }
                float part_3[4];
                cell_load_vec<4>(part_3, ex + (flip + 256 + col0));
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    sum_d_mc[c] = sum_d_mc[c] + part_3[c];
                }
                float part_4[4];
                cell_load_vec<4>(part_4, ex + (flip + 320 + col0));
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    sum_d_mc[c] = sum_d_mc[c] + part_4[c];
                }
                float value_c[4];  // adjoint of mc[j]   = sigmoid(sum[i] S'[i,j] * mn[i] + bm[j])
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    value_c[c] = (sum_d_mc[c] * (mc_c_2[c] * (1.0f - mc_c_2[c])));
                }
                float mn_r[4];
                cell_load_vec<4>(mn_r, mn_s + (slot * 64 + 0 + row0));
                float d_r_r[4];
                cell_load_vec<4>(d_r_r, d_r_s + (slot * 64 + 0 + row0));
                float W_kvqm_x_c[4];
                cell_load_vec<4>(W_kvqm_x_c, W_kvqm_x_s + (slot * 256 + 128 + col0));
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
                        const float d_S_next = cell_fma(value_r[r], mn_c_2[c],
                                cell_fma(value_c[c], mn_r[r], cell_fma(d_r_r[r], W_kvqm_x_c[c], d_S[r][c])));
                        own_sum_d_ds[r] += (d_S_next * kn_c_2[c]);
                        own_sum_d_sc[c] += ((d_S_next * sr_r_2[r]) * S[r][c]);
                        own_sum_d_sr[r] += ((d_S_next * sc_c_2[c]) * S[r][c]);
                    }
                }
                cell_reduce_scatter_op<cell_op_sum, 1, 8>(own_sum_d_ds);
                if (lane / 1 % 2 == 0) {
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 512 + warp_col * 64 + row0 + cell_scatter_first<1, 8, 4>() + i]
                                = own_sum_d_ds[i];
                }
                cell_reduce_scatter_op<cell_op_sum, 8, 4>(own_sum_d_sc);
                CELL_UNROLL
                for (int i = 0; i < 1; i++)
                    ex[flip + 640 + warp_row * 64 + col0 + cell_scatter_first<8, 4, 4>() + i]
                            = own_sum_d_sc[i];
                cell_reduce_scatter_op<cell_op_sum, 1, 8>(own_sum_d_sr);
                if (lane / 1 % 2 == 0) {
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 896 + warp_col * 64 + row0 + cell_scatter_first<1, 8, 4>() + i]
                                = own_sum_d_sr[i];
                }
                cell_barrier();
                float sum_d_dm[4];
                cell_load_vec<4>(sum_d_dm, ex + (flip + 0 + row0));
                float part_5[4];
                cell_load_vec<4>(part_5, ex + (flip + 64 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_d_dm[r] = sum_d_dm[r] + part_5[r];
                }
                float sum_d_ds[4];
                cell_load_vec<4>(sum_d_ds, ex + (flip + 512 + row0));
                float part_6[4];
                cell_load_vec<4>(part_6, ex + (flip + 576 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_d_ds[r] = sum_d_ds[r] + part_6[r];
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
                float sum_d_sr[4];
                cell_load_vec<4>(sum_d_sr, ex + (flip + 896 + row0));
                float part_7[4];
                cell_load_vec<4>(part_7, ex + (flip + 960 + row0));
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    sum_d_sr[r] = sum_d_sr[r] + part_7[r];
                }
                float value_r_3[4];  // adjoint of sr[i]   = sigmoid(sum[j] M[i,j] * kn[j] + bs[i])
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    value_r_3[r] = (sum_d_sr[r] * (sr_r_2[r] * (1.0f - sr_r_2[r])));
                }
                float sum_d_sc[4];
                cell_load_vec<4>(sum_d_sc, ex + (flip + 640 + col0));
                float part_8[4];
                cell_load_vec<4>(part_8, ex + (flip + 704 + col0));
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    sum_d_sc[c] = sum_d_sc[c] + part_8[c];
                }
                float part_9[4];
                cell_load_vec<4>(part_9, ex + (flip + 768 + col0));
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    sum_d_sc[c] = sum_d_sc[c] + part_9[c];
                }
                float part_10[4];
                cell_load_vec<4>(part_10, ex + (flip + 832 + col0));
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    sum_d_sc[c] = sum_d_sc[c] + part_10[c];
                }
                float value_c_2[4];  // adjoint of sc[j]   = sigmoid(sum[i] M[i,j] * kn[i] + bs[j])
                CELL_UNROLL
                for (int c = 0; c < 4; c++) {
                    value_c_2[c] = (sum_d_sc[c] * (sc_c_2[c] * (1.0f - sc_c_2[c])));
                }
                float kn_r[4];
                cell_load_vec<4>(kn_r, kn_s + (slot * 64 + 0 + row0));
                float value_r_4[4];  // adjoint of dm[i]   = ds[i] - sum[j] M[i,j] * mn[j]
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    value_r_4[r] = (-sum_d_dm[r]);
                }
                float own_sum_d_q[4] = { 0, 0, 0, 0 };
                float own_sum_d_mn[4] = { 0, 0, 0, 0 };
                float own_sum_d_mn_2[4] = { 0, 0, 0, 0 };
                float own_sum_d_kn[4] = { 0, 0, 0, 0 };
                float own_sum_d_kn_2[4] = { 0, 0, 0, 0 };
                CELL_UNROLL
                for (int r = 0; r < 4; r++) {
                    CELL_UNROLL
                    for (int c = 0; c < 4; c++) {
                        const float d_S_next_2 = cell_fma(value_r[r], mn_c_2[c],
                                cell_fma(value_c[c], mn_r[r], cell_fma(d_r_r[r], W_kvqm_x_c[c], d_S[r][c])));
                        // adjoint of S
                        d_S_prev[r][c] = cell_fma(value_r_2[r], kn_c_2[c],
                                cell_mul((d_S_next_2 * sc_c_2[c]), sr_r_2[r]));
                        // adjoint of M
                        d_M_prev[r][c] = cell_fma(value_r_3[r], kn_c_2[c],
                                cell_fma(value_c_2[c], kn_r[r], cell_fma(value_r_4[r], mn_c_2[c],
                                cell_mul((d_M[r][c] * mc_c_2[c]), mr_r_2[r]))));
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
                            own_sum_d_mn_2[c] += (value_r_4[r] * M[r][c]);
                            own_sum_d_mn_2[c] += (value_r[r] * S_after[r][c]);
                            own_sum_d_kn[r] += (value_c_2[c] * M[r][c]);
                            const float d_S_next_3 = cell_fma(value_r[r], mn_c_2[c],
                                    cell_fma(value_c[c], mn_r[r], cell_fma(d_r_r[r], W_kvqm_x_c[c],
                                    d_S[r][c])));
                            own_sum_d_kn_2[c] += (d_S_next_3 * ds_r_2[r]);
                            own_sum_d_kn_2[c] += (value_r_2[r] * S[r][c]);
                            own_sum_d_kn_2[c] += (value_r_3[r] * M[r][c]);
                        }
                    }
                    cell_reduce_scatter_op<cell_op_sum, 8, 4>(own_sum_d_q);
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 1024 + warp_row * 64 + col0 + cell_scatter_first<8, 4, 4>() + i]
                                = own_sum_d_q[i];
                    cell_reduce_scatter_op<cell_op_sum, 1, 8>(own_sum_d_mn);
                    if (lane / 1 % 2 == 0) {
                        CELL_UNROLL
                        for (int i = 0; i < 1; i++)
                            ex[flip + 1280 + warp_col * 64 + row0 + cell_scatter_first<1, 8, 4>() + i]
                                    = own_sum_d_mn[i];
                    }
                    cell_reduce_scatter_op<cell_op_sum, 8, 4>(own_sum_d_mn_2);
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 1408 + warp_row * 64 + col0 + cell_scatter_first<8, 4, 4>() + i]
                                = own_sum_d_mn_2[i];
                    cell_reduce_scatter_op<cell_op_sum, 1, 8>(own_sum_d_kn);
                    if (lane / 1 % 2 == 0) {
                        CELL_UNROLL
                        for (int i = 0; i < 1; i++)
                            ex[flip + 1664 + warp_col * 64 + row0 + cell_scatter_first<1, 8, 4>() + i]
                                    = own_sum_d_kn[i];
                    }
                    cell_reduce_scatter_op<cell_op_sum, 8, 4>(own_sum_d_kn_2);
                    CELL_UNROLL
                    for (int i = 0; i < 1; i++)
                        ex[flip + 1792 + warp_row * 64 + col0 + cell_scatter_first<8, 4, 4>() + i]
                                = own_sum_d_kn_2[i];
                }
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
            CELL_UNROLL_BY(1)
            for (int p = cell_thread(); p < steps * 64; p += 256) {
                const int s = p / 64, x = p % 64;
                const int64_t t = t0 + s;
                const int flip = s * 2048;
                const int slot = half + s;
                (void)t, (void)flip, (void)slot;
                (void)x;
                if (want_d_q) {
                    cell_store((float *)args.ptr[0] + ((b * T + t) * (256) + (128 + x)),
                            ((float)ex[flip + 1024 + x] + (float)ex[flip + 1088 + x]
                            + (float)ex[flip + 1152 + x] + (float)ex[flip + 1216 + x]));
                }
                if (want_d_bm) {
                    const float mr = cell_load<float>(mr_s + (slot * 64 + x));
                    const float mc = cell_load<float>(mc_s + (slot * 64 + x));
                    const float d_bm = cell_fma(((float)ex[flip + 384 + x] + (float)ex[flip + 448 + x]),
                            (mr * (1.0f - mr)), cell_mul(((float)ex[flip + 128 + x]
                            + (float)ex[flip + 192 + x] + (float)ex[flip + 256 + x]
                            + (float)ex[flip + 320 + x]), (mc * (1.0f - mc))));
                    cell_store((float *)args.ptr[1] + ((b * T + t) * (64) + x), d_bm);
                }
                if (want_d_bs) {
                    const float sr = cell_load<float>(sr_s + (slot * 64 + x));
                    const float sc = cell_load<float>(sc_s + (slot * 64 + x));
                    const float d_bs = cell_fma(((float)ex[flip + 896 + x] + (float)ex[flip + 960 + x]),
                            (sr * (1.0f - sr)), cell_mul(((float)ex[flip + 640 + x]
                            + (float)ex[flip + 704 + x] + (float)ex[flip + 768 + x]
                            + (float)ex[flip + 832 + x]), (sc * (1.0f - sc))));
                    cell_store((float *)args.ptr[2] + ((b * T + t) * (64) + x), d_bs);
                }
                if (want_d_q) {
                    const float d_mn = (((float)ex[flip + 1280 + x] + (float)ex[flip + 1344 + x])
                            + ((float)ex[flip + 1408 + x] + (float)ex[flip + 1472 + x]
                            + (float)ex[flip + 1536 + x] + (float)ex[flip + 1600 + x]));
                    cell_store((float *)args.ptr[3] + ((b * T + t) * (64) + x), d_mn);
                }
                if (want_d_ds) {
                    const float d_ds = (((float)ex[flip + 0 + x] + (float)ex[flip + 64 + x])
                            + ((float)ex[flip + 512 + x] + (float)ex[flip + 576 + x]));
                    cell_store((float *)args.ptr[4] + ((b * T + t) * (256) + (64 + x)), d_ds);
                }
                if (want_d_q) {
                    const float d_kn = (((float)ex[flip + 1664 + x] + (float)ex[flip + 1728 + x])
                            + ((float)ex[flip + 1792 + x] + (float)ex[flip + 1856 + x]
                            + (float)ex[flip + 1920 + x] + (float)ex[flip + 1984 + x]));
                    cell_store((float *)args.ptr[5] + ((b * T + t) * (64) + x), d_kn);
                }
            }
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

extern "C" __global__ void __launch_bounds__(256, 1)
e79_bwd_walk(const __grid_constant__ cell_kernel_args args)
{
    if (args.ptr[0] && args.ptr[1] && args.ptr[2] && args.ptr[4])
        e79_bwd_walk_of<true>(args);
    else
        e79_bwd_walk_of<false>(args);
}

extern "C" __global__ void __launch_bounds__(128)
e79_bwd_parts_0(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const float *const p_d_W_kvqm_x = static_cast<const float *>(args.ptr[0]);
    cell_bf16 *const p_parts = static_cast<cell_bf16 *>(args.ptr[1]);
    cell_split_matrix<false, true>(p_parts, p_d_W_kvqm_x, 0, dim_B * dim_T, 256, 256);
}

extern "C" __global__ void __launch_bounds__(128)
e79_bwd_parts_1(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_D = args.size[2];
    const float *const p_W_kvqm = static_cast<const float *>(args.ptr[0]);
    cell_bf16 *const p_parts = static_cast<cell_bf16 *>(args.ptr[1]);
    cell_split_matrix<true, false>(p_parts, p_W_kvqm, 0, 256, dim_D, dim_D);
}

extern "C" __global__ void __launch_bounds__(128)
e79_bwd_parts_2(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_B = args.size[0];
    const int64_t dim_T = args.size[1];
    const int64_t dim_D = args.size[2];
    const float *const p_x = static_cast<const float *>(args.ptr[0]);
    cell_bf16 *const p_parts = static_cast<cell_bf16 *>(args.ptr[1]);
    cell_split_matrix<false, false>(p_parts, p_x, 0, dim_B * dim_T, dim_D, dim_D);
}

