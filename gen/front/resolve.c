/* resolve.c: what each expression of the flat cell means. In comes a Flat with bound names, in order of
 * evaluation; after ranges.c has given every index its extent, every expression gets a type and every read an
 * index map that is proved to stay inside its array (prove.c). Whatever fails is diagnosed; the pass never
 * stops at the first error. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "resolve.h"

/* ---- ids of indices ---- */

typedef struct IdList {
    Vec(IndexId) ids;
} IdList;

/* One id per name and extent, but never that of an index around this one, in callers as well. */
static void give_id(Flat *f, FIndex *i)
{
    IdList *list = map_get(&f->index_ids, i->name);
    if (i->id >= 0)
        return;
    if (!list) {
        list = arena_alloc(f->c->arena, sizeof *list);
        map_put(f->c->arena, &f->index_ids, i->name, list);
    }
    for (int k = 0; k < list->ids.len && i->id < 0; k++) {
        IndexId id = list->ids.data[k];
        bool taken = f->m->indices.data[id].extent != i->extent;
        for (const FIndex *o = i->outer; o && !taken; o = o->outer)
            taken = o->id == id;
        if (!taken)
            i->id = id;
    }
    if (i->id < 0) {
        i->id = module_index(f->m, i->name, i->extent);
        vec_push(f->c->arena, &list->ids, i->id);
    }
}

/* ---- types, maps and bounds ---- */

static void check(Walk *w, FExpr *x);
static void check_symbol(Walk *w, Symbol *s);

static bool ix_is_small(const IxExpr *e)
{
    bool ok = e->nterms <= 64 && poly_is_small(e->offset);
    for (int i = 0; i < e->nterms && ok; i++)
        ok = poly_is_small(e->terms[i].coef);
    return ok;
}

static void set_ix(FExpr *x, const IxExpr *ix)
{
    x->ix = ix && ix_is_small(ix) ? ix : NULL;
}

static void need_number(Walk *w, const FExpr *x, const char *by)
{
    if (x->type != TY_BOOL || x->kind == F_ERROR)
        return;
    WALK_ERROR(w, x, x->span,
               "%s needs a number, but this is a condition; write '... ? 1 : 0' to count with it", by);
    w->eq->failed = true;
}

/* An operation on integer inputs takes integers only: nothing becomes a real number unasked. */
static void need_integer(Walk *w, const FExpr *x, const FExpr *other, const char *by)
{
    if (x->type == TY_INT || w->eq->failed)
        return;
    const char *text = source_text(w->f, other->span);
    WALK_ERROR(w, x, x->span, "%s has the integer '%s' on its other side, but this is a real number; 'real(%s)' makes "
               "one of the integer", by, text, text);
    w->eq->failed = true;
}

/* Integer inputs are for indices and comparisons; a number of their value is asked for. */
static void need_real(Walk *w, const FExpr *x, const char *by)
{
    if (!x->whole || w->eq->failed)
        return;
    const char *text = source_text(w->f, x->span);
    WALK_ERROR(w, x, x->span, "%s needs a real number, but '%s' is an integer; as a number it is 'real(%s)'", by,
               text, text);
    w->eq->failed = true;
}

/* What is of real numbers only. */
static void need_not_complex(Walk *w, const FExpr *x, const char *by)
{
    need_number(w, x, by);
    if (x->type != TY_COMPLEX || w->eq->failed)
        return;
    const char *text = source_text(w->f, x->span);
    WALK_ERROR(w, x, x->span, "%s needs a real number, but '%s' is complex; take re(...), im(...) or abs(...) of it",
               by, text);
    w->eq->failed = true;
}

static void need_condition(Walk *w, const FExpr *x, const char *by)
{
    if (x->type == TY_BOOL || x->kind == F_ERROR || w->eq->failed)
        return;
    WALK_ERROR(w, x, x->span, "%s needs a condition, but this is a number; compare it, as in '... != 0'", by);
    w->eq->failed = true;
}

