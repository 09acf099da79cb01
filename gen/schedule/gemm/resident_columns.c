/* resident_columns.c: which steps of schedule gemm blocks can walk that have some units of one sequence
 * each, where a sequence has many columns of the product (slots that share their weights). In comes a
 * planned program; out goes, where the steps allow it, a ResidentWalk: the param of every step's product
 * stays on the chip (runtime/device/cell_device_columns.cuh), and the kernel of what is pointwise and of
 * the sums over columns (plan_apart.c) becomes part of the walk. So do sums of each column over sequences,
 * steps and units whose terms it has at hand.
 * Guaranteed: what a block reads of another is the product's operand. The launch plan keeps the loop of
 * kernels beside it. */
#include "base/mutate.h"
#include "ir/marks.h"
#include "resident_forms.h"
#include "resident.h"
#include "plan/plan_pass.h"

/* The values that are asked about, which axes a column and a unit are there, and the values that were looked
 * into. */
typedef struct Own {
    const Plan *p;
    const Program *pr;
    const ResidentWalk *w;
    IndexId column, unit;
    Marks *arrays;
} Own;

static bool is_own(const Own *o, const Read *r)
{
    IndexId column, unit;
    return r->nmap == 2 && ix_is_index(r->map[0], &column) && ix_is_index(r->map[1], &unit) &&
           column == o->column && unit == o->unit;
}

/* Does a thread find here what is read, at its own element, or is it made by nothing within the walk? */
static bool finds(void *of, const Read *r)
{
    const Own *o = of;
    const Module *m = o->p->m;
    if (r->step)
        return false;
    if (r->is_tensor)
        switch (m->tensors.data[r->id].kind) {
        case T_STATE: return o->pr->dir == BACKWARD;
        case T_DNEXT:
            return m->roots.data[m->tensors.data[r->id].of].dprev ==
                       o->w->products[0].group->arrays.data[0] &&
                   is_own(o, r);
        case T_DINIT: return false;
        default: return true;
        }
    if (o->pr->phase[r->id] != PHASE_DURING)
        return true;
    if (r->id == o->w->products[0].group->arrays.data[0])
        return is_own(o, r);
    if (o->pr->group[r->id] >= 0)
        return &o->pr->groups.data[o->pr->group[r->id]] == columns_group(o->pr);
    if (o->pr->node[r->id].home != HOME_NONE || !is_own(o, r))
        return false;
    if (!marks_first(o->arrays, r->id))
        return true;
    Own inside = *o;
    inside.column = at(o->p, r->id)->axes[0];
    inside.unit = at(o->p, r->id)->axes[1];
    return every_read(o->p, at(o->p, r->id)->args[0], finds, &inside);
}

/* Elements, sums of them over the columns, and what is left of a unit. */
static bool takes_group(const Plan *p, const Program *pr, const ResidentWalk *w)
{
    const Group *g = columns_group(pr);
    if (g->naxes != 1 || g->along != 1 || !g->batched || (g->need.len && !g->always) || g->past)
        return false;
    for (int i = 0; i < g->arrays.len; i++) {
        const Node *a = at(p, g->arrays.data[i]), *r = at(p, a->args[0]);
        Own own = { p, pr, w, -1, a->axes[a->naxes - 1], marks_begin(p->m) };
        NodeId value = a->args[0];
        if (a->naxes == 2)
            own.column = a->axes[0];
        if (plan_reduces(p, g->arrays.data[i])) {
            own.column = r->bound[0];
            value = r->args[0];
        }
        bool takes = every_read(p, value, finds, &own);
        marks_end(own.arrays);
        if (!takes)
            return false;
    }
    return true;
}

