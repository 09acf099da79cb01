/* judge.c: what a run wrote against what the reference, in double, wants. In: both, and how far the
 * reference's results move when every input is moved by one unit roundoff u of random sign, u being that of
 * the coarsest type that values pass through, or when it computes in float (of kernels in double: that, times
 * the ratio of the types' roundoffs). Out: counts, and a line for each failure.
 *
 * The limit of a tensor is 16 (d + u rms): d is the farthest that it moved (RMS), and 16 allows for the
 * roundings in between: they are as large as those of the inputs, with independent signs, and no path of
 * these cells has more than about 256. The largest of n such errors is about sqrt(2 ln n) times their RMS, so
 * no element may be off by more than that many limits, with the element's own movement where it is larger. A
 * gradient that is added to what is there has the roundings of both addends, which may cancel: they count
 * with their sizes. A NaN never passes. An infinity stands for all that its type rounds to it, and is off by
 * as much as the wanted value is short of that.
 *
 * An element at a jump (of floor, a comparison, a maximum's place) hangs on a rounding: the reference itself gives another
 * value there when it is moved. Such is an element whose own limit is half of its size and of the tensor's, or that moves by
 * two of its limits, which is more than chance makes of what is smooth, when inputs are moved by the 16 roundings that the
 * limit stands for. These elements are left out, counted, and held
 * only to what the reference did when it was moved; the others are judged without them.
 *
 * A tensor is decided when at least half of its elements are judged, and their limit, or that of all, is less than half of
 * their size: zeros, another tensor's values or half the terms would not pass. Where it is not, one number may still be: what came out, projected onto what was
 * wanted, whose movement is measured as well, and is smaller where errors point elsewhere; it is 0 of zeros
 * and -1 of the wrong sign. What double cannot tell from zero need only be zero within the limit, which is then
 * what double made of it, times the ratio of the types' roundoffs: terms that cancel do so to that. What is then
 * left is decided by roundings: when it does not fail it counts as skipped. At the end each tensor must have been decided at
 * some sizes where the sizes and cells are ours (LADDER_DECIDED=1); of a user's cell it is said and skipped. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ladder.h"

static Counts total;

Counts counts(void)
{
    return total;
}

const char *arg_name(const cell_desc *d, const cell_arg *a)
{
    static const char *const role[] = { "", "final ", "d_", "dout ", "dfinal " };
    static char text[4][128];
    static int at;
    char *name = text[at++ % 4];
    snprintf(name, sizeof text[0], "%s%s", role[a->role], d->tensors[a->tensor].name);
    return name;
}

/* Behind a failure: the end, where it is asked only whether there is one (LADDER_FIRST). */
static void go_on(void)
{
    if (!getenv("LADDER_FIRST"))
        return;
    printf("at the first failure: %d passed, %d failed, %d skipped\n", total.passed, total.failed, total.skipped);
    exit(1);
}

void verdict(Case *c, bool ok, const char *what, const char *tensor)
{
    total.passed += ok;
    total.failed += !ok;
    if (!ok || getenv("LADDER_VERBOSE"))
        printf("%s %s: %s: %s\n", ok ? "ok  " : "FAIL", c->label, tensor, what);
    if (!ok)
        go_on();
}

double rms(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += (a[i] - (b ? b[i] : 0)) * (a[i] - (b ? b[i] : 0));
    return sqrt(s / (double)(n ? n : 1));
}

bool is_timed(const cell_desc *d, const cell_arg *a)
{
    cell_tensor_kind kind = d->tensors[a->tensor].kind;
    return kind == CELL_INPUT || kind == CELL_OUTPUT;
}

/* ---- limits */

/* One tensor of a case, and what it may be off by. */
typedef struct Bound {
    const cell_arg *arg;
    const double *want, *addend;
    const Sense *sense;
    int at;             /* argument */
    int64_t n;
    double whole;       /* RMS of all elements */
    double size, limit; /* RMS of the calm ones */
    double along;       /* of the projection */
    bool *calm;         /* by element: at no jump */
    int64_t n_calm;
    double moved;       /* RMS of the calm elements' movements */
    bool decided;       /* by the limit */
    bool projected;     /* by the projection alone */
} Bound;

