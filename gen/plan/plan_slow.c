/* plan_slow.c: performance warnings. In comes a plan that is made; out go warnings, each at its place of the
 * spec: that no kernel walks the steps, sums that would be matrix products if they were written otherwise,
 * products of one vector, reads of many steps. A warning is given where another text of the spec is faster,
 * or where the schedule is the slowest there is; it changes nothing. Calls for which the cell is planned
 * again have none. */
#include <string.h>

#include "plan_pass.h"
#include "spelling.h"

static bool quiet(const Plan *p)
{
    return p->m->c->no_performance;
}

/* ---- no kernel walks the steps ---- */

static int kernels_of_step(const Program *pr)
{
    int n = 0;
    for (int i = 0; i < pr->groups.len; i++)
        n += pr->groups.data[i].phase == PHASE_DURING;
    return n;
}

bool plan_unwalked(const Plan *p, const Program *pr)
{
    bool whole = p->schedule->on_chip || p->schedule->per_unit || p->schedule->stateless;
    return !whole && !pr->one_kernel && kernels_of_step(pr) > 0;
}

static const char *kernels(Compiler *c, int n, const char *direction)
{
    return intern_f(c, "%d kernel%s %s", n, n == 1 ? "" : "s", direction);
}

static const char *launches(const Plan *p, bool forward, bool backward)
{
    Compiler *c = p->m->c;
    const char *f = kernels(c, kernels_of_step(&p->program[FORWARD]), "forward");
    const char *b = kernels(c, kernels_of_step(&p->program[BACKWARD]), "backward");
    if (forward && backward)
        return intern_f(c, "%s and %d backward", f, kernels_of_step(&p->program[BACKWARD]));
    return forward ? f : b;
}

/* Why no kernel has the steps of a schedule whose steps one kernel may walk. */
static void note_unwalked(const Plan *p, Direction d)
{
    const Reason *r = p->program[d].unwalked;
    if (r)
        diag(p->m->c, DIAG_NOTE, r->at, "not in one kernel, %s: %s", d == FORWARD ? "forward" : "backward",
             r->text);
}

void warn_of_schedule(Plan *p, const Reason *const *why)
{
    const Module *m = p->m;
    bool forward = plan_unwalked(p, &p->program[FORWARD]);
    bool backward = m->has_grad && plan_unwalked(p, &p->program[BACKWARD]);
    bool both = forward && (backward || !m->has_grad || kernels_of_step(&p->program[BACKWARD]) == 0);
    if (quiet(p) || p->request->schedule || p->request->calls != CALLS_ANY || !(forward || backward))
        return;
    diag(m->c, DIAG_PERF, m->span,
         "no kernel walks over the %ssteps of %s: each step starts %s (schedule %s)",
         both      ? ""
         : forward ? "forward "
                   : "backward ",
         m->name, launches(p, forward, backward), p->schedule->name);
    for (int d = 0; d < 2; d++)
        if (d == FORWARD ? forward : backward)
            note_unwalked(p, (Direction)d);
    for (const Schedule *const *s = schedule_order; *s; s++) {
        const Reason *r = why[schedule_number(*s)];
        if (r && *s != p->schedule)
            diag(m->c, DIAG_NOTE, r->at, "not %s: %s%s", (*s)->name, r->gradient ? "in the gradient, " : "",
                 r->text);
    }
}

/* ---- sums that are no products ---- */

static const char *when_words(const Program *pr, NodeId id)
{
    switch (pr->phase[id]) {
    case PHASE_PARAM: return "once a call";
    case PHASE_DURING: return "in each step";
    default: return "for all steps at once";
    }
}

/* A value that the direction computes by a kernel of its own, and no product. */
static bool by_rows(const Plan *p, const Program *pr, NodeId id)
{
    int group = pr->group[id];
    return group >= 0 && plan_reduces(p, id) && pr->groups.data[group].kind != G_GEMM &&
           !pr->groups.data[group].pass && !(p->past && p->past[id]);
}

