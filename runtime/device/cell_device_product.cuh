// A product of matrices of 16 bits, and what is computed from its elements, in one kernel.
//
// In: A [rows, depth] and B [columns, depth], both dense along depth. Out: C = A B^T [rows, columns], and whatever a body
// makes of C's elements. Guaranteed: sums in f32, rounded to T once; the body sees each element once, as rounded, whether C
// is stored or not. sm_90a alone has instructions that are worth it: for other devices the kernel is empty, and its launch
// bounds say so, since a block of CELL_PRODUCT_THREADS threads, as the host knows them, is more than it admits.
//
// A block takes tiles of 128 rows and 256 columns in turn, so a grid has one block for each multiprocessor. One thread
// fetches (TMA), two warpgroups multiply and leave a tile, rounded, in shared memory, and three warps store it and run the
// body while the next tile is multiplied. Of its last tile, behind which nothing is left to multiply, each of the eight
// warps that multiply takes its own part.
#ifndef CELL_DEVICE_PRODUCT_CUH
#define CELL_DEVICE_PRODUCT_CUH

// depth, columns and all pitches are multiples of 8, addresses of 16 bytes; extents are above 0 and below 2^31 - 256, and there
// are fewer than 2^31 tiles.
template <class T> struct cell_product { // cell_bf16 or cell_f16
    const T *a;
    int64_t a_pitch; // of elements
    const T *b;
    int64_t b_pitch;
    T *c; // or null: C is not stored
    int64_t c_pitch;
    int64_t rows, columns, depth;
    void *maps; // scratch: CELL_PRODUCT_MAP_BYTES for each block, 128-byte aligned; nobody else's while the kernel runs
};

constexpr int CELL_PRODUCT_ROWS = 128, CELL_PRODUCT_COLUMNS = 256;

// Shared memory: what is fetched ahead, a tile of C, the maps as they are made, and barriers, from a multiple of 1024 on.
constexpr int cell_detail_product_stages = 3, cell_detail_product_depth = 64;
constexpr int cell_detail_product_a = CELL_PRODUCT_ROWS * cell_detail_product_depth * 2;
constexpr int cell_detail_product_stage = cell_detail_product_a + CELL_PRODUCT_COLUMNS * cell_detail_product_depth * 2;
constexpr int cell_detail_product_map = 128;
constexpr int CELL_PRODUCT_MAP_BYTES = 2 * cell_detail_product_map;
constexpr int CELL_PRODUCT_SMEM = 1024 + cell_detail_product_stages * cell_detail_product_stage +
                                  CELL_PRODUCT_ROWS * CELL_PRODUCT_COLUMNS * 2 + CELL_PRODUCT_MAP_BYTES + 128;

// Before CUDA 12.5 a map's stride has another unit.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 5))
#define CELL_DETAIL_PRODUCT 1
#else
#define CELL_DETAIL_PRODUCT 0
#endif

#if defined(__CUDA_ARCH__) && !CELL_DETAIL_PRODUCT
constexpr int CELL_PRODUCT_THREADS = 32;
#else
constexpr int CELL_PRODUCT_THREADS = 384;
#endif

#if CELL_DETAIL_PRODUCT
// Barriers in shared memory. A wait is for the end of a phase, 0 and 1 in turn; the one before the first, a 1, is over from
// the start. What was written before an arrival is seen behind the wait.
__device__ __forceinline__ uint32_t cell_detail_product_address(const void *smem)
{
    return (uint32_t)__cvta_generic_to_shared(smem);
}
__device__ __forceinline__ void cell_detail_product_init(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void cell_detail_product_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void cell_detail_product_wait(uint32_t barrier, uint32_t phase)
{
    uint32_t done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(barrier), "r"(phase)
                     : "memory");
    } while (!done);
}

// An arrival, and as many bytes to come.
__device__ __forceinline__ void cell_detail_product_expect(uint32_t barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// A box of a mapped matrix, zeros where that ends. Its bytes count at the barrier, those of the zeros too.
__device__ __forceinline__ void cell_detail_product_fetch(uint32_t to, const void *map, uint32_t barrier, int k, int row)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
                     to),
                 "l"(map), "r"(barrier), "r"(k), "r"(row)
                 : "memory");
}

// The number of a type of elements in a map.
__device__ constexpr int cell_detail_product_type(cell_bf16) { return 10; }
__device__ constexpr int cell_detail_product_type(cell_f16) { return 6; }

