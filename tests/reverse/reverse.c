/* reverse.c: a cell and the same cell reversed, as generated C in double. In: two shared objects and the name of
 * their instance function. Both are run at small sizes, with random states and cotangents, the second on inputs
 * whose steps stand in the other order. Guaranteed when it passes: outputs and gradients of inputs come in the
 * other order, and those and all else are the same bits, since both do the same work in the same order. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cell_plan.h"

static int passed, failed;

typedef struct Args { void *p[CELL_MAX_ARGS]; int64_t n[CELL_MAX_ARGS]; } Args;

static bool is_timed(const cell_desc *d, const cell_arg *a)
{
    cell_tensor_kind k = d->tensors[a->tensor].kind;
    return k == CELL_INPUT || k == CELL_OUTPUT;
}

static bool is_written(const cell_desc *d, const cell_arg *a)
{
    return a->role == CELL_ROLE_FINAL || a->role == CELL_ROLE_D_VALUE ||
           (a->role == CELL_ROLE_VALUE && d->tensors[a->tensor].kind == CELL_OUTPUT);
}

static double uniform(void)
{
    static uint64_t state = 17;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-53 * 2 - 1;
}

static void draw(void *to, int64_t n, cell_dtype type)
{
    for (int64_t i = 0; i < n; i++)
        if (type == CELL_I32)
            ((int32_t *)to)[i] = uniform() > 0;
        else
            ((double *)to)[i] = 0.5 * uniform();
}

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

/* Random values for what a call reads, NaN for what it writes; or those of `other`, turned. */
static Args arguments(const cell_desc *d, const cell_arg *list, int n, const int64_t *sizes, const Args *other,
                      const Args *before)
{
    Args a = { 0 };
    for (int i = 0; i < n; i++) {
        size_t each = cell_dtype_bytes((cell_dtype)list[i].dtype);
        if (cell_arg_elements(d, &list[i], sizes, &a.n[i]) != CELL_OK)
            exit(1);
        size_t bytes = (size_t)a.n[i] * each;
        a.p[i] = memset(malloc(bytes + 1), 0xff, bytes + 1);
        if (is_written(d, &list[i]))
            continue;
        for (int k = 0; before && k < d->n_forward_args; k++)
            if (d->forward_args[k].tensor == list[i].tensor && list[i].role == CELL_ROLE_VALUE &&
                d->forward_args[k].role == CELL_ROLE_VALUE)
                memcpy(a.p[i], before->p[k], bytes);
        if (other)
            a.p[i] = is_timed(d, &list[i]) ? turned(other->p[i], a.n[i], sizes, each) : other->p[i];
        else if (!before || list[i].role != CELL_ROLE_VALUE)
            draw(a.p[i], a.n[i], (cell_dtype)list[i].dtype);
    }
    return a;
}

static void compare(const cell_desc *d, const cell_arg *list, int n, const int64_t *sizes, const Args *a,
                    const Args *b, const char *what)
{
    for (int i = 0; i < n; i++) {
        size_t each = cell_dtype_bytes((cell_dtype)list[i].dtype);
        if (!is_written(d, &list[i]) || (list[i].flags & CELL_ARG_IGNORED))
            continue;
        const void *want = is_timed(d, &list[i]) ? turned(a->p[i], a->n[i], sizes, each) : a->p[i];
        bool same = memcmp(want, b->p[i], (size_t)a->n[i] * each) == 0;
        passed += same;
        failed += !same;
        if (!same)
            printf("FAIL %s: %s of %s, T=%lld\n", d->key, what, d->tensors[list[i].tensor].name, (long long)sizes[1]);
    }
}

static void run(const cell_desc *d, const int64_t *sizes, Args *forward, Args *backward)
{
    void *reserve = malloc(d->ref_reserve_bytes(sizes) + 1);
    if (d->ref_forward(sizes, forward->p, reserve, 0) != CELL_OK ||
        d->ref_backward(sizes, backward->p, reserve, 0) != CELL_OK)
        exit(1);
    free(reserve);
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
    failed += row == 4;
    if (row == 4) {
        printf("FAIL %s: no sizes were found that it takes\n", plain->key);
        return;
    }
    const cell_arg *f = plain->forward_args, *b = plain->backward_args;
    int nf = plain->n_forward_args, nb = plain->n_backward_args;
    Args f1 = arguments(plain, f, nf, sizes, NULL, NULL), b1 = arguments(plain, b, nb, sizes, NULL, &f1);
    Args f2 = arguments(plain, f, nf, sizes, &f1, NULL), b2 = arguments(plain, b, nb, sizes, &b1, NULL);
    run(plain, sizes, &f1, &b1);
    run(reversed, sizes, &f2, &b2);
    compare(plain, f, nf, sizes, &f1, &f2, "value");
    compare(plain, b, nb, sizes, &b1, &b2, "gradient");
}

static const cell_desc *load(const char *path, const char *symbol)
{
    void *object = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    const cell_desc *(*instance)(void) = NULL;
    void *found = object ? dlsym(object, symbol) : NULL;
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
    const cell_desc *plain = load(argv[1], argv[3]), *reversed = load(argv[2], argv[3]);
    check(plain, reversed, 2, 1);
    check(plain, reversed, 1, 2);
    check(plain, reversed, 2, 6);
    printf("%s: %d passed, %d failed\n", plain->key, passed, failed);
    return failed > 0 || passed == 0;
}
