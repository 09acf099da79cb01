/* symmetry.c: what is known of a cell before it is run, as generated C in double. In: a shared object, the name of its
 * instance function, and
 *   heads   what belongs to the dim H (its axes, and axes of H times something, head by head) given in another order
 *           gives the same results in that order, and the same of all that belongs to no head;
 *   units   the same where such an axis has all of H once, then once more: stacked gates;
 *   linear  outputs and what is left are an affine map of the initial states: of a mixture of two they are the mixture,
 *           and the gradients of the initial states are those of both.
 * Guaranteed when it passes: so it is at a few steps, to 1e-12 of the largest value, since sums over heads or states are
 * then in another order. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

enum { BATCH = 2, STEPS = 5, HEADS = 3 };
static const int64_t order[HEADS] = { 1, 2, 0 };

static int size_h(const cell_desc *d)
{
    for (int i = 0; i < d->n_sizes; i++)
        if (strcmp(d->size_names[i], "H") == 0)
            return i;
    printf("FAIL %s: it has no dim H at run time\n0 passed, 1 failed\n", d->key);
    exit(1);
}

static void small_sizes(const cell_desc *d, int64_t *sizes)
{
    calls_sizes(d, BATCH, STEPS, sizes);
    for (int i = 2; i < d->n_sizes; i++)
        if (strcmp(d->size_names[i], "H") == 0)
            sizes[i] = HEADS;
}

/* ---- heads in another order */

/* How many elements of axis k belong to each of H, 0: it has nothing to do with heads. */
static int64_t of_each_head(const List *l, int i, int k, const int64_t *sizes)
{
    const cell_tensor *t = &l->d->tensors[l->arg[i].tensor];
    int64_t twice[CELL_MAX_SIZES], a = 0, b = 0;
    memcpy(twice, sizes, sizeof twice);
    twice[size_h(l->d)] *= 2;
    if (cell_eval(t->axes[k], sizes, l->d->n_sizes, &a) != CELL_OK ||
        cell_eval(t->axes[k], twice, l->d->n_sizes, &b) != CELL_OK)
        exit(1);
    return b == 2 * a ? a / HEADS : 0;
}

/* One axis of `x`, of outer * HEADS * each * inner elements, in the other order. */
static void permute_axis(double *x, int64_t outer, int64_t each, int64_t inner, bool units)
{
    int64_t all = outer * HEADS * each * inner, block = units ? inner : each * inner, pieces = units ? each : 1;
    double *was = malloc(sizeof *was * (size_t)(all + 1));
    memcpy(was, x, sizeof *was * (size_t)all);
    for (int64_t o = 0; o < outer * pieces; o++)
        for (int64_t h = 0; h < HEADS; h++)
            memcpy(x + (o * HEADS + h) * block, was + (o * HEADS + order[h]) * block, sizeof *was * (size_t)block);
    free(was);
}

static bool permute(const List *l, int i, double *x, int64_t n, const int64_t *sizes, bool units)
{
    const cell_tensor *t = &l->d->tensors[l->arg[i].tensor];
    int64_t inner = 1;
    bool any = false;
    for (int k = t->rank - 1; k >= 0; k--) {
        int64_t extent = 1, each = of_each_head(l, i, k, sizes);
        if (cell_eval(t->axes[k], sizes, l->d->n_sizes, &extent) != CELL_OK)
            exit(1);
        if (each)
            permute_axis(x, n / (extent * inner), each, inner, units);
        any |= each > 0;
        inner *= extent;
    }
    return any;
}

/* ---- runs */

static void draw(const List *l, Args *a, const List *forward, const Args *known)
{
    for (int i = 0; i < l->n; i++) {
        if (arg_is_written(l, i) || (known && calls_known(l, i, a, forward, known)))
            continue;
        for (int64_t k = 0; k < a->n[i]; k++)
            a->p[i][k] = 0.5 * calls_uniform();
    }
}

static Args copy(const List *l, const Args *a, const int64_t *sizes)
{
    Args to = calls_room(l, sizes);
    for (int i = 0; i < l->n; i++)
        if (!arg_is_written(l, i))
            memcpy(to.p[i], a->p[i], sizeof(double) * (size_t)a->n[i]);
    return to;
}

static void compare(const List *l, int i, const double *want, const double *got, int64_t n, const char *what)
{
    double size = 0;
    bool near = true;
    for (int64_t k = 0; k < n; k++)
        size = fmax(size, fabs(want[k]));
    for (int64_t k = 0; k < n; k++)
        near &= fabs(want[k] - got[k]) <= 1e-12 * size;
    calls_verdict(l, i, near, what);
}

