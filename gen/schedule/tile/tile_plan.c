/* tile_plan.c: schedule tile as an object: what the planner asks of it, and what it adds to a plan (tile.c
 * decides how a walk does its step). In comes a plan that has all but the walk; out goes the group that is
 * the walk, with the kernel's text, and how often the states are kept. */
#include "plan/plan_pass.h"
#include "plan/split_sums.h"
#include "schedule/schedule.h"
#include "tile.h"

static const Reason *refuses(Plan *p)
{
    const Reason *why = tile_refuses(p->m, p->request, p->trial);
    if (!why)
        p->interval = tile_interval(p->m, p->request, p->trial);
    return why;
}

/* How often there is one, and how it lies. */
static void set_checkpoints(Plan *p, const Program *pr, const Walk *w)
{
    Module *m = p->m;
    p->interval = w->interval;
    p->layout = w->layout;
    p->by_thread = w->by_thread;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        if (pr->checkpoint[t] < 0)
            continue;
        Buffer *b = &p->buffers.data[pr->checkpoint[t]];
        b->per_steps = w->interval;
        if (b->inference)
            bug(m->c, "plan", "forward keeps checkpoints of %s for itself", m->tensors.data[t].name);
        if (w->by_thread && m->tensors.data[t].rank == w->parallel.len + 2)
            b->elements = poly_mul(m, poly_mul(m, poly_dim(m, ATOM_B), w->blocks),
                                   poly_const(m, w->by_thread));
    }
}

/* Forward's walk leaves the states before each step to backward only: what comes behind it cannot read
 * them. */
static const Reason *behind_reads_state(const Phasing *s)
{
    const Module *m = s->p->m;
    for (NodeId id = 0; id < s->p->n_nodes; id++)
        for (int i = 0; s->needed[id] && s->g->phase[id] == PHASE_AFTER && i < s->uses[id].len; i++) {
            const Read *r = &s->uses[id].data[i].read;
            if (s->g->dir == FORWARD && r->is_tensor && m->tensors.data[r->id].kind == T_STATE)
                return reason_of(m, at(s->p, id), "`%s` is read together with a sum over what the walk gives",
                                 m->tensors.data[r->id].name);
        }
    return NULL;
}

/* Backward comes first: it has the states between two checkpoints on the chip, and says how many those may
 * be. */
static void add_walk(Plan *p, const Phasing *s)
{
    Program *pr = &p->program[s->g->dir];
    Walk *w = arena_alloc(p->m->arena, sizeof *w);
    *w = (Walk){ .m = p->m,
                 .request = p->request,
                 .trial = p->trial,
                 .dir = s->g->dir,
                 .storage = p->dtype,
                 .n_nodes = p->n_nodes,
                 .of_node = pr->node,
                 .of_forward = p->program[FORWARD].node,
                 .of_tensor = pr->tensor,
                 .wanted = pr->wanted,
                 .made = pr->taken,
                 .from_product = p->from_product,
                 .interval = p->interval,
                 .layout = p->layout,
                 .by_thread = p->by_thread };
    w->cuda.arena = w->reasons.arena = p->m->arena;
    w->kernel = intern_f(p->m->c, "%s_%s_walk%s", p->m->name, s->g->dir == FORWARD ? "fwd" : "bwd",
                         plan_suffix(p->request->calls));
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (s->needed[id] && pr->phase[id] == PHASE_DURING && !p->is_cat[id] &&
            !(pr->taken && pr->taken[id]) && pr->node[id].home != HOME_NONE)
            vec_push(p->m->arena, &w->outs, id);
    Group g = { .kind = G_WALK, .phase = PHASE_DURING, .kernel = w->kernel, .walk = w };
    g.need = pr->walk;
    vec_push(p->m->arena, &pr->groups, g);
    tile_walk(w);
    if (!w->refused)
        w->refused = behind_reads_state(s);
    p->shares_sm = w->shares_sm;
    p->together = w->together;
    p->spreads |= w->spreads;
    set_checkpoints(p, pr, w);
}

static const Reason *walk_refused(const Plan *p, bool *no_room, bool *no_made)
{
    for (int d = 0; d < 2; d++) {
        const Group *g = plan_walk(p, d);
        *no_room = g && g->walk->no_room;
        *no_made = g && g->walk->no_made;
        if (g && g->walk->refused)
            return g->walk->refused;
    }
    return NULL;
}

/* What a walk must write for others is known only now: it may be what the walk cannot give. */
static Verdict walk_fails(Plan *p, const Reason *why, bool no_room, bool no_made)
{
    Trial *t = p->trial;
    if (no_made && !t->no_made) {
        t->no_made = true;
        return (Verdict){ .why = why, .again = true };
    }
    return (Verdict){ .why = why, .again = no_room && tile_widen(p->request, t, p->interval) };
}

/* A walk that needs more than a block may have: the same with checkpoints closer together, or, where one for
 * every step is still too much, none. */
static Verdict settle(Plan *p)
{
    bool no_room, no_made;
    const Reason *why = walk_refused(p, &no_room, &no_made);
    if (why)
        return walk_fails(p, why, no_room, no_made);
    p->cluster = p->trial->cluster;
    if (!p->request->block_memory || p->block_memory <= p->request->block_memory)
        return (Verdict){ 0 };
    why = reason(
        p->m,
        "its walk needs %lld bytes of shared memory with a checkpoint at every step, and a block has %lld",
        (long long)p->block_memory, (long long)p->request->block_memory);
    if (p->interval > 1) {
        p->trial->fewer = p->interval / 2;
        return (Verdict){ .why = why, .again = true };
    }
    return (Verdict){ .why = why, .said = true };
}

static void saves(Plan *p, bool *saved)
{
    tile_saved(p->m, p->request, p->trial, saved);
}

const Schedule tile_schedule = {
    .name = "tile",
    .what = "the states stay on chip while one kernel walks over the steps",
    .what_on_cpu = "one kernel walks all steps of a state, which stays in a core's cache",
    .on_chip = true,
    .packed = true,
    .takes_hints = "cluster=N, interval=STEPS, warps=N, forward=LANES/WARPS or backward=LANES/WARPS",
    .refuses = refuses,
    .settle = settle,
    .blocks = parallel_of_states,
    .saves = saves,
    .take = tile_take,
    .add_walk = add_walk,
};
