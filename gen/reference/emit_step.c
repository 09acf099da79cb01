/* emit_step.c: the step functions of the reference. In: the roots of a module (forward, initial values,
 * backward, gradients through initial values). Out: per group a C function over `const Step *step`, printed
 * into the file's body, and the members of Step that it needs. Guaranteed: an array is computed before it is
 * read, only if something asks for it, and in backward only if a gradient that the caller wants needs it. */
#include <stdlib.h>
#include <string.h>

#include "emit_step.h"
#include "ir/arguments.h"

enum { MAX_SINKS = 64 * SINK_WORDS, MAX_LOOPS = 256, MOST_IN_FUNCTION = 500 /* arrays */ };

/* ---- what a function computes */

typedef struct Walk {
    CFile *f;
    Fun *fun;
    NodeId top;                   /* the array whose value is walked */
    IndexId loops[MAX_LOOPS];
    int nloops, stamp;
} Walk;

/* Are the axes exactly the first so many loops? Else the reduction would be computed again and again: it gets
 * an array. */
static bool fits_loops(const Node *n, const IndexId *loops, int nloops)
{
    int deepest = -1;
    for (int i = 0; i < n->naxes; i++)
        for (int k = 0; k < nloops; k++)
            if (loops[k] == n->axes[i] && k > deepest)
                deepest = k;
    for (int k = 0; k <= deepest; k++) {
        bool found = false;
        for (int i = 0; i < n->naxes; i++)
            found |= n->axes[i] == loops[k];
        if (!found)
            return false;
    }
    return true;
}

static void walk(Walk *w, NodeId id, bool optional);

static void walk_reduce(Walk *w, NodeId id, bool optional)
{
    CFile *f = w->f;
    const Node *n = cgen_node(&f->g, id);
    int before = w->nloops, count = 0;
    IndexId bound[64];
    count = cgen_bounds(&f->g, id, bound);
    if (count && !optional && id != w->top && !fits_loops(n, w->loops, w->nloops)) {
        f->kept[id] = true;
        vec_push(f->g.arena, &w->fun->reads[w->top], id);
        return;
    }
    if (before + count > MAX_LOOPS)
        bug(f->m->c, "emit_c", "more than %d nested loops", MAX_LOOPS);
    memcpy(w->loops + before, bound, sizeof *bound * (size_t)count);
    w->nloops += count;
    walk(w, n->args[0], optional);
    w->nloops = before;
}

/* The array whose value the node's is, when it is read and not computed at this place: itself, kept, or one
 * with that value. */
static NodeId walk_array_of(const Walk *w, NodeId id)
{
    const CFile *f = w->f;
    if (id == w->top)
        return -1;
    if (cgen_node(&f->g, id)->kind == N_ARRAY || f->kept[id])
        return id;
    return f->g.same_as[id] < w->top ? f->g.same_as[id] : -1;    /* a later one is not there yet */
}

/* Notes what the value reads. optional: under a select, where a reduction stays what it is. */
static void walk(Walk *w, NodeId id, bool optional)
{
    CFile *f = w->f;
    const Node *n = cgen_node(&f->g, id);
    int *stamp = &f->g.stamp[id];
    if (*stamp == w->stamp || (optional && *stamp == w->stamp + 1))
        return;
    *stamp = w->stamp + optional;
    NodeId array = walk_array_of(w, id);
    if (n->kind == N_VIEW)
        array = n->args[0];
    if (array >= 0) {
        vec_push(f->g.arena, &w->fun->reads[w->top], array);
        return;
    }
    if (n->kind == N_LOAD && f->m->tensors.data[n->tensor].kind == T_DNEXT)
        vec_push(f->g.arena, &w->fun->carried[w->top], f->m->tensors.data[n->tensor].of);
    if (n->kind == N_REDUCE)
        walk_reduce(w, id, optional);
    for (int i = 0; n->kind != N_REDUCE && i < n->nargs; i++)
        walk(w, n->args[i], optional || (n->kind == N_MAP && n->op == OP_SELECT && i > 0));
}

static void walk_top(CFile *f, Fun *fun, NodeId id)
{
    Walk w = { .f = f, .fun = fun, .top = id, .stamp = f->g.serial + 1 };
    const Node *n = cgen_node(&f->g, id);
    f->g.serial += 2;
    w.nloops = n->naxes;
    memcpy(w.loops, n->axes, sizeof *n->axes * (size_t)n->naxes);
    fun->reads[id].len = 0;
    fun->carried[id].len = 0;
    if (n->kind == N_ARRAY)
        walk(&w, n->args[0], false);
    else
        walk_reduce(&w, id, false);
}

static bool is_stored_state(const CFile *f, NodeId id)
{
    for (TensorId t = 0; t < f->m->tensors.len; t++)
        if (f->m->roots.data[t].next == id)
            return true;
    return false;
}

