/* kernels.c: CUDA text of the kernels around the walk, and of a step's kernels where steps walk. In comes a
 * planned program; out goes one kernel per MAP, ROW and COLUMN group, with the list of pointers that it
 * takes. Nothing is decided here: what a kernel computes, over which rows, and where each value lies stands
 * in the plan. */
#include <stdlib.h>
#include <string.h>

#include "emit.h"
#include "mutate.h"
#include "plan.h"
#include "reads.h"

typedef struct Kernel {
    Plan *p;
    Program *pr;
    Group *g;
    RefVec *refs;
    Buf *out;
    const char *real;
    const char **index;           /* per index id: its text in the scope, or NULL */
    const char **value;           /* per node: the local that holds it in the scope, or NULL */
    const char *b, *t;            /* text of the batch element and the step */
    const char *row;              /* text of b*T + t where rows run over both, else NULL */
    bool one_step;                /* t comes from outside */
    /* texts of the group's axes, by position: ids are shared and rebound in between */
    const char *own[64];
    /* Wide loops: a thread takes `wide` neighbours along one index; reads and writes that are contiguous
     * there go as vectors before and after the loop over the neighbours, if all of `multiples` are
     * multiples of `wide` at run time. */
    int wide;                     /* 0: one element at a time */
    IndexId along;
    bool at_first;                /* print the loop's index as that of the first neighbour */
    Buf loads, stores;
    Vec(const char *) multiples, vectors;
    /* values computed before the neighbours: 2*id, and 2*id + 1 for a reciprocal */
    Vec(NodeId) hoisted;
    NodeId hoisting;
    Vec(const char *) given;      /* optional pointers that wide reads take for given */
    Vec(const char *) prefetches; /* statements, for the next step */
    int locals;                   /* numbers them: the same node may have one in several arrays */
    int depth;                    /* of arrays printed in place: locals are made at depth 0 only */
    int away;                     /* while another step's value is printed */
    ExprPrinter printer;
} Kernel;

static const Node *at(const Kernel *k, NodeId id)
{
    return &k->p->m->nodes.data[id];
}

