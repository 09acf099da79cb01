/* cpu_column.c: COLUMN groups, sums over batch and time. In comes a group of such sums over the same
 * columns; out go two kernels. An item of the first is a chunk of rows and a piece of the columns, whose
 * sums it leaves in the buffer of partial sums; the second adds these in order. How many chunks there
 * are follows from sizes. Where a ROW group has these rows (Group.by_rows), its kernel is the first
 * one: an item of it is a chunk, and it adds to the chunk's partial sums row by row. */
#include "cpu.h"

/* The bound indices that are neither batch nor time. */
static int inner_of(const Code *x, NodeId id, IndexId *inner)
{
    const Node *r = k_node(x->k, k_node(x->k, id)->args[0]);
    int n = 0;
    for (int i = 0; i < r->nbound; i++)
        if (r->bound[i] >= IX_FIRST)
            inner[n++] = r->bound[i];
    return n;
}

/* A piece of the columns: the sums' last axis from `base` on, n of them, and where these begin among the
 * columns. */
typedef struct Piece {
    const KirExpr *base, *n, *column;
} Piece;

/* Columns of a piece. A page of a row is read from its begin to its end, which is how memory comes fastest;
 * of many sums the cache has room for less. */
static int columns_of_piece(const Group *g)
{
    return g->arrays.len <= 4 ? CPU_PAGE : CPU_COLUMNS;
}

static bool in_one_piece(const Group *g)
{
    const Poly *last = g->naxes ? g->axes[g->naxes - 1] : NULL;
    return !last || (last->is_const && last->value <= columns_of_piece(g));
}

/* Names the indices of an item's columns but the last. */
static Piece split_columns(Code *x, const KirExpr *item, const KirExpr **rest)
{
    const Group *g = x->k->g;
    const Node first = *k_node(x->k, g->arrays.data[0]);
    int last = g->naxes - 1;
    const KirExpr *zero = code_int(x, 0), *one = code_int(x, 1), *width = code_int(x, columns_of_piece(g));
    if (last < 0) {
        *rest = item;
        return (Piece){ zero, one, zero };
    }
    const KirExpr *extent = code_let(x, "extent", code_size(x, g->axes[last])), *piece = zero, *outer,
                  *pieces = one;
    if (!in_one_piece(g))
        pieces = code_let(x, "pieces",
                          code_binary(x, KB_DIV, code_add(x, extent, code_int(x, columns_of_piece(g) - 1)),
                                      width));
    const KirExpr *of_piece = cpu_divide(x, "of_piece", item, pieces, &piece);
    *rest = cpu_divide(x, "chunk", of_piece, last ? code_let(x, "outer", code_sizes(x, g->axes, last)) : one,
                       &outer);
    if (last)
        code_split_element(x, first.axes, last, outer, "col");
    cpu_keep_axes(x, g->arrays.data[0], last);
    Piece at = { zero, extent, code_let(x, "column", code_mul(x, outer, extent)) };
    if (!in_one_piece(g)) {
        at.base = code_let(x, "base", code_mul(x, piece, width));
        const KirExpr *left = code_let(x, "left", code_sub(x, extent, at.base));
        at.n = code_let(x, "n", kir_select(x->kir, code_binary(x, KB_LT, left, width), left, width));
        at.column = code_let(x, names_fresh(&x->k->locals, "from"), code_add(x, at.column, at.base));
    }
    return at;
}

/* A loop over a piece's columns, whose last index it binds. */
static KirOpen open_columns(Code *x, const Piece *at, const KirExpr **lane)
{
    const Group *g = x->k->g;
    KirOpen loop =
        code_for(x, names_fresh(&x->k->locals, "lane"), code_int(x, 0), at->n, code_int(x, 1), lane);
    loop.statement->n = KIR_LANES;
    if (g->naxes) {
        IndexId last = k_node(x->k, g->arrays.data[0])->axes[g->naxes - 1];
        const char *name = k_text(x->k, "col_%s", x->k->p->m->indices.data[last].name);
        x->own[g->naxes - 1] = code_let(x, names_fresh(&x->k->locals, name), code_add(x, at->base, *lane));
    }
    cpu_bind_axes(x, g->arrays.data[0], g->naxes);
    return loop;
}

