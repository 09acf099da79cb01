/* The operations of linear_act (y = act(W x + b), three products for all steps) that apply on devices of some capability, at
 * sizes around each threshold: a product of f32, or its copies and products of parts. In: the library. */
#include <dlfcn.h>
#include <string.h>

#include "cell_backend.h"
#include "cell_plan.h"
#include "context.h"
#include "expect.h"
#include "running.h"

enum { SIZES = 5 };                   /* B, T, D, F, t0 */

typedef struct Shape {
    int64_t rows, D, F;
    int forward, backward;            /* the products take parts where the device does */
} Shape;

static const Shape shapes[] = {
    {4096, 1024, 1024, 1, 1},         /* 2^32 terms */
    {4095, 1024, 1024, 0, 0},
    {4096, 4096, 256, 1, 1},          /* the least extents, and results of 2^20 */
    {8192, 8192, 248, 0, 0},
    {256, 4096, 4096, 1, 1},
    {255, 8192, 4096, 0, 0},
    {8192, 1024, 1032, 1, 1},         /* rows of operands are multiples of 8: forward's have D elements */
    {8192, 1024, 1028, 1, 0},
    {8192, 1028, 1024, 0, 0},
    {1, 1, 1, 0, 0},
    {0, 1024, 1024, 0, 0},
};

typedef struct Device { int64_t capability; int takes; } Device;

static const Device devices[] = {{70, 0}, {75, 0}, {80, 1}, {86, 0}, {89, 0}, {90, 1}, {100, 1}, {103, 1}, {110, 0}, {120, 0}};

static int64_t capability;

static int64_t attribute(void *self, int which) {
    (void)self;
    return which == CELL_ATTR_CAPABILITY ? capability : 1 << 20;
}

/* -1: of what has no condition of parts. */
static int wanted(const char *name, int takes) {
    if (strstr(name, "parts") || strcmp(name, "pieces of k") == 0)
        return takes;
    return strcmp(name, "d_x") == 0 || strcmp(name, "d_W") == 0 || strcmp(name, "p") == 0 ? !takes : -1;
}

static void check_plan(const cell_plan *plan, cell_scope *scope, int takes, const Shape *shape) {
    int with = 0, without = 0;
    char runs[CELL_MAX_BUFFERS];
    scope->plan = plan;
    scope->before = plan->n_ops;
    find_running(scope, 0, plan->n_ops, 1, runs);
    for (int i = 0; i < plan->n_ops; i++) {
        const cell_op *op = &plan->ops[i];
        int want = wanted(op->name, takes);
        if (want < 0 || op->kind == CELL_OP_FORMS)
            continue;
        EXPECT(runs[i] == want, "%s: %d at capability %lld, %lld x %lld x %lld", op->name, runs[i], (long long)capability,
               (long long)shape->rows, (long long)shape->D, (long long)shape->F);
        with += runs[i];
        without += !runs[i];
    }
    EXPECT(with > 0 && without > 0, "%d and %d operations with conditions", with, without);
}

/* One large enough product does not make others large: d_W has D * F elements, y and d_x have rows * F and rows * D. */
static void small_result(const cell_plan *plan, cell_scope *scope) {
    static const int64_t sizes[SIZES] = {65536, 1, 512, 1024, 0};
    scope->sizes = sizes;
    capability = 90;
    int found = 0;
    char runs[CELL_MAX_BUFFERS];
    scope->plan = plan;
    scope->before = plan->n_ops;
    find_running(scope, 0, plan->n_ops, 1, runs);
    for (int i = 0; i < plan->n_ops; i++) {
        const char *name = plan->ops[i].name;
        int x = strcmp(name, "d_x of parts") == 0, w = strcmp(name, "d_W of parts") == 0;
        if (!x && !w)
            continue;
        found |= x | w << 1;
        EXPECT(runs[i] == x, "%s: %d", name, runs[i]);
    }
    EXPECT(found == 3, "%d", found);
}

int main(int argc, char **argv) {
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    const cell_desc *(*instance)(void) = NULL;
    if (library)
        *(void **)&instance = dlsym(library, "linear_act_instance");
    if (!instance) {
        printf("%s\n0 passed, 1 failed\n", argc > 1 ? dlerror() : "no library");
        return 1;
    }
    const cell_desc *desc = instance();
    cell_backend backend = {.name = "numbers", .attribute = attribute};
    cell_context ctx = {.backend = &backend};
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            int64_t sizes[SIZES] = {shapes[s].rows, 1, shapes[s].D, shapes[s].F, 0};
            cell_scope scope = {.sizes = sizes, .n_sizes = SIZES, .saving = 1, .ctx = &ctx, .desc = desc};
            capability = devices[d].capability;
            check_plan(desc->forward, &scope, devices[d].takes && shapes[s].forward, &shapes[s]);
            check_plan(desc->backward, &scope, devices[d].takes && shapes[s].backward, &shapes[s]);
        }
    cell_scope scope = {.n_sizes = SIZES, .saving = 1, .ctx = &ctx, .desc = desc};
    small_result(desc->backward, &scope);
    return report();
}
