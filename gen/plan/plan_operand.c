/* plan_operand.c: the operands of products. In comes a module; out goes the same one with copies of states and of
 * intermediates, in the storage type, where a product takes these from a copy only. It is guaranteed that what
 * `contraction_of` then calls a product has operands and a result such as cell_gemm takes. */
#include <string.h>

#include "ir/arguments.h"
#include "ir/marks.h"
#include "ir/rewrite.h"
#include "ir/rounded.h"
#include "plan_pass.h"

static bool narrow(Dtype t)
{
    return t == DT_BF16 || t == DT_F16;
}

/* Whether an array is kept per sequence and per step. A root is kept as its tensor is, even where it does not
 * vary. */
unsigned rows_dep(const Plan *p, NodeId id)
{
    TensorId of;
    RootKind root = root_kind(p->m, id, &of);
    if (root != ROOT_NONE && p->m->tensors.data[of].chunk)
        root = root == ROOT_INIT ? ROOT_INIT : ROOT_NONE;
    switch (root) {
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
        l.timed = tensor_per_step(&m->tensors.data[r->id]) || (k == T_STATE && timed_state);
    } else {
        TensorId of;
        l.batched = dep & DEP_BATCH;
        /* ROOT_DPREV is carried by parity of the step. */
        l.timed = (dep & DEP_TIME) && root_kind(m, r->id, &of) != ROOT_DPREV;
        l.time_first = p->time_first && p->time_first[r->id];
    }
    return l;
}

Dtype type_of_read(const Plan *p, const Read *r)
{
    return r->is_tensor        ? p->m->tensors.data[r->id].dtype
           : p->rounded[r->id] ? plan_operand_type(p)
           : p->narrow[r->id]  ? p->dtype
                               : p->compute;
}

/* Products on the CPU convert what they pack, so their copies keep the type of the arithmetic. */
Dtype plan_operand_type(const Plan *p)
{
    return p->request->cpu ? p->compute : p->dtype;
}

static bool same_for_products(const Plan *p, Dtype a, Dtype b)
{
    bool single = (narrow(a) || a == DT_F32) && (narrow(b) || b == DT_F32);
    return a == b || (p->request->cpu && single);
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
    return same_for_products(p, type, type_of_read(p, b)) && product_type(type) == p->compute && !needs_copy(p, a) && !needs_copy(p, b);
}

static bool is_unstored(const Plan *p, const Read *r)
{
    return !r->is_tensor && p->unstored && p->unstored[r->id];
}

static Read whole_result(Plan *p, NodeId array)
{
    int naxes = at(p, array)->naxes;
    Read r = { .id = array, .nmap = naxes };
    r.map = arena_alloc(p->m->arena, sizeof *r.map * (size_t)(naxes + 1));
    for (int i = 0; i < naxes; i++)
        r.map[i] = ix_index(p->m, at(p, array)->axes[i]);
    return r;
}

bool codes_contraction(Plan *p, NodeId array, TensorId a, TensorId b, Gemm *to)
{
    const Node *mul = at(p, at(p, at(p, array)->args[0])->args[0]);
    Contraction c = { 0 };
    if (mul->kind != N_MAP || mul->op != OP_MUL || !operand_read(p, mul->args[0], &c.a) ||
        !operand_read(p, mul->args[1], &c.b))
        return false;
    c.a.is_tensor = c.b.is_tensor = true;
    c.a.id = a;
    c.b.id = b;
    c.c = whole_result(p, array);
    c.lay_a = layout_of(p, &c.a, true);
    c.lay_b = layout_of(p, &c.b, true);
    c.lay_c = layout_of(p, &c.c, true);
    return match_gemm(p->m, &c, to);
}

static bool is_few(const Poly *n)
{
    enum { FEW = 8 };
    return n->is_const && n->value <= FEW;
}

