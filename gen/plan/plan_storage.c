/* plan_storage.c: where values lie. In come phases and groups; out goes, for each value and tensor that is read from
 * memory, its storage: an argument, workspace, the reserve, or a few steps of these. It is guaranteed that what
 * backward finds saved lies in the reserve, and that no buffer of inference grows with T for what only the next step
 * reads. */
#include "base/mutate.h"
#include "emit/emit.h"
#include "ir/arguments.h"
#include "plan_pass.h"

/* Forward arrays that backward may find in memory: with steps all of them, with tile all but the walk's
 * matrices. */
bool *stored_arrays(Plan *p, const Phasing *forward)
{
    Program *f = &p->program[FORWARD];
    bool *stored = plan_alloc(p, 1, p->n_nodes), *saved = plan_alloc(p, 1, p->n_nodes);
    if (p->schedule->saves)
        p->schedule->saves(p, saved);
    for (NodeId id = 0; id < p->n_nodes; id++) {
        stored[id] = forward->needed[id] && !printed_inline(p, f, id) && f->phase[id] != PHASE_NONE;
        RootKind root = root_kind(p->m, id, &(TensorId){ 0 });
        bool walks = f->phase[id] == PHASE_DURING && !stands_in_front(p, f, id);
        /* A copy that a product of forward takes is there for backward's. By steps it lies in a ring, or before each. */
        if ((p->rounded[id] && (copies_state(p, id) || (walks && !p->schedule->on_chip))) ||
            root == ROOT_INIT || root == ROOT_LAST)
            stored[id] = false;
        if (p->schedule->on_chip && walks)
            stored[id] = stored[id] && (saved[id] || p->rounded[id]);
        if (p->schedule->per_unit && f->taken && f->taken[id])
            stored[id] = false; /* backward rematerialises it, from what it is made of */
    }
    return stored;
}

const Storage *plan_storage(const Plan *p, const Program *pr, const Read *r)
{
    if (r->is_tensor)
        return &pr->tensor[r->id];
    const Storage *st = &pr->node[r->id];
    return st->home == HOME_NONE ? &p->program[FORWARD].node[r->id] : st;
}

int add_buffer(Plan *p, const char *name, Dtype dtype, const Poly *elements, bool reserve,
                      bool inference)
{
    Buffer b = { .name = name, .dtype = dtype, .elements = elements, .reserve = reserve,
                 .inference = inference };
    vec_push(p->m->arena, &p->buffers, b);
    return p->buffers.len - 1;
}

const Poly *row_count(Plan *p, bool batched, bool timed)
{
    Module *m = p->m;
    if (batched && timed)
        return module_rows(m);
    return batched ? poly_dim(m, ATOM_B) : timed ? poly_dim(m, ATOM_T) : poly_const(m, 1);
}

static Dtype type_of_array(const Plan *p, NodeId id)
{
    return p->rounded[id] ? plan_operand_type(p) : p->narrow[id] ? p->dtype : p->compute;
}

void give_storage(Plan *p, Program *pr, NodeId id, bool reserve, bool inference)
{
    Storage *st = &pr->node[id];
    unsigned dep = rows_dep(p, id);
    if (st->home == HOME_ARG)
        return;
    if (st->home != HOME_NONE && st->slot >= 0) {
        p->buffers.data[st->slot].inference |= inference;
        return;
    }
    st->batched = dep & DEP_BATCH;
    st->timed = (dep & DEP_TIME) && !(p->summed && p->summed[id]);
    if (mutate("wrong-hoist") && pr->phase[id] == PHASE_BEFORE && !plan_reduces(p, id))
        st->timed = false;
    st->dtype = type_of_array(p, id);
    if (st->home != HOME_NONE)
        return;                       /* a piece: its whole gets the buffer */
    st->home = reserve ? HOME_RESERVE : HOME_WORKSPACE;
    const Poly *n = poly_mul(p->m, row_count(p, st->batched, st->timed), array_elements(p->m, id));
    const char *name = at(p, id)->name ? at(p, id)->name : intern_f(p->m->c, "v%d", id);
    st->slot = add_buffer(p, name, st->dtype, n, reserve, inference);
}