static bool is_initial_root(const CFile *f, NodeId id)
{
    for (TensorId t = 0; t < f->m->tensors.len; t++)
        if (f->m->roots.data[t].init == id)
            return true;
    return false;
}

/* What backward has for all steps before it walks back: earlier steps read it, so it depends on no state. */
static bool is_earlier(const CFile *f, NodeId id)
{
    return f->earlier[id];
}

/* Everything below the arrays that are marked. What a step left behind (the state after it) and what is there
 * for all steps is not computed again. */
static void find_computed(CFile *f, Fun *fun)
{
    for (NodeId id = f->m->nodes.len - 1; id >= 0; id--) {
        if (!fun->computes[id])
            continue;
        if (fun->kind == FUN_PAST && (cgen_node(&f->g, id)->dep & DEP_TIME)) {
            fun->computes[id] = false;
            continue;
        }
        if (fun->kind == FUN_BACKWARD && (is_stored_state(f, id) || is_earlier(f, id))) {
            fun->computes[id] = false;
            continue;
        }
        walk_top(f, fun, id);
        for (int i = 0; i < fun->reads[id].len; i++)
            fun->computes[fun->reads[id].data[i]] = true;
    }
}

/* The values of all steps that the gradient of a history reads. Nodes are shared: each is looked at once. */
static void find_past_reads(const CFile *f, NodeId id, bool *seen, Ids *out)
{
    const Node *n = cgen_node(&f->g, id);
    bool timed = n->kind == N_ARRAY && (n->dep & DEP_TIME);
    if (seen[id])
        return;
    seen[id] = true;
    if (timed)
        vec_push(f->g.arena, out, id);
    for (int i = 0; !timed && i < n->nargs; i++)
        find_past_reads(f, n->args[i], seen, out);
}

static Ids past_reads(const CFile *f, TensorId t)
{
    Ids out = { 0 };
    if (f->m->roots.data[t].dpast >= 0)
        find_past_reads(f, f->m->roots.data[t].dpast, arena_alloc(f->g.arena, (size_t)f->m->nodes.len + 1),
                        &out);
    return out;
}

static void *zeroed(CFile *f, size_t bytes)
{
    return arena_alloc(f->g.arena, bytes * (size_t)(f->m->nodes.len + 1));
}

static void want(Fun *fun, NodeId root)
{
    if (root >= 0)
        fun->computes[root] = true;
}

static bool is_zero_root(const CFile *f, NodeId root)
{
    if (root < 0)
        return true;
    const Node *n = cgen_node(&f->g, cgen_node(&f->g, root)->args[0]);
    return n->kind == N_CONST && n->value == 0;
}

/* The value of which a call leaves its steps in history t: whatever else reads it, or nothing. -1: there is none. */
static NodeId left_source(const CFile *f, TensorId t)
{
    return f->m->roots.data[t].last < 0 ? -1 : ir_history_source(f->m, t);
}

static void want_roots(CFile *f, Fun *fun)
{
    Module *m = f->m;
    for (NodeId id = 0; fun->kind == FUN_EARLIER && id < m->forward_nodes; id++)
        if (is_earlier(f, id))
            want(fun, id);
    for (TensorId t = 0; t < m->tensors.len; t++)
        switch (fun->kind) {
        case FUN_EARLIER: break;
        case FUN_PAST:
            want(fun, m->roots.data[t].dpast);
            break;
        case FUN_FORWARD:
            want(fun, m->roots.data[t].output);
            want(fun, m->roots.data[t].next);
            want(fun, left_source(f, t));
            break;
        case FUN_INITIAL:
            want(fun, m->roots.data[t].init);
            break;
        case FUN_BACKWARD:
            for (Ids reads = past_reads(f, t); reads.len;)
                want(fun, reads.data[--reads.len]);
            want(fun, m->roots.data[t].dinput);
            want(fun, m->roots.data[t].dprev);
            if (!is_zero_root(f, m->roots.data[t].dparam))
                want(fun, m->roots.data[t].dparam);
            break;
        case FUN_INITIAL_BACKWARD:
            if (!is_zero_root(f, m->roots.data[t].dparam_init))
                want(fun, m->roots.data[t].dparam_init);
            break;
        }
}

/* Twice: which reductions become arrays is known only after all of the function was seen. */
static void analyse(CFile *f, Fun *fun)
{
    f->kept = zeroed(f, sizeof(bool));
    f->g.kept = f->kept;
    fun->reads = zeroed(f, sizeof *fun->reads);
    fun->carried = zeroed(f, sizeof *fun->carried);
    for (int pass = 0; pass < 2; pass++) {
        fun->computes = zeroed(f, sizeof(bool));
        want_roots(f, fun);
        find_computed(f, fun);
    }
}

/* ---- which gradients need what */

