/* calls.c: calls of generated references in double; see calls.h. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

int calls_passed, calls_failed;

const cell_desc *calls_load(const char *path, const char *symbol)
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

List calls_forward(const cell_desc *d)
{
    return (List){ d, d->forward_args, d->n_forward_args };
}

List calls_backward(const cell_desc *d)
{
    return (List){ d, d->backward_args, d->n_backward_args };
}

void calls_sizes(const cell_desc *d, int64_t batch, int64_t steps, int64_t *sizes)
{
    memset(sizes, 0, sizeof *sizes * CELL_MAX_SIZES);
    sizes[0] = batch;
    sizes[1] = steps;
    for (int i = 2; i < d->n_sizes - 1; i++)        /* the last is t0 */
        sizes[i] = strcmp(d->size_names[i], "history") == 0 ? steps : 1 + i;
}

const char *arg_name(const List *l, int i)
{
    return l->d->tensors[l->arg[i].tensor].name;
}

cell_tensor_kind arg_kind(const List *l, int i)
{
    return l->d->tensors[l->arg[i].tensor].kind;
}

bool arg_is_timed(const List *l, int i)
{
    return arg_kind(l, i) == CELL_INPUT || arg_kind(l, i) == CELL_OUTPUT;
}

bool arg_has_rows(const List *l, int i)
{
    int64_t sizes[CELL_MAX_SIZES], n = 0, longer = 0;
    calls_sizes(l->d, 1, 1, sizes);
    bool ok = cell_arg_elements(l->d, &l->arg[i], sizes, &n) == CELL_OK;
    for (int k = 2; k < l->d->n_sizes - 1; k++)
        sizes[k] += strcmp(l->d->size_names[k], "history") == 0;
    ok &= cell_arg_elements(l->d, &l->arg[i], sizes, &longer) == CELL_OK;
    return ok && (arg_is_timed(l, i) || longer > n);
}

bool arg_is_written(const List *l, int i)
{
    int role = l->arg[i].role;
    return role == CELL_ROLE_FINAL || role == CELL_ROLE_D_VALUE ||
           (role == CELL_ROLE_VALUE && arg_kind(l, i) == CELL_OUTPUT);
}

size_t arg_bytes(const List *l, int i)
{
    return cell_dtype_bytes((cell_dtype)l->arg[i].dtype);
}

Args calls_room(const List *l, const int64_t *sizes)
{
    Args a = { 0 };
    for (int i = 0; i < l->n; i++) {
        if (cell_arg_elements(l->d, &l->arg[i], sizes, &a.n[i]) != CELL_OK)
            exit(1);
        a.p[i] = calloc((size_t)a.n[i] + 1, sizeof(double));
        if (arg_is_written(l, i))
            memset(a.p[i], 0xff, (size_t)a.n[i] * sizeof(double));      /* NaN */
    }
    return a;
}

double calls_uniform(void)
{
    static uint64_t state = 17;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-53 * 2 - 1;
}

bool calls_known(const List *l, int i, const Args *a, const List *forward, const Args *known)
{
    if (arg_is_written(l, i) || l->arg[i].role != CELL_ROLE_VALUE)
        return false;
    for (int k = 0; k < forward->n; k++)
        if (forward->arg[k].tensor == l->arg[i].tensor && forward->arg[k].role == CELL_ROLE_VALUE) {
            memcpy(a->p[i], known->p[k], arg_bytes(l, i) * (size_t)a->n[i]);
            return true;
        }
    return false;
}

void *calls_reserve(const cell_desc *d, const int64_t *sizes)
{
    return malloc(d->ref_reserve_bytes(sizes) + 1);
}

void calls_run(const cell_desc *d, const int64_t *sizes, Args *forward, Args *backward)
{
    void *reserve = calls_reserve(d, sizes);
    if (d->ref_forward(sizes, (void *const *)forward->p, reserve, 0) != CELL_OK ||
        d->ref_backward(sizes, (void *const *)backward->p, reserve, 0) != CELL_OK)
        exit(1);
    free(reserve);
}

void calls_verdict(const List *l, int i, bool ok, const char *what)
{
    calls_passed += ok;
    calls_failed += !ok;
    if (!ok)
        printf("FAIL %s: %s of %s\n", l->d->key, what, arg_name(l, i));
}

int calls_close(const cell_desc *d)
{
    printf("%s: %d passed, %d failed\n", d->key, calls_passed, calls_failed);
    return calls_failed > 0 || calls_passed == 0;
}
