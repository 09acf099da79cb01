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
    case EV_INPUT: return k->batch * (t->lengths ? 1 : k->steps) * t->count;
    default: return k->batch * k->steps * t->count;
    }
}

int case_shape(const Case *k, const EvalTensor *t, int64_t *shape)
{
    int n = 0;
    if (t->kind != EV_PARAM)
        shape[n++] = k->batch;
    if (t->kind != EV_PARAM && t->kind != EV_STATE && !t->lengths)
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

static double spread(const EvalTensor *t)
{
    if (t->kind == EV_INPUT)
        return 1;
    if (t->kind == EV_PARAM && t->rank >= 2)
        return 1 / sqrt((double)t->shape[t->rank - 1] + 1);
    return 0.4;
}

/* A place on the axis that it indexes, now and then beside it. */
static double draw_integer(Random *r, int64_t below)
{
    int64_t n = below > 0 ? below : 2;
    if (below > 0 && random_below(r, 8) == 0)
        return random_below(r, 2) ? (double)(n + random_below(r, 3)) : (double)(-1 - random_below(r, 3));
    return (double)random_below(r, n);
}

/* Inside of a range, away from its ends, so that a value which is moved a little is still one. With one end,
 * the distance from it is of the magnitude that numbers have which may be any. */
static double draw_inside(Random *r, const Range *g, double width)
{
    bool low = isfinite(g->low), high = isfinite(g->high);
    double far = width * exp(0.5 * random_normal(r));
    if (low && high)
        return g->low + (g->high - g->low) * (1 + 62 * random_uniform(r)) / 64;
    return low ? g->low + far : high ? g->high - far : width * random_normal(r);
}

/* Of the integers of a range with one end those near to it. */
static double draw_integer_inside(Random *r, const Range *g)
{
    enum { NEAR = 8 };
    double first = fmax(g->above ? floor(g->low) + 1 : ceil(g->low), INT32_MIN);
    double last = fmin(g->below ? ceil(g->high) - 1 : floor(g->high), INT32_MAX);
    if (!isfinite(g->low))
        first = isfinite(g->high) ? fmax(first, last - NEAR) : -NEAR;
    if (!isfinite(g->high))
        last = isfinite(g->low) ? fmin(last, first + NEAR) : NEAR;
    return first + (double)random_below(r, (int64_t)(last - first) + 1);
}

static double draw_value(Random *r, const EvalTensor *t)
{
    if (t->is_int)
        return t->has_range ? draw_integer_inside(r, &t->range) : draw_integer(r, t->below);
    return t->has_range ? draw_inside(r, &t->range, spread(t)) : t->centre + spread(t) * random_normal(r);
}

static void fill(Random *r, const EvalTensor *t, double *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        v[i] = draw_value(r, t);
}

/* Inputs that are all zero, or large, as far as the range allows it. */
static double changed_input(const EvalTensor *t, CaseInput inputs, double v)
{
    enum { LARGE = 20 };
    const Range *g = &t->range;
    if (t->is_int || inputs == CASE_INPUT_NORMAL)
        return v;
    if (inputs == CASE_INPUT_ZERO)
        return !t->has_range || (g->low < 0 && g->high > 0) ? 0 : v;
    if (!t->has_range || (isinf(g->low) && isinf(g->high)))
        return LARGE * v;
    return isinf(g->high) ? g->low + LARGE * (v - g->low) : isinf(g->low) ? g->high + LARGE * (v - g->high) : v;
}

/* May the state be zero? Where not, a case with zero states has the initial value of the spec there. */
static bool takes_zero(const EvalTensor *t)
{
    const Range *g = &t->range;
    bool inside = g->low <= 0 && g->high >= 0 && !(g->above && g->low == 0) && !(g->below && g->high == 0);
    return !t->reach && (!t->has_range || inside);
}

/* What the caller has bound to the tensors, while a case is made by running the cell. */
typedef struct Bound { EvalTensor *tensors; } Bound;

static Bound unbind(Eval *e)
{
    Bound b = {arena_alloc(e->c->arena, sizeof *b.tensors * (size_t)(e->ntensors + 1))};
    memcpy(b.tensors, e->tensors, sizeof *b.tensors * (size_t)e->ntensors);
    for (int i = 0; i < e->ntensors; i++) {
        EvalTensor *t = &e->tensors[i];
        t->value = NULL;
        t->out = NULL;
        memset(t->tangent, 0, sizeof t->tangent);
        memset(t->out_tangent, 0, sizeof t->out_tangent);
    }
    return b;
}

static void bind_again(Eval *e, const Bound *b)
{
    for (int i = 0; i < e->ntensors; i++) {
        EvalTensor *t = &e->tensors[i];
        const EvalTensor *was = &b->tensors[i];
        t->value = was->value;
        t->out = was->out;
        memcpy(t->tangent, was->tangent, sizeof t->tangent);
        memcpy(t->out_tangent, was->out_tangent, sizeof t->out_tangent);
    }
}

/* States that are `in reach`: what the cell gives them, from its own start, after a few steps of other
 * inputs. Where the evaluator stops, it does so in the case as well, and says why. */
static void reach_states(Eval *e, Case *k, Random *r)
{
    enum { STEPS = 5 };        /* histories of all steps are read to the first one of a case, which is no later (check.c) */
    bool any = false;
    for (int i = 0; i < e->ntensors; i++)
        any |= e->tensors[i].reach && k->value[i];
    if (!any || k->batch == 0 || !eval_for_steps(e, STEPS))
        return;
    Bound before = unbind(e);
    Case run = {.batch = k->batch, .steps = STEPS};
    for (int i = 0; i < e->ntensors; i++) {
        EvalTensor *t = &e->tensors[i];
        if (t->kind == EV_PARAM)
            t->value = k->value[i];
        if (t->kind == EV_INPUT) {
            double *v = doubles(e, case_count(&run, t));
            for (int64_t j = 0; t->lengths && j < k->batch; j++)
                v[j] = STEPS;
            if (!t->lengths)
                fill(r, t, v, case_count(&run, t));
            t->value = v;
        }
        if (t->reach)
            t->out = k->value[i];
    }
    eval_run(e, k->batch, STEPS, 0);
    bind_again(e, &before);
}

Case *case_random(Eval *e, int64_t batch, int64_t steps, CaseState states, CaseInput inputs, uint64_t seed)
{
    Case *k = case_new(e, batch, steps);
    Random r = {seed};
    for (int i = 0; i < e->ntensors; i++) {
        const EvalTensor *t = &e->tensors[i];
        int64_t n = case_count(k, t);
        bool read = t->kind == EV_INPUT || t->kind == EV_PARAM ||
                    (t->kind == EV_STATE && states != CASE_STATE_DEFAULT && (states == CASE_STATE_RANDOM || takes_zero(t)));
        if (read)
            k->value[i] = doubles(e, n);
        for (int64_t j = 0; t->lengths && j < n; j++)
            k->value[i][j] = (double)random_below(&r, steps + 1);
        if (t->lengths)
            continue;
        if (read && !(t->kind == EV_STATE && states == CASE_STATE_ZERO))
            fill(&r, t, k->value[i], n);
        for (int64_t j = 0; t->kind == EV_INPUT && j < n; j++)
            k->value[i][j] = changed_input(t, inputs, k->value[i][j]);
        if (t->kind == EV_OUTPUT || t->kind == EV_STATE) {
            k->cotangent[i] = doubles(e, n);
            for (int64_t j = 0; j < n; j++)
                k->cotangent[i][j] = random_normal(&r);
        }
    }
    reach_states(e, k, &r);
    return k;
}

static bool same_shape(const Case *k, const EvalTensor *t, const VecTensor *v)
{
    int64_t shape[EVAL_MAX_RANK + 2];
    int rank = case_shape(k, t, shape);
    return v->rank == rank && memcmp(shape, v->dims, sizeof *shape * (size_t)rank) == 0;
}

static const char *shape_text(Eval *e, int rank, const int64_t *shape)
{
    Buf b = {.arena = e->c->arena};
    buf_f(&b, "[");
    for (int i = 0; i < rank; i++)
        buf_f(&b, "%s%lld", i ? ", " : "", (long long)shape[i]);
    buf_f(&b, "]");
    return b.data;
}

/* "B=2 T=5 D=3" */
static const char *sizes_text(Eval *e, const Case *k)
{
    Buf b = {.arena = e->c->arena};
    buf_f(&b, "B=%lld T=%lld", (long long)k->batch, (long long)k->steps);
    for (int i = 0; i < e->ndims; i++)
        buf_f(&b, " %s=%lld", e->dims[i].name, (long long)e->dims[i].value);
    return b.data;
}

/* A shape in the file against the sizes: both sides, and where the size stands that does not fit. */
static void wrong_shape(Eval *e, const Case *k, const EvalTensor *t, VecFile *f, const VecTensor *v)
{
    int64_t shape[EVAL_MAX_RANK + 2];
    int rank = case_shape(k, t, shape), axis = 0;
    const VecSize *size = f->nsizes ? &f->sizes[0] : NULL;
    vec_fail(f, v->place, "%s %s is %s, but with %s the cell's is %s", vec_kind_names[v->kind], v->name,
             shape_text(e, v->rank, v->dims), sizes_text(e, k), shape_text(e, rank, shape));
    while (axis < rank && axis < v->rank && shape[axis] == v->dims[axis])
        axis++;
    bool timed = t->kind != EV_PARAM && t->kind != EV_STATE, batched = t->kind != EV_PARAM;
    if (batched && axis == 0 && vec_find_size(f, "B"))
        size = vec_find_size(f, "B");
    else if (timed && axis == 1 && vec_find_size(f, "T"))
        size = vec_find_size(f, "T");
    f->note = "the sizes are given here";
    f->note_place = size ? size->place : (VecPlace){0, 0};
}

/* Integers are whole numbers of 32 bits. */
static bool whole_values(const EvalTensor *t, VecFile *f, const VecTensor *v)
{
    for (size_t i = 0; t->is_int && i < v->count; i++)
        if (!(v->values[i] >= INT32_MIN && v->values[i] <= INT32_MAX) || v->values[i] != floor(v->values[i]))
            return vec_fail(f, v->place, "%s %s is an integer of 32 bits, but element %zu is %g", vec_kind_names[v->kind],
                            v->name, i, v->values[i]);
    return true;
}

/* One tensor of a file, or NULL when it is not there or not of the cell's shape. */
static double *take(Eval *e, const Case *k, const EvalTensor *t, VecFile *f, VecKind kind)
{
    const VecTensor *v = vec_find(f, kind, t->name);
    if (!v)
        return NULL;
    if (!same_shape(k, t, v)) {
        wrong_shape(e, k, t, f, v);
        return NULL;
    }
    if (!whole_values(t, f, v))
        return NULL;
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
        if (v && v->rank == t->rank + 2 && !t->lengths) {
            *batch = has_b ? *batch : v->dims[0];
            *steps = has_t ? *steps : v->dims[1];
            has_b = has_t = true;
        }
    }
    return has_b && has_t;
}

