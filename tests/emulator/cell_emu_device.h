// The emulator's side of the device library: the same names as cell_device_cuda.cuh, each checking its use.
//
// In: included by cell_device.cuh when no CUDA compiler is at work. Out: kernels become plain functions that
// cell_emu_launch can run. Guaranteed: accesses happen in code that the sanitizers instrument; nothing here
// orders memory that CUDA leaves unordered.
#ifndef CELL_EMU_DEVICE_H
#define CELL_EMU_DEVICE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

#define CELL_UNROLL
#define CELL_UNROLL_BY(n)
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#ifndef __restrict__
#define __restrict__ __restrict
#endif

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

// What the emulator's own files define.

enum { CELL_EMU_XOR, CELL_EMU_IDX, CELL_EMU_UP, CELL_EMU_DOWN, CELL_EMU_ANY, CELL_EMU_ALL };
enum { CELL_EMU_BF16, CELL_EMU_F16, CELL_EMU_TF32, CELL_EMU_F64 };

int cell_emu_thread_index(void);
int cell_emu_thread_count(void);
int64_t cell_emu_block_index(int axis);
int64_t cell_emu_block_count(int axis);
int cell_emu_cluster_rank(void);
int cell_emu_cluster_size(void);
uint64_t cell_emu_shuffle(int how, uint64_t value, int operand);
const uint64_t *cell_emu_exchange(uint64_t value); // what all lanes of the warp give
void cell_emu_warp_barrier(void);
void cell_emu_barrier(int id, int count, int wait);
void cell_emu_split_init(size_t offset);
void cell_emu_split_arrive(size_t offset);
void cell_emu_split_wait(size_t offset);
void cell_emu_cluster_arrive(void);
void cell_emu_cluster_wait(void);
void cell_emu_inbox_init(size_t offset);
void cell_emu_inbox_expect(size_t offset, int bytes);
void cell_emu_inbox_wait(size_t offset);
void cell_emu_inbox_send(size_t offset, int rank, int bytes); // behind the write
void cell_emu_counter_wait(const unsigned *counter, unsigned value); // until it has reached value
void cell_emu_word_wait(const unsigned *word, unsigned value);       // until it is not value
void cell_emu_mma(int type, float c[4], const uint32_t a[4], const uint32_t b[2]);
void cell_emu_mma_double(double c[2], double a, double b);
unsigned char *cell_emu_shared_base(void);
size_t cell_emu_shared_offset(const void *p);
unsigned char *cell_emu_carve(unsigned char *cursor, int64_t count, size_t element, size_t *advance);
void cell_emu_read(const void *p, size_t bytes);
void cell_emu_write(const void *p, const void *value, size_t bytes);
unsigned char *cell_emu_remote(const void *p, int rank, size_t bytes, const void *value);
void cell_emu_copy(void *to, const void *from, int bytes);
void cell_emu_copy_commit(void);
void cell_emu_copy_wait(int youngest);
[[noreturn]] void cell_emu_fail_misaligned(const void *p, size_t bytes, const char *what);
[[noreturn]] void cell_emu_fail_assumption(void);
float cell_emu_bf16_value(uint16_t bits);
float cell_emu_f16_value(uint16_t bits);
float cell_emu_fp8_value(uint8_t bits, int exponent_bits, int mantissa_bits);
uint16_t cell_emu_bf16_bits(float v);
uint16_t cell_emu_f16_bits(float v);
uint16_t cell_emu_bf16_bits(double v);
uint16_t cell_emu_f16_bits(double v);
uint32_t cell_emu_tf32_bits(float v);
float cell_emu_approximate(float exact, float input, float relative_error);

// Types.

struct cell_bf16 {
    uint16_t bits;
};
struct cell_f16 {
    uint16_t bits;
};
struct cell_e4m3 {
    uint8_t bits;
};
struct cell_e5m2 {
    uint8_t bits;
};
struct cell_kept {
    uint16_t bits;
};
struct cell_tf32 {
    float value;
};

template <class T> struct cell_compute {
    using type = float;
};
template <> struct cell_compute<double> {
    using type = double;
};

