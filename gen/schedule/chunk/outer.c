/* outer.c: the cut of a step for schedule chunk. In comes a module in normal form without its adjoint; out
 * goes the same one without the recurrence of its states: their operands are outputs, their reads are inputs,
 * and the states have no next value. So differentiate gives the adjoint of all that stands around the walk:
 * the cotangent of an operand (T_DOUT) is what the walk's backward leaves, the gradient of a read (dinput)
 * what it takes. An operand may depend on reads of states that stand before it, which is what levels say, and
 * on states that stay in the module. Guaranteed: nothing is left that reads an element of a state that is
 * cut. */
#include <math.h>

#include "base/mutate.h"
#include "ir/marks.h"
#include "ir/rewrite.h"
#include "outer.h"
#include "rows.h"
#include "terms.h"

enum { MAX_ROW_AXES = MAX_STATE_AXES + 2 };

/* What a tensor of the walk varies over beside the row and the heads. */
typedef enum { OF_HEADS = 0, OF_KEYS = 1, OF_VALUES = 2, OF_MATRIX = 4 } Over;

typedef struct Cut {
    Module *m;
    const ChunkComponent *k;
    ChunkCut *to;
    NodeId *replaced; /* per node that there was, `nodes` of them: what stands in its place, or -1 */
    NodeId nodes;
    const Reason *why;
    const bool *cuts; /* per tensor: a state that is cut */
    IndexId row; /* counts the updates of a step */
    IndexId pair, matrix; /* of two states that feed one another: i; 2 i + j */
} Cut;

static const Node *at(const Cut *c, NodeId id)
{
    return &c->m->nodes.data[id];
}

static const char *state_name(const Cut *c)
{
    return c->m->tensors.data[c->k->states[0]].name;
}

static bool refuse(Cut *c, const char *why)
{
    if (!c->why)
        c->why = reason_at(c->m, c->m->tensors.data[c->k->states[0]].span, "state `%s` has %s", state_name(c),
                           why);
    return false;
}

/* ---- operands ---- */

static bool is_one(const Cut *c, NodeId id)
{
    return at(c, id)->kind == N_CONST && at(c, id)->value == 1;
}

/* Takes constants out of the product. */
static NodeId without_scale(const Cut *c, NodeId id, double *scale)
{
    const Node *n = at(c, id);
    if (n->kind == N_CONST) {
        *scale *= n->value;
        return -1;
    }
    if (n->kind == N_MAP && n->op == OP_NEG) {
        *scale = -*scale;
        return without_scale(c, n->args[0], scale);
    }
    if (n->kind == N_MAP && n->op == OP_MUL && at(c, n->args[0])->kind == N_CONST) {
        *scale *= at(c, n->args[0])->value;
        return without_scale(c, n->args[1], scale);
    }
    return id;
}

static TensorId new_tensor(Cut *c, TensorKind kind, const char *name, const IndexId *axes, int n)
{
    Tensor t = { .name = name, .kind = kind, .span = c->m->tensors.data[c->k->states[0]].span };
    return module_tensor_between(c->m, t, axes, n);
}

static bool is_read(const Node *n)
{
    return n->kind == N_LOAD || n->kind == N_VIEW || n->kind == N_ARRAY;
}

static bool has_index(const IndexId *axes, int n, IndexId i)
{
    for (int k = 0; k < n; k++)
        if (axes[k] == i)
            return true;
    return false;
}

/* The value as an output over the given axes. What is no plain read is an array over what it varies over, so
 * that it is made once for all places that share it. */
static TensorId output_of(Cut *c, NodeId value, const IndexId *axes, int n, const char *name)
{
    Module *m = c->m;
    Node v = *at(c, value);
    Span span = m->tensors.data[c->k->states[0]].span;
    module_at(m, span, NULL);
    if (!is_read(&v)) {
        IndexId own[MAX_ROW_AXES];
        int n_own = 0;
        for (int i = 0; i < n; i++)
            if (has_index(v.axes, v.naxes, axes[i]))
                own[n_own++] = axes[i];
        if (n_own < n)
            value = node_array(m, value, own, n_own, name, span);
    }
    TensorId t = new_tensor(c, T_OUTPUT, name, axes, n);
    m->roots.data[t].output = node_array(m, value, axes, n, name, span);
    return t;
}

/* How many walks stand before what the value is made of; -1: it reads an element of a state that is cut. */
static int level_of(const Cut *c, NodeId id, Marks *seen)
{
    const Node *n = at(c, id);
    int most = 0;
    if (!marks_first(seen, id))
        return 0;
    if (id < c->nodes && c->replaced[id] >= 0)
        return level_of(c, c->replaced[id], seen);
    if (n->kind == N_LOAD) {
        const Tensor *t = &c->m->tensors.data[n->tensor];
        if (t->kind == T_STATE && c->cuts[n->tensor])
            return -1;
        return t->kind == T_INPUT && t->chunk ? t->level + 1 : 0;
    }
    for (int i = 0; i < n->nargs; i++) {
        int level = level_of(c, at(c, id)->args[i], seen);
        if (level < 0)
            return -1;
        most = level > most ? level : most;
    }
    return most;
}

