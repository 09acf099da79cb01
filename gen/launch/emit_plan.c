/* emit_plan.c: the launch plans of a planned cell as static C data, with the kernel table and the reserve,
 * and the .cu that holds the kernels. In comes a plan whose every decision is made; out go two texts. The
 * host text ends with the C interface over these tables (emit_host.c). */
#include <string.h>

#include "emit_cpu.h"
#include "emit_plan.h"
#include "interface.h"

void emit_phase(Print *e, Phase phase)
{
    for (int i = 0; i < e->pr->groups.len; i++) {
        Group *g = &e->pr->groups.data[i];
        if (g->phase != phase)
            continue;
        if (g->together)
            i = emit_together(e, i);
        else if (g->kind == G_GEMM)
            emit_gemm(e, g);
        else if (e->cpu)
            emit_cpu_group(e, g);
        else if (g->kind == G_SCATTER)
            emit_scatter_op(e, g);
        else
            emit_group_kernel(e, g);
    }
}

static bool is_state(const Module *m, TensorId t)
{
    return m->tensors.data[t].kind == T_STATE;
}

void emit_states(Print *e, int which)
{
    Module *m = e->p->m;
    bool by_itself = which == STATE_RESULT && e->own_states;
    LaunchTerms terms = { .when = by_itself ? emit_expr(e, formula_not(m, e->own_states)) : NULL };
    const Poly *most = poly_const(m, 0);
    Group own = { .always = which != STATE_RESULT };
    for (TensorId t = 0; t < m->tensors.len; t++) {
        if (!is_state(m, t))
            continue;
        most = poly_add(m, most, tensor_elements(m, t));
        int arg = which == STATE_RESULT ? emit_arg_of(e, t, ROLE_D_VALUE) : -1;
        if (arg >= 0)
            vec_push(m->arena, &own.need, arg);
    }
    if (most->nterms && e->cpu)
        emit_cpu_states(e, &own, which);
    else if (most->nterms)
        emit_kernel_op_with(e, &own, e->states->name[which], 256, 0, &e->states->refs[which],
                            emit_blocks_expr(e, poly_mul(m, poly_dim(m, ATOM_B), most), 256), "NULL", terms);
}

Opened emit_open(Print *e)
{
    Opened o = { e->ops, e->n_ops++ };
    e->ops = (Buf){ .arena = e->p->m->arena };
    return o;
}

bool emit_drop_empty(Print *e, const Opened *o)
{
    if (e->n_ops > o->at + 1)
        return false;
    e->ops = o->before;
    e->n_ops--;
    return true;
}

void emit_close(Print *e, const Opened *o, const char *name, const char *head)
{
    Buf inside = e->ops;
    e->ops = o->before;
    buf_f(&e->ops, "    { .name = \"%s\", %s%d } },\n%s", name, head, e->n_ops - o->at - 1,
          inside.data ? inside.data : "");
}

void emit_forms_end(Print *e, const Opened *o, const char *name)
{
    emit_close(e, o, name, ".kind = CELL_OP_FORMS,\n      .u.list = { .n_ops = ");
}

void emit_list_end(Print *e, const Opened *o, const char *name, const char *when)
{
    emit_close(e, o, name,
               intern_f(e->p->m->c, ".kind = CELL_OP_LIST, .when = %s,\n      .u.list = { .n_ops = ", when));
}

/* Behind all that reads what the call began with: the two may be one buffer. One that the call does not take is not made. */
static void print_histories(Print *e)
{
    Module *m = e->p->m;
    for (int i = 0; i < e->n_histories; i++) {
        HistoryKernel *h = &e->histories[i];
        const Tensor *x = &m->tensors.data[h->history];
        Group own = { .always = false };
        const Poly *work = poly_dim(m, ATOM_B);
        for (int k = 1; k < x->rank; k++)
            work = poly_mul(m, work, x->axes[k]);
        if (x->grows)                     /* not its room: a step in place writes one row; no steps may leave a copy */
            work = poly_mul(m, work, poly_add(m, poly_dim(m, ATOM_T), poly_const(m, 1)));
        vec_push(m->arena, &own.need, emit_arg_of(e, h->history, ROLE_FINAL));
        if (e->cpu)
            emit_cpu_history(e, &own, i);
        else
            emit_kernel_op(e, &own, h->name, 256, 0, &h->refs, emit_blocks_expr(e, work, 256), "NULL");
    }
}

/* Do kernels of their own begin and end the walk? */
bool emit_has_state_kernels(const Plan *p)
{
    return !p->schedule->on_chip && !p->own_ends;
}

static void limit_buffers(const Plan *p, int n, const char *of)
{
    if (n > MAX_BUFFERS)
        diag(p->m->c, DIAG_ERROR, p->m->span,
             "%s of this cell has %d arrays in memory; at most %d: a repeat of fewer iterations, fewer "
             "definitions, or several of them as one with one more axis", of, n, MAX_BUFFERS);
}

