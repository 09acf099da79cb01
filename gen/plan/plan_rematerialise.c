/* plan_rematerialise.c: values that are rematerialised, that is computed once more instead of stored. In come
 * the phases of both directions; out goes, for each value, whether it is made where it is read, or read from
 * a table of constants, in no memory, in both directions (find_unstored), and which of forward's values are
 * made once more behind backward's walk, so that forward need not save them (find_rematerialised), or in
 * backward of a cell without states, on a CPU (find_computed_again). A value of
 * the first kind is pointwise and has more elements than each value of a sequence that it is made of, such as
 * `w[i,j] * sigmoid(a[i,j] * (u[j] - m[i,j]))`: it is stored where that is cheaper than to make it for each
 * reader, by the costs below. It is guaranteed that all that is needed to make such a value is in memory
 * wherever it is read. */
#include <math.h>

#include "emit/emit.h"
#include "ir/constant.h"
#include "ir/marks.h"
#include "ir/ops.h"
#include "plan_pass.h"

/* ---- values that lie nowhere ---- */

/* Costs of an element, in issue slots of a multiprocessor as operators have them (OpRow.cost). A GPU issues
 * about eight of them while memory moves a byte (H100: 132 multiprocessors of 128 lanes at 1.7 GHz beside
 * 3.35 TB/s). An operand of fewer elements, or a param, is read by many sequences or rows one behind
 * another, from caches. MOST_TABLE: bytes of a table of constants. MOST_TEXT: nodes of a value, with those
 * of values in it that lie nowhere either. GROWTH: so many times as many elements as what it is made of. */
enum { SLOTS_MEMORY = 8, SLOTS_CACHED = 2, MOST_TABLE = 1 << 16, MOST_TEXT = 48, GROWTH = 16 };

typedef struct Made {
    Plan *p;
    const Phasing *of[2];
    struct {
        Vec(NodeId) in;
    } * readers; /* per node: the arrays that read it, forward's and then backward's */
    bool *barred; /* per node: a reader needs it in memory */
} Made;

static bool varies_with_rows(const Plan *p, const Read *r)
{
    if (!r->is_tensor)
        return rows_dep(p, r->id) != 0;
    return p->m->tensors.data[r->id].kind != T_PARAM;
}

/* What lies in memory wherever it may be read: not what is carried, or stands before the call. */
static bool lies_everywhere(const Plan *p, const Read *r)
{
    TensorId of;
    if (r->step)
        return false;
    if (!r->is_tensor)
        return root_kind(p->m, r->id, &of) != ROOT_DPREV && !(p->past && p->past[r->id]);
    TensorKind k = p->m->tensors.data[r->id].kind;
    return k == T_INPUT || k == T_PARAM || k == T_STATE || k == T_DOUT;
}

static bool reads_index(const Read *r, IndexId i)
{
    for (int k = 0; k < r->nmap; k++)
        if (ix_uses(r->map[k], i))
            return true;
    return false;
}

/* Has the array so many places for each that it reads there? */
static bool grows(const Plan *p, NodeId array, const Read *r)
{
    const Node *a = at(p, array);
    int64_t times = 1;
    for (int i = 0; i < a->naxes; i++) {
        const Poly *n = extent_of(p, a->axes[i]);
        if (!reads_index(r, a->axes[i]))
            times = n->is_const && n->value < GROWTH && times < GROWTH ? times * n->value : GROWTH;
    }
    return times >= GROWTH;
}

/* Has the value a reduction in it, or more than `left` nodes? */
static bool has_reduction(const Plan *p, NodeId id, int *left)
{
    const Node *n = at(p, id);
    Read r;
    if (--*left < 0 || n->kind == N_REDUCE)
        return true;
    if (n->kind != N_MAP && plan_resolve(p, id, &r) && !r.is_tensor && p->unstored && p->unstored[r.id])
        return has_reduction(p, at(p, r.id)->args[0], left);
    for (int i = 0; n->kind == N_MAP && i < n->nargs; i++)
        if (has_reduction(p, n->args[i], left))
            return true;
    return false;
}

