/* attention.c: which sums over the past are attention. In comes a module in normal form without its adjoint;
 * out goes, for each sum over the past with columns whose weights are made of products with an earlier step,
 * its form (attention.h), or the term that forbids it and its place. A sum is taken apart into what has the
 * columns and belongs to the other step alone, the values, and all else, the weight. A weight is that of a
 * softmax where it is exp(x), and all that x adds and the weight divides by, beside values of the pair, is
 * the maximum of these values and the sum of such terms over the same pairs: however that is spelt. Values
 * over the past that have a name are looked through; no cell and no function is known by name. */
#include <math.h>

#include "ir/factors.h"
#include "ir/marks.h"
#include "score.h"

enum { MOST_VISITS = 1 << 14 };

static Node at(const Proof *p, NodeId id)
{
    return p->m->nodes.data[id];
}

bool pair_refuse(Proof *p, NodeId where, const char *fmt, ...)
{
    va_list ap;
    if (p->to->why)
        return false;
    va_start(ap, fmt);
    p->to->why = reason_at(p->m, at(p, where).span, "%s", arena_text(p->m->arena, fmt, ap));
    va_end(ap);
    return false;
}

bool varies_with(const Module *m, NodeId id, IndexId i)
{
    const Node *n = &m->nodes.data[id];
    for (int k = 0; k < n->naxes; k++)
        if (n->axes[k] == i)
            return true;
    return false;
}

/* ---- what is a sum over the past */

enum { IS_SUM = 1, NEEDS_SUM = 2, READS_BACK = 4 };

/* Is the index in a step that is read below, through arrays over it? `seen` has, of each node, the index for
 * which it was looked at last, plus one. */
static bool reads_back_by(const Module *m, NodeId id, IndexId i, Marks *seen)
{
    const Node *n = &m->nodes.data[id];
    if (!varies_with(m, id, i) || marks_get(seen, id) == i + 1)
        return false;
    marks_set(seen, id, i + 1);
    if (n->step)
        return ix_uses(n->step, i);
    if (n->kind == N_VIEW) {
        const Node *array = &m->nodes.data[n->args[0]];
        for (int k = 0; k < n->nmap; k++)
            if (ix_uses(n->map[k], i) && reads_back_by(m, array->args[0], array->axes[k], seen))
                return true;
        return false;
    }
    for (int k = 0; k < n->nargs; k++)
        if (reads_back_by(m, n->args[k], i, seen))
            return true;
    return false;
}

bool pair_reads_back(const Module *m, NodeId id, IndexId i)
{
    Marks *seen = marks_begin(m);
    bool back = reads_back_by(m, id, i, seen);
    marks_end(seen);
    return back;
}

/* The bound index that says how far a sum's terms look back; -1: they do not. */
static IndexId distance_of(const Module *m, const Node *reduce)
{
    IndexId found = -1;
    Marks *seen = marks_begin(m);
    for (int i = 0; i < reduce->nbound && found < 0; i++)
        if (reduce->bound[i] >= IX_FIRST && reads_back_by(m, reduce->args[0], reduce->bound[i], seen))
            found = reduce->bound[i];
    marks_end(seen);
    return found;
}

/* Arguments stand before their uses, so one pass over what is new tells. */
static int past_bits(Proof *p, NodeId id)
{
    while (p->past.len <= id) {
        Node n = at(p, p->past.len);
        char bits = 0;
        for (int i = 0; i < n.nargs; i++)
            bits |= p->past.data[n.args[i]] & (NEEDS_SUM | READS_BACK);
        if (n.step)
            bits |= READS_BACK;
        if (n.kind == N_ARRAY && at(p, n.args[0]).kind == N_REDUCE && (bits & READS_BACK)) {
            Node reduce = at(p, n.args[0]);
            if (distance_of(p->m, &reduce) >= 0)
                bits |= IS_SUM | NEEDS_SUM;
        }
        vec_push(p->m->arena, &p->past, bits);
    }
    return p->past.data[id];
}

bool pair_is_sum(Proof *p, NodeId array)
{
    return past_bits(p, array) & IS_SUM;
}

bool pair_needs_sum(Proof *p, NodeId id)
{
    return past_bits(p, id) & NEEDS_SUM;
}

/* ---- looking through arrays */

