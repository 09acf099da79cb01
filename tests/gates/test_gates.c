/* test_gates.c: cells whose gates are as large or as small as they may be. In: all specs of specs/, or those of the
 * command line. Each, in every value of its options, is compiled as a user has it (f32; REAL=double: f64; REAL=bf16: in
 * f32, with `: dtype` rounding to bf16) and run forwards and backwards with every input and every param in turn at 110,
 * beyond which exp overflows f32, and at 1e4. No output, final state or gradient may then be infinite or no number, and
 * outputs must be the evaluator's in double precision. Before that come cells whose values are known. */
#include <dirent.h>
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "commands/check.h"
#include "commands/commands.h"
#include "emit/emit.h"
#include "ir/arguments.h"
#include "pipeline.h"
#include "reference/reference.h"

static const double too_large = 1e12;     /* a named value whose cube may overflow f32, so that spec and test say nothing of it */
static const double nothing = 1e-20;      /* what may vanish beside numbers of ordinary size */
enum { BATCH = 1, STEPS = 3 };

static int passed, failed;
static bool single = true;
static Dtype type = DT_F32;
static char dir[] = "/tmp/cellc-gates-XXXXXX";

typedef int (*RunFn)(const int64_t *sizes, void *const *args, void *reserve, int flags);
typedef size_t (*BytesFn)(const int64_t *sizes);

typedef struct Cell {
    Compiler *c;
    Module *m;
    Eval *e;
    void *library;
    RunFn forward, backward;
    BytesFn reserve_bytes;
    const char *label;
} Cell;

/* What a run gave, by the evaluator's tensors; NULL where there is nothing. */
typedef struct Values { double **out, **grad; } Values;

/* ---- compiling */

static void compile_code(Cell *k)
{
    static int number;
    Buf text = {.arena = k->c->arena};
    Words w = {0};
    const char *cc = getenv("CC"), *at = intern_f(k->c, "%s/%d", dir, ++number);
    const char *source = intern_f(k->c, "%s.c", at), *object = intern_f(k->c, "%s.so", at);
    FILE *f = fopen(source, "wb");
    emit_c(k->m, &text);
    if (!f || fwrite(text.data, 1, text.len, f) != text.len || fclose(f) != 0)
        return;
    words_split(k->c, &w, cc && *cc ? cc : "cc");
    /* Symbols of libc are this program's own: to look through the library takes as long as to compile. */
    words_split(k->c, &w, "-std=c11 -O0 -fPIC -shared -nostdlib -ffp-contract=off -o");
    words_add(&w, object);
    words_add(&w, source);
    words_split(k->c, &w, single ? "-DCELL_REAL=float -lm -lgcc" : "-DCELL_REAL=double -lm -lgcc");
    if (run_words(&w, false) == 0 && (k->library = dlopen(object, RTLD_NOW | RTLD_LOCAL))) {
        *(void **)&k->forward = dlsym(k->library, intern_f(k->c, "%s_ref_forward", k->m->name));
        *(void **)&k->backward = dlsym(k->library, intern_f(k->c, "%s_ref_backward", k->m->name));
        *(void **)&k->reserve_bytes = dlsym(k->library, intern_f(k->c, "%s_ref_reserve_bytes", k->m->name));
    }
    unlink(source);
    unlink(object);
}

static int64_t size_of(const Cell *k, const char *dim)
{
    for (int i = 0; i < k->e->ndims; i++)
        if (strcmp(dim, k->e->dims[i].name) == 0)
            return k->e->dims[i].value;
    return EVAL_ROOM;             /* `history` */
}

static bool sizes_allowed(const Cell *k)
{
    int64_t dims[MAX_DIMS] = {[ATOM_T] = STEPS, [ATOM_PAST] = STEPS};
    for (int i = 0; i < k->m->dims.len && i < MAX_DIMS; i++)
        dims[i] = size_of(k, k->m->dims.data[i]);
    for (int i = 0; i < k->m->checks.len; i++)
        if (poly_eval(k->m, k->m->checks.data[i].nonneg, dims) < 0)
            return false;
    return true;
}

/* Has every definition of the cell written, besides its outputs. */
static void watch_all(Eval *e, const Ast *ast)
{
    const Stmt *cell = NULL;
    for (int i = 0; i < ast->items.len; i++)
        if (ast->items.data[i]->kind == S_CELL)
            cell = ast->items.data[i];
    for (int i = 0; cell && i < cell->body.len; i++) {
        const Stmt *d = cell->body.data[i];
        const char *name = d->primed ? intern_f(e->c, "%s'", d->name) : d->name;
        if (d->kind == S_EQ && !eval_find(e, name))
            eval_watch(e, name);
    }
}