enum { MOST = 1 << 28 };          /* of a dim, and of the elements of a tensor */

/* Whether every tensor fits in memory at the file's B and T. */
static bool counts_fit(Eval *e, const Case *k, VecFile *f)
{
    const VecSize *at = k->batch > k->steps ? vec_find_size(f, "B") : vec_find_size(f, "T");
    for (int i = 0; i < e->ntensors; i++) {
        const EvalTensor *t = &e->tensors[i];
        int64_t rows = t->kind == EV_PARAM ? 1 : k->batch, n;
        if (__builtin_mul_overflow(rows, t->kind == EV_PARAM || t->kind == EV_STATE ? 1 : k->steps, &n) ||
            __builtin_mul_overflow(n, t->count, &n) || n > MOST)
            return vec_fail(f, at ? at->place : (VecPlace){0, 0},
                            "with %s, %s has more than %d elements, too many to evaluate", sizes_text(e, k),
                            t->name, MOST);
    }
    return true;
}

/* What the file has for one tensor of the cell. */
static void take_tensor(Eval *e, Case *k, int i, VecFile *f)
{
    const EvalTensor *t = &e->tensors[i];
    VecKind kind = t->kind == EV_INPUT ? VK_INPUT : t->kind == EV_PARAM ? VK_PARAM : VK_STATE;
    if (t->kind == EV_INPUT || t->kind == EV_PARAM || t->kind == EV_STATE)
        k->value[i] = take(e, k, t, f, kind);
    if (!k->value[i] && !f->error[0] && (t->kind == EV_INPUT || t->kind == EV_PARAM))
        vec_fail(f, (VecPlace){0, 0}, "the file has no %s %s", vec_kind_names[kind], t->name);
    if (t->kind != EV_OUTPUT && t->kind != EV_STATE)
        return;
    k->cotangent[i] = take(e, k, t, f, t->kind == EV_OUTPUT ? VK_DOUT : VK_DFINAL);
    if (!k->cotangent[i] && !f->error[0])
        k->cotangent[i] = doubles(e, case_count(k, t));
}

