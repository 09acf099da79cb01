// Attention: sums over pairs of steps that are weighed by scores, and their gradients, tile by tile (schedule
// window).
//
//     score(i, j) = f(q_i . k_j, i, j)                    any expression, pairs that are not there left out
//     y_i = sum_j w(i, j) v_j                             w = softmax over j of score, or score itself
//
// One call of a device function is one tile of one head of keys of one sequence. Its rows are pairs of a step
// and a query head, row = i * group + r, for the `group` query heads that share the keys. Keys come in
// segments, each with an address and a range of j: the steps of the call, a history, a prefix.
//
//     forward    y, and L_i = log2 sum_j 2^(score log2 e), which backward takes; in parts where rows are few
//     dots       D_i = y_i . dy_i, less the cotangent of the logarithm of the sum
//     back_rows  dq_i = sum_j g k_j with g = df/d(q.k) w (dy_i . v_j - D_i); gradients of what f reads
//     back_keys  dv_j = sum_i w dy_i, dk_j = sum_i g q_i; sums over i of gradients of what f reads
//
// In: a struct M of facts and functions, and pointers with strides in cell_attention. Guaranteed: any K <=
// M::keys and V <= M::values; nothing is read outside of the operands' rows, keys and values; a tile that M
// proves to have no pair is not read; rows without a pair have y = 0 and no gradient; no atomics, one order
// of sums for given sizes.
#ifndef CELL_DEVICE_ATTENTION_CUH
#define CELL_DEVICE_ATTENTION_CUH

#include "../cell_attention_sizes.h"

enum {
    CELL_ATTENTION_SOFTMAX, // y = sum_j softmax(score) v
    CELL_ATTENTION_WEIGHTS // y = sum_j score v
};

// Of what is learned in the score: which sums of its gradient are left.
enum {
    CELL_ATTENTION_ROW, // over the keys of each row, by back_rows
    CELL_ATTENTION_COLUMN, // over the rows of each key, by back_keys
    CELL_ATTENTION_DISTANCE // over a tile's pairs of each distance i - j of segments 0 and 1, by back_rows
};

struct cell_attention_pair {
    int i, r, j, segment;
};

// M has:
//     typedef Store     of tensors and of products: cell_bf16, cell_f16, float or double; bf16 and f16 go by
//                       tensor cores as they are, float as three products of TF32, double by itself
//     typedef Real      arithmetic: float, or double for double
//     keys, values      K and V padded to multiples of 16, at most CELL_ATTENTION_MOST
//     segments          how many
//     kind              CELL_ATTENTION_SOFTMAX or CELL_ATTENTION_WEIGHTS
//     memory            bytes of shared memory that a block may take
//     apart             where there is wgmma, some of forward's warps only copy: that pays where rows have
//                       many keys
//     scaled            the score is x.scale * dot: neither `score` nor `back` is called
//     sink              a softmax has one place more, without a value, of score sink_score(uses, i, r)
//     terms             things in the score whose gradients are wanted
//     struct Uses       what its functions read
// and, `static`, called by single threads,
//     int term_kind(int n)            constexpr
//     Real score(const Uses &, Real dot, cell_attention_pair)
//     Real back(const Uses &, Real dot, cell_attention_pair, Real d, Real (&g)[terms or 1])
//                                     d: the score's gradient. Returns that of dot; g[n] is that of term n
//     Real sink_score(const Uses &, int i, int r)
//     bool there(const Uses &, cell_attention_pair)
// and, with the same arguments in all threads of a warp, ranges of steps and keys, which may be loose on the
// safe side,
//     void keys_of(const Uses &, int segment, int i0, int i1, int &j0, int &j1)
//                                     narrows [j0, j1) to what [i0, i1) may take
//     void steps_of(const Uses &, int segment, int j0, int j1, int &i0, int &i1)
//                                     narrows [i0, i1) to what may take [j0, j1)
//     bool none(const Uses &, int segment, int i0, int i1, int j0, int j1)        there is no pair
//     bool all(const Uses &, int segment, int i0, int i1, int j0, int j1)         all pairs are there
// Only pairs of steps and keys of the call are asked for.

// Element e of step i of query head r stands at i * row + r * head + e * element, of Real or of Store; of a
// key, at j * row (and head is not looked at).
struct cell_attention_rows {
    const void *at;
    int64_t row, head, element; // of elements; any sign
    bool real;
};
struct cell_attention_result {
    void *at; // null: not wanted
    int64_t row, head, element;
    bool real;
    bool adds; // to what is there
};

// What is added to a gradient of keys [begin, end), each once.
struct cell_attention_more {
    cell_attention_rows from; // row and element only; null: nothing
    int begin, end;
};

