/* e79: the cell as plain C, written by cellc from e79.cell:3.
 * The kernels are checked against it, and it is the backend for machines without a GPU.
 *
 * Sizes: B sequences, T steps, D, t0 (number of the first step). N is 64. Option bias is fixed.
 * Arguments, row-major, [B, T, axes] for inputs and outputs, [B, axes] for states (? may be NULL):
 * forward: 0 x, 1 W_kvqm, 2 b_s_gate, 3 b_m_gate, 4 S?, 5 M?, 6 y, 7 final S?, 8 final M?
 * backward: 0 x, 1 W_kvqm, 2 b_s_gate, 3 b_m_gate, 4 S?, 5 M?, 6 gradient into y?,
 *     7 gradient into final S?, 8 gradient into final M?, 9 gradient of x?, 10 gradient of W_kvqm?,
 *     11 gradient of b_s_gate?, 12 gradient of b_m_gate?, 13 gradient of S?, 14 gradient of M?
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

extern const int e79_ref_real_bytes;
size_t e79_ref_reserve_bytes(const int64_t *sizes);
int e79_ref_forward(const int64_t *sizes, void *const *args, void *reserve, int flags);
int e79_ref_backward(const int64_t *sizes, void *const *args, void *reserve, int flags);
int e79_ref_step(const int64_t *sizes, void *const *args, void *reserve, int flags);

const int e79_ref_real_bytes = sizeof(real);

/* What one step of one sequence reads and writes. */
typedef struct Step {
    int64_t D;                         /* size */
    const real *x;                     /* input [D] */
    const real *W_kvqm;                /* param [256, D] */
    const real *b_s_gate;              /* param [64] */
    const real *b_m_gate;              /* param [64] */
    const real *S;                     /* state before the step [64, 64] */
    const real *M;                     /* state before the step [64, 64] */
    const real *dout_y;                /* gradient into the output [64] */
    const real *dnext_S;               /* gradient into the state after the step [64, 64] */
    const real *dnext_M;               /* gradient into the state after the step [64, 64] */
    real *S_next;                      /* state after the step [64, 64] */
    real *M_next;                      /* state after the step [64, 64] */
    real *y;                           /* output [64] */
    real *d_x;                         /* gradient of the input at the step */
    real *grad_x;                      /* where it goes, NULL: not wanted */
    real *grad_W_kvqm;                 /* where it goes, NULL: not wanted */
    real *d_S;                         /* gradient of the state before the step */
    real *grad_S;                      /* where it goes, NULL: not wanted */
    real *d_M;                         /* gradient of the state before the step */
    real *grad_M;                      /* where it goes, NULL: not wanted */
    real *grad_b_s_gate;               /* where it goes, NULL: not wanted */
    real *grad_b_m_gate;               /* where it goes, NULL: not wanted */
    int64_t t;                         /* number of the step */
    real *k;
    real *kn;
    real *bs;
    real *sr;
    real *sc;
    real *v;
    real *ds;
    real *m;
    real *mn;
    real *bm;
    real *mr;
    real *mc;
    real *dm;
    real *q;
    real *r;
    real *d_y;
    real *d_r;
    real *d_q;
    real *d_M_next;
    real *d_dm;
    real *d_mc;
    real *d_mr;
    real *d_bm;
    real *d_mn;
    real *d_m;
    real *d_S_next;
    real *d_ds;
    real *d_v;
    real *d_sc;
    real *d_sr;
    real *d_bs;
    real *d_kn;
    real *d_k;
} Step;

/* Memory of one call. What could not be had is noted, and the call fails before anything is written. */
typedef struct Heap { void *block[39]; int n, failed; } Heap;

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

static inline real square(real x) { return x * x; }

/* 1/(1 + e^-x), written so that e^|x| is never computed: it would overflow. */
static inline real sigmoid(real x)
{
    real e = exp(-fabs(x));
    return (x >= 0 ? 1 : e) / (1 + e);
}

/* x sigmoid(x), 0 at minus infinity. */
static inline real silu(real x) { return x == -INFINITY ? 0 : x * sigmoid(x); }

