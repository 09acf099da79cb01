/* kernels_row.c: CUDA text of ROW groups. In comes a group of reductions along a row and of what is pointwise around
 * them, ordered by how many reductions stand before each; out goes a kernel with a warp or a block per row, with
 * several short rows in each warp, or with a part of each row in each warp. Reductions that do not wait for one
 * another share a pass and an exchange. What several passes read stays in registers where the row is short enough for
 * its threads; else it is read again. With it go the sums over rows of a COLUMN group that reads the same rows: then a
 * block takes many rows, and keeps their sums. */
#include <string.h>

#include "kernels.h"

/* For what stays: a thread's registers, a block's shared memory (which any device of sm_80 or later has), and the
 * most threads of a block. Long rows take more of both, where the device has it. */
enum { STAY_REGISTERS = 64, STAY_SHARED = 90 << 10, STAY_THREADS = 512, LONG_REGISTERS = 80, LONG_SHARED = 160 << 10 };

/* Elements of a row that a thread keeps where their vectors are shorter than 16 bytes. */
enum { STAY_NARROW = 16 };

static const char *reduce_name(ReduceOp r)
{
    switch (r) {
    case R_MAX: return "max";
    case R_MIN: return "min";
    case R_PROD: return "prod";
    default: return "sum";
    }
}

static const char *reduce_start(Kernel *k, ReduceOp r)
{
    bool single = strcmp(k->real, "float") == 0;
    switch (r) {
    case R_MAX: return single ? "-CELL_INF_F" : "-CELL_INF";
    case R_MIN: return single ? "CELL_INF_F" : "CELL_INF";
    case R_PROD: return "1";
    default: return "0";
    }
}

static void reduce_join(Kernel *k, ReduceOp r, const char *a, const char *b)
{
    if (r == R_MAX || r == R_MIN)
        buf_line(k->out, "%s = cell_%s(%s, %s);", a, reduce_name(r), a, b);
    else
        buf_line(k->out, "%s %s= %s;", a, r == R_PROD ? "*" : "+", b);
}

static bool shared(const Kernel *k)
{
    return k->g->share > 1;
}

static const char *lanes(Kernel *k)
{
    if (shared(k))
        return k_text(k, "%d", 32 / k->g->share);
    return k->g->lanes > 32 ? "lanes" : k->g->lanes == 32 ? "32" : k_text(k, "%d", ROW_PARTS);
}

/* ---- reductions ---- */

/* A row's value is known from here on; one thread stores it. */
static void keep_scalar(Kernel *k, NodeId id, Named *kept)
{
    vec_push(k->p->m->arena, kept, id);
    if (!k_is_stored(k, id))
        return;
    k_open(k, k->g->lanes < 32 || shared(k) ? "if (lane == 0 && mine)" : "if (lane == 0)");
    k_store(k, id, k->value[id]);
    k_close(k);
}

static Node reduction_of(const Kernel *k, NodeId id)
{
    return *k_node(k, k_node(k, id)->args[0]);
}

/* Same depth (see order_row), so neither reads the other; same length. */
static bool shares_loop(const Kernel *k, int first, int other)
{
    const Group *g = k->g;
    NodeId a = g->arrays.data[first], b = g->arrays.data[other];
    const Node *r = k_node(k, k_node(k, a)->args[0]), *s = k_node(k, k_node(k, b)->args[0]);
    return k_node(k, b)->naxes == g->naxes && plan_reduces(k->p, b) && s->nbound == 1 &&
           g->depth[first] == g->depth[other] &&
           k->p->m->indices.data[r->bound[0]].extent == k->p->m->indices.data[s->bound[0]].extent;
}

typedef struct ArrayRange { int begin, end; } ArrayRange;

static void row_terms(Kernel *k, void *data)
{
    const ArrayRange *range = data;
    IndexId along = reduction_of(k, k->g->arrays.data[range->begin]).bound[0];
    const char *here = k->index[along];
    for (int i = range->begin; i < range->end; i++) {
        NodeId id = k->g->arrays.data[i];
        Node r = reduction_of(k, id);
        const char *sum = k->value[id];
        k_bind_axes(k, id);
        if (r.nbound == 1)
            k->index[r.bound[0]] = here;
        k_comment(k, id);
        Named named = { 0 };
        reduce_join(k, r.reduce, sum, k_body(k, r.args[0], &named));
        k_forget(k, &named);
    }
}

