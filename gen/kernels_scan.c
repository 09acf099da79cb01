/* kernels_scan.c: CUDA text of schedule scan. In comes a program whose steps are one SCAN group (scan.c); out goes a
 * kernel whose threads have a unit each, one place of the axes that all states begin with, and walk all steps with its
 * states in registers. What a unit has several elements of is an array of registers, in loops that are unrolled; what
 * it sums over, a loop of its own. What a step reads and no step makes is asked for several steps ahead, what is the
 * same in all steps is read once (kernels_alone.c). */
#include <string.h>

#include "kernels.h"
#include "mutate.h"
#include "reads.h"
#include "scan.h"

bool in_scan(const Kernel *k)
{
    return k->panel && k->panel->alone && !k->panel->product;
}

/* Chunks of steps that read little fit into half of an SM's registers, and one block's reads hide the other's work (HGRN
 * forward: 0.147 ms for 0.181); those of backward would spill. */
int scan_resident(const Kernel *k)
{
    return in_scan(k) && k->panel->warps && k->panel_registers <= 3 && k->p->compute == DT_F32 ? 2 : 0;
}

/* ---- a unit's elements ---- */

static bool name_is_taken(const Kernel *k, const char *name, int64_t extent)
{
    for (int i = 0; i < k->inner.len; i++)
        if (strcmp(k->inner.data[i].name, name) == 0)
            return true;
    for (int i = 0; i < k->inner_names.len; i++)
        if (strcmp(k->inner_names.data[i].name, name) == 0)
            return k->inner_names.data[i].extent != extent;
    return false;
}

/* Loops of one extent share a name where they may, so that equal reads have equal texts. */
static void open_inner(Kernel *k, Buf *out, IndexId i)
{
    const Index *index = &k->p->m->indices.data[i];
    InnerLoop l = { i, k_text(k, "n_%s", index->name), index->extent->value };
    for (int n = 2; name_is_taken(k, l.name, l.extent); n++)
        l.name = k_text(k, "n_%s_%d", index->name, n);
    vec_push(k->p->m->arena, &k->inner, l);
    vec_push(k->p->m->arena, &k->inner_names, l);
    k->index[i] = l.name;
    k->meaning[i] = ix_index(k->p->m, i);
    buf_line(out, "CELL_UNROLL");
    buf_line(out, "for (int %s = 0; %s < %d; %s++) {", l.name, l.name, (int)l.extent, l.name);
    out->indent++;
}

static void close_inner(Kernel *k, Buf *out)
{
    InnerLoop *l = &k->inner.data[--k->inner.len];
    k->index[l->index] = NULL;
    k->meaning[l->index] = NULL;
    out->indent--;
    buf_line(out, "}");
}

static void open_elements(Kernel *k, Buf *out, NodeId array)
{
    Node a = *k_node(k, array);
    for (int i = k->p->scan->naxes; i < a.naxes; i++)
        open_inner(k, out, a.axes[i]);
}

static void close_elements(Kernel *k, Buf *out, NodeId array)
{
    for (int i = k->p->scan->naxes; i < k_node(k, array)->naxes; i++)
        close_inner(k, out);
}

const char *scan_element(Kernel *k, const Read *r, const char *name)
{
    if (!in_scan(k) || scan_inner(k->p, r) == 1)
        return name;
    return k_text(k, "%s[%s]", name, k_bare(k, ix_text(&k->printer, scan_inner_linear(k->p, r))));
}

/* ---- reads ---- */

/* The loops around that a read's address depends on, by name: equal texts have them in one order. */
static int loops_of(Kernel *k, const IxExpr *e, InnerLoop *out)
{
    int n = 0;
    for (int i = 0; i < k->inner.len; i++) {
        InnerLoop l = k->inner.data[i];
        int at = n;
        if (!ix_uses(e, l.index))
            continue;
        for (; at > 0 && strcmp(out[at - 1].name, l.name) > 0; at--)
            out[at] = out[at - 1];
        out[at] = l;
        n++;
    }
    return n;
}

static int64_t loops_elements(const InnerLoop *l, int n)
{
    int64_t all = 1;
    for (int i = 0; i < n; i++)
        all *= l[i].extent;
    return all;
}

