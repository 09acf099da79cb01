// The CUDA side of the device library: storage types, indices, barriers, shuffles, counters, asynchronous
// copies.
//
// In: nvcc or NVRTC, sm_80 or later (clusters: sm_90). Out: the primitives that cell_device.cuh lists.
// Guaranteed: no state, no headers beyond the compiler's own, each primitive one or a few instructions after
// inlining.
#ifndef CELL_DEVICE_CUDA_CUH
#define CELL_DEVICE_CUDA_CUH

#define CELL_FULL_MASK 0xffffffffu
#define CELL_UNROLL _Pragma("unroll")
#define CELL_DETAIL_PRAGMA(text) _Pragma(#text)
#define CELL_UNROLL_BY(n) CELL_DETAIL_PRAGMA(unroll n)

// Storage only: arithmetic is in cell_compute<T>::type.
struct cell_bf16 {
    uint16_t bits;
};
struct cell_f16 {
    uint16_t bits;
};

// Numbers of 8 bits, which are only read.
struct cell_e4m3 {
    uint8_t bits;
};
struct cell_e5m2 {
    uint8_t bits;
};

// What a walk keeps on the chip of states that are within 1 as they are made: f16, whose largest number, 65504, stands for what is
// beyond it, which may be of a state before the first step. NaN stays NaN.
struct cell_kept {
    uint16_t bits;
};

template <class T> constexpr bool cell_is_bf16 = false;
template <> constexpr bool cell_is_bf16<cell_bf16> = true;

// Names the tensor core's rounded f32; never stored.
struct cell_tf32 {
    float value;
};

template <class T> struct cell_compute {
    using type = float;
};
template <> struct cell_compute<double> {
    using type = double;
};

// On the GPU a pointer into shared memory is a pointer.
template <class T> using cell_smem = T *;

// Indices.

__device__ __forceinline__ int cell_thread() { return (int)threadIdx.x; }
__device__ __forceinline__ int cell_threads() { return (int)blockDim.x; }
__device__ __forceinline__ int cell_lane() { return (int)(threadIdx.x & 31); }
__device__ __forceinline__ int cell_warp() { return (int)(threadIdx.x >> 5); }
__device__ __forceinline__ int cell_warps() { return (int)((blockDim.x + 31) >> 5); }

// axis 0, 1, 2 is x, y, z.
__device__ __forceinline__ int64_t cell_block_index(int axis)
{
    return axis == 0 ? blockIdx.x : axis == 1 ? blockIdx.y : blockIdx.z;
}

__device__ __forceinline__ int64_t cell_block_count(int axis)
{
    return axis == 0 ? gridDim.x : axis == 1 ? gridDim.y : gridDim.z;
}

// Conversions. To storage they round to nearest, ties to even, once; overflow goes to infinity.

__device__ __forceinline__ uint16_t cell_detail_bf16_bits(float v)
{
    uint16_t r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
}

__device__ __forceinline__ uint16_t cell_detail_f16_bits(float v)
{
    uint16_t r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
}

__device__ __forceinline__ float cell_detail_f16_value(uint16_t bits)
{
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(bits));
    return r;
}

