/* roomy.c: which of an instance's two plans a call gets. In: an instance on the emulator (4 multiprocessors) that has a
 * plan for calls with no more blocks than these, or than its clusters have; a call's sizes with so many blocks (4), and with more, of as
 * many steps of sequences or more. Out: verdicts. The
 * reserve tells the plans apart: fewer checkpoints lie in it. Without a context it suffices for either. */
#include <stdio.h>
#include <stdlib.h>

#include "cell.h"
#include "cell_plan.h"

const cell_desc *ladder_instance(void);

static size_t reserve(cell_context *ctx, const char *text)
{
    const cell_desc *d = ladder_instance();
    int64_t sizes[CELL_MAX_SIZES] = { 0 };
    char *s = (char *)text;
    size_t bytes = 0;
    for (int k = 0; k < d->n_sizes && *s; k++, s += *s == ',')
        sizes[k] = strtoll(s, &s, 10);
    if (cell_reserve_bytes(ctx, d, sizes, &bytes) != CELL_OK)
        exit(2);
    return bytes;
}

int main(int argc, char **argv)
{
    cell_context *ctx = NULL;
    char message[512] = "";
    if (argc != 3 || cell_context_create(&ctx, CELL_BACKEND_EMULATED, 0, message, sizeof message) != CELL_OK) {
        fprintf(stderr, "usage: roomy FEW-SIZES MANY-SIZES %s\n", message);
        return 2;
    }
    size_t few = reserve(ctx, argv[1]), many = reserve(ctx, argv[2]);
    int less = few < many / 5 * 4, enough = reserve(NULL, argv[1]) >= few && reserve(NULL, argv[2]) >= many;
    if (!less)
        printf("FAIL a block of few saves as many checkpoints as one of many: %zu and %zu bytes\n", few, many);
    if (!enough)
        printf("FAIL what suffices without a context does not with one\n");
    cell_context_destroy(ctx);
    printf("%d passed, %d failed\n", less + enough, 2 - less - enough);
    return !(less && enough);
}
