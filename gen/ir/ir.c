/* ir.c: the IR: builders, substitution and the verifier. Passes make nodes only through the builders here,
 * which hash-cons (structurally equal nodes are one node), compute axes, type and dependences, and keep
 * arguments before their uses. The verifier recomputes all of it and names the pass that broke it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutate.h"
#include "ir_raw.h"
#include "marks.h"
#include "ops.h"

/* ---- hash-consing ---- */

typedef struct ConsEntry { uint64_t hash; int kind; void *value; } ConsEntry;
struct ConsTable { ConsEntry *entries; size_t cap, len; };

static void cons_insert(ConsEntry *entries, size_t cap, ConsEntry e)
{
    size_t at = e.hash & (cap - 1);
    while (entries[at].value)
        at = (at + 1) & (cap - 1);
    entries[at] = e;
}

static void cons_reserve(Module *m)
{
    struct ConsTable *t = m->cons;
    if (2 * (t->len + 1) <= t->cap)
        return;
    size_t cap = t->cap ? 2 * t->cap : 1024;
    ConsEntry *entries = arena_alloc(m->arena, cap * sizeof *entries);
    for (size_t i = 0; i < t->cap; i++)
        if (t->entries[i].value)
            cons_insert(entries, cap, t->entries[i]);
    t->entries = entries;
    t->cap = cap;
}

/* The one value equal to key: found, or made. Shared by size.c (kinds 1, 2). */
void *module_cons(Module *m, int kind, uint64_t hash, const void *key,
                  bool (*same)(const void *, const void *), void *(*make)(Module *, const void *))
{
    struct ConsTable *t = m->cons;
    hash ^= (uint64_t)kind * 0x9e3779b97f4a7c15ull;
    for (size_t at = t->cap ? hash & (t->cap - 1) : 0; t->cap && t->entries[at].value;
         at = (at + 1) & (t->cap - 1))
        if (t->entries[at].hash == hash && t->entries[at].kind == kind && same(t->entries[at].value, key))
            return t->entries[at].value;
    void *value = make(m, key);
    cons_reserve(m);
    cons_insert(t->entries, t->cap, (ConsEntry){ hash, kind, value });
    t->len++;
    return value;
}

/* A node as the table has it: one of m's. */
typedef struct NodeKey { Module *m; const Node *node; NodeId id; } NodeKey;

/* Sizes and index expressions are the same in both modules; nodes are those of m. */
static struct ConsTable *cons_copy(Module *m, const struct ConsTable *from)
{
    struct ConsTable *t = arena_alloc(m->arena, sizeof *t);
    *t = *from;
    t->entries = arena_alloc(m->arena, t->cap * sizeof *t->entries);
    NodeKey *keys = arena_alloc(m->arena, (t->len + 1) * sizeof *keys);
    for (size_t i = 0; i < t->cap; i++) {
        t->entries[i] = from->entries[i];
        if (t->entries[i].value && t->entries[i].kind == CONS_NODE) {
            *keys = (NodeKey){ .m = m, .id = ((const NodeKey *)from->entries[i].value)->id };
            t->entries[i].value = keys++;
        }
    }
    return t;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
    return h * 0xff51afd7ed558ccdull;
}

/* ---- module ---- */

Module *module_new(Compiler *c, const char *name)
{
    Module *m = arena_alloc(c->arena, sizeof *m);
    m->c = c;
    m->arena = c->arena;
    m->name = name;
    m->span.file = -1;
    m->at.file = -1;
    m->cons = arena_alloc(c->arena, sizeof *m->cons);
    m->marks = arena_alloc(c->arena, sizeof *m->marks);
    Index batch = { .name = intern(c, "b") }, time = { .name = intern(c, "t") }, start = { .name = intern(c, "t0") };
    vec_push(m->arena, &m->indices, batch);
    vec_push(m->arena, &m->indices, time);
    vec_push(m->arena, &m->indices, start);
    return m;
}

/* The vector gets new memory with the same content. */
#define own_vec(m, v)                                                                                        \
    do {                                                                                                     \
        size_t bytes_ = sizeof *(v)->data * (size_t)(v)->len;                                                \
        (v)->data = bytes_ ? memcpy(arena_alloc((m)->arena, bytes_), (v)->data, bytes_) : NULL;              \
        (v)->cap = (v)->len;                                                                                 \
    } while (0)

/* Passes make as many again: with room for these they are not copied once more. */
static void own_nodes(Module *m)
{
    int cap = 2 * m->nodes.len + 8;
    Node *nodes = arena_alloc(m->arena, sizeof *nodes * (size_t)cap);
    if (m->nodes.len)
        memcpy(nodes, m->nodes.data, sizeof *nodes * (size_t)m->nodes.len);
    m->nodes.data = nodes;
    m->nodes.cap = cap;
}

Module *module_copy(const Module *from)
{
    Module *m = arena_alloc(from->arena, sizeof *m);
    *m = *from;
    own_vec(m, &m->roots);
    own_vec(m, &m->bound);
    own_vec(m, &m->options);
    own_vec(m, &m->quotients);
    own_vec(m, &m->indices);
    own_vec(m, &m->tensors);
    own_vec(m, &m->checks);
    own_nodes(m);
    m->cons = cons_copy(m, from->cons);
    return m;
}

const Node *module_take_nodes(Module *m)
{
    const Node *nodes = m->nodes.data;
    struct ConsTable *all = m->cons, *t = arena_alloc(m->arena, sizeof *t);
    t->cap = all->cap;
    t->entries = arena_alloc(m->arena, (t->cap + 1) * sizeof *t->entries);
    for (size_t i = 0; i < all->cap; i++)
        if (all->entries[i].value && all->entries[i].kind != CONS_NODE) {
            cons_insert(t->entries, t->cap, all->entries[i]);
            t->len++;
        }
    m->cons = t;
    m->nodes.data = NULL;
    m->nodes.len = m->nodes.cap = 0;
    return nodes;
}

void module_release(Module *m)
{
    arena_release(m->arena, m->nodes.data, sizeof *m->nodes.data * (size_t)m->nodes.cap);
    m->nodes.data = NULL;
    m->nodes.len = m->nodes.cap = 0;
}

IndexId module_index(Module *m, const char *name, const Poly *extent)
{
    Index i = { .name = name, .extent = extent };
    vec_push(m->arena, &m->indices, i);
    return m->indices.len - 1;
}

