/* eval_fn.c: calls of a fn. Each call has an instance of the body, with arrays of its own; arguments are
 * bound once, as arrays over their open axes, and filled when the caller's indices change. */
#include "eval_scope.h"

#include <string.h>

/* Gives an argument the axes that it leaves open: a bare name leaves all, ':' one each. */
static void open_axes(EvalProgram *p, Scope *s, const Expr *x, Array *to)
{
    Array *a = NULL;
    const ExprVec *index = &x->args;
    bool bare = !x->brackets;
    if (x->kind == X_REF) {
        a = ev_array_named(s, x);
    } else if (x->kind == X_CALL) {
        Instance *in = ev_instance_of(p, s, x);
        a = in ? in->result : NULL;
        index = &x->index;
        bare = index->len == 0;
    }
    if (!a || !ev_shape_of(p, a))
        return;
    for (int i = 0; i < a->rank; i++)
        if (bare || (i < index->len && index->data[i]->kind == X_COLON)) {
            to->of_steps[to->rank] = a->of_steps[i];
            to->shape[to->rank++] = a->shape[i];
        }
}


Stmt *ev_fn_named(Scope *s, const char *name, Scope **home)
{
    Symbol *y = ev_find_in(s, NS_FN, name);
    if (!y)
        return NULL;
    *home = y->home;
    return (Stmt *)y->stmt;
}


/* The result is the definition that has the name of the fn, or the one that the call picks. */
static void instance_body(EvalProgram *p, Instance *in)
{
    const Stmt *fn = in->fn;
    if (fn->has_body) {
        const char *name = in->call->member ? in->call->member : fn->name;
        ev_add_equations(p, in->scope, &fn->body);
        Symbol *y = ev_find_here(in->scope, NS_VALUE, name);
        in->result = y && y->kind == SY_VALUE ? y->now : NULL;
    } else {
        in->result = ev_add_definition(p, in->scope, fn);
    }
    if (!in->result)
        diag(p->c, DIAG_ERROR, fn->name_span, "the fn %s has no result", fn->name);
}

/* The instance of a fn for one call; made when it is first asked for, since ranges may depend on its result.
 */
Instance *ev_instance_of(EvalProgram *p, Scope *s, const Expr *call)
{
    Scope *unit = s->unit, *home = NULL;
    for (int i = 0; i < unit->instances.len; i++)
        if (unit->instances.data[i]->call == call)
            return unit->instances.data[i];
    Stmt *fn = ev_fn_named(s, call->name, &home);
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
    in->scope = ev_scope_new(p, home, &in->frame);
    in->scope->nest = s->nest + 1;
    in->scope->instance = in;
    in->caller = s;
    in->nargs = call->args.len;
    in->args = arena_alloc(p->arena, sizeof *in->args * (size_t)(in->nargs + 1));
    p->nodes++;
    for (int k = 0; k < in->nargs; k++) {
        Array *a = ev_array_new(p, in->scope, fn->params.data[k], call->args.data[k]->span, 0);
        open_axes(p, s, call->args.data[k], a);
        a->is_data = a->type_known = true;
        a->complex = ev_is_complex(p, s, call->args.data[k]);
        ev_set_shape(p, a);
        in->args[k] = a;
        ev_declare(p, in->scope, SY_VALUE, fn->params.data[k], NULL)->now = a;
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
        return ev_failed(p, x, "the number of indices is not that of the axes");
    for (int i = 0; i < a->rank; i++) {
        if (bare || index->data[i]->kind == X_COLON) {
            load->index[i] = ev_ix_new(p, I_REG);
            load->index[i]->reg = q->reg[q->rank++] = ev_new_register(p);
        } else {
            load->index[i] = ev_compile_index(p, s, index->data[i]);
            ev_note_range(p, load->index[i], a->shape[i]);
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
        q.value = ev_compile_expr(p, s, x);
    } else if (x->kind == X_REF) {
        Code *load = ev_code_new(p, C_LOAD, x->span);
        load->array = to->base = ev_array_named(s, x);
        load->complex = load->array->complex;
        q.value = open_load(p, s, x, load, &x->args, !x->brackets, &q);
    } else {
        Code *load = compile_instance(p, s, x, ev_instance_of(p, s, x));
        q.value = load->kind == C_INSTANCE ? open_load(p, s, x, load, &x->index, !x->index.len, &q) : load;
    }
    return q;
}

/* Compiles the arguments of an instance where it is called; the index arguments are the caller's. */
static Code *compile_instance(EvalProgram *p, Scope *s, const Expr *x, Instance *in)
{
    Registers v = {0};
    if (!in || !in->result || !ev_shape_of(p, in->result))
        return ev_failed(p, x, "the call cannot be evaluated");
    Code *c = ev_code_new(p, C_INSTANCE, x->span);
    c->instance = in;
    c->array = in->result;
    c->complex = in->result->complex;
    for (int k = 0; k < in->nargs; k++) {
        Array *a = in->args[k];
        if (!in->compiled)
            vec_push(p->arena, &a->equations, argument(p, s, x->args.data[k], a));
        Equation *q = &a->equations.data[0];
        Registers own = {0};
        ev_registers_of(p, q->value, &own);
        ev_remove_bound(&own, q->rank, q->reg);
        for (int i = 0; i < own.len; i++)
            ev_add_register(p, &v, own.data[i]);
    }
    in->compiled = true;
    ev_remember(p, s, &c->memo, &v);
    return c;
}

Code *ev_compile_user_call(EvalProgram *p, Scope *s, const Expr *x)
{
    Instance *in = ev_instance_of(p, s, x);
    if (p->constants_only)
        return ev_failed(p, x, "only constants and sizes may stand here");
    if (!in)
        return ev_failed(p, x, "there is no function of this name");
    Code *c = compile_instance(p, s, x, in);
    if (c->kind != C_INSTANCE)
        return c;
    if (x->index.len != in->result->rank)
        return ev_failed(p, x, "the number of indices is not that of the result");
    c->index = arena_alloc(p->arena, sizeof *c->index * (size_t)(x->index.len + 1));
    for (int i = 0; i < x->index.len; i++)
        ev_note_range(p, c->index[i] = ev_compile_index(p, s, x->index.data[i]), c->array->shape[i]);
    return c;
}
