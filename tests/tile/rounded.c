/* rounded.c: are values rounded where the spec says so? In: rounded.cell in bf16, on the emulator or (a second argument) the
 * reference of a library; sizes B,T. Out: verdicts. The ladder moves its inputs by as much as such a rounding, and cannot
 * tell. Here all numbers have few digits, so that sums are exact and what is rounded to 8 bits is known; kernels and
 * reference have to give just that. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cell.h"
#include "cell_plan.h"

enum { N = 4, V = 3, M = 5 };

const cell_desc *ladder_instance(void);

static int passed, failed;

static void must(cell_context *ctx, cell_status status)
{
    if (status == CELL_OK)
        return;
    fprintf(stderr, "%s: %s\n", cell_status_string(status), ctx ? cell_last_error(ctx) : "no context");
    exit(1);
}

/* The nearest number with the upper 16 bits of a float, of two the even one. */
static uint16_t upper_half(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float rounded(float v)
{
    uint32_t bits = (uint32_t)upper_half(v) << 16;
    memcpy(&v, &bits, sizeof bits);
    return v;
}

static void *room(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 256, bytes + 256))
        exit(1);
    memset(p, 0, bytes + 256);
    return p;
}

/* A number of so many binary digits, from -2 to 2. */
static float number(uint32_t k, int digits)
{
    return ldexpf((float)((int)(k * 2654435761u >> (32 - digits)) - (1 << (digits - 1))), 2 - digits);
}

static void same(const char *name, const char *backend, float got, float want, float before)
{
    passed += got == want;
    failed += got != want;
    if (got != want)
        printf("FAIL %s, %s: %.9g for %.9g, which is %.9g rounded\n", name, backend, got, want, before);
}

static void run(cell_backend_kind kind, const char *name, int64_t *sizes)
{
    const cell_desc *d = ladder_instance();
    cell_context *ctx = NULL;
    char message[512] = "";
    void *args[CELL_MAX_ARGS];
    float *x = NULL, *e = NULL, *g = NULL, *f = NULL, w[M * N], z[N];
    uint16_t *z16 = NULL;
    int64_t rows = sizes[0] * sizes[1];
    must(NULL, cell_context_create(&ctx, kind, 0, message, sizeof message));
    for (int i = 0; i < d->n_forward_args; i++) {
        const cell_arg *a = &d->forward_args[i];
        const char *tensor = d->tensors[a->tensor].name;
        int64_t n = 0;
        must(NULL, cell_arg_elements(d, a, sizes, &n));
        args[i] = room((size_t)n * cell_dtype_bytes((cell_dtype)a->dtype));
        if (strcmp(tensor, "W") == 0)
            for (int k = 0; k < M * N; k++)
                ((uint16_t *)args[i])[k] = upper_half(w[k] = number(7 + (uint32_t)k, 8));
        x = strcmp(tensor, "x") == 0 ? args[i] : x;
        z16 = strcmp(tensor, "z") == 0 ? args[i] : z16;
        e = strcmp(tensor, "e") == 0 ? args[i] : e;
        g = strcmp(tensor, "g") == 0 ? args[i] : g;
        f = strcmp(tensor, "f") == 0 ? args[i] : f;
    }
    for (int64_t k = 0; k < rows * N; k++) {
        x[k] = number(100 + (uint32_t)k, 13);
        z16[k] = upper_half(number(900 + (uint32_t)k, 8));
    }
    cell_memory memory = { NULL, 0, NULL, 0 };
    must(ctx, cell_run_forward(ctx, d, sizes, args, &memory, 0));
    for (int64_t b = 0; b < sizes[0]; b++) {
        float S[N] = { 0 };
        for (int64_t t = 0; t < sizes[1]; t++) {
            int64_t row = b * sizes[1] + t;
            for (int i = 0; i < N; i++) {
                float v = x[row * N + i];
                uint32_t bits = (uint32_t)z16[row * N + i] << 16;
                memcpy(&z[i], &bits, sizeof bits);
                S[i] = 0.5f * S[i] + rounded(v);
                same("e", name, e[row * N + i], rounded(v), v);
                same("f", name, f[row * N + i], rounded(V * S[i]), V * S[i]);
            }
            for (int k = 0; k < M; k++) {
                float sum = 0;
                for (int i = 0; i < N; i++)
                    sum += w[k * N + i] * z[i];
                same("g", name, g[row * M + k], rounded(sum), sum);
            }
        }
    }
    cell_context_destroy(ctx);
}

int main(int argc, char **argv)
{
    int64_t sizes[CELL_MAX_SIZES] = { 0 };
    char *s = argc > 1 ? argv[1] : "";
    for (int k = 0; k < 2 && *s; k++, s += *s == ',')
        sizes[k] = strtoll(s, &s, 10);
    if (argc > 2)
        run(CELL_BACKEND_REFERENCE, "the reference", sizes);
    else
        run(CELL_BACKEND_EMULATED, "the kernels", sizes);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
