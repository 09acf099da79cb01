/* fold.c: what is known while compiling: constants, conditions of `when`, whole numbers and extents. An
 * expression of the AST and a scope come in; a Constant or a Poly goes out. Whatever is not a constant is
 * diagnosed where it stands. Numbers stay small enough that sums and products of extents never overflow 64
 * bits. */
#include <math.h>
#include <string.h>

#include "flat.h"
#include "ir/ops.h"

enum { MAX_TERMS = 64, MAX_DEGREE = 8 };
#define MAX_EXTENT ((int64_t)1 << 28)
#define MAX_EXACT 9007199254740992.0 /* 2^53: whole numbers that a double holds */

static Constant number(double v, bool is_int)
{
    return (Constant){ .num = v, .is_int = is_int && v == floor(v) && fabs(v) <= MAX_EXACT };
}

static bool is_bare(const Expr *e)
{
    return e->kind == X_REF && !e->brackets && !e->primed && !e->time;
}

static const Symbol *option_of(const Expr *e, const Scope *scope)
{
    const Symbol *s = is_bare(e) ? scope_find(scope, e->name) : NULL;
    return s && s->kind == SYM_OPTION ? s : NULL;
}

static bool fold_name(Flat *f, const Expr *e, const Scope *scope, const CallSite *chain, Constant *out)
{
    Symbol *s = is_bare(e) ? scope_find(scope, e->name) : NULL;
    if (is_constant_pi(f, scope, e)) {
        *out = number(PI, false);
        return true;
    }
    if (!s) {
        unknown_value(f, scope, chain, e->span, e->name, "name");
        return false;
    }
    s->used = true;
    switch (s->kind) {
    case SYM_CONST:
    case SYM_NUMBER:
    case SYM_OPTION: *out = s->value; return !s->failed;
    case SYM_DIM:
        if (s->failed)
            return false;
        if (s->size->is_const) {
            *out = number((double)s->size->value, true);
            return true;
        }
        FLAT_ERROR(f, chain, e->span, "dim '%s' is only known at run time, but a constant is needed here",
                   s->name);
        FLAT_NOTE(f, s->span, "bind it with 'dim %s = 64;' or with --dim %s=64", s->name, s->name);
        return false;
    default:
        FLAT_ERROR(f, chain, e->span, "'%s' is %s, but a constant is needed here", s->name,
                   kind_name(s->kind));
        FLAT_NOTE(f, s->span, "'%s' is declared here", s->name);
        return false;
    }
}

/* `bias == fixed`: the other side is one of the option's choices. */
static bool fold_choice(Flat *f, const Symbol *option, const Expr *e, const CallSite *chain, Constant *out)
{
    if (!is_bare(e)) {
        FLAT_ERROR(f, chain, e->span, "option '%s' can only be compared with one of its choices",
                   option->name);
        return false;
    }
    for (int i = 0; i < option->decl->choices.len; i++)
        if (option->decl->choices.data[i] == e->name) {
            *out = (Constant){ .is_name = true, .name = e->name };
            return true;
        }
    const char *const *choices = (const char *const *)option->decl->choices.data;
    const char *near = suggest(e->name, choices, option->decl->choices.len);
    Buf list = { .arena = f->c->arena };
    for (int i = 0; i < option->decl->choices.len; i++)
        buf_f(&list, "%s%s", i ? ", " : "", choices[i]);
    FLAT_ERROR(f, chain, e->span,
               near ? "'%s' is not a choice of option '%s'; did you mean '%s'?"
                    : "'%s' is not a choice of option '%s': there are %s",
               e->name, option->name, near ? near : list.data);
    diag_fix(f->c, e->span, near);
    FLAT_NOTE(f, option->span, "option '%s' is declared here", option->name);
    return false;
}

