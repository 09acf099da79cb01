/* train_multi.c: one model, trained by several ranks, each a GPU or, without GPUs, a thread. Two layers
 * of GRU learn to repeat their input three steps later; the loss is that of one rank, up to the
 * rounding of sums.
 *
 *     train_multi [-n RANKS] [-s batch|time] [-p PARTS] [-l] [-u UPDATES]
 *                 [-B SEQUENCES] [-T STEPS] [-H UNITS]
 *
 * -s batch (the default): each rank has B/RANKS sequences. The gradients of a layer are summed over the
 * ranks while backward of the layer below it runs; with -l only when all of backward was given to the
 * device.
 * -s time: each rank has T/RANKS steps of all sequences (context parallelism). It takes the states from
 * the rank before it, and the gradients of its final states from the rank behind it. So that ranks need
 * not wait for whole batches, sequences go in PARTS (-p) one behind another: with P parts and R ranks
 * P/(P + R - 1) of the time is work.
 * ranks.h is all that it takes of other ranks. README.md says how to build it. */
#include <err.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gru.h"
#include "ranks.h"

enum { DELAY = 3, LAYERS = 2, MOST_PARTS = 64 };

typedef struct Options {
    int ranks, by_time, parts, late, updates;
    int64_t B, T, H;
} Options;

/* Where the params of a layer begin in an array of all. */
typedef struct Layer {
    int64_t D, weight_ih, weight_hh, bias_ih, bias_hh, end;
} Layer;

typedef struct Worker {
    const Options *o;
    Ranks *ranks;
    int rank;
    pthread_t thread;
    cell_context *ctx;
    Layer layer[LAYERS];
    int64_t steps, sequences, first_step, first_sequence; /* of the rank, a part */
    /* On the host: params, gradient, Adam's moments; inputs of all sequences and steps. */
    double *theta, *gradient, *mean, *square, *x, *y, *d_y;
    /* In the context's memory: */
    double *params, *d_params, *loss;
    struct {
        double *x[LAYERS + 1], *h[LAYERS], *h_final[LAYERS], *d_h[LAYERS], *d_h_final[LAYERS];
        void *reserve[LAYERS];
    } part[MOST_PARTS];
    double *d_x[LAYERS + 1];
    double last_loss, seconds, behind; /* seconds of the fastest update, and of its backward with the sums */
} Worker;

static void need(Worker *w, cell_status status)
{
    if (status != CELL_OK)
        errx(1, "rank %d: %s", w->rank, cell_last_error(w->ctx));
}

static void *host(size_t bytes)
{
    void *place = calloc(1, bytes);
    if (!place)
        errx(1, "out of memory");
    return place;
}

static double *numbers(Worker *w, int64_t n)
{
    void *place;
    need(w, cell_alloc(w->ctx, &place, (size_t)n * sizeof(double)));
    need(w, cell_fill(w->ctx, place, 0, (size_t)n * sizeof(double)));
    return place;
}

static gru_sizes sizes_of(const Worker *w, int l)
{
    return (
        gru_sizes){ .B = w->sequences, .T = w->steps, .D = w->layer[l].D, .H = w->o->H, .t0 = w->first_step };
}

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53 - 0.5;
}

