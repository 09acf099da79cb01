/* explain.c: the plan in words, for `cellc explain`. In: a plan. Out: text for a terminal of 110 columns: the
 * instance, the schedule and why, tensors, the operations of each direction in their order with products as
 * m, n, k in the spec's terms, every value with its phase, place, cost and the reason, the buffers, and
 * totals. Everything is read off the plan: nothing is decided here. */
#include <math.h>
#include <string.h>

#include "base/table.h"
#include "explain.h"
#include "explain_words.h"
#include "ir/arguments.h"
#include "ir/split_states.h"
#include "options.h"
#include "plan/cost.h"
#include "plan/forms.h"

static const Node *at(const Explain *e, NodeId id)
{
    return &e->m->nodes.data[id];
}

/* ---- words ---- */

const char *explain_size(const Explain *e, const Poly *x)
{
    Buf b = { .arena = e->m->arena };
    poly_print(e->m, x, &b);
    return b.data;
}

static const char *cost_words(const Explain *e, const Poly *x)
{
    return x->nterms ? explain_size(e, x) : "-";
}

static const char *axes_words(const Explain *e, const char *front, const Poly *const *axes, int n)
{
    Buf b = { .arena = e->m->arena };
    buf_f(&b, "[%s", front);
    for (int i = 0; i < n; i++)
        buf_f(&b, "%s%s", i || *front ? ", " : "", explain_size(e, axes[i]));
    buf_f(&b, "]");
    return b.data;
}

static const char *shape_words(const Explain *e, NodeId id)
{
    const Poly *axes[64];
    for (int i = 0; i < at(e, id)->naxes; i++)
        axes[i] = e->m->indices.data[at(e, id)->axes[i]].extent;
    return axes_words(e, "", axes, at(e, id)->naxes);
}

/* Values without a name of the spec go by their number, and by the value that they are computed for. */
const char *explain_value(const Explain *e, NodeId id)
{
    if (at(e, id)->name)
        return at(e, id)->name;
    NodeId part = e->part_of[id];
    if (part < 0)
        return intern_f(e->c, "v%d", id);
    /* Without the type of a copy and the number of a piece: "v362 in d_p", not "v362 in d_p.bf16.0". */
    const char *name = at(e, part)->name;
    return intern_f(e->c, "v%d in %.*s", id, (int)strcspn(name, "."), name);
}

static const char *value_line(const Explain *e, NodeId id)
{
    Span s = at(e, id)->span;
    const char *place = source_place(e->m, s, false), *colon = strrchr(place, ':');
    return colon && s.file == e->m->span.file ? colon + 1 : place;
}

static const char *phase_word(Phase x)
{
    static const char *const words[] = { "-", "once", "before", "during", "after" };
    return x >= PHASE_BETWEEN ? "between" : words[x];
}

/* ---- what is needed for what ---- */

/* The first named value, in order of evaluation, that each value is a part of; `used` says who counts. */
static void find_parts(Explain *e, const bool *used)
{
    for (NodeId id = e->m->nodes.len - 1; id >= 0; id--) {
        const Node *n = at(e, id);
        NodeId mine = n->kind == N_ARRAY && n->name ? id : e->part_of[id];
        for (int i = 0; used[id] && mine >= 0 && i < n->nargs; i++)
            e->part_of[n->args[i]] = mine;
    }
}

static void find_needed(Explain *e)
{
    const Module *m = e->m;
    size_t n = (size_t)m->nodes.len + 1;
    e->forward = arena_alloc(m->arena, n);
    e->backward = arena_alloc(m->arena, n);
    e->feeds[FORWARD] = arena_alloc(m->arena, n);
    e->feeds[BACKWARD] = arena_alloc(m->arena, n);
    e->part_of = arena_alloc(m->arena, n * sizeof *e->part_of);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const NodeId forward[] = { m->roots.data[t].output, m->roots.data[t].next, m->roots.data[t].init };
        const NodeId backward[] = { m->roots.data[t].dinput, m->roots.data[t].dparam, m->roots.data[t].dprev,
                                    m->roots.data[t].dparam_init };
        for (int k = 0; k < 3; k++)
            ir_mark(e->m, forward[k], e->forward);
        for (int k = 0; k < 4; k++)
            ir_mark(e->m, backward[k], e->backward);
        ir_mark(e->m, m->roots.data[t].next, e->feeds[FORWARD]);
        ir_mark(e->m, m->roots.data[t].dprev, e->feeds[BACKWARD]);
    }
    memset(e->part_of, 0xff, n * sizeof *e->part_of);
    find_parts(e, e->backward);
    find_parts(e, e->forward);
}

/* ---- instance, schedule, tensors ---- */

void explain_instance(const Explain *e)
{
    const Module *m = e->m;
    Buf b = { .arena = m->arena };
    buf_f(&b, "cell %s: ", m->name);
    for (int i = 0; i < m->bound.len; i++)
        buf_f(&b, "%s=%s, ", m->bound.data[i].name, m->bound.data[i].value);
    for (int i = 0; i < m->options.len; i++)
        buf_f(&b, "%s=%s, ", m->options.data[i].name, m->options.data[i].value);
    if (m->c->reverse)
        buf_f(&b, "reversed in time, ");
    if (m->c->lengths)
        buf_f(&b, "with lengths of sequences, ");
    if (m->c->packed)
        buf_f(&b, "packed sequences, ");
    buf_f(&b, "stored as %s, computed in %s", dtype_names[e->p->dtype], dtype_names[e->p->compute]);
    put_paragraph(b.data, 0, e->out);
    buf_f(e->out, "run-time sizes: B sequences, T steps");
    for (int i = 0; i < m->dims.len; i++)
        buf_f(e->out, ", %s", dim_words(m, i));
    buf_f(e->out, "\n");
}

