extern "C" __global__ void __launch_bounds__(CELL_PRODUCT_THREADS, 1)
product(const __grid_constant__ cell_kernel_args args)
{
    cell_bf16 *const p_a = static_cast<cell_bf16 *>(args.ptr[0]);
    const cell_bf16 *const p_b = static_cast<const cell_bf16 *>(args.ptr[1]);
    cell_bf16 *const p_c = static_cast<cell_bf16 *>(args.ptr[2]);
    const cell_bf16 *const p_x = static_cast<const cell_bf16 *>(args.ptr[3]);
    cell_bf16 *const p_y = static_cast<cell_bf16 *>(args.ptr[4]);
    float *const p_maps = static_cast<float *>(args.ptr[5]);
    int *const p_made = static_cast<int *>(args.ptr[6]);
    float *const p_sums = static_cast<float *>(args.ptr[7]);
    const int64_t dim_D = args.size[0];
    const int64_t dim_T = args.size[1];
    cell_product_agree<214400, 256, 128, 256>();
    const auto body = [&](int64_t row, int64_t column, const float (&v)[8]) {
        float w[8];
        CELL_UNROLL
        for (int u = 0; u < 8; u++)
            w[u] = v[u] * v[u];
        cell_store_vec<8>(p_y + row * dim_D + column, w);
    };
    cell_multiply<cell_bf16>(p_a, dim_D, p_b, dim_D, args.flags & CELL_KERNEL_SAVE ? p_c : nullptr, dim_D,
            dim_T, dim_D, dim_D, p_maps, body);
    const auto fetch = [&](int64_t row, int64_t column, cell_row<cell_bf16, 8, 1> &row_x, cell_row<float, 8,
            1> &row_s) {
        const int64_t e = column;
        row_x.load(0, p_x + row * dim_D + e);
        row_s.load_or_zero(0, p_sums, row * dim_D + e);
    };
    const auto make = [&](int64_t row, int64_t column, float (&sums)[2][8], cell_row<cell_bf16, 8, 1> &row_x,
            cell_row<float, 8, 1> &row_s) {
        const int64_t e = column;
        float v[8];
        row_x.values(v, 0, p_x + row * dim_D + e);
        float s[8];
        row_s.values_or_zero(s, 0, p_sums, row * dim_D + e);
        CELL_UNROLL
        for (int u = 0; u < 8; u++) {
            sums[0][u] += v[u];
            sums[1][u] += s[u];
        }
        cell_store_vec<8>(p_a + row * dim_D + e, v);
    };
    cell_multiply_ahead<2, cell_bf16, cell_bf16, float>(p_a, p_b, dim_D, p_c, dim_D, dim_T, dim_D, dim_D,
            false, p_maps, p_made, p_sums, args.t, fetch, make);
}

