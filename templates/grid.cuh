/* grid.cuh: the kernel that walks all steps of schedule gemm by the whole grid, printed by
 * gen/schedule/gemm/kernels_grid.c. Each block holds, for all steps, the rows of the weights that belong to
 * its units (its panel: cell_device_panel.cuh). A step multiplies them with what all blocks made of the step
 * before, computes what is pointwise at the block's own units, and posts its part of the next operand. */

$part grid
/* The whole kernel. It stands inside of the function that k_print (gen/kernels/kernels.c) prints.
 *
 *   if     several      a step has several products; else one, whose panel has no number
 *   text   posts        the pointer to the counters that blocks post to
 *   text?  shares       several: numbers that the warps' shares of a sum take, of the largest product
 *   lines? panels       several: a panel for each product, as `grid_panel` has it
 *   lines? elements_of  several: how many elements a block has over each axis that groups are pointwise over
 *   lines? sums_places  several: shared memory for the sums of each product
 *   lines? loads        several: each product's weights go to shared memory and registers
 *   lines? starts       several: each product's first sums, then its warps begin
 *   text?  panel        one: the type of its panel
 *   text?  units        one: units of the cell
 *   text   own          units of a block
 *   if     cluster      blocks form clusters, of which the last may have blocks without units
 *   lines? sums_place   one: shared memory for its sums
 *   lines? load         one: its weights go to shared memory and registers
 *   lines? seed         one, backward: the sums that the first step finds (`grid_seed`)
 *   lines  marks        words of operands that tell by themselves whether they are there
 *   lines  step_sums    locals of sums over batch and time
 *   text?  alone        elements of a block, where a thread keeps what one group leaves for another
 *   lines  left         the locals that have it
 *   lines  reads        reads ahead of each pointwise group: `grid_reads`, and those of the first step
 *   text   t            the step, of its number in the order of the walk
 *   lines  step         its products (`grid_product`) and pointwise groups (`grid_group`), in order
 *   lines  sums         what is left of the sums over batch and time: `grid_sums`
 */
auto cursor = cell_shared();
$if several
cell_smem<float> shares_of_all = cell_carve<float>(cursor, $shares);
unsigned int *const counters = reinterpret_cast<unsigned int *>($posts);
$panels
$elements_of
const int64_t steps = dim_B > 0 ? dim_T : 0;
$sums_places
$loads
$starts
$else
$panel panel;
panel.carve(cursor, $units, reinterpret_cast<unsigned int *>($posts));
$if cluster
const int elements = panel.first < panel.units ? (int)dim_B * $own : 0;
$else
const int elements = (int)dim_B * $own;
$end
const int64_t steps = dim_B > 0 ? dim_T : 0;
$sums_place
decltype(panel)::kept kept;
$load
$seed
panel.start();
$end
$marks
$step_sums
$if alone
const bool alone = $alone <= CELL_PANEL_THREADS;
$end
$left
$reads
for (int64_t step = 0; step < steps; step++) {
    const int64_t t = $t;
    $step
}
$sums

$part grid_panel
/* Of several products, one's panel. Products with the same param share its weights, and all of them the place
 * of the warps' shares.
 *
 *   text   type     of the panel
 *   text   number   of the product
 *   text?  same     an earlier product with the same weights
 *   text   post     the first of its counters
 *   text   units    units of its result
 *   text   k_units  units of its operand
 */
$type panel_$number;
$if same
panel_$number.carve_again(cursor, panel_$same, counters + $post);
$else
panel_$number.carve_one(cursor, shares_of_all, $units, $k_units, counters + $post);
$end

$part grid_load
/* A product's weights, to shared memory and to registers (kept).
 *
 *   text  panel   the object
 *   text  kept    its weights in registers
 *   text  weight  where the param begins
 *   text  row     elements from a row to the next
 *   text  k       and from one along k to the next
 */
$panel.load($kept, $weight, $row, $k);

$part grid_load_kept
/* The same of several products, each with registers of its own.
 *
 *   text  number  of the product
 *   lines load    `grid_load`
 *   if    more    another one comes: the weights that go to registers pass through the same place
 */
