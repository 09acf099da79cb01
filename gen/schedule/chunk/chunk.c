/* chunk.c: which states can be walked C steps at a time. In comes the module of one step, behind lower and
 * simplify; out come its states in components, each with the normal form of its recurrence (chunk.h) or
 * the term that forbids it. The order of the proof: next states as sums of terms (terms.c); the axis that
 * corrections sum over, or that most reads do, is the key; updates within the step; factors (factors.c),
 * and with them which axes are heads; decay, additions and reads. Guaranteed of what qualifies: the normal
 * form is the step, in exact arithmetic, for all values of its expressions. */
#include <string.h>

#include "form.h"
#include "ir/marks.h"

enum { VISITS = 20000 };          /* nodes that one walk may visit: shared ones are visited again */

static Node at(const Proof *p, NodeId id)
{
    return p->m->nodes.data[id];
}

/* ---- components ---- */

static void find_loads(const Module *m, NodeId id, Marks *seen, bool *loads)
{
    const Node *n = &m->nodes.data[id];
    if (!(n->dep & DEP_STATE) || !marks_first(seen, id))
        return;
    if (n->kind == N_LOAD)
        loads[n->tensor] = true;
    for (int i = 0; i < n->nargs; i++)
        find_loads(m, n->args[i], seen, loads);
}

/* [t * tensors + s]: the next value of t depends on s, at whatever distance. */
static bool *dependences(const Module *m)
{
    size_t n = (size_t)m->tensors.len;
    bool *on = arena_alloc(m->arena, n * n + 1);
    for (size_t t = 0; t < n; t++) {
        if (m->tensors.data[t].kind != T_STATE)
            continue;
        Marks *seen = marks_begin(m);
        find_loads(m, m->roots.data[t].next, seen, on + t * n);
        marks_end(seen);
    }
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n && on[i * n + k]; j++)
                on[i * n + j] |= on[k * n + j];
    return on;
}

/* The states that depend on t and t on them, t among them. */
static void take_component(const Module *m, const bool *on, size_t t, bool *taken, ChunkComponent *k)
{
    size_t n = (size_t)m->tensors.len;
    k->states = arena_alloc(m->arena, sizeof *k->states * n);
    for (size_t s = 0; s < n; s++)
        if (s == t || (on[s * n + t] && on[t * n + s])) {
            k->states[k->nstates++] = (TensorId)s;
            taken[s] = true;
        }
}

static bool is_ready(const Module *m, const bool *on, size_t t, const bool *taken)
{
    size_t n = (size_t)m->tensors.len;
    for (size_t s = 0; s < n; s++)
        if (on[t * n + s] && !on[s * n + t] && !taken[s])
            return false;
    return true;
}

static void find_components(ChunkForm *f)
{
    Module *m = f->m;
    size_t n = (size_t)m->tensors.len;
    const bool *on = dependences(m);
    bool *taken = arena_alloc(m->arena, n + 1);
    f->components = arena_alloc(m->arena, sizeof *f->components * (n + 1));
    for (bool more = true; more;) {
        more = false;
        for (size_t t = 0; t < n && !more; t++)
            if (m->tensors.data[t].kind == T_STATE && !taken[t] && is_ready(m, on, t, taken)) {
                take_component(m, on, t, taken, &f->components[f->ncomponents++]);
                more = true;
            }
    }
}

/* ---- updates within the step ---- */

/* Its value with the component's axes in place of its own. */
static NodeId at_axes(Proof *p, const ChunkComponent *k, NodeId array)
{
    Node a = at(p, array);
    const IxExpr *to[MAX_STATE_AXES];
    for (int i = 0; i < k->rank; i++)
        to[i] = ix_index(p->m, k->axes[i]);
    return proof_subst(p, array, a.args[0], a.axes, to, k->rank);
}

static bool has_shape(const Proof *p, const ChunkComponent *k, NodeId array)
{
    Node a = at(p, array);
    bool same = a.kind == N_ARRAY && a.naxes == k->rank;
    for (int i = 0; i < k->rank && same; i++)
        same = p->m->indices.data[a.axes[i]].extent == p->m->indices.data[k->axes[i]].extent;
    return same;
}