static int levels_before(const Cut *c, NodeId id)
{
    Marks *seen = marks_begin(c->m);
    int level = level_of(c, id, seen);
    marks_end(seen);
    return level;
}

static bool is_coupled(const Cut *c)
{
    return c->k->nstates > 1;
}

/* The axes of the heads; and behind them the key's, or the values'. Before them, where a step has several
 * updates, the row. */
static int axes_of(const Cut *c, Over over, IndexId *out)
{
    const ChunkCut *x = c->to;
    int n = 0;
    if (x->updates > 1)
        out[n++] = c->row;
    for (int i = 0; i < x->nheads; i++)
        out[n++] = c->k->axes[x->heads[i]];
    if (over & OF_KEYS)
        out[n++] = c->k->axes[x->key];
    if (over & OF_KEYS && is_coupled(c))
        out[n++] = c->pair;
    if (over & OF_MATRIX)
        out[n++] = c->matrix;
    for (int i = 0; i < x->nvalues && over & OF_VALUES; i++)
        out[n++] = c->k->axes[x->values[i]];
    return n;
}

static bool varies_within(const Cut *c, NodeId id, const IndexId *axes, int n)
{
    for (int i = 0; i < at(c, id)->naxes; i++)
        if (!has_index(axes, n, at(c, id)->axes[i]))
            return false;
    return true;
}

/* The vector with the key's own index in place of the one that sums over keys have. */
static NodeId at_key(Cut *c, NodeId id)
{
    const IxExpr *to = ix_index(c->m, c->k->axes[c->k->key]);
    return node_subst(c->m, id, &c->k->mixed, &to, 1);
}

/* A value of a row as an output; refused where it is no matter of one state's heads, keys and values. */
static bool take_value(Cut *c, NodeId id, Over over, const char *name, TensorId *out)
{
    IndexId axes[MAX_ROW_AXES];
    int n = axes_of(c, over, axes);
    int level = levels_before(c, id);
    if (level < 0)
        return refuse(c, "an operand that depends on single elements of another state");
    c->to->level = level > c->to->level ? level : c->to->level;
    if (!varies_within(c, id, axes, n))
        return refuse(c, "several reads of one place of its heads");
    if (c->to->updates > 1 && !(at(c, id)->dep & DEP_TIME)) /* rows of a step are rows of all steps */
        id = node_of_every_step(c->m, id);
    *out = output_of(c, id, axes, n, name);
    return true;
}

/* scale * number * vector of one update; -1: 1. */
typedef struct Scaled {
    bool is_there;
    double scale;
    NodeId number, vector;
} Scaled;

/* From one ChunkVector; or, from several, their sum as one vector. */
static Scaled scaled_of(Cut *c, const ChunkVectors *from)
{
    Module *m = c->m;
    Scaled x = { .is_there = from->len > 0, .scale = 1, .number = -1, .vector = -1 };
    if (from->len == 1) {
        x.number = without_scale(c, from->data[0].number, &x.scale);
        x.vector = without_scale(c, at_key(c, from->data[0].vector), &x.scale);
    }
    for (int i = 0; i < from->len && from->len > 1; i++) {
        NodeId number = from->data[i].number, v = at_key(c, from->data[i].vector);
        v = is_one(c, number) ? v : node_map2(m, OP_MUL, number, v);
        x.vector = x.vector < 0 ? v : node_map2(m, OP_ADD, x.vector, v);
    }
    return x;
}

/* One of n values, by an index. */
static NodeId choose(Module *m, const NodeId *value, int n, IndexId by)
{
    NodeId x = value[n - 1];
    for (int i = n - 2; i >= 0; i--) {
        NodeId is = node_map2(m, OP_EQ, node_index(m, ix_index(m, by)), node_whole(m, i));
        x = value[i] == x ? x : node_select(m, is, value[i], x);
    }
    return x;
}

/* Over the keys of two states: the sum of a state's vectors stands at its keys. A number that all of them
 * have stays beside. */
static Scaled coupled_of(Cut *c, const ChunkVectors *from)
{
    Module *m = c->m;
    Scaled x = { .is_there = from->len > 0, .scale = 1, .number = -1, .vector = -1 };
    NodeId of[2] = { -1, -1 };
    bool alike = true;
    for (int i = 0; i < from->len; i++)
        alike &= from->data[i].number == from->data[0].number;
    for (int i = 0; i < from->len; i++) {
        const ChunkVector *v = &from->data[i];
        NodeId *const to = &of[mutate("other-column") ? 0 : v->state], one = at_key(c, v->vector);
        one = alike || is_one(c, v->number) ? one : node_map2(m, OP_MUL, v->number, one);
        *to = *to < 0 ? one : node_map2(m, OP_ADD, *to, one);
    }
    if (!x.is_there)
        return x;
    if (alike)
        x.number = without_scale(c, from->data[0].number, &x.scale);
    for (int i = 0; i < 2; i++)
        of[i] = of[i] < 0 ? node_const(m, 0) : of[i];
    x.vector = choose(m, of, 2, c->pair);
    return x;
}

