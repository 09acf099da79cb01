/* eval.c: compiles a cell's AST, as parsed, for the evaluator. What comes in is the AST with imports, options, `when`,
 * `fn` and `repeat` still in it, and the sizes; what goes out is a program (eval_code.h) in which every name is an array
 * or a register and every size a number. A cell that the front end accepted always compiles; a broken one gets
 * diagnostics, never a crash. */
#include "eval_code.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 4000000, MAX_NEST = 200, MAX_STEPS = 4096, MAX_SHAPE_DEPTH = 3000 };
static const int64_t max_elements = INT64_C(1) << 28;

typedef enum { SY_INDEX, SY_VALUE, SY_DIM, SY_CONST, SY_OPTION, SY_FN } SymbolKind;

typedef struct Symbol {
    SymbolKind kind;
    const char *name;
    const Stmt *stmt;
    struct Scope *home;           /* FN: the scope that its body sees */
    int reg;                      /* INDEX */
    int64_t extent;               /* INDEX */
    Array *now, *next;            /* VALUE: the value; a state's or an iterate's next */
    bool known, busy;             /* DIM, CONST, OPTION */
    int64_t size;                 /* DIM */
    double num;                   /* CONST */
    const char *choice;           /* OPTION */
    struct Symbol *older;
} Symbol;

/* Names of one level. A unit (cell, fn instance, repeat block, file) owns arrays and a frame; the levels that binders
 * open inside it share both. */
typedef struct Scope {
    struct Scope *outer, *unit;
    Frame *frame;
    Symbol *symbols;
    Vec(Instance *) instances;    /* of a unit */
    Vec(Array *) arrays;          /* of a unit: those with equations */
    Vec(struct Scope *) inner;    /* of a unit: the iterations of its repeats */
    int nest;                     /* fn calls that led here */
} Scope;

/* ---------------------------------------------------------------- scopes */

static Scope *scope_new(EvalProgram *p, Scope *outer, Frame *frame)
{
    Scope *s = arena_alloc(p->arena, sizeof *s);
    s->outer = outer;
    s->unit = s;
    s->frame = frame;
    s->nest = outer ? outer->nest : 0;
    return s;
}

static Scope *scope_inside(EvalProgram *p, Scope *outer)
{
    Scope *s = scope_new(p, outer, outer->frame);
    s->unit = outer->unit;
    return s;
}

static Symbol *declare(EvalProgram *p, Scope *s, SymbolKind kind, const char *name, const Stmt *stmt)
{
    Symbol *y = arena_alloc(p->arena, sizeof *y);
    y->kind = kind;
    y->name = name;
    y->stmt = stmt;
    y->older = s->symbols;
    s->symbols = y;
    return y;
}

/* Indices, functions and everything else have name spaces of their own. */
typedef enum { NS_INDEX, NS_FN, NS_VALUE } NameSpace;

static Symbol *find_here(const Scope *s, NameSpace space, const char *name)
{
    for (Symbol *y = s->symbols; y; y = y->older)
        if (y->name == name && space == (y->kind == SY_INDEX ? NS_INDEX : y->kind == SY_FN ? NS_FN : NS_VALUE))
            return y;
    return NULL;
}

static Symbol *find_in(const Scope *s, NameSpace space, const char *name)
{
    for (; s; s = s->outer) {
        Symbol *y = find_here(s, space, name);
        if (y)
            return y;
    }
    return NULL;
}

/* What a name stands for: with brackets or a prime never an index. */
static Symbol *find(const Scope *s, const Expr *x)
{
    Symbol *y = x->brackets || x->primed ? NULL : find_in(s, NS_INDEX, x->name);
    return y ? y : find_in(s, NS_VALUE, x->name);
}

static int new_register(EvalProgram *p)
{
    if (p->nregs == p->cap_regs) {
        int cap = p->cap_regs ? 2 * p->cap_regs : 64;
        p->regs = arena_grow(p->arena, p->regs, sizeof *p->regs * (size_t)p->cap_regs,
                             sizeof *p->regs * (size_t)cap);
        p->cap_regs = cap;
    }
    return p->nregs++;
}

static Symbol *declare_index(EvalProgram *p, Scope *s, const char *name, int64_t extent)
{
    Symbol *y = declare(p, s, SY_INDEX, name, NULL);
    y->reg = new_register(p);
    y->extent = extent;
    return y;
}

/* ---------------------------------------------------------------- constants, sizes, options, conditions */

static Code *compile_expr(EvalProgram *p, Scope *s, const Expr *x);
static bool shape_of(EvalProgram *p, Array *a);
static Instance *instance_of(EvalProgram *p, Scope *s, const Expr *call);

static double const_number(EvalProgram *p, Scope *s, const Expr *x)
{
    bool before = p->constants_only;
    int errors = p->c->errors;
    p->constants_only = true;
    Code *code = compile_expr(p, s, x);
    p->constants_only = before;
    return p->c->errors == errors ? eval_code(p, code).v : NAN;
}

static const char *setting(const EvalProgram *p, const char *name)
{
    for (int i = p->c->sets.len - 1; i >= 0; i--)
        if (strcmp(p->c->sets.data[i].name, name) == 0)
            return p->c->sets.data[i].value;
    return NULL;
}

static double const_symbol(EvalProgram *p, Scope *s, Symbol *y)
{
    if (y->known)
        return y->num;
    if (y->busy) {
        diag(p->c, DIAG_ERROR, y->stmt->name_span, "the constant %s depends on itself", y->name);
        return NAN;
    }
    y->busy = true;
    const char *given = setting(p, y->name);
    y->num = given ? strtod(given, NULL) : const_number(p, s, y->stmt->value);
    y->busy = false;
    y->known = true;
    return y->num;
}

static bool dim_given(const EvalProgram *p, const char *name, int64_t *value)
{
    for (int i = 0; i < p->e->ndims; i++)
        if (strcmp(p->e->dims[i].name, name) == 0) {
            *value = p->e->dims[i].value;
            return true;
        }
    for (int i = p->c->dims.len - 1; i >= 0; i--)
        if (strcmp(p->c->dims.data[i].name, name) == 0) {
            *value = strtoll(p->c->dims.data[i].value, NULL, 10);
            return true;
        }
    return false;
}

static bool const_size(EvalProgram *p, Scope *s, const Expr *x, int64_t *out);

static bool dim_size(EvalProgram *p, Scope *s, Symbol *y, int64_t *out)
{
    if (!y->known) {
        if (y->busy) {
            diag(p->c, DIAG_ERROR, y->stmt->name_span, "the dim %s depends on itself", y->name);
            return false;
        }
        y->busy = true;
        bool ok = dim_given(p, y->name, &y->size);
        if (!ok && y->stmt->value)
            ok = const_size(p, s, y->stmt->value, &y->size);
        else if (!ok)
            diag(p->c, DIAG_ERROR, y->stmt->name_span, "the dim %s has no value: give it with --dim %s=SIZE", y->name,
                 y->name);
        if (ok && y->size < 1) {
            diag(p->c, DIAG_ERROR, y->stmt->name_span, "the dim %s is %lld, not at least 1", y->name,
                 (long long)y->size);
            ok = false;
        }
        y->busy = false;
        y->known = ok;
        if (!ok)
            return false;
    }
    *out = y->size;
    return true;
}

