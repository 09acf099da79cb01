/* cell_gemm against a triple loop in long double, over layouts, types, batches, factors and sizes down to 0,
 * on the backend that CELL_BACKEND names (so the same program checks cuBLAS). Whole buffers are compared:
 * what is not part of C must keep its bytes. C holds NaN where beta is 0. With small integers the result must
 * be exact; with random numbers within the bound of the arithmetic. */
#include "cell.h"
#include "expect.h"
#include "half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static cell_context *ctx;
static uint32_t state = 12345;

static double uniform(void) {
    state = state * 1664525u + 1013904223u;
    return (double)(state >> 8) / 8388608.0 - 1.0;
}

typedef enum Layout { ROWS, COLS, ROWS_PADDED, COLS_PADDED, SPREAD, N_LAYOUTS } Layout;

/* A batch of matrices with its bytes on the host and in backend memory. */
typedef struct Block {
    cell_dtype dtype;
    int64_t rows, cols, batch, row_stride, col_stride, batch_stride, elements;
    char *host;
    void *memory;
} Block;

static double get(const void *data, cell_dtype dtype, int64_t i) {
    switch (dtype) {
    case CELL_F32:
        return ((const float *)data)[i];
    case CELL_F64:
        return ((const double *)data)[i];
    case CELL_BF16:
        return cell_bf16_to_f32(((const uint16_t *)data)[i]);
    default:
        return cell_f16_to_f32(((const uint16_t *)data)[i]);
    }
}

static void set(void *data, cell_dtype dtype, int64_t i, double value) {
    switch (dtype) {
    case CELL_F32:
        ((float *)data)[i] = (float)value;
        break;
    case CELL_F64:
        ((double *)data)[i] = value;
        break;
    case CELL_BF16:
        ((uint16_t *)data)[i] = cell_f32_to_bf16((float)value);
        break;
    default:
        ((uint16_t *)data)[i] = cell_f32_to_f16((float)value);
    }
}

static int64_t index_of(const Block *block, int64_t b, int64_t i, int64_t j) {
    return b * block->batch_stride + i * block->row_stride + j * block->col_stride;
}

static void lay_out(Block *block, Layout layout) {
    int64_t rows = block->rows > 0 ? block->rows : 1, cols = block->cols > 0 ? block->cols : 1;
    int64_t pad = layout == ROWS_PADDED || layout == COLS_PADDED ? 3 : 0;
    int by_rows = layout == ROWS || layout == ROWS_PADDED;
    block->row_stride = by_rows ? cols + pad : 1;
    block->col_stride = by_rows ? 1 : rows + pad;
    if (layout == SPREAD) {
        block->row_stride = 2;
        block->col_stride = 2 * rows + 1;
    }
    block->batch_stride =
        (rows + pad) * (cols + pad) * (layout == SPREAD ? 3 : 1) + (layout == SPREAD ? 8 : 0);
    block->elements = block->batch_stride * (block->batch > 0 ? block->batch : 1) + 8;
}

static void create(Block *block, Layout layout, int integers, int nans) {
    lay_out(block, layout);
    size_t bytes = (size_t)block->elements * cell_dtype_bytes(block->dtype);
    block->host = malloc(bytes);
    for (int64_t i = 0; i < block->elements; i++)
        set(block->host, block->dtype, i, nans ? NAN : integers ? floor(uniform() * 2.5) : uniform());
    EXPECT(cell_alloc(ctx, &block->memory, bytes) == CELL_OK, "%s", cell_last_error(ctx));
    EXPECT(cell_copy(ctx, block->memory, block->host, bytes) == CELL_OK, "%s", cell_last_error(ctx));
}

static void destroy(Block *block) {
    cell_free(ctx, block->memory);
    free(block->host);
}

static cell_matrix matrix_of(const Block *block) {
    return (cell_matrix){block->memory, block->dtype, block->row_stride, block->col_stride,
                         block->batch_stride};
}

typedef struct Case {
    int64_t m, n, k, batch;
    Layout a_layout, b_layout, c_layout;
    cell_dtype ab, c;
    double alpha, beta;
    int integers;
} Case;

static double epsilon(cell_dtype dtype) {
    return dtype == CELL_F64 ? 0x1p-52 : dtype == CELL_F32 ? 0x1p-23 : dtype == CELL_F16 ? 0x1p-10 : 0x1p-7;
}