__device__ __forceinline__ uint16_t cell_detail_kept_bits(float v)
{
    uint16_t r;
    asm("cvt.rn.satfinite.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
}

// What rounds to 16 bits as v does. The f32 nearest to an f64 may lie in the middle of two numbers of 16 bits where v does
// not: so it is the one on the side of zero, its last bit set where that is not exact (odd, it is no middle). bf16 has no
// instruction for it before capability 9.0, and f16's takes as long.
template <class From> __device__ __forceinline__ float cell_detail_sticky(From v) { return (float)v; }
__device__ __forceinline__ float cell_detail_sticky(double v)
{
    float r;
    double back;
    asm("cvt.rz.f32.f64 %0, %1;" : "=f"(r) : "d"(v));
    asm("cvt.f64.f32 %0, %1;" : "=d"(back) : "f"(r));
    return __uint_as_float(__float_as_uint(r) | (back != v ? 1u : 0u)); // a NaN stays one
}

template <class To, class From> struct cell_conversion {
    __device__ __forceinline__ static To apply(From v) { return (To)v; }
};
template <class To> struct cell_conversion<To, cell_bf16> {
    __device__ __forceinline__ static To apply(cell_bf16 v)
    {
        return (To)__uint_as_float((uint32_t)v.bits << 16);
    }
};
template <class To> struct cell_conversion<To, cell_f16> {
    __device__ __forceinline__ static To apply(cell_f16 v) { return (To)cell_detail_f16_value(v.bits); }
};
template <class To> struct cell_conversion<To, cell_kept> {
    __device__ __forceinline__ static To apply(cell_kept v) { return (To)cell_detail_f16_value(v.bits); }
};
// e5m2 is the upper half of an f16. The exponent of e4m3 counts from 7, that of f16 from 15.
__device__ __forceinline__ float cell_detail_e4m3_value(uint8_t bits)
{
    uint32_t size = bits & 0x7fu;
    float v = 256.0f * cell_detail_f16_value((uint16_t)((bits & 0x80u) << 8 | size << 7));
    return size == 0x7fu ? __uint_as_float(0x7fffffffu) : v;
}
template <class To> struct cell_conversion<To, cell_e4m3> {
    __device__ __forceinline__ static To apply(cell_e4m3 v)
    {
        return (To)cell_detail_e4m3_value(v.bits);
    }
};
template <class To> struct cell_conversion<To, cell_e5m2> {
    __device__ __forceinline__ static To apply(cell_e5m2 v)
    {
        return (To)cell_detail_f16_value((uint16_t)((uint16_t)v.bits << 8));
    }
};
template <class From> struct cell_conversion<cell_bf16, From> {
    __device__ __forceinline__ static cell_bf16 apply(From v) { return {cell_detail_bf16_bits(cell_detail_sticky(v))}; }
};
template <class From> struct cell_conversion<cell_f16, From> {
    __device__ __forceinline__ static cell_f16 apply(From v) { return {cell_detail_f16_bits(cell_detail_sticky(v))}; }
};
template <class From> struct cell_conversion<cell_kept, From> {
    __device__ __forceinline__ static cell_kept apply(From v) { return {cell_detail_kept_bits(cell_detail_sticky(v))}; }
};
template <> struct cell_conversion<cell_e4m3, cell_e4m3> {
    __device__ __forceinline__ static cell_e4m3 apply(cell_e4m3 v)
    {
        return v;
    }
};
template <> struct cell_conversion<cell_e5m2, cell_e5m2> {
    __device__ __forceinline__ static cell_e5m2 apply(cell_e5m2 v)
    {
        return v;
    }
};
template <> struct cell_conversion<cell_bf16, cell_bf16> {
    __device__ __forceinline__ static cell_bf16 apply(cell_bf16 v) { return v; }
};
template <> struct cell_conversion<cell_f16, cell_f16> {
    __device__ __forceinline__ static cell_f16 apply(cell_f16 v) { return v; }
};

template <class To, class From> __device__ __forceinline__ To cell_convert(From v)
{
    return cell_conversion<To, From>::apply(v);
}

// Memory. `_ro` loads go through the read-only path: only for data that nobody writes while the kernel runs.

template <class C, class T> __device__ __forceinline__ C cell_load(const T *p) { return cell_convert<C>(*p); }

__device__ __forceinline__ cell_bf16 cell_detail_ldg(const cell_bf16 *p)
{
    return {__ldg(reinterpret_cast<const unsigned short *>(p))};
}
__device__ __forceinline__ cell_f16 cell_detail_ldg(const cell_f16 *p)
{
    return {__ldg(reinterpret_cast<const unsigned short *>(p))};
}
__device__ __forceinline__ cell_e4m3 cell_detail_ldg(const cell_e4m3 *p)
{
    return { __ldg(reinterpret_cast<const unsigned char *>(p)) };
}
__device__ __forceinline__ cell_e5m2 cell_detail_ldg(const cell_e5m2 *p)
{
    return { __ldg(reinterpret_cast<const unsigned char *>(p)) };
}
template <class T> __device__ __forceinline__ T cell_detail_ldg(const T *p) { return __ldg(p); }

template <class C, class T> __device__ __forceinline__ C cell_load_ro(const T *p)
{
    return cell_convert<C>(cell_detail_ldg(p));
}

template <class T, class C> __device__ __forceinline__ void cell_store(T *p, C v) { *p = cell_convert<T>(v); }

// N consecutive elements. The address must be aligned to the smaller of 16 bytes and N elements (the emulator
// checks it); accesses are that wide.

__host__ __device__ constexpr int cell_detail_chunk(int bytes) { return bytes % 16 ? bytes & -bytes : 16; }

template <int Bytes> struct cell_detail_word;
template <> struct cell_detail_word<16> {
    using type = uint4;
};
template <> struct cell_detail_word<8> {
    using type = uint2;
};
template <> struct cell_detail_word<4> {
    using type = unsigned int;
};
template <> struct cell_detail_word<2> {
    using type = unsigned short;
};
template <> struct cell_detail_word<1> {
    using type = unsigned char;
};

template <class T, int N> struct alignas(cell_detail_chunk(N * (int)sizeof(T))) cell_detail_pack {
    T e[N];
};

// The same elements as they lie in memory, half the registers of their values where storage is narrow: loaded
// early or kept, taken apart where they are used.
template <class T, int N> struct cell_vec {
    static constexpr int chunk = cell_detail_chunk(N * (int)sizeof(T));
    static constexpr int words = N * (int)sizeof(T) / chunk;
    using Word = typename cell_detail_word<chunk>::type;
    union {
        Word word[words];
        unsigned int bits[(words * chunk + 3) / 4];
        cell_detail_pack<T, N> pack;
    };
    __device__ __forceinline__ cell_vec() {}
    template <bool ReadOnly> __device__ __forceinline__ void load(const T *p)
    {
        CELL_UNROLL
        for (int w = 0; w < words; w++) {
            const Word *from = reinterpret_cast<const Word *>(p) + w;
            word[w] = ReadOnly ? __ldg(from) : *from;
        }
    }
    __device__ __forceinline__ void clear()
    {
        CELL_UNROLL
        for (int w = 0; w < words; w++)
            word[w] = Word{};
    }
    template <class C> __device__ __forceinline__ void values(C (&dst)[N]) const
    {
        CELL_UNROLL
        for (int i = 0; i < N; i++)
            dst[i] = cell_convert<C>(pack.e[i]);
    }
    // Two of bf16 are an instruction each: the compiler would take the upper one out of its word first.
    __device__ __forceinline__ void values(float (&dst)[N]) const
    {
        if constexpr (cell_is_bf16<T> && chunk >= 4) {
            CELL_UNROLL
            for (int i = 0; i < N; i++)
                dst[i] = __uint_as_float(i % 2 ? bits[i / 2] & 0xffff0000u : bits[i / 2] << 16);
        } else {
            this->template values<float>(dst);
        }
    }
    // The compiler is to take what comes next for new data: else it keeps what it once made of the old, which
    // takes more registers.
    __device__ __forceinline__ void renew()
    {
        if constexpr (chunk >= 4) {
            CELL_UNROLL
            for (int i = 0; i < words * chunk / 4; i++)
                asm volatile("" : "+r"(bits[i]));
        }
    }
};

template <bool ReadOnly, int N, class C, class T>
__device__ __forceinline__ void cell_detail_load_vec(C (&dst)[N], const T *p)
{
    cell_vec<T, N> v;
    v.template load<ReadOnly>(p);
    v.values(dst);
}

template <int N, class C, class T> __device__ __forceinline__ void cell_load_vec(C (&dst)[N], const T *p)
{
    cell_detail_load_vec<false, N>(dst, p);
}

template <int N, class C, class T> __device__ __forceinline__ void cell_load_vec_ro(C (&dst)[N], const T *p)
{
    cell_detail_load_vec<true, N>(dst, p);
}

// Eight or 16 bytes as one number: nvcc otherwise takes them apart into stores of 4 where they come from registers.
template <class Word> __device__ __forceinline__ void cell_detail_store_word(Word *p, Word v) { *p = v; }
__device__ __forceinline__ unsigned long long cell_detail_join(unsigned int low, unsigned int high)
{
    unsigned long long both;
    asm("mov.b64 %0, {%1, %2};" : "=l"(both) : "r"(low), "r"(high));
    return both;
}
__device__ __forceinline__ void cell_detail_store_word(uint2 *p, uint2 v)
{
    *reinterpret_cast<unsigned long long *>(p) = cell_detail_join(v.x, v.y);
}
__device__ __forceinline__ void cell_detail_store_word(uint4 *p, uint4 v)
{
#ifdef __CUDACC_RTC__                /* with --device-int128 */
    typedef unsigned __int128 wide;
#else
    __extension__ typedef unsigned __int128 wide;
#endif
    *reinterpret_cast<wide *>(p) = (wide)cell_detail_join(v.z, v.w) << 64 | cell_detail_join(v.x, v.y);
}

template <int N, class C, class T> __device__ __forceinline__ void cell_store_vec(T *p, const C (&src)[N])
{
    constexpr int chunk = cell_detail_chunk(N * (int)sizeof(T));
    using Word = typename cell_detail_word<chunk>::type;
    constexpr int words = N * (int)sizeof(T) / chunk;
    union {
        Word word[words];
        cell_detail_pack<T, N> pack;
    };
    CELL_UNROLL
    for (int i = 0; i < N; i++)
        pack.e[i] = cell_convert<T>(src[i]);
    CELL_UNROLL
    for (int w = 0; w < words; w++)
        cell_detail_store_word(reinterpret_cast<Word *>(p) + w, word[w]);
}

// Two in one conversion.
template <int N> __device__ __forceinline__ void cell_store_vec(cell_kept *p, const float (&src)[N])
{
    static_assert(N % 2 == 0, "in pairs");
    constexpr int chunk = cell_detail_chunk(N * (int)sizeof(cell_kept));
    using Word = typename cell_detail_word<chunk>::type;
    constexpr int words = N * (int)sizeof(cell_kept) / chunk;
    union {
        Word word[words];
        uint32_t pair[N / 2];
    };
    CELL_UNROLL
    for (int i = 0; i < N / 2; i++)
        asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(pair[i]) : "f"(src[2 * i + 1]), "f"(src[2 * i]));
    CELL_UNROLL
    for (int w = 0; w < words; w++)
        cell_detail_store_word(reinterpret_cast<Word *>(p) + w, word[w]);
}