/* Arrays of a pair, and those of a row that are made of sums over the past, but for these sums. */
static bool is_open(Proof *p, NodeId array, NodeId as)
{
    bool pair = varies_with(p->m, as, p->to->w) && (at(p, array).dep & (DEP_TIME | DEP_BATCH));
    bool sum = at(p, at(p, array).args[0]).kind == N_REDUCE;
    return pair ? !pair_is_sum(p, array) : !sum && pair_needs_sum(p, array);
}

/* Whether the maximum of a row is finite, which logsumexp asks, is true where a row has a pair. */
static bool is_finite_check(Proof *p, NodeId id)
{
    Node n = at(p, id);
    if (n.kind != N_MAP || n.op != OP_LT || at(p, n.args[0]).kind != N_MAP || at(p, n.args[0]).op != OP_ABS)
        return false;
    Node most = at(p, n.args[1]);
    return most.kind == N_CONST && most.value > 1e300 && pair_needs_sum(p, n.args[0]);
}

static NodeId highest_of(Proof *p, NodeId id);
static bool adds_exponentials(Proof *p, NodeId value);

/* Is it the maximum of a row, or its sum of exponentials, but for rows without a pair: `-inf < max ? max
 * : 0`, `0 < total ? total : 1`, as softmax has them? */
static bool is_guarded(Proof *p, const Node *n)
{
    Node c = at(p, n->args[0]), least = c.kind == N_MAP ? at(p, c.args[0]) : c, other = at(p, n->args[2]);
    if (c.kind != N_MAP || c.op != OP_LT || c.args[1] != n->args[1] || least.kind != N_CONST ||
        other.kind != N_CONST || !pair_needs_sum(p, n->args[1]))
        return false;
    if (least.value == -INFINITY && other.value == 0)
        return highest_of(p, pair_open(p, n->args[1])) != -1;
    return least.value == 0 && other.value == 1 && adds_exponentials(p, pair_open(p, n->args[1]));
}

bool pair_is_guard(Proof *p, NodeId select)
{
    Node n = at(p, select);
    return is_finite_check(p, n.args[0]) || is_guarded(p, &n);
}

NodeId pair_open(Proof *p, NodeId id)
{
    Module *m = p->m;
    Node n = at(p, id);
    NodeId args[8];
    bool same = true;
    if (--p->left < 0)
        return id;
    if (n.kind == N_ARRAY && is_open(p, id, id))
        return pair_open(p, n.args[0]);
    if (n.kind == N_VIEW && !n.step && is_open(p, n.args[0], id)) {
        Node array = at(p, n.args[0]);
        return pair_open(p, node_subst(m, array.args[0], array.axes, n.map, array.naxes));
    }
    if (n.kind != N_MAP || n.nargs > 8)
        return id;
    if (n.op == OP_SELECT && pair_is_guard(p, id))
        return pair_open(p, n.args[1]);
    for (int i = 0; i < n.nargs; i++) {
        args[i] = pair_open(p, n.args[i]);
        same &= args[i] == n.args[i];
    }
    module_at(m, n.span, n.chain);
    return same ? id : node_map(m, n.op, args, n.nargs);
}

/* The terms of a reduction over the past that a row reads, of the same pairs, open; -1: it has other
 * distances. */
static NodeId terms_of(Proof *p, NodeId read)
{
    Module *m = p->m;
    Node r = at(p, read), array = r.kind == N_VIEW ? at(p, r.args[0]) : r;
    NodeId sum = array.args[0];
    if (r.kind == N_VIEW)
        sum = node_subst(m, sum, array.axes, r.map, array.naxes);
    Node reduce = at(p, sum);
    IndexId w = distance_of(m, &reduce);
    const IxExpr *to = ix_index(m, p->to->w);
    if (reduce.nbound != 1 || w < 0 || m->indices.data[w].extent != p->to->distances)
        return -1;
    return pair_open(p, node_subst(m, reduce.args[0], &w, &to, 1));
}

static NodeId total_of(Proof *p, NodeId value);

/* Is the value a sum of exponentials of pairs, and perhaps of others? */
static bool adds_exponentials(Proof *p, NodeId value)
{
    NodeId read = total_of(p, value), terms = read < 0 ? -1 : terms_of(p, read);
    if (terms < 0)
        return false;
    Factors f = factors_of(p->m, terms, true);
    Node e = at(p, f.all.data[0].value);
    return f.all.len == 1 && !f.negative && !f.all.data[0].divides && e.kind == N_MAP && e.op == OP_EXP;
}

