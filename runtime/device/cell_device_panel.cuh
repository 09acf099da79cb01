// Recurrent products whose weights stay on the chip, for both sides of the device library (schedule gemm).
//
// In: the blocks of a cooperative launch, each of which owns `Units` neighbours of a vector of `units`. Out: at
// every step C[b, r] = sum over k of X[b, k] W[r, k] for the block's rows r. Rows and k are stacks of pieces, each
// `units` long (an LSTM's four gates): row `piece * units + unit` belongs to the block of that unit. Guaranteed:
// sums have one fixed order; a warp waits for the blocks that make its part of X, not for all.
//
// The method is that of persistent RNNs (Diamos et al., 2016): the block's rows of W, its panel, are read once
// and lie in shared memory in the order in which tensor cores take them.
//
// The contraction is split over the block's 8 warps by units: warp w takes those of group w in every piece of k.
// Where an element of a fragment stands along k is free as long as both operands agree, so a lane takes 8
// neighbours, 16 bytes, of a row of X and of a row of W (4 of f32). Where a piece of X begins at no multiple of 16 bytes, it
// reads them in halves; where at none of 8, the two vectors around them, of which it cuts them out; memory begins and ends at a multiple of 16.
//
// f32: a number is two of tf32, each rounded to 11 bits, x = hi + lo with an error of 2^-22 |x| at most, and a product
// three, hi hi + hi lo + lo hi, so that a term is off by less than 2^-20 of itself; those errors have all signs. What the
// tensor cores add up they truncate: 16 terms at a time only, and these sums are added as f32 is.
//
// How a block knows that its part of X is there. Where X has a row for every step and whole words of 4 bytes, its words
// are marked before the first step with a value that no number has, and a warp reads its part until no word is marked:
// one way through memory, no barrier, no fence. What orders it: a word is written by one store of one thread (relaxed,
// gpu scope) after its mark, with a barrier of the block between, and read whole, so it is either the mark or final. Marks
// are seen by all before the first step: each block posts behind its marks (release), and waits for the posts of the
// blocks whose words it reads (acquire). Nothing else passes between blocks. Otherwise blocks post at every step, and X may be
// a ring of two steps.
#ifndef CELL_DEVICE_PANEL_CUH
#define CELL_DEVICE_PANEL_CUH

enum { CELL_PANEL_WARPS = 8, CELL_PANEL_THREADS = 256, CELL_PANEL_BATCH = 16, CELL_PANEL_POST = 32 };

// Two numbers of 16 bits, or one of 32, of which none is the result of a conversion or an operation: NaN with all bits set.
constexpr uint32_t CELL_PANEL_MARK = 0xffffffffu;

// A word of X as it is stored, and not the mark.
__device__ __forceinline__ uint32_t cell_panel_word(uint32_t word)
{
    return word == CELL_PANEL_MARK ? 0x7fff7fffu : word;
}

// A step may have several such products: each has its X, its posts and its weights, unless it has those of
// another, and all use the same place for the warps' shares of a sum. The pieces of k may be of other units than
// the pieces of rows; of both a block owns the same number. Then some blocks may own nothing of X, and the last
// group waits for their posts too, so that no block is more than a step ahead of one that reads X.
//
// T: storage of X and W. Inner: pieces of k. Outer: pieces of rows. Units: of a block, a multiple of 8 that
// divides 32. Split: blocks of a cluster that share their rows and divide k, so that each reads only its part of X: the
// pieces, if it divides Inner, else the units of every piece. Batch: rows of X that are multiplied at once, 16, or 32 in 16 bits.
// Keep: how many fragments of the weights a thread may have in registers.
template <class T, int Inner, int Outer, int Units, int Split = 1, int Batch = CELL_PANEL_BATCH,
          int Keep = 16>
