/* Contexts: choice of the backend, messages, memory, streams, and calls from several threads at once. */
#include "cell.h"
#include "cell_backend.h"
#include "expect.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Under the sanitizers, an allocation that is too large is to fail as it does without them. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "allocator_may_return_null=1";
}

static void expect_context(const char *word, cell_status wanted, const char *name) {
    cell_context *ctx;
    char message[256] = "";
    if (word)
        setenv("CELL_BACKEND", word, 1);
    else
        unsetenv("CELL_BACKEND");
    cell_status status = cell_context_create(&ctx, CELL_BACKEND_AUTO, 0, message, sizeof message);
    EXPECT(status == wanted, "CELL_BACKEND=%s: %s: %s", word ? word : "", cell_status_string(status),
           message);
    EXPECT((status == CELL_OK) == (ctx != NULL), "CELL_BACKEND=%s", word ? word : "");
    EXPECT((status == CELL_OK) == (message[0] == 0), "message '%s'", message);
    if (ctx && name)
        EXPECT(strcmp(cell_backend_name(ctx), name) == 0, "backend %s", cell_backend_name(ctx));
    cell_context_destroy(ctx);
    unsetenv("CELL_BACKEND");
}

static void creation(void) {
    cell_context *ctx = (cell_context *)1;
    char message[16];
    expect_context("reference", CELL_OK, "reference");
    expect_context("cpu", CELL_OK, "cpu");
    expect_context("emulated", CELL_NO_DEVICE, NULL); /* this program links no emulator */
    expect_context("gpu", CELL_BAD_ARGUMENT, NULL);
    expect_context("", CELL_OK, NULL);
    expect_context("auto", CELL_OK, NULL);
    expect_context(NULL, CELL_OK, NULL);
    EXPECT(cell_context_create(NULL, CELL_BACKEND_REFERENCE, 0, NULL, 0) == CELL_NULL_POINTER, "no place");
    EXPECT(cell_context_create(&ctx, CELL_BACKEND_REFERENCE, 3, message, sizeof message) == CELL_NO_DEVICE &&
               !ctx,
           "device 3");
    EXPECT(strlen(message) == sizeof message - 1, "a cut message: '%s'", message);
    EXPECT(cell_context_create(&ctx, CELL_BACKEND_CUDA, 9999, NULL, 0) == CELL_NO_DEVICE && !ctx,
           "device 9999");
    EXPECT(cell_context_create(&ctx, (cell_backend_kind)9, 0, NULL, 0) == CELL_BAD_ARGUMENT && !ctx,
           "backend 9");
    EXPECT(cell_context_create_with(&ctx, NULL, 0, NULL, 0) == CELL_NULL_POINTER, "no backend");
    cell_context_destroy(NULL);
}

/* Without a driver, or without that many GPUs, there is none. */
static void image(void) {
    char message[200];
    cell_context *ctx = (cell_context *)1;
    EXPECT(cell_context_create_image(&ctx, 9999, NULL, message, sizeof message) == CELL_NO_DEVICE && !ctx,
           "no GPU for an image");
    EXPECT(strstr(message, "NVIDIA") || strstr(message, "device 9999 was asked for"), "it says why");
    EXPECT(cell_context_create_image(&ctx, -1, "", NULL, 0) == CELL_NO_DEVICE && !ctx, "device -1 for an image");
    EXPECT(cell_context_create_image(NULL, 0, NULL, NULL, 0) == CELL_NULL_POINTER, "no place for the context");
}

static void names(void) {
    static const cell_dtype dtypes[] = {CELL_F32, CELL_BF16, CELL_F16,  CELL_F64,
                                        CELL_I32, CELL_BOOL, CELL_E4M3, CELL_E5M2};
    static const char *const wanted[] = {"f32", "bf16", "f16", "f64", "i32", "bool", "e4m3", "e5m2"};
    static const size_t bytes[] = {4, 2, 2, 8, 4, 1, 1, 1};
    for (int i = 0; i < 8; i++)
        EXPECT(strcmp(cell_dtype_name(dtypes[i]), wanted[i]) == 0 && cell_dtype_bytes(dtypes[i]) == bytes[i],
               "%d", i);
    EXPECT(cell_dtype_bytes((cell_dtype)77) == 0 && strcmp(cell_dtype_name((cell_dtype)-1), "?") == 0,
           "no dtype");
    for (int i = 0; i <= CELL_NO_INSTANCE; i++)
        for (int j = 0; j < i; j++)
            EXPECT(strcmp(cell_status_string((cell_status)i), cell_status_string((cell_status)j)) != 0,
                   "%d %d", i, j);
    EXPECT(strcmp(cell_status_string((cell_status)99), "unknown status") == 0, "status 99");
    EXPECT(strcmp(cell_backend_name(NULL), "none") == 0, "no context");
    EXPECT(strcmp(cell_last_error(NULL), "no context was given") == 0, "no context");
}

