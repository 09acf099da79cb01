// Rows of states, for sessions: args.slots says which rows the sequences read, and behind them which they
// write.
//
// In: of each state z the rows ptr[3z], the dense array ptr[3z + 1], the factors ptr[3z + 2]; size[0]
// sequences, and in size[1 + z] four times its elements (bytes, where it is kept as it is) plus how it is
// kept: 0 as it is, 1 in bf16, 2 in int8 with a factor for each 64. Out: the dense array (cell_slots_take),
// or the rows (cell_slots_put). A grid of shares of a row, sequences, states. The CPU's side of this is
// runtime/sessions.c.
#ifndef CELL_DEVICE_SLOTS_CUH
#define CELL_DEVICE_SLOTS_CUH

// The row of the states that sequence b reads, or writes.
__device__ __forceinline__ int64_t cell_slot_read(const cell_kernel_args &args, int64_t b)
{
    return args.slots ? args.slots[b] : b;
}

__device__ __forceinline__ int64_t cell_slot_written(const cell_kernel_args &args, int64_t b)
{
    return args.slots ? args.slots[args.size[0] + b] : b;
}

// For a batch of products (CELL_OP_PRODUCTS): the t pointers behind the first one, as an array there. That a
// kernel has them as its argument keeps them in a graph that is recorded. What lay there before may still be
// read by the kernel before.
__device__ __forceinline__ void cell_places(const cell_kernel_args &args)
{
    cell_dependency_wait();
    void **to = (void **)args.ptr[0];
    for (int i = cell_thread(); i < args.t; i += cell_threads())
        to[i] = args.ptr[1 + i];
}

struct alignas(16) cell_slot_words {
    uint32_t word[4];
};

// Bytes as they lie, in the widest words that the rows' length has.
template <class Word> __device__ __forceinline__ void cell_slot_copy(Word *to, const Word *from, int64_t n)
{
    const int64_t first = cell_block_index(0) * cell_threads() + cell_thread();
    for (int64_t e = first; e < n; e += cell_block_count(0) * cell_threads())
        to[e] = from[e];
}

__device__ __forceinline__ void cell_slot_move(char *to, const char *from, int64_t bytes)
{
    if (bytes % 16 == 0)
        cell_slot_copy((cell_slot_words *)to, (const cell_slot_words *)from, bytes / 16);
    else if (bytes % 4 == 0)
        cell_slot_copy((uint32_t *)to, (const uint32_t *)from, bytes / 4);
    else
        cell_slot_copy((uint16_t *)to, (const uint16_t *)from, bytes / 2);
}

__device__ __forceinline__ float cell_slot_byte(uint32_t four, int i)
{
    return (float)(signed char)(four >> 8 * i & 255);
}

// Four neighbours a thread, as one word where rows have whole ones, and what is left one by one.
template <class Four, class One>
__device__ __forceinline__ void cell_slot_fours(int64_t n, const Four &four, const One &one)
{
    const int64_t first = cell_block_index(0) * cell_threads() + cell_thread();
    const int64_t step = cell_block_count(0) * cell_threads();
    if (n % 4 == 0) {
        for (int64_t e = first * 4; e < n; e += step * 4)
            four(e);
    } else {
        for (int64_t e = first; e < n; e += step)
            one(e);
    }
}