// Shared memory.

extern __shared__ __align__(16) unsigned char cell_shared_base[];

__device__ __forceinline__ unsigned char *cell_shared() { return cell_shared_base; }

template <class T> __host__ __device__ constexpr int64_t cell_carve_bytes(int64_t count)
{
    return (count * (int64_t)sizeof(T) + 15) / 16 * 16;
}

// The next `count` elements at the cursor, 16-byte aligned; moves the cursor behind them. All threads carve
// the same arrays in the same order; a cursor's place is carved with one size only.
template <class T> __device__ __forceinline__ cell_smem<T> cell_carve(unsigned char *&cursor, int64_t count)
{
    T *p = reinterpret_cast<T *>(cursor);
    cursor += cell_carve_bytes<T>(count);
    return p;
}

// A struct in shared memory, whose members are read by name.
template <class T> __device__ __forceinline__ const T &cell_shared_struct(cell_smem<T> p)
{
    return *p;
}

// Asks for the cache line at p without waiting for it; p may be any address that the kernel may read.
__device__ __forceinline__ void cell_prefetch(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// A kernel launched as dependent may start while the kernel before it ends; what that one wrote may be read
// behind this call. Without such a launch it does nothing.
__device__ __forceinline__ void cell_dependency_wait()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Barriers.

__device__ __forceinline__ void cell_barrier() { __syncthreads(); }
__device__ __forceinline__ void cell_warp_barrier() { __syncwarp(CELL_FULL_MASK); }

// Named barriers between groups of whole warps, id 1 to 15: `count` threads in all, those that arrive (and go
// on) and those that wait. For producers and consumers; threads that do both use a split barrier.
__device__ __forceinline__ void cell_barrier_arrive(int id, int count)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(count) : "memory");
}
__device__ __forceinline__ void cell_barrier_wait(int id, int count)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(count) : "memory");
}

