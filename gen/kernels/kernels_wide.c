/* kernels_wide.c: loops over neighbours, in kernels that are built as trees. In come a loop along one index
 * and what is computed for an element; out goes the loop over vectors of neighbours, with vectors that are
 * read in front of the neighbours and stored behind them, and in front of all that what is the same for
 * every neighbour; or the plain loop, where nothing is contiguous. How many neighbours there are is a
 * parameter of the kernel, unless sizes are known to be multiples. */
#include <string.h>

#include "code.h"
#include "plan/reads.h"

/* ---- which addresses are contiguous ---- */

/* Arrays of one group name the loop's index differently: they agree in its variable. */
static bool runs_along(const Code *x, IndexId i)
{
    return i >= IX_FIRST && x->along && x->index[i] && x->index[i]->kind == KX_VAR &&
           x->index[i]->var == x->along;
}

/* An index of an array built in place stands for an expression of the reader's. */
static bool mentions_along(const Code *x, IndexId i)
{
    return i >= IX_FIRST && x->along && x->index[i] && !runs_along(x, i) &&
           kir_mentions(x->index[i], x->along);
}

static bool uses_along(const Code *x, const IxExpr *e)
{
    for (int i = 0; i < e->nterms; i++) {
        const IxTerm *t = &e->terms[i];
        bool uses = t->kind == IA_INDEX ? runs_along(x, t->index) || mentions_along(x, t->index)
                                        : uses_along(x, t->arg);
        if (uses)
            return true;
    }
    return false;
}

int code_stride(Code *x, const IxExpr *lin, const Poly *pitch)
{
    Kernel *k = x->k;
    int stride = 0;
    if (!x->wide || x->away)
        return -1;
    for (int i = 0; i < lin->nterms; i++) {
        const IxTerm *t = &lin->terms[i];
        bool here = t->kind == IA_INDEX && runs_along(x, t->index);
        if (here && t->coef->is_const && t->coef->value == 1)
            stride = 1;
        else if (here || (t->kind == IA_INDEX ? mentions_along(x, t->index) : uses_along(x, t->arg)))
            return -1;
    }
    if (stride != 1)
        return stride;
    int before = k->multiples.len;
    bool can = k_need_multiple(k, pitch) && k_need_multiple(k, lin->offset);
    for (int i = 0; i < lin->nterms && can; i++)
        if (lin->terms[i].kind != IA_INDEX || !runs_along(x, lin->terms[i].index))
            can = k_need_multiple(k, lin->terms[i].coef);
    if (!can)
        k->multiples.len = before;
    return can ? 1 : -1;
}

const KirExpr *code_at_first(Code *x, const IxExpr *lin)
{
    x->at_first = true;
    const KirExpr *e = ix_node(&x->printer, lin);
    x->at_first = false;
    return e;
}

/* ---- what is read and computed before the neighbours ---- */

static int vector_number(Code *x, const CodeVector *v)
{
    for (int i = 0; i < x->vectors.len; i++)
        if (x->vectors.data[i].pointer->var == v->pointer->var &&
            kir_equal(x->vectors.data[i].offset, v->offset))
            return i;
    vec_push(x->kir->arena, &x->vectors, *v);
    CodeVector *own = &x->vectors.data[x->vectors.len - 1];
    own->name = names_fresh(&x->k->pointer_names, k_text(x->k, "v_%s", v->pointer->var->name + 2));
    return x->vectors.len - 1;
}

/* The neighbours of the product's result that this very kernel makes. */
static const KirExpr *given_vector(Code *x, CodeVector *v)
{
    CodeFused *f = x->fused;
    f->missed |= f->given != NULL;
    f->given = kir_array_given(x->kir, v->name, code_real(x), NULL, x->n, false);
    v->elements = kir_var(x->kir, f->given);
    return kir_element(x->kir, v->elements, x->u);
}

