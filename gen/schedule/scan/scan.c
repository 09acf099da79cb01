/* scan.c: which cells schedule scan can take. In comes a module, then its plan; out go the units of its states, of
 * which each thread walks one, and the answer whether a value of the step is such that a thread computes it alone.
 * A unit is one place of the axes that all states begin with; what a state has behind them (the parts of a complex
 * number, a short axis that is summed over) lies in the thread's registers. Guaranteed for a plan that is not refused:
 * what a thread reads of a step's values is its own unit's, so threads need nothing of one another. */
#include "ir/marks.h"
#include "plan/reads.h"
#include "scan.h"

/* Elements of a unit that registers hold, and how many terms the sums of an array of them may have, of a
 * vector and of a matrix: a product of two matrices of 8 x 8 is one thread's (in f32 with what ptxas spills
 * of it, 1 KB, in the first level cache), that of a matrix with a vector is where the matrix stays in
 * registers too. */
enum { FEW = 64, TERMS = 64, MATRIX_TERMS = 512 };

static const Node *at(const Plan *p, NodeId id)
{
    return &p->m->nodes.data[id];
}

static const Poly *extent(const Module *m, IndexId i)
{
    return m->indices.data[i].extent;
}

/* Their product, 0 where it is not known or more than that. */
static int64_t few(const Poly *const *axes, int n, int64_t most)
{
    int64_t all = 1;
    for (int i = 0; i < n; i++) {
        if (!axes[i]->is_const || axes[i]->value < 1 || axes[i]->value > most / all)
            return 0;
        all *= axes[i]->value;
    }
    return all;
}

/* ---- units ---- */

/* The leading axes that all states have, less the parts of complex numbers. */
static int common_axes(const Module *m, TensorId *other)
{
    const Tensor *first = NULL;
    int n = 0;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        int rank = x->rank - x->complex, same = 0;
        if (!tensor_steps(x))
            continue;
        if (!first) {
            first = x;
            n = rank;
        }
        while (same < n && same < rank && x->axes[same] == first->axes[same])
            same++;
        if (same < n)
            *other = t;
        n = same;
    }
    return n;
}

static bool rest_is_few(const Module *m, int n)
{
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        if (tensor_steps(x) && !few(x->axes + n, x->rank - n, FEW))
            return false;
    }
    return true;
}

/* Does the step, or its gradient, sum values of the walk over a short axis? */
static bool sums_shortly(const Module *m)
{
    for (NodeId id = 0; id < m->nodes.len; id++) {
        const Node *r = &m->nodes.data[id];
        bool shortly = r->kind == N_REDUCE && (r->dep & (DEP_STATE | DEP_COTANGENT));
        for (int i = 0; shortly && i < r->nbound; i++)
            shortly = r->bound[i] >= IX_FIRST && few(&m->indices.data[r->bound[i]].extent, 1, FEW);
        if (shortly)
            return true;
    }
    return false;
}

/* The sum of values of the walk over many places that feeds a next state; -1: there is none. */
static NodeId feeds_by_long_sum(const Module *m, NodeId id, bool *seen)
{
    const Node *n = &m->nodes.data[id];
    bool sums = n->kind == N_REDUCE && (n->dep & DEP_STATE) && !ir_gathers(m, id);
    NodeId found = -1;
    if (seen[id] || !(n->dep & DEP_STATE))
        return -1;
    seen[id] = true;
    for (int i = 0; sums && i < n->nbound; i++)
        if (n->bound[i] < IX_FIRST || !few(&m->indices.data[n->bound[i]].extent, 1, FEW))
            return id;
    for (int i = 0; i < n->nargs && found < 0; i++)
        found = feeds_by_long_sum(m, n->args[i], seen);
    return found;
}

static NodeId any_long_sum(Module *m)
{
    NodeId found = -1;
    bool *seen = arena_alloc(m->arena, (size_t)m->nodes.len + 1);
    for (TensorId t = 0; t < m->tensors.len && found < 0; t++)
        if (m->roots.data[t].next >= 0)
            found = feeds_by_long_sum(m, m->roots.data[t].next, seen);
    return found;
}

/* As many axes as there are: the more, the more threads. Where a short one is summed over, as few as can be: a
 * thread sums without asking others. */
