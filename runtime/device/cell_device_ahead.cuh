// A product of matrices of 16 bits whose left operand is made by the same kernel, ahead of what multiplies it.
//
// In: a body that makes 8 neighbours of A [rows, depth], B [depth, columns], dense along columns. Out: A, C = A B [rows,
// columns], and sums over rows of what the body adds. Guaranteed: sums of products in f32, rounded to T once, behind the addition
// to what C has where that is asked for; which rows a sum has, and their order, follow from `lanes` alone.
#ifndef CELL_DEVICE_AHEAD_CUH
#define CELL_DEVICE_AHEAD_CUH

// As of cell_product: depth, columns and b_pitch are multiples of 8, addresses of 16 bytes.
template <class T> struct cell_product_ahead { // cell_bf16 or cell_f16
    T *a;            // [rows, depth], dense
    const T *b;
    int64_t b_pitch; // of elements
    T *c;            // or null: there is no product, A is made and no more
    int64_t c_pitch;
    int64_t rows, columns, depth;
    bool adds;       // to what C has
    void *maps;      // scratch: CELL_PRODUCT_MAP_BYTES for each block, 128-byte aligned
    void *made;      // a counter of 4 bytes for every CELL_AHEAD_ROWS rows, 0
    float *partial;  // [Sums][lanes][depth]
    int64_t lanes;   // row r of CELL_AHEAD_ROWS is added to sum r % lanes
};

constexpr int CELL_AHEAD_ROWS = 1024;

// Makes the rows of one group, as thread `self` of `all`: a thread has a lane's rows of 8 columns, and adds to the sums that the
// group before left. While it makes one it has asked for the next few, as many as registers hold.
template <int Sums, class Fetched, class T, class Fetch, class Make>
__device__ __forceinline__ void cell_detail_ahead_rows(const cell_product_ahead<T> &x, Fetch &fetch, Make &make, int64_t group,
                                                       int64_t self, int64_t all)
{
    constexpr int under_way = sizeof(Fetched) <= 32 ? 4 : sizeof(Fetched) <= 64 ? 2 : 1;
    const int64_t vectors = x.depth / 8, begin = group * CELL_AHEAD_ROWS;
    const int64_t end = begin + CELL_AHEAD_ROWS < x.rows ? begin + CELL_AHEAD_ROWS : x.rows;
    for (int64_t item = self; item < vectors * x.lanes; item += all) {
        const int64_t lane = item / vectors, column = item % vectors * 8;
        float sums[Sums ? Sums : 1][8] = {};
        CELL_UNROLL
        for (int i = 0; i < Sums; i++)
            if (group > 0)
                cell_load_vec<8>(sums[i], x.partial + (i * x.lanes + lane) * x.depth + column);
        Fetched fetched[under_way];
        CELL_UNROLL
        for (int i = 0; i < under_way; i++)
            if (begin + lane + i * x.lanes < end)
                fetch(begin + lane + i * x.lanes, column, fetched[i]);
        CELL_UNROLL_BY(1)
        for (int64_t first = begin + lane; first < end; first += under_way * x.lanes) {
            CELL_UNROLL
            for (int i = 0; i < under_way; i++) {
                const int64_t row = first + i * x.lanes, next = row + under_way * x.lanes;
                if (row >= end)
                    break;
                make(row, column, fetched[i], sums);
                if (next < end)
                    fetch(next, column, fetched[i]);
            }
        }
        CELL_UNROLL
        for (int i = 0; i < Sums; i++)
            cell_store_vec<8>(x.partial + (i * x.lanes + lane) * x.depth + column, sums[i]);
    }
}

