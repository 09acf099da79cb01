/* cost.c: what the planned operations move and compute. In: a plan. Out: bytes and flops as sizes in the
 * spec's dims, per sequence and step, and once per call. Counted is what the plan decided: a value that
 * lies in no memory costs no bytes, one that many kernels read costs each of them; there are no caches. */
#include <stdlib.h>
#include <string.h>

#include "cost.h"
#include "emit/emit.h"
#include "ir/marks.h"

static Cost no_cost(const Plan *p)
{
    const Poly *zero = poly_const(p->m, 0);
    return (Cost){ zero, zero, zero, zero };
}

Cost cost_sum(const Plan *p, Cost a, Cost b)
{
    Module *m = p->m;
    return (Cost){ poly_add(m, a.flops, b.flops), poly_add(m, a.flops_once, b.flops_once), poly_add(m, a.step, b.step),
                   poly_add(m, a.once, b.once) };
}

/* ---- flops ---- */

bool computed_where_read(const Plan *p, const Program *g, NodeId array)
{
    bool walk = p->schedule->on_chip && g->phase[array] == PHASE_DURING;
    return g->node[array].home == HOME_NONE && g->group[array] < 0 && !walk && !p->is_cat[array];
}

static bool made_here(const Plan *p, const Program *g, Phase reader, const Read *r)
{
    return !r->is_tensor && (computed_where_read(p, g, r->id) || plan_rematerialises(p, g, reader, r->id));
}

static bool is_table(const Plan *p, const Read *r)
{
    return !r->is_tensor && p->table && p->table[r->id];
}

/* Operators of an expression down to what it reads from memory; each node once. */
static int count_operators(const Plan *p, const Program *g, Phase reader, NodeId id, bool *seen)
{
    const Node *n = &p->m->nodes.data[id];
    Read r;
    if (seen[id])
        return 0;
    seen[id] = true;
    if (plan_resolve(p, id, &r))
        return made_here(p, g, reader, &r) && !is_table(p, &r)
                   ? count_operators(p, g, reader, p->m->nodes.data[r.id].args[0], seen)
                   : 0;
    int count = n->kind == N_REDUCE && !ir_gathers(p->m, id);
    if (n->kind == N_MAP && n->type == TY_REAL && n->op != OP_SELECT && n->op != OP_STOP)
        count = 1;
    for (int i = 0; i < n->nargs; i++)
        count += count_operators(p, g, reader, n->args[i], seen);
    return count;
}

static bool *node_flags(const Plan *p)
{
    bool *flags = calloc((size_t)p->m->nodes.len + 1, 1);
    if (!flags)
        bug(p->m->c, "explain", "out of memory");
    return flags;
}

enum { MAX_EQUALITIES = 16 };

/* The equalities of index expressions under which a term of a sum is computed, as differences that are 0. */
typedef struct Equalities { const IxExpr *zero[MAX_EQUALITIES]; int n; } Equalities;

static const IxExpr *index_of(Module *m, NodeId id)
{
    const Node *n = &m->nodes.data[id];
    return n->kind == N_INDEX ? n->ix : n->kind == N_SIZE ? ix_const(m, n->size) : NULL;
}

/* Each part of a conjunction once. */
static void add_equalities(Module *m, NodeId cond, Marks *seen, Equalities *out)
{
    Node n = m->nodes.data[cond];
    if (!marks_first(seen, cond))
        return;
    if (n.kind == N_MAP && n.op == OP_AND) {
        add_equalities(m, n.args[0], seen, out);
        add_equalities(m, n.args[1], seen, out);
    }
    const IxExpr *a = n.kind == N_MAP && n.op == OP_EQ ? index_of(m, n.args[0]) : NULL;
    const IxExpr *b = a ? index_of(m, n.args[1]) : NULL;
    if (b && out->n < MAX_EQUALITIES)
        out->zero[out->n++] = ix_sub(m, a, b);
}

static Equalities equalities_of_term(Module *m, NodeId term)
{
    Equalities e = { .n = 0 };
    Marks *seen = marks_begin(m);
    for (Node n = m->nodes.data[term]; n.kind == N_MAP && n.op == OP_SELECT; n = m->nodes.data[n.args[1]]) {
        const Node *other = &m->nodes.data[n.args[2]];
        if (other->kind != N_CONST || other->value != 0)
            break;
        add_equalities(m, n.args[0], seen, &e);
    }
    marks_end(seen);
    return e;
}

static bool is_unit(const Poly *p) { return p->is_const && (p->value == 1 || p->value == -1); }

/* The one term with the index, when it is alone in it with factor 1; else NULL. */
static const IxTerm *term_with(const IxExpr *e, IndexId i)
{
    const IxTerm *found = NULL;
    for (int k = 0; k < e->nterms; k++) {
        const IxTerm *t = &e->terms[k];
        if (t->kind == IA_INDEX ? t->index != i : !ix_uses(t->arg, i))
            continue;
        if (found || !is_unit(t->coef))
            return NULL;
        found = t;
    }
    return found;
}

