/* walk_read.c: what an expression of a step reads: where that lies, at which place, in terms of the
 * indices of the value that is computed. In comes a read of the IR, out goes a WalkRead, or the reason
 * why the CPU's walk cannot take it. */
#include "walk.h"

#include "emit/emit.h"

const char *walk_text(CpuWalk *w, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const char *s = arena_text(w->arena, fmt, args);
    va_end(args);
    return s;
}

void walk_refuse(CpuWalk *w, const Node *of, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const char *text = arena_text(w->arena, fmt, args);
    va_end(args);
    if (!w->refused)
        w->refused = of ? reason_of(w->m, of, "%s", text) : reason(w->m, "%s", text);
}

bool walk_is_index(const IxExpr *e, IndexId i)
{
    IndexId which;
    return i >= 0 && ix_is_index(e, &which) && which == i;
}

int64_t walk_padded(const CpuWalk *w, int64_t n)
{
    return (n + w->lanes - 1) / w->lanes * w->lanes;
}

bool walk_plain(const CpuWalk *w, Dtype d)
{
    return d == (w->is_double ? DT_F64 : DT_F32);
}

const char *walk_element(const CpuWalk *w, Dtype d)
{
    (void)w;
    switch (d) {
    case DT_BF16: return "bf16";
    case DT_F16: return "f16";
    case DT_F64: return "f64";
    case DT_I32: return "i32";
    case DT_E4M3: return "e4m3";
    case DT_E5M2: return "e5m2";
    default: return "f32";
    }
}

const char *walk_ctype(const CpuWalk *w, Dtype d)
{
    (void)w;
    switch (d) {
    case DT_BF16:
    case DT_F16: return "uint16_t";
    case DT_F64: return "double";
    case DT_I32: return "int32_t";
    case DT_E4M3: return "cell_e4m3";
    case DT_E5M2: return "cell_e5m2";
    default: return "float";
    }
}

int walk_ref(CpuWalk *w, RefKind kind, int id)
{
    for (int k = 0; k < w->refs.len; k++)
        if (w->refs.data[k].kind == kind && w->refs.data[k].id == id)
            return k;
    Ref r = { kind, id };
    vec_push(w->arena, &w->refs, r);
    if (w->refs.len > MAX_POINTERS)
        walk_refuse(w, NULL, "the walk needs more than %d arrays", MAX_POINTERS);
    return w->refs.len - 1;
}

const char *walk_name(CpuWalk *w, const char *base)
{
    return names_fresh(&w->names, base);
}

void walk_carve(CpuWalk *w, const char *name, int64_t elements)
{
    buf_line(&w->carves, "real *%s = (real *)scratch + %lld;", name, (long long)w->scratch);
    w->scratch += (elements + WALK_ALIGN - 1) / WALK_ALIGN * WALK_ALIGN;
}

/* ---- what lies where ---- */

static bool is_made(const CpuWalk *w, NodeId array)
{
    return w->walk->made && array < w->p->n_nodes && w->walk->made[array];
}

bool walk_stored(const CpuWalk *w, NodeId array)
{
    return array < w->p->n_nodes && !w->is_out[array] && !is_made(w, array) &&
           w->walk->of_node[array].home != HOME_NONE;
}

void walk_frame(CpuWalk *w, const WalkValue *v, WalkFrame *out)
{
    Module *m = w->m;
    out->n = v->naxes;
    out->from = m->nodes.data[v->array].axes;
    for (int k = 0; k < v->naxes; k++) {
        const WalkAxis *a = &v->axes[k];
        const IxExpr *own = a->own ? ix_index(m, a->local) : NULL;
        const IxExpr *par = a->par >= 0 ? ix_index(m, w->par[a->par]) : NULL;
        out->to[k] = !par ? own : !own ? par : ix_add(m, ix_scale(m, par, poly_const(m, a->n)), own);
    }
}

const IxExpr *walk_ix(CpuWalk *w, const WalkFrame *f, const IxExpr *e)
{
    return f && f->n ? ix_subst(w->m, e, f->from, f->to, f->n) : e;
}

static int state_number(const CpuWalk *w, TensorId t)
{
    for (int k = 0; k < w->states.len; k++)
        if (w->states.data[k].tensor == t)
            return k;
    return -1;
}

/* Of a state, or an array that is one's next value: behind the parallel axes, which must be the item's
 * own. */
static void own_maps(CpuWalk *w, WalkRead *r, const Node *of)
{
    for (int k = 0; k < w->npar; k++)
        if (!walk_is_index(r->map[k], w->par[k])) {
            walk_refuse(w, of,
                        "a state is read at another place along an axis whose places are walked apart");
            return;
        }
    r->n -= w->npar;
    for (int k = 0; k < r->n; k++)
        r->map[k] = r->map[w->npar + k];
}