// Makes a map, by a warp: boxes of `box` rows, as wide as a stage is deep, in lines of 128 bytes whose eighths are
// exchanged by row as wgmma reads them. It is made in shared memory and copied, in an order that whoever fetches by it then
// joins. The L2 promotion has no field to replace; maps made by the host, with it and without, were no faster.
#define CELL_DETAIL_REPLACE(field, bits, kind, value)                                                                \
    asm volatile("tensormap.replace.tile." field ".shared::cta.b1024." bits " [%0], " value ";" ::"r"(at), kind : "memory")
template <class T>
__device__ __forceinline__ void cell_detail_product_make(void *map, uint32_t *smem, const T *p, int64_t pitch, int64_t rows,
                                                         int64_t depth, int box)
{
    const uint32_t at = cell_detail_product_address(smem);
    smem[cell_lane()] = 0;
    cell_warp_barrier();
    if (cell_lane() == 0) {
        CELL_DETAIL_REPLACE("global_address", "b64", "l"(p), "%1");
        CELL_DETAIL_REPLACE("rank", "b32", "n"(2 - 1), "%1");
        CELL_DETAIL_REPLACE("box_dim", "b32", "r"(cell_detail_product_depth), "0, %1");
        CELL_DETAIL_REPLACE("box_dim", "b32", "r"(box), "1, %1");
        CELL_DETAIL_REPLACE("global_dim", "b32", "r"((int)depth), "0, %1");
        CELL_DETAIL_REPLACE("global_dim", "b32", "r"((int)rows), "1, %1");
        CELL_DETAIL_REPLACE("global_stride", "b64", "l"(pitch * 2), "0, %1"); // of bytes
        CELL_DETAIL_REPLACE("element_stride", "b32", "r"(1), "0, %1");
        CELL_DETAIL_REPLACE("element_stride", "b32", "r"(1), "1, %1");
        CELL_DETAIL_REPLACE("elemtype", "b32", "n"(cell_detail_product_type(T())), "%1");
        CELL_DETAIL_REPLACE("interleave_layout", "b32", "n"(0), "%1");
        CELL_DETAIL_REPLACE("swizzle_mode", "b32", "n"(3), "%1"); // lines of 128 bytes
        CELL_DETAIL_REPLACE("fill_mode", "b32", "n"(0), "%1");    // zeros
    }
    cell_warp_barrier();
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(
                     __cvta_generic_to_global(map)),
                 "r"(at)
                 : "memory");
}
#undef CELL_DETAIL_REPLACE

// By the thread that fetches. The group of no copies at all is waited for because some releases of ptxas let fetches begin
// before the fence is through.
__device__ __forceinline__ void cell_detail_product_join(const void *map)
{
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128; "
                 "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;" ::"l"(map)
                 : "memory");
}

// C [64, 256] (+)= A [64, 16] B by a warpgroup, from boxes: of B [256, 16] along the sum, or (Across) of B [16, 256] along its rows.
#define CELL_DETAIL_SUMS                                                                                                       \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "                               \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "                     \
    "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "                     \
    "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                     \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, "                     \
    "%100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, " \
    "%120, %121, %122, %123, %124, %125, %126, %127"
#define CELL_DETAIL_FOUR(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define CELL_DETAIL_MANY(c, i)                                                                                   \
    CELL_DETAIL_FOUR(c, i), CELL_DETAIL_FOUR(c, i + 4), CELL_DETAIL_FOUR(c, i + 8), CELL_DETAIL_FOUR(c, i + 12), \
        CELL_DETAIL_FOUR(c, i + 16), CELL_DETAIL_FOUR(c, i + 20), CELL_DETAIL_FOUR(c, i + 24), CELL_DETAIL_FOUR(c, i + 28)
#define CELL_DETAIL_PRODUCT_OF(T, type)                                                                                   \
    template <bool Across>                                                                                                \
    __device__ __forceinline__ void cell_detail_product_multiply(T, float (&c)[128], uint64_t a, uint64_t b, bool adds)   \
    {                                                                                                                     \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %130, 0; "                                                           \
                     "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {" CELL_DETAIL_SUMS                   \
                     "}, %128, %129, p, 1, 1, 0, %131; }"                                                                 \
                     : CELL_DETAIL_MANY(c, 0), CELL_DETAIL_MANY(c, 32), CELL_DETAIL_MANY(c, 64), CELL_DETAIL_MANY(c, 96)  \
                     : "l"(a), "l"(b), "r"((int)adds), "n"((int)Across));                                                 \
    }                                                                                                                     \
    __device__ __forceinline__ uint32_t cell_detail_product_pair(T, float low, float high)                                \
    {                                                                                                                     \
        uint32_t pair;                                                                                                    \
        asm("cvt.rn." type "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));                                      \
        return pair;                                                                                                      \
    }
