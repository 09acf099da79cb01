/* panel.c: which steps of schedule gemm one kernel can walk, and which steps need no other (schedule scan). In comes
 * a planned program; out goes, where the steps allow it, a Panel: the product of every step with its param held in
 * shared memory by the blocks of a cooperative launch (runtime/device/cell_device_panel.cuh), each of which owns some
 * units of the state, and the pointwise kernels in between as loops over the block's own units. Guaranteed: what a
 * block reads of another block is the product's one operand, and nothing else that a step computes; no block
 * overwrites what another still reads. The launch plan keeps the loop of kernels beside it, for devices that cannot
 * hold all blocks at once. */
#include "mutate.h"
#include "panel.h"

static const Node *at(const Plan *p, NodeId id)
{
    return &p->m->nodes.data[id];
}

/* Not by poly_div: the quotient that it makes of what cannot be divided is a condition of the call. */
int64_t panel_times(Module *m, const Poly *whole, const Poly *part)
{
    if (whole->nterms == 0 || part->nterms == 0)
        return 0;
    int64_t n = whole->terms[0].coef / part->terms[0].coef;
    return n > 0 && poly_mul(m, part, poly_const(m, n)) == whole ? n : 0;
}

bool panel_piece(Module *m, const IxExpr *linear, IndexId unit, const Poly *units, int64_t *piece)
{
    if (linear->nterms != 1 || linear->terms[0].kind != IA_INDEX || linear->terms[0].index != unit ||
        !linear->terms[0].coef->is_const || linear->terms[0].coef->value != 1)
        return false;
    *piece = 0;
    if (linear->offset->nterms == 0)
        return true;
    *piece = panel_times(m, linear->offset, units);
    return *piece > 0;
}

/* ---- what the pointwise kernels read ---- */

static bool own_units(const Plan *p, const Program *pr, const Panel *w, NodeId value, IndexId unit);

/* Does a block find what is read here at its own units, or is it no other block's work? */
static bool own_read(const Plan *p, const Program *pr, const Panel *w, const Read *r, IndexId unit)
{
    Module *m = p->m;
    int64_t piece;
    TensorKind kind = r->is_tensor ? m->tensors.data[r->id].kind : T_INPUT;
    bool stepwise = r->is_tensor ? kind == T_STATE || kind == T_DNEXT || kind == T_DINIT
                                 : pr->phase[r->id] == PHASE_DURING;
    if (!stepwise)
        return true;
    if (!panel_piece(m, read_linear(m, r), unit, w->units, &piece) || (!w->product && piece > 0))
        return false;
    if (r->is_tensor || pr->node[r->id].home != HOME_NONE || pr->group[r->id] >= 0)
        return true;
    return at(p, r->id)->naxes == 1 && own_units(p, pr, w, at(p, r->id)->args[0], at(p, r->id)->axes[0]);
}

static bool own_units(const Plan *p, const Program *pr, const Panel *w, NodeId value, IndexId unit)
{
    const Node n = *at(p, value);
    Read r;
    if (n.kind == N_REDUCE)
        return false;
    if (n.kind != N_MAP && plan_resolve(p, value, &r))
        return own_read(p, pr, w, &r, unit);
    for (int i = 0; i < n.nargs; i++)
        if (!own_units(p, pr, w, n.args[i], unit))
            return false;
    return true;
}

static bool takes_map(const Plan *p, const Program *pr, const Panel *w, const Group *g)
{
    if (g->naxes != 1 || g->axes[0] != w->units || !g->batched || (w->product && g->need.len && !g->always))
        return false;
    for (int i = 0; i < g->arrays.len; i++) {
        const Node *a = at(p, g->arrays.data[i]);
        if (!own_units(p, pr, w, a->args[0], a->axes[0]))
            return false;
    }
    return true;
}

/* ---- the product ---- */

static const Storage *storage_of(const Plan *p, const Program *pr, const Read *r)
{
    const Storage *st = r->is_tensor ? &pr->tensor[r->id] : &pr->node[r->id];
    return st->home == HOME_NONE && !r->is_tensor ? &p->program[FORWARD].node[r->id] : st;
}

static bool is_one(const Poly *p)
{
    return p && p->is_const && p->value == 1;
}

/* The param on one side, a vector per sequence on the other, both in the storage type; rows and k made of whole
 * pieces. */
static bool takes_product(const Plan *p, const Program *pr, Panel *w, const Poly *units)
{
    Module *m = p->m;
    const Gemm *g = &w->product->gemm;
    bool left = g->a.read.is_tensor;
    const GemmSide *weight = left ? &g->a : &g->b, *vector = left ? &g->b : &g->a;
    if (g->batch || !weight->read.is_tensor || vector->read.is_tensor ||
        m->tensors.data[weight->read.id].kind != T_PARAM || m->tensors.data[weight->read.id].dtype != p->dtype)
        return false;
    w->units = units;
    w->weight = weight->read.id;
    w->weight_offset = weight->offset;
    w->row_stride = left ? weight->row : weight->col;
    w->k_stride = left ? weight->col : weight->row;
    w->operand = vector->read.id;
    w->operand_offset = vector->offset;
    const Poly *rows = left ? g->m : g->n, *batch = left ? g->n : g->m;
    w->inner = (int)panel_times(m, g->k, units);
    w->outer = (int)panel_times(m, rows, units);
    const Storage *x = storage_of(p, pr, &vector->read);
    const Poly *pitch = poly_mul(m, poly_dim(m, ATOM_T), x->pitch ? x->pitch : array_elements(m, vector->read.id));
    const Poly *apart = left ? vector->col : vector->row, *along = left ? vector->row : vector->col;
    return batch == poly_dim(m, ATOM_B) && apart == pitch && is_one(along) && is_one(left ? g->c.row : g->c.col) &&
           w->inner >= 1 && w->outer >= 1 && w->inner <= 8 && w->outer <= 8 && g->c.offset->nterms == 0 &&
           x->batched && x->timed && x->dtype == p->dtype && (x->home == HOME_WORKSPACE || x->home == HOME_RESERVE);
}

