extern "C" __global__ void __launch_bounds__(128, 2)
chunk_products(const __grid_constant__ cell_kernel_args args)
{
    cell_dependency_wait();
    const int64_t dim_T = args.size[1];
    const cell_bf16 *const p_k = static_cast<const cell_bf16 *>(args.ptr[0]);
    float *const p_s = static_cast<float *>(args.ptr[1]);
    const bool saves_all = args.flags & CELL_KERNEL_SAVE;
    auto cursor = cell_shared();
    const cell_smem<cell_bf16> tile = cell_carve<cell_bf16>(cursor, 2048);
    const cell_smem<float> sums = cell_carve<float>(cursor, 1088);
    // scores of a chunk, from two tiles that are fetched while the one before is used
    float v[4];
    float w[2];
    cell_mma_a<cell_bf16> a;
    cell_mma_b<cell_bf16> b;
    cell_mma_c c;
    const int row = cell_thread() / 4;
    for (int64_t n = cell_block_index(0) * 64; n < dim_T; n += cell_block_count(0) * 64) {
        cell_mma_zero(c);
        CELL_UNROLL
        for (int u = 0; u < 2; u++) {
            cell_cp_async_zfill<16>(tile + (row * 64 + u * 8), p_k + n * 64 + row, n + row < dim_T);
            cell_cp_async_commit();
        }
        cell_cp_async_wait<0>();
        cell_barrier();
        CELL_UNROLL_BY(4)
        for (int64_t i = 0; i < 4; i++) {
            cell_mma_load_a(a, tile + i * 16, 64);
            cell_mma_load_b(b, tile + 1024 + i * 16, 64);
            cell_mma(c, a, b);
        }
        cell_mma_store_c(sums + cell_warp() * 256, 16, c);
        cell_warp_barrier();
        cell_load_vec<4>(v, sums + cell_thread() * 8);
        w[0] = cell_load<float>(sums + cell_thread());
        w[1] = cell_shfl_xor(w[0], 16);
        float total = 0;
        CELL_UNROLL
        for (int u = 0; u < 4; u++)
            total += v[u] * v[u];
        total += w[1];
        const float decay = [&] { float most = -CELL_INF_F;
                for (int64_t j = 0; j < row; j++) most = cell_max(most, cell_load<float>(tile + j));
                return cell_fast_exp((total - most)); }();
        if (saves_all && (n > 0 || row == 0))
            cell_store(p_s + n + row, (decay < 0.5f) ? decay : (-2.0f));
        else
            cell_put(p_s + n, total, args.flags & CELL_KERNEL_ACCUMULATE);
        cell_barrier();
    }
}

