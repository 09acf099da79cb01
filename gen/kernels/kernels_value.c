/* kernels_value.c: what a kernel around the walk reads, computes and writes, as CUDA expressions and
 * statements. In come a kernel that is being printed, with the indices in scope, and values of the IR; out goes
 * text. Pointers get names after what lies there; a value of the kernel itself is in a local or is printed again
 * where it is used; in a wide loop contiguous elements come and go as vectors, and what is the same for all
 * neighbours is computed before them. */
#include <stdlib.h>
#include <inttypes.h>
#include <string.h>

#include "base/mutate.h"
#include "kernels.h"
#include "plan/reads.h"

/* ---- pointers ---- */

static const char *thing_name(Kernel *k, RefKind kind, int id)
{
    const Module *m = k->p->m;
    const char *of = kind == REF_NODE || kind == REF_ROOT ? k_node(k, id)->name
                     : kind == REF_BUFFER                 ? NULL : m->tensors.data[id].name;
    bool state = kind == REF_TENSOR && m->tensors.data[id].kind == T_STATE;
    switch (kind) {
    case REF_TENSOR:
        if (m->tensors.data[id].kind == T_DOUT)
            return k_text(k, "d_%s", m->tensors.data[m->tensors.data[id].of].name);
        return k_text(k, "%s%s", of, state ? "_given" : "");
    case REF_FINAL: return k_text(k, "%s_final", of);
    case REF_DFINAL: return k_text(k, "d_%s_final", of);
    case REF_DINIT: return k_text(k, "d_%s_init", of);
    case REF_INITIAL: return k_text(k, "%s_init", of);
    case REF_CARRY: return k_text(k, "d_%s_carried", of);
    case REF_BEFORE: return k_text(k, "%s_before", of);
    case REF_BUFFER:
        of = k->p->buffers.data[id].name;
        if (k->parts)
            return "parts";
        if (k->fused && (id == k->fused->maps || (k->fused->ahead && id == k->fused->made)))
            return id == k->fused->maps ? "maps" : "made";
        if (k->hooks->buffer && k->hooks->buffer(k, id))
            return k->hooks->buffer(k, id);
        return k->g && k->g->kind == G_SCATTER ? k_text(k, "%.*s", (int)strcspn(of, " "), of) : "partial";
    default: return of ? of : k_text(k, "v%d", id);
    }
}

static Pointer *pointer(Kernel *k, RefKind kind, int id, Dtype type)
{
    int i = 0;
    while (i < k->refs->len && (k->refs->data[i].kind != kind || k->refs->data[i].id != id))
        i++;
    if (i == k->refs->len) {
        Ref r = { kind, id };
        vec_push(k->p->m->arena, k->refs, r);
    }
    while (k->pointers.len <= i) {
        Ref r = k->refs->data[k->pointers.len];
        const char *name = k_text(k, "p_%s", thing_name(k, r.kind, r.id));
        Pointer p = { .name = names_fresh(&k->pointer_names, name), .type = type };
        vec_push(k->p->m->arena, &k->pointers, p);
    }
    return &k->pointers.data[i];
}

const char *k_pointer(Kernel *k, RefKind kind, int id, Dtype type)
{
    return pointer(k, kind, id, type)->name;
}

const char *k_written(Kernel *k, RefKind kind, int id, Dtype type)
{
    Pointer *p = pointer(k, kind, id, type);
    p->written = true;
    return p->name;
}

/* ---- addresses ---- */

/* Arrays of one group name the loop's index differently: they agree in its text. */
static bool runs_along(const Kernel *k, IndexId i)
{
    return i >= IX_FIRST && k->along && k->index[i] && strcmp(k->index[i], k->along) == 0;
}

/* An index of an array printed in place stands for an expression of the reader's. */
static bool mentions_along(const Kernel *k, IndexId i)
{
    return i >= IX_FIRST && k->along && k->index[i] && !runs_along(k, i) && strstr(k->index[i], k->along);
}

static bool uses_along(const Kernel *k, const IxExpr *e)
{
    for (int i = 0; i < e->nterms; i++)
        if (e->terms[i].kind == IA_INDEX
                ? runs_along(k, e->terms[i].index) || mentions_along(k, e->terms[i].index)
                : uses_along(k, e->terms[i].arg))
            return true;
    return false;
}

bool k_need_multiple(Kernel *k, const Poly *e)
{
    bool known = true;
    if (e->is_const)
        return e->value % k_width(k) == 0;
    for (int i = 0; i < e->nterms; i++)
        known &= e->terms[i].coef % k_width(k) == 0;
    for (int i = 0; i < k->multiples.len && !known; i++)
        known = k->multiples.data[i] == e;
    if (!known)
        vec_push(k->p->m->arena, &k->multiples, e);
    return true;
}

/* The coefficient of the wide loop's index in an address: 0, 1, or something else (-1). What else the
 * address is made of must be a multiple of the width. */
static int wide_stride(Kernel *k, const IxExpr *lin, const Poly *pitch)
{
    int stride = 0;
    if (!k->wide || k->away)
        return -1;
    for (int i = 0; i < lin->nterms; i++) {
        const IxTerm *t = &lin->terms[i];
        bool here = t->kind == IA_INDEX && runs_along(k, t->index);
        if (here && t->coef->is_const && t->coef->value == 1)
            stride = 1;
        else if (here || (t->kind == IA_INDEX ? mentions_along(k, t->index) : uses_along(k, t->arg)))
            return -1;
    }
    if (stride != 1)
        return stride;
    int before = k->multiples.len;
    bool can = k_need_multiple(k, pitch) && k_need_multiple(k, lin->offset);
    for (int i = 0; i < lin->nterms && can; i++)
        if (lin->terms[i].kind != IA_INDEX || !runs_along(k, lin->terms[i].index))
            can = k_need_multiple(k, lin->terms[i].coef);
    if (!can)
        k->multiples.len = before;
    return can ? 1 : -1;
}

/* Text with the wide loop's index at its first neighbour. */
static const char *at_first(Kernel *k, const IxExpr *lin)
{
    k->at_first = true;
    const char *s = ix_text(&k->printer, lin);
    k->at_first = false;
    return s;
}