/* The numbers of all updates with their scales in them: where these differ, or one has no such operand, whose
 * number is then 0. */
static void put_scales_in(Cut *c, Scaled *x, int n)
{
    Module *m = c->m;
    bool same = true;
    for (int u = 0; u < n; u++)
        same &= x[u].is_there == x[0].is_there && x[u].scale == x[0].scale;
    for (int u = 0; u < n && !same; u++) {
        NodeId scale = node_const(m, x[u].is_there ? x[u].scale : 0);
        bool alone = !x[u].is_there || x[u].number < 0;
        x[u].number = alone             ? scale
                      : x[u].scale == 1 ? x[u].number
                                        : node_map2(m, OP_MUL, scale, x[u].number);
        x[u].scale = 1;
    }
}

/* One value of each update as one over the rows of a step; -1: it is 1 in all of them. */
static NodeId join(Cut *c, const Scaled *x, int n, bool vectors)
{
    NodeId *value = arena_alloc(c->m->arena, sizeof *value * (size_t)n), other = -1;
    bool ones = true;
    for (int u = 0; u < n; u++)
        if (x[u].is_there)
            other = x[u].vector;
    for (int u = 0; u < n; u++) {
        value[u] = !vectors ? x[u].number : x[u].is_there ? x[u].vector : other;
        ones &= value[u] < 0;
    }
    for (int u = 0; u < n; u++)
        value[u] = value[u] < 0 ? node_const(c->m, 1) : value[u];
    return ones ? -1 : rows_join(c->m, value, n, c->row);
}

/* A vector that is an output already. */
typedef struct TakenVector {
    NodeId value;
    TensorId tensor;
} TakenVector;

/* An operand of all updates. Is its vector the one that was taken, it is that tensor, and its cotangent is
 * part of that one's. */
static bool take_operand(Cut *c, Scaled *x, Over over, const char *name, TakenVector *taken,
                         ChunkOperand *out)
{
    Module *m = c->m;
    int n = c->to->updates;
    *out = (ChunkOperand){ .number = -1, .vector = -1 };
    for (int u = 0; u < n; u++)
        out->is_there |= x[u].is_there;
    if (!out->is_there)
        return true;
    put_scales_in(c, x, n);
    out->scale = x[0].scale;
    NodeId number = join(c, x, n, false), vector = join(c, x, n, true);
    if (number >= 0 && !take_value(c, number, OF_HEADS, intern_f(m->c, "%s_number", name), &out->number))
        return false;
    if (vector < 0)
        return true;
    if (taken && taken->value == vector) {
        out->vector = taken->tensor;
        return true;
    }
    if (!take_value(c, vector, over, name, &out->vector))
        return false;
    if (taken)
        *taken = (TakenVector){ vector, out->vector };
    return true;
}

/* The update of a row of the step. */
static const ChunkUpdate *update_of(const Cut *c, int row)
{
    return &c->k->updates.data[row / c->to->together];
}

/* The addition that is number n of a row: the correction is the first where any update has one, each row of an
 * update has another one; what corrects nothing is of the update's first row. NULL: the row has none such. */
static const ChunkAddition *addition_of(const Cut *c, int row, int n)
{
    const ChunkUpdate *u = update_of(c, row);
    int corrections = row % c->to->together, number = c->to->corrected >= 0;
    bool first = corrections == 0, corrects = n == 0 && c->to->corrected >= 0;
    for (int i = 0; i < u->additions.len; i++) {
        const ChunkAddition *a = &u->additions.data[i];
        if (a->weights.len ? corrects && corrections-- == 0 : !corrects && first && number++ == n)
            return a;
    }
    return NULL;
}

static bool take_addition(Cut *c, int n)
{
    Module *m = c->m;
    static const ChunkVectors none = { 0 };
    Scaled *x = arena_alloc(m->arena, sizeof *x * (size_t)c->to->updates);
    ChunkAdded added;
    TakenVector taken = { -1, -1 }, *const keys = c->to->by_key || is_coupled(c) ? NULL : &taken;
    ChunkOperand *const to[] = { &added.column, &added.known, &added.weight };
    static const char *const names[] = { "column", "known", "weight" };
    for (int k = 0; k < 3; k++) {
        for (int u = 0; u < c->to->updates; u++) {
            const ChunkAddition *a = addition_of(c, u, n);
            const ChunkVectors *of = !a ? &none : k == 0 ? &a->columns : k == 1 ? &a->known : &a->weights;
            x[u] = k != 1 && is_coupled(c) ? coupled_of(c, of) : scaled_of(c, of);
        }
        const char *name = intern_f(m->c, "%s_%s%d", state_name(c), names[k], n);
        if (!take_operand(c, x, k != 1 ? OF_KEYS : OF_VALUES, name, k != 1 ? keys : NULL, to[k]))
            return false;
    }
    vec_push(m->arena, &c->to->added, added);
    return true;
}

