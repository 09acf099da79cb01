/* resident.c: which steps of schedule gemm one kernel can walk. In comes a planned program; out go, where
 * the steps allow it, ResidentWalks, up to five: the product of every step with its param held in shared
 * memory, either by the blocks of a cooperative launch (runtime/device/cell_device_panel.cuh), each of
 * which owns some units of the state, or by blocks that have a whole head each (cell_device_head.cuh), or
 * in registers by clusters that have one (cell_device_cluster.cuh), and the pointwise kernels in between
 * for the block's own units.
 * Guaranteed: what a block reads of another block is the product's one operand, or nothing where it has a
 * head; no block overwrites what another still reads. The launch plan keeps the loop of kernels beside
 * them, for sizes and devices that none takes. */
#include <string.h>

#include "base/mutate.h"
#include "ir/marks.h"
#include "resident.h"

static const Node *at(const Plan *p, NodeId id)
{
    return &p->m->nodes.data[id];
}

/* Not by poly_div: the quotient that it makes of what cannot be divided is a condition of the call. */
int64_t resident_times(Module *m, const Poly *whole, const Poly *part)
{
    if (whole->nterms == 0 || part->nterms == 0)
        return 0;
    int64_t n = whole->terms[0].coef / part->terms[0].coef;
    return n > 0 && poly_mul(m, part, poly_const(m, n)) == whole ? n : 0;
}

bool resident_whole_pieces(Module *m, const Poly *offset, const Poly *units, int64_t *pieces)
{
    int64_t forward = resident_times(m, offset, units);
    *pieces = forward ? forward : -resident_times(m, poly_mul(m, offset, poly_const(m, -1)), units);
    return *pieces || offset->nterms == 0;
}

const Poly *resident_base(Module *m, const ResidentWalk *w, const Poly *axis)
{
    for (int i = 0; i < w->nspaces; i++)
        if (w->spaces[i] == axis)
            return axis;
    for (int i = 0; i < w->nspaces; i++)
        if (resident_times(m, axis, w->spaces[i]) > 1)
            return w->spaces[i];
    return axis;
}

static const Poly *extent(const Module *m, IndexId i)
{
    return m->indices.data[i].extent;
}

/* The axes before the last are heads: each has a row, in which the pieces follow one another. */
bool resident_piece(Module *m, const IxExpr *linear, const Poly *elements, const IndexId *axes, int naxes,
                    int64_t *piece)
{
    const Poly *units = extent(m, axes[naxes - 1]), *stride = units;
    const IxExpr *rest = ix_sub(m, linear, ix_index(m, axes[naxes - 1]));
    int64_t pieces = resident_times(m, elements, resident_whole(m, axes, naxes));
    for (int i = naxes - 2; i >= 0 && pieces > 0; i--) {
        rest = ix_sub(m, rest, ix_scale(m, ix_index(m, axes[i]), poly_mul(m, stride, poly_const(m, pieces))));
        stride = poly_mul(m, stride, extent(m, axes[i]));
    }
    *piece = rest->offset->nterms ? resident_times(m, rest->offset, units) : 0;
    return rest->nterms == 0 && *piece < pieces && (*piece > 0 || rest->offset->nterms == 0);
}

const Poly *resident_whole(Module *m, const IndexId *axes, int naxes)
{
    const Poly *all = poly_const(m, 1);
    for (int i = 0; i < naxes; i++)
        all = poly_mul(m, all, extent(m, axes[i]));
    return all;
}

/* ---- what the pointwise kernels read ---- */

/* The axes of the values that are asked about: those of heads, and the units; and the values that were looked
 * into. */
typedef struct Own {
    const Plan *p;
    const Program *pr;
    const ResidentWalk *w;
    const IndexId *axes;
    int naxes;
    Marks *arrays;
    const Poly *space; /* the units of the group that reads */
} Own;

