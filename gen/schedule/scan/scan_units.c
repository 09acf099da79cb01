/* scan_units.c: a thread's units and their elements. In comes a kernel of schedule scan that is built
 * (scan_kernel.h); out go its places on the axes of the units, locals for the elements that it has of a
 * value, and loops over them. What a unit has several elements of is an array of registers; two neighbours
 * of the units are a row of two in it. */
#include <string.h>

#include "ir/ops.h"
#include "plan/reads.h"
#include "scan_kernel.h"

bool scan_in_pairs(const ScanKernel *s)
{
    return s->w->pairs;
}

KirVar *scan_variable(ScanKernel *s, const char *name, KirScalar of)
{
    names_take(&s->k->locals, name);
    return kir_variable(s->kir, name, kir_value(of), false);
}

/* The places of a unit on its axes, as digits of its number. */
void scan_begin(ScanKernel *s)
{
    static const char *const rows[] = { "bt", "bt1", "bt2" };
    Kernel *k = s->k;
    int naxes = k->p->units->naxes;
    s->n = scan_variable(s, "n", KT_I64);
    s->b = scan_variable(s, "b", KT_I64);
    s->e = scan_variable(s, "e", KT_I64);
    s->t = scan_variable(s, "t", KT_I64);
    s->u = scan_variable(s, "u", KT_I32);
    s->q = scan_variable(s, "q", KT_I32);
    s->j = scan_variable(s, "j", KT_I32);
    for (int i = 0; i < 3; i++)
        s->rows[i] = scan_variable(s, rows[i], KT_I64);
    s->x->b = kir_var(s->kir, s->b);
    k->walk->units = k_node(k, s->g->arrays.data[0])->axes;
    KirBlock *outer = kir_enter(s->kir, &s->indices);
    code_split_element(s->x, k->walk->units, naxes, kir_var(s->kir, s->e), "i");
    kir_enter(s->kir, outer);
    for (int i = 0; i < naxes; i++)
        s->x->own[i] = s->x->index[k->walk->units[i]];
    if (!scan_in_pairs(s))
        return;
    s->first_of_pair = s->x->own[naxes - 1];
    s->x->own[naxes - 1] = s->pair = code_add(s->x, s->first_of_pair, kir_var(s->kir, s->q));
}

/* Of two, that which is built. */
static const IxExpr *unit(ScanKernel *s, int axis)
{
    Module *m = s->k->p->m;
    const Units *units = s->k->p->units;
    const IxExpr *i = ix_index(m, s->k->walk->units[axis]);
    bool last = scan_in_pairs(s) && axis == units->naxes - 1;
    return last ? ix_add(m, i, ix_index(m, units->pair)) : i;
}

void scan_bind_axes(ScanKernel *s, NodeId array)
{
    code_bind_axes(s->x, array);
    for (int i = 0; i < s->g->naxes; i++)
        s->k->walk->meaning[k_node(s->k, array)->axes[i]] = unit(s, i);
}

const KirExpr *scan_first_unit(Code *x, const KirExpr *index)
{
    const ScanKernel *s = x->of_schedule;
    return s->pair && kir_equal(index, s->pair) ? s->first_of_pair : index;
}

/* ---- loops over elements ---- */

void scan_open_loop(ScanKernel *s, KirVar *v, const KirExpr *limit)
{
    KirOpen o = kir_for_var(s->kir, v, code_int(s->x, 0), KB_LT, limit, code_int(s->x, 1));
    o.statement->n = -1;
    vec_push(s->kir->arena, &s->open, o);
}

void scan_close_loop(ScanKernel *s)
{
    kir_close(s->kir, s->open.data[--s->open.len]);
}

static bool name_is_taken(const ScanKernel *s, const char *name, int64_t extent, KirVar **var)
{
    for (int i = 0; i < s->inner_names.len; i++) {
        const InnerLoop *l = &s->inner_names.data[i];
        if (strcmp(s->inner_words.data[i], name) != 0)
            continue;
        for (int j = 0; j < s->inner.len; j++)
            if (s->inner.data[j].var == l->var)
                return true;
        *var = l->var;
        return l->extent != extent;
    }
    return false;
}

