/* check_case.c: compares a backend with the evaluator on one case, and both with a vector file. What comes in
 * is a cell that is ready to run and the values to run it on; what goes out is counted and, where it fails,
 * said: which tensor, at which step and index it is first wrong, and by how much. */
#include "check.h"

#include <float.h>
#include <math.h>
#include <string.h>

const double check_forward_bound = 1e-12, check_gradient_bound = 1e-9, check_roundings = 2 * EVAL_ROUNDING;
enum { MAX_EXPLAINED = 600 };     /* elements of a gradient that are looked at one by one when it is wrong */

static bool tally_list(Tally *t, bool ok, FailKind kind, const Subject *s, const char *fmt, va_list args)
{
    if (ok) {
        t->passed++;
        return true;
    }
    t->failed++;
    t->kinds |= 1u << kind;
    if (t->quiet || (t->most && t->failed > t->most))
        return false;
    printf("FAILED %s: ", s->label);
    vprintf(fmt, args);
    putchar('\n');
    return false;
}

bool tally(Tally *t, bool ok, const Subject *s, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    ok = tally_list(t, ok, FAIL_RUN, s, fmt, args);
    va_end(args);
    return ok;
}

bool tally_kind(Tally *t, bool ok, FailKind kind, const Subject *s, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    ok = tally_list(t, ok, kind, s, fmt, args);
    va_end(args);
    return ok;
}

double rms_ratio(const double *x, const double *ref, int64_t n)
{
    double diff = 0, base = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += (x[i] - ref[i]) * (x[i] - ref[i]);
        base += ref[i] * ref[i];
    }
    return base > 0 ? sqrt(diff / base) : sqrt(diff / (double)(n ? n : 1)) + 0 * base;
}

static double *doubles(const Subject *s, int64_t n)
{
    return arena_alloc(s->c->arena, sizeof(double) * (size_t)(n > 0 ? n : 1));
}

static bool is_written(const EvalTensor *t)
{
    return t->kind == EV_OUTPUT || t->kind == EV_STATE;
}

static bool has_gradient(const EvalTensor *t, const Case *k, int i)
{
    return (t->kind == EV_INPUT || t->kind == EV_PARAM || t->kind == EV_STATE) && !t->no_grad && k->value[i];
}

Result *result_new(const Subject *s, const Case *k, bool gradients)
{
    size_t n = (size_t)s->e->ntensors + 1;
    Result *r = arena_alloc(s->c->arena, sizeof *r);
    r->out = arena_alloc(s->c->arena, sizeof *r->out * n);
    r->grad = arena_alloc(s->c->arena, sizeof *r->grad * n);
    for (int i = 0; i < s->e->ntensors; i++) {
        const EvalTensor *t = &s->e->tensors[i];
        int64_t count = case_count(k, t);
        if (is_written(t))
            r->out[i] = doubles(s, count);
        if (gradients && has_gradient(t, k, i))
            r->grad[i] = doubles(s, count);
        for (int64_t j = 0; j < count; j++) {
            if (r->out[i])
                r->out[i][j] = NAN;
            if (r->grad[i])
                r->grad[i][j] = NAN;
        }
    }
    return r;
}

/* Where an element lies, in the user's terms: "step 3, sequence 0, [2,1]". */
const char *check_place(const Subject *s, const Case *k, const EvalTensor *t, int64_t at)
{
    Buf b = {.arena = s->c->arena};
    int64_t inner = at % (t->count ? t->count : 1), outer = at / (t->count ? t->count : 1);
    if (t->kind == EV_STATE)
        buf_f(&b, "sequence %lld, ", (long long)outer);
    else if (t->kind != EV_PARAM)
        buf_f(&b, "step %lld, sequence %lld, ", (long long)(outer % k->steps), (long long)(outer / k->steps));
    buf_f(&b, "[");
    int64_t stride = t->count;
    for (int i = 0; i < t->rank; i++) {
        stride /= t->shape[i];
        buf_f(&b, i ? ",%lld" : "%lld", (long long)(inner / stride % t->shape[i]));
    }
    buf_f(&b, "]");
    return b.data;
}

/* The first wrong element; steps before sequences, since an error grows with the steps. -1 when all are near.
 */
