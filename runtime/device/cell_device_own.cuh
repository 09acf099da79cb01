// A matrix that a block's threads have in registers, as it lies in memory that only they read: of each thread's elements, row
// by row, the first 16 bytes, thread after thread, then the next 16, and at the end what is left, element by element. So
// neighbouring threads meet in the same sectors of memory, and in no bank of shared memory, however many elements each has.
//
// In: a thread's R x N elements, or how many they are; Threads: of the block. Memory has room for all elements of all threads,
// aligned to 16 bytes. A thread reads what it has written itself: no barrier stands between them.
#ifndef CELL_DEVICE_OWN_CUH
#define CELL_DEVICE_OWN_CUH

template <int Threads, class C, int R, int N, class P> __device__ __forceinline__ void cell_load_own(C (&x)[R][N], P p)
{
    constexpr int wide = 16 / (int)sizeof(C), whole = R * N / wide * wide;
    CELL_UNROLL
    for (int e = 0; e < whole; e += wide) {
        C some[wide];
        cell_load_vec<wide>(some, p + (e * Threads + cell_thread() * wide));
        CELL_UNROLL
        for (int i = 0; i < wide; i++)
            x[(e + i) / N][(e + i) % N] = some[i];
    }
    CELL_UNROLL
    for (int e = whole; e < R * N; e++)
        x[e / N][e % N] = cell_load<C>(p + (e * Threads + cell_thread()));
}

template <int Threads, class C, int R, int N, class P> __device__ __forceinline__ void cell_store_own(P p, const C (&x)[R][N])
{
    constexpr int wide = 16 / (int)sizeof(C), whole = R * N / wide * wide;
    CELL_UNROLL
    for (int e = 0; e < whole; e += wide) {
        C some[wide];
        CELL_UNROLL
        for (int i = 0; i < wide; i++)
            some[i] = x[(e + i) / N][(e + i) % N];
        cell_store_vec<wide>(p + (e * Threads + cell_thread() * wide), some);
    }
    CELL_UNROLL
    for (int e = whole; e < R * N; e++)
        cell_store(p + (e * Threads + cell_thread()), x[e / N][e % N]);
}

// From memory to shared memory, without a register in between.
template <int Elements, int Threads, class C> __device__ __forceinline__ void cell_fetch_own(cell_smem<C> to, const C *from)
{
    constexpr int wide = 16 / (int)sizeof(C), whole = Elements / wide * wide;
    CELL_UNROLL
    for (int e = 0; e < whole; e += wide)
        cell_cp_async<16>(to + (e * Threads + cell_thread() * wide), from + (e * Threads + cell_thread() * wide));
    CELL_UNROLL
    for (int e = whole; e < Elements; e++)
        cell_cp_async<(int)sizeof(C)>(to + (e * Threads + cell_thread()), from + (e * Threads + cell_thread()));
}

#endif