/* Storage of everything that another kernel reads. */
void store_read_values(Plan *p, const Phasing *s, bool *wanted)
{
    Program *pr = &p->program[s->g->dir];
    for (NodeId id = 0; id < p->n_nodes; id++) {
        if (!s->needed[id] || (p->is_alias[id] && !is_root(p->m, id)))
            continue;
        bool reader_in_walk = pr->phase[id] == PHASE_DURING && p->schedule->on_chip;
        for (int i = 0; i < s->uses[id].len; i++) {
            const Read *r = &s->uses[id].data[i].read;
            if (r->is_tensor)
                continue;
            if (is_stored(s, r->id)) {
                wanted[r->id] = true;
                continue;
            }
            bool same = pr->group[id] >= 0 && kernel_of(pr, id) == pr->group[r->id];
            bool read_in_walk = pr->phase[r->id] == PHASE_DURING && p->schedule->on_chip;
            if (same || (reader_in_walk && read_in_walk) || printed_inline(p, pr, r->id) || p->is_cat[id])
                continue;
            give_storage(p, pr, r->id, false, true);
        }
    }
}

void finish_cats(Plan *p, Program *pr)
{
    for (NodeId id = 0; id < p->n_nodes; id++) {
        Storage *st = &pr->node[id];
        if (st->home == HOME_NONE || st->slot >= 0)
            continue;
        NodeId whole = -2 - st->slot;
        unsigned dep = at(p, id)->dep;
        give_storage(p, pr, whole, false, true);
        const Storage *w = &pr->node[whole];
        bool argument = w->home == HOME_ARG;
        *st = (Storage){ .home = w->home,
                         .slot = w->slot,
                         .arg = w->arg,
                         .batched = dep & DEP_BATCH,
                         .timed = dep & DEP_TIME,
                         .dtype = argument ? w->dtype : type_of_array(p, id),
                         .pitch = st->pitch,
                         .alias_offset = st->alias_offset,
                         .lead = st->lead,
                         .row = st->row };
        if (argument)
            continue;
        p->buffers.data[w->slot].dtype = st->dtype;
        pr->node[whole].dtype = st->dtype;
    }
}

/* A learned initial state passes its adjoint on to params. */
static bool uses_dinit(const Plan *p, TensorId state)
{
    for (TensorId t = 0; t < p->m->tensors.len; t++)
        if (p->m->tensors.data[t].kind == T_DINIT && p->m->tensors.data[t].of == state)
            return true;
    return false;
}

/* The state whose value before each step the array is, rounded for a product; or -1. */
static TensorId state_before(const Plan *p, NodeId id)
{
    const Module *m = p->m;
    const Node *body = at(p, id)->kind == N_ARRAY ? at(p, at(p, id)->args[0]) : NULL;
    bool before = body && p->rounded[id] && body->kind == N_LOAD && m->tensors.data[body->tensor].kind == T_STATE;
    bool used = p->program[FORWARD].phase[id] != PHASE_NONE || p->program[BACKWARD].phase[id] != PHASE_NONE;
    return before && !p->schedule->on_chip && used ? body->tensor : -1;
}

/* A walk by units needs no kernel before and behind it where initial states are those of the call, or 0, and
 * nobody reads the states of all steps with the initial one as their first. */
static bool has_own_ends(const Plan *p)
{
    const Module *m = p->m;
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (tensor_steps(&m->tensors.data[t]) &&
            (m->roots.data[t].init >= 0 || m->roots.data[t].dprev < 0 || uses_dinit(p, t)))
            return false;
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (state_before(p, id) >= 0)
            return false;
    return true;
}

static bool learns_initial(const Plan *p)
{
    for (TensorId t = 0; t < p->m->tensors.len; t++)
        if (p->m->tensors.data[t].kind == T_STATE && p->m->roots.data[t].init >= 0)
            return true;
    return false;
}