bool grows_from_operands(const Plan *p, const Read *of)
{
    NodeId array = of->id;
    int left = MOST_TEXT;
    bool rows = false;
    const NodeId value = of->is_tensor ? -1 : at(p, array)->args[0];
    if (value < 0 || at(p, value)->kind != N_MAP || has_reduction(p, value, &left))
        return false;
    Uses uses = plan_uses(p, array);
    for (int i = 0; i < uses.len; i++) {
        const Read *r = &uses.data[i].read;
        bool varies = varies_with_rows(p, r);
        rows |= varies;
        if (!lies_everywhere(p, r) || (varies && !grows(p, array, r)))
            return false;
    }
    return rows;
}

static void note_readers(Made *x, Direction d)
{
    Plan *p = x->p;
    const Phasing *s = x->of[d];
    for (NodeId id = 0; id < p->n_nodes; id++) {
        Gemm g;
        NodeId factor[2];
        Uses replayed = { 0 };
        bool walks = s->g->phase[id] == PHASE_DURING && (p->schedule->on_chip || p->schedule->per_unit);
        if (s->replayed[id])
            replayed = plan_uses(p, id);
        for (int i = 0; i < replayed.len; i++)
            if (!replayed.data[i].read.is_tensor)
                x->barred[replayed.data[i].read.id] = true;
        if (!s->needed[id])
            continue;
        bool needs = walks || p->rounded[id] || past_sums(p, id) ||
                     contraction_of(p, id, s->g->phase[id] == PHASE_DURING, &g, factor);
        for (int i = 0; i < s->uses[id].len; i++) {
            const Read *r = &s->uses[id].data[i].read;
            if (r->is_tensor)
                continue;
            x->barred[r->id] |= needs || r->step;
            vec_push(p->m->arena, &x->readers[r->id].in, id);
        }
    }
}

/* Does the reader have what is read at hand, or read it itself? */
static bool has_read(const Uses *uses, const Read *r)
{
    for (int i = 0; i < uses->len; i++)
        if (uses->data[i].read.is_tensor == r->is_tensor && uses->data[i].read.id == r->id)
            return true;
    return false;
}

/* Operators of an expression down to what it reads, each node once. */
static int operators(const Plan *p, NodeId id, Marks *seen)
{
    const Node *n = at(p, id);
    Read r;
    if (!marks_first(seen, id))
        return 0;
    if (plan_resolve(p, id, &r))
        return !r.is_tensor && p->unstored[r.id] && !p->table[r.id] ? operators(p, at(p, r.id)->args[0], seen)
                                                                    : 0;
    int slots = n->kind == N_MAP ? op_table[n->op].cost : 0;
    for (int i = 0; i < n->nargs; i++)
        slots += operators(p, n->args[i], seen);
    return slots;
}

/* To make an element: its operators, and reads that the reader (-1: a kernel of its own) does not do
 * itself. */
static int slots_to_make(const Plan *p, NodeId array, NodeId reader)
{
    Marks *seen = marks_begin(p->m);
    int slots = operators(p, at(p, array)->args[0], seen);
    marks_end(seen);
    Uses uses = plan_uses(p, array), own = { 0 };
    if (reader >= 0)
        own = plan_uses(p, reader);
    for (int i = 0; i < uses.len; i++)
        if (!has_read(&own, &uses.data[i].read))
            slots += SLOTS_CACHED * dtype_bytes(type_of_read(p, &uses.data[i].read));
    return slots;
}

static bool same_range(const Plan *p, IndexId a, IndexId b)
{
    return a == b || (a >= IX_FIRST && b >= IX_FIRST && extent_of(p, a) == extent_of(p, b));
}

/* Would one kernel do both: sums over the same, or what is pointwise, with the same axes? */
static bool share_kernel(const Plan *p, NodeId a, NodeId b)
{
    const Node *x = at(p, a), *y = at(p, b), *rx = at(p, x->args[0]), *ry = at(p, y->args[0]);
    if (x->naxes != y->naxes || plan_reduces(p, a) != plan_reduces(p, b))
        return false;
    for (int i = 0; i < x->naxes; i++)
        if (extent_of(p, x->axes[i]) != extent_of(p, y->axes[i]))
            return false;
    if (!plan_reduces(p, a))
        return true;
    if (rx->nbound != ry->nbound)
        return false;
    for (int i = 0; i < rx->nbound; i++)
        if (!same_range(p, rx->bound[i], ry->bound[i]))
            return false;
    return true;
}

