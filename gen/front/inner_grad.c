/* inner_grad.c: `grad` in a spec -> the adjoint graph that it stands for. In comes a lowered expression of the
 * spec, what it is differentiated with respect to and what is held; out goes the gradient as IR like any other,
 * made by the reverse sweep of differentiate.c, so that it may be differentiated again. A grad inside what
 * another one differentiates is IR already when its turn comes: the innermost is always resolved first.
 *
 * One sweep gives the gradient of the sum over all places of the expression. Where it varies over an index, as
 * in grad(loss[h], M[h,i,j]), that is the gradient of each place only if loss[h] depends on M at the same h
 * alone. This is proved here, by following the index from the expression down to every read of M, or refused. */
#include <string.h>

#include "base/mutate.h"
#include "bind.h"
#include "ir/diff.h"
#include "ir/marks.h"

enum { MAX_PLACES_OF_INDEX = 8, MAX_PLACE_SETS = 64, MAX_HIGHER_NODES = 10000 };

/* The indices that stand for the same place as the index in question, at some node. */
typedef struct Places { IndexId id[MAX_PLACES_OF_INDEX]; int n; } Places;

typedef struct Separate {
    const Module *m;
    const Diff *diff;
    const DiffInner *inner;
    Places set[MAX_PLACE_SETS];
    bool *seen[MAX_PLACE_SETS];   /* per node, for each set: visited */
    int nsets;
    NodeId mixed;                 /* where the index is lost, or -1 */
} Separate;

static const Node *at(const Module *m, NodeId id)
{
    return &m->nodes.data[id];
}

static bool has_place(const Places *p, IndexId i)
{
    for (int k = 0; k < p->n; k++)
        if (p->id[k] == i)
            return true;
    return false;
}

static void add_place(Places *p, IndexId i)
{
    if (!has_place(p, i) && p->n < MAX_PLACES_OF_INDEX)
        p->id[p->n++] = i;
}

/* Is this the first visit of the node with these places? */
static bool first_visit(Separate *s, NodeId id, const Places *p)
{
    int k = 0;
    while (k < s->nsets && (s->set[k].n != p->n || memcmp(s->set[k].id, p->id, sizeof *p->id * (size_t)p->n)))
        k++;
    if (k == MAX_PLACE_SETS)
        return true;
    if (k == s->nsets) {
        s->set[s->nsets++] = *p;
        s->seen[k] = arena_alloc(s->m->arena, (size_t)s->inner->of + 1);
    }
    bool first = !s->seen[k][id];
    s->seen[k][id] = true;
    return first;
}

/* Which of an array's axes are read at one of the places. */
static Places through_map(const Places *p, const IxExpr *const *map, const IndexId *axes, int n)
{
    Places in = { .n = 0 };
    for (int k = 0; k < n; k++) {
        IndexId i;
        if (ix_is_index(map[k], &i) && has_place(p, i))
            add_place(&in, axes[k]);
    }
    return in;
}

static Places without(const Places *p, const IndexId *bound, int n)
{
    Places left = { .n = 0 };
    for (int k = 0; k < p->n; k++) {
        bool hidden = false;
        for (int i = 0; i < n; i++)
            hidden |= bound[i] == p->id[k];
        if (!hidden)
            add_place(&left, p->id[k]);
    }
    return left;
}

static Places within(const Places *p, const IndexId *axes, int n)
{
    Places in = { .n = 0 };
    for (int i = 0; i < n; i++)
        if (has_place(p, axes[i]))
            add_place(&in, axes[i]);
    return in;
}

/* Follows an index down; `axis` is where the variable must be read at one of its places. */
static void follow_index(Separate *s, NodeId id, Places p, int axis)
{
    const Node *n = at(s->m, id);
    if (s->mixed >= 0 || !diff_reaches(s->diff, id))
        return;
    if (n->kind == N_LOAD) {
        IndexId i;
        if (!ix_is_index(n->map[axis], &i) || !has_place(&p, i))
            s->mixed = id;
        return;
    }
    if (n->kind == N_ARRAY)
        p = within(&p, n->axes, n->naxes);
    else if (n->kind == N_REDUCE)
        p = without(&p, n->bound, n->nbound);
    else if (n->kind == N_VIEW)
        p = through_map(&p, n->map, at(s->m, n->args[0])->axes, n->nmap);
    if (id == s->inner->array) {
        if (!has_place(&p, n->axes[axis]))
            s->mixed = id;
        return;
    }
    if (p.n == 0) {
        s->mixed = id;
        return;
    }
    if (!first_visit(s, id, &p))
        return;
    for (int k = 0; k < n->nargs; k++)
        follow_index(s, n->args[k], p, axis);
}

