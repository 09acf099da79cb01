/* cuda.c: the fast path of one instance. In: what the front end made of its spec, of which the reference was
 * compiled before. Out: the plan for any calls on the GPUs that have most, and with it those for others
 * (Plan.smaller, Plan.other). What the reference's compilation has said already is not said again. */
#include <string.h>

#include "commands/commands.h"
#include "cpu/cpu.h"
#include "ir/split_states.h"
#include "pipeline.h"
#include "plan/cost.h"
#include "plan/formula.h"
#include "plan/hints.h"
#include "plan/plan.h"
#include "plan/plan_pass.h"
#include "plan/reads.h"

/* A plan of a copy of the program; names of C begin with `name`. */
static Plan *plan_once(const Module *program, const char *name, const Request *request)
{
    Module *m = module_copy(program);
    Request *own = arena_alloc(m->arena, sizeof *own);
    m->name = name;
    *own = *request;
    return plan_make(m, own);
}

/* Is a schedule forced that is for calls of several steps? */
static bool cuts(const Request *r)
{
    return r->schedule && r->schedule->cut && !r->schedule->stateless;
}

/* Is one forced that takes sums out of the step, in all calls? */
static bool cuts_sums(const Compiler *c)
{
    return c->schedule && c->schedule->cut && c->schedule->stateless;
}

static bool is_stateless(const Module *m)
{
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (m->tensors.data[t].kind == T_STATE)
            return false;
    return true;
}

/* The same cell for GPUs whose blocks have so much shared memory, and form no clusters. What is slow about
 * it was said, or is no news: NULL where a schedule was forced that cannot do with so little. */
static Plan *plan_smaller(const Module *program, const Plan *first, const char *name, int64_t bytes)
{
    Compiler *c = program->c;
    int said = c->diags.len;
    Request request = request_of(c);
    if (c->is_tuned) {            /* for another GPU: nobody asked for it here */
        request.schedule = NULL;
        request.hints = (WalkHints){ 0 };
    }
    if (cuts(&request))
        request.schedule = NULL;  /* that is for the others */
    if (first->m->cut)
        request.schedule = first->request->schedule; /* no other one plans a step that it has cut */
    request.block_memory = bytes;
    request.one_block = true;
    Plan *p = plan_once(program, intern_f(c, "%s_%dk", name, (int)(bytes / 1024)), &request);
    if (!c->errors)
        c->diags.len = said;
    return p;
}

/* SHORT_SEGMENT: steps between checkpoints of which so few fit on a multiprocessor that the blocks of a
 * cluster are better off with the state, where a call leaves them idle (measured on an H200: E79 of 64, 4
 * steps, 1.50 ms for 1.64 in a cluster of 2; of 72, 3 steps, 3.07 for 2.33 in one of 4). */
enum { SHORT_SEGMENT = 3 };

/* Whoever says something of the walk means the one that all calls can take. */
static bool may_spread(const Compiler *c, const Plan *first)
{
    return first->interval <= SHORT_SEGMENT && !first->shares_sm &&
           memcmp(&c->hints, &(WalkHints){ 0 }, sizeof c->hints) == 0;
}

/* The same cell for certain calls: NULL where tile does not take it, or none of the architectures can run
 * it. */
static Plan *plan_for(const Module *program, const Plan *first, Calls calls)
{
    Compiler *c = program->c;
    int said = c->diags.len, errors = c->errors;
    Request request = *first->request;
    request.calls = calls;
    request.spread = calls == CALLS_FEW && !first->shares_sm;
    Plan *p = plan_once(program, first->m->name, &request);
    c->diags.len = said;          /* nobody asked for it: what is wrong with it is no news */
    if (c->errors > errors) {
        c->errors = errors;
        return NULL;
    }
    if (!p || !p->schedule->on_chip || !may_run(c->archs, p->block_memory, p->cluster > 1))
        return NULL;
    return p;
}

/* For calls that leave each block a multiprocessor, so that all its memory is for the steps between two
 * checkpoints, or several of them. NULL where nothing comes of it: an interval that was asked for is that
 * of both plans. */