bool contraction_of(Plan *p, NodeId array, bool one_step, Gemm *g, NodeId factor[2])
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
    if (!operand_read(p, factor[0], &c.a) || !operand_read(p, factor[1], &c.b) || c.a.step || c.b.step)
        return false;
    c.c = whole_result(p, array);
    c.lay_a = layout_of(p, &c.a, true);
    c.lay_b = layout_of(p, &c.b, true);
    c.lay_c = layout_of(p, &c.c, true);
    if (!match_gemm(p->m, &c, g))
        return false;
    if (one_step && !same_for_products(p, type_of_read(p, &c.a), type_of_read(p, &c.b)))
        return false;                 /* no copy was made: all steps together are no product */
    if (p->operands_copied && !operands_fit(p, &c.a, &c.b))
        return false;
    bool one_number = g->m->is_const && g->m->value == 1 && g->n->is_const && g->n->value == 1;
    if (one_number && g->batch)
        return false;                 /* a dot product each: a sum of columns or rows does it in one pass */
    if (p->schedule->sums_few && g->batch && (is_few(g->m) || is_few(g->n) || is_few(g->k)))
        return false;
    if (is_unstored(p, &c.a) || is_unstored(p, &c.b))
        return false;
    bool sums_steps = false;
    for (int i = 0; i < at(p, at(p, array)->args[0])->nbound; i++)
        sums_steps |= at(p, at(p, array)->args[0])->bound[i] < IX_FIRST;
    bool vector = (g->m->is_const && g->m->value == 1) || (g->n->is_const && g->n->value == 1);
    if (vector && g->batch && (grows_from_operands(p, &c.a) || grows_from_operands(p, &c.b)))
        return false; /* a sum of rows or columns makes such elements as it goes */
    /* A product pays when one side is the same for all rows; small products per sequence are row
     * reductions. */
    bool product = sums_steps || !c.lay_a.batched || !c.lay_b.batched;
    if (product && one_step && p->schedule->adds_products) {
        p->adds_products = true;
        return false;
    }
    return product;
}

static const char *dtype_name(Dtype t)
{
    switch (t) {
    case DT_F32: return "f32";
    case DT_BF16: return "bf16";
    case DT_F16: return "f16";
    case DT_F64: return "f64";
    case DT_I32: return "i32";
    case DT_E4M3: return "e4m3";
    case DT_E5M2: return "e5m2";
    }
    return "?";
}

typedef struct Rounding {
    Plan *p;
    Vec(NodeId) copies;
    Vec(NodeId) of;
    bool *carried; /* per node: what is carried is made of it, and it of that */
    int *holders;  /* per node of before: 1 where products read it, and as many wholes of theirs as have it */
    int nholders;
} Rounding;

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

/* The array rounded, as an array that is none of the copies of before: those of one piece of two wholes
 * without names would be one, which could lie in one of them only. */
static NodeId copy_of_piece(Rounding *st, NodeId array, const char *name)
{
    Module *m = st->p->m;
    const Node piece = *at(st->p, array);
    for (int tried = 0;; tried++) {
        NodeId copy = node_array(m, array, piece.axes, piece.naxes,
                                 tried ? intern_f(m->c, "%s.%d", name, tried) : name, piece.span);
        bool taken = false;
        for (int i = 0; i < st->copies.len; i++)
            taken |= st->copies.data[i] == copy;
        if (!taken)
            return copy;
    }
}

/* Pieces laid together are rounded piece by piece, so that each producer writes its own in the storage type;
 * a piece of two such arrays is written into both. */