// What is rounded to 16 bits: numbers of f64 as they are, since an f32 between would be a rounding more.
template <class From> inline float cell_emu_wide(From v) { return (float)v; }
inline double cell_emu_wide(double v) { return v; }

template <class To, class From> struct cell_conversion {
    static To apply(From v) { return (To)v; }
};
template <class To> struct cell_conversion<To, cell_bf16> {
    static To apply(cell_bf16 v) { return (To)cell_emu_bf16_value(v.bits); }
};
template <class To> struct cell_conversion<To, cell_f16> {
    static To apply(cell_f16 v) { return (To)cell_emu_f16_value(v.bits); }
};
template <class To> struct cell_conversion<To, cell_kept> {
    static To apply(cell_kept v) { return (To)cell_emu_f16_value(v.bits); }
};
template <class To> struct cell_conversion<To, cell_e4m3> {
    static To apply(cell_e4m3 v) { return (To)cell_emu_fp8_value(v.bits, 4, 3); }
};
template <class To> struct cell_conversion<To, cell_e5m2> {
    static To apply(cell_e5m2 v) { return (To)cell_emu_fp8_value(v.bits, 5, 2); }
};
template <class From> struct cell_conversion<cell_bf16, From> {
    static cell_bf16 apply(From v) { return {cell_emu_bf16_bits(cell_emu_wide(v))}; }
};
template <class From> struct cell_conversion<cell_f16, From> {
    static cell_f16 apply(From v) { return {cell_emu_f16_bits(cell_emu_wide(v))}; }
};
template <class From> struct cell_conversion<cell_kept, From> {
    static cell_kept apply(From v)
    {
        const auto x = cell_emu_wide(v);
        const decltype(x) most = 65504;
        return {cell_emu_f16_bits(x > most ? most : x < -most ? -most : x)};
    }
};
template <> struct cell_conversion<cell_e4m3, cell_e4m3> {
    static cell_e4m3 apply(cell_e4m3 v) { return v; }
};
template <> struct cell_conversion<cell_e5m2, cell_e5m2> {
    static cell_e5m2 apply(cell_e5m2 v) { return v; }
};
template <> struct cell_conversion<cell_bf16, cell_bf16> {
    static cell_bf16 apply(cell_bf16 v) { return v; }
};
template <> struct cell_conversion<cell_f16, cell_f16> {
    static cell_f16 apply(cell_f16 v) { return v; }
};

template <class To, class From> inline To cell_convert(From v) { return cell_conversion<To, From>::apply(v); }

// An element of shared memory: reading and writing it is noted.
template <class T> struct cell_emu_element {
    T *p;
    operator T() const
    {
        const T v = *p; // first, so that AddressSanitizer sees it in this place
        cell_emu_read(p, sizeof(T));
        return v;
    }
    const cell_emu_element &operator=(T v) const
    {
        // The note compares with the old value, so it comes before the store; AddressSanitizer is asked
        // first.
        const volatile unsigned char *bytes = reinterpret_cast<const unsigned char *>(p);
        (void)bytes[0];
        (void)bytes[sizeof(T) - 1];
        cell_emu_write(p, &v, sizeof(T));
        *p = v;
        return *this;
    }
    const cell_emu_element &operator=(const cell_emu_element &o) const { return *this = (T)o; }
    explicit cell_emu_element(T *q) : p(q) {}
    cell_emu_element(const cell_emu_element &) = default;
    const cell_emu_element &operator+=(T v) const { return *this = (T) * this + v; }
    const cell_emu_element &operator-=(T v) const { return *this = (T) * this - v; }
    const cell_emu_element &operator*=(T v) const { return *this = (T) * this * v; }
    const cell_emu_element &operator/=(T v) const { return *this = (T) * this / v; }
};

// A pointer into this block's shared memory.
template <class T> struct cell_smem {
    using element = T;
    T *p;
    cell_smem() : p(nullptr) {}
    explicit cell_smem(T *q) : p(q) {}
    operator cell_smem<const T>() const { return cell_smem<const T>(p); }
    cell_emu_element<T> operator[](int64_t i) const { return cell_emu_element<T>(p + i); }
    cell_emu_element<T> operator*() const { return cell_emu_element<T>(p); }
    cell_smem operator+(int64_t i) const { return cell_smem(p + i); }
    cell_smem operator-(int64_t i) const { return cell_smem(p - i); }
    int64_t operator-(cell_smem o) const { return p - o.p; }
    cell_smem &operator+=(int64_t i)
    {
        p += i;
        return *this;
    }
    cell_smem &operator-=(int64_t i) { return *this += -i; }
    cell_smem &operator++() { return *this += 1; }
    bool operator==(cell_smem o) const { return p == o.p; }
    bool operator!=(cell_smem o) const { return p != o.p; }
};

