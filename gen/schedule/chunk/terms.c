/* terms.c: a value as a sum of terms, each linear in one element of a component's states or free of them.
 * In comes a value of the step; out go the terms, or a refusal that names the operator which is not linear
 * and its place. Guaranteed: the value is the sum of the terms, whatever the states are; nothing is
 * concluded from derivatives. */
#include "ir/ops.h"
#include "terms.h"

static Node at(const Proof *p, NodeId id)
{
    return p->m->nodes.data[id];
}

bool proof_refuse(Proof *p, NodeId where, const char *fmt, ...)
{
    va_list ap;
    if (p->why)
        return false;
    va_start(ap, fmt);
    p->why = arena_text(p->m->arena, fmt, ap);
    va_end(ap);
    p->at = at(p, where).span;
    return false;
}

const char *proof_states(const Proof *p)
{
    return p->nstates > 1 ? "the states" : intern_f(p->m->c, "`%s`", p->m->tensors.data[p->states[0]].name);
}

NodeId proof_subst(Proof *p, NodeId of, NodeId value, const IndexId *from, const IxExpr *const *to, int n)
{
    Node x = at(p, of);
    module_at(p->m, x.span, x.chain);
    return node_subst(p->m, value, from, to, n);
}

int proof_state(const Proof *p, TensorId t)
{
    for (int i = 0; i < p->nstates; i++)
        if (p->states[i] == t)
            return i;
    return -1;
}

/* Arguments stand before their uses, so one pass over what is new tells. */
bool proof_fed(Proof *p, NodeId id)
{
    while (p->fed.len <= id) {
        Node n = at(p, p->fed.len);
        bool fed = n.kind == N_LOAD && proof_state(p, n.tensor) >= 0;
        for (int i = 0; i < n.nargs; i++)
            fed |= p->fed.data[n.args[i]];
        vec_push(p->m->arena, &p->fed, fed);
    }
    return p->fed.data[id];
}

bool varies_over(const Module *m, NodeId id, IndexId i)
{
    const Node *n = &m->nodes.data[id];
    for (int k = 0; k < n->naxes; k++)
        if (n->axes[k] == i)
            return true;
    return false;
}

NodeId proof_summand(Proof *p, NodeId sum, IndexList *bound)
{
    Module *m = p->m;
    Node n = at(p, sum);
    const IxExpr **to = arena_alloc(m->arena, sizeof *to * (size_t)(n.nbound + 1));
    for (int i = 0; i < n.nbound; i++) {
        Index x = m->indices.data[n.bound[i]];
        IndexId fresh = module_index(m, x.name, x.extent);
        vec_push(m->arena, bound, fresh);
        to[i] = ix_index(m, fresh);
    }
    return proof_subst(p, sum, n.args[0], n.bound, to, n.nbound);
}

bool term_binds(const Term *t, const IxExpr *place)
{
    IndexId which;
    bool binds = false;
    for (int i = 0; ix_is_index(place, &which) && i < t->bound.len; i++)
        binds |= t->bound.data[i] == which;
    return binds;
}

/* ---- making terms ---- */

static void push_term(Proof *p, Terms *out, Term t)
{
    if (t.coef != 0)
        vec_push(p->m->arena, out, t);
}

static bool is_number(const Proof *p, NodeId id, double *v)
{
    Node n = at(p, id);
    if (n.kind == N_SIZE && n.size->is_const)
        *v = (double)n.size->value;
    else if (n.kind == N_CONST)
        *v = n.value;
    else
        return false;
    return true;
}

/* A value that is free of the states. */
static void free_term(Proof *p, NodeId id, Terms *out)
{
    Term t = { .coef = 1, .state = -1 };
    if (!is_number(p, id, &t.coef)) {
        Factor f = { id, false };
        vec_push(p->m->arena, &t.factors, f);
    }
    push_term(p, out, t);
}

/* Behind the level, or before the step: an element of the state. */
static void element_term(Proof *p, NodeId where, int state, int level, const IxExpr *const *map, Terms *out)
{
    push_term(p, out, (Term){ .coef = 1, .state = state, .level = level, .map = map, .at = where });
}

static void multiply(Proof *p, Terms *terms, NodeId by, bool under)
{
    Factor f = { by, under };
    for (int i = 0; i < terms->len; i++)
        vec_push(p->m->arena, &terms->data[i].factors, f);
}

static void append(Proof *p, Terms *out, const Terms *more, double sign)
{
    for (int i = 0; i < more->len; i++) {
        Term t = more->data[i];
        t.coef *= sign;
        push_term(p, out, t);
    }
}

/* ---- rules ---- */

/* The state, and the number of updates behind which the array is it; -1: the array is none that stands for
 * itself. */
static int level_of(const Proof *p, NodeId array, int *state)
{
    *state = 0;
    for (int i = 0; i < p->known; i++)
        if (p->levels.data[i] == array)
            return i + 1;
    for (int i = 0; i < p->nstates && p->after; i++)
        if (p->m->roots.data[p->states[i]].next == array) {
            *state = i;
            return p->levels.len + 1;
        }
    return -1;
}

static const IxExpr *const *own_map(Module *m, const Node *array)
{
    const IxExpr **map = arena_alloc(m->arena, sizeof *map * (size_t)(array->naxes + 1));
    for (int i = 0; i < array->naxes; i++)
        map[i] = ix_index(m, array->axes[i]);
    return map;
}