CELL_DETAIL_PRODUCT_OF(cell_bf16, "bf16")
CELL_DETAIL_PRODUCT_OF(cell_f16, "f16")
#undef CELL_DETAIL_PRODUCT_OF
#undef CELL_DETAIL_MANY
#undef CELL_DETAIL_FOUR
#undef CELL_DETAIL_SUMS

// Of a box at an address of shared memory: 1024 bytes between every 8 of its lines of 128 bytes; across, where a line is of 64
// columns, the next 64 are a box further.
constexpr int cell_detail_product_box = 64 * 128;
template <bool Across> __device__ __forceinline__ uint64_t cell_detail_product_operand(uint32_t address)
{
    constexpr uint32_t next = Across ? cell_detail_product_box >> 4 : 1;
    return (uint64_t)(1u << 30 | 1024 >> 4) << 32 | next << 16 | address >> 4;
}

// The tiles of C, and those that this block takes. Blocks have neighbouring rows and columns at the same time, so that the L2 has
// what they fetch: they go down Group tiles before they go on to the next column.
template <int Group> struct cell_detail_product_tiles {
    int rows, columns, all, first, step;
    __device__ __forceinline__ cell_detail_product_tiles(int64_t c_rows, int64_t c_columns)
    {
        rows = (int)((c_rows + CELL_PRODUCT_ROWS - 1) / CELL_PRODUCT_ROWS);
        columns = (int)((c_columns + CELL_PRODUCT_COLUMNS - 1) / CELL_PRODUCT_COLUMNS);
        all = rows * columns;
        first = (int)cell_block_index(0);
        step = (int)cell_block_count(0);
    }
    __device__ __forceinline__ int group(int tile) const { return tile / (Group * columns); }
    __device__ __forceinline__ void place(int &row, int &column, int tile) const
    {
        const int top = group(tile) * Group, in = tile - top * columns, high = rows - top < Group ? rows - top : Group;
        row = (top + in % high) * CELL_PRODUCT_ROWS;
        column = in / high * CELL_PRODUCT_COLUMNS;
    }
};

// Rows of a tile that waits in shared memory, every Step-th from `from` on, below `end`, by a warp: a lane has the same columns
// of each, so that what the body loads for a column stays. The tile lies as four of 128 rows and 64 columns, whose lines of
// 128 bytes have their eighths exchanged by row, so that lanes meet in no bank.
constexpr int cell_detail_product_quarter = CELL_PRODUCT_ROWS * 64;
template <int Step, class T, class With>
__device__ __forceinline__ void cell_detail_product_finish(const cell_product<T> &x, With &with, const T *staged, int first_row,
                                                           int first_column, int from, int end)
{
    const int column = first_column + cell_lane() * 8, eighth = cell_lane() % 8;
    const int64_t left = column < x.columns ? x.rows - first_row : 0;
    const T *const quarter = staged + cell_lane() / 8 * cell_detail_product_quarter;
    end = left < end ? (int)left : end;
    CELL_UNROLL_BY((Step == 1 ? 1 : 4)) // a block's last tile, which comes once, would wait for more instructions
    for (int line = from; line < end; line += Step) {
        const int64_t row = first_row + line;
        cell_vec<T, 8> words;
        words.template load<false>(quarter + line * 64 + (eighth ^ (line & 7)) * 8);
        if (x.c)
            cell_detail_store_word(reinterpret_cast<uint4 *>(x.c + row * x.c_pitch + column), words.word[0]);
        float v[8];
        words.values(v);
        with.body(row, (int64_t)column, v);
    }
}

