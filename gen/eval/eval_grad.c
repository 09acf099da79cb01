/* eval_grad.c: inner gradients in the evaluator: forward over forward. In comes grad(a, w[i]; g) compiled to a
 * tree; out goes its value, by definition: w's element at i becomes x + e, everything that a needs is computed
 * again, and the factor of e in a is the derivative. Nothing is reversed, so that it shares neither code nor
 * method with the compiler. What w itself was computed from is not looked at: w is the variable. */
#include "eval_scope.h"

#include <stdlib.h>
#include <string.h>

/* ---- compiling ---- */

static Instance *instance_around(const Scope *s)
{
    for (const Scope *q = s; q && q->frame == s->frame; q = q->outer)
        if (q->instance)
            return q->instance;
    return NULL;
}

static void find_calls_around(EvalProgram *p, Scope *s, Code *c)
{
    for (Instance *in = instance_around(s); in; in = instance_around(in->caller))
        c->naround++;
    c->around = arena_alloc(p->arena, sizeof *c->around * (size_t)(c->naround + 1));
    int k = c->naround;
    for (Instance *in = instance_around(s); in; in = instance_around(in->caller))
        c->around[--k] = in;
}

/* The indices that a held value is summed over: the free ones of what is differentiated. */
static Scope *bind_held(EvalProgram *p, Scope *s, const Expr *of, Code *c)
{
    const char *names[EVAL_MAX_RANK];
    int n = 0;
    Scope *inside = ev_scope_inside(p, s);
    ev_free_names(s, of, EVAL_MAX_RANK, names, &n);
    c->bound = arena_alloc(p->arena, sizeof *c->bound * EVAL_MAX_RANK);
    c->extent = arena_alloc(p->arena, sizeof *c->extent * EVAL_MAX_RANK);
    for (int i = 0; i < n; i++) {
        Binder b = {.name = names[i], .span = of->span};
        if (!ev_binder_extent(p, s, &b, of, &c->extent[i]))
            return NULL;
        c->bound[i] = ev_declare_index(p, inside, names[i], c->extent[i], p->of_steps)->reg;
        c->nbound = i + 1;
    }
    return inside;
}

Code *ev_compile_grad(EvalProgram *p, Scope *s, const Expr *x)
{
    const Expr *of = x->args.len ? x->args.data[0] : NULL, *w = x->args.len == 2 ? x->args.data[1] : NULL;
    if (p->constants_only || !w || w->kind != X_REF || w->time || x->held.len > 1)
        return ev_failed(p, x, "this gradient cannot be evaluated");
    Array *a = ev_array_named(s, w);
    if (!a || !ev_shape_of(p, a) || w->args.len != a->rank)
        return ev_failed(p, w, "this is nothing that a gradient is taken with respect to");
    Code *c = ev_code_new(p, C_GRAD, x->span);
    Scope *inside = x->held.len ? bind_held(p, s, of, c) : s;
    if (!inside)
        return c;
    c->array = a;
    a->is_variable = true;
    c->index = arena_alloc(p->arena, sizeof *c->index * (size_t)(a->rank + 1));
    for (int i = 0; i < a->rank; i++)
        c->index[i] = ev_compile_index(p, s, w->args.data[i]);
    c->a = ev_compile_expr(p, inside, of);
    c->b = x->held.len ? ev_compile_expr(p, inside, x->held.data[0]) : NULL;
    find_calls_around(p, s, c);
    return c;
}

/* ---- running ---- */

/* What must be as before when the variable is itself again. */
typedef struct Before {
    uint64_t cell_tick, stamp;
    Dual element;
    uint64_t *tick;               /* per call around */
    Dual **args;                  /* per call around: its arguments, one after another */
} Before;

static Dual *copy_args(const Instance *in)
{
    size_t n = 0;
    for (int k = 0; k < in->nargs; k++)
        n += (size_t)in->args[k]->count;
    Dual *all = malloc(sizeof *all * (n + 1)), *to = all;
    for (int k = 0; all && k < in->nargs; to += in->args[k++]->count)
        memcpy(to, in->args[k]->data, sizeof *to * (size_t)in->args[k]->count);
    return all;
}

