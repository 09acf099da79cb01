/* kernels_block.c: the kernel that walks all steps with a block for each head of each sequence
 * (block.c). In comes a BlockWalk; out goes a kernel that makes a step's groups one after the
 * other: what is pointwise by a thread for each element, a reduction by as many threads for each
 * row as there are for it. What groups hand on lies in shared memory, and so does what each step
 * finds in memory, which is loaded a step ahead. */
#include <math.h>

#include "base/mutate.h"
#include "block.h"
#include "kernels/code.h"

typedef struct BlockKernel {
    BlockWalk *w;
    Code *x;
    const KirExpr *head[MAX_PARALLEL];
    const KirExpr *thread;
} BlockKernel;

static BlockKernel *block(const Code *x)
{
    return x->k->of_schedule;
}

/* ---- what lies in shared memory ---- */

/* Of two steps that take turns, this one's half, or that of the step before. */
static const KirExpr *half(Code *x, const Held *h, bool before)
{
    if (h->turns == 1)
        return code_int(x, 0);
    const KirExpr *step = before ? code_add(x, x->t, code_int(x, 1)) : x->t;
    return code_mul(x, code_binary(x, KB_BITS, step, code_int(x, 1)), code_int(x, h->elements));
}

static const KirExpr *element(Code *x, const Held *h, const IxExpr *const *map, bool before)
{
    const KirExpr *place = half(x, h, before);
    for (int i = h->heads; i < h->rank; i++)
        place = code_add(x, place, code_mul(x, ix_node(&x->printer, map[i]), code_int(x, h->stride[i])));
    return kir_element(x->kir, h->at, place);
}

static const KirExpr *finds(Code *x, const Read *r)
{
    const Module *m = x->k->p->m;
    BlockWalk *w = block(x)->w;
    Held *h = NULL;
    bool before = false;
    if (r->is_tensor) {
        const Tensor *t = &m->tensors.data[r->id];
        before = t->kind == T_STATE ? x->k->pr->dir == FORWARD : t->kind == T_DNEXT;
        if (before)
            h = block_held(w, HELD_CARRIED, false,
                           t->kind == T_STATE ? m->roots.data[r->id].next : m->roots.data[t->of].dprev);
        if (!h && t->kind != T_DNEXT)
            h = block_held(w, HELD_PARAM, true, r->id);
        if (!h && t->kind != T_DNEXT)
            h = block_held(w, HELD_AHEAD, true, r->id);
        before &= h && h->kind == HELD_CARRIED;
        return h ? element(x, h, r->map, before) : NULL;
    }
    int group = x->k->pr->group[r->id];
    if (group >= 0 && &x->k->pr->groups.data[group] == x->k->g)
        return NULL;
    h = block_held(w, HELD_PARAM, false, r->id);
    h = h ? h : block_held(w, HELD_VALUE, false, r->id);
    h = h ? h : block_held(w, HELD_CARRIED, false, r->id);
    h = h ? h : block_held(w, HELD_AHEAD, false, r->id);
    return h ? element(x, h, r->map, false) : NULL;
}

/* Under which condition memory is to have it as well; NULL: always. */
static const KirExpr *keeps(Code *x, NodeId id, const KirExpr *value)
{
    const Plan *p = x->k->p;
    Held *h = block_held(block(x)->w, HELD_SUM, false, id);
    if (h) {
        Read of = read_itself(p->m, id);
        if (mutate("last-step"))
            kir_assign(x->kir, element(x, h, of.map, false), value);
        else
            kir_add_to(x->kir, element(x, h, of.map, false), value);
        return kir_truth(x->kir, false);
    }
    h = block_held(block(x)->w, HELD_VALUE, false, id);
    h = h ? h : block_held(block(x)->w, HELD_CARRIED, false, id);
    if (!h)
        return NULL;
    Read self = read_itself(p->m, id);
    if (!mutate("unkept-value"))
        kir_assign(x->kir, element(x, h, self.map, false), value);
    if (h->kind == HELD_CARRIED && x->k->pr->dir == BACKWARD)
        return code_binary(x, KB_EQ, x->t, code_int(x, 0)); /* the adjoint of the initial state */
    if (h->in_memory)
        return NULL;
    return p->program[x->k->pr->dir].node[id].home == HOME_RESERVE && x->saves ? x->saves
                                                                               : kir_truth(x->kir, false);
}