static NodeId rounded_cat(Rounding *st, NodeId array, const Piece *pieces, const bool *keeps, int n)
{
    Module *m = st->p->m;
    Node a = *at(st->p, array);
    NodeId sum = -1;
    for (int i = 0; i < n; i++) {
        Read whole = { .id = pieces[i].array, .nmap = at(st->p, pieces[i].array)->naxes };
        NodeId copy = whole.id;
        if (!keeps || !keeps[i]) {
            copy = copy_of_piece(st, whole.id,
                                 intern_f(m->c, "%s.%s.%d", a.name ? a.name : "v",
                                          dtype_name(plan_operand_type(st->p)), i));
            vec_push(m->arena, &st->copies, copy);
            vec_push(m->arena, &st->of, -1);
        }
        const IxExpr *map[64];
        const Node *v = at(st->p, pieces[i].read);
        for (int k = 0; k < whole.nmap; k++)
            map[k] = v->kind == N_VIEW ? v->map[k] : ix_index(m, v->axes[k]);
        /* The guard of the piece: its range within the whole, or within a row of it. */
        const IxExpr *lin = inner_linear(m, array, pieces[i].lead);
        const Poly *end = poly_add(m, pieces[i].offset, elements_from(m, pieces[i].array, pieces[i].lead));
        NodeId guard = node_map2(m, OP_AND,
                                 node_map2(m, OP_LE, node_size(m, pieces[i].offset), node_index(m, lin)),
                                 node_map2(m, OP_LT, node_index(m, lin), node_size(m, end)));
        NodeId part = node_select(m, guard, node_view(m, copy, map, whole.nmap), node_const(m, 0));
        sum = sum < 0 ? part : node_map2(m, OP_ADD, sum, part);
    }
    const char *name = intern_f(m->c, "%s.%s", a.name ? a.name : "v", dtype_name(plan_operand_type(st->p)));
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
    int n = r->is_tensor ? 0 : cat_pieces(m, r->id, !st->p->schedule->on_chip, pieces, 32);
    NodeId copy;
    if (n > 1) {
        copy = rounded_cat(st, r->id, pieces, NULL, n);
    } else {
        const char *name = r->is_tensor ? m->tensors.data[r->id].name : at(st->p, r->id)->name;
        Span span = r->is_tensor ? m->tensors.data[r->id].span : at(st->p, r->id)->span;
        name = intern_f(m->c, "%s.%s", name ? name : "v", dtype_name(plan_operand_type(st->p)));
        copy = node_array(m, body, axes, r->nmap, name, span);
    }
    NodeId key = r->is_tensor ? -2 - r->id : r->id;
    vec_push(m->arena, &st->copies, copy);
    vec_push(m->arena, &st->of, key);
    return copy;
}

/* What a walk gives to the step, or, of T_DOUT, back to it. */
static bool is_of_walk(const Module *m, const Tensor *t)
{
    return t->kind == T_DOUT ? m->tensors.data[t->of].chunk : t->kind == T_INPUT && t->chunk;
}

/* Arguments lie in the storage type already; a state, what walks give and every intermediate is rounded for
 * the tensor cores when the type says so. A state that a product reads is copied in any type: the product
 * wants the states before each step side by side. So is the adjoint of an initial state. */
static bool wants_copy(const Plan *p, const Read *r)
{
    if (!r->is_tensor)
        return narrow(plan_operand_type(p));
    const Tensor *t = &p->m->tensors.data[r->id];
    bool wide = t->kind == T_DNEXT || (is_of_walk(p->m, t) && t->dtype == p->compute);
    return needs_copy(p, r) || (wide && narrow(plan_operand_type(p)));
}

/* A tensor that the spec stores in another type than --dtype: what meets it in a product is not rounded, and where
 * that is stored otherwise, there is no product. */
static bool has_own_type(const Plan *p, const Read *r)
{
    return r->is_tensor && !wants_copy(p, r) && p->m->tensors.data[r->id].dtype != p->dtype;
}

/* A thread that walks a unit sums over the unit's elements by itself, in the type of the arithmetic. */
static bool summed_by_unit(const Plan *p, NodeId array)
{
    return p->schedule->per_unit && (at(p, array)->dep & (DEP_STATE | DEP_COTANGENT)) &&
           p->schedule->takes_value(p, array);
}

/* Of a node and what it is made of. */
static void mark_carried(Plan *p, NodeId id, bool *carried, Marks *seen)
{
    const Node *n = at(p, id);
    if (!marks_first(seen, id))
        return;
    carried[id] = n->dep & (DEP_STATE | DEP_COTANGENT);
    for (int i = 0; i < n->nargs; i++)
        mark_carried(p, n->args[i], carried, seen);
}