/* Where a step's groups are pointwise over different units: is it made by those of the reader's? */
static bool made_here(const Own *o, const Read *r)
{
    const Module *m = o->p->m;
    const Tensor *x = r->is_tensor ? &m->tensors.data[r->id] : NULL;
    NodeId id = !x ? r->id : x->kind == T_DNEXT ? m->roots.data[x->of].dprev : m->roots.data[r->id].next;
    if (x && (x->kind == T_DINIT || (x->kind == T_STATE && o->pr->dir == BACKWARD)))
        return true;
    if (!x && o->pr->node[id].home == HOME_NONE && o->pr->group[id] < 0)
        return true;
    if (id >= 0 && o->pr->group[id] < 0)
        id = plan_named(o->p, id);
    return id >= 0 && resident_space(o->p, o->pr, o->w, id) == o->space;
}

/* Is the element that of the own unit, in any piece? Readers in place may be over several pieces
 * themselves. */
static bool own_element(const Own *o, const IxExpr *linear, const Poly *elements)
{
    Module *m = o->p->m;
    int64_t piece;
    if (o->naxes > 1)
        return resident_piece(m, linear, elements, o->axes, o->naxes, &piece);
    const IxExpr *rest = ix_sub(m, linear, ix_index(m, o->axes[0]));
    return rest->nterms == 0 && resident_times(m, elements, o->space) > 0 &&
           resident_whole_pieces(m, rest->offset, o->space, &piece);
}

/* Does a block find what is read here at its own units, or is it no other block's work? */
static bool own_read(void *of, const Read *r)
{
    const Own *o = of;
    const Plan *p = o->p;
    const Program *pr = o->pr;
    Module *m = p->m;
    TensorKind kind = r->is_tensor ? m->tensors.data[r->id].kind : T_INPUT;
    bool stepwise = r->is_tensor ? kind == T_STATE || kind == T_DNEXT || kind == T_DINIT
                                 : pr->phase[r->id] == PHASE_DURING;
    const Poly *elements = r->is_tensor ? tensor_elements(m, r->id) : array_elements(m, r->id);
    if (!stepwise)
        return true;
    if (o->w->nparts && !made_here(o, r))
        return false;
    if (!own_element(o, read_linear(m, r), elements))
        return false;
    if (r->is_tensor || pr->node[r->id].home != HOME_NONE || pr->group[r->id] >= 0)
        return true;
    if (!marks_first(o->arrays, r->id))
        return true;
    Own inside = *o;
    inside.axes = at(p, r->id)->axes;
    return at(p, r->id)->naxes == o->naxes && every_read(p, at(p, r->id)->args[0], own_read, &inside);
}

bool resident_takes_map(const Plan *p, const Program *pr, const ResidentWalk *w, const Group *g)
{
    const Poly *all = poly_const(p->m, 1);
    for (int i = 0; i < g->naxes; i++)
        all = poly_mul(p->m, all, g->axes[i]);
    if (g->naxes != w->naxes || !g->batched || (g->need.len && !g->always))
        return false;
    if (!w->nparts && (g->axes[g->naxes - 1] != w->units || all != poly_mul(p->m, w->units, w->heads)))
        return false;
    for (int i = 0; i < g->arrays.len; i++) {
        const Node *a = at(p, g->arrays.data[i]);
        Own own = {
            p, pr, w, a->axes, a->naxes, marks_begin(p->m), resident_base(p->m, w, g->axes[g->naxes - 1])
        };
        bool takes = every_read(p, a->args[0], own_read, &own);
        marks_end(own.arrays);
        if (!takes)
            return false;
    }
    return true;
}

/* ---- what groups leave to each other ---- */

/* What group `reader` reads, each value looked at once. */
typedef struct Crossing {
    const Plan *p;
    const Program *pr;
    int reader;
    bool *seen, *crosses;
} Crossing;

bool resident_finds(const Program *pr, int reader, NodeId value, bool carried)
{
    int maker = pr->group[value];
    return carried ? reader < maker : reader > maker;
}

