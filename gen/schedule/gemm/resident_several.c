/* resident_several.c: steps of schedule gemm with several products, which one kernel walks (resident.c). In
 * comes a planned program whose steps are products with params and what is pointwise; out goes a
 * ResidentWalk with a part for each product, or which term of the step forbids it. What the step is
 * pointwise over need not be the same everywhere (a Mogrifier's input and its state): of each of these
 * spaces a block has the same number of units. Guaranteed: what a block reads of another block is some
 * product's operand, which a group of the step makes before the product, or made in the step before. */
#include "resident.h"

/* Products of a step; the text of each is in the kernel. */
enum { MOST_PRODUCTS = 24, MOST_SPACES = 8, MOST_TIMES = 8 };

static const Node *at(const Plan *p, NodeId id)
{
    return &p->m->nodes.data[id];
}

static bool in_step(const Group *g, GroupKind kind)
{
    return g->phase == PHASE_DURING && g->kind == kind;
}

static const Node *sum_of(const Plan *p, const Group *product)
{
    return at(p, at(p, product->arrays.data[0])->args[0]);
}

/* ---- spaces ---- */

/* Of the group itself: the axis of what is pointwise, or the units of a product's rows. */
static const Poly *group_space(Module *m, const Program *pr, const ResidentWalk *w, int group)
{
    const Group *g = &pr->groups.data[group];
    if (in_step(g, G_MAP))
        return g->naxes == 1 ? resident_base(m, w, g->axes[0]) : NULL;
    for (int i = 0; i < w->nproducts; i++)
        if (w->products[i].group == g)
            return w->products[i].units;
    return NULL;
}

/* Does the group make the value, or pieces of the memory that it lies in? */
static bool makes(const Program *pr, NodeId made, NodeId id)
{
    const Storage *a = &pr->node[made], *b = &pr->node[id];
    return made == id || (b->home != HOME_NONE && a->home == b->home && a->slot == b->slot);
}

const Poly *resident_space(const Plan *p, const Program *pr, const ResidentWalk *w, NodeId id)
{
    const Poly *space = NULL;
    if (pr->group[id] >= 0)
        return group_space(p->m, pr, w, pr->group[id]);
    for (NodeId made = 0; made < p->n_nodes; made++) {
        if (pr->group[made] < 0 || pr->phase[made] != PHASE_DURING || !makes(pr, made, id))
            continue;
        const Poly *own = group_space(p->m, pr, w, pr->group[made]);
        if (!own || (space && own != space))
            return NULL;
        space = own;
    }
    return space;
}

/* Axes that are some pieces of others are spaces no more. */
static void find_bases(Module *m, ResidentWalk *w)
{
    int n = 0;
    bool whole[MOST_SPACES] = { false };
    for (int i = 0; i < w->nspaces; i++)
        for (int k = 0; k < w->nspaces; k++) {
            int64_t pieces = resident_times(m, w->spaces[i], w->spaces[k]);
            whole[i] |= pieces > 1 && pieces <= MOST_TIMES;
        }
    for (int i = 0; i < w->nspaces; i++)
        if (!whole[i])
            w->spaces[n++] = w->spaces[i];
    w->nspaces = n;
}

static bool add_space(const Plan *p, ResidentWalk *w, const Poly *space)
{
    for (int i = 0; i < w->nspaces; i++)
        if (w->spaces[i] == space)
            return true;
    if (w->nspaces == MOST_SPACES)
        return false;
    if (!w->spaces)
        w->spaces = arena_alloc(p->m->arena, sizeof *w->spaces * MOST_SPACES);
    w->spaces[w->nspaces++] = space;
    return true;
}

/* Does a group read the product, or its result of the step before, where that is an adjoint? */
static bool reads_product(const Plan *p, const Group *g, NodeId id)
{
    const Module *m = p->m;
    for (int i = 0; i < g->reads.len; i++) {
        int key = g->reads.data[i];
        const Tensor *x = key < 0 ? &m->tensors.data[~key] : NULL;
        if (key == id || (x && x->kind == T_DNEXT && m->roots.data[x->of].dprev == id))
            return true;
    }
    return false;
}

