/* gemm.c: schedule gemm. It plans as steps does, where each step has a product with a param; one kernel may
 * then walk all steps with the param on the chip, a resident walk (resident.h). */
#include "plan/plan_pass.h"
#include "plan/spelling.h"
#include "resident.h"
#include "resident_forms.h"
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
        const char *apart = rows_apart(p, id);
        if (apart)
            return reason_of(p->m, sum_of(p, id),
                             "its sum is no matrix product, since `%s` is another one for each row", apart);
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

static bool walks(const Plan *p)
{
    return resident_walks(&p->program[FORWARD])->len > 0 || resident_walks(&p->program[BACKWARD])->len > 0;
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
    resident_columns(p, why);
    for (int d = 0; d < 2; d++) {
        Program *pr = &p->program[d];
        pr->one_kernel = resident_walks(pr)->len > 0;
        pr->unwalked = pr->one_kernel ? NULL : why[d];
        if (!pr->one_kernel && why[d] && (d == FORWARD || p->m->has_grad))
            buf_f(&p->reasons, "no kernel walks the %s steps: %s\n", resident_way(pr),
                  reason_words(p->m, why[d]));
    }
}

static bool has_tiles(const Program *pr)
{
    bool any = false;
    for (int i = 0; i < resident_walks(pr)->len; i++)
        any |= resident_has_tiles(resident_walks(pr)->data[i]);
    return any;
}

/* Those that share alike stand together, the one that asks least of a call first. */
static void print_walks(Plan *p, Program *pr, Buf *cuda)
{
    const ResidentWalks *w = resident_walks(pr);
    for (int sharing = 0; sharing < SHARINGS; sharing++)
        for (int i = w->len - 1; i >= 0; i--)
            if ((int)w->data[i]->sharing == sharing)
                resident_print(p, pr, w->data[i], cuda);
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
