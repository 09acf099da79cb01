/* Products that go together (CELL_OP_PRODUCTS). In: nothing; plans of random products over one buffer, among
 * them forms, lists and fills, on a backend that computes where the pointers say and counts what it is asked
 * for. Out: the same bytes as one by one, in so few calls as there are different sizes; and what is wrong
 * with a plan is said. */
#include <stdlib.h>
#include <string.h>

#include "cell_backend.h"
#include "cell_plan.h"
#include "context.h"
#include "expect.h"
#include "run.h"

enum { FLOATS = 4096, MOST = 40 };

static const int64_t one[] = {CELL_X_PUSH, 1, CELL_X_END}, zero[] = {CELL_X_PUSH, 0, CELL_X_END};
static int64_t numbers[FLOATS + 1][3];
static int products, batches, in_batches, launches;

static cell_expr number(int n) {
    numbers[n][0] = CELL_X_PUSH, numbers[n][1] = n, numbers[n][2] = CELL_X_END;
    return numbers[n];
}

static cell_status gemm(void *self, const cell_gemm_call *call, cell_error *err) {
    (void)self;
    products++;
    cell_status status = cell_gemm_check(call, err);
    for (int64_t i = 0; status == CELL_OK && i < call->m; i++)
        for (int64_t j = 0; j < call->n; j++) {
            const float *a = (const float *)call->a.data + i * call->a.row_stride;
            const float *b = (const float *)call->b.data + j * call->b.col_stride;
            float *c = (float *)call->c.data + i * call->c.row_stride + j * call->c.col_stride, sum = 0;
            for (int64_t k = 0; k < call->k; k++)
                sum += a[k * call->a.col_stride] * b[k * call->b.row_stride];
            *c = (float)call->alpha * sum + (call->beta != 0 ? (float)call->beta * *c : 0);
        }
    return status;
}

static cell_status gemms(void *self, const cell_gemm_call *calls, int n, void *const *places, cell_error *err) {
    batches++;
    in_batches += n;
    for (int i = 0; i < n; i++) {
        cell_gemm_call call = calls[0];
        call.a.data = places[i], call.b.data = places[n + i], call.c.data = places[2 * n + i];
        EXPECT(calls[i].a.data == call.a.data && calls[i].b.data == call.b.data && calls[i].c.data == call.c.data,
               "product %d of %d is elsewhere", i, n);
        cell_status status = gemm(self, &call, err);
        products--;
        if (status != CELL_OK)
            return status;
    }
    return CELL_OK;
}

/* What cell_places does on a device. */
static cell_status launch(void *self, const cell_launch *launch, cell_error *err) {
    (void)self, (void)err;
    launches++;
    memcpy(launch->args->ptr[0], launch->args->ptr + 1, (size_t)launch->args->t * sizeof(void *));
    return CELL_OK;
}

static cell_status fill(void *self, void *to, int byte, size_t bytes, cell_error *err) {
    (void)self, (void)err;
    memset(to, byte, bytes);
    return CELL_OK;
}

/* m by k times k by m at these elements of the buffer; rows of A and C have neighbours. */
static cell_op product(int m, int k, int a, int b, int c, cell_beta beta) {
    return (cell_op){.name = "product",
                     .kind = CELL_OP_GEMM,
                     .u.gemm = {.m = number(m), .n = number(m), .k = number(k), .alpha = 1, .beta = beta,
                                .a = {{0, number(a)}, number(k), one, NULL},
                                .b = {{0, number(b)}, number(m), one, NULL},
                                .c = {{0, number(c)}, number(m), one, NULL}}};
}

static cell_op holds(cell_op_kind kind, int n_ops, cell_expr when) {
    cell_op op = {.name = "holds", .kind = (uint8_t)kind, .when = when};
    if (kind == CELL_OP_PRODUCTS)
        op.u.products = (cell_products_op){.n_ops = n_ops, .together = when, .places = {1, NULL}};
    else
        op.u.list.n_ops = n_ops;
    op.when = kind == CELL_OP_PRODUCTS ? NULL : when;
    return op;
}

