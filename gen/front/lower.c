/* lower.c: flat cell -> IR. In comes a resolved Flat; out goes a Module whose nodes are made by the builders
 * of ir.c: one N_ARRAY per equation that a root needs, with the user's name, and the roots (outputs, next
 * states, initial values) with their axes in the order of the tensor's. Values under a condition are never
 * made into arrays of their own, so that no read leaves the condition it stands under. */
#include <math.h>
#include <string.h>

#include "base/mutate.h"
#include "bind.h"
#include "ir/rewrite.h"
#include "resolve.h"

enum { MAX_IR_NODES = 150000 };

static NodeId lower_expr(Flat *f, FExpr *x);
static NodeId lower_integer(Flat *f, FExpr *x);
static NodeId lower_whole(Flat *f, const FExpr *x);
static Complex lower_complex(Flat *f, FExpr *x);
static void define(Flat *f, Symbol *s);
static void set_root(Flat *f, Symbol *s);

const char *unique_ir_name(Flat *f, const char *base)
{
    uintptr_t number = (uintptr_t)map_get(&f->ir_names, base);
    const char *name = base;
    if (number) {
        do
            name = intern_f(f->c, "%s_%d", base, (int)number++);
        while (map_get(&f->ir_names, name));
        map_put(f->c->arena, &f->ir_names, base, (void *)number);
    }
    map_put(f->c->arena, &f->ir_names, name, (void *)(uintptr_t)2);
    return name;
}

/* ---- reads ---- */

/* What stands for a value that is not there. */
static NodeId nothing_like(Module *m, NodeId v)
{
    return m->nodes.data[v].type == TY_INT ? node_whole(m, 0) : node_const(m, 0);
}

static NodeId lower_index(Flat *f, const IxExpr *ix)
{
    if (ix->nterms)
        return node_index(f->m, ix);
    return ix->offset->is_const ? node_const(f->m, (double)ix->offset->value) : node_size(f->m, ix->offset);
}

/* Have sequences a first step that is not the call's? The last rows, where a reversed walk begins, may be of none. */
static bool counts_anew(const Flat *f)
{
    return f->resets.len || (f->c->lengths && f->c->reverse);
}

/* Functions under conditions are expanded in place, and so many of them inside each other may not end. */
static bool too_many_nodes(Flat *f, const FExpr *x)
{
    if (f->m->nodes.len > MAX_IR_NODES && !f->too_large) {
        f->too_large = true;
        FLAT_ERROR(f, x->chain, x->span, "the cell is too large: more than %d values", MAX_IR_NODES);
    }
    return f->too_large;
}

/* Whole numbers stay whole under it. */
static bool keeps_whole(Op op)
{
    return op == OP_ADD || op == OP_SUB || op == OP_MUL || op == OP_NEG || op == OP_MIN || op == OP_MAX ||
           op == OP_SELECT;
}

static bool compares(Op op)
{
    return op == OP_LT || op == OP_LE || op == OP_EQ || op == OP_NE;
}

static bool is_whole_node(const Flat *f, NodeId v)
{
    return f->m->nodes.data[v].type == TY_INT;
}

/* Is it an operation on whole numbers alone, which is one of whole numbers then? */
static bool of_whole(const FExpr *x)
{
    bool all = keeps_whole(x->op) || compares(x->op);
    for (int i = x->op == OP_SELECT; i < x->nargs; i++)
        all &= x->args[i]->type == TY_INT;
    return all;
}

/* The branch of a choice that is decided when the cell is compiled, or what is left of && and ||; NULL: it is
 * none. */
static FExpr *branch_taken(const FExpr *x)
{
    if (x->kind != F_MAP || (x->op != OP_SELECT && x->op != OP_AND && x->op != OP_OR))
        return NULL;
    int truth = decided(x->args[0]);
    if (x->op == OP_SELECT)
        return truth < 0 ? NULL : x->args[truth ? 1 : 2];
    if (truth >= 0)
        return x->args[truth == (x->op == OP_AND)];
    return decided(x->args[1]) == (x->op == OP_AND) ? x->args[0] : NULL;
}

/* `whole`: of whole numbers. A definition of these that lies in no array is one too, though its name stands for a real one. */
static NodeId lower_map(Flat *f, FExpr *x, bool whole)
{
    NodeId args[4];
    if (x->op == OP_POW && x->type == TY_INT) {
        NodeId base = lower_integer(f, x->args[0]), n = lower_integer(f, x->args[1]);
        return n == node_whole(f->m, 2) ? node_map2(f->m, OP_MUL, base, base) : node_map2(f->m, OP_IPOW, base, n);
    }
    bool choice = x->op == OP_SELECT, all = !choice && (keeps_whole(x->op) || compares(x->op));
    for (int i = 0; i < x->nargs && i < 4; i++)
        args[i] = whole && !(choice && i == 0) ? lower_integer(f, x->args[i]) : lower_expr(f, x->args[i]);
    for (int i = 0; i < x->nargs; i++)
        all = all && (is_whole_node(f, args[i]) || x->args[i]->type == TY_INT);
    for (int i = 0; i < x->nargs && all && !of_whole(x); i++)
        args[i] = is_whole_node(f, args[i]) ? args[i] : lower_integer(f, x->args[i]);
    return node_map(f->m, x->op, args, x->nargs);
}

/* As an operand of integer operations: there a constant is no real number. */
static NodeId lower_integer(Flat *f, FExpr *x)
{
    Module *m = f->m;
    if (too_many_nodes(f, x))
        return node_whole(m, 0);
    if (!x->ix && x->kind == F_NUM)
        return node_whole(m, (int64_t)x->num);
    FExpr *taken = x->ix ? NULL : branch_taken(x);
    if (taken)
        return lower_integer(f, taken);
    if (!x->ix)
        return x->kind == F_MAP && of_whole(x) ? lower_map(f, x, true) : lower_expr(f, x);
    if (counts_anew(f) && ix_uses(x->ix, IX_TIME))
        return lower_whole(f, x);
    return x->ix->nterms ? node_index(m, x->ix) : node_size(m, x->ix->offset);
}

/* Parts of a complex value, as places on the last axis of its array. */
typedef enum { RE, IM } Part;

static const IxExpr *part_place(Flat *f, Part part)
{
    return ix_const(f->m, poly_const(f->m, part));
}

/* All axes of an array: its own as the map says, those of the call around it as they are. Room for one more. */
static const IxExpr **full_map(Flat *f, const Symbol *s, const IxExpr *const *map)
{
    const IxExpr **full = arena_alloc(f->m->arena, sizeof *full * (size_t)(s->nids + 2));
    for (int i = 0; i < s->nids; i++)
        full[i] = i < s->rank ? map[i] : ix_index(f->m, s->ids[i]);
    return full;
}

static NodeId read_definition(Flat *f, const Symbol *s, const IxExpr *const *map, Part part)
{
    Module *m = f->m;
    NodeId node = part == IM ? s->im : s->node;
    if (!s->is_array)
        return node_subst(m, node, s->ids, map, s->rank);
    return node_view(m, node, full_map(f, s, map), s->nids);
}

/* An array's axes are its own and then those of the call around it that its value varies over. */
static void all_axes(Flat *f, Symbol *s, NodeId v)
{
    const Node *n = &f->m->nodes.data[v];
    for (int i = 0; i < n->naxes; i++) {
        bool own = false;
        for (int k = 0; k < s->nids; k++)
            own |= s->ids[k] == n->axes[i];
        if (!own)
            s->ids[s->nids++] = n->axes[i];
    }
}

bool has_reduction(const Module *m, NodeId id, int *budget)
{
    const Node *n = &m->nodes.data[id];
    if (n->kind == N_REDUCE)
        return true;
    if (n->kind == N_ARRAY || n->kind == N_VIEW)
        return false;
    for (int i = 0; i < n->nargs; i++)
        if (--*budget < 0 || has_reduction(m, n->args[i], budget))
            return true;
    return false;
}

/* The value kept as an array over what it varies over; as it is when it stands under a condition. */
static NodeId kept(Flat *f, NodeId v, bool guarded, const char *name, Span span)
{
    Module *m = f->m;
    if (guarded || m->nodes.data[v].kind == N_ARRAY)
        return v;
    int n = m->nodes.data[v].naxes;
    IndexId axes[64];
    memcpy(axes, m->nodes.data[v].axes, sizeof *axes * (size_t)n);
    return node_array(m, v, axes, n, name, span);
}