/* Of the groups that read the product, or, where none does, any that its rows are pieces of. */
static const Poly *space_of_rows(const Plan *p, const Program *pr, const ResidentWalk *w, NodeId id)
{
    const Poly *space = NULL;
    for (int i = 0; i < pr->groups.len; i++) {
        const Group *g = &pr->groups.data[i];
        if (!in_step(g, G_MAP) || !reads_product(p, g, id))
            continue;
        if (space && space != resident_base(p->m, w, g->axes[0]))
            return NULL;
        space = resident_base(p->m, w, g->axes[0]);
    }
    for (int i = 0; i < w->nspaces && !space; i++) {
        int64_t pieces = resident_times(p->m, array_elements(p->m, id), w->spaces[i]);
        space = pieces >= 1 && pieces <= MOST_TIMES ? w->spaces[i] : NULL;
    }
    return space;
}

/* ---- products ---- */

/* The state that an operand is a copy of. */
static NodeId next_of(const Plan *p, const Program *pr, NodeId operand)
{
    Read r;
    NodeId next = plan_resolve(p, at(p, operand)->args[0], &r) ? p->m->roots.data[r.id].next : -1;
    return next < 0 || pr->group[next] >= 0 ? next : plan_named(p, next);
}

int resident_maker(const Plan *p, const Program *pr, const ResidentProduct *x)
{
    int n = 0, last = -1;
    NodeId state = x->operand_ready ? next_of(p, pr, x->operand) : -1;
    for (int i = 0; i < pr->groups.len; i++) {
        const Group *g = &pr->groups.data[i];
        if (!in_step(g, G_MAP))
            continue;
        for (int k = 0; k < g->arrays.len; k++)
            if (makes(pr, g->arrays.data[k], x->operand) || g->arrays.data[k] == state)
                last = n;
        n++;
    }
    return last;
}

int resident_place(const Program *pr, const ResidentProduct *x)
{
    int n = 0;
    for (const Group *g = pr->groups.data; g < x->group; g++)
        n += in_step(g, G_MAP);
    return n;
}

/* A product reads what a group before it made, or the state of the step before; what is pointwise reads an
 * adjoint that is a product, of the step behind, before that is made again. */
static bool in_order(const Plan *p, const Program *pr, const ResidentProduct *x)
{
    TensorId of;
    NodeId id = x->group->arrays.data[0];
    int at_product = resident_place(pr, x), maker = resident_maker(p, pr, x);
    bool carried = root_kind(p->m, id, &of) == ROOT_DPREV;
    for (int i = (int)(x->group - pr->groups.data); i < pr->groups.len && carried; i++)
        if (in_step(&pr->groups.data[i], G_MAP) && reads_product(p, &pr->groups.data[i], id))
            return false;
    if (x->operand_ready)
        return pr->dir == FORWARD && maker >= at_product;
    return maker >= 0 && maker < at_product;
}

static bool same_weights(const ResidentProduct *a, const ResidentProduct *b)
{
    return a->weight.is_tensor == b->weight.is_tensor && a->weight.id == b->weight.id && !a->weight.step &&
           !b->weight.step && a->weight_offset == b->weight_offset && a->row_stride == b->row_stride &&
           a->k_stride == b->k_stride && a->units == b->units && a->k_units == b->k_units &&
           a->inner == b->inner && a->outer == b->outer;
}

static const Poly *space_of_operand(const Plan *p, const Program *pr, const ResidentWalk *w, NodeId operand)
{
    if (resident_made_before(p, operand))
        return next_of(p, pr, operand) < 0 ? NULL : resident_space(p, pr, w, next_of(p, pr, operand));
    return resident_space(p, pr, w, operand);
}

