/* tile_norm.c: a step's values in normal form. In come the step's roots in the spec's own indices; out go
 * equal ones in which every reduction is an array of its own over canonical indices (row, col, par), so that
 * equal reductions are one node, factors that do not vary stand outside their sum, and what equals a stored
 * array is read from it. Guaranteed: a reduction left in the graph binds row, col or both, and each of its
 * free axes is row, col or parallel. */
#include <string.h>

#include "ir/marks.h"
#include "tile.h"

static Node node(const Step *s, NodeId id)
{
    return s->t->m->nodes.data[id];
}

static const Poly *extent(const Step *s, IndexId i)
{
    return s->t->m->indices.data[i].extent;
}

bool tile_stored(const Step *s, NodeId array)
{
    const Tile *t = s->t;
    return array < t->old_nodes && !t->is_out[array] && (t->w->of_node[array].home != HOME_NONE || tile_is_made(t, array));
}

bool tile_whole(const Step *s, NodeId id, int *state)
{
    const Tile *t = s->t;
    if (s->kind == STEP_ADJOINT) {
        if (id >= t->old_nodes || !t->state_of_next[id] || tile_stored(s, id))
            return false;
        *state = t->state_of_next[id] - 1;
        return true;
    }
    for (int k = 0; k < s->next.len; k++)
        if (s->next.data[k] == id) {
            *state = k;
            return true;
        }
    return false;
}

NodeId tile_read(const Step *s, NodeId id, const IxExpr **map)
{
    Node n = node(s, id);
    for (int k = 0; n.kind == N_ARRAY && k < n.naxes && k < TILE_MAX_AXES; k++)
        map[k] = ix_index(s->t->m, n.axes[k]);
    for (int k = 0; n.kind == N_VIEW && k < n.nmap && k < TILE_MAX_AXES; k++)
        map[k] = n.map[k];
    return n.kind == N_VIEW ? n.args[0] : id;
}

Red *tile_red(Step *s, NodeId array)
{
    for (int k = 0; k < s->reds.len; k++)
        if (s->reds.data[k].array == array)
            return &s->reds.data[k];
    return NULL;
}

/* ---- roles ---- */

static Role role_of_index(const Tile *t, IndexId i)
{
    if (i == t->row)
        return ROLE_ROW;
    if (i == t->col)
        return ROLE_COL;
    for (int k = 0; k < t->npar; k++)
        if (t->par[k] == i)
            return ROLE_PAR + k;
    return ROLE_NONE;
}

static void join(Roles *r, int k, Role role, bool strong)
{
    Role old = r->role[k];
    if (role == ROLE_NONE)
        return;
    if (old == ROLE_NONE || (strong && !r->strong[k])) {
        r->role[k] = role;
        r->strong[k] = strong;
    } else if (old != role && strong == r->strong[k]) {
        r->role[k] = ROLE_MIXED;
    }
}

static void join_axis(Roles *r, const Node *n, IndexId i, Role role, bool strong)
{
    for (int k = 0; k < n->naxes && k < TILE_MAX_AXES; k++)
        if (n->axes[k] == i)
            join(r, k, role, strong || role >= ROLE_PAR);
}

static Role state_role(const Tile *t, const StateInfo *st, int axis)
{
    return axis < t->npar ? (Role)(ROLE_PAR + axis) : st->role[axis - t->npar];
}

static void roles_of_state(Step *s, Roles *r, const Node *n, const StateInfo *st, const IxExpr *const *map)
{
    for (int k = 0; k < s->t->npar + st->rank; k++) {
        IndexId i;
        if (ix_is_index(map[k], &i))
            join_axis(r, n, i, state_role(s->t, st, k), true);
    }
}