static void memory(void) {
    cell_context *ctx;
    void *pointer = &ctx;
    char in[100], out[100];
    EXPECT(cell_context_create(&ctx, CELL_BACKEND_AUTO, 0, NULL, 0) == CELL_OK, "context");
    EXPECT(cell_alloc(ctx, &pointer, 0) == CELL_OK && !pointer, "0 bytes");
    EXPECT(cell_alloc(ctx, &pointer, SIZE_MAX / 4) == CELL_OUT_OF_MEMORY && !pointer, "too much");
    EXPECT(strstr(cell_last_error(ctx), "out of memory: ") != NULL, "%s", cell_last_error(ctx));
    EXPECT(cell_alloc(ctx, &pointer, SIZE_MAX) == CELL_OUT_OF_MEMORY && !pointer, "all there is");
    EXPECT(cell_alloc(ctx, NULL, 1) == CELL_NULL_POINTER, "no place");
    EXPECT(cell_alloc(NULL, &pointer, 1) == CELL_NULL_POINTER, "no context");
    EXPECT(cell_alloc(ctx, &pointer, 100) == CELL_OK && pointer && (uintptr_t)pointer % 256 == 0,
           "100 bytes");
    for (int i = 0; i < 100; i++)
        in[i] = (char)i;
    EXPECT(cell_copy(ctx, pointer, in, 100) == CELL_OK && cell_copy(ctx, out, pointer, 100) == CELL_OK,
           "copies");
    EXPECT(memcmp(in, out, 100) == 0, "what came back");
    EXPECT(cell_fill(ctx, (char *)pointer + 10, 0xab, 5) == CELL_OK &&
               cell_copy(ctx, out, pointer, 100) == CELL_OK,
           "fill");
    memset(in + 10, 0xab, 5);
    EXPECT(memcmp(in, out, 100) == 0, "what was filled");
    EXPECT(cell_copy(ctx, NULL, in, 1) == CELL_NULL_POINTER && cell_copy(ctx, NULL, NULL, 0) == CELL_OK,
           "copy of null");
    EXPECT(cell_fill(ctx, NULL, 0, 1) == CELL_NULL_POINTER, "fill of null");
    EXPECT(cell_free(ctx, pointer) == CELL_OK && cell_free(ctx, NULL) == CELL_OK, "free");
    EXPECT(cell_context_set_stream(ctx, NULL) == CELL_OK && cell_synchronize(ctx) == CELL_OK, "stream");
    EXPECT(cell_context_set_stream(NULL, NULL) == CELL_NULL_POINTER &&
               cell_synchronize(NULL) == CELL_NULL_POINTER,
           "null");
    cell_context_destroy(ctx);
}

/* A context that another copy of the runtime made: told by its first word. */
static void foreign(void) {
    static const void *alien[64];
    alien[0] = alien;
    cell_context *ctx = (cell_context *)alien;
    EXPECT(cell_synchronize(ctx) == CELL_BAD_ARGUMENT, "a foreign context");
    EXPECT(strcmp(cell_last_error(ctx), "the context was created by another copy of the runtime") == 0,
           "foreign");
    cell_context_destroy(ctx);
}

/* Each thread has its context, fails in its own way, and must read its own message. */
static void *worker(void *number) {
    long id = (long)(intptr_t)number, wrong = 0;
    cell_context *ctx;
    char wanted[64];
    float a[4] = {1, 2, 3, 4}, c[4];
    if (cell_context_create(&ctx, CELL_BACKEND_REFERENCE, 0, NULL, 0) != CELL_OK)
        return (void *)1;
    cell_matrix in = {a, CELL_F32, 2, 1, 0}, out = {c, CELL_F32, 2, 1, 0};
    snprintf(wanted, sizeof wanted, "m -%ld,", id + 1);
    for (int i = 0; i < 200; i++) {
        wrong += cell_gemm(ctx, -id - 1, 2, 2, 1, 1, &in, &in, 0, &out) != CELL_BAD_SIZE;
        wrong += strstr(cell_last_error(ctx), wanted) == NULL;
        wrong += cell_gemm(ctx, 2, 2, 2, 1, (double)(id + 1), &in, &in, 0, &out) != CELL_OK;
        wrong += c[0] != 7 * (float)(id + 1) || c[3] != 22 * (float)(id + 1);
    }
    cell_context_destroy(ctx);
    return (void *)(intptr_t)wrong;
}

static void threads(void) {
    pthread_t all[8];
    for (int i = 0; i < 8; i++)
        EXPECT(pthread_create(&all[i], NULL, worker, (void *)(intptr_t)i) == 0, "thread %d", i);
    for (int i = 0; i < 8; i++) {
        void *wrong;
        pthread_join(all[i], &wrong);
        EXPECT(!wrong, "thread %d: %ld wrong results", i, (long)(intptr_t)wrong);
    }
}

int main(void) {
    creation();
    image();
    names();
    memory();
    foreign();
    threads();
    return report();
}
