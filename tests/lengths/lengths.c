/* lengths.c: a batch of sequences of several lengths against each of them alone, as generated C in double. In: two
 * shared objects, a cell with --lengths and the same cell without, and the name of their instance function.
 * Guaranteed when it passes: the outputs that a sequence has and what is left of it are the bits of a call with this
 * one sequence and as many steps, and so are the gradients of its inputs and of what it was given, but for the order
 * in which the terms of a next state's adjoint are added (to 1e-12, what cellc check allows for that); behind its
 * length outputs and gradients of inputs are zero; gradients of params are the sums, up to their roundings. */
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cell_plan.h"

enum { BATCH = 4, STEPS = 6 };
static const int64_t length_of[BATCH] = { 3, 0, STEPS, 1 };

static int passed, failed;

typedef struct Args { double *p[CELL_MAX_ARGS]; int64_t n[CELL_MAX_ARGS]; } Args;
typedef struct Lists { const cell_desc *d; const cell_arg *list; int n; } Lists;

static cell_tensor_kind kind_of(const Lists *l, int i)
{
    return l->d->tensors[l->list[i].tensor].kind;
}

static bool is_timed(const Lists *l, int i)
{
    return kind_of(l, i) == CELL_INPUT || kind_of(l, i) == CELL_OUTPUT;
}

static bool is_written(const Lists *l, int i)
{
    const cell_arg *a = &l->list[i];
    return a->role == CELL_ROLE_FINAL || a->role == CELL_ROLE_D_VALUE ||
           (a->role == CELL_ROLE_VALUE && kind_of(l, i) == CELL_OUTPUT);
}

static double uniform(void)
{
    static uint64_t state = 17;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-53 * 2 - 1;
}

static void sizes_of(const cell_desc *d, int64_t batch, int64_t steps, int64_t *sizes)
{
    memset(sizes, 0, sizeof *sizes * CELL_MAX_SIZES);
    sizes[0] = batch;
    sizes[1] = steps;
    for (int i = 0; i < d->n_sizes - 3; i++)
        sizes[2 + i] = 3 + i;
}

static Args room(const Lists *l, int64_t batch, int64_t steps)
{
    Args a = { 0 };
    int64_t sizes[CELL_MAX_SIZES];
    sizes_of(l->d, batch, steps, sizes);
    for (int i = 0; i < l->n; i++) {
        if (cell_arg_elements(l->d, &l->list[i], sizes, &a.n[i]) != CELL_OK)
            exit(1);
        a.p[i] = calloc((size_t)a.n[i] + 1, sizeof(double));
        for (int64_t k = 0; is_written(l, i) && k < a.n[i]; k++)
            a.p[i][k] = NAN;
    }
    return a;
}

/* Random, but for the lengths; what both directions read is the same. */
static void draw(const Lists *l, Args *a, const Lists *before, const Args *known)
{
    for (int i = 0; i < l->n; i++) {
        bool found = false;
        for (int k = 0; before && k < before->n && l->list[i].role == CELL_ROLE_VALUE; k++)
            if (before->list[k].tensor == l->list[i].tensor && before->list[k].role == CELL_ROLE_VALUE) {
                memcpy(a->p[i], known->p[k], sizeof(double) * (size_t)a->n[i]);
                found = true;
            }
        bool lengths = kind_of(l, i) == CELL_LENGTHS;
        for (int64_t k = 0; lengths && !is_written(l, i) && k < a->n[i]; k++)
            ((int32_t *)(void *)a->p[i])[k] = (int32_t)length_of[k];
        for (int64_t k = 0; !found && !lengths && !is_written(l, i) && k < a->n[i]; k++)
            a->p[i][k] = 0.5 * uniform();
    }
}

/* The same argument in the other instance's list. */
static int same_arg(const Lists *from, int i, const Lists *to)
{
    for (int k = 0; k < to->n; k++)
        if (to->list[k].role == from->list[i].role &&
            strcmp(to->d->tensors[to->list[k].tensor].name, from->d->tensors[from->list[i].tensor].name) == 0)
            return k;
    return -1;
}

static Args alone(const Lists *all, const Args *whole, const Lists *one, int64_t b)
{
    Args a = room(one, 1, length_of[b]);
    for (int i = 0; i < all->n; i++) {
        int k = same_arg(all, i, one);
        if (k < 0 || is_written(one, k))
            continue;
        int64_t rows = kind_of(all, i) == CELL_PARAM ? 1 : is_timed(all, i) ? BATCH * STEPS : BATCH;
        int64_t row = whole->n[i] / rows, first = kind_of(all, i) == CELL_PARAM ? 0 : is_timed(all, i) ? b * STEPS : b;
        memcpy(a.p[k], whole->p[i] + first * row, sizeof(double) * (size_t)a.n[k]);
    }
    return a;
}