/* A of an update of two states. */
static NodeId matrix_of(Cut *c, const ChunkUpdate *x)
{
    Module *m = c->m;
    NodeId of[4];
    for (int i = 0; i < 4; i++) {
        NodeId a = x->decay[mutate("turned-matrix") ? i % 2 * 2 + i / 2 : i];
        of[i] = a < 0 ? node_const(m, 0) : a;
    }
    return choose(m, of, 4, c->matrix);
}

static bool take_matrix(Cut *c)
{
    Module *m = c->m;
    int n = c->to->updates;
    NodeId *value = arena_alloc(m->arena, sizeof *value * (size_t)n);
    for (int u = 0; u < n; u++) {
        if (update_of(c, u)->by_key)
            return refuse(c, "a decay per key, beside a state that feeds it");
        value[u] = matrix_of(c, update_of(c, u));
    }
    return take_value(c, rows_join(m, value, n, c->row), OF_MATRIX, intern_f(m->c, "%s_decay", state_name(c)),
                      &c->to->decay);
}

/* A of an update of one state, times H. */
static NodeId decay_of(Cut *c, const ChunkUpdate *x)
{
    NodeId a = x->decay[0];
    if (a < 0)
        return node_const(c->m, 0);
    if (x->per_value < 0 || mutate("lost-value-decay"))
        return a;
    return is_one(c, a) ? x->per_value : node_map2(c->m, OP_MUL, a, x->per_value);
}

static bool take_decay(Cut *c)
{
    if (is_coupled(c))
        return take_matrix(c);
    Module *m = c->m;
    int n = c->to->updates;
    NodeId *value = arena_alloc(m->arena, sizeof *value * (size_t)n);
    bool decays = false;
    for (int u = 0; u < n; u++) {
        const ChunkUpdate *x = update_of(c, u);
        value[u] = node_const(m, 1);
        if (x->decays && (u % c->to->together == 0 || mutate("every-row")))
            value[u] = decay_of(c, x);
        decays |= x->decays;
    }
    const Over over = c->to->by_key ? OF_KEYS : c->to->by_value ? OF_VALUES : OF_HEADS;
    return !decays || take_value(c, rows_join(m, value, n, c->row), over,
                                 intern_f(m->c, "%s_decay", state_name(c)), &c->to->decay);
}

/* The rows of a step. */
enum { MAX_TOGETHER = 8 };
static bool count_rows(Cut *c)
{
    ChunkCut *to = c->to;
    to->together = 1;
    for (int u = 0; u < c->k->updates.len; u++) {
        const ChunkUpdate *x = &c->k->updates.data[u];
        int corrections = 0;
        for (int i = 0; i < x->additions.len; i++)
            corrections += x->additions.data[i].weights.len > 0;
        if (x->per_value >= 0 && is_coupled(c))
            return refuse(c, "a decay per value, beside a state that feeds it");
        to->by_value |= x->per_value >= 0;
        to->by_key |= x->by_key;
        if (corrections > MAX_TOGETHER)
            return refuse(c, "more than 8 corrections in an update");
        if (corrections > 1 && is_coupled(c))
            return refuse(c, "several corrections in an update, beside a state that feeds it");
        while (to->together < corrections)
            to->together *= 2;
        to->corrected = corrections ? 0 : to->corrected;
    }
    if (to->by_value && to->corrected >= 0)
        return refuse(c, "a decay per value, beside a correction, which each value would solve by itself");
    if (to->by_value && to->by_key)
        return refuse(c, "decays per key and per value");
    to->updates = c->k->updates.len * to->together;
    c->row = module_index(c->m, intern(c->m->c, "row"), poly_const(c->m, to->updates));
    if (is_coupled(c)) {
        c->pair = module_index(c->m, intern(c->m->c, "pair"), poly_const(c->m, 2));
        c->matrix = module_index(c->m, intern(c->m->c, "matrix"), poly_const(c->m, 4));
    }
    return true;
}

static bool take_updates(Cut *c)
{
    int most = 0;
    for (int u = 0; u < c->to->updates; u++) {
        int n = c->to->corrected >= 0;
        while (addition_of(c, u, n))
            n++;
        most = n > most ? n : most;
    }
    if (!take_decay(c))
        return false;
    for (int n = 0; n < most; n++)
        if (!take_addition(c, n))
            return false;
    return true;
}

