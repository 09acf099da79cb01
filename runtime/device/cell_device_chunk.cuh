// Linear recurrences C steps at a time: what one head of one sequence is (schedule chunk).
//
// A step t (a row) does this to a state S of K keys and V values, its additions numbered n and its reads r:
//
//     d_n = z_n + w' S                 z_n: over values, or absent; w: addition 0 may have one, a correction
//     S  <- a o S + sum_n c_n d_n'     a: nothing, a number, or a number per key; c_n, w: over keys
//     o_r = q_r' S                     of S before the row, or behind it
//
// C rows at a time it is a few products, with R the rows of d_0 where it has a w (else they are z_0), windows
// G of a:
//
//     R   = z_0 + sum L_n z_n + W S_0                                      n: the writes, which have no w
//     o_r = Q_r S_0 + P_r R + sum A_rn z_n
//     S_C = D S_0 + X' R + sum E_n' z_n
//
// L_n = scores of w and c_n, A_rn = scores of q_r and c_n, F = (I - L_0)^-1, P_r = A_r0 F, X = F' E_0; W, Q,
// E are w and q from the chunk's start, and c to its end, with their windows. What needs no S_0 is made for
// all chunks at once by `prep` (cell_device_chunk_prep.cuh), one record for each chunk; `walk`
// (cell_device_chunk_walk.cuh) goes over the chunks.
//
// In: a struct M of facts, and pointers with strides in cell_chunk. Guaranteed: any K <= M::keys and V, any
// number of steps; nothing is read outside of an operand's rows, keys and values; no atomics, one order of
// sums. Gates may be 0 or negative: windows are products of gates.
//
// Two states S_0 and S_1 that feed one another are one of twice as many keys: element k of state i is key
// 2 k + i of S, and so it is of c, w and q. Then a is a matrix of 2 x 2 numbers a row,
//
//     S_i <- sum_j a_ij S_j + sum_n c_ni d_n'
//
// and windows are products of matrices (cell_device_chunk_coupled.cuh).
#ifndef CELL_DEVICE_CHUNK_CUH
#define CELL_DEVICE_CHUNK_CUH

// M has:
//     typedef Real     arithmetic: double or float
//     typedef Part     operands of products in records and saved states: Real, or cell_bf16 or cell_f16 where
//                      Real is float
//     typedef Store    the caller's tensors
// and, as `static constexpr int`,
//     rows             C: 16, 32 or 64
//     keys             K padded to a multiple of 16
//     values           of a block of a walk: 16, 32, 48 or 64
//     read_values      of a block that makes reads apart: a multiple of 16
//     additions, reads how many
//     corrected        1: addition 0 has a w
//     known            bit n: addition n has a z; all writes do
//     before           bit r: read r is of S before the row
//     rest_keys        keys that rest takes at a time: 16, 32, 64, or all; a divisor of keys
//     rest_values      values that rest takes at a time: a multiple of 16
//     rest_threads     of its blocks: 128, or 256 or 512 where rows are 64
//     stages           chunks that a walk has in shared memory at a time, where Real is float: 1 to 3
//     decay            0: none, 1: a number, 2: a number per key, 3: a matrix of two states, 4: a number per
//                      value, whose kernels are of cell_device_chunk_valued.cuh
//     together         rows of one update: 1, 2, 4, 8 or 16. What they add with a w, and reads before them, are
//                      of S in front of the first of them; the gates of the others are 1

// Reads apart: with no correction, and one gate a row or none, what is added does not depend on the state. So
// on tensor cores the walk is of states only, and a block for each chunk has the scores and makes o
// (cell_device_chunk_apart.cuh): records have no matrices.
template <class M> __host__ __device__ constexpr bool cell_chunk_apart()
{
    return M::corrected == 0 && M::decay <= 1 && sizeof(typename M::Real) == 4;
}

// Row t of a chunk: the first row of its update, in front of which a w and reads before it see S.
template <class M> __host__ __device__ constexpr int cell_chunk_front(int t)
{
    return t - t % M::together;
}

// Vectors of the rows of a head: element k of row t stands at (t * row + k * element) of Real or of Store.
struct cell_rows {
    const void *at;
    int64_t row, element; // of elements; any sign
    bool real;
};

