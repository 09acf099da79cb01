/* plan_shape.c: the shape of each kernel. In come the groups of a direction; out go their names, threads, lanes for a
 * row, the order of a row's reductions, and the buffers of partial sums. */
#include <limits.h>

#include "plan_pass.h"

/* Sums along an axis whose elements lie apart, of rows that lie side by side: a warp that has 32 of these rows reads
 * neighbours at every step of its share of the sums. */
bool rows_are_neighbours(Plan *p, const Group *g)
{
    bool strided = false;
    if (g->naxes == 0 || !g->batched || g->sums)
        return false;
    for (int i = 0; i < g->arrays.len; i++)
        if (at(p, g->arrays.data[i])->naxes != g->naxes || !sums_apart(p, g->arrays.data[i], &strided))
            return false;
    return strided;
}

/* A short row is a warp's, a long one (or one of unknown length) a block's; of 32 neighbours each of a block's warps
 * has a part. */
static int row_lanes(Plan *p, const Group *g)
{
    if (rows_are_neighbours(p, g))
        return ROW_PARTS;
    for (int i = 0; i < g->arrays.len; i++) {
        const Node *a = at(p, g->arrays.data[i]), *r = at(p, a->args[0]);
        bool reduces = plan_reduces(p, g->arrays.data[i]);
        int n = reduces ? r->nbound : a->naxes - g->naxes;
        const IndexId *over = reduces ? r->bound : a->axes + g->naxes;
        int64_t size = 1;
        for (int k = 0; k < n; k++) {
            const Poly *e = p->m->indices.data[over[k]].extent;
            size = e->is_const && size < 1 << 20 ? size * e->value : 1 << 20;
        }
        if (size > 1024)
            return g->threads;
    }
    return 32;
}

/* Orders a row kernel by the depth of its reductions, so that those that wait for the same come together. */
static void order_row(Plan *p, const Program *pr, Group *g, int number)
{
    int n = g->arrays.len;
    int *depth = plan_alloc(p, sizeof *depth, n), *of = plan_alloc(p, sizeof *of, p->n_nodes);
    for (int i = 0; i < n; i++) {
        Uses uses = plan_uses(p, g->arrays.data[i]);
        for (int j = 0; j < uses.len; j++) {
            const Read *r = &uses.data[j].read;
            if (!r->is_tensor && pr->group[r->id] == number && of[r->id] > depth[i])
                depth[i] = of[r->id];
        }
        depth[i] += plan_reduces(p, g->arrays.data[i]);
        of[g->arrays.data[i]] = depth[i];
    }
    /* Stable: reductions of a depth first, then what is pointwise at that depth. */
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0; j--) {
            NodeId a = g->arrays.data[j - 1], b = g->arrays.data[j];
            int ka = 2 * depth[j - 1] + !plan_reduces(p, a), kb = 2 * depth[j] + !plan_reduces(p, b);
            int d = depth[j];
            if (ka <= kb)
                break;
            g->arrays.data[j - 1] = b;
            g->arrays.data[j] = a;
            depth[j] = depth[j - 1];
            depth[j - 1] = d;
        }
    g->depth = depth;
}

int plan_width(const Plan *p)
{
    return p->dtype == DT_F64 ? 2 : p->dtype == DT_F32 ? 4 : 8;
}

const char *plan_odd_kernel(const Plan *p, const Group *g)
{
    return intern_f(p->m->c, "%s_odd", g->kernel);
}

/* A block that keeps sums of its rows takes fewer of them than a chunk that a kernel reads for its sums alone:
 * what it waits for is the row, and what it leaves is little beside. Of such blocks, with a warp for 512 columns, the
 * 132 multiprocessors of an H100 or H200 are to hold all at once, with 16 warps each: one more would wait for all others. The numbers
 * are the same for all devices, so that the order of the sums is. A thread of a CPU has a row's sums in its
 * cache, and leaves them so rarely that they are a small part of what it reads. */
ColumnCut column_cut(const Plan *p, bool by_rows)
{
    if (p->request->cpu && by_rows)
        return (ColumnCut){ 32, 256, INT_MAX, 1, 256, 1 };
    return by_rows ? (ColumnCut){ 4, 4096, 16, 2 * TARGET_PROCESSORS, 512, TARGET_PROCESSORS }
                   : (ColumnCut){ 64, 256, 512, 1, 256, 1 };
}

const char *const scatter_kernels[6] = { "keys", "count", "scan", "move", "sums", "totals" };

int scatter_threads(int kernel)
{
    return kernel == SCATTER_SCAN ? 1024 : kernel == SCATTER_COUNT || kernel == SCATTER_MOVE ? 32 : SCATTER_THREADS;
}

int scatter_shared(int kernel)
{
    return kernel == SCATTER_SCAN ? SORT_SCANNED * 8
           : kernel == SCATTER_COUNT || kernel == SCATTER_MOVE ? SORT_DIGITS * 32 * 4 : 0;
}