#if CELL_DETAIL_PRODUCT
// What goes beside the product. Blocks take tiles in waves, and groups of rows of A in turn: while a wave is multiplied, three warps
// of each block make their part of the groups that the next one begins, and count it at each group; all twelve make the first. Not
// further ahead, since A would leave the L2 before it is read. No block waits for one that waits for it: what a wave needs was made
// before any block waited for the end of a tile of the wave before.
constexpr int cell_detail_ahead_tiles = CELL_AHEAD_ROWS / CELL_PRODUCT_ROWS;
template <int Sums, class Fetched, class T, class Fetch, class Make> struct cell_detail_ahead {
    static constexpr bool across = true;
    const cell_product_ahead<T> &x;
    Fetch &fetch_row;
    Make &make;
    const cell_detail_product_tiles<cell_detail_ahead_tiles> &tiles;
    unsigned int *made;
    int groups;
    int next;  // group to make
    int known; // the last group that is there

    // TMA is another way to memory than that of stores, so both sides have a fence.
    __device__ __forceinline__ void count(int group)
    {
        asm volatile("fence.proxy.async.global;" ::: "memory");
        cell_warp_barrier();
        if (cell_lane() == 0)
            cell_counter_post(made + group);
    }
    __device__ __forceinline__ void wait(int group)
    {
        cell_counter_wait(made + group, (unsigned int)tiles.step * (group ? 3 : 12));
        asm volatile("fence.proxy.async.global;" ::: "memory");
    }
    __device__ __forceinline__ void begin(int)
    {
        const int threads = CELL_PRODUCT_THREADS;
        for (; next < (x.c ? 1 : groups); next++) {
            cell_detail_ahead_rows<Sums, Fetched>(x, fetch_row, make, next, (int64_t)tiles.first * threads + cell_thread(),
                                                  (int64_t)tiles.step * threads);
            count(next);
        }
    }
    __device__ __forceinline__ void fetch(int tile)
    {
        const int group = tiles.group(tile);
        if (group > known)
            wait(group);
        known = group;
    }
    __device__ __forceinline__ void beside(int tile)
    {
        const int behind = tile - tiles.first + 2 * tiles.step; // the first tile of the wave after the next
        const int end = behind < tiles.all ? tiles.group(behind - 1) + 1 : groups;
        for (; next < end; next++) {
            if (next == 1) { // other threads began the sums
                if (cell_lane() == 0)
                    wait(0);
                cell_warp_barrier();
            }
            cell_detail_ahead_rows<Sums, Fetched>(x, fetch_row, make, next, (int64_t)tiles.first * 96 + cell_thread() - 32,
                                                  (int64_t)tiles.step * 96);
            count(next);
        }
    }
    // Of 8 neighbouring columns a lane has two, of two rows.
    __device__ __forceinline__ void add(float (&sums)[128], int row, int column)
    {
        if (!x.adds)
            return;
        CELL_UNROLL
        for (int i = 0; i < 64; i++) {
            const int64_t r = row + cell_lane() / 4 + i % 2 * 8;
            const int c = column + i / 2 * 8 + cell_lane() % 4 * 2;
            if (r < x.rows && c < x.columns) {
                float old[2];
                cell_load_vec<2>(old, x.c + r * x.c_pitch + c);
                sums[i * 2] += old[0];
                sums[i * 2 + 1] += old[1];
            }
        }
    }
    // C is stored, and that is all.
    __device__ __forceinline__ void body(int64_t, int64_t, const float (&)[8]) {}
};
#endif