// A split barrier over the whole block: arrive, do other work, wait. Every thread calls each function;
// between two arrives there is a wait. What a thread wrote before its arrive is seen by all after their wait.
struct cell_split_barrier {
    unsigned int address;
    unsigned int phase;
};

__device__ __forceinline__ cell_split_barrier cell_split_carve(unsigned char *&cursor)
{
    unsigned int address = (unsigned int)__cvta_generic_to_shared(cursor);
    cursor += 16;
    return {address, 0};
}

// Once, by all threads, followed by a cell_barrier().
__device__ __forceinline__ void cell_split_init(const cell_split_barrier &b)
{
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(b.address), "r"(cell_warps()) : "memory");
}

__device__ __forceinline__ void cell_split_arrive(const cell_split_barrier &b)
{
    __syncwarp(CELL_FULL_MASK);
    if (cell_lane() == 0)
        asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(b.address)
                     : "memory");
}

__device__ __forceinline__ void cell_split_wait(cell_split_barrier &b)
{
    unsigned int done = 0;
    while (!done) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(b.address), "r"(b.phase)
            : "memory");
#else
        asm volatile(
            "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(b.address), "r"(b.phase)
            : "memory");
#endif
    }
    b.phase ^= 1;
    __syncwarp(CELL_FULL_MASK);
}

// Clusters (sm_90). Code for older devices traps: no plan launches it, since none of its clusters is resident.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define CELL_NEEDS_SM90(...) __trap()
#else
#define CELL_NEEDS_SM90(...) __VA_ARGS__
#endif

__device__ __forceinline__ void cell_cluster_arrive()
{
    CELL_NEEDS_SM90(asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"));
}
__device__ __forceinline__ void cell_cluster_wait()
{
    CELL_NEEDS_SM90(asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"));
#ifdef CELL_SHOW_BLOCK_BARRIER          // for compute-sanitizer's racecheck: tests/ladder/gpu.sh
    __syncthreads();
#endif
}
__device__ __forceinline__ void cell_cluster_barrier()
{
    cell_cluster_arrive();
    cell_cluster_wait();
}
__device__ __forceinline__ int cell_cluster_rank()
{
    unsigned int r = 0;
    CELL_NEEDS_SM90(asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)));
    return (int)r;
}
__device__ __forceinline__ int cell_cluster_size()
{
    unsigned int r = 1;
    CELL_NEEDS_SM90(asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(r)));
    return (int)r;
}

__device__ __forceinline__ unsigned int cell_detail_remote(const void *p, int rank)
{
    unsigned int local = (unsigned int)__cvta_generic_to_shared(p);
    unsigned int remote = local;
    CELL_NEEDS_SM90(asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                                 : "=r"(remote)
                                 : "r"(local), "r"(rank)));
    return remote;
}

// Element *p of the block `rank` of the cluster, for a p into this block's shared memory. T of 2, 4 or 8
// bytes. Ordered by the cluster barrier; a block must not end while others may still reach into it.
template <class T> __device__ __forceinline__ void cell_cluster_store(T *p, int rank, T v)
{
    const unsigned int at = cell_detail_remote(p, rank);
    (void)at;
    if constexpr (sizeof(T) == 8) {
        CELL_NEEDS_SM90(asm volatile("st.shared::cluster.b64 [%0], %1;" ::"r"(at),
                                     "l"(*reinterpret_cast<const unsigned long long *>(&v))
                                     : "memory"));
    } else if constexpr (sizeof(T) == 4) {
        CELL_NEEDS_SM90(asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(at),
                                     "r"(*reinterpret_cast<const unsigned int *>(&v))
                                     : "memory"));
    } else {
        static_assert(sizeof(T) == 2, "2, 4 or 8 bytes");
        CELL_NEEDS_SM90(asm volatile("st.shared::cluster.b16 [%0], %1;" ::"r"(at),
                                     "h"(*reinterpret_cast<const unsigned short *>(&v))
                                     : "memory"));
    }
}