/* Is there anything in the array beside the state's own elements? */
static bool is_update(Proof *p, const ChunkComponent *k, NodeId array)
{
    Terms t;
    int axis;
    bool adds = false, ok;
    p->left = VISITS;
    ok = terms_of(p, at_axes(p, k, array), &t);
    for (int i = 0; i < t.len && ok; i++)
        if (t.data[i].state >= 0) {
            ok = mixed_axis(p, k->axes, k->rank, &t.data[i], &axis);
            adds |= axis >= 0;
        } else {
            adds = true;
        }
    p->why = NULL;
    return ok && adds;
}

/* Arrays of the state's shape that a sum of the step is made of, and that add to the state. */
static void updates_under(Proof *p, const ChunkComponent *k, NodeId id, Marks *seen)
{
    Node n = at(p, id);
    if (!proof_fed(p, id) || !marks_first(seen, id))
        return;
    if (has_shape(p, k, id) && is_update(p, k, id)) {
        bool known = false;
        for (int i = 0; i < p->levels.len; i++)
            known |= p->levels.data[i] == id;
        if (!known)
            vec_push(p->m->arena, &p->levels, id);
        p->known = p->levels.len;
        return;
    }
    for (int i = 0; i < n.nargs; i++)
        updates_under(p, k, n.args[i], seen);
}

static void find_updates(Proof *p, const ChunkComponent *k, NodeId id, Marks *walked, Marks *seen)
{
    Node n = at(p, id);
    if (!proof_fed(p, id) || !marks_first(walked, id))
        return;
    for (int i = 0; i < n.nargs; i++)
        find_updates(p, k, n.args[i], walked, seen);
    if (n.kind == N_REDUCE)
        updates_under(p, k, n.args[0], seen);
}

static bool each_of_its_own(Proof *p, const ChunkComponent *k, NodeId id, int *left)
{
    Node n = at(p, id);
    if (!proof_fed(p, id))
        return true;
    if (--*left < 0 || n.kind == N_REDUCE || n.step)
        return false;
    if (n.kind == N_LOAD) {
        IndexId which;
        for (int i = 0; i < k->rank; i++)
            if (!ix_is_index(n.map[i], &which) || which != k->axes[i])
                return false;
        return true;
    }
    if (n.kind == N_VIEW) {
        Node a = at(p, n.args[0]);
        return each_of_its_own(p, k, proof_subst(p, n.args[0], a.args[0], a.axes, n.map, a.naxes), left);
    }
    for (int i = 0; i < n.nargs; i++)
        if (!each_of_its_own(p, k, n.args[i], left))
            return false;
    return true;
}

/* Does each element of the states depend on the elements at its own place alone? */
static bool has_own_elements(Proof *p, const ChunkComponent *k)
{
    int left = VISITS;
    for (int a = 0; a < k->nstates; a++)
        if (!each_of_its_own(p, k, at_axes(p, k, p->m->roots.data[k->states[a]].next), &left))
            return false;
    return k->rank > 0;
}

/* ---- next states as terms ---- */

/* `condition ? next : S`, as --lengths has it: then each update of the step may be so by itself. */
static NodeId find_guard(Proof *p, const ChunkComponent *k)
{
    NodeId next = p->m->roots.data[k->states[0]].next;
    const Node root = at(p, next), n = at(p, root.args[0]);
    if (n.kind != N_MAP || n.op != OP_SELECT || proof_fed(p, n.args[0]))
        return -1;
    const Node kept = at(p, n.args[2]);
    if (kept.kind != N_LOAD || kept.tensor != k->states[0] || kept.step)
        return -1;
    for (int i = 0; i < k->rank; i++) {
        IndexId which;
        if (!ix_is_index(kept.map[i], &which) || which != root.axes[i])
            return -1;
    }
    return n.args[0];
}