static bool size_operation(EvalProgram *p, const Expr *x, int64_t a, int64_t b, int64_t *out)
{
    bool overflow = false;
    switch (x->op) {
    case O_ADD: overflow = __builtin_add_overflow(a, b, out); break;
    case O_SUB: overflow = __builtin_sub_overflow(a, b, out); break;
    case O_MUL: overflow = __builtin_mul_overflow(a, b, out); break;
    case O_POW: {
        *out = 1;
        for (int64_t i = 0; i < b && !overflow && i < 64; i++)
            overflow = __builtin_mul_overflow(*out, a, out);
        break;
    }
    case O_DIV:
    case O_MOD:
        if (b <= 0 || (x->op == O_DIV && a % b)) {
            diag(p->c, DIAG_ERROR, x->span, "%lld is not a multiple of %lld", (long long)a, (long long)b);
            return false;
        }
        *out = x->op == O_DIV ? a / b : (a % b + b) % b;
        break;
    default:
        diag(p->c, DIAG_ERROR, x->span, "this is not a size");
        return false;
    }
    if (overflow)
        diag(p->c, DIAG_ERROR, x->span, "this size overflows");
    return !overflow;
}

static bool size_reference(EvalProgram *p, Scope *s, const Expr *x, int64_t *out)
{
    Symbol *y = x->brackets ? NULL : find(s, x);
    if (y && y->kind == SY_DIM)
        return dim_size(p, s, y, out);
    double v = y && y->kind == SY_CONST ? const_symbol(p, s, y) : NAN;
    if (v == floor(v) && fabs(v) < 1e15) {
        *out = (int64_t)v;
        return true;
    }
    diag(p->c, DIAG_ERROR, x->span, "%s is not a size", x->name);
    return false;
}

/* An integer that is known before the cell runs: an extent, a number of iterations, a constant index. */
static bool const_size(EvalProgram *p, Scope *s, const Expr *x, int64_t *out)
{
    int64_t a, b;
    switch (x->kind) {
    case X_NUM:
        if (x->num != floor(x->num) || fabs(x->num) > 1e15) {
            diag(p->c, DIAG_ERROR, x->span, "a size must be a whole number");
            return false;
        }
        *out = (int64_t)x->num;
        return true;
    case X_REF:
        return size_reference(p, s, x, out);
    case X_UNARY:
        if (x->op != O_NEG || !const_size(p, s, x->a, &a))
            return false;
        *out = -a;
        return true;
    case X_BINARY:
        return const_size(p, s, x->a, &a) && const_size(p, s, x->b, &b) && size_operation(p, x, a, b, out);
    case X_CALL:
        if (x->args.len == 2 && (strcmp(x->name, "div") == 0 || strcmp(x->name, "mod") == 0) &&
            const_size(p, s, x->args.data[0], &a) && const_size(p, s, x->args.data[1], &b) && b > 0) {
            int64_t m = (a % b + b) % b;
            *out = x->name[0] == 'd' ? (a - m) / b : m;
            return true;
        }
        /* fall through */
    default:
        diag(p->c, DIAG_ERROR, x->span, "this is not a size");
        return false;
    }
}

static const char *option_choice(EvalProgram *p, Symbol *y)
{
    if (y->choice)
        return y->choice;
    const char *given = setting(p, y->name);
    y->choice = y->stmt->choices.len ? y->stmt->choices.data[0] : "";
    for (int i = 0; given && i < y->stmt->choices.len; i++)
        if (strcmp(given, y->stmt->choices.data[i]) == 0) {
            y->choice = y->stmt->choices.data[i];
            return y->choice;
        }
    if (given)
        diag(p->c, DIAG_ERROR, y->stmt->name_span, "the option %s has no value %s", y->name, given);
    return y->choice;
}

static Symbol *option_symbol(Scope *s, const Expr *x)
{
    Symbol *y = x->kind == X_REF && !x->brackets ? find_in(s, NS_VALUE, x->name) : NULL;
    return y && y->kind == SY_OPTION ? y : NULL;
}

/* The condition of a `when`: options are compared with their choices, the rest are numbers. */
static bool holds(EvalProgram *p, Scope *s, const Expr *x)
{
    if (x->kind == X_UNARY && x->op == O_NOT)
        return !holds(p, s, x->a);
    if (x->kind == X_BINARY && x->op == O_AND)
        return holds(p, s, x->a) && holds(p, s, x->b);
    if (x->kind == X_BINARY && x->op == O_OR)
        return holds(p, s, x->a) || holds(p, s, x->b);
    if (x->kind == X_BINARY && (x->op == O_EQ || x->op == O_NE)) {
        Symbol *y = option_symbol(s, x->a);
        const Expr *choice = y ? x->b : x->a;
        y = y ? y : option_symbol(s, x->b);
        if (y && choice->kind == X_REF)
            return (strcmp(option_choice(p, y), choice->name) == 0) == (x->op == O_EQ);
        if (y && choice->kind == X_NUM)       /* option heads = 1 | 2: choices may be numbers */
            return (strtod(option_choice(p, y), NULL) == choice->num) == (x->op == O_EQ);
    }
    return const_number(p, s, x) != 0;
}

/* ---------------------------------------------------------------- arrays and their shapes */

static bool set_shape(EvalProgram *p, Array *a)
{
    a->count = 1;
    for (int i = a->rank - 1; i >= 0; i--) {
        a->stride[i] = a->count;
        if (a->shape[i] < 0 || __builtin_mul_overflow(a->count, a->shape[i], &a->count) || a->count > max_elements) {
            diag(p->c, DIAG_ERROR, a->span, "%s is too large to evaluate", a->name);
            return false;
        }
    }
    a->data = arena_alloc(p->arena, sizeof *a->data * (size_t)(a->count ? a->count : 1));
    for (int64_t i = 0; i < a->count; i++)
        a->data[i].v = NAN;       /* what no equation gives must be seen */
    a->shape_known = true;
    return true;
}

static Array *array_new(EvalProgram *p, Scope *s, const char *name, Span span, int rank)
{
    Array *a = arena_alloc(p->arena, sizeof *a);
    a->name = name;
    a->span = span;
    a->rank = rank;
    a->frame = s->frame;
    a->scope = s;
    if (rank > EVAL_MAX_RANK) {
        diag(p->c, DIAG_ERROR, span, "%s has more than %d axes", name, EVAL_MAX_RANK);
        a->rank = EVAL_MAX_RANK;
    }
    return a;
}

/* An array whose extents are written down. */
static Array *array_declared(EvalProgram *p, Scope *s, const Stmt *d, const char *name)
{
    Array *a = array_new(p, s, name, d->name_span, d->axes.len);
    for (int i = 0; i < a->rank; i++)
        if (!const_size(p, s, d->axes.data[i], &a->shape[i]))
            a->shape[i] = 1;
    set_shape(p, a);
    return a;
}

static bool is_plain(const Expr *x, const char *index)
{
    return x->kind == X_REF && !x->brackets && !x->primed && x->name == index;
}

static Array *array_named(Scope *s, const Expr *x)
{
    Symbol *y = find_in(s, NS_VALUE, x->name);
    return !y || y->kind != SY_VALUE ? NULL : x->primed ? y->next : y->now;
}

static int64_t extent_in(EvalProgram *p, Scope *s, const Expr *x, const char *index);

static int64_t extent_in_all(EvalProgram *p, Scope *s, const ExprVec *v, const char *index)
{
    for (int i = 0; i < v->len; i++) {
        int64_t n = extent_in(p, s, v->data[i], index);
        if (n >= 0)
            return n;
    }
    return -1;
}

