/* attention_forms.c: the kernels of schedule attention as operations: their order and grids, as formulas over
 * the sizes of a call. */
#include "attention_plan.h"

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
