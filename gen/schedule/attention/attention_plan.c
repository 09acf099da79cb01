/* attention_plan.c: schedule attention in the planner. In comes a plan of a module that was cut (cut.c); out
 * goes where operands, what is given and their gradients lie, and the buffers of the kernels. Guaranteed:
 * what a kernel takes lies in memory with one stride for each of its axes. */
#include "../../../runtime/cell_attention_sizes.h"
#include "attention_plan.h"
#include "emit/emit.h"
#include "ir/marks.h"
#include "plan/plan_pass.h"
#include "schedule/schedule.h"

const AttentionCuts *attention_cuts(const Module *m)
{
    return m->cut;
}

AttentionWalks *attention_walks(const Program *pr)
{
    return pr->beside;
}

/* ---- blocks */

int attention_padded(int n)
{
    return (n + 15) / 16 * 16;
}

int attention_memory(const Plan *p)
{
    return p->request->block_memory ? (int)p->request->block_memory : (int)CELL_ATTENTION_MOST_MEMORY;
}

/* APART_KEYS: those of a row from which on warps that only copy pay. Measured on an H100: causal, 8192 steps,
 * 64 elements 0.61 ms for 0.80, 128 elements 0.98 for 1.45; a window of 256 keys 0.18 for 0.13. Where more
 * than the product is in the score, registers do not hold it in narrow tiles (a table: 0.26 for 0.19). */
bool attention_apart(const AttentionCut *c)
{
    enum { APART_KEYS = 1024 };
    const Poly *n = c->form.distances;
    if (n->is_const && n->value < APART_KEYS)
        return false;
    return c->keys > CELL_ATTENTION_BOX || c->values > CELL_ATTENTION_BOX || attention_is_scaled(c);
}

bool attention_is_scaled(const AttentionCut *c)
{
    return c->scale >= 0 && c->form.kind == ATTENTION_SOFTMAX;
}

static cell_attention_shape shape_of(const Plan *p, const AttentionCut *c, AttentionKernel kernel)
{
    static const int of[] = {
        [ATTENTION_FORWARD] = CELL_ATTENTION_FORWARD, [ATTENTION_FEW] = CELL_ATTENTION_FEW,
        [ATTENTION_COMBINE] = CELL_ATTENTION_FEW,     [ATTENTION_DOTS] = CELL_ATTENTION_FORWARD,
        [ATTENTION_ROWS] = CELL_ATTENTION_BACK_ROWS,  [ATTENTION_KEYS] = CELL_ATTENTION_BACK_KEYS
    };
    return cell_attention_shape_of(of[kernel], dtype_bytes(p->dtype), attention_padded(c->keys),
                                   attention_padded(c->values), 0, attention_apart(c), attention_memory(p));
}

/* Has the kernel blocks of CELL_ATTENTION_DOTS_ROWS rows, which need no shared memory? */
static bool is_small(AttentionKernel kernel)
{
    return kernel == ATTENTION_DOTS || kernel == ATTENTION_COMBINE;
}

int64_t attention_smem(const Plan *p, const AttentionCut *c, AttentionKernel kernel)
{
    return is_small(kernel) ? 0 : shape_of(p, c, kernel).smem;
}

int attention_threads(const Plan *p, const AttentionCut *c, AttentionKernel kernel)
{
    return is_small(kernel) ? (int)CELL_ATTENTION_THREADS : shape_of(p, c, kernel).threads;
}

int attention_resident(const Plan *p, const AttentionCut *c, AttentionKernel kernel)
{
    return is_small(kernel) ? 0 : shape_of(p, c, kernel).resident;
}

int attention_own(const Plan *p, const AttentionCut *c, AttentionKernel kernel)
{
    return is_small(kernel) ? (int)CELL_ATTENTION_DOTS_ROWS : shape_of(p, c, kernel).own;
}

int attention_slabs(const Plan *p, const AttentionCut *c, AttentionKernel kernel)
{
    return is_small(kernel) ? 1 : shape_of(p, c, kernel).slabs;
}

int attention_copiers(const Plan *p, const AttentionCut *c, AttentionKernel kernel)
{
    return is_small(kernel) ? 0 : shape_of(p, c, kernel).copiers;
}

/* ---- where operands lie */

/* Is the read an element with a stride along each of the root's axes, of which the last `values` count as
 * one? */
