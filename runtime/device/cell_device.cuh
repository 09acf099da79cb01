// The device library: everything a generated kernel may call.
//
// In: generated `.cu` files include this header and nothing else. Out: the same source compiles with nvcc
// (sm_80 and later) or NVRTC into GPU code, and with g++ or clang++ against tests/emulator/ into CPU code
// that runs under AddressSanitizer. Guaranteed: both sides offer the same names with the same meaning; on the
// GPU each name is an instruction or a few (a `cell_smem<T>` is a `T *`), on the emulator each one checks its
// own misuse.
//
// Rules for generated code
//  - A kernel is `extern "C" __global__ void __launch_bounds__(threads) k(const __grid_constant__
//    cell_kernel_args args)`.
//  - Blocks are one-dimensional, a multiple of 32 threads. Warp and block primitives are called by all
//    threads of the warp or block, convergently; a kernel with barriers has no early return.
//  - Shared memory is dynamic: `auto cursor = cell_shared();`, then for each array `cell_smem<float> a =
//    cell_carve<float>(cursor, n);`. The launch asks for the sum of `cell_carve_bytes<T>(n)`. Elements are
//    read as `float v = a[i];` and written as `a[i] = v;`. (`auto v = a[i]` is a reference on the emulator:
//    state the type. There is no `&a[i]`: write `a + i`.)
//  - A shuffle does not order shared memory: between a write and another lane's read stands a barrier.
//  - No PTX, cooperative groups, static __shared__, spins or CUDA intrinsics: the names below replace them.
//    `CELL_UNROLL` stands for `#pragma unroll`.
//
// Overview (the included files hold the contracts)
//  types      cell_bf16 cell_f16 cell_kept cell_compute<T>::type  cell_load<C>(p) cell_load_ro<C>(p) cell_store(p, v)
//             cell_e4m3 cell_e5m2: read only
//             cell_load_vec<N>(dst, p) cell_load_vec_ro<N>(dst, p) cell_store_vec<N>(p, src)
//             cell_convert<To>(v) cell_round_to<T>(v): through storage and back
//             cell_vec<T, N>: N elements as stored
//  rows       cell_row<T, N, V> cell_row_ahead<T, N, V> cell_column_sums<C, N, V> cell_place<V>
//             cell_slots<V>(n, step)
//             cell_load_vec_or_zero<N>(dst, p, offset) cell_put(p, v, adds) cell_put_vec<N>(p, v, adds)
//             cell_column_chunks<rows, most, blocks, least, span, group>(rows, columns)
//             cell_chunk_sum(p, begin, end, columns)
//             cell_part_store<N>(smem, v[N]) cell_part_total<N>(smem)
//  matrices   cell_load_own<threads>(v[R][N], p) cell_store_own<threads>(p, v[R][N]) cell_fetch_own<elements, threads>(smem, gmem)
//  sort       cell_sort_count(...) cell_sort_scan(...) cell_sort_move(...): places in order, a digit at a time
//             cell_sort_half(most) cell_sort_entry(...) cell_shares<each, most>(n) cell_share(n, share, shares)
//  sessions   cell_slot_read(args, b) cell_slot_written(args, b): the rows of states
//             cell_slots_take(args) cell_slots_put(args): rows of states to a dense array, and back
//  products   cell_places(args): where the matrices of a batch are
//             cell_few_rows<Rows, Across>(args): products of few rows in f32
//  index      cell_thread() cell_threads() cell_lane() cell_warp() cell_warps()
//             cell_block_index(axis) cell_block_count(axis)
//  shared     cell_shared() cell_carve<T>(cursor, n) cell_carve_bytes<T>(n) cell_smem<T>
//             cell_shared_struct(place)
//  sync       cell_barrier() cell_warp_barrier() cell_barrier_arrive(id, count) cell_barrier_wait(id, count)
//             cell_split_carve(cursor) cell_split_init(b) cell_split_arrive(b) cell_split_wait(b)
//             cell_cluster_arrive() cell_cluster_wait() cell_cluster_barrier() cell_cluster_rank()
//             cell_cluster_size() cell_cluster_store(p, rank, v) cell_cluster_load(p, rank)
//             cell_inbox_carve(cursor) cell_inbox_init(b) cell_inbox_expect(b, bytes) cell_inbox_wait(b)
//             cell_cluster_send(p, rank, b, words)
//             cell_counter_post(p) cell_counter_wait(p, value) cell_block_post(p) cell_block_wait(p, value)
//             cell_grid_barrier(p)
//  shuffles   cell_shfl_xor(v, mask) cell_shfl(v, lane) cell_shfl_up(v, n) cell_shfl_down(v, n)
//             cell_any(p) cell_all(p)
//  reduce     cell_warp_sum(v) cell_group_sum<G>(v) cell_stride_sum<S, G>(v), the same with max, min, prod
//             cell_stride_reduce_all<Op, S, G>(v[R])  cell_block_sum(smem, v...), and max, min, prod
//             cell_reduce_scatter<S, G>(v[R]) cell_scatter_first<S, G, R>() cell_scatter_count(G, R)
//             cell_all_gather<S, G>(out[R], in)
//             cell_reduce_scatter_op<Op, S, G>(v[R])
//             cell_load_matrices<Across>(x, line): four of 8 x 8 from shared memory; cell_pack<T>(low, high) cell_unpack<T>(...)
//  copies     cell_cp_async<bytes>(smem, gmem) cell_cp_async_zfill<bytes>(smem, gmem, valid)
//             cell_copy_word(smem, gmem) cell_copy_word(smem, p, place): as it lies, zeros where p is null
//             cell_copy_four(smem, gmem) cell_copy_four(smem, p, place): the words of four lanes, of which one copies
//             cell_copy_steps<bytes, pieces, pitch, most, threads>(smem, gmem, pitch, steps, thread, valid): the rows of some steps
//             cell_cp_async_commit() cell_cp_async_wait<N>() cell_prefetch(p)
//  launches   cell_dependency_wait()
//  math       cell_exp ... cell_relu, cell_fast_tanh cell_fast_exp cell_fast_sigmoid cell_coarse_sigmoid
//             cell_fma cell_mul cell_add (never fused with others) cell_clamp cell_ste
//             cell_floordiv cell_floormod, and of integers cell_whole_quotient cell_whole_remainder
//             cell_whole_sum cell_whole_difference cell_whole_product cell_whole_power (round at the end of 64 bits)
//             cell_inside cell_nearest
//             cell_sequence_of cell_first_row cell_own_steps: of packed sequences
//             CELL_NAN CELL_INF CELL_NAN_F CELL_INF_F
//  mma        cell_mma (bf16, f16 m16n8k16; tf32 m16n8k8), cell_mma_double, cell_mma_load_a, cell_mma_load_b, cell_mma_load_c,
//             cell_mma_store_c, cell_mma_zero
//  words      cell_load_words(words, global) cell_shared_words(words, smem): 16 bytes as they lie
//             cell_store_words(global, words)
//             cell_watch_words(words, global) cell_await_words(words, global, mark) cell_watch_two(word, next, global)
//             cell_await_two(word, next, global, mark) cell_await_word(global, mark) cell_show_word(global, word): words that other blocks write, and look at, at the same time
//  compiler   cell_assume(p): what always holds, and saves conditions
//  registers  cell_keep(i): an int or a pointer that is not to be computed again
//             cell_load_bits(global): 2 bytes; cell_load_two(global): 4, of two neighbours
//             cell_from_bits<T>(bits) cell_from_two<T>(bits, q): such a number as a float, and that of neighbour q
//  parts      cell_split_matrix<Planes, Rising>(to, from, offset, rows, columns, pitch): f32 as three of bf16
//  window     cell_window_multiply<T, extent>(sums[8], rows, columns, k) cell_window_weigh<T>(sums, weights, columns)
//             cell_window_put(tile, sums) cell_window_row(q) cell_window_column(x): tiles of pairs of steps
//             cell_window_most(shares, near) cell_window_total(shares, part): of a row, by its four threads
//             cell_window_growth(factors, most, near) cell_window_rescale(sums[tiles][8], factors): a maximum grows
//  panel      cell_panel<T, Inner, Outer, Units>: recurrent products with weights in shared memory
//             cell_head<T, Inner, Outer, Units>: by one block; cell_cluster_head<T, Inner, Outer, Units>: by a cluster
//             cell_columns<T>: of many columns for each sequence
//  product    cell_product<T> cell_multiply(x, body): C = A B^T of 16 bits and what is computed from its elements
//             CELL_PRODUCT_THREADS CELL_PRODUCT_SMEM CELL_PRODUCT_MAP_BYTES
//  ahead      cell_product_ahead<T> cell_multiply_ahead<Sums, Fetched>(x, fetch, make): A B, and A of what is fetched for it
//  chunk      cell_chunk<M> cell_chunk_prepare(x, chunk) cell_chunk_walk(x, first): a linear recurrence, C steps at a time
//             cell_chunk_record<M>::bytes cell_chunk_prep<M>::smem() cell_chunk_walker<M>::smem(), ::threads
//             cell_chunk_backward<M> cell_chunk_walk_back(g, first) cell_chunk_finish(g, chunk): its gradients
//             cell_chunk_apart<M>() cell_chunk_read(x, chunk, first) cell_chunk_reads<M>::smem(): what is read, behind the walk
//             cell_chunk_back_walker<M>::smem() cell_chunk_rester<M>::smem() cell_chunk_tile: sums of products by warps
//             cell_chunk_value_sum(x, chunk, first) cell_chunk_value_walk(x, block) cell_chunk_value_read(x, chunk, first)
//             cell_chunk_value_rest(g, chunk), and _back of the first two: with a gate for each value
//             cell_chunk_segments<M>(blocks, chunks) cell_chunk_pass(x, i, n, ...) cell_chunk_join(x, n, ...): segments side by side
//  attention  cell_attention<M> cell_attention_forward(x, block) cell_attention_combine(x, block, parts): weighed sums over pairs of steps
//             cell_attention_dots(x, block) cell_attention_back_rows(x, block) cell_attention_back_keys(x, block): their gradients
//             cell_attention_shape_of(kernel, ...) cell_attention_forward_blocks<M>(rows) and the like: sizes of blocks and grids
#ifndef CELL_DEVICE_CUH
#define CELL_DEVICE_CUH