/* The extent of the axis that `index` indexes plainly among the index arguments of an array. */
static int64_t extent_among(EvalProgram *p, Array *a, const ExprVec *args, const char *index)
{
    for (int i = 0; i < args->len; i++)
        if (is_plain(args->data[i], index) && a && i < a->rank && shape_of(p, a))
            return a->shape[i];
    return -1;
}

/* The extent that an expression gives to an index, or -1: that of the first axis which it indexes plainly. */
static int64_t extent_in(EvalProgram *p, Scope *s, const Expr *x, const char *index)
{
    int64_t n = -1;
    if (!x)
        return -1;
    switch (x->kind) {
    case X_REF:
        if (!x->brackets)
            return -1;
        n = extent_among(p, array_named(s, x), &x->args, index);
        return n >= 0 ? n : extent_in_all(p, s, &x->args, index);
    case X_CALL: {
        Instance *in = x->index.len ? instance_of(p, s, x) : NULL;
        n = in ? extent_among(p, in->result, &x->index, index) : -1;
        if (n < 0)
            n = extent_in_all(p, s, &x->args, index);
        return n >= 0 ? n : extent_in_all(p, s, &x->index, index);
    }
    case X_REDUCE:
        if (x->reduce != R_SOFTMAX)
            for (int i = 0; i < x->binders.len; i++)
                if (x->binders.data[i].name == index)
                    return -1;    /* another index of that name */
        return extent_in(p, s, x->a, index);
    case X_UNARY:
    case X_BINARY:
    case X_COND:
        n = extent_in(p, s, x->a, index);
        n = n >= 0 ? n : extent_in(p, s, x->b, index);
        return n >= 0 ? n : extent_in(p, s, x->c, index);
    default:
        return -1;
    }
}

static bool binder_extent(EvalProgram *p, Scope *s, const Binder *b, const Expr *where, int64_t *out)
{
    if (b->range)
        return const_size(p, s, b->range, out);
    *out = extent_in(p, s, where, b->name);
    if (*out < 0)
        diag(p->c, DIAG_ERROR, b->span, "the range of %s does not follow from what it indexes", b->name);
    return *out >= 0;
}

/* One axis of an array whose extents are not declared, from all of its equations. */
static bool axis_from_equations(EvalProgram *p, Array *a, int axis)
{
    int64_t n = -1;
    for (int q = 0; q < a->equations.len; q++) {
        const Stmt *e = a->equations.data[q].stmt;
        int64_t k = -1;
        if (axis >= e->lhs.len)
            return false;
        const Binder *b = &e->lhs.data[axis];
        if (b->fixed) {
            if (!const_size(p, a->scope, b->fixed, &k))
                return false;
            k++;
        } else if (!binder_extent(p, a->scope, b, e->value, &k)) {
            return false;
        }
        n = k > n ? k : n;
    }
    a->shape[axis] = n;
    return n >= 0;
}

static bool shape_of(EvalProgram *p, Array *a)
{
    if (a->shape_known)
        return true;
    if (a->shape_busy || p->depth > MAX_SHAPE_DEPTH) {
        if (!a->shape_busy || p->c->errors == 0)
            diag(p->c, DIAG_ERROR, a->span, "the ranges of %s depend on themselves", a->name);
        return false;
    }
    a->shape_busy = true;
    p->depth++;
    bool ok = a->equations.len > 0;
    for (int i = 0; ok && i < a->rank; i++)
        ok = axis_from_equations(p, a, i);
    p->depth--;
    a->shape_busy = false;
    return ok && set_shape(p, a);
}

/* ---------------------------------------------------------------- expressions */

static const struct { const char *name; Dual (*f)(Dual); } functions1[] = {
    {"exp", dual_exp}, {"log", dual_log}, {"log1p", dual_log1p}, {"expm1", dual_expm1}, {"sqrt", dual_sqrt},
    {"rsqrt", dual_rsqrt}, {"abs", dual_abs}, {"sign", dual_sign}, {"sin", dual_sin}, {"cos", dual_cos},
    {"tanh", dual_tanh}, {"sigmoid", dual_sigmoid}, {"logsigmoid", dual_logsigmoid}, {"silu", dual_silu},
    {"relu", dual_relu}, {"gelu", dual_gelu}, {"gelu_tanh", dual_gelu_tanh}, {"softplus", dual_softplus},
    {"softsign", dual_softsign}, {"elu", dual_elu}, {"erf", dual_erf}, {"stop", dual_stop},
};
static const struct { const char *name; Dual (*f)(Dual, Dual); } functions2[] = {
    {"pow", dual_pow}, {"max", dual_max}, {"min", dual_min}, {"atan2", dual_atan2}, {"div", dual_idiv},
    {"mod", dual_imod}, {"ste", dual_ste},
};

static Code *code_new(EvalProgram *p, CodeKind kind, Span span)
{
    Code *x = arena_alloc(p->arena, sizeof *x);
    x->kind = kind;
    x->span = span;
    if (++p->nodes == MAX_NODES)
        diag(p->c, DIAG_ERROR, span, "the cell is too large to evaluate");
    return x;
}

static Code *number(EvalProgram *p, Span span, double v)
{
    Code *x = code_new(p, C_CONST, span);
    x->num = v;
    return x;
}

static Code *failed(EvalProgram *p, const Expr *x, const char *what)
{
    diag(p->c, DIAG_ERROR, x->span, "%s", what);
    return number(p, x->span, NAN);
}

static Ix *ix_new(EvalProgram *p, IxOp op)
{
    Ix *i = arena_alloc(p->arena, sizeof *i);
    i->op = op;
    return i;
}

static Ix *ix_binary(EvalProgram *p, IxOp op, Ix *a, Ix *b)
{
    Ix *i = ix_new(p, op);
    i->a = a;
    i->b = b;
    return i;
}

static Ix *compile_index(EvalProgram *p, Scope *s, const Expr *x);

static Ix *index_reference(EvalProgram *p, Scope *s, const Expr *x)
{
    Symbol *y = x->brackets ? NULL : find(s, x);
    Ix *i = ix_new(p, I_CONST);
    if (y && y->kind == SY_INDEX) {
        i->op = I_REG;
        i->reg = y->reg;
    } else if (!y && !x->brackets && strcmp(x->name, "t") == 0) {
        i->op = I_STEP;
    } else {
        size_reference(p, s, x, &i->k);
    }
    return i;
}

static Ix *index_call(EvalProgram *p, Scope *s, const Expr *x)
{
    bool div = strcmp(x->name, "div") == 0;
    if (x->args.len != 2 || (!div && strcmp(x->name, "mod") != 0)) {
        diag(p->c, DIAG_ERROR, x->span, "this is not an index");
        return ix_new(p, I_CONST);
    }
    return ix_binary(p, div ? I_DIV : I_MOD, compile_index(p, s, x->args.data[0]),
                     compile_index(p, s, x->args.data[1]));
}