static void roles_of_read(Step *s, Roles *r, const Node *n, NodeId id)
{
    const IxExpr *map[TILE_MAX_AXES];
    int state, inner = 0;
    NodeId array = tile_read(s, id, map);
    if (tile_stored(s, array))
        return;
    if (tile_whole(s, array, &state)) {
        roles_of_state(s, r, n, &s->t->states.data[state], map);
        return;
    }
    Node a = node(s, array);
    Roles body = tile_roles(s, a.args[0]);
    Node b = node(s, a.args[0]);
    Role role[TILE_MAX_AXES] = { 0 };
    for (int k = 0; k < a.naxes; k++) {
        role[k] = role_of_index(s->t, a.axes[k]);
        for (int i = 0; i < b.naxes; i++)
            if (b.axes[i] == a.axes[k] && !role[k])
                role[k] = body.role[i];
        inner += role[k] < ROLE_PAR;
    }
    for (int k = 0; k < a.naxes; k++) {
        IndexId i;
        if (ix_is_index(map[k], &i))
            join_axis(r, n, i, role[k], inner > 1);
    }
}

Roles tile_roles(Step *s, NodeId id)
{
    Roles r = { 0 };
    while (s->roles.len <= id)
        vec_push(s->t->arena, &s->roles, r);
    if (s->roles.data[id].done)
        return s->roles.data[id];
    Node n = node(s, id);
    if (n.naxes > TILE_MAX_AXES)
        tile_refuse_of(s->t, &n, "a value of the step has %d axes", n.naxes);
    r.done = true;
    for (int k = 0; k < n.naxes && k < TILE_MAX_AXES; k++)
        join(&r, k, role_of_index(s->t, n.axes[k]), true);
    StateInfo *st = n.kind == N_LOAD ? tile_state(s->t, n.tensor) : NULL;
    if (st)
        roles_of_state(s, &r, &n, st, n.map);
    if (n.kind == N_VIEW || n.kind == N_ARRAY)
        roles_of_read(s, &r, &n, id);
    for (int a = 0; (n.kind == N_MAP || n.kind == N_REDUCE) && a < n.nargs; a++) {
        Roles x = tile_roles(s, n.args[a]);
        Node arg = node(s, n.args[a]);
        for (int k = 0; k < arg.naxes && k < TILE_MAX_AXES; k++)
            join_axis(&r, &n, arg.axes[k], x.role[k], x.strong[k]);
    }
    while (s->roles.len <= id)
        vec_push(s->t->arena, &s->roles, (Roles){ 0 });
    s->roles.data[id] = r;
    return r;
}

int tile_level(Step *s, NodeId id)
{
    while (s->level.len <= id)
        vec_push(s->t->arena, &s->level, -1);
    if (s->level.data[id] >= 0)
        return s->level.data[id];
    Node n = node(s, id);
    int level = 0, state;
    const IxExpr *map[TILE_MAX_AXES];
    bool array = n.kind == N_ARRAY || n.kind == N_VIEW;
    NodeId of = array ? tile_read(s, id, map) : id;
    bool at_hand = array && (tile_stored(s, of) || (s->kind == STEP_ADJOINT && tile_whole(s, of, &state)));
    for (int a = 0; !at_hand && a < n.nargs; a++) {
        int x = tile_level(s, n.args[a]);
        level = x > level ? x : level;
    }
    if (n.kind == N_REDUCE && tile_wants(s, id) != WANT_ALWAYS && level < s->depth)
        level = s->depth;             /* the chain of what is carried is not kept waiting */
    level += n.kind == N_REDUCE;
    s->level.data[id] = level;
    return level;
}

/* ---- what equals a stored array is read from it ---- */

/* One canonical index per position and extent, so that expressions equal up to the names of their indices
 * become equal. */
typedef struct Standard { int position; const Poly *extent; IndexId index; } Standard;
typedef struct Alias { NodeId body, array, original; } Alias;
typedef struct Norm {
    Step *s;
    Vec(Standard) standard;
    Vec(Alias) aliases;
    const char *hint;             /* name of the array that is being normalised */
    Marks *shared;                /* operators that become values of their own */
} Norm;

/* A part of that many operations has a name where it is used more than once. */
enum { LONG_VALUE = 1000 };

static NodeId norm(Norm *x, NodeId id);

static IndexId standard_index(Norm *x, int position, const Poly *e)
{
    for (int i = 0; i < x->standard.len; i++)
        if (x->standard.data[i].position == position && x->standard.data[i].extent == e)
            return x->standard.data[i].index;
    Standard n = { position, e, module_index(x->s->t->m, "i", e) };
    vec_push(x->s->t->arena, &x->standard, n);
    return n.index;
}

