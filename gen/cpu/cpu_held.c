/* cpu_held.c: values along a row that a ROW kernel computes once. In comes a group whose item is a row; out
 * go, for values that cost more than a load and that several of its loops would compute, places in the
 * thread's scratch memory: the first loop leaves them there, and those behind it read them. All else is
 * built again where it is used. Functions that are the same for all elements of a sequence's step, such as
 * the silu of a vector that every row is multiplied by, are computed once for all of these (tables). Scratch
 * memory begins with what cpu_close_lanes takes, 8 bytes for each
 * place of every extent of the group; the rows stand behind that, each at a multiple of 64 bytes. */
#include "cpu.h"
#include "ir/ops.h"

/* COSTS: of an element in issue slots (OpRow.cost), from which on it is held; ROUND: elements; LOOKED_AT: nodes
 * of what may be a table. */
enum { COSTS = 8, ROUND = 16, LOOKED_AT = 1024 };

typedef struct Holder {
    Code *code;
    int row_axes;
    bool side; /* rows go side by side (cpu_block.c): loops run along their last axis too */
    bool *
        seen; /* per place in the group: the loop in question needs it; of tables per node: it is looked at */
} Holder;

static int place_in_group(const Holder *h, NodeId id)
{
    const Group *g = h->code->k->g;
    for (int i = 0; i < g->arrays.len; i++)
        if (g->arrays.data[i] == id)
            return i;
    return -1;
}

static bool is_vector(const Holder *h, NodeId id)
{
    return !plan_reduces(h->code->k->p, id) && k_node(h->code->k, id)->naxes == h->row_axes + 1;
}

/* Marks what an expression reads of the group's values along the row, also by way of others. */
static void mark(Holder *h, NodeId id)
{
    const Code *x = h->code;
    const Node n = *k_node(x->k, id);
    Read r;
    if (n.kind != N_MAP && n.kind != N_REDUCE && plan_resolve(x->k->p, id, &r)) {
        int i = r.is_tensor || r.step ? -1 : place_in_group(h, r.id);
        if (i < 0 || h->seen[i] || !is_vector(h, r.id))
            return;
        h->seen[i] = true;
        mark(h, k_node(x->k, r.id)->args[0]);
        return;
    }
    for (int i = 0; i < n.nargs; i++)
        mark(h, n.args[i]);
}

static int cost(const Holder *h, NodeId id)
{
    const Node n = *k_node(h->code->k, id);
    int sum = n.kind == N_MAP ? op_table[n.op].cost : 0;
    for (int i = 0; n.kind == N_MAP && i < n.nargs && sum < COSTS; i++)
        sum += cost(h, n.args[i]);
    return sum;
}

bool cpu_is_costly(const Code *x, NodeId id)
{
    Holder h = { .code = (Code *)x };
    return cost(&h, id) >= COSTS;
}

/* How many loops of the group compute each of its values; of `loop`, per place in the group, which it is. */
static int *loops_that_need(Holder *h, const int *loop)
{
    const Code *x = h->code;
    const Group *g = x->k->g;
    int *loops = arena_alloc(x->kir->arena, sizeof *loops * (size_t)(g->arrays.len + 1));
    h->seen = arena_alloc(x->kir->arena, sizeof *h->seen * (size_t)(g->arrays.len + 1));
    for (int begin = 0, end; begin < g->arrays.len; begin = end) {
        for (int i = 0; i < g->arrays.len; i++)
            h->seen[i] = false;
        for (end = begin; end < g->arrays.len && loop[end] == loop[begin]; end++) {
            NodeId id = g->arrays.data[end];
            if (!is_vector(h, id) || g->pointwise || k_is_stored(x->k, id)) {
                h->seen[end] |= is_vector(h, id);
                mark(h, k_node(x->k, id)->args[0]);
            }
        }
        for (int i = 0; i < g->arrays.len; i++)
            loops[i] += h->seen[i];
    }
    return loops;
}

static const Poly *row_of(const Code *x, NodeId id, int row_axes)
{
    return x->k->p->m->indices.data[k_node(x->k, id)->axes[row_axes]].extent;
}

