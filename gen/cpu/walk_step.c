/* walk_step.c: what a step of a walk computes on the CPU, and in which order. In come the roots (next
 * states or adjoints, and what is stored at each step); out go the values that they are made of, each
 * with its loops: in which pass over the rows of the states it is computed, in which loop of a row, and
 * where it lies meanwhile.
 *
 * Passes are numbered. Those with an odd number loop over rows; those with an even number, between them,
 * have vectors and numbers that no row is needed for. Within a pass a value's level says behind which
 * loops of the row it stands: a sum along the row is there behind the loop that makes it. What a pass
 * adds up over rows is there behind the pass. */
#include "walk.h"

#include "ir/ops.h"

/* CHEAP: operators of a row's number that are not worth a pass of their own, in which they would be vectors.
 * FUNCTION: cost of an operator that is a call, which is. */
enum { CHEAP = 12, FUNCTION = 8 };

static WalkValue *value_at(WalkStep *s, int k)
{
    return &s->values.data[k];
}

/* ---- which values ---- */

static void need(WalkStep *s, NodeId id, bool *needed);

static void need_array(WalkStep *s, NodeId array, bool *needed)
{
    CpuWalk *w = s->w;
    if (walk_stored(w, array) || needed[array])
        return;
    if (s->kind == WALK_BACK && array < w->p->n_nodes && w->after_of[array])
        return;
    if (!(array < w->p->n_nodes && w->p->is_alias[array]))
        needed[array] = true;
    need(s, w->m->nodes.data[array].args[0], needed);
}

static void need(WalkStep *s, NodeId id, bool *needed)
{
    Node n = s->w->m->nodes.data[id];
    if (n.kind == N_ARRAY || n.kind == N_VIEW) {
        need_array(s, n.kind == N_VIEW ? n.args[0] : id, needed);
        return;
    }
    for (int k = 0; k < n.nargs; k++)
        need(s, n.args[k], needed);
}

/* A root is computed, even where it is a name for another value. */
static void need_root(WalkStep *s, NodeId root, bool *needed)
{
    if (needed[root])
        return;
    needed[root] = true;
    need(s, s->w->m->nodes.data[root].args[0], needed);
}

/* A copy of what lies elsewhere, for a state to take. */
static NodeId copy_of(CpuWalk *w, NodeId array)
{
    Module *m = w->m;
    Node a = m->nodes.data[array];
    IndexId axes[WALK_AXES];
    const IxExpr *map[WALK_AXES];
    if (a.naxes > WALK_AXES) {
        walk_refuse(w, &a, "a value has more than %d axes", WALK_AXES);
        return array;
    }
    for (int k = 0; k < a.naxes; k++) {
        axes[k] = module_index(m, "copy", m->indices.data[a.axes[k]].extent);
        map[k] = ix_index(m, axes[k]);
    }
    return node_array(m, node_view(m, array, map, a.naxes), axes, a.naxes, NULL, a.span);
}

static void add_value(WalkStep *s, NodeId id)
{
    CpuWalk *w = s->w;
    Node a = w->m->nodes.data[id], body = w->m->nodes.data[a.args[0]];
    WalkValue v = {
        .array = id, .naxes = a.naxes, .body = a.args[0], .row = -1, .col = -1, .rows = 1, .cols = 1
    };
    if (a.naxes > WALK_AXES)
        walk_refuse(w, &a, "a value has more than %d axes", WALK_AXES);
    if (body.kind == N_REDUCE) {
        v.reduces = true;
        v.op = body.reduce;
        v.nbound = body.nbound;
        v.body = body.args[0];
        if (body.nbound > 2)
            walk_refuse(w, &a, "a sum goes over more than two axes");
        for (int k = 0; k < body.nbound && k < 2; k++)
            v.bound[k] = body.bound[k];
    }
    v.out = s->kind != WALK_REPLAY && id < w->p->n_nodes &&
            (w->is_out[id] || (w->walk->made && w->walk->made[id] && w->walk->of_node[id].home != HOME_NONE));
    vec_push(w->arena, &s->values, v);
}