static void print_direction(Print *e, Direction dir)
{
    Module *m = e->p->m;
    const char *name = intern_f(m->c, "%s%s", e->tag, dir == FORWARD ? "forward" : "backward");
    bool ends = emit_has_state_kernels(e->p);
    e->pr = &e->p->program[dir];
    e->args = dir == FORWARD ? forward_arguments(m) : backward_arguments(m);
    e->ops = (Buf){ .arena = m->arena };
    e->n_ops = 0;
    e->used.len = 0;
    e->walked = e->own_states = NULL;
    for (int i = 0; i < e->p->buffers.len; i++)
        e->buffer[i] = -1;
    emit_phase(e, PHASE_PARAM);
    emit_phase(e, PHASE_BEFORE);
    if (e->p->schedule->on_chip)
        emit_phase(e, PHASE_DURING);
    else
        emit_walk(e, ends);
    emit_phase(e, PHASE_AFTER);
    if (dir == FORWARD)
        print_histories(e);
    if (dir == BACKWARD && ends)
        emit_states(e, STATE_RESULT);
    emit_buffers(e, name);
    if (e->n_ops == 0) {
        buf_f(&e->ops, "    { .name = \"nothing\", .kind = CELL_OP_FILL },\n");
    }
    limit_buffers(e->p, e->args.len + e->used.len, name);
    buf_f(e->host, "\nstatic const cell_op %s_ops[] = {\n%s};\n", name, e->ops.data);
    buf_f(e->host, "\nstatic const cell_plan %s_plan = { %s_buffers, %s_ops, %d, %d };\n\n", name, name, name,
          e->args.len + e->used.len, e->n_ops);
}

static void print_reserve(Print *e, int *count)
{
    Buf rows = { .arena = e->p->m->arena };
    int n = 0;
    for (int i = 0; i < e->p->buffers.len; i++) {
        const Buffer *b = &e->p->buffers.data[i];
        e->reserve[i] = b->reserve ? n++ : -1;
        if (b->reserve)
            buf_f(&rows, "    { \"%s\", CELL_FROM_RESERVE, %s, %d, %s },\n", b->name, dtype_constant(b->dtype),
                  e->reserve[i], emit_buffer_bytes(e, i, true));
    }
    if (n)
        buf_f(e->host, "\nstatic const cell_buffer %sreserve_buffers[] = {\n%s};\n\n", e->tag,
              rows.data);
    limit_buffers(e->p, n, "the reserve");
    *count = n;
}

/* A value's history stands behind those of what it is made of, and may read them: it is written before they are, since one buffer
 * may be both what a call begins with and what it leaves. */
int emit_find_histories(Plan *p, HistoryKernel *out)
{
    int n = 0;
    for (TensorId t = p->m->tensors.len - 1; t >= 0; t--)
        if (p->m->roots.data[t].last >= 0)
            out[n++] = (HistoryKernel){ .history = t, .name = intern_f(p->m->c, "%s_last_%d", p->m->name, t) };
    return n;
}

/* A plan for certain calls takes the kernels of those printed before it, where they have the same text. */
static bool printed_before(const Plan *p, const Buf *kernel, const Buf *cuda)
{
    return p->calls != CALLS_ANY && (!kernel->data || (cuda->data && strstr(cuda->data, kernel->data)));
}

static void print_group(Plan *p, Program *pr, Group *g, Buf *cuda)
{
    const Group before = *g;
    const int built = p->kernels->len;
    Buf text = { .arena = p->m->arena };
    if (g->kind == G_SCATTER) {
        emit_scatter(p, pr, g, cuda);
        return;
    }
    emit_group(p, pr, g, &text);
    if (printed_before(p, &text, cuda)) {
        p->kernels->len = built;
        return;
    }
    if (p->calls != CALLS_ANY && g->kind != G_WALK) {
        *g = before;                  /* what its launch needs is found anew too */
        p->kernels->len = built;
        g->kernel = intern_f(p->m->c, "%s%s", g->kernel, plan_suffix(p->calls));
        text = (Buf){ .arena = p->m->arena };
        emit_group(p, pr, g, &text);
    }
    buf_f(cuda, "%s", text.data ? text.data : "");
}

