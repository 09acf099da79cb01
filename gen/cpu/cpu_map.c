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

/* Rows of one element each: an item is some of them, in a step one, which is a strand's (cpu_steps.c). */
static int rows_of_item(const Group *g)
{
    return g->phase == PHASE_DURING ? 1 : CPU_ROWS;
}

static int piece_of(const Plan *p, const Program *pr, const Group *g)
{
    return g->phase == PHASE_DURING && cpu_elements_apart(p, pr) ? CPU_STRAND : CPU_PIECE;
}

static void rows_of_one(Code *x)
{
    const KirExpr *item, *row, *rows = code_let(x, "rows", code_rows(x));
    KirOpen items = cpu_items(x, &item);
    const KirExpr *each = code_int(x, rows_of_item(x->k->g));
    const KirExpr *begin = code_let(x, "begin", code_mul(x, item, each));
    const KirExpr *next = code_let(x, "next", code_add(x, begin, each));
    const KirExpr *end = kir_select(x->kir, code_binary(x, KB_LT, next, rows), next, rows);
    KirOpen loop = code_for(x, "row", begin, code_let(x, "end", end), code_int(x, 1), &row);
    loop.statement->n = KIR_LANES;
    code_split_row(x, row);
    elements(x);
    kir_close(x->kir, loop);
    kir_close(x->kir, items);
}

static bool in_one_piece(const Poly *extent, int piece)
{
    return extent->is_const && extent->value <= piece;
}

static bool pieces(Code *x)
{
    Group *g = x->k->g;
    const IndexId *axes = k_node(x->k, g->arrays.data[0])->axes;
    int last = g->naxes - 1, most = piece_of(x->k->p, x->k->pr, g);
    const KirExpr *item, *piece, *element, *i, *begin = code_int(x, 0), *one = code_int(x, 1);
    const KirExpr *extent = code_let(x, "extent", code_size(x, g->axes[last])), *end = extent, *n = one;
    if (!in_one_piece(g->axes[last], most))
        n = code_let(x, "pieces",
                     code_binary(x, KB_DIV, code_add(x, extent, code_int(x, most - 1)), code_int(x, most)));
    const KirExpr *outer = last ? code_let(x, "outer", code_sizes(x, g->axes, last)) : one;
    KirOpen items = cpu_items(x, &item);
    const KirExpr *of_row = cpu_divide(x, "of_row", item, n, &piece);
    const KirExpr *row = cpu_divide(x, "row", of_row, outer, &element);
    code_split_row(x, row);
    x->of_row = last ? row : NULL;
    if (last)
        code_split_element(x, axes, last, element, "i");
    if (!in_one_piece(g->axes[last], most)) {
        begin = code_let(x, "begin", code_mul(x, piece, code_int(x, most)));
        const KirExpr *next = code_let(x, "next", code_add(x, begin, code_int(x, most)));
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

const Formula *cpu_map_items(Plan *p, const Program *pr, const Group *g)
{
    int last = g->naxes - 1;
    if (g->naxes == 0)
        return form_blocks(p->m, form_rows(p, g), rows_of_item(g));
    const Formula *rows = formula(p->m, F_MUL, cpu_rows(p, g), cpu_product(p, g->axes, last));
    return formula(p->m, F_MUL, rows,
                   formula_with(p->m, F_CEILDIV, formula_size(p->m, g->axes[last]), piece_of(p, pr, g)));
}

void cpu_map(Kernel *k, CpuKernel *out, Buf *text)
{
    Plan *p = k->p;
    Group *g = k->g;
    int last = g->naxes - 1;
    Code *x = cpu_open(k, g->kernel);
    *out = (CpuKernel){ .name = g->kernel, .refs = &g->refs, .items = cpu_map_items(p, k->pr, g) };
    if (g->naxes == 0) {
        rows_of_one(x);
        out->work = formula_const(p->m, rows_of_item(g));
    } else {
        const Formula *extent = formula_size(p->m, g->axes[last]);
        if (pieces(x))
            out->scratch = formula_with(p->m, F_MUL, extent, 8);
        out->work = formula_with(p->m, F_MIN, extent, piece_of(p, k->pr, g));
    }
    out->work = formula_with(p->m, F_MUL, out->work, 8 * g->arrays.len);
    cpu_close(x, text);
}
