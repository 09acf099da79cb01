/* What a program does with a file of weights, for weights.py. weights save FILE           writes known
 * tensors and texts weights load FILE TYPE      fills tensors "a" [2,3] of TYPE and "b.c" [] of f32 and
 * prints them; a failure prints its message and whether any of them was written weights text FILE KEY
 * prints the text of a key weights cell FILE           saves the params of a description and loads them
 * again, and prints their names Ends with 0, and 1 after a message. */
#include "cell_plan.h"
#include "cell_weights.h"
#include "half.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(cell_context *ctx)
{
    puts(cell_last_error(ctx));
    cell_context_destroy(ctx);
    return 1;
}

static int save(cell_context *ctx, const char *path)
{
    float a[6] = { 0, -1.5f, 3, 1e-30f, 1e30f, -0.0f }, scalar = 7;
    uint16_t halves[2] = { cell_f32_to_bf16(1.0f), cell_f32_to_bf16(-2.0f) };
    double wide = 1.0 / 3;
    int32_t places[3] = { 1, -2, 3 };
    cell_weight list[] = {
        { .name = "a", .dtype = CELL_F32, .rank = 2, .shape = { 2, 3 }, .data = a },
        { .name = "quote\" and \\ \n \303\244",
          .dtype = CELL_BF16,
          .rank = 1,
          .shape = { 2 },
          .data = halves },
        { .name = "b.c", .dtype = CELL_F32, .data = &scalar },
        { .name = "wide", .dtype = CELL_F64, .rank = 1, .shape = { 1 }, .data = &wide },
        { .name = "none", .dtype = CELL_F32, .rank = 2, .shape = { 0, 4 } },
        { .name = "places", .dtype = CELL_I32, .rank = 1, .shape = { 3 }, .data = places },
    };
    const char *texts[] = { "spec", "1234", "who\"", "a\\b", NULL };
    return cell_weights_save(ctx, path, list, 6, texts) != CELL_OK ? fail(ctx) : 0;
}

static cell_dtype type_of(const char *word)
{
    int dtype = CELL_F32;
    while (dtype < CELL_BOOL && strcmp(cell_dtype_name((cell_dtype)dtype), word) != 0)
        dtype++;
    return (cell_dtype)dtype;
}

static double number(const void *from, int i, cell_dtype dtype)
{
    return dtype == CELL_F64    ? ((const double *)from)[i]
           : dtype == CELL_BF16 ? cell_bf16_to_f32(((const uint16_t *)from)[i])
           : dtype == CELL_F16  ? cell_f16_to_f32(((const uint16_t *)from)[i])
           : dtype == CELL_I32  ? ((const int32_t *)from)[i]
                                : ((const float *)from)[i];
}

/* The file's bytes, in memory of just their size; NULL: it cannot be read. The caller frees them. */
static void *bytes_of(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    long end = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    char *bytes = end >= 0 ? malloc((size_t)end + !end) : NULL;
    if (!file)
        return NULL;
    rewind(file);
    *n = bytes ? fread(bytes, 1, (size_t)end, file) : 0;
    fclose(file);
    return bytes;
}

/* Does the file in memory load as the one at the path did? */
static int loads_alike(cell_context *ctx, const char *path, const cell_weight *list, cell_status wanted)
{
    unsigned char a[48];
    float scalar = -1;
    size_t n;
    void *bytes = bytes_of(path, &n);
    cell_weight own[] = { list[0], list[1] };
    memset(a, 0x55, sizeof a);
    own[0].data = a, own[1].data = &scalar;
    if (!bytes)
        return wanted != CELL_OK;
    cell_status status = cell_weights_load_memory(ctx, bytes, n, own, 2);
    free(bytes);
    return status == wanted && memcmp(a, list[0].data, sizeof a) == 0 &&
           memcmp(&scalar, list[1].data, sizeof scalar) == 0;
}

static int load(cell_context *ctx, const char *path, const char *word)
{
    unsigned char a[48], before[48];
    float scalar = -1;
    memset(a, 0x55, sizeof a);
    memcpy(before, a, sizeof a);
    cell_dtype dtype = type_of(word);
    cell_weight list[] = { { .name = "a", .dtype = dtype, .rank = 2, .shape = { 2, 3 }, .data = a },
                           { .name = "b.c", .dtype = CELL_F32, .data = &scalar } };
    cell_status status = cell_weights_load(ctx, path, list, 2);
    if (status == CELL_OK && !loads_alike(ctx, path, list, status))
        return puts("FROM MEMORY IT IS ANOTHER"), 1;
    if (status != CELL_OK) {
        char why[512];
        snprintf(why, sizeof why, "%s", cell_last_error(ctx));
        if (!loads_alike(ctx, path, list, status))
            return puts("FROM MEMORY IT IS ANOTHER"), 1;
        cell_context_destroy(ctx);
        puts(memcmp(a, before, sizeof a) == 0 && scalar == -1 ? "untouched" : "HALF LOADED");
        puts(why);
        return 1;
    }
    for (int i = 0; i < 6; i++)
        printf("%.17g ", number(a, i, dtype));
    printf("%.17g\n", (double)scalar);
    return 0;
}

static int text(cell_context *ctx, const char *path, const char *key)
{
    char value[64];
    if (cell_weights_metadata(ctx, path, key, value, sizeof value) != CELL_OK)
        return fail(ctx);
    puts(value);
    return 0;
}