static void open_worker(Worker *w)
{
    const Options *o = w->o;
    int64_t at = 0, H = o->H;
    w->ctx = ranks_context(w->ranks, w->rank);
    w->steps = o->by_time ? o->T / o->ranks : o->T;
    w->first_step = o->by_time ? w->rank * w->steps : 0;
    w->sequences = (o->by_time ? o->B : o->B / o->ranks) / o->parts;
    w->first_sequence = o->by_time ? 0 : w->rank * (o->B / o->ranks);
    for (int l = 0; l < LAYERS; l++) {
        int64_t D = l == 0 ? 1 : H;
        Layer layer = { .D = D, .weight_ih = at };
        layer.weight_hh = layer.weight_ih + 3 * H * D;
        layer.bias_ih = layer.weight_hh + 3 * H * H;
        layer.bias_hh = layer.bias_ih + 3 * H;
        layer.end = at = layer.bias_hh + 3 * H;
        w->layer[l] = layer;
    }
    w->theta = host((size_t)at * sizeof(double));
    w->gradient = host((size_t)at * sizeof(double));
    w->mean = host((size_t)at * sizeof(double));
    w->square = host((size_t)at * sizeof(double));
    w->x = host((size_t)(o->B * o->T) * sizeof(double));
    w->y = host((size_t)(w->sequences * w->steps * H) * sizeof(double));
    w->d_y = host((size_t)(w->sequences * w->steps * H) * sizeof(double));
    w->params = numbers(w, at);
    w->d_params = numbers(w, at);
    w->loss = numbers(w, 1);
    int64_t rows = w->sequences * w->steps;
    for (int p = 0; p < o->parts; p++)
        for (int l = 0; l <= LAYERS; l++) {
            w->part[p].x[l] = numbers(w, rows * (l == 0 ? 1 : H));
            if (l == LAYERS)
                break;
            gru_sizes s = sizes_of(w, l);
            need(w, cell_alloc(w->ctx, &w->part[p].reserve[l], gru_reserve_bytes(&s)));
            w->part[p].h[l] = numbers(w, w->sequences * H);
            w->part[p].h_final[l] = numbers(w, w->sequences * H);
            w->part[p].d_h[l] = numbers(w, w->sequences * H);
            w->part[p].d_h_final[l] = numbers(w, w->sequences * H);
        }
    for (int l = 1; l <= LAYERS; l++)
        w->d_x[l] = numbers(w, rows * H);
    uint64_t state = 1; /* all ranks begin alike */
    for (int64_t i = 0; i < at; i++)
        w->theta[i] = uniform(&state) / sqrt((double)H) * 2;
}

static void close_worker(Worker *w)
{
    for (int p = 0; p < w->o->parts; p++)
        for (int l = 0; l <= LAYERS; l++) {
            need(w, cell_free(w->ctx, w->part[p].x[l]));
            if (l == LAYERS)
                break;
            need(w, cell_free(w->ctx, w->part[p].reserve[l]));
            need(w, cell_free(w->ctx, w->part[p].h[l]));
            need(w, cell_free(w->ctx, w->part[p].h_final[l]));
            need(w, cell_free(w->ctx, w->part[p].d_h[l]));
            need(w, cell_free(w->ctx, w->part[p].d_h_final[l]));
        }
    for (int l = 1; l <= LAYERS; l++)
        need(w, cell_free(w->ctx, w->d_x[l]));
    need(w, cell_free(w->ctx, w->params));
    need(w, cell_free(w->ctx, w->d_params));
    need(w, cell_free(w->ctx, w->loss));
    free(w->theta), free(w->gradient), free(w->mean), free(w->square), free(w->x), free(w->y), free(w->d_y);
}

static int takes_states(const Worker *w)
{
    return w->o->by_time && w->rank > 0;
}

static int gives_states(const Worker *w)
{
    return w->o->by_time && w->rank + 1 < w->o->ranks;
}

static void forward(Worker *w, int p)
{
    size_t states = (size_t)(w->sequences * w->o->H);
    for (int l = 0; l < LAYERS; l++) {
        const Layer *at = &w->layer[l];
        gru_sizes s = sizes_of(w, l);
        gru_forward_args a = { .x = w->part[p].x[l],
                               .weight_ih = w->params + at->weight_ih,
                               .weight_hh = w->params + at->weight_hh,
                               .bias_ih = w->params + at->bias_ih,
                               .bias_hh = w->params + at->bias_hh,
                               .y = w->part[p].x[l + 1],
                               .h_final = w->part[p].h_final[l],
                               .reserve = w->part[p].reserve[l],
                               .reserve_bytes = gru_reserve_bytes(&s) };
        if (takes_states(w)) {
            ranks_receive(w->ranks, w->rank, w->rank - 1, w->part[p].h[l], states);
            a.h = w->part[p].h[l];
        }
        need(w, gru_forward(w->ctx, &s, &a));
        if (gives_states(w))
            ranks_send(w->ranks, w->rank, w->rank + 1, w->part[p].h_final[l], states);
    }
}

