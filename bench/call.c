/* call.c: an instance at the sizes of a call. In: its description, a context, sizes. Out: arguments in the backend's
 * memory with random values, workspace and reserve, and the call itself. Guaranteed: values follow from the place of
 * the argument, `scale` and `move` alone, so that another build of the same cell reads the same. */
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "footprint.h"
#include "half.h"

enum { BLOCK = 65521 };           /* values repeat behind so many: drawing each would take longer than the call */

static void check(const Call *c, cell_status st, const char *what)
{
    if (st != CELL_OK)
        call_failed(what, cell_last_error(c->ctx));
}

static uint64_t next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static double normal(uint64_t *seed)
{
    double s = 0;
    for (int i = 0; i < 4; i++)
        s += (double)(next(seed) >> 40) / 16777216.0 - 0.5;
    return s * 1.7320508;
}

bool call_writes(const cell_desc *d, const cell_arg *a)
{
    return a->role == CELL_ROLE_FINAL || (a->role == CELL_ROLE_D_VALUE && !(a->flags & CELL_ARG_IGNORED)) ||
           (a->role == CELL_ROLE_VALUE && d->tensors[a->tensor].kind == CELL_OUTPUT);
}

static int64_t elements(const Call *c, const cell_arg *a)
{
    int64_t n;
    if (cell_arg_elements(c->d, a, c->sizes, &n) != CELL_OK)
        call_failed("sizes", "the cell does not take them");
    return n;
}

static void *take(Call *c, const cell_arg *a, int64_t *sum)
{
    size_t bytes = (size_t)elements(c, a) * cell_dtype_bytes((cell_dtype)a->dtype);
    void *p = NULL;
    if (footprint_absent(c->d, a, c->sizes))
        return NULL;
    *sum += (int64_t)bytes;
    check(c, cell_alloc(c->ctx, &p, bytes + 16), "memory for arguments");
    return p;
}

/* The argument of forward that backward reads as well; -1: none. */
static int shared(const cell_desc *d, const cell_arg *a)
{
    for (int i = 0; a->role == CELL_ROLE_VALUE && i < d->n_forward_args; i++)
        if (d->forward_args[i].role == CELL_ROLE_VALUE && d->forward_args[i].tensor == a->tensor)
            return i;
    return -1;
}

void call_open(Call *c, cell_context *ctx, const cell_desc *d, const int64_t *sizes)
{
    size_t inference, workspace;
    *c = (Call){ .ctx = ctx, .d = d, .sizes = sizes };
    for (int i = 0; i < d->n_forward_args; i++)
        c->forward[i] = take(c, &d->forward_args[i], &c->forward_bytes);
    for (int i = 0; i < d->n_backward_args; i++) {
        const cell_arg *a = &d->backward_args[i];
        int k = shared(d, a);
        c->backward[i] = k < 0 ? take(c, a, &c->backward_bytes) : c->forward[k];
        if (k >= 0 && c->forward[k])
            c->backward_bytes += elements(c, a) * (int64_t)cell_dtype_bytes((cell_dtype)a->dtype);
    }
    check(c, cell_reserve_bytes(ctx, d, sizes, &c->memory.reserve_bytes), "reserve");
    check(c, cell_workspace_bytes(ctx, d, sizes, &workspace), "workspace");
    check(c, cell_inference_bytes(ctx, d, sizes, &inference), "workspace");
    workspace = workspace > inference ? workspace : inference;
    c->memory.workspace_bytes = workspace;
    check(c, cell_alloc(ctx, &c->memory.reserve, c->memory.reserve_bytes + 256), "memory for the reserve");
    check(c, cell_alloc(ctx, &c->memory.workspace, workspace + 256), "memory for the workspace");
}

/* Places that integers say lie inside; how many steps a sequence has is all of them; a flag is rarely set. */
static int64_t whole_number(const Call *c, const cell_arg *a, int64_t i, uint64_t random)
{
    int64_t n = 0;
    const cell_desc *d = c->d;
    if (d->tensors[a->tensor].kind == CELL_STARTS) {
        for (int64_t b = 0; b < i; b++)
            n += footprint_steps(b, c->sizes[CELL_SIZE_T]);
        return n;
    }
    if (d->tensors[a->tensor].kind == CELL_LENGTHS)
        return c->sizes[CELL_SIZE_T];
    if (a->dtype == CELL_BOOL)
        return random % 64 == 0;
    if (!d->places || !d->places[a->tensor] || cell_eval(d->places[a->tensor], c->sizes, d->n_sizes, &n) != CELL_OK || n < 1)
        return (int64_t)(random % 4);
    return (int64_t)(random % (uint64_t)n);
}

