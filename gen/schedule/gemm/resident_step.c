/* resident_step.c: what a step of schedule gemm must be for a resident walk. In comes a planned program;
 * out goes the step as a walk by the whole grid, or which term of it forbids that: products of weights with
 * vectors whose rows and terms are pieces of so many units, and what is pointwise over the same units.
 * Guaranteed: a step reads of another unit's values nothing but the operands of its products. */
#include "ir/marks.h"
#include "resident.h"

static const Node *at(const Plan *p, NodeId id)
{
    return &p->m->nodes.data[id];
}

/* ---- pieces ---- */

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
    if (o->w->several && !made_here(o, r))
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
    if (!w->several && (g->axes[g->naxes - 1] != w->units || all != poly_mul(p->m, w->units, w->heads)))
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
bool resident_takes_product(const Plan *p, const Program *pr, const ResidentWalk *w, ResidentProduct *x)
{
    Module *m = p->m;
    const Gemm *g = &x->group->gemm;
    bool left = resident_is_weight(p, pr, &g->a.read);
    const GemmSide *weight = left ? &g->a : &g->b, *vector = left ? &g->b : &g->a;
    if ((g->batch ? g->batch : poly_const(m, 1)) != w->heads || !resident_is_weight(p, pr, &weight->read) ||
        vector->read.is_tensor)
        return false;
    x->weight = weight->read;
    x->weight_offset = weight->offset;
    x->row_stride = left ? weight->row : weight->col;
    x->k_stride = left ? weight->col : weight->row;
    x->head_stride = weight->batch;
    x->operand = vector->read.id;
    x->operand_offset = vector->offset;
    const Poly *rows = left ? g->m : g->n, *batch = left ? g->n : g->m;
    x->inner = (int)resident_times(m, g->k, x->k_units);
    x->outer = (int)resident_times(m, rows, x->units);
    const Storage *st = plan_storage(p, pr, &vector->read);
    const Poly *pitch =
        poly_mul(m, poly_dim(m, ATOM_T), st->pitch ? st->pitch : array_elements(m, vector->read.id));
    const Poly *apart = left ? vector->col : vector->row, *along = left ? vector->row : vector->col;
    return batch == poly_dim(m, ATOM_B) && apart == pitch && poly_is_one(along) &&
           poly_is_one(left ? g->c.row : g->c.col) && x->inner >= 1 && x->outer >= 1 && x->inner <= 8 &&
           x->outer <= 8 && g->c.offset->nterms == 0 &&
           (!g->batch || (vector->batch == g->k && g->c.batch == rows)) && st->batched && st->timed &&
           st->dtype == p->dtype && (st->home == HOME_WORKSPACE || st->home == HOME_RESERVE);
}

static const Poly *heads_of(Plan *p, const Group *g)
{
    const Poly *heads = poly_const(p->m, 1);
    for (int i = 0; i + 1 < g->naxes; i++)
        heads = poly_mul(p->m, heads, g->axes[i]);
    return heads;
}

bool resident_take_product(Plan *p, ResidentWalk *w, Group *g)
{
    if (g->kind != G_GEMM || w->nproducts || g->arrays.len != 1 || (g->need.len > 0 && !g->always))
        return false;
    w->products = arena_alloc(p->m->arena, sizeof *w->products);
    w->products[w->nproducts++] = (ResidentProduct){ .group = g };
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

/* NULL, or why the groups of a step are not those of one product with what is pointwise over the same units.
 * several: it has more than one product. */
static const Reason *take_groups(Plan *p, Program *pr, ResidentWalk *w, bool *several)
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
        } else if (!resident_take_product(p, w, g)) {
            *several = true;
        }
    }
    if (*several || (w->nproducts && w->units))
        return NULL;
    return reason(p->m, w->nproducts ? "nothing of a step is computed beside the product"
                                     : "a step has no product");
}

static const Reason *take(Plan *p, Program *pr, ResidentWalk *w, bool *several)
{
    const Reason *why = take_groups(p, pr, w, several);
    if (why || *several)
        return why;
    ResidentProduct *x = w->products;
    const Node *sum = at(p, at(p, x->group->arrays.data[0])->args[0]);
    x->units = x->k_units = w->units;
    if (!resident_takes_product(p, pr, w, x))
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
    x->operand_ready = resident_made_before(p, x->operand);
    w->spaces = arena_alloc(p->m->arena, sizeof *w->spaces);
    w->spaces[w->nspaces++] = w->units;
    return NULL;
}

ResidentWalk *resident_step(Plan *p, Program *pr, const Reason **why)
{
    ResidentWalk *w = resident_new(p, SHARE_GRID, ELEMENTS_IN_TURN, EXCHANGE_MEMORY);
    bool several = false;
    *why = take(p, pr, w, &several);
    if (several)
        return resident_several(p, pr, why);
    if (*why && w->nproducts) { /* of one product, but over several axes, or pieces of one */
        const Reason *also;
        ResidentWalk *parts = resident_several(p, pr, &also);
        *why = parts ? NULL : *why;
        return parts;
    }
    return *why ? NULL : w;
}