/* The terms where the guard holds, and where it does not the state behind update u. */
static void guard_terms(Form *f, int u, Terms *t)
{
    Module *m = f->p.m;
    NodeId one = node_const(m, 1), zero = node_const(m, 0), next = m->roots.data[f->k->states[0]].next;
    Factor holds = { node_select(m, f->guard, one, zero), false };
    Factor fails = { node_select(m, f->guard, zero, one), false };
    const IxExpr **map = arena_alloc(m->arena, sizeof *map * (size_t)(f->k->rank + 1));
    Term kept = { .coef = 1, .level = u, .map = map, .at = next };
    for (int i = 0; i < f->k->rank; i++)
        map[i] = ix_index(m, f->k->axes[i]);
    for (int i = 0; i < t->len; i++)
        vec_push(m->arena, &t->data[i].factors, holds);
    vec_push(m->arena, &kept.factors, fails);
    vec_push(m->arena, t, kept);
}

/* What stands behind update u at the component's axes; with a guard, what it is where that holds. */
static NodeId update_value(Form *f, int u, int n, int state)
{
    Proof *p = &f->p;
    NodeId next = p->m->roots.data[f->k->states[state]].next;
    if (u < n - 1)
        return at_axes(p, f->k, p->levels.data[u]);
    NodeId whole = at_axes(p, f->k, next);
    return f->guard < 0 ? whole : at(p, whole).args[1];
}

static bool terms_of_updates(Form *f)
{
    Proof *p = &f->p;
    ChunkComponent *k = f->k;
    int n = p->levels.len + 1;
    f->updates = arena_alloc(p->m->arena, sizeof *f->updates * (size_t)(n * k->nstates));
    p->after = false;
    for (int u = 0; u < n; u++)
        for (int a = 0; a < k->nstates; a++) {
            Terms *t = &f->updates[u * k->nstates + a];
            p->known = u;
            if (!terms_of(p, update_value(f, u, n, a), t))
                return false;
            if (f->guard >= 0)
                guard_terms(f, u, t);
            for (int i = 0; i < t->len; i++)
                if (t->data[i].state >= 0 && t->data[i].level != u)
                    return proof_refuse(p, t->data[i].at, "%s as it was before an earlier update of the step",
                                        proof_states(p));
        }
    p->known = p->levels.len;
    return true;
}

/* The index under sums has the name of the first one that the step sums over. */
static void take_mixed(Form *f, const IxExpr *place)
{
    Module *m = f->p.m;
    IndexId which;
    if (f->k->mixed < IX_FIRST && ix_is_index(place, &which)) {
        Index x = m->indices.data[which];
        f->k->mixed = module_index(m, x.name, x.extent);
    }
}

/* The axis that corrections sum over; -1: there are none. */
static bool key_of_updates(Form *f, int *key)
{
    Proof *p = &f->p;
    *key = -1;
    for (int u = 0; u < (p->levels.len + 1) * f->k->nstates; u++)
        for (int i = 0; i < f->updates[u].len; i++) {
            const Term *t = &f->updates[u].data[i];
            int axis;
            if (t->state < 0)
                continue;
            if (!mixed_axis(p, f->k->axes, f->k->rank, t, &axis))
                return false;
            if (axis >= 0 && *key >= 0 && axis != *key)
                return proof_refuse(p, t->at, "corrections over two axes of %s", proof_states(p));
            if (axis >= 0)
                take_mixed(f, t->map[axis]);
            *key = axis >= 0 ? axis : *key;
        }
    return true;
}

/* ---- reads ---- */

/* Is it made of the sum's free indices alone? */
static bool is_free(const Proof *p, NodeId sum, const IxExpr *e)
{
    for (int i = 0; i < e->nterms; i++) {
        const IxTerm *t = &e->terms[i];
        if (t->kind == IA_INDEX ? !varies_over(p->m, sum, t->index) : !is_free(p, sum, t->arg))
            return false;
    }
    return e->nterms > 0;
}

/* The free index that an axis of the state is read at; -1: it is another place, or the keys. */
static IndexId free_index(const Proof *p, NodeId sum, const IxExpr *place)
{
    IndexId which;
    return place && ix_is_index(place, &which) && varies_over(p->m, sum, which) ? which : -1;
}