/* ---- the block's part of what lies in memory ---- */

static int64_t part_elements(const Held *h)
{
    int64_t n = 1;
    for (int i = h->heads; i < h->rank; i++)
        n *= h->extent[i];
    return n;
}

/* Where the block's part begins in a row. */
static const KirExpr *part_begin(BlockKernel *b, int heads, int64_t part)
{
    Code *x = b->x;
    const KirExpr *n = code_int(x, 0);
    for (int i = 0; i < heads; i++)
        n = code_add(x, code_mul(x, n, code_size(x, b->w->head[i])), b->head[i]);
    return code_mul(x, n, code_int(x, part));
}

/* Of an element of the part, its place in shared memory. */
static const KirExpr *part_place(BlockKernel *b, const Held *h, const KirExpr *e)
{
    Code *x = b->x;
    const KirExpr *place = code_int(x, 0);
    int64_t below = 1;
    for (int i = h->rank - 1; i >= h->heads; i--) {
        const KirExpr *digit = code_binary(x, KB_DIV, e, code_int(x, below));
        if (i > h->heads)
            digit = code_binary(x, KB_MOD, digit, code_int(x, h->extent[i]));
        place = code_add(x, place, code_mul(x, digit, code_int(x, h->stride[i])));
        below *= h->extent[i];
    }
    return place;
}

static KirOpen open_elements(BlockKernel *b, const char *name, int64_t n, int64_t each, const KirExpr **e)
{
    Code *x = b->x;
    const KirExpr *first = each == 1 ? b->thread : code_mul(x, b->thread, code_int(x, each));
    return code_for(x, name, first, code_int(x, n), code_int(x, b->w->threads * each), e);
}

static void fill(BlockKernel *b, const Held *h, const KirExpr *from, KirAccess how, const KirExpr *to)
{
    Code *x = b->x;
    const KirExpr *e;
    KirOpen loop = open_elements(b, "e", part_elements(h), 1, &e);
    const KirExpr *v = kir_load(x->kir, how, code_real(x), code_move(x, from, e));
    kir_assign(x->kir, kir_element(x->kir, h->at, code_add(x, to, part_place(b, h, e))), v);
    kir_close(x->kir, loop);
}

static void fill_param(BlockKernel *b, const Held *h)
{
    Code *x = b->x;
    const Storage *st = h->is_tensor ? &x->k->pr->tensor[h->id] : &x->k->pr->node[h->id];
    const KirExpr *from = code_pointer(x, h->is_tensor ? REF_TENSOR : REF_NODE, h->id, st->dtype);
    if (st->alias_offset)
        from = code_add(x, from, code_size(x, st->alias_offset));
    fill(b, h, code_add(x, from, part_begin(b, h->heads, part_elements(h))), KA_LOAD_RO, code_int(x, 0));
}

/* The initial state, or the adjoint of the final one, as that of the step before the walk's first. */
static void fill_carried(BlockKernel *b, const Held *h)
{
    Code *x = b->x;
    const Plan *p = x->k->p;
    bool forward = x->k->pr->dir == FORWARD;
    const KirExpr *begin = part_begin(b, h->heads, part_elements(h)), *steps = code_steps(x);
    const KirExpr *row = forward ? x->b : code_half_row(x, steps);
    const KirExpr *from = forward ? code_pointer(x, REF_INITIAL, h->state, p->compute)
                                  : code_written(x, REF_CARRY, h->state, p->compute);
    const KirExpr *last = forward ? code_int(x, 1) : code_binary(x, KB_BITS, steps, code_int(x, 1));
    from = code_place(x, from, row, tensor_elements(p->m, h->state), begin);
    fill(b, h, from, KA_LOAD, code_mul(x, last, code_int(x, h->elements)));
}

/* Sums begin with zeros. */
static void fill_sums(BlockKernel *b, const Held *h)
{
    Code *x = b->x;
    const KirExpr *e;
    KirOpen loop = open_elements(b, "e", part_elements(h), 1, &e);
    kir_assign(x->kir, kir_element(x->kir, h->at, part_place(b, h, e)), kir_real(x->kir, code_real(x), 0));
    kir_close(x->kir, loop);
}

