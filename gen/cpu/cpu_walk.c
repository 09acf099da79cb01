/* cpu_walk.c: walks on chip (tile) as kernels for the CPU: whether a plan's are taken, how many steps
 * lie between its checkpoints, and what a launch needs to know of them (walk.c prints them). */
#include "cpu.h"
#include "walk.h"

/* KEPT: bytes of states that backward keeps of the steps between two checkpoints, so that a core's
 * second cache has room for them beside what the steps read. MOST_KEPT: steps. */
enum { KEPT = 320 * 1024, MOST_KEPT = 32 };

static CpuWalk *new_walk(Plan *p)
{
    return arena_alloc(p->m->arena, sizeof(CpuWalk));
}

const Reason *cpu_walk_refuses(Plan *p)
{
    for (int d = 0; d < 2; d++) {
        Group *g = plan_walk(p, d);
        CpuWalk *w = new_walk(p);
        Buf nothing = { .arena = p->m->arena, .dropped = true };
        if (g && !walk_print(w, p, &p->program[d], g, &nothing))
            return w->refused;
    }
    return NULL;
}

static int64_t state_bytes(const Plan *p)
{
    const Module *m = p->m;
    const Poly *par[MAX_PARALLEL];
    int64_t bytes = 0;
    int npar = p->schedule->blocks(m, par);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        int64_t n = p->dtype == DT_F64 ? 8 : 4;
        if (x->kind != T_STATE || m->roots.data[t].next < 0)
            continue;
        for (int k = npar; k < x->rank; k++)
            n *= x->axes[k]->value;
        bytes += n;
    }
    return bytes;
}

void cpu_walk_settle(Plan *p)
{
    Module *m = p->m;
    int64_t steps = KEPT / state_bytes(p);
    p->interval = steps < 1 ? 1 : steps > MOST_KEPT ? MOST_KEPT : (int)steps;
    p->by_thread = 0;
    for (int d = 0; d < 2; d++) {
        const Program *pr = &p->program[d];
        Group *g = plan_walk(p, d);
        if (!g)
            continue;
        g->walk->interval = p->interval;
        g->walk->by_thread = 0;
        for (TensorId t = 0; t < m->tensors.len; t++) {
            if (pr->checkpoint[t] < 0)
                continue;
            Buffer *b = &p->buffers.data[pr->checkpoint[t]];
            b->per_steps = p->interval;
            b->elements = poly_mul(m, poly_dim(m, ATOM_B),
                                   poly_product(m, m->tensors.data[t].axes, m->tensors.data[t].rank));
        }
    }
}

void cpu_walk_group(Plan *p, Program *pr, Group *g, CpuKernel *out, Buf *text)
{
    Module *m = p->m;
    CpuWalk *w = new_walk(p);
    buf_f(text, "#include \"cell_cpu_vector.h\"\n\n");
    if (!walk_print(w, p, pr, g, text))
        bug(m->c, "cpu", "%s is not walked: %s", g->kernel, reason_words(m, w->refused));
    buf_f(text, "\n");
    g->walk->refs = g->refs = w->refs;
    *out = (CpuKernel){ .name = g->kernel,
                        .refs = &g->refs,
                        .items = formula_size(m, poly_mul(m, poly_dim(m, ATOM_B), g->walk->blocks)),
                        .scratch = formula_const(m, w->scratch * (w->is_double ? 8 : 4)) };
}