static NodeId standard_form(Norm *x, NodeId id)
{
    Module *m = x->s->t->m;
    Node n = node(x->s, id);
    const IxExpr *to[TILE_MAX_AXES];
    if (n.naxes > TILE_MAX_AXES)
        return id;
    for (int k = 0; k < n.naxes; k++)
        to[k] = ix_index(m, standard_index(x, k, extent(x->s, n.axes[k])));
    return node_subst(m, id, n.axes, to, n.naxes);
}

/* The step reads `id` (normalised) as this array instead, where one holds the same value. */
static NodeId replace(Norm *x, NodeId id)
{
    Step *s = x->s;
    Node n = node(s, id);
    bool candidate = n.kind == N_MAP || n.kind == N_VIEW || n.kind == N_ARRAY;
    if (!x->aliases.len || !candidate || !(n.dep & DEP_STATE) || n.type == TY_BOOL)
        return id;
    NodeId form = standard_form(x, id);
    for (int i = 0; i < x->aliases.len; i++) {
        const Alias *a = &x->aliases.data[i];
        if (a->body != form)
            continue;
        Node array = node(s, a->array), original = node(s, a->original);
        const IxExpr *map[TILE_MAX_AXES];
        for (int k = 0; k < array.naxes; k++)
            for (int j = 0; j < original.naxes; j++)
                if (original.axes[j] == array.axes[k])
                    map[k] = ix_index(s->t->m, n.axes[j]);
        return node_view(s->t->m, a->array, map, array.naxes);
    }
    return id;
}

static void add_alias(Norm *x, NodeId array)
{
    Node a = node(x->s, array);
    NodeId body = norm(x, a.args[0]);
    Node b = node(x->s, body);
    bool candidate = b.kind == N_MAP || b.kind == N_VIEW || b.kind == N_ARRAY;
    if (!candidate || b.naxes != a.naxes || a.naxes > TILE_MAX_AXES || !(b.dep & DEP_STATE))
        return;
    const IxExpr *map[TILE_MAX_AXES];
    if (b.kind != N_MAP && tile_stored(x->s, tile_read(x->s, body, map)))
        return;
    Alias alias = { standard_form(x, body), array, body };
    vec_push(x->s->t->arena, &x->aliases, alias);
}

/* ---- reductions ---- */

typedef Vec(NodeId) NodeVec;

static bool varies(const Step *s, NodeId id, const IndexId *over, int n)
{
    Node x = node(s, id);
    for (int k = 0; k < x.naxes; k++)
        for (int i = 0; i < n; i++)
            if (x.axes[k] == over[i])
                return true;
    return false;
}

/* Splits a product into factors that vary over the bound indices and those that do not; -> the sign. A
 * product is one factor itself where there are many: a square of a square of a square ... has twice as many
 * with each. */
static int split_factors(Step *s, NodeId id, const Node *r, NodeVec *inside, NodeVec *outside)
{
    enum { MOST_FACTORS = 32 };
    Node n = node(s, id);
    if (n.kind == N_MAP && n.op == OP_MUL && inside->len + outside->len < MOST_FACTORS)
        return split_factors(s, n.args[0], r, inside, outside) *
               split_factors(s, n.args[1], r, inside, outside);
    if (n.kind == N_MAP && n.op == OP_NEG)
        return -split_factors(s, n.args[0], r, inside, outside);
    vec_push(s->t->arena, varies(s, id, r->bound, r->nbound) ? inside : outside, id);
    return 1;
}

static NodeId product(Step *s, const NodeVec *v)
{
    NodeId p = -1;
    for (int i = 0; i < v->len; i++)
        p = p < 0 ? v->data[i] : node_map2(s->t->m, OP_MUL, p, v->data[i]);
    return p;
}

static bool fits(const Step *s, IndexId i, Role role)
{
    const Poly *e = extent(s, i);
    const Tile *t = s->t;
    if (role == ROLE_ROW || role == ROLE_COL)
        return e->is_const && e->value == (role == ROLE_ROW ? t->rows : t->cols);
    return (int)role >= ROLE_PAR && (int)role < (int)ROLE_PAR + t->npar &&
           e == t->par_extent[(int)role - ROLE_PAR];
}

