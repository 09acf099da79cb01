/* A cell written by hand as a compiler would print it: h' = h W + x, y = (t0 + t + 1) h', with B, T and D at
 * run time, forward and backward as launch plans over C functions in the place of kernels, and the same as
 * plain loops (`model`), which serves as oracle and as the reference; and a backend in host memory that calls
 * the kernels and records and replays graphs. W is [D,D]; the initial state, the cotangents and all gradients
 * are optional. With TOY_DEVICE the kernels are CUDA kernels of another file, and there is no backend. */
#ifndef TOY_CELL_H
#define TOY_CELL_H

#include "cell_backend.h"

#include <stdlib.h>
#include <string.h>

#define X(...)    ((const int64_t[]){__VA_ARGS__, CELL_X_END})
#define B         CELL_X_SIZE, 0
#define T         CELL_X_SIZE, 1
#define D         CELL_X_SIZE, 2
#define LOOP_T    CELL_X_LOOPVAR, 0
#define BD        B, D, CELL_X_MUL
#define ARGS(...) ((const int16_t[]){__VA_ARGS__, -1})

#ifdef TOY_DEVICE
void toy_step(cell_kernel_args args);
void toy_back(cell_kernel_args args);
void toy_add(cell_kernel_args args);
#else
static int64_t size_b(const cell_kernel_args *args) {
    return args->size[0];
}

/* ptr: x, hs at t+1, y. */
static void toy_step(cell_kernel_args args) {
    int64_t b_size = size_b(&args), t_size = args.size[1], d_size = args.size[2];
    const float *x = args.ptr[0];
    float *h = args.ptr[1], *y = args.ptr[2];
    for (int64_t b = 0; b < b_size; b++)
        for (int64_t d = 0; d < d_size; d++) {
            int64_t at = (b * t_size + args.t) * d_size + d;
            h[b * d_size + d] += x[at];
            y[at] = (float)(args.size[3] + args.t + 1) * h[b * d_size + d];
        }
}

/* ptr: dy or NULL, dh, g at t, dx or NULL. */
static void toy_back(cell_kernel_args args) {
    int64_t b_size = size_b(&args), t_size = args.size[1], d_size = args.size[2];
    const float *dy = args.ptr[0], *dh = args.ptr[1];
    float *g = args.ptr[2], *dx = args.ptr[3];
    for (int64_t b = 0; b < b_size; b++)
        for (int64_t d = 0; d < d_size; d++) {
            int64_t at = (b * t_size + args.t) * d_size + d;
            float value = dh[b * d_size + d] + (dy ? (float)(args.size[3] + args.t + 1) * dy[at] : 0);
            g[b * d_size + d] = value;
            if (dx)
                dx[at] = value + (args.flags & CELL_KERNEL_ACCUMULATE ? dx[at] : 0);
        }
}

/* ptr: dh, dh0. */
static void toy_add(cell_kernel_args args) {
    const float *from = args.ptr[0];
    float *to = args.ptr[1];
    for (int64_t i = 0; i < args.size[0] * args.size[2]; i++)
        to[i] += from[i];
}
#endif

enum { STEP, BACK, ADD };
static const cell_kernel kernels[] = {
    [STEP] = {.name = "step", .symbol = toy_step, .threads = 32},
    [BACK] = {.name = "back", .symbol = toy_back, .threads = 32},
    [ADD] = {.name = "add", .symbol = toy_add, .threads = 32},
};

static const cell_tensor tensors[] = {
    {"x", CELL_INPUT, CELL_F32, 1, (const cell_expr[]){(const int64_t[]){D, CELL_X_END}}},
    {"W", CELL_PARAM, CELL_F32, 2,
     (const cell_expr[]){(const int64_t[]){D, CELL_X_END}, (const int64_t[]){D, CELL_X_END}}},
    {"h", CELL_STATE, CELL_F32, 1, (const cell_expr[]){(const int64_t[]){D, CELL_X_END}}},
    {"y", CELL_OUTPUT, CELL_F32, 1, (const cell_expr[]){(const int64_t[]){D, CELL_X_END}}},
};