static void permuted(const List *l, const Args *a, const Args *b, const int64_t *sizes, bool units)
{
    for (int i = 0; i < l->n; i++) {
        if (!arg_is_written(l, i) || (l->arg[i].flags & CELL_ARG_IGNORED))
            continue;
        permute(l, i, a->p[i], a->n[i], sizes, units);
        compare(l, i, a->p[i], b->p[i], a->n[i], l->arg[i].role == CELL_ROLE_D_VALUE ? "the permuted gradient"
                                                                                     : "the permuted value");
    }
}

static void check_order(const cell_desc *d, bool units)
{
    List f = calls_forward(d), b = calls_backward(d);
    int64_t sizes[CELL_MAX_SIZES];
    bool any = false;
    small_sizes(d, sizes);
    Args fw = calls_room(&f, sizes), bw = calls_room(&b, sizes);
    draw(&f, &fw, NULL, NULL);
    draw(&b, &bw, &f, &fw);
    Args fp = copy(&f, &fw, sizes), bp = copy(&b, &bw, sizes);
    for (int i = 0; i < f.n; i++)
        if (!arg_is_written(&f, i))
            any |= permute(&f, i, fp.p[i], fp.n[i], sizes, units);
    for (int i = 0; i < b.n; i++)
        if (!arg_is_written(&b, i))
            permute(&b, i, bp.p[i], bp.n[i], sizes, units);
    calls_run(d, sizes, &fw, &bw);
    calls_run(d, sizes, &fp, &bp);
    calls_passed += any;
    calls_failed += !any;
    if (!any)
        printf("FAIL %s: nothing belongs to a head\n", d->key);
    permuted(&f, &fw, &fp, sizes, units);
    permuted(&b, &bw, &bp, sizes, units);
}

/* ---- mixtures of initial states */

static bool is_initial(const List *l, int i)
{
    return arg_kind(l, i) == CELL_STATE && l->arg[i].role == CELL_ROLE_VALUE;
}

static void check_linear(const cell_desc *d)
{
    enum { ONE, OTHER, MIX, RUNS };
    const double part = 0.3;
    List f = calls_forward(d), b = calls_backward(d);
    int64_t sizes[CELL_MAX_SIZES];
    calls_sizes(d, BATCH, STEPS, sizes);
    Args fw[RUNS], bw[RUNS];
    for (int r = 0; r < RUNS; r++) {
        fw[r] = r ? copy(&f, &fw[0], sizes) : calls_room(&f, sizes);
        bw[r] = r ? copy(&b, &bw[0], sizes) : calls_room(&b, sizes);
        if (r == ONE) {
            draw(&f, &fw[r], NULL, NULL);
            draw(&b, &bw[r], &f, &fw[r]);
        }
        for (int i = 0; i < f.n && r; i++)
            for (int64_t k = 0; is_initial(&f, i) && k < fw[r].n[i]; k++)
                fw[r].p[i][k] = r == OTHER ? calls_uniform() : part * fw[ONE].p[i][k] + (1 - part) * fw[OTHER].p[i][k];
        for (int i = 0; i < b.n; i++)
            calls_known(&b, i, &bw[r], &f, &fw[r]);
        calls_run(d, sizes, &fw[r], &bw[r]);
    }
    for (int i = 0; i < f.n; i++) {
        if (!arg_is_written(&f, i) || (f.arg[i].flags & CELL_ARG_IGNORED))
            continue;
        for (int64_t k = 0; k < fw[MIX].n[i]; k++)
            fw[ONE].p[i][k] = part * fw[ONE].p[i][k] + (1 - part) * fw[OTHER].p[i][k];
        compare(&f, i, fw[ONE].p[i], fw[MIX].p[i], fw[MIX].n[i], "the mixture");
    }
    for (int i = 0; i < b.n; i++)
        if (arg_kind(&b, i) == CELL_STATE && b.arg[i].role == CELL_ROLE_D_VALUE) {
            compare(&b, i, bw[ONE].p[i], bw[OTHER].p[i], bw[ONE].n[i], "the gradient of another state");
            compare(&b, i, bw[ONE].p[i], bw[MIX].p[i], bw[ONE].n[i], "the gradient of the mixture");
        }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const cell_desc *d = calls_load(argv[1], argv[2]);
    if (strcmp(argv[3], "linear") == 0)
        check_linear(d);
    else
        check_order(d, strcmp(argv[3], "units") == 0);
    return calls_close(d);
}
