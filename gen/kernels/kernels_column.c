/* kernels_column.c: COLUMN groups, sums over batch and time. In comes a group of such sums over the same
 * columns; out go two kernels: rows are cut into chunks, whose sums the first leaves in a buffer of
 * partial sums and the second adds in order. Where a ROW kernel reads the same rows, it leaves the partial
 * sums (a block takes rows at equal distances), and there is no first kernel. How many chunks there are
 * follows from sizes. */
#include <string.h>

#include "base/mutate.h"
#include "code.h"

static bool has_inner(const Kernel *k)
{
    for (int i = 0; i < k->g->arrays.len; i++) {
        const Node *r = k_node(k, k_node(k, k->g->arrays.data[i])->args[0]);
        for (int j = 0; j < r->nbound; j++)
            if (r->bound[j] >= IX_FIRST)
                return true;
    }
    return false;
}

void code_column_term(Code *x, NodeId id, const KirExpr *sum)
{
    Node r = *k_node(x->k, k_node(x->k, id)->args[0]);
    IndexId inner[64];
    const Poly *extents[64];
    const KirExpr *i;
    KirOpen loop = { 0 };
    int n = 0;
    for (int j = 0; j < r.nbound; j++)
        if (r.bound[j] >= IX_FIRST) {
            extents[n] = x->k->p->m->indices.data[r.bound[j]].extent;
            inner[n++] = r.bound[j];
        }
    if (n) {
        loop = code_for(x, "i", code_int(x, 0), code_sizes(x, extents, n), code_int(x, 1), &i);
        code_split_element(x, inner, n, i, "i");
    }
    code_comment(x, id);
    Named named = { 0 };
    const KirExpr *v = code_value(x, r.args[0], &named);
    kir_add_to(x->kir, kir_element(x->kir, sum, x->wide ? x->u : code_int(x, 0)), v);
    code_forget(x, &named);
    if (n)
        kir_close(x->kir, loop);
    for (int j = 0; j < n; j++)
        x->index[inner[j]] = NULL;
}

/* ---- a chunk's sums ---- */

/* A block's columns, a lane's first one, and its sums over the rows from `begin` to `end`. */
typedef struct ColumnSums {
    const KirExpr *rows, *columns, *chunks, *chunk, *begin, *end;
    const KirExpr *lane, *part, *first, *scratch, *sum[64];
} ColumnSums;

static void add_row(Code *x, void *data)
{
    const ColumnSums *s = data;
    const Group *g = x->k->g;
    if (x->wide)
        code_keep_axes(x, g->arrays.data[0]);
    for (int i = 0; i < g->arrays.len; i++) {
        code_bind_axes(x, g->arrays.data[i]);
        code_column_term(x, g->arrays.data[i], s->sum[i]);
    }
}

/* The rows of a chunk that this part of the block takes, for the lane's column or columns. */
static void sum_rows(Code *x, ColumnSums *s, bool wide, const KirExpr *e)
{
    const Group *g = x->k->g;
    const IndexId *axes = k_node(x->k, g->arrays.data[0])->axes;
    const KirExpr *row, *parts = code_int(x, g->threads / COLUMN_WIDTH);
    if (!wide) {
        code_split_element(x, axes, g->naxes, e, "col");
        code_keep_axes(x, g->arrays.data[0]);
    }
    KirOpen loop = code_for(x, "row", code_add(x, s->begin, s->part), s->end, parts, &row);
    code_split_row(x, row);
    CodeNeighbours n = { .along = axes[0], .first = e, .body = add_row, .data = s };
    if (wide)
        code_neighbours(x, &n);
    else
        add_row(x, s);
    kir_close(x->kir, loop);
}

/* The parts' sums of an array, added up and left among the partial sums. */
static void leave_sum(Code *x, const ColumnSums *s, int i, const KirExpr *n, const KirExpr *each)
{
    Kir *k = x->kir;
    const KirExpr *thread = kir_special(k, KP_THREAD, 0), *column = code_add(x, s->first, thread);
    const KirTemplate width = { .of = n };
    kir_do(k, kir_call2(k, "cell_part_store", s->scratch, s->sum[i]));
    if (!mutate("missing-barrier"))
        kir_barrier(k, KIR_BLOCK);
    const KirExpr *there = code_binary(x, KB_LT, column, s->columns);
    KirOpen mine = kir_if(k, code_binary(x, KB_AND, code_binary(x, KB_LT, thread, each), there));
    const KirExpr *row = code_add(x, code_mul(x, code_int(x, i), s->chunks), s->chunk);
    const KirExpr *at = code_move(x, code_mul(x, row, s->columns), column);
    const KirExpr *partial = code_written(x, REF_BUFFER, x->k->g->partial, x->k->p->compute);
    kir_assign(k, kir_element(k, partial, at), kir_call(k, "cell_part_total", &width, 1, &s->scratch, 1));
    kir_close(k, mine);
    kir_barrier(k, KIR_BLOCK);
}