/* A vector of the row that is made, which is asked for while rows before it are. */
static const KirExpr *fetched_vector(Code *x, CodeVector *v)
{
    CodeFused *f = x->fused;
    const char *name = names_fresh(&x->k->pointer_names, k_text(x->k, "row_%s", v->pointer->var->name + 2));
    KirVar *row = kir_vector_given(x->kir, name, code_scalar(v->type), x->n);
    const KirExpr *from = v->optional ? v->pointer : code_move(x, v->pointer, v->offset);
    const KirExpr *asked[] = { kir_var(x->kir, row), code_int(x, 0), from, v->offset };
    vec_push(x->kir->arena, &f->fetched, row);
    KirBlock *body = kir_enter(x->kir, &f->fetches);
    kir_do(x->kir,
           kir_call(x->kir, v->optional ? ".load_or_zero" : ".load", NULL, 0, asked, v->optional ? 4 : 3));
    kir_enter(x->kir, &x->loads);
    v->elements = kir_array(x->kir, v->name, code_real(x), x->n, false);
    const KirExpr *taken[] = { asked[0], v->elements, asked[1], from, v->offset };
    kir_do(x->kir, kir_call(x->kir, v->optional ? ".values_or_zero" : ".values", NULL, 0, taken,
                            v->optional ? 5 : 4));
    kir_enter(x->kir, body);
    return kir_element(x->kir, v->elements, x->u);
}

const KirExpr *code_vector(Code *x, const CodeVector *wanted)
{
    int number = vector_number(x, wanted);
    CodeVector *v = &x->vectors.data[number];
    for (int i = 0; i < x->here.len; i++)
        if (x->here.data[i] == number)
            return kir_element(x->kir, v->elements, x->u);
    vec_push(x->kir->arena, &x->here, number);
    if (v->last_loop != x->loops) {
        v->loops++;
        v->last_loop = x->loops;
    }
    if (x->fused && v->pointer->var == x->fused->product)
        return given_vector(x, v);
    if (x->fused && x->k->fused->ahead && !v->fixed)
        return fetched_vector(x, v);
    bool batch = x->gathers && code_is_batched(x, v->offset);
    KirBlock *body = kir_enter(x->kir, batch ? &x->batch_arrays : x->gathers ? &x->gathered : &x->loads);
    if (batch) {
        const KirExpr *all = kir_array_of_arrays(x->kir, v->name, code_real(x), x->together, x->n);
        v->elements = kir_element(x->kir, all, x->j);
        kir_enter(x->kir, &x->batched);
        x->batch_reads++;
    } else {
        v->elements = kir_array(x->kir, v->name, code_real(x), x->n, false);
    }
    const KirExpr *from = v->optional ? v->pointer : code_move(x, v->pointer, v->offset);
    if (v->kept) {
        const KirExpr *args[] = { v->kept, v->elements, x->slots->number, from, v->offset };
        const char *values = v->optional ? ".values_or_zero" : ".values";
        kir_do(x->kir, kir_call(x->kir, values, NULL, 0, args, v->optional ? 5 : 4));
        kir_enter(x->kir, body);
        return kir_element(x->kir, v->elements, x->u);
    }
    kir_load_vector(x->kir, KA_LOAD_RO, v->elements, x->n, from, v->optional ? v->offset : NULL);
    kir_enter(x->kir, body);
    return kir_element(x->kir, v->elements, x->u);
}

/* Is it of indices and sizes only, of which none is the loop's? */
static bool stays(const Code *x, NodeId id)
{
    const Node *n = k_node(x->k, id);
    if (n->kind == N_INDEX)
        return !uses_along(x, n->ix);
    for (int i = 0; n->kind == N_MAP && i < n->nargs; i++)
        if (!stays(x, n->args[i]))
            return false;
    return n->kind == N_MAP || n->kind == N_CONST || n->kind == N_SIZE;
}

static const IxExpr *place_of(Code *x, NodeId id)
{
    const Node *n = k_node(x->k, id);
    return n->kind == N_INDEX ? n->ix : n->kind == N_SIZE ? ix_const(x->k->p->m, n->size) : NULL;
}

/* Does the condition of places hold for all neighbours or for none? A vector begins at a multiple of its
 * width, so `e < first` and `first <= e` do where `first` is a multiple as well. */