static const cell_arg forward_args[] = {
    {0, CELL_ROLE_VALUE, 0, CELL_F32},
    {1, CELL_ROLE_VALUE, 0, CELL_F32},
    {2, CELL_ROLE_VALUE, CELL_ARG_OPTIONAL, CELL_F32},
    {3, CELL_ROLE_VALUE, 0, CELL_F32},
    {2, CELL_ROLE_FINAL, CELL_ARG_OPTIONAL, CELL_F32},
};
static const cell_arg backward_args[] = {
    {0, CELL_ROLE_VALUE, 0, CELL_F32},
    {1, CELL_ROLE_VALUE, 0, CELL_F32},
    {2, CELL_ROLE_VALUE, CELL_ARG_OPTIONAL, CELL_F32},
    {3, CELL_ROLE_D_OUT, CELL_ARG_OPTIONAL, CELL_F32},
    {2, CELL_ROLE_D_FINAL, CELL_ARG_OPTIONAL, CELL_F32},
    {0, CELL_ROLE_D_VALUE, CELL_ARG_OPTIONAL, CELL_F32},
    {1, CELL_ROLE_D_VALUE, CELL_ARG_OPTIONAL, CELL_F32},
    {2, CELL_ROLE_D_VALUE, CELL_ARG_OPTIONAL, CELL_F32},
};

/* Bytes of n floats, n given in postfix. */
#define FLOATS(...)                                                                                          \
    (const int64_t[]) {                                                                                      \
        __VA_ARGS__, CELL_X_PUSH, 4, CELL_X_MUL, CELL_X_END                                                  \
    }
#define HS_BYTES FLOATS(T, CELL_X_PUSH, 1, CELL_X_ADD, BD, CELL_X_MUL)

static const cell_buffer reserve[] = {{.name = "hs", .dtype = CELL_F32, .bytes = HS_BYTES}};

enum { F_X, F_W, F_H0, F_Y, F_HT, F_HS };
static const cell_buffer forward_buffers[] = {
    {"x", CELL_FROM_ARG, CELL_F32, 0, NULL},  {"W", CELL_FROM_ARG, CELL_F32, 1, NULL},
    {"h0", CELL_FROM_ARG, CELL_F32, 2, NULL}, {"y", CELL_FROM_ARG, CELL_F32, 3, NULL},
    {"hT", CELL_FROM_ARG, CELL_F32, 4, NULL}, {"hs", CELL_FROM_RESERVE_OR_WORKSPACE, CELL_F32, 0, HS_BYTES},
};
#define HERE                                                                                                 \
    (const int64_t[]) {                                                                                      \
        LOOP_T, BD, CELL_X_MUL, CELL_X_END                                                                   \
    }
#define NEXT                                                                                                 \
    (const int64_t[]) {                                                                                      \
        LOOP_T, CELL_X_PUSH, 1, CELL_X_ADD, BD, CELL_X_MUL, CELL_X_END                                       \
    }
#define JUST(...)                                                                                            \
    (const int64_t[]) {                                                                                      \
        __VA_ARGS__, CELL_X_END                                                                              \
    }

static const cell_op forward_ops[] = {
    {.name = "no initial state",
     .kind = CELL_OP_FILL,
     .unless = (const int16_t[]){2, -1},
     .u.memory = {.to = {F_HS, NULL}, .bytes = FLOATS(BD)}},
    {.name = "initial state",
     .kind = CELL_OP_COPY,
     .need = (const int16_t[]){2, -1},
     .u.memory = {.to = {F_HS, NULL}, .from = {F_H0, NULL}, .bytes = FLOATS(BD)}},
    {.name = "walk", .kind = CELL_OP_LOOP, .flags = CELL_OP_GRAPH, .u.loop = {NULL, JUST(T), 1, 2}},
    {.name = "h W",
     .kind = CELL_OP_GEMM,
     .u.gemm = {.m = JUST(B),
                .n = JUST(D),
                .k = JUST(D),
                .alpha = 1,
                .beta = CELL_BETA_ZERO,
                .a = {{F_HS, HERE}, JUST(D), NULL, NULL},
                .b = {{F_W, NULL}, JUST(D), NULL, NULL},
                .c = {{F_HS, NEXT}, JUST(D), NULL, NULL}}},
    {.name = "step",
     .kind = CELL_OP_KERNEL,
     .u.kernel =
         {STEP, 3, {JUST(B), NULL, NULL}, (const cell_ref[]){{F_X, NULL}, {F_HS, NEXT}, {F_Y, NULL}}, NULL}},
    {.name = "final state",
     .kind = CELL_OP_COPY,
     .need = (const int16_t[]){4, -1},
     .u.memory = {.to = {F_HT, NULL}, .from = {F_HS, JUST(T, BD, CELL_X_MUL)}, .bytes = FLOATS(BD)}},
};