// Where a block has what: stages, the tile of C that waits, the maps, and barriers: a stage is full, or read; the tile is there, or
// taken.
template <class T> struct cell_detail_product_memory {
    T *staged;
    uint32_t *making;
    char *map_a, *map_b;
    uint32_t fetched, full, empty, ready, taken;
    __device__ __forceinline__ explicit cell_detail_product_memory(void *maps)
    {
        constexpr int stages = cell_detail_product_stages;
        unsigned char *const base = cell_shared() + (-cell_detail_product_address(cell_shared()) & 1023);
        staged = reinterpret_cast<T *>(base + stages * cell_detail_product_stage);
        making = reinterpret_cast<uint32_t *>(staged + CELL_PRODUCT_ROWS * CELL_PRODUCT_COLUMNS);
        map_a = static_cast<char *>(maps) + cell_block_index(0) * CELL_PRODUCT_MAP_BYTES;
        map_b = map_a + cell_detail_product_map;
        fetched = cell_detail_product_address(base);
        full = cell_detail_product_address(making) + CELL_PRODUCT_MAP_BYTES;
        empty = full + stages * 8;
        ready = empty + stages * 8;
        taken = ready + 8;
    }
};

// The stage that comes next, and the phase of its barriers.
struct cell_detail_product_turn {
    int stage = 0;
    uint32_t phase = 0;
    __device__ __forceinline__ void next()
    {
        if (++stage == cell_detail_product_stages) {
            stage = 0;
            phase ^= 1;
        }
    }
};

template <class T, class With>
__device__ __forceinline__ void cell_detail_product_begin(const cell_product<T> &x, const cell_detail_product_memory<T> &m, With &with,
                                                          int warp)
{
    if (warp == 0)
        cell_detail_product_make(m.map_a, m.making, x.a, x.a_pitch, x.rows, x.depth, CELL_PRODUCT_ROWS);
    if (warp == 1 && With::across)
        cell_detail_product_make(m.map_b, m.making + cell_detail_product_map / 4, x.b, x.b_pitch, x.depth, x.columns,
                                 cell_detail_product_depth);
    if (warp == 1 && !With::across)
        cell_detail_product_make(m.map_b, m.making + cell_detail_product_map / 4, x.b, x.b_pitch, x.columns, x.depth,
                                 CELL_PRODUCT_COLUMNS);
    if (cell_thread() == 0) {
        for (int s = 0; s < cell_detail_product_stages; s++) {
            cell_detail_product_init(m.full + s * 8, 1);
            cell_detail_product_init(m.empty + s * 8, 8);
        }
        cell_detail_product_init(m.ready, 8);
        cell_detail_product_init(m.taken, 3);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    with.begin(warp);
    cell_barrier();
}

// One thread fetches the stages of all tiles.
template <class T, class Tiles, class With>
__device__ __forceinline__ void cell_detail_product_fetch_all(const cell_detail_product_memory<T> &m, const Tiles &tiles, With &with,
                                                              int steps)
{
    cell_detail_product_turn turn;
    int row, column;
    cell_detail_product_join(m.map_a);
    cell_detail_product_join(m.map_b);
    for (int tile = tiles.first; tile < tiles.all; tile += tiles.step) {
        tiles.place(row, column, tile);
        with.fetch(tile);
        for (int i = 0; i < steps; i++) {
            const uint32_t a = m.fetched + turn.stage * cell_detail_product_stage, b = a + cell_detail_product_a;
            const uint32_t barrier = m.full + turn.stage * 8;
            const int k = i * cell_detail_product_depth;
            cell_detail_product_wait(m.empty + turn.stage * 8, turn.phase ^ 1);
            cell_detail_product_expect(barrier, cell_detail_product_stage);
            cell_detail_product_fetch(a, m.map_a, barrier, k, row);
            if (With::across) {
                CELL_UNROLL
                for (int j = 0; j < CELL_PRODUCT_COLUMNS / 64; j++)
                    cell_detail_product_fetch(b + j * cell_detail_product_box, m.map_b, barrier, column + j * 64, k);
            } else {
                cell_detail_product_fetch(b, m.map_b, barrier, k, column);
            }
            turn.next();
        }
    }
}

// Three warps finish all tiles but the last, of which each of those that multiply takes its own part.
template <class T, class Tiles, class With>
__device__ __forceinline__ void cell_detail_product_finish_all(const cell_product<T> &x, const cell_detail_product_memory<T> &m,
                                                               const Tiles &tiles, With &with, int warp)
{
    uint32_t phase = 0;
    int row, column;
    for (int tile = tiles.first; tile < tiles.all; tile += tiles.step) {
        with.beside(tile);
        if (tile + tiles.step >= tiles.all)
            break;
        tiles.place(row, column, tile);
        cell_detail_product_wait(m.ready, phase);
        phase ^= 1;
        cell_detail_product_finish<3>(x, with, m.staged, row, column, warp - 1, CELL_PRODUCT_ROWS);
        cell_warp_barrier();
        if (cell_lane() == 0)
            cell_detail_product_arrive(m.taken);
    }
    with.beside(tiles.all);
}

// A tile's sums of products, by a warpgroup, each for its 64 rows; `own` is the warp's number among eight.
template <bool Across, class T>
__device__ __forceinline__ void cell_detail_product_sum(const cell_detail_product_memory<T> &m, float (&sums)[128],
                                                        cell_detail_product_turn &turn, int steps, int own)
{
    const uint32_t a = m.fetched + own / 4 * cell_detail_product_box, b = m.fetched + cell_detail_product_a;
    int before = 0;
    CELL_UNROLL_BY(1)
    for (int i = 0; i < steps; i++) {
        cell_detail_product_wait(m.full + turn.stage * 8, turn.phase);
        cell_warp_barrier();
        cell_tile_begin();
        CELL_UNROLL
        for (int k = 0; k < cell_detail_product_depth / 16; k++) {
            const uint32_t at = turn.stage * cell_detail_product_stage; // 16 terms are 32 bytes of a line, or 16 lines
            cell_detail_product_multiply<Across>(T(), sums, cell_detail_product_operand<false>(a + at + k * 32),
                                                 cell_detail_product_operand<Across>(b + at + k * (Across ? 2048 : 32)),
                                                 k > 0 || i > 0);
        }
        cell_tile_commit();
        cell_tile_wait<1>();
        if (i > 0 && cell_lane() == 0)
            cell_detail_product_arrive(m.empty + before * 8);
        before = turn.stage;
        turn.next();
    }
    cell_tile_wait<0>();
    CELL_UNROLL
    for (int i = 0; i < 128; i++)
        asm volatile("" : "+f"(sums[i])); // not read before
    if (cell_lane() == 0)
        cell_detail_product_arrive(m.empty + before * 8);
}

// Leaves the sums, rounded, in the tile that waits. Of stmatrix a lane gives the address of 8 neighbours in line lane % 16 of the
// warp's 16.
template <class T>
__device__ __forceinline__ void cell_detail_product_leave(const cell_detail_product_memory<T> &m, const float (&sums)[128], int own)
{
    const int lane = cell_lane();
    const uint32_t to = cell_detail_product_address(m.staged) + (own * 16 + lane % 16) * 128;
    CELL_UNROLL
    for (int quarter = 0; quarter < 4; quarter++) {
        CELL_UNROLL
        for (int q = 0; q < 4; q++) {
            uint32_t pairs[4];
            CELL_UNROLL
            for (int i = 0; i < 4; i++) {
                const int at = quarter * 32 + q * 8 + i * 2;
                pairs[i] = cell_detail_product_pair(T(), sums[at], sums[at + 1]);
            }
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                             to + quarter * cell_detail_product_quarter * 2 + (((2 * q + lane / 16) ^ (lane % 8)) << 4)),
                         "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
                         : "memory");
        }
    }
    cell_warp_barrier();
}

