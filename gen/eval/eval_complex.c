/* eval_complex.c: complex values in the evaluator. In come expressions and pairs of numbers with derivatives; out
 * go which values are complex, by the evaluator's own reading of the rules, and the value of a tree that is
 * complex. Both parts are numbers like any other, so a direction of the real or of the imaginary part of an input
 * is a direction. The formulas are not those of the compiler where there are others. */
#include "eval_scope.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- which values are complex */

static bool any_argument(EvalProgram *p, Scope *s, const Expr *x)
{
    for (int i = 0; i < x->args.len; i++)
        if (ev_is_complex(p, s, x->args.data[i]))
            return true;
    return false;
}

static bool call_is_complex(EvalProgram *p, Scope *s, const Expr *x)
{
    static const char *const real[] = {"re", "im", "arg", "abs", "grad"};
    Scope *home;
    if (ev_fn_named(s, x->name, &home)) {
        Instance *in = ev_instance_of(p, s, x);
        return in && in->result && ev_complex_of(p, in->result);
    }
    for (size_t i = 0; i < sizeof real / sizeof *real; i++)
        if (strcmp(x->name, real[i]) == 0)
            return false;
    return strcmp(x->name, "complex") == 0 || strcmp(x->name, "cis") == 0 || any_argument(p, s, x);
}

bool ev_is_complex(EvalProgram *p, Scope *s, const Expr *x)
{
    Symbol *y;
    Array *a;
    switch (x->kind) {
    case X_REF:
        y = ev_find(s, x);
        a = !y || y->kind != SY_VALUE ? NULL : x->primed ? y->next : y->now;
        return a && ev_complex_of(p, a);
    case X_CALL: return call_is_complex(p, s, x);
    case X_UNARY: return x->op == O_NEG && ev_is_complex(p, s, x->a);
    case X_BINARY:
        return (x->op == O_ADD || x->op == O_SUB || x->op == O_MUL || x->op == O_DIV || x->op == O_POW) &&
               (ev_is_complex(p, s, x->a) || ev_is_complex(p, s, x->b));
    case X_COND: return ev_is_complex(p, s, x->b) || ev_is_complex(p, s, x->c);
    case X_REDUCE: return ev_is_complex(p, s, x->a);
    default: return false;
    }
}

bool ev_declared_complex(const Stmt *d)
{
    return d->text && (strcmp(d->text, "complex") == 0 || strcmp(d->text, "c64") == 0 || strcmp(d->text, "c128") == 0);
}

/* One part that is complex makes the whole so. What depends on itself is diagnosed where its shape or its value
 * is asked for. */
bool ev_complex_of(EvalProgram *p, Array *a)
{
    if (a->type_known || a->type_busy)
        return a->complex;
    if (p->depth > MAX_SHAPE_DEPTH) {
        diag(p->c, DIAG_ERROR, a->span, "more than %d values wait for the type of each other", MAX_SHAPE_DEPTH);
        a->type_known = true;
        return false;
    }
    a->type_busy = true;
    p->depth++;
    bool complex = false;
    for (int i = 0; i < a->equations.len && !complex; i++) {
        const Stmt *e = a->equations.data[i].stmt;
        const Expr *value = !e ? NULL : e->kind == S_STATE || e->kind == S_CARRY ? e->init : e->value;
        complex = value && ev_is_complex(p, a->scope, value);
    }
    p->depth--;
    a->type_busy = false;
    a->type_known = true;
    a->complex = complex;
    return complex;
}

/* ---- arithmetic */

static Pair pair(Dual re, Dual im)
{
    return (Pair){re, im};
}

static Dual call1(Nest *n, const char *f, Dual a)
{
    return nest_call1(n, nest_function1(f), a);
}

static Dual minus(Nest *n, Dual a)
{
    return nest_sub(n, dual_of(0), a);
}

static Pair p_add(Nest *n, Pair a, Pair b)
{
    return pair(nest_add(n, a.re, b.re), nest_add(n, a.im, b.im));
}

