/* plan_passes.c: the passes of the planner, in their order. In comes a plan that has its module, request and schedule
 * only; out goes one that is made, or a verdict why the schedule does not take the cell. Guaranteed: what each pass
 * promises holds behind the last (plan_verify; with CELLC_VERIFY_PASSES=1 behind each), and --dump-after keeps
 * the plan as the pass that it names left it. */
#include <string.h>

#include "plan_pass.h"

/* ---- the module */

static void roots(Planning *s)
{
    split_roots(s->p);
}

static void slices(Planning *s)
{
    own_slices(s->p);
}

static void operands(Planning *s)
{
    Plan *p = s->p;
    round_operands(p);
    for (int d = 0; d < 2; d++) {
        p->program[d].node = plan_alloc(p, sizeof *p->program[d].node, p->n_nodes);
        p->program[d].in_place = plan_alloc(p, 1, p->n_nodes);
    }
}

/* ---- when a value is computed */

static void past(Planning *s)
{
    find_past_values(s->p);
    if (s->p->schedule->begin)
        s->p->schedule->begin(s->p);
}

static void phases(Planning *s)
{
    Plan *p = s->p;
    s->of[FORWARD] = phasing(p, FORWARD, NULL);
    s->stored = stored_arrays(p, &s->of[FORWARD]);
    s->of[BACKWARD] = phasing(p, BACKWARD, s->stored);
}

static void unstored(Planning *s)
{
    if (find_unstored(s->p, &s->of[FORWARD], &s->of[BACKWARD]))
        phases(s);
}

/* As far as a direction is planned. */
static void ask_schedule(Planning *s)
{
    Plan *p = s->p;
    for (int d = 0; p->schedule->refuses_step && d < 2 && !p->refused; d++)
        p->refused = p->schedule->refuses_step(p, &p->program[d]);
}

static void rematerialise(Planning *s)
{
    if (find_rematerialised(s->p, &s->of[FORWARD], &s->of[BACKWARD], s->stored))
        s->of[BACKWARD] = phasing(s->p, BACKWARD, s->stored);
    if (find_computed_again(s->p, &s->of[FORWARD], &s->of[BACKWARD], s->stored))
        s->of[BACKWARD] = phasing(s->p, BACKWARD, s->stored);
    ask_schedule(s);
}

static void arguments(Planning *s)
{
    Plan *p = s->p;
    s->wanted = plan_alloc(p, sizeof *s->wanted, p->n_nodes);
    for (int d = 0; d < 2; d++) {
        tensor_storage(p, &p->program[d]);
        root_storage(p, &p->program[d]);
    }
    carry_storage(p);
    if (p->schedule->place)
        p->schedule->place(p, &s->of[FORWARD], &s->of[BACKWARD], s->wanted);
}

/* ---- what computes it */

static void group(Planning *s, Direction d)
{
    Plan *p = s->p;
    mark_cats(p, &s->of[d]);
    mark_short_sums(p, &s->of[d]);
    if (d == BACKWARD && s->rewritten)
        find_summed(p, &s->of[d]);
    make_groups(p, &s->of[d]);
    if (p->schedule->refuses_groups)
        p->refused = p->schedule->refuses_groups(p, &p->program[d]);
}

static void join(Planning *s, Direction d)
{
    if (!s->p->request->cpu)
        join_sums_apart(&s->of[d]);
    join_columns(s->p, &s->of[d]);
}

static void group_backward(Planning *s)
{
    group(s, BACKWARD);
}

static void join_backward(Planning *s)
{
    join(s, BACKWARD);
}

static void group_forward(Planning *s)
{
    group(s, FORWARD);
}

static void join_forward(Planning *s)
{
    join(s, FORWARD);
}

/* ---- where it lies */

static void store(Planning *s, Direction d)
{
    Plan *p = s->p;
    if (p->calls != CALLS_SHORT) /* these go together, each with its own result */
        add_products(p, &s->of[d], s->wanted);
    if (d == FORWARD)
        for (NodeId id = 0; id < p->n_nodes; id++)
            if (s->wanted[id])
                give_storage(p, &p->program[d], id, true, false);
    next_storage(p, &s->of[d], &s->of[BACKWARD], s->wanted);
    store_read_values(p, &s->of[d], s->wanted);
    finish_cats(p, &p->program[d]);
    find_wanted(p, &s->of[d]);
}

static void store_backward(Planning *s)
{
    store(s, BACKWARD);
}

static void store_forward(Planning *s)
{
    Plan *p = s->p;
    store(s, FORWARD);
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (s->wanted[id])
            p->program[BACKWARD].node[id] = p->program[FORWARD].node[id];
}

static void rings(Planning *s)
{
    find_rings(s->p, &s->of[FORWARD]);
}

static void rounded(Planning *s)
{
    find_written_rounded(s->p);
}

/* ---- kernels */

static void walk(Planning *s)
{
    for (int d = 1; d >= 0 && s->p->schedule->add_walk; d--)
        s->p->schedule->add_walk(s->p, &s->of[d]);
}

