/* kernels_scatter.c: the kernels of SCATTER groups, sums over batch and time of which each term belongs to
 * one place of an axis: the gradient of a table that integers index. In comes a group of one such sum; out
 * go six kernels: `keys` finds the place of every position (a step of a sequence, and what else is summed
 * over); `count`, `scan` and `move` sort the positions by place, a digit of 8 bits at a time; `sums` adds
 * what is at one place in the order of its positions, in shares of the sorted positions, and writes what
 * lies inside a share; `totals` adds the sums of a place that begins in one share and ends in another. So
 * the work is that of one term for each position and column, the order of every sum follows from sizes,
 * and no sum is atomic. Places outside of the axis come last and go nowhere. */
#include "base/mutate.h"
#include "code.h"

/* A group's kernel: what it has in its head, of which only what it reads stays. */
typedef struct Sort {
    Code *x;
    const Scatter *of;
    NodeId array;
    const KirExpr *rows;          /* places of the axis */
    const KirExpr *positions, *columns, *shares;
    const KirExpr *keys, *order, *counts;
} Sort;

const KirExpr *scatter_numbers(Code *x, const char *name, int buffer, bool written)
{
    const KirExpr *p = (written ? code_written : code_pointer)(x, REF_BUFFER, buffer, DT_I32);
    KirType type = kir_global(KT_I64, written);
    return kir_let_as(x->kir, name, type, kir_convert(x->kir, type, p));
}

Node scatter_reduction(const Code *x)
{
    return *k_node(x->k, k_node(x->k, x->k->g->arrays.data[0])->args[0]);
}

void scatter_split_position(Code *x, const Scatter *of, const KirExpr *position)
{
    const Node r = scatter_reduction(x);
    const KirExpr *inner = code_size(x, of->inner);
    IndexId axes[64];
    int n = 0;
    for (int i = 0; i < r.nbound; i++)
        if (r.bound[i] >= IX_FIRST)
            axes[n++] = r.bound[i];
    code_split_row(x, code_let(x, "row", code_binary(x, KB_DIV, position, inner)));
    if (!poly_is_one(of->inner))
        code_split_element(x, axes, n, code_let(x, "inner", code_binary(x, KB_MOD, position, inner)), "i");
}

void scatter_split_column(Code *x, const Scatter *of, const KirExpr *e)
{
    const Node *a = k_node(x->k, x->k->g->arrays.data[0]);
    IndexId axes[64];
    int n = 0;
    for (int i = 0; i < a->naxes; i++)
        if (i != of->axis)
            axes[n++] = a->axes[i];
    code_split_element(x, axes, n, e, "col");
}

static void bind_place(Sort *s, const KirExpr *place)
{
    s->x->index[k_node(s->x->k, s->array)->axes[s->of->axis]] = place;
}

/* Over all that the threads of the grid share. */
static KirOpen open_shared(Sort *s, const char *name, const KirExpr *limit, const KirExpr **n)
{
    Code *x = s->x;
    const KirExpr *threads = code_int(x, SCATTER_THREADS);
    const KirExpr *block = code_mul(x, kir_special(x->kir, KP_BLOCK, 0), threads);
    const KirExpr *first = code_add(x, block, kir_special(x->kir, KP_THREAD, 0));
    return code_for(x, name, first, limit, code_mul(x, kir_special(x->kir, KP_BLOCKS, 0), threads), n);
}

static const KirExpr *shares_of(Code *x, const KirExpr *n, int each, int most)
{
    const KirTemplate by[] = { { .value = each }, { .value = most } };
    return kir_call(x->kir, "cell_shares", by, 2, &n, 1);
}

/* ---- the places, sorted */

static void sort_keys(Sort *s)
{
    Code *x = s->x;
    const KirExpr *keys = scatter_numbers(x, "keys", s->of->keys, true), *n;
    KirOpen loop = open_shared(s, "n", s->positions, &n);
    scatter_split_position(s->x, s->of, n);
    code_comment(x, s->array);
    const KirExpr *place = code_let(x, "place", expr_node(&x->printer, s->of->place));
    const KirExpr *inside = kir_call2(x->kir, "cell_inside", place, s->rows);
    kir_assign(x->kir, kir_element(x->kir, keys, n), kir_select(x->kir, inside, place, s->rows));
    kir_close(x->kir, loop);
}

/* A pass over a digit of the places. */
static void sort_pass(Sort *s, const char *function, bool moves)
{
    Code *x = s->x;
    const KirExpr *keys = scatter_numbers(x, "keys", s->of->keys, false);
    const KirExpr *order = scatter_numbers(x, "order", s->of->order, moves);
    const KirExpr *counts = scatter_numbers(x, "counts", s->of->counts, !moves);
    const KirExpr *own = kir_shared_array(x->kir, "own", KT_I32, code_int(x, SORT_DIGITS * 32));
    const KirExpr *args[] = { keys, order, counts, s->positions, kir_special(x->kir, KP_STEP, 0), own };
    kir_do(x->kir, kir_call(x->kir, function, NULL, 0, args, 6));
}

static void sort_count(Sort *s)
{
    sort_pass(s, "cell_sort_count", false);
}

