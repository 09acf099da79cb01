/* check_reference.c: the reference backend of `cellc check`. What comes in is a differentiated module; the C
 * that emit_c prints is compiled in double and loaded, and a case is run through its entry points as the
 * runtime would call them. Arguments that are not wanted are null; the reserve is poisoned. */
#include "check.h"
#include "ir/arguments.h"
#include "reference/reference.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "base/toolkit.h"
#include "emit/emit.h"

typedef int (*RunFn)(const int64_t *sizes, void *const *args, void *reserve, int flags);
typedef size_t (*BytesFn)(const int64_t *sizes);

typedef struct Reference {
    void *library;
    RunFn forward, backward, step;
    BytesFn reserve_bytes;
    CallArgs forward_args, backward_args;
    const Eval *matched;          /* the evaluator that eval_tensor is of */
    int *eval_tensor;             /* per tensor of the module: its number in the evaluator, -1 */
} Reference;

static bool write_text(const char *path, const Buf *text)
{
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(text->data, 1, text->len, f) == text->len;
    return f ? fclose(f) == 0 && ok : false;
}

/* Lean: without start files and libc, whose symbols the process has that loads the library. The linker reads
 * those for most of its time. Other compilers and systems may refuse this; what they say then is not shown. */
static const char *compile_shared(const Subject *s, const char *source, const char *object, bool lean)
{
    Words w = {0};
    words_split(s->c, &w, c_compiler());
    /* It runs for less time than it takes to optimise it. */
    words_split(s->c, &w, "-std=c11 -O0 -fPIC -shared -ffp-contract=off -DCELL_REAL=double -o");
    words_add(&w, object);
    words_add(&w, source);
    words_split(s->c, &w, lean ? "-nostdlib -lm -lgcc" : "-lm");
    const char *said = lean ? words_output(s->c, &w) : NULL;
    bool ok = lean ? said && !*said : run_words(&w, false) == 0;
    return ok ? NULL : "the generated C does not compile";
}

static void *symbol(const Subject *s, void *library, const char *suffix)
{
    return dlsym(library, intern_f(s->c, "%s_ref_%s", s->m->name, suffix));
}

/* Loads what was compiled. The file may go at once: the mapping stays. */
static const char *load(const Subject *s, Reference *r, const char *object)
{
    r->library = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    if (!r->library)
        return intern(s->c, dlerror());
    /* C has no conversion from void * to a function; POSIX promises this one. */
    *(void **)&r->forward = symbol(s, r->library, "forward");
    *(void **)&r->backward = symbol(s, r->library, "backward");
    *(void **)&r->step = symbol(s, r->library, "step");
    *(void **)&r->reserve_bytes = symbol(s, r->library, "reserve_bytes");
    if (!r->forward || !r->backward || !r->step || !r->reserve_bytes)
        return "an entry point of the generated C is missing";
    return NULL;
}

static void reference_close(void *self)
{
    Reference *r = self;
    if (r->library)
        dlclose(r->library);
    r->library = NULL;
}

/* A library that lacks a symbol does not load. What has not been built lean is not tried so again. */
static const char *build(const Subject *s, Reference *r, const char *source, const char *object)
{
    static bool lean = true;
    if (lean && !compile_shared(s, source, object, true) && !load(s, r, object))
        return NULL;
    reference_close(r);
    lean = false;
    const char *error = compile_shared(s, source, object, false);
    return error ? error : load(s, r, object);
}

/* For an evaluator at each sizes: which histories it has depends on them. */
static void match_tensors(const Subject *s, Reference *r)
{
    if (r->matched == s->e)
        return;
    r->matched = s->e;
    r->eval_tensor = arena_alloc(s->c->arena, sizeof *r->eval_tensor * (size_t)(s->m->tensors.len + 1));
    for (int i = 0; i < s->m->tensors.len; i++) {
        r->eval_tensor[i] = -1;
        for (int k = 0; k < s->e->ntensors; k++)
            if (s->m->tensors.data[i].kind <= T_OUTPUT &&
                strcmp(s->m->tensors.data[i].name, s->e->tensors[k].name) == 0)
                r->eval_tensor[i] = k;
    }
}

