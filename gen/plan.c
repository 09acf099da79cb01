/* plan.c: the fast path's decisions. In comes a normalised module with its adjoint; out goes, for each
 * direction, when every array is computed (once, before, during or after the walk over time), by which kernel
 * or product, where it lies and what backward finds saved. It is guaranteed that every array is computed
 * before it is read and that nothing is left for the emitters to decide. The reasons are written down for
 * `cellc explain`. */
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "mutate.h"
#include "emit.h"
#include "panel.h"
#include "reads.h"
#include "window.h"
#include "rewrite.h"
#include "scan.h"

static const Node *at(const Plan *p, NodeId id)
{
    return &p->m->nodes.data[id];
}

/* ---- what an array reads ---- */

typedef struct Use { Read read; bool plain; } Use;      /* plain: every map entry is an index of its own */
typedef struct Uses { Use *data; int len, cap; } Uses;

static void collect(const Plan *p, NodeId id, Uses *out, bool *seen)
{
    if (seen[id])
        return;
    seen[id] = true;
    Use u = { .plain = true };
    if (plan_resolve(p, id, &u.read)) {
        u.plain = !u.read.step;
        for (int i = 0; i < u.read.nmap; i++) {
            IndexId which;
            u.plain = u.plain && ix_is_index(u.read.map[i], &which);
        }
        vec_push(p->m->arena, out, u);
        return;
    }
    const Node *n = at(p, id);
    if (n->kind == N_ARRAY || n->kind == N_VIEW) {      /* an alias of a number */
        NodeId array = n->kind == N_VIEW ? n->args[0] : id;
        collect(p, at(p, array)->args[0], out, seen);
        return;
    }
    for (int i = 0; i < n->nargs; i++)
        collect(p, n->args[i], out, seen);
}

static Uses uses_of(const Plan *p, NodeId array)
{
    Uses out = { 0 };
    bool *seen = calloc((size_t)p->m->nodes.len, 1);
    if (!seen)
        bug(p->m->c, "plan", "out of memory");
    collect(p, at(p, array)->args[0], &out, seen);
    free(seen);
    return out;
}

/* ---- rounding: the operands of products in the storage type ---- */

static bool narrow(Dtype t)
{
    return t == DT_BF16 || t == DT_F16;
}

RootKind root_kind(const Module *m, NodeId id, TensorId *of)
{
    if (id < 0 || m->nodes.data[id].kind != N_ARRAY)
        return ROOT_NONE;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const NodeId roots[] = { m->output.data[t], m->next.data[t], m->init.data[t], m->dinput.data[t],
                                 m->dparam.data[t], m->dprev.data[t], m->dparam_init.data[t],
                                 m->dpast.data[t], m->last.data[t] };
        for (int k = 0; k < 9; k++)
            if (roots[k] == id) {
                *of = t;
                return (RootKind)(k + 1);
            }
    }
    return ROOT_NONE;
}

/* Whether an array is kept per sequence and per step. A root is kept as its tensor is, even where it does not
 * vary. */
static unsigned rows_dep(const Plan *p, NodeId id)
{
    TensorId of;
    switch (root_kind(p->m, id, &of)) {
    case ROOT_OUTPUT: case ROOT_NEXT: case ROOT_DINPUT: case ROOT_DPREV: return DEP_BATCH | DEP_TIME;
    case ROOT_INIT: case ROOT_DPAST: case ROOT_LAST: return DEP_BATCH;
    default: return at(p, id)->dep & (DEP_BATCH | DEP_TIME);
    }
}

bool plan_batched(const Plan *p, NodeId array)
{
    return rows_dep(p, array) & DEP_BATCH;
}

bool plan_timed(const Plan *p, NodeId array)
{
    return rows_dep(p, array) & DEP_TIME;
}

static Layout layout_of(Plan *p, const Read *r, bool timed_state)
{
    Module *m = p->m;
    unsigned dep = r->is_tensor ? 0 : rows_dep(p, r->id);
    Layout l = { .pitch = r->is_tensor ? tensor_elements(m, r->id) : array_elements(m, r->id) };
    if (r->is_tensor) {
        TensorKind k = m->tensors.data[r->id].kind;
        l.batched = k != T_PARAM;
        l.timed = (k == T_INPUT && !m->tensors.data[r->id].lengths) || k == T_DOUT || (k == T_STATE && timed_state);
    } else {
        TensorId of;
        l.batched = dep & DEP_BATCH;
        /* ROOT_DPREV is carried by parity of the step. */
        l.timed = (dep & DEP_TIME) && root_kind(m, r->id, &of) != ROOT_DPREV;
    }
    return l;
}

static Dtype type_of_read(const Plan *p, const Read *r)
{
    return r->is_tensor ? p->m->tensors.data[r->id].dtype : p->rounded[r->id] ? p->dtype : p->compute;
}

/* What a product of operands of this type gives (cell_gemm). */
static Dtype product_type(Dtype operand)
{
    return narrow(operand) ? DT_F32 : operand;
}

/* A product takes these from a copy only: states of all steps side by side, and the adjoint of an initial state, which
 * is zero where the call gave that state. */
static bool needs_copy(const Plan *p, const Read *r)
{
    TensorKind k = r->is_tensor ? p->m->tensors.data[r->id].kind : T_INPUT;
    return k == T_STATE || k == T_DINIT;
}

/* Once copies are made: are the operands such as cell_gemm takes, for a result in the type of the arithmetic? */
static bool operands_fit(const Plan *p, const Read *a, const Read *b)
{
    Dtype type = type_of_read(p, a);
    return type == type_of_read(p, b) && product_type(type) == p->compute && !needs_copy(p, a) && !needs_copy(p, b);
}

static bool contraction_of(Plan *p, NodeId array, bool one_step, Gemm *g, NodeId factor[2])
{
    const Node *r = at(p, at(p, array)->args[0]);
    if (r->kind != N_REDUCE || r->reduce != R_SUM)
        return false;
    const Node *mul = at(p, r->args[0]);
    if (mul->kind != N_MAP || mul->op != OP_MUL)
        return false;
    factor[0] = mul->args[0];
    factor[1] = mul->args[1];
    Contraction c = { .one_step = one_step };
    if (!plan_resolve(p, factor[0], &c.a) || !plan_resolve(p, factor[1], &c.b) || c.a.step || c.b.step)
        return false;
    int naxes = at(p, array)->naxes;
    c.c = (Read){ .id = array, .nmap = naxes };
    c.c.map = arena_alloc(p->m->arena, sizeof *c.c.map * (size_t)(naxes + 1));
    for (int i = 0; i < naxes; i++)
        c.c.map[i] = ix_index(p->m, at(p, array)->axes[i]);
    c.lay_a = layout_of(p, &c.a, true);
    c.lay_b = layout_of(p, &c.b, true);
    c.lay_c = layout_of(p, &c.c, true);
    if (!match_gemm(p->m, &c, g))
        return false;
    if (one_step && type_of_read(p, &c.a) != type_of_read(p, &c.b))
        return false;                 /* no copy was made: all steps together are no product */
    if (p->operands_copied && !operands_fit(p, &c.a, &c.b))
        return false;
    bool one_number = g->m->is_const && g->m->value == 1 && g->n->is_const && g->n->value == 1;
    if (one_number && g->batch)
        return false;                 /* a dot product each: a sum of columns or rows does it in one pass */
    bool sums_steps = false;
    for (int i = 0; i < at(p, at(p, array)->args[0])->nbound; i++)
        sums_steps |= at(p, at(p, array)->args[0])->bound[i] < IX_FIRST;
    /* A product pays when one side is the same for all rows; small products per sequence are row
     * reductions. */
    return sums_steps || !c.lay_a.batched || !c.lay_b.batched;
}

static const char *dtype_name(Dtype t)
{
    switch (t) {
    case DT_F32: return "f32";
    case DT_BF16: return "bf16";
    case DT_F16: return "f16";
    case DT_F64: return "f64";
    case DT_I32: return "i32";
    }
    return "?";
}

typedef struct Rounding { Plan *p; Vec(NodeId) copies; Vec(NodeId) of; } Rounding;

static NodeId identity_read(Plan *p, const Read *r, IndexId *axes)
{
    Module *m = p->m;
    const IxExpr *map[64];
    for (int i = 0; i < r->nmap; i++) {
        axes[i] = r->is_tensor ? module_index(m, intern_f(m->c, "c%d", i), m->tensors.data[r->id].axes[i])
                               : at(p, r->id)->axes[i];
        map[i] = ix_index(m, axes[i]);
    }
    return r->is_tensor ? node_load(m, r->id, map, r->nmap) : r->id;
}

static NodeId rounded_copy(Rounding *st, const Read *r);

/* Pieces laid together are rounded piece by piece, so that each producer writes its own in the storage type;
 * a piece of two such arrays is written into both. */
static NodeId rounded_cat(Rounding *st, NodeId array, const Piece *pieces, int n)
{
    Module *m = st->p->m;
    Node a = *at(st->p, array);
    NodeId sum = -1;
    for (int i = 0; i < n; i++) {
        const Node *v = at(st->p, pieces[i].read);
        Node piece = *at(st->p, pieces[i].array);
        Read whole = { .id = pieces[i].array, .nmap = piece.naxes };
        NodeId copy = node_array(m, whole.id, piece.axes, piece.naxes,
                                 intern_f(m->c, "%s.%s.%d", a.name ? a.name : "v",
                                          dtype_name(st->p->dtype), i),
                                 piece.span);
        vec_push(m->arena, &st->copies, copy);
        vec_push(m->arena, &st->of, -1);
        const IxExpr *map[64];
        v = at(st->p, pieces[i].read);
        for (int k = 0; k < whole.nmap; k++)
            map[k] = v->kind == N_VIEW ? v->map[k] : ix_index(m, at(st->p, pieces[i].array)->axes[k]);
        /* The guard of the piece: its range within the whole, or within a row of it. */
        const IxExpr *lin = inner_linear(m, array, pieces[i].lead);
        const Poly *end = poly_add(m, pieces[i].offset, elements_from(m, pieces[i].array, pieces[i].lead));
        NodeId guard = node_map2(m, OP_AND,
                                 node_map2(m, OP_LE, node_size(m, pieces[i].offset), node_index(m, lin)),
                                 node_map2(m, OP_LT, node_index(m, lin), node_size(m, end)));
        NodeId part = node_select(m, guard, node_view(m, copy, map, whole.nmap), node_const(m, 0));
        sum = sum < 0 ? part : node_map2(m, OP_ADD, sum, part);
    }
    const char *name = intern_f(m->c, "%s.%s", a.name ? a.name : "v", dtype_name(st->p->dtype));
    return node_array(m, sum, a.axes, a.naxes, name, a.span);
}

static NodeId rounded_copy(Rounding *st, const Read *r)
{
    Module *m = st->p->m;
    IndexId axes[64];
    NodeId body = identity_read(st->p, r, axes);
    for (int i = 0; i < st->copies.len; i++)
        if (st->of.data[i] == (r->is_tensor ? -2 - r->id : r->id))
            return st->copies.data[i];
    Piece pieces[32];
    int n = r->is_tensor ? 0 : cat_pieces(m, r->id, st->p->schedule != SCHED_TILE, pieces, 32);
    NodeId copy;
    if (n > 1) {
        copy = rounded_cat(st, r->id, pieces, n);
    } else {
        const char *name = r->is_tensor ? m->tensors.data[r->id].name : at(st->p, r->id)->name;
        Span span = r->is_tensor ? m->tensors.data[r->id].span : at(st->p, r->id)->span;
        name = intern_f(m->c, "%s.%s", name ? name : "v", dtype_name(st->p->dtype));
        copy = node_array(m, body, axes, r->nmap, name, span);
    }
    NodeId key = r->is_tensor ? -2 - r->id : r->id;
    vec_push(m->arena, &st->copies, copy);
    vec_push(m->arena, &st->of, key);
    return copy;
}

/* Arguments lie in the storage type already; a state and every intermediate is rounded for the tensor cores
 * when the type says so. A state that a product reads is copied in any type: the product wants the states
 * before each step side by side. So is the adjoint of an initial state. */
static bool wants_copy(const Plan *p, const Read *r)
{
    if (!r->is_tensor)
        return narrow(p->dtype);
    return needs_copy(p, r) || (p->m->tensors.data[r->id].kind == T_DNEXT && narrow(p->dtype));
}

/* A tensor that the spec stores in another type than --dtype: what meets it in a product is not rounded, and where
 * that is stored otherwise, there is no product. */
static bool has_own_type(const Plan *p, const Read *r)
{
    return r->is_tensor && !wants_copy(p, r) && p->m->tensors.data[r->id].dtype != p->dtype;
}