static void run(const cell_desc *d, int64_t batch, int64_t steps, Args *forward, Args *backward)
{
    int64_t sizes[CELL_MAX_SIZES];
    sizes_of(d, batch, steps, sizes);
    void *reserve = malloc(d->ref_reserve_bytes(sizes) + 1);
    if (d->ref_forward(sizes, (void *const *)forward->p, reserve, 0) != CELL_OK ||
        d->ref_backward(sizes, (void *const *)backward->p, reserve, 0) != CELL_OK)
        exit(1);
    free(reserve);
}

static void verdict(const Lists *l, int i, bool ok, const char *what)
{
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("FAIL %s: %s of %s\n", l->d->key, what, l->d->tensors[l->list[i].tensor].name);
}

static void compare_sums(const Lists *all, int i, const Args *whole, const Args *one, int k)
{
    bool near = true;
    double size = 0;
    for (int64_t j = 0; j < whole->n[i]; j++)
        for (int64_t b = 0; b < BATCH; b++)
            size = fmax(size, fabs(one[b].p[k][j]));
    for (int64_t j = 0; j < whole->n[i]; j++) {
        double sum = 0;
        for (int64_t b = 0; b < BATCH; b++)
            sum += one[b].p[k][j];
        near &= fabs(sum - whole->p[i][j]) <= 1e-12 * size;
    }
    verdict(all, i, near && size > 0, "the gradient");
}

static void compare(const Lists *all, const Args *whole, const Lists *single, const Args *one)
{
    for (int i = 0; i < all->n; i++) {
        int k = same_arg(all, i, single);
        if (!is_written(all, i) || (all->list[i].flags & CELL_ARG_IGNORED) || k < 0)
            continue;
        if (kind_of(all, i) == CELL_PARAM) {
            compare_sums(all, i, whole, one, k);
            continue;
        }
        bool same = true, zero = true, gradient = all->list[i].role == CELL_ROLE_D_VALUE;
        double size = 0;
        for (int64_t b = 0; b < BATCH && gradient; b++)
            for (int64_t j = 0; j < one[b].n[k]; j++)
                size = fmax(size, fabs(one[b].p[k][j]));
        for (int64_t b = 0; b < BATCH; b++) {
            int64_t rows = is_timed(all, i) ? STEPS : 1, row = whole->n[i] / (BATCH * rows);
            const double *own = whole->p[i] + b * rows * row;
            for (int64_t j = 0; j < one[b].n[k]; j++)
                same &= fabs(own[j] - one[b].p[k][j]) <= 1e-12 * size;
            for (int64_t j = one[b].n[k]; j < rows * row; j++)
                zero &= own[j] == 0;
        }
        verdict(all, i, same, "the value or gradient");
        verdict(all, i, zero, "what is behind a sequence");
    }
}

static const cell_desc *load(const char *path, const char *symbol)
{
    void *object = dlopen(path, RTLD_LAZY | RTLD_LOCAL), *found = object ? dlsym(object, symbol) : NULL;
    const cell_desc *(*instance)(void) = NULL;
    memcpy(&instance, &found, sizeof instance);
    if (!instance) {
        printf("FAIL %s: %s\n0 passed, 1 failed\n", path, dlerror());
        exit(1);
    }
    return instance();
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const cell_desc *d = load(argv[1], argv[3]), *plain = load(argv[2], argv[3]);
    Lists f = { d, d->forward_args, d->n_forward_args }, b = { d, d->backward_args, d->n_backward_args };
    Lists f1 = { plain, plain->forward_args, plain->n_forward_args };
    Lists b1 = { plain, plain->backward_args, plain->n_backward_args };
    Args fw = room(&f, BATCH, STEPS), bw = room(&b, BATCH, STEPS), fo[BATCH], bo[BATCH];
    draw(&f, &fw, NULL, NULL);
    draw(&b, &bw, &f, &fw);
    run(d, BATCH, STEPS, &fw, &bw);
    for (int64_t k = 0; k < BATCH; k++) {
        fo[k] = alone(&f, &fw, &f1, k);
        bo[k] = alone(&b, &bw, &b1, k);
        run(plain, 1, length_of[k], &fo[k], &bo[k]);
    }
    compare(&f, &fw, &f1, fo);
    compare(&b, &bw, &b1, bo);
    printf("%s: %d passed, %d failed\n", d->key, passed, failed);
    return failed > 0 || passed == 0;
}
