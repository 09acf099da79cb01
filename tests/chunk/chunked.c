/* chunked.c: the normal form C steps at a time, against step by step. A chunk has a row for each update
 * of each of its steps. Of every row come A, H and, per addition, c, z and w; a window is a product of
 * As. By L = w Gb c over earlier rows and F = (I - L)^-1, folded into the writes, the state behind the
 * chunk and all reads are made of the state in front of it by products, without the states between.
 * Where a decay varies over values, each value has an F. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formed.h"

/* An addition of a row. [state * keys + key], [value] */
typedef struct Pair { int row; bool corrects; double *c, *w, *z; } Pair;

/* The rows of a chunk at one place of the heads. Rows count from 1; row 0 is the state in front of the
 * chunk. */
typedef struct Rows {
    Arena *arena;
    int n, keys, values;          /* states, ... */
    int rows;
    double **a;                   /* per row: [(to * n + from) * keys + key] */
    double **h;                   /* per row: [value] */
    struct { Pair *data; int len, cap; } pairs;
} Rows;

/* A read of a step: [state * keys + key], at the state behind `row`. */
typedef struct Asked { int row; const double *q; double scale; } Asked;

static double *numbers(Arena *arena, size_t n)
{
    return arena_alloc(arena, sizeof(double) * (n + 1));
}

/* ---- rows ---- */

/* Places of a head: [key * values + value]. */
typedef struct Head { size_t *at; int keys, values; } Head;

static void take_vectors(Formed *f, const Head *h, const ChunkVectors *from, bool mixed, double *to)
{
    for (int i = 0; i < from->len; i++)
        for (int j = 0; j < h->keys; j++) {
            formed_go(f, h->at[j * h->values]);
            if (mixed)
                f->factors.place[f->k->mixed] = j;
            to[from->data[i].state * h->keys + j] += formed_vector(f, &from->data[i]);
        }
}

static void take_pair(Rows *r, Formed *f, const Head *h, const ChunkAddition *a)
{
    Pair p = { r->rows, a->weights.len > 0, numbers(r->arena, (size_t)(r->n * r->keys)),
               numbers(r->arena, (size_t)(r->n * r->keys)), numbers(r->arena, (size_t)r->values) };
    take_vectors(f, h, &a->columns, false, p.c);
    take_vectors(f, h, &a->weights, true, p.w);
    for (int v = 0; v < h->values; v++) {
        formed_go(f, h->at[v]);
        for (int i = 0; i < a->known.len; i++)
            p.z[v] += formed_vector(f, &a->known.data[i]);
    }
    vec_push(r->arena, &r->pairs, p);
}

static void take_row(Rows *r, Formed *f, const Head *h, const ChunkUpdate *u)
{
    double *a = numbers(r->arena, (size_t)(r->n * r->n * r->keys)),
           *per_value = numbers(r->arena, (size_t)r->values);
    r->rows++;
    for (int i = 0; i < r->n * r->n; i++)
        for (int j = 0; j < r->keys && u->decay[i] >= 0; j++) {
            formed_go(f, h->at[j * h->values]);
            a[i * r->keys + j] = values_of(&f->factors, u->decay[i]);
        }
    for (int v = 0; v < r->values; v++) {
        formed_go(f, h->at[v]);
        per_value[v] = u->per_value >= 0 ? values_of(&f->factors, u->per_value) : 1;
    }
    r->a[r->rows] = a;
    r->h[r->rows] = per_value;
    for (int i = 0; i < u->additions.len; i++)
        take_pair(r, f, h, &u->additions.data[i]);
}

/* ---- windows ---- */

/* x goes one row back: x' A, per key. */
static void back(const Rows *r, int row, double *x)
{
    double y[64];
    for (int j = 0; j < r->keys; j++) {
        for (int from = 0; from < r->n; from++) {
            y[from] = 0;
            for (int to = 0; to < r->n; to++)
                y[from] += x[to * r->keys + j] * r->a[row][(to * r->n + from) * r->keys + j];
        }
        for (int from = 0; from < r->n; from++)
            x[from * r->keys + j] = y[from];
    }
}

/* What a row vector f over states and keys, at the state behind `row`, meets: out[pair] = f G c of each
 * addition of rows up to that one, and at_start = f G of the state in front of the chunk. Likewise the
 * windows of H, per value. */
