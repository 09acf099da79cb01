/* plan_phase.c: when each value is computed. In come the arrays of a direction and what each reads; out goes the phase
 * of each one that is needed: once, before, during or after the walk over time. It is guaranteed that an array's
 * phase is no earlier than that of what it reads. */
#include "ir/marks.h"
#include "ir/conditions.h"
#include "plan_pass.h"

static bool is_plain(const Read *r)
{
    bool plain = !r->step;
    for (int i = 0; i < r->nmap && plain; i++)
        plain = ix_is_index(r->map[i], &(IndexId){ 0 });
    return plain;
}

/* What a value that is made where it is read reads there. */
static void read_there(const Plan *p, const Read *of, Uses *out)
{
    Module *m = p->m;
    const Uses inner = plan_uses(p, of->id);
    for (int k = 0; k < inner.len; k++) {
        Read r = inner.data[k].read;
        const IxExpr **map = arena_alloc(m->arena, sizeof *map * (size_t)(r.nmap + 1));
        for (int i = 0; i < r.nmap; i++)
            map[i] = ix_subst(m, r.map[i], at(p, of->id)->axes, of->map, of->nmap);
        r.map = map;
        vec_push(m->arena, out, ((Use){ r, is_plain(&r) }));
    }
}

static void collect(const Plan *p, NodeId id, Uses *out, Marks *seen)
{
    if (!marks_first(seen, id))
        return;
    Read r;
    if (plan_resolve(p, id, &r)) {
        if (!r.is_tensor && p->unstored && p->unstored[r.id])
            read_there(p, &r, out);
        else
            vec_push(p->m->arena, out, ((Use){ r, is_plain(&r) }));
        return;
    }
    const Node *n = at(p, id);
    if (n->kind == N_ARRAY || n->kind == N_VIEW) {      /* an alias of a number */
        NodeId array = n->kind == N_VIEW ? n->args[0] : id;
        collect(p, at(p, array)->args[0], out, seen);
        return;
    }
    for (int i = 0; i < n->nargs; i++)
        collect(p, n->args[i], out, seen);
}

Uses plan_uses(const Plan *p, NodeId array)
{
    Uses out = { 0 };
    if (p->table && p->table[array])
        return out;
    Marks *seen = marks_begin(p->m);
    collect(p, at(p, array)->args[0], &out, seen);
    marks_end(seen);
    return out;
}

bool carried_tensor(const Phasing *s, TensorId t)
{
    TensorKind k = s->p->m->tensors.data[t].kind;
    if (s->g->dir == FORWARD)
        return k == T_STATE;
    return k == T_DNEXT || (k == T_STATE && s->p->schedule->on_chip);
}

bool is_stored(const Phasing *s, NodeId array)
{
    return s->g->dir == BACKWARD && s->stored && s->stored[array];
}

bool in_walk(const Phasing *s, const Read *r)
{
    return r->is_tensor ? carried_tensor(s, r->id) : !is_stored(s, r->id) && s->g->phase[r->id] == PHASE_DURING;
}

static void need_array(Phasing *s, NodeId array, bool feeds)
{
    if (is_stored(s, array))
        return;
    if (s->needed[array] && (s->feeds[array] || !feeds))
        return;
    if (!s->needed[array])
        s->uses[array] = plan_uses(s->p, array);
    s->needed[array] = true;
    s->feeds[array] |= feeds;
    for (int i = 0; i < s->uses[array].len; i++)
        if (!s->uses[array].data[i].read.is_tensor)
            need_array(s, s->uses[array].data[i].read.id, feeds);
}

static void replay_array(Phasing *s, NodeId array)
{
    if (is_stored(s, array) || s->replayed[array])
        return;
    s->replayed[array] = true;
    Uses uses = plan_uses(s->p, array);
    for (int i = 0; i < uses.len; i++)
        if (!uses.data[i].read.is_tensor)
            replay_array(s, uses.data[i].read.id);
}

/* A gather is one read. */
bool plan_reduces(const Plan *p, NodeId array)
{
    NodeId body = at(p, array)->args[0];
    return at(p, body)->kind == N_REDUCE && !ir_gathers(p->m, body);
}

bool sums_over_batch(const Plan *p, NodeId array)
{
    const Node *r = at(p, at(p, array)->args[0]);
    for (int i = 0; r->kind == N_REDUCE && i < r->nbound; i++)
        if (r->bound[i] == IX_BATCH)
            return true;
    return false;
}

/* Of a complex state, without the axis of its parts. */
static int rank_of(const Plan *p, TensorId t)
{
    return p->m->tensors.data[t].rank - p->m->tensors.data[t].complex;
}