/* ---- the weight of a softmax */

/* What an exponent adds up: of the pair, and of the row the maximum and the logarithm of the total. */
typedef struct Exponent {
    NodeId score; /* -1: none */
    NodeId shift, max; /* the maximum as it stands, and of the pairs alone: the array; -1: none */
    NodeId total; /* -1: none */
    bool other; /* it has several of one kind, or adds what it should subtract */
} Exponent;

/* The array of a reduction over the past that a value of the row is; -1: it is none. */
static NodeId sum_read(Proof *p, NodeId id)
{
    Node n = at(p, id);
    if (n.kind == N_MAP && n.op == OP_STOP)
        return sum_read(p, n.args[0]);
    if (n.kind == N_VIEW && !n.step)
        return pair_is_sum(p, n.args[0]) ? id : -1;
    return n.kind == N_ARRAY && pair_is_sum(p, id) ? id : -1;
}

static NodeId array_of(const Proof *p, NodeId read)
{
    return at(p, read).kind == N_VIEW ? at(p, read).args[0] : read;
}

static ReduceOp reduction_of(const Proof *p, NodeId read)
{
    return at(p, at(p, array_of(p, read)).args[0]).reduce;
}

enum { SEVERAL = -2 };

/* The array of the one sum over the past in a value of the row that is it, or its like with other values:
 * a maximum of maxima, a sum of sums; -1: there is none; SEVERAL. */
static NodeId read_among(Proof *p, NodeId id, Op op, ReduceOp reduce)
{
    Node n = at(p, id);
    if (!pair_needs_sum(p, id) || --p->left < 0)
        return -1;
    if (n.kind == N_MAP && n.op == OP_STOP && op == OP_MAX)
        return read_among(p, n.args[0], op, reduce);
    if (n.kind != N_MAP || n.op != op) {
        NodeId read = sum_read(p, id);
        return read >= 0 && reduction_of(p, read) == reduce ? read : -1;
    }
    NodeId a = read_among(p, n.args[0], op, reduce), b = read_among(p, n.args[1], op, reduce);
    return a == -1 ? b : b == -1 ? a : SEVERAL;
}

static NodeId highest_of(Proof *p, NodeId id)
{
    return read_among(p, id, OP_MAX, R_MAX);
}

static NodeId total_of(Proof *p, NodeId value)
{
    return read_among(p, value, OP_ADD, R_SUM);
}

static void put_once(Exponent *out, NodeId *to, NodeId read, bool minus)
{
    out->other |= *to >= 0 || !minus;
    *to = read;
}

static void take_exponent(Proof *p, NodeId id, bool minus, Exponent *out)
{
    Module *m = p->m;
    Node n = at(p, id);
    bool map = n.kind == N_MAP;
    if (--p->left < 0)
        return;
    if (map && (n.op == OP_ADD || n.op == OP_SUB || n.op == OP_NEG) && pair_needs_sum(p, id)) {
        take_exponent(p, n.args[0], minus != (n.op == OP_NEG), out);
        if (n.op != OP_NEG)
            take_exponent(p, n.args[1], minus != (n.op == OP_SUB), out);
        return;
    }
    bool row = !varies_with(m, id, p->to->w);
    NodeId sum = row ? highest_of(p, id) : -1;
    if (sum == SEVERAL) {
        out->max = id;
        out->other = true;
        return;
    }
    if (sum >= 0) {
        put_once(out, &out->max, sum, minus);
        out->shift = id;
        return;
    }
    if (row && map && n.op == OP_LOG && total_of(p, n.args[0]) >= 0) {
        put_once(out, &out->total, n.args[0], minus);
        return;
    }
    if (out->score < 0)
        out->score = minus ? node_map1(m, OP_NEG, id) : id;
    else
        out->score = node_map2(m, minus ? OP_SUB : OP_ADD, out->score, id);
}

static Exponent exponent_of(Proof *p, NodeId x)
{
    Exponent e = { -1, -1, -1, -1, false };
    take_exponent(p, x, false, &e);
    return e;
}

/* Of `c ? x : -inf`, however deep: x; conditions go to `guards`. */
static NodeId below_masks(Proof *p, NodeId id, NodeId *guards, int *n)
{
    Node x = at(p, id);
    while (x.kind == N_MAP && x.op == OP_SELECT && *n < 8 && at(p, x.args[2]).kind == N_CONST &&
           at(p, x.args[2]).value < -1e300) {
        guards[(*n)++] = x.args[0];
        id = x.args[1];
        x = at(p, id);
    }
    return id;
}

