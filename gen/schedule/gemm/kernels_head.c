/* kernels_head.c: CUDA text of the kernels of schedule gemm whose blocks, or clusters, have a head each,
 * and whose threads one element for all steps, with its states in registers. In comes a ResidentWalk
 * (resident.c); out goes a kernel: what the product of a step reads and gives passes through shared memory
 * (cell_device_head.cuh), of all the cluster's blocks (cell_device_cluster.cuh). What a step reads and no
 * step makes is asked for several steps ahead; what is the same in all steps is read once. Loops that read
 * ahead are in templates/head.cuh. */
#include <string.h>

#include "base/mutate.h"
#include "kernels/kernels.h"
#include "kernels_resident.h"
#include "resident.h"
#include "templates/head.h"

static bool in_cluster(const Kernel *k)
{
    return gemm(k)->w->sharing == SHARE_CLUSTER;
}

/* The walk's one product. */
static const ResidentProduct *only(const Kernel *k)
{
    return gemm(k)->w->products;
}

/* ---- states ---- */

/* Of a state, or of the adjoint of its next value. */
static const char *held(Kernel *k, const Read *r)
{
    const Tensor *x = r->is_tensor ? &k->p->m->tensors.data[r->id] : NULL;
    const char *sum = resident_held(k, r);
    if (sum || !x)
        return sum;
    return x->kind == T_DNEXT ? state_name(k, x->of) : k->pr->dir == FORWARD ? state_name(k, r->id) : NULL;
}

static bool carries(Kernel *k, TensorId s, const Read *r, const char *value)
{
    const char *name = state_name(k, s);
    (void)r;
    buf_line(&k->walk->late, "new_%s = %s;", name, value); /* other groups of the step may still read it */
    buf_line(&gemm(k)->updates, "%s = new_%s;", name, name);
    return true;
}

static const char *state_place(Kernel *k, TensorId s)
{
    return k_text(k, "b * %s + e", k_poly(k, tensor_elements(k->p->m, s)));
}

static bool carried(const Kernel *k, TensorId s)
{
    const Module *m = k->p->m;
    const Roots *of = &m->roots.data[s];
    return m->tensors.data[s].kind == T_STATE && (k->pr->dir == FORWARD ? of->next : of->dprev) >= 0;
}

static const char *initial_state(Kernel *k, TensorId s)
{
    NodeId init = k->p->m->roots.data[s].init;
    for (int i = 0; init >= 0 && i < k_node(k, init)->naxes; i++)
        k->index[k_node(k, init)->axes[i]] = k->own[i];
    k->away++; /* before the first step */
    const char *value = state_learned(k, s);
    k->away--;
    return k_text(k, "cell_given(%s, %s, %s, (%s)(%s))", k_pointer(k, REF_TENSOR, s, k->p->compute),
                  k_written(k, REF_INITIAL, s, k->p->compute), state_place(k, s), k->real, value);
}

static const char *last_adjoint(Kernel *k, TensorId s)
{
    return k_text(k, "cell_given(%s, %s, %s, (%s)0)", k_pointer(k, REF_DFINAL, s, k->p->compute),
                  k_written(k, REF_CARRY, s, k->p->compute), state_place(k, s), k->real);
}

/* The state before the first step, or the adjoint behind the last; what the product carries is its sum. */
static void print_states(Kernel *k)
{
    for (TensorId s = 0; s < k->p->m->tensors.len; s++) {
        if (k->p->m->tensors.data[s].kind != T_STATE)
            continue;
        bool forward = k->pr->dir == FORWARD;
        const char *name = state_name(k, s), *value = forward ? initial_state(k, s) : last_adjoint(k, s);
        if (!forward && resident_is_product(k, k->p->m->roots.data[s].dprev))
            buf_line(k->out, "%s sum_0 = %s;", k->real, value);
        else
            buf_line(k->out, "[[maybe_unused]] %s %s = %s, new_%s = %s;", k->real, name, value, name, name);
    }
}

/* The operand of the first step, where the step before makes it. */
static void print_first_operand(Kernel *k)
{
    Read r;
    if (!only(k)->operand_ready || !plan_resolve(k->p, k_node(k, only(k)->operand)->args[0], &r))
        return;
    HeadOperandFrame f = { .cluster = in_cluster(k), .state = state_name(k, r.id) };
    head_operand_frame(k->out, &f);
}

