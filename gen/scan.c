/* scan.c: which cells schedule scan can take. In comes a module, then its plan; out go the units of its states, of
 * which each thread walks one, and the answer whether a value of the step is such that a thread computes it alone.
 * A unit is one place of the axes that all states begin with; what a state has behind them (the parts of a complex
 * number, a short axis that is summed over) lies in the thread's registers. Guaranteed for a plan that is not refused:
 * what a thread reads of a step's values is its own unit's, so threads need nothing of one another. */
#include "reads.h"
#include "scan.h"

/* Elements of a unit that registers hold, and how many terms an array of them may have: a small matrix is one too many. */
enum { FEW = 32, TERMS = 64 };

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
        if (!axes[i]->is_const || axes[i]->value * all > most)
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
        if (x->kind != T_STATE)
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
        if (x->kind == T_STATE && !few(x->axes + n, x->rank - n, FEW))
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

/* What feeds a next state: does it sum values of the walk over many places? */
static bool feeds_by_long_sum(const Module *m, NodeId id, bool *seen)
{
    const Node *n = &m->nodes.data[id];
    bool sums = n->kind == N_REDUCE && (n->dep & DEP_STATE) && !ir_gathers(m, id);
    if (seen[id] || !(n->dep & DEP_STATE))
        return false;
    seen[id] = true;
    for (int i = 0; sums && i < n->nbound; i++)
        if (n->bound[i] < IX_FIRST || !few(&m->indices.data[n->bound[i]].extent, 1, FEW))
            return true;
    for (int i = 0; i < n->nargs; i++)
        if (feeds_by_long_sum(m, n->args[i], seen))
            return true;
    return false;
}

static bool any_long_sum(Module *m)
{
    bool *seen = arena_alloc(m->arena, (size_t)m->nodes.len + 1);
    for (TensorId t = 0; t < m->tensors.len; t++)
        if (m->next.data[t] >= 0 && feeds_by_long_sum(m, m->next.data[t], seen))
            return true;
    return false;
}

/* As many axes as there are: the more, the more threads. Where a short one is summed over, as few as can be: a
 * thread sums without asking others. */
Scan *scan_units(Module *m, const char **why)
{
    TensorId other = -1;
    int n = common_axes(m, &other), least = 1;
    if (n == 0) {
        *why = other >= 0 ? intern_f(m->c, "state `%s` does not begin with the axes of the others",
                                     m->tensors.data[other].name)
                          : "a state without an axis has one element for a whole sequence";
        return NULL;
    }
    if (any_long_sum(m)) {
        *why = "what feeds the states sums over many of their elements";
        return NULL;
    }
    while (least < n && !rest_is_few(m, least))
        least++;
    if (!rest_is_few(m, least)) {
        *why = intern_f(m->c, "behind the axes that all states have there are more than %d elements", FEW);
        return NULL;
    }
    Scan *s = arena_alloc(m->arena, sizeof *s);
    *s = (Scan){ .naxes = sums_shortly(m) ? least : n, .units = poly_const(m, 1) };
    s->axes = arena_alloc(m->arena, sizeof *s->axes * (size_t)n);
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (int i = 0; m->tensors.data[t].kind == T_STATE && i < s->naxes; i++)
            s->axes[i] = m->tensors.data[t].axes[i];
    for (int i = 0; i < s->naxes; i++)
        s->units = poly_mul(m, s->units, s->axes[i]);
    return s;
}

/* ---- values ---- */

bool scan_form(const Plan *p, NodeId array)
{
    const Scan *s = p->scan;
    const Node *a = at(p, array), *r = at(p, a->args[0]);
    const Poly *terms[64];
    int n = 0;
    if (a->naxes < s->naxes)
        return false;
    for (int i = 0; i < a->naxes; i++)
        if (i < s->naxes && extent(p->m, a->axes[i]) != s->axes[i])
            return false;
        else if (i >= s->naxes)
            terms[n++] = extent(p->m, a->axes[i]);
    if (!few(terms, n, FEW))
        return false;
    for (int i = 0; plan_reduces(p, array) && i < r->nbound; i++) {
        if (r->bound[i] < IX_FIRST || n == 64)
            return false;
        terms[n++] = extent(p->m, r->bound[i]);
    }
    return few(terms, n, TERMS) > 0;
}

