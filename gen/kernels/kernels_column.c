/* kernels_column.c: CUDA text of COLUMN groups, sums over batch and time. In comes a group of such sums over the
 * same columns; out go two kernels: rows are cut into chunks, whose sums the first leaves in a buffer of partial
 * sums and the second adds in order. Where a ROW kernel reads the same rows, it leaves the partial sums (its
 * block takes every so many rows), and there is no first kernel. How many chunks there are follows from sizes. */
#include <string.h>

#include "base/mutate.h"
#include "kernels.h"

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
    bool few = g->naxes == 1 && g->axes[0] == walk_blocks(k->pr);     /* heads: in vectors, few lanes would have some */
    bool wide = g->naxes == 1 && !few && k_can_be_wide(k, g->axes[0], false) && !has_inner(k);
    const char *n = wide ? k->n : "1", *sum[64];
    const char *each = wide ? k_text(k, "%d * %s", COLUMN_WIDTH, n) : k_text(k, "%d", COLUMN_WIDTH);
    if (wide)
        k_need_multiple(k, g->axes[0]);
    k_open(k, "for (int64_t first = cell_block_index(0) * %s; first < columns; first += cell_block_count(0) * %s)",
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

static void print_total(Kernel *k, NodeId id, const char *sum)
{
    k_bind_axes(k, id);
    buf_line(k->out, "cell_part_store(scratch, %s);", sum);
    buf_line(k->out, mutate("missing-barrier") ? "" : "cell_barrier();");
    k_open(k, "if (part == 0 && column < columns)");
    const char *total = k_local(k, "a", id);
    buf_line(k->out, "const %s %s = cell_part_total<1>(scratch);", k->real, total);
    k_store(k, id, total);
    k_close(k);
    buf_line(k->out, "cell_barrier();");
}

const Fused *column_ahead(const Program *pr, const Group *g)
{
    const Fused *f = g->by_rows ? pr->groups.data[g->by_rows - 1].fused : NULL;
    return f && f->ahead ? f : NULL;
}

static void print_totals(Kernel *k)
{
    Group *g = k->g;
    NodeId first = g->arrays.data[0];
    int parts = g->threads_2 / COLUMN_WIDTH;
    ColumnCut cut = column_cut(g->by_rows);
    print_scratch(k, k_text(k, "%d", g->threads_2));
    if (g->by_rows && k->pr->groups.data[g->by_rows - 1].kind == G_SCAN)
        buf_line(k->out, "const int64_t chunks = dim_B;");
    else if (g->by_steps || column_ahead(k->pr, g))
        buf_line(k->out, "const int64_t chunks = args.t;");       /* the sequences, where one kernel walks the steps */
    else
        buf_line(k->out, "const int64_t chunks = cell_column_chunks<%d, %d, %d, %d%s>(rows, columns);", cut.rows,
                 cut.most, cut.blocks, cut.least, cut.group > 1 ? k_text(k, ", %d, %d", cut.span, cut.group) : "");
    buf_line(k->out, "const int lane = cell_thread() %% %d, part = cell_thread() / %d;", COLUMN_WIDTH,
             COLUMN_WIDTH);
    buf_line(k->out, "const int64_t begin = chunks * part / %d, end = chunks * (part + 1) / %d;", parts,
             parts);
    k_open(k, "for (int64_t first = cell_block_index(0) * %d; first < columns; first += cell_block_count(0) * %d)",
           COLUMN_WIDTH, COLUMN_WIDTH);
    buf_line(k->out, "const int64_t column = first + lane, last = column < columns ? end : begin;");
    k_split_element(k, k_node(k, first)->axes, g->naxes, "column", "col");
    k_keep_axes(k, first);
    k->b = k->t = "0";
    const char *from, *sum[64];
    for (int i = 0; i < g->arrays.len; i++) {
        sum[i] = k_local(k, "sum", g->arrays.data[i]);
        from = k_text(k, i == 0 ? "%s + column" : i == 1 ? "%s + chunks * columns + column"
                                                         : "%s + %d * chunks * columns + column",
                      k_pointer(k, REF_BUFFER, g->partial, k->p->compute), i);
        buf_line(k->out, "const %s %s[1] = { cell_chunk_sum(%s, begin, last, columns) };", k->real, sum[i], from);
    }
    for (int i = 0; i < g->arrays.len; i++)
        print_total(k, g->arrays.data[i], sum[i]);
    k_close(k);
}

void emit_column_totals(Kernel *k)
{
    k->threads = k->g->threads_2;
    k_print(k, intern_f(k->p->m->c, "%s_2", k->g->kernel), print_totals);
}

/* ---- the first stage inside a ROW kernel ---- */

static const char *name_of(const Kernel *k, NodeId id)
{
    return k->value[id] + strlen("sum");
}

/* Nobody sums what nobody wants. */
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
