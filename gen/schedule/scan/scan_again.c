/* scan_again.c: what a chunk of steps computes more than once. In comes the step's group; out go a block
 * for the map that a chunk is of the state before it (walked from a state of 0, with the slopes
 * multiplied), and in backward one that makes the states of a chunk anew from that before it, which is all
 * that forward saved of them. */
#include "base/mutate.h"
#include "ir/ops.h"
#include "plan/reads.h"
#include "scan_kernel.h"

NodeId scan_next_of(const ScanKernel *s, TensorId state)
{
    const Roots *of = &s->k->p->m->roots.data[state];
    return !scan_is_state(s, state) ? -1 : s->k->pr->dir == FORWARD ? of->next : of->dprev;
}

/* The arrays of the step that a value is made of. An alias has no phase of its own: what it names may be
 * of the step. */
static void mark_parts(const Kernel *k, NodeId id, bool *part)
{
    const Node *n = k_node(k, id);
    if (part[id] || (n->kind == N_ARRAY && !k->p->is_alias[id] && k->pr->phase[id] != PHASE_DURING))
        return;
    part[id] = true;
    for (int i = 0; i < n->nargs; i++)
        mark_parts(k, n->args[i], part);
}

/* The arrays among them, but for their stores, in a block. Names are free again behind it. */
typedef struct Marked {
    bool *of;
    Named kept;
    int taken, numbered;
} Marked;

static void begin(ScanKernel *s, Marked *m, KirBlock *block)
{
    m->taken = s->k->locals.taken.len;
    m->numbered = s->k->numbered;
    scan_begin_step(s, block);
    for (int i = 0; i < s->g->arrays.len; i++)
        if (m->of[s->g->arrays.data[i]])
            scan_array(s, s->g->arrays.data[i], &m->kept, false);
}

static void end(ScanKernel *s, Marked *m)
{
    code_forget(s->x, &m->kept);
    names_cut(&s->k->locals, m->taken);
    for (int i = 0; i < s->inner_names.len; i++)
        names_take(&s->k->locals, s->inner_names.data[i].var->name);
    s->k->numbered = m->numbered;
    scan_end_step(s);
}

/* ---- the map of a chunk ---- */

static void name_slopes(ScanKernel *s)
{
    int n = s->k->p->m->tensors.len;
    KirBlock none = { .data = NULL }, *outer = kir_enter(s->kir, &none);
    s->slopes = arena_alloc(s->kir->arena, sizeof *s->slopes * (size_t)n);
    for (TensorId state = 0; state < n; state++)
        if (scan_next_of(s, state) >= 0) {
            const char *name = k_text(s->k, "r_%s", s->k->p->m->tensors.data[state].name);
            s->slopes[state] = scan_declare(s, name, scan_elements_of_state(s, state), false);
        }
    kir_enter(s->kir, outer);
}

/* A step of the map: from 0, and what multiplies the state. A slope of 0 forgets whatever came before,
 * infinities too, as the walk does. */
static void build_slope(ScanKernel *s, TensorId state)
{
    Code *x = s->x;
    Kir *k = s->kir;
    NodeId next = scan_next_of(s, state), slope = scan_walks(s->k->pr)->slope[state];
    Read self = read_itself(s->k->p->m, next);
    Named named = { 0 };
    scan_bind_axes(s, next);
    scan_open_elements(s, next);
    const KirExpr *is_step = kir_var(k, s->is_step), *none = code_int(x, 0);
    const KirExpr *times = slope < 0 ? none : code_value(x, slope, &named);
    const KirExpr *r = scan_element(x, &self, s->slopes[state]),
                  *h = scan_element(x, &self, s->states[state]);
    const char *name = names_fresh(&s->k->locals, "slope");
    const KirExpr *by = kir_let(k, name, code_real(x), kir_select(k, is_step, times, code_int(x, 1)));
    kir_assign(k, r, kir_select(k, code_binary(x, KB_EQ, by, none), none, code_mul(x, r, by)));
    kir_assign(k, h, kir_select(k, is_step, scan_element(x, &self, x->value[next]), h));
    code_forget(x, &named);
    scan_close_elements(s, next);
}

/* Without a branch, so that what it computes is there for the second walk: beyond the last step it takes
 * that again. */
void scan_build_map(ScanKernel *s)
{
    Kernel *k = s->k;
    Marked m = { .of = arena_alloc(s->kir->arena, (size_t)k->p->m->nodes.len + 1) };
    name_slopes(s);
    for (TensorId state = 0; state < k->p->m->tensors.len; state++) {
        if (scan_next_of(s, state) < 0)
            continue;
        mark_parts(k, scan_next_of(s, state), m.of);
        if (scan_walks(k->pr)->slope[state] >= 0)
            mark_parts(k, scan_walks(k->pr)->slope[state], m.of);
    }
    begin(s, &m, &s->map);
    for (TensorId state = 0; state < k->p->m->tensors.len; state++)
        if (scan_next_of(s, state) >= 0)
            build_slope(s, state);
    end(s, &m);
}

/* ---- states made anew ---- */

TensorId scan_state_behind(const ScanKernel *s, NodeId next)
{
    const Module *m = s->k->p->m;
    for (TensorId state = 0; state < m->tensors.len; state++)
        if (scan_is_state(s, state) && m->roots.data[state].next == next)
            return state;
    return -1;
}