/* The states before each step, which products read, and what steps carries. */
void carry_storage(Plan *p)
{
    Module *m = p->m;
    const Poly *b = poly_dim(m, ATOM_B), *bt = row_count(p, true, true);
    for (int d = 0; d < 2; d++) {
        Program *pr = &p->program[d];
        pr->initial = plan_alloc(p, sizeof(int), m->tensors.len);
        pr->carry = plan_alloc(p, sizeof(int), m->tensors.len);
        pr->before = plan_alloc(p, sizeof(int), m->tensors.len);
        pr->checkpoint = plan_alloc(p, sizeof(int), m->tensors.len);
        for (TensorId t = 0; t <= m->tensors.len; t++)
            pr->initial[t] = pr->carry[t] = pr->before[t] = pr->checkpoint[t] = -1;
    }
    p->own_ends = p->schedule->cut ? !learns_initial(p) && (!plan_steps(p) || has_own_ends(p))
                                   : p->schedule->per_unit && has_own_ends(p);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        if (m->tensors.data[t].kind != T_STATE)
            continue;
        const char *name = m->tensors.data[t].name;
        const Poly *n = tensor_elements(m, t);
        Program *f = &p->program[FORWARD], *bw = &p->program[BACKWARD];
        if (p->schedule->on_chip) {
            f->checkpoint[t] = bw->checkpoint[t] =
                add_buffer(p, intern_f(m->c, "%s checkpoints", name), p->compute, poly_mul(m, b, n), true,
                           false);
            p->buffers.data[f->checkpoint[t]].per_steps = p->interval;
            if (uses_dinit(p, t))
                bw->carry[t] = add_buffer(p, intern_f(m->c, "d_%s0", name), p->compute, poly_mul(m, b, n),
                                          false, true);
            continue;
        }
        if (m->tensors.data[t].chunk && p->own_ends)
            continue;
        f->initial[t] = bw->initial[t] =
            add_buffer(p, intern_f(m->c, "%s0", name), p->compute, poly_mul(m, b, n), true, true);
        if (!p->own_ends)
            bw->carry[t] = add_buffer(p, intern_f(m->c, "d_%s carried", name), p->compute,
                                      poly_mul(m, poly_const(m, 2), poly_mul(m, b, n)), false, true);
    }
    for (NodeId id = 0; id < p->n_nodes; id++) {
        TensorId t = state_before(p, id);
        Program *f = &p->program[FORWARD], *bw = &p->program[BACKWARD];
        if (t < 0)
            continue;
        if (f->before[t] < 0)
            f->before[t] = bw->before[t] =
                add_buffer(p, intern_f(m->c, "%s before each step", m->tensors.data[t].name), plan_operand_type(p),
                           poly_mul(m, bt, tensor_elements(m, t)), true, true);
        for (int d = 0; d < 2; d++)
            p->program[d].node[id] = (Storage){ .home = HOME_RESERVE, .slot = f->before[t], .batched = true,
                                                .timed = true, .dtype = plan_operand_type(p) };
    }
}

void tensor_storage(Plan *p, Program *pr)
{
    Module *m = p->m;
    CallArgs args = pr->dir == FORWARD ? forward_arguments(m) : backward_arguments(m);
    pr->tensor = plan_alloc(p, sizeof *pr->tensor, m->tensors.len);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        Storage *st = &pr->tensor[t];
        int arg = -1;
        if (x->kind == T_INPUT || x->kind == T_PARAM)
            arg = call_arg_find(&args, t, ROLE_VALUE);
        else if (x->kind == T_DOUT)
            arg = call_arg_find(&args, x->of, ROLE_D_OUT);
        else if (x->kind == T_HISTORY)
            arg = call_arg_find(&args, t, ROLE_VALUE);
        else if (x->kind == T_DHISTORY)
            arg = call_arg_find(&args, x->of, ROLE_D_FINAL);
        if (arg < 0)
            continue;
        bool rows = tensor_per_step(x);
        *st = (Storage){ .home = HOME_ARG, .arg = arg, .batched = x->kind != T_PARAM,
                         .timed = rows, .dtype = x->dtype };
    }
}

/* Roots that are arguments of the call lie there. */
void root_storage(Plan *p, Program *pr)
{
    Module *m = p->m;
    CallArgs args = pr->dir == FORWARD ? forward_arguments(m) : backward_arguments(m);
    for (NodeId id = 0; id < p->n_nodes; id++) {
        TensorId of;
        RootKind k = at(p, id)->kind == N_ARRAY ? root_kind(m, id, &of) : ROOT_NONE;
        bool forward = k == ROOT_OUTPUT, backward = k == ROOT_DINPUT || k == ROOT_DPARAM ||
                       k == ROOT_DPARAM_INIT || k == ROOT_DPAST;
        if (!(pr->dir == FORWARD ? forward : backward))
            continue;
        int arg = call_arg_find(&args, of, ROLE_VALUE);
        if (backward)
            arg = call_arg_find(&args, of, ROLE_D_VALUE);
        if (arg < 0)
            continue;                         /* a walk beside the module takes it */
        unsigned dep = rows_dep(p, id);
        pr->node[id] = (Storage){ .home = HOME_ARG,
                                  .arg = arg,
                                  .batched = dep & DEP_BATCH,
                                  .timed = dep & DEP_TIME,
                                  .dtype = backward ? gradient_type(m, of) : m->tensors.data[of].dtype };
    }
}

/* Is a state read behind the steps, of which the walk of a scan keeps nothing otherwise? */
static bool state_behind(const Phasing *s, TensorId state)
{
    for (NodeId id = 0; id < s->p->n_nodes; id++)
        for (int i = 0; s->needed[id] && s->g->phase[id] != PHASE_DURING && i < s->uses[id].len; i++)
            if (s->uses[id].data[i].read.is_tensor && s->uses[id].data[i].read.id == state)
                return true;
    return false;
}