static double largest(double n)
{
    return sqrt(2 * log(n > 2 ? n : 2));
}

static double norm(const double *x, int64_t n)
{
    return rms(x, NULL, n) * sqrt((double)n);
}

/* The argument of that role that argument k of backward is the cotangent of, or -1. */
static int value_of(const cell_arg *args, int n, const cell_arg *k, cell_role role)
{
    for (int j = 0; j < n; j++)
        if (args[j].role == role && args[j].tensor == k->tensor)
            return j;
    return -1;
}

/* What roundings make of a value of forward that is exactly 0, as u - mean(u) of equal numbers is: no
 * movement shows the size of the terms, which is that of the largest number at hand, 1 at least. What is
 * stored in 16 bits cancels in the reference as it does in the kernels; a fast division is off by two units
 * of f32. */
static double cancelled_value(const Case *c)
{
    double most = 1;
    bool wide = c->u <= unit(CELL_F64);
    for (int i = 0; i < c->d->n_forward_args; i++)
        for (int64_t k = 0; k < c->f.n[i]; k++)
            most = isfinite(c->f.v[i][k]) ? fmax(most, fabs(c->f.v[i][k])) : most;
    return most * (wide ? unit(CELL_F64) : 4 * unit(CELL_F32));
}

/* The same of a gradient whose terms cancel in double too, as those of the scores of a softmax over one step
 * do. One backward pass adds up terms of one weight, sum |gradient * value| of whatever tensor, outputs and
 * final states with what comes into them among these. So those of a gradient that cancels are as large as the
 * largest such sum, over the tensor's values (gen/commands/check_case.c says the same of the dot-product
 * test). A value that is itself what is left of terms that cancel has their roundings as its weight. RMS; 0
 * where the tensor has no values. */
static double cancelled(const Case *c, int i, double u)
{
    const cell_desc *d = c->d;
    const cell_arg *args = d->backward_args;
    double weight = 0, least = cancelled_value(c);
    for (int k = 0; k < d->n_backward_args; k++) {
        bool given = args[k].role == CELL_ROLE_D_OUT || args[k].role == CELL_ROLE_D_FINAL;
        cell_role role = args[k].role == CELL_ROLE_D_FINAL ? CELL_ROLE_FINAL : CELL_ROLE_VALUE;
        const Set *of = given ? &c->f : &c->b;
        int at = given ? value_of(d->forward_args, d->n_forward_args, &args[k], role)
                       : value_of(args, d->n_backward_args, &args[k], role);
        double sum = 0;
        if (!(given || args[k].role == CELL_ROLE_D_VALUE) || at < 0)
            continue;
        for (int64_t e = 0; of->n[at] == c->b.n[k] && e < c->b.n[k]; e++)
            sum += fabs(c->b.v[k][e]) * fmax(u * fabs(of->v[at][e]), given ? least : 0);
        weight = isfinite(sum) ? fmax(weight, sum) : weight;
    }
    int own = value_of(args, d->n_backward_args, &args[i], CELL_ROLE_VALUE);
    double size = own >= 0 && c->b.n[own] ? norm(c->b.v[own], c->b.n[own]) : 0;
    return size > 0 ? weight / size / sqrt((double)c->b.n[own]) : 0;
}

static double calm_rms(const Bound *b, const double *x, const double *less)
{
    double sum = 0;
    for (int64_t k = 0; k < b->n; k++)
        sum += b->calm[k] ? (x[k] - (less ? less[k] : 0)) * (x[k] - (less ? less[k] : 0)) : 0;
    return sqrt(sum / (double)(b->n_calm ? b->n_calm : 1));
}

/* Of a calm element, by its own movement. */
static double near_limit(const Bound *b, int64_t k)
{
    return (b->limit + FAR * fmax(0, b->sense->each[b->at][k] - b->moved)) * largest((double)b->n);
}

