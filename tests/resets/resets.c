/* resets.c: packed sequences against the same sequences alone, as generated C in double. In: a shared object, the
 * name of its instance function. A run in which the input `r` begins a sequence at two steps is compared with three
 * runs without flags, of which only the first is given states and histories, and only the last cotangents of what
 * is left. Guaranteed when it passes: outputs, what is left, and gradients of inputs and of what was given are the
 * same bits, and gradients of params are the sums of those of the pieces, up to the roundings of these sums. */
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cell_plan.h"

enum { PIECES = 3, STEPS = 9, BATCH = 2 };
static const int64_t first_of[PIECES + 1] = { 0, 3, 5, STEPS };       /* the last as long as any cell looks back */

static int passed, failed;

typedef struct Args { double *p[CELL_MAX_ARGS]; int64_t n[CELL_MAX_ARGS]; } Args;
typedef struct Lists { const cell_desc *d; const cell_arg *list; int n; } Lists;

static bool is_timed(const Lists *l, int i)
{
    cell_tensor_kind k = l->d->tensors[l->list[i].tensor].kind;
    return k == CELL_INPUT || k == CELL_OUTPUT;
}

static bool is_written(const Lists *l, int i)
{
    const cell_arg *a = &l->list[i];
    return a->role == CELL_ROLE_FINAL || a->role == CELL_ROLE_D_VALUE ||
           (a->role == CELL_ROLE_VALUE && l->d->tensors[a->tensor].kind == CELL_OUTPUT);
}

static bool is_flag(const Lists *l, int i)
{
    const char *name = l->d->tensors[l->list[i].tensor].name;
    return l->list[i].role == CELL_ROLE_VALUE && (!strcmp(name, "r") || !strcmp(name, "s"));
}

static bool is_flag_history(const Lists *l, int i)
{
    const char *name = l->d->tensors[l->list[i].tensor].name;
    return !strcmp(name, "r_history") || !strcmp(name, "s_history");
}

static double uniform(void)
{
    static uint64_t state = 17;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-53 * 2 - 1;
}

static Args room(const Lists *l, const int64_t *sizes)
{
    Args a = { 0 };
    for (int i = 0; i < l->n; i++) {
        if (cell_arg_elements(l->d, &l->list[i], sizes, &a.n[i]) != CELL_OK)
            exit(1);
        a.p[i] = calloc((size_t)a.n[i] + 1, sizeof(double));
        for (int64_t k = 0; is_written(l, i) && k < a.n[i]; k++)
            a.p[i][k] = NAN;
    }
    return a;
}

/* What both directions read is the same. */
static void draw(const Lists *l, Args *a, const Lists *before, const Args *known)
{
    for (int i = 0; i < l->n; i++) {
        bool found = false;
        for (int k = 0; before && k < before->n && l->list[i].role == CELL_ROLE_VALUE; k++)
            if (before->list[k].tensor == l->list[i].tensor && before->list[k].role == CELL_ROLE_VALUE) {
                memcpy(a->p[i], known->p[k], sizeof(double) * (size_t)a->n[i]);
                found = true;
            }
        for (int64_t k = 0; !found && !is_written(l, i) && !is_flag_history(l, i) && k < a->n[i]; k++)
            a->p[i][k] = is_flag(l, i) ? 0 : 0.5 * uniform();
    }
}

static void raise_flags(const Lists *l, Args *a)
{
    for (int i = 0; i < l->n; i++)
        for (int k = 1; is_flag(l, i) && strcmp(l->d->tensors[l->list[i].tensor].name, "r") == 0 && k < PIECES; k++)
            for (int64_t b = 0; b < BATCH; b++)
                a->p[i][b * STEPS + first_of[k]] = 1;
}

/* The arguments of piece k: rows of what has steps, and all else where the piece has a part in it. */
static Args piece_of(const Lists *l, const Args *whole, int k)
{
    int64_t steps = first_of[k + 1] - first_of[k], sizes[CELL_MAX_SIZES] = { BATCH, steps };
    for (int i = 0; i < l->d->n_sizes - 3; i++)
        sizes[2 + i] = 3 + i;
    Args a = room(l, sizes);
    for (int i = 0; i < l->n; i++) {
        const cell_arg *x = &l->list[i];
        bool state = l->d->tensors[x->tensor].kind == CELL_STATE;
        int64_t row = is_timed(l, i) ? whole->n[i] / (BATCH * STEPS) : 0;
        if (state && ((x->role == CELL_ROLE_VALUE && k > 0) || (x->role == CELL_ROLE_D_FINAL && k < PIECES - 1)))
            a.p[i] = NULL;
        else if (is_timed(l, i) && !is_written(l, i) && !is_flag(l, i))
            for (int64_t b = 0; b < BATCH; b++)
                memcpy(a.p[i] + b * steps * row, whole->p[i] + (b * STEPS + first_of[k]) * row,
                       sizeof(double) * (size_t)(steps * row));
        else if (!is_timed(l, i) && !is_written(l, i))
            memcpy(a.p[i], whole->p[i], sizeof(double) * (size_t)whole->n[i]);
    }
    return a;
}

