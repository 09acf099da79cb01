/* initialiser.c: what stands behind the '~' of a param. In: the call of the AST and the scope of the
 * declaration. Out: the tensor's initialiser with its two numbers, each of them known or the text of an
 * expression over the dims that are chosen at run time. Guaranteed: numbers that are known are such as the
 * initialiser takes; the text has numbers, dims as the spec calls them, + - * /, parentheses and the
 * functions of `size_functions` only. */
#include <math.h>
#include <string.h>

#include "flat.h"
#include "ir/ops.h"
#include "words.h"

typedef struct Initialiser {
    const char *name;
    int min, max;
    double defaults[2];
} Initialiser;
static const Initialiser initialisers[] = {
    { "xavier", 0, 0, { 0, 0 } },     { "const", 1, 1, { 0, 0 } }, { "normal", 0, 2, { 0, 1 } },
    { "uniform", 1, 2, { 0, 0 } },    { "zeros", 0, 0, { 0, 0 } }, { "ones", 0, 0, { 0, 0 } },
    { "orthogonal", 0, 0, { 0, 0 } }, { "eye", 0, 0, { 0, 0 } },
};

const char *initialiser_at(int i)
{
    return i < (int)(sizeof initialisers / sizeof *initialisers) ? initialisers[i].name : NULL;
}

bool is_initialiser(const char *name)
{
    for (size_t i = 0; i < sizeof initialisers / sizeof *initialisers; i++)
        if (strcmp(initialisers[i].name, name) == 0)
            return true;
    return false;
}

/* ---- numbers made of dims that are chosen at run time */

/* What readers of a manifest compute; a function of the language that is not among them is of cells only. */
static const char *const size_functions[] = {
    "sqrt", "rsqrt", "exp", "expm1", "log", "log1p", "pow",  "abs",  "min",  "max",   "clamp", "floor", "ceil", "round",
    "sign", "sin",   "cos", "tan",   "atan", "atan2", "sinh", "cosh", "tanh", "erf",
};

static bool is_bare(const Expr *e)
{
    return e->kind == X_REF && !e->brackets && !e->primed && !e->time;
}

static bool needs_dims(const Expr *e, const Scope *scope)
{
    if (!e)
        return false;
    const Symbol *s = is_bare(e) ? scope_find(scope, e->name) : NULL;
    if (s && s->kind == SYM_DIM && !s->failed && !s->size->is_const)
        return true;
    for (int i = 0; i < e->args.len; i++)
        if (needs_dims(e->args.data[i], scope))
            return true;
    return needs_dims(e->a, scope) || needs_dims(e->b, scope) || needs_dims(e->c, scope);
}

/* How tightly the parts of an expression hold together. */
enum { SUM_LEVEL, PRODUCT_LEVEL, SIGN_LEVEL, TIGHT_LEVEL };

static bool put_number(Flat *f, Buf *out, const Expr *e, const Scope *scope, int level);

static bool put_pair(Flat *f, Buf *out, const Expr *e, const Scope *scope, int level)
{
    int own = e->op == O_ADD || e->op == O_SUB ? SUM_LEVEL : PRODUCT_LEVEL;
    const char *sign = e->op == O_ADD ? " + " : e->op == O_SUB ? " - " : e->op == O_MUL ? "*" : "/";
    buf_f(out, own < level ? "(" : "");
    bool ok = put_number(f, out, e->a, scope, own);
    buf_f(out, "%s", sign);
    ok = put_number(f, out, e->b, scope, own + 1) && ok;
    buf_f(out, own < level ? ")" : "");
    return ok;
}

static bool put_call(Flat *f, Buf *out, const char *name, Expr *const *args, int n, const Scope *scope)
{
    bool ok = true;
    buf_f(out, "%s(", name);
    for (int i = 0; i < n; i++) {
        buf_f(out, i ? ", " : "");
        ok = put_number(f, out, args[i], scope, SUM_LEVEL) && ok;
    }
    buf_f(out, ")");
    return ok;
}