/* Behind the last step memory gets the sums of the block's heads. */
static void leave_sums(BlockKernel *b)
{
    Code *x = b->x;
    const Plan *p = x->k->p;
    for (int i = 0; i < b->w->held.len; i++) {
        const Held *h = &b->w->held.data[i];
        const KirExpr *e;
        if (h->kind != HELD_SUM)
            continue;
        const KirExpr *to = code_written(x, REF_NODE, h->id, x->k->pr->node[h->id].dtype);
        const KirExpr *begin = part_begin(b, h->heads, part_elements(h));
        to = code_place(x, to, x->b, array_elements(p->m, h->id), begin);
        KirOpen loop = open_elements(b, "e", part_elements(h), 1, &e);
        kir_store(x->kir, code_move(x, to, e), kir_element(x->kir, h->at, part_place(b, h, e)), NULL);
        kir_close(x->kir, loop);
    }
}

static void fill_all(BlockKernel *b)
{
    for (int i = 0; i < b->w->held.len; i++) {
        const Held *h = &b->w->held.data[i];
        if (h->kind == HELD_SUM)
            fill_sums(b, h);
        if (h->kind == HELD_PARAM)
            fill_param(b, h);
        else if (h->kind == HELD_CARRIED)
            fill_carried(b, h);
    }
}

/* ---- what comes from memory is asked for a step ahead ---- */

enum { SECTOR = 32 }; /* bytes */

/* Where the part of step x->t begins. */
static const KirExpr *part_of_step(BlockKernel *b, bool is_tensor, int id, int64_t part,
                                   const KirExpr **pointer)
{
    Code *x = b->x;
    const Plan *p = x->k->p;
    bool state = is_tensor && p->m->tensors.data[id].kind == T_STATE;
    const Storage *st = block_storage(p, x->k->pr, is_tensor, id);
    const Poly *pitch = is_tensor ? tensor_elements(p->m, id) : array_elements(p->m, id);
    const KirExpr *begin = part_begin(b, b->w->nheads, part);
    if (!state) {
        *pointer = code_pointer(x, is_tensor ? REF_TENSOR : REF_NODE, id, st->dtype);
        return code_place(x, *pointer, code_row_of(x, st), pitch, begin);
    }
    *pointer = code_pointer(x, REF_NODE, p->m->roots.data[id].next, st->dtype);
    const KirExpr *saved =
        code_place(x, *pointer, code_buffer_row(x, &p->buffers.data[st->slot], -1), pitch, begin);
    const KirExpr *given = code_place(x, code_pointer(x, REF_INITIAL, id, p->compute), x->b, pitch, begin);
    return kir_select(x->kir, code_binary(x, KB_GT, x->t, code_int(x, 0)), saved, given);
}

static bool may_be_missing(const Code *x, bool is_tensor, int id)
{
    return is_tensor && x->k->p->m->tensors.data[id].kind == T_DOUT;
}

static const KirExpr *load_part(BlockKernel *b, const Held *h, const KirExpr *e)
{
    Code *x = b->x;
    const KirExpr *pointer, *from = part_of_step(b, h->is_tensor, h->id, part_elements(h), &pointer);
    const KirExpr *v = kir_load(x->kir, KA_LOAD, code_real(x), code_move(x, from, e));
    return may_be_missing(x, h->is_tensor, h->id) ? kir_select(x->kir, pointer, v, code_int(x, 0)) : v;
}

static const KirExpr *nth_element(BlockKernel *b, int n)
{
    return code_add(b->x, b->thread, code_int(b->x, (int64_t)n * b->w->threads));
}

/* All threads have one, or some of them. */
static bool is_full(const BlockKernel *b, const Held *h, int n)
{
    return (n + 1) * (int64_t)b->w->threads <= part_elements(h);
}

static KirOpen open_nth(BlockKernel *b, const Held *h, int n)
{
    return kir_if(b->x->kir, code_binary(b->x, KB_LT, nth_element(b, n), code_int(b->x, part_elements(h))));
}