static void shapes(Planning *s)
{
    for (int d = 0; d < 2; d++) {
        finish_groups(s->p, &s->p->program[d]);
        name_kernels(s->p, &s->p->program[d]);
    }
    ask_schedule(s);
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

/* Does the next schedule in the order plan this module, too? */
static bool plans_the_same(const Planning *s)
{
    const Schedule *next = s->order[1];
    const Plan *p = s->p;
    bool products = steps_multiply(&p->program[FORWARD]) || steps_multiply(&p->program[BACKWARD]);
    if (!p->schedule->plans_as_next || s->rewritten || p->adds_products || (products && next->adds_products))
        return false;
    if (!next->rewrites)
        return true;
    Module *copy = module_copy(s->untouched);
    bool rewrites = next->rewrites(copy);
    module_release(copy);
    return !rewrites;
}

/* The plan is one by its schedule, or by the one behind it that takes such a plan too. */
static void settle(Planning *s)
{
    Plan *p = s->p;
    p->block_memory = block_memory(p);
    for (;;) {
        s->verdict = p->schedule->settle ? p->schedule->settle(p) : (Verdict){ 0 };
        if (!s->verdict.why || p->request->schedule || !plans_the_same(s))
            break;
        s->refusals->why[schedule_number(p->schedule)] = s->verdict.why;
        p->schedule = *++s->order;
    }
    if (!s->verdict.why)
        s->verdict.why = refuses_packed(p->m, p->schedule);
    if (!s->verdict.why)
        tell_refusals(p, s->refusals, true);
}

/* Behind settle: a plan may be of a schedule that has taken over another one's. */
static void backward_rings(Planning *s)
{
    if (s->p->schedule->sums_steps || s->p->request->cpu)
        find_rings(s->p, &s->of[BACKWARD]);
}

static void walks(Planning *s)
{
    Plan *p = s->p;
    if (p->schedule->find_walks)
        p->schedule->find_walks(p);
    else
        put_time_first(p);
    name_kernels(p, &p->program[BACKWARD]); /* its phases may have changed */
}

static void codes(Planning *s)
{
    if (!s->p->request->cpu)
        find_codes(s->p);
}

static void parts(Planning *s)
{
    if (!s->p->request->cpu)
        find_parts(s->p);
}

static void fused(Planning *s)
{
    if (!s->p->request->cpu)
        find_fused(s->p);
}

static void together(Planning *s)
{
    find_together(s->p);
}

const PlanPass plan_passes[] = {
    { "roots", roots, "what others read is no root, but has a copy that is one" },
    { "slices", slices,
      "slices that cross steps are arrays, where a softmax over the past goes in one pass" },
    { "operands", operands, "products have operands of a type that they take; names of one array are known" },
    { "past", past, "which values over the past are made where they are read" },
    { "phases", phases, "when each array is computed: once, before, during or after the walk" },
    { "unstored", unstored, "the same; what is cheaper to make than to store is made where it is read" },
    { "rematerialise", rematerialise, "the same; what backward makes once more is not saved" },
    { "arguments", arguments, "where arguments, states and their adjoints lie" },
    { "backward-groups", group_backward, "which kernel or product computes each array of backward" },
    { "backward-joined", join_backward, "the same; sums go to the kernels that have what they add" },
    { "backward-storage", store_backward, "where backward's arrays lie, and what forward is to save for it" },
    { "forward-groups", group_forward, "which kernel or product computes each array of forward" },
    { "forward-joined", join_forward, "the same; sums go to the kernels that have what they add" },
    { "forward-storage", store_forward, "where forward's arrays lie" },
    { "rings", rings, "what only forward's steps read is kept for a step or two" },
    { "rounded", rounded, "what only products write is read without a rounding" },
    { "walk", walk, "the kernel that walks all steps, where the schedule prints it whole" },
    { "shapes", shapes, "kernels have names, threads, and buffers for partial sums" },
    { "settle", settle, "the schedule that takes the plan" },
    { "backward-rings", backward_rings,
      "what only backward's steps read is kept for a step, by some schedules" },
    { "walks", walks, "kernels that may walk all steps in place of a step's; or time in front of batch" },
    { "codes", codes, "products of numbers of 8 bits as they are stored" },
    { "parts", parts, "products of f32 as those of three parts in bf16" },
    { "fused", fused, "products in one kernel with what stands next to them" },
    { "together", together, "products of few steps that go as one batch: the plan" },
    { NULL, NULL, NULL }
};

/* A plan that a schedule has refused is not whole. */
static void verify(const Planning *s, const char *pass)
{
    const Uses *const uses[] = { s->of[FORWARD].uses, s->of[BACKWARD].uses };
    const char *wrong = s->p->refused || s->verdict.why ? NULL : plan_verify(s->p, pass, uses);
    if (wrong)
        bug(s->p->m->c, pass, "%s", wrong);
}

bool plan_run_passes(Planning *s)
{
    Plan *p = s->p;
    const char *dump = p->m->c->dump_after;
    p->dump.arena = p->m->arena;
    for (const PlanPass *pass = plan_passes; pass->name; pass++) {
        if (p->refused && pass->run != settle)
            continue; /* the rest would be planned for nothing */
        pass->run(s);
        if (p->m->c->verify_passes || !pass[1].name)
            verify(s, pass->name);
        if (s->verdict.why)
            return false;
        if (dump && strcmp(dump, pass->name) == 0)
            plan_print(p, pass->name, &p->dump);
    }
    ir_verify(p->m, "plan");
    return true;
}
