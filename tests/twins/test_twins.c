/* test_twins.c: cells with inner gradients against their twins, the same recurrences with every derivative
 * written by hand. Both are evaluated on the same random values, along the same random directions: outputs and
 * final states must agree, and so must their tangents, which is where a lost second-order term shows. That the
 * compiled gradients are those of the evaluator is `cellc check`'s business. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/case.h"

static int passed, failed;

/* Settings are those of --set, and with a colon in front those of --dim. */
typedef struct Side { const char *file, *cell, *settings; } Side;
typedef struct Twins { Side by_grad, by_hand; } Twins;

#define FORMS "tests/twins/forms.cell"
#define MEMORY(name, settings)                                                                               \
    {{"specs/" name ".cell", name, settings}, {"tests/specs/forms/" name "_hand.cell", NULL, settings}}
#define DGD(settings) MEMORY("dgd", ":H=2 :N=4 :V=3 " settings)
#define TITANS(settings) MEMORY("titans", ":D=5 :N=4 :R=3 " settings)
#define MLP(name, settings) MEMORY(name, ":D=4 :N=3 " settings)

static const Twins twins[] = {
    {{FORMS, "delta_by_grad", ""}, {FORMS, "delta_by_hand", ""}},
    {{FORMS, "mlp_by_grad", ""}, {FORMS, "mlp_by_hand", ""}},
    {{FORMS, "product_by_grad", ""}, {FORMS, "product_by_hand", ""}},
    {{FORMS, "twice_by_grad", ""}, {FORMS, "twice_by_hand", ""}},
    DGD(""), DGD("bias=l1"), DGD("bias=lp"), DGD("bias=huber"), DGD("bias=kl"), DGD("momentum=ema"),
    DGD("step=sherman_morrison"), DGD("clip=exact"), DGD("clip=straight_through"), DGD("read=before"),
    DGD("bias=lp_tanh"),
    DGD("bias=kl clip=exact momentum=ema"),
    TITANS(""), TITANS("momentum=none"), TITANS("momentum=delta"), TITANS("momentum=deep"),
    TITANS("retention=penalty"), TITANS("retention=elastic"), TITANS("gates=keys"), TITANS("rate=softplus"),
    TITANS("projection=exact"), TITANS("projection=straight_through"),
    TITANS("clamps=exact"), TITANS("clamps=straight_through"), TITANS("read=before"),
    MLP("moneta", ""), MLP("moneta", "bias=lp"), MLP("moneta", "retention=none"), MLP("moneta", "read=before"),
    MLP("yaad", ""), MLP("yaad", "read=before"), MLP("memora", ""), MLP("memora", "read=after"),
    MLP("titans_mlp", ""), MLP("titans_mlp", "act=silu"), MLP("titans_mlp", "act=relu"),
    MLP("titans_mlp", "momentum=none"), MLP("titans_mlp", "rate=sigmoid"),
    MLP("titans_mlp", "clamps=straight_through"), MLP("titans_mlp", "read=before"),
};

static void complain(const Twins *t, const char *what, const char *name)
{
    printf("failed: %s %s against %s %s: %s %s\n", t->by_grad.cell, t->by_grad.settings, t->by_hand.file,
           t->by_hand.settings, what, name);
    failed++;
}

static void add_settings(Compiler *c, const char *settings)
{
    char copy[512];
    snprintf(copy, sizeof copy, "%s", settings);
    for (char *s = strtok(copy, " "); s; s = strtok(NULL, " ")) {
        char *value = strchr(s, '=');
        *value++ = '\0';
        Setting set = {intern(c, *s == ':' ? s + 1 : s), intern(c, value), false};
        if (*s == ':')
            vec_push(c->arena, &c->dims, set);
        else
            vec_push(c->arena, &c->sets, set);
    }
}

static Eval *open_side(Compiler *c, const Side *s)
{
    c->import_dir = "specs";
    add_settings(c, s->settings);
    int file = source_load(c, s->file);
    const Ast *ast = file < 0 ? NULL : parse_source(c, file);
    Eval *e = ast && !c->errors ? eval_new(c, ast, s->cell, NULL, 0) : NULL;
    if (!e)
        diag_print(c, stdout);
    return e;
}

static bool is_read(const EvalTensor *t)
{
    return t->kind == EV_INPUT || t->kind == EV_PARAM || t->kind == EV_STATE;
}