Case *case_from_vec(Eval *e, VecFile *f)
{
    int64_t batch, steps;
    if (!batch_and_steps(e, f, &batch, &steps)) {
        vec_fail(f, (VecPlace){0, 0}, "the sizes do not give B and T");
        return NULL;
    }
    Case *k = case_new(e, batch, steps);
    if (!vec_size(f, "t0", &k->first))
        k->first = 0;
    if (k->first < 0 || k->first > MOST) {
        vec_fail(f, vec_find_size(f, "t0")->place, "t0=%lld: steps are counted from 0", (long long)k->first);
        return NULL;
    }
    for (int i = 0; i < e->ntensors && !f->error[0]; i++)
        if (e->tensors[i].kind == EV_INPUT || e->tensors[i].kind == EV_PARAM)
            take_tensor(e, k, i, f);
    /* Only now: where a tensor of the file contradicts a size, that is the better message. */
    bool fits = !f->error[0] && counts_fit(e, k, f);
    for (int i = 0; fits && i < e->ntensors && !f->error[0]; i++)
        if (e->tensors[i].kind != EV_INPUT && e->tensors[i].kind != EV_PARAM)
            take_tensor(e, k, i, f);
    return f->error[0] ? NULL : k;
}

int case_sizes(const EvalOutline *o, VecFile *f, EvalSize *sizes)
{
    int n = 0;
    for (int i = 0; i < o->nall; i++) {
        const VecSize *s = vec_find_size(f, o->all_dims[i]);
        if (s && (s->value < 1 || s->value > MOST)) {
            vec_fail(f, s->place, "%s=%lld: a dim is a whole number from 1 to %d", s->name, (long long)s->value,
                     MOST);
            return -1;
        }
        if (s)
            sizes[n++] = (EvalSize){o->all_dims[i], s->value};
    }
    for (int i = 0; i < o->nall; i++)
        if (strcmp(o->all_dims[i], "history") == 0)
            return n;
    const VecSize *room = vec_find_size(f, "history"), *steps = vec_find_size(f, "T"), *t0 = vec_find_size(f, "t0");
    int64_t end = (steps ? steps->value : 0) + (t0 ? t0->value : 0);
    if (end >= 0 && end <= MOST)
        sizes[n++] = (EvalSize){"history", room && room->value > 0 && room->value <= MOST ? room->value
                                           : end > EVAL_ROOM                             ? end
                                                                                         : EVAL_ROOM};
    return n;
}

void case_sizes_refused(VecFile *f, const EvalSize *sizes, int n)
{
    const VecSize *largest = NULL;
    for (int i = 0; i < n; i++) {
        const VecSize *s = vec_find_size(f, sizes[i].name);
        if (s && (!largest || s->value > largest->value))
            largest = s;
    }
    if (largest)
        vec_fail(f, largest->place, "the cell does not compile at these sizes, the largest of which is %s=%lld",
                 largest->name, (long long)largest->value);
    else
        vec_fail(f, (VecPlace){0, 0}, "the cell does not compile, and the file has no sizes for it");
}

void case_bind(const Case *k, Eval *e)
{
    for (int i = 0; i < e->ntensors; i++)
        e->tensors[i].value = k->value[i];
}
