/* ladder.c: one generated instance against its reference. In: the instance's description (launch plans on the emulator or
 * the GPU) and its reference C compiled in double, both linked in under the names below (ld's --defsym); sizes on the
 * command line as B,T,dims... Out: a line per tensor that differs by more than rounding allows, and `N passed, N failed`.
 *
 * The tolerance of a tensor is K * (d + u): u is the unit roundoff of the coarsest type that values pass through (the
 * storage type for inputs, outputs and operands of products), d is how much that tensor of the reference moves (RMS,
 * relative) when every input is moved by one unit roundoff with random sign, and K = 16 allows for the roundings in between:
 * they are as large as those of the inputs, with independent signs, and no path of these cells has more than about 256. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cell_plan.h"
#include "half.h"

const cell_desc *ladder_instance(void);
int ladder_ref_forward(const int64_t *sizes, void *const *args, void *reserve, int flags);
int ladder_ref_backward(const int64_t *sizes, void *const *args, void *reserve, int flags);
size_t ladder_ref_reserve_bytes(const int64_t *sizes);

enum { MAX_ARGS = 128 };

typedef struct Set { double *v[MAX_ARGS]; int64_t n[MAX_ARGS]; } Set;   /* host values of a call's arguments */

static uint64_t seed = 1;
static int passed, failed;

static double uniform(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (double)(seed >> 11) / 9007199254740992.0;
}

static double normal(void)
{
    return sqrt(-2 * log(uniform() + 1e-300)) * cos(6.283185307179586 * uniform());
}

static void *take(size_t bytes)
{
    void *p = calloc(bytes ? bytes : 1, 1);
    if (!p)
        abort();
    return p;
}

static double rounded(double v, cell_dtype t)
{
    if (t == CELL_BF16)
        return cell_bf16_to_f32(cell_f32_to_bf16((float)v));
    if (t == CELL_F16)
        return cell_f16_to_f32(cell_f32_to_f16((float)v));
    return t == CELL_F32 ? (float)v : v;
}

static void to_storage(void *to, const double *from, int64_t n, cell_dtype t)
{
    for (int64_t i = 0; i < n; i++) {
        if (t == CELL_BF16)
            ((uint16_t *)to)[i] = cell_f32_to_bf16((float)from[i]);
        else if (t == CELL_F16)
            ((uint16_t *)to)[i] = cell_f32_to_f16((float)from[i]);
        else if (t == CELL_F32)
            ((float *)to)[i] = (float)from[i];
        else
            ((double *)to)[i] = from[i];
    }
}

static void from_storage(double *to, const void *from, int64_t n, cell_dtype t)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = t == CELL_BF16  ? cell_bf16_to_f32(((const uint16_t *)from)[i])
                : t == CELL_F16 ? cell_f16_to_f32(((const uint16_t *)from)[i])
                : t == CELL_F32 ? ((const float *)from)[i]
                                : ((const double *)from)[i];
}

static double unit(cell_dtype t)
{
    return t == CELL_BF16 ? 0x1p-9 : t == CELL_F16 ? 0x1p-12 : t == CELL_F32 ? 0x1p-24 : 0x1p-53;
}

static size_t bytes_of(cell_dtype t)
{
    return t == CELL_F64 ? 8 : t == CELL_F32 ? 4 : 2;
}

static bool written(const cell_arg *a, const cell_desc *d)
{
    return a->role == CELL_ROLE_FINAL || a->role == CELL_ROLE_D_VALUE ||
           (a->role == CELL_ROLE_VALUE && d->tensors[a->tensor].kind == CELL_OUTPUT);
}

static Set make_set(const cell_desc *d, const cell_arg *args, int n, const int64_t *sizes, const Set *from)
{
    Set s = { 0 };
    for (int i = 0; i < n; i++) {
        cell_arg_elements(d, &args[i], sizes, &s.n[i]);
        s.v[i] = take(sizeof(double) * (size_t)(s.n[i] + 1));
        if (written(&args[i], d))
            continue;
        double scale = args[i].role == CELL_ROLE_VALUE && d->tensors[args[i].tensor].kind == CELL_PARAM ? 0.4 : 1;
        for (int64_t k = 0; k < s.n[i]; k++)
            s.v[i][k] = from && from->v[i] ? from->v[i][k] : rounded(scale * normal(), (cell_dtype)args[i].dtype);
    }
    return s;
}

