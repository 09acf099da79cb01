/* plan_group.c: which kernel or product computes each value. In come the phases; out go the groups of a direction, in
 * the order of their launch, each array in one. It is guaranteed that an array's group comes behind those of what it
 * reads, or is the same, and has it ready. */
#include "ir/ops.h"
#include "ir/rounded.h"
#include "plan_pass.h"

static bool same_axes(const Group *g, Module *m, const IndexId *axes, int n)
{
    if (g->naxes != n)
        return false;
    for (int i = 0; i < n; i++)
        if (g->axes[i] != m->indices.data[axes[i]].extent)
            return false;
    return true;
}

static bool rows_agree(const Plan *p, const Group *g, NodeId array)
{
    unsigned dep = rows_dep(p, array);
    return g->batched == ((dep & DEP_BATCH) != 0) && g->timed == ((dep & DEP_TIME) != 0);
}

/* The axis along a row of what the group has or sums. */
static const Poly *row_length(const Plan *p, NodeId array, int naxes)
{
    const Node *a = at(p, array), *body = at(p, a->args[0]);
    IndexId along = a->naxes > naxes ? a->axes[naxes] : plan_reduces(p, array) ? body->bound[0] : -1;
    return along < 0 ? NULL : p->m->indices.data[along].extent;
}

/* Is the array, which is pointwise over a row, made of what the row's kernel has one of, so that each
 * thread makes any element of it for itself? It stands in another loop than what goes along the index
 * `along`. */
static bool is_made_of_numbers(const Plan *p, const Program *pr, int group, NodeId array, IndexId along)
{
    const Group *g = &pr->groups.data[group];
    const Uses uses = plan_uses(p, array);
    if (along < 0 || plan_reduces(p, array) || at(p, array)->naxes != g->naxes + 1 ||
        row_length(p, array, g->naxes) == p->m->indices.data[along].extent)
        return false;
    for (int i = 0; i < uses.len; i++) {
        const Read *r = &uses.data[i].read;
        if (r->is_tensor || pr->group[r->id] != group || r->nmap != g->naxes)
            return false;
    }
    return uses.len > 0;
}

/* Every read of a value of the group is at the reader's own indices: the first n axes for a row's index.
 * along: as for is_made_of_numbers. */
static bool reads_own_row(const Plan *p, const Program *pr, int group, NodeId array, const Uses *uses, int n,
                          IndexId along)
{
    const Node *a = at(p, array);
    for (int i = 0; i < uses->len; i++) {
        const Read *r = &uses->data[i].read;
        if (r->is_tensor || pr->group[r->id] != group)
            continue;
        if (r->nmap < n || (!uses->data[i].plain && !is_made_of_numbers(p, pr, group, r->id, along)))
            return false;
        for (int k = 0; k < n; k++) {
            IndexId which;
            if (!ix_is_index(r->map[k], &which) || which != a->axes[k])
                return false;
        }
    }
    return true;
}

static bool fits_map(const Plan *p, const Program *pr, int group, NodeId array, const Uses *uses)
{
    const Group *g = &pr->groups.data[group];
    return !plan_reduces(p, array) && rows_agree(p, g, array) &&
           same_axes(g, p->m, at(p, array)->axes, at(p, array)->naxes) &&
           reads_own_row(p, pr, group, array, uses, g->naxes, -1);
}

/* Elements of a row are printed again where another of its values reads them: is the text short, all in all?
 * A chain of values that each read the one before twice would double in length with every link. */
static bool short_in_row(const Plan *p, const Program *pr, int group, NodeId id, int *left)
{
    const Node *n = at(p, id);
    NodeId read;
    if (--*left < 0)
        return false;
    if (n->kind != N_MAP && plan_source(p, id, &read)) {
        bool again = read >= 0 && pr->group[read] == group && !plan_reduces(p, read);
        return !again || short_in_row(p, pr, group, at(p, read)->args[0], left);
    }
    for (int i = 0; i < n->nargs; i++)
        if (!short_in_row(p, pr, group, n->args[i], left))
            return false;
    return true;
}

/* What a row's kernel has taken for its sums' sake stays that: no product, and no rows of another length, which would have it
 * take its own by single elements. */
static bool keeps_length(const Plan *p, const Program *pr, int group, NodeId array, const Uses *uses)
{
    const Group *g = &pr->groups.data[group];
    const Poly *n = row_length(p, g->arrays.data[0], g->naxes);
    if (!p->opens_row[g->arrays.data[0]])
        return true;
    for (int i = 0; i < uses->len; i++)
        if (!uses->data[i].read.is_tensor && pr->group[uses->data[i].read.id] == group)
            return true;
    return !plan_reduces(p, array) && (at(p, array)->naxes == g->naxes || row_length(p, array, g->naxes) == n);
}