/* One step of one sequence. */
static void step_forward(const Step *step)
{
    const int64_t D = step->D;
    const real *const x = step->x, *const W_kvqm = step->W_kvqm, *const b_s_gate = step->b_s_gate;
    const real *const b_m_gate = step->b_m_gate, *const S = step->S, *const M = step->M;
    real *const S_next = step->S_next, *const M_next = step->M_next, *const y = step->y;
    real *const k = step->k, *const kn = step->kn, *const bs = step->bs, *const sr = step->sr;
    real *const sc = step->sc, *const v = step->v, *const ds = step->ds, *const m = step->m;
    real *const mn = step->mn, *const bm = step->bm, *const mr = step->mr, *const mc = step->mc;
    real *const dm = step->dm, *const q = step->q, *const r = step->r;

    /* e79.cell:13: k[i:N] = sum[d] W_kvqm[i,d] * x[d]; */
    for (int64_t i = 0; i < 64; i++) {
        real sum = 0;
        for (int64_t d = 0; d < D; d++)
            sum += W_kvqm[i * D + d] * x[d];
        k[i] = sum;
    }

    /* e79.cell:30: kn[i] = k[i] / (sqrt(sum[j] k[j]^2) + 1e-6); */
    real sum = 0;
    for (int64_t j = 0; j < 64; j++)
        sum += square(k[j]);
    for (int64_t i = 0; i < 64; i++)
        kn[i] = k[i] / (sqrt(sum) + (real)1e-06);

    /* e79.cell:21: bs[i:N] = b_s_gate[i]; */
    for (int64_t i = 0; i < 64; i++)
        bs[i] = b_s_gate[i];

    /* e79.cell:33: sr[i] = sigmoid(sum[j] M[i,j] * kn[j] + bs[i]); */
    for (int64_t i = 0; i < 64; i++) {
        real sum2 = 0;
        for (int64_t j = 0; j < 64; j++)
            sum2 += M[i * 64 + j] * kn[j];
        sr[i] = sigmoid(sum2 + bs[i]);
    }

    /* e79.cell:34: sc[j] = sigmoid(sum[i] M[i,j] * kn[i] + bs[j]); */
    for (int64_t j = 0; j < 64; j++) {
        real sum2 = 0;
        for (int64_t i = 0; i < 64; i++)
            sum2 += M[i * 64 + j] * kn[i];
        sc[j] = sigmoid(sum2 + bs[j]);
    }

    /* e79.cell:14: v[i:N] = sum[d] W_kvqm[N + i, d] * x[d]; */
    for (int64_t i = 0; i < 64; i++) {
        real sum2 = 0;
        for (int64_t d = 0; d < D; d++)
            sum2 += W_kvqm[(64 + i) * D + d] * x[d];
        v[i] = sum2;
    }

    /* e79.cell:35: ds[i] = v[i] - sum[j] S[i,j] * kn[j]; */
    for (int64_t i = 0; i < 64; i++) {
        real sum2 = 0;
        for (int64_t j = 0; j < 64; j++)
            sum2 += S[i * 64 + j] * kn[j];
        ds[i] = v[i] - sum2;
    }

    /* e79.cell:36: S'[i,j] = sr[i] * S[i,j] * sc[j] + ds[i] * kn[j]; */
    for (int64_t i = 0; i < 64; i++)
        for (int64_t j = 0; j < 64; j++)
            S_next[i * 64 + j] = sr[i] * S[i * 64 + j] * sc[j] + ds[i] * kn[j];

    /* e79.cell:16: m[i:N] = sum[d] W_kvqm[3*N + i, d] * x[d]; */
    for (int64_t i = 0; i < 64; i++) {
        real sum2 = 0;
        for (int64_t d = 0; d < D; d++)
            sum2 += W_kvqm[(192 + i) * D + d] * x[d];
        m[i] = sum2;
    }

    /* e79.cell:31: mn[i] = m[i] / (sqrt(sum[j] m[j]^2) + 1e-6); */
    real sum2 = 0;
    for (int64_t j = 0; j < 64; j++)
        sum2 += square(m[j]);
    for (int64_t i = 0; i < 64; i++)
        mn[i] = m[i] / (sqrt(sum2) + (real)1e-06);

    /* e79.cell:22: bm[i:N] = b_m_gate[i]; */
    for (int64_t i = 0; i < 64; i++)
        bm[i] = b_m_gate[i];

    /* e79.cell:38: mr[i] = sigmoid(sum[j] S'[i,j] * mn[j] + bm[i]); */
    for (int64_t i = 0; i < 64; i++) {
        real sum3 = 0;
        for (int64_t j = 0; j < 64; j++)
            sum3 += S_next[i * 64 + j] * mn[j];
        mr[i] = sigmoid(sum3 + bm[i]);
    }

    /* e79.cell:39: mc[j] = sigmoid(sum[i] S'[i,j] * mn[i] + bm[j]); */
    for (int64_t j = 0; j < 64; j++) {
        real sum3 = 0;
        for (int64_t i = 0; i < 64; i++)
            sum3 += S_next[i * 64 + j] * mn[i];
        mc[j] = sigmoid(sum3 + bm[j]);
    }

    /* e79.cell:40: dm[i] = ds[i] - sum[j] M[i,j] * mn[j]; */
    for (int64_t i = 0; i < 64; i++) {
        real sum3 = 0;
        for (int64_t j = 0; j < 64; j++)
            sum3 += M[i * 64 + j] * mn[j];
        dm[i] = ds[i] - sum3;
    }

    /* e79.cell:41: M'[i,j] = mr[i] * M[i,j] * mc[j] + dm[i] * mn[j]; */
    for (int64_t i = 0; i < 64; i++)
        for (int64_t j = 0; j < 64; j++)
            M_next[i * 64 + j] = mr[i] * M[i * 64 + j] * mc[j] + dm[i] * mn[j];

    /* e79.cell:15: q[i:N] = sum[d] W_kvqm[2*N + i, d] * x[d]; */
    for (int64_t i = 0; i < 64; i++) {
        real sum3 = 0;
        for (int64_t d = 0; d < D; d++)
            sum3 += W_kvqm[(128 + i) * D + d] * x[d];
        q[i] = sum3;
    }

    /* e79.cell:43: r[i] = sum[j] S'[i,j] * q[j]; */
    for (int64_t i = 0; i < 64; i++) {
        real sum3 = 0;
        for (int64_t j = 0; j < 64; j++)
            sum3 += S_next[i * 64 + j] * q[j];
        r[i] = sum3;
    }

    /* e79.cell:44: y[i] = r[i] * silu(r[i]); */
    for (int64_t i = 0; i < 64; i++)
        y[i] = r[i] * silu(r[i]);
}

