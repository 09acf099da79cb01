/* Execution of launch plans, with the cell of toy_cell.h: forward, backward and step against its model over
 * sizes down to 0, optional arguments, accumulation, in-place states, graphs; size expressions; every
 * refusal, and that a refused call wrote nothing. */
#include "expect.h"
#include "toy_cell.h"

#include <math.h>

static float random_float(void) {
    static uint32_t state = 7;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1.0f;
}

/* All tensors of one call of each direction, and the model's answers. */
enum { N_ARGS = 8, MAX = 4096 };
typedef struct Call {
    int64_t sizes[4];
    float x[MAX], w[MAX], h0[MAX], y[MAX], ht[MAX], dy[MAX], dht[MAX], dx[MAX], dw[MAX], dh0[MAX];
    float want_y[MAX], want_ht[MAX], want_dx[MAX], want_dw[MAX], want_dh0[MAX];
    _Alignas(256) char workspace[1 << 16], reserve[1 << 16], model_reserve[1 << 16];
    size_t workspace_bytes, reserve_bytes;
} Call;

static void fill_random(float *data) {
    for (int i = 0; i < MAX; i++)
        data[i] = random_float();
}

static void fill_nan(float *data) {
    for (int i = 0; i < MAX; i++)
        data[i] = NAN;
}

static void set_up(Call *call, int64_t b, int64_t t, int64_t d) {
    call->sizes[0] = b, call->sizes[1] = t, call->sizes[2] = d, call->sizes[3] = 2;
    float *given[] = {call->x, call->w, call->h0, call->dy, call->dht};
    float *wanted[] = {call->y, call->ht, call->dx, call->dw, call->dh0};
    for (int i = 0; i < 5; i++) {
        fill_random(given[i]);
        fill_nan(wanted[i]);
    }
    memset(call->workspace, 0xff, sizeof call->workspace);
    memset(call->reserve, 0xff, sizeof call->reserve);
}

static void expect_close(const char *what, const float *got, const float *want, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        EXPECT(fabsf(got[i] - want[i]) <= 1e-4f * (1 + fabsf(want[i])), "%s[%lld] is %g, wanted %g", what,
               (long long)i, (double)got[i], (double)want[i]);
    for (int64_t i = count; i < count + 4; i++)
        EXPECT(isnan(got[i]), "%s written beyond its %lld elements", what, (long long)count);
}

/* with_state: are h0 and hT given? Bits of grads: dx, dW, dh0 wanted; of cotangents: dy, dhT given. */
typedef struct Variant {
    int with_state, grads, cotangents, flags, training;
} Variant;

static cell_memory memory_of(Call *call, int training) {
    cell_memory memory = {call->workspace, call->workspace_bytes, NULL, 0};
    if (training)
        memory.reserve = call->reserve, memory.reserve_bytes = call->reserve_bytes;
    return memory;
}

static void try_forward(cell_context *ctx, Call *call, const Variant *variant) {
    int64_t *s = call->sizes;
    void *args[] = {call->x, call->w, variant->with_state ? call->h0 : NULL, call->y,
                    variant->with_state ? call->ht : NULL};
    void *want[] = {args[0], args[1], args[2], call->want_y, call->want_ht};
    cell_memory memory = memory_of(call, variant->training);
    cell_status status = cell_run_forward(ctx, &toy_desc, s, args, &memory, 0);
    EXPECT(status == CELL_OK, "%s", cell_last_error(ctx));
    toy_forward_model(s, want, call->model_reserve, 0);
    expect_close("y", call->y, call->want_y, s[0] * s[1] * s[2]);
    expect_close("hT", call->ht, call->want_ht, variant->with_state ? s[0] * s[2] : 0);
}