/* ---- reads at integer values */

/* What a read pins: its own axes, and those of the slices that it reads through, from own on. */
static PinVec pins_of(Flat *f, const FExpr *x, int *own)
{
    PinVec pins = { 0 };
    for (int i = 0; i < x->pins.len; i++)
        vec_push(f->c->arena, &pins, x->pins.data[i]);
    *own = pins.len;
    for (const Symbol *s = x->sym; s->kind == SYM_ARRAY_ARG && !s->is_variable; s = s->base)
        for (int i = 0; i < s->pins.len; i++)
            vec_push(f->c->arena, &pins, s->pins.data[i]);
    return pins;
}

/* A read at places that values give is the sum over all places of those that are meant: one at most, as a value may
 * lie outside. Whoever computes it goes there at once (ir_pins). */
static NodeId pinned(Flat *f, const FExpr *x, NodeId read)
{
    Module *m = f->m;
    int own;
    const IndexId time = IX_TIME;
    PinVec all = pins_of(f, x, &own), *pins = &all;
    IndexId bound[2 * MAX_AXES_OF_VALUE];
    NodeId here = -1;
    for (int i = 0; i < pins->len; i++) {
        NodeId at = lower_integer(f, pins->data[i].at);
        if (i >= own && x->step)      /* a slice of an earlier step is what it was then */
            at = node_subst(m, at, &time, &x->step, 1);
        NodeId same = node_map2(m, OP_EQ, node_index(m, ix_index(m, pins->data[i].index)), at);
        here = here < 0 ? same : node_map2(m, OP_AND, here, same);
        bound[i] = pins->data[i].index;
    }
    if (here < 0)
        return read;
    return node_reduce(m, R_SUM, node_select(m, here, read, nothing_like(m, read)), bound, pins->len);
}

static NodeId read_cotangent(Flat *f, const Symbol *s, const IxExpr *const *map)
{
    return node_load(f->m, s->tensor, full_map(f, s, map), s->nids);
}

/* Where a part of an element lies in the tensor. */
static const IxExpr **tensor_map(Flat *f, const Symbol *s, const IxExpr *const *map, Part part)
{
    const IxExpr **all = arena_alloc(f->m->arena, sizeof *all * (size_t)(s->rank + 1));
    memcpy(all, map, sizeof *all * (size_t)s->rank);
    all[s->rank] = part_place(f, part);
    return all;
}

/* A number of 8 bits times its scale. What comes back goes to that value, whose gradient the tensor's is. */
static NodeId read_scaled(Flat *f, const Symbol *s, const IxExpr *const *map)
{
    Module *m = f->m;
    const IxExpr *place[MAX_AXES_OF_VALUE];
    int last = s->rank - 1;
    memcpy(place, map, sizeof *place * (size_t)s->rank);
    if (s->block)
        place[last] =
            ix_div(m, map[last], poly_const(m, mutate("scale-of-next-block") ? s->block / 2 : s->block));
    NodeId code = node_load(m, s->tensor, map, s->rank);
    NodeId scale = node_load(m, s->scale->tensor, place, s->block ? s->rank : 0);
    return node_map2(m, OP_STE, node_map2(m, OP_MUL, code, scale), code);
}

static NodeId read_symbol(Flat *f, const Symbol *s, const IxExpr *const *map, Part part)
{
    if (s->scale && !s->is_array)
        return read_scaled(f, s, map);
    if (!s->is_array && (s->kind == SYM_INPUT || s->kind == SYM_PARAM || s->kind == SYM_STATE))
        return node_load(f->m, s->tensor, tensor_map(f, s, map, part), s->rank + s->is_complex);
    if (s->kind == SYM_COTANGENT)
        return read_cotangent(f, s, map);
    return read_definition(f, s, map, part);
}

/* The array behind a parameter that is bound to an array; the map becomes that of the array. */
static const Symbol *pass_through(const Symbol *s, const IxExpr **map)
{
    const IxExpr *open[MAX_AXES_OF_VALUE];
    while (s->kind == SYM_ARRAY_ARG && !s->is_variable) {
        int n = 0;
        memcpy(open, map, sizeof *map * (size_t)s->rank);
        for (int i = 0; i < s->base->rank; i++)
            map[i] = s->fixed && s->fixed[i] ? s->fixed_ix[i] : open[n++];
        s = s->base;
    }
    return s;
}

static const char *ir_name_of(Flat *f, const Symbol *s)
{
    if (s->kind == SYM_OUTPUT)
        return s->name;
    if (s->kind == SYM_NEXT || s->kind == SYM_INIT)
        return unique_ir_name(f, intern_f(f->c, "%s_%s", s->name, s->kind == SYM_NEXT ? "next" : "init"));
    if (s->owner)
        return unique_ir_name(f, intern_f(f->c, "%s_%s", s->owner->fn->name, s->name));
    return unique_ir_name(f, s->name);
}

/* The variable of a grad is none but itself: only in another call that is bound to the same is it the same. */
static const char *array_key(Flat *f, const Symbol *s, NodeId v)
{
    Buf b = { .arena = f->c->arena };
    if (s->is_variable && !mutate("shared-variable"))
        buf_f(&b, "%s %s ", s->owner ? s->owner->key : "", s->ir_name ? s->ir_name : s->name);
    buf_f(&b, "%d", v);
    for (int i = 0; i < s->nids; i++)
        buf_f(&b, " %d", s->ids[i]);
    return intern(f->c, b.data);
}

/* The array of a definition. One inside a fn is the array that has the same value already, if there is one: two
 * uses of a fn with the same arguments, such as two results of one block, are computed once. `part` says which
 * part of a complex value it is, else NULL. */
static NodeId array_of(Flat *f, Symbol *s, NodeId v, const char *part, Span span)
{
    const char *key = array_key(f, s, v);
    NodeId *same = map_get(&f->arrays, key);
    if (same && s->owner)
        return *same;
    if (!s->ir_name)
        s->ir_name = ir_name_of(f, s);
    const char *name = part ? unique_ir_name(f, intern_f(f->c, "%s_%s", s->ir_name, part)) : s->ir_name;
    NodeId made = node_array(f->m, v, s->ids, s->nids, name, span);
    if (!same) {
        same = arena_alloc(f->c->arena, sizeof *same);
        *same = made;
        map_put(f->c->arena, &f->arrays, key, same);
    }
    return made;
}

/* One id for the axis of a parameter of that number and extent; below 0: for the parts of complex values. */
static IndexId param_axis(Flat *f, int axis, const Poly *extent)
{
    const char *key = intern_f(f->c, "at%d %p", axis, (const void *)extent);
    IndexId *id = map_get(&f->param_ids, key);
    if (!id) {
        id = arena_alloc(f->c->arena, sizeof *id);
        *id = module_index(f->m, axis < 0 ? "part" : intern_f(f->c, "at%d", axis), extent);
        map_put(f->c->arena, &f->param_ids, key, id);
    }
    return *id;
}

/* What a derivative is taken with respect to is a real number, whatever it is made of. */
static NodeId as_variable(Flat *f, NodeId v)
{
    return f->m->nodes.data[v].type == TY_INT ? node_map1(f->m, OP_REAL, v) : v;
}

/* What a parameter is bound to that a grad is taken with respect to. */
static NodeId bound_value(Flat *f, Symbol *p)
{
    const IxExpr *map[MAX_AXES_OF_VALUE];
    Symbol bound = *p;
    bound.is_variable = false;
    p->ids = arena_alloc(f->m->arena, sizeof *p->ids * 64);
    p->nids = p->rank;
    for (int i = 0; i < p->rank; i++) {
        p->ids[i] = param_axis(f, i, p->axes[i]);
        map[i] = ix_index(f->m, p->ids[i]);
    }
    if (p->kind == SYM_SCALAR_ARG)
        return as_variable(f, lower_expr(f, p->scalar));
    const Symbol *base = pass_through(&bound, map);
    return pinned(f, &(FExpr){ .sym = &bound }, read_symbol(f, base, map, RE));
}

/* What a call is bound to, as text: two calls of a fn with the same text are the same. */
static void describe_param(Flat *f, const Symbol *p, Buf *b)
{
    const Symbol *base = p->kind == SYM_ARRAY_ARG && !p->is_variable ? p->base : p;
    buf_f(b, " %d.%d.%d", base->tensor, base->node, base->im);
    if (base->kind == SYM_ARRAY_ARG && !base->is_variable)
        describe_param(f, base, b);
    for (int i = 0; base != p && i < p->nfixed; i++)
        buf_f(b, ",%p", (const void *)(p->fixed[i] ? p->fixed_ix[i] : NULL));
    for (int i = 0; base != p && i < p->pins.len; i++)
        buf_f(b, "@%d", lower_integer(f, p->pins.data[i].at));
}

