/* memory.c: what memory one generated instance needs in training on an H200, computed on a machine without
 * one (table_device.h). In: the instance's description, linked in without its kernels; labels and sizes as
 * B,T,dims... on the command line. Out: one JSON object a line, and with -b behind it the large buffers of
 * workspace and reserve in MiB, and which of the reserve backward never reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "footprint.h"
#include "table_device.h"

const cell_desc *INSTANCE(void);

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

static int names(const cell_op *op, int buffer)
{
    const cell_gemm_op *g = &op->u.gemm;
    if (op->kind == CELL_OP_GEMM)
        return g->a.at.buffer == buffer || g->b.at.buffer == buffer || g->c.at.buffer == buffer;
    if (op->kind == CELL_OP_FILL || op->kind == CELL_OP_COPY)
        return op->u.memory.to.buffer == buffer || (op->kind == CELL_OP_COPY && op->u.memory.from.buffer == buffer);
    for (int i = 0; op->kind == CELL_OP_KERNEL && i < op->u.kernel.n_refs; i++)
        if (op->u.kernel.refs[i].buffer == buffer)
            return 1;
    return 0;
}

/* Does an operation of backward name what forward saved there? */
static int read_back(const cell_desc *d, int saved)
{
    const cell_plan *plan = d->backward;
    for (int i = 0; plan && i < plan->n_buffers; i++)
        if (plan->buffers[i].origin == CELL_FROM_RESERVE && plan->buffers[i].index == saved)
            for (int k = 0; k < plan->n_ops; k++)
                if (names(&plan->ops[k], i))
                    return 1;
    return 0;
}

/* Those of a MiB or more. plan: NULL for the reserve. */
static void print_buffers(const cell_desc *d, const cell_plan *plan, const char *name, const int64_t *sizes)
{
    const cell_buffer *list = plan ? plan->buffers : d->reserve;
    for (int i = 0; i < (plan ? plan->n_buffers : d->n_reserve); i++) {
        int64_t bytes = 0;
        int here = !plan || list[i].origin == CELL_FROM_WORKSPACE || list[i].origin == CELL_FROM_ARG_OR_WORKSPACE ||
                   list[i].origin == CELL_FROM_RESERVE_OR_WORKSPACE;
        if (here && cell_eval(list[i].bytes, sizes, d->n_sizes, &bytes) == CELL_OK && bytes >= 1 << 20)
            printf("    %-9s %-32s %10.1f%s\n", name, list[i].name, (double)bytes / (1 << 20),
                   plan || read_back(d, i) ? "" : "   never read by backward");
    }
}

int main(int argc, char **argv)
{
    const cell_desc *d = INSTANCE();
    char message[512];
    cell_context *ctx;
    int failed = 0, buffers = argc > 1 && strcmp(argv[1], "-b") == 0;
    if (cell_context_create_with(&ctx, &table_device, 0, message, sizeof message) != CELL_OK) {
        fprintf(stderr, "%s\n", message);
        return 1;
    }
    for (int i = 1 + buffers; i + 1 < argc; i += 2) {
        int64_t sizes[CELL_MAX_SIZES] = { 0 };
        footprint_sizes(d, argv[i + 1], sizes);
        failed |= report(ctx, d, argv[i], sizes);
        if (!buffers)
            continue;
        print_buffers(d, NULL, "reserve", sizes);
        print_buffers(d, d->forward, "forward", sizes);
        if (d->backward)
            print_buffers(d, d->backward, "backward", sizes);
    }
    cell_context_destroy(ctx);
    return failed;
}