static bool agrees(Code *x, NodeId id)
{
    const Node n = *k_node(x->k, id);
    if (stays(x, id))
        return true;
    if (n.kind == N_MAP && (n.op == OP_AND || n.op == OP_OR))
        return agrees(x, n.args[0]) && agrees(x, n.args[1]);
    if (n.kind != N_MAP || (n.op != OP_LT && n.op != OP_LE))
        return false;
    const IxExpr *place = place_of(x, n.args[n.op == OP_LE]), *bound = place_of(x, n.args[n.op == OP_LT]);
    if (!place || !bound || uses_along(x, bound))
        return false;
    const IxExpr *behind = ix_sub(x->k->p->m, place, bound);
    return code_stride(x, behind, behind->offset) == 1;
}

static const KirExpr *condition_at_first(Code *x, NodeId id)
{
    x->at_first = true;
    const KirExpr *e = expr_node(&x->printer, id);
    x->at_first = false;
    return e;
}

/* Where the neighbours of a param's read begin, whose other places are the same for all of them: behind a
 * condition that holds for one of them they are there. inside: conditions say of all neighbours that the
 * param has them. NULL: they are no vector, or of another type. */
static const KirExpr *param_vector(Code *x, NodeId id, bool inside)
{
    const Plan *p = x->k->p;
    Module *m = p->m;
    Read r;
    if (ir_gathers(m, id) || !plan_resolve(p, id, &r) || !r.is_tensor || r.step ||
        m->tensors.data[r.id].kind != T_PARAM)
        return NULL;
    const Storage *st = &x->k->pr->tensor[r.id];
    if (st->dtype != p->dtype || st->home != HOME_ARG)
        return NULL;
    for (int i = 0; i < r.nmap; i++)
        if (!inside && uses_along(x, r.map[i]) && !k_is_inside(x->k, r.map[i], m->tensors.data[r.id].axes[i]))
            return NULL;
    const IxExpr *lin = storage_linear(m, &r, st);
    if (code_stride(x, lin, st->pitch ? st->pitch : tensor_elements(m, r.id)) != 1)
        return NULL;
    return code_move(x, code_pointer(x, REF_TENSOR, r.id, st->dtype), code_at_first(x, lin));
}

/* Of params, one of which a condition chooses for all neighbours alike. */
static const KirExpr *chosen_vector(Code *x, NodeId id, bool inside)
{
    const Node n = *k_node(x->k, id);
    if (n.kind != N_MAP || n.op != OP_SELECT)
        return param_vector(x, id, inside);
    inside = inside || !stays(x, n.args[0]);
    const KirExpr *one = agrees(x, n.args[0]) ? chosen_vector(x, n.args[1], inside) : NULL;
    const KirExpr *other = one ? chosen_vector(x, n.args[2], inside) : NULL;
    return other ? kir_select(x->kir, condition_at_first(x, n.args[0]), one, other) : NULL;
}

/* What is made of the value may stand behind its condition alone. */
static void mark_conditional(Code *x, NodeId id)
{
    if (id >= x->nconditional || x->conditional[id])
        return;
    x->conditional[id] = true;
    for (int i = 0; i < k_node(x->k, id)->nargs; i++)
        mark_conditional(x, k_node(x->k, id)->args[i]);
}

/* A vector is read in front of all neighbours, so not where a choice that is none of vectors stands around
 * it. */
static bool is_conditional(const Code *x, NodeId id)
{
    return x->conditional && (id >= x->nconditional || x->conditional[id]);
}

