/* simplify.c: the fast path's normal form. In comes a module, before or after differentiate; out goes the
 * same module with its roots rewritten so that: constants are folded, sums of them too, and what multiplies
 * by one or adds zero is gone (nothing else: no x*0); a sum over all steps of a matrix that each step sums
 * is one sum; several slices of one param applied to the same vector are one product (`W[i,d]*x[d]`,
 * `W[N+i,d]*x[d]`, ... become U[i], U[N+i] of one U); and every reduction is the whole body of an array, so
 * that an array is either pointwise or one reduction. Old nodes stay in the module and are unreachable. The
 * reference does not come here. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutate.h"
#include "conditions.h"
#include "constant.h"
#include "marks.h"
#include "ops.h"
#include "rewrite.h"
#include "rounded.h"

static const Node *at(const Module *m, NodeId id)
{
    return &m->nodes.data[id];
}

static NodeId rewrite(Rewrite *r, NodeId id, bool whole);

/* A param's gradient that sums products in every step, and then the steps: one contraction, which a GEMM
 * computes; else each step's matrix would lie in memory. */
static bool is_read(const Module *m, NodeId id)
{
    NodeKind k = at(m, id)->kind;
    return k == N_LOAD || k == N_VIEW || k == N_ARRAY;
}

static bool sums_matrices(const Module *m, const Node *n)
{
    if (n->kind != N_REDUCE || n->reduce != R_SUM || n->bound[0] >= IX_FIRST)
        return false;
    const Node *inner = at(m, n->args[0]);
    if (inner->kind != N_REDUCE || inner->reduce != R_SUM || inner->naxes < 2)
        return false;
    const Node *term = at(m, inner->args[0]);
    return term->kind == N_MAP && term->op == OP_MUL && is_read(m, term->args[0]) && is_read(m, term->args[1]);
}

static NodeId sum_at_once(Rewrite *r, const Node *n)
{
    Module *m = r->m;
    Node inner = *at(m, n->args[0]);
    IndexId bound[64];
    int count = 0;
    for (int i = 0; i < n->nbound; i++)
        bound[count++] = n->bound[i];
    for (int i = 0; i < inner.nbound; i++)
        bound[count++] = inner.bound[i];
    NodeId term = rewrite(r, inner.args[0], false);
    module_at(m, n->span, n->chain);
    return node_reduce(m, R_SUM, term, bound, count);
}

/* The array, which a history stands before, as a value of each step also where folding left nothing of the
 * step in it: at steps before the call it is still the caller's. */
static NodeId timed_array(Module *m, NodeId array)
{
    Node a = *at(m, array);
    if (a.dep & DEP_TIME)
        return array;
    return node_array(m, node_of_every_step(m, array), a.axes, a.naxes, a.name, a.span);
}

static NodeId rebuild(Rewrite *r, NodeId id)
{
    Module *m = r->m;
    Node n = *at(m, id);
    NodeId args[4] = { -1, -1, -1, -1 };
    if (sums_matrices(m, &n))
        return sum_at_once(r, &n);
    module_at(m, n.span, n.chain);
    for (int i = 0; i < n.nargs; i++)
        args[i] = rewrite(r, n.args[i], n.kind == N_ARRAY);
    module_at(m, n.span, n.chain);
    switch (n.kind) {
    case N_MAP: return node_map(m, n.op, args, n.nargs);
    case N_REDUCE: return node_reduce(m, n.reduce, args[0], n.bound, n.nbound);
    case N_VIEW: return node_view_at(m, n.step && n.past >= 0 ? timed_array(m, args[0]) : args[0], n.map, n.nmap, n.step, n.past);
    case N_ARRAY: return node_array(m, args[0], n.axes, n.naxes, n.name, n.span);
    default: return id;
    }
}

/* The image of a node does not depend on where it stands, but for a reduction that is the whole body of an
 * array. */
static NodeId rewrite(Rewrite *r, NodeId id, bool whole)
{
    bool keep = whole && at(r->m, id)->kind == N_REDUCE;
    if (!keep && r->image[id] >= 0)
        return r->image[id];
    NodeId out = r->hook(r, id, rebuild(r, id), whole);
    if (!keep)
        r->image[id] = out;
    return out;
}