static void put_lines(const Explain *e, const Buf *lines, int indent)
{
    const char *line = lines->data;
    while (line && *line) {
        size_t n = strcspn(line, "\n");
        put_paragraph(intern_n(e->c, line, n), indent, e->out);
        line += n + (line[n] == '\n');
    }
}

/* The plan for calls with few states. */
static void put_roomy(const Explain *e, const Plan *roomy)
{
    int K = roomy->interval, n = roomy->cluster;
    const char *shared = intern_f(e->c, "a call leaves %d of the GPU's multiprocessors to each state: a cluster of %d blocks shares its "
                                        "rows, a checkpoint every %d steps", n, n, K);
    const char *alone = intern_f(e->c, "a call has no more blocks than the GPU has multiprocessors: %s",
                                 K == e->p->interval ? "kernels of its own, with as many" : intern_f(e->c, "every %d steps", K));
    put_paragraph(intern_f(e->c, "where %s", n > 1 ? shared : alone), 2, e->out);
}

/* The plan for calls with many: the lines of the walks that are others. */
static void put_crowded(const Explain *e, const Plan *crowded)
{
    put_paragraph(intern_f(e->c, "where a call has more than %d blocks for each of the GPU's multiprocessors, a checkpoint every %d steps:",
                           CROWD, crowded->interval), 2, e->out);
    for (int d = 0; d < 2; d++)
        if (plan_walk(crowded, d) && plan_walk(crowded, d)->kernel != plan_walk(e->p, d)->kernel)
            put_lines(e, &plan_walk(crowded, d)->walk->reasons, 4);
}

/* The plan for calls of several steps, by a schedule of its own. */
static void put_long(const Explain *e, const Plan *p)
{
    Buf when = { .arena = e->m->arena };
    formula_words(p->m, p->schedule->takes(p), &when);
    put_paragraph(
        intern_f(e->c, "where %s: schedule %s: %s", when.data, p->schedule->name, p->schedule->what), 2,
        e->out);
    put_lines(e, &p->reasons, 4);
}

/* The plan for calls of few steps, with a product for each param. */
static void put_short(const Explain *e, const Plan *p)
{
    Buf when = { .arena = e->m->arena };
    formula_words(p->m, p->request->when, &when);
    put_paragraph(
        intern_f(
            e->c,
            "where %s, so that making the matrices of its products takes longer than what it saves: products "
            "with the params as they are, those of equal sizes as one batch where that is faster",
            when.data),
        2, e->out);
}

/* The plan for calls with few states, which are walked in parts. */
static void put_split(const Explain *e, const Plan *p)
{
    Buf when = { .arena = e->m->arena };
    const char *sides = p->m->side == 1 ? "columns" : "rows";
    formula_words(p->m, form_few_states(p), &when);
    put_paragraph(intern_f(e->c,
                           "where %s: each state in %d parts of %d %s, a block each, a checkpoint every %d steps; "
                           "sums over all %s are made behind the walk",
                           when.data, p->m->parts, PART_COLUMNS, sides, p->interval, sides),
                  2, e->out);
}

static void put_schedule(const Explain *e)
{
    buf_f(e->out, "schedule %s: %s\n", e->p->schedule->name, e->p->schedule->what);
    put_lines(e, &e->p->reasons, 2);
    if (e->p->interval)
        buf_f(e->out, "  a checkpoint of the states every %d steps\n", e->p->interval);
    for (const Plan *p = e->p->other; p; p = p->other)
        if (p->calls == CALLS_LONG)
            put_long(e, p);
        else if (p->calls == CALLS_SHORT)
            put_short(e, p);
        else if (p->calls == CALLS_SPLIT)
            put_split(e, p);
        else if (p->calls == CALLS_FEW)
            put_roomy(e, p);
        else
            put_crowded(e, p);
    for (const Plan *p = e->p; p->smaller; p = p->smaller) {
        int K = p->smaller->interval;
        const char *every = K > 1 ? intern_f(e->c, ", a checkpoint every %d steps", K)
                            : K   ? ", a checkpoint every step" : "";
        put_paragraph(intern_f(e->c, "where a block has less than %lld bytes of shared memory%s: schedule %s%s",
                               (long long)p->block_memory, p->cluster > 1 ? ", or there are no clusters" : "",
                               p->smaller->schedule->name, every), 2,
                      e->out);
    }
}

static const char *parts_where(const Explain *e)
{
    return e->c->products == PRODUCTS_PARTS ? "" : ", where it is large";
}

static void put_fused(const Explain *e)
{
    bool any = false;
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < e->p->program[d].groups.len; i++)
            any |= e->p->program[d].groups.data[i].fused != NULL;
    if (any)
        put_paragraph(e->c->products == PRODUCTS_FUSED
                          ? "products with what is computed from them, or makes their operand, in one kernel: on GPUs of capability 9.0, where rows "
                            "are multiples of 8 numbers"
                          : "products with what is computed from them, or makes their operand, in one kernel: on GPUs of capability 9.0, where rows "
                            "are multiples of 8 numbers, the product takes longer than the rest, and results are at least four tiles of "
                            "128 x 256 for each multiprocessor that leave at most a tenth idle; --products plain makes them one after "
                            "the other",
                      2, e->out);
}

static void put_codes(const Explain *e)
{
    bool any = false;
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < e->p->program[d].groups.len; i++)
            any |= takes_codes(&e->p->program[d].groups.data[i].gemm);
    if (any)
        put_paragraph("products in 8 bits: by cuBLASLt where it is there, on GPUs of capability 8.9 and "
                      "later, of rows and extents that are "
                      "multiples of 16 numbers; then nothing is rounded but the sum, and inference makes no "
                      "copies; --products "
                      "plain, and CELL_CUBLASLT=none for a run, multiply copies in 16 bits",
                      2, e->out);
}

