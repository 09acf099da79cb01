// Reductions over lanes, warps and blocks, for both sides of the device library.
//
// In: the shuffles and barriers of cell_device_cuda.cuh or cell_emu_device.h. Out: sums, maxima, minima and
// products whose order of operations depends on nothing but the template arguments. Guaranteed: all lanes of
// a group receive the same bits (the butterfly adds a + b and b + a, which are equal), two runs give the same
// bits, and max and min are NaN if any element is.
//
// A group is described by a stride S and a size G, both powers of two, S * G <= 32: lane l belongs with the
// lanes whose number differs from l in the bits S, 2 S, ... S G / 2 only; its place in the group is g = (l /
// S) % G.
#ifndef CELL_DEVICE_REDUCE_CUH
#define CELL_DEVICE_REDUCE_CUH

struct cell_op_sum {
    template <class T> __device__ __forceinline__ static T apply(T a, T b) { return cell_add(a, b); }
    template <class T> __device__ __forceinline__ static T identity() { return (T)(0); }
};
struct cell_op_prod {
    template <class T> __device__ __forceinline__ static T apply(T a, T b) { return a * b; }
    template <class T> __device__ __forceinline__ static T identity() { return (T)(1); }
};
struct cell_op_max {
    template <class T> __device__ __forceinline__ static T apply(T a, T b) { return cell_max(a, b); }
    template <class T> __device__ __forceinline__ static T identity() { return (T)(-CELL_INF); }
};
struct cell_op_min {
    template <class T> __device__ __forceinline__ static T apply(T a, T b) { return cell_min(a, b); }
    template <class T> __device__ __forceinline__ static T identity() { return (T)(CELL_INF); }
};

__host__ __device__ constexpr bool cell_is_power_of_two(int n) { return n > 0 && (n & (n - 1)) == 0; }

// All lanes of the group get the reduction of their v: log2(G) shuffles.
template <class Op, int S, int G, class T> __device__ __forceinline__ T cell_stride_reduce(T v)
{
    static_assert(cell_is_power_of_two(S) && cell_is_power_of_two(G) && S * G <= 32,
                  "a group lies within one warp");
    CELL_UNROLL
    for (int mask = S; mask < S * G; mask *= 2)
        v = Op::apply(v, cell_shfl_xor(v, mask));
    return v;
}

// The same for R values at once, level by level, so that the shuffles of one level overlap.
template <class Op, int S, int G, int R, class T>
__device__ __forceinline__ void cell_stride_reduce_all(T (&v)[R])
{
    static_assert(cell_is_power_of_two(S) && cell_is_power_of_two(G) && S * G <= 32,
                  "a group lies within one warp");
    CELL_UNROLL
    for (int mask = S; mask < S * G; mask *= 2) {
        CELL_UNROLL
        for (int r = 0; r < R; r++)
            v[r] = Op::apply(v[r], cell_shfl_xor(v[r], mask));
    }
}

// The first r that this lane holds after cell_reduce_scatter<S, G> of R values, and how many it holds from
// there.
template <int S, int G, int R> __device__ __forceinline__ int cell_scatter_first()
{
    const int g = (cell_lane() / S) % G;
    return R >= G ? g * (R / G) : g / (G / R);
}

__host__ __device__ constexpr int cell_scatter_count(int group, int values)
{
    return values >= group ? values / group : 1;
}

// Reduces each v[r] over the group and leaves the results spread over its lanes: afterwards v[i], i <
// cell_scatter_count(G, R), is the reduction of the values r = cell_scatter_first<S, G, R>() + i; the rest of
// v is garbage. Needs R a multiple of G, or R a power of two below G (then G / R lanes hold the same r). R -
// R / G shuffles where log2(G) * R would be needed for all.
template <class Op, int S, int G, int R, class T>
__device__ __forceinline__ void cell_reduce_scatter_op(T (&v)[R])
{
    static_assert(cell_is_power_of_two(S) && cell_is_power_of_two(G) && S * G <= 32,
                  "a group lies within one warp");
    static_assert(R % G == 0 || (R < G && cell_is_power_of_two(R)),
                  "R is a multiple of G or a smaller power of two");
    int held = R;
    CELL_UNROLL
    for (int mask = S * G / 2; mask >= S; mask /= 2) {
        if (held == 1) {
            v[0] = Op::apply(v[0], cell_shfl_xor(v[0], mask));
            continue;
        }
        const bool upper = (cell_lane() & mask) != 0;
        held /= 2;
        CELL_UNROLL
        for (int i = 0; i < R / 2; i++) {
            if (i < held) {
                const T keep = upper ? v[i + held] : v[i];
                const T send = upper ? v[i] : v[i + held];
                v[i] = Op::apply(keep, cell_shfl_xor(send, mask));
            }
        }
    }
}

