/* plan_rounded.c: which arrays lie in memory in the storage type because the spec rounds them to it (`: dtype`), and how
 * products take them. In comes a module whose readers of such arrays round what they read (rounded.c). */
#include "ir/rounded.h"
#include "plan_pass.h"

/* The value of an array, within the guards of what it reads (round_within_guards). */
static NodeId guarded_value(const Plan *p, NodeId array)
{
    NodeId id = at(p, array)->args[0];
    while (at(p, id)->kind == N_MAP && at(p, id)->op == OP_SELECT && at(p, at(p, id)->args[2])->kind == N_CONST &&
           at(p, at(p, id)->args[2])->value == 0)
        id = at(p, id)->args[1];
    return id;
}

static bool says_rounded(const Plan *p, NodeId array)
{
    return is_rounding(p->m, guarded_value(p, array)) && may_lie_rounded(p->m, array);
}

/* A product of operands in another type cannot be written in this one. */
static bool product_of_other_type(Plan *p, NodeId array)
{
    Gemm g;
    NodeId factor[2];
    Read a;
    return contraction_of(p, array, false, &g, factor) && operand_read(p, factor[0], &a) && type_of_read(p, &a) != p->dtype;
}

void find_rounded(Plan *p)
{
    if (p->dtype != DT_BF16 && p->dtype != DT_F16)
        return;
    Readers r = readers_of(p->m);
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (r.seen[id] && at(p, id)->kind == N_ARRAY)
            p->narrow[id] = says_rounded(p, id) || (!r.raw[id] && may_lie_rounded(p->m, id));
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (p->narrow[id] && !says_rounded(p, id) && product_of_other_type(p, id))
            p->narrow[id] = false;
}

bool operand_read(const Plan *p, NodeId factor, Read *out)
{
    if (!is_rounding(p->m, factor))
        return plan_resolve(p, factor, out);
    return plan_resolve(p, at(p, factor)->args[0], out) && !out->is_tensor && !out->step &&
           (!p->operands_copied || p->narrow[out->id]);
}

bool operand_is_rounded(const Plan *p, NodeId factor, const Read *r)
{
    return is_rounding(p->m, factor) || (!r->is_tensor && says_rounded(p, r->id));
}

/* Products go from memory to memory; other kernels may have what they write at hand as well, unrounded. */
static bool product_writes(const Program *pr, NodeId id)
{
    int group = pr->group[id];
    return group < 0 ? pr->phase[id] != PHASE_DURING : pr->groups.data[group].kind == G_GEMM;
}

void find_written_rounded(Plan *p)
{
    const Program *f = &p->program[FORWARD], *b = &p->program[BACKWARD];
    p->from_product = plan_alloc(p, 1, p->n_nodes);
    for (NodeId id = 0; id < p->n_nodes; id++)
        p->from_product[id] = p->narrow[id] && f->group[id] >= 0 && product_writes(f, id) && product_writes(b, id);
}
