/* eval_names.c: the names of the evaluator. What comes in is scopes and the settings of the compilation; what
 * goes out is what a name stands for, and the numbers that are known before the cell runs: dims, constants,
 * extents, conditions. */
#include "eval_scope.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

Scope *ev_scope_new(EvalProgram *p, Scope *outer, Frame *frame)
{
    Scope *s = arena_alloc(p->arena, sizeof *s);
    s->outer = outer;
    s->unit = s;
    s->frame = frame;
    s->nest = outer ? outer->nest : 0;
    return s;
}

Scope *ev_scope_inside(EvalProgram *p, Scope *outer)
{
    Scope *s = ev_scope_new(p, outer, outer->frame);
    s->unit = outer->unit;
    return s;
}

Symbol *ev_declare(EvalProgram *p, Scope *s, SymbolKind kind, const char *name, const Stmt *stmt)
{
    Symbol *y = arena_alloc(p->arena, sizeof *y);
    y->kind = kind;
    y->name = name;
    y->stmt = stmt;
    y->older = s->symbols;
    s->symbols = y;
    return y;
}

Symbol *ev_find_here(const Scope *s, NameSpace space, const char *name)
{
    for (Symbol *y = s->symbols; y; y = y->older)
        if (y->name == name && space == (y->kind == SY_INDEX ? NS_INDEX
                                         : y->kind == SY_FN  ? NS_FN
                                                             : NS_VALUE))
            return y;
    return NULL;
}

Symbol *ev_find_in(const Scope *s, NameSpace space, const char *name)
{
    for (; s; s = s->outer) {
        Symbol *y = ev_find_here(s, space, name);
        if (y)
            return y;
    }
    return NULL;
}

/* What a name stands for: with brackets or a prime never an index. */
Symbol *ev_find(const Scope *s, const Expr *x)
{
    Symbol *y = x->brackets || x->primed ? NULL : ev_find_in(s, NS_INDEX, x->name);
    return y ? y : ev_find_in(s, NS_VALUE, x->name);
}

int ev_new_register(EvalProgram *p)
{
    if (p->nregs == p->cap_regs) {
        int cap = p->cap_regs ? 2 * p->cap_regs : 64;
        p->regs = arena_grow(p->arena, p->regs, sizeof *p->regs * (size_t)p->cap_regs,
                             sizeof *p->regs * (size_t)cap);
        p->extents = arena_grow(p->arena, p->extents, sizeof *p->extents * (size_t)p->cap_regs,
                                sizeof *p->extents * (size_t)cap);
        p->cap_regs = cap;
    }
    p->extents[p->nregs] = -1;
    return p->nregs++;
}

Symbol *ev_declare_index(EvalProgram *p, Scope *s, const char *name, int64_t extent, bool of_steps)
{
    Symbol *y = ev_declare(p, s, SY_INDEX, name, NULL);
    y->reg = ev_new_register(p);
    y->extent = extent;
    y->of_steps = of_steps;
    p->extents[y->reg] = of_steps ? -1 : extent;
    return y;
}


/* Is a constant whole: a number written so, or what +, -, *, a power, an exact quotient or mod makes of such? */
static bool is_whole_constant(EvalProgram *p, Scope *s, const Expr *x)
{
    const Symbol *y = x->kind == X_REF ? ev_find(s, x) : NULL;
    switch (x->kind) {
    case X_NUM: return x->is_int;
    case X_REF: return y && (y->kind == SY_DIM || (y->kind == SY_CONST && y->whole));
    case X_UNARY: return x->op == O_NEG && is_whole_constant(p, s, x->a);
    case X_BINARY: return is_whole_constant(p, s, x->a) && is_whole_constant(p, s, x->b);
    case X_COND: return is_whole_constant(p, s, x->b) && is_whole_constant(p, s, x->c);
    case X_CALL:
        return x->args.len == 2 && (strcmp(x->name, "div") == 0 || strcmp(x->name, "mod") == 0) &&
               is_whole_constant(p, s, x->args.data[0]) && is_whole_constant(p, s, x->args.data[1]);
    default: return false;
    }
}

