/* results.c: what `cellc tune` does to tell whether a candidate is right, on any backend. In: sizes as B,T,dims..., --save
 * or --against with a file. Out: "saved", "same", or which tensor differs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../bench/call.h"
#include "../../bench/footprint.h"

const cell_desc *ladder_instance(void);

void call_failed(const char *what, const char *why)
{
    printf("failed %s: %s\n", what, why);
    exit(1);
}

int main(int argc, char **argv)
{
    const cell_desc *d = ladder_instance();
    int64_t sizes[CELL_MAX_SIZES] = { 0 };
    cell_context *ctx;
    char message[512];
    Call c;
    if (argc != 4)
        call_failed("usage", "SIZES --save|--against FILE");
    footprint_sizes(d, argv[1], sizes);
    if (cell_context_create(&ctx, CELL_BACKEND_AUTO, 0, message, sizeof message) != CELL_OK)
        call_failed("the backend", message);
    call_open(&c, ctx, d, sizes);
    if (strcmp(argv[2], "--save") == 0) {
        results_save(&c, argv[3]);
        printf("saved\n");
    } else {
        const char *differs = results_differ(&c, argv[3]);
        printf("%s\n", differs ? differs : "same");
    }
    call_close(&c);
    cell_context_destroy(ctx);
    return 0;
}