static bool has_strides(const Plan *p, NodeId root, const Read *r, int values)
{
    Module *m = p->m;
    const Node *n = at(p, root);
    const Tensor *t = r->is_tensor ? &m->tensors.data[r->id] : NULL;
    const IxExpr *lin = read_linear(m, r);
    bool fits = !t || t->kind == T_PARAM || t->kind == T_DOUT || t->kind == T_HISTORY ||
                (t->kind == T_INPUT && !t->lengths);
    for (int k = 0; k < lin->nterms && fits; k++) {
        bool own = false;
        for (int i = 0; i < n->naxes; i++)
            own |= lin->terms[k].kind == IA_INDEX && lin->terms[k].index == n->axes[i];
        fits = own;
    }
    for (int i = n->naxes - values; i + 1 < n->naxes && fits; i++)
        fits = ix_coefficient(m, lin, n->axes[i]) ==
               poly_mul(m, ix_coefficient(m, lin, n->axes[i + 1]), extent_of(p, n->axes[i + 1]));
    return fits && !r->step;
}

/* A read of a step before the call by its place in the history, which is the root's first axis, as one of
 * the history itself. */
static Read of_history(Module *m, const Node *root, const Read *r)
{
    IndexId place = root->axes[0];
    const IxExpr *start = ix_index(m, IX_START), *one = ix_const(m, poly_const(m, 1));
    const IxExpr *before = ix_sub(m, ix_sub(m, start, one), ix_index(m, place));
    if (!r->step || r->past < 0)
        return *r;
    if (r->step != (m->tensors.data[r->past].grows ? ix_index(m, place) : before))
        return *r;
    Read h = { .is_tensor = true, .id = r->past, .nmap = r->nmap + 1, .past = -1 };
    int n = r->npast ? r->npast : r->nmap;
    const IxExpr **from = r->npast ? r->past_map : r->map;
    h.nmap = n + 1;
    h.map = arena_alloc(m->arena, sizeof *h.map * (size_t)(n + 2));
    h.map[0] = ix_index(m, place);
    for (int i = 0; i < n; i++)
        h.map[i + 1] = from[i];
    return h;
}

/* How many of the last axes of an operand are those of values. */
static int values_of(const Plan *p, TensorId t)
{
    const AttentionCuts *cuts = attention_cuts(p->m);
    for (int i = 0; i < cuts->len; i++) {
        const AttentionCut *c = &cuts->data[i];
        if (t == c->v.now || t == c->v.past || t == c->given)
            return c->form.ncolumns;
    }
    return 1;
}

/* Inside the branch that its steps take: a place behind the last one is not looked at. */
static NodeId without_guard(const Plan *p, NodeId root)
{
    const Node *body = at(p, at(p, root)->args[0]);
    return body->kind == N_MAP && body->op == OP_SELECT ? body->args[1] : at(p, root)->args[0];
}

static bool is_past(const Plan *p, TensorId t)
{
    const AttentionCuts *cuts = attention_cuts(p->m);
    for (int i = 0; i < cuts->len; i++) {
        const AttentionCut *c = &cuts->data[i];
        bool is = t == c->k.past || t == c->v.past;
        for (int k = 0; k < c->reads.len; k++)
            is |= t == c->reads.data[k].operand.past;
        if (is)
            return true;
    }
    return false;
}

static Read source_of(const Plan *p, TensorId t)
{
    NodeId root = between_root(p->m, t);
    Read r;
    bool past = is_past(p, t);
    if (plan_resolve(p, past ? without_guard(p, root) : root, &r)) {
        if (past)
            r = of_history(p->m, at(p, root), &r);
        if (has_strides(p, root, &r, values_of(p, t)) && (r.is_tensor || !(p->past && p->past[r.id])))
            return r;
    }
    return read_itself(p->m, root);
}

static void begin(Plan *p)
{
    between_sources(p, source_of);
}

/* ---- storage of what passes between the step and the kernels */

TensorId attention_cotangent(const Module *m, TensorId of)
{
    for (TensorId t = 0; of >= 0 && t < m->tensors.len; t++)
        if (m->tensors.data[t].kind == T_DOUT && m->tensors.data[t].of == of)
            return t;
    return -1;
}

bool attention_is_wanted(const Plan *p, TensorId t)
{
    const Program *back = &p->program[BACKWARD];
    return t >= 0 && (back->tensor[t].home != HOME_NONE || between_copy(p, back, t) >= 0);
}

bool attention_is_term(const Plan *p, const AttentionRead *r)
{
    return r->slope >= 0 && (attention_is_wanted(p, attention_cotangent(p->m, r->operand.now)) ||
                             attention_is_wanted(p, r->operand.d_past));
}

