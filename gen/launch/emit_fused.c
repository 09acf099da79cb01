/* emit_fused.c: the form of a launch plan for pairs (plan_fused.c): one kernel where sizes and device are
 * such that it pays; else the two groups' own. In: a pair; out: the kernel's row in the table before the
 * first of the two is printed, and its operation, which stands before that of its MAP or ROW group as a form
 * of the same work. The product, which may stand elsewhere, has the condition turned round. */
#include "emit_plan.h"

/* Rows that are made are counted from 0. */
static void print_clearing(Print *e, const Group *g, const Fused *f)
{
    Module *m = e->p->m;
    const Buffer *made = &e->p->buffers.data[f->made];
    const char *need = emit_need_name(e, g);
    const char *size =
        emit_expr(e, formula_with(m, F_MUL, form_shares(m, made->cut, made->each, made->most), 4));
    buf_f(&e->ops,
          "    { .name = \"counters\", .kind = CELL_OP_FILL, .need = %s,\n"
          "      .u.memory = { .to = { %d, NULL }, .bytes = %s } },\n",
          need, emit_buffer_number(e, f->made), size);
    e->n_ops++;
}

void emit_fused_kernel(Print *e, const Fused *f)
{
    emit_kernel_number(e, f->kernel);
    buf_f(&e->table, ", .threads = %d, .smem = %s%s },\n", FUSED_THREADS, emit_number_expr(e, FUSED_SMEM),
          f->ahead ? ", .cooperative = 1" : "");
}

void emit_fused_op(Print *e, const Fused *f)
{
    Module *m = e->p->m;
    const Formula *tiles = form_shares(m, poly_mul(m, f->rows, f->columns), FUSED_ROWS * FUSED_COLUMNS,
                                       FUSED_BLOCKS);
    const char *grid = emit_expr(e, formula(m, F_MIN, tiles, formula_resident(m, f->kernel)));
    const char *when = emit_expr(e, form_fused(e->p, f)), *t = "";
    Opened list;
    if (f->ahead) {
        list = emit_open(e);
        print_clearing(e, f->map, f);
        t = intern_f(m->c, ", .t = %s", emit_expr(e, form_ahead_lanes(e->p, f)));
    }
    const char *need = f->ahead ? emit_need_name(e, f->map) : "NULL";
    int refs = emit_refs(e, &f->refs);
    buf_f(&e->ops,
          "    { .name = \"%s\", .kind = CELL_OP_KERNEL, .need = %s, .when = %s,\n"
          "      .u.kernel = { .kernel = %d, .n_refs = %d, .grid = { %s, NULL, NULL }, "
          ".refs = %srefs_%d%s } },\n",
          f->kernel, need, f->ahead ? "NULL" : when, emit_kernel_index(e, f->kernel), f->refs.len, grid,
          e->tag, refs, t);
    e->n_ops++;
    if (f->ahead)
        emit_list_end(e, &list, f->kernel, when);
}
