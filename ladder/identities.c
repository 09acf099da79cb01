/* identities.c: runs of one case against each other. In: a case whose inputs and reference results are there.
 * Out: verdicts. Equal work must give equal bits: a second run, inference, some of the gradients, NULL for
 * zeros, states in place. Work that is cut differently (step by step, two pieces, accumulated gradients) must
 * agree with the reference like the whole. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ladder.h"

/* Compares the written arguments of two runs bit by bit where both have them. */
static void same_bits(Case *c, const char *what, char which, const Raw *a, const Raw *b)
{
    int n;
    const cell_arg *args = call_args(c->d, which, &n);
    for (int i = 0; i < n; i++)
        if (written(c->d, &args[i]) && a->p[i] && b->p[i])
            verdict(c, a->bytes[i] == b->bytes[i] && memcmp(a->p[i], b->p[i], a->bytes[i]) == 0, what,
                    arg_name(c->d, &args[i]));
}

/* The same numbers: -0 and +0 are one, since a product left out gives +0 where zeros times a negative give
 * -0. */
static bool same_numbers(const unsigned char *a, const unsigned char *b, size_t bytes, size_t each)
{
    for (size_t i = 0; i < bytes; i += each) {
        unsigned char left = 0, right = 0;
        if (memcmp(a + i, b + i, each) == 0)
            continue;
        for (size_t k = 0; k < each; k++) {
            unsigned char mask = k + 1 == each ? 0x7f : 0xff;     /* the sign is in the last byte */
            left |= a[i + k] & mask;
            right |= b[i + k] & mask;
        }
        if (left || right)
            return false;
    }
    return true;
}

static void same_values(Case *c, const char *what, char which, const Raw *a, const Raw *b)
{
    int n;
    const cell_arg *args = call_args(c->d, which, &n);
    for (int i = 0; i < n; i++)
        if (written(c->d, &args[i]) && a->p[i] && b->p[i])
            verdict(c, a->bytes[i] == b->bytes[i] &&
                           same_numbers(a->p[i], b->p[i], a->bytes[i],
                                        cell_dtype_bytes((cell_dtype)args[i].dtype)),
                    what, arg_name(c->d, &args[i]));
}

static Raw forward(Case *c, Guarded *reserve, const bool *null, bool in_place)
{
    return run_call(c, &(Call){ .which = 'f',
                                .sizes = c->sizes,
                                .in = &c->f,
                                .null = null,
                                .in_place = in_place,
                                .reserve = reserve });
}

static Raw backward(Case *c, Guarded *reserve, const Set *in, const bool *null)
{
    return run_call(c,
                    &(Call){ .which = 'b', .sizes = c->sizes, .in = in, .null = null, .reserve = reserve });
}

static void forward_variant(Case *c, const Raw *full, const char *what, const bool *null, bool in_place)
{
    Raw again = forward(c, NULL, null, in_place);
    same_bits(c, what, 'f', full, &again);
    raw_free(&again);
}

static void forward_identities(Case *c, const Raw *full)
{
    bool null[MAX_ARGS] = { false };
    forward_variant(c, full, "inference gives other bits than training", NULL, false);
    forward_variant(c, full, "final states in place of the initial ones give other bits", NULL, true);
    for (int i = 0; i < c->d->n_forward_args; i++)
        null[i] = c->d->forward_args[i].role == CELL_ROLE_FINAL;
    forward_variant(c, full, "without final states there are other bits", null, false);
}

/* Each gradient alone. On the emulator of many gradients each group of those that are as far apart: GROUPS
 * runs. */
static void subsets(Case *c, Guarded *reserve, const Raw *full)
{
    enum { GROUPS = 8 };
    const cell_desc *d = c->d;
    int gradient[MAX_ARGS], n = 0;
    bool all = cell_backend_of(c->ctx) == CELL_BACKEND_CUDA || getenv("FULL");
    for (int i = 0; i < d->n_backward_args; i++)
        gradient[i] = written(d, &d->backward_args[i]) ? n++ : -1;
    int groups = all || n < GROUPS ? n : GROUPS;
    for (int g = 0; g < groups; g++) {
        bool null[MAX_ARGS];
        for (int i = 0; i < d->n_backward_args; i++)
            null[i] = gradient[i] >= 0 && gradient[i] % groups != g;
        Raw some = backward(c, reserve, &c->b, null);
        same_bits(c, "without the others, the gradient has other bits", 'b', full, &some);
        raw_free(&some);
    }
}

