/* chunk.cuh: the kernels of schedule chunk, printed by gen/schedule/chunk/kernels_chunk.c. For each size of
 * chunks there is a struct of facts, from which the device library makes its kernels (cell_device_chunk.cuh),
 * and thin kernels that say where operands lie. */

$part chunk_facts
/* What the library asks of a recurrence, and what memory and threads its kernels take: the compiler computes
 * that too.
 *
 *   text  facts         the struct's name
 *   text  real          what is computed in
 *   text  part_type     the type of operands of products
 *   text  store         the storage type
 *   text  rows          of a chunk
 *   text  keys          elements of a key, as tensor cores take them
 *   text  values        of a block's part of the values
 *   text  additions     to the state, of a step
 *   text  reads         of it
 *   text  corrected     is an addition corrected by what the state has already?
 *   text  known         a bit for each addition: has it a value of its own?
 *   text  before        a bit for each read: is it of the state before the step?
 *   text  decay         0: none, 1: a number of a step, 2: one of each key, 3: a matrix of two states, 4: one of
 *                       each value
 *   text  together      additions of a chunk that go as one product
 *   text  stages        chunks on their way
 *   text  read_values   values of a block that makes what is read
 *   text  rest_keys     of the last kernel backward: keys of a turn
 *   text  rest_values   values of a turn
 *   text  rest_threads  its threads
 *   lines same          numbers that the compiler has computed
 */
struct $facts {
    typedef $real Real;
    typedef $part_type Part;
    typedef $store Store;
    static constexpr int rows = $rows, keys = $keys, values = $values, additions = $additions, reads = $reads, corrected = $corrected, known = $known, before = $before, decay = $decay, together = $together, stages = $stages, read_values = $read_values, rest_keys = $rest_keys, rest_values = $rest_values, rest_threads = $rest_threads;
};
$same
[[maybe_unused]] static __device__ const $real ${facts}_zero = 0, ${facts}_one = 1;

$part chunk
/* A kernel: each block takes a share of a head of a sequence (some chunks, values, or a segment), and goes on
 * with others. It stands inside of the function that k_print (gen/kernels/kernels.c) prints.
 *
 *   text   heads      of a sequence
 *   text   rows       of a sequence
 *   text   length     rows of a chunk
 *   if     packed     sequences are packed: a head has places for chunks of all of them, one behind the other
 *   text   all_rows   of all sequences of a head, where packed
 *   if     by_chunk   a share is a chunk
 *   if     divided    and a block has some values of it
 *   if     places     a share is a place for a chunk, of packed sequences
 *   if     walks      a share is some values, of packed sequences
 *   text   starts     the first row of each sequence, where packed
 *   text   total      rows of the call, where packed
 *   text   updates    rows of chunks that a row of the call is, where packed
 *   text   first      rows of chunks before the sequence's, where packed
 *   lines  sequence   first_row and dim_T of the sequence, where packed
 *   text   own        chunks before those of the sequence's head
 *   text   values     elements of a value
 *   text   each       of a block
 *   text   each_less  one less
 *   if     segments   a sequence is cut into segments
 *   text   shares     how many shares a head has, where they are no chunks
 *   if     segmented  a share is some values of a segment
 *   lines  head       the head's places along the axes of heads
 *   text   facts      the struct's name
 *   text   n_keys     elements of a key
 *   text   n_values   and of a value
 *   text   record     bytes of what is made of a chunk
 *   text   records    where `prepare` leaves what it makes of chunks
 *   lines  operands   fields of x: where operands lie
 *   lines  uses       what else the kernel reads and writes, of x or, backward, of g
 *   lines  sums       of segments
 *   lines  call       the library's function
 */
$if packed
const int64_t heads = $heads, chunks = $all_rows / $length + dim_B;
$else
const int64_t heads = $heads, chunks = cell_chunk_count($rows, $length);
$end
$if by_chunk
$if divided
const int64_t blocks = ($values + $each_less) / $each;
$end
const int64_t shares = chunks;
$else
const int64_t blocks = ($values + $each_less) / $each;
$if segments
const int64_t segments = cell_chunk_segments<$facts>(dim_B * heads * blocks, chunks);
$end
const int64_t shares = $shares;
$end
$if divided
$if places
for (int64_t piece = cell_block_index(0); piece < heads * shares * blocks; piece += cell_block_count(0)) {
$else
for (int64_t piece = cell_block_index(0); piece < dim_B * heads * shares * blocks; piece += cell_block_count(0)) {
$end
    const int64_t n = piece / blocks, block = piece % blocks;
$else
$if places
for (int64_t n = cell_block_index(0); n < heads * shares; n += cell_block_count(0)) {
$else
for (int64_t n = cell_block_index(0); n < dim_B * heads * shares; n += cell_block_count(0)) {
$end
$end
$if places
    const int64_t place = n % shares, head = n / shares;
    const int64_t b = cell_chunk_sequence($starts, dim_B, $total, $updates, $length, place);
    $sequence
    const int64_t share = place - cell_chunk_place($first, $length, b);
    if (share >= cell_chunk_count($rows, $length))
        continue;
$else
    const int64_t share = n % shares, head = n / shares % heads, b = n / shares / heads;
$end
$if walks
    $sequence
$end
$if packed
    [[maybe_unused]] const int64_t own = head * chunks + cell_chunk_place($first, $length, b);
$end
$if segmented
    const int64_t segment = share % segments, block = share / segments;
$end
    $head
    cell_chunk<$facts> x = {};
    x.keys = $n_keys, x.values = $n_values, x.steps = x.length = $rows;
    x.records = (unsigned char *)$records + $own * $record;
    $operands
    $uses
    $sums
    $call
    cell_barrier();
}

$part chunk_backward
/* What kernels backward have beside x.
 *
 *   text?  saved  where forward has left the states before chunks
 *   text   facts  the struct's name
 *   lines  uses   fields of g
 */
$if saved
x.saved = $saved;
$end
cell_chunk_backward<$facts> g = {};
g.of = x;
$uses

$part chunk_rows
/* A field that is rows of a tensor.
 *
 *   text   field    of x or g
 *   text?  given    the pointer, where a cotangent may be left out, which is 0 then
 *   text   at       where the first row begins
 *   text   row      elements from a row to the next
 *   text   element  and from an element to the next
 *   text   real     is it of the type that is computed in?
 *   text   zero     a zero of that type
 */
$if given
if ($given)
    $field = { $at, $row, $element, $real };
else
    $field = { &$zero, 0, 0, true };
$else
$field = { $at, $row, $element, $real };
$end

$part chunk_walk
/* The walk over chunks, from the states before a segment where a sequence is cut into some.
 *
 *   if    segments  it is
 *   text  back      "_back", or nothing
 *   text  facts     the struct's name
 *   text  of        x, or g
 *   text  values    of a block
 */
$if segments
cell_chunk_begin$back<$facts>($of, segment, segments, sums);
cell_chunk_walk$back<$facts>($of, block * $values);
$else
cell_chunk_walk$back<$facts>($of, share * $values);
$end