template <class T> __device__ __forceinline__ T cell_cluster_load(T *p, int rank)
{
    const unsigned int at = cell_detail_remote(p, rank);
    (void)at;
    T v = {};
    if constexpr (sizeof(T) == 8) {
        CELL_NEEDS_SM90(asm volatile("ld.shared::cluster.b64 %0, [%1];"
                                     : "=l"(*reinterpret_cast<unsigned long long *>(&v))
                                     : "r"(at)
                                     : "memory"));
    } else if constexpr (sizeof(T) == 4) {
        CELL_NEEDS_SM90(asm volatile("ld.shared::cluster.b32 %0, [%1];"
                                     : "=r"(*reinterpret_cast<unsigned int *>(&v))
                                     : "r"(at)
                                     : "memory"));
    } else {
        static_assert(sizeof(T) == 2, "2, 4 or 8 bytes");
        CELL_NEEDS_SM90(asm volatile("ld.shared::cluster.b16 %0, [%1];"
                                     : "=h"(*reinterpret_cast<unsigned short *>(&v))
                                     : "r"(at)
                                     : "memory"));
    }
    return v;
}

// A barrier of a block that counts the bytes which blocks of its cluster send to it, in rounds. A round is over when
// cell_inbox_expect, called once for it, has said how many it takes and so many have come; what was sent is then
// there for those who wait. A sender must know that the round before is over where it sends to.
struct cell_inbox {
    unsigned int address;
    unsigned int phase;
};

__device__ __forceinline__ cell_inbox cell_inbox_carve(unsigned char *&cursor)
{
    unsigned int address = (unsigned int)__cvta_generic_to_shared(cursor);
    cursor += 16;
    return {address, 0};
}

// Once, by all threads, followed by a cell_cluster_barrier().
__device__ __forceinline__ void cell_inbox_init(const cell_inbox &b)
{
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(b.address) : "memory");
        CELL_NEEDS_SM90(asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"));
    }
}

// By one thread.
__device__ __forceinline__ void cell_inbox_expect(const cell_inbox &b, int bytes)
{
    (void)b, (void)bytes;
    CELL_NEEDS_SM90(asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(
                                     b.address),
                                 "r"(bytes)
                                 : "memory"));
}

// By all threads.
__device__ __forceinline__ void cell_inbox_wait(cell_inbox &b)
{
    unsigned int done = 0;
    while (!done)
        CELL_NEEDS_SM90(asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; "
                                     "selp.u32 %0, 1, 0, p; }"
                                     : "=r"(done)
                                     : "r"(b.address), "r"(b.phase)
                                     : "memory"));
    b.phase ^= 1;
    __syncwarp(CELL_FULL_MASK);
#ifdef CELL_SHOW_BLOCK_BARRIER // racecheck does not follow what other blocks send (tests/ladder/gpu.sh)
    __syncthreads();
#endif
}

// 16 bytes to p of the block `rank`, where b counts them; p and b are this block's own.
template <class T>
__device__ __forceinline__ void cell_cluster_send(T *p, int rank, const cell_inbox &b, const uint32_t (&words)[4])
{
    const unsigned int to = cell_detail_remote(p, rank);
    unsigned int counter = b.address;
    CELL_NEEDS_SM90(asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counter) : "r"(b.address), "r"(rank)));
    (void)to, (void)counter, (void)words;
    CELL_NEEDS_SM90(asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
                                 "[%5];" ::"r"(to),
                                 "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(counter)
                                 : "memory"));
}

// Copies by the bulk copy engine (sm_90), from global to shared memory, of whole 16 bytes at multiples of that: by one thread,
// an inbox of the block counts the bytes, and the block's threads wait for it. The engine, and tensor cores that read shared
// memory, see what threads wrote behind a fence: in shared memory (and may write what they read) of the threads that did,
// before a barrier; in global memory of the thread that copies, behind a wait for the one that wrote.
__device__ __forceinline__ void cell_bulk_fence_shared()
{
    CELL_NEEDS_SM90(asm volatile("fence.proxy.async.shared::cta;" ::: "memory"));
}
__device__ __forceinline__ void cell_bulk_fence_global()
{
    CELL_NEEDS_SM90(asm volatile("fence.proxy.async.global;" ::: "memory"));
}
__device__ __forceinline__ void cell_bulk_wait(cell_inbox &b)
{
    unsigned int done = 0;
    while (!done)
        CELL_NEEDS_SM90(asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                                     "selp.u32 %0, 1, 0, p; }"
                                     : "=r"(done)
                                     : "r"(b.address), "r"(b.phase)
                                     : "memory"));
    b.phase ^= 1;
    __syncwarp(CELL_FULL_MASK);
}
template <class T>
__device__ __forceinline__ void cell_bulk_copy(T *smem, const T *gmem, int count, const cell_inbox &b)
{
    const unsigned int to = (unsigned int)__cvta_generic_to_shared(smem);
    (void)to, (void)gmem, (void)count, (void)b;
    CELL_NEEDS_SM90(asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(__cvta_generic_to_global(gmem)), "r"(count * (int)sizeof(T)), "r"(b.address)
        : "memory"));
}

