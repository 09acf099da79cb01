/* What an address of 32 bits does not reach, and what a module has not, is refused with a sentence, on both
 * backends. Linked with a library that has lstm. Out: what failed, and "N passed, N failed". */
#include <stdio.h>
#include <string.h>

#include "cell_plan.h"
#include "cell_weights.h"
#include "lstm.h"

static int passed, failed;

static void judge(int is, const char *what, const char *said)
{
    is ? passed++ : failed++;
    if (!is)
        printf("FAIL %s: %s\n", what, said);
}

/* Sizes whose tensors have some 2^34 bytes and more; the product of all is 2^32 times a small number. */
static void too_large(cell_context *ctx)
{
    static const int64_t sizes[][5] = {
        { 1 << 16, 1 << 16, 1, 1, 0 }, { 1, 1, 1 << 16, 1 << 16, 0 }, { 1 << 10, 1 << 12, 1, 1 << 10, 0 },
        { 1, 1 << 30, 1, 2, 0 },       { 1 << 20, 1, 1, 1 << 13, 0 },
    };
    const cell_desc *desc = lstm_instance();
    static float x[64];
    void *args[32];
    for (int i = 0; i < 32; i++)
        args[i] = x;
    for (int i = 0; i < 5; i++) {
        char what[64];
        size_t bytes = 0;
        snprintf(what, sizeof what, "sizes %d on %s", i, cell_backend_name(ctx));
        int is_step = i == 1; /* its params alone are too large, and no reserve */
        judge(is_step || cell_reserve_bytes(ctx, desc, sizes[i], &bytes) == CELL_BAD_SIZE, what,
              "its reserve");
        judge(cell_run_forward(ctx, desc, sizes[i], args, NULL, 0) == CELL_BAD_SIZE, what,
              cell_last_error(ctx));
    }
}

int main(void)
{
    static const cell_backend_kind kinds[] = { CELL_BACKEND_CPU, CELL_BACKEND_REFERENCE };
    cell_context *ctx;
    char why[256] = "";
    for (int i = 0; i < 2; i++) {
        if (cell_context_create(&ctx, kinds[i], 0, why, sizeof why) != CELL_OK)
            return puts(why), 1;
        too_large(ctx);
        float number = 1;
        cell_weight weight = { .name = "w", .dtype = CELL_F32, .rank = 1, .shape = { 1 }, .data = &number };
        judge(cell_weights_save(ctx, "w.safetensors", &weight, 1, NULL) == CELL_BACKEND_FAILED &&
                  strstr(cell_last_error(ctx), "cannot write w.safetensors"),
              "a file, where there are none", cell_last_error(ctx));
        judge(cell_weights_load(ctx, "w.safetensors", &weight, 1) == CELL_BACKEND_FAILED, "a file",
              "it was read");
        judge(cell_context_set_threads(ctx, 4) == CELL_OK, "four threads", cell_last_error(ctx));
        cell_context_destroy(ctx);
    }
    judge(cell_context_create_image(&ctx, 0, "", why, sizeof why) == CELL_NO_DEVICE && !ctx &&
              strstr(why, "no GPU"),
          "a GPU's image", why);
    judge(cell_context_create(&ctx, CELL_BACKEND_CUDA, 0, why, sizeof why) == CELL_NO_DEVICE && !ctx, "a GPU",
          why);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
