/* The C interface under a careless caller. In: instances of several schedules, on the emulator and in plain C.
 * Out: `N passed, N failed`. Checked: every argument left out, misaligned or shared in turn; memory that is too
 * small, misplaced or of another call; sizes of 0, of 1 and beyond all bounds; calls in the wrong order; several
 * contexts and threads; a fork. A refused call names what was wrong and has written nothing. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cell_backend.h"
#include "cell_plan.h"

const cell_desc *spin_instance(void), *gru_instance(void), *e79_instance(void), *layernorm_instance(void),
    *wide_instance(void), *wider_instance(void);

enum { MOST = 40, POISON = 0xff };

static int passed, failed;

static void check(int ok, const char *label, const char *what, const char *said)
{
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("FAIL %s: %s: %s\n", label, what, said);
}

/* One call with all that it needs, in memory of the host. */
typedef struct Call {
    const cell_desc *d;
    char which;                   /* 'f', 'b' or 's' */
    const cell_arg *list;
    int n, flags;
    int64_t sizes[CELL_MAX_SIZES];
    void *arg[MOST];
    size_t bytes[MOST];
    cell_memory memory;
} Call;

static int is_written(const Call *c, int i)
{
    const cell_arg *a = &c->list[i];
    return a->role == CELL_ROLE_FINAL || a->role == CELL_ROLE_D_VALUE ||
           (a->role == CELL_ROLE_VALUE && c->d->tensors[a->tensor].kind == CELL_OUTPUT);
}

static void *aligned(size_t bytes)
{
    void *p = aligned_alloc(256, (bytes + 511) / 256 * 256);
    if (!p)
        abort();
    memset(p, POISON, (bytes + 511) / 256 * 256);
    return p;
}

/* Small numbers that every type holds, and no NaN. */
static void fill(void *to, size_t bytes, int dtype)
{
    static uint32_t seed = 1;
    size_t size = cell_dtype_bytes((cell_dtype)dtype);
    for (size_t i = 0; i < bytes / size; i++) {
        seed = seed * 1664525u + 1013904223u;
        float v = (float)(seed >> 24) / 256 - 0.5f;
        double wide = v;
        uint32_t bits;
        memcpy(&bits, &v, 4);
        uint16_t half = (uint16_t)(bits >> 16);
        const void *from = dtype == CELL_F64 ? (const void *)&wide : dtype == CELL_BF16 ? (const void *)&half : &v;
        memcpy((char *)to + i * size, from, size);
    }
}

static Call call_new(cell_context *ctx, const cell_desc *d, char which, int64_t b, int64_t t, int64_t dim)
{
    Call c = { .d = d, .which = which, .list = which == 'b' ? d->backward_args : d->forward_args,
               .n = which == 'b' ? d->n_backward_args : d->n_forward_args };
    c.sizes[0] = b;
    c.sizes[1] = t;
    for (int i = 2; i + 1 < d->n_sizes; i++)
        c.sizes[i] = dim;
    for (int i = 0; i < c.n; i++) {
        int64_t elements = 0;
        cell_arg_elements(d, &c.list[i], c.sizes, &elements);
        c.bytes[i] = (size_t)elements * cell_dtype_bytes((cell_dtype)c.list[i].dtype);
        c.arg[i] = aligned(c.bytes[i]);
        if (!is_written(&c, i))
            fill(c.arg[i], c.bytes[i], c.list[i].dtype);
    }
    cell_workspace_bytes(ctx, d, c.sizes, &c.memory.workspace_bytes);
    c.memory.workspace = aligned(c.memory.workspace_bytes);
    if (which != 's') {
        cell_reserve_bytes(ctx, d, c.sizes, &c.memory.reserve_bytes);
        c.memory.reserve = aligned(c.memory.reserve_bytes);
    }
    return c;
}

static void call_free(Call *c)
{
    for (int i = 0; i < c->n; i++)
        free(c->arg[i]);
    free(c->memory.workspace);
    free(c->memory.reserve);
}