// Counters in global memory, zeroed before the launch. The blocks that wait for one another must all be
// resident: cooperative launches only. A post releases what the thread wrote, or saw through a barrier; a
// wait acquires it.

__device__ __forceinline__ void cell_counter_post(unsigned int *counter)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(counter)), "r"(1u)
                 : "memory");
}

__device__ __forceinline__ unsigned int cell_detail_counter_read(const unsigned int *counter)
{
    unsigned int v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(v)
                 : "l"(__cvta_generic_to_global(counter))
                 : "memory");
    return v;
}

// Returns when the counter has reached `value` or passed it (it may wrap round).
__device__ __forceinline__ void cell_counter_wait(const unsigned int *counter, unsigned int value)
{
    for (int tries = 0; (int)(cell_detail_counter_read(counter) - value) < 0; tries++) {
        if (tries > 64)
            __nanosleep(32);
    }
}

// The same for a whole block: all of the block's writes are posted, all of its threads have waited. One
// barrier each.
__device__ __forceinline__ void cell_block_post(unsigned int *counter)
{
    __syncthreads();
    if (threadIdx.x == 0)
        cell_counter_post(counter);
}
__device__ __forceinline__ void cell_block_wait(const unsigned int *counter, unsigned int value)
{
    if (threadIdx.x == 0)
        cell_counter_wait(counter, value);
    __syncthreads();
}

// All blocks of a cooperative grid. The counter is used for nothing else and only ever grows: each block that
// comes reads off which round it belongs to.
__device__ __forceinline__ void cell_grid_barrier(unsigned int *counter)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned int blocks = gridDim.x * gridDim.y * gridDim.z;
        unsigned int before;
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                     : "=r"(before)
                     : "l"(__cvta_generic_to_global(counter)), "r"(1u)
                     : "memory");
        cell_counter_wait(counter, (before / blocks + 1) * blocks);
    }
    __syncthreads();
}

// 16 bytes as they lie, from an address aligned to that. From global memory they come past L1: for what another
// block wrote during this kernel, behind a wait for its post.
__device__ __forceinline__ void cell_detail_words(uint32_t (&words)[4], uint4 v)
{
    words[0] = v.x;
    words[1] = v.y;
    words[2] = v.z;
    words[3] = v.w;
}
// What always holds here, for the compiler to leave out conditions that follow from it.
__device__ __forceinline__ void cell_assume(bool holds) { __builtin_assume(holds); }
// A number that is cheaper to keep than the compiler believes, which would compute it again at every use.
__device__ __forceinline__ void cell_keep(int &v) { asm volatile("" : "+r"(v)); }
__device__ __forceinline__ void cell_keep(uint32_t &v) { asm volatile("" : "+r"(v)); }
template <class T> __device__ __forceinline__ void cell_keep(T *&p) { asm volatile("" : "+l"(p)); }

template <class T> __device__ __forceinline__ void cell_load_words(uint32_t (&words)[4], const T *global)
{
    cell_detail_words(words, __ldcg(reinterpret_cast<const uint4 *>(global)));
}
template <class T> __device__ __forceinline__ void cell_store_words(T *global, const uint32_t (&words)[4])
{
    *reinterpret_cast<uint4 *>(global) = uint4{words[0], words[1], words[2], words[3]};
}

// 16 bytes of which other blocks may write words at the same time: each of the four is what it was or what it becomes.
// Nothing else is ordered by it. await is the same once more, because a word was `mark`; it may still be that.
template <class T> __device__ __forceinline__ void cell_watch_words(uint32_t (&words)[4], const T *global)
{
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "l"(__cvta_generic_to_global(global)));
}
template <class T>
__device__ __forceinline__ void cell_await_words(uint32_t (&words)[4], const T *global, uint32_t)
{
    cell_watch_words(words, global);
}
// The same of two such words, aligned to 8 bytes.
template <class T> __device__ __forceinline__ void cell_watch_two(uint32_t &word, uint32_t &next, const T *global)
{
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(word), "=r"(next)
                 : "l"(__cvta_generic_to_global(global)));
}
template <class T> __device__ __forceinline__ void cell_await_two(uint32_t &word, uint32_t &next, const T *global, uint32_t)
{
    cell_watch_two(word, next, global);
}
// One such word, aligned to 4 bytes, and how others write it.
template <class T> __device__ __forceinline__ uint32_t cell_await_word(const T *global, uint32_t)
{
    uint32_t word;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(__cvta_generic_to_global(global)));
    return word;
}
template <class T> __device__ __forceinline__ void cell_show_word(T *global, uint32_t word)
{
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(global)), "r"(word) : "memory");
}
template <class T> __device__ __forceinline__ uint16_t cell_load_bits(const T *global)
{
    return __ldcg(reinterpret_cast<const unsigned short *>(global));
}
template <class T> __device__ __forceinline__ uint32_t cell_load_two(const T *global)
{
    return __ldcg(reinterpret_cast<const unsigned *>(global));
}
template <class T> __device__ __forceinline__ void cell_shared_words(uint32_t (&words)[4], const T *smem)
{
    cell_detail_words(words, *reinterpret_cast<const uint4 *>(smem));
}

