// What the kernels around a walk are made of: rows that stay in registers between the passes over them, sums
// over rows, and the columns of a block.
//
// In: the vectors, barriers and shared memory of cell_device_cuda.cuh or cell_emu_device.h. Out: the same text
// of a kernel for N neighbours at a time and for one, for rows that fit in registers (V vectors a thread) and
// for rows of any length (V = 0: the row is read again, and sums are kept in memory). Guaranteed: the order of
// every sum follows from sizes and template arguments.
#ifndef CELL_DEVICE_ROW_CUH
#define CELL_DEVICE_ROW_CUH

// N neighbours of an argument that the caller may have left out, which then counts as zeros.
template <int N, class C, class T>
__device__ __forceinline__ void cell_load_vec_or_zero(C (&dst)[N], const T *p, int64_t offset)
{
    if (p) {
        cell_load_vec_ro<N>(dst, p + offset);
    } else {
        CELL_UNROLL
        for (int i = 0; i < N; i++)
            dst[i] = 0;
    }
}

// A gradient overwrites what is there, or adds to it.
template <class T, class C> __device__ __forceinline__ void cell_put(T *p, C v, bool adds)
{
    cell_store(p, adds ? cell_load<C>(p) + v : v);
}

template <int N, class T, class C> __device__ __forceinline__ void cell_put_vec(T *p, C (&v)[N], bool adds)
{
    if (adds) {
        C old[N];
        cell_load_vec<N>(old, p);
        CELL_UNROLL
        for (int i = 0; i < N; i++)
            v[i] = old[i] + v[i];
    }
    cell_store_vec<N>(p, v);
}

// A place in a row: rows that fit in a block's registers are short.
template <int V> struct cell_detail_place {
    using type = int;
};
template <> struct cell_detail_place<0> {
    using type = int64_t;
};
template <int V> using cell_place = typename cell_detail_place<V>::type;

// How many times N neighbours a thread takes, `step` being what all threads take at once: V where the row was
// chosen to fit.
template <int V> __device__ __forceinline__ cell_place<V> cell_slots(cell_place<V> elements, cell_place<V> step)
{
    return V ? V : (elements + step - 1) / step;
}

// N elements in groups of 4 neighbours, from one group to the next APART elements.
template <int APART, int N, class C, class P> __device__ __forceinline__ void cell_load_groups(C (&dst)[N], P p)
{
    CELL_UNROLL
    for (int g = 0; g < N / 4; g++) {
        C group[4];
        cell_load_vec<4>(group, p + g * APART);
        CELL_UNROLL
        for (int i = 0; i < 4; i++)
            dst[g * 4 + i] = group[i];
    }
}

// Threads that share a row which gives `work` of them something to do: a power of two, at most a block's.
template <int THREADS> __device__ __forceinline__ int cell_row_lanes(int64_t work)
{
    int lanes = 1;
    while (lanes < work && lanes < THREADS)
        lanes *= 2;
    return lanes;
}

// A thread's part of a row that several passes read: V vectors in registers, loaded once. With V = 0 nothing
// is kept, and values() reads memory.
template <class T, int N, int V> struct cell_row {
    cell_vec<T, N> part[V];
    __device__ __forceinline__ void load(int s, const T *p) { part[s].template load<true>(p); }
    __device__ __forceinline__ void load_or_zero(int s, const T *p, int64_t offset)
    {
        if (p)
            part[s].template load<true>(p + offset);
        else
            part[s].clear();
    }
    template <class C> __device__ __forceinline__ void values(C (&dst)[N], int s, const T *)
    {
        part[s].renew();
        part[s].values(dst);
    }
    template <class C> __device__ __forceinline__ void values_or_zero(C (&dst)[N], int s, const T *, int64_t)
    {
        part[s].renew();
        part[s].values(dst);
    }
};