Units *scan_units(Module *m, const Reason **why)
{
    TensorId other = -1;
    int n = common_axes(m, &other), least = 1;
    if (n == 0) {
        *why = other >= 0 ? reason_at(m, m->tensors.data[other].span,
                                      "state `%s` does not begin with the axes of the others",
                                      m->tensors.data[other].name)
                          : reason(m, "a state without an axis has one element for a whole sequence");
        return NULL;
    }
    NodeId sum = any_long_sum(m);
    if (sum >= 0) {
        *why = reason_of(m, &m->nodes.data[sum], "what feeds the states sums over many of their elements");
        return NULL;
    }
    while (least < n && !rest_is_few(m, least))
        least++;
    if (!rest_is_few(m, least)) {
        *why = reason(m, "behind the axes that all states have there are more than %d elements", FEW);
        return NULL;
    }
    Units *s = arena_alloc(m->arena, sizeof *s);
    *s = (Units){ .naxes = sums_shortly(m) ? least : n, .units = poly_const(m, 1) };
    s->axes = arena_alloc(m->arena, sizeof *s->axes * (size_t)n);
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int i = 0; tensor_steps(&m->tensors.data[t]) && i < s->naxes; i++)
            s->axes[i] = m->tensors.data[t].axes[i];
    for (int i = 0; i < s->naxes; i++)
        s->units = poly_mul(m, s->units, s->axes[i]);
    return s;
}

/* ---- values ---- */

static int64_t inner_of(const Plan *p, NodeId array)
{
    const Units *s = p->units;
    const Node *a = at(p, array);
    const Poly *axes[64];
    if (a->naxes < s->naxes)
        return 0;
    for (int i = 0; i < a->naxes; i++) {
        axes[i] = extent(p->m, a->axes[i]);
        if (i < s->naxes && axes[i] != s->axes[i])
            return 0;
    }
    return few(axes + s->naxes, a->naxes - s->naxes, FEW);
}

bool scan_axes(const Plan *p, NodeId array)
{
    return inner_of(p, array) > 0;
}

int64_t scan_terms(const Plan *p, NodeId array)
{
    const Node *r = at(p, at(p, array)->args[0]);
    int64_t terms = inner_of(p, array);
    int64_t most = at(p, array)->naxes - p->units->naxes > 1 ? MATRIX_TERMS : TERMS;
    for (int i = 0; plan_reduces(p, array) && i < r->nbound && terms; i++) {
        int64_t n = r->bound[i] < IX_FIRST ? 0 : few(&p->m->indices.data[r->bound[i]].extent, 1, TERMS);
        terms = terms * n > most ? 0 : terms * n;
    }
    return terms;
}

bool scan_form(const Plan *p, NodeId array)
{
    return scan_terms(p, array) > 0;
}

bool scan_own(const Plan *p, const IndexId *axes, const Read *r)
{
    IndexId which;
    if (r->step || r->nmap < p->units->naxes)
        return false;
    for (int i = 0; i < p->units->naxes; i++)
        if (!ix_is_index(r->map[i], &which) || which != axes[i])
            return false;
    return true;
}

static const Poly *axis_of(const Plan *p, const Read *r, int i)
{
    return r->is_tensor ? p->m->tensors.data[r->id].axes[i] : extent(p->m, at(p, r->id)->axes[i]);
}

int64_t scan_inner(const Plan *p, const Read *r)
{
    int64_t n = 1;
    for (int i = p->units->naxes; i < r->nmap; i++)
        n *= axis_of(p, r, i)->value;
    return n;
}

const IxExpr *scan_inner_linear(const Plan *p, const Read *r)
{
    Module *m = p->m;
    const IxExpr *e = ix_const(m, poly_const(m, 0));
    for (int i = p->units->naxes; i < r->nmap; i++)
        e = ix_add(m, ix_scale(m, e, axis_of(p, r, i)), r->map[i]);
    return e;
}

/* ---- whole steps ---- */

/* What a walk through the values of a step has found good, for readers with these axes; the first other one
 * ends it. An array that is made in its reader's place is such a reader itself, and looked at once. */
typedef struct Own { const Plan *p; const Program *pr; const IndexId *axes; Marks *values, *arrays; } Own;

static Own own_begin(const Plan *p, const Program *pr, const IndexId *axes)
{
    return (Own){ p, pr, axes, marks_begin(p->m), marks_begin(p->m) };
}

static void own_end(Own *o)
{
    marks_end(o->values);
    marks_end(o->arrays);
}

/* The walk through an array that is read, with its own axes; begun and ended like the outer one's values. */
static Own own_inside(const Own *o, NodeId array)
{
    return (Own){ o->p, o->pr, at(o->p, array)->axes, marks_begin(o->p->m), o->arrays };
}

