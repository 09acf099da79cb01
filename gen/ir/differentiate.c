/* differentiate.c: reverse mode on the IR. In comes a module whose roots are outputs and next states; out go,
 * in the same module, the adjoint graph and the roots dinput, dparam, dprev, dparam_init and dpast. The same sweep
 * from one value to one tensor or array gives the inner gradients of a spec (diff.h), which are plain IR. In index
 * notation the adjoint of a contraction is a contraction, of broadcasting a sum, and of an index map its
 * inverse: where the map can be solved for the indices (offsets, mixed radix, wraps, diagonals, constants)
 * the adjoint is a guarded read, elsewhere a guarded sum. It is guaranteed that no adjoint reads a value
 * under a weaker guard than the spec did.
 *
 * The cotangent of a node is a list of (guard, value) pairs, so that a rule's factors stay under the guard of
 * the branch that they come from; the list becomes one value where it reaches an array. */
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "base/mutate.h"
#include "conditions.h"
#include "diff.h"
#include "marks.h"
#include "ops.h"

enum { MAX_GRADIENT_NODES = 500000 };    /* values with their adjoints */
enum { MOST_CONDITIONS = 8 };            /* of branches, kept for what is used in them alone */

typedef struct Part { NodeId cond, value; } Part;       /* cond -1: always */
typedef Vec(Part) PartVec;

struct Diff {
    Module *m;
    int n;                        /* nodes that are differentiated: those that existed before */
    PartVec *adj;                 /* per node */
    PartVec *tensor;              /* per tensor: parts over its axes */
    IndexId **axes;               /* per tensor: the indices of its gradient */
    bool *needs;                  /* per node: something to differentiate is below */
    bool *data;                   /* per node: numbers of the call are below, other than lengths */
    NodeId *array;                /* per node: the array that it is all of, else itself */
    const DiffInner *inner;       /* of an inner gradient; else NULL */
};

static const Node *at(const Diff *d, NodeId id)
{
    return &d->m->nodes.data[id];
}

static bool has_axis(const Node *n, IndexId i)
{
    for (int k = 0; k < n->naxes; k++)
        if (n->axes[k] == i)
            return true;
    return false;
}

static NodeId zero(Module *m)
{
    return node_const(m, 0);
}

static NodeId guarded(Module *m, NodeId cond, NodeId value)
{
    return cond < 0 ? value : node_select(m, cond, value, zero(m));
}

static NodeId both(Module *m, NodeId a, NodeId b)
{
    return a < 0 ? b : b < 0 || a == b ? a : node_map2(m, OP_AND, a, b);
}

static void add_part(Module *m, PartVec *parts, NodeId cond, NodeId value)
{
    for (int i = 0; i < parts->len; i++)
        if (parts->data[i].cond == cond) {
            if (!mutate("drop-term"))
                parts->data[i].value = node_map2(m, OP_ADD, parts->data[i].value, value);
            return;
        }
    Part p = { cond, value };
    vec_push(m->arena, parts, p);
}

static NodeId total(Module *m, const PartVec *parts)
{
    NodeId sum = -1;
    for (int i = 0; i < parts->len; i++) {
        NodeId v = guarded(m, parts->data[i].cond, parts->data[i].value);
        sum = sum < 0 ? v : node_map2(m, OP_ADD, sum, v);
    }
    return sum < 0 ? zero(m) : sum;
}

/* Splits a conjunction into what does not vary over the given indices (kept outside) and what does: each part
 * once. */
static void split_guard(Diff *d, NodeId cond, const IndexId *over, int n, NodeId *outside, NodeId *inside, Marks *seen)
{
    if (cond < 0 || !marks_first(seen, cond))
        return;
    if (at(d, cond)->kind == N_MAP && at(d, cond)->op == OP_AND) {
        NodeId a = at(d, cond)->args[0], b = at(d, cond)->args[1];
        split_guard(d, a, over, n, outside, inside, seen);
        split_guard(d, b, over, n, outside, inside, seen);
        return;
    }
    bool varies = false;
    for (int i = 0; i < n; i++)
        varies |= has_axis(at(d, cond), over[i]);
    NodeId *to = varies ? inside : outside;
    *to = both(d->m, *to, cond);
}

/* Sums value (under cond) over the indices that are in either but not in keep; what is left of the guard goes
 * to *cond. */
static NodeId sum_extra(Diff *d, NodeId *cond, NodeId value, const IndexId *keep, int nkeep)
{
    IndexId over[64];
    int n = 0;
    for (int side = 0; side < 2; side++) {
        const Node *x = side ? (*cond < 0 ? NULL : at(d, *cond)) : at(d, value);
        for (int i = 0; x && i < x->naxes; i++) {
            bool known = false;
            for (int k = 0; k < nkeep; k++)
                known |= keep[k] == x->axes[i];
            for (int k = 0; k < n; k++)
                known |= over[k] == x->axes[i];
            if (!known && n < 64)
                over[n++] = x->axes[i];
        }
    }
    if (n == 0)
        return value;
    NodeId outside = -1, inside = -1;
    Marks *seen = marks_begin(d->m);
    split_guard(d, *cond, over, n, &outside, &inside, seen);
    marks_end(seen);
    *cond = outside;
    return node_reduce(d->m, R_SUM, guarded(d->m, inside, value), over, n);
}

static void contribute(Diff *d, NodeId to, NodeId cond, NodeId value)
{
    if (!d->needs[to])
        return;
    const Node *n = at(d, to);
    IndexId axes[64];
    int naxes = n->naxes;
    memcpy(axes, n->axes, sizeof *axes * (size_t)naxes);
    value = sum_extra(d, &cond, value, axes, naxes);
    add_part(d->m, &d->adj[to], cond, value);
}

/* What comes back from a node that varies over an index stands for one value per place of it, also where the
 * cotangent is the same at all of them: the sum over such an index, which the argument does not have, is a
 * multiplication. */
static NodeId times_broadcast(Diff *d, const Node *from, NodeId to, NodeId cond, NodeId value)
{
    Module *m = d->m;
    const Poly *count = poly_const(m, 1);
    for (int i = 0; i < from->naxes + from->nbound; i++) {
        IndexId axis = i < from->naxes ? from->axes[i] : from->bound[i - from->naxes];
        bool summed = has_axis(at(d, value), axis) || (cond >= 0 && has_axis(at(d, cond), axis));
        if (axis >= IX_FIRST && !summed && !has_axis(at(d, to), axis))
            count = poly_mul(m, count, m->indices.data[axis].extent);
    }
    if (count->is_const && count->value == 1)
        return value;
    return node_map2(m, OP_MUL, value, node_size(m, count));
}

