/* plan_added.c: sums of products. In come groups and the storage of arguments; out goes, where an argument is a sum of
 * products and nothing else, no kernel that adds them: the first product overwrites the argument, each of the others is
 * added to it. It is guaranteed that such a product lies in the argument, and that nobody else reads it.
 *
 * A gradient in 16 bits is then rounded after each product, as it is where gradients of several uses are added one by
 * one; in exchange no product is written and read in f32. An output in 16 bits is rounded once, whatever it is a sum of. */
#include "plan_pass.h"

typedef Vec(NodeId) Terms;

static bool at_own_place(const Plan *p, NodeId sum, const Read *r)
{
    const Node *a = at(p, sum);
    if (r->is_tensor || r->step || r->nmap != a->naxes || at(p, r->id)->naxes != a->naxes)
        return false;
    for (int k = 0; k < a->naxes; k++) {
        IndexId which;
        if (!ix_is_index(r->map[k], &which) || which != a->axes[k] ||
            p->m->indices.data[at(p, r->id)->axes[k]].extent != p->m->indices.data[a->axes[k]].extent)
            return false;
    }
    return true;
}

/* Does cell_gemm take such operands for a result in the type of the argument? An output is rounded once. */
static bool gives_type(const Plan *p, const Gemm *g, Dtype result, Direction dir)
{
    Dtype operand = type_of_read(p, &g->a.read);
    if (dir == FORWARD && (result == DT_BF16 || result == DT_F16))
        return false;
    return operand == result || (result == DT_F32 && (operand == DT_BF16 || operand == DT_F16));
}

static bool is_term(const Phasing *s, NodeId sum, const Read *r)
{
    const Program *pr = s->g;
    const Storage *st = &pr->node[r->id];
    const Group *g = pr->group[r->id] < 0 ? NULL : &pr->groups.data[pr->group[r->id]];
    return g && g->kind == G_GEMM && g->phase == pr->phase[sum] && !s->p->rounded[r->id] &&
           !is_root(s->p->m, r->id) && st->home == HOME_NONE && st->slot >= 0 &&
           rows_dep(s->p, r->id) == rows_dep(s->p, sum) && gives_type(s->p, &g->gemm, pr->node[sum].dtype, pr->dir);
}

/* All that the expression adds up, each once. */
static bool find_terms(const Phasing *s, NodeId sum, NodeId id, Terms *terms)
{
    const Plan *p = s->p;
    const Node *n = at(p, id);
    Read r;
    if (n->kind == N_MAP && n->op == OP_ADD)
        return find_terms(s, sum, n->args[0], terms) && find_terms(s, sum, n->args[1], terms);
    if (n->kind == N_MAP || !plan_resolve(p, id, &r) || !at_own_place(p, sum, &r) || !is_term(s, sum, &r))
        return false;
    for (int i = 0; i < terms->len; i++)
        if (terms->data[i] == r.id)
            return false;
    vec_push(p->m->arena, terms, r.id);
    return true;
}

static bool read_elsewhere(const Phasing *s, NodeId sum, NodeId term)
{
    for (NodeId id = 0; id < s->p->n_nodes; id++)
        for (int i = 0; s->needed[id] && id != sum && i < s->uses[id].len; i++)
            if (!s->uses[id].data[i].read.is_tensor && s->uses[id].data[i].read.id == term)
                return true;
    return false;
}

static void shift(int *group, int behind)
{
    *group -= *group > behind;
}

/* No kernel has an array any more. */
static void drop_group(Plan *p, Program *pr, int group)
{
    for (int i = group; i + 1 < pr->groups.len; i++)
        pr->groups.data[i] = pr->groups.data[i + 1];
    pr->groups.len--;
    for (NodeId id = 0; id < p->n_nodes; id++)
        shift(&pr->group[id], group);
    for (int i = 0; i < pr->groups.len; i++) {
        shift(&pr->groups.data[i].sums, group + 1);
        shift(&pr->groups.data[i].by_rows, group + 1);
        shift(&pr->groups.data[i].by_steps, group + 1);
    }
}

static void leave_group(Plan *p, Program *pr, NodeId array)
{
    int group = pr->group[array], n = 0;
    Group *g = &pr->groups.data[group];
    for (int i = 0; i < g->arrays.len; i++)
        if (g->arrays.data[i] != array)
            g->arrays.data[n++] = g->arrays.data[i];
    g->arrays.len = n;
    if (n == 0)
        drop_group(p, pr, group);
}

static void add_terms(Plan *p, Program *pr, NodeId sum, const Terms *terms)
{
    int first = pr->group[terms->data[0]], last = first;
    for (int i = 1; i < terms->len; i++) {
        int group = pr->group[terms->data[i]];
        first = group < first ? group : first;
        last = group > last ? group : last;
    }
    for (int i = 0; i < terms->len; i++) {
        pr->node[terms->data[i]] = pr->node[sum];
        pr->groups.data[pr->group[terms->data[i]]].gemm.added = pr->group[terms->data[i]] != first;
    }
    NodeId of_last = pr->groups.data[last].arrays.data[0];
    leave_group(p, pr, sum);
    pr->group[sum] = pr->group[of_last];
}

/* What a param gets through initial values is always added to its gradient: no product overwrites it. */
static bool is_overwritten(const Phasing *s, NodeId id)
{
    RootKind k = root_kind(s->p->m, id, &(TensorId){ 0 });
    return s->needed[id] && s->g->node[id].home == HOME_ARG && (k == ROOT_OUTPUT || k == ROOT_DINPUT || k == ROOT_DPARAM);
}

void add_products(Plan *p, const Phasing *s, const bool *wanted)
{
    Program *pr = &p->program[s->g->dir];
    for (NodeId id = 0; id < p->n_nodes; id++) {
        Terms terms = { 0 };
        bool alone = is_overwritten(s, id) && pr->group[id] >= 0 && pr->phase[id] != PHASE_DURING &&
                     pr->groups.data[pr->group[id]].kind == G_MAP;
        alone = alone && find_terms(s, id, at(p, id)->args[0], &terms) && terms.len > 1;
        for (int i = 0; alone && i < terms.len; i++)
            alone = !read_elsewhere(s, id, terms.data[i]) && !(s->g->dir == FORWARD && wanted[terms.data[i]]);
        if (alone)
            add_terms(p, pr, id, &terms);
    }
}