/* Is it the maximum of this score? */
static bool is_maximum(Proof *p, NodeId read, NodeId score)
{
    NodeId guards[8];
    int n = 0;
    NodeId terms = terms_of(p, read);
    if (terms < 0)
        return false;
    return terms == score || below_masks(p, terms, guards, &n) == score;
}

static NodeId unstopped(const Proof *p, NodeId id)
{
    while (id >= 0 && at(p, id).kind == N_MAP && at(p, id).op == OP_STOP)
        id = at(p, id).args[0];
    return id;
}

static bool subtracts(const Proof *p, const Exponent *x, NodeId shift)
{
    return !x->other && x->total < 0 && unstopped(p, x->shift) == unstopped(p, shift);
}

/* Is it the sum of exp(score - shift), but for what it adds beside pairs? Its conditions are those of the
 * pairs. */
static bool is_total(Proof *p, NodeId total, NodeId score, NodeId shift, Factors *out)
{
    NodeId read = total_of(p, total), terms = read < 0 ? -1 : terms_of(p, read);
    if (terms < 0)
        return false;
    *out = factors_of(p->m, terms, true);
    if (out->all.len != 1 || out->negative || out->all.data[0].divides)
        return false;
    Node e = at(p, out->all.data[0].value);
    if (e.kind != N_MAP || e.op != OP_EXP)
        return false;
    Exponent x = exponent_of(p, e.args[0]);
    return x.score == score && subtracts(p, &x, shift);
}

/* ---- what a softmax adds beside pairs */

/* Does the value depend on the node? */
static bool contains(const Proof *p, NodeId id, NodeId node, Marks *seen)
{
    const Node *n = &p->m->nodes.data[id];
    if (id == node)
        return true;
    for (int i = 0; i < n->nargs && marks_first(seen, id); i++)
        if (contains(p, p->m->nodes.data[id].args[i], node, seen))
            return true;
    return false;
}

static bool is_of_itself(const Proof *p, NodeId id, NodeId read)
{
    Marks *seen = marks_begin(p->m);
    bool is = read >= 0 && contains(p, id, array_of(p, read), seen);
    marks_end(seen);
    return is;
}

/* The exponentials of other places: that of one, or the sum of those over an index. */
static bool add_other(Proof *p, NodeId id, const Exponent *e)
{
    Module *m = p->m;
    AttentionOther other = { .index = -1 };
    NodeId guard = -1;
    Node n = at(p, pair_open(p, id));
    while (n.kind == N_ARRAY || (n.kind == N_VIEW && !n.step)) {
        Node array = n.kind == N_VIEW ? at(p, n.args[0]) : n;
        id = n.kind == N_VIEW ? node_subst(m, array.args[0], array.axes, n.map, array.naxes) : n.args[0];
        n = at(p, pair_open(p, id));
    }
    if (n.kind == N_REDUCE && n.reduce == R_SUM && n.nbound == 1 && n.bound[0] >= IX_FIRST) {
        other.index = n.bound[0];
        n = at(p, pair_open(p, n.args[0]));
    }
    while (n.kind == N_ARRAY)
        n = at(p, pair_open(p, n.args[0]));
    if (n.kind == N_MAP && n.op == OP_SELECT && at(p, n.args[2]).kind == N_CONST &&
        at(p, n.args[2]).value == 0) {
        guard = n.args[0];
        n = at(p, n.args[1]);
    }
    if (n.kind != N_MAP || n.op != OP_EXP)
        return false;
    Exponent x = exponent_of(p, n.args[0]);
    other.score = x.score < 0 ? node_const(m, 0) : x.score;
    if (guard >= 0)
        other.score = node_select(m, guard, other.score, node_const(m, -INFINITY));
    vec_push(m->arena, &p->to->others, other);
    return subtracts(p, &x, e->shift) && !is_of_itself(p, other.score, e->max) &&
           !varies_with(m, other.score, p->to->w);
}

static bool add_others(Proof *p, NodeId total, NodeId read, const Exponent *e)
{
    Node n = at(p, total);
    if (total_of(p, total) == read && n.kind == N_MAP && n.op == OP_ADD)
        return add_others(p, n.args[0], read, e) && add_others(p, n.args[1], read, e);
    return sum_read(p, total) == read || add_other(p, total, e);
}

