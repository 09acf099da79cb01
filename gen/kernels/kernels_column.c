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

/* Adds the row's term to the array's sum of this column. */
void column_term(Kernel *k, NodeId id, const char *sum)
{
    Node r = *k_node(k, k_node(k, id)->args[0]);
    IndexId inner[64];
    const Poly *extents[64];
    int n = 0;
    for (int i = 0; i < r.nbound; i++)
        if (r.bound[i] >= IX_FIRST) {
            extents[n] = k->p->m->indices.data[r.bound[i]].extent;
            inner[n++] = r.bound[i];
        }
    if (n) {
        k_open(k, "for (int64_t i = 0; i < %s; i++)", k_product(k, extents, n));
        k_split_element(k, inner, n, "i", "i");
    }
    k_comment(k, id);
    Named named = { 0 };
    const char *v = k_body(k, r.args[0], &named);
    buf_line(k->out, "%s[%s] += %s;", sum, k->wide ? "u" : "0", v);
    k_forget(k, &named);
    if (n)
        k_close(k);
    for (int i = 0; i < n; i++)
        k->index[inner[i]] = NULL;
}

/* The rows of a chunk that this part of the block takes, for the lane's column or columns. */
static void sum_rows(Kernel *k, const char *const *sum, bool wide)
{
    Group *g = k->g;
    NodeId first = g->arrays.data[0];
    Buf *out = k->out, inner;
    if (!wide) {
        k_split_element(k, k_node(k, first)->axes, g->naxes, "e", "col");
        k_keep_axes(k, first);
    }
    k_open(k, "for (int64_t row = begin + part; row < end; row += %d)", g->threads / COLUMN_WIDTH);
    k_split_row(k, "row");
    if (wide) {
        k_wide_begin(k, k_node(k, first)->axes[0], &inner);
        k->hoists.indent++;
        k_keep_axes(k, first);
    }
    for (int i = 0; i < g->arrays.len; i++) {
        k_bind_axes(k, g->arrays.data[i]);
        column_term(k, g->arrays.data[i], sum[i]);
    }
    if (wide) {
        buf_f(out, "%s", k->hoists.data ? k->hoists.data : "");
        k_wide_end(k, out, &inner);
    }
    k_close(k);
}

static void column_block(Kernel *k)
{
    Group *g = k->g;
    /* heads: in vectors, few lanes would have some */
    bool few = g->naxes == 1 && g->axes[0] == walk_blocks(k->pr);
    bool wide = g->naxes == 1 && !few && k_can_be_wide(k, g->axes[0], false) && !has_inner(k);
    const char *n = wide ? k->n : "1", *sum[64];
    const char *each = wide ? k_text(k, "%d * %s", COLUMN_WIDTH, n) : k_text(k, "%d", COLUMN_WIDTH);
    if (wide)
        k_need_multiple(k, g->axes[0]);
    k_open(k, "for (int64_t first = cell_block_index(0) * %s; first < columns; "
              "first += cell_block_count(0) * %s)",
           each, each);
    buf_line(k->out, wide ? "const int64_t e = first + lane * %s;" : "const int64_t e = first + lane;", n);
    for (int i = 0; i < g->arrays.len; i++) {
        sum[i] = k_local(k, "sum", g->arrays.data[i]);
        buf_line(k->out, "%s %s[%s] = {};", k->real, sum[i], n);
    }
    k_open(k, "if (e < columns)");
    sum_rows(k, sum, wide);
    k_close(k);
    for (int i = 0; i < g->arrays.len; i++) {
        buf_line(k->out, "cell_part_store(scratch, %s);", sum[i]);
        buf_line(k->out, mutate("missing-barrier") ? "" : "cell_barrier();");
        buf_line(k->out, "if (cell_thread() < %s && first + cell_thread() < columns)", each);
        buf_line(k->out, "    %s[(%d * chunks + chunk) * columns + first + cell_thread()] = "
                         "cell_part_total<%s>(scratch);",
                 k_written(k, REF_BUFFER, g->partial, k->p->compute), i, n);
        buf_line(k->out, "cell_barrier();");
    }
    k_close(k);
}

static void print_scratch(Kernel *k, const char *elements)
{
    buf_line(k->out, "auto cursor = cell_shared();");
    buf_line(k->out, "cell_smem<%s> scratch = cell_carve<%s>(cursor, %s);", k->real, k->real, elements);
    buf_line(k->out, "[[maybe_unused]] const int64_t rows = %s;", k_rows(k));
    buf_line(k->out, "const int64_t columns = %s;", k_product(k, k->g->axes, k->g->naxes));
}

static void print_sums(Kernel *k)
{
    print_scratch(k, k_text(k, "%d", k->g->threads * k_width(k)));
    buf_line(k->out, "const int64_t chunks = cell_block_count(1), chunk = cell_block_index(1);");
    buf_line(k->out, "const int64_t begin = rows * chunk / chunks, end = rows * (chunk + 1) / chunks%s;",
             mutate("lost-tail") ? " - (chunk + 1 == chunks)" : "");
    buf_line(k->out, "const int lane = cell_thread() %% %d, part = cell_thread() / %d;", COLUMN_WIDTH,
             COLUMN_WIDTH);
    column_block(k);
}