static bool take(const Step *s, IndexId i, Role role, Role *out, bool *taken)
{
    if (!fits(s, i, role) || taken[role])
        return false;
    taken[role] = true;
    *out = role;
    return true;
}

static Role other_side(Role r)
{
    return r == ROLE_ROW ? ROLE_COL : ROLE_ROW;
}

/* Is it a product of two matrices: of factors that vary over two of three bound indices each? */
static bool multiplies_matrices(const Step *s, const Node *body)
{
    int all = 0;
    if (body->kind != N_MAP || body->op != OP_MUL)
        return false;
    for (int k = 0; k < body->naxes; k++)
        all += extent(s, body->axes[k])->is_const;
    for (int i = 0; i < 2; i++) {
        Node factor = node(s, body->args[i]);
        int own = 0;
        for (int k = 0; k < factor.naxes; k++)
            own += extent(s, factor.axes[k])->is_const;
        if (own != 2)
            return false;
    }
    return all == 3;
}

/* Gives each index of a reduction's body its role: what registers demand first, then what the vectors
 * suggest, then extents. */
static bool assign_roles(Step *s, const Node *sum, NodeId body, Role *out)
{
    Roles r = tile_roles(s, body);
    Node n = node(s, body);
    bool taken[ROLE_PAR + MAX_PARALLEL] = { 0 };
    memset(out, 0, sizeof *out * TILE_MAX_AXES);
    for (int k = 0; k < n.naxes; k++)
        if (r.strong[k] && !take(s, n.axes[k], r.role[k], &out[k], taken)) {
            tile_refuse_of(s->t, sum, "it reads a state matrix across its axes (index `%s`)",
                           s->t->m->indices.data[n.axes[k]].name);
            return false;
        }
    for (int k = 0; k < n.naxes; k++)
        if (!out[k] && (r.role[k] == ROLE_ROW || r.role[k] == ROLE_COL) &&
            !take(s, n.axes[k], r.role[k], &out[k], taken))
            take(s, n.axes[k], other_side(r.role[k]), &out[k], taken);
    for (int k = 0; k < n.naxes; k++) {
        bool found = out[k] != ROLE_NONE;
        for (int p = 0; !found && p < s->t->npar && !extent(s, n.axes[k])->is_const; p++)
            found = take(s, n.axes[k], ROLE_PAR + p, &out[k], taken);
        found = found || take(s, n.axes[k], ROLE_COL, &out[k], taken) ||
                take(s, n.axes[k], ROLE_ROW, &out[k], taken);
        if (!found && multiplies_matrices(s, &n)) {
            tile_refuse_of(
                s->t, sum,
                "its sum multiplies a matrix of the step by another matrix, and a kernel that has the "
                "states on chip multiplies them by vectors");
            return false;
        }
        if (!found) {
            tile_refuse_of(s->t, sum,
                           "a sum inside the step runs over an index (`%s`) that is no axis of the state",
                           s->t->m->indices.data[n.axes[k]].name);
            return false;
        }
    }
    return true;
}

static IndexId canonical(const Tile *t, Role role)
{
    int k = (int)role - ROLE_PAR;
    return role == ROLE_ROW ? t->row : k < 0 ? t->col : t->par[k];
}

