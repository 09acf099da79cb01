/* kernels_row.c: the kernels of ROW groups. In comes a group of reductions along a row and of what is
 * pointwise around them, ordered by how many reductions stand before each; out goes a kernel with a warp or a
 * block per row, with several short rows in each warp, or with a part of each row in each warp. Reductions
 * that do not wait for one another share a pass and an exchange. What several passes read stays in registers
 * where the row is short enough for its threads; else it is read again. With it go the sums over rows of a
 * COLUMN group that reads the same rows: then a block takes many rows, and keeps their sums. The kernel is
 * built twice where rows may stay: the first time to learn what its loops read. */
#include <math.h>
#include <string.h>

#include "base/mutate.h"
#include "code.h"

/* For what stays: a thread's registers, a block's shared memory (which any device of sm_80 or later has), and
 * the most threads of a block. Long rows take more of both, where the device has it. */
enum {
    STAY_REGISTERS = 64,
    STAY_SHARED = 90 << 10,
    STAY_THREADS = 512,
    LONG_REGISTERS = 80,
    LONG_SHARED = 160 << 10
};

/* Elements of a row that a thread keeps where their vectors are shorter than 16 bytes. */
enum { STAY_NARROW = 16 };

/* What is declared in a scope, in order: the same when the kernel is built once more. */
typedef Vec(const KirVar *) Scope;

typedef struct RowKernel {
    Code *x;
    CodeSlots slots;
    const KirExpr *lanes; /* threads that share a row */
    const KirExpr *mine; /* of several rows in a warp: the thread's is one; else NULL */
    const KirExpr *scratch; /* shared memory for exchanges */
    Named kept; /* values of the row that have a local */
    RowSums sums; /* of: NULL where no COLUMN group goes with it */
    /* Of the first time: the row's variables, and numbers of it that were read before its loops. */
    Scope first;
    const KirVar *first_place;
    Vec(CodeRead) reads;
    Vec(const KirExpr *) next; /* the next row's, in order of `reads` */
    const KirExpr *fetch; /* a function that asks for a row */
} RowKernel;

static const char *reduce_name(ReduceOp r)
{
    switch (r) {
    case R_MAX: return "max";
    case R_MIN: return "min";
    case R_PROD: return "prod";
    default: return "sum";
    }
}

static const KirExpr *reduce_start(Code *x, ReduceOp r)
{
    bool extreme = r == R_MAX || r == R_MIN;
    return extreme ? kir_real(x->kir, code_real(x), r == R_MAX ? -HUGE_VAL : HUGE_VAL)
                   : code_int(x, r == R_PROD);
}

static void reduce_join(Code *x, ReduceOp r, const KirExpr *a, const KirExpr *b)
{
    if (r == R_MAX || r == R_MIN)
        kir_assign(x->kir, a, kir_call2(x->kir, r == R_MAX ? "cell_max" : "cell_min", a, b));
    else
        kir_add(x->kir, (KirStmt){ .kind = KI_ASSIGN, .op = r == R_PROD ? KB_MUL : KB_ADD, .x = { a, b } });
}

/* The same with the name of the reduction behind. */
static const char *reduce_function(Code *x, const char *of, ReduceOp r)
{
    return k_text(x->k, "cell_%s_%s", of, reduce_name(r));
}

static bool shared(const Group *g)
{
    return g->share > 1;
}

/* ---- reductions ---- */

/* A row's value is known from here on; one thread stores it. */
static void keep_scalar(RowKernel *r, NodeId id)
{
    Code *x = r->x;
    const KirExpr *one = code_binary(x, KB_EQ, r->slots.lane, code_int(x, 0));
    vec_push(x->kir->arena, &r->kept, id);
    if (!k_is_stored(x->k, id))
        return;
    KirOpen first = kir_if(x->kir, r->mine ? code_binary(x, KB_AND, one, r->mine) : one);
    code_store(x, id, x->value[id]);
    kir_close(x->kir, first);
}

static Node reduction_of(const Code *x, NodeId id)
{
    return *k_node(x->k, k_node(x->k, id)->args[0]);
}

static const Poly *extent_of(const Code *x, IndexId i)
{
    return x->k->p->m->indices.data[i].extent;
}

/* Same depth (see order_row), so neither reads the other; same length. */
static bool shares_loop(const Code *x, int first, int other)
{
    const Group *g = x->k->g;
    NodeId a = g->arrays.data[first], b = g->arrays.data[other];
    const Node r = reduction_of(x, a), s = reduction_of(x, b);
    return k_node(x->k, b)->naxes == g->naxes && plan_reduces(x->k->p, b) && s.nbound == 1 &&
           g->depth[first] == g->depth[other] && extent_of(x, r.bound[0]) == extent_of(x, s.bound[0]);
}