static void windows(const Rows *r, int row, const double *f, double *out, double *out_h, double *at_start,
                    double *h)
{
    double *x = at_start;
    memcpy(x, f, sizeof *x * (size_t)(r->n * r->keys));
    for (int v = 0; v < r->values; v++)
        h[v] = 1;
    for (int p = r->pairs.len - 1, s = row; s >= 1; s--) {
        while (p >= 0 && r->pairs.data[p].row > s)
            p--;
        for (; p >= 0 && r->pairs.data[p].row == s; p--) {
            out[p] = 0;
            for (int i = 0; i < r->n * r->keys; i++)
                out[p] += x[i] * r->pairs.data[p].c[i];
            for (int v = 0; v < r->values; v++)
                out_h[p * r->values + v] = h[v];
        }
        back(r, s, x);
        for (int v = 0; v < r->values; v++)
            h[v] *= r->h[s][v];
    }
}

/* ---- a chunk ---- */

/* Of one value: everything that is linear in the state in front of the chunk and in z. */
typedef struct Chunk {
    const Rows *r;
    const double *l, *lh;         /* [pair * pairs + earlier pair]; with values behind it */
    double **start, **start_h;    /* per pair: W over states and keys, H's window */
    double *f;                    /* F of the value, over pairs; a write has the row of the identity */
} Chunk;

/* The inverse of I - L among corrections, by substitution. */
static void invert(const Chunk *c, int v)
{
    int n = c->r->pairs.len;
    for (int col = 0; col < n; col++)
        for (int p = 0; p < n; p++) {
            double sum = p == col;
            for (int q = 0; q < p; q++)
                if (c->r->pairs.data[p].corrects && c->r->pairs.data[q].corrects)
                    sum += c->l[p * n + q] * c->lh[(p * n + q) * c->r->values + v] * c->f[q * n + col];
            c->f[p * n + col] = sum;
        }
}

/* R = z + L z of writes + W S_0 of corrections, z of writes: what F and the identity stand in front of. */
static void rows_of(const Chunk *c, int v, const double *s0, double *out)
{
    const Rows *r = c->r;
    int n = r->pairs.len;
    for (int p = 0; p < n; p++) {
        const Pair *x = &r->pairs.data[p];
        out[p] = x->z[v];
        for (int q = 0; q < n && x->corrects; q++)
            if (!r->pairs.data[q].corrects && r->pairs.data[q].row < x->row)
                out[p] += c->l[p * n + q] * c->lh[(p * n + q) * r->values + v] * r->pairs.data[q].z[v];
        for (int i = 0; i < r->n * r->keys && x->corrects; i++)
            out[p] += c->start[p][i] * c->start_h[p][v] * s0[i];
    }
}

/* sum over pairs of (row of A) F R, with F folded into the row first, plus the state in front. */
static double meet(const Chunk *c, int row, const double *f, int v, const double *s0, const double *big_r)
{
    const Rows *r = c->r;
    int n = r->pairs.len;
    double *a = numbers(r->arena, (size_t)n), *ah = numbers(r->arena, (size_t)(n * r->values));
    double *start = numbers(r->arena, (size_t)(r->n * r->keys)), *h = numbers(r->arena, (size_t)r->values),
           sum = 0;
    windows(r, row, f, a, ah, start, h);
    for (int col = 0; col < n; col++) {
        double folded = 0;
        for (int p = 0; p < n; p++)
            if (r->pairs.data[p].row <= row)
                folded += a[p] * ah[p * r->values + v] * c->f[p * n + col];
        sum += folded * big_r[col];
    }
    for (int i = 0; i < r->n * r->keys; i++)
        sum += start[i] * h[v] * s0[i];
    return sum;
}

static double *magnitudes(Arena *arena, const double *x, int n)
{
    double *y = numbers(arena, (size_t)n);
    for (int i = 0; i < n; i++)
        y[i] = fabs(x[i]);
    return y;
}

/* The same rows in absolute values. What a chunk makes of them bounds all that it adds up with the rows
 * themselves. */
static Rows magnitudes_of(const Rows *r)
{
    Arena *arena = r->arena;
    Rows m = *r;
    m.a = arena_alloc(arena, sizeof *m.a * (size_t)(r->rows + 1));
    m.h = arena_alloc(arena, sizeof *m.h * (size_t)(r->rows + 1));
    for (int i = 1; i <= r->rows; i++) {
        m.a[i] = magnitudes(arena, r->a[i], r->n * r->n * r->keys);
        m.h[i] = magnitudes(arena, r->h[i], r->values);
    }
    m.pairs.data = arena_alloc(arena, sizeof *m.pairs.data * (size_t)(r->pairs.len + 1));
    for (int p = 0; p < r->pairs.len; p++) {
        Pair x = r->pairs.data[p];
        x.c = magnitudes(arena, x.c, r->n * r->keys);
        x.w = magnitudes(arena, x.w, r->n * r->keys);
        x.z = magnitudes(arena, x.z, r->values);
        m.pairs.data[p] = x;
    }
    return m;
}

