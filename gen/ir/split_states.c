/* split_states.c: an axis of the matrix states in parts. In comes a simplified module without its adjoint;
 * out goes the same one in which that axis, of PARTS * PART_COLUMNS elements, is two: the part, and the
 * element in it. So it is in each value, tensor and sum that has the axis, as far as plain reads lead from
 * one to the next; elsewhere an element is read at its quotient and remainder. A part is then one more
 * parallel axis of the states, which a kernel that walks all steps may give a block each: where nothing that
 * is carried sums over the axis. Whether that is so is not asked here: such a walk refuses it.
 * Tensors lie in memory as before. What comes in front of the part in memory stands behind it among the
 * axes of a state whose last axis is taken apart (Tensor.inner), since parallel axes stand first. */
#include "split_states.h"

#include <string.h>

typedef struct SplitStates {
    Module *m;
    const Node *nodes;   /* those before */
    int n;
    bool *reached;       /* per node: some root is made of it */
    const Poly *extent;  /* of the axis */
    const Poly *inside;  /* of a part */
    IndexId *part;       /* per index that was there: of the part, and of the element in it; -1: not taken apart */
    IndexId *own;
    int *axis;           /* per tensor: 1 + the axis that is taken apart, or 0 */
    bool *moves;         /* per node: the next value of a state with Tensor.inner */
    NodeId *image;
    bool refused;
} SplitStates;

static const Node *at(const SplitStates *s, NodeId id)
{
    return &s->nodes[id];
}

static bool is_state(const Module *m, TensorId t)
{
    return m->tensors.data[t].kind == T_STATE && m->roots.data[t].next >= 0;
}

static bool is_matrix(const Tensor *x)
{
    return x->rank >= 2 && x->axes[x->rank - 1]->is_const && x->axes[x->rank - 2]->is_const;
}

static bool divides(const Poly *extent)
{
    return extent->is_const && extent->value > PART_COLUMNS && extent->value % PART_COLUMNS == 0;
}

bool may_split_states(const Module *m)
{
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        if (is_state(m, t) && is_matrix(x) && (divides(x->axes[x->rank - 1]) || divides(x->axes[x->rank - 2])) &&
            x->axes[x->rank - 1]->value * x->axes[x->rank - 2]->value >= LEAST_ELEMENTS)
            return true;
    }
    return false;
}

/* ---- what has the axis ---- */

static bool is_split(const SplitStates *s, IndexId i)
{
    return i >= IX_FIRST && s->part[i] >= 0;
}

/* True where that is news. */
static bool split_index(SplitStates *s, IndexId i)
{
    Module *m = s->m;
    if (i < IX_FIRST || is_split(s, i))
        return false;
    const Index x = m->indices.data[i];
    if (x.extent != s->extent) {
        s->refused = true;
        return false;
    }
    s->part[i] = module_index(m, intern_f(m->c, "%s_part", x.name), poly_div(m, s->extent, s->inside));
    s->own[i] = module_index(m, x.name, s->inside);
    return true;
}

static bool split_tensor(SplitStates *s, TensorId t, int axis)
{
    bool other = s->axis[t] && s->axis[t] != 1 + axis;
    if (other || s->m->tensors.data[t].complex) {
        s->refused = true;
        return false;
    }
    bool news = !s->axis[t];
    s->axis[t] = 1 + axis;
    return news;
}

/* Along an axis of a tensor, and an index that reads it or is its axis. */
static bool join_tensor(SplitStates *s, TensorId t, int axis, IndexId i)
{
    if (s->axis[t] == 1 + axis)
        return split_index(s, i);
    return is_split(s, i) && split_tensor(s, t, axis);
}

static bool join_indices(SplitStates *s, IndexId a, IndexId b)
{
    return is_split(s, a) ? split_index(s, b) : is_split(s, b) && split_index(s, a);
}

/* The axis of an array that is taken apart; -1: none is. */
static int split_axis_of(const SplitStates *s, const Node *array)
{
    for (int k = 0; k < array->naxes; k++)
        if (is_split(s, array->axes[k]))
            return k;
    return -1;
}

/* What other steps had lies in histories as it did. */
static bool reads_history(const SplitStates *s, const Node *n)
{
    return n->step && (n->kind == N_LOAD ? s->axis[n->tensor] > 0 : split_axis_of(s, at(s, n->args[0])) >= 0);
}

static bool join_read(SplitStates *s, const Node *n)
{
    bool news = false;
    s->refused |= reads_history(s, n);
    for (int k = 0; k < n->nmap; k++) {
        IndexId i;
        if (!ix_is_index(n->map[k], &i))
            continue;
        news |= n->kind == N_LOAD ? join_tensor(s, n->tensor, k, i)
                                  : join_indices(s, i, at(s, n->args[0])->axes[k]);
    }
    return news;
}