static void put_products(const Explain *e)
{
    put_codes(e);
    put_fused(e);
    if (e->p->program[FORWARD].parts.len + e->p->program[BACKWARD].parts.len == 0)
        return;
    put_paragraph(e->c->products == PRODUCTS_PARTS
                      ? "products of f32 for all steps: six of parts in bf16, each term off by less than 2^-23 of itself"
                      : "products of f32 for all steps: where they are large (m, n and k at least 256, 2^20 results, 2^32 "
                        "terms) and rows of operands multiples of 8 numbers, on GPUs of capability 8.0, 9.0 and 10.x, six of parts in "
                        "bf16, each term off by less than 2^-23 of itself; --products plain makes them of f32",
                  2, e->out);
}

static const char *const types[] = { "f32", "bf16", "f16", "f64", "i32", "e4m3", "e5m2" };

static void put_tensors(const Explain *e)
{
    static const char *const kinds[] = { "input", "param", "state", "history", "output" };
    static const char *const front[] = { "B, T", "", "B", "B", "B, T" };
    Table t = { 0 };
    table_row(e->c, &t, "tensor", "", "shape", "type", "bytes", "", NULL);
    for (TensorId i = 0; i < e->m->tensors.len; i++) {
        const Tensor *x = &e->m->tensors.data[i];
        if (x->kind > T_OUTPUT)
            continue;
        const Poly *bytes = poly_mul(e->m, tensor_elements(e->m, i), poly_const(e->m, dtype_bytes(x->dtype)));
        if (x->starts)
            bytes = poly_add(e->m, bytes, poly_mul(e->m, bytes, poly_dim(e->m, ATOM_B)));
        else if (tensor_per_step(x))
            bytes = poly_mul(e->m, bytes, module_rows(e->m));
        else if (x->kind != T_PARAM)
            bytes = poly_mul(e->m, bytes, poly_dim(e->m, ATOM_B));
        const char *rows = x->starts                               ? "B + 1"
                           : x->lengths                            ? "B"
                           : tensor_per_step(x) && e->m->c->packed ? "total"
                                                                   : front[x->kind];
        bool buffer = x->no_grad && x->kind <= T_PARAM;
        const char *type = x->complex ? x->dtype == DT_F64 ? "c128" : "c64" : types[x->dtype];
        table_row(e->c, &t, kinds[x->kind], x->name, axes_words(e, rows, x->axes, x->rank - x->complex), type,
                  explain_size(e, bytes), buffer ? "no gradient" : "", NULL);
    }
    buf_f(e->out, "\n");
    table_print(&t, e->out);
}

/* ---- operations ---- */

static const char *read_name(const Explain *e, const Read *r)
{
    return r->is_tensor ? e->m->tensors.data[r->id].name : explain_value(e, r->id);
}

static const char *gemm_words(const Explain *e, const Gemm *g)
{
    bool many = g->batch && !(g->batch->is_const && g->batch->value == 1);
    const char *how = g->parts[0] ? intern_f(e->c, "; of parts%s", parts_where(e)) : "";
    if (g->codes)
        how = takes_codes(g) ? intern_f(e->c, "; or %s @ %s in 8 bits", read_name(e, &g->codes->a.read),
                                        read_name(e, &g->codes->b.read))
                             : intern_f(e->c, "; of copies: %s", g->codes->why_not);
    return intern_f(e->c, "%s %s %s @ %s: m=%s, n=%s, k=%s%s%s%s", read_name(e, &g->c.read),
                    g->added ? "+=" : "=", read_name(e, &g->a.read), read_name(e, &g->b.read), explain_size(e, g->m),
                    explain_size(e, g->n), explain_size(e, g->k), many ? ", each of " : "",
                    many ? explain_size(e, g->batch) : "", how);
}

static const char *names_of(const Explain *e, const Group *g)
{
    Buf b = { .arena = e->m->arena };
    for (int i = 0; i < g->arrays.len; i++)
        buf_f(&b, "%s%s", i ? ", " : "", explain_value(e, g->arrays.data[i]));
    return b.data ? b.data : "";
}

static const char *walk_words(const Explain *e, const Group *g)
{
    const Walk *w = g->walk;
    if (w->refused)
        return intern_f(e->c, "refused: %s", reason_words(e->m, w->refused));
    Buf b = { .arena = e->m->arena };
    const Poly *blocks = poly_dim(e->m, ATOM_B);
    if (w->blocks)
        blocks = poly_mul(e->m, poly_mul(e->m, w->blocks, poly_const(e->m, w->cluster)), blocks);
    buf_f(&b, "all steps in %s blocks of %d threads, %lld bytes of shared memory", explain_size(e, blocks),
          w->threads, (long long)w->smem);
    return b.data;
}

/* In forward the steps' own walk is the first of several, in backward the last. */
static int phase_order(const Program *g, Phase x)
{
    const int last = 1000;
    if (x >= PHASE_BETWEEN)
        return (int)PHASE_DURING + 1 + (int)x - (int)PHASE_BETWEEN;
    return x == PHASE_AFTER ? last : x == PHASE_DURING && g->dir == BACKWARD ? last - 1 : (int)x;
}

/* The operations in the order of their phases, as they run; a group's number is its place there, from 1. */
static int operation_number(const Program *g, int group)
{
    int n = 1;
    for (int i = 0; i < g->groups.len; i++) {
        int x = phase_order(g, g->groups.data[i].phase), mine = phase_order(g, g->groups.data[group].phase);
        n += x < mine || (x == mine && i < group);
    }
    return n;
}