static NodeId hook_round(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    Rounding *st = r->data;
    Plan *p = st->p;
    Module *m = p->m;
    Gemm g;
    NodeId factor[2];
    (void)old;
    (void)whole;
    if (at(p, rebuilt)->kind == N_ARRAY && rebuilt >= p->n_nodes)
        p->is_alias[rebuilt] = alias_candidate(m, rebuilt);
    if (at(p, rebuilt)->kind != N_ARRAY || !contraction_of(p, rebuilt, false, &g, factor))
        return rebuilt;
    Node array = *at(p, rebuilt), reduce = *at(p, array.args[0]);
    bool changed = false;
    Read rd[2];
    plan_resolve(p, factor[0], &rd[0]);
    plan_resolve(p, factor[1], &rd[1]);
    if (has_own_type(p, &rd[0]) || has_own_type(p, &rd[1]))
        return rebuilt;
    for (int k = 0; k < 2; k++) {
        if (!wants_copy(p, &rd[k]))
            continue;
        NodeId copy = rounded_copy(st, &rd[k]);
        factor[k] = node_view(m, copy, rd[k].map, rd[k].nmap);
        changed = true;
    }
    if (!changed)
        return rebuilt;
    NodeId body = node_reduce(m, R_SUM, node_map2(m, OP_MUL, factor[0], factor[1]), reduce.bound,
                              reduce.nbound);
    return node_array(m, body, array.axes, array.naxes, array.name, array.span);
}

/* Aliases are known before any rewriting by their form; grown as nodes are added. */
static void find_aliases(Plan *p, const Rounding *st)
{
    int n = p->m->nodes.len;
    p->n_nodes = n;
    p->is_alias = arena_alloc(p->m->arena, (size_t)n + 1);
    p->rounded = arena_alloc(p->m->arena, (size_t)n + 1);
    p->is_cat = arena_alloc(p->m->arena, (size_t)n + 1);
    p->in_place = arena_alloc(p->m->arena, (size_t)n + 1);
    for (int i = 0; st && i < st->copies.len; i++)
        p->rounded[st->copies.data[i]] = true;
    for (NodeId id = 0; id < n; id++)
        p->is_alias[id] = at(p, id)->kind == N_ARRAY && !p->rounded[id] && alias_candidate(p->m, id);
}

/* A product that goes to a tensor of a type that it cannot be written in is an array of its own, which the tensor is
 * made from. */
static void convert_results(Plan *p)
{
    Module *m = p->m;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        NodeId *roots[] = { &m->output.data[t], &m->dinput.data[t], &m->dparam.data[t], &m->dparam_init.data[t] };
        for (size_t k = 0; k < sizeof roots / sizeof *roots; k++) {
            Gemm g;
            NodeId factor[2], id = *roots[k];
            Read a;
            if (id < 0 || !contraction_of(p, id, false, &g, factor) || !plan_resolve(p, factor[0], &a))
                continue;
            Dtype type = type_of_read(p, &a), wanted = m->tensors.data[t].dtype;
            Node root = *at(p, id);
            if (wanted != type && wanted != product_type(type))
                *roots[k] = node_array(m, id, root.axes, root.naxes, root.name, root.span);
        }
    }
}

static void round_operands(Plan *p)
{
    Rounding st = { .p = p };
    /* Room for what the rewriting adds: a rebuilt array is an alias exactly when its form says so. */
    find_aliases(p, NULL);
    int room = 8 * p->m->nodes.len + 4096;
    bool *alias = arena_alloc(p->m->arena, (size_t)room);
    memcpy(alias, p->is_alias, (size_t)p->n_nodes);
    p->is_alias = alias;
    Rewrite r = { .m = p->m, .hook = hook_round, .data = &st };
    rewrite_roots(&r);
    if (p->m->nodes.len > room)
        bug(p->m->c, "plan", "rounding added too many nodes");
    find_aliases(p, &st);
    p->operands_copied = true;
    int before = p->m->nodes.len;
    convert_results(p);
    if (p->m->nodes.len > before)
        find_aliases(p, &st);
}

/* ---- phases ---- */

typedef struct Phasing {
    Plan *p;
    Program *g;
    const bool *stored;           /* forward arrays that backward finds in memory */
    bool *needed;                 /* per node: an array of this direction */
    bool *feeds;                  /* per node: reaches what is carried */
    bool *replayed;               /* per node: backward's walk computes it once more, for the states (tile) */
    Uses *uses;                   /* per node */
    int state_rank;               /* largest rank of a state */
    bool step_sums;               /* a step has sums that are no products and reach it */
} Phasing;

static bool carried_tensor(const Phasing *s, TensorId t)
{
    TensorKind k = s->p->m->tensors.data[t].kind;
    if (s->g->dir == FORWARD)
        return k == T_STATE;
    return k == T_DNEXT || (k == T_STATE && s->p->schedule == SCHED_TILE);
}

static bool available(const Phasing *s, NodeId array)
{
    return s->g->dir == BACKWARD && s->stored && s->stored[array];
}

static void need_array(Phasing *s, NodeId array, bool feeds)
{
    if (available(s, array))
        return;
    if (s->needed[array] && (s->feeds[array] || !feeds))
        return;
    if (!s->needed[array])
        s->uses[array] = uses_of(s->p, array);
    s->needed[array] = true;
    s->feeds[array] |= feeds;
    for (int i = 0; i < s->uses[array].len; i++)
        if (!s->uses[array].data[i].read.is_tensor)
            need_array(s, s->uses[array].data[i].read.id, feeds);
}

static void replay_array(Phasing *s, NodeId array)
{
    if (available(s, array) || s->replayed[array])
        return;
    s->replayed[array] = true;
    Uses uses = uses_of(s->p, array);
    for (int i = 0; i < uses.len; i++)
        if (!uses.data[i].read.is_tensor)
            replay_array(s, uses.data[i].read.id);
}

/* A gather is one read. */
bool plan_reduces(const Plan *p, NodeId array)
{
    NodeId body = at(p, array)->args[0];
    return at(p, body)->kind == N_REDUCE && !ir_gathers(p->m, body);
}

static bool is_reduction(const Plan *p, NodeId array)
{
    return plan_reduces(p, array);
}

static bool sums_batch(const Plan *p, NodeId array)
{
    const Node *r = at(p, at(p, array)->args[0]);
    for (int i = 0; r->kind == N_REDUCE && i < r->nbound; i++)
        if (r->bound[i] == IX_BATCH)
            return true;
    return false;
}

/* Of a complex state, without the axis of its parts. */
static int rank_of(const Plan *p, TensorId t)
{
    return p->m->tensors.data[t].rank - p->m->tensors.data[t].complex;
}

/* A value of the walk as large as a matrix state: reading it outside the walk would mean storing it at every
 * step. */
static bool reads_matrix(const Phasing *s, const Use *u)
{
    const Plan *p = s->p;
    if (s->state_rank < 2)
        return false;
    if (u->read.is_tensor)
        return carried_tensor(s, u->read.id) && rank_of(p, u->read.id) == s->state_rank;
    return s->g->phase[u->read.id] == PHASE_DURING && at(p, u->read.id)->naxes == s->state_rank;
}

static Phase phase_of(const Phasing *s, NodeId array)
{
    const Plan *p = s->p;
    bool carried = false, after = false, matrix = false, other_step = false, last = false, held = false;
    const Uses *uses = &s->uses[array];
    for (int i = 0; i < uses->len; i++) {
        const Use *u = &uses->data[i];
        bool walks = u->read.is_tensor
                         ? carried_tensor(s, u->read.id)
                         : !available(s, u->read.id) && s->g->phase[u->read.id] == PHASE_DURING;
        carried |= walks;
        other_step |= walks && u->read.step;
        last |= u->read.is_tensor && p->m->tensors.data[u->read.id].kind == T_DHISTORY;
        if (u->read.is_tensor && p->m->tensors.data[u->read.id].kind == T_DINIT)
            after = true;
        after |= !u->read.is_tensor && !available(s, u->read.id) && s->g->phase[u->read.id] == PHASE_AFTER;
        matrix |= reads_matrix(s, u);
        held |= u->read.is_tensor && p->m->tensors.data[u->read.id].kind == T_STATE;
    }
    TensorId of;
    RootKind root = root_kind(p->m, array, &of);
    if ((s->feeds[array] && carried) || root == ROOT_NEXT || root == ROOT_DPREV)
        return PHASE_DURING;
    if (sums_batch(p, array) || after)
        return PHASE_AFTER;
    if (!carried)
        return rows_dep(p, array) && root != ROOT_INIT ? PHASE_BEFORE : PHASE_PARAM;
    if (s->replayed[array])
        return PHASE_DURING;          /* the walk has it, and could not read what is written behind it */
    Gemm g;
    NodeId factor[2];
    if (other_step || last)
        return PHASE_AFTER;           /* the walk has but one step; behind it all of them lie in memory */
    /* Forward on the chip leaves the states before each step to backward only. */
    if (held && p->schedule == SCHED_TILE && s->g->dir == FORWARD)
        return PHASE_DURING;
    bool product = contraction_of((Plan *)(uintptr_t)p, array, false, &g, factor);
    if (p->scan)                      /* a thread's own, or behind the walk from what lies in memory */
        return scan_form(p, array) ? PHASE_DURING : PHASE_AFTER;
    /* Backward by steps, what products and sums read lies in memory for all steps, whatever its size. A sum that has a
     * kernel of its own is one kernel for all of them; others share a step's reads. Forward, inference keeps no steps. */
    bool apart = product || (is_reduction(p, array) && !s->step_sums);
    if (matrix && !(apart && p->schedule != SCHED_TILE && s->g->dir == BACKWARD))
        return PHASE_DURING;
    if (is_reduction(p, array) || product)
        return PHASE_AFTER;
    return PHASE_DURING;
}

static void need_roots(Phasing *s)
{
    Module *m = s->p->m;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        if (s->g->dir == FORWARD) {
            if (m->next.data[t] >= 0)
                need_array(s, m->next.data[t], true);
            if (m->output.data[t] >= 0)
                need_array(s, m->output.data[t], false);
            if (m->last.data[t] >= 0)
                need_array(s, m->last.data[t], false);
        } else {
            const NodeId roots[] = { m->dinput.data[t], m->dparam.data[t], m->dparam_init.data[t],
                                     m->dpast.data[t] };
            if (m->dprev.data[t] >= 0)
                need_array(s, m->dprev.data[t], true);
            for (size_t k = 0; k < sizeof roots / sizeof *roots; k++)
                if (roots[k] >= 0)
                    need_array(s, roots[k], false);
        }
        if (m->init.data[t] >= 0 && s->p->schedule != SCHED_TILE)
            need_array(s, m->init.data[t], false);
        if (m->next.data[t] >= 0 && s->g->dir == BACKWARD && s->p->schedule == SCHED_TILE)
            replay_array(s, m->next.data[t]);
    }
}

static void *per(const Plan *p, size_t bytes, int n)
{
    return arena_alloc(p->m->arena, bytes * (size_t)(n + 1));
}

/* A root has no reader in the walk: does it read what the walk reads anyway? */
static bool reads_with_walk(const Phasing *s, NodeId array)
{
    for (NodeId id = 0; id < s->p->n_nodes; id++) {
        if (!s->needed[id] || s->g->phase[id] != PHASE_DURING)
            continue;
        for (int i = 0; i < s->uses[id].len; i++)
            for (int j = 0; j < s->uses[array].len; j++) {
                const Read *x = &s->uses[id].data[i].read, *y = &s->uses[array].data[j].read;
                if (x->is_tensor == y->is_tensor && x->id == y->id && scan_own(s->p, at(s->p, id)->axes, x))
                    return true;
            }
    }
    return false;
}

static bool scan_may_take(const Phasing *s, NodeId id)
{
    const Plan *p = s->p;
    RootKind root = root_kind(p->m, id, &(TensorId){ 0 });
    bool steps = true;
    for (int i = 0; i < s->uses[id].len; i++)
        steps &= !s->uses[id].data[i].read.step;
    return steps && !p->rounded[id] && !(p->past && p->past[id]) && rows_dep(p, id) == (DEP_BATCH | DEP_TIME) &&
           (root == ROOT_NONE || root == ROOT_OUTPUT || root == ROOT_DINPUT) && scan_form(p, id);
}

/* What is made of one unit's values for the walk alone is made in the walk: it is neither written nor read. Readers
 * stand behind what they read. */