/* Is it what a pointwise group of the step makes, one element for each unit? */
static bool can_cross(const Plan *p, const Program *pr, NodeId value)
{
    int own = pr->group[value];
    return own >= 0 && pr->groups.data[own].kind == G_MAP && pr->groups.data[own].phase == PHASE_DURING &&
           pr->groups.data[own].naxes == 1 &&
           array_elements(p->m, value) ==
               resident_base(p->m, resident_walks(pr)->panel, pr->groups.data[own].axes[0]) &&
           (pr->node[value].home == HOME_NONE || pr->node[value].dtype == p->compute);
}

static void reads_left(Crossing *x, NodeId value, bool carried)
{
    if (value >= 0 && can_cross(x->p, x->pr, value) && resident_finds(x->pr, x->reader, value, carried))
        x->crosses[value] = true;
}

static void find_left(Crossing *x, NodeId here)
{
    const Module *m = x->p->m;
    const Node *n = at(x->p, here);
    Read r;
    if (x->seen[here])
        return;
    x->seen[here] = true;
    if (n->kind != N_MAP && plan_resolve(x->p, here, &r)) {
        if (r.is_tensor && m->tensors.data[r.id].kind == T_DNEXT)
            reads_left(x, m->roots.data[m->tensors.data[r.id].of].dprev, true);
        if (r.is_tensor)
            return;
        reads_left(x, r.id, false);
        if (x->pr->node[r.id].home == HOME_NONE && x->pr->group[r.id] < 0)
            find_left(x, at(x->p, r.id)->args[0]);
        return;
    }
    for (int i = 0; i < n->nargs; i++)
        find_left(x, n->args[i]);
}

const bool *resident_crosses(const Plan *p, const Program *pr)
{
    size_t nodes = (size_t)p->m->nodes.len + 1;
    Crossing x = {
        .p = p, .pr = pr, .seen = arena_alloc(p->m->arena, nodes), .crosses = arena_alloc(p->m->arena, nodes)
    };
    for (; x.reader < pr->groups.len; x.reader++) {
        const Group *g = &pr->groups.data[x.reader];
        memset(x.seen, 0, nodes);
        for (int j = 0; g->kind == G_MAP && g->phase == PHASE_DURING && j < g->arrays.len; j++)
            find_left(&x, at(p, g->arrays.data[j])->args[0]);
    }
    return x.crosses;
}

/* ---- the product ---- */

bool resident_is_weight(const Plan *p, const Program *pr, const Read *r)
{
    const Tensor *t = r->is_tensor ? &p->m->tensors.data[r->id] : NULL;
    if (t)
        return t->kind == T_PARAM && t->dtype == p->dtype;
    const Storage *st = &pr->node[r->id];
    bool saved = pr->dir == BACKWARD && pr->phase[r->id] == PHASE_NONE; /* by forward */
    return p->program[saved ? FORWARD : pr->dir].phase[r->id] == PHASE_PARAM &&
           (st->home == HOME_WORKSPACE || st->home == HOME_RESERVE) && st->dtype == p->dtype &&
           !st->batched && !st->timed && !st->pitch && !st->alias_offset;
}

/* The weight on one side, a vector per sequence (and head) on the other, both in the storage type; rows and
 * k made of whole pieces. */
