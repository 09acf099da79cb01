/* Attention on the CPU: sums over pairs of steps that are weighed by scores, and their gradients, tile by
 * tile (schedule attention). As on a GPU (cell_device_attention.cuh),
 *
 *     score(i, j) = f(q_i . k_j, i, j)                  any expression; conditions leave pairs out
 *     y_i = sum_j w(i, j) v_j                           w = softmax over j of score, or score itself
 *
 * An item of a kernel is some rows, or keys, of one head of keys of one sequence. A row is a pair of a step
 * and a query head, row = i * group + r, for the `group` query heads that share the keys. Keys come in
 * segments: the steps of the call, and a history.
 *
 *     forward    y, and L_i = log sum_j exp(score), which backward takes
 *     back       dq_i = sum_j g k_j, dv_j = sum_i w dy_i, dk_j = sum_i g q_i, with g = df/d(q.k) w
 *                (dy_i . v_j - dy_i . y_i); gradients of what f reads
 *
 * Scores of a tile lie by keys, [key][row], so that what a softmax sums over is not along a vector. In: a
 * struct of facts with functions that the compiler prints, and cell_attention with addresses and strides.
 * CELL_ATTENTION_STORED is the type that tensors are stored in (f32, f64, bf16, f16). Guaranteed: a tile
 * without a pair is not read; rows without a pair have y = 0 and no gradient; what a condition leaves out
 * has no part in a sum, even if it is no number; nothing depends on which items a thread takes. */
#ifndef CELL_CPU_ATTENTION_H
#define CELL_CPU_ATTENTION_H

#include "cell_cpu_attention_sizes.h"
#include "cell_cpu_attention_tile.h"

enum {
    CELL_ATTENTION_ROWS = CELL_CPU_ATTENTION_ROWS,
    CELL_ATTENTION_KEYS = CELL_CPU_ATTENTION_KEYS,
    CELL_ATTENTION_TERMS = CELL_CPU_ATTENTION_TERMS,
    CELL_ATTENTION_SEGMENTS = 2
};

#define CELL_ATTENTION_JOIN(a, b) a##b
#define CELL_ATTENTION_NAME(a, b) CELL_ATTENTION_JOIN(a, b)
#define CELL_ATTENTION_GET CELL_ATTENTION_NAME(cell_load_, CELL_ATTENTION_STORED)
#define CELL_ATTENTION_PUT CELL_ATTENTION_NAME(cell_store_, CELL_ATTENTION_STORED)
typedef float cell_attention_f32;
typedef double cell_attention_f64;
typedef uint16_t cell_attention_bf16, cell_attention_f16;
typedef CELL_ATTENTION_NAME(cell_attention_, CELL_ATTENTION_STORED) cell_attention_stored;

/* Element e of step i of query head r stands at i * row + r * head + e * element; of a key, at j * row. Of
 * `real`, or as tensors are stored. */
typedef struct cell_attention_rows {
    const void *at;
    int64_t row, head, element;
    bool real;
} cell_attention_rows;
typedef struct cell_attention_result {
    void *at; /* NULL: not wanted */
    int64_t row, head, element;
    bool real;
    bool adds; /* to what is there */
} cell_attention_result;

/* Gradients are of `real`, their elements side by side, and do not add. */
typedef struct cell_attention_segment {
    cell_attention_rows k, v;
    cell_attention_result dk, dv, d_column[CELL_ATTENTION_TERMS];
    int64_t begin, end; /* of j */
} cell_attention_segment;

typedef struct cell_attention {
    cell_attention_rows q, y, dy;
    cell_attention_result out, kept; /* forward's y, in two places: of `kept` backward may read it */
    cell_attention_result dq, d_row[CELL_ATTENTION_TERMS];
    real *lse; /* L of (i, r) at i * lse_row + r * lse_head; +inf of rows without a pair; NULL: not wanted */
    int64_t lse_row, lse_head;
    cell_attention_result log; /* the same, but -inf of rows without a pair */
    cell_attention_rows d_lse; /* its cotangent; NULL: 0 */
    cell_attention_result d_sink;
    cell_attention_segment segment[CELL_ATTENTION_SEGMENTS];
    int64_t keys, values, steps, group; /* elements of a key, of a value; steps of the call */
    real scale; /* where facts are `scaled` */
    const void *uses; /* of the functions */
} cell_attention;

typedef struct cell_attention_pair {
    int64_t i, r, j;
    int segment;
} cell_attention_pair;

