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

/* How many threads a block has where the row says it, and its shared memory. */
static void print_block(Print *e, const Group *g, bool odd, int64_t smem)
{
    Module *m = e->p->m;
    const Formula *threads = g->row_extent ? form_row_threads(e->p, g, odd ? g->narrow : g->each) : NULL;
    if (threads)
        buf_f(&e->table, ", .block = %s", emit_expr(e, threads));
    if (threads && g->smem_each) {
        const Formula *bytes = formula_with(m, F_ADD, formula_with(m, F_MUL, threads, g->smem_each), smem);
        int64_t more = odd && g->long_slots
                           ? g->smem_each / g->slots * (g->long_slots - g->slots) * g->threads
                           : 0;
        if (more)
            bytes = formula(m, F_ADD, bytes, formula_with(m, F_MUL, form_row_is_long(e->p, g, smem), more));
        buf_f(&e->table, ", .smem = %s", emit_expr(e, bytes));
    } else if (smem) {
        buf_f(&e->table, ", .smem = %s", emit_number_expr(e, smem));
    }
}

static int find_kernel(const Print *e, const char *name)
{
    for (int i = 0; i < e->kernels.len; i++)
        if (strcmp(e->kernels.data[i], name) == 0)
            return i;
    return -1;
}

bool emit_has_kernel(const Print *e, const char *name)
{
    return find_kernel(e, name) >= 0;
}

int emit_kernel_index(const Print *e, const char *name)
{
    int i = find_kernel(e, name);
    if (i < 0)
        bug(e->p->m->c, "emit_plan", "no kernel %s", name);
    return i;
}

/* The row of a kernel is open: its threads, shared memory and further fields follow. */
int emit_kernel_number(Print *e, const char *name)
{
    buf_f(&e->table, "    { .name = \"%s\", .symbol = %s", name, name);
    vec_push(e->p->m->arena, &e->kernels, name);
    return e->kernels.len - 1;
}

