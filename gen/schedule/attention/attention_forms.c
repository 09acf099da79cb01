/* attention_forms.c: the kernels of schedule attention as operations: their order and grids, as formulas over
 * the sizes of a call. */
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

static bool has_kernel(const AttentionWalk *w, AttentionKernel kernel)
{
    return w->cut->form.kind == ATTENTION_SOFTMAX || kernel != ATTENTION_DOTS;
}

/* Stage n: a kernel of a sum; the kernels of a sum follow one another. */
bool attention_stage(const Plan *p, const Program *pr, int level, int n, FormList *out)
{
    static const char *const words[] = { "sums over pairs of steps", "dy . y of each row",
                                         "gradients of queries, over pairs of steps",
                                         "gradients of keys and values, over pairs of steps" };
    const AttentionWalks *all = attention_walks(pr);
    AttentionKernel first = pr->dir == FORWARD ? ATTENTION_FORWARD : ATTENTION_DOTS;
    AttentionKernel last = pr->dir == FORWARD ? ATTENTION_FORWARD : ATTENTION_KEYS;
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
            if (!has_kernel(w, k) || n-- > 0)
                continue;
            Form f = { .kernel = w->kernel[k].name,
                       .refs = &w->kernel[k].refs,
                       .words = words[k],
                       .grid = grid(p, w->cut, k),
                       .threads = attention_threads(p, w->cut, k),
                       .own_states = true };
            if (attention_smem(p, w->cut, k))
                f.bytes = formula_const(p->m, attention_smem(p, w->cut, k));
            vec_push(p->m->arena, out, f);
            return true;
        }
    }
    return false;
}