static Pair p_sub(Nest *n, Pair a, Pair b)
{
    return pair(nest_sub(n, a.re, b.re), nest_sub(n, a.im, b.im));
}

static Pair p_neg(Nest *n, Pair a, Pair b)
{
    (void)b;
    return pair(minus(n, a.re), minus(n, a.im));
}

static Pair p_mul(Nest *n, Pair a, Pair b)
{
    return pair(nest_sub(n, nest_mul(n, a.re, b.re), nest_mul(n, a.im, b.im)),
                nest_add(n, nest_mul(n, a.re, b.im), nest_mul(n, a.im, b.re)));
}

static Dual square_sum(Nest *n, Pair a)
{
    return nest_add(n, nest_mul(n, a.re, a.re), nest_mul(n, a.im, a.im));
}

static Pair shifted(Nest *n, Pair a, int power)
{
    return pair(nest_shift(n, a.re, power), nest_shift(n, a.im, power));
}

/* Of a number whose larger part is brought to about 1, as its square may be infinite or 0. */
static Dual modulus(Nest *n, Pair a)
{
    int shift = nest_shift_to_one(a.re, a.im);
    return nest_shift(n, call1(n, "sqrt", square_sum(n, shifted(n, a, shift))), -shift);
}

static Pair scaled(Nest *n, Pair a, Dual by)
{
    return pair(nest_mul(n, a.re, by), nest_mul(n, a.im, by));
}

static Pair p_conj(Nest *n, Pair a, Pair b)
{
    (void)b;
    return pair(a.re, minus(n, a.im));
}

/* a times the reciprocal of b */
static Pair p_div(Nest *n, Pair a, Pair b)
{
    int shift = nest_shift_to_one(b.re, b.im);
    b = shifted(n, b, shift);
    Dual r = nest_div(n, dual_of(1), square_sum(n, b));
    return p_mul(n, shifted(n, a, shift), scaled(n, p_conj(n, b, b), r));
}

static Pair p_pow(Nest *n, Pair a, Pair b)
{
    int k = (int)b.re.v;
    Pair r = pair(dual_of(1), dual_of(0));
    a = k < 0 ? p_div(n, r, a) : a;
    for (int i = 0; i < abs(k); i++)
        r = i ? p_mul(n, r, a) : a;
    return r;
}

static Pair p_cis(Nest *n, Pair a, Pair b)
{
    (void)b;
    return pair(call1(n, "cos", a.re), call1(n, "sin", a.re));
}

static Pair p_exp(Nest *n, Pair a, Pair b)
{
    Dual root = nest_exp(n, nest_shift(n, a.re, -1));     /* its square may overflow where the product does not */
    return scaled(n, scaled(n, p_cis(n, pair(a.im, a.im), b), root), root);
}

static Pair p_arg(Nest *n, Pair a, Pair b)
{
    (void)b;
    return pair(nest_call2(n, nest_function2("atan2"), a.im, a.re), dual_of(0));
}

static Pair p_log(Nest *n, Pair a, Pair b)
{
    return pair(call1(n, "log", modulus(n, a)), p_arg(n, a, b).re);
}

/* The larger part from the modulus, the other one as what is missing in 2 re im = im(a). */
static Pair p_sqrt(Nest *n, Pair a, Pair b)
{
    bool right = a.re.v >= 0;
    (void)b;
    if (a.re.v == 0 && a.im.v == 0)
        return pair(dual_of(0), dual_of(0));
    int shift = nest_shift_to_one(a.re, a.im);
    a = shifted(n, a, shift);
    Dual sum = nest_add(n, modulus(n, a), right ? a.re : minus(n, a.re));
    Dual large = call1(n, "sqrt", nest_mul(n, dual_of(0.5), sum));
    if (!right && signbit(a.im.v))
        large = minus(n, large);
    Dual small = nest_div(n, nest_mul(n, dual_of(0.5), a.im), large);
    return shifted(n, right ? pair(large, small) : pair(small, large), -shift / 2);
}

