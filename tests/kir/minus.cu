extern "C" __global__ void __launch_bounds__(32)
minus(const __grid_constant__ cell_kernel_args args)
{
    float *const p_x = static_cast<float *>(args.ptr[0]);
    const float a = cell_load<float>(p_x);
    p_x[0] = -(-a);
    p_x[1] = -(-0.0f);
    p_x[2] = -(-CELL_INF_F);
    p_x[3] = -(-a);
    p_x[4] = -(-0.0f);
    p_x[5] = -(-CELL_INF_F);
    p_x[6] = -(-2.0f) - (-2.0f);
}