static bool join_roots(SplitStates *s, TensorId t)
{
    const Roots *roots = &s->m->roots.data[t];
    bool news = false;
    for (int k = 0; k < ROOT_COUNT; k++) {
        const Node *root = roots->of[k] >= 0 ? at(s, roots->of[k]) : NULL;
        for (int a = 0; root && a < root->naxes; a++) {
            if (k == ROOT_OUTPUT || k == ROOT_NEXT)
                news |= join_tensor(s, t, a, root->axes[a]);
            else
                s->refused |= is_split(s, root->axes[a]) || s->axis[t];
        }
    }
    return news;
}

static void reach(SplitStates *s, NodeId id)
{
    if (id < 0 || s->reached[id])
        return;
    s->reached[id] = true;
    for (int i = 0; i < at(s, id)->nargs; i++)
        reach(s, at(s, id)->args[i]);
}

/* Until nothing is news. */
static void find_axis(SplitStates *s)
{
    bool news = true;
    for (TensorId t = 0; t < s->m->tensors.len; t++)
        for (int k = 0; k < ROOT_COUNT; k++)
            reach(s, s->m->roots.data[t].of[k]);
    while (news && !s->refused) {
        news = false;
        for (NodeId id = 0; id < s->n; id++)
            if (s->reached[id] && (at(s, id)->kind == N_LOAD || at(s, id)->kind == N_VIEW))
                news |= join_read(s, at(s, id));
        for (TensorId t = 0; t < s->m->tensors.len; t++)
            news |= join_roots(s, t);
    }
}

/* ---- what is made of it ---- */

static const IxExpr *expr(SplitStates *s, const IxExpr *e)
{
    Module *m = s->m;
    for (IndexId i = IX_FIRST; i < m->indices.len; i++) {
        if (!is_split(s, i) || !ix_uses(e, i))
            continue;
        const IxExpr *to = ix_add(m, ix_scale(m, ix_index(m, s->part[i]), s->inside), ix_index(m, s->own[i]));
        e = ix_subst(m, e, &i, &to, 1);
    }
    return e;
}

/* The places of a read: of the axis `split` (-1: none) the part and the element in it, and where `moves`, the
 * part in front of the axis before. */
static int places(SplitStates *s, const IxExpr *const *map, int n, int split, bool moves, const IxExpr **out)
{
    Module *m = s->m;
    int len = 0;
    for (int k = 0; k < n; k++) {
        IndexId i;
        if (k != split) {
            out[len++] = expr(s, map[k]);
            continue;
        }
        bool plain = ix_is_index(map[k], &i) && is_split(s, i);
        const IxExpr *e = plain ? NULL : expr(s, map[k]);
        out[len++] = plain ? ix_index(m, s->part[i]) : ix_div(m, e, s->inside);
        out[len++] = plain ? ix_index(m, s->own[i]) : ix_mod(m, e, s->inside);
        if (moves) {
            const IxExpr *part = out[len - 2];
            out[len - 2] = out[len - 3];
            out[len - 3] = part;
        }
    }
    return len;
}

/* Indices, each that is taken apart as two. */
static int indices(const SplitStates *s, const IndexId *from, int n, bool moves, IndexId *out)
{
    int len = 0;
    for (int k = 0; k < n; k++) {
        if (!is_split(s, from[k])) {
            out[len++] = from[k];
            continue;
        }
        out[len++] = s->part[from[k]];
        out[len++] = s->own[from[k]];
        if (moves) {
            IndexId part = out[len - 2];
            out[len - 2] = out[len - 3];
            out[len - 3] = part;
        }
    }
    return len;
}

static NodeId image(SplitStates *s, NodeId id);

static NodeId image_of_read(SplitStates *s, const Node *n)
{
    Module *m = s->m;
    const IxExpr **map = arena_alloc(m->arena, sizeof *map * (size_t)(2 * n->nmap + 1));
    if (n->kind == N_LOAD) {
        const Tensor *x = &m->tensors.data[n->tensor];
        int len = places(s, n->map, n->nmap, s->axis[n->tensor] - 1, x->inner, map);
        return node_load_at(m, n->tensor, map, len, n->step ? expr(s, n->step) : NULL, n->past);
    }
    NodeId array = image(s, n->args[0]);
    int len = places(s, n->map, n->nmap, split_axis_of(s, at(s, n->args[0])), s->moves[n->args[0]], map);
    return node_view_at(m, array, map, len, n->step ? expr(s, n->step) : NULL, n->past);
}