/* NULL cotangents of the roles against zeros. */
static void null_cotangents(Case *c, Guarded *reserve, bool outs, bool finals)
{
    const cell_desc *d = c->d;
    bool null[MAX_ARGS] = { false };
    Set in = set_new(d, d->backward_args, d->n_backward_args, c->sizes);
    for (int i = 0; i < d->n_backward_args; i++) {
        const cell_arg *a = &d->backward_args[i];
        null[i] = (outs && a->role == CELL_ROLE_D_OUT) || (finals && a->role == CELL_ROLE_D_FINAL);
        if (!null[i] && !written(d, a))
            memcpy(in.v[i], c->b.v[i], sizeof(double) * (size_t)in.n[i]);
    }
    Raw zeros = backward(c, reserve, &in, NULL), nulls = backward(c, reserve, &in, null);
    same_values(c, "a NULL cotangent is no zero", 'b', &zeros, &nulls);
    raw_free(&zeros);
    raw_free(&nulls);
    set_free(&in);
}

/* The nearest number of the type. */
static double number_of(double v, cell_dtype type)
{
    double most = overflow(type) * (1 - unit(type));    /* halfway beyond the largest: rounds down to it */
    return rounded(fmin(fmax(v, -most), most), type);
}

/* Gradients that are added to what is there: numbers of their own size, so that neither addend can be lost
 * in the other. */
static void accumulated(Case *c, Guarded *reserve)
{
    const cell_desc *d = c->d;
    int n = d->n_backward_args;
    Set start = set_new(d, d->backward_args, n, c->sizes), want = set_new(d, d->backward_args, n, c->sizes);
    for (int i = 0; i < n; i++) {
        double size = rms(c->b.v[i], NULL, c->b.n[i]);
        for (int64_t k = 0; written(d, &d->backward_args[i]) && k < start.n[i]; k++) {
            start.v[i][k] = number_of((size > 0 ? size : 1) * normal(), (cell_dtype)d->backward_args[i].dtype);
            want.v[i][k] = c->b.v[i][k] + start.v[i][k];
        }
    }
    Raw raw = run_call(c, &(Call){ .which = 'b',
                                   .sizes = c->sizes,
                                   .in = &c->b,
                                   .start = &start,
                                   .flags = CELL_ACCUMULATE,
                                   .reserve = reserve });
    Set got = values_of(d, d->backward_args, n, &raw);
    compare(c, "accumulated gradients", d->backward_args, n, &got, &want, &c->bs, &start);
    raw_free(&raw);
    set_free(&got);
    set_free(&start);
    set_free(&want);
}

/* Does the instance walk time from the last row to the first? */
static bool reversed(const cell_desc *d)
{
    for (int i = 0; i < d->n_bindings; i++)
        if (strcmp(d->bindings[i].name, "reverse") == 0)
            return strcmp(d->bindings[i].value, "true") == 0;
    return false;
}

/* Where steps [from, from + steps) begin. */
static int64_t first_row(const Case *c, int64_t from, int64_t steps)
{
    return reversed(c->d) ? c->sizes[CELL_SIZE_T] - from - steps : from;
}

/* Copies steps [from, from + steps) of a timed argument between a tensor of all steps and a piece of it. */
static void copy_piece(const Case *c, double *whole, double *piece, int64_t n_whole, int64_t from,
                       int64_t steps, bool in)
{
    int64_t B = c->sizes[0], T = c->sizes[1], row = B > 0 && T > 0 ? n_whole / (B * T) : 0;
    int64_t first = first_row(c, from, steps);
    for (int64_t b = 0; b < B; b++) {
        double *w = whole + (b * T + first) * row, *p = piece + b * steps * row;
        memcpy(in ? p : w, in ? w : p, sizeof(double) * (size_t)(steps * row));
    }
}