bool resident_takes_product(const Plan *p, const Program *pr, ResidentWalk *w)
{
    Module *m = p->m;
    const Gemm *g = &w->product->gemm;
    bool left = resident_is_weight(p, pr, &g->a.read);
    const GemmSide *weight = left ? &g->a : &g->b, *vector = left ? &g->b : &g->a;
    if ((g->batch ? g->batch : poly_const(m, 1)) != w->heads || !resident_is_weight(p, pr, &weight->read) ||
        vector->read.is_tensor)
        return false;
    w->weight = weight->read;
    w->weight_offset = weight->offset;
    w->row_stride = left ? weight->row : weight->col;
    w->k_stride = left ? weight->col : weight->row;
    w->head_stride = weight->batch;
    w->operand = vector->read.id;
    w->operand_offset = vector->offset;
    const Poly *rows = left ? g->m : g->n, *batch = left ? g->n : g->m;
    w->inner = (int)resident_times(m, g->k, w->k_units);
    w->outer = (int)resident_times(m, rows, w->units);
    const Storage *x = plan_storage(p, pr, &vector->read);
    const Poly *pitch =
        poly_mul(m, poly_dim(m, ATOM_T), x->pitch ? x->pitch : array_elements(m, vector->read.id));
    const Poly *apart = left ? vector->col : vector->row, *along = left ? vector->row : vector->col;
    return batch == poly_dim(m, ATOM_B) && apart == pitch && poly_is_one(along) &&
           poly_is_one(left ? g->c.row : g->c.col) && w->inner >= 1 && w->outer >= 1 && w->inner <= 8 &&
           w->outer <= 8 && g->c.offset->nterms == 0 &&
           (!g->batch || (vector->batch == g->k && g->c.batch == rows)) && x->batched && x->timed &&
           x->dtype == p->dtype && (x->home == HOME_WORKSPACE || x->home == HOME_RESERVE);
}

/* A block may be a step ahead of another that still reads the operand: where inference keeps that of one
 * step only, it now keeps two. What a block writes at a step others read no more, since it has waited for
 * their posts of the step before, behind their products of the one before that. */
void resident_keep_operand(Plan *p, const Program *pr, const ResidentWalk *w)
{
    Buffer *b = &p->buffers.data[pr->node[w->operand].slot];
    if (pr->dir == FORWARD && b->ring == 1 && !mutate("one-operand"))
        b->ring = 2;
}

/* A copy of the state, which the step before has made. */
bool resident_made_before(const Plan *p, NodeId operand)
{
    Read r;
    return plan_resolve(p, at(p, operand)->args[0], &r) && r.is_tensor &&
           p->m->tensors.data[r.id].kind == T_STATE;
}

/* Blocks that read the operand until it is there read it more than once; where 128 blocks do, that takes
 * longer than what it saves (measured on an H200, width 1024 forward: LSTM 1.94 ms for 1.75 with posts, E1,
 * with half as many blocks, 1.05 for 1.29). */
enum { MARKED_OWN = 16 };

/* More units in a block are fewer blocks to wait for, and fewer reads of the operand; 16 units of up to
 * four gates in 16 bits fit for as many as 1280 units and more. Backward's blocks divide k as well, so that
 * each reads only its part of the operand (measured on an H200, LSTM 1024 backward: 2.2 ms with clusters of
 * 4 and 16 units, 2.8 ms with 8 units and no cluster). f32 has room for half of that. */
static int own_of(const Plan *p, const ResidentWalk *w)
{
    if (p->dtype == DT_F32)
        return w->inner > 1 || w->outer > 2 ? 8 : 16;
    return w->inner > 1 || w->outer <= 4 ? 16 : 8;
}

/* A block that reads all pieces would read more than it multiplies. In f32 its part of the weights fits for
 * clusters of up to 3. */
int resident_split(const Plan *p, const ResidentWalk *w)
{
    int split = w->inner;
    while (p->dtype == DT_F32 && (split > 3 || w->inner % split))
        split--;
    return split;
}

static const Poly *heads_of(Plan *p, const Group *g)
{
    const Poly *heads = poly_const(p->m, 1);
    for (int i = 0; i + 1 < g->naxes; i++)
        heads = poly_mul(p->m, heads, g->axes[i]);
    return heads;
}

bool resident_take_product(ResidentWalk *w, Group *g)
{
    if (g->kind != G_GEMM || w->product || g->arrays.len != 1 || (g->need.len > 0 && !g->always))
        return false;
    w->product = g;
    return true;
}

const char *resident_value_name(const Plan *p, NodeId id)
{
    const char *name = at(p, id)->name;
    return name ? intern_f(p->m->c, "`%s`", name) : "a value";
}

