/* Products of the cpu backend (runtime/cpu/product.c) against three loops in host memory: whole numbers, so
 * that every order of the sums has the same result, bit for bit. Shapes at the edges of what the code cuts
 * (panels, blocks, pieces of columns and of terms), each level that this machine has, one product alone, and
 * steps of a loop that keeps B packed. Out: `N passed, N failed`. */
#include "cpu/product.h"
#include "half.h"

#include <stdio.h>
#include <stdlib.h>

static int passed, failed;

static uint32_t state = 1;

static int draw(int most) /* -most to most */
{
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 16) % (uint32_t)(2 * most + 1)) - most;
}

static void put(void *at, cell_dtype dtype, int64_t i, int value)
{
    switch (dtype) {
    case CELL_F32: ((float *)at)[i] = (float)value; break;
    case CELL_F64: ((double *)at)[i] = value; break;
    case CELL_BF16: ((uint16_t *)at)[i] = cell_f64_to_bf16(value); break;
    default: ((uint16_t *)at)[i] = cell_f64_to_f16(value); break;
    }
}

typedef struct Shape {
    int64_t m, n, k;
    int across; /* B is stored by columns */
    int upright; /* A is */
    int alone; /* C was nothing before */
    int gap; /* from the end of a row of A to the next one; -k: there is one row, for all */
} Shape;

static cell_matrix matrix(cell_dtype dtype, int64_t rows, int64_t cols, int across, int most)
{
    cell_matrix x = { .dtype = dtype, .row_stride = across ? 1 : cols, .col_stride = across ? rows : 1 };
    x.batch_stride = rows * cols;
    void *data = malloc((size_t)(2 * rows * cols) * cell_dtype_bytes(dtype));
    if (!data)
        abort();
    for (int64_t i = 0; i < 2 * rows * cols; i++)
        put(data, dtype, i, draw(most));
    x.data = data;
    return x;
}

static int64_t differences(const cell_matrix *x, const cell_matrix *y, int64_t bytes, int64_t *first)
{
    int64_t n = 0;
    for (int64_t i = 0; i < bytes; i++)
        if (((const char *)x->data)[i] != ((const char *)y->data)[i] && n++ == 0)
            *first = i / (int64_t)cell_dtype_bytes(x->dtype);
    return n;
}

/* Two of a batch, which add to what C was unless it was nothing. */
static void check(Shape s, cell_dtype operands, cell_dtype result)
{
    enum { STEPS = 3 };
    cell_gemm_call call = {
        .m = s.m, .n = s.n, .k = s.k, .batch = 2, .alpha = 1, .beta = !s.alone, .fixed = 2
    };
    int64_t bytes = 2 * s.m * s.n * (int64_t)cell_dtype_bytes(result);
    call.a = matrix(operands, s.m, s.k + (s.gap > 0 ? s.gap : 0), s.upright, 3);
    if (s.gap < 0)
        call.a.row_stride = 0;
    call.b = matrix(operands, s.k, s.n, s.across, 3);
    cell_matrix right = matrix(result, s.m, s.n, 0, 3), start = right, own = right;
    start.data = memcpy(malloc((size_t)bytes), right.data, (size_t)bytes);
    own.data = malloc((size_t)bytes);
    call.c = right;
    int ok = cell_host_gemm(NULL, &call, NULL) == CELL_OK;
    call.c = own;
    for (int level = 0; level <= cell_cpu_machine_level(); level++)
        for (int loop = 0; loop < 2; loop++) {
            cell_products products = { 0 };
            int64_t wrong = 0, first = 0;
            if (loop)
                cell_products_loop(&products, 1);
            for (int step = 0; step < STEPS && ok && !wrong; step++) {
                memcpy((void *)(uintptr_t)own.data, start.data, (size_t)bytes);
                ok = cell_cpu_product(&products, &call, level, 2, NULL) == CELL_OK;
                wrong = differences(&own, &right, bytes, &first);
            }
            if (loop)
                cell_products_loop(&products, 0);
            cell_products_free(&products);
            passed += ok && !wrong;
            failed += !ok || wrong;
            if (!ok || wrong)
                printf("FAIL m %d, n %d, k %d, B by %s, %s into %s, level %d, %s: first wrong element %d\n",
                       (int)s.m, (int)s.n, (int)s.k, s.across ? "columns" : "rows", cell_dtype_name(operands),
                       cell_dtype_name(result), level, loop ? "in a loop" : "alone", (int)first);
        }
    free((void *)(uintptr_t)call.a.data), free((void *)(uintptr_t)call.b.data);
    free((void *)(uintptr_t)right.data), free((void *)(uintptr_t)own.data);
    free((void *)(uintptr_t)start.data);
}

int main(void)
{
    /* 4096 columns, 512 terms and 768 rows are a piece (of few bytes a register fewer rows), 6 rows the most
     * that need no panels, with four columns side by side, 512 the most of which each panel is packed where
     * it is used. Rows of A are taken as they lie, in a loop through all terms at once. */
    static const Shape shapes[] = {
        { 1, 1, 1, 0, 0, 0, 0 },      { 6, 65, 31, 0, 0, 0, 0 },     { 7, 47, 17, 1, 0, 1, 0 },
        { 7, 49, 512, 0, 1, 0, 0 },   { 8, 97, 513, 1, 0, 0, 0 },    { 33, 100, 1025, 0, 1, 1, 0 },
        { 65, 24, 40, 1, 1, 0, 0 },   { 1030, 17, 9, 0, 0, 0, 0 },   { 8, 4096, 520, 1, 0, 1, 0 },
        { 8, 4097, 520, 1, 1, 0, 0 }, { 7, 4200, 390, 0, 0, 1, 0 },  { 8, 8200, 385, 1, 0, 0, 0 },
        { 3, 4300, 20, 1, 0, 0, 0 },  { 130, 129, 33, 0, 0, 1, 0 },  { 769, 64, 514, 1, 0, 1, 0 },
        { 774, 70, 515, 0, 1, 0, 0 }, { 500, 300, 514, 1, 0, 1, 0 }, { 512, 257, 20, 0, 1, 0, 0 },
        { 5, 63, 37, 1, 0, 0, 3 },    { 1, 1027, 256, 1, 0, 1, 0 },  { 16, 130, 1030, 0, 0, 0, 5 },
        { 9, 70, 40, 0, 0, 0, -40 },  { 49, 65, 513, 1, 0, 0, 1 },   { 513, 66, 50, 0, 0, 1, 2 },
    };
    static const cell_dtype types[][2] = {
        { CELL_F32, CELL_F32 }, { CELL_F64, CELL_F64 },   { CELL_BF16, CELL_F32 },
        { CELL_F16, CELL_F32 }, { CELL_BF16, CELL_BF16 }, { CELL_F32, CELL_F16 },
    };
    enum { TYPES = sizeof types / sizeof *types };
    /* A shape has two of the types in turn, with FULL=1 all. */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t t = 0; t < TYPES; t++)
            if (getenv("FULL") || t % (TYPES / 2) == i % (TYPES / 2))
                check(shapes[i], types[t][0], types[t][1]);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
