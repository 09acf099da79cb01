/* cut.c: the cut of a step for schedule attention. In comes a module in normal form without its adjoint; out
 * goes the same one without its sums over the past: what these are made of are outputs, what they give is an
 * input. So differentiate gives the adjoint of all that stands around them: the cotangent of an operand is
 * what the kernels leave, the gradient of what is given what they take. The derivative of the score, by the
 * product and by what is learned in it, is the compiler's own. Behind the adjoint come the keys of steps
 * before the call: an operand with a place for each step of the history, whose gradient is added to that of
 * the history. */
#include "base/mutate.h"
#include "cut.h"
#include "ir/diff.h"
#include "ir/marks.h"
#include "ir/rewrite.h"
#include "normalizer.h"
#include "score.h"

enum { MOST_AXES = 64 };

typedef struct Cut {
    Module *m;
    AttentionCut *to;
    NodeId *replaced; /* per node that there was, `nodes` of them; -1: nothing */
    int *levels; /* per such node that is a sum: how many walks it stands behind */
    NodeId nodes;
    const Reason *why;
} Cut;

static const Node *at(const Cut *c, NodeId id)
{
    return &c->m->nodes.data[id];
}

static bool refuse(Cut *c, NodeId where, const char *why)
{
    if (!c->why)
        c->why = reason_at(c->m, at(c, where)->span, "%s", why);
    return false;
}

/* ---- tensors */

static const char *name_of(const Cut *c, const char *what)
{
    const char *name = c->to->form.name;
    return name ? intern_f(c->m->c, "%s_%s", name, what)
                : intern_f(c->m->c, "sum%d_%s", c->to->form.sum, what);
}

static TensorId new_tensor(Module *m, const AttentionCut *to, TensorKind kind, const char *name,
                           const IndexId *axes, int n)
{
    Tensor t = { .name = name, .kind = kind, .level = to->level, .span = m->nodes.data[to->form.sum].span };
    return module_tensor_between(m, t, axes, n);
}

/* The value as an output over the given axes. */
static TensorId output_of(Module *m, const AttentionCut *to, NodeId value, const IndexId *axes, int n,
                          const char *name)
{
    TensorId t = new_tensor(m, to, T_OUTPUT, name, axes, n);
    module_at(m, m->nodes.data[to->form.sum].span, NULL);
    m->roots.data[t].output = node_array(m, value, axes, n, name, m->nodes.data[to->form.sum].span);
    return t;
}

/* ---- heads */

static void take_heads(Cut *c)
{
    Module *m = c->m;
    AttentionCut *to = c->to;
    const Attention *a = &to->form;
    to->key_heads = arena_alloc(m->arena, sizeof *to->key_heads * (size_t)(a->nheads + 1));
    to->key_of = arena_alloc(m->arena, sizeof *to->key_of * (size_t)(a->nheads + 1));
    to->heads = to->group = poly_const(m, 1);
    for (int i = 0; i < a->nheads; i++) {
        const Index *h = &m->indices.data[a->heads[i].axis];
        const Poly *n = poly_div(m, h->extent, a->heads[i].shared);
        to->group = poly_mul(m, to->group, a->heads[i].shared);
        to->heads = poly_mul(m, to->heads, n);
        if (poly_is_one(n) && !poly_is_one(a->heads[i].shared))
            continue;
        bool own = poly_is_one(a->heads[i].shared);
        to->key_of[to->n_key_heads] = i;
        to->key_heads[to->n_key_heads++] = own ? a->heads[i].axis : module_index(m, h->name, n);
    }
}

/* A value of keys over the heads of keys. */
static NodeId of_key_heads(Module *m, const AttentionCut *to, NodeId value)
{
    const Attention *a = &to->form;
    for (int i = 0; i < to->n_key_heads; i++) {
        const AttentionHead *h = &a->heads[to->key_of[i]];
        const IxExpr *first = ix_scale(m, ix_index(m, to->key_heads[i]), h->shared);
        if (h->axis != to->key_heads[i])
            value = node_subst(m, value, &h->axis, &first, 1);
    }
    return value;
}