/* The row of a buffer where time comes before batch. */
static const char *time_first_row(Kernel *k, const Buffer *buffer, int ring, int ahead)
{
    const char *step = k_time_row(k, k->t, ahead), *kept = ring > 1 ? k_text(k, "%s %% %d", step, ring) : "0";
    if (ring == 1 && !buffer->reserve)
        return k->b;
    if (ring && buffer->reserve)
        step = k_text(k, "(all ? %s : %s)", step, kept);
    else if (ring)
        step = kept;
    return k_text(k, "(%s * dim_B + %s)", step, k->b);
}

/* The row of a buffer of batch elements and steps; a ring keeps some steps only, unless the call saves. */
static const char *buffer_row(Kernel *k, const Buffer *buffer, int ahead)
{
    int ring = buffer && (k->pr->dir == FORWARD || !buffer->reserve) ? buffer->ring : 0;
    const char *more = ahead == 0 ? "" : (ahead > 0) != k->p->m->c->reverse ? " + 1" : " - 1";
    if (buffer && buffer->time_first)
        return time_first_row(k, buffer, ring, ahead);
    const char *row =
        k->row ? k->row : k_text(k, "(%s + %s)", k_first_row(k, k->b), k_bare(k, k_time_row(k, k->t, 0)));
    if (ring == 0)
        return *more ? k_text(k, "(%s%s)", row, more) : row;
    const char *kept = ring == 1 ? k->b : k_text(k, "%s * %d + %s %% %d", k->b, ring, k_time_row(k, k->t, ahead), ring);
    if (!buffer->reserve)
        return ring == 1 ? kept : k_text(k, "(%s)", kept);
    if (!*more && ring <= 2 && k->one_step && !k->away)
        return ring == 1 ? "bt1" : "bt2";
    return k_text(k, "(all ? %s%s : %s)", row, more, kept);
}

static const char *row_text(Kernel *k, const Storage *st)
{
    bool kept = st->home == HOME_WORKSPACE || st->home == HOME_RESERVE;
    if (st->timed && st->batched)
        return buffer_row(k, kept ? &k->p->buffers.data[st->slot] : NULL, 0);
    return st->batched ? k->b : st->timed ? k_time_row(k, k->t, 0) : "0";
}

const char *k_before_step(Kernel *k, TensorId s, int ahead)
{
    const Buffer *b = &k->p->buffers.data[k->pr->before[s]];
    return k_text(k, "%s + %s * %s", k_written(k, REF_BEFORE, s, b->dtype), buffer_row(k, b, ahead),
                  k_poly(k, tensor_elements(k->p->m, s)));
}

const char *k_step_row(Kernel *k, const Storage *st)
{
    bool one_step = k->one_step;
    k->one_step = false;          /* whose rows have names */
    const char *row = row_text(k, st);
    k->one_step = one_step;
    return row;
}

static const Poly *elements_of(Kernel *k, const Read *r)
{
    return r->is_tensor ? tensor_elements(k->p->m, r->id) : array_elements(k->p->m, r->id);
}

/* row * pitch + within, without what is 0 or 1. */
static const char *place_text(Kernel *k, const char *row, const Poly *pitch, const char *within)
{
    within = k_bare(k, within);
    if (k->hooks->place)
        within = k->hooks->place(k, within);
    if (strcmp(row, "0") == 0)
        return within;
    const char *start = pitch->is_const && pitch->value == 1
                            ? row : k_text(k, "%s * %s", row, k_poly(k, pitch));
    if (strcmp(within, "0") == 0)
        return start;
    /* What walks all steps has one thread's latency: the number of the element is worth computing once for all. */
    return k_text(k, k->hooks->names_places ? "(%s + %s)" : "%s + %s", start, within);
}

static const char *add_text(Kernel *k, const char *p, const char *offset)
{
    return strcmp(offset, "0") == 0 ? p : k_text(k, "%s + %s", p, offset);
}

/* ---- vectors ---- */

typedef struct Place {
    const char *pointer, *offset;
    Dtype type;
    bool optional;
} Place;

static int vector_of(Kernel *k, const Place *at)
{
    for (int i = 0; i < k->vectors.len; i++)
        if (k->vectors.data[i].pointer == at->pointer && strcmp(k->vectors.data[i].offset, at->offset) == 0)
            return i;
    Vector v = { .pointer = at->pointer, .offset = at->offset, .type = at->type, .optional = at->optional };
    v.name = names_fresh(&k->pointer_names, k_text(k, "v_%s", at->pointer + 2));
    vec_push(k->p->m->arena, &k->vectors, v);
    return k->vectors.len - 1;
}

/* A vector read before the loop over the neighbours, one per address; gives the element of this one. */
static const char *wide_read(Kernel *k, const Place *at)
{
    int number = vector_of(k, at);
    Vector *v = &k->vectors.data[number];
    for (int i = 0; i < k->here.len; i++)
        if (k->here.data[i] == number)
            return k_text(k, "%s[u]", v->name);
    vec_push(k->p->m->arena, &k->here, number);
    buf_line(&k->loads, "%s %s[%s];", k->real, v->name, k->n);
    buf_line(&k->loads,
             v->optional ? "cell_load_vec_or_zero<%s>(%s, %s, %s);" : "cell_load_vec_ro<%s>(%s, %s + %s);",
             k->n, v->name, v->pointer, v->offset);
    return k_text(k, "%s[u]", v->name);
}

/* ---- reading values ---- */

/* Values of all steps that were there before the walk: inputs, and what other phases or forward computed. */
bool k_known_before(const Kernel *k, const Read *r)
{
    if (r->is_tensor)
        return true;
    return k->pr->phase[r->id] == PHASE_BEFORE || k->pr->phase[r->id] == PHASE_NONE;
}

/* Does it use an index that stands for a place which only a condition keeps inside? */
static bool goes_beyond(const Kernel *k, const IxExpr *e)
{
    for (int i = 0; i < e->nterms; i++)
        if (e->terms[i].kind != IA_INDEX ? goes_beyond(k, e->terms[i].arg)
                                         : e->terms[i].index < k->indices && k->beyond[e->terms[i].index])
            return true;
    return false;
}

bool k_is_inside(const Kernel *k, const IxExpr *e, const Poly *extent)
{
    Module *m = k->p->m;
    const Poly *lo, *hi;
    return !goes_beyond(k, e) && ix_range(m, e, &lo, &hi) && poly_nonneg(lo) &&
           poly_nonneg(poly_sub(m, poly_sub(m, extent, poly_const(m, 1)), hi));
}

/* Is the element there whatever condition the read stands under? What is asked for early is asked for without
 * it. */
