/* compare_values.c: two cells on equal values. In: two specs with their settings, names of the first that are
 * others in the second, and a vector file or a seed. Out: what has no partner, and the first element of each
 * tensor in which the two differ by more than roundings explain.
 *
 * Tolerances. An output, state or value of the two differs where they are apart by more than the sum of what
 * roundings may move each (EvalTensor's magnitudes, which follow the operations of each), or by 1e-12 of the
 * tensor's size, which is what `cellc check` allows between the evaluator and generated code. A gradient
 * differs where the sum of |a - b| over its tensor is more than the roundings on all paths to it allow for
 * both; since that bound is linear in the direction, some element is then apart by more than its own, and the
 * first such element is told. What is apart by less than 1e-9 of the gradient's size, or than 16 roundings of
 * the largest terms of the backward pass, is the same, as in `cellc check`. All of this is in double; for a
 * coarser type each bound grows as the type's roundings do. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/say.h"
#include "compare.h"
#include "pipeline.h"

static const double double_unit = 0x1p-53;
/* Relative to a tensor's size, what no type is asked to be nearer than: in roundings of the type. */
enum { UNITS_OF_SIZE = 16, MOST_SEARCHED = 600 };

/* Tensors of the two that are one. */
typedef struct Pair {
    int a, b;
} Pair;
typedef struct Comparison {
    Compiler *c;
    const ValueRequest *r;
    ValueResult *result;
    const Subject *a, *b;
    const Case *ka, *kb;
    Vec(Pair) pair;
} Comparison;

static const char *const kind_names[] = { "input", "param", "state", "output", "value" };

static double *doubles(Compiler *c, int64_t n)
{
    return arena_alloc(c->arena, sizeof(double) * (size_t)(n > 0 ? n : 1));
}

/* ---- sizes */