void rewrite_roots(Rewrite *r)
{
    Module *m = r->m;
    r->n = m->nodes.len;
    r->image = malloc(sizeof *r->image * (size_t)(r->n + 1));
    if (!r->image)
        bug(m->c, "simplify", "out of memory");
    for (int i = 0; i < r->n; i++)
        r->image[i] = -1;
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int k = 0; k < ROOT_COUNT; k++) {
            NodeId root = m->roots.data[t].of[k];
            if (root >= 0)
                m->roots.data[t].of[k] = rewrite(r, root, false);
        }
    free(r->image);
}

/* ---- folding ---- */

static bool is_const(const Module *m, NodeId id, double v)
{
    const Node *n = at(m, id);
    if (n->kind == N_SIZE)
        return n->size->is_const && (double)n->size->value == v;
    return n->kind == N_CONST && n->value == v;
}

static bool number(const Module *m, NodeId id, double *v)
{
    const Node *n = at(m, id);
    if (n->kind == N_CONST) {
        *v = n->value;
        return true;
    }
    if (n->kind == N_SIZE && n->size->is_const) {
        *v = (double)n->size->value;
        return true;
    }
    if (n->kind == N_INDEX && n->ix->nterms == 0 && n->ix->offset->is_const) {
        *v = (double)n->ix->offset->value;
        return true;
    }
    return false;
}

static bool whole(const Module *m, NodeId id, int64_t *v)
{
    const Node *n = at(m, id);
    if (n->kind != N_SIZE || !n->size->is_const)
        return false;
    *v = n->size->value;
    return true;
}

/* Of two whole numbers that are known. What they make is folded where it is far from the end of 64 bits. */
static NodeId fold_whole(Module *m, NodeId id)
{
    const Node *n = at(m, id);
    int64_t a, b, r = 0;
    bool over = n->nargs != 2 || !whole(m, n->args[0], &a) || !whole(m, n->args[1], &b);
    if (over)
        return id;
    switch (n->op) {
    case OP_ADD: over = __builtin_add_overflow(a, b, &r); break;
    case OP_SUB: over = __builtin_sub_overflow(a, b, &r); break;
    case OP_MUL: over = __builtin_mul_overflow(a, b, &r); break;
    case OP_MIN: r = a < b ? a : b; break;
    case OP_MAX: r = a > b ? a : b; break;
    default: return id;
    }
    return over || llabs(r) > (int64_t)1 << 60 ? id : node_whole(m, r);
}

/* Of a comparison. */
static int truth_here(const Module *m, const Node *n)
{
    int64_t i, k;
    if (n->nargs == 2 && whole(m, n->args[0], &i) && whole(m, n->args[1], &k))
        switch (n->op) {
        case OP_LT: return i < k;
        case OP_LE: return i <= k;
        case OP_EQ: return i == k;
        case OP_NE: return i != k;
        default: return -1;
        }
    double a, b;
    if (n->nargs != 2 || !number(m, n->args[0], &a) || !number(m, n->args[1], &b))
        return -1;
    switch (n->op) {
    case OP_LT: return a < b;
    case OP_LE: return a <= b;
    case OP_EQ: return a == b;
    case OP_NE: return a != b;
    default: return -1;
    }
}

static int truth_of(const Module *m, NodeId id, Marks *known);

static int truth_anew(const Module *m, const Node *n, Marks *known)
{
    if (n->op == OP_NOT) {
        int a = truth_of(m, n->args[0], known);
        return a < 0 ? -1 : !a;
    }
    if (n->op == OP_AND || n->op == OP_OR) {
        int a = truth_of(m, n->args[0], known), b = truth_of(m, n->args[1], known), decisive = n->op == OP_OR;
        if (a == decisive || b == decisive)
            return decisive;
        return a >= 0 && b >= 0 ? !decisive : -1;
    }
    return truth_here(m, n);
}

static int truth_of(const Module *m, NodeId id, Marks *known)
{
    enum { MARK = 2 };                /* what a mark has more than the truth */
    const Node *n = at(m, id);
    if (n->kind != N_MAP || n->type != TY_BOOL)
        return -1;
    if (!marks_get(known, id))
        marks_set(known, id, truth_anew(m, n, known) + MARK);
    return marks_get(known, id) - MARK;
}

/* A condition whose two sides are numbers: 1 true, 0 false, -1 not known. */
static int truth(const Module *m, NodeId id)
{
    Marks *known = marks_begin(m);
    int t = truth_of(m, id, known);
    marks_end(known);
    return t;
}