static cell_status run(cell_context *ctx, const Call *c, void *const *args, const cell_memory *memory)
{
    cell_status (*fn)(cell_context *, const cell_desc *, const int64_t *, void *const *, const cell_memory *,
                      int) =
        c->which == 'f' ? cell_run_forward : c->which == 'b' ? cell_run_backward : cell_run_step;
    return fn(ctx, c->d, c->sizes, args, memory, c->flags);
}

static cell_status plain(cell_context *ctx, const Call *c)
{
    return run(ctx, c, c->arg, &c->memory);
}

static int untouched(const Call *c)
{
    for (int i = 0; i < c->n; i++)
        for (size_t k = 0; is_written(c, i) && k < c->bytes[i]; k++)
            if (((unsigned char *)c->arg[i])[k] != POISON)
                return 0;
    return 1;
}

static const char *label_of(cell_context *ctx, const Call *c)
{
    static char text[256];
    snprintf(text, sizeof text, "%s %s %c", c->d->key, cell_backend_name(ctx), c->which);
    return text;
}

/* The call is refused with this status, its message says `word`, and nothing was written. */
static void refused(cell_context *ctx, const Call *c, cell_status got, cell_status wanted, const char *word,
                    const char *what)
{
    const char *label = label_of(ctx, c), *said = cell_last_error(ctx);
    check(got == wanted, label, what, got == CELL_OK ? "was accepted" : said);
    check(got != wanted || strstr(said, word) != NULL, label, what, said);
    check(untouched(c), label, what, "something was written");
}

static const char *tensor_of(const Call *c, int i)
{
    return c->d->tensors[c->list[i].tensor].name;
}

/* C for the CPU, which wants no alignment but an element's. */
static int is_plain(const cell_context *ctx)
{
    return cell_backend_of(ctx) == CELL_BACKEND_REFERENCE || cell_backend_of(ctx) == CELL_BACKEND_CPU;
}

static void attack_arguments(cell_context *ctx, const Call *c)
{
    for (int i = 0; i < c->n; i++) {
        void *args[MOST];
        memcpy(args, c->arg, sizeof args);
        args[i] = NULL;
        if (!(c->list[i].flags & CELL_ARG_OPTIONAL) && c->bytes[i])
            refused(ctx, c, run(ctx, c, args, &c->memory), CELL_NULL_POINTER, tensor_of(c, i),
                    "a required argument is null");
        size_t element = cell_dtype_bytes((cell_dtype)c->list[i].dtype);
        for (size_t off = 1; off < 16 && c->bytes[i]; off++) {
            int wrong = off % element != 0 || !is_plain(ctx);
            args[i] = (char *)c->arg[i] + off;
            if (wrong)
                refused(ctx, c, run(ctx, c, args, &c->memory), CELL_MISALIGNED, tensor_of(c, i),
                        "a misaligned argument");
        }
        for (int k = 0; k < c->n && c->bytes[i]; k++) {
            int both = c->list[i].role == CELL_ROLE_VALUE && c->list[k].role == CELL_ROLE_FINAL &&
                       c->list[i].tensor == c->list[k].tensor;
            if (i == k || !is_written(c, k) || !c->bytes[k] || both)
                continue;
            memcpy(args, c->arg, sizeof args);
            args[k] = args[i];
            if (c->list[i].role == CELL_ROLE_FINAL && c->list[k].role == CELL_ROLE_VALUE)
                continue;
            refused(ctx, c, run(ctx, c, args, &c->memory), CELL_BAD_ARGUMENT, "overlap",
                    "two arguments share memory");
        }
    }
}