// By all threads of a block of CELL_PRODUCT_THREADS, with CELL_PRODUCT_SMEM bytes of shared memory, which nothing else of the
// kernel uses, in a cooperative grid along x; a kernel calls it once and does nothing behind it. fetch(int64_t row, int64_t column,
// Fetched &) and then make(int64_t row, int64_t column, Fetched &, float (&sums)[Sums][8]) are called once for every 8 neighbours of
// A, which the latter stores; by any thread, and not convergently.
template <int Sums, class Fetched, class T, class Fetch, class Make>
__device__ __forceinline__ void cell_multiply_ahead(const cell_product_ahead<T> &x, Fetch fetch, Make make)
{
#if CELL_DETAIL_PRODUCT
    const cell_product<T> product = {x.a, x.depth, x.b, x.b_pitch, x.c, x.c_pitch, x.rows, x.columns, x.depth, x.maps};
    cell_detail_product_tiles<cell_detail_ahead_tiles> tiles(x.rows, x.columns);
    if (!x.c)
        tiles.all = 0;
    const int groups = (int)((x.rows + CELL_AHEAD_ROWS - 1) / CELL_AHEAD_ROWS);
    cell_detail_ahead<Sums, Fetched, T, Fetch, Make> with = {x, fetch, make, tiles, static_cast<unsigned int *>(x.made), groups, 0, -1};
    cell_detail_product_run(product, tiles, with);
#elif !defined(__CUDACC__) && !defined(__CUDACC_RTC__)
    const int64_t self = cell_block_index(0) * cell_threads() + cell_thread(), all = cell_block_count(0) * cell_threads();
    for (int64_t group = 0; group * CELL_AHEAD_ROWS < x.rows; group++)
        cell_detail_ahead_rows<Sums, Fetched>(x, fetch, make, group, self, all);
    cell_grid_barrier(static_cast<unsigned int *>(x.made));
    const int64_t vectors = x.columns / 8;
    for (int64_t e = self; e < x.rows * vectors && x.c; e += all) {
        const int64_t row = e / vectors, column = e % vectors * 8;
        float v[8] = {}, old[8] = {}, b[8];
        for (int64_t k = 0; k < x.depth; k++) {
            const float a = cell_load<float>(x.a + row * x.depth + k);
            cell_load_vec_ro<8>(b, x.b + k * x.b_pitch + column);
            for (int i = 0; i < 8; i++)
                v[i] += a * b[i];
        }
        if (x.adds)
            cell_load_vec<8>(old, x.c + row * x.c_pitch + column);
        for (int i = 0; i < 8; i++)
            v[i] += old[i];
        cell_store_vec<8>(x.c + row * x.c_pitch + column, v);
    }
#else
    (void)x, (void)fetch, (void)make;
#endif
}

// What a thread has asked for of a row that it makes: a vector of each of these types, which a function
// gets behind its arguments.
template <class... T> struct cell_fetched;
template <> struct cell_fetched<> {
    template <class F, class... Args> __device__ __forceinline__ void call(F &f, Args &...args)
    {
        f(args...);
    }
};
template <class T, class... More> struct cell_fetched<T, More...> : cell_fetched<More...> {
    cell_row<T, 8, 1> row;
    template <class F, class... Args> __device__ __forceinline__ void call(F &f, Args &...args)
    {
        cell_fetched<More...>::call(f, args..., row);
    }
};

// fetch(row, column, vectors...) and make(row, column, sums, vectors...) get the vectors each for itself.
template <int Sums, class T, class... Vectors, class Fetch, class Make>
__device__ __forceinline__ void cell_multiply_ahead(T *a, const T *b, int64_t b_pitch, T *c, int64_t c_pitch,
                                                    int64_t rows, int64_t columns, int64_t depth, bool adds,
                                                    void *maps, void *made, float *partial, int64_t lanes,
                                                    Fetch fetch, Make make)
{
    using Fetched = cell_fetched<Vectors...>;
    const cell_product_ahead<T> product = { a,     b,    b_pitch, c,    c_pitch, rows, columns,
                                            depth, adds, maps,    made, partial, lanes };
    const auto fetch_row = [&](int64_t row, int64_t column, Fetched &fetched) {
        fetched.call(fetch, row, column);
    };
    const auto make_row = [&](int64_t row, int64_t column, Fetched &fetched,
                              float(&sums)[Sums ? Sums : 1][8]) { fetched.call(make, row, column, sums); };
    cell_multiply_ahead<Sums, Fetched>(product, fetch_row, make_row);
}

template <int Rows> __device__ __forceinline__ void cell_product_ahead_agree()
{
    static_assert(CELL_AHEAD_ROWS == Rows, "as planned");
}

#undef CELL_DETAIL_PRODUCT

#endif