/* Backward wants y of a softmax, for dy . y. */
static bool is_kept(const Plan *p, TensorId given)
{
    const AttentionCuts *cuts = attention_cuts(p->m);
    for (int i = 0; i < cuts->len; i++)
        if (cuts->data[i].given == given)
            return cuts->data[i].form.kind == ATTENTION_SOFTMAX && p->m->roots.data[given].dinput >= 0;
    return false;
}

/* Are values along several axes, which may not follow one another in an argument? */
static bool is_of_axes(const Plan *p, TensorId t)
{
    return values_of(p, p->m->tensors.data[t].kind == T_DOUT ? p->m->tensors.data[t].of : t) > 1;
}

static bool is_key_or_value(const Plan *p, TensorId of)
{
    const AttentionCuts *cuts = attention_cuts(p->m);
    for (int i = 0; i < cuts->len; i++)
        if (of == cuts->data[i].k.now || of == cuts->data[i].v.now)
            return true;
    return false;
}

/* Gradients of what is of the other step, which the CPU's kernels add up where they lie. */
static bool is_of_other_step(const Plan *p, TensorId of)
{
    const AttentionCuts *cuts = attention_cuts(p->m);
    bool is = is_key_or_value(p, of);
    for (int i = 0; i < cuts->len; i++)
        for (int k = 0; k < cuts->data[i].reads.len; k++) {
            const AttentionRead *r = &cuts->data[i].reads.data[k];
            is |= r->leaf.side == LEAF_KEY && of == r->operand.now;
        }
    return is;
}

/* A comparison of index expressions as one that is not negative where it holds; NULL: it is none. */
static const IxExpr *room_of(const Plan *p, NodeId condition)
{
    Module *m = p->m;
    const Node *n = at(p, condition);
    const IxExpr *side[2];
    if (n->kind != N_MAP || (n->op != OP_LE && n->op != OP_LT))
        return NULL;
    for (int i = 0; i < 2; i++) {
        const Node *x = at(p, n->args[i]);
        if (x->kind != N_INDEX && x->kind != N_SIZE)
            return NULL;
        side[i] = x->kind == N_INDEX ? x->ix : ix_const(m, x->size);
    }
    return ix_sub(m, ix_sub(m, side[1], side[0]), ix_const(m, poly_const(m, n->op == OP_LT)));
}

/* Does the condition say no more than that the place is one of so many? */
static bool is_inside(const Plan *p, NodeId condition, const IxExpr *place, const Poly *places)
{
    Module *m = p->m;
    const Node *n = at(p, condition);
    if (n->kind == N_MAP && n->op == OP_AND)
        return is_inside(p, n->args[0], place, places) && is_inside(p, n->args[1], place, places);
    const IxExpr *room = room_of(p, condition), *last = ix_const(m, poly_sub(m, places, poly_const(m, 1)));
    return room && (room == place || room == ix_sub(m, last, place));
}

/* What comes of the history that a call leaves is added to the gradients of its keys: the history's
 * cotangent at a place that the step says, where there is one. */
bool attention_more(const Plan *p, NodeId root, NodeId more, AttentionMore *out)
{
    Module *m = p->m;
    const Node *r = at(p, root), *n = at(p, more);
    const NodeId condition = n->kind == N_MAP && n->op == OP_SELECT ? n->args[0] : -1;
    if (condition >= 0 && (at(p, n->args[2])->kind != N_CONST || at(p, n->args[2])->value != 0))
        return false;
    n = condition >= 0 ? at(p, n->args[1]) : n;
    const Tensor *t = n->kind == N_LOAD ? &m->tensors.data[n->tensor] : NULL;
    if (!t || t->kind != T_DHISTORY || t->chunk || n->step || n->nmap != r->naxes + 1)
        return false;
    for (int i = 0; i < r->naxes; i++) {
        bool found = false;
        for (int k = 0; k < r->naxes; k++)
            found |= n->map[i + 1] == ix_index(m, r->axes[k]);
        if (!found)
            return false;
    }
    *out = (AttentionMore){ n->tensor, n->map, n->nmap, NULL, ix_coefficient(m, n->map[0], IX_TIME) };
    const IxExpr *start = ix_index(m, IX_START);
    const IndexId time = IX_TIME;
    out->first = ix_subst(m, n->map[0], &time, &start, 1);
    for (int i = 0; i < out->first->nterms; i++)
        if (out->first->terms[i].kind != IA_INDEX || out->first->terms[i].index != IX_START)
            return false;
    return out->by->is_const && (out->by->value == 1 || out->by->value == -1) &&
           (condition < 0 || is_inside(p, condition, n->map[0], t->axes[0]));
}