template <class M> struct cell_attention_segment {
    static constexpr int slots = M::terms ? M::terms : 1;
    cell_attention_rows k, v;
    cell_attention_result dk, dv;
    cell_attention_more more_k, more_v;
    cell_attention_result d_column[slots]; // of terms of kind COLUMN: row only
    int begin, end; // of j
    // Where not null: key j is row pages[(j - begin) / page] * page + (j - begin) % page of k and v, which
    // have no gradients.
    const int32_t *pages;
    int page;
};

template <class M> struct cell_attention {
    typedef typename M::Real Real;
    static constexpr int slots = M::terms ? M::terms : 1;
    cell_attention_rows q, y, dy; // y, dy: for backward
    cell_attention_result out, kept; // forward's y, in two places: of `kept` backward may read it
    cell_attention_result dq;
    Real *lse; // L of (i, r) at i * lse_row + r * lse_head; +inf of rows without a pair
    int64_t lse_row, lse_head; // null: forward does not leave it
    Real *dots; // D likewise
    int64_t dots_row, dots_head;
    cell_attention_result log; // the natural logarithm of the sum, -inf of rows without a pair; by i and r
    cell_attention_rows d_lse; // its cotangent likewise, or null
    cell_attention_result d_row[slots]; // of terms of kind ROW: by i and r
    Real *d_distance[slots]; // of terms of kind DISTANCE: [tiles of back_rows][distances], all written
    int distances; // i - j is in [0, distances) for all pairs of these
    cell_attention_result d_sink; // by i and r, or null
    cell_attention_segment<M> segment[M::segments];
    // Of split forward: sums of each part and row, [parts][rows][values], and their maximum and sum,
    // [parts][rows][2].
    Real *part_sums, *part_stats;
    int64_t keys, values;
    int steps, group;
    Real scale;
    typename M::Uses uses;
};

template <class M, int Kernel> struct cell_attention_facts {
    typedef typename M::Real Real;
    static constexpr bool softmax = M::kind == CELL_ATTENTION_SOFTMAX;
    __host__ __device__ static constexpr int kinds(int kind)
    {
        int n = 0;
        for (int i = 0; i < M::terms; i++)
            n += M::term_kind(i) == kind;
        return n;
    }
    static constexpr bool distances =
        Kernel == CELL_ATTENTION_BACK_ROWS && kinds(CELL_ATTENTION_DISTANCE) > 0;
    static constexpr cell_attention_shape shape =
        cell_attention_shape_of(Kernel, (int)sizeof(typename M::Store), M::keys, M::values, distances,
                                M::apart, M::memory);
    static constexpr int threads = shape.threads, resident = shape.resident, own = shape.own,
                         others = shape.others, columns = shape.columns, slabs = shape.slabs,
                         stages = shape.stages, smem = shape.smem, copiers = shape.copiers;
    static constexpr bool boxed = shape.boxed != 0, staged = shape.staged != 0;
};

// The least and the most of the integers of steps [from, to), of which there is one at least: step i has that
// at p[i * row]. Called by whole warps.
struct cell_attention_ends {
    int least, most;
};
__device__ __forceinline__ cell_attention_ends cell_attention_ends_of(const int32_t *p, int64_t row, int from,
                                                                      int to)
{
    int i = from + cell_lane();
    int least = p[(i < to ? i : from) * row], most = least;
    CELL_UNROLL_BY(1)
    for (i += 32; i < to; i += 32) {
        const int v = p[i * row];
        least = v < least ? v : least, most = v > most ? v : most;
    }
    CELL_UNROLL
    for (int n = 1; n < 32; n *= 2) {
        const int a = cell_shfl_xor(least, n), b = cell_shfl_xor(most, n);
        least = a < least ? a : least, most = b > most ? b : most;
    }
    return { least, most };
}

// Tiles of a head: rows, or keys of all segments.
__host__ __device__ constexpr int64_t cell_attention_tiles(int64_t rows, int own)
{
    return (rows + own - 1) / own;
}
// Parts of the keys of calls of few rows.
__host__ __device__ constexpr int cell_attention_parts(int64_t keys, int64_t heads)
{
    const int64_t fit = CELL_ATTENTION_PART_BLOCKS / (heads > 1 ? heads : 1);
    const int64_t n = cell_attention_tiles(keys, CELL_ATTENTION_PART_KEYS);
    const int64_t least = n < fit ? n : fit;
    return least < 1 ? 1 : least > CELL_ATTENTION_PARTS ? (int)CELL_ATTENTION_PARTS : (int)least;
}
template <class M>
__host__ __device__ __forceinline__ int cell_attention_key_tiles(const cell_attention<M> &x)
{
    constexpr int own = cell_attention_facts<M, CELL_ATTENTION_BACK_KEYS>::own;
    int n = 0;
    CELL_UNROLL
    for (int s = 0; s < M::segments; s++)
        n += (x.segment[s].end - x.segment[s].begin + own - 1) / own;
    return n;
}

#endif
