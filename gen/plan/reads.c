/* reads.c: what an array's expression reads, for the planner. In comes a normalised module; out come, for one
 * expression, its reads resolved through aliases (arrays that are a plain read of another value), the pieces
 * of arrays that are laid together (the adjoint of a stacked product), and contractions that one GEMM
 * computes, with strides. Decides nothing, changes nothing. */
#include <string.h>

#include "base/mutate.h"
#include "ir/conditions.h"
#include "ir/marks.h"
#include "reads.h"

static const Node *at(const Module *m, NodeId id)
{
    return &m->nodes.data[id];
}

const Poly *elements_from(Module *m, NodeId array, int first)
{
    const Poly *p = poly_const(m, 1);
    for (int i = first; i < at(m, array)->naxes; i++)
        p = poly_mul(m, p, m->indices.data[at(m, array)->axes[i]].extent);
    return p;
}

const Poly *array_elements(Module *m, NodeId array)
{
    return elements_from(m, array, 0);
}

const Poly *tensor_elements(Module *m, TensorId t)
{
    const Poly *p = poly_const(m, 1);
    for (int i = 0; i < m->tensors.data[t].rank; i++)
        p = poly_mul(m, p, m->tensors.data[t].axes[i]);
    return p;
}

static bool is_read(const Node *n)
{
    return n->kind == N_LOAD || n->kind == N_VIEW || n->kind == N_ARRAY;
}

/* An array whose body is a read (pure) or a number. */
bool alias_candidate(const Module *m, NodeId array)
{
    const Node *body = at(m, at(m, array)->args[0]);
    /* What is carried lies in memory for one step only: whoever reads it later needs an array of its own. */
    if (body->kind == N_LOAD && m->tensors.data[body->tensor].kind == T_DNEXT)
        return false;
    return (is_read(body) && !body->step) || body->kind == N_CONST || body->kind == N_SIZE;
}

static Read with_step(Read r, const Node *n)
{
    r.step = n->step;
    r.past = n->step ? n->past : -1;
    r.npast = r.nmap;
    r.past_map = r.map;
    return r;
}

/* What an alias of `inner` over the array's axes reads where it is read itself at map and step. */
static Read compose(Module *m, Read inner, const Node *array, const IxExpr *const *map, const Node *read)
{
    const IxExpr *step = read->step;
    IndexId from[65];
    const IxExpr *to[65], **composed = arena_alloc(m->arena, sizeof *map * (size_t)(inner.nmap + 1));
    int n = array->naxes;
    memcpy(from, array->axes, sizeof *from * (size_t)n);
    memcpy(to, map, sizeof *to * (size_t)n);
    if (step) {
        from[n] = IX_TIME;
        to[n++] = step;
    }
    for (int i = 0; i < inner.nmap; i++)
        composed[i] = ix_subst(m, inner.map[i], from, to, n);
    inner.map = composed;
    inner.step = step;
    inner.past = step ? read->past : -1;
    inner.npast = array->naxes;
    inner.past_map = (const IxExpr **)(uintptr_t)map;
    return inner;
}

Read read_itself(Module *m, NodeId array)
{
    Read r = { .id = array, .nmap = at(m, array)->naxes };
    r.map = arena_alloc(m->arena, sizeof *r.map * (size_t)(r.nmap + 1));
    for (int i = 0; i < r.nmap; i++)
        r.map[i] = ix_index(m, at(m, array)->axes[i]);
    return r;
}

bool plan_resolve(const Plan *p, NodeId id, Read *out)
{
    Module *m = p->m;
    const Node *n = at(m, id);
    if (!is_read(n))
        return false;
    if (n->kind == N_LOAD) {
        *out = (Read){ .is_tensor = true, .id = n->tensor, .nmap = n->nmap, .map = n->map };
        *out = with_step(*out, n);
        return true;
    }
    NodeId array = n->kind == N_VIEW ? n->args[0] : id;
    const IxExpr **map = n->kind == N_VIEW ? n->map : read_itself(m, id).map;
    if (!p->is_alias[array]) {
        *out = with_step((Read){ .id = array, .nmap = at(m, array)->naxes, .map = map }, n);
        return true;
    }
    Read inner;
    if (!plan_resolve(p, at(m, array)->args[0], &inner))
        return false;
    *out = compose(m, inner, at(m, array), map, n);
    return true;
}

