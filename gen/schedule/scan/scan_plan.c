/* scan_plan.c: schedule scan as an object: what the planner asks of it (scan.c has the answers). */
#include "plan/plan_pass.h"
#include "scan.h"
#include "schedule/schedule.h"

/* Vectors of one length that no sum of the step reads: their elements may walk on their own, and then a
 * vector needs no SM to itself. */
static const char *leads(const Module *m)
{
    const Poly *units = NULL;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        if (!tensor_steps(x))
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

/* Elements of a unit's states up to which a thread for each unit was measured to be faster than step by step
 * (a Kalman filter of 20: 13 times; lattice with 64: 6 times slower). */
enum { FEW_UNASKED = 32 };

/* Where states lie in memory otherwise, a thread for each of their units may have them in registers. */
static const Reason *refuses(Plan *p)
{
    const Reason *why = NULL;
    p->units = scan_units(p->m, &why);
    if (!p->units)
        return why;
    int64_t elements = scan_state_elements(p);
    if (!p->request->schedule && elements > FEW_UNASKED)
        return reason(
            p->m,
            "a thread would have %d elements of the states, which is slower than step by step from %d on",
            (int)elements, FEW_UNASKED + 1);
    scan_order_axes(p->m, p->units);
    return NULL;
}

/* ---- what the walk takes beside what it needs ---- */

/* A root has no reader in the walk: does it read what the walk reads anyway? */
static bool reads_with_walk(const Phasing *s, NodeId array)
{
    for (NodeId id = 0; id < s->p->n_nodes; id++) {
        if (!s->needed[id] || s->g->phase[id] != PHASE_DURING)
            continue;
        for (int i = 0; i < s->uses[id].len; i++)
            for (int j = 0; j < s->uses[array].len; j++) {
                const Read *x = &s->uses[id].data[i].read, *y = &s->uses[array].data[j].read;
                if (x->is_tensor == y->is_tensor && x->id == y->id && scan_own(s->p, at(s->p, id)->axes, x))
                    return true;
            }
    }
    return false;
}

/* Beside walks in chunks, vectors over their values are for kernels that have rows of them: a thread would
 * read them element by element, far from its neighbours' (mLSTM's gradient of the output gate: 12 ms for
 * 0.1). */
static bool is_short(const Plan *p, NodeId id)
{
    return !p->schedule->cut || scan_terms(p, id) <= scan_state_elements(p);
}

static bool may_take(const Phasing *s, NodeId id)
{
    const Plan *p = s->p;
    RootKind root = root_kind(p->m, id, &(TensorId){ 0 });
    bool steps = true;
    for (int i = 0; i < s->uses[id].len; i++)
        steps &= !s->uses[id].data[i].read.step;
    return steps && !p->rounded[id] && !(p->past && p->past[id]) &&
           rows_dep(p, id) == (DEP_BATCH | DEP_TIME) &&
           (root == ROOT_NONE || root == ROOT_OUTPUT || root == ROOT_DINPUT) && scan_form(p, id) &&
           is_short(p, id);
}

/* What is made of one unit's values for the walk alone is made in the walk: it is neither written nor read.
 * Readers stand behind what they read. */
static void take(Phasing *s)
{
    enum { IN_WALK = 1, ELSEWHERE = 2 };
    const Plan *p = s->p;
    Phase *phase = s->g->phase;
    char *read = plan_alloc(p, 1, p->n_nodes);
    s->g->taken = plan_alloc(p, sizeof *s->g->taken, p->n_nodes);
    for (NodeId id = p->n_nodes - 1; id >= 0; id--) {
        if (!s->needed[id])
            continue;
        bool wanted = read[id] == IN_WALK ||
                      (!read[id] && root_kind(p->m, id, &(TensorId){ 0 }) != ROOT_NONE &&
                       phase[id] == PHASE_BEFORE && reads_with_walk(s, id));
        if (phase[id] == PHASE_BEFORE && wanted && may_take(s, id)) {
            s->g->taken[id] = true;
            phase[id] = PHASE_DURING;
        }
        for (int i = 0; i < s->uses[id].len && phase[id] != PHASE_AFTER; i++) {
            const Read *r = &s->uses[id].data[i].read;
            if (!r->is_tensor)
                read[r->id] |= phase[id] == PHASE_DURING && scan_own(p, at(p, id)->axes, r) ? IN_WALK
                                                                                            : ELSEWHERE;
        }
    }
}

/* ---- the plan ---- */

static Verdict settle(Plan *p)
{
    return (Verdict){ .why = p->refused };
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
        ScanWalk *chunks = scan_walks(&p->program[d])->chunks;
        if (!chunks)
            continue;
        chunks->cuda = (Buf){ .arena = p->m->arena };
        scan_print(p, &p->program[d], chunks, &chunks->cuda);
    }
    scan_print(p, pr, scan_walks(pr)->walk, cuda);
    if (scan_walks(pr)->chunks)
        buf_f(cuda, "%s", scan_walks(pr)->chunks->cuda.data);
}

const Schedule scan_schedule = {
    .name = "scan",
    .what = "each element of the state walks over the steps by itself, in one kernel",
    .leads = leads,
    .per_unit = true,
    .packed = true,
    .refuses = refuses,
    .settle = settle,
    .tells = tells,
    .takes_value = scan_form,
    .take = take,
    .takes_sum = scan_sums,
    .refuses_step = scan_refused,
    .refuses_groups = scan_too_many,
    .find_walks = scan_kernels,
    .print_walks = print_walks,
    .forms = scan_forms,
};