enum { G_W, G_DY, G_DHT, G_DX, G_DW, G_DH0, G_HS, G_DH, G_G };
static const cell_buffer backward_buffers[] = {
    {"W", CELL_FROM_ARG, CELL_F32, 1, NULL},
    {"dy", CELL_FROM_ARG, CELL_F32, 3, NULL},
    {"dhT", CELL_FROM_ARG, CELL_F32, 4, NULL},
    {"dx", CELL_FROM_ARG, CELL_F32, 5, NULL},
    {"dW", CELL_FROM_ARG, CELL_F32, 6, NULL},
    {"dh0", CELL_FROM_ARG, CELL_F32, 7, NULL},
    {"hs", CELL_FROM_RESERVE, CELL_F32, 0, NULL},
    {"dh", CELL_FROM_WORKSPACE, CELL_F32, 0, FLOATS(BD)},
    {"g", CELL_FROM_WORKSPACE, CELL_F32, 0, FLOATS(T, BD, CELL_X_MUL)},
};
static const cell_op backward_ops[] = {
    {.name = "no cotangent",
     .kind = CELL_OP_FILL,
     .unless = (const int16_t[]){4, -1},
     .u.memory = {.to = {G_DH, NULL}, .bytes = FLOATS(BD)}},
    {.name = "cotangent",
     .kind = CELL_OP_COPY,
     .need = (const int16_t[]){4, -1},
     .u.memory = {.to = {G_DH, NULL}, .from = {G_DHT, NULL}, .bytes = FLOATS(BD)}},
    {.name = "walk back",
     .kind = CELL_OP_LOOP,
     .flags = CELL_OP_GRAPH,
     .need = (const int16_t[]){5, 6, 7, -1},
     .u.loop = {JUST(T, CELL_X_PUSH, 1, CELL_X_SUB), JUST(CELL_X_PUSH, -1), -1, 2}},
    {.name = "back",
     .kind = CELL_OP_KERNEL,
     .u.kernel = {BACK,
                  4,
                  {JUST(B), NULL, NULL},
                  (const cell_ref[]){{G_DY, NULL}, {G_DH, NULL}, {G_G, HERE}, {G_DX, NULL}},
                  JUST(LOOP_T)}},
    {.name = "g W^T",
     .kind = CELL_OP_GEMM,
     .u.gemm = {.m = JUST(B),
                .n = JUST(D),
                .k = JUST(D),
                .alpha = 1,
                .beta = CELL_BETA_ZERO,
                .a = {{G_G, HERE}, JUST(D), NULL, NULL},
                .b = {{G_W, NULL}, NULL, JUST(D), NULL},
                .c = {{G_DH, NULL}, JUST(D), NULL, NULL}}},
    {.name = "h^T g",
     .kind = CELL_OP_GEMM,
     .need = (const int16_t[]){6, -1},
     .u.gemm = {.m = JUST(D),
                .n = JUST(D),
                .k = JUST(T, B, CELL_X_MUL),
                .alpha = 1,
                .beta = CELL_BETA_ACCUMULATE,
                .a = {{G_HS, NULL}, NULL, JUST(D), NULL},
                .b = {{G_G, NULL}, JUST(D), NULL, NULL},
                .c = {{G_DW, NULL}, JUST(D), NULL, NULL}}},
    {.name = "gradient of h0",
     .kind = CELL_OP_COPY,
     .flags = CELL_OP_OVERWRITE_ONLY,
     .need = (const int16_t[]){7, -1},
     .u.memory = {.to = {G_DH0, NULL}, .from = {G_DH, NULL}, .bytes = FLOATS(BD)}},
    {.name = "add to the gradient of h0",
     .kind = CELL_OP_KERNEL,
     .flags = CELL_OP_ACCUMULATE_ONLY,
     .need = (const int16_t[]){7, -1},
     .u.kernel = {ADD, 2, {JUST(B), NULL, NULL}, (const cell_ref[]){{G_DH, NULL}, {G_DH0, NULL}}, NULL}},
};

#define COUNT(array) (int32_t)(sizeof(array) / sizeof *(array))
static const cell_plan forward_plan = {forward_buffers, forward_ops, COUNT(forward_buffers),
                                       COUNT(forward_ops)};
static const cell_plan backward_plan = {backward_buffers, backward_ops, COUNT(backward_buffers),
                                        COUNT(backward_ops)};

static cell_status toy_forward_model(const int64_t *sizes, void *const *args, void *reserve, int flags);
static cell_status toy_backward_model(const int64_t *sizes, void *const *args, void *reserve, int flags);

static size_t model_reserve(const int64_t *sizes) {
    return (size_t)((sizes[1] + 1) * sizes[0] * sizes[2]) * sizeof(float);
}

