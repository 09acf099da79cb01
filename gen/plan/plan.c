/* plan.c: the choice of the schedule. In comes a normalised module with its adjoint; out goes its plan, which the
 * passes of plan_passes.c make: for each direction, when every array is computed (once, before, during or after the
 * walk over time), by which kernel or product, where it lies and what backward finds saved. It is guaranteed that
 * every array is computed before it is read and that nothing is left for the emitters to decide. The reasons are
 * written down for `cellc explain`.
 *
 *     request      what a plan is asked for: types, devices, hints; it is never changed
 *     attempt      one run of the passes, by one schedule; what it finds out for the next is its trial
 *     direction    forward or backward, each with a program
 *     array        a value of the IR with axes (N_ARRAY): what is computed and stored as a whole
 *     phase        when an array is computed: once, before, during, between or after walks
 *     walk         the computation of all steps in order, by a loop of the launch plan or by one kernel
 *     resident walk    one kernel that walks all steps with the weights of their products on the chip
 *     carried      what a step hands to the next one: states, backward their adjoints
 *     group        arrays of one phase that one kernel or product computes
 *     alias        an array that is another name of one
 *     pieces       arrays that lie one behind another in the storage of a whole
 *     storage      where a value lies: its home (an argument, workspace, the reserve, nowhere) and its place there
 *     reserve      memory that forward fills for backward; workspace: memory of one call
 *     ring         a buffer that is kept for a step or two, as only the steps read it
 *     rematerialised   of forward, computed once more in backward
 *     unstored     computed where it is read, in both directions
 *     parts        an f32 operand as three numbers of bf16 each, for tensor cores
 *     fused        a product in one kernel with the group in front of it or behind it
 *     form         one way to do an operation, with its condition on the sizes of a call
 *     reason       why a schedule cannot take a cell, with its place in the spec */
#include <string.h>

#include "plan_pass.h"

const char *plan_suffix(Calls calls)
{
    static const char *const suffix[] = { [CALLS_ANY] = "",
                                          [CALLS_FEW] = "_roomy",
                                          [CALLS_MANY] = "_crowded",
                                          [CALLS_LONG] = "_chunks",
                                          [CALLS_SHORT] = "_apart",
                                          [CALLS_SPLIT] = "_split" };
    return suffix[calls];
}

const Plan *plan_of(const Plan *first, Calls calls)
{
    const Plan *p = first->other;
    while (p && p->calls != calls)
        p = p->other;
    return p ? p : first;
}

bool steps_multiply(const Program *pr)
{
    for (int i = 0; i < pr->groups.len; i++)
        if (pr->groups.data[i].kind == G_GEMM && pr->groups.data[i].phase == PHASE_DURING)
            return true;
    return false;
}

/* ---- which schedule ---- */

void tell_refusals(Plan *p, const Refusals *r, bool made)
{
    for (const Schedule *const *s = schedule_order; *s; s++)
        if (*s != p->schedule && refused(r, *s) && (made ? (*s)->tells && (*s)->tells(p) : !(*s)->tells))
            buf_f(&p->reasons, "not %s: %s\n", (*s)->name, reason_words(p->m, refused(r, *s)));
}

/* Does an adjoint compare a value with the maximum or the minimum of it (differentiate.c)? nvcc fuses
 * products and sums otherwise in one kernel than in another, so a value that the second computes again may
 * miss the extremum by a rounding. */
static bool asks_where_attained(const Module *m)
{
    for (NodeId id = 0; id < m->nodes.len; id++) {
        const Node *n = &m->nodes.data[id];
        if (n->kind != N_MAP || n->op != OP_EQ)
            continue;
        for (int k = 0; k < 2; k++) {
            const Node *of = &m->nodes.data[n->args[k]];
            while (of->kind == N_VIEW || of->kind == N_ARRAY)
                of = &m->nodes.data[of->args[0]];
            if (of->kind == N_REDUCE && (of->reduce == R_MAX || of->reduce == R_MIN))
                return true;
        }
    }
    return false;
}

