// Recurrent products of many columns for each sequence, whose weights stay on the chip, for both sides of the device
// library (schedule gemm).
//
// In: the blocks of a cooperative launch, one for each sequence and 128 neighbouring units; a sequence has up to 64
// columns (slots that share their weights). Out: at every step C[r, c] = sum over k of W[r, k] X[k, c] for the block's
// rows r and its sequence's columns c. A thread has the sums of 2 units and 16 columns, its elements, for whatever is
// pointwise. Guaranteed: sums have one fixed order; only the blocks of a sequence wait for one another.
//
// Half of W lies in registers and half in shared memory, by turns of 16 along k, for all steps. X comes in pieces of 128
// units, as the blocks make them: each puts its own into shared memory, from which it multiplies it first, copies it to
// memory, and posts; the others bring it by one bulk copy. Two X in memory take turns: who posts the next has brought all
// of the one before.
//
// A tile, of W or X, is 16 along k in two halves of 8, each of rows (columns of X) of 8 neighbours, 16 bytes. So tensor
// cores take it without bank conflicts: on sm_90a by groups of 4 warps, elsewhere warp by warp.
#ifndef CELL_DEVICE_COLUMNS_CUH
#define CELL_DEVICE_COLUMNS_CUH

enum {
    CELL_COLUMNS_THREADS = 256,
    CELL_COLUMNS_UNITS = 128,  // of a block
    CELL_COLUMNS_MOST = 64,    // columns
    CELL_COLUMNS_PIECES = 8,   // of 128 units, at most
    CELL_COLUMNS_SLOTS = 5,    // pieces of other blocks that shared memory holds
    CELL_COLUMNS_POST = 32     // counters are so far apart
};

