/* emit_products.c: the operations of a launch plan that multiply matrices, and those that take the parts of f32 operands. */
#include "../../runtime/cell_few_sizes.h"
#include "base/mutate.h"
#include "emit_plan.h"

typedef struct Side { int buffer; const char *offset; } Side;

static const Storage *read_storage(Print *e, const Read *r)
{
    return plan_storage(e->p, e->pr, r);
}

/* The buffer that keeps the operand for a few steps only, or NULL. */
static const Buffer *ring_of(Print *e, const Storage *st)
{
    bool kept = st->home == HOME_WORKSPACE || st->home == HOME_RESERVE;
    const Buffer *b = kept && e->pr->dir == FORWARD ? &e->p->buffers.data[st->slot] : NULL;
    return b && b->ring ? b : NULL;
}

/* The row of this step. */
static const Formula *row_of_step(Print *e, const Storage *st)
{
    Module *m = e->p->m;
    const Buffer *ring = ring_of(e, st);
    if (!ring)
        return formula_leaf(m, F_LOOP, 0);
    return ring->reserve ? formula_leaf(m, F_ROW, ring->ring)
                         : formula_with(m, F_MOD, formula_leaf(m, F_LOOP, 0), ring->ring);
}

/* The adjoint of a state by the parity of the step, which is counted as steps are walked. */
static const Formula *carried_at(Print *e, TensorId of)
{
    Module *m = e->p->m;
    const Poly *half = poly_mul(m, poly_dim(m, ATOM_B), tensor_elements(m, of));
    const Formula *step = formula_leaf(m, F_LOOP, 0);
    if (m->c->reverse)
        step = formula(m, F_SUB, formula_with(m, F_SUB, formula_size(m, poly_dim(m, ATOM_T)), 1), step);
    return formula(m, F_MUL, formula_with(m, F_MOD, step, 2), formula_size(m, half));
}

/* The first element: where the read starts, the piece within its whole, and the step. */
static Side side_of(Print *e, const GemmSide *s, bool one_step)
{
    Module *m = e->p->m;
    const Storage *st = read_storage(e, &s->read);
    TensorId of;
    const Formula *x = formula_size(m,
                                    st->alias_offset ? poly_add(m, s->offset, st->alias_offset) : s->offset);
    if (!s->read.is_tensor && root_kind(m, s->read.id, &of) == ROOT_DPREV) {
        x = formula(m, F_ADD, x, carried_at(e, of));
        return (Side){ emit_buffer_number(e, e->pr->carry[of]), emit_expr(e, x) };
    }
    if (one_step && st->timed) {
        const Poly *pitch = s->read.is_tensor ? tensor_elements(m, s->read.id)
                                              : array_elements(m, s->read.id);
        bool first = (st->home == HOME_WORKSPACE || st->home == HOME_RESERVE) && e->p->buffers.data[st->slot].time_first;
        pitch = st->pitch ? st->pitch : pitch;
        pitch = first ? poly_mul(m, pitch, poly_dim(m, ATOM_B)) : pitch;
        x = formula(m, F_ADD, x, formula(m, F_MUL, row_of_step(e, st), formula_size(m, pitch)));
    }
    return (Side){ emit_storage_buffer(e, st), emit_expr(e, x) };
}

static void print_operand(Print *e, const char *name, const GemmSide *s, Side at)
{
    const Buffer *ring = ring_of(e, read_storage(e, &s->read));
    if (ring)
        e->rows = formula_leaf(e->p->m, ring->reserve ? F_ROWS : F_CONST, ring->ring);
    buf_f(&e->ops, "          .%s = { { %d, %s }, %s, %s, %s },\n", name, at.buffer, at.offset,
          emit_poly_expr(e, s->row), emit_poly_expr(e, s->col), emit_poly_expr(e, s->batch));
    e->rows = NULL;
}

/* The first result of a group overwrites what is there, or is added to what the caller has. */
static const char *first_beta(Print *e, const Group *g)
{
    if (g->gemm.added && !mutate("lost-product"))
        return "CELL_BETA_ONE";
    bool adds = read_storage(e, &g->gemm.c.read)->home == HOME_ARG && e->pr->dir == BACKWARD;
    return adds ? "CELL_BETA_ACCUMULATE" : "CELL_BETA_ZERO";
}

static const char *product_name(const Print *e, const Group *g)
{
    const char *value = e->p->m->nodes.data[g->arrays.data[0]].name;
    return value ? value : g->kernel;
}