/* How many values of a sum's index have a term that is computed: one where an equality gives it, as many as
 * the divisor where one gives a quotient of it, as h/G = r does. An equality that was used is taken out. */
static const Poly *values_with_term(const Plan *p, IndexId i, Equalities *e)
{
    for (int k = 0; k < e->n; k++) {
        const IxTerm *t = e->zero[k] ? term_with(e->zero[k], i) : NULL;
        if (!t || t->kind == IA_MOD || (t->kind == IA_DIV && !term_with(t->arg, i)))
            continue;
        e->zero[k] = NULL;
        return t->kind == IA_DIV ? t->by : poly_const(p->m, 1);
    }
    return p->m->indices.data[i].extent;
}

/* A gradient summed over batch and time does its share of the sum at each step. */
static const Poly *array_flops(const Plan *p, const Program *g, NodeId array)
{
    Module *m = p->m;
    NodeId body = m->nodes.data[array].args[0];
    const Node *r = &m->nodes.data[body];
    bool *seen = node_flags(p);
    const Group *group = g->group[array] >= 0 ? &g->groups.data[g->group[array]] : NULL;
    const Poly *elements = group && group->kind == G_SCATTER ? group->scatter->columns : array_elements(m, array);
    const Poly *n = poly_mul(m, elements, poly_const(m, count_operators(p, g, g->phase[array], body, seen)));
    free(seen);
    bool reduces = plan_reduces(p, array);
    Equalities under = { .n = 0 };
    if (reduces)
        under = equalities_of_term(m, r->args[0]);
    for (int i = 0; reduces && i < r->nbound; i++)
        if (r->bound[i] >= IX_FIRST)
            n = poly_mul(m, n, values_with_term(p, r->bound[i], &under));
    return n;
}

/* Flops of every step of every sequence, or of none but some: of params alone, of a sequence's initial state. */
static void add_flops(const Plan *p, const Program *g, NodeId array, Cost *c)
{
    Module *m = p->m;
    const Node *r = &m->nodes.data[m->nodes.data[array].args[0]];
    bool walk = g->phase[array] == PHASE_DURING, batched = walk || plan_batched(p, array), timed = walk || plan_timed(p, array);
    for (int i = 0; plan_reduces(p, array) && i < r->nbound; i++) {
        batched |= r->bound[i] == IX_BATCH;
        timed |= r->bound[i] == IX_TIME;
    }
    const Poly *flops = array_flops(p, g, array);
    if (batched && timed) {
        c->flops = poly_add(m, c->flops, flops);
        return;
    }
    if (batched || timed)
        flops = poly_mul(m, flops, poly_dim(m, batched ? ATOM_B : ATOM_T));
    c->flops_once = poly_add(m, c->flops_once, flops);
}

/* ---- bytes ---- */

static void add_bytes(const Plan *p, Cost *c, bool per_step, const Poly *elements, Dtype type)
{
    const Poly *bytes = poly_mul(p->m, elements, poly_const(p->m, dtype_bytes(type)));
    if (per_step)
        c->step = poly_add(p->m, c->step, bytes);
    else
        c->once = poly_add(p->m, c->once, bytes);
}

/* A sum that products make where it lies: the last of them computes it. */
static bool made_by_products(const Program *g, NodeId array)
{
    const Group *by = g->group[array] < 0 ? NULL : &g->groups.data[g->group[array]];
    return by && by->kind == G_GEMM && by->gemm.added && by->gemm.c.read.id != array;
}

static Cost cost_of_store(const Plan *p, const Program *g, NodeId array)
{
    Cost c = no_cost(p);
    const Storage *s = &g->node[array];
    if (s->home != HOME_NONE)
        add_bytes(p, &c, s->batched && s->timed, array_elements(p->m, array), s->dtype);
    return c;
}

Cost cost_of_array(const Plan *p, const Program *g, NodeId array)
{
    Cost c = made_by_products(g, array) ? no_cost(p) : cost_of_store(p, g, array);
    add_flops(p, g, array, &c);
    return c;
}

/* What a group reads, one entry per value or tensor: the elements that its maps reach, at most all. */
typedef struct Reading { bool is_tensor; int id; const Poly *elements; Vec(const IxExpr **) maps; } Reading;
typedef struct Readings { Reading *data; int len, cap; } Readings;

static const Poly *reached(const Plan *p, const Read *r)
{
    Module *m = p->m;
    const Poly *n = poly_const(m, 1);
    for (IndexId i = IX_FIRST; i < m->indices.len; i++)
        for (int k = 0; k < r->nmap; k++)
            if (ix_uses(r->map[k], i)) {
                n = poly_mul(m, n, m->indices.data[i].extent);
                break;
            }
    return n;
}

static bool read_before(const Reading *x, const Read *r)
{
    for (int i = 0; i < x->maps.len; i++)
        if (r->nmap == 0 || memcmp(x->maps.data[i], r->map, sizeof *r->map * (size_t)r->nmap) == 0)
            return true;
    return false;
}