static void run(const cell_desc *d, int64_t steps, Args *forward, Args *backward)
{
    int64_t sizes[CELL_MAX_SIZES] = { BATCH, steps };
    for (int i = 0; i < d->n_sizes - 3; i++)
        sizes[2 + i] = 3 + i;
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

static void compare_rows(const Lists *l, int i, const Args *whole, const Args *pieces, const char *what)
{
    int64_t row = whole->n[i] / (BATCH * STEPS);
    bool same = true;
    for (int k = 0; k < PIECES; k++)
        for (int64_t b = 0, steps = first_of[k + 1] - first_of[k]; b < BATCH; b++)
            same &= memcmp(whole->p[i] + (b * STEPS + first_of[k]) * row, pieces[k].p[i] + b * steps * row,
                           sizeof(double) * (size_t)(steps * row)) == 0;
    verdict(l, i, same, what);
}

/* A sum of the pieces' sums, in another order: to 1e-12, what cellc check allows for that. */
static void compare_sums(const Lists *l, int i, const Args *whole, const Args *pieces)
{
    double size = 0;
    bool near = true;
    for (int64_t j = 0; j < whole->n[i]; j++)
        for (int k = 0; k < PIECES; k++)
            size = fmax(size, fabs(pieces[k].p[i][j]));
    for (int64_t j = 0; j < whole->n[i]; j++)
        near &= fabs(pieces[0].p[i][j] + pieces[1].p[i][j] + pieces[2].p[i][j] - whole->p[i][j]) <=
                1e-12 * size;
    verdict(l, i, near && size > 0, "the gradient");
}

static void compare(const Lists *l, const Args *whole, const Args *pieces)
{
    for (int i = 0; i < l->n; i++) {
        const cell_arg *a = &l->list[i];
        if (!is_written(l, i) || (a->flags & CELL_ARG_IGNORED) || is_flag_history(l, i) || is_flag(l, i))
            continue;
        const Args *end = &pieces[a->role == CELL_ROLE_FINAL ? PIECES - 1 : 0];
        if (is_timed(l, i))
            compare_rows(l, i, whole, pieces, a->role == CELL_ROLE_VALUE ? "the value" : "the gradient");
        else if (l->d->tensors[a->tensor].kind == CELL_PARAM)
            compare_sums(l, i, whole, pieces);
        else
            verdict(l, i, memcmp(whole->p[i], end->p[i], sizeof(double) * (size_t)whole->n[i]) == 0,
                    a->role == CELL_ROLE_FINAL ? "what is left" : "the gradient of what was given");
    }
}

int main(int argc, char **argv)
{
    void *object = argc == 3 ? dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL) : NULL;
    void *found = object ? dlsym(object, argv[2]) : NULL;
    const cell_desc *(*instance)(void) = NULL;
    memcpy(&instance, &found, sizeof instance);
    if (!instance) {
        printf("FAIL %s\n0 passed, 1 failed\n", argc == 3 ? dlerror() : "two arguments are wanted");
        return 1;
    }
    const cell_desc *d = instance();
    Lists f = { d, d->forward_args, d->n_forward_args }, b = { d, d->backward_args, d->n_backward_args };
    int64_t sizes[CELL_MAX_SIZES] = { BATCH, STEPS };
    for (int i = 0; i < d->n_sizes - 3; i++)
        sizes[2 + i] = 3 + i;
    Args fw = room(&f, sizes), bw = room(&b, sizes), fp[PIECES], bp[PIECES];
    draw(&f, &fw, NULL, NULL);
    draw(&b, &bw, &f, &fw);
    raise_flags(&f, &fw);
    raise_flags(&b, &bw);
    run(d, STEPS, &fw, &bw);
    for (int k = 0; k < PIECES; k++) {
        fp[k] = piece_of(&f, &fw, k);
        bp[k] = piece_of(&b, &bw, k);
        run(d, first_of[k + 1] - first_of[k], &fp[k], &bp[k]);
    }
    compare(&f, &fw, fp);
    compare(&b, &bw, bp);
    printf("%s: %d passed, %d failed\n", d->key, passed, failed);
    return failed > 0 || passed == 0;
}
