/* tune.c: the program that `cellc tune` links with each candidate. In: on the command line the sizes as B,T,dims..., then
 * --save FILE or --against FILE; the instance, linked in. Out: as the last line "times FORWARD BOTH" (milliseconds, as
 * CUDA graphs), or "wrong TENSOR ..." where the results are not those of the file, or "failed WHAT". A call that does not
 * end is ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "call.h"
#include "footprint.h"

enum { SECONDS = 300 };

const cell_desc *timed_instance(void);

void call_failed(const char *what, const char *why)
{
    printf("failed %s: %s\n", what, why);
    exit(0);
}

int main(int argc, char **argv)
{
    const cell_desc *d = timed_instance();
    int64_t sizes[CELL_MAX_SIZES] = { 0 };
    cell_context *ctx;
    char message[512];
    Call c;
    if (argc != 4)
        call_failed("usage", "SIZES --save FILE or SIZES --against FILE");
    alarm(SECONDS);
    footprint_sizes(d, argv[1], sizes);
    if (cell_context_create(&ctx, CELL_BACKEND_CUDA, 0, message, sizeof message) != CELL_OK)
        call_failed("the GPU", message);
    call_open(&c, ctx, d, sizes);
    const char *differs = NULL;
    if (strcmp(argv[2], "--save") == 0)
        results_save(&c, argv[3]);
    else
        differs = results_differ(&c, argv[3]);
    if (differs) {
        printf("wrong %s\n", differs);
        return 0;
    }
    call_fill(&c, 1, 0);
    time_open(&c, false);
    float forward = time_median(&c, false, true), both = time_median(&c, true, true);
    printf("times %.5f %.5f\n", forward, both);
    return 0;
}