static void *reference_open(const Subject *s, const char **error)
{
    static int number;
    Reference *r = arena_alloc(s->c->arena, sizeof *r);
    Buf text = {.arena = s->c->arena};
    emit_c(s->m, &text);
    const char *source = intern_f(s->c, "%s/ref%d.c", s->dir, ++number);
    const char *object = intern_f(s->c, "%s/ref%d.so", s->dir, number);
    *error = write_text(source, &text) ? build(s, r, source, object) : strerror(errno);
    unlink(source);
    unlink(object);
    if (*error) {
        reference_close(r);
        return NULL;
    }
    r->forward_args = forward_arguments(s->m);
    r->backward_args = backward_arguments(s->m);
    return r;
}

/* Sizes as the entry points take them: B, T, the run-time dims in their order, t0. */
static int64_t *call_sizes(const Subject *s, int64_t batch, int64_t steps, int64_t t0)
{
    int64_t *sizes = arena_alloc(s->c->arena, sizeof *sizes * (size_t)(s->m->dims.len + 3));
    sizes[0] = batch;
    sizes[1] = steps;
    for (int i = 0; i < s->m->dims.len; i++)
        for (int k = 0; k < s->e->ndims; k++)
            if (strcmp(s->m->dims.data[i], s->e->dims[k].name) == 0)
                sizes[2 + i] = s->e->dims[k].value;
    sizes[2 + s->m->dims.len] = t0;
    return sizes;
}

/* Integer tensors are int32_t to generated code. */
static void *integers(const Subject *s, const Case *k, int tensor, const double *v)
{
    int64_t n = case_count(k, &s->e->tensors[tensor]);
    int32_t *ints = arena_alloc(s->c->arena, sizeof *ints * (size_t)(n + 1));
    for (int64_t i = 0; v && i < n; i++)
        ints[i] = (int32_t)v[i];
    return ints;
}

static void *as_argument(const Subject *s, const Case *k, int tensor)
{
    double *v = k->value[tensor];
    return v && s->e->tensors[tensor].is_int ? integers(s, k, tensor, v) : v;
}

/* And what it left of them is read back. */
static void take_integers(const Subject *s, const Reference *r, const CallArgs *list, const Case *k, Result *out,
                          void *const *args)
{
    for (int i = 0; i < list->len; i++) {
        int n = r->eval_tensor[list->data[i].tensor];
        if (n < 0 || list->data[i].role != ROLE_FINAL || !s->e->tensors[n].is_int || !args[i])
            continue;
        for (int64_t j = 0; j < case_count(k, &s->e->tensors[n]); j++)
            out->out[n][j] = ((const int32_t *)args[i])[j];
    }
}

static void **call_args(const Subject *s, const Reference *r, const CallArgs *list, const Case *k,
                        Result *out)
{
    void **args = arena_alloc(s->c->arena, sizeof *args * (size_t)(list->len + 1));
    for (int i = 0; i < list->len; i++) {
        int n = r->eval_tensor[list->data[i].tensor];
        if (n < 0)
            continue;
        switch (list->data[i].role) {
        case ROLE_VALUE:
            args[i] = s->e->tensors[n].kind == EV_OUTPUT ? (void *)out->out[n] : as_argument(s, k, n);
            break;
        case ROLE_FINAL:
            args[i] = out->out[n] && s->e->tensors[n].is_int ? integers(s, k, n, NULL) : (void *)out->out[n];
            break;
        case ROLE_D_VALUE: args[i] = out->grad ? out->grad[n] : NULL; break;
        case ROLE_D_OUT:
        case ROLE_D_FINAL: args[i] = k->cotangent[n]; break;
        }
    }
    return args;
}