static Plan *plan_roomy(const Module *program, const Plan *first)
{
    const Compiler *c = program->c;
    if (!first->schedule->on_chip || first->cluster > 1 || !(first->shares_sm || may_spread(c, first)))
        return NULL;
    Plan *p = plan_for(program, first, CALLS_FEW);
    bool asked = c->hints.interval != 0;
    return p && (p->interval > first->interval || (asked && p->interval == first->interval && p->spreads))
               ? p
               : NULL;
}

/* Does the walk have a layout that is cheaper there than the one that any calls get? LEAST_GAIN: percent
 * that a walk's layout must be cheaper by than the one that any calls get, to be worth a kernel (measured
 * on an H200: E74 and E75 of 32, 2 and 1 percent by the estimate, took 0.4 and 2 less; E88 of 32 x 32, 4.5,
 * 14). */
enum { LEAST_GAIN = 3 };

static bool is_cheaper(const Walk *w, const Walk *first)
{
    const WalkLayout *own = w->layouts.data, *other = first->layouts.data;
    int i = 0;
    while (i < w->layouts.len && memcmp(&own[i].layout, &other->layout, sizeof own->layout) != 0)
        i++;
    return i < w->layouts.len && own->cost * 100 <= own[i].cost * (100 - LEAST_GAIN);
}

/* The same text, but for its kernel's name? */
static bool same_kernel(const Walk *w, const Walk *first)
{
    const char *a = w->cuda.data, *b = first->cuda.data;
    size_t name = strlen(w->kernel), other = strlen(first->kernel);
    while (*a && *b) {
        bool named = strncmp(a, w->kernel, name) == 0 && strncmp(b, first->kernel, other) == 0;
        if (!named && *a != *b)
            return false;
        a += named ? name : 1;
        b += named ? other : 1;
    }
    return *a == *b;
}

/* Takes the first plan's kernel where it is the same. */
static bool share_walk(Group *g, const Group *first)
{
    if (!same_kernel(g->walk, first->walk))
        return false;
    g->kernel = g->walk->kernel = first->kernel;
    g->walk->cuda = first->walk->cuda;
    return true;
}

/* For calls with more blocks than CROWD on each multiprocessor: as many as fit are then there, so that what
 * counts is what all of them compute, not what one of them waits for. NULL where no walk has another layout
 * for it, or a layout was asked for. */
static Plan *plan_crowded(const Module *program, const Plan *first)
{
    const Compiler *c = program->c;
    if (!first->schedule->on_chip || first->cluster > 1 || first->together <= CROWD ||
        hints_choose(&c->hints, FORWARD) || hints_choose(&c->hints, BACKWARD))
        return NULL;
    Plan *p = plan_for(program, first, CALLS_MANY);
    bool cheaper = false;
    for (int d = 0; p && d < 2; d++)
        cheaper |= plan_walk(p, d) && plan_walk(first, d) && !share_walk(plan_walk(p, d), plan_walk(first, d)) &&
                   is_cheaper(plan_walk(p, d)->walk, plan_walk(first, d)->walk);
    return cheaper ? p : NULL;
}

/* Does a kernel beside the walks read states, or adjoints of these, that lie in another order than their axes
 * have? */
static bool reads_inner(const Plan *p)
{
    for (TensorId t = 0; t < p->m->tensors.len; t++)
        for (int d = 0; d < 2 && p->m->tensors.data[t].inner; d++)
            for (int i = 0; i < p->program[d].groups.len; i++) {
                const Group *g = &p->program[d].groups.data[i];
                if (!g->walk && group_reads(g, ~t))
                    return true;
            }
    return false;
}

