/* Attention's tiles on the CPU (cell_cpu_attention.h) against sums pair by pair in double: heads of any
 * number of rows, keys and values around the sizes of a tile; conditions by steps and by pairs; the same bits
 * whether a head is one item of backward or many; and no numbers where a condition hides them. */
#define CELL_ATTENTION_STORED TYPE
#include "cell_cpu.h"

#include "cell_cpu_attention.h"

#include <stdio.h>
#include <stdlib.h>

static int passed, failed;

static void check(int right, const char *what, int64_t steps, int64_t group, int64_t keys, int64_t values)
{
    passed += right;
    failed += !right;
    if (!right)
        printf("FAIL %s (T %d, %d queries, K %d, V %d)\n", what, (int)steps, (int)group, (int)keys,
               (int)values);
}

/* Pairs with lag <= i - j < window; asked: and (i + 2 j) % 5 != 1, which is asked of each pair. */
typedef struct Uses {
    int64_t lag, window;
    bool asked;
} Uses;

static bool is_there(const Uses *u, int64_t i, int64_t j)
{
    return i - j >= u->lag && i - j < u->window && (!u->asked || (i + 2 * j) % 5 != 1);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static cell_attention_range keys_of(const void *uses, int segment, int64_t i0, int64_t i1, int64_t j0,
                                    int64_t j1)
{
    const Uses *u = uses;
    (void)segment;
    j0 = most(j0, least(j1, i0 - u->window + 1));
    return (cell_attention_range){ j0, most(j0, least(j1, i1 - u->lag)) };
}
static cell_attention_range steps_of(const void *uses, int segment, int64_t j0, int64_t j1, int64_t i0,
                                     int64_t i1)
{
    const Uses *u = uses;
    (void)segment;
    i0 = most(i0, least(i1, j0 + u->lag));
    return (cell_attention_range){ i0, most(i0, least(i1, j1 - 1 + u->window)) };
}
static bool none(const void *uses, int segment, int64_t i0, int64_t i1, int64_t j0, int64_t j1)
{
    const Uses *u = uses;
    (void)segment;
    return i1 - 1 - j0 < u->lag || i0 - (j1 - 1) >= u->window;
}
static bool all(const void *uses, int segment, int64_t i0, int64_t i1, int64_t j0, int64_t j1)
{
    const Uses *u = uses;
    (void)segment;
    return !u->asked && i0 - (j1 - 1) >= u->lag && i1 - 1 - j0 < u->window;
}
static void there(const cell_attention *x, const cell_attention_tile *t, real *of, real instead)
{
    for (int n = 0; n < t->keys; n++)
        for (int l = 0; l < t->lanes; l++)
            if ((t->i[l] + 2 * (t->j + n)) % 5 == 1 && ((const Uses *)x->uses)->asked)
                of[n * CELL_ATTENTION_ROWS + l] = instead;
}

static const cell_attention_facts facts = { .softmax = true,
                                            .scaled = true,
                                            .segments = 1,
                                            .there = there,
                                            .keys_of = keys_of,
                                            .steps_of = steps_of,
                                            .none = none,
                                            .all = all };

/* One head of keys: [T][group][K], and so on. */
typedef struct Head {
    int64_t steps, group, keys, values;
    Uses uses;
    real *q, *k, *v, *dy, *y, *dq, *dk, *dv, *lse;
} Head;

static real draw(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (real)((double)(state >> 8) / (1 << 23) - 1);
}

static real *drawn(int64_t n)
{
    real *to = malloc(sizeof *to * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++)
        to[i] = draw();
    return to;
}

static Head head_of(int64_t steps, int64_t group, int64_t keys, int64_t values, Uses uses)
{
    const int64_t rows = steps * group;
    return (Head){ steps,
                   group,
                   keys,
                   values,
                   uses,
                   drawn(rows * keys),
                   drawn(steps * keys),
                   drawn(steps * values),
                   drawn(rows * values),
                   drawn(rows * values),
                   drawn(rows * keys),
                   drawn(steps * keys),
                   drawn(steps * values),
                   drawn(rows) };
}

static void forget(Head *h)
{
    real *all_of[] = { h->q, h->k, h->v, h->dy, h->y, h->dq, h->dk, h->dv, h->lse };
    for (size_t i = 0; i < sizeof all_of / sizeof *all_of; i++)
        free(all_of[i]);
}

static cell_attention_rows rows_at(const real *at, int64_t group, int64_t n)
{
    return (cell_attention_rows){ at, group * n, n, 1, true };
}
static cell_attention_result result_at(real *at, int64_t group, int64_t n)
{
    return (cell_attention_result){ at, group * n, n, 1, true, false };
}

/* What is to be written. */
static void spoil(real *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        at[i] = 1000;
}

static void run(Head *h, bool parts)
{
    const int64_t tiles = cell_attention_parts(h->steps * h->group, CELL_ATTENTION_ROWS);
    const int64_t heads = parts ? 1 : CELL_CPU_ATTENTION_HEADS;
    const int64_t items = cell_attention_items(heads, h->steps * h->group, h->steps, 0);
    cell_attention x = { .q = rows_at(h->q, h->group, h->keys),
                         .y = rows_at(h->y, h->group, h->values),
                         .dy = rows_at(h->dy, h->group, h->values),
                         .out = result_at(h->y, h->group, h->values),
                         .dq = result_at(h->dq, h->group, h->keys),
                         .lse = h->lse,
                         .lse_row = h->group,
                         .lse_head = 1,
                         .keys = h->keys,
                         .values = h->values,
                         .steps = h->steps,
                         .group = h->group,
                         .scale = (real)0.5,
                         .uses = &h->uses };
    x.segment[0] = (cell_attention_segment){ .k = rows_at(h->k, 1, h->keys),
                                             .v = rows_at(h->v, 1, h->values),
                                             .dk = result_at(h->dk, 1, h->keys),
                                             .dv = result_at(h->dv, 1, h->values),
                                             .end = h->steps };
    spoil(h->y, h->steps * h->group * h->values);
    spoil(h->dq, h->steps * h->group * h->keys);
    spoil(h->dk, h->steps * h->keys);
    spoil(h->dv, h->steps * h->values);
    for (int back = 0; back < 2; back++) {
        const int64_t bytes = cell_cpu_attention_scratch(h->keys, h->values, 0, sizeof(real), back);
        void *scratch = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64);
        for (int64_t n = 0; n < (back ? items : tiles); n++)
            if (back)
                cell_attention_back(&x, &facts, n, items, scratch);
            else
                cell_attention_forward(&x, &facts, n, scratch);
        free(scratch);
    }
}