static void take_into_scan(Phasing *s)
{
    enum { IN_WALK = 1, ELSEWHERE = 2 };
    const Plan *p = s->p;
    Phase *phase = s->g->phase;
    char *read = per(p, 1, p->n_nodes);
    s->g->taken = per(p, sizeof *s->g->taken, p->n_nodes);
    for (NodeId id = p->n_nodes - 1; id >= 0; id--) {
        if (!s->needed[id])
            continue;
        bool wanted = read[id] == IN_WALK ||
                      (!read[id] && root_kind(p->m, id, &(TensorId){ 0 }) != ROOT_NONE && phase[id] == PHASE_BEFORE &&
                       reads_with_walk(s, id));
        if (phase[id] == PHASE_BEFORE && wanted && scan_may_take(s, id)) {
            s->g->taken[id] = true;
            phase[id] = PHASE_DURING;
        }
        for (int i = 0; i < s->uses[id].len && phase[id] != PHASE_AFTER; i++) {
            const Read *r = &s->uses[id].data[i].read;
            if (!r->is_tensor)
                read[r->id] |= phase[id] == PHASE_DURING && scan_own(p, at(p, id)->axes, r) ? IN_WALK : ELSEWHERE;
        }
    }
}

/* Has each step sums, other than products, that the next one depends on? */
static bool has_step_sums(const Phasing *s)
{
    Gemm g;
    NodeId factor[2];
    for (NodeId id = 0; id < s->p->n_nodes; id++)
        if (s->needed[id] && s->feeds[id] && is_reduction(s->p, id) &&
            !contraction_of((Plan *)(uintptr_t)s->p, id, true, &g, factor))
            return true;
    return false;
}

static Phasing phasing(Plan *p, Direction dir, const bool *stored)
{
    Program *g = &p->program[dir];
    int n = p->n_nodes;
    Phasing s = { .p = p, .g = g, .stored = stored };
    g->dir = dir;
    g->phase = per(p, sizeof *g->phase, n);
    s.needed = per(p, sizeof *s.needed, n);
    s.feeds = per(p, sizeof *s.feeds, n);
    s.replayed = per(p, sizeof *s.replayed, n);
    s.uses = per(p, sizeof *s.uses, n);
    for (TensorId t = 0; t < p->m->tensors.len; t++)
        if (p->m->tensors.data[t].kind == T_STATE && rank_of(p, t) > s.state_rank)
            s.state_rank = rank_of(p, t);
    need_roots(&s);
    s.step_sums = has_step_sums(&s);
    for (NodeId id = 0; id < n; id++)
        if (s.needed[id])
            g->phase[id] = phase_of(&s, id);
    if (p->scan)
        take_into_scan(&s);
    /* A rounded copy of a value of the walk is written by the walk. */
    for (NodeId id = 0; id < n; id++)
        if (s.needed[id] && p->rounded[id] && g->phase[id] == PHASE_AFTER && s.uses[id].len == 1 &&
            !s.uses[id].data[0].read.is_tensor && g->phase[s.uses[id].data[0].read.id] == PHASE_DURING)
            g->phase[id] = PHASE_DURING;
    return s;
}

/* ---- groups ---- */

static bool same_axes(const Group *g, Module *m, const IndexId *axes, int n)
{
    if (g->naxes != n)
        return false;
    for (int i = 0; i < n; i++)
        if (g->axes[i] != m->indices.data[axes[i]].extent)
            return false;
    return true;
}

static bool rows_agree(const Plan *p, const Group *g, NodeId array)
{
    unsigned dep = rows_dep(p, array);
    return g->batched == ((dep & DEP_BATCH) != 0) && g->timed == ((dep & DEP_TIME) != 0);
}

/* Every read of a value of the group is at the reader's own indices: the first n axes for a row's index. */
static bool reads_own_row(const Plan *p, const Program *pr, int group, NodeId array, const Uses *uses, int n)
{
    const Node *a = at(p, array);
    for (int i = 0; i < uses->len; i++) {
        const Read *r = &uses->data[i].read;
        if (r->is_tensor || pr->group[r->id] != group)
            continue;
        if (r->nmap < n || !uses->data[i].plain)
            return false;
        for (int k = 0; k < n; k++) {
            IndexId which;
            if (!ix_is_index(r->map[k], &which) || which != a->axes[k])
                return false;
        }
    }
    return true;
}

static bool fits_map(const Plan *p, const Program *pr, int group, NodeId array, const Uses *uses)
{
    const Group *g = &pr->groups.data[group];
    return !is_reduction(p, array) && rows_agree(p, g, array) &&
           same_axes(g, p->m, at(p, array)->axes, at(p, array)->naxes) &&
           reads_own_row(p, pr, group, array, uses, g->naxes);
}

/* Elements of a row are printed again where another of its values reads them: is the text short, all in all?
 * A chain of values that each read the one before twice would double in length with every link. */
static bool short_in_row(const Plan *p, const Program *pr, int group, NodeId id, int *left)
{
    const Node *n = at(p, id);
    Read r;
    if (--*left < 0)
        return false;
    if (n->kind != N_MAP && plan_resolve(p, id, &r)) {
        bool again = !r.is_tensor && pr->group[r.id] == group && !is_reduction(p, r.id);
        return !again || short_in_row(p, pr, group, at(p, r.id)->args[0], left);
    }
    for (int i = 0; i < n->nargs; i++)
        if (!short_in_row(p, pr, group, n->args[i], left))
            return false;
    return true;
}

/* Into a row kernel: a reduction to the row's index, or what is pointwise over a row (one more axis at
 * most). */
static bool fits_row(const Plan *p, const Program *pr, int group, NodeId array, const Uses *uses)
{
    const Group *g = &pr->groups.data[group];
    const Node *a = at(p, array);
    if (!rows_agree(p, g, array) || sums_batch(p, array) || a->naxes < g->naxes)
        return false;
    if (is_reduction(p, array) ? a->naxes != g->naxes : a->naxes > g->naxes + 1)
        return false;
    int left = 300;
    if (!same_axes(g, p->m, a->axes, g->naxes) || !reads_own_row(p, pr, group, array, uses, g->naxes) ||
        !short_in_row(p, pr, group, a->args[0], &left))
        return false;
    /* Elements of a row are recomputed or re-read by the thread that owns them: only at the reader's own
     * element. */
    const Node *body = at(p, a->args[0]);
    for (int i = 0; i < uses->len; i++) {
        const Read *r = &uses->data[i].read;
        IndexId which = -1;
        if (r->is_tensor || pr->group[r->id] != group || r->nmap == g->naxes)
            continue;
        ix_is_index(r->map[g->naxes], &which);
        bool own = a->naxes > g->naxes && which == a->axes[g->naxes];
        if (is_reduction(p, array))
            own = body->nbound == 1 && which == body->bound[0];
        if (!own)
            return false;
    }
    return true;
}

/* A sum over batch and time of which every term is added at one place of an axis. */
static bool is_scatter(const Plan *p, NodeId array, int *axis, NodeId *place)
{
    const Node *a = at(p, array), *r = at(p, a->args[0]);
    int found = 0;
    for (int i = 0; sums_batch(p, array) && r->reduce == R_SUM && i < a->naxes; i++) {
        NodeId at_place = ir_pinned(p->m, r->args[0], a->axes[i], a->axes, a->naxes, &(bool){ false });
        if (at_place >= 0 && !found++) {
            *axis = i;
            *place = at_place;
        }
    }
    return found > 0;
}

static Scatter *scatter_of(Plan *p, NodeId array, int axis, NodeId place)
{
    Module *m = p->m;
    const Node *a = at(p, array), *r = at(p, a->args[0]);
    Scatter *s = arena_alloc(m->arena, sizeof *s);
    *s = (Scatter){ .axis = axis, .place = place, .columns = poly_const(m, 1), .inner = poly_const(m, 1) };
    s->rows = m->indices.data[a->axes[axis]].extent;
    for (int i = 0; i < a->naxes; i++)
        if (i != axis)
            s->columns = poly_mul(m, s->columns, m->indices.data[a->axes[i]].extent);
    for (int i = 0; i < r->nbound; i++)
        if (r->bound[i] >= IX_FIRST)
            s->inner = poly_mul(m, s->inner, m->indices.data[r->bound[i]].extent);
    return s;
}

static bool fits_column(const Plan *p, const Program *pr, int group, NodeId array, const Uses *uses)
{
    const Group *g = &pr->groups.data[group];
    const Node *a = at(p, array), *body = at(p, a->args[0]);
    const Node *first = at(p, at(p, g->arrays.data[0])->args[0]);
    if (!sums_batch(p, array) || !same_axes(g, p->m, a->axes, a->naxes) || body->nbound != first->nbound ||
        is_scatter(p, array, &(int){ 0 }, &(NodeId){ 0 }))
        return false;
    for (int i = 0; i < body->nbound; i++)
        if (body->bound[i] != first->bound[i])
            return false;
    for (int i = 0; i < uses->len; i++)
        if (!uses->data[i].read.is_tensor && pr->group[uses->data[i].read.id] == group)
            return false;
    return true;
}

static bool has_read(const Group *g, int key)
{
    for (int i = 0; i < g->reads.len; i++)
        if (g->reads.data[i] == key)
            return true;
    return false;
}

static int read_key(const Read *r)
{
    return r->is_tensor ? ~r->id : r->id;
}

/* A state's next value also goes to the final one and to what the next step's products read. */
static int own_pointers(const Plan *p, NodeId array)
{
    TensorId of;
    return root_kind(p->m, array, &of) == ROOT_NONE ? 1 : 3;
}

/* A kernel takes so many pointers: at most two for a tensor that it reads (a state's initial value lies
 * elsewhere), one for another group's array, and one for each of its own, were it to lie in memory. */
static bool pointers_suffice(const Plan *p, const Program *pr, int group, NodeId array, const Uses *uses)
{
    const Group *g = &pr->groups.data[group];
    int n = own_pointers(p, array);
    for (int i = 0; i < g->arrays.len; i++)
        n += own_pointers(p, g->arrays.data[i]);
    for (int i = 0; i < g->reads.len; i++)
        n += 1 + (g->reads.data[i] < 0);
    for (int i = 0; i < uses->len && n <= MAX_POINTERS; i++) {
        const Read *r = &uses->data[i].read;
        if (!has_read(g, read_key(r)) && (r->is_tensor || pr->group[r->id] != group))
            n += 1 + r->is_tensor;
    }
    return n <= MAX_POINTERS;
}

static bool fits(const Plan *p, const Program *pr, int group, NodeId array, const Uses *uses)
{
    const Group *into = &pr->groups.data[group];
    if (!pointers_suffice(p, pr, group, array, uses))
        return false;
    if (into->past || past_sums(p, array))
        return into->window && past_sums(p, array) && window_joins(p, into, array);
    switch (pr->groups.data[group].kind) {
    case G_MAP: return fits_map(p, pr, group, array, uses);
    case G_ROW: return fits_row(p, pr, group, array, uses);
    case G_COLUMN: return fits_column(p, pr, group, array, uses);
    case G_SCAN: return true;
    default: return false;
    }
}

static Group new_group(Plan *p, const Program *pr, NodeId array)
{
    Module *m = p->m;
    const Node *a = at(p, array);
    NodeId factor[2], place;
    int axis;
    Group g = { .phase = pr->phase[array], .batched = rows_dep(p, array) & DEP_BATCH,
                .timed = rows_dep(p, array) & DEP_TIME, .threads = 256 };
    if (p->scan && g.phase == PHASE_DURING)
        g.kind = G_SCAN;
    else if (contraction_of(p, array, g.phase == PHASE_DURING, &g.gemm, factor))
        g.kind = G_GEMM;
    else if (is_scatter(p, array, &axis, &place))
        g.kind = G_SCATTER;
    else if (sums_batch(p, array))
        g.kind = G_COLUMN;
    else
        g.kind = is_reduction(p, array) ? G_ROW : G_MAP;
    if (g.kind == G_SCATTER)
        g.scatter = scatter_of(p, array, axis, place);
    if (g.kind == G_COLUMN || g.kind == G_SCATTER) {
        const Node *r = at(p, a->args[0]);
        g.batched = true;
        g.timed = false;
        for (int i = 0; i < r->nbound; i++)
            g.timed |= r->bound[i] == IX_TIME;
    }
    g.past = g.kind == G_ROW && past_sums(p, array);
    g.naxes = g.past ? past_rows(p, array) : g.kind == G_SCAN ? p->scan->naxes : a->naxes;
    Window w;
    if (g.past && g.phase != PHASE_DURING && window_build(p, &array, 1, &w)) {
        g.window = arena_alloc(m->arena, sizeof *g.window);
        *g.window = w;
        g.naxes = w.naxes;
    }
    g.axes = per(p, sizeof *g.axes, a->naxes);
    for (int i = 0; i < g.naxes; i++)
        g.axes[i] = m->indices.data[a->axes[i]].extent;
    return g;
}