/* What a thread has of a step, from memory to a register, or from there to shared memory. */
static void move_parts(BlockKernel *b, bool load)
{
    Code *x = b->x;
    for (int i = 0; i < b->w->held.len; i++) {
        const Held *h = &b->w->held.data[i];
        for (int n = 0; h->kind == HELD_AHEAD && n < h->next.len; n++) {
            KirOpen mine = { 0 };
            if (!is_full(b, h, n))
                mine = open_nth(b, h, n);
            const KirExpr *e = nth_element(b, n);
            if (load)
                kir_assign(x->kir, h->next.data[n], load_part(b, h, e));
            else
                kir_assign(x->kir,
                           kir_element(x->kir, h->at, code_add(x, half(x, h, false), part_place(b, h, e))),
                           h->next.data[n]);
            if (!is_full(b, h, n))
                kir_close(x->kir, mine);
        }
    }
}

static void declare_parts(BlockKernel *b)
{
    Code *x = b->x;
    for (int i = 0; i < b->w->held.len; i++) {
        Held *h = &b->w->held.data[i];
        int64_t n = h->kind == HELD_AHEAD ? (part_elements(h) + b->w->threads - 1) / b->w->threads : 0;
        h->next.len = 0;
        for (int64_t k = 0; k < n; k++) {
            const char *name = names_fresh(&x->k->locals, "next");
            vec_push(x->kir->arena, &h->next, kir_mutable(x->kir, name, code_real(x), code_int(x, 0)));
        }
    }
}

/* What has no place in shared memory comes into the cache. */
static void ask_for(BlockKernel *b, const Ahead *a)
{
    Code *x = b->x;
    const Module *m = x->k->p->m;
    int64_t part = 1,
            each =
                SECTOR / kir_bytes(code_scalar(block_storage(x->k->p, x->k->pr, a->is_tensor, a->id)->dtype));
    int rank = a->is_tensor ? m->tensors.data[a->id].rank : k_node(x->k, a->id)->naxes;
    for (int i = b->w->nheads; i < rank; i++)
        part *= (a->is_tensor ? m->tensors.data[a->id].axes[i]
                              : m->indices.data[k_node(x->k, a->id)->axes[i]].extent)
                    ->value;
    const KirExpr *pointer, *from = part_of_step(b, a->is_tensor, a->id, part, &pointer), *e;
    KirOpen given = { 0 };
    if (may_be_missing(x, a->is_tensor, a->id))
        given = kir_if(x->kir, pointer);
    KirOpen loop = open_elements(b, "ahead", part, each, &e);
    kir_do(x->kir, kir_call1(x->kir, "cell_prefetch", code_move(x, from, e)));
    kir_close(x->kir, loop);
    if (may_be_missing(x, a->is_tensor, a->id))
        kir_close(x->kir, given);
}

typedef struct Step {
    const KirExpr *t, *row;
} Step;

/* What is built from here on is of another step than the loop's; gives the one that it was. */
static Step go_to_step(Code *x, const KirExpr *t)
{
    Step was = { x->t, x->row };
    x->t = t;
    x->row = code_add(x, code_first_row(x), code_time_row(x, t, 0));
    x->away++;
    return was;
}

static void come_back(Code *x, Step was)
{
    x->away--;
    x->t = was.t;
    x->row = was.row;
}

static const KirExpr *next_step(Code *x)
{
    return code_binary(x, x->k->pr->dir == FORWARD ? KB_ADD : KB_SUB, x->t, code_int(x, 1));
}

static const KirExpr *has_next(Code *x)
{
    const KirExpr *next = code_add(x, x->t, code_int(x, 1)), *none = code_int(x, 0);
    return x->k->pr->dir == FORWARD ? code_binary(x, KB_LT, next, code_steps(x))
                                    : code_binary(x, KB_GT, x->t, none);
}

static bool any_ahead(const BlockKernel *b)
{
    for (int i = 0; i < b->w->held.len; i++)
        if (b->w->held.data[i].kind == HELD_AHEAD)
            return true;
    return b->w->ahead.len > 0;
}