static void attack_memory(cell_context *ctx, const Call *c)
{
    cell_memory m = c->memory;
    int device = !is_plain(ctx);
    if (m.workspace_bytes) {
        m.workspace_bytes = 0;
        if (c->which == 'b')
            refused(ctx, c, run(ctx, c, c->arg, &m), CELL_TOO_SMALL, "workspace has 0 bytes",
                    "a workspace of no bytes");
        m = c->memory;
        m.workspace = NULL;
        refused(ctx, c, run(ctx, c, c->arg, &m), CELL_NULL_POINTER, "workspace is null",
                "a workspace that is null");
        m = c->memory;
        m.workspace = (char *)m.workspace + 16;
        if (device && c->which == 'b')
            refused(ctx, c, run(ctx, c, c->arg, &m), CELL_MISALIGNED, "workspace", "a misaligned workspace");
    }
    m = c->memory;
    if (c->which != 's' && m.reserve_bytes) {
        m.reserve_bytes--;
        refused(ctx, c, run(ctx, c, c->arg, &m), CELL_TOO_SMALL, "reserve", "a reserve one byte short");
        m = c->memory;
        m.reserve = (char *)m.reserve + 8;
        refused(ctx, c, run(ctx, c, c->arg, &m), CELL_MISALIGNED, "reserve", "a misaligned reserve");
        m = c->memory;
        if (device && m.workspace_bytes && c->which == 'b') {
            m.workspace = m.reserve;
            refused(ctx, c, run(ctx, c, c->arg, &m), CELL_BAD_ARGUMENT, "overlap", "workspace in the reserve");
        }
    }
    if (c->which == 'b' && c->memory.reserve_bytes) {
        m = c->memory;
        m.reserve = NULL;
        refused(ctx, c, run(ctx, c, c->arg, &m), CELL_NULL_POINTER, "reserve is null",
                "backward without a reserve");
    }
    if (c->which == 's') {
        m.reserve = c->memory.workspace;
        m.reserve_bytes = 1 << 20;
        refused(ctx, c, run(ctx, c, c->arg, &m), CELL_BAD_ARGUMENT, "no reserve", "a step with a reserve");
    }
}

static void attack_sizes(cell_context *ctx, Call *c)
{
    for (int i = 0; i < c->d->n_sizes; i++) {
        int64_t was = c->sizes[i];
        c->sizes[i] = -1;
        refused(ctx, c, plain(ctx, c), CELL_BAD_SIZE, "is -1", "a negative size");
        c->sizes[i] = INT64_MAX;
        if (i + 1 < c->d->n_sizes)
            refused(ctx, c, plain(ctx, c), CELL_BAD_SIZE, "", "a size beyond all bounds");
        size_t bytes = 1;
        if (i + 1 < c->d->n_sizes && c->which == 'b')
            check(cell_workspace_bytes(ctx, c->d, c->sizes, &bytes) == CELL_BAD_SIZE ||
                      cell_reserve_bytes(ctx, c->d, c->sizes, &bytes) == CELL_BAD_SIZE ||
                      plain(ctx, c) == CELL_BAD_SIZE, label_of(ctx, c), "bytes at a size beyond all bounds",
                              "given");
        c->sizes[i] = was;
    }
    if (c->which == 's') {
        c->sizes[CELL_SIZE_T] = 2;
        refused(ctx, c, plain(ctx, c), CELL_BAD_SIZE, "T 2", "a step of two steps");
        c->sizes[CELL_SIZE_T] = 1;
    }
    c->flags = c->which == 'b' ? 4 : CELL_ACCUMULATE;
    refused(ctx, c, plain(ctx, c), CELL_BAD_ARGUMENT, "flags", "unknown flags");
    c->flags = 0;
    check(run(ctx, c, NULL, &c->memory) == CELL_NULL_POINTER, label_of(ctx, c), "no argument list", "accepted");
    check(cell_run_forward(ctx, c->d, NULL, c->arg, NULL, 0) == CELL_NULL_POINTER, label_of(ctx, c), "no sizes",
          "accepted");
    check(cell_run_forward(NULL, c->d, c->sizes, c->arg, NULL, 0) == CELL_NULL_POINTER, label_of(ctx, c),
          "no context", "accepted");
}

