/* spelling.c: how a sum that is no matrix product would have to be written to be one. In comes a planned
 * program and a sum of it; out goes what keeps it from being a product, and the other text. make_products
 * (ir/products.c) has taken what needs no memory for it: what is left is a matrix that is made of a param,
 * such as a part of it. It is proved, not guessed: the other text is built in a copy of the module, and
 * match_gemm takes it. Nothing of the plan is changed. */
#include <string.h>

#include "emit/emit.h"
#include "ir/products.h"
#include "ir/rounded.h"
#include "plan_pass.h"
#include "spelling.h"

/* DEPTH: of what is printed of an expression. LONGEST: characters of it. */
enum { DEPTH = 12, LONGEST = 72, MOST_AXES = 16 };

/* The factors, in a copy of the module, and which of them has to get a name. */
typedef struct Split {
    Module *m;
    Factored f;
    bool names_shared, names_own;
} Split;

/* ---- the product, in a copy of the module ---- */

/* Those that the sum leaves, then those that it is over. */
static void axes_of(const Node *n, const Node *sum, IndexId *axes)
{
    int count = 0;
    for (int bound = 0; bound < 2; bound++)
        for (int i = 0; i < n->naxes; i++) {
            bool is_bound = false;
            for (int k = 0; k < sum->nbound; k++)
                is_bound |= sum->bound[k] == n->axes[i];
            if (is_bound == (bound == 1))
                axes[count++] = n->axes[i];
        }
}

/* The value as it is read, or as one that has a name. */
static Read operand(Module *m, NodeId id, const Node *sum, bool named)
{
    const Node n = m->nodes.data[id];
    if (named) {
        IndexId axes[MOST_AXES];
        axes_of(&n, sum, axes);
        return read_itself(m, node_array(m, id, axes, n.naxes, NULL, n.span));
    }
    if (n.kind == N_LOAD)
        return (Read){ .is_tensor = true, .id = n.tensor, .nmap = n.nmap, .map = n.map };
    if (n.kind == N_VIEW)
        return (Read){ .id = n.args[0], .nmap = n.nmap, .map = n.map };
    return read_itself(m, id);
}

static Layout layout_of(Module *m, const Read *r, const Node *value)
{
    unsigned dep = value->dep & (DEP_BATCH | DEP_TIME);
    return (Layout){ .batched = dep & DEP_BATCH,
                     .timed = dep & DEP_TIME,
                     .pitch = r->is_tensor ? tensor_elements(m, r->id) : array_elements(m, r->id) };
}

static bool too_few(const Poly *p)
{
    return p->is_const && p->value < LEAST_PRODUCT;
}

/* What has no name is taken as if it had one; a plain read stays that. */
static bool is_product(const Plan *p, const Split *s, NodeId sum, bool one_step)
{
    Module *m = s->m;
    const Node r = m->nodes.data[m->nodes.data[sum].args[0]];
    Gemm g;
    Contraction c = { .one_step = one_step };
    c.a = operand(m, s->f.shared, &r, s->names_shared);
    c.b = operand(m, s->f.own, &r, s->names_own);
    c.c = read_itself(m, sum);
    c.lay_a = layout_of(m, &c.a, &m->nodes.data[s->f.shared]);
    c.lay_b = layout_of(m, &c.b, &m->nodes.data[s->f.own]);
    c.lay_c = layout_of(m, &c.c, &m->nodes.data[sum]);
    if (c.a.is_tensor &&
        (m->tensors.data[c.a.id].kind != T_PARAM || m->tensors.data[c.a.id].dtype != p->dtype))
        return false;
    return match_gemm(m, &c, &g) && !(g.batch && poly_is_one(g.m)) && !too_few(g.m) && !too_few(g.k);
}

/* ---- words ---- */

/* Can it be written as it is printed? Not what a fn made, and not what has no name. */
static bool is_writable(const Module *m, NodeId id)
{
    const Node *n = &m->nodes.data[id];
    if (n->chain || n->step || is_rounding(m, id))
        return false;
    switch (n->kind) {
    case N_CONST: case N_SIZE: case N_INDEX: case N_LOAD:
        return true;
    case N_ARRAY: case N_VIEW: {
        const Node *a = &m->nodes.data[n->kind == N_VIEW ? n->args[0] : id];
        return a->name && !a->chain && !strchr(a->name, '.');
    }
    case N_REDUCE:
        return false;
    case N_MAP:
        for (int i = 0; i < n->nargs; i++)
            if (!is_writable(m, n->args[i]))
                return false;
        return true;
    }
    return false;
}

static const char *text_of(const Module *m, NodeId id, bool inside)
{
    Buf b = { .arena = m->arena };
    put_expression(m, id, DEPTH, inside, &b);
    return b.data;
}

static bool is_taken(const Module *m, const char *name)
{
    bool taken = false;
    for (TensorId t = 0; t < m->tensors.len; t++)
        taken |= strcmp(m->tensors.data[t].name, name) == 0;
    for (NodeId id = 0; id < m->nodes.len; id++)
        taken |= m->nodes.data[id].name && strcmp(m->nodes.data[id].name, name) == 0;
    for (IndexId i = IX_FIRST; i < m->indices.len; i++)
        taken |= strcmp(m->indices.data[i].name, name) == 0;
    for (int i = 0; i < m->dims.len; i++)
        taken |= strcmp(m->dims.data[i], name) == 0;
    for (int i = 0; i < m->bound.len; i++)
        taken |= strcmp(m->bound.data[i].name, name) == 0;
    return taken;
}

