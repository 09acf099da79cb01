template <int N, int V, bool F>
static __device__ __forceinline__ void normed_by(const cell_kernel_args &args)
{
    const int64_t dim_D = args.size[0];
    const cell_bf16 *const p_x = static_cast<const cell_bf16 *>(args.ptr[0]);
    const float *const p_d = static_cast<const float *>(args.ptr[1]);
    float *const p_y = static_cast<float *>(args.ptr[2]);
    float *const p_partial = static_cast<float *>(args.ptr[3]);
    const cell_place<V> length = dim_D;
    const cell_place<V> lane = cell_thread();
    const cell_place<V> lanes = cell_threads();
    auto cursor = cell_shared();
    const cell_smem<float> scratch = cell_carve<float>(cursor, 32);
    cell_row<cell_bf16, N, V> row_x;
    const bool wanted = p_y != nullptr;
    cell_column_sums<float, N, V> columns(wanted ? p_partial : nullptr);
    cell_row_ahead<float, N, V> row_d(cursor);
    float next_m = 0;
    const auto fetch = [&](int64_t row) {
        if (row < 8) {
            CELL_UNROLL_BY(V ? V : 1)
            for (cell_place<V> s = 0; s < V; s++) {
                const cell_place<V> e = (s * lanes + lane) * N;
                if (F || e < length) {
                    row_d.load_or_zero(s, p_d, row * dim_D + e);
                    row_x.load(s, p_x + row * dim_D + e);
                }
            }
            next_m = cell_load_ro<float>(p_d + row);
        }
        cell_cp_async_commit();
    };
    fetch(cell_block_index(0));
    for (int64_t row = cell_block_index(0); row < 8; row += cell_block_count(0)) {
        const float m = next_m;
        row_d.turn();
        fetch(row + cell_block_count(0));
        cell_cp_async_wait<1>();
        float sum = 0;
        CELL_UNROLL_BY(V ? V : 1)
        for (cell_place<V> s = 0; s < cell_slots<V>(length, lanes * N); s++) {
            const cell_place<V> e = (s * lanes + lane) * N;
            if (F || e < length) {
                float v_d[N];
                row_d.values_or_zero(v_d, s, p_d, row * dim_D + e);
                float v_x[N];
                row_x.values(v_x, s, p_x + row * dim_D + e);
                float part[N];
                columns.open(part, s, e, row == 0);
                CELL_UNROLL
                for (int u = 0; u < N; u++) {
                    sum += v_d[u] * v_x[u];
                    part[u] += v_d[u];
                }
                columns.close(part, s, e);
            }
        }
        cell_block_sum(scratch, sum);
        if (lane == 0)
            cell_store(p_y + row, sum + m);
    }
    CELL_UNROLL_BY(V ? V : 1)
    for (cell_place<V> s = 0; s < cell_slots<V>(length, lanes * N); s++) {
        const cell_place<V> e = (s * lanes + lane) * N;
        if (F || e < length)
            columns.flush(s, e, false);
    }
}

extern "C" __global__ void __launch_bounds__(512)
normed(const __grid_constant__ cell_kernel_args args)
{
    const int64_t dim_D = args.size[0];
    if (dim_D % 4 == 0 && dim_D == 16 * cell_threads())
        normed_by<4, 4, true>(args);
    else
        normed_by<1, 0, false>(args);
}