static bool own_value(const Own *o, NodeId value);

static bool own_array(const Own *o, NodeId array)
{
    if (!marks_first(o->arrays, array))
        return true;
    Own inside = own_inside(o, array);
    bool own = own_value(&inside, at(o->p, array)->args[0]);
    marks_end(inside.values);
    return own;
}

static bool own_read(const Own *o, const Read *r)
{
    const Plan *p = o->p;
    const Program *pr = o->pr;
    if (r->is_tensor) {
        TensorKind kind = p->m->tensors.data[r->id].kind;
        bool carried = kind == T_DNEXT || (kind == T_STATE && pr->dir == FORWARD);
        return !carried || scan_own(p, o->axes, r);
    }
    if (pr->phase[r->id] != PHASE_DURING)
        return true;
    if (p->is_cat[r->id] || !scan_own(p, o->axes, r))
        return false;
    return pr->group[r->id] >= 0 || own_array(o, r->id);
}

static bool own_value(const Own *o, NodeId value)
{
    const Node n = *at(o->p, value);
    Read r;
    if (!marks_first(o->values, value))
        return true;
    if (n.kind != N_MAP && plan_resolve(o->p, value, &r))
        return own_read(o, &r);
    if (n.kind == N_ARRAY || n.kind == N_VIEW)    /* a number */
        return true;
    for (int i = 0; i < n.nargs; i++)
        if (!own_value(o, n.args[i]))
            return false;
    return true;
}

static bool is_own(const Plan *p, const Program *pr, NodeId array)
{
    Own o = own_begin(p, pr, at(p, array)->axes);
    bool own = own_value(&o, at(p, array)->args[0]);
    own_end(&o);
    return own;
}

static bool sum_term(const Own *o, Marks *seen, NodeId value, bool *walks)
{
    const Node n = *at(o->p, value);
    Read r;
    if (!marks_first(seen, value))
        return true;
    if (n.kind != N_MAP && plan_resolve(o->p, value, &r)) {
        bool later = r.step || (r.is_tensor ? o->p->m->tensors.data[r.id].kind == T_DINIT
                                            : o->pr->phase[r.id] == PHASE_AFTER);
        *walks |= !r.is_tensor && o->pr->phase[r.id] == PHASE_DURING;
        return !later && own_read(o, &r);
    }
    if (n.kind == N_ARRAY || n.kind == N_VIEW)
        return true;
    for (int i = 0; i < n.nargs; i++)
        if (!sum_term(o, seen, n.args[i], walks))
            return false;
    return n.kind != N_REDUCE;
}

static bool sums_own(const Plan *p, const Program *pr, NodeId sum, NodeId term)
{
    Own o = own_begin(p, pr, at(p, sum)->axes);
    Marks *seen = marks_begin(p->m);
    bool walks = false, own = sum_term(&o, seen, term, &walks) && walks;
    marks_end(seen);
    own_end(&o);
    return own;
}

bool scan_sums(const Plan *p, const Program *pr, NodeId sum)
{
    const Node *r = at(p, at(p, sum)->args[0]);
    return scan_axes(p, sum) && r->kind == N_REDUCE && r->reduce == R_SUM && r->nbound == 2 && r->bound[0] < IX_FIRST &&
           r->bound[1] < IX_FIRST && sums_own(p, pr, sum, r->args[0]);
}

static const char *name_of(const Plan *p, NodeId id)
{
    const char *name = at(p, id)->name;
    return name ? intern_f(p->m->c, "value `%s`", name) : "a value";
}

static int steps_of(const Program *pr)
{
    int steps = 0;
    for (int i = 0; pr->group && i < pr->groups.len; i++)
        steps += pr->groups.data[i].phase == PHASE_DURING;
    return steps;
}

const Reason *scan_too_many(const Plan *p, const Program *pr)
{
    return steps_of(pr) > 1 ? reason(p->m, "a step has more arrays than one kernel takes") : NULL;
}

const Reason *scan_refused(const Plan *p, const Program *pr)
{
    for (NodeId id = 0; id < p->n_nodes; id++) {
        if (pr->phase[id] != PHASE_DURING || p->is_cat[id])
            continue;
        if (!scan_form(p, id))
            return reason_of(p->m, at(p, id), "%s of the step is not made of one unit of the states",
                             name_of(p, id));
        if (pr->group && pr->group[id] >= 0 && !is_own(p, pr, id))
            return reason_of(p->m, at(p, id), "%s of the step reads other units of the states than its own",
                             name_of(p, id));
    }
    const Reason *why = scan_too_many(p, pr);
    return why || !pr->group || steps_of(pr) ? why : reason(p->m, "no step computes anything");
}