static void try_backward(cell_context *ctx, Call *call, const Variant *variant) {
    int64_t *s = call->sizes, counts[] = {s[0] * s[1] * s[2], s[2] * s[2], s[0] * s[2]};
    float *got[] = {call->dx, call->dw, call->dh0}, *want[] = {call->want_dx, call->want_dw, call->want_dh0};
    static const char *const names[] = {"dx", "dW", "dh0"};
    void *args[N_ARGS] = {call->x, call->w, variant->with_state ? call->h0 : NULL,
                          variant->cotangents & 1 ? call->dy : NULL,
                          variant->cotangents & 2 ? call->dht : NULL};
    void *model[N_ARGS];
    memcpy(model, args, sizeof model);
    for (int i = 0; i < 3; i++) {
        int given = variant->grads >> i & 1;
        for (int64_t j = 0; given && j < counts[i] && variant->flags; j++)
            got[i][j] = want[i][j] = random_float();
        args[5 + i] = given ? got[i] : NULL;
        model[5 + i] = given ? want[i] : NULL;
    }
    cell_memory memory = memory_of(call, 1);
    cell_status status = cell_run_backward(ctx, &toy_desc, s, args, &memory, variant->flags);
    EXPECT(status == CELL_OK, "%s", cell_last_error(ctx));
    toy_backward_model(s, model, call->model_reserve, variant->flags);
    for (int i = 0; i < 3; i++)
        expect_close(names[i], got[i], want[i], variant->grads >> i & 1 ? counts[i] : 0);
}

static void try_variant(cell_context *ctx, Call *call, const int64_t *size, const Variant *variant) {
    set_up(call, size[0], size[1], size[2]);
    EXPECT(cell_workspace_bytes(ctx, &toy_desc, call->sizes, &call->workspace_bytes) == CELL_OK, "workspace");
    EXPECT(cell_reserve_bytes(ctx, &toy_desc, call->sizes, &call->reserve_bytes) == CELL_OK, "reserve");
    EXPECT(call->workspace_bytes < sizeof call->workspace && call->reserve_bytes < sizeof call->reserve,
           "sizes");
    try_forward(ctx, call, variant);
    if (variant->training)
        try_backward(ctx, call, variant);
    for (size_t i = call->workspace_bytes; i < sizeof call->workspace; i++)
        if ((unsigned char)call->workspace[i] != 0xff) {
            EXPECT(0, "workspace written beyond its %zu bytes", call->workspace_bytes);
            break;
        }
}

static void run_everything(cell_context *ctx, Call *call) {
    static const int64_t sizes[][3] = {{2, 3, 4}, {1, 1, 1}, {3, 7, 5}, {0, 3, 4},
                                       {2, 0, 4}, {0, 0, 1}, {5, 2, 17}};
    for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++)
        for (int bits = 0; bits < 128; bits++) {
            Variant variant = {bits & 1, bits >> 1 & 7, bits >> 4 & 3, bits >> 6, 1};
            try_variant(ctx, call, sizes[size], &variant);
            variant.training = 0;
            if (bits < 2)
                try_variant(ctx, call, sizes[size], &variant);
        }
}

/* The same call several times: met, recorded, replayed; then other sizes, then a failing recording. */
static void graphs(Call *call) {
    cell_context *ctx;
    static const int64_t size[] = {2, 6, 3}, other[] = {2, 5, 3};
    Variant variant = {1, 7, 3, 0, 1};
    EXPECT(cell_context_create_with(&ctx, toy_backend(), 0, NULL, 0) == CELL_OK, "context");
    toy_counts = (ToyCounts){0};
    for (int i = 0; i < 4; i++)
        try_variant(ctx, call, size, &variant);
    EXPECT(toy_counts.replayed == 6 && toy_counts.graphs == 2, "%d replays, %d graphs", toy_counts.replayed,
           toy_counts.graphs);
    EXPECT(toy_counts.recorded == 2 * 2 * 6, "%d pieces recorded", toy_counts.recorded);
    static Call elsewhere;
    try_variant(ctx, &elsewhere, size, &variant);
    EXPECT(toy_counts.replayed == 6, "other pointers replayed %d", toy_counts.replayed);
    try_variant(ctx, call, other, &variant);
    EXPECT(toy_counts.replayed == 6, "other sizes replayed %d", toy_counts.replayed);
    toy_fail_recording = 1;
    try_variant(ctx, call, other, &variant);
    EXPECT(toy_counts.replayed == 6 && toy_counts.graphs == 2, "after a failure %d replays",
           toy_counts.replayed);
    toy_fail_recording = 0;
    for (int64_t t = 1; t < 30; t++) /* more loops than the cache has room for */
        for (int again = 0; again < 2; again++)
            try_variant(ctx, call, (int64_t[]){1, t, 2}, &variant);
    EXPECT(toy_counts.graphs <= 16, "%d graphs kept", toy_counts.graphs);
    cell_context_destroy(ctx);
    EXPECT(toy_counts.graphs == 0, "%d graphs left", toy_counts.graphs);
}