// The number of a row: times * at[t * row], or times where `at` is null.
struct cell_row_number {
    const void *at;
    int64_t row;
    bool real;
    double times;
};

struct cell_chunk_vector {
    cell_rows vector;
    cell_row_number number;
};

struct cell_chunk_addition {
    cell_chunk_vector column, known, weight; // c, z, w; what M says to be absent is not looked at
};

// Where the elements of a state stand: (k * key + v * value). `at` may be null: zeros, or not stored. Where
// `paired`, S_0 of two states stands so, and S_1 at `other`.
struct cell_chunk_state {
    void *at;
    int64_t key, value;
    bool real, paired;
    void *other;
};

// An element of a state: its memory, or null, and its number there.
struct cell_chunk_spot {
    void *at;
    int64_t element;
};
template <class M>
__device__ __forceinline__ cell_chunk_spot cell_chunk_spot_of(const cell_chunk_state &s, int64_t k, int64_t v)
{
    const bool paired = M::decay == 3 && s.paired;
    return {paired && k % 2 ? s.other : s.at, (paired ? k / 2 : k) * s.key + v * s.value};
}
template <class M>
__device__ __forceinline__ bool cell_chunk_there(const cell_chunk_state &s)
{
    return s.at || (M::decay == 3 && s.other);
}

struct cell_chunk_result {
    void *at; // null: not stored
    int64_t row, element;
    bool real, adds; // adds: of a gradient, it is added to what is there
};

// One head of one sequence. Pointers stand at row 0, key 0 and value 0.
template <class M> struct cell_chunk {
    cell_rows decay; // a number: element 0; per key or value; of two states a_ij: element 2 i + j
    cell_chunk_addition addition[M::additions];
    cell_chunk_vector read[M::reads];
    cell_chunk_result result[M::reads]; // o, for walk, or for what makes reads apart
    cell_chunk_state from, to;          // S before the first row and behind the last, for walk
    // S_0 of each chunk, for walk, or null: element (k, v) of chunk i at (i * values + v) * keys + k. Of
    // chunks that have no row within `length` it is not written. Where reads are apart these are made of it.
    typename M::Part *saved;
    unsigned char *records; // of the head's chunks, one behind the other, aligned to 128 bytes
    // For prep: F of each chunk, where corrected, or null: [chunk][part][rows][rows]. Parts: one, or, where
    // Part is of 16 bits, two: F rounded, and what that leaves.
    typename M::Part *inverse;
    int64_t keys, values; // K and V of the call
    int64_t steps;        // rows of the call: o is written for all of them
    int64_t length;       // rows of the sequence, at most `steps`: those behind do nothing, their o is 0
    // For walks: of a segment (cell_device_chunk_segments.cuh) the chunks from `begin` up to `end`; where
    // `end` is 0, all of them.
    int64_t begin, end;
    // For walks: z and do are 0, and the first state is the identity, of as many values as keys: then the
    // last one is the matrix by which the walk multiplies a state.
    bool alone;

    __host__ __device__ int64_t known_values() const
    {
        return alone ? 0 : values;
    }
};

enum {
    CELL_CHUNK_THREADS = 128, // of a block, but of some walks and where it is said
    CELL_CHUNK_STATES_THREADS = 256, // of a walk where reads are apart
    CELL_CHUNK_BLOCK = 16 // rows of a block of windows
};

__host__ __device__ constexpr int64_t cell_chunk_count(int64_t steps, int rows)
{
    return (steps + rows - 1) / rows;
}

// Of packed sequences, the place of a sequence's first chunk among those of a head, from its first row and
// its number. A sequence of n rows has at most (first + n) / rows - first / rows + 1 chunks: so the places of
// two sequences do not meet, and a head of `all` rows has all / rows + sequences of them.
__host__ __device__ constexpr int64_t cell_chunk_place(int64_t first, int rows, int64_t sequence)
{
    return first / rows + sequence;
}

// The sequence that has a place: the last one whose first place is there or before. A row of the call has
// `updates` rows.
__device__ __forceinline__ int64_t cell_chunk_sequence(const int32_t *starts, int64_t sequences,
                                                       int64_t total, int updates, int rows,
                                                       int64_t place)
{
    return cell_detail_last(sequences, [&](int64_t b) {
        return cell_chunk_place(cell_first_row(starts, b, total) * updates, rows, b) <= place;
    });
}