static cell_op clear(int at, int n) {
    return (cell_op){.name = "clear", .kind = CELL_OP_FILL, .u.memory = {.to = {0, number(at)}, .bytes = number(4 * n)}};
}

typedef struct Memory {
    _Alignas(64) float numbers[FLOATS];
    void *places[3 * CELL_MAX_TOGETHER];
} Memory;

static Memory memory;

static cell_status run_plan(cell_op *ops, int n, cell_expr together, int can, int64_t room, cell_error *err) {
    static const cell_buffer buffers[] = {{"b", CELL_FROM_WORKSPACE, CELL_F32, 0, NULL},
                                          {"places", CELL_FROM_WORKSPACE, CELL_I32, 0, NULL}};
    static const cell_kernel kernels[] = {{.name = "places", .threads = 96}};
    static cell_run run;
    cell_backend backend = {.name = "counts", .gemm = gemm, .gemms = can ? gemms : NULL, .launch = launch, .fill = fill};
    cell_context ctx = {.backend = &backend};
    cell_desc desc = {.key = "products", .kernels = kernels, .n_kernels = 1};
    cell_plan plan = {buffers, ops, 2, n};
    for (int i = 0; i < n; i++)
        if (ops[i].kind == CELL_OP_PRODUCTS)
            ops[i].u.products.together = together;
    memset(&run, 0, sizeof run);
    run.ctx = &ctx, run.desc = &desc, run.plan = &plan, run.err = err;
    run.base[0] = memory.numbers, run.bytes[0] = sizeof memory.numbers;
    run.base[1] = memory.places, run.bytes[1] = room;
    for (int i = 0; i < FLOATS; i++)
        memory.numbers[i] = (float)((i * 2654435761u) % 1000) / 500 - 1;
    products = batches = in_batches = launches = 0;
    return cell_run_ops(&run, 0, n);
}

/* The same whether they go together, one by one, or on a backend that has no batches. */
static void expect_same(cell_op *ops, int n, int alone, int in, int calls) {
    static Memory want;
    cell_error err = {""};
    EXPECT(run_plan(ops, n, zero, 1, sizeof memory.places, &err) == CELL_OK, "%s", err.text);
    EXPECT(products == alone + in && batches == 0 && launches == 0, "%d products, %d batches", products, batches);
    want = memory;
    EXPECT(run_plan(ops, n, one, 0, sizeof memory.places, &err) == CELL_OK, "%s", err.text);
    EXPECT(memcmp(want.numbers, memory.numbers, sizeof want.numbers) == 0, "other values without batches");
    EXPECT(run_plan(ops, n, one, 1, sizeof memory.places, &err) == CELL_OK, "%s", err.text);
    EXPECT(memcmp(want.numbers, memory.numbers, sizeof want.numbers) == 0, "other values together");
    EXPECT(products == alone && in_batches == in && batches == calls && launches == (calls > 0),
           "%d alone for %d, %d in %d batches for %d in %d, %d launches", products, alone, in_batches, batches, in,
           calls, launches);
}