/* Into a row kernel: a reduction to the row's index, or what is pointwise over a row (one more axis at
 * most). */
static bool fits_row(const Plan *p, const Program *pr, int group, NodeId array, const Uses *uses)
{
    const Group *g = &pr->groups.data[group];
    const Node *a = at(p, array);
    if (!rows_agree(p, g, array) || sums_over_batch(p, array) || a->naxes < g->naxes)
        return false;
    if (plan_reduces(p, array) ? a->naxes != g->naxes : a->naxes > g->naxes + 1)
        return false;
    int left = 300;
    const IndexId along = plan_reduces(p, array) || a->naxes == g->naxes ? -1 : a->axes[g->naxes];
    if (!same_axes(g, p->m, a->axes, g->naxes) ||
        !reads_own_row(p, pr, group, array, uses, g->naxes, along) ||
        !keeps_length(p, pr, group, array, uses) || !short_in_row(p, pr, group, a->args[0], &left))
        return false;
    /* Elements of a row are recomputed or re-read by the thread that owns them: only at the reader's own
     * element. */
    const Node *body = at(p, a->args[0]);
    for (int i = 0; i < uses->len; i++) {
        const Read *r = &uses->data[i].read;
        IndexId which = -1;
        if (r->is_tensor || pr->group[r->id] != group || r->nmap == g->naxes)
            continue;
        ix_is_index(r->map[g->naxes], &which);
        bool own = a->naxes > g->naxes && which == a->axes[g->naxes];
        if (plan_reduces(p, array))
            own = body->nbound == 1 && which == body->bound[0];
        if (!own && !is_made_of_numbers(p, pr, group, r->id, along))
            return false;
    }
    return true;
}

/* A sum over batch and time of which every term is added at one place of an axis. */
static bool is_scatter(const Plan *p, NodeId array, int *axis, NodeId *place)
{
    const Node *a = at(p, array), *r = at(p, a->args[0]);
    int found = 0;
    for (int i = 0; sums_over_batch(p, array) && r->reduce == R_SUM && i < a->naxes; i++) {
        NodeId at_place = ir_pinned(p->m, r->args[0], a->axes[i], a->axes, a->naxes, &(bool){ false });
        if (at_place >= 0 && !found++) {
            *axis = i;
            *place = at_place;
        }
    }
    return found > 0;
}

static Scatter *scatter_of(Plan *p, NodeId array, int axis, NodeId place)
{
    Module *m = p->m;
    const Node *a = at(p, array), *r = at(p, a->args[0]);
    Scatter *s = arena_alloc(m->arena, sizeof *s);
    *s = (Scatter){ .axis = axis, .place = place, .columns = poly_const(m, 1), .inner = poly_const(m, 1) };
    s->rows = m->indices.data[a->axes[axis]].extent;
    for (int i = 0; i < a->naxes; i++)
        if (i != axis)
            s->columns = poly_mul(m, s->columns, m->indices.data[a->axes[i]].extent);
    for (int i = 0; i < r->nbound; i++)
        if (r->bound[i] >= IX_FIRST)
            s->inner = poly_mul(m, s->inner, m->indices.data[r->bound[i]].extent);
    return s;
}

static bool fits_column(const Plan *p, const Program *pr, int group, NodeId array, const Uses *uses)
{
    const Group *g = &pr->groups.data[group];
    const Node *a = at(p, array), *body = at(p, a->args[0]);
    const Node *first = at(p, at(p, g->arrays.data[0])->args[0]);
    if (!sums_over_batch(p, array) || !same_axes(g, p->m, a->axes, a->naxes) ||
        body->nbound != first->nbound || is_scatter(p, array, &(int){ 0 }, &(NodeId){ 0 }) ||
        (summed_term(p, array) < 0) != (summed_term(p, g->arrays.data[0]) < 0))
        return false;
    for (int i = 0; i < body->nbound; i++)
        if (body->bound[i] != first->bound[i])
            return false;
    for (int i = 0; i < uses->len; i++)
        if (!uses->data[i].read.is_tensor && pr->group[uses->data[i].read.id] == group)
            return false;
    return true;
}

static int read_key(const Read *r)
{
    return r->is_tensor ? ~r->id : r->id;
}

/* A state's next value also goes to the final one and to what the next step's products read. */
static int own_pointers(const Plan *p, NodeId array)
{
    TensorId of;
    return root_kind(p->m, array, &of) == ROOT_NONE ? 1 : 3;
}