static const char *loops_place(Kernel *k, const InnerLoop *l, int n)
{
    const char *at = "";
    for (int i = 0; i < n; i++)
        at = i ? k_text(k, "(%s) * %d + %s", at, (int)l[i].extent, l[i].name) : l[i].name;
    return n ? k_text(k, "[%s]", at) : "";
}

static void print_in_loops(Buf *out, const InnerLoop *l, int n, const char *statement)
{
    for (int i = 0; i < n; i++) {
        buf_line(out, "CELL_UNROLL");
        buf_line(out, "for (int %s = 0; %s < %d; %s++)", l[i].name, l[i].name, (int)l[i].extent, l[i].name);
        out->indent++;
    }
    buf_line(out, "%s;", statement);
    out->indent -= n;
}

static const char *read_once(Kernel *k, const char *s, const InnerLoop *l, int loops)
{
    bool first;
    int n = k_number(k, &k->once_reads, s, &first);
    const char *place = loops_place(k, l, loops);
    if (first) {
        if (loops)
            buf_line(&k->once, "%s once_%d[%d];", k->real, n, (int)loops_elements(l, loops));
        const char *to = loops ? k_text(k, "once_%d%s", n, place) : k_text(k, "const %s once_%d", k->real, n);
        print_in_loops(&k->once, l, loops, k_text(k, "%s = %s", to, k_bare(k, s)));
    }
    return k_text(k, "once_%d%s", n, place);
}

/* May it be computed whatever conditions stand around it? */
static bool is_total(Kernel *k, NodeId id)
{
    const Node n = *k_node(k, id);
    Read r;
    if (n.kind != N_MAP && plan_resolve(k->p, id, &r))
        return !r.step && k_always_inside(k, &r) &&
               (r.is_tensor || k->pr->node[r.id].home != HOME_NONE || is_total(k, k_node(k, r.id)->args[0]));
    if (n.kind == N_REDUCE || n.op == OP_SELECT)
        return false;
    for (int i = 0; i < n.nargs; i++)
        if (!is_total(k, n.args[i]))
            return false;
    return true;
}

/* What is the same at all steps is computed once, where it costs more than a register: a gate's bound that is a sigmoid
 * of a param. NULL: it is not the same, or not dear. */
const char *scan_once(Kernel *k, NodeId id)
{
    const Node n = *k_node(k, id);
    const IxExpr *place = ix_const(k->p->m, poly_const(k->p->m, 0));
    InnerLoop l[64];
    if (!in_scan(k) || k->away || id == k->hoisting || n.kind != N_MAP || n.type != TY_REAL || op_table[n.op].cost < 4 ||
        n.dep != DEP_PARAM || !is_total(k, id))
        return NULL;
    for (int i = 0; i < n.naxes; i++) {
        if (!k->meaning[n.axes[i]])
            return NULL;
        place = ix_add(k->p->m, place, k->meaning[n.axes[i]]);
    }
    NodeId outer = k->hoisting;
    int loops = loops_of(k, place, l);
    k->hoisting = id;
    k->depth++;                       /* the step's locals are not there yet */
    const char *s = expr_text(&k->printer, id);
    k->depth--;
    k->hoisting = outer;
    return read_once(k, s, l, loops);
}

/* Only what is certainly inside, in terms of the unit and of the loops around, is there whatever conditions stand
 * around the read. What is ahead is kept as it lies in memory: to convert it would be to wait for it. */
const char *scan_read_ahead(Kernel *k, const Read *r, const char *s, const AheadRead *as)
{
    InnerLoop l[64];
    const IxExpr *e = k->away ? NULL : panel_in_units(k, read_linear(k->p->m, r));
    if (!e || !k_always_inside(k, r))
        return s;
    int loops = loops_of(k, e, l);
    if (!as->timed)
        return read_once(k, s, l, loops);
    const char *place = loops_place(k, l, loops);
    bool first;
    int n = k_number(k, &k->panel_reads, as->text, &first);
    if (first) {
        int elements = (int)loops_elements(l, loops);
        print_in_loops(&k->early, l, loops, k_text(k, "ahead.r%d%s = %s", n, place, k_bare(k, as->text)));
        buf_f(&k->ahead_fields, loops ? " %s r%d[%d];" : " %s r%d;", as->type, n, elements);
        k->panel_registers += elements;
    }
    const char *at = k_text(k, "ahead_0[u].r%d%s", n, place);
    if (as->half)
        at = k_text(k, "%s{(uint16_t)%s}", as->half, at);
    return !as->half && strcmp(as->type, k->real) == 0 ? at : k_text(k, "cell_convert<%s>(%s)", k->real, at);
}