static void lower_param(Flat *f, Symbol *p)
{
    int budget = 200;
    if (p->is_variable) {
        p->node = bound_value(f, p);
    } else if (p->kind == SYM_SCALAR_ARG && p->scalar->type == TY_INT) {
        p->node = lower_integer(f, p->scalar);    /* in no array, which would hold real numbers */
        p->im = -1;
    } else if (p->kind == SYM_SCALAR_ARG) {
        Complex v = lower_complex(f, p->scalar);
        if (p->scalar->type != TY_BOOL && has_reduction(f->m, v.re, &budget))
            v.re = kept(f, v.re, p->scalar->guarded, NULL, p->scalar->span);
        budget = 200;
        if (v.im >= 0 && has_reduction(f->m, v.im, &budget))
            v.im = kept(f, v.im, p->scalar->guarded, NULL, p->scalar->span);
        p->node = v.re;
        p->im = v.im;
    }
}

/* The result becomes an array that says what its parameters get. Each use of the fn has its own, by its name. */
static void lower_adjoint(Flat *f, Instance *of)
{
    Module *m = f->m;
    Symbol *r = of->result, *g = of->adjoint->cotangent;
    NodeId value = r->node;
    all_axes(f, r, value);
    const char *name = unique_ir_name(f, of->fn->name);
    Tensor t = { .name = unique_ir_name(f, intern_f(f->c, "%s_cotangent", name)), .kind = T_COTANGENT, .of = -1,
                 .no_grad = true, .dtype = f->c->dtype == DT_F64 ? DT_F64 : DT_F32, .rank = r->nids, .span = r->span };
    t.axes = arena_alloc(m->arena, sizeof *t.axes * (size_t)(r->nids + 1));
    for (int i = 0; i < r->nids; i++)
        t.axes[i] = m->indices.data[r->ids[i]].extent;
    g->tensor = module_tensor(m, t);
    g->ids = r->ids;
    g->nids = r->nids;
    for (int i = 0; i < of->adjoint->locals.len; i++)
        define(f, of->adjoint->locals.data[i]);
    for (int k = 0; k < of->nparams; k++) {
        const Symbol *p = of->params[k];
        const IxExpr *map[MAX_AXES_OF_VALUE];
        for (int i = 0; i < p->rank; i++)
            map[i] = ix_index(m, p->ids[i]);
        NodeId args[3] = { value, p->node, read_definition(f, of->adjoint->d_param[k], map, RE) };
        value = node_map(m, OP_OVERRIDE, args, 3);
    }
    module_at(m, r->span, of->site);
    r->node = node_array(m, value, r->ids, r->nids, name, r->span);
    r->is_array = true;
}

/* A parameter that a grad is taken with respect to is a value of its own: what else reads the array that is
 * passed does not count. */
static void lower_instance(Flat *f, Instance *inst)
{
    Buf key = { .arena = f->c->arena };
    buf_f(&key, "%p", (const void *)inst->fn);
    for (int k = 0; k < inst->nparams; k++) {
        Symbol *p = inst->params[k];
        if (p->via)
            lower_instance(f, p->via);
        lower_param(f, p);
        describe_param(f, p, &key);
    }
    inst->key = intern(f->c, key.data);
    for (int k = 0; k < inst->nparams; k++) {
        Symbol *p = inst->params[k];
        if (!p->is_variable)
            continue;
        all_axes(f, p, p->node);
        p->node = array_of(f, p, p->node, NULL, p->span);
        p->is_array = true;
    }
    for (int i = 0; i < inst->locals.len; i++)
        define(f, inst->locals.data[i]);
    if (inst->adjoint)
        lower_adjoint(f, inst);
}

static const Poly *farther(Flat *f, const FExpr *x, const Poly *a, const Poly *b)
{
    if (!a || poly_nonneg(poly_sub(f->m, b, a)))
        return b;
    if (!poly_nonneg(poly_sub(f->m, a, b)))
        FLAT_ERROR(f, x->chain, x->time->span,
                   "'%s' is read %s steps back here and %s elsewhere, of which neither is more for all sizes: bind "
                   "one of them with --dim",
                   x->source->name, poly_shown(f, b), poly_shown(f, a));
    return a;
}

static bool counts_steps(const Poly *p)
{
    for (int i = 0; i < p->nterms; i++)
        for (int k = 0; k < p->terms[i].natoms; k++)
            if (p->terms[i].atoms[k] == ATOM_PAST || p->terms[i].atoms[k] == ATOM_T)
                return true;
    return false;
}

/* Has it as many places as there are steps? */
static bool grows_with_steps(const Symbol *s)
{
    for (int i = 0; i < s->rank; i++)
        if (counts_steps(s->axes[i]))
            return true;
    return false;
}

/* Does an integer input say which slice is read? Which one it was at steps before the call is not known. */
static bool is_chosen_slice(const FExpr *x)
{
    bool chosen = false;
    for (const Symbol *s = x->sym; s->kind == SYM_ARRAY_ARG && !s->is_variable; s = s->base)
        chosen |= s->pins.len > 0;
    return chosen;
}

/* How far back a value of the cell is read: as far as there are steps, where no less is known. Values inside a fn, those
 * whose shape is another in the next call, and whole pasts of sequences that begin with their own last row have no
 * history that a call could begin with. */
static void note_past(Flat *f, FExpr *x)
{
    Symbol *s = x->source;
    const Poly *lo, *hi;
    bool known = ix_range(f->m, ix_sub(f->m, ix_index(f->m, IX_TIME), x->step), &lo, &hi) && !counts_steps(hi);
    if (known && hi->nterms == 0)
        return;
    f->all_flags |= f->resets.len && !known;
    if (f->resets.len && known)
        f->longest = farther(f, x, f->longest, hi);
    if ((!known && f->c->lengths && f->c->reverse) || scope_find(f->scope, s->name) != s || grows_with_steps(s) ||
        is_chosen_slice(x))
        f->m->whole_past = true;
    else if (!known || s->past_grows)
        s->past_grows = true;
    else
        s->past = farther(f, x, s->past, hi);
}

static void find_past(Flat *f, FExpr *x);

static void find_past_of_call(Flat *f, Instance *inst)
{
    for (int k = 0; k < inst->nparams; k++) {
        if (inst->params[k]->via)
            find_past_of_call(f, inst->params[k]->via);
        if (inst->params[k]->scalar)
            find_past(f, inst->params[k]->scalar);
        for (int i = 0; i < inst->params[k]->nfixed; i++)
            if (inst->params[k]->fixed[i])
                find_past(f, inst->params[k]->fixed[i]);
    }
    for (int i = 0; i < inst->locals.len; i++)
        for (int k = 0; k < inst->locals.data[i]->equations.len; k++)
            find_past(f, inst->locals.data[i]->equations.data[k]->value);
}

/* Of what is needed: what nothing uses has no history. Conditions do not lower it, also where they are
 * decided. */
static void find_past(Flat *f, FExpr *x)
{
    f->counts_steps |= counts_anew(f) && x->ix && ix_uses(x->ix, IX_TIME);
    for (int i = 0; i < x->nbound; i++)
        f->counts_steps |= counts_anew(f) && counts_steps(x->bound[i]->extent);
    if (x->step)
        note_past(f, x);
    if (x->kind == F_CALL)
        find_past_of_call(f, x->inst);
    for (int i = 0; i < x->nargs; i++)
        find_past(f, x->args[i]);
}

/* An input that is read as it lies in memory. One of 8 bits is a definition of its own, with scales, to
 * other steps. */
static bool is_given(const Symbol *s)
{
    return s->kind == SYM_INPUT && !s->scale;
}

static NodeId step_of(Module *m, const Symbol *s, const IxExpr *const *map, int rank, const IxExpr *step)
{
    NodeId array = s->type == TY_COMPLEX ? s->packed : s->node;
    return is_given(s) ? node_load_at(m, s->tensor, map, rank, step, s->history)
                       : node_view_at(m, array, map, rank, step, s->history);
}