static void sum_block(Code *x, ColumnSums *s)
{
    Kir *k = x->kir;
    const Group *g = x->k->g;
    /* heads: in vectors, few lanes would have some */
    bool few = g->naxes == 1 && plan_counts_heads(x->k->p, x->k->pr, g->axes[0]);
    bool wide = g->naxes == 1 && !few && code_can_be_wide(x, g->axes[0], false) && !has_inner(x->k);
    const KirExpr *n = wide ? x->n : code_int(x, 1), *lanes = code_int(x, COLUMN_WIDTH);
    const KirExpr *each = code_mul(x, lanes, n), *block = kir_special(k, KP_BLOCK, 0);
    if (wide)
        k_need_multiple(x->k, g->axes[0]);
    KirOpen loop = code_for(x, "first", code_mul(x, code_mul(x, block, lanes), n), s->columns,
                            code_mul(x, code_mul(x, kir_special(k, KP_BLOCKS, 0), lanes), n), &s->first);
    const KirExpr *e = code_let(x, "e", code_add(x, s->first, code_mul(x, s->lane, n)));
    for (int i = 0; i < g->arrays.len; i++)
        s->sum[i] = kir_array(k, k_local(x->k, "sum", g->arrays.data[i]), code_real(x), n, true);
    KirOpen inside = kir_if(k, code_binary(x, KB_LT, e, s->columns));
    sum_rows(x, s, wide, e);
    kir_close(k, inside);
    for (int i = 0; i < g->arrays.len; i++)
        leave_sum(x, s, i, n, each);
    kir_close(k, loop);
}

static void column_sums(Code *x)
{
    Kir *k = x->kir;
    const Group *g = x->k->g;
    const KirExpr *width = code_int(x, COLUMN_WIDTH), *thread = kir_special(k, KP_THREAD, 0);
    ColumnSums s = { 0 };
    const KirExpr *numbers = code_int(x, (int64_t)g->threads * k_width(x->k));
    s.scratch = kir_shared_array(k, "scratch", code_real(x), numbers);
    s.rows = code_let(x, "rows", code_rows(x));
    s.columns = code_let(x, "columns", code_sizes(x, g->axes, g->naxes));
    s.chunks = code_let(x, "chunks", kir_special(k, KP_BLOCKS, 1));
    s.chunk = code_let(x, "chunk", kir_special(k, KP_BLOCK, 1));
    const KirExpr *next = code_add(x, s.chunk, code_int(x, 1));
    const KirExpr *end = code_binary(x, KB_DIV, code_mul(x, s.rows, next), s.chunks);
    s.begin = code_let(x, "begin", code_binary(x, KB_DIV, code_mul(x, s.rows, s.chunk), s.chunks));
    if (mutate("lost-tail")) {
        const KirExpr *last = code_binary(x, KB_EQ, next, s.chunks);
        end = code_sub(x, end, kir_select(k, last, code_int(x, 1), code_int(x, 0)));
    }
    s.end = code_let(x, "end", end);
    s.lane = kir_let(k, "lane", KT_VOID, code_binary(x, KB_MOD, thread, width));
    s.part = kir_let(k, "part", KT_VOID, code_binary(x, KB_DIV, thread, width));
    sum_block(x, &s);
}

void emit_column_sums(Kernel *k)
{
    Code *x = code_of_group(k);
    k->g->smem = (int64_t)k->g->threads * k_width(k) * kir_bytes(code_real(x));
    x->kir->shared = k->g->smem;
    column_sums(x);
    code_settle_width(x);
    code_print(k->p, code_end(x), k->out);
}

/* ---- the chunks' sums, added in order ---- */

const Fused *column_ahead(const Program *pr, const Group *g)
{
    const Fused *f = g->by_rows ? pr->groups.data[g->by_rows - 1].fused : NULL;
    return f && f->ahead ? f : NULL;
}