/* Where a term of the sum reads the state, by axis. *axis: that of the keys. */
static bool places_of_term(Form *f, NodeId sum, const Term *t, const IxExpr **places, int *axis)
{
    Proof *p = &f->p;
    *axis = -1;
    for (int a = 0; a < f->k->rank; a++) {
        IndexId which = free_index(p, sum, t->map[a]);
        for (int b = 0; b < a; b++)
            if (which >= 0 && free_index(p, sum, places[b]) == which)
                return proof_refuse(p, sum, "a diagonal of %s", proof_states(p));
        places[a] = is_free(p, sum, t->map[a]) ? t->map[a] : NULL;
        if (places[a])
            continue;
        if (!term_binds(t, t->map[a]))
            return proof_refuse(p, t->at, "another place of %s than its own, which is no sum over an axis",
                                proof_states(p));
        if (*axis >= 0)
            return proof_refuse(p, sum, "a sum over two axes of %s", proof_states(p));
        *axis = a;
    }
    return *axis >= 0 || proof_refuse(p, sum, "elements of %s beside a sum over them", proof_states(p));
}

/* Where the sum reads the state; false: it is no read. */
static bool places_of(Form *f, NodeId sum, const Terms *t, const IxExpr **places, int *key)
{
    Proof *p = &f->p;
    bool any = false;
    for (int i = 0; i < t->len; i++) {
        const IxExpr *own[MAX_STATE_AXES];
        int axis;
        if (t->data[i].state < 0)
            continue;
        if (!places_of_term(f, sum, &t->data[i], own, &axis))
            return false;
        if (any && memcmp(places, own, sizeof *places * (size_t)f->k->rank) != 0)
            return proof_refuse(p, sum, "a sum over values of %s at different places", proof_states(p));
        memcpy(places, own, sizeof *places * (size_t)f->k->rank);
        *key = axis;
        any = true;
        if (!f->corrects)
            take_mixed(f, t->data[i].map[axis]);
    }
    return any || proof_refuse(p, sum, "no element of %s", proof_states(p));
}

/* The same terms at the component's axes. */
static void move_terms(Form *f, const FormRead *r)
{
    Module *m = f->p.m;
    IndexId from[MAX_STATE_AXES];
    const IxExpr *to[MAX_STATE_AXES];
    int n = 0;
    for (int i = 0; i < f->k->rank; i++) {
        IndexId own = free_index(&f->p, r->sum.node, r->sum.places[i]);
        if (own >= 0) {
            from[n] = own;
            to[n++] = ix_index(m, f->k->axes[i]);
        }
    }
    for (int i = 0; i < r->terms.len; i++) {
        Term *x = &r->terms.data[i];
        const IxExpr **map = arena_alloc(m->arena, sizeof *map * (size_t)(f->k->rank + 1));
        for (int k = 0; k < x->factors.len; k++) {
            NodeId *y = &x->factors.data[k].node;
            *y = proof_subst(&f->p, *y, *y, from, to, n);
        }
        for (int k = 0; k < f->k->rank && x->state >= 0; k++)
            map[k] = r->sum.places[k] ? ix_index(m, f->k->axes[k]) : x->map[k];
        x->map = map;
    }
}

/* guarded: what it gives is not looked at where the guard does not hold, nor is then what updates within the
 * step would have left. */
static bool take_read(Form *f, NodeId sum, bool guarded)
{
    Proof *p = &f->p;
    FormRead r = { .sum = { sum, arena_alloc(p->m->arena, sizeof *r.sum.places * MAX_STATE_AXES) } };
    if (!terms_of(p, sum, &r.terms) || !places_of(f, sum, &r.terms, r.sum.places, &r.key))
        return false;
    for (int i = 0; i < r.terms.len && f->guard >= 0 && !guarded; i++)
        if (r.terms.data[i].state >= 0 && r.terms.data[i].level > 0 && r.terms.data[i].level <= p->levels.len)
            return proof_refuse(p, sum, "%s within a step that may leave it as it was", proof_states(p));
    move_terms(f, &r);
    vec_push(p->m->arena, &f->reads, r);
    return true;
}

/* What is refused if an element of the state is met: the nearest value with a name that reads it, or why
 * the nearest sum around it is no read. */
