/* plan_together.c: products that go together. In come the groups of a plan for calls of few steps, with
 * the params apart; out go sets of neighbours among its products, of which none reads what another one
 * gives, each with a buffer for where their matrices are. The runtime takes those of a set that have equal
 * sizes as one batch. In f32, where it depends on what products are whether that is faster, sums over
 * sequences and steps are a set of their own. Guaranteed: a set has 2 to CELL_MAX_TOGETHER products, one
 * behind the other. */
#include "plan_pass.h"

enum { POINTERS = 3, POINTER_WORDS = 2 };

static bool reads(const GemmSide *s, NodeId given)
{
    return !s->read.is_tensor && s->read.id == given;
}

static bool sums_over_rows(const Plan *p, const Group *g)
{
    return g->gemm.k == module_rows(p->m) || g->gemm.k == poly_dim(p->m, ATOM_B);
}

/* Is it a product that may go with those from the group `first` on? What is added to what another one gives
 * comes behind it. */
static bool goes_on(const Plan *p, const Program *pr, int first, int i)
{
    const Group *g = &pr->groups.data[i];
    if (p->dtype == DT_F32 && sums_over_rows(p, g) != sums_over_rows(p, &pr->groups.data[first]))
        return false;
    if (g->kind != G_GEMM || g->fused || g->gemm.added || takes_codes(&g->gemm) ||
        g->phase != pr->groups.data[first].phase)
        return false;
    for (int k = first; k < i; k++) {
        NodeId given = pr->groups.data[k].gemm.c.read.id;
        if (reads(&g->gemm.a, given) || reads(&g->gemm.b, given) || given == g->gemm.c.read.id)
            return false;
    }
    return true;
}

static void find_sets(Plan *p, Program *pr)
{
    for (int i = 0; i < pr->groups.len;) {
        int n = 0;
        while (n < MOST_TOGETHER && i + n < pr->groups.len && goes_on(p, pr, i, i + n))
            n++;
        int buffer = n < 2 ? -1
                           : add_buffer(p, "where matrices are", DT_I32,
                                        poly_const(p->m, (int64_t)n * POINTERS * POINTER_WORDS), false, true);
        for (int k = 0; k < n && n > 1; k++)
            pr->groups.data[i + k].together = buffer + 1;
        i += n > 1 ? n : 1;
    }
}

/* With products that are made in other ways at some sizes it is the runtime that knows which are left. */
void find_together(Plan *p)
{
    for (int d = 0; d < 2 && p->calls == CALLS_SHORT; d++)
        find_sets(p, &p->program[d]);
}