static const char *row_words(const Explain *e, const Group *g, const Program *pr)
{
    const char *by = g->lanes > 32 ? "a block" : g->lanes < 32 ? "a lane of each warp" : "a warp";
    if (g->pass)
        return intern_f(e->c, "%s; %s, tiles of %d steps by a block", names_of(e, g),
                        g->arrays.len > 1 ? "in one pass over the past" : "a pass over the past", g->pass_by->steps);
    if (!g->sums)
        return intern_f(e->c, "%s; a row by %s%s", names_of(e, g), by,
                        g->unless_walked ? ", where no kernel has all steps" : "");
    return intern_f(e->c, "%s; a row by %s, which sums its rows for %s", names_of(e, g), by,
                    names_of(e, &pr->groups.data[g->sums - 1]));
}

static const char *fused_where(const Explain *e, const Fused *f)
{
    const char *extent = explain_size(e, f->ahead ? f->columns : f->depth);
    return e->c->products == PRODUCTS_FUSED ? "" : intern_f(e->c, ", where it is large (%s at least %d)", extent, f->least);
}

static const char *group_words(const Explain *e, const Group *g, const Program *pr)
{
    switch (g->kind) {
    case G_GEMM:
        if (!g->fused)
            return gemm_words(e, &g->gemm);
        return intern_f(e->c, "%s; with %d in one kernel%s", gemm_words(e, &g->gemm),
                        operation_number(pr, (int)(g->fused->map - pr->groups.data)), fused_where(e, g->fused));
    case G_WALK: return walk_words(e, g);
    case G_ROW:
        return row_words(e, g, pr);
    case G_COLUMN:
        if (g->by_rows)
            return intern_f(e->c, "%s; the sums of %d, added in fixed order", names_of(e, g),
                            operation_number(pr, g->by_rows - 1));
        if (!g->timed && summed_term(e->p, g->arrays.data[0]) >= 0)
            return intern_f(e->c, "%s; sums over B of what each sequence's steps added up, in fixed order",
                            names_of(e, g));
        return intern_f(e->c, "%s; sums over B and T, in two stages of fixed order%s", names_of(e, g),
                        g->by_steps ? ", the first in one kernel with all steps where there is such" : "");
    case G_SCATTER:
        return intern_f(e->c, "%s; sums over B and T, sorted by place, in two stages of fixed order", names_of(e, g));
    default:
        return names_of(e, g);
    }
}

/* The groups in the order of their numbers. */
static const int *operations(const Explain *e, const Program *g)
{
    int *order = arena_alloc(e->m->arena, sizeof *order * (size_t)(g->groups.len + 1));
    for (int i = 0; i < g->groups.len; i++)
        order[operation_number(g, i) - 1] = i;
    return order;
}

/* Of a step, of a call ("8*B*H once"), or both. */
static const char *flops_words(const Explain *e, Cost cost)
{
    const Poly *none = poly_const(e->m, 0);
    if (cost.flops_once == none)
        return cost_words(e, cost.flops);
    const char *once = intern_f(e->c, "%s once", cost_words(e, cost.flops_once));
    return cost.flops == none ? once : intern_f(e->c, "%s and %s", cost_words(e, cost.flops), once);
}

static void put_operations(const Explain *e, Direction d)
{
    static const char *const kinds[] = { "map", "row", "column", "scatter", "product", "walk", "scan" };
    const Program *g = &e->p->program[d];
    Table t = { .right = 1 };
    table_row(e->c, &t, "", "when", "kind", "bytes", "bytes once", "flops", "what", NULL);
    const int *order = operations(e, g);
    const Cost *costs = cost_of_groups(e->p, g);
    for (int i = 0; i < g->groups.len; i++) {
        const Group *k = &g->groups.data[order[i]];
        Cost cost = costs[order[i]];
        table_row(e->c, &t, intern_f(e->c, "%d", i + 1), phase_word(k->phase), kinds[k->kind],
                  cost_words(e, cost.step), cost_words(e, cost.once), flops_words(e, cost), group_words(e, k, g), NULL);
    }
    table_print(&t, e->out);
    for (int i = 0; i < g->groups.len; i++)
        if (g->groups.data[i].walk)
            put_lines(e, &g->groups.data[i].walk->reasons, 5);
}

/* ---- values ---- */

static const char *place_words(const Explain *e, const Program *g, NodeId id)
{
    const Storage *s = &g->node[id];
    switch (s->home) {
    case HOME_ARG: return "the caller's";
    case HOME_WORKSPACE: return s->alias_offset ? "workspace, a piece" : "workspace";
    case HOME_RESERVE: return s->alias_offset ? "reserve, a piece" : "reserve";
    default: break;
    }
    if (e->p->is_alias[id])
        return "in place";
    if (e->p->is_cat[id])
        return "its pieces";
    if (e->p->table[id])
        return "a table";
    if (computed_where_read(e->p, g, id))
        return "where it is read";
    return g->phase[id] == PHASE_DURING && e->p->schedule->on_chip ? "on the SM" : "registers";
}

/* What is read in place of an alias. */
static const char *alias_words(const Explain *e, NodeId id)
{
    Read r;
    if (!plan_resolve(e->p, id, &r))
        return "a number";
    return intern_f(e->c, "read from %s", read_name(e, &r));
}

static bool sums_batch(const Explain *e, NodeId id)
{
    const Node *r = at(e, at(e, id)->args[0]);
    for (int i = 0; r->kind == N_REDUCE && i < r->nbound; i++)
        if (r->bound[i] == IX_BATCH)
            return true;
    return false;
}