typedef struct ArrayRange {
    RowKernel *r;
    int begin, end;
} ArrayRange;

static void row_terms(Code *x, void *data)
{
    const ArrayRange *range = data;
    IndexId along = reduction_of(x, x->k->g->arrays.data[range->begin]).bound[0];
    const KirExpr *here = x->index[along];
    for (int i = range->begin; i < range->end; i++) {
        NodeId id = x->k->g->arrays.data[i];
        const Node r = reduction_of(x, id);
        const KirExpr *sum = x->value[id];
        code_bind_axes(x, id);
        if (r.nbound == 1)
            x->index[r.bound[0]] = here;
        code_comment(x, id);
        Named named = { 0 };
        reduce_join(x, r.reduce, sum, code_value(x, r.args[0], &named));
        code_forget(x, &named);
    }
}

/* All results of one kind, from the i-th on, in one exchange between the threads of a block. */
static void exchange_block(RowKernel *r, ArrayRange range, int i, ReduceOp op)
{
    Code *x = r->x;
    Group *g = x->k->g;
    const KirExpr *args[65] = { r->scratch };
    int n = 0;
    for (int j = i; j < range.end && n < 64; j++)
        if (reduction_of(x, g->arrays.data[j]).reduce == op)
            args[++n] = x->value[g->arrays.data[j]];
    kir_do(x->kir, kir_call(x->kir, reduce_function(x, "block", op), NULL, 0, args, n + 1));
    g->exchanged = n > g->exchanged ? n : g->exchanged;
}

/* All threads of the row get the results. */
static void exchange(RowKernel *r, ArrayRange range)
{
    Code *x = r->x;
    const Group *g = x->k->g;
    bool done[R_SOFTMAX + 1] = { false };
    for (int i = range.begin; i < range.end; i++) {
        ReduceOp op = reduction_of(x, g->arrays.data[i]).reduce;
        const KirExpr *v = x->value[g->arrays.data[i]];
        const KirTemplate lanes = code_template(r->lanes);
        if (shared(g))
            v = kir_call(x->kir, reduce_function(x, "group", op), &lanes, 1, &v, 1);
        else if (g->lanes == 32)
            v = kir_call1(x->kir, reduce_function(x, "warp", op), v);
        else if (g->lanes < 32)
            v = kir_call2(x->kir, "cell_part_sum", r->scratch, v);
        else if (!done[op])
            exchange_block(r, range, i, op);
        done[op] = true;
        if (v != x->value[g->arrays.data[i]])
            kir_assign(x->kir, x->value[g->arrays.data[i]], v);
    }
}

/* Along several axes, element by element. */
static void row_places(RowKernel *r, const Node *first, ArrayRange *range)
{
    Code *x = r->x;
    const KirExpr *e;
    const Poly *extents[64];
    for (int i = 0; i < first->nbound; i++)
        extents[i] = extent_of(x, first->bound[i]);
    x->mixed = true;
    KirOpen loop = code_for(x, "e", r->slots.lane, code_sizes(x, extents, first->nbound), r->lanes, &e);
    code_split_element(x, first->bound, first->nbound, e, "i");
    row_terms(x, range);
    kir_close(x->kir, loop);
}

/* Reductions along the same axis that do not wait for one another share a loop. */
static int row_reductions(RowKernel *r, int begin)
{
    Code *x = r->x;
    const Group *g = x->k->g;
    const Node first = reduction_of(x, g->arrays.data[begin]);
    int end = begin + 1;
    while (first.nbound == 1 && end < g->arrays.len && shares_loop(x, begin, end))
        end++;
    ArrayRange range = { r, begin, end };
    for (int i = begin; i < end; i++) {
        NodeId id = g->arrays.data[i];
        const KirExpr *start = reduce_start(x, reduction_of(x, id).reduce);
        x->value[id] = kir_mutable(x->kir, k_local(x->k, "a", id), code_real(x), start);
    }
    if (first.nbound == 1) {
        CodeLoop l = { .along = first.bound[0],
                       .extent = extent_of(x, first.bound[0]),
                       .first = r->slots.lane,
                       .step = r->lanes,
                       .body = row_terms,
                       .data = &range };
        code_loop(x, &l);
    } else {
        row_places(r, &first, &range);
    }
    for (int i = begin; i < end; i++) {
        const Node of = reduction_of(x, g->arrays.data[i]);
        for (int j = 0; j < of.nbound; j++)
            x->index[of.bound[j]] = NULL;
    }
    exchange(r, range);
    for (int i = begin; i < end; i++) {
        code_bind_axes(x, g->arrays.data[i]);
        keep_scalar(r, g->arrays.data[i]);
    }
    return end;
}

/* ---- what is pointwise ---- */

