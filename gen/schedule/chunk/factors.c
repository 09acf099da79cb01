/* factors.c: terms taken apart into factors that belong to keys, to values, or to heads alone. In come
 * terms and what is known of the axes; out go their parts, or a refusal. A factor that varies over keys
 * and over values is opened: products and quotients split, sums and conditions distribute, arrays and
 * views are looked through. What is left then makes heads of its other axes. Guaranteed: each term is the
 * product of its parts. */
#include "terms.h"

enum { MAX_UNROLLED = 16 };       /* terms of a sum whose terms are columns times rows, each an addition */

/* A term on its way. */
typedef struct Work {
    double coef;
    struct { Factor *data; int len, cap; } atoms;
    IndexList bound;
    const Term *term;
    bool mixes;
} Work;

static Node at(const Proof *p, NodeId id)
{
    return p->m->nodes.data[id];
}

bool mixed_axis(Proof *p, const IndexId *axes, int rank, const Term *t, int *axis)
{
    *axis = -1;
    for (int i = 0; i < rank; i++) {
        IndexId which;
        bool bound = term_binds(t, t->map[i]);
        if (ix_is_index(t->map[i], &which) && which == axes[i])
            continue;
        if (!bound && p->m->tensors.data[p->states[t->state]].complex && i == rank - 1)
            return proof_refuse(p, t->at, "complex: the two parts of a number feed one another");
        if (!bound)
            return proof_refuse(p, t->at, "another place of %s than its own, which is no sum over an axis",
                                proof_states(p));
        if (*axis >= 0)
            return proof_refuse(p, t->at, "a sum over two axes of %s", proof_states(p));
        *axis = i;
    }
    return true;
}

/* ---- products ---- */

static Work copy_of(Proof *p, const Work *w)
{
    Work c = { .coef = w->coef, .term = w->term, .mixes = w->mixes };
    for (int i = 0; i < w->atoms.len; i++)
        vec_push(p->m->arena, &c.atoms, w->atoms.data[i]);
    for (int i = 0; i < w->bound.len; i++)
        vec_push(p->m->arena, &c.bound, w->bound.data[i]);
    return c;
}

static bool is_product(const Node *n)
{
    return n->kind == N_MAP && (n->op == OP_MUL || n->op == OP_DIV || n->op == OP_NEG || n->op == OP_HELD);
}

/* What an array or a view holds, at the place where it is read; -1: it is neither, or of another step. */
static NodeId inside(Proof *p, NodeId id)
{
    Node n = at(p, id);
    if (n.kind == N_ARRAY)
        return n.args[0];
    if (n.kind != N_VIEW || n.step)
        return -1;
    Node a = at(p, n.args[0]);
    return proof_subst(p, n.args[0], a.args[0], a.axes, n.map, a.naxes);
}

static bool take_number(Proof *p, Work *w, NodeId id, bool under)
{
    Node n = at(p, id);
    double v = n.kind == N_CONST ? n.value : n.kind == N_SIZE && n.size->is_const ? (double)n.size->value : 0;
    if (v == 0 && (under || n.kind != N_CONST))
        return false;
    w->coef = under ? w->coef / v : w->coef * v;
    return true;
}

/* The factors of a product, arrays that hold one looked through. */
static void split(Proof *p, Work *w, NodeId id, bool under)
{
    Node n = at(p, id);
    Factor f = { id, under };
    if (take_number(p, w, id, under))
        return;
    if (is_product(&n)) {
        w->coef = n.op == OP_NEG ? -w->coef : w->coef;
        split(p, w, n.args[0], under);
        if (n.nargs == 2)
            split(p, w, n.args[1], n.op == OP_DIV ? !under : under);
        return;
    }
    NodeId in = inside(p, id);
    Node held = in >= 0 ? at(p, in) : n;
    if (in >= 0 && (is_product(&held) || held.kind == N_ARRAY || held.kind == N_VIEW || held.kind == N_LOAD ||
                    held.kind == N_CONST)) {
        split(p, w, in, under);
        return;
    }
    vec_push(p->m->arena, &w->atoms, f);
}