static NodeId fold_map(Module *m, NodeId id)
{
    Node n = *at(m, id);
    double v[4] = { 0 };
    bool passes = n.op == OP_STOP || n.op == OP_STE || n.op == OP_OVERRIDE;
    bool all = n.type == TY_REAL && n.op != OP_SELECT && !passes && op_table[n.op].eval;
    for (int i = 0; i < n.nargs; i++)
        all = all && number(m, n.args[i], &v[i]);
    if (all && isfinite(op_table[n.op].eval(v)))
        return node_const(m, op_table[n.op].eval(v));
    NodeId known = n.type == TY_INT ? fold_whole(m, id) : id;
    if (known != id)
        return known;
    switch (n.op) {
    case OP_MUL: return is_const(m, n.args[0], 1) ? n.args[1] : is_const(m, n.args[1], 1) ? n.args[0] : id;
    case OP_ADD: return is_const(m, n.args[0], 0) ? n.args[1] : is_const(m, n.args[1], 0) ? n.args[0] : id;
    case OP_SUB: case OP_DIV: return is_const(m, n.args[1], n.op == OP_DIV) ? n.args[0] : id;
    case OP_POW: {
        double e;
        if (number(m, n.args[1], &e) && e == 1)
            return n.args[0];
        return number(m, n.args[1], &e) && e == 2 ? node_map2(m, OP_MUL, n.args[0], n.args[0]) : id;
    }
    case OP_NEG:
        if (at(m, n.args[0])->kind == N_MAP && at(m, n.args[0])->op == OP_NEG)
            return at(m, n.args[0])->args[0];
        return id;
    case OP_STE:                  /* once differentiated, nobody asks for x */
        return m->has_grad ? n.args[0] : id;
    case OP_SELECT: {
        int t = truth(m, n.args[0]);
        const Node *inner = at(m, n.args[1]);
        if (inner->kind == N_MAP && inner->op == OP_SELECT && inner->args[0] == n.args[0])
            return node_select(m, n.args[0], inner->args[1], n.args[2]);
        NodeId taken = t < 0 || n.args[1] == n.args[2] ? n.args[1] : n.args[t ? 1 : 2];
        return t >= 0 || n.args[1] == n.args[2] ? taken : id;
    }
    case OP_BF16: case OP_F16: return round_within_guards(m, id);
    case OP_AND:
        return truth(m, n.args[0]) == 1 ? n.args[1] : truth(m, n.args[1]) == 1 ? n.args[0] : id;
    default: return id;
    }
}

static NodeId fold(Module *m, NodeId id)
{
    if (at(m, id)->kind != N_MAP)
        return id;
    NodeId out = fold_map(m, id);
    /* An integer may stand where a number did: keep the type that the uses were built for. */
    return at(m, out)->type == at(m, id)->type || at(m, out)->type == TY_INT ? out : id;
}

/* ---- products: a param read along with a vector ---- */

/* The body of a sum that a GEMM can take: param[...] * vector, with all indices plain or affine. */
static bool varies_over(const Node *n, IndexId index)
{
    for (int i = 0; i < n->naxes; i++)
        if (n->axes[i] == index)
            return true;
    return false;
}

static bool is_projection(const Module *m, const Node *reduce, NodeId *param, NodeId *vector)
{
    if (reduce->kind != N_REDUCE || reduce->reduce != R_SUM)
        return false;
    const Node *mul = at(m, reduce->args[0]);
    if (mul->kind != N_MAP || mul->op != OP_MUL)
        return false;
    for (int k = 0; k < 2; k++) {
        const Node *p = at(m, mul->args[k]), *v = at(m, mul->args[1 - k]);
        bool read = v->kind == N_LOAD || v->kind == N_VIEW || v->kind == N_ARRAY;
        if (p->kind == N_LOAD && m->tensors.data[p->tensor].kind == T_PARAM && read && (v->dep & DEP_BATCH) &&
            p->naxes > reduce->nbound) {
            *param = mul->args[k];
            *vector = mul->args[1 - k];
            return true;
        }
    }
    return false;
}

/* One slice W[offset + lin, J...] of a stacked param. */
typedef struct Slice { NodeId reduce, param, vector; const Poly *offset, *count; } Slice;
typedef Vec(Slice) SliceVec;

