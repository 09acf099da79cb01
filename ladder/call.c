/* call.c: runs a call of an instance in memory that tells on it. In: argument values in double. Out: what the
 * arguments hold afterwards, as bytes. Guaranteed: outputs, workspace and reserve hold NaN before the call;
 * behind every buffer lies a guard, and a call that writes there, into its inputs, or where the gradient of a
 * constant would be, is a failed check. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "half.h"
#include "ladder.h"

enum { GUARD = 256, GUARD_BYTE = 0xa5, POISON = 0xff };

static uint64_t seed = 0x9e3779b97f4a7c15ull;

double uniform(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (double)(seed >> 11) / 9007199254740992.0;
}

double normal(void)
{
    double size = sqrt(-2 * log(uniform() + 1e-300));
    return size * cos(6.283185307179586 * uniform());
}

bool normal_is_negative(void)
{
    (void)uniform();
    double turn = uniform(), from = fabs(fabs(turn - 0.5) - 0.25);
    return from > 1e-9 ? turn > 0.25 && turn < 0.75 : cos(6.283185307179586 * turn) < 0;
}

uint64_t normal_at(void)
{
    return seed;
}

void normal_from(uint64_t at)
{
    seed = at;
}

void *take(size_t bytes)
{
    void *p = calloc(bytes ? bytes : 1, 1);
    if (!p)
        abort();
    return p;
}

double rounded(double v, cell_dtype t)
{
    if (t == CELL_I32)
        return round(v);
    if (t == CELL_BF16)
        return cell_bf16_to_f32(cell_f64_to_bf16(v));
    if (t == CELL_F16)
        return cell_f16_to_f32(cell_f64_to_f16(v));
    if (t == CELL_E4M3)
        return cell_e4m3_to_f32(cell_f64_to_e4m3(v));
    if (t == CELL_E5M2)
        return cell_e5m2_to_f32(cell_f64_to_e5m2(v));
    return t == CELL_F32 ? (float)v : v;
}

static void to_storage(void *to, const double *from, int64_t n, cell_dtype t)
{
    for (int64_t i = 0; i < n; i++) {
        if (t == CELL_BF16)
            ((uint16_t *)to)[i] = cell_f64_to_bf16(from[i]);
        else if (t == CELL_F16)
            ((uint16_t *)to)[i] = cell_f64_to_f16(from[i]);
        else if (t == CELL_E4M3)
            ((uint8_t *)to)[i] = cell_f64_to_e4m3(from[i]);
        else if (t == CELL_E5M2)
            ((uint8_t *)to)[i] = cell_f64_to_e5m2(from[i]);
        else if (t == CELL_I32)
            ((int32_t *)to)[i] = (int32_t)from[i];
        else if (t == CELL_F32)
            ((float *)to)[i] = (float)from[i];
        else
            ((double *)to)[i] = from[i];
    }
}

void from_storage(double *to, const void *from, int64_t n, cell_dtype t)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = t == CELL_BF16   ? cell_bf16_to_f32(((const uint16_t *)from)[i])
                : t == CELL_F16  ? cell_f16_to_f32(((const uint16_t *)from)[i])
                : t == CELL_E4M3 ? cell_e4m3_to_f32(((const uint8_t *)from)[i])
                : t == CELL_E5M2 ? cell_e5m2_to_f32(((const uint8_t *)from)[i])
                : t == CELL_I32  ? ((const int32_t *)from)[i]
                : t == CELL_F32  ? ((const float *)from)[i]
                                 : ((const double *)from)[i];
}

double unit(cell_dtype t)
{
    if (t == CELL_I32)
        return 0;
    if (t == CELL_E4M3 || t == CELL_E5M2)
        t = CELL_F32; /* they are given, and their products with scales are rounded */
    return t == CELL_BF16 ? 0x1p-9 : t == CELL_F16 ? 0x1p-12 : t == CELL_F32 ? 0x1p-24 : 0x1p-53;
}

bool ignored(const cell_arg *a)
{
    return a->flags & CELL_ARG_IGNORED;
}

bool written(const cell_desc *d, const cell_arg *a)
{
    return a->role == CELL_ROLE_FINAL || (a->role == CELL_ROLE_D_VALUE && !ignored(a)) ||
           (a->role == CELL_ROLE_VALUE && d->tensors[a->tensor].kind == CELL_OUTPUT);
}