TensorId module_tensor(Module *m, Tensor t)
{
    vec_push(m->arena, &m->tensors, t);
    Roots none;
    for (int k = 0; k < ROOT_COUNT; k++)
        none.of[k] = -1;
    vec_push(m->arena, &m->roots, none);
    return m->tensors.len - 1;
}

TensorId module_tensor_between(Module *m, Tensor t, const IndexId *axes, int n)
{
    t.axes = arena_alloc(m->arena, sizeof *t.axes * (size_t)(n + 1));
    for (int i = 0; i < n; i++)
        t.axes[i] = m->indices.data[axes[i]].extent;
    t.rank = n;
    t.of = -1;
    t.dtype = m->c->dtype == DT_F64 ? DT_F64 : DT_F32;
    t.chunk = true;
    return module_tensor(m, t);
}

TensorId module_starts(const Module *m)
{
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (m->tensors.data[t].starts)
            return t;
    return -1;
}

const Poly *module_rows(Module *m)
{
    if (module_starts(m) < 0)
        return poly_mul(m, poly_dim(m, ATOM_B), poly_dim(m, ATOM_T));
    int total = 0;
    while (strcmp(m->dims.data[total], "total") != 0)
        total++;
    return poly_dim(m, total);
}

void module_at(Module *m, Span span, const CallSite *chain)
{
    m->at = span;
    m->at_chain = chain;
}

/* ---- building nodes ---- */

static bool same_ids(const int32_t *a, const int32_t *b, int n)
{
    return n == 0 || memcmp(a, b, sizeof *a * (size_t)n) == 0;
}

/* Of a constant: 0 and -0 are two values, and NaN is one. */
static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static bool node_same_content(const Node *a, const Node *b)
{
    if (a->kind != b->kind || a->op != b->op || a->reduce != b->reduce || a->nargs != b->nargs ||
        a->tensor != b->tensor || a->nmap != b->nmap || a->step != b->step ||
        (a->step && a->past != b->past) || a->nbound != b->nbound ||
        a->size != b->size || a->ix != b->ix || bits_of(a->value) != bits_of(b->value))
        return false;
    if (a->kind == N_ARRAY && (a->name != b->name || a->naxes != b->naxes ||
                               !same_ids(a->axes, b->axes, a->naxes)))
        return false;
    for (int i = 0; i < a->nmap; i++)
        if (a->map[i] != b->map[i])
            return false;
    return same_ids(a->args, b->args, a->nargs) && same_ids(a->bound, b->bound, a->nbound);
}

static bool node_same(const void *stored, const void *key)
{
    const NodeKey *s = stored, *k = key;
    return node_same_content(&s->m->nodes.data[s->id], k->node);
}

static void *copy(Module *m, const void *from, size_t bytes)
{
    static max_align_t none;      /* of what has no elements */
    return bytes ? memcpy(arena_alloc(m->arena, bytes), from, bytes) : (void *)&none;
}

static void *node_make(Module *m, const void *key)
{
    Node n = *((const NodeKey *)key)->node;
    n.axes = copy(m, n.axes, sizeof *n.axes * (size_t)n.naxes);
    n.args = copy(m, n.args, sizeof *n.args * (size_t)n.nargs);
    n.map = copy(m, n.map, sizeof *n.map * (size_t)n.nmap);
    n.bound = copy(m, n.bound, sizeof *n.bound * (size_t)n.nbound);
    n.span = m->at;
    n.chain = m->at_chain;
    vec_push(m->arena, &m->nodes, n);
    NodeKey *stored = arena_alloc(m->arena, sizeof *stored);
    stored->m = m;
    stored->id = m->nodes.len - 1;
    return stored;
}

static uint64_t node_hash(const Node *n)
{
    uint64_t bits;
    memcpy(&bits, &n->value, sizeof bits);
    uint64_t h = mix((uint64_t)n->kind, (uint64_t)n->op * 64 + (uint64_t)n->reduce);
    h = mix(h, bits);
    h = mix(h, (uint64_t)(uintptr_t)n->size ^ (uint64_t)(uintptr_t)n->ix);
    h = mix(h, (uint64_t)n->tensor * 1000 ^ (uint64_t)(uintptr_t)n->step);
    h = mix(h, n->step ? (uint64_t)n->past : 0);
    for (int i = 0; i < n->nargs; i++)
        h = mix(h, (uint64_t)n->args[i]);
    for (int i = 0; i < n->nmap; i++)
        h = mix(h, (uint64_t)(uintptr_t)n->map[i]);
    for (int i = 0; i < n->nbound; i++)
        h = mix(h, (uint64_t)n->bound[i]);
    for (int i = 0; n->kind == N_ARRAY && i < n->naxes; i++)
        h = mix(h, (uint64_t)n->axes[i]);
    return h;
}

static NodeId node_intern(Module *m, const Node *n)
{
    NodeKey key = { m, n, -1 };
    NodeKey *stored = module_cons(m, CONS_NODE, node_hash(n), &key, node_same, node_make);
    return stored->id;
}

/* A node that was changed in place is found by its new content from here on. */
static void *node_keep(Module *m, const void *key)
{
    NodeKey *stored = arena_alloc(m->arena, sizeof *stored);
    *stored = *(const NodeKey *)key;
    return stored;
}

static void node_changed(Module *m, NodeId id)
{
    NodeKey key = { m, &m->nodes.data[id], id };
    module_cons(m, CONS_NODE, node_hash(key.node), &key, node_same, node_keep);
}

typedef struct Axes { IndexId id[MAX_NODE_AXES]; int n; } Axes;

static bool gathers(const Module *m, const Node *r);

/* The value goes on without the index, and the pass ends with the error. */
static void too_many_axes(Module *m)
{
    diag(m->c, DIAG_ERROR, m->at, "a value here varies over more than %d indices, those of sums around it among them",
         MAX_NODE_AXES);
}

static void axes_add(Module *m, Axes *s, IndexId i)
{
    if (i < IX_FIRST)
        return;
    for (int k = 0; k < s->n; k++)
        if (s->id[k] == i)
            return;
    if (s->n == MAX_NODE_AXES) {
        too_many_axes(m);
        return;
    }
    s->id[s->n++] = i;
}

static void axes_of_ix(Module *m, Axes *s, const IxExpr *e, unsigned *dep)
{
    for (int i = 0; i < e->nterms; i++) {
        if (e->terms[i].kind != IA_INDEX) {
            axes_of_ix(m, s, e->terms[i].arg, dep);
            continue;
        }
        if (e->terms[i].index == IX_TIME)
            *dep |= DEP_TIME;
        axes_add(m, s, e->terms[i].index);
    }
}

