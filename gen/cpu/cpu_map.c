/* cpu_map.c: MAP groups. In comes a group of pointwise arrays over the same axes; out goes a kernel
 * whose item is a piece of a row along the last axis, or some rows where they are single elements. */
#include "cpu.h"

static void elements(Code *x)
{
    const Group *g = x->k->g;
    Named kept = { 0 };
    cpu_keep_axes(x, g->arrays.data[0], g->naxes);
    for (int i = 0; i < g->arrays.len; i++) {
        cpu_bind_axes(x, g->arrays.data[i], g->naxes);
        code_array(x, g->arrays.data[i], &kept);
    }
    code_forget(x, &kept);
}

/* Rows of one element each: an item is some of them. */
static void rows_of_one(Code *x)
{
    const KirExpr *item, *row, *rows = code_let(x, "rows", code_rows(x));
    KirOpen items = cpu_items(x, &item);
    const KirExpr *begin = code_let(x, "begin", code_mul(x, item, code_int(x, CPU_ROWS)));
    const KirExpr *next = code_let(x, "next", code_add(x, begin, code_int(x, CPU_ROWS)));
    const KirExpr *end = kir_select(x->kir, code_binary(x, KB_LT, next, rows), next, rows);
    KirOpen loop = code_for(x, "row", begin, code_let(x, "end", end), code_int(x, 1), &row);
    loop.statement->n = KIR_LANES;
    code_split_row(x, row);
    elements(x);
    kir_close(x->kir, loop);
    kir_close(x->kir, items);
}

static bool in_one_piece(const Poly *extent)
{
    return extent->is_const && extent->value <= CPU_PIECE;
}

static bool pieces(Code *x)
{
    Group *g = x->k->g;
    const IndexId *axes = k_node(x->k, g->arrays.data[0])->axes;
    int last = g->naxes - 1;
    const KirExpr *item, *piece, *element, *i, *begin = code_int(x, 0), *one = code_int(x, 1);
    const KirExpr *extent = code_let(x, "extent", code_size(x, g->axes[last])), *end = extent, *n = one;
    if (!in_one_piece(g->axes[last]))
        n = code_let(x, "pieces",
                     code_binary(x, KB_DIV, code_add(x, extent, code_int(x, CPU_PIECE - 1)),
                                 code_int(x, CPU_PIECE)));
    const KirExpr *outer = last ? code_let(x, "outer", code_sizes(x, g->axes, last)) : one;
    KirOpen items = cpu_items(x, &item);
    const KirExpr *of_row = cpu_divide(x, "of_row", item, n, &piece);
    const KirExpr *row = cpu_divide(x, "row", of_row, outer, &element);
    code_split_row(x, row);
    if (last)
        code_split_element(x, axes, last, element, "i");
    if (!in_one_piece(g->axes[last])) {
        begin = code_let(x, "begin", code_mul(x, piece, code_int(x, CPU_PIECE)));
        const KirExpr *next = code_let(x, "next", code_add(x, begin, code_int(x, CPU_PIECE)));
        end = code_let(x, "end", kir_select(x->kir, code_binary(x, KB_LT, next, extent), next, extent));
    }
    const char *name =
        names_fresh(&x->k->locals, k_text(x->k, "i_%s", x->k->p->m->indices.data[axes[last]].name));
    KirOpen loop = code_for(x, name, begin, end, one, &i);
    loop.statement->n = KIR_LANES;
    x->index[axes[last]] = i;
    elements(x);
    bool scratch = cpu_close_lanes(x, loop, i);
    kir_close(x->kir, items);
    return scratch;
}

void cpu_map(Kernel *k, CpuKernel *out, Buf *text)
{
    Plan *p = k->p;
    Group *g = k->g;
    int last = g->naxes - 1;
    Code *x = cpu_open(k, g->kernel);
    *out = (CpuKernel){ .name = g->kernel, .refs = &g->refs };
    if (g->naxes == 0) {
        rows_of_one(x);
        out->items = form_blocks(p->m, form_rows(p, g), CPU_ROWS);
        out->work = formula_const(p->m, CPU_ROWS);
    } else {
        const Formula *extent = formula_size(p->m, g->axes[last]);
        if (pieces(x))
            out->scratch = formula_with(p->m, F_MUL, extent, 8);
        const Formula *rows = formula(p->m, F_MUL, cpu_rows(p, g), cpu_product(p, g->axes, last));
        out->items = formula(p->m, F_MUL, rows, formula_with(p->m, F_CEILDIV, extent, CPU_PIECE));
        out->work = formula_with(p->m, F_MIN, extent, CPU_PIECE);
    }
    out->work = formula_with(p->m, F_MUL, out->work, 8 * g->arrays.len);
    cpu_close(x, text);
}