typedef struct Around {
    const char *why;
    Span at;
    NodeId named;
    bool guarded;
} Around;

static bool is_element(const Form *f, NodeId id)
{
    Node n = at(&f->p, id);
    for (int i = 0; i < f->p.levels.len; i++)
        if (f->p.levels.data[i] == id)
            return true;
    for (int i = 0; i < f->k->nstates; i++)
        if (f->p.m->roots.data[f->k->states[i]].next == id)
            return true;
    return n.kind == N_LOAD;
}

static bool refuse_element(Form *f, const Around *around)
{
    Proof *p = &f->p;
    if (around->why) {
        p->why = around->why;
        p->at = around->at;
        return false;
    }
    const char *name = at(p, around->named).name;
    return proof_refuse(p, around->named, "%s takes single elements of %s",
                        name ? intern_f(p->m->c, "`%s`", name) : "a value", proof_states(p));
}

static bool find_reads(Form *f, NodeId id, Around around, Marks *seen)
{
    Proof *p = &f->p;
    Node n = at(p, id);
    if (!proof_fed(p, id))
        return true;
    if (is_element(f, id))
        return refuse_element(f, &around);
    if (!marks_first(seen, id))
        return true;
    if (n.name || around.named < 0)
        around.named = id;
    if (n.kind == N_REDUCE) {
        Proof before = *p;
        p->left = VISITS;
        if (take_read(f, id, around.guarded))
            return true;
        around.why = p->why;
        around.at = p->at;
        p->why = before.why;
        p->at = before.at;
        p->left = VISITS;
    }
    for (int i = 0; i < n.nargs; i++)
        if (!find_reads(f, n.args[i], around, seen))
            return false;
    return true;
}

/* Is it `guard ? a : b`, with a b that is free of the state? */
static bool is_guarded(Form *f, NodeId root)
{
    const Node n = at(&f->p, at(&f->p, root).args[0]);
    return f->guard >= 0 && n.kind == N_MAP && n.op == OP_SELECT && n.args[0] == f->guard &&
           !proof_fed(&f->p, n.args[2]);
}

/* What has to hold without the guard first: a sum is looked at once. */
static bool find_all_reads(Form *f)
{
    Module *m = f->p.m;
    Marks *seen = marks_begin(m);
    bool ok = true;
    f->p.after = true;
    for (int guarded = 0; guarded < 2; guarded++)
        for (TensorId t = 0; t < m->tensors.len && ok; t++) {
            bool own = proof_state(&f->p, t) >= 0;
            const NodeId roots[] = { m->roots.data[t].output, own ? -1 : m->roots.data[t].next,
                                     m->roots.data[t].last };
            for (int i = 0; i < 3 && ok; i++)
                if (roots[i] >= 0 && is_guarded(f, roots[i]) == guarded)
                    ok = find_reads(f, roots[i], (Around){ .named = roots[i], .guarded = guarded }, seen);
        }
    marks_end(seen);
    return ok;
}

/* Without corrections: the axis that most reads sum over; -1: there are no reads. */
static int key_of_reads(const Form *f)
{
    int votes[MAX_STATE_AXES] = { 0 }, key = -1;
    for (int i = 0; i < f->reads.len; i++)
        votes[f->reads.data[i].key]++;
    for (int i = 0; i < f->k->rank; i++)
        if (votes[i] && (key < 0 || votes[i] > votes[key]))
            key = i;
    return key;
}

/* ---- one component ---- */

static bool take_axes(Proof *p, ChunkComponent *k)
{
    Module *m = p->m;
    const Tensor *first = &m->tensors.data[k->states[0]];
    Node root = at(p, m->roots.data[k->states[0]].next);
    k->rank = first->rank;
    for (int i = 1; i < k->nstates; i++) {
        const Tensor *x = &m->tensors.data[k->states[i]];
        bool same = x->rank == first->rank;
        for (int a = 0; a < first->rank && same; a++)
            same = x->axes[a] == first->axes[a];
        if (!same)
            return proof_refuse(p, m->roots.data[k->states[i]].next,
                                "the states feed one another and have different shapes");
    }
    if (k->rank > MAX_STATE_AXES)
        return proof_refuse(p, m->roots.data[k->states[0]].next, "a state of more than %d axes",
                            MAX_STATE_AXES);
    k->axes = arena_alloc(m->arena, sizeof *k->axes * (size_t)(k->rank + 1));
    k->is_head = arena_alloc(m->arena, (size_t)k->rank + 1);
    for (int i = 0; i < k->rank; i++)
        k->axes[i] =
            module_index(m, m->indices.data[root.axes[i]].name, m->indices.data[root.axes[i]].extent);
    return true;
}

