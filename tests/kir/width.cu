template <int N, bool F>
static __device__ __forceinline__ void scaled_by(const cell_kernel_args &args)
{
    cell_dependency_wait();
    const int64_t dim_H = args.size[1];
    const cell_bf16 *const p_x = static_cast<const cell_bf16 *>(args.ptr[0]);
    const float *const p_d = static_cast<const float *>(args.ptr[1]);
    float *const p_y = static_cast<float *>(args.ptr[2]);
    const bool adds = args.flags & CELL_KERNEL_ACCUMULATE;
    const int64_t vectors = (dim_H + N - 1) / N;
    const int lanes = cell_row_lanes<128>(vectors);
    const int64_t first = cell_block_index(0) * lanes + cell_thread() % lanes;
    for (int64_t e = first * N; e < dim_H; e += cell_block_count(0) * lanes * N) {
        float v_x[N];
        cell_load_vec_ro<N>(v_x, p_x + e);
        float v_d[N];
        cell_load_vec_or_zero<N>(v_d, p_d, e);
        float w_y[N];
        CELL_UNROLL
        for (int u = 0; u < N; u++)
            w_y[u] = v_x[u] * v_d[u];
        if (F)
            cell_store_vec<N>(p_y + e, w_y);
        else
            cell_put_vec<N>(p_y + e, w_y, adds);
    }
}

extern "C" __global__ void __launch_bounds__(128)
scaled(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_H = args.size[1];
    if (dim_H % 4 == 0 && dim_H >= 1024)
        scaled_by<4, true>(args);
    else if (dim_H % 4 == 0)
        scaled_by<4, false>(args);
    else
        scaled_by<1, false>(args);
}

extern "C" __global__ void __launch_bounds__(128)
scaled_odd(const __grid_constant__ cell_kernel_args args)
{
    scaled_by<1, true>(args);
}