static int cell(cell_context *ctx, const char *path)
{
    static const int64_t d[] = { CELL_X_SIZE, CELL_SIZE_DIM0, CELL_X_END };
    static const int64_t twice[] = { CELL_X_SIZE, CELL_SIZE_DIM0, CELL_X_PUSH, 2, CELL_X_MUL, CELL_X_END };
    static const cell_expr axes[] = { twice, d };
    static const cell_tensor tensors[] = { { "x", CELL_INPUT, CELL_F32, 1, axes + 1 },
                                           { "W", CELL_PARAM, CELL_F32, 2, axes },
                                           { "bias", CELL_PARAM, CELL_F64, 1, axes + 1 } };
    static const cell_desc desc = {
        .plan_version = CELL_PLAN_VERSION, .tensors = tensors, .n_tensors = 3, .n_sizes = 4
    };
    const int64_t sizes[] = { 1, 1, 2, 0 };
    float w[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, again[8] = { 0 };
    double bias[2] = { 0.1, 0.2 }, bias_again[2] = { 0 };
    void *data[] = { w, bias }, *others[] = { again, bias_again };
    cell_weight list[2];
    int n;
    if (cell_weights_of(ctx, &desc, sizes, "rnn.0.", data, list, 1, &n) != CELL_TOO_SMALL || n != 2)
        return puts("too many params are not seen"), 1;
    if (cell_weights_of(ctx, &desc, sizes, "rnn.0.", data, list, 2, &n) != CELL_OK ||
        cell_weights_save(ctx, path, list, n, NULL) != CELL_OK)
        return fail(ctx);
    if (cell_weights_of(ctx, &desc, sizes, "rnn.0.", others, list, 2, &n) != CELL_OK ||
        cell_weights_load(ctx, path, list, n) != CELL_OK)
        return fail(ctx);
    printf("%s [%d, %d] %s %s\n", list[0].name, (int)list[0].shape[0], (int)list[0].shape[1], list[1].name,
           memcmp(w, again, sizeof w) == 0 && memcmp(bias, bias_again, sizeof bias) == 0 ? "same"
                                                                                         : "DIFFERENT");
    return 0;
}

static int wrong_lists(cell_context *ctx, const char *path)
{
    float x[4] = { 0 };
    cell_weight one = { .name = "x", .dtype = CELL_F32, .rank = 1, .shape = { 4 }, .data = x },
                list[2] = { one, one };
    int wrong = cell_weights_save(ctx, path, list, 2, NULL) == CELL_OK;
    list[0] = one, list[0].shape[0] = -1;
    wrong |= cell_weights_save(ctx, path, list, 1, NULL) == CELL_OK;
    list[0] = one, list[0].rank = CELL_WEIGHT_RANK + 1;
    wrong |= cell_weights_save(ctx, path, list, 1, NULL) == CELL_OK;
    list[0] = one, list[0].data = NULL;
    wrong |= cell_weights_save(ctx, path, list, 1, NULL) == CELL_OK;
    list[0] = one, list[0].name[0] = 0;
    wrong |= cell_weights_save(ctx, path, list, 1, NULL) == CELL_OK;
    list[0] = one, memset(list[0].name, 'x', sizeof list[0].name);
    wrong |= cell_weights_save(ctx, path, list, 1, NULL) == CELL_OK;
    list[0] = one, list[0].rank = 2, list[0].shape[0] = list[0].shape[1] = INT64_MAX / 2;
    wrong |= cell_weights_save(ctx, path, list, 1, NULL) == CELL_OK;
    list[0] = one, memcpy(list[0].name, "\xc3(", 3);
    wrong |= cell_weights_save(ctx, path, list, 1, NULL) == CELL_OK;
    const char *odd[] = { "spec", "1", "who", NULL }, *twice[] = { "spec", "1", "spec", "2", NULL },
               *latin[] = { "spec", "gr\xfc\xdf", NULL }, *surrogate[] = { "\xed\xa0\x80", "1", NULL },
               *longer[] = { "spec", "\xc0\xaf", NULL }, *beyond[] = { "spec", "\xf4\x90\x80\x80", NULL };
    const char *const *const texts[] = { odd, twice, latin, surrogate, longer, beyond };
    for (int i = 0; i < 6; i++)
        wrong |= cell_weights_save(ctx, path, &one, 1, texts[i]) == CELL_OK;
    wrong |= cell_weights_save(ctx, NULL, &one, 1, NULL) == CELL_OK ||
             cell_weights_load(ctx, path, NULL, 1) == CELL_OK ||
             cell_weights_load_memory(ctx, NULL, 8, &one, 1) == CELL_OK ||
             cell_weights_load_memory(ctx, NULL, 0, &one, 1) == CELL_OK;
    puts(wrong ? "A WRONG LIST WAS TAKEN" : "all refused");
    return wrong;
}

int main(int argc, char **argv)
{
    cell_context *ctx;
    char why[256];
    if (argc < 3 || cell_context_create(&ctx, CELL_BACKEND_REFERENCE, 0, why, sizeof why) != CELL_OK)
        return 2;
    const char *what = argv[1], *more = argc > 3 ? argv[3] : "";
    int code = strcmp(what, "save") == 0   ? save(ctx, argv[2])
               : strcmp(what, "load") == 0 ? load(ctx, argv[2], more)
               : strcmp(what, "text") == 0 ? text(ctx, argv[2], more)
               : strcmp(what, "cell") == 0 ? cell(ctx, argv[2])
                                           : wrong_lists(ctx, argv[2]);
    if (code != 1 || strcmp(what, "wrong") == 0 || strcmp(what, "cell") == 0)
        cell_context_destroy(ctx);
    return code;
}