static bool reads_a_value(const FExpr *x)
{
    if ((x->kind == F_VALUE && x->sym->kind != SYM_SCALAR_ARG) || x->kind == F_CALL || x->kind == F_REDUCE ||
        x->kind == F_GRAD)
        return true;
    if (x->kind == F_VALUE)
        return reads_a_value(x->sym->scalar);
    for (int i = 0; i < x->nargs; i++)
        if (reads_a_value(x->args[i]))
            return true;
    return false;
}

/* A checked expression as an index. */
static const IxExpr *as_index(Walk *w, FExpr *x)
{
    if (x->ix || w->eq->failed)
        return x->ix;
    if (x->whole)
        WALK_ERROR(w, x, x->span, "an integer input cannot stand here: it is known at the call only");
    else if (reads_a_value(x) && x->type != TY_INT)
        WALK_ERROR(w, x, x->span, "an index must be a whole number, but this is a %s one; integers come from inputs "
                   "that are declared so, 'input id : i32'", x->type == TY_COMPLEX ? "complex" : "real");
    else
        WALK_ERROR(w, x, x->span,
                   "an index must be a whole number that is affine in the indices, such as '2*i + 1' or "
                   "'(i + 1) %% N'");
    w->eq->failed = true;
    return NULL;
}

/* The index that stands for the place on that axis: one per axis and extent, since a read binds its own. */
static IndexId pinned_index(Flat *f, const Symbol *array, int axis)
{
    const char *key = intern_f(f->c, "row%d %p", axis, (const void *)array->axes[axis]);
    IndexId *id = map_get(&f->param_ids, key);
    if (!id) {
        id = arena_alloc(f->c->arena, sizeof *id);
        *id = module_index(f->m, intern_f(f->c, axis ? "row%d" : "row", axis), array->axes[axis]);
        map_put(f->c->arena, &f->param_ids, key, id);
    }
    return *id;
}

/* The place on an axis. One that an integer input gives is an index of its own, which the read pins to it; it need
 * not be proved to lie inside, as a read outside is 0. */
static const IxExpr *place_on(Walk *w, FExpr *at, const Symbol *array, int axis, PinVec *pins)
{
    check(w, at);
    bool chosen = at->type == TY_INT && !w->eq->failed &&
                  (at->whole || (!at->ix && stays_inside(w, at, array->axes[axis])));
    if (chosen) {
        Pin pin = { pinned_index(w->f, array, axis), at };
        vec_push(w->f->c->arena, pins, pin);
        return ix_index(w->f->m, pin.index);
    }
    const IxExpr *ix = as_index(w, at);
    if (ix)
        require_inside(w, at, ix, array, axis);
    return ix;
}

static const IxExpr **check_args(Walk *w, FExpr *x, const Symbol *array)
{
    const IxExpr **ix = arena_alloc(w->f->c->arena, sizeof *ix * (size_t)(x->nargs + 1));
    x->pins.len = 0;
    for (int i = 0; i < x->nargs; i++) {
        ix[i] = place_on(w, x->args[i], array, i, &x->pins);
        if (!ix[i])
            return NULL;
    }
    return ix;
}

static bool is_integer_input(const Flat *f, const Symbol *s)
{
    return s->kind == SYM_INPUT && s->tensor >= 0 && f->m->tensors.data[s->tensor].dtype == DT_I32;
}

static bool has_pins(const FExpr *x)
{
    bool any = x->pins.len > 0;
    for (const Symbol *s = x->sym; s && s->kind == SYM_ARRAY_ARG; s = s->base)
        any |= s->pins.len > 0;
    return any;
}

/* Follows arguments of calls to the array that is read, completing the map with the axes that the call fixed: of an
 * earlier step, those that were fixed then. */
