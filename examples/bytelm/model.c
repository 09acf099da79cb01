/* model.c: see model.h. All parameters lie in one flat array, so that the optimiser is one loop and a copy
 * to or from the backend is one call; the gradient has the same layout. A worker owns a context, a copy of
 * the parameters in that context's memory, its share of the batch, and its gradient; the gradients are
 * summed in the order of the workers. */
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cell_plan.h"
#include "gru.h"
#include "model.h"

/* Where a layer's parameters begin in the flat array. */
typedef struct LayerOffsets { int64_t W, R, bw, br, W_o; } LayerOffsets;

/* Activations of a batch share; device memory, row-major. */
typedef struct Worker {
    struct Model *model;
    cell_context *ctx;
    int64_t B, first;             /* its sequences are [first, first + B) */
    float *theta, *gradient;      /* device, flat */
    float *x[MAX_LAYERS + 1];     /* [B, T, D]: input of each layer, then of the output product */
    float *y[MAX_LAYERS];         /* [B, T, H]: outputs of the cells */
    float *dx, *dy, *logits;      /* [B, T, D], [B, T, H], [B, T, VOCAB]; logits become their cotangent */
    float *h[MAX_LAYERS][2];      /* [B, H]: the states before and after the chunk */
    void *reserve[MAX_LAYERS];
    size_t reserve_bytes;
    float *host_x, *host_logits, *host_gradient; /* host copies of x[0] or dx, logits, gradient */
    const uint8_t *bytes;         /* the chunk */
    bool learn;
    double loss;                  /* sum over its tokens; below zero: failed */
} Worker;

struct Model {
    ModelSizes s;
    int64_t n;                    /* parameters, padding included */
    int64_t embedding, output;    /* offsets */
    LayerOffsets layer[MAX_LAYERS];
    float *theta, *gradient, *mean, *square; /* host: parameters, gradient, moments of AdamW */
    int64_t updates;
    Worker worker[MAX_WORKERS];
    int workers;
};

double random_uniform(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static bool ok(Worker *w, cell_status status)
{
    if (status != CELL_OK)
        fprintf(stderr, "bytelm: %s: %s\n", cell_status_string(status), cell_last_error(w->ctx));
    return status == CELL_OK;
}

/* ---- parameters */

/* Room for `count` values, each group aligned for the kernels. */
static int64_t take(Model *m, int64_t count)
{
    int64_t at = m->n;
    m->n += (count + 63) / 64 * 64;
    return at;
}

static void lay_out(Model *m)
{
    int64_t D = m->s.D, H = m->s.H;
    m->embedding = take(m, VOCAB * D);
    for (int l = 0; l < m->s.layers; l++)
        m->layer[l] = (LayerOffsets) { take(m, 3 * H * D), take(m, 3 * H * H), take(m, 3 * H), take(m, 3 * H),
                                       take(m, D * H) };
    m->output = take(m, VOCAB * D);
}

static void fill_uniform(float *to, int64_t n, double bound, uint64_t *state)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)(bound * (2 * random_uniform(state) - 1));
}

static double xavier(int64_t rows, int64_t columns)
{
    return sqrt(6.0 / (double)(rows + columns));
}

static void initialise(Model *m, uint64_t seed)
{
    int64_t D = m->s.D, H = m->s.H;
    fill_uniform(m->theta + m->embedding, VOCAB * D, 1.0, &seed);
    for (int l = 0; l < m->s.layers; l++) {
        fill_uniform(m->theta + m->layer[l].W, 3 * H * D, xavier(H, D), &seed);
        fill_uniform(m->theta + m->layer[l].R, 3 * H * H, xavier(H, H), &seed);
        fill_uniform(m->theta + m->layer[l].W_o, D * H, xavier(D, H), &seed);
    }
    fill_uniform(m->theta + m->output, VOCAB * D, 0.1 * xavier(VOCAB, D), &seed);
}

/* AdamW with the gradient's norm clipped at 1. */
static void update(Model *m, double rate)
{
    const double b1 = 0.9, b2 = 0.99, decay = 0.01;
    double norm = 0;
    m->updates++;
    for (int64_t i = 0; i < m->n; i++)
        norm += (double)m->gradient[i] * m->gradient[i];
    double clip = norm > 1 ? 1 / sqrt(norm) : 1;
    double c1 = 1 - pow(b1, (double)m->updates), c2 = 1 - pow(b2, (double)m->updates);
    for (int64_t i = 0; i < m->n; i++) {
        double g = clip * m->gradient[i];
        m->mean[i] = (float)(b1 * m->mean[i] + (1 - b1) * g);
        m->square[i] = (float)(b2 * m->square[i] + (1 - b2) * g * g);
        double step = m->mean[i] / c1 / (sqrt(m->square[i] / c2) + 1e-8);
        m->theta[i] -= (float)(rate * (step + decay * m->theta[i]));
    }
}

