/* cpu_scatter.c: SCATTER groups, sums over batch and time of which each term belongs to one place of an
 * axis. In comes a group of one such sum; out go two kernels: the first sorts the positions (a step of a
 * sequence, and what else is summed over) by place; of the second an item is a piece of the sorted
 * positions, and adds the terms of the places that begin in it, each in the order of its positions.
 * Places outside of the axis come last and go nowhere; where no position is, nothing is written. */
#include "cpu.h"

/* POSITIONS: of a piece. */
enum { POSITIONS = 32 };

typedef struct Sort {
    Code *x;
    const Scatter *of;
    NodeId array;
    const KirExpr *rows, *positions, *keys, *order;
} Sort;

static Sort open(Kernel *k, const char *name)
{
    Sort s = { .x = cpu_open(k, name), .of = k->g->scatter, .array = k->g->arrays.data[0] };
    s.rows = code_let(s.x, "places", code_size(s.x, s.of->rows));
    s.positions = code_let(s.x, "positions", code_mul(s.x, code_rows(s.x), code_size(s.x, s.of->inner)));
    return s;
}

static void sort(Sort *s)
{
    Code *x = s->x;
    const KirExpr *n, *keys = scatter_numbers(x, "keys", s->of->keys, true),
                      *order = scatter_numbers(x, "order", s->of->order, true);
    KirOpen loop = code_for(x, "n", code_int(x, 0), s->positions, code_int(x, 1), &n);
    scatter_split_position(s->x, s->of, n);
    code_comment(x, s->array);
    const KirExpr *place = code_let(x, "place", expr_node(&x->printer, s->of->place));
    const KirExpr *inside = kir_call2(x->kir, "cell_inside", place, s->rows);
    kir_assign(x->kir, kir_element(x->kir, keys, n), kir_select(x->kir, inside, place, s->rows));
    kir_close(x->kir, loop);
    const KirExpr *args[] = { keys, order, s->positions, s->rows, kir_special(x->kir, KP_SCRATCH, 0) };
    kir_do(x->kir, kir_call(x->kir, "cell_sort_places", NULL, 0, args, 5));
}

static KirOpen open_columns(Sort *s, const KirExpr *base, const KirExpr *n, const KirExpr **lane)
{
    Code *x = s->x;
    KirOpen loop = code_for(x, names_fresh(&x->k->locals, "lane"), code_int(x, 0), n, code_int(x, 1), lane);
    loop.statement->n = KIR_LANES;
    scatter_split_column(s->x, s->of, code_let(x, names_fresh(&x->k->locals, "e"), code_add(x, base, *lane)));
    return loop;
}

/* The terms of the sorted positions [from, to), which are of one place, to some columns. */
static void one_place(Sort *s, const KirExpr *place, const KirExpr *from, const KirExpr *to)
{
    Code *x = s->x;
    Kir *k = x->kir;
    Node r = scatter_reduction(s->x);
    const Node *a = k_node(x->k, s->array);
    const KirExpr *base, *n, *lane, *width = code_int(x, CPU_COLUMNS);
    bool only;
    Named named = { 0 };
    x->index[a->axes[s->of->axis]] = place;
    const KirExpr *columns = code_let(x, "columns", code_size(x, s->of->columns));
    KirOpen pieces = code_for(x, "base", code_int(x, 0), columns, width, &base);
    const KirExpr *left = code_let(x, "left", code_sub(x, columns, base));
    const KirExpr *lanes =
        code_let(x, "lanes", kir_select(k, code_binary(x, KB_LT, left, width), left, width));
    const KirExpr *sum = kir_array(k, "sum", code_real(x), code_int(x, CPU_COLUMNS), true);
    KirOpen positions = code_for(x, "m", from, to, code_int(x, 1), &n);
    scatter_split_position(s->x, s->of, code_let(x, "position", kir_element(k, s->order, n)));
    KirOpen adds = open_columns(s, base, lanes, &lane);
    ir_pinned(x->k->p->m, r.args[0], a->axes[s->of->axis], a->axes, a->naxes, &only);
    NodeId term = only ? k_node(x->k, r.args[0])->args[1] : r.args[0];
    kir_add_to(k, kir_element(k, sum, lane), code_value(x, term, &named));
    code_forget(x, &named);
    kir_close(k, adds);
    kir_close(k, positions);
    x->b = x->t = code_int(x, 0);
    KirOpen stores = open_columns(s, base, lanes, &lane);
    code_store(x, s->array, kir_element(k, sum, lane));
    kir_close(k, stores);
    kir_close(k, pieces);
}

static void sums(Sort *s)
{
    Code *x = s->x;
    Kir *k = x->kir;
    const KirExpr *item, *one = code_int(x, 1), *width = code_int(x, POSITIONS);
    s->keys = scatter_numbers(x, "keys", s->of->keys, false);
    s->order = scatter_numbers(x, "order", s->of->order, false);
    KirOpen items = cpu_items(x, &item);
    const KirExpr *n = kir_mutable(k, "n", KT_I64, code_mul(x, item, width));
    const KirExpr *next = code_let(x, "next", code_mul(x, code_add(x, item, one), width));
    const KirExpr *end =
        code_let(x, "end", kir_select(k, code_binary(x, KB_LT, next, s->positions), next, s->positions));
    KirOpen places = kir_while(k, code_binary(x, KB_LT, n, end));
    const KirExpr *place = code_let(x, "place", kir_element(k, s->keys, kir_element(k, s->order, n)));
    const KirExpr *from = code_let(x, "from", n), *args[] = { s->keys, s->order, s->positions, from };
    kir_assign(k, n, kir_call(k, "cell_place_end", NULL, 0, args, 4));
    const KirExpr *args_before[] = { s->keys, s->order, from };
    const KirExpr *begins = kir_call(k, "cell_place_begins", NULL, 0, args_before, 3);
    KirOpen whole = kir_if(k, code_binary(x, KB_AND, begins, code_binary(x, KB_LT, place, s->rows)));
    code_comment(x, s->array);
    one_place(s, place, from, code_let(x, "to", n));
    kir_close(k, whole);
    kir_close(k, places);
    kir_close(k, items);
}

void cpu_scatter(Kernel *k, CpuKernel out[2], Buf *text)
{
    Plan *p = k->p;
    Module *m = p->m;
    Group *g = k->g;
    Scatter *of = g->scatter;
    for (int i = 0; i < 2; i++) {
        int which = i ? SCATTER_SUMS : SCATTER_KEYS;
        Kernel own = kernel_new(p, k->pr, g, &of->refs[which], text);
        Sort s = open(&own, intern_f(m->c, "%s_%s", g->kernel, scatter_kernels[which]));
        (i ? sums : sort)(&s);
        cpu_close(s.x, text);
        out[i] = (CpuKernel){ .name = s.x->kir->name, .refs = &of->refs[which] };
        kernel_release(&own);
    }
    const Formula *places = formula_with(m, F_ADD, formula_size(m, of->rows), 2);
    out[0].items = formula_const(m, 1);
    out[0].scratch = formula_with(m, F_MUL, places, 8);
    out[1].items = form_blocks(m, of->positions, POSITIONS);
    out[1].work = formula_with(m, F_MUL, formula_size(m, of->columns), POSITIONS);
}