/* Loops of one extent share a variable where they may, so that equal reads are equal. */
void scan_open_inner(ScanKernel *s, IndexId i)
{
    Arena *arena = s->kir->arena;
    const Index *index = &s->k->p->m->indices.data[i];
    InnerLoop l = { .index = i, .extent = index->extent->value };
    const char *name = k_text(s->k, "n_%s", index->name);
    for (int n = 2; l.var = NULL, name_is_taken(s, name, l.extent, &l.var); n++)
        name = k_text(s->k, "n_%s_%d", index->name, n);
    if (!l.var) {
        l.var = kir_variable(s->kir, names_fresh(&s->k->locals, name), kir_value(KT_I64), false);
        vec_push(arena, &s->inner_names, l);
        vec_push(arena, &s->inner_words, name);
    }
    vec_push(arena, &s->inner, l);
    s->x->index[i] = kir_var(s->kir, l.var);
    s->k->walk->meaning[i] = ix_index(s->k->p->m, i);
    scan_open_loop(s, l.var, code_int(s->x, l.extent));
}

void scan_close_inner(ScanKernel *s)
{
    const InnerLoop *l = &s->inner.data[--s->inner.len];
    s->x->index[l->index] = NULL;
    s->k->walk->meaning[l->index] = NULL;
    scan_close_loop(s);
}

void scan_open_pair(ScanKernel *s)
{
    InnerLoop l = { s->k->p->units->pair, s->q, 2 };
    if (!scan_in_pairs(s))
        return;
    vec_push(s->kir->arena, &s->inner, l);
    scan_open_loop(s, s->q, code_int(s->x, 2));
}

void scan_close_pair(ScanKernel *s)
{
    if (!scan_in_pairs(s))
        return;
    s->inner.len--;
    scan_close_loop(s);
}

void scan_open_short_axes(ScanKernel *s, NodeId array)
{
    const Node a = *k_node(s->k, array);
    for (int i = s->k->p->units->naxes; i < a.naxes; i++)
        scan_open_inner(s, a.axes[i]);
}

void scan_close_short_axes(ScanKernel *s, NodeId array)
{
    for (int i = s->k->p->units->naxes; i < k_node(s->k, array)->naxes; i++)
        scan_close_inner(s);
}

void scan_open_elements(ScanKernel *s, NodeId array)
{
    scan_open_short_axes(s, array);
    scan_open_pair(s);
}

void scan_close_elements(ScanKernel *s, NodeId array)
{
    scan_close_pair(s);
    scan_close_short_axes(s, array);
}

const KirExpr *scan_open_each(ScanKernel *s, int64_t n)
{
    if (n > 1)
        scan_open_loop(s, s->j, code_int(s->x, n));
    scan_open_pair(s);
    return n > 1 ? kir_var(s->kir, s->j) : NULL;
}

void scan_close_each(ScanKernel *s, int64_t n)
{
    scan_close_pair(s);
    if (n > 1)
        scan_close_loop(s);
}

/* The loops around that a read's address depends on, by name: equal reads have them in one order. */
int scan_loops_of(ScanKernel *s, const IxExpr *e, InnerLoop *out)
{
    int n = 0;
    for (int i = 0; i < s->inner.len; i++) {
        InnerLoop l = s->inner.data[i];
        int at = n;
        if (!ix_uses(e, l.index))
            continue;
        for (; at > 0 && strcmp(out[at - 1].var->name, l.var->name) > 0; at--)
            out[at] = out[at - 1];
        out[at] = l;
        n++;
    }
    return n;
}

int64_t scan_loops_elements(const InnerLoop *l, int n)
{
    int64_t all = 1;
    for (int i = 0; i < n; i++)
        all *= l[i].extent;
    return all;
}

const KirExpr *scan_loops_place(ScanKernel *s, const InnerLoop *l, int n)
{
    const KirExpr *at = NULL;
    for (int i = 0; i < n; i++) {
        const KirExpr *v = kir_var(s->kir, l[i].var);
        at = at ? code_add(s->x, code_mul(s->x, at, code_int(s->x, l[i].extent)), v) : v;
    }
    return at;
}

void scan_open_loops(ScanKernel *s, const InnerLoop *l, int n)
{
    for (int i = 0; i < n; i++)
        scan_open_loop(s, l[i].var, code_int(s->x, l[i].extent));
}

void scan_close_loops(ScanKernel *s, int n)
{
    for (int i = 0; i < n; i++)
        scan_close_loop(s);
}

/* ---- locals ---- */

bool scan_is_one(const ScanKernel *s, int64_t elements)
{
    return elements == 1 && !scan_in_pairs(s);
}