template <class T> struct cell_smem<const T> {
    using element = const T;
    const T *p;
    cell_smem() : p(nullptr) {}
    explicit cell_smem(const T *q) : p(q) {}
    T operator[](int64_t i) const
    {
        const T v = p[i];
        cell_emu_read(p + i, sizeof(T));
        return v;
    }
    T operator*() const { return (*this)[0]; }
    cell_smem operator+(int64_t i) const { return cell_smem(p + i); }
    cell_smem operator-(int64_t i) const { return cell_smem(p - i); }
    int64_t operator-(cell_smem o) const { return p - o.p; }
    cell_smem &operator+=(int64_t i)
    {
        p += i;
        return *this;
    }
};

// Indices.

inline int cell_thread() { return cell_emu_thread_index(); }
inline int cell_threads() { return cell_emu_thread_count(); }
inline int cell_lane() { return cell_emu_thread_index() & 31; }
inline int cell_warp() { return cell_emu_thread_index() >> 5; }
inline int cell_warps() { return cell_emu_thread_count() >> 5; }
inline int64_t cell_block_index(int axis) { return cell_emu_block_index(axis); }
inline int64_t cell_block_count(int axis) { return cell_emu_block_count(axis); }

// Memory.

inline void cell_emu_check_aligned(const void *p, size_t bytes, const char *what)
{
    if ((uintptr_t)p % bytes)
        cell_emu_fail_misaligned(p, bytes, what);
}

template <class C, class T> inline C cell_load(const T *p) { return cell_convert<C>(*p); }
template <class C, class T> inline C cell_load(cell_smem<T> p)
{
    const std::remove_const_t<T> v = p[0];
    return cell_convert<C>(v);
}
template <class C, class T> inline C cell_load_ro(const T *p) { return cell_convert<C>(*p); }
template <class T, class C> inline void cell_store(T *p, C v) { *p = cell_convert<T>(v); }
template <class T, class C> inline void cell_store(cell_smem<T> p, C v) { p[0] = cell_convert<T>(v); }

__host__ __device__ constexpr int cell_detail_chunk(int bytes) { return bytes % 16 ? bytes & -bytes : 16; }

template <int N, class C, class T> inline void cell_load_vec(C (&dst)[N], const T *p)
{
    cell_emu_check_aligned(p, cell_detail_chunk(N * (int)sizeof(T)), "cell_load_vec");
    for (int i = 0; i < N; i++)
        dst[i] = cell_load<C>(p + i);
}
template <int N, class C, class T> inline void cell_load_vec(C (&dst)[N], cell_smem<T> p)
{
    cell_emu_check_aligned(p.p, cell_detail_chunk(N * (int)sizeof(T)), "cell_load_vec");
    for (int i = 0; i < N; i++)
        dst[i] = cell_load<C>(p + i);
}
template <int N, class C, class T> inline void cell_load_vec_ro(C (&dst)[N], const T *p)
{
    cell_load_vec<N>(dst, p);
}

template <int N, class C, class T> inline void cell_store_vec(T *p, const C (&src)[N])
{
    cell_emu_check_aligned(p, cell_detail_chunk(N * (int)sizeof(T)), "cell_store_vec");
    for (int i = 0; i < N; i++)
        cell_store(p + i, src[i]);
}
template <int N, class C, class T> inline void cell_store_vec(cell_smem<T> p, const C (&src)[N])
{
    cell_emu_check_aligned(p.p, cell_detail_chunk(N * (int)sizeof(T)), "cell_store_vec");
    for (int i = 0; i < N; i++)
        cell_store(p + i, src[i]);
}

