/* cpu_row.c: ROW groups. In comes a group of reductions along a row and of what is pointwise around
 * them, ordered by how many reductions stand before each; out goes a kernel whose item is a row, or a chunk
 * of rows where it takes sums of columns along (Group.sums). A
 * reduction is kept in 16 or 64 lanes along its last axis, which a fixed tree adds up; reductions along
 * one axis that do not wait for one another share a loop. */
#include <math.h>

#include "cpu.h"

static Node reduction_of(const Code *x, NodeId id)
{
    return *k_node(x->k, k_node(x->k, id)->args[0]);
}

static const KirExpr *start(Code *x, ReduceOp r)
{
    if (r == R_MAX || r == R_MIN)
        return kir_real(x->kir, code_real(x), r == R_MAX ? -HUGE_VAL : HUGE_VAL);
    return kir_real(x->kir, code_real(x), r == R_PROD);
}

static void join(Code *x, ReduceOp r, const KirExpr *to, const KirExpr *term)
{
    if (r == R_MAX || r == R_MIN)
        kir_assign(x->kir, to, kir_call2(x->kir, r == R_MAX ? "cell_max" : "cell_min", term, to));
    else
        kir_add(x->kir,
                (KirStmt){ .kind = KI_ASSIGN, .op = r == R_PROD ? KB_MUL : KB_ADD, .x = { to, term } });
}

/* How many of them. */
static int lanes_along(const Poly *extent)
{
    return extent->is_const && extent->value < CPU_LONG ? CPU_LANES : CPU_MANY_LANES;
}

static const char *whole_name(ReduceOp r)
{
    return r == R_MAX    ? "cell_lanes_max"
           : r == R_MIN  ? "cell_lanes_min"
           : r == R_PROD ? "cell_lanes_prod"
                         : "cell_lanes_sum";
}

/* Neither reads the other, and their axes are as long. */
bool cpu_shares_loop(const Code *x, int first, int other)
{
    const Group *g = x->k->g;
    NodeId a = g->arrays.data[first], b = g->arrays.data[other];
    if (!plan_reduces(x->k->p, b) || k_node(x->k, b)->naxes != k_node(x->k, a)->naxes || !g->depth ||
        g->depth[first] != g->depth[other])
        return false;
    Node r = reduction_of(x, a), s = reduction_of(x, b);
    const Index *indices = x->k->p->m->indices.data;
    if (r.nbound != s.nbound)
        return false;
    for (int i = 0; i < r.nbound; i++)
        if (indices[r.bound[i]].extent != indices[s.bound[i]].extent)
            return false;
    return true;
}

void cpu_terms(Code *x, CpuRun run, int row_axes, const KirExpr *const *sums, const KirExpr *lane)
{
    Node r = reduction_of(x, run.ids[0]);
    const KirExpr *own[64] = { NULL };
    for (int i = 0; i < r.nbound; i++)
        own[i] = x->index[r.bound[i]];
    for (int k = 0; k < run.n; k++) {
        NodeId id = run.ids[k];
        Node s = reduction_of(x, id);
        cpu_bind_axes(x, id, row_axes);
        for (int i = 0; i < s.nbound; i++)
            x->index[s.bound[i]] = own[i];
        code_comment(x, id);
        Named named = { 0 };
        const KirExpr *v = code_value(x, s.args[0], &named);
        join(x, s.reduce, kir_element(x->kir, sums[k], lane), v);
        code_forget(x, &named);
    }
    for (int i = 0; i < r.nbound; i++) /* the others may have the same indices in another order */
        x->index[r.bound[i]] = own[i];
}

/* Some lanes, from index `base` on: all of them, or those that are left; true: they read scratch memory. */
static bool lanes(Code *x, CpuRun run, int row_axes, const KirExpr *const *sums, const KirExpr *base,
                  const KirExpr *n)
{
    Node r = reduction_of(x, run.ids[0]);
    IndexId last = r.bound[r.nbound - 1];
    const char *name = x->k->p->m->indices.data[last].name;
    const KirExpr *lane;
    KirOpen loop = code_for(x, names_fresh(&x->k->locals, "lane"), code_int(x, 0), n, code_int(x, 1), &lane);
    loop.statement->n = KIR_LANES;
    x->index[last] =
        code_let(x, names_fresh(&x->k->locals, k_text(x->k, "i_%s", name)), code_add(x, base, lane));
    const KirExpr *at = x->index[last];
    cpu_terms(x, run, row_axes, sums, lane);
    return cpu_close_lanes(x, loop, at);
}

