/* kernels_apart.c: the kernels of ROW groups whose sums run along an axis of elements that lie apart, and
 * that make these elements too (plan_apart.c). In comes such a group; out goes a kernel whose lanes have
 * neighbouring rows, as vectors where sizes allow, while the warps of a block share their elements. A
 * thread reads what several of its elements need before it computes any of them. The first warp adds up
 * what the others have, and does what is left of the rows. */
#include <string.h>

#include "base/mutate.h"
#include "code.h"

/* Rows from which on a large GPU has a block for each multiprocessor although each lane takes a vector of
 * them. */
enum { ENOUGH = 1 << 14 };

int apart_width(const Kernel *k)
{
    const Poly *last = k->g->axes[k->g->naxes - 1];
    int width = k->p->compute == DT_F64 ? 2 : 4;
    while (last->is_const && last->value % width)
        width /= 2;
    return width;
}

static bool is_sum(const Kernel *k, NodeId id)
{
    return k_node(k, id)->naxes == k->g->naxes && plan_reduces(k->p, id);
}

static NodeId first_sum(const Kernel *k)
{
    int i = 0;
    while (!is_sum(k, k->g->arrays.data[i]))
        i++;
    return k->g->arrays.data[i];
}

static int count_sums(const Kernel *k)
{
    int n = 0;
    for (int i = 0; i < k->g->arrays.len; i++)
        n += is_sum(k, k->g->arrays.data[i]);
    return n;
}

/* Of a block's rows: whether the lane's are there, and their sums. */
typedef struct Apart {
    const KirExpr *lane, *scratch, *mine;
    const KirExpr *sum[64]; /* per array of the group: a sum for each neighbour, or NULL */
} Apart;

/* The sums of this neighbour. */
static void bind_neighbour(Code *x, const Apart *a)
{
    const Group *g = x->k->g;
    x->own[g->naxes - 1] = kir_var(x->kir, (KirVar *)x->along);
    for (int i = 0; i < g->arrays.len; i++)
        if (a->sum[i])
            x->value[g->arrays.data[i]] = kir_element(x->kir, a->sum[i], x->u);
}

static void add_term(Code *x, NodeId id)
{
    Node r = *k_node(x->k, k_node(x->k, id)->args[0]);
    Named named = { 0 };
    x->index[r.bound[0]] = kir_var(x->kir, (KirVar *)x->batch);
    code_comment(x, id);
    kir_add_to(x->kir, x->value[id], code_value(x, r.args[0], &named));
    code_forget(x, &named);
}

/* The elements of the lane's rows at one place along the axis, and what they add. */
static void element(Code *x, void *data)
{
    const Group *g = x->k->g;
    Named kept = { 0 };
    bind_neighbour(x, data);
    for (int i = 0; i < g->arrays.len; i++) {
        NodeId id = g->arrays.data[i];
        code_bind_axes(x, id);
        if (k_node(x->k, id)->naxes > g->naxes) {
            x->index[k_node(x->k, id)->axes[g->along - 1]] = kir_var(x->kir, (KirVar *)x->batch);
            code_array(x, id, &kept);
        }
    }
    for (int i = 0; i < g->arrays.len; i++) {
        code_bind_axes(x, g->arrays.data[i]);
        if (is_sum(x->k, g->arrays.data[i]))
            add_term(x, g->arrays.data[i]);
    }
    code_forget(x, &kept);
}

/* As many elements at a time as keep so many reads of a thread under way, and no more than it has. */
static int batch_size(const Code *x, const Poly *extent)
{
    enum { READS = 12, MOST = 4 };
    int n = MOST;
    while (n > 1 && n * x->batch_reads > READS)
        n /= 2;
    while (extent->is_const && n > 1 && (n - 1) * x->k->g->lanes >= extent->value)
        n--;
    return n;
}

static const char *index_name(const Code *x, IndexId i)
{
    return k_text(x->k, "i_%s", x->k->p->m->indices.data[i].name);
}