/* A part's gradients are added to those of the parts before it. */
static void backward(Worker *w, int p)
{
    size_t states = (size_t)(w->sequences * w->o->H);
    int last = p + 1 == w->o->parts;
    for (int l = LAYERS - 1; l >= 0; l--) {
        const Layer *at = &w->layer[l];
        gru_sizes s = sizes_of(w, l);
        gru_backward_args a = { .x = w->part[p].x[l],
                                .weight_ih = w->params + at->weight_ih,
                                .weight_hh = w->params + at->weight_hh,
                                .bias_ih = w->params + at->bias_ih,
                                .bias_hh = w->params + at->bias_hh,
                                .d_y = w->d_x[l + 1],
                                .d_x = l > 0 ? w->d_x[l] : NULL,
                                .d_weight_ih = w->d_params + at->weight_ih,
                                .d_weight_hh = w->d_params + at->weight_hh,
                                .d_bias_ih = w->d_params + at->bias_ih,
                                .d_bias_hh = w->d_params + at->bias_hh,
                                .reserve = w->part[p].reserve[l],
                                .reserve_bytes = gru_reserve_bytes(&s),
                                .flags = CELL_ACCUMULATE };
        /* What a buffer is added to has to be zero for the gradients that are wanted of one part alone. */
        if (a.d_x)
            need(w, cell_fill(w->ctx, a.d_x, 0, (size_t)(w->sequences * w->steps * at->D) * sizeof(double)));
        if (takes_states(w)) {
            a.h = w->part[p].h[l];
            a.d_h = w->part[p].d_h[l];
            need(w, cell_fill(w->ctx, a.d_h, 0, states * sizeof(double)));
        }
        if (gives_states(w)) {
            ranks_receive(w->ranks, w->rank, w->rank + 1, w->part[p].d_h_final[l], states);
            a.d_h_final = w->part[p].d_h_final[l];
        }
        need(w, gru_backward(w->ctx, &s, &a));
        if (takes_states(w))
            ranks_send(w->ranks, w->rank, w->rank - 1, w->part[p].d_h[l], states);
        else if (last && !w->o->by_time && !w->o->late)
            ranks_sum(w->ranks, w->rank, w->d_params + at->weight_ih, (size_t)(at->end - at->weight_ih));
    }
}

/* The squared error of the first unit, and its cotangent; the first steps have nothing to repeat. */
static double loss(Worker *w, int p)
{
    const Options *o = w->o;
    double sum = 0, all = (double)(o->B * (o->T - DELAY));
    memset(w->d_y, 0, (size_t)(w->sequences * w->steps * o->H) * sizeof(double));
    for (int64_t b = 0; b < w->sequences; b++)
        for (int64_t t = 0; t < w->steps; t++) {
            int64_t at = (b * w->steps + t) * o->H, step = w->first_step + t;
            if (step < DELAY)
                continue;
            double error = w->y[at] - w->x[(w->first_sequence + p * w->sequences + b) * o->T + step - DELAY];
            sum += error * error / all;
            w->d_y[at] = 2 * error / all;
        }
    return sum;
}