/* The reference in double on forward set f and backward set b, whose inputs are set. */
static void run_reference(const cell_desc *d, const int64_t *sizes, Set *f, Set *b)
{
    void *reserve = take(ladder_ref_reserve_bytes(sizes));
    void *fa[MAX_ARGS], *ba[MAX_ARGS];
    for (int i = 0; i < d->n_forward_args; i++)
        fa[i] = f->v[i];
    for (int i = 0; i < d->n_backward_args; i++)
        ba[i] = b->v[i];
    if (ladder_ref_forward(sizes, fa, reserve, 0) || ladder_ref_backward(sizes, ba, reserve, 0))
        abort();
    free(reserve);
}

static void share_inputs(const cell_desc *d, const Set *f, Set *b)
{
    for (int i = 0; i < d->n_backward_args; i++)
        for (int k = 0; k < d->n_forward_args; k++)
            if (d->backward_args[i].role == CELL_ROLE_VALUE && d->forward_args[k].role == CELL_ROLE_VALUE &&
                d->backward_args[i].tensor == d->forward_args[k].tensor)
                memcpy(b->v[i], f->v[k], sizeof(double) * (size_t)f->n[k]);
}

static void check(cell_context *ctx, cell_status st, const char *what)
{
    if (st == CELL_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, cell_last_error(ctx));
    exit(1);
}

static void *to_device(cell_context *ctx, const cell_arg *a, const double *v, int64_t n, bool poison)
{
    size_t bytes = bytes_of((cell_dtype)a->dtype) * (size_t)n;
    void *host = take(bytes), *p = NULL;
    if (poison)
        memset(host, 0xff, bytes);
    else
        to_storage(host, v, n, (cell_dtype)a->dtype);
    check(ctx, cell_alloc(ctx, &p, bytes ? bytes : 16), "alloc");
    check(ctx, cell_copy(ctx, p, host, bytes), "copy");
    free(host);
    return p;
}

static void run_plan(cell_context *ctx, const cell_desc *d, const int64_t *sizes, const Set *f, const Set *b, Set *fo, Set *bo)
{
    size_t reserve_bytes;
    check(ctx, cell_reserve_bytes(ctx, d, sizes, &reserve_bytes), "reserve size");
    cell_memory memory = { NULL, 0, NULL, reserve_bytes };
    check(ctx, cell_alloc(ctx, &memory.reserve, reserve_bytes ? reserve_bytes : 16), "reserve");
    void *poison = take(reserve_bytes);
    memset(poison, 0xff, reserve_bytes);
    check(ctx, cell_copy(ctx, memory.reserve, poison, reserve_bytes), "poison");
    free(poison);
    for (int back = 0; back < 2; back++) {
        const cell_arg *args = back ? d->backward_args : d->forward_args;
        int n = back ? d->n_backward_args : d->n_forward_args;
        const Set *in = back ? b : f;
        Set *out = back ? bo : fo;
        void *p[MAX_ARGS];
        for (int i = 0; i < n; i++)
            p[i] = to_device(ctx, &args[i], in->v[i], in->n[i], written(&args[i], d));
        check(ctx, back ? cell_run_backward(ctx, d, sizes, p, &memory, 0) : cell_run_forward(ctx, d, sizes, p, &memory, 0),
              back ? "backward" : "forward");
        check(ctx, cell_synchronize(ctx), "synchronize");
        for (int i = 0; i < n; i++) {
            size_t bytes = bytes_of((cell_dtype)args[i].dtype) * (size_t)in->n[i];
            void *host = take(bytes);
            check(ctx, cell_copy(ctx, host, p[i], bytes), "copy back");
            out->n[i] = in->n[i];
            out->v[i] = take(sizeof(double) * (size_t)(in->n[i] + 1));
            from_storage(out->v[i], host, in->n[i], (cell_dtype)args[i].dtype);
            free(host);
            cell_free(ctx, p[i]);
        }
    }
    cell_free(ctx, memory.reserve);
}

static double rms(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += (a[i] - (b ? b[i] : 0)) * (a[i] - (b ? b[i] : 0));
    return sqrt(s / (double)(n ? n : 1));
}