bool k_always_inside(Kernel *k, const Read *r)
{
    Module *m = k->p->m;
    for (int i = 0; i < r->nmap; i++)
        if (!k_is_inside(k, r->map[i],
                         r->is_tensor ? m->tensors.data[r->id].axes[i]
                                      : m->indices.data[m->nodes.data[r->id].axes[i]].extent))
            return false;
    return true;
}

/* Asks for the next step's element: it comes from memory while this step and the product behind it run. */
static void prefetch_next(Kernel *k, const Storage *st, const char *p, const Poly *pitch, const IxExpr *lin,
                          bool optional)
{
    bool forward = k->pr->dir == FORWARD;
    const char *t = k->t, *now = k->row;
    k->t = k_text(k, forward ? "(%s + 1)" : "(%s - 1)", t);
    k->row = now ? k_text(k, forward != k->p->m->c->reverse ? "(%s + 1)" : "(%s - 1)", now) : NULL;
    const char *place = place_text(k, row_text(k, st), pitch, ix_text(&k->printer, lin));
    const char *where = k_text(k, "%s + %s", p, place);
    k->t = t;
    k->row = now;
    where = k_text(k, optional ? "if (%s) cell_prefetch(%s);" : "%.0scell_prefetch(%s);", p, where);
    for (int i = 0; i < k->prefetches.len; i++)
        if (strcmp(k->prefetches.data[i], where) == 0)
            return;
    vec_push(k->p->m->arena, &k->prefetches, where);
}

static const char *read_before(const Kernel *k, const char *s)
{
    for (int i = 0; i < k->reads.len; i++)
        if (strcmp(k->reads.data[i].text, s) == 0)
            return k->reads.data[i].name;
    return NULL;
}

static const char *number_type(const Kernel *k, bool whole)
{
    return whole ? "int64_t" : k->real;
}

/* A read that is the same for all neighbours, before the loop. */
static const char *hoisted_read(Kernel *k, const char *p, const char *s, bool whole)
{
    RowRead r = { .text = s, .wanted = k_text(k, "r_%s", p + 2), .whole = whole };
    r.name = names_fresh(&k->locals, r.wanted);
    vec_push(k->p->m->arena, &k->reads, r);
    buf_line(&k->hoists, "const %s %s = %s;", number_type(k, whole), r.name, s);
    return r.name;
}

/* A read of an element in front of all that is computed and written there, so that none waits for another. */
static const char *early_read(Kernel *k, const Read *r, const char *p, const char *s, bool whole)
{
    if (!k->gathers || k->away || !k_always_inside(k, r) || (k->wide && strstr(s, k->along)))
        return s;
    const char *before = read_before(k, s);
    if (before)
        return before;
    if (k->hooks->early && !whole)
        return k->hooks->early(k, p, s);
    RowRead early = { .text = s, .name = names_fresh(&k->locals, k_text(k, "x_%s", p + 2)), .whole = whole };
    buf_line(&k->gathered, "const %s %s = %s;", number_type(k, whole), early.name, k_bare(k, s));
    vec_push(k->p->m->arena, &k->reads, early);
    return early.name;
}

/* A read of storage that this kernel does not write: through a vector in a wide loop, else an element. */
static const char *load_storage(Kernel *k, const Read *r, const Storage *st, const char *p, bool optional)
{
    const IxExpr *lin = storage_linear(k->p->m, r, st);
    const Poly *pitch = st->pitch ? st->pitch : elements_of(k, r);
    const char *row = row_text(k, st);
    bool whole = st->dtype == DT_I32;
    int stride = k->wide && k_always_inside(k, r) ? wide_stride(k, lin, pitch) : -1;
    stride = whole && stride > 0 ? -1 : stride;
    if (stride == 1) {
        Place at = { p, place_text(k, row, pitch, at_first(k, lin)), st->dtype, optional };
        return wide_read(k, &at);
    }
    bool half = st->dtype == DT_BF16 || st->dtype == DT_F16;
    const char *offset = place_text(k, row, pitch, ix_text(&k->printer, lin));
    bool known = k_known_before(k, r);
    const char *s = k_text(k, k->hooks->ahead && !known ? "cell_load<%s>(%s)" : "cell_load_ro<%s>(%s)",
                           number_type(k, whole), add_text(k, p, offset));
    if (k->hooks->ahead && whole)
        return optional ? k_text(k, "(%s ? %s : 0)", p, s) : s;
    if (k->hooks->ahead) {
        bool byte = dtype_is_fp8(st->dtype);
        const char *type = half   ? "uint32_t"
                           : byte ? k->real
                                  : k_type(st->dtype),
                   *at = add_text(k, p, offset);
        AheadRead as = { .type = type, .half = half ? k_type(st->dtype) : NULL, .timed = st->timed };
        as.text = half ? k_text(k, "cell_load_bits(%s)", at) : k_text(k, "cell_load_ro<%s>(%s)", type, at);
        as.from = optional ? p : at;
        as.offset = optional ? offset : NULL;
        if (optional)
            as.text = k_text(k, "(%s ? %s : 0)", p, as.text);
        s = optional ? k_text(k, "(%s ? %s : 0)", p, s) : s;
        return known ? k->hooks->ahead(k, r, s, &as) : s;
    }
    if (k->one_step && st->timed && !k->away && known && k_always_inside(k, r))
        prefetch_next(k, st, p, pitch, lin, optional);
    s = optional ? k_text(k, "(%s ? %s : 0)", p, s) : s;
    const char *name = k->away ? NULL : read_before(k, s);
    if (name)
        return name;
    return stride == 0 && !k->gathers ? hoisted_read(k, p, s, whole) : early_read(k, r, p, s, whole);
}

static const char *print_in_place(Kernel *k, NodeId array, const IxExpr *const *map);

/* The state of row k->b before the first step: a walk on chip (tile) has it as its first checkpoint. */
static const char *first_state(Kernel *k, TensorId t, const Poly *n, const char *e)
{
    const Plan *p = k->p;
    if (!p->schedule->on_chip)
        return k_text(k, "%s + %s", k_pointer(k, REF_INITIAL, t, p->compute), place_text(k, k->b, n, e));
    const char *row = module_starts(p->m) < 0
                          ? k_text(k, "%s * ((dim_T + %d) / %d)", k->b, p->interval - 1, p->interval)
                          : k_text(k, "(first_row / %d + %s)", p->interval, k->b);
    return k_text(k, "%s + %s", k_pointer(k, REF_CHECKPOINT, t, p->compute), place_text(k, row, n, e));
}