/* The axes of a row's heads, or of keys' heads, and what stands behind. */
static int axes_of(const AttentionCut *to, bool keys, const IndexId *last, int nlast, IndexId *out)
{
    int n = 0;
    for (int i = 0; i < (keys ? to->n_key_heads : to->form.nheads); i++)
        out[n++] = keys ? to->key_heads[i] : to->form.heads[i].axis;
    for (int i = 0; i < nlast; i++)
        out[n++] = last[i];
    return n;
}

/* ---- levels */

static int level_of(const Cut *c, NodeId id, Marks *seen)
{
    const Node *n = at(c, id);
    int most = 0;
    if (!marks_first(seen, id))
        return 0;
    if (id < c->nodes && c->replaced[id] >= 0)
        return c->levels[id] + 1;
    for (int i = 0; i < n->nargs; i++) {
        int level = level_of(c, n->args[i], seen);
        most = level > most ? level : most;
    }
    return most;
}

static void take_level(Cut *c)
{
    const Attention *a = &c->to->form;
    Marks *seen = marks_begin(c->m);
    NodeId of[] = { a->q, a->k, a->v, a->score, a->rest };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        int level = of[i] < 0 ? 0 : level_of(c, of[i], seen);
        c->to->level = level > c->to->level ? level : c->to->level;
    }
    for (int i = 0; i < a->conditions.len; i++) {
        int level = a->conditions.data[i].node < 0 ? 0 : level_of(c, a->conditions.data[i].node, seen);
        c->to->level = level > c->to->level ? level : c->to->level;
    }
    marks_end(seen);
}

/* ---- the score */

typedef struct Put {
    Module *m;
    const AttentionCut *to;
} Put;

/* With an array in place of every leaf of reals, so that there is a derivative by it. */
static NodeId put_reads(const Put *x, NodeId id)
{
    Module *m = x->m;
    Node n = m->nodes.data[id];
    NodeId args[8];
    bool same = true;
    for (int i = 0; i < x->to->reads.len; i++)
        if (x->to->reads.data[i].leaf.node == id)
            return x->to->reads.data[i].node;
    if (id == x->to->form.dot || n.kind != N_MAP || n.nargs > 8)
        return id;
    for (int i = 0; i < n.nargs; i++) {
        args[i] = put_reads(x, n.args[i]);
        same &= args[i] == n.args[i];
    }
    return same ? id : node_map(m, n.op, args, n.nargs);
}

static const char *no_name(void *naming, NodeId array)
{
    (void)naming;
    (void)array;
    return NULL;
}

/* What the sweep left as arrays put in, but for what the kernel has. */
static NodeId put_in(const Put *x, NodeId id)
{
    Module *m = x->m;
    Node n = m->nodes.data[id];
    NodeId args[8];
    bool same = true;
    if (id == x->to->form.dot)
        return id;
    for (int i = 0; i < x->to->reads.len; i++)
        if (x->to->reads.data[i].node == id)
            return id;
    if (n.kind == N_ARRAY)
        return put_in(x, n.args[0]);
    if (n.kind == N_VIEW && !n.step) {
        Node a = m->nodes.data[n.args[0]];
        return put_in(x, node_subst(m, a.args[0], a.axes, n.map, a.naxes));
    }
    if (n.kind != N_MAP || n.nargs > 8)
        return id;
    for (int i = 0; i < n.nargs; i++) {
        args[i] = put_in(x, n.args[i]);
        same &= args[i] == n.args[i];
    }
    return same ? id : node_map(m, n.op, args, n.nargs);
}

/* The derivative of the score by the product or by what is read; -1: 0. */
static NodeId slope_by(Cut *c, NodeId array)
{
    Module *m = c->m;
    DiffInner inner = { c->to->score, -1, array, no_name, NULL };
    const IndexId *axes;
    Put x = { m, c->to };
    if (m->nodes.data[c->to->score].dep == 0 && c->to->score == array)
        return node_const(m, 1);
    Diff *d = diff_inner(m, &inner);
    if (!diff_reaches(d, c->to->score))
        return -1;
    if (c->to->score == array)
        return node_const(m, 1);
    NodeId value = diff_inner_value(d, node_const(m, 1), &axes);
    return put_in(&x, value);
}