struct cell_panel {
    static constexpr int batch = Batch;
    static constexpr int covered = Units * Split;       // units whose rows the block multiplies
    static constexpr int slices = Inner % Split == 0 ? 1 : Split; // parts of each piece
    static constexpr int pieces = Inner * slices / Split;
    static constexpr int groups = CELL_PANEL_WARPS * slices; // of units, one for each warp that multiplies them
    static constexpr int tiles = Outer * (covered / 8); // of 8 rows: piece by piece
    static constexpr int halves = Batch / 16;           // 16 rows of X are one operand of the tensor cores
    static constexpr int results = halves * tiles;      // sums of the tensor cores: tiles of the first 16 rows, then of the others
    static constexpr int tile = 8 * Batch;              // elements of C in one
    static constexpr int shares = Outer * Units * Batch; // elements of C that are the block's own
    static constexpr bool narrow = sizeof(T) == 2;
    static_assert(Batch == 16 || (Batch == 32 && narrow));
    static constexpr int each = 16 / (int)sizeof(T);    // numbers of a lane, neighbours along k
    static constexpr int word = 4 / (int)sizeof(T);     // numbers of 4 bytes
    static constexpr int along = 4 * each;              // of a block along k: 32, or 16 of f32
    static constexpr int stride = 32 * each;            // of a tile's weights for such a block
    static constexpr int most_ahead = pieces > 1 || !narrow || tiles <= 2 ? 8 : slices > 1 ? 2 : 4;
    static constexpr int ahead = halves == 1 || most_ahead < 4 ? most_ahead : 4; // blocks along k that are read at once
    static constexpr int most_held = Keep / (halves * halves) / ahead; // tiles of them in registers
    static constexpr int held = pieces > 1 || !narrow ? 0 : tiles < most_held ? tiles : most_held;

    cell_smem<T> weights;     // [warp][piece][block along k][tile][lane][each], without those in registers
    cell_smem<float> partial; // [warp][tile][Batch][8]
    cell_smem<float> gathered; // [2][block of the cluster][piece][Batch][Units]
    cell_inbox inbox, next_inbox; // of a half of `gathered` each
    int units; // of a piece of the rows
    int k_units, group; // of a piece of k; of one warp, a multiple of 32, the length of two fragments
    int others; // blocks that own none of these, and post with the last group
    int first;                // the block's first unit
    int rank;                 // in the cluster
    int turn;                 // which half of `gathered` is next
    unsigned int *posts;      // [group], CELL_PANEL_POST apart
    unsigned int *own_posts;  // the one that this block posts to; NULL: nobody waits for it
    bool marks;               // words of X that are not there yet are marked
    bool awaits;              // those of this step may be

    __device__ __forceinline__ void carve(unsigned char *&cursor, int64_t of_units, unsigned int *counters)
    {
        begin(of_units, of_units);
        post_to(counters);
        carve_weights(cursor);
        partial = cell_carve<float>(cursor, CELL_PANEL_WARPS * tiles * tile);
        carve_cluster(cursor);
    }

    // One of several products: `shares` has room for the shares of each.
    __device__ __forceinline__ void carve_one(unsigned char *&cursor, cell_smem<float> shares_of_all,
                                              int64_t of_units, int64_t of_k, unsigned int *counters)
    {
        begin(of_units, of_k);
        post_with_all(counters);
        carve_weights(cursor);
        partial = shares_of_all;
        carve_cluster(cursor);
    }

    // The same weights as another of the products has, for another operand.
    __device__ __forceinline__ void carve_again(unsigned char *&cursor, const cell_panel &first_one,
                                                unsigned int *counters)
    {
        *this = first_one;
        post_with_all(counters);
        carve_cluster(cursor);
    }

    __device__ __forceinline__ void begin(int64_t of_units, int64_t of_k)
    {
        units = (int)of_units;
        k_units = (int)of_k;
        group = ((k_units + groups - 1) / groups + 31) / 32 * 32;
        first = (int)cell_block_index(0) * Units;
        rank = Split > 1 ? cell_cluster_rank() : 0;
        turn = others = 0;
        marks = awaits = false;
    }

    __device__ __forceinline__ void post_to(unsigned int *counters)
    {
        posts = counters;
        own_posts = first < k_units ? counters + first / group * CELL_PANEL_POST : nullptr;
    }

    __device__ __forceinline__ void post_with_all(unsigned int *counters)
    {
        post_to(counters);
        others = (int)cell_block_count(0) - (k_units + Units - 1) / Units;
        if (!own_posts && k_units > 0)
            own_posts = counters + (k_units - 1) / group * CELL_PANEL_POST;
    }

    __device__ __forceinline__ void carve_weights(unsigned char *&cursor)
    {
        weights = cell_carve<T>(cursor, (int64_t)CELL_PANEL_WARPS * place(pieces * (group / along), 0) * stride);
    }