// Chunks of a walk that have rows of the sequence: those before this one, and whether it clears what is
// behind them.
template <class M> __host__ __device__ constexpr int64_t cell_chunk_last(const cell_chunk<M> &x)
{
    const int64_t all = cell_chunk_count(x.length, M::rows);
    return x.end && x.end < all ? x.end : all;
}
template <class M> __host__ __device__ constexpr bool cell_chunk_clears(const cell_chunk<M> &x)
{
    return !x.end || x.end >= cell_chunk_count(x.steps, M::rows);
}

// What prep leaves of a chunk, in bytes from the record's start. Matrices are dense, of Part, rows of `rows`
// or `keys` elements; behind them come rows of Real. All rows are written, with zeros behind the sequence's
// length and behind K.
//
//     P_r      [rows][rows]    each read, where corrected
//     A_rn     [rows][rows]    each read and write, where reads are not apart
//     L_n      [rows][rows]    each write, where corrected
//     X        [rows][keys]    where corrected
//     W        [rows][keys]    where corrected, decay 2 and 3
//     Q_r      [rows][keys]    each read, decay 2 and 3
//     E_n      [rows][keys]    each write, decay 2 and 3
//     numbers  [rows]          decay 0 and 1: of W (where corrected), Q_r, E_n, whose rows are these times
//                              w, q_r, c_n
//     D        [keys]          decay 1 (one number, the first), 2 and 3 (four numbers, the first)
//
// With u = corrected, p = additions - u, r = reads, by_key = decay >= 2:
//     bytes = sizeof(Part) (rows² (u r + p r + u p) + rows keys (u + by_key (u + r + p)))    apart: no rows²
//           + sizeof(Real) ((by_key ? 0 : rows (u + r + p)) + (decay ? keys : 0)), up to a multiple of 128.
template <class M> struct cell_chunk_record {
    static constexpr int corrections = M::corrected, writes = M::additions - corrections;
    static constexpr bool by_key = M::decay >= 2; // rows of keys with their windows
    static constexpr int square =
        cell_chunk_apart<M>() ? 0 : M::rows * M::rows * (int)sizeof(typename M::Part);
    static constexpr int wide = M::rows * M::keys * (int)sizeof(typename M::Part);
    static constexpr int numbers = M::rows * (int)sizeof(typename M::Real);

    // n: the addition's number.
    __host__ __device__ static constexpr int p(int r) { return r * square; }
    __host__ __device__ static constexpr int a(int r, int n)
    {
        return (corrections * M::reads + r * writes + n - corrections) * square;
    }
    __host__ __device__ static constexpr int l(int n)
    {
        return ((corrections + writes) * M::reads + n - corrections) * square;
    }
    static constexpr int x = (corrections * (M::reads + writes) + writes * M::reads) * square;
    static constexpr int w = x + corrections * wide;
    __host__ __device__ static constexpr int q(int r) { return w + (corrections + r) * wide; }
    __host__ __device__ static constexpr int e(int n) { return q(M::reads) + (n - corrections) * wide; }
    static constexpr int w_number = by_key ? w + (corrections + M::reads + writes) * wide : w;
    __host__ __device__ static constexpr int q_number(int r)
    {
        return w_number + (by_key ? 0 : corrections + r) * numbers;
    }
    __host__ __device__ static constexpr int e_number(int n)
    {
        return w_number + (by_key ? 0 : corrections + M::reads + n - corrections) * numbers;
    }
    static constexpr int d = e_number(M::additions);
    static constexpr int bytes =
        (d + (M::decay != 0 ? M::keys : 0) * (int)sizeof(typename M::Real) + 127) / 128 * 128;
};

template <class M>
__device__ __forceinline__ typename M::Real cell_rows_load(const cell_rows &x, int64_t t, int64_t k)
{
    typedef typename M::Real R;
    const int64_t at = t * x.row + k * x.element;
    return x.real ? ((const R *)x.at)[at] : cell_load<R>((const typename M::Store *)x.at + at);
}

template <class M>
__device__ __forceinline__ typename M::Real cell_row_number_load(const cell_row_number &x, int64_t t)
{
    typedef typename M::Real R;
    if (!x.at)
        return (R)x.times;
    return (R)x.times * (x.real ? ((const R *)x.at)[t * x.row]
                                : cell_load<R>((const typename M::Store *)x.at + t * x.row));
}