/* Is anything learned in it? */
static bool is_learned(const Cut *c, NodeId id, Marks *seen)
{
    const Node *n = at(c, id);
    if (!marks_first(seen, id))
        return false;
    if (n->kind == N_LOAD)
        return !c->m->tensors.data[n->tensor].no_grad;
    for (int i = 0; i < n->nargs; i++)
        if (is_learned(c, n->args[i], seen))
            return true;
    return false;
}

static bool learned(const Cut *c, NodeId id)
{
    Marks *seen = marks_begin(c->m);
    bool is = is_learned(c, id, seen);
    marks_end(seen);
    return is;
}

static AttentionOperand take_key(Cut *c, NodeId value, const IndexId *last, int nlast, const char *name)
{
    IndexId axes[MOST_AXES];
    int n = axes_of(c->to, true, last, nlast, axes);
    return (AttentionOperand){ output_of(c->m, c->to, of_key_heads(c->m, c->to, value), axes, n, name), -1,
                               -1 };
}

/* A tensor or array whose elements are read at places that the pair says, as a whole. */
static TensorId table_of(Cut *c, NodeId read, const char *name)
{
    Module *m = c->m;
    Node n = *at(c, read);
    IndexId axes[MOST_AXES];
    const IxExpr *map[MOST_AXES];
    if (n.kind == N_ARRAY || n.kind == N_VIEW) {
        NodeId array = n.kind == N_VIEW ? n.args[0] : read;
        Node a = *at(c, array);
        return output_of(m, c->to, array, a.axes, a.naxes, name);
    }
    for (int i = 0; i < n.nmap; i++) {
        axes[i] = module_index(m, intern(m->c, "place"), m->tensors.data[n.tensor].axes[i]);
        map[i] = ix_index(m, axes[i]);
    }
    return output_of(m, c->to, node_load(m, n.tensor, map, n.nmap), axes, n.nmap, name);
}

static bool take_read(Cut *c, const AttentionLeaf *leaf)
{
    Module *m = c->m;
    IndexId axes[MOST_AXES];
    const int number = c->to->reads.len;
    AttentionRead r = { .leaf = *leaf, .node = leaf->node, .slope = -1, .operand = { -1, -1, -1 } };
    const char *name = name_of(c, intern_f(m->c, "leaf%d", number));
    Node n = *at(c, leaf->node);
    if (leaf->side == LEAF_TABLE && learned(c, leaf->node))
        return refuse(c, leaf->node,
                      "its score has a learned table by distance, whose gradient no kernel sums");
    if (leaf->side == LEAF_TABLE)
        r.operand.now = table_of(c, leaf->node, name);
    if (!leaf->whole) {
        int naxes = axes_of(c->to, false, &c->to->form.w, 1, axes);
        r.node = node_array(m, leaf->node, axes, naxes, name, n.span);
    }
    if (!leaf->whole && leaf->side == LEAF_ROW)
        r.operand.now = output_of(m, c->to, leaf->value, axes, axes_of(c->to, false, NULL, 0, axes), name);
    if (!leaf->whole && leaf->side == LEAF_KEY)
        r.operand = take_key(c, leaf->value, NULL, 0, name);
    vec_push(m->arena, &c->to->reads, r);
    return true;
}

/* Of a score that is so much times the product and no more; -1: it is another one. */
static NodeId scale_of(Cut *c, NodeId score)
{
    Module *m = c->m;
    Node n = *at(c, score);
    NodeId dot = c->to->form.dot, scale = -1;
    if (score == dot)
        return node_const(m, 1);
    if (n.kind == N_MAP && n.op == OP_MUL && (n.args[0] == dot || n.args[1] == dot))
        scale = n.args[n.args[0] == dot];
    if (n.kind == N_MAP && n.op == OP_DIV && n.args[0] == dot)
        scale = node_map2(m, OP_DIV, node_const(m, 1), n.args[1]);
    return scale >= 0 && !pair_reads(m, scale) && !at(c, scale)->naxes && !at(c, scale)->dep ? scale : -1;
}

