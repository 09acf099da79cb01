/* affine.c: is a step linear in some of its states? In: a module of one step. Out: whether their next values are affine in
 * what they were before: sums of them, weighted by what depends on inputs, params, the step and other states alone. By
 * the form of the expressions, so that h + tanh(0 * h) is not. */
#include "ir.h"

typedef enum { FREE, AFFINE, CURVED } Degree;

static Degree most(Degree a, Degree b)
{
    return a > b ? a : b;
}

/* Of what is affine or free only where the argument is free. */
static Degree bent(Degree a)
{
    return a == FREE ? FREE : CURVED;
}

static Degree degree_of_map(const Node *n, const unsigned char *of)
{
    Degree a = of[n->args[0]], b = n->nargs > 1 ? of[n->args[1]] : FREE, all = FREE;
    for (int k = 0; k < n->nargs; k++)
        all = most(all, of[n->args[k]]);
    switch (n->op) {
    case OP_NEG: case OP_ADD: case OP_SUB: case OP_REAL: case OP_HELD: case OP_STOP: return all;
    case OP_MUL: return a == FREE || b == FREE ? all : CURVED;
    case OP_DIV: return most(a, bent(b));
    case OP_SELECT: return most(bent(a), most(b, of[n->args[2]]));
    default: return bent(all);
    }
}

static Degree degree_of(const Node *n, const unsigned char *of, const TensorId *states, int nstates)
{
    switch (n->kind) {
    case N_LOAD:
        for (int i = 0; i < nstates; i++)
            if (states[i] == n->tensor)
                return AFFINE;
        return FREE;
    case N_ARRAY: case N_VIEW: return of[n->args[0]];
    case N_REDUCE: return n->reduce == R_SUM ? of[n->args[0]] : bent(of[n->args[0]]);
    case N_MAP: return degree_of_map(n, of);
    default: return FREE;
    }
}

bool ir_is_affine(const Module *m, const TensorId *states, int nstates)
{
    unsigned char *of = arena_alloc(m->arena, (size_t)m->nodes.len + 1);
    for (NodeId id = 0; id < m->nodes.len; id++)
        of[id] = (unsigned char)degree_of(&m->nodes.data[id], of, states, nstates);
    for (int i = 0; i < nstates; i++)
        if (of[m->roots.data[states[i]].next] == CURVED)
            return false;
    return true;
}
