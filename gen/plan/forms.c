/* forms.c: grids, shared memory and conditions of kernels. In: groups, products and pairs of a plan. Out:
 * formulas over the sizes of a call and the device (formula.h). */
#include "../../runtime/cell_few_sizes.h"
#include "forms.h"

#include "base/mutate.h"
#include "emit/emit.h"

/* SMALL_PARAM: numbers of one that products of 12 to 16 rows take as a batch. */
enum { SMALL_PARAM = 4 << 20 };

/* ---- plans ---- */

static const Formula *has_memory(const Plan *p)
{
    return formula(p->m, F_LE, formula_const(p->m, p->block_memory),
                   formula_leaf(p->m, F_DEVICE, DEVICE_BLOCK_MEMORY));
}

/* Of each walk: the device holds so many of its blocks at once. */
static const Formula *and_holds(const Plan *p, const Formula *x, const Formula *blocks)
{
    for (int d = 0; d < 2; d++)
        if (plan_walk(p, d))
            x = formula_and(
                p->m, x, formula(p->m, F_LE, blocks, formula_resident(p->m, plan_walk(p, d)->walk->kernel)));
    return x;
}

/* Elements of the largest matrix state. */
static int64_t elements_of_states(const Module *m)
{
    int64_t most = 0;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        int64_t all = 1;
        for (int k = 0; x->kind == T_STATE && k < x->rank; k++)
            all *= x->axes[k]->is_const ? x->axes[k]->value : 1;
        most = all > most ? all : most;
    }
    return most;
}

const Formula *form_few_states(const Plan *p)
{
    enum { LARGE_STATE = 96 * 96 };
    Module *m = p->m;
    const Poly *parts = poly_mul(m, poly_dim(m, ATOM_B), walk_blocks(&p->program[FORWARD]));
    const Formula *states = formula_size(m, poly_div(m, parts, poly_const(m, m->parts)));
    const Formula *processors = formula_leaf(m, F_DEVICE, DEVICE_MULTIPROCESSORS);
    const Group *back = plan_walk(p, BACKWARD);
    if (elements_of_states(m) >= LARGE_STATE && !(back && back->walk->undone))
        return formula(m, F_LE, formula_with(m, F_MUL, states, 2), processors);
    return formula_and(m, formula(m, F_LE, formula_size(m, parts), processors),
                       formula(m, F_LE, formula_const(m, 2), formula_size(m, poly_dim(m, ATOM_T))));
}

/* Is it of few steps; or has it so few states that parts of these are walked; or at most as many blocks that walk as the device has multiprocessors, or
 * holds clusters of at once; or more than CROWD on each? */
const Formula *form_takes_call(const Plan *p)
{
    Module *m = p->m;
    const Formula *processors = formula_leaf(m, F_DEVICE, DEVICE_MULTIPROCESSORS), *takes = has_memory(p);
    if (p->calls == CALLS_SHORT)
        return formula_and(m, takes, p->request->when);
    if (p->schedule->takes)
        return formula_and(m, takes, p->schedule->takes(p));
    const Poly *blocks = poly_mul(m, poly_dim(m, ATOM_B), walk_blocks(&p->program[FORWARD]));
    if (p->calls == CALLS_SPLIT)
        return formula_and(m, takes, form_few_states(p));
    if (p->calls == CALLS_MANY)
        return formula_and(m, takes,
                           formula(m, F_LT, formula(m, F_MUL, formula_const(m, CROWD), processors),
                                   formula_size(m, blocks)));
    if (p->cluster == 1)
        return formula_and(m, takes, formula(m, F_LE, formula_size(m, blocks), processors));
    return and_holds(p, takes, formula_size(m, poly_mul(m, blocks, poly_const(m, p->cluster))));
}

const Formula *form_device_runs(const Plan *p)
{
    return p->cluster > 1 ? and_holds(p, has_memory(p), formula_const(p->m, p->cluster)) : has_memory(p);
}

/* ---- column sums ---- */

const Formula *form_blocks(Module *m, const Poly *work, int per_block)
{
    return formula_with(m, F_CEILDIV, formula_size(m, work), per_block);
}