/* What the kernel before made: where one element is stored before the next is read, as such a read that may go first. */
static const char *carried_load(const Kernel *k)
{
    return k->g && k->g->along ? "cell_load_ro" : "cell_load";
}

static const char *held_value(Kernel *k, const Read *r)
{
    return k->hooks->held ? k->hooks->held(k, r) : NULL;
}

static const char *left_value(Kernel *k, NodeId id, const char *s, bool carried)
{
    return k->hooks->left ? k->hooks->left(k, id, s, carried) : s;
}

/* By the group that is printed, so that a thread finds what itself stored the step before. */
static bool is_made_here(const Kernel *k, NodeId id)
{
    return id >= 0 && k->pr->group[id] >= 0 && &k->pr->groups.data[k->pr->group[id]] == k->g;
}

static const char *saved_state(Kernel *k, const Read *r)
{
    Module *m = k->p->m;
    NodeId next = m->roots.data[r->id].next;
    const Storage *st = &k->p->program[FORWARD].node[next];
    const Poly *n = tensor_elements(m, r->id);
    const char *e = ix_text(&k->printer, read_linear(m, r));
    const char *before = buffer_row(k, &k->p->buffers.data[st->slot], mutate("late-load") ? 0 : -1);
    const char *p = k_pointer(k, REF_NODE, next, st->dtype);
    return k_text(k, "%s > 0 ? %s + %s : %s", k->t, p, place_text(k, before, n, e), first_state(k, r->id, n, e));
}

static const char *load_state(Kernel *k, const Read *r)
{
    Module *m = k->p->m;
    NodeId next = m->roots.data[r->id].next;
    const char *held = held_value(k, r);
    if (held)
        return held;
    const char *from = saved_state(k, r), *s = k_text(k, "%s<%s>(%s)", carried_load(k), k->real, from);
    AheadRead as = { .text = s, .type = k->real, .from = from, .timed = true };
    if (k->hooks->ahead)
        return k->pr->dir == BACKWARD || is_made_here(k, next) ? k->hooks->ahead(k, r, s, &as) : s;
    return early_read(k, r, k_text(k, "p_%s", m->tensors.data[r->id].name), s, false);
}

/* Element by element: a condition on the step stands before it. */
static const char *load_history(Kernel *k, const Read *r, const Storage *st)
{
    k->depth++;
    const char *s = load_storage(k, r, st, k_pointer(k, REF_TENSOR, r->id, st->dtype), true);
    k->depth--;
    return s;
}

static const char *load_tensor(Kernel *k, const Read *r)
{
    Module *m = k->p->m;
    const Tensor *x = &m->tensors.data[r->id];
    const Storage *st = &k->pr->tensor[r->id];
    const Poly *n = tensor_elements(m, r->id);
    const char *e = ix_text(&k->printer, read_linear(m, r));
    switch (x->kind) {
    case T_STATE: return load_state(k, r);
    case T_DNEXT: {
        NodeId carried = m->roots.data[x->of].dprev;
        const char *held = held_value(k, r);
        if (held)
            return held;
        const char *half = k_text(k, mutate("stale-adjoint") ? "((%s & 1) * dim_B + %s)"
                                                             : "(((%s + 1) & 1) * dim_B + %s)", k->t, k->b);
        const char *p = k_pointer(k, REF_CARRY, x->of, k->p->compute);
        const IxExpr *lin = read_linear(m, r);
        if (k->wide && k_always_inside(k, r) && wide_stride(k, lin, n) == 1) {
            Place at = { p, place_text(k, half, n, at_first(k, lin)), k->p->compute, false };
            return wide_read(k, &at);
        }
        const char *s = k_text(k, "%s<%s>(%s + %s)", carried_load(k), k->real, p, place_text(k, half, n, e));
        AheadRead as = { .text = s, .type = k->real, .timed = true };
        if (k->hooks->ahead)
            return is_made_here(k, carried) ? k->hooks->ahead(k, r, s, &as) : left_value(k, carried, s, true);
        return early_read(k, r, p, s, false);
    }
    case T_DINIT: {
        const char *given = k_pointer(k, REF_TENSOR, x->of, k->p->compute);
        return k_text(k, "(%s ? 0 : cell_load<%s>(%s + %s))", given, k->real,
                      k_pointer(k, REF_CARRY, x->of, k->p->compute), place_text(k, k->b, n, e));
    }
    case T_HISTORY: case T_DHISTORY: return load_history(k, r, st);
    case T_DOUT: return load_storage(k, r, st, k_pointer(k, REF_TENSOR, r->id, st->dtype), true);
    default: return load_storage(k, r, st, k_pointer(k, REF_TENSOR, r->id, st->dtype), false);
    }
}

/* A value of this very kernel at the reader's own indices is in a local, or is printed again where it is
 * used. */
static const char *load_array(Kernel *k, const Read *r)
{
    bool here = k->g && k->pr->group[r->id] >= 0 && &k->pr->groups.data[k->pr->group[r->id]] == k->g;
    if (here && k->value[r->id] && !k->away)
        return k->value[r->id];
    const char *held = held_value(k, r);
    if (held)
        return held;
    const Storage *st = &k->pr->node[r->id];
    if (here || st->home == HOME_NONE || (k->g && plan_rematerialises(k->p, k->pr, k->g->phase, r->id)))
        return print_in_place(k, r->id, r->map);
    const char *s = load_storage(k, r, st, k_pointer(k, REF_NODE, r->id, st->dtype), false);
    return left_value(k, r->id, s, false);
}

IndexId k_readers_step(Module *m, Read *r)
{
    const IndexId time = IX_TIME;
    bool uses = false;
    for (int i = 0; i < r->nmap; i++)
        uses |= ix_uses(r->map[i], IX_TIME);
    if (!uses)
        return -1;
    const IxExpr **map = arena_alloc(m->arena, sizeof *map * (size_t)r->nmap);
    IndexId here = module_index(m, intern(m->c, "t"), poly_dim(m, ATOM_T));
    const IxExpr *to = ix_index(m, here);
    for (int i = 0; i < r->nmap; i++)
        map[i] = ix_subst(m, r->map[i], &time, &to, 1);
    r->map = map;
    return here;
}