/* A piece of steps of a call's list: timed inputs are cut out of the whole, the others are its own. */
static Set piece_of(const Case *c, char which, const int64_t *sizes, const Set *whole, int64_t from)
{
    int n;
    const cell_arg *args = call_args(c->d, which, &n);
    Set s = set_new(c->d, args, n, sizes);
    for (int i = 0; i < n; i++) {
        if (written(c->d, &args[i]))
            continue;
        if (c->d->tensors[args[i].tensor].kind == CELL_LENGTHS)
            for (int64_t b = 0; b < s.n[i]; b++)
                s.v[i][b] = fmin(fmax(whole->v[i][b] - (double)first_row(c, from, sizes[1]), 0), (double)sizes[1]);
        else if (is_timed(c->d, &args[i]))
            copy_piece(c, whole->v[i], s.v[i], whole->n[i], from, sizes[1], true);
        else
            memcpy(s.v[i], whole->v[i], sizeof(double) * (size_t)s.n[i]);
    }
    return s;
}

static int find_arg(const cell_arg *args, int n, int tensor, int role)
{
    for (int i = 0; i < n; i++)
        if (args[i].tensor == tensor && args[i].role == role)
            return i;
    return -1;
}

/* Arguments of one role become those of another: final states the next initial ones, their adjoints the other
 * way. */
static void carry(const cell_arg *from_args, int n_from, const Set *from, int from_role,
                  const cell_arg *to_args, int n_to, Set *to, int to_role)
{
    for (int i = 0; i < n_to; i++) {
        int k = to_args[i].role == to_role ? find_arg(from_args, n_from, to_args[i].tensor, from_role) : -1;
        if (k >= 0 && from->n[k] == to->n[i])
            memcpy(to->v[i], from->v[k], sizeof(double) * (size_t)to->n[i]);
    }
}

/* A piece's results go to the whole: timed ones to their steps, the others replace what is there. */
static void gather(const Case *c, char which, const int64_t *sizes, Set *piece, int64_t from, Set *whole)
{
    int n;
    const cell_arg *args = call_args(c->d, which, &n);
    for (int i = 0; i < n; i++) {
        if (!written(c->d, &args[i]))
            continue;
        if (is_timed(c->d, &args[i]))
            copy_piece(c, whole->v[i], piece->v[i], whole->n[i], from, sizes[1], false);
        else
            memcpy(whole->v[i], piece->v[i], sizeof(double) * (size_t)whole->n[i]);
    }
}

static void sizes_of_piece(const Case *c, int64_t from, int64_t steps, int64_t *sizes)
{
    memcpy(sizes, c->sizes, sizeof c->sizes);
    sizes[CELL_SIZE_T] = steps;
    sizes[c->d->n_sizes - 1] += from;
}

/* Forward over a piece; its results go into `whole`, its final states into `state` (a forward set of one
 * step). */
static void forward_piece(Case *c, char which, int64_t from, int64_t steps, Guarded *reserve, Set *state,
                          Set *whole)
{
    const cell_desc *d = c->d;
    int64_t sizes[CELL_MAX_SIZES];
    int n = d->n_forward_args;
    sizes_of_piece(c, from, steps, sizes);
    Set in = piece_of(c, which, sizes, &c->f, from);
    if (from > 0)
        carry(d->forward_args, n, state, CELL_ROLE_FINAL, d->forward_args, n, &in, CELL_ROLE_VALUE);
    Raw raw = run_call(c, &(Call){ .which = which, .sizes = sizes, .in = &in, .reserve = reserve });
    Set got = values_of(d, d->forward_args, n, &raw);
    gather(c, which, sizes, &got, from, whole);
    set_free(state);
    *state = got;
    raw_free(&raw);
    set_free(&in);
}

static void step_by_step(Case *c)
{
    const cell_desc *d = c->d;
    int n = d->n_forward_args;
    Set state = { 0 }, whole = set_new(d, d->forward_args, n, c->sizes);
    for (int64_t t = 0; t < c->sizes[CELL_SIZE_T]; t++)
        forward_piece(c, 's', t, 1, NULL, &state, &whole);
    compare(c, "step by step", d->forward_args, n, &whole, &c->f, &c->fs, NULL);
    set_free(&state);
    set_free(&whole);
}

