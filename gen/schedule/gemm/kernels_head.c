/* kernels_head.c: CUDA text of the kernels of schedule gemm whose blocks, or clusters, have a head each,
 * and whose threads one element for all steps, with its states in registers. In comes a ResidentWalk
 * (resident.c); out goes a kernel: what the product of a step reads and gives passes through shared memory
 * (cell_device_head.cuh), of all the cluster's blocks (cell_device_cluster.cuh). What a step reads and no
 * step makes is asked for several steps ahead; what is the same in all steps is read once. Loops that read
 * ahead are in kernels_walk.c. */
#include <string.h>

#include "base/mutate.h"
#include "kernels/kernels.h"
#include "kernels_resident.h"
#include "resident.h"

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
    const char *state = state_name(k, r.id);
    buf_line(k->out, in_cluster(k) ? "if (active && dim_T > 0)" : "if (mine)");
    if (in_cluster(k))
        buf_line(k->out, "    panel.put(mine, 0, %s);", state);
    else
        buf_line(k->out, "    panel.put(sequence, 0, own, %s);", state);
}

/* Where backward, the products and the first step find them. */
static void store_initial_states(Kernel *k)
{
    if (k->pr->dir != FORWARD)
        return;
    k_open(k, "if (mine)");
    for (TensorId s = 0; s < k->p->m->tensors.len; s++)
        if (k->p->m->tensors.data[s].kind == T_STATE)
            state_store_initial(k, s, state_place(k, s), state_name(k, s));
    k_close(k);
    print_first_operand(k);
}

/* The final states, or the adjoints of the initial ones, for others too. */
static void print_last_states(Kernel *k)
{
    bool forward = k->pr->dir == FORWARD;
    k_open(k, "if (mine)");
    for (TensorId s = 0; s < k->p->m->tensors.len; s++) {
        if (!carried(k, s))
            continue;
        Dtype type = k->p->compute;
        const char *at = state_place(k, s), *to = k_written(k, forward ? REF_FINAL : REF_DINIT, s, type);
        bool product = !forward && resident_is_product(k, k->p->m->roots.data[s].dprev);
        const char *value = product ? "sum_0" : state_name(k, s);
        if (!forward)
            buf_line(k->out, "cell_store(%s + (%s), %s);", k_written(k, REF_CARRY, s, type), at, value);
        buf_line(k->out, "if (%s)", to);
        buf_line(k->out, forward ? "    cell_store(%s + (%s), %s);" : "    cell_put(%s + (%s), %s, adds);",
                 to, at, value);
    }
    k_close(k);
}

/* ---- reads ahead ---- */