/* One element of C: its value and how far the result may be from it. */
static long double expected(const Case *test, const Block *a, const Block *b, const Block *c, int64_t at[3],
                            double *allowed) {
    long double sum = 0, size = 0;
    for (int64_t p = 0; p < test->k && test->alpha != 0; p++) {
        long double x = get(a->host, a->dtype, index_of(a, at[0], at[1], p));
        long double y = get(b->host, b->dtype, index_of(b, at[0], p, at[2]));
        sum += x * y;
        size += fabsl(x * y);
    }
    long double value = test->alpha * sum, before = 0;
    if (test->beta != 0)
        before = test->beta * (long double)get(c->host, c->dtype, index_of(c, at[0], at[1], at[2]));
    double arithmetic = epsilon(test->ab == CELL_F64 ? CELL_F64 : CELL_F32);
    *allowed = (double)(arithmetic * ((test->k + 2) * fabsl(test->alpha) * size + 2 * fabsl(before)) +
                        epsilon(test->c) * fabsl(value + before));
    if (test->c == CELL_F16)
        *allowed += 0x1p-25; /* half the distance of numbers below its least normal one */
    return value + before;
}

static void say(const Case *test, char *text, size_t bytes) {
    snprintf(text, bytes, "m %lld n %lld k %lld batch %lld layouts %d %d %d %s -> %s alpha %g beta %g%s",
             (long long)test->m, (long long)test->n, (long long)test->k, (long long)test->batch,
             test->a_layout, test->b_layout, test->c_layout, cell_dtype_name(test->ab),
             cell_dtype_name(test->c), test->alpha, test->beta, test->integers ? " integers" : "");
}

/* Puts the true C into want, and counts elements of got outside their bound. */
static int compare(const Case *test, const Block *a, const Block *b, const Block *c, const char *got) {
    size_t element = cell_dtype_bytes(c->dtype);
    char *inside = calloc((size_t)c->elements, 1);
    int wrong = 0;
    for (int64_t batch = 0; batch < test->batch; batch++)
        for (int64_t i = 0; i < test->m; i++)
            for (int64_t j = 0; j < test->n; j++) {
                double allowed;
                int64_t at = index_of(c, batch, i, j);
                long double want = expected(test, a, b, c, (int64_t[]){batch, i, j}, &allowed);
                double error = (double)fabsl((long double)get(got, c->dtype, at) - want);
                inside[at] = 1;
                wrong += !(error <= (test->integers ? 0 : allowed)); /* so that NaN is wrong */
            }
    for (int64_t i = 0; i < c->elements; i++)
        wrong += !inside[i] && memcmp(got + (size_t)i * element, c->host + (size_t)i * element, element) != 0;
    free(inside);
    return wrong;
}

static int refused_on_cuda(const Case *test) {
    if (cell_backend_of(ctx) != CELL_BACKEND_CUDA || test->m == 0 || test->n == 0 || test->batch == 0)
        return 0;
    return (test->a_layout == SPREAD && test->m > 1 && test->k > 1) ||
           (test->b_layout == SPREAD && test->k > 1 && test->n > 1) ||
           (test->c_layout == SPREAD && test->m > 1 && test->n > 1);
}

/* With one row or column, a spread matrix is a strided vector, which a BLAS may or may not take. */
static int may_refuse(const Case *test) {
    return cell_backend_of(ctx) == CELL_BACKEND_CUDA &&
           (test->a_layout == SPREAD || test->b_layout == SPREAD || test->c_layout == SPREAD);
}

static void run_case(const Case *test) {
    char text[256];
    Block a = {.dtype = test->ab, .rows = test->m, .cols = test->k, .batch = test->batch};
    Block b = {.dtype = test->ab, .rows = test->k, .cols = test->n, .batch = test->batch};
    Block c = {.dtype = test->c, .rows = test->m, .cols = test->n, .batch = test->batch};
    create(&a, test->a_layout, test->integers, test->alpha == 0);
    create(&b, test->b_layout, test->integers, test->alpha == 0);
    create(&c, test->c_layout, test->integers, test->beta == 0);
    say(test, text, sizeof text);
    cell_matrix am = matrix_of(&a), bm = matrix_of(&b), cm = matrix_of(&c);
    cell_status status =
        cell_gemm(ctx, test->m, test->n, test->k, test->batch, test->alpha, &am, &bm, test->beta, &cm);
    size_t bytes = (size_t)c.elements * cell_dtype_bytes(c.dtype);
    char *got = malloc(bytes);
    EXPECT(cell_copy(ctx, got, c.memory, bytes) == CELL_OK, "%s", cell_last_error(ctx));
    if (status == CELL_UNSUPPORTED && may_refuse(test)) {
        EXPECT(memcmp(got, c.host, bytes) == 0, "%s: refused, but written", text);
    } else {
        EXPECT(!refused_on_cuda(test), "%s: not refused", text);
        EXPECT(status == CELL_OK, "%s: %s", text, cell_last_error(ctx));
        int wrong = compare(test, &a, &b, &c, got);
        EXPECT(wrong == 0, "%s: %d elements", text, wrong);
    }
    free(got);
    destroy(&a), destroy(&b), destroy(&c);
}