static void ask_for_next(BlockKernel *b)
{
    Code *x = b->x;
    if (!any_ahead(b))
        return;
    declare_parts(b);
    KirOpen more = kir_if(x->kir, has_next(x));
    Step was = go_to_step(x, next_step(x));
    move_parts(b, true);
    for (int i = 0; i < b->w->ahead.len; i++)
        ask_for(b, &b->w->ahead.data[i]);
    come_back(x, was);
    kir_close(x->kir, more);
}

static void take_next(BlockKernel *b)
{
    Code *x = b->x;
    if (!any_ahead(b))
        return;
    KirOpen more = kir_if(x->kir, has_next(x));
    Step was = go_to_step(x, next_step(x));
    move_parts(b, false);
    come_back(x, was);
    kir_close(x->kir, more);
}

/* The first step's, in front of the loop. */
static void take_first(BlockKernel *b)
{
    Code *x = b->x;
    if (!any_ahead(b))
        return;
    const KirExpr *steps = code_steps(x), *one = code_int(x, 1);
    KirOpen any = kir_if(x->kir, code_binary(x, KB_LT, code_int(x, 0), steps));
    declare_parts(b);
    Step was = go_to_step(x, x->k->pr->dir == FORWARD ? code_int(x, 0) : code_sub(x, steps, one));
    move_parts(b, true);
    move_parts(b, false);
    come_back(x, was);
    kir_close(x->kir, any);
}

/* ---- a group ---- */

/* The indices of an array's axes from the heads on are digits of e; those of the heads are the
 * block's. */
static void split(BlockKernel *b, const IndexId *axes, int n, const KirExpr *e, const char *prefix)
{
    for (int i = 0; i < b->w->nheads; i++)
        b->x->index[axes[i]] = b->head[i];
    code_split_element(b->x, axes + b->w->nheads, n - b->w->nheads, e, prefix);
}

static int64_t inner_elements(const BlockKernel *b, const IndexId *axes, int from, int n)
{
    int64_t all = 1;
    for (int i = from; i < n; i++)
        all *= b->x->k->p->m->indices.data[axes[i]].extent->value;
    return all;
}

static void map_group(BlockKernel *b)
{
    Code *x = b->x;
    const Group *g = x->k->g;
    const Node first = *k_node(x->k, g->arrays.data[0]);
    const KirExpr *e;
    Gather reads;
    Named kept = { 0 };
    KirOpen loop = open_elements(b, "e", inner_elements(b, first.axes, b->w->nheads, g->naxes), 1, &e);
    split(b, first.axes, g->naxes, e, "i");
    code_gather(x, &reads);
    code_keep_axes(x, g->arrays.data[0]);
    for (int i = 0; i < g->arrays.len; i++) {
        code_bind_axes(x, g->arrays.data[i]);
        code_array(x, g->arrays.data[i], &kept);
    }
    code_forget(x, &kept);
    code_gather_end(x, &reads);
    kir_close(x->kir, loop);
}

/* Threads of a row, and which of its elements a thread begins with. mine: NULL: all threads have a
 * row. */
typedef struct Row {
    int lanes;
    const KirExpr *lane, *mine;
    Named kept;
} Row;

static Node reduction_of(const Code *x, NodeId id)
{
    return *k_node(x->k, k_node(x->k, id)->args[0]);
}

static bool is_reduction(const Code *x, NodeId id)
{
    return k_node(x->k, id)->naxes == x->k->g->naxes && plan_reduces(x->k->p, id);
}

static const char *function_of(const Code *x, const char *threads, ReduceOp r)
{
    return k_text(x->k, "cell_%s_%s", threads,
                  r == R_MAX    ? "max"
                  : r == R_MIN  ? "min"
                  : r == R_PROD ? "prod"
                                : "sum");
}

/* Stores what all threads of a row have, by one of them. */
static void keep(BlockKernel *b, Row *r, NodeId id)
{
    Code *x = b->x;
    vec_push(x->kir->arena, &r->kept, id);
    if (!k_is_stored(x->k, id))
        return;
    const KirExpr *one =
        r->lanes == 1 ? kir_truth(x->kir, true) : code_binary(x, KB_EQ, r->lane, code_int(x, 0));
    KirOpen open = { 0 };
    bool all = r->lanes == 1 && !r->mine;
    if (!all)
        open = kir_if(x->kir, !r->mine        ? one
                              : r->lanes == 1 ? r->mine
                                              : code_binary(x, KB_AND, one, r->mine));
    code_store(x, id, x->value[id]);
    if (!all)
        kir_close(x->kir, open);
}

