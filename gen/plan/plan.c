/* plan.c: the fast path's decisions, one pass after another (plan_pass.h), and the choice of the schedule. In comes a
 * normalised module with its adjoint; out goes, for each direction, when every array is computed (once, before, during
 * or after the walk over time), by which kernel or product, where it lies and what backward finds saved. It is
 * guaranteed that every array is computed before it is read and that nothing is left for the emitters to decide. The
 * reasons are written down for `cellc explain`. */
#include <string.h>

#include "plan_pass.h"

/* A root that other arrays read gets a copy as the root, so that a root is only ever written. */
static NodeId split_root(Plan *p, NodeId root, const bool *read)
{
    if (root < 0 || !read[root])
        return root;
    Node n = *at(p, root);
    return node_array(p->m, root, n.axes, n.naxes, n.name, n.span);
}

static void mark_reads(const Plan *p, NodeId id, bool *seen, bool *read)
{
    if (id < 0 || seen[id])
        return;
    seen[id] = true;
    for (int i = 0; i < at(p, id)->nargs; i++) {
        NodeId a = at(p, id)->args[i];
        if (at(p, a)->kind == N_ARRAY)
            read[a] = true;
        mark_reads(p, a, seen, read);
    }
}

static void split_roots(Plan *p)
{
    Module *m = p->m;
    int n = m->nodes.len;
    bool *seen = plan_alloc(p, 1, n), *read = plan_alloc(p, 1, n);
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int k = 0; k < ROOT_COUNT; k++)
            mark_reads(p, m->roots.data[t].of[k], seen, read);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        for (int k = 0; k < ROOT_LAST; k++) {
            NodeId root = m->roots.data[t].of[k];
            bool carried = k == ROOT_NEXT || k == ROOT_INIT;
            if (carried && (root < 0 || !plan_reduces(p, root)))
                continue;
            if (carried)
                read[root] = true;
            m->roots.data[t].of[k] = split_root(p, root, read);
        }
    }
}

const char *plan_suffix(Calls calls)
{
    static const char *const suffix[] = { [CALLS_ANY] = "", [CALLS_FEW] = "_roomy", [CALLS_MANY] = "_crowded",
                                          [CALLS_LONG] = "_chunks" };
    return suffix[calls];
}

const Plan *plan_of(const Plan *first, Calls calls)
{
    const Plan *p = first->other;
    while (p && p->calls != calls)
        p = p->other;
    return p ? p : first;
}

/* As far as they are planned. */
static bool refuses_steps(Plan *p)
{
    for (int d = 0; p->schedule->refuses_step && d < 2 && !p->refused; d++)
        p->refused = p->schedule->refuses_step(p, &p->program[d]);
    return p->refused != NULL;
}

static void plan_directions(Plan *p)
{
    find_past_values(p);
    if (p->schedule->begin)
        p->schedule->begin(p);
    Phasing f = phasing(p, FORWARD, NULL);
    bool *stored = stored_arrays(p, &f), *wanted = plan_alloc(p, 1, p->n_nodes);
    Phasing b = phasing(p, BACKWARD, stored);
    if (find_unstored(p, &f, &b)) {
        f = phasing(p, FORWARD, NULL);
        stored = stored_arrays(p, &f);
        b = phasing(p, BACKWARD, stored);
    }
    if (make_anew(p, &f, &b, stored))
        b = phasing(p, BACKWARD, stored);
    Phasing *both[2] = { &f, &b };
    if (refuses_steps(p))
        return;
    for (int d = 0; d < 2; d++) {
        tensor_storage(p, &p->program[d]);
        root_storage(p, &p->program[d]);
    }
    carry_storage(p);
    if (p->schedule->place)
        p->schedule->place(p, &f, &b, wanted);
    for (int d = 1; d >= 0; d--) {
        mark_cats(p, both[d]);
        mark_short_sums(p, both[d]);
        make_groups(p, both[d]);
        if (p->schedule->refuses_groups && (p->refused = p->schedule->refuses_groups(p, &p->program[d])))
            return;                           /* the rest would be planned for nothing */
        if (!p->request->cpu) {
            join_sums_apart(both[d]);
            join_columns(p, both[d]);
        }
        add_products(p, both[d], wanted);
        if (d == FORWARD)
            for (NodeId id = 0; id < p->n_nodes; id++)
                if (wanted[id])
                    give_storage(p, &p->program[d], id, true, false);
        next_storage(p, both[d], &b, wanted);
        store_read_values(p, both[d], wanted);
        finish_cats(p, &p->program[d]);
        find_wanted(p, both[d]);
    }
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (wanted[id])
            p->program[BACKWARD].node[id] = p->program[FORWARD].node[id];
    find_rings(p, &f);
    find_written_rounded(p);
    for (int d = 1; d >= 0 && p->schedule->add_walk; d--)
        p->schedule->add_walk(p, both[d]);
    for (int d = 0; d < 2; d++) {
        finish_groups(p, &p->program[d]);
        name_kernels(p, &p->program[d]);
    }
    refuses_steps(p);
}

bool steps_multiply(const Program *pr)
{
    for (int i = 0; i < pr->groups.len; i++)
        if (pr->groups.data[i].kind == G_GEMM && pr->groups.data[i].phase == PHASE_DURING)
            return true;
    return false;
}

static int64_t block_memory(const Plan *p)
{
    int64_t most = 0;
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < p->program[d].groups.len; i++) {
            const Group *g = &p->program[d].groups.data[i];
            int64_t bytes = g->kind == G_WALK ? g->walk->smem : g->smem;
            most = bytes > most ? bytes : most;
        }
    return most;
}

/* ---- which schedule ---- */

/* Why schedules were refused, by their numbers in the table; NULL: they were not, or not tried. */
typedef struct Refusals { const Reason **why; } Refusals;