/* All threads of the row get the results: those of one kind in one exchange. */
static void exchange(Kernel *k, ArrayRange range)
{
    Group *g = k->g;
    bool done[R_SOFTMAX + 1] = { false };
    for (int i = range.begin; i < range.end; i++) {
        ReduceOp op = reduction_of(k, g->arrays.data[i]).reduce;
        const char *name = k->value[g->arrays.data[i]];
        if (shared(k)) {
            buf_line(k->out, "%s = cell_group_%s<%s>(%s);", name, reduce_name(op), lanes(k), name);
            continue;
        }
        if (g->lanes == 32) {
            buf_line(k->out, "%s = cell_warp_%s(%s);", name, reduce_name(op), name);
            continue;
        }
        if (g->lanes < 32) {
            buf_line(k->out, "%s = cell_part_sum(scratch, %s);", name, name);
            continue;
        }
        if (done[op])
            continue;
        done[op] = true;
        Buf args = { .arena = k->out->arena };
        int n = 0;
        for (int j = i; j < range.end; j++)
            if (reduction_of(k, g->arrays.data[j]).reduce == op) {
                buf_f(&args, ", %s", k->value[g->arrays.data[j]]);
                n++;
            }
        buf_line(k->out, "cell_block_%s(scratch%s);", reduce_name(op), args.data);
        g->exchanged = n > g->exchanged ? n : g->exchanged;
    }
}

/* Reductions along the same axis that do not wait for one another share a loop. */
static int row_reductions(Kernel *k, int begin, Named *kept)
{
    Group *g = k->g;
    Node first = reduction_of(k, g->arrays.data[begin]);
    const Poly *extents[64];
    int end = begin + 1;
    for (int i = 0; i < first.nbound; i++)
        extents[i] = k->p->m->indices.data[first.bound[i]].extent;
    while (first.nbound == 1 && end < g->arrays.len && shares_loop(k, begin, end))
        end++;
    ArrayRange range = { begin, end };
    for (int i = begin; i < end; i++) {
        NodeId id = g->arrays.data[i];
        k->value[id] = k_local(k, "a", id);
        buf_line(k->out, "%s %s = %s;", k->real, k->value[id], reduce_start(k, reduction_of(k, id).reduce));
    }
    if (first.nbound == 1) {
        Loop l = { first.bound[0], extents[0], "lane", lanes(k), row_terms, &range };
        k_loop(k, &l);
    } else {
        k->mixed = true;
        k_open(k, "for (int64_t e = lane; e < %s; e += %s)", k_product(k, extents, first.nbound), lanes(k));
        k_split_element(k, first.bound, first.nbound, "e", "i");
        row_terms(k, &range);
        k_close(k);
    }
    for (int i = begin; i < end; i++) {
        Node r = reduction_of(k, g->arrays.data[i]);
        for (int j = 0; j < r.nbound; j++)
            k->index[r.bound[j]] = NULL;
    }
    exchange(k, range);
    for (int i = begin; i < end; i++) {
        k_bind_axes(k, g->arrays.data[i]);
        keep_scalar(k, g->arrays.data[i], kept);
    }
    return end;
}

/* ---- what is pointwise ---- */

static void row_scalar(Kernel *k, NodeId id, Named *kept)
{
    k_comment(k, id);
    Named named = { 0 };
    const char *v = k_body(k, k_node(k, id)->args[0], &named), *name = k_local(k, "a", id);
    buf_line(k->out, "const %s %s = %s;", k->real, name, v);
    k_forget(k, &named);
    k->value[id] = name;
    keep_scalar(k, id, kept);
}

static const Group *sums_of(const Kernel *k)
{
    return k->g->sums ? &k->pr->groups.data[k->g->sums - 1] : NULL;
}