/* A value of the walk as large as a matrix state: reading it outside the walk would mean storing it at every
 * step. */
static bool reads_matrix(const Phasing *s, const Use *u)
{
    const Plan *p = s->p;
    if (s->state_rank < 2)
        return false;
    if (u->read.is_tensor)
        return carried_tensor(s, u->read.id) && rank_of(p, u->read.id) == s->state_rank;
    return s->g->phase[u->read.id] == PHASE_DURING && at(p, u->read.id)->naxes == s->state_rank;
}

/* An input's gradient that lays values of a step side by side. */
static bool lays_out(const Phasing *s, NodeId array)
{
    const Plan *p = s->p;
    Piece pieces[32];
    const Uses *uses = &s->uses[array];
    bool one = uses->len == 1 && !uses->data[0].read.is_tensor;
    return cat_pieces(p->m, one ? uses->data[0].read.id : array, true, pieces, 32) > 1;
}

/* Is each of its terms for one place of the axis alone, as the adjoint of what is read at constant places
 * is? */
static bool is_by_places(Module *m, NodeId id, IndexId axis)
{
    const Node *n = &m->nodes.data[id];
    const Poly *lo = poly_const(m, 0), *hi = m->indices.data[axis].extent;
    if (n->kind != N_MAP || (n->op != OP_ADD && n->op != OP_SELECT))
        return false;
    if (n->op == OP_ADD)
        return is_by_places(m, n->args[0], axis) && is_by_places(m, m->nodes.data[id].args[1], axis);
    return narrow_range(m, n->args[0], axis, &lo, &hi) && poly_sub(m, hi, lo) == poly_const(m, 1);
}

/* Copies of vectors are laid side by side: they are not the units of the step's kernels, which leave their
 * own values for it. */
static bool lays_copies(const Phasing *s, NodeId array)
{
    const Node a = *at(s->p, array);
    for (int i = 0; i + 1 < a.naxes; i++)
        if (is_by_places(s->p->m, a.args[0], a.axes[i]))
            return true;
    return false;
}

/* A read of a walk beside the module, or an operand's cotangent. */
static bool left_by_walk(const Phasing *s, TensorId t)
{
    const Tensor *x = &s->p->m->tensors.data[t];
    return s->g->dir == FORWARD ? x->kind == T_INPUT && x->chunk
                                : (x->kind == T_DOUT && s->p->m->tensors.data[x->of].chunk) ||
                                      (x->kind == T_DHISTORY && x->chunk);
}

bool plan_steps(const Plan *p)
{
    for (TensorId t = 0; t < p->m->tensors.len; t++)
        if (tensor_steps(&p->m->tensors.data[t]))
            return true;
    return false;
}

int plan_walk_count(const Plan *p)
{
    int n = p->m->levels + plan_steps(p);
    return n ? n : 1;
}

int plan_walk_place(const Plan *p, Direction dir, int level)
{
    if (level < 0)
        return dir == FORWARD ? 0 : p->m->levels;
    return dir == FORWARD ? level + plan_steps(p) : p->m->levels - 1 - level;
}

/* What stands behind so many walks. */
static Phase behind(const Phasing *s, int walks)
{
    return walks == 0          ? PHASE_BEFORE
           : walks == s->walks ? PHASE_AFTER
                               : (Phase)((int)PHASE_BETWEEN + walks - 1);
}

static int walks_before(const Phasing *s, Phase phase)
{
    return phase >= PHASE_BETWEEN ? (int)phase - (int)PHASE_BETWEEN + 1 : phase == PHASE_AFTER ? s->walks : 0;
}

/* Behind how many walks is there all that the array reads, but for what is of the steps' own? */
static int walks_read(const Phasing *s, NodeId array)
{
    const Plan *p = s->p;
    int most = 0;
    for (int i = 0; i < s->uses[array].len; i++) {
        const Read *r = &s->uses[array].data[i].read;
        int n = 0;
        if (!r->is_tensor) {
            n = is_stored(s, r->id) ? 0 : walks_before(s, s->g->phase[r->id]);
        } else if (p->m->tensors.data[r->id].kind == T_DINIT) {
            n = s->walks;
        } else if (left_by_walk(s, r->id)) {
            const Tensor *x = &p->m->tensors.data[r->id];
            const Tensor *of = x->kind == T_DOUT ? &p->m->tensors.data[x->of] : x;
            n = 1 + plan_walk_place(p, s->g->dir, of->level);
        }
        most = n > most ? n : most;
    }
    return most;
}