static void into_group(Plan *p, Program *pr, int group, NodeId array, const Uses *uses)
{
    Group *g = &pr->groups.data[group];
    vec_push(p->m->arena, &g->arrays, array);
    if (g->window)
        window_build(p, g->arrays.data, g->arrays.len, g->window);
    pr->group[array] = group;
    for (int i = 0; i < uses->len; i++) {
        const Read *r = &uses->data[i].read;
        if (!has_read(g, read_key(r)) && (r->is_tensor || pr->group[r->id] != group))
            vec_push(p->m->arena, &g->reads, read_key(r));
    }
}

/* The earliest group of this phase, from `first` on, that may hold the array: behind everything it reads, and
 * fitting. */
static void place_array(Plan *p, Program *pr, NodeId array, const Uses *uses, int first)
{
    for (int i = 0; i < uses->len; i++) {
        const Read *r = &uses->data[i].read;
        if (r->is_tensor)
            continue;
        int g = pr->group[r->id];
        if (g < 0)
            continue;
        bool joins = pr->groups.data[g].phase == pr->phase[array] && fits(p, pr, g, array, uses);
        int after = joins ? g : g + 1;
        first = after > first ? after : first;
    }
    for (int g = first; g < pr->groups.len; g++)
        if (pr->groups.data[g].phase == pr->phase[array] && fits(p, pr, g, array, uses)) {
            into_group(p, pr, g, array, uses);
            return;
        }
    Group g = new_group(p, pr, array);
    vec_push(p->m->arena, &pr->groups, g);
    into_group(p, pr, pr->groups.len - 1, array, uses);
}

static bool is_root(const Module *m, NodeId id)
{
    TensorId of;
    return root_kind(m, id, &of) != ROOT_NONE;
}

/* Few sums of values that lie in memory: as cheap to compute as to read. */
static bool cheap_sum(const Plan *p, NodeId id, int depth)
{
    const Node *n = at(p, id);
    Read r;
    if (depth == 0)
        return false;
    if (n->kind == N_CONST || n->kind == N_SIZE)
        return true;
    if (n->kind == N_LOAD)
        return true;
    if (plan_resolve(p, id, &r))
        return r.is_tensor || is_reduction(p, r.id);
    return n->kind == N_MAP && (n->op == OP_ADD || n->op == OP_SUB) && cheap_sum(p, n->args[0], depth - 1) &&
           cheap_sum(p, n->args[1], depth - 1);
}

/* Is a value's text short, with all that would be printed in its place? A chain of values that each read the
 * one before twice would double in length with every link. */
static bool short_text(const Plan *p, const Program *pr, NodeId id, int *left)
{
    const Node *n = at(p, id);
    Read r;
    if (--*left < 0)
        return false;
    if (n->kind != N_MAP && plan_resolve(p, id, &r)) {
        bool in_place = !r.is_tensor && pr->phase[r.id] == PHASE_PARAM && !is_reduction(p, r.id);
        return !in_place || short_text(p, pr, at(p, r.id)->args[0], left);
    }
    for (int i = 0; i < n->nargs; i++)
        if (!short_text(p, pr, n->args[i], left))
            return false;
    return true;
}

/* Param-only pointwise values are recomputed where they are used: cheaper than a kernel of their own. So are
 * short sums around products (a gate's stacked pre-activations), of which each reader takes a slice. */
static bool printed_inline(const Plan *p, const Program *pr, NodeId id)
{
    if (is_root(p->m, id) || p->rounded[id])
        return false;
    if (p->past && p->past[id])
        return true;
    if (p->schedule != SCHED_TILE && pr->dir == FORWARD && !is_reduction(p, id) && !p->is_cat[id] &&
        cheap_sum(p, at(p, id)->args[0], 4))
        return true;
    int left = 64;
    return p->is_alias[id] || p->in_place[id] ||
           (pr->phase[id] == PHASE_PARAM && !is_reduction(p, id) &&
            short_text(p, pr, at(p, id)->args[0], &left));
}

/* Arrays that a product reads or writes keep rows of their own. */
static bool *product_operands(Plan *p, const Phasing *s)
{
    bool *in = per(p, 1, p->n_nodes);
    for (NodeId id = 0; id < p->n_nodes; id++) {
        Gemm g;
        NodeId factor[2];
        if (!s->needed[id] || !contraction_of(p, id, s->g->phase[id] == PHASE_DURING, &g, factor))
            continue;
        in[id] = true;
        for (int i = 0; i < s->uses[id].len; i++)
            if (!s->uses[id].data[i].read.is_tensor)
                in[s->uses[id].data[i].read.id] = true;
    }
    return in;
}

static void mark_cats(Plan *p, const Phasing *s)
{
    const bool *product = product_operands(p, s);
    for (NodeId id = 0; id < p->n_nodes; id++) {
        Piece pieces[32];
        if (!s->needed[id] || p->is_alias[id] || is_root(p->m, id) || p->is_cat[id] || (p->past && p->past[id]))
            continue;
        int n = cat_pieces(p->m, id, p->schedule != SCHED_TILE, pieces, 32);
        bool ok = n > 1;
        for (int i = 0; i < n && ok; i++)
            ok = !product[pieces[i].array] && !(p->past && p->past[pieces[i].array]) && !p->is_alias[pieces[i].array] &&
                 !is_root(p->m, pieces[i].array) && !p->is_cat[pieces[i].array] &&
                 s->needed[pieces[i].array] && p->program[s->g->dir].node[pieces[i].array].home == HOME_NONE;
        if (!ok) {
            /* Pieces that lie elsewhere: whoever reads the whole reads them where they are. */
            p->in_place[id] = n > 1 && s->g->dir == BACKWARD && !p->rounded[id] && !product[id];
            continue;
        }
        p->is_cat[id] = true;
        for (int i = 0; i < n; i++) {
            Storage *st = &p->program[s->g->dir].node[pieces[i].array];
            st->home = HOME_WORKSPACE;
            st->slot = -2 - id;       /* the cat's buffer, set when that is made */
            st->pitch = array_elements(p->m, id);
            st->alias_offset = pieces[i].offset;
            st->lead = pieces[i].lead;
            st->row = elements_from(p->m, id, pieces[i].lead);
        }
    }
}

/* What backward computes again as a short sum of what lies in memory, for the steps alone: each of them reads a part of
 * it at most, so the whole is neither written nor read. */
static void mark_short_sums(Plan *p, const Phasing *s)
{
    const bool *product = product_operands(p, s);
    bool *other = per(p, 1, p->n_nodes);
    for (NodeId id = 0; id < p->n_nodes; id++)
        for (int i = 0; s->needed[id] && i < s->uses[id].len; i++)
            if (!s->uses[id].data[i].read.is_tensor &&
                (s->g->phase[id] != PHASE_DURING || is_reduction(p, id) || s->uses[id].data[i].read.step))
                other[s->uses[id].data[i].read.id] = true;
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (s->g->dir == BACKWARD && p->schedule != SCHED_TILE && s->needed[id] && !is_root(p->m, id) &&
            s->g->phase[id] == PHASE_BEFORE && !p->is_alias[id] && !p->is_cat[id] && !p->rounded[id] && !other[id] &&
            !product[id] && !is_reduction(p, id) && cheap_sum(p, at(p, id)->args[0], 4))
            p->in_place[id] = true;
}

/* The copy of a state that products read is written along with the state itself. */
static bool copies_state(const Plan *p, NodeId id)
{
    const Node *body = at(p, at(p, id)->args[0]);
    return p->rounded[id] && body->kind == N_LOAD && p->m->tensors.data[body->tensor].kind == T_STATE;
}

static void place_with_uses(Plan *p, Program *pr, const Phasing *s, NodeId id, int first)
{
    Uses uses = { 0 };
    for (int i = 0; i < s->uses[id].len; i++)
        vec_push(p->m->arena, &uses, s->uses[id].data[i]);
    /* Through what is printed inline and through pieces laid together. */
    for (int i = 0; i < uses.len; i++) {
        NodeId r = uses.data[i].read.id;
        if (uses.data[i].read.is_tensor || pr->group[r] >= 0 || !s->needed[r])
            continue;
        if (p->is_cat[r] || printed_inline(p, pr, r))
            for (int j = 0; j < s->uses[r].len; j++) {
                Use u = s->uses[r].data[j];
                u.plain = false;
                vec_push(p->m->arena, &uses, u);
            }
    }
    place_array(p, pr, id, &uses, first);
}

static void make_groups(Plan *p, const Phasing *s)
{
    Program *pr = &p->program[s->g->dir];
    static const Phase order[] = { PHASE_PARAM, PHASE_BEFORE, PHASE_DURING, PHASE_AFTER };
    pr->group = per(p, sizeof *pr->group, p->n_nodes);
    for (NodeId id = 0; id <= p->n_nodes; id++)
        pr->group[id] = -1;
    /* What params get through initial values is added to their gradients: behind all that gives those. */
    for (int last = 0; last < 2; last++) {
        int first = last ? pr->groups.len : 0;
        for (int k = 0; k < 4; k++)
            for (NodeId id = 0; id < p->n_nodes; id++) {
                if (!s->needed[id] || pr->phase[id] != order[k] || printed_inline(p, pr, id) || p->is_cat[id])
                    continue;
                RootKind root = root_kind(p->m, id, &(TensorId){ 0 });
                if (copies_state(p, id) || ((root == ROOT_INIT || root == ROOT_LAST) && pr->dir == FORWARD))
                    continue;         /* written along with the states */
                if (order[k] == PHASE_DURING && p->schedule == SCHED_TILE)
                    continue;
                if ((root == ROOT_DPARAM_INIT) == (last == 1))
                    place_with_uses(p, pr, s, id, first);
            }
    }
}

/* ---- sums of columns with the rows that they read ---- */

/* All loops of a row kernel run over this extent, and rows are those of batch and time; or it is one loop. */
static bool row_extent_is(const Plan *p, const Group *g, const Poly *extent)
{
    if (g->kind == G_MAP)
        return g->naxes == 1 && g->axes[0] == extent && g->batched && g->phase != PHASE_DURING &&
               !(extent->is_const && extent->value < 256);
    if (g->kind != G_ROW || g->past || g->naxes || !g->batched || g->phase == PHASE_DURING || g->sums)
        return false;
    for (int i = 0; i < g->arrays.len; i++) {
        const Node *a = at(p, g->arrays.data[i]), *r = at(p, a->args[0]);
        bool reduces = is_reduction(p, g->arrays.data[i]);
        if (reduces && (r->nbound != 1 || p->m->indices.data[r->bound[0]].extent != extent))
            return false;
        if (!reduces && a->naxes && p->m->indices.data[a->axes[0]].extent != extent)
            return false;
    }
    return true;
}

/* Is everything that the sums read there when the row kernel runs, or computed by it at the same element? */
static bool row_has(const Plan *p, const Phasing *s, NodeId sum, const Uses *uses, int row)
{
    const Program *pr = s->g;
    for (int i = 0; i < uses->len; i++) {
        const Read *r = &uses->data[i].read;
        IndexId which = -1;
        if (r->step)
            return false;
        if (r->is_tensor && (carried_tensor(s, r->id) || p->m->tensors.data[r->id].kind == T_STATE ||
                             p->m->tensors.data[r->id].kind == T_DINIT))
            return false;
        if (r->is_tensor || available(s, r->id))
            continue;
        if (pr->group[r->id] < 0) {
            if (p->is_cat[r->id] || !row_has(p, s, sum, &s->uses[r->id], row))
                return false;
            continue;
        }
        if (pr->group[r->id] == row && r->nmap)
            ix_is_index(r->map[0], &which);
        if (pr->group[r->id] > row ||
            (pr->group[r->id] == row && r->nmap && (r->nmap > 1 || which != at(p, sum)->axes[0])))
            return false;
    }
    return true;
}

static bool reads_in_common(const Phasing *s, const Uses *a, const Uses *b)
{
    (void)s;
    for (int i = 0; i < a->len; i++)
        for (int j = 0; j < b->len; j++) {
            const Read *x = &a->data[i].read, *y = &b->data[j].read;
            if (x->nmap == 1 && x->is_tensor == y->is_tensor && x->id == y->id)
                return true;
        }
    return false;
}

static bool reads_array(const Uses *uses, NodeId id)
{
    for (int i = 0; i < uses->len; i++)
        if (!uses->data[i].read.is_tensor && uses->data[i].read.id == id)
            return true;
    return false;
}