static bool need_add(Need *to, const Need *from)
{
    bool more = false;
    for (int i = 0; i < SINK_WORDS; i++) {
        more |= (from->bit[i] & ~to->bit[i]) != 0;
        to->bit[i] |= from->bit[i];
    }
    return more;
}

static bool need_equal(const Need *a, const Need *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static void need_tensor(const CFile *f, Need *n, TensorId t)
{
    for (int i = 0; i < f->sinks.len; i++)
        if (f->sinks.data[i] == t)
            n->bit[i / 64] |= (uint64_t)1 << (i % 64);
}

/* One sweep from users to what they read; true if something changed in a state's adjoint, which the step
 * before reads. */
static bool need_sweep(CFile *f, Fun *fun)
{
    bool again = false;
    for (NodeId id = f->m->nodes.len - 1; id >= 0; id--) {
        if (!fun->computes[id])
            continue;
        for (int i = 0; i < fun->reads[id].len; i++)
            need_add(&fun->need[fun->reads[id].data[i]], &fun->need[id]);
        for (int i = 0; i < fun->carried[id].len; i++)
            again |= need_add(&fun->need[f->m->roots.data[fun->carried[id].data[i]].dprev], &fun->need[id]);
    }
    return again;
}

/* The states whose adjoint at the start a parameter's gradient through initial values reads. */
static void need_initial(CFile *f, Fun *fun)
{
    for (NodeId id = 0; id < f->m->nodes.len; id++) {
        const Node *n = cgen_node(&f->g, id);
        if (n->kind != N_LOAD || f->m->tensors.data[n->tensor].kind != T_DINIT)
            continue;
        for (TensorId t = 0; t < f->m->tensors.len; t++)
            if (f->m->roots.data[t].dparam_init >= 0)
                need_tensor(f, &fun->need[f->m->roots.data[f->m->tensors.data[n->tensor].of].dprev], t);
    }
}

static void find_needs(CFile *f, Fun *fun)
{
    Module *m = f->m;
    fun->need = zeroed(f, sizeof *fun->need);
    for (int i = 0; i < f->sinks.len; i++) {
        TensorId t = f->sinks.data[i];
        NodeId roots[] = { m->roots.data[t].dinput, m->roots.data[t].dparam, m->roots.data[t].dprev };
        for (int k = 0; k < 3; k++)
            if (roots[k] >= 0)
                need_tensor(f, &fun->need[roots[k]], t);
    }
    for (TensorId t = 0; t < m->tensors.len; t++)
        for (Ids reads = past_reads(f, t); reads.len;)
            need_tensor(f, &fun->need[reads.data[--reads.len]], t);
    need_initial(f, fun);
    while (need_sweep(f, fun))
        continue;
}

/* Nearly everything is needed whatever is wanted: then no condition is worth its line. */
static bool need_everything(const CFile *f, const Need *n)
{
    Need all = { { 0 } };
    for (int i = 0; i < f->sinks.len; i++)
        need_tensor(f, &all, f->sinks.data[i]);
    return need_equal(&all, n);
}

/* ---- members of Step */

static int add_member(CFile *f, const char *type, const char *wanted, const Poly *elements,
                      const char *comment)
{
    Member mem = {
        .type = type, .name = names_fresh(&f->g.names, wanted), .comment = comment, .elements = elements
    };
    vec_push(f->g.arena, &f->g.members, mem);
    return f->g.members.len - 1;
}

const Poly *step_elements(const CFile *f, TensorId t)
{
    return poly_product(f->m, f->m->tensors.data[t].axes, f->m->tensors.data[t].rank);
}

static const char *shape_comment(CFile *f, TensorId t, const char *what)
{
    const Tensor *x = &f->m->tensors.data[t];
    Buf b = { .arena = f->g.arena };
    buf_f(&b, "%s", what);
    for (int i = 0; i < x->rank; i++) {
        buf_f(&b, i ? ", " : " [");
        poly_print_spec(f->m, x->axes[i], &b);
    }
    buf_f(&b, x->rank ? "]" : "");
    return intern_n(f->m->c, b.data, b.len);
}

static const char *load_type(const Tensor *t)
{
    return t->dtype == DT_I32 ? "const int32_t *" : "const real *";
}

/* Names are given in this order, so that the user's own come first and keep their spelling. */
static void add_tensor_members(CFile *f)
{
    static const struct { TensorKind kind; const char *prefix, *what;
    } groups[] = {
        { T_INPUT, "", "input" },
        { T_PARAM, "", "param" },
        { T_STATE, "", "state before the step" },
        { T_HISTORY, "", "steps before the call, the latest first" },
        { T_DOUT, "dout_", "gradient into the output" },
        { T_DNEXT, "dnext_", "gradient into the state after the step" },
        { T_DINIT, "dinit_", "gradient into the initial state" },
        { T_DHISTORY, "dfinal_", "gradient into what the call leaves" },
    };
    Module *m = f->m;
    for (size_t k = 0; k < sizeof groups / sizeof *groups; k++)
        for (TensorId t = 0; t < m->tensors.len; t++) {
            const Tensor *x = &m->tensors.data[t];
            if (x->kind != groups[k].kind || x->starts)
                continue;
            const char *base = x->kind >= T_DOUT ? m->tensors.data[x->of].name : x->name;
            f->g.tensor_member[t] =
                add_member(f, load_type(x), intern_f(m->c, "%s%s", groups[k].prefix, base), NULL,
                           shape_comment(f, t, groups[k].what));
        }
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        if (x->kind == T_OUTPUT)
            f->out[t] = add_member(f, "real *", x->name, step_elements(f, t), shape_comment(f, t, "output"));
        if (x->kind == T_STATE)
            f->next[t] = add_member(f, "real *", intern_f(m->c, "%s_next", x->name), NULL,
                                    shape_comment(f, t, "state after the step"));
    }
}