static const char *why(const Explain *e, Direction d, NodeId id)
{
    const Program *g = &e->p->program[d];
    TensorId of;
    RootKind root = root_kind(e->m, id, &of);
    if (e->p->is_alias[id])
        return alias_words(e, id);
    if (e->p->rounded[id])
        return "a copy that a product takes";
    if (e->p->table[id])
        return "constants, computed when the cell is compiled";
    if (e->p->unstored[id])
        return intern_f(e->c, "made for each reader, %d issue slots an element; kept, %d",
                        e->p->unstored_cost[id].made, e->p->unstored_cost[id].stored);
    switch (g->phase[id] >= PHASE_BETWEEN ? PHASE_BETWEEN : g->phase[id]) {
    case PHASE_PARAM:
        return "depends on no input and no state";
    case PHASE_BEFORE:
        return d == FORWARD ? "depends on no state" : "needs nothing carried";
    case PHASE_AFTER:
        return sums_batch(e, id) ? "a sum over sequences and steps" : "feeds nothing carried";
    case PHASE_BETWEEN: return "stands between two walks";
    case PHASE_DURING:
        if (root == ROOT_NEXT || root == ROOT_DPREV)
            return "is carried";
        return e->feeds[d][id] ? "feeds what is carried" : "reads what the walk holds";
    default:
        return "";
    }
}

/* tile: are backward's steps undone, and not replayed? */
static bool undone(const Explain *e)
{
    const Program *b = &e->p->program[BACKWARD];
    for (int i = 0; i < b->groups.len; i++)
        if (b->groups.data[i].kind == G_WALK && b->groups.data[i].walk->undone)
            return true;
    return false;
}

/* How backward gets at a forward value. */
static const char *backward_words(const Explain *e, NodeId id)
{
    const Program *f = &e->p->program[FORWARD], *b = &e->p->program[BACKWARD];
    TensorId of;
    if (e->p->is_alias[id])
        return "";
    if (f->node[id].home == HOME_RESERVE)
        return "saved";
    if (root_kind(e->m, id, &of) == ROOT_NEXT && e->p->schedule->on_chip)
        return undone(e) ? "undone" : "replayed";
    if (e->p->table[id])
        return "";
    if (e->p->unstored[id] && e->backward[id])
        return "made anew";
    if (b->phase[id] == PHASE_NONE)
        return "not needed";
    return b->phase[id] == PHASE_DURING && e->p->schedule->on_chip && !undone(e) ? "replayed" : "recomputed";
}

/* The operation that computes it; 0 when none does. */
static int operation_of(const Explain *e, const Program *g, NodeId id)
{
    if (g->group[id] >= 0)
        return operation_number(g, g->group[id]);
    for (int i = 0; i < g->groups.len; i++)
        if (g->groups.data[i].kind == G_WALK && g->phase[id] == PHASE_DURING && !e->p->is_alias[id])
            return operation_number(g, i);
    return 0;
}

/* Forward, a name of the spec is shown also where it is only another name of a value. */
static bool alias_of_spec(const Explain *e, Direction d, NodeId id)
{
    return d == FORWARD && e->p->is_alias[id] && at(e, id)->name;
}

static bool listed(const Explain *e, Direction d, NodeId id)
{
    bool mine = d == FORWARD ? e->forward[id] : e->backward[id] && !e->forward[id];
    bool decided = e->p->program[d].phase[id] != PHASE_NONE || alias_of_spec(e, d, id) || e->p->unstored[id];
    return mine && decided && at(e, id)->kind == N_ARRAY;
}

static void put_value(const Explain *e, Direction d, NodeId id, Table *t)
{
    const Program *g = &e->p->program[d];
    int by = operation_of(e, g, id);
    Cost cost = cost_of_array(e->p, g, id);
    const Poly *bytes = poly_add(e->m, cost.step, cost.once);
    table_row(e->c, t, value_line(e, id), explain_value(e, id), shape_words(e, id), phase_word(g->phase[id]),
              by ? intern_f(e->c, "%d", by) : "-", place_words(e, g, id),
              d == FORWARD ? backward_words(e, id) : "", by ? cost_words(e, bytes) : "-",
              by ? flops_words(e, cost) : "-", why(e, d, id), NULL);
}

static void put_values(const Explain *e, Direction d)
{
    Table t = { .right = 1 };
    table_row(e->c, &t, "line", "value", "shape", "when", "by", "lies in", d == FORWARD ? "backward" : "",
              "bytes", "flops", "why", NULL);
    for (NodeId id = 0; id < e->p->n_nodes; id++)
        if (listed(e, d, id))
            put_value(e, d, id, &t);
    buf_f(e->out, "\n");
    table_print(&t, e->out);
}

Cost explain_sum(const Explain *e, Direction d)
{
    const Program *g = &e->p->program[d];
    const Poly *none = poly_const(e->m, 0);
    Cost sum = { none, none, none, none };
    const Cost *costs = cost_of_groups(e->p, g);
    for (int i = 0; i < g->groups.len; i++)
        sum = cost_sum(e->p, sum, costs[i]);
    if (e->p->schedule->walk_flops)
        sum.flops = poly_add(e->m, sum.flops, e->p->schedule->walk_flops(e->p, g));
    return sum;
}

/* `what`: what the sums are of. */
static void put_sums(const Explain *e, Direction d, const char *what)
{
    const Poly *none = poly_const(e->m, 0);
    Cost sum = explain_sum(e, d);
    put_paragraph(intern_f(e->c, "%s: %s flops and %s bytes per sequence and step, %s%s bytes once%s", what,
                           explain_size(e, sum.flops), explain_size(e, sum.step),
                           sum.flops_once == none ? "" : intern_f(e->c, "%s flops and ", explain_size(e, sum.flops_once)),
                           explain_size(e, sum.once),
                           e->p->interval ? ", beside checkpoints" : ""),
                  2, e->out);
}

static void put_direction(const Explain *e, Direction d)
{
    buf_f(e->out, "\n%s: operations in order, bytes and flops per sequence and step, then values\n\n",
          d == FORWARD ? "forward" : "backward");
    put_operations(e, d);
    put_values(e, d);
    buf_f(e->out, "\n");
    put_sums(e, d, "in all");
}

