/* attention_forms.c: the kernels of schedule attention as operations: their order and grids, as formulas over
 * the sizes of a call. */
#include "../../../runtime/cell_attention_sizes.h"
#include "../../../runtime/cpu/cell_cpu_attention_sizes.h"
#include "attention_plan.h"
#include "emit/emit.h"

/* Tiles of `rows` rows or keys. */
static const Formula *tiles(const Plan *p, const AttentionCut *c, AttentionKernel kernel, const Formula *rows)
{
    return formula(p->m, F_CEILDIV, rows, formula_const(p->m, attention_own(p, c, kernel)));
}

/* Steps before the call that have keys. */
static const Formula *steps_before(const Plan *p, const AttentionCut *c)
{
    Module *m = p->m;
    const Poly *places = m->tensors.data[c->k.past].axes[0];
    return formula(m, F_MIN, formula_leaf(m, F_START, 0), formula_size(m, places));
}

/* ---- calls of few rows, whose keys several blocks share. Sizes alone decide, so that the order of sums does
 * not follow the device. */

static const Formula *heads_of(const Plan *p, const AttentionCut *c)
{
    return formula_size(p->m, poly_mul(p->m, poly_dim(p->m, ATOM_B), c->heads));
}

static const Formula *rows_of(const Plan *p, const AttentionCut *c)
{
    return formula_size(p->m, poly_mul(p->m, poly_dim(p->m, ATOM_T), c->group));
}

const Formula *attention_is_few(const Plan *p, const AttentionCut *c)
{
    return formula_with(p->m, F_LE, rows_of(p, c), CELL_ATTENTION_FEW_ROWS);
}

/* As kernels_attention.c prints it. */
const Formula *attention_parts(const Plan *p, const AttentionCut *c)
{
    Module *m = p->m;
    const Formula *steps = formula_size(m, poly_dim(m, ATOM_T));
    const Formula *keys = formula(m, F_ADD, steps, steps_before(p, c));
    const Formula *fit = formula(m, F_DIV, formula_const(m, CELL_ATTENTION_PART_BLOCKS),
                                 formula_with(m, F_MAX, heads_of(p, c), 1));
    const Formula *n = formula(m, F_MIN, formula_with(m, F_CEILDIV, keys, CELL_ATTENTION_PART_KEYS), fit);
    return formula_with(m, F_MAX, formula_with(m, F_MIN, n, CELL_ATTENTION_PARTS), 1);
}

const Formula *attention_part_bytes(const Plan *p, const AttentionCut *c)
{
    Module *m = p->m;
    const Formula *parts = attention_parts(p, c);
    const Formula *n = formula(m, F_MUL, formula(m, F_MUL, heads_of(p, c), rows_of(p, c)), parts);
    n = formula(m, F_MUL, n, formula(m, F_LT, formula_const(m, 1), parts));
    n = formula(m, F_MUL, n, attention_is_few(p, c));
    return formula_with(m, F_MUL, n, (c->values + 2) * dtype_bytes(p->compute));
}

static const Formula *grid(const Plan *p, const AttentionCut *c, AttentionKernel kernel)
{
    Module *m = p->m;
    const Formula *heads = formula_size(m, poly_mul(m, poly_dim(m, ATOM_B), c->heads));
    const Formula *steps = formula_size(m, poly_dim(m, ATOM_T));
    const Formula *n;
    if (kernel == ATTENTION_KEYS) {
        n = tiles(p, c, kernel, steps);
        if (c->history)
            n = formula(m, F_ADD, n, tiles(p, c, kernel, steps_before(p, c)));
    } else {
        n = tiles(p, c, kernel, formula(m, F_MUL, steps, formula_size(m, c->group)));
    }
    n = formula_with(m, F_MUL, n, attention_slabs(p, c, kernel));
    if (kernel == ATTENTION_FEW)
        n = formula(m, F_MUL, n, attention_parts(p, c));
    /* Without steps nothing is asked for. */
    n = formula(m, F_MUL, n, formula_with(m, F_MIN, steps, 1));
    return formula(m, F_MUL, heads, n);
}

/* ---- on the CPU */

/* Reads of rows in a score, which a kernel has in scratch memory. */
static int leaves_of_rows(const AttentionCut *c)
{
    int n = 0;
    for (int i = 0; i < c->reads.len; i++)
        n += c->reads.data[i].leaf.side == LEAF_ROW;
    return n;
}

int64_t attention_scratch(const Plan *p, const AttentionCut *c, AttentionKernel kernel)
{
    return cell_cpu_attention_scratch(c->keys, c->values, leaves_of_rows(c), dtype_bytes(p->compute),
                                      kernel == ATTENTION_BACK);
}

/* Of all heads: forward tiles of rows; backward a head, or where there are few its tiles of rows and parts of
 * keys (cell_attention_items). */
