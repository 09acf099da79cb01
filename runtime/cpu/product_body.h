/* Products in REAL, float or double, at one level of the architecture; included by product_level.c for
 * each. Operands are packed into panels: of A [k][MR], of B [k][NR], zeros beyond the edge. A tile of MR
 * x NR sums stays in registers for a piece of k. Products with few rows take B as it lies. The order of
 * every sum follows from sizes alone. */

typedef REAL NAME(V) __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
enum { NAME(LANES) = BYTES / (int)sizeof(REAL), NAME(NR) = NV * NAME(LANES) };

/* Four neighbours of a row. */
typedef REAL NAME(Four) __attribute__((vector_size(4 * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));

/* Rows of A for a tile: packed, or as they lie, terms side by side and `step` from one row to the next. */
typedef struct NAME(Left) {
    const REAL *at;
    int64_t step; /* 0: packed */
} NAME(Left);

/* The sums of `rows` x `vectors` of a tile (constants where this is called, as is_packed), to rows that are
 * `pitch` apart: stored, or added to what is there. m: rows that A has. */
static inline __attribute__((always_inline)) void NAME(part)(const int rows, const int vectors,
                                                             const int is_packed, int64_t m, int64_t k,
                                                             NAME(Left) a, const REAL *b, REAL *out,
                                                             int64_t pitch, int adds)
{
    NAME(V) sum[MR][NV];
    const REAL *row[MR];
    for (int i = 0; i < rows; i++)
        row[i] = is_packed ? a.at + i : a.at + (i < m ? i : m - 1) * a.step;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
            sum[i][j] = (NAME(V)){ 0 };
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
            __builtin_prefetch(out + i * pitch + j * NAME(LANES), 1);
    for (int64_t p = 0; p < k; p++) {
        NAME(V) right[NV];
        for (int j = 0; j < vectors; j++) {
            right[j] = *(const NAME(V) *)(b + p * NAME(NR) + j * NAME(LANES));
            if (j * BYTES % 64 == 0)
                __builtin_prefetch(b + (p + TERMS_AHEAD) * NAME(NR) + j * NAME(LANES));
        }
        for (int i = 0; i < rows; i++) {
            NAME(V) left = row[i][is_packed ? p * MR : p] - (NAME(V)){ 0 }; /* in all lanes */
            for (int j = 0; j < vectors; j++)
                sum[i][j] += left * right[j];
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) {
            NAME(V) *to = (NAME(V) *)(out + i * pitch + j * NAME(LANES));
            if (adds)
                sum[i][j] += *to;
            *to = sum[i][j];
        }
}

static inline __attribute__((always_inline)) void NAME(tile_of)(const int is_packed, int64_t m, int64_t n,
                                                                int64_t k, NAME(Left) a, const REAL *b,
                                                                REAL *out, int64_t pitch, int adds)
{
    enum { HALF = NV / 2 };
    const int half = n <= HALF * NAME(LANES);
#define PART(rows, vectors) NAME(part)(rows, vectors, is_packed, m, k, a, b, out, pitch, adds)
    if (m > 4 && MR > 4) {
        if (half)
            PART(MR, HALF);
        else
            PART(MR, NV);
    } else if (m > 2) {
        if (half)
            PART(4, HALF);
        else
            PART(4, NV);
    } else {
        if (half)
            PART(2, HALF);
        else
            PART(2, NV);
    }
#undef PART
}

/* A tile whose first m rows and n columns are wanted; others may be computed, too. */
static void NAME(tile)(int64_t m, int64_t n, int64_t k, NAME(Left) a, const REAL *b, REAL *out, int64_t pitch,
                       int adds)
{
    if (a.step)
        NAME(tile_of)(0, m, n, k, a, b, out, pitch, adds);
    else
        NAME(tile_of)(1, m, n, k, a, b, out, pitch, adds);
}

#define EACH(type, convert)                                                                                  \
    for (int64_t i = 0; i < n; i++)                                                                          \
    to[i * step] = (REAL)convert(((const type *)from)[i * stride])

/* n elements of a tensor, `stride` apart, to numbers that are `step` apart. */
static inline void NAME(read)(REAL *to, int64_t step, const void *from, cell_dtype dtype, int64_t stride,
                              int64_t n)
{
    switch (dtype) {
    case CELL_F32: EACH(float, ); break;
    case CELL_F64: EACH(double, ); break;
    case CELL_BF16: EACH(uint16_t, cell_bf16_to_f32); break;
    case CELL_F16: EACH(uint16_t, cell_f16_to_f32); break;
    default: break; /* cell_gemm_check refused it */
    }
}
#undef EACH

static REAL NAME(one)(const void *from, cell_dtype dtype)
{
    REAL value = 0;
    NAME(read)(&value, 1, from, dtype, 1, 1);
    return value;
}

static void NAME(write)(void *to, cell_dtype dtype, REAL value)
{
    switch (dtype) {
    case CELL_F32: *(float *)to = (float)value; break;
    case CELL_F64: *(double *)to = (double)value; break;
    case CELL_BF16: *(uint16_t *)to = cell_f64_to_bf16((double)value); break;
    case CELL_F16: *(uint16_t *)to = cell_f64_to_f16((double)value); break;
    default: break;
    }
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLES 1
#endif
#endif

/* Four terms of four rows, `stride` apart, side by side: to[p * wide + i] = from[i * stride + p]. */
static inline void NAME(turn)(REAL *to, int64_t wide, const REAL *from, int64_t stride)
{
#ifdef SHUFFLES
    typedef NAME(Four) four;
    const four a = *(const four *)from, b = *(const four *)(from + stride),
               c = *(const four *)(from + 2 * stride), d = *(const four *)(from + 3 * stride);
    const four p = __builtin_shufflevector(a, b, 0, 4, 1, 5), q = __builtin_shufflevector(c, d, 0, 4, 1, 5),
               r = __builtin_shufflevector(a, b, 2, 6, 3, 7), s = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(four *)to = __builtin_shufflevector(p, q, 0, 1, 4, 5);
    *(four *)(to + wide) = __builtin_shufflevector(p, q, 2, 3, 6, 7);
    *(four *)(to + 2 * wide) = __builtin_shufflevector(r, s, 0, 1, 4, 5);
    *(four *)(to + 3 * wide) = __builtin_shufflevector(r, s, 2, 3, 6, 7);
#else
    for (int p = 0; p < 4; p++)
        for (int i = 0; i < 4; i++)
            to[p * wide + i] = from[i * stride + p];
#endif
}

/* Whole panels, `panels` of them, of numbers as they are computed with: rows (of A, or columns of B) that are
 * neighbours go term by term through all panels, since terms may lie a page apart; terms that are neighbours
 * by a cache line of each row. `wide` is a constant where these are called, 4 or more; the last four of a
 * panel may overlap those before. */
static inline __attribute__((always_inline)) void NAME(pack_rows)(REAL *to, const REAL *from, int64_t along,
                                                                  int64_t k, int64_t panels, const int wide)
{
    enum { TERMS = 8 };
    for (int64_t begin = 0; begin < k; begin += TERMS)
        for (int64_t of = 0; of < panels; of++)
            for (int64_t p = begin; p < k && p < begin + TERMS; p++) {
                for (int byte = 0; byte < wide * (int)sizeof(REAL); byte += 64)
                    __builtin_prefetch((const char *)(from + (p + TERMS) * along + of * wide) + byte, 0,
                                       SECOND_CACHE);
                for (int i = 0; i < wide; i += 4) {
                    const int at = i + 4 > wide ? wide - 4 : i;
                    *(NAME(Four) *)(to + (of * k + p) * wide + at) =
                        *(const NAME(Four) *)(from + p * along + of * wide + at);
                }
            }
}

static inline __attribute__((always_inline)) void NAME(pack_terms)(REAL *to, const REAL *from, int64_t across,
                                                                   int64_t k, const int wide)
{
    enum { LINE = 64 / sizeof(REAL) };
    const int64_t whole = k / LINE * LINE;
    for (int64_t p = 0; p < whole; p += LINE)
        for (int i = 0; i < wide; i += 4) {
            const int at = i + 4 > wide ? wide - 4 : i;
            for (int r = at; r < at + 4; r++)
                __builtin_prefetch(from + r * across + p + LINE, 0, SECOND_CACHE);
            for (int q = 0; q < LINE; q += 4)
                NAME(turn)(to + (p + q) * wide + at, wide, from + at * across + p + q, across);
        }
    for (int64_t p = whole; p < k; p++)
        for (int i = 0; i < wide; i++)
            to[p * wide + i] = from[i * across + p];
}

/* Panels that lie one behind the other, as above, where they can be packed so. */
static inline __attribute__((always_inline)) int NAME(pack_plain)(REAL *to, const REAL *from, int64_t along,
                                                                  int64_t across, int64_t k, int64_t panels,
                                                                  const int wide)
{
    if (across == 1)
        NAME(pack_rows)(to, from, along, k, panels, wide);
    else if (along == 1)
        for (int64_t of = 0; of < panels; of++)
            NAME(pack_terms)(to + of * k * wide, from + of * wide * across, across, k, wide);
    return across == 1 || along == 1;
}

/* `count` rows of A, or columns of B, in panels of `wide`; element (p, i) lies p * along + i * across behind
 * `from`. */
static void NAME(pack)(REAL *to, const char *from, cell_dtype dtype, int64_t along, int64_t across, int64_t k,
                       int64_t count, int wide)
{
    int64_t size = (int64_t)cell_dtype_bytes(dtype), whole = count / wide, done = 0;
    if (dtype == REAL_TYPE && wide == MR &&
        NAME(pack_plain)(to, (const REAL *)from, along, across, k, whole, MR))
        done = whole;
    if (dtype == REAL_TYPE && wide == NAME(NR) &&
        NAME(pack_plain)(to, (const REAL *)from, along, across, k, whole, NAME(NR)))
        done = whole;
    for (int64_t row = done * wide; row < count; row += wide) {
        int64_t n = count - row < wide ? count - row : wide;
        REAL *panel = to + row * k;
        const char *begin = from + row * across * size;
        if (n < wide)
            memset(panel, 0, (size_t)(k * wide) * sizeof(REAL));
        if (across == 1)
            for (int64_t p = 0; p < k; p++)
                NAME(read)(panel + p * wide, 1, begin + p * along * size, dtype, 1, n);
        else
            for (int64_t i = 0; i < n; i++)
                NAME(read)(panel + i, wide, begin + i * across * size, dtype, along, k);
    }
}

/* What the threads share of one piece of a product: rows [row, row + m), columns [col, col + n), terms
 * [term, term + k). */
typedef struct NAME(Piece) {
    const cell_gemm_call *call;
    int64_t batch, row, col, term, m, n, k;
    int first, last; /* of the pieces of k */
    int packed, kept; /* B is packed already; it is, or will be, for other products */
    int64_t group; /* panels of B of an item */
    int64_t a_step; /* rows of A are taken as they lie, so far from one to the next; 0: they are packed */
    /* a: its panels; NULL: an item packs those of its rows, or they are taken as they lie. sums: [m][n],
     * where C does not keep them between the pieces; or NULL */
    REAL *a, *b, *sums;
} NAME(Piece);

static const char *NAME(at)(const cell_matrix *x, int64_t batch, int64_t row, int64_t col)
{
    int64_t at = batch * x->batch_stride + row * x->row_stride + col * x->col_stride;
    return (const char *)x->data + at * (int64_t)cell_dtype_bytes(x->dtype);
}

static void NAME(pack_a)(const NAME(Piece) * x, int64_t row, int64_t end, REAL *to)
{
    const cell_matrix *a = &x->call->a;
    NAME(pack)
    (to, NAME(at)(a, x->batch, x->row + row, x->term), a->dtype, a->col_stride, a->row_stride, x->k,
     end - row, MR);
}

/* Blocks of rows of A, where all of them are packed beforehand. */
static void NAME(pack_rows_of_a)(const void *data, int64_t first, int64_t end, void *scratch)
{
    const NAME(Piece) *x = data;
    (void)scratch;
    NAME(pack_a)(x, first * ROWS, end * ROWS < x->m ? end * ROWS : x->m, x->a + first * ROWS * x->k);
}

/* Panels of B. */
static void NAME(pack_items)(const void *data, int64_t first, int64_t end, void *scratch)
{
    const NAME(Piece) *x = data;
    const cell_matrix *b = &x->call->b;
    int64_t col = first * NAME(NR), to = end * NAME(NR) < x->n ? end * NAME(NR) : x->n;
    (void)scratch;
    NAME(pack)
    (x->b + col * x->k, NAME(at)(b, x->batch, x->term, x->col + col), b->dtype, b->row_stride, b->col_stride,
     x->k, to - col, NAME(NR));
}

/* alpha * sum + beta * C, where this is the first piece of k; else what it adds to C. */
static void NAME(finish)(const NAME(Piece) * x, int64_t row, int64_t col, int64_t m, int64_t n,
                         const REAL *tile)
{
    const cell_gemm_call *call = x->call;
    const cell_matrix *c = &call->c;
    REAL alpha = (REAL)call->alpha, beta = x->first || x->sums ? (REAL)call->beta : 1;
    REAL *sums = x->sums ? x->sums + row * x->n + col : NULL;
    for (int64_t i = 0; i < m; i++) {
        const REAL *from = tile + i * NAME(NR);
        if (sums) {
            REAL *kept = sums + i * x->n;
            for (int64_t j = 0; j < n; j++)
                kept[j] = x->first ? from[j] : kept[j] + from[j];
            from = kept;
            if (!x->last)
                continue;
        }
        char *to = (char *)(uintptr_t)NAME(at)(c, x->batch, x->row + row + i, x->col + col);
        if (c->dtype == REAL_TYPE && c->col_stride == 1) {
            REAL *plain = (REAL *)to;
            if (beta == 0)
                for (int64_t j = 0; j < n; j++)
                    plain[j] = alpha * from[j];
            else
                for (int64_t j = 0; j < n; j++)
                    plain[j] = alpha * from[j] + beta * plain[j];
            continue;
        }
        int64_t step = c->col_stride * (int64_t)cell_dtype_bytes(c->dtype);
        for (int64_t j = 0; j < n; j++) {
            REAL value = alpha * from[j];
            NAME(write)
            (to + j * step, c->dtype, beta == 0 ? value : value + beta * NAME(one)(to + j * step, c->dtype));
        }
    }
}

/* A tile whose sums go to C without a detour: all of it lies there, side by side, and nothing is scaled. */
static int NAME(is_direct)(const NAME(Piece) * x, int64_t m, int64_t n)
{
    const cell_matrix *c = &x->call->c;
    return (m == MR || m == 4 || m == 2) && n == NAME(NR) && !x->sums && c->dtype == REAL_TYPE &&
           c->col_stride == 1 && x->call->alpha == 1 &&
           (!x->first || x->call->beta == 0 || x->call->beta == 1);
}

/* Rows from `row` on: as they lie, or in `panels`, which begin with row `top`. */
static NAME(Left) NAME(left)(const NAME(Piece) * x, int64_t row, int64_t top, const REAL *panels)
{
    if (x->a_step)
        return (NAME(Left)){ (const REAL *)NAME(at)(&x->call->a, x->batch, x->row + row, x->term),
                             x->a_step };
    return (NAME(Left)){ panels + (row - top) * x->k, 0 };
}

/* The tiles of rows [top, end) with one panel of B, which begins at column `col`; `panels` has these rows. */
static void NAME(multiply_panel)(const NAME(Piece) * x, int64_t top, int64_t end, int64_t col, int64_t to,
                                 const REAL *panels, const REAL *b, REAL *tile)
{
    const cell_matrix *c = &x->call->c;
    const int adds = !x->first || x->call->beta == 1;
    const int64_t n = to - col < NAME(NR) ? to - col : NAME(NR);
    for (int64_t row = top; row < end; row += MR) {
        const int64_t m = end - row < MR ? end - row : MR;
        const NAME(Left) a = NAME(left)(x, row, top, panels);
        if (NAME(is_direct)(x, m, n)) {
            REAL *out = (REAL *)(uintptr_t)NAME(at)(c, x->batch, x->row + row, x->col + col);
            NAME(tile)(m, n, x->k, a, b, out, c->row_stride, adds);
            continue;
        }
        NAME(tile)(m, n, x->k, a, b, tile, NAME(NR), 0);
        NAME(finish)(x, row, col, m, n, tile);
    }
}

/* A block of rows and a group of panels of B each; blocks that follow one another have the same rows as long
 * as there are groups. */
static void NAME(multiply_items)(const void *data, int64_t first, int64_t end, void *scratch)
{
    const NAME(Piece) *x = data;
    const int64_t wide = x->group * NAME(NR), groups = (x->n + wide - 1) / wide;
    REAL *tile = scratch, *own = tile + MR * NAME(NR);
    for (int64_t item = first; item < end; item++) {
        int64_t top = item / groups * ROWS, from = item % groups * wide;
        int64_t bottom = top + ROWS < x->m ? top + ROWS : x->m, to = from + wide < x->n ? from + wide : x->n;
        if (!x->a && !x->a_step && (item == first || from == 0))
            NAME(pack_a)(x, top, bottom, own);
        const REAL *panels = x->a ? x->a + top * x->k : own;
        for (int64_t col = from; col < to; col += NAME(NR))
            NAME(multiply_panel)(x, top, bottom, col, to, panels, x->b + col * x->k, tile);
    }
}

static int64_t NAME(rounded)(int64_t n, int64_t of)
{
    return (n + of - 1) / of * of;
}

/* A panel of B each, which is packed, with all terms, and all rows of A as they lie: threads meet once, where
 * with pieces of terms they would meet after each. */
static void NAME(multiply_terms)(const void *data, int64_t first, int64_t end, void *scratch)
{
    const NAME(Piece) *x = data;
    for (int64_t item = first; item < end; item++)
        for (int64_t term = 0; term < x->k; term += DEPTH) {
            NAME(Piece) of = *x;
            of.term = term;
            of.k = x->k - term < DEPTH ? x->k - term : DEPTH;
            of.first = term == 0;
            of.last = term + of.k == x->k;
            NAME(multiply_panel)
            (&of, 0, x->m, item * NAME(NR), x->n, NULL,
             x->b + NAME(rounded)(x->n, NAME(NR)) * term + item * NAME(NR) * of.k, scratch);
        }
}

/* A panel of B each, which the item packs for itself, and all rows. */
static void NAME(multiply_panels)(const void *data, int64_t first, int64_t end, void *scratch)
{
    const NAME(Piece) *x = data;
    const cell_matrix *b = &x->call->b;
    REAL *tile = scratch, *own = tile + MR * NAME(NR);
    for (int64_t item = first; item < end; item++) {
        const int64_t col = item * NAME(NR), n = x->n - col < NAME(NR) ? x->n - col : NAME(NR);
        NAME(pack)
        (own, NAME(at)(b, x->batch, x->term, x->col + col), b->dtype, b->row_stride, b->col_stride, x->k, n,
         NAME(NR));
        NAME(multiply_panel)(x, 0, x->m, col, x->n, x->a, own, tile);
    }
}

static cell_status NAME(run_piece)(NAME(Piece) * x, int threads, cell_error *err)
{
    const int64_t panels = (x->n + NAME(NR) - 1) / NAME(NR), blocks = (x->m + ROWS - 1) / ROWS;
    const int64_t least = SMALL / (x->k * MR * NAME(NR)) + 1;
    const int is_whole = x->a || (x->a_step && x->m <= WHOLE); /* all rows of A are there, and stay in L2 */
    size_t scratch = sizeof(REAL) * (size_t)(MR * NAME(NR) + (x->a || x->a_step ? 0 : ROWS * x->k));
    cell_status status = CELL_OK;
    if (x->a)
        status = cell_pool_run(NAME(pack_rows_of_a), x, blocks, SMALL / (x->k * ROWS) + 1, 0, threads, err);
    if (status == CELL_OK && is_whole && !x->kept && (threads == 1 || panels >= 2 * threads))
        return cell_pool_run(NAME(multiply_panels), x, panels, 1,
                             sizeof(REAL) * (size_t)((MR + x->k) * NAME(NR)), threads, err);
    if (status == CELL_OK && !x->packed)
        status = cell_pool_run(NAME(pack_items), x, panels, 4 * least, 0, threads, err);
    x->group = panels < WIDEST ? panels : WIDEST;
    while (x->group > (x->a || x->a_step ? 1 : GROUP) &&
           blocks * ((panels + x->group - 1) / x->group) < ITEMS)
        x->group = (x->group + 1) / 2;
    if (status == CELL_OK)
        status = cell_pool_run(NAME(multiply_items), x, blocks * ((panels + x->group - 1) / x->group),
                               least / GROUP + 1, scratch, threads, err);
    return status;
}

/* How far rows of A lie apart, where they can be taken as they lie; 0: they are packed. */
static int64_t NAME(step_of)(const cell_gemm_call *call)
{
    const cell_matrix *a = &call->a;
    return a->dtype == REAL_TYPE && a->col_stride == 1 && a->row_stride > 0 ? a->row_stride : 0;
}

/* One of the batch, in pieces of columns, terms and rows. `kept`: B, packed whole by [columns][terms]
 * pieces; or NULL. */
static cell_status NAME(by_pieces)(const cell_gemm_call *call, int64_t batch, const cell_product_run *run,
                                   REAL *kept, int is_packed, cell_error *err)
{
    const int64_t depth = call->k < DEPTH ? call->k : DEPTH,
                  most_n = call->n < MOST_COLUMNS ? call->n : MOST_COLUMNS;
    const int sums = call->c.dtype != REAL_TYPE && call->k > DEPTH;
    /* Rows go in pieces only where their sums are kept over all terms. */
    const int64_t rows = sums && call->m > MOST_ROWS ? MOST_ROWS : call->m;
    const int64_t a_step = NAME(step_of)(call);
    const int64_t room_a = call->m <= WHOLE && !a_step ? NAME(rounded)(call->m, MR) * depth : 0,
                  room_b = kept ? 0 : NAME(rounded)(most_n, NAME(NR)) * depth;
    const int64_t room = room_a + room_b + (sums ? rows * most_n : 0);
    REAL *memory = room ? run->memory(run->data, sizeof(REAL) * (size_t)room) : NULL;
    cell_status status = CELL_OK;
    if (room && !memory)
        return cell_fail(err, CELL_OUT_OF_MEMORY, "out of memory for a product");
    /* Of a whole piece, with its edge. */
    const int64_t packed_columns = NAME(rounded)(MOST_COLUMNS, NAME(NR));
    for (int64_t col = 0; col < call->n && status == CELL_OK; col += MOST_COLUMNS) {
        int64_t n = call->n - col < MOST_COLUMNS ? call->n - col : MOST_COLUMNS;
        REAL *piece = kept ? kept + col / MOST_COLUMNS * packed_columns * call->k : NULL;
        if (kept && is_packed && a_step && !sums && call->m <= WHOLE) {
            NAME(Piece) x = { .call = call, .batch = batch, .col = col };
            x.m = call->m, x.n = n, x.k = call->k, x.a_step = a_step, x.b = piece;
            status = cell_pool_run(NAME(multiply_terms), &x, NAME(rounded)(n, NAME(NR)) / NAME(NR),
                                   SMALL / (call->k * call->m * NAME(NR)) + 1,
                                   sizeof(REAL) * (size_t)(MR * NAME(NR)), run->threads, err);
            continue;
        }
        for (int64_t row = 0; row < call->m; row += rows)
            for (int64_t term = 0; term < call->k && status == CELL_OK; term += DEPTH) {
                int64_t m = call->m - row < rows ? call->m - row : rows,
                        k = call->k - term < DEPTH ? call->k - term : DEPTH;
                NAME(Piece) x = { .call = call, .batch = batch, .row = row, .col = col, .term = term };
                x.m = m, x.n = n, x.k = k;
                x.kept = kept != NULL;
                x.a_step = a_step;
                x.first = term == 0;
                x.last = term + k == call->k;
                x.a = room_a ? memory : NULL;
                x.b = kept ? piece + NAME(rounded)(n, NAME(NR)) * term : memory + room_a;
                x.packed = kept && (is_packed || row > 0);
                x.sums = sums ? memory + room_a + room_b : NULL;
                status = NAME(run_piece)(&x, run->threads, err);
            }
    }
    return status;
}

/* ---- few rows: B as it lies */

typedef struct NAME(Few) {
    const cell_gemm_call *call;
    int64_t batch;
    const REAL *a; /* [m][k] */
} NAME(Few);

static void NAME(put)(const NAME(Few) * x, int64_t row, int64_t col, REAL sum)
{
    const cell_gemm_call *call = x->call;
    char *to = (char *)(uintptr_t)NAME(at)(&call->c, x->batch, row, col);
    REAL value = (REAL)call->alpha * sum;
    if (call->c.dtype == REAL_TYPE && call->beta == 0)
        *(REAL *)to = value;
    else
        NAME(write)
    (to, call->c.dtype, call->beta == 0 ? value : value + (REAL)call->beta * NAME(one)(to, call->c.dtype));
}

/* 16 lanes in a fixed tree: halves are joined until one is left. */
static REAL NAME(tree)(const REAL *lane)
{
    enum { QUARTER = 16 / (int)sizeof(REAL), COUNT = 16 / QUARTER };
    typedef REAL quarter __attribute__((vector_size(16), aligned(sizeof(REAL)), may_alias));
    quarter x[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = *(const quarter *)(lane + i * QUARTER);
    for (int half = COUNT / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            x[i] += x[i + half];
    if (QUARTER == 2)
        return x[0][0] + x[0][1];
    return (x[0][0] + x[0][QUARTER / 2]) + (x[0][1] + x[0][QUARTER - 1]);
}

static REAL NAME(dot)(const REAL *a, const REAL *b, int64_t k)
{
    enum { COUNT = 16 / NAME(LANES) };
    const int64_t whole = k / 16 * 16;
    NAME(V) sum[COUNT];
    for (int i = 0; i < COUNT; i++)
        sum[i] = (NAME(V)){ 0 };
    for (int64_t p = 0; p < whole; p += 16)
        for (int i = 0; i < COUNT; i++)
            sum[i] +=
                *(const NAME(V) *)(a + p + i * NAME(LANES)) * *(const NAME(V) *)(b + p + i * NAME(LANES));
    REAL lane[16];
    for (int i = 0; i < COUNT; i++)
        *(NAME(V) *)(lane + i * NAME(LANES)) = sum[i];
    for (int64_t l = 0; l < k - whole; l++)
        lane[l] += a[whole + l] * b[whole + l];
    return NAME(tree)(lane);
}

enum { NAME(SIDE) = 4 };

/* The same of SIDE columns, `step` apart: an addition waits for the one before in its column, not for
 * others. */
static void NAME(dots_side_by_side)(REAL *to, const REAL *a, const REAL *b, int64_t step, int64_t k)
{
    enum { COUNT = 16 / NAME(LANES) };
    const int64_t whole = k / 16 * 16;
    NAME(V) sum[NAME(SIDE)][COUNT];
    for (int j = 0; j < NAME(SIDE); j++)
        for (int i = 0; i < COUNT; i++)
            sum[j][i] = (NAME(V)){ 0 };
    for (int64_t p = 0; p < whole; p += 16) {
        for (int j = 0; j < NAME(SIDE); j++)
            for (int byte = 0; byte < 16 * (int)sizeof(REAL); byte += 64)
                __builtin_prefetch((const char *)(b + (j + NAME(SIDE)) * step + p) + byte);
        for (int i = 0; i < COUNT; i++)
            for (int j = 0; j < NAME(SIDE); j++)
                sum[j][i] += *(const NAME(V) *)(a + p + i * NAME(LANES)) *
                             *(const NAME(V) *)(b + j * step + p + i * NAME(LANES));
    }
    for (int j = 0; j < NAME(SIDE); j++) {
        REAL lane[16];
        for (int i = 0; i < COUNT; i++)
            *(NAME(V) *)(lane + i * NAME(LANES)) = sum[j][i];
        for (int64_t l = 0; l < k - whole; l++)
            lane[l] += a[whole + l] * b[j * step + whole + l];
        to[j] = NAME(tree)(lane);
    }
}

/* Columns of B whose terms are neighbours: each sum in 16 lanes, which a tree adds up. */
static void NAME(dots)(const void *data, int64_t first, int64_t end, void *scratch)
{
    const NAME(Few) *x = data;
    const cell_gemm_call *call = x->call;
    const int64_t k = call->k;
    const int is_real = call->b.dtype == REAL_TYPE;
    REAL *column = scratch;
    for (int64_t j = first; j < end;) {
        const int n = is_real && end - j >= NAME(SIDE) ? NAME(SIDE) : 1;
        const REAL *b = (const REAL *)NAME(at)(&call->b, x->batch, 0, j);
        if (!is_real) {
            NAME(read)(column, 1, b, call->b.dtype, 1, k);
            b = column;
        }
        for (int64_t i = 0; i < call->m; i++) {
            REAL sum[NAME(SIDE)];
            if (n == NAME(SIDE))
                NAME(dots_side_by_side)(sum, x->a + i * k, b, call->b.col_stride, k);
            else
                sum[0] = NAME(dot)(x->a + i * k, b, k);
            for (int c = 0; c < n; c++)
                NAME(put)(x, i, j + c, sum[c]);
        }
        j += n;
    }
}

/* Pieces of B's rows, whose columns are neighbours. */
static void NAME(rows)(const void *data, int64_t first, int64_t end, void *scratch)
{
    const NAME(Few) *x = data;
    const cell_gemm_call *call = x->call;
    (void)scratch;
    for (int64_t item = first; item < end; item++) {
        int64_t col = item * STRIP, n = call->n - col < STRIP ? call->n - col : STRIP;
        REAL sum[FEW][STRIP] = { { 0 } }, b[STRIP] = { 0 };
        for (int64_t p = 0; p < call->k; p++) {
            NAME(read)(b, 1, NAME(at)(&call->b, x->batch, p, col), call->b.dtype, 1, n);
            for (int64_t i = 0; i < call->m; i++) {
                REAL a = x->a[i * call->k + p];
                for (int j = 0; j < STRIP; j++)
                    sum[i][j] += a * b[j];
            }
        }
        for (int64_t i = 0; i < call->m; i++)
            for (int64_t j = 0; j < n; j++)
                NAME(put)(x, i, col + j, sum[i][j]);
    }
}

/* Can memory for these be asked for? Operands of 16 bits take twice their memory here. */
static int NAME(fits)(int64_t elements)
{
    return elements <= (int64_t)(PTRDIFF_MAX / sizeof(REAL)) - 16;
}

static cell_status NAME(few)(const cell_gemm_call *call, int64_t batch, const cell_product_run *run,
                             cell_error *err)
{
    REAL *a = NAME(fits)(call->m * call->k)
                  ? run->memory(run->data, sizeof(REAL) * (size_t)(call->m * call->k))
                  : NULL;
    NAME(Few) x = { call, batch, a };
    int64_t each = SMALL / (call->m * call->k * 2) + 1;
    if (!a)
        return cell_fail(err, CELL_OUT_OF_MEMORY, "out of memory for a product");
    for (int64_t i = 0; i < call->m; i++)
        NAME(read)
    (a + i * call->k, 1, NAME(at)(&call->a, batch, i, 0), call->a.dtype, call->a.col_stride, call->k);
    if (call->b.row_stride == 1 && call->b.col_stride != 1)
        return cell_pool_run(NAME(dots), &x, call->n, each, sizeof(REAL) * (size_t)call->k, run->threads,
                             err);
    return cell_pool_run(NAME(rows), &x, (call->n + STRIP - 1) / STRIP, each / STRIP + 1, 0, run->threads,
                         err);
}

static cell_status NAME(product)(const cell_gemm_call *call, const cell_product_run *run, cell_error *err)
{
    cell_status status = CELL_OK;
    int is_few = call->m <= FEW && (call->b.row_stride == 1 || call->b.col_stride == 1);
    for (int64_t batch = 0; batch < call->batch && status == CELL_OK; batch++) {
        if (is_few) {
            status = NAME(few)(call, batch, run, err);
            continue;
        }
        int is_packed = 0;
        int64_t room = 0;
        for (int64_t col = 0; col < call->n; col += MOST_COLUMNS)
            room += NAME(rounded)(call->n - col < MOST_COLUMNS ? call->n - col : MOST_COLUMNS, NAME(NR)) *
                    call->k;
        const char *from = NAME(at)(&call->b, batch, 0, 0);
        REAL *kept = run->kept && NAME(fits)(room)
                         ? run->kept(run->data, call, from, sizeof(REAL) * (size_t)room, &is_packed)
                         : NULL;
        status = NAME(by_pieces)(call, batch, run, kept, is_packed, err);
    }
    return status;
}