/* The costs of an element: made for each kernel that reads it, or made once, stored and read by each. */
static UnstoredCost cost_of(const Made *x, NodeId id)
{
    const Plan *p = x->p;
    int kernels = 0, bytes = dtype_bytes(p->compute);
    UnstoredCost c = { 0, slots_to_make(p, id, -1) + SLOTS_MEMORY * bytes };
    for (int i = 0; i < x->readers[id].in.len; i++) {
        NodeId reader = x->readers[id].in.data[i];
        bool shared = false;
        for (int k = 0; k < i && !shared; k++)
            shared = share_kernel(p, reader, x->readers[id].in.data[k]);
        if (shared)
            continue;
        c.made += slots_to_make(p, id, reader);
        kernels++;
    }
    c.stored += kernels * SLOTS_MEMORY * bytes;
    return c;
}

static bool in_phases(const Made *x, NodeId id)
{
    bool any = false;
    for (int d = 0; d < 2; d++) {
        const Phasing *s = x->of[d];
        bool walks = x->p->schedule->on_chip || x->p->schedule->per_unit;
        if (!s->needed[id])
            continue;
        if ((walks && s->g->phase[id] == PHASE_DURING) || s->g->phase[id] == PHASE_PARAM || s->replayed[id] ||
            (s->g->taken && s->g->taken[id]))
            return false;
        any = true;
    }
    return any;
}

/* The elements of what depends on constants only, where they are not cheaper to compute than to read. */
static const double *table_of(const Made *x, NodeId id)
{
    const Plan *p = x->p;
    int64_t count;
    const int64_t most = MOST_TABLE / dtype_bytes(p->compute);
    if (at(p, id)->dep || at(p, id)->type != TY_REAL || at(p, id)->naxes == 0)
        return NULL;
    Marks *seen = marks_begin(p->m);
    int slots = operators(p, at(p, id)->args[0], seen);
    marks_end(seen);
    if (!plan_reduces(p, id) && slots <= SLOTS_CACHED * dtype_bytes(p->compute))
        return NULL;
    const double *v = constant_elements(p->m, id, &count);
    for (int64_t i = 0; v && p->compute != DT_F64 && i < count; i++)
        if (!isfinite((float)v[i]))
            return NULL; /* no literal is infinite */
    return v && count <= most ? v : NULL;
}

/* Names, copies, what the call gets, and what is made or kept by rules of its own. */
static bool lies_for_itself(const Plan *p, NodeId id)
{
    return p->is_alias[id] || p->rounded[id] || p->narrow[id] || (p->past && p->past[id]) ||
           (p->kept && p->kept[id]) || is_root(p->m, id);
}

bool find_unstored(Plan *p, const Phasing *f, const Phasing *b)
{
    Made x = { .p = p, .of = { f, b }, .barred = plan_alloc(p, 1, p->n_nodes) };
    bool any = false;
    x.readers = plan_alloc(p, sizeof *x.readers, p->n_nodes);
    p->unstored = plan_alloc(p, 1, p->n_nodes);
    p->table = plan_alloc(p, sizeof *p->table, p->n_nodes);
    p->table_read = plan_alloc(p, 1, p->n_nodes);
    p->unstored_cost = plan_alloc(p, sizeof *p->unstored_cost, p->n_nodes);
    for (int d = 0; d < 2; d++)
        note_readers(&x, d);
    for (NodeId id = 0; id < p->n_nodes; id++) {
        if (at(p, id)->kind != N_ARRAY || x.barred[id] || x.readers[id].in.len == 0 || lies_for_itself(p, id))
            continue;
        if ((p->table[id] = table_of(&x, id))) {
            any = p->unstored[id] = true;
            continue;
        }
        if (!in_phases(&x, id))
            continue;
        if (!grows_from_operands(p, &(Read){ .id = id }))
            continue;
        UnstoredCost c = cost_of(&x, id);
        if (c.made > c.stored)
            continue;
        any = p->unstored[id] = true;
        p->unstored_cost[id] = c;
    }
    return any;
}

/* ---- values that backward makes once more ---- */

/* Who reads a value or a tensor in backward: the use, and the next one in its list. */
typedef struct Reader {
    NodeId id;
    const Use *use;
    int next;
} Reader;
typedef struct Readers {
    Vec(Reader) all;
    int *first; /* per node, then per tensor: 1 + the first of its list; 0: it is not
                                   * read */
    bool *replays; /* per array: what is only replayed reads it */
} Readers;

