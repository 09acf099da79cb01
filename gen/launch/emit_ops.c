/* emit_ops.c: the operations of a launch plan that launch kernels: under which condition, over which grid, with which pointers. */
#include <string.h>

#include "base/mutate.h"
#include "emit_plan.h"

static const char *arguments(Print *e, const char *name, const Wanted *list)
{
    buf_f(e->host, "static const int16_t %s[] = { ", name);
    for (int i = 0; i < list->len; i++)
        buf_f(e->host, "%d, ", list->data[i]);
    buf_f(e->host, "-1 };\n");
    return name;
}

const char *emit_need_name(Print *e, const Group *g)
{
    if (!g || g->always || g->need.len == 0)
        return "NULL";
    return arguments(e, intern_f(e->p->m->c, "%sneed_%d_%d", e->tag, e->pr->dir, e->n_ops), &g->need);
}

/* What a walk writes for other kernels has a buffer even where those do not run: per pointer, who is to be
 * asked. */
static const char *wanted_name(Print *e, const Group *g, const RefVec *refs)
{
    Compiler *c = e->p->m->c;
    Buf list = { .arena = e->p->m->arena };
    bool any = false;
    for (int i = 0; i < refs->len; i++) {
        const char *name = "NULL";
        for (int k = 0; k < g->walk->outs.len && refs->data[i].kind == REF_NODE; k++) {
            NodeId out = g->walk->outs.data[k];
            if (out == refs->data[i].id && e->pr->node[out].home != HOME_ARG)
                name = arguments(e, intern_f(c, "%swanted_%d_%d_%d", e->tag, e->pr->dir, e->n_ops, i),
                                 &g->walk->wanted[out]);
        }
        any |= strcmp(name, "NULL") != 0;
        buf_f(&list, "%s, ", name);
    }
    if (!any)
        return "NULL";
    const char *all = intern_f(c, "%swanted_%d_%d", e->tag, e->pr->dir, e->n_ops);
    buf_f(e->host, "static const int16_t *const %s[] = { %s};\n", all, list.data);
    return all;
}

/* Threads of a block whose row stays in registers: as many as the row needs. */
static void postfix_block(Print *e, const Group *g, int each, Buf *out)
{
    postfix_poly(e, g->row_extent, out);
    buf_f(out, "CELL_X_PUSH, %d, CELL_X_CEILDIV, CELL_X_PUSH, 32, CELL_X_MUL, CELL_X_PUSH, %d, CELL_X_MIN, "
               "CELL_X_PUSH, 32, CELL_X_MAX, ", 32 * each, g->threads);
}

void postfix_not(Buf *x)
{
    buf_f(x, "CELL_X_PUSH, 0, CELL_X_EQ, ");
}

const char *emit_not_expr(Print *e, const Buf *condition)
{
    Buf x = emit_program_new(e);
    buf_f(&x, "%s", condition->data);
    postfix_not(&x);
    return emit_expr_name(e, &x);
}

/* 1 where a row takes more vectors a thread than usual, and the device has the shared memory for that; else 0. */
static void postfix_is_long(Print *e, const Group *g, int64_t smem, Buf *out)
{
    int64_t bytes = g->smem_each / g->slots * g->long_slots * g->threads + smem;
    buf_f(out, "CELL_X_PUSH, %d, ", g->each * g->threads);
    postfix_poly(e, g->row_extent, out);
    buf_f(out, "CELL_X_LT, ");
    postfix_poly(e, g->row_extent, out);
    buf_f(out, "CELL_X_PUSH, %d, CELL_X_LE, CELL_X_MUL, CELL_X_PUSH, %lld, CELL_X_ATTR, CELL_ATTR_SMEM_MAX, CELL_X_LE, "
               "CELL_X_MUL, ", g->long_slots * plan_width(e->p) * g->threads, (long long)bytes);
}

