/* case.c: what an instance is run on at one set of sizes. In: the instance's reference C in double and in
 * float, linked in under the names below, and sizes. Out: inputs in storage types, the reference's results in
 * double, and how far these move when every input is moved by a unit roundoff or by 16, and in float.
 * Guaranteed: where inputs exist among those tried for which roundings decide no tensor, such are taken. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ladder.h"

int ladder_ref_forward(const int64_t *sizes, void *const *args, void *reserve, int flags);
int ladder_ref_backward(const int64_t *sizes, void *const *args, void *reserve, int flags);
size_t ladder_ref_reserve_bytes(const int64_t *sizes);
/* The same, compiled with float in double's place. */
int ladder_rough_forward(const int64_t *sizes, void *const *args, void *reserve, int flags);
int ladder_rough_backward(const int64_t *sizes, void *const *args, void *reserve, int flags);
size_t ladder_rough_reserve_bytes(const int64_t *sizes);

enum { DRAWS = 4 }; /* of moved inputs: in a tensor of a few elements one may cancel */
enum { FAR_DRAWS = 2 }; /* there and back */

/* ---- what the spec says of values */

static const cell_domain *domain_of(const cell_desc *d, int tensor)
{
    const cell_domain *g = d->domains ? &d->domains[tensor] : NULL;
    return g && g->kind == 1 ? g : NULL;
}

static bool ends(double v)
{
    return fabs(v) < 1e308;
}

/* Inside of a range also as it is stored, and away from the ends. Where the type has no number inside, the
 * nearest. */
static double draw_inside(const cell_domain *g, cell_dtype type, double width)
{
    enum { TRIES = 100 };
    double v = 0;
    for (int i = 0; i < TRIES; i++) {
        double far = width * exp(0.5 * normal());
        v = ends(g->low) && ends(g->high) ? g->low + (g->high - g->low) * (1 + 62 * uniform()) / 64
            : ends(g->low)                ? g->low + far
            : ends(g->high)               ? g->high - far
                                          : width * normal();
        v = rounded(v, type);
        if (v > g->low && v < g->high)
            break;
    }
    return v;
}

/* Of a range with one end those near to it. */
static double draw_integer_inside(const cell_domain *g)
{
    enum { NEAR = 8 };
    double low = ends(g->low) ? fmax(g->low, INT32_MIN) : ends(g->high) ? g->high - NEAR : -NEAR;
    double high = ends(g->high) ? fmin(g->high, INT32_MAX) : low + NEAR;
    return low + floor(uniform() * (high - low + 1));
}

/* A place on the axis that it says one of, now and then beside it. */
static double draw_integer(const Case *c, int tensor)
{
    if (domain_of(c->d, tensor))
        return draw_integer_inside(domain_of(c->d, tensor));
    int64_t n = 2;
    bool places = c->d->places && c->d->places[tensor];
    if (places && cell_eval(c->d->places[tensor], c->sizes, c->d->n_sizes, &n) != CELL_OK)
        abort();
    double u = fabs(normal());
    u -= floor(u);
    return places && fabs(normal()) > 1.5 ? (u < 0.5 ? -1 : (double)n) : floor(u * (double)n);
}

/* Steps of a packed sequence: all, none, half of them and one, and again. */
static int64_t own_steps(int64_t b, int64_t T)
{
    const int64_t steps[] = { T, 0, (T + 1) / 2, T < 1 ? T : 1 };
    return steps[b % 4];
}

void choose_total(const cell_desc *d, int64_t *sizes)
{
    if (!d->total)
        return;
    sizes[d->total] = 0;
    for (int64_t b = 0; b < sizes[CELL_SIZE_B]; b++)
        sizes[d->total] += own_steps(b, sizes[CELL_SIZE_T]);
}

static void draw_starts(const Case *c, double *starts, int64_t n)
{
    for (int64_t b = 0; b + 1 < n; b++)
        starts[b + 1] = starts[b] + (double)own_steps(b, c->sizes[CELL_SIZE_T]);
}