/* With that axis of the matrix states in parts, which walk by themselves; NULL where a step sums over it. */
static Plan *plan_parts_of(const Module *lowered, const char *name, const Plan *first, int side)
{
    Compiler *c = lowered->c;
    int said = c->diags.len, errors = c->errors;
    Module *copy = module_copy(lowered);
    copy->stack = first->m->stack;
    copy->fold = first->m->fold;
    copy->unroll = first->m->unroll;
    copy->side = side;
    const Module *program = compile_lowered(copy, fast_passes);
    Request request = *first->request;
    request.schedule = first->schedule; /* no other one walks by parts */
    request.calls = CALLS_SPLIT;
    Plan *p = program && program->parts ? plan_once(program, name, &request) : NULL;
    c->diags.len = said;
    if (c->errors > errors) {
        c->errors = errors;
        return NULL;
    }
    return p && p->cluster == 1 && !reads_inner(p) && may_run(c->archs, p->block_memory, false) ? p : NULL;
}

/* For calls with so few states that most multiprocessors would have none: an axis of the matrix states is
 * taken apart. NULL where the states are small, share a cluster, or no axis walks in parts. */
static Plan *plan_split(const Module *lowered, const char *name, const Plan *first)
{
    const Compiler *c = lowered->c;
    Plan *p = NULL;
    if (!first->schedule->on_chip || first->cluster > 1 || !may_split_states(first->m) ||
        memcmp(&c->hints, &(WalkHints){ 0 }, sizeof c->hints) != 0)
        return NULL;
    for (int side = 1; side <= 2 && !p; side++)
        p = plan_parts_of(lowered, name, first, side);
    return p;
}

/* Is it kernels for each step, and no kernel that walks all of them? */
static bool is_in_memory(const Plan *p)
{
    return p->schedule->last_resort || p->schedule->heads;
}

/* For calls of several steps, by the schedule that cuts the step. NULL with an error where it cannot. */
static Plan *plan_long(const Module *lowered, const char *name, const Plan *first, bool unasked)
{
    Request request = *first->request;
    const Module *program = compile_lowered(lowered, cut_passes);
    request.schedule = schedule_that_cuts(false);
    request.calls = CALLS_LONG;
    request.unasked = unasked;
    request.in_memory = is_in_memory(first);
    return program ? plan_once(program, name, &request) : NULL;
}

/* The same where no schedule is forced, and steps would be walked one by one, by a kernel or by kernels for
 * each. NULL where it cannot, or does not pay. */
static Plan *plan_long_unasked(const Module *lowered, const char *name, const Plan *first)
{
    Compiler *c = lowered->c;
    const Schedule *s = schedule_that_cuts(false);
    int said = c->diags.len, errors = c->errors;
    bool in_memory = is_in_memory(first);
    if (!(first->schedule->on_chip || in_memory) ||
        memcmp(&c->hints, &(WalkHints){ 0 }, sizeof c->hints) != 0)
        return NULL;
    Module *step = compile_lowered(lowered, step_passes);
    Plan *p = step && !s->cut(step) && s->pays(step, first->request->dtype, in_memory)
                  ? plan_long(lowered, name, first, true)
                  : NULL;
    c->diags.len = said;          /* no schedule is forced, so what is wrong with this one is no news */
    if (c->errors > errors) {
        c->errors = errors;
        return NULL;
    }
    return p;
}

const Reason *cuda_sums_stay(const Module *lowered)
{
    Compiler *c = lowered->c;
    const Schedule *s = schedule_that_cuts(true);
    int said = c->diags.len;
    Module *step = compile_lowered(lowered, step_passes);
    c->diags.len = said;
    if (!step)
        return reason(lowered, "its step does not compile");
    const Reason *why = s->cut(step);
    if (!why)
        why = refuses_packed(step, s);
    return why;
}

/* With sums over the past taken out of the step, for all calls, where no schedule is forced. NULL where they
 * stay. */
static Plan *plan_of_sums(const Module *lowered, const char *name, const Request *any, const Module **program)
{
    Compiler *c = lowered->c;
    int said = c->diags.len, errors = c->errors;
    if (any->schedule || !is_stateless(lowered) || cuda_sums_stay(lowered))
        return NULL;
    Request request = *any;
    request.schedule = schedule_that_cuts(true);
    request.unasked = true;
    const Module *step = compile_lowered(lowered, sum_passes);
    c->diags.len = said; /* what compiling says was said */
    Plan *p = step ? plan_once(step, name, &request) : NULL;
    if (p) {
        *program = step;
        return p;
    }
    c->diags.len = said; /* the schedule is not forced, so what is wrong with it is no news */
    c->errors = errors;
    return NULL;
}