/* A walk that adds products reads the values themselves, as it has them. */
static bool *find_carried(Plan *p)
{
    Module *m = p->m;
    bool *carried = plan_alloc(p, 1, m->nodes.len);
    Marks *seen = marks_begin(m);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const NodeId roots[] = { m->roots.data[t].next, m->roots.data[t].dprev };
        for (int i = 0; i < 2; i++)
            if (roots[i] >= 0)
                mark_carried(p, roots[i], carried, seen);
    }
    marks_end(seen);
    return carried;
}

/* In types that products take as they are, a piece of two wholes, or one that a product reads by itself too,
 * would lie in memory once, and a kernel more would lay it together with the others; so such a whole gets a
 * copy of it, as it does where it is rounded. */
static void find_holders(Rounding *st)
{
    Plan *p = st->p;
    Module *m = p->m;
    st->nholders = m->nodes.len;
    st->holders = plan_alloc(p, sizeof *st->holders, st->nholders);
    bool *operand = plan_alloc(p, 1, st->nholders);
    bool *reached = plan_alloc(p, 1, st->nholders);
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int k = 0; k < ROOT_COUNT; k++)
            ir_mark(m, m->roots.data[t].of[k], reached);
    for (NodeId id = 0; id < st->nholders; id++) {
        Gemm g;
        NodeId factor[2];
        if (!reached[id] || at(p, id)->kind != N_ARRAY || !contraction_of(p, id, false, &g, factor))
            continue;
        for (int k = 0; k < 2; k++) {
            Read r;
            if (operand_read(p, factor[k], &r) && !r.is_tensor)
                operand[r.id] = true;
        }
    }
    for (NodeId id = 0; id < st->nholders; id++) {
        Piece pieces[32];
        int n = operand[id] ? cat_pieces(m, id, true, pieces, 32) : 0;
        st->holders[id] += operand[id];
        for (int i = 0; i < n; i++)
            st->holders[plan_named(p, pieces[i].array)]++;
    }
}

/* The whole with copies of those pieces that lie elsewhere too. */
static NodeId with_own_pieces(Rounding *st, NodeId old, NodeId rebuilt)
{
    Piece pieces[32], now[32];
    bool keeps[32], any = false;
    if (!st->holders || old >= st->nholders || st->holders[old] == 0)
        return rebuilt;
    int n = cat_pieces(st->p->m, old, true, pieces, 32);
    if (n < 2 || cat_pieces(st->p->m, rebuilt, true, now, 32) != n)
        return rebuilt;
    for (int i = 0; i < n; i++) {
        keeps[i] = st->holders[plan_named(st->p, pieces[i].array)] < 2;
        any |= !keeps[i];
    }
    return any ? rounded_cat(st, rebuilt, now, keeps, n) : rebuilt;
}

