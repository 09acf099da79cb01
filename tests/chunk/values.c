/* values.c: an evaluator of IR for one step. Each node is computed by its definition, at the places in
 * force; arrays remember what they computed. Tensors have random elements, the same for each step and
 * place whenever they are asked for. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/ops.h"
#include "values.h"

enum { START = 5, STEPS = 9, STEP = 9 };

static uint64_t mix(uint64_t h, uint64_t v)
{
    h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
    h *= 0xff51afd7ed558ccdull;
    return h ^ h >> 32;
}

static double *empty(Arena *a, size_t n)
{
    double *x = arena_alloc(a, n * sizeof *x);
    memset(x, 0xff, n * sizeof *x);
    return x;
}

static bool is_empty(const double *x)
{
    uint64_t bits;
    memcpy(&bits, x, sizeof bits);
    return bits == ~(uint64_t)0;
}

static bool sizes_fit(const Module *m, const int64_t *dims)
{
    for (int i = 0; i < m->quotients.len; i++) {
        int64_t den = poly_eval(m, m->quotients.data[i].den, dims);
        if (den == 0 || poly_eval(m, m->quotients.data[i].num, dims) % den)
            return false;
    }
    for (int i = 0; i < m->checks.len; i++)
        if (poly_eval(m, m->checks.data[i].nonneg, dims) < 0)
            return false;
    return true;
}

bool values_begin(Values *v, Module *m, uint64_t seed)
{
    static const int sizes[] = { 3, 2, 4, 5, 6, 8 };
    *v = (Values){ .m = m, .seed = seed, .now = STEP };
    v->place = arena_alloc(m->arena, sizeof *v->place * (size_t)m->indices.len);
    v->memo = arena_alloc(m->arena, sizeof *v->memo * (size_t)m->nodes.len);
    v->poisoned = arena_alloc(m->arena, (size_t)m->tensors.len + 1);
    v->place[IX_TIME] = STEP;
    v->place[IX_START] = START;
    for (uint64_t draw = 0; draw < 1000; draw++) {
        for (int i = 0; i < m->dims.len; i++)
            v->dims[i] = sizes[draw ? mix(seed, draw * 100 + (uint64_t)i) % 6 : (uint64_t)i % 6];
        v->dims[ATOM_B] = 1;
        v->dims[ATOM_T] = STEPS;
        v->dims[ATOM_PAST] = START + STEPS;
        if (sizes_fit(m, v->dims))
            return true;
    }
    return false;
}

Values values_again(const Values *v)
{
    Values x = *v;
    const Module *m = v->m;
    x.place = arena_alloc(m->arena, sizeof *x.place * (size_t)m->indices.len);
    memcpy(x.place, v->place, sizeof *x.place * (size_t)m->indices.len);
    x.memo = arena_alloc(m->arena, sizeof *x.memo * (size_t)m->nodes.len);
    x.poisoned = arena_alloc(m->arena, (size_t)m->tensors.len + 1);
    return x;
}

int64_t values_extent(const Values *v, IndexId i)
{
    return poly_eval(v->m, v->m->indices.data[i].extent, v->dims);
}

int64_t values_index(const Values *v, const IxExpr *e)
{
    int64_t sum = poly_eval(v->m, e->offset, v->dims);
    for (int i = 0; i < e->nterms; i++) {
        const IxTerm *t = &e->terms[i];
        int64_t x = t->kind == IA_INDEX ? v->place[t->index] : values_index(v, t->arg);
        int64_t by = t->kind == IA_INDEX ? 1 : poly_eval(v->m, t->by, v->dims);
        int64_t floor = x / by - (x % by && (x < 0) != (by < 0));
        sum += poly_eval(v->m, t->coef, v->dims) * (t->kind == IA_INDEX ? x
                                                    : t->kind == IA_DIV ? floor
                                                                        : x - by * floor);
    }
    return sum;
}

/* In the tensor's range where it has one, else from -1 to 1. */
static double element(const Tensor *t, uint64_t h)
{
    double u = (double)(h >> 11) * 0x1p-53;
    if (t->dtype == DT_I32)
        return (double)(h % 3);
    if (!t->range)
        return 2 * u - 1;
    double low = isfinite(t->range->low) ? t->range->low : isfinite(t->range->high) ? t->range->high - 2 : -1;
    double high = isfinite(t->range->high) ? t->range->high : low + 2;
    return low + (0.05 + 0.9 * u) * (high - low);
}