/* A step of a cluster takes longer than memory does, and the weights leave few registers. */
static int cluster_depth(int reads)
{
    return reads <= 6 ? 2 : 1;
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

/* The sums, where they have a place in memory. */
static void store_sums(Kernel *k)
{
    const ResidentWalk *w = gemm(k)->w;
    NodeId id = only(k)->group->arrays.data[0];
    const Storage *st = &k->pr->node[id];
    if (st->home == HOME_NONE || carries_sum(k, &(TensorId){ 0 }) || resident_sum_stays(k, only(k)))
        return;
    const char *p = k_written(k, REF_NODE, id, st->dtype), *units = k_poly(k, w->units);
    bool optional = k_may_be_null(k, st);
    buf_line(k->out, "const int64_t sums_at = %s * %s + head * %d * %s + own;", k_step_row(k, st),
             k_poly(k, array_elements(k->p->m, id)), only(k)->outer, units);
    if (optional)
        k_open(k, "if (%s)", k->pr->dir == FORWARD ? "all" : p);
    for (int piece = 0; piece < only(k)->outer; piece++)
        buf_line(k->out, "cell_store(%s + (sums_at + %d * %s), sum_%d);", p, piece, units, piece);
    if (optional)
        k_close(k);
}

static void print_product(Kernel *k)
{
    k_comment(k, only(k)->group->arrays.data[0]);
    buf_line(k->out, "panel.multiply();");
    k_open(k, in_cluster(k) ? "if (active)" : "if (mine)");
    for (int piece = 0; piece < only(k)->outer; piece++)
        buf_line(k->out, "sum_%d = panel.sum(sequence, %d%s);", piece, piece, in_cluster(k) ? "" : ", own");
    k_close(k);
}

/* A block's head and sequences; threads beyond them do nothing but their part of the product. */
static void print_block_head(Kernel *k)
{
    const ResidentWalk *w = gemm(k)->w;
    Buf *out = k->out;
    const char *units = poly_text(&k->printer, w->units);
    buf_line(out, "cell_head<%s, %d, %d, %d> panel;", k_type(k->p->dtype), only(k)->inner, only(k)->outer,
             w->weights == WEIGHTS_BOTH ? (int)w->units->value : 0);
    buf_line(out, "panel.carve(cursor, %s);", units);
    buf_line(out, "const int64_t tiles = cell_block_count(0) / %s, each = (dim_B + tiles - 1) / tiles;",
             k_poly(k, w->heads));
    buf_line(out, "const int64_t head = cell_block_index(0) %% %s, first = cell_block_index(0) / %s * each;",
             k_poly(k, w->heads), k_poly(k, w->heads));
    buf_line(out, "const int own = cell_thread() %% panel.units, place = cell_thread() / panel.units;");
    buf_line(out, "const bool mine = place < each && first + place < dim_B;");
    buf_line(out, "const int sequence = mine ? place : 0;");
}

/* The same of a cluster. The threads of an active warp do what they do together, those beyond the last unit
 * for nothing. */
static void print_cluster_head(Kernel *k)
{
    const ResidentWalk *w = gemm(k)->w;
    Buf *out = k->out;
    const char *units = poly_text(&k->printer, w->units), *heads = k_poly(k, w->heads);
    buf_line(out, "const int64_t cluster = cell_block_index(0) / CELL_CLUSTER_BLOCKS;");
    buf_line(out,
             "const int64_t tiles = cell_block_count(0) / CELL_CLUSTER_BLOCKS / %s, each = (dim_B + tiles - "
             "1) / tiles;",
             heads);
    buf_line(out, "const int64_t head = cluster %% %s, first = cluster / %s * each;", heads, heads);
    buf_line(out, "cell_cluster_head<%s, %d, %d, %d> panel;", k_type(k->p->dtype), only(k)->inner,
             only(k)->outer, w->own);
    buf_line(out, "panel.carve(cursor, %s, first + each < dim_B ? each : dim_B - first);", units);
    buf_line(out, "const int own = panel.unit() < panel.units ? panel.unit() : panel.units - 1;");
    buf_line(out, "const bool mine = panel.mine(), active = panel.active();");
    buf_line(out, "const int sequence = mine ? panel.place() : 0;");
}

static void open_head(Kernel *k, const char *indices)
{
    const ResidentWalk *w = gemm(k)->w;
    Buf *out = k->out;
    const IxExpr *none = ix_const(k->p->m, only(k)->weight_offset);
    buf_line(out, "auto cursor = cell_shared();");
    if (in_cluster(k))
        print_cluster_head(k);
    else
        print_block_head(k);
    buf_line(out, "const int64_t b = first + sequence, e = head * %s + own;", k_poly(k, w->units));
    buf_f(out, "%s", indices);
    buf_line(out, "panel.load(%s + head * %s + %s, %s, %s);", resident_weight(k, only(k)),
             only(k)->head_stride ? k_poly(k, only(k)->head_stride) : "0", ix_text(&k->printer, none),
             poly_text(&k->printer, only(k)->row_stride), poly_text(&k->printer, only(k)->k_stride));
    for (int piece = 0; piece < only(k)->outer && !carries_sum(k, &(TensorId){ 0 }); piece++)
        buf_line(out, "%s sum_%d = 0;", k->real, piece);
}

static void print_sums(Kernel *k, int groups)
{
    if (gemm(k)->step_sums.len == 0)
        return;
    k_open(k, "if (mine)");
    for (int i = 0; i < groups; i++)
        step_sums_store(k, i, "");
    k_close(k);
}

/* ---- the whole ---- */

/* What no thread waits for. */
static void print_late(Kernel *k, const WalkGroup *loops, int from, int to, bool sums)
{
    k_open(k, "if (mine)");
    for (int i = from; i < to; i++)
        buf_f(k->out, "%s", loops[i].late ? loops[i].late : "");
    if (sums)
        store_sums(k);
    k_close(k);
}

/* Some of a step's groups. Last come the product's sums, which no thread waits for. */
static void print_some(Kernel *k, const WalkGroup *loops, int from, int to, bool sums)
{
    if (in_cluster(k)) {
        k_open(k, "if (active)");
        for (int i = from; i < to; i++)
            buf_f(k->out, "%s", loops[i].body);
        print_late(k, loops, from, to, sums);
        k_close(k);
        return;
    }
    k_open(k, "if (mine)");
    for (int i = from; i < to; i++)
        buf_f(k->out, "%s%s", loops[i].body, loops[i].late ? loops[i].late : "");
    if (sums)
        store_sums(k);
    k_close(k);
}

static void print_step(Kernel *k, const WalkGroup *loops, int n, int product)
{
    if (product > 0)
        print_some(k, loops, 0, product, false);
    print_product(k);
    if (product < n || !carries_sum(k, &(TensorId){ 0 }))
        print_some(k, loops, product, n, true);
    buf_f(k->out, "%s", gemm(k)->updates.data ? gemm(k)->updates.data : "");
}

/* The text of an element's indices, which all groups share. */
static const char *name_axes(Kernel *k)
{
    const Program *pr = k->pr;
    Buf *out = k->out, names = { .arena = out->arena, .indent = out->indent };
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

void print_head(Kernel *k)
{
    bool forward = k->pr->dir == FORWARD;
    int n, product, reads = 0;
    k->one_step = true;
    k->t = "t";
    gemm(k)->updates = (Buf){ .arena = k->out->arena, .indent = k->out->indent + 3 };
    k->walk->once = (Buf){ .arena = k->out->arena, .indent = k->out->indent };
    k->walk->once_reads.len = gemm(k)->step_sums.len = 0;
    const char *indices = name_axes(k);
    WalkGroup *loops = resident_groups(k, &n, &product);
    for (int i = 0; i < n; i++)
        reads += loops[i].ahead;
    int depth = in_cluster(k) ? cluster_depth(reads) : walk_depth(reads > 16 ? 17 : reads);
    k->row = NULL;
    k->b = "b";
    open_head(k, indices);
    print_states(k);
    store_initial_states(k);
    buf_f(k->out, "%s", k->walk->once.data ? k->walk->once.data : "");
    step_sums_declare(k);
    for (int i = 0; i < n; i++)
        walk_reads(k, &loops[i], depth);
    if (in_cluster(k))
        buf_line(k->out, "const int64_t steps = panel.count > 0 ? dim_T : 0;");
    k_open(k, "for (int64_t begin = 0; begin < %s; begin += %d)", in_cluster(k) ? "steps" : "dim_T", depth);
    for (int i = 0; i < n; i++)
        walk_next_reads(k, &loops[i], depth);
    buf_line(k->out, "CELL_UNROLL");
    k_open(k, "for (int u = 0; u < %d; u++)", depth);
    k_open(k, "if (begin + u < dim_T)");
    buf_line(k->out, "const int64_t t = %s;", forward ? "begin + u" : "dim_T - 1 - begin - u");
    k_declare_rows(k);
    print_step(k, loops, n, product);
    k_close(k);
    k_close(k);
    for (int i = 0; i < n; i++)
        walk_take_reads(k, &loops[i], depth);
    k_close(k);
    print_last_states(k);
    print_sums(k, n);
}
