/* tile.cuh: the kernel that walks all steps of schedule tile, with a state in the registers of a block's, or
 * a cluster's, threads, printed by gen/schedule/tile/tile_kernel.c, tile_forward.c, tile_backward.c. Steps go
 * in chunks, whose vectors are fetched into shared memory while the chunk before is walked. Forward stores a
 * checkpoint before each segment of steps; backward replays a segment from its checkpoint, or undoes it, and
 * walks it back. */

$part tile_function
/* The kernel's function.
 *
 *   text  threads   of a block
 *   text  resident  blocks that a multiprocessor is to hold
 *   text  kernel    the name
 *   lines body      `tile`
 */
extern "C" __global__ void __launch_bounds__($threads, $resident)
$kernel(const __grid_constant__ cell_kernel_args args)
{
    $body
}

$part tile_wanted_function
/* Where gradients are asked for, the kernel is there twice: when all are, which is what training does, no
 * step has a branch, behind which the next sums would begin only when those before it have been added up.
 *
 *   text  kernel  the name
 *   lines body    `tile`
 */
template <bool every> static __device__ __forceinline__ void ${kernel}_of(const cell_kernel_args &args)
{
    $body
}

$part tile_wanted_choice
/* What `tile_function` has then.
 *
 *   text  all     that all gradients are asked for
 *   text  kernel  the name
 */
if ($all)
    ${kernel}_of<true>(args);
else
    ${kernel}_of<false>(args);

$part tile
/* The whole walk. A block, or a cluster, takes one state after the other. What `place` computes of a thread
 * stands in front: its first row and column, of the rows and columns that it owns.
 *
 *   lines  dims           sizes of the cell
 *   if     reverse        lengths go with time backwards, which asks for the number of steps by another name
 *   text   time0          the number of the size that says at which step the call begins
 *   text   lanes          lanes beside each other along columns
 *   text   lane_rows      and along rows
 *   text   warps          warps beside each other along columns
 *   text   warp_rows      and along rows
 *   text   rows           elements of a thread along rows
 *   text   cols           and along columns
 *   text   row_step       rows from a lane to the next
 *   text   col_step       columns, likewise
 *   text   state          elements of the state
 *   text   last_row       its last row
 *   text   last_col       and column
 *   text?  cluster        blocks that share the rows, where several do
 *   text?  makers         the first warp that makes rows for the next chunk's steps, instead of walking
 *   lines  wants          which gradients are asked for
 *   lines  carves         shared memory
 *   text   each           " / n" of a cluster of n blocks
 *   text   blocks         states of a sequence
 *   lines  indices        of the state that the block has
 *   text   sequence       and its sequence
 *   text?  starts         of packed sequences: where they begin
 *   text?  total          and their rows
 *   text   steps          steps of a chunk
 *   text   steps_less     one less
 *   lines  item_fetches   where vectors lie, and those that are the same in all steps
 *   lines? fetch_start    backward: copies of the states that a chunk starts from
 *   if     undoes         its steps are undone, not replayed
 *   text   buffers        what a chunk's vectors take: "half", or "a third of"
 *   lines  chunk          `tile_chunk`
 *   lines  fetch          copies of a chunk's vectors
 *   lines? fetch_rows     what made rows of a chunk are made of
 *   lines? make_rows      and what makes them
 *   lines? fetch_behind   copies of vectors that are read behind a chunk's steps only
 *   lines  walk           `tile_forward`, `tile_backward` or `tile_backward_ahead`
 *   text   meet           all threads of the state
 */