static const KirExpr *rounded(Code *x, const Poly *n)
{
    const KirExpr *up = code_add(x, code_size(x, n), code_int(x, ROUND - 1)), *to = code_int(x, ROUND);
    return code_mul(x, code_binary(x, KB_DIV, up, to), to);
}

static const Formula *rounded_bytes(Module *m, const Poly *n, int each)
{
    return formula_with(m, F_MUL, formula_with(m, F_CEILDIV, formula_size(m, n), ROUND), ROUND * each);
}

typedef struct Extents {
    const Poly *all[64];
    int n;
} Extents;

static void add_extent(Extents *e, const Poly *n)
{
    for (int i = 0; i < e->n; i++)
        if (e->all[i] == n)
            return;
    if (e->n < 64)
        e->all[e->n++] = n;
}

/* Of the group's loops over neighbours. */
static Extents extents_of(const Holder *h)
{
    const Code *x = h->code;
    const Group *g = x->k->g;
    Extents e = { .n = 0 };
    for (int i = 0; i < g->arrays.len; i++) {
        NodeId id = g->arrays.data[i];
        const Node body = *k_node(x->k, k_node(x->k, id)->args[0]);
        if (plan_reduces(x->k->p, id))
            add_extent(&e, x->k->p->m->indices.data[body.bound[body.nbound - 1]].extent);
        else if (k_node(x->k, id)->naxes > h->row_axes)
            add_extent(&e, row_of(x, id, h->row_axes));
    }
    if (h->side)
        add_extent(&e, row_of(x, g->arrays.data[0], h->row_axes - 1));
    return e;
}

/* What lies in scratch memory: the next free place, and the bytes so far, NULL while nothing does. */
typedef struct Layout {
    const KirExpr *at;
    const Formula *bytes;
} Layout;

/* Room for n numbers behind what is laid out. */
static const KirExpr *placed(const Holder *h, Layout *l, const Poly *n, const char *name)
{
    Code *x = h->code;
    Module *m = x->k->p->m;
    const int each = kir_bytes(code_real(x));
    const KirType type = kir_global(code_real(x), true);
    if (!l->bytes) {
        Extents e = extents_of(h);
        l->at = code_int(x, 0);
        l->bytes = formula_const(m, 0);
        for (; e.n > 0; e.n--) {
            l->at = code_add(x, l->at, code_mul(x, rounded(x, e.all[e.n - 1]), code_int(x, 8 / each)));
            l->bytes = formula(m, F_ADD, l->bytes, rounded_bytes(m, e.all[e.n - 1], 8));
        }
    }
    const KirExpr *all = kir_convert(x->kir, type, kir_special(x->kir, KP_SCRATCH, 0));
    const KirExpr *place = kir_let_as(x->kir, name, type, code_add(x, all, l->at));
    l->at = code_add(x, l->at, rounded(x, n));
    l->bytes = formula(m, F_ADD, l->bytes, rounded_bytes(m, n, each));
    return place;
}

/* ---- tables */

/* Is it made of what the group does not compute, of one index at most? *any: of that index; left: nodes that may
 * be looked at, since what is used twice is looked at twice. */
static bool is_of_index(const Holder *h, NodeId id, IndexId along, bool *any, int *left)
{
    const Code *x = h->code;
    const Node n = *k_node(x->k, id);
    Read r;
    if (--*left < 0)
        return false;
    if (n.kind == N_CONST)
        return true;
    if (n.kind == N_MAP) {
        bool is = true;
        for (int i = 0; i < n.nargs; i++)
            is = is && is_of_index(h, n.args[i], along, any, left);
        return is;
    }
    if (n.kind == N_REDUCE || n.kind == N_INDEX || n.kind == N_SIZE || !plan_resolve(x->k->p, id, &r) ||
        r.step || (!r.is_tensor && place_in_group(h, r.id) >= 0))
        return false;
    for (int i = 0; i < r.nmap; i++) {
        IndexId which;
        if (!ix_is_index(r.map[i], &which) || which != along || !k_always_inside(x->k, &r))
            return false;
        *any = true;
    }
    return true;
}