static int reader_key(const Plan *p, const Read *r)
{
    return r->is_tensor ? p->n_nodes + r->id : r->id;
}

static Readers find_readers(const Phasing *b)
{
    const Plan *p = b->p;
    Readers r = { .first = plan_alloc(p, sizeof *r.first, p->n_nodes + p->m->tensors.len),
                  .replays = plan_alloc(p, 1, p->n_nodes) };
    for (NodeId id = 0; id < p->n_nodes; id++) {
        const Uses *uses = &b->uses[id];
        for (int i = 0; b->needed[id] && i < uses->len; i++) {
            const Use *u = &uses->data[i];
            int *first = &r.first[reader_key(p, &u->read)];
            vec_push(p->m->arena, &r.all, ((Reader){ id, u, *first }));
            *first = r.all.len;
        }
        Uses replayed = { 0 };
        if (b->replayed[id] && !b->needed[id])
            replayed = plan_uses(p, id);
        for (int i = 0; i < replayed.len; i++)
            if (!replayed.data[i].read.is_tensor)
                r.replays[replayed.data[i].read.id] = true;
    }
    return r;
}

/* Does another value behind the walk read what this one reads, rows of the same shape? */
static bool read_behind_too(const Phasing *b, const Readers *readers, NodeId array, const Read *r)
{
    const Plan *p = b->p;
    for (int i = readers->first[reader_key(p, r)]; i; i = readers->all.data[i - 1].next) {
        const Reader *x = &readers->all.data[i - 1];
        if (x->id != array && b->g->phase[x->id] == PHASE_AFTER &&
            at(p, x->id)->naxes == at(p, array)->naxes && !x->use->read.step)
            return true;
    }
    return false;
}

static bool few_nodes(const Plan *p, NodeId id, int *left)
{
    Read r;
    if (--*left < 0)
        return false;
    if (at(p, id)->kind != N_MAP && plan_resolve(p, id, &r))
        return true;
    for (int i = 0; i < at(p, id)->nargs; i++)
        if (!few_nodes(p, at(p, id)->args[i], left))
            return false;
    return true;
}

/* Is all that the value is made of in memory for others, who are at the same place when they want it? */
static bool made_of_what_is_read(const Phasing *b, const Readers *readers, const bool *stored, NodeId id)
{
    const Plan *p = b->p;
    Uses uses = plan_uses(p, id);
    int left = 24;
    bool ok = uses.len > 0 &&
              few_nodes(p, at(p, at(p, id)->args[0])->kind == N_MAP ? at(p, id)->args[0] : id, &left);
    for (int i = 0; i < uses.len && ok; i++) {
        const Read *r = &uses.data[i].read;
        ok = !r->step && ((!r->is_tensor && p->rematerialised[r->id]) ||
                          ((r->is_tensor ? p->m->tensors.data[r->id].kind == T_INPUT : stored[r->id]) &&
                           read_behind_too(b, readers, id, r)));
    }
    return ok;
}

/* Behind the walk it is read by elements or rows only, at the element's own place. elsewhere: before or in
 * the walk too. */
static bool read_behind(const Phasing *b, const Readers *readers, NodeId array, bool *elsewhere)
{
    const Plan *p = b->p;
    Gemm g;
    NodeId factor[2];
    bool read = false;
    for (int i = readers->first[array]; i; i = readers->all.data[i - 1].next) {
        const NodeId id = readers->all.data[i - 1].id;
        *elsewhere |= b->g->phase[id] != PHASE_AFTER || b->replayed[id];
        if (b->g->phase[id] != PHASE_AFTER)
            continue;
        read = true;
        if (!readers->all.data[i - 1].use->plain || p->rounded[id] || sums_over_batch(p, id) ||
            past_sums(p, id) || contraction_of((Plan *)(uintptr_t)p, id, false, &g, factor))
            return false;
    }
    return read;
}

/* What elements behind backward's walk would read of forward, and can make of what they read anyway, is
 * made there. What nobody else reads forward need not save. */