static Plan *plan_new(Module *m, const Request *request, Trial *trial, const Schedule *s)
{
    Plan *p = arena_alloc(m->arena, sizeof *p);
    *p = (Plan){ .m = m,
                 .request = request,
                 .trial = trial,
                 .dtype = request->dtype,
                 .schedule = s,
                 .plain_past = s->plain_past || request->cpu,
                 .attains = !request->cpu && asks_where_attained(m),
                 .cluster = 1,
                 .compute = request->dtype == DT_F64 ? DT_F64 : DT_F32,
                 .calls = request->calls };
    p->reasons.arena = m->arena;
    return p;
}

/* A step has another row in each sequence, and not each has it. */
const Reason *refuses_packed(const Module *m, const Schedule *s)
{
    if (module_starts(m) < 0)
        return NULL;
    if (!s->packed)
        return reason(m, "packed sequences: its kernels and products take a step of all sequences at once, "
                         "which then have other "
                         "numbers of steps");
    for (NodeId id = 0; id < m->nodes.len; id++) {
        const Node *n = &m->nodes.data[id];
        bool batch = false, time = false;
        for (int i = 0; n->kind == N_REDUCE && i < n->nbound; i++) {
            batch |= n->bound[i] == IX_BATCH;
            time |= n->bound[i] == IX_TIME;
        }
        unsigned dep = batch || time ? m->nodes.data[n->args[0]].dep : 0;
        if (batch != time && dep & DEP_BATCH && dep & DEP_TIME)
            return reason_of(m, n, "packed sequences: a sum over %s at once",
                             batch ? "the sequences at a step" : "a sequence's steps");
    }
    return NULL;
}

/* A plan by the schedule *s, or by the one behind it that takes such a plan too; NULL: there is none so, and
 * the verdict says why. The plan's module is a copy, so that an attempt leaves nothing behind. */
static Plan *try_schedule(const Module *untouched, const Request *request, Trial *trial,
                          const Schedule *const *s, Refusals *r, Verdict *v)
{
    Module *m = module_copy(untouched);
    bool rewritten = (*s)->rewrites && (*s)->rewrites(m);
    if ((*s)->rewrites && !rewritten) {
        module_release(m);
        m = module_copy(untouched);
    }
    Plan *p = plan_new(m, request, trial, *s);
    tell_refusals(p, r, false);
    *v = (Verdict){ .why = refuses_packed(m, p->schedule) };
    if (!v->why && p->schedule->refuses)
        v->why = p->schedule->refuses(p);
    if (v->why) {
        module_release(m);
        return NULL;
    }
    p->other_step = module_index(m, intern(m->c, "s"), poly_dim(m, ATOM_T));
    Planning planning = { .p = p, .order = s, .refusals = r, .untouched = untouched, .rewritten = rewritten };
    bool taken = plan_run_passes(&planning);
    *v = planning.verdict;
    return taken ? p : NULL;
}

static bool has_state(const Module *m)
{
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (m->tensors.data[t].kind == T_STATE)
            return true;
    return false;
}

static const char *stateless_names(Compiler *c)
{
    const char *names = NULL, *last = NULL;
    for (const Schedule *const *s = schedules; *s; s++) {
        if (!(*s)->stateless)
            continue;
        if (last)
            names = names ? intern_f(c, "%s, %s", names, last) : last;
        last = (*s)->name;
    }
    return names ? intern_f(c, "%s or %s", names, last) : last;
}

/* Is the forced schedule one for such cells? */
static bool goes_with(const Module *m, const Schedule *s, bool stateless)
{
    if (s->stateless == stateless)
        return true;
    if (stateless)
        diag(m->c, DIAG_ERROR, m->span, "cell %s has no state: only --schedule %s can take it", m->name,
             stateless_names(m->c));
    else
        diag(m->c, DIAG_ERROR, m->span, "--schedule %s takes cells without a state; %s has one", s->name,
             m->name);
    return false;
}