static Ix *compile_index(EvalProgram *p, Scope *s, const Expr *x)
{
    Ix *i;
    switch (x->kind) {
    case X_NUM:
        i = ix_new(p, I_CONST);
        if (!const_size(p, s, x, &i->k))
            i->k = 0;
        return i;
    case X_REF:
        return index_reference(p, s, x);
    case X_CALL:
        return index_call(p, s, x);
    case X_UNARY:
        if (x->op != O_NEG)
            break;
        i = ix_new(p, I_NEG);
        i->a = compile_index(p, s, x->a);
        return i;
    case X_BINARY: {
        IxOp op = x->op == O_ADD ? I_ADD : x->op == O_SUB ? I_SUB : x->op == O_MUL ? I_MUL
                : x->op == O_DIV ? I_DIV : x->op == O_MOD ? I_MOD : I_CONST;
        if (op == I_CONST)
            break;
        Ix *a = compile_index(p, s, x->a);
        return ix_binary(p, op, a, compile_index(p, s, x->b));
    }
    default:
        break;
    }
    diag(p->c, DIAG_ERROR, x->span, "this is not an index");
    return ix_new(p, I_CONST);
}

/* The registers that a tree reads from outside: added to reg[] where they are not yet. */
typedef Vec(int) Registers;

static void add_register(EvalProgram *p, Registers *v, int reg)
{
    for (int i = 0; i < v->len; i++)
        if (v->data[i] == reg)
            return;
    vec_push(p->arena, v, reg);
}

static void index_registers(EvalProgram *p, const Ix *x, Registers *v)
{
    if (!x)
        return;
    if (x->op == I_REG)
        add_register(p, v, x->reg);
    index_registers(p, x->a, v);
    index_registers(p, x->b, v);
}

static void registers_of(EvalProgram *p, const Code *x, Registers *v);

static void remove_bound(Registers *v, int n, const int *bound)
{
    int kept = 0;
    for (int i = 0; i < v->len; i++) {
        bool is_bound = false;
        for (int k = 0; k < n; k++)
            is_bound = is_bound || bound[k] == v->data[i];
        if (!is_bound)
            v->data[kept++] = v->data[i];
    }
    v->len = kept;
}

static void registers_of(EvalProgram *p, const Code *x, Registers *v)
{
    if (!x)
        return;
    if (x->memo.frame) {          /* known already: what it is remembered for */
        for (int i = 0; i < x->memo.n; i++)
            add_register(p, v, x->memo.reg[i]);
        for (int i = 0; x->kind == C_SOFTMAX && i < x->nbound; i++)
            add_register(p, v, x->bound[i]);
    } else {
        registers_of(p, x->a, v);
        registers_of(p, x->b, v);
        registers_of(p, x->c, v);
    }
    int n = x->kind == C_INDEX ? 1 : x->array ? x->array->rank : 0;
    for (int i = 0; i < n; i++)
        index_registers(p, x->index[i], v);
}

static void remember(EvalProgram *p, Scope *s, Memo *m, const Registers *v)
{
    m->frame = s->frame;
    m->n = v->len;
    m->reg = v->data;
    m->value = arena_alloc(p->arena, sizeof *m->value * (size_t)(v->len ? v->len : 1));
}

static Code *compile_load(EvalProgram *p, Scope *s, const Expr *x, Array *a, const ExprVec *index)
{
    if (p->constants_only)
        return failed(p, x, "only constants and sizes may stand here");
    if (!a || !shape_of(p, a) || index->len != a->rank)
        return failed(p, x, a ? "the number of indices is not that of the axes" : "there is no such value");
    Code *load = code_new(p, C_LOAD, x->span);
    load->array = a;
    load->index = arena_alloc(p->arena, sizeof *load->index * (size_t)(a->rank ? a->rank : 1));
    for (int i = 0; i < a->rank; i++)
        load->index[i] = compile_index(p, s, index->data[i]);
    return load;
}

static Code *compile_reference(EvalProgram *p, Scope *s, const Expr *x)
{
    Symbol *y = find(s, x);
    if (x->time)
        return failed(p, x, "earlier steps are not supported by the evaluator");
    if (!y && !x->brackets && !x->primed && strcmp(x->name, "t") == 0)
        return code_new(p, C_STEP, x->span);
    if (!y && !x->brackets && !x->primed && strcmp(x->name, "T") == 0)
        return code_new(p, C_STEPS, x->span);
    if (!y)
        return failed(p, x, "there is no value of this name");
    int64_t size = 0;
    switch (y->kind) {
    case SY_INDEX: {
        Code *c = code_new(p, C_INDEX, x->span);
        c->index = arena_alloc(p->arena, sizeof *c->index);
        c->index[0] = index_reference(p, s, x);
        return c;
    }
    case SY_DIM:
        dim_size(p, s, y, &size);
        return number(p, x->span, (double)size);
    case SY_CONST:
        return number(p, x->span, const_symbol(p, s, y));
    case SY_VALUE:
        return compile_load(p, s, x, x->primed ? y->next : y->now, &x->args);
    default:
        return failed(p, x, "this name is not a value");
    }
}

static Code *code2(EvalProgram *p, Span span, Dual (*f)(Dual, Dual), Code *a, Code *b)
{
    Code *c = code_new(p, C_CALL2, span);
    c->call2 = f;
    c->a = a;
    c->b = b;
    return c;
}

static Code *compile_binary(EvalProgram *p, Scope *s, const Expr *x)
{
    Code *a = compile_expr(p, s, x->a), *b = compile_expr(p, s, x->b), *c;
    switch (x->op) {
    case O_ADD: return code2(p, x->span, dual_add, a, b);
    case O_SUB: return code2(p, x->span, dual_sub, a, b);
    case O_MUL: return code2(p, x->span, dual_mul, a, b);
    case O_DIV: return code2(p, x->span, dual_div, a, b);
    case O_MOD: return code2(p, x->span, dual_imod, a, b);
    case O_POW: return code2(p, x->span, dual_pow, a, b);
    case O_AND: c = code_new(p, C_AND, x->span); break;
    case O_OR: c = code_new(p, C_OR, x->span); break;
    default: c = code_new(p, C_COMPARE, x->span); break;
    }
    c->op = x->op;
    c->a = a;
    c->b = b;
    return c;
}

static Code *compile_unary(EvalProgram *p, Scope *s, const Expr *x)
{
    Code *c = code_new(p, x->op == O_NOT ? C_NOT : C_CALL1, x->span);
    c->call1 = dual_neg;
    c->a = compile_expr(p, s, x->a);
    return c;
}

static Code *compile_condition(EvalProgram *p, Scope *s, const Expr *x)
{
    Code *c = code_new(p, C_COND, x->span);
    c->a = compile_expr(p, s, x->a);
    c->b = compile_expr(p, s, x->b);
    c->c = compile_expr(p, s, x->c);
    return c;
}

static Code *reduction_new(EvalProgram *p, const Expr *x, CodeKind kind)
{
    Code *c = code_new(p, kind, x->span);
    c->reduce = x->reduce;
    c->nbound = x->binders.len;
    c->bound = arena_alloc(p->arena, sizeof *c->bound * (size_t)(c->nbound + 1));
    c->extent = arena_alloc(p->arena, sizeof *c->extent * (size_t)(c->nbound + 1));
    return c;
}

/* What is computed over bound registers is kept for as long as nothing else that it reads has changed. */
static Code *finish_reduction(EvalProgram *p, Scope *s, Code *c)
{
    Registers v = {0};
    registers_of(p, c->a, &v);
    remove_bound(&v, c->nbound, c->bound);
    remember(p, s, &c->memo, &v);
    return c;
}