/* The canonical array of the sum of `inner`, read at the reduction's own free indices. */
static NodeId canonical_reduction(Norm *x, const Node *r, NodeId inner)
{
    Step *s = x->s;
    Module *m = s->t->m;
    Role role[TILE_MAX_AXES];
    Node n = node(s, inner);
    if (!assign_roles(s, r, inner, role))
        return -1;
    const IxExpr *to[TILE_MAX_AXES], *map[TILE_MAX_AXES];
    IndexId bound[TILE_MAX_AXES], axes[TILE_MAX_AXES];
    int nbound = 0, naxes = 0, inner_axes = 0;
    for (int k = 0; k < n.naxes; k++) {
        to[k] = ix_index(m, canonical(s->t, role[k]));
        bool is_bound = false;
        for (int i = 0; i < r->nbound; i++)
            is_bound |= r->bound[i] == n.axes[k];
        if (is_bound && role[k] >= ROLE_PAR) {
            Buf extent = { .arena = s->t->arena };
            poly_print(m, s->t->par_extent[role[k] - ROLE_PAR], &extent);
            tile_refuse_of(
                s->t, r,
                "the step, or its gradient, sums over the axis of size %s, whose elements are on different "
                "SMs",
                extent.data);
            return -1;
        }
        if (is_bound)
            bound[nbound++] = canonical(s->t, role[k]);
    }
    for (int want = ROLE_ROW; want < (int)ROLE_PAR + s->t->npar; want++)
        for (int k = 0; k < n.naxes; k++) {
            bool is_bound = false;
            for (int i = 0; i < r->nbound; i++)
                is_bound |= r->bound[i] == n.axes[k];
            if (is_bound || (int)role[k] != want)
                continue;
            axes[naxes] = canonical(s->t, role[k]);
            map[naxes++] = ix_index(m, n.axes[k]);
            inner_axes += role[k] < ROLE_PAR;
        }
    if (inner_axes > 1) {
        tile_refuse_of(s->t, r, "the step holds a product of matrices");
        return -1;
    }
    NodeId body = node_subst(m, inner, n.axes, to, n.naxes);
    NodeId array = node_array(m, node_reduce(m, r->reduce, body, bound, nbound), axes, naxes, NULL, r->span);
    if (x->hint && !m->nodes.data[m->nodes.data[array].args[0]].name)
        m->nodes.data[m->nodes.data[array].args[0]].name = x->hint;
    return node_view(m, array, map, naxes);
}

static NodeId norm_reduce(Norm *x, NodeId id)
{
    Step *s = x->s;
    Module *m = s->t->m;
    Node r = node(s, id);
    NodeId body = norm(x, r.args[0]);
    NodeVec inside = { 0 }, outside = { 0 };
    int sign = 1;
    for (int k = 0; k < r.nbound; k++)
        if (r.bound[k] < IX_FIRST)
            tile_refuse_of(s->t, &r, "the step sums over the batch or over time");
    if (r.reduce == R_SUM)
        sign = split_factors(s, body, &r, &inside, &outside);
    else
        vec_push(s->t->arena, &inside, body);
    NodeId inner = product(s, &inside);
    for (int k = 0; k < r.nbound; k++)
        if (inner < 0 || !varies(s, inner, &r.bound[k], 1)) {
            if (r.reduce == R_PROD)
                tile_refuse_of(s->t, &r, "a product over an index that nothing depends on");
            if (r.reduce == R_SUM)
                vec_push(s->t->arena, &outside, node_size(m, extent(s, r.bound[k])));
        }
    NodeId scale = product(s, &outside);
    if (s->t->refused)
        return id;
    NodeId value = inner;
    if (inner >= 0 && varies(s, inner, r.bound, r.nbound)) {
        value = canonical_reduction(x, &r, inner);
        if (value < 0)
            return id;
        value = replace(x, value);
    }
    if (scale >= 0)
        value = value < 0 ? scale : node_map2(m, OP_MUL, scale, value);
    return sign < 0 ? node_map1(m, OP_NEG, value) : value;
}

/* ---- lengths ---- */

/* Operators and reads of the text that stands for a value, to a number beyond any that is asked about. What
 * it shares is counted wherever it stands: values have names, and nothing in them has. */
static int length_of(Step *s, NodeId id, Marks *known)
{
    enum { MANY = 1 << 20 };
    Node n = node(s, id);
    int state, length = marks_get(known, id);
    if (length)
        return length;
    bool at_hand = n.kind == N_ARRAY && (tile_stored(s, id) || (s->kind == STEP_ADJOINT && tile_whole(s, id, &state)));
    length = 1;
    for (int i = 0; i < n.nargs && !at_hand; i++) {
        int arg = length_of(s, n.args[i], known);
        length = n.kind != N_MAP && n.kind != N_REDUCE ? length : length + arg < MANY ? length + arg : MANY;
        if (n.kind == N_ARRAY && arg > TILE_MOST_OPERATIONS)
            tile_refuse_of(
                s->t, &n,
                "%s%s%s of its step is made of more than %d operations: parts of it that have a name are "
                "computed once",
                n.name ? "`" : "a value", n.name ? n.name : "", n.name ? "`" : "", TILE_MOST_OPERATIONS);
    }
    marks_set(known, id, length);
    return length;
}