/* Functions in an expression of a loop along an index. Under a condition, too: what they read is there for each
 * place of the index. */
static void find_functions(const Holder *h, NodeId id, IndexId along, Layout *l, CpuTables *to)
{
    Code *x = h->code;
    const Node n = *k_node(x->k, id);
    bool any = false;
    int left = LOOKED_AT;
    if (n.kind != N_MAP || h->seen[id])
        return;
    h->seen[id] = true;
    if (n.type == TY_REAL && n.op != OP_DIV && n.op != OP_SELECT && op_table[n.op].cost >= COSTS &&
        is_of_index(h, id, along, &any, &left) && any) {
        for (int i = 0; i < to->n; i++)
            if (to->all[i].id == id)
                return;
        if (to->n == CPU_TABLES)
            return;
        const char *name = names_fresh(&x->k->locals, "table");
        const Poly *n_along = x->k->p->m->indices.data[along].extent;
        to->all[to->n++] = (CpuTable){ id, along, placed(h, l, n_along, name) };
        return;
    }
    for (int i = 0; i < n.nargs; i++)
        find_functions(h, n.args[i], along, l, to);
}

static void find_tables(Holder *h, Layout *l, CpuTables *to)
{
    const Code *x = h->code;
    const Group *g = x->k->g;
    for (int i = 0; i < g->arrays.len && h->row_axes > 0 && !g->past; i++) {
        NodeId id = g->arrays.data[i];
        const Node a = *k_node(x->k, id), body = *k_node(x->k, a.args[0]);
        h->seen = arena_alloc(x->kir->arena, sizeof *h->seen * (size_t)x->k->p->m->nodes.len);
        if (plan_reduces(x->k->p, id))
            find_functions(h, body.args[0], body.bound[body.nbound - 1], l, to);
        else if (a.naxes > h->row_axes)
            find_functions(h, a.args[0], a.axes[h->row_axes], l, to);
    }
}

void cpu_begin_tables(Code *x, CpuTables *tables)
{
    if (!tables->n)
        return;
    tables->of = kir_mutable(x->kir, names_fresh(&x->k->locals, "of_row"), KT_I64, code_int(x, -1));
    x->table = arena_alloc(x->kir->arena, sizeof *x->table * (size_t)x->values);
    x->table_along = arena_alloc(x->kir->arena, sizeof *x->table_along * (size_t)x->values);
}

void cpu_fill_tables(Code *x, const CpuTables *tables, const KirExpr *row)
{
    if (!tables->n)
        return;
    KirOpen changed = kir_if(x->kir, code_binary(x, KB_NE, tables->of, row));
    kir_assign(x->kir, tables->of, row);
    for (int i = 0; i < tables->n; i++) {
        const CpuTable *of = &tables->all[i];
        KirOpen loop;
        Named named = { 0 };
        cpu_open_indices(x, &of->along, 1, "i", true, &loop);
        kir_store(x->kir, code_add(x, of->place, x->index[of->along]), code_value(x, of->id, &named), NULL);
        code_forget(x, &named);
        kir_close(x->kir, loop);
        x->table[of->id] = of->place;
        x->table_along[of->id] = of->along;
    }
    kir_close(x->kir, changed);
}

/* ---- */

const Formula *cpu_hold_rows(Code *x, int row_axes, const int *loop, bool side, CpuTables *tables)
{
    const Group *g = x->k->g;
    Holder h = { .code = x, .row_axes = row_axes, .side = side };
    Layout l = { NULL, NULL };
    int *loops = loops_that_need(&h, loop);
    x->held = arena_alloc(x->kir->arena, sizeof *x->held * (size_t)x->values);
    for (int i = 0; i < g->arrays.len; i++) {
        NodeId id = g->arrays.data[i];
        if (loops[i] >= 2 && is_vector(&h, id) && cost(&h, k_node(x->k, id)->args[0]) >= COSTS)
            x->held[id] = placed(&h, &l, row_of(x, id, row_axes), k_local(x->k, "row", id));
    }
    find_tables(&h, &l, tables);
    return l.bytes;
}