/* ---- running */

static int tensor_of(const Cell *k, TensorId t)
{
    for (int i = 0; i < k->e->ntensors; i++)
        if (k->m->tensors.data[t].kind <= T_OUTPUT && strcmp(k->m->tensors.data[t].name, k->e->tensors[i].name) == 0)
            return i;
    return -1;
}

static double *doubles(const Cell *k, int64_t n)
{
    return arena_alloc(k->c->arena, sizeof(double) * (size_t)(n + 1));
}

static void *stored(const Cell *k, const EvalTensor *t, double *v, int64_t n)
{
    if (!t->is_int && !single)
        return v;
    void *all = arena_alloc(k->c->arena, 4 * (size_t)(n + 1));
    for (int64_t i = 0; i < n; i++)
        if (t->is_int)
            ((int32_t *)all)[i] = (int32_t)v[i];
        else
            ((float *)all)[i] = (float)v[i];
    return all;
}

static double *place_of(const Cell *k, const CallArg *a, int n, const Case *one, Values v)
{
    switch (a->role) {
    case ROLE_VALUE: return k->e->tensors[n].kind == EV_OUTPUT ? v.out[n] : one->value[n];
    case ROLE_FINAL: return v.out[n];
    case ROLE_D_VALUE: return v.grad[n];
    default: return one->cotangent[n];
    }
}

static void **arguments(const Cell *k, const CallArgs *list, const Case *one, Values v)
{
    void **args = arena_alloc(k->c->arena, sizeof *args * (size_t)(list->len + 1));
    for (int i = 0; i < list->len; i++) {
        int n = tensor_of(k, list->data[i].tensor);
        double *x = n < 0 ? NULL : place_of(k, &list->data[i], n, one, v);
        if (x)
            args[i] = stored(k, &k->e->tensors[n], x, case_count(one, &k->e->tensors[n]));
    }
    return args;
}

static void read_back(const Cell *k, const CallArgs *list, const Case *one, Values v, void **args)
{
    for (int i = 0; single && i < list->len; i++) {
        int n = tensor_of(k, list->data[i].tensor);
        double *x = n < 0 || k->e->tensors[n].is_int ? NULL : place_of(k, &list->data[i], n, one, v);
        for (int64_t j = 0; x && args[i] && j < case_count(one, &k->e->tensors[n]); j++)
            x[j] = ((float *)args[i])[j];
    }
}

static bool run_code(const Cell *k, const Case *one, Values v)
{
    int64_t sizes[MAX_DIMS + 3] = {one->batch, one->steps};
    for (int i = 0; i < k->m->dims.len; i++)
        sizes[2 + i] = size_of(k, k->m->dims.data[i]);
    CallArgs f = forward_arguments(k->m), b = backward_arguments(k->m);
    void *reserve = malloc(k->reserve_bytes(sizes) + 1);
    void **fa = arguments(k, &f, one, v), **ba = arguments(k, &b, one, v);
    bool ok = k->forward(sizes, fa, reserve, 0) == 0 && k->backward(sizes, ba, reserve, 0) == 0;
    read_back(k, &f, one, v, fa);
    read_back(k, &b, one, v, ba);
    free(reserve);
    return ok;
}

/* Values of all that is written; with `bounds` how far roundings may move them, in those of one operation. */
static bool evaluate(const Cell *k, const Case *one, double **out, bool bounds)
{
    Eval *e = k->e;
    case_bind(one, e);
    for (int i = 0; i < e->ntensors; i++)
        *(bounds ? &e->tensors[i].out_tangent[2] : &e->tensors[i].out) = out[i];
    e->magnitudes = bounds;
    bool ok = eval_run(e, one->batch, one->steps, 0);
    e->magnitudes = false;
    for (int i = 0; i < e->ntensors; i++)
        e->tensors[i].out = e->tensors[i].out_tangent[2] = NULL;
    return ok;
}