static double element_limit(const Bound *b, int64_t k)
{
    double each = b->sense->each[b->at][k], far = b->sense->far[b->at][k];
    return b->calm[k] ? fmax(near_limit(b, k), far) : (b->limit + FAR * each + 4 * far) * largest((double)b->n);
}

/* The limit of the calm elements. */
static void set_limit(Bound *b, double u, double smallest, double zero)
{
    double sum = calm_rms(b, b->want, NULL), was = b->addend ? calm_rms(b, b->addend, NULL) : 0;
    /* The farthest of the draws: not above what all elements moved in it, nor above the farthest of each calm
     * one. */
    b->moved = b->sense->rms[b->at];
    if (b->n_calm < b->n)
        b->moved = fmin(b->moved * sqrt((double)b->n / (double)(b->n_calm ? b->n_calm : 1)),
                        calm_rms(b, b->sense->each[b->at], NULL));
    b->size = calm_rms(b, b->want, b->addend);
    b->limit = FAR * (b->moved + (sum + 2 * was) * u + smallest + zero);
}

static void leave_out(Bound *b, int64_t k)
{
    b->calm[k] = false;
    b->n_calm--;
}

/* The caller frees calm. */
static Bound bound_of(const Case *c, const cell_arg *args, int i, const Set *want, const Sense *sense,
                      const Set *addend)
{
    const double *plus = addend ? addend->v[i] : NULL;
    Bound b = { .arg = &args[i], .want = want->v[i], .addend = plus, .sense = sense, .at = i, .n = want->n[i] };
    cell_dtype type = (cell_dtype)args[i].dtype;
    double u = c->u > unit(type) ? c->u : unit(type), was = rms(b.addend ? b.addend : b.want, NULL, b.n);
    /* Below this, f16 has no normal numbers: it rounds to a fixed step. */
    double smallest = type == CELL_F64 ? 0 : (type == CELL_F16 ? 0x1p-14 : 0x1p-126) * unit(type);
    double sum = rms(b.want, NULL, b.n) + (b.addend ? 2 * was : 0), size = rms(b.want, b.addend, b.n);
    double zero = sense->vanishes[i] ? size * u / unit(CELL_F64) : 0;   /* what type u makes of zero */
    if (size == 0)
        zero += args == c->d->backward_args ? cancelled(c, i, u) : cancelled_value(c);
    bool nothing = size == 0 || sense->vanishes[i];
    b.whole = size;
    b.calm = take(sizeof *b.calm * (size_t)(b.n + 1));
    for (int64_t k = 0; k < b.n; k++)
        b.calm[k] = true;
    b.n_calm = b.n;
    set_limit(&b, u, smallest, zero);
    bool whole = b.limit <= fmin(size, was) / 2;
    for (int64_t k = 0; k < b.n && !nothing; k++)
        if (!(FAR * sense->each[i][k] <= fmax(size, fabs(b.want[k])) / 2))
            leave_out(&b, k);
    set_limit(&b, u, smallest, zero);
    for (int64_t k = 0; k < b.n && !nothing; k++)
        if (b.calm[k] && !(sense->far[i][k] <= 2 * near_limit(&b, k)))
            leave_out(&b, k);
    set_limit(&b, u, smallest, zero);
    b.decided = nothing || (2 * b.n_calm >= b.n && (whole || b.limit <= fmin(b.size, was) / 2));
    double along = FAR * (sense->along[i] + (size > 0 ? (sum * u + smallest) / size : 0));
    b.projected = !b.decided && !b.addend && along <= 0.5;
    b.along = along;
    return b;
}

double overflow(cell_dtype type)
{
    return type == CELL_F16 ? 65520 : type == CELL_BF16 ? 0x1.ffp127 : type == CELL_F32 ? 0x1.ffffffp127 : INFINITY;
}

/* Whether the wanted values have a place that the type calls infinite: from infinities of both signs a pass makes NaN,
 * which says nothing of the kernels. */