const Formula *form_chunks(const Plan *p, const Poly *rows, const Poly *columns, bool by_rows)
{
    Module *m = p->m;
    ColumnCut cut = column_cut(p, by_rows);
    const Formula *most = formula_with(m, F_MIN, form_blocks(m, rows, cut.rows), cut.most);
    const Formula *across = formula_with(m, F_MAX, form_blocks(m, columns, cut.span), 1);
    const Formula *down = formula(m, F_DIV, formula_const(m, cut.blocks), across);
    if (cut.group > 1)
        down = formula_with(m, F_MUL, down, cut.group);
    return formula_with(m, F_MAX, formula(m, F_MIN, most, formula_with(m, F_MAX, down, cut.least)), 1);
}

const Formula *form_shares(Module *m, const Poly *n, int each, int most)
{
    return formula_with(m, F_MIN, form_blocks(m, n, each), most);
}

const Poly *form_rows(const Plan *p, const Group *g)
{
    Module *m = p->m;
    bool timed = g->timed && g->phase != PHASE_DURING;
    if (g->batched && timed)
        return module_rows(m);
    return g->batched ? poly_dim(m, ATOM_B) : timed ? poly_dim(m, ATOM_T) : poly_const(m, 1);
}

/* ---- vectors and rows ---- */

/* So many elements for each block, or vectors of them where the kernel takes vectors, which it asks of the
 * sizes itself: blocks without work would cost as much as others to start. */
const Formula *form_vector_blocks(const Plan *p, const Group *g, const Poly *elements, int per_block)
{
    Module *m = p->m;
    if (g->width == 1)
        return form_blocks(m, elements, per_block);
    const Formula *more = formula_const(m, g->width - 1);
    for (int i = 0; i < g->multiples.len; i++)
        more = formula(m, F_MUL, more, formula_multiple(m, g->multiples.data[i], g->width));
    if (g->enough && g->multiples.len) {
        const Poly *all = poly_mul(m, form_rows(p, g), poly_product(m, g->axes, g->naxes));
        more = formula(m, F_MUL, more, formula(m, F_LE, formula_const(m, g->enough), formula_size(m, all)));
    }
    const Formula *each = formula_with(m, F_MUL, formula_with(m, F_ADD, more, 1), per_block);
    return formula(m, F_CEILDIV, formula_size(m, elements), each);
}

const Formula *form_row_threads(const Plan *p, const Group *g, int each)
{
    Module *m = p->m;
    const Formula *warps = form_blocks(m, g->row_extent, 32 * each);
    const Formula *threads = formula_with(m, F_MIN, formula_with(m, F_MUL, warps, 32), g->threads);
    return formula_with(m, F_MAX, threads, 32);
}

/* A row takes more vectors a thread than usual, and the device has the shared memory for that. */
const Formula *form_row_is_long(const Plan *p, const Group *g, int64_t smem)
{
    Module *m = p->m;
    int64_t bytes = g->smem_each / g->slots * g->long_slots * g->threads + smem;
    const Formula *extent = formula_size(m, g->row_extent);
    const Formula *longer = formula(m, F_LT, formula_const(m, g->each * g->threads), extent);
    const Formula *fits = formula_with(m, F_LE, extent, g->long_slots * plan_width(p) * g->threads);
    const Formula *room = formula(m, F_LE, formula_const(m, bytes),
                                  formula_leaf(m, F_DEVICE, DEVICE_BLOCK_MEMORY));
    return formula_and(m, formula_and(m, longer, fits), room);
}

/* Rows are long, or not all multiples of 16 bytes. */
const Formula *form_row_is_odd(const Plan *p, const Group *g)
{
    Module *m = p->m;
    const Formula *usual = formula_const(m, 1);
    for (int i = 0; i < g->multiples.len; i++)
        usual = formula_and(m, usual, formula_multiple(m, g->multiples.data[i], plan_width(p)));
    if (g->long_slots)
        usual = formula_and(m, usual, formula_not(m, form_row_is_long(p, g, g->smem)));
    return formula_not(m, usual);
}

/* ---- products ---- */