static NodeId of_axes(Proof *p, NodeId value)
{
    Node n = at(p, value);
    return node_array(p->m, value, n.axes, n.naxes, NULL, at(p, p->to->sum).span);
}

/* log sum exp of what it adds, of which a number that is no more than the largest one is taken off. */
static NodeId others_log(Proof *p)
{
    Module *m = p->m;
    const Attention *a = p->to;
    NodeId top = -1, sum = -1, none = node_const(m, -INFINITY);
    module_at(m, at(p, a->sum).span, NULL);
    if (a->others.len == 1 && a->others.data[0].index < 0)
        return a->others.data[0].score;
    for (int i = 0; i < a->others.len; i++) {
        const AttentionOther *x = &a->others.data[i];
        NodeId most = x->index < 0 ? x->score : node_reduce(m, R_MAX, x->score, &x->index, 1);
        top = top < 0 ? most : node_map2(m, OP_MAX, top, most);
    }
    top = of_axes(p, node_map1(m, OP_STOP, top));
    NodeId some = node_map2(m, OP_LT, none, top);
    for (int i = 0; i < a->others.len; i++) {
        const AttentionOther *x = &a->others.data[i];
        NodeId e = node_map1(m, OP_EXP, node_map2(m, OP_SUB, x->score, top));
        e = x->index < 0 ? e : node_reduce(m, R_SUM, e, &x->index, 1);
        sum = sum < 0 ? e : node_map2(m, OP_ADD, sum, e);
    }
    NodeId value = node_map2(m, OP_ADD, top, node_map1(m, OP_LOG, sum));
    return of_axes(p, node_select(m, some, value, none));
}

/* ---- the sum */

typedef struct Sorted {
    NodeId value, row, weight; /* products; -1: of nothing */
    NodeId exp, total; /* of the weight: its exponent, what it is divided by */
    NodeId beside; /* the first factor that is of the pair and no such exponent */
} Sorted;

/* Does the factor have columns: does it vary over an axis that no weight varies over? */
static bool has_column(const Proof *p, NodeId id)
{
    for (int i = 0; i < p->to->ncolumns; i++)
        if (varies_with(p->m, id, p->to->columns[i]))
            return true;
    return false;
}

static void sort_factor(Proof *p, Factor f, Sorted *s)
{
    Module *m = p->m;
    Node n = at(p, f.value);
    bool pair = varies_with(m, f.value, p->to->w);
    if (pair && pair_of_key(p, f.value) >= 0) {
        s->value = times_factor(m, s->value, f);
    } else if (pair && !f.divides && n.kind == N_MAP && n.op == OP_EXP && s->exp < 0) {
        s->exp = n.args[0];
    } else if (!pair && f.divides && s->total < 0 && total_of(p, f.value) >= 0) {
        s->total = f.value;
    } else if (pair) {
        s->beside = s->beside < 0 ? f.value : s->beside;
        s->weight = times_factor(m, s->weight, f);
    } else {
        s->row = times_factor(m, s->row, f);
    }
}

/* An axis of which only values know is one of columns, others are of heads. */
static void sort_axes(Proof *p, const Factors *f)
{
    Module *m = p->m;
    Attention *a = p->to;
    Node sum = at(p, a->sum);
    IndexId *heads = arena_alloc(m->arena, sizeof *heads * (size_t)(sum.naxes + 1));
    int n = 0;
    a->columns = arena_alloc(m->arena, sizeof *a->columns * (size_t)(sum.naxes + 1));
    for (int i = 0; i < sum.naxes; i++) {
        bool value = false, weight = false;
        for (int k = 0; k < f->all.len; k++) {
            NodeId x = f->all.data[k].value;
            bool has = varies_with(m, x, sum.axes[i]);
            bool key = has && varies_with(m, x, a->w) && pair_of_key(p, x) >= 0;
            value |= key;
            weight |= has && !key;
        }
        for (int k = 0; k < f->guards.len; k++)
            weight |= varies_with(m, f->guards.data[k].condition, sum.axes[i]);
        if (value && !weight)
            a->columns[a->ncolumns++] = sum.axes[i];
        else
            heads[n++] = sum.axes[i];
    }
    a->heads = arena_alloc(m->arena, sizeof *a->heads * (size_t)(n + 1));
    for (a->nheads = 0; a->nheads < n; a->nheads++)
        a->heads[a->nheads].axis = heads[a->nheads];
}