template <class T, int N> struct cell_vec {
    T e[N];
    template <bool ReadOnly> void load(const T *p)
    {
        cell_emu_check_aligned(p, cell_detail_chunk(N * (int)sizeof(T)), "cell_vec::load");
        for (int i = 0; i < N; i++)
            e[i] = p[i];
    }
    void clear()
    {
        for (int i = 0; i < N; i++)
            e[i] = T{};
    }
    template <class C> void values(C (&dst)[N]) const
    {
        for (int i = 0; i < N; i++)
            dst[i] = cell_convert<C>(e[i]);
    }
    void renew() {}
};

inline void cell_keep(int &) {}
inline void cell_keep(uint32_t &) {}
template <class T> inline void cell_keep(T *&) {}
inline void cell_assume(bool holds)
{
    if (!holds)
        cell_emu_fail_assumption();
}

template <class T> inline void cell_load_words(uint32_t (&words)[4], const T *p)
{
    cell_emu_check_aligned(p, 16, "cell_load_words");
    T v[16 / sizeof(T)];
    for (size_t i = 0; i < 16 / sizeof(T); i++)
        v[i] = p[i];
    memcpy(words, v, 16);
}
template <class T> inline void cell_store_words(T *p, const uint32_t (&words)[4])
{
    cell_emu_check_aligned(p, 16, "cell_store_words");
    for (size_t i = 0; i < 16 / sizeof(T); i++)
        memcpy(&p[i], (const unsigned char *)words + i * sizeof(T), sizeof(T));
}
template <class T> inline void cell_watch_words(uint32_t (&words)[4], const T *p) { cell_load_words(words, p); }
// Waits until none of the words is `mark`.
template <class T> inline void cell_await_words(uint32_t (&words)[4], const T *p, uint32_t mark)
{
    cell_emu_check_aligned(p, 16, "cell_await_words");
    for (size_t i = 0; i < 4; i++)
        cell_emu_word_wait((const unsigned *)p + i, mark);
    cell_load_words(words, p);
}
template <class T> inline void cell_watch_two(uint32_t &word, uint32_t &next, const T *p)
{
    cell_emu_check_aligned(p, 8, "cell_watch_two");
    memcpy(&word, p, 4);
    memcpy(&next, (const unsigned char *)p + 4, 4);
}
template <class T> inline void cell_await_two(uint32_t &word, uint32_t &next, const T *p, uint32_t mark)
{
    cell_emu_word_wait((const unsigned *)p, mark);
    cell_emu_word_wait((const unsigned *)p + 1, mark);
    cell_watch_two(word, next, p);
}
template <class T> inline uint32_t cell_await_word(const T *p, uint32_t mark)
{
    cell_emu_check_aligned(p, 4, "cell_await_word");
    cell_emu_word_wait((const unsigned *)p, mark);
    uint32_t word;
    memcpy(&word, p, 4);
    return word;
}
template <class T> inline void cell_show_word(T *p, uint32_t word)
{
    cell_emu_check_aligned(p, 4, "cell_show_word");
    memcpy(p, &word, 4);
}
template <class T> inline uint16_t cell_load_bits(const T *p) { return p->bits; }
template <class T> inline uint32_t cell_load_two(const T *p)
{
    cell_emu_check_aligned(p, 4, "cell_load_two");
    return p[0].bits | (uint32_t)p[1].bits << 16;
}
template <class T> inline void cell_shared_words(uint32_t (&words)[4], cell_smem<T> p)
{
    cell_emu_check_aligned(p.p, 16, "cell_shared_words");
    std::remove_const_t<T> v[16 / sizeof(T)];
    for (size_t i = 0; i < 16 / sizeof(T); i++)
        v[i] = p[(int64_t)i];
    memcpy(words, v, 16);
}

// Shared memory.

inline unsigned char *cell_shared() { return cell_emu_shared_base(); }

// Launches follow one another here.
inline void cell_dependency_wait() {}

// Reads the byte, so that an address outside its buffer is found.
inline void cell_prefetch(const void *p) { (void)*(const volatile unsigned char *)p; }

template <class T> constexpr int64_t cell_carve_bytes(int64_t count)
{
    return (count * (int64_t)sizeof(T) + 15) / 16 * 16;
}