    __device__ __forceinline__ void carve_cluster(unsigned char *&cursor)
    {
        if (Split > 1) {
            gathered = cell_carve<float>(cursor, 2 * Split * shares);
            inbox = cell_inbox_carve(cursor);
            next_inbox = cell_inbox_carve(cursor);
        }
    }

    // The weights that a lane takes at every step for the first blocks along k.
    struct kept {
        uint32_t words[ahead][held > 0 ? held : 1][4];
    };

    // The place in shared memory of a tile's weights among those of the warp; some before it are in registers.
    __device__ __forceinline__ static int place(int block, int row_tile)
    {
        return block * tiles + row_tile - (block < ahead ? block + (row_tile > 0) : ahead) * held;
    }

    // W[r, k] stands at w[r * row_stride + k * k_stride]. The block's threads together; start() must follow.
    __device__ void load(kept &weights_kept, const T *w, int64_t row_stride, int64_t k_stride)
    {
        const int blocks = pieces * (group / along);
        for (int n = 0; n < blocks * tiles; n++) {
            const int block = n / tiles, row_tile = n % tiles;
            if (block < ahead && row_tile < held)
                continue;
            T v[each];
            take(v, w, row_stride, k_stride, block, row_tile);
            CELL_UNROLL
            for (int i = 0; i < each; i++)
                lane_weights()[place(block, row_tile) * stride + i] = v[i];
        }
        CELL_UNROLL
        for (int block = 0; block < ahead; block++)
            keep(weights_kept.words[block], w, row_stride, k_stride, block);
    }

    // By way of shared memory, so that no loop is unrolled but those over registers.
    __device__ __forceinline__ void keep(uint32_t (&words)[held > 0 ? held : 1][4], const T *w, int64_t row_stride,
                                         int64_t k_stride, int block) const
    {
        if constexpr (held > 0) {
            const cell_smem<float> by = partial + (cell_warp() * tiles * 32 + cell_lane()) * 4;
            for (int j = 0; j < held; j++) {
                T v[each];
                take(v, w, row_stride, k_stride, block, j);
                CELL_UNROLL
                for (int i = 0; i < 4; i++)
                    by[j * 128 + i] = cell_detail_bits_float(v[2 * i].bits | (uint32_t)v[2 * i + 1].bits << 16);
            }
            CELL_UNROLL
            for (int j = 0; j < held; j++)
                cell_shared_words(words[j], by + j * 128);
        }
    }

    // A lane's weights of one tile and one of the warp's blocks along k; 0 where there are none.
    __device__ __forceinline__ void take(T (&v)[each], const T *w, int64_t row_stride, int64_t k_stride, int block,
                                         int row_tile) const
    {
        const int blocks = group / along, lane = cell_lane();
        const int unit = first - rank * Units + row_tile % (covered / 8) * 8 + lane / 4;
        const int k_unit = own_group() * group + block % blocks * along + lane % 4 * each;
        const int64_t row = (int64_t)(row_tile / (covered / 8)) * units + unit;
        const int64_t k = (int64_t)(first_piece() + block / blocks) * k_units + k_unit;
        const bool there = block < pieces * blocks && unit < units;
        CELL_UNROLL
        for (int i = 0; i < each; i++)
            v[i] = there && k_unit + i < k_units ? w[row * row_stride + (k + i) * k_stride] : T{};
    }

    __device__ __forceinline__ cell_smem<T> lane_weights() const
    {
        return weights + (cell_warp() * place(pieces * (group / along), 0) * 32 + cell_lane()) * each;
    }

    // Of the block's part of k, of which a warp has a group of units in all pieces.
    __device__ __forceinline__ int first_piece() const { return slices > 1 ? 0 : rank * pieces; }
    __device__ __forceinline__ int first_group() const { return slices > 1 ? rank * CELL_PANEL_WARPS : 0; }
    __device__ __forceinline__ int own_group() const { return first_group() + cell_warp(); }

    // Shared memory is filled, and the cluster's other blocks are there to be written to.
    __device__ __forceinline__ void start() const
    {
        if constexpr (Split > 1) {
            cell_inbox_init(inbox);
            cell_inbox_init(next_inbox);
            cell_barrier();
            expect(inbox);
            expect(next_inbox);
            cell_cluster_barrier();
        } else {
            cell_barrier();
        }
    }

