/* lstm: the cell as plain C, written by cellc from lstm.cell:3.
 * The kernels are checked against it, and it is the backend for machines without a GPU.
 *
 * Sizes: B sequences, T steps, D, H, t0 (number of the first step).
 * Arguments, row-major, [B, T, axes] for inputs and outputs, [B, axes] for states (? may be NULL):
 * forward: 0 x, 1 weight_ih, 2 weight_hh, 3 bias_ih, 4 bias_hh, 5 h?, 6 c?, 7 y, 8 final h?, 9 final c?
 * backward: 0 x, 1 weight_ih, 2 weight_hh, 3 bias_ih, 4 bias_hh, 5 h?, 6 c?, 7 gradient into y?,
 *     8 gradient into final h?, 9 gradient into final c?, 10 gradient of x?, 11 gradient of weight_ih?,
 *     12 gradient of weight_hh?, 13 gradient of bias_ih?, 14 gradient of bias_hh?, 15 gradient of h?,
 *     16 gradient of c?
 * A call returns 0, or 5 when memory ran out. */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tgmath.h>

#undef I
#ifndef CELL_REAL
#define CELL_REAL float
#endif
typedef CELL_REAL real;

extern const int lstm_ref_real_bytes;
size_t lstm_ref_reserve_bytes(const int64_t *sizes);
int lstm_ref_forward(const int64_t *sizes, void *const *args, void *reserve, int flags);
int lstm_ref_backward(const int64_t *sizes, void *const *args, void *reserve, int flags);
int lstm_ref_step(const int64_t *sizes, void *const *args, void *reserve, int flags);

const int lstm_ref_real_bytes = sizeof(real);

/* What one step of one sequence reads and writes. */
typedef struct Step {
    int64_t D;                         /* size */
    int64_t H;                         /* size */
    const real *x;                     /* input [D] */
    const real *weight_ih;             /* param [4*H, D] */
    const real *weight_hh;             /* param [4*H, H] */
    const real *bias_ih;               /* param [4*H] */
    const real *bias_hh;               /* param [4*H] */
    const real *h;                     /* state before the step [H] */
    const real *c;                     /* state before the step [H] */
    const real *dout_y;                /* gradient into the output [H] */
    const real *dnext_h;               /* gradient into the state after the step [H] */
    const real *dnext_c;               /* gradient into the state after the step [H] */
    real *h_next;                      /* state after the step [H] */
    real *c_next;                      /* state after the step [H] */
    real *y;                           /* output [H] */
    real *d_x;                         /* gradient of the input at the step */
    real *grad_x;                      /* where it goes, NULL: not wanted */
    real *grad_weight_ih;              /* where it goes, NULL: not wanted */
    real *grad_weight_hh;              /* where it goes, NULL: not wanted */
    real *grad_bias_ih;                /* where it goes, NULL: not wanted */
    real *grad_bias_hh;                /* where it goes, NULL: not wanted */
    real *d_h;                         /* gradient of the state before the step */
    real *grad_h;                      /* where it goes, NULL: not wanted */
    real *d_c;                         /* gradient of the state before the step */
    real *grad_c;                      /* where it goes, NULL: not wanted */
    int64_t t;                         /* number of the step */
    real *p;
    real *o;
    real *f;
    real *i;
    real *g;
    real *d_y;
    real *d_h_next;
    real *d_c_next;
    real *d_g;
    real *value;
    real *d_i;
    real *value2;
    real *d_f;
    real *value3;
    real *d_o;
    real *value4;
    real *d_p;
} Step;

/* Memory of one call. What could not be had is noted, and the call fails before anything is written. */
typedef struct Heap { void *block[23]; int n, failed; } Heap;

static inline real *take(Heap *heap, int64_t elements)
{
    void *block = NULL;
    if (elements >= 0 && elements < (int64_t)(PTRDIFF_MAX / sizeof(real)))
        block = calloc((size_t)elements + 1, sizeof(real));
    if (!block)
        heap->failed = 1;
    heap->block[heap->n++] = block;
    return block;
}

static int release(Heap *heap, int status)
{
    while (heap->n)
        free(heap->block[--heap->n]);
    return status;
}

/* a * b, or INT64_MAX where that overflows */
static inline int64_t times(int64_t a, int64_t b) { return a > 0 && b > INT64_MAX / a ? INT64_MAX : a * b; }

/* A state: of all sequences at all steps (0: the initial one) if kept for backward, else two that
 * alternate. */