/* A kernel takes so many pointers: at most two for a tensor that it reads (a state's initial value lies
 * elsewhere), one for another group's array, and one for each of its own, were it to lie in memory. */
static bool pointers_suffice(const Plan *p, const Program *pr, int group, NodeId array, const Uses *uses)
{
    const Group *g = &pr->groups.data[group];
    int n = own_pointers(p, array) + g->pointers;
    for (int i = 0; i < g->reads.len; i++)
        n += 1 + (g->reads.data[i] < 0);
    for (int i = 0; i < uses->len && n <= MAX_POINTERS; i++) {
        const Read *r = &uses->data[i].read;
        if (!group_reads(g, read_key(r)) && (r->is_tensor || pr->group[r->id] != group))
            n += 1 + r->is_tensor;
    }
    return n <= MAX_POINTERS;
}

int walk_pointers(const Plan *p, const Program *pr, bool on_chip(void *of, NodeId array), void *of)
{
    bool *seen = plan_alloc(p, 1, p->m->nodes.len), *seen_tensor = plan_alloc(p, 1, p->m->tensors.len);
    int n = 0;
    for (int i = 0; i < pr->groups.len; i++) {
        const Group *g = &pr->groups.data[i];
        bool step = g->phase == PHASE_DURING;
        for (int k = 0; step && k < g->reads.len; k++) {
            int key = g->reads.data[k];
            bool *is_seen = key < 0 ? &seen_tensor[~key] : &seen[key];
            bool made = key >= 0 && pr->phase[key] == PHASE_DURING && pr->group[key] >= 0;
            TensorKind kind = key < 0 ? p->m->tensors.data[~key].kind : T_PARAM;
            n += *is_seen || made ? 0 : kind == T_STATE || kind == T_DNEXT ? 2 : 1;
            *is_seen = true;
        }
        for (int k = 0; step && k < g->arrays.len; k++)
            n += on_chip(of, g->arrays.data[k]) ? 0 : own_pointers(p, g->arrays.data[k]);
    }
    return n;
}

static bool fits(const Plan *p, const Program *pr, int group, NodeId array, const Uses *uses)
{
    const Group *into = &pr->groups.data[group];
    if (!pointers_suffice(p, pr, group, array, uses))
        return false;
    if (into->past || past_sums(p, array))
        return into->pass && past_sums(p, array) && into->pass_by->joins(p, into, array);
    switch (pr->groups.data[group].kind) {
    case G_MAP: return fits_map(p, pr, group, array, uses);
    case G_ROW: return fits_row(p, pr, group, array, uses);
    case G_COLUMN: return fits_column(p, pr, group, array, uses);
    case G_UNITS: return true;
    default: return false;
    }
}

static Group new_group(Plan *p, const Program *pr, NodeId array)
{
    Module *m = p->m;
    const Node *a = at(p, array);
    NodeId factor[2], place;
    int axis;
    Group g = { .phase = pr->phase[array], .batched = rows_dep(p, array) & DEP_BATCH,
                .timed = rows_dep(p, array) & DEP_TIME, .threads = 256 };
    if (p->schedule->per_unit && g.phase == PHASE_DURING)
        g.kind = G_UNITS;
    else if (contraction_of(p, array, g.phase == PHASE_DURING, &g.gemm, factor))
        g.kind = G_GEMM;
    else if (is_scatter(p, array, &axis, &place))
        g.kind = G_SCATTER;
    else if (sums_over_batch(p, array))
        g.kind = G_COLUMN;
    else
        g.kind = plan_reduces(p, array) || p->opens_row[array] ? G_ROW : G_MAP;
    if (g.kind == G_SCATTER)
        g.scatter = scatter_of(p, array, axis, place);
    if (g.kind == G_COLUMN || g.kind == G_SCATTER) {
        const Node *r = at(p, a->args[0]);
        g.batched = true;
        g.timed = false;
        for (int i = 0; i < r->nbound; i++)
            g.timed |= r->bound[i] == IX_TIME;
        g.timed = g.timed && summed_term(p, array) < 0;
    }
    g.past = g.kind == G_ROW && past_sums(p, array);
    g.naxes = g.past              ? past_rows(p, array)
              : g.kind == G_UNITS ? p->units->naxes
                                  : a->naxes - p->opens_row[array];
    g.pass_by = schedule_pass();
    if (g.past && g.phase != PHASE_DURING && g.pass_by)
        g.pass = g.pass_by->opens(p, array, &g.naxes);
    g.axes = plan_alloc(p, sizeof *g.axes, a->naxes);
    for (int i = 0; i < g.naxes; i++)
        g.axes[i] = m->indices.data[a->axes[i]].extent;
    return g;
}