bool is_state(const cell_desc *d, const cell_arg *a)
{
    return a->role == CELL_ROLE_VALUE && d->tensors[a->tensor].kind == CELL_STATE;
}

const cell_arg *call_args(const cell_desc *d, char which, int *n)
{
    *n = which == 'b' ? d->n_backward_args : d->n_forward_args;
    return which == 'b' ? d->backward_args : d->forward_args;
}

Set set_new(const cell_desc *d, const cell_arg *args, int n, const int64_t *sizes)
{
    Set s = { 0 };
    for (int i = 0; i < n; i++) {
        if (cell_arg_elements(d, &args[i], sizes, &s.n[i]) != CELL_OK)
            abort();
        s.v[i] = take(sizeof(double) * (size_t)(s.n[i] + 1));
    }
    return s;
}

void set_free(Set *s)
{
    for (int i = 0; i < MAX_ARGS; i++)
        free(s->v[i]);
    *s = (Set){ 0 };
}

void raw_free(Raw *r)
{
    for (int i = 0; i < MAX_ARGS; i++)
        free(r->p[i]);
    *r = (Raw){ 0 };
}

Set values_of(const cell_desc *d, const cell_arg *args, int n, const Raw *raw)
{
    Set s = { 0 };
    (void)d;
    for (int i = 0; i < n; i++) {
        cell_dtype t = (cell_dtype)args[i].dtype;
        s.n[i] = raw->p[i] ? (int64_t)(raw->bytes[i] / cell_dtype_bytes(t)) : 0;
        s.v[i] = take(sizeof(double) * (size_t)(s.n[i] + 1));
        from_storage(s.v[i], raw->p[i], s.n[i], t);
    }
    return s;
}

static void must(Case *c, cell_status status, const char *what)
{
    if (status == CELL_OK)
        return;
    printf("FAIL %s: %s: %s\n%s: 0 passed, 1 failed\n", c->label, what, cell_last_error(c->ctx), c->d->key);
    exit(1);
}

static Guarded guarded_new(Case *c, const void *from, size_t bytes)
{
    Guarded g = { NULL, bytes };
    char *host = take(bytes + GUARD);
    memset(host, POISON, bytes);
    if (from)
        memcpy(host, from, bytes);
    memset(host + bytes, GUARD_BYTE, GUARD);
    must(c, cell_alloc(c->ctx, &g.p, bytes + GUARD), "allocate");
    must(c, cell_copy(c->ctx, g.p, host, bytes + GUARD), "copy there");
    free(host);
    return g;
}

Guarded reserve_of(Case *c, size_t bytes)
{
    return guarded_new(c, NULL, bytes);
}

/* The bytes as they are now; the guard is checked. */
static void *guarded_read(Case *c, const Guarded *g, const char *what)
{
    unsigned char *host = take(g->bytes + GUARD);
    must(c, cell_copy(c->ctx, host, g->p, g->bytes + GUARD), "copy back");
    bool whole = true;
    for (int i = 0; i < GUARD; i++)
        whole &= host[g->bytes + (size_t)i] == GUARD_BYTE;
    if (!whole)
        verdict(c, false, "writes behind its end", what);
    return host;
}

void guarded_free(Case *c, Guarded *g, const char *what)
{
    free(guarded_read(c, g, what));
    cell_free(c->ctx, g->p);
    g->p = NULL;
}

Guarded reserve_for(Case *c, const int64_t *sizes)
{
    size_t bytes;
    must(c, cell_reserve_bytes(c->ctx, c->d, sizes, &bytes), "ask for the size of the reserve");
    return guarded_new(c, NULL, bytes);
}

static Guarded buffer_of(Case *c, const Call *call, const cell_arg *a, int i)
{
    const Set *from = ignored(a) ? NULL : written(c->d, a) ? call->start : call->in;
    size_t bytes = cell_dtype_bytes((cell_dtype)a->dtype) * (size_t)call->in->n[i];
    void *host = from ? take(bytes) : NULL;
    if (from)
        to_storage(host, from->v[i], call->in->n[i], (cell_dtype)a->dtype);
    Guarded g = guarded_new(c, host, bytes);
    free(host);
    return g;
}

