/* gemm.c: schedule gemm. It plans as steps does, where each step has a product with a param; one kernel may then walk all steps
 * with the param on the chip: by panels, heads and clusters (panel.c), or by columns of a sequence (columns.c). */
#include "panel.h"
#include "plan/plan_pass.h"
#include "schedule/schedule.h"

static Verdict settle(Plan *p)
{
    Module *m = p->m;
    if (steps_multiply(&p->program[FORWARD]))
        return (Verdict){ 0 };
    if (p->request->schedule)
        diag(m->c, DIAG_ERROR, m->span,
             "--schedule gemm needs a product with a param in every step; %s has none, or none that is not "
             "computed together with other sums of the step", m->name);
    return (Verdict){ .why = "no step has a product of its own", .said = true };
}

static bool tells(const Plan *p)
{
    (void)p;
    return false;
}

static bool walks(const Plan *p)
{
    for (int d = 0; d < 2; d++)
        if (p->program[d].panel || p->program[d].head || p->program[d].cluster)
            return true;
    return false;
}

static void find_walks(Plan *p)
{
    panel_find(p);
    if (!walks(p))
        put_time_first(p);
    columns_find(p);
}

static bool has_tiles(const Program *pr)
{
    return pr->columns;
}

static void print_walks(Plan *p, Program *pr, Buf *cuda)
{
    Panel *all[] = { pr->panel, pr->pairs, pr->wide, pr->head, pr->cluster };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i])
            panel_print(p, pr, all[i], cuda);
    if (pr->columns)
        columns_print(p, pr, cuda);
}

const Schedule gemm_schedule = {
    .name = "gemm",
    .what = "the states lie in memory, each step is a product and the kernels around it",
    .settle = settle,
    .plans_as_next = true,
    .tells = tells,
    .find_walks = find_walks,
    .has_tiles = has_tiles,
    .print_walks = print_walks,
    .begins = gemm_begins,
    .launch_walks = gemm_launch,
};