/* ---- inverse of an index map ---- */

typedef struct Solve {
    Diff *d;
    IndexId from[64];             /* the map's indices, renamed apart from the array's axes */
    const IxExpr *to[64];         /* solution, NULL while unsolved */
    int n;
    IndexId reader;               /* counts the steps of the call that read, where another one is read; else -1 */
    NodeId guard;
} Solve;

static int unknown_at(const Solve *s, IndexId i)
{
    for (int k = 0; k < s->n; k++)
        if (s->from[k] == i && !s->to[k])
            return k;
    return -1;
}

static void require(Solve *s, Op op, const IxExpr *a, const IxExpr *b)
{
    Module *m = s->d->m;
    s->guard = both(m, s->guard, node_map2(m, op, node_index(m, a), node_index(m, b)));
}

/* 0 <= e < extent, as far as it is not proved. */
static void require_within(Solve *s, const IxExpr *e, const Poly *extent)
{
    Module *m = s->d->m;
    const Poly *lo, *hi, *one = poly_const(m, 1);
    bool known = ix_range(m, e, &lo, &hi);
    if (!known || !poly_nonneg(lo))
        require(s, OP_LE, ix_const(m, poly_const(m, 0)), e);
    if (!known || !poly_nonneg(poly_sub(m, poly_sub(m, extent, one), hi)))
        require(s, OP_LT, e, ix_const(m, extent));
}

static void settle(Solve *s, int k, const IxExpr *value)
{
    Module *m = s->d->m;
    s->to[k] = value;
    for (int i = 0; i < s->n; i++)
        if (s->to[i] && i != k)
            s->to[i] = ix_subst(m, s->to[i], &s->from[k], &value, 1);
}

/* e = offset + i1 + c2*i2 + ... with c2 = extent of i1, c3 = c2 * extent of i2, ...: all unknown. */
static bool solve_radix(Solve *s, const IxExpr *e, const IxExpr *axis)
{
    Module *m = s->d->m;
    const Poly *radix = poly_const(m, 1);
    int order[16], n = 0;
    if (e->nterms > 16 || e->nterms == 0)
        return false;
    while (n < e->nterms) {
        int found = -1;
        for (int i = 0; i < e->nterms && found < 0; i++)
            if (e->terms[i].kind == IA_INDEX && e->terms[i].coef == radix &&
                unknown_at(s, e->terms[i].index) >= 0)
                found = i;
        for (int i = 0; i < n; i++)
            if (found == order[i])
                return false;
        if (found < 0)
            return false;
        order[n++] = found;
        radix = poly_mul(m, radix, m->indices.data[e->terms[found].index].extent);
    }
    const IxExpr *r = ix_sub(m, axis, ix_const(m, e->offset));
    require_within(s, r, radix);
    for (int i = 0; i < n; i++) {
        const IxTerm *t = &e->terms[order[i]];
        const IxExpr *digit = ix_div(m, r, t->coef);
        if (i + 1 < n)
            digit = ix_mod(m, digit, m->indices.data[t->index].extent);
        settle(s, unknown_at(s, t->index), digit);
    }
    return true;
}

/* The sign (+1, -1) of a term that is a plain unknown index with that coefficient, else 0. */
static int unit_term(const Solve *s, const IxTerm *t)
{
    if (t->kind != IA_INDEX || unknown_at(s, t->index) < 0 || !t->coef->is_const)
        return 0;
    return t->coef->value == 1 ? 1 : t->coef->value == -1 ? -1 : 0;
}

/* u from axis = e, where u stands in e once, as a term +-u: u = +-(axis - rest). */
static const IxExpr *isolate(Solve *s, const IxExpr *e, int term, const IxExpr *axis)
{
    Module *m = s->d->m;
    int sign = unit_term(s, &e->terms[term]);
    const IxExpr *u = ix_scale(m, ix_index(m, e->terms[term].index), poly_const(m, sign));
    const IxExpr *rest = ix_sub(m, e, u);
    if (ix_uses(rest, e->terms[term].index))
        return NULL;
    return ix_scale(m, ix_sub(m, axis, rest), poly_const(m, sign));
}

static bool solve_wrap(Solve *s, const IxExpr *e, const IxExpr *axis)
{
    Module *m = s->d->m;
    if (e->nterms != 1 || e->terms[0].kind != IA_MOD || e->offset->nterms || !e->terms[0].coef->is_const ||
        e->terms[0].coef->value != 1)
        return false;
    const IxExpr *arg = e->terms[0].arg;
    const Poly *by = e->terms[0].by;
    for (int i = 0; i < arg->nterms; i++) {
        if (!unit_term(s, &arg->terms[i]))
            continue;
        IndexId u = arg->terms[i].index;
        const Poly *extent = m->indices.data[u].extent;
        const IxExpr *value = isolate(s, arg, i, axis);
        if (!value || !poly_nonneg(poly_sub(m, by, extent)))
            continue;
        require_within(s, axis, by);
        value = ix_mod(m, value, by);
        require_within(s, value, extent);
        settle(s, unknown_at(s, u), value);
        return true;
    }
    return false;
}

/* The reading step is solved for first: sums over what distances there are, not over all steps. */
static bool solve_unit(Solve *s, const IxExpr *e, const IxExpr *axis)
{
    Module *m = s->d->m;
    for (int k = 0; k < 2 * e->nterms; k++) {
        int i = k % e->nterms;
        if (!unit_term(s, &e->terms[i]) || (k < e->nterms && e->terms[i].index != s->reader))
            continue;
        IndexId u = e->terms[i].index;
        const IxExpr *value = isolate(s, e, i, axis);
        if (!value)
            continue;
        if (u == s->reader)
            s->guard = both(m, s->guard, node_has_step(m, ix_add(m, value, ix_index(m, IX_START)), -1));
        else
            require_within(s, value, m->indices.data[u].extent);
        settle(s, unknown_at(s, u), value);
        return true;
    }
    return false;
}

