/* large.c: tensors of more than 2^31 elements. In: sizes of one sequence, and a number of copies. Out:
 * verdicts: a batch of that many copies of the sequence gives, at its first, middle and last ones, the bits
 * that the sequence alone gives. Gradients of params, sums over all copies, are not compared; cells with
 * products over all rows may differ in a product's order of summation and are not for this test. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ladder.h"

typedef struct Large {
    Case *one;
    int64_t sizes[CELL_MAX_SIZES], copies;
    void *reserve;
    size_t reserve_bytes;
} Large;

static bool is_batched(const cell_desc *d, const cell_arg *a)
{
    return d->tensors[a->tensor].kind != CELL_PARAM;
}

static void must(const Large *l, cell_status status, const char *what)
{
    if (status == CELL_OK)
        return;
    printf("FAIL %s x %lld: %s: %s\n%s: 0 passed, 1 failed\n", l->one->label, (long long)l->copies, what,
           cell_last_error(l->one->ctx), l->one->d->key);
    exit(1);
}

/* Memory that holds `copies` copies of what a run of one sequence had in an argument; NaN where it was
 * written. */
static void *copies_of(const Large *l, const cell_arg *a, const void *one, size_t bytes)
{
    cell_context *ctx = l->one->ctx;
    bool batched = is_batched(l->one->d, a);
    size_t total = batched ? bytes * (size_t)l->copies : bytes, done = bytes;
    void *p;
    must(l, cell_alloc(ctx, &p, total ? total : 1), "allocate");
    if (written(l->one->d, a)) {
        must(l, cell_fill(ctx, p, 0xff, total), "fill");
        return p;
    }
    must(l, cell_copy(ctx, p, one, bytes), "copy there");
    for (; done < total; done *= 2)
        must(l, cell_copy(ctx, (char *)p + done, p, done < total - done ? done : total - done), "double");
    return p;
}

static void compare_copies(Large *l, const cell_arg *a, const void *p, const void *one, size_t bytes)
{
    const int64_t at[] = { 0, 1, l->copies / 2, l->copies - 2, l->copies - 1 };
    char *host = take(bytes);
    bool same = true;
    for (int i = 0; i < 5; i++) {
        must(l, cell_copy(l->one->ctx, host, (const char *)p + (size_t)at[i] * bytes, bytes), "copy back");
        same &= memcmp(host, one, bytes) == 0;
    }
    free(host);
    verdict(l->one, same, "a copy in a large batch has other bits than the sequence alone",
            arg_name(l->one->d, a));
}

static void run_large(Large *l, char which, const Raw *one)
{
    Case *c = l->one;
    int n;
    const cell_arg *args = call_args(c->d, which, &n);
    void *p[MAX_ARGS];
    cell_memory memory = { NULL, 0, l->reserve, l->reserve_bytes };
    for (int i = 0; i < n; i++)
        p[i] = copies_of(l, &args[i], one->p[i], one->bytes[i]);
    must(l,
         which == 'f' ? cell_run_forward(c->ctx, c->d, l->sizes, p, &memory, 0)
                      : cell_run_backward(c->ctx, c->d, l->sizes, p, &memory, 0),
         which == 'f' ? "forward" : "backward");
    must(l, cell_synchronize(c->ctx), "synchronize");
    for (int i = 0; i < n; i++) {
        if (written(c->d, &args[i]) && is_batched(c->d, &args[i]))
            compare_copies(l, &args[i], p[i], one->p[i], one->bytes[i]);
        cell_free(c->ctx, p[i]);
    }
}

void check_large(cell_context *ctx, const cell_desc *d, const int64_t *sizes, int64_t copies)
{
    Case c = case_new(ctx, d, sizes, false);
    Large l = { .one = &c, .copies = copies };
    memcpy(l.sizes, sizes, sizeof l.sizes);
    l.sizes[CELL_SIZE_B] = copies;
    Guarded reserve = reserve_for(&c, sizes);
    Raw f = run_call(&c, &(Call){ .which = 'f', .sizes = sizes, .in = &c.f, .reserve = &reserve });
    Raw b = run_call(&c, &(Call){ .which = 'b', .sizes = sizes, .in = &c.b, .reserve = &reserve });
    guarded_free(&c, &reserve, "reserve");
    must(&l, cell_reserve_bytes(ctx, d, l.sizes, &l.reserve_bytes), "ask for the size of the reserve");
    must(&l, cell_alloc(ctx, &l.reserve, l.reserve_bytes + 1), "allocate the reserve");
    run_large(&l, 'f', &f);
    run_large(&l, 'b', &b);
    cell_free(ctx, l.reserve);
    raw_free(&f);
    raw_free(&b);
    case_free(&c);
}