static void row_scalar(RowKernel *r, NodeId id)
{
    Code *x = r->x;
    code_comment(x, id);
    Named named = { 0 };
    const KirExpr *v = code_value(x, k_node(x->k, id)->args[0], &named);
    x->value[id] = kir_let(x->kir, k_local(x->k, "a", id), code_real(x), v);
    code_forget(x, &named);
    keep_scalar(r, id);
}

static const Group *sums_of(const Code *x)
{
    return x->k->g->sums ? &x->k->pr->groups.data[x->k->g->sums - 1] : NULL;
}

static IndexId column_index(const Code *x)
{
    return k_node(x->k, sums_of(x)->arrays.data[0])->axes[0];
}

static void row_elements(Code *x, void *data)
{
    const ArrayRange *range = data;
    const Group *g = x->k->g;
    bool only_sums = range->begin == g->arrays.len;
    IndexId along = only_sums ? column_index(x) : k_node(x->k, g->arrays.data[range->begin])->axes[g->naxes];
    const KirExpr *here = x->index[along];
    Named kept = { 0 };
    for (int j = range->begin; j < range->end; j++) {
        NodeId id = g->arrays.data[j];
        code_bind_axes(x, id);
        x->index[k_node(x->k, id)->axes[g->naxes]] = here;
        if (g->pointwise || k_is_stored(x->k, id))
            code_array(x, id, &kept);
    }
    if (range->r->sums.of && range->end == g->arrays.len)
        column_add(x, &range->r->sums, here);
    code_forget(x, &kept);
}

/* The last loop over the row is that of its sums for others too. */
static void row_sums(RowKernel *r)
{
    Code *x = r->x;
    ArrayRange none = { r, x->k->g->arrays.len, x->k->g->arrays.len };
    CodeLoop l = { .along = column_index(x),
                   .extent = sums_of(x)->axes[0],
                   .first = r->slots.lane,
                   .step = r->lanes,
                   .body = row_elements,
                   .data = &none };
    code_loop(x, &l);
}

/* What is pointwise along the row: one loop for neighbours of the same extent. What nothing else reads is
 * left out. */
static int row_vectors(RowKernel *r, int i, bool *summed)
{
    Code *x = r->x;
    const Group *g = x->k->g;
    IndexId along = k_node(x->k, g->arrays.data[i])->axes[g->naxes];
    const Poly *extent = extent_of(x, along);
    bool any = g->pointwise;
    int end = i;
    while (end < g->arrays.len && k_node(x->k, g->arrays.data[end])->naxes > g->naxes &&
           extent_of(x, k_node(x->k, g->arrays.data[end])->axes[g->naxes]) == extent)
        any |= k_is_stored(x->k, g->arrays.data[end++]);
    if (!any)
        return end;
    if (end == g->arrays.len)
        *summed = true;
    ArrayRange range = { r, i, end };
    CodeLoop l = { .along = along,
                   .extent = extent,
                   .first = r->slots.lane,
                   .step = r->lanes,
                   .body = row_elements,
                   .data = &range };
    code_loop(x, &l);
    x->index[along] = NULL;
    return end;
}

/* ---- what stays in registers ---- */

/* What a block reads for row after row comes ahead, however often it is read. */
static bool stays(const Code *x, const CodeVector *v)
{
    return v->loops > 1 || x->k->g->sums;
}

/* Bytes of one vector of everything that would stay, of rows or of what is the same for all rows. */
static int64_t vector_bytes(const Code *x, bool fixed)
{
    int64_t bytes = 0;
    for (int i = 0; i < x->vectors.len; i++)
        if (stays(x, &x->vectors.data[i]) && x->vectors.data[i].fixed == fixed)
            bytes += k_width(x->k) * kir_bytes(code_scalar(x->vectors.data[i].type));
    return bytes;
}

/* What a block has for rows that stay. */
typedef struct Room {
    int slots, registers, shared_memory;
} Room;

static const Room usual_room = { 4, STAY_REGISTERS, STAY_SHARED },
                  long_room = { 8, LONG_REGISTERS, LONG_SHARED };

/* How many rows of this length a warp takes side by side, when a thread takes `each` elements. */
static int rows_of_warp(int64_t elements, int64_t each)
{
    int rows = 1;
    while (rows < 32 && elements * 2 * rows <= 32 * each)
        rows *= 2;
    return rows;
}

/* Nothing is read twice: does a warp have several rows all the same, each in one turn? */
static bool fits_beside(const Code *x)
{
    const Kernel *k = x->k;
    return k->g->lanes == 32 && !k->g->sums && x->row_extent->is_const && k->multiples.len == 0 &&
           rows_of_warp(x->row_extent->value, k_width(k)) > 1;
}

/* How many vectors a thread keeps of everything that stays; 0: nothing stays, and rows have a warp or a
 * block. Where a block sums its rows, these come ahead through shared memory, in two turns. */