    // A round of an inbox: the shares of the cluster's blocks.
    __device__ __forceinline__ static void expect(const cell_inbox &b)
    {
        if (cell_thread() == 0)
            cell_inbox_expect(b, Split * shares * (int)sizeof(float));
    }

    // Do all pieces of all rows of X begin at a multiple of so many bytes?
    __device__ __forceinline__ bool begins_at(const T *x, int64_t pitch, int bytes) const
    {
        const int numbers = bytes / (int)sizeof(T);
        return k_units % numbers == 0 && pitch % numbers == 0 && reinterpret_cast<uintptr_t>(x) % bytes == 0;
    }

    // Marks the block's own words of X, the rows of `steps` steps of each sequence but row `skip` of each, which is there
    // already. Behind start(). The block's threads together.
    __device__ __forceinline__ void mark(T *x, int64_t pitch, int64_t batch, int64_t steps, int64_t skip)
    {
        const uint32_t none[4] = {CELL_PANEL_MARK, CELL_PANEL_MARK, CELL_PANEL_MARK, CELL_PANEL_MARK};
        if (begins_at(x, pitch, 16))
            mark_by<each>(x, pitch, batch, steps, skip, [&](T *p) { cell_store_words(p, none); });
        else if (begins_at(x, pitch, 4))
            mark_by<word>(x, pitch, batch, steps, skip, [](T *p) { cell_show_word(p, CELL_PANEL_MARK); });
        else
            return;
        post();
        wait(1);
        marks = true;
    }

    // put(p) marks `Numbers` neighbours.
    template <int Numbers, class Put>
    __device__ __forceinline__ void mark_by(T *x, int64_t pitch, int64_t batch, int64_t steps, int64_t skip, Put put) const
    {
        constexpr int own = Units / Numbers, marked = Inner * own, rows = CELL_PANEL_THREADS / marked;
        const int at = cell_thread() % marked, unit = first + at % own * Numbers;
        if (cell_thread() < rows * marked && unit < k_units)
            for (int64_t b = 0; b < batch; b++)
                for (int64_t row = cell_thread() / marked; row < steps; row += rows)
                    if (row != skip)
                        put(x + (b * steps + row) * pitch + at / own * k_units + unit);
    }

    // An element of X, p its place: all threads of a warp come, neighbours with neighbours, those that are not `mine`
    // for nothing.
    __device__ __forceinline__ void give(bool mine, T *p, float v) const
    {
        if constexpr (narrow) {
            const float next = cell_shfl_down(v, 1);
            const uint32_t low = cell_convert<T>(v).bits, high = cell_convert<T>(next).bits;
            if (marks && mine && cell_lane() % 2 == 0)
                cell_show_word(p, cell_panel_word(low | high << 16));
        } else if (marks && mine) {
            cell_show_word(p, cell_panel_word(cell_detail_float_bits(v)));
        }
        if (!marks && mine)
            cell_store(p, v);
    }

    // What the block wrote is there for others. A block of a cluster's end may have no units; nobody waits for it.
    __device__ __forceinline__ void post() const
    {
        if (marks)
            return;
        cell_barrier();
        if (cell_thread() == 0 && own_posts)
            cell_counter_post(own_posts);
    }

    // Called by every warp: behind it, multiply() may be called for what all blocks of its group have posted `rounds`
    // times; 0 is what was there before the steps.
    __device__ __forceinline__ void wait(int64_t rounds)
    {
        awaits = marks && rounds > 0;
        if (marks)
            return;
        const int begin = own_group() * group, end = begin + group < k_units ? begin + group : k_units;
        const int last = end == k_units ? others : 0;
        if (cell_lane() == 0 && begin < end)
            cell_counter_wait(posts + own_group() * CELL_PANEL_POST,
                              (unsigned int)((end - begin + Units - 1) / Units + last) *
                                  (unsigned int)rounds);
        cell_warp_barrier();
    }

