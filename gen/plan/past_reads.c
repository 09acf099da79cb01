/* past_reads.c: which reductions go over the past. In comes an array of a plan whose values over the past are
 * known (plan_past.c); out goes whether its terms read such values, at which distance, and over which of its
 * axes these vary. */
#include <stdlib.h>

#include "plan.h"

static bool same_read(const Read *a, const Read *b)
{
    bool same = !a->is_tensor && !b->is_tensor && a->id == b->id && a->nmap == b->nmap && a->step == b->step;
    for (int i = 0; i < a->nmap && same; i++)
        same = a->map[i] == b->map[i];
    return same;
}

static void find_unseen_reads(const Plan *p, NodeId id, PastReads *out, bool *seen)
{
    const Node *n = &p->m->nodes.data[id];
    Read r;
    if (seen[id])
        return;
    seen[id] = true;
    if (plan_resolve(p, id, &r)) {
        bool known = r.is_tensor || !p->past[r.id];
        for (int i = 0; i < out->len && !known; i++)
            known = same_read(&out->data[i], &r);
        if (!known)
            vec_push(p->m->arena, out, r);
        return;
    }
    for (int i = 0; i < n->nargs; i++)
        find_unseen_reads(p, n->args[i], out, seen);
}

void past_reads(const Plan *p, NodeId id, PastReads *out)
{
    bool *seen = calloc((size_t)p->m->nodes.len, 1);
    if (!seen)
        bug(p->m->c, "plan", "out of memory");
    find_unseen_reads(p, id, out, seen);
    free(seen);
}

static const Node *reduction(const Plan *p, NodeId array)
{
    return &p->m->nodes.data[p->m->nodes.data[array].args[0]];
}

bool past_reads_use(const PastReads *reads, IndexId i)
{
    for (int k = 0; k < reads->len; k++) {
        const Read *r = &reads->data[k];
        for (int j = 0; j < r->nmap; j++)
            if (ix_uses(r->map[j], i))
                return true;
        if (r->step && ix_uses(r->step, i))
            return true;
    }
    return false;
}

IndexId past_distance(const Plan *p, const Node *r, const PastReads *reads)
{
    for (int i = 0; i < r->nbound; i++)
        for (int k = 0; k < reads->len; k++)
            if (r->bound[i] >= IX_FIRST &&
                ix_uses(reads->data[k].map[p->past[reads->data[k].id] - 1], r->bound[i]))
                return r->bound[i];
    return -1;
}

bool past_sums(const Plan *p, NodeId array)
{
    const Node *r = reduction(p, array);
    PastReads reads = { .len = 0 };
    if (!p->past || r->kind != N_REDUCE || !plan_reduces(p, array))
        return false;
    for (int i = 0; i < r->nbound; i++)
        if (r->bound[i] < IX_FIRST)
            return false;
    past_reads(p, r->args[0], &reads);
    return reads.len > 0 && past_distance(p, r, &reads) >= 0;
}

int past_rows(const Plan *p, NodeId array)
{
    const Node *a = &p->m->nodes.data[array];
    PastReads reads = { .len = 0 };
    int n = 0;
    past_reads(p, reduction(p, array)->args[0], &reads);
    for (int i = 0; i < a->naxes; i++)
        if (past_reads_use(&reads, a->axes[i]))
            n = i + 1;
    return n;
}