/* Keys and places are int64: pairs of 32 bits. */
static void scatter_buffers(Plan *p, Group *g, int number)
{
    Module *m = p->m;
    Scatter *s = g->scatter;
    s->positions = poly_mul(m, row_count(p, g->batched, g->timed), s->inner);
    s->keys = add_buffer(p, intern_f(m->c, "places %d", number), DT_I32, poly_mul(m, poly_const(m, 2), s->positions),
                         false, true);
    s->order = add_buffer(p, intern_f(m->c, "order %d", number), DT_I32, poly_mul(m, poly_const(m, 4), s->positions),
                          false, true);
    s->counts = add_buffer(p, intern_f(m->c, "counts %d", number), DT_I32, NULL, false, true);
    s->partial = add_buffer(p, intern_f(m->c, "partial sums %d", number), p->compute, NULL, false, true);
    Buffer *counts = &p->buffers.data[s->counts], *partial = &p->buffers.data[s->partial];
    counts->columns = poly_const(m, 2 * 256 * 32);
    counts->each = SORT_EACH;
    counts->most = SORT_BLOCKS;
    partial->columns = poly_mul(m, poly_const(m, 2), s->columns);
    partial->each = SHARE_EACH;
    partial->most = SHARES;
    counts->cut = partial->cut = s->positions;
    counts->arrays = partial->arrays = 1;
}

Group *plan_walk(const Plan *p, int direction)
{
    for (int i = 0; i < p->program[direction].groups.len; i++)
        if (p->program[direction].groups.data[i].kind == G_WALK)
            return &p->program[direction].groups.data[i];
    return NULL;
}

const Poly *walk_blocks(const Program *pr)
{
    for (int i = 0; i < pr->groups.len; i++)
        if (pr->groups.data[i].kind == G_WALK)
            return pr->groups.data[i].walk->blocks;
    return NULL;
}

/* Rows of heads are short, also where their number is the call's: a block for each has nothing to do. */
bool plan_counts_heads(const Plan *p, const Program *pr, const Poly *extent)
{
    return extent == walk_blocks(pr) || extent == p->heads;
}

void finish_groups(Plan *p, Program *pr)
{
    int64_t real = p->compute == DT_F64 ? 8 : 4;
    for (int i = 0; i < pr->groups.len; i++) {
        Group *g = &pr->groups.data[i];
        const Poly *elements = poly_const(p->m, 1);
        for (int k = 0; k < g->naxes; k++)
            elements = poly_mul(p->m, elements, g->axes[k]);
        if (g->kind == G_MAP) {
            g->flat = elements->is_const && elements->value < 256;
            g->packed = !g->flat && g->timed && plan_counts_heads(p, pr, elements);
            g->threads = g->phase == PHASE_DURING ? 128 : 256;
        }
        if (g->past)
            g->lanes = g->threads = 128;
        if (g->kind == G_ROW && !g->past) {
            order_row(p, pr, g, i);
            g->lanes = row_lanes(p, g);
            if (g->along) {
                g->lanes = APART_PARTS;
                g->threads = 32 * APART_PARTS;
            } else if (g->lanes > 32 || g->sums) /* rows that stay in registers get as many as they need */
                g->lanes = g->threads = 128;
        }
        if (g->kind == G_SCATTER)
            scatter_buffers(p, g, i);
        if (g->kind != G_COLUMN)
            continue;
        g->resident = real == 4 && g->arrays.len <= 2 && !g->by_rows ? (g->arrays.len == 2 ? 2 : 3) : 0;
        bool by_walk = g->by_rows && pr->groups.data[g->by_rows - 1].kind == G_UNITS;
        g->threads_2 = by_walk ? g->threads : 1024;      /* few partial sums, one behind another */
        g->partial = add_buffer(p, intern_f(p->m->c, "partial sums %d", i), p->compute, NULL, false, true);
        p->buffers.data[g->partial].by_rows = g->by_rows;
        p->buffers.data[g->partial].untimed = !g->timed;
        p->buffers.data[g->partial].columns = elements;
        p->buffers.data[g->partial].arrays = g->arrays.len;
        if (by_walk)                  /* a row per sequence */
            p->buffers.data[g->partial].elements = poly_mul(
                p->m, poly_dim(p->m, ATOM_B), poly_mul(p->m, elements, poly_const(p->m, g->arrays.len)));
        if (by_walk)
            p->buffers.data[g->partial].columns = NULL;
    }
}

void name_kernels(Plan *p, Program *pr)
{
    static const char *const phase[] = { "none", "param", "before", "step", "after", "between" };
    const char *dir = pr->dir == FORWARD ? "fwd" : "bwd";
    for (int i = 0; i < pr->groups.len; i++) {
        Group *g = &pr->groups.data[i];
        const char *when = phase[g->phase < PHASE_BETWEEN ? g->phase : PHASE_BETWEEN];
        if (g->kind != G_WALK)
            g->kernel = intern_f(p->m->c, "%s_%s_%s_%d", p->m->name, dir, when, i);
    }
}