static void count_uses(const Step *s, NodeId id, Marks *uses)
{
    Node n = node(s, id);
    int before = marks_get(uses, id);
    marks_set(uses, id, before + 1);
    for (int i = 0; !before && (n.kind == N_MAP || n.kind == N_REDUCE) && i < n.nargs; i++)
        count_uses(s, n.args[i], uses);
}

static void mark_shared(const Step *s, NodeId id, const Marks *uses, Marks *seen, Marks *shared)
{
    Node n = node(s, id);
    if (!marks_first(seen, id) || (n.kind != N_MAP && n.kind != N_REDUCE))
        return;
    if (n.kind == N_MAP && n.type == TY_REAL && n.nargs && marks_get(uses, id) > 1)
        marks_set(shared, id, 1);
    for (int i = 0; i < n.nargs; i++)
        mark_shared(s, n.args[i], uses, seen, shared);
}

/* What a long value uses more than once becomes another value, which has a name. */
static Marks *find_shared(Step *s)
{
    Module *m = s->t->m;
    Marks *shared = marks_begin(m), *known = marks_begin(m);
    const Reason *refused = s->t->refused;
    for (NodeId id = 0; id < s->t->old_nodes; id++) {
        Node n = node(s, id);
        if (n.kind != N_ARRAY || length_of(s, n.args[0], known) < LONG_VALUE)
            continue;
        Marks *uses = marks_begin(m), *seen = marks_begin(m);
        count_uses(s, n.args[0], uses);
        mark_shared(s, n.args[0], uses, seen, shared);
        marks_end(uses);
        marks_end(seen);
    }
    s->t->refused = refused;          /* what is long before nothing has a name */
    marks_end(known);
    return shared;
}

/* ---- the graph ---- */

static NodeId norm_array(Norm *x, NodeId id)
{
    Step *s = x->s;
    Node n = node(s, id);
    int state;
    if (tile_stored(s, id) || (s->kind == STEP_ADJOINT && tile_whole(s, id, &state)))
        return id;
    const char *outer = x->hint;
    x->hint = n.name ? n.name : outer;
    NodeId body = norm(x, n.args[0]);
    x->hint = outer;
    return node_array(s->t->m, body, n.axes, n.naxes, n.name, n.span);
}

/* Over standard indices, so that what is equal up to their names is one value. */
static NodeId named(Norm *x, NodeId id, NodeId value)
{
    Module *m = x->s->t->m;
    Node n = node(x->s, value);
    IndexId axes[TILE_MAX_AXES];
    const IxExpr *map[TILE_MAX_AXES];
    if (!marks_get(x->shared, id) || n.kind != N_MAP || n.naxes > TILE_MAX_AXES)
        return value;
    for (int k = 0; k < n.naxes; k++) {
        axes[k] = standard_index(x, k, extent(x->s, n.axes[k]));
        map[k] = ix_index(m, n.axes[k]);
    }
    return replace(x, node_view(m, node_array(m, standard_form(x, value), axes, n.naxes, NULL, n.span), map, n.naxes));
}

static NodeId norm_fresh(Norm *x, NodeId id)
{
    Module *m = x->s->t->m;
    Node n = node(x->s, id);
    NodeId args[4];
    if (n.step)
        tile_refuse_of(x->s->t, &n,
                       "its step reads another step of %s; define a value that is this read and use that",
                       n.kind == N_LOAD             ? m->tensors.data[n.tensor].name
                       : node(x->s, n.args[0]).name ? node(x->s, n.args[0]).name
                                                    : "a value");
    if (n.kind == N_LOAD && m->tensors.data[n.tensor].dtype == DT_I32 && !m->tensors.data[n.tensor].lengths)
        tile_refuse_of(x->s->t, &n, "its step reads the integer `%s`", m->tensors.data[n.tensor].name);
    module_at(m, n.span, n.chain);
    switch (n.kind) {
    case N_ARRAY: return norm_array(x, id);
    case N_VIEW: return node_view_at(m, norm(x, n.args[0]), n.map, n.nmap, n.step, n.past);
    case N_REDUCE: return norm_reduce(x, id);
    case N_MAP:
        for (int i = 0; i < n.nargs; i++)
            args[i] = norm(x, n.args[i]);
        return named(x, id, replace(x, node_map(m, n.op, args, n.nargs)));
    default: return id;
    }
}