/* Backward over a piece. Gradients of params add up over the pieces in `grads`, a backward set of the whole.
 */
static void backward_piece(Case *c, int64_t from, int64_t steps, Guarded *reserve, const Set *initial,
                           Set *adjoint, Set *grads)
{
    const cell_desc *d = c->d;
    int64_t sizes[CELL_MAX_SIZES];
    int n = d->n_backward_args;
    sizes_of_piece(c, from, steps, sizes);
    Set in = piece_of(c, 'b', sizes, &c->b, from), start = set_new(d, d->backward_args, n, sizes);
    if (initial)
        carry(d->forward_args, d->n_forward_args, initial, CELL_ROLE_FINAL, d->backward_args, n, &in,
              CELL_ROLE_VALUE);
    if (adjoint->v[0])
        carry(d->backward_args, n, adjoint, CELL_ROLE_D_VALUE, d->backward_args, n, &in, CELL_ROLE_D_FINAL);
    for (int i = 0; i < n; i++)
        if (d->backward_args[i].role == CELL_ROLE_D_VALUE &&
            d->tensors[d->backward_args[i].tensor].kind == CELL_PARAM)
            memcpy(start.v[i], grads->v[i], sizeof(double) * (size_t)start.n[i]);
    Raw raw = run_call(c, &(Call){ .which = 'b',
                                   .sizes = sizes,
                                   .in = &in,
                                   .start = &start,
                                   .flags = CELL_ACCUMULATE,
                                   .reserve = reserve });
    Set got = values_of(d, d->backward_args, n, &raw);
    gather(c, 'b', sizes, &got, from, grads);
    set_free(adjoint);
    *adjoint = got;
    raw_free(&raw);
    set_free(&in);
    set_free(&start);
}

static void two_pieces(Case *c)
{
    const cell_desc *d = c->d;
    int64_t T = c->sizes[CELL_SIZE_T], cut = (T + 1) / 2, sizes[CELL_MAX_SIZES];
    Set state = { 0 }, adjoint = { 0 }, outs = set_new(d, d->forward_args, d->n_forward_args, c->sizes);
    Set grads = set_new(d, d->backward_args, d->n_backward_args, c->sizes);
    sizes_of_piece(c, 0, cut, sizes);
    Guarded first = reserve_for(c, sizes);
    sizes_of_piece(c, cut, T - cut, sizes);
    Guarded second = reserve_for(c, sizes);
    forward_piece(c, 'f', 0, cut, &first, &state, &outs);
    Set middle = state;
    state = set_new(d, d->forward_args, d->n_forward_args, sizes);
    carry(d->forward_args, d->n_forward_args, &middle, CELL_ROLE_FINAL, d->forward_args, d->n_forward_args,
          &state, CELL_ROLE_FINAL);
    forward_piece(c, 'f', cut, T - cut, &second, &state, &outs);
    compare(c, "in two pieces", d->forward_args, d->n_forward_args, &outs, &c->f, &c->fs, NULL);
    backward_piece(c, cut, T - cut, &second, &middle, &adjoint, &grads);
    backward_piece(c, 0, cut, &first, NULL, &adjoint, &grads);
    compare(c, "in two pieces", d->backward_args, d->n_backward_args, &grads, &c->b, &c->bs, NULL);
    guarded_free(c, &first, "reserve");
    guarded_free(c, &second, "reserve");
    set_free(&state);
    set_free(&middle);
    set_free(&adjoint);
    set_free(&outs);
    set_free(&grads);
}

/* May a call begin at another step than 0? Not where earlier steps are read that nobody carries. */
static bool continues(Case *c)
{
    int64_t sizes[CELL_MAX_SIZES];
    size_t bytes;
    sizes_of_piece(c, 1, 1, sizes);
    return cell_workspace_bytes(c->ctx, c->d, sizes, &bytes) == CELL_OK;
}

/* One call both ways whose reserve has so many bytes. again: the bits that the first such call left, or
 * NULL. */