/* ---- values ---- */

static const char *start_of(ReduceOp r)
{
    return r == R_MAX ? "-CELL_INF" : r == R_MIN ? "CELL_INF" : r == R_PROD ? "1" : "0";
}

static const char *join(Kernel *k, ReduceOp r, const char *sum, const char *term)
{
    if (r == R_MAX || r == R_MIN)
        return k_text(k, "%s = cell_%s(%s, %s);", sum, r == R_MAX ? "max" : "min", sum, term);
    return k_text(k, "%s %s= %s;", sum, r == R_PROD ? "*" : "+", term);
}

/* to: what takes the value, declared. */
static void print_reduction(Kernel *k, Node r, const char *to)
{
    Named named = { 0 };
    for (int i = 0; i < r.nbound; i++)
        open_inner(k, k->out, r.bound[i]);
    const char *term = k_body(k, r.args[0], &named);
    buf_line(k->out, "%s", join(k, r.reduce, to, term));
    k_forget(k, &named);
    for (int i = 0; i < r.nbound; i++)
        close_inner(k, k->out);
}

static Read own_elements(Kernel *k, NodeId id, const IxExpr **map)
{
    Read self = { .id = id, .nmap = k_node(k, id)->naxes, .map = map };
    for (int i = 0; i < self.nmap; i++)
        map[i] = ix_index(k->p->m, k_node(k, id)->axes[i]);
    return self;
}

static void store_elements(Kernel *k, NodeId id, const Read *self, const char *name)
{
    Buf *out = k->out;
    open_elements(k, &k->late, id);
    k->out = &k->late;
    k_store(k, id, scan_element(k, self, name));
    k->out = out;
    close_elements(k, &k->late, id);
}

static void print_array(Kernel *k, NodeId id, Named *kept, bool stores)
{
    const IxExpr *map[64];
    Read self = own_elements(k, id, map);
    Node body = *k_node(k, k_node(k, id)->args[0]);
    bool sums = plan_reduces(k->p, id);
    int64_t elements = scan_inner(k->p, &self);
    Named named = { 0 };
    k_bind_axes(k, id);
    k_comment(k, id);
    const char *name = k_local(k, "a", id);
    if (elements > 1)
        buf_line(k->out, "%s %s[%d];", k->real, name, (int)elements);
    open_elements(k, k->out, id);
    const char *to = scan_element(k, &self, name), *declared = elements > 1 ? to : k_text(k, "%s %s", k->real, to);
    if (sums) {
        buf_line(k->out, "%s = %s;", declared, start_of(body.reduce));
        print_reduction(k, body, to);
    } else {
        const char *v = k_body(k, k_node(k, id)->args[0], &named);
        buf_line(k->out, "%s%s = %s;", elements > 1 ? "" : "const ", declared, v);
        k_forget(k, &named);
    }
    close_elements(k, k->out, id);
    k->value[id] = name;
    vec_push(k->p->m->arena, kept, id);
    if (stores && k_is_stored(k, id))
        store_elements(k, id, &self, name);
}

/* ---- sums over batch and time ---- */

/* The groups of sums that the walk leaves a row of for each sequence. */
static bool is_summed(const Kernel *k, int group)
{
    const Group *g = &k->pr->groups.data[group];
    return g->kind == G_COLUMN && g->by_rows && k->pr->groups.data[g->by_rows - 1].kind == G_SCAN;
}

static void each_sum(Kernel *k, void (*print)(Kernel *k, const Group *g, int number))
{
    for (int i = 0; i < k->pr->groups.len; i++)
        for (int j = 0; is_summed(k, i) && j < k->pr->groups.data[i].arrays.len; j++)
            print(k, &k->pr->groups.data[i], j);
}

static const char *sum_name(Kernel *k, NodeId id)
{
    return k_text(k, "sum_%d", id);
}

static int64_t array_inner(Kernel *k, NodeId id)
{
    const IxExpr *map[64];
    Read self = own_elements(k, id, map);
    return scan_inner(k->p, &self);
}