static Pair p_abs(Nest *n, Pair a, Pair b)
{
    (void)b;
    return pair(modulus(n, a), dual_of(0));
}

static Pair p_re(Nest *n, Pair a, Pair b)
{
    (void)n, (void)b;
    return pair(a.re, dual_of(0));
}

static Pair p_im(Nest *n, Pair a, Pair b)
{
    (void)n, (void)b;
    return pair(a.im, dual_of(0));
}

static Pair p_complex(Nest *n, Pair a, Pair b)
{
    (void)n;
    return pair(a.re, b.re);
}

static Pair p_stop(Nest *n, Pair a, Pair b)
{
    (void)b;
    return pair(call1(n, "stop", a.re), call1(n, "stop", a.im));
}

typedef struct PairRow { const char *name; int arity; Pair (*f)(Nest *, Pair, Pair); bool real, always; } PairRow;

/* real: the result is; always: also of real arguments. */
static const PairRow rows[] = {
    {"+", 2, p_add, false, false},     {"-", 2, p_sub, false, false},  {"*", 2, p_mul, false, false},
    {"/", 2, p_div, false, false},     {"pow", 2, p_pow, false, false}, {"-", 1, p_neg, false, false},
    {"exp", 1, p_exp, false, false},   {"log", 1, p_log, false, false}, {"sqrt", 1, p_sqrt, false, false},
    {"abs", 1, p_abs, true, false},    {"stop", 1, p_stop, false, false}, {"complex", 2, p_complex, false, true},
    {"re", 1, p_re, true, true},       {"im", 1, p_im, true, true},    {"arg", 1, p_arg, true, true},
    {"cis", 1, p_cis, false, true},    {"conj", 1, p_conj, false, false},
};

/* The tree of a function whose arguments are complex, or which makes complex values; NULL: it is a real one. */
Code *ev_complex_call(EvalProgram *p, Span span, const char *name, Code *a, Code *b)
{
    bool complex = a->complex || (b && b->complex);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].name, name) != 0 || rows[i].arity != 1 + (b != NULL) || !(complex || rows[i].always))
            continue;
        Code *c = ev_code_new(p, C_PAIR, span);
        c->pair = rows[i].f;
        c->complex = !rows[i].real;
        c->a = a;
        c->b = b;
        return c;
    }
    if (strcmp(name, "conj") == 0)
        return a;
    if (complex)
        diag(p->c, DIAG_ERROR, span, "%s has no complex arguments", name);
    return NULL;
}

/* ---- running */

static Pair reduced(EvalProgram *p, Code *x)
{
    Pair total = pair(dual_of(0), dual_of(0));
    double count = 0;
    int64_t room[MAX_BOUND];
    const int64_t *extent = eval_extents(p, x, room);
    if (eval_start(p, x->nbound, x->bound, extent)) {
        do {
            total = p_add(&p->nest, total, eval_pair(p, x->a));
            count++;
        } while (!p->error && eval_advance(p, x->nbound, x->bound, extent));
    }
    return x->reduce == R_MEAN ? scaled(&p->nest, total, nest_div(&p->nest, dual_of(1), dual_of(count))) : total;
}

Pair eval_pair(EvalProgram *p, Code *x)
{
    if (!x->complex && x->kind != C_PAIR)
        return pair(eval_code(p, x), dual_of(0));
    switch (x->kind) {
    case C_PAIR: {
        Pair a = eval_pair(p, x->a);
        return x->pair(&p->nest, a, x->b ? eval_pair(p, x->b) : pair(dual_of(0), dual_of(0)));
    }
    case C_COND: return eval_pair(p, eval_code(p, x->a).v != 0 ? x->b : x->c);
    case C_REDUCE:
        if (!eval_memo_holds(p, &x->memo)) {
            Pair r = reduced(p, x);
            x->kept = r.re;
            x->kept_im = r.im;
            eval_memo_set(p, &x->memo);
        }
        return pair(x->kept, x->kept_im);
    default: {
        Pair r;
        r.re = eval_load(p, x, &r.im);
        return r;
    }
    }
}