/* Is the extents' product at least so large? They are cut, so that it does not overflow. */
static const Formula *at_least(Module *m, const Poly *const *extents, int n, int64_t least)
{
    const Formula *all = NULL;
    for (int i = 0; i < n; i++) {
        const Formula *cut = formula_with(m, F_MIN, formula_size(m, extents[i]), 1 << 20);
        all = all ? formula(m, F_MUL, all, cut) : cut;
    }
    return formula(m, F_LE, formula_const(m, least), all);
}

/* Tensor cores give six products of bf16 in less time than one of f32, on devices that have many of them,
 * where operands are much less than terms. */
const Formula *form_takes_parts(const Plan *p, const Program *pr, const Gemm *g)
{
    Module *m = p->m;
    const Poly *extents[] = { g->m, g->n, g->k };
    if (p->request->products == PRODUCTS_PARTS)
        return formula_const(m, 1);
    const Formula *capability = formula_leaf(m, F_DEVICE, DEVICE_CAPABILITY);
    const Formula *later = formula_and(m, formula(m, F_LE, formula_const(m, 90), capability),
                                       formula_with(m, F_LT, capability, 110));
    const Formula *takes = formula(m, F_ADD, formula_with(m, F_EQ, capability, 80), later);
    for (int i = 0; i < 3; i++)
        takes = formula_and(m, takes, at_least(m, &extents[i], 1, PARTS_EXTENT));
    for (int side = 0; side < 2; side++)
        takes = formula_and(m, takes,
                            formula_multiple(m, pr->parts.data[g->parts[side] - 1]->columns, PARTS_MULTIPLE));
    takes = formula_and(m, takes, at_least(m, extents, 2, PARTS_RESULT));
    return formula_and(m, takes, at_least(m, extents, 3, PARTS_TERMS));
}

const Formula *form_copy_taken(const Plan *p, const Program *pr, const Parts *x)
{
    const Formula *any = NULL;
    for (int i = 0; i < x->products.len; i++) {
        const Formula *takes = form_takes_parts(p, pr, &x->products.data[i]->gemm);
        any = any ? formula(p->m, F_OR, any, takes) : takes;
    }
    return any;
}

/* ---- products of 8 bits ---- */

static bool among(const Poly *p, const Poly *const *list, int n)
{
    for (int i = 0; i < n; i++)
        if (list[i] == p)
            return true;
    return false;
}

/* What cuBLASLt wants of matrices, of which the caller's pointers are multiples of 16 bytes: extents and
 * rows that are multiples of 16 numbers, but for one extent, along which it only has more rows. */
const Formula *form_takes_codes(const Plan *p, const Gemm *g)
{
    Module *m = p->m;
    const GemmSide *a = &g->codes->a, *b = &g->codes->b, *c = &g->c;
    bool swapped = poly_is_one(c->row) && !poly_is_one(c->col);
    const Poly *const sizes[] = { g->k,
                                  swapped ? g->m : g->n,
                                  a->row,
                                  b->col,
                                  swapped ? c->col : c->row,
                                  a->offset,
                                  b->offset,
                                  c->offset,
                                  a->batch,
                                  b->batch,
                                  c->batch };
    const Formula *takes = formula_leaf(m, F_DEVICE, DEVICE_PRODUCTS_OF_8);
    for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++) {
        bool known = !sizes[i] || (sizes[i]->is_const && sizes[i]->value % CODES_MULTIPLE == 0);
        if (!known && !among(sizes[i], sizes, i))
            takes = formula_and(m, takes, formula_multiple(m, sizes[i], CODES_MULTIPLE));
    }
    return takes;
}

static bool reads_array(const Group *product, const Group *g, int side)
{
    const Read *r = side ? &product->gemm.b.read : &product->gemm.a.read;
    for (int i = 0; i < g->arrays.len; i++)
        if (!r->is_tensor && r->id == g->arrays.data[i])
            return true;
    return false;
}