int e79_ref_forward(const int64_t *sizes, void *const *args, void *reserve, int flags)
{
    const int64_t B = sizes[0], T = sizes[1], t0 = sizes[3];
    Heap heap = { .n = 0 };
    Step s = { .t = t0, .D = sizes[2] };
    (void)flags;
    s.k = take(&heap, 64);
    s.kn = take(&heap, 64);
    s.bs = take(&heap, 64);
    s.sr = take(&heap, 64);
    s.sc = take(&heap, 64);
    s.v = take(&heap, 64);
    s.ds = take(&heap, 64);
    s.m = take(&heap, 64);
    s.mn = take(&heap, 64);
    s.bm = take(&heap, 64);
    s.mr = take(&heap, 64);
    s.mc = take(&heap, 64);
    s.dm = take(&heap, 64);
    s.q = take(&heap, 64);
    s.r = take(&heap, 64);
    Store S_store = { .elements = 4096, .T = T, .kept = reserve != NULL };
    S_store.data = reserve ? (real *)reserve : take(&heap, times(2, 4096));
    Store M_store = { .elements = 4096, .T = T, .kept = reserve != NULL };
    M_store.data = reserve ? S_store.data + B * (T + 1) * S_store.elements : take(&heap, times(2, 4096));
    if (heap.failed)
        return release(&heap, 5);

    s.W_kvqm = args[1];
    s.b_s_gate = args[2];
    s.b_m_gate = args[3];
    for (int64_t b = 0; b < B; b++) {
        const real *S_given = args[4];
        fill(at_step(&S_store, b, 0), S_given ? S_given + b * 4096 : NULL, 4096);
        const real *M_given = args[5];
        fill(at_step(&M_store, b, 0), M_given ? M_given + b * 4096 : NULL, 4096);
        for (int64_t t = 0; t < T; t++) {
            s.x = (const real *)args[0] + (b * T + t) * s.D;
            s.t = t0 + t;
            s.S = at_step(&S_store, b, t);
            s.S_next = at_step(&S_store, b, t + 1);
            s.M = at_step(&M_store, b, t);
            s.M_next = at_step(&M_store, b, t + 1);
            s.y = (real *)args[6] + (b * T + t) * 64;
            step_forward(&s);
        }
        if (args[7])
            fill((real *)args[7] + b * 4096, at_step(&S_store, b, T), 4096);
        if (args[8])
            fill((real *)args[8] + b * 4096, at_step(&M_store, b, T), 4096);
    }
    return release(&heap, 0);
}