template <class T> inline cell_smem<T> cell_carve(unsigned char *&cursor, int64_t count)
{
    size_t advance;
    unsigned char *at = cell_emu_carve(cursor, count, sizeof(T), &advance);
    cursor += advance;
    return cell_smem<T>(reinterpret_cast<T *>(at));
}

// A struct in shared memory, whose members are read by name: their reads are not noted.
template <class T> inline const T &cell_shared_struct(cell_smem<T> p) { return *p.p; }

// Barriers.

inline void cell_barrier() { cell_emu_barrier(0, 0, 1); }
inline void cell_warp_barrier() { cell_emu_warp_barrier(); }
inline void cell_barrier_arrive(int id, int count) { cell_emu_barrier(id, count, 0); }
inline void cell_barrier_wait(int id, int count) { cell_emu_barrier(id, count, 1); }

struct cell_split_barrier {
    size_t offset;
};
inline cell_split_barrier cell_split_carve(unsigned char *&cursor)
{
    size_t advance;
    unsigned char *at = cell_emu_carve(cursor, 16, 1, &advance);
    cursor += advance;
    return {cell_emu_shared_offset(at)};
}
inline void cell_split_init(const cell_split_barrier &b) { cell_emu_split_init(b.offset); }
inline void cell_split_arrive(const cell_split_barrier &b) { cell_emu_split_arrive(b.offset); }
inline void cell_split_wait(cell_split_barrier &b) { cell_emu_split_wait(b.offset); }

// Clusters.

inline void cell_cluster_arrive() { cell_emu_cluster_arrive(); }
inline void cell_cluster_wait() { cell_emu_cluster_wait(); }
inline void cell_cluster_barrier()
{
    cell_cluster_arrive();
    cell_cluster_wait();
}
inline int cell_cluster_rank() { return cell_emu_cluster_rank(); }
inline int cell_cluster_size() { return cell_emu_cluster_size(); }
template <class T, class V> inline void cell_cluster_store(cell_smem<T> p, int rank, V value)
{
    const T v = value;
    *reinterpret_cast<T *>(cell_emu_remote(p.p, rank, sizeof(T), &v)) = v;
}
template <class T> inline std::remove_const_t<T> cell_cluster_load(cell_smem<T> p, int rank)
{
    return *reinterpret_cast<T *>(cell_emu_remote(p.p, rank, sizeof(T), nullptr));
}

// Inboxes: what is sent is there at once, but may be read behind the wait only.

struct cell_inbox {
    size_t offset;
};
inline cell_inbox cell_inbox_carve(unsigned char *&cursor)
{
    size_t advance;
    unsigned char *at = cell_emu_carve(cursor, 16, 1, &advance);
    cursor += advance;
    return {cell_emu_shared_offset(at)};
}
inline void cell_inbox_init(const cell_inbox &b) { cell_emu_inbox_init(b.offset); }
inline void cell_inbox_expect(const cell_inbox &b, int bytes) { cell_emu_inbox_expect(b.offset, bytes); }
inline void cell_inbox_wait(cell_inbox &b) { cell_emu_inbox_wait(b.offset); }
template <class T>
inline void cell_cluster_send(cell_smem<T> p, int rank, const cell_inbox &b, const uint32_t (&words)[4])
{
    cell_emu_check_aligned(p.p, 16, "cell_cluster_send");
    memcpy(cell_emu_remote(p.p, rank, 16, words), words, 16);
    cell_emu_inbox_send(b.offset, rank, 16);
}

// Bulk copies: likewise.

inline void cell_bulk_fence_shared() {}
inline void cell_bulk_fence_global() {}
inline void cell_bulk_wait(cell_inbox &b) { cell_inbox_wait(b); }
template <class T> inline void cell_bulk_copy(cell_smem<T> to, const T *from, int count, const cell_inbox &b)
{
    cell_emu_check_aligned(to.p, 16, "cell_bulk_copy");
    cell_emu_check_aligned(from, 16, "cell_bulk_copy");
    for (int i = 0; i < count; i++)
        to[i] = from[i];
    cell_emu_inbox_send(b.offset, cell_emu_cluster_rank(), count * (int)sizeof(T));
}

// Counters.