static bool fold_compare(Flat *f, const Expr *e, const Scope *scope, const CallSite *chain, Constant *out)
{
    const Symbol *l = option_of(e->a, scope), *r = option_of(e->b, scope);
    Constant a, b;
    bool ok;
    if ((l || r) && (e->op == O_EQ || e->op == O_NE)) {
        if (l)
            ((Symbol *)(uintptr_t)l)->used = true;
        if (r)
            ((Symbol *)(uintptr_t)r)->used = true;
        ok = l ? (a = l->value, fold_choice(f, l, e->b, chain, &b))
               : (b = r->value, fold_choice(f, r, e->a, chain, &a));
        if (ok)
            *out = number((a.name == b.name) == (e->op == O_EQ), true);
        return ok;
    }
    if (l || r) {
        FLAT_ERROR(f, chain, e->span, "option '%s' can only be compared by == or !=", l ? l->name : r->name);
        return false;
    }
    if (!fold_constant(f, e->a, scope, chain, &a) || !fold_constant(f, e->b, scope, chain, &b))
        return false;
    double x = a.num, y = b.num;
    bool v = e->op == O_LT   ? x < y
             : e->op == O_LE ? x <= y
             : e->op == O_GT ? x > y
             : e->op == O_GE ? x >= y
             : e->op == O_EQ ? x == y
                             : x != y;
    *out = number(v, true);
    return true;
}

/* What is left of a, with the sign of b. Of whole numbers exactly: their quotient may be rounded up to a
 * whole number. */
static double remainder_of(Constant a, Constant b)
{
    if (!a.is_int || !b.is_int)
        return a.num - b.num * floor(a.num / b.num);
    int64_t left = (int64_t)a.num % (int64_t)b.num;
    return (double)(left && (left < 0) != (b.num < 0) ? left + (int64_t)b.num : left);
}

static bool fold_binary(Flat *f, const Expr *e, const Scope *scope, const CallSite *chain, Constant *out)
{
    Constant a, b;
    if (e->op >= O_LT && e->op <= O_NE)
        return fold_compare(f, e, scope, chain, out);
    if (!fold_constant(f, e->a, scope, chain, &a) || !fold_constant(f, e->b, scope, chain, &b))
        return false;
    if (a.is_name || b.is_name) {
        FLAT_ERROR(f, chain, e->span, "an option is not a number");
        return false;
    }
    bool whole = a.is_int && b.is_int;
    double x = a.num, y = b.num;
    switch (e->op) {
    /* 2^53 + 1 is rounded to 2^53, which is no whole number that was meant. */
    case O_ADD: *out = number(x + y, whole && x + y - x == y); return true;
    case O_SUB: *out = number(x - y, whole && x - y - x == -y); return true;
    case O_MUL: *out = number(x * y, whole && fma(x, y, -(x * y)) == 0); return true;
    case O_POW: *out = number(pow(x, y), whole && y >= 0); return true;
    case O_AND: *out = number(x != 0 && y != 0, true); return true;
    case O_OR: *out = number(x != 0 || y != 0, true); return true;
    case O_DIV:
    case O_MOD:
        if (y == 0) {
            FLAT_ERROR(f, chain, e->span, "division by zero in a constant");
            return false;
        }
        if (e->op == O_DIV)
            *out = number(x / y, whole);
        else
            *out = number(remainder_of(a, b), whole);
        return true;
    default: return false;
    }
}

/* `div` and `mod`. */
static bool fold_division(Flat *f, const Expr *e, const Scope *scope, const CallSite *chain, Constant *out)
{
    Constant a, b;
    bool quotient = e->name == intern(f->c, "div");
    if (e->args.len != 2) {
        FLAT_ERROR(f, chain, e->span, "'%s' takes 2 arguments, but %d %s given", e->name, e->args.len,
                   e->args.len == 1 ? "is" : "are");
        return false;
    }
    if (!fold_constant(f, e->args.data[0], scope, chain, &a) ||
        !fold_constant(f, e->args.data[1], scope, chain, &b))
        return false;
    bool whole = a.is_int && b.is_int;
    if (b.num == 0 || (quotient && !whole)) {
        FLAT_ERROR(f, chain, e->span,
                   b.num == 0 ? "division by zero in a constant" : "'div' needs whole numbers");
        return false;
    }
    double left = remainder_of(a, b);
    *out = !quotient ? number(left, whole)
                     : number((double)(((int64_t)a.num - (int64_t)left) / (int64_t)b.num), true);
    return true;
}