/* The adjoint of one step: its values again, then their gradients. */
static void step_backward(const Step *step)
{
    const int64_t D = step->D;
    const real *const x = step->x, *const W_kvqm = step->W_kvqm, *const b_s_gate = step->b_s_gate;
    const real *const b_m_gate = step->b_m_gate, *const S = step->S, *const M = step->M;
    const real *const dout_y = step->dout_y, *const dnext_S = step->dnext_S;
    const real *const dnext_M = step->dnext_M;
    real *const S_next = step->S_next, *const d_x = step->d_x, *const grad_x = step->grad_x;
    real *const grad_W_kvqm = step->grad_W_kvqm, *const d_S = step->d_S, *const d_M = step->d_M;
    real *const grad_b_s_gate = step->grad_b_s_gate, *const grad_b_m_gate = step->grad_b_m_gate;
    real *const k = step->k, *const kn = step->kn, *const bs = step->bs, *const sr = step->sr;
    real *const sc = step->sc, *const v = step->v, *const ds = step->ds, *const m = step->m;
    real *const mn = step->mn, *const bm = step->bm, *const mr = step->mr, *const mc = step->mc;
    real *const dm = step->dm, *const q = step->q, *const r = step->r, *const d_y = step->d_y;
    real *const d_r = step->d_r, *const d_q = step->d_q, *const d_M_next = step->d_M_next;
    real *const d_dm = step->d_dm, *const d_mc = step->d_mc, *const d_mr = step->d_mr;
    real *const d_bm = step->d_bm, *const d_mn = step->d_mn, *const d_m = step->d_m;
    real *const d_S_next = step->d_S_next, *const d_ds = step->d_ds, *const d_v = step->d_v;
    real *const d_sc = step->d_sc, *const d_sr = step->d_sr, *const d_bs = step->d_bs;
    real *const d_kn = step->d_kn, *const d_k = step->d_k;

    /* e79.cell:13: k[i:N] = sum[d] W_kvqm[i,d] * x[d]; */
    for (int64_t i = 0; i < 64; i++) {
        real sum = 0;
        for (int64_t d = 0; d < D; d++)
            sum += W_kvqm[i * D + d] * x[d];
        k[i] = sum;
    }

    /* e79.cell:30: kn[i] = k[i] / (sqrt(sum[j] k[j]^2) + 1e-6); */
    real sum = 0;
    for (int64_t j = 0; j < 64; j++)
        sum += square(k[j]);
    for (int64_t i = 0; i < 64; i++)
        kn[i] = k[i] / (sqrt(sum) + (real)1e-06);

    /* e79.cell:21: bs[i:N] = b_s_gate[i]; */
    for (int64_t i = 0; i < 64; i++)
        bs[i] = b_s_gate[i];

    /* e79.cell:33: sr[i] = sigmoid(sum[j] M[i,j] * kn[j] + bs[i]); */
    for (int64_t i = 0; i < 64; i++) {
        real sum2 = 0;
        for (int64_t j = 0; j < 64; j++)
            sum2 += M[i * 64 + j] * kn[j];
        sr[i] = sigmoid(sum2 + bs[i]);
    }

    /* e79.cell:34: sc[j] = sigmoid(sum[i] M[i,j] * kn[i] + bs[j]); */
    for (int64_t j = 0; j < 64; j++) {
        real sum2 = 0;
        for (int64_t i = 0; i < 64; i++)
            sum2 += M[i * 64 + j] * kn[i];
        sc[j] = sigmoid(sum2 + bs[j]);
    }

    if (grad_x || grad_W_kvqm) {
        /* e79.cell:14: v[i:N] = sum[d] W_kvqm[N + i, d] * x[d]; */
        for (int64_t i = 0; i < 64; i++) {
            real sum2 = 0;
            for (int64_t d = 0; d < D; d++)
                sum2 += W_kvqm[(64 + i) * D + d] * x[d];
            v[i] = sum2;
        }
        /* e79.cell:35: ds[i] = v[i] - sum[j] S[i,j] * kn[j]; */
        for (int64_t i = 0; i < 64; i++) {
            real sum2 = 0;
            for (int64_t j = 0; j < 64; j++)
                sum2 += S[i * 64 + j] * kn[j];
            ds[i] = v[i] - sum2;
        }
    }

    /* e79.cell:16: m[i:N] = sum[d] W_kvqm[3*N + i, d] * x[d]; */
    for (int64_t i = 0; i < 64; i++) {
        real sum2 = 0;
        for (int64_t d = 0; d < D; d++)
            sum2 += W_kvqm[(192 + i) * D + d] * x[d];
        m[i] = sum2;
    }

    /* e79.cell:31: mn[i] = m[i] / (sqrt(sum[j] m[j]^2) + 1e-6); */
    real sum2 = 0;
    for (int64_t j = 0; j < 64; j++)
        sum2 += square(m[j]);
    for (int64_t i = 0; i < 64; i++)
        mn[i] = m[i] / (sqrt(sum2) + (real)1e-06);

    /* e79.cell:22: bm[i:N] = b_m_gate[i]; */
    for (int64_t i = 0; i < 64; i++)
        bm[i] = b_m_gate[i];

    /* e79.cell:38: mr[i] = sigmoid(sum[j] S'[i,j] * mn[j] + bm[i]); */
    for (int64_t i = 0; i < 64; i++) {
        real sum3 = 0;
        for (int64_t j = 0; j < 64; j++)
            sum3 += S_next[i * 64 + j] * mn[j];
        mr[i] = sigmoid(sum3 + bm[i]);
    }

    /* e79.cell:39: mc[j] = sigmoid(sum[i] S'[i,j] * mn[i] + bm[j]); */
    for (int64_t j = 0; j < 64; j++) {
        real sum3 = 0;
        for (int64_t i = 0; i < 64; i++)
            sum3 += S_next[i * 64 + j] * mn[i];
        mc[j] = sigmoid(sum3 + bm[j]);
    }

    if (grad_x || grad_W_kvqm) {
        /* e79.cell:40: dm[i] = ds[i] - sum[j] M[i,j] * mn[j]; */
        for (int64_t i = 0; i < 64; i++) {
            real sum3 = 0;
            for (int64_t j = 0; j < 64; j++)
                sum3 += M[i * 64 + j] * mn[j];
            dm[i] = ds[i] - sum3;
        }
    }

    /* e79.cell:15: q[i:N] = sum[d] W_kvqm[2*N + i, d] * x[d]; */
    for (int64_t i = 0; i < 64; i++) {
        real sum3 = 0;
        for (int64_t d = 0; d < D; d++)
            sum3 += W_kvqm[(128 + i) * D + d] * x[d];
        q[i] = sum3;
    }

    /* e79.cell:43: r[i] = sum[j] S'[i,j] * q[j]; */
    for (int64_t i = 0; i < 64; i++) {
        real sum3 = 0;
        for (int64_t j = 0; j < 64; j++)
            sum3 += S_next[i * 64 + j] * q[j];
        r[i] = sum3;
    }

    /* d_y, of e79.cell:44: y[i] = r[i] * silu(r[i]); */
    for (int64_t i = 0; i < 64; i++)
        d_y[i] = dout_y[i];

    /* d_r, of e79.cell:43: r[i] = sum[j] S'[i,j] * q[j]; */
    for (int64_t i = 0; i < 64; i++) {
        const real u = sigmoid(r[i]);
        d_r[i] = d_y[i] * silu(r[i]) + d_y[i] * r[i] * (u * (1 + r[i] * (1 - u)));
    }

    if (grad_x || grad_W_kvqm) {
        /* d_q, of e79.cell:15: q[i:N] = sum[d] W_kvqm[2*N + i, d] * x[d]; */
        for (int64_t i = 0; i < 64; i++) {
            real sum3 = 0;
            for (int64_t i2 = 0; i2 < 64; i2++)
                sum3 += d_r[i2] * S_next[i2 * 64 + i];
            d_q[i] = sum3;
        }
    }

    /* d_M_next, of e79.cell:41: M'[i,j] = mr[i] * M[i,j] * mc[j] + dm[i] * mn[j]; */
    for (int64_t i = 0; i < 64; i++)
        for (int64_t j = 0; j < 64; j++)
            d_M_next[i * 64 + j] = dnext_M[i * 64 + j];

    /* d_dm, of e79.cell:40: dm[i] = ds[i] - sum[j] M[i,j] * mn[j]; */
    for (int64_t i = 0; i < 64; i++) {
        real sum3 = 0;
        for (int64_t j = 0; j < 64; j++)
            sum3 += d_M_next[i * 64 + j] * mn[j];
        d_dm[i] = sum3;
    }

    /* d_mc, of e79.cell:39: mc[j] = sigmoid(sum[i] S'[i,j] * mn[i] + bm[j]); */
    for (int64_t j = 0; j < 64; j++) {
        real sum3 = 0;
        for (int64_t i = 0; i < 64; i++)
            sum3 += d_M_next[i * 64 + j] * (mr[i] * M[i * 64 + j]);
        d_mc[j] = sum3;
    }

    /* d_mr, of e79.cell:38: mr[i] = sigmoid(sum[j] S'[i,j] * mn[j] + bm[i]); */
    for (int64_t i = 0; i < 64; i++) {
        real sum3 = 0;
        for (int64_t j = 0; j < 64; j++)
            sum3 += d_M_next[i * 64 + j] * mc[j] * M[i * 64 + j];
        d_mr[i] = sum3;
    }

    if (grad_b_m_gate) {
        /* d_bm, of e79.cell:22: bm[i:N] = b_m_gate[i]; */
        for (int64_t i = 0; i < 64; i++)
            d_bm[i] = d_mc[i] * (mc[i] * (1 - mc[i])) + d_mr[i] * (mr[i] * (1 - mr[i]));
    }

    if (grad_x || grad_W_kvqm) {
        /* d_mn, of e79.cell:31: mn[i] = m[i] / (sqrt(sum[j] m[j]^2) + 1e-6); */
        for (int64_t i = 0; i < 64; i++) {
            real sum3 = 0;
            for (int64_t j = 0; j < 64; j++)
                sum3 += d_mc[j] * (mc[j] * (1 - mc[j])) * S_next[i * 64 + j];
            real sum4 = 0;
            for (int64_t i2 = 0; i2 < 64; i2++)
                sum4 += d_M_next[i2 * 64 + i] * dm[i2];
            real sum5 = 0;
            for (int64_t i2 = 0; i2 < 64; i2++)
                sum5 += -d_dm[i2] * M[i2 * 64 + i];
            real sum6 = 0;
            for (int64_t i2 = 0; i2 < 64; i2++)
                sum6 += d_mr[i2] * (mr[i2] * (1 - mr[i2])) * S_next[i2 * 64 + i];
            d_mn[i] = sum3 + (sum4 + sum5 + sum6);
        }
        /* d_m, of e79.cell:16: m[i:N] = sum[d] W_kvqm[3*N + i, d] * x[d]; */
        for (int64_t i = 0; i < 64; i++) {
            const real u = sqrt(sum2);
            real chosen;
            if (u == 0) {
                chosen = 0;
            } else {
                real sum3 = 0;
                for (int64_t i2 = 0; i2 < 64; i2++)
                    sum3 += -(d_mn[i2] / (u + (real)1e-06) * mn[i2]);
                chosen = sum3 * (real)0.5 / u;
            }
            d_m[i] = d_mn[i] / (u + (real)1e-06) + chosen * (2 * m[i]);
        }
    }

    /* d_S_next, of e79.cell:36: S'[i,j] = sr[i] * S[i,j] * sc[j] + ds[i] * kn[j]; */
    for (int64_t i = 0; i < 64; i++)
        for (int64_t j = 0; j < 64; j++)
            d_S_next[i * 64 + j] = dnext_S[i * 64 + j] + d_r[i] * q[j]
                    + d_mc[j] * (mc[j] * (1 - mc[j])) * mn[i] + d_mr[i] * (mr[i] * (1 - mr[i])) * mn[j];

    /* d_ds, of e79.cell:35: ds[i] = v[i] - sum[j] S[i,j] * kn[j]; */
    for (int64_t i = 0; i < 64; i++) {
        real sum3 = 0;
        for (int64_t j = 0; j < 64; j++)
            sum3 += d_S_next[i * 64 + j] * kn[j];
        d_ds[i] = d_dm[i] + sum3;
    }

    if (grad_x || grad_W_kvqm) {
        /* d_v, of e79.cell:14: v[i:N] = sum[d] W_kvqm[N + i, d] * x[d]; */
        for (int64_t i = 0; i < 64; i++)
            d_v[i] = d_ds[i];
    }

    /* d_sc, of e79.cell:34: sc[j] = sigmoid(sum[i] M[i,j] * kn[i] + bs[j]); */
    for (int64_t j = 0; j < 64; j++) {
        real sum3 = 0;
        for (int64_t i = 0; i < 64; i++)
            sum3 += d_S_next[i * 64 + j] * (sr[i] * S[i * 64 + j]);
        d_sc[j] = sum3;
    }

    /* d_sr, of e79.cell:33: sr[i] = sigmoid(sum[j] M[i,j] * kn[j] + bs[i]); */
    for (int64_t i = 0; i < 64; i++) {
        real sum3 = 0;
        for (int64_t j = 0; j < 64; j++)
            sum3 += d_S_next[i * 64 + j] * sc[j] * S[i * 64 + j];
        d_sr[i] = sum3;
    }

    if (grad_b_s_gate) {
        /* d_bs, of e79.cell:21: bs[i:N] = b_s_gate[i]; */
        for (int64_t i = 0; i < 64; i++)
            d_bs[i] = d_sc[i] * (sc[i] * (1 - sc[i])) + d_sr[i] * (sr[i] * (1 - sr[i]));
    }

    if (grad_x || grad_W_kvqm) {
        /* d_kn, of e79.cell:30: kn[i] = k[i] / (sqrt(sum[j] k[j]^2) + 1e-6); */
        for (int64_t i = 0; i < 64; i++) {
            real sum3 = 0;
            for (int64_t j = 0; j < 64; j++)
                sum3 += d_sc[j] * (sc[j] * (1 - sc[j])) * M[i * 64 + j];
            real sum4 = 0;
            for (int64_t i2 = 0; i2 < 64; i2++)
                sum4 += d_S_next[i2 * 64 + i] * ds[i2];
            real sum5 = 0;
            for (int64_t i2 = 0; i2 < 64; i2++)
                sum5 += -d_ds[i2] * S[i2 * 64 + i];
            real sum6 = 0;
            for (int64_t i2 = 0; i2 < 64; i2++)
                sum6 += d_sr[i2] * (sr[i2] * (1 - sr[i2])) * M[i2 * 64 + i];
            d_kn[i] = sum3 + (sum4 + sum5 + sum6);
        }
        /* d_k, of e79.cell:13: k[i:N] = sum[d] W_kvqm[i,d] * x[d]; */
        for (int64_t i = 0; i < 64; i++) {
            const real u = sqrt(sum);
            real chosen;
            if (u == 0) {
                chosen = 0;
            } else {
                real sum3 = 0;
                for (int64_t i2 = 0; i2 < 64; i2++)
                    sum3 += -(d_kn[i2] / (u + (real)1e-06) * kn[i2]);
                chosen = sum3 * (real)0.5 / u;
            }
            d_k[i] = d_kn[i] / (u + (real)1e-06) + chosen * (2 * k[i]);
        }
    }

    if (grad_x) {
        /* d_x */
        for (int64_t d = 0; d < D; d++) {
            real sum3 = 0;
            for (int64_t i = 0; i < 64; i++)
                sum3 += d_q[i] * W_kvqm[(128 + i) * D + d];
            real sum4 = 0;
            for (int64_t i = 0; i < 64; i++)
                sum4 += d_m[i] * W_kvqm[(192 + i) * D + d];
            real sum5 = 0;
            for (int64_t i = 0; i < 64; i++)
                sum5 += d_v[i] * W_kvqm[(64 + i) * D + d];
            real sum6 = 0;
            for (int64_t i = 0; i < 64; i++)
                sum6 += d_k[i] * W_kvqm[i * D + d];
            d_x[d] = sum3 + sum4 + sum5 + sum6;
        }
    }

    if (grad_W_kvqm) {
        /* gradient of W_kvqm */
        for (int64_t r0 = 0; r0 < 256; r0++)
            for (int64_t d = 0; d < D; d++)
                grad_W_kvqm[r0 * D + d] += (0 <= r0 - 128 && r0 - 128 < 64 ? d_q[r0 - 128] * x[d] : 0)
                        + (0 <= r0 - 192 ? d_m[r0 - 192] * x[d] : 0)
                        + (0 <= r0 - 64 && r0 - 64 < 64 ? d_v[r0 - 64] * x[d] : 0)
                        + (r0 < 64 ? d_k[r0] * x[d] : 0);
    }

    /* d_S */
    for (int64_t i = 0; i < 64; i++)
        for (int64_t j = 0; j < 64; j++)
            d_S[i * 64 + j] = d_S_next[i * 64 + j] * sc[j] * sr[i] - d_ds[i] * kn[j];

    /* d_M */
    for (int64_t i = 0; i < 64; i++)
        for (int64_t j = 0; j < 64; j++)
            d_M[i * 64 + j] = d_M_next[i * 64 + j] * mc[j] * mr[i] - d_dm[i] * mn[j]
                    + d_sc[j] * (sc[j] * (1 - sc[j])) * kn[i] + d_sr[i] * (sr[i] * (1 - sr[i])) * kn[j];

    if (grad_b_s_gate) {
        /* gradient of b_s_gate */
        for (int64_t i = 0; i < 64; i++)
            grad_b_s_gate[i] += d_bs[i];
    }

    if (grad_b_m_gate) {
        /* gradient of b_m_gate */
        for (int64_t i = 0; i < 64; i++)
            grad_b_m_gate[i] += d_bm[i];
    }
}