NodeId product_of(Module *m, double coef, const Factor *f, int n)
{
    NodeId up = -1, down = -1;
    for (int i = 0; i < n; i++) {
        NodeId *side = f[i].under ? &down : &up;
        *side = *side < 0 ? f[i].node : node_map2(m, OP_MUL, *side, f[i].node);
    }
    if (up < 0)
        up = node_const(m, coef);
    else if (coef == -1)
        up = node_map1(m, OP_NEG, up);
    else if (coef != 1)
        up = node_map2(m, OP_MUL, node_const(m, coef), up);
    return down < 0 ? up : node_map2(m, OP_DIV, up, down);
}

/* ---- what belongs to both ---- */

typedef struct Belongs { bool key, mixed, value; } Belongs;

static Belongs belongs(const Proof *p, const Roles *r, NodeId id)
{
    Belongs b = { false };
    for (int i = 0; i < r->rank; i++)
        if (varies_over(p->m, id, r->axes[i]))
            *(i == r->key ? &b.key : &b.value) |= i == r->key || !r->is_head[i];
    b.mixed = varies_over(p->m, id, r->mixed);
    return b;
}

static bool spans(Belongs b)
{
    return (b.key && b.mixed) || ((b.key || b.mixed) && b.value);
}

static const char *words_of(const Proof *p, NodeId id)
{
    Buf b = { .arena = p->m->arena };
    chunk_expression(p->m, id, &b);
    return b.data;
}

/* A factor that cannot be opened: its axes beside the key are heads. */
static bool leaf(Proof *p, Roles *r, NodeId id)
{
    Belongs b = belongs(p, r, id);
    if (b.key && b.mixed)
        return proof_refuse(p, id, "`%s`: every key meets every other one, through a matrix",
                            words_of(p, id));
    for (int i = 0; i < r->rank; i++)
        r->is_head[i] |= i != r->key && varies_over(p->m, id, r->axes[i]);
    r->forced = intern_f(p->m->c, "`%s` is another one for each key and value", words_of(p, id));
    r->forced_at = at(p, id).span;
    return true;
}

static bool settle_work(Proof *p, Roles *r, Work w, PartsList *out);

/* The term with atom i replaced by one factor, or by a condition's indicator and a factor. */
static bool settle_with(Proof *p, Roles *r, const Work *w, int i, double coef, NodeId first, NodeId second,
                        PartsList *out)
{
    Work c = copy_of(p, w);
    c.atoms.data[i] = c.atoms.data[--c.atoms.len];
    c.coef *= coef;
    split(p, &c, first, false);
    if (second >= 0)
        split(p, &c, second, false);
    return c.coef == 0 || settle_work(p, r, c, out);
}

/* `i == j`, of the key and of the index that is summed over: of the sum one term is left, as of one with
 * the identity. */
static bool picks_key(const Proof *p, const Roles *r, NodeId cond)
{
    Node n = at(p, cond);
    IndexId which[2];
    if (n.kind != N_MAP || n.op != OP_EQ)
        return false;
    for (int k = 0; k < 2; k++) {
        Node side = at(p, n.args[k]);
        if (side.kind != N_INDEX || !ix_is_index(side.ix, &which[k]))
            return false;
    }
    IndexId key = r->axes[r->key];
    return (which[0] == key && which[1] == r->mixed) || (which[1] == key && which[0] == r->mixed);
}

/* The term with `i == j ? a : 0` as atom i: a, and all else, where j is i. */
static bool settle_picked(Proof *p, Roles *r, const Work *w, int i, NodeId a, PartsList *out)
{
    Work c = copy_of(p, w);
    const IxExpr *key = ix_index(p->m, r->axes[r->key]);
    c.atoms.len = 0;
    c.mixes = false;
    for (int k = 0; k < w->atoms.len; k++) {
        NodeId x = k == i ? a : w->atoms.data[k].node;
        split(p, &c, proof_subst(p, x, x, &r->mixed, &key, 1), w->atoms.data[k].under);
    }
    return c.coef == 0 || settle_work(p, r, c, out);
}

