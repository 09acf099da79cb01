// Records of chunks (cell_device_chunk.cuh) on tensor cores, where the decay is a number or there is none.
//
// A warp has 16 rows. Scores of vectors are products of what the caller gave, exact for bf16 and f16; numbers and windows are
// put to the sums. F, and what it is multiplied with, is in two parts of bf16 or f16, or 3xTF32: of 16 rows by substitution, then
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
    static constexpr int square_pitch = cell_chain_pitch<Part>(C), wide_pitch = cell_chain_pitch<Part>(K), pair_pitch = 17;
    static constexpr int vectors = u + M::additions + M::reads;           // w, c_n, q_r
    static constexpr int square = C * square_pitch, wide = C * wide_pitch; // of Part
    static constexpr int diagonal_pitch = 20;

    __host__ __device__ static constexpr int64_t smem()
    {
        return cell_carve_bytes<Part>(vectors * wide + u * 2 * Parts::count * square) + cell_carve_bytes<float>(floats());
    }
    __host__ __device__ static constexpr int floats()
    {
        return vectors * C + u * C * diagonal_pitch + (M::decay != 0 ? (5 + pair_pitch) * C : 0);
    }

    const cell_chunk<M> &x;
    const cell_chunk_rows rows;
    unsigned char *const to;
    cell_smem<Part> vector, lower, inverse;               // lower: L's blocks below the diagonal; each part [C][square_pitch]
    cell_smem<float> number, diagonal;                    // [vectors][C], [C][diagonal_pitch]
    cell_smem<float> gate, pre, suf, start, end, pair;    // windows as cell_device_chunk_prep.cuh has them; pair [C][pair_pitch]

    __device__ __forceinline__ cell_chunk_scores(const cell_chunk<M> &of, int64_t chunk)
        : x(of), rows(cell_chunk_rows_of(of, chunk)), to(of.records + chunk * record::bytes)
    {
        auto cursor = cell_shared();
        vector = cell_carve<Part>(cursor, vectors * wide + u * 2 * Parts::count * square);
        lower = vector + vectors * wide;
        inverse = lower + Parts::count * square;
        number = cell_carve<float>(cursor, floats());
        diagonal = number + vectors * C;
        gate = diagonal + u * C * diagonal_pitch;
        pre = gate + C;
        suf = pre + C;
        start = suf + C;
        end = start + C;
        pair = end + C;
    }

    __device__ __forceinline__ Part *matrix(int at) const { return (Part *)(to + at); }
    __device__ __forceinline__ static int own() { return cell_warp(); } // the warp's block of rows
    __device__ __forceinline__ static int lane_row(int i) { return cell_lane() / 4 + i / 2 * 8; }
    __device__ __forceinline__ static int lane_column(int i) { return cell_lane() % 4 * 2 + i % 2; }

    // Vector v: w, then the columns, then the reads.
    __device__ __forceinline__ const cell_chunk_vector &given(int v) const
    {
        return v < u ? x.addition[0].weight : v < u + M::additions ? x.addition[v - u].column : x.read[v - u - M::additions];
    }
    __device__ __forceinline__ static constexpr int column(int n) { return u + n; }
    __device__ __forceinline__ static constexpr int reader(int r) { return u + M::additions + r; }

    // w is often the first column times a number: then it is fetched once.
    __device__ __forceinline__ bool same() const
    {
        const cell_rows &a = x.addition[0].weight.vector, &b = x.addition[0].column.vector;
        return a.at == b.at && a.row == b.row && a.element == b.element && a.real == b.real;
    }
    __device__ __forceinline__ cell_smem<Part> place(int v) const { return vector + (u && v == 0 && same() ? column(0) : v) * wide; }

    __device__ __forceinline__ void fetch() const
    {
        CELL_UNROLL
        for (int v = 0; v < vectors; v++) {
            if (v >= u || !same())
                cell_chunk_fetch_rows<M, K>(vector + v * wide, given(v).vector, rows, 0, x.keys);
        }
        cell_cp_async_commit();
        CELL_UNROLL
        for (int v = 0; v < vectors; v++)
            if (cell_thread() < C)
                number[v * C + cell_thread()] = cell_chunk_number<M>(given(v).number, rows, cell_thread());
        if constexpr (M::decay == 1)
            if (cell_thread() < C)
                gate[cell_thread()] =
                    cell_thread() < rows.valid ? cell_rows_load<M>(x.decay, rows.first + cell_thread(), 0) : 1.0f;
    }

    __device__ __forceinline__ float total(int block) const { return pre[block * 16 + 15]; }

    // From gates, a barrier behind and one to come.
    __device__ __forceinline__ void make_windows() const
    {
        const int t = cell_thread(), first = t / 16 * 16;
        if (M::decay == 0 || t >= C)
            return;
        float run = 1;
        CELL_UNROLL
        for (int i = 0; i < 16; i++) {
            const int s = t - i; // what is in front of the block is not looked at
            if (s >= first) {
                pair[t * pair_pitch + s % 16] = run;
                run *= gate[s];
            }
        }
        pre[t] = run;
        run = 1;
        CELL_UNROLL
        for (int i = 1; i < 16; i++)
            if (t + i < first + 16)
                run *= gate[t + i];
        suf[t] = run;
    }
    // From the chunk's start to behind t, and from behind t to its end.
    __device__ __forceinline__ void make_ends() const
    {
        const int t = cell_thread();
        if (M::decay == 0 || t >= C)
            return;
        float run = pre[t];
        for (int b = 0; b < t / 16; b++)
            run *= total(b);
        start[t] = run;
        run = suf[t];
        for (int b = t / 16 + 1; b < blocks; b++)
            run *= total(b);
        end[t] = run;
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
        CELL_UNROLL_BY(4)
        for (int k = 0; k < K; k += depth) {
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
        CELL_UNROLL
        for (int j = 0; j < blocks; j++)
            if (j <= own())
                weigh(sum + j * 2, f, g, j, before);
    }

    // A block of it.
    __device__ __forceinline__ void weigh(float (*sum)[4], int f, int g, int block, bool before) const
    {
        float between = 1;
        if constexpr (M::decay == 1)
            for (int b = block + 1; b < own(); b++)
                between *= total(b);
        CELL_UNROLL
        for (int i = 0; i < 8; i++) {
            const int t = own() * 16 + lane_row(i % 4), s = block * 16 + i / 4 * 8 + lane_column(i % 4);
            float v = sum[i / 4][i % 4] * (number[f * C + t] * number[g * C + s]);
            const bool seen = before ? s < t : s <= t;
            if constexpr (M::decay == 1) {
                const int last = before ? t - 1 : t; // whose gate is the last of the window
                if (block < own())
                    v *= (before && t % 16 == 0 ? 1.0f : (float)pre[last]) * (suf[s] * between);
                else if (seen)
                    v *= pair[last * pair_pitch + s % 16];
            }
            sum[i / 4][i % 4] = seen ? v : 0.0f;
        }
    }

    __device__ __forceinline__ void store_square(Part *m, const float (*sum)[4]) const
    {
        CELL_UNROLL
        for (int j = 0; j < blocks; j++)
            cell_chain_store(m + (own() * C + j) * 16, C, sum + j * 2);
    }

    // The elements of a block, in their parts, to the places of its transpose or its own.
    __device__ __forceinline__ void put(cell_smem<Part> m, int row, int col, float v) const
    {
        const Part first = cell_convert<Part>(v);
        m[row * square_pitch + col] = first;
        if constexpr (Parts::count == 2)
            m[square + row * square_pitch + col] = cell_convert<Part>(v - cell_convert<float>(first));
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
                        f[m][k].template multiply_parts<false>(sum, lower + (i * 16 * square_pitch + m * 16 + k * depth), square_pitch,
                                                               square);
                }
            CELL_UNROLL
            for (int k = 0; k < steps; k++) {
                Parts left;
                left.of_sums(sum + k * tiles);
                left.template multiply_parts<false>(result, inverse + (i * 16 * square_pitch + i * 16 + k * depth), square_pitch,
                                                    square);
            }
            CELL_UNROLL
            for (int k = 0; k < steps; k++)
                f[i][k].of_sums(result + k * tiles);
            CELL_UNROLL
            for (int e = 0; e < 8; e++)
                put(inverse, i * 16 + e / 4 * 8 + lane_column(e % 4), own() * 16 + lane_row(e % 4), result[e / 4][e % 4]);
        }
    }
    // A(s, t) = F[t, s] of a block.
    __device__ __forceinline__ void load_turned(Parts (&f)[steps], int row, int col) const
    {
        CELL_UNROLL
        for (int k = 0; k < steps; k++) {
            CELL_UNROLL
            for (int i = 0; i < Parts::count; i++)
                chain::across(f[k].part[i], inverse + (i * square + (row * 16 + k * depth) * square_pitch + col * 16), square_pitch);
        }
    }

    // F, whose blocks above the diagonal are not looked at. A barrier is behind it.
    __device__ __forceinline__ void invert(bool works) const
    {
        if (works) {
            float sum[C / 8][4];
            score(sum, 0, column(0), true);
            CELL_UNROLL
            for (int j = 0; j < C / 8; j++) {
                CELL_UNROLL
                for (int i = 0; i < 4; i++) {
                    const int s = j * 8 + lane_column(i);
                    if (j / 2 < own())
                        put(lower, own() * 16 + lane_row(i), s, sum[j][i]);
                    else if (j / 2 == own())
                        diagonal[(own() * 16 + lane_row(i)) * diagonal_pitch + s % 16] = sum[j][i];
                }
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
        for (int n = cell_thread(); n < Parts::count * C * line; n += CELL_CHUNK_THREADS) {
            const int t = n / line % C, s = n % line * each;
            uint32_t words[4] = {};
            if (s / 16 <= t / 16)
                cell_shared_words(words, inverse + (n / line / C * square + t * square_pitch + s));
            cell_store_words(f + n * each, words);
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
                    a.template multiply_parts<true>(sum + j * 2, inverse + ((k * 16 + i * depth) * square_pitch + j * 16),
                                                    square_pitch, square);
            }
        }
        store_square(m, sum);
    }

    // X = F' E, of the warp's rows; numbers and windows of E are put to F.
    __device__ __forceinline__ void store_x() const
    {
        constexpr int slab = K % 64 == 0 ? 64 : K % 32 == 0 ? 32 : 16;
        const cell_smem<Part> c = place(column(0));
        Part *const m = matrix(record::x);
        Parts f[blocks][steps];
        CELL_UNROLL
        for (int b = 0; b < blocks; b++)
            if (b >= own()) {
                load_turned(f[b], b, own());
                CELL_UNROLL
                for (int k = 0; k < steps; k++)
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
                        f[b][k].template multiply<true>(sum + j * 2, c + ((b * 16 + k * depth) * wide_pitch + k0 + j * 16),
                                                        wide_pitch);
                }
            }
            CELL_UNROLL
            for (int j = 0; j < slab / 16; j++)
                cell_chain_store(m + own() * 16 * K + k0 + j * 16, K, sum + j * 2);
        }
    }
    __device__ __forceinline__ void scale_columns(Parts &f, int first) const
    {
        float v[tiles][4];
        f.to_sums(v);
        CELL_UNROLL
        for (int j = 0; j < tiles; j++) {
            CELL_UNROLL
            for (int i = 0; i < 4; i++) {
                const int t = first + j * 8 + lane_column(i);
                v[j][i] *= number[column(0) * C + t];
                if constexpr (M::decay == 1)
                    v[j][i] *= end[t];
            }
        }
        f.of_sums(v);
    }

    __device__ __forceinline__ void store_numbers(int at, int v, bool to_end, bool before) const
    {
        const int t = cell_thread();
        if (t >= C)
            return;
        float n = number[v * C + t];
        if constexpr (M::decay == 1)
            n *= to_end ? (float)end[t] : !before ? (float)start[t] : t ? (float)start[t - 1] : 1.0f;
        ((float *)(to + at))[t] = n;
    }

    __device__ __forceinline__ void store_ends() const
    {
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

    __device__ __forceinline__ void make()
    {
        if (rows.valid == 0)
            return;
        const bool works = own() < blocks;
        fetch();
        cell_barrier();
        make_windows();
        cell_barrier();
        make_ends();
        cell_cp_async_wait<0>();
        cell_barrier();
        store_ends();
        if constexpr (u != 0) {
            invert(works);
            store_inverse();
        }
        if (!works)
            return;
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
        if constexpr (u != 0)
            store_x();
    }
};

#endif