static Code *compile_reduce(EvalProgram *p, Scope *s, const Expr *x)
{
    Code *c = reduction_new(p, x, C_REDUCE);
    Scope *inside = scope_inside(p, s);
    for (int i = 0; i < c->nbound; i++) {
        if (!binder_extent(p, s, &x->binders.data[i], x->a, &c->extent[i]))
            return number(p, x->span, NAN);
        c->bound[i] = declare_index(p, inside, x->binders.data[i].name, c->extent[i])->reg;
    }
    c->a = compile_expr(p, inside, x->a);
    return finish_reduction(p, s, c);
}

static Code *compile_softmax(EvalProgram *p, Scope *s, const Expr *x)
{
    Code *c = reduction_new(p, x, C_SOFTMAX);
    if (c->nbound > EVAL_MAX_RANK)
        return failed(p, x, "too many indices under softmax");
    for (int i = 0; i < c->nbound; i++) {
        Symbol *y = find_in(s, NS_INDEX, x->binders.data[i].name);
        if (!y)
            return failed(p, x, "softmax runs over indices that are in scope");
        c->bound[i] = y->reg;
        c->extent[i] = y->extent;
    }
    c->a = compile_expr(p, s, x->a);
    return finish_reduction(p, s, c);
}

/* ---------------------------------------------------------------- fn */

/* How many axes an argument leaves open, and their extents: a bare name leaves all, ':' one each. */
static int open_axes(EvalProgram *p, Scope *s, const Expr *x, int64_t *shape)
{
    Array *a = NULL;
    const ExprVec *index = &x->args;
    bool bare = !x->brackets;
    int rank = 0;
    if (x->kind == X_REF) {
        a = array_named(s, x);
    } else if (x->kind == X_CALL) {
        Instance *in = instance_of(p, s, x);
        a = in ? in->result : NULL;
        index = &x->index;
        bare = index->len == 0;
    }
    if (!a || !shape_of(p, a))
        return 0;
    for (int i = 0; i < a->rank; i++)
        if (bare || (i < index->len && index->data[i]->kind == X_COLON))
            shape[rank++] = a->shape[i];
    return rank;
}

static void add_equations(EvalProgram *p, Scope *s, const StmtVec *body);

static Stmt *fn_named(Scope *s, const char *name, Scope **home)
{
    Symbol *y = find_in(s, NS_FN, name);
    if (!y)
        return NULL;
    *home = y->home;
    return (Stmt *)y->stmt;
}

static Array *add_definition(EvalProgram *p, Scope *s, const Stmt *e);

static void instance_body(EvalProgram *p, Instance *in)
{
    const Stmt *fn = in->fn;
    if (fn->has_body) {
        add_equations(p, in->scope, &fn->body);
        Symbol *y = find_here(in->scope, NS_VALUE, fn->name);
        in->result = y && y->kind == SY_VALUE ? y->now : NULL;
    } else {
        in->result = add_definition(p, in->scope, fn);
    }
    if (!in->result)
        diag(p->c, DIAG_ERROR, fn->name_span, "the fn %s has no result", fn->name);
}

/* The instance of a fn for one call; made when it is first asked for, since ranges may depend on its result. */
static Instance *instance_of(EvalProgram *p, Scope *s, const Expr *call)
{
    Scope *unit = s->unit, *home = NULL;
    for (int i = 0; i < unit->instances.len; i++)
        if (unit->instances.data[i]->call == call)
            return unit->instances.data[i];
    Stmt *fn = fn_named(s, call->name, &home);
    if (!fn)
        return NULL;
    if (fn->params.len != call->args.len || s->nest >= MAX_NEST || p->nodes > MAX_NODES) {
        diag(p->c, DIAG_ERROR, call->span, "the call of %s cannot be expanded", call->name);
        return NULL;
    }
    Instance *in = arena_alloc(p->arena, sizeof *in);
    in->call = call;
    in->fn = fn;
    in->frame.tick = 0;
    in->scope = scope_new(p, home, &in->frame);
    in->scope->nest = s->nest + 1;
    in->nargs = call->args.len;
    in->args = arena_alloc(p->arena, sizeof *in->args * (size_t)(in->nargs + 1));
    p->nodes++;
    for (int k = 0; k < in->nargs; k++) {
        int64_t shape[EVAL_MAX_RANK];
        int rank = open_axes(p, s, call->args.data[k], shape);
        Array *a = array_new(p, in->scope, fn->params.data[k], call->args.data[k]->span, rank);
        memcpy(a->shape, shape, sizeof *shape * (size_t)rank);
        a->is_data = true;
        set_shape(p, a);
        in->args[k] = a;
        declare(p, in->scope, SY_VALUE, fn->params.data[k], NULL)->now = a;
    }
    vec_push(p->arena, &unit->instances, in);
    instance_body(p, in);
    return in;
}

/* A read of an array at a call's or a name's index arguments, open axes at fresh registers. */
static Code *open_load(EvalProgram *p, Scope *s, const Expr *x, Code *load, const ExprVec *index, bool bare,
                       Equation *q)
{
    Array *a = load->array;
    load->index = arena_alloc(p->arena, sizeof *load->index * (size_t)(a->rank + 1));
    q->reg = arena_alloc(p->arena, sizeof *q->reg * (size_t)(a->rank + 1));
    if (!bare && index->len != a->rank)
        return failed(p, x, "the number of indices is not that of the axes");
    for (int i = 0; i < a->rank; i++) {
        if (bare || index->data[i]->kind == X_COLON) {
            load->index[i] = ix_new(p, I_REG);
            load->index[i]->reg = q->reg[q->rank++] = new_register(p);
        } else {
            load->index[i] = compile_index(p, s, index->data[i]);
        }
    }
    return load;
}

static Code *compile_instance(EvalProgram *p, Scope *s, const Expr *x, Instance *in);

/* How an argument is filled, once per call, under the caller's indices. */
static Equation argument(EvalProgram *p, Scope *s, const Expr *x, Array *to)
{
    Equation q = {0};
    if (to->rank == 0) {
        q.value = compile_expr(p, s, x);
    } else if (x->kind == X_REF) {
        Code *load = code_new(p, C_LOAD, x->span);
        load->array = array_named(s, x);
        q.value = open_load(p, s, x, load, &x->args, !x->brackets, &q);
    } else {
        Code *load = compile_instance(p, s, x, instance_of(p, s, x));
        q.value = load->kind == C_INSTANCE ? open_load(p, s, x, load, &x->index, !x->index.len, &q) : load;
    }
    return q;
}

/* Compiles the arguments of an instance where it is called; the index arguments are the caller's. */
static Code *compile_instance(EvalProgram *p, Scope *s, const Expr *x, Instance *in)
{
    Registers v = {0};
    if (!in || !in->result || !shape_of(p, in->result))
        return failed(p, x, "the call cannot be evaluated");
    Code *c = code_new(p, C_INSTANCE, x->span);
    c->instance = in;
    c->array = in->result;
    for (int k = 0; k < in->nargs; k++) {
        Array *a = in->args[k];
        if (!in->compiled)
            vec_push(p->arena, &a->equations, argument(p, s, x->args.data[k], a));
        Equation *q = &a->equations.data[0];
        Registers own = {0};
        registers_of(p, q->value, &own);
        remove_bound(&own, q->rank, q->reg);
        for (int i = 0; i < own.len; i++)
            add_register(p, &v, own.data[i]);
    }
    in->compiled = true;
    remember(p, s, &c->memo, &v);
    return c;
}