static bool sums_go_with(const Plan *p, const Phasing *s, const Group *sums, int row)
{
    const Group *g = &s->g->groups.data[row];
    bool shares = false;
    if (sums->batched != g->batched || sums->timed != g->timed || !row_extent_is(p, g, sums->axes[0]))
        return false;
    for (int i = 0; i < sums->arrays.len; i++) {
        NodeId id = sums->arrays.data[i];
        const Node *r = at(p, at(p, id)->args[0]);
        for (int k = 0; k < r->nbound; k++)
            if (r->bound[k] >= IX_FIRST)
                return false;
        if (!row_has(p, s, id, &s->uses[id], row))
            return false;
        for (int j = 0; j < g->arrays.len; j++)
            shares |= reads_in_common(s, &s->uses[id], &s->uses[g->arrays.data[j]]) ||
                      reads_array(&s->uses[id], g->arrays.data[j]);
    }
    return shares;
}

/* Sums over batch and time of what the walk of all steps has are that walk's. */
static void join_walk(Plan *p, Program *pr)
{
    int walk = 0;
    while (walk < pr->groups.len && pr->groups.data[walk].kind != G_SCAN)
        walk++;
    for (int c = walk + 1; c < pr->groups.len; c++) {
        Group *sums = &pr->groups.data[c];
        bool all = sums->kind == G_COLUMN;
        for (int i = 0; i < sums->arrays.len && all; i++)
            all = scan_sums(p, pr, sums->arrays.data[i]);
        if (all)
            sums->by_rows = 1 + walk;
    }
}

/* Sums over rows of what a row kernel reads anyway are that kernel's: one pass over memory instead of two. Its
 * block takes many rows, and a thread keeps the sums of its columns. */
static void join_columns(Plan *p, const Phasing *s)
{
    Program *pr = s->g;
    if (p->scan)
        join_walk(p, pr);
    int wide = p->dtype == DT_F64 ? 2 : p->dtype == DT_F32 ? 4 : 8;
    for (int c = 0; c < pr->groups.len; c++) {
        Group *sums = &pr->groups.data[c];
        if (sums->kind != G_COLUMN || sums->by_rows || sums->naxes != 1 ||
            (sums->axes[0]->is_const && sums->axes[0]->value % wide))
            continue;
        for (int r = 0; r < c && !sums->by_rows; r++)
            if (sums_go_with(p, s, sums, r)) {
                Group *row = &pr->groups.data[r];
                row->pointwise = row->kind == G_MAP;
                row->kind = G_ROW;
                row->naxes = 0;
                sums->by_rows = 1 + r;
                row->sums = 1 + c;
            }
    }
}

/* The group whose kernel computes an array's elements or terms; -1: none. */
static int kernel_of(const Program *pr, NodeId id)
{
    int g = pr->group[id];
    return g >= 0 && pr->groups.data[g].by_rows ? pr->groups.data[g].by_rows - 1 : g;
}

/* ---- where values lie ---- */

static int add_buffer(Plan *p, const char *name, Dtype dtype, const Poly *elements, bool reserve,
                      bool inference)
{
    Buffer b = { .name = name, .dtype = dtype, .elements = elements, .reserve = reserve,
                 .inference = inference };
    vec_push(p->m->arena, &p->buffers, b);
    return p->buffers.len - 1;
}

static const Poly *rows_of(Plan *p, bool batched, bool timed)
{
    Module *m = p->m;
    const Poly *n = batched ? poly_dim(m, ATOM_B) : poly_const(m, 1);
    return timed ? poly_mul(m, n, poly_dim(m, ATOM_T)) : n;
}

static Dtype type_of_array(const Plan *p, NodeId id)
{
    return p->rounded[id] ? p->dtype : p->compute;
}

static void give_storage(Plan *p, Program *pr, NodeId id, bool reserve, bool inference)
{
    Storage *st = &pr->node[id];
    unsigned dep = rows_dep(p, id);
    if (st->home != HOME_NONE && st->slot >= 0) {
        p->buffers.data[st->slot].inference |= inference;
        return;
    }
    st->batched = dep & DEP_BATCH;
    st->timed = dep & DEP_TIME;
    if (mutate("wrong-hoist") && pr->phase[id] == PHASE_BEFORE && !is_reduction(p, id))
        st->timed = false;
    st->dtype = type_of_array(p, id);
    if (st->home != HOME_NONE)
        return;                       /* a piece: its whole gets the buffer */
    st->home = reserve ? HOME_RESERVE : HOME_WORKSPACE;
    const Poly *n = poly_mul(p->m, rows_of(p, st->batched, st->timed), array_elements(p->m, id));
    const char *name = at(p, id)->name ? at(p, id)->name : intern_f(p->m->c, "v%d", id);
    st->slot = add_buffer(p, name, st->dtype, n, reserve, inference);
}

/* Storage of everything that another kernel reads. */
static void store_read_values(Plan *p, const Phasing *s, bool *wanted)
{
    Program *pr = &p->program[s->g->dir];
    for (NodeId id = 0; id < p->n_nodes; id++) {
        if (!s->needed[id] || (p->is_alias[id] && !is_root(p->m, id)))
            continue;
        bool reader_in_walk = pr->phase[id] == PHASE_DURING && p->schedule == SCHED_TILE;
        for (int i = 0; i < s->uses[id].len; i++) {
            const Read *r = &s->uses[id].data[i].read;
            if (r->is_tensor)
                continue;
            if (available(s, r->id)) {
                wanted[r->id] = true;
                continue;
            }
            bool same = pr->group[id] >= 0 && kernel_of(pr, id) == pr->group[r->id];
            bool read_in_walk = pr->phase[r->id] == PHASE_DURING && p->schedule == SCHED_TILE;
            if (same || (reader_in_walk && read_in_walk) || printed_inline(p, pr, r->id) || p->is_cat[id])
                continue;
            give_storage(p, pr, r->id, false, true);
        }
    }
}

static void finish_cats(Plan *p, Program *pr)
{
    for (NodeId id = 0; id < p->n_nodes; id++) {
        Storage *st = &pr->node[id];
        if (st->home == HOME_NONE || st->slot >= 0)
            continue;
        NodeId whole = -2 - st->slot;
        unsigned dep = at(p, id)->dep;
        give_storage(p, pr, whole, false, true);
        const Storage *w = &pr->node[whole];
        *st = (Storage){ .home = w->home, .slot = w->slot, .batched = dep & DEP_BATCH,
                         .timed = dep & DEP_TIME, .dtype = type_of_array(p, id), .pitch = st->pitch,
                         .alias_offset = st->alias_offset, .lead = st->lead, .row = st->row };
        p->buffers.data[w->slot].dtype = st->dtype;
        pr->node[whole].dtype = st->dtype;
    }
}

/* A learned initial state passes its adjoint on to params. */
static bool uses_dinit(const Plan *p, TensorId state)
{
    for (TensorId t = 0; t < p->m->tensors.len; t++)
        if (p->m->tensors.data[t].kind == T_DINIT && p->m->tensors.data[t].of == state)
            return true;
    return false;
}

/* The states before each step, which products read, and what steps carries. */
static void carry_storage(Plan *p)
{
    Module *m = p->m;
    const Poly *b = poly_dim(m, ATOM_B), *bt = rows_of(p, true, true);
    for (int d = 0; d < 2; d++) {
        Program *pr = &p->program[d];
        pr->initial = per(p, sizeof(int), m->tensors.len);
        pr->carry = per(p, sizeof(int), m->tensors.len);
        pr->before = per(p, sizeof(int), m->tensors.len);
        pr->checkpoint = per(p, sizeof(int), m->tensors.len);
        for (TensorId t = 0; t <= m->tensors.len; t++)
            pr->initial[t] = pr->carry[t] = pr->before[t] = pr->checkpoint[t] = -1;
    }
    for (TensorId t = 0; t < m->tensors.len; t++) {
        if (m->tensors.data[t].kind != T_STATE)
            continue;
        const char *name = m->tensors.data[t].name;
        const Poly *n = tensor_elements(m, t);
        Program *f = &p->program[FORWARD], *bw = &p->program[BACKWARD];
        if (p->schedule == SCHED_TILE) {
            f->checkpoint[t] = bw->checkpoint[t] =
                add_buffer(p, intern_f(m->c, "%s checkpoints", name), p->compute, poly_mul(m, b, n), true,
                           false);
            p->buffers.data[f->checkpoint[t]].per_steps = p->interval;
            if (uses_dinit(p, t))
                bw->carry[t] = add_buffer(p, intern_f(m->c, "d_%s0", name), p->compute, poly_mul(m, b, n),
                                          false, true);
            continue;
        }
        f->initial[t] = bw->initial[t] =
            add_buffer(p, intern_f(m->c, "%s0", name), p->compute, poly_mul(m, b, n), true, true);
        bw->carry[t] = add_buffer(p, intern_f(m->c, "d_%s carried", name), p->compute,
                                  poly_mul(m, poly_const(m, 2), poly_mul(m, b, n)), false, true);
    }
    for (NodeId id = 0; id < p->n_nodes; id++) {
        const Node *body = at(p, id)->kind == N_ARRAY ? at(p, at(p, id)->args[0]) : NULL;
        if (!body || !p->rounded[id] || body->kind != N_LOAD || m->tensors.data[body->tensor].kind != T_STATE)
            continue;
        TensorId t = body->tensor;
        Program *f = &p->program[FORWARD], *bw = &p->program[BACKWARD];
        if (p->schedule == SCHED_TILE || (f->phase[id] == PHASE_NONE && bw->phase[id] == PHASE_NONE))
            continue;
        if (f->before[t] < 0)
            f->before[t] = bw->before[t] =
                add_buffer(p, intern_f(m->c, "%s before each step", m->tensors.data[t].name), p->dtype,
                           poly_mul(m, bt, tensor_elements(m, t)), true, true);
        for (int d = 0; d < 2; d++)
            p->program[d].node[id] = (Storage){ .home = HOME_RESERVE, .slot = f->before[t], .batched = true,
                                                .timed = true, .dtype = p->dtype };
    }
}

static void tensor_storage(Plan *p, Program *pr)
{
    Module *m = p->m;
    CallArgs args = pr->dir == FORWARD ? forward_arguments(m) : backward_arguments(m);
    pr->tensor = per(p, sizeof *pr->tensor, m->tensors.len);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        Storage *st = &pr->tensor[t];
        int arg = -1;
        if (x->kind == T_INPUT || x->kind == T_PARAM)
            arg = call_arg_find(&args, t, ROLE_VALUE);
        else if (x->kind == T_DOUT)
            arg = call_arg_find(&args, x->of, ROLE_D_OUT);
        else if (x->kind == T_HISTORY)
            arg = call_arg_find(&args, t, ROLE_VALUE);
        else if (x->kind == T_DHISTORY)
            arg = call_arg_find(&args, x->of, ROLE_D_FINAL);
        if (arg < 0)
            continue;
        bool rows = (x->kind == T_INPUT && !x->lengths) || x->kind == T_DOUT;
        *st = (Storage){ .home = HOME_ARG, .arg = arg, .batched = x->kind != T_PARAM,
                         .timed = rows, .dtype = x->dtype };
    }
}

/* ---- which gradients an operation is for ---- */

static void want(Plan *p, Wanted *w, int arg)
{
    int at = 0;
    while (at < w->len && w->data[at] < arg)
        at++;
    if (at < w->len && w->data[at] == arg)
        return;
    vec_push(p->m->arena, w, arg);
    for (int i = w->len - 1; i > at; i--)
        w->data[i] = w->data[i - 1];
    w->data[at] = arg;
}

static void need_root(Plan *p, const Phasing *s, NodeId id, int arg, bool *seen)
{
    Program *pr = &p->program[s->g->dir];
    if (seen[id] || available(s, id))
        return;
    seen[id] = true;
    if (pr->group[id] >= 0) {
        Group *g = &pr->groups.data[pr->group[id]];
        if (arg < 0)
            g->always = true;
        else
            want(p, &g->need, arg);
    }
    if (arg >= 0)
        want(p, &pr->wanted[id], arg);
    if (arg >= 0 && pr->phase[id] == PHASE_DURING)
        want(p, &pr->walk, arg);
    for (int i = 0; i < s->uses[id].len; i++) {
        const Read *r = &s->uses[id].data[i].read;
        if (!r->is_tensor)
            need_root(p, s, r->id, arg, seen);
        else if (arg >= 0 && p->m->tensors.data[r->id].kind == T_DINIT)
            want(p, &pr->walk, arg);
    }
}

static bool *nothing_seen(const Plan *p)
{
    bool *seen = calloc((size_t)p->n_nodes + 1, 1);
    if (!seen)
        bug(p->m->c, "plan", "out of memory");
    return seen;
}

/* A gradient of an input that is a product of the step: it is for that input alone, and a product, other than
 * a kernel, cannot leave out a result that has no place. */
static bool own_product(const Plan *p, const Phasing *s, NodeId id)
{
    TensorId of;
    const Program *pr = &p->program[s->g->dir];
    return !s->feeds[id] && root_kind(p->m, id, &of) == ROOT_DINPUT && pr->group[id] >= 0 &&
           pr->groups.data[pr->group[id]].kind == G_GEMM;
}