static NodeId fresh(SplitStates *s, NodeId id)
{
    Module *m = s->m;
    const Node n = *at(s, id);
    NodeId args[4] = { -1, -1, -1, -1 };
    module_at(m, n.span, n.chain);
    if (n.kind == N_LOAD || n.kind == N_VIEW)
        return image_of_read(s, &n);
    for (int i = 0; i < n.nargs; i++)
        args[i] = image(s, n.args[i]);
    module_at(m, n.span, n.chain);
    const int count = n.kind == N_ARRAY ? n.naxes : n.nbound;
    IndexId *ids = arena_alloc(m->arena, sizeof *ids * (size_t)(2 * count + 1));
    switch (n.kind) {
    case N_INDEX: return node_index(m, expr(s, n.ix));
    case N_MAP: return node_map(m, n.op, args, n.nargs);
    case N_REDUCE: return node_reduce(m, n.reduce, args[0], ids, indices(s, n.bound, n.nbound, false, ids));
    case N_ARRAY:
        return node_array(m, args[0], ids, indices(s, n.axes, n.naxes, s->moves[id], ids), n.name, n.span);
    case N_SIZE: return node_size(m, n.size);
    default: return n.type == TY_BOOL ? node_bool(m, n.value != 0) : node_const(m, n.value);
    }
}

static NodeId image(SplitStates *s, NodeId id)
{
    if (s->image[id] < 0)
        s->image[id] = fresh(s, id);
    return s->image[id];
}

/* Its axes, as its memory has them but for Tensor.inner. */
static void change_tensor(SplitStates *s, TensorId t)
{
    Module *m = s->m;
    Tensor *x = &m->tensors.data[t];
    const int split = s->axis[t] - 1;
    const Poly **axes = arena_alloc(m->arena, sizeof *axes * (size_t)(x->rank + 1));
    int n = 0;
    for (int k = 0; k < x->rank; k++) {
        if (k != split) {
            axes[n++] = x->axes[k];
            continue;
        }
        axes[n++] = poly_div(m, x->axes[k], s->inside);
        axes[n++] = s->inside;
        if (x->inner) {
            const Poly *part = axes[n - 2];
            axes[n - 2] = axes[n - 3];
            axes[n - 3] = part;
        }
    }
    x->axes = axes;
    x->rank = n;
}

/* Of the last axis of a matrix state the part stands in front of the axis before it. A next value has the
 * state's order, so it can be no output besides. */
static void find_moved(SplitStates *s)
{
    Module *m = s->m;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        Tensor *x = &m->tensors.data[t];
        if (!is_state(m, t) || !is_matrix(x) || s->axis[t] != x->rank)
            continue;
        x->inner = true;
        s->moves[m->roots.data[t].next] = true;
    }
    for (TensorId t = 0; t < m->tensors.len; t++)
        s->refused |= m->roots.data[t].output >= 0 && s->moves[m->roots.data[t].output];
}

static void begin(SplitStates *s, Module *m)
{
    size_t most = (size_t)m->nodes.len + 1, ids = 3 * (size_t)m->indices.len + 1;
    *s = (SplitStates){ .m = m, .nodes = m->nodes.data, .n = m->nodes.len, .inside = poly_const(m, PART_COLUMNS) };
    s->reached = arena_alloc(m->arena, most);
    s->moves = arena_alloc(m->arena, most);
    s->image = arena_alloc(m->arena, sizeof *s->image * most);
    s->part = arena_alloc(m->arena, sizeof *s->part * ids);
    s->own = arena_alloc(m->arena, sizeof *s->own * ids);
    s->axis = arena_alloc(m->arena, sizeof *s->axis * (size_t)(m->tensors.len + 1));
    memset(s->image, 0xff, sizeof *s->image * most);
    memset(s->part, 0xff, sizeof *s->part * ids);
}

/* The axis of the matrix states; false: there is none such. */
static bool seed(SplitStates *s)
{
    Module *m = s->m;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        if (!is_state(m, t) || !is_matrix(x))
            continue;
        const Poly *e = x->axes[x->rank - m->side];
        if (!divides(e) || (s->extent && s->extent != e))
            return false;
        s->extent = e;
        split_tensor(s, t, x->rank - m->side);
    }
    return s->extent && !s->refused;
}

void split_states(Module *m)
{
    SplitStates s;
    m->parts = 0;
    if (!m->side || !may_split_states(m))
        return;
    begin(&s, m);
    if (!seed(&s))
        return;
    find_axis(&s);
    if (!s.refused)
        find_moved(&s);
    if (s.refused)
        return;
    module_take_nodes(m);
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (s.axis[t])
            change_tensor(&s, t);
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int k = 0; k < ROOT_COUNT; k++)
            if (m->roots.data[t].of[k] >= 0)
                m->roots.data[t].of[k] = image(&s, m->roots.data[t].of[k]);
    for (int i = 0; i < m->joined.len; i++)
        m->joined.data[i] = image(&s, m->joined.data[i]);
    m->parts = (int)(s.extent->value / PART_COLUMNS);
    module_at(m, m->span, NULL);
}