static int64_t first_wrong(const Case *k, const EvalTensor *t, const double *x, const double *ref, int64_t n,
                           double bound)
{
    double base = 0;
    for (int64_t i = 0; i < n; i++)
        base += ref[i] * ref[i];
    double near = bound * (base > 0 ? sqrt(base / (double)n) : 1);
    bool timed = t->kind != EV_PARAM && t->kind != EV_STATE;
    int64_t steps = timed ? k->steps : 1, rows = n / (t->count ? t->count : 1) / (steps ? steps : 1);
    for (int64_t step = 0; step < steps; step++)
        for (int64_t b = 0; b < rows; b++)
            for (int64_t j = 0; j < t->count; j++) {
                int64_t at = (b * steps + step) * t->count + j;
                if (!(fabs(x[at] - ref[at]) <= near))
                    return at;
            }
    return -1;
}

static const char *largest(const Subject *s, const Case *k, const EvalTensor *t, const double *x,
                           const double *ref, int64_t n)
{
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++)
        if (fabs(x[i] - ref[i]) > fabs(x[at] - ref[at]) || isnan(x[i] - ref[i]))
            at = i;
    return n ? intern_f(s->c, "largest error %.3g at %s", fabs(x[at] - ref[at]), check_place(s, k, t, at))
             : "empty";
}

static const char *explain(const Subject *s, const Case *k, const EvalTensor *t, const double *x,
                           const double *ref, int64_t n, double bound)
{
    int64_t at = first_wrong(k, t, x, ref, n, bound);
    if (at < 0)
        return largest(s, k, t, x, ref, n);
    return intern_f(s->c, "first wrong at %s: %.17g, expected %.17g; %s", check_place(s, k, t, at), x[at],
                    ref[at], largest(s, k, t, x, ref, n));
}

/* ---- the evaluator */

bool check_evaluate(const Subject *s, const Case *k, double **out)
{
    Eval *e = s->e;
    case_bind(k, e);
    for (int i = 0; i < e->ntensors; i++)
        e->tensors[i].out = out ? out[i] : NULL;
    bool ok = eval_run(e, k->batch, k->steps, k->first);
    for (int i = 0; i < e->ntensors; i++)
        e->tensors[i].out = NULL;
    return ok;
}

/* <cotangents, J v> for up to EVAL_DIRECTIONS directions at once, each in one tensor; scale: the sum of
 * magnitudes. */
static bool directional(const Subject *s, const Case *k, int n, const int *tensor, double *const *v,
                        double *sum, double *scale)
{
    Eval *e = s->e;
    double **out[EVAL_DIRECTIONS];
    for (int d = 0; d < n; d++) {
        out[d] = arena_alloc(s->c->arena, sizeof **out * (size_t)(e->ntensors + 1));
        e->tensors[tensor[d]].tangent[d] = v[d];
        for (int i = 0; i < e->ntensors; i++)
            if (k->cotangent[i])
                e->tensors[i].out_tangent[d] = out[d][i] = doubles(s, case_count(k, &e->tensors[i]));
    }
    bool ok = check_evaluate(s, k, NULL);
    for (int d = 0; d < n; d++) {
        sum[d] = scale[d] = 0;
        e->tensors[tensor[d]].tangent[d] = NULL;
        for (int i = 0; i < e->ntensors; i++) {
            e->tensors[i].out_tangent[d] = NULL;
            for (int64_t j = 0; out[d][i] && j < case_count(k, &e->tensors[i]); j++) {
                double term = k->cotangent[i][j] * out[d][i][j];
                sum[d] += term;
                scale[d] += fabs(term);
            }
        }
    }
    return ok;
}

/* The evaluator's gradient, element by element along unit vectors. */
static double *whole_gradient(const Subject *s, const Case *k, int tensor)
{
    int64_t n = case_count(k, &s->e->tensors[tensor]);
    double *g = doubles(s, n), *unit[EVAL_DIRECTIONS], scale[EVAL_DIRECTIONS];
    int which[EVAL_DIRECTIONS];
    for (int d = 0; d < EVAL_DIRECTIONS; d++) {
        unit[d] = doubles(s, n);
        which[d] = tensor;
    }
    for (int64_t i = 0; i < n; i += EVAL_DIRECTIONS) {
        int m = n - i < EVAL_DIRECTIONS ? (int)(n - i) : EVAL_DIRECTIONS;
        for (int d = 0; d < m; d++)
            unit[d][i + d] = 1;
        if (!directional(s, k, m, which, unit, g + i, scale))
            return NULL;
        for (int d = 0; d < m; d++)
            unit[d][i + d] = 0;
    }
    return g;
}

/* ---- one case */

/* How far roundings may move each value (eval.h): a value that cancels, such as the slope 1 - tanh^2 of an inner
 * gradient, comes out as so much of its terms. NULL: the evaluator stops. */
