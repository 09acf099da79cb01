/* block.c: schedule block. It plans as steps does. A block walks all steps of one head of one
 * sequence (of the whole sequence, where there are no heads). In comes a plan whose steps are
 * pointwise kernels and reductions; out go, where no head reads what another makes and a head's
 * values fit into shared memory, a BlockWalk for each direction. Guaranteed: what a step's groups
 * make and others of the step read is in shared memory, or in memory that only the block's own
 * threads have written. The launch plan keeps the loop of kernels beside it. */
#include "block.h"

#include "ir/marks.h"
#include "plan/plan_pass.h"
#include "plan/reason.h"
#include "plan/split_sums.h"
#include "schedule/schedule.h"

typedef struct Look {
    Plan *p;
    const Program *pr;
    BlockWalk *w;
    int group; /* whose reads these are */
    const IndexId *axes; /* of the array that reads */
    int naxes;
    Marks *seen;
    bool *shared; /* per node: another group of the step reads it */
    bool *read_before; /* per tensor: its carried value is read */
    NodeId array; /* that is looked at */
    const Reason *why; /* it is not taken; the first one */
    bool no_room; /* but for the size of a head, it would be */
} Look;

static bool refuse(Look *o, const char *why)
{
    const Node *a = at(o->p, o->array);
    bool sum = plan_reduces(o->p, o->array);
    if (!o->why)
        o->why = reason_of(o->p->m, sum ? at(o->p, a->args[0]) : a, "%s", why);
    return false;
}

static bool is_step(const Group *g)
{
    return g->phase == PHASE_DURING;
}

static bool made_in_step(const Program *pr, NodeId id)
{
    return id >= 0 && pr->phase[id] == PHASE_DURING && pr->group[id] >= 0;
}

static bool is_own(const Look *o, const Read *r, int heads)
{
    for (int i = 0; i < heads; i++)
        if (i >= r->nmap || i >= o->naxes || r->map[i] != ix_index(o->p->m, o->axes[i]))
            return false;
    return true;
}

/* The axes of what is read that begin it and that the block has one place of. */
static int own_heads(const Look *o, const Read *r)
{
    int n = 0;
    while (n < o->w->nheads && is_own(o, r, n + 1))
        n++;
    return n;
}

static const Poly *axis_extent(const Plan *p, bool is_tensor, int id, int axis)
{
    return is_tensor ? p->m->tensors.data[id].axes[axis] : extent_of(p, at(p, id)->axes[axis]);
}

static int rank_of(const Plan *p, bool is_tensor, int id)
{
    return is_tensor ? p->m->tensors.data[id].rank : at(p, id)->naxes;
}

Held *block_held(BlockWalk *w, HeldKind kind, bool is_tensor, int id)
{
    for (int i = 0; i < w->held.len; i++) {
        Held *h = &w->held.data[i];
        if (h->kind == kind && h->is_tensor == is_tensor && h->id == id)
            return h;
    }
    return NULL;
}

static void note_param(Look *o, const Read *r)
{
    Held *h = block_held(o->w, HELD_PARAM, r->is_tensor, r->id);
    int heads = own_heads(o, r);
    if (h)
        h->heads = heads < h->heads ? heads : h->heads;
    else
        vec_push(o->p->m->arena, &o->w->held,
                 ((Held){ .kind = HELD_PARAM, .is_tensor = r->is_tensor, .id = r->id, .heads = heads }));
}

static void note_ahead(Look *o, const Read *r)
{
    bool own = is_own(o, r, o->w->nheads);
    for (int i = 0; i < o->w->ahead.len; i++) {
        Ahead *a = &o->w->ahead.data[i];
        if (a->is_tensor != r->is_tensor || a->id != r->id)
            continue;
        a->own &= own;
        return;
    }
    vec_push(o->p->m->arena, &o->w->ahead, ((Ahead){ .is_tensor = r->is_tensor, .own = own, .id = r->id }));
}