static void find_values(WalkStep *s)
{
    CpuWalk *w = s->w;
    Module *m = w->m;
    NodeId *roots = arena_alloc(w->arena, sizeof *roots * (size_t)(w->states.len + 1));
    for (int k = 0; k < w->states.len; k++) {
        const Roots *r = &m->roots.data[w->states.data[k].tensor];
        roots[k] = s->kind == WALK_BACK ? r->dprev : r->next;
        bool taken = walk_stored(w, roots[k]) ||
                     (s->kind == WALK_BACK && roots[k] < w->p->n_nodes && w->after_of[roots[k]]);
        for (int i = 0; i < k; i++)
            taken |= roots[i] == roots[k];
        if (taken)
            roots[k] = copy_of(w, roots[k]);
    }
    if (w->refused)
        return;
    bool *needed = arena_alloc(w->arena, (size_t)m->nodes.len + 1);
    for (int k = 0; k < w->states.len; k++) {
        w->states.data[k].root = roots[k];
        need_root(s, roots[k], needed);
    }
    for (int k = 0; k < w->walk->outs.len && s->kind != WALK_REPLAY; k++)
        need_root(s, w->walk->outs.data[k], needed);
    for (NodeId id = 0; id < w->p->n_nodes && w->walk->made && s->kind == WALK_FORWARD; id++)
        if (w->walk->made[id] && w->walk->of_node[id].home != HOME_NONE)
            need_root(s, id, needed);
    int *value_of = arena_alloc(w->arena, sizeof *value_of * (size_t)(m->nodes.len + 1));
    for (NodeId id = 0; id < m->nodes.len; id++)
        if (needed[id]) {
            add_value(s, id);
            value_of[id] = s->values.len;
        }
    s->value_of = value_of;
    for (int k = 0; k < w->states.len; k++)
        value_at(s, value_of[roots[k]] - 1)->next_of = k + 1;
}

/* ---- which axes are the item's ---- */

static bool same_extent(const CpuWalk *w, IndexId i, const Poly *e)
{
    return w->m->indices.data[i].extent == e;
}

/* An axis of run-time size is a parallel one, or holds one and an axis of bound size in it. */
static void axis_of_size(CpuWalk *w, const Poly *e, WalkAxis *a, const Node *of)
{
    for (int p = 0; p < w->npar; p++)
        if (e == w->par_extent[p]) {
            *a = (WalkAxis){ .par = p };
            return;
        }
    for (int p = 0; p < w->npar; p++) {
        const Poly *x = w->par_extent[p];
        if (x->is_const || !x->nterms || !e->nterms)
            continue;
        int64_t n = e->terms[0].coef / x->terms[0].coef;
        if (n > 0 && poly_mul(w->m, x, poly_const(w->m, n)) == e) {
            *a = (WalkAxis){ .par = p, .own = true, .n = n };
            return;
        }
    }
    walk_refuse(w, of, "a value of each step has an axis of run-time size: bind it with --dim");
}

typedef struct AxisSearch {
    CpuWalk *w;
    WalkStep *s;
    WalkValue *v;
} AxisSearch;

/* Is one of the value's axes read where states, or values that are known, have a parallel axis? */
static void find_parallel(CpuWalk *w, WalkStep *s, WalkValue *v, NodeId id)
{
    Node n = w->m->nodes.data[id];
    if (n.kind != N_LOAD && n.kind != N_VIEW && n.kind != N_ARRAY) {
        for (int k = 0; k < n.nargs; k++)
            find_parallel(w, s, v, n.args[k]);
        return;
    }
    NodeId array = n.kind == N_LOAD ? -1 : n.kind == N_VIEW ? n.args[0] : id;
    const Tensor *x = n.kind == N_LOAD ? &w->m->tensors.data[n.tensor] : NULL;
    bool state =
        x ? x->kind == T_STATE || x->kind == T_DNEXT
          : s->kind == WALK_BACK && array < w->p->n_nodes && w->after_of[array] && !walk_stored(w, array);
    const WalkValue *of = array >= 0 && s->value_of[array] ? value_at(s, s->value_of[array] - 1) : NULL;
    int count = n.kind == N_ARRAY ? n.naxes : n.nmap;
    const IndexId *axes = w->m->nodes.data[v->array].axes;
    for (int k = 0; k < count; k++) {
        int par = state && k < w->npar ? k : of && !of->axes[k].own ? of->axes[k].par : -1;
        IndexId which;
        if (par < 0 || (n.kind == N_ARRAY ? (which = n.axes[k]) < 0 : !ix_is_index(n.map[k], &which)))
            continue;
        for (int i = 0; i < v->naxes; i++)
            if (axes[i] == which && same_extent(w, which, w->par_extent[par]))
                v->axes[i] = (WalkAxis){ .par = par };
    }
}