static const struct {
    cell_dtype ab, c;
} types[] = {{CELL_F32, CELL_F32},  {CELL_F64, CELL_F64}, {CELL_BF16, CELL_BF16},
             {CELL_BF16, CELL_F32}, {CELL_F16, CELL_F16}, {CELL_F16, CELL_F32}};
static const double factors[][2] = {{1, 0}, {1, 1}, {-0.5, 2}, {0, 0.5}, {2, 0}, {0, 0}};
static const int64_t sizes[][3] = {{1, 1, 1},   {2, 3, 4},  {5, 1, 7}, {1, 6, 3},  {4, 5, 1},
                                   {17, 9, 33}, {8, 16, 8}, {0, 3, 2}, {3, 0, 2},  {3, 2, 0},
                                   {0, 0, 0},   {1, 1, 0},  {7, 1, 0}, {3, 300, 5}};

static void run_size(const int64_t *size, int type) {
    int turn = 0;
    for (int layouts = 0; layouts < N_LAYOUTS * N_LAYOUTS * N_LAYOUTS; layouts++) {
        Case test = {.m = size[0], .n = size[1], .k = size[2], .ab = types[type].ab, .c = types[type].c};
        test.a_layout = (Layout)(layouts % N_LAYOUTS);
        test.b_layout = (Layout)(layouts / N_LAYOUTS % N_LAYOUTS);
        test.c_layout = (Layout)(layouts / N_LAYOUTS / N_LAYOUTS);
        for (int batch = 0; batch <= 3; batch += turn % 5 ? 1 : 3, turn++) {
            test.batch = batch;
            test.alpha = factors[turn % 6][0];
            test.beta = factors[turn % 6][1];
            test.integers = turn % 2 && test.alpha != -0.5 && test.beta != 0.5;
            run_case(&test);
        }
    }
}

/* Sizes that the cpu backend gives to a CBLAS in blocks, with their edges; and few rows and columns with many terms. */
static void in_blocks(void) {
    static const int64_t large[][3] = {{600, 70, 26}, {40, 1100, 33}, {48, 48, 8000}, {90, 1030, 200}};
    for (size_t size = 0; size < sizeof large / sizeof *large; size++)
        for (int turn = 0; turn < (size < 2 ? 8 : 1); turn++) {
            Case test = {.m = large[size][0], .n = large[size][1], .k = large[size][2]};
            test.batch = size < 2 ? 1 + turn % 2 : 1;
            test.a_layout = (Layout)(turn % 2), test.b_layout = (Layout)(turn / 2 % 2);
            test.c_layout = (Layout)(turn / 4 % 2);
            test.ab = test.c = turn % 3 ? CELL_F32 : CELL_F64;
            test.alpha = factors[turn % 3][0], test.beta = factors[turn % 3][1];
            cell_context_set_threads(ctx, 1 + 4 * (turn / 2 % 2));
            run_case(&test);
        }
}

/* One product with 1, 2 and 5 threads: the same bits. */
static void whatever_threads(void) {
    static float a[700 * 300], b[300 * 1200], c[3][700 * 1200];
    cell_matrix am = {a, CELL_F32, 300, 1, 0}, bm = {b, CELL_F32, 1, 300, 0};
    for (size_t i = 0; i < sizeof a / sizeof *a; i++)
        a[i] = (float)sin((double)i);
    for (size_t i = 0; i < sizeof b / sizeof *b; i++)
        b[i] = (float)cos(1.5 * (double)i);
    for (int i = 0; i < 3; i++) {
        cell_matrix cm = {c[i], CELL_F32, 1200, 1, 0};
        cell_context_set_threads(ctx, i == 2 ? 5 : i + 1);
        EXPECT(cell_gemm(ctx, 700, 1200, 300, 1, 1, &am, &bm, 0, &cm) == CELL_OK, "%s", cell_last_error(ctx));
        EXPECT(memcmp(c[0], c[i], sizeof c[0]) == 0, "other bits with more threads");
    }
}