static void follow(Walk *w, FExpr *x, const IxExpr **ix)
{
    Module *m = w->f->m;
    const IndexId time = IX_TIME;
    Symbol *s = x->sym;
    while (s->kind == SYM_ARRAY_ARG && !s->is_variable) {
        const Symbol *base = s->base;
        const IxExpr **full = arena_alloc(w->f->c->arena, sizeof *full * (size_t)(base->rank + 1));
        int open = 0;
        for (int i = 0; i < base->rank; i++) {
            const IxExpr *fixed = s->fixed && s->fixed[i] ? s->fixed_ix[i] : NULL;
            full[i] = !fixed ? ix[open++] : x->step ? ix_subst(m, fixed, &time, &x->step, 1) : fixed;
        }
        ix = full;
        s = s->base;
    }
    x->source = s;
    x->map = ix;
    x->nmap = s->rank;
    bool defined = s->kind == SYM_DEF || s->kind == SYM_OUTPUT || s->kind == SYM_NEXT;
    x->type = defined ? s->type : s->is_complex ? TY_COMPLEX : TY_REAL;
    x->whole = is_integer_input(w->f, s);
    if (x->type == TY_INT || x->whole)
        x->type = x->whole ? TY_INT : TY_REAL;
}

static void check_array_param(Walk *w, Symbol *p)
{
    p->fixed_ix = arena_alloc(w->f->c->arena, sizeof *p->fixed_ix * (size_t)(p->nfixed + 1));
    p->pins.len = 0;
    for (int i = 0; i < p->nfixed; i++)
        if (p->fixed[i])
            p->fixed_ix[i] = place_on(w, p->fixed[i], p->base, i, &p->pins);
}

/* What a derivative is taken with respect to is a real number, and so is what an adjoint fn gives to. */
static void check_variable_param(Walk *w, const Symbol *p)
{
    const Symbol *base = p;
    while (base->kind == SYM_ARRAY_ARG && base->base)
        base = base->base;
    const FExpr *number = base->kind == SYM_SCALAR_ARG ? base->scalar : NULL;
    bool defined = base->kind == SYM_DEF || base->kind == SYM_OUTPUT || base->kind == SYM_NEXT;
    bool whole = number ? number->whole : is_integer_input(w->f, base);
    bool complex = number ? number->type == TY_COMPLEX : defined ? base->type == TY_COMPLEX : base->is_complex;
    if (!p->is_variable || !(whole || complex) || w->eq->failed)
        return;
    FLAT_ERROR(w->f, p->owner->site, p->span, "'%s' is %s here, but fn '%s' takes a derivative with respect to it",
               p->name, whole ? "an integer" : "complex", p->owner->fn->name);
    w->eq->failed = true;
}

static void check_locals(Walk *w, const Instance *inst)
{
    for (int i = 0; i < inst->locals.len && !w->eq->failed; i++) {
        check_symbol(w, inst->locals.data[i]);
        w->eq->failed |= inst->locals.data[i]->failed;
    }
}

static void need_real_symbol(Walk *w, const Symbol *s)
{
    if (s->type != TY_COMPLEX || w->eq->failed)
        return;
    FLAT_ERROR(w->f, s->owner->site, s->span, "an adjoint fn is of real numbers, but '%s' is complex", s->name);
    w->eq->failed = true;
}

static void check_instance(Walk *w, Instance *inst)
{
    for (int k = 0; k < inst->nparams; k++) {
        Symbol *p = inst->params[k];
        if (p->via)
            check_instance(w, p->via);
        if (p->kind == SYM_ARRAY_ARG)
            check_array_param(w, p);
        else
            check(w, p->scalar);
        check_variable_param(w, p);
    }
    check_locals(w, inst);
    if (!inst->adjoint)
        return;
    check_locals(w, inst->adjoint);
    need_real_symbol(w, inst->result);
    for (int k = 0; k < inst->nparams; k++)
        need_real_symbol(w, inst->adjoint->d_param[k]);
}

/* What has values at earlier steps that can be known: whether a definition depends on a state shows when it is
 * lowered. */