int emit_cpu_row(Print *e, const char *name)
{
    buf_f(&e->table, "    { .name = \"%s\"", name);
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

static void print_row(Print *e, const Group *g, const char *name, int threads, int64_t smem,
                      const RefVec *refs, bool odd)
{
    emit_kernel_number(e, name);
    buf_f(&e->table, ", .threads = %d", threads);
    print_block(e, g, odd, smem);
    if (g->kind == G_WALK && g->walk->cluster > 1)
        buf_f(&e->table, ", .cluster = %d", g->walk->cluster);
    if (g->kind == G_WALK && e->pr->dir == FORWARD && e->p->m->c->slots)
        buf_f(&e->table, ", .slots = 1");
    buf_f(&e->table, "%s },\n", starts_early(e, g, refs) ? ", .dependent = 1" : "");
}

void emit_limit_refs(Print *e, const char *name, const RefVec *refs)
{
    if (refs->len > MAX_POINTERS)
        diag(e->p->m->c, DIAG_ERROR, e->p->m->span,
             "kernel %s needs %d arrays, and a kernel takes %d: an equation has too many terms, or many "
             "values of the same axes follow from one another; write several of them as one value with one more "
             "axis",
             name, refs->len, MAX_POINTERS);
}

const char *emit_wanted(Print *e, const Group *g, const RefVec *refs)
{
    bool walks_back = g->kind == G_WALK && e->pr->dir == BACKWARD;
    return walks_back ? intern_f(e->p->m->c, ", .wanted = %s", wanted_name(e, g, refs)) : "";
}

void emit_kernel_op_with(Print *e, const Group *g, const char *name, int threads, int64_t smem,
                         const RefVec *refs, const char *gx, const char *gy, LaunchTerms terms)
{
    emit_limit_refs(e, name, refs);
    if (!emit_has_kernel(e, name))
        print_row(e, g, name, threads, smem, refs, terms.odd);
    int kernel = emit_kernel_index(e, name);
    const char *need = emit_need_name(e, g);
    const char *wanted = emit_wanted(e, g, refs);
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

/* A kernel with a block for each row or more, where there is another for odd rows that one, and where a pair
 * does it with its product, that. None of them runs where one kernel walks the steps, if that does this one's
 * work. */
static void print_row_op(Print *e, const Group *g, const char *blocks)
{
    bool two = g->row_extent && (g->multiples.len || g->long_slots);
    const char *walked = g->unless_walked ? emit_expr(e, formula_not(e->p->m, e->walked)) : "NULL";
    LaunchTerms terms = { .when = !two && !g->fused ? walked : NULL };
    Opened forms;
    if (two || g->fused)
        forms = emit_open(e);
    if (g->fused)
        emit_fused_op(e, g->fused);
    if (two)
        emit_kernel_op_with(e, g, plan_odd_kernel(e->p, g), g->threads, g->smem, &g->refs, blocks, "NULL",
                            (LaunchTerms){ .when = emit_expr(e, form_row_is_odd(e->p, g)), .odd = true });
    emit_kernel_op_with(e, g, g->kernel, g->threads, g->smem, &g->refs, blocks, "NULL", terms);
    if (two || g->fused)
        emit_close(e, &forms, g->kernel,
                   intern_f(e->p->m->c, ".kind = CELL_OP_FORMS, .when = %s,\n      .u.list = { .n_ops = ",
                            walked));
}

const char *emit_blocks_expr(Print *e, const Poly *work, int per_block)
{
    return emit_expr(e, form_blocks(e->p->m, work, per_block));
}

/* The rows of partial sums: the sequences, or its blocks, where one kernel walks the steps and leaves them; else the
 * chunks. */
static const Formula *partial_rows(Print *e, const Group *g, const Poly *columns)
{
    Module *m = e->p->m;
    const Formula *chunks = form_chunks(e->p, form_rows(e->p, g), columns, false);
    const Formula *walk = e->p->buffers.data[g->partial].walk_rows;
    return formula(m, F_ADD, formula(m, F_MUL, chunks, formula_not(m, e->walked)),
                   formula(m, F_MUL, walk, e->walked));
}

/* Where one kernel walks the steps, that may be the first stage. */
static void print_column_kernels(Print *e, Group *g, const Poly *columns)
{
    int64_t real = e->p->compute == DT_F64 ? 8 : 4;
    Module *m = e->p->m;
    LaunchTerms first = { .when = g->by_steps ? emit_expr(e, formula_not(m, e->walked)) : NULL };
    const Fused *ahead = column_ahead(e->pr, g);
    const Formula *rows = g->by_steps ? partial_rows(e, g, columns)
                          : ahead     ? form_ahead_rows(e->p, ahead)
                                      : NULL;
    LaunchTerms second = { .t = rows ? emit_expr(e, rows) : NULL };
    const char *down =
        g->by_rows ? NULL : emit_expr(e, form_chunks(e->p, form_rows(e->p, g), columns, false));
    const char *across = emit_blocks_expr(e, columns, COLUMN_WIDTH);
    if (down)
        emit_kernel_op_with(e, g, g->kernel, g->threads, g->smem, &g->refs, across, down, first);
    emit_kernel_op_with(e, g, intern_f(e->p->m->c, "%s_2", g->kernel), g->threads_2, g->threads_2 * real, &g->refs_2,
                        across, "NULL", second);
}

static const char *map_blocks(Print *e, const Group *g, const Poly *elements)
{
    if (g->naxes == 1 && g->phase != PHASE_DURING)
        return emit_blocks_expr(e, elements, g->threads * plan_width(e->p));
    return emit_expr(e, form_vector_blocks(e->p, g, elements, g->threads));
}

/* Or the kernel that does it with the product before it, where there is one. */
static void print_map_op(Print *e, const Group *g, const Poly *elements, const Poly *work)
{
    if (g->fused && g->fused->ahead)
        emit_fused_kernel(e, g->fused);
    const char *rows = g->flat     ? "NULL"
                       : g->packed ? emit_expr(e, form_vector_blocks(e->p, g, work, g->threads))
                                   : emit_poly_expr(e, form_rows(e->p, g));
    const char *blocks = g->flat ? emit_blocks_expr(e, work, g->threads) : map_blocks(e, g, elements);
    if (!g->fused) {
        const Formula *read = form_copies_read(e->p, e->pr, g);
        emit_kernel_op_with(e, g, g->kernel, g->threads, 0, &g->refs, blocks, rows,
                            (LaunchTerms){ .when = read ? emit_expr(e, read) : NULL });
        return;
    }
    Opened forms = emit_open(e);
    emit_fused_op(e, g->fused);
    emit_kernel_op(e, g, g->kernel, g->threads, 0, &g->refs, blocks, rows);
    emit_forms_end(e, &forms, g->kernel);
}

void emit_group_kernel(Print *e, Group *g)
{
    Module *m = e->p->m;
    const Poly *elements = poly_product(m, g->axes, g->naxes),
               *work = poly_mul(m, form_rows(e->p, g), elements);
    if (g->kind == G_MAP) {
        print_map_op(e, g, elements, work);
    } else if (g->kind == G_ROW && g->sums) {
        const Group *sums = &e->pr->groups.data[g->sums - 1];
        if (g->fused)
            emit_fused_kernel(e, g->fused);
        print_row_op(e, g, emit_expr(e, form_chunks(e->p, form_rows(e->p, g), sums->axes[0], true)));
    } else if (g->kind == G_ROW && g->pass) {
        const Formula *blocks = formula(m, F_MUL, formula_size(m, poly_mul(m, poly_dim(m, ATOM_B), elements)),
                                        form_blocks(m, poly_dim(m, ATOM_T), g->pass_by->steps));
        emit_kernel_op(e, g, g->kernel, g->threads, g->smem, &g->refs, emit_expr(e, blocks), "NULL");
    } else if (g->kind == G_ROW && g->along) {
        emit_kernel_op(e, g, g->kernel, g->threads, g->smem, &g->refs,
                       emit_expr(e, form_vector_blocks(e->p, g, work, 32)), "NULL");
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
    const Formula *shares = form_shares(e->p->m, n, each, most);
    return emit_expr(e, times > 1 ? formula_with(e->p->m, F_MUL, shares, times) : shares);
}

/* How many digits of 8 bits the places have, and the one behind them that stands for outside. */
static const Formula *sort_passes(Module *m, const Poly *rows)
{
    const Formula *x = formula_const(m, mutate("short-sort") ? 0 : 1);
    for (int digit = 1; digit < 8; digit++)
        x = formula(m, F_ADD, x,
                    formula(m, F_LE, formula_const(m, (int64_t)1 << (8 * digit)), formula_size(m, rows)));
    return x;
}

static void print_scatter_kernel(Print *e, Group *g, int kernel, const char *gx, const char *gy)
{
    emit_kernel_op(e, g, intern_f(e->p->m->c, "%s_%s", g->kernel, scatter_kernels[kernel]), scatter_threads(kernel),
                   scatter_shared(kernel), &g->scatter->refs[kernel], gx, gy);
}

/* What no position adds to is 0, or stays as it is where the call adds gradients. */
void emit_zeros(Print *e, const Group *g)
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
    emit_zeros(e, g);
    print_scatter_kernel(e, g, SCATTER_KEYS, emit_blocks_expr(e, s->positions, SCATTER_THREADS), "NULL");
    const char *need = emit_need_name(e, g);
    buf_f(&e->ops,
          "    { .name = \"%s_sort\", .kind = CELL_OP_LOOP, .need = %s,\n"
          "      .u.loop = { .from = NULL, .to = %s, .step = 1, .n_ops = 3 } },\n",
          g->kernel, need, emit_expr(e, sort_passes(e->p->m, s->rows)));
    e->n_ops++;
    print_scatter_kernel(e, g, SCATTER_COUNT, sorts, "NULL");
    print_scatter_kernel(e, g, SCATTER_SCAN, one, "NULL");
    print_scatter_kernel(e, g, SCATTER_MOVE, sorts, "NULL");
    print_scatter_kernel(e, g, SCATTER_SUMS, columns, shares_expr(e, s->positions, SHARE_EACH, SHARES, 1));
    print_scatter_kernel(e, g, SCATTER_TOTALS, columns, shares_expr(e, s->positions, SHARE_EACH, SHARES, 2));
}