static bool take_score(Cut *c)
{
    Module *m = c->m;
    AttentionCut *to = c->to;
    int terms = 0;
    for (int i = 0; i < to->form.leaves.len; i++)
        if (!take_read(c, &to->form.leaves.data[i]))
            return false;
    Put x = { m, to };
    module_at(m, at(c, to->form.sum)->span, NULL);
    to->score = put_reads(&x, to->form.score);
    to->slope = slope_by(c, to->form.dot);
    if (to->slope < 0)
        to->slope = node_const(m, 0);
    to->scale = scale_of(c, to->score);
    for (int i = 0; i < to->reads.len; i++) {
        AttentionRead *r = &to->reads.data[i];
        if (r->leaf.whole || r->leaf.side == LEAF_TABLE || !learned(c, r->leaf.node))
            continue;
        r->slope = slope_by(c, r->node);
        terms += r->slope >= 0;
    }
    if (terms > ATTENTION_TERMS)
        return refuse(c, to->form.sum, "its score has more than four learned things");
    return true;
}

/* The score of what else is in the sum of the exponentials: each row's, whatever the pair is. */
static void take_rest(Cut *c)
{
    AttentionCut *to = c->to;
    const NodeId rest = to->form.rest;
    IndexId axes[MOST_AXES];
    AttentionRead r = { .leaf = { LEAF_ROW, rest, rest, false }, .node = rest, .slope = -1 };
    to->rest = -1;
    if (rest < 0)
        return;
    r.operand = (AttentionOperand){ -1, -1, -1 };
    r.operand.now = output_of(c->m, to, rest, axes, axes_of(to, false, NULL, 0, axes), name_of(c, "rest"));
    to->rest = to->reads.len;
    vec_push(c->m->arena, &to->reads, r);
}

/* ---- the maximum and the total, where they are read beside the sum */

/* The logarithm that is given, in place of the maximum; exp(log - log), in place of the total, has its
 * gradient. */
static void put_log(Cut *c, const Normalizer *reads)
{
    Module *m = c->m;
    AttentionCut *to = c->to;
    const IxExpr *map[MOST_AXES];
    IndexId axes[MOST_AXES];
    int n = axes_of(to, false, NULL, 0, axes);
    to->log = new_tensor(m, to, T_INPUT, name_of(c, "log"), axes, n);
    for (int i = 0; i < n; i++)
        map[i] = ix_index(m, axes[i]);
    NodeId log = node_load(m, to->log, map, n), fixed = node_map1(m, OP_STOP, log);
    NodeId one = node_map1(m, OP_EXP, node_map2(m, OP_SUB, log, fixed));
    for (int i = 0; i < reads->reads.len; i++) {
        const NormalizerRead *r = &reads->reads.data[i];
        Node was = *at(c, r->node);
        NodeId value = r->total ? one : fixed;
        if (c->replaced[r->node] >= 0)
            continue;
        c->levels[r->node] = to->level;
        c->replaced[r->node] =
            was.kind == N_ARRAY ? node_array(m, value, was.axes, was.naxes, was.name, was.span) : value;
    }
}

/* Where there are others they have weights, which are made of both. */
static bool take_log(Cut *c, const Attentions *all)
{
    AttentionCut *to = c->to;
    Normalizer reads;
    to->log = -1;
    if (to->form.kind != ATTENTION_SOFTMAX)
        return true;
    bool enough = attention_normalizer(c->m, all, &to->form, &reads);
    if (!enough && to->form.rest >= 0)
        return refuse(c, to->form.sum,
                      "the maximum of its scores, or the sum of its exponentials, is read by itself");
    if (enough && reads.reads.len)
        put_log(c, &reads);
    return true;
}

/* ---- histories */

/* Those of what is read at another step. */
typedef struct Histories {
    TensorId first; /* -1: there is none */
    const Poly *places; /* of the shortest: pairs of a sum are in all of them */
    bool none, unlike; /* a read has none; they are not of one kind, or their order is not known */
} Histories;

static void find_histories(Module *m, NodeId id, Histories *x)
{
    Node n = m->nodes.data[id];
    if (n.step && n.past < 0) {
        x->none = true;
    } else if (n.step) {
        const Tensor *t = &m->tensors.data[n.past];
        x->unlike |= x->first >= 0 && m->tensors.data[x->first].grows != t->grows;
        if (x->first < 0 || (t->axes[0] != x->places && poly_nonneg(poly_sub(m, x->places, t->axes[0]))))
            x->places = t->axes[0];
        else
            x->unlike |= !poly_nonneg(poly_sub(m, t->axes[0], x->places));
        x->first = x->first < 0 ? n.past : x->first;
        return;
    }
    for (int i = 0; i < n.nargs && n.kind == N_MAP; i++)
        find_histories(m, m->nodes.data[id].args[i], x);
}