const KirExpr *code_chosen(Code *x, NodeId id)
{
    const Node *n = k_node(x->k, id);
    if (!x->wide || x->walk || x->away || x->gathers || x->slots || x->k->p->request->cpu ||
        n->kind != N_MAP || n->op != OP_SELECT || n->type != TY_REAL || is_conditional(x, id))
        return NULL;
    int multiples = x->k->multiples.len;
    const KirExpr *from = chosen_vector(x, id, false);
    if (!from) {
        x->k->multiples.len = multiples;
        if (!x->conditional) {
            x->nconditional = x->k->p->m->nodes.len;
            x->conditional = arena_alloc(x->k->p->m->arena, (size_t)x->nconditional);
        }
        for (int i = 0; i < 3; i++)
            mark_conditional(x, k_node(x->k, id)->args[i]);
        return NULL;
    }
    KirBlock *body = kir_enter(x->kir, &x->loads);
    const KirExpr *elements =
        kir_array(x->kir, names_fresh(&x->k->pointer_names, "v_chosen"), code_real(x), x->n, false);
    kir_load_vector(x->kir, KA_LOAD_RO, elements, x->n, from, NULL);
    kir_enter(x->kir, body);
    return kir_element(x->kir, elements, x->u);
}

bool code_same_for_all(const Code *x, const Node *n)
{
    for (int i = 0; i < n->naxes; i++)
        if (runs_along(x, n->axes[i]))
            return false;
    return x->wide && x->depth == 0 && n->type == TY_REAL;
}

const KirExpr *code_hoist(Code *x, NodeId id, bool inverse)
{
    for (int i = 0; i < x->hoisted.len; i++)
        if (x->hoisted.data[i].id == id && x->hoisted.data[i].inverse == inverse)
            return x->hoisted.data[i].local;
    NodeId outer = x->hoisting;
    x->hoisting = id;
    const KirExpr *v = expr_node(&x->printer, id);
    x->hoisting = outer;
    if (inverse)
        v = kir_call2(x->kir, "cell_fast_div", kir_real(x->kir, code_real(x), 1), v);
    KirBlock *body = kir_enter(x->kir, &x->hoists);
    const char *name = k_text(x->k, "%s%d", inverse ? "inv" : "h", id);
    const KirExpr *local = kir_let(x->kir, name, code_real(x), v);
    kir_enter(x->kir, body);
    vec_push(x->kir->arena, &x->hoisted, ((Hoisted){ id, inverse, local }));
    return local;
}

/* ---- the loop over the neighbours ---- */

/* The index that a wide loop is along has this name. */
static void wide_begin(Code *x, const char *name, const KirExpr *first)
{
    x->hoists = x->loads = x->inner = x->stores = (KirBlock){ .data = NULL };
    if (!x->gathers)
        x->here.len = 0;
    x->wide = true;
    x->loops++;
    x->first = first;
    x->outside = kir_enter(x->kir, &x->inner);
    x->neighbours = kir_for(x->kir, "u", KT_I32, code_int(x, 0), KB_LT, x->n, code_int(x, 1), &x->u);
    x->neighbours.statement->n = -1;
    x->along = code_let(x, name, code_add(x, first, x->u))->var;
}

static void wide_end(Code *x)
{
    kir_close(x->kir, x->neighbours);
    x->wide = false;
    kir_enter(x->kir, x->outside);
    kir_append(x->kir, &x->loads);
    kir_append(x->kir, &x->inner);
    kir_append(x->kir, &x->stores);
}

static const char *index_name(const Code *x, IndexId i)
{
    return k_text(x->k, "i_%s", x->k->p->m->indices.data[i].name);
}

void code_neighbours(Code *x, const CodeNeighbours *n)
{
    KirBlock vectors = { .data = NULL }, *outer = kir_enter(x->kir, &vectors), *hoists = n->hoists;
    wide_begin(x, index_name(x, n->along), n->first);
    x->index[n->along] = kir_var(x->kir, (KirVar *)x->along);
    n->body(x, n->data);
    wide_end(x);
    kir_enter(x->kir, hoists ? hoists : outer);
    kir_append(x->kir, &x->hoists);
    kir_enter(x->kir, outer);
    kir_append(x->kir, &vectors);
}

KirTemplate code_template(const KirExpr *e)
{
    return e->kind == KX_WHOLE ? (KirTemplate){ .value = e->whole } : (KirTemplate){ .of = e };
}

const KirExpr *code_count_slots(Code *x, const KirExpr *step)
{
    const KirTemplate vectors = code_template(x->slots->vectors);
    return kir_call(x->kir, "cell_slots", &vectors, 1, (const KirExpr *[]){ x->slots->length, step }, 2);
}