/* Closes a loop over columns; true: it takes scratch memory, an element of at most 8 bytes for each column. */
static bool close_columns(Code *x, KirOpen loop)
{
    const Group *g = x->k->g;
    if (g->naxes)
        return cpu_close_lanes(x, loop, x->own[g->naxes - 1]);
    kir_close(x->kir, loop);
    return false;
}

/* true: it takes scratch memory, likewise. */
static bool add_terms(Code *x, const Piece *at, const KirExpr *const *sums)
{
    const Group *g = x->k->g;
    IndexId inner[64];
    const KirExpr *own[64] = { NULL }, *lane;
    KirOpen open[64];
    int n = inner_of(x, g->arrays.data[0], inner);
    cpu_open_indices(x, inner, n, "i", false, open);
    for (int i = 0; i < n; i++)
        own[i] = x->index[inner[i]];
    KirOpen loop = open_columns(x, at, &lane);
    for (int i = 0; i < g->arrays.len; i++) {
        NodeId id = g->arrays.data[i];
        Named named = { 0 };
        cpu_bind_axes(x, id, g->naxes);
        inner_of(x, id, inner);
        for (int k = 0; k < n; k++)
            x->index[inner[k]] = own[k];
        code_comment(x, id);
        kir_add_to(x->kir, kir_element(x->kir, sums[i], lane),
                   code_value(x, k_node(x->k, k_node(x->k, id)->args[0])->args[0], &named));
        code_forget(x, &named);
    }
    bool scratch = close_columns(x, loop);
    cpu_close_all(x, open, n);
    return scratch;
}

/* Where the sums of the i-th array's columns in a chunk begin. */
static const KirExpr *partial_at(Code *x, const KirExpr *p, int i, const KirExpr *chunks,
                                 const KirExpr *chunk, const KirExpr *columns, const KirExpr *column)
{
    const KirExpr *row = code_add(x, code_mul(x, code_int(x, i), chunks), chunk);
    return code_move(x, code_add(x, p, code_mul(x, row, columns)), column);
}

/* The rows [begin, *end) of a chunk. */
static const KirExpr *rows_of_chunk(Code *x, const KirExpr *rows, const KirExpr *chunk, const KirExpr *chunks,
                                    const KirExpr **end)
{
    const KirExpr *begin = code_let(x, "begin", code_binary(x, KB_DIV, code_mul(x, rows, chunk), chunks));
    const KirExpr *next = code_mul(x, rows, code_add(x, chunk, code_int(x, 1)));
    *end = code_let(x, "end", code_binary(x, KB_DIV, next, chunks));
    return begin;
}

static bool sums(Code *x)
{
    const Group *g = x->k->g;
    const KirExpr *item, *row, *lane, *sum[64] = { NULL }, *chunk;
    const KirExpr *rows = code_let(x, "rows", code_rows(x));
    const KirExpr *columns = code_let(x, "columns", code_sizes(x, g->axes, g->naxes));
    const KirExpr *chunks = code_let(x, "chunks", code_chunks(x, rows, columns));
    KirOpen items = cpu_items(x, &item);
    Piece at = split_columns(x, item, &chunk);
    const KirExpr *end, *begin = rows_of_chunk(x, rows, chunk, chunks, &end);
    for (int i = 0; i < g->arrays.len; i++)
        sum[i] = kir_array(x->kir, k_local(x->k, "sum", g->arrays.data[i]), code_real(x),
                           code_int(x, g->naxes ? columns_of_piece(g) : 1), true);
    KirOpen loop = code_for(x, "row", begin, end, code_int(x, 1), &row);
    code_split_row(x, row);
    bool scratch = add_terms(x, &at, sum);
    kir_close(x->kir, loop);
    const KirExpr *partial = code_written(x, REF_BUFFER, g->partial, x->k->p->compute);
    for (int i = 0; i < g->arrays.len; i++) {
        KirOpen stores = open_columns(x, &at, &lane);
        const KirExpr *to = partial_at(x, partial, i, chunks, chunk, columns, at.column);
        kir_assign(x->kir, kir_element(x->kir, to, lane), kir_element(x->kir, sum[i], lane));
        kir_close(x->kir, stores);
    }
    kir_close(x->kir, items);
    return scratch;
}

