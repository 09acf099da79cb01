/* spelling.c: how a sum that is no matrix product would have to be written to be one. In comes a planned
 * program and a sum of it; out goes what keeps it from being a product, and the other text. It is proved, not
 * guessed: the other text is built in a copy of the module, and match_gemm takes it. Nothing of the plan is
 * changed. */
#include <string.h>

#include "emit/emit.h"
#include "ir/marks.h"
#include "ir/ops.h"
#include "ir/rounded.h"
#include "plan_pass.h"
#include "spelling.h"

/* LEAST: rows and terms of a product below which a row reduction does as well. DEPTH: of what is printed of
 * an expression. LONGEST: characters of it. */
enum { MOST = 16, LEAST = 16, DEPTH = 12, LONGEST = 72 };

/* The factors of a product; those that it is divided by; conditions outside of which it is 0. */
typedef struct Factors {
    NodeId over[MOST], under[MOST], guard[MOST];
    int nover, nunder, nguard;
    bool negative;
} Factors;

/* They in a copy of the module: what all sequences share, what each has its own of, and what does not vary
 * over the sum's indices. -1: there is none of these. A plain read is taken as it is; else the factor has to
 * get a name. */
typedef struct Split {
    Module *m;
    NodeId shared, own, outside;
    bool negative;
    bool names_shared, names_own;
} Split;

static bool varies_over(const Node *n, const IndexId *over, int nover)
{
    for (int i = 0; i < n->naxes; i++)
        for (int k = 0; k < nover; k++)
            if (n->axes[i] == over[k])
                return true;
    return false;
}

static bool per_row(const Node *n)
{
    return (n->dep & (DEP_BATCH | DEP_TIME)) != 0;
}

/* False: more than there is room for. */
static bool add_factors(const Module *m, NodeId id, bool under, Factors *f)
{
    const Node *n = &m->nodes.data[id];
    if (n->kind == N_MAP && n->op == OP_NEG) {
        f->negative = !f->negative;
        return add_factors(m, n->args[0], under, f);
    }
    if (n->kind == N_MAP && (n->op == OP_MUL || n->op == OP_DIV))
        return add_factors(m, n->args[0], under, f) &&
               add_factors(m, n->args[1], under != (n->op == OP_DIV), f);
    if (n->kind == N_MAP && n->op == OP_SELECT && !under && m->nodes.data[n->args[2]].kind == N_CONST &&
        m->nodes.data[n->args[2]].value == 0 && f->nguard < MOST) {
        f->guard[f->nguard++] = n->args[0];
        return add_factors(m, n->args[1], under, f);
    }
    int *count = under ? &f->nunder : &f->nover;
    if (*count == MOST)
        return false;
    (under ? f->under : f->over)[(*count)++] = id;
    return true;
}

/* ---- the product, in a copy of the module ---- */

typedef enum { SHARED, OWN, OUTSIDE } Side;

static bool within(const Node *n, const IndexId *axes, int naxes)
{
    for (int i = 0; i < n->naxes; i++) {
        bool found = false;
        for (int k = 0; k < naxes; k++)
            found |= n->axes[i] == axes[k];
        if (!found)
            return false;
    }
    return true;
}

static Side side_of(const Module *m, NodeId id, const Node *sum)
{
    const Node *n = &m->nodes.data[id];
    return !varies_over(n, sum->bound, sum->nbound) ? OUTSIDE : per_row(n) ? OWN : SHARED;
}

/* A factor of the sum's indices alone goes with a vector of these, so that a param stays what the product
 * reads. */
static bool goes_with_own(const Module *m, NodeId id, const Node *sum, NodeId own)
{
    return within(&m->nodes.data[id], sum->bound, sum->nbound) &&
           within(&m->nodes.data[own], sum->bound, sum->nbound);
}

/* own: what is known of that side, to which shared factors may go; -1: none do. */
static NodeId multiplied(Module *m, const Factors *f, const Node *sum, Side side, NodeId own)
{
    NodeId out = -1;
    for (int i = 0; i < f->nover + f->nunder; i++) {
        bool under = i >= f->nover;
        NodeId id = under ? f->under[i - f->nover] : f->over[i];
        Side its = side_of(m, id, sum);
        if (its == SHARED && own >= 0 && goes_with_own(m, id, sum, own))
            its = OWN;
        if (its == side && under)
            out = node_map2(m, OP_DIV, out < 0 ? node_const(m, 1) : out, id);
        else if (its == side)
            out = out < 0 ? id : node_map2(m, OP_MUL, out, id);
    }
    for (int i = 0; side == SHARED && out >= 0 && i < f->nguard; i++)
        out = node_select(m, f->guard[i], out, node_const(m, 0));
    return out;
}

static bool is_read(const Node *n)
{
    return (n->kind == N_LOAD || n->kind == N_VIEW || n->kind == N_ARRAY) && !n->step;
}