static NodeId norm(Norm *x, NodeId id)
{
    Step *s = x->s;
    if (id >= s->nnorm)
        return id;
    if (s->norm[id] < 0)
        s->norm[id] = norm_fresh(x, id);
    return s->norm[id];
}

static bool saveable(const Tile *t, NodeId id)
{
    Node n = t->m->nodes.data[id];
    return t->in_forward[id] && n.kind == N_ARRAY && (n.dep & DEP_STATE) && tile_stored(t->adjoint, id);
}

static void mark_saved(Norm *x, NodeId id, bool *seen, bool *saved)
{
    Tile *t = x->s->t;
    const IxExpr *map[TILE_MAX_AXES];
    if (id < 0 || seen[id])
        return;
    seen[id] = true;
    Node n = node(x->s, id);
    NodeId image = n.dep & DEP_STATE && !(n.dep & DEP_COTANGENT) && n.kind != N_LOAD ? norm(x, id) : id;
    t->refused = NULL;
    Node now = node(x->s, image);
    NodeId read = now.kind == N_VIEW || now.kind == N_ARRAY ? tile_read(x->s, image, map) : -1;
    if (read >= 0 && read < t->old_nodes && saveable(t, read)) {
        saved[read] = true;
        return;
    }
    for (int i = 0; i < n.nargs; i++)
        mark_saved(x, n.args[i], seen, saved);
}

static void add_aliases(Norm *x)
{
    Step *s = x->s;
    int state;
    for (NodeId id = 0; s->kind != STEP_FORWARD && id < s->t->old_nodes; id++) {
        Node n = node(s, id);
        if (n.kind == N_ARRAY && (n.dep & DEP_STATE) && !(n.dep & DEP_COTANGENT) &&
            (tile_stored(s, id) || (s->kind == STEP_ADJOINT && tile_whole(s, id, &state))))
            add_alias(x, id);
        s->t->refused = NULL;         /* what cannot be matched is not needed here */
    }
}

static void begin(Step *s)
{
    s->nnorm = s->t->m->nodes.len;
    s->norm = arena_alloc(s->t->arena, sizeof *s->norm * (size_t)(s->nnorm + 1));
    memset(s->norm, 0xff, sizeof *s->norm * (size_t)(s->nnorm + 1));
}

void tile_find_saved(Step *s, bool *saved)
{
    Tile *t = s->t;
    Module *m = t->m;
    Norm x = { .s = s, .shared = find_shared(s) };
    begin(s);
    add_aliases(&x);
    bool *seen = arena_alloc(t->arena, (size_t)s->nnorm + 1);
    for (TensorId k = 0; k < m->tensors.len; k++) {
        mark_saved(&x, m->roots.data[k].dprev, seen, saved);
        mark_saved(&x, m->roots.data[k].dinput, seen, saved);
        mark_saved(&x, m->roots.data[k].dparam, seen, saved);
        if (m->roots.data[k].next >= 0)
            mark_saved(&x, node(s, m->roots.data[k].next).args[0], seen, saved);
    }
    marks_end(x.shared);
    module_at(m, m->span, NULL);
}

