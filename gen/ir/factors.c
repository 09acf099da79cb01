/* factors.c: a product as its factors. In comes a value, out go what it multiplies and divides by, through
 * products, quotients, negatives and perhaps conditions, however deep these stand in one another. */
#include "factors.h"

static const Node *at(const Module *m, NodeId id)
{
    return &m->nodes.data[id];
}

static bool is_zero(const Node *n)
{
    return n->kind == N_CONST && n->value == 0;
}

static void add(const Module *m, NodeId id, bool divides, bool guards, Factors *out)
{
    const Node *n = at(m, id);
    bool real = n->kind == N_MAP && n->type == TY_REAL;
    if (real && (n->op == OP_MUL || n->op == OP_DIV)) {
        add(m, n->args[0], divides, guards, out);
        add(m, n->args[1], divides != (n->op == OP_DIV), guards, out);
    } else if (real && n->op == OP_NEG) {
        out->negative = !out->negative;
        add(m, n->args[0], divides, guards, out);
    } else if (real && guards && !divides && n->op == OP_SELECT && is_zero(at(m, n->args[2]))) {
        vec_push(m->arena, &out->guards, ((Guard){ n->args[0], n->args[1] }));
        add(m, n->args[1], divides, guards, out);
    } else {
        vec_push(m->arena, &out->all, ((Factor){ id, divides }));
    }
}

Factors factors_of(const Module *m, NodeId value, bool guards)
{
    Factors f = { .negative = false };
    add(m, value, false, guards, &f);
    return f;
}

NodeId times_factor(Module *m, NodeId product, Factor f)
{
    if (product < 0 && !f.divides)
        return f.value;
    return node_map2(m, f.divides ? OP_DIV : OP_MUL, product < 0 ? node_const(m, 1) : product, f.value);
}