static double *numbers(Compiler *c, int64_t n)
{
    return arena_alloc(c->arena, sizeof(double) * (size_t)(n + 1));
}

/* Random directions for what is read, room for what is written. */
static void prepare(Compiler *c, const Case *k, Eval *e)
{
    Random r = {77};
    case_bind(k, e);
    for (int i = 0; i < e->ntensors; i++) {
        EvalTensor *t = &e->tensors[i];
        int64_t n = case_count(k, t);
        bool written = t->kind == EV_OUTPUT || t->kind == EV_STATE;
        if (written)
            t->out = numbers(c, n);
        for (int d = 0; d < EVAL_DIRECTIONS; d++) {
            double *along = is_read(t) ? numbers(c, n) : NULL;
            for (int64_t j = 0; along && j < n; j++)
                along[j] = random_normal(&r);
            t->tangent[d] = along;
            t->out_tangent[d] = written ? numbers(c, n) : NULL;
        }
    }
}

/* The other side reads the same; everything that it reads has the same name and shape. */
static bool share(const Twins *t, Compiler *c, const Case *k, Eval *from, Eval *to)
{
    for (int i = 0; i < to->ntensors; i++) {
        EvalTensor *x = &to->tensors[i];
        const EvalTensor *y = eval_find(from, x->name);
        if (!y || y->kind != x->kind || y->count != x->count) {
            complain(t, "has not the same tensor", x->name);
            return false;
        }
        int64_t n = case_count(k, y);
        x->value = y->value;
        if (y->out)
            x->out = numbers(c, n);
        for (int d = 0; d < EVAL_DIRECTIONS; d++) {
            x->tangent[d] = y->tangent[d];
            x->out_tangent[d] = y->out ? numbers(c, n) : NULL;
        }
    }
    return true;
}

/* The same function of the same numbers, in another order of some hundred roundings of 1e-16 each. */
static bool agree(const double *a, const double *b, int64_t n, bool *zero)
{
    double size = 0, worst = 0;
    bool finite = true;
    for (int64_t i = 0; i < n; i++) {
        size = fmax(size, fabs(b[i]));
        worst = fmax(worst, fabs(a[i] - b[i]));
        finite = finite && isfinite(a[i]) && isfinite(b[i]);
    }
    *zero = size == 0;
    return finite && worst <= 1e-12 * (1 + size);
}

/* From a zero state a memory of two layers stays where it is; elsewhere all must be moved. */
static void compare(const Twins *t, const Case *k, Eval *a, Eval *b, bool may_rest)
{
    for (int i = 0; i < a->ntensors; i++) {
        const EvalTensor *x = &a->tensors[i];
        const EvalTensor *y = x->out ? eval_find(b, x->name) : NULL;
        int64_t n = case_count(k, x);
        bool zero, still = true;
        if (!y)
            continue;
        if (agree(x->out, y->out, n, &zero) && (may_rest || !zero))
            passed++;
        else
            complain(t, zero ? "zero or different:" : "values of", x->name);
        bool ok = true;
        for (int d = 0; d < EVAL_DIRECTIONS; d++) {
            ok = ok && agree(x->out_tangent[d], y->out_tangent[d], n, &zero);
            still = still && zero;
        }
        if (ok && (may_rest || !still))
            passed++;
        else
            complain(t, still ? "does not move, or differs:" : "tangents of", x->name);
    }
}

static void check_twins(const Twins *t, CaseState states, CaseInput inputs, uint64_t seed)
{
    Compiler *ca = compiler_new(), *cb = compiler_new();
    Eval *a = open_side(ca, &t->by_grad), *b = open_side(cb, &t->by_hand);
    if (!a || !b) {
        complain(t, "is not valid", "");
    } else {
        Case *k = case_random(a, 2, 3, states, inputs, seed);
        prepare(ca, k, a);
        if (share(t, ca, k, a, b)) {
            if (eval_run(a, k->batch, k->steps, k->first) && eval_run(b, k->batch, k->steps, k->first))
                compare(t, k, a, b, states == CASE_STATE_ZERO);
            else
                complain(t, "does not run:", a->run_error ? a->run_error : b->run_error);
        }
    }
    compiler_free(ca);
    compiler_free(cb);
}

int main(void)
{
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++) {
        check_twins(&twins[i], CASE_STATE_RANDOM, CASE_INPUT_NORMAL, 5 + i);
        check_twins(&twins[i], CASE_STATE_ZERO, CASE_INPUT_NORMAL, 50 + i);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