/* Rows and keys that a function is asked about. Behind the last row stand copies of it. */
typedef struct cell_attention_tile {
    const int64_t *i, *r; /* per row */
    char *leaves; /* what scores read of rows: [leaf][row], 8 bytes for each */
    int64_t first; /* row */
    int rows, lanes; /* rows, and in whole vectors */
    int64_t j; /* first key */
    int keys, segment;
    const real *dots; /* [key][CELL_ATTENTION_ROWS] */
    real *scores, *slopes; /* likewise; slopes: gradients of scores become those of dots */
    real *d_row, *d_column; /* sums of terms: [term][CELL_ATTENTION_ROWS], [term][CELL_ATTENTION_KEYS] */
} cell_attention_tile;

typedef struct cell_attention_range {
    int64_t from, to;
} cell_attention_range;

/* scaled: a score is the scale times the dot, and neither `score` nor `back` is called. terms: in the score,
 * whose gradients are wanted, each as sums over the keys of a row or over the rows of a key. Functions may be
 * NULL where there is nothing to do. there: puts `instead` where a pair is left out by what is no condition
 * on steps alone.
 * keys_of, steps_of, none and all as on the GPU. */
typedef struct cell_attention_facts {
    bool softmax, scaled;
    int segments, terms;
    int sink; /* 1 and the leaf of rows that is the score of one place more, without a value; 0: none */
    void (*read)(const cell_attention *, const cell_attention_tile *);
    void (*score)(const cell_attention *, const cell_attention_tile *);
    void (*back)(const cell_attention *, const cell_attention_tile *);
    void (*there)(const cell_attention *, const cell_attention_tile *, real *, real instead);
    cell_attention_range (*keys_of)(const void *, int, int64_t i0, int64_t i1, int64_t j0, int64_t j1);
    cell_attention_range (*steps_of)(const void *, int, int64_t j0, int64_t j1, int64_t i0, int64_t i1);
    bool (*none)(const void *, int, int64_t i0, int64_t i1, int64_t j0, int64_t j1);
    bool (*all)(const void *, int, int64_t i0, int64_t i1, int64_t j0, int64_t j1);
} cell_attention_facts;

/* The least and the most of the integers of steps [from, to), of which there is one at least: step i has
 * that at p[i * row]. */
typedef struct cell_attention_ends {
    int32_t least, most;
} cell_attention_ends;
CELL_V cell_attention_ends cell_attention_ends_of(const int32_t *p, int64_t row, int64_t from, int64_t to)
{
    cell_attention_ends x = { p[from * row], p[from * row] };
    for (int64_t i = from + 1; i < to; i++) {
        x.least = p[i * row] < x.least ? p[i * row] : x.least;
        x.most = p[i * row] > x.most ? p[i * row] : x.most;
    }
    return x;
}

/* ---- rows in memory */

/* In place of what a call leaves out. */
static const real cell_attention_zero __attribute__((unused)) = 0;

CELL_V void cell_attention_get(real *to, const void *from, bool of_real, int64_t place, int64_t element,
                               int64_t n)
{
    const real *const own = (const real *)from + place;
    const cell_attention_stored *const stored = (const cell_attention_stored *)from + place;
    if (of_real && element == 1) {
        int64_t e = 0;
        for (; e + CELL_TILE_LANES <= n; e += CELL_TILE_LANES)
            cell_r_store(to + e, cell_r_load(own + e));
        for (; e < n; e++)
            to[e] = own[e];
    } else if (of_real) {
        for (int64_t e = 0; e < n; e++)
            to[e] = own[e * element];
    } else if (element == 1) {
        CELL_LANES
        for (int64_t e = 0; e < n; e++)
            to[e] = CELL_ATTENTION_GET(stored + e);
    } else {
        for (int64_t e = 0; e < n; e++)
            to[e] = CELL_ATTENTION_GET(stored + e * element);
    }
}

CELL_V void cell_attention_put(const cell_attention_result *to, int64_t place, const real *from, int64_t n)
{
    for (int64_t e = 0; e < n; e++) {
        real *const own = (real *)to->at + place + e * to->element;
        cell_attention_stored *const stored = (cell_attention_stored *)to->at + place + e * to->element;
        if (to->real)
            *own = to->adds ? *own + from[e] : from[e];
        else
            CELL_ATTENTION_PUT(stored, to->adds ? CELL_ATTENTION_GET(stored) + from[e] : from[e]);
    }
}

CELL_V int64_t cell_attention_width(int64_t n)
{
    return cell_cpu_attention_padded(n, (int64_t)sizeof(real));
}

/* Rows of a tile, times `by`, [row][width] with zeros behind the n numbers. */
CELL_V void cell_attention_read(real *to, const cell_attention_rows *from, const cell_attention_tile *t,
                                int64_t n, real by)
{
    const int64_t width = cell_attention_width(n);
    for (int l = 0; l < t->rows; l++, to += width) {
        if (width > n)
            memset(to + width - CELL_W, 0, sizeof *to * CELL_W);
        cell_attention_get(to, from->at, from->real, t->i[l] * from->row + t->r[l] * from->head,
                           from->element, n);
        for (int64_t e = 0; e < n && by != 1; e++)
            to[e] *= by;
    }
}

