/* budget.c: is what `cellc explain --sizes` says of a budget for the reserve what the runtime does? In: an
 * instance, linked in without its kernels; sizes as B,T,dims..., then the bytes that explain names: of a call
 * that computes nothing again, and, where there are such, of one to four passes; before them, as
 * host:BYTES:HOST, the least with states in host memory, and their bytes there. Out: what is wrong. With
 * exactly these bytes a call has the number of passes that explain names, with one less it has more or is too
 * small, and the least that the runtime names is the last. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context.h"
#include "footprint.h"
#include "table_device.h"

const cell_desc *INSTANCE(void);

/* How often steps are computed again with such a budget: 0 to 4, or 5 where it is too small. *bytes: the
 * reserve, or the least. */
static int passes_of(cell_context *ctx, const cell_desc *d, const int64_t *sizes, size_t budget, size_t *bytes)
{
    cell_status status = cell_recompute_bytes(ctx, d, sizes, budget, bytes, NULL);
    const cell_pieces *p = NULL;
    if (status == CELL_TOO_SMALL)
        return 5;
    for (int i = 0; i < CELL_KNOWN_PIECES; i++)
        if (ctx->pieces[i].desc == d && ctx->pieces[i].budget == budget)
            p = &ctx->pieces[i].pieces;
    if (status != CELL_OK || !p)
        return -1;
    if (p->count == 1)
        return 0;
    for (int passes = 1; passes < 5; passes++) {
        double reach = 1; /* pieces that these checkpoints and passes reach */
        for (int i = 1; i <= passes; i++)
            reach = reach * ((double)p->slots + i) / i;
        if (reach >= (double)p->count)
            return passes;
    }
    return -1;
}

/* Are these the least of a reserve beside host memory, and its bytes? */
static int is_offload(cell_context *ctx, const cell_desc *d, const int64_t *sizes, const char *said)
{
    char *end;
    size_t bytes = strtoull(said, &end, 10), host = *end ? strtoull(end + 1, NULL, 10) : 0, reserve, least,
           found;
    int right = cell_offload_bytes(ctx, d, sizes, bytes, &reserve, &found, NULL) == CELL_OK &&
                reserve == bytes && found == host;
    right &=
        cell_offload_bytes(ctx, d, sizes, bytes - 1, &least, NULL, NULL) == CELL_TOO_SMALL && least == bytes;
    if (!right)
        printf("%s: with CELL_OFFLOAD and %zu bytes %zu and %zu in host memory, not %zu; the least is %zu\n",
               d->key, bytes, reserve, found, host, least);
    return right;
}

int main(int argc, char **argv)
{
    const cell_desc *d = INSTANCE();
    char message[512];
    cell_context *ctx;
    int64_t sizes[CELL_MAX_SIZES] = { 0 };
    size_t bytes, last = 0;
    int passed = 0, failed = 0;
    if (argc < 3 || cell_context_create_with(&ctx, &table_device, 0, message, sizeof message) != CELL_OK)
        return 1;
    footprint_sizes(d, argv[1], sizes);
    for (int i = 2; i < argc; i++) { /* each is BYTES or BYTES:PASSES */
        char *end;
        if (strncmp(argv[i], "host:", 5) == 0) {
            int right = is_offload(ctx, d, sizes, argv[i] + 5);
            passed += right, failed += !right;
            continue;
        }
        size_t budget = strtoull(argv[i], &end, 10);
        int passes = *end == ':' ? atoi(end + 1) : 0;
        int now = passes_of(ctx, d, sizes, budget, &bytes), exact = bytes == budget;
        int less = passes_of(ctx, d, sizes, budget - 1, &last);
        int right = now == passes && exact && less > passes;
        passed += right, failed += !right;
        if (!right)
            printf("%s: with %zu bytes %d passes, not %d, of %zu bytes; with one less %d\n", d->key, budget, now,
                   passes, bytes, less);
        if (i + 1 == argc && (less != 5 || last != budget)) {
            printf("%s: the least is %zu bytes, not %zu\n", d->key, last, budget);
            failed++;
        }
    }
    printf("%d passed, %d failed\n", passed, failed);
    cell_context_destroy(ctx);
    return failed > 0;
}