static unsigned tensor_dep(const Tensor *t)
{
    switch (t->kind) {
    case T_INPUT: return (tensor_per_step(t) ? DEP_TIME : 0) | DEP_BATCH | DEP_INPUT;
    case T_PARAM: return DEP_PARAM;
    case T_STATE: return DEP_BATCH | DEP_TIME | DEP_STATE;
    case T_HISTORY: return DEP_BATCH | DEP_INPUT;
    case T_OUTPUT: break;
    case T_DOUT: case T_DNEXT: return DEP_BATCH | DEP_TIME | DEP_COTANGENT;
    case T_DINIT: case T_DHISTORY: return DEP_BATCH | DEP_COTANGENT;
    case T_COTANGENT: return DEP_BATCH | DEP_TIME | DEP_COTANGENT;
    }
    return 0;
}

/* Operations on whole numbers alone give a whole number. */
static NodeType arithmetic_type(const Module *m, const Node *n)
{
    for (int i = n->op == OP_SELECT; i < n->nargs; i++)
        if (m->nodes.data[n->args[i]].type != TY_INT)
            return TY_REAL;
    return TY_INT;
}

/* ---- how large whole numbers become ---- */

static double size_most(const Poly *p)
{
    return p->is_const ? fabs((double)p->value) : p->nterms ? WHOLE_INDEX : 0;
}

static double ix_most(const Module *m, const IxExpr *e);

double ix_term_most(const Module *m, const IxTerm *t)
{
    const Poly *extent = t->kind == IA_INDEX ? m->indices.data[t->index].extent : NULL;
    return t->kind == IA_MOD ? size_most(t->by) : t->kind == IA_DIV ? ix_most(m, t->arg) : extent ? size_most(extent) : WHOLE_INDEX;
}

static double ix_most(const Module *m, const IxExpr *e)
{
    double most = size_most(e->offset);
    for (int i = 0; i < e->nterms; i++)
        most += size_most(e->terms[i].coef) * ix_term_most(m, &e->terms[i]);
    return fmin(most, WHOLE_INDEX);
}

static double map_most(const Module *m, const Node *n)
{
    double a[3] = { 0 };
    for (int i = 0; i < n->nargs && i < 3; i++)
        a[i] = m->nodes.data[n->args[i]].most;
    switch (n->op) {
    case OP_ADD: case OP_SUB: return a[0] + a[1];
    case OP_MUL: return a[0] * a[1];
    case OP_SELECT: return fmax(a[1], a[2]);
    case OP_IMOD: return a[1];
    case OP_IPOW: return WHOLE_LARGEST;
    case OP_NEG: case OP_IDIV: return a[0];
    default: return fmax(a[0], a[1]);
    }
}

/* What a whole number's magnitude does not exceed; WHOLE_LARGEST: nothing is known, or it may go round. */
static double whole_most(const Module *m, const Node *n)
{
    double most = WHOLE_LARGEST;
    if (n->type != TY_INT)
        return 0;
    switch (n->kind) {
    case N_SIZE: most = size_most(n->size); break;
    case N_INDEX: most = ix_most(m, n->ix); break;
    case N_LOAD: most = 0x1p31; break;
    case N_MAP: most = map_most(m, n); break;
    case N_REDUCE: most = gathers(m, n) ? m->nodes.data[n->args[0]].most : WHOLE_LARGEST; break;
    default: break;
    }
    return fmin(most, WHOLE_LARGEST);
}

static NodeType map_type(const Module *m, const Node *n)
{
    switch (n->op) {
    case OP_LT: case OP_LE: case OP_EQ: case OP_NE: case OP_AND: case OP_OR: case OP_NOT: return TY_BOOL;
    case OP_SELECT:
        return m->nodes.data[n->args[1]].type == TY_BOOL ? TY_BOOL : arithmetic_type(m, n);
    case OP_NEG: case OP_ADD: case OP_SUB: case OP_MUL: case OP_MIN: case OP_MAX: case OP_IDIV: case OP_IMOD: case OP_IPOW:
        return arithmetic_type(m, n);
    default: return TY_REAL;
    }
}

/* Axes, dependences and type of a node whose content is set; the verifier calls it as well. */
static void node_derive(Module *m, Node *n, Axes *axes)
{
    axes->n = 0;
    n->dep = 0;
    n->type = TY_REAL;
    for (int i = 0; i < n->nmap; i++)
        axes_of_ix(m, axes, n->map[i], &n->dep);
    if (n->step)
        axes_of_ix(m, axes, n->step, &n->dep);
    unsigned of_time = n->step ? n->dep & DEP_TIME : DEP_TIME;    /* what a fixed step had is one value */
    if (n->step && n->past >= 0)
        n->dep |= tensor_dep(&m->tensors.data[n->past]);          /* each sequence has a past of its own */
    /* What an override holds beside its value has axes of its own, and is not computed where the value is. */
    int values = n->kind == N_MAP && n->op == OP_OVERRIDE ? 1 : n->nargs;
    for (int i = 0; i < values; i++) {
        const Node *a = &m->nodes.data[n->args[i]];
        n->dep |= a->dep & (of_time | ~(unsigned)DEP_TIME);
        for (int k = 0; n->kind != N_VIEW && k < a->naxes; k++)
            axes_add(m, axes, a->axes[k]);
    }
    switch (n->kind) {
    case N_CONST: break;
    case N_SIZE: n->type = TY_INT; break;
    case N_INDEX: n->type = TY_INT; axes_of_ix(m, axes, n->ix, &n->dep); break;
    case N_LOAD:
        n->dep |= tensor_dep(&m->tensors.data[n->tensor]) & (of_time | ~(unsigned)DEP_TIME);
        n->type = m->tensors.data[n->tensor].dtype == DT_I32 ? TY_INT : TY_REAL;
        break;
    case N_ARRAY:
        axes->n = n->naxes;
        if (n->naxes)
            memcpy(axes->id, n->axes, sizeof *n->axes * (size_t)n->naxes);
        n->type = m->nodes.data[n->args[0]].type;
        break;
    case N_VIEW:
        n->type = m->nodes.data[n->args[0]].type;
        if (n->step && n->past >= 0 && n->type == TY_INT)
            n->type = TY_REAL;    /* before the call it is whatever number the caller gives */
        break;
    case N_MAP: n->type = map_type(m, n); break;
    case N_REDUCE: {
        int kept = 0;
        for (int i = 0; i < axes->n; i++) {
            bool bound = false;
            for (int k = 0; k < n->nbound; k++)
                bound |= n->bound[k] == axes->id[i];
            if (!bound)
                axes->id[kept++] = axes->id[i];
        }
        axes->n = kept;
        const Node *term = &m->nodes.data[n->args[0]];
        n->type = n->reduce == R_SUM && term->type == TY_INT && (term->dep & DEP_INPUT) ? TY_INT : TY_REAL;
        for (int k = 0; k < n->nbound; k++)
            n->dep &= n->bound[k] == IX_BATCH  ? ~(unsigned)DEP_BATCH
                      : n->bound[k] == IX_TIME ? ~(unsigned)DEP_TIME
                                               : ~0u;
        break;
    }
    }
    n->has_pole = op_has_pole(m, n);
}