/* Why a group of the step that is neither pointwise nor a product is too much. */
const Reason *resident_beside(const Plan *p, const Group *g)
{
    const Module *m = p->m;
    NodeId id = g->arrays.data[0];
    for (int i = g->arrays.len - 1; i >= 0; i--)
        id = plan_reduces(p, g->arrays.data[i]) ? g->arrays.data[i] : id;
    const Node *sum = at(p, at(p, id)->args[0]);
    return reason_of(m, sum, "%s of each step is a %s that is no product", resident_value_name(p, id),
                     sum->kind == N_REDUCE && sum->reduce != R_SUM ? "maximum, minimum or product of elements"
                                                                   : "sum");
}

/* `several`: a step has more than one product. */
static const Reason *no_panel(Plan *p, Program *pr, ResidentWalk *w, bool *several);

/* A step of one product and of what is pointwise over the same units. NULL, and why, where it is no such
 * step. */
static ResidentWalk *find(Plan *p, Program *pr, const Reason **why)
{
    ResidentWalk *w = arena_alloc(p->m->arena, sizeof *w);
    *w = (ResidentWalk){ .outer = 0 };
    bool several = false;
    *why = no_panel(p, pr, w, &several);
    if (several)
        return resident_several(p, pr, why);
    if (*why && w->product) { /* of one product, but over several axes, or pieces of one */
        const Reason *also;
        ResidentWalk *parts = resident_several(p, pr, &also);
        *why = parts ? NULL : *why;
        return parts;
    }
    if (*why)
        return NULL;
    w->operand_ready = resident_made_before(p, w->operand);
    w->own = own_of(p, w);
    w->split = resident_split(p, w);
    w->batch = PANEL_TURN;
    return w;
}

static const Reason *no_panel(Plan *p, Program *pr, ResidentWalk *w, bool *several)
{
    for (int i = 0; i < pr->groups.len; i++) {
        Group *g = &pr->groups.data[i];
        if (g->phase != PHASE_DURING)
            continue;
        if (g->kind == G_MAP && g->naxes >= 1) {
            w->units = g->axes[g->naxes - 1];
            w->heads = heads_of(p, g);
            w->naxes = g->naxes;
        } else if (g->kind != G_GEMM) {
            return resident_beside(p, g);
        } else if (!resident_take_product(w, g)) {
            *several = true;
        }
    }
    w->k_units = w->units;
    if (*several)
        return NULL;
    if (!w->product || !w->units)
        return reason(p->m, w->product ? "nothing of a step is computed beside the product"
                                       : "a step has no product");
    const Node *sum = at(p, at(p, w->product->arrays.data[0])->args[0]);
    if (!resident_takes_product(p, pr, w))
        return reason_of(
            p->m, sum,
            "its product is not of a param, as it is stored, and one vector for each sequence (and head) "
            "whose rows and terms are some times as many as the units");
    for (int i = 0; i < pr->groups.len; i++) {
        const Group *g = &pr->groups.data[i];
        if (g->phase == PHASE_DURING && g->kind == G_MAP && !resident_takes_map(p, pr, w, g))
            return reason_of(p->m, at(p, g->arrays.data[0]),
                             "%s of a step has, or reads, other elements than its own unit's",
                             resident_value_name(p, g->arrays.data[0]));
    }
    return NULL;
}

/* ---- a head in a block ---- */