static void solve_axis(Solve *s, const IxExpr *e, const IxExpr *axis)
{
    Module *m = s->d->m;
    for (int k = 0; k < s->n; k++)
        if (s->to[k])
            e = ix_subst(m, e, &s->from[k], &s->to[k], 1);
    if (solve_radix(s, e, axis) || solve_wrap(s, e, axis) || solve_unit(s, e, axis))
        return;
    require(s, OP_EQ, e, axis);
}

/* Has it a quotient or a remainder? */
static bool divides(const IxExpr *e)
{
    for (int i = 0; i < e->nterms; i++)
        if (e->terms[i].kind != IA_INDEX)
            return true;
    return false;
}

/* Axes from k on that one index counts through, `div(r,N)` and `r % N`: together they have one place, r, in
 * an axis of all of them. Solves for it and gives the number of these axes; 0: they are no such. */
static int solve_counted(Solve *s, const IxExpr *const *map, const IndexId *axes, int k, int n)
{
    Module *m = s->d->m;
    if (!divides(map[k]))
        return 0;
    const IxExpr *place = map[k], *axis = ix_index(m, axes[k]);
    for (int i = k + 1; i < n && divides(map[i]); i++) {
        const Poly *extent = m->indices.data[axes[i]].extent;
        place = ix_add(m, ix_scale(m, place, extent), map[i]);
        axis = ix_add(m, ix_scale(m, axis, extent), ix_index(m, axes[i]));
        if (!divides(place)) {
            solve_axis(s, place, axis);
            return i - k + 1;
        }
    }
    return 0;
}

static void collect_indices(const IxExpr *e, Solve *s)
{
    for (int i = 0; i < e->nterms; i++) {
        if (e->terms[i].kind != IA_INDEX) {
            collect_indices(e->terms[i].arg, s);
            continue;
        }
        bool known = e->terms[i].index < IX_FIRST;
        for (int k = 0; k < s->n; k++)
            known |= s->from[k] == e->terms[i].index;
        if (!known && s->n < 64)
            s->from[s->n++] = e->terms[i].index;
    }
}

/* What remains unsolved is summed: over an index of the map that neither the value nor the guard uses, by its
 * extent. */
static NodeId sum_unsolved(Solve *s, NodeId value)
{
    Module *m = s->d->m;
    IndexId over[64];
    int n = 0;
    for (int k = 0; k < s->n; k++) {
        if (s->to[k])
            continue;
        if (has_axis(at(s->d, value), s->from[k]))
            over[n++] = s->from[k];
        else
            value = node_map2(m, OP_MUL, value, node_size(m, m->indices.data[s->from[k]].extent));
    }
    return node_reduce(m, R_SUM, value, over, n);
}

/* A slice's adjoint as an array of its own, so that slices laid together are written where they lie. */
static NodeId as_piece(Diff *d, NodeId value)
{
    Node v = *at(d, value);
    if (v.kind == N_ARRAY || v.kind == N_VIEW || v.kind == N_LOAD || v.kind == N_CONST)
        return value;
    return node_array(d->m, value, v.axes, v.naxes, NULL, d->m->at);
}

/* What comes back to a vector that stands in a concatenation is a part of what comes back to the whole: read
 * where it lies, where conditions on places alone say which. */
static bool is_part_of_array(Diff *d, NodeId cond, NodeId value)
{
    const Node *v = at(d, value);
    return cond >= 0 && at(d, cond)->dep == 0 && (v->kind == N_ARRAY || v->kind == N_VIEW) && !v->step;
}

/* The adjoint of reading an array at map: at axes s, the sum of value(I) over all I with map(I) = s. cond
 * guards value. A param's is no array before it is summed over batch and time. Where step t reads step(t, I),
 * time is one more axis: what comes back to a step is the sum over all (t, I) that read it, with t solved for
 * and put in for every use of the step; `target` is the step that is read, this one or one before the call. */
static NodeId inverse(Diff *d, NodeId cond, NodeId value, const IxExpr *const *map, const IndexId *axes,
                      int n, bool per_step, const IxExpr *step, const IxExpr *target)
{
    Module *m = d->m;
    Solve s = { .d = d, .reader = -1, .guard = -1 };
    for (int k = 0; k < n; k++)
        collect_indices(map[k], &s);
    if (step)
        collect_indices(step, &s);
    const IxExpr *apart[64] = { NULL };
    IndexId old[64] = { 0 };
    bool plain = true;
    for (int k = 0; k < n; k++) {
        IndexId which;
        plain = plain && ix_is_index(map[k], &which) && which >= IX_FIRST &&
                m->indices.data[which].extent == m->indices.data[axes[k]].extent;
    }
    /* Of a param in a product the sum over the steps comes first, and then the places (param_gradients.c). */
    const NodeKind kind = at(d, value)->kind;
    const bool counted = per_step || kind == N_ARRAY || kind == N_VIEW;
    bool slice = !plain && per_step && !step, part = slice && is_part_of_array(d, cond, value);
    value = guarded(m, cond, value);
    if (slice && !part)
        value = as_piece(d, value);
    if (step && s.n < 63) {
        s.reader = module_index(m, intern(m->c, "t"), poly_dim(m, ATOM_T));
        s.from[s.n++] = IX_TIME;
    }
    for (int k = 0; k < s.n; k++) {
        old[k] = s.from[k];
        for (int i = 0; i < n; i++)
            if (axes[i] == old[k])
                s.from[k] = module_index(m, m->indices.data[old[k]].name, m->indices.data[old[k]].extent);
        apart[k] = ix_index(m, s.from[k]);
        if (old[k] != IX_TIME)
            continue;
        s.from[k] = s.reader;
        apart[k] = ix_add(m, ix_index(m, s.reader), ix_index(m, IX_START));
    }
    value = node_subst(m, value, old, apart, s.n);
    if (step && !solve_unit(&s, ix_subst(m, step, old, apart, s.n), target))
        solve_axis(&s, ix_subst(m, step, old, apart, s.n), target);
    const IxExpr *places[64] = { NULL };
    for (int k = 0; k < n; k++)
        places[k] = ix_subst(m, map[k], old, apart, s.n);
    for (int k = 0, together; k < n; k += together ? together : 1)
        if (!(together = counted ? solve_counted(&s, places, axes, k, n) : 0))
            solve_axis(&s, places[k], ix_index(m, axes[k]));
    IndexId from[64];
    const IxExpr *to[64];
    int solved = 0;
    for (int k = 0; k < s.n; k++)
        if (s.to[k]) {
            from[solved] = s.from[k];
            to[solved++] = mutate("own-step") && s.from[k] == s.reader
                               ? ix_sub(m, ix_index(m, IX_TIME), ix_index(m, IX_START)) : s.to[k];
        }
    value = node_subst(m, value, from, to, solved);
    if (s.guard >= 0 && !mutate("drop-guard"))
        value = guarded(m, node_subst(m, s.guard, from, to, solved), value);
    return sum_unsolved(&s, part ? cases_taken(m, value) : value);
}