/* ---- memory ---- */

/* Of as many steps as a ring has: what a call without a reserve keeps. */
static const Poly *ring_bytes(const Explain *e, const Buffer *b, const Poly *bytes)
{
    return poly_mul(e->m, poly_div(e->m, bytes, poly_dim(e->m, ATOM_T)), poly_const(e->m, b->ring));
}

static const Poly *buffer_bytes(const Explain *e, const Buffer *b)
{
    const Poly *elements = b->elements;
    if (b->bytes)
        return poly_const(e->m, 0); /* they are no polynomial */
    if (!elements)
        elements = poly_mul(e->m, b->columns, poly_const(e->m, b->arrays));
    const Poly *bytes = poly_mul(e->m, elements, poly_const(e->m, dtype_bytes(b->dtype)));
    return b->ring && !b->reserve ? ring_bytes(e, b, bytes) : bytes;
}

static const char *walk_rows_words(const Explain *e, const Buffer *b)
{
    if (!b->walk_rows)
        return "";
    return b->walk_rows->kind == F_SIZE ? explain_size(e, b->walk_rows->size) : "the walk's blocks";
}

static const char *buffer_words(const Explain *e, const Buffer *b)
{
    if (b->bytes)
        return "as its calls need";
    const char *bytes = explain_size(e, buffer_bytes(e, b));
    if (!b->elements)
        return intern_f(e->c, b->walk_rows ? "%s for up to max(%s, %d) %s" : "%s for each of at most %s%d %s",
                        bytes, walk_rows_words(e, b), b->cut ? b->most : column_cut(e->p, b->by_rows).most,
                        b->pieces ? b->pieces : "chunks");
    if (b->parts)
        return intern_f(e->c, "%s%s", bytes, e->c->products == PRODUCTS_PARTS ? "" : " for large products");
    return b->per_steps ? intern_f(e->c, "%s for every %d steps", bytes, b->per_steps) : bytes;
}

static void mark_slot(const Explain *e, int slot)
{
    if (slot >= 0 && slot < e->p->buffers.len)
        e->in_forward[slot] = true;
}

/* The buffers that forward uses. */
static void find_slots(Explain *e)
{
    const Program *g = &e->p->program[FORWARD];
    size_t bytes = sizeof *e->in_forward * (size_t)(e->p->buffers.len + 1);
    e->in_forward = memset(arena_alloc(e->m->arena, bytes), 0, bytes);
    for (NodeId id = 0; id < e->p->n_nodes; id++)
        if (g->node[id].home >= HOME_WORKSPACE)
            mark_slot(e, g->node[id].slot);
    for (TensorId t = 0; t < e->m->tensors.len; t++) {
        mark_slot(e, g->initial[t]);
        mark_slot(e, g->before[t]);
    }
    for (int i = 0; i < g->groups.len; i++) {
        const Group *k = &g->groups.data[i];
        if (k->kind == G_COLUMN)
            mark_slot(e, k->partial);
        if (k->fused)
            mark_slot(e, k->fused->maps);
    }
    for (int i = 0; i < g->parts.len; i++)
        mark_slot(e, g->parts.data[i]->buffer);
}

/* What a forward call without a reserve needs of a buffer; NULL: nothing of a size that does not depend on
 * chunks. */
static const Poly *inference_bytes(const Explain *e, int slot)
{
    const Buffer *b = &e->p->buffers.data[slot];
    if (!e->in_forward[slot] || (b->reserve && !b->inference) || !b->elements)
        return NULL;
    const Poly *bytes = buffer_bytes(e, b);
    return b->ring && b->reserve ? ring_bytes(e, b, bytes) : bytes;
}

static bool has_factor(const Poly *p, int atom)
{
    for (int i = 0; i < p->nterms; i++) {
        bool here = false;
        for (int k = 0; k < p->terms[i].natoms; k++)
            here |= p->terms[i].atoms[k] == atom;
        if (!here)
            return false;
    }
    return p->nterms > 0;
}

/* Of a buffer with a row for each sequence and step, the bytes of one; else 0. */
static const Poly *row_bytes(const Explain *e, const Buffer *b)
{
    const Poly *rows = module_rows(e->m);
    bool by_row = b->elements;
    for (int k = 0; by_row && k < rows->terms[0].natoms; k++)
        by_row = has_factor(b->elements, rows->terms[0].atoms[k]);
    return by_row ? poly_div(e->m, buffer_bytes(e, b), rows) : poly_const(e->m, 0);
}

static bool holds_states(const Explain *e, int slot)
{
    const Program *g = &e->p->program[FORWARD];
    for (TensorId t = 0; t < e->m->tensors.len; t++) {
        NodeId next = e->m->roots.data[t].next;
        if (g->before[t] == slot || (next >= 0 && g->node[next].home >= HOME_WORKSPACE &&
                                     g->node[next].slot == slot))
            return true;
    }
    return false;
}

const char *explain_saved(const Explain *e)
{
    const Poly *all = poly_const(e->m, 0), *states = all;
    for (int i = 0; i < e->p->buffers.len; i++) {
        const Buffer *b = &e->p->buffers.data[i];
        if (!b->reserve)
            continue;
        all = poly_add(e->m, all, row_bytes(e, b));
        if (holds_states(e, i))
            states = poly_add(e->m, states, row_bytes(e, b));
    }
    const char *how = "";
    if (e->p->schedule->on_chip)
        how = undone(e) ? ", beside the checkpoints: backward undoes the steps between them, and replays those behind the last one"
                        : intern_f(e->c, ", beside the checkpoints: backward replays the states of %d steps at a time",
                                   e->p->interval);
    else if (!e->p->schedule->stateless)
        how = intern_f(e->c, ", of which %s are every step's states: backward replays nothing",
                       explain_size(e, states));
    return intern_f(e->c, "%s bytes per sequence and step%s", explain_size(e, all), how);
}