static bool fold_call(Flat *f, const Expr *e, const Scope *scope, const CallSite *chain, Constant *out)
{
    int op = op_find(e->name);
    double args[4] = { 0 };
    if (!e->brackets && (e->name == intern(f->c, "div") || e->name == intern(f->c, "mod")))
        return fold_division(f, e, scope, chain, out);
    if (map_get(&f->fns, e->name) || op < 0 || !op_table[op].in_language || !op_table[op].eval ||
        e->brackets) {
        FLAT_ERROR(f, chain, e->span,
                   "'%s(...)' is not a constant: constants are made of numbers, bound dims and the "
                   "functions of the language",
                   e->name);
        return false;
    }
    double left_out;
    bool completed = op_default((Op)op, e->args.len, &left_out);
    if (e->args.len != op_table[op].arity && !completed) {
        FLAT_ERROR(f, chain, e->span, "'%s' takes %d argument%s, but %d %s given", e->name,
                   op_table[op].arity, op_table[op].arity == 1 ? "" : "s", e->args.len,
                   e->args.len == 1 ? "is" : "are");
        return false;
    }
    for (int i = 0; i < e->args.len; i++) {
        Constant a;
        if (!fold_constant(f, e->args.data[i], scope, chain, &a))
            return false;
        args[i] = a.num;
    }
    if (completed)
        args[e->args.len] = left_out;
    *out = number(op_table[op].eval(args), false);
    return true;
}

bool fold_constant(Flat *f, const Expr *e, const Scope *scope, const CallSite *chain, Constant *out)
{
    Constant a;
    switch (e->kind) {
    case X_NUM: *out = number(e->num, e->is_int); return true;
    case X_BINARY: return fold_binary(f, e, scope, chain, out);
    case X_CALL: return fold_call(f, e, scope, chain, out);
    case X_ERROR: return false;
    case X_UNARY:
        if (!fold_constant(f, e->a, scope, chain, &a))
            return false;
        *out = e->op == O_NOT ? number(a.num == 0, true) : number(-a.num, a.is_int);
        return true;
    case X_COND: {
        bool taken;
        if (!fold_condition(f, e->a, scope, chain, &taken))
            return false;
        return fold_constant(f, taken ? e->b : e->c, scope, chain, out);
    }
    case X_REF:
        if (is_bare(e))
            return fold_name(f, e, scope, chain, out);
        break;
    default: break;
    }
    FLAT_ERROR(f, chain, e->span,
               "a constant is needed here: numbers, constants, bound dims and functions of them");
    return false;
}

/* A value of the step that a condition reads, which is none of a when; NULL: there is none. */
static const Stmt *value_in(Flat *f, const Expr *e, const Scope *scope)
{
    if (!e || e->kind == X_REF) {
        const Mention *m = e && !scope_find(scope, e->name) ? map_get(&f->mentions, e->name) : NULL;
        return m && m->stmt->kind >= S_INPUT && m->stmt->kind <= S_RESET ? m->stmt : NULL;
    }
    /* A choice of an option may be called as a value. */
    if (e->kind == X_BINARY && (option_of(e->a, scope) || option_of(e->b, scope)))
        return NULL;
    const Stmt *s = value_in(f, e->a, scope);
    return s ? s : value_in(f, e->b, scope);
}

bool fold_condition(Flat *f, const Expr *e, const Scope *scope, const CallSite *chain, bool *out)
{
    Constant v;
    const Stmt *s = value_in(f, e, scope);
    if (s) {
        FLAT_ERROR(f, chain, e->span,
                   "a when chooses by options, constants and bound dims, but '%s' is %s: a choice that "
                   "values make is written c ? a : b",
                   s->name, kind_name(data_kind(s->kind)));
        return false;
    }
    bool logical = (e->kind == X_BINARY && e->op >= O_LT) || (e->kind == X_UNARY && e->op == O_NOT);
    if (!fold_constant(f, e, scope, chain, &v))
        return false;
    if (v.is_name || !logical) {
        FLAT_ERROR(f, chain, e->span, "a condition is needed here, such as '%s == %s'",
                   e->name ? e->name : "N", v.is_name ? v.name : "64");
        return false;
    }
    *out = v.num != 0;
    return true;
}

bool fold_integer(Flat *f, const Expr *e, const Scope *scope, const CallSite *chain, const char *what,
                  int64_t *out)
{
    Constant v;
    if (!fold_constant(f, e, scope, chain, &v))
        return false;
    if (v.is_name || v.num != floor(v.num) || fabs(v.num) > (double)MAX_EXTENT) {
        FLAT_ERROR(f, chain, e->span,
                   fabs(v.num) > (double)MAX_EXTENT ? "%s is too large (2^28 is the largest)" : "%s must be a whole number", what);
        return false;
    }
    *out = (int64_t)v.num;
    return true;
}