/* ---- one rule per kind of node ---- */

/* The indices of a tensor's gradient: those of its first plain use, so that names stay the user's, else fresh
 * ones. */
static IndexId *tensor_axes(Diff *d, TensorId t, const Node *use)
{
    Module *m = d->m;
    const Tensor *x = &m->tensors.data[t];
    if (d->axes[t])
        return d->axes[t];
    d->axes[t] = arena_alloc(m->arena, sizeof(IndexId) * (size_t)(x->rank + 1));
    for (int k = 0; k < x->rank; k++) {
        IndexId i = -1;
        bool plain = use && ix_is_index(use->map[k], &i) && i >= IX_FIRST &&
                     m->indices.data[i].extent == x->axes[k];
        for (int j = 0; j < k && plain; j++)
            plain = d->axes[t][j] != i;
        d->axes[t][k] = plain ? i : module_index(m, intern_f(m->c, "r%d", k), x->axes[k]);
    }
    return d->axes[t];
}

/* What comes back to the steps before the call, from those of the call that read them. */
static void diff_past(Diff *d, const Node *n, Part p)
{
    Module *m = d->m;
    if (!n->step || n->past < 0 || m->tensors.data[n->past].no_grad)
        return;
    const IndexId *axes = tensor_axes(d, n->past, NULL);
    const IxExpr *place = ix_index(m, axes[0]), *start = ix_index(m, IX_START);
    bool grows = m->tensors.data[n->past].grows;
    const IxExpr *before = grows ? place : ix_sub(m, start, ix_add(m, place, ix_const(m, poly_const(m, 1))));
    Part part = { -1, inverse(d, p.cond, p.value, n->map, axes + 1, n->nmap, true, n->step, before) };
    if (grows)
        part.value = guarded(m, node_map2(m, OP_LT, node_index(m, place), node_index(m, start)), part.value);
    vec_push(m->arena, &d->tensor[n->past], part);
}

static void diff_load(Diff *d, const Node *n, Part p)
{
    const IxExpr *now = ix_index(d->m, IX_TIME);
    const Tensor *t = &d->m->tensors.data[n->tensor];
    IndexId *axes = tensor_axes(d, n->tensor, n);
    IndexId swapped[2];
    if (mutate("transpose") && t->rank == 2 && t->axes[0] == t->axes[1]) {
        swapped[0] = axes[1];
        swapped[1] = axes[0];
        axes = swapped;
    }
    Part part = { -1, inverse(d, p.cond, p.value, n->map, axes, t->rank, t->kind != T_PARAM,
                                n->step, now) };
    diff_past(d, n, p);
    if (mutate("next-row") && t->kind == T_PARAM && t->rank)
        part.value = node_subst(d->m, part.value, axes, (const IxExpr *[]){ ix_add(d->m, ix_index(d->m, axes[0]),
                                ix_const(d->m, poly_const(d->m, 1))) }, 1);
    vec_push(d->m->arena, &d->tensor[n->tensor], part);
}

static void diff_view(Diff *d, const Node *n, Part p)
{
    const Node *array = at(d, n->args[0]);
    int naxes = array->naxes;
    IndexId axes[64];
    memcpy(axes, array->axes, sizeof *axes * (size_t)naxes);
    NodeId value = inverse(d, p.cond, p.value, n->map, axes, naxes, true, n->step, ix_index(d->m, IX_TIME));
    diff_past(d, n, p);
    contribute(d, n->args[0], -1, value);
}

static void diff_map(Diff *d, NodeId id, const Node *n, Part p)
{
    Module *m = d->m;
    if (n->op == OP_SELECT) {
        NodeId not_taken = node_map1(m, OP_NOT, n->args[0]);
        for (int k = 1; k < 3; k++) {
            NodeId cond = both(m, p.cond, (k == 1) != mutate("swap-branches") ? n->args[0] : not_taken);
            contribute(d, n->args[k], cond, times_broadcast(d, n, n->args[k], cond, p.value));
        }
        return;
    }
    if (!op_table[n->op].adjoint)
        return;
    NodeId x[4];
    for (int k = 0; k < n->nargs; k++)
        x[k] = d->array[n->args[k]];
    for (int k = 0; k < n->nargs; k++) {
        if (!d->needs[n->args[k]])
            continue;
        NodeId g = op_adjoint(m, id, k, x, d->array[id], p.value);
        if (g >= 0)
            contribute(d, n->args[k], p.cond, times_broadcast(d, n, n->args[k], p.cond, g));
    }
}

/* Product of all the others, written without division so that zeros are right. */
static NodeId others(Diff *d, const Node *n)
{
    Module *m = d->m;
    IndexId fresh[64];
    const IxExpr *to[64];
    NodeId same = -1;
    for (int i = 0; i < n->nbound; i++) {
        Index old = m->indices.data[n->bound[i]];
        fresh[i] = module_index(m, old.name, old.extent);
        to[i] = ix_index(m, fresh[i]);
        same = both(m, same, node_map2(m, OP_EQ, node_index(m, to[i]),
                                       node_index(m, ix_index(m, n->bound[i]))));
    }
    NodeId body = node_subst(m, n->args[0], n->bound, to, n->nbound);
    return node_reduce(m, R_PROD, node_select(m, same, node_const(m, mutate("prod-zero") ? 0 : 1), body),
                       fresh, n->nbound);
}