/* The steps before the one behind a sequence's last, which lengths say: a read at a place that an integer gives. */
static NodeId last_of_sequence(Flat *f, const Symbol *s, const IxExpr *const *map, int rank, const IxExpr *back,
                               const Poly *places)
{
    Module *m = f->m;
    IndexId at = module_index(m, intern(m->c, "at"), poly_add(m, poly_dim(m, ATOM_T), places));
    const IxExpr *far = ix_const(m, places), *step = ix_add(m, ix_index(m, IX_START), ix_sub(m, ix_index(m, at), far));
    NodeId there = node_map2(m, OP_EQ, node_index(m, ix_index(m, at)),
                             node_map2(m, OP_ADD, node_steps_of_sequence(m), lower_index(f, ix_sub(m, far, back))));
    NodeId v = step_of(m, s, map, rank, step);
    return node_reduce(m, R_SUM, node_select(m, there, v, nothing_like(m, v)), &at, 1);
}

/* The steps that a call leaves, the latest first; or all of them, where those behind the end of a sequence are zero. */
static NodeId last_steps(Flat *f, const Symbol *s, const Tensor *t)
{
    Module *m = f->m;
    IndexId axes[2 + MAX_AXES_OF_VALUE];
    const IxExpr *map[1 + MAX_AXES_OF_VALUE];
    for (int i = 0; i < t->rank; i++)
        axes[i] = module_index(m, intern_f(m->c, "h%d", i), t->axes[i]);
    int rank = t->rank - 1;
    for (int i = 0; i < rank; i++)
        map[i] = ix_index(m, axes[1 + i]);
    const IxExpr *back = ix_add(m, ix_index(m, axes[0]), ix_const(m, poly_const(m, 1)));
    if (f->lengths >= 0 && !t->grows && !m->c->reverse)
        return node_array(m, last_of_sequence(f, s, map, rank, back, t->axes[0]), axes, t->rank, t->name, t->span);
    const IxExpr *end = ix_add(m, ix_index(m, IX_START), ix_const(m, poly_dim(m, ATOM_T)));
    const IxExpr *step = t->grows ? ix_index(m, axes[0]) : ix_sub(m, end, back);
    NodeId v = step_of(m, s, map, rank, step), within = node_in_sequence(m, step);
    if (within >= 0)
        v = node_select(m, within, v, nothing_like(m, v));
    return node_array(m, v, axes, t->rank, t->name, t->span);
}

/* How many steps the histories have room for that grow: a size of the call, as if the spec had a dim of that name. */
static const Poly *room_for_steps(Flat *f, const Symbol *s)
{
    Module *m = f->m;
    const char *name = intern(f->c, "history");
    if (f->c->packed)
        FLAT_ERROR(f, NULL, s->span,
                   "with --packed, all earlier steps of '%s' cannot be kept: how many a sequence has is not "
                   "the same for all; pad, with --lengths",
                   s->name);
    const Symbol *other = scope_find(f->scope, name);
    for (int i = 0; i < m->dims.len; i++)
        if (m->dims.data[i] == name && !other)
            return poly_dim(m, i);
    if (other) {
        FLAT_ERROR(f, NULL, other->span, "'%s' is the name of the number of steps that the caller has room for: give this "
                   "another one", name);
        FLAT_NOTE(f, s->span, "all earlier steps of '%s' are read", s->name);
        return poly_const(m, 1);
    }
    vec_push(m->arena, &m->dims, name);
    const Poly *room = poly_dim(m, m->dims.len - 1);
    Check enough = { .nonneg = poly_sub(m, room, poly_dim(m, ATOM_PAST)), .span = s->span,
                     .text = intern_f(f->c, "history must be t0 + T or more: it is how many steps %s_history has "
                                      "room for", s->name) };
    vec_push(m->arena, &m->checks, enough);
    return room;
}

/* The tensor with what a value had at the steps before the call, as far back as it is read. */
/* Does any declaration say what tests may give? Then they give the steps before a call of what is defined as
 * the cell does. */
static bool has_domains(const Module *m)
{
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (m->tensors.data[t].range || m->tensors.data[t].reach)
            return true;
    return false;
}

static void add_history(Flat *f, Symbol *s)
{
    Module *m = f->m;
    TensorId input = is_given(s) ? s->tensor : -1;
    bool complex = s->type == TY_COMPLEX;
    Tensor t = { .kind = T_HISTORY, .of = input, .complex = complex, .rank = s->rank + 1 + complex, .span = s->span };
    const char *name = intern_f(f->c, "%s_history", s->name);
    t.range = input >= 0 ? m->tensors.data[input].range : NULL;
    t.reach = input < 0 && has_domains(m);
    const Symbol *other = scope_find(f->scope, name);
    if (m->whole_past || s->has_history || (!s->past && !s->past_grows))
        return;
    s->has_history = true;
    s->history = -1;
    if (other) {
        FLAT_ERROR(f, NULL, other->span, "'%s' is the name of what the caller carries of '%s', whose earlier steps "
                   "are read: give this another one", name, s->name);
        return;
    }
    t.name = name;
    t.dtype = input >= 0 ? m->tensors.data[input].dtype : f->c->dtype == DT_F64 ? DT_F64 : DT_F32;
    t.no_grad = input >= 0 && m->tensors.data[input].no_grad;
    t.axes = arena_alloc(m->arena, sizeof *t.axes * (size_t)(t.rank + 1));
    t.grows = s->past_grows;
    t.axes[0] = t.grows ? room_for_steps(f, s) : s->past;
    for (int i = 0; i < s->rank; i++)
        t.axes[1 + i] = s->axes[i];
    if (complex)
        t.axes[1 + s->rank] = poly_const(m, 2);
    s->history = module_tensor(m, t);
    m->roots.data[s->history].last = last_steps(f, s, &m->tensors.data[s->history]);
}

/* The two parts of one element, read where they lie; -1 where they are something else. */
static NodeId whole_load(Flat *f, Complex z, IndexId part)
{
    Module *m = f->m;
    const Node *re = &m->nodes.data[z.re], *im = z.im < 0 ? re : &m->nodes.data[z.im];
    int last = re->nmap - 1;
    bool same = re->kind == N_LOAD && im->kind == N_LOAD && re->tensor == im->tensor && !re->step && !im->step &&
                m->tensors.data[re->tensor].complex && re->map[last] == part_place(f, RE) &&
                im->map[last] == part_place(f, IM);
    for (int i = 0; i < last && same; i++)
        same = re->map[i] == im->map[i];
    if (!same)
        return -1;
    const IxExpr *map[64];
    memcpy(map, re->map, sizeof *map * (size_t)last);
    map[last] = ix_index(m, part);
    return node_load(m, re->tensor, map, last + 1);
}

/* A step that does not move with this one is earlier from some step on: so every value of a step varies with it. */
static NodeId not_later(Module *m, const IxExpr *step, NodeId v)
{
    if (ix_uses(step, IX_TIME))
        return v;
    NodeId cond = node_map2(m, OP_LE, node_index(m, step), node_index(m, ix_index(m, IX_TIME)));
    return node_select(m, cond, v, nothing_like(m, v));
}

/* An index over the parts, for the sum that gives this part: two sums read a param by loads of their own, so that
 * what each gives to its gradient is a product of its own. */
static IndexId part_axis(Flat *f, Part of)
{
    return param_axis(f, -1 - (int)of, poly_const(f->m, 2));
}

/* The parts as one array, whose last axis is 0 for the real and 1 for the imaginary one. */
static NodeId pack_parts(Flat *f, Complex z, const IndexId *ids, int nids, IndexId part, const char *name, Span span)
{
    Module *m = f->m;
    IndexId axes[65];
    memcpy(axes, ids, sizeof *axes * (size_t)nids);
    axes[nids] = part;
    NodeId real = node_map2(m, OP_EQ, node_index(m, ix_index(m, part)), node_whole(m, 0));
    NodeId v = whole_load(f, z, part);
    if (v < 0)
        v = node_select(m, real, z.re, complex_im(m, z));
    return node_array(m, v, axes, nids + 1, name, span);
}

static void pack(Flat *f, Symbol *s)
{
    if (s->packed >= 0)
        return;
    const IxExpr *map[MAX_AXES_OF_VALUE];
    for (int i = 0; i < s->rank; i++)
        map[i] = ix_index(f->m, s->ids[i]);
    Complex z = { read_definition(f, s, map, RE), read_definition(f, s, map, IM) };
    s->packed = pack_parts(f, z, s->ids, s->nids, part_axis(f, RE), s->ir_name, s->equations.data[0]->stmt->span);
}