NodeId node_build(Module *m, Node n)
{
    Axes axes;
    node_derive(m, &n, &axes);
    n.axes = axes.id;
    n.naxes = axes.n;
    n.most = whole_most(m, &n);
    return node_intern(m, &n);
}

NodeId node_const(Module *m, double v)
{
    return node_build(m, (Node){ .kind = N_CONST, .value = v });
}

NodeId node_size(Module *m, const Poly *p)
{
    return node_build(m, (Node){ .kind = N_SIZE, .size = p });
}

NodeId node_index(Module *m, const IxExpr *ix)
{
    if (ix->nterms == 0)
        return node_size(m, ix->offset);          /* one form, so that equal guards are one node */
    return node_build(m, (Node){ .kind = N_INDEX, .ix = ix });
}

NodeId node_whole(Module *m, int64_t v)
{
    return node_size(m, poly_const(m, v));
}

NodeId node_bool(Module *m, bool v)
{
    NodeId zero = node_whole(m, 0);
    return node_map2(m, v ? OP_EQ : OP_NE, zero, zero);
}

static NodeId also(Module *m, NodeId guard, NodeId cond)
{
    return guard < 0 ? cond : node_map2(m, OP_AND, guard, cond);
}

/* The condition under which e is in [0, extent), as far as it is not proved; -1 when it is. */
static NodeId range_guard(Module *m, const IxExpr *e, const Poly *extent, NodeId guard)
{
    IndexId which;
    if (ix_is_index(e, &which) && which >= IX_FIRST && m->indices.data[which].extent == extent)
        return guard;
    const Poly *lo, *hi, *last = poly_sub(m, extent, poly_const(m, 1));
    bool known = ix_range(m, e, &lo, &hi);
    NodeId side[2] = { -1, -1 };
    if (!known || !poly_nonneg(lo))
        side[0] = node_map2(m, OP_LE, node_whole(m, 0), node_index(m, e));
    if (!known || !poly_nonneg(poly_sub(m, last, hi)))
        side[1] = node_map2(m, OP_LT, node_index(m, e), node_size(m, extent));
    for (int i = 0; i < 2; i++)
        if (side[i] >= 0)
            guard = also(m, guard, side[i]);
    return guard;
}

/* Every read is total: where its range is not proved, it is 0 outside. The spec's own guards make that
 * unreachable, but adjoints may carry a read out from under them. */
static NodeId total_read(Module *m, NodeId guard, NodeId read)
{
    bool whole = m->nodes.data[read].type == TY_INT;
    return guard < 0 ? read : node_select(m, guard, read, whole ? node_whole(m, 0) : node_const(m, 0));
}

/* p >= 0 for all dims, and also for a call of no steps. */
static bool poly_nonneg_empty(const Poly *p)
{
    for (int i = 0; i < p->nterms; i++)
        for (int k = 0; k < p->terms[i].natoms; k++)
            if (p->terms[i].atoms[k] == ATOM_T)
                return false;
    return poly_nonneg(p);
}

/* Conditions that the step is one of the call's or in the history, as far as that does not follow from its
 * distance to this one. */
static NodeId step_guard(Module *m, const IxExpr *step, TensorId past, NodeId guard)
{
    const IxExpr *start = ix_index(m, IX_START), *place = ix_sub(m, step, start);
    const IxExpr *now = ix_sub(m, ix_index(m, IX_TIME), start);
    const Poly *lo, *hi, *steps = poly_dim(m, ATOM_T), *last = poly_sub(m, steps, poly_const(m, 1));
    if (past >= 0 && m->tensors.data[past].grows)
        place = step;
    else if (past >= 0)
        place = ix_add(m, place, ix_const(m, m->tensors.data[past].axes[0]));
    if (!ix_range(m, ix_sub(m, place, past >= 0 && m->tensors.data[past].grows ? ix_index(m, IX_TIME) : now), &lo, &hi) || !poly_nonneg(lo))
        if (!ix_range(m, place, &lo, &hi) || !poly_nonneg(lo))
            guard = also(m, guard, node_map2(m, OP_LE, node_whole(m, 0), node_index(m, place)));
    place = ix_sub(m, step, start);
    if (!ix_range(m, ix_sub(m, now, place), &lo, &hi) || !poly_nonneg(lo))
        if (!ix_range(m, place, &lo, &hi) || !poly_nonneg_empty(poly_sub(m, last, hi)))
            guard = also(m, guard, node_map2(m, OP_LT, node_index(m, place), node_size(m, steps)));
    return guard;
}

NodeId node_has_step(Module *m, const IxExpr *step, TensorId past)
{
    return step_guard(m, step, past, -1);
}

static NodeId length_of_sequence(Module *m)
{
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (m->tensors.data[t].lengths)
            return node_load(m, t, NULL, 0);
    return -1;
}

NodeId node_steps_of_sequence(Module *m)
{
    NodeId n = length_of_sequence(m);
    if (n < 0)
        return -1;
    return node_map2(m, OP_MIN, node_map2(m, OP_MAX, n, node_whole(m, 0)), node_size(m, poly_dim(m, ATOM_T)));
}

NodeId node_of_every_step(Module *m, NodeId v)
{
    const IxExpr *now = ix_sub(m, ix_index(m, IX_TIME), ix_index(m, IX_START));
    NodeId always = node_map2(m, OP_LE, node_whole(m, 0), node_index(m, now));
    return node_select(m, always, v, node_const(m, 0));
}