/* What the walk computes, with all that it reads, for its replay too: for the argument, or (-1) always. */
static void need_walk(Plan *p, const Phasing *s, int arg, bool carried)
{
    bool *seen = nothing_seen(p);
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (s->needed[id] &&
            (s->replayed[id] || (s->g->phase[id] == PHASE_DURING && (s->feeds[id] || !carried))) &&
            !own_product(p, s, id))
            need_root(p, s, id, arg, seen);
    free(seen);
}

/* The walk carries adjoints for whoever reads its results. In one kernel (tile) the rest of its step is each
 * for its own; a loop of kernels (steps) is one piece. */
static void find_needs(Plan *p, const Phasing *s)
{
    Module *m = p->m;
    CallArgs args = backward_arguments(m);
    Program *pr = &p->program[s->g->dir];
    if (s->g->dir == FORWARD)
        return;
    pr->wanted = per(p, sizeof *pr->wanted, p->n_nodes);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const NodeId roots[] = { m->dinput.data[t], m->dparam.data[t], m->dparam_init.data[t], m->dpast.data[t] };
        for (int k = 0; k < 4; k++) {
            if (roots[k] < 0)
                continue;
            bool *seen = nothing_seen(p);
            need_root(p, s, roots[k], call_arg_find(&args, t, ROLE_D_VALUE), seen);
            free(seen);
        }
        if (m->dprev.data[t] >= 0)
            want(p, &pr->walk, call_arg_find(&args, t, ROLE_D_VALUE));
    }
    if (p->schedule != SCHED_TILE)
        need_walk(p, s, -1, false);
    for (int i = 0; i < pr->walk.len && p->schedule == SCHED_TILE; i++)
        need_walk(p, s, pr->walk.data[i], true);
    for (int i = 0; i < pr->groups.len; i++) {
        const Group *sums = &pr->groups.data[i];
        Group *row = sums->by_rows ? &pr->groups.data[sums->by_rows - 1] : NULL;
        for (int k = 0; row && k < sums->need.len; k++)
            want(p, &row->need, sums->need.data[k]);
        if (row)
            row->always |= sums->always;
    }
}

/* ---- roots ---- */

/* A root that other arrays read gets a copy as the root, so that a root is only ever written. */
static NodeId split_root(Plan *p, NodeId root, const bool *read)
{
    if (root < 0 || !read[root])
        return root;
    Node n = *at(p, root);
    return node_array(p->m, root, n.axes, n.naxes, n.name, n.span);
}

static void mark_reads(const Plan *p, NodeId id, bool *seen, bool *read)
{
    if (id < 0 || seen[id])
        return;
    seen[id] = true;
    for (int i = 0; i < at(p, id)->nargs; i++) {
        NodeId a = at(p, id)->args[i];
        if (at(p, a)->kind == N_ARRAY)
            read[a] = true;
        mark_reads(p, a, seen, read);
    }
}

static void split_roots(Plan *p)
{
    Module *m = p->m;
    int n = m->nodes.len;
    bool *seen = per(p, 1, n), *read = per(p, 1, n);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const NodeId roots[] = { m->output.data[t], m->next.data[t], m->init.data[t], m->dinput.data[t],
                                 m->dparam.data[t], m->dprev.data[t], m->dparam_init.data[t],
                                 m->dpast.data[t], m->last.data[t] };
        for (int k = 0; k < 9; k++)
            mark_reads(p, roots[k], seen, read);
    }
    for (TensorId t = 0; t < m->tensors.len; t++) {
        m->output.data[t] = split_root(p, m->output.data[t], read);
        if (m->next.data[t] >= 0 && is_reduction(p, m->next.data[t])) {
            read[m->next.data[t]] = true;
            m->next.data[t] = split_root(p, m->next.data[t], read);
        }
        m->dinput.data[t] = split_root(p, m->dinput.data[t], read);
        m->dparam.data[t] = split_root(p, m->dparam.data[t], read);
        m->dprev.data[t] = split_root(p, m->dprev.data[t], read);
        m->dparam_init.data[t] = split_root(p, m->dparam_init.data[t], read);
        m->dpast.data[t] = split_root(p, m->dpast.data[t], read);
    }
}

/* Roots that are arguments of the call lie there. */
static void root_storage(Plan *p, Program *pr)
{
    Module *m = p->m;
    CallArgs args = pr->dir == FORWARD ? forward_arguments(m) : backward_arguments(m);
    for (NodeId id = 0; id < p->n_nodes; id++) {
        TensorId of;
        RootKind k = at(p, id)->kind == N_ARRAY ? root_kind(m, id, &of) : ROOT_NONE;
        bool forward = k == ROOT_OUTPUT, backward = k == ROOT_DINPUT || k == ROOT_DPARAM ||
                       k == ROOT_DPARAM_INIT || k == ROOT_DPAST;
        if (!(pr->dir == FORWARD ? forward : backward))
            continue;
        int arg = call_arg_find(&args, of, ROLE_VALUE);
        if (backward)
            arg = call_arg_find(&args, of, ROLE_D_VALUE);
        unsigned dep = rows_dep(p, id);
        pr->node[id] = (Storage){ .home = HOME_ARG, .arg = arg, .batched = dep & DEP_BATCH,
                                  .timed = dep & DEP_TIME, .dtype = m->tensors.data[of].dtype };
    }
}

/* ---- the whole ---- */

static const Poly *coefficient(const IxExpr *e, IndexId i)
{
    for (int k = 0; k < e->nterms; k++)
        if (e->terms[k].kind == IA_INDEX && e->terms[k].index == i)
            return e->terms[k].coef;
    return NULL;
}

/* Sums along an axis whose elements lie apart, of rows that lie side by side: a warp that has 32 of these rows reads
 * neighbours at every step of its share of the sums. */
static bool rows_are_neighbours(Plan *p, const Group *g)
{
    bool strided = false;
    if (g->naxes == 0 || !g->batched || g->sums)
        return false;
    for (int i = 0; i < g->arrays.len; i++) {
        const Node *a = at(p, g->arrays.data[i]), *r = at(p, a->args[0]);
        Uses uses = uses_of(p, g->arrays.data[i]);
        if (a->naxes != g->naxes)
            return false;
        for (int j = 0; is_reduction(p, g->arrays.data[i]) && j < uses.len; j++) {
            const IxExpr *e = read_linear(p->m, &uses.data[j].read);
            const Poly *row = coefficient(e, a->axes[a->naxes - 1]), *along = coefficient(e, r->bound[r->nbound - 1]);
            if (uses.data[j].read.step || r->nbound != 1 || r->reduce != R_SUM || (row && along && along->is_const && along->value == 1))
                return false;
            strided |= row && along && row->is_const && row->value == 1;
        }
    }
    return strided;
}

/* A short row is a warp's, a long one (or one of unknown length) a block's; of 32 neighbours each of a block's warps
 * has a part. */
static int row_lanes(Plan *p, const Group *g)
{
    if (rows_are_neighbours(p, g))
        return ROW_PARTS;
    for (int i = 0; i < g->arrays.len; i++) {
        const Node *a = at(p, g->arrays.data[i]), *r = at(p, a->args[0]);
        bool reduces = is_reduction(p, g->arrays.data[i]);
        int n = reduces ? r->nbound : a->naxes - g->naxes;
        const IndexId *over = reduces ? r->bound : a->axes + g->naxes;
        int64_t size = 1;
        for (int k = 0; k < n; k++) {
            const Poly *e = p->m->indices.data[over[k]].extent;
            size = e->is_const && size < 1 << 20 ? size * e->value : 1 << 20;
        }
        if (size > 1024)
            return g->threads;
    }
    return 32;
}

/* Orders a row kernel by the depth of its reductions, so that those that wait for the same come together. */
static void order_row(Plan *p, const Program *pr, Group *g, int number)
{
    int n = g->arrays.len;
    int *depth = per(p, sizeof *depth, n), *of = per(p, sizeof *of, p->n_nodes);
    for (int i = 0; i < n; i++) {
        Uses uses = uses_of(p, g->arrays.data[i]);
        for (int j = 0; j < uses.len; j++) {
            const Read *r = &uses.data[j].read;
            if (!r->is_tensor && pr->group[r->id] == number && of[r->id] > depth[i])
                depth[i] = of[r->id];
        }
        depth[i] += is_reduction(p, g->arrays.data[i]);
        of[g->arrays.data[i]] = depth[i];
    }
    /* Stable: reductions of a depth first, then what is pointwise at that depth. */
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0; j--) {
            NodeId a = g->arrays.data[j - 1], b = g->arrays.data[j];
            int ka = 2 * depth[j - 1] + !is_reduction(p, a), kb = 2 * depth[j] + !is_reduction(p, b);
            int d = depth[j];
            if (ka <= kb)
                break;
            g->arrays.data[j - 1] = b;
            g->arrays.data[j] = a;
            depth[j] = depth[j - 1];
            depth[j - 1] = d;
        }
    g->depth = depth;
}

/* A block that keeps sums of its rows takes fewer of them than a chunk that a kernel reads for its sums alone:
 * what it waits for is the row, and what it leaves is little beside. */
ColumnCut column_cut(bool by_rows)
{
    return by_rows ? (ColumnCut){ 4, 4096, 4096, 256 } : (ColumnCut){ 64, 256, 512, 1 };
}

const char *const scatter_kernels[6] = { "keys", "count", "scan", "move", "sums", "totals" };

int scatter_threads(int kernel)
{
    return kernel == SCATTER_SCAN ? 1024 : kernel == SCATTER_COUNT || kernel == SCATTER_MOVE ? 32 : SCATTER_THREADS;
}

/* Keys and places are int64: pairs of 32 bits. */
static void scatter_buffers(Plan *p, Group *g, int number)
{
    Module *m = p->m;
    Scatter *s = g->scatter;
    s->positions = poly_mul(m, rows_of(p, g->batched, g->timed), s->inner);
    s->keys = add_buffer(p, intern_f(m->c, "places %d", number), DT_I32, poly_mul(m, poly_const(m, 2), s->positions),
                         false, true);
    s->order = add_buffer(p, intern_f(m->c, "order %d", number), DT_I32, poly_mul(m, poly_const(m, 4), s->positions),
                          false, true);
    s->counts = add_buffer(p, intern_f(m->c, "counts %d", number), DT_I32, NULL, false, true);
    s->partial = add_buffer(p, intern_f(m->c, "partial sums %d", number), p->compute, NULL, false, true);
    Buffer *counts = &p->buffers.data[s->counts], *partial = &p->buffers.data[s->partial];
    counts->columns = poly_const(m, 2 * 256 * 32);
    counts->each = SORT_EACH;
    counts->most = SORT_BLOCKS;
    partial->columns = poly_mul(m, poly_const(m, 2), s->columns);
    partial->each = SHARE_EACH;
    partial->most = SHARES;
    counts->cut = partial->cut = s->positions;
    counts->arrays = partial->arrays = 1;
}

static void finish_groups(Plan *p, Program *pr)
{
    int64_t real = p->compute == DT_F64 ? 8 : 4;
    for (int i = 0; i < pr->groups.len; i++) {
        Group *g = &pr->groups.data[i];
        const Poly *elements = poly_const(p->m, 1);
        for (int k = 0; k < g->naxes; k++)
            elements = poly_mul(p->m, elements, g->axes[k]);
        if (g->kind == G_MAP) {
            g->flat = elements->is_const && elements->value < 256;
            g->threads = g->phase == PHASE_DURING ? 128 : 256;
        }
        if (g->past)
            g->lanes = g->threads = 128;
        if (g->kind == G_ROW && !g->past) {
            order_row(p, pr, g, i);
            g->lanes = row_lanes(p, g);
            if (g->lanes > 32 || g->sums)     /* rows that stay in registers get as many as they need */
                g->lanes = g->threads = 128;
        }
        if (g->kind == G_SCATTER)
            scatter_buffers(p, g, i);
        if (g->kind != G_COLUMN)
            continue;
        g->resident = real == 4 && g->arrays.len <= 2 && !g->by_rows ? (g->arrays.len == 2 ? 2 : 3) : 0;
        bool by_walk = g->by_rows && pr->groups.data[g->by_rows - 1].kind == G_SCAN;
        g->threads_2 = g->by_rows && !by_walk ? 1024 : g->threads;
        g->partial = add_buffer(p, intern_f(p->m->c, "partial sums %d", i), p->compute, NULL, false, true);
        p->buffers.data[g->partial].by_rows = g->by_rows;
        p->buffers.data[g->partial].columns = elements;
        p->buffers.data[g->partial].arrays = g->arrays.len;
        if (by_walk)                  /* a row per sequence */
            p->buffers.data[g->partial].elements = poly_mul(
                p->m, poly_dim(p->m, ATOM_B), poly_mul(p->m, elements, poly_const(p->m, g->arrays.len)));
        if (by_walk)
            p->buffers.data[g->partial].columns = NULL;
    }
}