/* What an input of 8 bits stands for, as an array: what a call leaves of its steps are these values. */
static void keep_value(Flat *f, Symbol *s)
{
    Module *m = f->m;
    const IxExpr *map[MAX_AXES_OF_VALUE];
    if (s->is_array)
        return;
    s->ids = arena_alloc(m->arena, sizeof *s->ids * (size_t)(s->rank + 1));
    s->nids = s->rank;
    for (int i = 0; i < s->rank; i++) {
        s->ids[i] = module_index(m, intern_f(f->c, "%c", 'i' + i), s->axes[i]);
        map[i] = ix_index(m, s->ids[i]);
    }
    NodeId v = read_scaled(f, s, map);
    s->node =
        node_array(m, v, s->ids, s->nids, unique_ir_name(f, intern_f(f->c, "%s_value", s->name)), s->span);
    s->is_array = true;
}

/* A read of another step. What lies in no array is computed for that step where it is read. */
static NodeId read_earlier(Flat *f, const FExpr *x, Part part)
{
    Module *m = f->m;
    Symbol *s = x->source;
    bool complex = s->type == TY_COMPLEX;
    if (s->scale)
        keep_value(f, s);
    NodeId node = part == IM ? s->im : s->node;
    if (complex && s->kind != SYM_INPUT && s->is_array)
        pack(f, s);
    add_history(f, s);
    TensorId past = s->has_history ? s->history : -1;
    if (is_given(s))
        return not_later(m, x->step, node_load_at(m, s->tensor, tensor_map(f, s, x->map, part), x->nmap + complex,
                                                  x->step, past));
    unsigned dep = m->nodes.data[s->node].dep | (complex ? m->nodes.data[s->im].dep : 0);
    if (dep & DEP_STATE) {
        FLAT_ERROR(f, x->chain, x->span,
                   "'%s' depends on a state; earlier steps are read of inputs, and of definitions that depend on "
                   "no state",
                   s->name);
        FLAT_NOTE(f, s->span, "'%s' is defined here; what a later step needs of it is kept in a state", s->name);
        return node_const(m, 0);
    }
    const IxExpr *map[65];
    IndexId from[65];
    for (int i = 0; i < s->nids; i++) {
        map[i] = i < s->rank ? x->map[i] : ix_index(m, s->ids[i]);
        from[i] = s->ids[i];
    }
    if (s->is_array && (dep & DEP_TIME)) {
        map[s->nids] = part_place(f, part);
        return not_later(m, x->step, node_view_at(m, complex ? s->packed : node, map, s->nids + complex, x->step, past));
    }
    from[s->nids] = IX_TIME;
    map[s->nids] = x->step;
    NodeId v = s->is_array ? node_view(m, node, map, s->nids) : node_subst(m, node, from, map, s->nids + 1);
    NodeId there = node_has_step(m, x->step, -1);
    return there < 0 ? v : node_select(m, there, v, node_const(m, 0));
}

static void note_reset(Flat *f)
{
    if (f->resets.len)
        FLAT_NOTE(f, f->resets.data[0]->span, "'%s' says where another sequence begins", f->resets.data[0]->name);
}

static void no_count(Flat *f, const FExpr *x)
{
    FLAT_ERROR(f, x->chain, x->span, "%s 't' is a number that starts again, and no index: count the steps in a state",
               f->resets.len ? "in a cell with resets" : "with --reverse and --lengths");
    note_reset(f);
}

/* With resets, what the steps of another sequence had is zero to this one. */
static NodeId lower_earlier(Flat *f, const FExpr *x, Part part)
{
    Module *m = f->m;
    const IxExpr *back = ix_sub(m, ix_index(m, IX_TIME), x->step);
    NodeId v = read_earlier(f, x, part);
    if (!counts_anew(f) || (!back->nterms && !back->offset->nterms))
        return v;
    if (ix_uses(back, IX_TIME)) {
        FLAT_ERROR(f, x->chain, x->time->span, "a step of '%s' that is not counted back from this one, as in '%s[...; "
                   "t - w]', may be %s", x->source->name, x->source->name,
                   f->resets.len ? "of another sequence" : "before the first of a sequence");
        note_reset(f);
        return v;
    }
    if (f->lengths >= 0 && f->c->reverse)
        v = node_select(m, node_in_sequence(m, x->step), v, nothing_like(m, v));
    if (f->age < 0)
        return v;
    NodeId same = node_map2(m, OP_LE, lower_index(f, back), f->age);
    return node_select(m, mutate("leaking-shift") ? node_bool(m, true) : same, v, nothing_like(m, v));
}

static void lower_call(Flat *f, FExpr *x)
{
    Span span = f->m->at;
    const CallSite *chain = f->m->at_chain;
    lower_instance(f, x->inst);
    module_at(f->m, span, chain);
}

/* What is read with its step is held by inner gradients, though that may be this step, and the node say no step. */
static NodeId read_part(Flat *f, const FExpr *x, Part part)
{
    NodeId v = x->step ? lower_earlier(f, x, part) : read_symbol(f, x->source, x->map, part);
    return x->step && f->takes_grad && !is_whole_node(f, v) ? node_map1(f->m, OP_HELD, v) : v;
}

static NodeId hook_release(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    const Node *n = &r->m->nodes.data[rebuilt];
    (void)old, (void)whole;
    return n->kind == N_MAP && n->op == OP_HELD ? n->args[0] : rebuilt;
}

/* Inner gradients are taken: what they held is a value like others. */
static void release_held(Module *m)
{
    bool any = false;
    for (NodeId id = 0; id < m->nodes.len; id++)
        any |= m->nodes.data[id].kind == N_MAP && m->nodes.data[id].op == OP_HELD;
    Rewrite r = { .m = m, .hook = hook_release };
    if (any)
        rewrite_roots(&r);
}

static Complex lower_read(Flat *f, FExpr *x)
{
    if (x->kind == F_VALUE && x->sym->kind == SYM_SCALAR_ARG)
        return (Complex){ x->sym->node, x->sym->im };
    if (x->kind == F_CALL)
        lower_call(f, x);
    for (int i = 0; i < x->nmap && counts_anew(f); i++)
        if (ix_uses(x->map[i], IX_TIME))
            no_count(f, x);
    NodeId re = pinned(f, x, read_part(f, x, RE));
    return (Complex){ re, x->type == TY_COMPLEX ? pinned(f, x, read_part(f, x, IM)) : -1 };
}

/* ---- resets ---- */

/* Does another sequence begin at the step? */
static NodeId is_reset(Flat *f, const IxExpr *step)
{
    Module *m = f->m;
    NodeId any = -1;
    for (int i = 0; i < f->resets.len; i++) {
        const Symbol *r = f->resets.data[i];
        NodeId here = node_map2(m, OP_LT, node_const(m, 0),
                                node_load_at(m, r->tensor, NULL, 0, step, r->has_history ? r->history : -1));
        any = any < 0 ? here : node_map2(m, OP_OR, any, here);
    }
    return any;
}

static bool looks_back(const Flat *f)
{
    return f->longest || f->all_flags;
}

/* How many steps back the sequence began: as far as is looked back, or less. */
static NodeId age_of_sequence(Flat *f)
{
    Module *m = f->m;
    const Poly *flags = f->all_flags ? poly_dim(m, ATOM_PAST) : f->longest;
    /* Without a flag, steps before step 0 are of the sequence as well: what the caller gives of them. */
    const Poly *all = f->all_flags && f->longest ? poly_add(m, flags, f->longest) : flags;
    IndexId back = module_index(m, intern(m->c, "back"), flags);
    const IxExpr *step = ix_sub(m, ix_index(m, IX_TIME), ix_index(m, back));
    NodeId there = node_select(m, is_reset(f, step), node_index(m, ix_index(m, back)), node_size(m, all));
    NodeId v = node_reduce(m, R_MIN, there, &back, 1);
    return node_array(m, v, NULL, 0, unique_ir_name(f, "age"), f->resets.data[0]->span);
}

/* The number of the step in its sequence. */
static NodeId steps_of_sequence(Flat *f)
{
    Module *m = f->m;
    NodeId now = node_index(m, ix_index(m, IX_TIME));
    if (f->lengths >= 0 && f->c->reverse) {
        const IxExpr *ahead = ix_sub(m, ix_index(m, IX_TIME), ix_const(m, poly_dim(m, ATOM_T)));
        now = node_map2(m, OP_ADD, node_index(m, ahead), node_load(m, f->lengths, NULL, 0));
    }
    return f->age < 0 ? now : node_map2(m, OP_MIN, now, f->age);
}

