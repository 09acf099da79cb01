/* kernels_map.c: the kernels of MAP groups. In comes a group of pointwise arrays over the same axes; out goes
 * a kernel with a thread per element, or per vector of neighbours where a row is contiguous. */
#include "code.h"

void code_map_element(Code *x, void *data)
{
    const Group *g = x->k->g;
    Gather reads;
    Named kept = { 0 };
    (void)data;
    bool gathers = !x->wide;
    if (gathers)
        code_gather(x, &reads);
    code_keep_axes(x, g->arrays.data[0]);
    for (int i = 0; i < g->arrays.len; i++) {
        code_bind_axes(x, g->arrays.data[i]);
        code_array(x, g->arrays.data[i], &kept);
    }
    code_forget(x, &kept);
    if (gathers) {
        code_prefetches(x, NULL);
        code_gather_end(x, &reads);
    }
    x->prefetches.len = 0;
}

typedef struct MapSizes {
    const KirExpr *rows, *elements, *first, *step;
} MapSizes;

/* Few elements a row: rows and elements are one range. */
static void flat_map(Code *x, const MapSizes *s)
{
    const Group *g = x->k->g;
    const KirExpr *n;
    KirOpen loop = code_for(x, "n", s->first, code_mul(x, s->rows, s->elements), s->step, &n);
    const KirExpr *row = code_let(x, "row", code_binary(x, KB_DIV, n, s->elements));
    const KirExpr *e = code_let(x, "e", code_sub(x, n, code_mul(x, row, s->elements)));
    code_split_row(x, row);
    code_split_element(x, k_node(x->k, g->arrays.data[0])->axes, g->naxes, e, "i");
    code_map_element(x, NULL);
    kir_close(x->kir, loop);
}

static KirOpen open_rows(Code *x, const MapSizes *s, const KirExpr **row)
{
    return code_for(x, "row", kir_special(x->kir, KP_BLOCK, 1), s->rows, kir_special(x->kir, KP_BLOCKS, 1),
                    row);
}

/* A block's threads are shared out among so many rows that each thread has a vector of its row. */
static KirOpen open_packed_rows(Code *x, MapSizes *s, const KirExpr **row)
{
    Kir *k = x->kir;
    int threads = x->k->g->threads;
    const KirTemplate all = { .value = threads };
    const KirExpr *thread = kir_special(k, KP_THREAD, 0), *one = code_int(x, 1);
    const KirExpr *vectors = code_binary(x, KB_DIV, code_sub(x, code_add(x, s->elements, x->n), one), x->n);
    const KirExpr *lanes = kir_let(k, "lanes", KT_VOID, kir_call(k, "cell_row_lanes", &all, 1, &vectors, 1));
    const KirExpr *block = code_mul(x, kir_special(k, KP_BLOCK, 0), lanes);
    s->first = code_let(x, "first", code_add(x, block, code_binary(x, KB_MOD, thread, lanes)));
    s->step = code_let(x, "step", code_mul(x, kir_special(k, KP_BLOCKS, 0), lanes));
    const KirExpr *side = code_binary(x, KB_DIV, code_int(x, threads), lanes); /* rows side by side */
    const KirExpr *first = code_mul(x, kir_special(k, KP_BLOCK, 1), side);
    return code_for(x, "row", code_add(x, first, code_binary(x, KB_DIV, thread, lanes)), s->rows,
                    code_mul(x, kir_special(k, KP_BLOCKS, 1), side), row);
}

static void map_kernel(Code *x)
{
    const Group *g = x->k->g;
    const IndexId *axes = k_node(x->k, g->arrays.data[0])->axes;
    const KirExpr *row, *e;
    MapSizes s = { .rows = code_let(x, "rows", code_rows(x)) };
    s.elements = code_let(x, "elements", code_sizes(x, g->axes, g->naxes));
    if (!g->packed) {
        s.first = code_first(x, "first", g->threads);
        s.step = code_step(x, "step", g->threads);
    }
    if (g->flat) {
        flat_map(x, &s);
        return;
    }
    KirOpen rows = g->packed ? open_packed_rows(x, &s, &row) : open_rows(x, &s, &row);
    code_split_row(x, row);
    if (x->one_step)
        x->enough = STEP_VECTORS;
    if (g->naxes == 0) {
        KirOpen loop = code_for(x, "e", s.first, s.elements, s.step, &e);
        code_map_element(x, NULL);
        kir_close(x->kir, loop);
    } else {
        int last = g->naxes - 1;
        CodeLoop l = { .along = axes[last],
                       .extent = g->axes[last],
                       .first = s.first,
                       .step = s.step,
                       .body = code_map_element,
                       .outer = last > 0 ? axes : NULL,
                       .n_outer = last,
                       .elements = s.elements };
        code_loop(x, &l);
    }
    kir_close(x->kir, rows);
}

void emit_map(Kernel *k)
{
    Group *g = k->g;
    Code *x = code_of_group(k);
    map_kernel(x);
    code_settle_width(x);
    g->enough = g->phase == PHASE_DURING ? STEP_VECTORS : 0;
    g->width = x->row_extent && !x->mixed ? k_width(k) : 1;
    for (int i = 0; i < k->multiples.len; i++)
        vec_push(k->p->m->arena, &g->multiples, k->multiples.data[i]);
    code_print(k->p, code_end(x), k->out);
}