static Values values_new(const Cell *k, const Case *one)
{
    size_t n = sizeof(double *) * (size_t)(k->e->ntensors + 1);
    Values v = {arena_alloc(k->c->arena, n), arena_alloc(k->c->arena, n)};
    for (int i = 0; i < k->e->ntensors; i++) {
        const EvalTensor *t = &k->e->tensors[i];
        if (t->kind == EV_OUTPUT || t->kind == EV_STATE || t->kind == EV_WATCH)
            v.out[i] = doubles(k, case_count(one, t));
        if ((t->kind == EV_INPUT || t->kind == EV_PARAM || t->kind == EV_STATE) && !t->no_grad && one->value[i])
            v.grad[i] = doubles(k, case_count(one, t));
    }
    return v;
}

/* ---- judging */

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; x && i < n; i++)
        most = isfinite(x[i]) ? fmax(most, fabs(x[i])) : INFINITY;
    return most;
}

/* What is wrong with the values of a run, by the evaluator's; NULL: nothing. */
static const char *fault(const Cell *k, const Case *one, double **expect, Values v)
{
    Eval *e = k->e;
    double **bound = NULL, unit = (type == DT_BF16 ? 0x1p44 : single ? 0x1p29 : 1) * 2 * EVAL_ROUNDING, moved = 0;
    for (int i = 0; i < e->ntensors; i++) {
        int64_t n = case_count(one, &e->tensors[i]);
        if (e->tensors[i].kind != EV_WATCH && !isfinite(largest(v.out[i], n)))
            return intern_f(k->c, "%s is not finite", e->tensors[i].name);
        if (!isfinite(largest(v.grad[i], n)))
            return intern_f(k->c, "the gradient of %s is not finite", e->tensors[i].name);
    }
    for (int i = 0; i < e->ntensors; i++)
        for (int64_t j = 0; expect[i] && e->tensors[i].kind != EV_WATCH && j < case_count(one, &e->tensors[i]); j++) {
            double off = fabs(v.out[i][j] - expect[i][j]);
            if (off <= nothing || off <= 16 * unit * fabs(expect[i][j]))
                continue;
            if (!bound) {
                bound = values_new(k, one).out;
                evaluate(k, one, bound, true);
                for (int l = 0; l < e->ntensors; l++)
                    moved = fmax(moved, unit * largest(bound[l], case_count(one, &e->tensors[l])));
            }
            /* Where a value may be off by one and more, what is made of it is another thing. */
            if (moved < 1 && off > nothing + unit * bound[i][j])
                return intern_f(k->c, "%s is %g, not %g", e->tensors[i].name, v.out[i][j], expect[i][j]);
        }
    return NULL;
}

static void report(const Cell *k, const char *what, const char *wrong)
{
    passed += !wrong;
    failed += wrong != NULL;
    if (wrong)
        printf("%s, %s: %s\n", k->label, what, wrong);
}

static void run_case(const Cell *k, Case *one, const char *what)
{
    Eval *e = k->e;
    double most = 0;
    for (int i = 0; i < e->ntensors; i++)
        for (int64_t j = 0; j < case_count(one, &e->tensors[i]); j++) {
            if (one->value[i])
                one->value[i][j] = (float)one->value[i][j];
            if (one->cotangent[i])
                one->cotangent[i][j] = (float)one->cotangent[i][j];
        }
    Values expect = values_new(k, one), v = values_new(k, one);
    if (!evaluate(k, one, expect.out, false) || !run_code(k, one, v)) {
        report(k, what, e->run_error ? e->run_error : "the call fails");
        return;
    }
    for (int i = 0; i < e->ntensors; i++) {
        double here = largest(expect.out[i], case_count(one, &e->tensors[i]));
        most = fmax(most, here);
        if (!isfinite(here)) {
            report(k, what, intern_f(k->c, "%s is not finite in double", e->tensors[i].name));
            return;
        }
    }
    if (most <= too_large)
        report(k, what, fault(k, one, expect.out, v));
}

static bool may_be_large(const EvalTensor *t)
{
    return !t->is_int && !t->lengths && (t->kind == EV_INPUT || t->kind == EV_PARAM);
}