static bool is_size_function(Flat *f, const Expr *e)
{
    int op = op_find(e->name);
    bool listed = false;
    for (size_t i = 0; i < sizeof size_functions / sizeof *size_functions; i++)
        listed |= strcmp(e->name, size_functions[i]) == 0;
    if (op < 0 || !op_table[op].in_language || !listed || e->brackets) {
        const char *list = size_functions[0];
        for (size_t i = 1; i < sizeof size_functions / sizeof *size_functions; i++)
            if (op_find(size_functions[i]) >= 0)
                list = intern_f(f->c, "%s, %s", list, size_functions[i]);
        FLAT_ERROR(f, NULL, e->span, "'%s(...)' of a dim that is chosen at run time cannot stand in an initialiser; what can "
                   "is %s", e->name, list);
        return false;
    }
    if (e->args.len == op_table[op].arity)
        return true;
    FLAT_ERROR(f, NULL, e->span, "'%s' takes %d argument%s, but %d %s given", e->name, op_table[op].arity,
               op_table[op].arity == 1 ? "" : "s", e->args.len, e->args.len == 1 ? "is" : "are");
    return false;
}

static bool put_constant(Flat *f, Buf *out, const Expr *e, const Scope *scope, int level)
{
    Constant v;
    if (!fold_constant(f, e, scope, NULL, &v))
        return false;
    if (v.is_name || isnan(v.num)) {
        FLAT_ERROR(f, NULL, e->span, v.is_name ? "an option is not a number" : "this is no number");
        return false;
    }
    bool negative = signbit(v.num) && SIGN_LEVEL < level;
    buf_f(out, negative ? "(%.17g)" : "%.17g", v.num);
    return true;
}

static bool put_number(Flat *f, Buf *out, const Expr *e, const Scope *scope, int level)
{
    if (!needs_dims(e, scope))
        return put_constant(f, out, e, scope, level);
    if (is_bare(e)) {
        scope_find(scope, e->name)->used = true;
        buf_f(out, "%s", e->name);
        return true;
    }
    if (e->kind == X_CALL && strcmp(e->name, "real") == 0 && e->args.len == 1 && !e->brackets)
        return put_number(f, out, e->args.data[0], scope, level);
    if (e->kind == X_CALL)
        return is_size_function(f, e) && put_call(f, out, e->name, e->args.data, e->args.len, scope);
    if (e->kind == X_BINARY && e->op == O_POW)
        return put_call(f, out, "pow", (Expr *[]){ e->a, e->b }, 2, scope);
    if (e->kind == X_BINARY && (e->op == O_ADD || e->op == O_SUB || e->op == O_MUL || e->op == O_DIV))
        return put_pair(f, out, e, scope, level);
    if (e->kind == X_UNARY && e->op == O_NEG) {
        buf_f(out, SIGN_LEVEL < level ? "(-" : "-");
        bool ok = put_number(f, out, e->a, scope, SIGN_LEVEL);
        buf_f(out, SIGN_LEVEL < level ? ")" : "");
        return ok;
    }
    FLAT_ERROR(f, NULL, e->span, "with dims that are chosen at run time, a number of an initialiser is made of numbers, "
               "constants, dims, + - * / ^ and functions such as sqrt");
    return false;
}

/* ---- the numbers of an initialiser */

typedef struct Number {
    double known;
    const char *text; /* NULL: it is known */
} Number;

static bool read_number(Flat *f, const Expr *e, const Scope *scope, Number *out)
{
    Constant v;
    *out = (Number){ 0 };
    if (needs_dims(e, scope)) {
        Buf text = { .arena = f->c->arena };
        if (!put_number(f, &text, e, scope, SUM_LEVEL))
            return false;
        out->text = intern_n(f->c, text.data, text.len);
        return true;
    }
    if (!fold_constant(f, e, scope, NULL, &v))
        return false;
    if (v.is_name || isnan(v.num)) {
        FLAT_ERROR(f, NULL, e->span, v.is_name ? "an option is not a number" : "this is no number");
        return false;
    }
    out->known = v.num;
    return true;
}