static const Formula *items(const Plan *p, const AttentionCut *c, AttentionKernel kernel)
{
    Module *m = p->m;
    const Formula *heads = formula_size(m, poly_mul(m, poly_dim(m, ATOM_B), c->heads));
    const Formula *steps = formula_size(m, poly_dim(m, ATOM_T));
    const Formula *rows = formula(m, F_MUL, steps, formula_size(m, c->group));
    const Formula *n = formula_with(m, F_CEILDIV, rows, CELL_CPU_ATTENTION_ROWS);
    if (kernel == ATTENTION_BACK) {
        n = formula(m, F_ADD, n, formula_with(m, F_CEILDIV, steps, CELL_CPU_ATTENTION_PART));
        if (c->history)
            n = formula(m, F_ADD, n, formula_with(m, F_CEILDIV, steps_before(p, c), CELL_CPU_ATTENTION_PART));
        const Formula *few = formula_with(m, F_LT, heads, CELL_CPU_ATTENTION_HEADS);
        n = formula_with(m, F_MAX, formula(m, F_MUL, n, few), 1);
    }
    n = formula(m, F_MUL, n, formula_with(m, F_MIN, steps, 1));
    return formula(m, F_MUL, heads, n);
}

/* Operations of an item, roughly. */
static const Formula *work(const Plan *p, const AttentionCut *c)
{
    Module *m = p->m;
    const Formula *keys = formula_size(m, poly_dim(m, ATOM_T));
    if (c->history)
        keys = formula(m, F_ADD, keys, steps_before(p, c));
    const Formula *rows =
        formula_with(m, F_MIN,
                     formula(m, F_MUL, formula_size(m, c->group), formula_size(m, poly_dim(m, ATOM_T))),
                     CELL_CPU_ATTENTION_ROWS);
    return formula(m, F_MUL, formula_with(m, F_MUL, keys, c->keys + c->values), rows);
}

static bool cpu_stage(const Plan *p, const AttentionWalk *w, bool backward, int n, FormList *out)
{
    AttentionKernel k = backward ? ATTENTION_BACK : ATTENTION_FORWARD;
    Form f = { .kernel = w->kernel[k].name,
               .refs = &w->kernel[k].refs,
               .words = backward ? "gradients of sums over pairs of steps" : "sums over pairs of steps",
               .grid = items(p, w->cut, k),
               .work = work(p, w->cut),
               .bytes = formula_const(p->m, attention_scratch(p, w->cut, k)),
               .own_states = true };
    if (n == 0)
        vec_push(p->m->arena, out, f);
    return n == 0;
}

bool attention_has_kernel(const AttentionWalk *w, AttentionKernel kernel)
{
    if (kernel == ATTENTION_FEW || kernel == ATTENTION_COMBINE)
        return w->cut->history;
    return w->cut->form.kind == ATTENTION_SOFTMAX || kernel != ATTENTION_DOTS;
}

static Form form_of(const Plan *p, AttentionWalk *w, AttentionKernel k)
{
    static const char *const words[] = { "sums over pairs of steps",
                                         "sums over pairs of few steps and parts of the past",
                                         "sums of the parts",
                                         "dy . y of each row",
                                         "gradients of queries, over pairs of steps",
                                         "gradients of keys and values, over pairs of steps" };
    Form f = { .kernel = w->kernel[k].name,
               .refs = &w->kernel[k].refs,
               .words = words[k],
               .grid = grid(p, w->cut, k),
               .threads = attention_threads(p, w->cut, k),
               .own_states = true };
    if (attention_smem(p, w->cut, k))
        f.bytes = formula_const(p->m, attention_smem(p, w->cut, k));
    if (attention_copiers(p, w->cut, k))
        f.words = intern_f(p->m->c, "%s, by warps for which others copy", words[k]);
    if (k == ATTENTION_FEW || k == ATTENTION_COMBINE)
        f.when = attention_is_few(p, w->cut);
    if (k == ATTENTION_COMBINE)
        f.when = formula_and(p->m, f.when,
                             formula(p->m, F_LT, formula_const(p->m, 1), attention_parts(p, w->cut)));
    return f;
}

/* Stage n: a kernel of a sum; the kernels of a sum follow one another. */
bool attention_stage(const Plan *p, const Program *pr, int level, int n, FormList *out)
{
    const AttentionWalks *all = attention_walks(pr);
    AttentionKernel first = pr->dir == FORWARD ? ATTENTION_FORWARD : ATTENTION_DOTS;
    AttentionKernel last = pr->dir == FORWARD ? ATTENTION_COMBINE : ATTENTION_KEYS;
    for (int i = 0; i < all->len; i++) {
        AttentionWalk *w = &all->data[i];
        if (w->cut->level != level || (pr->dir == BACKWARD && p->m->roots.data[w->cut->given].dinput < 0))
            continue;
        if (p->request->cpu) {
            if (cpu_stage(p, w, pr->dir == BACKWARD, n--, out))
                return true;
            continue;
        }
        for (AttentionKernel k = first; k <= last; k++) {
            /* FEW is another form of FORWARD. */
            if (!attention_has_kernel(w, k) || k == ATTENTION_FEW || n-- > 0)
                continue;
            if (k == ATTENTION_FORWARD && attention_has_kernel(w, ATTENTION_FEW))
                vec_push(p->m->arena, out, form_of(p, w, ATTENTION_FEW));
            vec_push(p->m->arena, out, form_of(p, w, k));
            return true;
        }
    }
    return false;
}