static Chunk chunk_of(const Rows *r)
{
    int n = r->pairs.len;
    double *l = numbers(r->arena, (size_t)(n * n)), *lh = numbers(r->arena, (size_t)(n * n * r->values));
    Chunk c = { r,
                l,
                lh,
                arena_alloc(r->arena, sizeof *c.start * (size_t)(n + 1)),
                arena_alloc(r->arena, sizeof *c.start_h * (size_t)(n + 1)),
                numbers(r->arena, (size_t)(n * n)) };
    for (int p = 0; p < n; p++) {
        c.start[p] = numbers(r->arena, (size_t)(r->n * r->keys));
        c.start_h[p] = numbers(r->arena, (size_t)r->values);
        windows(r, r->pairs.data[p].row - 1, r->pairs.data[p].w, l + p * n, lh + p * n * r->values,
                c.start[p], c.start_h[p]);
    }
    return c;
}

/* ---- against the steps ---- */

/* Step by step: states and reads of each step. */
typedef struct Walk { const ChunkComponent *k; Formed *step; int steps; } Walk;

static Walk walk(const ChunkComponent *k, const Values *first, int steps)
{
    Arena *arena = first->m->arena;
    Walk w = { k, arena_alloc(arena, sizeof *w.step * (size_t)steps), steps };
    for (int t = 0; t < steps; t++) {
        Values at = values_again(first);
        at.now = at.place[IX_TIME] = first->now + t;
        w.step[t] = formed_begin(k, &at);
        if (t == 0)
            formed_from_loads(&w.step[0]);
        else
            formed_from(&w.step[t], w.step[t - 1].level + k->updates.len * k->nstates);
    }
    return w;
}

/* The places of the head that `first` is one of, a row per key. */
static Head head_at(const Formed *f, size_t first)
{
    Arena *arena = f->factors.m->arena;
    const ChunkComponent *k = f->k;
    Formed x = *f;
    int64_t place[64];
    Head h = { arena_alloc(arena, sizeof *h.at * (f->places + 1)), 0, 0 };
    formed_go(&x, first);
    for (int i = 0; i < k->rank; i++)
        place[i] = x.factors.place[k->axes[i]];
    h.keys = (int)values_extent(&f->factors, k->axes[k->key]);
    for (size_t at = 0; at < f->places; at++) {
        bool same = true;
        formed_go(&x, at);
        for (int i = 0; i < k->rank; i++)
            same &= x.factors.place[k->axes[i]] == place[i] || (i != k->key && !k->is_head[i]);
        if (!same || x.factors.place[k->axes[k->key]] != place[k->key])
            continue;
        for (int j = 0; j < h.keys; j++)
            h.at[j * (int)(f->places / (size_t)h.keys) + h.values] = formed_at_key(&x, j);
        h.values++;
    }
    for (int j = 0; j < h.keys; j++)      /* rows of as many as there are */
        memmove(h.at + j * h.values, h.at + j * (int)(f->places / (size_t)h.keys),
                sizeof *h.at * (size_t)h.values);
    return h;
}

/* A sum of products is off by at most n roundings of the same sum in absolute values, where no term is
 * made by more than n operations. Here these are a window (a product per row), sums over keys, over
 * pairs in the substitution, in the fold, in R and over R: less than 1000. Keys that are not normalised
 * make states that grow by factors within a chunk, and cancel. */
static bool differs(const char *what, int t, double chunk, double step, double most, bool quiet)
{
    if ((formed_near(chunk, step) || fabs(chunk - step) <= 1000 * 0x1p-53 * most) && isfinite(step))
        return false;
    if (!quiet)
        printf("  %s of step %d: %.17g by chunks, %.17g by steps\n", what, t, chunk, step);
    return true;
}

/* A chunk at a value, with the state in front and R; and the same in absolute values. */
typedef struct At { const Chunk *c; int v; const double *s0, *big_r; } At;

static double met(const At *x, int row, const double *f)
{
    return meet(x->c, row, f, x->v, x->s0, x->big_r);
}