/* What is optional may be left out, one by one and all at once. */
static void leave_out(cell_context *ctx, const Call *c)
{
    void *none[MOST];
    memcpy(none, c->arg, sizeof none);
    for (int i = 0; i < c->n; i++) {
        void *args[MOST];
        if (!(c->list[i].flags & CELL_ARG_OPTIONAL))
            continue;
        memcpy(args, c->arg, sizeof args);
        args[i] = none[i] = NULL;
        check(run(ctx, c, args, &c->memory) == CELL_OK, label_of(ctx, c), "an optional argument is null",
              cell_last_error(ctx));
    }
    check(run(ctx, c, none, &c->memory) == CELL_OK, label_of(ctx, c), "all optional arguments are null",
          cell_last_error(ctx));
}

static int complete(const Call *c)
{
    for (int i = 0; i < c->n; i++)
        for (size_t k = 0; is_written(c, i) && k < c->bytes[i] / cell_dtype_bytes((cell_dtype)c->list[i].dtype); k++) {
            const void *at = c->arg[i];
            int t = c->list[i].dtype;
            int nan = t == CELL_F64    ? isnan(((const double *)at)[k])
                      : t == CELL_BF16 ? (((const uint16_t *)at)[k] & 0x7fff) > 0x7f80
                                       : isnan(((const float *)at)[k]);
            if (nan)
                return 0;
        }
    return 1;
}

/* Calls of legal but rare sizes write all that they must. */
static void rare_sizes(cell_context *ctx, const cell_desc *d)
{
    static const int64_t sizes[][3] = { { 0, 3, 4 }, { 2, 0, 4 }, { 0, 0, 1 }, { 1, 1, 1 }, { 3, 2, 1 }, { 1, 17,
            5 } };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        Call f = call_new(ctx, d, 'f', sizes[s][0], sizes[s][1], sizes[s][2]);
        Call b = call_new(ctx, d, 'b', sizes[s][0], sizes[s][1], sizes[s][2]);
        char what[64];
        snprintf(what, sizeof what, "B=%d T=%d D=%d", (int)sizes[s][0], (int)sizes[s][1], (int)sizes[s][2]);
        check(plain(ctx, &f) == CELL_OK, label_of(ctx, &f), what, cell_last_error(ctx));
        check(complete(&f), label_of(ctx, &f), what, "something was not written");
        cell_memory m = b.memory;
        m.reserve = f.memory.reserve;
        check(run(ctx, &b, b.arg, &m) == CELL_OK, label_of(ctx, &b), what, cell_last_error(ctx));
        check(complete(&b), label_of(ctx, &b), what, "something was not written");
        call_free(&f);
        call_free(&b);
    }
}