NodeId node_in_sequence(Module *m, const IxExpr *step)
{
    IndexId which;
    NodeId length = length_of_sequence(m);
    if (length < 0)
        return -1;
    const IxExpr *start = ix_index(m, IX_START), *row = ix_sub(m, step, start);
    const Poly *last = poly_sub(m, poly_dim(m, ATOM_T), poly_const(m, 1));
    NodeId at = node_index(m, row);
    bool now = ix_is_index(step, &which) && which == IX_TIME, ends = m->c->reverse && !mutate("front-lengths");
    if (ends)
        at = node_index(m, ix_sub(m, ix_const(m, last), row));
    if (now)
        return node_map2(m, OP_LT, at, length);
    /* Walked backwards, a sequence that has all steps of the call may have begun before it. */
    if (ends)
        return node_map2(m, OP_LT, node_map2(m, OP_MIN, at, node_size(m, last)), length);
    return node_map2(m, OP_OR, node_map2(m, OP_LT, node_index(m, step), node_index(m, start)),
                     node_map2(m, OP_LT, at, length));
}

static const IxExpr *other_step(const IxExpr *step)
{
    IndexId which;
    return step && ix_is_index(step, &which) && which == IX_TIME ? NULL : step;
}

NodeId node_load_at(Module *m, TensorId t, const IxExpr *const *map, int n, const IxExpr *step, TensorId past)
{
    NodeId guard = -1;
    for (int i = 0; i < n; i++)
        guard = range_guard(m, map[i], m->tensors.data[t].axes[i], guard);
    step = other_step(step);
    if (step)
        guard = step_guard(m, step, past, guard);
    NodeId load = node_build(m, (Node){ .kind = N_LOAD, .tensor = t, .map = (const IxExpr **)(uintptr_t)map,
                                        .nmap = n, .step = step, .past = step ? past : -1 });
    return total_read(m, guard, load);
}

NodeId node_load(Module *m, TensorId t, const IxExpr *const *map, int n)
{
    return node_load_at(m, t, map, n, NULL, -1);
}

NodeId node_view_at(Module *m, NodeId array, const IxExpr *const *map, int n, const IxExpr *step, TensorId past)
{
    const Node *a = &m->nodes.data[array];
    step = a->dep & DEP_TIME ? other_step(step) : NULL;
    bool identity = n == a->naxes && !step;
    for (int i = 0; identity && i < n; i++) {
        IndexId which;
        identity = ix_is_index(map[i], &which) && which == a->axes[i];
    }
    if (identity)
        return array;
    NodeId guard = -1;
    for (int i = 0; i < n; i++)
        guard = range_guard(m, map[i], m->indices.data[m->nodes.data[array].axes[i]].extent, guard);
    if (step)
        guard = step_guard(m, step, past, guard);
    NodeId view = node_build(m, (Node){ .kind = N_VIEW, .args = &array, .nargs = 1,
                                        .map = (const IxExpr **)(uintptr_t)map, .nmap = n, .step = step,
                                        .past = step ? past : -1 });
    return total_read(m, guard, view);
}

NodeId node_view(Module *m, NodeId array, const IxExpr *const *map, int n)
{
    return node_view_at(m, array, map, n, NULL, -1);
}

NodeId node_map(Module *m, Op op, const NodeId *args, int n)
{
    return node_build(m, (Node){ .kind = N_MAP, .op = op, .args = (NodeId *)(uintptr_t)args, .nargs = n });
}

NodeId node_map1(Module *m, Op op, NodeId a)
{
    return node_map(m, op, &a, 1);
}

NodeId node_map2(Module *m, Op op, NodeId a, NodeId b)
{
    NodeId args[2] = { a, b };
    return node_map(m, op, args, 2);
}

NodeId node_select(Module *m, NodeId cond, NodeId a, NodeId b)
{
    NodeId args[3] = { cond, a, b };
    return node_map(m, OP_SELECT, args, 3);
}

NodeId node_reduce(Module *m, ReduceOp r, NodeId a, const IndexId *bound, int n)
{
    if (n == 0)
        return a;
    return node_build(m, (Node){ .kind = N_REDUCE, .reduce = r, .args = &a, .nargs = 1,
                                 .bound = (IndexId *)(uintptr_t)bound, .nbound = n });
}

NodeId node_array(Module *m, NodeId a, const IndexId *axes, int n, const char *name, Span span)
{
    Span before = m->at;
    if (span.file >= 0)
        m->at = span;
    NodeId r = node_build(m, (Node){ .kind = N_ARRAY, .args = &a, .nargs = 1, .name = name,
                                     .axes = (IndexId *)(uintptr_t)axes, .naxes = n });
    m->at = before;
    return r;
}

/* ---- integer values as places ---- */

static bool varies_over(const Node *n, const IndexId *over, int count)
{
    for (int i = 0; i < n->naxes; i++)
        for (int k = 0; k < count; k++)
            if (n->axes[i] == over[k])
                return true;
    return false;
}

/* Each part of a conjunction once: what pins nothing where it stands first pins nothing behind. */
static NodeId pinned_in(const Module *m, NodeId cond, IndexId i, const IndexId *over, int n, bool *only, Marks *seen)
{
    const Node *c = &m->nodes.data[cond];
    if (!marks_first(seen, cond))
        return -1;
    if (c->kind == N_MAP && c->op == OP_AND) {
        NodeId a = pinned_in(m, c->args[0], i, over, n, only, seen);
        *only = false;
        return a >= 0 ? a : pinned_in(m, c->args[1], i, over, n, &(bool){ false }, seen);
    }
    *only = true;
    for (int k = 0; c->kind == N_MAP && c->op == OP_EQ && k < 2; k++) {
        const Node *index = &m->nodes.data[c->args[k]], *place = &m->nodes.data[c->args[1 - k]];
        IndexId which;
        if (index->kind == N_INDEX && ix_is_index(index->ix, &which) && which == i && place->type == TY_INT &&
            ((place->dep & DEP_INPUT) || place->kind == N_MAP) && !varies_over(place, over, n))
            return c->args[1 - k];
    }
    return -1;
}

NodeId ir_pinned(const Module *m, NodeId select, IndexId i, const IndexId *over, int n, bool *only)
{
    const Node *s = &m->nodes.data[select];
    *only = false;
    if (s->kind != N_MAP || s->op != OP_SELECT)
        return -1;
    const Node *other = &m->nodes.data[s->args[2]];
    if (other->kind == N_SIZE ? other->size->nterms : other->kind != N_CONST || other->value != 0)
        return -1;
    Marks *seen = marks_begin(m);
    NodeId place = pinned_in(m, s->args[0], i, over, n, only, seen);
    marks_end(seen);
    return place;
}