static const cell_desc toy_desc = {
    .plan_version = CELL_PLAN_VERSION,
    .name = "toy",
    .key = "toy:N=4,bias=none,dtype=f32",
    .bindings = (const cell_binding[]){{"N", "4"}, {"bias", "none"}, {"dtype", "f32"}},
    .size_names = (const char *const[]){"B", "T", "D", "t0"},
    .tensors = tensors,
    .forward_args = forward_args,
    .backward_args = backward_args,
    .checks = (const cell_check[]){{JUST(CELL_X_PUSH, 64, D, CELL_X_SUB), "D must be at most 64"}},
    .kernels = kernels,
    .reserve = reserve,
    .forward = &forward_plan,
    .backward = &backward_plan,
    .ref_forward = toy_forward_model,
    .ref_backward = toy_backward_model,
    .ref_reserve_bytes = model_reserve,
    .n_bindings = 3,
    .n_sizes = 4,
    .n_tensors = COUNT(tensors),
    .n_forward_args = COUNT(forward_args),
    .n_backward_args = COUNT(backward_args),
    .n_checks = 1,
    .n_kernels = COUNT(kernels),
    .n_reserve = COUNT(reserve),
};

/* Arguments x W h0 y hT. */
static cell_status toy_forward_model(const int64_t *sizes, void *const *args, void *reserve_to, int flags) {
    (void)flags;
    int64_t b_size = sizes[0], t_size = sizes[1], d_size = sizes[2], bd = b_size * d_size;
    const float *x = args[0], *w = args[1], *h0 = args[2];
    float *y = args[3], *final = args[4];
    float *hs = reserve_to ? reserve_to : malloc(model_reserve(sizes) + 1);
    if (!hs)
        return CELL_OUT_OF_MEMORY;
    for (int64_t i = 0; i < bd; i++)
        hs[i] = h0 ? h0[i] : 0;
    for (int64_t t = 0; t < t_size; t++)
        for (int64_t b = 0; b < b_size; b++)
            for (int64_t d = 0; d < d_size; d++) {
                double sum = x[(b * t_size + t) * d_size + d];
                for (int64_t e = 0; e < d_size; e++)
                    sum += (double)hs[t * bd + b * d_size + e] * w[e * d_size + d];
                hs[(t + 1) * bd + b * d_size + d] = (float)sum;
                y[(b * t_size + t) * d_size + d] = (float)(sizes[3] + t + 1) * (float)sum;
            }
    for (int64_t i = 0; final && i < bd; i++)
        final[i] = hs[t_size * bd + i];
    if (hs != reserve_to)
        free(hs);
    return CELL_OK;
}

static void put(float *to, int64_t at, double value, int flags) {
    if (to)
        to[at] = (float)(value + (flags & CELL_ACCUMULATE ? to[at] : 0));
}

static double back_matrix(const float *w, const double *g, int64_t d_size, int64_t row) {
    double sum = 0;
    for (int64_t e = 0; e < d_size; e++)
        sum += g[e] * w[row * d_size + e];
    return sum;
}

/* Arguments x W h0 dy dhT dx dW dh0. */
static cell_status toy_backward_model(const int64_t *sizes, void *const *args, void *saved, int flags) {
    int64_t b_size = sizes[0], t_size = sizes[1], d_size = sizes[2], bd = b_size * d_size;
    const float *w = args[1], *dy = args[3], *dht = args[4], *hs = saved;
    double g[64], dh[64], *dw = calloc((size_t)(d_size * d_size), sizeof *dw);
    if (!dw)
        return CELL_OUT_OF_MEMORY;
    for (int64_t b = 0; b < b_size; b++) {
        for (int64_t d = 0; d < d_size; d++)
            dh[d] = dht ? dht[b * d_size + d] : 0;
        for (int64_t t = t_size - 1; t >= 0; t--) {
            int64_t row = (b * t_size + t) * d_size;
            for (int64_t d = 0; d < d_size; d++) {
                g[d] = dh[d] + (dy ? (double)(sizes[3] + t + 1) * dy[row + d] : 0);
                put(args[5], row + d, g[d], flags);
            }
            for (int64_t i = 0; i < d_size * d_size; i++)
                dw[i] += hs[t * bd + b * d_size + i / d_size] * g[i % d_size];
            for (int64_t d = 0; d < d_size; d++)
                dh[d] = back_matrix(w, g, d_size, d);
        }
        for (int64_t d = 0; d < d_size; d++)
            put(args[7], b * d_size + d, dh[d], flags);
    }
    for (int64_t i = 0; i < d_size * d_size; i++)
        put(args[6], i, dw[i], flags);
    free(dw);
    return CELL_OK;
}