static void check_time(Walk *w, FExpr *x)
{
    const Symbol *s = x->source;
    const char *why = s->kind == SYM_PARAM    ? "is a param, the same at every step"
                      : s->kind == SYM_OUTPUT ? "is an output: define its value first"
                      : x->type == TY_BOOL    ? "is a condition"
                                              : NULL;
    if (s->kind == SYM_STATE || s->kind == SYM_NEXT) {
        const char *at = s->rank ? "[...]" : "";
        WALK_ERROR(w, x, x->span, "'%s' is a state: %s%s is its value before the step, %s'%s the one after it, and no other step's is "
                   "kept", s->name, s->name, at, s->name, at);
        FLAT_NOTE(w->f, s->span, "'%s' is declared here", s->name);
        w->eq->failed = true;
        return;
    }
    if (why) {
        WALK_ERROR(w, x, x->span,
                   "'%s' %s; earlier steps are read of inputs, and of definitions that depend on no state",
                   s->name, why);
        FLAT_NOTE(w->f, s->span, "'%s' is %s here", s->name, s->kind == SYM_DEF ? "defined" : "declared");
        w->eq->failed = true;
        return;
    }
    check(w, x->time);
    if (w->eq->failed)
        return;
    x->step = as_index(w, x->time);
    if (!x->step)
        return;
    require_not_later(w, x->time, x->step, s);
}

static void check_read(Walk *w, FExpr *x)
{
    if (x->kind == F_VALUE && x->sym->kind == SYM_SCALAR_ARG && x->time) {
        WALK_ERROR(w, x, x->span, "'%s' is a number here, and has no earlier steps; an array has, as '%s(x)'",
                   x->sym->name, x->sym->owner->fn->name);
        w->eq->failed = true;
        return;
    }
    if (x->kind == F_VALUE && x->sym->kind == SYM_SCALAR_ARG) {
        x->type = x->sym->scalar->type;
        x->ix = x->sym->scalar->ix;
        x->whole = x->sym->scalar->whole;
        x->source = x->sym;
        if (x->sym->is_variable && x->type != TY_BOOL) {
            x->type = TY_REAL;
            x->ix = NULL;
        }
        return;
    }
    if (x->kind == F_CALL)
        check_instance(w, x->inst);
    if (w->eq->failed)
        return;
    const IxExpr **ix = check_args(w, x, x->sym);
    if (!ix)
        return;
    x->step = NULL;
    follow(w, x, ix);
    if (!x->time)
        return;
    check_time(w, x);
    if (x->step)
        follow(w, x, ix);
}

/* D / H is a size of its own where an extent says that it is exact; else it is a floor that depends on D and
 * H. */
static const Poly *exact_quotient(const Module *m, const Poly *num, const Poly *den)
{
    for (int i = 0; i < m->quotients.len; i++)
        if (m->quotients.data[i].num == num && m->quotients.data[i].den == den)
            return poly_div((Module *)(uintptr_t)m, num, den);
    return NULL;
}

/* Of integers that the call gives: any whole number divides, and a quotient by zero is zero. */
static bool divides_integers(Walk *w, FExpr *x, const char *op)
{
    const FExpr *integer = x->args[0]->whole ? x->args[0] : x->args[1];
    if (!integer->whole)
        return false;
    for (int i = 0; i < 2; i++)
        need_integer(w, x->args[i], integer, intern_f(w->f->c, "'%s'", op));
    x->whole = !w->eq->failed;
    return true;
}

/* A remainder with a real number is one of real numbers, and has a gradient. */
static bool is_real_remainder(Walk *w, FExpr *x, const char *op)
{
    if (x->kind != F_IMOD || (x->args[0]->type == TY_INT && x->args[1]->type == TY_INT))
        return false;
    for (int i = 0; i < 2; i++)
        need_not_complex(w, x->args[i], intern_f(w->f->c, "'%s'", op));
    x->kind = F_MAP;
    x->op = OP_REMAINDER;
    x->op_text = op;
    x->type = TY_REAL;
    return true;
}