static WalkRead read_tensor(CpuWalk *w, WalkRead r, const Node *n)
{
    const Tensor *x = &w->m->tensors.data[n->tensor];
    int state = state_number(w, x->kind == T_DNEXT ? x->of : n->tensor);
    if ((x->kind == T_STATE || x->kind == T_DNEXT) && state >= 0) {
        r.at = x->kind == T_STATE ? AT_STATE : AT_ADJOINT;
        r.id = state;
        own_maps(w, &r, n);
        return r;
    }
    r.at = AT_MEMORY;
    r.tensor = true;
    r.id = n->tensor;
    if (w->walk->of_tensor[n->tensor].home == HOME_NONE)
        walk_refuse(w, n, "`%s` is read, which lies nowhere", x->name);
    return r;
}

/* Of a value of the step, its own axes only. */
static void value_maps(CpuWalk *w, const WalkValue *v, WalkRead *r, const Node *of)
{
    Module *m = w->m;
    int n = 0;
    for (int k = 0; k < v->naxes; k++) {
        const WalkAxis *a = &v->axes[k];
        const IxExpr *e = r->map[k];
        if (a->par >= 0 && !a->own) {
            if (!walk_is_index(e, w->par[a->par]))
                walk_refuse(w, of,
                            "a value of the step is read at another place along an axis whose places are "
                            "walked apart");
            continue;
        }
        if (a->par >= 0) {
            e = ix_sub(m, e, ix_scale(m, ix_index(m, w->par[a->par]), poly_const(m, a->n)));
            if (ix_uses(e, w->par[a->par]))
                walk_refuse(w, of,
                            "a value of the step is read at another place along an axis whose places are "
                            "walked apart");
        }
        r->map[n++] = e;
    }
    r->n = n;
}

WalkRead walk_read(CpuWalk *w, const WalkStep *s, const WalkFrame *f, NodeId id)
{
    Node n = w->m->nodes.data[id];
    WalkRead r = { .at = AT_VALUE };
    r.n = n.kind == N_ARRAY ? n.naxes : n.nmap;
    if (r.n > WALK_AXES || n.step) {
        walk_refuse(w, &n, n.step ? "another step is read" : "a value has more than %d axes", WALK_AXES);
        r.n = 0;
        r.at = AT_PLACE;
        return r;
    }
    for (int k = 0; k < r.n; k++)
        r.map[k] = walk_ix(w, f, n.kind == N_ARRAY ? ix_index(w->m, n.axes[k]) : n.map[k]);
    if (n.kind == N_LOAD)
        return read_tensor(w, r, &n);
    NodeId array = n.kind == N_VIEW ? n.args[0] : id;
    r.id = array;
    if (walk_stored(w, array)) {
        r.at = AT_MEMORY;
        return r;
    }
    if (s && s->kind == WALK_BACK && array < w->p->n_nodes && w->after_of[array]) {
        r.at = AT_AFTER;
        r.id = w->after_of[array] - 1;
        own_maps(w, &r, &n);
        return r;
    }
    if (s && s->value_of && array < w->m->nodes.len && s->value_of[array]) {
        r.id = s->value_of[array] - 1;
        value_maps(w, &s->values.data[r.id], &r, &n);
        return r;
    }
    if (array < w->p->n_nodes && w->p->is_alias[array])
        r.at = AT_PLACE;
    return r;
}

WalkFrame walk_place_frame(CpuWalk *w, const WalkRead *r)
{
    WalkFrame f = { .n = r->n, .from = w->m->nodes.data[r->id].axes };
    for (int k = 0; k < r->n; k++)
        f.to[k] = r->map[k];
    return f;
}

void walk_each_read(CpuWalk *w, const WalkStep *s, const WalkFrame *f, NodeId id, WalkEach *each, void *data)
{
    Node n = w->m->nodes.data[id];
    if (n.kind == N_LOAD || n.kind == N_VIEW || n.kind == N_ARRAY) {
        WalkRead r = walk_read(w, s, f, id);
        if (w->refused)
            return;
        if (r.at == AT_PLACE) {
            WalkFrame inner = walk_place_frame(w, &r);
            walk_each_read(w, s, &inner, w->m->nodes.data[r.id].args[0], each, data);
        } else {
            each(data, &r, id);
        }
        return;
    }
    if (n.kind == N_REDUCE)
        walk_refuse(w, &n, "a sum stands inside an expression of the step");
    for (int k = 0; k < n.nargs && !w->refused; k++)
        walk_each_read(w, s, f, n.args[k], each, data);
}