bool scan_own(const Plan *p, const IndexId *axes, const Read *r)
{
    IndexId which;
    if (r->step || r->nmap < p->scan->naxes)
        return false;
    for (int i = 0; i < p->scan->naxes; i++)
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
    for (int i = p->scan->naxes; i < r->nmap; i++)
        n *= axis_of(p, r, i)->value;
    return n;
}

const IxExpr *scan_inner_linear(const Plan *p, const Read *r)
{
    Module *m = p->m;
    const IxExpr *e = ix_const(m, poly_const(m, 0));
    for (int i = p->scan->naxes; i < r->nmap; i++)
        e = ix_add(m, ix_scale(m, e, axis_of(p, r, i)), r->map[i]);
    return e;
}

/* ---- whole steps ---- */

static bool own_value(const Plan *p, const Program *pr, const IndexId *axes, NodeId value);

static bool own_read(const Plan *p, const Program *pr, const IndexId *axes, const Read *r)
{
    if (r->is_tensor) {
        TensorKind kind = p->m->tensors.data[r->id].kind;
        bool carried = kind == T_DNEXT || (kind == T_STATE && pr->dir == FORWARD);
        return !carried || scan_own(p, axes, r);
    }
    if (pr->phase[r->id] != PHASE_DURING)
        return true;
    if (p->is_cat[r->id] || !scan_own(p, axes, r))
        return false;
    return pr->group[r->id] >= 0 || own_value(p, pr, at(p, r->id)->axes, at(p, r->id)->args[0]);
}

static bool own_value(const Plan *p, const Program *pr, const IndexId *axes, NodeId value)
{
    const Node n = *at(p, value);
    Read r;
    if (n.kind != N_MAP && plan_resolve(p, value, &r))
        return own_read(p, pr, axes, &r);
    if (n.kind == N_ARRAY || n.kind == N_VIEW)    /* a number */
        return true;
    for (int i = 0; i < n.nargs; i++)
        if (!own_value(p, pr, axes, n.args[i]))
            return false;
    return true;
}

static const char *name_of(const Plan *p, NodeId id)
{
    const char *name = at(p, id)->name;
    return name ? intern_f(p->m->c, "value `%s`", name) : "a value";
}

const char *scan_refused(const Plan *p, const Program *pr)
{
    Compiler *c = p->m->c;
    for (NodeId id = 0; id < p->n_nodes; id++) {
        if (pr->phase[id] != PHASE_DURING || p->is_cat[id])
            continue;
        if (!scan_form(p, id))
            return intern_f(c, "%s of the step is not made of one unit of the states", name_of(p, id));
        if (pr->group && pr->group[id] >= 0 && !own_value(p, pr, at(p, id)->axes, at(p, id)->args[0]))
            return intern_f(c, "%s of the step reads other units of the states than its own", name_of(p, id));
    }
    int steps = 0;
    for (int i = 0; pr->group && i < pr->groups.len; i++)
        steps += pr->groups.data[i].phase == PHASE_DURING;
    return steps > 1 ? "a step has more arrays than one kernel takes" : pr->group && !steps ? "no step computes anything"
                                                                                            : NULL;
}

void scan_kernels(Plan *p)
{
    for (int d = 0; d < 2; d++) {
        Program *pr = &p->program[d];
        Panel *w = arena_alloc(p->m->arena, sizeof *w);
        *w = (Panel){ .operand = -1, .alone = true, .naxes = p->scan->naxes, .heads = poly_const(p->m, 1),
                      .units = p->scan->units };
        w->kernel = intern_f(p->m->c, "%s_%s_scan", p->m->name, d == FORWARD ? "fwd" : "bwd");
        pr->panel = w;
    }
}
