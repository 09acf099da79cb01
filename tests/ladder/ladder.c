/* ladder.c: one generated instance against its reference. In: the instance's description (launch plans on the
 * emulator or the GPU) and its reference C compiled in double, both linked in under the names below (ld's
 * --defsym); sizes on the command line as B,T,dims..., or large:COPIES:1,T,dims... for a batch of copies of
 * one sequence. Out: a line per check that failed, and `N passed, N failed, N skipped`.
 *
 * The tolerance of a tensor is K * (d + u): u is the unit roundoff of the coarsest type that values pass
 * through (the storage type for inputs, outputs and operands of products), d is how much that tensor of the
 * reference moves (RMS, relative) when every input is moved by one unit roundoff with random sign (the
 * largest of four draws: in a tensor of a few elements one draw may cancel), and K = 16 allows for the
 * roundings in between: they are as large as those of the inputs, with independent signs, and no path of
 * these cells has more than about 256. A gradient that is added to what is there has the roundings of both
 * addends, which may cancel: they count with their sizes. Where the limit is more than half of the tensor's
 * size, roundings decide what comes out: such a tensor can fail, but when it does not, it counts as
 * skipped. A NaN never passes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ladder.h"

const cell_desc *ladder_instance(void);
int ladder_ref_forward(const int64_t *sizes, void *const *args, void *reserve, int flags);
int ladder_ref_backward(const int64_t *sizes, void *const *args, void *reserve, int flags);
size_t ladder_ref_reserve_bytes(const int64_t *sizes);

static int passed, failed, skipped;

const char *arg_name(const cell_desc *d, const cell_arg *a)
{
    static const char *const role[] = { "", "final ", "d_", "dout ", "dfinal " };
    static char text[4][128];
    static int at;
    char *name = text[at++ % 4];
    snprintf(name, sizeof text[0], "%s%s", role[a->role], d->tensors[a->tensor].name);
    return name;
}

void verdict(Case *c, bool ok, const char *what, const char *tensor)
{
    passed += ok;
    failed += !ok;
    if (!ok || getenv("LADDER_VERBOSE"))
        printf("%s %s: %s: %s\n", ok ? "ok  " : "FAIL", c->label, tensor, what);
}

static double rms(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += (a[i] - (b ? b[i] : 0)) * (a[i] - (b ? b[i] : 0));
    return sqrt(s / (double)(n ? n : 1));
}

static int64_t worst_of(const double *got, const double *want, int64_t n)
{
    int64_t at = 0;
    for (int64_t k = 1; k < n; k++) {
        double e = fabs(got[k] - want[k]), worst = fabs(got[at] - want[at]);
        if (!(e <= worst) && worst == worst)
            at = k;
    }
    return at;
}

static bool is_timed(const cell_desc *d, const cell_arg *a)
{
    cell_tensor_kind kind = d->tensors[a->tensor].kind;
    return kind == CELL_INPUT || kind == CELL_OUTPUT;
}

/* Where element k lies: " at b, t, i, j" with the element's indices. */
static void print_place(const Case *c, const cell_arg *a, int64_t k)
{
    const cell_tensor *t = &c->d->tensors[a->tensor];
    int64_t extent[16], index[16];
    int n = 0;
    if (t->kind != CELL_PARAM)
        extent[n++] = c->sizes[0];
    if (is_timed(c->d, a))
        extent[n++] = c->sizes[1];
    for (int i = 0; i < t->rank && n < 16; i++)
        if (cell_eval(t->axes[i], c->sizes, c->d->n_sizes, &extent[n++]) != CELL_OK)
            return;
    for (int i = n - 1; i >= 0; i--, k /= extent[i + 1])
        index[i] = k % (extent[i] ? extent[i] : 1);
    for (int i = 0; i < n; i++)
        printf("%s%lld", i ? "," : " at ", (long long)index[i]);
}

/* The first step at which the tensor is off by more than the limit; -1 when it has no steps. */
static int64_t first_step(const Case *c, const cell_arg *a, const double *got, const double *want, int64_t n,
                          double limit)
{
    int64_t B = c->sizes[0], T = c->sizes[1];
    if (!is_timed(c->d, a) || B * T == 0)
        return -1;
    int64_t row = n / (B * T);
    for (int64_t t = 0; t < T; t++)
        for (int64_t k = 0; k < B * row; k++) {
            int64_t at = ((k / row) * T + t) * row + k % row;
            if (!(fabs(got[at] - want[at]) <= limit))
                return t;
        }
    return -1;
}

static void report(const Case *c, const char *what, const cell_arg *a, const double *got, const double *want,
                   int64_t n, double error, double size, double limit, bool ok)
{
    int64_t at = worst_of(got, want, n), step = first_step(c, a, got, want, n, limit);
    printf("%s %s: %s: %s: rms error %.3g of rms %.3g, limit %.3g; worst %.9g, wanted %.9g,",
           ok ? "ok  " : "FAIL", c->label, arg_name(c->d, a), what, error, size, limit, got[at], want[at]);
    print_place(c, a, at);
    if (!ok && step >= 0)
        printf("; first wrong at step %lld", (long long)step);
    printf("\n");
}