static void add_to_group(Plan *p, Program *pr, int group, NodeId array, const Uses *uses)
{
    Group *g = &pr->groups.data[group];
    vec_push(p->m->arena, &g->arrays, array);
    g->pointers += own_pointers(p, array);
    if (g->pass)
        g->pass_by->grows(p, g);
    pr->group[array] = group;
    for (int i = 0; i < uses->len; i++) {
        const Read *r = &uses->data[i].read;
        if (!group_reads(g, read_key(r)) && (r->is_tensor || pr->group[r->id] != group))
            vec_push(p->m->arena, &g->reads, read_key(r));
    }
}

/* The earliest group of this phase, from `first` on, that may hold the array: behind everything it reads, and
 * fitting. */
static void place_array(Plan *p, Program *pr, NodeId array, const Uses *uses, int first)
{
    for (int i = 0; i < uses->len; i++) {
        const Read *r = &uses->data[i].read;
        if (r->is_tensor)
            continue;
        int g = pr->group[r->id];
        if (g < 0)
            continue;
        bool joins = pr->groups.data[g].phase == pr->phase[array] && fits(p, pr, g, array, uses);
        int after = joins ? g : g + 1;
        first = after > first ? after : first;
    }
    for (int g = first; g < pr->groups.len; g++)
        if (pr->groups.data[g].phase == pr->phase[array] && fits(p, pr, g, array, uses)) {
            add_to_group(p, pr, g, array, uses);
            return;
        }
    Group g = new_group(p, pr, array);
    vec_push(p->m->arena, &pr->groups, g);
    add_to_group(p, pr, pr->groups.len - 1, array, uses);
}

bool is_root(const Module *m, NodeId id)
{
    TensorId of;
    return root_kind(m, id, &of) != ROOT_NONE;
}

/* Few sums of values that lie in memory: as cheap to compute as to read. */
static bool cheap_sum(const Plan *p, NodeId id, int depth)
{
    const Node *n = at(p, id);
    Read r;
    if (depth == 0)
        return false;
    if (n->kind == N_CONST || n->kind == N_SIZE)
        return true;
    if (n->kind == N_LOAD)
        return true;
    if (n->kind == N_MAP && is_rounding(p->m, id))
        return cheap_sum(p, n->args[0], depth);
    if (plan_resolve(p, id, &r))
        return r.is_tensor || plan_reduces(p, r.id);
    return n->kind == N_MAP && (n->op == OP_ADD || n->op == OP_SUB) && cheap_sum(p, n->args[0], depth - 1) &&
           cheap_sum(p, n->args[1], depth - 1);
}

/* Is a value's text short, with all that would be printed in its place? A chain of values that each read the
 * one before twice would double in length with every link. */
static bool short_text(const Plan *p, const Program *pr, NodeId id, int *left)
{
    const Node *n = at(p, id);
    Read r;
    if (--*left < 0)
        return false;
    if (n->kind != N_MAP && plan_resolve(p, id, &r)) {
        bool in_place = !r.is_tensor && pr->phase[r.id] == PHASE_PARAM && !plan_reduces(p, r.id);
        return !in_place || short_text(p, pr, at(p, r.id)->args[0], left);
    }
    for (int i = 0; i < n->nargs; i++)
        if (!short_text(p, pr, n->args[i], left))
            return false;
    return true;
}

/* Has the value an operator in it that takes longer than a read of a cache? */
static bool has_function(const Plan *p, NodeId id)
{
    enum { SLOTS = 8 };
    const Node *n = at(p, id);
    if (n->kind != N_MAP)
        return false;
    for (int i = 0; i < n->nargs; i++)
        if (has_function(p, n->args[i]))
            return true;
    return op_table[n->op].cost >= SLOTS;
}

/* Param-only pointwise values are recomputed where they are used: cheaper than a kernel of their own, but on
 * the CPU, where a kernel is a call, and each step of each sequence would compute a function once more. So are
 * short sums around products (a gate's stacked pre-activations), of which each reader takes a slice. */
