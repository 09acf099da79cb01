/* columns.cuh: the kernel that walks all steps of schedule gemm in blocks that have some units of one
 * sequence of many columns each, printed by gen/schedule/gemm/kernels_columns.c. A thread has the product's
 * sums of some columns and units in its registers, its elements (cell_device_columns.cuh). */

$part columns
/* The whole kernel. It stands inside of the function that k_print (gen/kernels/kernels.c) prints.
 *
 *   text  type       the storage type
 *   text  units      of the cell
 *   text  columns    of a sequence
 *   text  exchange   the pointer to where blocks leave the operand for one another
 *   text  posts      the pointer to the counters that they post to
 *   text  weight     the block's param
 *   text  row        elements from a row to the next
 *   text  k          and from one along k to the next
 *   text? scratch    floats of shared memory for the sums of columns, where it adds any up
 *   lines totals     of each such sum, its locals for all steps
 *   lines names      locals of what a step reads
 *   lines rows       rows of sequence b at step t
 *   lines reads      reads of what is the same for all elements
 *   lines read_rows  where in memory the others begin
 *   lines loops      these reads, in loops over units, columns, or both: `columns_loop`
 *   lines store      what a step leaves for what comes after the walk: `columns_store`
 *   if    forward    a step multiplies and then computes; backward, first it computes
 *   text? first      forward: the state before the first step
 *   text? first_sum  backward: the adjoint of the final state, at element j
 *   text? last_sum   backward: that of the initial one
 *   lines comment    of the product, the line of the spec
 *   text  behind     what is stored while tensor cores work: of an element j
 *   lines step       a step's elements and their sums
 *   text  give       where memory has the next operand
 *   lines ends       what is left of a unit when its sums are known
 *   lines adds       backward: the sums of columns so far
 *   if    stores     a step leaves something in memory
 *   lines last       forward: final states, of an element
 *   lines leaves     backward: a row of partial sums of each column
 */
auto cursor = cell_shared();
cell_columns<$type> panel;
panel.carve(cursor, $units, $columns, dim_B, $exchange,
            reinterpret_cast<unsigned int *>($posts));
panel.load($weight, $row, $k);
const int64_t b = panel.sequence;
$if scratch
cell_smem<float> scratch = cell_carve<float>(cursor, $scratch);
$end
$totals
$names
const auto read = [&]([[maybe_unused]] int64_t t) {
    $rows
    [[maybe_unused]] const int64_t own_unit = panel.own_unit();
    $reads
    $read_rows
    $loops
};
$store
$if forward
if (dim_T > 0) {
    panel.take($first);
    panel.give(nullptr);
}
for (int64_t t = 0; t < dim_T; t++) {
    $rows
    [[maybe_unused]] const int64_t own_unit = panel.own_unit();
    read(t);
    $comment
    panel.multiply($behind);
    $step
    if (t + 1 < dim_T)
        panel.give($give);
    $ends
}
//$ What the last step leaves; where there was none, the kernel of the initial states has left the final ones.
if (dim_T > 0) {
$if stores
    const auto store_last = store(dim_T - 1);
$end
    $last
}
$else
//$ The adjoint of the final state takes the place of the first product, that of the initial one is the last.
CELL_UNROLL
for (int j = 0; j < panel.elements; j++)
    panel.sum[j] = panel.mine(j) ? *($first_sum) : 0;
if (dim_T > 0)
    read(dim_T - 1);
for (int64_t t = dim_T - 1; t >= 0; t--) {
    $rows
    [[maybe_unused]] const int64_t own_unit = panel.own_unit();
    $step
    panel.give($give);
    $ends
    $adds
    if (t > 0)
        read(t - 1);
    $comment
    panel.multiply($behind);
}
CELL_UNROLL
for (int j = 0; j < panel.elements; j++)
    if (panel.mine(j))
        cell_store($last_sum, panel.sum[j]);
$leaves
$end

$part columns_loop
/* Of a thread's elements, units, or columns.
 *
 *   text  count      how many there are
 *   text? unit       the local of the unit, where it has one
 *   text? unit_at    and its value
 *   text? column     of the column
 *   text? column_at  and its value
 *   text? own        of an element: the local of its place among those of a sequence, units beside each other
 *   lines body       what is done
 */
CELL_UNROLL
for (int j = 0; j < $count; j++) {
$if unit
    [[maybe_unused]] const int64_t $unit = $unit_at;
$end
$if column
    [[maybe_unused]] const int64_t $column = $column_at;
$end
$if own
    [[maybe_unused]] const int $own = panel.at(j);
    if (panel.mine(j)) {
        $body
    }
$else
    $body
$end
}

$part columns_store
/* What a step leaves in memory for what comes after the walk, element by element, so that it can be stored
 * while tensor cores work on the next product.
 *
 *   lines kept        registers that keep it
 *   lines rows        rows of sequence b at step t
 *   lines store_rows  where in memory each value's begin
 *   text  captures    the registers by reference
 *   text  own         the local of the element's place
 *   lines stores      of element j
 */
$kept
const auto store = [&]([[maybe_unused]] int64_t t) {
    $rows
    $store_rows
    return [=, &panel$captures](int j) {
        [[maybe_unused]] const int $own = panel.at(j);
        if (panel.mine(j)) {
            $stores
        }
    };
};

$part columns_totals
/* What is left of a unit, when its sums over columns are known.
 *
 *   lines  sums  their locals
 *   lines  body  the values
 */
$sums
if (panel.has_unit()) {
    $body
}