bool poly_is_small(const Poly *p)
{
    if (p->nterms > MAX_TERMS)
        return false;
    for (int i = 0; i < p->nterms; i++)
        if (p->terms[i].natoms > MAX_DEGREE || p->terms[i].coef > MAX_EXTENT ||
            p->terms[i].coef < -MAX_EXTENT)
            return false;
    return true;
}

static const Poly *small(Flat *f, const Expr *e, const CallSite *chain, const Poly *p)
{
    if (p && !poly_is_small(p)) {
        FLAT_ERROR(f, chain, e->span,
                   "this size is too large: its numbers go beyond %lld or it has too many terms",
                   (long long)MAX_EXTENT);
        return NULL;
    }
    return p;
}

static const Poly *extent_name(Flat *f, const Expr *e, const Scope *scope, const CallSite *chain)
{
    Symbol *s = scope_find(scope, e->name);
    Constant v;
    if (s && s->kind == SYM_DIM) {
        s->used = true;
        return s->failed ? NULL : s->size;
    }
    if (!s && !is_constant_pi(f, scope, e)) {
        unknown_value(f, scope, chain, e->span, e->name, "dim");
        return NULL;
    }
    if (!fold_name(f, e, scope, chain, &v))
        return NULL;
    if (v.is_name || !v.is_int) {
        FLAT_ERROR(f, chain, e->span, "'%s' is not a whole number, so it cannot be part of a size", e->name);
        if (s)
            FLAT_NOTE(f, s->span, "'%s' is declared here", s->name);
        return NULL;
    }
    return small(f, e, chain,
                 fabs(v.num) <= (double)MAX_EXTENT ? poly_const(f->m, (int64_t)v.num)
                                                   : poly_const(f->m, MAX_EXTENT + 1));
}

static const Poly *extent_binary(Flat *f, const Expr *e, const Scope *scope, const CallSite *chain)
{
    const Poly *a = fold_extent(f, e->a, scope, chain), *b = fold_extent(f, e->b, scope, chain), *q;
    if (!a || !b)
        return NULL;
    switch (e->op) {
    case O_ADD: return small(f, e, chain, poly_add(f->m, a, b));
    case O_SUB: return small(f, e, chain, poly_sub(f->m, a, b));
    case O_MUL: return small(f, e, chain, poly_mul(f->m, a, b));
    case O_DIV:
        q = poly_div(f->m, a, b);
        if (!q && b->is_const && b->value == 0)
            FLAT_ERROR(f, chain, e->span, "division by zero in a size");
        else if (!q)
            FLAT_ERROR(f, chain, e->span, "sizes divide exactly, but %lld / %lld leaves a remainder",
                       (long long)a->value, (long long)b->value);
        return q;
    default:
        FLAT_ERROR(f, chain, e->span, "a size is made of dims, whole numbers, +, -, * and exact /");
        return NULL;
    }
}

const Poly *fold_extent(Flat *f, const Expr *e, const Scope *scope, const CallSite *chain)
{
    if (e->kind == X_NUM && e->is_int && e->num <= (double)MAX_EXTENT)
        return poly_const(f->m, (int64_t)e->num);
    if (e->kind == X_NUM) {
        FLAT_ERROR(f, chain, e->span, e->is_int ? "this size is too large (2^28 is the largest)" : "a size must be a whole number");
        return NULL;
    }
    if (is_bare(e) && e->name == intern(f->c, "T")) {
        FLAT_ERROR(f, chain, e->span,
                   "'T', the number of steps, can only be the range of an index: 'w:T'; what is declared has "
                   "no axis for the time or the batch");
        return NULL;
    }
    if (is_bare(e))
        return extent_name(f, e, scope, chain);
    if (e->kind == X_BINARY)
        return extent_binary(f, e, scope, chain);
    if (e->kind == X_UNARY && e->op == O_NEG) {
        const Poly *a = fold_extent(f, e->a, scope, chain);
        return a ? poly_mul(f->m, poly_const(f->m, -1), a) : NULL;
    }
    if (e->kind != X_ERROR)
        FLAT_ERROR(f, chain, e->span, "a size is made of dims, whole numbers, +, -, * and exact /");
    return NULL;
}
