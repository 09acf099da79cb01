/* case.c: makes the cases that the evaluator and generated code are run on. What comes in is an evaluator
 * with its tensors, and a seed or a vector file; what goes out is values of the right number for every
 * tensor, the same for the same seed on every machine. */
#include "case.h"

#include <math.h>
#include <string.h>

/* SplitMix64 (Steele, Lea, Flood 2014): any seed will do. */
uint64_t random_bits(Random *r)
{
    uint64_t z = (r->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

double random_uniform(Random *r)
{
    return (double)(random_bits(r) >> 11) * 0x1p-53;
}

double random_normal(Random *r)
{
    double u = 1 - random_uniform(r), v = random_uniform(r);
    return sqrt(-2 * log(u)) * cos(6.28318530717958647693 * v);
}

int64_t random_below(Random *r, int64_t n)
{
    return (int64_t)(random_bits(r) % (uint64_t)n);
}

int64_t case_count(const Case *k, const EvalTensor *t)
{
    switch (t->kind) {
    case EV_PARAM: return t->count;
    case EV_STATE: return k->batch * t->count;
    default: return k->batch * k->steps * t->count;
    }
}

int case_shape(const Case *k, const EvalTensor *t, int64_t *shape)
{
    int n = 0;
    if (t->kind != EV_PARAM)
        shape[n++] = k->batch;
    if (t->kind != EV_PARAM && t->kind != EV_STATE)
        shape[n++] = k->steps;
    memcpy(shape + n, t->shape, sizeof *shape * (size_t)t->rank);
    return n + t->rank;
}

static double *doubles(Eval *e, int64_t n)
{
    return arena_alloc(e->c->arena, sizeof(double) * (size_t)(n > 0 ? n : 1));
}

static Case *case_new(Eval *e, int64_t batch, int64_t steps)
{
    Case *k = arena_alloc(e->c->arena, sizeof *k);
    k->batch = batch;
    k->steps = steps;
    k->value = arena_alloc(e->c->arena, sizeof *k->value * (size_t)(e->ntensors + 1));
    k->cotangent = arena_alloc(e->c->arena, sizeof *k->cotangent * (size_t)(e->ntensors + 1));
    return k;
}

/* What the spec says a param starts from, as far as it is one number. */
static double initial_centre(const Stmt *d)
{
    const Expr *x = d ? d->init : NULL;
    if (!x || !x->name)
        return 0;
    if (strcmp(x->name, "ones") == 0)
        return 1;
    if (strcmp(x->name, "const") == 0 && x->args.len == 1 && x->args.data[0]->kind == X_NUM)
        return x->args.data[0]->num;
    if (strcmp(x->name, "const") == 0 && x->args.len == 1 && x->args.data[0]->kind == X_UNARY)
        return x->args.data[0]->a->kind == X_NUM ? -x->args.data[0]->a->num : 0;
    return 0;
}

static double spread(const EvalTensor *t)
{
    if (t->kind == EV_INPUT)
        return 1;
    if (t->kind == EV_PARAM && t->rank >= 2)
        return 1 / sqrt((double)t->shape[t->rank - 1] + 1);
    return 0.4;
}

static void fill(Random *r, const EvalTensor *t, double *v, int64_t n)
{
    double centre = t->kind == EV_PARAM ? initial_centre(t->decl) : 0, width = spread(t);
    for (int64_t i = 0; i < n; i++)
        v[i] = t->is_int ? (double)random_below(r, 2) : centre + width * random_normal(r);
}

Case *case_random(Eval *e, int64_t batch, int64_t steps, CaseState states, CaseInput inputs, uint64_t seed)
{
    Case *k = case_new(e, batch, steps);
    Random r = {seed};
    for (int i = 0; i < e->ntensors; i++) {
        const EvalTensor *t = &e->tensors[i];
        int64_t n = case_count(k, t);
        bool read = t->kind == EV_INPUT || t->kind == EV_PARAM ||
                    (t->kind == EV_STATE && states != CASE_STATE_DEFAULT);
        if (read)
            k->value[i] = doubles(e, n);
        if (read && !(t->kind == EV_STATE && states == CASE_STATE_ZERO))
            fill(&r, t, k->value[i], n);
        for (int64_t j = 0; t->kind == EV_INPUT && inputs != CASE_INPUT_NORMAL && j < n; j++)
            k->value[i][j] *= t->is_int ? 1 : inputs == CASE_INPUT_ZERO ? 0 : 20;
        if (t->kind == EV_OUTPUT || t->kind == EV_STATE) {
            k->cotangent[i] = doubles(e, n);
            for (int64_t j = 0; j < n; j++)
                k->cotangent[i][j] = random_normal(&r);
        }
    }
    return k;
}

static bool same_shape(const Case *k, const EvalTensor *t, const VecTensor *v)
{
    int64_t shape[EVAL_MAX_RANK + 2];
    int rank = case_shape(k, t, shape);
    return v->rank == rank && memcmp(shape, v->dims, sizeof *shape * (size_t)rank) == 0;
}

/* One tensor of a file; *bad is set when its shape is another. */
static double *take(Eval *e, const Case *k, const EvalTensor *t, const VecFile *f, VecKind kind,
                    const char **error)
{
    const VecTensor *v = vec_find(f, kind, t->name);
    if (!v)
        return NULL;
    if (!same_shape(k, t, v)) {
        *error = intern_f(e->c, "line %d: the shape of %s %s is not the cell's", v->line,
                          vec_kind_names[kind], t->name);
        return NULL;
    }
    double *own = doubles(e, (int64_t)v->count);
    memcpy(own, v->values, sizeof *own * v->count);
    return own;
}

/* B and T: from the sizes, else from the first input. */
static bool batch_and_steps(const Eval *e, const VecFile *f, int64_t *batch, int64_t *steps)
{
    bool has_b = vec_size(f, "B", batch), has_t = vec_size(f, "T", steps);
    for (int i = 0; i < e->ntensors && !(has_b && has_t); i++) {
        const EvalTensor *t = &e->tensors[i];
        const VecTensor *v = t->kind == EV_INPUT ? vec_find(f, VK_INPUT, t->name) : NULL;
        if (v && v->rank == t->rank + 2) {
            *batch = has_b ? *batch : v->dims[0];
            *steps = has_t ? *steps : v->dims[1];
            has_b = has_t = true;
        }
    }
    return has_b && has_t;
}

Case *case_from_vec(Eval *e, const VecFile *f, const char **error)
{
    int64_t batch, steps;
    *error = NULL;
    if (!batch_and_steps(e, f, &batch, &steps)) {
        *error = "the sizes do not give B and T";
        return NULL;
    }
    Case *k = case_new(e, batch, steps);
    for (int i = 0; i < e->ntensors && !*error; i++) {
        const EvalTensor *t = &e->tensors[i];
        VecKind kind = t->kind == EV_INPUT ? VK_INPUT : t->kind == EV_PARAM ? VK_PARAM : VK_STATE;
        if (t->kind == EV_INPUT || t->kind == EV_PARAM || t->kind == EV_STATE)
            k->value[i] = take(e, k, t, f, kind, error);
        if (!k->value[i] && !*error && (t->kind == EV_INPUT || t->kind == EV_PARAM))
            *error = intern_f(e->c, "the file has no %s %s", vec_kind_names[kind], t->name);
        if (t->kind == EV_OUTPUT || t->kind == EV_STATE) {
            k->cotangent[i] = take(e, k, t, f, t->kind == EV_OUTPUT ? VK_DOUT : VK_DFINAL, error);
            if (!k->cotangent[i])
                k->cotangent[i] = doubles(e, case_count(k, t));
        }
    }
    return *error ? NULL : k;
}

int case_sizes(const EvalOutline *o, const VecFile *f, EvalSize *sizes)
{
    int n = 0;
    for (int i = 0; i < o->nall; i++) {
        int64_t value;
        if (vec_size(f, o->all_dims[i], &value))
            sizes[n++] = (EvalSize){o->all_dims[i], value};
    }
    return n;
}

void case_bind(const Case *k, Eval *e)
{
    for (int i = 0; i < e->ntensors; i++)
        e->tensors[i].value = k->value[i];
}