    // 16 rows of X for one block along k, as two operands of the tensor cores; f32 as hi and lo.
    struct factors {
        uint32_t hi[2][4], lo[2][4];
        __device__ __forceinline__ void set(const uint32_t (&low)[4], const uint32_t (&high)[4])
        {
            CELL_UNROLL
            for (int i = 0; i < 8; i++) {
                const uint32_t word = i % 2 ? high[i / 2] : low[i / 2];
                if constexpr (narrow) {
                    hi[i / 4][i % 4] = word;
                } else {
                    const cell_tf32_halves v(cell_detail_bits_float(word));
                    hi[i / 4][i % 4] = v.hi;
                    lo[i / 4][i % 4] = v.lo;
                }
            }
        }
    };

    __device__ __forceinline__ static void multiply_tf32(cell_mma_c &sum, const uint32_t (&a)[4], uint32_t b,
                                                         uint32_t b_next)
    {
        cell_mma(sum, cell_mma_a<cell_tf32>{{a[0], a[1], a[2], a[3]}}, cell_mma_b<cell_tf32>{{b, b_next}});
    }

    __device__ __forceinline__ static void multiply_words(cell_mma_c &sum, const factors &x, const uint32_t (&b)[4])
    {
        if constexpr (narrow) {
            CELL_UNROLL
            for (int i = 0; i < 2; i++)
                cell_mma(sum, cell_mma_a<T>{{x.hi[i][0], x.hi[i][1], x.hi[i][2], x.hi[i][3]}},
                         cell_mma_b<T>{{b[2 * i], b[2 * i + 1]}});
        } else {
            cell_mma_c part;
            cell_mma_zero(part);
            uint32_t w_hi[4], w_lo[4];
            CELL_UNROLL
            for (int i = 0; i < 4; i++) {
                const cell_tf32_halves v(cell_detail_bits_float(b[i]));
                w_hi[i] = v.hi;
                w_lo[i] = v.lo;
            }
            CELL_UNROLL
            for (int i = 0; i < 2; i++) {
                multiply_tf32(part, x.hi[i], w_lo[2 * i], w_lo[2 * i + 1]);
                multiply_tf32(part, x.lo[i], w_hi[2 * i], w_hi[2 * i + 1]);
            }
            CELL_UNROLL
            for (int i = 0; i < 2; i++)
                multiply_tf32(part, x.hi[i], w_hi[2 * i], w_hi[2 * i + 1]);
            CELL_UNROLL
            for (int i = 0; i < 4; i++)
                sum.x[i] += part.x[i];
        }
    }

    // One block along k: the rows of X times tile j.
    __device__ __forceinline__ static void multiply_tile(cell_mma_c (&sums)[results], const factors (&x)[halves], int j,
                                                         const uint32_t (&b)[4])
    {
        CELL_UNROLL
        for (int h = 0; h < halves; h++)
            multiply_words(sums[h * tiles + j], x[h], b);
    }

    // The tiles from `From` on, which lie in shared memory.
    template <int From>
    __device__ __forceinline__ static void multiply_block(cell_mma_c (&sums)[results], const factors (&x)[halves],
                                                          cell_smem<T> at)
    {
        CELL_UNROLL
        for (int j = From; j < tiles; j++) {
            uint32_t b[4];
            cell_shared_words(b, at + (j - From) * stride);
            multiply_tile(sums, x, j, b);
        }
    }

    // The two vectors of 16 bytes in which `each` neighbours of a row of X lie, from p on; `left` of them are units.
    __device__ __forceinline__ static void watch_around(uint32_t (&vectors)[2][4], const T *p, int left)
    {
        const int before = (int)(reinterpret_cast<uintptr_t>(p) % 16 / sizeof(T));
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            vectors[0][i] = vectors[1][i] = 0;
        if (left > 0)
            cell_watch_words(vectors[0], p - before);
        if (before > 0 && left > each - before)
            cell_watch_words(vectors[1], p - before + each);
    }

    // The neighbours out of these vectors, and 0 for those that are no units.
    __device__ __forceinline__ static void cut(uint32_t (&words)[4], const uint32_t (&vectors)[2][4], const T *p, int left)
    {
        const int bytes = (int)(reinterpret_cast<uintptr_t>(p) % 16);
        uint32_t from[6];
        CELL_UNROLL
        for (int i = 0; i < 6; i++)
            from[i] = bytes & 8 ? vectors[(i + 2) / 4][(i + 2) % 4] : vectors[i / 4][i % 4];
        CELL_UNROLL
        for (int i = 0; i < 5; i++)
            from[i] = bytes & 4 ? from[i + 1] : from[i];
        CELL_UNROLL
        for (int i = 0; i < 4; i++) {
            const int there = left - i * word;
            words[i] = narrow && bytes & 2 ? from[i] >> 16 | from[i + 1] << 16 : from[i];
            words[i] = there >= word ? words[i] : there == 1 ? words[i] & 0xffffu : 0u;
        }
    }

