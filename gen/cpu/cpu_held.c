/* cpu_held.c: values along a row that a ROW kernel computes once. In comes a group whose item is a row; out
 * go, for values that cost more than a load and that several of its loops would compute, places in the
 * thread's scratch memory: the first loop leaves them there, and those behind it read them. All else is
 * built again where it is used. Scratch memory begins with what cpu_close_lanes takes, 8 bytes for each
 * place of every extent of the group; the rows stand behind that, each at a multiple of 64 bytes. */
#include "cpu.h"
#include "ir/ops.h"

/* COSTS: of an element in issue slots (OpRow.cost), from which on it is held; ROUND: elements. */
enum { COSTS = 8, ROUND = 16 };

typedef struct Holder {
    Code *code;
    int row_axes;
    bool *seen; /* per place in the group: the loop in question needs it */
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
    return e;
}

const Formula *cpu_hold_rows(Code *x, int row_axes, const int *loop)
{
    Module *m = x->k->p->m;
    const Group *g = x->k->g;
    Holder h = { .code = x, .row_axes = row_axes };
    int *loops = loops_that_need(&h, loop), bytes = kir_bytes(code_real(x));
    KirType type = kir_global(code_real(x), true);
    Extents e = extents_of(&h);
    const KirExpr *at = code_int(x, 0);
    const Formula *scratch = NULL;
    x->held = arena_alloc(x->kir->arena, sizeof *x->held * (size_t)x->values);
    for (int i = 0; i < g->arrays.len; i++) {
        NodeId id = g->arrays.data[i];
        if (loops[i] < 2 || !is_vector(&h, id) || cost(&h, k_node(x->k, id)->args[0]) < COSTS)
            continue;
        if (!scratch)
            scratch = formula_const(m, 0);
        for (; e.n > 0; e.n--) {
            at = code_add(x, at, code_mul(x, rounded(x, e.all[e.n - 1]), code_int(x, 8 / bytes)));
            scratch = formula(m, F_ADD, scratch, rounded_bytes(m, e.all[e.n - 1], 8));
        }
        const KirExpr *all = kir_convert(x->kir, type, kir_special(x->kir, KP_SCRATCH, 0));
        x->held[id] = kir_let_as(x->kir, k_local(x->k, "row", id), type, code_add(x, all, at));
        const Poly *n = row_of(x, id, row_axes);
        at = code_add(x, at, rounded(x, n));
        scratch = formula(m, F_ADD, scratch, rounded_bytes(m, n, bytes));
    }
    return scratch;
}
