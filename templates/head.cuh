/* head.cuh: the kernel that walks all steps of schedule gemm with a block, or a cluster of blocks, for each
 * head, printed by gen/schedule/gemm/kernels_head.c. A thread has one element for all steps, with its states
 * in registers; what the product of a step reads and gives passes through shared memory
 * (cell_device_head.cuh), of all the cluster's blocks (cell_device_cluster.cuh). */

$part head
/* The whole kernel. It stands inside of the function that k_print (gen/kernels/kernels.c) prints. The threads
 * of an active warp of a cluster do what they do together, those beyond the last unit for nothing.
 *
 *   if    cluster        a cluster has a head; else a block
 *   text  heads          how many there are, as a factor
 *   text  type           the storage type
 *   text  inner          pieces that terms of the product are made of
 *   text  outer          and its rows
 *   text  own            of a cluster: units of a block; of a block: units, where they are known, or 0
 *   text  units          of a head
 *   text  pitch          the same, as a factor
 *   lines indices        of the thread's element e of a sequence
 *   text  weight         the param
 *   text  head_stride    elements from a head's part of it to the next
 *   text  offset         where the first head's begins
 *   text  row            elements from a row to the next
 *   text  k              and from one along k to the next
 *   lines sums           locals of the product's sums
 *   lines states         locals of states: those before the first step; backward, adjoints behind the last
 *   if    forward        the initial states go to memory, and into the first operand
 *   lines? initial       their stores
 *   lines? first_operand the first operand, where the step before makes it: `head_operand`
 *   lines once           reads of what is the same at all steps
 *   lines step_sums      locals of sums over batch and time
 *   lines reads          functions that read ahead, and the first steps' reads: `head_reads`
 *   text  depth          steps whose reads are under way
 *   lines next_reads     reads of as many steps further: `head_next_reads`
 *   text  t              the step
 *   lines rows           rows of sequence b at step t
 *   lines step           its groups and its product: `head_groups`, `head_product`
 *   lines take_reads     what has been read is the next steps': `head_take_reads`
 *   lines last           final states, or the adjoints of initial ones: `head_last`
 *   lines? left          rows of partial sums over batch and time
 */
auto cursor = cell_shared();
$if cluster
const int64_t cluster = cell_block_index(0) / CELL_CLUSTER_BLOCKS;
const int64_t tiles = cell_block_count(0) / CELL_CLUSTER_BLOCKS / $heads, each = (dim_B + tiles - 1) / tiles;
const int64_t head = cluster % $heads, first = cluster / $heads * each;
cell_cluster_head<$type, $inner, $outer, $own> panel;
panel.carve(cursor, $units, first + each < dim_B ? each : dim_B - first);
const int own = panel.unit() < panel.units ? panel.unit() : panel.units - 1;
const bool mine = panel.mine(), active = panel.active();
const int sequence = mine ? panel.place() : 0;
$else
cell_head<$type, $inner, $outer, $own> panel;
panel.carve(cursor, $units);
const int64_t tiles = cell_block_count(0) / $heads, each = (dim_B + tiles - 1) / tiles;
const int64_t head = cell_block_index(0) % $heads, first = cell_block_index(0) / $heads * each;
const int own = cell_thread() % panel.units, place = cell_thread() / panel.units;
const bool mine = place < each && first + place < dim_B;
const int sequence = mine ? place : 0;
$end
const int64_t b = first + sequence, e = head * $pitch + own;
$indices
panel.load($weight + head * $head_stride + $offset, $row, $k);
$sums
$states
$if forward
if (mine) {
    $initial
}
$first_operand
$end
$once
$step_sums
$reads
$if cluster
const int64_t steps = panel.count > 0 ? dim_T : 0;
for (int64_t begin = 0; begin < steps; begin += $depth) {
$else
for (int64_t begin = 0; begin < dim_T; begin += $depth) {
$end
    $next_reads
    CELL_UNROLL
    for (int u = 0; u < $depth; u++) {
        if (begin + u < dim_T) {
            const int64_t t = $t;
            $rows
            $step
        }
    }
    $take_reads
}
if (mine) {
    $last
}
$if left
if (mine) {
    $left
}
$end

$part head_operand
/* What the first product reads.
 *
 *   if    cluster  as in `head`
 *   text  state    the local of the initial state
 */
$if cluster
if (active && dim_T > 0)
    panel.put(mine, 0, $state);
$else
if (mine)
    panel.put(sequence, 0, own, $state);
$end

$part head_last
/* A state behind the last step, or its adjoint before the first.
 *
 *   text? carry  backward: where others find it, too
 *   text  to     the final state, or the gradient of the initial one, which may be null
 *   text  at     the element's place
 *   text  value  the local
 */
$if carry
cell_store($carry + ($at), $value);
if ($to)
    cell_put($to + ($at), $value, adds);
$else
if ($to)
    cell_store($to + ($at), $value);
$end

$part head_reads
/* What a group reads of a step and no step makes: a struct, a function that fills it, and those of the first
 * steps.
 *
 *   text  number  of the group
 *   text  fields  of the struct
 *   lines rows    rows of sequence b at step t
 *   lines early   the reads
 *   text  depth   steps whose reads are under way
 *   text  step    step u, or the last: without a condition nothing has to wait for what is read
 */
struct reads_$number {$fields };
const auto read_$number = [&](int64_t t, auto &ahead) {
    $rows
    $early
};
reads_$number ahead_$number[$depth];
CELL_UNROLL
for (int u = 0; u < $depth; u++)
    if (dim_T > 0)
        read_$number($step, ahead_$number[u]);

$part head_next_reads
/* Reads of as many steps further.
 *
 *   text  number  of the group
 *   text  depth   steps whose reads are under way
 *   text  step    the step that is this number of steps behind u, or the last
 */
reads_$number next_$number[$depth];
CELL_UNROLL
for (int u = 0; u < $depth; u++)
    read_$number($step, next_$number[u]);

$part head_take_reads
/* What has been read is the next steps'.
 *
 *   text  number  of the group
 *   text  depth   steps whose reads are under way
 */
CELL_UNROLL
for (int u = 0; u < $depth; u++)
    ahead_$number[u] = next_$number[u];

$part head_product
/* The product of a step, and the thread's sums of it.
 *
 *   lines comment  the line of the spec
 *   if    cluster  as in `head`
 *   lines sums     the thread's sum of each piece
 */
$comment
panel.multiply();
$if cluster
if (active) {
$else
if (mine) {
$end
    $sums
}

$part head_groups
/* Some pointwise groups of a step. What memory holds of a step is stored last, since no thread of a cluster
 * waits for it.
 *
 *   if     cluster  as in `head`
 *   lines  bodies   the groups; of a block with their stores
 *   lines? late     of a cluster: their stores, too
 *   lines  sums     the product's sums, where they have a place in memory: `head_sums`
 */
$if cluster
if (active) {
    $bodies
    if (mine) {
$if late
        $late
$end
        $sums
    }
}
$else
if (mine) {
    $bodies
    $sums
}
$end

$part head_sums
/* The product's sums go to memory.
 *
 *   text  row       of sequence b at this step
 *   text  elements  of a row
 *   text  outer     pieces of a head
 *   text  units     of a head, as a factor
 *   text? wanted    under which condition, or none
 *   lines stores    one for each piece
 */
const int64_t sums_at = $row * $elements + head * $outer * $units + own;
$if wanted
if ($wanted) {
    $stores
}
$else
$stores
$end