/* A read of another value at a parallel index makes that axis one. */
static void demand_parallel(void *data, const WalkRead *r, NodeId id)
{
    AxisSearch *x = data;
    (void)id;
    if (r->at != AT_VALUE)
        return;
    int number = x->s->value_of[r->id];
    if (!number)
        return;
    WalkValue *d = value_at(x->s, number - 1);
    for (int k = 0; k < d->naxes; k++)
        for (int p = 0; p < x->w->npar; p++)
            if (d->axes[k].own && d->axes[k].par < 0 && walk_is_index(r->map[k], x->w->par[p]) &&
                same_extent(x->w, x->w->m->nodes.data[d->array].axes[k], x->w->par_extent[p]))
                d->axes[k] = (WalkAxis){ .par = p };
}

static void find_axes(WalkStep *s)
{
    CpuWalk *w = s->w;
    Module *m = w->m;
    for (int i = 0; i < s->values.len; i++) {
        WalkValue *v = value_at(s, i);
        Node a = m->nodes.data[v->array];
        for (int k = 0; k < v->naxes; k++) {
            const Poly *e = m->indices.data[a.axes[k]].extent;
            v->axes[k] = (WalkAxis){ .par = -1, .own = true, .n = e->value, .local = a.axes[k] };
            if (!e->is_const)
                axis_of_size(w, e, &v->axes[k], &a);
            if (v->axes[k].own && v->axes[k].par >= 0)
                v->axes[k].local = module_index(m, "within", poly_const(m, v->axes[k].n));
        }
        if (v->next_of)
            for (int k = 0; k < w->npar && k < v->naxes; k++)
                v->axes[k] = (WalkAxis){ .par = k };
        find_parallel(w, s, v, v->body);
        if (w->refused)
            return;
    }
    WalkStep bare = { .w = w, .kind = s->kind }; /* so that reads of values have all their axes */
    for (int i = s->values.len - 1; i >= 0 && !w->refused; i--) {
        WalkFrame f;
        AxisSearch x = { w, s, value_at(s, i) };
        walk_frame(w, x.v, &f);
        walk_each_read(w, &bare, &f, x.v->body, demand_parallel, &x);
    }
}

/* ---- loops ---- */

typedef struct Vote {
    IndexId index[4];
    int n, votes[4];
} Vote;

static void vote(void *data, const WalkRead *r, NodeId id)
{
    Vote *x = data;
    (void)id;
    if (r->n < 2)
        return;
    for (int k = 0; k < x->n; k++) {
        if (walk_is_index(r->map[r->n - 1], x->index[k]))
            x->votes[k] += r->at == AT_MEMORY ? 1 : 2;
        if (walk_is_index(r->map[r->n - 2], x->index[k]))
            x->votes[k] -= r->at == AT_MEMORY ? 1 : 2;
    }
}

static bool is_bound(const WalkValue *v, IndexId i)
{
    for (int k = 0; k < v->nbound; k++)
        if (v->bound[k] == i)
            return true;
    return false;
}

static void find_loops(WalkStep *s, WalkValue *v)
{
    CpuWalk *w = s->w;
    Node a = w->m->nodes.data[v->array];
    Vote x = { .n = 0 };
    for (int k = 0; k < v->naxes; k++)
        if (v->axes[k].own) {
            if (v->rank == 2 || x.n == 2) {
                walk_refuse(w, &a, "a value of the step has more than two axes");
                return;
            }
            v->own[v->rank++] = k;
            x.index[x.n++] = v->axes[k].local;
        }
    for (int k = 0; k < v->nbound; k++) {
        if (x.n == 2 || v->bound[k] < IX_FIRST || !w->m->indices.data[v->bound[k]].extent->is_const) {
            walk_refuse(w, &a,
                        x.n == 2 ? "a sum of the step is a product of matrices"
                                 : "a sum of the step has a run-time size");
            return;
        }
        x.index[x.n++] = v->bound[k];
    }
    WalkFrame f;
    walk_frame(w, v, &f);
    walk_each_read(w, s, &f, v->body, vote, &x);
    int col = x.n == 2 && x.votes[0] <= x.votes[1] ? 1 : 0;
    if (x.n == 0)
        return;
    v->col = x.index[col];
    v->cols = w->m->indices.data[v->col].extent->value;
    v->over_col = is_bound(v, v->col);
    if (x.n == 1)
        return;
    v->row = x.index[1 - col];
    v->rows = w->m->indices.data[v->row].extent->value;
    v->over_row = is_bound(v, v->row);
}

/* ---- passes and levels ---- */