#ifdef __CUDACC_RTC__
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned long uintptr_t;
#else
#include <stdint.h>
#endif

#include "../cell_kernel_args.h"

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#include "cell_device_cuda.cuh"
#else
#include "cell_emu_device.h"
#endif

// Through storage of type T and back.
template <class T, class C> __device__ __forceinline__ C cell_round_to(C v)
{
    return cell_convert<C>(cell_convert<T>(v));
}
template <class T> __device__ __forceinline__ float cell_from_bits(uint32_t bits)
{
    return cell_convert<float>(T{ (uint16_t)bits });
}
template <class T> __device__ __forceinline__ float cell_from_two(uint32_t bits, int q)
{
    return cell_convert<float>(T{ (uint16_t)(bits >> 16 * q) });
}

#include "cell_device_math.cuh"
#include "cell_device_reduce.cuh"
#include "cell_device_row.cuh"
#include "cell_device_own.cuh"
#include "cell_device_steps.cuh"
#include "cell_device_sort.cuh"
#include "cell_device_slots.cuh"
#include "cell_device_few.cuh"
#include "cell_device_mma.cuh"
#include "cell_device_parts.cuh"
#include "cell_device_window.cuh"
#include "cell_device_panel.cuh"
#include "cell_device_head.cuh"
#include "cell_device_cluster.cuh"
#include "cell_device_columns.cuh"
#include "cell_device_product.cuh"
#include "cell_device_ahead.cuh"
#include "cell_device_chunk.cuh"
#include "cell_device_chunk_chain.cuh"
#include "cell_device_chunk_scores.cuh"
#include "cell_device_chunk_prep.cuh"
#include "cell_device_chunk_warps.cuh"
#include "cell_device_chunk_pairs.cuh"
#include "cell_device_chunk_walk.cuh"
#include "cell_device_chunk_tile.cuh"
#include "cell_device_chunk_back.cuh"
#include "cell_device_chunk_back_warps.cuh"
#include "cell_device_chunk_segments.cuh"
#include "cell_device_chunk_rest.cuh"
#include "cell_device_chunk_coupled.cuh"
#include "cell_device_chunk_apart.cuh"
#include "cell_device_chunk_valued.cuh"
#include "cell_device_attention.cuh"
#include "cell_device_attention_tile.cuh"
#include "cell_device_attention_ring.cuh"
#include "cell_device_attention_forward.cuh"
#include "cell_device_attention_back.cuh"

#endif