void cpu_scratch_of_row(const Code *x, const Poly *extent, const Formula **scratch)
{
    Module *m = x->k->p->m;
    const Formula *bytes = formula_with(m, F_MUL, formula_size(m, extent), 8);
    *scratch = *scratch ? formula(m, F_MAX, *scratch, bytes) : bytes;
}

/* Behind the reductions that share a loop with the one at `begin`. */
static int reductions_end(const Code *x, int begin)
{
    int end = begin + 1;
    while (end < x->k->g->arrays.len && end - begin < 64 && cpu_shares_loop(x, begin, end))
        end++;
    return end;
}

const KirExpr *cpu_sum_array(Code *x, NodeId id, const char *name, const KirExpr *width)
{
    const KirExpr *lane;
    ReduceOp op = reduction_of(x, id).reduce;
    bool zeros = op != R_MAX && op != R_MIN && op != R_PROD;
    const KirExpr *sums = kir_array(x->kir, name, code_real(x), width, true);
    if (zeros)
        return sums;
    KirOpen loop =
        code_for(x, names_fresh(&x->k->locals, "lane"), code_int(x, 0), width, code_int(x, 1), &lane);
    kir_assign(x->kir, kir_element(x->kir, sums, lane), start(x, op));
    kir_close(x->kir, loop);
    return sums;
}

void cpu_reductions(Code *x, CpuRun run, int row_axes, Named *kept, const Formula **scratch)
{
    Node r = reduction_of(x, run.ids[0]);
    IndexId last = r.bound[r.nbound - 1];
    const int count = lanes_along(x->k->p->m->indices.data[last].extent);
    const KirTemplate of_count = { .value = count };
    const KirExpr *sums[64], *base, *width = code_int(x, count);
    KirOpen open[64];
    for (int i = 0; i < run.n; i++)
        sums[i] = cpu_sum_array(x, run.ids[i], k_local(x->k, "lanes", run.ids[i]), width);
    int n = cpu_open_indices(x, r.bound, r.nbound - 1, "i", false, open);
    const KirExpr *extent = code_size(x, x->k->p->m->indices.data[last].extent);
    const KirExpr *whole = code_let(x, names_fresh(&x->k->locals, "whole"),
                                    code_sub(x, extent, code_binary(x, KB_MOD, extent, width)));
    KirOpen loop = code_for(x, names_fresh(&x->k->locals, "base"), code_int(x, 0), whole, width, &base);
    bool reads = lanes(x, run, row_axes, sums, base, width);
    kir_close(x->kir, loop);
    reads |= lanes(x, run, row_axes, sums, whole, code_sub(x, extent, whole));
    if (reads)
        cpu_scratch_of_row(x, x->k->p->m->indices.data[last].extent, scratch);
    cpu_close_all(x, open, n);
    for (int i = 0; i < run.n; i++) {
        NodeId id = run.ids[i];
        const char *join_all = whole_name(reduction_of(x, id).reduce);
        const KirExpr *v = kir_call(x->kir, join_all, &of_count, 1, &sums[i], 1);
        x->value[id] = kir_let(x->kir, k_local(x->k, "a", id), code_real(x), v);
        vec_push(x->k->p->m->arena, kept, id);
        cpu_bind_axes(x, id, row_axes);
        if (k_is_stored(x->k, id))
            code_store(x, id, x->value[id]);
    }
}

/* Behind the neighbours, of the same extent, that share a loop with the one at `begin`. */
static int vectors_end(const Code *x, int begin)
{
    const Group *g = x->k->g;
    const Index *indices = x->k->p->m->indices.data;
    const Poly *extent = indices[k_node(x->k, g->arrays.data[begin])->axes[g->naxes]].extent;
    int end = begin;
    while (end < g->arrays.len && k_node(x->k, g->arrays.data[end])->naxes > g->naxes &&
           indices[k_node(x->k, g->arrays.data[end])->axes[g->naxes]].extent == extent)
        end++;
    return end;
}