static NodeId hook_round(Rewrite *r, NodeId old, NodeId rebuilt, bool whole)
{
    Rounding *st = r->data;
    Plan *p = st->p;
    Module *m = p->m;
    Gemm g;
    NodeId factor[2];
    (void)whole;
    rebuilt = round_within_guards(m, rebuilt);
    if (at(p, rebuilt)->kind == N_ARRAY && rebuilt >= p->n_nodes)
        p->is_alias[rebuilt] = alias_candidate(m, rebuilt);
    if (at(p, rebuilt)->kind == N_ARRAY)
        rebuilt = with_own_pieces(st, old, rebuilt);
    if (at(p, rebuilt)->kind != N_ARRAY || !contraction_of(p, rebuilt, false, &g, factor) ||
        summed_by_unit(p, rebuilt) || (st->carried && st->carried[old] && !sums_over_batch(p, rebuilt)))
        return rebuilt;
    Node array = *at(p, rebuilt), reduce = *at(p, array.args[0]);
    bool changed = false;
    Read rd[2];
    operand_read(p, factor[0], &rd[0]);
    operand_read(p, factor[1], &rd[1]);
    if (has_own_type(p, &rd[0]) || has_own_type(p, &rd[1]))
        return rebuilt;
    for (int k = 0; k < 2; k++) {
        if (!wants_copy(p, &rd[k]) || operand_is_rounded(p, factor[k], &rd[k]))
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
static void find_aliases_and(Plan *p, const Rounding *st)
{
    int n = p->m->nodes.len;
    p->n_nodes = n;
    p->is_alias = arena_alloc(p->m->arena, (size_t)n + 1);
    p->rounded = arena_alloc(p->m->arena, (size_t)n + 1);
    p->narrow = arena_alloc(p->m->arena, (size_t)n + 1);
    p->is_cat = arena_alloc(p->m->arena, (size_t)n + 1);
    for (int i = 0; st && i < st->copies.len; i++)
        p->rounded[st->copies.data[i]] = true;
    for (NodeId id = 0; id < n; id++)
        p->is_alias[id] = at(p, id)->kind == N_ARRAY && !p->rounded[id] && alias_candidate(p->m, id);
}

void find_aliases(Plan *p)
{
    find_aliases_and(p, NULL);
}

/* A product that goes to a tensor of a type that it cannot be written in is an array of its own, which the tensor is
 * made from. */
static void convert_results(Plan *p)
{
    Module *m = p->m;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        Roots *of = &m->roots.data[t];
        NodeId *roots[] = { &of->output, &of->dinput, &of->dparam, &of->dparam_init };
        for (size_t k = 0; k < sizeof roots / sizeof *roots; k++) {
            Gemm g;
            NodeId factor[2], id = *roots[k];
            Read a;
            if (id < 0 || !contraction_of(p, id, false, &g, factor) || !operand_read(p, factor[0], &a))
                continue;
            Dtype type = type_of_read(p, &a), wanted = k ? gradient_type(m, t) : m->tensors.data[t].dtype;
            Node root = *at(p, id);
            if (wanted != type && wanted != product_type(type))
                *roots[k] = node_array(m, id, root.axes, root.naxes, root.name, root.span);
        }
    }
}

/* An input's gradient that is what a product takes a copy of, rounded as it lies in memory, is that copy. */
static void reuse_copies(Plan *p, const Rounding *st)
{
    Module *m = p->m;
    for (TensorId t = 0; t < m->tensors.len && !p->schedule->on_chip; t++) {
        NodeId id = m->roots.data[t].dinput;
        if (id < 0 || gradient_type(m, t) != p->dtype || at(p, id)->kind != N_ARRAY)
            continue;
        Read r;
        if (!plan_resolve(p, at(p, id)->args[0], &r) || r.is_tensor || r.step)
            continue;
        for (int i = 0; i < st->copies.len; i++)
            if (st->of.data[i] == r.id && at(p, st->copies.data[i])->naxes == r.nmap) {
                const Node root = *at(p, id);
                m->roots.data[t].dinput = node_array(m, node_view(m, st->copies.data[i], r.map, r.nmap), root.axes, root.naxes,
                                               root.name, root.span);
                break;
            }
    }
}

void round_operands(Plan *p)
{
    Rounding st = { .p = p, .carried = p->schedule->adds_products ? find_carried(p) : NULL };
    /* Room for what the rewriting adds: a rebuilt array is an alias exactly when its form says so. */
    find_aliases(p);
    if (!narrow(plan_operand_type(p)) && !p->schedule->on_chip && !p->request->cpu)
        find_holders(&st);
    int room = 8 * p->m->nodes.len + 4096;
    bool *alias = arena_alloc(p->m->arena, (size_t)room);
    memcpy(alias, p->is_alias, (size_t)p->n_nodes);
    p->is_alias = alias;
    Rewrite r = { .m = p->m, .hook = hook_round, .data = &st };
    rewrite_roots(&r);
    if (p->m->nodes.len > room)
        bug(p->m->c, "plan", "rounding added too many nodes");
    find_aliases_and(p, &st);
    p->operands_copied = true;
    int before = p->m->nodes.len;
    convert_results(p);
    reuse_copies(p, &st);
    if (p->m->nodes.len > before)
        find_aliases_and(p, &st);
    find_rounded(p);
}