static void diff_reduce(Diff *d, NodeId id, const Node *n, Part p)
{
    Module *m = d->m;
    NodeId a = n->args[0], g = p.value;
    if (n->reduce == R_PROD) {
        g = op_times(m, g, others(d, n), a);
    } else if (n->reduce != R_SUM) {
        NodeId hit = node_map2(m, OP_EQ, a, id), one = node_const(m, 1);
        NodeId ties = node_reduce(m, R_SUM, node_select(m, hit, one, zero(m)), n->bound, n->nbound);
        g = node_select(m, hit, node_map2(m, OP_DIV, g, ties), mutate("max-everywhere") ? g : zero(m));
    }
    contribute(d, a, p.cond, times_broadcast(d, n, a, p.cond, g));
}

static const char *adjoint_name(Diff *d, NodeId array)
{
    const char *name = at(d, array)->name;
    if (d->inner)
        return d->inner->name_of(d->inner->naming, array);
    return name ? intern_f(d->m->c, "d_%s", name) : NULL;
}

/* ---- an adjoint that the spec gives */

typedef struct Replace {
    Module *m;
    TensorId tensor;              /* what is loaded from it */
    NodeId by;                    /* is read from this array */
    NodeId *image;                /* per node; -1: not known */
} Replace;

static NodeId replace_loads(Replace *r, NodeId id)
{
    Module *m = r->m;
    Node n = m->nodes.data[id];
    NodeId args[4];
    bool same = true;
    if (r->image[id] >= 0)
        return r->image[id];
    for (int i = 0; i < n.nargs; i++) {
        args[i] = replace_loads(r, n.args[i]);
        same &= args[i] == n.args[i];
    }
    NodeId out = id;
    if (n.kind == N_LOAD && n.tensor == r->tensor)
        out = node_view(m, r->by, n.map, n.nmap);
    else if (!same && n.kind == N_MAP)
        out = node_map(m, n.op, args, n.nargs);
    else if (!same && n.kind == N_REDUCE)
        out = node_reduce(m, n.reduce, args[0], n.bound, n.nbound);
    else if (!same && n.kind == N_VIEW)
        out = node_view_at(m, args[0], n.map, n.nmap, n.step, n.past);
    else if (!same && n.kind == N_ARRAY)
        out = node_array(m, args[0], n.axes, n.naxes, n.name, n.span);
    r->image[id] = out;
    return out;
}

static TensorId cotangent_of(const Module *m, const char *name)
{
    const char *wanted = intern_f(m->c, "%s_cotangent", name ? name : "");
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (m->tensors.data[t].kind == T_COTANGENT && m->tensors.data[t].name == wanted)
            return t;
    bug(m->c, "differentiate", "%s has an adjoint and no cotangent", name ? name : "a value");
}

static bool is_override(const Diff *d, NodeId id)
{
    return at(d, id)->kind == N_MAP && at(d, id)->op == OP_OVERRIDE;
}

/* The array `id` has the cotangent g: its parameters get what the spec says, and what computes it nothing. */
static void diff_override(Diff *d, const Node *array, NodeId g)
{
    Module *m = d->m;
    Replace r = { .m = m, .tensor = cotangent_of(m, array->name), .by = g };
    size_t bytes = sizeof *r.image * (size_t)m->nodes.len;
    r.image = arena_alloc(m->arena, bytes);
    memset(r.image, 0xff, bytes);
    for (NodeId o = array->args[0]; is_override(d, o); o = at(d, o)->args[0]) {
        Node n = *at(d, o);
        contribute(d, n.args[1], -1, replace_loads(&r, n.args[2]));
    }
}

/* ---- values that only branches use */

/* Marks what hangs on numbers of the call, other than the lengths of its sequences. */
static void find_data(Diff *d)
{
    for (NodeId id = 0; id < d->n; id++) {
        const Node *n = at(d, id);
        bool data = n->kind == N_LOAD && !d->m->tensors.data[n->tensor].lengths;
        for (int i = 0; i < n->nargs; i++)
            data |= d->data[n->args[i]];
        d->data[id] = data;
    }
}

/* What a condition hangs on, and how many conditions it is made of. */
typedef struct Grounds {
    NodeId array;                 /* is looked for */
    bool data, itself;
    int conds;
} Grounds;

/* Nothing that is older than the array hangs on it. */
static void find_grounds(const Diff *d, NodeId id, Grounds *on, Marks *seen)
{
    const Node *n = at(d, id);
    if (on->conds > MOST_CONDITIONS || !marks_first(seen, id))
        return;
    on->data |= id < d->n && d->data[id];
    on->itself |= id == on->array;
    on->conds += n->kind == N_MAP && (n->op == OP_AND || n->op == OP_OR);
    for (int i = 0; i < n->nargs && id > on->array; i++)
        find_grounds(d, n->args[i], on, seen);
}

/* Does a condition hang on numbers of the call, and not on the array whose uses it chooses? One that does, as in relu,
 * would be computed again wherever the array's cotangent is used, or kept for it; so would one that grows from array to
 * array. */
static bool is_of_other_data(const Diff *d, NodeId cond, NodeId array)
{
    Grounds on = { .array = array, .conds = 1 };
    Marks *seen = marks_begin(d->m);
    find_grounds(d, cond, &on, seen);
    marks_end(seen);
    return on.data && !on.itself && on.conds <= MOST_CONDITIONS;
}

static bool is_zero(const Diff *d, NodeId id)
{
    const Node *n = at(d, id);
    return n->kind == N_CONST && n->value == 0;
}

/* The condition of a part, also of one that was put into its value where it came through a map of indices; -1: none. */
static NodeId condition_of(const Diff *d, Part p)
{
    const Node *v = at(d, p.value);
    if (p.cond < 0 && v->kind == N_MAP && v->op == OP_SELECT && is_zero(d, v->args[2]))
        return v->args[0];
    return p.cond;
}

static bool are_opposite(const Diff *d, NodeId a, NodeId b)
{
    const Node *x = at(d, a), *y = at(d, b);
    return (x->op == OP_NOT && x->args[0] == b) || (y->op == OP_NOT && y->args[0] == a);
}

static bool within_axes(const Diff *d, NodeId cond, const Node *array)
{
    for (int i = 0; i < at(d, cond)->naxes; i++)
        if (!has_axis(array, at(d, cond)->axes[i]))
            return false;
    return true;
}

/* Where an array is used only in branches of conditions on other numbers of the call, the condition that one of them is
 * taken; else -1. */