/* How many threads a block has where the row says it, and its shared memory. */
static void print_block(Print *e, const Group *g, bool odd, int64_t smem)
{
    Buf block = emit_program_new(e), bytes = emit_program_new(e);
    bool by_row = g->row_extent;
    int each = odd ? g->narrow : g->each;
    if (by_row) {
        postfix_block(e, g, each, &block);
        buf_f(&e->table, ", .block = %s", emit_expr_name(e, &block));
    }
    if (by_row && g->smem_each) {
        postfix_block(e, g, each, &bytes);
        buf_f(&bytes, "CELL_X_PUSH, %lld, CELL_X_MUL, CELL_X_PUSH, %lld, CELL_X_ADD, ", (long long)g->smem_each,
              (long long)smem);
        if (odd && g->long_slots) {
            postfix_is_long(e, g, smem, &bytes);
            buf_f(&bytes, "CELL_X_PUSH, %lld, CELL_X_MUL, CELL_X_ADD, ",
                  (long long)(g->smem_each / g->slots * (g->long_slots - g->slots) * g->threads));
        }
        buf_f(&e->table, ", .smem = %s", emit_expr_name(e, &bytes));
    } else if (smem) {
        buf_f(&e->table, ", .smem = %s", emit_poly_expr(e, poly_const(e->p->m, smem)));
    }
}

/* The row of a kernel is open: its threads, shared memory and further fields follow. */
int emit_kernel_number(Print *e, const char *name)
{
    buf_f(&e->table, "    { .name = \"%s\", .symbol = %s", name, name);
    vec_push(e->p->m->arena, &e->kernels, name);
    return e->kernels.len - 1;
}

/* Launching a step's kernel while the product before it ends pays where that product ends slowly: with the
 * long contractions of backward (measured on an H200: LSTM 1024 gains 7 percent of its backward, forward
 * loses 2). */
static bool starts_early(const Print *e, const Group *g, const RefVec *refs)
{
    return (e->pr->dir == BACKWARD && g->phase == PHASE_DURING && g->kind != G_WALK) || refs == &g->refs_2;
}

int emit_refs(Print *e, const RefVec *refs)
{
    int list = e->refs++;
    buf_f(e->host, "static const cell_ref %srefs_%d[] = { ", e->tag, list);
    for (int i = 0; i < refs->len; i++)
        buf_f(e->host, "{ %d, NULL }, ", emit_ref_buffer(e, refs->data[i]));
    buf_f(e->host, "%s};\n", refs->len ? "" : "{ 0, NULL } ");
    return list;
}

void emit_kernel_op_with(Print *e, const Group *g, const char *name, int threads, int64_t smem,
                         const RefVec *refs, const char *gx, const char *gy, LaunchTerms terms)
{
    int kernel = emit_kernel_number(e, name);
    if (refs->len > MAX_POINTERS)
        diag(e->p->m->c, DIAG_ERROR, e->p->m->span,
             "kernel %s needs %d arrays, and a kernel takes %d: an equation has too many terms, or many values of the "
             "same axes follow from one another; write several of them as one value with one more axis",
             name, refs->len, MAX_POINTERS);
    buf_f(&e->table, ", .threads = %d", threads);
    print_block(e, g, terms.odd, smem);
    if (g->kind == G_WALK && g->walk->cluster > 1)
        buf_f(&e->table, ", .cluster = %d", g->walk->cluster);
    buf_f(&e->table, "%s },\n", starts_early(e, g, refs) ? ", .dependent = 1" : "");
    const char *need = emit_need_name(e, g);
    bool walks_back = g->kind == G_WALK && e->pr->dir == BACKWARD;
    const char *wanted = walks_back ? intern_f(e->p->m->c, ", .wanted = %s", wanted_name(e, g, refs)) : "";
    const char *when = terms.when ? intern_f(e->p->m->c, " .when = %s,", terms.when) : "";
    const char *t = terms.t ? intern_f(e->p->m->c, ", .t = %s", terms.t) : "";
    int list = emit_refs(e, refs);
    buf_f(&e->ops,
          "    { .name = \"%s\", .kind = CELL_OP_KERNEL, .need = %s,%s\n"
          "      .u.kernel = { .kernel = %d, .n_refs = %d, .grid = { %s, %s, NULL }, .refs = %srefs_%d%s%s } },\n",
          name, need, when, kernel, refs->len, gx, gy, e->tag, list, t, wanted);
    e->n_ops++;
}

void emit_kernel_op(Print *e, const Group *g, const char *name, int threads, int64_t smem,
                    const RefVec *refs, const char *gx, const char *gy)
{
    emit_kernel_op_with(e, g, name, threads, smem, refs, gx, gy, (LaunchTerms){ 0 });
}

/* 1 where rows are long, or not all multiples of 16 bytes; else 0. */
static void postfix_is_odd(Print *e, const Group *g, Buf *out)
{
    buf_f(out, "CELL_X_PUSH, 1, ");
    for (int i = 0; i < g->multiples.len; i++) {
        postfix_poly(e, g->multiples.data[i], out);
        buf_f(out, "CELL_X_PUSH, %d, CELL_X_MOD, CELL_X_PUSH, 0, CELL_X_EQ, CELL_X_MUL, ", plan_width(e->p));
    }
    if (g->long_slots) {
        postfix_is_long(e, g, g->smem, out);
        postfix_not(out);
        buf_f(out, "CELL_X_MUL, ");
    }
    postfix_not(out);
}

