/* emit_fused.c: the operations of a launch plan for pairs (plan_fused.c): one kernel where sizes and device are such that it pays,
 * and else the two groups'. In: a pair; out: the kernel's row in the table before the first of the two is printed, its operation
 * behind its MAP or ROW group's, and the condition of all three. */
#include "emit_plan.h"

/* Tiles of the result; a block has one at a time. */
static void postfix_tiles(Print *e, const Fused *f, Buf *x)
{
    postfix_poly(e, f->rows, x);
    buf_f(x, "CELL_X_PUSH, %d, CELL_X_CEILDIV, ", FUSED_ROWS);
    postfix_poly(e, f->columns, x);
    buf_f(x, "CELL_X_PUSH, %d, CELL_X_CEILDIV, CELL_X_MUL, ", FUSED_COLUMNS);
}

static void postfix_multiple(Print *e, const Poly *of, Buf *x)
{
    postfix_poly(e, of, x);
    buf_f(x, "CELL_X_PUSH, %d, CELL_X_MOD, CELL_X_PUSH, 0, CELL_X_EQ, CELL_X_MUL, ", FUSED_MULTIPLE);
}

/* Multiplies by 1 where it pays: the multiprocessors have four tiles each or more, at most a tenth of them is idle over all
 * rounds, and the other group's elements go by while the product is made. cuBLAS has tiles of more shapes for the rest. */
static void postfix_pays(Print *e, const Fused *f, Buf *x)
{
    buf_f(x, "CELL_X_PUSH, %d, ", f->least);
    postfix_poly(e, f->ahead ? f->columns : f->depth, x);
    buf_f(x, "CELL_X_LE, CELL_X_MUL, CELL_X_PUSH, 4, CELL_X_ATTR, CELL_ATTR_SM_COUNT, CELL_X_MUL, ");
    postfix_tiles(e, f, x);
    buf_f(x, "CELL_X_LE, CELL_X_MUL, ");
    postfix_tiles(e, f, x);
    buf_f(x, "CELL_X_ATTR, CELL_ATTR_SM_COUNT, CELL_X_CEILDIV, CELL_X_ATTR, CELL_ATTR_SM_COUNT, CELL_X_MUL, CELL_X_PUSH, 9, "
             "CELL_X_MUL, ");
    postfix_tiles(e, f, x);
    buf_f(x, "CELL_X_PUSH, 10, CELL_X_MUL, CELL_X_LE, CELL_X_MUL, ");
}

static bool among(const Poly *p, const Poly *const *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i] == p)
            return true;
    return false;
}

/* 1 where one kernel does both. Extents are ints there. */
static Buf condition(Print *e, const Fused *f)
{
    Buf x = emit_program_new(e);
    const Poly *const sizes[] = { f->depth, f->columns, f->rows, f->a_pitch, f->b_pitch };
    buf_f(&x, "CELL_X_PUSH, 1, CELL_X_RESIDENT, %d, CELL_X_LE, ", f->number);
    for (int i = 0; i < 3; i++) {
        buf_f(&x, "CELL_X_PUSH, 1, ");
        postfix_poly(e, sizes[i], &x);
        buf_f(&x, "CELL_X_LE, CELL_X_MUL, ");
        postfix_poly(e, sizes[i], &x);
        buf_f(&x, "CELL_X_PUSH, %lld, CELL_X_LE, CELL_X_MUL, ", f->ahead && i == 2 ? (long long)AHEAD_ROWS * AHEAD_GROUPS : 1ll << 30);
    }
    for (int i = 0; i < 5; i++)
        if (i != 2 && !among(sizes[i], sizes, i))
            postfix_multiple(e, sizes[i], &x);
    for (int i = 0; i < f->multiples.len; i++)
        if (!among(f->multiples.data[i], sizes, 2))
            postfix_multiple(e, f->multiples.data[i], &x);
    if (e->p->request->products != PRODUCTS_FUSED)
        postfix_pays(e, f, &x);
    return x;
}