static void declare_sum(Kernel *k, const Group *g, int number)
{
    NodeId id = g->arrays.data[number];
    int elements = (int)array_inner(k, id);
    buf_line(k->out, elements > 1 ? "%s %s[%d] = {};" : "%s %s = 0;", k->real, sum_name(k, id), elements);
}

static void add_to_sum(Kernel *k, const Group *g, int number)
{
    NodeId id = g->arrays.data[number];
    const IxExpr *map[64];
    Read self = own_elements(k, id, map);
    Node r = *k_node(k, k_node(k, id)->args[0]);
    Named named = { 0 };
    k_bind_axes(k, id);
    k_comment(k, id);
    open_elements(k, k->out, id);
    const char *term = k_body(k, r.args[0], &named);
    buf_line(k->out, "%s += %s;", scan_element(k, &self, sum_name(k, id)), term);
    k_forget(k, &named);
    close_elements(k, k->out, id);
}

/* Warps that have steps of the same units add up their sums in order. */
static const char *sum_of_warps(Kernel *k, const char *value)
{
    if (!k->panel->warps)
        return value;
    buf_line(k->out, "cell_barrier();");
    buf_line(k->out, "maps[warp * 32 + lane] = %s;", value);
    buf_line(k->out, "cell_barrier();");
    buf_line(k->out, "%s total = 0;", k->real);
    buf_line(k->out, "for (int v = 0; v < %d; v++)", k->panel->warps);
    buf_line(k->out, "    total += (%s)maps[v * 32 + lane];", k->real);
    return "total";
}

static void store_sum(Kernel *k, const Group *g, int number)
{
    NodeId id = g->arrays.data[number];
    int elements = (int)array_inner(k, id);
    const char *name = sum_name(k, id), *units = k_poly(k, k->panel->units);
    const char *partial = k_written(k, REF_BUFFER, g->partial, k->p->compute);
    buf_line(k->out, "CELL_UNROLL");
    k_open(k, "for (int j = 0; j < %d; j++)", elements);
    const char *value = sum_of_warps(k, elements > 1 ? k_text(k, "%s[j]", name) : name);
    if (k->panel->warps)
        buf_line(k->out, "if (warp == 0 && mine)");
    buf_line(k->out, "%s%s[((%d * dim_B + b) * %s + e) * %d + j] = %s;", k->panel->warps ? "    " : "", partial, number,
             units, elements, value);
    k_close(k);
}

/* ---- states ---- */

static int state_elements(const Kernel *k, TensorId s)
{
    int64_t n = 1;
    for (int i = k->p->scan->naxes; i < k->p->m->tensors.data[s].rank; i++)
        n *= k->p->m->tensors.data[s].axes[i]->value;
    return (int)n;
}

/* Where element j of unit n, counted through all sequences, lies. */
static const char *unit_place(Kernel *k, int each)
{
    return each > 1 ? k_text(k, "n * %d + j", each) : "n";
}

/* The state before the first step, or the adjoint behind the last. */
static void print_states(Kernel *k)
{
    Plan *p = k->p;
    for (TensorId s = 0; s < p->m->tensors.len; s++) {
        if (p->m->tensors.data[s].kind != T_STATE)
            continue;
        int each = state_elements(k, s);
        const char *at, *name = state_name(k, s), *from = state_start(k, s, unit_place(k, each), &at);
        if (each == 1) {
            buf_line(k->out, "%s %s = %s[%s];", k->real, name, from, at);
            continue;
        }
        buf_line(k->out, "%s %s[%d];", k->real, name, each);
        buf_line(k->out, "CELL_UNROLL");
        buf_line(k->out, "for (int j = 0; j < %d; j++)", each);
        buf_line(k->out, "    %s[j] = %s[%s];", name, from, at);
    }
}

