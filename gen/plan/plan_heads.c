/* plan_heads.c: which axes of a value of the walk in one kernel (tile) are its block's. In comes an array of a direction
 * whose operands' axes are known; out goes, for each axis that all states begin with, at which of the array's axes the
 * array reads it from the walk. It is guaranteed that a value which would have to be made of several blocks' values, or
 * for elements that no block has, is said to cross blocks. */
#include "plan_pass.h"

/* The array's axis that the index is, -1: none. */
static int axis_of(const Node *a, IndexId i)
{
    for (int k = 0; k < a->naxes; k++)
        if (a->axes[k] == i)
            return k;
    return -1;
}

/* The place of the k-th parallel axis among those of what is read, plus 1; 0: not known. */
static int place_in(const Phasing *s, const Read *r, int k)
{
    return r->is_tensor ? k + 1 : s->heads[r->id].axis[k];
}

/* An axis of run-time size that is no block's: blocks have elements along axes of bound size only. */
static bool has_axis_beside(const Phasing *s, const Node *a, const Heads *h)
{
    for (int k = 0; k < s->npar; k++)
        if (!h->axis[k])
            return false;
    for (int i = 0; i < a->naxes; i++) {
        bool own = s->p->m->indices.data[a->axes[i]].extent->is_const;
        for (int k = 0; k < s->npar; k++)
            own |= h->axis[k] == i + 1;
        if (!own)
            return true;
    }
    return false;
}

bool crosses_blocks(const Phasing *s, NodeId array)
{
    const Node *a = at(s->p, array);
    Heads *h = &s->heads[array];
    bool crosses = false;
    for (int i = 0; i < s->uses[array].len; i++) {
        const Read *r = &s->uses[array].data[i].read;
        for (int k = 0; k < s->npar && in_walk(s, r); k++) {
            int place = place_in(s, r, k);
            IndexId which;
            if (!place || place > r->nmap || !ix_is_index(r->map[place - 1], &which))
                continue;
            int axis = axis_of(a, which) + 1;
            crosses |= axis && h->axis[k] && h->axis[k] != axis;
            h->axis[k] = axis ? axis : h->axis[k];
        }
    }
    return crosses || has_axis_beside(s, a, h);
}