// The same interface where nothing is kept.
template <class T, int N> struct cell_read_again {
    __device__ __forceinline__ void load(int64_t, const T *) {}
    __device__ __forceinline__ void load_or_zero(int64_t, const T *, int64_t) {}
    template <class C> __device__ __forceinline__ void values(C (&dst)[N], int64_t, const T *p) const
    {
        cell_load_vec_ro<N>(dst, p);
    }
    template <class C>
    __device__ __forceinline__ void values_or_zero(C (&dst)[N], int64_t, const T *p, int64_t offset) const
    {
        cell_load_vec_or_zero<N>(dst, p, offset);
    }
};

template <class T, int N> struct cell_row<T, N, 0> : cell_read_again<T, N> {};

// A row that a block works on while the next one is on its way: two turns of V vectors a thread in shared memory,
// at places that no other thread uses. load() asks for the vectors of the turn after this one, behind turn() they
// are this one's. What was asked for is there behind cell_cp_async_wait; elements of 2 bytes, which no asynchronous
// copy takes, are there already. Numbers of 8 bits are read where they are, and read again.
template <class T, int N, int V, bool Copied = (V > 0 && sizeof(T) > 1)> struct cell_row_ahead {
    cell_smem<T> place;
    int now = 1;
    __device__ __forceinline__ explicit cell_row_ahead(unsigned char *&cursor)
        : place(cell_carve<T>(cursor, 2 * V * N * cell_threads()))
    {
    }
    __device__ __forceinline__ cell_smem<T> at(int turn, int s) const
    {
        return place + ((turn * V + s) * cell_threads() + cell_thread()) * N;
    }
    __device__ __forceinline__ void turn() { now ^= 1; }
    __device__ __forceinline__ void load(int s, const T *p) { copy(s, p, true); }
    __device__ __forceinline__ void load_or_zero(int s, const T *p, int64_t offset)
    {
        copy(s, p ? p + offset : p, p != nullptr);
    }
    template <class C> __device__ __forceinline__ void values(C (&dst)[N], int s, const T *) const
    {
        cell_load_vec<N>(dst, at(now, s));
    }
    template <class C>
    __device__ __forceinline__ void values_or_zero(C (&dst)[N], int s, const T *, int64_t) const
    {
        cell_load_vec<N>(dst, at(now, s));
    }
    __device__ __forceinline__ void copy(int s, const T *p, bool given)
    {
        constexpr int bytes = cell_detail_chunk(N * (int)sizeof(T)), each = bytes / (int)sizeof(T);
        CELL_UNROLL
        for (int i = 0; i < N; i += each) {
            if constexpr (bytes >= 4)
                cell_cp_async_zfill<bytes>(at(now ^ 1, s) + i, given ? p + i : p, given);
            else
                at(now ^ 1, s)[i] = given ? cell_load_ro<T>(p + i) : T{};
        }
    }
};

template <class T, int N, int V> struct cell_row_ahead<T, N, V, false> : cell_read_again<T, N> {
    __device__ __forceinline__ explicit cell_row_ahead(unsigned char *&) {}
    __device__ __forceinline__ void turn() {}
};

// A thread's columns of a sum over the rows that its block takes, one after the other. open() gives the sums of
// slot s so far, close() takes them back, flush() leaves them at `at` when all rows are done. With V = 0 they
// lie there all the time; `fresh` says that this is the block's first row. Without `at` nobody wants them.
template <class C, int N, int V> struct cell_column_sums {
    C *at;
    C sum[V][N] = {};
    __device__ __forceinline__ explicit cell_column_sums(C *p) : at(p) {}
    __device__ __forceinline__ void open(C (&v)[N], int s, int, bool) const
    {
        CELL_UNROLL
        for (int i = 0; i < N; i++)
            v[i] = sum[s][i];
    }
    __device__ __forceinline__ void close(const C (&v)[N], int s, int)
    {
        CELL_UNROLL
        for (int i = 0; i < N; i++)
            sum[s][i] = v[i];
    }
    __device__ __forceinline__ void flush(int s, int e, bool) const
    {
        if (at)
            cell_store_vec<N>(at + e, sum[s]);
    }
};