int e79_ref_backward(const int64_t *sizes, void *const *args, void *reserve, int flags)
{
    const int64_t B = sizes[0], T = sizes[1], t0 = sizes[3];
    Heap heap = { .n = 0 };
    Step s = { .t = t0, .D = sizes[2] };
    const int add = flags & 1;
    s.d_x = take(&heap, s.D);
    s.k = take(&heap, 64);
    s.kn = take(&heap, 64);
    s.bs = take(&heap, 64);
    s.sr = take(&heap, 64);
    s.sc = take(&heap, 64);
    s.v = take(&heap, 64);
    s.ds = take(&heap, 64);
    s.m = take(&heap, 64);
    s.mn = take(&heap, 64);
    s.bm = take(&heap, 64);
    s.mr = take(&heap, 64);
    s.mc = take(&heap, 64);
    s.dm = take(&heap, 64);
    s.q = take(&heap, 64);
    s.r = take(&heap, 64);
    s.d_y = take(&heap, 64);
    s.d_r = take(&heap, 64);
    s.d_q = take(&heap, 64);
    s.d_M_next = take(&heap, 4096);
    s.d_dm = take(&heap, 64);
    s.d_mc = take(&heap, 64);
    s.d_mr = take(&heap, 64);
    s.d_bm = take(&heap, 64);
    s.d_mn = take(&heap, 64);
    s.d_m = take(&heap, 64);
    s.d_S_next = take(&heap, 4096);
    s.d_ds = take(&heap, 64);
    s.d_v = take(&heap, 64);
    s.d_sc = take(&heap, 64);
    s.d_sr = take(&heap, 64);
    s.d_bs = take(&heap, 64);
    s.d_kn = take(&heap, 64);
    s.d_k = take(&heap, 64);
    real *const S_adjoint[2] = { take(&heap, 4096), take(&heap, 4096) };
    real *const M_adjoint[2] = { take(&heap, 4096), take(&heap, 4096) };
    const real *const y_zeros = take(&heap, 64);
    const Store S_store = { .data = (real *)reserve, .elements = 4096, .T = T, .kept = 1 };
    const Store M_store = { .data = S_store.data + B * (T + 1) * S_store.elements, .elements = 4096, .T = T,
            .kept = 1 };
    if (heap.failed)
        return release(&heap, 5);

    s.W_kvqm = args[1];
    s.b_s_gate = args[2];
    s.b_m_gate = args[3];
    s.grad_x = args[9];
    s.grad_W_kvqm = args[10];
    s.grad_S = args[13];
    s.grad_M = args[14];
    s.grad_b_s_gate = args[11];
    s.grad_b_m_gate = args[12];
    if (s.grad_W_kvqm && !add)
        fill(s.grad_W_kvqm, NULL, 256 * s.D);
    if (s.grad_b_s_gate && !add)
        fill(s.grad_b_s_gate, NULL, 64);
    if (s.grad_b_m_gate && !add)
        fill(s.grad_b_m_gate, NULL, 64);
    for (int64_t b = 0; b < B; b++) {
        fill(S_adjoint[T % 2], args[7] ? (const real *)args[7] + b * 4096 : NULL, 4096);
        fill(M_adjoint[T % 2], args[8] ? (const real *)args[8] + b * 4096 : NULL, 4096);
        for (int64_t t = T - 1; t >= 0; t--) {
            s.x = (const real *)args[0] + (b * T + t) * s.D;
            s.t = t0 + t;
            s.S = at_step(&S_store, b, t);
            s.S_next = at_step(&S_store, b, t + 1);
            s.dnext_S = S_adjoint[(t + 1) % 2];
            s.d_S = S_adjoint[t % 2];
            s.M = at_step(&M_store, b, t);
            s.M_next = at_step(&M_store, b, t + 1);
            s.dnext_M = M_adjoint[(t + 1) % 2];
            s.d_M = M_adjoint[t % 2];
            s.dout_y = args[6] ? (const real *)args[6] + (b * T + t) * 64 : y_zeros;
            step_backward(&s);
            if (s.grad_x)
                put(s.grad_x + (b * T + t) * s.D, s.d_x, s.D, add);
        }
        if (s.grad_S)
            put(s.grad_S + b * 4096, S_adjoint[0], 4096, add);
        if (s.grad_M)
            put(s.grad_M + b * 4096, M_adjoint[0], 4096, add);
    }
    return release(&heap, 0);
}

/* Bytes of reserve: all states at all steps; SIZE_MAX if that is too much to count. */
size_t e79_ref_reserve_bytes(const int64_t *sizes)
{
    const int64_t steps = times(sizes[0], sizes[1] < INT64_MAX ? sizes[1] + 1 : INT64_MAX);
    const double elements = (double)4096 + (double)4096;
    if (elements * (double)steps * sizeof(real) > 9e15)
        return SIZE_MAX;
    return (size_t)elements * (size_t)steps * sizeof(real);
}

int e79_ref_step(const int64_t *sizes, void *const *args, void *reserve, int flags)
{
    int64_t one[4];
    memcpy(one, sizes, sizeof one);
    one[1] = 1;
    return e79_ref_forward(one, args, reserve, flags);
}