static Histories histories_of(Module *m, const Attention *a)
{
    Histories x = { .first = -1 };
    find_histories(m, a->k_pair, &x);
    find_histories(m, a->v_pair, &x);
    for (int i = 0; i < a->leaves.len; i++)
        if (a->leaves.data[i].side == LEAF_KEY)
            find_histories(m, a->leaves.data[i].node, &x);
    return x;
}

/* ---- one sum */

static bool take_sizes(Cut *c)
{
    Module *m = c->m;
    AttentionCut *to = c->to;
    const Poly *keys = m->indices.data[to->form.along].extent, *values = poly_const(m, 1);
    for (int i = 0; i < to->form.ncolumns; i++)
        values = poly_mul(m, values, m->indices.data[to->form.columns[i]].extent);
    if (!keys->is_const || !values->is_const)
        return refuse(c, to->form.sum,
                      "the size of its keys or values is known when the library is called: bind it");
    if (keys->value > ATTENTION_SIZE || values->value > ATTENTION_SIZE)
        return refuse(c, to->form.sum, "its keys or values have more than 256 elements");
    to->keys = (int)keys->value;
    to->values = (int)values->value;
    return true;
}

/* What stands in place of the sum. */
static NodeId given(Cut *c)
{
    Module *m = c->m;
    AttentionCut *to = c->to;
    const IxExpr *map[MOST_AXES];
    IndexId axes[MOST_AXES];
    int n = axes_of(to, false, to->form.columns, to->form.ncolumns, axes);
    to->given = new_tensor(m, to, T_INPUT, name_of(c, "sum"), axes, n);
    for (int i = 0; i < n; i++)
        map[i] = ix_index(m, axes[i]);
    NodeId value = node_load(m, to->given, map, n);
    if (to->form.factor >= 0)
        value = node_map2(m, OP_MUL, to->form.factor, value);
    Node sum = *at(c, to->form.sum);
    return node_array(m, value, sum.axes, sum.naxes, sum.name, sum.span);
}

static bool cut_sum(Cut *c, const Attentions *all)
{
    AttentionCut *to = c->to;
    const Attention *a = &to->form;
    IndexId axes[MOST_AXES];
    const Histories past = histories_of(c->m, a);
    if (!take_sizes(c))
        return false;
    if (past.first >= 0 && (past.none || past.unlike))
        return refuse(c, a->sum, "its keys and values have not all the same steps before the call");
    take_heads(c);
    take_level(c);
    to->q = output_of(c->m, to, a->q, axes, axes_of(to, false, &a->along, 1, axes), name_of(c, "query"));
    to->k = take_key(c, a->k, &a->along, 1, name_of(c, "key"));
    to->v = take_key(c, a->v, a->columns, a->ncolumns, name_of(c, "value"));
    if (!take_score(c))
        return false;
    take_rest(c);
    if (!take_log(c, all))
        return false;
    c->replaced[a->sum] = given(c);
    c->levels[a->sum] = to->level;
    return true;
}

static NodeId put_given(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    const Cut *c = r->data;
    (void)whole;
    return old < c->nodes && c->replaced[old] >= 0 ? c->replaced[old] : rebuilt;
}

static const Reason *own_refusal(const Module *m, const Attentions *all)
{
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (m->tensors.data[t].kind == T_STATE)
            return reason_at(m, m->tensors.data[t].span, "state `%s` is walked step by step",
                             m->tensors.data[t].name);
    for (int i = 0; i < all->len; i++)
        if (all->data[i].why)
            return all->data[i].why;
    return all->len ? NULL
                    : reason(m, "it has no sum over the past whose weights are made of products with "
                                "an earlier step");
}