/* Step by step, in place, without a workspace of the caller's, must give what forward gives. */
static void steps(cell_context *ctx, Call *call) {
    enum { STEPS = 5, WIDTH = 3 };
    set_up(call, 1, STEPS, WIDTH);
    void *model[] = {call->x, call->w, call->h0, call->want_y, call->want_ht};
    toy_forward_model(call->sizes, model, NULL, 0);
    for (int t = 0; t < STEPS; t++) {
        int64_t sizes[] = {1, 1, WIDTH, 2 + t};
        _Alignas(16) float x[WIDTH],
            y[WIDTH]; /* steps of x lie closer than the alignment that kernels want */
        void *args[] = {x, call->w, call->h0, y, call->h0};
        memcpy(x, call->x + t * WIDTH, sizeof x);
        EXPECT(cell_run_step(ctx, &toy_desc, sizes, args, NULL, 0) == CELL_OK, "%s", cell_last_error(ctx));
        memcpy(call->y + t * WIDTH, y, sizeof y);
    }
    expect_close("y by steps", call->y, call->want_y, STEPS * WIDTH);
    for (int i = 0; i < WIDTH; i++)
        EXPECT(fabsf(call->h0[i] - call->want_ht[i]) < 1e-4f, "hT by steps");
}

/* A call that must fail: status, a piece of its message, and nothing written. */
static void refuse(cell_context *ctx, Call *call, char which, int64_t *sizes, void **args,
                   const cell_memory *memory, int flags, cell_status wanted, const char *piece) {
    static Call before;
    before = *call;
    cell_status (*run)(cell_context *, const cell_desc *, const int64_t *, void *const *, const cell_memory *,
                       int) = which == 'f'   ? cell_run_forward
                              : which == 'b' ? cell_run_backward
                                             : cell_run_step;
    cell_status status = run(ctx, &toy_desc, sizes, args, memory, flags);
    EXPECT(status == wanted, "wanted %s for '%s', got %s: %s", cell_status_string(wanted), piece,
           cell_status_string(status), cell_last_error(ctx));
    EXPECT(strstr(cell_last_error(ctx), piece) != NULL, "'%s' does not say '%s'", cell_last_error(ctx),
           piece);
    EXPECT(memcmp(call, &before, sizeof before) == 0, "'%s': something was written", piece);
}

/* What carries the steps before the first may be left out only where there are none. */
static void past_refusals(cell_context *ctx, Call *call) {
    cell_arg list[COUNT(forward_args)];
    cell_desc desc = toy_desc;
    cell_memory memory = memory_of(call, 1);
    void *args[] = {call->x, call->w, NULL, call->y, call->ht};
    memcpy(list, forward_args, sizeof list);
    list[2].flags |= CELL_ARG_PAST;
    desc.forward_args = list;
    int64_t sizes[] = {call->sizes[0], call->sizes[1], call->sizes[2], 0};
    cell_status status = cell_run_forward(ctx, &desc, sizes, args, &memory, 0);
    EXPECT(status == CELL_OK, "without a past at t0 = 0: %s", cell_last_error(ctx));
    sizes[3] = 2;
    status = cell_run_forward(ctx, &desc, sizes, args, &memory, 0);
    EXPECT(status == CELL_NULL_POINTER && strstr(cell_last_error(ctx), "h is null, but t0 is 2"),
           "without a past at t0 = 2: %s", cell_last_error(ctx));
    args[2] = call->h0;
    EXPECT(cell_run_forward(ctx, &desc, sizes, args, &memory, 0) == CELL_OK, "%s", cell_last_error(ctx));
}