bool printed_inline(const Plan *p, const Program *pr, NodeId id)
{
    if (is_root(p->m, id) || p->rounded[id] || (p->kept && p->kept[id]))
        return false;
    if ((p->past && p->past[id]) || (p->unstored && p->unstored[id]) ||
        plan_rematerialises(p, pr, pr->phase[id], id))
        return true;
    bool operand = pr->in_products && pr->in_products[id];
    if (!p->schedule->on_chip && pr->dir == FORWARD && !plan_reduces(p, id) && !p->is_cat[id] && !operand &&
        cheap_sum(p, at(p, id)->args[0], 4))
        return true;
    int left = 64;
    return p->is_alias[id] || pr->in_place[id] ||
           (pr->phase[id] == PHASE_PARAM && !plan_reduces(p, id) && !operand &&
            short_text(p, pr, at(p, id)->args[0], &left) &&
            !(p->request->cpu && has_function(p, at(p, id)->args[0])));
}

/* Arrays that a product reads or writes keep rows of their own. */
static bool *product_operands(Plan *p, const Phasing *s)
{
    bool *in = plan_alloc(p, 1, p->n_nodes);
    for (NodeId id = 0; id < p->n_nodes; id++) {
        Gemm g;
        NodeId factor[2];
        if (!s->needed[id] || !contraction_of(p, id, s->g->phase[id] == PHASE_DURING, &g, factor))
            continue;
        in[id] = true;
        for (int i = 0; i < s->uses[id].len; i++)
            if (!s->uses[id].data[i].read.is_tensor)
                in[s->uses[id].data[i].read.id] = true;
    }
    return in;
}

/* The gradient of an input of which certain places are read: it may be that nobody asks for it, and then
 * its pieces lie nowhere. A walk by units has all elements of a unit anyway. */
static bool may_be_laid(const Plan *p, const Phasing *s, NodeId id)
{
    RootKind root = root_kind(p->m, id, &(TensorId){ 0 });
    bool argument = p->program[s->g->dir].node[id].home == HOME_ARG;
    return root == ROOT_NONE || (root == ROOT_DINPUT && argument && s->g->dir == BACKWARD &&
                                 !(p->schedule->per_unit && s->g->phase[id] == PHASE_DURING));
}

static bool read_elsewhere(const Phasing *s, NodeId piece, NodeId whole)
{
    for (NodeId id = 0; id < s->p->n_nodes; id++)
        for (int i = 0; s->needed[id] && id != whole && i < s->uses[id].len; i++)
            if (!s->uses[id].data[i].read.is_tensor && s->uses[id].data[i].read.id == piece)
                return true;
    return false;
}

void mark_cats(Plan *p, const Phasing *s)
{
    const bool *product = s->g->in_products = product_operands(p, s);
    for (NodeId id = 0; id < p->n_nodes; id++) {
        Piece pieces[32];
        bool root = is_root(p->m, id);
        bool added =
            p->schedule->adds_products && s->g->phase[id] == PHASE_DURING; /* its sums read it on chip */
        if (!s->needed[id] || added || p->is_alias[id] || !may_be_laid(p, s, id) || p->is_cat[id] ||
            (p->past && p->past[id]) || (p->kept && p->kept[id]))
            continue;
        bool rows = !p->schedule->on_chip || (root && s->g->phase[id] != PHASE_DURING);
        int n = cat_pieces(p->m, id, rows, pieces, 32);
        bool ok = n > 1 && !p->narrow[id];
        for (int i = 0; i < n; i++) {
            pieces[i].array = plan_named(p, pieces[i].array);
            for (int k = 0; k < i; k++)
                ok = ok && pieces[k].array != pieces[i].array;
        }
        for (int i = 0; i < n && root && ok; i++)
            ok = !read_elsewhere(s, pieces[i].array, id) &&
                 (!p->schedule->on_chip || s->g->phase[pieces[i].array] != PHASE_DURING);
        for (int i = 0; i < n && ok; i++)
            ok = !p->narrow[pieces[i].array] && !product[pieces[i].array] && !(p->past && p->past[pieces[i].array]) &&
                 !p->is_alias[pieces[i].array] && !is_root(p->m, pieces[i].array) && !p->is_cat[pieces[i].array] &&
                 s->needed[pieces[i].array] && p->program[s->g->dir].node[pieces[i].array].home == HOME_NONE;
        if (!ok) {
            /* Pieces that lie elsewhere: whoever reads the whole reads them where they are. */
            s->g->in_place[id] = n > 1 && !root && s->g->dir == BACKWARD && !p->rounded[id] && !product[id];
            continue;
        }
        p->is_cat[id] = true;
        for (int i = 0; i < n; i++) {
            Storage *st = &p->program[s->g->dir].node[pieces[i].array];
            st->home = HOME_WORKSPACE;
            st->slot = -2 - id;       /* the cat's buffer, set when that is made */
            st->pitch = array_elements(p->m, id);
            st->alias_offset = pieces[i].offset;
            st->lead = pieces[i].lead;
            st->row = elements_from(p->m, id, pieces[i].lead);
        }
    }
}