/* A name that the cell has not. */
static const char *free_name(const Module *m, const char *base)
{
    const char *name = base;
    for (int i = 2; is_taken(m, name); i++)
        name = intern_f(m->c, "%s%d", base, i);
    return name;
}

/* `NAME[i,j]`, and where it is defined `NAME[i:N, j:N]`. */
static const char *named(const Module *m, const char *name, NodeId value, const Node *sum, bool defined)
{
    const Node *n = &m->nodes.data[value];
    IndexId axes[MOST_AXES] = { 0 };
    Buf b = { .arena = m->arena };
    axes_of(n, sum, axes);
    buf_f(&b, "%s", name);
    for (int i = 0; i < n->naxes; i++) {
        const Index *x = &m->indices.data[axes[i]];
        buf_f(&b, "%s%s", i ? "," : "[", x->name);
        if (defined) {
            buf_f(&b, ":");
            poly_print_spec(m, x->extent, &b);
        }
    }
    buf_f(&b, "%s", n->naxes ? "]" : "");
    return b.data;
}

static const char *sum_words(const Module *m, const Node *sum)
{
    Buf b = { .arena = m->arena };
    buf_f(&b, "sum[");
    for (int i = 0; i < sum->nbound; i++)
        buf_f(&b, "%s%s", i ? "," : "", m->indices.data[sum->bound[i]].name);
    buf_f(&b, "]");
    return b.data;
}

/* Definitions of what needs a name, and the product of what has one; NULL: that cannot be written. */
static const char *product_words(const Split *s, const Node *sum)
{
    Module *m = s->m;
    const NodeId value[2] = { s->f.shared, s->f.own };
    const bool needs[2] = { s->names_shared, s->names_own };
    const char *factor[2];
    Buf b = { .arena = m->arena };
    if (sum->chain || s->f.when >= 0 || (s->f.outside >= 0 && !is_writable(m, s->f.outside)))
        return NULL;
    for (int i = 0; i < 2; i++) {
        if (!is_writable(m, value[i]))
            return NULL;
        const char *name = needs[i] ? free_name(m, i ? "v" : "V") : NULL;
        factor[i] = needs[i] ? named(m, name, value[i], sum, false) : text_of(m, value[i], true);
        if (needs[i])
            buf_f(&b, "`%s = %s;`, then ", named(m, name, value[i], sum, true), text_of(m, value[i], false));
    }
    const char *outside = s->f.outside < 0 ? "" : intern_f(m->c, "%s * ", text_of(m, s->f.outside, true));
    buf_f(&b, "`%s%s%s %s * %s`", s->f.negative ? "-" : "", outside, sum_words(m, sum), factor[0], factor[1]);
    return b.data;
}

static const char *because_words(const Split *s)
{
    NodeId id = s->names_shared ? s->f.shared : s->f.own;
    const char *text = is_writable(s->m, id) ? text_of(s->m, id, false) : NULL;
    return text && strlen(text) <= LONGEST ? intern_f(s->m->c, "`%s` has no name", text)
                                           : "one of its two factors has no name";
}

/* ---- the answer ---- */

static bool sums_places(const Node *r)
{
    for (int i = 0; i < r->nbound; i++)
        if (r->bound[i] < IX_FIRST)
            return false;
    return r->kind == N_REDUCE && r->reduce == R_SUM;
}

bool multiplies_shared(const Plan *p, NodeId array)
{
    const Node *r = at(p, at(p, array)->args[0]);
    return sums_places(r) && has_factors(p->m, r->args[0], r);
}

bool spelling_of(const Plan *p, const Program *pr, NodeId array, Spelling *out)
{
    NodeId id = at(p, array)->args[0];
    if (!multiplies_shared(p, array) || is_plain_product(p->m, at(p, id)) || ir_gathers(p->m, id))
        return false;
    Split s = { .m = module_copy(p->m) };
    Module *m = s.m;
    const Node sum = m->nodes.data[id];
    if (!factor_term(m, sum.args[0], &sum, &s.f) || m->nodes.data[s.f.shared].naxes > MOST_AXES ||
        m->nodes.data[s.f.own].naxes > MOST_AXES)
        return false;
    s.names_shared = !is_operand(m, s.f.shared);
    s.names_own = !is_operand(m, s.f.own);
    if (!(s.names_shared || s.names_own) || !is_product(p, &s, array, pr->phase[array] == PHASE_DURING))
        return false;
    const char *text = product_words(&s, &sum);
    const char *general =
        "give what is multiplied, on each side of the product, a name, and sum the product of the two";
    *out = (Spelling){ .because = because_words(&s), .write = text ? text : general };
    return true;
}

const char *rows_apart(const Plan *p, NodeId array)
{
    NodeId id = at(p, array)->args[0], when;
    Factored f;
    if (!sums_places(at(p, id)))
        return NULL;
    if ((when = condition_of_rows(p->m, at(p, id)->args[0], at(p, id))) >= 0)
        return is_writable(p->m, when) ? text_of(p->m, when, false) : NULL;
    if (!multiplies_shared(p, array))
        return NULL;
    Module *m = module_copy(p->m);
    const Node sum = m->nodes.data[id];
    if (!factor_term(m, sum.args[0], &sum, &f) || !is_writable(m, f.own))
        return NULL;
    const Node shared = m->nodes.data[f.shared], own = m->nodes.data[f.own];
    for (int i = 0; i < shared.naxes; i++)
        if (!is_among(shared.axes[i], own.axes, own.naxes))
            return NULL; /* rows that have one vector */
    const char *text = text_of(m, f.own, false);
    return own.kind == N_MAP && strlen(text) <= LONGEST ? text : NULL;
}