bool find_rematerialised(Plan *p, const Phasing *f, const Phasing *b, bool *stored)
{
    bool any = false, *elsewhere = plan_alloc(p, 1, p->n_nodes);
    const Readers readers = find_readers(b);
    p->rematerialised = plan_alloc(p, 1, p->n_nodes);
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (stored[id] && stands_in_front(p, f->g, id) && !plan_reduces(p, id) &&
            root_kind(p->m, id, &(TensorId){ 0 }) == ROOT_NONE && !(p->past && p->past[id]) &&
            read_behind(b, &readers, id, &elsewhere[id]) && made_of_what_is_read(b, &readers, stored, id))
            any = p->rematerialised[id] = true;
    for (NodeId id = 0; id < p->n_nodes; id++)
        stored[id] = stored[id] && (!p->rematerialised[id] || elsewhere[id] || readers.replays[id]);
    return any;
}

/* ---- values that backward computes again, on a CPU ---- */

/* COSTS_AGAIN: issue slots of an element (OpRow.cost) that are worth it. What is not saved is neither
 * written by forward nor fetched into caches for that; on a CPU a byte of memory takes as long as about
 * eight slots of its vectors (28 GB/s beside 16 lanes of 2 to 3 GHz with two pipes). */
enum { COSTS_AGAIN = 64 };

/* Is the array made, at its own element, of one input and of what has fewer axes? *slots: of its operators,
 * and of those that it is made of and that are computed again too. again: per node, those; input: the one,
 * or -1. */
static bool made_of_one_input(const Plan *p, const bool *stored, const bool *again, NodeId id,
                              TensorId *input, int *slots)
{
    const Node *a = at(p, id);
    Uses uses = plan_uses(p, id);
    Marks *seen = marks_begin(p->m);
    *slots += operators(p, a->args[0], seen);
    marks_end(seen);
    bool ok = uses.len > 0 && !plan_reduces(p, id) && *slots <= COSTS_AGAIN;
    for (int i = 0; i < uses.len && ok; i++) {
        const Read *r = &uses.data[i].read;
        if (r->step || (r->is_tensor && p->m->tensors.data[r->id].kind == T_PARAM))
            ok = !r->step;
        else if (r->is_tensor)
            ok = p->m->tensors.data[r->id].kind == T_INPUT && uses.data[i].plain &&
                 (*input < 0 || *input == r->id) && (*input = r->id) >= 0;
        else if (again[r->id])
            ok = uses.data[i].plain && made_of_one_input(p, stored, again, r->id, input, slots);
        else
            ok = stored[r->id] && at(p, r->id)->naxes < a->naxes;
    }
    return ok;
}

/* Do only elements and rows of backward read it, at the element's own place? */
static bool read_by_rows(const Phasing *b, const Readers *readers, NodeId array)
{
    const Plan *p = b->p;
    Gemm g;
    NodeId factor[2];
    for (int i = readers->first[array]; i; i = readers->all.data[i - 1].next) {
        const NodeId id = readers->all.data[i - 1].id;
        if (!readers->all.data[i - 1].use->plain || p->rounded[id] || sums_over_batch(p, id) ||
            past_sums(p, id) || contraction_of((Plan *)(uintptr_t)p, id, false, &g, factor))
            return false;
    }
    return readers->first[array] != 0;
}

/* Of a cell without states: values along a row that backward makes of an input and of the row's numbers,
 * such as the weights of a softmax, are not saved. Backward's kernel reads the input in their place, and
 * computes them as one more array of the row. */
bool find_computed_again(Plan *p, const Phasing *f, const Phasing *b, bool *stored)
{
    bool any = false, *again = plan_alloc(p, 1, p->n_nodes);
    if (!p->request->cpu || !p->schedule->stateless)
        return false;
    p->again = again;
    const Readers readers = find_readers(b);
    for (NodeId id = 0; id < p->n_nodes; id++) {
        TensorId input = -1;
        int slots = 0;
        if (stored[id] && at(p, id)->kind == N_ARRAY && f->g->phase[id] == PHASE_BEFORE &&
            at(p, id)->naxes > 0 && !p->rematerialised[id] && !lies_for_itself(p, id) &&
            read_by_rows(b, &readers, id) && made_of_one_input(p, stored, again, id, &input, &slots) &&
            input >= 0)
            again[id] = true;
    }
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (again[id]) {
            stored[id] = false;
            any = true;
        }
    return any;
}