static IndexId column_index(const Kernel *k)
{
    return k_node(k, sums_of(k)->arrays.data[0])->axes[0];
}

static void row_elements(Kernel *k, void *data)
{
    const ArrayRange *range = data;
    Group *g = k->g;
    bool only_sums = range->begin == g->arrays.len;
    IndexId along = only_sums ? column_index(k) : k_node(k, g->arrays.data[range->begin])->axes[g->naxes];
    const char *here = k->index[along];
    Named kept = { 0 };
    for (int j = range->begin; j < range->end; j++) {
        NodeId id = g->arrays.data[j];
        k_bind_axes(k, id);
        k->index[k_node(k, id)->axes[g->naxes]] = here;
        if (!g->pointwise && !k_is_stored(k, id))
            continue;
        k_comment(k, id);
        Named named = { 0 };
        const char *v = k_body(k, k_node(k, id)->args[0], &named), *name = k_local(k, "a", id);
        buf_line(k->out, "const %s %s = %s;", k->real, name, v);
        k_forget(k, &named);
        k->value[id] = name;
        vec_push(k->p->m->arena, &kept, id);
        if (k_is_stored(k, id))
            k_store(k, id, name);
    }
    if (sums_of(k) && range->end == g->arrays.len)
        column_add(k, sums_of(k), here);
    k_forget(k, &kept);
}

/* The last loop over the row is that of its sums for others too. */
static void row_sums(Kernel *k)
{
    ArrayRange none = { k->g->arrays.len, k->g->arrays.len };
    Loop l = { column_index(k), sums_of(k)->axes[0], "lane", lanes(k), row_elements, &none };
    k_loop(k, &l);
}

/* What is pointwise along the row: one loop for neighbours of the same extent; what nobody else reads is
 * not printed. */
static int row_vectors(Kernel *k, int i, bool *summed)
{
    Group *g = k->g;
    NodeId first = g->arrays.data[i];
    IndexId along = k_node(k, first)->axes[g->naxes];
    const Poly *extent = k->p->m->indices.data[along].extent;
    bool any = g->pointwise;
    int end = i;
    while (end < g->arrays.len && k_node(k, g->arrays.data[end])->naxes > g->naxes &&
           k->p->m->indices.data[k_node(k, g->arrays.data[end])->axes[g->naxes]].extent == extent)
        any |= k_is_stored(k, g->arrays.data[end++]);
    if (!any)
        return end;
    if (end == g->arrays.len)
        *summed = true;
    ArrayRange range = { i, end };
    Loop l = { along, extent, "lane", lanes(k), row_elements, &range };
    k_loop(k, &l);
    k->index[along] = NULL;
    return end;
}

/* ---- what stays in registers ---- */

static int bytes_of(Dtype t)
{
    return t == DT_F64 ? 8 : t == DT_F32 || t == DT_I32 ? 4 : 2;
}

/* Bytes of one vector of everything that would stay, of rows or of what is the same for all rows. */
static int64_t vector_bytes(const Kernel *k, bool fixed)
{
    int64_t bytes = 0;
    for (int i = 0; i < k->vectors.len; i++)
        if ((k->g->sums || k->vectors.data[i].loops > 1) && k->vectors.data[i].fixed == fixed)
            bytes += k_width(k) * bytes_of(k->vectors.data[i].type);
    return bytes;
}

/* What a block has for rows that stay. */
typedef struct Room { int slots, registers, shared_memory; } Room;

static const Room usual_room = { 4, STAY_REGISTERS, STAY_SHARED }, long_room = { 8, LONG_REGISTERS, LONG_SHARED };

/* How many vectors a thread keeps of everything that stays; 0: nothing stays. Where a block sums its rows, these
 * come ahead through shared memory, in two turns. */