NodeId plan_named(const Plan *p, NodeId array)
{
    const Module *m = p->m;
    const Node *a = at(m, array), *body = at(m, a->args[0]);
    if (!p->is_alias[array] || (body->kind != N_VIEW && body->kind != N_ARRAY))
        return array;
    NodeId of = body->kind == N_VIEW ? body->args[0] : a->args[0];
    const Node *inner = at(m, of);
    bool same = inner->naxes == a->naxes;
    for (int i = 0; same && i < a->naxes; i++) {
        IndexId which = body->kind == N_VIEW ? -1 : body->axes[i];
        same = (body->kind == N_ARRAY || ix_is_index(body->map[i], &which)) && which == a->axes[i] &&
               m->indices.data[which].extent == m->indices.data[inner->axes[i]].extent;
    }
    return same ? plan_named(p, of) : array;
}

bool plan_source(const Plan *p, NodeId id, NodeId *array)
{
    const Node *n = at(p->m, id);
    NodeId read = n->kind == N_VIEW ? n->args[0] : id;
    if (!is_read(n))
        return false;
    *array = n->kind == N_LOAD ? -1 : read;
    return *array < 0 || !p->is_alias[read] || plan_source(p, at(p->m, read)->args[0], array);
}

/* Row-major strides of a value's axes. */
static const Poly *stride_of(Module *m, const Read *r, int axis)
{
    const Poly *s = poly_const(m, 1);
    for (int i = axis + 1; i < r->nmap; i++)
        s = poly_mul(m, s, r->is_tensor ? m->tensors.data[r->id].axes[i]
                                        : m->indices.data[at(m, r->id)->axes[i]].extent);
    return s;
}

static const IxExpr *linear_from(Module *m, const Read *r, int first)
{
    const IxExpr *e = ix_const(m, poly_const(m, 0));
    for (int i = first; i < r->nmap; i++)
        e = ix_add(m, e, ix_scale(m, r->map[i], stride_of(m, r, i)));
    return e;
}

const IxExpr *read_linear(Module *m, const Read *r)
{
    return linear_from(m, r, 0);
}

const IxExpr *storage_linear(Module *m, const Read *r, const Storage *st)
{
    const IxExpr *e = linear_from(m, r, st->lead);
    const Poly *stride = st->row;
    for (int i = st->lead - 1; i >= 0; i--) {
        e = ix_add(m, e, ix_scale(m, r->map[i], stride));
        stride = poly_mul(m, stride, m->indices.data[at(m, r->id)->axes[i]].extent);
    }
    return st->alias_offset ? ix_add(m, e, ix_const(m, st->alias_offset)) : e;
}

/* ---- pieces laid together ---- */

const IxExpr *inner_linear(Module *m, NodeId array, int lead)
{
    Read self = read_itself(m, array);
    return linear_from(m, &self, lead);
}

/* Is the piece read at the whole's own leading indices? */
static bool same_lead(Module *m, const Read *r, NodeId whole, int lead)
{
    for (int i = 0; i < lead; i++)
        if (i >= r->nmap || r->map[i] != ix_index(m, at(m, whole)->axes[i]) ||
            m->indices.data[at(m, r->id)->axes[i]].extent != m->indices.data[at(m, whole)->axes[i]].extent)
            return false;
    return true;
}

/* Where the whole has the element: behind its leading indices, with those that the condition pins to one
 * place put in. A piece with no axis behind the leading ones would be elements that lie apart. */
static const IxExpr *pinned_linear(Module *m, NodeId cond, const Read *piece, NodeId whole, int lead)
{
    const IxExpr *e = inner_linear(m, whole, lead), *to;
    for (int i = lead; i < at(m, whole)->naxes && piece->nmap > lead; i++) {
        IndexId index = at(m, whole)->axes[i];
        const Poly *lo = poly_const(m, 0), *hi = m->indices.data[index].extent, *one = poly_const(m, 1);
        if (!narrow_range(m, cond, index, &lo, &hi) || poly_sub(m, hi, lo) != one)
            continue;
        to = ix_const(m, lo);
        e = ix_subst(m, e, &index, &to, 1);
    }
    return e;
}