/* split: the plan for calls with few states; or NULL. It takes more calls than one by clusters would. */
static void plan_others(const Module *program, Plan *first, Plan *split)
{
    Plan *crowded = plan_crowded(program, first);
    Plan *roomy = split && may_spread(program->c, first) ? NULL : plan_roomy(program, first);
    if (roomy)
        roomy->other = crowded;
    first->other = roomy ? roomy : crowded;
    if (split) {
        split->other = first->other;
        first->other = split;
    }
}

/* Groups of a direction's step itself. */
static int groups_of_step(const Plan *p, Direction d)
{
    int n = 0;
    for (int i = 0; i < p->program[d].groups.len; i++)
        n += p->program[d].groups.data[i].phase == PHASE_DURING;
    return n;
}

static int groups_of_steps(const Plan *p)
{
    return groups_of_step(p, FORWARD) + groups_of_step(p, BACKWARD);
}

/* Bytes that both directions move per sequence and step, where each run-time dim is DIM. */
static double bytes_of_steps(const Plan *p)
{
    enum { DIM = 512 };
    int64_t dims[MAX_DIMS];
    double bytes = 0;
    for (int i = 0; i < MAX_DIMS; i++)
        dims[i] = DIM;
    for (int d = 0; d < (p->m->has_grad ? 2 : 1); d++) {
        const Cost *cost = cost_of_groups(p, &p->program[d]);
        for (int i = 0; i < p->program[d].groups.len; i++)
            bytes += (double)poly_eval(p->m, cost[i].step, dims);
    }
    return bytes;
}

/* Directions that one kernel walks. */
static int walks_of(const Plan *p)
{
    return p->program[FORWARD].one_kernel + p->program[BACKWARD].one_kernel;
}

/* It leaves steps, or a step has no more kernels; and it moves at most a quarter more bytes. Where the
 * gradient of such a product is no product itself, its terms would be written out step by step (E83: 20 times
 * the bytes). A kernel that walks all steps is worth more than fewer products: what one product lays
 * together, a step may have to copy. */
static bool is_better(const Plan *p, const Plan *first)
{
    static const double most_bytes = 1.25;
    if (bytes_of_steps(p) > most_bytes * bytes_of_steps(first) || walks_of(p) < walks_of(first))
        return false;
    return (first->schedule->last_resort && !p->schedule->last_resort) ||
           groups_of_steps(p) <= groups_of_steps(first);
}

/* Which products of one vector and several params are better one. Without a state, products are for so many
 * rows that a copy of the params gains nothing. */
static Stacking stacking_of(const Plan *p)
{
    const Schedule *s = p->schedule;
    return s->stateless ? STACK_NONE : s->on_chip ? STACK_FETCHED : s->per_unit ? STACK_INPUTS : STACK_ALL;
}

/* Says no more what was said from there on, up to there. */
static void unsay(Compiler *c, int from, int to)
{
    if (to == from)
        return;
    memmove(c->diags.data + from, c->diags.data + to, sizeof *c->diags.data * (size_t)(c->diags.len - to));
    c->diags.len -= to - from;
}

/* Products that a step waits for, of both directions. */
static int products_of_steps(const Plan *p)
{
    int n = 0;
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < p->program[d].groups.len; i++)
            n += p->program[d].groups.data[i].phase == PHASE_DURING &&
                 p->program[d].groups.data[i].kind == G_GEMM;
    return n;
}

/* Is it worth laying vectors together in each step? Where one kernel walks the steps of each direction, what
 * counts is how often all blocks wait for a product's vector; else also how many kernels a step is, since
 * laying vectors together may take a kernel more. */
