/* tile_copies.c: outs with more axes than the chip has. In come the walk's outs; out go the parts that a
 * step stores of them: an out is one part, unless it has an axis of bound size that is no side of the
 * states beside others that it has on the chip. Of such an axis (the copies of `k[H,2,N]`, whose gradient
 * has them too) each place is a part, in which the cases that the place decides are taken, and whose
 * elements lie at that place of the out's row. */
#include "ir/conditions.h"
#include "ir/marks.h"
#include "tile.h"

/* Of one out. */
enum { MOST_PARTS = 32 };

static int64_t size_of(const Tile *t, IndexId i)
{
    const Poly *e = t->m->indices.data[i].extent;
    return e->is_const ? e->value : 0;
}

static bool on_chip(const Tile *t, IndexId i)
{
    bool side = !size_of(t, i) || size_of(t, i) == t->rows || size_of(t, i) == t->cols;
    for (int p = 0; p < t->npar; p++)
        side |= t->m->indices.data[i].extent == t->par_extent[p];
    return side;
}

/* Is the index compared with a place, outside of other arrays? */
static bool has_cases(const Tile *t, NodeId id, IndexId i, Marks *seen)
{
    const Node *n = &t->m->nodes.data[id];
    if (!marks_first(seen, id) || (n->kind != N_MAP && n->kind != N_REDUCE))
        return false;
    for (int k = 0; k < n->nargs; k++) {
        const Node *x = &t->m->nodes.data[n->args[k]];
        IndexId which;
        if (n->op == OP_EQ && n->kind == N_MAP && x->kind == N_INDEX && ix_is_index(x->ix, &which) &&
            which == i)
            return true;
        if (has_cases(t, n->args[k], i, seen))
            return true;
    }
    return false;
}

static bool is_parallel(const Tile *t, IndexId i)
{
    for (int p = 0; p < t->npar; p++)
        if (t->m->indices.data[i].extent == t->par_extent[p])
            return true;
    return false;
}

static bool varies(const Node *n, IndexId i)
{
    for (int k = 0; k < n->naxes; k++)
        if (n->axes[k] == i)
            return true;
    return false;
}

/* Does a value of the walk vary over the index? */
static bool walks_along(const Tile *t, NodeId id, IndexId i, Marks *seen)
{
    const Node *n = &t->m->nodes.data[id];
    if (!marks_first(seen, id))
        return false;
    if (n->kind == N_LOAD || n->kind == N_ARRAY || n->kind == N_VIEW)
        return (n->dep & (DEP_STATE | DEP_COTANGENT)) && varies(n, i);
    for (int k = 0; k < n->nargs; k++)
        if (walks_along(t, n->args[k], i, seen))
            return true;
    return false;
}

/* Is there a sum whose terms have more axes than the chip, this one among them, though what the walk has
 * does not have it? */
static bool is_crowded(const Tile *t, NodeId id, IndexId i, Marks *seen)
{
    const Node *n = &t->m->nodes.data[id];
    int bound = 0;
    if (!marks_first(seen, id) || (n->kind != N_MAP && n->kind != N_REDUCE))
        return false;
    const Node *term = &t->m->nodes.data[n->args[0]];
    for (int k = 0; n->kind == N_REDUCE && k < term->naxes; k++)
        bound += term->axes[k] >= IX_FIRST && size_of(t, term->axes[k]) && !is_parallel(t, term->axes[k]);
    if (bound > 2 && varies(term, i)) {
        Marks *walked = marks_begin(t->m);
        bool walks = walks_along(t, n->args[0], i, walked);
        marks_end(walked);
        if (!walks)
            return true;
    }
    for (int k = 0; k < n->nargs; k++)
        if (is_crowded(t, n->args[k], i, seen))
            return true;
    return false;
}

/* Which axes are taken apart; -> how many parts that makes. */
static int64_t copied_axes(const Tile *t, const Node *out, bool *apart)
{
    int bound = 0, sides = 0, left = 0;
    int64_t parts = 1;
    for (int i = 0; i < out->naxes; i++) {
        bound += size_of(t, out->axes[i]) > 0;
        sides += size_of(t, out->axes[i]) > 0 && on_chip(t, out->axes[i]);
    }
    left = bound;
    for (int i = 0; i < out->naxes && left > 1; i++) {
        Marks *seen = marks_begin(t->m), *looked = marks_begin(t->m);
        bool chip = on_chip(t, out->axes[i]) && !is_crowded(t, out->args[0], out->axes[i], looked);
        apart[i] = size_of(t, out->axes[i]) > 0 &&
                   (!chip || (sides == bound && has_cases(t, out->args[0], out->axes[i], seen)));
        marks_end(seen);
        marks_end(looked);
        left -= apart[i];
        parts = apart[i] && parts <= MOST_PARTS ? parts * size_of(t, out->axes[i]) : parts;
    }
    return parts;
}

static void add_part(Tile *t, NodeId original, const bool *apart, int64_t number)
{
    Module *m = t->m;
    const Node out = m->nodes.data[original];
    OutPart part = { .original = original,
                     .place = arena_alloc(t->arena, sizeof *part.place * (size_t)(out.naxes + 1)) };
    IndexId axes[TILE_MAX_AXES], from[TILE_MAX_AXES];
    const IxExpr *to[TILE_MAX_AXES];
    int naxes = 0, n = 0;
    for (int i = out.naxes - 1; i >= 0; i--) {
        if (!apart[i])
            continue;
        part.place[i] = ix_const(m, poly_const(m, number % size_of(t, out.axes[i])));
        number /= size_of(t, out.axes[i]);
        from[n] = out.axes[i];
        to[n++] = part.place[i];
    }
    for (int i = 0; i < out.naxes; i++)
        if (!apart[i])
            axes[naxes++] = out.axes[i];
    module_at(m, out.span, out.chain);
    NodeId body = cases_taken(m, node_subst(m, out.args[0], from, to, n));
    part.array = node_array(m, body, axes, naxes, out.name, out.span);
    module_at(m, m->span, NULL);
    vec_push(t->arena, &t->parts, part);
}

void tile_find_parts(Tile *t)
{
    for (int k = 0; k < t->w->outs.len; k++) {
        NodeId id = t->w->outs.data[k];
        const Node out = t->m->nodes.data[id];
        bool apart[TILE_MAX_AXES] = { false };
        int64_t parts = out.naxes > TILE_MAX_AXES ? 1 : copied_axes(t, &out, apart);
        if (parts > 1 && parts <= MOST_PARTS) {
            for (int64_t i = 0; i < parts; i++)
                add_part(t, id, apart, i);
        } else {
            OutPart whole = { .original = id, .array = id };
            vec_push(t->arena, &t->parts, whole);
        }
    }
}