static bool takes_tensor(Look *o, const Read *r)
{
    const Module *m = o->p->m;
    const Tensor *t = &m->tensors.data[r->id];
    switch (t->kind) {
    case T_STATE:
        if (o->pr->dir == BACKWARD) {
            note_ahead(o, r);
            return true;
        }
        if (!made_in_step(o->pr, m->roots.data[r->id].next))
            return true;
        o->read_before[r->id] = true;
        return is_own(o, r, o->w->nheads);
    case T_DNEXT:
        o->read_before[t->of] = true;
        return made_in_step(o->pr, m->roots.data[t->of].dprev) && is_own(o, r, o->w->nheads);
    case T_DINIT:
    case T_HISTORY:
    case T_DHISTORY: return false;
    case T_PARAM: note_param(o, r); return true;
    default: note_ahead(o, r); return true;
    }
}

static bool takes(void *of, const Read *r)
{
    Look *o = of;
    if (r->step)
        return false;
    if (r->is_tensor)
        return takes_tensor(o, r);
    if (o->pr->phase[r->id] != PHASE_DURING) {
        if (o->pr->phase[r->id] == PHASE_PARAM && o->pr->node[r->id].home != HOME_NONE)
            note_param(o, r);
        else
            note_ahead(o, r);
        return true;
    }
    if (!is_own(o, r, o->w->nheads))
        return false;
    if (o->pr->group[r->id] >= 0) {
        o->shared[r->id] |= o->pr->group[r->id] != o->group;
        return true;
    }
    if (o->pr->node[r->id].home != HOME_NONE)
        return false; /* pieces that are laid together */
    if (!marks_first(o->seen, r->id))
        return true;
    Look inside = *o;
    inside.axes = at(o->p, r->id)->axes;
    inside.naxes = at(o->p, r->id)->naxes;
    return every_read(o->p, at(o->p, r->id)->args[0], takes, &inside);
}

static bool known(const Plan *p, const IndexId *axes, int from, int n)
{
    for (int i = from; i < n; i++)
        if (!extent_of(p, axes[i])->is_const)
            return false;
    return true;
}

static int64_t elements(const Plan *p, const IndexId *axes, int from, int n)
{
    int64_t all = 1;
    for (int i = from; i < n; i++)
        all *= extent_of(p, axes[i])->value;
    return all;
}

/* Is the array made for one head at a time, of what its block has? */
static bool takes_array(Look *o, NodeId id)
{
    static const char no_size[] =
        "an axis of a step's value, behind the heads, has a size that only the call says; bind it";
    static const char heads[] = "a step makes a value of several heads, or one that has no heads";
    const Plan *p = o->p;
    const Node a = *at(p, id);
    NodeId value = a.args[0];
    o->array = id;
    if (a.naxes < o->w->nheads)
        return refuse(o, heads);
    for (int i = 0; i < o->w->nheads; i++)
        if (extent_of(p, a.axes[i]) != o->w->head[i])
            return refuse(o, heads);
    if (!known(p, a.axes, o->w->nheads, a.naxes) || a.naxes > HELD_AXES)
        return refuse(o, no_size);
    int64_t terms = elements(p, a.axes, o->w->nheads, a.naxes);
    o->w->elements = terms > o->w->elements ? terms : o->w->elements;
    if (plan_reduces(p, id)) {
        const Node r = *at(p, value);
        for (int i = 0; i < r.nbound; i++)
            if (r.bound[i] < IX_FIRST)
                return refuse(o, "a step sums over sequences");
        if (!known(p, r.bound, 0, r.nbound))
            return refuse(o, no_size);
        terms *= elements(p, r.bound, 0, r.nbound);
        value = r.args[0];
    }
    o->w->terms += terms;
    o->axes = a.axes;
    o->naxes = a.naxes;
    o->seen = marks_begin(p->m);
    bool all = every_read(p, value, takes, o);
    marks_end(o->seen);
    return all || refuse(o, "a step's value is made of another head's, or of another step's");
}

static bool takes_group(Look *o, const Group *g)
{
    o->array = g->arrays.data[0];
    if (g->kind == G_GEMM)
        return refuse(o, "its step has a product with what all sequences share, which is no block's own");
    bool kind =
        g->kind == G_MAP || (g->kind == G_ROW && !g->past && !g->pass && !g->sums && !g->unless_walked);
    if (!kind || !g->batched || g->naxes < o->w->nheads || (g->along && g->along <= o->w->nheads))
        return refuse(o, "a kernel of its step goes over several heads or steps");
    for (int i = 0; i < g->arrays.len; i++)
        if (!takes_array(o, g->arrays.data[i]))
            return false;
    return true;
}