/* For each of the elements that are read together, of which this is the place. */
static KirOpen open_batch(Code *x, const KirExpr *place)
{
    KirOpen loop = kir_for_var(x->kir, x->j->var, code_int(x, 0), KB_LT, x->together, code_int(x, 1));
    loop.statement->n = -1;
    kir_add(x->kir, (KirStmt){ .kind = KI_LET, .var = (KirVar *)x->batch, .x = { place } });
    return loop;
}

/* What several elements read is read before any of them is computed: `body` is computed for one of them. */
static void elements_together(Code *x, const Apart *a, const KirBlock *body, const KirExpr *from,
                              const Poly *all)
{
    Kir *k = x->kir;
    const KirExpr *extent = code_size(x, all), *lanes = code_int(x, x->k->g->lanes);
    const KirExpr *place = code_add(x, from, code_mul(x, x->j, lanes));
    kir_append(k, &x->batch_arrays);
    if (x->batched.len) {
        KirOpen reads = open_batch(x, kir_call2(k, "cell_nearest", place, extent));
        kir_append(k, &x->batched);
        kir_close(k, reads);
    }
    KirOpen each = open_batch(x, mutate("one-turn") ? from : place);
    const KirExpr *here = kir_var(k, (KirVar *)x->batch);
    KirOpen inside = kir_if(k, code_binary(x, KB_AND, a->mine, code_binary(x, KB_LT, here, extent)));
    kir_append(k, body);
    kir_close(k, inside);
    kir_close(k, each);
}

/* Along the axis: the block's warps by turns. */
static void elements(Code *x, Apart *a, IndexId last, const KirExpr *first)
{
    Kir *k = x->kir;
    const Node r = *k_node(x->k, k_node(x->k, first_sum(x->k))->args[0]);
    const Poly *all = x->k->p->m->indices.data[r.bound[0]].extent;
    const char *name = index_name(x, r.bound[0]);
    const KirExpr *from;
    int hoisted = x->hoisted.len;
    if (strcmp(name, index_name(x, last)) == 0)
        name = k_text(x->k, "o%s", name + 1);
    x->batch = kir_variable(k, name, kir_value(KT_I64), false);
    x->j = kir_var(k, kir_variable(k, "j", kir_value(KT_I32), false));
    x->together = kir_unknown(k, "batch", KT_I32);
    x->batched = x->batch_arrays = (KirBlock){ .data = NULL };
    x->batch_reads = 0;
    KirBlock body = { .data = NULL }, *outer = kir_enter(k, &body);
    CodeNeighbours n = { .along = last, .first = first, .body = element, .data = a };
    code_neighbours(x, &n);
    code_prefetches(x, x->batch);
    kir_enter(k, outer);
    kir_settle(x->together, batch_size(x, all));
    KirOpen loop = code_for(x, "from", a->lane, code_size(x, all),
                            code_mul(x, x->together, code_int(x, x->k->g->lanes)), &from);
    elements_together(x, a, &body, from, all);
    kir_close(k, loop);
    x->hoisted.len = hoisted;
    x->batch = NULL;
}

/* What is left of the rows, when their sums are known. */
static void total(Code *x, void *data)
{
    const Group *g = x->k->g;
    Named kept = { 0 };
    bind_neighbour(x, data);
    for (int i = 0; i < g->arrays.len; i++) {
        NodeId id = g->arrays.data[i];
        code_bind_axes(x, id);
        if (is_sum(x->k, id) && k_is_stored(x->k, id))
            code_store(x, id, x->value[id]);
        else if (!is_sum(x->k, id) && k_node(x->k, id)->naxes == g->naxes)
            code_array(x, id, &kept);
    }
    code_forget(x, &kept);
}

/* What a function does with each sum's part of the scratch. */
static void exchange(Code *x, const Apart *a, const char *function)
{
    const Group *g = x->k->g;
    for (int i = 0, n = 0; i < g->arrays.len; i++) {
        if (!a->sum[i])
            continue;
        const KirExpr *from = code_mul(x, code_int(x, (int64_t)n++ * g->threads), x->n);
        kir_do(x->kir, kir_call2(x->kir, function, code_add(x, a->scratch, from), a->sum[i]));
    }
}

