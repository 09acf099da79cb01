/* eval_expr.c: from an expression to a tree that can be run. Names become arrays or registers, index brackets
 * become integer expressions; what a reduction computes is remembered for as long as nothing that it reads
 * has changed. */
#include "eval_scope.h"

#include <math.h>
#include <string.h>

Code *ev_code_new(EvalProgram *p, CodeKind kind, Span span)
{
    Code *x = arena_alloc(p->arena, sizeof *x);
    x->kind = kind;
    x->span = span;
    if (++p->nodes == MAX_NODES)
        diag(p->c, DIAG_ERROR, span, "the cell is too large to evaluate: more than %d operations after expansion", MAX_NODES);
    return x;
}

static Code *number(EvalProgram *p, Span span, double v)
{
    Code *x = ev_code_new(p, C_CONST, span);
    x->num = v;
    return x;
}

static Code *whole_number(EvalProgram *p, Span span, double v, bool whole)
{
    Code *x = number(p, span, v);
    x->whole = whole ? WHOLE_YES : WHOLE_NO;
    return x;
}

Code *ev_failed(EvalProgram *p, const Expr *x, const char *what)
{
    diag(p->c, DIAG_ERROR, x->span, "%s", what);
    return number(p, x->span, NAN);
}

Ix *ev_ix_new(EvalProgram *p, IxOp op)
{
    Ix *i = arena_alloc(p->arena, sizeof *i);
    i->op = op;
    return i;
}

static Ix *ix_binary(EvalProgram *p, IxOp op, Ix *a, Ix *b)
{
    Ix *i = ev_ix_new(p, op);
    i->a = a;
    i->b = b;
    return i;
}

Ix *ev_compile_index(EvalProgram *p, Scope *s, const Expr *x);

/* An integer that is known when the cell runs. */
static Ix *index_value(EvalProgram *p, Scope *s, const Expr *x)
{
    Ix *i = ev_ix_new(p, I_VALUE);
    i->value = ev_compile_expr(p, s, x);
    return i;
}

static Ix *index_reference(EvalProgram *p, Scope *s, const Expr *x)
{
    Symbol *y = ev_find(s, x);
    if (y && y->kind == SY_VALUE)
        return index_value(p, s, x);
    y = x->brackets ? NULL : y;
    Ix *i = ev_ix_new(p, I_CONST);
    if (y && y->kind == SY_INDEX) {
        i->op = I_REG;
        i->reg = y->reg;
    } else if (!y && !x->brackets && strcmp(x->name, "t") == 0) {
        i->op = I_STEP;
    } else {
        ev_size_reference(p, s, x, &i->k);
    }
    return i;
}

static Ix *index_call(EvalProgram *p, Scope *s, const Expr *x)
{
    bool div = strcmp(x->name, "div") == 0;
    if (strcmp(x->name, "min") == 0 || strcmp(x->name, "max") == 0)
        return index_value(p, s, x);
    if (x->args.len != 2 || (!div && strcmp(x->name, "mod") != 0)) {
        diag(p->c, DIAG_ERROR, x->span, "this is not an index");
        return ev_ix_new(p, I_CONST);
    }
    return ix_binary(p, div ? I_DIV : I_MOD, ev_compile_index(p, s, x->args.data[0]),
                     ev_compile_index(p, s, x->args.data[1]));
}

Ix *ev_compile_index(EvalProgram *p, Scope *s, const Expr *x)
{
    Ix *i;
    switch (x->kind) {
    case X_NUM:
        i = ev_ix_new(p, I_CONST);
        if (x->is_int)
            i->k = (int64_t)x->num;
        else
            diag(p->c, DIAG_ERROR, x->span, "an index is a whole number");
        return i;
    case X_REF:
        return index_reference(p, s, x);
    case X_CALL:
        return index_call(p, s, x);
    case X_COND:
        return index_value(p, s, x);
    case X_UNARY:
        if (x->op != O_NEG)
            break;
        i = ev_ix_new(p, I_NEG);
        i->a = ev_compile_index(p, s, x->a);
        return i;
    case X_BINARY: {
        IxOp op = x->op == O_ADD ? I_ADD : x->op == O_SUB ? I_SUB : x->op == O_MUL ? I_MUL
                : x->op == O_DIV ? I_DIV : x->op == O_MOD ? I_MOD : I_CONST;
        if (x->op == O_POW)
            return index_value(p, s, x);
        if (op == I_CONST)
            break;
        Ix *a = ev_compile_index(p, s, x->a);
        return ix_binary(p, op, a, ev_compile_index(p, s, x->b));
    }
    default:
        break;
    }
    diag(p->c, DIAG_ERROR, x->span, "this is not an index");
    return ev_ix_new(p, I_CONST);
}