/* All inputs, then each input and param alone; of one sign and the other, and of both. */
static void run_cases(const Cell *k)
{
    static const double sizes[] = {110, 1e4};
    static const char *const signs[] = {"-", "+-", "+"};
    for (int which = -1; which < k->e->ntensors; which++)
        for (int n = 0; n < 6; n++) {
            Random r = {UINT64_C(0x9a7e)};
            if (which >= 0 && !may_be_large(&k->e->tensors[which]))
                break;
            CaseState state = which < 0 && n % 2 ? CASE_STATE_RANDOM : n % 3 ? CASE_STATE_DEFAULT : CASE_STATE_ZERO;
            Case *one = case_random(k->e, BATCH, STEPS, state, CASE_INPUT_NORMAL, 5);
            for (int i = 0; i < k->e->ntensors; i++) {
                const EvalTensor *t = &k->e->tensors[i];
                if (which != i && !(which < 0 && t->kind == EV_INPUT && may_be_large(t)))
                    continue;
                for (int64_t j = 0; j < case_count(one, t); j++)
                    one->value[i][j] = sizes[n / 3] * (n % 3 != 1 ? n % 3 - 1 : random_below(&r, 2) ? 1 : -1);
            }
            run_case(k, one, intern_f(k->c, "%s of %s%g", which < 0 ? "inputs" : k->e->tensors[which].name,
                                      signs[n % 3], sizes[n / 3]));
        }
}

/* ---- one cell */

static void close_cell(Cell *k)
{
    if (k->library)
        dlclose(k->library);
    compiler_free(k->c);
    fflush(stdout);
}

/* A spec at small sizes, or at the first of those of `cellc check` that it takes. false: it takes none. */
static bool open_cell(Cell *k, const char *path, const Compiler *user, const EvalOutline *outline, const Variant *v)
{
    for (int round = -1; round < N_ROUNDS; round++)
        for (int again = -1; again < N_ROUNDS; again++) {
            EvalSize sizes[2 * MAX_CHOSEN];
            int n = sizes_of_round(user, outline, round < 0 ? 0 : round, false, sizes);
            int m = sizes_of_round(user, outline, again < 0 ? 0 : again, true, sizes + n);
            for (int i = 0; i < n + m; i++)
                if ((i < n ? round : again) < 0)
                    sizes[i].value = 2 + i % 2;
            *k = (Cell){.c = compiler_like(user, v, sizes, n)};
            k->c->dtype = type;
            k->m = compile(k->c, path, reference_passes);
            int file = k->m ? source_load(k->c, path) : -1;
            const Ast *ast = file >= 0 ? parse_source(k->c, file) : NULL;
            k->e = ast ? eval_new(k->c, ast, NULL, sizes, n + m) : NULL;
            if (k->e && sizes_allowed(k)) {
                Buf b = {.arena = k->c->arena};
                watch_all(k->e, ast);
                eval_for_steps(k->e, STEPS);
                buf_f(&b, "%s", k->e->cell);
                for (int i = 0; v && i < v->n; i++)
                    buf_f(&b, " %s=%s", v->set[i].name, v->set[i].value);
                k->label = b.data;
                compile_code(k);
                return k->forward && k->backward && k->reserve_bytes;
            }
            compiler_free(k->c);
        }
    return false;
}

/* What is exp of an input or of what the step is called with is infinite where that is. */
static bool overflows(const char *label)
{
    return strncmp(label, "pointwise op=exp", 16) == 0 || strcmp(label, "complex_muladd op=exp") == 0;
}

static void run_spec(const char *path)
{
    Compiler *user = compiler_new();
    EvalOutline outline;
    user->import_dir = "specs";
    int file = source_load(user, path);
    Ast *ast = file >= 0 ? parse_source(user, file) : NULL;
    if (!ast || !eval_outline(user, ast, NULL, &outline)) {
        failed++;
        printf("%s cannot be read\n", path);
        return;
    }
    Variant *list = arena_alloc(user->arena, sizeof *list * MAX_VARIANTS);
    int n = list_variants(user, &outline, false, list);
    for (int i = 0; i < n; i++) {
        Cell k;
        if (!open_cell(&k, path, user, &outline, &list[i])) {
            failed++;
            printf("%s, variant %d: no sizes were found, or it does not compile\n", path, i);
            continue;
        }
        if (!overflows(k.label))
            run_cases(&k);
        close_cell(&k);
    }
    compiler_free(user);
}

/* ---- known values */

/* Values of what is read, inputs and params in the order of declaration, what must come out, and gradients of the sum
 * of all outputs. */
typedef struct Known {
    const char *what, *text;      /* of a cell without dims, or NULL: a spec */
    const char *spec, *option, *choice;   /* with all dims 1 */
    double state;                 /* all that the call gives of states; NAN: the call gives none */
    int64_t steps;
    double in[16], out[2], grad[16];
} Known;