#ifndef TOY_DEVICE
/* One recorded piece of work. */
typedef struct Record {
    int kind; /* 'c'opy, 'f'ill, 'g'emm, 'l'aunch */
    void *to;
    const void *from;
    size_t bytes;
    int byte;
    cell_gemm_call gemm;
    cell_kernel_fn symbol;
    cell_kernel_args args;
    struct Record *next;
} Record;

typedef struct Recorder {
    int recording;
    Record *first, **last;
} Recorder;

/* What the backend counted. */
typedef struct ToyCounts {
    int launches, recorded, replayed, graphs;
} ToyCounts;
static ToyCounts toy_counts;
static int toy_fail_recording; /* graph_end fails */

static void perform(const Record *record) {
    if (record->kind == 'c')
        memmove(record->to, record->from, record->bytes);
    else if (record->kind == 'f')
        memset(record->to, record->byte, record->bytes);
    else if (record->kind == 'g')
        cell_host_gemm(NULL, &record->gemm, NULL);
    else
        record->symbol(record->args);
}

static cell_status issue(void *self, const Record *record) {
    Recorder *recorder = self;
    if (!recorder->recording) {
        perform(record);
        return CELL_OK;
    }
    Record *copy = malloc(sizeof *copy);
    if (!copy)
        return CELL_OUT_OF_MEMORY;
    *copy = *record;
    copy->next = NULL;
    *recorder->last = copy;
    recorder->last = &copy->next;
    toy_counts.recorded++;
    return CELL_OK;
}

static cell_status toy_copy(void *self, void *to, const void *from, size_t bytes, cell_error *err) {
    (void)err;
    return issue(self, &(Record){.kind = 'c', .to = to, .from = from, .bytes = bytes});
}

static cell_status toy_fill(void *self, void *to, int byte, size_t bytes, cell_error *err) {
    (void)err;
    return issue(self, &(Record){.kind = 'f', .to = to, .byte = byte, .bytes = bytes});
}

static cell_status toy_gemm(void *self, const cell_gemm_call *call, cell_error *err) {
    (void)err;
    return issue(self, &(Record){.kind = 'g', .gemm = *call});
}

static cell_status toy_launch(void *self, const cell_launch *launch, cell_error *err) {
    (void)err;
    toy_counts.launches++;
    return issue(self, &(Record){.kind = 'l', .symbol = launch->kernel->symbol, .args = *launch->args});
}

static cell_status toy_create(void **self, int device, cell_error *err) {
    (void)device;
    *self = calloc(1, sizeof(Recorder));
    return *self ? CELL_OK : cell_fail(err, CELL_OUT_OF_MEMORY, "out of memory");
}

static int toy_graph_busy(void *self) {
    (void)self;
    return 0;
}

static cell_status toy_graph_begin(void *self, cell_error *err) {
    Recorder *recorder = self;
    (void)err;
    *recorder = (Recorder){.recording = 1};
    recorder->last = &recorder->first;
    return CELL_OK;
}

static void toy_graph_free(void *self, void *graph) {
    (void)self;
    toy_counts.graphs--;
    for (Record *record = graph, *next; record; record = next) {
        next = record->next;
        free(record);
    }
}

static cell_status toy_graph_end(void *self, void **graph, cell_error *err) {
    Recorder *recorder = self;
    recorder->recording = 0;
    *graph = recorder->first;
    toy_counts.graphs++;
    if (!toy_fail_recording)
        return CELL_OK;
    toy_graph_free(self, *graph);
    *graph = NULL;
    return cell_fail(err, CELL_BACKEND_FAILED, "recording fails, as asked");
}

static cell_status toy_graph_run(void *self, void *graph, cell_error *err) {
    (void)self, (void)err;
    toy_counts.replayed++;
    for (const Record *record = graph; record; record = record->next)
        perform(record);
    return CELL_OK;
}

static const cell_backend *toy_backend(void) {
    static cell_backend backend;
    backend = *cell_emulated_backend();
    backend.name = "toy";
    backend.create = toy_create;
    backend.destroy = free;
    backend.copy = toy_copy;
    backend.fill = toy_fill;
    backend.gemm = toy_gemm;
    backend.launch = toy_launch;
    backend.graph_busy = toy_graph_busy;
    backend.graph_begin = toy_graph_begin;
    backend.graph_end = toy_graph_end;
    backend.graph_run = toy_graph_run;
    backend.graph_free = toy_graph_free;
    return &backend;
}
#endif

#endif