static void put_saved(const Explain *e)
{
    put_paragraph(intern_f(e->c, "saved for backward: %s", explain_saved(e)), 2, e->out);
}

static void put_buffers(const Explain *e)
{
    Table t = { 0 };
    const Poly *total[2] = { poly_const(e->m, 0), poly_const(e->m, 0) }, *infer = total[0];
    bool some = false;
    table_row(e->c, &t, "buffer", "", "type", "bytes", "inference", NULL);
    for (int i = 0; i < e->p->buffers.len; i++) {
        const Buffer *b = &e->p->buffers.data[i];
        const Poly *alone = inference_bytes(e, i);
        table_row(e->c, &t, b->reserve ? "reserve" : "workspace", b->name, types[b->dtype],
                  buffer_words(e, b), alone ? explain_size(e, alone) : "-", NULL);
        infer = alone ? poly_add(e->m, infer, alone) : infer;
        if (b->bytes)
            continue;
        if (b->elements && !b->per_steps)
            total[b->reserve] = poly_add(e->m, total[b->reserve], buffer_bytes(e, b));
        else
            some = true;
    }
    buf_f(e->out, "\nmemory\n");
    if (!e->p->buffers.len) {
        buf_f(e->out, "  none beside the arguments\n");
        return;
    }
    table_print(&t, e->out);
    const char *beside = some ? ", beside checkpoints and partial sums" : "";
    put_paragraph(intern_f(e->c, "in all: reserve %s bytes, workspace at most %s bytes%s; inference, with no reserve: "
                                 "at most %s bytes; what is not needed at the same time shares memory",
                           explain_size(e, total[1]), explain_size(e, total[0]), beside, explain_size(e, infer)), 2,
                  e->out);
    put_saved(e);
}

/* ---- memory at given sizes ---- */

Explain explain_of(const Plan *p, Buf *out)
{
    Explain e = { .p = p, .m = p->m, .c = p->m->c, .out = out };
    find_needed(&e);
    find_slots(&e);
    return e;
}

static const Poly *row_count_of(const Explain *e, bool batched, bool timed)
{
    const Poly *n = batched ? poly_dim(e->m, ATOM_B) : poly_const(e->m, 1);
    return timed ? poly_mul(e->m, n, poly_dim(e->m, ATOM_T)) : n;
}

/* Elements of an argument in a call: rows for all steps, for each sequence, or one for all. */
static const Poly *argument_elements(const Explain *e, const CallArg *a)
{
    const Tensor *x = &e->m->tensors.data[a->tensor];
    bool rows = tensor_per_step(x);
    return poly_mul(e->m, row_count_of(e, x->kind != T_PARAM, rows), tensor_elements(e->m, a->tensor));
}

/* A size in numbers that do not wrap: sizes that no machine has room for are asked about as well. */
double explain_size_at(const Module *m, const Poly *x, const int64_t *sizes)
{
    double sum = 0;
    for (int i = 0; i < x->nterms; i++) {
        double v = (double)x->terms[i].coef;
        for (int k = 0; k < x->terms[i].natoms; k++) {
            int atom = x->terms[i].atoms[k];
            const Quotient *q = atom < MAX_DIMS ? NULL : &m->quotients.data[atom - MAX_DIMS];
            double den = q ? explain_size_at(m, q->den, sizes) : 1;
            v *= !q ? (double)sizes[atom] : den ? floor(explain_size_at(m, q->num, sizes) / den) : 0;
        }
        sum += v;
    }
    return sum;
}

const char *explain_refused(const Plan *p, const int64_t sizes[MAX_DIMS])
{
    for (int i = 0; i < p->m->checks.len; i++)
        if (explain_size_at(p->m, p->m->checks.data[i].nonneg, sizes) < 0)
            return p->m->checks.data[i].text;
    return NULL;
}

double explain_argument_at(const Explain *e, const CallArg *a, const int64_t *sizes)
{
    return explain_size_at(e->m, argument_elements(e, a), sizes) * dtype_bytes(argument_type(e->m, a));
}

/* Bytes of a call's arguments, of histories or of all others; own: without the values that forward's arguments are as
 * well. */
static double argument_bytes(const Explain *e, const CallArgs *args, bool own, bool histories, const int64_t *sizes)
{
    double sum = 0;
    for (int i = 0; i < args->len; i++) {
        const CallArg *a = &args->data[i];
        const Tensor *x = &e->m->tensors.data[a->tensor];
        bool ignored = a->role == ROLE_D_VALUE && !wants_gradient(e->m, a->tensor);
        if (!ignored && !(own && a->role == ROLE_VALUE) && (x->kind == T_HISTORY) == histories)
            sum += explain_argument_at(e, a, sizes);
    }
    return sum;
}

/* On a device that makes large products so. */
static bool takes_parts(const Explain *e, const Program *pr, const Gemm *g, const int64_t *sizes)
{
    double m = explain_size_at(e->m, g->m, sizes), n = explain_size_at(e->m, g->n, sizes);
    double k = explain_size_at(e->m, g->k, sizes);
    bool large = fmin(fmin(m, n), k) >= PARTS_EXTENT && m * n >= PARTS_RESULT && m * n * k >= (double)PARTS_TERMS;
    for (int side = 0; side < 2; side++)
        large &= fmod(explain_size_at(e->m, pr->parts.data[g->parts[side] - 1]->columns, sizes),
                      PARTS_MULTIPLE) == 0;
    return large || e->c->products == PRODUCTS_PARTS;
}

