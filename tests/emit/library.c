/* A library that cellc built for bf16, used as a program uses it: what it writes is bit for bit what its
 * plain C reference gives on the widened tensors, rounded once. Then: step by step is forward, adding
 * gradients adds, a gradient that is not wanted is left alone, states may be updated in place, empty calls
 * write nothing but states, wrong calls say what is wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cell.h"
#include "gru.h"
#include "half.h"

int gru_ref_forward(const int64_t *sizes, void *const *args, void *reserve, int flags);
int gru_ref_backward(const int64_t *sizes, void *const *args, void *reserve, int flags);

enum { B = 2, T = 5, D = 7, H = 3, MAX = 256 };

static int passed, failed;

static void check(int ok, const char *what)
{
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("FAILED: %s\n", what);
}

/* One tensor in storage and as the reference takes it. */
typedef struct Array { uint16_t half[MAX]; float wide[MAX]; int n; } Array;

static uint32_t seed = 12345;

static Array random_array(int n)
{
    Array a = { .n = n };
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        a.half[i] = cell_f32_to_bf16((float)(seed >> 8) / (1 << 24) - 0.5f);
        a.wide[i] = cell_bf16_to_f32(a.half[i]);
    }
    return a;
}

static int rounded_equal(const uint16_t *got, const float *want, int n)
{
    for (int i = 0; i < n; i++)
        if (got[i] != cell_f32_to_bf16(want[i]))
            return 0;
    return 1;
}

typedef struct Model {
    Array x, wi, wh, bi, bh, dy;
    float h[B * H], h_final[B * H], y[B * T * H];
    void *reserve;
    size_t bytes;
} Model;

static const gru_sizes sizes = { .B = B, .T = T, .D = D, .H = H };
static const int64_t raw_sizes[] = { B, T, D, H, 0 };

static gru_forward_args forward_args(Model *m, uint16_t *y, float *h_final, void *reserve)
{
    return (gru_forward_args){ .x = m->x.half,
                               .weight_ih = m->wi.half,
                               .weight_hh = m->wh.half,
                               .bias_ih = m->bi.half,
                               .bias_hh = m->bh.half,
                               .h = m->h,
                               .y = y,
                               .h_final = h_final,
                               .reserve = reserve,
                               .reserve_bytes = reserve ? m->bytes : 0 };
}

static void test_forward(cell_context *ctx, Model *m)
{
    uint16_t y[B * T * H];
    float h[B * H];
    gru_forward_args a = forward_args(m, y, h, m->reserve), inference = forward_args(m, y, h, NULL);
    void *list[] = { m->x.wide, m->wi.wide, m->wh.wide, m->bi.wide, m->bh.wide, m->h, m->y, m->h_final };
    check(gru_ref_forward(raw_sizes, list, NULL, 0) == 0, "the reference runs");
    check(gru_forward(ctx, &sizes, &inference) == CELL_OK && rounded_equal(y, m->y, B * T * H),
          "inference is the reference rounded");
    memset(y, 0xff, sizeof y);
    check(gru_forward(ctx, &sizes, &a) == CELL_OK && rounded_equal(y, m->y, B * T * H),
          "forward is the reference rounded");
    check(memcmp(h, m->h_final, sizeof h) == 0, "the final state is the reference's");
    memcpy(h, m->h, sizeof h);
    inference.h = h;
    check(gru_forward(ctx, &sizes, &inference) == CELL_OK && memcmp(h, m->h_final, sizeof h) == 0,
          "a state is updated in place");
}

static void test_steps(cell_context *ctx, Model *m)
{
    int same = 1;
    float h[B * H];
    memcpy(h, m->h, sizeof h);
    for (int t = 0; t < T; t++) {
        uint16_t x[B * D], y[B * H];
        for (int b = 0; b < B; b++)
            memcpy(x + b * D, m->x.half + (b * T + t) * D, sizeof *x * D);
        gru_step_args a = { .x = x, .weight_ih = m->wi.half, .weight_hh = m->wh.half, .bias_ih = m->bi.half,
                            .bias_hh = m->bh.half, .h = h, .y = y, .h_final = h };
        same &= gru_step(ctx, &sizes, &a) == CELL_OK;
        for (int b = 0; b < B; b++)
            same &= rounded_equal(y + b * H, m->y + (b * T + t) * H, H);
    }
    check(same && memcmp(h, m->h_final, sizeof h) == 0, "step by step is forward");
}