/* The final states, or the adjoints of the initial ones; where there is no step, others have written them. */
static void print_last_states(Kernel *k)
{
    Plan *p = k->p;
    bool forward = k->pr->dir == FORWARD;
    int warps = k->panel->warps;
    k_open(k, "if (%s)", warps ? k_text(k, "mine && dim_T > 0 && (dim_T - 1) / steps %% %d == warp", warps) : "dim_T > 0");
    for (TensorId s = 0; s < p->m->tensors.len; s++) {
        if (p->m->tensors.data[s].kind != T_STATE || (forward ? p->m->next.data[s] : p->m->dprev.data[s]) < 0)
            continue;
        int each = state_elements(k, s);
        const char *name = state_name(k, s), *to = k_written(k, forward ? REF_FINAL : REF_CARRY, s, p->compute);
        if (forward)
            k_open(k, "if (%s)", to);
        if (each > 1) {
            buf_line(k->out, "CELL_UNROLL");
            buf_line(k->out, "for (int j = 0; j < %d; j++)", each);
        }
        buf_line(k->out, each > 1 ? "    cell_store(%s + %s, %s[j]);" : "cell_store(%s + %s, %s);", to,
                 each > 1 ? k_text(k, "(%s)", unit_place(k, each)) : unit_place(k, each), name);
        if (forward)
            k_close(k);
    }
    k_close(k);
}

/* ---- the whole ---- */

static Group *step_group(const Kernel *k)
{
    int i = 0;
    while (k->pr->groups.data[i].kind != G_SCAN)
        i++;
    return &k->pr->groups.data[i];
}

/* The text of a unit's indices. */
static const char *name_units(Kernel *k, const Group *g)
{
    Buf *out = k->out, names = { .arena = out->arena, .indent = out->indent + 1 };
    k->units = k_node(k, g->arrays.data[0])->axes;
    k->out = &names;
    k_split_element(k, k->units, k->p->scan->naxes, "e", "i");
    k->out = out;
    for (int i = 0; i < k->p->scan->naxes; i++)
        k->own[i] = k->index[k->units[i]];
    return names.data;
}

/* Everything of a step begins here. */
static void begin_step(Kernel *k, Group *g, Buf *body, int indent)
{
    Buf *out = k->out;
    *body = (Buf){ .arena = out->arena, .indent = out->indent + indent };
    k->late = *body;
    k->late.indent += k->panel->warps > 0;
    k->g = g;
    k->b = "b";
    k->row = "bt";
}

static void begin_reads(Kernel *k)
{
    k->early = (Buf){ .arena = k->out->arena, .indent = k->out->indent + 2 };
    k->ahead_fields = (Buf){ .arena = k->out->arena };
    k->panel_reads.len = 0;
    k->panel_registers = 0;
}

/* A step, printed but for its loop. */
static PanelLoop print_group(Kernel *k, Group *g)
{
    Buf *out = k->out, body;
    PanelLoop l = { .number = 0 };
    Named kept = { 0 };
    begin_step(k, g, &body, k->panel->warps ? 5 : 4);
    k->out = &body;
    for (int i = 0; i < g->arrays.len; i++)
        print_array(k, g->arrays.data[i], &kept, true);
    each_sum(k, add_to_sum);
    k_forget(k, &kept);
    k->out = out;
    k->g = NULL;
    l.ahead = k->panel_reads.len;
    l.early = k->early.data;
    l.fields = k->ahead_fields.data;
    l.body = body.data;
    l.late = k->late.data;
    return l;
}

static const char *split_units(Kernel *k)
{
    const char *units = k_poly(k, k->panel->units);
    return k_text(k, "const int64_t b = n / %s, e = n - b * %s;", units, units);
}

static void open_units(Kernel *k, const char *indices)
{
    buf_line(k->out, "const int64_t elements = dim_B * %s;", k_poly(k, k->panel->units));
    k_open(k, "for (int64_t n = cell_block_index(0) * %d + cell_thread(); n < elements; n += cell_block_count(0) * %d)",
           SCAN_THREADS, SCAN_THREADS);
    buf_line(k->out, "%s", split_units(k));
    buf_f(k->out, "%s", indices);
}

static const char *step_of(const Kernel *k, const char *forward, const char *backward)
{
    return k->pr->dir == FORWARD ? forward : backward;
}

/* What both kernels print first: the step itself and what it reads. */
static const char *begin_walk(Kernel *k, Group *g)
{
    k->one_step = true;
    k->t = "t";
    k->once = (Buf){ .arena = k->out->arena, .indent = k->out->indent + 1 };
    k->once_reads.len = k->inner.len = k->inner_names.len = 0;
    const char *indices = name_units(k, g);
    begin_reads(k);
    return indices;
}