const Reason *attention_cut(Module *m, AttentionCuts *out)
{
    int tensors = m->tensors.len;
    Attentions all = { 0 };
    attention_find(m, &all);
    Cut c = { .m = m, .why = own_refusal(m, &all), .nodes = m->nodes.len };
    c.replaced = arena_alloc(m->arena, sizeof *c.replaced * ((size_t)c.nodes + 1));
    c.levels = arena_alloc(m->arena, sizeof *c.levels * ((size_t)c.nodes + 1));
    for (NodeId id = 0; id < c.nodes; id++)
        c.replaced[id] = -1;
    for (int i = 0; i < all.len && !c.why; i++) {
        AttentionCut x = { .form = all.data[i] };
        c.to = &x;
        if (!cut_sum(&c, &all))
            break;
        m->levels = m->levels > x.level ? m->levels : x.level + 1;
        vec_push(m->arena, out, x);
    }
    module_at(m, m->span, NULL);
    if (c.why) {
        m->tensors.len = m->roots.len = tensors;
        return c.why;
    }
    for (int i = 0; i < m->levels; i++) {
        Rewrite r = { .m = m, .hook = put_given, .data = &c };
        rewrite_roots(&r);
    }
    module_at(m, m->span, NULL);
    return NULL;
}

/* ---- steps before the call */

/* Stands for a history while the sum of products with it is differentiated: `read` is how it is read. */
typedef struct Proxy {
    TensorId tensor, history;
    NodeId read;
} Proxy;
typedef struct Proxies {
    Module *m;
    Proxy data[8];
    int n;
} Proxies;

static TensorId proxy_of(Proxies *x, NodeId read, const AttentionCut *to)
{
    Module *m = x->m;
    const TensorId history = m->nodes.data[read].past;
    for (int i = 0; i < x->n; i++)
        if (x->data[i].history == history)
            return x->data[i].tensor;
    if (x->n == 8)
        bug(m->c, "attention", "a value of another step reads more than eight histories");
    Tensor t = m->tensors.data[history];
    t.kind = T_DHISTORY;
    t.name = intern_f(m->c, "%s_of_%s", t.name, m->tensors.data[to->given].name);
    t.of = history;
    t.chunk = true;
    t.level = to->level;
    t.no_grad = false;
    t.grows = t.reach = false;
    t.range = NULL;
    x->data[x->n] = (Proxy){ module_tensor(m, t), history, read };
    return x->data[x->n++].tensor;
}

/* The value with loads of these in place of reads of steps before the call. */
static NodeId put_proxies(Proxies *x, NodeId id, const IxExpr *place, const AttentionCut *to)
{
    Module *m = x->m;
    Node n = m->nodes.data[id];
    NodeId args[8];
    if (n.step) {
        const IxExpr **map = arena_alloc(m->arena, sizeof *map * (size_t)(n.nmap + 2));
        map[0] = place;
        for (int i = 0; i < n.nmap; i++)
            map[i + 1] = n.map[i];
        return node_load(m, proxy_of(x, id, to), map, n.nmap + 1);
    }
    if (n.kind != N_MAP || n.nargs > 8)
        return id;
    for (int i = 0; i < n.nargs; i++)
        args[i] = put_proxies(x, n.args[i], place, to);
    return node_map(m, n.op, args, n.nargs);
}

/* And back: what is read there stands at its step. */
static NodeId hook_reads(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    const Proxies *x = r->data;
    Module *m = x->m;
    const Node n = m->nodes.data[rebuilt];
    (void)old;
    (void)whole;
    for (int i = 0; n.kind == N_LOAD && i < x->n; i++) {
        if (n.tensor != x->data[i].tensor)
            continue;
        const Node read = m->nodes.data[x->data[i].read];
        const IxExpr *start = ix_index(m, IX_START), *one = ix_const(m, poly_const(m, 1)), *step = n.map[0];
        if (!m->tensors.data[read.past].grows)
            step = ix_sub(m, ix_sub(m, start, one), step);
        return read.kind == N_LOAD ? node_load_at(m, read.tensor, n.map + 1, n.nmap - 1, step, read.past)
                                   : node_view_at(m, read.args[0], n.map + 1, n.nmap - 1, step, read.past);
    }
    return rebuilt;
}