/* What backward computes again as a short sum of what lies in memory, for the steps alone: each of them reads a part of
 * it at most, so the whole is neither written nor read. */
void mark_short_sums(Plan *p, const Phasing *s)
{
    const bool *product = product_operands(p, s);
    bool *other = plan_alloc(p, 1, p->n_nodes);
    for (NodeId id = 0; id < p->n_nodes; id++)
        for (int i = 0; s->needed[id] && i < s->uses[id].len; i++)
            if (!s->uses[id].data[i].read.is_tensor &&
                (s->g->phase[id] != PHASE_DURING || plan_reduces(p, id) || s->uses[id].data[i].read.step))
                other[s->uses[id].data[i].read.id] = true;
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (s->g->dir == BACKWARD && !p->schedule->on_chip && s->needed[id] && !is_root(p->m, id) &&
            s->g->phase[id] == PHASE_BEFORE && !p->is_alias[id] && !p->is_cat[id] && !p->rounded[id] && !other[id] &&
            !product[id] && !plan_reduces(p, id) && cheap_sum(p, at(p, id)->args[0], 4))
            s->g->in_place[id] = true;
}

/* The copy of a state that products read is written along with the state itself. */
bool copies_state(const Plan *p, NodeId id)
{
    const Node *body = at(p, at(p, id)->args[0]);
    return p->rounded[id] && body->kind == N_LOAD && p->m->tensors.data[body->tensor].kind == T_STATE;
}

Uses uses_through(const Phasing *s, NodeId array)
{
    const Plan *p = s->p;
    Uses uses = { 0 };
    for (int i = 0; i < s->uses[array].len; i++)
        vec_push(p->m->arena, &uses, s->uses[array].data[i]);
    for (int i = 0; i < uses.len; i++) {
        NodeId r = uses.data[i].read.id;
        if (uses.data[i].read.is_tensor || s->g->group[r] >= 0 || !s->needed[r])
            continue;
        if (p->is_cat[r] || printed_inline(p, s->g, r))
            for (int j = 0; j < s->uses[r].len; j++) {
                Use u = s->uses[r].data[j];
                u.plain = false;
                vec_push(p->m->arena, &uses, u);
            }
    }
    return uses;
}

void into_group(Phasing *s, int group, NodeId array)
{
    Uses uses = uses_through(s, array);
    add_to_group(s->p, s->g, group, array, &uses);
}

bool room_for(const Phasing *s, int group, int other)
{
    const Group *from = &s->g->groups.data[other], *to = &s->g->groups.data[group];
    return from->reads.len * 2 + to->reads.len * 2 + from->pointers + to->pointers <= MAX_POINTERS;
}

/* A sum along the rows of what is pointwise, and of nothing else that its phase has yet to compute. */
static bool sums_rows_of(const Plan *p, const Phasing *s, NodeId sum, NodeId array)
{
    const Phase *phase = s->g->phase;
    const Node *r = at(p, sum), *body = at(p, r->args[0]), *a = at(p, array);
    Gemm g;
    NodeId factor[2];
    bool reads = false;
    if (!plan_reduces(p, sum) || r->naxes + 1 != a->naxes || body->nbound != 1 || sums_over_batch(p, sum) ||
        past_sums(p, sum) || contraction_of((Plan *)(uintptr_t)p, sum, false, &g, factor))
        return false;
    for (int i = 0; i < s->uses[sum].len; i++) {
        const Use *u = &s->uses[sum].data[i];
        if (u->read.is_tensor || phase[u->read.id] != phase[array])
            continue;
        if (u->read.id != array || !u->plain)
            return false;
        reads = true;
        for (int k = 0; k < a->naxes; k++) {
            IndexId which;
            if (!ix_is_index(u->read.map[k], &which) || which != (k < r->naxes ? r->axes[k] : body->bound[0]))
                return false;
        }
    }
    return reads;
}

/* What backward computes again stands in the kernel of what it is for. */
static void open_with_readers(Plan *p, const Phasing *s)
{
    for (NodeId id = p->n_nodes - 1; p->again && id >= 0; id--)
        for (int i = 0; s->g->dir == BACKWARD && s->needed[id] && p->opens_row[id] && i < s->uses[id].len;
             i++) {
            const Use *u = &s->uses[id].data[i];
            if (!u->read.is_tensor && u->plain && p->again[u->read.id] &&
                at(p, u->read.id)->naxes == at(p, id)->naxes)
                p->opens_row[u->read.id] = true;
        }
}