/* What a state's initial value is at the places of a map, or a part of it; without one zero. */
static NodeId start_part(Flat *f, const Symbol *init, const IxExpr *const *map, Part part)
{
    Module *m = f->m;
    NodeId v = !init ? -1 : part == IM ? init->im : init->node;
    if (v < 0 || mutate("reset-to-zero"))
        return node_const(m, 0);
    const Node root = m->nodes.data[v];
    if (init->is_array)
        return node_subst(m, root.args[0], root.axes, map, root.naxes);
    return node_subst(m, v, init->ids, map, init->rank);
}

static NodeId reset_part(Flat *f, const Symbol *s, Part part)
{
    Module *m = f->m;
    const IxExpr *map[MAX_AXES_OF_VALUE];
    for (int i = 0; i < s->rank; i++)
        map[i] = ix_index(m, s->ids[i]);
    NodeId before = node_load(m, s->tensor, tensor_map(f, s, map, part), s->rank + s->is_complex);
    NodeId v = node_select(m, is_reset(f, NULL), start_part(f, s->init, map, part), before);
    const char *name = intern_f(f->c, s->is_complex ? part == IM ? "%s_start_im" : "%s_start_re" : "%s_start", s->name);
    return node_array(m, v, s->ids, s->nids, unique_ir_name(f, name), s->span);
}

/* A state before the step: where another sequence begins, its initial value. */
static void reset_state(Flat *f, Symbol *s)
{
    s->ids = arena_alloc(f->m->arena, sizeof *s->ids * (size_t)(s->rank + 1));
    s->nids = s->rank;
    for (int i = 0; i < s->rank; i++)
        s->ids[i] = module_index(f->m, intern_f(f->c, "%c", 'i' + i), s->axes[i]);
    NodeId node = reset_part(f, s, RE);
    s->im = s->is_complex ? reset_part(f, s, IM) : -1;
    s->node = node;
    s->is_array = true;
}

/* How far back resets matter follows from the reads; the number of the step needs all of them. */
static void note_resets(Flat *f)
{
    Module *m = f->m;
    f->age = -1;
    m->whole_past |= f->counts_steps && f->c->lengths && f->c->reverse;
    f->all_flags |= f->counts_steps && f->resets.len;
    for (int i = 0; i < f->resets.len && looks_back(f) && !m->whole_past; i++) {
        f->resets.data[i]->past_grows |= f->all_flags;
        f->resets.data[i]->past = f->longest;
    }
}

static void lower_resets(Flat *f)
{
    module_at(f->m, f->m->span, NULL);
    for (int i = 0; i < f->resets.len && looks_back(f); i++)
        add_history(f, f->resets.data[i]);
    if (f->resets.len && looks_back(f))
        f->age = age_of_sequence(f);
    for (int i = 0; i < f->symbols.len && f->resets.len; i++)
        if (f->symbols.data[i]->kind == SYM_INIT) {
            define(f, f->symbols.data[i]);
            set_root(f, f->symbols.data[i]);
        }
    module_at(f->m, f->m->span, NULL);
    for (int i = 0; i < f->symbols.len && f->resets.len; i++)
        if (f->symbols.data[i]->kind == SYM_STATE)
            reset_state(f, f->symbols.data[i]);
}

/* ---- operations ---- */

static bool is_of_steps(const Flat *f, const FIndex *i)
{
    return i->extent == poly_dim(f->m, ATOM_PAST);
}

/* Of reductions over `w:T`: is w one of the steps so far? -1: they bind no such index. */
static NodeId so_far(Flat *f, const FExpr *x)
{
    Module *m = f->m;
    NodeId all = -1;
    for (int i = 0; i < x->nbound; i++) {
        if (!is_of_steps(f, x->bound[i]))
            continue;
        const IxExpr *w = ix_index(m, x->bound[i]->id), *back = ix_sub(m, ix_index(m, IX_TIME), w);
        NodeId here = counts_anew(f) ? node_map2(m, OP_LE, node_index(m, w), steps_of_sequence(f))
                                     : node_map2(m, OP_LE, node_whole(m, 0), node_index(m, back));
        all = all < 0 ? here : node_map2(m, OP_AND, all, here);
    }
    return mutate("later-places") ? -1 : all;
}

/* A reduction over x's indices, of which only the steps so far count. */
static NodeId reduce_so_far(Flat *f, const FExpr *x, ReduceOp op, NodeId v, NodeId so_far)
{
    static const double nothing[] = { [R_SUM] = 0, [R_MAX] = -INFINITY, [R_MIN] = INFINITY, [R_PROD] = 1 };
    Module *m = f->m;
    IndexId bound[MAX_AXES_OF_VALUE];
    for (int i = 0; i < x->nbound; i++)
        bound[i] = x->bound[i]->id;
    if (so_far >= 0)
        v = node_select(m, so_far, v, op == R_SUM && m->nodes.data[v].type == TY_INT ? node_whole(m, 0)
                                                                                     : node_const(m, nothing[op]));
    return node_reduce(m, op, v, bound, x->nbound);
}

static NodeId reduce_part(Flat *f, const FExpr *x, NodeId v)
{
    Module *m = f->m;
    const Poly *count = poly_const(m, 1);
    NodeId steps = -1;
    v = reduce_so_far(f, x, x->reduce == R_MEAN ? R_SUM : x->reduce, v, so_far(f, x));
    if (x->reduce != R_MEAN)
        return v;
    for (int i = 0; i < x->nbound; i++) {
        if (!is_of_steps(f, x->bound[i])) {
            count = poly_mul(m, count, x->bound[i]->extent);
            continue;
        }
        NodeId n = node_map2(m, OP_ADD, counts_anew(f) ? steps_of_sequence(f) : node_index(m, ix_index(m, IX_TIME)),
                             node_const(m, 1));
        steps = steps < 0 ? n : node_map2(m, OP_MUL, steps, n);
    }
    v = node_map2(m, OP_DIV, v, lower_index(f, ix_const(m, count)));
    return steps < 0 ? v : node_map2(m, OP_DIV, v, steps);
}

/* A complex param, or its conjugate, whose last axis a sum runs along; NULL: it is something else. */
static FExpr *weight_of(Flat *f, FExpr *x, const FExpr *sum, bool *conjugate)
{
    IndexId last;
    *conjugate = x->kind == F_COMPLEX && x->complex_op == CX_CONJ;
    FExpr *w = *conjugate ? x->args[0] : x;
    if (w->kind != F_VALUE || !w->source || w->source->kind != SYM_PARAM || !w->source->is_complex || !w->nmap ||
        pins_of(f, w, &(int){ 0 }).len || !ix_is_index(w->map[w->nmap - 1], &last))
        return NULL;
    for (int i = 0; i < sum->nbound; i++)
        if (sum->bound[i]->id == last)
            return w;
    return NULL;
}

/* re and im side by side, as an array of its own. */
static NodeId operand(Flat *f, Complex z, IndexId part, Span span)
{
    Symbol s = { .ids = (IndexId[64]){ 0 } };
    all_axes(f, &s, z.re);
    all_axes(f, &s, z.im);
    return pack_parts(f, z, s.ids, s.nids, part, NULL, span);
}

/* The sum of w * b over what x binds and over the parts. */
static NodeId sum_over_parts(Flat *f, const FExpr *x, const FExpr *w, Complex b, Part of)
{
    Module *m = f->m;
    IndexId part = part_axis(f, of), bound[MAX_AXES_OF_VALUE + 1];
    const IxExpr **map = tensor_map(f, w->source, w->map, RE);
    map[w->source->rank] = ix_index(m, part);
    NodeId weight = node_load(m, w->source->tensor, map, w->source->rank + 1);
    for (int i = 0; i < x->nbound; i++)
        bound[i] = x->bound[i]->id;
    bound[x->nbound] = part;
    return node_reduce(m, R_SUM, node_map2(m, OP_MUL, weight, operand(f, b, part, x->span)), bound, x->nbound + 1);
}

/* w lies with its parts side by side, so that each part of the sum is one product of real numbers with b's parts in
 * the right order: w.re b.re - w.im b.im and w.re b.im + w.im b.re. Of a real b, the missing part is zeros. */