static void count_roles(Module *m, ChunkComponent *k)
{
    k->keys = m->indices.data[k->axes[k->key]].extent;
    k->values = poly_const(m, 1);
    for (int i = 0; i < k->rank; i++)
        if (i != k->key && !k->is_head[i])
            k->values = poly_mul(m, k->values, m->indices.data[k->axes[i]].extent);
    const Poly *both[] = { k->keys, k->values };
    k->worth = true;
    for (int i = 0; i < 2; i++)
        k->worth &= !both[i]->is_const || both[i]->value >= CHUNK_MANY;
}

static bool has_values(const ChunkComponent *k)
{
    for (int i = 0; i < k->rank; i++)
        if (i != k->key && !k->is_head[i])
            return true;
    return false;
}

/* The whole proof, with the updates that are taken within the step. */
static bool prove(Form *f)
{
    Proof *p = &f->p;
    ChunkComponent *k = f->k;
    int key;
    f->reads.len = 0;
    p->left = VISITS;
    if (!terms_of_updates(f) || !key_of_updates(f, &key))
        return false;
    f->corrects = key >= 0;
    if (!find_all_reads(f))
        return false;
    k->key = key >= 0 ? key : key_of_reads(f);
    if (k->key < 0)
        return true;
    if (p->m->indices.data[k->mixed].extent != p->m->indices.data[k->axes[k->key]].extent)
        k->mixed =
            module_index(p->m, p->m->indices.data[k->mixed].name, p->m->indices.data[k->axes[k->key]].extent);
    if (!form_build(f))
        return false;
    count_roles(p->m, k);
    return true;
}

static void find_component(Module *m, ChunkComponent *k)
{
    Form f = { .p = { .m = m, .states = k->states, .nstates = k->nstates, .left = VISITS },
               .k = k,
               .guard = -1 };
    Proof *p = &f.p;
    bool ok = take_axes(p, k), own = ok && has_own_elements(p, k);
    if (ok && k->nstates == 1) {
        Marks *walked = marks_begin(m), *seen = marks_begin(m);
        find_updates(p, k, at(p, m->roots.data[k->states[0]].next).args[0], walked, seen);
        marks_end(walked);
        marks_end(seen);
        f.guard = p->levels.len ? find_guard(p, k) : -1;
    }
    p->left = VISITS;
    ok = ok && prove(&f);
    if (!ok && p->levels.len) {
        p->why = NULL;
        p->levels.len = p->known = 0;
        f.guard = -1;
        ok = prove(&f);
    }
    k->why = ok ? f.roles.forced : p->why;
    k->at = ok ? f.roles.forced_at : p->at;
    k->elements = own;
    k->verdict = !ok                                             ? CHUNK_REFUSED
                 : k->key < 0 || (!f.corrects && !has_values(k)) ? CHUNK_ELEMENTS
                                                                 : CHUNK_QUALIFIES;
}

ChunkForm chunk_find(Module *m)
{
    ChunkForm f = { .m = m };
    find_components(&f);
    for (int i = 0; i < f.ncomponents; i++) {
        f.components[i].column_of = -1;
        find_component(m, &f.components[i]);
    }
    form_columns(&f);
    module_at(m, m->span, NULL);
    return f;
}

int chunk_additions(const ChunkComponent *k, bool corrected)
{
    int n = 0;
    for (int u = 0; u < k->updates.len; u++)
        for (int i = 0; i < k->updates.data[u].additions.len; i++)
            n += !corrected || k->updates.data[u].additions.data[i].weights.len > 0;
    return n;
}