static void check_whole(Walk *w, FExpr *x)
{
    Flat *f = w->f;
    const char *op = x->op_text ? x->op_text : x->kind == F_IDIV ? "/" : "%";
    const IxExpr *ix[2];
    x->type = TY_INT;
    for (int i = 0; i < 2; i++)
        check(w, x->args[i]);
    if (divides_integers(w, x, op) || is_real_remainder(w, x, op))
        return;
    for (int i = 0; i < 2; i++) {
        if (x->args[i]->type != TY_INT && !w->eq->failed) {
            WALK_ERROR(w, x->args[i], x->args[i]->span, "'%s' here needs whole numbers, but this is %s", op,
                       x->args[i]->type == TY_BOOL      ? "a condition"
                       : x->args[i]->type == TY_COMPLEX ? "a complex one"
                       : *op == 'd'                     ? "a real number; of these it is floor(a / b)"
                                                        : "a real number");
            w->eq->failed = true;
        }
        ix[i] = x->args[i]->ix;
    }
    const Poly *by = ix[1] && !ix[1]->nterms ? ix[1]->offset : NULL;
    if (w->eq->failed)
        return;
    if (by && by->is_const && by->value < 1) {
        WALK_ERROR(w, x->args[1], x->args[1]->span, "'%s' divides by a number that is not positive", op);
        w->eq->failed = true;
        return;
    }
    if (!by || !ix[0])
        return;                   /* whole, but no index expression */
    require_positive(f, by, x->args[1]->span, x->chain);
    const Poly *exact = x->kind == F_IDIV && !ix[0]->nterms ? exact_quotient(f->m, ix[0]->offset, by) : NULL;
    if (exact)
        set_ix(x, ix_const(f->m, exact));
    else
        set_ix(x, x->kind == F_IDIV ? ix_div(f->m, ix[0], by) : ix_mod(f->m, ix[0], by));
}

static const char *operand_of(Flat *f, const FExpr *x)
{
    return intern_f(f->c, "'%s'", x->op_text ? x->op_text : "this operation");
}

/* The range of a whole number, as far as it is known when the cell is compiled. */
static bool known_range(Module *m, const FExpr *x, int64_t *lo, int64_t *hi)
{
    const Poly *least, *most;
    if (!x->ix || !ix_range(m, x->ix, &least, &most) || !least->is_const || !most->is_const)
        return false;
    *lo = least->value;
    *hi = most->value;
    return true;
}

/* A power of whole numbers is whole where it is sure that 2^53 does not stop it; a square always is. */
static bool is_whole_power(Module *m, const FExpr *x)
{
    int64_t lo, hi, from, to;
    if (x->args[0]->type != TY_INT || x->args[1]->type != TY_INT || x->args[0]->whole || x->args[1]->whole ||
        !known_range(m, x->args[1], &lo, &hi) || lo < 0)
        return false;
    if (lo == hi && hi <= 2)
        return true;
    return known_range(m, x->args[0], &from, &to) && pow(fmax(llabs(from), llabs(to)), (double)hi) <= 0x1p53;
}

static void check_whole_power(FExpr *x, Module *m)
{
    const IxExpr *a = x->args[0]->ix;
    int64_t base, n, lo;
    x->type = TY_INT;
    if (known_range(m, x->args[0], &lo, &base) && lo == base && known_range(m, x->args[1], &lo, &n) && lo == n) {
        x->kind = F_NUM;
        x->is_int = true;
        x->num = pow((double)base, (double)n);
        if (fabs(x->num) <= 1 << 28)
            x->ix = ix_const(m, poly_const(m, (int64_t)x->num));
    } else if (a && !a->nterms) {
        x->ix = known_range(m, x->args[1], &lo, &n) && lo == n && n == 2 ? ix_scale(m, a, a->offset) : NULL;
    }
}

/* With an integer input among the arguments: all are integers, and so is the result, or it is real(x). */
static void check_integers(Walk *w, FExpr *x, bool stays)
{
    const FExpr *integer = NULL;
    for (int i = x->op == OP_SELECT; i < x->nargs; i++)
        integer = x->args[i]->whole && !integer ? x->args[i] : integer;
    x->whole = integer && stays;
    for (int i = x->op == OP_SELECT; integer && i < x->nargs; i++)
        if (stays)
            need_integer(w, x->args[i], integer, operand_of(w->f, x));
        else if (x->op != OP_REAL)
            need_real(w, x->args[i], operand_of(w->f, x));
}