void print_scan_walk(Kernel *k)
{
    Group *g = step_group(k);
    const char *indices = begin_walk(k, g);
    PanelLoop l = print_group(k, g);
    int depth = alone_depth(k->panel_registers);
    k->row = NULL;
    open_units(k, indices);
    print_states(k);
    buf_f(k->out, "%s", k->once.data ? k->once.data : "");
    each_sum(k, declare_sum);
    alone_reads(k, &l, depth);
    k_open(k, "for (int64_t begin = 0; begin < dim_T; begin += %d)", depth);
    alone_next_reads(k, &l, depth);
    buf_line(k->out, "CELL_UNROLL");
    k_open(k, "for (int u = 0; u < %d; u++)", depth);
    k_open(k, "if (begin + u < dim_T)");
    buf_line(k->out, "const int64_t t = %s;", step_of(k, "begin + u", "dim_T - 1 - begin - u"));
    k_declare_rows(k);
    buf_f(k->out, "%s%s", l.body ? l.body : "", l.late ? l.late : "");
    k_close(k);
    k_close(k);
    alone_take_reads(k, &l, depth);
    k_close(k);
    print_last_states(k);
    each_sum(k, store_sum);
    k_close(k);
}

/* ---- chunks of time ---- */

/* A state in the step: its next value, or its adjoint before the step. */
static NodeId next_of(const Kernel *k, TensorId s)
{
    const Module *m = k->p->m;
    if (m->tensors.data[s].kind != T_STATE)
        return -1;
    return k->pr->dir == FORWARD ? m->next.data[s] : m->dprev.data[s];
}

/* The arrays of the step that a value is made of. An alias has no phase of its own: what it names may be of the step. */
static void mark_parts(const Kernel *k, NodeId id, bool *part)
{
    const Node *n = k_node(k, id);
    if (part[id] || (n->kind == N_ARRAY && !k->p->is_alias[id] && k->pr->phase[id] != PHASE_DURING))
        return;
    part[id] = true;
    for (int i = 0; i < n->nargs; i++)
        mark_parts(k, n->args[i], part);
}

static bool *parts_of_states(Kernel *k)
{
    bool *part = arena_alloc(k->p->m->arena, (size_t)k->p->m->nodes.len + 1);
    for (TensorId s = 0; s < k->p->m->tensors.len; s++) {
        if (next_of(k, s) < 0)
            continue;
        mark_parts(k, next_of(k, s), part);
        if (k->pr->slope[s] >= 0)
            mark_parts(k, k->pr->slope[s], part);
    }
    return part;
}

static const char *slope_name(Kernel *k, TensorId s)
{
    return k_text(k, "r_%s", k->p->m->tensors.data[s].name);
}

static const char *carry_name(Kernel *k, TensorId s)
{
    return k_text(k, "c_%s", k->p->m->tensors.data[s].name);
}

/* A step of the map that a chunk is of the state before it: from 0, and what multiplies that state. */
static void print_slope(Kernel *k, TensorId s)
{
    const IxExpr *map[64];
    NodeId next = next_of(k, s), slope = k->pr->slope[s];
    Read self = own_elements(k, next, map);
    Named named = { 0 };
    k_bind_axes(k, next);
    open_elements(k, k->out, next);
    const char *times = slope < 0 ? "0" : k_body(k, slope, &named);
    const char *r = scan_element(k, &self, slope_name(k, s)), *h = scan_element(k, &self, state_name(k, s));
    /* A slope of 0 forgets whatever came before, infinities too, as the walk does. */
    buf_line(k->out, "{");
    k->out->indent++;
    buf_line(k->out, "const %s cell_slope = is_step ? %s : 1;", k->real, times);
    buf_line(k->out, "%s = cell_slope == 0 ? 0 : %s * cell_slope;", r, r);
    k_close(k);
    buf_line(k->out, "%s = is_step ? %s : %s;", h, scan_element(k, &self, k->value[next]), h);
    k_forget(k, &named);
    close_elements(k, k->out, next);
}

/* Without a branch, so that what it computes is there for the second walk: beyond the last step it takes that again. */
static const char *print_map_step(Kernel *k, Group *g)
{
    Buf *out = k->out, body;
    Named kept = { 0 };
    const bool *part = parts_of_states(k);
    int taken = k->locals.taken.len, numbered = k->numbered;
    begin_step(k, g, &body, 4);
    k->out = &body;
    for (int i = 0; i < g->arrays.len; i++)
        if (part[g->arrays.data[i]])
            print_array(k, g->arrays.data[i], &kept, false);
    for (TensorId s = 0; s < k->p->m->tensors.len; s++)
        if (next_of(k, s) >= 0)
            print_slope(k, s);
    k_forget(k, &kept);
    names_cut(&k->locals, taken);
    k->numbered = numbered;
    k->out = out;
    return body.data;
}

