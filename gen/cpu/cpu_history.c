/* cpu_history.c: what a call leaves of a history. In comes a history; out goes a kernel. Of a history of all
 * steps an item is a row that a step of the call leaves, or, of each sequence, the places of other steps; of
 * one of the last steps the kernel is the GPU's, by one thread. */
#include "cpu.h"

typedef struct Rows {
    const Tensor *of;
    const Node *root;
    const KirExpr *to, *elements, *places;
} Rows;

/* Elements [first, end) from another buffer, or zeros where there is none. */
static void copy(Code *x, const Rows *r, const KirExpr *first, const KirExpr *end)
{
    Kir *k = x->kir;
    const KirExpr *from = code_pointer(x, REF_TENSOR, x->k->history, r->of->dtype), *e;
    const KirExpr *zero = r->of->dtype == DT_I32 ? code_int(x, 0) : kir_real(k, code_real(x), 0);
    KirOpen given = kir_if(k, from);
    for (int i = 0; i < 2; i++) {
        KirOpen loop = code_for(x, names_fresh(&x->k->locals, "e"), first, end, code_int(x, 1), &e);
        loop.statement->n = KIR_LANES;
        if (i == 0)
            kir_assign(k, kir_element(k, r->to, e), kir_element(k, from, e));
        else
            kir_store(k, code_add(x, r->to, e), zero, NULL);
        kir_close(k, loop);
        if (i == 0)
            kir_else(k, &given);
    }
    kir_close(k, given);
}

/* The places in front of the call's steps and behind them, where another buffer has them. */
static void other_places(Code *x, const Rows *r)
{
    Kir *k = x->kir;
    const KirExpr *from = code_pointer(x, REF_TENSOR, x->k->history, r->of->dtype);
    const KirExpr *start = code_nodes.start(&x->printer);
    KirOpen another = kir_if(k, code_binary(x, KB_NE, from, r->to));
    const KirExpr *row = code_let(x, "first_row", code_mul(x, x->b, r->places));
    const KirExpr *now = code_let(x, "now", code_add(x, row, start)),
                  *behind = code_let(x, "behind", code_add(x, now, code_steps(x))),
                  *end = code_let(x, "last_row", code_add(x, row, r->places));
    copy(x, r, code_mul(x, row, r->elements), code_mul(x, now, r->elements));
    copy(x, r, code_mul(x, behind, r->elements), code_mul(x, end, r->elements));
    kir_close(k, another);
}

/* What a step leaves. */
static void step_row(Code *x, const Rows *r, const KirExpr *step)
{
    Kir *k = x->kir;
    KirOpen open[MAX_DIMS + 64];
    const KirExpr *place = code_let(x, "place", code_add(x, code_nodes.start(&x->printer), step)), *at = NULL;
    const KirExpr *row =
        code_let(x, "first", code_mul(x, code_add(x, code_mul(x, x->b, r->places), place), r->elements));
    const int n = cpu_open_indices(x, r->root->axes + 1, r->root->naxes - 1, "i", true, open);
    for (int i = 1; i < r->root->naxes; i++) {
        const KirExpr *own = x->index[r->root->axes[i]];
        at = !at ? own
                 : code_add(x,
                            code_mul(x, at, code_size(x, x->k->p->m->indices.data[r->root->axes[i]].extent)),
                            own);
    }
    Named named = { 0 };
    x->index[r->root->axes[0]] = place;
    const NodeId value = r->root->args[0];
    const KirExpr *v = r->of->dtype == DT_I32
                           ? kir_convert(k, kir_value(KT_I32), expr_node(&x->printer, value))
                           : code_value(x, value, &named);
    kir_store(k, code_add(x, r->to, at ? code_add(x, row, at) : row), v, NULL);
    code_forget(x, &named);
    cpu_close_all(x, open, n);
}

static void all_steps(Code *x, const Tensor *of)
{
    Kir *k = x->kir;
    const Node root = *k_node(x->k, x->k->p->m->roots.data[x->k->history].last);
    Rows r = { .of = of, .root = &root, .to = code_written(x, REF_FINAL, x->k->history, of->dtype) };
    const KirExpr *item, *step, *steps = code_steps(x);
    KirOpen unwanted = kir_if(k, kir_not(k, r.to));
    kir_statement(k, KI_RETURN);
    kir_close(k, unwanted);
    r.elements = code_let(x, "elements", code_sizes(x, of->axes + 1, of->rank - 1));
    r.places = code_let(x, "places", code_size(x, of->axes[0]));
    KirOpen items = cpu_items(x, &item);
    x->b = cpu_divide(x, "b", item, code_let(x, "each", code_add(x, steps, code_int(x, 1))), &step);
    KirOpen last = kir_if(k, code_binary(x, KB_EQ, step, steps));
    other_places(x, &r);
    kir_else(k, &last);
    step_row(x, &r, step);
    kir_close(k, last);
    kir_close(k, items);
}

void cpu_history(Plan *p, HistoryKernel *h, CpuKernel *out, Buf *text)
{
    Module *m = p->m;
    Kernel k = kernel_new(p, &p->program[FORWARD], NULL, &h->refs, text);
    const Tensor of = m->tensors.data[h->history];
    k.history = h->history;
    Code *x = cpu_open(&k, h->name);
    *out = (CpuKernel){ .name = h->name, .refs = &h->refs, .items = formula_const(m, 1) };
    if (of.grows) {
        all_steps(x, &of);
        out->items = formula_size(m, poly_mul(m, poly_dim(m, ATOM_B),
                                              poly_add(m, poly_dim(m, ATOM_T), poly_const(m, 1))));
        out->work = cpu_product(p, of.axes + 1, of.rank - 1);
    } else {
        history_kernel(x);
    }
    cpu_close(x, text);
    kernel_release(&k);
}