Read k_past(Module *m, const Read *of)
{
    const IxExpr **map = arena_alloc(m->arena, sizeof *map * (size_t)(of->npast + 2));
    map[0] = ir_history_place(m, of->past, of->step);
    for (int i = 0; i < of->npast; i++)
        map[1 + i] = of->past_map[i];
    return (Read){ .is_tensor = true, .id = of->past, .nmap = of->npast + 1, .map = map };
}

/* The index stands for the reader's step, as k->t has it before the read goes to another. */
static void bind_readers_step(Kernel *k, IndexId here)
{
    Module *m = k->p->m;
    if (here >= k->indices) {
        k->index = arena_grow(m->arena, k->index, sizeof *k->index * (size_t)k->indices,
                              sizeof *k->index * (size_t)(here + 64));
        memset(k->index + k->indices, 0, sizeof *k->index * (size_t)(here + 64 - k->indices));
        k->beyond = arena_grow(m->arena, k->beyond, sizeof *k->beyond * (size_t)k->indices,
                               sizeof *k->beyond * (size_t)(here + 64));
        memset(k->beyond + k->indices, 0, sizeof *k->beyond * (size_t)(here + 64 - k->indices));
        k->indices = here + 64;
    }
    k->index[here] = k_text(k, "(t0 + %s)", k->t);
}

/* The value of a step before the call. */
static const char *load_past(Kernel *k, const Read *of)
{
    Read r = k_past(k->p->m, of);
    return load_history(k, &r, &k->pr->tensor[of->past]);
}

/* Another step's value: the same read with that step in place of this one. Nothing that is kept for this step
 * is used, and nothing is kept. */
static const char *load_at_step(Kernel *k, const Read *of)
{
    const char *t = k->t, *row = k->row, *past = of->past >= 0 ? load_past(k, of) : NULL;
    Read own = *of;
    const Read *r = &own;
    IndexId here = k_readers_step(k->p->m, &own);
    if (here >= 0)
        bind_readers_step(k, here);
    if (!mutate("unmoved-step"))
        k->t = k_text(k, "(%s - t0)", ix_text(&k->printer, r->step));
    k->row = NULL;
    k->depth++;
    k->away++;
    const char *s = r->is_tensor ? load_tensor(k, r) : load_array(k, r);
    k->away--;
    k->depth--;
    const char *there = k->t;
    k->t = t;
    k->row = row;
    return past ? k_text(k, "(%s >= 0 ? %s : %s)", there, s, past) : s;
}

/* Of a place: from here on it is named where it is used twice. It would be in a read at a place that a read
 * gives. */
enum { LONG_PLACE = 256 };

/* A read at places that values give: at the nearest place inside, so that it may go before everything else
 * like any other, and 0 where that is not the place. An integer whose places are long has these as parameters
 * of a function without a name, where its own read stays. */
static const char *gather(Kernel *k, NodeId id)
{
    Module *m = k->p->m;
    Node r = *k_node(k, id);
    const char *before[64], *places[64], *inside = NULL, *names = NULL, *given = NULL;
    bool only = false, named = false, gathers = k->gathers;
    int wide = k->wide, placed = k->placed.len;
    NodeId place[64];
    k->depth++;
    for (int i = 0; i < r.nbound; i++) {
        place[i] = ir_pinned(m, r.args[0], r.bound[i], r.bound, r.nbound, &only);
        places[i] = k_bare(k, expr_text(&k->printer, place[i]));
        named |= r.type == TY_INT && strlen(places[i]) > LONG_PLACE;
    }
    for (int i = 0; i < r.nbound; i++) {
        const char *at = places[i], *extent = poly_text(&k->printer, m->indices.data[r.bound[i]].extent);
        if (named) {
            const char *name = k_text(k, "at_%d_%d", k->functions_inside, i);
            names = names ? k_text(k, "%s, int64_t %s", names, name) : k_text(k, "int64_t %s", name);
            given = given ? k_text(k, "%s, %s", given, at) : at;
            vec_push(m->arena, &k->placed, ((Placed){ place[i], k->depth, name }));
            at = name;
        }
        const char *within = k_text(k, "cell_inside(%s, %s)", at, extent);
        inside = inside ? k_text(k, "%s && %s", inside, within) : within;
        before[i] = k->index[r.bound[i]];
        k->index[r.bound[i]] = k_text(k, "cell_nearest(%s, %s)", at, extent);
    }
    NodeId term = only && r.nbound == 1 ? k_node(k, r.args[0])->args[1] : r.args[0];
    k->functions_inside += named;
    k->away += named;                 /* nothing of it is kept, or read elsewhere */
    k->gathers &= !named;
    k->wide = named ? 0 : wide;
    const char *s = expr_text(&k->printer, term);
    k->functions_inside -= named;
    k->placed.len = placed;
    k->away -= named;
    k->gathers = gathers;
    k->wide = wide;
    for (int i = r.nbound - 1; i >= 0; i--)
        k->index[r.bound[i]] = before[i];
    k->depth--;
    if (mutate("gather-outside"))
        return s;
    return named ? k_text(k, "[&](%s) { return %s ? %s : 0; }(%s)", names, inside, s, given)
                 : k_text(k, "(%s ? %s : 0)", inside, s);
}

/* A reduction as an expression: a loop in a function without a name. */
static const char *reduce_in_place(Kernel *k, NodeId id)
{
    static const char *const start[] = { [R_SUM] = "0", [R_MAX] = "-CELL_INF", [R_MIN] = "CELL_INF", [R_PROD] = "1" };
    Node r = *k_node(k, id);
    Buf loops = { .arena = k->p->m->arena };
    const char *before[64], *sum = names_fresh(&k->locals, "within"), *join;
    int wide = k->wide;
    bool gathers = k->gathers;
    for (int i = 0; i < r.nbound; i++) {
        const Index *b = &k->p->m->indices.data[r.bound[i]];
        const char *name = names_fresh(&k->locals, k_text(k, "i_%s", b->name));
        before[i] = k->index[r.bound[i]];
        k->index[r.bound[i]] = name;
        buf_f(&loops, "for (int64_t %s = 0; %s < %s; %s++) ", name, name, poly_text(&k->printer, b->extent), name);
    }
    k->wide = 0;
    k->gathers = false;
    k->depth++;
    k->loops_inside++;
    const char *term = k_bare(k, expr_text(&k->printer, r.args[0]));
    k->loops_inside--;
    k->depth--;
    k->gathers = gathers;
    k->wide = wide;
    for (int i = r.nbound - 1; i >= 0; i--)
        k->index[r.bound[i]] = before[i];
    if (r.reduce == R_MAX || r.reduce == R_MIN)
        join = k_text(k, "%s = cell_%s(%s, %s)", sum, r.reduce == R_MAX ? "max" : "min", sum, term);
    else
        join = k_text(k, "%s %s= %s", sum, r.reduce == R_PROD ? "*" : "+", term);
    return k_text(k, "([&] { %s %s = (%s)(%s); %s%s; return %s; }())", k->real, sum, k->real, start[r.reduce],
                  loops.data, join, sum);
}