static int initial_of(const cell_arg *args, int n, int final)
{
    for (int i = 0; i < n; i++)
        if (args[i].role == CELL_ROLE_VALUE && args[i].tensor == args[final].tensor)
            return i;
    return final;
}

static bool is_poison(const unsigned char *now, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && now[i] == POISON)
        i++;
    return i == bytes;
}

static bool unchanged(const Call *call, const cell_arg *a, int i, const void *now)
{
    size_t bytes = cell_dtype_bytes((cell_dtype)a->dtype) * (size_t)call->in->n[i];
    if (ignored(a))
        return is_poison(now, bytes);
    void *was = take(bytes);
    to_storage(was, call->in->v[i], call->in->n[i], (cell_dtype)a->dtype);
    bool same = memcmp(was, now, bytes) == 0;
    free(was);
    return same;
}

static void execute(Case *c, const Call *call, void *const *p, const Guarded *workspace)
{
    cell_memory memory = { workspace->bytes ? workspace->p : NULL, workspace->bytes, NULL, 0 };
    if (call->reserve && call->which != 's')
        memory =
            (cell_memory){ memory.workspace, memory.workspace_bytes, call->reserve->p, call->reserve->bytes };
    if (call->flags & CELL_OFFLOAD)
        must(c, cell_context_set_host(c->ctx, call->host, call->host_bytes), "set the host memory");
    if (call->which == 'f')
        must(c, cell_run_forward(c->ctx, c->d, call->sizes, p, &memory, call->flags), "forward");
    else if (call->which == 'b')
        must(c, cell_run_backward(c->ctx, c->d, call->sizes, p, &memory, call->flags), "backward");
    else
        must(c, cell_run_step(c->ctx, c->d, call->sizes, p, &memory, call->flags), "step");
    must(c, cell_synchronize(c->ctx), "synchronize");
}

Raw run_call(Case *c, const Call *call)
{
    int n;
    const cell_arg *args = call_args(c->d, call->which, &n);
    Guarded buffer[MAX_ARGS];
    void *p[MAX_ARGS];
    size_t bytes;
    Raw out = { 0 };
    bool saves = call->which == 'b' || (call->which == 'f' && call->reserve);
    if (call->flags & CELL_OFFLOAD)
        must(c, cell_offload_bytes(c->ctx, c->d, call->sizes, call->reserve->bytes, NULL, NULL, &bytes),
             "ask for the size of the workspace");
    else if (call->flags & CELL_RECOMPUTE)
        must(c, cell_recompute_bytes(c->ctx, c->d, call->sizes, call->reserve->bytes, NULL, &bytes),
             "ask for the size of the workspace");
    else
        must(c, (saves ? cell_workspace_bytes : cell_inference_bytes)(c->ctx, c->d, call->sizes, &bytes),
             "ask for the size of the workspace");
    Guarded workspace = guarded_new(c, NULL, bytes);
    for (int i = 0; i < n; i++) {
        bool null = (call->null && call->null[i]) || (c->null_states && is_state(c->d, &args[i]));
        buffer[i] = buffer_of(c, call, &args[i], i);
        p[i] = null ? NULL : buffer[i].p;
    }
    for (int i = 0; i < n && call->in_place; i++)
        if (args[i].role == CELL_ROLE_FINAL && p[i])
            p[i] = p[initial_of(args, n, i)];
    execute(c, call, p, &workspace);
    for (int i = 0; i < n; i++) {
        bool shared = args[i].role == CELL_ROLE_FINAL && p[i] && p[i] != buffer[i].p;
        void *now =
            guarded_read(c, shared ? &buffer[initial_of(args, n, i)] : &buffer[i], arg_name(c->d, &args[i]));
        bool overwritten = call->in_place && is_state(c->d, &args[i]);
        if (!written(c->d, &args[i]) && !overwritten && !unchanged(call, &args[i], i, now))
            verdict(c, false, ignored(&args[i]) ? "writes a gradient of a constant" : "writes into its input",
                    arg_name(c->d, &args[i]));
        out.bytes[i] = buffer[i].bytes;
        out.p[i] = p[i] ? now : NULL;
        if (!p[i])
            free(now);
    }
    for (int i = 0; i < n; i++)
        cell_free(c->ctx, buffer[i].p);
    guarded_free(c, &workspace, "workspace");
    return out;
}