static Code *compile_user_call(EvalProgram *p, Scope *s, const Expr *x)
{
    Instance *in = instance_of(p, s, x);
    if (p->constants_only)
        return failed(p, x, "only constants and sizes may stand here");
    if (!in)
        return failed(p, x, "there is no function of this name");
    Code *c = compile_instance(p, s, x, in);
    if (c->kind != C_INSTANCE)
        return c;
    if (x->index.len != in->result->rank)
        return failed(p, x, "the number of indices is not that of the result");
    c->index = arena_alloc(p->arena, sizeof *c->index * (size_t)(x->index.len + 1));
    for (int i = 0; i < x->index.len; i++)
        c->index[i] = compile_index(p, s, x->index.data[i]);
    return c;
}

static Code *compile_call(EvalProgram *p, Scope *s, const Expr *x)
{
    Scope *home;
    int n = x->args.len;
    if (fn_named(s, x->name, &home))
        return compile_user_call(p, s, x);
    for (size_t i = 0; n == 1 && i < sizeof functions1 / sizeof *functions1; i++)
        if (strcmp(functions1[i].name, x->name) == 0) {
            Code *c = code_new(p, C_CALL1, x->span);
            c->call1 = functions1[i].f;
            c->a = compile_expr(p, s, x->args.data[0]);
            return c;
        }
    for (size_t i = 0; n == 2 && i < sizeof functions2 / sizeof *functions2; i++)
        if (strcmp(functions2[i].name, x->name) == 0) {
            Code *a = compile_expr(p, s, x->args.data[0]);
            return code2(p, x->span, functions2[i].f, a, compile_expr(p, s, x->args.data[1]));
        }
    if (n == 3 && strcmp(x->name, "clamp") == 0) {
        Code *c = code_new(p, C_CALL3, x->span);
        c->call3 = dual_clamp;
        c->a = compile_expr(p, s, x->args.data[0]);
        c->b = compile_expr(p, s, x->args.data[1]);
        c->c = compile_expr(p, s, x->args.data[2]);
        return c;
    }
    return failed(p, x, "there is no function of this name with so many arguments");
}

static Code *compile_expr(EvalProgram *p, Scope *s, const Expr *x)
{
    if (p->nodes > MAX_NODES)
        return number(p, x->span, NAN);
    switch (x->kind) {
    case X_NUM: return number(p, x->span, x->num);
    case X_REF: return compile_reference(p, s, x);
    case X_CALL: return compile_call(p, s, x);
    case X_UNARY: return compile_unary(p, s, x);
    case X_BINARY: return compile_binary(p, s, x);
    case X_COND: return compile_condition(p, s, x);
    case X_REDUCE: return x->reduce == R_SOFTMAX ? compile_softmax(p, s, x) : compile_reduce(p, s, x);
    default: return failed(p, x, "this is not an expression");
    }
}

/* ---------------------------------------------------------------- equations and statements */

/* The array that an equation defines: a state's next value, an output, or a definition made by its first equation. */
static Array *add_definition(EvalProgram *p, Scope *s, const Stmt *e)
{
    Symbol *y = find_here(s, NS_VALUE, e->name);
    Array *a = y && y->kind == SY_VALUE ? (e->primed ? y->next : y->now) : NULL;
    if (!y && !e->primed) {
        a = array_new(p, s, e->name, e->name_span, e->lhs.len);
        declare(p, s, SY_VALUE, e->name, e)->now = a;
    }
    if (!a || a->is_data || a->rank != e->lhs.len) {
        diag(p->c, DIAG_ERROR, e->name_span, "%s cannot be given a value here", e->name);
        return NULL;
    }
    Equation q = {.stmt = e, .rank = e->lhs.len};
    if (a->equations.len == 0)
        vec_push(p->arena, &s->arrays, a);
    vec_push(p->arena, &a->equations, q);
    return a;
}

/* Free names of an initial value stand for its axes, in the order in which they first appear. */
static void free_names(Scope *s, const Expr *x, int max, const char **names, int *n)
{
    if (!x)
        return;
    if (x->kind == X_REF && !x->brackets && !x->primed && !find(s, x) && strcmp(x->name, "t") != 0) {
        for (int i = 0; i < *n; i++)
            if (names[i] == x->name)
                return;
        if (*n < max)
            names[(*n)++] = x->name;
        return;
    }
    int bound = *n;
    for (int i = 0; i < x->args.len; i++)
        free_names(s, x->args.data[i], max, names, n);
    for (int i = 0; i < x->index.len; i++)
        free_names(s, x->index.data[i], max, names, n);
    free_names(s, x->a, max, names, n);
    free_names(s, x->b, max, names, n);
    free_names(s, x->c, max, names, n);
    for (int i = 0; x->kind == X_REDUCE && i < x->binders.len; i++)
        for (int k = bound; k < *n; k++)
            if (names[k] == x->binders.data[i].name) {
                memmove(names + k, names + k + 1, sizeof *names * (size_t)(*n - k - 1));
                (*n)--;
                break;
            }
}

/* The array of a state's or an iterate's initial value. */
static Array *initial_value(EvalProgram *p, Scope *s, const Stmt *d)
{
    Array *a = array_declared(p, s, d, d->name);
    Equation q = {.stmt = d, .rank = a->rank};
    if (!d->init)
        diag(p->c, DIAG_ERROR, d->span, "%s has no initial value", d->name);
    else
        vec_push(p->arena, &a->equations, q);
    vec_push(p->arena, &s->arrays, a);
    return a;
}

static void compile_initial(EvalProgram *p, Array *a, Equation *q)
{
    const char *names[EVAL_MAX_RANK];
    int n = 0;
    free_names(a->scope, q->stmt->init, EVAL_MAX_RANK, names, &n);
    Scope *inside = scope_inside(p, a->scope);
    q->reg = arena_alloc(p->arena, sizeof *q->reg * (size_t)(a->rank + 1));
    for (int i = 0; i < a->rank; i++)
        q->reg[i] = i < n ? declare_index(p, inside, names[i], a->shape[i])->reg : new_register(p);
    q->value = compile_expr(p, inside, q->stmt->init);
}

static void compile_equation(EvalProgram *p, Array *a, Equation *q)
{
    const Stmt *e = q->stmt;
    Scope *inside = scope_inside(p, a->scope);
    q->reg = arena_alloc(p->arena, sizeof *q->reg * (size_t)(q->rank + 1));
    q->fixed = arena_alloc(p->arena, sizeof *q->fixed * (size_t)(q->rank + 1));
    for (int i = 0; i < q->rank; i++) {
        const Binder *b = &e->lhs.data[i];
        int64_t extent = a->shape[i];
        q->reg[i] = -1;
        if (b->fixed && (!const_size(p, a->scope, b->fixed, &q->fixed[i]) || q->fixed[i] < 0 || q->fixed[i] >= extent))
            diag(p->c, DIAG_ERROR, b->span, "this index is out of range");
        else if (b->range && (!const_size(p, a->scope, b->range, &extent) || extent != a->shape[i]))
            diag(p->c, DIAG_ERROR, b->span, "this range is not that of the axis");
        else if (!b->fixed)
            q->reg[i] = declare_index(p, inside, b->name, a->shape[i])->reg;
    }
    q->value = compile_expr(p, inside, e->value);
}

static void compile_unit(EvalProgram *p, Scope *s);