/* ---- linear recurrences ---- */

/* The state whose slope is asked for, and the axes of its next value. */
typedef struct Slope { const Plan *p; const Program *pr; TensorId of; const IndexId *axes; int left; } Slope;

static bool slope_of(Slope *s, NodeId id, NodeId *out);

static bool slope_of_read(Slope *s, const Read *r, NodeId *out)
{
    Module *m = s->p->m;
    IndexId which;
    *out = -1;
    if (r->is_tensor) {
        const Tensor *x = &m->tensors.data[r->id];
        bool forward = s->pr->dir == FORWARD, carried = x->kind == (forward ? T_STATE : T_DNEXT);
        bool same = (forward ? r->id : x->of) == s->of;
        for (int i = 0; i < r->nmap && same; i++)
            same = ix_is_index(r->map[i], &which) && which == s->axes[i];
        if (carried && same)
            *out = node_const(m, 1);
        return !carried || same;
    }
    if (s->pr->phase[r->id] != PHASE_DURING || s->pr->taken[r->id])
        return true;
    const Node a = *at(s->p, r->id);
    return !r->step && slope_of(s, node_subst(m, a.args[0], a.axes, r->map, a.naxes), out);
}

static bool slope_of_product(Slope *s, const Node *n, const NodeId *slopes, NodeId *out)
{
    int which = slopes[0] < 0;
    if (slopes[!which] >= 0 || (n->op == OP_DIV && which == 1))
        return false;
    NodeId factor = n->args[!which];
    bool one = n->op == OP_MUL && at(s->p, slopes[which])->kind == N_CONST && at(s->p, slopes[which])->value == 1;
    *out = one ? factor : node_map2(s->p->m, n->op, slopes[which], factor);
    return true;
}

/* Of an operator whose arguments have these slopes, not all of them 0. */
static bool slope_of_map(Slope *s, const Node *n, const NodeId *slopes, NodeId *out)
{
    Module *m = s->p->m;
    NodeId zero = node_const(m, 0);
    switch (n->op) {
    case OP_NEG:
        *out = node_map1(m, OP_NEG, slopes[0]);
        return true;
    case OP_STOP:
        *out = slopes[0];
        return true;
    case OP_ADD: case OP_SUB:
        *out = slopes[1] < 0   ? slopes[0]
               : slopes[0] < 0 ? (n->op == OP_ADD ? slopes[1] : node_map1(m, OP_NEG, slopes[1]))
                               : node_map2(m, n->op, slopes[0], slopes[1]);
        return true;
    case OP_MUL: case OP_DIV:
        return slope_of_product(s, n, slopes, out);
    case OP_SELECT:
        *out = node_select(m, n->args[0], slopes[1] < 0 ? zero : slopes[1], slopes[2] < 0 ? zero : slopes[2]);
        return slopes[0] < 0;
    default:
        return false;
    }
}

/* What multiplies the state in a value that is linear in it; false: it is not, or too long: `left` bounds the
 * walk. */
static bool slope_of(Slope *s, NodeId id, NodeId *out)
{
    const Node n = *at(s->p, id);
    NodeId slopes[4] = { -1, -1, -1, -1 };
    bool any = false;
    Read r;
    *out = -1;
    if (--s->left < 0)
        return false;
    if (n.kind != N_MAP && n.kind != N_REDUCE)
        return !plan_resolve(s->p, id, &r) || slope_of_read(s, &r, out);
    for (int i = 0; i < n.nargs; i++) {
        NodeId at_arg;
        if (!slope_of(s, n.args[i], &at_arg))
            return false;
        any |= at_arg >= 0;
        if (i < 4)
            slopes[i] = at_arg;
    }
    return !any || (n.kind == N_MAP && n.nargs <= 3 && slope_of_map(s, &n, slopes, out));
}

/* Is each next state linear in itself and free of the others? Then steps are maps h -> r h + c, and so are chunks. */
static NodeId *slopes_of(const Plan *p, const Program *pr)
{
    Module *m = p->m;
    NodeId *slope = arena_alloc(m->arena, sizeof *slope * (size_t)(m->tensors.len + 1));
    for (TensorId t = 0; t < m->tensors.len; t++) {
        NodeId next = pr->dir == FORWARD ? m->roots.data[t].next : m->roots.data[t].dprev;
        if (!tensor_steps(&m->tensors.data[t]))
            continue;
        if (next < 0)
            return NULL;
        Slope s = { p, pr, t, at(p, next)->axes, 2000 };
        if (!slope_of(&s, at(p, next)->args[0], &slope[t]))
            return NULL;
    }
    return slope;
}