/* ---- the same in a ROW group's kernel ---- */

/* The chunks that code_chunks counts are those of the sums' group. */
static const KirExpr *chunks_by_rows(Code *x, const Group *sums, const KirExpr *rows, const KirExpr *columns)
{
    Group *own = x->k->g;
    x->k->g = (Group *)(uintptr_t)sums;
    const KirExpr *chunks = code_let(x, "chunks", code_chunks(x, rows, columns));
    x->k->g = own;
    return chunks;
}

void cpu_begin_sums(Code *x, CpuSums *s)
{
    const Group *g = x->k->g;
    s->of = g->sums ? &x->k->pr->groups.data[g->sums - 1] : NULL;
    if (!s->of)
        return;
    s->rows = code_let(x, "rows", code_rows(x));
    s->columns = code_let(x, "columns", code_sizes(x, s->of->axes, 1));
    s->chunks = chunks_by_rows(x, s->of, s->rows, s->columns);
    s->partial = code_written(x, REF_BUFFER, s->of->partial, x->k->p->compute);
}

KirOpen cpu_open_chunk(Code *x, CpuSums *s, const KirExpr *chunk, const KirExpr **row)
{
    const KirExpr *zero = code_int(x, 0), *one = code_int(x, 1), *lane, *end;
    const KirType type = kir_global(code_real(x), true);
    for (int i = 0; i < s->of->arrays.len; i++) {
        const KirExpr *at = partial_at(x, s->partial, i, s->chunks, chunk, s->columns, zero);
        s->to[i] = kir_let_as(x->kir, k_local(x->k, "sum", s->of->arrays.data[i]), type, at);
        KirOpen loop = code_for(x, names_fresh(&x->k->locals, "lane"), zero, s->columns, one, &lane);
        loop.statement->n = KIR_LANES;
        kir_assign(x->kir, kir_element(x->kir, s->to[i], lane), kir_real(x->kir, code_real(x), 0));
        kir_close(x->kir, loop);
    }
    const KirExpr *begin = rows_of_chunk(x, s->rows, chunk, s->chunks, &end);
    return code_for(x, "row", begin, end, one, row);
}

void cpu_add_sums(Code *x, const CpuSums *s, const KirExpr *here)
{
    for (int i = 0; i < s->of->arrays.len; i++) {
        NodeId id = s->of->arrays.data[i];
        Named named = { 0 };
        x->index[k_node(x->k, id)->axes[0]] = here;
        code_comment(x, id);
        kir_add_to(x->kir, kir_element(x->kir, s->to[i], here),
                   code_value(x, k_node(x->k, k_node(x->k, id)->args[0])->args[0], &named));
        code_forget(x, &named);
    }
}

/* ---- the second kernel ---- */