/* The weight on one side, all columns of all sequences on the other, both in the storage type. */
static bool takes_product(const Plan *p, const Program *pr, ResidentWalk *w)
{
    Module *m = p->m;
    ResidentProduct *x = w->products;
    const Gemm *g = &x->group->gemm;
    bool left = resident_is_weight(p, pr, &g->a.read);
    const GemmSide *weight = left ? &g->a : &g->b, *vector = left ? &g->b : &g->a;
    if ((g->batch && !poly_is_one(g->batch)) || !resident_is_weight(p, pr, &weight->read) ||
        vector->read.is_tensor)
        return false;
    x->units = x->k_units = w->units;
    x->inner = x->outer = x->split = 1;
    x->weight = weight->read;
    x->weight_offset = weight->offset;
    x->row_stride = left ? weight->row : weight->col;
    x->k_stride = left ? weight->col : weight->row;
    x->operand = vector->read.id;
    const Poly *rows = left ? g->m : g->n, *columns = left ? g->n : g->m;
    const Poly *apart = left ? vector->col : vector->row, *along = left ? vector->row : vector->col;
    const Storage *st = plan_storage(p, pr, &vector->read);
    return rows == w->units && g->k == w->units && columns == poly_mul(m, w->columns, poly_dim(m, ATOM_B)) &&
           apart == w->units && poly_is_one(along) && poly_is_one(left ? g->c.row : g->c.col) &&
           (left ? g->c.col : g->c.row) == w->units && g->c.offset->nterms == 0 &&
           vector->offset->nterms == 0 && st->batched && st->timed && st->dtype == p->dtype && !st->pitch &&
           !st->alias_offset && (st->home == HOME_WORKSPACE || st->home == HOME_RESERVE);
}

/* The cell's one state, of columns and units; -1: it has another. */
TensorId columns_state(const Plan *p, const ResidentWalk *w)
{
    TensorId found = -1;
    for (TensorId t = 0; t < p->m->tensors.len; t++) {
        const Tensor *x = &p->m->tensors.data[t];
        if (x->kind != T_STATE)
            continue;
        if (found >= 0 || x->rank != 2 || x->axes[0] != w->columns || x->axes[1] != w->units || x->complex)
            return -1;
        found = t;
    }
    return found;
}

/* Is the operand what the walk makes, a copy of the state or, in backward, an array of the group, and does
 * nothing else read the product? */
static bool stays_inside(const Plan *p, const Program *pr, const ResidentWalk *w)
{
    NodeId product = w->products[0].group->arrays.data[0];
    const Storage *st = &pr->node[product];
    TensorId of;
    Read r;
    if (pr->dir == BACKWARD)
        return root_kind(p->m, product, &of) == ROOT_DPREV && pr->group[w->products[0].operand] >= 0 &&
               &pr->groups.data[pr->group[w->products[0].operand]] == columns_group(pr) &&
               at(p, w->products[0].operand)->naxes == 2 &&
               pr->node[w->products[0].operand].home != HOME_NONE;
    const Buffer *kept = st->home == HOME_WORKSPACE ? &p->buffers.data[st->slot] : NULL;
    return kept && kept->ring == 1 && !kept->reserve &&
           plan_resolve(p, at(p, w->products[0].operand)->args[0], &r) && r.is_tensor &&
           r.id == columns_state(p, w) &&
           pr->before[columns_state(p, w)] == pr->node[w->products[0].operand].slot;
}

/* Some sizes at which a block holds the weights, its threads the columns, and rows are whole vectors of 16
 * bytes. */
static bool may_fit(const ResidentWalk *w)
{
    return !(w->columns->is_const && w->columns->value > COLUMNS_MOST) &&
           !(w->units->is_const &&
             (w->units->value > COLUMNS_UNITS * COLUMNS_PIECES || w->units->value % COLUMNS_VECTOR));
}

/* Of a step that has a sum along an axis it is the first group of such sums. */
Group *columns_group(const Program *pr)
{
    for (int i = 0; i < pr->groups.len; i++) {
        Group *g = &pr->groups.data[i];
        if (g->phase == PHASE_DURING && g->kind == G_ROW && g->along)
            return g;
    }
    return NULL;
}

