/* cpu_block.c: rows of a ROW group that go side by side. In comes a group whose rows are places along an
 * axis, such as the units of a step; out goes a kernel whose item is a block of up to CPU_SIDE neighbours
 * along it. What a row has one number of, a gate or its slope, is computed for all of them in a loop over
 * rows, which is made of vectors, where one row at a time would call each function once a row. A sum whose
 * terms lie side by side for neighbouring rows, such as one over the rows of a matrix, is taken for all rows
 * of the block at once, in order, instead of reading memory with a stride. All else goes row by row, in
 * loops over the block. Numbers of rows lie in small arrays between the loops.
 * Arrays come in the order of what they read: first all sums across and numbers that can be made, then all
 * that goes by rows, and so on. Refused is a group where a value along the row would be needed by two of the
 * loops over rows. Blocks follow from sizes alone, so no number depends on the threads. */
#include "cpu.h"
#include "ir/ops.h"

/* LEAST: rows along the axis, where that is known, from which on vectors are worth it. */
enum { MOST = 64, LEAST = 8 };

typedef enum { NUMBER, VECTOR, ALONG, ACROSS } Kind;

struct CpuBlocks {
    int n; /* axes of a row */
    int count; /* arrays of the group; per place of one of them: */
    Kind kind[MOST];
    bool reads[MOST][MOST]; /* which others */
    int loop[MOST]; /* those with the same number stand in one loop over the rows, or one behind another */
    int loops;
    const KirExpr *numbers[MOST]; /* the array of a number, or of a sum; NULL before it is made */
    const KirExpr *begin, *rows; /* of the block: its first row, and how many it has */
};

static NodeId array_at(const Code *x, int place)
{
    return x->k->g->arrays.data[place];
}

static int place_of(const Code *x, NodeId id)
{
    const Group *g = x->k->g;
    for (int i = 0; i < g->arrays.len; i++)
        if (g->arrays.data[i] == id)
            return i;
    return -1;
}

/* Of the reads of a sum's terms, those whose neighbours are its own neighbours, and those whose neighbours
 * are other rows'. */
typedef struct Votes {
    IndexId row, last; /* the row's last axis, and the innermost index of the sum */
    int along, across;
} Votes;

static void vote(const Read *r, Votes *v)
{
    IndexId which;
    if (!r->nmap || !ix_is_index(r->map[r->nmap - 1], &which))
        return;
    const IndexId from = which == v->row ? v->last : v->row;
    bool other = r->step && ix_uses(r->step, from);
    for (int i = 0; i < r->nmap - 1; i++)
        other |= ix_uses(r->map[i], from);
    v->along += which == v->last && other;
    v->across += which == v->row && other;
}

/* Does no memory have it, so that its readers make it again? */
static bool is_made_where_read(const Code *x, NodeId id)
{
    const Kernel *k = x->k;
    return k->pr->node[id].home == HOME_NONE || plan_rematerialises(k->p, k->pr, k->g->phase, id);
}

typedef struct Looking {
    const Code *x;
    CpuBlocks *b;
    int place;
    bool *seen; /* per node */
    Votes votes;
} Looking;

/* What an expression of the array at `place` reads of the group; votes: and how. Values along the row, and
 * those that are made where they are read, are read by way of what they are made of, too. */
static void look(Looking *l, NodeId id, bool votes)
{
    const Code *x = l->x;
    const Node n = *k_node(x->k, id);
    Read r;
    if (l->seen[id])
        return;
    l->seen[id] = true;
    if (n.kind == N_MAP || n.kind == N_REDUCE || !plan_resolve(x->k->p, id, &r)) {
        for (int i = 0; i < n.nargs; i++)
            look(l, n.args[i], votes);
        return;
    }
    if (votes)
        vote(&r, &l->votes);
    if (r.is_tensor || r.step)
        return;
    const int other = place_of(x, r.id);
    if (other >= l->place)
        return;
    if (other >= 0)
        l->b->reads[l->place][other] = true;
    if (other < 0 ? is_made_where_read(x, r.id) : l->b->kind[other] == VECTOR)
        look(l, k_node(x->k, r.id)->args[0], false);
}

static bool reads_kind(const CpuBlocks *b, int place, Kind kind)
{
    bool any = false;
    for (int i = 0; i < b->count; i++)
        any |= b->reads[place][i] && b->kind[i] == kind;
    return any;
}