static bool is_made(const Code *x, NodeId id)
{
    return x->k->g->pointwise || k_is_stored(x->k, id) || x->held[id];
}

void cpu_vectors(Code *x, CpuRun run, CpuSums *sums, const Formula **scratch)
{
    const Group *g = x->k->g;
    IndexId along = k_node(x->k, run.ids[0])->axes[g->naxes];
    bool any = false;
    for (int i = 0; i < run.n; i++)
        any |= is_made(x, run.ids[i]);
    if (!any)
        return;
    KirOpen loop;
    Named kept = { 0 };
    cpu_open_indices(x, &along, 1, "i", true, &loop);
    const KirExpr *here = x->index[along];
    for (int i = 0; i < run.n; i++) {
        NodeId id = run.ids[i];
        cpu_bind_axes(x, id, g->naxes);
        x->index[k_node(x->k, id)->axes[g->naxes]] = here;
        if (is_made(x, id))
            code_array(x, id, &kept);
        if (x->held[id])
            kir_store(x->kir, code_add(x, x->held[id], here), x->value[id], NULL);
    }
    if (sums && sums->of && run.ids + run.n == g->arrays.data + g->arrays.len) {
        cpu_add_sums(x, sums, here);
        sums->of = NULL;
    }
    code_forget(x, &kept);
    if (cpu_close_lanes(x, loop, here))
        cpu_scratch_of_row(x, x->k->p->m->indices.data[along].extent, scratch);
}

/* The axes of a row's index. Of sums over the past an array's own. */
static int row_axes_of(const Kernel *k)
{
    return k->g->past ? k_node(k, k->g->arrays.data[0])->naxes : k->g->naxes;
}

/* Per array of the group, the number of the loop that it is in. */
static int *loops_of(Code *x, int n)
{
    const Group *g = x->k->g;
    int *loop = arena_alloc(x->kir->arena, sizeof *loop * (size_t)(g->arrays.len + 1));
    for (int i = 0, number = 0; i < g->arrays.len; number++) {
        NodeId id = g->arrays.data[i];
        int end = plan_reduces(x->k->p, id)     ? reductions_end(x, i)
                  : k_node(x->k, id)->naxes > n ? vectors_end(x, i)
                                                : i + 1;
        for (; i < end; i++)
            loop[i] = number;
    }
    return loop;
}

/* The same in a loop of their own, where the last one is none along the row. */
static void sums_alone(Code *x, const CpuSums *sums, const Formula **scratch)
{
    const KirExpr *here;
    KirOpen loop =
        code_for(x, names_fresh(&x->k->locals, "lane"), code_int(x, 0), sums->columns, code_int(x, 1), &here);
    loop.statement->n = KIR_LANES;
    cpu_add_sums(x, sums, here);
    if (cpu_close_lanes(x, loop, here))
        cpu_scratch_of_row(x, sums->of->axes[0], scratch);
}

/* What is done for a row. */
static void row_body(Code *x, int n, CpuSums sums, const Formula **scratch)
{
    const Group *g = x->k->g;
    Named kept = { 0 };
    for (int i = 0; i < g->arrays.len;) {
        NodeId id = g->arrays.data[i];
        cpu_bind_axes(x, id, n);
        if (plan_reduces(x->k->p, id)) {
            CpuRun run = { &g->arrays.data[i], reductions_end(x, i) - i };
            cpu_reductions(x, run, n, &kept, scratch);
            i += run.n;
        } else if (k_node(x->k, id)->naxes > n) {
            CpuRun run = { &g->arrays.data[i], vectors_end(x, i) - i };
            cpu_vectors(x, run, &sums, scratch);
            i += run.n;
        } else {
            code_array(x, id, &kept);
            i++;
        }
    }
    if (sums.of)
        sums_alone(x, &sums, scratch);
    code_forget(x, &kept);
}

