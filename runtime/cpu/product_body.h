/* Products in REAL, float or double, at one level of the architecture; included by product_level.c for
 * each. Operands are packed into panels: of A [k][MR], of B [k][NR], zeros beyond the edge. A tile of MR
 * x NR sums stays in registers for a piece of k. Products with few rows take B as it lies. The order of
 * every sum follows from sizes alone. */

typedef REAL NAME(V) __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
enum { NAME(LANES) = BYTES / (int)sizeof(REAL), NAME(NR) = NV * NAME(LANES) };

static void NAME(tile)(int64_t k, const REAL *a, const REAL *b, REAL *out)
{
    NAME(V) sum[MR][NV];
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NV; j++)
            sum[i][j] = (NAME(V)){ 0 };
    for (int64_t p = 0; p < k; p++) {
        NAME(V) right[NV];
        for (int j = 0; j < NV; j++)
            right[j] = *(const NAME(V) *)(b + p * NAME(NR) + j * NAME(LANES));
        for (int i = 0; i < MR; i++) {
            NAME(V) left = a[p * MR + i] - (NAME(V)){ 0 }; /* in all lanes */
            for (int j = 0; j < NV; j++)
                sum[i][j] += left * right[j];
        }
    }
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NV; j++)
            *(NAME(V) *)(out + i * NAME(NR) + j * NAME(LANES)) = sum[i][j];
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

/* A panel: `wide` rows of A, or columns of B, of which there are `count`; element (p, i) of it lies p *
 * along + i * across behind `from`. */
static void NAME(pack)(REAL *to, const char *from, cell_dtype dtype, int64_t along, int64_t across, int64_t k,
                       int64_t count, int wide)
{
    int64_t size = (int64_t)cell_dtype_bytes(dtype);
    if (count < wide)
        memset(to, 0, (size_t)(k * wide) * sizeof(REAL));
    if (across == 1)
        for (int64_t p = 0; p < k; p++)
            NAME(read)(to + p * wide, 1, from + p * along * size, dtype, 1, count);
    else
        for (int64_t i = 0; i < count; i++)
            NAME(read)(to + i, wide, from + i * across * size, dtype, along, k);
}

/* What the threads share of one piece of a product: rows [row, row + m), columns [col, col + n), terms
 * [term, term + k). */
typedef struct NAME(Piece) {
    const cell_gemm_call *call;
    int64_t batch, row, col, term, m, n, k;
    int first, last; /* of the pieces of k */
    int packed; /* B is packed already */
    REAL *a, *b, *sums; /* sums: [m][n], where C does not keep them between the pieces; or NULL */
} NAME(Piece);

static const char *NAME(at)(const cell_matrix *x, int64_t batch, int64_t row, int64_t col)
{
    int64_t at = batch * x->batch_stride + row * x->row_stride + col * x->col_stride;
    return (const char *)x->data + at * (int64_t)cell_dtype_bytes(x->dtype);
}