// Four matrices of 8 lines of 16 bytes, elements of 2 bytes, by the whole warp: lane i gives the address of line i % 8 of matrix
// i / 8, and gets elements 2 * (i % 4) and the next of line i / 4 of each, or, Across, element i / 4 of those lines.
template <bool Across, class T> __device__ __forceinline__ void cell_load_matrices(uint32_t (&x)[4], const T *line)
{
    static_assert(sizeof(T) == 2, "elements of 2 bytes");
    const unsigned int from = (unsigned int)__cvta_generic_to_shared(line);
    if constexpr (Across)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(from)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(from)
                     : "memory");
}

// Two numbers of 16 bits as a word, the first in its lower half.
__device__ __forceinline__ uint32_t cell_detail_two(cell_bf16, float low, float high)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
__device__ __forceinline__ uint32_t cell_detail_two(cell_f16, float low, float high)
{
    uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

// Shuffles over the whole warp, values of 4 or 8 bytes.

template <class T> __device__ __forceinline__ T cell_shfl_xor(T v, int mask)
{
    return __shfl_xor_sync(CELL_FULL_MASK, v, mask);
}
template <class T> __device__ __forceinline__ T cell_shfl(T v, int lane)
{
    return __shfl_sync(CELL_FULL_MASK, v, lane);
}
template <class T> __device__ __forceinline__ T cell_shfl_up(T v, int n)
{
    return __shfl_up_sync(CELL_FULL_MASK, v, n);
}
template <class T> __device__ __forceinline__ T cell_shfl_down(T v, int n)
{
    return __shfl_down_sync(CELL_FULL_MASK, v, n);
}
__device__ __forceinline__ bool cell_any(bool p) { return __any_sync(CELL_FULL_MASK, p) != 0; }
__device__ __forceinline__ bool cell_all(bool p) { return __all_sync(CELL_FULL_MASK, p) != 0; }

// Asynchronous copies from global to shared memory, of 4, 8 or 16 bytes, both addresses aligned to that. The
// data is there after a wait, for the thread that copied; for the others after a barrier behind that wait.

template <int Bytes, class T>
__device__ __forceinline__ void cell_cp_async_zfill(T *smem, const T *gmem, bool valid)
{
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async copies 4, 8 or 16 bytes");
    const unsigned int to = (unsigned int)__cvta_generic_to_shared(smem);
    const unsigned int from_bytes = valid ? Bytes : 0;
    if constexpr (Bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                     "l"(__cvta_generic_to_global(gmem)), "r"(from_bytes)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to),
                     "l"(__cvta_generic_to_global(gmem)), "r"(from_bytes), "n"(Bytes)
                     : "memory");
}

template <int Bytes, class T> __device__ __forceinline__ void cell_cp_async(T *smem, const T *gmem)
{
    cell_cp_async_zfill<Bytes>(smem, gmem, true);
}

// A word as it lies in memory: an f32 or f64, or two neighbours of 2 bytes. Where p is null, zeros.
template <class W, class T> __device__ __forceinline__ void cell_copy_word(W *smem, const T *gmem)
{
    cell_cp_async<(int)sizeof(W)>(smem, reinterpret_cast<const W *>(gmem));
}
template <class W, class T> __device__ __forceinline__ void cell_copy_word(W *smem, const T *p, int64_t place)
{
    cell_cp_async_zfill<(int)sizeof(W)>(smem, reinterpret_cast<const W *>(p + place), p != nullptr);
}

// For copies, lanes 8 apart are neighbours: so a warp's threads stand in the block then. Four of them share their copies of
// words, 16 bytes for all: each gives the places of its own word. Lanes 0 to 7 copy a line.
__device__ __forceinline__ int cell_place_in_fours()
{
    return cell_thread() - cell_lane() + cell_lane() % 8 * 4 + cell_lane() / 8;
}
template <class W, class T> __device__ __forceinline__ void cell_copy_four(W *smem, const T *gmem)
{
    static_assert(sizeof(W) == 4, "four words are 16 bytes");
    cell_cp_async<16>(smem - cell_lane() / 8, reinterpret_cast<const W *>(gmem) - cell_lane() / 8);
}
template <class W, class T> __device__ __forceinline__ void cell_copy_four(W *smem, const T *p, int64_t place)
{
    static_assert(sizeof(W) == 4, "four words are 16 bytes");
    cell_cp_async_zfill<16>(smem - cell_lane() / 8, reinterpret_cast<const W *>(p + place) - cell_lane() / 8, p != nullptr);
}

// Closes the group of the copies made since the last commit. wait<N> returns when all groups but the N
// youngest have landed.
__device__ __forceinline__ void cell_cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N> __device__ __forceinline__ void cell_cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// What cell_device_math.cuh builds on.

__device__ __forceinline__ float cell_detail_rsqrt(float x) { return rsqrtf(x); }
__device__ __forceinline__ double cell_detail_rsqrt(double x) { return rsqrt(x); }