static void print_result(Print *e, const Group *g, Side c)
{
    print_operand(e, "c", &g->gemm.c, c);
    buf_f(&e->ops, "      } },\n");
    e->n_ops++;
}

/* Of numbers of 8 bits: the buffers that begin with their scales. */
static const char *scales_of(const Print *e, const Codes *codes)
{
    if (!codes)
        return "";
    return intern_f(e->p->m->c, " .a_scale = %d, .b_scale = %d,",
                    1 + emit_arg_of(e, codes->scale[0], ROLE_VALUE),
                    1 + emit_arg_of(e, codes->scale[1], ROLE_VALUE));
}

/* when: NULL where it is always made so. codes: in place of the operands, or NULL. */
static void print_product_of(Print *e, Group *g, const char *when, const Codes *codes)
{
    bool one_step = g->phase == PHASE_DURING;
    const GemmSide *left = codes ? &codes->a : &g->gemm.a, *right = codes ? &codes->b : &g->gemm.b;
    Side a = side_of(e, left, one_step), b = side_of(e, right, one_step);
    Side c = side_of(e, &g->gemm.c, one_step);
    const char *need = emit_need_name(e, g);
    buf_f(&e->ops,
          "    { .name = \"%s\", .kind = CELL_OP_GEMM, .need = %s,%s\n"
          "      .u.gemm = { .m = %s, .n = %s, .k = %s, .batch = %s, .alpha = 1, .beta = %s,%s\n",
          product_name(e, g), need, when ? intern_f(e->p->m->c, " .when = %s,", when) : "",
          emit_poly_expr(e, g->gemm.m), emit_poly_expr(e, g->gemm.n), emit_poly_expr(e, g->gemm.k),
          emit_poly_expr(e, g->gemm.batch), first_beta(e, g), scales_of(e, codes));
    print_operand(e, "a", left, a);
    print_operand(e, "b", right, b);
    print_result(e, g, c);
}

static void print_product(Print *e, Group *g, const char *when)
{
    print_product_of(e, g, when, NULL);
}

/* Of numbers of 8 bits, or of their copies: by one kernel with what stands next to it where a pair does
 * that. */
static void print_forms_of_codes(Print *e, Group *g)
{
    Module *m = e->p->m;
    const Formula *takes = form_takes_codes(e->p, &g->gemm);
    print_product_of(e, g, emit_expr(e, takes), g->gemm.codes);
    const Formula *copies = formula_not(m, takes);
    if (g->fused)
        copies = formula_and(m, copies, formula_not(m, form_fused(e->p, g->fused)));
    print_product(e, g, emit_expr(e, copies));
}

static const Parts *parts_of(const Print *e, const Gemm *g, bool left)
{
    return e->pr->parts.data[g->parts[left ? 0 : 1] - 1];
}

/* Before the first product that may take it, for whoever wants any of them. */
static void print_parts_copy(Print *e, Parts *x)
{
    Group own = { .kind = G_MAP };
    for (int i = 0; i < x->products.len; i++) {
        const Group *g = x->products.data[i];
        own.always |= g->always || g->need.len == 0;
        for (int k = 0; k < g->need.len; k++)
            vec_push(e->p->m->arena, &own.need, g->need.data[k]);
    }
    const char *when = e->p->request->products != PRODUCTS_PARTS
                           ? emit_expr(e, form_copy_taken(e->p, e->pr, x))
                           : NULL;
    emit_kernel_op_with(e, &own, x->kernel, PARTS_THREADS, 0, &x->refs,
                        emit_blocks_expr(e, x->columns, 8 * PARTS_THREADS), emit_poly_expr(e, x->rows),
                        (LaunchTerms){ .when = when });
}

/* A product of `n` parts of each operand, from these places on: all terms of one size, or one of them. */
typedef struct PartsTerm {
    int left, right, n;
    bool pieces;                  /* a piece of k, whose start is the loop's variable */
    const char *beta;
} PartsTerm;

static const Formula *parts_offset(Print *e, const Parts *x, int place, const Poly *along_k,
                                   const PartsTerm *t)
{
    Module *m = e->p->m;
    const Poly *part = x->planes ? poly_mul(m, x->rows, x->columns) : x->columns;
    const Formula *from = formula_size(m, poly_mul(m, part, poly_const(m, place)));
    if (!t->pieces || mutate("first-piece"))
        return from;
    return formula(m, F_ADD, from, formula(m, F_MUL, formula_leaf(m, F_LOOP, 0), formula_size(m, along_k)));
}