/* Backward over a reserve that is not that of its forward call. */
static void wrong_reserves(cell_context *ctx, cell_context *other, const cell_desc *d, const cell_desc *stranger)
{
    Call f = call_new(ctx, d, 'f', 2, 5, 4), b = call_new(ctx, d, 'b', 2, 5, 4);
    Call shorter = call_new(ctx, d, 'f', 2, 3, 4), strange = call_new(ctx, stranger, 'f', 1, 2, 3);
    Call elsewhere = call_new(other, d, 'f', 2, 5, 4);
    const char *label = label_of(ctx, &b);
    if (!b.memory.reserve_bytes)
        return;
    refused(ctx, &b, plain(ctx, &b), CELL_BAD_ARGUMENT, "holds nothing that a forward call saved",
            "backward before forward");
    /* Memory for any of them. */
    size_t room = 1 << 20;
    free(b.memory.reserve);
    b.memory.reserve = aligned(room);
    b.memory.reserve_bytes = room;
    Call *by[] = { &shorter, &strange, &elsewhere };
    const char *words[] = { "T=3", stranger->key, cell_backend_name(other) };
    for (int i = 0; i < 3; i++) {
        cell_memory m = by[i]->memory;
        m.reserve = b.memory.reserve;
        m.reserve_bytes = room;
        if (!by[i]->memory.reserve_bytes)
            continue;
        cell_context *with = i == 2 ? other : ctx;
        check(run(with, by[i], by[i]->arg, &m) == CELL_OK, label, "another forward", cell_last_error(with));
        refused(ctx, &b, plain(ctx, &b), CELL_BAD_ARGUMENT, i == 2 ? "reserve" : words[i],
                "the reserve of another forward");
    }
    /* Inference leaves it as it was; then the right one. */
    cell_memory m = f.memory;
    m.reserve = NULL;
    m.reserve_bytes = 0;
    check(run(ctx, &f, f.arg, &m) == CELL_OK, label, "inference", cell_last_error(ctx));
    refused(ctx, &b, plain(ctx, &b), CELL_BAD_ARGUMENT, "reserve", "the reserve after inference");
    m.reserve = b.memory.reserve;
    m.reserve_bytes = room;
    check(run(ctx, &f, f.arg, &m) == CELL_OK, label, "forward", cell_last_error(ctx));
    /* Its bytes elsewhere are as good. */
    void *copy = aligned(room);
    memcpy(copy, b.memory.reserve, room);
    free(b.memory.reserve);
    b.memory.reserve = copy;
    check(plain(ctx, &b) == CELL_OK && complete(&b), label, "a copy of the right reserve", cell_last_error(ctx));
    b.sizes[b.d->n_sizes - 1]++;
    check(plain(ctx, &b) == CELL_BAD_ARGUMENT && strstr(cell_last_error(ctx), "t0=0"), label, "another t0",
          cell_last_error(ctx));
    call_free(&f);
    call_free(&b);
    call_free(&shorter);
    call_free(&strange);
    call_free(&elsewhere);
}

/* A step and a sequence in place give what they give elsewhere. */
static void in_place(cell_context *ctx, const cell_desc *d)
{
    for (const char *which = "fs"; *which; which++) {
        Call c = call_new(ctx, d, *which, 2, *which == 's' ? 1 : 4, 4);
        void *args[MOST], *state[MOST] = { 0 };
        memcpy(args, c.arg, sizeof args);
        check(plain(ctx, &c) == CELL_OK, label_of(ctx, &c), "states elsewhere", cell_last_error(ctx));
        for (int i = 0; i < c.n; i++)
            for (int k = 0; k < c.n; k++)
                if (c.list[i].role == CELL_ROLE_FINAL && c.list[k].role == CELL_ROLE_VALUE &&
                    c.list[k].tensor == c.list[i].tensor) {
                    state[i] = aligned(c.bytes[k]);
                    memcpy(state[i], c.arg[k], c.bytes[k]);
                    args[i] = args[k] = state[i];
                }
        check(run(ctx, &c, args, &c.memory) == CELL_OK, label_of(ctx, &c), "states in place",
              cell_last_error(ctx));
        for (int i = 0; i < c.n; i++) {
            if (state[i])
                check(memcmp(state[i], c.arg[i], c.bytes[i]) == 0, label_of(ctx, &c), "states in place", "differ");
            free(state[i]);
        }
        call_free(&c);
    }
}

/* What inference needs, over the number of steps: bytes for each further step. */
static size_t growth(cell_context *ctx, const cell_desc *d, int64_t dim)
{
    size_t bytes[2];
    for (int k = 0; k < 2; k++) {
        int64_t sizes[CELL_MAX_SIZES] = { 3, k ? 1000 : 10 };
        for (int i = 2; i + 1 < d->n_sizes; i++)
            sizes[i] = dim;
        check(cell_inference_bytes(ctx, d, sizes, &bytes[k]) == CELL_OK, d->key, "inference bytes",
              cell_last_error(ctx));
    }
    return (bytes[1] - bytes[0]) / 990;
}