static double load_at(const Values *v, TensorId id, int64_t step, const int64_t *places, int n)
{
    const Tensor *t = &v->m->tensors.data[id];
    bool steps = t->kind == T_STATE || (t->kind == T_INPUT && !t->lengths);
    uint64_t h = mix(v->seed, (uint64_t)id);
    h = mix(h, steps ? (uint64_t)(step + 1000) : 0);
    for (int i = 0; i < n; i++)
        h = mix(h, (uint64_t)places[i]);
    return v->poisoned[id] ? NAN : element(t, mix(h, 17));
}

double values_load(Values *v, TensorId t, const int64_t *places)
{
    return load_at(v, t, v->now, places, v->m->tensors.data[t].rank);
}

static double array_value(Values *v, NodeId id)
{
    const Node *n = &v->m->nodes.data[id];
    size_t at = 0, all = 1;
    if (v->place[IX_TIME] != v->now)
        return values_of(v, n->args[0]);
    for (int i = 0; i < n->naxes; i++) {
        size_t extent = (size_t)values_extent(v, n->axes[i]);
        at = at * extent + (size_t)v->place[n->axes[i]];
        all *= extent;
    }
    if (!v->memo[id])
        v->memo[id] = empty(v->m->arena, all + 1);
    if (is_empty(&v->memo[id][at]))
        v->memo[id][at] = values_of(v, n->args[0]);
    return v->memo[id][at];
}

static double read_value(Values *v, const Node *n)
{
    int64_t places[32], before[32], step = n->step ? values_index(v, n->step) : v->place[IX_TIME],
                                    time = v->place[IX_TIME];
    for (int i = 0; i < n->nmap; i++)
        places[i] = values_index(v, n->map[i]);
    if (n->step && n->past >= 0 && step < START)     /* of the history, which begins where it likes */
        return load_at(v, n->past, step, places, n->nmap);
    if (n->kind == N_LOAD)
        return load_at(v, n->tensor, step, places, n->nmap);
    const Node *a = &v->m->nodes.data[n->args[0]];
    for (int i = 0; i < a->naxes; i++)
        before[i] = v->place[a->axes[i]];
    for (int i = 0; i < a->naxes; i++)
        v->place[a->axes[i]] = places[i];
    v->place[IX_TIME] = step;
    double x = array_value(v, n->args[0]);
    v->place[IX_TIME] = time;
    for (int i = a->naxes; i-- > 0;)
        v->place[a->axes[i]] = before[i];
    return x;
}

static double map_value(Values *v, const Node *n)
{
    double x[4];
    if (n->op == OP_SELECT)
        return values_of(v, n->args[values_of(v, n->args[0]) != 0 ? 1 : 2]);
    if (n->op == OP_OVERRIDE || n->op == OP_STE)
        return values_of(v, n->args[0]);
    if (n->op == OP_AND || n->op == OP_OR) {
        bool first = values_of(v, n->args[0]) != 0;
        return first == (n->op == OP_OR) ? first : values_of(v, n->args[1]) != 0;
    }
    for (int i = 0; i < n->nargs; i++)
        x[i] = values_of(v, n->args[i]);
    return op_table[n->op].eval(x);
}

static double reduced(Values *v, const Node *n, int k)
{
    if (k == n->nbound)
        return values_of(v, n->args[0]);
    IndexId b = n->bound[k];
    int64_t before = v->place[b], extent = values_extent(v, b);
    double r = n->reduce == R_SUM ? 0 : n->reduce == R_PROD ? 1 : n->reduce == R_MAX ? -INFINITY : INFINITY;
    for (v->place[b] = 0; v->place[b] < extent; v->place[b]++) {
        double x = reduced(v, n, k + 1);
        r = n->reduce == R_SUM    ? r + x
            : n->reduce == R_PROD ? r * x
            : n->reduce == R_MAX  ? fmax(r, x)
                                  : fmin(r, x);
    }
    v->place[b] = before;
    return r;
}

double values_of(Values *v, NodeId id)
{
    const Node *n = &v->m->nodes.data[id];
    double x;
    if (v->instead && v->place[IX_TIME] == v->now && v->instead(v, id, &x))
        return x;
    switch (n->kind) {
    case N_CONST: return n->value;
    case N_SIZE: return (double)poly_eval(v->m, n->size, v->dims);
    case N_INDEX: return (double)values_index(v, n->ix);
    case N_LOAD: case N_VIEW: return read_value(v, n);
    case N_ARRAY: return array_value(v, id);
    case N_MAP: return map_value(v, n);
    case N_REDUCE: return reduced(v, n, 0);
    }
    abort();
}