const KirExpr *scan_declare(ScanKernel *s, const char *name, int64_t n, bool zero)
{
    KirScalar real = code_real(s->x);
    const KirExpr *two = code_int(s->x, 2), *each = code_int(s->x, n);
    if (scan_is_one(s, n))
        return kir_mutable(s->kir, name, real, zero ? code_int(s->x, 0) : NULL);
    if (!scan_in_pairs(s) || n == 1)
        return kir_array(s->kir, name, real, scan_in_pairs(s) ? two : each, zero);
    const KirExpr *rows = kir_array_of_arrays(s->kir, name, real, each, two);
    s->kir->at->data[s->kir->at->len - 1]->n = zero;
    return rows;
}

KirVar *scan_registers(ScanKernel *s, const char *name, KirScalar of)
{
    KirType type = { .of = of, .space = KS_REGISTERS, .written = true };
    return kir_variable(s->kir, name, type, true);
}

void scan_declare_registers(ScanKernel *s, KirVar *v, int64_t count)
{
    v->count = code_int(s->x, count);
    kir_add(s->kir, (KirStmt){ .kind = KI_ARRAY, .var = v });
}

KirVar *scan_registers_of_steps(ScanKernel *s, const char *name, KirScalar of)
{
    KirVar *v = scan_registers(s, name, of);
    v->rows = kir_unknown(s->kir, "steps", KT_I32);
    return v;
}

void scan_declare_of_steps(ScanKernel *s, KirVar *v, int64_t count)
{
    if (v->rows->kind == KX_VAR)
        kir_settle(v->rows, s->steps);
    scan_declare_registers(s, v, count);
}

const KirExpr *scan_local(ScanKernel *s, const KirExpr *local, const KirExpr *inner)
{
    const KirExpr *element = inner ? kir_element(s->kir, local, inner) : local;
    return scan_in_pairs(s) ? kir_element(s->kir, element, kir_var(s->kir, s->q)) : element;
}

const KirExpr *scan_inner_place(ScanKernel *s, const Read *r)
{
    const Plan *p = s->k->p;
    return scan_inner(p, r) == 1 ? NULL : ix_node(&s->x->printer, scan_inner_linear(p, r));
}

const KirExpr *scan_element(Code *x, const Read *r, const KirExpr *local)
{
    ScanKernel *s = x->of_schedule;
    return scan_local(s, local, scan_inner_place(s, r));
}

bool scan_is_state(const ScanKernel *s, TensorId state)
{
    return tensor_steps(&s->k->p->m->tensors.data[state]);
}

int scan_elements_of_state(const ScanKernel *s, TensorId state)
{
    const Tensor *x = &s->k->p->m->tensors.data[state];
    int64_t n = 1;
    for (int i = s->k->p->units->naxes; i < x->rank; i++)
        n *= x->axes[i]->value;
    return (int)n;
}

/* ---- two neighbours at once ---- */

static bool is_multiple(const Poly *e, int of)
{
    bool all = !e->is_const || e->value % of == 0;
    for (int i = 0; i < e->nterms; i++)
        all &= e->terms[i].coef % of == 0;
    return all;
}

/* Do units that begin at a multiple of `n` lie side by side there, n of them, and begin at such a place? */
static bool lie_together(const ScanKernel *s, const IxExpr *e, const Poly *pitch, int n)
{
    const Units *units = s->k->p->units;
    IndexId pair = units->pair, unit = s->k->walk->units[units->naxes - 1];
    bool side = false;
    const Poly *last_axis = units->axes[units->naxes - 1];
    if (!is_multiple(pitch, n) || !is_multiple(e->offset, n) || !is_multiple(last_axis, n))
        return false;
    for (int i = 0; i < e->nterms; i++) {
        const IxTerm *t = &e->terms[i];
        if (t->kind != IA_INDEX && (ix_uses(t->arg, pair) || ix_uses(t->arg, unit)))
            return false; /* neighbours are not neighbours there */
        bool own = t->kind == IA_INDEX, last = own && t->index == unit,
             one = t->coef->is_const && t->coef->value == 1;
        side |= own && t->index == pair && one;
        if ((own && t->index == pair) || last ? !one : !is_multiple(t->coef, n))
            return false;
    }
    return side;
}

/* An even place: then 2, or SCAN_WIDE, where so many do that begin at multiples of that. */
int scan_adjacent(Code *x, const IxExpr *place, const Poly *pitch)
{
    ScanKernel *s = x->of_schedule;
    const IxExpr *e = scan_in_pairs(s) ? walk_in_units(s->k, place) : NULL;
    return !e ? 0 : lie_together(s, e, pitch, SCAN_WIDE) ? SCAN_WIDE : lie_together(s, e, pitch, 2) ? 2 : 0;
}