/* And not where one kernel walks the steps, if that does this one's work, or where one does it with a product. */
static void postfix_unless_walked(Print *e, const Group *g, Buf *out)
{
    if (g->fused)
        postfix_unless_fused(e, g->fused, out);
    if (!g->unless_walked)
        return;
    buf_f(out, "%s", e->walked.data);
    postfix_not(out);
    buf_f(out, "CELL_X_MUL, ");
}

/* A kernel with a block for each row or more, and where there is another for odd rows, that one. */
static void print_row_op(Print *e, const Group *g, const char *blocks)
{
    bool two = g->row_extent && (g->multiples.len || g->long_slots);
    if (!two) {
        LaunchTerms terms = { .when = g->unless_walked ? emit_not_expr(e, &e->walked) : g->fused ? emit_unless_fused(e, g->fused) : NULL };
        emit_kernel_op_with(e, g, g->kernel, g->threads, g->smem, &g->refs, blocks, "NULL", terms);
        return;
    }
    Buf odd = emit_program_new(e), usual = emit_program_new(e);
    postfix_is_odd(e, g, &odd);
    postfix_is_odd(e, g, &usual);
    postfix_not(&usual);
    postfix_unless_walked(e, g, &usual);
    postfix_unless_walked(e, g, &odd);
    emit_kernel_op_with(e, g, g->kernel, g->threads, g->smem, &g->refs, blocks, "NULL",
                        (LaunchTerms){ .when = emit_expr_name(e, &usual) });
    emit_kernel_op_with(e, g, plan_odd_kernel(e->p, g), g->threads, g->smem, &g->refs, blocks, "NULL",
                        (LaunchTerms){ .when = emit_expr_name(e, &odd), .odd = true });
}

static const Poly *group_rows(Print *e, const Group *g)
{
    Module *m = e->p->m;
    const Poly *n = g->batched ? poly_dim(m, ATOM_B) : poly_const(m, 1);
    return g->timed && g->phase != PHASE_DURING ? poly_mul(m, n, poly_dim(m, ATOM_T)) : n;
}

const char *emit_blocks_expr(Print *e, const Poly *work, int per_block)
{
    Buf x = emit_program_new(e);
    postfix_poly(e, work, &x);
    buf_f(&x, "CELL_X_PUSH, %d, CELL_X_CEILDIV, ", per_block);
    return emit_expr_name(e, &x);
}

/* The rows of partial sums: the sequences, or its blocks, where one kernel walks the steps and leaves them; else the
 * chunks. */
static const char *partial_rows_expr(Print *e, const Group *g, const Poly *columns)
{
    Buf x = emit_program_new(e);
    postfix_chunks(e, group_rows(e, g), columns, false, &x);
    buf_f(&x, "%s", e->walked.data);
    postfix_not(&x);
    buf_f(&x, "CELL_X_MUL, ");
    if (e->pr->columns)
        postfix_columns_blocks(e, e->pr->columns->units, &x);
    else
        postfix_poly(e, poly_dim(e->p->m, ATOM_B), &x);
    buf_f(&x, "CELL_X_PUSH, 0, %sCELL_X_LT, CELL_X_MUL, CELL_X_ADD, ", e->walked.data);
    return emit_expr_name(e, &x);
}

/* Where one kernel walks the steps, that may be the first stage. */
static void print_column_kernels(Print *e, Group *g, const Poly *columns)
{
    int64_t real = e->p->compute == DT_F64 ? 8 : 4;
    Buf chunks = emit_program_new(e);
    LaunchTerms first = { .when = g->by_steps ? emit_not_expr(e, &e->walked) : NULL };
    const Fused *ahead = column_ahead(e->pr, g);
    LaunchTerms second = { .t = g->by_steps ? partial_rows_expr(e, g, columns) : ahead ? emit_ahead_rows(e, ahead) : NULL };
    postfix_chunks(e, group_rows(e, g), columns, false, &chunks);
    const char *down = g->by_rows ? NULL : emit_expr_name(e, &chunks), *across = emit_blocks_expr(e, columns, COLUMN_WIDTH);
    if (down)
        emit_kernel_op_with(e, g, g->kernel, g->threads, g->smem, &g->refs, across, down, first);
    emit_kernel_op_with(e, g, intern_f(e->p->m->c, "%s_2", g->kernel), g->threads_2, g->threads_2 * real, &g->refs_2,
                        across, "NULL", second);
}