static bool leaves_range(const Bound *b)
{
    bool leaves = false;
    for (int64_t k = 0; k < b->n; k++)
        leaves |= fabs(b->want[k]) >= overflow((cell_dtype)b->arg->dtype);
    return leaves;
}

int count_undecided(const Case *c)
{
    int left = 0;
    for (int back = 0; back < 2; back++) {
        int n;
        const cell_arg *args = call_args(c->d, back ? 'b' : 'f', &n);
        for (int i = 0; i < n; i++) {
            const Set *want = back ? &c->b : &c->f;
            if (!written(c->d, &args[i]) || !want->n[i])
                continue;
            Bound b = bound_of(c, args, i, want, back ? &c->bs : &c->fs, NULL);
            left += !b.decided || leaves_range(&b);
            free(b.calm);
        }
    }
    return left;
}

/* What came out, with the nearest value that it stands for in place of each infinity. The caller frees it. */
static double *nearest(const Bound *b, const double *got)
{
    double most = overflow((cell_dtype)b->arg->dtype), *near = take(sizeof *near * (size_t)(b->n + 1));
    for (int64_t k = 0; k < b->n; k++)
        near[k] = isinf(got[k]) ? copysign(fmax(most, b->want[k] * copysign(1, got[k])), got[k]) : got[k];
    return near;
}

/* The element that exceeds its limit by the largest factor. */
static int64_t worst_of(const Bound *b, const double *got)
{
    int64_t at = 0;
    double worst = -1;
    for (int64_t k = 0; k < b->n; k++) {
        double error = fabs(got[k] - b->want[k]), limit = element_limit(b, k);
        double ratio = error == 0 ? 0 : error / limit;
        if (!(ratio <= worst)) {
            at = k;
            worst = ratio;
        }
        if (isnan(ratio))
            break;
    }
    return at;
}

/* How much of the tensor is missing (or too much) in what came out. */
static double missing(const Bound *b, const double *got)
{
    double dot = 0;
    for (int64_t k = 0; k < b->n; k++)
        dot += (got[k] - b->want[k]) * b->want[k];
    return fabs(dot) / ((double)b->n * b->whole * b->whole);
}

/* ---- reports */

/* Where element k lies: " at b, t, i, j" with the element's indices. */
static void print_place(const Case *c, const cell_arg *a, int64_t k)
{
    const cell_tensor *t = &c->d->tensors[a->tensor];
    int64_t extent[16], index[16];
    int n = 0;
    if (t->kind != CELL_PARAM)
        extent[n++] = c->sizes[0];
    if (is_timed(c->d, a))
        extent[n++] = c->sizes[1];
    for (int i = 0; i < t->rank && n < 16; i++)
        if (cell_eval(t->axes[i], c->sizes, c->d->n_sizes, &extent[n++]) != CELL_OK)
            return;
    for (int i = n - 1; i >= 0; i--, k /= extent[i + 1])
        index[i] = k % (extent[i] ? extent[i] : 1);
    for (int i = 0; i < n; i++)
        printf("%s%lld", i ? "," : " at ", (long long)index[i]);
}

/* The first step at which an element is off by more than its limit; -1 when the tensor has no steps. */
static int64_t first_step(const Case *c, const Bound *b, const double *got)
{
    int64_t B = c->sizes[0], T = c->sizes[1];
    if (!is_timed(c->d, b->arg) || B * T == 0)
        return -1;
    int64_t row = b->n / (B * T);
    for (int64_t t = 0; t < T; t++)
        for (int64_t k = 0; k < B * row; k++) {
            int64_t at = ((k / row) * T + t) * row + k % row;
            if (!(fabs(got[at] - b->want[at]) <= fmin(b->calm[at] ? b->limit : INFINITY, element_limit(b, at))))
                return t;
        }
    return -1;
}