inline void cell_counter_post(unsigned *counter) { ++*counter; }
inline void cell_counter_wait(const unsigned *counter, unsigned value)
{
    cell_emu_counter_wait(counter, value);
}
inline void cell_block_post(unsigned *counter)
{
    cell_barrier();
    if (cell_thread() == 0)
        cell_counter_post(counter);
}
inline void cell_block_wait(const unsigned *counter, unsigned value)
{
    if (cell_thread() == 0)
        cell_counter_wait(counter, value);
    cell_barrier();
}
inline void cell_grid_barrier(unsigned *counter)
{
    cell_barrier();
    if (cell_thread() == 0) {
        const unsigned blocks = (unsigned)(cell_block_count(0) * cell_block_count(1) * cell_block_count(2));
        const unsigned before = (*counter)++;
        cell_counter_wait(counter, (before / blocks + 1) * blocks);
    }
    cell_barrier();
}

// Shuffles.

template <class T> inline T cell_emu_shuffle_value(int how, T v, int operand)
{
    static_assert(std::is_arithmetic<T>::value,
                  "a shuffle takes a number; state its type: `float v = a[i];`");
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof v);
    bits = cell_emu_shuffle(how, bits, operand);
    memcpy(&v, &bits, sizeof v);
    return v;
}

template <class T> inline T cell_shfl_xor(T v, int mask)
{
    return cell_emu_shuffle_value(CELL_EMU_XOR, v, mask);
}
template <class T> inline T cell_shfl(T v, int lane) { return cell_emu_shuffle_value(CELL_EMU_IDX, v, lane); }
template <class T> inline T cell_shfl_up(T v, int n) { return cell_emu_shuffle_value(CELL_EMU_UP, v, n); }
template <class T> inline T cell_shfl_down(T v, int n) { return cell_emu_shuffle_value(CELL_EMU_DOWN, v, n); }
inline bool cell_any(bool p) { return cell_emu_shuffle(CELL_EMU_ANY, p, 0) != 0; }
inline bool cell_all(bool p) { return cell_emu_shuffle(CELL_EMU_ALL, p, 0) != 0; }

template <bool Across, class T> inline void cell_load_matrices(uint32_t (&x)[4], cell_smem<T> line)
{
    static_assert(sizeof(T) == 2, "elements of 2 bytes");
    cell_emu_check_aligned(line.p, 16, "cell_load_matrices");
    const int row = cell_lane() / 4, pair = cell_lane() % 4 * 2;
    const uint64_t *lines = cell_emu_exchange((uint64_t)(uintptr_t)line.p);
    for (int m = 0; m < 4; m++) {
        uint32_t halves[2];
        for (int i = 0; i < 2; i++) {
            const uint64_t from = lines[m * 8 + (Across ? pair + i : row)];
            const std::remove_const_t<T> v = cell_smem<T>((T *)(uintptr_t)from)[Across ? row : pair + i];
            halves[i] = v.bits;
        }
        x[m] = halves[0] | halves[1] << 16;
    }
}
inline void cell_mma_double(double &c0, double &c1, double a, double b)
{
    double c[2] = { c0, c1 };
    cell_emu_mma_double(c, a, b);
    c0 = c[0];
    c1 = c[1];
}
inline uint32_t cell_detail_two(cell_bf16, float low, float high)
{
    return cell_emu_bf16_bits(low) | (uint32_t)cell_emu_bf16_bits(high) << 16;
}
inline uint32_t cell_detail_two(cell_f16, float low, float high)
{
    return cell_emu_f16_bits(low) | (uint32_t)cell_emu_f16_bits(high) << 16;
}

// Asynchronous copies.

