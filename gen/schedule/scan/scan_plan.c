/* scan_plan.c: schedule scan as an object: what the planner asks of it (scan.c has the answers). */
#include "plan/plan_pass.h"
#include "scan.h"
#include "schedule/schedule.h"

/* Vectors of one length that no sum of the step reads: their elements may walk on their own, and then a vector needs
 * no SM to itself. */
static const char *leads(const Module *m)
{
    const Poly *units = NULL;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        if (x->kind != T_STATE)
            continue;
        if (x->rank - x->complex != 1 || (units && x->axes[0] != units))
            return NULL;
        units = x->axes[0];
    }
    for (NodeId id = 0; id < m->forward_nodes; id++)
        if (m->nodes.data[id].kind == N_REDUCE && (m->nodes.data[id].dep & DEP_STATE))
            return NULL;
    return units ? "each element of its states walks by itself" : NULL;
}

/* Where states lie in memory otherwise, a thread for each of their units may have them in registers. */
static const char *refuses(Plan *p)
{
    const char *why = NULL;
    p->scan = scan_units(p->m, &why);
    return why;
}

static Verdict settle(Plan *p)
{
    return (Verdict){ .why = p->not_scan };
}

/* Of steps that multiply it is plain that no unit walks by itself. */
static bool tells(const Plan *p)
{
    return !p->schedule->on_chip && !steps_multiply(&p->program[FORWARD]);
}

/* Which states forward saves follows from backward's chunks, so these are printed first, and kept. */
static void print_walks(Plan *p, Program *pr, Buf *cuda)
{
    for (int d = BACKWARD; d >= FORWARD && pr->dir == FORWARD; d--) {
        Panel *chunks = p->program[d].chunks;
        if (!chunks)
            continue;
        chunks->cuda = (Buf){ .arena = p->m->arena };
        scan_print(p, &p->program[d], chunks, &chunks->cuda);
    }
    scan_print(p, pr, pr->panel, cuda);
    if (pr->chunks)
        buf_f(cuda, "%s", pr->chunks->cuda.data);
}

const Schedule scan_schedule = {
    .name = "scan",
    .what = "each element of the state walks over the steps by itself, in one kernel",
    .leads = leads,
    .refuses = refuses,
    .settle = settle,
    .tells = tells,
    .find_walks = scan_kernels,
    .print_walks = print_walks,
    .launch_walks = scan_launch,
};