/* Where a thread's vectors fill the row exactly, none is beyond its end. */
SlotLoop code_open_slots(Code *x, const KirExpr *count, const KirExpr *lanes)
{
    CodeSlots *slots = x->slots;
    const KirExpr *full = slots->full;
    KirVar *s = kir_place(x->kir, "s", slots->vectors);
    SlotLoop l = { .loop = kir_for_var(x->kir, s, code_int(x, 0), KB_LT, count, code_int(x, 1)) };
    l.loop.statement->wide = slots->vectors->kind == KX_VAR ? slots->vectors : NULL;
    l.loop.statement->n = slots->vectors->whole ? slots->vectors->whole : l.loop.statement->wide ? 0 : 1;
    slots->number = kir_var(x->kir, s);
    slots->place->count = slots->vectors;
    const KirExpr *vector = code_add(x, code_mul(x, slots->number, lanes), slots->lane);
    const KirExpr *e = kir_let_var(x->kir, slots->place, code_mul(x, vector, x->n));
    const KirExpr *inside = code_binary(x, KB_LT, e, slots->length);
    if (full->kind == KX_VAR)
        inside = code_binary(x, KB_OR, full, inside);
    if (full->kind == KX_VAR || !full->whole)
        l.inside = kir_if(x->kir, inside);
    return l;
}

void code_close_slots(Code *x, SlotLoop l)
{
    if (l.inside.statement)
        kir_close(x->kir, l.inside);
    kir_close(x->kir, l.loop);
}

/* In a loop over the numbers of vectors. */
static void by_slots(Code *x, const CodeLoop *l)
{
    KirBlock vectors = { .data = NULL }, *outer = kir_enter(x->kir, &vectors);
    CodeNeighbours n = { .along = l->along, .body = l->body, .data = l->data, .hoists = outer };
    SlotLoop loop = code_open_slots(x, code_count_slots(x, code_mul(x, l->step, x->n)), l->step);
    n.first = kir_var(x->kir, x->slots->place);
    code_neighbours(x, &n);
    code_close_slots(x, loop);
    kir_enter(x->kir, outer);
    kir_append(x->kir, &vectors);
}

/* In a loop over vectors. */
static void by_vectors(Code *x, const CodeLoop *l)
{
    KirBlock vectors = { .data = NULL }, *outer = kir_enter(x->kir, &vectors);
    CodeNeighbours n = { .along = l->along, .body = l->body, .data = l->data, .hoists = outer };
    KirVar *e = x->slots ? x->slots->place : kir_variable(x->kir, "e", kir_value(KT_I64), false);
    KirOpen loop = kir_for_var(x->kir, e, code_mul(x, l->first, x->n), KB_LT, code_size(x, l->extent),
                               code_mul(x, l->step, x->n));
    n.first = kir_var(x->kir, e);
    code_neighbours(x, &n);
    kir_close(x->kir, loop);
    kir_enter(x->kir, outer);
    kir_append(x->kir, &vectors);
}

/* Over all elements: a vector lies in one row of the last axis, whose length is a multiple of the width. */
static void by_vectors_of_rows(Code *x, const CodeLoop *l)
{
    const KirExpr *n, *extent = code_size(x, l->extent);
    int reads = x->reads.len, hoisted = x->hoisted.len;
    const Index *indices = x->k->p->m->indices.data;
    KirOpen loop = code_for(x, "n", code_mul(x, l->first, x->n), l->elements, code_mul(x, l->step, x->n), &n);
    const KirExpr *outer = code_let(x, "outer", code_binary(x, KB_DIV, n, extent));
    const KirExpr *first = code_let(x, "e", code_sub(x, n, code_mul(x, outer, extent)));
    const char *prefix = "i";
    for (int i = 0; i < l->n_outer; i++) /* the spec may call two axes alike */
        if (strcmp(indices[l->outer[i]].name, indices[l->along].name) == 0)
            prefix = "o";
    code_split_element(x, l->outer, l->n_outer, outer, prefix);
    CodeNeighbours each = { .along = l->along, .first = first, .body = l->body, .data = l->data };
    code_neighbours(x, &each);
    kir_close(x->kir, loop);
    x->reads.len = reads; /* those of the loop are not there behind it */
    x->hoisted.len = hoisted;
}