/* What is pointwise and summed along its rows is made by the kernel that sums it, where its elements are at hand. */
static void find_row_openers(Plan *p, const Phasing *s)
{
    const bool *product = product_operands(p, s);
    const Phase *phase = s->g->phase;
    p->opens_row = plan_alloc(p, 1, p->n_nodes);
    for (NodeId sum = 0; sum < p->n_nodes; sum++)
        for (int i = 0; s->needed[sum] && i < s->uses[sum].len; i++) {
            NodeId id = s->uses[sum].data[i].read.id;
            if (s->uses[sum].data[i].read.is_tensor || !s->needed[id] || phase[id] != phase[sum] ||
                (phase[id] != PHASE_BEFORE && phase[id] != PHASE_AFTER) || plan_reduces(p, id) || product[id] ||
                p->is_cat[id] || p->rounded[id] || is_root(p->m, id) || printed_inline(p, s->g, id))
                continue;
            p->opens_row[id] = p->opens_row[id] || sums_rows_of(p, s, sum, id);
        }
    open_with_readers(p, s);
}

static void place_with_uses(const Phasing *s, NodeId id, int first)
{
    Uses uses = uses_through(s, id);
    place_array(s->p, s->g, id, &uses, first);
}

/* Is it placed in this phase, and in this round? */
static bool is_placed(const Plan *p, const Phasing *s, const Program *pr, NodeId id, Phase phase, bool last)
{
    if (!s->needed[id] || pr->phase[id] != phase || printed_inline(p, pr, id) || p->is_cat[id] ||
        (pr->given && pr->given[id]))
        return false;
    RootKind root = root_kind(p->m, id, &(TensorId){ 0 });
    if (copies_state(p, id) || ((root == ROOT_INIT || root == ROOT_LAST) && pr->dir == FORWARD))
        return false; /* written along with the states */
    return !(phase == PHASE_DURING && p->schedule->on_chip) && (root == ROOT_DPARAM_INIT) == last;
}

static bool is_ready(const Phasing *s, NodeId id, const bool *waits)
{
    Uses uses = uses_through(s, id);
    for (int i = 0; i < uses.len; i++)
        if (!uses.data[i].read.is_tensor && waits[uses.data[i].read.id])
            return false;
    return true;
}

/* Of a phase what is placed, and in which order. */
typedef struct Order {
    Phase phase;
    bool last;            /* this round's */
    int first;            /* group that may hold it */
    bool products_first;
    const bool *late;     /* per node: placed behind all others; NULL: none is */
} Order;

/* In the order in which the values stand. False: what was placed is refused. */
static bool place_as_written(Plan *p, const Phasing *s, const Order *o, bool late)
{
    Program *pr = &p->program[s->g->dir];
    for (NodeId id = 0; id < p->n_nodes; id++) {
        if (!is_placed(p, s, pr, id, o->phase, o->last) || (o->late && o->late[id] != late))
            continue;
        place_with_uses(s, id, o->first);
        if (p->schedule->refuses_groups && p->schedule->refuses_groups(p, pr))
            return false; /* the rest would be placed for nothing */
    }
    return true;
}

/* As soon as what it reads is placed, a product is; all else comes behind. So products that do not wait for
 * one another are neighbours. */
static void place_products_first(Plan *p, const Phasing *s, const Order *o, bool late)
{
    Program *pr = &p->program[s->g->dir];
    bool *waits = plan_alloc(p, 1, p->n_nodes + 1), *product = plan_alloc(p, 1, p->n_nodes + 1), any = true;
    Gemm g;
    NodeId factor[2];
    for (NodeId id = 0; id < p->n_nodes; id++) {
        waits[id] = is_placed(p, s, pr, id, o->phase, o->last) && (!o->late || o->late[id] == late);
        product[id] = waits[id] && contraction_of(p, id, o->phase == PHASE_DURING, &g, factor);
    }
    while (any) {
        any = false;
        for (int kind = 0; kind < 2; kind++)
            for (NodeId id = 0; id < p->n_nodes; id++) {
                if (!waits[id] || product[id] != (kind == 0) || !is_ready(s, id, waits))
                    continue;
                waits[id] = false;
                any = true;
                place_with_uses(s, id, o->first);
            }
    }
}

static bool place_phase(Plan *p, const Phasing *s, const Order *o)
{
    for (int late = 0; late < (o->late ? 2 : 1); late++) {
        if (o->products_first)
            place_products_first(p, s, o, late);
        else if (!place_as_written(p, s, o, late))
            return false;
    }
    return true;
}