const int64_t B = args.size[0], T = args.size[1];
$dims
$if reverse
const int64_t dim_T = T;
$end
const int64_t time0 = args.size[$time0];
const int lane = cell_lane(), warp = cell_warp();
const int lane_row = lane / $lanes, lane_col = lane % $lanes;
$if cluster
// $cluster blocks share the rows.
const int rank = cell_cluster_rank();
const int warp_row = rank * $warp_rows + warp / $warps, warp_col = warp % $warps;
$else
const int warp_row = warp / $warps, warp_col = warp % $warps;
$end
// Of $state: $rows x $cols elements a thread, $lane_rows x $lanes lanes, $warp_rows x $warps warps.
const int row0 = (warp_row * $lane_rows + lane_row) * $row_step, col0 = (warp_col * $lanes + lane_col) * $col_step;
$if cluster
const int own_row0 = (warp / $warps * $lane_rows + lane_row) * $rows;  // among the block's
$end
const int last_row = $last_row, last_col = $last_col;
$if makers
const bool makes = warp >= $makers;  // rows for the next chunk's steps, instead of walking
$end
$wants
unsigned char *cursor = cell_shared();
$carves
$if cluster
// The others are there to be written to.
cell_cluster_barrier();
$end
for (int64_t item = cell_block_index(0)$each; item < B * ($blocks); item += cell_block_count(0)$each) {
    $indices
    const int64_t b = $sequence;
$if starts
    [[maybe_unused]] const int64_t first_row = cell_first_row($starts, b, $total);
    const int64_t T = cell_own_steps($starts, b, $total, args.size[1]);  // of the sequence
$end
    const int64_t chunks = (T + $steps_less) / $steps;
    $item_fetches
$if fetch_start
$if undoes
    // The states before a chunk, on their way into shared memory.
$else
    // The states that a chunk's replay starts from, on their way into the place of its last step.
$end
    auto fetch_start = [&](int64_t chunk) {
        $fetch_start
        cell_cp_async_commit();
    };
$end
    // The vectors of steps [$steps chunk, $steps chunk + $steps) on their way into $buffers a buffer.
    auto fetch = [&](int64_t chunk) {
        $chunk
        $fetch
    };
$if make_rows
    // What rows of a chunk are made of on its way, and these rows, each into half a buffer.
    auto fetch_rows = [&](int64_t chunk) {
        const int64_t t0 = chunk * $steps;
        const int steps = T - t0 < $steps ? (int)(T - t0) : $steps, half = (int)(chunk & 1) * $steps;
        $fetch_rows
    };
    auto make_rows = [&](int64_t chunk) {
        const int64_t t0 = chunk * $steps;
        const int steps = T - t0 < $steps ? (int)(T - t0) : $steps, half = (int)(chunk & 1) * $steps;
        $make_rows
    };
$end
$if fetch_behind
    // Those that are read behind the steps only, while these are walked.
    auto fetch_behind = [&](int64_t chunk) {
        const int64_t t0 = chunk * $steps;
        const int steps = T - t0 < $steps ? (int)(T - t0) : $steps;
        $fetch_behind
    };
$end
    $walk
    $meet
}

$part tile_chunk
/* What is known of a chunk: its first step, how many it has, and where its vectors lie.
 *
 *   text  steps   of a chunk
 *   text  buffer  the name of that place: half, or third
 *   text  which   its number
 */
const int64_t t0 = chunk * $steps;
const int steps = T - t0 < $steps ? (int)(T - t0) : $steps, $buffer = (int)($which) * $steps;

$part tile_place
/* What is known of step t, number s of its chunk.
 *
 *   text  flip    the place of what threads exchange in it
 *   text  buffer  as in `tile_chunk`
 */
const int flip = $flip;
const int slot = $buffer + s;
(void)t, (void)flip, (void)slot;

$part tile_end_chunk
/* What the caller only waits for is written for all steps of a chunk at once, by all threads: no step waits
 * for the warps' sums, and neighbours are stored together.
 *
 *   if    single  vectors for it have been fetched meanwhile
 *   if    meets   all threads wait for one another
 *   lines behind  the stores
 */
$if single
cell_cp_async_wait<0>();
$end
$if meets
cell_barrier();
$end
$behind

$part tile_load_vectors
/* A state's elements in a row of the thread, from memory, by vectors.
 *
 *   text  cols  elements of the row
 *   text  wide  of a vector
 *   text  real  the type
 *   text  from  where the vector of column c lies
 *   text  to    the row
 */
CELL_UNROLL
for (int c = 0; c < $cols; c += $wide) {
    $real some[$wide];
    cell_load_vec<$wide>(some, $from);
    CELL_UNROLL
    for (int i = 0; i < $wide; i++)
        $to[c + i] = some[i];
}

$part tile_store_vectors
/* The other way. A vector's store writes whole sectors of memory: the single elements of neighbouring threads
 * lie apart.
 *
 *   text  cols   elements of the row
 *   text  wide   of a vector
 *   text  real   the type
 *   text  from   the row
 *   text  owned  under which condition the row is the thread's, or nothing
 *   text  to     where the vector of column c lies
 */
CELL_UNROLL
for (int c = 0; c < $cols; c += $wide) {
    $real some[$wide];
    CELL_UNROLL
    for (int i = 0; i < $wide; i++)
        some[i] = $from[c + i];
    ${owned}cell_store_vec<$wide>($to, some);
}