static void restore_args(const Instance *in, const Dual *from)
{
    for (int k = 0; k < in->nargs; from += in->args[k++]->count)
        memcpy(in->args[k]->data, from, sizeof *from * (size_t)in->args[k]->count);
}

/* New ticks: every value counts as not computed yet, but for the variable. The arguments of the calls around
 * are computed again, the outermost first. */
static bool vary(EvalProgram *p, const Code *x, int64_t at, Before *b)
{
    Array *w = x->array;
    bool ok = (b->tick = malloc(sizeof *b->tick * (size_t)(x->naround + 1))) != NULL &&
              (b->args = calloc((size_t)x->naround + 1, sizeof *b->args)) != NULL;
    for (int i = 0; ok && i < x->naround; i++) {
        b->tick[i] = x->around[i]->frame.tick;
        ok = (b->args[i] = copy_args(x->around[i])) != NULL;
    }
    if (!ok) {
        eval_fail(p, x->span, "out of memory");
        return false;
    }
    b->cell_tick = p->frame.tick;
    b->stamp = w->stamp;
    b->element = w->data[at];
    p->frame.tick = ++p->ticks;
    for (int i = 0; i < x->naround; i++)
        x->around[i]->frame.tick = ++p->ticks;
    p->nest.level++;
    w->data[at] = nest_vary(&p->nest, w->data[at], p->nest.level);
    w->stamp = w->frame->tick;
    for (int i = 0; i < x->naround; i++)
        for (int k = 0; k < x->around[i]->nargs; k++)
            if (x->around[i]->args[k] != w)
                eval_run_equations(p, x->around[i]->args[k]);
    return true;
}

static void restore(EvalProgram *p, const Code *x, int64_t at, Before *b)
{
    p->nest.level--;
    for (int i = 0; i < x->naround; i++) {
        x->around[i]->frame.tick = b->tick[i];
        restore_args(x->around[i], b->args[i]);
    }
    p->frame.tick = b->cell_tick;
    x->array->data[at] = b->element;
    x->array->stamp = b->stamp;
}

static void forget(const Code *x, Before *b)
{
    for (int i = 0; b->args && i < x->naround; i++)
        free(b->args[i]);
    free(b->args);
    free(b->tick);
}

/* The derivative of what is differentiated, at each place of the held indices. */
static void derivatives(EvalProgram *p, Code *x, Dual *out)
{
    int64_t k = 0;
    if (!eval_start(p, x->nbound, x->bound, x->extent))
        return;
    do
        out[k++] = nest_factor(eval_code(p, x->a), p->nest.level);
    while (!p->error && eval_advance(p, x->nbound, x->bound, x->extent));
}

static Dual total(EvalProgram *p, Code *x, const Dual *derivative)
{
    Dual sum = dual_of(0);
    int64_t k = 0;
    if (!x->b)
        return derivative[0];
    if (!eval_start(p, x->nbound, x->bound, x->extent))
        return sum;
    do
        sum = nest_add(&p->nest, sum, nest_mul(&p->nest, eval_code(p, x->b), derivative[k++]));
    while (!p->error && eval_advance(p, x->nbound, x->bound, x->extent));
    return sum;
}

Dual eval_grad(EvalProgram *p, Code *x)
{
    Before before = {0};
    int64_t places = 1;
    for (int i = 0; i < x->nbound; i++)
        places *= x->extent[i];
    eval_compute(p, x->array);
    int64_t at = eval_place(p, x);
    Dual result = dual_of(NAN), *derivative = calloc((size_t)places + 1, sizeof *derivative);
    if (!derivative)
        eval_fail(p, x->span, "out of memory");
    if (at >= 0 && derivative && vary(p, x, at, &before)) {
        derivatives(p, x, derivative);
        restore(p, x, at, &before);
        if (!p->error)
            result = total(p, x, derivative);
    }
    forget(x, &before);
    free(derivative);
    if (p->nest.level == 0)
        nest_reset(&p->nest);
    return result;
}