/* A power of a complex value is a product: what a real exponent would be has many values. */
static void check_complex_power(Walk *w, const FExpr *x)
{
    const IxExpr *n = x->args[1]->ix;
    if (x->args[0]->type == TY_COMPLEX && n && !n->nterms && n->offset->is_const &&
        llabs(n->offset->value) <= MAX_COMPLEX_POWER)
        return;
    WALK_ERROR(w, x, x->args[1]->span,
               "the exponent of a complex value is a whole number from -%d to %d, known when the cell is compiled; "
               "other powers are written exp(w * log(z))", MAX_COMPLEX_POWER, MAX_COMPLEX_POWER);
    w->eq->failed = true;
}

static void check_complex_arithmetic(Walk *w, FExpr *x, const char *by)
{
    for (int i = 0; i < x->nargs; i++) {
        if (!complex_takes(x->op))
            need_not_complex(w, x->args[i], by);
        need_real(w, x->args[i], by);
    }
    if (x->op == OP_POW && !w->eq->failed)
        check_complex_power(w, x);
    x->type = x->op == OP_ABS ? TY_REAL : TY_COMPLEX;
}

/* The functions that make complex values, or take them apart. */
static void check_complex_call(Walk *w, FExpr *x)
{
    const char *by = operand_of(w->f, x);
    bool of_real = x->complex_op == CX_COMPLEX || x->complex_op == CX_CIS;
    for (int i = 0; i < x->nargs; i++) {
        check(w, x->args[i]);
        need_number(w, x->args[i], by);
        need_real(w, x->args[i], by);
        if (of_real)
            need_not_complex(w, x->args[i], by);
    }
    bool real = x->complex_op == CX_RE || x->complex_op == CX_IM || x->complex_op == CX_ARG ||
                (x->complex_op == CX_CONJ && x->args[0]->type != TY_COMPLEX);
    x->type = real ? TY_REAL : TY_COMPLEX;
}

static void check_arithmetic(Walk *w, FExpr *x)
{
    Module *m = w->f->m;
    const char *by = operand_of(w->f, x);
    bool whole = true, complex = false;
    for (int i = 0; i < x->nargs; i++) {
        check(w, x->args[i]);
        need_number(w, x->args[i], by);
        whole &= x->args[i]->type == TY_INT;
        complex |= x->args[i]->type == TY_COMPLEX;
    }
    if (complex) {
        check_complex_arithmetic(w, x, by);
        return;
    }
    if (x->op == OP_POW && is_whole_power(m, x)) {
        check_whole_power(x, m);
        return;
    }
    bool ring = x->op == OP_ADD || x->op == OP_SUB || x->op == OP_MUL || x->op == OP_NEG;
    check_integers(w, x, ring || x->op == OP_MIN || x->op == OP_MAX);
    const IxExpr *a = x->args[0]->ix, *b = x->nargs > 1 ? x->args[1]->ix : NULL;
    x->type = whole && (ring || x->op == OP_MIN || x->op == OP_MAX) ? TY_INT : TY_REAL;
    if (!whole || !ring || !a || (x->nargs > 1 && !b))
        return;
    if (x->op == OP_ADD)
        set_ix(x, ix_add(m, a, b));
    else if (x->op == OP_SUB)
        set_ix(x, ix_sub(m, a, b));
    else if (x->op == OP_NEG)
        set_ix(x, ix_scale(m, a, poly_const(m, -1)));
    else if (!a->nterms)
        set_ix(x, ix_scale(m, b, a->offset));
    else if (!b->nterms)
        set_ix(x, ix_scale(m, a, b->offset));
}

static void check_choice(Walk *w, FExpr *x)
{
    const IxExpr *kept[MAX_FACTS];
    int before = w->nfacts;
    memcpy(kept, w->fact, sizeof kept);
    check(w, x->args[0]);
    need_condition(w, x->args[0], "'?:'");
    for (int i = 1; i < 3; i++) {
        assume(w, x->args[0], i == 1);
        check(w, x->args[i]);
        memcpy(w->fact, kept, sizeof kept);
        w->nfacts = before;
    }
    NodeType a = x->args[1]->type, b = x->args[2]->type;
    if ((a == TY_BOOL) != (b == TY_BOOL) && !w->eq->failed) {
        WALK_ERROR(w, x, x->span, "one branch of '?:' is a condition, the other a number");
        w->eq->failed = true;
    }
    bool complex = a == TY_COMPLEX || b == TY_COMPLEX;
    x->type = a == TY_BOOL ? TY_BOOL : complex ? TY_COMPLEX : a == TY_INT && b == TY_INT ? TY_INT : TY_REAL;
    if (a != TY_BOOL)
        check_integers(w, x, true);
}