const char *emit_unless_fused(Print *e, const Fused *f)
{
    Buf x = condition(e, f);
    return emit_not_expr(e, &x);
}

void postfix_unless_fused(Print *e, const Fused *f, Buf *out)
{
    Buf x = condition(e, f);
    buf_f(out, "%s", x.data);
    postfix_not(out);
    buf_f(out, "CELL_X_MUL, ");
}

/* Of how many sums each row is added to one: at most as many as the kernel has chunks that the group has by itself. */
static void postfix_lanes(Print *e, const Fused *f, Buf *x)
{
    postfix_chunks(e, f->rows, f->depth, true, x);
    buf_f(x, "CELL_X_PUSH, %d, ", AHEAD_VECTORS * FUSED_MULTIPLE);
    postfix_poly(e, f->depth, x);
    buf_f(x, "CELL_X_PUSH, 1, CELL_X_MAX, CELL_X_DIV, CELL_X_PUSH, 1, CELL_X_MAX, CELL_X_MIN, ");
}

const char *emit_ahead_rows(Print *e, const Fused *f)
{
    Buf x = emit_program_new(e), when = condition(e, f);
    postfix_chunks(e, f->rows, f->depth, true, &x);
    postfix_unless_fused(e, f, &x);
    postfix_lanes(e, f, &x);
    buf_f(&x, "%sCELL_X_MUL, CELL_X_ADD, ", when.data);
    return emit_expr_name(e, &x);
}

/* Rows that are made are counted from 0. */
static void print_clearing(Print *e, const Group *g, const Fused *f, const char *when)
{
    Buf bytes = emit_program_new(e);
    const Buffer *made = &e->p->buffers.data[f->made];
    const char *need = emit_need_name(e, g);
    postfix_shares(e, made->cut, made->each, made->most, &bytes);
    buf_f(&bytes, "CELL_X_PUSH, 4, CELL_X_MUL, ");
    const char *size = emit_expr_name(e, &bytes);
    buf_f(&e->ops,
          "    { .name = \"counters\", .kind = CELL_OP_FILL, .need = %s, .when = %s,\n"
          "      .u.memory = { .to = { %d, NULL }, .bytes = %s } },\n",
          need, when, emit_buffer_number(e, f->made), size);
    e->n_ops++;
}

void emit_fused_kernel(Print *e, Fused *f)
{
    f->number = emit_kernel_number(e, f->kernel);
    buf_f(&e->table, ", .threads = %d, .smem = %s%s },\n", FUSED_THREADS, emit_poly_expr(e, poly_const(e->p->m, FUSED_SMEM)),
          f->ahead ? ", .cooperative = 1" : "");
}

void emit_fused_op(Print *e, const Fused *f)
{
    Buf fused = condition(e, f), blocks = emit_program_new(e), lanes = emit_program_new(e);
    postfix_shares(e, poly_mul(e->p->m, f->rows, f->columns), FUSED_ROWS * FUSED_COLUMNS, FUSED_BLOCKS, &blocks);
    buf_f(&blocks, "CELL_X_RESIDENT, %d, CELL_X_MIN, ", f->number);
    const char *grid = emit_expr_name(e, &blocks), *when = emit_expr_name(e, &fused), *t = "";
    if (f->ahead) {
        print_clearing(e, f->map, f, when);
        postfix_lanes(e, f, &lanes);
        t = intern_f(e->p->m->c, ", .t = %s", emit_expr_name(e, &lanes));
    }
    const char *need = f->ahead ? emit_need_name(e, f->map) : "NULL";
    int list = emit_refs(e, &f->refs);
    buf_f(&e->ops,
          "    { .name = \"%s\", .kind = CELL_OP_KERNEL, .need = %s, .when = %s,\n"
          "      .u.kernel = { .kernel = %d, .n_refs = %d, .grid = { %s, NULL, NULL }, .refs = %srefs_%d%s } },\n",
          f->kernel, need, when, f->number, f->refs.len, grid, e->tag, list, t);
    e->n_ops++;
}
