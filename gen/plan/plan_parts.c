/* plan_parts.c: products of f32 on tensor cores. In comes a plan with its products and storage; out go, for each product
 * for all steps that may be large, copies of its operands in which a number is the sum of three of bf16, so that six
 * products of these parts, on tensor cores, are that of the numbers with an error below 2^-23 of each term. It is
 * guaranteed that equal copies are one, and that no product of a step, and none of another type, takes any.
 *
 * Terms of one size are one product: with the parts of the left operand rising along k and those of the right one
 * falling, a neighbourhood of parts of both along k has the terms of one size. So parts of an operand lie one behind
 * another along its k, whichever axis that is; or, where k is the first axis of both, each row is followed by its parts. */
#include "base/mutate.h"
#include "plan_pass.h"

bool parts_along_k(const GemmSide *s, bool left)
{
    const Poly *stride = left ? s->col : s->row;
    return !stride || poly_is_one(stride);
}

/* May an extent be large enough? */
static bool may_do(const Plan *p, const Poly *extent)
{
    return p->request->products == PRODUCTS_PARTS || !extent->is_const || extent->value >= PARTS_EXTENT;
}

static bool is_f32(const Plan *p, const Program *pr, const GemmSide *s)
{
    const Storage *st = plan_storage(p, pr, &s->read);
    return st->home != HOME_NONE && st->dtype == DT_F32;
}

static bool may_take_parts(const Plan *p, const Program *pr, const Group *g)
{
    const Gemm *x = &g->gemm;
    if (g->kind != G_GEMM || x->batch || p->request->products == PRODUCTS_PLAIN)
        return false;
    return may_do(p, x->m) && may_do(p, x->n) && may_do(p, x->k) && is_f32(p, pr, &x->a) && is_f32(p, pr, &x->b) &&
           is_f32(p, pr, &x->c);
}

static Parts operand_of(Plan *p, const Program *pr, const Gemm *g, bool left)
{
    const GemmSide *s = left ? &g->a : &g->b, *other = left ? &g->b : &g->a;
    const Poly *outer = left ? g->m : g->n, *piece = plan_storage(p, pr, &s->read)->alias_offset;
    bool along = parts_along_k(s, left);
    const Poly *pitch = along == left ? s->row : s->col;
    return (Parts){ .read = s->read, .offset = piece ? poly_add(p->m, s->offset, piece) : s->offset,
                    .rows = along ? outer : g->k, .columns = along ? g->k : outer,
                    .pitch = pitch ? pitch : poly_const(p->m, 1), .planes = !along && parts_along_k(other, !left),
                    .rising = left || mutate("same-parts") };
}

static bool same_copy(const Parts *a, const Parts *b)
{
    return a->read.is_tensor == b->read.is_tensor && a->read.id == b->read.id && a->offset == b->offset &&
           a->rows == b->rows && a->columns == b->columns && a->pitch == b->pitch && a->planes == b->planes &&
           a->rising == b->rising;
}

static int new_copy(Plan *p, Program *pr, const Parts *x)
{
    Module *m = p->m;
    const char *of = x->read.is_tensor ? m->tensors.data[x->read.id].name : at(p, x->read.id)->name;
    const Poly *elements = poly_mul(m, poly_mul(m, x->rows, x->columns), poly_const(m, PARTS));
    Parts *copy = arena_alloc(m->arena, sizeof *copy);
    *copy = *x;
    copy->buffer = add_buffer(p, intern_f(m->c, "parts of %s", of ? of : intern_f(m->c, "v%d", x->read.id)), DT_BF16,
                              elements, false, true);
    copy->kernel = intern_f(m->c, "%s_%s_parts_%d", m->name, pr->dir == FORWARD ? "fwd" : "bwd", pr->parts.len);
    p->buffers.data[copy->buffer].parts = copy;
    vec_push(m->arena, &pr->parts, copy);
    return pr->parts.len;
}

static void take_parts(Plan *p, Program *pr, Group *g)
{
    for (int side = 0; side < 2; side++) {
        Parts x = operand_of(p, pr, &g->gemm, side == 0);
        int i = 0;
        while (i < pr->parts.len && !same_copy(pr->parts.data[i], &x))
            i++;
        g->gemm.parts[side] = i < pr->parts.len ? i + 1 : new_copy(p, pr, &x);
        vec_push(p->m->arena, &pr->parts.data[g->gemm.parts[side] - 1]->products, g);
    }
}

void find_parts(Plan *p)
{
    static const Phase phases[] = { PHASE_PARAM, PHASE_BEFORE, PHASE_AFTER };
    for (int d = 0; d < 2; d++)
        for (int k = 0; k < 3; k++)
            for (int i = 0; i < p->program[d].groups.len; i++) {
                Group *g = &p->program[d].groups.data[i];
                if (g->phase == phases[k] && may_take_parts(p, &p->program[d], g))
                    take_parts(p, &p->program[d], g);
            }
}