void compare(Case *c, const char *what, const cell_arg *args, int n, const Set *got, const Set *want,
             const Set *moved, const Set *addend)
{
    for (int i = 0; i < n; i++) {
        if (!written(c->d, &args[i]) || got->n[i] == 0)
            continue;
        cell_dtype type = (cell_dtype)args[i].dtype;
        double size = rms(want->v[i], NULL, want->n[i]), error = rms(got->v[i], want->v[i], want->n[i]);
        double move = rms(moved->v[i], want->v[i], want->n[i]), u = c->u > unit(type) ? c->u : unit(type);
        /* Below this, f16 has no normal numbers: it rounds to a fixed step. */
        double smallest = type == CELL_F16 ? 0x1p-14 : 0x1p-126;
        double sum = addend ? size + 2 * rms(addend->v[i], NULL, want->n[i]) : size;
        double limit = 16 * (move + sum * u + (type == CELL_F64 ? 0 : smallest * unit(type)));
        bool ok = error <= limit && got->n[i] == want->n[i], unresolved = size > 0 && limit > size / 2;
        passed += ok && !unresolved;
        skipped += ok && unresolved;
        failed += !ok;
        if (!ok || getenv("LADDER_VERBOSE"))
            report(c, what, &args[i], got->v[i], want->v[i], want->n[i], error, size, limit, ok);
    }
}

static void draw(Case *c, const cell_arg *args, int n, Set *s)
{
    for (int i = 0; i < n; i++) {
        bool param = args[i].role == CELL_ROLE_VALUE && c->d->tensors[args[i].tensor].kind == CELL_PARAM;
        for (int64_t k = 0; !written(c->d, &args[i]) && k < s->n[i]; k++)
            s->v[i][k] = rounded((param ? 0.4 : 1) * normal(), (cell_dtype)args[i].dtype);
    }
}

static void copy_inputs(const Case *c, const cell_arg *args, int n, const Set *from, Set *to, double u)
{
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; !written(c->d, &args[i]) && k < to->n[i]; k++)
            to->v[i][k] = from->v[i][k] * (1 + (normal() < 0 ? -u : u));
}

/* Backward sees the inputs, params and states that forward saw. */
static void share_inputs(const cell_desc *d, const Set *f, Set *b)
{
    for (int i = 0; i < d->n_backward_args; i++)
        for (int k = 0; k < d->n_forward_args; k++)
            if (d->backward_args[i].role == CELL_ROLE_VALUE && d->forward_args[k].role == CELL_ROLE_VALUE &&
                d->backward_args[i].tensor == d->forward_args[k].tensor)
                memcpy(b->v[i], f->v[k], sizeof(double) * (size_t)f->n[k]);
}

static void run_reference(const Case *c, Set *f, Set *b)
{
    const cell_desc *d = c->d;
    void *reserve = take(ladder_ref_reserve_bytes(c->sizes)), *fa[MAX_ARGS], *ba[MAX_ARGS];
    for (int i = 0; i < d->n_forward_args; i++)
        fa[i] = c->null_states && is_state(d, &d->forward_args[i]) ? NULL : f->v[i];
    for (int i = 0; i < d->n_backward_args; i++)
        ba[i] = c->null_states && is_state(d, &d->backward_args[i]) ? NULL : b->v[i];
    if (ladder_ref_forward(c->sizes, fa, reserve, 0) || ladder_ref_backward(c->sizes, ba, reserve, 0))
        abort();
    free(reserve);
}

/* Keeps, for each written tensor, the draw that moved it most. */
static void keep_larger(const cell_desc *d, const cell_arg *args, int n, const Set *at, Set *kept,
                        const Set *draw)
{
    for (int i = 0; i < n; i++)
        if (written(d, &args[i]) && rms(draw->v[i], at->v[i], at->n[i]) > rms(kept->v[i], at->v[i], at->n[i]))
            memcpy(kept->v[i], draw->v[i], sizeof(double) * (size_t)at->n[i]);
}

static void move(Case *c, Set *f, Set *b)
{
    copy_inputs(c, c->d->forward_args, c->d->n_forward_args, &c->f, f, c->u);
    copy_inputs(c, c->d->backward_args, c->d->n_backward_args, &c->b, b, c->u);
    share_inputs(c->d, f, b);
    run_reference(c, f, b);
}