static void add_gradient_members(CFile *f)
{
    Module *m = f->m;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        if (x->kind == T_STATE && m->roots.data[t].init >= 0)
            f->init[t] = add_member(f, "real *", intern_f(m->c, "%s_init", x->name), step_elements(f, t),
                                    "initial value; NULL in forward: the caller's");
        if (!m->has_grad)
            continue;
        if (x->kind == T_STATE)
            f->prev[t] = add_member(f, "real *", intern_f(m->c, "d_%s", x->name), NULL,
                                    "gradient of the state before the step");
        if (x->kind == T_INPUT && m->roots.data[t].dinput >= 0)
            f->out[t] = add_member(f, "real *", intern_f(m->c, "d_%s", x->name), step_elements(f, t),
                                   "gradient of the input at the step");
        if (x->kind == T_HISTORY && m->roots.data[t].dpast >= 0)
            f->out[t] = add_member(f, "real *", intern_f(m->c, "d_%s", x->name), step_elements(f, t),
                                   "gradient of the steps before the call");
        if (!wants_gradient(m, t))
            continue;
        f->grad[t] = add_member(f, "real *", intern_f(m->c, "grad_%s", x->name), NULL,
                                "where it goes, NULL: not wanted");
        vec_push(f->g.arena, &f->sinks, t);
    }
    if (f->sinks.len > MAX_SINKS)
        bug(m->c, "emit_c", "more than %d gradients", MAX_SINKS);
}

static void add_members(CFile *f)
{
    Module *m = f->m;
    for (int d = 0; d < m->dims.len; d++)
        f->g.dim_member[d] = add_member(f, "int64_t", m->dims.data[d], NULL, "size");
    add_tensor_members(f);
    add_gradient_members(f);
    Member time = { .type = "int64_t", .name = intern(m->c, "t"), .comment = "number of the step" };
    vec_push(f->g.arena, &f->g.members, time);
    f->g.time_member = f->g.members.len - 1;
}

/* ---- where each array of a function lives */

static void bind_root(CFile *f, NodeId root, int member)
{
    if (root >= 0 && member >= 0 && f->g.slot[root].member < 0)
        f->g.slot[root].member = member;
}

static void bind_roots(CFile *f)
{
    Module *m = f->m;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        bind_root(f, m->roots.data[t].next, f->next[t]);
        bind_root(f, m->roots.data[t].output, f->out[t]);
        bind_root(f, m->roots.data[t].init, f->init[t]);
        bind_root(f, m->roots.data[t].dinput, f->out[t]);
        bind_root(f, m->roots.data[t].dpast, f->out[t]);
        bind_root(f, m->roots.data[t].dprev, f->prev[t]);
    }
}

static bool is_param_root(const CFile *f, NodeId id)
{
    for (TensorId t = 0; t < f->m->tensors.len; t++)
        if (f->m->roots.data[t].dparam == id || f->m->roots.data[t].dparam_init == id)
            return true;
    return false;
}

static const char *kept_name(CFile *f, NodeId id)
{
    const char *op = cgen_node(&f->g, id)->reduce == R_SUM ? "sums" : "reduced";
    return cgen_node(&f->g, id)->name ? cgen_node(&f->g, id)->name : op;
}

const Poly *array_size(const CFile *f, NodeId id)
{
    const Node *n = cgen_node(&f->g, id);
    const Poly *extents[64];
    for (int i = 0; i < n->naxes; i++)
        extents[i] = f->m->indices.data[n->axes[i]].extent;
    return poly_product(f->m, extents, n->naxes);
}

static bool is_timed(const CFile *f, const Fun *fun, NodeId id)
{
    return f->timed[fun->kind != FUN_FORWARD][id];
}