/* Gives the loop over the rows; NULL: an item is a part of one. */
static KirStmt *rows(Code *x, int n, const Formula **scratch)
{
    const Group *g = x->k->g;
    const Node first = *k_node(x->k, g->arrays.data[0]);
    const Poly *axes[64];
    const KirExpr *item, *element;
    for (int i = 0; i < n; i++)
        axes[i] = x->k->p->m->indices.data[first.axes[i]].extent;
    CpuTables tables = { .n = 0 };
    CpuSums sums;
    *scratch = cpu_hold_rows(x, n, loops_of(x, n), false, &tables);
    const KirExpr *of_row = n ? code_let(x, "elements", code_sizes(x, axes, n)) : code_int(x, 1);
    cpu_begin_tables(x, &tables);
    cpu_begin_sums(x, &sums);
    KirOpen items = cpu_items(x, &item), chunk;
    const KirExpr *row = cpu_divide(x, "row", item, of_row, &element);
    const bool chunked = sums.of != NULL;
    if (chunked)
        chunk = cpu_open_chunk(x, &sums, item, &row);
    code_split_row(x, row);
    x->of_row = n ? row : NULL;
    cpu_fill_tables(x, &tables, row);
    if (n)
        code_split_element(x, first.axes, n, element, "r");
    cpu_keep_axes(x, g->arrays.data[0], n);
    row_body(x, n, sums, scratch);
    KirStmt *all = chunked ? chunk.statement : n ? NULL : items.statement;
    if (chunked)
        kir_close(x->kir, chunk);
    kir_close(x->kir, items);
    return all;
}

/* Elements that a row's loops run over, for how much work it is; of a chunk of rows, all of theirs. */
static const Formula *row_work(const Kernel *k, int n)
{
    Module *m = k->p->m;
    const Formula *work = formula_const(m, 16);
    for (int i = 0; i < k->g->arrays.len; i++) {
        const Node *a = k_node(k, k->g->arrays.data[i]), *r = k_node(k, a->args[0]);
        const Poly *each = poly_const(m, 8);
        if (plan_reduces(k->p, k->g->arrays.data[i]))
            for (int j = 0; j < r->nbound; j++)
                each =
                    r->bound[j] >= IX_FIRST ? poly_mul(m, each, m->indices.data[r->bound[j]].extent) : each;
        else if (a->naxes > n)
            each = poly_mul(m, each, m->indices.data[a->axes[n]].extent);
        work = formula(m, F_ADD, work, formula_size(m, each));
    }
    const Group *sums = k->g->sums ? &k->pr->groups.data[k->g->sums - 1] : NULL;
    if (!sums)
        return work;
    const Formula *rows = formula(m, F_CEILDIV, cpu_rows(k->p, k->g), cpu_chunks(k->p, sums));
    return formula(m, F_MUL, rows, work);
}

void cpu_row(Kernel *k, CpuKernel *out, Buf *text)
{
    Plan *p = k->p;
    Group *g = k->g;
    int n = row_axes_of(k);
    const Poly *elements = poly_const(p->m, 1);
    for (int i = 0; i < n; i++)
        elements = poly_mul(p->m, elements, p->m->indices.data[k_node(k, g->arrays.data[0])->axes[i]].extent);
    Code *x = cpu_open(k, g->kernel);
    *out = (CpuKernel){ .name = g->kernel, .refs = &g->refs, .work = row_work(k, n) };
    CpuBlocks *blocks = cpu_blocks(x, n);
    KirStmt *all = blocks ? NULL : rows(x, n, &out->scratch);
    if (blocks)
        cpu_block_rows(x, blocks, &out->scratch);
    out->items = blocks    ? formula(p->m, F_MUL, cpu_rows(p, g), cpu_block_items(x, n))
                 : g->sums ? cpu_chunks(p, &k->pr->groups.data[g->sums - 1])
                           : formula(p->m, F_MUL, cpu_rows(p, g), formula_size(p->m, elements));
    if (blocks)
        out->work = formula_with(p->m, F_MUL, out->work, CPU_SIDE);
    cpu_hoist(x);
    if (all && g->phase != PHASE_DURING)
        cpu_ahead(x, all);
    cpu_finish(x, text);
}
