/* plan_fused.c: products of 16 bits in one kernel with what is computed next to them. In comes a plan with its groups and storage;
 * out go pairs of groups (Fused), of two kinds.
 *
 * Of forward: a product and the MAP group that reads its result, at its own place only. It is guaranteed that nobody reads the
 * result between the two, so that one kernel may stand for both where the second does. The result is then not read from memory,
 * and is written there only where others read it: backward, where the call saves, or another value.
 *
 * Of backward: a product and the group that makes its left operand, of elements and perhaps of their sums over rows. One kernel
 * makes rows of the operand while it multiplies those before. It stands where the group does: the other operand is a tensor. */
#include "ir/ops.h"
#include "plan_pass.h"

/* Who reads the result, through what is printed where it is used. */
typedef enum { UNSEEN, APART, REACHES } Seen;
typedef struct Search {
    const Plan *p;
    const Program *pr;
    int group;                    /* of the map */
    NodeId product;
    unsigned char *seen;          /* per node: Seen */
} Search;

static bool reads_own_place(const Plan *p, NodeId reader, const Read *r)
{
    const Node *a = at(p, reader);
    bool own = !r->step && r->nmap == a->naxes;
    for (int i = 0; i < r->nmap && own; i++)
        own = r->map[i] == ix_index(p->m, a->axes[i]);
    return own;
}

/* Is it found in memory by the map's kernel? */
static bool stands_elsewhere(const Search *s, NodeId id)
{
    return s->pr->group[id] != s->group && s->pr->node[id].home != HOME_NONE;
}

/* Does the array read the product at its own place only, if it does, directly or through values that this kernel makes? */
static bool reads_in_place(Search *s, NodeId array)
{
    Uses uses = plan_uses(s->p, array);
    bool reaches = false;
    for (int i = 0; i < uses.len && !s->seen[array]; i++) {
        const Read *r = &uses.data[i].read;
        bool product = !r->is_tensor && r->id == s->product;
        if (r->is_tensor || (!product && stands_elsewhere(s, r->id)))
            continue;
        if (!product && !reads_in_place(s, r->id))
            return false;
        product = product || s->seen[r->id] == REACHES;
        if (product && !reads_own_place(s->p, array, r))
            return false;
        reaches |= product;
    }
    if (!s->seen[array])
        s->seen[array] = reaches ? REACHES : APART;
    return true;
}

/* Is the value nothing but text where it is read? */
static bool is_text(const Search *s, NodeId id)
{
    return s->pr->group[id] < 0 && s->pr->node[id].home == HOME_NONE && s->pr->phase[id] != PHASE_DURING;
}

static bool reads_product(Search *s, NodeId array)
{
    Uses uses = plan_uses(s->p, array);
    for (int i = 0; i < uses.len && !s->seen[array]; i++) {
        const Read *r = &uses.data[i].read;
        if (!r->is_tensor && (r->id == s->product || (is_text(s, r->id) && reads_product(s, r->id))))
            s->seen[array] = REACHES;
    }
    if (!s->seen[array])
        s->seen[array] = APART;
    return s->seen[array] == REACHES;
}

/* Does an array of forward that the map's kernel does not make read the product? */
static bool read_by_others(Search *s)
{
    s->seen = plan_alloc(s->p, 1, s->p->n_nodes);
    for (NodeId id = 0; id < s->p->n_nodes; id++)
        if (at(s->p, id)->kind == N_ARRAY && s->pr->phase[id] != PHASE_NONE && s->pr->group[id] != s->group &&
            !is_text(s, id) && reads_product(s, id))
            return true;
    return false;
}

static bool is_one(const Poly *stride)
{
    return !stride || poly_is_one(stride);
}

/* The product's matrices as the kernel has them: rows of the result are batch and time, and all are dense along their rows
 * or the sum. */