/* The values of an array at all steps, of which the member `s` is one step's. */
static void bind_steps(CFile *f, NodeId id, Slot *s, const char *wanted)
{
    CGen *g = &f->g;
    s->local = NULL;
    if (s->member < 0)
        s->member = add_member(f, "real *", wanted, NULL, "");
    if (g->node_steps[id] >= 0)
        return;
    const Poly *all = poly_mul(f->m, poly_dim(f->m, ATOM_T), array_size(f, id));
    g->node_steps[id] = add_member(f, "real *", intern_f(f->m->c, "%s_steps", wanted), all, "at all steps");
}

static int computed(const CFile *f, const Fun *fun)
{
    int n = 0;
    for (NodeId id = 0; id < f->m->nodes.len; id++)
        n += fun->computes[id];
    return n;
}

/* Scalars are variables of the function, arrays get memory of their own, and so do scalars of a function in
 * parts; what a root writes is bound already. */
static void bind_arrays(CFile *f, Fun *fun)
{
    CGen *g = &f->g;
    bool parts = computed(f, fun) > MOST_IN_FUNCTION;
    for (NodeId id = 0; id < f->m->nodes.len; id++) {
        const Node *n = cgen_node(g, id);
        Slot *s = &g->slot[id];
        const char *wanted = n->kind == N_REDUCE ? kept_name(f, id) : n->name ? n->name : "value";
        bool timed = is_timed(f, fun, id);
        if (timed && (fun->computes[id] || (fun->kind == FUN_BACKWARD && is_earlier(f, id))))
            bind_steps(f, id, s, wanted);
        if (!fun->computes[id] || is_param_root(f, id) || timed)
            continue;
        if (s->member >= 0) {     /* kept for all steps in the other direction only */
            Member *mem = &g->members.data[s->member];
            mem->elements = g->node_steps[id] >= 0 && !mem->elements ? array_size(f, id) : mem->elements;
            continue;
        }
        s->local = n->naxes == 0 && !parts ? names_fresh(&g->names, wanted) : NULL;      /* not an earlier function's */
        if (!s->local)
            s->member = add_member(f, "real *", wanted, array_size(f, id), "");
    }
}

/* Values that adjoints are made of are read from the arrays that hold them: e.g. a sigmoid's output from its
 * equation. */
static void find_same(CFile *f, const Fun *fun)
{
    CGen *g = &f->g;
    bool backward = fun->kind == FUN_BACKWARD || fun->kind == FUN_INITIAL_BACKWARD;
    for (NodeId id = 0; id < f->m->nodes.len; id++)
        g->same_as[id] = -1;
    for (NodeId id = f->m->forward_nodes - 1; backward && id >= 0; id--) {
        const Node *n = cgen_node(g, id);
        if (n->kind != N_ARRAY || is_initial_root(f, id))
            continue;
        const Node *v = cgen_node(g, n->args[0]);
        if (v->naxes == n->naxes && (v->kind == N_MAP || v->kind == N_REDUCE))
            g->same_as[n->args[0]] = id;
    }
}

/* ---- printing a step function */

static const char *need_condition(CFile *f, const Need *n)
{
    Buf b = { .arena = f->g.arena };
    for (int i = 0; i < f->sinks.len; i++)
        if (n->bit[i / 64] >> (i % 64) & 1)
            buf_f(&b, "%s%s", b.len ? " || " : "", cgen_use(&f->g, f->grad[f->sinks.data[i]]));
    return b.len ? intern_n(f->m->c, b.data, b.len) : "false";
}

static const char *plain_name(CFile *f, NodeId id)
{
    const Node *n = cgen_node(&f->g, id);
    const Slot *s = &f->g.slot[id];
    return s->local         ? s->local
           : s->member >= 0 ? f->g.members.data[s->member].name
           : n->name        ? n->name
                            : "value";
}

static void print_comment(CFile *f, NodeId id)
{
    const Node *n = cgen_node(&f->g, id);
    if (n->kind == N_REDUCE)
        buf_line(f->g.out, "/* %s: part of the next one */", plain_name(f, id));
    else if (id < f->m->forward_nodes)
        buf_line(f->g.out, "/* %s */", source_place(f->m, n->span, true));
    else
        buf_line(f->g.out, "/* %s, of %s */", plain_name(f, id), source_place(f->m, n->span, true));
}

static TensorId tensor_of_root(const CFile *f, NodeId id, bool initial)
{
    for (TensorId t = 0; t < f->m->tensors.len; t++)
        if ((initial ? f->m->roots.data[t].dparam_init : f->m->roots.data[t].dparam) == id)
            return t;
    return -1;
}

/* The gradient of an input or of the state before the step: it belongs to no line of the spec. */
static bool is_tensor_root(const CFile *f, NodeId id)
{
    for (TensorId t = 0; t < f->m->tensors.len; t++) {
        const Roots *of = &f->m->roots.data[t];
        if (of->dinput == id || of->dprev == id || of->dpast == id)
            return true;
    }
    return false;
}

