/* gemm.c: schedule gemm. It plans as steps does, where each step has a product with a param; one kernel may
 * then walk all steps with the param on the chip: by panels, heads and clusters (resident.c), or by columns
 * of a sequence (resident_columns.c). */
#include "resident_forms.h"
#include "resident.h"
#include "plan/plan_pass.h"
#include "plan/spelling.h"
#include "schedule/schedule.h"

static const Node *sum_of(const Plan *p, NodeId array)
{
    return at(p, at(p, array)->args[0]);
}

/* Why no sum of a step is a product: of those that come nearest to one. */
static const Reason *why_no_product(const Plan *p)
{
    const Program *pr = &p->program[FORWARD];
    NodeId any = -1;
    Spelling s;
    for (NodeId id = 0; id < p->n_nodes; id++) {
        if (pr->phase[id] != PHASE_DURING || !plan_reduces(p, id))
            continue;
        if (spelling_of(p, pr, id, &s))
            return reason_of(p->m, sum_of(p, id), "its sum is no matrix product, since %s", s.because);
        if (multiplies_shared(p, id))
            return reason_of(
                p->m, sum_of(p, id),
                "its sum with what all sequences share is no single matrix product, as its rows, "
                "columns or terms do not lie at one stride");
        any = any < 0 ? id : any;
    }
    return any < 0 ? reason(p->m, "its step has no sum")
                   : reason_of(p->m, sum_of(p, any),
                               "no sum of its step multiplies a param, or what else all sequences share");
}

static Verdict settle(Plan *p)
{
    Module *m = p->m;
    Gemm g;
    NodeId factor[2];
    if (steps_multiply(&p->program[FORWARD]))
        return (Verdict){ 0 };
    if (p->request->schedule)
        diag(m->c, DIAG_ERROR, m->span,
             "--schedule gemm needs a product with a param in every step; %s has none, or none that is not "
             "computed together with other sums of the step", m->name);
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (p->program[FORWARD].phase[id] == PHASE_DURING && contraction_of(p, id, true, &g, factor))
            return (Verdict){ .why =
                                  reason_of(m, sum_of(p, id),
                                            "its product is computed together with other sums of the step"),
                              .said = true };
    return (Verdict){ .why = why_no_product(p), .said = true };
}

/* Why a step is no product is of interest where nothing else takes it. */
static bool tells(const Plan *p)
{
    return p->schedule->last_resort;
}

static bool walks_heads(const ResidentWalks *w)
{
    return w->head || w->cluster;
}

static bool walks(const Plan *p)
{
    for (int d = 0; d < 2; d++)
        if (resident_walks(&p->program[d])->panel || walks_heads(resident_walks(&p->program[d])))
            return true;
    return false;
}

static bool has_walk(const ResidentWalks *w)
{
    return w->panel || w->columns || walks_heads(w);
}

static void find_walks(Plan *p)
{
    const Reason *why[2];
    for (int d = 0; d < 2; d++)
        p->program[d].walks = plan_alloc(p, sizeof(ResidentWalks), 1);
    if (p->calls == CALLS_SHORT) {
        put_time_first(p);
        return;
    }
    resident_find(p, why);
    if (!walks(p))
        put_time_first(p);
    columns_find(p);
    for (int d = 0; d < 2; d++) {
        p->program[d].one_kernel = has_walk(resident_walks(&p->program[d]));
        p->program[d].unwalked = p->program[d].one_kernel ? NULL : why[d];
        if (!p->program[d].one_kernel && why[d] && (d == FORWARD || p->m->has_grad))
            buf_f(&p->reasons, "no kernel walks the %s steps: %s\n", d == FORWARD ? "forward" : "backward",
                  reason_words(p->m, why[d]));
    }
}

static bool has_tiles(const Program *pr)
{
    return resident_walks(pr)->columns;
}

static void print_walks(Plan *p, Program *pr, Buf *cuda)
{
    const ResidentWalks *w = resident_walks(pr);
    ResidentWalk *all[] = { w->panel, w->pairs, w->wide, w->head, w->cluster };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i])
            resident_print(p, pr, all[i], cuda);
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
    .forms = resident_forms,
};