static bool take_matrices(Plan *p, const Program *pr, Fused *f)
{
    const Gemm *x = &f->product->gemm;
    const Storage *c = &pr->node[x->c.read.id];
    bool swapped = is_one(x->c.row);      /* the product's own rows are these columns */
    const GemmSide *left = swapped ? &x->b : &x->a, *right = swapped ? &x->a : &x->b;
    f->a = left->read;
    f->b = right->read;
    f->a_offset = left->offset;
    f->b_offset = right->offset;
    f->a_pitch = swapped ? left->col : left->row;
    f->b_pitch = swapped ? right->row : right->col;
    f->c_pitch = swapped ? x->c.col : x->c.row;
    f->rows = swapped ? x->n : x->m;
    f->columns = swapped ? x->m : x->n;
    f->depth = x->k;
    const Poly *along_a = swapped ? left->row : left->col, *along_b = swapped ? right->col : right->row;
    if (f->ahead) {                   /* the rows of b are along columns */
        const Poly *pitch = along_b;
        along_b = f->b_pitch;
        f->b_pitch = pitch;
    }
    const Poly *elements = array_elements(p->m, x->c.read.id);
    return is_one(along_a) && is_one(along_b) && f->a_pitch && f->b_pitch && f->c_pitch == elements &&
           f->columns == elements && f->rows == row_count(p, c->batched, c->timed);
}

/* An operand whose first element, known now, is at a multiple of 16 bytes. */
static bool starts_aligned(const Plan *p, const Program *pr, const Read *r, const Poly *offset)
{
    const Storage *st = plan_storage(p, pr, r);
    const Poly *piece = st->alias_offset;
    return offset->is_const && offset->value % FUSED_MULTIPLE == 0 && (!piece || (piece->is_const && piece->value == 0)) &&
           st->dtype == p->dtype && (st->home == HOME_ARG || !p->buffers.data[st->slot].ring);
}

/* Rows of 16 bits of all steps, one behind another, from the buffer's start on. */
static bool has_all_rows(const Plan *p, const Storage *st)
{
    bool own = st->home == HOME_WORKSPACE || st->home == HOME_RESERVE;
    return st->home != HOME_NONE && st->dtype == p->dtype && st->timed && !st->alias_offset && !st->pitch &&
           (!own || (!p->buffers.data[st->slot].ring && !p->buffers.data[st->slot].time_first));
}

static bool may_be_fused(const Plan *p, const Program *pr, const Group *g)
{
    const Gemm *x = &g->gemm;
    if (g->kind != G_GEMM || (g->phase != PHASE_BEFORE && g->phase != PHASE_AFTER) || x->batch || x->added || x->parts[0])
        return false;
    return has_all_rows(p, &pr->node[x->c.read.id]) && at(p, x->c.read.id)->naxes > 0 && x->c.offset->is_const &&
           x->c.offset->value == 0;
}

static bool same_rows(const Plan *p, const Program *pr, const Group *map, NodeId product)
{
    const Storage *st = &pr->node[product];
    const Node *a = at(p, product);
    bool same = map->kind == G_MAP && map->batched == st->batched && map->timed == st->timed && map->naxes == a->naxes;
    for (int i = 0; i < map->naxes && same; i++)
        same = map->axes[i] == extent_of(p, a->axes[i]);
    return same;
}

static bool reads_only_in_place(Search *s, const Group *map)
{
    for (int i = 0; i < map->arrays.len; i++)
        if (!reads_in_place(s, map->arrays.data[i]))
            return false;
    return true;
}

/* ---- does it pay? */

/* What the body costs beside the product: cycles that one of the few warps that run it takes for an element, counted roughly.
 * Measured on an H200: GELU, with a load before it and two stores behind, takes as long as 1024 terms of the product. */
enum { CYCLES_ELEMENT = 28, CYCLES_OPERATOR = 2, CYCLES_FUNCTION = 32, CYCLES_READ = 15 };

/* An operator of few issue slots, or a function. */
static int cycles_of_operator(Op op)
{
    enum { FEW_SLOTS = 2 };
    return op_table[op].cost <= FEW_SLOTS ? CYCLES_OPERATOR : CYCLES_FUNCTION;
}