static void compile_array(EvalProgram *p, Array *a)
{
    if (a->compiled || !shape_of(p, a))
        return;
    a->compiled = true;
    for (int i = 0; i < a->equations.len && p->nodes <= MAX_NODES; i++) {
        Equation *q = &a->equations.data[i];
        if (q->stmt->kind == S_STATE || q->stmt->kind == S_CARRY)
            compile_initial(p, a, q);
        else
            compile_equation(p, a, q);
    }
}

/* Compiles all equations of a unit, then those of the fn instances that they call. */
static void compile_unit(EvalProgram *p, Scope *s)
{
    for (int i = 0; i < s->arrays.len; i++)
        compile_array(p, s->arrays.data[i]);
    for (int i = 0; i < s->inner.len; i++)
        compile_unit(p, s->inner.data[i]);
    for (int i = 0; i < s->instances.len; i++)
        compile_unit(p, s->instances.data[i]->scope);
}

/* One iteration of a repeat: the carried values are those of the iteration before, and n is a number. */
static void add_iteration(EvalProgram *p, Scope *s, const Stmt *st, int64_t n, Array **carried)
{
    Scope *inside = scope_new(p, s, s->frame);
    Symbol *number = declare(p, inside, SY_CONST, st->lhs.data[0].name, st);
    number->known = true;
    number->num = (double)n;
    int k = 0;
    for (int i = 0; i < st->body.len; i++) {
        const Stmt *d = st->body.data[i];
        if (d->kind != S_CARRY)
            continue;
        Symbol *y = declare(p, inside, SY_VALUE, d->name, d);
        y->now = carried[k];
        y->next = carried[k++] = array_declared(p, inside, d, d->name);
    }
    vec_push(p->arena, &s->inner, inside);
    add_equations(p, inside, &st->body);
}

/* A repeat block: after it, the name of a carried value is the value after the last iteration. */
static void add_repeat(EvalProgram *p, Scope *s, const Stmt *st)
{
    int64_t steps;
    if (st->lhs.len != 1 || !st->lhs.data[0].range || !const_size(p, s, st->lhs.data[0].range, &steps) ||
        steps < 0 || steps > MAX_STEPS) {
        diag(p->c, DIAG_ERROR, st->span, "the number of iterations is not a number from 0 to %d", MAX_STEPS);
        return;
    }
    Array **carried = arena_alloc(p->arena, sizeof *carried * (size_t)(st->body.len + 1));
    int k = 0;
    for (int i = 0; i < st->body.len; i++)
        if (st->body.data[i]->kind == S_CARRY)
            carried[k++] = initial_value(p, s, st->body.data[i]);
    for (int64_t n = 0; n < steps && p->nodes <= MAX_NODES; n++)
        add_iteration(p, s, st, n, carried);
    k = 0;
    for (int i = 0; i < st->body.len; i++)
        if (st->body.data[i]->kind == S_CARRY)
            declare(p, s, SY_VALUE, st->body.data[i]->name, st->body.data[i])->now = carried[k++];
}

static void add_statement(EvalProgram *p, Scope *s, const Stmt *st)
{
    switch (st->kind) {
    case S_EQ:
        add_definition(p, s, st);
        break;
    case S_REPEAT:
        add_repeat(p, s, st);
        break;
    case S_WHEN:
        add_equations(p, s, holds(p, s, st->value) ? &st->body : &st->other);
        break;
    case S_RESET:
        diag(p->c, DIAG_ERROR, st->span, "reset is not supported by the evaluator");
        break;
    default:
        break;
    }
}

static void add_equations(EvalProgram *p, Scope *s, const StmtVec *body)
{
    for (int i = 0; i < body->len; i++)
        add_statement(p, s, body->data[i]);
}

/* ---------------------------------------------------------------- the cell */

static void add_fn(EvalProgram *p, Scope *s, const Stmt *st)
{
    if (!st->is_const)            /* an adjoint fn is a promise about a derivative: the evaluator takes its own */
        declare(p, s, SY_FN, st->name, st)->home = s;
}

/* Dims, constants, options and fns first: conditions may use them wherever they stand. */
static void declare_names(EvalProgram *p, Scope *s, const StmtVec *body)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *st = body->data[i];
        if (st->kind == S_DIM)
            declare(p, s, SY_DIM, st->name, st);
        else if (st->kind == S_CONST)
            declare(p, s, SY_CONST, st->name, st);
        else if (st->kind == S_OPTION)
            declare(p, s, SY_OPTION, st->name, st);
        else if (st->kind == S_FN)
            add_fn(p, s, st);
    }
}

static EvalTensor *add_tensor(EvalProgram *p, EvalKind kind, const char *name, const Array *a, const Stmt *decl)
{
    Eval *e = p->e;
    size_t old = sizeof *e->tensors * (size_t)e->ntensors;
    e->tensors = arena_grow(p->arena, e->tensors, old, old + sizeof *e->tensors);
    EvalTensor *t = &e->tensors[e->ntensors++];
    memset(t, 0, sizeof *t);
    t->name = name;
    t->kind = kind;
    t->rank = a->rank;
    memcpy(t->shape, a->shape, sizeof *a->shape * (size_t)a->rank);
    t->count = a->count;
    t->decl = decl;
    if (decl) {
        t->is_int = decl->text && strcmp(decl->text, "i32") == 0;
        t->no_grad = decl->is_const || t->is_int;
        t->has_init = kind == EV_STATE && decl->init;
    }
    return t;
}

static void declare_tensor(EvalProgram *p, Scope *s, const Stmt *st)
{
    int tensor = p->e->ntensors;
    Array *a = array_declared(p, s, st, st->name);
    Symbol *y = declare(p, s, SY_VALUE, st->name, st);
    TensorSlot slot = {a, tensor};
    y->now = a;
    a->is_data = st->kind != S_OUTPUT;
    switch (st->kind) {
    case S_INPUT:
        add_tensor(p, EV_INPUT, st->name, a, st);
        vec_push(p->arena, &p->inputs, slot);
        break;
    case S_PARAM:
        add_tensor(p, EV_PARAM, st->name, a, st);
        vec_push(p->arena, &p->params, slot);
        break;
    case S_STATE: {
        y->next = array_declared(p, s, st, st->name);
        add_tensor(p, EV_STATE, st->name, a, st);
        StateSlot state = {a, y->next, NULL, tensor};
        vec_push(p->arena, &p->states, state);
        break;
    }
    default:
        add_tensor(p, EV_OUTPUT, st->name, a, st);
        vec_push(p->arena, &p->outputs, slot);
        break;
    }
}

/* Declarations of the branches that are taken; before the equations, which may stand above them. */
static void declare_tensors(EvalProgram *p, Scope *s, const StmtVec *body, bool top)
{
    if (!top)
        declare_names(p, s, body);
    for (int i = 0; i < body->len; i++) {
        const Stmt *st = body->data[i];
        if (st->kind == S_INPUT || st->kind == S_PARAM || st->kind == S_STATE || st->kind == S_OUTPUT)
            declare_tensor(p, s, st);
        else if (st->kind == S_WHEN)
            declare_tensors(p, s, holds(p, s, st->value) ? &st->body : &st->other, false);
    }
}

