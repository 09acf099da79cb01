/* unrolled.c: sums over a few places, written out. In comes a module without its adjoint; out goes the same
 * where `sum[a] exp(e[a,n])`, over two to four places of a, is `exp(e[0,n]) + exp(e[1,n]) + ...`: a term of a
 * pointwise kernel, in place of a kernel that sums up rows, and reads at places that are known, so that
 * definitions of which nothing else is read are one for each place (copies.c). So is a softmax's maximum,
 * which has no gradient. Guaranteed: the same values, but for the order in which terms are added; sums over
 * steps, and of terms that read a param along the index as a product does, stay. */
#include "rewrite.h"
#include "unrolled.h"

enum { MOST_PLACES = 4 };

static const Node *at(const Module *m, NodeId id)
{
    return &m->nodes.data[id];
}

/* What a gradient goes through: not the arguments of `stop`. */
static void mark_differentiated(const Module *m, NodeId id, bool *seen)
{
    if (id < 0 || seen[id])
        return;
    seen[id] = true;
    for (int i = 0; i < at(m, id)->nargs; i++)
        if (at(m, id)->kind != N_MAP || at(m, id)->op != OP_STOP)
            mark_differentiated(m, at(m, id)->args[i], seen);
}

/* Does the expression read a param, or what is made of params alone, at places of the index? */
static bool reads_param_along(const Module *m, NodeId id, IndexId along)
{
    const Node *n = at(m, id);
    if (n->kind == N_LOAD || n->kind == N_VIEW || n->kind == N_ARRAY) {
        bool varies = false;
        for (int i = 0; i < n->naxes; i++)
            varies |= n->axes[i] == along;
        return varies && (n->dep & DEP_PARAM) && !(n->dep & (DEP_BATCH | DEP_TIME | DEP_INPUT | DEP_STATE));
    }
    for (int i = 0; i < n->nargs; i++)
        if (reads_param_along(m, n->args[i], along))
            return true;
    return false;
}

static bool may_unroll(const Module *m, NodeId id, bool differentiated)
{
    const Node *n = at(m, id);
    if (n->kind != N_REDUCE || n->nbound != 1 || n->bound[0] < IX_FIRST || n->type != TY_REAL ||
        !(n->dep & DEP_STATE) || !(n->reduce == R_SUM || (n->reduce == R_MAX && !differentiated)))
        return false;
    const Poly *places = m->indices.data[n->bound[0]].extent;
    return places->is_const && places->value >= 2 && places->value <= MOST_PLACES && !ir_gathers(m, id) &&
           !reads_param_along(m, n->args[0], n->bound[0]);
}

static NodeId hook_sums(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    Module *m = r->m;
    const bool *differentiated = r->data;
    const Node sum = *at(m, rebuilt);
    NodeId out = -1;
    (void)whole;
    if (old >= r->n || sum.kind != N_REDUCE || !may_unroll(m, rebuilt, differentiated[old]))
        return rebuilt;
    module_at(m, sum.span, sum.chain);
    for (int64_t i = 0; i < m->indices.data[sum.bound[0]].extent->value; i++) {
        const IxExpr *place = ix_const(m, poly_const(m, i));
        const NodeId term = node_subst(m, sum.args[0], sum.bound, &place, 1);
        out = out < 0 ? term : node_map2(m, sum.reduce == R_SUM ? OP_ADD : OP_MAX, out, term);
    }
    m->unrolled++;
    return out;
}

void unroll_sums(Module *m)
{
    bool *differentiated = arena_alloc(m->arena, (size_t)m->nodes.len + 1);
    if (!m->unroll)
        return;
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int k = 0; k < ROOT_COUNT; k++)
            mark_differentiated(m, m->roots.data[t].of[k], differentiated);
    Rewrite r = { .m = m, .hook = hook_sums, .data = differentiated };
    rewrite_roots(&r);
    module_at(m, m->span, NULL);
}
