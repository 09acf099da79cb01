/* kernels_apart.c: CUDA text of ROW groups whose sums run along an axis of elements that lie apart, and that make these
 * elements too (plan_apart.c). In comes such a group; out goes a kernel whose lanes have neighbouring rows, as vectors where
 * sizes allow, while the warps of a block share their elements. A thread reads what several of its elements need before it
 * computes any of them. The first warp adds up what the others have, and does what is left of the rows. */
#include <string.h>

#include "base/mutate.h"
#include "kernels.h"

/* Rows from which on a large GPU has a block for each multiprocessor although each lane takes a vector of them. */
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

static void term(Kernel *k, NodeId id)
{
    Node r = *k_node(k, k_node(k, id)->args[0]);
    Named named = { 0 };
    k->index[r.bound[0]] = k->batch;
    k_comment(k, id);
    buf_line(k->out, "%s += %s;", k->value[id], k_body(k, r.args[0], &named));
    k_forget(k, &named);
}

/* The elements of the lane's rows at one place along the axis, and what they add. */
static void print_element(Kernel *k)
{
    const Group *g = k->g;
    Named kept = { 0 };
    for (int i = 0; i < g->arrays.len; i++) {
        NodeId id = g->arrays.data[i];
        k_bind_axes(k, id);
        if (k_node(k, id)->naxes > g->naxes) {
            k->index[k_node(k, id)->axes[g->along - 1]] = k->batch;
            k_element(k, id, &kept);
        }
    }
    for (int i = 0; i < g->arrays.len; i++) {
        k_bind_axes(k, g->arrays.data[i]);
        if (is_sum(k, g->arrays.data[i]))
            term(k, g->arrays.data[i]);
    }
    k_forget(k, &kept);
}

/* As many elements at a time as keep so many reads of a thread under way, and no more than it has. */
static int batch_size(const Kernel *k, const Poly *extent)
{
    enum { READS = 12, MOST = 4 };
    int n = MOST;
    while (n > 1 && n * k->batch_reads > READS)
        n /= 2;
    while (extent->is_const && n > 1 && (n - 1) * k->g->lanes >= extent->value)
        n--;
    return n;
}

static void put(Kernel *k, const Buf *text)
{
    buf_f(k->out, "%s", text->data ? text->data : "");
}

static void open_batch(Kernel *k, const char *place, const char *condition)
{
    buf_line(k->out, "CELL_UNROLL");
    k_open(k, "for (int j = 0; j < batch; j++)");
    buf_line(k->out, "const int64_t %s = %s;", k->batch, place);
    if (condition)
        k_open(k, "%s", condition);
}

/* Along the axis: the block's warps by turns. */
static void print_elements(Kernel *k, const char *row)
{
    Group *g = k->g;
    Buf *out = k->out, body = buf_like(out), inner;
    const Node r = *k_node(k, k_node(k, first_sum(k))->args[0]);
    const Poly *all = k->p->m->indices.data[r.bound[0]].extent;
    const char *extent = poly_text(&k->printer, all);
    const char *name = k_text(k, "i_%s", k->p->m->indices.data[r.bound[0]].name);
    int hoisted = k->hoisted.len;
    k->batch = strcmp(name, row) == 0 ? k_text(k, "o%s", name + 1) : name;
    k->batch_reads = 0;
    body.indent += 3;
    k->batched = k->batch_names = body;
    k->batched.indent--;
    k->batch_names.indent -= 2;
    k->out = &body;
    k_wide_open(k, row, &inner);
    print_element(k);
    k_wide_end(k, &body, &inner);
    k_prefetches(k, k->batch);
    k->out = out;
    buf_line(out, "constexpr int batch = %d;", batch_size(k, all));
    k_open(k, "for (int64_t from = lane; from < %s; from += batch * %d)", extent, g->lanes);
    put(k, &k->batch_names);
    if (k->batched.data) {
        open_batch(k, k_text(k, "cell_nearest(from + j * %d, %s)", g->lanes, extent), NULL);
        put(k, &k->batched);
        k_close(k);
    }
    const char *place = mutate("one-turn") ? "from" : k_text(k, "from + j * %d", g->lanes);
    open_batch(k, place, k_text(k, "if (mine && %s < %s)", k->batch, extent));
    put(k, &k->hoists);
    put(k, &body);
    k_close(k);
    k_close(k);
    k_close(k);
    k->hoisted.len = hoisted;
    k->batch = NULL;
}