static void compare(const cell_desc *d, const cell_arg *args, int n, const Set *got, const Set *want, const Set *moved,
                    double u, const char *label)
{
    static const char *const role[] = { "", "final ", "d_", "dout ", "dfinal " };
    for (int i = 0; i < n; i++) {
        if (!written(&args[i], d) || got->n[i] == 0)
            continue;
        double size = rms(want->v[i], NULL, want->n[i]), error = rms(got->v[i], want->v[i], want->n[i]);
        double move = rms(moved->v[i], want->v[i], want->n[i]);
        double own = unit((cell_dtype)args[i].dtype);
        double limit = 16 * (move + size * (u > own ? u : own)), worst = 0;
        int64_t at = 0;
        for (int64_t k = 0; k < want->n[i]; k++) {
            double e = fabs(got->v[i][k] - want->v[i][k]);
            if (!(e <= worst)) {
                worst = e;
                at = k;
                if (e != e)
                    break;
            }
        }
        bool ok = error <= limit;
        passed += ok;
        failed += !ok;
        if (!ok || getenv("LADDER_VERBOSE"))
            printf("%s %s: %s%s: rms error %.3g of rms %.3g, limit %.3g; largest %.3g at %lld (%.9g, wanted %.9g)\n",
                   ok ? "ok  " : "FAIL", label, role[args[i].role], d->tensors[args[i].tensor].name, error, size, limit,
                   worst, (long long)at, got->v[i][at], want->v[i][at]);
    }
}

static void jiggle(Set *s, const cell_desc *d, const cell_arg *args, int n, double u)
{
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; !written(&args[i], d) && k < s->n[i]; k++)
            s->v[i][k] *= 1 + (uniform() < 0.5 ? -u : u);
}

static void run_sizes(cell_context *ctx, const cell_desc *d, const int64_t *sizes)
{
    char label[256] = "";
    double u = 0;
    for (int i = 0; i < d->n_sizes; i++)
        snprintf(label + strlen(label), sizeof label - strlen(label), "%s%s=%lld", i ? " " : "", d->size_names[i],
                 (long long)sizes[i]);
    for (int i = 0; i < d->n_tensors; i++)
        u = unit(d->tensors[i].dtype) > u ? unit(d->tensors[i].dtype) : u;
    Set f = make_set(d, d->forward_args, d->n_forward_args, sizes, NULL);
    Set b = make_set(d, d->backward_args, d->n_backward_args, sizes, NULL);
    share_inputs(d, &f, &b);
    Set fm = make_set(d, d->forward_args, d->n_forward_args, sizes, &f);
    Set bm = make_set(d, d->backward_args, d->n_backward_args, sizes, &b);
    jiggle(&fm, d, d->forward_args, d->n_forward_args, u);
    share_inputs(d, &fm, &bm);
    run_reference(d, sizes, &f, &b);
    run_reference(d, sizes, &fm, &bm);
    Set fo = { 0 }, bo = { 0 };
    run_plan(ctx, d, sizes, &f, &b, &fo, &bo);
    compare(d, d->forward_args, d->n_forward_args, &fo, &f, &fm, u, label);
    compare(d, d->backward_args, d->n_backward_args, &bo, &b, &bm, u, label);
}

int main(int argc, char **argv)
{
    const cell_desc *d = ladder_instance();
    cell_context *ctx = NULL;
    char message[512];
    const char *backend = getenv("CELL_BACKEND");
    cell_status st = cell_context_create(&ctx, backend && !strcmp(backend, "cuda") ? CELL_BACKEND_CUDA : CELL_BACKEND_EMULATED, 0, message, sizeof message);
    if (st != CELL_OK) {
        fprintf(stderr, "no context: %s\n", message);
        return 1;
    }
    for (int i = 1; i < argc; i++) {
        int64_t sizes[CELL_MAX_SIZES] = { 0 };
        char *s = argv[i];
        seed = 0x9e3779b97f4a7c15ull + (uint64_t)i;
        for (int k = 0; k < d->n_sizes && *s; k++, s += *s == ',')
            sizes[k] = strtoll(s, &s, 10);
        run_sizes(ctx, d, sizes);
    }
    cell_context_destroy(ctx);
    printf("%s on %s: %d passed, %d failed\n", d->key, backend && !strcmp(backend, "cuda") ? "cuda" : "emulated", passed, failed);
    return failed > 0;
}