// T: storage of X and W, of 2 bytes.
template <class T> struct cell_columns {
    static constexpr int elements = 32;                                    // of a thread
    static constexpr int piece = CELL_COLUMNS_UNITS * CELL_COLUMNS_MOST;   // elements of X in one
    static constexpr int w_tile = 64 * 16, x_tile = CELL_COLUMNS_MOST * 16;

    cell_smem<T> weights;           // [piece][half of the block's units][4 tiles]
    cell_smem<T> own, slots;        // pieces of X
    cell_inbox full[CELL_COLUMNS_SLOTS];
    cell_split_barrier freed;       // the first slots may be filled again
    int units, columns, pieces;
    int rank;                       // the block's own piece
    int64_t sequence;
    unsigned int rounds;            // X that the block has posted
    T *exchange;                    // [turn][sequence][piece]
    int64_t turn;                   // elements between the two
    unsigned int *posts;            // of the sequence's blocks
    uint32_t kept[CELL_COLUMNS_PIECES * 4][4]; // every other tile along k
    uint32_t inside;                // a bit for each element, whether it exists
    int first;                      // place of the first
    float sum[elements];

    __device__ __forceinline__ void carve(unsigned char *&cursor, int64_t of_units, int64_t of_columns, int64_t sequences,
                                          T *all_exchange, unsigned int *counters)
    {
        units = (int)of_units;
        columns = (int)of_columns;
        pieces = (units + CELL_COLUMNS_UNITS - 1) / CELL_COLUMNS_UNITS;
        sequence = cell_block_index(0) / pieces;
        rank = (int)(cell_block_index(0) - sequence * pieces);
        rounds = 0;
        turn = sequences * pieces * piece;
        exchange = all_exchange + sequence * pieces * piece;
        posts = counters + sequence * CELL_COLUMNS_PIECES * CELL_COLUMNS_POST;
        own = cell_carve<T>(cursor, piece);
        slots = cell_carve<T>(cursor, CELL_COLUMNS_SLOTS * piece);
        weights = cell_carve<T>(cursor, (int64_t)pieces * 8 * w_tile);
        CELL_UNROLL
        for (int i = 0; i < CELL_COLUMNS_SLOTS; i++)
            full[i] = cell_inbox_carve(cursor);
        freed = cell_split_carve(cursor);
        first = column_at(0) * units + unit_at(0);
        inside = 0;
        for (int e = 0; e < elements; e++)
            inside |= (uint32_t)(unit_at(e) < units && column_at(e) < columns) << e;
        cell_keep(inside);
        cell_keep(first);
    }

    // The thread's elements: 2 units, 8 apart, by 16 columns.
    __device__ __forceinline__ int first_unit() const
    {
        return rank * CELL_COLUMNS_UNITS + cell_warp() * 16 + cell_lane() / 4;
    }
    __device__ __forceinline__ int unit_at(int e) const { return first_unit() + e / 2 % 2 * 8; }
    __device__ __forceinline__ int column_at(int e) const { return cell_lane() % 4 * 2 + (e / 4 * 8 + e % 2); }
    __device__ __forceinline__ bool mine(int e) const
    {
        uint32_t bits = inside;     // to be asked where it is used: conditions are more than predicates
        cell_keep(bits);
        return bits >> e & 1;
    }
    // Its place among the sequence's, where units are neighbours.
    __device__ __forceinline__ int at(int e) const
    {
        int pitch = units;          // not to be made of that of another element
        cell_keep(pitch);
        return first + (e / 4 * 8 + e % 2) * pitch + e / 2 % 2 * 8;
    }
    // The nearest that exist, for reads.
    __device__ __forceinline__ int unit(int e) const { return unit_at(e) < units ? unit_at(e) : units - 1; }
    __device__ __forceinline__ int column(int e) const { return column_at(e) < columns ? column_at(e) : columns - 1; }

    // The piece that comes r-th, the block's own first.
    __device__ __forceinline__ int piece_at(int r) const { return rank + r < pieces ? rank + r : rank + r - pieces; }

    // W[r, k] stands at w[r * row_stride + k * k_stride]. The block's threads together.
    __device__ void load(const T *w, int64_t row_stride, int64_t k_stride)
    {
        CELL_UNROLL
        for (int r = 0; r < CELL_COLUMNS_PIECES; r++) {
            if (r < pieces)
                load_piece(r, w, row_stride, k_stride);
            cell_barrier();
            CELL_UNROLL
            for (int i = 0; i < 4; i++)
                CELL_UNROLL
                for (int j = 0; j < 4; j++)
                    kept[r * 4 + i][j] = word(i, j);
            cell_barrier();
        }
        CELL_UNROLL
        for (int i = 0; i < CELL_COLUMNS_SLOTS; i++)
            cell_inbox_init(full[i]);
        cell_split_init(freed);
        for (int n = cell_thread(); n < piece; n += CELL_COLUMNS_THREADS)
            own[n] = T{};
        cell_barrier();
    }

    // The tiles of the piece that comes r-th: those that stay in shared memory, and the others where X comes later.
    __device__ __forceinline__ void load_piece(int r, const T *w, int64_t row_stride, int64_t k_stride)
    {
        CELL_UNROLL_BY(16)
        for (int n = cell_thread(); n < CELL_COLUMNS_UNITS * CELL_COLUMNS_UNITS; n += CELL_COLUMNS_THREADS) {
            const int fast = n % CELL_COLUMNS_UNITS, slow = n / CELL_COLUMNS_UNITS;
            const int row = k_stride == 1 ? slow : fast, k = k_stride == 1 ? fast : slow;
            const int64_t at_row = rank * CELL_COLUMNS_UNITS + row, at_k = piece_at(r) * CELL_COLUMNS_UNITS + k;
            T v = {};
            if (at_row < units && at_k < units)
                v.bits = cell_load_bits(w + at_row * row_stride + at_k * k_stride);
            const int within = (row / 64 * 4 + k / 32) * w_tile + k % 16 / 8 * 512 + row % 64 * 8 + k % 8;
            (k % 32 < 16 ? slots : weights + r * 8 * w_tile)[within] = v;
        }
    }

    // Of the i-th tile in registers, as tensor cores take it.
    __device__ __forceinline__ uint32_t word(int i, int j) const
    {
        const int row = cell_warp() % 4 * 16 + cell_lane() / 4 + j % 2 * 8;
        const int at = (cell_warp() / 4 * 4 + i) * w_tile + j / 2 * 512 + row * 8 + cell_lane() % 4 * 2;
        const T low = slots[at], high = slots[at + 1];
        return low.bits | (uint32_t)high.bits << 16;
    }

    // Where an element of the own piece lies.
    __device__ __forceinline__ static int place(int u, int c)
    {
        return u / 8 * (CELL_COLUMNS_MOST * 8) + c * 8 + u % 8;
    }

    // X that memory holds, its columns `units` apart: the own piece of it, in place of put().
    __device__ __forceinline__ void take(const T *x)
    {
        for (int n = cell_thread(); n < CELL_COLUMNS_UNITS * columns; n += CELL_COLUMNS_THREADS) {
            const int u = n % CELL_COLUMNS_UNITS, c = n / CELL_COLUMNS_UNITS, at = rank * CELL_COLUMNS_UNITS + u;
            if (at < units)
                own[place(u, c)] = x[(int64_t)c * units + at];
        }
    }

    // The next X at an element of the thread that exists. Behind a product or load(); give() must follow.
    __device__ __forceinline__ void put(int e, float v) const
    {
        const int first_place = place(cell_warp() * 16, cell_lane() % 4 * 2) + cell_lane() / 4;
        own[first_place + place(e / 2 % 2 * 8, e / 4 * 8 + e % 2)] = cell_convert<T>(v);
    }

    // What was put is there for the sequence's other blocks, and, where x is not null, lies in memory as take() finds it.
    __device__ __forceinline__ void give(T *x)
    {
        cell_bulk_fence_shared();
        cell_barrier();
        T *const to = exchange + (rounds & 1) * turn + rank * piece;
        uint32_t words[piece / 8 / CELL_COLUMNS_THREADS][4];
        CELL_UNROLL
        for (int i = 0; i < piece / 8 / CELL_COLUMNS_THREADS; i++) {
            const int n = (i * CELL_COLUMNS_THREADS + cell_thread()) * 8;
            cell_shared_words(words[i], own + n);
            cell_store_words(to + n, words[i]);
        }
        rounds++;
        cell_barrier();
        if (cell_thread() == 0)
            cell_counter_post(posts + rank * CELL_COLUMNS_POST);
        for (int n = cell_thread(); x && n < piece / 8; n += CELL_COLUMNS_THREADS) {
            const int c = n / 16, at = rank * CELL_COLUMNS_UNITS + n % 16 * 8;
            if (c < columns && at < units) {
                cell_shared_words(words[0], own + (n % 16 * CELL_COLUMNS_MOST + c) * 8);
                cell_store_words(x + (int64_t)c * units + at, words[0]);
            }
        }
    }

    // Brings the pieces from the one behind the first-th on, as many as there are slots. By the first warp.
    __device__ __forceinline__ void bring(int first)
    {
        const int r = first + 1 + cell_lane();
        cell_inbox inbox = full[0];
        CELL_UNROLL
        for (int i = 1; i < CELL_COLUMNS_SLOTS; i++)
            if (cell_lane() == i)
                inbox = full[i];
        if (cell_lane() < CELL_COLUMNS_SLOTS && r < pieces) {
            const int from = piece_at(r);
            cell_counter_wait(posts + from * CELL_COLUMNS_POST, rounds);
            cell_bulk_fence_global();
            cell_inbox_expect(inbox, piece * (int)sizeof(T));
            cell_bulk_copy(slots + cell_lane() * piece, exchange + ((rounds - 1) & 1) * turn + from * piece, piece, inbox);
        }
        cell_warp_barrier();
    }

    // C of the X that was given last: sum. meanwhile(e), for each of the thread's elements, what can be done while tensor
    // cores work.
    template <class F> __device__ __forceinline__ void multiply(const F &meanwhile)
    {
        cell_tile_begin();
        multiply_piece(0, own);
        cell_tile_commit();
        if (cell_warp() == 0)
            bring(0);
        some(0, meanwhile);
        CELL_UNROLL
        for (int r = 1; r < CELL_COLUMNS_PIECES; r++) {
            if (r < pieces) {
                cell_bulk_wait(full[(r - 1) % CELL_COLUMNS_SLOTS]);
                cell_tile_begin();
                multiply_piece(r, slots + (r - 1) % CELL_COLUMNS_SLOTS * piece);
                cell_tile_commit();
                if (r == CELL_COLUMNS_PIECES - CELL_COLUMNS_SLOTS && pieces > CELL_COLUMNS_SLOTS + 1) {
                    cell_tile_wait<1>();
                    cell_split_arrive(freed);
                    cell_split_wait(freed);
                    if (cell_warp() == 0)
                        bring(CELL_COLUMNS_SLOTS);
                }
            }
            some(r, meanwhile);
        }
        cell_tile_wait<0>();
        cell_barrier();             // the own piece may be put
    }

    template <class F> __device__ __forceinline__ static void some(int r, const F &meanwhile)
    {
        constexpr int each = elements / CELL_COLUMNS_PIECES;
        CELL_UNROLL
        for (int e = 0; e < each; e++)
            meanwhile(r * each + e);
    }

    __device__ __forceinline__ void multiply_piece(int r, const cell_smem<T> x)
    {
        const cell_smem<T> w = weights + (r * 8 + cell_warp() / 4 * 4) * w_tile;
        CELL_UNROLL
        for (int i = 0; i < 4; i++) {
            cell_tile_multiply<T>(sum, kept[r * 4 + i], x + i * 2 * x_tile, r + i > 0);
            cell_tile_multiply<T>(sum, w + i * w_tile, x + (i * 2 + 1) * x_tile);
        }
    }

    // A sum over the thread's columns, of each of its 2 units, becomes the one of own_unit() over all.
    __device__ __forceinline__ float total(const float (&a)[2]) const
    {
        float x = a[0], y = a[1];
        CELL_UNROLL
        for (int i = 1; i < 4; i *= 2) {
            x += cell_shfl_xor(x, i);
            y += cell_shfl_xor(y, i);
        }
        return cell_lane() % 2 ? y : x;
    }
    // The other way: a sum over the thread's units, of each of its 16 columns, is added to those of 2 columns, first_column()
    // and the next, over the warp's units.
    __device__ __forceinline__ void add(float (&sums)[2], float (&a)[16]) const
    {
        halve<8>(a);
        halve<4>(a);
        halve<2>(a);
        sums[0] += a[0];
        sums[1] += a[1];
    }
    // Of 2 n sums, a lane keeps n, with those of the lane that keeps the other n.
    template <int n> __device__ __forceinline__ static void halve(float (&a)[16])
    {
        const bool upper = cell_lane() & (2 * n);
        CELL_UNROLL
        for (int i = 0; i < n; i++) {
            const float low = a[i], high = a[i + n];
            a[i] = (upper ? high : low) + cell_shfl_xor(upper ? low : high, 2 * n);
        }
    }
    __device__ __forceinline__ static int first_column() { return cell_lane() % 4 * 2 + cell_lane() / 4 * 8; }

    // Such sums over the block's warps become a row of all columns. The block's threads together.
    __device__ __forceinline__ void leave(const cell_smem<float> scratch, const float (&sums)[2], float *row) const
    {
        CELL_UNROLL
        for (int j = 0; j < 2; j++)
            scratch[cell_warp() * CELL_COLUMNS_MOST + first_column() + j] = sums[j];
        cell_barrier();
        if (cell_thread() < columns) {
            float total = 0;
            CELL_UNROLL
            for (int w = 0; w < CELL_COLUMNS_THREADS / 32; w++)
                total += scratch[w * CELL_COLUMNS_MOST + cell_thread()];
            row[cell_thread()] = total;
        }
        cell_barrier();
    }

    __device__ __forceinline__ int own_unit_at() const { return first_unit() + cell_lane() % 2 * 8; }
    __device__ __forceinline__ int own_unit() const { return own_unit_at() < units ? own_unit_at() : units - 1; }
    __device__ __forceinline__ bool has_unit() const { return cell_lane() % 4 < 2 && own_unit_at() < units; }
};

#endif