static void refusals(void) {
    float x[4] = {1, 2, 3, 4};
    cell_matrix good = {x, CELL_F32, 2, 1, 0}, null = {NULL, CELL_F32, 2, 1, 0},
                wide = {x, CELL_F64, 2, 1, 0};
    cell_matrix codes = {x, CELL_E4M3, 2, 1, 0}, whole = {x, CELL_I32, 2, 1, 0}, odd = {(char *)x + 1, CELL_F32, 2, 1, 0};
    EXPECT(cell_gemm(NULL, 1, 1, 1, 1, 1, &good, &good, 0, &good) == CELL_NULL_POINTER, "no context");
    EXPECT(cell_gemm(ctx, -1, 1, 1, 1, 1, &good, &good, 0, &good) == CELL_BAD_SIZE, "m = -1");
    EXPECT(strstr(cell_last_error(ctx), "m -1") != NULL, "%s", cell_last_error(ctx));
    EXPECT(cell_gemm(ctx, 1, 1, 1, 1, 1, &good, NULL, 0, &good) == CELL_NULL_POINTER, "no B");
    EXPECT(cell_gemm(ctx, 1, 1, 1, 1, 1, &null, &good, 0, &good) == CELL_NULL_POINTER, "A null");
    EXPECT(cell_gemm(ctx, 1, 1, 1, 1, 1, &good, &good, 0, &null) == CELL_NULL_POINTER, "C null");
    EXPECT(cell_gemm(ctx, 0, 1, 1, 1, 1, &null, &null, 0, &null) == CELL_OK, "an empty product of nulls");
    EXPECT(cell_gemm(ctx, 1, 1, 1, 1, 1, &wide, &good, 0, &good) == CELL_UNSUPPORTED, "f64 by f32");
    EXPECT(cell_gemm(ctx, 1, 1, 1, 1, 1, &whole, &whole, 0, &whole) == CELL_UNSUPPORTED, "i32");
    EXPECT(cell_gemm(ctx, 1, 1, 1, 1, 1, &codes, &codes, 0, &good) == CELL_UNSUPPORTED, "codes without scales");
    EXPECT(cell_gemm(ctx, 1, 1, 1, 1, 1, &odd, &good, 0, &good) == CELL_MISALIGNED, "A at an odd address");
}

/* A process finds its CBLAS once, so each of these has one of its own, started before this one's first
 * product. What it says is counted here. */
static void in_child(cell_backend_kind backend, const char *blas, void (*run)(void)) {
    int ends[2];
    long counts[2] = {0, 1};
    fflush(stdout);
    if (pipe(ends) != 0)
        exit(1);
    pid_t child = fork();
    if (child == 0) {
        char message[256];
        setenv("CELL_BLAS", blas, 1);
        passed = failed = 0;
        cell_context_create(&ctx, backend, 0, message, sizeof message);
        run();
        cell_context_destroy(ctx);
        counts[0] = passed, counts[1] = failed;
        fflush(stdout);
        _exit(write(ends[1], counts, sizeof counts) != sizeof counts);
    }
    close(ends[1]);
    EXPECT(child > 0 && read(ends[0], counts, sizeof counts) == sizeof counts, "CELL_BLAS=%s: no counts",
           blas);
    close(ends[0]);
    waitpid(child, NULL, 0);
    passed += counts[0], failed += counts[1];
}

static void every_size(void) {
    if (cell_backend_of(ctx) == CELL_BACKEND_CPU) {
        in_blocks();
        whatever_threads();
    }
    for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++)
        for (int type = 0; type < 6; type++)
            run_size(sizes[size], type);
}

static void refused_by_name(void) {
    float number = 2, sum = 0;
    cell_matrix a = {.data = &number, .dtype = CELL_F32}, c = {.data = &sum, .dtype = CELL_F32};
    for (int again = 0; again < 2; again++) {
        EXPECT(cell_gemm(ctx, 1, 1, 1, 1, 1, &a, &a, 0, &c) == CELL_BACKEND_FAILED, "no such CBLAS");
        EXPECT(strstr(cell_last_error(ctx), "in which cblas_sgemm and cblas_dgemm are not found") != NULL,
               "%s", cell_last_error(ctx));
    }
    setenv("CELL_BLAS", "none", 1);
    EXPECT(cell_gemm(ctx, 1, 1, 1, 1, 1, &a, &a, 0, &c) == CELL_OK && sum == 4, "%g: %s", (double)sum,
           cell_last_error(ctx));
}

/* Without a CBLAS, with one that is not there, and with a library that is none. */
static void on_loops(void) {
    static const cell_backend_kind backends[] = {CELL_BACKEND_REFERENCE, CELL_BACKEND_CPU};
    for (int i = 0; i < 2; i++) {
        in_child(backends[i], "none", every_size);
        in_child(backends[i], "/no/such/libblas.so", refused_by_name);
        in_child(backends[i], "libm.so.6", refused_by_name);
    }
}

int main(void) {
    char message[256];
    if (cell_context_create(&ctx, CELL_BACKEND_AUTO, 0, message, sizeof message) != CELL_OK) {
        printf("no context: %s\n0 passed, 1 failed\n", message);
        return 1;
    }
    if (strcmp(cell_backend_name(ctx), "cuda") != 0)
        on_loops();
    every_size();
    refusals();
    printf("backend: %s\n", cell_backend_name(ctx));
    cell_context_destroy(ctx);
    return report();
}