/* ---- reads ---- */

/* The value at the places of a sum, in place of the state's axes. */
static NodeId at_places(Cut *c, NodeId id, const ChunkSum *sum)
{
    IndexId from[MAX_STATE_AXES];
    const IxExpr *to[MAX_STATE_AXES];
    int n = 0;
    for (int i = 0; i < c->to->rank; i++)
        if (sum->places[i]) {
            from[n] = c->k->axes[i];
            to[n++] = sum->places[i];
        }
    return node_subst(c->m, id, from, to, n);
}

static NodeId load_read(Cut *c, TensorId read, int update, const ChunkSum *sum)
{
    const ChunkCut *x = c->to;
    const IxExpr *map[MAX_ROW_AXES];
    int n = 0;
    if (x->updates > 1)
        map[n++] = rows_place(c->m, update, x->updates);
    for (int i = 0; i < x->nheads; i++)
        map[n++] = sum->places[x->heads[i]];
    for (int i = 0; i < x->nvalues; i++)
        map[n++] = sum->places[x->values[i]];
    return node_load(c->m, read, map, n);
}

static NodeId add(Module *m, NodeId a, NodeId b)
{
    return a < 0 ? b : node_map2(m, OP_ADD, a, b);
}

/* Several queries of one place of the heads, along an index of the sum that is no axis of the state: each is
 * a read of its own. */
enum { MAX_QUERIES = 16 };
typedef struct Queries {
    IndexId along; /* -1: there is one query */
    int n;
    const IxExpr *place; /* query 0's place along it; the next one's is `step` behind it */
    const Poly *step;
    const IxExpr *number; /* of a place, the query's number */
} Queries;

static bool refuse_queries(Cut *c)
{
    return refuse(c, "several reads of one place of its heads, whose number is not known or above 16");
}

/* The index that the weight varies over beside the state's own. */
static bool find_along(Cut *c, NodeId weight, IndexId *along)
{
    IndexId axes[MAX_ROW_AXES];
    int n = axes_of(c, OF_KEYS | OF_VALUES, axes);
    for (int i = 0; i < at(c, weight)->naxes; i++) {
        IndexId own = at(c, weight)->axes[i];
        if (own == c->k->mixed || has_index(axes, n, own) || own == *along)
            continue;
        if (*along >= 0)
            return refuse(c, "several reads of one place of its heads, along two axes");
        *along = own;
    }
    return true;
}

/* Heads are read at a quotient or a remainder of the index: the places that give one head. */
static bool invert_place(Cut *c, const IxExpr *place, IndexId head, Queries *q)
{
    Module *m = c->m;
    const IxTerm *t = place->terms;
    const Poly *all = m->indices.data[q->along].extent, *heads = m->indices.data[head].extent;
    IndexId which;
    bool plain = place->nterms == 1 && place->offset == poly_const(m, 0) && poly_is_one(t->coef) &&
                 t->kind != IA_INDEX && ix_is_index(t->arg, &which) && which == q->along;
    const Poly *n = !plain ? NULL : t->kind == IA_DIV ? t->by : poly_div(m, all, heads);
    if (!n || !n->is_const || n->value > MAX_QUERIES || poly_mul(m, heads, n) != all ||
        (t->kind == IA_MOD && t->by != heads))
        return refuse_queries(c);
    bool quotient = t->kind == IA_DIV;
    q->n = (int)n->value;
    q->place = quotient ? ix_scale(m, ix_index(m, head), n) : ix_index(m, head);
    q->step = quotient ? poly_const(m, 1) : heads;
    q->number = quotient ? ix_mod(m, ix_index(m, q->along), n) : ix_div(m, ix_index(m, q->along), heads);
    return true;
}

static bool find_queries(Cut *c, const ChunkRead *r, Queries *q)
{
    Module *m = c->m;
    const IxExpr *const *places = r->sums.data[0].places;
    *q = (Queries){ .along = -1, .n = 1 };
    for (int i = 0; i < r->parts.len; i++)
        if (!find_along(c, r->parts.data[i].weight.number, &q->along) ||
            !find_along(c, r->parts.data[i].weight.vector, &q->along))
            return false;
    if (q->along < 0)
        return true;
    for (int s = 1; s < r->sums.len; s++)
        for (int i = 0; i < c->to->rank; i++) {
            const IxExpr *a = places[i], *b = r->sums.data[s].places[i];
            if (a != b && ((a && ix_uses(a, q->along)) || (b && ix_uses(b, q->along))))
                return refuse(c, "the same weights at different places of its heads");
        }
    for (int i = 0; i < c->to->rank; i++)
        if (places[i] && ix_uses(places[i], q->along))
            return invert_place(c, places[i], c->k->axes[i], q);
    const Poly *n = m->indices.data[q->along].extent;
    if (!n->is_const || n->value > MAX_QUERIES)
        return refuse_queries(c);
    q->n = (int)n->value;
    q->place = ix_const(m, poly_const(m, 0));
    q->step = poly_const(m, 1);
    q->number = ix_index(m, q->along);
    return true;
}