static bool find_slice(Module *m, NodeId id, Slice *s)
{
    const Node *r = at(m, id);
    if (!is_projection(m, r, &s->param, &s->vector))
        return false;
    const Node *p = at(m, s->param);
    s->reduce = id;
    s->offset = p->map[0]->offset;
    for (int k = 0; k < r->nbound; k++) {
        if (ix_uses(p->map[0], r->bound[k]))
            return false;
        for (int i = 0; i < at(m, s->vector)->naxes; i++)
            if (at(m, s->vector)->axes[i] != r->bound[k] && r->nbound == 1)
                return false;
    }
    for (int k = 1; k < p->nmap; k++) {
        IndexId i;
        if (!ix_is_index(p->map[k], &i))
            return false;
        bool bound = false;
        for (int j = 0; j < r->nbound; j++)
            bound |= r->bound[j] == i;
        if (!bound)
            return false;
    }
    return ix_counts(m, p->map[0], &s->count);
}

static bool same_stack(const Module *m, const Slice *a, const Slice *b)
{
    const Node *p = at(m, a->param), *q = at(m, b->param);
    if (p->tensor != q->tensor || a->vector != b->vector)
        return false;
    for (int k = 1; k < p->nmap; k++)
        if (p->map[k] != q->map[k])
            return false;
    return true;
}

/* Do the slices that agree with s tile the param's first axis exactly? Then U replaces them all. */
static void stack(Module *m, const SliceVec *all, int first, NodeId *replaced)
{
    const Slice *s = &all->data[first];
    Node p = *at(m, s->param);
    const Tensor *t = &m->tensors.data[p.tensor];
    const Poly *end = poly_const(m, 0);
    int count = 0;
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < all->len && !more; i++)
            if (same_stack(m, s, &all->data[i]) && all->data[i].offset == end) {
                end = poly_add(m, end, all->data[i].count);
                count++;
                more = true;
            }
    }
    int same = 0;
    for (int i = 0; i < all->len; i++)
        same += same_stack(m, s, &all->data[i]);
    if (end != t->axes[0] || count != same || count < 2)
        return;
    Node reduce = *at(m, s->reduce);
    const IxExpr *map[64];
    memcpy(map, p.map, sizeof *map * (size_t)p.nmap);
    IndexId row = module_index(m, intern(m->c, "r"), t->axes[0]);
    map[0] = ix_index(m, row);
    module_at(m, reduce.span, reduce.chain);
    NodeId body = node_map2(m, OP_MUL, node_load(m, p.tensor, map, p.nmap), s->vector);
    NodeId u = node_array(m, node_reduce(m, R_SUM, body, reduce.bound, reduce.nbound), &row, 1,
                          intern_f(m->c, "%s_x", t->name), reduce.span);
    for (int i = 0; i < all->len; i++)
        if (same_stack(m, s, &all->data[i])) {
            const IxExpr *e = at(m, all->data[mutate("wrong-slice") ? first : i].param)->map[0];
            replaced[all->data[i].reduce] = node_view(m, u, &e, 1);
        }
}

static NodeId hook_replace(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    (void)whole;
    return old < r->n && r->replaced[old] >= 0 ? r->replaced[old] : fold(r->m, rebuilt);
}

static void stack_projections(Module *m)
{
    SliceVec slices = { 0 };
    int n = m->nodes.len;
    bool *seen = arena_alloc(m->arena, (size_t)n + 1);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        ir_mark(m, m->roots.data[t].output, seen);
        ir_mark(m, m->roots.data[t].next, seen);
    }
    for (NodeId id = 0; id < n; id++) {
        Slice s;
        if (seen[id] && at(m, id)->kind == N_REDUCE && find_slice(m, id, &s))
            vec_push(m->arena, &slices, s);
    }
    NodeId *replaced = arena_alloc(m->arena, sizeof *replaced * (size_t)(n + 1));
    for (int i = 0; i <= n; i++)
        replaced[i] = -1;
    for (int i = 0; i < slices.len; i++)
        if (replaced[slices.data[i].reduce] < 0)
            stack(m, &slices, i, replaced);
    Rewrite r = { .m = m, .hook = hook_replace };
    r.replaced = arena_alloc(m->arena, sizeof *replaced * (size_t)m->nodes.len);
    memset(r.replaced, 0xff, sizeof *replaced * (size_t)m->nodes.len);
    memcpy(r.replaced, replaced, sizeof *replaced * (size_t)n);
    rewrite_roots(&r);
}

/* ---- sums that wait for a sum ---- */

typedef struct Term { NodeId value, factor; bool negative; } Term;   /* factor -1: none was pulled out */