double ev_number(EvalProgram *p, Scope *s, const Expr *x)
{
    bool before = p->constants_only;
    int errors = p->c->errors;
    p->constants_only = true;
    Code *code = ev_compile_expr(p, s, x);
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

double ev_const_symbol(EvalProgram *p, Scope *s, Symbol *y)
{
    if (y->known)
        return y->num;
    if (y->busy) {
        diag(p->c, DIAG_ERROR, y->stmt->name_span, "the constant %s depends on itself", y->name);
        return NAN;
    }
    y->busy = true;
    const char *given = setting(p, y->name);
    y->num = given ? strtod(given, NULL) : ev_number(p, s, y->stmt->value);
    y->whole = given ? !strpbrk(given, ".eExXnN") : is_whole_constant(p, s, y->stmt->value);
    y->whole = y->whole && y->num == floor(y->num) && fabs(y->num) <= 0x1p53;
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

bool ev_const_size(EvalProgram *p, Scope *s, const Expr *x, int64_t *out);

bool ev_dim_size(EvalProgram *p, Scope *s, Symbol *y, int64_t *out)
{
    if (!y->known) {
        if (y->busy) {
            diag(p->c, DIAG_ERROR, y->stmt->name_span, "the dim %s depends on itself", y->name);
            return false;
        }
        y->busy = true;
        bool ok = dim_given(p, y->name, &y->size);
        if (!ok && y->stmt->value)
            ok = ev_const_size(p, s, y->stmt->value, &y->size);
        else if (!ok)
            diag(p->c, DIAG_ERROR, y->stmt->name_span, "the dim %s has no value: give it with --dim %s=SIZE",
                 y->name, y->name);
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

bool ev_size_reference(EvalProgram *p, Scope *s, const Expr *x, int64_t *out)
{
    Symbol *y = x->brackets ? NULL : ev_find(s, x);
    if (y && y->kind == SY_DIM)
        return ev_dim_size(p, s, y, out);
    double v = y && y->kind == SY_CONST ? ev_const_symbol(p, s, y) : NAN;
    if (v == floor(v) && fabs(v) <= 0x1p53) {
        *out = (int64_t)v;
        return true;
    }
    diag(p->c, DIAG_ERROR, x->span, "%s is not a size", x->name);
    return false;
}

/* An integer that is known before the cell runs: an extent, a number of iterations, a constant index. */
bool ev_const_size(EvalProgram *p, Scope *s, const Expr *x, int64_t *out)
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
        return ev_size_reference(p, s, x, out);
    case X_UNARY:
        if (x->op != O_NEG || !ev_const_size(p, s, x->a, &a))
            return false;
        *out = -a;
        return true;
    case X_BINARY:
        return ev_const_size(p, s, x->a, &a) && ev_const_size(p, s, x->b, &b) &&
               size_operation(p, x, a, b, out);
    case X_CALL:
        if (x->args.len == 2 && (strcmp(x->name, "div") == 0 || strcmp(x->name, "mod") == 0) &&
            ev_const_size(p, s, x->args.data[0], &a) && ev_const_size(p, s, x->args.data[1], &b) && b > 0) {
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
    Symbol *y = x->kind == X_REF && !x->brackets ? ev_find_in(s, NS_VALUE, x->name) : NULL;
    return y && y->kind == SY_OPTION ? y : NULL;
}

/* The condition of a `when`: options are compared with their choices, the rest are numbers. */
bool ev_holds(EvalProgram *p, Scope *s, const Expr *x)
{
    if (x->kind == X_UNARY && x->op == O_NOT)
        return !ev_holds(p, s, x->a);
    if (x->kind == X_BINARY && x->op == O_AND)
        return ev_holds(p, s, x->a) && ev_holds(p, s, x->b);
    if (x->kind == X_BINARY && x->op == O_OR)
        return ev_holds(p, s, x->a) || ev_holds(p, s, x->b);
    if (x->kind == X_BINARY && (x->op == O_EQ || x->op == O_NE)) {
        Symbol *y = option_symbol(s, x->a);
        const Expr *choice = y ? x->b : x->a;
        y = y ? y : option_symbol(s, x->b);
        if (y && choice->kind == X_REF)
            return (strcmp(option_choice(p, y), choice->name) == 0) == (x->op == O_EQ);
        if (y && choice->kind == X_NUM)       /* option heads = 1 | 2: choices may be numbers */
            return (strtod(option_choice(p, y), NULL) == choice->num) == (x->op == O_EQ);
    }
    return ev_number(p, s, x) != 0;
}
