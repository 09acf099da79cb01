/* folded.c: factors that params make, in the matrix of the product that they multiply. In comes a module
 * without its adjoint in which sums are products of a param and one value (products.c). Out goes the same
 * where `g[i] * sum[j] R[i,j] * h[j]` is a product with the matrix `g[i] * R[i,j]`, which is made once in a
 * call: in front of the product the factor would be multiplied in each step, and its gradient would need what
 * the product gave there. So it is with quotients, and where the product has a name that nothing else reads.
 * Guaranteed: values are the same but for the order of their roundings, where no factor is infinite; a factor
 * with an axis that the matrix has not stays, as does one of each sequence or step, and a constant. */
#include <string.h>

#include "factors.h"
#include "folded.h"
#include "products.h"
#include "rewrite.h"

static const Node *at(const Module *m, NodeId id)
{
    return &m->nodes.data[id];
}

typedef struct Pass {
    int *uses; /* of each node of before: arguments and roots that it is */
    bool *inner; /* likewise: is it a factor of another one's factors? */
    Vec(bool) alone; /* of each node of the module: is it read at one place? */
} Pass;

/* ---- what is read at one place ---- */

static void count_uses(const Module *m, Pass *s, NodeId id, bool *seen)
{
    if (id < 0)
        return;
    s->uses[id]++;
    if (seen[id])
        return;
    seen[id] = true;
    for (int i = 0; i < at(m, id)->nargs; i++)
        count_uses(m, s, at(m, id)->args[i], seen);
}

static bool multiplies(const Node *n)
{
    return n->kind == N_MAP && n->type == TY_REAL && (n->op == OP_MUL || n->op == OP_DIV);
}

/* What stands in a product, by names that nothing else reads: its factors are those of the outermost one. */
static void mark_inner(const Module *m, Pass *s, NodeId outer)
{
    const Node *n = at(m, outer);
    for (int i = 0; i < (n->op == OP_DIV ? 1 : 2); i++) {
        NodeId id = n->args[i];
        while (s->uses[id] == 1 && !at(m, id)->step &&
               (at(m, id)->kind == N_ARRAY || at(m, id)->kind == N_VIEW ||
                (at(m, id)->kind == N_MAP && at(m, id)->op == OP_NEG)))
            id = at(m, id)->args[0];
        s->inner[id] |= s->uses[id] == 1 && multiplies(at(m, id));
    }
}

static void set_alone(Module *m, Pass *s, NodeId id, bool alone)
{
    while (s->alone.len <= id)
        vec_push(m->arena, &s->alone, false);
    s->alone.data[id] = alone;
}

static bool is_alone(const Pass *s, NodeId id)
{
    return id < s->alone.len && s->alone.data[id];
}

/* ---- factors of a product ---- */

/* Is it, by factors and names that nothing else reads, one product of a matrix and a vector? */
static bool holds_product(const Module *m, const Pass *s, NodeId id)
{
    const Node *n = at(m, id);
    if (!is_alone(s, id) || n->step || n->type != TY_REAL)
        return false;
    if (n->kind == N_ARRAY || n->kind == N_VIEW || (n->kind == N_MAP && n->op == OP_NEG))
        return holds_product(m, s, n->args[0]);
    if (multiplies(n))
        return holds_product(m, s, n->args[0]) != (n->op == OP_MUL && holds_product(m, s, n->args[1]));
    if (n->kind != N_REDUCE || n->reduce != R_SUM || !is_plain_product(m, n))
        return false;
    const Node *term = at(m, n->args[0]);
    return is_shared_matrix(m, term->args[0]) || is_shared_matrix(m, term->args[1]);
}

static bool is_product(const Module *m, NodeId id)
{
    const Node *n = at(m, id);
    return n->kind == N_REDUCE && n->reduce == R_SUM && is_plain_product(m, n);
}

/* The value with its names written out down to its one product, which is a factor of what comes out. */
static NodeId written_out(Module *m, const Pass *s, NodeId id)
{
    const Node n = *at(m, id);
    if (n.kind == N_ARRAY)
        return written_out(m, s, n.args[0]);
    if (n.kind == N_VIEW) {
        const Node array = *at(m, n.args[0]);
        return node_subst(m, written_out(m, s, array.args[0]), array.axes, n.map, array.naxes);
    }
    if (n.kind != N_MAP)
        return id;
    NodeId args[2] = { n.args[0], n.args[n.nargs - 1] };
    for (int i = 0; i < n.nargs && i < 2; i++)
        if (holds_product(m, s, args[i]))
            args[i] = written_out(m, s, args[i]);
    return n.nargs == 1 ? node_map1(m, n.op, args[0]) : node_map2(m, n.op, args[0], args[1]);
}

