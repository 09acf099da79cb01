/* kernels_map.c: CUDA text of MAP groups. In comes a group of pointwise arrays over the same axes; out goes a
 * kernel with a thread per element, or per vector of neighbours where a row is contiguous. */
#include "kernels.h"

void k_element(Kernel *k, NodeId id, Named *kept)
{
    Named named = { 0 };
    k_comment(k, id);
    const char *v = k_body(k, k_node(k, id)->args[0], &named), *name = k_local(k, "a", id);
    buf_line(k->out, "const %s %s = %s;", k->real, name, v);
    k_forget(k, &named);
    k->value[id] = name;
    vec_push(k->p->m->arena, kept, id);
    if (k_is_stored(k, id))
        k_store(k, id, name);
}

void k_map_body(Kernel *k)
{
    Group *g = k->g;
    Buf *out = k->out, body = { .arena = out->arena, .indent = out->indent };
    k->gathers = !k->wide && !k->hooks->ahead;
    k->gathered = body;
    if (k->gathers)
        k->out = &body;
    k_keep_axes(k, g->arrays.data[0]);
    Named kept = { 0 };
    for (int i = 0; i < g->arrays.len; i++) {
        k_bind_axes(k, g->arrays.data[i]);
        k_element(k, g->arrays.data[i], &kept);
    }
    if (k->hooks->group_done)
        k->hooks->group_done(k);
    k_forget(k, &kept);
    if (!k->wide)
        k_prefetches(k, NULL);
    k->prefetches.len = 0;
    k->out = out;
    if (k->gathers)
        buf_f(out, "%s%s", k->gathered.data ? k->gathered.data : "", body.data);
    k->gathers = false;
}

static void map_body(Kernel *k, void *data)
{
    (void)data;
    k_map_body(k);
}

/* Few elements a row: rows and elements are one range. */
static void print_flat(Kernel *k, NodeId first)
{
    Group *g = k->g;
    k_open(k, "for (int64_t n = first; n < rows * elements; n += step)");
    buf_line(k->out, "const int64_t row = n / elements;");
    buf_line(k->out, "[[maybe_unused]] const int64_t e = n - row * elements;");
    k_split_row(k, "row");
    k_split_element(k, k_node(k, first)->axes, g->naxes, "e", "i");
    map_body(k, NULL);
    k_close(k);
}

static void open_rows(Kernel *k)
{
    k_open(k, "for (int64_t row = cell_block_index(1); row < rows; row += cell_block_count(1))");
}

/* A block's threads are shared out among so many rows that each thread has a vector of its row. */
static void open_packed_rows(Kernel *k)
{
    int threads = k->g->threads;
    buf_line(k->out, "const int lanes = cell_row_lanes<%d>((elements + %s - 1) / %s);", threads, k->n, k->n);
    buf_line(k->out, "const int64_t first = cell_block_index(0) * lanes + cell_thread() %% lanes;");
    buf_line(k->out, "const int64_t step = cell_block_count(0) * lanes;");
    k_open(k, "for (int64_t row = cell_block_index(1) * (%d / lanes) + cell_thread() / lanes; row < rows; "
              "row += cell_block_count(1) * (%d / lanes))", threads, threads);
}

static void print_map(Kernel *k)
{
    Group *g = k->g;
    NodeId first = g->arrays.data[0];
    buf_line(k->out, "const int64_t rows = %s;", k_rows(k));
    buf_line(k->out, "[[maybe_unused]] const int64_t elements = %s;", k_product(k, g->axes, g->naxes));
    if (!g->packed) {
        buf_line(k->out, "const int64_t first = cell_block_index(0) * %d + cell_thread();", g->threads);
        buf_line(k->out, "const int64_t step = cell_block_count(0) * %d;", g->threads);
    }
    if (g->flat) {
        print_flat(k, first);
        return;
    }
    (g->packed ? open_packed_rows : open_rows)(k);
    k_split_row(k, "row");
    if (k->one_step)
        k->enough = k_text(k, "%s * %s >= %d", k_rows(k), k_product(k, g->axes, g->naxes), STEP_VECTORS);
    if (g->naxes == 0) {
        k_open(k, "for (int64_t e = first; e < elements; e += step)");
        map_body(k, NULL);
        k_close(k);
    } else {
        const IndexId *axes = k_node(k, first)->axes;
        int last = g->naxes - 1;
        Loop l = { axes[last], g->axes[last], "first", "step", map_body, NULL, last > 0 ? axes : NULL, last };
        k_loop(k, &l);
    }
    k_close(k);
}

void emit_map(Kernel *k)
{
    k->threads = k->g->threads;
    k_print(k, k->g->kernel, print_map);
    k->g->enough = k->g->phase == PHASE_DURING ? STEP_VECTORS : 0;
    k->g->width = k->row_extent && !k->mixed ? k_width(k) : 1;
    for (int i = 0; i < k->multiples.len; i++)
        vec_push(k->p->m->arena, &k->g->multiples, k->multiples.data[i]);
}