static int add_terms(const Module *m, NodeId id, bool negative, Term *out, int n, int max)
{
    const Node *t = at(m, id);
    if (n < 0 || n == max)
        return -1;
    if (t->kind == N_MAP && t->op == OP_NEG)
        return add_terms(m, t->args[0], !negative, out, n, max);
    if (t->kind == N_MAP && (t->op == OP_ADD || t->op == OP_SUB)) {
        n = add_terms(m, t->args[0], negative, out, n, max);
        return add_terms(m, t->args[1], negative != (t->op == OP_SUB), out, n, max);
    }
    out[n] = (Term){ id, -1, negative };
    for (int k = 0; k < 2 && t->kind == N_MAP && t->op == OP_MUL; k++) {
        const Node *s = at(m, t->args[k]);
        if (s->naxes == 0 && (s->dep & DEP_COTANGENT))
            out[n] = (Term){ t->args[1 - k], t->args[k], negative };
    }
    return n + 1;
}

/* The adjoint of a row's norm sums terms that hold an earlier sum of the row as a factor: sum (a + s*b) = sum
 * a + s * sum b, so that both sums are one pass over the row. Sums to single numbers only: nowhere else does
 * it save a pass. */
static NodeId split_sum(Module *m, NodeId id)
{
    enum { MAX = 16 };
    Node r = *at(m, id);
    Term t[MAX];
    bool pulled = false;
    if (r.reduce != R_SUM || r.naxes || r.nbound != 1 || r.bound[0] < IX_FIRST || !(r.dep & DEP_COTANGENT))
        return id;
    int n = add_terms(m, r.args[0], false, t, 0, MAX);
    for (int i = 0; i < n; i++)
        pulled |= t[i].factor >= 0;
    if (n < 2 || !pulled)
        return id;
    NodeId rest = -1, out = -1;
    for (int i = 0; i < n; i++)
        if (t[i].factor < 0) {
            NodeId v = t[i].negative ? node_map1(m, OP_NEG, t[i].value) : t[i].value;
            rest = rest < 0 ? v : node_map2(m, OP_ADD, rest, v);
        }
    if (rest >= 0)
        out = node_array(m, node_reduce(m, R_SUM, rest, r.bound, 1), NULL, 0, NULL, r.span);
    for (int i = 0; i < n; i++) {
        if (t[i].factor < 0)
            continue;
        NodeId sum = node_array(m, node_reduce(m, R_SUM, t[i].value, r.bound, 1), NULL, 0, NULL, r.span);
        NodeId v = node_map2(m, OP_MUL, t[i].factor, sum);
        v = t[i].negative ? node_map1(m, OP_NEG, v) : v;
        out = out < 0 ? v : node_map2(m, OP_ADD, out, v);
    }
    return out;
}

/* ---- reductions become arrays ---- */

/* A sum of constants is a number. */
static NodeId fold_sum(Module *m, NodeId id)
{
    const Node *n = at(m, id);
    int64_t count;
    const double *v = n->kind == N_REDUCE && n->naxes == 0 ? constant_elements(m, id, &count) : NULL;
    return v ? node_const(m, v[0]) : id;
}

/* The axes of a product of a param and a vector, of which each sequence has several, one behind another
 * (columns): those of the vector alone stand in front of those of the param alone, whichever of the two is written
 * first. So the columns of all sequences lie at one stride, and the product is one matrix product. */
static void columns_first(const Module *m, const Node *reduce, IndexId *axes)
{
    NodeId param, vector;
    int n = 0;
    bool found = is_projection(m, reduce, &param, &vector) && reduce->nbound == 1;
    const Node *v = found ? at(m, vector) : NULL;
    found = found && v->naxes > 0 && v->axes[v->naxes - 1] == reduce->bound[0];
    for (int pass = 0; pass < 3 && found; pass++)
        for (int i = 0; i < reduce->naxes; i++) {
            bool of_param = varies_over(at(m, param), reduce->axes[i]);
            int place = !of_param ? 1 : varies_over(v, reduce->axes[i]) ? 0 : 2;
            if (place == pass)
                axes[n++] = reduce->axes[i];
        }
    if (!found)
        memcpy(axes, reduce->axes, sizeof *axes * (size_t)reduce->naxes);
}

static NodeId hook_reductions(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    Module *m = r->m;
    (void)old;
    rebuilt = fold_sum(m, fold(m, rebuilt));
    if (at(m, rebuilt)->kind == N_REDUCE)
        rebuilt = split_sum(m, rebuilt);
    rebuilt = round_once(m, rebuilt);
    Node n = *at(m, rebuilt);
    if (n.kind != N_REDUCE || whole || n.type == TY_INT)      /* an integer is read where it is used, so that it stays one */
        return rebuilt;
    IndexId axes[64];
    columns_first(m, &n, axes);
    return node_array(m, rebuilt, axes, n.naxes, NULL, n.span);
}