/* Keys or values of a tile, likewise. */
CELL_V void cell_attention_read_keys(real *to, const cell_attention_rows *from, const cell_attention_tile *t,
                                     int64_t n)
{
    const int64_t width = cell_attention_width(n);
    for (int k = 0; k < t->keys; k++, to += width) {
        if (width > n)
            memset(to + width - CELL_W, 0, sizeof *to * CELL_W);
        cell_attention_get(to, from->at, from->real, (t->j + k) * from->row, from->element, n);
    }
}

/* The same for what reads each once, which finds them where they lie if it can. */
CELL_V const real *cell_attention_keys_of(real *copy, const cell_attention_rows *from,
                                          const cell_attention_tile *t, int64_t n, int64_t *row)
{
    if (from->real && from->element == 1) {
        *row = from->row;
        return (const real *)from->at + t->j * from->row;
    }
    *row = cell_attention_width(n);
    cell_attention_read_keys(copy, from, t, n);
    return copy;
}

/* [row][width] to [number][CELL_ATTENTION_ROWS], with zeros behind the rows. */
CELL_V void cell_attention_turn(real *to, const real *from, const cell_attention_tile *t, int64_t n)
{
    const int64_t width = cell_attention_width(n);
    for (int l = 0; l < t->lanes; l += CELL_W)
        for (int64_t e = 0; e < n; e++) {
            cell_v x = { 0 };
            if (l + CELL_W <= t->rows)
                for (int u = 0; u < CELL_W; u++)
                    x[u] = from[(l + u) * width + e];
            else
                for (int u = 0; u < t->rows - l; u++)
                    x[u] = from[(l + u) * width + e];
            cell_v_store(to + e * CELL_ATTENTION_ROWS + l, x);
        }
}

/* ---- tiles */

CELL_V char *cell_attention_carve(char **at, int64_t bytes)
{
    char *own = *at;
    *at += bytes;
    return own;
}
CELL_V real *cell_attention_numbers(char **at, int64_t n)
{
    return (real *)cell_attention_carve(at, n * (int64_t)sizeof(real));
}

/* Rows [first, first + rows) of a head, and what scores read of them. */
CELL_V void cell_attention_rows_of(const cell_attention *x, const cell_attention_facts *m,
                                   cell_attention_tile *t, int64_t *i, int64_t *r, int64_t first)
{
    const int64_t rows = x->steps * x->group - first;
    t->first = first;
    t->rows = rows < CELL_ATTENTION_ROWS ? (int)rows : CELL_ATTENTION_ROWS;
    t->lanes = (t->rows + CELL_W - 1) / CELL_W * CELL_W;
    for (int l = 0; l < t->lanes; l++) {
        const int64_t row = first + (l < t->rows ? l : t->rows - 1);
        i[l] = row / x->group;
        r[l] = row % x->group;
    }
    t->i = i;
    t->r = r;
    if (m->read)
        m->read(x, t);
}

CELL_V int64_t cell_attention_first_step(const cell_attention_tile *t)
{
    return t->i[0];
}
CELL_V int64_t cell_attention_end_step(const cell_attention_tile *t)
{
    return t->i[t->rows - 1] + 1;
}

/* Puts `instead` where a pair is left out. */
CELL_V void cell_attention_leave_out(const cell_attention *x, const cell_attention_facts *m,
                                     const cell_attention_tile *t, real *s, real instead)
{
    for (int k = 0; k < t->keys; k++) {
        const cell_attention_range steps =
            m->steps_of(x->uses, t->segment, t->j + k, t->j + k + 1, cell_attention_first_step(t),
                        cell_attention_end_step(t));
        real *const row = s + k * CELL_ATTENTION_ROWS;
        int64_t from = steps.from * x->group - t->first, to = steps.to * x->group - t->first;
        from = from > t->lanes ? t->lanes : from;
        to = to < from ? from : to;
        for (int64_t l = 0; l < from; l++)
            row[l] = instead;
        for (int64_t l = to; l < t->lanes; l++)
            row[l] = instead;
    }
    if (m->there)
        m->there(x, t, s, instead);
}

/* Over the tiles of keys [j, to) of a segment that the rows may take; false: there is none left. */
CELL_V bool cell_attention_next(const cell_attention *x, const cell_attention_facts *m,
                                cell_attention_tile *t, int64_t *j, int64_t to)
{
    const int64_t i0 = cell_attention_first_step(t), i1 = cell_attention_end_step(t);
    for (; *j < to; *j += CELL_ATTENTION_KEYS) {
        const int64_t behind = *j + CELL_ATTENTION_KEYS < to ? *j + CELL_ATTENTION_KEYS : to;
        if (m->none(x->uses, t->segment, i0, i1, *j, behind))
            continue;
        t->j = *j;
        t->keys = (int)(behind - *j);
        *j = behind;
        return true;
    }
    return false;
}