/* Panels of A, then those of B. */
static void NAME(pack_items)(const void *data, int64_t first, int64_t end, void *scratch)
{
    const NAME(Piece) *x = data;
    const cell_matrix *a = &x->call->a, *b = &x->call->b;
    int64_t of_a = (x->m + MR - 1) / MR;
    (void)scratch;
    for (int64_t i = first; i < end; i++) {
        if (i < of_a) {
            int64_t row = i * MR, count = x->m - row < MR ? x->m - row : MR;
            NAME(pack)
            (x->a + row * x->k, NAME(at)(a, x->batch, x->row + row, x->term), a->dtype, a->col_stride,
             a->row_stride, x->k, count, MR);
        } else {
            int64_t col = (i - of_a) * NAME(NR), count = x->n - col < NAME(NR) ? x->n - col : NAME(NR);
            NAME(pack)
            (x->b + col * x->k, NAME(at)(b, x->batch, x->term, x->col + col), b->dtype, b->row_stride,
             b->col_stride, x->k, count, NAME(NR));
        }
    }
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

/* A block of rows and a group of panels of B each. */
static void NAME(multiply_items)(const void *data, int64_t first, int64_t end, void *scratch)
{
    const NAME(Piece) *x = data;
    int64_t groups = (x->n + GROUP * NAME(NR) - 1) / (GROUP * NAME(NR));
    REAL *tile = scratch;
    for (int64_t item = first; item < end; item++) {
        int64_t top = item / groups * ROWS, from = item % groups * GROUP * NAME(NR);
        int64_t bottom = top + ROWS < x->m ? top + ROWS : x->m,
                to = from + GROUP * NAME(NR) < x->n ? from + GROUP * NAME(NR) : x->n;
        for (int64_t col = from; col < to; col += NAME(NR))
            for (int64_t row = top; row < bottom; row += MR) {
                NAME(tile)(x->k, x->a + row * x->k, x->b + col * x->k, tile);
                NAME(finish)
                (x, row, col, bottom - row < MR ? bottom - row : MR,
                 to - col < NAME(NR) ? to - col : NAME(NR), tile);
            }
    }
}

static cell_status NAME(run_piece)(const NAME(Piece) * x, int threads, cell_error *err)
{
    int64_t panels = (x->m + MR - 1) / MR + (x->packed ? 0 : (x->n + NAME(NR) - 1) / NAME(NR));
    int64_t blocks = (x->m + ROWS - 1) / ROWS * ((x->n + GROUP * NAME(NR) - 1) / (GROUP * NAME(NR)));
    int64_t least = SMALL / (x->k * MR * NAME(NR)) + 1;
    cell_status status = cell_pool_run(NAME(pack_items), x, panels, 4 * least, 0, threads, err);
    if (status == CELL_OK)
        status = cell_pool_run(NAME(multiply_items), x, blocks, least / GROUP + 1,
                               sizeof(REAL) * MR * NAME(NR), threads, err);
    return status;
}

static int64_t NAME(rounded)(int64_t n, int64_t of)
{
    return (n + of - 1) / of * of;
}

/* One of the batch, in pieces of columns, rows and terms. `kept`: B, packed whole by [columns][terms]
 * pieces; or NULL. */
static cell_status NAME(by_pieces)(const cell_gemm_call *call, int64_t batch, const cell_product_run *run,
                                   REAL *kept, int is_packed, cell_error *err)
{
    int64_t most_m = call->m < MOST_ROWS ? call->m : MOST_ROWS,
            most_n = call->n < MOST_COLUMNS ? call->n : MOST_COLUMNS;
    int64_t depth = call->k < DEPTH ? call->k : DEPTH;
    int sums = call->c.dtype != REAL_TYPE && call->k > DEPTH;
    int64_t room_a = NAME(rounded)(most_m, MR) * depth,
            room_b = kept ? 0 : NAME(rounded)(most_n, NAME(NR)) * depth;
    REAL *memory =
        run->memory(run->data, sizeof(REAL) * (size_t)(room_a + room_b + (sums ? most_m * most_n : 0)));
    cell_status status = CELL_OK;
    if (!memory)
        return cell_fail(err, CELL_OUT_OF_MEMORY, "out of memory for a product");
    const int64_t packed_columns = NAME(rounded)(MOST_COLUMNS, NAME(NR)); /* of a whole piece, with its edge */
    for (int64_t col = 0; col < call->n && status == CELL_OK; col += MOST_COLUMNS) {
        int64_t n = call->n - col < MOST_COLUMNS ? call->n - col : MOST_COLUMNS;
        REAL *piece = kept ? kept + col / MOST_COLUMNS * packed_columns * call->k : NULL;
        for (int64_t row = 0; row < call->m && status == CELL_OK; row += MOST_ROWS) {
            int64_t m = call->m - row < MOST_ROWS ? call->m - row : MOST_ROWS;
            for (int64_t term = 0; term < call->k && status == CELL_OK; term += DEPTH) {
                int64_t k = call->k - term < DEPTH ? call->k - term : DEPTH;
                NAME(Piece)
                x = { call, batch,  row,  col, term, m, n, k, term == 0, term + k == call->k,
                      0,    memory, NULL, NULL };
                x.b = kept ? piece + NAME(rounded)(n, NAME(NR)) * term : memory + room_a;
                x.packed = kept && (is_packed || row > 0);
                x.sums = sums ? memory + room_a + room_b : NULL;
                status = NAME(run_piece)(&x, run->threads, err);
            }
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

/* Columns of B whose terms are neighbours: each sum in 16 lanes, which a tree adds up. */
static void NAME(dots)(const void *data, int64_t first, int64_t end, void *scratch)
{
    const NAME(Few) *x = data;
    const cell_gemm_call *call = x->call;
    const int64_t k = call->k;
    const int is_plain = call->c.dtype == REAL_TYPE && call->beta == 0;
    REAL *column = scratch;
    for (int64_t j = first; j < end; j++) {
        const REAL *b = (const REAL *)NAME(at)(&call->b, x->batch, 0, j);
        if (call->b.dtype != REAL_TYPE) {
            NAME(read)(column, 1, b, call->b.dtype, 1, k);
            b = column;
        }
        for (int64_t i = 0; i < call->m; i++) {
            REAL sum = NAME(dot)(x->a + i * k, b, k);
            if (is_plain)
                *(REAL *)(uintptr_t)NAME(at)(&call->c, x->batch, i, j) = (REAL)call->alpha * sum;
            else
                NAME(put)(x, i, j, sum);
        }
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