/* Params get smaller by the factor `mild`: a recurrence then forgets sooner and amplifies less. */
static void draw(Case *c, const cell_arg *args, int n, Set *s, double mild)
{
    for (int i = 0; i < n; i++) {
        bool param = args[i].role == CELL_ROLE_VALUE && c->d->tensors[args[i].tensor].kind == CELL_PARAM;
        bool read = !written(c->d, &args[i]) && !ignored(&args[i]);
        bool lengths = c->d->tensors[args[i].tensor].kind == CELL_LENGTHS;
        const cell_domain *domain = args[i].role == CELL_ROLE_VALUE ? domain_of(c->d, args[i].tensor) : NULL;
        cell_dtype type = (cell_dtype)args[i].dtype;
        for (int64_t k = 0; lengths && k < s->n[i]; k++)        /* none and all among them */
            s->v[i][k] = fmin(floor(fabs(normal()) / 2 * (double)(c->sizes[CELL_SIZE_T] + 1)),
                              (double)c->sizes[CELL_SIZE_T]);
        bool starts = c->d->tensors[args[i].tensor].kind == CELL_STARTS;
        if (starts && read)
            draw_starts(c, s->v[i], s->n[i]);
        for (int64_t k = 0; read && !lengths && !starts && k < s->n[i]; k++)
            s->v[i][k] = args[i].dtype == CELL_I32
                             ? draw_integer(c, args[i].tensor)
                         : domain ? draw_inside(domain, type, param ? 0.4 : 1)
                                  : rounded((param ? 0.4 * mild : 1) * normal(), type);
    }
}

/* Backward sees the inputs, params and states that forward saw. */
static void share_inputs(const cell_desc *d, const Set *f, Set *b)
{
    for (int i = 0; i < d->n_backward_args; i++)
        for (int k = 0; k < d->n_forward_args; k++)
            if (d->backward_args[i].role == CELL_ROLE_VALUE && d->forward_args[k].role == CELL_ROLE_VALUE &&
                d->backward_args[i].tensor == d->forward_args[k].tensor)
                memcpy(b->v[i], f->v[k], sizeof(double) * (size_t)f->n[k]);
}

/* Generated code takes integers as such. */
static void *as_argument(const cell_arg *a, double *v, int64_t n)
{
    int32_t *ints = a->dtype == CELL_I32 ? take(sizeof *ints * (size_t)(n + 1)) : NULL;
    for (int64_t k = 0; ints && k < n; k++)
        ints[k] = (int32_t)v[k];
    return ints ? (void *)ints : v;
}

static void take_integers(const cell_desc *d, const cell_arg *args, int n, Set *s, void *const *given)
{
    for (int i = 0; i < n; i++) {
        if (args[i].dtype != CELL_I32)
            continue;
        for (int64_t k = 0; written(d, &args[i]) && k < s->n[i]; k++)
            s->v[i][k] = ((const int32_t *)given[i])[k];
        free(given[i]);
    }
}

static void run_reference(const Case *c, Set *f, Set *b)
{
    const cell_desc *d = c->d;
    void *reserve = take(ladder_ref_reserve_bytes(c->sizes)), *fa[MAX_ARGS], *ba[MAX_ARGS];
    for (int i = 0; i < d->n_forward_args; i++)
        fa[i] = c->null_states && is_state(d, &d->forward_args[i]) ? NULL : as_argument(&d->forward_args[i], f->v[i], f->n[i]);
    for (int i = 0; i < d->n_backward_args; i++)
        ba[i] = c->null_states && is_state(d, &d->backward_args[i]) ? NULL : as_argument(&d->backward_args[i], b->v[i], b->n[i]);
    if (ladder_ref_forward(c->sizes, fa, reserve, 0) || ladder_ref_backward(c->sizes, ba, reserve, 0))
        abort();
    take_integers(d, d->forward_args, d->n_forward_args, f, fa);
    take_integers(d, d->backward_args, d->n_backward_args, b, ba);
    free(reserve);
}

/* The steps, counted from step 0, after which states are taken: where a history has all steps, those before
 * the call. */
static int64_t steps_before(const Case *c)
{
    enum { STEPS = 3 };
    const cell_desc *d = c->d;
    int64_t first = c->sizes[d->n_sizes - 1];
    if (!d->room)
        return STEPS;
    return first > 0 ? first : c->sizes[d->room] < STEPS ? c->sizes[d->room] : STEPS;
}

static int final_of(const cell_desc *d, int tensor)
{
    for (int i = 0; i < d->n_forward_args; i++)
        if (d->forward_args[i].role == CELL_ROLE_FINAL && d->forward_args[i].tensor == tensor)
            return i;
    abort();
}

