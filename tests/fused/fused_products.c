/* The operations of linear_act (y = act(W x + b)) in bf16 that apply, at sizes around each threshold, on devices that hold so many
 * blocks at once of the kernels that make a product and what is computed next to it: forward that kernel, or a product and a kernel
 * for y; backward that kernel, or one of two for d_u and a product. In: the form of --products, and the library. */
#include <dlfcn.h>
#include <string.h>

#include "cell_backend.h"
#include "cell_plan.h"
#include "context.h"
#include "expect.h"
#include "running.h"

enum { SIZES = 5, AUTO = 0, FUSED, PLAIN };       /* B, T, D, F, t0 */

typedef struct Shape {
    int64_t rows, D, F;
    int in_auto, in_fused;            /* one kernel forward, of so many multiprocessors as an H200 has */
    int back_auto, back_fused;        /* and backward, where the product has F terms and rows of D */
} Shape;

static const Shape shapes[] = {
    {8192, 4096, 4096, 1, 1, 1, 1},
    {8192, 1024, 4096, 1, 1, 0, 1},   /* the least depth forward; 256 tiles backward */
    {8192, 1016, 4096, 0, 1, 0, 1},
    {8192, 4096, 1024, 0, 1, 1, 1},
    {8192, 2960, 1024, 0, 1, 1, 1},   /* the least columns backward */
    {8192, 2952, 1024, 0, 1, 0, 1},
    {4224, 1024, 4096, 1, 1, 0, 1},   /* 528 tiles of 128 x 256, four for each multiprocessor */
    {4096, 1024, 4096, 0, 1, 0, 1},   /* 512 */
    {4225, 1024, 4096, 0, 1, 0, 1},   /* 544, of whose five rounds the last is nearly idle */
    {4864, 1024, 4096, 1, 1, 0, 1},   /* 608 of 660: less than a tenth is */
    {4608, 1024, 4096, 0, 1, 0, 1},   /* 576 of 660 */
    {8192, 4100, 4096, 0, 0, 0, 0},   /* rows of operands that are no multiples of 16 bytes */
    {8192, 4096, 4100, 0, 0, 0, 0},
    {8192, 4096, 4104, 1, 1, 1, 1},
    {1, 8, 8, 0, 1, 0, 1},
    {1, 0, 8, 0, 0, 0, 0},
    {8192, 0, 4096, 0, 0, 0, 0},
    {0, 4096, 4096, 0, 0, 0, 0},
    {4194304, 4096, 1024, 1, 1, 1, 1},
    {4194305, 4096, 1024, 1, 1, 0, 0}, /* more rows than there are counters for */
};

static int64_t held;                  /* blocks of the kernel on the device at once */

static int64_t attribute(void *self, int which) {
    (void)self;
    return which == CELL_ATTR_SM_COUNT ? 132
        : which == CELL_ATTR_CAPABILITY ? 90
        : which == CELL_ATTR_PRODUCTS_OF_8 ? 1 : 232448;
}

static cell_status resident(void *self, const cell_kernel *kernel, size_t smem, int64_t *blocks, cell_error *err) {
    (void)self, (void)err;
    EXPECT((strstr(kernel->name, "fused") || strstr(kernel->name, "ahead")) && smem > 0, "%s is asked for", kernel->name);
    *blocks = held;
    return CELL_OK;
}

static int64_t value(const cell_scope *scope, cell_expr expr) {
    int64_t v = 1;
    cell_error err = {""};
    cell_status status = cell_eval_in(scope, expr, 1, &v, &err);
    EXPECT(status == CELL_OK, "%s", err.text);
    return v;
}

static void find_ops(const cell_plan *plan, cell_scope *scope, char *runs) {
    scope->plan = plan;
    scope->before = plan->n_ops;
    find_running(scope, 0, plan->n_ops, 1, runs);
}

/* One kernel, where sizes and device are such, else a product and one other kernel; of columns' sums there is always one. */
static void check_plan(const cell_plan *plan, cell_scope *scope, int fused, const Shape *shape, int form) {
    int kernels = 0, products = 0, others = 0;
    char runs[CELL_MAX_BUFFERS];
    find_ops(plan, scope, runs);
    for (int i = 0; i < plan->n_ops; i++) {
        const cell_op *op = &plan->ops[i];
        int one = op->kind == CELL_OP_KERNEL && (strstr(op->name, "_fused") || strstr(op->name, "_ahead")), when = runs[i];
        if (one && when) {
            int64_t grid = value(scope, op->u.kernel.grid[0]);
            EXPECT(grid > 0 && grid <= held, "%lld blocks of %lld", (long long)grid, (long long)held);
        }
        kernels += one && when;
        products += op->kind == CELL_OP_GEMM && strcmp(op->name, "d_W") != 0 && when;
        others += op->kind == CELL_OP_KERNEL && !one && !strstr(op->name, "_after_") && when;
        if (op->kind == CELL_OP_FILL)
            EXPECT(when == fused, "%s", op->name);
    }
    EXPECT(kernels == fused && products == !fused && others == !fused, "%d, %d and %d: %lld x %lld x %lld, form %d, %lld held", kernels,
           products, others, (long long)shape->rows, (long long)shape->D, (long long)shape->F, form, (long long)held);
}

/* The kernel behind reads so many rows of partial sums as were left. */
static void check_sums(const cell_plan *plan, cell_scope *scope, int fused) {
    int64_t left = 0, read = 0;
    char runs[CELL_MAX_BUFFERS];
    find_ops(plan, scope, runs);
    for (int i = 0; i < plan->n_ops; i++) {
        const cell_op *op = &plan->ops[i];
        if (op->kind != CELL_OP_KERNEL || !runs[i])
            continue;
        if (strstr(op->name, "_after_"))
            read = op->u.kernel.t ? value(scope, op->u.kernel.t) : -1;
        else
            left = value(scope, fused ? op->u.kernel.t : op->u.kernel.grid[0]);
    }
    EXPECT(left > 0 && (read == left || read == -1), "%lld rows left, %lld read", (long long)left, (long long)read);
}

int main(int argc, char **argv) {
    cell_backend backend = {.name = "numbers", .attribute = attribute, .resident = resident};
    cell_context ctx = {.backend = &backend};
    const cell_desc *(*instance)(void) = NULL;
    void *library = argc > 2 ? dlopen(argv[2], RTLD_NOW) : NULL;
    if (library)
        *(void **)&instance = dlsym(library, "linear_act_instance");
    if (!instance) {
        printf("%s\n0 passed, 1 failed\n", argc > 2 ? dlerror() : "no library");
        return 1;
    }
    int form = strcmp(argv[1], "auto") == 0 ? AUTO : strcmp(argv[1], "fused") == 0 ? FUSED : PLAIN;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (held = 0; held <= 132; held += 132) {
            const Shape *x = &shapes[s];
            int64_t sizes[SIZES] = {x->rows, 1, x->D, x->F, 0};
            cell_scope scope = {.sizes = sizes, .n_sizes = SIZES, .saving = 1, .ctx = &ctx, .desc = instance()};
            int forward = held && (form == AUTO ? x->in_auto : form == FUSED && x->in_fused);
            int backward = held && (form == AUTO ? x->back_auto : form == FUSED && x->back_fused);
            check_plan(instance()->forward, &scope, forward, x, form);
            check_plan(instance()->backward, &scope, backward, x, form);
            check_sums(instance()->backward, &scope, backward);
        }
    return report();
}