static bool gathers(const Module *m, const Node *r)
{
    if (r->kind != N_REDUCE || r->reduce != R_SUM)
        return false;
    for (int i = 0; i < r->nbound; i++)
        if (r->bound[i] < IX_FIRST || ir_pinned(m, r->args[0], r->bound[i], r->bound, r->nbound, &(bool){ false }) < 0)
            return false;
    return true;
}

bool ir_gathers(const Module *m, NodeId reduce)
{
    return gathers(m, &m->nodes.data[reduce]);
}

/* ---- substitution ---- */

/* Nodes and their images, by hash: a substitution sees few of the module's nodes. */
typedef struct Image { NodeId of, is; } Image;          /* of: 1 + the node; 0: an empty slot */
typedef struct Images { Image few[32], *slots; int cap, len; } Images;

static Image *image_of(const Images *t, NodeId id)
{
    unsigned mask = (unsigned)t->cap - 1, at = (unsigned)id * 2654435761u >> 7 & mask;
    while (t->slots[at].of && t->slots[at].of != id + 1)
        at = (at + 1) & mask;
    return &t->slots[at];
}

static void image_add(Module *m, Images *t, NodeId id, NodeId is)
{
    if (2 * (t->len + 1) > t->cap) {
        const Image *old = t->slots;
        int n = t->cap;
        t->cap = 4 * n;
        t->slots = arena_alloc(m->arena, sizeof *t->slots * (size_t)t->cap);
        for (int i = 0; i < n; i++)
            if (old[i].of)
                *image_of(t, old[i].of - 1) = old[i];
    }
    *image_of(t, id) = (Image){ id + 1, is };
    t->len++;
}

typedef struct Subst {
    Module *m;
    const IndexId *from;
    const IxExpr *const *to;
    int n;
    const IxExpr *step;           /* what stands for IX_TIME, or NULL */
    Images done;
} Subst;

static NodeId subst_node(Subst *s, NodeId id);

static bool touches(const Subst *s, const Node *n)
{
    if (s->step && (n->dep & DEP_TIME))
        return true;
    for (int i = 0; i < n->naxes; i++)
        for (int k = 0; k < s->n; k++)
            if (n->axes[i] == s->from[k])
                return true;
    return false;
}

static NodeId subst_reduce(Subst *s, NodeId id)
{
    Module *m = s->m;
    Node n = m->nodes.data[id];
    IndexId *from = arena_alloc(m->arena, sizeof *from * (size_t)(s->n + n.nbound));
    const IxExpr **to = arena_alloc(m->arena, sizeof *to * (size_t)(s->n + n.nbound));
    IndexId *bound = copy(m, n.bound, sizeof *bound * (size_t)n.nbound);
    int count = 0;
    for (int k = 0; k < s->n; k++) {
        bool hidden = false;
        for (int i = 0; i < n.nbound; i++)
            hidden |= n.bound[i] == s->from[k];
        if (hidden)
            continue;
        from[count] = s->from[k];
        to[count++] = s->to[k];
    }
    int outer = count;
    for (int i = 0; i < n.nbound; i++) {
        bool captured = false;
        for (int k = 0; k < outer; k++)
            captured |= ix_uses(to[k], n.bound[i]);
        if (!captured || n.bound[i] < IX_FIRST)
            continue;
        Index old = m->indices.data[n.bound[i]];
        bound[i] = module_index(m, old.name, old.extent);
        from[count] = n.bound[i];
        to[count++] = ix_index(m, bound[i]);
    }
    NodeId body = node_subst(m, n.args[0], from, to, count);
    return node_reduce(m, n.reduce, body, bound, n.nbound);
}

static const IxExpr **subst_map(Subst *s, const IxExpr *const *map, int n)
{
    const IxExpr **to = arena_alloc(s->m->arena, sizeof *to * (size_t)(n + 1));
    for (int i = 0; i < n; i++)
        to[i] = ix_subst(s->m, map[i], s->from, s->to, s->n);
    return to;
}

/* The step that a read of `step` means after the substitution. */
static const IxExpr *subst_step(const Subst *s, const IxExpr *step)
{
    return step ? ix_subst(s->m, step, s->from, s->to, s->n) : s->step;
}

static TensorId past_of(const Node *n)
{
    return n->step ? n->past : -1;
}

static bool is_step_root(const Module *m, NodeId id)
{
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (m->roots.data[t].output == id || m->roots.data[t].next == id)
            return true;
    return false;
}

/* An array at its own axes, or at another step: a root and what is carried lie elsewhere, so these are copied. */
static NodeId subst_array(Subst *s, NodeId id)
{
    Module *m = s->m;
    if (s->step && is_step_root(m, id)) {
        Node n = m->nodes.data[id];
        id = node_array(m, id, n.axes, n.naxes, n.name, n.span);
    }
    Node n = m->nodes.data[id];
    const IxExpr **map = arena_alloc(m->arena, sizeof *map * (size_t)(n.naxes + 1));
    for (int i = 0; i < n.naxes; i++)
        map[i] = ix_subst(m, ix_index(m, n.axes[i]), s->from, s->to, s->n);
    return node_view_at(m, id, map, n.naxes, s->step, -1);
}

static NodeId subst_load(Subst *s, NodeId id)
{
    Module *m = s->m;
    Node n = m->nodes.data[id];
    Tensor t = m->tensors.data[n.tensor];
    const IxExpr **map = subst_map(s, n.map, n.nmap);
    bool carried = t.kind == T_STATE || t.kind == T_DNEXT, rows = tensor_per_step(&t);
    if (!s->step || !carried)
        return node_load_at(m, n.tensor, map, n.nmap, rows ? subst_step(s, n.step) : NULL, past_of(&n));
    IndexId *axes = arena_alloc(m->arena, sizeof *axes * (size_t)(t.rank + 1));
    const IxExpr **own = arena_alloc(m->arena, sizeof *own * (size_t)(t.rank + 1));
    for (int i = 0; i < t.rank; i++) {
        axes[i] = module_index(m, intern_f(m->c, "s%d", i), t.axes[i]);
        own[i] = ix_index(m, axes[i]);
    }
    NodeId copy = node_array(m, node_load(m, n.tensor, own, t.rank), axes, t.rank, t.name, n.span);
    return node_view_at(m, copy, map, t.rank, s->step, -1);
}