int64_t scan_state_elements(const Plan *p)
{
    int64_t all = 0;
    for (TensorId t = 0; t < p->m->tensors.len; t++) {
        const Tensor *x = &p->m->tensors.data[t];
        if (tensor_steps(x))
            all += few(x->axes + p->units->naxes, x->rank - p->units->naxes, FEW);
    }
    return all;
}

int scan_threads(const ScanWalk *w)
{
    return w->chunks ? w->chunks * (w->pairs ? 16 : 32) : SCAN_THREADS;
}

int64_t scan_shared(const Plan *p, const ScanWalk *w)
{
    return w->chunks ? (2 * w->chunks + (w->pairs ? 2 : 1)) * 32 * scan_state_elements(p) : 0;
}

/* What chunks exchange lies in half of the memory that a block of any device may have: a thread with more state has no
 * registers for a chunk's reads. */
static int chunks_of(const Plan *p)
{
    if (module_starts(p->m) >= 0)
        return 0; /* the units of a block have the same steps */
    int64_t each = scan_state_elements(p) * 2 * 32 * (p->compute == DT_F64 ? 8 : 4);
    return 16 * each <= 24 << 10 ? 16 : 8 * each <= 24 << 10 ? 8 : 0;
}

static ScanWalk *walk_of(const Plan *p, const Program *pr, const char *kind)
{
    ScanWalk *w = arena_alloc(p->m->arena, sizeof *w);
    *w = (ScanWalk){ .units = p->units->units };
    w->kernel = intern_f(p->m->c, "%s_%s_%s%s", p->m->name, pr->dir == FORWARD ? "fwd" : "bwd", kind,
                         p->calls == CALLS_SHORT ? plan_suffix(p->calls) : "");
    return w;
}

/* Two neighbours to a thread: words of two numbers, and half of the instructions that are no arithmetic. */
static bool takes_pairs(const Plan *p)
{
    const Poly *last = p->units->axes[p->units->naxes - 1];
    return (p->dtype == DT_BF16 || p->dtype == DT_F16) && last->is_const && last->value % 2 == 0;
}

/* ---- states made anew ---- */

static TensorId state_of(const Plan *p, NodeId next)
{
    for (TensorId t = 0; t < p->m->tensors.len; t++)
        if (tensor_steps(&p->m->tensors.data[t]) && p->m->roots.data[t].next == next)
            return t;
    return -1;
}

static bool again(const Own *o, NodeId value);

static bool again_array(const Own *o, NodeId array, NodeId value)
{
    if (!marks_first(o->arrays, array))
        return true;
    Own inside = own_inside(o, array);
    bool can = again(&inside, value);
    marks_end(inside.values);
    return can;
}

static bool again_read(const Own *o, const Read *r)
{
    const Plan *p = o->p;
    const Program *pr = o->pr;
    if (r->step)
        return false;
    if (r->is_tensor) {
        TensorKind kind = p->m->tensors.data[r->id].kind;
        return kind == T_STATE ? scan_own(p, o->axes, r) : kind == T_INPUT || kind == T_PARAM;
    }
    if (state_of(p, r->id) >= 0)
        return false;
    const Node *a = at(p, r->id);
    if (pr->phase[r->id] == PHASE_DURING && pr->group[r->id] >= 0)
        return scan_own(p, o->axes, r) &&
               again_array(o, r->id, plan_reduces(p, r->id) ? at(p, a->args[0])->args[0] : a->args[0]);
    if (pr->phase[r->id] != PHASE_DURING && pr->node[r->id].home != HOME_NONE)
        return true;
    return (!(a->dep & DEP_STATE) || scan_own(p, o->axes, r)) && again_array(o, r->id, a->args[0]);
}

/* Can backward compute it of what it has, in the unit's thread? */
static bool again(const Own *o, NodeId value)
{
    const Node n = *at(o->p, value);
    Read r;
    if (n.kind == N_REDUCE)
        return false;
    if (!marks_first(o->values, value))
        return true;
    if (n.kind != N_MAP && plan_resolve(o->p, value, &r))
        return again_read(o, &r);
    if (n.kind == N_ARRAY || n.kind == N_VIEW)    /* a number */
        return true;
    for (int i = 0; i < n.nargs; i++)
        if (!again(o, n.args[i]))
            return false;
    return true;
}

