/* resident.c: the resident walks of schedule gemm. In comes a planned program; out goes, for each direction
 * whose steps allow it (resident_step.c), a list of walks in order of preference: by blocks and clusters
 * that have a head each (resident_head.c), by the whole grid (resident_grid.c), and, once it is known that
 * there are none of these, by blocks that have columns of one sequence (resident_columns.c).
 * Guaranteed: what a block reads of another block is a product's operand, or nothing where it has a head;
 * no block overwrites what another still reads. The launch plan keeps the loop of kernels beside the walks,
 * for sizes and devices that none takes. */
#include <string.h>

#include "resident.h"

const char *resident_way(const Program *pr)
{
    return pr->dir == FORWARD ? "forward" : "backward";
}

ResidentWalk *resident_new(Plan *p, Sharing sharing, Elements elements, Exchange exchange)
{
    ResidentWalk *w = arena_alloc(p->m->arena, sizeof *w);
    *w = (ResidentWalk){ .sharing = sharing, .elements = elements, .exchange = exchange };
    w->heads = w->columns = poly_const(p->m, 1);
    w->naxes = w->batch = w->cluster = 1;
    w->posts_buffer = w->exchange_buffer = -1;
    return w;
}

ResidentWalk *resident_copy(Plan *p, const Program *pr, const ResidentWalk *w, const char *suffix)
{
    size_t products = sizeof *w->products * (size_t)w->nproducts;
    ResidentWalk *copy = arena_alloc(p->m->arena, sizeof *copy);
    *copy = *w;
    copy->products = arena_alloc(p->m->arena, products);
    memcpy(copy->products, w->products, products);
    copy->refs = (RefVec){ 0 };
    copy->kernel = intern_f(p->m->c, "%s_%s_%s", p->m->name, pr->dir == FORWARD ? "fwd" : "bwd", suffix);
    return copy;
}

void resident_add(Plan *p, Program *pr, ResidentWalk *w)
{
    vec_push(p->m->arena, resident_walks(pr), w);
}

static bool is_nowhere(void *of, NodeId array)
{
    const Program *pr = of;
    return pr->node[array].home == HOME_NONE;
}

/* NULL, or why there is none. */
static const Reason *find(Plan *p, Program *pr)
{
    const Reason *why;
    ResidentWalk *step = resident_step(p, pr, &why);
    if (!step)
        return why;
    if (walk_pointers(p, pr, is_nowhere, pr) > MAX_POINTERS)
        return reason(p->m, "a step has more arrays in memory than one kernel takes");
    resident_divide(p, step);
    resident_block(p, pr, step);
    resident_cluster(p, pr, step);
    if (step->naxes == 1 && p->dtype != DT_F64)
        resident_grid(p, pr, step);
    if (pr->dir == BACKWARD && resident_walks(pr)->len > 0)
        resident_sums(p, pr, step);
    return NULL;
}

void resident_find(Plan *p, const Reason *why[2])
{
    for (int d = 0; d < 2; d++)
        why[d] = find(p, &p->program[d]);
}