static bool is_better_concatenated(const Plan *p, const Plan *apart)
{
    bool walked = walks_of(p) == (p->m->has_grad ? 2 : 1);
    bool no_more = groups_of_step(p, FORWARD) <= groups_of_step(apart, FORWARD) &&
                   groups_of_step(p, BACKWARD) <= groups_of_step(apart, BACKWARD);
    return p->schedule == apart->schedule && walks_of(p) >= walks_of(apart) && (walked || no_more) &&
           products_of_steps(p) < products_of_steps(apart);
}

/* A factor less in each step must not make other kernels of it that move more: so it is where a product is no
 * GEMM, but a sum of each row that a kernel takes along. Where one kernel walks the steps of each direction,
 * it does not matter how many there would be. */
static bool is_better_folded(const Plan *p, const Plan *first)
{
    bool walked = walks_of(p) == (p->m->has_grad ? 2 : 1);
    return p->schedule == first->schedule && walks_of(p) >= walks_of(first) &&
           bytes_of_steps(p) <= bytes_of_steps(first) &&
           (walked || groups_of_steps(p) <= groups_of_steps(first));
}

/* Sums over a few places that are written out are worth it where one kernel then walks a direction, or a step
 * has fewer kernels; not where one kernel walks each direction as it is. */
static bool is_better_unrolled(const Plan *p, const Plan *first)
{
    bool fewer = walks_of(p) > walks_of(first) ||
                 (groups_of_step(p, FORWARD) <= groups_of_step(first, FORWARD) &&
                  groups_of_step(p, BACKWARD) <= groups_of_step(first, BACKWARD) &&
                  groups_of_steps(p) < groups_of_steps(first));
    bool walked = walks_of(first) == (first->m->has_grad ? 2 : 1);
    return p->schedule == first->schedule && !walked && fewer && is_better(p, first);
}

/* Why products that are added up are no one. */
static void tell_apart(Plan *p, const Module *tried)
{
    if (tried->concatenated)
        buf_f(&p->reasons,
              "products of several vectors (%s) that are added up stay apart: as one product of these "
              "vectors one behind another, no kernel walks the steps, and a step has more kernels\n",
              tried->concatenated_of);
    else if (tried->apart)
        buf_f(&p->reasons, "%s\n", tried->apart);
}

static void tell_concatenated(Plan *p, const Module *taken)
{
    buf_f(&p->reasons, "products that are added up are one product of their vectors one behind another: %s\n",
          taken->concatenated_of);
    if (taken->apart)
        buf_f(&p->reasons, "%s\n", taken->apart);
}

/* What the passes in front of differentiation are asked for, of which the last is new. */
typedef enum { STACKED, FOLDED, UNROLLED, CONCATENATED } Change;
typedef struct Asked {
    Stacking stacking;
    bool fold, unroll;
    Change change;
} Asked;

static bool has_changed(const Module *m, Change change)
{
    switch (change) {
    case STACKED: return m->stacked > 0;
    case FOLDED: return m->folded.len > 0;
    case UNROLLED: return m->unrolled > 0;
    case CONCATENATED: return m->concatenated > 0;
    }
    return false;
}

static bool is_better_by(const Plan *p, const Plan *first, Change change)
{
    switch (change) {
    case STACKED: return is_better(p, first);
    case FOLDED: return is_better_folded(p, first);
    case UNROLLED: return is_better_unrolled(p, first);
    case CONCATENATED: return is_better_concatenated(p, first);
    }
    return false;
}

/* The plan with such products, and the program that it is of; or the plan of before, where there are none, or
 * it would be slower. What is said is of the plan that is taken; `said` was, before the first one. */