CELL_V bool cell_attention_is_whole(const cell_attention *x, const cell_attention_facts *m,
                                    const cell_attention_tile *t)
{
    return m->all(x->uses, t->segment, cell_attention_first_step(t), cell_attention_end_step(t), t->j,
                  t->j + t->keys);
}

/* e^x of x that is not above 0 but for rounding; 0 where that is smaller than any normal number. */
CELL_V cell_r cell_attention_exp(cell_r x)
{
    cell_r r, sum;
    const cell_r low = cell_r_of(CELL_CPU_DOUBLE ? (real)-708 : (real)-87);
    const cell_r q = cell_r_reduced(cell_r_select(x < low, low, x), &r, &sum);
    const cell_r y = (1 + cell_r_fma(r * r, q, r)) * cell_r_full_power(sum);
    return (cell_r)((cell_r_int)y & ~(cell_r_int)(x < low));
}

/* C (+)= A B; finite: all of B is, or no pair of the tile is left out. */
CELL_V void cell_attention_multiply(int64_t m, int64_t n, int64_t k, cell_tile_operands x, bool adds,
                                    bool finite)
{
    if (finite) {
        cell_tile_product(m, n, k, x, adds);
        return;
    }
    for (int64_t i = 0; i < m && !adds; i++)
        memset(x.c + i * x.c_row, 0, sizeof(real) * (size_t)n);
    cell_tile_sparse(m, n, k, x);
}

/* ---- forward */

/* Scores become weights less the maximum so far; by: what sums so far are to be scaled by. */
CELL_V void cell_attention_weigh(const cell_attention_tile *t, real *most, real *sum, real *by)
{
    enum { L = CELL_ATTENTION_ROWS };
    for (int c = 0; c < t->lanes; c += CELL_TILE_LANES) {
        real *const s = t->scores + c;
        const cell_r before = cell_r_load(most + c), none = cell_r_of(-(real)INFINITY);
        cell_r top = before, other = none;
        int k = 0;
        for (; k + 2 <= t->keys; k += 2) {
            const cell_r x = cell_r_load(s + k * L), y = cell_r_load(s + (k + 1) * L);
            top = cell_r_select(x > top, x, top);
            other = cell_r_select(y > other, y, other);
        }
        for (; k < t->keys; k++)
            top = cell_r_select(cell_r_load(s + k * L) > top, cell_r_load(s + k * L), top);
        top = cell_r_select(other > top, other, top);
        const cell_r base = cell_r_select(top == none, (cell_r){ 0 }, top);
        const cell_r scale = cell_attention_exp(before - base);
        cell_r total = cell_r_load(sum + c) * scale;
        for (k = 0; k < t->keys; k++) {
            const cell_r p = cell_attention_exp(cell_r_load(s + k * L) - base);
            cell_r_store(s + k * L, p);
            total += p;
        }
        cell_r_store(most + c, top);
        cell_r_store(sum + c, total);
        cell_r_store(by + c, scale);
    }
}

/* The scores of the places without a value; NULL: there are none. */
CELL_V const real *cell_attention_sinks(const cell_attention_facts *m, const cell_attention_tile *t)
{
    return m->sink ? (const real *)(t->leaves + 8 * (m->sink - 1) * CELL_ATTENTION_ROWS) : NULL;
}

CELL_V void cell_attention_begin(const cell_attention_facts *m, const cell_attention_tile *t, real *most,
                                 real *sum)
{
    const real *const sinks = cell_attention_sinks(m, t);
    cell_v_fill(most, CELL_ATTENTION_ROWS, -(real)INFINITY);
    memset(sum, 0, sizeof *sum * CELL_ATTENTION_ROWS);
    for (int l = 0; l < t->rows && sinks; l++) {
        most[l] = sinks[l];
        sum[l] = sinks[l] > -(real)INFINITY;
    }
}