/* ---- what the user wrote ---- */

typedef struct Request {
    Flat *f;
    const FExpr *x;
    NodeId held;                  /* -1: 1 */
    DiffInner inner;
    const IxExpr *const *map;     /* the place of the variable, per axis of the tensor or array */
    int nmap;
    const char *name;             /* of what is differentiated, or NULL */
} Request;

static bool is_bound(const FExpr *x, IndexId i)
{
    for (int k = 0; k < x->nbound; k++)
        if (x->bound[k]->id == i)
            return true;
    return false;
}

static const char *index_name(const Request *r, IndexId i)
{
    return r->f->m->indices.data[i].name;
}

static const char *variable_name(const Request *r)
{
    return quoted_name(r->f, r->x->args[1]->sym->name, r->x->args[1]->sym->kind == SYM_NEXT);
}

static bool one_place_each(const Request *r, const Diff *diff, IndexId index)
{
    Flat *f = r->f;
    const FExpr *x = r->x;
    int axis = 0;
    IndexId which;
    while (axis < r->nmap && !(ix_is_index(r->map[axis], &which) && which == index))
        axis++;
    if (axis == r->nmap) {
        FLAT_ERROR(f, x->chain, x->args[0]->span,
                   "'grad' needs one number for each place of %s, but this varies over '%s', which does not "
                   "index it",
                   variable_name(r), index_name(r, index));
        FLAT_NOTE(f, x->args[1]->span, "this is what it is taken with respect to; sum over '%s', or write "
                  "what its parts are multiplied by: grad(o[i], W[r,j]; g[i])", index_name(r, index));
        return false;
    }
    Separate s = { .m = f->m, .diff = diff, .inner = &r->inner, .mixed = -1 };
    Places here = { { index }, 1 };
    follow_index(&s, r->inner.of, here, axis);
    if (s.mixed < 0)
        return true;
    FLAT_ERROR(f, x->chain, x->args[0]->span,
               "'grad' is not separable over '%s': this depends on %s at other places of '%s' than its own",
               index_name(r, index), variable_name(r), index_name(r, index));
    FLAT_NOTE(f, at(f->m, s.mixed)->span, "they are mixed here");
    return false;
}

/* A held value that varies over more than what is differentiated would ask for a gradient per place of it. */
static bool held_is_right(const Request *r)
{
    Module *m = r->f->m;
    if (r->held < 0)
        return true;
    for (int i = 0; i < at(m, r->held)->naxes; i++) {
        IndexId axis = at(m, r->held)->axes[i];
        bool known = is_bound(r->x, axis);
        for (int k = 0; k < at(m, r->inner.of)->naxes; k++)
            known |= at(m, r->inner.of)->axes[k] == axis;
        if (known)
            continue;
        FLAT_ERROR(r->f, r->x->chain, r->x->args[2]->span,
                   "what is held varies over '%s', but what is differentiated does not", index_name(r, axis));
        FLAT_NOTE(r->f, r->x->args[0]->span, "this is differentiated");
        return false;
    }
    return true;
}

/* One name per value and its adjoint, so that gradients of one loss share what they have in common. */
static const char *name_of(void *naming, NodeId array)
{
    const Request *r = naming;
    Flat *f = r->f;
    const char *value = at(f->m, array)->name;
    if (!value)
        return NULL;
    const char *key = intern_f(f->c, "%d.%d.%d", r->inner.of, r->held, array);
    const char *name = map_get(&f->gradients, key);
    if (name)
        return name;
    name = r->name ? intern_f(f->c, "d%s_d%s", r->name, value) : intern_f(f->c, "grad_%s", value);
    name = unique_ir_name(f, name);
    map_put(f->c->arena, &f->gradients, key, (void *)(uintptr_t)name);
    return name;
}

static const char *name_of_value(const Module *m, NodeId id)
{
    const Node *n = at(m, id);
    return n->kind == N_VIEW ? at(m, n->args[0])->name : n->kind == N_ARRAY ? n->name : NULL;
}