/* Does the step itself make every piece of the operand, whatever copies of it lie in memory? */
static bool makes_operand(const Plan *p, const Program *pr, const ResidentWalk *w)
{
    const Storage *x = &pr->node[w->operand];
    int64_t piece, made = 0;
    if (w->operand_offset->nterms ||
        array_elements(p->m, w->operand) !=
            poly_mul(p->m, poly_const(p->m, w->inner), poly_mul(p->m, w->heads, w->k_units)))
        return false;
    if (w->operand_ready || x->home == HOME_NONE)
        return w->operand_ready && w->inner == 1;
    for (NodeId id = 0; id < p->n_nodes; id++) {
        const Storage *st = &pr->node[id];
        const Node *a = at(p, id);
        int group = pr->group[id];
        if (group < 0 || st->home != x->home || st->slot != x->slot || pr->groups.data[group].kind != G_MAP ||
            pr->phase[id] != PHASE_DURING)
            continue;
        Read self = { .id = id, .nmap = a->naxes };
        const IxExpr *map[64];
        for (int i = 0; i < a->naxes; i++)
            map[i] = ix_index(p->m, a->axes[i]);
        self.map = map;
        if (!resident_piece(p->m, storage_linear(p->m, &self, st), array_elements(p->m, w->operand), a->axes,
                            a->naxes, &piece))
            return false;
        made |= (int64_t)1 << piece;
    }
    return made == ((int64_t)1 << w->inner) - 1;
}

/* May blocks see by the operand's words themselves whether they are there? Forward reads copies of the
 * state, which store_next writes; all else is written by k_store, which knows of no copy elsewhere. */
bool resident_marks_operand(const Plan *p, const Program *pr, const ResidentWalk *w)
{
    const Storage *x = &pr->node[w->operand];
    TensorId of;
    if (x->home == HOME_NONE || !makes_operand(p, pr, w))
        return false;
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (pr->group[id] >= 0 && pr->node[id].home == x->home && pr->node[id].slot == x->slot &&
            pr->phase[id] == PHASE_DURING && root_kind(p->m, id, &of) != ROOT_NONE)
            return false;
    if (!w->operand_ready)
        return true;
    for (TensorId t = 0; t < p->m->tensors.len; t++)
        if (pr->dir == FORWARD && p->m->tensors.data[t].kind == T_STATE && pr->before[t] == x->slot)
            return true;
    return false;
}

/* Every state has the axes of the step's groups, and no product reads but the one. */
static bool states_of_heads(const Plan *p, const ResidentWalk *w)
{
    for (TensorId t = 0; t < p->m->tensors.len; t++) {
        const Tensor *x = &p->m->tensors.data[t];
        int before = p->program[FORWARD].before[t];
        const Poly *heads = poly_const(p->m, 1);
        if (x->kind != T_STATE)
            continue;
        for (int i = 0; i + 1 < x->rank; i++)
            heads = poly_mul(p->m, heads, x->axes[i]);
        if (x->rank != w->naxes || x->axes[x->rank - 1] != w->units || heads != w->heads || x->complex ||
            (before >= 0 && w->operand_ready && before != p->program[FORWARD].node[w->operand].slot))
            return false;
    }
    return true;
}

/* Heads that fit into a block need nothing of other blocks. Of an earlier or later step's operand there is no
 * trace in the block, so nothing else may read it in the step. */
static ResidentWalk *find_head(Plan *p, const Program *pr, const ResidentWalk *found)
{
    if (!makes_operand(p, pr, found) || !states_of_heads(p, found) ||
        (found->units->is_const && found->units->value > HEAD_THREADS))
        return NULL;
    ResidentWalk *w = arena_alloc(p->m->arena, sizeof *w);
    *w = *found;
    w->refs = (RefVec){ 0 };
    w->alone = true;
    w->kernel = intern_f(p->m->c, "%s_%s_heads", p->m->name, pr->dir == FORWARD ? "fwd" : "bwd");
    return w;
}

/* ---- a head in a cluster ---- */

/* Units of each of a cluster's blocks, whose rows it keeps in registers, half of all that it has; the
 * elements of a param for which a block that has a head has room whatever else it needs; and the units
 * whose weights it keeps in registers. */
enum { CLUSTER_OWN = 64, BLOCK_WEIGHTS = 64 * 1024, HEAD_KEPT = 128 };

/* Where a block has room for a head, a cluster may still be faster; not for several heads, each of which
 * would take one, nor where the block's warps keep the weights in registers (cell_head; measured on an
 * H200, E1 of 128 units, known: 0.18 ms for 0.31; of 144, where they do not: 0.45 for 0.34). */