/* Adds to the gradient of a history that of the sum. */
static void add_gradient(Module *m, const Proxy *x, NodeId sum)
{
    const TensorId history = x->history;
    const IndexId *axes;
    DiffInner inner = { sum, x->tensor, -1, no_name, NULL };
    Diff *d = diff_inner(m, &inner);
    if (!diff_reaches(d, sum))
        return;
    NodeId value = diff_inner_value(d, node_const(m, 1), &axes), old = m->roots.data[history].dpast;
    const Tensor *t = &m->tensors.data[history];
    const IxExpr *to[MOST_AXES];
    if (old >= 0) {
        Node was = m->nodes.data[old];
        for (int i = 0; i < was.naxes; i++)
            to[i] = ix_index(m, was.axes[i]);
        value = node_subst(m, value, axes, to, was.naxes);
        value = node_map2(m, OP_ADD, was.args[0], value);
        m->roots.data[history].dpast = node_array(m, value, was.axes, was.naxes, was.name, was.span);
        return;
    }
    m->roots.data[history].dpast =
        node_array(m, value, axes, t->rank, intern_f(m->c, "d_%s", t->name), t->span);
}

/* The operand of steps before the call. `pair`: as the pair reads it. */
static void join_history(Module *m, AttentionCut *to, AttentionOperand *x, NodeId pair, const IndexId *last,
                         int nlast)
{
    Proof p = { .m = m, .to = &to->form, .left = 1 << 14 };
    Histories own = { .first = -1 };
    IndexId axes[MOST_AXES];
    find_histories(m, pair, &own);
    const TensorId history = own.first;
    if (history < 0)
        return;
    const bool grows = m->tensors.data[history].grows;
    const char *name = m->tensors.data[x->now].name;
    axes[0] = module_index(m, intern(m->c, "place"), to->places);
    int n = 1 + axes_of(to, true, last, nlast, axes + 1);
    const IxExpr *place = ix_index(m, axes[0]), *start = ix_index(m, IX_START);
    const IxExpr *before = ix_sub(m, ix_sub(m, start, ix_const(m, poly_const(m, 1))), place);
    NodeId value = of_key_heads(m, to, pair_at_step(&p, pair, grows ? place : before));
    x->past = output_of(m, to, value, axes, n, intern_f(m->c, "%s_past", name));
    if (!m->has_grad)
        return;
    x->d_past = new_tensor(m, to, T_DHISTORY, intern_f(m->c, "d_%s_past", name), axes, n);
    m->tensors.data[x->d_past].of = history;
    const IxExpr *map[MOST_AXES];
    for (int i = 0; i < n; i++)
        map[i] = ix_index(m, axes[i]);
    NodeId there = node_map2(m, OP_AND, node_map2(m, OP_LT, node_index(m, place), node_index(m, start)),
                             node_map2(m, OP_LT, node_whole(m, 0), node_size(m, poly_dim(m, ATOM_T))));
    Proxies all = { .m = m };
    NodeId is = node_select(m, there, put_proxies(&all, value, place, to), node_const(m, 0));
    NodeId sum = node_reduce(m, R_SUM, node_map2(m, OP_MUL, node_load(m, x->d_past, map, n), is), axes, n);
    for (int i = 0; i < all.n; i++)
        if (!m->tensors.data[all.data[i].history].no_grad)
            add_gradient(m, &all.data[i], sum);
    Rewrite r = { .m = m, .hook = hook_reads, .data = &all };
    rewrite_roots(&r);
}

void attention_join_histories(Module *m, AttentionCuts *cuts)
{
    for (int i = 0; i < cuts->len; i++) {
        AttentionCut *to = &cuts->data[i];
        const Attention *a = &to->form;
        const Histories past = histories_of(m, a);
        to->places = past.places;
        to->history = past.first >= 0;
        if (!to->history)
            continue;
        module_at(m, m->nodes.data[a->sum].span, NULL);
        join_history(m, to, &to->k, a->k_pair, &a->along, 1);
        join_history(m, to, &to->v, a->v_pair, a->columns, a->ncolumns);
        for (int k = 0; k < to->reads.len; k++)
            if (to->reads.data[k].leaf.side == LEAF_KEY && !to->reads.data[k].leaf.whole)
                join_history(m, to, &to->reads.data[k].operand, to->reads.data[k].leaf.node, NULL, 0);
    }
    module_at(m, m->span, NULL);
}