static void add_term(BlockKernel *b, NodeId id, const KirExpr *const *bound)
{
    Code *x = b->x;
    const Node r = reduction_of(x, id);
    Named named = { 0 };
    code_bind_axes(x, id);
    for (int i = 0; i < r.nbound; i++)
        x->index[r.bound[i]] = bound[i];
    code_comment(x, id);
    const KirExpr *v = code_value(x, r.args[0], &named), *sum = x->value[id];
    if (r.reduce == R_MAX || r.reduce == R_MIN)
        kir_assign(x->kir, sum, kir_call2(x->kir, r.reduce == R_MAX ? "cell_max" : "cell_min", sum, v));
    else
        kir_add(x->kir,
                (KirStmt){ .kind = KI_ASSIGN, .op = r.reduce == R_PROD ? KB_MUL : KB_ADD, .x = { sum, v } });
    code_forget(x, &named);
}

/* Reductions over as many places that do not wait for one another go round together. */
static bool goes_along(const Code *x, int first, int other)
{
    const Group *g = x->k->g;
    NodeId a = g->arrays.data[first], b = g->arrays.data[other];
    if (!is_reduction(x, b) || g->depth[first] != g->depth[other])
        return false;
    const Node r = reduction_of(x, a), s = reduction_of(x, b);
    for (int i = 0; i < r.nbound && i < s.nbound; i++)
        if (x->k->p->m->indices.data[r.bound[i]].extent != x->k->p->m->indices.data[s.bound[i]].extent)
            return false;
    return r.nbound == s.nbound;
}

static int reductions(BlockKernel *b, Row *r, int begin)
{
    Code *x = b->x;
    const Group *g = x->k->g;
    const Node first = reduction_of(x, g->arrays.data[begin]);
    const KirExpr *bound[64], *e;
    int end = begin + 1;
    while (end < g->arrays.len && goes_along(x, begin, end))
        end++;
    for (int i = begin; i < end; i++) {
        NodeId id = g->arrays.data[i];
        ReduceOp op = reduction_of(x, id).reduce;
        bool extreme = op == R_MAX || op == R_MIN;
        const KirExpr *start = extreme ? kir_real(x->kir, code_real(x), op == R_MAX ? -HUGE_VAL : HUGE_VAL)
                                       : code_int(x, op == R_PROD);
        x->value[id] = kir_mutable(x->kir, k_local(x->k, "a", id), code_real(x), start);
    }
    int64_t n = inner_elements(b, first.bound, 0, first.nbound);
    KirOpen loop = code_for(x, "k", r->lane, code_int(x, n), code_int(x, r->lanes), &e);
    loop.statement->n = n / r->lanes <= 32 ? -1 : 8;
    code_split_element(x, first.bound, first.nbound, e, "k");
    for (int i = 0; i < first.nbound; i++)
        bound[i] = x->index[first.bound[i]];
    for (int i = begin; i < end; i++)
        add_term(b, g->arrays.data[i], bound);
    kir_close(x->kir, loop);
    for (int i = begin; i < end; i++) {
        NodeId id = g->arrays.data[i];
        const Node of = reduction_of(x, id);
        for (int j = 0; j < of.nbound; j++)
            x->index[of.bound[j]] = NULL;
        code_bind_axes(x, id);
        const KirTemplate lanes = code_template(code_int(x, r->lanes));
        const KirExpr *v = x->value[id];
        if (r->lanes == 32)
            kir_assign(x->kir, v, kir_call1(x->kir, function_of(x, "warp", of.reduce), v));
        else if (r->lanes > 1)
            kir_assign(x->kir, v, kir_call(x->kir, function_of(x, "group", of.reduce), &lanes, 1, &v, 1));
        keep(b, r, id);
    }
    return end;
}

static void scalar(BlockKernel *b, Row *r, NodeId id)
{
    Code *x = b->x;
    Named named = { 0 };
    code_comment(x, id);
    const KirExpr *v = code_value(x, k_node(x->k, id)->args[0], &named);
    x->value[id] = kir_let(x->kir, k_local(x->k, "a", id), code_real(x), v);
    code_forget(x, &named);
    keep(b, r, id);
}