/* Of a step what no product of it waits for. NULL: nothing, or all. */
static const bool *find_late(Plan *p, const Phasing *s, const Order *o)
{
    const Program *pr = &p->program[s->g->dir];
    bool *late = plan_alloc(p, 1, p->n_nodes + 1), any = false, waited = false;
    Gemm g;
    NodeId factor[2];
    for (NodeId id = 0; id < p->n_nodes; id++)
        late[id] = is_placed(p, s, pr, id, o->phase, o->last);
    for (NodeId id = p->n_nodes - 1; id >= 0; id--) { /* arguments stand before what reads them */
        if (!is_placed(p, s, pr, id, o->phase, o->last))
            continue;
        if (late[id] && contraction_of(p, id, true, &g, factor))
            late[id] = false;
        any |= late[id];
        Uses uses = late[id] ? (Uses){ 0 } : uses_through(s, id);
        for (int i = 0; i < uses.len; i++)
            if (!uses.data[i].read.is_tensor && late[uses.data[i].read.id]) {
                late[uses.data[i].read.id] = false;
                waited = true;
            }
    }
    return any && waited ? late : NULL;
}

static void take_back(Plan *p, Program *pr, int groups)
{
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (pr->group[id] >= groups)
            pr->group[id] = -1;
    pr->groups.len = groups;
}

/* A step's values in the order in which they stand, or, where that makes fewer kernels, those that products
 * wait for first: what no product waits for may then join a kernel of behind them. */
static bool place_step(Plan *p, const Phasing *s, Order *o)
{
    Program *pr = &p->program[s->g->dir];
    const int before = pr->groups.len;
    if (!place_phase(p, s, o))
        return false;
    const int plain = pr->groups.len;
    const bool *late = p->schedule->refuses_groups || p->schedule->per_unit ? NULL : find_late(p, s, o);
    if (!late)
        return true;
    take_back(p, pr, before);
    o->late = late;
    place_phase(p, s, o);
    if (pr->groups.len >= plain) {
        take_back(p, pr, before);
        o->late = NULL;
        place_phase(p, s, o);
    }
    return true;
}

/* The state that a side of a product reads as the step before has left it; -1: it reads something else. */
static TensorId state_of_side(const Plan *p, const Read *r)
{
    TensorId of = r->is_tensor ? r->id : -1;
    if (!r->is_tensor && copies_state(p, r->id))
        of = at(p, at(p, r->id)->args[0])->tensor;
    return of >= 0 && p->m->tensors.data[of].kind == T_STATE ? of : -1;
}

/* As they are written, would a step make the next value of a state in front of a product that reads it as it was? Then
 * no kernel walks the steps: what blocks have posted of that state is of the step before
 * (resident_several.c). */
static bool state_made_before_product(Plan *p, const Phasing *s)
{
    const Program *pr = &p->program[s->g->dir];
    Gemm g = { 0 };
    NodeId factor[2];
    for (NodeId id = 0; s->g->dir == FORWARD && id < p->n_nodes; id++) {
        if (!is_placed(p, s, pr, id, PHASE_DURING, false) || !contraction_of(p, id, true, &g, factor))
            continue;
        const Read *side[] = { &g.a.read, &g.b.read };
        for (int i = 0; i < 2; i++) {
            TensorId of = state_of_side(p, side[i]);
            NodeId next = of < 0 ? -1 : plan_named(p, p->m->roots.data[of].next);
            if (next >= 0 && next < id && is_placed(p, s, pr, next, PHASE_DURING, false))
                return true;
        }
    }
    return false;
}

void make_groups(Plan *p, const Phasing *s)
{
    Program *pr = &p->program[s->g->dir];
    find_row_openers(p, s);
    static const Phase order[] = { PHASE_PARAM, PHASE_BEFORE, PHASE_DURING, PHASE_AFTER };
    const int phases = 3 + s->walks;
    pr->group = plan_alloc(p, sizeof *pr->group, p->n_nodes);
    for (NodeId id = 0; id <= p->n_nodes; id++)
        pr->group[id] = -1;
    /* What params get through initial values is added to their gradients: behind all that gives those. */
    for (int last = 0; last < 2; last++) {
        int first = last ? pr->groups.len : 0;
        for (int k = 0; k < phases; k++) {
            Phase phase = k < 4 ? order[k] : (Phase)((int)PHASE_BETWEEN + k - 4);
            bool step = phase == PHASE_DURING;
            Order o = { .phase = phase,
                        .last = last,
                        .first = first,
                        .products_first =
                            p->calls == CALLS_SHORT || (step && state_made_before_product(p, s)) };
            if (!(step ? place_step(p, s, &o) : place_phase(p, s, &o)))
                return;
        }
    }
}