static Plan *plan_with(const Module *lowered, Asked asked, Plan *first, int said, const Module **program)
{
    Compiler *c = lowered->c;
    Module *copy = module_copy(lowered);
    int own = c->diags.len, errors = c->errors;
    copy->stack = asked.stacking;
    copy->fold = asked.fold;
    copy->unroll = asked.unroll;
    const Module *stacked = asked.stacking == STACK_NONE ? NULL : compile_until(copy, fast_passes, "stacked");
    bool changed = stacked && has_changed(stacked, asked.change);
    if (changed) {
        c->diags.len = own;
        stacked = compile_lowered(copy, fast_passes);
    }
    int passed = c->diags.len;
    Plan *p = changed && stacked ? plan_once(stacked, first->m->name, first->request) : NULL;
    if (!p || p->schedule->on_chip != first->schedule->on_chip ||
        !is_better_by(p, first, asked.change)) {
        if (asked.change == CONCATENATED && stacked)
            tell_apart(first, stacked);
        c->diags.len = own;
        c->errors = errors;
        return first;
    }
    unsay(c, said, passed);
    if (asked.change == CONCATENATED)
        tell_concatenated(p, stacked);
    *program = stacked;
    return p;
}

static Plan *plan_stacked(const Module *lowered, Plan *first, int said, const Module **program)
{
    Stacking stacking = stacking_of(first);
    Asked asked = { .stacking = stacking, .change = STACKED };
    Plan *p = plan_with(lowered, asked, first, said, program);
    if (stacking != STACK_ALL)
        return p;
    asked.unroll = true;
    asked.change = UNROLLED;
    p = plan_with(lowered, asked, p, said, program);
    asked.unroll = p->m->unroll;
    asked.fold = true;
    asked.change = FOLDED;
    p = plan_with(lowered, asked, p, said, program);
    asked = (Asked){ STACK_COLUMNS, p->m->fold, p->m->unroll, CONCATENATED };
    return products_of_steps(p) > 1 ? plan_with(lowered, asked, p, said, program) : p;
}

/* PRODUCT_COST: bytes of params that are copied in the time that one product more takes (measured on an H200:
 * an LSTM's step of 4096 units, B 1, 0.28 ms with a copy of 268 MB, 0.13 with six products more; of 1024, B
 * 16, 0.046 with 17 MB, 0.056). FACTOR_COST: in the time that a factor of a product's rows takes in each step
 * of both directions (an LSTM of 1024 with normalised weights, B 16: 0.9 us for four of them). */
enum { PRODUCT_COST = 6 << 20, FACTOR_COST = PRODUCT_COST / 16 };

/* For calls of so few steps that the copies take longer than the products that they save: the cell with
 * its params apart, as it was planned before. NULL where no call is, or a walk would stand in the text
 * once more. */
static Plan *plan_short(const Module *apart, const Module *stacked, const Plan *first)
{
    Compiler *c = apart->c;
    Module *m = first->m;
    const Poly *copied = poly_mul(m, stacked->laid, poly_const(m, dtype_bytes(first->request->dtype)));
    const Poly *saved = poly_const(m, (int64_t)stacked->fewer * PRODUCT_COST +
                                          (int64_t)stacked->folded.len * FACTOR_COST);
    int said = c->diags.len, errors = c->errors;
    Request request = *first->request;
    if (first->schedule->on_chip || (copied->is_const && copied->value <= saved->value))
        return NULL;
    request.calls = CALLS_SHORT;
    request.when =
        formula(m, F_LE, formula_size(m, poly_mul(m, saved, poly_dim(m, ATOM_T))), formula_size(m, copied));
    Plan *p = plan_once(apart, first->m->name, &request);
    c->diags.len = said; /* it was said of the first one */
    c->errors = errors;
    return p;
}

/* The plan that the cell has; nothing is said of it. NULL: there is none. */
static const Plan *plan_unsaid(const Module *lowered)
{
    Compiler *c = lowered->c;
    int said = c->diags.len, errors = c->errors;
    const Plan *p = cuda_plan(lowered, lowered->name);
    c->diags.len = said;
    c->errors = errors;
    return p;
}

void cuda_settle(Module *lowered)
{
    const Plan *p = plan_unsaid(lowered);
    lowered->stack = p ? p->m->stack : STACK_NONE;
    lowered->fold = p && p->m->fold;
    lowered->unroll = p && p->m->unroll;
}

int cuda_split_side(const Module *lowered)
{
    const Plan *p = plan_unsaid(lowered);
    p = p ? plan_of(p, CALLS_SPLIT) : NULL;
    return p && p->calls == CALLS_SPLIT ? p->m->side : 1;
}

