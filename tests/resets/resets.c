/* resets.c: packed sequences against the same sequences alone, as generated C in double. In: a shared object, the
 * name of its instance function. A run in which the input `r` begins a sequence at two steps is compared with three
 * runs without flags, of which only the first is given states and histories, and only the last cotangents of what
 * is left. Guaranteed when it passes: outputs, what is left, and gradients of inputs and of what was given are the
 * same bits, and gradients of params are the sums of those of the pieces, up to the roundings of these sums. */
#include <math.h>
#include <string.h>

#include "calls.h"

enum { PIECES = 3, STEPS = 9, BATCH = 2 };
static const int64_t first_of[PIECES + 1] = { 0, 3, 5, STEPS };       /* the last as long as any cell looks back */

static bool is_flag(const List *l, int i)
{
    const char *name = arg_name(l, i);
    return l->arg[i].role == CELL_ROLE_VALUE && (!strcmp(name, "r") || !strcmp(name, "s"));
}

static bool is_flag_history(const List *l, int i)
{
    const char *name = arg_name(l, i);
    return !strcmp(name, "r_history") || !strcmp(name, "s_history");
}

/* Random, but for the flags; what both directions read is the same. */
static void draw(const List *l, Args *a, const List *forward, const Args *known)
{
    for (int i = 0; i < l->n; i++) {
        if (arg_is_written(l, i) || is_flag(l, i) || is_flag_history(l, i) ||
            (known && calls_known(l, i, a, forward, known)))
            continue;
        for (int64_t k = 0; k < a->n[i]; k++)
            if (l->arg[i].dtype == CELL_I32)
                ((int32_t *)(void *)a->p[i])[k] = (int32_t)(4 * calls_uniform());
            else
                a->p[i][k] = 0.5 * calls_uniform();
    }
}

static void raise_flags(const List *l, Args *a)
{
    for (int i = 0; i < l->n; i++)
        for (int k = 1; is_flag(l, i) && strcmp(arg_name(l, i), "r") == 0 && k < PIECES; k++)
            for (int64_t b = 0; b < BATCH; b++)
                a->p[i][b * STEPS + first_of[k]] = 1;
}

/* The arguments of piece k: rows of what has steps, and all else where the piece has a part in it. */
static Args piece_of(const List *l, const Args *whole, int k)
{
    int64_t steps = first_of[k + 1] - first_of[k], sizes[CELL_MAX_SIZES];
    calls_sizes(l->d, BATCH, steps, sizes);
    Args a = calls_room(l, sizes);
    for (int i = 0; i < l->n; i++) {
        const cell_arg *x = &l->arg[i];
        bool state = arg_kind(l, i) == CELL_STATE && !arg_has_rows(l, i);
        size_t bytes = arg_bytes(l, i);
        int64_t row = arg_has_rows(l, i) ? whole->n[i] / (BATCH * STEPS) : 0;
        if (state && ((x->role == CELL_ROLE_VALUE && k > 0) || (x->role == CELL_ROLE_D_FINAL && k < PIECES - 1)))
            a.p[i] = NULL;
        else if (arg_has_rows(l, i) && !arg_is_written(l, i) && !is_flag(l, i))
            for (int64_t b = 0; b < BATCH; b++)
                memcpy((char *)a.p[i] + bytes * (size_t)(b * steps * row),
                       (const char *)whole->p[i] + bytes * (size_t)((b * STEPS + first_of[k]) * row),
                       bytes * (size_t)(steps * row));
        else if (!arg_has_rows(l, i) && !arg_is_written(l, i))
            memcpy(a.p[i], whole->p[i], bytes * (size_t)whole->n[i]);
    }
    return a;
}

static void compare_rows(const List *l, int i, const Args *whole, const Args *pieces, const char *what)
{
    int64_t row = whole->n[i] / (BATCH * STEPS);
    bool same = true;
    for (int k = 0; k < PIECES; k++)
        for (int64_t b = 0, steps = first_of[k + 1] - first_of[k]; b < BATCH; b++)
            same &= memcmp(whole->p[i] + (b * STEPS + first_of[k]) * row, pieces[k].p[i] + b * steps * row,
                           sizeof(double) * (size_t)(steps * row)) == 0;
    calls_verdict(l, i, same, what);
}

/* A sum of the pieces' sums, in another order: to 1e-12, what cellc check allows for that. */
static void compare_sums(const List *l, int i, const Args *whole, const Args *pieces)
{
    double size = 0;
    bool near = true;
    for (int64_t j = 0; j < whole->n[i]; j++)
        for (int k = 0; k < PIECES; k++)
            size = fmax(size, fabs(pieces[k].p[i][j]));
    for (int64_t j = 0; j < whole->n[i]; j++)
        near &= fabs(pieces[0].p[i][j] + pieces[1].p[i][j] + pieces[2].p[i][j] - whole->p[i][j]) <=
                1e-12 * size;
    calls_verdict(l, i, near && size > 0, "the gradient");
}

static void compare(const List *l, const Args *whole, const Args *pieces)
{
    for (int i = 0; i < l->n; i++) {
        const cell_arg *a = &l->arg[i];
        if (!arg_is_written(l, i) || (a->flags & CELL_ARG_IGNORED) || is_flag_history(l, i) || is_flag(l, i))
            continue;
        const Args *end = &pieces[a->role == CELL_ROLE_FINAL ? PIECES - 1 : 0];
        if (arg_has_rows(l, i))
            compare_rows(l, i, whole, pieces, a->role == CELL_ROLE_VALUE ? "the value" : "the gradient");
        else if (arg_kind(l, i) == CELL_PARAM)
            compare_sums(l, i, whole, pieces);
        else
            calls_verdict(l, i, memcmp(whole->p[i], end->p[i], sizeof(double) * (size_t)whole->n[i]) == 0,
                    a->role == CELL_ROLE_FINAL ? "what is left" : "the gradient of what was given");
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const cell_desc *d = calls_load(argv[1], argv[2]);
    List f = calls_forward(d), b = calls_backward(d);
    int64_t sizes[CELL_MAX_SIZES];
    calls_sizes(d, BATCH, STEPS, sizes);
    Args fw = calls_room(&f, sizes), bw = calls_room(&b, sizes), fp[PIECES], bp[PIECES];
    draw(&f, &fw, NULL, NULL);
    draw(&b, &bw, &f, &fw);
    raise_flags(&f, &fw);
    raise_flags(&b, &bw);
    calls_run(d, sizes, &fw, &bw);
    for (int k = 0; k < PIECES; k++) {
        fp[k] = piece_of(&f, &fw, k);
        bp[k] = piece_of(&b, &bw, k);
        calls_sizes(d, BATCH, first_of[k + 1] - first_of[k], sizes);
        calls_run(d, sizes, &fp[k], &bp[k]);
    }
    compare(&f, &fw, fp);
    compare(&b, &bw, bp);
    return calls_close(d);
}
