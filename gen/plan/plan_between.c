/* plan_between.c: what schedules share that cut the step (Schedule.cut), whose kernels read what the step
 * makes and give what it reads. In come the tensors between the two; out go where each is taken from, and
 * buffers for what the kernels give, or the arguments that it is. */
#include "plan_pass.h"

void between_sources(Plan *p, Read (*source)(const Plan *p, TensorId t))
{
    Module *m = p->m;
    p->taken = plan_alloc(p, sizeof *p->taken, m->tensors.len);
    p->kept = plan_alloc(p, 1, p->n_nodes);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        bool given = x->kind == T_INPUT && m->roots.data[t].dinput >= 0;
        if (!x->chunk || (x->kind != T_OUTPUT && !given))
            continue;
        p->taken[t] = source(p, t);
        if (!p->taken[t].is_tensor)
            p->kept[p->taken[t].id] = true;
    }
}

NodeId between_root(const Module *m, TensorId t)
{
    const Roots *of = &m->roots.data[t];
    return m->tensors.data[t].kind == T_OUTPUT ? of->output : of->dinput;
}

bool between_is_read(const Phasing *s, TensorId t)
{
    for (NodeId id = 0; id < s->p->n_nodes; id++)
        for (int i = 0; s->needed[id] && i < s->uses[id].len; i++)
            if (s->uses[id].data[i].read.is_tensor && s->uses[id].data[i].read.id == t)
                return true;
    return false;
}

/* The array that alone reads the tensor; -1: none does, or several do. */
static NodeId only_reader(const Phasing *s, TensorId t)
{
    NodeId reader = -1;
    for (NodeId id = 0; id < s->p->n_nodes; id++)
        for (int i = 0; s->needed[id] && i < s->uses[id].len; i++) {
            const Read *r = &s->uses[id].data[i].read;
            if (!r->is_tensor || r->id != t)
                continue;
            if (reader >= 0)
                return -1;
            reader = id;
        }
    return reader;
}

/* Is the body of the root the tensor, with each of its axes in another's place at most? */
static bool is_copy(const Plan *p, NodeId root, NodeId body, TensorId t)
{
    const Node *n = at(p, root);
    Read r;
    bool *used = plan_alloc(p, 1, n->naxes);
    if (!plan_resolve(p, body, &r) || !r.is_tensor || r.id != t || r.step || r.nmap != n->naxes)
        return false;
    for (int i = 0; i < r.nmap; i++) {
        IndexId which;
        int k = 0;
        if (!ix_is_index(r.map[i], &which))
            return false;
        while (k < n->naxes && n->axes[k] != which)
            k++;
        if (k == n->naxes || used[k] || extent_of(p, which) != p->m->tensors.data[t].axes[i])
            return false;
        used[k] = true;
    }
    return true;
}

NodeId between_body(const Plan *p, NodeId root, TensorId t, NodeId *more)
{
    const NodeId body = at(p, root)->args[0];
    const Node *n = at(p, body);
    *more = -1;
    if (is_copy(p, root, body, t))
        return body;
    for (int i = 0; n->kind == N_MAP && n->op == OP_ADD && i < 2; i++)
        if (is_copy(p, root, n->args[i], t)) {
            *more = n->args[!i];
            return n->args[i];
        }
    return -1;
}

bool between_gives(Plan *p, const Phasing *s, TensorId t,
                   bool (*adds)(const Plan *p, NodeId root, NodeId more))
{
    Program *pr = &p->program[s->g->dir];
    NodeId root = only_reader(s, t), more;
    if (root < 0 || between_body(p, root, t, &more) < 0 || (more >= 0 && !(adds && adds(p, root, more))))
        return false;
    const RootKind kind = root_kind(p->m, root, &(TensorId){ 0 });
    const Storage *st = &pr->node[root];
    if ((kind != ROOT_OUTPUT && kind != ROOT_DINPUT) || st->home != HOME_ARG || !st->batched || !st->timed ||
        (st->dtype != p->dtype && st->dtype != p->compute))
        return false;
    if (!pr->given)
        pr->given = plan_alloc(p, sizeof *pr->given, p->n_nodes);
    pr->given[root] = 1 + t;
    pr->tensor[t] = (Storage){ .home = HOME_NONE };
    return true;
}

NodeId between_copy(const Plan *p, const Program *pr, TensorId t)
{
    for (NodeId id = 0; pr->given && id < p->n_nodes; id++)
        if (pr->given[id] == 1 + t)
            return id;
    return -1;
}

Storage between_kept(Plan *p, TensorId t, Dtype dtype)
{
    const Poly *n = poly_mul(p->m, row_count(p, true, true), tensor_elements(p->m, t));
    Storage st = { .home = HOME_RESERVE, .batched = true, .timed = true, .dtype = dtype };
    st.slot = add_buffer(p, p->m->tensors.data[t].name, dtype, n, true, false);
    return st;
}

Storage between_storage(Plan *p, TensorId t, bool timed, Dtype dtype, bool reserve)
{
    const Poly *n = poly_mul(p->m, row_count(p, true, timed), tensor_elements(p->m, t));
    Storage st = {
        .home = reserve ? HOME_RESERVE : HOME_WORKSPACE, .batched = true, .timed = timed, .dtype = dtype
    };
    st.slot = add_buffer(p, p->m->tensors.data[t].name, dtype, n, reserve, true);
    return st;
}