$part tile_kept_vectors
/* A thread's elements between registers and shared memory, by vectors.
 *
 *   text  vectors  how many
 *   text  wide     elements of one
 *   text  real     the type
 *   if    load     from shared memory; else to it
 *   text  at       where vector e lies
 *   text  own      element i of vector e in registers
 */
CELL_UNROLL
for (int e = 0; e < $vectors; e++) {
    $real some[$wide];
$if load
    cell_load_vec<$wide>(some, $at);
    CELL_UNROLL
    for (int i = 0; i < $wide; i++)
        $own = some[i];
$else
    CELL_UNROLL
    for (int i = 0; i < $wide; i++)
        some[i] = $own;
    cell_store_vec<$wide>($at, some);
$end
}

$part tile_slot_read
/* A state from the row that the call names. What the row is of is asked once, so that all loads of a thread
 * are under way at once.
 *
 *   text   row      the local of the row's first element
 *   text   size     elements of a row
 *   text   initial  the pointer, or null
 *   lines  learned  the state of a new sequence
 *   lines? halves   loads from rows in bf16, where states are f32
 *   lines  loads    loads from others
 */
const int64_t $row = cell_slot_read(args, b) * ($size);
if (!$initial) {
    $learned
$if halves
} else if (args.flags & CELL_KERNEL_BF16_STATES) {
    $halves
$end
} else {
    $loads
}

$part tile_slot_write
/* A state to the row that the call names.
 *
 *   lines halves  stores to rows in bf16
 *   lines stores  to others
 */
if (args.flags & CELL_KERNEL_BF16_STATES) {
    $halves
} else {
    $stores
}

$part tile_walkers
/* What only the threads do that walk.
 *
 *   if    makers  others make rows
 *   lines body    what they do
 */
$if makers
if (!makes) {
    $body
}
$else
$body
$end

$part tile_forward
/* The way forward, chunk by chunk. Where warps make rows for the next chunk, these and those that walk meet
 * in front of each chunk, once before the first one.
 *
 *   lines  states    those before the first step
 *   if     makers    some warps make rows
 *   lines  chunk     `tile_chunk`
 *   if     meets     all threads of a block meet
 *   lines  steps     `tile_forward_steps`
 *   lines? behind    makers: what is written behind the steps
 *   if     behind_meets  and all threads meet in front of it
 *   lines? end_chunk  no makers: `tile_end_chunk`
 *   lines  last      the final states
 */
$states
$if makers
if (makes && chunks > 0)
    fetch_rows(0);