static Phase phase_of(const Phasing *s, NodeId array)
{
    const Plan *p = s->p;
    bool carried = false, matrix = false, other_step = false, last = false, held = false;
    const int read = walks_read(s, array), own = 1 + plan_walk_place(p, s->g->dir, -1);
    const Phase after = behind(s, read > own ? read : own);
    bool crosses = s->npar > 0 && crosses_blocks(s, array);
    const Uses *uses = &s->uses[array];
    for (int i = 0; i < uses->len; i++) {
        const Use *u = &uses->data[i];
        bool walks = in_walk(s, &u->read);
        carried |= walks;
        other_step |= walks && u->read.step;
        last |= u->read.is_tensor && p->m->tensors.data[u->read.id].kind == T_DHISTORY;
        matrix |= reads_matrix(s, u);
        held |= u->read.is_tensor && p->m->tensors.data[u->read.id].kind == T_STATE;
    }
    TensorId of;
    RootKind root = root_kind(p->m, array, &of);
    if ((s->feeds[array] && carried) || root == ROOT_NEXT || root == ROOT_DPREV)
        return PHASE_DURING;
    if (sums_over_batch(p, array))
        return PHASE_AFTER;
    if (!carried && read)
        return behind(s, read);
    if (!carried)
        return rows_dep(p, array) && root != ROOT_INIT ? PHASE_BEFORE : PHASE_PARAM;
    if (read >= own)
        return after;
    if (s->replayed[array])
        return PHASE_DURING;          /* the walk has it, and could not read what is written behind it */
    Gemm g;
    NodeId factor[2];
    if (other_step || last)
        return after; /* the walk has but one step; behind it all of them lie in memory */
    /* Forward on the chip leaves the states before each step to backward only. */
    if (held && p->schedule->on_chip && s->g->dir == FORWARD)
        return PHASE_DURING;
    bool product = contraction_of((Plan *)(uintptr_t)p, array, false, &g, factor);
    if (crosses && !matrix)
        return after; /* a block has its own values only */
    if (p->schedule->per_unit)        /* a thread's own, or behind the walk from what lies in memory */
        return p->schedule->takes_value(p, array) ? PHASE_DURING : after;
    /* Backward by steps, what products and sums read lies in memory for all steps, whatever its size. A sum that has a
     * kernel of its own is one kernel for all of them; others share a step's reads, or the kernel that has what they add.
     * Forward, inference keeps no steps. */
    bool apart = product || (plan_reduces(p, array) && !s->step_sums && !sums_step_elements(s, array));
    /* Beside a product of heads, one kernel may walk the steps; it has what is pointwise over the units only. */
    if (root == ROOT_DINPUT && s->g->dir == BACKWARD && s->heads_product && lays_out(s, array))
        return after;
    /* What a walk of heads is not made for is made of the states that it leaves in memory. */
    if (matrix && !(apart && !p->schedule->on_chip &&
                    (s->g->dir == BACKWARD || (product && p->schedule->adds_products))))
        return PHASE_DURING;
    if (plan_reduces(p, array) || product)
        return after;
    return s->g->dir == BACKWARD && !p->schedule->on_chip && lays_copies(s, array) ? after : PHASE_DURING;
}

/* What a walk beside the module takes, where it lies, once that is known. */
static void need_taken(Phasing *s, TensorId t)
{
    const Roots *of = &s->p->m->roots.data[t];
    NodeId root = s->p->m->tensors.data[t].kind == T_OUTPUT ? of->output : of->dinput;
    if (root < 0)
        return;
    if (!s->p->taken) {
        need_array(s, root, false);
        return;
    }
    const Read *r = &s->p->taken[t];
    if (!r->is_tensor)
        need_array(s, r->id, false);
}

static void need_roots(Phasing *s)
{
    Module *m = s->p->m;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        if (m->tensors.data[t].chunk && m->tensors.data[t].kind != T_STATE) {
            if ((s->g->dir == FORWARD) == (m->tensors.data[t].kind == T_OUTPUT))
                need_taken(s, t);
            continue;
        }
        if (s->g->dir == FORWARD) {
            if (m->roots.data[t].next >= 0)
                need_array(s, m->roots.data[t].next, true);
            if (m->roots.data[t].output >= 0)
                need_array(s, m->roots.data[t].output, false);
            if (m->roots.data[t].last >= 0)
                need_array(s, m->roots.data[t].last, false);
        } else {
            const Roots *of = &m->roots.data[t];
            const NodeId roots[] = { of->dinput, of->dparam, of->dparam_init, of->dpast };
            if (m->roots.data[t].dprev >= 0)
                need_array(s, m->roots.data[t].dprev, true);
            for (size_t k = 0; k < sizeof roots / sizeof *roots; k++)
                if (roots[k] >= 0)
                    need_array(s, roots[k], false);
        }
        if (m->roots.data[t].init >= 0 && !s->p->schedule->on_chip)
            need_array(s, m->roots.data[t].init, false);
        if (m->roots.data[t].next >= 0 && s->g->dir == BACKWARD && s->p->schedule->on_chip)
            replay_array(s, m->roots.data[t].next);
    }
}