__device__ __forceinline__ void cell_slots_take(const cell_kernel_args &args)
{
    const int64_t z = cell_block_index(2), n = args.size[1 + z] / 4, kind = args.size[1 + z] % 4;
    for (int64_t b = cell_block_index(1); b < args.size[0]; b += cell_block_count(1)) {
        const int64_t row = args.slots[b];
        if (kind == 0) {
            cell_slot_move((char *)args.ptr[3 * z + 1] + b * n, (const char *)args.ptr[3 * z] + row * n, n);
            continue;
        }
        float *const to = (float *)args.ptr[3 * z + 1] + b * n;
        const cell_bf16 *const halves = (const cell_bf16 *)args.ptr[3 * z] + row * n;
        const signed char *const bytes = (const signed char *)args.ptr[3 * z] + row * n;
        const float *const factors = (const float *)args.ptr[3 * z + 2] + row * ((n + 63) / 64);
        cell_slot_fours(
            n,
            [&](int64_t e) {
                float v[4];
                if (kind == 1) {
                    cell_load_vec<4>(v, halves + e);
                } else {
                    const uint32_t word = *(const uint32_t *)(bytes + e);
                    const float factor = factors[e / 64];
                    CELL_UNROLL
                    for (int i = 0; i < 4; i++)
                        v[i] = cell_slot_byte(word, i) * factor;
                }
                cell_store_vec<4>(to + e, v);
            },
            [&](int64_t e) {
                to[e] = kind == 1 ? cell_load<float>(halves + e) : (float)bytes[e] * factors[e / 64];
            });
    }
}

// 16 lanes have the 64 elements of a factor; what is not finite makes them all NaN.
__device__ __forceinline__ void cell_slot_int8(signed char *to, float *factors, const float *from, int64_t n)
{
    const int64_t groups = (n + 63) / 64, each = cell_threads() / 16;
    for (int64_t base = cell_block_index(0) * each; base < groups; base += cell_block_count(0) * each) {
        const int64_t group = base + cell_thread() / 16, e = group * 64 + cell_thread() % 16 * 4;
        float v[4], most = 0;
        if (n % 4 == 0 && e < n) {
            cell_load_vec<4>(v, from + e);
        } else {
            for (int i = 0; i < 4; i++)
                v[i] = e + i < n ? from[e + i] : 0;
        }
        CELL_UNROLL
        for (int i = 0; i < 4; i++) {
            const float size = v[i] < 0 ? -v[i] : v[i];
            most = size == size ? cell_max(size, most) : CELL_INF_F;
        }
        most = cell_group_max<16>(most);
        if (group < groups && cell_thread() % 16 == 0)
            factors[group] = most / 127.0f;
        uint32_t word = 0;
        CELL_UNROLL
        for (int i = 0; i < 4; i++) {
            const int near = most > 0 && most < CELL_INF_F ? (int)rintf(v[i] / most * 127.0f) : 0;
            word |= (uint32_t)(near & 255) << 8 * i;
        }
        if (n % 4 == 0 && e < n) {
            *(uint32_t *)(to + e) = word;
        } else {
            for (int i = 0; i < 4; i++)
                if (e + i < n)
                    to[e + i] = (signed char)(word >> 8 * i & 255);
        }
    }
}

__device__ __forceinline__ void cell_slots_put(const cell_kernel_args &args)
{
    const int64_t z = cell_block_index(2), n = args.size[1 + z] / 4, kind = args.size[1 + z] % 4;
    for (int64_t b = cell_block_index(1); b < args.size[0]; b += cell_block_count(1)) {
        const int64_t row = args.slots[args.size[0] + b];
        if (kind == 0) {
            cell_slot_move((char *)args.ptr[3 * z] + row * n, (const char *)args.ptr[3 * z + 1] + b * n, n);
            continue;
        }
        const float *const from = (const float *)args.ptr[3 * z + 1] + b * n;
        if (kind == 2) {
            cell_slot_int8((signed char *)args.ptr[3 * z] + row * n,
                           (float *)args.ptr[3 * z + 2] + row * ((n + 63) / 64), from, n);
            continue;
        }
        cell_bf16 *const to = (cell_bf16 *)args.ptr[3 * z] + row * n;
        cell_slot_fours(
            n,
            [&](int64_t e) {
                float v[4];
                cell_load_vec<4>(v, from + e);
                cell_store_vec<4>(to + e, v);
            },
            [&](int64_t e) { cell_store(to + e, from[e]); });
    }
}

#endif
