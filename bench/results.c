/* results.c: whether two builds of a cell give the same. In: a call. Out: a file with what one build writes, outputs and
 * gradients, each with how far roundings may take it; or the tensor of another build that is farther off. The limit is
 * the ladder's (docs/design.md), with the first build in place of the reference: every input is moved to a neighbour in its
 * type, four times; d is the farthest that a tensor moves (RMS). A neighbour is at least two roundoffs u away, so d / 2 is
 * no less than what moves of one u give, and 16 (d / 2 + u rms) no more than the ladder's limit for moves twice as large.
 * The RMS of a large tensor hides one wrong element, so each has a limit too: of n errors of that RMS the largest is about
 * sqrt(2 ln n) times it, and d and the size are the element's own where these are larger.
 * Where the limit is more than half of a tensor, roundings decide it: inputs are drawn smaller, and what is still
 * undecided is not compared. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "half.h"

enum { DRAWS = 4, SCALES = 4 };
static const double scales[SCALES] = { 1, 0.25, 1.0 / 16, 1.0 / 64 };

typedef struct Tensor {
    const cell_arg *arg;
    void *device, *host;
    int64_t n;
    double rms, moved;
    float *each;                  /* how far each element moves */
    bool decided;
} Tensor;

typedef struct Results { Tensor *t; int n; } Results;

static double roundoff(int dtype)
{
    return dtype == CELL_BF16 ? 0x1p-9 : dtype == CELL_F16 ? 0x1p-12 : dtype == CELL_F64 ? 0x1p-53 : 0x1p-24;
}

/* Of all types that values pass through: the coarsest. */
static double coarsest(const cell_desc *d)
{
    double u = 0x1p-53;
    for (int i = 0; i < d->n_forward_args; i++)
        u = d->forward_args[i].dtype <= CELL_F64 ? fmax(u, roundoff(d->forward_args[i].dtype)) : u;
    return u;
}

static double value(const void *p, int64_t i, int dtype)
{
    switch (dtype) {
    case CELL_BF16: return cell_bf16_to_f32(((const uint16_t *)p)[i]);
    case CELL_F16: return cell_f16_to_f32(((const uint16_t *)p)[i]);
    case CELL_F32: return ((const float *)p)[i];
    case CELL_F64: return ((const double *)p)[i];
    case CELL_E4M3: return cell_e4m3_to_f32(((const uint8_t *)p)[i]);
    case CELL_E5M2: return cell_e5m2_to_f32(((const uint8_t *)p)[i]);
    case CELL_I32: return ((const int32_t *)p)[i];
    default: return ((const uint8_t *)p)[i];
    }
}

static size_t bytes_of(const Tensor *t)
{
    return (size_t)t->n * cell_dtype_bytes((cell_dtype)t->arg->dtype);
}

static void *take(size_t bytes)
{
    void *p = malloc(bytes + 16);
    if (!p)
        call_failed("memory for results", "the host has too little");
    return p;
}

static void add(Call *c, Results *r, const cell_arg *a, void *device)
{
    Tensor t = { .arg = a, .device = device };
    if (!device || !call_writes(c->d, a) || cell_arg_elements(c->d, a, c->sizes, &t.n) != CELL_OK)
        return;
    t.host = take(bytes_of(&t));
    t.each = take(sizeof *t.each * (size_t)t.n);
    r->t[r->n++] = t;
}

static Results results_open(Call *c)
{
    Results r = { .t = take(sizeof *r.t * (size_t)(c->d->n_forward_args + c->d->n_backward_args)) };
    for (int i = 0; i < c->d->n_forward_args; i++)
        add(c, &r, &c->d->forward_args[i], c->forward[i]);
    for (int i = 0; i < c->d->n_backward_args; i++)
        add(c, &r, &c->d->backward_args[i], c->backward[i]);
    return r;
}

static void results_close(Results *r)
{
    for (int i = 0; i < r->n; i++) {
        free(r->t[i].host);
        free(r->t[i].each);
    }
    free(r->t);
}

static void run(Call *c, double scale, uint64_t move)
{
    call_fill(c, scale, move);
    call_run(c, true);
    if (cell_synchronize(c->ctx) != CELL_OK)
        call_failed("the call", cell_last_error(c->ctx));
}

static void fetch(Call *c, const Tensor *t, void *to)
{
    if (t->n && cell_copy(c->ctx, to, t->device, bytes_of(t)) != CELL_OK)
        call_failed("copying results", cell_last_error(c->ctx));
}

/* RMS of a tensor, or of its difference from `b`; NaN where anything is not finite. */
static double rms(const Tensor *t, const void *a, const void *b)
{
    double sum = 0;
    for (int64_t i = 0; i < t->n; i++) {
        double x = value(a, i, t->arg->dtype) - (b ? value(b, i, t->arg->dtype) : 0);
        sum += x * x;
    }
    return t->n ? sqrt(sum / (double)t->n) : 0;
}

/* The farthest that each element has moved so far. */
static void farthest(Tensor *t, const void *moved)
{
    for (int64_t i = 0; i < t->n; i++) {
        float far = (float)fabs(value(moved, i, t->arg->dtype) - value(t->host, i, t->arg->dtype));
        t->each[i] = far > t->each[i] ? far : t->each[i];
    }
}

static double allowed(double moved, double size, double u)
{
    return 16 * (moved / 2 + u * size) + 0x1p-126;
}

static double limit(const Tensor *t, double u)
{
    return allowed(t->moved, t->rms, u);
}