typedef struct Store { real *data; int64_t elements, T; int kept; } Store;

static inline real *at_step(const Store *s, int64_t b, int64_t t)
{
    return s->data + (s->kept ? b * (s->T + 1) + t : t % 2) * s->elements;
}

/* A copy, or zeros where there is nothing to copy. */
static inline void fill(real *to, const real *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = from ? from[i] : 0;
}

/* Writes or adds a gradient where it is wanted. */
static inline void put(real *to, const real *from, int64_t n, int add)
{
    for (int64_t i = 0; to && i < n; i++)
        to[i] = add ? to[i] + from[i] : from[i];
}

/* 1/(1 + e^-x), written so that e^|x| is never computed: it would overflow. */
static inline real sigmoid(real x)
{
    real e = exp(-fabs(x));
    return (x >= 0 ? 1 : e) / (1 + e);
}

/* One step of one sequence. */
static void step_forward(const Step *step)
{
    const int64_t D = step->D, H = step->H;
    const real *const x = step->x, *const weight_ih = step->weight_ih;
    const real *const weight_hh = step->weight_hh, *const bias_ih = step->bias_ih;
    const real *const bias_hh = step->bias_hh, *const h = step->h, *const c = step->c;
    real *const h_next = step->h_next, *const c_next = step->c_next, *const y = step->y;
    real *const p = step->p, *const o = step->o, *const f = step->f, *const i = step->i;
    real *const g = step->g;

    /* lstm.cell:14: p[r:4*H] = sum[d] weight_ih[r,d] * x[d] + bias_ih[r] + sum[j] weight_hh[r,j] * h[j]
            + b... */
    for (int64_t r = 0; r < 4 * H; r++) {
        real sum = 0;
        for (int64_t d = 0; d < D; d++)
            sum += weight_ih[r * D + d] * x[d];
        real sum2 = 0;
        for (int64_t j = 0; j < H; j++)
            sum2 += weight_hh[r * H + j] * h[j];
        p[r] = sum + bias_ih[r] + sum2 + bias_hh[r];
    }

    /* lstm.cell:18: o[a:H] = sigmoid(p[3*H + a]); */
    for (int64_t a = 0; a < H; a++)
        o[a] = sigmoid(p[3 * H + a]);

    /* lstm.cell:16: f[a:H] = sigmoid(p[H + a]); */
    for (int64_t a = 0; a < H; a++)
        f[a] = sigmoid(p[H + a]);

    /* lstm.cell:15: i[a:H] = sigmoid(p[a]); */
    for (int64_t a = 0; a < H; a++)
        i[a] = sigmoid(p[a]);

    /* lstm.cell:17: g[a:H] = tanh(p[2*H + a]); */
    for (int64_t a = 0; a < H; a++)
        g[a] = tanh(p[2 * H + a]);

    /* lstm.cell:20: c'[a] = f[a] * c[a] + i[a] * g[a]; */
    for (int64_t a = 0; a < H; a++)
        c_next[a] = f[a] * c[a] + i[a] * g[a];

    /* lstm.cell:21: h'[a] = o[a] * tanh(c'[a]); */
    for (int64_t a = 0; a < H; a++)
        h_next[a] = o[a] * tanh(c_next[a]);

    /* lstm.cell:22: y[a] = h'[a]; */
    for (int64_t a = 0; a < H; a++)
        y[a] = h_next[a];
}

