/* kernels_scan.c: kernels of schedule scan. In comes a program whose steps are one SCAN group (scan.c);
 * out goes a kernel whose threads have a unit each, one place of the axes that all states begin with, and
 * walk all steps with its states in registers, as a tree. What a step reads and no step makes is asked for
 * several steps ahead, what is the same in all steps is read once. scan_kernel.h says which file builds
 * what. */
#include "base/mutate.h"
#include "ir/ops.h"
#include "plan/reads.h"
#include "scan_kernel.h"

/* ---- what the step's values ask for ---- */

/* A state before its step, or the adjoint of its next value; where chunks recompute states, those too. */
static const KirExpr *held(Code *x, const Read *r)
{
    ScanKernel *s = x->of_schedule;
    const Tensor *t = r->is_tensor ? &s->k->p->m->tensors.data[r->id] : NULL;
    if (t && t->kind == T_DNEXT)
        return scan_element(x, r, s->states[t->of]);
    if (t && t->kind == T_STATE && s->k->pr->dir == FORWARD)
        return scan_element(x, r, s->states[r->id]);
    return scan_held_again(s, r);
}

static void carries(Code *x, TensorId state, const Read *r, const KirExpr *value)
{
    ScanKernel *s = x->of_schedule;
    if (x->two)
        scan_open_loop(s, s->q, code_int(x, 2));
    kir_assign(s->kir, scan_element(x, r, s->states[state]), value);
    if (x->two)
        scan_close_loop(s);
}

static const KirExpr *saves(ScanKernel *s, NodeId id)
{
    const ScanWalk *back = scan_walks(&s->k->p->program[BACKWARD])->chunks;
    bool few = s->w->chunks && back && back->replays && scan_state_behind(s, id) >= 0;
    int every = few ? back->steps : 1, at = mutate("wrong-checkpoint") ? 0 : every - 1;
    if (every == 1)
        return s->x->saves;
    const KirExpr *place = code_binary(s->x, KB_MOD, kir_var(s->kir, s->counted), code_int(s->x, every));
    return code_binary(s->x, KB_AND, s->x->saves, code_binary(s->x, KB_EQ, place, code_int(s->x, at)));
}

static const KirExpr *wants(Code *x, NodeId id, const KirExpr *p)
{
    ScanKernel *s = x->of_schedule;
    int n = 0;
    if (s->k->pr->dir == FORWARD)
        return saves(s, id);
    if (!s->w->chunks)
        return p;
    while (n < s->wanted.len && s->wanted.data[n]->var != p->var)
        n++;
    if (n == s->wanted.len) {
        vec_push(s->kir->arena, &s->wanted, p);
        vec_push(s->kir->arena, &s->wants,
                 scan_variable(s, k_text(s->k, "wants%s", p->var->name + 1), KT_BOOL));
    }
    return kir_var(s->kir, s->wants.data[n]);
}

/* ---- the plain walk ---- */

/* What steps from `first` on read, all of them under way at once. Of those that are next there is one. */
static void read_steps(ScanKernel *s, const KirExpr *first, bool next)
{
    KirReplaced to[KT_COUNT];
    KirOpen any = { 0 };
    int n = 0;
    if (s->reads.len == 0)
        return;
    for (int i = 0; next && i < KT_COUNT; i++)
        if (s->ahead[i].local)
            to[n++] = (KirReplaced){ s->ahead[i].local, kir_var(s->kir, s->ahead[i].next) };
    scan_open_loop(s, s->u, code_int(s->x, s->steps));
    if (!next)
        any = kir_if(s->kir, code_binary(s->x, KB_GT, code_steps(s->x), code_int(s->x, 0)));
    scan_let_step(s, scan_step_or_last(s, code_add(s->x, first, kir_var(s->kir, s->u))));
    kir_append_replaced(s->kir, &s->early, to, n);
    if (!next)
        kir_close(s->kir, any);
    scan_close_loop(s);
}

static void first_reads(ScanKernel *s)
{
    scan_declare_reads(s, false);
    read_steps(s, code_int(s->x, 0), false);
}

static void next_reads(ScanKernel *s, const KirExpr *begin)
{
    scan_declare_reads(s, true);
    read_steps(s, code_add(s->x, begin, code_int(s->x, s->steps)), true);
}

static void take_reads(ScanKernel *s)
{
    for (int i = 0; i < KT_COUNT; i++) {
        const AheadArray *a = &s->ahead[i];
        if (!a->local)
            continue;
        scan_open_loop(s, s->u, code_int(s->x, s->steps));
        scan_open_loop(s, s->j, code_int(s->x, a->elements));
        const KirExpr *u = kir_var(s->kir, s->u), *j = kir_var(s->kir, s->j);
        const KirExpr *to = kir_element(s->kir, kir_var(s->kir, a->local), u);
        const KirExpr *next = kir_element(s->kir, kir_var(s->kir, a->next), u);
        kir_assign(s->kir, kir_element(s->kir, to, j), kir_element(s->kir, next, j));
        scan_close_loop(s);
        scan_close_loop(s);
    }
}