/* Where backward, the products and the first step find them. */
static void store_initial_states(Kernel *k)
{
    for (TensorId s = 0; s < k->p->m->tensors.len; s++)
        if (k->p->m->tensors.data[s].kind == T_STATE)
            state_store_initial(k, s, state_place(k, s), state_name(k, s));
}

/* The final states, or the adjoints of the initial ones, for others too. */
static void print_last_states(Kernel *k)
{
    bool forward = k->pr->dir == FORWARD;
    for (TensorId s = 0; s < k->p->m->tensors.len; s++) {
        if (!carried(k, s))
            continue;
        Dtype type = k->p->compute;
        bool product = !forward && resident_is_product(k, k->p->m->roots.data[s].dprev);
        HeadLastFrame f = { .at = state_place(k, s), .value = product ? "sum_0" : state_name(k, s) };
        f.to = k_written(k, forward ? REF_FINAL : REF_DINIT, s, type);
        f.carry = forward ? NULL : k_written(k, REF_CARRY, s, type);
        head_last_frame(k->out, &f);
    }
}

/* ---- reads ahead ---- */

/* Steps whose reads are under way. A step of a cluster takes longer than memory does, and the weights leave
 * few registers. */
static int depth_of(const Kernel *k, const WalkGroup *loops, int n)
{
    int reads = 0;
    for (int i = 0; i < n; i++)
        reads += loops[i].ahead;
    if (in_cluster(k))
        return reads <= 6 ? 2 : 1;
    return walk_depth(reads > 16 ? 17 : reads);
}

/* Beyond the last step it is read again: without a condition nothing has to wait for what is read. */
static const char *step_or_last(Kernel *k, const char *n)
{
    bool forward = k->pr->dir == FORWARD;
    return k_text(k, forward ? "%s < dim_T ? %s : dim_T - 1" : "%s < dim_T ? dim_T - 1 - (%s) : 0", n, n);
}

static void print_reads(Kernel *k, const WalkGroup *l, const char *depth)
{
    if (l->ahead == 0)
        return;
    HeadReadsFrame f = { .fields = l->fields, .early = l->early, .depth = depth };
    f.number = k_text(k, "%d", l->number);
    f.rows = k_lines_of(k, k_declare_rows);
    f.step = step_or_last(k, "u");
    head_reads_frame(k->out, &f);
}

static void print_next_reads(Kernel *k, const WalkGroup *l, const char *depth)
{
    if (l->ahead == 0)
        return;
    HeadNextReadsFrame f = { .number = k_text(k, "%d", l->number), .depth = depth };
    f.step = step_or_last(k, k_text(k, "begin + %s + u", depth));
    head_next_reads_frame(k->out, &f);
}

static void print_take_reads(Kernel *k, const WalkGroup *l, const char *depth)
{
    if (l->ahead == 0)
        return;
    HeadTakeReadsFrame f = { .number = k_text(k, "%d", l->number), .depth = depth };
    head_take_reads_frame(k->out, &f);
}

/* What one of them prints for each group. */
static const char *of_groups(Kernel *k, void (*print)(Kernel *, const WalkGroup *, const char *),
                             const WalkGroup *loops, int n, const char *depth)
{
    Buf text, *out = k_divert(k, &text);
    for (int i = 0; i < n; i++)
        print(k, &loops[i], depth);
    return k_lines(k, out);
}

/* ---- a head's product ---- */

/* The product's operand has this value at the element. */
static void put_operand(Kernel *k, const Stored *s)
{
    int64_t piece;
    const char *value = s->value;
    const IxExpr *e = walk_in_units(k, s->lin);
    if (!e || !resident_piece(k->p->m, e, s->pitch, k->walk->units, gemm(k)->w->naxes, &piece))
        bug(k->p->m->c, "kernels", "a step makes the operand of another unit");
    if (mutate("unput-operand"))
        return;
    if (!in_cluster(k)) {
        buf_line(gemm(k)->now, "panel.put(sequence, %d, own, %s);", (int)piece, value);
        return;
    }
    bool last = only(k)->operand_ready && !mutate("put-behind-end");
    if (last) /* what is sent behind the last product may find no block */
        buf_line(gemm(k)->now, "if (%s + 1 < dim_T)", k->t);
    buf_line(gemm(k)->now, "%spanel.put(mine, %d, %s);", last ? "    " : "", (int)piece, value);
}