static int slots_of(const Code *x, const Group *sums, Room room)
{
    int64_t rows = vector_bytes(x, false), fixed = vector_bytes(x, true), added = 0;
    if (sums)
        added = (int64_t)sums->arrays.len * k_width(x->k) * kir_bytes(code_real(x));
    if (x->mixed || !x->row_extent)
        return 0;
    if (rows + fixed + added == 0)
        return fits_beside(x);
    for (int slots = room.slots; slots > 0; slots /= 2)
        if (slots * (fixed + added + (sums ? 0 : rows)) <= room.registers * 4 &&
            (!sums || 2 * slots * rows * STAY_THREADS <= room.shared_memory))
            return slots;
    return 0;
}

/* Threads that a row of this length gets, when they take `each` elements. */
static int threads_for(int64_t elements, int64_t each)
{
    int64_t n = (elements + 32 * each - 1) / (32 * each) * 32;
    return n > STAY_THREADS ? STAY_THREADS : n < 32 ? 32 : (int)n;
}

static void note_multiples(const Kernel *k, Group *g)
{
    for (int i = 0; i < k->multiples.len; i++)
        vec_push(k->p->m->arena, &g->multiples, k->multiples.data[i]);
}

/* Rows of any length: the call's says how many threads share one. */
static int take_any_rows(Code *x, const Group *sums, int slots)
{
    Kernel *k = x->k;
    Group *g = k->g;
    int more = slots_of(x, sums, long_room);
    g->row_extent = x->row_extent;
    g->each = slots * k_width(k);
    g->narrow = g->each < STAY_NARROW ? g->each : STAY_NARROW;
    k->threads = g->threads = g->lanes = STAY_THREADS;
    g->long_slots = more > slots ? more : 0;
    note_multiples(k, g);
    return slots;
}

/* Rows of a length that is known; 0: they are too long. */
static int take_known_rows(Code *x, const Group *sums, int slots)
{
    Kernel *k = x->k;
    Group *g = k->g;
    int64_t width = k_width(k), elements = x->row_extent->value;
    if (g->lanes > 32)
        k->threads = g->threads = g->lanes = threads_for(elements, slots * width);
    int64_t needed = (elements + g->lanes * width - 1) / (g->lanes * width);
    if (needed > slots)
        return 0;
    if (g->lanes == 32 && !sums && k->multiples.len == 0)
        g->share = rows_of_warp(elements, width);
    return (int)needed;
}

/* How many vectors a thread keeps: a number, the parameter V, or NULL, where loops are not over slots. */
static const KirExpr *choose_slots(Code *x)
{
    Kernel *k = x->k;
    Group *g = k->g;
    const Group *sums = sums_of(x);
    const KirExpr *none = sums ? code_int(x, 0) : NULL;
    const Poly *extent = x->row_extent;
    int slots = slots_of(x, sums, usual_room);
    if (!slots || g->lanes < 32 || (!extent->is_const && g->lanes == 32))
        return none;
    slots = extent->is_const ? take_known_rows(x, sums, slots) : take_any_rows(x, sums, slots);
    if (!slots)
        return none;
    g->slots = slots;
    g->smem_each = sums ? 2 * slots * vector_bytes(x, false) : 0;
    bool known = extent->is_const && k->multiples.len == 0;
    return known ? code_int(x, slots) : kir_unknown(x->kir, "V", KT_I32);
}

/* Do the vectors of all threads fill the row exactly? */
static const KirExpr *full_rows(Code *x, const KirExpr *slots)
{
    const Group *g = x->k->g;
    if (slots->kind == KX_VAR)
        return kir_unknown(x->kir, "F", KT_BOOL);
    bool filled =
        slots->whole && !shared(g) && x->row_extent->value == slots->whole * g->lanes * k_width(x->k);
    return kir_truth(x->kir, filled);
}

/* ---- the rows that stay ---- */

typedef enum { ALL_ROWS, OWN_ROW } Whose;

static bool is_of(const Code *x, const CodeVector *v, Whose whose)
{
    return stays(x, v) && (whose == OWN_ROW) == !(v->fixed && sums_of(x));
}

static bool any_stays(const Code *x, Whose whose)
{
    bool any = false;
    for (int i = 0; x->slots->vectors && i < x->vectors.len; i++)
        any |= is_of(x, &x->vectors.data[i], whose);
    return any;
}

/* Declares the vectors that stay: those of a row, or those that are the same for all rows of a block. */
static void declare_rows(Code *x, Whose whose, KirLayout layout)
{
    for (int i = 0; i < x->vectors.len; i++) {
        CodeVector *v = &x->vectors.data[i];
        const char *name = k_text(x->k, "row%s", v->name + 1);
        if (is_of(x, v, whose))
            v->kept = kir_row(x->kir, name, layout, code_scalar(v->type), x->slots->vectors, x->n, NULL);
    }
}