static Complex sum_of_products(Flat *f, const FExpr *x, const FExpr *w, FExpr *other, bool conjugate)
{
    Complex b = lower_complex(f, other);
    NodeId im = complex_im(f->m, b);
    Complex first = { b.re, conjugate ? im : complex_im(f->m, complex_map(f->m, OP_NEG, &b)) };
    Complex second = { im, conjugate && !mutate("same-weight") ? node_map1(f->m, OP_NEG, b.re) : b.re };
    return (Complex){ sum_over_parts(f, x, w, first, RE), sum_over_parts(f, x, w, second, IM) };
}

static Complex lower_reduction(Flat *f, FExpr *x)
{
    const FExpr *body = x->args[0];
    for (int k = 0; k < 2 && x->reduce == R_SUM && body->kind == F_MAP && body->op == OP_MUL && !x->guarded; k++) {
        bool conjugate;
        const FExpr *w = weight_of(f, body->args[k], x, &conjugate);
        if (w && x->nbound < MAX_AXES_OF_VALUE && so_far(f, x) < 0)
            return sum_of_products(f, x, w, body->args[!k], conjugate);
    }
    Complex v = lower_complex(f, x->args[0]);
    return (Complex){ reduce_part(f, x, v.re), v.im < 0 ? -1 : reduce_part(f, x, v.im) };
}

/* exp(s - max s) / sum of it; the maximum is a constant for the gradient, which is exact, since it cancels.
 * Where every s is -inf all is 0: nothing is taken off, and the sum, which is 1 or more elsewhere, is not
 * divided by. */
static NodeId lower_softmax(Flat *f, FExpr *x)
{
    Module *m = f->m;
    NodeId s = lower_expr(f, x->args[0]), within = so_far(f, x);
    NodeId top = kept(f, reduce_so_far(f, x, R_MAX, s, within), x->guarded, NULL, x->span);
    NodeId some = node_map2(m, OP_LT, node_const(m, -INFINITY), top);
    NodeId off = node_map1(m, OP_STOP, node_select(m, some, top, node_const(m, 0)));
    NodeId e = node_map1(m, OP_EXP, node_map2(m, OP_SUB, s, off));
    if (within >= 0)
        e = node_select(m, within, e, node_const(m, 0));
    e = kept(f, e, x->guarded, NULL, x->span);
    NodeId sum = kept(f, reduce_so_far(f, x, R_SUM, e, within), x->guarded, NULL, x->span);
    NodeId any = node_map2(m, OP_LT, node_const(m, 0), sum);
    return node_map2(m, OP_DIV, e, node_select(m, any, sum, node_const(m, 1)));
}

/* A whole number. Steps are counted from where the sequence began. */
static NodeId lower_whole(Flat *f, const FExpr *x)
{
    Module *m = f->m;
    if (!counts_anew(f) || !ix_uses(x->ix, IX_TIME))
        return lower_index(f, x->ix);
    const IxExpr *rest = x->ix;
    const Poly *times = poly_const(m, 0);
    for (int i = 0; i < x->ix->nterms; i++)
        if (x->ix->terms[i].kind == IA_INDEX && x->ix->terms[i].index == IX_TIME)
            times = x->ix->terms[i].coef;
    rest = ix_sub(m, rest, ix_scale(m, ix_index(m, IX_TIME), times));
    if (ix_uses(rest, IX_TIME))
        no_count(f, x);
    NodeId now = node_map2(m, OP_MUL, node_size(m, times), steps_of_sequence(f));
    return node_map2(m, OP_ADD, now, lower_index(f, rest));
}

/* Is it complex, or made from what may be? */
static bool is_of_complex(const FExpr *x)
{
    return x->type == TY_COMPLEX || x->kind == F_COMPLEX ||
           (x->kind == F_MAP && x->op == OP_ABS && x->args[0]->type == TY_COMPLEX);
}

static Complex lower_complex(Flat *f, FExpr *x)
{
    Complex args[4];
    if (too_many_nodes(f, x))
        return (Complex){ node_const(f->m, 0), -1 };
    if (!is_of_complex(x))
        return (Complex){ lower_expr(f, x), -1 };
    FExpr *taken = branch_taken(x);
    if (taken)
        return lower_complex(f, taken);
    if (x->kind == F_REDUCE)
        return lower_reduction(f, x);
    if (x->kind != F_MAP && x->kind != F_COMPLEX)
        return lower_read(f, x);
    for (int i = 0; i < x->nargs; i++)
        args[i] = lower_complex(f, x->args[i]);
    if (x->kind == F_COMPLEX)
        return complex_call(f->m, x->complex_op, args);
    if (x->op == OP_POW)
        return complex_power(f->m, args[0], x->args[1]->ix->offset->value);
    return complex_map(f->m, x->op, args);
}

/* Where a whole number is needed as a real one, its choices may be rounded first. */
static bool commutes_with_rounding(Op op)
{
    return op == OP_SELECT || op == OP_MIN || op == OP_MAX || op == OP_NEG;
}

static NodeId lower_expr(Flat *f, FExpr *x)
{
    Module *m = f->m;
    if (too_many_nodes(f, x))
        return node_const(m, 0);
    if (x->ix)
        return lower_whole(f, x);
    if (is_of_complex(x))
        return lower_complex(f, x).re;
    FExpr *taken = branch_taken(x);
    if (taken) {
        NodeId v = lower_expr(f, taken);
        return x->type == TY_REAL && is_whole_node(f, v) ? node_map1(m, OP_REAL, v) : v;
    }
    switch (x->kind) {
    case F_NUM: return node_const(m, x->num);
    case F_VALUE:
    case F_CALL: return lower_read(f, x).re;
    case F_REDUCE: return lower_reduction(f, x).re;
    case F_SOFTMAX: return lower_softmax(f, x);
    case F_GRAD: {
        NodeId of = lower_expr(f, x->args[0]);
        return inner_grad(f, x, of, x->nargs > 2 ? lower_expr(f, x->args[2]) : -1);
    }
    case F_IDIV:
    case F_IMOD: {
        for (int i = 0; i < 2; i++)
            if (counts_anew(f) && x->args[i]->ix && ix_uses(x->args[i]->ix, IX_TIME))
                no_count(f, x);
        NodeId a = lower_integer(f, x->args[0]);
        return node_map2(m, x->kind == F_IDIV ? OP_IDIV : OP_IMOD, a, lower_integer(f, x->args[1]));
    }
    case F_MAP: return lower_map(f, x, of_whole(x) && (x->whole || !commutes_with_rounding(x->op)));
    default: bug(f->c, "lower", "an expression of kind %d is left", (int)x->kind);
    }
}

/* ---- equations ---- */

/* The condition that the constant axes hold this part's place. */
static NodeId place_condition(Flat *f, const Equation *eq, const IndexId *ids)
{
    Module *m = f->m;
    NodeId all = -1;
    for (int i = 0; i < eq->nlhs; i++) {
        if (eq->lhs[i])
            continue;
        NodeId here = node_map2(m, OP_EQ, node_index(m, ix_index(m, ids[i])), node_whole(m, eq->constant[i]));
        all = all < 0 ? here : node_map2(m, OP_AND, all, here);
    }
    return all;
}

static Complex lower_part(Flat *f, const Equation *eq, const IndexId *ids)
{
    IndexId from[MAX_AXES_OF_VALUE];
    const IxExpr *to[MAX_AXES_OF_VALUE];
    int n = 0;
    module_at(f->m, eq->stmt->span, eq->chain);
    Complex v = lower_complex(f, eq->value);
    for (int i = 0; i < eq->nlhs; i++)
        if (eq->lhs[i] && eq->lhs[i]->id != ids[i]) {
            from[n] = eq->lhs[i]->id;
            to[n++] = ix_index(f->m, ids[i]);
        }
    return (Complex){ node_subst(f->m, v.re, from, to, n), v.im < 0 ? -1 : node_subst(f->m, v.im, from, to, n) };
}

static Complex lower_parts(Flat *f, const Symbol *s, const IndexId *ids)
{
    const EquationVec *parts = &s->equations;
    Complex v = lower_part(f, parts->data[parts->len - 1], ids);
    if (s->type == TY_COMPLEX)
        v.im = complex_im(f->m, v);
    for (int k = parts->len - 2; k >= 0; k--) {
        Complex here = lower_part(f, parts->data[k], ids);
        NodeId at = place_condition(f, parts->data[k], ids);
        v.re = node_select(f->m, at, here.re, v.re);
        if (s->type == TY_COMPLEX)
            v.im = node_select(f->m, at, complex_im(f->m, here), v.im);
    }
    return v;
}