#define OF_TWO(what, f, x0, x1, y, d0, d1) \
    {what, "import \"std.cell\"; cell c { input x[2]; output y; y = " f "; }", NULL, NULL, NULL, NAN, 1, \
     {x0, x1}, {y}, {d0, d1}}

static const Known known[] = {
    OF_TWO("logsumexp of nothing", "logsumexp(x)", -INFINITY, -INFINITY, -INFINITY, 0, 0),
    OF_TWO("logsumexp of infinity", "logsumexp(x)", INFINITY, 1, INFINITY, 0, 0),
    OF_TWO("logsumexp with nothing", "logsumexp(x)", -INFINITY, 1, 1, 0, 1),
    OF_TWO("logsumexp", "logsumexp(x)", 1e4, 1e4, 10000.693147180559945, 0.5, 0.5),
    OF_TWO("logaddexp of nothing", "logaddexp(x[0], x[1])", -INFINITY, -INFINITY, -INFINITY, 0.5, 0.5),
    OF_TWO("logaddexp of infinity", "logaddexp(x[0], x[1])", INFINITY, 1, INFINITY, 1, 0),
    OF_TWO("logaddexp of infinities", "logaddexp(x[0], x[1])", INFINITY, INFINITY, INFINITY, 0.5, 0.5),
    OF_TWO("logaddexp", "logaddexp(x[0], x[1])", -1e4, -9999, -9998.6867383124817772, 0.26894142136999512,
           0.73105857863000488),
    OF_TWO("share", "share(x[0], x[1])", -1e4, -1e4, 0.5, 0.25, -0.25),
    OF_TWO("share of nothing", "share(x[0], x[1])", -1e4, 0, 0, 0, 0),
    OF_TWO("share with nothing", "share(x[0], x[1])", 1, -INFINITY, 1, 0, 0),
    OF_TWO("share of the largest", "share(x[0], x[1])", -3e38, 3e38, 0, 0, 0),
    OF_TWO("logaddexp of the largest", "logaddexp(x[0], x[1])", 3e38, -3e38, 3e38, 1, 0),
    OF_TWO("logsumexp of the largest", "logsumexp(x)", 3e38, -3e38, 3e38, 1, 0),
    OF_TWO("softmax with nothing", "p[1]; p[i] = softmax[i] x[i]", -INFINITY, 1, 1, 0, 0),
    OF_TWO("log_softmax with nothing", "log_softmax(x)[1]", -INFINITY, 1, 0, 0, 0),
    OF_TWO("log_softmax of the largest", "log_softmax(x)[0]", 3e38, -3e38, 0, 0, 0),
    OF_TWO("log_cosh of the largest", "log_cosh(x[0]) - x[1]", -3e38, 1, 3e38, -1, -1),
    OF_TWO("log_cosh of infinity", "log_cosh(x[0]) + x[1]", -INFINITY, 1, INFINITY, -1, 1),
    OF_TWO("log_cosh", "log_cosh(x[0]) + x[1]", 1e4, 0.5, 9999.8068528194400547, 1, 1),
    OF_TWO("entmax15 with nothing", "entmax15(x)[1]", -INFINITY, 1, 1, 0, 0),
    OF_TWO("entmax15 of the largest", "entmax15(x)[0]", 3e38, -3e38, 1, 0, 0),
    OF_TWO("entmax15", "entmax15(x)[0]", 0.5, 0.25, 0.58804240366863, 0.34939662558259, -0.34939662558259),
    OF_TWO("topk_softmax with nothing", "topk_softmax(x, 1)[1]", -INFINITY, 1, 1, 0, 0),
    /* y = sigmoid(o) tanh(z) at both steps, for whatever i and f: wx at two steps, R, b. */
    {"a state that the spec begins", NULL, "slstm", "input", "given", NAN, 2, {1, -110, 5, 1, 1, -110, 5, 1},
     {0.55676994, 0.55676994}, {NAN}},
    {"a state of zeros", NULL, "slstm", "input", "given", 0, 2, {1, -110, 5, 1, 1, -110, 5, 1},
     {0.55676994, 0.55676994}, {NAN}},
    /* (f h + i g) / (f + i), g = 2.5: x, three gates, to_out. */
    {"both gates small", NULL, "minlstm", NULL, NULL, 4, 1, {1, 2, -110, -110, 1}, {3.25},
     {1, 0.5, 0.375, -0.375, 3.25}},
};