/* The number of a row, and what the block has declared from its i-th statement on: the variables of a row. */
static Scope scope_of(Code *x, const KirVar *number, int i)
{
    Scope s = { .data = NULL };
    vec_push(x->kir->arena, &s, number);
    for (; i < x->kir->at->len; i++)
        if (x->kir->at->data[i]->kind == KI_LET)
            vec_push(x->kir->arena, &s, x->kir->at->data[i]->var);
    return s;
}

/* What stands for the row's variables of the first time: those in scope, and locals with what was read. */
typedef Vec(KirReplaced) Meaning;

static Meaning meaning_of(const RowKernel *r, const KirVar *number, int from)
{
    Code *x = r->x;
    Meaning m = { .data = NULL };
    const Scope now = scope_of(x, number, from);
    for (int i = 0; i < r->first.len && i < now.len; i++)
        vec_push(x->kir->arena, &m,
                 ((KirReplaced){ r->first.data[i], kir_var(x->kir, (KirVar *)now.data[i]) }));
    vec_push(x->kir->arena, &m, ((KirReplaced){ r->first_place, kir_var(x->kir, x->slots->place) }));
    return m;
}

static const KirExpr *meant(Code *x, const Meaning *m, const KirExpr *e)
{
    return kir_replaced(x->kir, e, m->data, m->len);
}

static void load_rows(RowKernel *r, Whose whose, const Meaning *m)
{
    Code *x = r->x;
    SlotLoop loop = code_open_slots(x, x->slots->vectors, r->lanes);
    for (int i = 0; i < x->vectors.len; i++) {
        const CodeVector *v = &x->vectors.data[i];
        if (!is_of(x, v, whose))
            continue;
        const KirExpr *offset = meant(x, m, v->offset);
        const KirExpr *from = v->optional ? v->pointer : code_move(x, v->pointer, offset);
        const KirExpr *args[] = { v->kept, x->slots->number, from, offset };
        const char *load = v->optional ? ".load_or_zero" : ".load";
        kir_do(x->kir, kir_call(x->kir, load, NULL, 0, args, v->optional ? 4 : 3));
    }
    code_close_slots(x, loop);
}

/* The local with a number of the row, and what it means from now on, also where it is read. */
static void read_number(RowKernel *r, Meaning *m, int i, const KirExpr *value)
{
    Code *x = r->x;
    const CodeRead *of = &r->reads.data[i];
    const char *name = names_fresh(&x->k->locals, of->name);
    const KirExpr *load = meant(x, m, of->load),
                  *local = kir_let(x->kir, name, KT_VOID, value ? value : load);
    vec_push(x->kir->arena, &x->reads, ((CodeRead){ load, local, of->name }));
    vec_push(x->kir->arena, m, ((KirReplaced){ of->local->var, local }));
}

static bool is_integer(const RowKernel *r, int i)
{
    return r->reads.data[i].load->type.of == KT_I64;
}

/* A block that takes row after row asks for the next one before it works on this one. Integers come first, as
 * they may say which row of a table that is. */
static void build_fetch(RowKernel *r)
{
    Code *x = r->x;
    int taken = x->k->locals.taken.len, reads = x->reads.len;
    declare_rows(x, OWN_ROW, KL_AHEAD);
    for (int i = 0; i < r->reads.len; i++) {
        KirScalar type = is_integer(r, i) ? KT_I64 : code_real(x);
        const char *name = k_text(x->k, "next_%s", r->reads.data[i].local->var->name);
        vec_push(x->kir->arena, &r->next, kir_mutable(x->kir, name, type, code_int(x, 0)));
    }
    KirOpen function = kir_open_function(x->kir, "fetch", &r->fetch);
    const KirExpr *row = kir_parameter_of(x->kir, "row", KT_I64);
    KirOpen there = kir_if(x->kir, code_binary(x, KB_LT, row, r->sums.rows));
    code_split_row(x, row);
    Meaning m = meaning_of(r, row->var, 0);
    for (int i = 0; i < r->reads.len; i++)
        if (is_integer(r, i))
            read_number(r, &m, i, NULL);
    load_rows(r, OWN_ROW, &m);
    for (int i = 0; i < r->reads.len; i++) {
        const KirExpr *v = is_integer(r, i) ? r->reads.data[i].local : r->reads.data[i].load;
        kir_assign(x->kir, r->next.data[i], meant(x, &m, v));
    }
    kir_close(x->kir, there);
    kir_statement(x->kir, KI_COMMIT);
    kir_close(x->kir, function);
    const KirExpr *first = kir_special(x->kir, KP_BLOCK, 0);
    kir_apply(x->kir, r->fetch, &first, 1);
    names_cut(&x->k->locals, taken);
    x->reads.len = reads;
}