/* The gradient at the variable's place: an array where a sum is in it; an outer product or the like is cheaper
 * than its memory, and under a condition nothing becomes an array. */
static NodeId read_gradient(Request *r, NodeId value, const IndexId *axes)
{
    Flat *f = r->f;
    Module *m = f->m;
    int budget = 200;
    if (r->x->guarded || !has_reduction(m, value, &budget))
        return node_subst(m, value, axes, r->map, r->nmap);
    const char *of = r->inner.array >= 0 ? at(m, r->inner.array)->name : m->tensors.data[r->inner.tensor].name;
    const char *key = intern_f(f->c, "%d.%d.%s", r->inner.of, r->held, of), *name = map_get(&f->gradients, key);
    if (!name) {
        name = intern_f(f->c, r->name ? "d%s_d%s" : "grad%s_%s", r->name ? r->name : "", of);
        name = unique_ir_name(f, name);
        map_put(f->c->arena, &f->gradients, key, (void *)(uintptr_t)name);
    }
    return node_view(m, node_array(m, value, axes, r->nmap, name, m->at), r->map, r->nmap);
}

/* Is something that an earlier sweep made below? */
static bool has_gradient(const Flat *f, NodeId id, Marks *seen)
{
    const Node *n = at(f->m, id);
    if (!marks_first(seen, id))
        return false;
    for (int i = 0; i < f->sweeps.len; i++)
        if (id >= f->sweeps.data[i].first && id < f->sweeps.data[i].end)
            return true;
    for (int i = 0; i < n->nargs; i++)
        if (has_gradient(f, n->args[i], seen))
            return true;
    return false;
}

/* A sweep over n values makes about 2 n, so that gradients of gradients grow like the powers of 3. */
static void limit_order(Flat *f, const FExpr *x, NodeId of, Sweep made)
{
    Marks *seen = marks_begin(f->m);
    bool higher = made.end - made.first > MAX_HIGHER_NODES && has_gradient(f, of, seen);
    marks_end(seen);
    vec_push(f->m->arena, &f->sweeps, made);
    if (!higher || f->too_large)
        return;
    f->too_large = true;
    FLAT_ERROR(f, x->chain, x->span,
               "this gradient of a gradient makes more than %d values: each order has about three times those of "
               "the one before; write the derivative of a lower order by hand",
               MAX_HIGHER_NODES);
}

NodeId inner_grad(Flat *f, const FExpr *x, NodeId of, NodeId held)
{
    Module *m = f->m;
    const Symbol *s = x->args[1]->source;
    bool tensor = s->tensor >= 0 &&
                  (s->kind == SYM_INPUT || s->kind == SYM_PARAM || (s->kind == SYM_STATE && !s->is_array));
    Request r = { .f = f, .x = x, .held = held, .name = name_of_value(m, of) };
    r.inner = (DiffInner){ of, tensor ? s->tensor : -1, tensor ? -1 : s->node, name_of, &r };
    const IxExpr **map = arena_alloc(m->arena, sizeof *map * (size_t)(x->args[1]->nmap + s->nids + 1));
    r.nmap = tensor ? x->args[1]->nmap : s->nids;
    for (int i = 0; i < r.nmap; i++)
        map[i] = i < x->args[1]->nmap ? x->args[1]->map[i] : ix_index(m, s->ids[i]);
    r.map = map;
    Diff *diff = diff_inner(m, &r.inner);
    if (!diff_reaches(diff, of)) {
        diag(f->c, DIAG_WARNING, x->span, "this gradient is zero: what is differentiated does not depend on %s",
             variable_name(&r));
        if (x->chain)
            diag_chain(f->c, x->chain);
        return node_const(m, 0);
    }
    bool ok = held_is_right(&r);
    for (int i = 0; i < at(m, of)->naxes && ok; i++)
        if (!is_bound(x, at(m, of)->axes[i]))
            ok = one_place_each(&r, diff, at(m, of)->axes[i]);
    if (!ok)
        return node_const(m, 0);
    const IndexId *axes;
    if (held >= 0 && mutate("held-stopped"))
        held = node_map1(m, OP_STOP, held);
    Sweep made = { .first = m->nodes.len };
    NodeId value = diff_inner_value(diff, held < 0 ? node_const(m, 1) : held, &axes);
    made.end = m->nodes.len;
    limit_order(f, x, of, made);
    return read_gradient(&r, value, axes);
}