int lstm_ref_forward(const int64_t *sizes, void *const *args, void *reserve, int flags)
{
    const int64_t B = sizes[0], T = sizes[1], t0 = sizes[4];
    Heap heap = { .n = 0 };
    Step s = { .t = t0, .D = sizes[2], .H = sizes[3] };
    (void)flags;
    s.p = take(&heap, times(4, s.H));
    s.o = take(&heap, s.H);
    s.f = take(&heap, s.H);
    s.i = take(&heap, s.H);
    s.g = take(&heap, s.H);
    Store h_store = { .elements = s.H, .T = T, .kept = reserve != NULL };
    h_store.data = reserve ? (real *)reserve : take(&heap, times(2, s.H));
    Store c_store = { .elements = s.H, .T = T, .kept = reserve != NULL };
    c_store.data = reserve ? h_store.data + B * (T + 1) * h_store.elements : take(&heap, times(2, s.H));
    if (heap.failed)
        return release(&heap, 5);

    s.weight_ih = args[1];
    s.weight_hh = args[2];
    s.bias_ih = args[3];
    s.bias_hh = args[4];
    for (int64_t b = 0; b < B; b++) {
        const real *h_given = args[5];
        fill(at_step(&h_store, b, 0), h_given ? h_given + b * s.H : NULL, s.H);
        const real *c_given = args[6];
        fill(at_step(&c_store, b, 0), c_given ? c_given + b * s.H : NULL, s.H);
        for (int64_t t = 0; t < T; t++) {
            s.x = (const real *)args[0] + (b * T + t) * s.D;
            s.t = t0 + t;
            s.h = at_step(&h_store, b, t);
            s.h_next = at_step(&h_store, b, t + 1);
            s.c = at_step(&c_store, b, t);
            s.c_next = at_step(&c_store, b, t + 1);
            s.y = (real *)args[7] + (b * T + t) * s.H;
            step_forward(&s);
        }
        if (args[8])
            fill((real *)args[8] + b * s.H, at_step(&h_store, b, T), s.H);
        if (args[9])
            fill((real *)args[9] + b * s.H, at_step(&c_store, b, T), s.H);
    }
    return release(&heap, 0);
}