static double **value_bounds(const Subject *s, const Case *k)
{
    Eval *e = s->e;
    double **bound = arena_alloc(s->c->arena, sizeof *bound * (size_t)(e->ntensors + 1));
    for (int i = 0; i < e->ntensors; i++)
        if (is_written(&e->tensors[i]))
            e->tensors[i].out_tangent[2] = bound[i] = doubles(s, case_count(k, &e->tensors[i]));
    e->magnitudes = true;
    bool ok = check_evaluate(s, k, NULL);
    e->magnitudes = false;
    for (int i = 0; i < e->ntensors; i++) {
        e->tensors[i].out_tangent[2] = NULL;
        for (int64_t j = 0; bound[i] && j < case_count(k, &e->tensors[i]); j++)
            bound[i][j] *= check_roundings;
    }
    return ok ? bound : NULL;
}

/* What of the errors, relative to the whole tensor, the roundings of each element do not explain. */
static double unexplained(const double *x, const double *ref, const double *bound, int64_t n)
{
    double diff = 0, base = 0;
    for (int64_t i = 0; i < n; i++) {
        double over = fabs(x[i] - ref[i]) - (isfinite(bound[i]) ? bound[i] : 0);
        diff += over < 0 ? 0 : over * over;
        base += ref[i] * ref[i];
    }
    return base > 0 ? sqrt(diff / base) : sqrt(diff / (double)(n ? n : 1)) + 0 * base;
}

static void compare_forward(const Subject *s, const Backend *b, const Case *k, const char *what,
                            double **expect, const Result *r, Tally *t)
{
    double **bound = NULL;
    for (int i = 0; i < s->e->ntensors; i++) {
        const EvalTensor *x = &s->e->tensors[i];
        if (!is_written(x))
            continue;
        int64_t n = case_count(k, x);
        double ratio = rms_ratio(r->out[i], expect[i], n);
        if (!(ratio <= check_forward_bound) && (bound || (bound = value_bounds(s, k))))
            ratio = unexplained(r->out[i], expect[i], bound[i], n);
        if (tally_kind(t, ratio <= check_forward_bound, isnan(ratio) ? FAIL_VALUE_NAN : FAIL_VALUE, s,
                       "%s, %s: %s%s is off by %.3g (bound %.0e): %s", b->name, what,
                       x->kind == EV_STATE ? "final " : "", x->name, ratio, check_forward_bound,
                       ratio <= check_forward_bound
                           ? "" : explain(s, k, x, r->out[i], expect[i], n, check_forward_bound)))
            t->worst_forward = fmax(t->worst_forward, ratio);
    }
}

static const char *explain_gradient(const Subject *s, const Case *k, int tensor, const double *g)
{
    const EvalTensor *x = &s->e->tensors[tensor];
    int64_t n = case_count(k, x);
    double *expect = n <= MAX_EXPLAINED ? whole_gradient(s, k, tensor) : NULL;
    return expect ? explain(s, k, x, g, expect, n, check_gradient_bound) : "too many elements to say where";
}

/* What roundings can make of <u, J v>: the sum over all paths from v to u of |u| |path| |v| times the path's
 * operations, in roundings. A gradient that cancels, to zero even, comes out as so much of its terms, which
 * <u, J v> does not show. */
double check_path_bound(const Subject *s, const Case *k, int tensor, const double *v)
{
    Eval *e = s->e;
    int64_t count = case_count(k, &e->tensors[tensor]);
    double *direction = doubles(s, count), **out = arena_alloc(s->c->arena, sizeof *out * (size_t)(e->ntensors + 1));
    double sum = 0;
    for (int64_t j = 0; j < count; j++)
        direction[j] = fabs(v[j]);
    e->tensors[tensor].tangent[0] = direction;
    for (int i = 0; i < e->ntensors; i++)
        if (k->cotangent[i])
            e->tensors[i].out_tangent[1] = out[i] = doubles(s, case_count(k, &e->tensors[i]));
    e->magnitudes = true;
    bool ok = check_evaluate(s, k, NULL);
    e->magnitudes = false;
    e->tensors[tensor].tangent[0] = NULL;
    for (int i = 0; i < e->ntensors; i++) {
        e->tensors[i].out_tangent[1] = NULL;
        for (int64_t j = 0; out[i] && j < case_count(k, &e->tensors[i]); j++)
            sum += fabs(k->cotangent[i][j]) * out[i][j];
    }
    return ok && isfinite(sum) ? check_roundings * sum : 0;
}

