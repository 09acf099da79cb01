/* memory.c: what memory one generated instance needs in training on an H200, computed on a machine without one. In: the
 * instance's description, linked in without its kernels; a label and sizes as B,T,dims... on the command line. Out: one
 * JSON object a line, and with -b behind it the buffers of workspace and reserve as the plans print them. The device is a table of
 * three attributes; how many of a kernel's blocks it holds is counted from threads and shared memory alone, since
 * registers are known to the GPU's compiler only: an upper bound, which only the number of partial sums depends on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cell_backend.h"
#include "footprint.h"

const cell_desc *INSTANCE(void);

enum { SM_COUNT = 132, SMEM_BLOCK = 232448, SMEM_SM = 233472, SMEM_OF_A_BLOCK = 1024, THREADS_SM = 2048, BLOCKS_SM = 32 };

static cell_status create(void **self, int device, cell_error *err)
{
    (void)device, (void)err;
    *self = NULL;
    return CELL_OK;
}

static void destroy(void *self)
{
    (void)self;
}

static cell_status sync(void *self, cell_error *err)
{
    (void)self, (void)err;
    return CELL_OK;
}

static cell_status launch(void *self, const cell_launch *what, cell_error *err)
{
    (void)self, (void)what;
    return cell_fail(err, CELL_UNSUPPORTED, "this device is a table of sizes");
}

static int64_t attribute(void *self, int which)
{
    (void)self;
    return which == CELL_ATTR_SM_COUNT ? SM_COUNT : which == CELL_ATTR_SMEM_MAX ? SMEM_BLOCK : 90;
}

static cell_status resident(void *self, const cell_kernel *kernel, size_t smem, int64_t *blocks, cell_error *err)
{
    (void)self, (void)err;
    int64_t each = THREADS_SM / (kernel->threads ? kernel->threads : 1), room = SMEM_SM / ((int64_t)smem + SMEM_OF_A_BLOCK);
    each = each < room ? each : room;
    *blocks = SM_COUNT * (each < BLOCKS_SM ? each : BLOCKS_SM);
    return CELL_OK;
}

static int report(cell_context *ctx, const cell_desc *d, const char *label, const int64_t *sizes)
{
    Footprint f;
    if (footprint(ctx, d, sizes, &f) != CELL_OK) {
        fprintf(stderr, "%s: %s\n", label, cell_last_error(ctx));
        return 1;
    }
    printf("{\"workload\": \"%s\", \"instance\": \"%s\", \"sizes\": [", label, d->key);
    for (int i = 0; i < d->n_sizes; i++)
        printf("%s%lld", i ? ", " : "", (long long)sizes[i]);
    printf("], ");
    footprint_print(&f);
    printf("}\n");
    return 0;
}

/* Those of a MiB or more. all: the list is the reserve's, where every buffer counts. */
static void print_buffers(const cell_desc *d, const char *plan_name, const cell_buffer *list, int n, int all,
                          const int64_t *sizes)
{
    for (int i = 0; i < n; i++) {
        int64_t bytes = 0;
        int here = all || list[i].origin == CELL_FROM_WORKSPACE || list[i].origin == CELL_FROM_ARG_OR_WORKSPACE ||
                   list[i].origin == CELL_FROM_RESERVE_OR_WORKSPACE;
        if (here && cell_eval(list[i].bytes, sizes, d->n_sizes, &bytes) == CELL_OK && bytes >= 1 << 20)
            printf("    %-9s %-32s %10.1f MiB\n", plan_name, list[i].name, (double)bytes / (1 << 20));
    }
}

int main(int argc, char **argv)
{
    static const cell_backend device = { .name = "table", .kind = CELL_BACKEND_CUDA, .create = create, .destroy = destroy,
                                         .sync = sync, .launch = launch, .attribute = attribute,
                                         .resident = resident };
    const cell_desc *d = INSTANCE();
    char message[512];
    cell_context *ctx;
    int failed = 0, buffers = argc > 1 && strcmp(argv[1], "-b") == 0;
    if (cell_context_create_with(&ctx, &device, 0, message, sizeof message) != CELL_OK) {
        fprintf(stderr, "%s\n", message);
        return 1;
    }
    for (int i = 1 + buffers; i + 1 < argc; i += 2) {
        int64_t sizes[CELL_MAX_SIZES] = { 0 };
        char *s = argv[i + 1];
        for (int k = 0; k < d->n_sizes && *s; k++, s += *s == ',')
            sizes[k] = strtoll(s, &s, 10);
        failed |= report(ctx, d, argv[i], sizes);
        if (!buffers)
            continue;
        print_buffers(d, "reserve", d->reserve, d->n_reserve, 1, sizes);
        print_buffers(d, "forward", d->forward->buffers, d->forward->n_buffers, 0, sizes);
        if (d->backward)
            print_buffers(d, "backward", d->backward->buffers, d->backward->n_buffers, 0, sizes);
    }
    cell_context_destroy(ctx);
    return failed;
}