    // Fragments of X, as many blocks along k as are read at once: of the lane's rows, 8 apart.
    enum { rows = Batch / 8 };
    struct fragments {
        uint32_t words[rows][ahead][4];
        int at[ahead];   // along k; negative: none
        int left[ahead]; // units from there on
    };

    __device__ __forceinline__ static uint32_t most(const uint32_t (&words)[4])
    {
        const uint32_t a = words[0] > words[1] ? words[0] : words[1], b = words[2] > words[3] ? words[2] : words[3];
        return a > b ? a : b;
    }
    __device__ __forceinline__ static bool is_marked(const uint32_t (&words)[4]) { return most(words) == CELL_PANEL_MARK; }

    // Is any word of the warp's marked? Behind it the compiler knows that all have come, also where none is awaited: what uses
    // them, or their registers, does not wait for what is read later.
    __device__ __forceinline__ static bool any_marked(const fragments &x)
    {
        uint32_t all = 0;
        CELL_UNROLL
        for (int i = 0; i < ahead; i++)
            CELL_UNROLL
            for (int r = 0; r < rows; r += 2) {
                const uint32_t low = most(x.words[r][i]), high = most(x.words[r + 1][i]), both = low > high ? low : high;
                all = both > all ? both : all;
            }
        return cell_any(all == CELL_PANEL_MARK);
    }

    // Neighbours along k of a row whose pieces begin at a multiple of 16 bytes, or of 8; `left` of them are units.
    template <int Bytes> __device__ __forceinline__ static void watch(uint32_t (&words)[4], const T *p, int left)
    {
        if constexpr (Bytes == 16) {
            cell_watch_words(words, p);
        } else {
            cell_watch_two(words[0], words[1], p);
            if (left > each / 2)
                cell_watch_two(words[2], words[3], p + each / 2);
        }
    }

    template <int Bytes> __device__ __forceinline__ static void watch_again(uint32_t (&words)[4], const T *p, int left)
    {
        if constexpr (Bytes == 16) {
            cell_await_words(words, p, CELL_PANEL_MARK);
        } else {
            cell_await_two(words[0], words[1], p, CELL_PANEL_MARK);
            if (left > each / 2)
                cell_await_two(words[2], words[3], p + each / 2, CELL_PANEL_MARK);
        }
    }

    // Reads again what was marked, until nothing is.
    template <int Bytes> __device__ __forceinline__ static void await(fragments &x, const T *const (&row)[rows])
    {
        do {
            CELL_UNROLL
            for (int i = 0; i < ahead; i++)
                CELL_UNROLL
                for (int r = 0; r < rows; r += 2) {
                    if (is_marked(x.words[r][i]))
                        watch_again<Bytes>(x.words[r][i], row[r] + x.at[i], x.left[i]);
                    if (is_marked(x.words[r + 1][i]))
                        watch_again<Bytes>(x.words[r + 1][i], row[r + 1] + x.at[i], x.left[i]);
                }
        } while (any_marked(x));
    }

    template <int Bytes> __device__ __forceinline__ void read(fragments &x, const T *const (&row)[rows]) const
    {
        CELL_UNROLL
        for (int i = 0; i < ahead; i++) {
            CELL_UNROLL
            for (int j = 0; j < 4; j++)
                CELL_UNROLL
                for (int r = 0; r < rows; r++)
                    x.words[r][i][j] = 0;
            if (x.at[i] >= 0) {
                CELL_UNROLL
                for (int r = 0; r < rows; r += 2) {
                    watch<Bytes>(x.words[r][i], row[r] + x.at[i], x.left[i]);
                    watch<Bytes>(x.words[r + 1][i], row[r + 1] + x.at[i], x.left[i]);
                }
            }
        }
        if ((!narrow || any_marked(x)) && awaits)
            await<Bytes>(x, row);
    }