/* Where it cannot be, the two stay apart. */
static void print_fused_kernel(Plan *p, Program *pr, Fused *f, Buf *cuda)
{
    Buf text = { .arena = p->m->arena };
    const int built = p->kernels->len;
    if (!emit_fused(p, pr, f, &text)) {
        if (f->ahead)
            bug(p->m->c, "emit_plan", "%s reads the product that it is made for", f->kernel);
        f->product->fused = f->map->fused = NULL;
        return;
    }
    if (printed_before(p, &text, cuda)) {
        p->kernels->len = built;
        return;
    }
    if (p->calls != CALLS_ANY) {
        p->kernels->len = built;
        f->kernel = intern_f(p->m->c, "%s%s", f->kernel, plan_suffix(p->calls));
        text = (Buf){ .arena = p->m->arena };
        emit_fused(p, pr, f, &text);
    }
    buf_f(cuda, "%s", text.data);
}

static void print_kernels(Plan *p, StateKernels *states, Buf *cuda)
{
    Module *m = p->m;
    static const char *const what[] = { "init", "seed", "result" };
    bool steps = false;
    for (TensorId t = 0; t < m->tensors.len; t++)
        steps |= is_state(m, t) && emit_has_state_kernels(p);
    for (int k = 0; k < 3; k++)
        states->name[k] = intern_f(m->c, "%s_%s%s", m->name, what[k], plan_suffix(p->calls));
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < p->program[d].groups.len; i++)
            print_group(p, &p->program[d], &p->program[d].groups.data[i], cuda);
        for (int i = 0; i < p->program[d].groups.len; i++)
            if (p->program[d].groups.data[i].kind != G_GEMM && p->program[d].groups.data[i].fused)
                print_fused_kernel(p, &p->program[d], p->program[d].groups.data[i].fused, cuda);
        for (int i = 0; i < p->program[d].parts.len; i++)
            emit_parts_kernel(p, &p->program[d], p->program[d].parts.data[i], cuda);
        if (p->schedule->print_walks)
            p->schedule->print_walks(p, &p->program[d], cuda);
    }
    if (steps)
        emit_state_kernels(p, states, cuda);
    emit_places_kernel(p, cuda);
}

const char *emit_schedule_words(const Plan *p)
{
    const char *name = p->schedule->name;
    if (!p->schedule->on_chip)
        return intern_f(p->m->c, "schedule %s", name);
    return intern_f(p->m->c, "schedule %s, a checkpoint every %s", name,
                    p->interval == 1 ? "step" : intern_f(p->m->c, "%d steps", p->interval));
}

void emit_directions(Print *e, int *n_reserve)
{
    Module *m = e->p->m;
    e->table.arena = m->arena;
    e->buffer = arena_alloc(m->arena, sizeof *e->buffer * (size_t)(e->p->buffers.len + 1));
    e->reserve = arena_alloc(m->arena, sizeof *e->reserve * (size_t)(e->p->buffers.len + 1));
    print_reserve(e, n_reserve);
    print_direction(e, FORWARD);
    print_direction(e, BACKWARD);
}

/* Kernels that bring rows of states into the arrays of a call, and back: any plan's calls take them. */
static void print_rows_kernels(Print *e, HostPlan *plan, Buf *cuda)
{
    enum { THREADS = 256 };
    static const char *const what[] = { "take", "put" };
    int *number[] = { &plan->take, &plan->put };
    Module *m = e->p->m;
    bool any = false;
    for (TensorId t = 0; t < m->tensors.len; t++)
        any |= m->tensors.data[t].kind == T_STATE || m->tensors.data[t].kind == T_HISTORY;
    for (int k = 0; k < 2 && any && m->c->slots && !*e->tag; k++) {
        const char *name = intern_f(m->c, "%s_rows_%s", m->name, what[k]);
        buf_f(cuda,
              "extern \"C\" __global__ void __launch_bounds__(%d)\n%s(const __grid_constant__ "
              "cell_kernel_args args)\n"
              "{\n    cell_slots_%s(args);\n}\n\n",
              THREADS, name, what[k]);
        *number[k] = emit_kernel_number(e, name) + 1;
        buf_f(&e->table, ", .threads = %d },\n", THREADS);
    }
}