/* Operators below, as the table counts them. */
static int cost(const CpuWalk *w, NodeId id)
{
    const Node *n = &w->m->nodes.data[id];
    int sum = n->kind == N_MAP ? op_table[n->op].cost : 0;
    if (sum >= FUNCTION && n->op != OP_DIV)
        return CHEAP + 1;
    for (int k = 0; k < n->nargs && n->kind == N_MAP && sum <= CHEAP; k++)
        sum += cost(w, n->args[k]);
    return sum;
}

typedef struct Finding {
    WalkStep *s;
    WalkValue *v;
    int least;
    bool rows;
    bool all_own;
} Finding;

/* A matrix value reads it at the own row: or what such a one reads does, at its own element. */
static void mark_row_reads(void *data, const WalkRead *r, NodeId id)
{
    Finding *x = data;
    (void)id;
    if (r->at != AT_VALUE || r->n != 1)
        return;
    WalkValue *d = value_at(x->s, r->id);
    if (x->v->row >= 0 ? walk_is_index(r->map[0], x->v->row)
                       : x->v->with_rows && walk_is_index(r->map[0], x->v->col))
        d->with_rows = true;
}

/* Is a value of the same pass complete for the row, where r reads it? */
static bool row_local(const WalkValue *v, const WalkValue *d, const WalkRead *r)
{
    if (d->over_row || d->row < 0 || d->rows != v->rows)
        return false;
    IndexId row = v->row;
    return r->n > 0 && walk_is_index(r->map[0], row) && (d->rank < 2 || d->axes[d->own[0]].local == d->row);
}

static void least_pass(void *data, const WalkRead *r, NodeId id)
{
    Finding *x = data;
    (void)id;
    if (r->at != AT_VALUE)
        return;
    const WalkValue *d = value_at(x->s, r->id);
    int at = d->pass;
    if (x->rows)
        at = d->pass % 2 == 0 ? d->pass + 1 : row_local(x->v, d, r) ? d->pass : d->pass + 2;
    else
        at = d->pass % 2 == 0 ? d->pass : d->pass + 1;
    x->least = at > x->least ? at : x->least;
}

/* Does everything that it reads of pass x->least belong to its own row? */
static void check_rows(void *data, const WalkRead *r, NodeId id)
{
    Finding *x = data;
    (void)id;
    if (r->at != AT_VALUE)
        return;
    const WalkValue *d = value_at(x->s, r->id);
    if (d->pass == x->least)
        x->all_own &= row_local(x->v, d, r) && d->rank == 1;
    else if (d->pass > x->least)
        x->all_own = false;
}

static void each_of(WalkStep *s, WalkValue *v, WalkEach *each, void *data)
{
    WalkFrame f;
    walk_frame(s->w, v, &f);
    walk_each_read(s->w, s, &f, v->body, each, data);
}

/* A vector that is cheap, and wanted by rows, is computed row by row where what it is made of is. */
static bool goes_with_rows(WalkStep *s, WalkValue *v, int pass)
{
    if (pass < 2 || !v->with_rows || v->reduces || v->rank != 1 || cost(s->w, v->body) > CHEAP)
        return false;
    WalkValue as_row = *v;
    as_row.row = v->col;
    as_row.rows = v->cols;
    as_row.col = -1;
    as_row.cols = 1;
    Finding x = { .s = s, .v = &as_row, .least = pass - 1, .all_own = true };
    each_of(s, &as_row, check_rows, &x);
    if (!x.all_own)
        return false;
    *v = as_row;
    return true;
}

static void find_pass(WalkStep *s, WalkValue *v)
{
    Finding x = { .s = s, .v = v, .rows = v->row >= 0, .least = v->row >= 0 ? 1 : 0 };
    each_of(s, v, least_pass, &x);
    v->pass = x.least;
    if (!x.rows && goes_with_rows(s, v, v->pass))
        v->pass--;
    s->passes = v->pass + 1 > s->passes ? v->pass + 1 : s->passes;
}

/* Is it read at the element that is computed, in the same loop? */
static bool same_element(const WalkValue *v, const WalkValue *d, const WalkRead *r)
{
    if (d->reduces || d->pass != v->pass || d->rows != v->rows || d->cols != v->cols || d->col < 0 ||
        v->col < 0)
        return false;
    for (int k = 0; k < d->rank; k++) {
        bool col = d->axes[d->own[k]].local == d->col;
        if (!walk_is_index(r->map[k], col ? v->col : v->row))
            return false;
    }
    return true;
}

