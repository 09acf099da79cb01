/* crowded.c: which calls get the walks for many blocks. In: an instance on the emulator (4 multiprocessors) that has such walks, FORWARD or
 * BOTH for the directions in which they are others than those of any call; a call's sizes with as many blocks as are not many (12), and with
 * one more. Out: verdicts: the second call launches them, forward and backward, and the first one launches none. */
#include "cell_backend.h"
#include "zeros.h"

static int walks, crowded;

static cell_status launch(void *self, const cell_launch *l, cell_error *err)
{
    const char *name = l->kernel->name, *end = strstr(name, "_crowded");
    walks += strstr(name, "_walk") != NULL;
    crowded += end && !end[strlen("_crowded")];
    return cell_emulated_backend()->launch(self, l, err);
}

int main(int argc, char **argv)
{
    cell_backend spy = *cell_emulated_backend();
    cell_context *ctx = NULL;
    int passed = 0, both = argc > 1 && strcmp(argv[1], "BOTH") == 0;
    spy.launch = launch;
    if (argc != 4 || cell_context_create_with(&ctx, &spy, 0, NULL, 0) != CELL_OK) {
        fprintf(stderr, "usage: crowded FORWARD|BOTH NOT-MANY-SIZES MANY-SIZES\n");
        return 2;
    }
    for (int many = 0; many < 2; many++) {
        Zeros z;
        int want[] = { many, many && both };
        for (int back = 0; back < 2; back++) {
            walks = crowded = 0;
            if (back)
                must(ctx, cell_run_backward(ctx, ladder_instance(), z.sizes, z.backward, &z.memory, 0));
            else
                zeros_forward(&z, ctx, argv[2 + many]);
            int ok = walks == 1 && crowded == want[back];
            passed += ok;
            if (!ok)
                printf("FAIL %s of %s: %d walks, %d of them for many blocks, not %d\n", back ? "backward" : "forward",
                       argv[2 + many], walks, crowded, want[back]);
        }
    }
    cell_context_destroy(ctx);
    printf("%d passed, %d failed\n", passed, 4 - passed);
    return passed != 4;
}