/* What the spec wants `in reach` becomes what the cell leaves after a few steps of other inputs, from its own
 * start. */
static void reach_states(Case *c, double mild)
{
    const cell_desc *d = c->d;
    bool any = false;
    for (int i = 0; d->domains && i < d->n_tensors; i++)
        any |= d->domains[i].kind == 2;
    if (!any || c->null_states || c->sizes[CELL_SIZE_B] == 0)
        return;
    Case before = { .d = d };
    memcpy(before.sizes, c->sizes, sizeof before.sizes);
    before.sizes[CELL_SIZE_T] = steps_before(c);
    before.sizes[d->n_sizes - 1] = 0;
    choose_total(d, before.sizes);
    before.f = set_new(d, d->forward_args, d->n_forward_args, before.sizes);
    draw(&before, d->forward_args, d->n_forward_args, &before.f, mild);
    void *given[MAX_ARGS];
    for (int i = 0; i < d->n_forward_args; i++) {
        const cell_arg *a = &d->forward_args[i];
        cell_tensor_kind kind = d->tensors[a->tensor].kind;
        bool param = a->role == CELL_ROLE_VALUE && kind == CELL_PARAM;
        if (param)
            memcpy(before.f.v[i], c->f.v[i], sizeof(double) * (size_t)c->f.n[i]);
        for (int64_t k = 0; kind == CELL_LENGTHS && k < before.f.n[i]; k++)
            before.f.v[i][k] = (double)before.sizes[CELL_SIZE_T];
        given[i] = is_state(d, a) && a->role == CELL_ROLE_VALUE ? NULL : as_argument(a, before.f.v[i], before.f.n[i]);
    }
    if (ladder_ref_forward(before.sizes, given, NULL, 0))
        abort();
    take_integers(d, d->forward_args, d->n_forward_args, &before.f, given);
    for (int i = 0; i < d->n_forward_args; i++) {
        const cell_arg *a = &d->forward_args[i];
        if (a->role != CELL_ROLE_VALUE || d->domains[a->tensor].kind != 2)
            continue;
        const double *left = before.f.v[final_of(d, a->tensor)];
        for (int64_t k = 0; k < c->f.n[i]; k++)
            c->f.v[i][k] = rounded(left[k], (cell_dtype)a->dtype);
    }
    set_free(&before.f);
}

/* Arguments of the reference in float; what is an integer stays one. */
static void *as_float(const cell_arg *a, const double *v, int64_t n)
{
    float *x = take(sizeof *x * (size_t)(n + 1));
    for (int64_t k = 0; k < n; k++)
        if (a->dtype == CELL_I32)
            ((int32_t *)(void *)x)[k] = (int32_t)v[k];
        else
            x[k] = (float)v[k];
    return x;
}

/* What is no number in float says nothing of roundings: there, s keeps what it has. */
static void take_floats(const cell_desc *d, const cell_arg *args, int n, Set *s, void *const *given)
{
    for (int i = 0; i < n; i++) {
        for (int64_t k = 0; written(d, &args[i]) && k < s->n[i]; k++)
            if (args[i].dtype == CELL_I32)
                s->v[i][k] = ((const int32_t *)given[i])[k];
            else if (isfinite(((const float *)given[i])[k]))
                s->v[i][k] = ((const float *)given[i])[k];
        free(given[i]);
    }
}

/* The results in f and b become those that the reference has in float, which rounds its inputs first. */
static void run_rough(const Case *c, Set *f, Set *b)
{
    const cell_desc *d = c->d;
    void *reserve = take(ladder_rough_reserve_bytes(c->sizes)), *fa[MAX_ARGS], *ba[MAX_ARGS];
    for (int i = 0; i < d->n_forward_args; i++) {
        bool null = c->null_states && is_state(d, &d->forward_args[i]);
        fa[i] = null ? NULL : as_float(&d->forward_args[i], f->v[i], f->n[i]);
    }
    for (int i = 0; i < d->n_backward_args; i++) {
        bool null = c->null_states && is_state(d, &d->backward_args[i]);
        ba[i] = null ? NULL : as_float(&d->backward_args[i], b->v[i], b->n[i]);
    }
    if (ladder_rough_forward(c->sizes, fa, reserve, 0) || ladder_rough_backward(c->sizes, ba, reserve, 0))
        abort();
    take_floats(d, d->forward_args, d->n_forward_args, f, fa);
    take_floats(d, d->backward_args, d->n_backward_args, b, ba);
    free(reserve);
}