static int slots_of(const Kernel *k, const Group *sums, Room room)
{
    int64_t rows = vector_bytes(k, false), fixed = vector_bytes(k, true), added = 0;
    if (sums)
        added = (int64_t)sums->arrays.len * k_width(k) * bytes_of(k->p->compute);
    if (rows + fixed + added == 0 || k->mixed || !k->row_extent)
        return 0;
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

/* How many rows of this length a warp takes side by side, when a thread takes `each` elements. */
static int rows_of_warp(int64_t elements, int64_t each)
{
    int rows = 1;
    while (rows < 32 && elements * 2 * rows <= 32 * each)
        rows *= 2;
    return rows;
}

static void choose_slots(Kernel *k, const Group *sums)
{
    Group *g = k->g;
    int slots = slots_of(k, sums, usual_room), width = k_width(k);
    const Poly *extent = k->row_extent;
    if (sums)
        k->slots = "0";
    if (!slots || g->lanes < 32 || (!extent->is_const && g->lanes == 32))
        return;
    if (!extent->is_const) {
        g->row_extent = extent;
        g->each = slots * width;
        g->narrow = g->each < STAY_NARROW ? g->each : STAY_NARROW;
        k->threads = g->threads = g->lanes = STAY_THREADS;
        int more = slots_of(k, sums, long_room);
        g->long_slots = more > slots ? more : 0;
        for (int i = 0; i < k->multiples.len; i++)
            vec_push(k->p->m->arena, &g->multiples, k->multiples.data[i]);
    } else {
        if (g->lanes > 32)
            k->threads = g->threads = g->lanes = threads_for(extent->value, slots * width);
        int64_t needed = (extent->value + (int64_t)g->lanes * width - 1) / ((int64_t)g->lanes * width);
        if (needed > slots)
            return;
        slots = (int)needed;
        if (g->lanes == 32 && !sums && k->multiples.len == 0)
            g->share = rows_of_warp(extent->value, width);
    }
    g->slots = slots;
    g->smem_each = sums ? 2 * slots * vector_bytes(k, false) : 0;
    k->slots = extent->is_const && k->multiples.len == 0 ? k_text(k, "%d", slots) : "V";
    k->full = !shared(k) && strcmp(k->slots, "V") != 0 && extent->value == (int64_t)slots * g->lanes * width;
}

typedef enum { ALL_ROWS, OWN_ROW } Scope;

static bool stays_in(const Kernel *k, const Vector *v, Scope scope)
{
    return k_stays(k, v) && (scope == OWN_ROW) == !(v->fixed && sums_of(k));
}

/* Declares the vectors that stay: those of a row, or those that are the same for all rows of a block. */
static void declare_rows(Kernel *k, Scope scope, const char *type, const char *arguments)
{
    for (int i = 0; i < k->vectors.len; i++)
        if (stays_in(k, &k->vectors.data[i], scope))
            buf_line(k->out, "%s<%s, %s, %s> row%s%s;", type, k_type(k->vectors.data[i].type), k->n, k->slots,
                     k->vectors.data[i].name + 1, arguments);
}

static void load_rows(Kernel *k, Scope scope)
{
    k_open_slots(k, k->slots, lanes(k));
    for (int i = 0; i < k->vectors.len; i++) {
        const Vector *v = &k->vectors.data[i];
        if (stays_in(k, v, scope))
            buf_line(k->out, v->optional ? "row%s.load_or_zero(s, %s, %s);" : "row%s.load(s, %s + %s);", v->name + 1,
                     v->pointer, v->offset);
    }
    k_close_slots(k);
}

static bool any_stays(const Kernel *k, Scope scope)
{
    for (int i = 0; i < k->vectors.len; i++)
        if (stays_in(k, &k->vectors.data[i], scope))
            return true;
    return false;
}

/* A block that takes row after row asks for the next one before it works on this one. Integers come first, as they may
 * say which row of a table that is. */
static void print_fetch(Kernel *k)
{
    declare_rows(k, OWN_ROW, "cell_row_ahead", "(cursor)");
    for (int i = 0; i < k->ahead.len; i++) {
        RowRead *r = &k->ahead.data[i];
        r->name = names_fresh(&k->locals, r->wanted);
        buf_line(k->out, "%s next_%s = 0;", r->whole ? "int64_t" : k->real, r->name);
    }
    buf_line(k->out, "const auto fetch = [&](int64_t row) {");
    k->out->indent++;
    k_open(k, "if (row < rows)");
    k_split_row(k, "row");
    for (int i = 0; i < k->ahead.len; i++)
        if (k->ahead.data[i].whole)
            buf_line(k->out, "const int64_t %s = %s;", k->ahead.data[i].name, k->ahead.data[i].text);
    load_rows(k, OWN_ROW);
    for (int i = 0; i < k->ahead.len; i++)
        buf_line(k->out, "next_%s = %s;", k->ahead.data[i].name,
                 k->ahead.data[i].whole ? k->ahead.data[i].name : k->ahead.data[i].text);
    k_close(k);
    buf_line(k->out, "cell_cp_async_commit();");
    k->out->indent--;
    buf_line(k->out, "};");
    buf_line(k->out, "fetch(cell_block_index(0));");
}

static void await_row(Kernel *k)
{
    for (int i = 0; i < k->ahead.len; i++) {
        buf_line(k->out, "const %s %s = next_%s;", k->ahead.data[i].whole ? "int64_t" : k->real, k->ahead.data[i].name,
                 k->ahead.data[i].name);
        vec_push(k->p->m->arena, &k->reads, k->ahead.data[i]);
    }
    for (int i = 0; i < k->vectors.len; i++)
        if (stays_in(k, &k->vectors.data[i], OWN_ROW))
            buf_line(k->out, "row%s.turn();", k->vectors.data[i].name + 1);
    buf_line(k->out, "fetch(row + cell_block_count(0));");
    buf_line(k->out, "cell_cp_async_wait<1>();");
}

/* What says which row of a table stays in registers is read before that row is. */
static void read_integers(Kernel *k)
{
    for (int i = 0; i < k->ahead.len; i++) {
        RowRead r = k->ahead.data[i];
        if (!r.whole)
            continue;
        r.name = names_fresh(&k->locals, r.wanted);
        buf_line(k->out, "const int64_t %s = %s;", r.name, r.text);
        vec_push(k->p->m->arena, &k->reads, r);
    }
}

/* ---- the kernel ---- */

static void row_body(Kernel *k)
{
    Group *g = k->g;
    Named kept = { 0 };
    bool summed = false;
    k_keep_axes(k, g->arrays.data[0]);
    if (k->slots && any_stays(k, OWN_ROW) && sums_of(k)) {
        await_row(k);
    } else if (k->slots && any_stays(k, OWN_ROW)) {
        declare_rows(k, OWN_ROW, "cell_row", "");
        read_integers(k);
        load_rows(k, OWN_ROW);
    }
    for (int i = 0; i < g->arrays.len;) {
        NodeId id = g->arrays.data[i];
        k_bind_axes(k, id);
        if (k_node(k, id)->naxes == g->naxes && plan_reduces(k->p, id)) {
            i = row_reductions(k, i, &kept);
        } else if (k_node(k, id)->naxes == g->naxes) {
            row_scalar(k, id, &kept);
            i++;
        } else {
            i = row_vectors(k, i, &summed);
        }
    }
    if (sums_of(k) && !summed)
        row_sums(k);
    k_forget(k, &kept);
    k->prefetches.len = 0;            /* rows re-read from the cache */
}

/* All warps of a block have the same 32 rows, or the last one again. */
static void open_parts(Kernel *k, const char *n, const char *end)
{
    buf_line(k->out, "const int64_t all_rows = %s;", end);
    k_open(k, "for (int64_t first = cell_block_index(0) * 32; first < all_rows; first += cell_block_count(0) * 32)");
    buf_line(k->out, "const bool mine = first + cell_lane() < all_rows;");
    buf_line(k->out, "const int64_t %s = mine ? first + cell_lane() : all_rows - 1;", n);
}

/* A warp's lanes are groups with a row each. What is beyond the last row has no elements. */
static void open_shared(Kernel *k, const char *n, const char *end, const char *place)
{
    int rows = k->g->share, per_block = k->g->threads / 32 * rows;
    buf_line(k->out, "const int64_t all_rows = %s;", end);
    k_open(k, "for (int64_t first = cell_block_index(0) * %d + cell_warp() * %d; first < all_rows; "
              "first += cell_block_count(0) * %d)", per_block, rows, per_block);
    buf_line(k->out, "const bool mine = first + cell_lane() / %s < all_rows;", lanes(k));
    buf_line(k->out, "const int64_t %s = mine ? first + cell_lane() / %s : all_rows - 1;", n, lanes(k));
    buf_line(k->out, "const %s length = mine ? %s : 0;", place, poly_text(&k->printer, k->row_extent));
}

static void open_rows(Kernel *k)
{
    Group *g = k->g;
    NodeId first = g->arrays.data[0];
    int per_block = g->threads / g->lanes;
    bool whole = g->naxes == 0;
    const char *n = whole ? "row" : "n";
    buf_line(k->out, "const int64_t rows = %s;", k_rows(k));
    if (!whole)
        buf_line(k->out, "const int64_t elements = %s;", k_product(k, g->axes, g->naxes));
    const char *place = k->slots ? k_text(k, "cell_place<%s>", k->slots) : "int";
    if (k->slots && !shared(k))
        buf_line(k->out, "const %s length = %s;", place, poly_text(&k->printer, k->row_extent));
    buf_line(k->out, "[[maybe_unused]] const %s lane = %s;", place,
             g->lanes > 32 ? "cell_thread()" : g->lanes < 32 ? "cell_warp()" : k_text(k, "cell_thread() %% %s", lanes(k)));
    if (g->lanes != 32 || sums_of(k))
        buf_line(k->out, "[[maybe_unused]] auto cursor = cell_shared();");
    if (g->lanes > 32)
        buf_line(k->out, "[[maybe_unused]] const %s lanes = cell_threads();", place);
    if (g->lanes < 32)
        buf_line(k->out, "cell_smem<%s> scratch = cell_carve<%s>(cursor, %d);", k->real, k->real, g->threads);
    if (g->lanes > 32 && !g->pointwise) {
        buf_line(k->out, "cell_smem<%s> scratch = cell_carve<%s>(cursor, %d);", k->real, k->real,
                 32 * g->exchanged);
    }
    if (sums_of(k)) {
        if (k->slots && any_stays(k, ALL_ROWS)) {
            declare_rows(k, ALL_ROWS, "cell_row", "");
            load_rows(k, ALL_ROWS);
        }
        column_open(k, sums_of(k));
        if (k->slots && any_stays(k, OWN_ROW))
            print_fetch(k);
    }
    const char *end = whole ? "rows" : "rows * elements";
    if (shared(k))
        open_shared(k, n, end, place);
    else if (per_block == 1)
        k_open(k, "for (int64_t %s = cell_block_index(0); %s < %s; %s += cell_block_count(0))", n, n, end, n);
    else if (g->lanes == 32)
        k_open(k, "for (int64_t %s = cell_block_index(0) * %d + cell_thread() / 32; %s < %s; "
                  "%s += cell_block_count(0) * %d)", n, per_block, n, end, n, per_block);
    else
        open_parts(k, n, end);
    if (!whole) {
        buf_line(k->out, "const int64_t row = n / elements;");
        buf_line(k->out, "[[maybe_unused]] const int64_t r = n - row * elements;");
    }
    k_split_row(k, "row");
    k_split_element(k, k_node(k, first)->axes, g->naxes, "r", "row");
}

static void print_row(Kernel *k)
{
    open_rows(k);
    row_body(k);
    k_close(k);
    if (sums_of(k))
        column_flush(k, sums_of(k));
    if (k->trial)
        choose_slots(k, sums_of(k));
    for (int i = 0; k->trial && i < k->reads.len; i++)
        vec_push(k->p->m->arena, &k->ahead, k->reads.data[i]);
}

void emit_row(Kernel *k)
{
    Group *g = k->g;
    k->threads = g->threads;
    k_print(k, g->kernel, print_row);
    if (g->lanes > 32)
        g->smem = 32 * g->exchanged * bytes_of(k->p->compute);
    if (g->lanes < 32)
        g->smem = g->threads * bytes_of(k->p->compute);
    if (g->row_extent)
        return;
    g->smem += g->smem_each * g->threads;
    g->smem_each = 0;
}