/* How many partial sums of each column the kernel before left. */
const KirExpr *code_chunks(Code *x, const KirExpr *rows, const KirExpr *columns)
{
    const Group *g = x->k->g;
    const Program *pr = x->k->pr;
    if (g->by_rows && pr->groups.data[g->by_rows - 1].kind == G_UNITS)
        return code_batch(x);
    if (g->by_steps || column_ahead(pr, g))       /* the sequences, where one kernel walks the steps */
        return kir_special(x->kir, KP_STEP, 0);
    ColumnCut cut = column_cut(x->k->p, g->by_rows);
    const int by[] = { cut.rows, cut.most, cut.blocks, cut.least, cut.span, cut.group };
    KirTemplate t[6];
    for (int i = 0; i < 6; i++)
        t[i] = (KirTemplate){ .value = by[i] };
    const KirExpr *sizes[] = { rows, columns };
    return kir_call(x->kir, "cell_column_chunks", t, 6, sizes, 2);
}

/* A part's sum of a column, from the partial sums of the i-th array. */
static const KirExpr *part_sum(Code *x, int i, const KirExpr *chunks, const KirExpr *columns,
                               const KirExpr *column, const KirExpr *begin, const KirExpr *end)
{
    const Group *g = x->k->g;
    const char *name = k_local(x->k, "sum", g->arrays.data[i]);
    const KirExpr *sum = kir_array(x->kir, name, code_real(x), code_int(x, 1), false);
    const KirExpr *before = code_mul(x, code_mul(x, code_int(x, i), chunks), columns);
    const KirExpr *partial = code_pointer(x, REF_BUFFER, g->partial, x->k->p->compute);
    const KirExpr *from = code_move(x, code_add(x, partial, before), column);
    const KirExpr *args[] = { from, begin, end, columns };
    kir_assign(x->kir, kir_element(x->kir, sum, code_int(x, 0)),
               kir_call(x->kir, "cell_chunk_sum", NULL, 0, args, 4));
    return sum;
}

/* The parts' sums of a column, added in order. */
static void store_total(Code *x, NodeId id, const KirExpr *sum, const KirExpr *scratch, const KirExpr *stores)
{
    const KirTemplate one = { .value = 1 };
    kir_do(x->kir, kir_call2(x->kir, "cell_part_store", scratch, sum));
    if (!mutate("missing-barrier"))
        kir_barrier(x->kir, KIR_BLOCK);
    KirOpen stored = kir_if(x->kir, stores);
    const KirExpr *total = kir_call(x->kir, "cell_part_total", &one, 1, &scratch, 1);
    code_store(x, id, kir_let(x->kir, k_local(x->k, "a", id), code_real(x), total));
    kir_close(x->kir, stored);
    kir_barrier(x->kir, KIR_BLOCK);
}

static void column_totals(Code *x)
{
    Kir *k = x->kir;
    Group *g = x->k->g;
    const NodeId *arrays = g->arrays.data;
    const KirExpr *width = code_int(x, COLUMN_WIDTH), *parts = code_int(x, g->threads_2 / COLUMN_WIDTH);
    const KirExpr *first, *thread = kir_special(k, KP_THREAD, 0), *sum[64];
    const KirExpr *scratch = kir_shared_array(k, "scratch", code_real(x), code_int(x, g->threads_2));
    const KirExpr *rows = code_let(x, "rows", code_rows(x));
    const KirExpr *columns = code_let(x, "columns", code_sizes(x, g->axes, g->naxes));
    const KirExpr *chunks = code_let(x, "chunks", code_chunks(x, rows, columns));
    const KirExpr *lane = kir_let(k, "lane", KT_VOID, code_binary(x, KB_MOD, thread, width));
    const KirExpr *part = kir_let(k, "part", KT_VOID, code_binary(x, KB_DIV, thread, width));
    const KirExpr *begin = code_let(x, "begin", code_binary(x, KB_DIV, code_mul(x, chunks, part), parts));
    const KirExpr *next = code_add(x, part, code_int(x, 1));
    const KirExpr *end = code_let(x, "end", code_binary(x, KB_DIV, code_mul(x, chunks, next), parts));
    KirOpen loop = code_for(x, "first", code_mul(x, kir_special(k, KP_BLOCK, 0), width), columns,
                            code_mul(x, kir_special(k, KP_BLOCKS, 0), width), &first);
    const KirExpr *column = code_let(x, "column", code_add(x, first, lane));
    const KirExpr *inside = code_binary(x, KB_LT, column, columns);
    const KirExpr *last = code_let(x, "last", kir_select(k, inside, end, begin));
    code_split_element(x, k_node(x->k, arrays[0])->axes, g->naxes, column, "col");
    code_keep_axes(x, arrays[0]);
    x->b = x->t = code_int(x, 0);
    for (int i = 0; i < g->arrays.len; i++)
        sum[i] = part_sum(x, i, chunks, columns, column, begin, last);
    const KirExpr *stores = code_binary(x, KB_AND, code_binary(x, KB_EQ, part, code_int(x, 0)), inside);
    for (int i = 0; i < g->arrays.len; i++) {
        code_bind_axes(x, arrays[i]);
        store_total(x, arrays[i], sum[i], scratch, stores);
    }
    kir_close(k, loop);
}