/* The case with every value moved by one unit in the last place, of random sign. */
static Case *moved_case(const Subject *s, const Case *k, Random *random)
{
    Case *p = arena_alloc(s->c->arena, sizeof *p);
    *p = *k;
    p->value = arena_alloc(s->c->arena, sizeof *p->value * (size_t)(s->e->ntensors + 1));
    for (int i = 0; i < s->e->ntensors; i++) {
        int64_t n = case_count(k, &s->e->tensors[i]);
        p->value[i] = k->value[i] ? doubles(s, n) : NULL;
        for (int64_t j = 0; k->value[i] && j < n; j++)
            p->value[i][j] = k->value[i][j] * (random_below(random, 2) ? 1 + 0x1p-52 : 1 - 0x1p-52);
    }
    return p;
}

/* The largest sum of |gradient * value| over a tensor of the case: how much the terms weigh that one
 * backward pass adds up. */
double check_weight(const Subject *s, const Case *k, const Result *r)
{
    double largest = 0;
    for (int i = 0; i < s->e->ntensors; i++) {
        double weight = 0;
        for (int64_t j = 0; r->grad[i] && k->value[i] && j < case_count(k, &s->e->tensors[i]); j++)
            weight += fabs(r->grad[i][j] * k->value[i][j]);
        largest = fmax(largest, weight);
    }
    return largest;
}

/* How far roundings may move <g, v>. One of the inputs moves it by what moved inputs show. One on the way
 * moves a term, and the terms of a gradient that cancels are known by the other gradients of the pass: a norm
 * of one element has a derivative of nearly nothing, which is the difference of two that are not. 16 of
 * either is what the ladder allows (docs/design.md). What moved inputs show is left out where it is the size of the
 * product: roundings decide there, and nothing would be proved. The other is 16 roundings of the pass's largest
 * terms however small the product is. Asked only of a product that is off. */
static double rounding_error(const Subject *s, const Backend *b, void *self, const Case *k,
                             const Result *first, int tensor, const double *v, double dot, double scale)
{
    Random random = {UINT64_C(0xbad5eed)};
    double along = 0, size = 0;
    for (int64_t j = 0; j < case_count(k, &s->e->tensors[tensor]); j++) {
        along += v[j] * v[j];
        size += k->value[tensor] ? k->value[tensor][j] * k->value[tensor][j] : 0;
    }
    double terms = size > 0 ? 0x1p-52 * check_weight(s, k, first) * sqrt(along / size) : 0, moved = 0;
    for (int draw = 0; draw < 4; draw++) {
        const Case *p = moved_case(s, k, &random);
        Result *r = result_new(s, p, true);
        double other = 0;
        if (b->run(self, s, p, r, 0))
            return 0;
        for (int64_t j = 0; j < case_count(k, &s->e->tensors[tensor]); j++)
            other += r->grad[tensor][j] * v[j];
        moved = fmax(moved, fabs(other - dot));
    }
    return 16 * fmax(terms, 16 * moved < scale / 2 ? moved : 0);
}

static void judge_gradient(const Subject *s, const Backend *b, void *self, const Case *k,
                           const char *what, const Result *r, int tensor, const double *v, double sum,
                           double scale, Tally *t)
{
    const EvalTensor *x = &s->e->tensors[tensor];
    const double *g = r->grad[tensor];
    double dot = 0;
    for (int64_t j = 0; j < case_count(k, x); j++) {
        dot += g[j] * v[j];
        scale += fabs(g[j] * v[j]);
    }
    double noise = DBL_MIN;       /* smaller numbers have fewer digits than others, or none */
    if (fabs(dot - sum) > check_gradient_bound * scale + noise) {
        noise += check_path_bound(s, k, tensor, v) + rounding_error(s, b, self, k, r, tensor, v, dot, scale);
    }
    double error = scale > 0 ? fmax(0, fabs(dot - sum) - noise) / scale : fabs(dot - sum);
    if (!isfinite(dot) || !isfinite(sum) || !isfinite(scale))
        error = NAN;              /* infinity has no dot product */
    bool ok = error <= check_gradient_bound;
    tally_kind(t, ok, isnan(error) ? FAIL_GRADIENT_NAN : FAIL_GRADIENT, s,
               "%s, %s: the gradient of %s fails the dot-product test: %.17g, expected %.17g (off by %.3g, bound "
               "%.0e): %s",
               b->name, what, x->name, dot, sum, error, check_gradient_bound,
               ok ? "" : explain_gradient(s, k, tensor, g));
    if (ok)
        t->worst_gradient = fmax(t->worst_gradient, error);
}