/* The columns that the group's elements have; NULL: it has none of both axes. */
static const Poly *columns_of(const Plan *p, const Group *g)
{
    const Poly *columns = NULL;
    for (int i = 0; i < g->arrays.len; i++) {
        const Node *a = at(p, g->arrays.data[i]);
        if (a->naxes == 2)
            columns = p->m->indices.data[a->axes[0]].extent;
    }
    return columns;
}

/* Of what is read, does a thread ask for a number for each of its elements before the product? */
static bool reads_elements(const Plan *p, const Program *pr, const ResidentWalk *w, int key)
{
    if (key < 0) {
        const Tensor *x = &p->m->tensors.data[~key];
        return x->rank == 2 && x->axes[0] == w->columns && x->axes[1] == w->units && x->kind != T_DNEXT &&
               (x->kind != T_STATE || pr->dir == BACKWARD);
    }
    const Node *a = at(p, key);
    bool made = key == w->products[0].group->arrays.data[0] ||
                (pr->group[key] >= 0 && &pr->groups.data[pr->group[key]] == columns_group(pr));
    return !made && a->naxes == 2 && extent_of(p, a->axes[0]) == w->columns &&
           extent_of(p, a->axes[1]) == w->units;
}

static int count_elements_read(const Plan *p, const Program *pr, const ResidentWalk *w)
{
    int n = 0;
    for (int i = 0; i < columns_group(pr)->reads.len; i++)
        n += reads_elements(p, pr, w, columns_group(pr)->reads.data[i]);
    return n;
}

/* Each takes 32 registers, of which those of the weights and the product leave few. */
static bool has_registers(Plan *p, const Program *pr, const ResidentWalk *w, const Reason **why)
{
    int most = pr->dir == FORWARD ? COLUMNS_READS_FORWARD : COLUMNS_READS_BACKWARD,
        n = count_elements_read(p, pr, w);
    if (n > most)
        *why = reason(p->m, "each reads %d values of columns and units, and threads have registers for %d", n,
                      most);
    return n <= most;
}

/* Is it a product of weights with several vectors of each sequence? */
static bool has_columns(const Plan *p, const Program *pr, const Group *g)
{
    bool left = resident_is_weight(p, pr, &g->gemm.a.read);
    return (left || resident_is_weight(p, pr, &g->gemm.b.read)) &&
           (left ? g->gemm.n : g->gemm.m) != poly_dim(p->m, ATOM_B);
}

static const Group *product_of_columns(const Plan *p, const Program *pr)
{
    for (int i = 0; i < pr->groups.len; i++) {
        const Group *g = &pr->groups.data[i];
        if (g->phase == PHASE_DURING && g->kind == G_GEMM && has_columns(p, pr, g))
            return g;
    }
    return NULL;
}

/* NULL, or why the groups of a step are not one product and one kernel of its columns and of sums over
 * them. */
static const Reason *take_groups(Plan *p, Program *pr, ResidentWalk *w, const Node *sum)
{
    Group *group = columns_group(pr);
    for (int i = 0; i < pr->groups.len; i++) {
        Group *g = &pr->groups.data[i];
        if (g->phase != PHASE_DURING || g == group || resident_take_product(p, w, g))
            continue;
        if (g->kind == G_GEMM)
            return reason_of(p->m, sum,
                             "its product has several columns for each sequence, and a step has others");
        return reason_of(
            p->m, sum,
            "its product has several columns for each sequence, and %s is computed by another kernel "
            "than what these become",
            resident_value_name(p, g->arrays.data[0]));
    }
    const Poly *batch = w->nproducts ? w->products[0].group->gemm.batch : NULL;
    if (batch && !poly_is_one(batch))
        return reason_of(p->m, sum,
                         "its product has several columns for each sequence, and is one for each, as its "
                         "result is saved or its columns lie apart");
    if (group && group->naxes == 1 && w->nproducts)
        return NULL;
    return reason_of(p->m, sum,
                     "its product has several columns for each sequence, and no kernel has these with "
                     "sums over them");
}