static void stores_next(Kernel *k, Stored *s)
{
    if (only(k)->operand_ready)
        put_operand(k, s);
    s->out = in_cluster(k) ? &k->walk->late : gemm(k)->now;
}

/* Of what lies in memory, other blocks of a cluster read nothing. */
static void stores(Kernel *k, Stored *s)
{
    if (resident_waits(k, s->st, 0))
        put_operand(k, s);
    if (in_cluster(k))
        s->out = &k->walk->late;
}

static void store(Kernel *k, NodeId id, const char *value)
{
    resident_store(k, id, value, resident_waits(k, &k->pr->node[id], 0), NULL);
}

static const char *wants(Kernel *k, NodeId id, const char *p)
{
    (void)id;
    return k->pr->dir == FORWARD ? "all" : p;
}

static int resident(const Kernel *k)
{
    (void)k;
    return 1;
}

const KernelHooks head_hooks = {
    .all_steps = true,
    .names_places = true,
    .resident = resident,
    .held = held,
    .ahead = resident_read_ahead,
    .left = resident_left,
    .carries = carries,
    .stores_next = stores_next,
    .stores = stores,
    .store = store,
    .wants = wants,
    .leaves_out = resident_leaves_out,
    .group_done = step_sums_add,
};

static bool carries_sum(const Kernel *k, TensorId *of)
{
    return root_kind(k->p->m, only(k)->group->arrays.data[0], of) == ROOT_DPREV;
}

static void store_pieces(Kernel *k)
{
    NodeId id = only(k)->group->arrays.data[0];
    const char *to = k_written(k, REF_NODE, id, k->pr->node[id].dtype);
    for (int piece = 0; piece < only(k)->outer; piece++)
        buf_line(k->out, "cell_store(%s + (sums_at + %d * %s), sum_%d);", to, piece,
                 k_poly(k, gemm(k)->w->units), piece);
}

/* The sums, where they have a place in memory. */
static void store_sums(Kernel *k)
{
    NodeId id = only(k)->group->arrays.data[0];
    const Storage *st = &k->pr->node[id];
    if (st->home == HOME_NONE || carries_sum(k, &(TensorId){ 0 }) || resident_sum_stays(k, only(k)))
        return;
    HeadSumsFrame f = { .stores = k_lines_of(k, store_pieces) };
    f.row = k_step_row(k, st);
    f.elements = k_poly(k, array_elements(k->p->m, id));
    f.outer = k_text(k, "%d", only(k)->outer);
    f.units = k_poly(k, gemm(k)->w->units);
    if (k_may_be_null(k, st))
        f.wanted = k->pr->dir == FORWARD ? "all" : k_written(k, REF_NODE, id, st->dtype);
    head_sums_frame(k->out, &f);
}

static void take_sums(Kernel *k)
{
    for (int piece = 0; piece < only(k)->outer; piece++)
        buf_line(k->out, "sum_%d = panel.sum(sequence, %d%s);", piece, piece, in_cluster(k) ? "" : ", own");
}

static void print_product(Kernel *k)
{
    Buf text, *out = k_divert(k, &text);
    k_comment(k, only(k)->group->arrays.data[0]);
    HeadProductFrame f = { .comment = k_lines(k, out), .cluster = in_cluster(k) };
    f.sums = k_lines_of(k, take_sums);
    head_product_frame(k->out, &f);
}

static void declare_sums(Kernel *k)
{
    for (int piece = 0; piece < only(k)->outer && !carries_sum(k, &(TensorId){ 0 }); piece++)
        buf_line(k->out, "%s sum_%d = 0;", k->real, piece);
}