template <class T, class Tiles, class With>
__device__ __forceinline__ void cell_detail_product_multiply_all(const cell_product<T> &x, const cell_detail_product_memory<T> &m,
                                                                 const Tiles &tiles, With &with, int steps, int own)
{
    cell_detail_product_turn turn;
    uint32_t phase = 0;
    int row, column;
    float sums[128];
    CELL_UNROLL
    for (int i = 0; i < 128; i++)
        sums[i] = 0.0f;
    for (int tile = tiles.first; tile < tiles.all; tile += tiles.step) {
        cell_detail_product_sum<With::across>(m, sums, turn, steps, own);
        tiles.place(row, column, tile);
        with.add(sums, row + own * 16, column);
        cell_detail_product_wait(m.taken, phase ^ 1);
        cell_warp_barrier();
        phase ^= 1;
        cell_detail_product_leave(m, sums, own);
        if (tile + tiles.step < tiles.all) {
            if (cell_lane() == 0)
                cell_detail_product_arrive(m.ready);
        } else {
            cell_detail_product_finish<1>(x, with, m.staged, row, column, own * 16, own * 16 + 16);
        }
    }
}

// What a block does. `with` says what goes beside the product:
//   bool across             B is [depth, columns]
//   begin(int warp)         by all threads, before anything of A or B is fetched
//   fetch(int tile)         by the thread that fetches, before the first of a tile
//   beside(int tile)        by the three warps, before they wait for a tile; once more behind all, with tiles.all
//   add(float (&sums)[128], int row, int column)            by those that multiply, to a tile before it is rounded
//   body(int64_t row, int64_t column, const float (&v)[8])  of elements
template <class T, class Tiles, class With>
__device__ __forceinline__ void cell_detail_product_run(const cell_product<T> &x, const Tiles &tiles, With &with)
{
    const cell_detail_product_memory<T> m(x.maps);
    const int warp = cell_shfl(cell_warp(), 0);
    const int steps = (int)((x.depth + cell_detail_product_depth - 1) / cell_detail_product_depth);
    cell_detail_product_begin(x, m, with, warp);
    // Registers go where they are needed: 128 threads of 120 and 256 of 192 have what 384 of 168 had.
    if (warp < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 120;");
        if (cell_thread() == 0)
            cell_detail_product_fetch_all(m, tiles, with, steps);
        else if (warp > 0)
            cell_detail_product_finish_all(x, m, tiles, with, warp);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 192;");
        cell_detail_product_multiply_all(x, m, tiles, with, steps, warp - 4);
    }
}