static void forward_refusals(cell_context *ctx, Call *call) {
    int64_t *s = call->sizes;
    /* What may be in the reserve takes workspace of a call without one only. */
    cell_memory good = memory_of(call, 1), infers = memory_of(call, 0), small = infers, odd = infers, no_place = good,
                brief = good;
    small.workspace_bytes = 16, brief.reserve_bytes--;
    odd.workspace = call->workspace + 16, no_place.workspace = NULL;
    void *args[] = {call->x, call->w, call->h0, call->y, call->ht}, *bad[5];
#define WITH(i, value) (memcpy(bad, args, sizeof bad), bad[i] = (value), bad)
#define SIZES(...)     ((int64_t[]){__VA_ARGS__})
    refuse(ctx, call, 'f', s, WITH(0, NULL), &good, 0, CELL_NULL_POINTER,
           "x is null; wanted 24 elements of f32");
    refuse(ctx, call, 'f', s, WITH(3, NULL), &good, 0, CELL_NULL_POINTER, "y is null");
    refuse(ctx, call, 'f', s, NULL, &good, 0, CELL_NULL_POINTER, "argument list is null");
    refuse(ctx, call, 'f', NULL, args, &good, 0, CELL_NULL_POINTER, "sizes are null");
    refuse(ctx, call, 'f', SIZES(-1, 3, 4, 0), args, &good, 0, CELL_BAD_SIZE, "B is -1; wanted 0 or more");
    refuse(ctx, call, 'f', SIZES(2, 3, 0, 0), args, &good, 0, CELL_BAD_SIZE, "D is 0; wanted 1 or more");
    refuse(ctx, call, 'f', SIZES(2, 3, 4, -1), args, &good, 0, CELL_BAD_SIZE, "t0 is -1");
    refuse(ctx, call, 'f', SIZES(2, 3, 65, 0), args, &good, 0, CELL_BAD_SIZE,
           "D must be at most 64 (B=2 T=3 D=65 t0=0)");
    refuse(ctx, call, 'f', SIZES(INT64_MAX / 2, 3, 4, 0), args, &good, 0, CELL_BAD_SIZE, "");
    refuse(ctx, call, 'f', s, WITH(0, (char *)call->x + 4), &good, 0, CELL_MISALIGNED, "x is at");
    refuse(ctx, call, 'f', s, args, &small, 0, CELL_TOO_SMALL, "workspace has");
    refuse(ctx, call, 'f', s, args, &brief, 0, CELL_TOO_SMALL, "reserve has");
    refuse(ctx, call, 'f', s, args, &odd, 0, CELL_MISALIGNED, "workspace is at");
    refuse(ctx, call, 'f', s, args, &no_place, 0, CELL_NULL_POINTER, "workspace is null, but said to have");
    refuse(ctx, call, 'f', s, args, &good, CELL_ACCUMULATE, CELL_BAD_ARGUMENT,
           "forward with flags 1; wanted 0, CELL_RECOMPUTE or that with CELL_OFFLOAD");
    refuse(ctx, call, 'f', s, WITH(3, call->x), &good, 0, CELL_BAD_ARGUMENT, "x and y overlap");
    refuse(ctx, call, 'f', s, WITH(4, call->h0 + 4), &good, 0, CELL_BAD_ARGUMENT,
           "initial h and final h overlap");
    refuse(ctx, call, 'f', s, WITH(3, call->workspace), &infers, 0, CELL_BAD_ARGUMENT,
           "y and workspace overlap");
    refuse(ctx, call, 's', s, args, &good, 0, CELL_BAD_SIZE, "step with T 3; wanted 1");
    refuse(ctx, call, 's', SIZES(2, 1, 4, 0), args, &good, 0, CELL_BAD_ARGUMENT, "step takes no reserve");
}

static void backward_refusals(cell_context *ctx, Call *call) {
    int64_t *s = call->sizes;
    cell_memory good = memory_of(call, 1), none = memory_of(call, 0);
    void *args[] = {call->x, call->w, call->h0, call->dy, call->dht, call->dx, call->dw, call->dh0}, *bad[8];
    refuse(ctx, call, 'b', s, args, &none, 0, CELL_NULL_POINTER,
           "backward's reserve is null; wanted the 768 bytes");
    refuse(ctx, call, 'b', s, args, &good, 4, CELL_BAD_ARGUMENT,
           "backward with flags 4; wanted 0, CELL_ACCUMULATE, CELL_RECOMPUTE or both, and CELL_OFFLOAD only with CELL_RECOMPUTE");
    refuse(ctx, call, 'b', s, WITH(6, (char *)call->dw + 8), &good, 0, CELL_MISALIGNED,
           "gradient of W is at");
    refuse(ctx, call, 'b', s, WITH(7, call->dht), &good, 0, CELL_BAD_ARGUMENT,
           "cotangent of final h and gradient of initial h overlap");
}