static void find_level(void *data, const WalkRead *r, NodeId id)
{
    Finding *x = data;
    (void)id;
    if (r->at != AT_VALUE)
        return;
    const WalkValue *d = value_at(x->s, r->id);
    if (d->pass != x->v->pass)
        return;
    bool loop = d->col >= 0; /* it is there behind its loop, or, of one element, within it */
    int at = d->level + (loop && !same_element(x->v, d, r));
    x->least = at > x->least ? at : x->least;
}

/* ---- where they lie ---- */

static void find_variables(void *data, const WalkRead *r, NodeId id)
{
    Finding *x = data;
    (void)id;
    if (r->at != AT_VALUE)
        return;
    WalkValue *d = value_at(x->s, r->id);
    const WalkValue *v = x->v;
    if (d->rank == 0)
        return;
    bool here = d->pass == v->pass;
    if (d->col >= 0 && !d->reduces)
        d->variable &= here && d->level == v->level && same_element(v, d, r);
    else
        d->variable &= here && (d->row < 0 || row_local(v, d, r));
    if (d->col >= 0 && d->row >= 0 && !d->reduces)
        d->one_row &= here && walk_is_index(r->map[0], v->row);
}

/* May the next value overwrite the state? Not if that is read behind it, or at other elements beside it. */
typedef struct Overwrite {
    WalkStep *s;
    const WalkValue *v;
    bool may;
} Overwrite;

static void check_overwrite(void *data, const WalkRead *r, NodeId id)
{
    Overwrite *x = data;
    CpuWalk *w = x->s->w;
    (void)id;
    if (r->at != (x->s->kind == WALK_BACK ? AT_ADJOINT : AT_STATE))
        return;
    const WalkState *st = &w->states.data[r->id];
    const WalkValue *next = value_at(x->s, x->s->value_of[st->root] - 1), *v = x->v;
    bool ok = v->pass < next->pass;
    if (v->pass == next->pass) {
        bool own_row =
            next->row < 0 || (v->rows == next->rows && r->n > 0 && walk_is_index(r->map[0], v->row) &&
                              next->axes[next->own[0]].local == next->row);
        bool own = own_row && next->col >= 0 && v->col >= 0 && v->cols == next->cols && r->n > 0 &&
                   walk_is_index(r->map[r->n - 1], v->col) &&
                   next->axes[next->own[next->rank - 1]].local == next->col;
        ok = own_row && !next->reduces && next->col >= 0 &&
             (v->level < next->level || (v->level == next->level && own));
    }
    if (!ok)
        w->states.data[r->id].in_place = false;
}

static void place_values(WalkStep *s)
{
    CpuWalk *w = s->w;
    for (int i = 0; i < s->values.len; i++) {
        WalkValue *v = value_at(s, i);
        v->variable = !v->next_of && !v->over_row && !(v->out && v->col < 0 && v->row >= 0) &&
                      !(v->out && v->reduces && v->rank);
        v->one_row = !v->next_of;
    }
    for (int i = 0; i < s->values.len; i++) {
        Finding x = { .s = s, .v = value_at(s, i) };
        each_of(s, x.v, find_variables, &x);
    }
    for (int k = 0; k < w->states.len; k++)
        w->states.data[k].in_place = s->kind != WALK_REPLAY;
    for (int i = 0; i < s->values.len; i++) {
        Overwrite x = { .s = s, .v = value_at(s, i) };
        each_of(s, value_at(s, i), check_overwrite, &x);
    }
}

WalkStep *walk_step(CpuWalk *w, WalkKind kind)
{
    WalkStep *s = arena_alloc(w->arena, sizeof *s);
    s->w = w;
    s->kind = kind;
    find_values(s);
    if (!w->refused)
        find_axes(s);
    for (int i = 0; i < s->values.len && !w->refused; i++)
        find_loops(s, value_at(s, i));
    for (int i = s->values.len - 1; i >= 0 && !w->refused; i--) {
        Finding x = { .s = s, .v = value_at(s, i) };
        each_of(s, x.v, mark_row_reads, &x);
    }
    for (int i = 0; i < s->values.len && !w->refused; i++)
        find_pass(s, value_at(s, i));
    for (int i = 0; i < s->values.len && !w->refused; i++) {
        Finding x = { .s = s, .v = value_at(s, i) };
        each_of(s, x.v, find_level, &x);
        x.v->level = x.least;
    }
    if (!w->refused)
        place_values(s);
    return s;
}