/* The registers that a tree reads from outside: added to reg[] where they are not yet. */
void ev_add_register(EvalProgram *p, Registers *v, int reg)
{
    for (int i = 0; i < v->len; i++)
        if (v->data[i] == reg)
            return;
    vec_push(p->arena, v, reg);
}

static void note_range(EvalProgram *p, const Code *x, int64_t extent)
{
    if (!x)
        return;
    if (x->kind == C_LOAD && x->array->tensor >= 0) {
        EvalTensor *t = &p->e->tensors[x->array->tensor];
        t->below = extent > t->below ? extent : t->below;
    } else if (x->kind == C_LOAD && x->array->equations.len) {
        note_range(p, x->array->equations.data[0].value, extent);      /* an argument of a fn */
    }
    note_range(p, x->a, extent);
    note_range(p, x->b, extent);
    note_range(p, x->c, extent);
}

void ev_note_range(EvalProgram *p, const Ix *x, int64_t extent)
{
    if (!x)
        return;
    note_range(p, x->value, extent);
    ev_note_range(p, x->a, extent);
    ev_note_range(p, x->b, extent);
}

static void index_registers(EvalProgram *p, const Ix *x, Registers *v)
{
    if (!x)
        return;
    if (x->op == I_REG)
        ev_add_register(p, v, x->reg);
    ev_registers_of(p, x->value, v);
    index_registers(p, x->a, v);
    index_registers(p, x->b, v);
}

void ev_registers_of(EvalProgram *p, const Code *x, Registers *v);

void ev_remove_bound(Registers *v, int n, const int *bound)
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

void ev_registers_of(EvalProgram *p, const Code *x, Registers *v)
{
    if (!x)
        return;
    if (x->memo.frame) {          /* known already: what it is remembered for */
        for (int i = 0; i < x->memo.n; i++)
            ev_add_register(p, v, x->memo.reg[i]);
        for (int i = 0; x->kind == C_SOFTMAX && i < x->nbound; i++)
            ev_add_register(p, v, x->bound[i]);
    } else {
        ev_registers_of(p, x->a, v);
        ev_registers_of(p, x->b, v);
        ev_registers_of(p, x->c, v);
        if (x->kind == C_GRAD)
            ev_remove_bound(v, x->nbound, x->bound);
    }
    int n = x->kind == C_INDEX ? 1 : x->array ? x->array->rank : 0;
    for (int i = 0; i < n; i++)
        index_registers(p, x->index[i], v);
    index_registers(p, x->time, v);
}

void ev_remember(EvalProgram *p, Scope *s, Memo *m, const Registers *v)
{
    m->frame = s->frame;
    m->n = v->len;
    m->reg = v->data;
    m->value = arena_alloc(p->arena, sizeof *m->value * (size_t)(v->len ? v->len : 1));
}

static Code *compile_load(EvalProgram *p, Scope *s, const Expr *x, Array *a, const ExprVec *index)
{
    if (p->constants_only)
        return ev_failed(p, x, "only constants and sizes may stand here");
    if (!a || !ev_shape_of(p, a) || index->len != a->rank)
        return ev_failed(p, x,
                         a ? "the number of indices is not that of the axes" : "there is no such value");
    Code *load = ev_code_new(p, C_LOAD, x->span);
    load->array = a;
    load->complex = a->complex;
    load->index = arena_alloc(p->arena, sizeof *load->index * (size_t)(a->rank ? a->rank : 1));
    for (int i = 0; i < a->rank; i++)
        ev_note_range(p, load->index[i] = ev_compile_index(p, s, index->data[i]), a->shape[i]);
    load->time = x->time ? ev_compile_index(p, s, x->time) : NULL;
    return load;
}