/* The row that was asked for is this one now. */
static void await_row(RowKernel *r, Meaning *m, const KirExpr *row)
{
    Code *x = r->x;
    for (int i = 0; i < r->reads.len; i++)
        read_number(r, m, i, r->next.data[i]);
    for (int i = 0; i < x->vectors.len; i++)
        if (is_of(x, &x->vectors.data[i], OWN_ROW))
            kir_do(x->kir, kir_call1(x->kir, ".turn", x->vectors.data[i].kept));
    const KirExpr *next = code_add(x, row, kir_special(x->kir, KP_BLOCKS, 0));
    kir_apply(x->kir, r->fetch, &next, 1);
    kir_add(x->kir, (KirStmt){ .kind = KI_WAIT, .n = 1 });
}

/* What stays of the row is there from here on. What says which row of a table stays is read before that
 * is. */
static void begin_row(RowKernel *r, const KirExpr *row, int from)
{
    Code *x = r->x;
    Meaning m = meaning_of(r, row->var, from);
    if (any_stays(x, OWN_ROW) && r->sums.of) {
        await_row(r, &m, row);
    } else if (any_stays(x, OWN_ROW)) {
        declare_rows(x, OWN_ROW, KL_KEPT);
        for (int i = 0; i < r->reads.len; i++)
            if (is_integer(r, i))
                read_number(r, &m, i, NULL);
        load_rows(r, OWN_ROW, &m);
    }
    for (int i = 0; i < x->vectors.len; i++)
        x->vectors.data[i].offset = meant(x, &m, x->vectors.data[i].offset);
}

/* ---- the kernel ---- */

static void row_body(RowKernel *r)
{
    Code *x = r->x;
    const Group *g = x->k->g;
    bool summed = false;
    for (int i = 0; i < g->arrays.len;) {
        NodeId id = g->arrays.data[i];
        code_bind_axes(x, id);
        if (k_node(x->k, id)->naxes == g->naxes && plan_reduces(x->k->p, id)) {
            i = row_reductions(r, i);
        } else if (k_node(x->k, id)->naxes == g->naxes) {
            row_scalar(r, id);
            i++;
        } else {
            i = row_vectors(r, i, &summed);
        }
    }
    if (r->sums.of && !summed)
        row_sums(r);
    code_forget(x, &r->kept);
    x->prefetches.len = 0; /* rows re-read from the cache */
}

/* From `first` on in steps of `each`, groups of rows; of a group the row with this number, or the last one of
 * all again. */
static KirOpen open_groups(RowKernel *r, const KirExpr *first, const KirExpr *each, const KirExpr *number,
                           const char *name, const KirExpr *end, const KirExpr **n)
{
    Code *x = r->x;
    const KirExpr *all = code_let(x, "all_rows", end), *step, *from;
    step = code_mul(x, kir_special(x->kir, KP_BLOCKS, 0), each);
    KirOpen loop = code_for(x, "first", first, all, step, &from);
    const KirExpr *own = code_add(x, from, number);
    r->mine = kir_let(x->kir, "mine", KT_BOOL, code_binary(x, KB_LT, own, all));
    *n = code_let(x, name, kir_select(x->kir, r->mine, own, code_sub(x, all, code_int(x, 1))));
    return loop;
}

/* The rows of a block: one, one for each warp, several in each warp, or 32 of which each warp has a part. */
static KirOpen open_rows(RowKernel *r, const char *name, const KirExpr *end, const KirExpr **n)
{
    Code *x = r->x;
    Kir *k = x->kir;
    const Group *g = x->k->g;
    int per_block = g->threads / g->lanes;
    const KirExpr *block = kir_special(k, KP_BLOCK, 0), *blocks = kir_special(k, KP_BLOCKS, 0), *each;
    if (shared(g)) {
        each = code_int(x, (int64_t)g->threads / 32 * g->share);
        const KirExpr *warp = code_mul(x, kir_special(k, KP_WARP, 0), code_int(x, g->share));
        const KirExpr *number = code_binary(x, KB_DIV, kir_special(k, KP_LANE, 0), r->lanes);
        KirOpen loop =
            open_groups(r, code_add(x, code_mul(x, block, each), warp), each, number, name, end, n);
        const KirExpr *length = kir_select(k, r->mine, code_size(x, x->row_extent), code_int(x, 0));
        r->slots.length = kir_let_var(k, kir_place(k, "length", x->slots->vectors), length);
        return loop;
    }
    if (g->lanes < 32) {
        each = code_int(x, 32);
        return open_groups(r, code_mul(x, block, each), each, kir_special(k, KP_LANE, 0), name, end, n);
    }
    each = code_int(x, per_block);
    const KirExpr *warp = code_binary(x, KB_DIV, kir_special(k, KP_THREAD, 0), code_int(x, 32));
    const KirExpr *first = code_mul(x, block, each);
    return code_for(x, name, g->lanes == 32 && per_block > 1 ? code_add(x, first, warp) : first, end,
                    code_mul(x, blocks, each), n);
}