static void inference_memory(cell_context *ctx)
{
    char said[64];
    size_t spin = growth(ctx, spin_instance(), 64), gru = growth(ctx, gru_instance(), 64);
    snprintf(said, sizeof said, "%zu bytes a step", spin);
    check(spin == 0, "spin", "inference memory grows", said);
    /* The projection of the input, 3 H floats for each of 3 sequences: nothing else is for all steps. */
    snprintf(said, sizeof said, "%zu bytes a step", gru);
    check(gru == 3 * 3 * 64 * sizeof(float), "gru", "inference memory beside the projection", said);
    Call c = call_new(ctx, spin_instance(), 'f', 2, 50, 7);
    cell_memory m = c.memory;
    m.reserve = NULL;
    m.reserve_bytes = 0;
    cell_inference_bytes(ctx, c.d, c.sizes, &m.workspace_bytes);
    check(run(ctx, &c, c.arg, &m) == CELL_OK, "spin", "inference in no more", cell_last_error(ctx));
    m.workspace_bytes--;
    check(run(ctx, &c, c.arg, &m) == CELL_TOO_SMALL, "spin", "inference in less", "accepted");
    call_free(&c);
}

typedef struct Worker { const cell_desc *d; int backward, ok; void *want[MOST]; } Worker;

static void *work(void *data)
{
    Worker *w = data;
    cell_context *ctx = NULL;
    w->ok = cell_context_create(&ctx, CELL_BACKEND_REFERENCE, 0, NULL, 0) == CELL_OK;
    for (int round = 0; round < 20 && w->ok; round++) {
        Call f = call_new(ctx, w->d, 'f', 2, 6, 5);
        for (int i = 0; i < f.n; i++)
            if (!is_written(&f, i))
                memset(f.arg[i], 0x3c, f.bytes[i]);
        w->ok = plain(ctx, &f) == CELL_OK;
        for (int i = 0; i < f.n && w->ok; i++) {
            if (!is_written(&f, i) || !f.bytes[i])
                continue;
            if (round == 0) {
                w->want[i] = f.arg[i];
                f.arg[i] = NULL;
            } else {
                w->ok = memcmp(w->want[i], f.arg[i], f.bytes[i]) == 0;
            }
        }
        /* A failure of this thread's is in its own context. */
        void *none[MOST] = { 0 };
        w->ok &= cell_run_forward(ctx, w->d, f.sizes, none, NULL, 0) == CELL_NULL_POINTER;
        w->ok &= strncmp(cell_last_error(ctx), w->d->key, strlen(w->d->key)) == 0;
        call_free(&f);
    }
    cell_context_destroy(ctx);
    return NULL;
}

static void threads(void)
{
    Worker w[4] = { { .d = gru_instance() }, { .d = e79_instance() }, { .d = gru_instance() },
            { .d = spin_instance() } };
    pthread_t id[4];
    for (int i = 0; i < 4; i++)
        if (pthread_create(&id[i], NULL, work, &w[i]))
            abort();
    for (int i = 0; i < 4; i++) {
        pthread_join(id[i], NULL);
        check(w[i].ok, w[i].d->key, "a thread with a context of its own", "differs or fails");
        for (int k = 0; k < MOST; k++)
            free(w[i].want[k]);
    }
}