const char *k_read(Kernel *k, const Read *r)
{
    return r->step ? load_at_step(k, r) : r->is_tensor ? load_tensor(k, r) : load_array(k, r);
}

/* Values over the past that the block has at hand. */
static const char *past_tile(Kernel *k, const Read *r)
{
    for (int i = 0; i < k->past_tiles.len; i++) {
        const Read *t = &k->past_tiles.data[i].read;
        bool same = !r->is_tensor && t->id == r->id && t->nmap == r->nmap && t->step == r->step;
        for (int j = 0; j < r->nmap && same; j++)
            same = t->map[j] == r->map[j];
        if (same)
            return k->past_tiles.data[i].text;
    }
    return NULL;
}

const char *k_leaf(ExprPrinter *e, NodeId id)
{
    Kernel *k = e->data;
    Read r;
    if (ir_gathers(k->p->m, id))
        return gather(k, id);
    if (plan_resolve(k->p, id, &r)) {
        const char *tile = k->depth ? NULL : past_tile(k, &r);
        return tile ? tile : k_read(k, &r);
    }
    const Node *n = k_node(k, id);
    const char *dot = n->kind == N_REDUCE && k->hooks->reduce ? k->hooks->reduce(k, id) : NULL;
    if (dot)
        return dot;
    n = k_node(k, id);
    if (n->kind == N_REDUCE && k->p->past)
        return reduce_in_place(k, id);
    if (n->kind == N_ARRAY || n->kind == N_VIEW)
        return expr_text(e, k_node(k, n->kind == N_VIEW ? n->args[0] : id)->args[0]);
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
    const char *name = k_text(k, "%s%d", inverse ? "inv" : "h", id);
    NodeId key = 2 * id + inverse;
    for (int i = 0; i < k->hoisted.len; i++)
        if (k->hoisted.data[i] == key)
            return name;
    NodeId outer = k->hoisting;
    k->hoisting = id;
    const char *s = k_bare(k, expr_text(&k->printer, id));
    k->hoisting = outer;
    vec_push(k->p->m->arena, &k->hoisted, key);
    if (inverse)
        buf_line(&k->hoists, "const %s %s = cell_fast_div(1.0f, %s);", k->real, name, s);
    else
        buf_line(&k->hoists, "const %s %s = %s;", k->real, name, s);
    return name;
}

const char *k_known(ExprPrinter *e, NodeId id)
{
    Kernel *k = e->data;
    for (int i = k->placed.len - 1; i >= 0; i--)
        if (k->placed.data[i].place == id && k->placed.data[i].depth == k->depth)
            return k->placed.data[i].name;
    const Node *n = k_node(k, id);
    if (k->depth || n->kind != N_MAP)
        return NULL;
    if (k->value[id])
        return k->value[id];
    return id != k->hoisting && same_for_all(k, n) ? hoist(k, id, false) : NULL;
}

const char *k_reciprocal(ExprPrinter *e, NodeId id)
{
    Kernel *k = e->data;
    return same_for_all(k, k_node(k, id)) ? hoist(k, id, true) : NULL;
}

const char *k_index(ExprPrinter *e, IndexId i)
{
    Kernel *k = e->data;
    if (i == IX_TIME)
        return k_text(k, "(t0 + %s)", k->t);
    if (i == IX_START)
        return "t0";
    if (!k->index[i])
        bug(k->p->m->c, "kernels", "index %s is not in scope", k->p->m->indices.data[i].name);
    if (k->at_first && runs_along(k, i))
        return "e";
    return k->index[i];
}

/* A name for a value over the past at a place, where it may be computed whatever condition the read stands under: its
 * indices are the reader's own, so that it is there. Else NULL. */
static const char *past_place(Kernel *k, NodeId array, const IxExpr *const *map, const char *const *inside)
{
    const Node *a = k_node(k, array);
    IndexId which;
    if (!k->past_keeps || !k->p->past[array] || a->type != TY_REAL)
        return NULL;
    const char *place = k_text(k, "%d at %s", array, k->t);
    for (int i = 0; i < a->naxes; i++) {
        if (!ix_is_index(map[i], &which) || which < IX_FIRST ||
            k->p->m->indices.data[which].extent != k->p->m->indices.data[a->axes[i]].extent)
            return NULL;
        place = k_text(k, "%s, %s", place, inside[i]);
    }
    return place;
}

bool k_has_table(Kernel *k, const Read *r)
{
    if (!k->p->table || !k->p->table[r->id] || !k_always_inside(k, r))
        return false;
    k->p->table_read[r->id] = true;
    return true;
}

static const char *print_in_place(Kernel *k, NodeId array, const IxExpr *const *map)
{
    Node a = *k_node(k, array);
    const Read r = { .id = array, .nmap = a.naxes, .map = (const IxExpr **)(uintptr_t)map };
    if (k_has_table(k, &r))
        return k_text(k, "cell_table_%" PRIx64 "[%s]", table_number(k->p, array),
                      ix_text(&k->printer, read_linear(k->p->m, &r)));
    const char *inside[64], *before[64];
    const IxExpr *meant[64];
    bool beyond[64];
    walk_enter(k, &a, map, meant);
    for (int i = 0; i < a.naxes; i++)
        inside[i] = ix_text(&k->printer, map[i]);
    const char *place = past_place(k, array, map, inside);
    for (int i = 0; place && i < k->past_values.len; i++)
        if (strcmp(k->past_values.data[i].text, place) == 0)
            return k->past_values.data[i].name;
    for (int i = 0; i < a.naxes; i++)
        beyond[i] = !k_is_inside(k, map[i], k->p->m->indices.data[a.axes[i]].extent);
    for (int i = 0; i < a.naxes; i++) {
        before[i] = k->index[a.axes[i]];
        k->index[a.axes[i]] = inside[i];
        bool was = k->beyond[a.axes[i]];
        k->beyond[a.axes[i]] = beyond[i];
        beyond[i] = was;
    }
    k->depth++;
    const char *s = expr_text(&k->printer, a.args[0]);
    k->depth--;
    for (int i = a.naxes - 1; i >= 0; i--) {
        k->index[a.axes[i]] = before[i];
        k->beyond[a.axes[i]] = beyond[i];
    }
    walk_leave(k, &a, meant);
    if (!place || k->loops_inside)
        return s;
    RowRead value = { .text = place, .name = names_fresh(&k->locals, "past") };
    vec_push(k->p->m->arena, &k->past_values, value);
    buf_line(k->out, "const %s %s = %s;", k->real, value.name, k_bare(k, s));
    return value.name;
}