static void give_inputs(Worker *w, int p)
{
    for (int64_t b = 0; b < w->sequences; b++) {
        int64_t sequence = w->first_sequence + p * w->sequences + b;
        need(w, cell_copy(w->ctx, w->part[p].x[0] + b * w->steps, w->x + sequence * w->o->T + w->first_step,
                          (size_t)w->steps * sizeof(double)));
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void update(Worker *w, int number)
{
    const Options *o = w->o;
    const Layer *top = &w->layer[LAYERS - 1];
    double rate = fmin(0.01, 0.24 / (double)o->H); /* wide layers diverge at that of narrow ones */
    size_t bytes = (size_t)top->end * sizeof(double), rows = (size_t)(w->sequences * w->steps * o->H);
    double sum = 0, start = now(), behind = start;
    uint64_t state = (uint64_t)number; /* all ranks draw all inputs */
    for (int64_t i = 0; i < o->B * o->T; i++)
        w->x[i] = uniform(&state);
    need(w, cell_copy(w->ctx, w->params, w->theta, bytes));
    need(w, cell_fill(w->ctx, w->d_params, 0, bytes));
    for (int p = 0; p < o->parts; p++) {
        give_inputs(w, p);
        forward(w, p);
    }
    for (int p = 0; p < o->parts; p++) {
        need(w, cell_copy(w->ctx, w->y, w->part[p].x[LAYERS], rows * sizeof(double)));
        sum += loss(w, p);
        need(w, cell_copy(w->ctx, w->d_x[LAYERS], w->d_y, rows * sizeof(double)));
        if (p == 0)
            behind = now();
        backward(w, p);
    }
    if (o->by_time || o->late)
        ranks_sum(w->ranks, w->rank, w->d_params, (size_t)top->end);
    need(w, cell_copy(w->ctx, w->loss, &sum, sizeof sum));
    ranks_sum(w->ranks, w->rank, w->loss, 1);
    ranks_wait(w->ranks, w->rank);
    need(w, cell_copy(w->ctx, &w->last_loss, w->loss, sizeof sum));
    w->behind = fmin(w->behind, now() - behind);
    need(w, cell_copy(w->ctx, w->gradient, w->d_params, bytes));
    for (int64_t i = 0; i < top->end; i++) {
        w->mean[i] = 0.9 * w->mean[i] + 0.1 * w->gradient[i];
        w->square[i] = 0.99 * w->square[i] + 0.01 * w->gradient[i] * w->gradient[i];
        w->theta[i] -= rate * w->mean[i] / (1 - pow(0.9, number)) /
                       (sqrt(w->square[i] / (1 - pow(0.99, number))) + 1e-8);
    }
    w->seconds = fmin(w->seconds, now() - start);
}

static void *run(void *data)
{
    Worker *w = data;
    open_worker(w);
    w->seconds = w->behind = INFINITY;
    for (int number = 1; number <= w->o->updates; number++) {
        update(w, number);
        if (w->rank == 0 && (number == 1 || number % 10 == 0))
            printf("update %3d  loss %.15g\n", number, w->last_loss);
    }
    close_worker(w);
    return NULL;
}

static int64_t whole(const char *text, char option)
{
    char *end;
    long long n = strtoll(text, &end, 10);
    if (*end || end == text || n < 1 || n > 1 << 20)
        errx(2, "-%c takes a whole number from 1 on, not '%s'", option, text);
    return n;
}

int main(int argc, char **argv)
{
    Options o = { .ranks = 2, .parts = 1, .updates = 40, .B = 16, .T = 32, .H = 24 };
    for (int c; (c = getopt(argc, argv, "n:s:p:lu:B:T:H:")) != -1;)
        switch (c) {
        case 'n': o.ranks = (int)whole(optarg, 'n'); break;
        case 's':
            if (strcmp(optarg, "batch") != 0 && strcmp(optarg, "time") != 0)
                errx(2, "-s takes batch or time, not '%s'", optarg);
            o.by_time = strcmp(optarg, "time") == 0;
            break;
        case 'p': o.parts = (int)whole(optarg, 'p'); break;
        case 'l': o.late = 1; break;
        case 'u': o.updates = (int)whole(optarg, 'u'); break;
        case 'B': o.B = whole(optarg, 'B'); break;
        case 'T': o.T = whole(optarg, 'T'); break;
        case 'H': o.H = whole(optarg, 'H'); break;
        default: return 2;
        }
    if (o.parts > MOST_PARTS)
        errx(2, "at most %d parts", MOST_PARTS);
    if (o.B % ((o.by_time ? 1 : o.ranks) * o.parts) || (o.by_time && o.T % o.ranks))
        errx(2, "%lld sequences of %lld steps cannot be divided into equal shares", (long long)o.B,
             (long long)o.T);
    if (o.T <= DELAY)
        errx(2, "the input is repeated %d steps later: more steps than that are needed", DELAY);
    Ranks *ranks = ranks_open(o.ranks);
    Worker *workers = host((size_t)o.ranks * sizeof *workers);
    for (int i = 0; i < o.ranks; i++) {
        workers[i].o = &o;
        workers[i].ranks = ranks;
        workers[i].rank = i;
        if (pthread_create(&workers[i].thread, NULL, run, &workers[i]))
            errx(1, "no thread for rank %d", i);
    }
    for (int i = 0; i < o.ranks; i++)
        pthread_join(workers[i].thread, NULL);
    printf("%d ranks, the %s split: loss %.15g\n", o.ranks, o.by_time ? "steps" : "batch",
           workers[0].last_loss);
    printf("fastest update %.3f ms, backward with the sums %.3f ms\n", 1e3 * workers[0].seconds,
           1e3 * workers[0].behind);
    ranks_close(ranks);
    free(workers);
    return 0;
}