void emit_column_sums(Kernel *k)
{
    k->threads = k->g->threads;
    k_print(k, k->g->kernel, print_sums);
    k->g->smem = (int64_t)k->g->threads * k_width(k) * (k->p->compute == DT_F64 ? 8 : 4);
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
    ColumnCut cut = column_cut(g->by_rows);
    const int by[] = { cut.rows, cut.most, cut.blocks, cut.least, cut.span, cut.group };
    KirTemplate t[6];
    for (int i = 0; i < 6; i++)
        t[i] = (KirTemplate){ KT_VOID, by[i] };
    const KirExpr *sizes[] = { rows, columns };
    return kir_call(x->kir, "cell_column_chunks", t, 6, sizes, 2);
}

/* A part's sum of a column, from the partial sums of the i-th array. */
static const KirExpr *part_sum(Code *x, int i, const KirExpr *chunks, const KirExpr *columns,
                               const KirExpr *column, const KirExpr *begin, const KirExpr *end)
{
    const Group *g = x->k->g;
    const KirExpr *sum = kir_array(x->kir, k_local(x->k, "sum", g->arrays.data[i]), code_real(x), 1, false);
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
    const KirTemplate one = { KT_VOID, 1 };
    kir_do(x->kir, kir_call2(x->kir, "cell_part_store", scratch, sum));
    if (!mutate("missing-barrier"))
        kir_barrier(x->kir, KIR_BLOCK);
    KirOpen stored = kir_if(x->kir, stores);
    const KirExpr *total = kir_call(x->kir, "cell_part_total", &one, 1, &scratch, 1);
    code_store(x, id, kir_let(x->kir, k_local(x->k, "a", id), code_real(x), total));
    kir_close(x->kir, stored);
    kir_barrier(x->kir, KIR_BLOCK);
}

/* Arrays of one group may name their axes differently: each position has one index. */
static void bind_axes(Code *x, NodeId array, const KirExpr *const *own)
{
    for (int i = 0; i < x->k->g->naxes; i++)
        x->index[k_node(x->k, array)->axes[i]] = own[i];
}

static void column_totals(Code *x)
{
    Kir *k = x->kir;
    Group *g = x->k->g;
    const NodeId *arrays = g->arrays.data;
    const KirExpr *width = code_int(x, COLUMN_WIDTH), *parts = code_int(x, g->threads_2 / COLUMN_WIDTH);
    const KirExpr *first, *thread = kir_special(k, KP_THREAD, 0), *sum[64], *own[64];
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
    for (int i = 0; i < g->naxes; i++)
        own[i] = x->index[k_node(x->k, arrays[0])->axes[i]];
    x->b = x->t = code_int(x, 0);
    for (int i = 0; i < g->arrays.len; i++)
        sum[i] = part_sum(x, i, chunks, columns, column, begin, last);
    const KirExpr *stores = code_binary(x, KB_AND, code_binary(x, KB_EQ, part, code_int(x, 0)), inside);
    for (int i = 0; i < g->arrays.len; i++) {
        bind_axes(x, arrays[i], own);
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

static const char *name_of(const Kernel *k, NodeId id)
{
    return k->value[id] + strlen("sum");
}

/* Sums run only where the call wants one of them. */
void column_open(Kernel *k, const Group *sums)
{
    const char *partial = k_written(k, REF_BUFFER, sums->partial, k->p->compute);
    Buf wanted = { .arena = k->out->arena };
    TensorId of;
    for (int i = 0; i < sums->arrays.len; i++) {
        NodeId id = sums->arrays.data[i];
        bool root = root_kind(k->p->m, id, &of) != ROOT_NONE;
        buf_f(&wanted, "%s%s", i ? " || " : "",
              root ? k_pointer(k, REF_NODE, id, k->pr->node[id].dtype) : "true");
    }
    buf_line(k->out, "const int64_t columns = %s;", poly_text(&k->printer, sums->axes[0]));
    buf_line(k->out, "const int64_t chunks = cell_block_count(0), chunk = cell_block_index(0);");
    buf_line(k->out, "const bool wanted = %s;", wanted.data);
    for (int i = 0; i < sums->arrays.len; i++) {
        NodeId id = sums->arrays.data[i];
        k->value[id] = k_local(k, "sum", id);
        const char *place = i == 0 ? "chunk * columns"
                            : i == 1 ? "(chunks + chunk) * columns"
                                     : k_text(k, "(%d * chunks + chunk) * columns", i);
        buf_line(k->out, "cell_column_sums<%s, %s, %s> columns%s(wanted ? %s + %s : nullptr);", k->real, k->n,
                 k->slots ? k->slots : "0", name_of(k, id), partial, place);
    }
}

void column_add(Kernel *k, const Group *sums, const char *along)
{
    if (mutate("lost-tail"))
        buf_line(k->out, "if (row + 1 == rows) break;");
    for (int i = 0; i < sums->arrays.len; i++) {
        NodeId id = sums->arrays.data[i];
        const char *sum = k->value[id], *name = name_of(k, id);
        buf_line(&k->loads, "%s %s[%s];", k->real, sum, k->n);
        buf_line(&k->loads, "columns%s.open(%s, s, e, row == chunk);", name, sum);
        buf_line(&k->stores, "columns%s.close(%s, s, e);", name, sum);
        k->index[k_node(k, id)->axes[0]] = along;
        column_term(k, id, sum);
    }
}

void column_flush(Kernel *k, const Group *sums)
{
    if (k->trial)
        return;
    const char *lanes = k->g->lanes == 32 ? "32" : "lanes";
    k_open_slots(k, k_text(k, "cell_slots<%s>(length, %s * %s)", k->slots, lanes, k->n), lanes);
    for (int i = 0; i < sums->arrays.len; i++)
        buf_line(k->out, "columns%s.flush(s, e, chunk >= rows);", name_of(k, sums->arrays.data[i]));
    k_close_slots(k);
}