/* The kernels of one plan, and its tables, whose names begin with `tag`. */
static HostPlan emit_one(Plan *p, const char *tag, Buf *cuda, Buf *host)
{
    Module *m = p->m;
    StateKernels states = { 0 };
    print_kernels(p, &states, cuda);
    HistoryKernel *histories = arena_alloc(m->arena, sizeof *histories * (size_t)(m->tensors.len + 1));
    int n_histories = emit_find_histories(p, histories);
    for (int i = 0; i < n_histories; i++)
        emit_history_kernel(p, &histories[i], cuda);

    Buf tables = { .arena = m->arena };
    Print e = { .p = p, .host = &tables, .tag = tag, .states = &states, .histories = histories, .n_histories = n_histories };
    int n_reserve;
    emit_directions(&e, &n_reserve);
    const char *takes = p->calls != CALLS_ANY ? emit_expr(&e, form_takes_call(p))
                        : p->smaller          ? emit_expr(&e, form_device_runs(p))
                                              : NULL;
    HostPlan plan = { 0 };
    print_rows_kernels(&e, &plan, cuda);

    for (int i = 0; i < e.kernels.len; i++)
        buf_line(host, "CELL_KERNEL_SYMBOL void %s(cell_kernel_args args);", e.kernels.data[i]);
    buf_f(host, "\n%s", tables.data);
    buf_f(host, "static const cell_kernel %skernel_table[] = {\n%s};\n\n", tag, e.table.data ? e.table.data : "");
    return (HostPlan){ .take = plan.take,
                       .put = plan.put,
                       .forward = intern_f(m->c, "%sforward_plan", tag),
                       .backward = intern_f(m->c, "%sbackward_plan", tag),
                       .kernels = intern_f(m->c, "%skernel_table", tag),
                       .reserve = n_reserve ? intern_f(m->c, "%sreserve_buffers", tag) : NULL,
                       .n_kernels = e.kernels.len,
                       .n_reserve = n_reserve,
                       .block_memory = p->block_memory,
                       .how = emit_schedule_words(p),
                       .takes = takes };
}

static const char *calls_words(const Plan *p)
{
    if (p->calls == CALLS_LONG)
        return "of several steps";
    if (p->calls == CALLS_SHORT)
        return "of few steps";
    if (p->calls == CALLS_SPLIT)
        return "with few states, which are walked in parts";
    if (p->calls == CALLS_MANY)
        return intern_f(p->m->c, "with more than %d blocks for each of the GPU's multiprocessors", CROWD);
    return p->cluster > 1 ? intern_f(p->m->c, "that leave %d of the GPU's multiprocessors to each state", p->cluster)
                          : "with no more blocks than the GPU has multiprocessors";
}

/* The plans for certain calls, from this one on. */
static HostPlan *emit_others(Plan *p, Buf *cuda, Buf *host)
{
    if (!p)
        return NULL;
    HostPlan *plan = arena_alloc(p->m->arena, sizeof *plan);
    const char *name = plan_suffix(p->calls) + 1;
    buf_f(cuda, "// For calls %s: %s.\n\n", calls_words(p), emit_schedule_words(p));
    *plan = emit_one(p, intern_f(p->m->c, "%s_", name), cuda, host);
    plan->name = name;
    plan->other = emit_others(p->other, cuda, host);
    return plan;
}

/* What would be refused at the end, or be more than is worth printing. */
bool emit_is_too_large(const Plan *p)
{
    enum { MAX_KERNELS = 4096 };
    Module *m = p->m;
    int reserve = 0;
    for (int i = 0; i < p->buffers.len; i++)
        reserve += p->buffers.data[i].reserve;
    limit_buffers(p, reserve, "the reserve");
    for (int d = 0; d < 2; d++)
        if (p->program[d].groups.len > MAX_KERNELS)
            diag(m->c, DIAG_ERROR, m->span, "%s of this cell is %d kernels and products; at most %d",
                 d == FORWARD ? "forward" : "backward", p->program[d].groups.len, MAX_KERNELS);
    return m->c->errors > 0;
}

void emit_cuda(Plan *p, Buf *cuda, Buf *host)
{
    Module *m = p->m;
    if (emit_is_too_large(p))
        return;
    HostPlan *hp = NULL, *first = NULL;
    int level = 0;
    Buf text = { .arena = m->arena };
    Vec(const Plan *) plans = { 0 };
    emit_host_head(m, host);
    Kernels *kernels = arena_alloc(m->arena, sizeof *kernels);
    const char *dump = m->c->dump_after;
    if (!p->smaller && !p->other && !(dump && strcmp(dump, "kernels") == 0))
        kernels->scratch = arena_new();
    for (Plan *q = p; q; q = q->smaller) {
        for (Plan *other = q; other; other = other->other) {
            other->kernels = kernels;
            vec_push(m->arena, &plans, other);
        }
        HostPlan *next = arena_alloc(m->arena, sizeof *next);
        if (q != p)
            buf_f(&text, "// For devices with less shared memory%s: %s.\n\n",
                  p->cluster > 1 ? " or no clusters" : "", emit_schedule_words(q));
        *next = emit_one(q, level ? intern_f(m->c, "small%d_", level) : "", &text, host);
        level++;
        if (hp)
            hp->smaller = next;
        else
            first = next;
        next->other = emit_others(q->other, &text, host);
        hp = next;
    }
    buf_f(cuda, "// %s: CUDA kernels, written by cellc\n#include \"cell_device.cuh\"\n\n", m->name);
    put_tables(plans.data, plans.len, "__device__ ", cuda);
    buf_f(cuda, "%s", text.data ? text.data : "");
    emit_host_plan(m, first, host);
    arena_free(kernels->scratch);
    kernels->scratch = NULL;
}