static void add_read(const Plan *p, Readings *out, const Read *r)
{
    Module *m = p->m;
    int at = 0;
    while (at < out->len && (out->data[at].is_tensor != r->is_tensor || out->data[at].id != r->id))
        at++;
    if (at == out->len) {
        Reading fresh = { .is_tensor = r->is_tensor, .id = r->id, .elements = poly_const(m, 0) };
        vec_push(m->arena, out, fresh);
    }
    Reading *x = &out->data[at];
    if (read_before(x, r))
        return;
    vec_push(m->arena, &x->maps, r->map);
    const Poly *all = r->is_tensor ? tensor_elements(m, r->id) : array_elements(m, r->id);
    const Poly *sum = poly_add(m, x->elements, reached(p, r));
    x->elements = poly_nonneg(poly_sub(m, all, sum)) ? sum : all;
}

static void collect_reads(const Plan *p, const Program *g, Phase reader, NodeId id, Marks *seen,
                          Readings *out)
{
    Read r;
    if (!marks_first(seen, id))
        return;
    if (plan_resolve(p, id, &r)) {
        if (is_table(p, &r))
            return;
        if (made_here(p, g, reader, &r))
            collect_reads(p, g, reader, p->m->nodes.data[r.id].args[0], seen, out);
        else
            add_read(p, out, &r);
        return;
    }
    const Node *n = &p->m->nodes.data[id];
    for (int i = 0; i < n->nargs; i++)
        collect_reads(p, g, reader, n->args[i], seen, out);
}

/* The group that computes an array where no walk does, with the sums that a row kernel does for others; -1:
 * none. */
static int computed_by(const Program *g, NodeId array)
{
    int by = g->group[array];
    return by >= 0 && g->groups.data[by].by_rows ? g->groups.data[by].by_rows - 1 : by;
}

/* A walk computes all of the phase. */
static bool computes(const Program *g, int group, NodeId array)
{
    bool walk = g->groups.data[group].kind == G_WALK;
    return walk ? g->phase[array] == PHASE_DURING : computed_by(g, array) == group;
}

static void add_reading(const Plan *p, const Program *g, int group, const Reading *x, Cost *c)
{
    bool walk = g->groups.data[group].kind == G_WALK;
    if (x->is_tensor) {
        const Tensor *t = &p->m->tensors.data[x->id];
        bool carried = t->kind == T_STATE || t->kind == T_DNEXT;
        if (!(walk && carried))
            add_bytes(p, c, t->kind != T_PARAM && t->kind != T_DINIT && t->kind != T_HISTORY &&
                                t->kind != T_DHISTORY && !t->lengths,
                      x->elements, carried ? p->compute : t->dtype);
    } else if (!computes(g, group, x->id) && g->node[x->id].home != HOME_NONE) {
        const Storage *s = &g->node[x->id];
        add_bytes(p, c, s->batched && s->timed, x->elements, s->dtype);
    }
}

static Cost cost_of_group(const Plan *p, const Program *g, int group, const NodeId *arrays, int n)
{
    Cost c = no_cost(p);
    Readings reads = { 0 };
    Marks *seen = marks_begin(p->m);
    for (int i = 0; i < n; i++) {
        if (!computes(g, group, arrays[i]))
            continue;
        c = cost_sum(p, c, cost_of_array(p, g, arrays[i]));
        if (!made_by_products(g, arrays[i]))
            collect_reads(p, g, g->phase[arrays[i]], p->m->nodes.data[arrays[i]].args[0], seen, &reads);
    }
    const Group *by = &g->groups.data[group];
    if (by->kind == G_GEMM && by->gemm.added)        /* and reads what it is added to */
        c = cost_sum(p, c, cost_of_store(p, g, by->gemm.c.read.id));
    marks_end(seen);
    for (int i = 0; i < reads.len; i++)
        add_reading(p, g, group, &reads.data[i], &c);
    return c;
}

typedef struct Arrays { NodeId *data; int len, cap; } Arrays;

const Cost *cost_of_groups(const Plan *p, const Program *g)
{
    Arena *arena = p->m->arena;
    int n = g->groups.len;
    Cost *costs = arena_alloc(arena, sizeof *costs * (size_t)(n + 1));
    Arrays all = { 0 }, *of = arena_alloc(arena, sizeof *of * (size_t)(n + 1));
    memset(of, 0, sizeof *of * (size_t)(n + 1));
    for (NodeId id = 0; id < p->n_nodes; id++) {
        if (p->m->nodes.data[id].kind != N_ARRAY)
            continue;
        int by = computed_by(g, id);
        vec_push(arena, &all, id);
        if (by >= 0)
            vec_push(arena, &of[by], id);
    }
    for (int i = 0; i < n; i++) {
        const Arrays *a = g->groups.data[i].kind == G_WALK ? &all : &of[i];
        costs[i] = cost_of_group(p, g, i, a->data, a->len);
    }
    return costs;
}