static void put(const Call *c, const cell_arg *a, void *to, int64_t i, double v, uint64_t random)
{
    switch (a->dtype) {
    case CELL_BF16: ((uint16_t *)to)[i] = cell_f32_to_bf16((float)v); break;
    case CELL_F16: ((uint16_t *)to)[i] = cell_f32_to_f16((float)v); break;
    case CELL_F32: ((float *)to)[i] = (float)v; break;
    case CELL_F64: ((double *)to)[i] = v; break;
    case CELL_E4M3: ((uint8_t *)to)[i] = cell_f32_to_e4m3((float)v); break;
    case CELL_E5M2: ((uint8_t *)to)[i] = cell_f32_to_e5m2((float)v); break;
    case CELL_I32: ((int32_t *)to)[i] = (int32_t)whole_number(c, a, i, random); break;
    default: ((uint8_t *)to)[i] = (uint8_t)whole_number(c, a, i, random); break;
    }
}

/* The neighbour in the type: numbers of one sign are in the order of their bits. What is 0 or as large as can be stays. */
static void move_one(const cell_arg *a, void *to, int64_t i, bool up)
{
    uint16_t *h = (uint16_t *)to + i;
    uint32_t *f = (uint32_t *)to + i;
    uint64_t *g = (uint64_t *)to + i;
    if ((a->dtype == CELL_BF16 && (*h & 0x7fff) && (*h & 0x7f80) < 0x7f00) ||
        (a->dtype == CELL_F16 && (*h & 0x7fff) && (*h & 0x7c00) < 0x7800))
        *h = (uint16_t)(up ? *h + 1 : *h - 1);
    if (a->dtype == CELL_F32 && (*f & 0x7fffffff) && (*f & 0x7f800000) < 0x7f000000)
        *f = up ? *f + 1 : *f - 1;
    if (a->dtype == CELL_F64 && (*g << 1) && (*g >> 52 & 0x7ff) < 0x7fe)
        *g = up ? *g + 1 : *g - 1;
}

static void fill(Call *c, const cell_arg *a, void *to, int place, double scale, uint64_t move)
{
    int64_t n = elements(c, a), block = n < BLOCK ? n : BLOCK;
    size_t each = cell_dtype_bytes((cell_dtype)a->dtype);
    uint64_t seed = 88172645463325252ull + 7919ull * (uint64_t)place, way = move;
    unsigned char *host = malloc((size_t)n * each + 16);
    if (!host)
        call_failed("memory for arguments", "the host has too little");
    if (c->d->tensors[a->tensor].kind == CELL_PARAM)
        scale *= 0.03;
    if (a->role == CELL_ROLE_D_OUT || a->role == CELL_ROLE_D_FINAL)
        scale = 1;
    for (int64_t i = 0; i < block; i++) {
        double v = scale * normal(&seed);
        put(c, a, host, i, v, next(&seed));
    }
    for (int64_t i = block; i < n; i += block)
        memcpy(host + (size_t)i * each, host, (size_t)(n - i < block ? n - i : block) * each);
    for (int64_t i = 0; move && i < n; i++)
        move_one(a, host, i, next(&way) >> 63);
    check(c, cell_copy(c->ctx, to, host, (size_t)n * each), "copying arguments");
    free(host);
}

static void clear(Call *c, const cell_arg *a, void *to)
{
    check(c, cell_fill(c->ctx, to, 0xff, (size_t)elements(c, a) * cell_dtype_bytes((cell_dtype)a->dtype)), "clearing results");
}

void call_fill(Call *c, double scale, uint64_t move)
{
    const cell_desc *d = c->d;
    for (int i = 0; i < d->n_forward_args; i++) {
        if (c->forward[i] && call_writes(d, &d->forward_args[i]))
            clear(c, &d->forward_args[i], c->forward[i]);
        else if (c->forward[i])
            fill(c, &d->forward_args[i], c->forward[i], i, scale, move ? move + (uint64_t)i : 0);
    }
    for (int i = 0; i < d->n_backward_args; i++) {
        const cell_arg *a = &d->backward_args[i];
        if (c->backward[i] && call_writes(d, a))
            clear(c, a, c->backward[i]);
        else if (c->backward[i] && shared(d, a) < 0)
            fill(c, a, c->backward[i], 1000 + i, scale, move ? move + 1000 + (uint64_t)i : 0);
    }
}

void call_run(Call *c, bool backward)
{
    check(c, cell_run_forward(c->ctx, c->d, c->sizes, c->forward, &c->memory, 0), "forward");
    if (backward)
        check(c, cell_run_backward(c->ctx, c->d, c->sizes, c->backward, &c->memory, 0), "backward");
}

void call_close(Call *c)
{
    for (int i = 0; i < c->d->n_forward_args; i++)
        cell_free(c->ctx, c->forward[i]);
    for (int i = 0; i < c->d->n_backward_args; i++)
        if (shared(c->d, &c->d->backward_args[i]) < 0)
            cell_free(c->ctx, c->backward[i]);
    cell_free(c->ctx, c->memory.reserve);
    cell_free(c->ctx, c->memory.workspace);
}
