/* few.c: sums of a few values beside the walks, as those over a prefix are. In comes a module that was cut,
 * with its adjoint; out goes the same one with each sum or maximum over an index of a few places as its terms
 * one by one, so that what is pointwise around it is one kernel with it. Sums over sequences and steps
 * stay. */
#include "cut.h"
#include "ir/rewrite.h"

static NodeId hook(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    enum { FEW = 8 };
    Module *m = r->m;
    const Node n = m->nodes.data[rebuilt];
    NodeId out = -1;
    (void)old;
    (void)whole;
    if (n.kind != N_REDUCE || (n.reduce != R_SUM && n.reduce != R_MAX) || n.nbound != 1 ||
        n.bound[0] < IX_FIRST || ir_gathers(m, rebuilt) || !(n.dep & DEP_TIME))
        return rebuilt;
    const Poly *terms = m->indices.data[n.bound[0]].extent;
    if (!terms->is_const || terms->value > FEW)
        return rebuilt;
    module_at(m, n.span, n.chain);
    for (int64_t i = 0; i < terms->value; i++) {
        const IxExpr *place = ix_const(m, poly_const(m, i));
        NodeId term = node_subst(m, n.args[0], n.bound, &place, 1);
        out = out < 0 ? term : node_map2(m, n.reduce == R_SUM ? OP_ADD : OP_MAX, out, term);
    }
    return out;
}

/* Only where there are places that are no steps: elsewhere that was not measured. */
void attention_write_out(Module *m, const AttentionCuts *cuts)
{
    bool others = false;
    for (int i = 0; i < cuts->len; i++)
        others |= cuts->data[i].rest >= 0;
    Rewrite r = { .m = m, .hook = hook };
    if (others)
        rewrite_roots(&r);
    module_at(m, m->span, NULL);
}