static NodeId use_condition(Diff *d, NodeId id, const Node *array)
{
    const PartVec parts = d->adj[id];
    NodeId cond[MOST_CONDITIONS], any = -1;
    if (parts.len == 0 || parts.len > MOST_CONDITIONS)
        return -1;
    for (int i = 0; i < parts.len; i++) {
        cond[i] = condition_of(d, parts.data[i]);
        if (cond[i] < 0 || !is_of_other_data(d, cond[i], id) || !within_axes(d, cond[i], array))
            return -1;
        for (int k = 0; k < i; k++)
            if (are_opposite(d, cond[i], cond[k]))
                return -1;
    }
    for (int i = 0; i < parts.len; i++)
        any = any < 0 || any == cond[i] ? cond[i] : node_map2(d->m, OP_OR, any, cond[i]);
    return any;
}

static bool has_axes_of(const Node *n, const Node *array)
{
    for (int i = 0; i < array->naxes; i++)
        if (!has_axis(n, array->axes[i]))
            return false;
    return true;
}

/* Is it made of functions and of reads that vary over all of the array's axes, so that no sum comes back? A sum stays a
 * sum of products, which a condition within would end. */
static bool is_pointwise(const Diff *d, NodeId id, const Node *array, Marks *seen)
{
    const Node *n = at(d, id);
    if (!d->needs[id] || !marks_first(seen, id))
        return true;
    if (n->kind != N_MAP)
        return n->kind != N_REDUCE && has_axes_of(n, array);
    for (int i = 0; i < n->nargs; i++)
        if (!is_pointwise(d, n->args[i], array, seen))
            return false;
    return true;
}

/* The condition that what comes back to an array's value stands under: where no branch that uses it is taken, the
 * cotangent is 0, and no slope, which may be infinite there, is to be multiplied by it. */
static NodeId condition_of_value(Diff *d, NodeId id, const Node *array)
{
    if (at(d, array->args[0])->kind != N_MAP || mutate("no-use-condition"))
        return -1;
    Marks *seen = marks_begin(d->m);
    bool pointwise = is_pointwise(d, array->args[0], array, seen);
    marks_end(seen);
    return pointwise ? use_condition(d, id, array) : -1;
}

/* A constant, such as the 1 that an inner gradient starts from, needs no array. */
static void diff_array(Diff *d, NodeId id, const Node *n)
{
    Module *m = d->m;
    if (d->inner && id == d->inner->array)
        return;
    NodeId g = total(m, &d->adj[id]);
    bool given = is_override(d, n->args[0]);
    NodeId cond = condition_of_value(d, id, n);
    if (at(d, g)->kind == N_CONST && !given)
        g = times_broadcast(d, n, n->args[0], -1, g);
    else
        g = node_array(m, g, n->axes, n->naxes, adjoint_name(d, id), n->span);
    if (given)
        diff_override(d, n, g);
    else
        contribute(d, n->args[0], cond, g);
}

static void diff_node(Diff *d, NodeId id)
{
    Module *m = d->m;
    Node n = *at(d, id);
    module_at(m, n.span, n.chain);
    if (n.kind == N_ARRAY) {
        diff_array(d, id, &n);
        return;
    }
    for (int i = 0; i < d->adj[id].len; i++) {
        Part p = d->adj[id].data[i];
        switch (n.kind) {
        case N_LOAD: diff_load(d, &n, p); break;
        case N_VIEW: diff_view(d, &n, p); break;
        case N_MAP: diff_map(d, id, &n, p); break;
        case N_REDUCE: diff_reduce(d, id, &n, p); break;
        default: break;
        }
    }
}

/* ---- the whole graph ---- */

/* A derivative written with a gate's value reads the gate, which is there, and does not compute it again. */
static void find_arrays(Diff *d)
{
    for (NodeId id = 0; id < d->n; id++)
        d->array[id] = id;
    for (NodeId id = d->n - 1; id >= 0; id--) {
        const Node *n = at(d, id);
        if (n->kind == N_ARRAY && n->naxes == at(d, n->args[0])->naxes && at(d, n->args[0])->kind == N_MAP)
            d->array[n->args[0]] = id;
    }
}

static bool is_variable(const Diff *d, NodeId id)
{
    const Node *n = at(d, id);
    if (d->inner)
        return id == d->inner->array || (n->kind == N_LOAD && n->tensor == d->inner->tensor);
    const Tensor *t = n->kind == N_LOAD ? &d->m->tensors.data[n->tensor] : NULL;
    return t && t->kind <= T_STATE && !t->no_grad;
}

static void find_needs(Diff *d)
{
    for (NodeId id = 0; id < d->n; id++) {
        const Node *n = at(d, id);
        bool needs = is_variable(d, id);
        for (int i = 0; i < n->nargs; i++)
            needs |= d->needs[n->args[i]];
        if (n->type != TY_REAL || (n->kind == N_MAP && n->op == OP_STOP))
            needs = false;
        if (!d->inner && n->step && n->past >= 0)
            needs |= !d->m->tensors.data[n->past].no_grad;
        /* What another step had is a number for this one's gradient, and so is what is read with its step. */
        if (d->inner && (n->step || (n->kind == N_MAP && n->op == OP_HELD)))
            needs = false;
        d->needs[id] = needs;
    }
}

static TensorId add_cotangent(Module *m, TensorId of, TensorKind kind, const char *prefix)
{
    Tensor t = m->tensors.data[of];
    Tensor g = { .name = intern_f(m->c, "%s%s", prefix, t.name), .kind = kind, .of = of, .no_grad = true,
                 .dtype = t.dtype, .complex = t.complex, .inner = t.inner, .rank = t.rank, .axes = t.axes,
                 .span = t.span };
    return module_tensor(m, g);
}

static void seed(Diff *d, NodeId root, TensorKind kind, TensorId of, const char *prefix)
{
    Module *m = d->m;
    TensorId id = add_cotangent(m, of, kind, prefix);
    const IxExpr *map[64];
    int rank = m->tensors.data[of].rank;
    for (int k = 0; k < rank; k++)
        map[k] = ix_index(m, at(d, root)->axes[k]);
    contribute(d, root, -1, node_load(m, id, map, rank));
}