/* The weight of query number `query`. */
static ChunkVector weight_of(Cut *c, ChunkVector of, const Queries *q, int query)
{
    Module *m = c->m;
    if (q->along < 0)
        return of;
    const IxExpr *to = ix_add(m, q->place, ix_const(m, poly_mul(m, q->step, poly_const(m, query))));
    of.number = node_subst(m, of.number, &q->along, &to, 1);
    of.vector = node_subst(m, of.vector, &q->along, &to, 1);
    return of;
}

/* The row that the state is read at: before it where that is the step's first state, else behind it. */
static int row_of(const Cut *c, const ChunkPart *x)
{
    return x->update && !mutate("first-update") ? x->update * c->to->together - 1 : 0;
}

/* Parts of a read at the same state, times the same scale: one read of the walk. */
static bool take_given(Cut *c, const ChunkRead *r, int first, const Queries *q, int query, bool *taken,
                       ChunkGiven *out)
{
    const ChunkPart *x = &r->parts.data[first];
    ChunkVectors weights = { 0 };
    const char *name = intern_f(c->m->c, "%s_query%d", state_name(c), c->to->reads.len);
    IndexId axes[MAX_ROW_AXES];
    Scaled *rows = arena_alloc(c->m->arena, sizeof *rows * (size_t)c->to->updates);
    for (int i = first; i < r->parts.len; i++)
        if (r->parts.data[i].update == x->update && r->parts.data[i].scale == x->scale) {
            vec_push(c->m->arena, &weights, weight_of(c, r->parts.data[i].weight, q, query));
            taken[i] = true;
        }
    out->before = x->update == 0;
    for (int u = 0; u < c->to->updates; u++)
        rows[u] = (Scaled){ .scale = 1, .number = -1, .vector = -1 };
    rows[row_of(c, x)] = is_coupled(c) ? coupled_of(c, &weights) : scaled_of(c, &weights);
    if (!take_operand(c, rows, OF_KEYS, name, NULL, &out->weight))
        return false;
    out->given = new_tensor(c, T_INPUT, intern_f(c->m->c, "%s_read%d", state_name(c), c->to->reads.len), axes,
                            axes_of(c, OF_VALUES, axes));
    vec_push(c->m->arena, &c->to->reads, *out);
    return true;
}

/* What the walk gives of a part of the read, and those like it, at the places of the sum. */
static NodeId load_queries(Cut *c, const TensorId *given, int update, const Queries *q, const ChunkSum *sum)
{
    Module *m = c->m;
    NodeId x = load_read(c, given[q->n - 1], update, sum);
    for (int i = q->n - 2; i >= 0; i--) {
        NodeId is = node_map2(m, OP_EQ, node_index(m, q->number), node_whole(m, i));
        x = node_select(m, is, load_read(c, given[i], update, sum), x);
    }
    return x;
}

/* What stands in place of its sums. */
static bool take_read(Cut *c, const ChunkRead *r)
{
    Module *m = c->m;
    Queries q;
    bool *taken = arena_alloc(m->arena, (size_t)r->parts.len + 1);
    NodeId *value = arena_alloc(m->arena, sizeof *value * (size_t)(r->sums.len + 1));
    for (int s = 0; s < r->sums.len; s++)
        value[s] = r->known < 0 ? -1 : at_places(c, r->known, &r->sums.data[s]);
    if (r->known >= 0 && levels_before(c, r->known) < 0)
        return refuse(c, "a read beside what depends on single elements of another state");
    if (!find_queries(c, r, &q))
        return false;
    for (int i = 0; i < r->parts.len; i++) {
        TensorId given[MAX_QUERIES];
        if (taken[i])
            continue;
        for (int k = 0; k < q.n; k++) {
            ChunkGiven g;
            if (!take_given(c, r, i, &q, k, taken, &g))
                return false;
            given[k] = g.given;
        }
        for (int s = 0; s < r->sums.len; s++) {
            NodeId x = load_queries(c, given, row_of(c, &r->parts.data[i]), &q, &r->sums.data[s]),
                   scale = r->parts.data[i].scale;
            if (scale >= 0 && levels_before(c, scale) < 0)
                return refuse(c, "a read beside what depends on single elements of another state");
            if (scale >= 0)
                x = node_map2(m, OP_MUL, at_places(c, scale, &r->sums.data[s]), x);
            value[s] = add(m, value[s], x);
        }
    }
    for (int s = 0; s < r->sums.len; s++)
        c->replaced[r->sums.data[s].node] = value[s];
    return true;
}

