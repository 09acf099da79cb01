/* train.c: the whole C API on one screen. A GRU learns to repeat its input three steps later: forward, backward,
 * update; then single steps, as a server takes them. Everything lies in host memory, so the backend is the reference;
 * examples/bytelm allocates in the context's memory and so trains on a GPU as well.
 *
 *     build/cellc build specs/gru.cell --no-cuda -o out
 *     cc -O2 -Iout -Iruntime -o train examples/train/train.c -Lout -lgru -lm -Wl,-rpath,$PWD/out && ./train
 */
#include <err.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gru.h"

enum { B = 16, T = 32, H = 24, DELAY = 3, UPDATES = 400 };
typedef struct Params { float weight_ih[3 * H], weight_hh[3 * H * H], bias_ih[3 * H], bias_hh[3 * H]; } Params;
enum { N = sizeof(Params) / sizeof(float) };

static Params p, gradient, mean, square;                    /* Adam's moments have the layout of the params */
static float x[B * T], y[B * T * H], d_y[B * T * H];       /* [B, T], [B, T, H], [B, T, H] */

static void need(cell_context *ctx, cell_status status)
{
    if (status != CELL_OK)
        errx(1, "%s", cell_last_error(ctx));
}

/* The squared error of the first unit, and its cotangent; the first steps have nothing to repeat. */
static double loss(void)
{
    double sum = 0;
    memset(d_y, 0, sizeof d_y);
    for (int b = 0; b < B; b++)
        for (int t = DELAY; t < T; t++) {
            int at = b * T + t;
            float error = y[at * H] - x[at - DELAY];
            sum += error * error / (B * (T - DELAY));
            d_y[at * H] = 2 * error / (B * (T - DELAY));
        }
    return sum;
}

static void update(int step)
{
    float *to = (float *)&p, *g = (float *)&gradient, *m = (float *)&mean, *v = (float *)&square;
    for (int i = 0; i < N; i++) {
        m[i] = 0.9f * m[i] + 0.1f * g[i];
        v[i] = 0.99f * v[i] + 0.01f * g[i] * g[i];
        to[i] -= 0.01f * m[i] / (1 - powf(0.9f, step)) / (sqrtf(v[i] / (1 - powf(0.99f, step))) + 1e-8f);
    }
}

int main(void)
{
    cell_context *ctx;
    char why[256];
    if (cell_context_create(&ctx, CELL_BACKEND_REFERENCE, 0, why, sizeof why) != CELL_OK)
        errx(1, "%s", why);
    gru_sizes sizes = { .B = B, .T = T, .D = 1, .H = H };
    gru_forward_args forward = { .x = x, .weight_ih = p.weight_ih, .weight_hh = p.weight_hh, .bias_ih = p.bias_ih,
                                 .bias_hh = p.bias_hh, .y = y };
    forward.reserve_bytes = gru_reserve_bytes(&sizes);
    forward.reserve = malloc(forward.reserve_bytes);
    gru_backward_args backward = { .x = x, .weight_ih = p.weight_ih, .weight_hh = p.weight_hh, .bias_ih = p.bias_ih,
                                   .bias_hh = p.bias_hh, .d_y = d_y, .d_weight_ih = gradient.weight_ih,
                                   .d_weight_hh = gradient.weight_hh, .d_bias_ih = gradient.bias_ih,
                                   .d_bias_hh = gradient.bias_hh, .reserve = forward.reserve,
                                   .reserve_bytes = forward.reserve_bytes };
    for (int i = 0; i < N; i++)
        ((float *)&p)[i] = 0.4f * ((float)rand() / (float)RAND_MAX - 0.5f);
    for (int step = 1; step <= UPDATES; step++) {
        for (int i = 0; i < B * T; i++)
            x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
        need(ctx, gru_forward(ctx, &sizes, &forward));
        double error = loss();
        need(ctx, gru_backward(ctx, &sizes, &backward));
        update(step);
        if (step == 1 || step % 100 == 0)
            printf("update %3d  loss %.5f\n", step, error);
    }

    gru_sizes one = { .B = 1, .T = 1, .D = 1, .H = H };     /* one sequence, one step at a time; the state in place */
    float state[H] = { 0 }, out[H], in[8] = { 0.4f, -0.3f, 0.2f, 0.1f, -0.4f, 0, 0, 0 };
    for (int t = 0; t < 8; t++) {
        gru_step_args args = { .x = &in[t], .weight_ih = p.weight_ih, .weight_hh = p.weight_hh, .bias_ih = p.bias_ih,
                               .bias_hh = p.bias_hh, .h = state, .y = out, .h_final = state };
        need(ctx, gru_step(ctx, &one, &args));
        printf("in %5.2f  out %5.2f\n", in[t], out[0]);
    }
    free(forward.reserve);
    cell_context_destroy(ctx);
    return 0;
}
