/* kernels_walk.c: what kernels share whose threads walk all steps: places in terms of a thread's units, the
 * names of its states, and how many steps' reads are under way. In come a kernel that is being printed and a
 * step that is; out goes text. */
#include "kernels.h"

/* ---- units ---- */

void walk_begin(Kernel *k, UnitWalk *w)
{
    *w = (UnitWalk){ .meanings = k->indices };
    w->meaning = arena_alloc(k->p->m->arena, sizeof *w->meaning * (size_t)w->meanings);
    k->walk = w;
}

void walk_end(Kernel *k)
{
    arena_release(k->p->m->arena, k->walk->meaning, sizeof *k->walk->meaning * (size_t)k->walk->meanings);
    k->walk = NULL;
}

const IxExpr *walk_in_units(Kernel *k, const IxExpr *e)
{
    IndexId from[16];
    const IxExpr *to[16];
    int n = 0;
    for (int i = 0; i < e->nterms; i++) {
        const IxTerm *t = &e->terms[i];
        bool here = t->kind == IA_INDEX && t->index >= IX_FIRST && t->index < k->walk->meanings;
        if (!here || !k->walk->meaning[t->index] || n == 16)
            return NULL;
        from[n] = t->index;
        to[n++] = k->walk->meaning[t->index];
    }
    return ix_subst(k->p->m, e, from, to, n);
}

void walk_enter(Kernel *k, const Node *array, const IxExpr *const *map, const IxExpr **before)
{
    const IxExpr *inside[64];
    int n = k->walk ? array->naxes : 0;
    for (int i = 0; i < n; i++)
        inside[i] = walk_in_units(k, map[i]);
    for (int i = 0; i < n; i++) {
        before[i] = k->walk->meaning[array->axes[i]];
        k->walk->meaning[array->axes[i]] = inside[i];
    }
}

void walk_leave(Kernel *k, const Node *array, const IxExpr *const *before)
{
    for (int i = k->walk ? array->naxes - 1 : -1; i >= 0; i--)
        k->walk->meaning[array->axes[i]] = before[i];
}

/* ---- states ---- */

const char *state_name(Kernel *k, TensorId s)
{
    return k_text(k, "%s_%s", k->pr->dir == FORWARD ? "s" : "d", k->p->m->tensors.data[s].name);
}

/* ---- reads ahead ---- */

int walk_depth(int64_t registers)
{
    return registers <= 6 ? 8 : registers <= 16 ? 4 : registers <= 40 ? 2 : 1;
}