/* So many elements for each block, or vectors of them where the kernel takes vectors, which it asks of the sizes itself:
 * blocks without work would cost as much as others to start. */
static const char *vector_blocks(Print *e, const Group *g, const Poly *elements, int per_block)
{
    if (g->width == 1)
        return emit_blocks_expr(e, elements, per_block);
    Buf x = emit_program_new(e);
    postfix_poly(e, elements, &x);
    buf_f(&x, "CELL_X_PUSH, %d, ", g->width - 1);
    for (int i = 0; i < g->multiples.len; i++) {
        postfix_poly(e, g->multiples.data[i], &x);
        buf_f(&x, "CELL_X_PUSH, %d, CELL_X_MOD, CELL_X_PUSH, 0, CELL_X_EQ, CELL_X_MUL, ", g->width);
    }
    if (g->enough && g->multiples.len) {
        buf_f(&x, "CELL_X_PUSH, %d, ", g->enough);
        postfix_poly(e, poly_mul(e->p->m, group_rows(e, g), poly_product(e->p->m, g->axes, g->naxes)), &x);
        buf_f(&x, "CELL_X_LE, CELL_X_MUL, ");
    }
    buf_f(&x, "CELL_X_PUSH, 1, CELL_X_ADD, CELL_X_PUSH, %d, CELL_X_MUL, CELL_X_CEILDIV, ", per_block);
    return emit_expr_name(e, &x);
}

static const char *map_blocks(Print *e, const Group *g, const Poly *elements)
{
    if (g->naxes == 1 && g->phase != PHASE_DURING)
        return emit_blocks_expr(e, elements, g->threads * plan_width(e->p));
    return vector_blocks(e, g, elements, g->threads);
}

/* And behind it the kernel that does it with the product before it, where there is one. */
static void print_map_op(Print *e, const Group *g, const Poly *elements, const Poly *work)
{
    if (g->fused && g->fused->ahead)
        emit_fused_kernel(e, g->fused);
    LaunchTerms terms = { .when = g->fused ? emit_unless_fused(e, g->fused) : NULL };
    const char *rows = g->flat ? "NULL" : g->packed ? vector_blocks(e, g, work, g->threads) : emit_poly_expr(e, group_rows(e, g));
    const char *blocks = g->flat ? emit_blocks_expr(e, work, g->threads) : map_blocks(e, g, elements);
    emit_kernel_op_with(e, g, g->kernel, g->threads, 0, &g->refs, blocks, rows, terms);
    if (g->fused)
        emit_fused_op(e, g->fused);
}

void emit_group_kernel(Print *e, Group *g)
{
    Module *m = e->p->m;
    const Poly *elements = poly_product(m, g->axes, g->naxes), *work = poly_mul(m, group_rows(e, g), elements);
    if (g->kind == G_MAP) {
        print_map_op(e, g, elements, work);
    } else if (g->kind == G_ROW && g->sums) {
        const Group *sums = &e->pr->groups.data[g->sums - 1];
        Buf chunks = emit_program_new(e);
        postfix_chunks(e, group_rows(e, g), sums->axes[0], true, &chunks);
        if (g->fused)
            emit_fused_kernel(e, g->fused);
        print_row_op(e, g, emit_expr_name(e, &chunks));
        if (g->fused)
            emit_fused_op(e, g->fused);
    } else if (g->kind == G_ROW && g->window) {
        Buf x = emit_program_new(e);
        postfix_poly(e, poly_mul(m, poly_dim(m, ATOM_B), elements), &x);
        postfix_poly(e, poly_dim(m, ATOM_T), &x);
        buf_f(&x, "CELL_X_PUSH, %d, CELL_X_CEILDIV, CELL_X_MUL, ", WINDOW_TILE);
        emit_kernel_op(e, g, g->kernel, g->threads, g->smem, &g->refs, emit_expr_name(e, &x), "NULL");
    } else if (g->kind == G_ROW && g->along) {
        emit_kernel_op(e, g, g->kernel, g->threads, g->smem, &g->refs, vector_blocks(e, g, work, 32), "NULL");
    } else if (g->kind == G_ROW) {
        print_row_op(e, g, emit_blocks_expr(e, work, g->threads / g->lanes * (g->share ? g->share : 1)));
    } else if (g->kind == G_COLUMN) {
        print_column_kernels(e, g, elements);
    } else if (g->kind == G_WALK) {
        const Walk *w = g->walk;
        const Poly *blocks = poly_mul(m, poly_dim(m, ATOM_B), w->blocks);
        blocks = poly_mul(m, blocks, poly_const(m, w->cluster));
        emit_kernel_op(e, g, w->kernel, w->threads, w->smem, &w->refs, emit_poly_expr(e, blocks), "NULL");
    }
}