static void recompute(Case *c, size_t bytes, char which, const Set *in, const Set *start, Guarded *reserve,
                      const Set *want, const Raw *again, Raw *got)
{
    int n;
    const cell_arg *args = call_args(c->d, which, &n);
    char what[96];
    snprintf(what, sizeof what, start ? "accumulated in pieces, %zu bytes" : "in pieces, %zu bytes", bytes);
    *got = run_call(c, &(Call){ .which = which,
                                .sizes = c->sizes,
                                .in = in,
                                .start = start,
                                .reserve = reserve,
                                .flags = CELL_RECOMPUTE | (start ? CELL_ACCUMULATE : 0) });
    Set values = values_of(c->d, args, n, got);
    compare(c, what, args, n, &values, want, which == 'f' ? &c->fs : &c->bs, start);
    if (again)
        same_bits(c, "a second run in pieces gives other bits", which, got, again);
    set_free(&values);
}

/* With a budget for the reserve: the gradients of the call without, in memory of just the bytes that
 * were asked for. again: and the same bits in a second run. */
static void in_budget(Case *c, size_t budget, bool again)
{
    size_t bytes, workspace;
    Raw first[2] = { 0 }, second[2] = { 0 };
    if (cell_recompute_bytes(c->ctx, c->d, c->sizes, budget, &bytes, &workspace) != CELL_OK) {
        verdict(c, false, "a budget is refused", cell_last_error(c->ctx));
        return;
    }
    verdict(c, bytes <= budget, "a reserve has more bytes than its budget", "");
    for (int run = 0; run < 1 + again; run++) {
        Guarded reserve = reserve_of(c, bytes);
        Raw *got = run ? second : first;
        recompute(c, bytes, 'f', &c->f, NULL, &reserve, &c->f, run ? &first[0] : NULL, &got[0]);
        recompute(c, bytes, 'b', &c->b, NULL, &reserve, &c->b, run ? &first[1] : NULL, &got[1]);
        guarded_free(c, &reserve, "reserve");
    }
    for (int i = 0; i < 2; i++) {
        raw_free(&first[i]);
        raw_free(&second[i]);
    }
}

/* A gradient of a param in 16 bits is rounded at each piece that adds to it: behind hundreds of pieces the
 * limits, which know one such rounding, say nothing of it. */
static void leave_sums_of_many_pieces(const Case *c, const cell_arg *args, int n, Set *values)
{
    enum { MANY = 256 };
    for (int i = 0; i < n && c->sizes[CELL_SIZE_T] > MANY; i++)
        if (args[i].role == CELL_ROLE_D_VALUE && c->d->tensors[args[i].tensor].kind == CELL_PARAM &&
            cell_dtype_bytes((cell_dtype)args[i].dtype) == 2)
            values->n[i] = 0;
}

/* The same with the states in front of the pieces in host memory, in the least of both, twice: in the second
 * run the memory is used again without waiting for anything. Whether there are such states. */
static bool offloaded(Case *c)
{
    size_t least, host;
    void *pinned;
    Raw first[2] = { 0 }, got[2] = { 0 };
    cell_offload_bytes(c->ctx, c->d, c->sizes, 1, &least, NULL, NULL);
    if (cell_offload_bytes(c->ctx, c->d, c->sizes, least, NULL, &host, NULL) != CELL_OK) {
        verdict(c, false, "the least budget with states in host memory is refused", cell_last_error(c->ctx));
        return false;
    }
    if (!host)
        return false;
    if (cell_alloc_pinned(c->ctx, &pinned, host) != CELL_OK) {
        verdict(c, false, "no pinned memory", cell_last_error(c->ctx));
        return false;
    }
    Guarded reserve = reserve_of(c, least);
    for (int run = 0; run < 2; run++)
        for (int back = 0; back < 2; back++) {
            int n;
            char which = back ? 'b' : 'f';
            const cell_arg *args = call_args(c->d, which, &n);
            const Set *in = back ? &c->b : &c->f;
            Raw *now = run ? &got[back] : &first[back];
            *now = run_call(c, &(Call){ .which = which,
                                        .sizes = c->sizes,
                                        .in = in,
                                        .reserve = &reserve,
                                        .host = pinned,
                                        .host_bytes = host,
                                        .flags = CELL_RECOMPUTE | CELL_OFFLOAD });
            Set values = values_of(c->d, args, n, now);
            leave_sums_of_many_pieces(c, args, n, &values);
            compare(c, "in pieces, states in host memory", args, n, &values, in, back ? &c->bs : &c->fs,
                    NULL);
            if (run)
                same_bits(c, "a second run with states in host memory gives other bits", which, now,
                          &first[back]);
            set_free(&values);
        }
    guarded_free(c, &reserve, "reserve");
    cell_context_set_host(c->ctx, NULL, 0);
    cell_free_pinned(c->ctx, pinned);
    for (int i = 0; i < 2; i++) {
        raw_free(&first[i]);
        raw_free(&got[i]);
    }
    return true;
}

