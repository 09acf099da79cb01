/* constant.c: values that depend on nothing but constants. In comes a module and a value; out go the value's
 * elements in double, where neither tensors, nor the step, nor sizes of a call are in it: the matrices of an
 * LMU or of HiPPO, tables of cosines, a norm of such a row. Arrays that such a value reads are computed
 * once. */
#include <math.h>

#include "constant.h"
#include "ops.h"

typedef struct Known {
    NodeId array;
    const double *elements;
} Known;
typedef struct Evaluation {
    const Module *m;
    int64_t *place; /* per index: where it stands; -1: it is not bound */
    Vec(Known) arrays;
    int64_t left; /* values that may still be computed */
} Evaluation;

static const Node *at(const Evaluation *e, NodeId id)
{
    return &e->m->nodes.data[id];
}

static bool place_of(const Evaluation *e, const IxExpr *x, int64_t *out)
{
    if (!x->offset->is_const)
        return false;
    int64_t sum = x->offset->value;
    for (int i = 0; i < x->nterms; i++) {
        const IxTerm *t = &x->terms[i];
        int64_t v = 0;
        if (!t->coef->is_const)
            return false;
        if (t->kind == IA_INDEX) {
            if (t->index < IX_FIRST || (v = e->place[t->index]) < 0)
                return false;
        } else {
            if (!place_of(e, t->arg, &v) || !t->by->is_const || t->by->value <= 0)
                return false;
            int64_t rest = v % t->by->value;
            rest += rest < 0 ? t->by->value : 0;
            v = t->kind == IA_MOD ? rest : (v - rest) / t->by->value;
        }
        sum += t->coef->value * v;
    }
    *out = sum;
    return true;
}

/* The number of elements along axes; 0: it is not known, or more than a table has. */
static int64_t elements_along(const Module *m, const IndexId *axes, int n)
{
    int64_t all = 1;
    for (int i = 0; i < n; i++) {
        const Poly *extent = axes[i] < IX_FIRST ? NULL : m->indices.data[axes[i]].extent;
        if (!extent || !extent->is_const || extent->value < 1 || extent->value > MOST_ELEMENTS)
            return 0;
        all *= extent->value;
        if (all > MOST_ELEMENTS)
            return 0;
    }
    return all;
}

static bool value_of(Evaluation *e, NodeId id, double *out);

/* The value at each place of the axes, in row-major order; indices that were bound before are bound again. */
static const double *elements_of(Evaluation *e, const IndexId *axes, int naxes, NodeId value, int64_t count)
{
    const Module *m = e->m;
    double *all = arena_alloc(m->arena, sizeof *all * (size_t)count);
    int64_t before[64];
    bool ok = naxes <= 64;
    for (int i = 0; i < naxes && ok; i++) {
        before[i] = e->place[axes[i]];
        e->place[axes[i]] = 0;
    }
    for (int64_t k = 0; k < count && ok; k++) {
        int64_t rest = k;
        for (int i = naxes - 1; i >= 0; i--) {
            int64_t extent = m->indices.data[axes[i]].extent->value;
            e->place[axes[i]] = rest % extent;
            rest /= extent;
        }
        ok = value_of(e, value, &all[k]);
    }
    for (int i = naxes - 1; i >= 0 && naxes <= 64; i--)
        e->place[axes[i]] = before[i];
    return ok ? all : NULL;
}

static const double *array_of(Evaluation *e, NodeId array)
{
    const Node a = *at(e, array);
    for (int i = 0; i < e->arrays.len; i++)
        if (e->arrays.data[i].array == array)
            return e->arrays.data[i].elements;
    int64_t count = elements_along(e->m, a.axes, a.naxes);
    const double *all = count ? elements_of(e, a.axes, a.naxes, a.args[0], count) : NULL;
    vec_push(e->m->arena, &e->arrays, ((Known){ array, all }));
    return all;
}