/* Opens atom i. *opened: false where it cannot be. */
static bool open_atom(Proof *p, Roles *r, Work *w, int i, bool *opened, PartsList *out)
{
    Module *m = p->m;
    Factor f = w->atoms.data[i];
    Node n = at(p, f.node);
    NodeId in = inside(p, f.node), one = node_const(m, 1), zero = node_const(m, 0);
    *opened = true;
    if (in >= 0) {
        Work c = copy_of(p, w);
        c.atoms.data[i] = c.atoms.data[--c.atoms.len];
        split(p, &c, in, f.under);
        return settle_work(p, r, c, out);
    }
    if (!f.under && n.kind == N_MAP && (n.op == OP_ADD || n.op == OP_SUB))
        return settle_with(p, r, w, i, 1, n.args[0], -1, out) &&
               settle_with(p, r, w, i, n.op == OP_SUB ? -1 : 1, n.args[1], -1, out);
    if (!f.under && n.kind == N_MAP && n.op == OP_SELECT && n.args[2] == zero && picks_key(p, r, n.args[0]))
        return settle_picked(p, r, w, i, n.args[1], out);
    if (!f.under && n.kind == N_MAP && n.op == OP_SELECT && !spans(belongs(p, r, n.args[0])))
        return settle_with(p, r, w, i, 1, n.args[1], node_select(m, n.args[0], one, zero), out) &&
               settle_with(p, r, w, i, 1, n.args[2], node_select(m, n.args[0], zero, one), out);
    if (!f.under && n.kind == N_REDUCE && n.reduce == R_SUM && n.bound[0] >= IX_FIRST) {
        Work c = copy_of(p, w);
        c.atoms.data[i] = c.atoms.data[--c.atoms.len];
        split(p, &c, proof_summand(p, f.node, &c.bound), false);
        return settle_work(p, r, c, out);
    }
    *opened = false;
    return leaf(p, r, f.node);
}

/* ---- sums ---- */

/* A term for each value of the index. */
static bool unroll(Proof *p, Roles *r, const Work *w, IndexId b, PartsList *out)
{
    Module *m = p->m;
    for (int64_t v = 0; v < m->indices.data[b].extent->value; v++) {
        const IxExpr *to = ix_const(m, poly_const(m, v));
        Work c = copy_of(p, w);
        c.atoms.len = 0;
        for (int i = 0; i < w->atoms.len; i++)
            split(p, &c, proof_subst(p, w->atoms.data[i].node, w->atoms.data[i].node, &b, &to, 1),
                  w->atoms.data[i].under);
        if (c.coef != 0 && !settle_work(p, r, c, out))
            return false;
    }
    return true;
}

/* Sums the last bound index away: over the product of the factors that have it. *unrolled: the term is
 * done. */
static bool sum_bound(Proof *p, Roles *r, Work *w, bool *unrolled, PartsList *out)
{
    Module *m = p->m;
    IndexId b = w->bound.data[--w->bound.len];
    const Poly *extent = m->indices.data[b].extent;
    Belongs all = { false };
    Work with = { 0 };
    int kept = 0;
    for (int i = 0; i < w->atoms.len; i++) {
        Factor f = w->atoms.data[i];
        if (!varies_over(m, f.node, b)) {
            w->atoms.data[kept++] = f;
            continue;
        }
        Belongs x = belongs(p, r, f.node);
        all = (Belongs){ all.key | x.key, all.mixed | x.mixed, all.value | x.value };
        vec_push(m->arena, &with.atoms, f);
    }
    if (spans(all) && extent->is_const && extent->value <= MAX_UNROLLED) {
        for (int i = 0; i < with.atoms.len; i++)
            w->atoms.data[kept++] = with.atoms.data[i];
        w->atoms.len = kept;
        *unrolled = true;
        return unroll(p, r, w, b, out);
    }
    NodeId sum = with.atoms.len
                     ? node_reduce(m, R_SUM, product_of(m, 1, with.atoms.data, with.atoms.len), &b, 1)
                     : node_size(m, extent);
    Factor f = { sum, false };
    w->atoms.len = kept;
    vec_push(m->arena, &w->atoms, f);
    return !spans(all) || leaf(p, r, sum);
}