static int add_pieces(Module *m, NodeId id, NodeId whole, int lead, Piece *out, int n, int max)
{
    const Node *t = at(m, id);
    if (n < 0 || n >= max)
        return -1;
    if (t->kind == N_MAP && t->op == OP_ADD) {
        NodeId a = t->args[0], b = t->args[1];
        return add_pieces(m, b, whole, lead, out, add_pieces(m, a, whole, lead, out, n, max), max);
    }
    if (t->kind != N_MAP || t->op != OP_SELECT || at(m, t->args[2])->kind != N_CONST ||
        at(m, t->args[2])->value != 0)
        return -1;
    NodeId value = t->args[1], cond = t->args[0];
    const Node *v = at(m, value);
    while (v->kind == N_MAP && v->op == OP_SELECT) {  /* the guard of a read that was not proved in range */
        value = v->args[1];
        v = at(m, value);
    }
    if ((v->kind != N_VIEW && v->kind != N_ARRAY) || v->step)
        return -1;
    Read r = read_itself(m, v->kind == N_VIEW ? v->args[0] : value);
    for (int i = 0; v->kind == N_VIEW && i < r.nmap; i++)
        r.map[i] = at(m, value)->map[i];
    if (!same_lead(m, &r, whole, lead))
        return -1;
    const IxExpr *shift = ix_sub(m, pinned_linear(m, cond, &r, whole, lead), linear_from(m, &r, lead));
    if (shift->nterms)
        return -1;
    out[n] = (Piece){ r.id, value, shift->offset, lead };
    return n + 1;
}

static int pieces_behind(Module *m, NodeId array, int lead, Piece *out, int max)
{
    int n = add_pieces(m, at(m, array)->args[0], array, lead, out, 0, max);
    const Poly *end = poly_const(m, 0);
    int used = 0;
    for (bool more = n > 0; more;) {
        more = false;
        for (int i = 0; i < n && !more; i++)
            if (out[i].offset == end) {
                for (int k = 0; k < n; k++)
                    if (k != i && out[k].array == out[i].array)
                        return 0;
                end = poly_add(m, end, elements_from(m, out[i].array, lead));
                used++;
                more = used <= n;
            }
    }
    return n > 0 && used == n && end == elements_from(m, array, lead) ? n : 0;
}

int cat_pieces(Module *m, NodeId array, bool rows, Piece *out, int max)
{
    int n = pieces_behind(m, array, 0, out, max);
    for (int lead = 1; rows && n == 0 && lead < at(m, array)->naxes; lead++)
        n = pieces_behind(m, array, lead, out, max);
    return n;
}

/* ---- contractions as GEMMs ---- */

/* One index of a contraction, with its element stride in A, B and C (NULL: it does not vary there). */
typedef struct Dim { IndexId index; const Poly *extent, *stride[3]; } Dim;
typedef struct Dims { Dim d[16]; int n; } Dims;

static Dim *dim_of(Dims *dims, IndexId i, const Poly *extent)
{
    for (int k = 0; k < dims->n; k++)
        if (dims->d[k].index == i)
            return &dims->d[k];
    if (dims->n == 16)
        return NULL;
    dims->d[dims->n] = (Dim){ .index = i, .extent = extent };
    return &dims->d[dims->n++];
}

static const Poly *extent_of(Module *m, IndexId i)
{
    if (i == IX_BATCH || i == IX_TIME)
        return i == IX_BATCH          ? poly_dim(m, ATOM_B)
               : module_starts(m) < 0 ? poly_dim(m, ATOM_T)
                                      : module_rows(m);
    return m->indices.data[i].extent;
}

static bool add_stride(Module *m, Dims *dims, int side, IndexId i, const Poly *stride)
{
    Dim *d = dim_of(dims, i, extent_of(m, i));
    if (!d)
        return false;
    d->stride[side] = d->stride[side] ? poly_add(m, d->stride[side], stride) : stride;
    return true;
}