/* ---- sensitivity */

/* Moved by u of random sign, or the other way where that leaves the range. */
static double moved(const cell_domain *domain, double v, double u)
{
    double to = v * (1 + (normal_is_negative() ? -u : u));
    if (domain && !(to > domain->low && to < domain->high))
        to = 2 * v - to;
    return domain && !(to > domain->low && to < domain->high) ? v : to;
}

static void copy_moved(const Case *c, const cell_arg *args, int n, const Set *from, Set *to, double u)
{
    for (int i = 0; i < n; i++) {
        bool fixed = args[i].dtype == CELL_I32 || c->d->tensors[args[i].tensor].kind == CELL_LENGTHS;
        const cell_domain *domain = args[i].role == CELL_ROLE_VALUE ? domain_of(c->d, args[i].tensor) : NULL;
        int64_t n_read = written(c->d, &args[i]) ? 0 : to->n[i];
        for (int64_t k = 0; k < n_read; k++)
            to->v[i][k] = fixed ? from->v[i][k] : moved(domain, from->v[i][k], u);
    }
}

/* The moves count by `share` each. */
static void widen_sense(const cell_desc *d, const cell_arg *args, int n, const Set *at, const Set *moved,
                        double share, Sense *s)
{
    for (int i = 0; i < n; i++) {
        double along = 0, norm = 0;
        if (!written(d, &args[i]))
            continue;
        for (int64_t k = 0; k < at->n[i]; k++) {
            double move = (moved->v[i][k] - at->v[i][k]) * share;
            along += move * at->v[i][k];
            norm += at->v[i][k] * at->v[i][k];
            s->each[i][k] = fmax(s->each[i][k], fabs(move));
        }
        s->rms[i] = fmax(s->rms[i], rms(moved->v[i], at->v[i], at->n[i]) * share);
        s->along[i] = fmax(s->along[i], norm > 0 ? fabs(along) / norm : 0);
    }
}

static void widen_far(const cell_desc *d, const cell_arg *args, int n, const Set *at, const Set *moved, Sense *s)
{
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; written(d, &args[i]) && k < at->n[i]; k++)
            if (at->v[i][k] != moved->v[i][k]) {
                double move = fabs(moved->v[i][k] - at->v[i][k]);
                s->far[i][k] = isnan(move) ? INFINITY : fmax(s->far[i][k], move);
            }
}

static void find_vanishing(const cell_desc *d, const cell_arg *args, int n, const Set *at, const Set *moved,
                           Sense *s)
{
    for (int i = 0; i < n; i++)
        s->vanishes[i] = written(d, &args[i]) && rms(moved->v[i], at->v[i], at->n[i]) * 16 >=
                                                     rms(at->v[i], NULL, at->n[i]);
}

static Set copy_of(const cell_desc *d, const cell_arg *args, int n, const Set *from, const int64_t *sizes)
{
    Set to = set_new(d, args, n, sizes);
    for (int i = 0; i < n; i++)
        memcpy(to.v[i], from->v[i], sizeof(double) * (size_t)to.n[i]);
    return to;
}

static const char *type_of(const cell_desc *d)
{
    const char *type = "";
    for (int i = 0; i < d->n_bindings; i++)
        if (strcmp(d->bindings[i].name, "dtype") == 0)
            type = d->bindings[i].value;
    return type;
}

/* Whether the kernels take the fast functions of the device library (gen/kernels/kernels.c: where storage has
 * 16 bits). */
static bool is_fast(const cell_desc *d)
{
    return strcmp(type_of(d), "bf16") == 0 || strcmp(type_of(d), "f16") == 0;
}

/* Values that float leaves further than a part in 64 of their size are at a jump, or nothing is left of them:
 * they become those of double again. */
static void keep_near(const cell_desc *d, const cell_arg *args, int n, const Set *at, Set *rough)
{
    for (int i = 0; i < n; i++) {
        double size = written(d, &args[i]) ? rms(at->v[i], NULL, at->n[i]) : 0;
        for (int64_t k = 0; written(d, &args[i]) && k < at->n[i]; k++)
            if (!(fabs(rough->v[i][k] - at->v[i][k]) <= fmax(size, fabs(at->v[i][k])) / 64))
                rough->v[i][k] = at->v[i][k];
    }
}