static void report(const Case *c, const char *what, const Bound *b, const double *got, double error, bool ok)
{
    int64_t at = worst_of(b, got), step = first_step(c, b, got);
    printf("%s %s: %s: %s: rms error %.3g of rms %.3g, limit %.3g; worst %.9g, wanted %.9g,",
           ok ? "ok  " : "FAIL", c->label, arg_name(c->d, b->arg), what, error, b->size, b->limit, got[at],
           b->want[at]);
    print_place(c, b->arg, at);
    if (b->projected)
        printf("; %.3g of it missing, limit %.3g", missing(b, got), b->along);
    else if (!b->decided)
        printf("; undecided");
    if (!ok && step >= 0)
        printf("; first wrong at step %lld", (long long)step);
    printf("\n");
}

/* ---- what was decided */

/* Of one kind of runs, which is what they are called up to a comma: `in pieces, 4096 bytes`. */
typedef struct Asked {
    char kind[64];
    const cell_arg *arg;
    bool decided;
    int64_t elements, at_jumps; /* of all sizes */
} Asked;
static Asked *asked;
static int n_asked;

static void note(const char *what, const cell_arg *arg, bool decided, int64_t elements, int64_t at_jumps)
{
    int i = 0;
    char kind[sizeof asked[0].kind];
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(what, ","), what);
    while (i < n_asked && (asked[i].arg != arg || strcmp(asked[i].kind, kind) != 0))
        i++;
    if (i == n_asked) {
        asked = realloc(asked, sizeof *asked * (size_t)(n_asked + 1));
        if (!asked)
            abort();
        asked[n_asked] = (Asked){ .arg = arg };
        memcpy(asked[n_asked++].kind, kind, sizeof kind);
    }
    asked[i].decided |= decided;
    asked[i].elements += elements;
    asked[i].at_jumps += at_jumps;
}

/* Whether it is the first that was asked of its tensor, which the others repeat. */
static bool is_first(int i)
{
    int first = 0;
    while (asked[first].arg != asked[i].arg)
        first++;
    return first == i;
}

void judge_coverage(const cell_desc *d)
{
    const char *ours = getenv("LADDER_DECIDED");
    bool must = ours && strcmp(ours, "1") == 0;
    for (int i = 0; i < n_asked; i++) {
        const Asked *a = &asked[i];
        total.passed += a->decided;
        total.failed += !a->decided && must;
        total.skipped += !a->decided && !must;
        if (!a->decided)
            printf("%s %s: %s: roundings decide it at all of these sizes, so nothing was tested\n",
                   must ? "FAIL" : "SKIP", arg_name(d, a->arg), a->kind);
        else if (a->at_jumps && is_first(i))
            printf("note %s: %s: %lld of %lld elements lie where a rounding makes the reference jump, and were left out\n",
                   arg_name(d, a->arg), a->kind, (long long)a->at_jumps, (long long)a->elements);
    }
    free(asked);
    asked = NULL;
    n_asked = 0;
}

void compare(Case *c, const char *what, const cell_arg *args, int n, const Set *got, const Set *want,
             const Sense *sense, const Set *addend)
{
    for (int i = 0; i < n; i++) {
        if (!written(c->d, &args[i]) || got->n[i] == 0)
            continue;
        Bound b = bound_of(c, args, i, want, sense, addend);
        double *near = nearest(&b, got->v[i]), error = calm_rms(&b, near, want->v[i]);
        int64_t at = worst_of(&b, near);
        bool ok = got->n[i] == b.n && error <= b.limit && fabs(near[at] - b.want[at]) <= element_limit(&b, at) &&
                  (!b.projected || missing(&b, near) <= b.along);
        bool decided = b.decided || b.projected;
        total.passed += ok && decided;
        total.skipped += ok && !decided;
        total.failed += !ok;
        note(what, &args[i], decided || !ok, b.n, b.n - b.n_calm);
        if (!ok || getenv("LADDER_VERBOSE"))
            report(c, what, &b, near, error, ok);
        if (!ok)
            go_on();
        free(near);
        free(b.calm);
    }
}