/* <u, J v> = <J' u, v>, v random in one tensor at a time. Without a backend <u, J v> is only asked to be a number. */
static void compare_gradients(const Subject *s, const Backend *b, void *self, const Case *k,
                              const char *what, const Result *r, Tally *t)
{
    Random random = {UINT64_C(0x5eed) + (uint64_t)(k->batch * 31 + k->steps)};
    int tensor[EVAL_DIRECTIONS], n = 0;
    double *v[EVAL_DIRECTIONS], sum[EVAL_DIRECTIONS], scale[EVAL_DIRECTIONS];
    for (int i = 0; i <= s->e->ntensors; i++) {
        if (n == EVAL_DIRECTIONS || (i == s->e->ntensors && n)) {
            if (!directional(s, k, n, tensor, v, sum, scale))
                tally(t, false, s, "%s: the evaluator stops: %s", what, s->e->run_error);
            for (int d = 0; d < n; d++)
                if (b)
                    judge_gradient(s, b, self, k, what, r, tensor[d], v[d], sum[d], scale[d], t);
                else
                    tally(t, isfinite(scale[d]), s, "%s: %s has no finite derivative", what,
                          s->e->tensors[tensor[d]].name);
            n = 0;
        }
        if (i == s->e->ntensors || !r->grad[i])
            continue;
        int64_t count = case_count(k, &s->e->tensors[i]);
        tensor[n] = i;
        v[n] = doubles(s, count);
        for (int64_t j = 0; j < count; j++)
            v[n][j] = random_normal(&random);
        n++;
    }
}

/* A sum is rounded relative to its terms: where gradients cancel against the shift, the ratio of an error to
 * the sum is taken down to that to the shift. */
static double cancelled(const double *sum, int64_t n, double shift)
{
    double squares = 0;
    for (int64_t j = 0; j < n; j++)
        squares += sum[j] * sum[j];
    double size = sqrt(squares / (double)(n ? n : 1));
    return size > 0 && size < fabs(shift) ? size / fabs(shift) : 1;
}

/* Do roundings explain how far two results of one gradient are apart? A gradient that cancels differs by as much of its
 * terms; each of the two is off by no more than all paths together. */
static bool within_roundings(const Subject *s, const Case *k, int tensor, const double *a, const double *b)
{
    int64_t n = case_count(k, &s->e->tensors[tensor]);
    double *all = doubles(s, n), apart = 0;
    for (int64_t j = 0; j < n; j++) {
        all[j] = 1;
        apart += fabs(a[j] - b[j]);
    }
    return apart <= 2 * check_path_bound(s, k, tensor, all);
}

/* The first tensor in which two results differ by more than the bound, as a sentence; NULL: they are the
 * same. `shift` was in the gradients of `a` before. */
static const char *difference(const Subject *s, const Case *k, const Result *a, const Result *ref,
                              double shift, double bound)
{
    for (int i = 0; i < s->e->ntensors; i++) {
        const EvalTensor *x = &s->e->tensors[i];
        int64_t n = case_count(k, x);
        double ratio = a->out[i] && ref->out[i] ? rms_ratio(a->out[i], ref->out[i], n) : 0;
        if (!(ratio <= bound))
            return intern_f(s->c, "%s differs by %.3g: %s", x->name, ratio,
                            explain(s, k, x, a->out[i], ref->out[i], n, bound));
        if (!a->grad[i] || !ref->grad[i])
            continue;
        double *shifted = doubles(s, n);
        for (int64_t j = 0; j < n; j++)
            shifted[j] = ref->grad[i][j] + shift;
        ratio = rms_ratio(a->grad[i], shifted, n) * cancelled(shifted, n, shift);
        bool decided = bound > 0 && shift == 0;       /* by roundings, where two ways of one sum differ */
        if (!(ratio <= bound) && !(decided && within_roundings(s, k, i, a->grad[i], shifted)))
            return intern_f(s->c, "the gradient of %s differs by %.3g: %s", x->name, ratio,
                            explain(s, k, x, a->grad[i], shifted, n, bound));
    }
    return NULL;
}

/* Runs again in another way and compares with the first result. */
static void check_identity(const Subject *s, const Backend *b, void *self, const Case *k, const char *what,
                           const char *identity, const Result *ref, int flags, double bound, Tally *t)
{
    bool gradients = !(flags & (CASE_INFERENCE | CASE_STEPWISE));
    double shift = flags & CASE_ACCUMULATE ? 1 : 0;
    Result *again = result_new(s, k, gradients);
    for (int i = 0; i < s->e->ntensors; i++)
        for (int64_t j = 0; shift != 0 && again->grad[i] && j < case_count(k, &s->e->tensors[i]); j++)
            again->grad[i][j] = shift;
    const char *wrong = b->run(self, s, k, again, flags);
    if (!wrong)
        wrong = difference(s, k, again, ref, shift, bound);
    tally_kind(t, !wrong, FAIL_IDENTITY, s, "%s, %s: %s: %s", b->name, what, identity, wrong ? wrong : "");
}