/* A local beside a state, and what it begins with. */
static void declare_beside(Kernel *k, TensorId s, const char *name, const char *value)
{
    int n = state_elements(k, s);
    if (n == 1) {
        buf_line(k->out, "%s %s = %s;", k->real, name, value);
        return;
    }
    buf_line(k->out, "%s %s[%d];", k->real, name, n);
    buf_line(k->out, "CELL_UNROLL");
    buf_line(k->out, "for (int j = 0; j < %d; j++)", n);
    buf_line(k->out, "    %s[j] = %s;", name, value);
}

static void declare_carries(Kernel *k)
{
    for (TensorId s = 0; s < k->p->m->tensors.len; s++)
        if (next_of(k, s) >= 0)
            declare_beside(k, s, carry_name(k, s),
                           k_text(k, state_elements(k, s) > 1 ? "%s[j]" : "%s", state_name(k, s)));
}

/* The chunk's map: from a state of 0. */
static void begin_maps(Kernel *k)
{
    for (TensorId s = 0; s < k->p->m->tensors.len; s++) {
        int n = next_of(k, s) < 0 ? 0 : state_elements(k, s);
        if (n)
            declare_beside(k, s, slope_name(k, s), "1");
        if (n > 1)
            buf_line(k->out, "for (auto &h : %s)", state_name(k, s));
        if (n)
            buf_line(k->out, n > 1 ? "    h = 0;" : "%s = 0;", state_name(k, s));
    }
}

/* Where warp `of` leaves the map of element j of a state: the slope, and 32 behind it the rest. */
static const char *map_place(Kernel *k, TensorId s, const char *of)
{
    int before = 0, all = (int)scan_state_elements(k->p);
    for (TensorId t = 0; t < s; t++)
        before += k->p->m->tensors.data[t].kind == T_STATE ? state_elements(k, t) : 0;
    return k_text(k, "((turn * %d + %s) * %d + %d%s) * 64 + lane", k->panel->warps, of, all, before,
                  state_elements(k, s) > 1 ? " + j" : "");
}

/* Element j of a state to the maps, or from the map of warp v. */
static void print_map(Kernel *k, TensorId s, bool get)
{
    int n = state_elements(k, s);
    const char *j = n > 1 ? "[j]" : "", *c = carry_name(k, s), *h = state_name(k, s), *r = slope_name(k, s);
    if (n > 1) {
        buf_line(k->out, "CELL_UNROLL");
        k_open(k, "for (int j = 0; j < %d; j++)", n);
    }
    if (get) {
        const char *at = map_place(k, s, "v"), *name = k_text(k, "slope_%s", k->p->m->tensors.data[s].name);
        buf_line(k->out, "%s%s = v == warp ? %s%s : %s%s;", h, j, c, j, h, j);
        buf_line(k->out, "const %s %s = maps[%s];", k->real, name, at);
        buf_line(k->out, "%s%s = (%s == 0 ? 0 : %s * %s%s) + (%s)maps[%s + 32];", c, j, name, name, c, j, k->real, at);
    } else {
        buf_line(k->out, "maps[%s] = %s%s;", map_place(k, s, "warp"), r, j);
        buf_line(k->out, "maps[%s + 32] = %s%s;", map_place(k, s, "warp"), h, j);
    }
    if (n > 1)
        k_close(k);
}

/* All warps go through the chunks' maps in order; each has the state before its own on the way, and before the next
 * turn behind them. A slope of 0 forgets the state, whatever it is. */
static void print_exchange(Kernel *k)
{
    for (TensorId s = 0; s < k->p->m->tensors.len; s++)
        if (next_of(k, s) >= 0)
            print_map(k, s, false);
    buf_line(k->out, mutate("missing-barrier") ? "" : "cell_barrier();");
    k_open(k, "for (int v = 0; v < %d; v++)", k->panel->warps);
    for (TensorId s = 0; s < k->p->m->tensors.len; s++)
        if (next_of(k, s) >= 0)
            print_map(k, s, true);
    k_close(k);
}