/* Has the term a factor that all sequences share, and one that each has its own of? */
static bool has_sides(const Module *m, NodeId term, const Node *sum)
{
    Factors f = { .nover = 0 };
    bool has[OUTSIDE + 1] = { false };
    for (int i = add_factors(m, term, false, &f) ? 0 : MOST; i < f.nover; i++)
        has[side_of(m, f.over[i], sum)] = true;
    for (int i = 0; i < f.nunder; i++)
        has[side_of(m, f.under[i], sum)] = true;
    return has[SHARED] && has[OWN];
}

static bool split_of(Module *m, NodeId term, const Node *sum, Split *s)
{
    Factors f = { .nover = 0 };
    if (!add_factors(m, term, false, &f))
        return false;
    for (int i = 0; i < f.nguard; i++)
        if (per_row(&m->nodes.data[f.guard[i]]))
            return false;             /* another condition for each sequence */
    NodeId own = multiplied(m, &f, sum, OWN, -1);
    *s = (Split){ .m = m,
                  .negative = f.negative,
                  .shared = multiplied(m, &f, sum, SHARED, own),
                  .own = own < 0 ? own : multiplied(m, &f, sum, OWN, own),
                  .outside = multiplied(m, &f, sum, OUTSIDE, -1) };
    if (s->shared < 0 || s->own < 0)
        return false;
    if (m->nodes.data[s->shared].naxes > MOST || m->nodes.data[s->own].naxes > MOST)
        return false;
    s->names_shared = !is_read(&m->nodes.data[s->shared]);
    s->names_own = !is_read(&m->nodes.data[s->own]);
    return true;
}

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
        IndexId axes[MOST];
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
    return (Layout){ .batched = dep & DEP_BATCH, .timed = dep & DEP_TIME,
                     .pitch = r->is_tensor ? tensor_elements(m, r->id) : array_elements(m, r->id) };
}

static bool too_few(const Poly *p)
{
    return p->is_const && p->value < LEAST;
}