/* NULL, and what the step lacks, where it has a product of columns. */
static ResidentWalk *find(Plan *p, Program *pr, const Reason **why)
{
    const Group *product = product_of_columns(p, pr);
    ResidentWalk *w = resident_new(p, SHARE_COLUMNS, ELEMENTS_OF_SUMS, EXCHANGE_MEMORY);
    if (!product)
        return NULL;
    const Node *sum = at(p, at(p, product->arrays.data[0])->args[0]);
    if (p->dtype != DT_BF16 && p->dtype != DT_F16)
        *why = reason_of(p->m, sum,
                         "its product has several columns for each sequence, which one kernel takes as "
                         "bf16 or f16 only");
    else
        *why = take_groups(p, pr, w, sum);
    if (*why)
        return NULL;
    w->weights = WEIGHTS_BOTH;
    w->naxes = 2;
    w->units = columns_group(pr)->axes[0];
    w->columns = columns_of(p, columns_group(pr));
    w->own = COLUMNS_UNITS;
    w->threads = COLUMNS_THREADS;
    if (w->columns && !may_fit(w))
        *why = reason_of(p->m, sum,
                         "a walk of columns takes %d of each sequence and %d units at most, and these "
                         "by %d",
                         COLUMNS_MOST, COLUMNS_UNITS * COLUMNS_PIECES, COLUMNS_VECTOR);
    else if (!w->columns || !takes_product(p, pr, w))
        *why = reason_of(p->m, sum,
                         "its product of columns is not of a square param, as it is stored, with all "
                         "columns and units of a state");
    else if (columns_state(p, w) < 0)
        *why = reason_of(p->m, sum,
                         "its product has several columns for each sequence, and they are not those of "
                         "its one state");
    else if (!takes_group(p, pr, w) || !stays_inside(p, pr, w))
        *why = reason_of(p->m, sum,
                         "of a product of columns something is read at another element, or by others "
                         "than what it becomes");
    return *why || !has_registers(p, pr, w, why) ? NULL : w;
}

/* ---- sums over sequences, steps and units ---- */

/* Has a thread of the walk this value at each of its elements, whatever a sum makes of it? */
static bool at_hand(void *of, const Read *r)
{
    const Own *o = of;
    if (r->step || (r->is_tensor && o->p->m->tensors.data[r->id].kind == T_DNEXT))
        return false;
    if (r->is_tensor || o->pr->phase[r->id] != PHASE_DURING)
        return group_reads(columns_group(o->pr), r->is_tensor ? ~r->id : r->id);
    return o->pr->group[r->id] >= 0 && &o->pr->groups.data[o->pr->group[r->id]] == columns_group(o->pr) &&
           is_own(o, r) && !plan_reduces(o->p, r->id);
}

NodeId columns_term(const Plan *p, NodeId sum)
{
    const Node *a = at(p, sum), *r = at(p, a->args[0]);
    Read read;
    IndexId which;
    if (a->naxes != 1 || !plan_reduces(p, sum) || r->reduce != R_SUM || r->nbound != 2 ||
        r->bound[0] >= IX_FIRST || r->bound[1] >= IX_FIRST || !plan_resolve(p, r->args[0], &read) ||
        read.is_tensor || read.step || read.nmap != 1)
        return -1;
    return ix_is_index(read.map[0], &which) && which == a->axes[0] ? read.id : -1;
}

/* Is it a value of each column, the sum over its units of what a thread has in registers, that nothing
 * reads but `sums`? */
static bool sums_units(const Plan *p, const Program *pr, const ResidentWalk *w, NodeId id, const Group *sums)
{
    const Node *a = at(p, id), *r = at(p, a->args[0]);
    TensorId of;
    if (a->naxes != 1 || extent_of(p, a->axes[0]) != w->columns || !plan_reduces(p, id) ||
        r->reduce != R_SUM || r->nbound != 1 || extent_of(p, r->bound[0]) != w->units ||
        pr->node[id].home != HOME_WORKSPACE || root_kind(p->m, id, &of) != ROOT_NONE)
        return false;
    for (int i = 0; i < pr->groups.len; i++)
        if (&pr->groups.data[i] != sums && group_reads(&pr->groups.data[i], id))
            return false;
    Own own = { p, pr, w, a->axes[0], r->bound[0], NULL };
    return every_read(p, r->args[0], at_hand, &own);
}