/* ---- a worker */

static cell_matrix matrix(const float *data, int64_t row_stride, int64_t col_stride)
{
    return (cell_matrix) { (void *)data, CELL_F32, row_stride, col_stride, 0 };
}

/* C[m,n] = A B + beta C in the worker's context. */
static bool product(Worker *w, int64_t m, int64_t n, int64_t k, cell_matrix a, cell_matrix b, double beta,
                    cell_matrix c)
{
    return ok(w, cell_gemm(w->ctx, m, n, k, 1, 1.0, &a, &b, beta, &c));
}

static gru_sizes cell_sizes(const Worker *w, int64_t B, int64_t T)
{
    return (gru_sizes) { .B = B, .T = T, .D = w->model->s.D, .H = w->model->s.H };
}

static bool cell_forward(Worker *w, int l)
{
    const LayerOffsets *o = &w->model->layer[l];
    gru_sizes sizes = cell_sizes(w, w->B, w->model->s.T);
    gru_forward_args args = {
        .x = w->x[l], .weight_ih = w->theta + o->W, .weight_hh = w->theta + o->R,
        .bias_ih = w->theta + o->bw, .bias_hh = w->theta + o->br,
        .h = w->h[l][0], .y = w->y[l], .h_final = w->h[l][1],
        .reserve = w->learn ? w->reserve[l] : NULL, .reserve_bytes = w->learn ? w->reserve_bytes : 0,
    };
    return ok(w, gru_forward(w->ctx, &sizes, &args));
}

/* Adds the cell's gradients to the flat gradient and to dx, which holds the residual's already. */
static bool cell_backward(Worker *w, int l)
{
    const LayerOffsets *o = &w->model->layer[l];
    gru_sizes sizes = cell_sizes(w, w->B, w->model->s.T);
    gru_backward_args args = {
        .x = w->x[l], .weight_ih = w->theta + o->W, .weight_hh = w->theta + o->R,
        .bias_ih = w->theta + o->bw, .bias_hh = w->theta + o->br, .h = w->h[l][0], .d_y = w->dy,
        .d_x = w->dx, .d_weight_ih = w->gradient + o->W, .d_weight_hh = w->gradient + o->R,
        .d_bias_ih = w->gradient + o->bw, .d_bias_hh = w->gradient + o->br,
        .reserve = w->reserve[l], .reserve_bytes = w->reserve_bytes,
        .flags = CELL_ACCUMULATE,
    };
    return ok(w, gru_backward(w->ctx, &sizes, &args));
}

static bool embed(Worker *w)
{
    const Model *m = w->model;
    int64_t D = m->s.D, T = m->s.T;
    for (int64_t b = 0; b < w->B; b++)
        for (int64_t t = 0; t < T; t++)
            memcpy(w->host_x + (b * T + t) * D, m->theta + m->embedding + w->bytes[b * (T + 1) + t] * D,
                   sizeof(float) * (size_t)D);
    return ok(w, cell_copy(w->ctx, w->x[0], w->host_x, sizeof(float) * (size_t)(w->B * T * D)));
}

/* logits = x U^T for the first rows. */
static bool read_out(Worker *w, int64_t rows)
{
    const Model *m = w->model;
    int64_t D = m->s.D;
    return product(w, rows, VOCAB, D, matrix(w->x[m->s.layers], D, 1), matrix(w->theta + m->output, 1, D),
                   0.0, matrix(w->logits, VOCAB, 1));
}

static bool forward(Worker *w)
{
    const Model *m = w->model;
    int64_t rows = w->B * m->s.T, D = m->s.D, H = m->s.H;
    bool good = ok(w, cell_copy(w->ctx, w->theta, m->theta, sizeof(float) * (size_t)m->n)) && embed(w);
    for (int l = 0; good && l < m->s.layers; l++)
        good = cell_forward(w, l) &&
               ok(w, cell_copy(w->ctx, w->x[l + 1], w->x[l], sizeof(float) * (size_t)(rows * D))) &&
               product(w, rows, D, H, matrix(w->y[l], H, 1), matrix(w->theta + m->layer[l].W_o, 1, H), 1.0,
                       matrix(w->x[l + 1], D, 1));
    return good && read_out(w, rows) &&
           ok(w, cell_copy(w->ctx, w->host_logits, w->logits, sizeof(float) * (size_t)(rows * VOCAB)));
}