/* What has no name is taken as if it had one. A read that has, or gets, one stays that read. */
static bool is_product(const Plan *p, const Split *s, NodeId sum, bool one_step)
{
    Module *m = s->m;
    const Node r = m->nodes.data[m->nodes.data[sum].args[0]];
    Gemm g;
    Contraction c = { .one_step = one_step };
    c.a = operand(m, s->shared, &r, s->names_shared);
    c.b = operand(m, s->own, &r, s->names_own);
    c.c = read_itself(m, sum);
    c.lay_a = layout_of(m, &c.a, &m->nodes.data[s->shared]);
    c.lay_b = layout_of(m, &c.b, &m->nodes.data[s->own]);
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
        return a->name && !a->chain && !strpbrk(a->name, ".");
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

static const char *shown(const Module *m, NodeId id, const char *otherwise)
{
    const char *text = is_writable(m, id) ? text_of(m, id, false) : NULL;
    return text && strlen(text) <= LONGEST ? intern_f(m->c, "`%s`", text) : otherwise;
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
    IndexId axes[MOST];
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

/* Definitions of what needs a name, and the product of what has one. */
static void put_definitions(const Split *s, const Node *sum, const char *names[2], Buf *out)
{
    const NodeId value[2] = { s->shared, s->own };
    const bool needs[2] = { s->names_shared, s->names_own };
    for (int i = 0; i < 2; i++)
        if (needs[i]) {
            names[i] = free_name(s->m, i ? "v" : "V");
            buf_f(out, "`%s = %s;`, then ", named(s->m, names[i], value[i], sum, true),
                  text_of(s->m, value[i], false));
        }
}

static const char *product_words(const Split *s, const Node *sum)
{
    Module *m = s->m;
    Buf b = { .arena = m->arena };
    const char *names[2] = { NULL, NULL };
    if (!is_writable(m, s->shared) || !is_writable(m, s->own) ||
        (s->outside >= 0 && !is_writable(m, s->outside)) || sum->chain)
        return NULL;
    put_definitions(s, sum, names, &b);
    const char *shared = names[0] ? named(m, names[0], s->shared, sum, false) : text_of(m, s->shared, true);
    const char *own = names[1] ? named(m, names[1], s->own, sum, false) : text_of(m, s->own, true);
    const char *outside = s->outside < 0 ? "" : intern_f(m->c, "%s * ", text_of(m, s->outside, true));
    buf_f(&b, "`%s%s%s %s * %s`", s->negative ? "-" : "", outside, sum_words(m, sum), shared, own);
    return b.data;
}

static const char *because_words(const Split *s)
{
    Module *m = s->m;
    if (s->outside >= 0)
        return intern_f(m->c, "%s stands inside the sum",
                        shown(m, s->outside, "what does not depend on its index"));
    if (s->negative)
        return "a minus stands inside the sum";
    return intern_f(m->c, "%s has no name",
                    shown(m, s->names_own ? s->own : s->shared, "one of its two factors"));
}

static const char *general_words(const Split *s)
{
    if (s->outside >= 0 || s->negative)
        return "take what does not depend on the sum's index in front of the sum";
    return "give what is multiplied, on each side of the product, a name, and sum the product of the two";
}

/* ---- sums of several products ---- */

static int add_terms(const Module *m, NodeId id, bool negative, NodeId *out, bool *negatives, int n)
{
    const Node *t = &m->nodes.data[id];
    if (n < 0 || n == MOST)
        return -1;
    if (t->kind == N_MAP && (t->op == OP_ADD || t->op == OP_SUB)) {
        n = add_terms(m, t->args[0], negative, out, negatives, n);
        return add_terms(m, t->args[1], negative != (t->op == OP_SUB), out, negatives, n);
    }
    negatives[n] = negative;
    out[n] = id;
    return n + 1;
}

/* W[i,j] * (x[j] + h[j]) as terms, where the brackets have some that depend on a state, and others. */
static int multiply_out(Module *m, const Split *s, NodeId *out, bool *negatives)
{
    NodeId terms[MOST];
    bool waits = false, ready = false;
    int n = s->names_own && s->outside < 0 ? add_terms(m, s->own, s->negative, terms, negatives, 0) : -1;
    for (int i = 0; i < n; i++) {
        const Node *t = &m->nodes.data[terms[i]];
        waits |= (t->dep & DEP_STATE) != 0;
        ready |= !(t->dep & DEP_STATE) && per_row(t);
    }
    for (int i = 0; i < n; i++)
        out[i] = node_map2(m, OP_MUL, s->shared, terms[i]);
    return waits && ready ? n : -1;
}

static bool several(const Plan *p, Module *m, NodeId array, bool one_step, const NodeId *terms,
                    const bool *negatives, int n, Spelling *out)
{
    const Node sum = m->nodes.data[m->nodes.data[array].args[0]];
    Buf b = { .arena = m->arena };
    bool writable = true;
    for (int i = 0; i < n; i++) {
        Split s;
        if (!split_of(m, terms[i], &sum, &s) || !is_product(p, &s, array, one_step))
            return false;
        s.negative = s.negative != negatives[i];
        const char *text = s.names_shared || s.names_own ? NULL : product_words(&s, &sum);
        writable &= text != NULL;
        if (writable && i && s.negative)
            buf_f(&b, " - %.*s", (int)strlen(text) - 3, text + 2);
        else if (writable)
            buf_f(&b, "%s%.*s", i ? " + " : "", (int)strlen(text) - 2, text + 1);
    }
    *out = (Spelling){
        .because = intern_f(m->c, "one sum has %d products", n),
        .write = writable ? intern_f(m->c, "`%s`", b.data) : "write a sum for each product",
    };
    return true;
}

/* ---- the answer ---- */

static bool sums_places(const Node *r)
{
    for (int i = 0; i < r->nbound; i++)
        if (r->bound[i] < IX_FIRST)
            return false;
    return r->kind == N_REDUCE && r->reduce == R_SUM;
}

bool spelling_of(const Plan *p, const Program *pr, NodeId array, Spelling *out)
{
    const Node *a = at(p, array), *r = at(p, a->args[0]);
    NodeId terms[MOST];
    bool negatives[MOST], one_step = pr->phase[array] == PHASE_DURING;
    Split s;
    if (!sums_places(r) || !per_row(a) || ir_gathers(p->m, a->args[0]))
        return false;
    int n = add_terms(p->m, r->args[0], false, terms, negatives, 0);
    if (n < 1 || !has_sides(p->m, terms[0], r))
        return false;
    Module *m = module_copy(p->m);
    const Node sum = m->nodes.data[a->args[0]];
    if (n > 1)
        return several(p, m, array, one_step, terms, negatives, n, out);
    if (!split_of(m, sum.args[0], &sum, &s))
        return false;
    n = one_step ? multiply_out(m, &s, terms, negatives) : -1;
    if (n > 1 && several(p, m, array, one_step, terms, negatives, n, out))
        return true;
    if (!is_product(p, &s, array, one_step) ||
        !(s.outside >= 0 || s.negative || s.names_shared || s.names_own))
        return false;
    bool waits = s.outside >= 0 && (m->nodes.data[s.outside].dep & DEP_STATE);
    const char *text = product_words(&s, &sum);
    *out = (Spelling){
        .because = because_words(&s),
        .write = text ? text : general_words(&s),
        .waits =
            waits && !(m->nodes.data[s.own].dep & DEP_STATE) && !(m->nodes.data[s.shared].dep & DEP_STATE),
    };
    return true;
}

bool multiplies_shared(const Plan *p, NodeId array)
{
    const Node *r = at(p, at(p, array)->args[0]);
    return sums_places(r) && has_sides(p->m, r->args[0], r);
}