static const Reason *refused(const Refusals *r, const Schedule *s)
{
    return r->why[schedule_number(s)];
}

/* A line for each schedule that was refused. Before a plan is made: for those that every plan tells of; once
 * it is made: for those that decide by the plan (Schedule.tells). */
static void tell_refusals(Plan *p, const Refusals *r, bool made)
{
    for (const Schedule *const *s = schedule_order; *s; s++)
        if (*s != p->schedule && refused(r, *s) && (made ? (*s)->tells && (*s)->tells(p) : !(*s)->tells))
            buf_f(&p->reasons, "not %s: %s\n", (*s)->name, reason_words(p->m, refused(r, *s)));
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
                 .cluster = 1,
                 .compute = request->dtype == DT_F64 ? DT_F64 : DT_F32,
                 .calls = request->calls };
    p->reasons.arena = m->arena;
    return p;
}

/* What comes behind the choice of the schedule. */
static void finish(Plan *p, const Refusals *r)
{
    if (p->schedule->find_walks)
        p->schedule->find_walks(p);
    else
        put_time_first(p);
    name_kernels(p, &p->program[BACKWARD]);       /* its phases may have changed */
    if (!p->request->cpu) {
        find_parts(p);
        find_fused(p);
    }
    warn_of_schedule(p, r->why);
    warn_of_values(p);
    ir_verify(p->m, "plan");
}

/* Of packed sequences, a step has another row in each, and not each has it. */
static const Reason *refuses_packed(const Module *m, const Schedule *s)
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
 * the verdict says why. */
static Plan *try_schedule(Module *m, const Request *request, Trial *trial, const Schedule *const *s,
                          Refusals *r, Verdict *v)
{
    Plan *p = plan_new(m, request, trial, *s);
    tell_refusals(p, r, false);
    *v = (Verdict){ .why = refuses_packed(m, p->schedule) };
    if (!v->why && p->schedule->refuses)
        v->why = p->schedule->refuses(p);
    if (v->why)
        return NULL;
    p->other_step = module_index(m, intern(m->c, "s"), poly_dim(m, ATOM_T));
    split_roots(p);
    own_slices(p);
    round_operands(p);
    for (int d = 0; d < 2; d++)
        p->program[d].node = plan_alloc(p, sizeof *p->program[d].node, p->n_nodes);
    plan_directions(p);
    p->block_memory = block_memory(p);
    for (;;) {
        *v = p->schedule->settle ? p->schedule->settle(p) : (Verdict){ 0 };
        if (!v->why || request->schedule || !p->schedule->plans_as_next)
            break;
        r->why[schedule_number(p->schedule)] = v->why;
        p->schedule = *++s;
    }
    if (!v->why)
        v->why = refuses_packed(m, p->schedule);
    if (v->why)
        return NULL;
    tell_refusals(p, r, true);
    finish(p, r);
    return p;
}

/* A schedule that has arrays of its own form leaves those of the others as they were. */
static Plan *attempt(Module *m, const Request *request, Trial *trial, const Schedule *const *s, Refusals *r,
                     Verdict *v)
{
    size_t bytes = sizeof *m->roots.data * (size_t)m->roots.len;
    Roots *before = (*s)->per_unit ? arena_alloc(m->arena, bytes + 1) : NULL;
    if (before)
        memcpy(before, m->roots.data, bytes);
    Plan *p = try_schedule(m, request, trial, s, r, v);
    if (before && !p)
        memcpy(m->roots.data, before, bytes);
    return p;
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
    const char *names = NULL;
    for (const Schedule *const *s = schedules; *s; s++)
        if ((*s)->stateless)
            names = names ? intern_f(c, "%s or %s", names, (*s)->name) : (*s)->name;
    return names;
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
        p = attempt(m, request, trial, s, r, &v);
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
static Plan *plan_by_order(Module *m, const Request *request, Trial *trial, bool stateless)
{
    Refusals r = { arena_alloc(m->arena, sizeof *r.why * (size_t)schedule_count()) };
    Plan *p = NULL;
    for (const Schedule *const *s = schedule_order; *s && !p; s++) {
        const char *leads = (*s)->stateless == stateless && (*s)->leads ? (*s)->leads(m) : NULL;
        for (const Schedule *const *x = schedule_order; leads && x != s; x++)
            r.why[schedule_number(*x)] = (*x)->stateless == stateless ? reason(m, "%s", leads) : NULL;
        if (leads)
            p = plan_by(m, request, trial, s, &r);
        for (const Schedule *const *x = schedule_order; leads && !p && x != s; x++)
            r.why[schedule_number(*x)] = NULL;
    }
    for (const Schedule *const *s = schedule_order; *s && !p && !m->c->errors; s++)
        if ((*s)->stateless == stateless && !refused(&r, *s))
            p = plan_by(m, request, trial, s, &r);
    if (!p && module_starts(m) >= 0 && !request->cpu && !m->c->errors)
        say_unpacked(m, &r, stateless);
    return p;
}

Plan *plan_make(Module *m, const Request *request)
{
    int conditions = m->quotients.len;
    bool stateless = !has_state(m);
    Trial *t = arena_alloc(m->arena, sizeof *t);
    Plan *p = NULL;
    if (!request->schedule) {
        p = plan_by_order(m, request, t, stateless);
    } else if (goes_with(m, request->schedule, stateless)) {
        Refusals none = { arena_alloc(m->arena, sizeof *none.why * (size_t)schedule_count()) };
        p = plan_by(m, request, t, &request->schedule, &none);
    }
    if (m->quotients.len != conditions)       /* each is a check of the call: only the spec may ask for one */
        bug(m->c, "plan", "planning made %d conditions of the call", m->quotients.len - conditions);
    return p;
}