/* Does a kernel beside the step's read it in memory? */
static bool read_elsewhere(const Plan *p, const Program *pr, int key)
{
    for (int i = 0; i < pr->groups.len; i++)
        if (!is_step(&pr->groups.data[i]) && group_reads(&pr->groups.data[i], key))
            return true;
    (void)p;
    return false;
}

/* Rows of more than one element begin at odd numbers of banks, so that threads may take a column
 * too. */
static bool lay_out(const Plan *p, Held *h)
{
    h->rank = rank_of(p, h->is_tensor, h->id);
    h->elements = 1;
    h->turns = h->kind == HELD_CARRIED || h->kind == HELD_AHEAD ? 2 : 1;
    if (h->rank > HELD_AXES)
        return false;
    for (int i = h->rank - 1; i >= h->heads; i--) {
        const Poly *e = axis_extent(p, h->is_tensor, h->id, i);
        if (!e->is_const || e->value > TARGET_BLOCK_BYTES)
            return false;
        h->extent[i] = e->value;
        h->stride[i] = h->elements;
        h->elements *= i == h->rank - 1 && i > h->heads ? e->value | 1 : e->value;
        if (h->elements > TARGET_BLOCK_BYTES)
            return false;
    }
    return true;
}

static int64_t bytes_of(const Plan *p, const Held *h)
{
    return (h->turns * h->elements * (p->compute == DT_F64 ? 8 : 4) + 15) / 16 * 16;
}

/* Params that are read once in a step by whoever multiplies them stay where they are when room is
 * short. */
static void take_params(const Plan *p, BlockWalk *w)
{
    int n = 0;
    for (int i = 0; i < w->held.len; i++) {
        Held h = w->held.data[i];
        Dtype type = h.is_tensor ? p->m->tensors.data[h.id].dtype : DT_F32;
        if (type == DT_I32 || !lay_out(p, &h) || h.rank == 0 ||
            w->bytes + bytes_of(p, &h) > TARGET_BLOCK_BYTES / 2)
            continue;
        w->bytes += bytes_of(p, &h);
        w->held.data[n++] = h;
    }
    w->held.len = n;
}

const Storage *block_storage(const Plan *p, const Program *pr, bool is_tensor, int id)
{
    if (is_tensor && p->m->tensors.data[id].kind == T_STATE)
        return &p->program[FORWARD].node[p->m->roots.data[id].next];
    return is_tensor ? &pr->tensor[id] : &pr->node[id];
}

/* A row of each step, that of the block's heads in one piece. */
static bool comes_ahead(const Plan *p, const Program *pr, const BlockWalk *w, const Ahead *a)
{
    const Storage *st = block_storage(p, pr, a->is_tensor, a->id);
    if (!a->own || !st->timed || !st->batched || st->pitch || st->alias_offset || st->home == HOME_NONE ||
        st->dtype == DT_I32)
        return false;
    for (int i = 0; i < rank_of(p, a->is_tensor, a->id); i++) {
        const Poly *e = axis_extent(p, a->is_tensor, a->id, i);
        if (i >= w->nheads ? !e->is_const : e != w->head[i])
            return false;
    }
    return rank_of(p, a->is_tensor, a->id) >= w->nheads;
}

static void take_ahead(const Plan *p, const Program *pr, BlockWalk *w)
{
    int n = 0;
    for (int i = 0; i < w->ahead.len; i++) {
        Ahead a = w->ahead.data[i];
        Held h = { .kind = HELD_AHEAD, .is_tensor = a.is_tensor, .id = a.id, .heads = w->nheads };
        if (!comes_ahead(p, pr, w, &a))
            continue;
        bool room =
            lay_out(p, &h) && w->bytes + bytes_of(p, &h) <= BLOCK_AHEAD && h.elements <= 8 * w->threads;
        if (room) {
            w->bytes += bytes_of(p, &h);
            vec_push(p->m->arena, &w->held, h);
        } else {
            w->ahead.data[n++] = a;
        }
    }
    w->ahead.len = n;
}