/* Replaces the logits of one token by the cotangent of the mean loss; gives the token's loss. */
static double softmax_loss(float *logits, int target, double scale)
{
    double sum = 0;
    float top = logits[0];
    for (int i = 1; i < VOCAB; i++)
        top = fmaxf(top, logits[i]);
    float at_target = logits[target] - top;
    for (int i = 0; i < VOCAB; i++)
        sum += logits[i] = expf(logits[i] - top);
    for (int i = 0; i < VOCAB; i++)
        logits[i] = (float)(scale * (logits[i] / sum - (i == target)));
    return log(sum) - at_target;
}

static double chunk_loss(Worker *w)
{
    const ModelSizes *s = &w->model->s;
    double loss = 0;
    for (int64_t b = 0; b < w->B; b++)
        for (int64_t t = 0; t < s->T; t++)
            loss += softmax_loss(w->host_logits + (b * s->T + t) * VOCAB, w->bytes[b * (s->T + 1) + t + 1],
                                 1.0 / (double)(s->B * s->T));
    return loss;
}

static bool backward(Worker *w)
{
    const Model *m = w->model;
    int64_t rows = w->B * m->s.T, D = m->s.D, H = m->s.H, last = m->s.layers;
    cell_matrix dlogits = matrix(w->logits, VOCAB, 1), dlogits_t = matrix(w->logits, 1, VOCAB);
    bool good = ok(w, cell_copy(w->ctx, w->logits, w->host_logits, sizeof(float) * (size_t)(rows * VOCAB))) &&
                ok(w, cell_fill(w->ctx, w->gradient, 0, sizeof(float) * (size_t)m->n)) &&
                product(w, rows, D, VOCAB, dlogits, matrix(w->theta + m->output, D, 1), 0.0,
                        matrix(w->dx, D, 1)) &&
                product(w, VOCAB, D, rows, dlogits_t, matrix(w->x[last], D, 1), 0.0,
                        matrix(w->gradient + m->output, D, 1));
    for (int l = m->s.layers - 1; good && l >= 0; l--)
        good = product(w, rows, H, D, matrix(w->dx, D, 1), matrix(w->theta + m->layer[l].W_o, H, 1), 0.0,
                       matrix(w->dy, H, 1)) &&
               product(w, D, H, rows, matrix(w->dx, 1, D), matrix(w->y[l], H, 1), 0.0,
                       matrix(w->gradient + m->layer[l].W_o, H, 1)) &&
               cell_backward(w, l);
    return good && ok(w, cell_copy(w->ctx, w->host_gradient, w->gradient, sizeof(float) * (size_t)m->n)) &&
           ok(w, cell_copy(w->ctx, w->host_x, w->dx, sizeof(float) * (size_t)(rows * D)));
}

/* dx [B, T, D] belongs to the rows of the embedding that the bytes chose. */
static void embedding_gradient(Worker *w)
{
    const Model *m = w->model;
    int64_t D = m->s.D, T = m->s.T;
    for (int64_t b = 0; b < w->B; b++)
        for (int64_t t = 0; t < T; t++) {
            float *row = w->host_gradient + m->embedding + w->bytes[b * (T + 1) + t] * D;
            for (int64_t d = 0; d < D; d++)
                row[d] += w->host_x[(b * T + t) * D + d];
        }
}

/* The states after the chunk are those before the next. */
static void carry_states(Worker *w)
{
    for (int l = 0; l < w->model->s.layers; l++) {
        float *h = w->h[l][0];
        w->h[l][0] = w->h[l][1];
        w->h[l][1] = h;
    }
}

static void *work(void *arg)
{
    Worker *w = arg;
    w->loss = -1;
    if (!forward(w))
        return NULL;
    double loss = chunk_loss(w);
    if (w->learn) {
        if (!backward(w))
            return NULL;
        embedding_gradient(w);
        carry_states(w);
    }
    w->loss = loss;
    return NULL;
}

/* ---- memory */

static bool allocate(Worker *w, float **to, int64_t count)
{
    void *p = NULL;
    if (!ok(w, cell_alloc(w->ctx, &p, sizeof(float) * (size_t)count)))
        return false;
    *to = p;
    return ok(w, cell_fill(w->ctx, p, 0, sizeof(float) * (size_t)count));
}

static bool allocate_layer(Worker *w, int l)
{
    const ModelSizes *s = &w->model->s;
    int64_t states = w->B * s->H;
    bool good = allocate(w, &w->y[l], w->B * s->T * s->H) &&
                ok(w, cell_alloc(w->ctx, &w->reserve[l], w->reserve_bytes));
    for (int k = 0; k < 2; k++)
        good = good && allocate(w, &w->h[l][k], states);
    return good;
}