__device__ __forceinline__ float cell_detail_tanh_approx(float x)
{
    float r;
    asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
__device__ __forceinline__ float cell_detail_ex2_approx(float x)
{
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
__device__ __forceinline__ float cell_detail_lg2_approx(float x)
{
    float r;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
__device__ __forceinline__ float cell_detail_sqrt_approx(float x)
{
    float y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float cell_detail_rcp_approx(float x)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// The smaller one, and the number where the other is NaN; what is positive of x, or NaN.
__device__ __forceinline__ float cell_detail_min_number(float a, float b) { return fminf(a, b); }
__device__ __forceinline__ float cell_detail_positive(float x)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float r;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(r) : "f"(x));
    return r;
#else
    return x < 0.0f ? 0.0f : x;
#endif
}

// Rounded, whatever is done with them: never fused with what they are used in, or made of.
__device__ __forceinline__ float cell_mul(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double cell_mul(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float cell_add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double cell_add(double a, double b) { return __dadd_rn(a, b); }
template <class T> __device__ __forceinline__ T cell_add(T a, T b) { return a + b; }

// What cell_device_mma.cuh builds on.

__device__ __forceinline__ uint32_t cell_detail_float_bits(float v) { return __float_as_uint(v); }
__device__ __forceinline__ float cell_detail_bits_float(uint32_t bits) { return __uint_as_float(bits); }
__device__ __forceinline__ uint32_t cell_detail_tf32_bits(float v)
{
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(v));
    return r;
}

#define CELL_DETAIL_MMA16(type)                                                                              \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                      \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                      \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

__device__ __forceinline__ void cell_detail_mma(cell_bf16, float (&c)[4], const uint32_t (&a)[4],
                                                const uint32_t (&b)[2])
{
    CELL_DETAIL_MMA16("bf16");
}
__device__ __forceinline__ void cell_detail_mma(cell_f16, float (&c)[4], const uint32_t (&a)[4],
                                                const uint32_t (&b)[2])
{
    CELL_DETAIL_MMA16("f16");
}
#undef CELL_DETAIL_MMA16

__device__ __forceinline__ void cell_detail_mma(cell_tf32, float (&c)[4], const uint32_t (&a)[4],
                                                const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// What cell_device_mma.cuh says of doubles.
__device__ __forceinline__ void cell_mma_double(double &c0, double &c1, double a, double b)
{
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(c0), "+d"(c1)
                 : "d"(a), "d"(b));
}

// What cell_device_mma.cuh says of tiles.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
__device__ __forceinline__ void cell_tile_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void cell_tile_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void cell_tile_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// Of a tile in shared memory: 1024 bytes between its halves along k, 128 between every 8 rows.
template <class T> __device__ __forceinline__ unsigned long long cell_detail_tile(const T *p)
{
    const unsigned int address = (unsigned int)__cvta_generic_to_shared(p);
    return (unsigned long long)(address >> 4) | 64ull << 16 | 8ull << 32;
}

#define CELL_DETAIL_SUMS                                                                                         \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define CELL_DETAIL_FOUR(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define CELL_DETAIL_ALL(c)                                                                                     \
    CELL_DETAIL_FOUR(c, 0), CELL_DETAIL_FOUR(c, 4), CELL_DETAIL_FOUR(c, 8), CELL_DETAIL_FOUR(c, 12),           \
        CELL_DETAIL_FOUR(c, 16), CELL_DETAIL_FOUR(c, 20), CELL_DETAIL_FOUR(c, 24), CELL_DETAIL_FOUR(c, 28)
#define CELL_DETAIL_TILE(T, type)                                                                              \
    __device__ __forceinline__ void cell_detail_tile_multiply(T, float (&c)[32], const uint32_t (&a)[4],       \
                                                              unsigned long long b, bool adds)                \
    {                                                                                                          \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0; "                                                 \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " CELL_DETAIL_SUMS           \
                     ", {%32, %33, %34, %35}, %36, p, 1, 1, 0; }"                                              \
                     : CELL_DETAIL_ALL(c)                                                                      \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)adds));                    \
    }                                                                                                          \
    __device__ __forceinline__ void cell_detail_tile_multiply(T, float (&c)[32], unsigned long long a,         \
                                                              unsigned long long b)                            \
    {                                                                                                          \
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " CELL_DETAIL_SUMS           \
                     ", %32, %33, 1, 1, 1, 0, 0;"                                                              \
                     : CELL_DETAIL_ALL(c)                                                                      \
                     : "l"(a), "l"(b));                                                                        \
    }
CELL_DETAIL_TILE(cell_bf16, "bf16")
CELL_DETAIL_TILE(cell_f16, "f16")
#undef CELL_DETAIL_TILE
#undef CELL_DETAIL_ALL
#undef CELL_DETAIL_FOUR
#undef CELL_DETAIL_SUMS

template <class T>
__device__ __forceinline__ void cell_tile_multiply(float (&c)[32], const uint32_t (&a)[4], const T *b, bool adds)
{
    cell_detail_tile_multiply(T(), c, a, cell_detail_tile(b), adds);
}
template <class T> __device__ __forceinline__ void cell_tile_multiply(float (&c)[32], const T *a, const T *b)
{
    cell_detail_tile_multiply(T(), c, cell_detail_tile(a), cell_detail_tile(b));
}
#endif

#endif