/* The same in double: the largest difference to what the head has, over the largest sum of its terms' sizes,
 * which are what is rounded. */
static double difference(const real *a, const double *b, const double *sizes, int64_t n)
{
    double most_of = 0, worst = 0;
    for (int64_t i = 0; i < n; i++)
        most_of = fmax(most_of, sizes[i]);
    for (int64_t i = 0; i < n; i++)
        worst = fmax(worst, isfinite((double)a[i]) ? fabs((double)a[i] - b[i]) : INFINITY);
    return most_of > 0 ? worst / most_of : worst;
}

enum { OF_Y, OF_DQ, OF_DK, OF_DV, ARRAYS };

static void add(double *const to[2], int64_t at, double term, double size)
{
    to[0][at] += term;
    to[1][at] += size;
}

static double pair_by_pair(const Head *h)
{
    const int64_t rows = h->steps * h->group, K = h->keys, V = h->values;
    const int64_t n[ARRAYS] = { rows * V, rows * K, h->steps * K, h->steps * V };
    const real *const had[ARRAYS] = { h->y, h->dq, h->dk, h->dv };
    double *to[ARRAYS][2], *p = calloc((size_t)h->steps + 1, 8), worst = 0;
    for (int i = 0; i < ARRAYS; i++)
        for (int k = 0; k < 2; k++)
            to[i][k] = calloc((size_t)n[i] + 1, 8);
    for (int64_t row = 0; row < rows; row++) {
        const real *q = h->q + row * K, *dy = h->dy + row * V;
        double sum = 0, dots = 0, size_of_dots = 0;
        for (int64_t j = 0; j < h->steps; j++) {
            double s = 0;
            for (int64_t e = 0; e < K; e++)
                s += (double)q[e] * (double)h->k[j * K + e];
            sum += p[j] = is_there(&h->uses, row / h->group, j) ? exp(s / 2) : 0;
        }
        for (int64_t j = 0; j < h->steps; j++) {
            p[j] = sum > 0 ? p[j] / sum : 0;
            for (int64_t e = 0; e < V; e++)
                add(to[OF_Y], row * V + e, p[j] * (double)h->v[j * V + e],
                    p[j] * fabs((double)h->v[j * V + e]));
        }
        for (int64_t e = 0; e < V; e++) {
            dots += (double)dy[e] * to[OF_Y][0][row * V + e];
            size_of_dots += fabs((double)dy[e]) * to[OF_Y][1][row * V + e];
        }
        for (int64_t j = 0; j < h->steps; j++) {
            double g = -dots, size = size_of_dots;
            for (int64_t e = 0; e < V; e++) {
                g += (double)dy[e] * (double)h->v[j * V + e];
                size += fabs((double)dy[e] * (double)h->v[j * V + e]);
                add(to[OF_DV], j * V + e, p[j] * (double)dy[e], p[j] * fabs((double)dy[e]));
            }
            for (int64_t e = 0; e < K; e++) {
                const double k = (double)h->k[j * K + e], own = (double)q[e];
                add(to[OF_DQ], row * K + e, p[j] * g / 2 * k, p[j] * size / 2 * fabs(k));
                add(to[OF_DK], j * K + e, p[j] * g / 2 * own, p[j] * size / 2 * fabs(own));
            }
        }
    }
    for (int i = 0; i < ARRAYS; i++) {
        worst = fmax(worst, difference(had[i], to[i][0], to[i][1], n[i]));
        free(to[i][0]), free(to[i][1]);
    }
    free(p);
    return worst;
}

