/* copies.c: axes of copies. In comes a module without its adjoint. Out goes the same where a definition of
 * which every read stands at a constant place of an axis (`kn[h,0,j]` and `kn[h,1,j]`, as `repeat` leaves
 * them) is one definition for each of these places, as it would be if each had a name of its own.
 * Guaranteed: values are the same; products of params with what each sequence has stay whole, since one
 * product over all places is cheaper than one for each, and so do rows that are normalised along the axis.
 * */
#include "conditions.h"
#include "copies.h"
#include "marks.h"
#include "products.h"
#include "rewrite.h"

/* Of an axis: as many copies as `repeat` may well have made, and no more. */
enum { MOST_PLACES = 64 };

/* What is known of an axis of an array: the places that were read of it. */
typedef struct Axis {
    bool varies;
    int count;
    const Poly *place[MOST_PLACES];
} Axis;
typedef struct Copies {
    Module *m;
    Axis **axes; /* per array that is read, one per axis; else NULL */
    int *split; /* per node: 1 + the axis that is taken apart, or 0 */
} Copies;

static const Node *at(const Module *m, NodeId id)
{
    return &m->nodes.data[id];
}

static Axis *axes_of(Copies *c, NodeId array)
{
    if (!c->axes[array])
        c->axes[array] = arena_alloc(c->m->arena, sizeof **c->axes * (size_t)(at(c->m, array)->naxes + 1));
    return c->axes[array];
}

/* All of it is read, as one array. */
static void keep_whole(Copies *c, NodeId id)
{
    for (int i = 0; at(c->m, id)->kind == N_ARRAY && i < at(c->m, id)->naxes; i++)
        axes_of(c, id)[i].varies = true;
}

static void add_place(Axis *a, const Poly *place)
{
    for (int i = 0; i < a->count; i++)
        if (a->place[i] == place)
            return;
    if (a->count == MOST_PLACES)
        a->varies = true;
    else
        a->place[a->count++] = place;
}

static void note_view(Copies *c, const Node *view)
{
    NodeId array = view->args[0];
    if (view->step)
        keep_whole(c, array); /* a history has it as it is */
    for (int i = 0; i < view->nmap && !view->step; i++) {
        Axis *a = &axes_of(c, array)[i];
        if (view->map[i]->nterms)
            a->varies = true;
        else
            add_place(a, view->map[i]->offset);
    }
}

static bool has_axis(const Node *n, IndexId i)
{
    for (int k = 0; k < n->naxes; k++)
        if (n->axes[k] == i)
            return true;
    return false;
}

/* Does a part of the term that is each sequence's own vary over the index? Then the places share no vector,
 * and their products are apart as they are. */
static bool own_varies(const Module *m, NodeId id, IndexId i)
{
    const Node *n = at(m, id);
    if (!has_axis(n, i) || !(n->dep & (DEP_BATCH | DEP_TIME)))
        return false;
    if (n->kind != N_MAP || n->op == OP_SELECT)
        return true;
    for (int k = 0; k < n->nargs; k++)
        if (own_varies(m, n->args[k], i))
            return true;
    return false;
}

/* Is it a sum that one product of a param may compute, with rows along the index? */
static bool multiplies(const Module *m, const Node *sum, IndexId i)
{
    bool long_enough = false;
    if (sum->kind != N_REDUCE || sum->reduce != R_SUM || !has_axis(sum, i) || !(sum->dep & DEP_PARAM) ||
        !(sum->dep & (DEP_BATCH | DEP_TIME)))
        return false;
    for (int k = 0; k < sum->nbound; k++) {
        const Poly *e = sum->bound[k] < IX_FIRST ? NULL : m->indices.data[sum->bound[k]].extent;
        long_enough |= !e || !e->is_const || e->value >= LEAST_PRODUCT;
    }
    return long_enough && !own_varies(m, sum->args[0], i);
}

/* Is it a sum, or the like, along the whole axis, which is the same for all of its places, as softmax has
 * one? */
static bool sums_along(const Module *m, const Node *n, IndexId i)
{
    bool along = false;
    for (int k = 0; n->kind == N_REDUCE && k < n->nbound; k++)
        along |= n->bound[k] >= IX_FIRST && m->indices.data[n->bound[k]].extent == m->indices.data[i].extent;
    return along && !has_axis(n, i);
}