static NodeId load_past(Diff *d, TensorId from, const IxExpr *place, const IndexId *axes)
{
    const IxExpr *map[64];
    int rank = d->m->tensors.data[from].rank;
    map[0] = place;
    for (int k = 1; k < rank; k++)
        map[k] = ix_index(d->m, axes[k - 1]);
    return node_load(d->m, from, map, rank);
}

/* Of a history that grows: is the place not that of a step of the call? */
static NodeId is_kept(Module *m, const IxExpr *place)
{
    const IxExpr *start = ix_index(m, IX_START), *end = ix_add(m, start, ix_const(m, poly_dim(m, ATOM_T)));
    NodeId before = node_map2(m, OP_LT, node_index(m, place), node_index(m, start));
    return node_map2(m, OP_OR, before, node_map2(m, OP_LE, node_index(m, end), node_index(m, place)));
}

/* Where lengths say which step a call leaves at place 0: what was left of the step `back` before that. */
static NodeId load_before_end(Diff *d, TensorId from, NodeId back, const IndexId *axes)
{
    Module *m = d->m;
    IndexId place = module_index(m, intern(m->c, "place"), m->tensors.data[from].axes[0]);
    NodeId there = node_map2(m, OP_EQ, node_index(m, ix_index(m, place)), back);
    NodeId v = guarded(m, there, load_past(d, from, ix_index(m, place), axes));
    return node_reduce(m, R_SUM, v, &place, 1);
}

/* The history that a call leaves: the last steps, the latest first, and before them what it began with; or all steps,
 * where those of the call took the place of what was there. `kept`: of the place axes[0] that was there, else of this
 * step. */
static NodeId left_of(Diff *d, TensorId history, TensorId g, const IndexId *axes, bool kept)
{
    Module *m = d->m;
    bool grows = m->tensors.data[history].grows;
    const IxExpr *start = ix_index(m, IX_START), *steps = ix_const(m, poly_dim(m, ATOM_T));
    const IxExpr *one = ix_const(m, poly_const(m, 1)), *now = ix_sub(m, ix_index(m, IX_TIME), start);
    const IxExpr *here = kept ? ix_index(m, axes[0]) : NULL;
    NodeId count = node_steps_of_sequence(m);
    const IxExpr *from_end = kept ? here : ix_sub(m, ix_const(m, poly_const(m, -1)), now);
    NodeId v;
    if (count >= 0 && !grows && !m->c->reverse)
        v = load_before_end(d, g, node_map2(m, OP_ADD, count, node_index(m, from_end)), axes + kept);
    else if (kept)
        v = load_past(d, g, grows ? here : ix_add(m, here, steps), axes + 1);
    else
        v = load_past(d, g, grows ? ix_index(m, IX_TIME) : ix_sub(m, ix_sub(m, steps, one), now), axes);
    if (kept && grows)
        v = guarded(m, is_kept(m, here), v);
    if (count >= 0 && (m->c->reverse || (grows && !kept)))
        v = guarded(m, node_in_sequence(m, kept ? ix_sub(m, start, one) : ix_index(m, IX_TIME)), v);
    return v;
}

static void seed_history(Diff *d, TensorId history)
{
    Module *m = d->m;
    TensorId of = m->tensors.data[history].of;
    NodeId array = ir_history_source(m, history);
    if (m->tensors.data[history].no_grad)
        return;
    TensorId g = add_cotangent(m, history, T_DHISTORY, "dh_");
    Part kept = { -1, left_of(d, history, g, tensor_axes(d, history, NULL), true) };
    vec_push(m->arena, &d->tensor[history], kept);
    if (of >= 0) {
        Part last = { -1, left_of(d, history, g, tensor_axes(d, of, NULL), false) };
        vec_push(m->arena, &d->tensor[of], last);
    } else if (array >= 0) {
        IndexId own[64];
        memcpy(own, at(d, array)->axes, sizeof *own * (size_t)at(d, array)->naxes);
        contribute(d, array, -1, left_of(d, history, g, own, false));
    }
}

/* Ends with an error where there are too many values: each guard of a read takes a part of the cotangent by
 * itself. */
static void sweep(Diff *d)
{
    Module *m = d->m;
    for (NodeId id = d->n - 1; id >= 0 && m->nodes.len <= MAX_GRADIENT_NODES; id--)
        if (d->adj[id].len)
            diff_node(d, id);
    if (m->nodes.len > MAX_GRADIENT_NODES && !m->c->errors)
        diag(m->c, DIAG_ERROR, m->span, "the cell is too large: with its gradient it has more than %d values; make a part of it a "
             "state or an input", MAX_GRADIENT_NODES);
}

/* Of what comes back to certain places only: under which condition, and what; false: it comes back to all. */
static bool is_at_places(const Diff *d, NodeId value, NodeId *cond, NodeId *piece)
{
    const Node *n = at(d, value);
    bool guards = n->kind == N_MAP && n->op == OP_SELECT && at(d, n->args[2])->kind == N_CONST &&
                  at(d, n->args[2])->value == 0;
    if (guards) {
        *cond = n->args[0];
        *piece = n->args[1];
    }
    return guards && (at(d, *piece)->kind == N_ARRAY || at(d, *piece)->kind == N_VIEW);
}

/* The expression of a piece, where it is read. */
static NodeId piece_body(Diff *d, NodeId piece)
{
    const Node read = *at(d, piece);
    if (read.kind == N_ARRAY)
        return read.args[0];
    const Node array = *at(d, read.args[0]);
    return node_subst(d->m, array.args[0], array.axes, read.map, array.naxes);
}

/* What several reads of the same slice (`k[h,0,j]` in a value and in its norm) give back is one piece, as
 * it would be one gradient if the slice were a tensor of its own. */
static void join_pieces(Diff *d, PartVec *parts)
{
    for (int i = 0; i < parts->len; i++) {
        NodeId cond, piece, other, more;
        if (!is_at_places(d, parts->data[i].value, &cond, &piece))
            continue;
        NodeId sum = -1;
        int kept = i + 1;
        for (int k = i + 1; k < parts->len; k++) {
            bool same =
                is_at_places(d, parts->data[k].value, &other, &more) && other == cond && !at(d, more)->step;
            if (same && !at(d, piece)->step)
                sum = node_map2(d->m, OP_ADD, sum < 0 ? piece_body(d, piece) : sum, piece_body(d, more));
            else
                parts->data[kept++] = parts->data[k];
        }
        parts->len = kept;
        if (sum >= 0)
            parts->data[i].value = guarded(d->m, cond, as_piece(d, sum));
    }
}