for (int64_t chunk = -1; chunk < chunks; chunk++) {
$else
if (chunks > 0)
    fetch(0);
for (int64_t chunk = 0; chunk < chunks; chunk++) {
$end
    $chunk
    cell_cp_async_wait<0>();
$if meets
    cell_barrier();
$end
$if makers
    if (makes) {
        if (chunk + 2 < chunks)
            fetch_rows(chunk + 2);
        if (chunk + 1 < chunks)
            make_rows(chunk + 1);
    } else {
        if (chunk + 1 < chunks)
            fetch(chunk + 1);
        if (chunk >= 0) {
            $steps
        }
    }
$if behind
$if behind_meets
    cell_barrier();
$end
    if (!makes && chunk >= 0) {
        $behind
    }
$end
$else
    if (chunk + 1 < chunks)
        fetch(chunk + 1);
    $steps
    $end_chunk
$end
}
$last

$part tile_forward_steps
/* The steps of a chunk. Joined steps of two segments are a loop for each: a checkpoint between two steps
 * would keep them apart.
 *
 *   lines checkpoint  where a chunk is a segment
 *   lines rows        rows of what steps store
 *   lines last_sums   locals of sums that the next step finishes
 *   if    segments    a chunk has two
 *   text  interval    steps of a segment
 *   lines segment     its checkpoint
 *   lines loop        `tile_forward_loop`
 *   lines sums        the last step's sums
 */
$checkpoint
$rows
$last_sums
$if segments
for (int first = 0; first < steps; first += $interval) {
    $segment
    const int left = steps - first, end = first + (left < $interval ? left : $interval);
    $loop
}
$else
$loop
$end
$sums

$part tile_forward_loop
/* The loop over steps.
 *
 *   lines  unroll      two steps as one, or apart
 *   text   first       the first step
 *   text   behind      the one behind the last
 *   lines  place       `tile_place`
 *   text   interval    steps of a segment
 *   lines? checkpoint  where a segment may begin at a step of the loop
 *   lines  step        the step
 *   lines  copies      the next states are the states
 *   lines  move        rows of the next step
 */
$unroll
for (int s = $first; s < $behind; s++) {
    const int64_t t = t0 + s;
    $place
$if checkpoint
    if (s == 0 || s == $interval) {
        $checkpoint
    }
$end
    $step
    $copies
    $move
}

$part tile_backward
/* The way back: each segment is replayed, or undone, and walked back.
 *
 *   lines adjoints  those of the final states
 *   lines chunk     `tile_chunk`
 *   lines replay    `tile_replay`
 *   lines back      `tile_back`
 *   lines initial   the adjoints of the initial states go to memory
 */
$adjoints
if (chunks > 0) {
    fetch_start(chunks - 1);
    fetch(chunks - 1);
}
for (int64_t chunk = chunks - 1; chunk >= 0; chunk--) {
    $chunk
    cell_cp_async_wait<0>();
    $replay
    $back
}
$initial

$part tile_replay
/* From the segment's checkpoint through its steps, keeping the state before each. Where steps are undone,
 * only what is behind the last one is not known: it is where the next segment starts, and only the last one
 * has none behind it.
 *
 *   lines starts  the states before the segment
 *   if    single  vectors are read behind the steps only
 *   if    undoes  steps are undone
 *   lines steps   `tile_replay_steps`
 *   if    meets   the way back writes where the replay's last step read
 *   lines afters  the states behind the segment
 */
$starts
cell_barrier();
$if single
fetch_behind(chunk);
$end
$if undoes
if (chunk > 0) {
    fetch_start(chunk);
    fetch(chunk - 1);
}
if (chunk == chunks - 1)
    $steps
$else
if (chunk > 0)
    fetch(chunk - 1);
$steps
$end
$if meets
cell_barrier();
$end
$afters

$part tile_replay_steps
/* One step after the other of a chunk, from the states before it.
 *
 *   lines place   `tile_place`
 *   lines keeps   the state before the step goes to shared memory
 *   lines step    the step
 *   lines copies  the next states are the states
 */
for (int s = 0; s < steps; s++) {
    const int64_t t = t0 + s;
    $place
    $keeps
    $step
    $copies
}

$part tile_back
/* The steps back through a chunk.
 *
 *   lines  rows         rows of what steps store
 *   lines? late         what other warps finish for the caller
 *   lines  place        `tile_place`
 *   lines  unroll       two steps as one, or apart
 *   lines  head         what a step reads of its vectors, where the chunk before is replayed beside it
 *   lines  states       the state before the step: from where it is kept, or undone
 *   if     ahead        the chunk before is replayed beside the steps
 *   if     fetch_start  the checkpoint of the chunk before is fetched when the first step has read its own
 *   lines  step         the step
 *   lines  copies       the adjoints and states of the step before
 *   lines  move         rows of the step before
 *   text   meet         all threads of the state
 *   lines  next         `tile_next_replay`
 *   lines  end_chunk    `tile_end_chunk`
 */
$rows
$if late
// What other warps finish for the caller only is written one step late.
auto late = [&](int s) {
    const int64_t t = t0 + s;
    $place
    $late
};
$end
$unroll
for (int s = steps - 1; s >= 0; s--) {
    const int64_t t = t0 + s;
    $place
    $head
    $states
$if ahead
    replay(chunk - 1, steps - 1 - s);
$end
$if fetch_start
    if (s == steps - 1 && chunk > 0)
        fetch_start(chunk - 1);
$end
    $step
    $copies
    $move
}
$if late
$meet
late(0);
$end
$next
$end_chunk

$part tile_backward_ahead
/* The way back where a segment is replayed beside the steps back through the one behind it, on which it does
 * not depend. It begins one chunk behind the last one, of which nothing is walked back: the last one is
 * replayed. Beside chunk 0 stands what nothing reads.
 *
 *   lines adjoints  those of the final states
 *   lines replay    `tile_replay_ahead`
 *   lines states    locals
 *   lines starts    `tile_starts` of the last chunk
 *   text  interval  steps of a segment
 *   lines turned    `tile_turned`
 *   if    single    vectors are read behind the steps only
 *   lines prefetch  the checkpoint of the next replay is asked for, into the second level cache
 *   lines back      `tile_back`
 *   lines initial   the adjoints of the initial states go to memory
 */
$adjoints
$replay
$states
$starts
if (chunks > 0)
    fetch(chunks - 1);
for (int64_t chunk = chunks; chunk >= 0; chunk--) {
    const int64_t t0 = chunk * $interval, left = T - t0;
    const int steps = left < 0 ? 0 : left < $interval ? (int)left : $interval, third = (int)((uint32_t)chunk % 3u) * $interval;
    const int before = chunk == 0 ? 0 : left < 0 ? $interval + (int)left : $interval;
    $turned
    cell_cp_async_wait<0>();
    cell_barrier();
$if single
    fetch_behind(chunk);
$end
    if (chunk > 1) {
        fetch(chunk - 2);
        $prefetch
    }
    $back
}
$initial

$part tile_replay_ahead
/* A step of the replay, beside a step back.
 *
 *   lines states    locals of the states that are replayed
 *   text  interval  steps of a segment
 *   lines turned    `tile_turned`
 *   lines place     `tile_place`
 *   lines head      what the step reads of its vectors
 *   lines keeps     the state before it goes to shared memory
 *   lines step      the step
 *   lines copies    the next states are the states
 */
$states
// Step s of a chunk, whose state before it is kept for the way back.
auto replay = [&](int64_t chunk, int s) {
    const int64_t t = chunk * $interval + s;
    const int third = (int)((uint32_t)(chunk + 3) % 3u) * $interval;
    $turned
    $place
    $head
    $keeps
    $step
    $copies
};

$part tile_turned
/* A replayed state takes the place of one that has just been walked back, so the places' order turns round
 * from chunk to chunk. It has no hole. */
const bool turned = (chunks - chunk) % 2 == 0;

$part tile_starts
/* The states that a chunk's replay starts from, from memory into registers.
 *
 *   text  chunk  its number
 *   lines loads  the loads
 */
if ($chunk >= 0) {
    $loads
}

$part tile_prefetch
/* A state in memory is asked for, line by line.
 *
 *   text  line      elements of a line of the cache
 *   text  elements  of the state
 *   text  step      elements that the block's threads ask for at once
 *   text  from      where it begins
 */
for (int x = cell_thread() * $line; x < $elements; x += $step)
    cell_prefetch($from + x);

$part tile_next_replay
/* Behind the steps back through a chunk: what is left of the replay of the one before, which only a short
 * chunk leaves, and the checkpoint of the next replay, which arrives while what stands behind the chunk is
 * computed.
 *
 *   text  lost    nothing (tests/mutation: a condition)
 *   lines copies  the replayed states are those behind the last step
 *   lines starts  `tile_starts`
 */
for (int s = steps; s < before; s++)$lost
    replay(chunk - 1, s);
if (chunk == chunks) {
    $copies
}
$starts

$part tile_made_rows
/* Rows of a chunk that its steps read, made by warps that walk no step: a lane makes some neighbours. It is a
 * few rounds, once in a chunk, so that its code is short rather than unrolled.
 *
 *   text  start   the warp's number among those that make rows
 *   text  makers  how many these are
 *   text  lanes   of a row
 *   text  wide    neighbours of a lane
 *   lines values  what the rows are made of
 *   lines stores  and the rows
 */
CELL_UNROLL_BY(1)
for (int w = $start; w * 32 < steps * $lanes; w += $makers) {
    const int p = w * 32 + lane, first = p % $lanes * $wide;
    const bool mine = p < steps * $lanes;
    const int s = mine ? p / $lanes : 0, slot = half + s;
    const int64_t t = t0 + s;
    (void)first, (void)slot, (void)t;
    $values
    if (mine) {
        $stores
    }
}

$part tile_behind
/* What is written behind the steps of a chunk: all vectors of one length, in one loop, which begins
 * with a warp of its own. It runs once or twice in a chunk, so that its code is short rather than unrolled.
 *
 *   text   thread   the thread's number, counted from that warp's first one
 *   text   runs     of a step: of one or several neighbours
 *   text   threads  of the block
 *   text?  wide     neighbours of a run, where there are several
 *   lines  place    `tile_place`
 *   lines  stores   element x of step s of each vector, or those from `first` on
 */
CELL_UNROLL_BY(1)
for (int p = $thread; p < steps * $runs; p += $threads) {
$if wide
    const int s = p / $runs, first = p % $runs * $wide;
$else
    const int s = p / $runs, x = p % $runs;
$end
    const int64_t t = t0 + s;
    $place
$if wide
    (void)first;
$else
    (void)x;
$end
    $stores
}

$part tile_behind_vector
/* Neighbours of a vector that go to memory at once.
 *
 *   text  real   the type
 *   text  wide   how many
 *   lines body   one of them
 *   text  store  all of them
 */
$real some[$wide];
CELL_UNROLL
for (int i = 0; i < $wide; i++) {
    const int x = first + i;
    $body
}
$store