static void classify(const Code *x, CpuBlocks *b)
{
    for (int i = 0; i < b->count; i++) {
        const Node a = *k_node(x->k, array_at(x, i)), body = *k_node(x->k, a.args[0]);
        bool sum = plan_reduces(x->k->p, array_at(x, i));
        Looking l = { .x = x, .b = b, .place = i };
        l.seen = arena_alloc(x->kir->arena, sizeof *l.seen * (size_t)x->k->p->m->nodes.len);
        l.votes = (Votes){ .row = a.axes[b->n - 1], .last = sum ? body.bound[body.nbound - 1] : -1 };
        look(&l, a.args[0], true);
        b->kind[i] = !sum ? a.naxes > b->n ? VECTOR : NUMBER
                     : l.votes.across > l.votes.along && !reads_kind(b, i, VECTOR) ? ACROSS
                                                                                   : ALONG;
    }
}

static bool goes_by_rows(const CpuBlocks *b, int place)
{
    return b->kind[place] == VECTOR || b->kind[place] == ALONG;
}

/* Is all there that it is made of? by_rows: of what goes by rows also what is made in loop `now`. */
static bool is_ready(const CpuBlocks *b, int place, bool by_rows, int now)
{
    for (int i = 0; i < b->count; i++)
        if (b->reads[place][i] && (b->loop[i] < 0 || (b->loop[i] == now && by_rows != goes_by_rows(b, i))))
            return false;
    return true;
}

/* In which loop each stands; those of even numbers have what goes side by side. */
static void schedule(CpuBlocks *b)
{
    for (int i = 0; i < b->count; i++)
        b->loop[i] = -1;
    for (int left = b->count; left > 0; b->loops++)
        for (int i = 0; i < b->count; i++) {
            bool by_rows = b->loops % 2 == 1;
            if (b->loop[i] >= 0 || goes_by_rows(b, i) != by_rows || !is_ready(b, i, by_rows, b->loops))
                continue;
            b->loop[i] = b->loops;
            left--;
        }
}

/* Values along a row are there in the loop over rows that makes them, and behind it in no other. */
static bool keeps_vectors(const CpuBlocks *b)
{
    bool all = true;
    for (int i = 0; i < b->count; i++)
        for (int j = 0; j < b->count; j++)
            all = all && !(b->reads[i][j] && b->kind[j] == VECTOR && b->loop[i] != b->loop[j]);
    return all;
}

/* Sums across, or functions of what was summed. */
static bool is_worth_it(const Code *x, const CpuBlocks *b)
{
    bool any = false;
    for (int i = 0; i < b->count; i++)
        any |= b->kind[i] == ACROSS ||
               (b->kind[i] == NUMBER && cpu_is_costly(x, k_node(x->k, array_at(x, i))->args[0]));
    return any;
}

CpuBlocks *cpu_blocks(Code *x, int row_axes)
{
    const Group *g = x->k->g;
    if (row_axes < 1 || g->sums || g->past || g->along || g->pointwise || !g->depth || g->arrays.len > MOST)
        return NULL;
    const Node *first = k_node(x->k, array_at(x, 0));
    const Poly *extent = x->k->p->m->indices.data[first->axes[row_axes - 1]].extent;
    if (extent->is_const && extent->value < LEAST)
        return NULL;
    CpuBlocks *b = arena_alloc(x->kir->arena, sizeof *b);
    *b = (CpuBlocks){ .n = row_axes, .count = g->arrays.len };
    classify(x, b);
    schedule(b);
    return is_worth_it(x, b) && keeps_vectors(b) ? b : NULL;
}

/* ---- loops over the rows of a block */

typedef struct Rows {
    KirOpen loop;
    const KirExpr *at, *here; /* the row's number in the block, and its place along the axis */
    Named kept;
} Rows;

/* Numbers that are made already have names in it. */
static Rows open_rows(Code *x, const CpuBlocks *b, bool lanes)
{
    Rows r = { .at = NULL };
    IndexId axis = k_node(x->k, array_at(x, 0))->axes[b->n - 1];
    const char *name = x->k->p->m->indices.data[axis].name;
    r.loop = code_for(x, names_fresh(&x->k->locals, lanes ? "lane" : "of_block"), code_int(x, 0), b->rows,
                      code_int(x, 1), &r.at);
    if (lanes)
        r.loop.statement->n = KIR_LANES;
    r.here = code_let(x, names_fresh(&x->k->locals, k_text(x->k, "r_%s", name)), code_add(x, b->begin, r.at));
    x->own[b->n - 1] = r.here;
    for (int i = 0; i < b->count; i++) {
        NodeId id = array_at(x, i);
        if (!b->numbers[i])
            continue;
        x->value[id] = kir_let(x->kir, names_fresh(&x->k->locals, k_local(x->k, "a", id)), code_real(x),
                               kir_element(x->kir, b->numbers[i], r.at));
        vec_push(x->kir->arena, &r.kept, id);
    }
    return r;
}