static void print_parts_operand(Print *e, const Gemm *g, bool left, const PartsTerm *t)
{
    Module *m = e->p->m;
    const Parts *x = parts_of(e, g, left);
    bool last = parts_along_k(left ? &g->a : &g->b, left), follow = !last && !x->planes && t->n == PARTS;
    const Poly *one = poly_const(m, 1);
    const Poly *pitch = x->planes || follow ? x->columns : poly_mul(m, x->columns, poly_const(m, PARTS));
    const Poly *along_k = last ? one : pitch, *across = last ? pitch : one;
    const char *from = emit_expr(e, parts_offset(e, x, left ? t->left : t->right, along_k, t));
    buf_f(&e->ops, "          .%s = { { %d, %s }, %s, %s, NULL },\n", left ? "a" : "b", emit_buffer_number(e, x->buffer), from,
          emit_poly_expr(e, left ? across : along_k), emit_poly_expr(e, left ? along_k : across));
}

static const char *parts_depth(Print *e, const Gemm *g, const PartsTerm *t)
{
    Module *m = e->p->m;
    const Formula *x = formula_size(m, poly_mul(m, g->k, poly_const(m, t->n)));
    if (t->pieces)
        x = formula_with(m, F_MIN, formula(m, F_SUB, x, formula_leaf(m, F_LOOP, 0)), PARTS_PIECE);
    return emit_expr(e, x);
}

static void print_parts_product(Print *e, const Group *g, PartsTerm t)
{
    const char *need = emit_need_name(e, g), *depth = parts_depth(e, &g->gemm, &t);
    buf_f(&e->ops,
          "    { .name = \"%s of parts\", .kind = CELL_OP_GEMM, .need = %s,\n"
          "      .u.gemm = { .m = %s, .n = %s, .k = %s, .alpha = 1, .beta = %s,\n",
          product_name(e, g), need, emit_poly_expr(e, g->gemm.m), emit_poly_expr(e, g->gemm.n), depth,
          t.beta);
    print_parts_operand(e, &g->gemm, true, &t);
    print_parts_operand(e, &g->gemm, false, &t);
    print_result(e, g, side_of(e, &g->gemm.c, false));
}

/* The smallest terms first. Only the largest are so large that it matters how tensor cores add: these go by pieces of k,
 * whose sums are added as f32 is. */
static void print_parts_products(Print *e, const Group *g)
{
    const Gemm *x = &g->gemm;
    bool follow = !parts_along_k(&x->a, true) && !parts_along_k(&x->b, false);   /* then terms of two sizes are apart */
    print_parts_product(e, g, (PartsTerm){ 0, 0, 3, false, first_beta(e, g) });
    if (follow) {
        print_parts_product(e, g, (PartsTerm){ 1, 0, 1, false, "CELL_BETA_ONE" });
        print_parts_product(e, g, (PartsTerm){ 2, 1, 1, false, "CELL_BETA_ONE" });
    } else {
        print_parts_product(e, g, (PartsTerm){ 1, 0, 2, false, "CELL_BETA_ONE" });
    }
    const char *need = emit_need_name(e, g), *depth = emit_poly_expr(e, x->k);
    Opened pieces = emit_open(e);
    print_parts_product(e, g, (PartsTerm){ 2, 0, 1, true, "CELL_BETA_ONE" });
    emit_close(e, &pieces, "pieces of k", intern_f(e->p->m->c, ".kind = CELL_OP_LOOP, .need = %s,\n"
               "      .u.loop = { .from = NULL, .to = %s, .step = %d, .n_ops = ", need, depth, PARTS_PIECE));
}

/* Where sizes do not matter there is one form. */
static void print_forms_of_parts(Print *e, Group *g)
{
    if (e->p->request->products == PRODUCTS_PARTS) {
        print_parts_products(e, g);
        return;
    }
    Opened forms = emit_open(e), list = emit_open(e);
    print_parts_products(e, g);
    emit_list_end(e, &list, "parts", emit_expr(e, form_takes_parts(e->p, e->pr, &g->gemm)));
    print_product(e, g, NULL);
    emit_forms_end(e, &forms, product_name(e, g));
}