template <int S, int G, int R, class T> __device__ __forceinline__ void cell_reduce_scatter(T (&v)[R])
{
    cell_reduce_scatter_op<cell_op_sum, S, G>(v);
}

// The way back: the lane gives the cell_scatter_count(G, R) values that cell_reduce_scatter left it, and gets
// all R.
template <int S, int G, int R, class T>
__device__ __forceinline__ void cell_all_gather(T (&out)[R], const T *in)
{
    static_assert(R % G == 0 || (R < G && cell_is_power_of_two(R)),
                  "R is a multiple of G or a smaller power of two");
    constexpr int own = cell_scatter_count(G, R);
    CELL_UNROLL
    for (int i = 0; i < own; i++)
        out[i] = in[i];
    int held = own;
    CELL_UNROLL
    for (int mask = R < G ? S * (G / R) : S; mask < S * G; mask *= 2) {
        const bool upper = (cell_lane() & mask) != 0;
        CELL_UNROLL
        for (int i = 0; i < R / 2; i++) {
            if (i < held) {
                const T mine = out[i];
                const T theirs = cell_shfl_xor(mine, mask);
                out[i] = upper ? theirs : mine;
                out[i + held] = upper ? mine : theirs;
            }
        }
        held *= 2;
    }
}

// Every thread of the block gets the reductions of v... over the block. `scratch` holds 32 elements for each; it
// is free again on return. Two barriers, none for one warp. The order is fixed: a butterfly over the lanes, then one
// over the warps.
template <class Op, class T, class... More>
__device__ __forceinline__ void cell_block_reduce(cell_smem<T> scratch, T &v, More &...more)
{
    constexpr int count = 1 + (int)sizeof...(More);
    T all[count] = {v, more...};
    cell_stride_reduce_all<Op, 1, 32>(all);
    if (cell_warps() > 1) {
        if (cell_lane() == 0) {
            CELL_UNROLL
            for (int i = 0; i < count; i++)
                scratch[cell_warp() * count + i] = all[i];
        }
        cell_barrier();
        const bool holds = cell_lane() < cell_warps();
        CELL_UNROLL
        for (int i = 0; i < count; i++) {
            all[i] = Op::template identity<T>();
            if (holds)
                all[i] = scratch[cell_lane() * count + i];
        }
        cell_stride_reduce_all<Op, 1, 32>(all);
        cell_barrier();
    }
    T *const to[count] = {&v, &more...};
    CELL_UNROLL
    for (int i = 0; i < count; i++)
        *to[i] = all[i];
}

#define CELL_DEFINE_REDUCTIONS(name)                                                                         \
    template <int S, int G, class T> __device__ __forceinline__ T cell_stride_##name(T v)                    \
    {                                                                                                        \
        return cell_stride_reduce<cell_op_##name, S, G>(v);                                                  \
    }                                                                                                        \
    template <int G, class T> __device__ __forceinline__ T cell_group_##name(T v)                            \
    {                                                                                                        \
        return cell_stride_reduce<cell_op_##name, 1, G>(v);                                                  \
    }                                                                                                        \
    template <class T> __device__ __forceinline__ T cell_warp_##name(T v)                                    \
    {                                                                                                        \
        return cell_stride_reduce<cell_op_##name, 1, 32>(v);                                                 \
    }                                                                                                        \
    template <class T, class... V>                                                                           \
    __device__ __forceinline__ void cell_block_##name(cell_smem<T> scratch, V &...v)                          \
    {                                                                                                        \
        cell_block_reduce<cell_op_##name, T>(scratch, v...);                                                 \
    }

CELL_DEFINE_REDUCTIONS(sum)
CELL_DEFINE_REDUCTIONS(prod)
CELL_DEFINE_REDUCTIONS(max)
CELL_DEFINE_REDUCTIONS(min)
#undef CELL_DEFINE_REDUCTIONS

#endif
