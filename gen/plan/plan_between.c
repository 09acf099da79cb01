/* plan_between.c: what schedules share that cut the step (Schedule.cut), whose kernels read what the step
 * makes and give what it reads. In come the tensors between the two; out go where each is taken from, and
 * buffers for what the kernels give. */
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

Storage between_storage(Plan *p, TensorId t, bool timed, Dtype dtype, bool reserve)
{
    const Poly *n = poly_mul(p->m, row_count(p, true, timed), tensor_elements(p->m, t));
    Storage st = {
        .home = reserve ? HOME_RESERVE : HOME_WORKSPACE, .batched = true, .timed = timed, .dtype = dtype
    };
    st.slot = add_buffer(p, p->m->tensors.data[t].name, dtype, n, reserve, true);
    return st;
}