static void name_kernels(Plan *p, Program *pr)
{
    static const char *const phase[] = { "none", "param", "before", "step", "after" };
    const char *dir = pr->dir == FORWARD ? "fwd" : "bwd";
    for (int i = 0; i < pr->groups.len; i++) {
        Group *g = &pr->groups.data[i];
        if (g->kind != G_WALK)
            g->kernel = intern_f(p->m->c, "%s_%s_%s_%d", p->m->name, dir, phase[g->phase], i);
    }
}

static void add_walk(Plan *p, const Phasing *s)
{
    Program *pr = &p->program[s->g->dir];
    Walk *w = arena_alloc(p->m->arena, sizeof *w);
    *w = (Walk){ .m = p->m, .dir = s->g->dir, .storage = p->dtype, .n_nodes = p->n_nodes, .of_node = pr->node,
                 .of_tensor = pr->tensor, .wanted = pr->wanted, .interval = p->interval };
    w->cuda.arena = w->reasons.arena = p->m->arena;
    w->kernel = intern_f(p->m->c, "%s_%s_walk", p->m->name, s->g->dir == FORWARD ? "fwd" : "bwd");
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (s->needed[id] && pr->phase[id] == PHASE_DURING && !p->is_cat[id] &&
            pr->node[id].home != HOME_NONE)
            vec_push(p->m->arena, &w->outs, id);
    Group g = { .kind = G_WALK, .phase = PHASE_DURING, .kernel = w->kernel, .walk = w };
    g.need = pr->walk;
    vec_push(p->m->arena, &pr->groups, g);
    tile_walk(w);
}

static bool has_state(const Module *m)
{
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (m->tensors.data[t].kind == T_STATE)
            return true;
    return false;
}

/* Forward arrays that backward may find in memory: with steps all of them, with tile all but the walk's
 * matrices. */
static bool *stored_arrays(Plan *p, const Phasing *forward)
{
    Program *f = &p->program[FORWARD];
    bool *stored = per(p, 1, p->n_nodes), *saved = per(p, 1, p->n_nodes);
    if (p->schedule == SCHED_TILE)
        tile_saved(p->m, saved);
    for (NodeId id = 0; id < p->n_nodes; id++) {
        stored[id] = forward->needed[id] && !printed_inline(p, f, id) && f->phase[id] != PHASE_NONE;
        RootKind root = root_kind(p->m, id, &(TensorId){ 0 });
        if (p->rounded[id] || root == ROOT_INIT || root == ROOT_LAST)
            stored[id] = false;
        if (p->schedule == SCHED_TILE && f->phase[id] == PHASE_DURING)
            stored[id] = stored[id] && saved[id];
        if (f->taken && f->taken[id])
            stored[id] = false;       /* backward makes it anew, from what it is made of */
    }
    return stored;
}

/* Is a state read behind the steps, of which the walk of a scan keeps nothing otherwise? */
static bool read_behind(const Phasing *s, TensorId state)
{
    for (NodeId id = 0; id < s->p->n_nodes; id++)
        for (int i = 0; s->needed[id] && s->g->phase[id] != PHASE_DURING && i < s->uses[id].len; i++)
            if (s->uses[id].data[i].read.is_tensor && s->uses[id].data[i].read.id == state)
                return true;
    return false;
}

/* With steps, the states after each step are kept: the next step and backward read them. */
static void next_storage(Plan *p, const Phasing *s)
{
    for (TensorId t = 0; t < p->m->tensors.len; t++)
        if (s->g->dir == FORWARD && p->schedule != SCHED_TILE && p->m->next.data[t] >= 0)
            give_storage(p, &p->program[FORWARD], p->m->next.data[t], true, !p->scan || read_behind(s, t));
}

static void end_ring(Plan *p, const Storage *st)
{
    if ((st->home == HOME_WORKSPACE || st->home == HOME_RESERVE) && st->slot >= 0)
        p->buffers.data[st->slot].ring = 0;
}

/* What is read or written beside the steps needs all of its rows. */
static void end_rings(Plan *p, const Phasing *s)
{
    Module *m = p->m;
    Program *pr = &p->program[FORWARD];
    bool *beside = per(p, 1, p->n_nodes);
    for (NodeId id = p->n_nodes - 1; id >= 0; id--) {
        beside[id] |= pr->phase[id] != PHASE_DURING;
        if (!s->needed[id] || !beside[id])
            continue;
        end_ring(p, &pr->node[id]);
        for (int i = 0; i < s->uses[id].len; i++) {
            const Read *r = &s->uses[id].data[i].read;
            if (!r->is_tensor && pr->node[r->id].home == HOME_NONE)
                beside[r->id] = true;                     /* it is printed there */
            else if (!r->is_tensor)
                end_ring(p, &pr->node[r->id]);
            else if (m->tensors.data[r->id].kind == T_STATE && m->next.data[r->id] >= 0)
                end_ring(p, &pr->node[m->next.data[r->id]]);
        }
    }
}

/* With steps, forward itself reads a state from the step before, and any other value of a step in that step
 * only. So they are kept for two steps, or one, except in the reserve: inference takes no memory for them that
 * grows with T. */
static void find_rings(Plan *p, const Phasing *s)
{
    Program *pr = &p->program[FORWARD];
    if (p->schedule == SCHED_TILE)
        return;
    for (NodeId id = 0; id < p->n_nodes; id++) {
        const Storage *st = &pr->node[id];
        bool kept = st->home == HOME_WORKSPACE || st->home == HOME_RESERVE;
        if (!s->needed[id] || !kept || st->slot < 0 || !st->timed || pr->phase[id] != PHASE_DURING)
            continue;
        Buffer *b = &p->buffers.data[st->slot];
        bool state = root_kind(p->m, id, &(TensorId){ 0 }) == ROOT_NEXT || copies_state(p, id);
        int steps = state ? 2 : 1;
        if (!b->reserve || b->inference)
            b->ring = steps > b->ring ? steps : b->ring;
    }
    end_rings(p, s);
}

/* A window of so many steps is a short one, whose values lie in memory. */
static bool is_far(const Plan *p, IndexId i)
{
    const Poly *n = i >= IX_FIRST ? p->m->indices.data[i].extent : poly_const(p->m, 0);
    return !n->is_const || n->value > p->short_window;
}

/* Most cells do not, and need not be searched. */
static bool reads_far_back(const Plan *p)
{
    bool far = false;
    for (int i = IX_FIRST; i < p->m->indices.len; i++)
        far |= p->m->indices.data[i].extent == poly_dim(p->m, ATOM_PAST);
    for (NodeId id = 0; id < p->n_nodes && !far; id++)
        for (int k = 0; at(p, id)->step && k < at(p, id)->step->nterms; k++) {
            const IxTerm *t = &at(p, id)->step->terms[k];
            far |= t->kind == IA_INDEX && is_far(p, t->index);
        }
    return far;
}

static int axis_of(const Node *a, IndexId i)
{
    for (int k = 0; k < a->naxes; k++)
        if (a->axes[k] == i)
            return k;
    return -1;
}

static void mark_past(const Plan *p, NodeId id, int axis, int *past)
{
    const Node *a = at(p, id);
    bool each_step = rows_dep(p, id) & DEP_TIME;      /* else it is small, and the same for all steps */
    if (!past[id] && each_step && a->type == TY_REAL && !p->is_alias[id] && !p->rounded[id] && !is_root(p->m, id))
        past[id] = 1 + axis;
}

/* What an array's terms read at an index that counts distances. */
static void mark_reads_over(const Plan *p, const Uses *uses, IndexId w, int *past)
{
    for (int i = 0; i < uses->len; i++) {
        const Read *r = &uses->data[i].read;
        IndexId which;
        for (int k = 0; !r->is_tensor && k < r->nmap; k++)
            if (ix_is_index(r->map[k], &which) && which == w)
                mark_past(p, r->id, k, past);
    }
}

/* Arrays with an axis of as many places as there are steps; or one that counts back steps far away, itself or in the sums
 * that read it; and what these are made of. Readers stand behind what they read. */
static void mark_over_past(const Plan *p, int *past)
{
    for (NodeId id = p->n_nodes - 1; id >= 0; id--) {
        if (at(p, id)->kind != N_ARRAY)
            continue;
        const Node *a = at(p, id), *r = at(p, a->args[0]);
        Uses uses = uses_of(p, id);
        for (int k = 0; k < a->naxes; k++)
            if (p->m->indices.data[a->axes[k]].extent == poly_dim(p->m, ATOM_PAST))
                mark_past(p, id, k, past);
        for (int i = 0; i < uses.len; i++) {
            const IxExpr *step = uses.data[i].read.step;
            for (int k = 0; step && k < step->nterms; k++) {
                IndexId w = step->terms[k].kind == IA_INDEX ? step->terms[k].index : IX_TIME;
                if (!is_far(p, w))
                    continue;
                if (axis_of(a, w) >= 0)
                    mark_past(p, id, axis_of(a, w), past);
                for (int b = 0; r->kind == N_REDUCE && b < r->nbound; b++)
                    if (r->bound[b] == w)
                        mark_reads_over(p, &uses, w, past);
            }
        }
        if (past[id])
            mark_reads_over(p, &uses, a->axes[past[id] - 1], past);
    }
}

/* What is pointwise in values over the past is one, too. */
static void mark_made_of(const Plan *p, int *past)
{
    for (NodeId id = 0; id < p->n_nodes; id++) {
        if (at(p, id)->kind != N_ARRAY || past[id] || is_reduction(p, id))
            continue;
        Uses uses = uses_of(p, id);
        for (int i = 0; i < uses.len; i++) {
            const Read *r = &uses.data[i].read;
            IndexId which;
            if (!r->is_tensor && past[r->id] && ix_is_index(r->map[past[r->id] - 1], &which) &&
                axis_of(at(p, id), which) >= 0)
                mark_past(p, id, axis_of(at(p, id), which), past);
        }
    }
}

/* A walk reads memory. */
static void leave_to_walk(const Plan *p, const Phasing *s, int *past)
{
    for (NodeId id = 0; id < p->n_nodes; id++) {
        bool walks = s->replayed[id] || (s->needed[id] && s->g->phase[id] == PHASE_DURING);
        Uses uses = { 0 };
        if (walks)
            uses = uses_of(p, id);
        if (walks)
            past[id] = 0;
        for (int i = 0; i < uses.len; i++)
            if (!uses.data[i].read.is_tensor)
                past[uses.data[i].read.id] = 0;
    }
}

/* So does a product, and what it gives lies there. */
static void leave_to_products(Plan *p, int *past)
{
    for (NodeId id = 0; id < p->n_nodes; id++) {
        Gemm g;
        NodeId factor[2];
        if (at(p, id)->kind != N_ARRAY || !contraction_of(p, id, false, &g, factor))
            continue;
        Uses uses = uses_of(p, id);
        past[id] = 0;
        for (int i = 0; i < uses.len; i++)
            if (!uses.data[i].read.is_tensor)
                past[uses.data[i].read.id] = 0;
    }
}

static bool *stored_arrays(Plan *p, const Phasing *forward);

static int any_past(const Plan *p, const int *past)
{
    int any = 0;
    for (NodeId id = 0; id < p->n_nodes; id++)
        any |= past[id];
    return any;
}

/* Values with a place for each of many steps, at every step: memory for them would grow with the square of T, or with T
 * times a window. They are made where they are read, but for those of a walk, which is known once phases are. */
static int *past_values(Plan *p, int short_window)
{
    int *past = per(p, sizeof *past, p->n_nodes);
    p->short_window = short_window;
    if (!reads_far_back(p))
        return NULL;
    mark_over_past(p, past);
    if (!any_past(p, past))
        return NULL;
    if (short_window == 1)
        mark_made_of(p, past);
    Phasing f = phasing(p, FORWARD, NULL), b = phasing(p, BACKWARD, stored_arrays(p, &f));
    leave_to_walk(p, &f, past);
    leave_to_walk(p, &b, past);
    leave_to_products(p, past);
    return any_past(p, past) ? past : NULL;
}

static bool takes_maxima(const Plan *p)
{
    for (NodeId id = 0; id < p->m->forward_nodes; id++)
        if (at(p, id)->kind == N_REDUCE && at(p, id)->reduce == R_MAX)
            return true;
    return false;
}