static void collect(Step *s, NodeId id, bool *seen)
{
    if (seen[id])
        return;
    seen[id] = true;
    Node n = node(s, id);
    int state;
    if (n.kind == N_ARRAY && (tile_stored(s, id) || (s->kind == STEP_ADJOINT && tile_whole(s, id, &state))))
        return;
    for (int i = 0; i < n.nargs; i++)
        collect(s, n.args[i], seen);
    if (n.kind != N_ARRAY || node(s, n.args[0]).kind != N_REDUCE)
        return;
    Node r = node(s, n.args[0]), body = node(s, r.args[0]);
    Red red = { .array = id, .reduce = n.args[0], .op = r.reduce };
    for (int k = 0; k < r.nbound; k++) {
        red.over_row |= r.bound[k] == s->t->row;
        red.over_col |= r.bound[k] == s->t->col;
    }
    for (int k = 0; k < body.naxes; k++) {
        red.vary_row |= body.axes[k] == s->t->row;
        red.vary_col |= body.axes[k] == s->t->col;
    }
    red.name = r.name ? r.name : "sum";
    vec_push(s->t->arena, &s->reds, red);
}

/* ---- who values are for ---- */

Wants tile_wants(const Step *s, NodeId id)
{
    return s->wants && id < s->nwants ? s->wants[id] : WANT_ALWAYS;
}

static void add_wants(Step *s, NodeId id, Wants w)
{
    int state;
    if ((s->wants[id] & w) == w)
        return;
    s->wants[id] |= w;
    Node n = node(s, id);
    if (n.kind == N_LOAD)
        s->tensor_wants[n.tensor] |= w;
    if (n.kind == N_ARRAY && (tile_stored(s, id) || tile_whole(s, id, &state)))
        return;
    for (int i = 0; i < n.nargs; i++)
        add_wants(s, n.args[i], w);
}

/* Backward's outs are for gradients that may not be asked for. */
static void find_wants(Step *s)
{
    Tile *t = s->t;
    if (s->kind != STEP_ADJOINT)
        return;
    s->nwants = t->m->nodes.len;
    s->wants = arena_alloc(t->arena, sizeof *s->wants * (size_t)(s->nwants + 1));
    s->tensor_wants = arena_alloc(t->arena, sizeof *s->wants * (size_t)(t->m->tensors.len + 1));
    for (int k = 0; k < s->next.len; k++)
        add_wants(s, s->next.data[k], WANT_ALWAYS);
    for (int k = 0; k < s->outs.len; k++) {
        int c = t->class_of.data[k];
        add_wants(s, s->outs.data[k], c < 0 ? WANT_ALWAYS : (Wants)1 << c);
    }
}

static void find_levels(Step *s)
{
    for (int k = 0; k < s->reds.len; k++) {
        Red *r = &s->reds.data[k];
        r->wants = tile_wants(s, r->reduce);
        int level = r->wants == WANT_ALWAYS ? tile_level(s, r->reduce) : 0;
        s->depth = level > s->depth ? level : s->depth;
    }
    s->level.len = 0;
    for (int k = 0; k < s->reds.len; k++)
        s->reds.data[k].level = tile_level(s, s->reds.data[k].reduce);
}

static void refuse_long(Step *s)
{
    Marks *known = marks_begin(s->t->m);
    for (int k = 0; k < s->next.len; k++)
        length_of(s, s->next.data[k], known);
    for (int k = 0; k < s->outs.len; k++)
        length_of(s, s->outs.data[k], known);
    marks_end(known);
}

void tile_normalise(Step *s, const NodeId *next, const NodeId *outs, int nouts)
{
    Tile *t = s->t;
    Module *m = t->m;
    Norm x = { .s = s, .shared = find_shared(s) };
    begin(s);
    add_aliases(&x);
    for (int k = 0; k < t->states.len && !t->refused; k++)
        vec_push(t->arena, &s->next, norm(&x, next[k]));
    for (int k = 0; k < nouts && !t->refused; k++)
        vec_push(t->arena, &s->outs, norm(&x, outs[k]));
    marks_end(x.shared);
    if (!t->refused)
        refuse_long(s);
    if (t->refused)
        return;
    find_wants(s);
    if (s->wants) {
        tile_merge_sums(s);
        refuse_long(s);
    }
    int count = m->nodes.len;
    bool *seen = arena_alloc(t->arena, (size_t)count + 1);
    for (int k = 0; k < s->next.len; k++)
        collect(s, s->next.data[k], seen);
    for (int k = 0; k < s->outs.len; k++)
        collect(s, s->outs.data[k], seen);
    find_wants(s);
    find_levels(s);
    module_at(m, m->span, NULL);
}