static void one_by_one(Code *x, const CodeLoop *l)
{
    const KirExpr *e;
    KirOpen loop;
    if (l->outer) {
        IndexId axes[64];
        memcpy(axes, l->outer, sizeof *axes * (size_t)l->n_outer);
        axes[l->n_outer] = l->along;
        loop = code_for(x, "e", l->first, l->elements, l->step, &e);
        code_split_element(x, axes, l->n_outer + 1, e, "i");
    } else {
        loop = code_for(x, index_name(x, l->along), l->first, code_size(x, l->extent), l->step, &e);
        if (x->k->g && x->k->g->kind == G_ROW && x->k->g->lanes < 32)
            loop.statement->n = 8; /* its reads are under way together */
        x->index[l->along] = e;
    }
    l->body(x, l->data);
    kir_close(x->kir, loop);
}

/* In a step, only where the call's sizes can decide: a vector per thread pays when there are threads
 * enough. */
bool code_can_be_wide(const Code *x, const Poly *extent, bool outer)
{
    return x->one_step ? outer && !extent->is_const : !(extent->is_const && extent->value % k_width(x->k));
}

static void note_extent(Code *x, const Poly *extent, bool wide)
{
    x->mixed |= !wide || (x->row_extent && x->row_extent != extent);
    x->row_extent = extent;
}

/* A step is short of threads, not of bandwidth. What was built for vectors in vain goes, with its names. */
void code_loop(Code *x, const CodeLoop *l)
{
    Kernel *k = x->k;
    int taken = k->locals.taken.len, numbered = k->numbered, hoisted = x->hoisted.len, reads = x->reads.len;
    if (code_can_be_wide(x, l->extent, l->outer)) {
        KirBlock wide = { .data = NULL }, *body = kir_enter(x->kir, &wide);
        (l->outer ? by_vectors_of_rows : x->slots && x->slots->vectors ? by_slots : by_vectors)(x, l);
        kir_enter(x->kir, body);
        if (x->here.len || x->stores.len) {
            k_need_multiple(k, l->extent);
            note_extent(x, l->extent, true);
            kir_append(x->kir, &wide);
            return;
        }
        names_cut(&k->locals, taken);
        k->numbered = numbered;
        x->hoisted.len = hoisted;
        x->reads.len = reads;
    }
    note_extent(x, l->extent, false);
    one_by_one(x, l);
}

/* ---- the width ---- */

const KirExpr *code_fits(Code *x, int64_t width)
{
    const Group *g = x->k->g;
    const KirExpr *all = kir_truth(x->kir, true), *none = code_int(x, 0), *by = code_int(x, width);
    for (int i = 0; i < x->k->multiples.len; i++) {
        const KirExpr *rest = code_binary(x, KB_MOD, code_size(x, x->k->multiples.data[i]), by);
        all = code_binary(x, KB_AND, all, code_binary(x, KB_EQ, rest, none));
    }
    if (!x->enough)
        return all;
    const KirExpr *elements = code_mul(x, code_rows(x), code_sizes(x, g->axes, g->naxes));
    return code_binary(x, KB_AND, all, code_binary(x, KB_GE, elements, code_int(x, x->enough)));
}

void code_settle_width(Code *x)
{
    int64_t width = k_width(x->k);
    if (!x->k->multiples.len) {
        kir_settle(x->n, width);
        return;
    }
    kir_parameter(x->kir, x->n);
    code_open_entry(x, x->kir->name);
    KirOpen wide = kir_if(x->kir, code_fits(x, width));
    const KirExpr *by[] = { code_int(x, width), code_int(x, 1) };
    kir_run(x->kir, by);
    kir_else(x->kir, &wide);
    kir_run(x->kir, by + 1);
    kir_close(x->kir, wide);
    code_close_entry(x);
}