static void own_slices(Plan *p)
{
    if (p->no_window || !takes_maxima(p))
        return;
    find_aliases(p, NULL);
    int *past = per(p, sizeof *past, p->n_nodes);
    p->short_window = 1;
    if (!reads_far_back(p))
        return;
    mark_over_past(p, past);
    mark_made_of(p, past);
    window_own_slices(p->m, past);
}

/* A softmax over a window of any length goes in one pass; what else there is over a short one lies in memory. */
static void find_past(Plan *p)
{
    enum { SHORT = 128 };
    if (!p->no_window && takes_maxima(p)) {
        p->past = past_values(p, 1);
        p->window = window_found(p);
        p->past = p->window ? p->past : NULL;
    }
    if (!p->past)
        p->past = past_values(p, SHORT);
    if (p->past)
        buf_f(&p->reasons, "values with a place for each earlier step are made where they are read: no memory for them\n");
}

static void plan_directions(Plan *p)
{
    find_past(p);
    Phasing f = phasing(p, FORWARD, NULL);
    bool *stored = stored_arrays(p, &f), *wanted = per(p, 1, p->n_nodes);
    Phasing b = phasing(p, BACKWARD, stored);
    const Phasing *both[2] = { &f, &b };
    for (int d = 0; p->scan && d < 2 && !p->not_scan; d++)
        p->not_scan = scan_refused(p, &p->program[d]);
    if (p->scan && p->not_scan)
        return;
    for (int d = 0; d < 2; d++) {
        tensor_storage(p, &p->program[d]);
        root_storage(p, &p->program[d]);
    }
    carry_storage(p);
    for (int d = 1; d >= 0; d--) {
        mark_cats(p, both[d]);
        mark_short_sums(p, both[d]);
        make_groups(p, both[d]);
        if (p->scan && (p->not_scan = scan_too_many(&p->program[d])))
            return;                           /* the rest would be planned for nothing */
        join_columns(p, both[d]);
        if (d == FORWARD)
            for (NodeId id = 0; id < p->n_nodes; id++)
                if (wanted[id])
                    give_storage(p, &p->program[d], id, true, false);
        next_storage(p, both[d]);
        store_read_values(p, both[d], wanted);
        finish_cats(p, &p->program[d]);
        find_needs(p, both[d]);
    }
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (wanted[id])
            p->program[BACKWARD].node[id] = p->program[FORWARD].node[id];
    find_rings(p, &f);
    for (int d = 0; d < 2 && p->schedule == SCHED_TILE; d++)
        add_walk(p, both[d]);
    for (int d = 0; d < 2; d++) {
        finish_groups(p, &p->program[d]);
        name_kernels(p, &p->program[d]);
    }
    for (int d = 0; p->scan && d < 2 && !p->not_scan; d++)
        p->not_scan = scan_refused(p, &p->program[d]);
}

/* What the cell can take: no state is map; a state that fits on an SM is tile, unless that was tried and
 * refused; else steps, or gemm when a step multiplies. */
static Schedule choose(Plan *p, Schedule wanted)
{
    Module *m = p->m;
    const char *refused = p->not_tile;
    if (!has_state(m)) {
        if (wanted != SCHED_AUTO && wanted != SCHED_MAP && wanted != SCHED_WINDOW)
            diag(m->c, DIAG_ERROR, m->span, "cell %s has no state: only --schedule map or window can take it", m->name);
        p->no_window = wanted == SCHED_MAP;
        return SCHED_MAP;
    }
    if (wanted == SCHED_MAP || wanted == SCHED_WINDOW)
        diag(m->c, DIAG_ERROR, m->span, "--schedule %s takes cells without a state; %s has one",
             wanted == SCHED_MAP ? "map" : "window", m->name);
    if (!refused && (wanted == SCHED_AUTO || wanted == SCHED_TILE))
        refused = tile_refuses(m, p->dtype);
    if (wanted == SCHED_TILE && refused)
        diag(m->c, DIAG_ERROR, m->span, "--schedule tile cannot take cell %s: %s", m->name, refused);
    if (wanted != SCHED_AUTO)
        return wanted;
    p->not_tile = refused;
    if (refused)
        buf_f(&p->reasons, "not tile: %s\n", refused);
    return refused ? SCHED_STEPS : SCHED_TILE;
}

static bool multiplies_each_step(const Program *pr)
{
    for (int i = 0; i < pr->groups.len; i++)
        if (pr->groups.data[i].kind == G_GEMM && pr->groups.data[i].phase == PHASE_DURING)
            return true;
    return false;
}

static const char *walk_refused(const Plan *p, bool *no_room)
{
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < p->program[d].groups.len; i++) {
            const Group *g = &p->program[d].groups.data[i];
            *no_room = g->kind == G_WALK && g->walk->no_room;
            if (g->kind == G_WALK && g->walk->refused)
                return g->walk->refused;
        }
    return NULL;
}

static Plan *make(Module *m, Dtype dtype, Schedule wanted, const char *not_tile, const char *not_scan);

/* What a walk must write for others is known only now: it may be what the walk cannot give. */
static Plan *without_tile(Plan *p, Schedule wanted)
{
    Module *m = p->m;
    bool no_room;
    const char *why = walk_refused(p, &no_room);
    if (no_room && tile_widen(m, p->interval))
        return make(m, p->dtype, wanted, NULL, NULL);
    if (wanted == SCHED_TILE) {
        diag(m->c, DIAG_ERROR, m->span, "--schedule tile cannot take cell %s: %s", m->name, why);
        return NULL;
    }
    return make(m, p->dtype, SCHED_AUTO, why, NULL);
}

/* Does the array sum over many steps, each of which it reads by itself? Short windows come from the cache. */
static bool sums_many_steps(const Plan *p, NodeId array)
{
    enum { FEW = 16 };
    Uses uses = uses_of(p, array);
    for (int i = 0; i < uses.len; i++) {
        const IxExpr *step = uses.data[i].read.step;
        for (int k = 0; step && k < step->nterms; k++) {
            IndexId which = step->terms[k].kind == IA_INDEX ? step->terms[k].index : IX_TIME;
            const Poly *n = which >= IX_FIRST ? p->m->indices.data[which].extent : NULL;
            if (n && (!n->is_const || n->value > FEW))
                return true;
        }
    }
    return false;
}

static void warn_of_steps(Plan *p)
{
    for (int d = 0; d < 2; d++)
        for (NodeId id = 0; id < p->n_nodes; id++) {
            int group = p->program[d].group[id];
            const Group *g = group < 0 ? NULL : &p->program[d].groups.data[group];
            bool history = g && p->window && !g->timed;       /* for the call before, where that is asked for */
            if (!g || g->kind == G_GEMM || g->window || history || !sums_many_steps(p, id))
                continue;
            diag(p->m->c, DIAG_PERF, at(p, id)->span,
                 "every step reads many earlier ones here, each from memory");
            return;
        }
}

static int64_t block_memory(const Plan *p)
{
    int64_t most = 0;
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < p->program[d].groups.len; i++) {
            const Group *g = &p->program[d].groups.data[i];
            int64_t bytes = g->kind == G_WALK ? g->walk->smem : g->smem;
            most = bytes > most ? bytes : most;
        }
    return most;
}

/* A walk that needs more than a block may have: the same with checkpoints closer together, or, where one for
 * every step is still too much, none. */
static Plan *with_less_memory(Plan *p, Schedule wanted)
{
    Module *m = p->m;
    int64_t room = m->c->block_memory;
    if (p->interval > 1) {
        m->c->interval = p->interval / 2;
        return make(m, p->dtype, wanted, NULL, NULL);
    }
    if (wanted == SCHED_TILE)
        return NULL;
    return make(m, p->dtype, SCHED_AUTO,
                intern_f(m->c, "its walk needs %lld bytes of shared memory with a checkpoint at every step, and a "
                               "block has %lld", (long long)p->block_memory, (long long)room), NULL);
}

/* Vectors of one length that no sum of the step reads: their elements may walk on their own, and then a vector needs
 * no SM to itself. */
static bool elements_alone(const Module *m)
{
    const Poly *units = NULL;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        if (x->kind != T_STATE)
            continue;
        if (x->rank - x->complex != 1 || (units && x->axes[0] != units))
            return false;
        units = x->axes[0];
    }
    for (NodeId id = 0; id < m->forward_nodes; id++)
        if (m->nodes.data[id].kind == N_REDUCE && (m->nodes.data[id].dep & DEP_STATE))
            return false;
    return units != NULL;
}

/* Where states lie in memory so far, a thread for each of their units may have them in registers. */
static void choose_scan(Plan *p, Schedule wanted, const char *not_scan)
{
    const char *why = not_scan;
    if (wanted != SCHED_SCAN && (wanted != SCHED_AUTO || p->schedule != SCHED_STEPS))
        return;
    if (!why)
        p->scan = scan_units(p->m, &why);
    if (p->scan)
        p->schedule = SCHED_SCAN;
    else
        p->not_scan = why;
}

static Plan *without_scan(Plan *p, Schedule wanted)
{
    Module *m = p->m;
    if (wanted != SCHED_SCAN)
        return make(m, p->dtype, wanted, p->not_tile, p->not_scan);
    diag(m->c, DIAG_ERROR, m->span, "--schedule scan cannot take cell %s: %s", m->name, p->not_scan);
    return NULL;
}

/* A cell without a state whose softmax over the past goes in one pass. */
static bool choose_window(Plan *p, Schedule wanted)
{
    Module *m = p->m;
    const char *why = p->window ? NULL : window_refuses(p);
    if (p->window)
        p->schedule = SCHED_WINDOW;
    else if (wanted == SCHED_WINDOW)
        diag(m->c, DIAG_ERROR, m->span, "--schedule window cannot take cell %s: %s", m->name, why);
    else if (p->past && !p->no_window)
        buf_f(&p->reasons, "not window: %s\n", why);
    return p->window || wanted != SCHED_WINDOW;
}

static Plan *make(Module *m, Dtype dtype, Schedule wanted, const char *not_tile, const char *not_scan)
{
    if (wanted == SCHED_AUTO && !not_tile && elements_alone(m)) {
        Plan *scan = make(m, dtype, wanted, "each element of its states walks by itself", NULL);
        if (!scan || scan->schedule == SCHED_SCAN)
            return scan;
    }
    Plan *p = arena_alloc(m->arena, sizeof *p);
    *p = (Plan){ .m = m, .dtype = dtype, .compute = dtype == DT_F64 ? DT_F64 : DT_F32, .not_tile = not_tile };
    p->reasons.arena = m->arena;
    p->schedule = choose(p, wanted);
    if (m->c->errors)
        return NULL;
    choose_scan(p, wanted, not_scan);
    if (wanted == SCHED_SCAN && !p->scan)
        return without_scan(p, wanted);
    p->other_step = module_index(m, intern(m->c, "s"), poly_dim(m, ATOM_T));
    if (p->schedule == SCHED_TILE)
        p->interval = tile_interval(m, dtype);
    split_roots(p);
    own_slices(p);
    round_operands(p);
    for (int d = 0; d < 2; d++)
        p->program[d].node = per(p, sizeof *p->program[d].node, p->n_nodes);
    plan_directions(p);
    if (p->schedule == SCHED_TILE && walk_refused(p, &(bool){ false }))
        return without_tile(p, wanted);
    p->cluster = p->schedule == SCHED_TILE ? m->cluster : 1;
    if (p->scan && p->not_scan)
        return without_scan(p, wanted);
    p->block_memory = block_memory(p);
    if (p->schedule == SCHED_TILE && m->c->block_memory && p->block_memory > m->c->block_memory)
        return with_less_memory(p, wanted);
    bool products = multiplies_each_step(&p->program[FORWARD]);
    if (wanted == SCHED_GEMM && !products) {
        diag(m->c, DIAG_ERROR, m->span,
             "--schedule gemm needs a product with a param in every step; %s has none", m->name);
        return NULL;
    }
    if (p->schedule == SCHED_STEPS && products && wanted == SCHED_AUTO)
        p->schedule = SCHED_GEMM;
    if (p->not_scan && p->schedule == SCHED_STEPS)
        buf_f(&p->reasons, "not scan: %s\n", p->not_scan);
    if (p->scan)
        scan_kernels(p);
    if (p->schedule == SCHED_MAP && !choose_window(p, wanted))
        return NULL;
    warn_of_steps(p);
    panel_find(p);
    ir_verify(m, "plan");
    return p;
}

Plan *plan_make(Module *m, Dtype dtype, Schedule wanted)
{
    int conditions = m->quotients.len;
    Plan *p = make(m, dtype, wanted, NULL, NULL);
    if (m->quotients.len != conditions)       /* each is a check of the call: only the spec may ask for one */
        bug(m->c, "plan", "planning made %d conditions of the call", m->quotients.len - conditions);
    return p;
}