/* Numbers of a row are places in it where it stays. */
static const KirExpr *let_number(Code *x, const char *name, const KirExpr *v)
{
    if (!x->slots->vectors)
        return kir_let(x->kir, name, KT_I32, v);
    return kir_let_var(x->kir, kir_place(x->kir, name, x->slots->vectors), v);
}

/* Which threads share a row. */
static void declare_lanes(RowKernel *r, bool again)
{
    Code *x = r->x;
    Kir *k = x->kir;
    const Group *g = x->k->g;
    const KirExpr *thread = kir_special(k, KP_THREAD, 0);
    const KirExpr *elements = code_int(x, 0);
    int lanes = shared(g) ? 32 / g->share : g->lanes == 32 ? 32 : ROW_PARTS;
    if (again && x->slots->vectors && !shared(g))
        elements = let_number(x, "length", code_size(x, x->row_extent));
    r->slots.length = elements;
    r->lanes = code_int(x, lanes);
    r->slots.lane = let_number(x, "lane",
                               g->lanes > 32   ? thread
                               : g->lanes < 32 ? kir_special(k, KP_WARP, 0)
                                               : code_binary(x, KB_MOD, thread, r->lanes));
    if (g->lanes > 32)
        r->lanes = let_number(x, "lanes", kir_special(k, KP_THREADS, 0));
    int64_t exchanged = g->lanes < 32 ? g->threads : g->pointwise || g->lanes == 32 ? 0 : 32 * g->exchanged;
    if (exchanged)
        r->scratch = kir_shared_array(k, "scratch", code_real(x), code_int(x, exchanged));
    k->shared = exchanged * kir_bytes(code_real(x)) + g->smem_each * g->threads;
}

static void declare_sums(RowKernel *r)
{
    Code *x = r->x;
    Meaning none = { .data = NULL };
    if (any_stays(x, ALL_ROWS)) {
        declare_rows(x, ALL_ROWS, KL_KEPT);
        load_rows(r, ALL_ROWS, &none);
    }
    column_open(x, &r->sums);
    if (any_stays(x, OWN_ROW))
        build_fetch(r);
}

static void build_row(RowKernel *r, bool again)
{
    Code *x = r->x;
    const Group *g = x->k->g;
    const IndexId *axes = k_node(x->k, g->arrays.data[0])->axes;
    bool whole = g->naxes == 0;
    const KirExpr *rows = code_let(x, "rows", code_rows(x)), *elements = NULL, *n, *row;
    if (!whole)
        elements = code_let(x, "elements", code_sizes(x, g->axes, g->naxes));
    r->sums.rows = rows;
    declare_lanes(r, again);
    if (r->sums.of && again)
        declare_sums(r);
    else if (r->sums.of)
        column_open(x, &r->sums);
    KirOpen loop = open_rows(r, whole ? "row" : "n", whole ? rows : code_mul(x, rows, elements), &n);
    row = n;
    const KirExpr *within = NULL;
    int from = x->kir->at->len;
    if (!whole) {
        row = code_let(x, "row", code_binary(x, KB_DIV, n, elements));
        within = code_let(x, "r", code_sub(x, n, code_mul(x, row, elements)));
    }
    r->sums.row = row;
    code_split_row(x, row);
    code_split_element(x, axes, g->naxes, within, "row");
    code_keep_axes(x, g->arrays.data[0]);
    if (again)
        begin_row(r, n, from);
    else
        r->first = scope_of(x, n->var, from);
    row_body(r);
    kir_close(x->kir, loop);
    if (r->sums.of && again)
        column_flush(x, &r->sums, r->lanes);
}

/* ---- which form of a kernel a call takes ---- */

/* Forms in order of preference, each under a condition on sizes, or without one, which ends them. */
typedef struct Choice {
    Code *x;
    Vec(KirOpen) open;
} Choice;

/* The width is a parameter where sizes must be multiples of it. */
static void take(Choice *c, int64_t width, int64_t slots, bool full)
{
    Kir *k = c->x->kir;
    const KirExpr *by[] = { kir_whole(k, width), kir_whole(k, slots), kir_truth(k, full) };
    kir_run(k, by + (c->x->n->kind == KX_WHOLE));
}

static void prefer(Choice *c, const KirExpr *fits, int64_t width, int64_t slots, bool full)
{
    KirOpen form = kir_if(c->x->kir, fits);
    take(c, width, slots, full);
    kir_else(c->x->kir, &form);
    vec_push(c->x->kir->arena, &c->open, form);
}