static void close_to(const Cell *k, const char *what, double got, double want)
{
    bool ok = got == want || fabs(got - want) <= 1e-6 * (1 + fabs(want));
    report(k, what, ok ? NULL : intern_f(k->c, "%g, not %g", got, want));
}

static bool open_known(Cell *k, const Known *t)
{
    Compiler *user = compiler_new();
    EvalOutline outline;
    Variant v = {.n = t->option != NULL, .set = {{t->option, t->choice, false}}};
    const char *path = t->spec ? intern_f(user, "specs/%s.cell", t->spec) : intern_f(user, "%s/known.cell", dir);
    FILE *f = t->spec ? NULL : fopen(path, "wb");
    if (f) {
        fputs(t->text, f);
        fclose(f);
    }
    user->import_dir = "specs";
    int file = source_load(user, path);
    bool ok = file >= 0 && eval_outline(user, parse_source(user, file), NULL, &outline);
    for (int i = 0; ok && i < outline.nall; i++)
        vec_push(user->arena, &user->dims, ((Setting){outline.all_dims[i], "1", false}));
    ok = ok && open_cell(k, path, user, &outline, &v);
    if (!t->spec)
        unlink(path);
    compiler_free(user);
    return ok;
}

static void run_known(const Known *t)
{
    Cell k;
    int at = 0;
    if (!open_known(&k, t)) {
        failed++;
        printf("%s: the cell does not compile\n", t->what);
        return;
    }
    CaseState state = isnan(t->state) ? CASE_STATE_DEFAULT : CASE_STATE_ZERO;
    Case *one = case_random(k.e, 1, t->steps, state, CASE_INPUT_NORMAL, 1);
    for (int i = 0; i < k.e->ntensors; i++)
        for (int64_t j = 0; j < case_count(one, &k.e->tensors[i]); j++) {
            if (may_be_large(&k.e->tensors[i]))
                one->value[i][j] = t->in[at++];
            else if (one->value[i])
                one->value[i][j] = t->state;
            if (one->cotangent[i])
                one->cotangent[i][j] = k.e->tensors[i].kind == EV_OUTPUT;
        }
    Values v = values_new(&k, one), expect = values_new(&k, one);
    report(&k, t->what, run_code(&k, one, v) && evaluate(&k, one, expect.out, false) ? NULL : "the call fails");
    for (int i = 0, grad = 0, out = 0; i < k.e->ntensors; i++)
        for (int64_t j = 0; j < case_count(one, &k.e->tensors[i]); j++) {
            if (may_be_large(&k.e->tensors[i]) && !isnan(t->grad[0]))
                close_to(&k, t->what, v.grad[i][j], t->grad[grad++]);
            if (k.e->tensors[i].kind != EV_OUTPUT)
                continue;
            close_to(&k, t->what, v.out[i][j], t->out[out]);
            close_to(&k, t->what, expect.out[i][j], t->out[out++]);
        }
    close_cell(&k);
}

/* The files of specs/ that hold a cell, in order. */
static int list_specs(Compiler *c, const char **list, int most)
{
    struct dirent **found;
    int n = scandir("specs", &found, NULL, alphasort), kept = 0;
    for (int i = 0; i < n; i++) {
        const char *name = found[i]->d_name, *dot = strrchr(name, '.');
        if (dot && strcmp(dot, ".cell") == 0 && strcmp(name, "std.cell") != 0 && kept < most)
            list[kept++] = intern_f(c, "specs/%s", name);
        free(found[i]);
    }
    if (n >= 0)
        free(found);
    return kept;
}

int main(int argc, char **argv)
{
    const char *real = getenv("REAL");
    single = !real || strcmp(real, "double") != 0;
    type = !single ? DT_F64 : real && strcmp(real, "bf16") == 0 ? DT_BF16 : DT_F32;
    if (!mkdtemp(dir))
        return 1;
    Compiler *c = compiler_new();
    const char *list[1024];
    int n = argc > 1 ? 0 : list_specs(c, list, 1024);
    for (size_t i = 0; argc == 1 && i < sizeof known / sizeof *known; i++)
        run_known(&known[i]);
    for (int i = 0; i < n; i++)
        run_spec(list[i]);
    for (int i = 1; i < argc; i++)
        run_spec(argv[i]);
    compiler_free(c);
    rmdir(dir);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