static real *copy_of(const real *from, int64_t n)
{
    return memcpy(malloc(sizeof *from * (size_t)(n + 1)), from, sizeof *from * (size_t)n);
}

static bool same(const real *a, const real *b, int64_t n)
{
    return memcmp(a, b, sizeof *a * (size_t)n) == 0;
}

static void values_of(int64_t steps, int64_t group, int64_t keys, int64_t values, Uses uses)
{
    Head h = head_of(steps, group, keys, values, uses);
    const int64_t rows = steps * group;
    const double within = sizeof(real) == 8 ? 1e-12 : 2e-5;
    run(&h, false);
    check(pair_by_pair(&h) < within, "pair by pair", steps, group, keys, values);
    real *dq = copy_of(h.dq, rows * keys), *dk = copy_of(h.dk, steps * keys),
         *dv = copy_of(h.dv, steps * values);
    run(&h, true);
    check(same(dq, h.dq, rows * keys) && same(dk, h.dk, steps * keys) && same(dv, h.dv, steps * values),
          "one item and many", steps, group, keys, values);
    free(dq), free(dk), free(dv);
    forget(&h);
}

/* Keys and values of the last steps, and queries and cotangents of the first, are no numbers: rows that see
 * none of these, and keys that none of these see, have what they had. */
static void hidden(int64_t steps, Uses uses, bool parts)
{
    enum { K = 6, V = 5, LATE = 7 };
    Head h = head_of(steps, 1, K, V, uses);
    run(&h, parts);
    real *y = copy_of(h.y, steps * V), *dq = copy_of(h.dq, steps * K), *dk = copy_of(h.dk, steps * K),
         *dv = copy_of(h.dv, steps * V);
    for (int64_t e = 0; e < LATE * K; e++)
        h.k[(steps - LATE) * K + e] = e % 2 ? (real)NAN : (real)INFINITY;
    for (int64_t e = 0; e < LATE * V; e++)
        h.v[(steps - LATE) * V + e] = e % 2 ? (real)INFINITY : (real)NAN;
    const int64_t before = steps - LATE + uses.lag;
    run(&h, parts);
    check(same(y, h.y, before * V) && same(dq, h.dq, before * K), "hidden keys", steps, 1, K, V);
    check(isnan((double)h.y[before * V]), "keys that are not hidden", steps, 1, K, V);
    free(h.k), free(h.v);
    h.k = drawn(steps * K), h.v = drawn(steps * V);
    run(&h, parts);
    memcpy(dk, h.dk, sizeof *dk * (size_t)(steps * K)), memcpy(dv, h.dv, sizeof *dv * (size_t)(steps * V));
    for (int64_t i = 0; i < LATE; i++)
        h.q[i * K] = h.dy[i * V] = (real)NAN;
    run(&h, parts);
    check(same(dk + LATE * K, h.dk + LATE * K, (steps - LATE) * K) &&
              same(dv + LATE * V, h.dv + LATE * V, (steps - LATE) * V),
          "hidden queries", steps, 1, K, V);
    free(y), free(dq), free(dk), free(dv);
    forget(&h);
}

int main(void)
{
    static const int64_t steps[] = { 1, 2, 63, 64, 65, 130, 300 };
    static const int64_t sizes[][3] = {
        { 1, 1, 1 }, { 3, 5, 17 }, { 2, 64, 33 }, { 5, 48, 80 }, { 1, 256, 256 }
    };
    static const Uses uses[] = {
        { 0, 1 << 30, false }, { 1, 70, false }, { 0, 1 << 30, true }, { 3, 20, true }
    };
    for (size_t t = 0; t < sizeof steps / sizeof *steps; t++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t u = 0; u < sizeof uses / sizeof *uses; u++)
                if (steps[t] < 100 || (s + u + t) % 3 == 0)
                    values_of(steps[t], sizes[s][0], sizes[s][1], sizes[s][2], uses[u]);
    for (size_t u = 0; u < sizeof uses / sizeof *uses; u++)
        for (int parts = 0; parts < 2; parts++)
            if (!uses[u].asked) {
                hidden(40, uses[u], parts);
                hidden(150, uses[u], parts);
            }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