/* Down to what is read, each node once. -1: it has a sum of its own. */
static int cycles_of(const Plan *p, const Program *pr, int group, NodeId id, bool *seen)
{
    const Node *n = at(p, id);
    Read r;
    int sum = 0;
    if (seen[id])
        return 0;
    seen[id] = true;
    if (plan_resolve(p, id, &r)) {
        if (r.is_tensor)
            return p->m->tensors.data[r.id].kind == T_PARAM ? 0 : CYCLES_READ;
        if (pr->group[r.id] < 0 && pr->node[r.id].home == HOME_NONE)
            return cycles_of(p, pr, group, at(p, r.id)->args[0], seen);
        return pr->group[r.id] == group ? 0 : CYCLES_READ;
    }
    if (n->kind == N_REDUCE)
        return -1;
    if (n->kind == N_MAP)
        sum = cycles_of_operator(n->op);
    for (int i = 0; i < n->nargs; i++) {
        int more = cycles_of(p, pr, group, n->args[i], seen);
        if (more < 0)
            return -1;
        sum += more;
    }
    return sum;
}

/* The tensor cores take about 1100 cycles for 64 terms of a tile, and three warps have the tile's elements: so they are through
 * with these in time where there are 16 terms for each cycle. Of what is made ahead, the elements are of the operand, and as many
 * columns of the result as fill that time make up for them. */
static bool find_least(const Plan *p, const Program *pr, Fused *f)
{
    enum { TERMS_A_CYCLE = 16, COLUMNS_A_CYCLE = 20 };
    const Group *sums = f->map->sums ? &pr->groups.data[f->map->sums - 1] : NULL;
    int cycles = CYCLES_ELEMENT + (sums ? sums->arrays.len * CYCLES_OPERATOR : 0), group = (int)(f->map - pr->groups.data);
    bool *seen = plan_alloc(p, 1, p->n_nodes);
    for (int i = 0; i < f->map->arrays.len; i++) {
        int more = cycles_of(p, pr, group, at(p, f->map->arrays.data[i])->args[0], seen);
        if (more < 0)
            return false;
        cycles += more;
    }
    cycles -= f->ahead ? 0 : CYCLES_READ;        /* the product's own result is at hand */
    f->least = cycles * (f->ahead ? COLUMNS_A_CYCLE : TERMS_A_CYCLE);
    return true;
}

static void add_pair(Plan *p, Fused *f)
{
    Module *m = p->m;
    f->kernel = intern_f(m->c, f->ahead ? "%s_ahead" : "%s_fused", f->map->kernel);
    f->maps = add_buffer(p, f->ahead ? "maps, backward" : "maps, forward", DT_F32, NULL, false, true);
    Buffer *maps = &p->buffers.data[f->maps];
    maps->columns = poly_const(m, FUSED_MAP_BYTES / 4);
    maps->cut = poly_mul(m, f->rows, f->columns);
    maps->each = FUSED_ROWS * FUSED_COLUMNS;
    maps->most = FUSED_BLOCKS;
    maps->pieces = "blocks";
    maps->arrays = 1;
    f->product->fused = f->map->fused = f;
}

/* The first group behind the product that reads it, where that may be one with it. */
static void fuse(Plan *p, Program *pr, int product)
{
    Module *m = p->m;
    Group *g = &pr->groups.data[product], *map = NULL;
    NodeId id = g->gemm.c.read.id;
    int at_group = product + 1;
    while (at_group < pr->groups.len &&
           (pr->groups.data[at_group].phase != g->phase || !group_reads(&pr->groups.data[at_group], id)))
        at_group++;
    if (at_group < pr->groups.len)
        map = &pr->groups.data[at_group];
    if (!map || map->fused || !same_rows(p, pr, map, id))
        return;
    Search s = { p, pr, at_group, id, plan_alloc(p, 1, p->n_nodes) };
    Fused *f = arena_alloc(m->arena, sizeof *f);
    *f = (Fused){ .product = g, .map = map };
    if (!take_matrices(p, pr, f) || !starts_aligned(p, pr, &f->a, f->a_offset) || !starts_aligned(p, pr, &f->b, f->b_offset) ||
        !reads_only_in_place(&s, map))
        return;
    if (!find_least(p, pr, f))
        return;
    f->shared = read_by_others(&s);
    add_pair(p, f);
}