static TensorId carried_as(const Plan *p, const Program *pr, NodeId id)
{
    TensorId of = -1;
    RootKind root = root_kind(p->m, id, &of);
    return root == (pr->dir == FORWARD ? ROOT_NEXT : ROOT_DPREV) ? of : -1;
}

static bool hold(Look *o, NodeId id)
{
    const Plan *p = o->p;
    const Storage *st = &o->pr->node[id];
    TensorId state = carried_as(p, o->pr, id);
    bool carried = state >= 0 && o->read_before[state];
    o->array = id;
    if (carried && p->m->tensors.data[state].rank != at(p, id)->naxes)
        return refuse(o, "a state is complex");
    if (!carried && (!o->shared[id] || st->dtype != p->compute))
        return true;
    Held h = { .kind = carried ? HELD_CARRIED : HELD_VALUE, .id = id, .state = state, .heads = o->w->nheads };
    h.in_memory = read_elsewhere(p, o->pr, id) || (state >= 0 && read_elsewhere(p, o->pr, ~state)) ||
                  st->pitch || st->alias_offset || (st->home != HOME_WORKSPACE && st->home != HOME_RESERVE);
    bool fits = lay_out(p, &h);
    o->w->bytes += fits ? bytes_of(p, &h) : 0;
    vec_push(p->m->arena, &o->w->held, h);
    o->no_room = !fits || o->w->bytes > TARGET_BLOCK_BYTES;
    return !o->no_room ||
           refuse(o, "a head's values of a step take more shared memory than a block has");
}

/* Where there is room, values of two steps take turns. */
static void take_turns(const Plan *p, BlockWalk *w)
{
    int64_t more = 0;
    for (int i = 0; i < w->held.len; i++)
        more += w->held.data[i].kind == HELD_VALUE ? bytes_of(p, &w->held.data[i]) : 0;
    if (w->bytes + more > BLOCK_TURNS)
        return;
    for (int i = 0; i < w->held.len; i++) {
        Held *h = &w->held.data[i];
        w->bytes -= bytes_of(p, h);
        h->turns = h->kind == HELD_VALUE ? 2 : h->turns;
        w->bytes += bytes_of(p, h);
    }
}

/* The sums of all steps, where there is still room: else each step adds to memory. */
static void take_sums(const Plan *p, const Program *pr, BlockWalk *w)
{
    for (NodeId id = 0; p->summed && pr->dir == BACKWARD && id < p->n_nodes; id++) {
        Held h = { .kind = HELD_SUM, .id = id, .heads = w->nheads };
        if (!p->summed[id] || !lay_out(p, &h) || w->bytes + bytes_of(p, &h) > TARGET_BLOCK_BYTES)
            continue;
        w->bytes += bytes_of(p, &h);
        vec_push(p->m->arena, &w->held, h);
    }
}

static NodeId made_by(const Plan *p, const Program *pr, int key)
{
    if (key >= 0)
        return key;
    const Tensor *t = &p->m->tensors.data[~key];
    if (t->kind == T_DNEXT)
        return p->m->roots.data[t->of].dprev;
    return t->kind == T_STATE && pr->dir == FORWARD ? p->m->roots.data[~key].next : -1;
}

/* Does group i read what j makes; or (behind) make what j reads and keeps for one step only? */
static bool waits_for(const Plan *p, const Program *pr, BlockWalk *w, int i, int j, bool behind)
{
    const Group *reader = &pr->groups.data[behind ? j : i];
    for (int k = 0; k < reader->reads.len; k++) {
        NodeId id = made_by(p, pr, reader->reads.data[k]);
        if (id < 0 || pr->group[id] != (behind ? i : j))
            continue;
        const Held *h = block_held(w, HELD_CARRIED, false, id);
        h = h ? h : block_held(w, HELD_VALUE, false, id);
        if (!behind || !h || h->turns == 1)
            return true;
    }
    return false;
}

/* The barriers of a step: in front of a group that reads what was made since the one before, in
 * this step or the last. */