static bool block_suffices(const ResidentWalk *found, int64_t units)
{
    return poly_is_one(found->heads) ? units <= HEAD_KEPT
                                     : units <= HEAD_THREADS && units * units <= BLOCK_WEIGHTS;
}

/* A head for which one block is too small, or slow, may fit into a cluster, whose blocks tell each other
 * what they make of the operand. */
static ResidentWalk *find_cluster(Plan *p, const Program *pr, const ResidentWalk *found)
{
    int64_t units = found->units->is_const ? found->units->value : 0;
    if ((p->dtype != DT_BF16 && p->dtype != DT_F16) || !makes_operand(p, pr, found) ||
        !states_of_heads(p, found) || units > CLUSTER_BLOCKS * CLUSTER_OWN)
        return NULL;
    if (found->inner * found->outer > 1) /* several gates (LSTM): registers spill, and nothing is measured */
        return NULL;
    if (units > 0 && block_suffices(found, units))
        return NULL;
    ResidentWalk *w = arena_alloc(p->m->arena, sizeof *w);
    *w = *found;
    w->refs = (RefVec){ 0 };
    w->alone = w->cluster = true;
    w->own = CLUSTER_OWN;
    w->kernel = intern_f(p->m->c, "%s_%s_cluster", p->m->name, pr->dir == FORWARD ? "fwd" : "bwd");
    return w;
}

/* ---- gemm ---- */

const ResidentWalk *resident_part(const ResidentWalk *w, int i)
{
    return w->nparts ? w->parts[i] : w;
}

int resident_keep(const ResidentWalk *w)
{
    enum { KEPT = 16 };
    for (int i = 0; i < w->nparts; i++)
        if (w->parts[i]->weights > 0)
            return 0;
    return KEPT;
}

int resident_posts(const ResidentWalk *w)
{
    int all = 0;
    for (int i = 0; i < resident_products(w); i++) {
        const ResidentWalk *part = resident_part(w, i);
        all += PANEL_POSTS * (part->inner % part->split ? part->split : 1);
    }
    return all;
}

/* Units of a block of a pair, which has the rows of twice as many. */
enum { PAIR_OWN = 8 };

/* Blocks that need the whole operand read half of it each where they can share the rows of both, and then
 * marks pay for twice as many blocks. */
static ResidentWalk *find_pairs(Plan *p, const Program *pr, const ResidentWalk *w)
{
    if (w->inner > 1 || w->outer <= 2)
        return NULL;
    ResidentWalk *pairs = arena_alloc(p->m->arena, sizeof *pairs);
    *pairs = *w;
    pairs->own = PAIR_OWN;
    pairs->split = 2;
    pairs->marks = p->dtype != DT_F32 && resident_marks_operand(p, pr, w);
    pairs->kernel = intern_f(p->m->c, "%s_%s_pairs", p->m->name, pr->dir == FORWARD ? "fwd" : "bwd");
    return pairs;
}

/* The same for more sequences than PANEL_TURN: a step of so many takes little more than one of 16, where it
 * would be two of these. */
static ResidentWalk *find_wide(Plan *p, const Program *pr, const ResidentWalk *w)
{
    if (p->dtype != DT_BF16 && p->dtype != DT_F16)
        return NULL;
    ResidentWalk *wide = arena_alloc(p->m->arena, sizeof *wide);
    *wide = *w;
    wide->batch = PANEL_WIDE;
    wide->kernel = intern_f(p->m->c, "%s_%s_wide", p->m->name, pr->dir == FORWARD ? "fwd" : "bwd");
    return wide;
}