static void list_dims(EvalProgram *p, Scope *s, const EvalSize *sizes, int nsizes)
{
    Eval *e = p->e;
    EvalSize *given = arena_alloc(p->arena, sizeof *given * (size_t)(nsizes + 1));
    for (int i = 0; i < nsizes; i++)
        given[i] = sizes[i];
    e->dims = given;              /* what dim_given looks at */
    e->ndims = nsizes;
    int n = 0;
    for (Symbol *y = s->symbols; y; y = y->older)
        n += y->kind == SY_DIM;
    EvalSize *all = arena_alloc(p->arena, sizeof *all * (size_t)(n + 1));
    int k = n;
    for (Symbol *y = s->symbols; y; y = y->older)
        if (y->kind == SY_DIM && dim_size(p, s, y, &all[--k].value))
            all[k].name = y->name;
    e->dims = all;
    e->ndims = n;
}

/* Files that were imported, so that a cycle of imports ends. */
typedef struct Imports { const char **paths; int n; Arena *arena; } Imports;

static const char *import_path(EvalProgram *p, const Ast *from, const char *name, bool beside)
{
    const char *dir = p->c->import_dir;
    if (!beside)
        return dir ? intern_f(p->c, "%s/%s", dir, name) : NULL;
    const char *own = p->c->sources.data[from->file].path, *slash = own ? strrchr(own, '/') : NULL;
    return slash ? intern_f(p->c, "%.*s/%s", (int)(slash - own), own, name) : name;
}

static int import_file(EvalProgram *p, const Ast *from, const Stmt *st)
{
    for (int beside = 1; beside >= 0; beside--) {
        const char *path = import_path(p, from, st->text, beside);
        FILE *in = path ? fopen(path, "rb") : NULL;
        if (in) {
            fclose(in);
            return source_load(p->c, path);
        }
    }
    diag(p->c, DIAG_ERROR, st->span, "cannot open the import %s", st->text);
    return -1;
}

static void declare_file(EvalProgram *p, Scope *file, const Ast *ast, Imports *seen);

static void add_import(EvalProgram *p, Scope *to, const Ast *from, const Stmt *st, Imports *seen)
{
    for (int i = 0; i < seen->n; i++)
        if (seen->paths[i] == st->text)
            return;
    if (seen->n == 64 || !st->text)
        return;
    seen->paths[seen->n++] = st->text;
    int file = import_file(p, from, st);
    if (file >= 0)
        declare_file(p, to, parse_source(p->c, file), seen);
}

/* The fns of a file and of what it imports, all in one scope: a fn outside a cell sees these and its arguments. */
static void declare_file(EvalProgram *p, Scope *file, const Ast *ast, Imports *seen)
{
    for (int i = 0; i < ast->items.len; i++) {
        const Stmt *st = ast->items.data[i];
        if (st->kind == S_IMPORT)
            add_import(p, file, ast, st, seen);
        else if (st->kind == S_FN)
            add_fn(p, file, st);
    }
}

static const Stmt *find_cell(const Ast *ast, const char *name)
{
    const Stmt *found = NULL;
    for (int i = 0; i < ast->items.len; i++) {
        const Stmt *st = ast->items.data[i];
        if (st->kind == S_CELL && (!name || strcmp(st->name, name) == 0))
            found = st;
    }
    return found;
}

static void compile_cell(EvalProgram *p, Scope *s)
{
    for (int i = 0; i < p->states.len; i++) {
        StateSlot *st = &p->states.data[i];
        const Stmt *d = p->e->tensors[st->tensor].decl;
        st->init = d->init ? initial_value(p, s, d) : NULL;
        if (st->next->equations.len == 0)
            diag(p->c, DIAG_ERROR, d->name_span, "the state %s has no next value", d->name);
    }
    for (int i = 0; i < p->outputs.len; i++)
        if (p->outputs.data[i].array->equations.len == 0)
            diag(p->c, DIAG_ERROR, p->outputs.data[i].array->span, "the output %s has no value",
                 p->outputs.data[i].array->name);
    compile_unit(p, s);
}

Eval *eval_new(Compiler *c, const Ast *ast, const char *cell, const EvalSize *sizes, int nsizes)
{
    int errors = c->errors;
    Eval *e = arena_alloc(c->arena, sizeof *e);
    EvalProgram *p = arena_alloc(c->arena, sizeof *p);
    e->c = p->c = c;
    p->arena = c->arena;
    e->program = p;
    p->e = e;
    const Stmt *st = find_cell(ast, cell);
    if (!st) {
        diag(c, DIAG_ERROR, (Span){-1, 0, 0}, "there is no cell%s%s to evaluate", cell ? " " : "", cell ? cell : "");
        return NULL;
    }
    e->cell = st->name;
    const char *paths[64];
    Imports seen = {paths, 0, c->arena};
    Scope *file = scope_new(p, NULL, &p->frame);
    declare_file(p, file, ast, &seen);
    Scope *s = p->cell_scope = scope_new(p, file, &p->frame);
    declare_names(p, s, &st->body);
    list_dims(p, s, sizes, nsizes);
    if (c->errors == errors) {
        declare_tensors(p, s, &st->body, true);
        add_equations(p, s, &st->body);
        compile_cell(p, s);
    }
    return c->errors == errors ? e : NULL;
}

EvalTensor *eval_find(Eval *e, const char *name)
{
    for (int i = 0; i < e->ntensors; i++)
        if (strcmp(e->tensors[i].name, name) == 0)
            return &e->tensors[i];
    return NULL;
}

int eval_watch(Eval *e, const char *name)
{
    EvalProgram *p = e->program;
    size_t n = strlen(name);
    bool primed = n && name[n - 1] == '\'';
    Symbol *y = find_here(p->cell_scope, NS_VALUE, intern_n(e->c, name, primed ? n - 1 : n));
    Array *a = !y || y->kind != SY_VALUE ? NULL : primed ? y->next : y->now;
    if (!a)
        return -1;
    TensorSlot slot = {a, e->ntensors};
    add_tensor(p, EV_WATCH, intern(e->c, name), a, NULL);
    vec_push(p->arena, &p->watches, slot);
    return slot.tensor;
}

static void outline_option(Compiler *c, EvalOption *o, const Stmt *st)
{
    o->name = st->name;
    o->nchoices = st->choices.len;
    o->choices = arena_alloc(c->arena, sizeof *o->choices * (size_t)(st->choices.len + 1));
    for (int i = 0; i < st->choices.len; i++)
        o->choices[i] = st->choices.data[i];
}

bool eval_outline(Compiler *c, const Ast *ast, const char *cell, EvalOutline *out)
{
    const Stmt *st = find_cell(ast, cell);
    *out = (EvalOutline){0};
    if (!st)
        return false;
    size_t n = (size_t)st->body.len + 1;
    out->cell = st->name;
    out->open_dims = arena_alloc(c->arena, sizeof *out->open_dims * n);
    out->all_dims = arena_alloc(c->arena, sizeof *out->all_dims * n);
    out->options = arena_alloc(c->arena, sizeof *out->options * n);
    for (int i = 0; i < st->body.len; i++) {
        const Stmt *d = st->body.data[i];
        bool given = d->value != NULL;
        if (d->kind == S_OPTION)
            outline_option(c, &out->options[out->noptions++], d);
        if (d->kind != S_DIM)
            continue;
        for (int k = 0; k < c->dims.len; k++)
            given = given || strcmp(c->dims.data[k].name, d->name) == 0;
        out->all_dims[out->nall++] = d->name;
        if (!given)
            out->open_dims[out->nopen++] = d->name;
    }
    return true;
}