/* A device's context is of no use after a fork, and says so; one in host memory goes on. */
static void forks(void)
{
    cell_context *host, *device;
    cell_backend far = *cell_reference_backend();
    far.host_memory = 0;
    check(cell_context_create(&host, CELL_BACKEND_REFERENCE, 0, NULL, 0) == CELL_OK, "fork", "context", "none");
    check(cell_context_create_with(&device, &far, 0, NULL, 0) == CELL_OK, "fork", "context", "none");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        Call c = call_new(host, gru_instance(), 'f', 1, 2, 3);
        int ok = plain(host, &c) == CELL_OK && plain(device, &c) == CELL_UNSUPPORTED &&
                 strstr(cell_last_error(device), "fork") && cell_synchronize(device) == CELL_UNSUPPORTED;
        cell_context_destroy(device);
        cell_context_destroy(host);
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    check(status == 0, "fork", "contexts in the child", "not as promised");
    Call c = call_new(host, gru_instance(), 'f', 1, 2, 3);
    check(plain(host, &c) == CELL_OK && plain(device, &c) == CELL_OK, "fork", "contexts in the parent",
          cell_last_error(device));
    call_free(&c);
    cell_context_destroy(host);
    cell_context_destroy(device);
}

static int64_t claimed, most_used;

static int64_t claim(void *self, int attribute)
{
    return attribute == CELL_ATTR_SMEM_MAX ? claimed : cell_emulated_backend()->attribute(self, attribute);
}

static cell_status watch(void *self, const cell_launch *launch, cell_error *err)
{
    most_used = (int64_t)launch->smem > most_used ? (int64_t)launch->smem : most_used;
    return cell_emulated_backend()->launch(self, launch, err);
}

static double farthest(const Call *got, const Call *want)
{
    double worst = 0;
    for (int i = 0; i < got->n; i++) {
        double error = 0, size = 0;
        const double *a = got->arg[i], *b = want->arg[i];
        if (!is_written(got, i) || got->list[i].dtype != CELL_F64)
            continue;
        for (size_t k = 0; k < got->bytes[i] / 8; k++) {
            error += (a[k] - b[k]) * (a[k] - b[k]);
            size += b[k] * b[k];
        }
        worst = fmax(worst, sqrt(error / (size + 1e-300)));
        if (isnan(error))
            return INFINITY;
    }
    return worst;
}

/* Both directions on a device with so much shared memory, against plain C in the same type. */
static size_t on_device(cell_context *reference, const cell_desc *d, int64_t memory)
{
    cell_backend small = *cell_emulated_backend();
    cell_context *ctx[2] = { NULL, reference };
    Call f[2], b[2];
    char what[64];
    small.attribute = claim;
    small.launch = watch;
    claimed = memory;
    most_used = 0;
    snprintf(what, sizeof what, "a block of %d bytes", (int)memory);
    check(cell_context_create_with(&ctx[0], &small, 0, NULL, 0) == CELL_OK, "wide", what, "no context");
    for (int k = 0; k < 2; k++) {
        f[k] = call_new(ctx[k], d, 'f', 1, 5, 3);
        b[k] = call_new(ctx[k], d, 'b', 1, 5, 3);
    }
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < f[k].n; i++)
            if (!is_written(&f[k], i))
                memcpy(f[k].arg[i], f[0].arg[i], f[k].bytes[i]);
        for (int i = 0; i < b[k].n; i++)
            for (int j = 0; j < f[k].n && !is_written(&b[k], i); j++) {
                int same = b[k].list[i].tensor == f[k].list[j].tensor && b[k].list[i].role == f[k].list[j].role;
                memcpy(b[k].arg[i], same ? f[k].arg[j] : b[0].arg[i], b[k].bytes[i]);
            }
        cell_memory m = b[k].memory;
        m.reserve = f[k].memory.reserve;
        check(plain(ctx[k], &f[k]) == CELL_OK, "wide forward", what, cell_last_error(ctx[k]));
        check(run(ctx[k], &b[k], b[k].arg, &m) == CELL_OK, "wide backward", what, cell_last_error(ctx[k]));
    }
    check(most_used <= memory, "wide", what, "a kernel took more");
    check(farthest(&f[0], &f[1]) < 1e-10 && farthest(&b[0], &b[1]) < 1e-10, "wide", what, "differs");
    size_t reserve = f[0].memory.reserve_bytes;
    for (int k = 0; k < 2; k++) {
        call_free(&f[k]);
        call_free(&b[k]);
    }
    cell_context_destroy(ctx[0]);
    return reserve;
}