static void say_panel(Plan *p, const Program *pr, const ResidentWalk *w)
{
    const ResidentWalks *walks = resident_walks(pr);
    const char *way = pr->dir == FORWARD ? "forward" : "backward";
    const char *products = w->nparts == 1 ? "its product" : intern_f(p->m->c, "their %d products", w->nparts);
    if (w->nparts)
        buf_f(&p->reasons,
              "one kernel walks the %s steps, with the weights of %s, where the device holds its blocks: "
              "%d units each%s\n",
              way, products, w->own,
              w->split > 1 ? intern_f(p->m->c, ", in clusters of %d (sm_90)", w->split) : "");
    else
        buf_f(&p->reasons,
              "one kernel walks the %s steps where the device holds its blocks: %d units and %d rows of "
              "the product each%s\n",
              way, w->own, w->own * w->outer,
              walks->pairs ? "; in clusters of two (sm_90) each reads half of the operand" : "");
    if (walks->wide)
        buf_f(&p->reasons,
              "another one, which multiplies %d sequences at once, walks those of more than "
              "%d\n",
              PANEL_WIDE, PANEL_TURN);
}

static void take_panel(Plan *p, Program *pr, ResidentWalk *w)
{
    ResidentWalks *walks = resident_walks(pr);
    walks->panel = w;
    w->posts = p->buffers.len;
    w->kernel = intern_f(p->m->c, "%s_%s_steps", p->m->name, pr->dir == FORWARD ? "fwd" : "bwd");
    for (int i = 0; i < resident_products(w); i++) {
        ResidentWalk *part = w->nparts ? w->parts[i] : w;
        resident_keep_operand(p, pr, part);
        part->marks = (w->nparts || part->own >= MARKED_OWN) && resident_marks_operand(p, pr, part);
        part->marks_few = part->marks && part->own < MARKED_OWN;
        part->posts = w->posts;
    }
    walks->pairs = w->nparts ? NULL : find_pairs(p, pr, w);
    walks->wide = w->nparts ? NULL : find_wide(p, pr, walks->pairs ? walks->pairs : w);
    Buffer posts = { .name = intern_f(p->m->c, "posts %d", pr->dir),
                     .dtype = DT_I32,
                     .inference = true,
                     .elements = poly_const(p->m, resident_posts(walks->pairs ? walks->pairs : w)) };
    vec_push(p->m->arena, &p->buffers, posts);
    say_panel(p, pr, w);
}

static bool is_nowhere(void *of, NodeId array)
{
    const Program *pr = of;
    return pr->node[array].home == HOME_NONE;
}

void resident_find(Plan *p, const Reason *why[2])
{
    for (int d = 0; d < 2; d++) {
        Program *pr = &p->program[d];
        ResidentWalks *walks = resident_walks(pr);
        ResidentWalk *w = find(p, pr, &why[d]);
        if (w && walk_pointers(p, pr, is_nowhere, pr) > MAX_POINTERS) {
            why[d] = reason(p->m, "a step has more arrays in memory than one kernel takes");
            continue;
        }
        if (!w)
            continue;
        walks->head = w->nparts ? NULL : find_head(p, pr, w);
        if (walks->head)
            buf_f(&p->reasons,
                  "one kernel walks the %s steps where a block takes all that a sequence%s has: %d times "
                  "its units squared of the param, in shared memory\n",
                  d == FORWARD ? "forward" : "backward", poly_is_one(w->heads) ? "" : "'s head",
                  w->inner * w->outer);
        walks->cluster = w->nparts ? NULL : find_cluster(p, pr, w);
        if (walks->cluster)
            buf_f(
                &p->reasons,
                "one kernel walks the %s steps where a cluster of %d blocks takes all that a sequence%s has: "
                "%d units each, at most (sm_90, and no block alone does%s)\n",
                d == FORWARD ? "forward" : "backward", CLUSTER_BLOCKS, poly_is_one(w->heads) ? "" : "'s head",
                walks->cluster->own,
                poly_is_one(w->heads) ? intern_f(p->m->c, ", or there are %d units or more", CLUSTER_UNITS)
                                      : "");
        if (w->naxes == 1 && p->dtype != DT_F64)
            take_panel(p, pr, w);
        if (d == BACKWARD && (walks->panel || walks->head || walks->cluster))
            resident_sums(p, pr, w);
    }
}