/* The sums' warps, each of which leaves its part, and the first one, which takes them all. */
static void block_of_rows(Code *x, Apart *a, IndexId last, const KirExpr *first)
{
    Kir *k = x->kir;
    const Group *g = x->k->g;
    for (int i = 0; i < g->arrays.len; i++)
        if (is_sum(x->k, g->arrays.data[i]))
            a->sum[i] = kir_array(k, k_local(x->k, "a", g->arrays.data[i]), code_real(x), x->n, true);
    elements(x, a, last, first);
    kir_barrier(k, KIR_BLOCK);
    exchange(x, a, "cell_part_store");
    kir_barrier(k, KIR_BLOCK);
    const KirExpr *leads = code_binary(x, KB_EQ, a->lane, code_int(x, 0));
    KirOpen one = kir_if(k, code_binary(x, KB_AND, leads, a->mine));
    exchange(x, a, "cell_part_sums");
    CodeNeighbours n = { .along = last, .first = first, .body = total, .data = a };
    code_neighbours(x, &n);
    code_prefetches(x, NULL);
    kir_close(k, one);
    for (int i = 0; i < g->arrays.len; i++)
        x->value[g->arrays.data[i]] = NULL;
}

/* All warps of a block have the same rows, or the last ones again. A vector lies in one row of the last
 * axis. */
static void apart_kernel(Code *x)
{
    Kir *k = x->kir;
    const Group *g = x->k->g;
    NodeId sum = first_sum(x->k);
    const IndexId *axes = k_node(x->k, sum)->axes, last = axes[g->naxes - 1];
    const KirExpr *first, *warp = code_int(x, 32), *n = x->n;
    Apart a = { 0 };
    Gather reads;
    k_need_multiple(x->k, g->axes[g->naxes - 1]);
    const KirExpr *elements_of_row = code_let(x, "elements", code_sizes(x, g->axes, g->naxes));
    const KirExpr *all = code_let(x, "all_rows", code_mul(x, code_rows(x), elements_of_row));
    a.lane = kir_let(k, "lane", KT_VOID, kir_special(k, KP_WARP, 0));
    const KirExpr *scratch = code_int(x, (int64_t)g->threads * count_sums(x->k));
    a.scratch = kir_shared_array(k, "scratch", code_real(x), code_mul(x, scratch, n));
    const KirExpr *block = code_mul(x, code_mul(x, kir_special(k, KP_BLOCK, 0), warp), n);
    const KirExpr *blocks = code_mul(x, code_mul(x, kir_special(k, KP_BLOCKS, 0), warp), n);
    KirOpen loop = code_for(x, "first", block, all, blocks, &first);
    const KirExpr *own = code_let(x, "own", code_add(x, first, code_mul(x, kir_special(k, KP_LANE, 0), n)));
    a.mine = kir_let(k, "mine", KT_BOOL, code_binary(x, KB_LT, own, all));
    const KirExpr *at = code_let(x, "n", kir_select(k, a.mine, own, code_sub(x, all, n)));
    const KirExpr *row = code_let(x, "row", code_binary(x, KB_DIV, at, elements_of_row));
    code_split_row(x, row);
    const KirExpr *r = code_let(x, "r", code_sub(x, at, code_mul(x, row, elements_of_row)));
    code_split_element(x, axes, g->naxes, r, "row");
    code_keep_axes(x, sum);
    const KirExpr *e = code_let(x, "e", x->own[g->naxes - 1]);
    x->here.len = 0;
    code_gather(x, &reads);
    block_of_rows(x, &a, last, e);
    code_gather_end(x, &reads);
    x->prefetches.len = 0;
    kir_close(k, loop);
}

void emit_apart(Kernel *k)
{
    Group *g = k->g;
    Code *x = code_of_group(k);
    g->smem = (int64_t)g->threads * count_sums(k) * k_width(k) * kir_bytes(code_real(x));
    x->kir->shared = g->smem;
    x->enough = ENOUGH;
    apart_kernel(x);
    code_settle_width(x);
    g->width = k_width(k);
    g->enough = ENOUGH;
    for (int i = 0; i < k->multiples.len; i++)
        vec_push(k->p->m->arena, &g->multiples, k->multiples.data[i]);
    code_print(k->p, code_end(x), k->out);
}