/* For rows of which a thread has that number of vectors, or fewer; full: no thread has fewer. */
static void prefer_sized(Choice *c, int64_t width, int64_t slots, bool full)
{
    Code *x = c->x;
    KirBinary compare = !full ? KB_LT : mutate("always-full") ? KB_LE : KB_EQ;
    const KirExpr *elements = code_mul(x, code_int(x, slots * width), kir_special(x->kir, KP_THREADS, 0));
    const KirExpr *sized = code_binary(x, compare, code_size(x, x->row_extent), elements);
    prefer(c, width > 1 ? code_binary(x, KB_AND, code_fits(x, width), sized) : sized, width, slots, full);
}

/* Where sizes need be multiples of nothing, all rows have vectors of the widest form. */
static void choice_close(Choice *c, int64_t widest, int64_t slots)
{
    Code *x = c->x;
    if (x->k->multiples.len)
        take(c, 1, 0, false);
    else
        take(c, widest, slots, false);
    while (c->open.len)
        kir_close(x->kir, c->open.data[--c->open.len]);
    code_close_entry(x);
}

static void build_choice(Code *x)
{
    int width = k_width(x->k), slots = x->k->g->slots;
    Choice c = { .x = x };
    code_open_entry(x, x->kir->name);
    prefer_sized(&c, width, slots, true);
    prefer_sized(&c, width, slots, false);
    if (x->k->multiples.len)
        prefer(&c, code_fits(x, width), width, 0, false);
    choice_close(&c, width, 0);
}

/* Rows that are long, or do not start at vectors of the widest form, have a kernel of their own: what it
 * takes of registers is not taken from the others, whose kernel is right for these rows too. */
static void build_odd_choice(Code *x)
{
    const Group *g = x->k->g;
    int width = k_width(x->k);
    Choice c = { .x = x };
    code_open_entry(x, plan_odd_kernel(x->k->p, g));
    if (g->long_slots && x->k->multiples.len)
        prefer(&c, code_fits(x, width), width, g->long_slots, false);
    for (int narrow = width / 2; x->k->multiples.len && narrow > 0; narrow /= 2)
        prefer_sized(&c, narrow, g->narrow / narrow, false);
    choice_close(&c, width, g->long_slots);
}

/* How many vectors of a row a thread keeps is a parameter. */
static void settle_slots(Code *x)
{
    const Group *g = x->k->g;
    if (x->k->multiples.len)
        kir_parameter(x->kir, x->n);
    else
        kir_settle(x->n, k_width(x->k));
    kir_parameter(x->kir, x->slots->vectors);
    kir_parameter(x->kir, x->slots->full);
    build_choice(x);
    if (g->row_extent && (x->k->multiples.len || g->long_slots))
        build_odd_choice(x);
}

/* With what the kernel is built: a number of vectors that a thread keeps, or NULL. */
static void set_slots(RowKernel *r, const KirExpr *vectors)
{
    Code *x = r->x;
    r->slots.vectors = vectors;
    r->slots.full = vectors ? full_rows(x, vectors) : NULL;
    if (!vectors)
        r->slots.place = kir_variable(x->kir, "e", kir_value(KT_I64), false);
}

/* Builds the kernel to learn what its loops read, and so what stays. */
static void learn(RowKernel *r)
{
    Code *x = r->x;
    r->slots = (CodeSlots){ .vectors = code_int(x, 0), .full = kir_truth(x->kir, false) };
    r->slots.place = kir_place(x->kir, "e", r->slots.vectors);
    r->first_place = r->slots.place;
    build_row(r, false);
    for (int i = 0; i < x->reads.len; i++)
        vec_push(x->kir->arena, &r->reads, x->reads.data[i]);
    set_slots(r, choose_slots(x));
}

void emit_row(Kernel *k)
{
    Group *g = k->g;
    Code *x = code_of_group(k);
    RowKernel r = { .x = x, .sums.of = sums_of(x) };
    x->slots = &r.slots;
    if (g->phase == PHASE_DURING && g->lanes <= 32 && !r.sums.of) {
        set_slots(&r, NULL); /* loops of a step are over elements; warps exchange without memory */
    } else {
        learn(&r);
        code_begin_again(x);
    }
    x->kir->threads = k->threads;
    x->kir->resident =
        k->threads == 1024 ? 1 : g->resident; /* ptxas spills for the second that it hopes for */
    build_row(&r, true);
    if (r.slots.vectors && r.slots.vectors->kind == KX_VAR)
        settle_slots(x);
    else
        code_settle_width(x);
    code_print(k->p, code_end(x), k->out);
    if (g->lanes > 32)
        g->smem = 32 * g->exchanged * kir_bytes(code_real(x));
    if (g->lanes < 32)
        g->smem = g->threads * kir_bytes(code_real(x));
    if (g->row_extent)
        return;
    g->smem += g->smem_each * g->threads;
    g->smem_each = 0;
}