int64_t first_row(const Subject *s, const Case *k, int64_t from, int64_t steps)
{
    return s->c->reverse ? k->steps - from - steps : from;
}

/* Steps [from, to) of a case: inputs and cotangents of outputs are cut out, states are taken over. */
static Case *piece(const Subject *s, const Case *k, int64_t from, int64_t to)
{
    size_t n = (size_t)s->e->ntensors + 1;
    Case *p = arena_alloc(s->c->arena, sizeof *p);
    *p = *k;
    p->steps = to - from;
    p->first = k->first + from;
    p->value = arena_alloc(s->c->arena, sizeof *p->value * n);
    p->cotangent = arena_alloc(s->c->arena, sizeof *p->cotangent * n);
    for (int i = 0; i < s->e->ntensors; i++) {
        const EvalTensor *t = &s->e->tensors[i];
        const double *whole = t->kind == EV_INPUT    ? k->value[i]
                              : t->kind == EV_OUTPUT ? k->cotangent[i]
                                                     : NULL;
        p->value[i] = k->value[i];
        p->cotangent[i] = k->cotangent[i];
        if (!whole)
            continue;
        double *part = doubles(s, case_count(p, t));
        for (int64_t b = 0; b < k->batch && t->lengths; b++)
            part[b] = fmin(fmax(whole[b] - (double)first_row(s, k, from, p->steps), 0), (double)p->steps);
        for (int64_t b = 0; b < k->batch && !t->lengths; b++)
            memcpy(part + b * p->steps * t->count, whole + (b * k->steps + first_row(s, k, from, p->steps)) * t->count,
                   sizeof *part * (size_t)(p->steps * t->count));
        *(t->kind == EV_INPUT ? &p->value[i] : &p->cotangent[i]) = part;
    }
    return p;
}

/* Puts what a piece gave at its place in the whole; gradients of params add up. */
static void join(const Subject *s, const Case *k, const Case *p, const Result *part, int64_t from,
                 Result *whole)
{
    for (int i = 0; i < s->e->ntensors; i++) {
        const EvalTensor *t = &s->e->tensors[i];
        const double *x = t->kind == EV_OUTPUT ? part->out[i] : t->kind == EV_INPUT ? part->grad[i] : NULL;
        double *to = t->kind == EV_OUTPUT ? whole->out[i] : whole->grad[i];
        for (int64_t b = 0; x && to && b < k->batch; b++)
            memcpy(to + (b * k->steps + first_row(s, k, from, p->steps)) * t->count, x + b * p->steps * t->count,
                   sizeof *x * (size_t)(p->steps * t->count));
        for (int64_t j = 0; t->kind == EV_PARAM && to && part->grad[i] && j < t->count; j++)
            to[j] = (from ? 0 : to[j]) + part->grad[i][j];      /* the later piece comes first */
    }
}

/* Two pieces with carried states and adjoints equal one run. Only for cases that give their initial states:
 * gradients of learned ones go to params. */
static void check_pieces(const Subject *s, const Backend *b, void *self, const Case *k, const char *what,
                         const Result *ref, Tally *t)
{
    int64_t cut = k->steps / 2;
    Case *first = piece(s, k, 0, cut), *second = piece(s, k, cut, k->steps);
    Result *one = result_new(s, first, true), *two = result_new(s, second, true),
           *whole = result_new(s, k, true);
    const char *wrong = b->run(self, s, first, one, CASE_INFERENCE);
    for (int i = 0; i < s->e->ntensors; i++)
        if (s->e->tensors[i].kind == EV_STATE)
            second->value[i] = one->out[i];
    if (!wrong)
        wrong = b->run(self, s, second, two, 0);
    for (int i = 0; i < s->e->ntensors; i++)
        if (s->e->tensors[i].kind == EV_STATE) {
            first->cotangent[i] = two->grad[i];
            whole->out[i] = two->out[i];
        }
    Result *again = result_new(s, first, true);
    if (!wrong)
        wrong = b->run(self, s, first, again, 0);
    for (int i = 0; i < s->e->ntensors; i++)
        if (s->e->tensors[i].kind == EV_STATE)
            whole->grad[i] = again->grad[i];
    join(s, k, second, two, cut, whole);
    join(s, k, first, again, 0, whole);
    if (!wrong)
        wrong = difference(s, k, whole, ref, 0, 1e-12);
    tally_kind(t, !wrong, FAIL_IDENTITY, s, "%s, %s: two pieces equal one run: %s", b->name, what,
               wrong ? wrong : "");
}