// An element of a state, 0 where there is none; and where it goes.
template <class M>
__device__ __forceinline__ typename M::Real cell_chunk_state_load(const cell_chunk_state &s, int64_t k, int64_t v)
{
    typedef typename M::Real R;
    const cell_chunk_spot p = cell_chunk_spot_of<M>(s, k, v);
    if (!p.at)
        return 0;
    return s.real ? ((const R *)p.at)[p.element] : cell_load<R>((const typename M::Store *)p.at + p.element);
}
template <class M>
__device__ __forceinline__ void cell_chunk_state_store(const cell_chunk_state &s, int64_t k, int64_t v,
                                                       typename M::Real value)
{
    const cell_chunk_spot p = cell_chunk_spot_of<M>(s, k, v);
    if (!p.at)
        return;
    if (s.real)
        ((typename M::Real *)p.at)[p.element] = value;
    else
        cell_store((typename M::Store *)p.at + p.element, value);
}

// Rows of one chunk: those from `first` on, of which `valid` are the sequence's.
struct cell_chunk_rows {
    int64_t first;
    int valid;
};

template <class M>
__device__ __forceinline__ cell_chunk_rows cell_chunk_rows_of(const cell_chunk<M> &x, int64_t chunk)
{
    const int64_t first = chunk * M::rows, left = x.length - first;
    return {first, (int)(left < 0 ? 0 : left < M::rows ? left : (int64_t)M::rows)};
}

// Element k of the chunk's row t of a vector without its number; zero behind the rows and the `extent`.
template <class M>
__device__ __forceinline__ typename M::Real cell_chunk_load(const cell_rows &x, const cell_chunk_rows &rows,
                                                            int t, int64_t k, int64_t extent)
{
    return t < rows.valid && k < extent ? cell_rows_load<M>(x, rows.first + t, k) : (typename M::Real)0;
}
template <class M>
__device__ __forceinline__ typename M::Real cell_chunk_number(const cell_row_number &x,
                                                              const cell_chunk_rows &rows, int t)
{
    return t < rows.valid ? cell_row_number_load<M>(x, rows.first + t) : (typename M::Real)0;
}

// A product of matrices by the block's threads without tensor cores: each takes 4 x 4 sums at a time, of four
// rows and of columns a quarter of all apart. Rows and Columns are multiples of 4.
template <class R, int Rows, int Columns> struct cell_patch {
    R sum[4][4];
    int first_row, first_column;
    __device__ __forceinline__ int row(int i) const { return first_row + i; }
    __device__ __forceinline__ int column(int j) const { return first_column + j * (Columns / 4); }

    // += sum over k from begin to end of a(row, k) b(k, column)
    template <class A, class B> __device__ __forceinline__ void add(int begin, int end, A a, B b)
    {
        for (int k = begin; k < end; k++) {
            R x[4], y[4];
            CELL_UNROLL
            for (int i = 0; i < 4; i++)
                x[i] = a(row(i), k);
            CELL_UNROLL
            for (int j = 0; j < 4; j++)
                y[j] = b(k, column(j));
            CELL_UNROLL
            for (int i = 0; i < 4; i++) {
                CELL_UNROLL
                for (int j = 0; j < 4; j++)
                    sum[i][j] += x[i] * y[j];
            }
        }
    }

    // put(row, column, sum)
    template <class P> __device__ __forceinline__ void store(P put) const
    {
        CELL_UNROLL
        for (int i = 0; i < 4; i++) {
            CELL_UNROLL
            for (int j = 0; j < 4; j++)
                put(row(i), column(j), sum[i][j]);
        }
    }
};

// body(patch) for each patch of the matrix, its sums zero; each thread of the block takes some.
template <class R, int Rows, int Columns, class Body> __device__ __forceinline__ void cell_patches(Body body)
{
    for (int job = cell_thread(); job < Rows / 4 * (Columns / 4); job += CELL_CHUNK_THREADS) {
        cell_patch<R, Rows, Columns> patch = {{}, job / (Columns / 4) * 4, job % (Columns / 4)};
        body(patch);
    }
}

#endif