/* 0 <= t - t0 + w: no step of the call is before its first. */
static bool always_holds(Module *m, NodeId cond)
{
    const Node *n = &m->nodes.data[cond];
    const Poly *lo, *hi;
    if (n->kind != N_MAP || n->op != OP_LE || m->nodes.data[n->args[0]].kind != N_SIZE ||
        m->nodes.data[n->args[0]].size->nterms || m->nodes.data[n->args[1]].kind != N_INDEX)
        return false;
    const IxExpr *now = ix_sub(m, ix_index(m, IX_TIME), ix_index(m, IX_START));
    const IxExpr *e = ix_sub(m, m->nodes.data[n->args[1]].ix, now);
    if (ix_range(m, e, &lo, &hi) && poly_nonneg(lo))
        return true;
    return ix_range(m, m->nodes.data[n->args[1]].ix, &lo, &hi) && poly_nonneg(lo);
}

/* Conditions that became certain by the substitution are not kept. */
static NodeId decided_map(Module *m, Op op, const NodeId *args, int n)
{
    if (op == OP_SELECT && always_holds(m, args[0]))
        return args[1];
    if (op == OP_AND && always_holds(m, args[0]))
        return args[1];
    if (op == OP_AND && always_holds(m, args[1]))
        return args[0];
    return node_map(m, op, args, n);
}

static NodeId subst_fresh(Subst *s, NodeId id)
{
    Module *m = s->m;
    Node n = m->nodes.data[id];
    switch (n.kind) {
    case N_CONST: case N_SIZE: return id;
    case N_INDEX: return node_index(m, ix_subst(m, n.ix, s->from, s->to, s->n));
    case N_LOAD: return subst_load(s, id);
    case N_VIEW: {
        NodeId array = n.args[0];
        if (s->step && !n.step && is_step_root(m, array)) {
            Node a = m->nodes.data[array];
            array = node_array(m, array, a.axes, a.naxes, a.name, a.span);
        }
        return node_view_at(m, array, subst_map(s, n.map, n.nmap), n.nmap, subst_step(s, n.step), past_of(&n));
    }
    case N_ARRAY: return subst_array(s, id);
    case N_MAP: {
        NodeId args[4] = { -1, -1, -1, -1 };
        for (int i = 0; i < n.nargs; i++)
            args[i] = subst_node(s, n.args[i]);
        return decided_map(m, n.op, args, n.nargs);
    }
    case N_REDUCE:
        return s->step ? subst_array(s, node_array(m, id, n.axes, n.naxes, NULL, n.span)) : subst_reduce(s, id);
    }
    return id;
}

static NodeId subst_node(Subst *s, NodeId id)
{
    if (!touches(s, &s->m->nodes.data[id]))
        return id;
    const Image *done = image_of(&s->done, id);
    if (done->of)
        return done->is;
    NodeId is = subst_fresh(s, id);
    image_add(s->m, &s->done, id, is);
    return is;
}

NodeId node_subst(Module *m, NodeId a, const IndexId *from, const IxExpr *const *to, int n)
{
    Subst s = { .m = m, .from = from, .to = to, .n = n };
    for (int k = 0; k < n; k++)
        if (from[k] == IX_TIME)
            s.step = to[k];
    if (n == 0 || !touches(&s, &m->nodes.data[a]))
        return a;
    s.done.slots = s.done.few;
    s.done.cap = sizeof s.done.few / sizeof *s.done.few;
    return subst_node(&s, a);
}

const IxExpr *ir_history_place(Module *m, TensorId history, const IxExpr *step)
{
    const IxExpr *one = ix_const(m, poly_const(m, 1));
    if (m->tensors.data[history].grows)
        return mutate("place-behind") ? ix_add(m, step, one) : step;
    return ix_sub(m, ix_sub(m, ix_index(m, IX_START), one), step);
}

NodeId ir_history_source(const Module *m, TensorId history)
{
    NodeId id = m->roots.data[history].last;
    while (id >= 0 && !(m->nodes.data[id].kind == N_VIEW && m->nodes.data[id].step))
        id = m->nodes.data[id].nargs ? m->nodes.data[id].args[m->nodes.data[id].nargs > 1] : -1;
    return id < 0 ? -1 : m->nodes.data[id].args[0];
}

static void drop_overrides(Module *m, NodeId id, bool *seen)
{
    if (id < 0 || seen[id])
        return;
    Node *n = &m->nodes.data[id];
    const Node *held = n->kind == N_ARRAY ? &m->nodes.data[n->args[0]] : NULL;
    seen[id] = true;
    if (held && held->kind == N_MAP && held->op == OP_OVERRIDE) {
        n->args = copy(m, n->args, sizeof *n->args);      /* copies of the module have the same list */
        for (; held->kind == N_MAP && held->op == OP_OVERRIDE; held = &m->nodes.data[held->args[0]])
            n->args[0] = held->args[0];
        node_changed(m, id);
    }
    for (int i = 0; i < n->nargs; i++)
        drop_overrides(m, n->args[i], seen);
}

void module_drop_overrides(Module *m)
{
    bool *seen = arena_alloc(m->arena, (size_t)m->nodes.len + 1);
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int k = 0; k < ROOT_COUNT; k++)
            drop_overrides(m, m->roots.data[t].of[k], seen);
}

/* ---- verifier ---- */

typedef struct Verify { const Module *m; const char *pass; } Verify;

#define REQUIRE(v, cond, ...)                                                                                \
    do {                                                                                                     \
        if (!(cond))                                                                                         \
            bug((v)->m->c, (v)->pass, __VA_ARGS__);                                                          \
    } while (0)

static void verify_shape(const Verify *v, NodeId id, const Node *n)
{
    const Module *m = v->m;
    switch (n->kind) {
    case N_LOAD:
        REQUIRE(v, !n->step || m->tensors.data[n->tensor].kind == T_INPUT ||
                       m->tensors.data[n->tensor].kind == T_DOUT,
                "%%%d reads another step of what has one value", id);
        REQUIRE(v, n->tensor >= 0 && n->tensor < m->tensors.len, "%%%d loads no tensor", id);
        REQUIRE(v, m->tensors.data[n->tensor].kind != T_OUTPUT, "%%%d loads an output", id);
        REQUIRE(v, m->tensors.data[n->tensor].kind != T_HISTORY, "%%%d loads a history by itself", id);
        REQUIRE(v, n->nmap == m->tensors.data[n->tensor].rank, "%%%d: map of %d for rank %d", id, n->nmap,
                m->tensors.data[n->tensor].rank);
        break;
    case N_VIEW:
        REQUIRE(v, !n->step || (m->nodes.data[n->args[0]].dep & DEP_TIME),
                "%%%d reads another step of what does not vary", id);
        REQUIRE(v, n->nargs == 1 && m->nodes.data[n->args[0]].kind == N_ARRAY, "%%%d views no array", id);
        REQUIRE(v, n->nmap == m->nodes.data[n->args[0]].naxes, "%%%d: map of %d", id, n->nmap);
        break;
    case N_MAP:
        REQUIRE(v, n->op < OP_COUNT && n->nargs == op_table[n->op].arity, "%%%d: %d arguments", id, n->nargs);
        break;
    case N_REDUCE:
        REQUIRE(v, n->nargs == 1 && n->nbound > 0, "%%%d reduces nothing", id);
        REQUIRE(v, n->reduce == R_SUM || n->reduce == R_MAX || n->reduce == R_MIN || n->reduce == R_PROD,
                "%%%d: reduction kind %d", id, n->reduce);
        break;
    case N_ARRAY:
        REQUIRE(v, n->nargs == 1, "%%%d holds nothing", id);
        break;
    default:
        break;
    }
}