static void check_map(Walk *w, FExpr *x)
{
    const char *by = operand_of(w->f, x);
    switch (x->op) {
    case OP_SELECT: check_choice(w, x); return;
    case OP_LT:
    case OP_LE:
    case OP_EQ:
    case OP_NE:
        for (int i = 0; i < 2; i++) {
            check(w, x->args[i]);
            need_not_complex(w, x->args[i], by);
        }
        for (int i = 0; i < 2; i++)
            if (x->args[i]->whole)
                need_integer(w, x->args[!i], x->args[i], by);
        x->type = TY_BOOL;
        return;
    case OP_AND:
    case OP_OR:
    case OP_NOT:
        for (int i = 0; i < x->nargs; i++) {
            check(w, x->args[i]);
            need_condition(w, x->args[i], by);
        }
        x->type = TY_BOOL;
        return;
    default: check_arithmetic(w, x); return;
    }
}

/* Inside a softmax its indices run over their whole range again: what a condition around says of them is
 * void. */
static void check_softmax(Walk *w, FExpr *x)
{
    const IxExpr *kept[MAX_FACTS];
    int before = w->nfacts;
    memcpy(kept, w->fact, sizeof kept);
    w->nfacts = 0;
    for (int i = 0; i < before; i++) {
        bool about = false;
        for (int k = 0; k < x->nbound; k++)
            about |= ix_uses(kept[i], x->bound[k]->id);
        if (!about)
            w->fact[w->nfacts++] = kept[i];
    }
    check(w, x->args[0]);
    memcpy(w->fact, kept, sizeof kept);
    w->nfacts = before;
    need_not_complex(w, x->args[0], "softmax");
    need_real(w, x->args[0], "softmax");
    x->type = TY_REAL;
}

static void check_grad(Walk *w, FExpr *x)
{
    for (int i = 0; i < x->nbound; i++)
        give_id(w->f, x->bound[i]);
    for (int i = 0; i < x->nargs; i++) {
        check(w, x->args[i]);
        need_not_complex(w, x->args[i], "'grad'");
    }
    const Symbol *s = w->eq->failed ? NULL : x->args[1]->source;
    if (s && x->args[1]->whole) {
        WALK_ERROR(w, x, x->args[1]->span, "%s is an integer, and nothing has a gradient with respect to it",
                   shown(w->f, s));
        w->eq->failed = true;
    } else if (s && has_pins(x->args[1])) {
        WALK_ERROR(w, x, x->args[1]->span, "'grad' is taken with respect to %s at plain indices; an integer input says "
                   "at the call only which element this is", shown(w->f, s));
        w->eq->failed = true;
    }
    for (int i = 0; i < x->nargs; i += 2)
        need_real(w, x->args[i], "'grad'");
    x->type = TY_REAL;
}

static void check(Walk *w, FExpr *x)
{
    Module *m = w->f->m;
    x->type = TY_REAL;
    switch (x->kind) {
    case F_ERROR: w->eq->failed = true; return;
    case F_NUM:
        if (x->is_int && x->num <= 1 << 28 && x->num >= -(1 << 28))
            x->ix = ix_const(m, poly_const(m, (int64_t)x->num));
        x->type = x->is_int ? TY_INT : TY_REAL;
        return;
    case F_SIZE:
        x->ix = ix_const(m, x->size);
        x->type = TY_INT;
        return;
    case F_INDEX:
        x->ix = ix_index(m, x->index->id);
        x->type = TY_INT;
        return;
    case F_STEP:
        x->ix = ix_index(m, IX_TIME);
        x->type = TY_INT;
        return;
    case F_VALUE:
    case F_CALL: check_read(w, x); return;
    case F_MAP: check_map(w, x); return;
    case F_COMPLEX: check_complex_call(w, x); return;
    case F_IDIV:
    case F_IMOD: check_whole(w, x); return;
    case F_REDUCE:
        for (int i = 0; i < x->nbound; i++)
            give_id(w->f, x->bound[i]);
        check(w, x->args[0]);
        if (x->reduce == R_SUM || x->reduce == R_MEAN)
            need_number(w, x->args[0], "a reduction");
        else
            need_not_complex(w, x->args[0], x->reduce == R_MAX ? "'max'" : x->reduce == R_MIN ? "'min'" : "'prod'");
        need_real(w, x->args[0], "a reduction");
        x->type = x->args[0]->type == TY_COMPLEX ? TY_COMPLEX : TY_REAL;
        return;
    case F_SOFTMAX: check_softmax(w, x); return;
    case F_GRAD: check_grad(w, x); return;
    }
}

