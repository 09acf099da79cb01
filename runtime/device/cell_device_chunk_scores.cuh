// Records of chunks (cell_device_chunk.cuh) on tensor cores.
//
// A warp has 16 rows. Where the decay is a number, scores of vectors are products of what the caller gave,
// exact for bf16 and f16; numbers and windows are put to the sums. Where it is by key, vectors of two blocks
// of 16 rows get their windows as operands, in parts; within a block the sums are made of each key in f32. F,
// and what it is multiplied with, is in two parts of bf16 or f16, or 3xTF32: of 16 rows by substitution, then
// F_ij' = (sum over m of F_mj' L_im') F_ii' by blocks, each warp a column of blocks. All sums are f32.
#ifndef CELL_DEVICE_CHUNK_SCORES_CUH
#define CELL_DEVICE_CHUNK_SCORES_CUH

template <class M> struct cell_chunk_scores {
    typedef typename M::Part Part;
    typedef cell_chunk_record<M> record;
    typedef cell_chain<Part> chain;
    typedef cell_chain_parts<Part> Parts;
    static constexpr int C = M::rows, K = M::keys, u = M::corrected, blocks = C / 16;
    static constexpr int depth = chain::depth, tiles = chain::tiles, steps = 16 / depth; // along a block
    static constexpr int square_pitch = cell_chain_pitch<Part>(C), wide_pitch = cell_chain_pitch<Part>(K),
                         pair_pitch = 18;
    static constexpr int vectors = u + M::additions + M::reads;            // w, c_n, q_r
    static constexpr int square = C * square_pitch, wide = C * wide_pitch; // of Part
    static constexpr bool by_key = record::by_key;
    static constexpr int diagonal_pitch = by_key ? 20 : 16;
    static constexpr int readers = u + M::reads, key_pitch = K + 4; // w, q_r

    // Where the correction is the only addition and there is one read, its scores come first, and F and L
    // take the place of w and q.
    static constexpr bool early = u != 0 && !by_key && M::additions == 1 && M::reads == 1;
    static constexpr int squares = u * 2 * Parts::count * square, kept = early ? wide : vectors * wide;
    static constexpr int parts = early && squares < (vectors - 1) * wide ? vectors * wide : kept + squares;

    __host__ __device__ static constexpr int64_t smem()
    {
        return cell_carve_bytes<Part>(parts) + cell_carve_bytes<float>(floats());
    }
    // Blocks that a multiprocessor is to hold, where its 228 KiB are enough; each takes 1 KiB more.
    static constexpr int resident = smem() <= 56 << 10 ? 4 : 1, threads = CELL_CHUNK_THREADS;
    __host__ __device__ static constexpr int floats()
    {
        return vectors * C + (by_key ? 0 : u * C * diagonal_pitch) +
               (by_key ? 2 * C * key_pitch + 3 * blocks * K + readers * M::additions * C * diagonal_pitch
                : M::decay != 0 ? (4 + pair_pitch) * C
                                : 0);
    }

    const cell_chunk<M> &x;
    const cell_chunk_rows rows;
    unsigned char *const to;
    cell_smem<Part> vector, lower,
        inverse;                       // lower: L's blocks below the diagonal; each part [C][square_pitch]
    cell_smem<float> number, diagonal; // [vectors][C], [C][diagonal_pitch]
    // Windows as cell_device_chunk_prep.cuh has them: of a number pre, suf, start (behind the row), end [C],
    // pair [C][pair_pitch]. By key pre, at first the gates, and suf [C][key_pitch], and of each block all
    // gates, those of all blocks before it and of all behind [blocks][K]; scores within blocks
    // [readers][additions][C][diagonal_pitch].
    cell_smem<float> pre, suf, start, end, pair, total, head, tail, within;

    __device__ __forceinline__ cell_chunk_scores(const cell_chunk<M> &of, int64_t chunk)
        : x(of), rows(cell_chunk_rows_of(of, chunk)), to(of.records + chunk * record::bytes)
    {
        auto cursor = cell_shared();
        vector = cell_carve<Part>(cursor, parts);
        lower = vector + kept;
        inverse = lower + Parts::count * square;
        number = cell_carve<float>(cursor, floats());
        diagonal = number + vectors * C;
        pre = diagonal + (by_key ? 0 : u * C * diagonal_pitch);
        if constexpr (by_key) {
            suf = pre + C * key_pitch;
            total = suf + C * key_pitch;
            head = total + blocks * K;
            tail = head + blocks * K;
            within = tail + blocks * K;
            diagonal = within; // in their places, with numbers
        } else {
            suf = pre + C;
            start = suf + C;
            end = start + C;
            pair = end + C;
        }
    }

    __device__ __forceinline__ Part *matrix(int at) const { return (Part *)(to + at); }
    __device__ __forceinline__ static int own() { return cell_warp(); } // the warp's block of rows
    __device__ __forceinline__ static int lane_row(int i) { return cell_lane() / 4 + i / 2 * 8; }
    __device__ __forceinline__ static int lane_column(int i) { return cell_lane() % 4 * 2 + i % 2; }

    // Vector v: w, then the columns, then the reads.
    __device__ __forceinline__ const cell_chunk_vector &given(int v) const
    {
        return v < u                  ? x.addition[0].weight
               : v < u + M::additions ? x.addition[v - u].column
                                      : x.read[v - u - M::additions];
    }
    __device__ __forceinline__ static constexpr int column(int n) { return u + n; }
    __device__ __forceinline__ static constexpr int reader(int r) { return u + M::additions + r; }

    // w is often the first column times a number: then it is fetched once.
    __device__ __forceinline__ bool same() const
    {
        const cell_rows &a = x.addition[0].weight.vector, &b = x.addition[0].column.vector;
        return a.at == b.at && a.row == b.row && a.element == b.element && a.real == b.real;
    }
    // The first column stands first where others are given up.
    __device__ __forceinline__ static constexpr int line_of(int v)
    {
        return !early ? v : v == column(0) ? 0 : v == 0 ? 1 : v;
    }
    __device__ __forceinline__ cell_smem<Part> place(int v) const
    {
        return vector + (u && v == 0 && same() ? line_of(column(0)) : line_of(v)) * wide;
    }

    __device__ __forceinline__ void fetch() const
    {
        CELL_UNROLL
        for (int v = 0; v < vectors; v++) {
            if (v >= u || !same())
                cell_chunk_fetch_rows<M, K>(vector + line_of(v) * wide, given(v).vector, rows, 0, x.keys);
        }
        cell_cp_async_commit();
        float gate = 1;
        if (cell_thread() < C) {
            float numbers[vectors]; // all on their way before one is stored
            CELL_UNROLL
            for (int v = 0; v < vectors; v++)
                numbers[v] = cell_chunk_number<M>(given(v).number, rows, cell_thread());
            if constexpr (M::decay == 1)
                if (cell_thread() < rows.valid)
                    gate = cell_rows_load<M>(x.decay, rows.first + cell_thread(), 0);
            CELL_UNROLL
            for (int v = 0; v < vectors; v++)
                number[v * C + cell_thread()] = numbers[v];
        }
        if constexpr (M::decay == 1)
            make_windows(gate);
        if constexpr (by_key)
            fetch_gates();
    }

    // Of the gates by key, 1 behind the rows and K.
    __device__ __forceinline__ void fetch_gates() const
    {
        constexpr int line = K / 4, each = (C * line + CELL_CHUNK_THREADS - 1) / CELL_CHUNK_THREADS,
                      together = 8;
        const float *const from = (const float *)x.decay.at + rows.first * x.decay.row;
        const bool whole =
            x.decay.real && x.decay.element == 1 && x.decay.row % 4 == 0 && (uintptr_t)from % 16 == 0;
        CELL_UNROLL_BY(1)
        for (int i = 0; i < each; i += together) {
            float four[together][4];
            CELL_UNROLL
            for (int j = 0; j < together; j++) {
                const int n = cell_thread() + (i + j) * CELL_CHUNK_THREADS, t = n / line, k = n % line * 4;
                CELL_UNROLL
                for (int e = 0; e < 4; e++)
                    four[j][e] = 1;
                if (t >= rows.valid)
                    continue;
                if (whole && k + 4 <= x.keys) {
                    cell_load_vec<4>(four[j], from + t * x.decay.row + k);
                } else {
                    CELL_UNROLL
                    for (int e = 0; e < 4; e++)
                        if (k + e < x.keys)
                            four[j][e] = cell_rows_load<M>(x.decay, rows.first + t, k + e);
                }
            }
            CELL_UNROLL
            for (int j = 0; j < together; j++) {
                const int n = cell_thread() + (i + j) * CELL_CHUNK_THREADS;
                if (n < C * line)
                    cell_store_vec<4>(pre + (n / line * key_pitch + n % line * 4), four[j]);
            }
        }
    }

    // By the threads of the rows, each with its gate; others of their warps have 1.
    __device__ __forceinline__ void make_windows(float gate) const
    {
        const int t = cell_thread(), lane = cell_lane(), within_block = lane % 16;
        if (cell_warp() >= (C + 31) / 32)
            return;
        float run = 1, behind = 1;
        CELL_UNROLL
        for (int i = 0; i < 16; i++) {
            const float before = cell_shfl(gate, (lane - i) & 31), after = cell_shfl(gate, (lane + i) & 31);
            if (t < C) // what is behind t is not seen, but is read
                pair[t * pair_pitch + ((within_block - i) & 15)] = i <= within_block ? run : 0.0f;
            if (i <= within_block)
                run *= before;
            if (i > 0 && within_block + i < 16)
                behind *= after;
        }
        if (t < C) {
            pre[t] = run;
            suf[t] = behind;
        }
    }
    __device__ __forceinline__ float total_of(int block) const { return pre[block * 16 + 15]; }

    // From the chunk's start to behind t, and from behind t to its end.
    __device__ __forceinline__ void make_ends() const
    {
        if constexpr (by_key) {
            for (int k = cell_thread(); k < K; k += CELL_CHUNK_THREADS) {
                float run = 1;
                for (int b = 0; b < blocks; b++) {
                    head[b * K + k] = run;
                    run *= total[b * K + k];
                }
                run = 1;
                for (int b = blocks - 1; b >= 0; b--) {
                    tail[b * K + k] = run;
                    run *= total[b * K + k];
                }
            }
        } else if constexpr (M::decay == 1) {
            const int t = cell_thread();
            if (t >= C)
                return;
            float run = pre[t];
            for (int b = 0; b < t / 16; b++)
                run *= total_of(b);
            start[t] = run;
            run = suf[t];
            for (int b = t / 16 + 1; b < blocks; b++)
                run *= total_of(b);
            end[t] = run;
        }
    }

    // By key, the warp's block: pre (in the place of the gates), suf and the whole.
    __device__ __forceinline__ void make_block() const
    {
        const int first = own() * 16;
        for (int k = cell_lane(); k < K; k += 32) {
            float gate[16], run = 1;
            CELL_UNROLL
            for (int t = 0; t < 16; t++)
                gate[t] = pre[(first + t) * key_pitch + k];
            CELL_UNROLL
            for (int t = 15; t >= 0; t--) {
                suf[(first + t) * key_pitch + k] = run;
                run *= gate[t];
            }
            run = 1;
            CELL_UNROLL
            for (int t = 0; t < 16; t++) {
                run *= gate[t];
                pre[(first + t) * key_pitch + k] = run;
            }
            total[own() * K + k] = run;
        }
    }

    // By key, scores of addition n within the warp's block, without numbers, from gates: a lane has columns s
    // and s + 8, of a quarter of the keys.
    __device__ __forceinline__ void score_within(int n) const
    {
        const int s = cell_lane() % 8, quarter = cell_lane() / 8, first = own() * 16;
        const cell_smem<Part> g = place(column(n)) + first * wide_pitch;
        float sum[readers][24] = {}; // rows of s, then those from 8 on of s + 8
        CELL_UNROLL_BY(1)
        for (int k = quarter * 2; k < K; k += 8) {
            // held: as they were in front of the row's update
            float low[2], high[2], run[2] = {}, later[2] = {}, held[2] = {}, held_later[2] = {};
            cell_load_vec<2>(low, g + (s * wide_pitch + k));
            cell_load_vec<2>(high, g + ((s + 8) * wide_pitch + k));
            CELL_UNROLL
            for (int t = 0; t < 16; t++) {
                float a[2], f[readers][2];
                cell_load_vec<2>(a, pre + ((first + t) * key_pitch + k));
                CELL_UNROLL
                for (int e = 0; e < 2; e++)
                    if (t == cell_chunk_front<M>(t))
                        held[e] = run[e], held_later[e] = later[e];
                CELL_UNROLL
                for (int r = 0; r < readers; r++) {
                    cell_load_vec<2>(f[r], place(r < u ? 0 : reader(r - u)) + ((first + t) * wide_pitch + k));
                    if (is_before(r))
                        add_within(sum[r], t, f[r], held, held_later);
                }
                CELL_UNROLL
                for (int e = 0; e < 2; e++) {
                    run[e] = t == s ? low[e] : run[e] * a[e];
                    if (t >= 8)
                        later[e] = t == s + 8 ? high[e] : later[e] * a[e];
                }
                CELL_UNROLL
                for (int r = 0; r < readers; r++)
                    if (!is_before(r))
                        add_within(sum[r], t, f[r], run, later);
            }
        }
        CELL_UNROLL
        for (int r = 0; r < readers; r++) {
            CELL_UNROLL
            for (int i = 0; i < 24; i++) {
                const int t = i < 16 ? i : i - 8;
                float v = sum[r][i];
                v += cell_shfl_xor(v, 8);
                v += cell_shfl_xor(v, 16);
                if (t % 4 == quarter)
                    within[((r * M::additions + n) * C + first + t) * diagonal_pitch + s + (i < 16 ? 0 : 8)] =
                        v;
            }
        }
    }
    __device__ __forceinline__ static constexpr bool is_before(int r)
    {
        return r < u || (M::before >> (r - u) & 1) != 0;
    }
    __device__ __forceinline__ static void add_within(float (&sum)[24], int t, const float (&f)[2],
                                                      const float (&run)[2], const float (&later)[2])
    {
        sum[t] += f[0] * run[0] + f[1] * run[1];
        if (t >= 8)
            sum[t + 8] += f[0] * later[0] + f[1] * later[1];
    }

    // By key: the lane's elements of 16 rows from `row` on and keys from k on, times those of a table.
    __device__ __forceinline__ void load_scaled(float (*v)[4], cell_smem<Part> m, int row, int k,
                                                cell_smem<float> table, bool before) const
    {
        typename chain::A a;
        chain::rows(a, m + (row * wide_pitch + k), wide_pitch);
        chain::to_sums(v, a);
        CELL_UNROLL
        for (int j = 0; j < tiles; j++) {
            CELL_UNROLL
            for (int half = 0; half < 2; half++) {
                const int own_row = row + lane_row(half * 2),
                          t = before ? cell_chunk_front<M>(own_row) - 1 : own_row;
                float by[2] = {1, 1};
                if (!before || (t + 1) % 16 != 0)
                    cell_load_vec<2>(by, table + (t * key_pitch + k + j * 8 + lane_column(0)));
                v[j][half * 2] *= by[0];
                v[j][half * 2 + 1] *= by[1];
            }
        }
    }

    // Blocks of a score in front of the warp's own, without numbers.
    __device__ __forceinline__ void score_by_key(float (*sum)[4], int f, int g, bool before) const
    {
        CELL_UNROLL_BY(1)
        for (int k = 0; k < K; k += depth) {
            float left[tiles][4];
            load_scaled(left, place(f), own() * 16, k, pre, before);
            CELL_UNROLL
            for (int j = blocks - 2; j >= 0; j--) {
                if (j >= own())
                    continue;
                float right[tiles][4];
                load_scaled(right, place(g), j * 16, k, suf, false);
                Parts a, b;
                a.of_sums(left);
                b.of_sums(right);
                a.multiply_turned(sum + j * 2, b);
                CELL_UNROLL
                for (int i = 0; i < tiles; i++) {
                    float by[2];
                    cell_load_vec<2>(by, total + (j * K + k + i * 8 + lane_column(0)));
                    CELL_UNROLL
                    for (int e = 0; e < 4; e++)
                        left[i][e] *= by[e % 2];
                }
            }
        }
    }

    // The warp's rows of a score, with numbers and windows; zero where a row does not see another.
    __device__ __forceinline__ void score(float (*sum)[4], int f, int g, bool before) const
    {
        const cell_smem<Part> left = place(f) + own() * 16 * wide_pitch, right = place(g);
        CELL_UNROLL
        for (int j = 0; j < C / 8; j++) {
            CELL_UNROLL
            for (int i = 0; i < 4; i++)
                sum[j][i] = 0;
        }
        if constexpr (by_key)
            score_by_key(sum, f, g, before);
        CELL_UNROLL_BY(4)
        for (int k = 0; k < (by_key ? 0 : K); k += depth) {
            typename chain::A a;
            chain::rows(a, left + k, wide_pitch);
            CELL_UNROLL
            for (int j = 0; j < blocks; j++) {
                if (j > own())
                    continue;
                typename chain::B b;
                chain::rows(b, right + (j * 16 * wide_pitch + k), wide_pitch);
                CELL_UNROLL
                for (int h = 0; h < 2; h++)
                    chain::multiply(sum[j * 2 + h], a, b.half[h]);
            }
        }
        weigh_earlier(sum, f, g, before);
        CELL_UNROLL
        for (int j = 0; j < blocks; j++)
            if (j == own())
                weigh_own(sum + j * 2, f, g, before);
    }

    // Blocks of it in front of the warp's own, of which a row sees all: a row's factor times a column's.
    __device__ __forceinline__ void weigh_earlier(float (*sum)[4], int f, int g, bool before) const
    {
        float row[2];
        CELL_UNROLL
        for (int half = 0; half < 2; half++) {
            const int t = own() * 16 + lane_row(half * 2), front = before ? cell_chunk_front<M>(t) : t + 1;
            row[half] = number[f * C + t];
            if constexpr (M::decay == 1)
                if (front % 16 != 0 || !before)
                    row[half] *= pre[front - 1];
        }
        CELL_UNROLL
        for (int j = blocks - 2; j >= 0; j--) {
            if (j >= own())
                continue;
            CELL_UNROLL
            for (int tile = 0; tile < 2; tile++) {
                const int s = j * 16 + tile * 8 + lane_column(0);
                float column[2], behind[2] = {1, 1};
                cell_load_vec<2>(column, number + (g * C + s));
                if constexpr (M::decay == 1)
                    cell_load_vec<2>(behind, suf + s);
                CELL_UNROLL
                for (int i = 0; i < 4; i++)
                    sum[j * 2 + tile][i] *= row[i / 2] * (column[i % 2] * behind[i % 2]);
            }
            if constexpr (M::decay == 1) {
                row[0] *= total_of(j);
                row[1] *= total_of(j);
            }
        }
    }

    // The warp's own block of it: numbers and windows of two rows and of four columns of the lane.
    __device__ __forceinline__ void weigh_own(float (*sum)[4], int f, int g, bool before) const
    {
        CELL_UNROLL
        for (int tile = 0; tile < 2; tile++) {
            const int column = tile * 8 + lane_column(0);
            float by[2];
            cell_load_vec<2>(by, number + (g * C + own() * 16 + column));
            CELL_UNROLL
            for (int half = 0; half < 2; half++) {
                const int r = lane_row(half * 2), t = own() * 16 + r;
                const int seen = before ? cell_chunk_front<M>(r) : r + 1; // rows of the block that it sees
                float window[2] = {1, 1}, own_sum[2] = {sum[tile][half * 2], sum[tile][half * 2 + 1]};
                if constexpr (M::decay == 1)
                    cell_load_vec<2>(window,
                                     pair + ((seen > 0 ? own() * 16 + seen - 1 : t) * pair_pitch + column));
                if constexpr (by_key) {
                    const int pairs = ((f < u ? 0 : f - M::additions) * M::additions + g - u) * C;
                    cell_load_vec<2>(own_sum, within + ((pairs + t) * diagonal_pitch + column));
                }
                CELL_UNROLL
                for (int e = 0; e < 2; e++)
                    sum[tile][half * 2 + e] =
                        column + e < seen ? own_sum[e] * (number[f * C + t] * by[e]) * window[e] : 0.0f;
            }
        }
    }

    __device__ __forceinline__ void store_square(Part *m, const float (*sum)[4]) const
    {
        CELL_UNROLL
        for (int j = 0; j < blocks; j++)
            if (j <= own())
                cell_chain_store(m + (own() * C + j) * 16, C, sum + j * 2);
            else
                cell_chain_clear(m + (own() * C + j) * 16, C);
    }

    // The elements of a block, in their parts, to the places of its transpose or its own.
    __device__ __forceinline__ void put(cell_smem<Part> m, int row, int col, float v) const
    {
        const Part first = cell_convert<Part>(v);
        m[row * square_pitch + col] = first;
        if constexpr (Parts::count == 2)
            m[square + row * square_pitch + col] = cell_convert<Part>(v - cell_convert<float>(first));
    }

    // Two tiles of L, of the warp's rows and block j of columns, in parts.
    __device__ __forceinline__ void put_lower(const float (*sum)[4], int j) const
    {
        if constexpr (Parts::count == 1) {
            CELL_UNROLL
            for (int i = 0; i < 8; i++)
                put(lower, own() * 16 + lane_row(i % 4), j * 16 + i / 4 * 8 + lane_column(i % 4),
                    sum[i / 4][i % 4]);
        } else {
            Parts parts;
            parts.of_sums(sum);
            CELL_UNROLL
            for (int part = 0; part < Parts::count; part++) {
                uint32_t words[4];
                chain::to_words(words, parts.part[part]);
                CELL_UNROLL
                for (int i = 0; i < 4; i++) {
                    float two[2];
                    cell_unpack<Part>(two[0], two[1], words[i]);
                    cell_store_vec<2>(lower +
                                          (part * square + (own() * 16 + lane_row(i % 2 * 2)) * square_pitch +
                                           j * 16 + i / 2 * 8 + lane_column(0)),
                                      two);
                }
            }
        }
    }

    // F's blocks on the diagonal, of the warp's rows: a lane has a column.
    __device__ __forceinline__ void substitute() const
    {
        const cell_smem<float> l = diagonal + own() * 16 * diagonal_pitch;
        const int j = cell_lane() % 16;
        float f[16];
        CELL_UNROLL
        for (int i = 0; i < 16; i++) {
            float row[16];
            CELL_UNROLL
            for (int m = 0; m < i; m += 4) {
                float four[4];
                cell_load_vec<4>(four, l + (i * diagonal_pitch + m));
                CELL_UNROLL
                for (int e = 0; e < 4; e++)
                    row[m + e] = four[e];
            }
            float sum = i == j ? 1.0f : 0.0f, more = 0;
            CELL_UNROLL
            for (int m = 0; m < i; m++)
                (m % 2 ? more : sum) += row[m] * f[m];
            f[i] = sum + more;
        }
        CELL_UNROLL
        for (int i = 0; i < 8; i++) {
            const int row = cell_lane() / 16 * 8 + i;
            put(inverse, own() * 16 + row, own() * 16 + j, cell_lane() < 16 ? f[i] : f[i + 8]);
        }
    }

    // The column of blocks under the warp's own, from the blocks on the diagonal.
    __device__ __forceinline__ void merge() const
    {
        Parts f[blocks][steps]; // F_mj'
        CELL_UNROLL
        for (int i = 0; i < blocks; i++) {
            if (i == own())
                load_turned(f[i], i, i);
            if (i <= own())
                continue;
            float sum[2][4] = {}, result[2][4] = {};
            CELL_UNROLL
            for (int m = 0; m < i; m++)
                if (m >= own()) {
                    CELL_UNROLL
                    for (int k = 0; k < steps; k++)
                        f[m][k].template multiply_parts<false>(
                            sum, lower + (i * 16 * square_pitch + m * 16 + k * depth), square_pitch, square);
                }
            CELL_UNROLL
            for (int k = 0; k < steps; k++) {
                Parts left;
                left.of_sums(sum + k * tiles);
                left.template multiply_parts<false>(
                    result, inverse + (i * 16 * square_pitch + i * 16 + k * depth), square_pitch, square);
            }
            CELL_UNROLL
            for (int k = 0; k < steps; k++)
                f[i][k].of_sums(result + k * tiles);
            CELL_UNROLL
            for (int e = 0; e < 8; e++)
                put(inverse, i * 16 + e / 4 * 8 + lane_column(e % 4), own() * 16 + lane_row(e % 4),
                    result[e / 4][e % 4]);
        }
    }
    // A(s, t) = F[t, s] of a block.
    __device__ __forceinline__ void load_turned(Parts (&f)[steps], int row, int col) const
    {
        CELL_UNROLL
        for (int k = 0; k < steps; k++) {
            CELL_UNROLL
            for (int i = 0; i < Parts::count; i++)
                chain::across(f[k].part[i],
                              inverse + (i * square + (row * 16 + k * depth) * square_pitch + col * 16),
                              square_pitch);
        }
    }

    // F, whose blocks above the diagonal are not looked at. A barrier is behind it. read: the read's scores,
    // where they come early.
    __device__ __forceinline__ void invert(bool works, float (*read)[4]) const
    {
        float sum[C / 8][4];
        if (works)
            score(sum, 0, column(0), true);
        if constexpr (early) {
            if (works)
                score(read, reader(0), column(0), M::before & 1);
            cell_barrier();
        }
        if (works) {
            CELL_UNROLL
            for (int j = 0; j < blocks; j++) {
                if (j < own())
                    put_lower(sum + j * 2, j);
                if (j != own())
                    continue;
                CELL_UNROLL
                for (int i = 0; i < 8; i++)
                    diagonal[(own() * 16 + lane_row(i % 4)) * diagonal_pitch + i / 4 * 8 +
                             lane_column(i % 4)] = sum[j * 2 + i / 4][i % 4];
            }
            cell_warp_barrier();
            substitute();
        }
        cell_barrier();
        if (works)
            merge();
        cell_barrier();
    }

    // F for backward, zero above the diagonal.
    __device__ __forceinline__ void store_inverse() const
    {
        constexpr int each = 16 / (int)sizeof(Part), line = C / each;
        if (!x.inverse)
            return;
        Part *const f = x.inverse + rows.first / C * Parts::count * C * C;
        constexpr int together = CELL_CHUNK_THREADS / line, turns = (C + together - 1) / together; // rows
        const int first = cell_thread() / line, s = cell_thread() % line * each;
        CELL_UNROLL
        for (int part = 0; part < Parts::count; part++) {
            CELL_UNROLL
            for (int i = 0; i < turns; i++) {
                const int t = first + i * together;
                uint32_t words[4];
                if (C % together != 0 && t >= C)
                    continue;
                if (s / 16 <= t / 16) {
                    cell_shared_words(words, inverse + (part * square + t * square_pitch + s));
                    cell_store_words(f + (part * C + t) * C + s, words);
                } else {
                    cell_clear_words(f + (part * C + t) * C + s);
                }
            }
        }
    }

    // P = A F, of the warp's rows.
    __device__ __forceinline__ void store_folded(Part *m, const float (*score_of)[4]) const
    {
        float sum[C / 8][4] = {};
        CELL_UNROLL
        for (int k = 0; k < blocks; k++) {
            if (k > own())
                continue;
            CELL_UNROLL
            for (int i = 0; i < steps; i++) {
                Parts a;
                a.of_sums(score_of + k * 2 + i * tiles);
                CELL_UNROLL
                for (int j = 0; j <= k; j++)
                    a.template multiply_parts<true>(sum + j * 2,
                                                    inverse + ((k * 16 + i * depth) * square_pitch + j * 16),
                                                    square_pitch, square);
            }
        }
        store_square(m, sum);
    }

    // X = F' E, of the warp's rows; numbers and windows of E are put to F.
    __device__ __forceinline__ void store_x() const
    {
        constexpr int slab = K % 64 == 0 ? 64 : K % 32 == 0 ? 32 : 16;
        Part *const m = matrix(record::x);
        Parts f[blocks][steps];
        CELL_UNROLL
        for (int b = 0; b < blocks; b++)
            if (b >= own()) {
                load_turned(f[b], b, own());
                CELL_UNROLL
                for (int k = 0; k < (by_key ? 0 : steps); k++)
                    scale_columns(f[b][k], b * 16 + k * depth);
            }
        CELL_UNROLL_BY(1)
        for (int k0 = 0; k0 < K; k0 += slab) {
            float sum[slab / 8][4] = {};
            CELL_UNROLL
            for (int b = 0; b < blocks; b++) {
                if (b < own())
                    continue;
                CELL_UNROLL
                for (int k = 0; k < steps; k++) {
                    CELL_UNROLL
                    for (int j = 0; j < slab / 16; j++)
                        multiply_x(f[b][k], sum + j * 2, (b * 16 + k * depth) * wide_pitch + k0 + j * 16);
                }
            }
            CELL_UNROLL
            for (int j = 0; j < slab / 16; j++)
                cell_chain_store(m + own() * 16 * K + k0 + j * 16, K, sum + j * 2);
        }
    }
    __device__ __forceinline__ void multiply_x(const Parts &f, float (*sum)[4], int at) const
    {
        if constexpr (by_key)
            f.template multiply_parts<true>(sum, vector + at, wide_pitch, reader(0) * wide);
        else
            f.template multiply<true>(sum, place(column(0)) + at, wide_pitch);
    }
    __device__ __forceinline__ void scale_columns(Parts &f, int first) const
    {
        float v[tiles][4];
        f.to_sums(v);
        CELL_UNROLL
        for (int j = 0; j < tiles; j++) {
            const int t = first + j * 8 + lane_column(0);
            float by[2], window[2] = {1, 1};
            cell_load_vec<2>(by, number + (column(0) * C + t));
            if constexpr (M::decay == 1)
                cell_load_vec<2>(window, end + t);
            CELL_UNROLL
            for (int i = 0; i < 4; i++)
                v[j][i] *= by[i % 2] * window[i % 2];
        }
        f.of_sums(v);
    }

    __device__ __forceinline__ void store_numbers(int at, int v, bool to_end, bool before) const
    {
        const int t = cell_thread();
        if (t >= C)
            return;
        float n = number[v * C + t];
        if constexpr (M::decay == 1) {
            const int behind = before ? cell_chunk_front<M>(t) : t + 1; // the window's last gate
            n *= to_end ? (float)end[t] : behind ? (float)start[behind - 1] : 1.0f;
        }
        ((float *)(to + at))[t] = n;
    }

    // By key: 16 bytes of row t of a vector, with its number and its window from the chunk's start or to its
    // end.
    static constexpr int each = 16 / (int)sizeof(Part), line = K / each;
    __device__ __forceinline__ void load_ends(float (&v)[each], int of, int t, int k, bool to_end,
                                              bool before) const
    {
        cell_load_vec<each>(v, place(of) + (t * wide_pitch + k));
        const int row = before ? cell_chunk_front<M>(t) - 1 : t; // its gate is the window's last
        CELL_UNROLL
        for (int e = 0; e < each; e += 4) {
            float outer[4], inner[4] = {1, 1, 1, 1};
            cell_load_vec<4>(outer, (to_end ? tail : head) + (t / 16 * K + k + e));
            if (to_end || row / 16 == t / 16)
                if (row >= 0)
                    cell_load_vec<4>(inner, (to_end ? suf : pre) + (row * key_pitch + k + e));
            CELL_UNROLL
            for (int i = 0; i < 4; i++)
                v[e + i] *= outer[i] * inner[i] * number[of * C + t];
        }
    }
    __device__ __forceinline__ void store_scaled(int at, int of, bool to_end, bool before) const
    {
        for (int n = cell_thread(); n < C * line; n += CELL_CHUNK_THREADS) {
            float v[each];
            load_ends(v, of, n / line, n % line * each, to_end, before);
            cell_store_vec<each>(matrix(at) + n * each, v);
        }
    }
    // The correction's column to the chunk's end, in parts, in the places of w and of the first read, which
    // are not needed any more.
    __device__ __forceinline__ void keep_column() const
    {
        for (int n = cell_thread(); n < C * line; n += CELL_CHUNK_THREADS) {
            float v[each], left[each];
            load_ends(v, column(0), n / line, n % line * each, true, false);
            const cell_smem<Part> to_place = vector + (n / line * wide_pitch + n % line * each);
            cell_store_vec<each>(to_place, v);
            if constexpr (Parts::count == 2) {
                CELL_UNROLL
                for (int e = 0; e < each; e++)
                    left[e] = v[e] - cell_round_to<Part>(v[e]);
                cell_store_vec<each>(to_place + reader(0) * wide, left);
            }
        }
    }

    __device__ __forceinline__ void store_ends() const
    {
        if constexpr (by_key) {
            if constexpr (u != 0)
                store_scaled(record::w, 0, false, true);
            CELL_UNROLL
            for (int r = 0; r < M::reads; r++)
                store_scaled(record::q(r), reader(r), false, M::before >> r & 1);
            CELL_UNROLL
            for (int n = u; n < M::additions; n++)
                store_scaled(record::e(n), column(n), true, false);
            for (int k = cell_thread(); k < K; k += CELL_CHUNK_THREADS)
                ((float *)(to + record::d))[k] = head[(blocks - 1) * K + k] * total[(blocks - 1) * K + k];
        } else {
            if constexpr (u != 0)
                store_numbers(record::w_number, 0, false, true);
            CELL_UNROLL
            for (int r = 0; r < M::reads; r++)
                store_numbers(record::q_number(r), reader(r), false, M::before >> r & 1);
            CELL_UNROLL
            for (int n = u; n < M::additions; n++)
                store_numbers(record::e_number(n), column(n), true, false);
            if constexpr (M::decay == 1)
                if (cell_thread() == 0)
                    *(float *)(to + record::d) = start[C - 1];
        }
    }

    __device__ __forceinline__ void make()
    {
        if (rows.valid == 0)
            return;
        const bool works = blocks * 32 == CELL_CHUNK_THREADS || own() < blocks;
        fetch();
        if constexpr (by_key) {
            cell_cp_async_wait<0>();
            cell_barrier();
            if (works) {
                CELL_UNROLL
                for (int n = 0; n < M::additions; n++)
                    score_within(n);
                cell_warp_barrier();
                make_block();
            }
        }
        cell_barrier();
        make_ends();
        cell_cp_async_wait<0>();
        cell_barrier();
        store_ends();
        float read[early ? C / 8 : 1][4];
        if constexpr (u != 0) {
            invert(works, read);
            store_inverse();
        }
        if constexpr (early) {
            if (works)
                store_folded(matrix(record::p(0)), read);
        } else if (works) {
            store_scores();
        }
        if constexpr (u != 0) {
            if constexpr (by_key) {
                cell_barrier();
                keep_column();
                cell_barrier();
            }
            if (works)
                store_x();
        }
    }

    __device__ __forceinline__ void store_scores() const
    {
        float sum[C / 8][4];
        CELL_UNROLL
        for (int n = u; n < u * M::additions; n++) {
            score(sum, 0, column(n), true);
            store_square(matrix(record::l(n)), sum);
        }
        CELL_UNROLL
        for (int r = 0; r < M::reads; r++) {
            CELL_UNROLL
            for (int n = 0; n < M::additions; n++) {
                score(sum, reader(r), column(n), M::before >> r & 1);
                if (n < u)
                    store_folded(matrix(record::p(r)), sum);
                else
                    store_square(matrix(record::a(r, n)), sum);
            }
        }
    }
};

#endif