/* Does a product of the direction read one of them; or is one saved for backward? */
const Formula *form_copies_read(const Plan *p, const Program *pr, const Group *g)
{
    Module *m = p->m;
    const Formula *read = NULL;
    bool kept = false;
    if (!copies_codes(p, pr, g))
        return NULL;
    for (int i = 0; i < g->arrays.len; i++)
        kept |= pr->node[g->arrays.data[i]].home == HOME_RESERVE;
    if (kept && pr->dir == BACKWARD)
        return NULL;
    if (kept && !mutate("unsaved-copy")) /* T where the call saves, else 0 */
        read = formula(m, F_LT, formula_const(m, 0), formula_leaf(m, F_ROWS, 0));
    for (int i = 0; i < pr->groups.len; i++) {
        const Group *of = &pr->groups.data[i];
        if (of->kind != G_GEMM || !takes_codes(&of->gemm) ||
            (!reads_array(of, g, 0) && !reads_array(of, g, 1)))
            continue;
        const Formula *copies = formula_not(m, form_takes_codes(p, &of->gemm));
        read = read ? formula(m, F_OR, read, copies) : copies;
    }
    return read;
}

/* ---- pairs ---- */

/* Tiles of the result; a block has one at a time. */
static const Formula *tiles(Module *m, const Fused *f)
{
    return formula(m, F_MUL, form_blocks(m, f->rows, FUSED_ROWS), form_blocks(m, f->columns, FUSED_COLUMNS));
}

/* It pays where the multiprocessors have four tiles each or more, at most a tenth of them is idle over all
 * rounds, and the other group's elements go by while the product is made. cuBLAS has tiles of more shapes for
 * the rest. */
static const Formula *and_pays(Module *m, const Fused *f, const Formula *fits)
{
    const Formula *processors = formula_leaf(m, F_DEVICE, DEVICE_MULTIPROCESSORS);
    const Formula *slow = formula(m, F_LE, formula_const(m, f->least),
                                  formula_size(m, f->ahead ? f->columns : f->depth));
    const Formula *four = formula(m, F_LE, formula(m, F_MUL, formula_const(m, 4), processors), tiles(m, f));
    const Formula *rounds = formula(m, F_MUL, formula(m, F_CEILDIV, tiles(m, f), processors), processors);
    const Formula *busy = formula(m, F_LE, formula_with(m, F_MUL, rounds, 9),
                                  formula_with(m, F_MUL, tiles(m, f), 10));
    return formula_and(m, formula_and(m, formula_and(m, fits, slow), four), busy);
}

/* Extents are ints in the kernel. */
const Formula *form_fused(const Plan *p, const Fused *f)
{
    Module *m = p->m;
    const Poly *const sizes[] = { f->depth, f->columns, f->rows, f->a_pitch, f->b_pitch };
    const Formula *one = formula_const(m, 1), *x = formula(m, F_LE, one, formula_resident(m, f->kernel));
    if (takes_codes(&f->product->gemm))
        x = formula_and(m, x, formula_not(m, form_takes_codes(p, &f->product->gemm)));
    for (int i = 0; i < 3; i++) {
        int64_t most = f->ahead && i == 2 ? (int64_t)AHEAD_ROWS * AHEAD_GROUPS : 1 << 30;
        x = formula_and(m, x, formula(m, F_LE, one, formula_size(m, sizes[i])));
        x = formula_and(m, x, formula_with(m, F_LE, formula_size(m, sizes[i]), most));
    }
    for (int i = 0; i < 5; i++)
        if (i != 2 && !among(sizes[i], sizes, i))
            x = formula_and(m, x, formula_multiple(m, sizes[i], FUSED_MULTIPLE));
    for (int i = 0; i < f->multiples.len; i++)
        if (!among(f->multiples.data[i], sizes, 2))
            x = formula_and(m, x, formula_multiple(m, f->multiples.data[i], FUSED_MULTIPLE));
    return p->request->products != PRODUCTS_FUSED ? and_pays(m, f, x) : x;
}

/* At most as many as the kernel has chunks that the group has by itself. */
const Formula *form_ahead_lanes(const Plan *p, const Fused *f)
{
    Module *m = p->m;
    const Formula *depth = formula_with(m, F_MAX, formula_size(m, f->depth), 1);
    const Formula *lanes = formula(m, F_DIV, formula_const(m, AHEAD_VECTORS * FUSED_MULTIPLE), depth);
    return formula(m, F_MIN, form_chunks(p, f->rows, f->depth, true), formula_with(m, F_MAX, lanes, 1));
}