static void batch(void) {
    cell_op ops[] = {
        holds(CELL_OP_PRODUCTS, 13, one),
        product(4, 8, 0, 64, 1024, CELL_BETA_ZERO),
        product(4, 4, 128, 192, 1088, CELL_BETA_ZERO),  /* another depth */
        product(4, 8, 32, 96, 1152, CELL_BETA_ZERO),
        product(4, 4, 256, 320, 1216, CELL_BETA_ZERO),
        clear(1280, 16),                                /* comes before the product that is added there */
        product(4, 8, 0, 96, 1280, CELL_BETA_ONE),      /* another factor */
        product(4, 8, 8, 72, 1346, CELL_BETA_ZERO),     /* C begins at no vector */
        holds(CELL_OP_FORMS, 4, NULL),
        holds(CELL_OP_LIST, 2, zero),
        product(8, 8, 0, 64, 2048, CELL_BETA_ZERO),
        product(8, 8, 0, 64, 2112, CELL_BETA_ZERO),
        product(4, 8, 16, 80, 1408, CELL_BETA_ZERO),    /* the form that is taken */
        product(4, 0, 0, 64, 1472, CELL_BETA_ZERO),     /* nothing to add up */
        product(4, 4, 1024, 1088, 1536, CELL_BETA_ZERO) /* behind them, of what they gave */
    };
    expect_same(ops, sizeof ops / sizeof *ops, 4, 5, 2);
    ops[9].when = one; /* the list: at once, and its products by themselves */
    expect_same(ops, sizeof ops / sizeof *ops, 6, 4, 2);
}

static void in_a_loop(void) {
    static const int64_t at[] = {CELL_X_LOOPVAR, 0, CELL_X_PUSH, 64, CELL_X_MUL, CELL_X_PUSH, 2048, CELL_X_ADD, CELL_X_END};
    cell_op ops[] = {{.name = "loop", .kind = CELL_OP_LOOP, .u.loop = {.from = zero, .to = number(5), .step = 1, .n_ops = 3}},
                     holds(CELL_OP_PRODUCTS, 2, one),
                     product(4, 8, 0, 64, 2048, CELL_BETA_ZERO),
                     product(4, 8, 32, 96, 3072, CELL_BETA_ONE)};
    ops[3].u.gemm.beta = CELL_BETA_ZERO;
    ops[2].u.gemm.c.at.offset = at;
    cell_error err = {""};
    EXPECT(run_plan(ops, 4, one, 1, sizeof memory.places, &err) == CELL_OK, "%s", err.text);
    EXPECT(batches == 5 && launches == 5 && products == 0, "%d batches, %d launches", batches, launches);
}

static void expect_wrong(cell_op *ops, int n, int64_t room, const char *what) {
    cell_error err = {""};
    EXPECT(run_plan(ops, n, one, 1, room, &err) != CELL_OK && strstr(err.text, what), "'%s', not '%s'", err.text, what);
    EXPECT(batches == 0, "%d batches were made", batches);
}

static void wrong_plans(void) {
    cell_op two[] = {holds(CELL_OP_PRODUCTS, 2, one), product(4, 8, 0, 64, 1024, CELL_BETA_ZERO),
                     product(4, 8, 32, 96, 1152, CELL_BETA_ZERO)};
    expect_wrong(two, 3, 5 * (int64_t)sizeof(void *), "places that leave their buffer");
    two[0].u.products.kernel = 1;
    expect_wrong(two, 3, sizeof memory.places, "no such kernel");
    two[0].u.products.kernel = 0;
    two[0].u.products.n_ops = 7;
    expect_wrong(two, 3, sizeof memory.places, "longer than the plan");
    two[0].u.products.n_ops = 2;
    two[2].u.gemm.c.at.offset = number(FLOATS);
    expect_wrong(two, 3, sizeof memory.places, "leaves its buffer");
    cell_op many[MOST] = {holds(CELL_OP_PRODUCTS, CELL_MAX_TOGETHER + 1, one)};
    for (int i = 0; i <= CELL_MAX_TOGETHER; i++)
        many[1 + i] = product(4, 4, 16 * i, 0, 1024 + 16 * i, CELL_BETA_ZERO);
    expect_wrong(many, CELL_MAX_TOGETHER + 2, sizeof memory.places, "too many products together");
    many[0].u.products.n_ops = CELL_MAX_TOGETHER;
    expect_same(many, CELL_MAX_TOGETHER + 1, 0, CELL_MAX_TOGETHER, 1);
}

int main(void) {
    batch();
    in_a_loop();
    wrong_plans();
    return report();
}