static void test_backward(cell_context *ctx, Model *m)
{
    static float dx[MAX], dwi[MAX], dwh[MAX], dbi[MAX], dbh[MAX], dh[MAX], saved[4096];
    uint16_t gx[B * T * D], gwi[3 * H * D], gbi[3 * H];
    float gh[B * H], h_final[B * H];
    uint16_t y[B * T * H];
    gru_forward_args f = forward_args(m, y, h_final, m->reserve);
    void *fwd[] = { m->x.wide, m->wi.wide, m->wh.wide, m->bi.wide, m->bh.wide, m->h, m->y, m->h_final };
    void *bwd[] = { m->x.wide, m->wi.wide, m->wh.wide, m->bi.wide, m->bh.wide, m->h, m->dy.wide,
                    NULL,      dx,         dwi,        dwh,        dbi,        dbh,  dh };
    gru_backward_args a = { .x = m->x.half,
                            .weight_ih = m->wi.half,
                            .weight_hh = m->wh.half,
                            .bias_ih = m->bi.half,
                            .bias_hh = m->bh.half,
                            .h = m->h,
                            .d_y = m->dy.half,
                            .d_x = gx,
                            .d_weight_ih = gwi,
                            .d_bias_ih = gbi,
                            .d_h = gh,
                            .reserve = m->reserve,
                            .reserve_bytes = m->bytes };
    check(gru_ref_forward(raw_sizes, fwd, saved, 0) == 0 && gru_ref_backward(raw_sizes, bwd, saved, 0) == 0,
          "the reference runs back");
    check(gru_forward(ctx, &sizes, &f) == CELL_OK && gru_backward(ctx, &sizes, &a) == CELL_OK,
          "backward runs");
    check(rounded_equal(gx, dx, B * T * D) && rounded_equal(gwi, dwi, 3 * H * D) &&
              rounded_equal(gbi, dbi, 3 * H) && memcmp(gh, dh, sizeof gh) == 0,
          "gradients are the reference's, rounded once");
    float twice[3 * H];
    for (int i = 0; i < 3 * H; i++)
        twice[i] = cell_bf16_to_f32(gbi[i]);
    bwd[8] = bwd[9] = bwd[10] = bwd[12] = bwd[13] = NULL;
    memcpy(dbi, twice, sizeof twice);
    check(gru_ref_backward(raw_sizes, bwd, saved, 1) == 0, "the reference adds");
    a = (gru_backward_args){ .x = m->x.half,
                             .weight_ih = m->wi.half,
                             .weight_hh = m->wh.half,
                             .bias_ih = m->bi.half,
                             .bias_hh = m->bh.half,
                             .h = m->h,
                             .d_y = m->dy.half,
                             .d_bias_ih = gbi,
                             .reserve = m->reserve,
                             .reserve_bytes = m->bytes,
                             .flags = CELL_ACCUMULATE };
    check(gru_backward(ctx, &sizes, &a) == CELL_OK && rounded_equal(gbi, dbi, 3 * H),
          "a single gradient is added to");
}

static void test_edges(cell_context *ctx, Model *m)
{
    uint16_t y[B * T * H];
    float h[B * H];
    gru_forward_args a = forward_args(m, y, h, NULL);
    gru_sizes none = sizes;
    none.T = 0;
    memset(y, 0xff, sizeof y);
    check(gru_forward(ctx, &none, &a) == CELL_OK && memcmp(h, m->h, sizeof h) == 0 && y[0] == 0xffff,
          "no steps: the state passes");
    none.B = 0;
    memset(h, 0xff, sizeof h);
    check(gru_forward(ctx, &none, &a) == CELL_OK && ((unsigned char *)h)[0] == 0xff,
          "no sequences: nothing is written");
    check(gru_forward(ctx, NULL, &a) == CELL_NULL_POINTER, "no sizes: an error");
    check(gru_forward(ctx, &sizes, NULL) == CELL_NULL_POINTER, "no arguments: an error");
    none.B = -1;
    check(gru_forward(ctx, &none, &a) == CELL_BAD_SIZE && strstr(cell_last_error(ctx), "B is -1"),
          "a negative size: an error");
    check(gru_reserve_bytes(&none) == SIZE_MAX, "a negative size has no reserve");
    const gru_sizes longest = { .B = 1, .T = INT64_MAX, .D = 4, .H = 3 };
    check(gru_reserve_bytes(&longest) == SIZE_MAX, "no reserve has so many steps");
    a.x = NULL;
    check(gru_forward(ctx, &sizes, &a) == CELL_NULL_POINTER && strstr(cell_last_error(ctx), "x"),
          "no input: an error");
}

int main(void)
{
    static Model m;
    cell_context *ctx;
    char message[200] = "";
    m.x = random_array(B * T * D);
    m.wi = random_array(3 * H * D);
    m.wh = random_array(3 * H * H);
    m.bi = random_array(3 * H);
    m.bh = random_array(3 * H);
    m.dy = random_array(B * T * H);
    Array h = random_array(B * H);
    memcpy(m.h, h.wide, sizeof m.h);
    check(cell_context_create(&ctx, CELL_BACKEND_REFERENCE, 0, message, sizeof message) == CELL_OK, message);
    m.bytes = gru_reserve_bytes(&sizes);
    m.reserve = m.bytes < 1 << 20 ? malloc(m.bytes) : NULL;
    check(ctx && m.reserve, "a context and a reserve");
    if (!failed) {
        test_forward(ctx, &m);
        test_steps(ctx, &m);
        test_backward(ctx, &m);
        test_edges(ctx, &m);
    }
    free(m.reserve);
    cell_context_destroy(ctx);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