/* How far the results in float are from those in double, with functions as the kernels have them. Kernels in
 * double round as those in float do, each time by so much less as its unit roundoff is smaller (to first
 * order; Higham, Accuracy and Stability of Numerical Algorithms, chapter 3). */
static void find_roundings(Case *c, const Set *f, const Set *b, int draw)
{
    const cell_desc *d = c->d;
    const bool in_double = c->u <= unit(CELL_F64);
    const double share = in_double ? unit(CELL_F64) / unit(CELL_F32) : 1;
    Set rf = copy_of(d, d->forward_args, d->n_forward_args, f, c->sizes);
    Set rb = copy_of(d, d->backward_args, d->n_backward_args, b, c->sizes);
    rough_approximate(is_fast(d) ? (uint32_t)draw + 1 : 0, false);
    run_rough(c, &rf, &rb);
    rough_approximate(0, false);
    if (in_double) {
        keep_near(d, d->forward_args, d->n_forward_args, f, &rf);
        keep_near(d, d->backward_args, d->n_backward_args, b, &rb);
    }
    widen_sense(d, d->forward_args, d->n_forward_args, f, &rf, share, &c->fs);
    widen_sense(d, d->backward_args, d->n_backward_args, b, &rb, share, &c->bs);
    set_free(&rf);
    set_free(&rb);
}

static void mirror(const Case *c, const cell_arg *args, int n, const Set *at, Set *moved)
{
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; !written(c->d, &args[i]) && k < at->n[i]; k++)
            moved->v[i][k] = at->v[i][k] - (moved->v[i][k] - at->v[i][k]);
}

/* Inputs moved by as much as the limits allow for, and by its opposite: what hangs on one number is moved to
 * both sides. */
static void find_jumps(Case *c)
{
    const cell_desc *d = c->d;
    Set f = set_new(d, d->forward_args, d->n_forward_args, c->sizes);
    Set b = set_new(d, d->backward_args, d->n_backward_args, c->sizes);
    uint64_t at = normal_at();
    for (int draw = 0; draw < 2 * FAR_DRAWS; draw++) {
        if (draw % 2 == 0) {
            copy_moved(c, d->forward_args, d->n_forward_args, &c->f, &f, FAR * c->u);
            copy_moved(c, d->backward_args, d->n_backward_args, &c->b, &b, FAR * c->u);
        } else {
            mirror(c, d->forward_args, d->n_forward_args, &c->f, &f);
            mirror(c, d->backward_args, d->n_backward_args, &c->b, &b);
        }
        share_inputs(d, &f, &b);
        run_reference(c, &f, &b);
        widen_far(d, d->forward_args, d->n_forward_args, &c->f, &f, &c->fs);
        widen_far(d, d->backward_args, d->n_backward_args, &c->b, &b, &c->bs);
    }
    for (int draw = 0; draw < FAR_DRAWS && is_fast(d); draw++) {
        Set rf = copy_of(d, d->forward_args, d->n_forward_args, &c->f, c->sizes);
        Set rb = copy_of(d, d->backward_args, d->n_backward_args, &c->b, c->sizes);
        rough_approximate((uint32_t)draw + 1, true);
        run_rough(c, &rf, &rb);
        rough_approximate(0, false);
        widen_far(d, d->forward_args, d->n_forward_args, &c->f, &rf, &c->fs);
        widen_far(d, d->backward_args, d->n_backward_args, &c->b, &rb, &c->bs);
        set_free(&rf);
        set_free(&rb);
    }
    normal_from(at);    /* a case's inputs do not depend on whether the one before was looked at so */
    set_free(&f);
    set_free(&b);
}