static const char *status_text(Compiler *c, const char *what, int status)
{
    return status ? intern_f(c, "%s gave status %d", what, status) : NULL;
}

/* One step at a time for one sequence after the other would be a different layout: the whole batch makes each
 * step, so inputs and outputs of one step are gathered and scattered. */
static const char *run_stepwise(Reference *r, const Subject *s, const Case *k, Result *out)
{
    Case one = *k;
    one.steps = 1;
    size_t n = (size_t)s->e->ntensors + 1;
    one.value = arena_alloc(s->c->arena, sizeof *one.value * n);
    memcpy(one.value, k->value, sizeof *one.value * (n - 1));
    Result *part = result_new(s, &one, false);
    for (int64_t t = 0; t < k->steps; t++) {
        int64_t row = first_row(s, k, t, 1);
        for (int i = 0; i < s->e->ntensors; i++) {
            const EvalTensor *x = &s->e->tensors[i];
            if (x->kind != EV_INPUT)
                continue;
            one.value[i] = arena_alloc(s->c->arena, sizeof(double) * (size_t)(k->batch * x->count + 1));
            for (int64_t b = 0; b < k->batch && x->lengths; b++)
                one.value[i][b] = k->value[i][b] > (double)row;
            for (int64_t b = 0; b < k->batch && !x->lengths; b++)
                memcpy(one.value[i] + b * x->count, k->value[i] + (b * k->steps + row) * x->count,
                       sizeof(double) * (size_t)x->count);
        }
        void **args = call_args(s, r, &r->forward_args, &one, part);
        int status = r->step(call_sizes(s, k->batch, 1, k->first + t), args, NULL, 0);
        if (status)
            return status_text(s->c, "step", status);
        take_integers(s, r, &r->forward_args, &one, part, args);
        for (int i = 0; i < s->e->ntensors; i++) {
            const EvalTensor *x = &s->e->tensors[i];
            if (x->kind == EV_STATE)
                one.value[i] = part->out[i];      /* in place from the second step on */
            for (int64_t b = 0; x->kind == EV_OUTPUT && b < k->batch; b++)
                memcpy(out->out[i] + (b * k->steps + row) * x->count, part->out[i] + b * x->count,
                       sizeof(double) * (size_t)x->count);
        }
    }
    for (int i = 0; i < s->e->ntensors; i++)
        if (s->e->tensors[i].kind == EV_STATE && k->steps > 0)
            memcpy(out->out[i], part->out[i], sizeof(double) * (size_t)case_count(k, &s->e->tensors[i]));
    return NULL;
}

static const char *reference_run(void *self, const Subject *s, const Case *k, Result *out, int flags)
{
    Reference *r = self;
    match_tensors(s, r);
    if (flags & CASE_STEPWISE)
        return run_stepwise(r, s, k, out);
    int64_t *sizes = call_sizes(s, k->batch, k->steps, k->first);
    size_t bytes = flags & CASE_INFERENCE ? 0 : r->reserve_bytes(sizes);
    void *reserve = flags & CASE_INFERENCE ? NULL : malloc(bytes + 16);
    if (reserve)
        memset(reserve, 0xff, bytes + 16);        /* NaN in every type, and a canary behind */
    void **args = call_args(s, r, &r->forward_args, k, out);
    const char *error = status_text(s->c, "forward", r->forward(sizes, args, reserve, 0));
    if (!error)
        take_integers(s, r, &r->forward_args, k, out, args);
    if (!error && reserve)
        error = status_text(s->c, "backward",
                            r->backward(sizes, call_args(s, r, &r->backward_args, k, out), reserve,
                                        flags & CASE_ACCUMULATE ? 1 : 0));
    for (size_t i = 0; reserve && !error && i < 16; i++)
        if (((unsigned char *)reserve)[bytes + i] != 0xff)
            error = "something was written behind the reserve";
    free(reserve);
    return error;
}

const Backend reference_backend = {"reference", reference_open, reference_run, reference_close};