static void refusals(cell_context *ctx, Call *call) {
    set_up(call, 2, 3, 4);
    cell_workspace_bytes(ctx, &toy_desc, call->sizes, &call->workspace_bytes);
    cell_reserve_bytes(ctx, &toy_desc, call->sizes, &call->reserve_bytes);
    forward_refusals(ctx, call);
    past_refusals(ctx, call);
    backward_refusals(ctx, call);
    EXPECT(cell_run_forward(NULL, &toy_desc, call->sizes, NULL, NULL, 0) == CELL_NULL_POINTER, "no context");
    EXPECT(cell_run_forward(ctx, NULL, call->sizes, NULL, NULL, 0) == CELL_NULL_POINTER, "no description");
    cell_desc old = toy_desc;
    old.plan_version = 0;
    EXPECT(cell_run_forward(ctx, &old, call->sizes, NULL, NULL, 0) == CELL_UNSUPPORTED, "an old plan");
}

static int marks_read;

static cell_status count_transfer(void *self, void *to, const void *from, size_t bytes, cell_error *err) {
    marks_read++;
    return cell_host_copy(self, to, from, bytes, err);
}

static cell_status far_put(void *self, void *to, const void *from, size_t bytes, cell_error *err) {
    return cell_host_copy(self, to, from, bytes, err);
}

static cell_status reserve_call_of(cell_context *ctx, const cell_desc *desc, Call *call, char which, int64_t t) {
    int64_t sizes[] = {2, t, 4, 0};
    void *f[] = {call->x, call->w, call->h0, call->y, call->ht};
    void *b[] = {call->x, call->w, call->h0, call->dy, call->dht, call->dx, call->dw, call->dh0};
    cell_memory memory = {NULL, 0, call->reserve, sizeof call->reserve};
    return (which == 'f' ? cell_run_forward : cell_run_backward)(ctx, desc, sizes, which == 'f' ? f : b, &memory, 0);
}

static cell_status reserve_call(cell_context *ctx, Call *call, char which, int64_t t) {
    return reserve_call_of(ctx, &toy_desc, call, which, t);
}

/* Two plans of an instance may take the same shared memory, and even have the same words, and yet lay out the reserve
 * each in its own way. */
static void plans_reserves(cell_context *ctx, Call *call) {
    cell_kernel renamed[8];
    cell_desc other = toy_desc;
    set_up(call, 2, 3, 4);
    EXPECT(toy_desc.n_kernels <= 8, "%d kernels", toy_desc.n_kernels);
    memcpy(renamed, toy_desc.kernels, sizeof *renamed * (size_t)toy_desc.n_kernels);
    renamed[0].name = "toy_step_roomy";
    other.kernels = renamed;
    EXPECT(reserve_call(ctx, call, 'f', 3) == CELL_OK, "%s", cell_last_error(ctx));
    EXPECT(reserve_call_of(ctx, &other, call, 'b', 3) == CELL_BAD_ARGUMENT, "a reserve of another plan");
    EXPECT(strstr(cell_last_error(ctx), "with B=2 T=3 D=4 t0=0 by the kernels of another plan") != NULL, "%s",
           cell_last_error(ctx));
    EXPECT(reserve_call_of(ctx, &other, call, 'f', 3) == CELL_OK, "%s", cell_last_error(ctx));
    EXPECT(reserve_call_of(ctx, &other, call, 'b', 3) == CELL_OK, "%s", cell_last_error(ctx));
    other = toy_desc;
    other.how = "another plan";
    EXPECT(reserve_call_of(ctx, &other, call, 'b', 3) == CELL_BAD_ARGUMENT, "a reserve of another plan");
}