/* Does backward read a state of forward's as it was, not a product's copy of it? */
static bool read_by_backward(const Phasing *b, TensorId state, const bool *wanted)
{
    const Plan *p = b->p;
    if (wanted[p->m->roots.data[state].next])
        return true;
    for (NodeId id = 0; id < p->n_nodes; id++)
        for (int i = 0; b->needed[id] && !copies_state(p, id) && i < b->uses[id].len; i++)
            if (b->uses[id].data[i].read.is_tensor && b->uses[id].data[i].read.id == state)
                return true;
    return false;
}

/* Does anything behind backward's walk read the states before each step? */
static bool read_behind_walk(const Phasing *b, TensorId state)
{
    const Program *pr = &b->p->program[BACKWARD];
    for (NodeId id = 0; id < b->p->n_nodes; id++)
        for (int i = 0; b->needed[id] && pr->phase[id] == PHASE_AFTER && i < b->uses[id].len; i++)
            if (b->uses[id].data[i].read.is_tensor && b->uses[id].data[i].read.id == state)
                return true;
    return false;
}

/* With steps, the states after each step are kept: the next step reads them, and backward may, which is why all of them
 * are kept then. On the chip they are kept for what reads them behind backward's walk only. */
void next_storage(Plan *p, const Phasing *s, const Phasing *backward, const bool *wanted)
{
    bool on_chip = p->schedule->on_chip;
    for (TensorId t = 0; t < p->m->tensors.len; t++)
        if (s->g->dir == FORWARD && p->m->roots.data[t].next >= 0 &&
            (!on_chip || read_behind_walk(backward, t)))
            give_storage(p, &p->program[FORWARD], p->m->roots.data[t].next,
                         on_chip || p->schedule->per_unit || read_by_backward(backward, t, wanted),
                         !on_chip && (!p->schedule->per_unit || state_behind(s, t)));
}

/* In backward the reserve has all rows of what it has, and its rings are forward's. */
static void end_ring(Plan *p, const Program *pr, const Storage *st)
{
    if ((st->home == HOME_WORKSPACE || (st->home == HOME_RESERVE && pr->dir == FORWARD)) && st->slot >= 0)
        p->buffers.data[st->slot].ring = 0;
}

/* What is read or written beside the steps needs all of its rows. */
static void end_rings(Plan *p, const Phasing *s)
{
    Module *m = p->m;
    Program *pr = &p->program[s->g->dir];
    bool *beside = plan_alloc(p, 1, p->n_nodes);
    for (NodeId id = p->n_nodes - 1; id >= 0; id--) {
        beside[id] |= pr->phase[id] != PHASE_DURING;
        if (p->kept && p->kept[id])
            end_ring(p, pr, &pr->node[id]); /* a walk beside the module reads it */
        if (!s->needed[id] || !beside[id])
            continue;
        end_ring(p, pr, &pr->node[id]);
        for (int i = 0; i < s->uses[id].len; i++) {
            const Read *r = &s->uses[id].data[i].read;
            if (!r->is_tensor && pr->node[r->id].home == HOME_NONE)
                beside[r->id] = true;                     /* it is printed there */
            else if (!r->is_tensor)
                end_ring(p, pr, &pr->node[r->id]);
            else if (pr->dir == FORWARD && m->tensors.data[r->id].kind == T_STATE &&
                     m->roots.data[r->id].next >= 0)
                end_ring(p, pr, &pr->node[m->roots.data[r->id].next]);
        }
    }
}

/* With steps, forward itself reads a state from the step before, and any other value of a step in that step
 * only. So they are kept for two steps, or one, except in the reserve: inference takes no memory for them that
 * grows with T. Backward has the adjoints of states by the parity of the step anyway. What products read or give has
 * all of its rows there. */
void find_rings(Plan *p, const Phasing *s)
{
    Program *pr = &p->program[s->g->dir];
    bool back = s->g->dir == BACKWARD;
    if (p->schedule->on_chip || (back && module_starts(p->m) >= 0))
        return;
    for (NodeId id = 0; id < p->n_nodes; id++) {
        const Storage *st = &pr->node[id];
        bool kept = st->home == HOME_WORKSPACE || st->home == HOME_RESERVE;
        if (!s->needed[id] || !kept || st->slot < 0 || !st->timed || pr->phase[id] != PHASE_DURING)
            continue;
        Buffer *b = &p->buffers.data[st->slot];
        if (back && (b->reserve || pr->in_products[id]))
            continue;
        bool state = root_kind(p->m, id, &(TensorId){ 0 }) == ROOT_NEXT || copies_state(p, id);
        int steps = state ? 2 : 1;
        if (!b->reserve || b->inference)
            b->ring = steps > b->ring ? steps : b->ring;
    }
    end_rings(p, s);
}