static void warn_of_sum(const Plan *p, const Program *pr, NodeId id, const Spelling *s)
{
    Compiler *c = p->m->c;
    const Node *sum = at(p, at(p, id)->args[0]);
    diag(c, DIAG_PERF, sum->span, "forward, %s: a row reduction, not a matrix product, since %s",
         when_words(pr, id), s->because);
    diag_chain(c, sum->chain);
    diag(c, DIAG_NOTE, (Span){ .file = -1 }, "%s%s", s->write[0] == '`' ? "write " : "", s->write);
}

static void warn_of_sums(const Plan *p)
{
    const Program *pr = &p->program[FORWARD];
    Spelling s;
    for (NodeId id = 0; id < p->n_nodes; id++)
        if (by_rows(p, pr, id) && spelling_of(p, pr, id, &s))
            warn_of_sum(p, pr, id, &s);
}

/* ---- products of one vector ---- */

/* The value that the group multiplies by a param, where it does that; else NULL. */
static const Read *multiplies(const Plan *p, const Group *g)
{
    const Gemm *x = &g->gemm;
    bool left = x->a.read.is_tensor;
    const Read *param = left ? &x->a.read : &x->b.read, *vector = left ? &x->b.read : &x->a.read;
    bool takes = g->kind == G_GEMM && g->phase == PHASE_DURING && param->is_tensor && !vector->is_tensor &&
                 p->m->tensors.data[param->id].kind == T_PARAM;
    return takes ? vector : NULL;
}

static bool same_place(const Gemm *a, const Gemm *b)
{
    const GemmSide *x = a->a.read.is_tensor ? &a->b : &a->a, *y = b->a.read.is_tensor ? &b->b : &b->a;
    return x->read.id == y->read.id && x->offset == y->offset && a->k == b->k;
}

static void warn_of_products(const Plan *p)
{
    const Program *pr = &p->program[FORWARD];
    bool *said = plan_alloc(p, 1, pr->groups.len);
    if (pr->one_kernel) /* with the weights of each on the chip */
        return;
    for (int i = 0; i < pr->groups.len; i++) {
        const Group *g = &pr->groups.data[i];
        const Read *vector = multiplies(p, g);
        int n = 1;
        for (int k = i + 1; vector && !said[i] && k < pr->groups.len; k++)
            if (multiplies(p, &pr->groups.data[k]) && same_place(&g->gemm, &pr->groups.data[k].gemm)) {
                said[k] = true;
                n++;
            }
        if (n == 1)
            continue;
        const Node *sum = at(p, at(p, g->arrays.data[0])->args[0]);
        diag(p->m->c, DIAG_PERF, sum->span, "forward, in each step: %d products of the same vector", n);
        diag_chain(p->m->c, sum->chain);
        diag(p->m->c, DIAG_NOTE, (Span){ .file = -1 },
             "declare one param that has all their rows, and one value that is its product "
             "with the vector, such as `u[i:%d*H] = sum[j] R[i,j] * h[j]`, of which each takes its part",
             n);
    }
}

/* ---- what explain says beside warnings: no other text would be faster ---- */

/* As the spec has it: a copy for products is called `h.f32`. */
static const char *spec_name(const Plan *p, const Read *r)
{
    const char *name = r->is_tensor ? p->m->tensors.data[r->id].name : at(p, r->id)->name;
    return name ? intern_n(p->m->c, name, strcspn(name, ".")) : NULL;
}

static bool add_name(Compiler *c, Buf *names, const char *name)
{
    const char *quoted = intern_f(c, "`%s`", name);
    if (names->len && strstr(names->data, quoted))
        return false;
    buf_f(names, "%s%s", names->len ? ", " : "", quoted);
    return true;
}

