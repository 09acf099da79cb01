/* cpu_code.c: what the kernels for the CPU share: the frame around one, and loops over its items and over
 * indices. In comes a kernel of a plan; out goes a tree that was verified and
 * printed as C. */
#include <string.h>

#include "cpu.h"

/* The device's fast functions are not exact enough for what C gives at the same cost. */
Code *cpu_open(Kernel *k, const char *name)
{
    k->threads = 1;
    k->printer.fast = false;
    return code_new(k, name);
}

void cpu_close(Code *x, Buf *text)
{
    cpu_hoist(x);
    cpu_finish(x, text);
}

void cpu_finish(Code *x, Buf *text)
{
    Kir *kernel = code_end(x);
    vec_push(x->k->p->m->arena, x->k->p->kernels, kernel);
    kir_print_c(kernel, text);
}

KirOpen cpu_items(Code *x, const KirExpr **item)
{
    const KirExpr *first = kir_special(x->kir, KP_FIRST, 0), *end = kir_special(x->kir, KP_END, 0);
    return code_for(x, "item", first, end, code_int(x, 1), item);
}

const KirExpr *cpu_divide(Code *x, const char *name, const KirExpr *a, const KirExpr *b, const KirExpr **rest)
{
    if (kir_is_number(b, 1)) {
        *rest = code_int(x, 0);
        return a;
    }
    const KirExpr *q = code_let(x, names_fresh(&x->k->locals, name), code_binary(x, KB_DIV, a, b));
    *rest = code_let(x, names_fresh(&x->k->locals, "rest"), code_sub(x, a, code_mul(x, q, b)));
    return q;
}

int cpu_open_indices(Code *x, const IndexId *axes, int n, const char *prefix, bool lanes, KirOpen *open)
{
    for (int i = 0; i < n; i++) {
        const Index index = x->k->p->m->indices.data[axes[i]];
        const char *name = names_fresh(&x->k->locals, k_text(x->k, "%s_%s", prefix, index.name));
        open[i] =
            code_for(x, name, code_int(x, 0), code_size(x, index.extent), code_int(x, 1), &x->index[axes[i]]);
        if (lanes && i == n - 1)
            open[i].statement->n = KIR_LANES;
    }
    return n;
}

void cpu_close_all(Code *x, const KirOpen *open, int n)
{
    while (n > 0)
        kir_close(x->kir, open[--n]);
}

void cpu_keep_axes(Code *x, NodeId first, int naxes)
{
    for (int i = 0; i < naxes; i++)
        x->own[i] = x->index[k_node(x->k, first)->axes[i]];
}

void cpu_bind_axes(Code *x, NodeId array, int naxes)
{
    for (int i = 0; i < naxes; i++)
        x->index[k_node(x->k, array)->axes[i]] = x->own[i];
}

const Formula *cpu_rows(Plan *p, const Group *g)
{
    return formula_size(p->m, form_rows(p, g));
}

const Formula *cpu_product(Plan *p, const Poly *const *axes, int n)
{
    return formula_size(p->m, poly_product(p->m, axes, n));
}

int cpu_group(Plan *p, Program *pr, Group *g, CpuKernel out[2], Buf *text)
{
    Kernel k = kernel_new(p, pr, g, &g->refs, text);
    int n = 1;
    switch (g->kind) {
    case G_MAP: cpu_map(&k, out, text); break;
    case G_ROW: cpu_row(&k, out, text); break;
    case G_COLUMN:
        if (!g->by_rows)
            cpu_column_sums(&k, out, text);
        n = g->by_rows ? 1 : 2;
        kernel_release(&k);
        k = kernel_new(p, pr, g, &g->refs_2, text);
        cpu_column_totals(&k, out + n - 1, text);
        break;
    case G_SCATTER:
        cpu_scatter(&k, out, text);
        n = 2;
        break;
    case G_WALK: cpu_walk_group(p, pr, g, out, text); break;
    case G_GEMM:
    case G_UNITS: n = 0; break;
    }
    kernel_release(&k);
    return n;
}

/* ---- states, whose kernels are those of the GPU, by one thread ---- */

void cpu_states(Plan *p, StateKernels *s, int which, CpuKernel *out, Buf *text)
{
    Kernel k =
        kernel_new(p, &p->program[which == STATE_INIT ? FORWARD : BACKWARD], NULL, &s->refs[which], text);
    Code *x = cpu_open(&k, s->name[which]);
    state_kernel(x, which);
    cpu_close(x, text);
    kernel_release(&k);
    *out = (CpuKernel){ .name = s->name[which], .refs = &s->refs[which], .items = formula_const(p->m, 1) };
}