/* Strides of one operand: its own indices, and batch and time as its storage has them. */
static bool add_operand(Module *m, Dims *dims, int side, const Read *r, const Layout *lay,
                        const Poly **offset)
{
    const IxExpr *lin = read_linear(m, r);
    *offset = lin->offset;
    for (int i = 0; i < lin->nterms; i++)
        if (lin->terms[i].kind != IA_INDEX || lin->terms[i].index < IX_FIRST ||
            !add_stride(m, dims, side, lin->terms[i].index, lin->terms[i].coef))
            return false;
    const Poly *row = lay->pitch;
    if (module_starts(m) >= 0 && lay->timed) /* IX_TIME runs over the rows of all sequences */
        return lay->batched && !lay->time_first && add_stride(m, dims, side, IX_TIME, row);
    if (lay->time_first)
        return add_stride(m, dims, side, IX_BATCH, row) &&
               add_stride(m, dims, side, IX_TIME, poly_mul(m, row, poly_dim(m, ATOM_B)));
    if (lay->timed) {
        if (!add_stride(m, dims, side, IX_TIME, row))
            return false;
        row = poly_mul(m, row, poly_dim(m, ATOM_T));
    }
    return !lay->batched || add_stride(m, dims, side, IX_BATCH, row);
}

/* Indices of one class as one index: an order in which each steps over the next, in both operands that have
 * it. */
static bool collapse(Module *m, const Dim *const *d, int n, int s1, int s2, const Poly **extent,
                     const Poly **st1, const Poly **st2)
{
    bool used[16] = { false };
    *extent = poly_const(m, 1);
    *st1 = *st2 = NULL;
    for (int done = 0; done < n; done++) {
        int found = -1;
        for (int i = 0; i < n && found < 0; i++) {
            if (used[i])
                continue;
            bool inner = done == 0;
            if (done == 0)
                for (int k = 0; k < n; k++)       /* innermost: nothing else fits below it */
                    if (k != i && d[i]->stride[s1] == poly_mul(m, d[k]->stride[s1], d[k]->extent))
                        inner = false;
            if (done > 0)
                inner = d[i]->stride[s1] == poly_mul(m, *st1, *extent) &&
                        (s2 < 0 || d[i]->stride[s2] == poly_mul(m, *st2, *extent));
            if (inner)
                found = i;
        }
        if (found < 0)
            return false;
        used[found] = true;
        if (done == 0) {
            *st1 = d[found]->stride[s1];
            *st2 = s2 < 0 ? NULL : d[found]->stride[s2];
        }
        *extent = poly_mul(m, *extent, d[found]->extent);
    }
    return true;
}

static bool takes_reads(const Plan *p, Marks *seen, NodeId value, TakesRead *takes, void *of)
{
    const Node n = p->m->nodes.data[value];
    Read r;
    if (n.kind == N_REDUCE)
        return false;
    if (!marks_first(seen, value))
        return true;
    if (n.kind != N_MAP && plan_resolve(p, value, &r))
        return takes(of, &r);
    for (int i = 0; i < n.nargs; i++)
        if (!takes_reads(p, seen, n.args[i], takes, of))
            return false;
    return true;
}

bool every_read(const Plan *p, NodeId value, TakesRead *takes, void *of)
{
    Marks *seen = marks_begin(p->m);
    bool all = takes_reads(p, seen, value, takes, of);
    marks_end(seen);
    return all;
}

bool group_reads(const Group *g, int key)
{
    for (int i = 0; i < g->reads.len; i++)
        if (g->reads.data[i] == key)
            return true;
    return false;
}

static bool is_number(const Poly *p, int64_t n)
{
    return p->is_const && p->value == n;
}