CELL_V void cell_attention_finish(const cell_attention *x, const cell_attention_facts *m,
                                  const cell_attention_tile *t, real *y, const real *most, const real *sum)
{
    const int64_t width = cell_attention_width(x->values);
    for (int l = 0; l < t->rows; l++, y += width) {
        const real by = sum[l] == 0 ? 0 : 1 / sum[l];
        for (int64_t e = 0; e < x->values && m->softmax; e++)
            y[e] *= by;
        if (x->out.at)
            cell_attention_put(&x->out, t->i[l] * x->out.row + t->r[l] * x->out.head, y, x->values);
        if (x->kept.at)
            cell_attention_put(&x->kept, t->i[l] * x->kept.row + t->r[l] * x->kept.head, y, x->values);
        const real log = sum[l] == 0 || !m->softmax ? -(real)INFINITY : most[l] + cell_log(sum[l]);
        if (m->softmax && x->lse)
            x->lse[t->i[l] * x->lse_row + t->r[l] * x->lse_head] = sum[l] == 0 ? (real)INFINITY : log;
        if (x->log.at)
            cell_attention_put(&x->log, t->i[l] * x->log.row + t->r[l] * x->log.head, &log, 1);
    }
}

/* Rows from number `tile` * CELL_ATTENTION_ROWS on. */
static inline __attribute__((unused)) void
cell_attention_forward(const cell_attention *x, const cell_attention_facts *m, int64_t tile, void *scratch)
{
    enum { L = CELL_ATTENTION_ROWS, N = CELL_ATTENTION_KEYS };
    const int64_t kw = cell_attention_width(x->keys), vw = cell_attention_width(x->values);
    char *at = scratch;
    cell_attention_tile t = { 0 };
    real *const q = cell_attention_numbers(&at, L * kw), *const turned = cell_attention_numbers(&at, L * kw);
    real *const y = cell_attention_numbers(&at, L * vw), *const k = cell_attention_numbers(&at, N * kw);
    real *const v = cell_attention_numbers(&at, N * vw), *const s = cell_attention_numbers(&at, N * L);
    real *const most = cell_attention_numbers(&at, L), *const sum = cell_attention_numbers(&at, L);
    real *const by = cell_attention_numbers(&at, L);
    int64_t *const i = (int64_t *)cell_attention_carve(&at, 8 * L), *const r = i + L;
    t.leaves = at + 8 * L;
    t.dots = t.scores = s;
    cell_attention_rows_of(x, m, &t, i, r, tile * L);
    cell_attention_read(q, &x->q, &t, x->keys, m->scaled ? x->scale : 1);
    cell_attention_turn(turned, q, &t, x->keys);
    cell_attention_begin(m, &t, most, sum);
    memset(y, 0, sizeof *y * (size_t)(L * vw));
    for (t.segment = 0; t.segment < m->segments; t.segment++) {
        const cell_attention_segment *g = &x->segment[t.segment];
        cell_attention_range keys = m->keys_of(x->uses, t.segment, cell_attention_first_step(&t),
                                               cell_attention_end_step(&t), g->begin, g->end);
        while (cell_attention_next(x, m, &t, &keys.from, keys.to)) {
            const bool whole = cell_attention_is_whole(x, m, &t);
            int64_t row;
            const real *keys_at = cell_attention_keys_of(k, &g->k, &t, x->keys, &row);
            cell_attention_read_keys(v, &g->v, &t, x->values);
            cell_tile_product(t.keys, t.lanes, x->keys,
                              (cell_tile_operands){ keys_at, turned, s, row, 1, L, L }, 0);
            if (m->score)
                m->score(x, &t);
            if (!whole)
                cell_attention_leave_out(x, m, &t, s, m->softmax ? -(real)INFINITY : 0);
            if (m->softmax) {
                cell_attention_weigh(&t, most, sum, by);
                for (int l = 0; l < t.rows; l++)
                    for (int64_t e = 0; e < vw && by[l] != 1; e += CELL_W)
                        cell_v_store(y + l * vw + e, by[l] * cell_v_load(y + l * vw + e));
            }
            cell_attention_multiply(t.rows, vw, t.keys, (cell_tile_operands){ s, v, y, 1, L, vw, vw }, true,
                                    whole || cell_tile_is_finite(v, t.keys * vw));
        }
    }
    cell_attention_finish(x, m, &t, y, most, sum);
}

/* ---- backward */

/* Where there are few heads, of which B * heads are all: items of a head, of rows and of keys. */
CELL_V int64_t cell_attention_parts(int64_t n, int64_t of)
{
    return (n + of - 1) / of;
}
CELL_V int64_t cell_attention_items(int64_t heads, int64_t rows, int64_t steps, int64_t history)
{
    return heads >= CELL_CPU_ATTENTION_HEADS ? 1
                                             : cell_attention_parts(rows, CELL_ATTENTION_ROWS) +
                                                   cell_attention_parts(steps, CELL_CPU_ATTENTION_PART) +
                                                   cell_attention_parts(history, CELL_CPU_ATTENTION_PART);
}