/* ---- locals for what an expression uses more than once ---- */

static void count_uses(Kernel *k, NodeId id, int *uses)
{
    const Node *n = k_node(k, id);
    if (uses[id]++ > 0 || n->kind != N_MAP)
        return;
    for (int i = 0; i < n->nargs; i++)
        count_uses(k, n->args[i], uses);
}

/* Operators and reads of a condition or an integer that says more where it stands than behind a name. */
enum { SHORT = 128 };

static bool is_short(const Kernel *k, NodeId id, int *left)
{
    const Node *n = k_node(k, id);
    bool few = --*left >= 0;
    for (int i = 0; few && n->kind == N_MAP && i < n->nargs; i++)
        few = is_short(k, n->args[i], left);
    return few;
}

/* A count below zero: it was here. */
static void name_shared(Kernel *k, NodeId id, int *uses, Named *named)
{
    Node n = *k_node(k, id);
    if (uses[id] < 0)
        return;
    uses[id] = -uses[id];
    if (n.kind != N_MAP)
        return;
    for (int i = 0; i < n.nargs; i++)
        name_shared(k, n.args[i], uses, named);
    if (uses[id] > -2 || k->value[id] || same_for_all(k, &n) || (n.type != TY_REAL && is_short(k, id, &(int){ SHORT })))
        return;
    const char *name = k_text(k, "s%d", k->numbered++), *type = n.type == TY_BOOL ? "bool" : n.type == TY_INT ? "int64_t" : k->real;
    const char *s = k_bare(k, expr_text(&k->printer, id));
    buf_line(k->out, "const %s %s = %s;", type, name, s);
    k->value[id] = name;
    vec_push(k->p->m->arena, named, id);
}

void k_clear_uses(Kernel *k, NodeId id, int *uses)
{
    const Node *n = k_node(k, id);
    if (!uses[id])
        return;
    uses[id] = 0;
    for (int i = 0; n->kind == N_MAP && i < n->nargs; i++)
        k_clear_uses(k, n->args[i], uses);
}

void k_forget(Kernel *k, Named *named)
{
    for (int i = 0; i < named->len; i++)
        k->value[named->data[i]] = NULL;
    named->len = 0;
}

int *k_count_uses(Kernel *k, NodeId body)
{
    Plan *p = k->p;
    if (body >= p->n_uses) {
        p->n_uses = p->m->nodes.len;
        p->uses = arena_alloc(p->m->arena, sizeof *p->uses * (size_t)p->n_uses);
    }
    count_uses(k, body, p->uses);
    return p->uses;
}

bool k_is_short(const Kernel *k, NodeId id)
{
    return is_short(k, id, &(int){ SHORT });
}

/* Prints locals for the shared parts of an array's body and gives the text of the whole. */
const char *k_body(Kernel *k, NodeId body, Named *named)
{
    int *uses = k_count_uses(k, body);
    name_shared(k, body, uses, named);
    k_clear_uses(k, body, uses);
    const char *s = expr_text(&k->printer, body);
    return k_node(k, body)->type == TY_INT ? k_text(k, "(%s)(%s)", k->real, s) : k_bare(k, s);
}

const char *k_local(Kernel *k, const char *prefix, NodeId id)
{
    const char *name = k_node(k, id)->name;
    return names_fresh(&k->locals, name ? k_text(k, "%s_%s", prefix, name) : k_text(k, "%s_%d", prefix, id));
}

/* ---- writing values ---- */

bool k_may_be_null(const Kernel *k, const Storage *st)
{
    if (st->home == HOME_ARG)
        return k->pr->dir == BACKWARD;
    return st->home == HOME_RESERVE && k->pr->dir == FORWARD && !k->p->buffers.data[st->slot].inference;
}

/* In a wide loop, an element of what is written as vectors behind it, under a condition or none. */
static bool store_wide(Kernel *k, const char *p, const char *row, const Poly *pitch, const IxExpr *lin,
                       const char *value, const char *condition)
{
    if (!k->wide || wide_stride(k, lin, pitch) != 1)
        return false;
    const char *name = names_fresh(&k->locals, k_text(k, "w_%s", p + 2));
    buf_line(&k->loads, "%s %s[%s];", k->real, name, k->n);
    buf_line(k->out, "%s[u] = %s;", name, value);
    if (condition)
        buf_line(&k->stores, "if (%s)", condition);
    buf_line(&k->stores, "%scell_store_vec<%s>(%s + %s, %s);", condition ? "    " : "", k->n, p,
             place_text(k, row, pitch, at_first(k, lin)), name);
    return true;
}

/* A next state goes before the next step too, and behind the last. */
static void store_next(Kernel *k, NodeId id, TensorId s, const char *value)
{
    Module *m = k->p->m;
    const Poly *n = tensor_elements(m, s);
    Read self = read_itself(k->p->m, id);
    const IxExpr *lin = read_linear(m, &self);
    const char *e = ix_text(&k->printer, lin);
    int before = k->pr->before[s];
    const char *row = before >= 0 ? buffer_row(k, &k->p->buffers.data[before], 1) : NULL;
    if (before >= 0 && !(k->hooks->takes && k->hooks->takes(k, before, value)) &&
        !store_wide(k, k_written(k, REF_BEFORE, s, k->p->buffers.data[before].dtype), row, n, lin, value,
                    k_text(k, "%s + 1 < dim_T", k->t))) {
        Dtype type = k->p->buffers.data[before].dtype;
        Stored next = { .slot = before, .lin = lin, .pitch = n, .value = value, .call = "cell_store(",
                        .out = k->out };
        next.where = add_text(k, k_written(k, REF_BEFORE, s, type), place_text(k, row, n, e));
        next.when = k_text(k, "%s + 1 < dim_T", k->t);
        if (k->hooks->stores_next)
            k->hooks->stores_next(k, &next);
        buf_line(next.out, "if (%s)", next.when);
        buf_line(next.out, "    %s%s, %s);", next.call, next.where, value);
    }
    if (k->hooks->carries && k->hooks->carries(k, s, &self, value))
        return;                       /* the last one is stored behind the steps */
    const char *final = k_written(k, REF_FINAL, s, k->p->compute);
    if (k->hooks->stores_last && k->hooks->stores_last(k, final, place_text(k, k->b, n, e), value))
        return;
    buf_line(k->out, "if (%s && %s + 1 == dim_T)", final, k->t);
    buf_line(k->out, "    cell_store(%s + %s, %s);", final, place_text(k, k->b, n, e), value);
}