static void close_rows(Code *x, const CpuBlocks *b, Rows *r, bool lanes, const Formula **scratch)
{
    IndexId axis = k_node(x->k, array_at(x, 0))->axes[b->n - 1];
    code_forget(x, &r->kept);
    if (!lanes)
        kir_close(x->kir, r->loop);
    else if (cpu_close_lanes(x, r->loop, r->here))
        cpu_scratch_of_row(x, x->k->p->m->indices.data[axis].extent, scratch);
}

/* Is it read in other loops than those of places [begin, end), or of its own number? */
static bool is_read_later(const CpuBlocks *b, int place, int begin, int end)
{
    bool any = false;
    for (int i = 0; i < b->count; i++)
        any |= b->reads[i][place] &&
               (b->loop[i] != b->loop[place] || (!goes_by_rows(b, i) && (i < begin || i >= end)));
    return any;
}

static const KirExpr *number_array(Code *x, int place)
{
    const char *name = names_fresh(&x->k->locals, k_local(x->k, "side", array_at(x, place)));
    return kir_array(x->kir, name, code_real(x), code_int(x, CPU_SIDE), true);
}

/* Sums that share a loop, from `place` on, for all rows at once; gives the place behind them. */
static int sums_across(Code *x, CpuBlocks *b, int place, const Formula **scratch)
{
    NodeId ids[MOST], first = array_at(x, place);
    const KirExpr *sums[MOST];
    const Node r = *k_node(x->k, k_node(x->k, first)->args[0]);
    CpuRun run = { ids, 0 };
    KirOpen open[64];
    int end = place;
    for (; end < b->count && b->kind[end] == ACROSS && b->loop[end] == b->loop[place] &&
           (end == place || cpu_shares_loop(x, place, end));
         end++) {
        ids[run.n] = array_at(x, end);
        const char *name = names_fresh(&x->k->locals, k_local(x->k, "side", ids[run.n]));
        sums[run.n] = cpu_sum_array(x, ids[run.n], name, code_int(x, CPU_SIDE));
        run.n++;
    }
    int n = cpu_open_indices(x, r.bound, r.nbound, "i", false, open);
    Rows rows = open_rows(x, b, true);
    cpu_terms(x, run, b->n, sums, rows.at);
    close_rows(x, b, &rows, true, scratch);
    cpu_close_all(x, open, n);
    for (int i = 0; i < run.n; i++)
        b->numbers[place + i] = sums[i];
    bool any = false;
    for (int i = 0; i < run.n; i++)
        any |= k_is_stored(x->k, ids[i]);
    if (!any)
        return end;
    rows = open_rows(x, b, true);
    for (int i = 0; i < run.n; i++) {
        cpu_bind_axes(x, ids[i], b->n);
        if (k_is_stored(x->k, ids[i]))
            code_store(x, ids[i], x->value[ids[i]]);
    }
    close_rows(x, b, &rows, true, scratch);
    return end;
}

/* Numbers of rows that stand one behind another, likewise. */
static int numbers(Code *x, CpuBlocks *b, int place, const Formula **scratch)
{
    const KirExpr *to[MOST];
    int end = place;
    while (end < b->count && b->kind[end] == NUMBER && b->loop[end] == b->loop[place])
        end++;
    for (int i = place; i < end; i++)
        to[i] = is_read_later(b, i, place, end) ? number_array(x, i) : NULL;
    Rows rows = open_rows(x, b, true);
    for (int i = place; i < end; i++) {
        NodeId id = array_at(x, i);
        cpu_bind_axes(x, id, b->n);
        code_array(x, id, &rows.kept);
        if (to[i])
            kir_assign(x->kir, kir_element(x->kir, to[i], rows.at), x->value[id]);
    }
    close_rows(x, b, &rows, true, scratch);
    for (int i = place; i < end; i++)
        b->numbers[i] = to[i];
    return end;
}

/* May the array at `other` share a loop with the one at `first`, both of what goes by rows? */
static bool runs_on(const Code *x, const CpuBlocks *b, int first, int other)
{
    const Index *indices = x->k->p->m->indices.data;
    if (b->kind[other] != b->kind[first])
        return false;
    if (b->kind[first] == ALONG)
        return cpu_shares_loop(x, first, other);
    return indices[k_node(x->k, array_at(x, first))->axes[b->n]].extent ==
           indices[k_node(x->k, array_at(x, other))->axes[b->n]].extent;
}