/* Elements of one axis, each computed by itself, and no sums but those over rows. */
static bool makes_elements(const Plan *p, const Group *g, const Poly *extent)
{
    bool fits = (g->kind == G_MAP || (g->kind == G_ROW && g->pointwise)) && !g->unless_walked && !g->fused && g->batched && g->timed;
    for (int i = 0; i < g->arrays.len && fits; i++) {
        const Node *a = at(p, g->arrays.data[i]);
        fits = a->naxes == 1 && extent_of(p, a->axes[0]) == extent;
    }
    return fits;
}

static bool wants_all(const Group *g, const Group *of)
{
    bool all = g->always || g->need.len == 0 || (!of->always && of->need.len > 0);
    for (int i = 0; i < of->need.len && all && g->need.len > 0 && !g->always; i++) {
        all = false;
        for (int k = 0; k < g->need.len; k++)
            all |= g->need.data[k] == of->need.data[i];
    }
    return all;
}

/* The group that makes the product's left operand, where that may be one with it. */
static void fuse_ahead(Plan *p, Program *pr, int product)
{
    Group *g = &pr->groups.data[product];
    Fused *f = arena_alloc(p->m->arena, sizeof *f);
    *f = (Fused){ .product = g, .ahead = true };
    if (!take_matrices(p, pr, f) || f->a.is_tensor || !f->b.is_tensor || pr->group[f->a.id] < 0 ||
        pr->group[f->a.id] > product || !has_all_rows(p, &pr->node[f->a.id]) || pr->node[f->a.id].home == HOME_ARG)
        return;
    f->map = &pr->groups.data[pr->group[f->a.id]];
    if (f->map->phase != g->phase || !makes_elements(p, f->map, f->depth) || f->a_pitch != f->depth ||
        !wants_all(f->map, g) || !starts_aligned(p, pr, &f->a, f->a_offset) || f->a_offset->value != 0 ||
        !starts_aligned(p, pr, &f->b, f->b_offset))
        return;
    if (!find_least(p, pr, f))
        return;
    f->made = add_buffer(p, "rows made", DT_I32, NULL, false, true);
    Buffer *made = &p->buffers.data[f->made];
    made->columns = poly_const(p->m, 1);
    made->cut = f->rows;
    made->each = AHEAD_ROWS;
    made->most = AHEAD_GROUPS;
    made->pieces = "groups";
    made->arrays = 1;
    add_pair(p, f);
}

void find_fused(Plan *p)
{
    Program *forward = &p->program[FORWARD], *backward = &p->program[BACKWARD];
    if ((p->dtype != DT_BF16 && p->dtype != DT_F16) || p->request->products == PRODUCTS_PLAIN ||
        !may_run(p->request->archs, FUSED_SMEM, true))
        return;
    for (int i = 0; i < forward->groups.len; i++) {
        NodeId id = forward->groups.data[i].kind == G_GEMM ? forward->groups.data[i].gemm.c.read.id : -1;
        if (id >= 0 && p->from_product[id] && forward->node[id].home != HOME_ARG && may_be_fused(p, forward, &forward->groups.data[i]))
            fuse(p, forward, i);
    }
    for (int i = 0; i < backward->groups.len; i++)
        if (may_be_fused(p, backward, &backward->groups.data[i]))
            fuse_ahead(p, backward, i);
}

static bool fuses_products(const Program *pr)
{
    for (int i = 0; i < pr->groups.len; i++)
        if (pr->groups.data[i].fused)
            return true;
    return false;
}

bool plan_has_tiles(const Plan *p)
{
    for (; p; p = p->smaller)
        for (const Plan *one = p; one; one = one->other)
            for (int d = 0; d < 2; d++)
                if (fuses_products(&one->program[d]) ||
                    (one->schedule->has_tiles && one->schedule->has_tiles(&one->program[d])))
                    return true;
    return false;
}