static bool same_read(const Walk *w, const At *exact, const At *most, const Head *h, int t, int row,
                      bool quiet)
{
    const Rows *r = exact->c->r;
    int v = exact->v;
    Formed *f = &w->step[t];
    for (int i = 0; i < w->k->reads.len; i++) {
        const ChunkRead *x = &w->k->reads.data[i];
        formed_go(f, h->at[v]);
        double sum = x->known >= 0 ? values_of(&f->factors, x->known) : 0, bound = fabs(sum);
        for (int p = 0; p < x->parts.len; p++) {
            double *q = numbers(r->arena, (size_t)(r->n * r->keys));
            ChunkVectors one = { (ChunkVector *)(uintptr_t)&x->parts.data[p].weight, 1, 1 };
            take_vectors(f, h, &one, true, q);
            formed_go(f, h->at[v]);
            double scale = x->parts.data[p].scale >= 0 ? values_of(&f->factors, x->parts.data[p].scale) : 1;
            sum += scale * met(exact, row + x->parts.data[p].update, q);
            bound += fabs(scale) *
                     met(most, row + x->parts.data[p].update, magnitudes(r->arena, q, r->n * r->keys));
        }
        formed_go(f, h->at[v]);
        if (differs("a read", t, sum, formed_read(f, x), bound, quiet))
            return false;
    }
    return true;
}

/* Steps first to first + steps at one head, whose state in front is that of the walk. */
static bool same_chunk(const Walk *w, const Head *h, int first, int steps, bool quiet)
{
    const ChunkComponent *k = w->k;
    Arena *arena = w->step[0].factors.m->arena;
    size_t rows = (size_t)(steps * k->updates.len + 1);
    Rows r = { .arena = arena, .n = k->nstates, .keys = h->keys, .values = h->values,
               .a = arena_alloc(arena, sizeof *r.a * rows), .h = arena_alloc(arena, sizeof *r.h * rows) };
    for (int t = 0; t < steps; t++)
        for (int u = 0; u < k->updates.len; u++)
            take_row(&r, &w->step[first + t], h, &k->updates.data[u]);
    Rows m = magnitudes_of(&r);
    Chunk c = chunk_of(&r), most = chunk_of(&m);
    double *s0 = numbers(arena, (size_t)(r.n * r.keys)), *big_r = numbers(arena, (size_t)r.pairs.len);
    double *most_r = numbers(arena, (size_t)r.pairs.len), *unit = numbers(arena, (size_t)(r.n * r.keys));
    for (int v = 0; v < h->values; v++) {
        for (int i = 0; i < r.n * r.keys; i++)
            s0[i] = w->step[first].level[i / r.keys][h->at[i % r.keys * h->values + v]];
        double *most_s0 = magnitudes(arena, s0, r.n * r.keys);
        invert(&c, v);
        invert(&most, v);
        rows_of(&c, v, s0, big_r);
        rows_of(&most, v, most_s0, most_r);
        const At exact = { &c, v, s0, big_r }, bound = { &most, v, most_s0, most_r };
        for (int t = 0; t < steps; t++)
            if (!same_read(w, &exact, &bound, h, first + t, t * k->updates.len, quiet))
                return false;
        const Formed *last = &w->step[first + steps - 1];
        for (int i = 0; i < r.n * r.keys; i++) {
            unit[i] = 1;
            double x = met(&exact, r.rows, unit), limit = met(&bound, r.rows, unit);
            double step =
                last->level[k->updates.len * k->nstates + i / r.keys][h->at[i % r.keys * h->values + v]];
            unit[i] = 0;
            if (differs("a state", first + steps - 1, x, step, limit, quiet))
                return false;
        }
    }
    return true;
}

bool chunks_agree(const ChunkComponent *k, const Values *step, int chunk, bool quiet)
{
    int steps = 2 * chunk + (chunk > 2 ? 2 : 0);      /* the last one may be cut */
    Walk w = walk(k, step, steps);
    Formed *f = &w.step[0];
    for (size_t at = 0; at < f->places; at++) {
        bool first = true;
        formed_go(f, at);
        for (int i = 0; i < k->rank; i++)
            first &= k->is_head[i] || f->factors.place[k->axes[i]] == 0;
        if (!first)
            continue;
        Head h = head_at(f, at);
        for (int t = 0; t < steps; t += chunk)
            if (!same_chunk(&w, &h, t, steps - t < chunk ? steps - t : chunk, quiet))
                return false;
    }
    return true;
}