/* All of loop `now` that goes by rows. */
static void by_rows(Code *x, CpuBlocks *b, int now, const Formula **scratch)
{
    int places[MOST], n = 0;
    const KirExpr *to[MOST];
    for (int i = 0; i < b->count; i++)
        if (b->loop[i] == now) {
            to[n] = b->kind[i] == ALONG && is_read_later(b, i, 0, 0) ? number_array(x, i) : NULL;
            places[n++] = i;
        }
    if (!n)
        return;
    Rows rows = open_rows(x, b, false);
    for (int i = 0, end; i < n; i = end) {
        NodeId ids[MOST];
        for (end = i; end < n && (end == i || runs_on(x, b, places[i], places[end])); end++)
            ids[end - i] = array_at(x, places[end]);
        CpuRun run = { ids, end - i };
        cpu_bind_axes(x, ids[0], b->n);
        if (b->kind[places[i]] == VECTOR)
            cpu_vectors(x, run, NULL, scratch);
        else
            cpu_reductions(x, run, b->n, &rows.kept, scratch);
        for (int j = i; j < end; j++)
            if (to[j])
                kir_assign(x->kir, kir_element(x->kir, to[j], rows.at), x->value[array_at(x, places[j])]);
    }
    close_rows(x, b, &rows, false, scratch);
    for (int i = 0; i < n; i++)
        b->numbers[places[i]] = to[i];
}

static void side_by_side(Code *x, CpuBlocks *b, int now, const Formula **scratch)
{
    for (int i = 0; i < b->count;)
        i = b->loop[i] != now      ? i + 1
            : b->kind[i] == ACROSS ? sums_across(x, b, i, scratch)
                                   : numbers(x, b, i, scratch);
}

/* ---- the kernel */

static const Poly *extent_of(const Code *x, int axis)
{
    return x->k->p->m->indices.data[k_node(x->k, array_at(x, 0))->axes[axis]].extent;
}

const Formula *cpu_block_items(Code *x, int row_axes)
{
    Module *m = x->k->p->m;
    const Poly *outer = poly_const(m, 1);
    for (int i = 0; i < row_axes - 1; i++)
        outer = poly_mul(m, outer, extent_of(x, i));
    const Formula *blocks = formula_with(m, F_CEILDIV, formula_size(m, extent_of(x, row_axes - 1)), CPU_SIDE);
    return formula(m, F_MUL, formula_size(m, outer), blocks);
}

/* Names the rows of block number `block`. */
static void name_rows(Code *x, CpuBlocks *b, const KirExpr *block)
{
    const KirExpr *extent = code_size(x, extent_of(x, b->n - 1)), *side = code_int(x, CPU_SIDE);
    b->begin = code_let(x, "begin", code_mul(x, block, side));
    const KirExpr *left = code_let(x, "left", code_sub(x, extent, b->begin));
    b->rows = code_let(x, "rows", kir_select(x->kir, code_binary(x, KB_LT, left, side), left, side));
}

void cpu_block_rows(Code *x, CpuBlocks *b, const Formula **scratch)
{
    const IndexId *axes = k_node(x->k, array_at(x, 0))->axes;
    const KirExpr *item, *rest, *block, *up = code_int(x, CPU_SIDE - 1), *side = code_int(x, CPU_SIDE);
    const Poly *outer[64];
    CpuTables tables = { .n = 0 };
    for (int i = 0; i < b->n - 1; i++)
        outer[i] = extent_of(x, i);
    *scratch = cpu_hold_rows(x, b->n, b->loop, true, &tables);
    const KirExpr *extent = code_size(x, extent_of(x, b->n - 1));
    const KirExpr *blocks = code_let(x, "blocks", code_binary(x, KB_DIV, code_add(x, extent, up), side));
    const KirExpr *outer_size = b->n > 1 ? code_sizes(x, outer, b->n - 1) : code_int(x, 1);
    const KirExpr *of_row = code_let(x, "elements", code_mul(x, outer_size, blocks));
    cpu_begin_tables(x, &tables);
    KirOpen items = cpu_items(x, &item);
    const KirExpr *row = cpu_divide(x, "row", item, of_row, &rest);
    code_split_row(x, row);
    cpu_fill_tables(x, &tables, row);
    x->of_row = row;
    const KirExpr *element = cpu_divide(x, "of_blocks", rest, blocks, &block);
    if (b->n > 1)
        code_split_element(x, axes, b->n - 1, element, "r");
    cpu_keep_axes(x, array_at(x, 0), b->n - 1);
    name_rows(x, b, block);
    for (int now = 0; now < b->loops; now++)
        if (now % 2)
            by_rows(x, b, now, scratch);
        else
            side_by_side(x, b, now, scratch);
    kir_close(x->kir, items);
}