static bool totals(Code *x)
{
    const Group *g = x->k->g;
    bool scratch = false;
    const KirExpr *item, *chunk, *lane, *none;
    const KirExpr *rows = code_let(x, "rows", code_rows(x));
    const KirExpr *columns = code_let(x, "columns", code_sizes(x, g->axes, g->naxes));
    const KirExpr *chunks = code_let(x, "chunks", code_chunks(x, rows, columns));
    const KirExpr *partial = code_pointer(x, REF_BUFFER, g->partial, x->k->p->compute);
    KirOpen items = cpu_items(x, &item);
    Piece at = split_columns(x, item, &none);
    x->b = x->t = code_int(x, 0);
    for (int i = 0; i < g->arrays.len; i++) {
        NodeId id = g->arrays.data[i];
        const KirExpr *sum = kir_array(x->kir, k_local(x->k, "sum", id), code_real(x),
                                       code_int(x, g->naxes ? columns_of_piece(g) : 1), true);
        KirOpen parts =
            code_for(x, names_fresh(&x->k->locals, "part"), code_int(x, 0), chunks, code_int(x, 1), &chunk);
        KirOpen adds = open_columns(x, &at, &lane);
        const KirExpr *from = partial_at(x, partial, i, chunks, chunk, columns, at.column);
        kir_add_to(x->kir, kir_element(x->kir, sum, lane), kir_element(x->kir, from, lane));
        kir_close(x->kir, adds);
        kir_close(x->kir, parts);
        KirOpen stores = open_columns(x, &at, &lane);
        cpu_bind_axes(x, id, g->naxes);
        code_store(x, id, kir_element(x->kir, sum, lane));
        scratch |= close_columns(x, stores);
    }
    kir_close(x->kir, items);
    return scratch;
}

static const Formula *scratch_of_columns(Plan *p, const Group *g, bool scratch)
{
    return scratch ? formula_with(p->m, F_MUL, formula_size(p->m, g->axes[g->naxes - 1]), 8) : NULL;
}

/* Pieces of the columns. */
static const Formula *pieces(Plan *p, const Group *g)
{
    if (!g->naxes)
        return formula_const(p->m, 1);
    const Formula *last =
        formula_with(p->m, F_CEILDIV, formula_size(p->m, g->axes[g->naxes - 1]), columns_of_piece(g));
    return formula(p->m, F_MUL, cpu_product(p, g->axes, g->naxes - 1), last);
}

const Formula *cpu_chunks(Plan *p, const Group *g)
{
    return form_chunks(p, form_rows(p, g), poly_product(p->m, g->axes, g->naxes), g->by_rows);
}

static const Formula *width(Plan *p, const Group *g)
{
    return g->naxes
               ? formula_with(p->m, F_MIN, formula_size(p->m, g->axes[g->naxes - 1]), columns_of_piece(g))
               : formula_const(p->m, 1);
}

void cpu_column_sums(Kernel *k, CpuKernel *out, Buf *text)
{
    Plan *p = k->p;
    Group *g = k->g;
    Code *x = cpu_open(k, g->kernel);
    bool scratch = sums(x);
    cpu_close(x, text);
    const Formula *rows = formula(p->m, F_CEILDIV, cpu_rows(p, g), cpu_chunks(p, g));
    *out = (CpuKernel){ .name = g->kernel, .refs = &g->refs, .scratch = scratch_of_columns(p, g, scratch) };
    out->items = formula(p->m, F_MUL, cpu_chunks(p, g), pieces(p, g));
    out->work = formula_with(p->m, F_MUL, formula(p->m, F_MUL, rows, width(p, g)), 4 * g->arrays.len);
}

void cpu_column_totals(Kernel *k, CpuKernel *out, Buf *text)
{
    Plan *p = k->p;
    Group *g = k->g;
    Code *x = cpu_open(k, intern_f(p->m->c, "%s_2", g->kernel));
    bool scratch = totals(x);
    cpu_close(x, text);
    *out = (CpuKernel){ .name = x->kir->name, .refs = &g->refs_2, .items = pieces(p, g) };
    out->scratch = scratch_of_columns(p, g, scratch);
    out->work = formula_with(p->m, F_MUL, formula(p->m, F_MUL, cpu_chunks(p, g), width(p, g)), g->arrays.len);
}