static void sort_move(Sort *s)
{
    sort_pass(s, "cell_sort_move", true);
}

static void sort_scan(Sort *s)
{
    Code *x = s->x;
    const KirExpr *counts = scatter_numbers(x, "counts", s->of->counts, true);
    const KirExpr *sums = kir_shared_array(x->kir, "sums", KT_I64, code_int(x, SORT_SCANNED));
    const KirExpr *warps = shares_of(x, s->positions, SORT_EACH, SORT_BLOCKS);
    const KirExpr *threads = code_let(x, "threads", code_mul(x, code_int(x, 32), warps));
    const KirExpr *args[] = { counts, code_mul(x, code_int(x, SORT_DIGITS), threads), sums };
    kir_do(x->kir, kir_call(x->kir, "cell_sort_scan", NULL, 0, args, 3));
}

/* ---- the sums */

static void open_sorted(Sort *s)
{
    Code *x = s->x;
    s->keys = scatter_numbers(x, "keys", s->of->keys, false);
    const KirExpr *halves = scatter_numbers(x, "halves", s->of->order, false);
    const KirExpr *half = code_mul(x, kir_call1(x->kir, "cell_sort_half", s->rows), s->positions);
    s->order = kir_let_as(x->kir, "order", halves->type, code_add(x, halves, half));
    s->columns = code_let(x, "columns", code_size(x, s->of->columns));
    s->shares = code_let(x, "shares", shares_of(x, s->positions, SHARE_EACH, SHARES));
}

/* Along the second axis of the grid. */
static KirOpen open_blocks(Sort *s, const char *name, const KirExpr *limit, const KirExpr **n)
{
    Code *x = s->x;
    return code_for(x, name, kir_special(x->kir, KP_BLOCK, 1), limit, kir_special(x->kir, KP_BLOCKS, 1), n);
}

static const KirExpr *at(Sort *s, const KirExpr *p, const KirExpr *i)
{
    return kir_element(s->x->kir, p, i);
}

/* A sum that a share leaves of its first place, or of its last. */
static const KirExpr *partial_at(Sort *s, bool written, const KirExpr *entry, const KirExpr *e)
{
    Code *x = s->x;
    Dtype compute = x->k->p->compute;
    const KirExpr *p = (written ? code_written : code_pointer)(x, REF_BUFFER, s->of->partial, compute);
    return at(s, p, code_add(x, code_mul(x, entry, s->columns), e));
}

/* Where another place begins, the sum of the one before it. */
static void end_of_place(Sort *s, const KirExpr *key, const KirExpr *place, const KirExpr *first,
                         const KirExpr *sum, const KirExpr *partial)
{
    Code *x = s->x;
    KirOpen ended = kir_if(x->kir, code_binary(x, KB_NE, key, place)), whose = kir_if(x->kir, first);
    kir_assign(x->kir, partial, sum);
    kir_else(x->kir, &whose);
    bind_place(s, place);
    code_store(x, s->array, sum);
    kir_close(x->kir, whose);
    kir_assign(x->kir, first, kir_truth(x->kir, false));
    kir_assign(x->kir, place, key);
    kir_assign(x->kir, sum, code_int(x, 0));
    kir_close(x->kir, ended);
}

static void add_term(Sort *s, const KirExpr *key, const KirExpr *position, const KirExpr *sum)
{
    Code *x = s->x;
    Node r = scatter_reduction(s->x);
    const Node *a = k_node(x->k, s->array);
    bool only;
    Named named = { 0 };
    KirOpen inside = kir_if(x->kir, code_binary(x, KB_LT, key, s->rows));
    scatter_split_position(s->x, s->of, position);
    bind_place(s, key);
    ir_pinned(x->k->p->m, r.args[0], a->axes[s->of->axis], a->axes, a->naxes, &only);
    NodeId term = only ? k_node(x->k, r.args[0])->args[1] : r.args[0];
    kir_add_to(x->kir, sum, code_value(x, term, &named));
    code_forget(x, &named);
    kir_close(x->kir, inside);
}

static void sums(Sort *s)
{
    Code *x = s->x;
    Kir *k = x->kir;
    const KirExpr *share, *e, *n, *one = code_int(x, 1);
    open_sorted(s);
    KirOpen shares = open_blocks(s, "share", s->shares, &share);
    const KirExpr *from[] = { s->positions, share, s->shares };
    const KirExpr *to[] = { s->positions, code_add(x, share, one), s->shares };
    const KirExpr *begin = code_let(x, "begin", kir_call(k, "cell_share", NULL, 0, from, 3));
    const KirExpr *behind = kir_call(k, "cell_share", NULL, 0, to, 3);
    if (mutate("lost-tail"))
        behind = kir_select(k, code_binary(x, KB_EQ, share, code_int(x, 0)), code_sub(x, behind, one),
                            behind);
    const KirExpr *end = code_let(x, "end", behind);
    KirOpen columns = open_shared(s, "e", s->columns, &e);
    scatter_split_column(s->x, s->of, e);
    code_comment(x, s->array);
    const KirExpr *twice = code_mul(x, code_int(x, 2), share), *partial = partial_at(s, true, twice, e);
    const KirExpr *sum = kir_mutable(k, "sum", code_real(x), code_int(x, 0));
    const KirExpr *first = kir_mutable(k, "first", KT_BOOL, kir_truth(k, true));
    const KirExpr *place = kir_mutable(k, "place", KT_I64, at(s, s->keys, at(s, s->order, begin)));
    KirOpen terms = code_for(x, "n", begin, end, one, &n);
    const KirExpr *position = code_let(x, "position", at(s, s->order, n));
    const KirExpr *key = code_let(x, "key", at(s, s->keys, position));
    end_of_place(s, key, place, first, sum, partial);
    add_term(s, key, position, sum);
    kir_close(k, terms);
    KirOpen whole = kir_if(k, first);
    kir_assign(k, partial, sum);
    kir_close(k, whole);
    kir_assign(k, partial_at(s, true, code_add(x, twice, one), e), kir_select(k, first, code_int(x, 0), sum));
    kir_close(k, columns);
    kir_close(k, shares);
}

