/* reverse.c: a cell and the same cell reversed, as generated C in double. In: two shared objects and the name of
 * their instance function. Both are run at small sizes, with random states and cotangents, the second on inputs
 * whose steps stand in the other order. Guaranteed when it passes: outputs and gradients of inputs come in the
 * other order, and those and all else are the same bits, since both do the same work in the same order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/* The rows of every sequence in the other order. */
static void *turned(const void *from, int64_t n, const int64_t *sizes, size_t each)
{
    int64_t B = sizes[0], T = sizes[1];
    size_t row = (size_t)(n / (B * T)) * each;
    char *to = malloc((size_t)n * each + 1);
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++)
            memcpy(to + (size_t)(b * T + t) * row, (const char *)from + (size_t)(b * T + T - 1 - t) * row, row);
    return to;
}

/* Random, integers 0 or 1; what both directions read is the same. */
static void draw(const List *l, Args *a, const List *forward, const Args *known)
{
    for (int i = 0; i < l->n; i++) {
        if (arg_is_written(l, i) || (known && calls_known(l, i, a, forward, known)))
            continue;
        for (int64_t k = 0; k < a->n[i]; k++)
            if (l->arg[i].dtype == CELL_I32)
                ((int32_t *)(void *)a->p[i])[k] = calls_uniform() > 0;
            else
                a->p[i][k] = 0.5 * calls_uniform();
    }
}

/* What the reversed cell is given: the same, the steps in the other order. */
static Args reversed_args(const List *l, const Args *a, const int64_t *sizes)
{
    Args turn = calls_room(l, sizes);
    for (int i = 0; i < l->n; i++)
        if (!arg_is_written(l, i))
            turn.p[i] = arg_is_timed(l, i) ? turned(a->p[i], a->n[i], sizes, arg_bytes(l, i)) : a->p[i];
    return turn;
}

static void compare(const List *l, const int64_t *sizes, const Args *a, const Args *b, const char *what)
{
    for (int i = 0; i < l->n; i++) {
        if (!arg_is_written(l, i) || (l->arg[i].flags & CELL_ARG_IGNORED))
            continue;
        size_t each = arg_bytes(l, i);
        const void *want = arg_is_timed(l, i) ? turned(a->p[i], a->n[i], sizes, each) : a->p[i];
        calls_verdict(l, i, memcmp(want, b->p[i], (size_t)a->n[i] * each) == 0, what);
    }
}

static bool choose_dims(const cell_desc *d, int row, int64_t *sizes)
{
    static const int64_t table[][8] = { { 5, 3, 4, 7, 6, 2, 8, 9 }, { 12, 6, 3, 2, 1, 1, 1, 1 },
                                        { 2, 4, 8, 16, 16, 16, 16, 16 }, { 4, 4, 4, 4, 4, 4, 4, 4 } };
    size_t bytes;
    for (int i = 0; i < d->n_sizes - 3; i++)
        sizes[2 + i] = table[row][i % 8];
    return cell_workspace_bytes(NULL, d, sizes, &bytes) == CELL_OK;
}

static void check(const cell_desc *plain, const cell_desc *reversed, int64_t batch, int64_t steps)
{
    int64_t sizes[CELL_MAX_SIZES] = { batch, steps };
    int row = 0;
    while (row < 4 && !choose_dims(plain, row, sizes))
        row++;
    calls_failed += row == 4;
    if (row == 4) {
        printf("FAIL %s: no sizes were found that it takes\n", plain->key);
        return;
    }
    List f = calls_forward(plain), b = calls_backward(plain);
    Args f1 = calls_room(&f, sizes), b1 = calls_room(&b, sizes);
    draw(&f, &f1, NULL, NULL);
    draw(&b, &b1, &f, &f1);
    Args f2 = reversed_args(&f, &f1, sizes), b2 = reversed_args(&b, &b1, sizes);
    calls_run(plain, sizes, &f1, &b1);
    calls_run(reversed, sizes, &f2, &b2);
    compare(&f, sizes, &f1, &f2, "the value");
    compare(&b, sizes, &b1, &b2, "the gradient");
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const cell_desc *plain = calls_load(argv[1], argv[3]), *reversed = calls_load(argv[2], argv[3]);
    check(plain, reversed, 2, 1);
    check(plain, reversed, 1, 2);
    check(plain, reversed, 2, 6);
    return calls_close(plain);
}
