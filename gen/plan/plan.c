/* plan.c: the fast path's decisions, one pass after another (plan_pass.h), and the choice of the schedule. In comes a
 * normalised module with its adjoint; out goes, for each direction, when every array is computed (once, before, during
 * or after the walk over time), by which kernel or product, where it lies and what backward finds saved. It is
 * guaranteed that every array is computed before it is read and that nothing is left for the emitters to decide. The
 * reasons are written down for `cellc explain`. */
#include "plan_pass.h"
#include "schedule/resident/panel.h"
#include "schedule/scan/scan.h"
#include "schedule/window/window.h"

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
            b->elements = poly_mul(m, poly_mul(m, poly_dim(m, ATOM_B), w->blocks), poly_const(m, w->by_thread));
    }
}

/* Forward's walk leaves the states before each step to backward only: what comes behind it cannot read them. */
static const char *behind_reads_state(const Phasing *s)
{
    const Module *m = s->p->m;
    for (NodeId id = 0; id < s->p->n_nodes; id++)
        for (int i = 0; s->needed[id] && s->g->phase[id] == PHASE_AFTER && i < s->uses[id].len; i++) {
            const Read *r = &s->uses[id].data[i].read;
            if (s->g->dir == FORWARD && r->is_tensor && m->tensors.data[r->id].kind == T_STATE)
                return intern_f(m->c, "`%s` is read together with a sum over what the walk gives",
                                m->tensors.data[r->id].name);
        }
    return NULL;
}

const char *plan_suffix(Calls calls)
{
    return calls == CALLS_FEW ? "_roomy" : calls == CALLS_MANY ? "_crowded" : "";
}

const Plan *plan_of(const Plan *first, Calls calls)
{
    const Plan *p = first->other;
    while (p && p->calls != calls)
        p = p->other;
    return p ? p : first;
}