/* The gradient root of a tensor: the sum over its uses, each reduced over nb of (batch, time), so that a
 * product of two step vectors stays one contraction. */
static NodeId gradient(Diff *d, TensorId t, int nb)
{
    static const IndexId bt[2] = { IX_BATCH, IX_TIME };
    Module *m = d->m;
    Tensor x = m->tensors.data[t];
    module_at(m, x.span, NULL);
    IndexId *axes = tensor_axes(d, t, NULL);
    NodeId v = -1;
    if (!nb)
        join_pieces(d, &d->tensor[t]);
    for (int i = 0; i < d->tensor[t].len - mutate("last-use"); i++) {
        NodeId part = node_reduce(m, R_SUM, d->tensor[t].data[i].value, bt, nb);
        v = v < 0 ? part : node_map2(m, OP_ADD, v, part);
    }
    if (v < 0)
        v = zero(m);
    return node_array(m, v, axes, x.rank, intern_f(m->c, "d_%s", x.name), x.span);
}

static Diff diff_begin(Module *m, int tensors, const DiffInner *inner)
{
    Diff d = { .m = m, .n = inner ? inner->of + 1 : m->nodes.len, .inner = inner };
    d.adj = arena_alloc(m->arena, sizeof *d.adj * (size_t)(d.n + 1));
    d.needs = arena_alloc(m->arena, sizeof *d.needs * (size_t)(d.n + 1));
    d.tensor = arena_alloc(m->arena, sizeof *d.tensor * (size_t)(tensors + 1));
    d.axes = arena_alloc(m->arena, sizeof *d.axes * (size_t)(tensors + 1));
    d.array = arena_alloc(m->arena, sizeof *d.array * (size_t)(d.n + 1));
    d.data = arena_alloc(m->arena, sizeof *d.data * (size_t)(d.n + 1));
    find_needs(&d);
    find_data(&d);
    find_arrays(&d);
    return d;
}

static void differentiate_step(Module *m, int tensors)
{
    Diff d = diff_begin(m, tensors, NULL);
    for (TensorId t = 0; t < tensors; t++) {
        if (m->tensors.data[t].kind == T_OUTPUT)
            seed(&d, m->roots.data[t].output, T_DOUT, t, "d_");
        if (m->tensors.data[t].kind == T_STATE && !m->tensors.data[t].chunk)
            seed(&d, m->roots.data[t].next, T_DNEXT, t, "dn_");
        if (m->tensors.data[t].kind == T_HISTORY)
            seed_history(&d, t);
    }
    sweep(&d);
    for (TensorId t = 0; t < tensors; t++) {
        TensorKind kind = m->tensors.data[t].kind;
        if (m->tensors.data[t].no_grad)
            continue;
        if (kind == T_INPUT)
            m->roots.data[t].dinput = gradient(&d, t, 0);
        else if (kind == T_PARAM)
            m->roots.data[t].dparam = gradient(&d, t, 2);
        else if (kind == T_HISTORY)
            m->roots.data[t].dpast = gradient(&d, t, 0);
        else if (kind == T_STATE && !m->tensors.data[t].chunk)
            m->roots.data[t].dprev = gradient(&d, t, 0);
    }
}

static void differentiate_init(Module *m, int tensors)
{
    Diff d = diff_begin(m, tensors, NULL);
    bool any = false;
    for (TensorId t = 0; t < tensors; t++)
        if (m->tensors.data[t].kind == T_STATE && m->roots.data[t].init >= 0 && !mutate("no-initial")) {
            seed(&d, m->roots.data[t].init, T_DINIT, t, "di_");
            any = true;
        }
    if (!any)
        return;
    sweep(&d);
    for (TensorId t = 0; t < tensors; t++)
        if (m->tensors.data[t].kind == T_PARAM && d.tensor[t].len)
            m->roots.data[t].dparam_init = gradient(&d, t, 1);
}

/* ---- inner gradients ---- */

Diff *diff_inner(Module *m, const DiffInner *inner)
{
    Diff *d = arena_alloc(m->arena, sizeof *d);
    *d = diff_begin(m, m->tensors.len, inner);
    return d;
}

bool diff_reaches(const Diff *d, NodeId id)
{
    return d->needs[id];
}

NodeId diff_inner_value(Diff *d, NodeId seed, const IndexId **axes)
{
    Module *m = d->m;
    Span span = m->at;
    const CallSite *chain = m->at_chain;
    const DiffInner *inner = d->inner;
    NodeId value = -1;
    m->inner = true;
    contribute(d, inner->of, -1, seed);
    sweep(d);
    module_at(m, span, chain);
    if (inner->array >= 0) {
        *axes = at(d, inner->array)->axes;
        value = total(m, &d->adj[inner->array]);
    } else {
        const PartVec *uses = &d->tensor[inner->tensor];
        *axes = tensor_axes(d, inner->tensor, NULL);
        for (int i = 0; i < (mutate("first-use") && uses->len ? 1 : uses->len); i++)
            value = i ? node_map2(m, OP_ADD, value, uses->data[i].value) : uses->data[i].value;
    }
    m->inner = false;
    return value < 0 ? zero(m) : value;
}

/* What a library's functions take at most, CELL_MAX_ARGS of runtime/cell_plan.h: more would be refused at every call. */
static void limit_arguments(const Module *m)
{
    enum { MAX_CALL_ARGUMENTS = 256 };
    int forward = forward_arguments(m).len, backward = backward_arguments(m).len;
    int most = forward > backward ? forward : backward;
    if (most > MAX_CALL_ARGUMENTS)
        diag(m->c, DIAG_ERROR, m->span, "a call of this cell has %d arguments (inputs, params, states, outputs, histories and "
             "their gradients); at most %d", most, MAX_CALL_ARGUMENTS);
}

void differentiate(Module *m)
{
    int tensors = m->tensors.len;
    m->forward_nodes = m->nodes.len;
    differentiate_step(m, tensors);
    differentiate_init(m, tensors);
    module_drop_overrides(m);
    m->has_grad = true;
    module_at(m, m->span, NULL);
    limit_arguments(m);
}