static bool takes_count(Flat *f, const Expr *e, const Initialiser *in)
{
    if (e->args.len >= in->min && e->args.len <= in->max)
        return true;
    const char *count = in->max == 0 ? "no numbers"
                        : in->min < in->max ? intern_f(f->c, "%d to %d numbers", in->min, in->max)
                                            : intern_f(f->c, "%d number%s", in->max, in->max == 1 ? "" : "s");
    FLAT_ERROR(f, NULL, e->span, "initialiser '%s' takes %s, but %d %s given", in->name, count, e->args.len,
               e->args.len == 1 ? "is" : "are");
    return false;
}

/* What depends on dims of the run time is looked at when these are known (python/cellc/instance.py). */
static void check_numbers(Flat *f, const Expr *e, const Tensor *t)
{
    bool known[2] = { !t->init_text[0], !t->init_text[1] };
    bool uniform = strcmp(t->init, "uniform") == 0, normal = strcmp(t->init, "normal") == 0;
    const double *v = t->init_arg;
    for (int i = 0; i < 2 && (uniform || normal); i++)
        if (known[i] && isinf(v[i])) {
            FLAT_ERROR(f, NULL, e->span, "a number of '%s' is infinite", t->init);
            return;
        }
    if (uniform && known[0] && known[1] && v[0] > v[1])
        FLAT_ERROR(f, NULL, e->span, "the range of 'uniform' is empty: %g is above %g", v[0], v[1]);
    if (normal && known[1] && !(v[1] > 0))
        FLAT_ERROR(f, NULL, e->span, "the deviation of 'normal' is %g, but it must be above 0", v[1]);
}

/* `~ normal(0.02)` is mean 0 and that deviation; `~ uniform(a)` is from -a to a. */
static void initialiser_args(Flat *f, const Expr *e, const Initialiser *in, const Scope *scope, Tensor *t)
{
    Number v[2];
    memcpy(t->init_arg, in->defaults, sizeof t->init_arg);
    if (!takes_count(f, e, in))
        return;
    for (int i = 0; i < e->args.len; i++)
        if (!read_number(f, e->args.data[i], scope, &v[i]))
            return;
    int first = e->args.len == 1 && strcmp(in->name, "const") != 0 ? 1 : 0;
    for (int i = 0; i < e->args.len; i++) {
        t->init_arg[first + i] = v[i].known;
        t->init_text[first + i] = v[i].text;
    }
    if (first && strcmp(in->name, "uniform") == 0) {
        t->init_arg[0] = -v[0].known;
        t->init_text[0] = v[0].text ? intern_f(f->c, "-(%s)", v[0].text) : NULL;
    }
    check_numbers(f, e, t);
}

void read_initialiser(Flat *f, const Stmt *s, const Scope *scope, Tensor *t)
{
    const char *names[sizeof initialisers / sizeof *initialisers];
    int n = (int)(sizeof initialisers / sizeof *initialisers);
    if (s->init->kind != X_REF && s->init->kind != X_CALL) {
        if (s->init->kind != X_ERROR)
            FLAT_ERROR(f, NULL, s->init->span,
                       "an initialiser is needed after '~', such as 'xavier' or 'const(1.0)'");
        return;
    }
    for (int i = 0; i < n; i++) {
        names[i] = initialisers[i].name;
        if (strcmp(s->init->name, names[i]) == 0) {
            t->init = names[i];
            initialiser_args(f, s->init, &initialisers[i], scope, t);
            bool matrix = strcmp(names[i], "orthogonal") == 0 || strcmp(names[i], "eye") == 0;
            if (matrix && s->axes.len < 2)
                FLAT_ERROR(f, NULL, s->init->span, "initialiser '%s' needs at least 2 axes, but '%s' has %d",
                           names[i], s->name, s->axes.len);
            return;
        }
    }
    const char *here = foreign_initialiser(s->init->name), *near = here ? NULL : suggest(s->init->name, names, n);
    const char *list = names[0];
    for (int i = 1; i < n; i++)
        list = intern_f(f->c, "%s, %s", list, names[i]);
    FLAT_ERROR(f, NULL, s->init->span,
               here   ? "unknown initialiser '%s'; write %s"
               : near ? "unknown initialiser '%s'; did you mean '%s'?"
                      : "unknown initialiser '%s'; there are %s",
               s->init->name, here ? here : near ? near : list);
    diag_fix(f->c, s->init->name_span, near);
}