void emit_gemm(Print *e, Group *g)
{
    if (g->fused) {
        if (!g->fused->ahead)
            emit_fused_kernel(e, g->fused);
        if (takes_codes(&g->gemm))
            print_forms_of_codes(e, g);
        else
            print_product(e, g, emit_expr(e, formula_not(e->p->m, form_fused(e->p, g->fused))));
        return;
    }
    if (takes_codes(&g->gemm)) {
        print_forms_of_codes(e, g);
        return;
    }
    if (!g->gemm.parts[0]) {
        print_product(e, g, NULL);
        return;
    }
    for (int side = 0; side < 2; side++) {
        Parts *x = e->pr->parts.data[g->gemm.parts[side] - 1];
        if (x->products.data[0] == g)
            print_parts_copy(e, x);
    }
    print_forms_of_parts(e, g);
}

/* ---- products that go together */

enum { PLACES_THREADS = 96 }; /* at least 3 * CELL_MAX_TOGETHER */

static const char *places_kernel(const Plan *p)
{
    return intern_f(p->m->c, "%s_places%s", p->m->name, plan_suffix(p->calls));
}

/* Those of f32 products of few rows. */
static const char *few_kernel(const Plan *p, int i)
{
    static const char *const names[CELL_FEW_KERNELS] = { "16", "16_across", "32", "32_across" };
    return intern_f(p->m->c, "%s_few_rows_%s%s", p->m->name, names[i], plan_suffix(p->calls));
}

void emit_places_kernel(const Plan *p, Buf *cuda)
{
    bool any = false;
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < p->program[d].groups.len; i++)
            any |= p->program[d].groups.data[i].together != 0;
    if (any)
        buf_f(cuda,
              "extern \"C\" __global__ void __launch_bounds__(%d)\n%s(const __grid_constant__ "
              "cell_kernel_args args)\n{\n    cell_places(args);\n}\n\n",
              PLACES_THREADS, places_kernel(p));
    for (int i = 0; any && p->dtype == DT_F32 && i < CELL_FEW_KERNELS; i++)
        buf_f(cuda,
              "extern \"C\" __global__ void __launch_bounds__(%d, 2)\n%s(const __grid_constant__ "
              "cell_kernel_args args)\n{\n    cell_few_rows<%d, %s>(args);\n}\n\n",
              CELL_FEW_THREADS, few_kernel(p, i), i < 2 ? 16 : CELL_FEW_ROWS_MOST, i % 2 ? "true" : "false");
}

/* 1 + the index of the first of the kernels for products of few rows; 0: there are none. */
static int emit_few_kernels(Print *e)
{
    if (e->p->dtype != DT_F32)
        return 0;
    for (int i = 0; i < CELL_FEW_KERNELS; i++) {
        if (emit_has_kernel(e, few_kernel(e->p, i)))
            continue;
        emit_kernel_number(e, few_kernel(e->p, i));
        buf_f(&e->table, ", .threads = %d, .dependent = 1 },\n", CELL_FEW_THREADS);
    }
    return 1 + emit_kernel_index(e, few_kernel(e->p, 0));
}

int emit_together(Print *e, int i)
{
    const Group *first = &e->pr->groups.data[i];
    const char *kernel = places_kernel(e->p);
    int n = 0;
    if (!emit_has_kernel(e, kernel)) {
        emit_kernel_number(e, kernel);
        buf_f(&e->table, ", .threads = %d, .dependent = 1 },\n", PLACES_THREADS);
    }
    const int few = emit_few_kernels(e);
    int buffer = emit_buffer_number(e, first->together - 1);
    Direction d = e->pr == &e->p->program[BACKWARD] ? BACKWARD : FORWARD;
    Opened all = emit_open(e);
    for (; i + n < e->pr->groups.len && e->pr->groups.data[i + n].together == first->together; n++)
        emit_gemm(e, &e->pr->groups.data[i + n]);
    emit_close(e, &all, "products",
               intern_f(e->p->m->c,
                        ".kind = CELL_OP_PRODUCTS,\n      .u.products = { .together = %s, .kernel = %d, %s"
                        ".places = { %d, NULL },\n              .n_ops = ",
                        emit_expr(e, form_goes_together(e->p, d, &first->gemm)), emit_kernel_index(e, kernel),
                        few ? intern_f(e->p->m->c, ".few = %d, ", few) : "", buffer));
    return i + n - 1;
}