/* A block's or a cluster's head and sequences, and its part of the param. */
static void open_head(Kernel *k, HeadFrame *f)
{
    const ResidentWalk *w = gemm(k)->w;
    f->cluster = in_cluster(k);
    f->heads = k_poly(k, w->heads);
    f->type = k_type(k->p->dtype);
    f->inner = k_text(k, "%d", only(k)->inner);
    f->outer = k_text(k, "%d", only(k)->outer);
    f->own = k_text(k, "%d", in_cluster(k) ? w->own : w->weights == WEIGHTS_BOTH ? (int)w->units->value : 0);
    f->units = poly_text(&k->printer, w->units);
    f->pitch = k_poly(k, w->units);
    f->weight = resident_weight(k, only(k));
    f->head_stride = only(k)->head_stride ? k_poly(k, only(k)->head_stride) : "0";
    f->offset = ix_text(&k->printer, ix_const(k->p->m, only(k)->weight_offset));
    f->row = poly_text(&k->printer, only(k)->row_stride);
    f->k = poly_text(&k->printer, only(k)->k_stride);
    f->sums = k_lines_of(k, declare_sums);
}

/* ---- the whole ---- */

/* Some of a step's groups. Last come the product's sums, which no thread waits for. */
static void print_some(Kernel *k, const WalkGroup *loops, int from, int to, bool sums)
{
    HeadGroupsFrame f = { .cluster = in_cluster(k) };
    Buf late = { .arena = k->out->arena }, text, *out = k_divert(k, &text);
    for (int i = from; i < to; i++) {
        buf_f(k->out, "%s", loops[i].body);
        buf_f(in_cluster(k) ? &late : k->out, "%s", loops[i].late ? loops[i].late : "");
    }
    f.bodies = k_lines(k, out);
    f.late = late.data;
    out = k_divert(k, &text);
    if (sums)
        store_sums(k);
    f.sums = k_lines(k, out);
    head_groups_frame(k->out, &f);
}

static void print_step(Kernel *k, const WalkGroup *loops, int n, int product)
{
    if (product > 0)
        print_some(k, loops, 0, product, false);
    print_product(k);
    if (product < n || !carries_sum(k, &(TensorId){ 0 }))
        print_some(k, loops, product, n, true);
    buf_f(k->out, "%s", template_lines(&gemm(k)->updates));
}

/* The text of an element's indices, which all groups share. */
static const char *name_axes(Kernel *k)
{
    const Program *pr = k->pr;
    Buf *out = k->out, names = { .arena = out->arena };
    int i = 0;
    while (pr->groups.data[i].phase != PHASE_DURING || pr->groups.data[i].kind != G_MAP)
        i++;
    const Node *first = k_node(k, pr->groups.data[i].arrays.data[0]);
    k->out = &names;
    k_split_element(k, first->axes, first->naxes, "e", "i");
    k->out = out;
    for (int a = 0; a < first->naxes; a++)
        k->own[a] = k->index[first->axes[a]];
    return names.data;
}

/* Rows of partial sums over batch and time. */
static const char *left_sums(Kernel *k, int groups)
{
    Buf text, *out = k_divert(k, &text);
    for (int i = 0; i < groups; i++)
        step_sums_store(k, i, "");
    return k_lines(k, out);
}

void print_head(Kernel *k)
{
    bool forward = k->pr->dir == FORWARD;
    int n, product;
    HeadFrame f = { .forward = forward };
    k->walk->once = gemm(k)->updates = (Buf){ .arena = k->out->arena };
    k->walk->once_reads.len = 0;
    f.indices = name_axes(k);
    WalkGroup *loops = resident_groups(k, &n, &product);
    const char *depth = f.depth = k_text(k, "%d", depth_of(k, loops, n));
    k->row = NULL;
    k->b = "b";
    open_head(k, &f);
    f.states = k_lines_of(k, print_states);
    if (forward) {
        f.initial = k_lines_of(k, store_initial_states);
        f.first_operand = k_lines_of(k, print_first_operand);
    }
    f.once = template_lines(&k->walk->once);
    f.step_sums = k_lines_of(k, step_sums_declare);
    f.reads = of_groups(k, print_reads, loops, n, depth);
    f.next_reads = of_groups(k, print_next_reads, loops, n, depth);
    f.t = forward ? "begin + u" : "dim_T - 1 - begin - u";
    f.rows = k_lines_of(k, k_declare_rows);
    Buf text, *out = k_divert(k, &text);
    print_step(k, loops, n, product);
    f.step = k_lines(k, out);
    f.take_reads = of_groups(k, print_take_reads, loops, n, depth);
    f.last = k_lines_of(k, print_last_states);
    f.left = left_sums(k, n);
    head_frame(k->out, &f);
}
