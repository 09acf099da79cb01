/* gemm.c: schedule gemm. It plans as steps does, where each step has a product with a param; one kernel may
 * then walk all steps with the param on the chip: by panels, heads and clusters (panel.c), or by columns of a
 * sequence (columns.c). */
#include "gemm_forms.h"
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

static bool walks_heads(const GemmWalks *w)
{
    return w->head || w->cluster;
}

static bool walks(const Plan *p)
{
    for (int d = 0; d < 2; d++)
        if (gemm_walks(&p->program[d])->panel || walks_heads(gemm_walks(&p->program[d])))
            return true;
    return false;
}

static void find_walks(Plan *p)
{
    for (int d = 0; d < 2; d++)
        p->program[d].walks = plan_alloc(p, sizeof(GemmWalks), 1);
    panel_find(p);
    if (!walks(p))
        put_time_first(p);
    columns_find(p);
    for (int d = 0; d < 2; d++) {
        const GemmWalks *w = gemm_walks(&p->program[d]);
        p->program[d].one_kernel = w->panel || w->columns || walks_heads(w);
    }
}

static bool has_tiles(const Program *pr)
{
    return gemm_walks(pr)->columns;
}

static void print_walks(Plan *p, Program *pr, Buf *cuda)
{
    const GemmWalks *w = gemm_walks(pr);
    Panel *all[] = { w->panel, w->pairs, w->wide, w->head, w->cluster };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i])
            panel_print(p, pr, all[i], cuda);
    if (w->columns)
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
    .forms = gemm_forms,
};