/* Gradients of keys [from, to) begin with zeros. */
CELL_V void cell_attention_clear(const cell_attention_result *of, int64_t from, int64_t to, int64_t n)
{
    for (int64_t j = from; j < to && of->at; j++)
        memset((real *)of->at + j * of->row, 0, sizeof(real) * (size_t)n);
}
CELL_V void cell_attention_add(const cell_attention_result *to, const cell_attention_tile *t,
                               const real *from, int64_t n)
{
    const int64_t width = cell_attention_width(n);
    for (int k = 0; k < t->keys; k++) {
        real *const row = (real *)to->at + (t->j + k) * to->row;
        for (int64_t e = 0; e < n; e++)
            row[e] += from[k * width + e];
    }
}

/* What `back` has of a term: to the sums of rows, and the sum of lanes. */
CELL_V void cell_attention_add_rows(real *to, const real *g, int lanes)
{
    for (int l = 0; l < lanes; l += CELL_W)
        cell_v_store(to + l, cell_v_load(to + l) + cell_v_load(g + l));
}
CELL_V real cell_attention_sum_rows(const real *g, int rows)
{
    cell_v sum = { 0 };
    int l = 0;
    for (; l + CELL_W <= rows; l += CELL_W)
        sum += cell_v_load(g + l);
    real total = cell_v_sum(sum);
    for (; l < rows; l++)
        total += g[l];
    return total;
}

/* Of a softmax: scores become weights, and the cotangents of weights those of scores. */
CELL_V void cell_attention_weigh_back(const cell_attention_tile *t, const real *lse, const real *d)
{
    for (int k = 0; k < t->keys; k++) {
        real *const s = t->scores + k * CELL_ATTENTION_ROWS, *const g = t->slopes + k * CELL_ATTENTION_ROWS;
        for (int c = 0; c < t->lanes; c += CELL_TILE_LANES) {
            const cell_r x = cell_r_load(s + c), none = cell_r_of(-(real)INFINITY);
            const cell_r weight =
                cell_attention_exp(x - cell_r_load(lse + c)); /* of a row that is no number, none */
            const cell_r p = (cell_r)((cell_r_int)weight & ~(cell_r_int)(x == none));
            const cell_r slope = p * (cell_r_load(g + c) - cell_r_load(d + c));
            cell_r_store(s + c, p);
            cell_r_store(g + c, (cell_r)((cell_r_int)slope & ~(cell_r_int)(p == 0)));
        }
    }
}

/* The cotangent of the row's logarithm. */
CELL_V real cell_attention_d_log(const cell_attention *x, const cell_attention_tile *t, int l)
{
    const int64_t at = t->i[l] * x->d_lse.row + t->r[l] * x->d_lse.head;
    real d = 0;
    if (x->d_lse.at)
        cell_attention_get(&d, x->d_lse.at, x->d_lse.real, at, 1, 1);
    return d;
}

/* L of each row, and dy . y less the cotangent of L. */
CELL_V void cell_attention_dots(const cell_attention *x, const cell_attention_tile *t, const real *dy,
                                real *y, real *lse, real *d)
{
    const int64_t width = cell_attention_width(x->values);
    cell_v_fill(lse, CELL_ATTENTION_ROWS, (real)INFINITY);
    memset(d, 0, sizeof *d * CELL_ATTENTION_ROWS);
    cell_attention_read(y, &x->y, t, x->values, 1);
    for (int l = 0; l < t->rows; l++) {
        cell_v sum = { 0 };
        for (int64_t e = 0; e < width; e += CELL_W)
            sum = cell_v_fma(cell_v_load(y + l * width + e), cell_v_load(dy + l * width + e), sum);
        lse[l] = x->lse[t->i[l] * x->lse_row + t->r[l] * x->lse_head];
        d[l] = lse[l] == (real)INFINITY ? 0 : cell_v_sum(sum) - cell_attention_d_log(x, t, l);
    }
}

/* What an item gives: gradients of rows, of keys. */
typedef struct cell_attention_wanted {
    int64_t first, end; /* tiles of rows */
    bool rows, keys;
    int segment; /* whose keys; -1: of all */
    int64_t from, to; /* keys of that */
} cell_attention_wanted;

CELL_V cell_attention_wanted cell_attention_item(const cell_attention *x, const cell_attention_facts *m,
                                                 int64_t item, int64_t items)
{
    const int64_t tiles = cell_attention_parts(x->steps * x->group, CELL_ATTENTION_ROWS);
    cell_attention_wanted w = { 0, tiles, true, true, -1, 0, 0 };
    if (items == 1)
        return w;
    if (item < tiles) /* the last rows may have most keys */
        return (cell_attention_wanted){ tiles - 1 - item, tiles - item, true, false, -1, 0, 0 };
    w.rows = false;
    item -= tiles;
    for (w.segment = 0; w.segment < m->segments; w.segment++) {
        const cell_attention_segment *g = &x->segment[w.segment];
        const int64_t parts = cell_attention_parts(g->end - g->begin, CELL_CPU_ATTENTION_PART);
        if (item < parts) {
            w.from = g->begin + item * CELL_CPU_ATTENTION_PART;
            w.to = w.from + CELL_CPU_ATTENTION_PART < g->end ? w.from + CELL_CPU_ATTENTION_PART : g->end;
            break;
        }
        item -= parts;
    }
    return w;
}