static bool attention_adds(const Plan *p, NodeId root, NodeId more)
{
    AttentionMore x;
    return !p->request->cpu && attention_more(p, root, more, &x);
}

static bool is_log(const Plan *p, TensorId t)
{
    const AttentionCuts *cuts = attention_cuts(p->m);
    for (int i = 0; i < cuts->len; i++)
        if (cuts->data[i].log == t)
            return true;
    return false;
}

/* What a sum gives: kept for backward, of an output as well, which only its caller has behind the call. */
static void place_given(Plan *p, const Phasing *f, const Phasing *b, TensorId t)
{
    Storage *to = &p->program[FORWARD].tensor[t], *back = &p->program[BACKWARD].tensor[t];
    const bool kept = between_is_read(b, t) || is_kept(p, t);
    if (is_log(p, t))
        *to = *back = between_storage(p, t, true, p->compute, kept);
    else if (is_of_axes(p, t) || !between_gives(p, f, t, NULL))
        *to = *back = between_storage(p, t, true, p->dtype, kept);
    else if (kept)
        *to = *back = between_kept(p, t, p->dtype);
    else
        *back = *to;
}

static void place(Plan *p, const Phasing *f, const Phasing *b, bool *wanted)
{
    Module *m = p->m;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        Program *back = &p->program[BACKWARD];
        if (x->kind == T_INPUT && x->chunk)
            place_given(p, f, b, t);
        if (x->kind == T_DOUT && m->tensors.data[x->of].chunk) {
            back->tensor[t] = (Storage){ .home = HOME_NONE };
            bool copied = is_of_axes(p, t) || (p->request->cpu && is_of_other_step(p, x->of));
            /* the kernels add to gradients of keys and of values only (print_more) */
            bool adds = is_key_or_value(p, x->of);
            if (between_is_read(b, t) && (copied || !between_gives(p, b, t, adds ? attention_adds : NULL)))
                back->tensor[t] = between_storage(p, t, true, p->compute, false);
        }
        if (x->kind == T_DHISTORY && x->chunk) {
            back->tensor[t] = (Storage){ .home = HOME_NONE };
            if (between_is_read(b, t))
                back->tensor[t] = between_storage(p, t, false, p->compute, false);
        }
        bool root = x->chunk && (x->kind == T_OUTPUT || (x->kind == T_INPUT && m->roots.data[t].dinput >= 0));
        if (!root || p->taken[t].is_tensor)
            continue;
        NodeId id = p->taken[t].id;
        bool forward = x->kind == T_OUTPUT || is_stored(b, id);
        if (forward)
            wanted[id] = true;
        give_storage(p, &p->program[forward ? FORWARD : BACKWARD], id, forward, true);
    }
}

/* ---- kernels */

static const char *name_of(const Plan *p, const AttentionWalks *all, const AttentionWalk *w, const char *what)
{
    Compiler *c = p->m->c;
    int i = (int)(w - all->data);
    const char *own = w->cut->form.name;
    const char *of = all->len == 1 ? "" : own ? intern_f(c, "_%s", own) : intern_f(c, "_%d", i);
    return intern_f(c, "%s_%s%s", p->m->name, what, of);
}

static int rows_buffer(Plan *p, const AttentionCut *c, const char *name, bool reserve)
{
    Module *m = p->m;
    const Poly *n = poly_mul(m, row_count(p, true, true), poly_mul(m, c->heads, c->group));
    return add_buffer(p, intern_f(m->c, name, m->tensors.data[c->given].name), p->compute, n, reserve,
                      !reserve);
}