decltype(panel_$number)::kept kept_$number;
$load
$if more
cell_barrier();
$end

$part grid_seed
/* The sums that the first step backward finds: the adjoint of the final state.
 *
 *   text  elements  how many the block has
 *   text  own       units of a block
 *   text  first     the block's first unit
 *   text  units     how many there are
 *   text  sums      the block's sums
 *   text  carry     the adjoint of the final state, by parity of the number of steps
 *   text  pitch     units, as a factor
 */
for (int n = cell_thread(); n < $elements; n += CELL_PANEL_THREADS) {
    const int64_t b = n / $own, unit = $first + n % $own;
    if (unit < $units)
        $sums[n] = $carry[((dim_T & 1) * dim_B + b) * $pitch + unit];
}

$part grid_element
/* Of an element's number: its sequence b, its unit, and whether there is one (else the last).
 *
 *   text  number    n
 *   text  elements  how many the block has
 *   text  first     the block's first unit
 *   text  own       units of a block
 *   text  unit      the local's name
 *   text  units     units of the axis
 */
const int n = $number, at = n < $elements ? n : $elements - 1;
const int unit = $first + at % $own;
const int64_t b = at / $own, $unit = unit < $units ? unit : $units - 1;

$part grid_reads
/* What a group reads of a step and no step makes, in a struct that a function fills; where the operand is
 * waited for at a step's end, another function brings the next step's values near meanwhile.
 *
 *   text   fields   of the struct
 *   text   number   of the group
 *   text   unit     the element's unit
 *   lines  rows     rows of sequence b at step t
 *   lines? once     what is the same at all steps, read for another element than the one before
 *   lines? early    what differs
 *   lines? fetched  what brings that near
 */
struct {$fields } ahead_$number = {};
const auto read_$number = [&](int64_t b, int64_t $unit, int64_t t, bool other) {
    (void)b, (void)$unit, (void)t, (void)other;
    $rows
$if once
    if (other) {
        $once
    }
$end
$if early
    $early
$end
};
$if fetched
const auto fetch_$number = [&](int64_t b, int64_t $unit, int64_t t) {
    $rows
    $fetched
};
$end

$part grid_read
/* Reads what the thread's first element needs.
 *
 *   text   elements   how many the block has
 *   text   condition  when
 *   lines  element    `grid_element`
 *   text   number     of the group
 *   text   unit       the element's unit
 *   text   t          of which step
 *   text   other      whether the thread has had another element since it last read
 */
if (cell_thread() < $elements && $condition) {
    $element
    read_$number(b, $unit, $t, $other);
}

$part grid_fetch
/* Brings what the next step reads near.
 *
 *   if     once      a thread has one element at most
 *   text   elements  how many the block has
 *   lines  element   `grid_element`
 *   text   number    of the group
 *   text   unit      the element's unit
 *   text   t         of which step
 */
