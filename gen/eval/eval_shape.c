/* eval_shape.c: arrays of the evaluator. What comes in is declarations and equations; what goes out is every
 * array's extents, declared or found from what its indices index, by the evaluator's own reading of the rules
 * for ranges. */
#include "eval_scope.h"

#include <math.h>
#include <string.h>

bool ev_set_shape(EvalProgram *p, Array *a)
{
    a->count = ev_complex_of(p, a) ? 2 : 1;
    for (int i = a->rank - 1; i >= 0; i--) {
        a->stride[i] = a->count;
        if (a->shape[i] < 0 || __builtin_mul_overflow(a->count, a->shape[i], &a->count) ||
            a->count > MAX_ELEMENTS - p->elements) {
            if (p->elements <= MAX_ELEMENTS)
                diag(p->c, DIAG_ERROR, a->span,
                     "%s is too large to evaluate: the cell has more than %d elements with it", a->name,
                     MAX_ELEMENTS);
            p->elements = MAX_ELEMENTS + 1; /* said once */
            return false;
        }
    }
    p->elements += a->count;
    a->data = arena_alloc(p->arena, sizeof *a->data * (size_t)(a->count ? a->count : 1));
    for (int64_t i = 0; i < a->count; i++)
        a->data[i].v = NAN;       /* what no equation gives must be seen */
    a->shape_known = true;
    return true;
}

Array *ev_array_new(EvalProgram *p, Scope *s, const char *name, Span span, int rank)
{
    Array *a = arena_alloc(p->arena, sizeof *a);
    a->name = name;
    a->span = span;
    a->rank = rank;
    a->frame = s->frame;
    a->scope = s;
    a->tensor = a->history = -1;
    if (rank > EVAL_MAX_RANK) {
        diag(p->c, DIAG_ERROR, span, "%s has more than %d axes", name, EVAL_MAX_RANK);
        a->rank = EVAL_MAX_RANK;
    }
    return a;
}

/* An array whose extents are written down. */
Array *ev_array_declared(EvalProgram *p, Scope *s, const Stmt *d, const char *name)
{
    Array *a = ev_array_new(p, s, name, d->name_span, d->axes.len);
    for (int i = 0; i < a->rank; i++)
        if (!ev_const_size(p, s, d->axes.data[i], &a->shape[i]))
            a->shape[i] = 1;
    a->extents_known = true;
    a->type_known = d->kind != S_CARRY;       /* a carry has no declared type */
    a->complex = a->type_known && ev_declared_complex(d);
    if (a->type_known)
        ev_set_shape(p, a);
    return a;
}

/* A stated range: a size, or T for as many places as there are steps. */
bool ev_range(EvalProgram *p, Scope *s, const Expr *x, int64_t *out)
{
    p->of_steps = x->kind == X_REF && !x->brackets && !x->primed && strcmp(x->name, "T") == 0;
    if (!p->of_steps)
        return ev_const_size(p, s, x, out);
    if (p->extent_T == 0)
        p->extent_T = 1;
    *out = p->extent_T;
    return true;
}

static bool is_plain(const Expr *x, const char *index)
{
    return x->kind == X_REF && !x->brackets && !x->primed && x->name == index;
}

Array *ev_array_named(Scope *s, const Expr *x)
{
    Symbol *y = ev_find_in(s, NS_VALUE, x->name);
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
        if (is_plain(args->data[i], index) && a && i < a->rank && ev_shape_of(p, a)) {
            p->of_steps = a->of_steps[i];
            return a->shape[i];
        }
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
        n = extent_among(p, ev_array_named(s, x), &x->args, index);
        return n >= 0 ? n : extent_in_all(p, s, &x->args, index);
    case X_CALL: {
        Instance *in = x->index.len ? ev_instance_of(p, s, x) : NULL;
        n = in ? extent_among(p, in->result, &x->index, index) : -1;
        if (n < 0)
            n = extent_in_all(p, s, &x->args, index);
        if (n < 0)
            n = extent_in_all(p, s, &x->held, index);
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

bool ev_binder_extent(EvalProgram *p, Scope *s, const Binder *b, const Expr *where, int64_t *out)
{
    if (b->range)
        return ev_range(p, s, b->range, out);
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
            if (!ev_const_size(p, a->scope, b->fixed, &k))
                return false;
            k++;
        } else if (!ev_binder_extent(p, a->scope, b, e->value, &k)) {
            return false;
        } else {
            a->of_steps[axis] |= p->of_steps;
        }
        n = k > n ? k : n;
    }
    a->shape[axis] = n;
    return n >= 0;
}

bool ev_shape_of(EvalProgram *p, Array *a)
{
    if (a->shape_known)
        return true;
    if (a->extents_known)
        return a->type_busy || ev_set_shape(p, a);
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
    return ok && ev_set_shape(p, a);
}