static const Program *parts_program(const Explain *e, const Parts *x)
{
    const Program *backward = &e->p->program[BACKWARD];
    for (int i = 0; i < backward->parts.len; i++)
        if (backward->parts.data[i] == x)
            return backward;
    return &e->p->program[FORWARD];
}

static double parts_at(const Explain *e, const Buffer *b, const int64_t *sizes)
{
    for (int i = 0; i < b->parts->products.len; i++)
        if (takes_parts(e, parts_program(e, b->parts), &b->parts->products.data[i]->gemm, sizes))
            return explain_size_at(e->m, buffer_bytes(e, b), sizes);
    return 0;
}

/* How many chunks there are partial sums of depends on the device: they are left out. */
static double buffer_at(const Explain *e, const Buffer *b, const Poly *bytes, const int64_t *sizes)
{
    double n = b->elements ? explain_size_at(e->m, bytes, sizes) : 0;
    const FormulaScope scope = { .m = e->m, .sizes = sizes };
    int64_t value;
    if (b->bytes)
        return formula_value(b->bytes, &scope, &value) ? (double)value : 0;
    if (b->parts)
        return parts_at(e, b, sizes);
    const int64_t chunks = b->per_steps ? (sizes[ATOM_T] + b->per_steps - 1) / b->per_steps : 1;
    return n * (double)chunks;
}

double explain_buffer_at(const Explain *e, int slot, const int64_t *sizes)
{
    const Buffer *b = &e->p->buffers.data[slot];
    return buffer_at(e, b, buffer_bytes(e, b), sizes);
}

static double mib(double bytes)
{
    return bytes / (1 << 20);
}

/* A call that begins with step 0 and hands nothing on has no histories: their memory is said beside the sum. */
static void put_history_memory(const Explain *e, const CallArgs *forward, const CallArgs *backward, const int64_t *sizes)
{
    double values = argument_bytes(e, forward, false, true, sizes);
    double gradients = e->m->has_grad ? argument_bytes(e, backward, true, true, sizes) : 0;
    if (values > 0)
        put_paragraph(intern_f(e->c, "beside that, where a sequence goes on from call to call: histories taken and left %.1f, "
                               "their gradients %.1f", mib(values), mib(gradients)), 2, e->out);
}

CallMemory explain_call_memory(const Plan *p, const int64_t sizes[MAX_DIMS])
{
    Explain e = explain_of(p, NULL);
    CallArgs forward = forward_arguments(p->m), backward = backward_arguments(p->m);
    CallMemory x = { 0 };
    double workspace[2] = { 0 };
    for (int i = 0; i < p->buffers.len; i++) {
        const Buffer *b = &p->buffers.data[i];
        double bytes = buffer_at(&e, b, buffer_bytes(&e, b), sizes);
        const Poly *alone = inference_bytes(&e, i);
        *(b->reserve ? &x.reserve : &workspace[e.in_forward[i] ? FORWARD : BACKWARD]) += bytes;
        x.partial |= !b->elements && !b->bytes;
        x.inference += alone ? buffer_at(&e, b, alone, sizes) : 0;
    }
    x.arguments = argument_bytes(&e, &forward, false, false, sizes);
    x.gradients = p->m->has_grad ? argument_bytes(&e, &backward, true, false, sizes) : 0;
    x.workspace = workspace[BACKWARD] > workspace[FORWARD] ? workspace[BACKWARD] : workspace[FORWARD];
    return x;
}

void explain_memory(const Plan *p, const int64_t sizes[MAX_DIMS], Buf *out)
{
    Explain e = explain_of(p, out);
    CallArgs forward = forward_arguments(p->m), backward = backward_arguments(p->m);
    CallMemory x = explain_call_memory(p, sizes);
    buf_f(out, "\nmemory at");
    for (int i = 0; i < p->m->dims.len + 2; i++)
        buf_f(out, "%s %s=%lld", i ? "," : "", i < 2 ? (i ? "T" : "B") : dim_text(p->m, i - 2),
              (long long)sizes[i < 2 ? (i ? ATOM_T : ATOM_B) : i - 2]);
    buf_f(out, ", in MiB\n");
    put_paragraph(intern_f(e.c, "training: arguments %.1f, gradients %.1f, reserve %.1f, workspace at most "
                                "%.1f%s, in all %.1f", mib(x.arguments), mib(x.gradients), mib(x.reserve),
                           mib(x.workspace), x.partial ? " beside partial sums" : "",
                           mib(x.arguments + x.gradients + x.reserve + x.workspace)), 2, out);
    put_paragraph(intern_f(e.c, "inference: arguments %.1f, workspace at most %.1f, in all %.1f",
                           mib(x.arguments), mib(x.inference), mib(x.arguments + x.inference)), 2, out);
    put_history_memory(&e, &forward, &backward, sizes);
    explain_budget(p, sizes, out);
}

static void put_checks(const Explain *e)
{
    const Module *m = e->m;
    if (m->checks.len)
        buf_f(e->out, "\nchecked at the call\n");
    for (int i = 0; i < m->checks.len; i++)
        put_paragraph(m->checks.data[i].text, 2, e->out);
}

void explain(const Plan *p, const Module *lowered, Buf *out)
{
    Explain e = explain_of(p, out);
    explain_summary(p, lowered, out);
    buf_f(out, "\n");
    put_schedule(&e);
    put_products(&e);
    put_tensors(&e);
    put_direction(&e, FORWARD);
    put_direction(&e, BACKWARD);
    put_buffers(&e);
    put_checks(&e);
}

void explain_cost(const Plan *p, Buf *out)
{
    Explain e = explain_of(p, out);
    explain_instance(&e);
    put_schedule(&e);
    put_sums(&e, FORWARD, "forward");
    put_sums(&e, BACKWARD, "backward");
    if (p->buffers.len)
        put_saved(&e);
}