/* Of all steps of a chunk, u: behind step u, which counts backwards. How long it is follows from the
 * steps. */
static void name_kept(ScanKernel *s)
{
    int n = s->k->p->m->tensors.len;
    s->kept = arena_alloc(s->kir->arena, sizeof *s->kept * (size_t)n);
    for (TensorId state = 0; state < n; state++) {
        if (!scan_is_state(s, state))
            continue;
        const char *name = k_text(s->k, "kept_%s", s->k->p->m->tensors.data[state].name);
        KirVar *v = scan_registers(s, name, code_real(s->x));
        if (scan_in_pairs(s))
            v->rows = kir_unknown(s->kir, "steps", KT_I32);
        s->kept[state] = kir_var(s->kir, v);
    }
}

void scan_declare_kept(ScanKernel *s)
{
    for (TensorId state = 0; state < s->k->p->m->tensors.len; state++) {
        KirVar *v = scan_is_state(s, state) ? s->kept[state]->var : NULL;
        int64_t all = v ? (s->steps + 1) * scan_elements_of_state(s, state) : 0;
        if (v && v->rows && v->rows->kind == KX_VAR)
            kir_settle(v->rows, all);
        if (v)
            scan_declare_registers(s, v, scan_in_pairs(s) ? 2 : all);
    }
}

static const KirExpr *kept(ScanKernel *s, TensorId state, const KirExpr *step, const Read *r)
{
    const KirExpr *inner = scan_inner_place(s, r);
    const KirExpr *at = code_mul(s->x, step, code_int(s->x, scan_elements_of_state(s, state)));
    return scan_local(s, s->kept[state], inner ? code_add(s->x, at, inner) : at);
}

const KirExpr *scan_held_again(ScanKernel *s, const Read *r)
{
    TensorId state = r->is_tensor ? r->id : scan_state_behind(s, r->id);
    if (!s->w->replays || s->x->away || state < 0 || !scan_is_state(s, state))
        return NULL;
    const KirExpr *u = kir_var(s->kir, s->u);
    bool before = r->is_tensor && !mutate("late-load");
    return kept(s, state, before ? code_add(s->x, u, code_int(s->x, 1)) : u, r);
}

/* A step's states from those before it. */
void scan_build_again(ScanKernel *s)
{
    Module *m = s->k->p->m;
    Marked parts = { .of = arena_alloc(s->kir->arena, (size_t)m->nodes.len + 1) };
    name_kept(s);
    for (TensorId state = 0; state < m->tensors.len; state++)
        if (scan_is_state(s, state))
            mark_parts(s->k, k_node(s->k, m->roots.data[state].next)->args[0], parts.of);
    begin(s, &parts, &s->again);
    for (TensorId state = 0; state < m->tensors.len; state++) {
        Named named = { 0 };
        NodeId next = m->roots.data[state].next;
        if (!scan_is_state(s, state))
            continue;
        Read self = read_itself(s->k->p->m, next);
        scan_bind_axes(s, next);
        code_comment(s->x, next);
        scan_open_elements(s, next);
        const KirExpr *v = code_value(s->x, k_node(s->k, next)->args[0], &named);
        kir_assign(s->kir, kept(s, state, kir_var(s->kir, s->u), &self), v);
        code_forget(s->x, &named);
        scan_close_elements(s, next);
    }
    end(s, &parts);
}

void scan_let_before(ScanKernel *s, bool full)
{
    s->x->t = kir_let_var(s->kir, s->t_before, scan_step_at(s, code_int(s->x, s->steps - 1), full));
    code_let_rows(s->x, s->rows_before);
}

/* The place of an element of the state before the chunk, in the shared memory that it arrives in. */
static const KirExpr *saved_place(ScanKernel *s, const Read *r)
{
    Code *x = s->x;
    const KirExpr *inner = scan_inner_place(s, r), *at = inner ? inner : code_int(x, 0);
    if (scan_in_pairs(s))
        at = code_add(x, code_mul(x, at, code_int(x, 2)), kir_var(s->kir, s->q));
    return code_mul(x, at, code_int(x, scan_threads(s->w)));
}

/* The states before the chunk, which are in memory. */
void scan_kept(ScanKernel *s, Way way)
{
    Module *m = s->k->p->m;
    Code *x = s->x;
    s->k->g = s->g;
    for (TensorId state = 0; state < m->tensors.len; state++) {
        NodeId next = m->roots.data[state].next;
        if (!scan_is_state(s, state))
            continue;
        Read self = read_itself(s->k->p->m, next);
        self.is_tensor = true;
        self.id = state;
        scan_bind_axes(s, next);
        scan_open_elements(s, next);
        const KirExpr *to = kept(s, state, code_int(x, s->steps), &self);
        if (way == TAKE) {
            kir_assign(s->kir, to, kir_element(s->kir, s->saved[state], saved_place(s, &self)));
        } else if (way == COPY) {
            const KirExpr *at = code_add(x, s->saved[state], saved_place(s, &self));
            at = s->copies_wide ? code_add(x, at, kir_var(s->kir, s->aside)) : at;
            kir_do(s->kir, kir_call2(s->kir, "cell_copy_word", at, code_saved_state(x, &self)));
        } else {
            kir_assign(s->kir, to, kir_load(s->kir, KA_LOAD, code_real(x), code_saved_state(x, &self)));
        }
        scan_close_elements(s, next);
    }
    s->k->g = NULL;
}