template <class Body> struct cell_detail_product_with {
    static constexpr bool across = false;
    Body &body;
    __device__ __forceinline__ void begin(int) {}
    __device__ __forceinline__ void fetch(int) {}
    __device__ __forceinline__ void beside(int) {}
    __device__ __forceinline__ void add(float (&)[128], int, int) {}
};
#endif

// By all threads of a block of CELL_PRODUCT_THREADS, with CELL_PRODUCT_SMEM bytes of shared memory, which nothing else of the
// kernel uses, in a grid along x; a kernel calls it once and does nothing behind it. body(int64_t row, int64_t column, const
// float (&v)[8]) is called once for every 8 neighbours of C, v being C[row, column ...]: by any thread, in any order, and not
// convergently.
template <class T, class Body> __device__ __forceinline__ void cell_multiply(const cell_product<T> &x, Body body)
{
#if CELL_DETAIL_PRODUCT
    const cell_detail_product_tiles<16> tiles(x.rows, x.columns);
    cell_detail_product_with<Body> with = {body};
    cell_detail_product_run(x, tiles, with);
#elif !defined(__CUDACC__) && !defined(__CUDACC_RTC__)
    const int64_t vectors = x.columns / 8;
    for (int64_t e = cell_block_index(0) * cell_threads() + cell_thread(); e < x.rows * vectors;
         e += cell_block_count(0) * cell_threads()) {
        const int64_t row = e / vectors, column = e % vectors * 8;
        float v[8] = {};
        for (int64_t k = 0; k < x.depth; k += 8) {
            float a[8], b[8];
            cell_load_vec_ro<8>(a, x.a + row * x.a_pitch + k);
            for (int i = 0; i < 8; i++) {
                cell_load_vec_ro<8>(b, x.b + (column + i) * x.b_pitch + k);
                for (int j = 0; j < 8; j++)
                    v[i] += a[j] * b[j];
            }
        }
        for (int i = 0; i < 8; i++)
            v[i] = cell_round_to<T>(v[i]);
        if (x.c)
            cell_store_vec<8>(x.c + row * x.c_pitch + column, v);
        body(row, column, v);
    }
#else
    (void)x, (void)body;
#endif
}

template <class T, class Body>
__device__ __forceinline__ void cell_multiply(const T *a, int64_t a_pitch, const T *b, int64_t b_pitch, T *c,
                                              int64_t c_pitch, int64_t rows, int64_t columns, int64_t depth,
                                              void *maps, Body body)
{
    const cell_product<T> product = { a, a_pitch, b, b_pitch, c, c_pitch, rows, columns, depth, maps };
    cell_multiply(product, body);
}

// The launch and the library are of one mind.
template <int Smem, int Map_bytes, int Rows, int Columns> __device__ __forceinline__ void cell_product_agree()
{
    static_assert(CELL_PRODUCT_SMEM == Smem && CELL_PRODUCT_MAP_BYTES == Map_bytes &&
                      CELL_PRODUCT_ROWS == Rows && CELL_PRODUCT_COLUMNS == Columns,
                  "as planned");
}
#endif