static const char *text(Kernel *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static const char *text(Kernel *k, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    char *s = arena_alloc(k->p->m->arena, (size_t)n + 1);
    vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(args);
    va_end(again);
    return s;
}

static const char *cuda_type(Dtype t)
{
    switch (t) {
    case DT_F32: return "float";
    case DT_BF16: return "cell_bf16";
    case DT_F16: return "cell_f16";
    case DT_F64: return "double";
    case DT_I32: return "int32_t";
    }
    return "void";
}

/* ---- pointers ---- */

static int ref_number(Kernel *k, RefKind kind, int id)
{
    for (int i = 0; i < k->refs->len; i++)
        if (k->refs->data[i].kind == kind && k->refs->data[i].id == id)
            return i;
    Ref r = { kind, id };
    vec_push(k->p->m->arena, k->refs, r);
    return k->refs->len - 1;
}

/* The pointer as a typed expression; its number is fixed at its first use. */
static const char *pointer(Kernel *k, RefKind kind, int id, Dtype type)
{
    return text(k, "((%s *)args.ptr[%d])", cuda_type(type), ref_number(k, kind, id));
}

/* ---- addresses ---- */

/* Arrays of one group name the loop's index differently: they agree in its text. */
static bool runs_along(const Kernel *k, IndexId i)
{
    return i >= IX_FIRST && k->index[i] && k->index[k->along] && strcmp(k->index[i], k->index[k->along]) == 0;
}

static bool uses_along(const Kernel *k, const IxExpr *e)
{
    for (int i = 0; i < e->nterms; i++)
        if (e->terms[i].kind == IA_INDEX ? runs_along(k, e->terms[i].index) : uses_along(k, e->terms[i].arg))
            return true;
    return false;
}

/* The coefficient of the wide loop's index in an address: 0, 1, or something else (-1). What else the
 * address is made of must be a multiple of the width. */
static int wide_stride(Kernel *k, const IxExpr *lin, const Poly *pitch)
{
    int stride = 0;
    if (!k->wide || k->depth)
        return -1;
    for (int i = 0; i < lin->nterms; i++) {
        const IxTerm *t = &lin->terms[i];
        bool here = t->kind == IA_INDEX && runs_along(k, t->index);
        if (here && t->coef->is_const && t->coef->value == 1)
            stride = 1;
        else if (here || (t->kind != IA_INDEX && uses_along(k, t->arg)))
            return -1;
    }
    if (stride != 1)
        return stride;
    const Poly *parts[66];
    int n = 0;
    parts[n++] = pitch;
    parts[n++] = lin->offset;
    for (int i = 0; i < lin->nterms; i++)
        if (lin->terms[i].kind != IA_INDEX || !runs_along(k, lin->terms[i].index))
            parts[n++] = lin->terms[i].coef;
    for (int i = 0; i < n; i++) {
        const char *s = poly_text(&k->printer, parts[i]);
        bool known = parts[i]->is_const && parts[i]->value % k->wide == 0;
        for (int j = 0; j < k->multiples.len && !known; j++)
            known = strcmp(k->multiples.data[j], s) == 0;
        if (!known)
            vec_push(k->p->m->arena, &k->multiples, s);
    }
    return 1;
}

/* Text with the wide loop's index at its first neighbour. */
static const char *at_first(Kernel *k, const IxExpr *lin)
{
    k->at_first = true;
    const char *s = ix_text(&k->printer, lin);
    k->at_first = false;
    return s;
}

/* A vector read before the loop, one per address; gives the element of this neighbour. */
static const char *wide_read(Kernel *k, const char *where, const char *condition)
{
    int number = -1;
    for (int i = 0; i < k->vectors.len; i++)
        if (strcmp(k->vectors.data[i], where) == 0)
            number = i;
    if (number < 0) {
        number = k->vectors.len;
        vec_push(k->p->m->arena, &k->vectors, where);
        buf_line(&k->loads, "%s l%d[%d];", k->real, number, k->wide);
        buf_line(&k->loads, "cell_load_vec_ro<%d>(l%d, %s);", k->wide, number, where);
        bool known = !condition;
        for (int i = 0; i < k->given.len && !known; i++)
            known = strcmp(k->given.data[i], condition) == 0;
        if (!known)
            vec_push(k->p->m->arena, &k->given, condition);
    }
    return text(k, "l%d[u]", number);
}

/* A row of a buffer of batch elements and steps; a ring keeps some steps only, unless the call saves. */
static const char *buffer_row(Kernel *k, const Buffer *buffer, const char *b, const char *t)
{
    int ring = buffer && k->pr->dir == FORWARD ? buffer->ring : 0;
    if (ring == 0)
        return text(k, "(%s * dim_T + %s)", b, t);
    const char *kept = ring == 1 ? b : text(k, "%s * %d + %s %% %d", b, ring, t, ring);
    return buffer->reserve ? text(k, "(all ? %s * dim_T + %s : %s)", b, t, kept) : text(k, "(%s)", kept);
}

static const char *row_text(Kernel *k, const Storage *st)
{
    bool kept = st->home == HOME_WORKSPACE || st->home == HOME_RESERVE;
    if (st->batched && st->timed && k->row)
        return k->row;
    if (st->timed)
        return buffer_row(k, kept ? &k->p->buffers.data[st->slot] : NULL, st->batched ? k->b : "0", k->t);
    return st->batched ? k->b : "0";
}

static const Poly *elements_of(Kernel *k, const Read *r)
{
    return r->is_tensor ? tensor_elements(k->p->m, r->id) : array_elements(k->p->m, r->id);
}

static const IxExpr *storage_linear(Kernel *k, const Read *r, const Storage *st)
{
    Module *m = k->p->m;
    const IxExpr *lin = read_linear(m, r);
    return st->alias_offset ? ix_add(m, lin, ix_const(m, st->alias_offset)) : lin;
}

static const char *place_text(Kernel *k, const char *row, const Poly *pitch, const char *within)
{
    if (strcmp(row, "0") == 0)
        return within;
    return text(k, "%s * (%s) + %s", row, poly_text(&k->printer, pitch), within);
}

/* Values of all steps that were there before the walk: inputs, and what other phases or forward computed. */
static bool known_before(const Kernel *k, const Read *r)
{
    if (r->is_tensor)
        return true;
    return k->pr->phase[r->id] == PHASE_BEFORE || k->pr->phase[r->id] == PHASE_NONE;
}

/* Is the element there whatever condition the read stands under? What is asked for early is asked for without
 * it. */
static bool always_inside(Kernel *k, const Read *r)
{
    Module *m = k->p->m;
    for (int i = 0; i < r->nmap; i++) {
        const Poly *lo, *hi, *extent = r->is_tensor ? m->tensors.data[r->id].axes[i]
                                                    : m->indices.data[m->nodes.data[r->id].axes[i]].extent;
        if (!ix_range(m, r->map[i], &lo, &hi) || !poly_nonneg(lo) ||
            !poly_nonneg(poly_sub(m, poly_sub(m, extent, poly_const(m, 1)), hi)))
            return false;
    }
    return true;
}

/* Asks for the next step's element: it comes from memory while this step and the product behind it run. */
static void prefetch_next(Kernel *k, const Storage *st, const char *p, const Poly *pitch, const IxExpr *lin,
                          bool optional)
{
    const char *t = k->t;
    k->t = k->pr->dir == FORWARD ? text(k, "(%s + 1)", t) : text(k, "(%s - 1)", t);
    const char *where = text(k, "%s + %s", p, place_text(k, row_text(k, st), pitch,
                                                         ix_text(&k->printer, lin)));
    k->t = t;
    where = text(k, optional ? "if (%s) cell_prefetch(%s);" : "%.0scell_prefetch(%s);", p, where);
    for (int i = 0; i < k->prefetches.len; i++)
        if (strcmp(k->prefetches.data[i], where) == 0)
            return;
    vec_push(k->p->m->arena, &k->prefetches, where);
}

static void print_prefetches(Kernel *k)
{
    if (k->prefetches.len == 0)
        return;
    buf_line(k->out, k->pr->dir == FORWARD ? "if (%s + 1 < dim_T) {" : "if (%s > 0) {", k->t);
    for (int i = 0; i < k->prefetches.len; i++)
        buf_line(k->out, "    %s", k->prefetches.data[i]);
    buf_line(k->out, "}");
    k->prefetches.len = 0;
}

/* A read of storage that this kernel does not write: through a vector in a wide loop, else an element. */
static const char *load_storage(Kernel *k, const Read *r, const Storage *st, const char *p, bool optional)
{
    const IxExpr *lin = storage_linear(k, r, st);
    const Poly *pitch = st->pitch ? st->pitch : elements_of(k, r);
    const char *row = row_text(k, st);
    if (wide_stride(k, lin, pitch) == 1)
        return wide_read(k, text(k, "%s + %s", p, place_text(k, row, pitch, at_first(k, lin))),
                         optional ? p : NULL);
    const char *s = text(k, "cell_load_ro<%s>(%s + %s)", k->real, p,
                         place_text(k, row, pitch, ix_text(&k->printer, lin)));
    if (k->one_step && st->timed && k->depth == 0 && known_before(k, r) && always_inside(k, r))
        prefetch_next(k, st, p, pitch, lin, optional);
    return optional ? text(k, "(%s ? %s : (%s)0)", p, s, k->real) : s;
}

/* ---- reading values ---- */

static const char *print_in_place(Kernel *k, NodeId array, const IxExpr *const *map);

static const char *load_state(Kernel *k, const Read *r)
{
    Module *m = k->p->m;
    NodeId next = m->next.data[r->id];
    const Storage *st = &k->p->program[FORWARD].node[next];
    const Poly *n = tensor_elements(m, r->id);
    const char *e = ix_text(&k->printer, read_linear(m, r)), *size = poly_text(&k->printer, n);
    const char *row = buffer_row(k, &k->p->buffers.data[st->slot], k->b,
                                 mutate("late-load") ? k->t : text(k, "(%s - 1)", k->t));
    return text(k, "cell_load<%s>(%s > 0 ? %s + %s * %s + %s : %s + %s * %s + %s)",
                k->real,
                k->t, pointer(k, REF_NODE, next, st->dtype), row, size, e,
                pointer(k, REF_INITIAL, r->id, k->p->compute), k->b, size, e);
}

static const char *load_tensor(Kernel *k, const Read *r)
{
    Module *m = k->p->m;
    const Tensor *x = &m->tensors.data[r->id];
    const Storage *st = &k->pr->tensor[r->id];
    const char *size = poly_text(&k->printer, tensor_elements(m, r->id));
    const char *e = ix_text(&k->printer, read_linear(m, r));
    switch (x->kind) {
    case T_STATE: return load_state(k, r);
    case T_DNEXT:
        return text(k, "cell_load<%s>(%s + (((%s + %d) & 1) * dim_B + %s) * %s + %s)", k->real,
                    pointer(k, REF_CARRY, x->of, k->p->compute), k->t, !mutate("stale-adjoint"), k->b, size,
                        e);
    case T_DINIT:
        return text(k, "(args.ptr[%d] ? (%s)0 : cell_load<%s>(%s + %s * %s + %s))",
                    ref_number(k, REF_TENSOR, x->of), k->real, k->real,
                    pointer(k, REF_CARRY, x->of, k->p->compute),
                    k->b, size, e);
    case T_DOUT: return load_storage(k, r, st, pointer(k, REF_TENSOR, r->id, st->dtype), true);
    default: return load_storage(k, r, st, pointer(k, REF_TENSOR, r->id, st->dtype), false);
    }
}

/* A value of this very kernel at the reader's own indices is in a local, or is printed again where it is
 * used. */
static const char *load_array(Kernel *k, const Read *r)
{
    bool here = k->g && k->pr->group[r->id] >= 0 && &k->pr->groups.data[k->pr->group[r->id]] == k->g;
    if (here && k->value[r->id] && !k->away)
        return k->value[r->id];
    const Storage *st = &k->pr->node[r->id];
    if (here || st->home == HOME_NONE)
        return print_in_place(k, r->id, r->map);
    return load_storage(k, r, st, pointer(k, REF_NODE, r->id, st->dtype), false);
}

/* The map of a read of another step is the reader's: its step in there is an index that stands for it. */
static Read with_own_map(Kernel *k, const Read *r)
{
    Module *m = k->p->m;
    const IndexId time = IX_TIME;
    const IxExpr **map = arena_alloc(m->arena, sizeof *map * (size_t)(r->nmap + 1));
    Read own = *r;
    bool uses = false;
    for (int i = 0; i < r->nmap; i++)
        uses |= ix_uses(r->map[i], IX_TIME);
    if (!uses)
        return own;
    IndexId here = module_index(m, intern(m->c, "t"), poly_dim(m, ATOM_T));
    const IxExpr *to = ix_index(m, here);
    k->index = arena_grow(m->arena, k->index, sizeof *k->index * (size_t)here,
                          sizeof *k->index * (size_t)(here + 64));
    k->index[here] = text(k, "(t0 + %s)", k->t);
    for (int i = 0; i < r->nmap; i++)
        map[i] = ix_subst(m, r->map[i], &time, &to, 1);
    own.map = map;
    return own;
}

/* Another step's value: the same read with that step in place of this one. Nothing that is kept for this step
 * is used, and nothing is kept. */
static const char *load_at_step(Kernel *k, const Read *of)
{
    const char *t = k->t, *row = k->row;
    const Read own = with_own_map(k, of), *r = &own;
    if (!mutate("unmoved-step"))
        k->t = text(k, "(%s - t0)", ix_text(&k->printer, r->step));
    k->row = NULL;
    k->depth++;
    k->away++;
    const char *s = r->is_tensor ? load_tensor(k, r) : load_array(k, r);
    k->away--;
    k->depth--;
    k->t = t;
    k->row = row;
    return s;
}

static const char *leaf(ExprPrinter *e, NodeId id)
{
    Kernel *k = e->data;
    Read r;
    if (plan_resolve(k->p, id, &r))
        return r.step ? load_at_step(k, &r) : r.is_tensor ? load_tensor(k, &r) : load_array(k, &r);
    const Node *n = at(k, id);
    if (n->kind == N_ARRAY || n->kind == N_VIEW)
        return expr_text(e, at(k, n->kind == N_VIEW ? n->args[0] : id)->args[0]);
    bug(k->p->m->c, "kernels", "a reduction inside an expression");
}

/* In a wide loop: a value that is the same for all neighbours is computed once, before them. */
static bool same_for_all(const Kernel *k, const Node *n)
{
    for (int i = 0; i < n->naxes; i++)
        if (runs_along(k, n->axes[i]))
            return false;
    return k->wide && k->depth == 0 && n->type == TY_REAL;
}

static const char *hoist(Kernel *k, NodeId id, bool inverse)
{
    for (int i = 0; i < k->hoisted.len; i++)
        if (k->hoisted.data[i] == 2 * id + inverse)
            return text(k, "%s%d", inverse ? "inv" : "h", id);
    k->hoisting = id;
    const char *s = expr_text(&k->printer, id);
    k->hoisting = -1;
    NodeId key = 2 * id + inverse;
    vec_push(k->p->m->arena, &k->hoisted, key);
    if (inverse)
        buf_line(&k->loads, "const %s inv%d = cell_fast_div(1.0f, %s);", k->real, id, s);
    else
        buf_line(&k->loads, "const %s h%d = %s;", k->real, id, s);
    return text(k, "%s%d", inverse ? "inv" : "h", id);
}

static const char *known(ExprPrinter *e, NodeId id)
{
    Kernel *k = e->data;
    const Node *n = at(k, id);
    if (k->depth || n->kind != N_MAP)
        return NULL;
    if (k->value[id])
        return k->value[id];
    return id != k->hoisting && same_for_all(k, n) ? hoist(k, id, false) : NULL;
}

static const char *reciprocal(ExprPrinter *e, NodeId id)
{
    Kernel *k = e->data;
    return same_for_all(k, at(k, id)) ? hoist(k, id, true) : NULL;
}

static const char *index_text(ExprPrinter *e, IndexId i)
{
    Kernel *k = e->data;
    if (i == IX_TIME)
        return text(k, "(t0 + %s)", k->t);
    if (!k->index[i])
        bug(k->p->m->c, "kernels", "index %s is not in scope", k->p->m->indices.data[i].name);
    if (k->at_first && runs_along(k, i))
        return "e";
    return k->index[i];
}

static const char *print_in_place(Kernel *k, NodeId array, const IxExpr *const *map)
{
    Node a = *at(k, array);
    const char *inside[64], *before[64];
    for (int i = 0; i < a.naxes; i++)
        inside[i] = ix_text(&k->printer, map[i]);
    for (int i = 0; i < a.naxes; i++) {
        before[i] = k->index[a.axes[i]];
        k->index[a.axes[i]] = inside[i];
    }
    k->depth++;
    const char *s = expr_text(&k->printer, a.args[0]);
    k->depth--;
    for (int i = a.naxes - 1; i >= 0; i--)
        k->index[a.axes[i]] = before[i];
    return s;
}

/* ---- locals for what an expression uses more than once ---- */

static void count_uses(Kernel *k, NodeId id, int *uses)
{
    const Node *n = at(k, id);
    if (uses[id]++ > 0 || n->kind != N_MAP)
        return;
    for (int i = 0; i < n->nargs; i++)
        count_uses(k, n->args[i], uses);
}

typedef struct Named { NodeId *ids; int n; } Named;

static void name_shared(Kernel *k, NodeId id, const int *uses, bool *seen, Named *named)
{
    Node n = *at(k, id);
    if (seen[id])
        return;
    seen[id] = true;
    if (n.kind != N_MAP)
        return;
    for (int i = 0; i < n.nargs; i++)
        name_shared(k, n.args[i], uses, seen, named);
    if (uses[id] < 2 || n.type != TY_REAL || k->value[id] || same_for_all(k, &n))
        return;
    const char *name = text(k, "v%d_%d", id, k->locals++);
    buf_line(k->out, "const %s %s = %s;", k->real, name, expr_text(&k->printer, id));
    k->value[id] = name;
    named->ids[named->n++] = id;
}

static void forget(Kernel *k, Named *named)
{
    for (int i = 0; i < named->n; i++)
        k->value[named->ids[i]] = NULL;
    named->n = 0;
}

/* Prints locals for the shared parts of an array's body and gives the text of the whole. */
static const char *body_text(Kernel *k, NodeId body, Named *named)
{
    int n = k->p->m->nodes.len;
    int *uses = calloc((size_t)n, sizeof *uses);
    bool *seen = calloc((size_t)n, sizeof *seen);
    if (!uses || !seen)
        bug(k->p->m->c, "kernels", "out of memory");
    count_uses(k, body, uses);
    name_shared(k, body, uses, seen, named);
    free(uses);
    free(seen);
    const char *s = expr_text(&k->printer, body);
    return at(k, body)->type == TY_INT ? text(k, "(%s)(%s)", k->real, s) : s;
}

static Named named_new(Kernel *k)
{
    return (Named){ arena_alloc(k->p->m->arena, sizeof(NodeId) * (size_t)(k->p->m->nodes.len + 1)), 0 };
}

/* ---- writing values ---- */

static bool may_be_null(const Kernel *k, const Storage *st)
{
    if (st->home == HOME_ARG)
        return k->pr->dir == BACKWARD;
    return st->home == HOME_RESERVE && k->pr->dir == FORWARD && !k->p->buffers.data[st->slot].inference;
}

/* Stores the value of an array's element at the indices in scope, to all places where it is kept. */
static void store_next(Kernel *k, NodeId id, TensorId s, const char *value)
{
    Module *m = k->p->m;
    const Poly *n = tensor_elements(m, s);
    Read self = { .id = id, .nmap = at(k, id)->naxes };
    const IxExpr *map[64];
    for (int i = 0; i < self.nmap; i++)
        map[i] = ix_index(m, at(k, id)->axes[i]);
    self.map = map;
    const char *e = ix_text(&k->printer, read_linear(m, &self)), *size = poly_text(&k->printer, n);
    int before = k->pr->before[s];
    if (before >= 0) {
        Dtype type = k->p->buffers.data[before].dtype;
        buf_line(k->out, "if (%s + 1 < dim_T)", k->t);
        buf_line(k->out, "    cell_store(%s + %s * %s + %s, %s);", pointer(k, REF_BEFORE, s, type),
                 buffer_row(k, &k->p->buffers.data[before], k->b, text(k, "(%s + 1)", k->t)), size, e, value);
    }
    const char *final = pointer(k, REF_FINAL, s, k->p->compute);
    buf_line(k->out, "if (%s && %s + 1 == dim_T)", final, k->t);
    buf_line(k->out, "    cell_store(%s + %s * %s + %s, %s);", final, k->b, size, e, value);
}

static void store_array(Kernel *k, NodeId id, const char *value)
{
    Module *m = k->p->m;
    const Storage *st = &k->pr->node[id];
    TensorId of = -1;
    RootKind root = root_kind(m, id, &of);
    Read self = { .id = id, .nmap = at(k, id)->naxes };
    const IxExpr *map[64];
    for (int i = 0; i < self.nmap; i++)
        map[i] = ix_index(m, at(k, id)->axes[i]);
    self.map = map;
    if (root == ROOT_DPREV) {
        buf_line(k->out, "cell_store(%s + ((%s & 1) * dim_B + %s) * %s + %s, %s);",
                 pointer(k, REF_CARRY, of, k->p->compute), k->t, k->b,
                 poly_text(&k->printer, tensor_elements(m, of)),
                 ix_text(&k->printer, read_linear(m, &self)), value);
        return;
    }
    if (root == ROOT_NEXT && k->pr->dir == FORWARD)
        store_next(k, id, of, value);
    if (st->home == HOME_NONE)
        return;
    const char *p = pointer(k, REF_NODE, id, st->dtype), *row = row_text(k, st);
    const IxExpr *lin = storage_linear(k, &self, st);
    const Poly *pitch = st->pitch ? st->pitch : array_elements(m, id);
    if (root != ROOT_DPARAM_INIT && wide_stride(k, lin, pitch) == 1) {
        buf_line(&k->loads, "%s s%d[%d];", k->real, id, k->wide);
        buf_line(k->out, "s%d[u] = %s;", id, value);
        if (may_be_null(k, st))
            buf_line(&k->stores, "if (%s)", p);
        buf_line(&k->stores, "%scell_store_vec<%d>(%s + %s, s%d);", may_be_null(k, st) ? "    " : "",
                 k->wide, p,
                 place_text(k, row, pitch, at_first(k, lin)), id);
        return;
    }
    const char *where = text(k, "%s + %s", p, place_text(k, row, pitch, ix_text(&k->printer, lin)));
    if (may_be_null(k, st))
        buf_line(k->out, "if (%s)", p);
    bool adds = st->home == HOME_ARG && k->pr->dir == BACKWARD;
    const char *pad = may_be_null(k, st) ? "    " : "";
    if (root == ROOT_DPARAM_INIT)
        buf_line(k->out, "%scell_store(%s, cell_load<%s>(%s) + %s);", pad, where, k->real, where, value);
    else if (adds)
        buf_line(k->out,
                 "%scell_store(%s, args.flags & CELL_KERNEL_ACCUMULATE ? cell_load<%s>(%s) + %s : %s);", pad,
                 where, k->real, where, value, value);
    else
        buf_line(k->out, "%scell_store(%s, %s);", pad, where, value);
}

static bool is_stored(const Kernel *k, NodeId id)
{
    TensorId of;
    RootKind r = root_kind(k->p->m, id, &of);
    return k->pr->node[id].home != HOME_NONE || r == ROOT_DPREV || (r == ROOT_NEXT && k->pr->dir == FORWARD);
}

/* ---- frames ---- */

static void open_kernel(Kernel *k, const char *name, int threads)
{
    Module *m = k->p->m;
    k->printer.data = k;
    if (k->g && k->g->resident)
        buf_line(k->out, "extern \"C\" __global__ void __launch_bounds__(%d, %d)", threads, k->g->resident);
    else
        buf_line(k->out, "extern \"C\" __global__ void __launch_bounds__(%d)", threads);
    buf_line(k->out, "%s(const __grid_constant__ cell_kernel_args args)", name);
    buf_line(k->out, "{");
    k->out->indent++;
    if (k->g && k->g->phase == PHASE_DURING && k->pr->dir == BACKWARD)
        buf_line(k->out, "cell_dependency_wait();");
    buf_line(k->out, "[[maybe_unused]] const int64_t dim_B = args.size[0], dim_T = args.size[1];");
    for (int i = 0; i < m->dims.len; i++)
        buf_line(k->out, "[[maybe_unused]] const int64_t dim_%s = args.size[%d];", m->dims.data[i], 2 + i);
    buf_line(k->out, "[[maybe_unused]] const int64_t t0 = args.size[%d];", 2 + m->dims.len);
    bool rings = false;
    for (int i = 0; i < k->p->buffers.len; i++)
        rings |= k->p->buffers.data[i].ring && k->p->buffers.data[i].reserve;
    if (rings && k->pr->dir == FORWARD && (!k->g || k->g->phase == PHASE_DURING))
        buf_line(k->out, "[[maybe_unused]] const bool all = args.flags & CELL_KERNEL_SAVE;   // steps are kept");
}

static void close_kernel(Kernel *k)
{
    k->out->indent--;
    buf_line(k->out, "}");
    buf_f(k->out, "\n");
}

static void open_block(Kernel *k, const char *head)
{
    buf_line(k->out, "%s {", head);
    k->out->indent++;
}

static void close_block(Kernel *k)
{
    k->out->indent--;
    buf_line(k->out, "}");
}

/* b and t of a row number, as the group's rows run. */
static void split_row(Kernel *k, const char *row)
{
    k->one_step = k->g && k->g->phase == PHASE_DURING;
    k->b = "b";
    k->t = "t";
    k->row = k->g && k->g->batched && k->g->timed && !k->one_step ? row : NULL;
    if (k->g && k->g->batched && k->g->timed && !k->one_step)
        buf_line(k->out, "[[maybe_unused]] const int64_t b = %s / dim_T, t = %s %% dim_T;", row, row);
    else if (k->g && k->g->timed && !k->one_step)
        buf_line(k->out, "[[maybe_unused]] const int64_t b = 0, t = %s;", row);
    else
        buf_line(k->out, "[[maybe_unused]] const int64_t b = %s, t = %s;", k->g && !k->g->batched ? "0" : row,
                 k->one_step ? "args.t" : "0");
}

static const char *rows_text(Kernel *k)
{
    bool timed = k->g->timed && k->g->phase != PHASE_DURING;
    if (k->g->batched)
        return timed ? "dim_B * dim_T" : "dim_B";
    return timed ? "dim_T" : "1";
}

/* Names the axes after the user's indices, as digits of the element number e. The prefix keeps a loop's own
 * indices apart from those of the rows around it, which may have the same names. */
static void split_element(Kernel *k, const IndexId *axes, int n, const char *e, const char *prefix)
{
    Module *m = k->p->m;
    const Poly *stride = poly_const(m, 1);
    for (int i = n - 1; i >= 0; i--) {
        const char *name = text(k, "%s_%s", prefix, m->indices.data[axes[i]].name);
        for (int j = i + 1; j < n; j++)
            if (k->index[axes[j]] && strcmp(k->index[axes[j]], name) == 0)
                name = text(k, "%s_%d", name, i);
        const Poly *extent = m->indices.data[axes[i]].extent;
        const char *digit = e;
        if (!(stride->is_const && stride->value == 1))
            digit = text(k, "%s / (%s)", digit, poly_text(&k->printer, stride));
        if (i > 0)
            digit = text(k, "%s %% (%s)", digit, poly_text(&k->printer, extent));
        buf_line(k->out, "[[maybe_unused]] const int64_t %s = %s;", name, digit);
        k->index[axes[i]] = name;
        stride = poly_mul(m, stride, extent);
    }
}

static const char *product_text(Kernel *k, const Poly *const *axes, int n)
{
    const Poly *p = poly_const(k->p->m, 1);
    for (int i = 0; i < n; i++)
        p = poly_mul(k->p->m, p, axes[i]);
    return poly_text(&k->printer, p);
}

static void comment(Kernel *k, NodeId id)
{
    const char *place = source_place(k->p->m, at(k, id)->span, true);
    if (at(k, id)->name)
        buf_line(k->out, "// %s%s%s", at(k, id)->name, *place ? ", " : "", place);
    else if (*place)
        buf_line(k->out, "// part of %s", place);
}

/* ---- loops along one index ---- */

typedef struct Loop {
    IndexId along;                /* the index that runs; its text is "i_name" */
    const char *extent;
    const char *first;            /* text of the thread's number among those that share the loop */
    const char *step;             /* and how many they are */
    void (*body)(Kernel *k, void *data);
    void *data;
} Loop;

static int wide_of(const Kernel *k)
{
    return k->p->dtype == DT_F64 ? 2 : k->p->dtype == DT_F32 ? 4 : 8;
}

static void one_by_one(Kernel *k, const Loop *l)
{
    const char *name = text(k, "i_%s", k->p->m->indices.data[l->along].name);
    open_block(k, text(k, "for (int64_t e = %s; e < %s; e += %s)", l->first, l->extent, l->step));
    buf_line(k->out, "[[maybe_unused]] const int64_t %s = e;", name);
    k->index[l->along] = name;
    l->body(k, l->data);
    close_block(k);
}

/* The body printed for a vector of neighbours: what it reads and writes contiguously is collected around
 * it. */
static void by_vectors(Kernel *k, const Loop *l, Buf *inner)
{
    int wide = wide_of(k);
    const char *name = text(k, "i_%s", k->p->m->indices.data[l->along].name);
    open_block(k, text(k, "for (int64_t e = (%s) * %d; e < %s; e += (%s) * %d)", l->first, wide, l->extent,
                       l->step, wide));
    Buf *out = k->out, loads = { .arena = out->arena, .indent = out->indent }, stores = loads;
    *inner = (Buf){ .arena = out->arena, .indent = out->indent };
    k->out = inner;
    k->loads = loads;
    k->stores = stores;
    k->vectors.len = k->multiples.len = k->given.len = k->hoisted.len = 0;
    k->hoisting = -1;
    k->wide = wide;
    k->along = l->along;
    buf_line(k->out, "CELL_UNROLL");
    open_block(k, text(k, "for (int u = 0; u < %d; u++)", wide));
    buf_line(k->out, "[[maybe_unused]] const int64_t %s = e + u;", name);
    k->index[l->along] = name;
    l->body(k, l->data);
    close_block(k);
    k->wide = 0;
    k->out = out;
    buf_f(out, "%s%s%s", k->loads.data ? k->loads.data : "", inner->data,
          k->stores.data ? k->stores.data : "");
    close_block(k);
}

static void run_loop(Kernel *k, const Loop *l)
{
    Buf *out = k->out, wide = { .arena = out->arena, .indent = out->indent + 1 }, inner;
    if (k->one_step) {            /* a step is short of threads, not of bandwidth */
        one_by_one(k, l);
        return;
    }
    k->out = &wide;
    by_vectors(k, l, &inner);
    k->out = out;
    if (k->vectors.len == 0 && !k->stores.data) {
        one_by_one(k, l);
        return;
    }
    Buf test = { .arena = out->arena };
    buf_f(&test, "%s %% %d == 0", l->extent, wide_of(k));
    for (int i = 0; i < k->multiples.len; i++)
        if (strcmp(k->multiples.data[i], l->extent) != 0)
            buf_f(&test, " && (%s) %% %d == 0", k->multiples.data[i], wide_of(k));
    for (int i = 0; i < k->given.len; i++)
        buf_f(&test, " && %s", k->given.data[i]);
    if (k->pr->dir == BACKWARD && k->stores.data)
        buf_f(&test, " && !(args.flags & CELL_KERNEL_ACCUMULATE)");
    open_block(k, text(k, "if (%s)", test.data));
    buf_f(out, "%s", wide.data);
    k->out->indent--;
    buf_line(k->out, "} else {");
    k->out->indent++;
    one_by_one(k, l);
    close_block(k);
}

/* ---- MAP ---- */

/* Arrays of one group may name their axes differently: each position has one loop index. */
static void keep_axes(Kernel *k, NodeId first)
{
    for (int i = 0; i < k->g->naxes; i++)
        k->own[i] = k->index[at(k, first)->axes[i]];
}

static void bind_axes(Kernel *k, NodeId array)
{
    for (int i = 0; i < k->g->naxes; i++)
        k->index[at(k, array)->axes[i]] = k->own[i];
}

static void map_array(Kernel *k, NodeId id, Named *kept)
{
    Named named = named_new(k);
    bind_axes(k, id);
    comment(k, id);
    const char *v = body_text(k, at(k, id)->args[0], &named);
    buf_line(k->out, "const %s a%d = %s;", k->real, id, v);
    forget(k, &named);
    k->value[id] = text(k, "a%d", id);
    kept->ids[kept->n++] = id;
    if (is_stored(k, id))
        store_array(k, id, k->value[id]);
}

static void map_body(Kernel *k, void *data)
{
    Group *g = k->g;
    (void)data;
    keep_axes(k, g->arrays.data[0]);
    Named kept = named_new(k);
    for (int i = 0; i < g->arrays.len; i++)
        map_array(k, g->arrays.data[i], &kept);
    forget(k, &kept);
    print_prefetches(k);
}

/* Few elements a row: rows and elements are one range. */
static void emit_flat_map(Kernel *k)
{
    Group *g = k->g;
    open_block(k, text(k,
                       "for (int64_t n = cell_block_index(0) * %d + cell_thread(); n < rows * elements; n += "
                          "cell_block_count(0) * %d)", g->threads, g->threads));
    buf_line(k->out, "const int64_t row = n / elements;");
    buf_line(k->out, "[[maybe_unused]] const int64_t e = n - row * elements;");
    split_row(k, "row");
    split_element(k, at(k, g->arrays.data[0])->axes, g->naxes, "e", "i");
    map_body(k, NULL);
    close_block(k);
}

static void emit_map(Kernel *k)
{
    Group *g = k->g;
    NodeId first = g->arrays.data[0];
    open_kernel(k, g->kernel, g->threads);
    buf_line(k->out, "const int64_t rows = %s, elements = %s;", rows_text(k),
             product_text(k, g->axes, g->naxes));
    if (g->flat) {
        emit_flat_map(k);
        close_kernel(k);
        return;
    }
    open_block(k, "for (int64_t row = cell_block_index(1); row < rows; row += cell_block_count(1))");
    split_row(k, "row");
    const char *begin = text(k, "cell_block_index(0) * %d + cell_thread()", g->threads);
    const char *step = text(k, "cell_block_count(0) * %d", g->threads);
    if (g->naxes == 1) {
        Loop l = { at(k, first)->axes[0], "elements", begin, step, map_body, NULL };
        run_loop(k, &l);
    } else {
        open_block(k, text(k, "for (int64_t e = %s; e < elements; e += %s)", begin, step));
        split_element(k, at(k, first)->axes, g->naxes, "e", "i");
        map_body(k, NULL);
        close_block(k);
    }
    close_block(k);
    close_kernel(k);
}

/* ---- ROW ---- */

static const char *reduce_name(ReduceOp r)
{
    switch (r) {
    case R_MAX: return "max";
    case R_MIN: return "min";
    case R_PROD: return "prod";
    default: return "sum";
    }
}

static const char *reduce_start(Kernel *k, ReduceOp r)
{
    bool single = strcmp(k->real, "float") == 0;
    switch (r) {
    case R_MAX: return single ? "-CELL_INF_F" : "-CELL_INF";
    case R_MIN: return single ? "CELL_INF_F" : "CELL_INF";
    case R_PROD: return "1";
    default: return "0";
    }
}

static const char *reduce_join(Kernel *k, ReduceOp r, const char *a, const char *b)
{
    switch (r) {
    case R_MAX: return text(k, "cell_max(%s, %s)", a, b);
    case R_MIN: return text(k, "cell_min(%s, %s)", a, b);
    case R_PROD: return text(k, "%s * (%s)", a, b);
    default: return text(k, "%s + (%s)", a, b);
    }
}

/* A row's value is known from here on; one thread stores it. */
static void keep_scalar(Kernel *k, NodeId id, Named *kept)
{
    k->value[id] = text(k, "a%d", id);
    kept->ids[kept->n++] = id;
    if (!is_stored(k, id))
        return;
    open_block(k, "if (lane == 0)");
    store_array(k, id, k->value[id]);
    close_block(k);
}

/* Same depth (see order_row), so neither reads the other; same length. */
static bool shares_loop(const Kernel *k, int first, int other)
{
    const Group *g = k->g;
    NodeId a = g->arrays.data[first], b = g->arrays.data[other];
    const Node *r = at(k, at(k, a)->args[0]), *s = at(k, at(k, b)->args[0]);
    return at(k, b)->naxes == g->naxes && s->kind == N_REDUCE && s->nbound == 1 &&
        g->depth[first] == g->depth[other] &&
           k->p->m->indices.data[r->bound[0]].extent == k->p->m->indices.data[s->bound[0]].extent;
}

typedef struct ArrayRange { int begin, end; } ArrayRange;

static Node reduction_of(const Kernel *k, NodeId id)
{
    return *at(k, at(k, id)->args[0]);
}

static void row_terms(Kernel *k, void *data)
{
    const ArrayRange *range = data;
    IndexId along = reduction_of(k, k->g->arrays.data[range->begin]).bound[0];
    const char *here = k->index[along];
    for (int i = range->begin; i < range->end; i++) {
        NodeId id = k->g->arrays.data[i];
        Node r = reduction_of(k, id);
        bind_axes(k, id);
        if (r.nbound == 1)
            k->index[r.bound[0]] = here;
        comment(k, id);
        Named named = named_new(k);
        const char *v = body_text(k, r.args[0], &named);
        buf_line(k->out, "a%d = %s;", id, reduce_join(k, r.reduce, text(k, "a%d", id), v));
        forget(k, &named);
    }
}

/* Reductions along the same axis that do not wait for one another share a loop. */
static int row_reductions(Kernel *k, int begin, Named *kept)
{
    Group *g = k->g;
    Node first = reduction_of(k, g->arrays.data[begin]);
    const Poly *extents[64];
    int end = begin + 1;
    for (int i = 0; i < first.nbound; i++)
        extents[i] = k->p->m->indices.data[first.bound[i]].extent;
    while (first.nbound == 1 && end < g->arrays.len && shares_loop(k, begin, end))
        end++;
    ArrayRange range = { begin, end };
    const char *size = product_text(k, extents, first.nbound);
    for (int i = begin; i < end; i++)
        buf_line(k->out, "%s a%d = %s;", k->real, g->arrays.data[i],
                 reduce_start(k, reduction_of(k, g->arrays.data[i]).reduce));
    if (first.nbound == 1) {
        Loop l = { first.bound[0], size, "lane", text(k, "%d", g->lanes), row_terms, &range };
        run_loop(k, &l);
    } else {
        open_block(k, text(k, "for (int64_t e = lane; e < %s; e += %d)", size, g->lanes));
        split_element(k, first.bound, first.nbound, "e", "i");
        row_terms(k, &range);
        close_block(k);
    }
    for (int i = begin; i < end; i++) {
        NodeId id = g->arrays.data[i];
        Node r = reduction_of(k, id);
        for (int j = 0; j < r.nbound; j++)
            k->index[r.bound[j]] = NULL;
        buf_line(k->out, g->lanes == 32 ? "a%d = cell_warp_%s(a%d);" : "a%d = cell_block_%s(a%d, scratch);",
                 id,
                 reduce_name(r.reduce), id);
    }
    for (int i = begin; i < end; i++) {
        bind_axes(k, g->arrays.data[i]);
        keep_scalar(k, g->arrays.data[i], kept);
    }
    return end;
}

static void row_scalar(Kernel *k, NodeId id, Named *kept)
{
    comment(k, id);
    Named named = named_new(k);
    const char *v = body_text(k, at(k, id)->args[0], &named);
    buf_line(k->out, "const %s a%d = %s;", k->real, id, v);
    forget(k, &named);
    keep_scalar(k, id, kept);
}

static void row_elements(Kernel *k, void *data)
{
    const ArrayRange *range = data;
    Group *g = k->g;
    IndexId along = at(k, g->arrays.data[range->begin])->axes[g->naxes];
    const char *here = k->index[along];
    Named kept = named_new(k);
    for (int j = range->begin; j < range->end; j++) {
        NodeId id = g->arrays.data[j];
        bind_axes(k, id);
        k->index[at(k, id)->axes[g->naxes]] = here;
        if (!is_stored(k, id))
            continue;
        comment(k, id);
        Named named = named_new(k);
        const char *v = body_text(k, at(k, id)->args[0], &named);
        buf_line(k->out, "const %s a%d = %s;", k->real, id, v);
        forget(k, &named);
        k->value[id] = text(k, "a%d", id);
        kept.ids[kept.n++] = id;
        store_array(k, id, k->value[id]);
    }
    forget(k, &kept);
}

/* What is pointwise along the row: one loop for neighbours of the same extent; what nobody else reads is
 * not printed. */
static int row_vectors(Kernel *k, int i)
{
    Group *g = k->g;
    NodeId first = g->arrays.data[i];
    IndexId along = at(k, first)->axes[g->naxes];
    const Poly *extent = k->p->m->indices.data[along].extent;
    bool any = false;
    int end = i;
    while (end < g->arrays.len && at(k, g->arrays.data[end])->naxes > g->naxes &&
           k->p->m->indices.data[at(k, g->arrays.data[end])->axes[g->naxes]].extent == extent)
        any |= is_stored(k, g->arrays.data[end++]);
    if (!any)
        return end;
    ArrayRange range = { i, end };
    Loop l = { along, poly_text(&k->printer, extent), "lane", text(k, "%d", g->lanes), row_elements, &range };
    run_loop(k, &l);
    k->index[along] = NULL;
    return end;
}

static void emit_row(Kernel *k)
{
    Group *g = k->g;
    NodeId first = g->arrays.data[0];
    int per_block = g->threads / g->lanes;
    open_kernel(k, g->kernel, g->threads);
    if (g->lanes > 32) {
        buf_line(k->out, "auto cursor = cell_shared();");
        buf_line(k->out, "cell_smem<%s> scratch = cell_carve<%s>(cursor, 32);", k->real, k->real);
    }
    buf_line(k->out, "const int64_t rows = %s, elements = %s;", rows_text(k),
             product_text(k, g->axes, g->naxes));
    buf_line(k->out, "const int lane = cell_thread() %% %d;", g->lanes);
    open_block(k, text(k,
                       "for (int64_t n = cell_block_index(0) * %d + cell_thread() / %d; n < rows * elements; n += "
                          "cell_block_count(0) * %d)", per_block, g->lanes, per_block));
    buf_line(k->out, "const int64_t row = n / elements;");
    buf_line(k->out, "[[maybe_unused]] const int64_t r = n - row * elements;");
    split_row(k, "row");
    split_element(k, at(k, first)->axes, g->naxes, "r", "row");
    keep_axes(k, first);
    Named kept = named_new(k);
    for (int i = 0; i < g->arrays.len;) {
        NodeId id = g->arrays.data[i];
        bind_axes(k, id);
        if (at(k, id)->naxes == g->naxes && at(k, at(k, id)->args[0])->kind == N_REDUCE) {
            i = row_reductions(k, i, &kept);
        } else if (at(k, id)->naxes == g->naxes) {
            row_scalar(k, id, &kept);
            i++;
        } else {
            i = row_vectors(k, i);
        }
    }
    forget(k, &kept);
    k->prefetches.len = 0;            /* rows re-read from the cache */
    close_block(k);
    close_kernel(k);
}

/* ---- COLUMN ---- */

/* Adds the row's term to sum_ID[u]. */
static void column_term(Kernel *k, NodeId id)
{
    Node r = *at(k, at(k, id)->args[0]);
    IndexId inner[64];
    const Poly *extents[64];
    int n = 0;
    for (int i = 0; i < r.nbound; i++)
        if (r.bound[i] >= IX_FIRST) {
            extents[n] = k->p->m->indices.data[r.bound[i]].extent;
            inner[n++] = r.bound[i];
        }
    if (n) {
        open_block(k, text(k, "for (int64_t e = 0; e < %s; e++)", product_text(k, extents, n)));
        split_element(k, inner, n, "e", "i");
    }
    Named named = named_new(k);
    const char *v = body_text(k, r.args[0], &named);
    buf_line(k->out, "sum_%d[%s] += %s;", id, k->wide ? "u" : "0", v);
    forget(k, &named);
    if (n)
        close_block(k);
    for (int i = 0; i < n; i++)
        k->index[inner[i]] = NULL;
}

static void column_terms(Kernel *k)
{
    for (int i = 0; i < k->g->arrays.len; i++) {
        bind_axes(k, k->g->arrays.data[i]);
        comment(k, k->g->arrays.data[i]);
        column_term(k, k->g->arrays.data[i]);
    }
}

/* One chunk of rows for `width` neighbouring columns a thread: each part of the block sums every eighth
 * row, then the parts are added in order. */
static void column_chunk(Kernel *k, int width)
{
    Group *g = k->g;
    NodeId first = g->arrays.data[0];
    int parts = g->threads / COLUMN_WIDTH;
    buf_line(k->out, "const int64_t blocks = (columns + %d) / %d;", COLUMN_WIDTH * width - 1,
             COLUMN_WIDTH * width);
    open_block(k, "for (int64_t block = cell_block_index(0); block < blocks; block += cell_block_count(0))");
    buf_line(k->out, "const int64_t e = (block * %d + lane) * %d;", COLUMN_WIDTH, width);
    for (int i = 0; i < g->arrays.len; i++)
        buf_line(k->out, "%s sum_%d[%d] = {};", k->real, g->arrays.data[i], width);
    open_block(k, "if (e < columns)");
    if (width == 1) {
        split_element(k, at(k, first)->axes, g->naxes, "e", "col");
        keep_axes(k, first);
    }
    open_block(k, text(k, "for (int64_t row = begin + part; row < end; row += %d)", parts));
    split_row(k, "row");
    if (width == 1) {
        column_terms(k);
    } else {
        Buf *out = k->out, inner = { .arena = out->arena, .indent = out->indent };
        k->loads = (Buf){ .arena = out->arena, .indent = out->indent };
        k->vectors.len = k->multiples.len = k->given.len = k->hoisted.len = 0;
    k->hoisting = -1;
        k->wide = width;
        k->along = at(k, first)->axes[0];
        k->index[k->along] = "i_column";
        keep_axes(k, first);
        k->out = &inner;
        buf_line(k->out, "CELL_UNROLL");
        open_block(k, text(k, "for (int u = 0; u < %d; u++)", width));
        buf_line(k->out, "[[maybe_unused]] const int64_t i_column = e + u;");
        column_terms(k);
        close_block(k);
        k->out = out;
        k->wide = 0;
        buf_f(out, "%s%s", k->loads.data ? k->loads.data : "", inner.data);
    }
    close_block(k);
    close_block(k);
    for (int i = 0; i < g->arrays.len; i++) {
        open_block(k, text(k, "for (int u = 0; u < %d; u++)", width));
        buf_line(k->out, "scratch[cell_thread()] = sum_%d[u];", g->arrays.data[i]);
        buf_line(k->out, mutate("missing-barrier") ? "" : "cell_barrier();");
        open_block(k, "if (part == 0 && e < columns)");
        buf_line(k->out, "%s total = 0;", k->real);
        open_block(k, text(k, "for (int w = 0; w < %d; w++)", parts));
        buf_line(k->out, "const %s v = scratch[w * %d + lane];", k->real, COLUMN_WIDTH);
        buf_line(k->out, "total += v;");
        close_block(k);
        buf_line(k->out, "%s[(%d * chunks + chunk) * columns + e + u] = total;",
                 pointer(k, REF_BUFFER, g->partial, k->p->compute), i);
        close_block(k);
        buf_line(k->out, "cell_barrier();");
        close_block(k);
    }
    close_block(k);
}

static void emit_column_sums(Kernel *k)
{
    Group *g = k->g;
    open_kernel(k, g->kernel, g->threads);
    buf_line(k->out, "auto cursor = cell_shared();");
    buf_line(k->out, "cell_smem<%s> scratch = cell_carve<%s>(cursor, %d);", k->real, k->real, g->threads);
    buf_line(k->out, "const int64_t rows = %s, columns = %s;", rows_text(k),
             product_text(k, g->axes, g->naxes));
    buf_line(k->out, "const int64_t chunks = cell_block_count(1), chunk = cell_block_index(1);");
    buf_line(k->out, "const int64_t begin = rows * chunk / chunks, end = rows * (chunk + 1) / chunks%s;",
             mutate("lost-tail") ? " - (chunk + 1 == chunks)" : "");
    buf_line(k->out, "const int lane = cell_thread() %% %d, part = cell_thread() / %d;", COLUMN_WIDTH,
             COLUMN_WIDTH);
    Buf *out = k->out, wide = { .arena = out->arena, .indent = out->indent + 1 };
    k->out = &wide;
    if (g->naxes == 1)
        column_chunk(k, wide_of(k));
    k->out = out;
    if (g->naxes == 1 && k->vectors.len) {
        Buf test = { .arena = out->arena };
        buf_f(&test, "columns %% %d == 0", wide_of(k));
        for (int i = 0; i < k->multiples.len; i++)
            buf_f(&test, " && (%s) %% %d == 0", k->multiples.data[i], wide_of(k));
        for (int i = 0; i < k->given.len; i++)
            buf_f(&test, " && %s", k->given.data[i]);
        open_block(k, text(k, "if (%s)", test.data));
        buf_f(out, "%s", wide.data);
        k->out->indent--;
        buf_line(k->out, "} else {");
        k->out->indent++;
        column_chunk(k, 1);
        close_block(k);
    } else {
        column_chunk(k, 1);
    }
    close_kernel(k);
}

/* Second stage: each part of the block adds a run of chunks, then the parts are added in order. */
static void emit_column_totals(Kernel *k)
{
    Group *g = k->g;
    NodeId first = g->arrays.data[0];
    int parts = g->threads / COLUMN_WIDTH;
    k->refs = &g->refs_2;
    open_kernel(k, intern_f(k->p->m->c, "%s_2", g->kernel), g->threads);
    buf_line(k->out, "auto cursor = cell_shared();");
    buf_line(k->out, "cell_smem<%s> scratch = cell_carve<%s>(cursor, %d);", k->real, k->real, g->threads);
    buf_line(k->out, "const int64_t rows = %s, columns = %s;", rows_text(k),
             product_text(k, g->axes, g->naxes));
    buf_line(k->out, "const int64_t chunks = column_chunks(rows, columns);");
    buf_line(k->out, "const int lane = cell_thread() %% %d, part = cell_thread() / %d;", COLUMN_WIDTH,
             COLUMN_WIDTH);
    buf_line(k->out, "const int64_t begin = chunks * part / %d, end = chunks * (part + 1) / %d;", parts,
             parts);
    buf_line(k->out, "const int64_t blocks = (columns + %d) / %d;", COLUMN_WIDTH - 1, COLUMN_WIDTH);
    open_block(k, "for (int64_t block = cell_block_index(0); block < blocks; block += cell_block_count(0))");
    buf_line(k->out, "const int64_t column = block * %d + lane;", COLUMN_WIDTH);
    split_element(k, at(k, first)->axes, g->naxes, "column", "col");
    keep_axes(k, first);
    k->b = k->t = "0";
    k->row = NULL;
    for (int i = 0; i < g->arrays.len; i++) {
        NodeId id = g->arrays.data[i];
        bind_axes(k, id);
        buf_line(k->out, "%s part_%d = 0;", k->real, id);
        buf_line(k->out, "CELL_UNROLL_BY(8)");
        buf_line(k->out, "for (int64_t chunk = begin; chunk < end && column < columns; chunk++)");
        buf_line(k->out, "    part_%d += cell_load_ro<%s>(%s + (%d * chunks + chunk) * columns + column);",
                 id, k->real,
                 pointer(k, REF_BUFFER, g->partial, k->p->compute), i);
        buf_line(k->out, "scratch[cell_thread()] = part_%d;", id);
        buf_line(k->out, "cell_barrier();");
        open_block(k, "if (part == 0 && column < columns)");
        buf_line(k->out, "%s sum_%d = 0;", k->real, id);
        open_block(k, text(k, "for (int w = 0; w < %d; w++)", parts));
        buf_line(k->out, "const %s v = scratch[w * %d + lane];", k->real, COLUMN_WIDTH);
        buf_line(k->out, "sum_%d += v;", id);
        close_block(k);
        store_array(k, id, text(k, "sum_%d", id));
        close_block(k);
        buf_line(k->out, "cell_barrier();");
    }
    close_block(k);
    close_kernel(k);
}

/* ---- the states of schedule steps ---- */

static Kernel kernel_new(Plan *p, Program *pr, Group *g, RefVec *refs, Buf *out)
{
    Kernel k = { .p = p, .pr = pr, .g = g, .refs = refs, .out = out };
    k.real = p->compute == DT_F64 ? "double" : "float";
    k.index = arena_alloc(p->m->arena, sizeof *k.index * (size_t)(p->m->indices.len + 64));
    k.value = arena_alloc(p->m->arena, sizeof *k.value * (size_t)(p->m->nodes.len + 64));
    k.printer = (ExprPrinter){ .m = p->m, .real = k.real, .leaf = leaf, .index = index_text, .known = known,
                               .reciprocal = reciprocal,
                               .fast = p->dtype == DT_BF16 || p->dtype == DT_F16 };
    k.b = k.t = "0";
    return k;
}

static void open_state_kernel(Kernel *k, const char *name, TensorId s)
{
    open_kernel(k, name, 256);
    buf_line(k->out, "const int64_t elements = %s;", poly_text(&k->printer, tensor_elements(k->p->m, s)));
    open_block(k, "for (int64_t n = cell_block_index(0) * 256 + cell_thread(); n < dim_B * elements; n += "
                  "cell_block_count(0) * 256)");
}

static void emit_state_init(Plan *p, StateKernels *s, Buf *out)
{
    Module *m = p->m;
    Kernel k = kernel_new(p, &p->program[FORWARD], NULL, &s->refs[STATE_INIT], out);
    NodeId init = m->init.data[s->state];
    open_state_kernel(&k, s->name[STATE_INIT], s->state);
    buf_line(out, "[[maybe_unused]] const int64_t b = n / elements, e = n - b * elements;");
    const char *given = pointer(&k, REF_TENSOR, s->state, p->compute), *value = "0";
    if (init >= 0) {
        k.b = "b";
        split_element(&k, at(&k, init)->axes, at(&k, init)->naxes, "e", "i");
        Named named = named_new(&k);
        value = body_text(&k, at(&k, init)->args[0], &named);
        forget(&k, &named);
    }
    buf_line(out, "const %s value = %s ? %s[n] : (%s)%s;", k.real, given, given, k.real, value);
    buf_line(out, "%s[n] = value;", pointer(&k, REF_INITIAL, s->state, p->compute));
    int before = p->program[FORWARD].before[s->state];
    if (before >= 0) {
        buf_line(out, "if (dim_T > 0)");
        buf_line(out, "    cell_store(%s + %s * elements + e, value);",
                 pointer(&k, REF_BEFORE, s->state, p->buffers.data[before].dtype),
                 buffer_row(&k, &p->buffers.data[before], "b", "0"));
    }
    const char *final = pointer(&k, REF_FINAL, s->state, p->compute);
    buf_line(out, "if (dim_T == 0 && %s)", final);
    buf_line(out, "    %s[n] = value;", final);
    close_block(&k);
    close_kernel(&k);
}

static void emit_state_adjoint(Plan *p, StateKernels *s, Buf *out)
{
    Kernel k = kernel_new(p, &p->program[BACKWARD], NULL, &s->refs[STATE_SEED], out);
    open_state_kernel(&k, s->name[STATE_SEED], s->state);
    const char *given = pointer(&k, REF_DFINAL, s->state, p->compute);
    buf_line(out, "%s[(dim_T & 1) * dim_B * elements + n] = %s ? %s[n] : (%s)0;",
             pointer(&k, REF_CARRY, s->state, p->compute), given, given, k.real);
    close_block(&k);
    close_kernel(&k);
    k = kernel_new(p, &p->program[BACKWARD], NULL, &s->refs[STATE_RESULT], out);
    open_state_kernel(&k, s->name[STATE_RESULT], s->state);
    const char *result = pointer(&k, REF_DINIT, s->state, p->compute);
    const char *carried = pointer(&k, REF_CARRY, s->state, p->compute);
    buf_line(out, "if (%s)", result);
    buf_line(out, "    %s[n] = args.flags & CELL_KERNEL_ACCUMULATE ? %s[n] + %s[n] : %s[n];", result,
             result, carried,
             carried);
    close_block(&k);
    close_kernel(&k);
}

void emit_state_kernels(Plan *p, StateKernels *s, Buf *out)
{
    emit_state_init(p, s, out);
    emit_state_adjoint(p, s, out);
}

/* The number of chunks of a column sum, as the launch plan has it. */
void emit_column_chunks(Buf *out)
{
    buf_line(out, "// Chunks of rows whose sums are added in order; the launch plan has the same expression.");
    buf_line(out, "static __device__ __forceinline__ int64_t column_chunks(int64_t rows, int64_t columns)");
    buf_line(out, "{");
    buf_line(out, "    const int64_t spans = columns > %d ? (columns + %d) / %d : 1;", COLUMN_SPAN,
             COLUMN_SPAN - 1, COLUMN_SPAN);
    buf_line(out, "    int64_t chunks = (rows + %d) / %d;", COLUMN_ROWS - 1, COLUMN_ROWS);
    buf_line(out, "    chunks = chunks > %d ? %d : chunks;", COLUMN_CHUNKS, COLUMN_CHUNKS);
    buf_line(out, "    chunks = chunks > %d / spans ? %d / spans : chunks;", COLUMN_BLOCKS, COLUMN_BLOCKS);
    buf_line(out, "    return chunks > 1 ? chunks : 1;");
    buf_line(out, "}");
    buf_f(out, "\n");
}

void emit_kernels(Plan *p, Program *pr, Buf *out)
{
    for (int i = 0; i < pr->groups.len; i++) {
        Group *g = &pr->groups.data[i];
        Kernel k = kernel_new(p, pr, g, &g->refs, out);
        switch (g->kind) {
        case G_MAP: emit_map(&k); break;
        case G_ROW: emit_row(&k); break;
        case G_COLUMN:
            emit_column_sums(&k);
            emit_column_totals(&k);
            break;
        case G_GEMM: break;
        case G_WALK: buf_f(out, "%s", g->walk->cuda.data ? g->walk->cuda.data : ""); break;
        }
    }
}