static bool can_be_made_again(const Plan *p, NodeId next)
{
    Own o = own_begin(p, &p->program[BACKWARD], at(p, next)->axes);
    bool can = again(&o, at(p, next)->args[0]);
    own_end(&o);
    return can;
}

/* Is a next state, or the state, read of another step than the own? */
static bool read_elsewhere(const Plan *p, NodeId value, bool *seen)
{
    const Node n = *at(p, value);
    Read r;
    if (seen[value])
        return false;
    seen[value] = true;
    if (n.kind != N_MAP && plan_resolve(p, value, &r)) {
        bool state = r.is_tensor ? p->m->tensors.data[r.id].kind == T_STATE : state_of(p, r.id) >= 0;
        return (state && r.step) || (!r.is_tensor && read_elsewhere(p, at(p, r.id)->args[0], seen));
    }
    for (int i = 0; i < n.nargs; i++)
        if (read_elsewhere(p, n.args[i], seen))
            return true;
    return false;
}

static bool walks(const Program *pr, const Group *g)
{
    return g->kind == G_UNITS || (g->by_rows && pr->groups.data[g->by_rows - 1].kind == G_UNITS);
}

/* Is it read by the walks alone, each step its own? */
static bool read_by_walks(const Plan *p, TensorId state)
{
    bool *seen = arena_alloc(p->m->arena, (size_t)p->m->nodes.len + 1);
    for (int d = 0; d < 2; d++) {
        const Program *pr = &p->program[d];
        for (int i = 0; i < pr->groups.len; i++) {
            const Group *g = &pr->groups.data[i];
            for (int j = 0; j < g->reads.len && !walks(pr, g); j++)
                if (g->reads.data[j] == p->m->roots.data[state].next || g->reads.data[j] == ~state)
                    return false;
            for (int j = 0; j < g->arrays.len; j++)
                if (read_elsewhere(p, at(p, g->arrays.data[j])->args[0], seen))
                    return false;
        }
    }
    return true;
}

/* Backward's chunks of steps may have each state of a chunk from that before it, where forward has chunks too: then all
 * but one of `steps` states need be neither written nor read. */
static bool can_replay(const Plan *p)
{
    bool any = false;
    for (TensorId t = 0; t < p->m->tensors.len; t++) {
        NodeId next = p->m->roots.data[t].next;
        if (p->m->tensors.data[t].kind == T_HISTORY)
            return false;
        if (!tensor_steps(&p->m->tensors.data[t]))
            continue;
        const Storage *st = &p->program[FORWARD].node[next];
        any |= st->home == HOME_RESERVE;
        bool whole = st->home == HOME_RESERVE && !st->alias_offset && !st->pitch && p->program[FORWARD].before[t] < 0;
        if (!whole || p->is_alias[next] || plan_reduces(p, next) || !read_by_walks(p, t) ||
            !can_be_made_again(p, next))
            return false;
    }
    return any;
}

void scan_kernels(Plan *p)
{
    int chunks = chunks_of(p);
    p->units->pair = module_index(p->m, intern(p->m->c, "q"), poly_const(p->m, 2));
    for (int d = 0; d < 2; d++) {
        Program *pr = &p->program[d];
        ScanWalks *walks = arena_alloc(p->m->arena, sizeof *walks);
        pr->walks = walks;
        pr->one_kernel = true;
        walks->walk = walk_of(p, pr, "scan");
        walks->slope = chunks ? slopes_of(p, pr) : NULL;
        if (!walks->slope)
            continue;
        walks->chunks = walk_of(p, pr, "chunks");
        pr->in_chunks = true;
        walks->chunks->chunks = chunks;
        walks->chunks->pairs = takes_pairs(p);
        buf_f(&p->reasons, "%s is linear in the %s: with less than %d units and %d steps or more, a block walks %d chunks of "
              "the same units' steps at once%s\n", d == FORWARD ? "forward" : "backward", d == FORWARD ? "states" : "adjoints",
              CHUNK_UNITS, CHUNK_STEPS, chunks, walks->chunks->pairs ? ", a thread two units" : "");
    }
    if (scan_walks(&p->program[FORWARD])->chunks && scan_walks(&p->program[BACKWARD])->chunks &&
        can_replay(p)) {
        scan_walks(&p->program[BACKWARD])->chunks->replays = true;
        buf_f(&p->reasons, "forward's chunks save the state behind every few steps, and backward's make the others anew\n");
    }
}