/* `: dtype`: rounded to what tensors are stored in. In f32 and f64 that is the type of the arithmetic. */
static NodeId rounded(Flat *f, const Symbol *s, NodeId v)
{
    Dtype type = s->is_rounded ? f->c->dtype : DT_F32;
    return type == DT_BF16 ? node_map1(f->m, OP_BF16, v) : type == DT_F16 ? node_map1(f->m, OP_F16, v) : v;
}

static void define(Flat *f, Symbol *s)
{
    Module *m = f->m;
    const Equation *first = s->equations.data[0];
    bool result = s->owner && s->owner->result == s && !s->owner->picked;
    s->ids = arena_alloc(m->arena, sizeof *s->ids * 64);
    s->nids = s->rank;
    for (int i = 0; i < s->rank; i++)
        s->ids[i] = first->lhs[i] ? first->lhs[i]->id
                                  : module_index(m, intern_f(f->c, "at%d", i), s->axes[i]);
    Complex v = lower_parts(f, s, s->ids);
    bool complex = s->type == TY_COMPLEX;
    v.re = rounded(f, s, v.re);
    s->packed = -1;
    bool kept = s->past || s->past_grows;
    if (kept && !(m->nodes.data[v.re].dep & DEP_TIME))
        v.re = node_of_every_step(m, v.re);
    if (kept && complex && !(m->nodes.data[v.im].dep & DEP_TIME))
        v.im = node_of_every_step(m, v.im);
    if (s->is_variable)
        v.re = as_variable(f, v.re);
    s->node = v.re;
    s->im = v.im;
    /* What is whole stays so, in no array, which would hold real numbers. */
    bool whole = m->nodes.data[v.re].type == TY_INT && s->kind == SYM_DEF && !kept;
    if (!s->is_variable && (result || first->value->guarded || whole))
        return;
    all_axes(f, s, v.re);
    if (complex)
        all_axes(f, s, v.im);
    module_at(m, first->stmt->span, first->chain);
    s->node = array_of(f, s, v.re, complex ? "re" : NULL, first->stmt->span);
    if (complex)
        s->im = array_of(f, s, v.im, "im", first->stmt->span);
    s->is_array = true;
}

/* ---- the cell ---- */

static void mark_needed(Flat *f)
{
    for (int i = f->symbols.len - 1; i >= 0; i--) {
        Symbol *s = f->symbols.data[i];
        s->needed |= s->kind == SYM_OUTPUT || s->kind == SYM_NEXT || s->kind == SYM_INIT;
        for (int k = 0; s->needed && k < s->equations.len; k++)
            for (int d = 0; d < s->equations.data[k]->deps.len; d++)
                s->equations.data[k]->deps.data[d].sym->needed = true;
    }
}

/* Tensors keep their names, then definitions get theirs, then what the user has no name for. */
static void name_values(Flat *f)
{
    for (int i = 0; i < f->m->tensors.len; i++)
        unique_ir_name(f, f->m->tensors.data[i].name);
    for (int i = 0; i < f->symbols.len; i++) {
        Symbol *s = f->symbols.data[i];
        if (s->kind == SYM_DEF && s->needed && !s->next)
            s->ir_name = unique_ir_name(f, s->name);
    }
}

static void set_root(Flat *f, Symbol *s)
{
    bool root = s->kind == SYM_OUTPUT || s->kind == SYM_NEXT || s->kind == SYM_INIT;
    if (root && s->type == TY_COMPLEX)
        pack(f, s);
    NodeId node = s->type == TY_COMPLEX ? s->packed : s->node;
    if (s->kind == SYM_OUTPUT)
        f->m->roots.data[s->tensor].output = node;
    else if (s->kind == SYM_NEXT)
        f->m->roots.data[s->tensor].next = node;
    else if (s->kind == SYM_INIT)
        f->m->roots.data[s->tensor].init = node;
}

/* ---- lengths ---- */

static void add_lengths(Flat *f)
{
    Module *m = f->m;
    const char *name = intern(f->c, "lengths");
    const Symbol *other = scope_find(f->scope, name);
    f->lengths = -1;
    if (!f->c->lengths)
        return;
    if (other)
        FLAT_ERROR(f, NULL, other->span, "'lengths' is the name of what the caller says of the sequences with "
                   "--lengths: give this another one");
    Tensor t = { .name = name, .kind = T_INPUT, .of = -1, .no_grad = true, .lengths = true,
                 .dtype = DT_I32, .axes = arena_alloc(m->arena, sizeof *t.axes),
                 .span = m->span };
    f->lengths = module_tensor(m, t);
}

/* ---- packed sequences ---- */

/* What a call says of sequences that follow one another: where each begins, and how many rows they have together, which is a
 * size as if the spec had a dim of that name. */
static void add_packed(Flat *f)
{
    Module *m = f->m;
    const char *const names[] = { intern(f->c, "cu_seqlens"), intern(f->c, "total") };
    if (!f->c->packed)
        return;
    if (f->c->lengths)
        FLAT_ERROR(f, NULL, m->span,
                   "--packed and --lengths exclude each other: packed sequences have no padding");
    for (int i = 0; i < 2; i++) {
        const Symbol *other = scope_find(f->scope, names[i]);
        if (other)
            FLAT_ERROR(f, NULL, other->span,
                       "'%s' is the name of what the caller says of the sequences with --packed: give "
                       "this another one",
                       names[i]);
    }
    Tensor t = { .name = names[0],
                 .kind = T_INPUT,
                 .of = -1,
                 .no_grad = true,
                 .starts = true,
                 .dtype = DT_I32,
                 .axes = arena_alloc(m->arena, sizeof *t.axes),
                 .span = m->span };
    module_tensor(m, t);
    vec_push(m->arena, &m->dims, names[1]);
}

/* A root where the step is one of the sequence, and else what stands for it. */
static NodeId within_length(Flat *f, NodeId root, TensorId state)
{
    Module *m = f->m;
    const Node n = m->nodes.data[root];
    const IxExpr *map[MAX_AXES_OF_VALUE];
    for (int i = 0; i < n.naxes; i++)
        map[i] = ix_index(m, n.axes[i]);
    NodeId stays = state < 0 ? node_const(m, 0) : node_load(m, state, map, n.naxes);
    NodeId v = node_select(m, node_in_sequence(m, ix_index(m, IX_TIME)), root, stays);
    return node_array(m, v, n.axes, n.naxes, unique_ir_name(f, intern_f(f->c, "%s_within", n.name)), n.span);
}

static void lower_lengths(Flat *f)
{
    Module *m = f->m;
    for (TensorId t = 0; t < m->tensors.len && f->lengths >= 0; t++) {
        if (m->roots.data[t].output >= 0)
            m->roots.data[t].output = within_length(f, m->roots.data[t].output, -1);
        if (m->roots.data[t].next >= 0)
            m->roots.data[t].next = within_length(f, m->roots.data[t].next, t);
    }
}

Module *lower(Compiler *c, Flat *f)
{
    add_lengths(f);
    add_packed(f);
    mark_needed(f);
    for (int i = 0; i < f->symbols.len; i++)
        for (int k = 0; f->symbols.data[i]->needed && k < f->symbols.data[i]->equations.len; k++)
            find_past(f, f->symbols.data[i]->equations.data[k]->value);
    note_resets(f);
    name_values(f);
    lower_resets(f);
    for (int i = 0; i < f->symbols.len; i++) {
        Symbol *s = f->symbols.data[i];
        if (!s->equations.len || !s->needed || (s->kind == SYM_INIT && f->resets.len))
            continue;
        define(f, s);
        set_root(f, s);
        if (f->too_large)
            return NULL;
    }
    module_at(f->m, f->m->span, NULL);
    lower_lengths(f);
    if (!c->errors)
        release_held(f->m);
    module_at(f->m, f->m->span, NULL);
    return c->errors ? NULL : f->m;
}

Module *front_end(Compiler *c, const char *path)
{
    int file = source_load(c, path);
    const Ast *ast = file >= 0 ? parse_source(c, file) : NULL;
    if (!ast || c->errors)
        return NULL;
    Flat *flat = expand(c, ast, NULL);
    if (!flat || !resolve(c, flat) || c->errors)
        return NULL;
    Module *m = lower(c, flat);
    if (!m || c->errors)
        return NULL;
    ir_verify(m, "lower");
    return m;
}