/* Products of a step that give one number each, of several vectors. */
static void tell_of_dots(Plan *p)
{
    const Program *pr = &p->program[FORWARD];
    Buf names = { .arena = p->m->arena };
    int dots = 0, vectors = 0;
    for (int i = 0; i < pr->groups.len && !pr->one_kernel; i++) {
        const Group *g = &pr->groups.data[i];
        const Read *vector = multiplies(p, g);
        const char *name = vector && at(p, g->arrays.data[0])->naxes == 0 ? spec_name(p, vector) : NULL;
        dots += name != NULL;
        vectors += name && add_name(p->m->c, &names, name);
    }
    if (vectors > 1)
        buf_f(&p->reasons,
              "%d products of a step give one number each, of different vectors (%s): each is a kernel, "
              "since only "
              "products of one vector go together\n",
              dots, names.data);
}

/* A param's gradient that would be a product for all steps, but that of one operand neither what the sum
 * leaves nor what it adds up has neighbours in memory. */
static const Read *without_neighbours(Plan *p, NodeId array, Gemm *g)
{
    NodeId factor[2];
    *g = (Gemm){ 0 };
    if (contraction_of(p, array, false, g, factor) || !g->c.read.map)
        return NULL;
    if (!poly_is_one(g->a.row) && !poly_is_one(g->a.col))
        return &g->a.read;
    return poly_is_one(g->b.row) || poly_is_one(g->b.col) ? NULL : &g->b.read;
}

static void tell_of_gradients(Plan *p)
{
    const Program *pr = &p->program[BACKWARD];
    Buf params = { .arena = p->m->arena }, values = { .arena = p->m->arena };
    for (int i = 0; i < pr->groups.len; i++)
        for (int k = 0; pr->groups.data[i].kind == G_COLUMN && k < pr->groups.data[i].arrays.len; k++) {
            NodeId id = pr->groups.data[i].arrays.data[k];
            TensorId of;
            Gemm g;
            bool gradient = root_kind(p->m, id, &of) == ROOT_DPARAM;
            const Read *r = gradient ? without_neighbours(p, id, &g) : NULL;
            const char *name = r ? spec_name(p, r) : NULL;
            if (!name)
                continue;
            add_name(p->m->c, &params, p->m->tensors.data[of].name);
            add_name(p->m->c, &values, name);
        }
    if (params.len)
        buf_f(&p->reasons,
              "no product gives the gradient of %s: of %s neither the steps nor the axis that the product "
              "keeps has "
              "neighbours in memory, so terms are added up one by one\n",
              params.data, values.data);
}

/* ---- reads of many steps ---- */

/* Does the array sum over many steps, each of which it reads by itself? Short windows come from the cache. */
static bool sums_many_steps(const Plan *p, NodeId array)
{
    enum { FEW = 16 };
    Uses uses = plan_uses(p, array);
    for (int i = 0; i < uses.len; i++) {
        const IxExpr *step = uses.data[i].read.step;
        for (int k = 0; step && k < step->nterms; k++) {
            IndexId which = step->terms[k].kind == IA_INDEX ? step->terms[k].index : IX_TIME;
            const Poly *n = which >= IX_FIRST ? p->m->indices.data[which].extent : NULL;
            if (n && (!n->is_const || n->value > FEW))
                return true;
        }
    }
    return false;
}

static void warn_of_reads(Plan *p)
{
    for (int d = 0; d < 2; d++)
        for (NodeId id = 0; id < p->n_nodes; id++) {
            int group = p->program[d].group[id];
            const Group *g = group < 0 ? NULL : &p->program[d].groups.data[group];
            bool passes = p->passes || p->schedule->join,
                 history = g && passes && !g->timed; /* for the call before */
            if (!g || g->kind == G_GEMM || g->pass || history || !sums_many_steps(p, id))
                continue;
            diag(p->m->c, DIAG_PERF, at(p, id)->span,
                 "every step reads many earlier ones here, each from memory");
            return;
        }
}

void warn_of_values(Plan *p)
{
    tell_of_dots(p);
    if (p->m->has_grad)
        tell_of_gradients(p);
    if (quiet(p))
        return;
    warn_of_reads(p);
    warn_of_sums(p);
    warn_of_products(p);
}