/* A softmax: its score, and the conditions of its pairs. */
static bool take_softmax(Proof *p, const Sorted *s)
{
    Attention *a = p->to;
    Factors own = { 0 };
    Exponent e = exponent_of(p, s->exp);
    NodeId total = s->total >= 0 ? s->total : e.total;
    if (e.other || (s->total >= 0 && e.total >= 0) || e.score < 0)
        return pair_refuse(p, s->exp, "a weight is the exponential of several sums over the past");
    if (e.max >= 0 && !is_maximum(p, e.max, e.score))
        return pair_refuse(p, array_of(p, e.max),
                           "what is subtracted in the exponent is not the maximum of the same scores");
    if (total < 0)
        return pair_refuse(p, s->exp, "the exponentials are not divided by their sum");
    NodeId read = total_of(p, total);
    if (!is_total(p, total, e.score, e.shift, &own))
        return pair_refuse(p, array_of(p, read), "a weight is not divided by the sum of the weights");
    if (!add_others(p, total, read, &e))
        return pair_refuse(p, array_of(p, read),
                           "what is added to the sum of the weights is no sum of such exponentials");
    a->shift = e.shift;
    a->total = total;
    a->rest = a->others.len ? others_log(p) : -1;
    for (int i = 0; i < own.guards.len; i++)
        pair_condition(p, own.guards.data[i].condition);
    a->kind = ATTENTION_SOFTMAX;
    a->score = pair_masks(p, e.score);
    return true;
}

/* Is the weight meant as one: does it take off the maximum, or a total; or is it divided by its own sum? */
static bool is_softmax(Proof *p, const Sorted *s)
{
    Factors own;
    Exponent e = exponent_of(p, s->exp);
    return e.max >= 0 || e.total >= 0 ||
           (s->total >= 0 && !e.other && e.score >= 0 && is_total(p, s->total, e.score, -1, &own));
}

static NodeId product(Proof *p, NodeId a, NodeId b)
{
    return a < 0 ? b : b < 0 ? a : node_map2(p->m, OP_MUL, a, b);
}

static bool take_weights(Proof *p, const Sorted *s)
{
    Attention *a = p->to;
    a->kind = ATTENTION_WEIGHTS;
    NodeId weight = s->exp < 0 ? s->weight : product(p, node_map1(p->m, OP_EXP, s->exp), s->weight);
    a->score = weight;
    return true;
}

static bool take_factors(Proof *p, const Factors *f)
{
    Attention *a = p->to;
    Sorted s = { -1, -1, -1, -1, -1, -1 };
    sort_axes(p, f);
    for (int i = 0; i < f->all.len; i++)
        sort_factor(p, f->all.data[i], &s);
    if (f->negative)
        s.row = node_map1(p->m, OP_NEG, s.row < 0 ? node_const(p->m, 1) : s.row);
    if (s.value < 0)
        return pair_refuse(p, a->sum, "nothing that it adds up is of the earlier step alone");
    a->v = pair_of_key(p, s.value);
    a->v_pair = s.value;
    a->factor = s.row;
    bool softmax = s.exp >= 0 && is_softmax(p, &s);
    if (softmax && s.beside >= 0)
        return pair_refuse(p, s.beside, "the weights of a softmax are multiplied by a value of both steps");
    if (!softmax && s.total >= 0)
        a->factor = times_factor(p->m, a->factor, (Factor){ s.total, true });
    if (!softmax && s.exp < 0 && s.weight < 0)
        return pair_refuse(p, a->sum, "its terms have no weight of both steps");
    if (!(softmax ? take_softmax(p, &s) : take_weights(p, &s)))
        return false;
    for (int i = 0; i < f->guards.len; i++) {
        NodeId c = f->guards.data[i].condition;
        if (a->kind == ATTENTION_WEIGHTS)
            pair_condition(p, c);
        else if (!pair_is_implied(p, c))
            return pair_refuse(p, c, "a condition on what is weighed is none on the weights");
    }
    if (a->factor >= 0 && has_column(p, a->factor))
        return pair_refuse(p, a->factor, "a factor of this step varies with the values");
    return true;
}