/* A block may be a step ahead of another that still reads the operand: where inference keeps that of one step
 * only, it now keeps two. What a block writes at a step others read no more, since it has waited for their posts of
 * the step before, behind their products of the one before that. */
static void keep_operand(Plan *p, const Program *pr, const Panel *w)
{
    Buffer *b = &p->buffers.data[pr->node[w->operand].slot];
    if (pr->dir == FORWARD && b->ring == 1 && !mutate("one-operand"))
        b->ring = 2;
}

/* A copy of the state, which the step before has made. */
static bool made_before(const Plan *p, NodeId operand)
{
    Read r;
    return plan_resolve(p, at(p, operand)->args[0], &r) && r.is_tensor &&
           p->m->tensors.data[r.id].kind == T_STATE;
}

/* More units in a block are fewer blocks to wait for. A block of forward takes them until its rows fill 4 of the
 * tensor cores' tiles; backward's blocks divide k instead, so that each reads only its part of the operand, and
 * take 16, so that all clusters are resident (measured on an H200, LSTM 1024 backward: 2.2 ms with clusters of 4
 * and 16 units, 2.8 ms with 8 units and no cluster). */
static int own_of(const Panel *w)
{
    return w->inner > 1 || w->outer <= 2 ? 16 : 8;
}

static Panel *find(Plan *p, Program *pr)
{
    Panel *w = arena_alloc(p->m->arena, sizeof *w);
    *w = (Panel){ .outer = 0 };
    const Poly *units = NULL;
    for (int i = 0; i < pr->groups.len; i++) {
        Group *g = &pr->groups.data[i];
        if (g->phase != PHASE_DURING)
            continue;
        if (g->kind == G_MAP && g->naxes == 1)
            units = g->axes[0];
        else if (g->kind == G_GEMM && !w->product && g->arrays.len == 1 && g->need.len == 0)
            w->product = g;
        else
            return NULL;
    }
    if (!w->product || !units || !takes_product(p, pr, w, units))
        return NULL;
    for (int i = 0; i < pr->groups.len; i++) {
        const Group *g = &pr->groups.data[i];
        if (g->phase == PHASE_DURING && g->kind == G_MAP && !takes_map(p, pr, w, g))
            return NULL;
    }
    w->operand_ready = made_before(p, w->operand);
    w->own = own_of(w);
    w->split = w->inner;          /* a block that reads all pieces would read more than it multiplies */
    return w;
}

/* ---- scan ---- */

static Panel *find_scan(Plan *p, Program *pr)
{
    Panel *w = arena_alloc(p->m->arena, sizeof *w);
    *w = (Panel){ .operand = -1 };
    for (int i = 0; i < pr->groups.len; i++) {
        const Group *g = &pr->groups.data[i];
        if (g->phase != PHASE_DURING)
            continue;
        if (g->kind != G_MAP || g->naxes != 1)
            return NULL;
        w->units = w->units ? w->units : g->axes[0];
        if (!takes_map(p, pr, w, g))
            return NULL;
    }
    return w->units ? w : NULL;
}

static bool has_states_of(const Plan *p, const Poly *units)
{
    for (TensorId t = 0; t < p->m->tensors.len; t++)
        if (p->m->tensors.data[t].kind == T_STATE &&
            (p->m->tensors.data[t].rank != 1 || p->m->tensors.data[t].axes[0] != units ||
             p->program[FORWARD].before[t] >= 0 || p->program[BACKWARD].before[t] >= 0))
            return false;
    return true;
}

void scan_find(Plan *p)
{
    Panel *w[2];
    for (int d = 0; d < 2; d++) {
        w[d] = find_scan(p, &p->program[d]);
        if (!w[d] || !has_states_of(p, w[d]->units))
            return;
        w[d]->kernel = intern_f(p->m->c, "%s_%s_scan", p->m->name, d == FORWARD ? "fwd" : "bwd");
    }
    for (int d = 0; d < 2; d++)
        p->program[d].panel = w[d];
    p->schedule = SCHED_SCAN;
}

/* ---- gemm ---- */

void panel_find(Plan *p)
{
    if (p->schedule != SCHED_GEMM || (p->dtype != DT_BF16 && p->dtype != DT_F16))
        return;
    for (int d = 0; d < 2; d++) {
        Program *pr = &p->program[d];
        pr->panel = find(p, pr);
        if (!pr->panel)
            continue;
        Buffer posts = { .name = intern_f(p->m->c, "posts %d", d), .dtype = DT_I32, .inference = true,
                         .elements = poly_const(p->m, PANEL_POSTS) };
        vec_push(p->m->arena, &p->buffers, posts);
        keep_operand(p, pr, pr->panel);
        pr->panel->posts = p->buffers.len - 1;
        pr->panel->kernel = intern_f(p->m->c, "%s_%s_steps", p->m->name, d == FORWARD ? "fwd" : "bwd");
        buf_f(&p->reasons, "one kernel walks the %s steps where the device holds its blocks: %d units and %d rows of "
              "the product each\n", d == FORWARD ? "forward" : "backward", pr->panel->own,
              pr->panel->own * pr->panel->outer);
    }
}