template <class C, int N> struct cell_column_sums<C, N, 0> {
    C *at;
    __device__ __forceinline__ explicit cell_column_sums(C *p) : at(p) {}
    __device__ __forceinline__ void open(C (&v)[N], int64_t, int64_t e, bool fresh) const
    {
        CELL_UNROLL
        for (int i = 0; i < N; i++)
            v[i] = fresh || !at ? 0 : at[e + i];
    }
    __device__ __forceinline__ void close(const C (&v)[N], int64_t, int64_t e)
    {
        if (at)
            cell_store_vec<N>(at + e, v);
    }
    __device__ __forceinline__ void flush(int64_t, int64_t e, bool none) const
    {
        for (int i = 0; at && none && i < N; i++)
            at[e + i] = 0;
    }
};

// Into how many parts the rows of a column sum are cut, whose sums are then added in order: at least `Rows` rows
// each, at most `Most` parts, and no more than `Group` times as many as make `Blocks` blocks of `Span` columns in all,
// or `Least` parts where that is more. The launch plan has the same expression.
template <int Rows, int Most, int Blocks, int Least, int Span = 256, int Group = 1>
__device__ __forceinline__ int64_t cell_column_chunks(int64_t rows, int64_t columns)
{
    const int64_t spans = columns > Span ? (columns + Span - 1) / Span : 1;
    int64_t chunks = (rows + Rows - 1) / Rows;
    chunks = chunks > Most ? Most : chunks;
    const int64_t parts = Group * (Blocks / spans);
    const int64_t limit = parts > Least ? parts : Least;
    chunks = chunks > limit ? limit : chunks;
    return chunks > 1 ? chunks : 1;
}

// A block of parts by 32 lanes sums columns, N to a lane. Each thread leaves its sums with cell_part_store();
// behind a barrier, thread c < 32 N has the total of the block's column c from cell_part_total(), parts added
// in order. `scratch` holds N elements for each thread.
template <int N, class C>
__device__ __forceinline__ void cell_part_store(cell_smem<C> scratch, const C (&sums)[N])
{
    CELL_UNROLL
    for (int i = 0; i < N; i++)
        scratch[cell_thread() * N + i] = sums[i];
}

template <int N, class C> __device__ __forceinline__ C cell_part_total(cell_smem<C> scratch)
{
    C total = 0;
    for (int part = 0; part < cell_threads() / 32; part++) {
        const C v = scratch[part * 32 * N + cell_thread()];
        total += v;
    }
    return total;
}

// The same for a sum of each lane, which all parts get. No thread may still read what scratch had.
template <class C> __device__ __forceinline__ C cell_part_sum(cell_smem<C> scratch, C share)
{
    cell_barrier();
    scratch[cell_thread()] = share;
    cell_barrier();
    C total = 0;
    for (int part = 0; part < cell_threads() / 32; part++) {
        const C v = scratch[part * 32 + cell_lane()];
        total += v;
    }
    return total;
}

// The totals of a lane's own columns.
template <int N, class C> __device__ __forceinline__ void cell_part_sums(cell_smem<C> scratch, C (&totals)[N])
{
    CELL_UNROLL
    for (int i = 0; i < N; i++)
        totals[i] = 0;
    for (int part = 0; part < cell_threads() / 32; part++) {
        CELL_UNROLL
        for (int i = 0; i < N; i++)
            totals[i] += scratch[(part * 32 + cell_lane()) * N + i];
    }
}

// A part's share of the chunks of one column, in order.
template <class C>
__device__ __forceinline__ C cell_chunk_sum(const C *partial, int64_t begin, int64_t end, int64_t columns)
{
    C sum = 0;
    CELL_UNROLL_BY(8)
    for (int64_t chunk = begin; chunk < end; chunk++)
        sum += cell_load_ro<C>(partial + chunk * columns);
    return sum;
}

#endif