typedef struct cell_attention_back_memory {
    real *q, *turned, *dy, *dy_turned, *y, *k, *v, *s, *dots, *g, *dq, *dk, *dv, *lse, *d;
} cell_attention_back_memory;

CELL_V void cell_attention_back_keys(const cell_attention *x, const cell_attention_facts *m,
                                     const cell_attention_tile *t, const cell_attention_back_memory *a,
                                     bool whole)
{
    enum { L = CELL_ATTENTION_ROWS };
    const cell_attention_segment *g = &x->segment[t->segment];
    const int64_t kw = cell_attention_width(x->keys), vw = cell_attention_width(x->values);
    if (g->dv.at) {
        cell_attention_multiply(t->keys, vw, t->rows,
                                (cell_tile_operands){ a->s, a->dy, a->dv, L, 1, vw, vw }, false,
                                whole || cell_tile_is_finite(a->dy, t->rows * vw));
        cell_attention_add(&g->dv, t, a->dv, x->values);
    }
    if (g->dk.at) {
        cell_attention_multiply(t->keys, kw, t->rows, (cell_tile_operands){ a->g, a->q, a->dk, L, 1, kw, kw },
                                false, whole || cell_tile_is_finite(a->q, t->rows * kw));
        cell_attention_add(&g->dk, t, a->dk, x->keys);
    }
    for (int n = 0; n < m->terms; n++)
        for (int k = 0; k < t->keys && g->d_column[n].at; k++)
            ((real *)g->d_column[n].at)[(t->j + k) * g->d_column[n].row] +=
                t->d_column[n * CELL_ATTENTION_KEYS + k];
}

/* A tile of rows and one of keys: weights, gradients of scores and of dots. */
CELL_V void cell_attention_back_tile(const cell_attention *x, const cell_attention_facts *m,
                                     const cell_attention_tile *t, const cell_attention_back_memory *a,
                                     const cell_attention_wanted *w)
{
    enum { L = CELL_ATTENTION_ROWS };
    const cell_attention_segment *g = &x->segment[t->segment];
    const int64_t kw = cell_attention_width(x->keys), vw = cell_attention_width(x->values);
    const bool whole = cell_attention_is_whole(x, m, t);
    int64_t row;
    const real *values = cell_attention_keys_of(a->v, &g->v, t, x->values, &row);
    cell_attention_read_keys(a->k, &g->k, t, x->keys);
    cell_tile_product(t->keys, t->lanes, x->keys,
                      (cell_tile_operands){ a->k, a->turned, (real *)t->dots, kw, 1, L, L }, 0);
    cell_tile_product(t->keys, t->lanes, x->values,
                      (cell_tile_operands){ values, a->dy_turned, a->g, row, 1, L, L }, 0);
    if (m->score)
        m->score(x, t);
    if (!whole)
        cell_attention_leave_out(x, m, t, a->s, m->softmax ? -(real)INFINITY : 0);
    if (m->softmax)
        cell_attention_weigh_back(t, a->lse, a->d);
    else if (!whole)
        cell_attention_leave_out(x, m, t, a->g, 0);
    memset(t->d_column, 0, sizeof(real) * (size_t)(m->terms * CELL_ATTENTION_KEYS));
    if (m->back)
        m->back(x, t);
    if (w->keys)
        cell_attention_back_keys(x, m, t, a, whole);
    if (w->rows && x->dq.at)
        cell_attention_multiply(t->rows, kw, t->keys, (cell_tile_operands){ a->g, a->k, a->dq, 1, L, kw, kw },
                                true, whole || cell_tile_is_finite(a->k, t->keys * kw));
}

CELL_V void cell_attention_clear_keys(const cell_attention *x, const cell_attention_facts *m,
                                      const cell_attention_wanted *w)
{
    for (int s = 0; s < m->segments; s++) {
        const cell_attention_segment *g = &x->segment[s];
        const int64_t from = w->segment < 0 ? g->begin : w->from, to = w->segment < 0 ? g->end : w->to;
        if (w->segment >= 0 && s != w->segment)
            continue;
        cell_attention_clear(&g->dk, from, to, x->keys);
        cell_attention_clear(&g->dv, from, to, x->values);
        for (int n = 0; n < m->terms; n++)
            cell_attention_clear(&g->d_column[n], from, to, 1);
    }
}