/* The error of the element that is farthest beyond its limit, as a multiple of that. */
static double worst(const Tensor *t, const void *mine, double u)
{
    double most = 0, tail = t->n > 2 ? sqrt(2 * log((double)t->n)) : 1;
    for (int64_t i = 0; i < t->n; i++) {
        double want = value(t->host, i, t->arg->dtype), off = fabs(value(mine, i, t->arg->dtype) - want);
        double may = tail * fmax(limit(t, u), allowed(t->each[i], fabs(want), u));
        most = !(off / may <= most) ? off / may : most;
    }
    return most;
}

/* How many tensors roundings decide at this scale; fills in all that is known of each. */
static int measure(Call *c, Results *r, double scale)
{
    int undecided = 0;
    double u = coarsest(c->d);
    run(c, scale, 0);
    for (int i = 0; i < r->n; i++) {
        fetch(c, &r->t[i], r->t[i].host);
        r->t[i].rms = rms(&r->t[i], r->t[i].host, NULL);
        r->t[i].moved = 0;
        memset(r->t[i].each, 0, sizeof *r->t[i].each * (size_t)r->t[i].n);
    }
    for (uint64_t draw = 1; draw <= DRAWS; draw++) {
        run(c, scale, 0x9e3779b97f4a7c15ull * draw);
        for (int i = 0; i < r->n; i++) {
            void *moved = take(bytes_of(&r->t[i]));
            fetch(c, &r->t[i], moved);
            double far = rms(&r->t[i], moved, r->t[i].host);
            r->t[i].moved = far > r->t[i].moved || isnan(far) ? far : r->t[i].moved;
            farthest(&r->t[i], moved);
            free(moved);
        }
    }
    for (int i = 0; i < r->n; i++) {
        Tensor *t = &r->t[i];
        t->decided = t->rms == 0 ? t->moved == 0 : limit(t, u) <= t->rms / 2;     /* no with NaN */
        undecided += !t->decided;
    }
    return undecided;
}

typedef struct Head { double scale, rms, moved; int64_t decided, n; } Head;

static void transfer(FILE *f, void *p, size_t bytes, bool write)
{
    if ((write ? fwrite(p, 1, bytes, f) : fread(p, 1, bytes, f)) != bytes)
        call_failed("results", write ? "cannot be written" : "cannot be read");
}

void results_save(Call *c, const char *path)
{
    Results r = results_open(c);
    int least = measure(c, &r, scales[0]), best = 0;
    for (int k = 1; k < SCALES && least; k++) {
        int n = measure(c, &r, scales[k]);
        best = n < least ? k : best;
        least = n < least ? n : least;
    }
    if (best + 1 < SCALES && least)
        measure(c, &r, scales[best]);
    int decided = 0;
    for (int i = 0; i < r.n; i++)
        decided += r.t[i].decided;
    if (!decided)
        call_failed("the results", "are no numbers, or such that roundings decide all of them: nothing could be compared");
    FILE *f = fopen(path, "wb");
    if (!f)
        call_failed("results", "cannot be written");
    for (int i = 0; i < r.n; i++) {
        Head h = { scales[best], r.t[i].rms, r.t[i].moved, r.t[i].decided, r.t[i].n };
        transfer(f, &h, sizeof h, true);
        transfer(f, r.t[i].host, bytes_of(&r.t[i]), true);
        transfer(f, r.t[i].each, sizeof *r.t[i].each * (size_t)r.t[i].n, true);
    }
    if (fclose(f))
        call_failed("results", "cannot be written");
    results_close(&r);
}

static const char *name_of(const Call *c, const cell_arg *a)
{
    static char text[256];
    bool gradient = a->role == CELL_ROLE_D_VALUE;
    snprintf(text, sizeof text, "%s%s%s", gradient ? "d_" : "", c->d->tensors[a->tensor].name,
             a->role == CELL_ROLE_FINAL ? " behind the last step" : "");
    return text;
}

const char *results_differ(Call *c, const char *path)
{
    static char text[512];
    Results r = results_open(c);
    FILE *f = fopen(path, "rb");
    double u = coarsest(c->d);
    *text = 0;
    if (!f)
        call_failed("results", "there are none to compare with");
    for (int i = 0; i < r.n; i++) {
        Tensor *t = &r.t[i];
        Head h;
        transfer(f, &h, sizeof h, false);
        if (h.n != t->n)
            call_failed("results", "they are of another call");
        transfer(f, t->host, bytes_of(t), false);
        transfer(f, t->each, sizeof *t->each * (size_t)t->n, false);
        if (i == 0)
            run(c, h.scale, 0);
        t->rms = h.rms;
        t->moved = h.moved;
        void *mine = take(bytes_of(t));
        fetch(c, t, mine);
        double off = rms(t, mine, t->host);
        double size = t->rms > 0 ? t->rms : 1, beyond = h.decided ? worst(t, mine, u) : 0;
        if (h.decided && !*text && !(off <= limit(t, u)))
            snprintf(text, sizeof text, "%s is off by %.2g of its size, where roundings explain %.2g", name_of(c, t->arg),
                     off / size, limit(t, u) / size);
        else if (!*text && !(beyond <= 1))
            snprintf(text, sizeof text, "%s has an element that is off by %.2g times what roundings explain",
                     name_of(c, t->arg), beyond);
        free(mine);
    }
    fclose(f);
    results_close(&r);
    return *text ? text : NULL;
}