/* Pieces of a call of less than STEPS steps differ only in where they lie in memory. Off a GPU each backend
 * makes them for the first such size, and for all sizes of more steps. */
static bool in_few_pieces(const Case *c)
{
    enum { STEPS = 4, BACKENDS = 8 };
    static bool made[BACKENDS];
    int backend = cell_backend_of(c->ctx);
    if (backend == CELL_BACKEND_CUDA || c->sizes[CELL_SIZE_T] >= STEPS || getenv("FULL"))
        return false;
    bool before = made[backend];
    made[backend] |= c->sizes[CELL_SIZE_T] > 1;
    return before;
}

/* The least budget, one between it and all, and one byte less than the least, which is refused. */
static void recomputed(Case *c)
{
    size_t whole, least, workspace;
    cell_status status = cell_reserve_bytes(c->ctx, c->d, c->sizes, &whole);
    if (status != CELL_OK || whole == 0 ||
        cell_recompute_bytes(c->ctx, c->d, c->sizes, 1, &least, &workspace) == CELL_OK)
        return;
    verdict(c, least > 1 && least <= whole, "the least reserve is more than that of all steps",
            cell_last_error(c->ctx));
    status = cell_recompute_bytes(c->ctx, c->d, c->sizes, least - 1, NULL, NULL);
    verdict(c, status == CELL_TOO_SMALL, "a reserve of less than the least is taken", "");
    if (least == whole || in_few_pieces(c))
        return;
    /* The runs with states in host memory are two of the same pieces. */
    bool twice = offloaded(c);
    in_budget(c, least, !twice || cell_backend_of(c->ctx) == CELL_BACKEND_CUDA || getenv("FULL"));
    if (whole - least > 2)
        in_budget(c, least + (whole - least) / 2, false);
}

/* A second run, inference, states in place, and some of the gradients, NULL cotangents and gradients that are
 * added. */
static void check_runs(Case *c)
{
    Guarded reserve = reserve_for(c, c->sizes), other = reserve_for(c, c->sizes);
    Raw f = forward(c, &reserve, NULL, false), b = backward(c, &reserve, &c->b, NULL);
    Raw f2 = forward(c, &other, NULL, false), b2 = backward(c, &other, &c->b, NULL);
    same_bits(c, "a second run gives other bits", 'f', &f, &f2);
    same_bits(c, "a second run gives other bits", 'b', &b, &b2);
    raw_free(&f2);
    raw_free(&b2);
    guarded_free(c, &other, "reserve");
    forward_identities(c, &f);
    subsets(c, &reserve, &b);
    null_cotangents(c, &reserve, true, false);
    null_cotangents(c, &reserve, false, true);
    accumulated(c, &reserve);
    guarded_free(c, &reserve, "reserve");
    raw_free(&f);
    raw_free(&b);
}

/* Steps in pieces: with a budget for the reserve, step by step, and two calls one after the other. */
static void check_pieces(Case *c)
{
    recomputed(c);
    if (c->d->total || !continues(c)) /* pieces of packed sequences are in tests/packed */
        return;
    step_by_step(c);
    if (c->sizes[CELL_SIZE_T] > 1)
        two_pieces(c);
}

void check_identities(Case *c, int which)
{
    if (which & IDENTITIES_OF_RUNS)
        check_runs(c);
    if (which & IDENTITIES_OF_PIECES)
        check_pieces(c);
}