static Code *compile_reference(EvalProgram *p, Scope *s, const Expr *x)
{
    Symbol *y = ev_find(s, x);
    if (!y && !x->brackets && !x->primed && strcmp(x->name, "t") == 0)
        return ev_code_new(p, C_STEP, x->span);
    if (!y && !x->brackets && !x->primed && strcmp(x->name, "T") == 0)
        return ev_code_new(p, C_STEPS, x->span);
    if (!y && !x->brackets && !x->primed && strcmp(x->name, "pi") == 0)
        return number(p, x->span, 3.14159265358979323846);
    if (!y)
        return ev_failed(p, x, "there is no value of this name");
    int64_t size = 0;
    switch (y->kind) {
    case SY_INDEX: {
        Code *c = ev_code_new(p, C_INDEX, x->span);
        c->index = arena_alloc(p->arena, sizeof *c->index);
        c->index[0] = index_reference(p, s, x);
        return c;
    }
    case SY_DIM:
        ev_dim_size(p, s, y, &size);
        return whole_number(p, x->span, (double)size, true);
    case SY_CONST: {
        double v = ev_const_symbol(p, s, y);
        return whole_number(p, x->span, v, y->whole);
    }
    case SY_VALUE:
        return compile_load(p, s, x, x->primed ? y->next : y->now, &x->args);
    default:
        return ev_failed(p, x, "this name is not a value");
    }
}

static Code *code2(EvalProgram *p, Span span, const char *f, Code *a, Code *b)
{
    Code *pair = ev_complex_call(p, span, f, a, b);
    if (pair)
        return pair;
    Code *c = ev_code_new(p, C_CALL2, span);
    c->call2 = nest_function2(f);
    c->a = a;
    c->b = b;
    return c;
}

static Code *compile_binary(EvalProgram *p, Scope *s, const Expr *x)
{
    Code *a = ev_compile_expr(p, s, x->a), *b = ev_compile_expr(p, s, x->b), *c;
    switch (x->op) {
    case O_ADD: return code2(p, x->span, "+", a, b);
    case O_SUB: return code2(p, x->span, "-", a, b);
    case O_MUL: return code2(p, x->span, "*", a, b);
    case O_DIV: return code2(p, x->span, "/", a, b);
    case O_MOD: return code2(p, x->span, "mod", a, b);
    case O_POW: return code2(p, x->span, "pow", a, b);
    case O_AND: c = ev_code_new(p, C_AND, x->span); break;
    case O_OR: c = ev_code_new(p, C_OR, x->span); break;
    default: c = ev_code_new(p, C_COMPARE, x->span); break;
    }
    c->op = x->op;
    c->a = a;
    c->b = b;
    return c;
}

static Code *compile_unary(EvalProgram *p, Scope *s, const Expr *x)
{
    Code *a = ev_compile_expr(p, s, x->a);
    Code *pair = x->op == O_NOT ? NULL : ev_complex_call(p, x->span, "-", a, NULL);
    if (pair)
        return pair;
    Code *c = ev_code_new(p, x->op == O_NOT ? C_NOT : C_CALL1, x->span);
    c->call1 = nest_function1("-");
    c->a = a;
    return c;
}

static Code *compile_condition(EvalProgram *p, Scope *s, const Expr *x)
{
    Code *c = ev_code_new(p, C_COND, x->span);
    c->a = ev_compile_expr(p, s, x->a);
    c->b = ev_compile_expr(p, s, x->b);
    c->c = ev_compile_expr(p, s, x->c);
    c->complex = c->b->complex || c->c->complex;
    return c;
}

static Code *reduction_new(EvalProgram *p, const Expr *x, CodeKind kind)
{
    Code *c = ev_code_new(p, kind, x->span);
    c->reduce = x->reduce;
    c->nbound = x->binders.len;
    c->bound = arena_alloc(p->arena, sizeof *c->bound * (size_t)(c->nbound + 1));
    c->extent = arena_alloc(p->arena, sizeof *c->extent * (size_t)(c->nbound + 1));
    c->of_steps = arena_alloc(p->arena, sizeof *c->of_steps * (size_t)(c->nbound + 1));
    return c;
}

/* What is computed over bound registers is kept for as long as nothing else that it reads has changed. */
static Code *finish_reduction(EvalProgram *p, Scope *s, Code *c)
{
    Registers v = {0};
    ev_registers_of(p, c->a, &v);
    ev_remove_bound(&v, c->nbound, c->bound);
    ev_remember(p, s, &c->memo, &v);
    return c;
}