/* full: all chunks of the turn are whole. Then no step is tested, and addresses are so far apart as is known. */
static void open_steps(Kernel *k, bool full)
{
    buf_line(k->out, "CELL_UNROLL");
    k_open(k, "for (int u = 0; u < steps; u++)");
    if (full)
        buf_line(k->out, "[[maybe_unused]] const int64_t t = %s;", step_of(k, "from + u", "dim_T - 1 - from - u"));
    else
        buf_line(k->out, "[[maybe_unused]] const int64_t t = %s;", alone_step_or_last(k, "from + u"));
    k_declare_rows(k);
}

static void print_turn(Kernel *k, const PanelLoop *l, const char *map, bool full)
{
    const char *is_step = full ? "[[maybe_unused]] constexpr bool is_step = true;"
                               : "[[maybe_unused]] const bool is_step = from + u < dim_T;";
    if (l->ahead) {
        buf_line(k->out, "reads_0 ahead_0[steps];");
        buf_line(k->out, "CELL_UNROLL");
        buf_line(k->out, "for (int u = 0; u < steps; u++)");
        buf_line(k->out, "    read_0(%s, ahead_0[u]);",
                 full ? step_of(k, "from + u", "dim_T - 1 - from - u") : alone_step_or_last(k, "from + u"));
    }
    begin_maps(k);
    open_steps(k, full);
    buf_line(k->out, "%s", is_step);
    buf_f(k->out, "%s", map ? map : "");
    k_close(k);
    print_exchange(k);
    open_steps(k, full);
    buf_line(k->out, "%s", is_step);
    k_open(k, "if (is_step)");
    buf_f(k->out, "%s", l->body ? l->body : "");
    buf_line(k->out, "if (mine) {");
    buf_f(k->out, "%s", l->late ? l->late : "");
    buf_line(k->out, "}");
    k_close(k);
    k_close(k);
}

/* 32 units to a block, a chunk of the steps to each of its warps. */
static void open_chunks(Kernel *k, const char *indices)
{
    buf_line(k->out, "const int64_t elements = dim_B * %s;", k_poly(k, k->panel->units));
    buf_line(k->out, "const int lane = cell_thread() %% 32, warp = cell_thread() / 32;");
    buf_line(k->out, "auto cursor = cell_shared();");
    buf_line(k->out, "cell_smem<%s> maps = cell_carve<%s>(cursor, %d);", k->real, k->real,
             k->panel->warps * (int)scan_map_numbers(k->p));
    k_open(k, "for (int64_t first = cell_block_index(0) * 32; first < elements; first += cell_block_count(0) * 32)");
    buf_line(k->out, "const bool mine = first + lane < elements;");
    buf_line(k->out, "const int64_t n = mine ? first + lane : elements - 1;");
    buf_line(k->out, "%s", split_units(k));
    buf_f(k->out, "%s", indices);
}

void print_scan_chunks(Kernel *k)
{
    Group *g = step_group(k);
    const char *indices = begin_walk(k, g), *map = print_map_step(k, g);
    PanelLoop l = print_group(k, g);
    int depth = alone_depth(k->panel_registers), tile = depth * k->panel->warps;
    k->row = NULL;
    buf_line(k->out, "constexpr int steps = %d;", depth);
    open_chunks(k, indices);
    print_states(k);
    declare_carries(k);
    buf_f(k->out, "%s", k->once.data ? k->once.data : "");
    each_sum(k, declare_sum);
    alone_declare_reads(k, &l);
    buf_line(k->out, "int turn = 0;");
    k_open(k, "for (int64_t begin = 0; begin < dim_T; begin += %d)", tile);
    buf_line(k->out, "const int64_t from = begin + warp * steps;");
    k_open(k, "if (begin + %d <= dim_T)", tile);
    print_turn(k, &l, map, true);
    k->out->indent--;
    buf_line(k->out, "} else {");
    k->out->indent++;
    print_turn(k, &l, map, false);
    k_close(k);
    buf_line(k->out, "turn ^= 1;");
    k_close(k);
    print_last_states(k);
    each_sum(k, store_sum);
    buf_line(k->out, "cell_barrier();");
    k_close(k);
}