    // Of rows whose pieces begin anywhere, four vectors at a time.
    __device__ __forceinline__ void read_around(fragments &x, const T *const (&row)[rows]) const
    {
        CELL_UNROLL
        for (int n = 0; n < ahead * rows / 4; n++) {
            const int begin = n / (rows / 2) * 2, r = n % (rows / 2) * 2;
            uint32_t vectors[4][2][4];
            CELL_UNROLL
            for (int i = 0; i < 4; i++)
                watch_around(vectors[i], (i % 2 ? row[r + 1] : row[r]) + x.at[begin + i / 2], x.left[begin + i / 2]);
            CELL_UNROLL
            for (int i = 0; i < 4; i++)
                cut(i % 2 ? x.words[r + 1][begin + i / 2] : x.words[r][begin + i / 2], vectors[i],
                    (i % 2 ? row[r + 1] : row[r]) + x.at[begin + i / 2], x.left[begin + i / 2]);
        }
        while (awaits && any_marked(x)) {
            CELL_UNROLL
            for (int i = 0; i < ahead; i++)
                CELL_UNROLL
                for (int r = 0; r < rows; r += 2) {
                    await_each(x.words[r][i], row[r] + x.at[i]);
                    await_each(x.words[r + 1][i], row[r + 1] + x.at[i]);
                }
        }
    }

    __device__ __forceinline__ static void await_each(uint32_t (&words)[4], const T *p)
    {
        CELL_UNROLL
        for (int j = 0; j < 4; j++)
            if (words[j] == CELL_PANEL_MARK)
                words[j] = cell_await_word(p + j * word, CELL_PANEL_MARK);
    }

    // The first `left` of these blocks, of which `Held` tiles are in registers.
    template <int Held>
    __device__ __forceinline__ static void multiply_some(cell_mma_c (&sums)[results], const fragments &x,
                                                         const kept &first_weights, int left, cell_smem<T> at)
    {
        CELL_UNROLL
        for (int i = 0; i < ahead; i++) {
            if (i >= left)
                continue;
            factors some[halves];
            CELL_UNROLL
            for (int h = 0; h < halves; h++)
                some[h].set(x.words[2 * h][i], x.words[2 * h + 1][i]);
            CELL_UNROLL
            for (int j = 0; j < Held; j++)
                multiply_tile(sums, some, j, first_weights.words[i][j]);
            multiply_block<Held>(sums, some, at + i * ((tiles - Held) * stride));
        }
    }

    // The warp's share of the sums for the first `Batch` of `left` rows of X, `pitch` elements apart. Sums of rows
    // beyond these are those of the first row.
    __device__ __forceinline__ void multiply(cell_mma_c (&sums)[results], const kept &first_weights, const T *x,
                                             int64_t pitch, int64_t left) const
    {
        const int lane = cell_lane();
        const T *row[rows];
        x += (int64_t)first_piece() * k_units;
        row[0] = x + (lane / 4 < left ? lane / 4 : 0) * pitch;
        row[1] = x + (lane / 4 + 8 < left ? lane / 4 + 8 : 0) * pitch;
        CELL_UNROLL
        for (int r = 2; r < rows; r++)
            row[r] = x + (lane / 4 + 8 * r < left ? lane / 4 + 8 * r : 0) * pitch;
        CELL_UNROLL
        for (int j = 0; j < results; j++)
            cell_mma_zero(sums[j]);
        if (begins_at(x, pitch, 16))
            multiply_rows<16>(sums, first_weights, row);
        else if (narrow && begins_at(x, pitch, 8))
            multiply_rows<8>(sums, first_weights, row);
        else
            multiply_rows<(int)sizeof(T)>(sums, first_weights, row);
    }

    // Bytes: the pieces of the rows begin at multiples of so many.
    template <int Bytes>
    __device__ __forceinline__ void multiply_rows(cell_mma_c (&sums)[results], const kept &first_weights,
                                                  const T *const (&row)[rows]) const
    {
        const int all = pieces * (group / along), begin = own_group() * group + cell_lane() % 4 * each;
        int unit = begin, k = begin;                 // within its piece; of the row
        cell_smem<T> at = lane_weights();
        for (int done = 0; done < all; done += ahead) {
            fragments some;
            CELL_UNROLL
            for (int i = 0; i < ahead; i++) {
                const bool there = done + i < all && unit < k_units;
                some.at[i] = there ? k : -1;
                some.left[i] = there ? k_units - unit : 0;
                unit += along;
                k += along;
                if (pieces > 1 && unit >= begin + group) {
                    k += k_units - group;
                    unit = begin;
                }
            }
            if constexpr (Bytes >= 8)
                read<Bytes>(some, row);
            else
                read_around(some, row);
            if (done == 0)
                multiply_some<held>(sums, some, first_weights, all, at);
            else
                multiply_some<0>(sums, some, first_weights, all - done, at);
            at += ahead * (tiles - (done == 0 ? held : 0)) * stride;
        }
    }