/* On a device a mark is read, which waits, only where the context filled the reserve otherwise; what it cannot
 * know it takes on trust. */
static void device_reserves(Call *call) {
    cell_backend far = *toy_backend();
    cell_context *one, *two;
    static char kept[1 << 16];
    far.host_memory = 0;
    far.put = far_put;
    far.transfer = count_transfer;
    set_up(call, 2, 3, 4);
    EXPECT(cell_context_create_with(&one, &far, 0, NULL, 0) == CELL_OK, "context");
    EXPECT(cell_context_create_with(&two, &far, 0, NULL, 0) == CELL_OK, "context");
    EXPECT(reserve_call(one, call, 'f', 3) == CELL_OK, "%s", cell_last_error(one));
    EXPECT(reserve_call(one, call, 'b', 3) == CELL_OK, "%s", cell_last_error(one));
    EXPECT(reserve_call(two, call, 'b', 3) == CELL_OK && marks_read == 0, "%s", cell_last_error(two));
    memcpy(kept, call->reserve, sizeof kept);
    EXPECT(reserve_call(one, call, 'f', 2) == CELL_OK && marks_read == 0, "%s", cell_last_error(one));
    EXPECT(reserve_call(one, call, 'b', 3) == CELL_BAD_ARGUMENT && marks_read == 1, "%d", marks_read);
    EXPECT(strstr(cell_last_error(one), "with B=2 T=2 D=4 t0=0; wanted that of") != NULL, "%s",
           cell_last_error(one));
    memcpy(call->reserve, kept, sizeof kept); /* brought back by the caller */
    EXPECT(reserve_call(one, call, 'b', 3) == CELL_OK && marks_read == 2, "%s", cell_last_error(one));
    EXPECT(reserve_call(two, call, 'f', 2) == CELL_OK, "%s", cell_last_error(two));
    EXPECT(reserve_call(two, call, 'b', 2) == CELL_OK && marks_read == 2, "%s", cell_last_error(two));
    EXPECT(reserve_call(one, call, 'f', 3) == CELL_OK, "%s", cell_last_error(one));
    EXPECT(reserve_call(two, call, 'b', 3) == CELL_OK && marks_read == 3, "%s", cell_last_error(two));
    cell_context_destroy(one);
    cell_context_destroy(two);
}

static cell_status no_image(void *self, const cell_kernel *kernel, size_t smem, cell_error *err) {
    (void)self, (void)smem;
    return cell_fail(err, CELL_NO_IMAGE, "kernel %s: no code", kernel->name);
}

/* Where no code fits the device, the message says for which GPUs there is some, and nothing was written. */
static void images(Call *call) {
    cell_backend other = *toy_backend();
    cell_context *ctx;
    other.prepare = no_image;
    set_up(call, 2, 3, 4);
    EXPECT(cell_context_create_with(&ctx, &other, 0, NULL, 0) == CELL_OK, "context");
    cell_desc desc = toy_desc;
    desc.archs = "80 90";
    void *args[] = {call->x, call->w, call->h0, call->y, call->ht};
    EXPECT(cell_run_forward(ctx, &desc, call->sizes, args, NULL, 0) == CELL_NO_IMAGE, "%s", cell_last_error(ctx));
    EXPECT(strstr(cell_last_error(ctx), "kernel step: no code; it was built for --archs \"80 90\"") != NULL, "%s",
           cell_last_error(ctx));
    EXPECT(isnan(call->y[0]) && isnan(call->ht[0]), "something was written");
    cell_context_destroy(ctx);
}

static const int64_t beyond[] = {LOOP_T, CELL_X_PUSH, 2, CELL_X_ADD, BD, CELL_X_MUL, CELL_X_END};
static const int64_t nine_times[] = {BD, CELL_X_PUSH, 36, CELL_X_MUL, CELL_X_END};
static const int64_t second_loop[] = {CELL_X_LOOPVAR, 1, CELL_X_END};
static const cell_ref no_buffer[] = {{F_X, NULL}, {99, NULL}, {F_Y, NULL}};