void *plan_alloc(const Plan *p, size_t bytes, int n)
{
    return arena_alloc(p->m->arena, bytes * (size_t)(n + 1));
}

/* Has each step sums, other than products, that the next one depends on? */
static bool has_step_sums(const Phasing *s)
{
    Gemm g;
    NodeId factor[2];
    for (NodeId id = 0; id < s->p->n_nodes; id++)
        if (s->needed[id] && s->feeds[id] && plan_reduces(s->p, id) &&
            !contraction_of((Plan *)(uintptr_t)s->p, id, true, &g, factor))
            return true;
    return false;
}

bool plan_rematerialises(const Plan *p, const Program *pr, Phase reader, NodeId array)
{
    return p->rematerialised && p->rematerialised[array] && pr->dir == BACKWARD && reader == PHASE_AFTER;
}

/* A value is rematerialised where it is read: its readers read what that is made of. */
static void read_through(Phasing *s)
{
    const Plan *p = s->p;
    for (NodeId id = 0; id < p->n_nodes; id++) {
        Uses *uses = &s->uses[id];
        for (int i = 0; s->needed[id] && i < uses->len;) {
            const Read *r = &uses->data[i].read;
            if (r->is_tensor || !plan_rematerialises(p, s->g, s->g->phase[id], r->id)) {
                i++;
                continue;
            }
            Uses of = plan_uses(p, r->id);
            for (int j = 0; j < of.len; j++) {
                of.data[j].plain = false;
                vec_push(p->m->arena, uses, of.data[j]);
            }
            uses->data[i] = uses->data[--uses->len];
        }
    }
}

Uses *direction_uses(Plan *p, Direction dir)
{
    Phasing s = { .p = p, .g = &p->program[dir] };
    s.needed = plan_alloc(p, sizeof *s.needed, p->n_nodes);
    s.uses = plan_alloc(p, sizeof *s.uses, p->n_nodes);
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (s.g->phase && s.g->phase[id] != PHASE_NONE) {
            s.needed[id] = true;
            s.uses[id] = plan_uses(p, id);
        }
    read_through(&s);
    return s.uses;
}

Phasing phasing(Plan *p, Direction dir, const bool *stored)
{
    Program *g = &p->program[dir];
    int n = p->n_nodes;
    Phasing s = { .p = p, .g = g, .stored = stored, .walks = plan_walk_count(p) };
    g->dir = dir;
    g->phase = plan_alloc(p, sizeof *g->phase, n);
    s.needed = plan_alloc(p, sizeof *s.needed, n);
    s.feeds = plan_alloc(p, sizeof *s.feeds, n);
    s.replayed = plan_alloc(p, sizeof *s.replayed, n);
    s.uses = plan_alloc(p, sizeof *s.uses, n);
    for (TensorId t = 0; t < p->m->tensors.len; t++)
        if (p->m->tensors.data[t].kind == T_STATE && rank_of(p, t) > s.state_rank)
            s.state_rank = rank_of(p, t);
    if (p->schedule->blocks) {
        const Poly *extent[MAX_PARALLEL];
        s.npar = p->schedule->blocks(p->m, extent);
        s.heads = plan_alloc(p, sizeof *s.heads, n);
    }
    need_roots(&s);
    s.step_sums = has_step_sums(&s);
    s.heads_product = !p->schedule->on_chip && !p->schedule->per_unit && has_heads(&s);
    for (NodeId id = 0; id < n; id++)
        if (s.needed[id])
            g->phase[id] = plan_rematerialises(p, g, PHASE_AFTER, id) ? PHASE_AFTER : phase_of(&s, id);
    if (p->schedule->take)
        p->schedule->take(&s);
    read_through(&s);
    /* A rounded copy of a value of the walk is written by the walk. */
    for (NodeId id = 0; id < n; id++)
        if (s.needed[id] && p->rounded[id] && g->phase[id] == PHASE_AFTER && s.uses[id].len == 1 &&
            !s.uses[id].data[0].read.is_tensor && g->phase[s.uses[id].data[0].read.id] == PHASE_DURING)
            g->phase[id] = PHASE_DURING;
    return s;
}

bool stands_in_front(const Plan *p, const Program *forward, NodeId array)
{
    bool taken = p->schedule->on_chip && forward->taken && forward->taken[array];
    return forward->phase[array] == PHASE_BEFORE || taken;
}