/* Must the axis stay? Where a product has it, what is a row along it, or what has an adjoint of its own. */
static bool must_stay(const Module *m, NodeId id, IndexId i, Marks *seen)
{
    const Node *n = at(m, id);
    if (!marks_first(seen, id))
        return false;
    if (n->kind == N_ARRAY || n->kind == N_VIEW) {
        const Node *array = n->kind == N_VIEW ? at(m, n->args[0]) : n;
        return !has_axis(n, i) && sums_along(m, at(m, array->args[0]), i);
    }
    if (multiplies(m, n, i) || sums_along(m, n, i) || (n->kind == N_MAP && n->op == OP_OVERRIDE))
        return true;
    for (int k = 0; k < n->nargs; k++)
        if (must_stay(m, n->args[k], i, seen))
            return true;
    return false;
}

/* The first axis of an array of which only certain places are read; -1: there is none. */
static int axis_to_split(Copies *c, NodeId array)
{
    const Node a = *at(c->m, array);
    for (int i = 0; i < a.naxes; i++) {
        Marks *seen = marks_begin(c->m);
        bool stays = c->axes[array][i].varies || must_stay(c->m, a.args[0], a.axes[i], seen);
        marks_end(seen);
        if (!stays)
            return i;
    }
    return -1;
}

static void visit(Copies *c, NodeId id, Marks *seen)
{
    const Node n = *at(c->m, id);
    if (!marks_first(seen, id))
        return;
    if (n.kind == N_VIEW)
        note_view(c, &n);
    for (int i = 0; i < n.nargs; i++) {
        if (n.kind != N_VIEW)
            keep_whole(c, n.args[i]);
        visit(c, n.args[i], seen);
    }
}

static bool find_copies(Copies *c)
{
    Module *m = c->m;
    int n = m->nodes.len;
    bool any = false;
    c->axes = arena_alloc(m->arena, sizeof(Axis *) * (size_t)(n + 1));
    c->split = arena_alloc(m->arena, sizeof *c->split * (size_t)(n + 1));
    Marks *seen = marks_begin(m);
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int k = 0; k < ROOT_COUNT; k++) {
            NodeId root = m->roots.data[t].of[k];
            if (root < 0)
                continue;
            keep_whole(c, root);
            visit(c, root, seen);
        }
    marks_end(seen);
    for (NodeId id = 0; id < n; id++) {
        c->split[id] = c->axes[id] ? 1 + axis_to_split(c, id) : 0;
        any |= c->split[id] > 0;
    }
    return any;
}

/* The array at a place of one of its axes. */
static NodeId copy_at(Module *m, NodeId array, int axis, const IxExpr *place)
{
    const Node a = *at(m, array);
    IndexId *axes = arena_alloc(m->arena, sizeof *axes * (size_t)(a.naxes + 1));
    int n = 0;
    for (int i = 0; i < a.naxes; i++)
        if (i != axis)
            axes[n++] = a.axes[i];
    const char *name = a.name && place->offset->is_const
                           ? intern_f(m->c, "%s_%lld", a.name, (long long)place->offset->value)
                           : a.name;
    NodeId body = cases_taken(m, node_subst(m, a.args[0], &a.axes[axis], &place, 1));
    return node_array(m, body, axes, n, name, a.span);
}

static NodeId hook_copies(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    Module *m = r->m;
    const int *split = r->data;
    (void)whole;
    const Node view = *at(m, old);
    if (old >= r->n || view.kind != N_VIEW || !split[view.args[0]])
        return rebuilt;
    int axis = split[view.args[0]] - 1, n = 0;
    const IxExpr **map = arena_alloc(m->arena, sizeof *map * (size_t)(view.nmap + 1));
    for (int i = 0; i < view.nmap; i++)
        if (i != axis)
            map[n++] = view.map[i];
    return node_view(m, copy_at(m, r->image[view.args[0]], axis, view.map[axis]), map, n);
}

/* What a copy reads may now be read at certain places only, too. */
void split_copies(Module *m)
{
    Copies c = { .m = m };
    while (find_copies(&c)) {
        Rewrite r = { .m = m, .hook = hook_copies, .data = c.split };
        rewrite_roots(&r);
    }
    module_at(m, m->span, NULL);
}