static bool read_array(Evaluation *e, const Node *n, NodeId array, double *out)
{
    const Node *a = at(e, array);
    int64_t place = 0;
    for (int i = 0; i < a->naxes; i++) {
        int64_t p, extent = e->m->indices.data[a->axes[i]].extent->value;
        if (n->kind == N_VIEW ? !place_of(e, n->map[i], &p) : (p = e->place[a->axes[i]]) < 0)
            return false;
        if (!e->m->indices.data[a->axes[i]].extent->is_const || p < 0 || p >= extent)
            return false;
        place = place * extent + p;
    }
    const double *all = array_of(e, array);
    if (all)
        *out = all[place];
    return all != NULL;
}

static bool reduced(Evaluation *e, const Node *n, double *out)
{
    int64_t count = elements_along(e->m, n->bound, n->nbound);
    const double *terms = count ? elements_of(e, n->bound, n->nbound, n->args[0], count) : NULL;
    if (!terms)
        return false;
    double v = terms[0];
    for (int64_t i = 1; i < count; i++)
        switch (n->reduce) {
        case R_SUM: v += terms[i]; break;
        case R_PROD: v *= terms[i]; break;
        case R_MAX: v = fmax(v, terms[i]); break;
        case R_MIN: v = fmin(v, terms[i]); break;
        default: return false;
        }
    *out = v;
    return true;
}

static bool mapped(Evaluation *e, const Node *n, double *out)
{
    double x[4];
    if (n->op == OP_SELECT) {
        if (!value_of(e, n->args[0], &x[0]))
            return false;
        return value_of(e, n->args[x[0] != 0 ? 1 : 2], out);
    }
    for (int i = 0; i < n->nargs; i++) {
        if (!value_of(e, n->args[i], &x[i]))
            return false;
        if ((n->op == OP_AND && x[i] == 0) || (n->op == OP_OR && x[i] != 0)) {
            *out = n->op == OP_OR;
            return true;
        }
    }
    if (!op_table[n->op].eval)
        return false;
    *out = op_table[n->op].eval(x);
    return true;
}

/* Integers are exact up to 2^53. */
static bool is_exact(const Node *n, double v)
{
    return n->type == TY_INT ? fabs(v) <= 0x1p53 : !isnan(v);
}

static bool value_of(Evaluation *e, NodeId id, double *out)
{
    const Node n = *at(e, id);
    int64_t place;
    bool ok = false;
    if (--e->left < 0 || n.dep || n.step)
        return false;
    switch (n.kind) {
    case N_CONST:
        *out = n.value;
        ok = true;
        break;
    case N_SIZE:
        ok = n.size->is_const;
        *out = ok ? (double)n.size->value : 0;
        break;
    case N_INDEX:
        ok = place_of(e, n.ix, &place);
        *out = ok ? (double)place : 0;
        break;
    case N_MAP: ok = mapped(e, &n, out); break;
    case N_REDUCE: ok = reduced(e, &n, out); break;
    case N_ARRAY: ok = read_array(e, &n, id, out); break;
    case N_VIEW: ok = read_array(e, &n, n.args[0], out); break;
    case N_LOAD: break;
    }
    return ok && is_exact(&n, *out);
}

const double *constant_elements(const Module *m, NodeId id, int64_t *count)
{
    const Node *n = &m->nodes.data[id];
    if (n->dep || n->type != TY_REAL || !(*count = elements_along(m, n->axes, n->naxes)))
        return NULL;
    Evaluation e = { .m = m, .left = MOST_VALUES };
    e.place = arena_alloc(m->arena, sizeof *e.place * (size_t)(m->indices.len + 1));
    for (int i = 0; i < m->indices.len; i++)
        e.place[i] = -1;
    const double *all = elements_of(&e, n->axes, n->naxes, n->kind == N_ARRAY ? n->args[0] : id, *count);
    for (int64_t i = 0; all && i < *count; i++)
        if (!isfinite(all[i]))
            return NULL;
    return all;
}