static const char *shares_expr(Print *e, const Poly *n, int each, int most, int times)
{
    Buf x = emit_program_new(e);
    postfix_shares(e, n, each, most, &x);
    if (times > 1)
        buf_f(&x, "CELL_X_PUSH, %d, CELL_X_MUL, ", times);
    return emit_expr_name(e, &x);
}

/* How many digits of 8 bits the places have, and the one behind them that stands for outside. */
static const char *passes_expr(Print *e, const Poly *rows)
{
    Buf x = emit_program_new(e);
    buf_f(&x, mutate("short-sort") ? "CELL_X_PUSH, 0, " : "CELL_X_PUSH, 1, ");
    for (int digit = 1; digit < 8; digit++) {
        buf_f(&x, "CELL_X_PUSH, %lld, ", (long long)((int64_t)1 << (8 * digit)));
        postfix_poly(e, rows, &x);
        buf_f(&x, "CELL_X_LE, CELL_X_ADD, ");
    }
    return emit_expr_name(e, &x);
}

static void print_scatter_kernel(Print *e, Group *g, int kernel, int64_t smem, const char *gx, const char *gy)
{
    emit_kernel_op(e, g, intern_f(e->p->m->c, "%s_%s", g->kernel, scatter_kernels[kernel]), scatter_threads(kernel),
                   smem, &g->scatter->refs[kernel], gx, gy);
}

/* What no position adds to is 0, or stays as it is where the call adds gradients. */
static void print_zeros(Print *e, const Group *g)
{
    Module *m = e->p->m;
    NodeId id = g->arrays.data[0];
    const Storage *st = &e->pr->node[id];
    const Poly *bytes = poly_mul(m, array_elements(m, id), poly_const(m, dtype_bytes(st->dtype)));
    const char *need = emit_need_name(e, g);
    buf_f(&e->ops,
          "    { .name = \"%s_zeros\", .kind = CELL_OP_FILL, .flags = %s, .need = %s,\n"
          "      .u.memory = { .to = { %d, NULL }, .bytes = %s, .byte = 0 } },\n",
          g->kernel, st->home == HOME_ARG ? "CELL_OP_OVERWRITE_ONLY" : "0", need, emit_storage_buffer(e, st),
          emit_poly_expr(e, bytes));
    e->n_ops++;
}

void emit_scatter_op(Print *e, Group *g)
{
    const Scatter *s = g->scatter;
    const char *sorts = shares_expr(e, s->positions, SORT_EACH, SORT_BLOCKS, 1);
    const char *one = shares_expr(e, s->positions, SORT_EACH, 1, 1);
    const char *columns = emit_blocks_expr(e, s->columns, SCATTER_THREADS);
    print_zeros(e, g);
    print_scatter_kernel(e, g, SCATTER_KEYS, 0, emit_blocks_expr(e, s->positions, SCATTER_THREADS), "NULL");
    const char *need = emit_need_name(e, g);
    buf_f(&e->ops,
          "    { .name = \"%s_sort\", .kind = CELL_OP_LOOP, .need = %s,\n"
          "      .u.loop = { .from = NULL, .to = %s, .step = 1, .n_ops = 3 } },\n",
          g->kernel, need, passes_expr(e, s->rows));
    e->n_ops++;
    print_scatter_kernel(e, g, SCATTER_COUNT, 256 * 32 * 4, sorts, "NULL");
    print_scatter_kernel(e, g, SCATTER_SCAN, (1024 + 32) * 8, one, "NULL");
    print_scatter_kernel(e, g, SCATTER_MOVE, 256 * 32 * 4, sorts, "NULL");
    print_scatter_kernel(e, g, SCATTER_SUMS, 0, columns, shares_expr(e, s->positions, SHARE_EACH, SHARES, 1));
    print_scatter_kernel(e, g, SCATTER_TOTALS, 0, columns, shares_expr(e, s->positions, SHARE_EACH, SHARES, 2));
}