/* The kernel of the terms that these sums add up, where the walk can do the work of both; -1: it cannot. */
static int terms_of(const Plan *p, const Program *pr, const ResidentWalk *w, const Group *sums)
{
    int row = -1;
    if (sums->kind != G_COLUMN || sums->by_rows || sums->by_steps || sums->phase != PHASE_AFTER)
        return -1;
    for (int i = 0; i < sums->arrays.len; i++) {
        NodeId term = columns_term(p, sums->arrays.data[i]);
        int group = term >= 0 ? pr->group[term] : -1;
        if (group < 0 || (row >= 0 && group != row))
            return -1;
        row = group;
    }
    const Group *g = row >= 0 ? &pr->groups.data[row] : NULL;
    if (!g || g->kind != G_ROW || g->phase == PHASE_DURING || g->past || g->sums || g->along || !g->batched ||
        !g->timed)
        return -1;
    for (int i = 0; i < g->arrays.len; i++)
        if (!sums_units(p, pr, w, g->arrays.data[i], sums))
            return -1;
    return row;
}

/* Sums of columns over sequences, steps and units: each block of the walk leaves those of its own. The
 * kernels that would read all of it again stay for calls that are not walked, which is known when the walk
 * has begun. */
static void take_sums(Plan *p, Program *pr, ResidentWalk *w)
{
    for (int i = 0; i < pr->groups.len; i++) {
        Group *sums = &pr->groups.data[i];
        int row = terms_of(p, pr, w, sums);
        if (row < 0)
            continue;
        Group *terms = &pr->groups.data[row];
        w->sums = true;
        sums->by_steps = 1 + (int)(columns_group(pr) - pr->groups.data);
        p->buffers.data[sums->partial].walk_rows = columns_grid(p, w);
        terms->unless_walked = true;
        terms->phase = PHASE_AFTER;
        for (int k = 0; k < terms->arrays.len; k++)
            pr->phase[terms->arrays.data[k]] = PHASE_AFTER;
    }
}

static void add_walk(Plan *p, Program *pr, ResidentWalk *w)
{
    Module *m = p->m;
    const Poly *batch = poly_dim(m, ATOM_B), *rows = poly_add(m, w->units, poly_const(m, COLUMNS_UNITS - 1));
    w = resident_copy(p, pr, w, "columns");
    w->posts = poly_mul(m, batch, poly_const(m, COLUMNS_PIECES * COLUMNS_POST));
    w->posts_buffer = add_buffer(p, intern_f(m->c, "posts %d", pr->dir), DT_I32, w->posts, false, true);
    w->exchange_buffer =
        add_buffer(p, intern_f(m->c, "exchange %d", pr->dir), p->dtype,
                   poly_mul(m, poly_mul(m, batch, rows), poly_const(m, 2 * COLUMNS_MOST)), false, true);
    resident_add(p, pr, w);
    buf_f(&p->reasons,
          "one kernel walks the %s steps where the device holds its blocks (sm_90): %d units each of one "
          "sequence, whose %d columns at most share their weights\n",
          resident_way(pr), w->own, COLUMNS_MOST);
}

void resident_columns(Plan *p, const Reason *why[2])
{
    for (int d = 0; d < 2; d++) {
        Program *pr = &p->program[d];
        const Reason *lacks = NULL;
        ResidentWalk *w = find(p, pr, &lacks);
        why[d] = lacks ? lacks : why[d];
        if (!w)
            continue;
        if (d == BACKWARD)
            take_sums(p, pr, w);
        add_walk(p, pr, w);
    }
}