static Code *compile_reduce(EvalProgram *p, Scope *s, const Expr *x)
{
    if (x->binders.len > MAX_BOUND)
        return ev_failed(p, x, "too many indices of one reduction");
    Code *c = reduction_new(p, x, C_REDUCE);
    Scope *inside = ev_scope_inside(p, s);
    for (int i = 0; i < c->nbound; i++) {
        if (!ev_binder_extent(p, s, &x->binders.data[i], x->a, &c->extent[i]))
            return number(p, x->span, NAN);
        c->of_steps[i] = p->of_steps;
        c->bound[i] = ev_declare_index(p, inside, x->binders.data[i].name, c->extent[i], p->of_steps)->reg;
    }
    c->a = ev_compile_expr(p, inside, x->a);
    c->complex = c->a->complex;
    return finish_reduction(p, s, c);
}

static Code *compile_softmax(EvalProgram *p, Scope *s, const Expr *x)
{
    Code *c = reduction_new(p, x, C_SOFTMAX);
    if (c->nbound > EVAL_MAX_RANK)
        return ev_failed(p, x, "too many indices under softmax");
    for (int i = 0; i < c->nbound; i++) {
        Symbol *y = ev_find_in(s, NS_INDEX, x->binders.data[i].name);
        if (!y)
            return ev_failed(p, x, "softmax runs over indices that are in scope");
        c->bound[i] = y->reg;
        c->extent[i] = y->extent;
        c->of_steps[i] = y->of_steps;
    }
    c->a = ev_compile_expr(p, s, x->a);
    return finish_reduction(p, s, c);
}

/* NULL: there is none of that name. */
static Code *compile_function(EvalProgram *p, const Expr *x, Code *a, Code *b)
{
    Code *c = ev_complex_call(p, x->span, x->name, a, b);
    if (c)
        return c;
    if (b)
        return nest_function2(x->name) ? code2(p, x->span, x->name, a, b) : NULL;
    if (!nest_function1(x->name))
        return NULL;
    c = ev_code_new(p, C_CALL1, x->span);
    c->call1 = nest_function1(x->name);
    c->a = a;
    return c;
}

static Code *compile_call(EvalProgram *p, Scope *s, const Expr *x)
{
    Scope *home;
    int n = x->args.len;
    if (ev_fn_named(s, x->name, &home))
        return ev_compile_user_call(p, s, x);
    if (x->member)
        return ev_failed(p, x, "only a fn has results to pick");
    if (strcmp(x->name, "grad") == 0)
        return ev_compile_grad(p, s, x);
    if (n == 1 || n == 2) {
        Code *a = ev_compile_expr(p, s, x->args.data[0]);
        Code *b = n == 2 ? ev_compile_expr(p, s, x->args.data[1]) : NULL;
        if (n == 1 && strcmp(x->name, "leaky_relu") == 0)
            b = number(p, x->span, 0.01);
        Code *c = compile_function(p, x, a, b);
        if (c)
            return c;
    }
    if (n == 3 && strcmp(x->name, "clamp") == 0) {
        Code *c = ev_code_new(p, C_CALL3, x->span);
        c->call3 = dual_clamp;
        c->a = ev_compile_expr(p, s, x->args.data[0]);
        c->b = ev_compile_expr(p, s, x->args.data[1]);
        c->c = ev_compile_expr(p, s, x->args.data[2]);
        return c;
    }
    return ev_failed(p, x, "there is no function of this name with so many arguments");
}

Code *ev_compile_expr(EvalProgram *p, Scope *s, const Expr *x)
{
    if (p->nodes > MAX_NODES)
        return number(p, x->span, NAN);
    switch (x->kind) {
    case X_NUM: return whole_number(p, x->span, x->num, x->is_int);
    case X_REF: return compile_reference(p, s, x);
    case X_CALL: return compile_call(p, s, x);
    case X_UNARY: return compile_unary(p, s, x);
    case X_BINARY: return compile_binary(p, s, x);
    case X_COND: return compile_condition(p, s, x);
    case X_REDUCE: return x->reduce == R_SOFTMAX ? compile_softmax(p, s, x) : compile_reduce(p, s, x);
    default: return ev_failed(p, x, "this is not an expression");
    }
}