/* The adjoint of one step: its values again, then their gradients. */
static void step_backward(const Step *step)
{
    const int64_t D = step->D, H = step->H;
    const real *const x = step->x, *const weight_ih = step->weight_ih;
    const real *const weight_hh = step->weight_hh, *const bias_ih = step->bias_ih;
    const real *const bias_hh = step->bias_hh, *const h = step->h, *const c = step->c;
    const real *const dout_y = step->dout_y, *const dnext_h = step->dnext_h;
    const real *const dnext_c = step->dnext_c;
    real *const c_next = step->c_next, *const d_x = step->d_x, *const grad_x = step->grad_x;
    real *const grad_weight_ih = step->grad_weight_ih;
    real *const grad_weight_hh = step->grad_weight_hh, *const grad_bias_ih = step->grad_bias_ih;
    real *const grad_bias_hh = step->grad_bias_hh, *const d_h = step->d_h, *const d_c = step->d_c;
    real *const p = step->p, *const o = step->o, *const f = step->f, *const i = step->i;
    real *const g = step->g, *const d_y = step->d_y, *const d_h_next = step->d_h_next;
    real *const d_c_next = step->d_c_next, *const d_g = step->d_g, *const value = step->value;
    real *const d_i = step->d_i, *const value2 = step->value2, *const d_f = step->d_f;
    real *const value3 = step->value3, *const d_o = step->d_o, *const value4 = step->value4;
    real *const d_p = step->d_p;

    /* lstm.cell:14: p[r:4*H] = sum[d] weight_ih[r,d] * x[d] + bias_ih[r] + sum[j] weight_hh[r,j] * h[j]
            + b... */
    for (int64_t r = 0; r < 4 * H; r++) {
        real sum = 0;
        for (int64_t d = 0; d < D; d++)
            sum += weight_ih[r * D + d] * x[d];
        real sum2 = 0;
        for (int64_t j = 0; j < H; j++)
            sum2 += weight_hh[r * H + j] * h[j];
        p[r] = sum + bias_ih[r] + sum2 + bias_hh[r];
    }

    /* lstm.cell:18: o[a:H] = sigmoid(p[3*H + a]); */
    for (int64_t a = 0; a < H; a++)
        o[a] = sigmoid(p[3 * H + a]);

    /* lstm.cell:16: f[a:H] = sigmoid(p[H + a]); */
    for (int64_t a = 0; a < H; a++)
        f[a] = sigmoid(p[H + a]);

    /* lstm.cell:15: i[a:H] = sigmoid(p[a]); */
    for (int64_t a = 0; a < H; a++)
        i[a] = sigmoid(p[a]);

    /* lstm.cell:17: g[a:H] = tanh(p[2*H + a]); */
    for (int64_t a = 0; a < H; a++)
        g[a] = tanh(p[2 * H + a]);

    /* d_y, of lstm.cell:22: y[a] = h'[a]; */
    for (int64_t a = 0; a < H; a++)
        d_y[a] = dout_y[a];

    /* d_h_next, of lstm.cell:21: h'[a] = o[a] * tanh(c'[a]); */
    for (int64_t a = 0; a < H; a++)
        d_h_next[a] = dnext_h[a] + d_y[a];

    /* d_c_next, of lstm.cell:20: c'[a] = f[a] * c[a] + i[a] * g[a]; */
    for (int64_t a = 0; a < H; a++) {
        const real u = tanh(c_next[a]);
        d_c_next[a] = dnext_c[a] + d_h_next[a] * o[a] * (1 - u * u);
    }

    /* d_g, of lstm.cell:17: g[a:H] = tanh(p[2*H + a]); */
    for (int64_t a = 0; a < H; a++)
        d_g[a] = d_c_next[a] * i[a];

    /* value, of lstm.cell:17: g[a:H] = tanh(p[2*H + a]); */
    for (int64_t a = 0; a < H; a++)
        value[a] = d_g[a] * (1 - g[a] * g[a]);

    /* d_i, of lstm.cell:15: i[a:H] = sigmoid(p[a]); */
    for (int64_t a = 0; a < H; a++)
        d_i[a] = d_c_next[a] * g[a];

    /* value2, of lstm.cell:15: i[a:H] = sigmoid(p[a]); */
    for (int64_t a = 0; a < H; a++)
        value2[a] = d_i[a] * (i[a] * (1 - i[a]));

    /* d_f, of lstm.cell:16: f[a:H] = sigmoid(p[H + a]); */
    for (int64_t a = 0; a < H; a++)
        d_f[a] = d_c_next[a] * c[a];

    /* value3, of lstm.cell:16: f[a:H] = sigmoid(p[H + a]); */
    for (int64_t a = 0; a < H; a++)
        value3[a] = d_f[a] * (f[a] * (1 - f[a]));

    /* d_o, of lstm.cell:18: o[a:H] = sigmoid(p[3*H + a]); */
    for (int64_t a = 0; a < H; a++)
        d_o[a] = d_h_next[a] * tanh(c_next[a]);

    /* value4, of lstm.cell:18: o[a:H] = sigmoid(p[3*H + a]); */
    for (int64_t a = 0; a < H; a++)
        value4[a] = d_o[a] * (o[a] * (1 - o[a]));

    /* d_p, of lstm.cell:14: p[r:4*H] = sum[d] weight_ih[r,d] * x[d] + bias_ih[r]
            + sum[j] weight_hh[r,j] * h[j] + b... */
    for (int64_t r = 0; r < 4 * H; r++)
        d_p[r] = (0 <= r - 2 * H && r - 2 * H < H ? value[r - 2 * H] : 0) + (r < H ? value2[r] : 0)
                + (0 <= r - H && r - H < H ? value3[r - H] : 0) + (0 <= r - 3 * H ? value4[r - 3 * H] : 0);

    if (grad_x) {
        /* d_x */
        for (int64_t d = 0; d < D; d++) {
            real sum = 0;
            for (int64_t r = 0; r < 4 * H; r++)
                sum += d_p[r] * weight_ih[r * D + d];
            d_x[d] = sum;
        }
    }

    if (grad_weight_ih) {
        /* gradient of weight_ih */
        for (int64_t r = 0; r < 4 * H; r++)
            for (int64_t d = 0; d < D; d++)
                grad_weight_ih[r * D + d] += d_p[r] * x[d];
    }

    if (grad_weight_hh) {
        /* gradient of weight_hh */
        for (int64_t r = 0; r < 4 * H; r++)
            for (int64_t j = 0; j < H; j++)
                grad_weight_hh[r * H + j] += d_p[r] * h[j];
    }

    if (grad_bias_ih) {
        /* gradient of bias_ih */
        for (int64_t r = 0; r < 4 * H; r++)
            grad_bias_ih[r] += d_p[r];
    }

    if (grad_bias_hh) {
        /* gradient of bias_hh */
        for (int64_t r = 0; r < 4 * H; r++)
            grad_bias_hh[r] += d_p[r];
    }

    /* d_h */
    for (int64_t j = 0; j < H; j++) {
        real sum = 0;
        for (int64_t r = 0; r < 4 * H; r++)
            sum += d_p[r] * weight_hh[r * H + j];
        d_h[j] = sum;
    }

    /* d_c */
    for (int64_t a = 0; a < H; a++)
        d_c[a] = d_c_next[a] * f[a];
}