static bool allocate_all(Worker *w)
{
    const Model *m = w->model;
    int64_t rows = w->B * m->s.T;
    gru_sizes sizes = cell_sizes(w, w->B, m->s.T);
    w->reserve_bytes = gru_reserve_bytes(&sizes);
    bool good = allocate(w, &w->theta, m->n) && allocate(w, &w->gradient, m->n) &&
                allocate(w, &w->dx, rows * m->s.D) && allocate(w, &w->dy, rows * m->s.H) &&
                allocate(w, &w->logits, rows * VOCAB);
    for (int l = 0; good && l <= m->s.layers; l++)
        good = allocate(w, &w->x[l], rows * m->s.D);
    for (int l = 0; good && l < m->s.layers; l++)
        good = allocate_layer(w, l);
    w->host_x = malloc(sizeof(float) * (size_t)(rows * m->s.D));
    w->host_logits = malloc(sizeof(float) * (size_t)(rows * VOCAB));
    w->host_gradient = malloc(sizeof(float) * (size_t)m->n);
    return good && w->host_x && w->host_logits && w->host_gradient;
}

static void free_worker(Worker *w)
{
    if (!w->ctx)
        return;
    float *single[] = { w->theta, w->gradient, w->dx, w->dy, w->logits };
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        cell_free(w->ctx, single[i]);
    for (int l = 0; l <= MAX_LAYERS; l++)
        cell_free(w->ctx, w->x[l]);
    for (int l = 0; l < MAX_LAYERS; l++) {
        cell_free(w->ctx, w->y[l]);
        cell_free(w->ctx, w->reserve[l]);
        for (int k = 0; k < 2; k++)
            cell_free(w->ctx, w->h[l][k]);
    }
    free(w->host_x);
    free(w->host_logits);
    free(w->host_gradient);
    cell_context_destroy(w->ctx);
}

static bool start_worker(Model *m, int k)
{
    Worker *w = &m->worker[k];
    char message[256];
    w->model = m;
    w->first = m->s.B * k / m->workers;
    w->B = m->s.B * (k + 1) / m->workers - w->first;
    if (cell_context_create(&w->ctx, CELL_BACKEND_AUTO, 0, message, sizeof message) != CELL_OK) {
        fprintf(stderr, "bytelm: %s\n", message);
        return false;
    }
    cell_context_set_threads(w->ctx, 1);
    return true;
}

/* A GPU is one worker; on the CPU each core is one, with a thread of its own. */
static bool start_workers(Model *m)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    m->workers = 1;
    if (!start_worker(m, 0))
        return false;
    if (cell_backend_of(m->worker[0].ctx) != CELL_BACKEND_CUDA && cores > 1)
        m->workers = (int)(cores > MAX_WORKERS ? MAX_WORKERS : cores);
    if (m->workers > m->s.B)
        m->workers = (int)m->s.B;
    m->worker[0].B = m->s.B / m->workers;
    for (int k = 1; k < m->workers; k++)
        if (!start_worker(m, k))
            return false;
    for (int k = 0; k < m->workers; k++)
        if (!allocate_all(&m->worker[k]))
            return false;
    return true;
}

Model *model_new(const ModelSizes *sizes, uint64_t seed)
{
    Model *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->s = *sizes;
    lay_out(m);
    m->theta = calloc((size_t)m->n, sizeof(float));
    m->gradient = calloc((size_t)m->n, sizeof(float));
    m->mean = calloc((size_t)m->n, sizeof(float));
    m->square = calloc((size_t)m->n, sizeof(float));
    if (!m->theta || !m->gradient || !m->mean || !m->square || !start_workers(m)) {
        model_free(m);
        return NULL;
    }
    initialise(m, seed);
    return m;
}

void model_free(Model *m)
{
    if (!m)
        return;
    for (int k = 0; k < MAX_WORKERS; k++)
        free_worker(&m->worker[k]);
    free(m->theta);
    free(m->gradient);
    free(m->mean);
    free(m->square);
    free(m);
}

int64_t model_parameters(const Model *m)
{
    int64_t D = m->s.D, H = m->s.H;
    return 2 * VOCAB * D + m->s.layers * H * (4 * D + 3 * H + 6);
}

const char *model_backend(const Model *m)
{
    return cell_backend_name(m->worker[0].ctx);
}

int model_workers(const Model *m)
{
    return m->workers;
}

/* ---- training and sampling */