static void store_carried(Kernel *k, NodeId id, TensorId of, const char *value)
{
    Read self = read_itself(k->p->m, id);
    if (k->hooks->carries && k->hooks->carries(k, of, &self, value))
        return;                       /* the last one is stored behind the steps */
    const char *half = k_text(k, "((%s & 1) * dim_B + %s)", k->t, k->b);
    const IxExpr *lin = read_linear(k->p->m, &self);
    const Poly *n = tensor_elements(k->p->m, of);
    if (store_wide(k, k_written(k, REF_CARRY, of, k->p->compute), half, n, lin, value, NULL))
        return;
    buf_line(k->out, "cell_store(%s + %s, %s);", k_written(k, REF_CARRY, of, k->p->compute),
             place_text(k, half, n, ix_text(&k->printer, lin)), value);
}

static void store_vector(Kernel *k, NodeId id, const char *where, const char *value)
{
    const Storage *st = &k->pr->node[id];
    const char *p = k_written(k, REF_NODE, id, st->dtype), *name = k_local(k, "w", id);
    bool optional = k_may_be_null(k, st), adds = st->home == HOME_ARG && k->pr->dir == BACKWARD;
    buf_line(&k->loads, "%s %s[%s];", k->real, name, k->n);
    buf_line(k->out, "%s[u] = %s;", name, value);
    if (optional)
        buf_line(&k->stores, "if (%s)", p);
    buf_line(&k->stores, adds ? "%scell_put_vec<%s>(%s + %s, %s, adds);" : "%scell_store_vec<%s>(%s + %s, %s);",
             optional ? "    " : "", k->n, p, where, name);
}

void k_store_value(Kernel *k, NodeId id, const char *value)
{
    Module *m = k->p->m;
    const Storage *st = &k->pr->node[id];
    TensorId of = -1;
    RootKind root = root_kind(m, id, &of);
    Read self = read_itself(k->p->m, id);
    if (root == ROOT_DPREV) {
        store_carried(k, id, of, value);
        return;
    }
    if (root == ROOT_NEXT && k->pr->dir == FORWARD)
        store_next(k, id, of, value);
    if (st->home == HOME_NONE)
        return;
    bool kept = st->home == HOME_WORKSPACE || st->home == HOME_RESERVE;
    if (kept && k->hooks->takes && k->hooks->takes(k, st->slot, value))
        return;
    const char *row = row_text(k, st);
    const IxExpr *lin = storage_linear(m, &self, st);
    const Poly *pitch = st->pitch ? st->pitch : array_elements(m, id);
    if (root != ROOT_DPARAM_INIT && wide_stride(k, lin, pitch) == 1) {
        store_vector(k, id, place_text(k, row, pitch, at_first(k, lin)), value);
        return;
    }
    const char *p = k_written(k, REF_NODE, id, st->dtype);
    const char *e = ix_text(&k->printer, lin);
    Stored s = { .st = st, .slot = st->slot, .lin = lin, .pitch = pitch, .value = value, .when = p,
                 .call = "cell_store(", .out = k->out };
    s.where = add_text(k, p, place_text(k, row, pitch, e));
    bool optional = k_may_be_null(k, st), adds = st->home == HOME_ARG && k->pr->dir == BACKWARD;
    if (k->hooks->stores)
        k->hooks->stores(k, &s);
    if (optional)
        buf_line(s.out, "if (%s)", k->hooks->wants ? k->hooks->wants(k, id, p) : p);
    const char *pad = optional ? "    " : "";
    if (adds)
        buf_line(s.out, "%scell_put(%s, %s, %s);", pad, s.where, s.value,
                 root == ROOT_DPARAM_INIT ? "true" : "adds");
    else
        buf_line(s.out, "%s%s%s, %s);", pad, s.call, s.where, s.value);
}

void k_store(Kernel *k, NodeId id, const char *value)
{
    (k->hooks->store ? k->hooks->store : k_store_value)(k, id, value);
}

bool k_is_stored(const Kernel *k, NodeId id)
{
    TensorId of;
    RootKind r = root_kind(k->p->m, id, &of);
    if (k->hooks->leaves_out && k->hooks->leaves_out(k, id))
        return false;
    return k->pr->node[id].home != HOME_NONE || r == ROOT_DPREV || (r == ROOT_NEXT && k->pr->dir == FORWARD);
}

/* ---- the arrays of a group ---- */

void k_element(Kernel *k, NodeId id, Named *kept)
{
    Named named = { 0 };
    k_comment(k, id);
    const char *v = k_body(k, k_node(k, id)->args[0], &named), *name = k_local(k, "a", id);
    buf_line(k->out, "const %s %s = %s;", k->real, name, v);
    k_forget(k, &named);
    k->value[id] = name;
    vec_push(k->p->m->arena, kept, id);
    if (k_is_stored(k, id))
        k_store(k, id, name);
}

void k_map_body(Kernel *k)
{
    Group *g = k->g;
    Buf *out = k->out, body = { .arena = out->arena, .indent = out->indent };
    k->gathers = !k->wide && !k->hooks->ahead;
    k->gathered = body;
    if (k->gathers)
        k->out = &body;
    k_keep_axes(k, g->arrays.data[0]);
    Named kept = { 0 };
    for (int i = 0; i < g->arrays.len; i++) {
        k_bind_axes(k, g->arrays.data[i]);
        k_element(k, g->arrays.data[i], &kept);
    }
    if (k->hooks->group_done)
        k->hooks->group_done(k);
    k_forget(k, &kept);
    if (!k->wide)
        k_prefetches(k, NULL);
    k->prefetches.len = 0;
    k->out = out;
    if (k->gathers)
        buf_f(out, "%s%s", k->gathered.data ? k->gathered.data : "", body.data);
    k->gathers = false;
}