static void spoil(cell_op *ops, int which) {
    switch (which) {
    case 0:
        ops[2].u.loop.n_ops = 9;
        break;
    case 1:
        ops[3].u.gemm.c.at.offset = beyond;
        break;
    case 2:
        ops[4].u.kernel.kernel = 7;
        break;
    case 3:
        ops[5].u.memory.bytes = nine_times;
        break;
    case 4:
        ops[4].u.kernel.refs = no_buffer;
        break;
    default:
        ops[3].u.gemm.m = second_loop;
    }
}

/* Plans that a wrong compiler might write are reported, not executed. */
static void wrong_plans(Call *call) {
    set_up(call, 2, 3, 4);
    cell_workspace_bytes(NULL, &toy_desc, call->sizes, &call->workspace_bytes);
    cell_memory memory = memory_of(call, 0);
    void *args[] = {call->x, call->w, call->h0, call->y, call->ht};
    for (int which = 0; which < 6; which++) {
        cell_context *ctx; /* a new one: graphs are kept by the plan's address */
        cell_op ops[6];
        EXPECT(cell_context_create_with(&ctx, toy_backend(), 0, NULL, 0) == CELL_OK, "context");
        memcpy(ops, forward_ops, sizeof ops);
        spoil(ops, which);
        cell_plan plan = {forward_buffers, ops, COUNT(forward_buffers), COUNT(ops)};
        cell_desc desc = toy_desc;
        desc.forward = &plan;
        cell_status status = cell_run_forward(ctx, &desc, call->sizes, args, &memory, 0);
        EXPECT(status == CELL_BAD_ARGUMENT || status == CELL_BAD_SIZE, "wrong plan %d: %s", which,
               cell_status_string(status));
        EXPECT(strstr(cell_last_error(ctx), "plan") != NULL, "wrong plan %d: %s", which,
               cell_last_error(ctx));
        cell_context_destroy(ctx);
    }
}

static void expect_value(const int64_t *expr, int64_t wanted) {
    int64_t sizes[] = {5, -7, INT64_MAX}, value = -99;
    cell_status status = cell_eval(expr, sizes, 3, &value);
    EXPECT(status == CELL_OK && value == wanted, "got %lld (%s), wanted %lld", (long long)value,
           cell_status_string(status), (long long)wanted);
}

static void expect_bad(const int64_t *expr) {
    int64_t sizes[] = {5, -7, INT64_MAX}, value;
    EXPECT(cell_eval(expr, sizes, 3, &value) == CELL_BAD_SIZE, "gave %lld", (long long)value);
}

#define C(n) CELL_X_PUSH, n
static void expressions(void) {
    expect_value(JUST(C(42)), 42);
    expect_value(JUST(B, T, CELL_X_ADD), -2);
    expect_value(JUST(T, C(2), CELL_X_DIV), -4);
    expect_value(JUST(T, C(2), CELL_X_MOD), 1);
    expect_value(JUST(T, C(-2), CELL_X_MOD), -1);
    expect_value(JUST(T, C(2), CELL_X_CEILDIV), -3);
    expect_value(JUST(B, C(5), CELL_X_CEILDIV), 1);
    expect_value(JUST(C(6), B, CELL_X_CEILDIV), 2);
    expect_value(JUST(B, T, CELL_X_MIN), -7);
    expect_value(JUST(B, T, CELL_X_MAX), 5);
    expect_value(JUST(T, B, CELL_X_LT), 1);
    expect_value(JUST(B, B, CELL_X_LT), 0);
    expect_value(JUST(B, B, CELL_X_LE), 1);
    expect_value(JUST(B, C(5), CELL_X_EQ), 1);
    expect_value(JUST(CELL_X_ATTR, CELL_ATTR_SM_COUNT), 256);
    expect_bad(JUST(D, C(1), CELL_X_ADD));
    expect_bad(JUST(D, C(2), CELL_X_MUL));
    expect_bad(JUST(C(INT64_MIN), C(1), CELL_X_SUB));
    expect_bad(JUST(C(INT64_MIN), C(-1), CELL_X_DIV));
    expect_bad(JUST(B, C(0), CELL_X_DIV));
    expect_bad(JUST(B, C(0), CELL_X_MOD));
    expect_bad(JUST(CELL_X_ADD));
    expect_bad(JUST(B, T));
    expect_bad(JUST(B, T, 77));
    expect_bad(JUST(CELL_X_SIZE, 3));
    expect_bad(JUST(CELL_X_LOOPVAR, 0));
    expect_bad((const int64_t[]){CELL_X_END});
    int64_t deep[2 * 40 + 1];
    for (int i = 0; i < 80; i++)
        deep[i] = CELL_X_PUSH;
    deep[80] = CELL_X_END;
    expect_bad(deep);
}