static const KirExpr *place_of_entry(Sort *s, const KirExpr *entry)
{
    const KirExpr *args[] = { s->keys, s->order, s->positions, s->shares, entry };
    return kir_call(s->x->kir, "cell_sort_entry", NULL, 0, args, 5);
}

static void totals(Sort *s)
{
    Code *x = s->x;
    Kir *k = x->kir;
    const KirExpr *entry, *e, *n, *one = code_int(x, 1);
    open_sorted(s);
    const KirExpr *entries = code_mul(x, code_int(x, 2), s->shares);
    KirOpen loop = open_blocks(s, "entry", entries, &entry);
    const KirExpr *place = code_let(x, "place", place_of_entry(s, entry));
    const KirExpr *before = code_binary(x, KB_EQ, place_of_entry(s, code_sub(x, entry, one)), place);
    const KirExpr *later = code_binary(x, KB_GT, entry, code_int(x, 0));
    const KirExpr *begun = kir_let(k, "begun", KT_BOOL, code_binary(x, KB_AND, later, before));
    KirOpen done = kir_if(k, code_binary(x, KB_OR, code_binary(x, KB_EQ, place, s->rows), begun));
    kir_statement(k, KI_CONTINUE);
    kir_close(k, done);
    const KirExpr *end = kir_mutable(k, "end", KT_I64, code_add(x, entry, one));
    const KirExpr *same = code_binary(x, KB_EQ, place_of_entry(s, end), place);
    KirOpen more = kir_while(k, code_binary(x, KB_AND, code_binary(x, KB_LT, end, entries), same));
    kir_add_to(k, end, one);
    kir_close(k, more);
    KirOpen columns = open_shared(s, "e", s->columns, &e);
    scatter_split_column(s->x, s->of, e);
    const KirExpr *sum = kir_mutable(k, "sum", code_real(x), code_int(x, 0));
    KirOpen parts = code_for(x, "n", entry, mutate("first-share") ? code_add(x, entry, one) : end, one, &n);
    kir_add_to(k, sum, partial_at(s, false, n, e));
    kir_close(k, parts);
    x->b = x->t = code_int(x, 0);
    bind_place(s, place);
    code_store(x, s->array, sum);
    kir_close(k, columns);
    kir_close(k, loop);
}

static Kir *build(Plan *p, Program *pr, Group *g, int which)
{
    static void (*const body[6])(Sort *) = { sort_keys, sort_count, sort_scan, sort_move, sums, totals };
    Kernel k = kernel_new(p, pr, g, &g->scatter->refs[which], NULL);
    k.threads = scatter_threads(which);
    Code *x = code_new(&k, intern_f(p->m->c, "%s_%s", g->kernel, scatter_kernels[which]));
    Sort s = { .x = x, .of = g->scatter, .array = g->arrays.data[0] };
    x->kir->shared = scatter_shared(which);
    x->kir->resident = k.threads == 1024;     /* ptxas spills for the second that it hopes for */
    x->kir->waits = g->phase == PHASE_DURING && pr->dir == BACKWARD;
    s.rows = code_size(x, s.of->rows);
    s.positions = code_let(x, "positions", code_mul(x, code_rows(x), code_size(x, s.of->inner)));
    body[which](&s);
    Kir *kernel = code_end(x);
    kernel_release(&k);
    return kernel;
}

/* A plan for certain calls takes those of a plan before it, where all of them do the same. */
void emit_scatter(Plan *p, Program *pr, Group *g, Buf *out)
{
    Kir *kernels[6];
    bool there = p->calls != CALLS_ANY;
    for (int i = 0; i < 6; i++) {
        kernels[i] = build(p, pr, g, i);
        there = there && code_is_there(p, kernels[i]);
    }
    if (there)
        return;
    if (p->calls != CALLS_ANY)
        g->kernel = intern_f(p->m->c, "%s%s", g->kernel, plan_suffix(p->calls));
    for (int i = 0; i < 6; i++) {
        kernels[i]->name = intern_f(p->m->c, "%s_%s", g->kernel, scatter_kernels[i]);
        code_print(p, kernels[i], out);
    }
}