static void find_sense(Case *c)
{
    const cell_desc *d = c->d;
    for (int draw = 0; draw <= DRAWS; draw++) {
        Set f = set_new(d, d->forward_args, d->n_forward_args, c->sizes);
        Set b = set_new(d, d->backward_args, d->n_backward_args, c->sizes);
        double u = draw < DRAWS ? c->u : 0x1p-51;
        copy_moved(c, d->forward_args, d->n_forward_args, &c->f, &f, u);
        copy_moved(c, d->backward_args, d->n_backward_args, &c->b, &b, u);
        share_inputs(d, &f, &b);
        run_reference(c, &f, &b);
        if (draw < DRAWS) {
            widen_sense(d, d->forward_args, d->n_forward_args, &c->f, &f, 1, &c->fs);
            widen_sense(d, d->backward_args, d->n_backward_args, &c->b, &b, 1, &c->bs);
            /* In double the functions are exact, and one run in float says it all. */
            if (c->u > unit(CELL_F64) || draw == 0)
                find_roundings(c, &f, &b, draw);
        } else {
            find_vanishing(d, d->forward_args, d->n_forward_args, &c->f, &f, &c->fs);
            find_vanishing(d, d->backward_args, d->n_backward_args, &c->b, &b, &c->bs);
        }
        set_free(&f);
        set_free(&b);
    }
}

static Sense sense_new(const Set *s)
{
    Sense r = { 0 };
    for (int i = 0; i < MAX_ARGS && s->v[i]; i++) {
        r.each[i] = take(sizeof(double) * (size_t)(s->n[i] + 1));
        r.far[i] = take(sizeof(double) * (size_t)(s->n[i] + 1));
    }
    return r;
}

static void sense_free(Sense *s)
{
    for (int i = 0; i < MAX_ARGS; i++) {
        free(s->each[i]);
        free(s->far[i]);
    }
}

/* ---- cases */

/* Of the tensors, and of the type of the instance: products round what they take to it, whatever the spec stores. */
static double largest_unit(const cell_desc *d)
{
    double u = 0;
    for (int i = 0; i < d->n_tensors; i++)
        u = fmax(u, unit(d->tensors[i].dtype));
    for (int t = 0; cell_dtype_bytes((cell_dtype)t); t++)
        if (strcmp(cell_dtype_name((cell_dtype)t), type_of(d)) == 0)
            u = fmax(u, unit((cell_dtype)t));
    return u;
}

static Case case_drawn(cell_context *ctx, const cell_desc *d, const int64_t *sizes, bool null_states,
                       double mild)
{
    Case c = { .ctx = ctx, .d = d, .null_states = null_states };
    memcpy(c.sizes, sizes, sizeof c.sizes);
    for (int i = 0; i < d->n_sizes; i++)
        snprintf(c.label + strlen(c.label), sizeof c.label - strlen(c.label), "%s%s=%lld", i ? " " : "",
                 d->size_names[i], (long long)sizes[i]);
    c.u = largest_unit(d);
    c.f = set_new(d, d->forward_args, d->n_forward_args, sizes);
    c.b = set_new(d, d->backward_args, d->n_backward_args, sizes);
    c.fs = sense_new(&c.f);
    c.bs = sense_new(&c.b);
    draw(&c, d->forward_args, d->n_forward_args, &c.f, mild);
    draw(&c, d->backward_args, d->n_backward_args, &c.b, mild);
    reach_states(&c, mild);
    share_inputs(d, &c.f, &c.b);
    run_reference(&c, &c.f, &c.b);
    find_sense(&c);
    return c;
}

/* With what moves by jumps too: this only leaves out elements of tensors. */
static int count_with_jumps(Case *c)
{
    if (c->u > unit(CELL_F64))
        find_jumps(c);
    return count_undecided(c);
}

Case case_new(cell_context *ctx, const cell_desc *d, const int64_t *sizes, bool null_states)
{
    static const double mild[] = { 1, 1, 0.5, 0.25, 0.125 };
    Case best = case_drawn(ctx, d, sizes, null_states, mild[0]);
    int undecided = count_with_jumps(&best);
    for (size_t i = 1; undecided && i < sizeof mild / sizeof *mild; i++) {
        Case c = case_drawn(ctx, d, sizes, null_states, mild[i]);
        int left = count_undecided(&c);
        if (left < undecided)
            left = count_with_jumps(&c);
        case_free(left < undecided ? &best : &c);
        if (left >= undecided)
            continue;
        best = c;
        undecided = left;
    }
    return best;
}

void case_free(Case *c)
{
    set_free(&c->f);
    set_free(&c->b);
    sense_free(&c->fs);
    sense_free(&c->bs);
}
