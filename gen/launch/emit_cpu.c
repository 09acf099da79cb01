/* emit_cpu.c: the file of an instance's kernels for the CPU, NAME_cpu.c: the kernels, a table of them,
 * and their launch plans with a description of the cell. The file is compiled for several levels of an
 * architecture, each of which has a table of its own; one of them has the plans. In comes a plan that
 * was requested for the CPU. */
#include "emit_cpu.h"

#include "interface.h"

/* PIECE: operations that are worth a thread's while. */
enum { PIECE = 1 << 15 };

struct CpuPlan {
    Vec(CpuKernel) kernels;
    int *first[2]; /* per group of a direction: its first kernel, and behind the last group the end */
    CpuKernel states[3], *histories;
};

static void print_group(Plan *p, CpuPlan *cpu, Direction d, int i, Buf *text)
{
    CpuKernel out[2];
    int n = cpu_group(p, &p->program[d], &p->program[d].groups.data[i], out, text);
    cpu->first[d][i] = cpu->kernels.len;
    for (int k = 0; k < n; k++)
        vec_push(p->m->arena, &cpu->kernels, out[k]);
    cpu->first[d][i + 1] = cpu->kernels.len;
}

static CpuPlan *print_kernels(Plan *p, StateKernels *states, HistoryKernel *histories, int n_histories,
                              Buf *text)
{
    Module *m = p->m;
    CpuPlan *cpu = arena_alloc(m->arena, sizeof *cpu);
    static const char *const what[] = { "init", "seed", "result" };
    bool steps = false;
    for (int d = 0; d < 2; d++) {
        int n = p->program[d].groups.len;
        cpu->first[d] = arena_alloc(m->arena, sizeof *cpu->first[d] * (size_t)(n + 1));
        for (int i = 0; i < n; i++)
            print_group(p, cpu, d, i, text);
        if (p->schedule->print_cpu)
            p->schedule->print_cpu(p, &p->program[d], text);
    }
    for (TensorId t = 0; t < m->tensors.len; t++)
        steps |= m->tensors.data[t].kind == T_STATE && emit_has_state_kernels(p);
    for (int i = 0; i < 3; i++) {
        states->name[i] = intern_f(m->c, "%s_%s", m->name, what[i]);
        if (steps && (i == STATE_INIT || m->has_grad))
            cpu_states(p, states, i, &cpu->states[i], text);
    }
    cpu->histories = arena_alloc(m->arena, sizeof *cpu->histories * (size_t)(n_histories + 1));
    for (int i = 0; i < n_histories; i++)
        cpu_history(p, &histories[i], &cpu->histories[i], text);
    return cpu;
}

const char *emit_cpu_grain(Print *e, const Formula *work)
{
    Module *m = e->p->m;
    return work
               ? emit_expr(e, formula(m, F_CEILDIV, formula_const(m, PIECE), formula_with(m, F_MAX, work, 1)))
               : "NULL";
}

static void print_op(Print *e, const Group *g, const CpuKernel *k)
{
    emit_limit_refs(e, k->name, k->refs);
    if (!emit_has_kernel(e, k->name)) {
        int number = emit_cpu_row(e, k->name);
        buf_f(&e->table, ", .code = code, .number = %d", number);
        if (k->scratch)
            buf_f(&e->table, ", .smem = %s", emit_expr(e, k->scratch));
        buf_f(&e->table, " },\n");
    }
    int kernel = emit_kernel_index(e, k->name);
    const char *need = emit_need_name(e, g), *items = emit_expr(e, k->items),
               *each = emit_cpu_grain(e, k->work);
    const char *wanted = emit_wanted(e, g, k->refs);
    int list = emit_refs(e, k->refs);
    buf_f(&e->ops,
          "    { .name = \"%s\", .kind = CELL_OP_KERNEL, .need = %s,\n"
          "      .u.kernel = { .kernel = %d, .n_refs = %d, .grid = { %s, %s, NULL }, .refs = %srefs_%d%s } "
          "},\n",
          k->name, need, kernel, k->refs->len, items, each, e->tag, list, wanted);
    e->n_ops++;
}

void emit_cpu_group(Print *e, const Group *g)
{
    const CpuPlan *cpu = e->cpu;
    int i = (int)(g - e->pr->groups.data);
    if (g->kind == G_SCATTER)
        emit_zeros(e, g);
    for (int k = cpu->first[e->pr->dir][i]; k < cpu->first[e->pr->dir][i + 1]; k++)
        print_op(e, g, &cpu->kernels.data[k]);
}

void emit_cpu_states(Print *e, const Group *own, int which)
{
    print_op(e, own, &e->cpu->states[which]);
}

void emit_cpu_history(Print *e, const Group *own, int i)
{
    print_op(e, own, &e->cpu->histories[i]);
}

/* The functions in the order of the kernels' numbers. */
static void print_code(Print *e, const char *name, Buf *out)
{
    buf_f(out, "const cell_cpu_fn CELL_CPU_TABLE(%s)[] = {\n", name);
    for (int i = 0; i < e->kernels.len; i++)
        buf_f(out, "    %s,\n", e->kernels.data[i]);
    buf_f(out, "    NULL\n};\n\n");
}

void emit_cpu(Plan *p, const char *name, Buf *out)
{
    Module *m = p->m;
    StateKernels states = { 0 };
    HistoryKernel *histories = arena_alloc(m->arena, sizeof *histories * (size_t)(m->tensors.len + 1));
    int n_reserve;
    if (emit_is_too_large(p))
        return;
    p->kernels = arena_alloc(m->arena, sizeof *p->kernels);
    Buf text = { .arena = m->arena }, tables = { .arena = m->arena };
    int n_histories = emit_find_histories(p, histories);
    Print e = { .p = p,
                .host = &tables,
                .tag = "",
                .states = &states,
                .histories = histories,
                .n_histories = n_histories };
    e.cpu = print_kernels(p, &states, histories, n_histories, &text);
    emit_directions(&e, &n_reserve);
    buf_f(out,
          "/* %s: kernels for the CPU and their launch plans, written by cellc. */\n#define CELL_CPU_DOUBLE "
          "%d\n"
          "#include \"cell_cpu.h\"\n\n",
          name, p->compute == DT_F64);
    put_tables((const Plan *const[]){ p }, 1, "", out);
    buf_f(out, "%s", text.data ? text.data : "");
    print_code(&e, name, out);
    buf_f(out, "#if CELL_CPU_HAS_PLAN\n#include \"cell_plan.h\"\n\nCELL_CPU_CODE(%s)\n\n%s", name,
          tables.data);
    buf_f(out, "static const cell_kernel kernel_table[] = {\n%s%s};\n\n", e.table.data ? e.table.data : "",
          e.table.data ? "" : "    { .name = \"none\" },\n");
    HostPlan plan = { .forward = "forward_plan",
                      .backward = "backward_plan",
                      .kernels = "kernel_table",
                      .reserve = n_reserve ? "reserve_buffers" : NULL,
                      .n_kernels = e.kernels.len,
                      .n_reserve = n_reserve,
                      .how = p->how };
    emit_host_description(m, &plan, intern_f(m->c, "%s_cpu_description", name), out);
    buf_f(out, "#endif\n");
}