/* ---- one state ---- */

static void take_axes(Cut *c)
{
    Module *m = c->m;
    const ChunkComponent *k = c->k;
    ChunkCut *x = c->to;
    x->heads = arena_alloc(m->arena, sizeof *x->heads * (size_t)(k->rank + 1));
    x->values = arena_alloc(m->arena, sizeof *x->values * (size_t)(k->rank + 1));
    x->n_heads = x->n_values = poly_const(m, 1);
    x->n_keys = poly_mul(m, m->indices.data[k->axes[k->key]].extent, poly_const(m, k->nstates));
    for (int i = 0; i < k->rank; i++) {
        const Poly *n = m->indices.data[k->axes[i]].extent;
        if (i != k->key && k->is_head[i]) {
            x->heads[x->nheads++] = i;
            x->n_heads = poly_mul(m, x->n_heads, n);
        } else if (i != k->key) {
            x->values[x->nvalues++] = i;
            x->n_values = poly_mul(m, x->n_values, n);
        }
    }
}

static bool cut_state(Cut *c)
{
    const ChunkComponent *k = c->k;
    *c->to = (ChunkCut){ .state = k->states[0],
                         .other = k->nstates > 1 ? k->states[1] : -1,
                         .rank = k->rank,
                         .key = k->key,
                         .decay = -1,
                         .corrected = -1 };
    if (k->nstates > 2)
        return refuse(c, "a step in which more than two states feed one another");
    take_axes(c);
    if (!count_rows(c) || !take_updates(c))
        return false;
    for (int i = 0; i < k->reads.len; i++)
        if (!take_read(c, &k->reads.data[i]))
            return false;
    return true;
}

static NodeId put_reads(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    const Cut *c = r->data;
    (void)whole;
    return old < c->nodes && c->replaced[old] >= 0 ? c->replaced[old] : rebuilt;
}

/* Can the component go in chunks? */
static bool goes(const ChunkComponent *k)
{
    return k->verdict == CHUNK_QUALIFIES || k->verdict == CHUNK_COLUMN;
}

/* What is in the way of one component; NULL: nothing. */
static const Reason *refused(const Module *m, const ChunkComponent *k)
{
    const Tensor *t = &m->tensors.data[k->states[0]];
    if (!goes(k))
        return reason_at(m, k->why ? k->at : t->span, "state `%s`: %s", t->name,
                         k->why ? k->why : "each element is linear in itself alone, which is for `scan`");
    if (k->key < 0)
        return reason_at(m, t->span, "state `%s` is read by no sum over one of its axes", t->name);
    return NULL;
}

/* Is it walked step by step, in front of the walks in chunks? */
static bool stays(const ChunkComponent *k, bool some)
{
    return some && !goes(k) && k->elements;
}

/* Of states that stay: do their steps read what chunks give? */
static const Reason *own_steps(Cut *c)
{
    Module *m = c->m;
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (m->tensors.data[t].kind == T_STATE && !c->cuts[t] && levels_before(c, m->roots.data[t].next) != 0)
            return reason_at(m, m->tensors.data[t].span,
                             "state `%s` goes step by step, and depends on states that would go in chunks",
                             m->tensors.data[t].name);
    return NULL;
}

/* Each pass may bring in reads of another state, in what stands in place of a sum. */
static void put_all_reads(Cut *c, const ChunkCuts *cuts)
{
    Module *m = c->m;
    for (int i = 0; i < cuts->len; i++) {
        const TensorId of[] = { cuts->data[i].state, cuts->data[i].other };
        for (int s = 0; s < 2 && of[s] >= 0; s++) {
            m->tensors.data[of[s]].chunk = true;
            m->tensors.data[of[s]].level = cuts->data[i].level;
            m->roots.data[of[s]].next = -1;
        }
        m->levels = m->levels > cuts->data[i].level ? m->levels : cuts->data[i].level + 1;
    }
    for (int i = 0; i < m->levels; i++) {
        Rewrite r = { .m = m, .hook = put_reads, .data = c };
        rewrite_roots(&r);
    }
}

/* Constants by which the step multiplies a read, wherever it stands: o = 1 / sqrt(N) * sum q S. The walk
 * multiplies the weight by them, so that the read may be an output as it is. */
typedef struct Factors {
    Module *m;
    double *by; /* per tensor */
    bool *found, *other; /* it is multiplied by one; it stands somewhere else too, or with another one */
    Marks *seen;
} Factors;

/* The read that the node is, or an array of it; -1: none. */
static TensorId given_of(const Module *m, NodeId id)
{
    const Node *n = id < 0 ? NULL : &m->nodes.data[id];
    if (n && n->kind == N_ARRAY)
        n = &m->nodes.data[n->args[0]];
    if (!n || n->kind != N_LOAD)
        return -1;
    const Tensor *t = &m->tensors.data[n->tensor];
    return t->kind == T_INPUT && t->chunk ? n->tensor : -1;
}