static bool terms_of_array(Proof *p, NodeId where, NodeId array, const IxExpr *const *map, Terms *out)
{
    Node a = at(p, array);
    int state, level = level_of(p, array, &state);
    if (level >= 0) {
        element_term(p, where, state, level, map ? map : own_map(p->m, &a), out);
        return true;
    }
    return terms_of(p, map ? proof_subst(p, array, a.args[0], a.axes, map, a.naxes) : a.args[0], out);
}

static bool terms_of_product(Proof *p, NodeId id, const Node *n, Terms *out)
{
    int which = proof_fed(p, n->args[0]) ? 0 : 1;
    if (n->op == OP_DIV && proof_fed(p, n->args[1]))
        return proof_refuse(p, id, "a quotient whose denominator depends on %s", proof_states(p));
    if (proof_fed(p, n->args[0]) && proof_fed(p, n->args[1]))
        return proof_refuse(p, id, "a product of two values that depend on %s", proof_states(p));
    if (!terms_of(p, n->args[which], out))
        return false;
    multiply(p, out, n->args[1 - which], n->op == OP_DIV);
    return true;
}

static bool terms_of_sum(Proof *p, const Node *n, Terms *out)
{
    Terms b = { 0 };
    if (!terms_of(p, n->args[0], out) || !terms_of(p, n->args[1], &b))
        return false;
    append(p, out, &b, n->op == OP_SUB ? -1 : 1);
    return true;
}

/* c ? a : b is a where c is 1, and b where it is not. */
static bool terms_of_select(Proof *p, NodeId id, const Node *n, Terms *out)
{
    Module *m = p->m;
    Terms b = { 0 };
    NodeId one = node_const(m, 1), zero = node_const(m, 0);
    if (proof_fed(p, n->args[0]))
        return proof_refuse(p, id, "a condition on %s", proof_states(p));
    if (!terms_of(p, n->args[1], out) || !terms_of(p, n->args[2], &b))
        return false;
    multiply(p, out, node_select(m, n->args[0], one, zero), false);
    multiply(p, &b, node_select(m, n->args[0], zero, one), false);
    append(p, out, &b, 1);
    return true;
}

static bool terms_of_map(Proof *p, NodeId id, const Node *n, Terms *out)
{
    switch (n->op) {
    case OP_NEG: {
        Terms a = { 0 };
        if (!terms_of(p, n->args[0], &a))
            return false;
        append(p, out, &a, -1);
        return true;
    }
    case OP_HELD: case OP_REAL: return terms_of(p, n->args[0], out);
    case OP_ADD: case OP_SUB: return terms_of_sum(p, n, out);
    case OP_MUL: case OP_DIV: return terms_of_product(p, id, n, out);
    case OP_SELECT: return terms_of_select(p, id, n, out);
    case OP_BF16: case OP_F16:
        return proof_refuse(p, id, "a definition with a type of its own rounds %s", proof_states(p));
    case OP_OVERRIDE: return proof_refuse(p, id, "a fn of %s has an adjoint fn", proof_states(p));
    case OP_LT: case OP_LE: case OP_EQ: case OP_NE: case OP_AND: case OP_OR: case OP_NOT:
        return proof_refuse(p, id, "a condition on %s", proof_states(p));
    case OP_POW: return proof_refuse(p, id, "a power of %s", proof_states(p));
    default: return proof_refuse(p, id, "%s of %s", op_table[n->op].name, proof_states(p));
    }
}

static bool terms_of_reduce(Proof *p, NodeId id, const Node *n, Terms *out)
{
    static const char *const words[] = { "sum", "mean", "max", "min", "product", "softmax" };
    IndexList bound = { 0 };
    if (n->reduce != R_SUM)
        return proof_refuse(p, id, "%s over values of %s", words[n->reduce], proof_states(p));
    for (int i = 0; i < n->nbound; i++)
        if (n->bound[i] < IX_FIRST)
            return proof_refuse(p, id, "a sum over steps or sequences");
    if (!terms_of(p, proof_summand(p, id, &bound), out))
        return false;
    for (int i = 0; i < out->len; i++)
        for (int k = 0; k < bound.len; k++)
            vec_push(p->m->arena, &out->data[i].bound, bound.data[k]);
    return true;
}

bool terms_of(Proof *p, NodeId id, Terms *out)
{
    Node n = at(p, id);
    *out = (Terms){ 0 };
    if (p->why)
        return false;
    if (!proof_fed(p, id)) {
        free_term(p, id, out);
        return true;
    }
    if (--p->left < 0)
        return proof_refuse(p, id, "a step of too many terms");
    module_at(p->m, n.span, n.chain);
    bool ok = false;
    switch (n.kind) {
    case N_LOAD:
        element_term(p, id, proof_state(p, n.tensor), 0, n.map, out);
        return true;
    case N_ARRAY: ok = terms_of_array(p, id, id, NULL, out); break;
    case N_VIEW:
        ok = n.step ? proof_refuse(p, id, "another step of what depends on %s", proof_states(p))
                    : terms_of_array(p, id, n.args[0], n.map, out);
        break;
    case N_MAP: ok = terms_of_map(p, id, &n, out); break;
    case N_REDUCE: ok = terms_of_reduce(p, id, &n, out); break;
    default: break;
    }
    return ok && (out->len <= MAX_TERMS || proof_refuse(p, id, "a step of too many terms"));
}