/* Runs all workers on the chunk; the mean loss, or below zero. */
static double run_workers(Model *m, const uint8_t *bytes, bool learn)
{
    pthread_t thread[MAX_WORKERS];
    bool started[MAX_WORKERS] = { false };
    double loss = 0;
    for (int k = 0; k < m->workers; k++) {
        m->worker[k].bytes = bytes + m->worker[k].first * (m->s.T + 1);
        m->worker[k].learn = learn;
        /* The last one works here; where no thread can be had, so do the others. */
        started[k] = k + 1 < m->workers && pthread_create(&thread[k], NULL, work, &m->worker[k]) == 0;
        if (!started[k])
            work(&m->worker[k]);
    }
    for (int k = 0; k < m->workers; k++) {
        if (started[k])
            pthread_join(thread[k], NULL);
        loss = loss < 0 || m->worker[k].loss < 0 ? -1 : loss + m->worker[k].loss;
    }
    return loss < 0 ? -1 : loss / (double)(m->s.B * m->s.T);
}

double model_train(Model *m, const uint8_t *bytes, double rate)
{
    double loss = run_workers(m, bytes, true);
    if (loss < 0)
        return loss;
    memset(m->gradient, 0, sizeof(float) * (size_t)m->n);
    for (int k = 0; k < m->workers; k++)
        for (int64_t i = 0; i < m->n; i++)
            m->gradient[i] += m->worker[k].host_gradient[i];
    update(m, rate);
    return loss;
}

static bool zero_states(Worker *w)
{
    const ModelSizes *s = &w->model->s;
    size_t bytes = sizeof(float) * (size_t)(w->B * s->H);
    for (int l = 0; l < s->layers; l++)
        if (!ok(w, cell_fill(w->ctx, w->h[l][0], 0, bytes)))
            return false;
    return true;
}

double model_loss(Model *m, const uint8_t *bytes)
{
    for (int k = 0; k < m->workers; k++)
        if (!zero_states(&m->worker[k]))
            return -1;
    return run_workers(m, bytes, false);
}

/* One token through the model; its logits end up in host_logits. States move on in place. */
static bool read_byte(Worker *w, uint8_t byte)
{
    Model *m = w->model;
    int64_t D = m->s.D, H = m->s.H;
    gru_sizes sizes = cell_sizes(w, 1, 1);
    size_t row = sizeof(float) * (size_t)D;
    bool good = ok(w, cell_copy(w->ctx, w->x[0], m->theta + m->embedding + byte * D, row));
    for (int l = 0; good && l < m->s.layers; l++) {
        const LayerOffsets *o = &m->layer[l];
        gru_step_args args = {
            .x = w->x[l], .weight_ih = w->theta + o->W, .weight_hh = w->theta + o->R,
            .bias_ih = w->theta + o->bw, .bias_hh = w->theta + o->br,
            .h = w->h[l][0], .y = w->y[l], .h_final = w->h[l][0],
        };
        good = ok(w, gru_step(w->ctx, &sizes, &args)) &&
               ok(w, cell_copy(w->ctx, w->x[l + 1], w->x[l], row)) &&
               product(w, 1, D, H, matrix(w->y[l], H, 1), matrix(w->theta + o->W_o, 1, H), 1.0,
                       matrix(w->x[l + 1], D, 1));
    }
    return good && read_out(w, 1) &&
           ok(w, cell_copy(w->ctx, w->host_logits, w->logits, sizeof(float) * VOCAB));
}

static uint8_t draw(const float *logits, double temperature, uint64_t *state)
{
    double p[VOCAB], sum = 0, top = logits[0];
    for (int i = 1; i < VOCAB; i++)
        top = fmax(top, logits[i]);
    for (int i = 0; i < VOCAB; i++)
        sum += p[i] = exp((logits[i] - top) / temperature);
    double u = random_uniform(state) * sum;
    for (int i = 0; i < VOCAB; i++)
        if ((u -= p[i]) < 0)
            return (uint8_t)i;
    return ' ';
}

int model_sample(Model *m, const char *prompt, double temperature, uint64_t seed, char *out, int64_t n)
{
    Worker *w = &m->worker[0];
    if (!zero_states(w) || !ok(w, cell_copy(w->ctx, w->theta, m->theta, sizeof(float) * (size_t)m->n)))
        return -1;
    for (const char *p = prompt; *p; p++)
        if (!read_byte(w, (uint8_t)*p))
            return -1;
    for (int64_t i = 0; i < n; i++) {
        uint8_t byte = draw(w->host_logits, temperature, &seed);
        out[i] = (char)byte;
        if (!read_byte(w, byte))
            return -1;
    }
    return 0;
}