static void print_array(CFile *f, NodeId id, bool declare)
{
    CGen *g = &f->g;
    TensorId param = -1;
    for (int k = 0; k < 2 && param < 0; k++)
        param = tensor_of_root(f, id, k == 1);
    if (param >= 0) {
        buf_line(g->out, "/* gradient of %s */", f->m->tensors.data[param].name);
        cgen_nest(g, id, f->grad[param], "+=", false);
        return;
    }
    if (is_tensor_root(f, id))
        buf_line(g->out, "/* %s */", plain_name(f, id));
    else
        print_comment(f, id);
    cgen_nest(g, id, g->slot[id].member, "=", declare);
}

/* The condition under which the array is computed, NULL: always. */
static const char *array_condition(CFile *f, Fun *fun, NodeId id)
{
    for (int k = 0; k < 2; k++) {
        TensorId t = tensor_of_root(f, id, k == 1);
        if (t >= 0)
            return cgen_use(&f->g, f->grad[t]);
    }
    for (TensorId t = 0; t < f->m->tensors.len; t++)
        if (f->m->roots.data[t].dpast == id)
            return cgen_use(&f->g, f->grad[t]);
    for (TensorId t = 0; t < f->m->tensors.len; t++)
        if (f->m->roots.data[t].init == id && fun->kind == FUN_INITIAL)
            return cgen_use(&f->g, f->init[t]);
    if (!fun->need || need_everything(f, &fun->need[id]))
        return NULL;
    return need_condition(f, &fun->need[id]);
}

static void declare_scalars(CFile *f, const NodeId *ids, int n)
{
    for (int i = 0; i < n; i++)
        if (f->g.slot[ids[i]].local)
            buf_line(f->g.out, "real %s = 0;", f->g.slot[ids[i]].local);
}

/* Arrays under one condition, one after the other, share one if. */
static void print_arrays(CFile *f, Fun *fun, const NodeId *order, int n)
{
    for (int i = 0, end; i < n; i = end) {
        const char *cond = array_condition(f, fun, order[i]);
        for (end = i + 1; cond && end < n && array_condition(f, fun, order[end]) == cond; end++)
            continue;
        Block b;
        if (i)
            buf_line(f->g.out, "%s", "");
        if (cond) {
            declare_scalars(f, order + i, end - i);
            cgen_open(&f->g, &b);
        }
        for (int k = i; k < end; k++)
            print_array(f, order[k], !cond);
        if (cond)
            cgen_close(&f->g, &b, intern_f(f->m->c, "if (%s)", cond));
    }
}

static void print_copies(CFile *f)
{
    Module *m = f->m;
    for (TensorId t = 0; t < m->tensors.len; t++) {
        NodeId root = m->roots.data[t].next;
        if (root < 0 || f->g.slot[root].member == f->next[t])
            continue;
        buf_line(f->g.out, "memcpy(%s, %s, sizeof(real) * (size_t)%s);", cgen_use(&f->g, f->next[t]),
                 cgen_use(&f->g, f->g.slot[root].member), cgen_size(&f->g, step_elements(f, t), C_UNARY));
    }
}

/* Local names for the members of one type that the function uses, some per line. */
static void print_unpack(CFile *f, const char *type, Buf *out)
{
    bool pointer = strchr(type, '*') != NULL;
    int base = (int)strcspn(type, "*"), len = 0;
    while (base && type[base - 1] == ' ')
        base--;
    for (int i = 0; i < f->g.members.len; i++) {
        const Member *mem = &f->g.members.data[i];
        if (!mem->used || strcmp(mem->type, type) != 0)
            continue;
        const char *one =
            intern_f(f->m->c, "%s%s = step->%s", pointer ? "*const " : "", mem->name, mem->name);
        bool fresh = len == 0 || len + (int)strlen(one) > 100;
        if (len && fresh)
            buf_f(out, ";\n");
        if (fresh)
            buf_f(out, "    %s%.*s %s", pointer ? "" : "const ", base, type, one);
        else
            buf_f(out, ", %s", one);
        len = (fresh ? base + 10 : len + 2) + (int)strlen(one);
    }
    if (len)
        buf_f(out, ";\n");
}

/* A function's text is made first; then it is known which members it unpacks. */
static void begin_function(CFile *f, Buf *text)
{
    CGen *g = &f->g;
    for (int i = 0; i < g->members.len; i++)
        g->members.data[i].used = false;
    *text = (Buf){ .arena = g->arena, .indent = 1 };
    g->out = text;
    names_cut(&g->locals, 0);
    while (g->memo_stack.len)
        g->memo[g->memo_stack.data[--g->memo_stack.len]] = NULL;
}