/* Backward comes first: it has the states between two checkpoints on the chip, and says how many those may be. */
static void add_walk(Plan *p, const Phasing *s)
{
    Program *pr = &p->program[s->g->dir];
    Walk *w = arena_alloc(p->m->arena, sizeof *w);
    *w = (Walk){ .m = p->m, .request = p->request, .trial = p->trial, .dir = s->g->dir, .storage = p->dtype, .n_nodes = p->n_nodes, .of_node = pr->node,
                 .of_forward = p->program[FORWARD].node, .of_tensor = pr->tensor, .wanted = pr->wanted, .made = pr->taken,
                 .from_product = p->from_product, .interval = p->interval, .layout = p->layout, .by_thread = p->by_thread };
    w->cuda.arena = w->reasons.arena = p->m->arena;
    w->kernel = intern_f(p->m->c, "%s_%s_walk%s", p->m->name, s->g->dir == FORWARD ? "fwd" : "bwd", plan_suffix(p->request->calls));
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (s->needed[id] && pr->phase[id] == PHASE_DURING && !p->is_cat[id] && !(pr->taken && pr->taken[id]) &&
            pr->node[id].home != HOME_NONE)
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

static bool has_state(const Module *m)
{
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (m->tensors.data[t].kind == T_STATE)
            return true;
    return false;
}

static void plan_directions(Plan *p)
{
    find_past_values(p);
    Phasing f = phasing(p, FORWARD, NULL);
    bool *stored = stored_arrays(p, &f), *wanted = plan_alloc(p, 1, p->n_nodes);
    Phasing b = phasing(p, BACKWARD, stored);
    if (make_anew(p, &f, &b, stored))
        b = phasing(p, BACKWARD, stored);
    Phasing *both[2] = { &f, &b };
    for (int d = 0; p->scan && d < 2 && !p->not_scan; d++)
        p->not_scan = scan_refused(p, &p->program[d]);
    if (p->scan && p->not_scan)
        return;
    for (int d = 0; d < 2; d++) {
        tensor_storage(p, &p->program[d]);
        root_storage(p, &p->program[d]);
    }
    carry_storage(p);
    for (int d = 1; d >= 0; d--) {
        mark_cats(p, both[d]);
        mark_short_sums(p, both[d]);
        make_groups(p, both[d]);
        if (p->scan && (p->not_scan = scan_too_many(&p->program[d])))
            return;                           /* the rest would be planned for nothing */
        join_sums_apart(both[d]);
        join_columns(p, both[d]);
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
    for (int d = 1; d >= 0 && p->schedule == SCHED_TILE; d--)
        add_walk(p, both[d]);
    for (int d = 0; d < 2; d++) {
        finish_groups(p, &p->program[d]);
        name_kernels(p, &p->program[d]);
    }
    for (int d = 0; p->scan && d < 2 && !p->not_scan; d++)
        p->not_scan = scan_refused(p, &p->program[d]);
}

/* What the cell can take: no state is map; a state that fits on an SM is tile, unless that was tried and
 * refused; else steps, or gemm when a step multiplies. */
static Schedule choose(Plan *p)
{
    Module *m = p->m;
    Schedule wanted = p->trial->wanted;
    const char *refused = p->not_tile;
    if (!has_state(m)) {
        if (wanted != SCHED_AUTO && wanted != SCHED_MAP && wanted != SCHED_WINDOW)
            diag(m->c, DIAG_ERROR, m->span, "cell %s has no state: only --schedule map or window can take it", m->name);
        p->no_window = wanted == SCHED_MAP;
        return SCHED_MAP;
    }
    if (wanted == SCHED_MAP || wanted == SCHED_WINDOW)
        diag(m->c, DIAG_ERROR, m->span, "--schedule %s takes cells without a state; %s has one",
             wanted == SCHED_MAP ? "map" : "window", m->name);
    if (!refused && (wanted == SCHED_AUTO || wanted == SCHED_TILE))
        refused = tile_refuses(m, p->request, p->trial);
    if (wanted == SCHED_TILE && refused)
        diag(m->c, DIAG_ERROR, m->span, "--schedule tile cannot take cell %s: %s", m->name, refused);
    if (wanted != SCHED_AUTO)
        return wanted;
    p->not_tile = refused;
    if (refused)
        buf_f(&p->reasons, "not tile: %s\n", refused);
    return refused ? SCHED_STEPS : SCHED_TILE;
}

static bool multiplies_each_step(const Program *pr)
{
    for (int i = 0; i < pr->groups.len; i++)
        if (pr->groups.data[i].kind == G_GEMM && pr->groups.data[i].phase == PHASE_DURING)
            return true;
    return false;
}

static const char *walk_refused(const Plan *p, bool *no_room, bool *no_made)
{
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < p->program[d].groups.len; i++) {
            const Group *g = &p->program[d].groups.data[i];
            *no_room = g->kind == G_WALK && g->walk->no_room;
            *no_made = g->kind == G_WALK && g->walk->no_made;
            if (g->kind == G_WALK && g->walk->refused)
                return g->walk->refused;
        }
    return NULL;
}

/* The attempt failed; the next one has these reasons against the two schedules. */
static Plan *try_again(Trial *t, Schedule wanted, const char *not_tile, const char *not_scan)
{
    t->wanted = wanted;
    t->not_tile = not_tile;
    t->not_scan = not_scan;
    t->again = true;
    return NULL;
}

/* What a walk must write for others is known only now: it may be what the walk cannot give. */
static Plan *without_tile(Plan *p)
{
    Module *m = p->m;
    Trial *t = p->trial;
    bool no_room, no_made;
    const char *why = walk_refused(p, &no_room, &no_made);
    if (no_made && !t->no_made) {
        t->no_made = true;
        return try_again(t, t->wanted, NULL, NULL);
    }
    if (no_room && tile_widen(p->request, t, p->interval))
        return try_again(t, t->wanted, NULL, NULL);
    if (t->wanted == SCHED_TILE) {
        diag(m->c, DIAG_ERROR, m->span, "--schedule tile cannot take cell %s: %s", m->name, why);
        return NULL;
    }
    return try_again(t, SCHED_AUTO, why, NULL);
}

/* Does the array sum over many steps, each of which it reads by itself? Short windows come from the cache. */
static bool sums_many_steps(const Plan *p, NodeId array)
{
    enum { FEW = 16 };
    Uses uses = plan_uses(p, array);
    for (int i = 0; i < uses.len; i++) {
        const IxExpr *step = uses.data[i].read.step;
        for (int k = 0; step && k < step->nterms; k++) {
            IndexId which = step->terms[k].kind == IA_INDEX ? step->terms[k].index : IX_TIME;
            const Poly *n = which >= IX_FIRST ? p->m->indices.data[which].extent : NULL;
            if (n && (!n->is_const || n->value > FEW))
                return true;
        }
    }
    return false;
}

static void warn_of_steps(Plan *p)
{
    for (int d = 0; d < 2; d++)
        for (NodeId id = 0; id < p->n_nodes; id++) {
            int group = p->program[d].group[id];
            const Group *g = group < 0 ? NULL : &p->program[d].groups.data[group];
            bool history = g && p->window && !g->timed;       /* for the call before, where that is asked for */
            if (!g || g->kind == G_GEMM || g->window || history || !sums_many_steps(p, id))
                continue;
            diag(p->m->c, DIAG_PERF, at(p, id)->span,
                 "every step reads many earlier ones here, each from memory");
            return;
        }
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

/* A walk that needs more than a block may have: the same with checkpoints closer together, or, where one for
 * every step is still too much, none. */
static Plan *with_less_memory(Plan *p)
{
    Trial *t = p->trial;
    if (p->interval > 1) {
        t->fewer = p->interval / 2;
        return try_again(t, t->wanted, NULL, NULL);
    }
    if (t->wanted == SCHED_TILE)
        return NULL;
    return try_again(t, SCHED_AUTO,
                     intern_f(p->m->c, "its walk needs %lld bytes of shared memory with a checkpoint at every step, and a "
                                       "block has %lld", (long long)p->block_memory, (long long)p->request->block_memory), NULL);
}

/* Vectors of one length that no sum of the step reads: their elements may walk on their own, and then a vector needs
 * no SM to itself. */
static bool elements_alone(const Module *m)
{
    const Poly *units = NULL;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        if (x->kind != T_STATE)
            continue;
        if (x->rank - x->complex != 1 || (units && x->axes[0] != units))
            return false;
        units = x->axes[0];
    }
    for (NodeId id = 0; id < m->forward_nodes; id++)
        if (m->nodes.data[id].kind == N_REDUCE && (m->nodes.data[id].dep & DEP_STATE))
            return false;
    return units != NULL;
}

/* Where states lie in memory so far, a thread for each of their units may have them in registers. */
static void choose_scan(Plan *p)
{
    Schedule wanted = p->trial->wanted;
    const char *why = p->trial->not_scan;
    if (wanted != SCHED_SCAN && (wanted != SCHED_AUTO || p->schedule != SCHED_STEPS))
        return;
    if (!why)
        p->scan = scan_units(p->m, &why);
    if (p->scan)
        p->schedule = SCHED_SCAN;
    else
        p->not_scan = why;
}

static Plan *without_scan(Plan *p)
{
    Module *m = p->m;
    if (p->trial->wanted != SCHED_SCAN)
        return try_again(p->trial, p->trial->wanted, p->not_tile, p->not_scan);
    diag(m->c, DIAG_ERROR, m->span, "--schedule scan cannot take cell %s: %s", m->name, p->not_scan);
    return NULL;
}

/* A cell without a state whose softmax over the past goes in one pass. */
static bool choose_window(Plan *p)
{
    Module *m = p->m;
    Schedule wanted = p->trial->wanted;
    const char *why = p->window ? NULL : window_refuses(p);
    if (p->window)
        p->schedule = SCHED_WINDOW;
    else if (wanted == SCHED_WINDOW)
        diag(m->c, DIAG_ERROR, m->span, "--schedule window cannot take cell %s: %s", m->name, why);
    else if (p->past && !p->no_window)
        buf_f(&p->reasons, "not window: %s\n", why);
    return p->window || wanted != SCHED_WINDOW;
}

/* One attempt at a plan: NULL where there is none, or, with trial->again, where the next attempt may find
 * one. */
static Plan *attempt(Module *m, const Request *request, Trial *trial)
{
    Plan *p = arena_alloc(m->arena, sizeof *p);
    *p = (Plan){ .m = m, .request = request, .trial = trial, .dtype = request->dtype,
                 .compute = request->dtype == DT_F64 ? DT_F64 : DT_F32, .calls = request->calls, .not_tile = trial->not_tile };
    Schedule wanted = trial->wanted;
    p->reasons.arena = m->arena;
    p->schedule = choose(p);
    if (m->c->errors)
        return NULL;
    choose_scan(p);
    if (wanted == SCHED_SCAN && !p->scan)
        return without_scan(p);
    p->other_step = module_index(m, intern(m->c, "s"), poly_dim(m, ATOM_T));
    if (p->schedule == SCHED_TILE)
        p->interval = tile_interval(m, request, trial);
    split_roots(p);
    own_slices(p);
    round_operands(p);
    for (int d = 0; d < 2; d++)
        p->program[d].node = plan_alloc(p, sizeof *p->program[d].node, p->n_nodes);
    plan_directions(p);
    if (p->schedule == SCHED_TILE && walk_refused(p, &(bool){ false }, &(bool){ false }))
        return without_tile(p);
    p->cluster = p->schedule == SCHED_TILE ? trial->cluster : 1;
    if (p->scan && p->not_scan)
        return without_scan(p);
    p->block_memory = block_memory(p);
    if (p->schedule == SCHED_TILE && request->block_memory && p->block_memory > request->block_memory)
        return with_less_memory(p);
    bool products = multiplies_each_step(&p->program[FORWARD]);
    if (wanted == SCHED_GEMM && !products) {
        diag(m->c, DIAG_ERROR, m->span,
             "--schedule gemm needs a product with a param in every step; %s has none, or none that is not "
             "computed together with other sums of the step", m->name);
        return NULL;
    }
    if (p->schedule == SCHED_STEPS && products && wanted == SCHED_AUTO)
        p->schedule = SCHED_GEMM;
    if (p->not_scan && p->schedule == SCHED_STEPS)
        buf_f(&p->reasons, "not scan: %s\n", p->not_scan);
    if (p->scan)
        scan_kernels(p);
    if (p->schedule == SCHED_MAP && !choose_window(p))
        return NULL;
    warn_of_steps(p);
    panel_find(p);
    put_time_first(p);
    columns_find(p);
    name_kernels(p, &p->program[BACKWARD]);       /* its phases may have changed */
    find_parts(p);
    find_fused(p);
    ir_verify(m, "plan");
    return p;
}

Plan *plan_make(Module *m, const Request *request)
{
    int conditions = m->quotients.len;
    Trial *t = arena_alloc(m->arena, sizeof *t);
    t->wanted = request->schedule;
    Plan *p;
    do {
        if (t->wanted == SCHED_AUTO && !t->not_tile && !t->alone_tried && elements_alone(m)) {
            t->alone = t->alone_tried = true;
            t->not_tile = "each element of its states walks by itself";
        }
        t->again = false;
        p = attempt(m, request, t);
        if (t->alone && p && p->schedule != SCHED_SCAN) {
            t->alone = false;
            try_again(t, request->schedule, NULL, NULL);
        }
    } while (t->again);
    if (m->quotients.len != conditions)       /* each is a check of the call: only the spec may ask for one */
        bug(m->c, "plan", "planning made %d conditions of the call", m->quotients.len - conditions);
    return p;
}