/* NULL, or why the product's rows or terms are not those of units. */
static const Reason *take_product(const Plan *p, const Program *pr, ResidentWalk *w, ResidentProduct *x)
{
    Module *m = p->m;
    const Gemm *g = &x->group->gemm;
    const Node *sum = sum_of(p, x->group);
    NodeId id = x->group->arrays.data[0];
    const GemmSide *vector = resident_is_weight(p, pr, &g->a.read) ? &g->b : &g->a;
    x->units = space_of_rows(p, pr, w, id);
    if (!x->units)
        return reason_of(m, sum, "what is computed of %s in a step is over different axes",
                         resident_value_name(p, id));
    x->k_units = vector->read.is_tensor ? NULL : space_of_operand(p, pr, w, vector->read.id);
    if (!x->k_units)
        return reason_of(m, sum,
                         "the vector of its product for %s is not made in the step over the axis of "
                         "one of its pieces",
                         resident_value_name(p, id));
    if (!resident_takes_product(p, pr, w, x))
        return reason_of(m, sum,
                         "its product for %s is not of a param, as it is stored, and one vector for each "
                         "sequence whose rows and terms are some times as many as the units of a step",
                         resident_value_name(p, id));
    x->operand_ready = resident_made_before(p, x->operand);
    if (!in_order(p, pr, x))
        return reason_of(m, sum, "the vector of its product for %s is made behind it in a step",
                         resident_value_name(p, id));
    return NULL;
}

static const Reason *take_groups(const Plan *p, const Program *pr, ResidentWalk *w)
{
    Module *m = p->m;
    for (int i = 0; i < pr->groups.len; i++) {
        Group *g = &pr->groups.data[i];
        if (g->phase != PHASE_DURING)
            continue;
        if (g->kind != G_MAP && g->kind != G_GEMM)
            return resident_beside(p, g);
        const Node *a = at(p, g->arrays.data[0]);
        if (g->kind == G_GEMM && (g->arrays.len != 1 || (g->need.len > 0 && !g->always)))
            return reason_of(m, sum_of(p, g),
                             "one of its products is for gradients that are not always asked for");
        if (g->kind == G_MAP && g->naxes != 1)
            return reason_of(m, a, "it has several products, and %s has %s",
                             resident_value_name(p, g->arrays.data[0]),
                             g->naxes ? "axes of heads" : "no axis");
        if (g->kind == G_MAP && !add_space(p, w, g->axes[0]))
            return reason_of(m, a, "its step is pointwise over more than %d different axes", MOST_SPACES);
        if (g->kind == G_GEMM && w->nproducts == MOST_PRODUCTS)
            return reason_of(m, sum_of(p, g), "its step has more than %d products", MOST_PRODUCTS);
        if (g->kind == G_GEMM) {
            w->products[w->nproducts] = (ResidentProduct){ .group = g, .number = w->nproducts };
            w->nproducts++;
        }
    }
    find_bases(m, w);
    return w->nspaces ? NULL : reason(m, "nothing of a step is computed beside its products");
}

static const Reason *take(Plan *p, Program *pr, ResidentWalk *w)
{
    const Reason *why = take_groups(p, pr, w);
    /* the space of a product's rows is asked for by those of other products */
    for (int i = 0; i < w->nproducts && !why; i++)
        w->products[i].units = space_of_rows(p, pr, w, w->products[i].group->arrays.data[0]);
    for (int i = 0; i < w->nproducts && !why; i++)
        why = take_product(p, pr, w, &w->products[i]);
    for (int i = 0; i < pr->groups.len && !why; i++) {
        const Group *g = &pr->groups.data[i];
        if (in_step(g, G_MAP) && !resident_takes_map(p, pr, w, g))
            why = reason_of(p->m, at(p, g->arrays.data[0]),
                            "%s of a step has, or reads, other elements than its own unit's",
                            resident_value_name(p, g->arrays.data[0]));
    }
    return why;
}

ResidentWalk *resident_several(Plan *p, Program *pr, const Reason **why)
{
    ResidentWalk *w = resident_new(p, SHARE_GRID, ELEMENTS_IN_TURN, EXCHANGE_MEMORY);
    w->several = true;
    w->products = arena_alloc(p->m->arena, sizeof *w->products * MOST_PRODUCTS);
    *why = take(p, pr, w);
    if (*why)
        return NULL;
    for (int i = 0; i < w->nproducts; i++) {
        int first = 0;
        while (first < i && !same_weights(&w->products[first], &w->products[i]))
            first++;
        w->products[i].first_same = first;
    }
    w->units = w->spaces[0];
    return w;
}