/* Is the value made of params, and has it no axis that the matrix has not? */
static bool belongs_in(const Module *m, NodeId value, NodeId matrix)
{
    const Node *n = at(m, value), *of = at(m, matrix);
    if ((n->dep & (DEP_BATCH | DEP_TIME | DEP_INPUT | DEP_STATE)) || !(n->dep & DEP_PARAM))
        return false;
    for (int i = 0; i < n->naxes; i++)
        if (!is_among(n->axes[i], of->axes, of->naxes))
            return false;
    return true;
}

/* ---- the matrix ---- */

/* As an array in the order heads, rows, and what is summed over. */
static NodeId made_matrix(Module *m, NodeId value, NodeId vector, const Node *sum, const char *name)
{
    const Node n = *at(m, value), v = *at(m, vector);
    IndexId *axes = arena_alloc(m->arena, sizeof *axes * (size_t)(n.naxes + 1));
    int count = 0;
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < n.naxes; i++) {
            bool summed = is_among(n.axes[i], sum->bound, sum->nbound);
            bool common = is_among(n.axes[i], v.axes, v.naxes);
            if ((summed ? 2 : common ? 0 : 1) == turn)
                axes[count++] = n.axes[i];
        }
    return node_array(m, value, axes, count, name, sum->span);
}

static const char *scaled_name(const Module *m, NodeId matrix)
{
    const Node *n = at(m, matrix);
    const char *of = n->kind == N_LOAD ? m->tensors.data[n->tensor].name : n->name;
    return of ? intern_f(m->c, "%s_scaled", of) : NULL;
}

static void note(Module *m, NodeId matrix)
{
    const Node *n = at(m, matrix);
    const Poly *elements = poly_const(m, 1);
    for (int i = 0; i < m->folded.len; i++)
        if (m->folded.data[i] == matrix)
            return;
    for (int i = 0; i < n->naxes; i++)
        elements = poly_mul(m, elements, m->indices.data[n->axes[i]].extent);
    m->laid = poly_add(m, m->laid, elements);
    vec_push(m->arena, &m->folded, matrix);
}

/* The value with the factors of its one product in that one's matrix; itself: there are none. */
static NodeId folded(Module *m, Pass *s, NodeId id)
{
    const Factors f = factors_of(m, written_out(m, s, id), false);
    int which = 0;
    while (which < f.all.len && !is_product(m, f.all.data[which].value))
        which++;
    if (which == f.all.len)
        return id;
    const Node sum = *at(m, f.all.data[which].value), term = *at(m, sum.args[0]);
    const int side = is_shared_matrix(m, term.args[0]) ? 0 : 1;
    const NodeId matrix = term.args[side], vector = term.args[1 - side];
    NodeId scaled = matrix, out = -1;
    for (int under = 0; under < 2; under++)
        for (int i = 0; i < f.all.len; i++)
            if (i != which && f.all.data[i].divides == (under == 1) &&
                belongs_in(m, f.all.data[i].value, matrix))
                scaled = times_factor(m, scaled, f.all.data[i]);
    if (scaled == matrix)
        return id;
    module_at(m, sum.span, sum.chain);
    scaled = made_matrix(m, scaled, vector, &sum, scaled_name(m, matrix));
    note(m, scaled);
    const NodeId product =
        node_reduce(m, R_SUM, node_map2(m, OP_MUL, scaled, vector), sum.bound, sum.nbound);
    for (int under = 0; under < 2; under++)
        for (int i = 0; i < f.all.len; i++)
            if (f.all.data[i].divides == (under == 1) && !belongs_in(m, f.all.data[i].value, matrix))
                out = i == which ? times_factor(m, out, (Factor){ product, false })
                                 : times_factor(m, out, f.all.data[i]);
    return f.negative ? node_map1(m, OP_NEG, out) : out;
}

static NodeId hook_factors(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    Module *m = r->m;
    Pass *s = r->data;
    const bool alone = old < r->n && s->uses[old] == 1;
    (void)whole;
    if (multiplies(at(m, rebuilt)) && old < r->n && !s->inner[old]) {
        const bool before = is_alone(s, rebuilt);
        set_alone(m, s, rebuilt, true);
        if (holds_product(m, s, rebuilt))
            rebuilt = folded(m, s, rebuilt);
        else
            set_alone(m, s, rebuilt, before);
    }
    set_alone(m, s, rebuilt, alone);
    return rebuilt;
}

void fold_factors(Module *m)
{
    const size_t n = (size_t)m->nodes.len + 1;
    Pass s = { .uses = arena_alloc(m->arena, sizeof *s.uses * n), .inner = arena_alloc(m->arena, n) };
    bool *seen = arena_alloc(m->arena, n);
    m->laid = poly_const(m, 0);
    if (!m->fold)
        return;
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int k = 0; k < ROOT_COUNT; k++)
            count_uses(m, &s, m->roots.data[t].of[k], seen);
    for (NodeId id = 0; id < m->nodes.len; id++)
        if (seen[id] && multiplies(at(m, id)))
            mark_inner(m, &s, id);
    Rewrite r = { .m = m, .hook = hook_factors, .data = &s };
    rewrite_roots(&r);
    module_at(m, m->span, NULL);
}