Plan *cuda_plan(const Module *lowered, const char *name)
{
    Compiler *c = lowered->c;
    int said = c->diags.len;
    const Module *program = compile_lowered(lowered, cuts_sums(c) ? sum_passes : fast_passes);
    if (!program)
        return NULL;
    if (said)
        c->diags.len = said;
    Request request = request_of(c);
    bool several = cuts(&request);
    if (several)
        request.schedule = NULL;
    said = c->diags.len;
    Plan *first = several ? NULL : plan_of_sums(lowered, name, &request, &program);
    if (!first)
        first = plan_once(program, name, &request);
    const Module *apart = program;
    if (first)
        first = plan_stacked(lowered, first, said, &program);
    Plan *p = first;
    if (first)
        plan_others(program, first, plan_split(lowered, name, first));
    if (first && program != apart && !first->other)
        first->other = plan_short(apart, program, first);
    Plan *chunked = NULL;
    if (first && several && !(chunked = plan_long(lowered, name, first, false)))
        return NULL;
    if (first && !request.schedule && !several)
        chunked = plan_long_unasked(lowered, name, first);
    if (chunked) {
        chunked->other = first->other;
        first->other = chunked;
    }
    /* Where clusters were asked for, a GPU without them gives an error at the call. */
    if (first && first->cluster > 1 && c->schedule && c->schedule->on_chip && !c->is_tuned)
        return c->errors ? NULL : first;
    for (int64_t bytes; p && (bytes = block_memory_below(c->archs, p->block_memory, p->cluster > 1)); p = p->smaller)
        p->smaller = plan_smaller(program, first, name, bytes);
    return c->errors ? NULL : first;
}

/* A plan for the CPU: that of a walk on chip, which one kernel takes there as well, of sums over the past
 * that are attention, or else step by step.
 * Nothing is said of it: what there is to say of the cell is said of the plan for GPUs. NULL where there is
 * none. */
static Plan *cpu_plan_by(const Module *program, const char *name, const Schedule *s)
{
    Compiler *c = program->c;
    int said = c->diags.len, errors = c->errors;
    const Request request = { .dtype = c->dtype, .products = PRODUCTS_PLAIN, .schedule = s, .cpu = true };
    Plan *p = plan_once(program, name, &request);
    c->diags.len = said;
    if (c->errors > errors) {
        c->errors = errors;
        return NULL;
    }
    return p;
}

/* With sums over the past as attention, by tiles of steps. NULL, perhaps with the reason, where they are
 * not. */
static Plan *cpu_plan_of_sums(const Module *lowered, const char *name, const Reason **why)
{
    Compiler *c = lowered->c;
    const Schedule *s = schedule_that_cuts(true);
    int said = c->diags.len;
    Module *step = compile_lowered(lowered, step_passes);
    *why = step ? s->cut(step) : NULL;
    const Module *program = step && !*why ? compile_lowered(lowered, sum_passes) : NULL;
    c->diags.len = said;
    return program ? cpu_plan_by(program, name, s) : NULL;
}

CpuChoice cpu_choice(const Module *lowered, const char *name)
{
    Compiler *c = lowered->c;
    int said = c->diags.len;
    const Module *program = compile_lowered(lowered, fast_passes);
    CpuChoice x = { 0 };
    if (!program)
        return x;
    c->diags.len = said;
    const bool stateless = is_stateless(program);
    x.plan = cpu_plan_of_sums(lowered, name, &x.not_cut);
    if (x.plan)
        return x;
    x.plan = stateless ? NULL : cpu_plan_by(program, name, NULL);
    const bool walks = x.plan && x.plan->schedule->on_chip;
    x.not_walked = walks ? cpu_walk_refuses(x.plan) : NULL;
    x.refused = x.not_walked ? x.plan->schedule : NULL;
    if (walks && !x.not_walked)
        cpu_walk_settle(x.plan);
    else
        x.plan = cpu_plan_by(program, name, schedule_plain(stateless));
    return x;
}