/* An array of the row's elements; what only the group's sums read is made there. */
static void row_elements(BlockKernel *b, Row *r, NodeId id)
{
    Code *x = b->x;
    const Group *g = x->k->g;
    IndexId along = k_node(x->k, id)->axes[g->along ? g->along - 1 : g->naxes];
    int64_t n = x->k->p->m->indices.data[along].extent->value;
    const KirExpr *e;
    Named kept = { 0 };
    KirOpen mine = { 0 };
    if (!k_is_stored(x->k, id))
        return;
    if (r->mine)
        mine = kir_if(x->kir, r->mine);
    const char *name = names_fresh(&x->k->locals, k_text(x->k, "i_%s", x->k->p->m->indices.data[along].name));
    KirOpen loop = code_for(x, name, r->lane, code_int(x, n), code_int(x, r->lanes), &e);
    code_bind_axes(x, id);
    x->index[along] = e;
    code_array(x, id, &kept);
    code_forget(x, &kept);
    kir_close(x->kir, loop);
    if (r->mine)
        kir_close(x->kir, mine);
    x->index[along] = NULL;
}

static void row_body(BlockKernel *b, Row *r)
{
    Code *x = b->x;
    const Group *g = x->k->g;
    for (int i = 0; i < g->arrays.len;) {
        NodeId id = g->arrays.data[i];
        code_bind_axes(x, id);
        if (is_reduction(x, id)) {
            i = reductions(b, r, i);
            continue;
        }
        if (k_node(x->k, id)->naxes == g->naxes)
            scalar(b, r, id);
        else
            row_elements(b, r, id);
        i++;
    }
    code_forget(x, &r->kept);
}

/* Terms of the longest reduction, of which threads of a row take some each. */
static int64_t longest(const BlockKernel *b)
{
    const Group *g = b->x->k->g;
    int64_t most = 1;
    for (int i = 0; i < g->arrays.len; i++) {
        if (!is_reduction(b->x, g->arrays.data[i]))
            continue;
        const Node r = reduction_of(b->x, g->arrays.data[i]);
        int64_t n = inner_elements(b, r.bound, 0, r.nbound);
        most = n > most ? n : most;
    }
    return most;
}

static NodeId row_array(const Code *x)
{
    const Group *g = x->k->g;
    for (int i = 0; i < g->arrays.len; i++)
        if (k_node(x->k, g->arrays.data[i])->naxes == g->naxes)
            return g->arrays.data[i];
    return g->arrays.data[0];
}

static void row_group(BlockKernel *b)
{
    Code *x = b->x;
    const Group *g = x->k->g;
    NodeId first = row_array(x);
    const Node a = *k_node(x->k, first);
    int64_t rows = inner_elements(b, a.axes, b->w->nheads, g->naxes), terms = longest(b);
    Row r = { .lanes = 1 };
    while (r.lanes < 32 && r.lanes < terms && rows * r.lanes * 2 <= b->w->threads)
        r.lanes *= 2;
    const KirExpr *lanes = code_int(x, r.lanes), *from, *row;
    int64_t each = b->w->threads / r.lanes;
    r.lane = r.lanes == 1
                 ? code_int(x, 0)
                 : code_let(x, names_fresh(&x->k->locals, "lane"), code_binary(x, KB_MOD, b->thread, lanes));
    /* A warp goes round for its own rows; threads of several rows all go as often. */
    bool warps = r.lanes == 32;
    KirOpen loop = code_for(x, "first", warps ? kir_special(x->kir, KP_WARP, 0) : code_int(x, 0),
                            code_int(x, rows), code_int(x, each), &from);
    row = warps ? from : code_let(x, "own", code_add(x, from, code_binary(x, KB_DIV, b->thread, lanes)));
    if (!warps && rows % each) {
        r.mine = kir_let(x->kir, "mine", KT_BOOL, code_binary(x, KB_LT, row, code_int(x, rows)));
        row = code_let(x, "row", kir_select(x->kir, r.mine, row, code_int(x, rows - 1)));
    }
    split(b, a.axes, g->naxes, row, "row");
    code_keep_axes(x, first);
    row_body(b, &r);
    kir_close(x->kir, loop);
}