const Formula *form_ahead_rows(const Plan *p, const Fused *f)
{
    Module *m = p->m;
    const Formula *fused = form_fused(p, f);
    const Formula *own = formula(m, F_MUL, form_chunks(p, f->rows, f->depth, true), formula_not(m, fused));
    return formula(m, F_ADD, own, formula(m, F_MUL, form_ahead_lanes(p, f), fused));
}

static const Formula *within(Module *m, const Formula *x, int64_t least, int64_t most)
{
    return formula_and(m, formula(m, F_LE, formula_const(m, least), x),
                       formula(m, F_LE, x, formula_const(m, most)));
}

static bool counts_rows(Module *m, const Poly *extent)
{
    return extent == module_rows(m) || extent == poly_dim(m, ATOM_B);
}

/* Do the kernels for few rows take products of these sizes (runtime/ops.c: is_few)? */
static const Formula *form_few_rows(Module *m, const Formula *rows, const Poly *outs, const Poly *terms)
{
    const Formula *none = formula_const(m, 0);
    const Formula *whole = formula_and(
        m, formula(m, F_EQ, formula(m, F_MOD, formula_size(m, outs), formula_const(m, CELL_FEW_OUTS)), none),
        formula(m, F_EQ, formula(m, F_MOD, formula_size(m, terms), formula_const(m, CELL_FEW_TERMS)), none));
    return formula_and(m, within(m, rows, CELL_FEW_ROWS_LEAST, CELL_FEW_ROWS_MOST), whole);
}

/* In f32 it depends on what the products are. Sums over sequences and steps, which gradients of params are,
 * are always faster as a batch; those of a step's values with a param are not from 12 to 16 rows where the
 * param is large and no kernel for few rows takes them, and those of adjoints with it, of which each sums
 * over a gate's rows, are not from 17 to 63. */
static const Formula *goes_together_in_f32(const Plan *p, Direction d, const Gemm *g, const Formula *rows)
{
    Module *m = p->m;
    if (counts_rows(m, g->k))
        return within(m, rows, 1, 256);
    const Poly *outs = counts_rows(m, g->m) ? g->n : g->m;
    const Formula *own = form_few_rows(m, rows, outs, g->k);
    if (d == BACKWARD)
        return formula(m, F_MAX, formula(m, F_MAX, within(m, rows, 1, 16), within(m, rows, 64, 256)), own);
    const Poly *numbers = poly_mul(m, outs, g->k);
    const Formula *small = formula(m, F_LE, formula_size(m, numbers), formula_const(m, SMALL_PARAM));
    const Formula *few = formula(m, F_MAX, within(m, rows, 1, 11), within(m, rows, 17, 256));
    return formula(m, F_MAX, formula(m, F_MAX, few, formula_and(m, within(m, rows, 12, 16), small)), own);
}

/* Where a batch was measured to be faster than products one by one, by the products' rows, which are
 * sequences, or these and steps (one H200, an LSTM of 4096 with its params apart, both directions): in 16
 * bits 1.76 times for one, 1.36 for 2 to 16, 1.25 for 256, 1.01 for 2048; in f64 0.95 for one, 1.07 for 4
 * and 16, 0.89 for 64; in f32 1.12 to 1.4 up to 8, 1.02 to 1.08 from 64 on, and between by kinds (4
 * products of 1024, 2048, 4096: bench/results/h200-spelling-5.txt). */
const Formula *form_goes_together(const Plan *p, Direction d, const Gemm *g)
{
    Module *m = p->m;
    const Poly *rows = counts_rows(m, g->k)   ? g->k
                       : counts_rows(m, g->m) ? g->m
                       : counts_rows(m, g->n) ? g->n
                                              : module_rows(m);
    const Formula *x = formula_size(m, rows);
    if (p->dtype == DT_F64)
        return within(m, x, 2, 16);
    if (p->dtype == DT_F32)
        return goes_together_in_f32(p, d, g, x);
    return within(m, x, 1, 2048);
}