/* Attempts at one schedule, as long as the next one may succeed. */
static Plan *plan_by(Module *m, const Request *request, Trial *trial, const Schedule *const *s, Refusals *r)
{
    Verdict v;
    Plan *p;
    do
        p = try_schedule(m, request, trial, s, r, &v);
    while (!p && v.again);
    if (!p && !r->why[schedule_number(*s)])
        r->why[schedule_number(*s)] = v.why;
    if (!p && request->schedule && !v.said)
        diag(m->c, DIAG_ERROR, m->span, "--schedule %s cannot take cell %s: %s", (*s)->name, m->name,
             reason_words(m, v.why));
    return p;
}

/* No kernels take packed sequences: why not, of each schedule that takes others. */
static void say_unpacked(Module *m, const Refusals *r, bool stateless)
{
    diag(m->c, DIAG_ERROR, m->span,
         "no schedule has kernels for packed sequences of cell %s: pad, and build it with --lengths, or "
         "leave the kernels out with --no-cuda",
         m->name);
    for (const Schedule *const *s = schedule_order; *s; s++)
        if ((*s)->stateless == stateless && (*s)->packed && refused(r, *s))
            diag(m->c, DIAG_NOTE, refused(r, *s)->at, "not %s: %s", (*s)->name, refused(r, *s)->text);
}

/* The first in the order that takes the cell; but before all of them those that lead. */
static Plan *plan_by_order(Module *m, const Request *request, Trial *trial, Refusals *r, bool stateless)
{
    Plan *p = NULL;
    for (const Schedule *const *s = schedule_order; *s && !p; s++) {
        const char *leads = (*s)->stateless == stateless && (*s)->leads ? (*s)->leads(m) : NULL;
        for (const Schedule *const *x = schedule_order; leads && x != s; x++)
            r->why[schedule_number(*x)] = (*x)->stateless == stateless ? reason(m, "%s", leads) : NULL;
        if (leads)
            p = plan_by(m, request, trial, s, r);
        for (const Schedule *const *x = schedule_order; leads && !p && x != s; x++)
            r->why[schedule_number(*x)] = NULL;
    }
    for (const Schedule *const *s = schedule_order; *s && !p && !m->c->errors; s++)
        if ((*s)->stateless == stateless && !refused(r, *s))
            p = plan_by(m, request, trial, s, r);
    if (!p && module_starts(m) >= 0 && !request->cpu && !m->c->errors)
        say_unpacked(m, r, stateless);
    return p;
}

/* Steps of a direction that is wanted are kernels, and no kernel walks them. */
static bool has_unwalked(const Plan *p)
{
    for (int d = 0; d < (p->m->has_grad ? 2 : 1); d++)
        if (plan_unwalked(p, &p->program[d]))
            return true;
    return false;
}

/* A schedule behind that of the plan may walk all steps where it does not. */
static Plan *plan_instead(Module *m, const Request *request, Trial *trial, Plan *p, Refusals *r)
{
    const Schedule *const *s = schedule_order;
    while (*s && *s != p->schedule)
        s++;
    for (s += *s != NULL; *s && has_unwalked(p); s++) {
        Plan *other = (*s)->adds_products && !refused(r, *s) ? plan_by(m, request, trial, s, r) : NULL;
        if (other && other->schedule == *s)
            return other;
        if (refused(r, *s))
            buf_f(&p->reasons, "not %s: %s\n", (*s)->name, reason_words(m, refused(r, *s)));
    }
    return p;
}

Plan *plan_make(Module *m, const Request *request)
{
    bool stateless = !has_state(m);
    Trial *t = arena_alloc(m->arena, sizeof *t);
    Plan *p = NULL;
    Refusals r = { arena_alloc(m->arena, sizeof *r.why * (size_t)schedule_count()) };
    if (!request->schedule) {
        p = plan_by_order(m, request, t, &r, stateless);
        if (p && !stateless)
            p = plan_instead(m, request, t, p, &r);
    } else if (goes_with(m, request->schedule, stateless)) {
        p = plan_by(m, request, t, &request->schedule, &r);
    }
    if (p) {
        warn_of_schedule(p, r.why);
        warn_of_values(p);
    }
    if (p && p->m->quotients.len !=
                 m->quotients.len) /* each is a check of the call: only the spec may ask for one */
        bug(m->c, "plan", "planning made %d conditions of the call", p->m->quotients.len - m->quotients.len);
    return p;
}