static void instances(cell_context *ctx) {
    cell_desc wide = toy_desc;
    wide.key = "toy:N=8,bias=none,dtype=f32";
    wide.bindings = (const cell_binding[]){{"N", "8"}, {"bias", "none"}, {"dtype", "f32"}};
    const cell_desc *list[] = {&toy_desc, &wide};
    cell_binding n8[] = {{"N", "8"}, {"dtype", "f32"}}, n9 = {"N", "9"}, heads = {"H", "1"};
    EXPECT(cell_find_instance(ctx, list, 2, "toy", n8, 2) == &wide, "N=8");
    EXPECT(cell_find_instance(ctx, list, 2, NULL, NULL, 0) == &toy_desc, "any");
    EXPECT(!cell_find_instance(ctx, list, 2, "toy", &n9, 1), "N=9");
    EXPECT(strcmp(cell_last_error(ctx),
                  "no instance of toy with N=9; the library holds toy:N=4,bias=none,dtype=f32 "
                  "toy:N=8,bias=none,dtype=f32") == 0,
           "%s", cell_last_error(ctx));
    EXPECT(!cell_find_instance(NULL, list, 2, "toy", &heads, 1), "H");
    EXPECT(!cell_find_instance(ctx, list, 2, "other", NULL, 0), "another cell");
}

static void plan_text(void) {
    static const char wanted[] =
        "toy:N=4,bias=none,dtype=f32 forward, workspace 512 bytes\n"
        "buffer x: f32 argument\n"
        "buffer W: f32 argument\n"
        "buffer h0: f32 argument\n"
        "buffer y: f32 argument\n"
        "buffer hT: f32 argument\n"
        "buffer hs: f32 reserve or workspace, 320 bytes at 0\n"
        "0 no initial state: fill 64 bytes: hs\n"
        "1 initial state: copy 64 bytes: hs h0\n"
        "2 walk: loop from 0 to 4 step 1 as a graph; the first time:\n"
        "  3 h W: gemm m=2 n=8 k=8 batch=1 alpha=1 beta=0: hs(8,1) W(8,1) hs+16(8,1)\n"
        "  4 step: kernel step grid=2,1,1 threads=32 smem=0: x hs+16 y\n"
        "5 final state: copy 64 bytes: hT hs+64\n";
    char text[2048];
    int64_t sizes[] = {2, 4, 8, 0};
    size_t length = cell_plan_text(&toy_desc, 'f', sizes, text, sizeof text);
    EXPECT(length == strlen(wanted) && strcmp(text, wanted) == 0, "got:\n%s", text);
    char cut[16];
    EXPECT(cell_plan_text(&toy_desc, 'f', sizes, cut, sizeof cut) == length && strlen(cut) == 15, "cut text");
    sizes[0] = -1;
    cell_plan_text(&toy_desc, 'f', sizes, text, sizeof text);
    EXPECT(strstr(text, "B is -1") != NULL, "%s", text);
}

int main(void) {
    static Call call;
    cell_context *toy, *reference;
    EXPECT(cell_context_create_with(&toy, toy_backend(), 0, NULL, 0) == CELL_OK, "toy context");
    EXPECT(cell_context_create(&reference, CELL_BACKEND_REFERENCE, 0, NULL, 0) == CELL_OK,
           "reference context");
    run_everything(toy, &call);
    run_everything(reference, &call);
    steps(toy, &call);
    steps(reference, &call);
    graphs(&call);
    refusals(toy, &call);
    device_reserves(&call);
    plans_reserves(toy, &call);
    images(&call);
    wrong_plans(&call);
    expressions();
    instances(toy);
    plan_text();
    cell_context_destroy(toy);
    cell_context_destroy(reference);
    return report();
}
