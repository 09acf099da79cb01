/* scan_step.c: the values of a step in a walk over units. In comes the step's group; out go two blocks:
 * what it computes, and stores, which nothing waits for. What a unit sums over is a loop of its own. */
#include <math.h>

#include "ir/ops.h"
#include "plan/reads.h"
#include "scan_kernel.h"

static const KirExpr *start_of(ScanKernel *s, ReduceOp r)
{
    if (r == R_MAX || r == R_MIN)
        return kir_real(s->kir, code_real(s->x), r == R_MAX ? -HUGE_VAL : HUGE_VAL);
    return code_int(s->x, r == R_PROD);
}

static void join(ScanKernel *s, ReduceOp r, const KirExpr *sum, const KirExpr *term)
{
    if (r == R_MAX || r == R_MIN)
        kir_assign(s->kir, sum, kir_call2(s->kir, r == R_MAX ? "cell_max" : "cell_min", sum, term));
    else
        kir_add(s->kir,
                (KirStmt){ .kind = KI_ASSIGN, .op = r == R_PROD ? KB_MUL : KB_ADD, .x = { sum, term } });
}

static void add_terms(ScanKernel *s, Node r, const KirExpr *sum)
{
    Named named = { 0 };
    for (int i = 0; i < r.nbound; i++)
        scan_open_inner(s, r.bound[i]);
    join(s, r.reduce, sum, code_value(s->x, r.args[0], &named));
    code_forget(s->x, &named);
    for (int i = 0; i < r.nbound; i++)
        scan_close_inner(s);
}

/* Where a value has a place at all, whose elements of two neighbours can be stored together. */
static bool stores_two(ScanKernel *s, NodeId id, const Read *self)
{
    Module *m = s->k->p->m;
    const Storage *st = &s->k->pr->node[id];
    const Poly *pitch = st->pitch ? st->pitch : array_elements(m, id);
    return st->home != HOME_NONE && scan_adjacent(s->x, storage_linear(m, self, st), pitch);
}

static void store_elements(ScanKernel *s, NodeId id, const Read *self, const KirExpr *local)
{
    KirBlock *outer = kir_enter(s->kir, &s->late);
    scan_open_short_axes(s, id);
    const KirExpr *inner = scan_inner_place(s, self);
    bool two = stores_two(s, id, self);
    s->x->two = !two ? NULL : inner ? kir_element(s->kir, local, inner) : local;
    if (!two)
        scan_open_pair(s);
    code_store(s->x, id, scan_local(s, local, inner));
    if (!two)
        scan_close_pair(s);
    s->x->two = NULL;
    scan_close_short_axes(s, id);
    kir_enter(s->kir, outer);
}

void scan_array(ScanKernel *s, NodeId id, Named *kept, bool stores)
{
    Kernel *k = s->k;
    Kir *kir = s->kir;
    Read self = read_itself(k->p->m, id);
    const Node body = *k_node(k, k_node(k, id)->args[0]);
    bool sums = plan_reduces(k->p, id);
    int64_t elements = scan_inner(k->p, &self);
    Named named = { 0 };
    scan_bind_axes(s, id);
    code_comment(s->x, id);
    const char *name = k_local(k, "a", id);
    /* no loop around its declaration */
    bool one = scan_is_one(s, elements) && k_node(k, id)->naxes == k->p->units->naxes;
    const KirExpr *local = one ? NULL : scan_declare(s, name, elements, false), *to = local;
    scan_open_elements(s, id);
    if (!one)
        to = scan_element(s->x, &self, local);
    if (sums) {
        const KirExpr *start = start_of(s, body.reduce);
        if (one)
            to = local = kir_mutable(kir, name, code_real(s->x), start);
        else
            kir_assign(kir, to, start);
        add_terms(s, body, to);
    } else {
        const KirExpr *v = code_value(s->x, k_node(k, id)->args[0], &named);
        if (one)
            local = kir_let(kir, name, code_real(s->x), v);
        else
            kir_assign(kir, to, v);
        code_forget(s->x, &named);
    }
    scan_close_elements(s, id);
    s->x->value[id] = local;
    vec_push(k->p->m->arena, kept, id);
    if (stores && k_is_stored(k, id))
        store_elements(s, id, &self, local);
}

/* ---- sums over batch and time ---- */

static bool is_summed(const ScanKernel *s, int group)
{
    const Program *pr = s->k->pr;
    const Group *g = &pr->groups.data[group];
    return g->kind == G_COLUMN && g->by_rows && pr->groups.data[g->by_rows - 1].kind == G_UNITS;
}

void scan_each_sum(ScanKernel *s, void (*body)(ScanKernel *s, const Group *g, int number))
{
    const Program *pr = s->k->pr;
    for (int i = 0; i < pr->groups.len; i++)
        for (int j = 0; is_summed(s, i) && j < pr->groups.data[i].arrays.len; j++)
            body(s, &pr->groups.data[i], j);
}

int64_t scan_array_inner(ScanKernel *s, NodeId id)
{
    Read self = read_itself(s->k->p->m, id);
    return scan_inner(s->k->p, &self);
}

/* The local is declared in front of the steps; its kind is known before. */
static void name_sum(ScanKernel *s, const Group *g, int number)
{
    NodeId id = g->arrays.data[number];
    KirBlock none = { .data = NULL }, *outer = kir_enter(s->kir, &none);
    s->sums[id] = scan_declare(s, k_text(s->k, "sum_%d", id), scan_array_inner(s, id), true);
    kir_enter(s->kir, outer);
}

static void add_to_sum(ScanKernel *s, const Group *g, int number)
{
    NodeId id = g->arrays.data[number];
    Read self = read_itself(s->k->p->m, id);
    const Node r = *k_node(s->k, k_node(s->k, id)->args[0]);
    Named named = { 0 };
    scan_bind_axes(s, id);
    code_comment(s->x, id);
    scan_open_elements(s, id);
    const KirExpr *term = code_value(s->x, r.args[0], &named);
    kir_add_to(s->kir, scan_element(s->x, &self, s->sums[id]), term);
    code_forget(s->x, &named);
    scan_close_elements(s, id);
}

/* ---- the step ---- */

void scan_begin_step(ScanKernel *s, KirBlock *body)
{
    Code *x = s->x;
    *body = (KirBlock){ .data = NULL };
    kir_enter(s->kir, body);
    s->k->g = s->g;
    x->b = kir_var(s->kir, s->b);
    x->t = kir_var(s->kir, s->t);
    x->row = kir_var(s->kir, s->rows[0]);
    if (s->k->pr->dir == FORWARD) {
        x->ring1 = kir_var(s->kir, s->rows[1]);
        x->ring2 = kir_var(s->kir, s->rows[2]);
    }
}

void scan_end_step(ScanKernel *s)
{
    kir_enter(s->kir, &s->x->body);
    s->k->g = NULL;
}

void scan_step(ScanKernel *s)
{
    Named kept = { 0 };
    scan_each_sum(s, name_sum);
    scan_begin_step(s, &s->body);
    for (int i = 0; i < s->g->arrays.len; i++)
        scan_array(s, s->g->arrays.data[i], &kept, true);
    scan_each_sum(s, add_to_sum);
    code_forget(s->x, &kept);
    scan_end_step(s);
}