static bool in_list(const char *const *list, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

static const char *given_dim(const Side *s, const char *name)
{
    for (int i = 0; i < s->user->dims.len; i++)
        if (strcmp(s->user->dims.data[i].name, name) == 0 && strcmp(s->user->dims.data[i].value, "open") != 0)
            return s->user->dims.data[i].value;
    return NULL;
}

/* What the other side calls the dim of this one, or NULL. */
static const char *partner_dim(const ValueRequest *r, const Side *s, const char *name)
{
    const Side *other = s == r->first ? r->second : r->first;
    for (int i = 0; i < other->outline.nall; i++) {
        const char *there = other->outline.all_dims[i];
        if (strcmp(s == r->first ? renamed(&r->renames, name) : name,
                   s == r->first ? there : renamed(&r->renames, there)) == 0)
            return there;
    }
    return NULL;
}

static int place_of(const EvalOutline *o, const char *name)
{
    int i = 0;
    while (i < o->nall && strcmp(o->all_dims[i], name) != 0)
        i++;
    return i;
}

/* Sizes of a round for what nothing else decides: a dim of both has the one of the first. Bound dims first;
 * *bound is their number. */
static int choose_sizes(const ValueRequest *r, const Side *s, int round, EvalSize *out, int *bound)
{
    const EvalOutline *o = &s->outline, *first = &r->first->outline;
    const Side *other = s == r->first ? r->second : r->first;
    int n = 0;
    for (int open = 0; open < 2; open++) {
        for (int i = 0; i < o->nall && n < MAX_CHOSEN; i++) {
            const char *name = o->all_dims[i], *partner = partner_dim(r, s, name);
            const char *theirs = partner ? given_dim(other, partner) : NULL;
            bool is_open = in_list(o->open_dims, o->nopen, name);
            int at = s == r->first ? i : partner ? place_of(first, partner) : first->nall + i;
            if (given_dim(s, name) || is_open != open)
                continue;
            if (theirs)
                out[n++] = (EvalSize){ name, strtoll(theirs, NULL, 10) };
            else if (is_open || round < N_ROUNDS)
                out[n++] = (EvalSize){ name, size_in_round(round % N_ROUNDS, at) };
        }
        *bound = open ? *bound : n;
    }
    return n;
}

/* Makes the side ready to run at the sizes; false with diagnostics in s->s.c. */
static bool open_side(Side *s, const EvalSize *sizes, int n, int bound, int64_t steps)
{
    Compiler *c = compiler_like(s->user, NULL, sizes, bound);
    s->s.c = c;
    s->s.m = compile(c, s->path, reference_passes);
    int file = s->s.m ? source_load(c, s->path) : -1;
    Ast *ast = file >= 0 ? parse_source(c, file) : NULL;
    s->s.e = ast ? eval_new(c, ast, NULL, sizes, n) : NULL;
    s->s.label = s->outline.cell;
    return s->s.e && check_sizes_allowed(s->s.m, s->s.e, steps, 0) && eval_for_steps(s->s.e, steps);
}

static const char *first_error(Compiler *c, const Side *s)
{
    for (int i = 0; i < s->s.c->diags.len; i++)
        if (s->s.c->diags.data[i].level == DIAG_ERROR)
            return intern(c, s->s.c->diags.data[i].text);
    return "its conditions on sizes do not hold";
}

static void close_side(Side *s)
{
    if (s->reference)
        reference_backend.close(s->reference);
    if (s->s.c)
        compiler_free(s->s.c);
    s->reference = NULL;
    s->s.c = NULL;
}

/* Both at sizes that both take; else why not, of the sizes that were tried first. */
static const char *open_both(Compiler *c, ValueRequest *r)
{
    const char *why = NULL;
    for (int round = 0; round <= N_ROUNDS; round++) {
        Side *const sides[] = { r->first, r->second };
        int opened = 0;
        for (; opened < 2; opened++) {
            EvalSize sizes[2 * MAX_CHOSEN + 1];
            int bound = 0, n = choose_sizes(r, sides[opened], round, sizes, &bound);
            sizes[n++] = (EvalSize){ "history", r->steps > EVAL_ROOM ? r->steps : EVAL_ROOM };
            if (!open_side(sides[opened], sizes, n, bound, r->steps))
                break;
        }
        if (opened == 2)
            return NULL;
        if (!why)
            why = intern_f(c, "%s cannot be evaluated at the sizes that were tried, which --dim gives: %s",
                           sides[opened]->path, first_error(c, sides[opened]));
        close_side(r->first);
        close_side(r->second);
    }
    return why;
}

static const char *sizes_text(Compiler *c, const Case *k, const Eval *e)
{
    Buf b = { .arena = c->arena };
    buf_f(&b, "B=%lld, T=%lld", (long long)k->batch, (long long)k->steps);
    for (int i = 0; i < e->ndims; i++)
        buf_f(&b, ", %s=%lld", e->dims[i].name, (long long)e->dims[i].value);
    return b.data;
}

/* ---- values of a vector file */

/* The file with the names of the second cell. */
static VecFile *renamed_vectors(const ValueRequest *r)
{
    VecFile *f = vec_new();
    bool ok = f != NULL;
    for (int i = 0; ok && i < r->vectors->nsizes; i++)
        ok = vec_add_size(f, renamed(&r->renames, r->vectors->sizes[i].name), r->vectors->sizes[i].value);
    for (int i = 0; ok && i < r->vectors->ntensors; i++) {
        const VecTensor *t = &r->vectors->tensors[i];
        VecTensor *copy = vec_add(f, t->kind, renamed(&r->renames, t->name), t->rank, t->dims);
        if ((ok = copy != NULL))
            memcpy(copy->values, t->values, sizeof *t->values * t->count);
    }
    if (!ok)
        vec_free(f);
    return ok ? f : NULL;
}

/* One side at the sizes of the file, and the file's case; NULL after a message. */
static Case *open_vectors(Side *s, VecFile *f, const char *path)
{
    EvalSize sizes[MAX_CHOSEN];
    int n = case_sizes(&s->outline, f, sizes);
    EvalSize bound[MAX_CHOSEN];
    int nbound = 0;
    for (int i = 0; i < n; i++)
        if (in_list(s->outline.all_dims, s->outline.nall, sizes[i].name) && !given_dim(s, sizes[i].name) &&
            !in_list(s->outline.open_dims, s->outline.nopen, sizes[i].name))
            bound[nbound++] = sizes[i];
    Compiler *c = s->s.c = compiler_like(s->user, NULL, bound, nbound);
    s->s.m = n >= 0 ? compile(c, s->path, reference_passes) : NULL;
    int file = s->s.m ? source_load(c, s->path) : -1;
    s->s.e = file >= 0 ? eval_new(c, parse_source(c, file), NULL, sizes, n) : NULL;
    s->s.label = s->outline.cell;
    diag_print(c, stderr);
    if (s->s.m && !s->s.e)
        case_sizes_refused(f, sizes, n);
    Case *k = s->s.e ? case_from_vec(s->s.e, f) : NULL;
    if (k && !eval_for_steps(s->s.e, k->first + k->steps))
        k = NULL;
    if (!k && f->error[0])
        vec_print_error(f, path);
    return k;
}

/* ---- partners */

static int find_tensor(const Eval *e, const char *name)
{
    for (int i = 0; i < e->ntensors; i++)
        if (strcmp(e->tensors[i].name, name) == 0)
            return i;
    return -1;
}

static const char *shape_text(Compiler *c, const EvalTensor *t)
{
    Buf b = { .arena = c->arena };
    buf_f(&b, "[");
    for (int i = 0; i < t->rank; i++)
        buf_f(&b, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    buf_f(&b, "]");
    return b.data;
}

/* Why two tensors of one name are no partners; NULL: they are. */
static const char *unlike(Compiler *c, const EvalTensor *x, const EvalTensor *y)
{
    bool same = x->rank == y->rank && memcmp(x->shape, y->shape, sizeof *x->shape * (size_t)x->rank) == 0;
    const char *name = strcmp(x->name, y->name) == 0 ? x->name : intern_f(c, "%s (%s)", x->name, y->name);
    if (x->kind != y->kind)
        return intern_f(c, "%s is %s %s in the first and %s %s in the second", name,
                        strchr("aeiou", *kind_names[x->kind]) ? "an" : "a", kind_names[x->kind],
                        strchr("aeiou", *kind_names[y->kind]) ? "an" : "a", kind_names[y->kind]);
    if (!same)
        return intern_f(c, "%s %s is %s in the first and %s in the second, at these sizes",
                        kind_names[x->kind], name, shape_text(c, x), shape_text(c, y));
    if (x->is_int != y->is_int || x->lengths != y->lengths)
        return intern_f(c, "%s %s has another type in the second", kind_names[x->kind], name);
    return NULL;
}

static void note_alone(const Comparison *q, const EvalTensor *t, const char *what)
{
    if (t->kind != EV_WATCH) /* values inside a cell are its own business */
        vec_push(q->c->arena, &q->result->alone, what);
}

static void find_pairs(Comparison *q)
{
    const Eval *a = q->a->e, *b = q->b->e;
    bool *found = arena_alloc(q->c->arena, sizeof *found * (size_t)(b->ntensors + 1));
    for (int i = 0; i < a->ntensors; i++) {
        const EvalTensor *x = &a->tensors[i];
        int k = find_tensor(b, renamed(&q->r->renames, x->name));
        const char *why = k >= 0 ? unlike(q->c, x, &b->tensors[k])
                                 : intern_f(q->c, "%s %s is in the first only", kind_names[x->kind], x->name);
        if (k >= 0)
            found[k] = true;
        if (why)
            note_alone(q, x, why);
        else
            vec_push(q->c->arena, &q->pair, ((Pair){ i, k }));
    }
    for (int k = 0; k < b->ntensors; k++)
        if (!found[k])
            note_alone(q, &b->tensors[k],
                       intern_f(q->c, "%s %s is in the second only", kind_names[b->tensors[k].kind],
                                b->tensors[k].name));
}

/* Values of the first where the second has a partner. Where only the second says from where they are drawn,
 * its are taken. */
static void share_values(const Comparison *q, Case *ka, Case *kb)
{
    for (int i = 0; i < q->pair.len; i++) {
        int a = q->pair.data[i].a, b = q->pair.data[i].b;
        const EvalTensor *x = &q->a->e->tensors[a], *y = &q->b->e->tensors[b];
        bool second = (y->has_range && !x->has_range) || (y->is_int && y->below && !x->below);
        if (ka->value[a] && kb->value[b])
            *(second ? &ka->value[a] : &kb->value[b]) = second ? kb->value[b] : ka->value[a];
        if (ka->cotangent[a] && kb->cotangent[b])
            kb->cotangent[b] = ka->cotangent[a];
    }
}

static void watch_body(const ValueRequest *r, const StmtVec *body)
{
    Subject *a = &r->first->s, *b = &r->second->s;
    for (int i = 0; i < body->len; i++) {
        const Stmt *d = body->data[i];
        watch_body(r, d->kind == S_WHEN ? &d->body : &(StmtVec){ 0 });
        watch_body(r, d->kind == S_WHEN ? &d->other : &(StmtVec){ 0 });
        if (d->kind != S_EQ)
            continue;
        const char *name = intern_f(a->c, "%s%s", d->name, d->primed ? "'" : "");
        const char *other = intern_f(b->c, "%s%s", renamed(&r->renames, d->name), d->primed ? "'" : "");
        int there = find_tensor(b->e, other);
        if (find_tensor(a->e, name) < 0 &&
            (there < 0 ? eval_watch(b->e, other) >= 0 : b->e->tensors[there].kind == EV_WATCH))
            eval_watch(a->e, name);
    }
}

/* Has every definition written that both cells have, besides outputs; a branch that is not taken has none. */
static void watch_partners(const ValueRequest *r)
{
    Compiler *c = r->first->s.c;
    const Stmt *cell = ast_cell(c, parse_source(c, 0), r->first->s.e->cell, false);
    if (cell)
        watch_body(r, &cell->body);
}

/* ---- forward */

static bool is_out(const EvalTensor *t)
{
    return t->kind >= EV_STATE;
}

/* What the evaluator gives for the case, and how far roundings may move it, by tensor. */
static bool run_forward(Compiler *c, const Subject *s, const Case *k, double **out, double **bound)
{
    Eval *e = s->e;
    for (int i = 0; i < e->ntensors; i++)
        if (is_out(&e->tensors[i]))
            out[i] = doubles(c, case_count(k, &e->tensors[i]));
    if (!check_evaluate(s, k, out))
        return false;
    for (int i = 0; i < e->ntensors; i++)
        if (is_out(&e->tensors[i]))
            e->tensors[i].out_tangent[2] = bound[i] = doubles(c, case_count(k, &e->tensors[i]));
    e->magnitudes = true;
    bool ok = check_evaluate(s, k, NULL);
    e->magnitudes = false;
    for (int i = 0; i < e->ntensors; i++)
        e->tensors[i].out_tangent[2] = NULL;
    return ok;
}

static double rms(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += isfinite(x[i]) ? x[i] * x[i] : 0;
    return n ? sqrt(sum / (double)n) : 0;
}

static bool apart(double a, double b, double tolerance)
{
    if (a == b || (isnan(a) && isnan(b)))
        return false;
    return !(fabs(a - b) <= tolerance);
}

static double finite_or_zero(double x)
{
    return isfinite(x) ? x : 0;
}

/* Relative to a tensor's size: what check allows, or some roundings of a coarser type. */
static double size_bound(const Comparison *q, double of_check)
{
    double type = UNITS_OF_SIZE * q->r->unit;
    return of_check > type ? of_check : type;
}

static void add_difference(const Comparison *q, DifferKind kind, int pair, int64_t at, double a, double b,
                           double tolerance)
{
    const EvalTensor *t = &q->a->e->tensors[q->pair.data[pair].a],
                     *u = &q->b->e->tensors[q->pair.data[pair].b];
    const char *name = strcmp(t->name, u->name) == 0 ? t->name : intern_f(q->c, "%s (%s)", t->name, u->name);
    const char *what = intern_f(q->c, "%s%s %s",
                                kind == DIFFER_GRADIENT ? "gradient of "
                                : t->kind == EV_STATE   ? "final "
                                                        : "",
                                kind_names[t->kind], name);
    Difference d = { kind, what, intern(q->c, check_place(q->a, q->ka, t, at)), a, b, tolerance };
    vec_push(q->c->arena, &q->result->differ, d);
}

/* The step of an element, as it is walked; behind all steps for final states. */
static int64_t step_of(const Comparison *q, const EvalTensor *t, int64_t at)
{
    if (t->kind == EV_STATE)
        return q->ka->steps;
    int64_t row = t->count && q->ka->steps ? at / t->count % q->ka->steps : 0;
    return q->a->c->reverse ? q->ka->steps - 1 - row : row;
}

/* The first element of a tensor in which the two are apart: in time, then as it lies; -1: none. */
static int64_t first_apart(const Comparison *q, const EvalTensor *t, const double *a, const double *b,
                           const double *tolerance)
{
    int64_t n = case_count(q->ka, t), found = -1;
    for (int64_t i = 0; i < n; i++)
        if (apart(a[i], b[i], tolerance[i]) && (found < 0 || step_of(q, t, i) < step_of(q, t, found)))
            found = i;
    return found;
}

/* Tensors in the order of their first differing steps, and in one step as the first cell has them. */
static bool compare_forward(Comparison *q)
{
    size_t na = sizeof(double *) * (size_t)(q->a->e->ntensors + 1),
           nb = sizeof(double *) * (size_t)(q->b->e->ntensors + 1);
    double **out[2] = { arena_alloc(q->c->arena, na), arena_alloc(q->c->arena, nb) };
    double **bound[2] = { arena_alloc(q->c->arena, na), arena_alloc(q->c->arena, nb) };
    if (!run_forward(q->c, q->a, q->ka, out[0], bound[0]) ||
        !run_forward(q->c, q->b, q->kb, out[1], bound[1]))
        return false;
    int64_t *first = arena_alloc(q->c->arena, sizeof *first * (size_t)(q->pair.len + 1));
    double **tolerance = arena_alloc(q->c->arena, sizeof *tolerance * (size_t)(q->pair.len + 1));
    for (int p = 0; p < q->pair.len; p++) {
        int a = q->pair.data[p].a, b = q->pair.data[p].b;
        const EvalTensor *t = &q->a->e->tensors[a];
        first[p] = -1;
        if (!is_out(t))
            continue;
        int64_t n = case_count(q->ka, t);
        double size = size_bound(q, check_forward_bound) * rms(out[0][a], n),
               grows = check_roundings * q->r->unit / double_unit;
        tolerance[p] = doubles(q->c, n);
        for (int64_t i = 0; i < n; i++)
            tolerance[p][i] =
                fmax(size, grows * (finite_or_zero(bound[0][a][i]) + finite_or_zero(bound[1][b][i])));
        first[p] = first_apart(q, t, out[0][a], out[1][b], tolerance[p]);
    }
    /* Values inside the cells come last in the lists, but are computed before what is made of them. */
    for (int64_t step = 0; step <= q->ka->steps; step++)
        for (int inside = 1; inside >= 0; inside--)
            for (int p = 0; p < q->pair.len; p++) {
                const EvalTensor *t = &q->a->e->tensors[q->pair.data[p].a];
                if (first[p] >= 0 && step_of(q, t, first[p]) == step && (t->kind == EV_WATCH) == inside)
                    add_difference(q, DIFFER_VALUE, p, first[p], out[0][q->pair.data[p].a][first[p]],
                                   out[1][q->pair.data[p].b][first[p]], tolerance[p][first[p]]);
            }
    return true;
}

/* ---- gradients */

/* What roundings on all paths make of the elements of a gradient together, or of one. */
static double roundings_of(const Comparison *q, int pair, int64_t at)
{
    int64_t n = case_count(q->ka, &q->a->e->tensors[q->pair.data[pair].a]);
    double *v = doubles(q->c, n);
    for (int64_t i = 0; i < n; i++)
        v[i] = at < 0 || i == at;
    return q->r->unit / double_unit *
           (check_path_bound(q->a, q->ka, q->pair.data[pair].a, v) +
            check_path_bound(q->b, q->kb, q->pair.data[pair].b, v));
}

/* 16 roundings of the largest terms of the pass, on an element of a tensor of this size. */
static double weight_bound(const Comparison *q, int pair, const Result *a, const Result *b)
{
    enum { ROUNDINGS = 16 };
    int t = q->pair.data[pair].a;
    int64_t n = case_count(q->ka, &q->a->e->tensors[t]);
    double size = q->ka->value[t] ? rms(q->ka->value[t], n) * sqrt((double)n) : 0;
    double weight = fmax(check_weight(q->a, q->ka, a), check_weight(q->b, q->kb, b));
    return size > 0 ? ROUNDINGS * 2 * q->r->unit * weight / size : 0;
}

static void compare_gradient(const Comparison *q, int pair, const Result *ra, const Result *rb)
{
    const EvalTensor *t = &q->a->e->tensors[q->pair.data[pair].a];
    const double *a = ra->grad[q->pair.data[pair].a], *b = rb->grad[q->pair.data[pair].b];
    int64_t n = case_count(q->ka, t), largest = -1;
    double sum = 0, size = size_bound(q, check_gradient_bound) * rms(a, n), all;
    size = fmax(size, weight_bound(q, pair, ra, rb));
    for (int64_t i = 0; i < n; i++) {
        if (!apart(a[i], b[i], size))
            continue;
        sum += fabs(a[i] - b[i]);
        largest = largest < 0 || fabs(a[i] - b[i]) > fabs(a[largest] - b[largest]) || isnan(a[i] - b[i])
                      ? i
                      : largest;
    }
    if (largest < 0 || sum <= (all = roundings_of(q, pair, -1)))
        return;
    for (int64_t i = 0; i < n && n <= MOST_SEARCHED; i++) {
        double own = apart(a[i], b[i], size) ? fmax(size, roundings_of(q, pair, i)) : INFINITY;
        if (apart(a[i], b[i], own)) {
            add_difference(q, DIFFER_GRADIENT, pair, i, a[i], b[i], own);
            return;
        }
    }
    add_difference(q, DIFFER_GRADIENT, pair, largest, a[largest], b[largest],
                   fmax(size, roundings_of(q, pair, largest)));
}

static const char *run_reference(Side *s, const Case *k, Result *r)
{
    const char *error = NULL;
    if (!s->reference && !(s->reference = reference_backend.open(&s->s, &error)))
        return error;
    return reference_backend.run(s->reference, &s->s, k, r, 0);
}

static const char *compare_gradients(const Comparison *q)
{
    Result *a = result_new(q->a, q->ka, true), *b = result_new(q->b, q->kb, true);
    const char *error = run_reference(q->r->first, q->ka, a);
    if (!error)
        error = run_reference(q->r->second, q->kb, b);
    for (int p = 0; !error && p < q->pair.len; p++)
        if (a->grad[q->pair.data[p].a] && b->grad[q->pair.data[p].b])
            compare_gradient(q, p, a, b);
    return error;
}

/* ---- cases */

static const struct {
    CaseState state;
    CaseInput input;
    const char *name;
} cases[] = {
    { CASE_STATE_RANDOM, CASE_INPUT_NORMAL, "random values and initial states" },
    { CASE_STATE_DEFAULT, CASE_INPUT_NORMAL, "random values, initial states of the specs" },
    { CASE_STATE_RANDOM, CASE_INPUT_LARGE, "large inputs, random initial states" },
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* One case; why it could not be compared, or NULL. */
static const char *compare_case(Comparison *q, Case *ka, Case *kb)
{
    q->ka = ka;
    q->kb = kb;
    q->result->cases++;
    if (!compare_forward(q))
        return intern_f(q->c, "the evaluator stops: %s",
                        q->a->e->run_error ? q->a->e->run_error : q->b->e->run_error);
    if (!q->r->gradients || q->result->differ.len)
        return NULL;
    q->result->gradients = true;
    return compare_gradients(q);
}

static const char *compare_random(Comparison *q)
{
    const ValueRequest *r = q->r;
    const char *error = NULL;
    for (int i = 0; !error && i < N_CASES && !q->result->differ.len; i++) {
        uint64_t seed = (uint64_t)r->seed * N_CASES + (uint64_t)i;
        Case *ka = case_random(q->a->e, r->batch, r->steps, cases[i].state, cases[i].input, 2 * seed);
        Case *kb = case_random(q->b->e, r->batch, r->steps, cases[i].state, cases[i].input, 2 * seed + 1);
        share_values(q, ka, kb);
        q->result->of = cases[i].name;
        q->result->sizes = sizes_text(q->c, ka, q->a->e);
        error = compare_case(q, ka, kb);
    }
    return error;
}

static const char *compare_vectors(Comparison *q, Case *ka, Case *kb)
{
    share_values(q, ka, kb);
    q->result->of = intern_f(q->c, "the values of %s", q->r->vectors_path);
    q->result->sizes = sizes_text(q->c, ka, q->a->e);
    return compare_case(q, ka, kb);
}

/* eval_watch moves the tensors, so that cases are made behind it. */
static const char *open_file_cases(ValueRequest *r, VecFile *other, Case **ka, Case **kb)
{
    *ka = open_vectors(r->first, r->vectors, r->vectors_path);
    *kb = *ka ? open_vectors(r->second, other, r->vectors_path) : NULL;
    if (!*kb)
        return "";
    watch_partners(r);
    *ka = case_from_vec(r->first->s.e, r->vectors);
    *kb = case_from_vec(r->second->s.e, other);
    return *ka && *kb ? NULL : "";
}

ValueResult compare_values(Compiler *c, ValueRequest *r)
{
    ValueResult result = { .sizes = "", .of = "" };
    Comparison q = { .c = c, .r = r, .result = &result };
    VecFile *other = r->vectors ? renamed_vectors(r) : NULL;
    Case *ka = NULL, *kb = NULL;
    if (r->vectors && !other)
        result.error = "out of memory";
    else
        result.error = r->vectors ? open_file_cases(r, other, &ka, &kb) : open_both(c, r);
    if (!result.error) {
        if (!r->vectors)
            watch_partners(r);
        q.a = &r->first->s;
        q.b = &r->second->s;
        find_pairs(&q);
        result.error = r->vectors ? compare_vectors(&q, ka, kb) : compare_random(&q);
    }
    result.error = result.error ? intern(c, result.error) : NULL;
    vec_free(other);
    close_side(r->first);
    close_side(r->second);
    return result;
}