/* A declared value that says of no type is real. */
static void need_declared_type(Walk *w, const Symbol *s, const FExpr *x)
{
    if (x->type != TY_COMPLEX || s->is_complex || w->eq->failed)
        return;
    WALK_ERROR(w, x, x->span, "%s is real, but its value is complex; take re(...), im(...) or abs(...) of it, or "
               "declare '%s' as complex", shown(w->f, s), s->name);
    FLAT_NOTE(w->f, s->decl->name_span, "'%s' is declared here", s->name);
    w->eq->failed = true;
}

static bool says_dtype(const Equation *eq)
{
    return eq->stmt->kind == S_EQ && eq->stmt->text;
}

/* Only real values are rounded, and all parts of one are. */
static void check_rounded(Walk *w, const Symbol *s, const Equation *eq)
{
    const char *what = s->type == TY_BOOL      ? "a condition"
                       : s->type == TY_COMPLEX ? "complex"
                       : s->type == TY_INT     ? "an integer"
                                               : NULL;
    if (w->eq->failed)
        return;
    if (says_dtype(eq) != s->is_rounded)
        FLAT_ERROR(w->f, eq->chain, eq->stmt->name_span, "all parts of %s have the same type: ': dtype', or none",
                   shown(w->f, s));
    else if (s->is_rounded && what)
        FLAT_ERROR(w->f, eq->chain, eq->stmt->text_span, "%s is %s, and only real values are rounded to the type of --dtype",
                   shown(w->f, s), what);
}

static void check_symbol(Walk *w, Symbol *s)
{
    Equation *around = w->eq;
    s->type = s->is_complex ? TY_COMPLEX : TY_REAL;
    for (int k = 0; k < s->equations.len && !s->failed; k++) {
        Equation *eq = s->equations.data[k];
        w->eq = eq;
        for (int i = 0; i < eq->nlhs; i++)
            if (eq->lhs[i])
                give_id(w->f, eq->lhs[i]);
        check(w, eq->value);
        if (k && (eq->value->type == TY_BOOL) != (s->type == TY_BOOL) && !eq->failed) {
            WALK_ERROR(w, eq->value, eq->value->span, "this part of %s is a %s, but the first is not",
                       shown(w->f, s), eq->value->type == TY_BOOL ? "condition" : "number");
            eq->failed = true;
        }
        if (k == 0 && !s->is_complex)
            s->type = eq->value->type;
        if (eq->value->type == TY_COMPLEX && s->type != TY_BOOL)
            s->type = TY_COMPLEX;
        if (s->declared)
            need_number(w, eq->value, shown(w->f, s));
        need_real(w, eq->value, shown(w->f, s));
        if (s->tensor >= 0)
            need_declared_type(w, s, eq->value);
        s->is_rounded = k ? s->is_rounded : says_dtype(eq);
        check_rounded(w, s, eq);
        s->failed |= eq->failed;
    }
    w->eq = around;
}

bool resolve(Compiler *c, Flat *f)
{
    Walk w = { .f = f };
    infer_symbols(f, &f->symbols, NULL);
    w.fact[w.nfacts++] = ix_index(f->m, IX_TIME); /* steps count from 0 */
    for (int i = 0; i < f->symbols.len; i++)
        if (!f->symbols.data[i]->failed)
            check_symbol(&w, f->symbols.data[i]);
    return c->errors == 0;
}