/* ---- parts ---- */

int factor_order(const Factor *a, const Factor *b)
{
    return a->node != b->node ? (a->node < b->node ? -1 : 1) : a->under - b->under;
}

static void sort(Factor *f, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && factor_order(&f[k - 1], &f[k]) > 0; k--) {
            Factor x = f[k];
            f[k] = f[k - 1];
            f[k - 1] = x;
        }
}

static void put_parts(Proof *p, const Roles *r, Work *w, PartsList *out)
{
    Parts x = { .coef = w->coef,
                .state = w->term->state,
                .level = w->term->level,
                .at = w->term->at,
                .mixes = w->mixes };
    sort(w->atoms.data, w->atoms.len);
    for (int i = 0; i < w->atoms.len; i++) {
        Factor f = w->atoms.data[i];
        Belongs b = belongs(p, r, f.node);
        if (b.key)
            vec_push(p->m->arena, &x.key, f);
        else if (b.mixed)
            vec_push(p->m->arena, &x.mixed, f);
        else if (b.value)
            vec_push(p->m->arena, &x.value, f);
        else
            vec_push(p->m->arena, &x.number, f);
    }
    vec_push(p->m->arena, out, x);
}

static bool settle_work(Proof *p, Roles *r, Work w, PartsList *out)
{
    if (p->why)
        return false;
    if (--p->left < 0 || out->len > MAX_TERMS)
        return proof_refuse(p, p->m->roots.data[p->states[0]].next, "a step of too many terms");
    for (int i = 0; i < w.atoms.len; i++) {
        bool opened;
        if (!spans(belongs(p, r, w.atoms.data[i].node)))
            continue;
        if (!open_atom(p, r, &w, i, &opened, out))
            return false;
        if (opened)
            return true;
    }
    while (w.bound.len) {
        bool unrolled = false;
        if (!sum_bound(p, r, &w, &unrolled, out))
            return false;
        if (unrolled)
            return true;
    }
    put_parts(p, r, &w, out);
    return true;
}

static bool settle_term(Proof *p, Roles *r, const Term *t, PartsList *out)
{
    Module *m = p->m;
    Work w = { .coef = t->coef, .term = t };
    IndexId bound = -1;
    int axis = -1;
    if (t->state >= 0 && !mixed_axis(p, r->axes, r->rank, t, &axis))
        return false;
    if (axis >= 0 && axis != r->key)
        return proof_refuse(p, t->at, "sums over axis %s of %s, and over axis %s",
                            m->indices.data[r->axes[axis]].name, proof_states(p),
                            m->indices.data[r->axes[r->key]].name);
    w.mixes = axis >= 0 && ix_is_index(t->map[axis], &bound);
    for (int i = 0; i < t->bound.len; i++)
        if (t->bound.data[i] != bound)
            vec_push(m->arena, &w.bound, t->bound.data[i]);
    const IxExpr *to = ix_index(m, r->mixed);
    for (int i = 0; i < t->factors.len; i++) {
        NodeId f = t->factors.data[i].node;
        split(p, &w, w.mixes ? proof_subst(p, f, f, &bound, &to, 1) : f, t->factors.data[i].under);
    }
    return w.coef == 0 || settle_work(p, r, w, out);
}

bool settle(Proof *p, Roles *r, const Terms *terms, PartsList *out)
{
    *out = (PartsList){ 0 };
    for (int i = 0; i < terms->len; i++)
        if (!settle_term(p, r, &terms->data[i], out))
            return false;
    return true;
}