/* `calls`: the text hands on `step`. */
static void end_function(CFile *f, const char *about, const char *name, const Buf *text, bool calls)
{
    static const char *const types[] = { "int64_t", "const real *", "const int32_t *", "real *" };
    Buf *out = &f->body;
    f->g.out = out;
    buf_f(out, "/* %s */\nstatic void %s(const Step *step)\n{\n", about, name);
    out->indent = 1;
    size_t before = out->len;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        print_unpack(f, types[i], out);
    if (out->len == before && !calls)
        buf_line(out, "(void)step;");
    bool apart = text->len && !(calls && out->len == before);
    buf_f(out, "%s%.*s}\n\n", apart ? "\n" : "", (int)text->len, text->data);
    out->indent = 0;
}

/* Arrays that are too many for one function are computed by several, in order: the time that a C compiler takes
 * grows with the square of a function's loops. They are called through a table, so that the compiler does not make
 * them one again. */
static void print_parts(CFile *f, Fun *fun, const NodeId *order, int n, Buf *calls)
{
    Module *m = f->m;
    int count = (n + MOST_IN_FUNCTION - 1) / MOST_IN_FUNCTION;
    const char *table = names_fresh(&f->g.names, intern_f(m->c, "%s_parts", fun->name)), *names = "";
    for (int k = 0; k < count; k++) {
        int first = k * MOST_IN_FUNCTION, left = n - first;
        const char *name = names_fresh(&f->g.names, intern_f(m->c, "%s_%d", fun->name, k));
        Buf text;
        begin_function(f, &text);
        print_arrays(f, fun, order + first, left < MOST_IN_FUNCTION ? left : MOST_IN_FUNCTION);
        end_function(f, intern_f(m->c, "Part %d of %s.", k, fun->name), name, &text, false);
        names = intern_f(m->c, "%s%s%s", names, k == 0 ? "" : k % 4 ? ", " : ",\n    ", name);
    }
    buf_f(&f->body, "static void (*const %s[])(const Step *step) = {\n    %s\n};\n\n", table, names);
    buf_line(calls, "for (int k = 0; k < %d; k++)", count);
    buf_line(calls, "    %s[k](step);", table);
}

static void print_function(CFile *f, Fun *fun)
{
    Ids order = { 0 };
    Buf text, calls = { .arena = f->g.arena, .indent = 1 };
    for (NodeId id = 0; id < f->m->nodes.len; id++)
        if (fun->computes[id])
            vec_push(f->g.arena, &order, id);
    if (order.len > MOST_IN_FUNCTION)
        print_parts(f, fun, order.data, order.len, &calls);
    begin_function(f, &text);
    if (calls.len)
        buf_f(&text, "%.*s", (int)calls.len, calls.data);
    else
        print_arrays(f, fun, order.data, order.len);
    if (fun->kind == FUN_FORWARD)
        print_copies(f);
    end_function(f, fun->about, fun->name, &text, calls.len);
}

static const Fun functions[] = {
    [FUN_FORWARD] = { .kind = FUN_FORWARD, .name = "step_forward", .about = "One step of one sequence." },
    [FUN_INITIAL] = { .kind = FUN_INITIAL, .name = "initial_state",
                      .about = "The states before the first step, where the caller gives none." },
    [FUN_EARLIER] = { .kind = FUN_EARLIER, .name = "step_earlier",
                      .about = "What other steps read of one step, for all steps before backward." },
    [FUN_BACKWARD] = { .kind = FUN_BACKWARD, .name = "step_backward",
                       .about = "The adjoint of one step: its values again, then their gradients." },
    [FUN_INITIAL_BACKWARD] = { .kind = FUN_INITIAL_BACKWARD, .name = "initial_backward",
                               .about = "What the params get through initial values." },
    [FUN_PAST] = { .kind = FUN_PAST, .name = "before_backward",
                   .about = "Gradients of the steps before the call, from the steps that read them." },
};

void step_function(CFile *f, FunKind kind)
{
    CGen *g = &f->g;
    Fun fun = functions[kind];
    find_same(f, &fun);
    analyse(f, &fun);
    if (kind == FUN_BACKWARD)
        find_needs(f, &fun);
    bind_arrays(f, &fun);
    print_function(f, &fun);
    for (NodeId id = 0; id < f->m->nodes.len; id++) {
        int own = is_timed(f, &fun, id) ? g->node_steps[id] : g->slot[id].member;
        if (fun.computes[id] && own >= 0 && g->members.data[own].elements)
            g->members.data[own].taken = true;
    }
}

/* ---- other steps */