/* The read that the node multiplies by a constant; -1: it does not. */
static TensorId scaled_read(const Module *m, NodeId id)
{
    const Node *n = &m->nodes.data[id];
    bool scales = n->kind == N_MAP && n->op == OP_MUL && m->nodes.data[n->args[0]].kind == N_CONST;
    return scales && isfinite(m->nodes.data[n->args[0]].value) ? given_of(m, n->args[1]) : -1;
}

static void find_factors(Factors *f, NodeId id)
{
    const Module *m = f->m;
    if (id < 0 || !marks_first(f->seen, id))
        return;
    const Node *n = &m->nodes.data[id];
    const TensorId scaled = scaled_read(m, id);
    for (int i = 0; i < n->nargs; i++) {
        const TensorId t = given_of(m, n->args[i]);
        if (t >= 0 && scaled != t && n->kind != N_ARRAY)
            f->other[t] = true;
        find_factors(f, n->args[i]);
    }
    if (scaled < 0)
        return;
    const double by = m->nodes.data[n->args[0]].value;
    f->other[scaled] |= f->found[scaled] && f->by[scaled] != by;
    f->found[scaled] = true;
    f->by[scaled] = by;
}

static NodeId without_factor(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    const Factors *f = r->data;
    const TensorId t = scaled_read(r->m, rebuilt);
    (void)old, (void)whole;
    return t >= 0 && f->found[t] && !f->other[t] ? r->m->nodes.data[rebuilt].args[1] : rebuilt;
}

static void put_factors_in(Module *m, ChunkCuts *cuts)
{
    const int n = m->tensors.len;
    Factors f = { .m = m,
                  .by = arena_alloc(m->arena, sizeof *f.by * ((size_t)n + 1)),
                  .found = arena_alloc(m->arena, (size_t)n + 1),
                  .other = arena_alloc(m->arena, (size_t)n + 1),
                  .seen = marks_begin(m) };
    for (TensorId t = 0; t < n; t++)
        for (int k = 0; k < ROOT_COUNT; k++) {
            const TensorId given = given_of(m, m->roots.data[t].of[k]);
            if (given >= 0)
                f.other[given] = true;
            find_factors(&f, m->roots.data[t].of[k]);
        }
    marks_end(f.seen);
    for (int i = 0; i < cuts->len; i++)
        for (int k = 0; k < cuts->data[i].reads.len; k++) {
            ChunkGiven *g = &cuts->data[i].reads.data[k];
            if (f.found[g->given] && !f.other[g->given] && !mutate("lost-factor"))
                g->weight.scale *= f.by[g->given];
        }
    Rewrite r = { .m = m, .hook = without_factor, .data = &f };
    rewrite_roots(&r);
}

static void cut_states(Cut *c, const ChunkForm *f, bool some, ChunkCuts *out)
{
    Module *m = c->m;
    for (int i = 0; i < f->ncomponents && !c->why; i++) {
        ChunkCut *x = arena_alloc(m->arena, sizeof *x);
        TensorId first = m->tensors.len;
        c->k = &f->components[i];
        c->to = x;
        if (stays(c->k, some) || !cut_state(c))
            continue;
        for (TensorId t = first; t < m->tensors.len; t++)
            m->tensors.data[t].level = x->level;
        vec_push(m->arena, out, *x);
    }
    if (!c->why)
        c->why = own_steps(c);
}

const Reason *chunk_cut(Module *m, ChunkCuts *out)
{
    int tensors = m->tensors.len;
    ChunkForm f = chunk_find(m);
    const Reason *no = f.ncomponents ? NULL : reason(m, "it has no state");
    bool some = false, *cuts = arena_alloc(m->arena, (size_t)tensors + 1);
    for (int i = 0; i < f.ncomponents; i++)
        some |= goes(&f.components[i]) && f.components[i].key >= 0;
    for (int i = 0; i < f.ncomponents; i++) {
        const ChunkComponent *k = &f.components[i];
        no = no || stays(k, some) ? no : refused(m, k);
        for (int s = 0; s < k->nstates; s++)
            cuts[k->states[s]] = !stays(k, some);
    }
    Cut c = { .m = m, .why = no, .nodes = m->nodes.len, .cuts = cuts };
    c.replaced = arena_alloc(m->arena, sizeof *c.replaced * ((size_t)c.nodes + 1));
    for (NodeId id = 0; id < c.nodes; id++)
        c.replaced[id] = -1;
    if (!c.why)
        cut_states(&c, &f, some, out);
    module_at(m, m->span, NULL);
    if (c.why) {
        m->tensors.len = m->roots.len = tensors;
        return c.why;
    }
    put_all_reads(&c, out);
    put_factors_in(m, out);
    module_at(m, m->span, NULL);
    return NULL;
}