/* A tile of rows with all keys that are wanted. */
CELL_V void cell_attention_back_rows(const cell_attention *x, const cell_attention_facts *m,
                                     cell_attention_tile *t, const cell_attention_back_memory *a,
                                     const cell_attention_wanted *w)
{
    const int64_t kw = cell_attention_width(x->keys);
    const real by = m->scaled ? x->scale : 1;
    cell_attention_read(a->q, &x->q, t, x->keys, by);
    cell_attention_turn(a->turned, a->q, t, x->keys);
    cell_attention_read(a->dy, &x->dy, t, x->values, 1);
    cell_attention_turn(a->dy_turned, a->dy, t, x->values);
    if (m->softmax)
        cell_attention_dots(x, t, a->dy, a->y, a->lse, a->d);
    memset(a->dq, 0, sizeof(real) * (size_t)(t->rows * kw));
    memset(t->d_row, 0, sizeof(real) * CELL_ATTENTION_TERMS * CELL_ATTENTION_ROWS);
    for (t->segment = 0; t->segment < m->segments; t->segment++) {
        const cell_attention_segment *g = &x->segment[t->segment];
        if (w->segment >= 0 && t->segment != w->segment)
            continue;
        const bool all = w->segment < 0;
        cell_attention_range keys =
            m->keys_of(x->uses, t->segment, cell_attention_first_step(t), cell_attention_end_step(t),
                       all ? g->begin : w->from, all ? g->end : w->to);
        while (cell_attention_next(x, m, t, &keys.from, keys.to))
            cell_attention_back_tile(x, m, t, a, w);
    }
    for (int l = 0; l < t->rows && w->rows; l++) {
        for (int64_t e = 0; e < x->keys && by != 1; e++)
            a->dq[l * kw + e] *= by;
        if (x->d_sink.at) {
            const real share = cell_attention_sinks(m, t)[l] - a->lse[l];
            const real sink = -cell_exp(share) * a->d[l];
            cell_attention_put(&x->d_sink, t->i[l] * x->d_sink.row + t->r[l] * x->d_sink.head, &sink, 1);
        }
        if (x->dq.at)
            cell_attention_put(&x->dq, t->i[l] * x->dq.row + t->r[l] * x->dq.head, a->dq + l * kw, x->keys);
        for (int n = 0; n < m->terms; n++)
            if (x->d_row[n].at)
                cell_attention_put(&x->d_row[n], t->i[l] * x->d_row[n].row + t->r[l] * x->d_row[n].head,
                                   t->d_row + n * CELL_ATTENTION_ROWS + l, 1);
    }
}

/* Item `item` of `items` of a head. */
static inline __attribute__((unused)) void cell_attention_back(const cell_attention *x,
                                                               const cell_attention_facts *m, int64_t item,
                                                               int64_t items, void *scratch)
{
    enum { L = CELL_ATTENTION_ROWS, N = CELL_ATTENTION_KEYS };
    const int64_t kw = cell_attention_width(x->keys), vw = cell_attention_width(x->values);
    char *at = scratch;
    cell_attention_tile t = { 0 };
    cell_attention_back_memory a;
    a.q = cell_attention_numbers(&at, L * kw);
    a.turned = cell_attention_numbers(&at, L * kw);
    a.dq = cell_attention_numbers(&at, L * kw);
    a.dy = cell_attention_numbers(&at, L * vw);
    a.dy_turned = cell_attention_numbers(&at, L * vw);
    a.y = cell_attention_numbers(&at, L * vw);
    a.k = cell_attention_numbers(&at, N * kw);
    a.dk = cell_attention_numbers(&at, N * kw);
    a.v = cell_attention_numbers(&at, N * vw);
    a.dv = cell_attention_numbers(&at, N * vw);
    a.s = cell_attention_numbers(&at, N * L);
    a.dots = cell_attention_numbers(&at, N * L);
    a.g = cell_attention_numbers(&at, N * L);
    a.lse = cell_attention_numbers(&at, L);
    a.d = cell_attention_numbers(&at, L);
    t.d_row = cell_attention_numbers(&at, CELL_ATTENTION_TERMS * L);
    t.d_column = cell_attention_numbers(&at, CELL_ATTENTION_TERMS * N);
    int64_t *const i = (int64_t *)cell_attention_carve(&at, 8 * L), *const r = i + L;
    t.leaves = at + 8 * L;
    t.dots = m->score ? a.dots : a.s;
    t.scores = a.s;
    t.slopes = a.g;
    const cell_attention_wanted w = cell_attention_item(x, m, item, items);
    if (w.keys)
        cell_attention_clear_keys(x, m, &w);
    for (int64_t tile = w.first; tile < w.end; tile++) {
        cell_attention_rows_of(x, m, &t, i, r, tile * L);
        cell_attention_back_rows(x, m, &t, &a, &w);
    }
}

#endif
