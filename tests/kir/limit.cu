extern "C" __global__ void __launch_bounds__(32)
limit(const __grid_constant__ cell_kernel_args args)
{
    float *const p_x = static_cast<float *>(args.ptr[0]);
    const int64_t n = args.size[0];
    const int64_t m = args.size[1];
    for (int64_t i = n < m ? n : 0; i < (n > m ? n : m); i += n > m ? 1 : 2)
        cell_store(p_x + i, cell_load<float>(p_x + i));
    for (int64_t i = 0; i < (n < m ? n : m) + 1; i++) {
        for (int64_t j = 0; j <= (n == m ? i : m - i); j++)
            cell_store(p_x + i + j, cell_load<float>(p_x + j));
    }
    for (int64_t i = n * m; i > (n > m ? m : n); i--)
        cell_store(p_x + i, cell_load<float>(p_x));
    for (int64_t i = n & 7; i < (n & 15); i++)
        cell_store(p_x + i, cell_load<float>(p_x));
}