$if once
if (cell_thread() < $elements && step + 1 < steps) {
$else
for (int begin = cell_thread(); begin < $elements && step + 1 < steps; begin += CELL_PANEL_THREADS) {
$end
    $element
    fetch_$number(b, $unit, $t);
}

$part grid_product
/* One product of a step, some sequences at a time. While tensor cores work, what pointwise groups read is
 * asked for; then the warps' shares are added up.
 *
 *   lines comment    the line of the spec
 *   text  panel      the object
 *   text  made       what the operand is made by: the step before (nothing), or this one (" + 1")
 *   text  kept       weights in registers
 *   text  operand    where the operand of sequence b0 begins at this step
 *   text  steps      rows of a sequence
 *   text  pitch      elements of a row
 *   lines meanwhile  reads of pointwise groups
 *   text  sums       the block's sums
 *   text  rows       sums of a sequence
 *   text  own        units of a block
 *   lines store      the sum's place in memory, where it has one
 */
$comment
$panel.wait(step$made);
for (int64_t b0 = 0; b0 < dim_B; b0 += $panel.batch) {
    cell_mma_c shares[$panel.results];
    $panel.multiply(shares, $kept, $operand, $steps * $pitch, dim_B - b0);
    $meanwhile
    $panel.reduce(shares, dim_B - b0, [&](int row, [[maybe_unused]] int piece, int own, float sum) {
        $sums[((int)b0 + row) * $rows + piece * $own + own] = sum;
        $store
    });
    cell_barrier();
}

$part grid_store_carried
/* A sum that is the adjoint of a state: behind the last step that of the initial one.
 *
 *   text  carry  the pointer
 *   text  pitch  elements of a sequence
 *   text  first  the block's first unit
 */
if (t == 0)
    cell_store($carry + (b0 + row) * $pitch + $first + own, sum);

$part grid_store_sum
/* A sum that lies in memory for what comes after the steps.
 *
 *   text  to        the pointer
 *   if    optional  it may be null
 *   text  row       of sequence b0 + row at this step
 *   text  pitch     elements of a row
 *   text  units     units of the cell
 *   text  first     the block's first unit
 */
$if optional
if ($to)
    cell_store($to + $row * $pitch + piece * $units + $first + own, sum);
$else
cell_store($to + $row * $pitch + piece * $units + $first + own, sum);
$end

$part grid_marks
/* Before the first step each block fills its words of an operand with what no operation gives.
 *
 *   text   panel    the object
 *   text?  same     a product with the same operand, whose words are marked for both
 *   text?  when     the condition, or none
 *   text?  operand  where it begins
 *   text?  pitch    elements of a row
 *   text?  first    the row that is there before the first step, or -1
 */
$if same
$panel.marks = $same.marks;
$else
$if when
if ($when)
    $panel.mark($operand, $pitch, dim_B, dim_T, $first);
$else
$panel.mark($operand, $pitch, dim_B, dim_T, $first);
$end
$end

$part grid_group
/* A pointwise group of a step. As many elements go at a time as the block has threads; threads beyond the
 * last do what it does and store nothing (mine). The operand is stored and posted first, what else a step
 * stores comes behind the post (late).
 *
 *   text   elements  how many the block has
 *   lines  element   `grid_element`
 *   text   unit      the element's unit
 *   text   first     the block's first unit
 *   lines  rows      rows of sequence b at step t
 *   if     ahead     it reads ahead, of the thread's first element; others read now
 *   text   number    of the group
 *   text?  pieces    its axis has several pieces, of which a thread takes one after the other
 *   text?  index     the element's index then
 *   text   units     units of a piece
 *   lines  body      the group
 *   lines? posts     what posts the operands that are whole behind it
 *   if     several   the step has several products: others wait for a block that has no element, too
 *   lines? late      what other blocks do not wait for
 *   lines  next      the next step's reads: `grid_fetch` or `grid_read`
 */
for (int begin = 0; begin < $elements; begin += CELL_PANEL_THREADS) {
    $element
    [[maybe_unused]] const int own = (int)$unit - $first;
    const bool mine = at == n && $unit == unit;
    $rows
$if ahead
    if (begin > 0)
        read_$number(b, $unit, t, true);
$end
$if pieces
    for (int piece = 0; piece < $pieces; piece++) {
        const int64_t $index = piece * $units + $unit;
        $body
$if late
        if (mine) {
            $late
        }
$end
    }
$else
    $body
$end
$if posts
$if several
    if (begin + CELL_PANEL_THREADS >= $elements) {
        $posts
    }
$else
    if (begin + CELL_PANEL_THREADS >= $elements)
        $posts
$end
$end
$if pieces
$else
$if late
    if (mine) {
        $late
    }
$end
$end
}
$if several
$if posts
if ($elements == 0) {
    $posts
}
$end
$end
$next

$part grid_sums
/* A group's sums over batch and time. A thread has added up all of its sequences: the first has the sums, the
 * others nothing.
 *
 *   text   elements  how many the block has
 *   lines  element   `grid_element`
 *   text   unit      the element's unit
 *   lines  store     a row of partial sums for sequence b
 */
for (int begin = cell_thread(); begin < $elements; begin += CELL_PANEL_THREADS) {
    $element
    if ($unit == unit) {
        $store
    }
}