/* Each gradient asked for alone is what it is among all. */
static void check_subsets(const Subject *s, const Backend *b, void *self, const Case *k, const char *what,
                          const Result *ref, Tally *t)
{
    for (int i = 0; i < s->e->ntensors; i++) {
        if (!ref->grad[i])
            continue;
        Result *one = result_new(s, k, true);
        for (int j = 0; j < s->e->ntensors; j++)
            if (j != i)
                one->grad[j] = NULL;
        const char *wrong = b->run(self, s, k, one, 0);
        if (!wrong)
            wrong = difference(s, k, one, ref, 0, 1e-14);
        tally_kind(t, !wrong, FAIL_IDENTITY, s, "%s, %s: the gradient of %s alone: %s", b->name, what,
                   s->e->tensors[i].name, wrong ? wrong : "");
    }
}

static bool all_given(const Subject *s, const Case *k)
{
    bool all = true;
    for (int i = 0; i < s->e->ntensors; i++)
        all = all && (s->e->tensors[i].kind != EV_STATE || k->value[i]);
    return all;
}

/* Of a cell that is not finite on these values, nothing can be said: neither that it is right nor that it is wrong. */
static bool is_finite(const Subject *s, const Case *k, const char *what, const Result *expect, Tally *t)
{
    for (int i = 0; i < s->e->ntensors; i++) {
        const EvalTensor *x = &s->e->tensors[i];
        int64_t n = expect->out[i] ? case_count(k, x) : 0;
        for (int64_t at = 0; at < n; at++) {
            double v = expect->out[i][at];
            if (!isfinite(v))
                return tally_kind(t, false, FAIL_VALUE_NAN, s,
                                  "%s: the cell itself gives %s%s = %s at %s, so nothing can be compared; if it is not for "
                                  "any numbers, say for which, as in 'input x in (0, 1]' or 'state h in reach'", what,
                                  x->kind == EV_STATE ? "final " : "", x->name,
                                  isnan(v) ? "nan" : v < 0 ? "-inf" : "inf", check_place(s, k, x, at));
        }
    }
    return true;
}

void check_case(const Subject *s, const Backend *b, void *self, const Case *k, const char *what, Tally *t)
{
    Result *expect = result_new(s, k, false), *r = result_new(s, k, true);
    if (!check_evaluate(s, k, expect->out)) {
        tally(t, false, s, "%s: the evaluator stops: %s", what, s->e->run_error);
        return;
    }
    if (!is_finite(s, k, what, expect, t))
        return;
    const char *error = b->run(self, s, k, r, 0);
    if (error) {
        tally(t, false, s, "%s, %s: %s", b->name, what, error);
        return;
    }
    compare_forward(s, b, k, what, expect->out, r, t);
    compare_gradients(s, b, self, k, what, r, t);
    check_identity(s, b, self, k, what, "two runs give the same bits", r, 0, 0, t);
    check_identity(s, b, self, k, what, "inference equals training", r, CASE_INFERENCE, 1e-14, t);
    check_identity(s, b, self, k, what, "gradients are added", r, CASE_ACCUMULATE, 1e-13, t);
    if (k->steps > 0 && !s->m->whole_past)
        check_identity(s, b, self, k, what, "step by step equals forward", r, CASE_STEPWISE, 1e-14, t);
    if (k->steps > 1 && all_given(s, k) && !s->m->whole_past)
        check_pieces(s, b, self, k, what, r, t);
    check_subsets(s, b, self, k, what, r, t);
}

static bool all_finite(const double *x, int64_t n)
{
    bool all = true;
    for (int64_t i = 0; i < n; i++)
        all = all && isfinite(x[i]);
    return all;
}

/* How far roundings may move a tensor, against its size or one. */
static bool well_conditioned(const double *x, const double *bound, int64_t n)
{
    double base = 0, noise = 0;
    for (int64_t i = 0; i < n; i++) {
        base += x[i] * x[i];
        noise += bound[i] * bound[i];
    }
    return sqrt(noise) <= 1e-9 * (sqrt(base) + sqrt((double)n));
}