int lstm_ref_backward(const int64_t *sizes, void *const *args, void *reserve, int flags)
{
    const int64_t B = sizes[0], T = sizes[1], t0 = sizes[4];
    Heap heap = { .n = 0 };
    Step s = { .t = t0, .D = sizes[2], .H = sizes[3] };
    const int add = flags & 1;
    s.d_x = take(&heap, s.D);
    s.p = take(&heap, times(4, s.H));
    s.o = take(&heap, s.H);
    s.f = take(&heap, s.H);
    s.i = take(&heap, s.H);
    s.g = take(&heap, s.H);
    s.d_y = take(&heap, s.H);
    s.d_h_next = take(&heap, s.H);
    s.d_c_next = take(&heap, s.H);
    s.d_g = take(&heap, s.H);
    s.value = take(&heap, s.H);
    s.d_i = take(&heap, s.H);
    s.value2 = take(&heap, s.H);
    s.d_f = take(&heap, s.H);
    s.value3 = take(&heap, s.H);
    s.d_o = take(&heap, s.H);
    s.value4 = take(&heap, s.H);
    s.d_p = take(&heap, times(4, s.H));
    real *const h_adjoint[2] = { take(&heap, s.H), take(&heap, s.H) };
    real *const c_adjoint[2] = { take(&heap, s.H), take(&heap, s.H) };
    const real *const y_zeros = take(&heap, s.H);
    const Store h_store = { .data = (real *)reserve, .elements = s.H, .T = T, .kept = 1 };
    const Store c_store = { .data = h_store.data + B * (T + 1) * h_store.elements, .elements = s.H, .T = T,
            .kept = 1 };
    if (heap.failed)
        return release(&heap, 5);

    s.weight_ih = args[1];
    s.weight_hh = args[2];
    s.bias_ih = args[3];
    s.bias_hh = args[4];
    s.grad_x = args[10];
    s.grad_weight_ih = args[11];
    s.grad_weight_hh = args[12];
    s.grad_bias_ih = args[13];
    s.grad_bias_hh = args[14];
    s.grad_h = args[15];
    s.grad_c = args[16];
    if (s.grad_weight_ih && !add)
        fill(s.grad_weight_ih, NULL, 4 * s.D * s.H);
    if (s.grad_weight_hh && !add)
        fill(s.grad_weight_hh, NULL, 4 * s.H * s.H);
    if (s.grad_bias_ih && !add)
        fill(s.grad_bias_ih, NULL, 4 * s.H);
    if (s.grad_bias_hh && !add)
        fill(s.grad_bias_hh, NULL, 4 * s.H);
    for (int64_t b = 0; b < B; b++) {
        fill(h_adjoint[T % 2], args[8] ? (const real *)args[8] + b * s.H : NULL, s.H);
        fill(c_adjoint[T % 2], args[9] ? (const real *)args[9] + b * s.H : NULL, s.H);
        for (int64_t t = T - 1; t >= 0; t--) {
            s.x = (const real *)args[0] + (b * T + t) * s.D;
            s.t = t0 + t;
            s.h = at_step(&h_store, b, t);
            s.h_next = at_step(&h_store, b, t + 1);
            s.dnext_h = h_adjoint[(t + 1) % 2];
            s.d_h = h_adjoint[t % 2];
            s.c = at_step(&c_store, b, t);
            s.c_next = at_step(&c_store, b, t + 1);
            s.dnext_c = c_adjoint[(t + 1) % 2];
            s.d_c = c_adjoint[t % 2];
            s.dout_y = args[7] ? (const real *)args[7] + (b * T + t) * s.H : y_zeros;
            step_backward(&s);
            if (s.grad_x)
                put(s.grad_x + (b * T + t) * s.D, s.d_x, s.D, add);
        }
        if (s.grad_h)
            put(s.grad_h + b * s.H, h_adjoint[0], s.H, add);
        if (s.grad_c)
            put(s.grad_c + b * s.H, c_adjoint[0], s.H, add);
    }
    return release(&heap, 0);
}

/* Bytes of reserve: all states at all steps; SIZE_MAX if that is too much to count. */
size_t lstm_ref_reserve_bytes(const int64_t *sizes)
{
    const Step s = { .D = sizes[2], .H = sizes[3] };
    const int64_t steps = times(sizes[0], sizes[1] < INT64_MAX ? sizes[1] + 1 : INT64_MAX);
    const double elements = (double)s.H + (double)s.H;
    if (elements * (double)steps * sizeof(real) > 9e15)
        return SIZE_MAX;
    return (size_t)elements * (size_t)steps * sizeof(real);
}

int lstm_ref_step(const int64_t *sizes, void *const *args, void *reserve, int flags)
{
    int64_t one[5];
    memcpy(one, sizes, sizeof one);
    one[1] = 1;
    return lstm_ref_forward(one, args, reserve, flags);
}