void emit_column_totals(Kernel *k)
{
    k->threads = k->g->threads_2;
    Code *x = code_new(k, intern_f(k->p->m->c, "%s_2", k->g->kernel));
    x->kir->shared = (int64_t)k->g->threads_2 * kir_bytes(code_real(x));
    x->kir->resident = k->threads == 1024;        /* ptxas spills for the second that it hopes for */
    x->kir->waits = true;
    column_totals(x);
    code_print(k->p, code_end(x), k->out);
}

/* ---- the first stage inside a ROW kernel ---- */

/* Sums run only where the call wants one of them. */
static const KirExpr *wanted(Code *x, const Group *sums)
{
    const KirExpr *any = NULL;
    TensorId of;
    for (int i = 0; i < sums->arrays.len; i++) {
        NodeId id = sums->arrays.data[i];
        bool root = root_kind(x->k->p->m, id, &of) != ROOT_NONE;
        const KirExpr *one =
            root ? code_pointer(x, REF_NODE, id, x->k->pr->node[id].dtype) : kir_truth(x->kir, true);
        any = any ? code_binary(x, KB_OR, any, one) : one;
    }
    if (kir_is_place(any->type))
        any = code_binary(x, KB_NE, any, kir_null(x->kir, any->type));
    return kir_let(x->kir, "wanted", KT_BOOL, any);
}

void column_open(Code *x, RowSums *s)
{
    Kir *k = x->kir;
    const KirExpr *partial = code_written(x, REF_BUFFER, s->of->partial, x->k->p->compute);
    const KirExpr *columns = code_let(x, "columns", code_size(x, s->of->axes[0]));
    const KirExpr *chunks = code_let(x, "chunks", kir_special(k, KP_BLOCKS, 0));
    s->chunk = code_let(x, "chunk", kir_special(k, KP_BLOCK, 0));
    const KirExpr *given = wanted(x, s->of);
    for (int i = 0; i < s->of->arrays.len; i++) {
        const KirExpr *row = code_add(x, code_mul(x, code_int(x, i), chunks), s->chunk);
        const KirExpr *at = code_add(x, partial, code_mul(x, row, columns));
        const char *name = k_local(x->k, "columns", s->of->arrays.data[i]);
        s->sums[i] = kir_row(k, name, KL_COLUMNS, code_real(x), x->slots->vectors, x->n,
                             kir_select(k, given, at, kir_null(k, partial->type)));
    }
}

void column_add(Code *x, const RowSums *s, const KirExpr *along)
{
    Kir *k = x->kir;
    const KirExpr *number = x->slots->number, *e = kir_var(k, x->slots->place);
    const bool loses = mutate("lost-tail");
    for (int i = 0; i < s->of->arrays.len; i++) {
        NodeId id = s->of->arrays.data[i];
        KirBlock *body = kir_enter(k, &x->loads);
        const KirExpr *sum = kir_array(k, k_local(x->k, "sum", id), code_real(x), x->n, false);
        const KirExpr *first = code_binary(x, KB_EQ, s->row, s->chunk);
        kir_do(k, kir_call(k, ".open", NULL, 0, (const KirExpr *[]){ s->sums[i], sum, number, e, first }, 5));
        kir_enter(k, &x->stores);
        KirOpen but_last = { 0 };
        if (loses)
            but_last = kir_if(k, code_binary(x, KB_LT, code_add(x, s->row, code_int(x, 1)), s->rows));
        kir_do(k, kir_call(k, ".close", NULL, 0, (const KirExpr *[]){ s->sums[i], sum, number, e }, 4));
        if (loses)
            kir_close(k, but_last);
        kir_enter(k, body);
        x->index[k_node(x->k, id)->axes[0]] = along;
        code_column_term(x, id, sum);
    }
}

void column_flush(Code *x, const RowSums *s, const KirExpr *lanes)
{
    Kir *k = x->kir;
    SlotLoop loop = code_open_slots(x, code_count_slots(x, code_mul(x, lanes, x->n)), lanes);
    const KirExpr *e = kir_var(k, x->slots->place), *none = code_binary(x, KB_GE, s->chunk, s->rows);
    for (int i = 0; i < s->of->arrays.len; i++)
        kir_do(k, kir_call(k, ".flush", NULL, 0, (const KirExpr *[]){ s->sums[i], x->slots->number, e, none },
                           4));
    code_close_slots(x, loop);
}