    // Adds up the warps' shares, and those of the cluster's blocks: store(batch row, piece, unit of the block, sum)
    // is called once for each of the block's elements. The whole cluster; the shares may be written again only
    // behind another barrier.
    template <class Store>
    __device__ __forceinline__ void reduce(const cell_mma_c (&sums)[results], int64_t left, Store store)
    {
        CELL_UNROLL
        for (int j = 0; j < results; j++)
            cell_mma_store_c(partial + ((cell_warp() * tiles + j % tiles) * tile + j / tiles * 128), 8, sums[j]);
        cell_barrier();
        if constexpr (Split > 1) {
            send_shares();
            reduce_cluster(left, store);
        } else {
            reduce_block(left, store);
        }
    }

    template <class Store> __device__ __forceinline__ void reduce_block(int64_t left, Store store)
    {
        CELL_UNROLL
        for (int begin = 0; begin < tiles * tile; begin += CELL_PANEL_THREADS) {
            const int n = begin + cell_thread(), row_tile = n / tile, b = n % tile / 8;
            const int piece = row_tile / (covered / 8), unit = row_tile % (covered / 8) * 8 + n % 8;
            if (n < tiles * tile && b < left && first + unit < units) {
                float sum = 0;
                CELL_UNROLL
                for (int w = 0; w < CELL_PANEL_WARPS; w++) {
                    const float share = partial[w * tiles * tile + n];
                    sum += share;
                }
                store(b, piece, unit, sum);
            }
        }
    }

    // The sums of the block's warps go to the blocks that have the units, 4 neighbours at a time, whether they exist or
    // not: so each inbox knows how much comes.
    __device__ __forceinline__ void send_shares() const
    {
        CELL_UNROLL
        for (int begin = 0; begin < tiles * tile / 4; begin += CELL_PANEL_THREADS) {
            const int n = 4 * (begin + cell_thread()), row_tile = n / tile, b = n % tile / 8;
            const int piece = row_tile / (covered / 8), unit = row_tile % (covered / 8) * 8 + n % 8;
            if (n >= tiles * tile)
                continue;
            float sum[4] = {};
            CELL_UNROLL
            for (int w = 0; w < CELL_PANEL_WARPS; w++) {
                uint32_t share[4];
                cell_shared_words(share, partial + w * tiles * tile + n);
                CELL_UNROLL
                for (int i = 0; i < 4; i++)
                    sum[i] += cell_detail_bits_float(share[i]);
            }
            const uint32_t words[4] = {cell_detail_float_bits(sum[0]), cell_detail_float_bits(sum[1]),
                                       cell_detail_float_bits(sum[2]), cell_detail_float_bits(sum[3])};
            cell_cluster_send(gathered + (turn * Split + rank) * shares + (piece * Batch + b) * Units + unit % Units,
                              unit / Units, inbox, words);
        }
    }

    // Halves of `gathered` take turns: a block that sends to one has been sent what the others made behind they read it.
    template <class Store> __device__ __forceinline__ void reduce_cluster(int64_t left, Store store)
    {
        cell_inbox_wait(inbox);
        expect(inbox);
        CELL_UNROLL
        for (int begin = 0; begin < shares; begin += CELL_PANEL_THREADS) {
            const int n = begin + cell_thread(), b = n / Units % Batch;
            if (n < shares && b < left && first + n % Units < units) {
                float sum = 0;
                CELL_UNROLL
                for (int block = 0; block < Split; block++) {
                    const float share = gathered[(turn * Split + block) * shares + n];
                    sum += share;
                }
                store(b, n / (Units * Batch), n % Units, sum);
            }
        }
        turn ^= 1;
        const cell_inbox b = inbox;
        inbox = next_inbox;
        next_inbox = b;
    }
};

#endif
