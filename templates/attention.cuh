/* attention.cuh: the kernels of schedule attention, printed by gen/schedule/attention/kernels_attention.c.
 * For each sum over the past there is a struct of facts, from which the device library makes its kernels
 * (cell_device_attention.cuh), and thin kernels that say where operands lie. What stands in holes for a pair
 * of steps, and for fields of x, is printed for the CPU too (attention_pairs.c, attention_fields.c). */

$part attention_facts
/* What the library asks of a sum: sizes, the score of a pair of steps, its gradients, its conditions, and
 * what these say of whole tiles. u has what the functions read, p is the pair.
 *
 *   lines comment     the line of the spec
 *   text  facts       the struct's name
 *   text  store       the storage type
 *   text  real        and what is computed in
 *   text  keys        elements of a key, as tensor cores take them
 *   text  values      of a value
 *   text  segments    of keys: now, and a history
 *   text  memory      bytes of shared memory that plans take for granted
 *   text  terms       terms of the score that have a gradient
 *   text  kind        SOFTMAX or WEIGHTS
 *   text  scaled      is the score the dot times a number?
 *   text  apart       are rows and columns of terms apart from it?
 *   text  kinds       of term n: of a row or a column
 *   text  sink        has its softmax one place more, without a value?
 *   text? rest        the score of that
 *   lines uses        fields of u
 *   lines tables      reads of tables at a pair: `attention_table`
 *   lines pair        sizes, the pair, and what the score reads of it
 *   text  score       of the pair
 *   lines gradients   of each term
 *   text  slope       of the score by the dot
 *   lines conditions  of the pair
 *   lines keys_of     what is left of keys [j0, j1) for rows [i0, i1)
 *   lines steps_of    and of rows for keys
 *   lines none        has a tile no pair?
 *   lines all         has it all?
 */
$comment
struct $facts {
    typedef $store Store;
    typedef $real Real;
    static constexpr int keys = $keys, values = $values, segments = $segments, memory = $memory, terms = $terms,
                         kind = CELL_ATTENTION_$kind;
    static constexpr bool scaled = $scaled, sink = $sink, apart = $apart;
    static __host__ __device__ constexpr int term_kind([[maybe_unused]] int n) {
        return $kinds;
    }
    struct Uses {
        $uses
    };
    $tables
    static __device__ __forceinline__ Real score(const Uses &u, [[maybe_unused]] Real dot, const cell_attention_pair &p) {
        $pair
        return $score;
    }
    static __device__ __forceinline__ Real back(const Uses &u, [[maybe_unused]] Real dot, const cell_attention_pair &p, Real d, [[maybe_unused]] Real (&g)[terms ? terms : 1]) {
        $pair
        $gradients
        return d * ($slope);
    }
$if rest
    static __device__ __forceinline__ Real sink_score(const Uses &u, int i, int r) {
        const struct { int i, r; } p = { i, r };
        return $rest;
    }
$else
    static __device__ __forceinline__ Real sink_score(const Uses &u, int, int) {
        (void)u;
        return 0;
    }
$end
    static __device__ __forceinline__ bool there(const Uses &u, const cell_attention_pair &p) {
        $pair
        bool there = true;
        $conditions
        return there;
    }
    static __device__ __forceinline__ int64_t cell_least(int64_t a, int64_t b) { return a < b ? a : b; }
    static __device__ __forceinline__ int64_t cell_most(int64_t a, int64_t b) { return a > b ? a : b; }
    static __device__ __forceinline__ void keys_of(const Uses &u, [[maybe_unused]] int segment, [[maybe_unused]] int i0, [[maybe_unused]] int i1, int &j0, int &j1) {
        $keys_of
    }
    static __device__ __forceinline__ void steps_of(const Uses &u, [[maybe_unused]] int segment, [[maybe_unused]] int j0, [[maybe_unused]] int j1, int &i0, int &i1) {
        $steps_of
    }
    static __device__ __forceinline__ bool none(const Uses &u, [[maybe_unused]] int segment, [[maybe_unused]] int i0, [[maybe_unused]] int i1, [[maybe_unused]] int j0, [[maybe_unused]] int j1) {
        $none
    }
    static __device__ __forceinline__ bool all(const Uses &u, [[maybe_unused]] int segment, [[maybe_unused]] int i0, [[maybe_unused]] int i1, [[maybe_unused]] int j0, [[maybe_unused]] int j1) {
        $all
    }
};
[[maybe_unused]] static __device__ const $real ${facts}_zero = 0;

$part attention_table
/* What the score reads of a table. A pair that a condition leaves out may ask for a place that is none.
 *
 *   text  number  of the read
 *   lines pair    sizes and the pair
 *   text? inside  is the place one of the table?
 *   text  at      the element
 */
static __device__ __forceinline__ Real table$number(const Uses &u, const cell_attention_pair &p) {
    $pair
$if inside
    return $inside ? $at : (Real)0;
$else
    return $at;
$end
}

$part attention
/* A kernel: each block takes some rows, or keys, of a head of a sequence, and goes on with others. It stands
 * inside of the function that k_print (gen/kernels/kernels.c) prints.
 *
 *   text   facts   the struct's name
 *   text   name    the kernel's, among those that the library has sizes of
 *   text?  smem    bytes of its shared memory, as the compiler computes them
 *   text   heads   of a sequence
 *   text?  places  of the history, where keys go in parts that blocks share: most keys of it
 *   text   tiles   blocks of a head
 *   lines  head    the head's places along the axes of heads
 *   lines  fields  of x: where operands lie
 *   text?  sums    parts: where they leave their sums
 *   text?  rows    parts: rows of a head
 *   text?  values  parts: elements of a value
 *   if     few     it is forward of few rows, of which parts of the keys go to several blocks
 *   if     parts   it, or what combines the parts
 *   text   call    the library's function
 */
$if smem
static_assert(cell_attention_facts<$facts, CELL_ATTENTION_$name>::smem == $smem, "the compiler has another number");
$end
const int64_t heads = $heads;
$if parts
const int64_t keys = dim_T + (t0 < $places ? t0 : $places);
const int parts = cell_attention_parts(keys, dim_B * heads);
$end
$if few
const int64_t tiles = $tiles * parts;
$else
const int64_t tiles = $tiles;
$end
for (int64_t n = cell_block_index(0); n < dim_B * heads * tiles; n += cell_block_count(0)) {
    const int64_t head = n % heads, b = n / heads % dim_B, block = n / heads / dim_B;
    $head
    cell_attention<$facts> x = {};
    $fields
$if parts
    if (parts > 1) {
        const int64_t rows = dim_T * $rows, at = (b * heads + head) * parts * rows;
        x.part_sums = $sums + at * $values;
        x.part_stats = $sums + dim_B * heads * parts * rows * $values + at * 2;
    }
$end
$if few
    cell_attention_forward<$facts, CELL_ATTENTION_FEW>(x, block / parts, (int)(block % parts), parts);
$else
$if parts
    cell_attention_$call<$facts>(x, block, parts);
$else
    cell_attention_$call<$facts>(x, block);
$end
$end
    cell_barrier();
}