static void print_group(BlockKernel *b, Group *g)
{
    Code *x = b->x;
    x->k->g = g;
    (g->kind == G_MAP ? map_group : row_group)(b);
    x->prefetches.len = x->reads.len = 0;
}

/* ---- the kernel ---- */

static void declare_shared(BlockKernel *b)
{
    Code *x = b->x;
    for (int i = 0; i < b->w->held.len; i++) {
        Held *h = &b->w->held.data[i];
        const char *of = h->is_tensor ? x->k->p->m->tensors.data[h->id].name : k_node(x->k, h->id)->name;
        const char *name =
            names_fresh(&x->k->locals, of ? k_text(x->k, "b_%s", of) : k_text(x->k, "b_%d", h->id));
        h->at = kir_shared_array(x->kir, name, code_real(x), code_int(x, h->turns * h->elements));
    }
    x->kir->shared = b->w->bytes;
}

/* The sequence and the heads of a block. */
static void split_block(BlockKernel *b, const KirExpr *item)
{
    Code *x = b->x;
    const KirExpr *rest = item;
    for (int i = b->w->nheads - 1; i >= 0; i--) {
        const KirExpr *n = code_size(x, b->w->head[i]);
        b->head[i] = code_let(x, k_text(x->k, "head_%d", i), code_binary(x, KB_MOD, rest, n));
        rest = code_binary(x, KB_DIV, rest, n);
    }
    x->b = code_let(x, "sequence", rest);
}

static Group *first_group(const Program *pr)
{
    for (int i = 0; i < pr->groups.len; i++)
        if (pr->groups.data[i].phase == PHASE_DURING)
            return &pr->groups.data[i];
    return NULL;
}

static void build(BlockKernel *b)
{
    Code *x = b->x;
    Program *pr = x->k->pr;
    bool forward = pr->dir == FORWARD;
    const KirExpr *item, *n;
    declare_shared(b);
    b->thread = code_let(x, "thread", kir_special(x->kir, KP_THREAD, 0));
    const KirExpr *heads = code_sizes(x, (const Poly *const *)b->w->head, b->w->nheads);
    KirOpen items = code_for(x, "item", kir_special(x->kir, KP_BLOCK, 0), code_mul(x, code_batch(x), heads),
                             kir_special(x->kir, KP_BLOCKS, 0), &item);
    split_block(b, item);
    fill_all(b);
    take_first(b);
    kir_barrier(x->kir, KIR_BLOCK);
    const KirExpr *sequence = x->b, *steps = code_steps(x);
    KirOpen loop = code_for(x, "n", code_int(x, 0), steps, code_int(x, 1), &n);
    const KirExpr *t = forward ? n : code_sub(x, code_sub(x, steps, code_int(x, 1)), n);
    x->step = code_time_row(x, t, 0);
    x->k->g = first_group(pr);
    code_split_row(x, sequence);
    ask_for_next(b);
    for (int i = 0; i < pr->groups.len; i++) {
        if (pr->groups.data[i].phase != PHASE_DURING)
            continue;
        if (b->w->waits[i] && !mutate("missing-barrier"))
            kir_barrier(x->kir, KIR_BLOCK);
        print_group(b, &pr->groups.data[i]);
    }
    take_next(b);
    kir_close(x->kir, loop);
    kir_barrier(x->kir, KIR_BLOCK);
    x->b = sequence;
    leave_sums(b);
    kir_close(x->kir, items);
}

void block_print(Plan *p, Program *pr, Buf *out)
{
    static const KernelHooks hooks = { .all_steps = true };
    BlockWalk *w = pr->walks;
    if (!w)
        return;
    Kernel k = kernel_new(p, pr, first_group(pr), &w->refs, out);
    BlockKernel b = { .w = w };
    k.hooks = &hooks;
    k.threads = w->threads;
    k.of_schedule = &b;
    b.x = code_new(&k, w->kernel);
    b.x->finds = finds;
    b.x->keeps = keeps;
    build(&b);
    kir_settle(b.x->n, 1);
    code_print_once(p, code_end(b.x), &w->kernel, out);
    kernel_release(&k);
}