static void find_waits(const Plan *p, const Program *pr, BlockWalk *w)
{
    int *since = plan_alloc(p, sizeof *since, 2 * pr->groups.len), n = 0;
    w->waits = plan_alloc(p, 1, pr->groups.len);
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < pr->groups.len; i++) {
            if (!is_step(&pr->groups.data[i]))
                continue;
            if (n == 0 && turn == 0)
                w->waits[i] = true; /* for what comes ahead */
            for (int k = 0; k < n; k++)
                w->waits[i] |=
                    waits_for(p, pr, w, i, since[k], false) || waits_for(p, pr, w, i, since[k], true);
            if (w->waits[i])
                n = 0;
            since[n++] = i;
        }
}

/* Do all states begin with the axes of the heads? */
static bool state_heads(const Plan *p, BlockWalk *w)
{
    bool first = true;
    for (TensorId t = 0; t < p->m->tensors.len; t++) {
        const Tensor *x = &p->m->tensors.data[t];
        if (x->kind != T_STATE)
            continue;
        if (x->rank < w->nheads)
            return false;
        for (int i = 0; i < w->nheads; i++) {
            if (!first && x->axes[i] != w->head[i])
                return false;
            w->head[i] = x->axes[i];
        }
        first = false;
    }
    return !first;
}

static bool take_all(Look *o)
{
    const Program *pr = o->pr;
    for (int i = 0; i < pr->groups.len; i++) {
        o->group = i;
        if (is_step(&pr->groups.data[i]) && !takes_group(o, &pr->groups.data[i]))
            return false;
    }
    take_params(o->p, o->w);
    for (int i = 0; i < pr->groups.len; i++)
        for (int k = 0; is_step(&pr->groups.data[i]) && k < pr->groups.data[i].arrays.len; k++)
            if (!hold(o, pr->groups.data[i].arrays.data[k]))
                return false;
    return true;
}

static bool is_held_alone(void *of, NodeId id)
{
    const Held *h = block_held(of, HELD_VALUE, false, id);
    return h && !h->in_memory;
}

static int threads_for(const BlockWalk *w)
{
    int threads = BLOCK_THREADS_LEAST;
    while (threads < BLOCK_THREADS_MOST && threads * 2 <= w->elements)
        threads *= 2;
    return threads;
}

/* Of its heads no fewer arrays would be read. */
static bool pointers_suffice(Look *o)
{
    o->no_room = walk_pointers(o->p, o->pr, is_held_alone, o->w) > MAX_POINTERS;
    return !o->no_room || refuse(o, "a step has more arrays in memory than one kernel takes");
}

static BlockWalk *try_heads(Plan *p, const Program *pr, int nheads, const Reason **why, bool *no_room)
{
    BlockWalk *w = plan_alloc(p, sizeof *w, 1);
    w->nheads = nheads;
    Look o = { .p = p, .pr = pr, .w = w };
    o.shared = plan_alloc(p, 1, p->m->nodes.len);
    o.read_before = plan_alloc(p, 1, p->m->tensors.len);
    if (!state_heads(p, w))
        return NULL;
    if (!take_all(&o) || !pointers_suffice(&o)) {
        *why = o.why;
        *no_room = o.no_room;
        return NULL;
    }
    w->threads = threads_for(w);
    take_turns(p, w);
    take_ahead(p, pr, w);
    take_sums(p, pr, w);
    find_waits(p, pr, w);
    return w;
}

static bool any_step(const Program *pr)
{
    for (int i = 0; i < pr->groups.len; i++)
        if (is_step(&pr->groups.data[i]))
            return true;
    return false;
}

/* Of as many heads as may be, since each has a block, but with some elements for its threads. NULL:
 * it has one, or needs none; else why not. */
static const Reason *find(Plan *p, Program *pr)
{
    const Reason *why = NULL;
    bool no_room = false;
    if (!any_step(pr))
        return NULL;
    for (int n = MAX_PARALLEL; n >= 0 && !no_room; n--) { /* of fewer heads a block has no room either */
        BlockWalk *w = try_heads(p, pr, n, &why, &no_room);
        pr->walks = w ? w : pr->walks;
        if (w && w->elements >= BLOCK_ELEMENTS)
            break;
    }
    return pr->walks ? NULL : why;
}