void judge_case(const Subject *s, const Backend *b, void *self, const Case *k, const char *what, Tally *t)
{
    (void)b, (void)self;
    double **bound = NULL;
    if (!eval_for_steps(s->e, k->first + k->steps)) {
        tally(t, false, s, "%s: the evaluator cannot have so many steps", what);
        return;
    }
    Result *r = result_new(s, k, true);
    for (int i = 0; i < s->e->ntensors; i++)
        if (s->e->tensors[i].kind == EV_WATCH)
            r->out[i] = doubles(s, case_count(k, &s->e->tensors[i]));
    if (!check_evaluate(s, k, r->out) || !(bound = value_bounds(s, k))) {
        tally(t, false, s, "%s: the evaluator stops: %s", what, s->e->run_error);
        return;
    }
    for (int i = 0; i < s->e->ntensors; i++) {
        const EvalTensor *x = &s->e->tensors[i];
        int64_t n = case_count(k, x);
        if (r->out[i])
            tally(t, all_finite(r->out[i], n), s, "%s: %s is not finite", what, x->name);
        if (r->out[i] && bound[i])
            tally(t, well_conditioned(r->out[i], bound[i], n), s, "%s: %s is ill-conditioned", what, x->name);
    }
    compare_gradients(s, NULL, NULL, k, what, r, t);
}

/* ---- vector files */

static EvalKind kind_of(VecKind kind)
{
    switch (kind) {
    case VK_INPUT: case VK_DINPUT: return EV_INPUT;
    case VK_PARAM: case VK_DPARAM: return EV_PARAM;
    case VK_OUTPUT: case VK_DOUT: return EV_OUTPUT;
    default: return EV_STATE;
    }
}

static int tensor_of(const Subject *s, const VecTensor *v)
{
    for (int i = 0; i < s->e->ntensors; i++)
        if (s->e->tensors[i].kind == kind_of(v->kind) && strcmp(s->e->tensors[i].name, v->name) == 0)
            return i;
    return -1;
}

static void vector_line(const Subject *s, const Case *k, const VecTensor *v, int i, const char *who,
                        const double *x, double bound, Tally *t)
{
    const EvalTensor *e = &s->e->tensors[i];
    int64_t n = case_count(k, e);
    double ratio = rms_ratio(x, v->values, n);
    bool ok = ratio <= bound;
    printf("  %-7s %-14s %-10s %9.2e   %s\n", vec_kind_names[v->kind], v->name, who, ratio,
           largest(s, k, e, x, v->values, n));
    tally(t, ok, s, "%s: %s %s is off by %.3g (bound %.0e): %s", who, vec_kind_names[v->kind], v->name, ratio,
          bound, ok ? "" : explain(s, k, e, x, v->values, n, bound));
}

static void vector_gradient(const Subject *s, const Case *k, const VecTensor *v, int i, Tally *t)
{
    if (v->count <= 4096) {
        double *g = whole_gradient(s, k, i);
        if (g)
            vector_line(s, k, v, i, "evaluator", g, check_gradient_bound, t);
        else
            tally(t, false, s, "the evaluator stops: %s", s->e->run_error);
    }
}

void check_vectors(const Subject *s, const Backend *b, void *self, const Case *k, const VecFile *f, Tally *t)
{
    const char *error = NULL;
    Result *expect = result_new(s, k, false), *r = result_new(s, k, true);
    if (!check_evaluate(s, k, expect->out) || (error = b->run(self, s, k, r, 0))) {
        tally(t, false, s, "%s", s->e->run_error ? s->e->run_error : error);
        return;
    }
    printf("  %-7s %-14s %-10s %9s\n", "kind", "tensor", "computed by", "rms ratio");
    for (int j = 0; j < f->ntensors; j++) {
        const VecTensor *v = &f->tensors[j];
        int i = tensor_of(s, v);
        if (v->kind == VK_VALUE) {
            printf("  %-7s %-14s not compared: it is a value inside the step\n", vec_kind_names[v->kind],
                   v->name);
        } else if (i < 0) {
            tally(t, false, s, "the file has %s %s, the cell has not", vec_kind_names[v->kind], v->name);
        } else if (v->kind == VK_OUTPUT || v->kind == VK_FINAL) {
            vector_line(s, k, v, i, "evaluator", expect->out[i], check_forward_bound, t);
            vector_line(s, k, v, i, b->name, r->out[i], check_forward_bound, t);
        } else if ((v->kind == VK_DINPUT || v->kind == VK_DPARAM || v->kind == VK_DSTATE) && r->grad[i]) {
            vector_gradient(s, k, v, i, t);
            vector_line(s, k, v, i, b->name, r->grad[i], check_gradient_bound, t);
        }
    }
}