static void verify_node(const Verify *v, NodeId id)
{
    const Module *m = v->m;
    const Node *n = &m->nodes.data[id];
    for (int i = 0; i < n->nargs; i++)
        REQUIRE(v, n->args[i] >= 0 && n->args[i] < id, "%%%d uses %%%d", id, n->args[i]);
    REQUIRE(v, !n->step || n->past < 0 ||
                   (n->past < m->tensors.len && m->tensors.data[n->past].kind == T_HISTORY),
            "%%%d reads steps of no history", id);
    for (int i = 0; i < n->nbound; i++)
        REQUIRE(v, n->bound[i] >= 0 && n->bound[i] < m->indices.len, "%%%d binds no index", id);
    verify_shape(v, id, n);
    Axes axes;
    Node again = *n;
    node_derive((Module *)(uintptr_t)m, &again, &axes);
    REQUIRE(v, axes.n == n->naxes && same_ids(axes.id, n->axes, axes.n), "%%%d has wrong axes", id);
    REQUIRE(v, again.dep == n->dep && again.type == n->type, "%%%d has wrong dependences or type", id);
    REQUIRE(v, n->has_pole || !again.has_pole, "%%%d has a pole", id);      /* one may be gone with an override */
    for (int i = 0; n->kind == N_ARRAY && i < m->nodes.data[n->args[0]].naxes; i++) {
        bool found = false;
        for (int k = 0; k < n->naxes; k++)
            found |= n->axes[k] == m->nodes.data[n->args[0]].axes[i];
        REQUIRE(v, found, "array %%%d (%s) leaves an axis of its value free", id, n->name ? n->name : "");
    }
}

static void verify_root(const Verify *v, NodeId id, const Tensor *t, const char *what)
{
    if (id < 0)
        return;
    REQUIRE(v, id < v->m->nodes.len, "%s of %s is no node", what, t->name);
    const Node *n = &v->m->nodes.data[id];
    REQUIRE(v, n->kind == N_ARRAY, "%s of %s is not an array", what, t->name);
    REQUIRE(v, n->naxes == t->rank, "%s of %s has %d axes, the tensor %d", what, t->name, n->naxes, t->rank);
    for (int i = 0; i < t->rank; i++)
        REQUIRE(v, v->m->indices.data[n->axes[i]].extent == t->axes[i], "%s of %s: extent of axis %d", what,
                t->name, i);
}

void ir_mark(const Module *m, NodeId id, bool *marked)
{
    if (id < 0 || marked[id])
        return;
    marked[id] = true;
    for (int i = 0; i < m->nodes.data[id].nargs; i++)
        ir_mark(m, m->nodes.data[id].args[i], marked);
}

void ir_verify(const Module *m, const char *pass)
{
    Verify v = { m, pass };
    for (NodeId id = 0; id < m->nodes.len; id++)
        verify_node(&v, id);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        for (int k = 0; k < ROOT_COUNT; k++) {
            verify_root(&v, m->roots.data[t].of[k], x, root_table[k].what);
            NodeId root = m->roots.data[t].of[k];
            TensorId of;
            REQUIRE(&v, root < 0 || (x->kind == root_table[k].of && root_kind(m, root, &of) >= 0),
                    "%s can have no %s", x->name, root_table[k].what);
        }
        REQUIRE(&v, x->kind != T_STATE || (m->roots.data[t].next >= 0) != x->chunk,
                "state %s has %s next value", x->name, x->chunk ? "a" : "no");
        REQUIRE(&v, x->kind != T_OUTPUT || m->roots.data[t].output >= 0, "output %s has no value", x->name);
    }
}

const RootRow root_table[ROOT_COUNT] = {
    [ROOT_OUTPUT] = { "output", T_OUTPUT, "output" },
    [ROOT_NEXT] = { "next", T_STATE, "next state" },
    [ROOT_INIT] = { "init", T_STATE, "initial state" },
    [ROOT_DINPUT] = { "dinput", T_INPUT, "gradient" },
    [ROOT_DPARAM] = { "dparam", T_PARAM, "gradient" },
    [ROOT_DPREV] = { "dprev", T_STATE, "adjoint" },
    [ROOT_DPARAM_INIT] = { "dparam_init", T_PARAM, "gradient through the initial state" },
    [ROOT_DPAST] = { "dpast", T_HISTORY, "gradient of the history" },
    [ROOT_LAST] = { "last", T_HISTORY, "last steps" },
};

/* The roots that a tensor of a kind can have, as root_table says. */
static const struct { int n; RootKind of[3]; } roots_of_kind[T_COTANGENT + 1] = {
    [T_OUTPUT] = { 1, { ROOT_OUTPUT } },
    [T_STATE] = { 3, { ROOT_NEXT, ROOT_INIT, ROOT_DPREV } },
    [T_INPUT] = { 1, { ROOT_DINPUT } },
    [T_PARAM] = { 2, { ROOT_DPARAM, ROOT_DPARAM_INIT } },
    [T_HISTORY] = { 2, { ROOT_DPAST, ROOT_LAST } },
};

RootKind root_kind(const Module *m, NodeId id, TensorId *of)
{
    if (id < 0 || m->nodes.data[id].kind != N_ARRAY)
        return ROOT_NONE;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        TensorKind kind = m->tensors.data[t].kind;
        for (int i = 0; i < roots_of_kind[kind].n; i++)
            if (m->roots.data[t].of[roots_of_kind[kind].of[i]] == id) {
                *of = t;
                return roots_of_kind[kind].of[i];
            }
    }
    return ROOT_NONE;
}