void reference_results(Case *c)
{
    const cell_desc *d = c->d;
    run_reference(c, &c->f, &c->b);
    move(c, &c->fm, &c->bm);
    for (int again = 1; again < 4; again++) {
        Set f = set_new(d, d->forward_args, d->n_forward_args, c->sizes);
        Set b = set_new(d, d->backward_args, d->n_backward_args, c->sizes);
        move(c, &f, &b);
        keep_larger(d, d->forward_args, d->n_forward_args, &c->f, &c->fm, &f);
        keep_larger(d, d->backward_args, d->n_backward_args, &c->b, &c->bm, &b);
        set_free(&f);
        set_free(&b);
    }
}

Case case_new(cell_context *ctx, const cell_desc *d, const int64_t *sizes, bool null_states)
{
    Case c = { .ctx = ctx, .d = d, .null_states = null_states };
    memcpy(c.sizes, sizes, sizeof c.sizes);
    for (int i = 0; i < d->n_sizes; i++)
        snprintf(c.label + strlen(c.label), sizeof c.label - strlen(c.label), "%s%s=%lld", i ? " " : "",
                 d->size_names[i], (long long)sizes[i]);
    for (int i = 0; i < d->n_tensors; i++)
        c.u = unit(d->tensors[i].dtype) > c.u ? unit(d->tensors[i].dtype) : c.u;
    c.f = set_new(d, d->forward_args, d->n_forward_args, sizes);
    c.b = set_new(d, d->backward_args, d->n_backward_args, sizes);
    c.fm = set_new(d, d->forward_args, d->n_forward_args, sizes);
    c.bm = set_new(d, d->backward_args, d->n_backward_args, sizes);
    draw(&c, d->forward_args, d->n_forward_args, &c.f);
    draw(&c, d->backward_args, d->n_backward_args, &c.b);
    share_inputs(d, &c.f, &c.b);
    reference_results(&c);
    return c;
}

void case_free(Case *c)
{
    set_free(&c->f);
    set_free(&c->b);
    set_free(&c->fm);
    set_free(&c->bm);
}

static void check_against_reference(Case *c, const char *what)
{
    const cell_desc *d = c->d;
    Guarded reserve = reserve_for(c, c->sizes);
    for (int back = 0; back < 2; back++) {
        int n;
        const cell_arg *args = call_args(d, back ? 'b' : 'f', &n);
        Raw raw = run_call(c, &(Call){ .which = back ? 'b' : 'f',
                                       .sizes = c->sizes,
                                       .in = back ? &c->b : &c->f,
                                       .reserve = &reserve });
        Set got = values_of(d, args, n, &raw);
        compare(c, what, args, n, &got, back ? &c->b : &c->f, back ? &c->bm : &c->fm, NULL);
        set_free(&got);
        raw_free(&raw);
    }
    guarded_free(c, &reserve, "reserve");
}

static void run_sizes(cell_context *ctx, const cell_desc *d, const int64_t *sizes, bool first)
{
    Case c = case_new(ctx, d, sizes, false);
    bool small = cell_backend_of(ctx) != CELL_BACKEND_CUDA && sizes[0] * sizes[1] > 10;
    check_against_reference(&c, "against the reference");
    if (!getenv("LADDER_QUICK") && !small)
        check_identities(&c, true);
    case_free(&c);
    for (int empty = 0; first && empty < 3; empty++) {
        int64_t other[CELL_MAX_SIZES];
        memcpy(other, sizes, sizeof other);
        if (empty < 2)
            other[empty] = 0;
        c = case_new(ctx, d, other, empty == 2);
        check_against_reference(&c, empty == 2 ? "without initial states" : "without steps or sequences");
        case_free(&c);
    }
}

int main(int argc, char **argv)
{
    const cell_desc *d = ladder_instance();
    cell_context *ctx = NULL;
    char message[512];
    const char *backend = getenv("CELL_BACKEND");
    bool cuda = backend && strcmp(backend, "cuda") == 0;
    cell_status st = cell_context_create(&ctx, cuda ? CELL_BACKEND_CUDA : CELL_BACKEND_EMULATED, 0, message,
                                         sizeof message);
    if (st != CELL_OK) {
        fprintf(stderr, "no context: %s\n", message);
        return 1;
    }
    for (int i = 1; i < argc; i++) {
        int64_t sizes[CELL_MAX_SIZES] = { 0 };
        char *s = argv[i];
        int64_t copies = strncmp(s, "large:", 6) == 0 ? strtoll(s + 6, &s, 10) : 0;
        s += *s == ':';
        for (int k = 0; k < d->n_sizes && *s; k++, s += *s == ',')
            sizes[k] = strtoll(s, &s, 10);
        if (copies)
            check_large(ctx, d, sizes, copies);
        else
            run_sizes(ctx, d, sizes, i == 2 || argc == 2);
    }
    cell_context_destroy(ctx);
    printf("%s on %s: %d passed, %d failed, %d skipped\n", d->key, cuda ? "cuda" : "emulated", passed, failed,
           skipped);
    return failed > 0;
}
