/* lengths.c: a batch of sequences of several lengths against each of them alone, as generated C in double. In: two
 * shared objects, a cell with --lengths and the same cell without, and the name of their instance function.
 * Guaranteed when it passes: the outputs that a sequence has and what is left of it are the bits of a call with this
 * one sequence and as many steps, and so are the gradients of its inputs and of what it was given, but for the order
 * in which the terms of a next state's adjoint are added (to 1e-12, what cellc check allows for that); behind its
 * length outputs and gradients of inputs are zero; gradients of params are the sums, up to their roundings. */
#include <math.h>
#include <string.h>

#include "calls.h"

enum { BATCH = 4, STEPS = 6 };
static const int64_t length_of[BATCH] = { 3, 0, STEPS, 1 };

/* Reversed, a sequence that is shorter than the call begins in it: what it is given of steps before is not looked at. */
static bool begins_inside(const List *l, int i, int64_t b)
{
    const char *name = arg_name(l, i), *end = strstr(name, "_history");
    bool reversed = false;
    for (int k = 0; k < l->d->n_bindings; k++)
        reversed |= strcmp(l->d->bindings[k].name, "reverse") == 0 && strcmp(l->d->bindings[k].value, "true") == 0;
    return reversed && arg_kind(l, i) == CELL_STATE && end && !end[8] && length_of[b] < STEPS;
}

/* Random, what is not looked at too, but for the lengths; what both directions read is the same. */
static void draw(const List *l, Args *a, const List *forward, const Args *known)
{
    for (int i = 0; i < l->n; i++) {
        if (arg_is_written(l, i) || (known && calls_known(l, i, a, forward, known)))
            continue;
        for (int64_t k = 0; k < a->n[i]; k++)
            if (arg_kind(l, i) == CELL_LENGTHS)
                ((int32_t *)(void *)a->p[i])[k] = (int32_t)length_of[k];
            else
                a->p[i][k] = 0.5 * calls_uniform();
    }
}

/* The same argument in the other instance's list. */
static int same_arg(const List *from, int i, const List *to)
{
    for (int k = 0; k < to->n; k++)
        if (to->arg[k].role == from->arg[i].role && strcmp(arg_name(to, k), arg_name(from, i)) == 0)
            return k;
    return -1;
}

/* The call with this sequence alone; what is not looked at in the batch, it is given as zero. */
static Args alone(const List *all, const Args *whole, const List *one, int64_t b)
{
    int64_t sizes[CELL_MAX_SIZES];
    calls_sizes(one->d, 1, length_of[b], sizes);
    Args a = calls_room(one, sizes);
    for (int i = 0; i < all->n; i++) {
        int k = same_arg(all, i, one);
        bool unseen = all->arg[i].role == CELL_ROLE_VALUE && begins_inside(all, i, b);
        if (k < 0 || arg_is_written(one, k) || unseen)
            continue;
        int64_t rows = arg_kind(all, i) == CELL_PARAM ? 1 : arg_is_timed(all, i) ? BATCH * STEPS : BATCH;
        int64_t row = whole->n[i] / rows, first = arg_kind(all, i) == CELL_PARAM ? 0 : arg_is_timed(all, i) ? b * STEPS : b;
        memcpy(a.p[k], whole->p[i] + first * row, sizeof(double) * (size_t)a.n[k]);
    }
    return a;
}

static void compare_sums(const List *all, int i, const Args *whole, const Args *one, int k)
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
    calls_verdict(all, i, near && size > 0, "the gradient");
}

static void compare(const List *all, const Args *whole, const List *single, const Args *one)
{
    for (int i = 0; i < all->n; i++) {
        int k = same_arg(all, i, single);
        if (!arg_is_written(all, i) || (all->arg[i].flags & CELL_ARG_IGNORED) || k < 0)
            continue;
        if (arg_kind(all, i) == CELL_PARAM) {
            compare_sums(all, i, whole, one, k);
            continue;
        }
        bool same = true, zero = true, gradient = all->arg[i].role == CELL_ROLE_D_VALUE;
        double size = 0;
        for (int64_t b = 0; b < BATCH && gradient; b++)
            for (int64_t j = 0; j < one[b].n[k]; j++)
                size = fmax(size, fabs(one[b].p[k][j]));
        for (int64_t b = 0; b < BATCH; b++) {
            int64_t rows = arg_is_timed(all, i) ? STEPS : 1, row = whole->n[i] / (BATCH * rows);
            const double *own = whole->p[i] + b * rows * row;
            int64_t own_size = gradient && begins_inside(all, i, b) ? 0 : one[b].n[k];
            for (int64_t j = 0; j < own_size; j++)
                same &= fabs(own[j] - one[b].p[k][j]) <= 1e-12 * size;
            for (int64_t j = own_size; j < rows * row; j++)
                zero &= own[j] == 0;
        }
        calls_verdict(all, i, same, "the value or gradient");
        calls_verdict(all, i, zero, "what is behind a sequence");
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const cell_desc *d = calls_load(argv[1], argv[3]), *plain = calls_load(argv[2], argv[3]);
    List f = calls_forward(d), b = calls_backward(d), f1 = calls_forward(plain), b1 = calls_backward(plain);
    int64_t sizes[CELL_MAX_SIZES];
    calls_sizes(d, BATCH, STEPS, sizes);
    Args fw = calls_room(&f, sizes), bw = calls_room(&b, sizes), fo[BATCH], bo[BATCH];
    draw(&f, &fw, NULL, NULL);
    draw(&b, &bw, &f, &fw);
    calls_run(d, sizes, &fw, &bw);
    for (int64_t k = 0; k < BATCH; k++) {
        calls_sizes(plain, 1, length_of[k], sizes);
        fo[k] = alone(&f, &fw, &f1, k);
        bo[k] = alone(&b, &bw, &b1, k);
        calls_run(plain, sizes, &fo[k], &bo[k]);
    }
    compare(&f, &fw, &f1, fo);
    compare(&b, &bw, &b1, bo);
    return calls_close(d);
}