template <int Bytes, class T, class S>
inline void cell_cp_async_zfill(cell_smem<T> smem, const S *gmem, bool valid)
{
    static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async copies 4, 8 or 16 bytes");
    static_assert(std::is_same<T, std::remove_const_t<S>>::value, "both sides have one type");
    cell_emu_check_aligned(smem.p, Bytes, "cell_cp_async (shared)");
    cell_emu_check_aligned(gmem, Bytes, "cell_cp_async (global)");
    // AddressSanitizer sees both sides here, byte by byte.
    volatile unsigned char *to = reinterpret_cast<unsigned char *>(smem.p);
    const volatile unsigned char *from = reinterpret_cast<const unsigned char *>(gmem);
    for (int i = 0; i < Bytes; i++) {
        (void)to[i];
        if (valid)
            (void)from[i];
    }
    cell_emu_copy(smem.p, valid ? gmem : nullptr, Bytes);
}
template <int Bytes, class T, class S> inline void cell_cp_async(cell_smem<T> smem, const S *gmem)
{
    cell_cp_async_zfill<Bytes>(smem, gmem, true);
}
template <class W, class T> inline void cell_copy_word(cell_smem<W> smem, const T *gmem)
{
    cell_cp_async<(int)sizeof(W)>(smem, reinterpret_cast<const W *>(gmem));
}
template <class W, class T> inline void cell_copy_word(cell_smem<W> smem, const T *p, int64_t place)
{
    cell_cp_async_zfill<(int)sizeof(W)>(smem, p ? reinterpret_cast<const W *>(p + place) : nullptr, p != nullptr);
}
inline int cell_place_in_fours() { return cell_thread() - cell_lane() + cell_lane() % 8 * 4 + cell_lane() / 8; }
template <class W, class T> inline void cell_copy_four(cell_smem<W> smem, const T *gmem)
{
    cell_cp_async<16>(smem - cell_lane() / 8, reinterpret_cast<const W *>(gmem) - cell_lane() / 8);
}
template <class W, class T> inline void cell_copy_four(cell_smem<W> smem, const T *p, int64_t place)
{
    const W *from = p ? reinterpret_cast<const W *>(p + place) - cell_lane() / 8 : nullptr;
    cell_cp_async_zfill<16>(smem - cell_lane() / 8, from, p != nullptr);
}
inline void cell_cp_async_commit() { cell_emu_copy_commit(); }
template <int N> inline void cell_cp_async_wait() { cell_emu_copy_wait(N); }

// What the math and mma headers build on. The approximations are wrong by as much as the hardware's may be.

inline float cell_detail_rsqrt(float x) { return 1.0f / sqrtf(x); }
inline double cell_detail_rsqrt(double x) { return 1.0 / sqrt(x); }
inline float cell_detail_tanh_approx(float x)
{
    const float r = cell_emu_approximate(tanhf(x), x, 0x1p-11f);
    return r > 1.0f ? 1.0f : r < -1.0f ? -1.0f : r;
}
inline float cell_detail_ex2_approx(float x)
{
    const float r = exp2f(x);
    return r < 0x1p-126f ? 0.0f : cell_emu_approximate(r, x, 0x1p-22f);
}
inline float cell_detail_lg2_approx(float x)      // 2^-22 absolute between 1 and 2
{
    return log2f(x) + (cell_emu_approximate(1.0f, x, 0x1p-22f) - 1.0f);
}
inline float cell_detail_sqrt_approx(float x)
{
    return sqrtf(x);
}

inline float cell_mul(float a, float b)
{
    return a * b;
}
inline double cell_mul(double a, double b)
{
    return a * b;
}
template <class T> inline T cell_add(T a, T b)
{
    return a + b;
}

inline float cell_detail_min_number(float a, float b) { return fminf(a, b); }
inline float cell_detail_positive(float x) { return x < 0.0f ? 0.0f : x; }

inline float cell_detail_rcp_approx(float x)
{
    const float r = 1.0f / x;
    return fabsf(r) < 0x1p-126f ? copysignf(0.0f, r) : cell_emu_approximate(r, x, 0x1p-23f);
}
inline uint32_t cell_detail_float_bits(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    return bits;
}
inline float cell_detail_bits_float(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, 4);
    return v;
}
inline uint32_t cell_detail_tf32_bits(float v) { return cell_emu_tf32_bits(v); }
inline void cell_detail_mma(cell_bf16, float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    cell_emu_mma(CELL_EMU_BF16, c, a, b);
}
inline void cell_detail_mma(cell_f16, float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    cell_emu_mma(CELL_EMU_F16, c, a, b);
}
inline void cell_detail_mma(cell_tf32, float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    cell_emu_mma(CELL_EMU_TF32, c, a, b);
}

#endif