static bool take_sum(Proof *p)
{
    Attention *a = p->to;
    Node sum = at(p, a->sum), reduce = at(p, sum.args[0]);
    if (reduce.nbound != 1)
        return pair_refuse(p, a->sum, "it sums over other indices beside the distance");
    NodeId terms = pair_open(p, reduce.args[0]);
    Factors f = factors_of(p->m, terms, true);
    if (!take_factors(p, &f) || !pair_score(p, a->score) || !pair_steps(p) || !pair_heads(p))
        return false;
    if (p->left < 0)
        return pair_refuse(p, a->sum, "its terms are too large");
    return true;
}

/* ---- which sums */

/* Does the value multiply one of this step with one of another, and add up the products? */
static bool has_product(Proof *p, NodeId id)
{
    Node n = at(p, id);
    if (--p->left < 0)
        return false;
    if (n.kind == N_ARRAY || n.kind == N_VIEW) {
        NodeId array = n.kind == N_VIEW ? n.args[0] : id;
        if (n.step || !varies_with(p->m, id, p->to->w) || pair_is_sum(p, array))
            return false;
        Node a = at(p, array), body = at(p, a.args[0]);
        if (body.kind != N_REDUCE)
            return has_product(p, pair_open(p, id));
        return body.reduce == R_SUM && (past_bits(p, array) & READS_BACK);
    }
    for (int i = 0; n.kind == N_MAP && i < n.nargs; i++)
        if (has_product(p, at(p, id).args[i]))
            return true;
    return n.kind == N_REDUCE && n.reduce == R_SUM && (past_bits(p, id) & READS_BACK);
}

/* A sum with a value of the earlier step beside a weight. */
static bool has_values(Proof *p, NodeId terms)
{
    Factors f = factors_of(p->m, terms, true);
    for (int i = 0; i < f.all.len; i++) {
        NodeId x = f.all.data[i].value;
        if (varies_with(p->m, x, p->to->w) && pair_reads(p->m, x) && pair_of_key(p, x) >= 0)
            return true;
    }
    return false;
}

static bool is_candidate(Proof *p)
{
    Module *m = p->m;
    Attention *a = p->to;
    Node sum = at(p, a->sum), reduce = at(p, sum.args[0]);
    a->w = distance_of(m, &reduce);
    if (reduce.reduce != R_SUM || a->w < 0)
        return false;
    a->distances = m->indices.data[a->w].extent;
    NodeId terms = pair_open(p, reduce.args[0]);
    return has_product(p, terms) && has_values(p, terms);
}

static void mark(Proof *p, NodeId id, Marks *seen)
{
    if (id < 0 || !marks_first(seen, id))
        return;
    for (int i = 0; i < at(p, id).nargs; i++)
        mark(p, at(p, id).args[i], seen);
}

static void mark_forward(Proof *p, Marks *seen)
{
    Module *m = p->m;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        mark(p, m->roots.data[t].output, seen);
        mark(p, m->roots.data[t].next, seen);
        mark(p, m->roots.data[t].init, seen);
    }
}

static bool find_sums(Module *m, Attentions *out)
{
    NodeId nodes = m->nodes.len;
    Proof p = { .m = m };
    bool all = true;
    Marks *seen = marks_begin(m);
    mark_forward(&p, seen);
    for (NodeId id = 0; id < nodes; id++) {
        if (!marks_get(seen, id) || m->nodes.data[id].kind != N_ARRAY || !pair_is_sum(&p, id))
            continue;
        Attention a = { .sum = id, .name = m->nodes.data[id].name, .w = -1, .factor = -1, .dot = -1 };
        a.shift = a.total = a.rest = -1;
        a.other = module_index(m, intern(m->c, "s"), poly_dim(m, ATOM_PAST));
        p.to = &a;
        p.left = MOST_VISITS;
        if (!is_candidate(&p))
            continue;
        a.why = NULL;
        p.left = MOST_VISITS;
        if (!take_sum(&p) && !a.why)
            a.why = reason_at(m, m->nodes.data[id].span, "it is not of the form of attention");
        all &= !a.why;
        vec_push(m->arena, out, a);
    }
    marks_end(seen);
    module_at(m, m->span, NULL);
    return all;
}

void attention_find(Module *m, Attentions *out)
{
    *out = (Attentions){ 0 };
    if (find_sums(m, out) || !attention_split(m))
        return;
    *out = (Attentions){ 0 };
    find_sums(m, out);
}