/* What is left of the rows, when their sums are known. */
static void print_totals(Kernel *k, const char *row)
{
    Group *g = k->g;
    Buf *out = k->out, body = buf_like(out), inner;
    Named kept = { 0 };
    k->out = &body;
    k_wide_open(k, row, &inner);
    for (int i = 0; i < g->arrays.len; i++) {
        NodeId id = g->arrays.data[i];
        k_bind_axes(k, id);
        if (is_sum(k, id) && k_is_stored(k, id))
            k_store(k, id, k->value[id]);
        else if (!is_sum(k, id) && k_node(k, id)->naxes == g->naxes)
            k_element(k, id, &kept);
    }
    k_wide_end(k, &body, &inner);
    k->out = out;
    put(k, &k->hoists);
    put(k, &body);
    k_forget(k, &kept);
}

/* The sums' warps, each of which leaves its part, and the first one, which takes them all. */
static void print_row(Kernel *k, const char *row)
{
    Group *g = k->g;
    Named sums = { 0 };
    const char *n = k->n;
    for (int i = 0; i < g->arrays.len; i++) {
        NodeId id = g->arrays.data[i];
        if (!is_sum(k, id))
            continue;
        const char *name = k_local(k, "a", id);
        buf_line(k->out, "%s %s[%s] = {};", k->real, name, n);
        k->value[id] = k_text(k, "%s[u]", name);
        vec_push(k->p->m->arena, &sums, id);
    }
    print_elements(k, row);
    buf_line(k->out, "cell_barrier();");
    for (int i = 0; i < sums.len; i++)
        buf_line(k->out, "cell_part_store(scratch + %d * %s, %.*s);", i * g->threads, n,
                 (int)strcspn(k->value[sums.data[i]], "["), k->value[sums.data[i]]);
    buf_line(k->out, "cell_barrier();");
    k_open(k, "if (lane == 0 && mine)");
    for (int i = 0; i < sums.len; i++)
        buf_line(k->out, "cell_part_sums(scratch + %d * %s, %.*s);", i * g->threads, n,
                 (int)strcspn(k->value[sums.data[i]], "["), k->value[sums.data[i]]);
    print_totals(k, row);
    k_prefetches(k, NULL);
    k_close(k);
    k_forget(k, &sums);
}

/* All warps of a block have the same rows, or the last ones again. A vector lies in one row of the last axis. */
static void print_apart(Kernel *k)
{
    Group *g = k->g;
    NodeId sum = first_sum(k);
    const IndexId *axes = k_node(k, sum)->axes;
    const char *rows = k_rows(k), *elements = k_product(k, g->axes, g->naxes), *n = k->n;
    k_need_multiple(k, g->axes[g->naxes - 1]);
    k->enough = k_text(k, "%s * %s >= %d", rows, elements, ENOUGH);
    buf_line(k->out, "const int64_t elements = %s, all_rows = %s * elements;", elements, rows);
    buf_line(k->out, "const int lane = cell_warp();");
    buf_line(k->out, "auto cursor = cell_shared();");
    buf_line(k->out, "cell_smem<%s> scratch = cell_carve<%s>(cursor, %d * %s);", k->real, k->real,
             g->threads * count_sums(k), n);
    k_open(k, "for (int64_t first = cell_block_index(0) * 32 * %s; first < all_rows; first += cell_block_count(0) * 32 * %s)",
           n, n);
    buf_line(k->out, "const int64_t own = first + cell_lane() * %s;", n);
    buf_line(k->out, "const bool mine = own < all_rows;");
    buf_line(k->out, "const int64_t n = mine ? own : all_rows - %s;", n);
    buf_line(k->out, "const int64_t row = n / elements, r = n - row * elements;");
    k_split_row(k, "row");
    k_split_element(k, axes, g->naxes, "r", "row");
    k_keep_axes(k, sum);
    buf_line(k->out, "const int64_t e = %s;", k->own[g->naxes - 1]);
    const char *along = k_text(k, "i_%s", k->p->m->indices.data[axes[g->naxes - 1]].name);
    k->own[g->naxes - 1] = along;
    Buf *out = k->out, text = buf_like(out);
    k->gathered = text;
    k->gathers = true;
    k->here.len = 0;
    k->out = &text;
    print_row(k, along);
    k->out = out;
    put(k, &k->gathered);
    put(k, &text);
    k->gathers = false;
    k->prefetches.len = 0;
    k_close(k);
}

void emit_apart(Kernel *k)
{
    Group *g = k->g;
    k->threads = g->threads;
    k_print(k, g->kernel, print_apart);
    g->width = k_width(k);
    g->enough = ENOUGH;
    for (int i = 0; i < k->multiples.len; i++)
        vec_push(k->p->m->arena, &g->multiples, k->multiples.data[i]);
    g->smem = (int64_t)g->threads * count_sums(k) * g->width * (k->p->compute == DT_F64 ? 8 : 4);
}
