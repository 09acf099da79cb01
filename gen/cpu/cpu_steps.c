/* cpu_steps.c: strands of a loop over the steps. In comes a plan whose steps are kernels; out goes into
 * how many strands the loop falls of which none reads what another writes: a thread takes some of them
 * and walks all steps, so that their states stay in a core's cache and no thread waits for another
 * between two steps. Strands are sequences, or pieces of a row where elements of a step read no
 * neighbours. Guaranteed: each kernel of the loop has as many items for each strand, which lie side by
 * side in the order of the strands. */
#include <string.h>

#include "cpu.h"

/* What was looked at, of a direction. */
typedef struct Look {
    const Plan *p;
    const Program *pr;
    bool *seen; /* per node */
} Look;

/* Are all values that an expression reads of this step, or that steps hand on, its own element's? axes:
 * of the array that it defines. */
static bool reads_own(Look *l, NodeId id, const IndexId *axes, int n);

static bool is_own_place(const Module *m, const IxExpr *const *map, int nmap, const IndexId *axes, int n)
{
    bool same = nmap == n;
    for (int i = 0; same && i < n; i++)
        same = map[i] == ix_index((Module *)m, axes[i]);
    return same;
}

static bool steps_hand_on(const Tensor *x)
{
    return x->kind == T_STATE || x->kind == T_DNEXT;
}

static bool array_is_own(Look *l, NodeId array)
{
    const Node *a = &l->p->m->nodes.data[array];
    return reads_own(l, a->args[0], a->axes, a->naxes);
}

static bool reads_own(Look *l, NodeId id, const IndexId *axes, int n)
{
    const Module *m = l->p->m;
    const Node *x = &m->nodes.data[id];
    if (l->seen[id])
        return true;
    l->seen[id] = true;
    if (x->kind == N_REDUCE)
        return false;
    if (x->kind == N_LOAD)
        return !steps_hand_on(&m->tensors.data[x->tensor]) || is_own_place(m, x->map, x->nmap, axes, n);
    if (x->kind == N_VIEW || x->kind == N_ARRAY) {
        NodeId array = x->kind == N_VIEW ? x->args[0] : id;
        const Node *a = &m->nodes.data[array];
        if (l->pr->phase[array] != PHASE_DURING && !(a->dep & (DEP_STATE | DEP_COTANGENT)))
            return true;
        bool own = x->kind == N_VIEW ? is_own_place(m, x->map, x->nmap, axes, n)
                                     : a->naxes == n && memcmp(a->axes, axes, sizeof *axes * (size_t)n) == 0;
        return own && array_is_own(l, array);
    }
    for (int i = 0; i < x->nargs; i++)
        if (!reads_own(l, x->args[i], axes, n))
            return false;
    return true;
}

static bool is_step(const Group *g)
{
    return g->phase == PHASE_DURING;
}

static bool same_axes(const Group *a, const Group *b)
{
    bool same = a->naxes == b->naxes;
    for (int i = 0; same && i < a->naxes; i++)
        same = a->axes[i] == b->axes[i];
    return same;
}

bool cpu_elements_apart(const Plan *p, const Program *pr)
{
    const Group *first = NULL;
    Look look = { p, pr, arena_alloc(p->m->arena, (size_t)p->m->nodes.len + 1) };
    for (int i = 0; i < pr->groups.len; i++) {
        const Group *g = &pr->groups.data[i];
        if (!is_step(g))
            continue;
        first = first ? first : g;
        if (g->kind != G_MAP || !g->batched || g->naxes == 0 || !same_axes(g, first))
            return false;
        for (int k = 0; k < g->arrays.len; k++)
            if (!array_is_own(&look, g->arrays.data[k]))
                return false;
    }
    return first != NULL;
}

const Formula *cpu_strands(Plan *p, const Program *pr)
{
    Module *m = p->m;
    for (int i = 0; i < pr->groups.len; i++) {
        const Group *g = &pr->groups.data[i];
        if (is_step(g) && (!g->batched || (g->kind != G_MAP && g->kind != G_ROW)))
            return NULL;
    }
    for (int i = 0; i < pr->groups.len && cpu_elements_apart(p, pr); i++)
        if (is_step(&pr->groups.data[i]))
            return cpu_map_items(p, pr, &pr->groups.data[i]);
    return formula_size(m, poly_dim(m, ATOM_B));
}