/* BLAS takes a matrix with one unit stride; an axis of extent 1 or without indices has any stride. */
static bool unit_stride(Module *m, const Poly **row, const Poly **col, const Poly *rows, const Poly *cols)
{
    if (!*row || poly_is_one(rows))
        *row = *col && !poly_is_one(*col) ? poly_const(m, 1) : (*col && !poly_is_one(cols) ? cols : poly_const(m, 1));
    if (!*col || poly_is_one(cols))
        *col = poly_is_one(*row) ? rows : poly_const(m, 1);
    return poly_is_one(*row) || poly_is_one(*col);
}

/* The batch beside other rows that do not follow one another across it: a product per sequence, whose other side is
 * the same for all. */
static void split_batch(const Dim **rows, int *n, const Dim **batch)
{
    for (int i = 0; i < *n && *n > 1 && !*batch; i++)
        if (rows[i]->index == IX_BATCH) {
            *batch = rows[i];
            rows[i] = rows[--*n];
        }
}

bool match_gemm(Module *m, const Contraction *c, Gemm *g)
{
    Dims dims = { .n = 0 };
    memset(g, 0, sizeof *g);
    if (c->one_step && module_starts(m) >= 0)
        return false; /* the rows of a step do not lie apart by the same number */
    if (!add_operand(m, &dims, 0, &c->a, &c->lay_a, &g->a.offset) ||
        !add_operand(m, &dims, 1, &c->b, &c->lay_b, &g->b.offset) ||
        !add_operand(m, &dims, 2, &c->c, &c->lay_c, &g->c.offset))
        return false;
    const Dim *cls[4][16];
    int n[4] = { 0 };
    for (int i = 0; i < dims.n; i++) {
        const Dim *d = &dims.d[i];
        for (int side = 0; side < 3; side++)
            if (d->stride[side] && !poly_nonneg(d->stride[side]))
                return false;         /* BLAS walks matrices forwards only */
        if (c->one_step && d->index == IX_TIME)
            continue;
        int in = (d->stride[0] ? 1 : 0) | (d->stride[1] ? 2 : 0) | (d->stride[2] ? 4 : 0);
        int k = in == 5 ? 0 : in == 6 ? 1 : in == 3 ? 2 : in == 7 ? 3 : -1;
        if (k < 0)
            return false;
        cls[k][n[k]++] = d;
    }
    const Poly *ignore;
    const Dim *batch = NULL;
    GemmSide *rows = NULL;
    for (int side = 0; side < 2; side++) {
        GemmSide *s = side ? &g->b : &g->a;
        const Poly **count = side ? &g->n : &g->m, **stride = side ? &s->col : &s->row;
        const Poly **to = side ? &g->c.col : &g->c.row;
        if (collapse(m, cls[side], n[side], side, 2, count, stride, to))
            continue;
        if (!c->one_step || batch || n[3])
            return false;
        split_batch(cls[side], &n[side], &batch);
        if (!batch || !collapse(m, cls[side], n[side], side, 2, count, stride, to))
            return false;
        rows = s;
    }
    if (!collapse(m, cls[2], n[2], 0, 1, &g->k, &g->a.col, &g->b.row) || n[2] == 0)
        return false;
    if (n[3] && (!collapse(m, cls[3], n[3], 0, 1, &g->batch, &g->a.batch, &g->b.batch) ||
                 !collapse(m, cls[3], n[3], 0, 2, &g->batch, &ignore, &g->c.batch)))
        return false;
    if (!n[3])
        g->batch = NULL;
    if (batch && (is_number(g->m, 1) || is_number(g->n, 1)))
        return false;                 /* a vector each: a sum over rows does it without a product */
    if (batch) {
        g->batch = batch->extent;
        rows->batch = batch->stride[rows == &g->b];
        g->c.batch = batch->stride[2];
    }
    g->a.read = c->a;
    g->b.read = c->b;
    g->c.read = c->c;
    if (mutate("wrong-transpose") && g->n == g->k)
        g->b = (GemmSide){ c->b, g->b.col, g->b.row, g->b.batch, g->b.offset };
    return unit_stride(m, &g->a.row, &g->a.col, g->m, g->k) &&
           unit_stride(m, &g->b.row, &g->b.col, g->k, g->n) &&
           unit_stride(m, &g->c.row, &g->c.col, g->m, g->n);
}