static void add_walk(Plan *p, const Phasing *s)
{
    static const char *const names[] = { "fwd_attention",      "fwd_attention_few",  "fwd_attention_combine",
                                         "bwd_attention_dots", "bwd_attention_rows", "bwd_attention_keys",
                                         "bwd_attention" };
    const AttentionCuts *cuts = attention_cuts(p->m);
    if (s->g->dir == FORWARD)
        return;
    AttentionWalks *all = arena_alloc(p->m->arena, sizeof *all);
    all->data = arena_alloc(p->m->arena, sizeof *all->data * (size_t)(cuts->len + 1));
    all->len = cuts->len;
    for (int i = 0; i < cuts->len; i++) {
        AttentionWalk *w = &all->data[i];
        *w = (AttentionWalk){ .cut = &cuts->data[i], .sums = -1, .dots = -1, .parts = -1 };
        w->facts = name_of(p, all, w, "attention");
        for (AttentionKernel k = 0; k < ATTENTION_BACK && !p->request->cpu; k++)
            w->boxed |= shape_of(p, w->cut, k).boxed;
        for (int k = 0; k < ATTENTION_KERNELS; k++)
            w->kernel[k].name = name_of(p, all, w, names[k]);
        if (attention_has_kernel(w, ATTENTION_FEW) && !p->request->cpu) {
            w->parts = add_buffer(p, intern_f(p->m->c, "parts of %s", p->m->tensors.data[w->cut->given].name),
                                  p->compute, NULL, false, true);
            p->buffers.data[w->parts].bytes = attention_part_bytes(p, w->cut);
        }
        if (w->cut->form.kind != ATTENTION_SOFTMAX)
            continue;
        w->sums = rows_buffer(p, w->cut, "logarithms of %s", true);
        if (!p->request->cpu)
            w->dots = rows_buffer(p, w->cut, "d_%s . itself", false);
    }
    p->program[FORWARD].beside = p->program[BACKWARD].beside = all;
}

static bool has_tiles(const Program *pr)
{
    const AttentionWalks *all = attention_walks(pr);
    for (int i = 0; i < all->len; i++)
        if (all->data[i].boxed)
            return true;
    return false;
}

static void find_walks(Plan *p)
{
    const AttentionCuts *cuts = attention_cuts(p->m);
    for (int i = 0; i < cuts->len && !p->request->cpu; i++)
        for (AttentionKernel k = 0; k < ATTENTION_BACK; k++) {
            int64_t n = attention_smem(p, &cuts->data[i], k);
            p->block_memory = n > p->block_memory ? n : p->block_memory;
        }
}

static const Reason *cut(Module *m)
{
    AttentionCuts *cuts = arena_alloc(m->arena, sizeof *cuts);
    const Reason *why = attention_cut(m, cuts);
    if (!why)
        m->cut = cuts;
    return why;
}

static void join(Module *m)
{
    AttentionCuts *cuts = (AttentionCuts *)(uintptr_t)m->cut;
    attention_join_histories(m, cuts);
    attention_write_out(m, cuts);
}

/* ---- what it costs */

/* Operators on reals of an expression, each node once. */
static int operators(const Module *m, NodeId id, Marks *seen)
{
    const Node *n = &m->nodes.data[id];
    if (!marks_first(seen, id))
        return 0;
    int count = n->kind == N_MAP && n->type == TY_REAL && n->op != OP_SELECT && n->op != OP_STOP;
    for (int i = 0; i < n->nargs; i++)
        count += operators(m, n->args[i], seen);
    return count;
}

/* Of each pair of a step and a place of the sum, those that conditions exclude among them. Forward: q . k,
 * the score, its exponential and what goes with that, the weight times the value. Backward: the product with q
 * and that of dy with the value twice, for rows and for keys; from these, gradients of q, k and v. */
static const Poly *walk_flops(const Plan *p, const Program *pr)
{
    enum { SOFTMAX = 4, ADJOINT = 8 };
    Module *m = p->m;
    const AttentionCuts *cuts = attention_cuts(m);
    const Poly *sum = poly_const(m, 0);
    for (int i = 0; i < cuts->len; i++) {
        const AttentionCut *c = &cuts->data[i];
        Marks *seen = marks_begin(m);
        int score = operators(m, c->score, seen);
        marks_end(seen);
        int pair = pr->dir == FORWARD ? 2 * c->keys + 2 * c->values + score + SOFTMAX
                                      : 8 * c->keys + 6 * c->values + 2 * score + ADJOINT;
        const Poly *pairs = poly_mul(m, poly_mul(m, c->heads, c->group), c->form.distances);
        sum = poly_add(m, sum, poly_mul(m, pairs, poly_const(m, pair)));
    }
    return sum;
}

const Schedule attention_schedule = { .name = "attention",
                                      .what =
                                          "sums over the past with weights made of products with an earlier "
                                          "step, by tiles of steps",
                                      .what_on_cpu = "sums over the past by tiles of steps",
                                      .stateless = true,
                                      .sums_few = true,
                                      .cut = cut,
                                      .join = join,
                                      .begin = begin,
                                      .place = place,
                                      .add_walk = add_walk,
                                      .find_walks = find_walks,
                                      .walk_flops = walk_flops,
                                      .has_tiles = has_tiles,
                                      .print_walks = attention_print,
                                      .print_cpu = attention_print_cpu,
                                      .stage = attention_stage };