/* ---- other steps in a step of the walk ---- */

/* t - 2: as many steps back for every place. */
static bool moves_with_step(const Node *n)
{
    return n->step && n->step->nterms == 1 && n->step->terms[0].kind == IA_INDEX &&
           n->step->terms[0].index == IX_TIME;
}

static void mark_read(const Module *m, NodeId id, bool *marked, bool *seen)
{
    const Node *n = at(m, id);
    if (seen[id] || (n->dep & DEP_STATE))
        return;
    seen[id] = true;
    marked[id] |= moves_with_step(n);
    for (int i = 0; n->kind == N_MAP && i < n->nargs; i++)
        mark_read(m, n->args[i], marked, seen);
}

static NodeId hook_step(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    Module *m = r->m;
    const bool *marked = r->data;
    (void)whole;
    if (old >= r->n || !marked[old])
        return rebuilt;
    Node n = *at(m, old);
    while (at(m, rebuilt)->kind == N_MAP)             /* the guard of the read */
        rebuilt = at(m, rebuilt)->args[1];
    NodeId read = n.kind == N_LOAD
                      ? node_load_at(m, n.tensor, n.map, n.nmap, n.step, n.past)
                      : node_view_at(m, at(m, rebuilt)->args[0], n.map, n.nmap, n.step, n.past);
    return node_array(m, read, n.axes, n.naxes, NULL, n.span);
}

/* What depends on a state reads another step through an array of its own, which is made for all steps
 * before the walk, so that the walk has nothing to do with other steps. */
static void name_reads_of_steps(Module *m)
{
    int n = m->nodes.len;
    bool *marked = arena_alloc(m->arena, (size_t)n + 1), *seen = arena_alloc(m->arena, (size_t)n + 1), any = false;
    for (NodeId id = 0; id < n; id++)
        for (int i = 0; at(m, id)->kind == N_MAP && (at(m, id)->dep & DEP_STATE) && i < at(m, id)->nargs; i++)
            mark_read(m, at(m, id)->args[i], marked, seen);
    for (NodeId id = 0; id < n; id++) {
        marked[id] &= at(m, id)->type != TY_INT;      /* which would become a real number in memory */
        any |= marked[id];
    }
    Rewrite r = { .m = m, .hook = hook_step, .data = marked };
    if (any)
        rewrite_roots(&r);
}

/* ---- guards ---- */

static bool is_of_params(const Node *n)
{
    return n->kind == N_ARRAY && (n->dep & DEP_PARAM) &&
           !(n->dep & (DEP_BATCH | DEP_TIME | DEP_INPUT | DEP_STATE | DEP_COTANGENT));
}

static NodeId hook_guards(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    Module *m = r->m;
    const Node n = *at(m, rebuilt);
    (void)old;
    (void)whole;
    NodeId body = is_of_params(&n) ? conditions_known(m, n.args[0]) : n.args[0];
    module_at(m, n.span, n.chain);
    return is_of_params(&n) && body != n.args[0] ? node_array(m, body, n.axes, n.naxes, n.name, n.span)
                                                 : rebuilt;
}

static bool has_guards(Module *m)
{
    int n = m->nodes.len;
    bool *seen = arena_alloc(m->arena, (size_t)n + 1), any = false;
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int k = 0; k < ROOT_COUNT; k++)
            ir_mark(m, m->roots.data[t].of[k], seen);
    for (NodeId id = 0; id < n && !any; id++) {
        const Node a = *at(m, id);
        module_at(m, a.span, a.chain);
        any = seen[id] && is_of_params(&a) && conditions_known(m, a.args[0]) != a.args[0];
    }
    return any;
}

/* Of params that are laid together, each is read behind a condition that is its range, so that the guard of
 * the read says nothing more. Rewriting reads puts guards there again, so this is done last. */
static void drop_guards(Module *m)
{
    Rewrite r = { .m = m, .hook = hook_guards };
    if (has_guards(m))
        rewrite_roots(&r);
}

void simplify(Module *m)
{
    if (!m->has_grad) {
        stack_projections(m);
        name_reads_of_steps(m);
    }
    Rewrite r = { .m = m, .hook = hook_reductions };
    rewrite_roots(&r);
    round_where_read(m);
    drop_guards(m);
    module_at(m, m->span, NULL);
}