/* Its name is kept for it, as that of the step is. */
static void add_count(CFile *f)
{
    Member steps = { .type = "int64_t", .name = intern(f->m->c, "T"), .comment = "number of steps" };
    vec_push(f->g.arena, &f->g.members, steps);
    f->g.dim_member[ATOM_T] = f->g.members.len - 1;
    f->g.start_member = add_member(f, "int64_t", "t0", NULL, "number of the first step");
}

static void mark_steps(CFile *f, NodeId id, bool *seen, bool *timed)
{
    const Node *n = cgen_node(&f->g, id);
    if (seen[id])
        return;
    seen[id] = true;
    if (n->step && n->kind == N_VIEW)
        timed[n->args[0]] = true;
    if (n->step && n->kind == N_LOAD)
        f->g.tensor_steps[n->tensor] = 0;
    for (int i = 0; i < n->nargs; i++)
        mark_steps(f, n->args[i], seen, timed);
}

/* What is read at other steps, by what the roots need; the number of steps has a member where that says so. */
static void find_timed(CFile *f)
{
    Module *m = f->m;
    for (int d = 0; d < 2; d++) {
        bool *seen = zeroed(f, sizeof *seen);
        f->timed[d] = zeroed(f, sizeof *f->timed[d]);
        for (TensorId t = 0; t < m->tensors.len; t++) {
            const Roots *of = &m->roots.data[t];
            const NodeId left = left_source(f, t), forward[] = { of->output, of->next, left };
            if (d == 0 && left >= 0)
                f->timed[0][left] = true;
            const NodeId backward[] = { of->dinput, of->dparam, of->dprev, of->dpast };
            for (int k = 0; k < 3 + d; k++)
                if ((d ? backward : forward)[k] >= 0)
                    mark_steps(f, (d ? backward : forward)[k], seen, f->timed[d]);
        }
    }
    f->earlier = zeroed(f, sizeof *f->earlier);
    for (NodeId id = 0; id < m->forward_nodes && m->has_grad; id++) {
        f->earlier[id] = f->timed[1][id] && !(cgen_node(&f->g, id)->dep & DEP_STATE);
        f->has_earlier |= f->earlier[id];
    }
    bool counted = m->c->lengths;
    for (NodeId id = 0; id < m->nodes.len; id++)
        counted |= cgen_node(&f->g, id)->step != NULL;
    for (int i = IX_FIRST; i < m->indices.len; i++)
        counted |= m->indices.data[i].extent == poly_dim(m, ATOM_T) ||
                   m->indices.data[i].extent == poly_dim(m, ATOM_PAST);
    if (counted)
        add_count(f);
    for (TensorId t = 0; t < m->tensors.len; t++) {
        if (f->g.tensor_steps[t] < 0)
            continue;
        const char *name = f->g.members.data[f->g.tensor_member[t]].name;
        f->g.tensor_steps[t] = add_member(f, load_type(&m->tensors.data[t]), intern_f(m->c, "%s_steps", name),
                                          NULL, "at all steps");
    }
}

static int *none(CFile *f, int n)
{
    int *to = arena_alloc(f->g.arena, sizeof *to * (size_t)(n + 1));
    for (int i = 0; i < n; i++)
        to[i] = -1;
    return to;
}

void step_begin(CFile *f, Module *m)
{
    CGen *g = &f->g;
    memset(f, 0, sizeof *f);
    f->m = g->m = m;
    g->c = m->c;
    g->arena = f->body.arena = m->arena;
    names_init(&g->names, m->c);
    words_take_reference(&g->names);
    g->locals = (Names){ .c = m->c, .beside = &g->names };
    g->tensor_member = none(f, m->tensors.len);
    f->grad = none(f, m->tensors.len);
    f->next = none(f, m->tensors.len);
    f->prev = none(f, m->tensors.len);
    f->init = none(f, m->tensors.len);
    f->out = none(f, m->tensors.len);
    g->tensor_steps = none(f, m->tensors.len);
    g->node_steps = none(f, m->nodes.len);
    g->dim_member = none(f, MAX_DIMS);
    g->slot = zeroed(f, sizeof *g->slot);
    g->same_as = zeroed(f, sizeof *g->same_as);
    g->memo = zeroed(f, sizeof *g->memo);
    g->memo_serial = zeroed(f, sizeof *g->memo_serial);
    g->where = zeroed(f, sizeof *g->where);
    g->stamp = zeroed(f, sizeof *g->stamp);
    g->env = arena_alloc(g->arena, sizeof *g->env * (size_t)(m->indices.len + 1));
    g->env_serial = arena_alloc(g->arena, sizeof *g->env_serial * (size_t)(m->indices.len + 1));
    g->inside = g->start_member = -1;
    for (NodeId id = 0; id < m->nodes.len; id++)
        g->slot[id].member = -1;
    for (TensorId t = 0; t < m->tensors.len; t++)
        f->has_init |= m->roots.data[t].init >= 0;
    add_members(f);
    find_timed(f);
    bind_roots(f);
}