/* A sum of matrices over sequences and steps is in two: a block makes each step's part, of what it has in
 * shared memory, if that is no more than the matrices that memory would have to keep. */
static bool rewrites(Module *m)
{
    enum { SIZES = 32 };
    int64_t on_chip[SIZES + 1] = { 0 };
    SplitSums s = { .m = m, .on_chip = on_chip, .compact = true };
    int n = 0;
    s.npar = parallel_of_states(m, s.par_extent);
    for (TensorId t = 0; s.npar >= 0 && t < m->tensors.len; t++)
        for (int i = s.npar; m->tensors.data[t].kind == T_STATE && i < m->tensors.data[t].rank; i++)
            if (n < SIZES)
                on_chip[n++] = m->tensors.data[t].axes[i]->value;
    return s.npar >= 0 && split_sums(&s);
}

/* A product of many terms is better a product, of all sequences. */
static const Reason *has_many_terms(const Plan *p)
{
    for (int d = 0; d < 2; d++) {
        const BlockWalk *w = block_walk(&p->program[d]);
        if (w && w->terms > BLOCK_PRODUCT_TERMS)
            return reason(p->m,
                          "its step has products with what all sequences share, and the sums of a %s step of "
                          "a head have %lld terms, more than %d",
                          d == FORWARD ? "forward" : "backward", (long long)w->terms, BLOCK_PRODUCT_TERMS);
    }
    return NULL;
}

static Verdict settle(Plan *p)
{
    const Reason *why =
        module_starts(p->m) >= 0 ? reason(p->m, "packed sequences") : find(p, &p->program[FORWARD]);
    if (!why)
        why = find(p, &p->program[BACKWARD]);
    if (!why && p->adds_products && !p->request->schedule)
        why = has_many_terms(p);
    for (int d = 0; why && d < 2; d++)
        p->program[d].walks = NULL;
    return (Verdict){ .why = why };
}

static void find_walks(Plan *p)
{
    for (int d = 0; d < 2; d++) {
        Program *pr = &p->program[d];
        BlockWalk *w = pr->walks;
        if (!w)
            continue;
        w->kernel = intern_f(p->m->c, "%s_%s_block", p->m->name, d == FORWARD ? "fwd" : "bwd");
        pr->one_kernel = true;
        buf_f(
            &p->reasons,
            "one kernel walks the %s steps: a block for each %s, which has a step's values in %lld bytes of "
            "shared memory\n",
            d == FORWARD ? "forward" : "backward", w->nheads ? "head of each sequence" : "sequence",
            (long long)w->bytes);
    }
}

/* ---- its form ---- */

static void forms(const Plan *p, const Program *pr, FormList *out)
{
    Module *m = p->m;
    const BlockWalk *w = block_walk(pr);
    if (!w)
        return;
    const Poly *heads = poly_dim(m, ATOM_B);
    for (int i = 0; i < w->nheads; i++)
        heads = poly_mul(m, heads, w->head[i]);
    const Formula *blocks = formula_size(m, heads);
    const Formula *when = formula(m, F_LE, formula_const(m, 1), formula_resident(m, w->kernel));
    if (w->terms > BLOCK_TERMS)
        when = formula_and(m, when, formula(m, F_LE, formula_const(m, BLOCK_HEADS), blocks));
    Form f = { .kernel = w->kernel,
               .refs = &w->refs,
               .words = "a block for each head",
               .when = when,
               .grid = blocks,
               .bytes = formula_const(m, w->bytes),
               .threads = w->threads };
    vec_push(m->arena, out, f);
}

const Schedule block_schedule = {
    .name = "block",
    .what = "a block has a head of a sequence, and walks all steps with its values on chip",
    .what_on_cpu = "kernels and products for each step",
    .plans_as_next = true,
    .adds_products = true,
    .sums_steps = true,
    .heads = true,
    .rewrites = rewrites,
    .settle = settle,
    .find_walks = find_walks,
    .print_walks = block_print,
    .forms = forms,
};