/* One library on devices with less and less memory, those of --archs; what it takes instead, on so many of them, is said
 * once for each context. Checkpoints closer together take more room, and every state more still. */
static void small_devices(cell_context *reference, const cell_desc *d, int instead)
{
    static const int64_t memory[] = { 227 * 1024, 163 * 1024, 99 * 1024 };
    size_t reserve[3], any;
    char said[4096] = "";
    FILE *log = tmpfile();
    int kept = dup(STDERR_FILENO), lines = 0;
    if (!log)
        abort();
    fflush(stderr);
    dup2(fileno(log), STDERR_FILENO);
    setenv("CELL_VERBOSE", "1", 1);
    for (int i = 0; i < 3; i++)
        reserve[i] = on_device(reference, d, memory[i]);
    unsetenv("CELL_VERBOSE");
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(log);
    for (int n = 0; fgets(said, sizeof said, log); lines += n) {
        n = strstr(said, "taking schedule") != NULL;
        check(!n || strstr(said, d->key), "wide", "what is said", said);
    }
    fclose(log);
    snprintf(said, sizeof said, "%d lines", lines);
    check(lines == instead, "wide", "the smaller plan is said", said);
    for (int i = 1; i < 3; i++) {
        snprintf(said, sizeof said, "%zu bytes, then %zu", reserve[i - 1], reserve[i]);
        check(i < 3 - instead ? reserve[i - 1] == reserve[i] : reserve[i - 1] < reserve[i], d->key, "reserves", said);
    }
    int64_t sizes[CELL_MAX_SIZES] = { 1, 5, 3 };
    check(cell_reserve_bytes(NULL, d, sizes, &any) == CELL_OK, "wide", "the largest reserve",
          "none");
    for (int i = 0; i < 3; i++)
        check(reserve[i] <= any, "wide", "the reserve for any device", "is smaller than that of one");
}

static void attack(cell_context *ctx, const cell_desc *d)
{
    for (const char *which = "fbs"; *which; which++) {
        Call c = call_new(ctx, d, *which, 2, *which == 's' ? 1 : 3, 4);
        attack_arguments(ctx, &c);
        attack_memory(ctx, &c);
        attack_sizes(ctx, &c);
        if (*which == 'b') {
            Call f = call_new(ctx, d, 'f', 2, 3, 4);
            check(plain(ctx, &f) == CELL_OK, label_of(ctx, &f), "forward", cell_last_error(ctx));
            free(c.memory.reserve);
            c.memory.reserve = f.memory.reserve;
            f.memory.reserve = NULL;
            call_free(&f);
        }
        leave_out(ctx, &c);
        call_free(&c);
    }
    rare_sizes(ctx, d);
    in_place(ctx, d);
}

int main(void)
{
    const cell_desc *cells[] = { spin_instance(), gru_instance(), e79_instance(), layernorm_instance() };
    cell_context *emulated, *reference;
    char why[256] = "";
    check(cell_context_create(&emulated, CELL_BACKEND_EMULATED, 0, why, sizeof why) == CELL_OK, "emulated",
          "context", why);
    check(cell_context_create(&reference, CELL_BACKEND_REFERENCE, 0, why, sizeof why) == CELL_OK, "reference",
          "context", why);
    for (int i = 0; i < 4 && !failed; i++) {
        attack(emulated, cells[i]);
        attack(reference, cells[i]);
        wrong_reserves(emulated, reference, cells[i], cells[(i + 1) % 4]);
        wrong_reserves(reference, emulated, cells[i], cells[(i + 1) % 4]);
    }
    inference_memory(emulated);
    small_devices(reference, wide_instance(), 2);
    small_devices(reference, wider_instance(), 1);
    threads();
    forks();
    cell_context_destroy(emulated);
    cell_context_destroy(reference);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