static void walk_steps(ScanKernel *s)
{
    Code *x = s->x;
    const KirExpr *begin;
    KirOpen turns = code_for(x, "begin", code_int(x, 0), code_steps(x), code_int(x, s->steps), &begin);
    next_reads(s, begin);
    scan_open_loop(s, s->u, code_int(x, s->steps));
    const KirExpr *u = kir_var(s->kir, s->u);
    KirOpen there = kir_if(s->kir, code_binary(x, KB_LT, code_add(x, begin, u), code_steps(x)));
    scan_let_step(s, scan_step_number(s, begin, u));
    kir_append(s->kir, &s->body);
    kir_append(s->kir, &s->late);
    kir_close(s->kir, there);
    scan_close_loop(s);
    take_reads(s);
    kir_close(s->kir, turns);
}

static void plain_walk(ScanKernel *s)
{
    Code *x = s->x;
    Kir *k = s->kir;
    scan_step(s);
    s->steps = walk_depth(s->registers);
    const KirExpr *threads = code_int(x, SCAN_THREADS);
    s->elements = code_let(x, "elements", code_mul(x, code_batch(x), code_size(x, s->w->units)));
    const KirExpr *first = code_mul(x, kir_special(k, KP_BLOCK, 0), threads);
    KirOpen loop = kir_for_var(k, s->n, code_add(x, first, kir_special(k, KP_THREAD, 0)), KB_LT, s->elements,
                               code_mul(x, kir_special(k, KP_BLOCKS, 0), threads));
    scan_split_units(s);
    code_sequence(x);
    kir_append(k, &s->indices);
    scan_states(s);
    kir_append(k, &s->once);
    scan_each_sum(s, scan_declare_sum);
    first_reads(s);
    walk_steps(s);
    scan_last_states(s);
    scan_each_sum(s, scan_store_sum);
    kir_close(k, loop);
}

/* ---- a kernel ---- */

static Group *step_group(const Kernel *k)
{
    int i = 0;
    while (k->pr->groups.data[i].kind != G_UNITS)
        i++;
    return &k->pr->groups.data[i];
}

/* The step is built before the frame that declares them. */
static void name_states(ScanKernel *s)
{
    Kernel *k = s->k;
    KirBlock none = { .data = NULL }, *outer = kir_enter(s->kir, &none);
    s->states = arena_alloc(s->kir->arena, sizeof *s->states * (size_t)k->p->m->tensors.len);
    s->sums = arena_alloc(s->kir->arena, sizeof *s->sums * (size_t)k->p->m->nodes.len);
    for (TensorId state = 0; state < k->p->m->tensors.len; state++)
        if (scan_is_state(s, state))
            s->states[state] = scan_declare(s, state_name(k, state), scan_elements_of_state(s, state), false);
    kir_enter(s->kir, outer);
}

/* Chunks of steps that read little fit into half of an SM's registers, and one block's reads hide the
 * other's work (HGRN forward: 0.147 ms for 0.181); those of backward would spill, unless a block has half
 * as many threads. Where states are recomputed beside staged reads, which hide themselves, they spill even
 * so. */
static int resident(const ScanKernel *s)
{
    bool small = (scan_in_pairs(s) && !(s->staged && s->w->replays)) || s->registers <= 3;
    return s->w->chunks && small && s->k->p->compute == DT_F32 ? 2 : 0;
}

void scan_print(Plan *p, Program *pr, ScanWalk *w, Buf *out)
{
    static const CodeWalk walk = { .held = held,
                                   .element = scan_element,
                                   .once = scan_once,
                                   .adjacent = scan_adjacent,
                                   .first_unit = scan_first_unit,
                                   .ahead = scan_ahead,
                                   .carries = carries,
                                   .wants = wants };
    Kernel k = kernel_new(p, pr, NULL, &w->refs, out);
    k.threads = scan_threads(w);
    ScanKernel s = { .k = &k, .w = w, .g = step_group(&k) };
    s.x = code_new(&k, w->kernel);
    s.kir = s.x->kir;
    s.x->walk = &walk;
    s.x->of_schedule = &s;
    walk_begin(&k, &s.walk);
    k.g = s.g;
    scan_begin(&s);
    name_states(&s);
    if (w->chunks)
        scan_chunks(&s);
    else
        plain_walk(&s);
    s.kir->resident = resident(&s);
    w->steps = w->chunks ? s.steps : 0;
    w->staged = s.staged;
    k.g = NULL;
    code_print(p, code_end(s.x), out);
    walk_end(&k);
    kernel_release(&k);
}
