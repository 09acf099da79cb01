/* cpu_hoist.c: what is the same for all turns of a loop over neighbours, once in front of it. In comes a
 * kernel as it was built; out goes the same with such parts of its expressions as locals: reads of one number
 * of the row, roots, quotients. A quotient by a number that is the same for all becomes a product with its
 * reciprocal, as on the GPU (code_hoist). A compiler does neither: it does not know that what the loop stores
 * lies elsewhere, and must round each quotient. What is read where numbers choose (a cotangent of 0 stays 0,
 * whatever the slope is) is read in each turn. What stands under a condition on places is moved where it
 * reads no memory, else with its condition. */
#include <string.h>

#include "cpu.h"
#include "ir/ops.h"

typedef Vec(const KirVar *) Vars;

typedef struct Moved {
    const KirExpr *value, *local;
} Moved;

typedef struct Neighbours {
    Code *code;
    Vars inside; /* what is declared in it */
    Vars stored; /* pointers through which it stores */
    Vec(Moved) moved, read; /* in front of it; in front of the statement at hand */
    KirBlock *front, turn; /* get the locals' declarations */
} Neighbours;

/* Places that are declared: by which expressions. */
typedef struct Places {
    Arena *arena;
    Vec(const KirStmt *) all;
} Places;

static void note_place(KirStmt *s, void *data)
{
    Places *p = data;
    if (s->kind == KI_LET && s->var->type.space == KS_GLOBAL)
        vec_push(p->arena, &p->all, s);
}

/* The pointers that a place is made of, also by way of other places. */
static void pointers_of(const Places *p, const KirExpr *place, Vars *out)
{
    if (place->kind == KX_VAR && place->type.space == KS_GLOBAL) {
        vec_push(p->arena, out, place->var);
        for (int i = 0; i < p->all.len; i++)
            if (p->all.data[i]->var == place->var)
                pointers_of(p, p->all.data[i]->x[0], out);
    }
    for (int i = 0; i < place->nargs; i++)
        pointers_of(p, place->args[i], out);
}

static bool among(const Vars *v, const KirVar *var)
{
    for (int i = 0; i < v->len; i++)
        if (v->data[i] == var)
            return true;
    return false;
}

typedef struct Noting {
    Neighbours *loop;
    const Places *places;
} Noting;

static void note(KirStmt *s, void *data)
{
    Noting *n = data;
    if (s->var)
        vec_push(n->places->arena, &n->loop->inside, s->var);
    if (s->kind == KI_STORE || s->kind == KI_STORE_VECTOR)
        pointers_of(n->places, s->x[0], &n->loop->stored);
}

static bool is_pure(const KirExpr *e)
{
    return e->kind != KX_CALL || (e->function && !e->function->effect && !e->function->writes);
}

/* May it be another number in another turn? */
static bool varies(const Neighbours *l, const KirExpr *e)
{
    bool is_array = e->kind == KX_VAR && e->var->count;
    if (e->kind == KX_WITHIN || e->kind == KX_TEXT || !is_pure(e) || (e->kind == KX_LOAD && e->nargs != 1))
        return true;
    if (e->kind == KX_VAR && (is_array || e->var->changes || among(&l->inside, e->var)))
        return true;
    if (e->kind == KX_VAR && e->type.space == KS_GLOBAL && among(&l->stored, e->var))
        return true;
    for (int i = 0; i < e->nargs; i++)
        if (varies(l, e->args[i]))
            return true;
    return false;
}

static bool reads(const KirExpr *e)
{
    bool any = e->kind == KX_LOAD;
    for (int i = 0; i < e->nargs && !any; i++)
        any = reads(e->args[i]);
    return any;
}

/* Is there anything in it to compute or to read? */
static bool is_work(const KirExpr *e)
{
    bool any = e->kind == KX_LOAD || e->kind == KX_CALL || (e->kind == KX_OP && op_table[e->op].cost > 0);
    for (int i = 0; i < e->nargs && !any; i++)
        any = is_work(e->args[i]);
    return any;
}

static const KirExpr *in_front(Neighbours *l, const KirExpr *e)
{
    Kir *k = l->code->kir;
    for (int i = 0; i < l->moved.len; i++)
        if (kir_equal(l->moved.data[i].value, e))
            return l->moved.data[i].local;
    KirBlock *outer = kir_enter(k, l->front);
    const KirExpr *local = kir_let(k, names_fresh(&l->code->k->locals, "same"), e->type.of, e);
    kir_enter(k, outer);
    vec_push(k->arena, &l->moved, ((Moved){ e, local }));
    return local;
}

/* ---- conditions */

static bool is_choice(const KirExpr *e)
{
    return e->kind == KX_SELECT || (e->kind == KX_OP && e->op == OP_SELECT);
}

static bool joins(const KirExpr *e)
{
    return (e->kind == KX_BINARY && (e->op == KB_AND || e->op == KB_OR)) ||
           (e->kind == KX_OP && (e->op == OP_AND || e->op == OP_OR));
}

static bool compares(const KirExpr *e)
{
    return (e->kind == KX_BINARY && e->op >= KB_LT && e->op <= KB_NE) ||
           (e->kind == KX_OP && e->type.of == KT_BOOL && e->nargs == 2 && !joins(e));
}

/* Does it ask for nothing but numbers, and whether an argument was given? No index is inside of an array on
 * account of such a condition. */
static bool asks_for_numbers(const KirExpr *e)
{
    if (e->kind == KX_WITHIN || e->kind == KX_TEXT || e->kind == KX_CALL)
        return false;
    if (compares(e) && !(kir_is_real(e->args[0]->type.of) && e->args[0]->type.space == KS_VALUE))
        return false;
    if (e->kind == KX_LOAD)
        return true;
    for (int i = 0; i < e->nargs; i++)
        if (!asks_for_numbers(e->args[i]))
            return false;
    return true;
}

/* Where a value stands: it is computed in each turn; it is chosen by numbers, so that what it reads is there
 * in each turn; or it may be read under its condition only. */
typedef enum { ALWAYS, CHOSEN, GUARDED } Stand;

static Stand stand_of(const KirExpr *e, int i, Stand outer)
{
    if (i == 0 || outer == GUARDED || !(is_choice(e) || joins(e)))
        return outer;
    return e->args[0]->type.space == KS_VALUE && asks_for_numbers(e->args[0]) ? CHOSEN : GUARDED;
}

/* ---- */

static const KirExpr *moved(Neighbours *l, const KirExpr *e, Stand stand);

/* a / b with b the same for all: a times 1 / b; NULL: it is none. */
static const KirExpr *as_product(Neighbours *l, const KirExpr *e, Stand stand)
{
    Kir *k = l->code->kir;
    const KirExpr *by = e->nargs == 2 ? e->args[1] : NULL;
    if (e->kind != KX_OP || e->op != OP_DIV || varies(l, by) || by->kind == KX_REAL || by->kind == KX_WHOLE ||
        (stand == GUARDED && reads(by)))
        return NULL;
    const KirExpr *of[] = { kir_real(k, e->type.of, 1), by };
    const KirExpr *factors[] = { moved(l, e->args[0], stand),
                                 in_front(l, kir_op(k, OP_DIV, e->type.of, e->fast, of, 2)) };
    return kir_op(k, OP_MUL, e->type.of, e->fast, factors, 2);
}

/* What is read where numbers choose, read in each turn: a compiler may not, and makes no vectors then. */
static const KirExpr *in_each_turn(Neighbours *l, const KirExpr *load)
{
    Kir *k = l->code->kir;
    for (int i = 0; i < l->read.len; i++)
        if (kir_equal(l->read.data[i].value, load))
            return l->read.data[i].local;
    KirBlock *outer = kir_enter(k, &l->turn);
    const KirExpr *local = kir_let(k, names_fresh(&l->code->k->locals, "read"), load->type.of, load);
    kir_enter(k, outer);
    vec_push(k->arena, &l->read, ((Moved){ load, local }));
    return local;
}

static const KirExpr *moved(Neighbours *l, const KirExpr *e, Stand stand)
{
    const KirExpr *args[64], *product;
    bool other = false, is_number = kir_is_real(e->type.of) && e->type.space == KS_VALUE;
    if (is_number && is_work(e) && !varies(l, e) && (stand != GUARDED || !reads(e)))
        return in_front(l, e);
    if (e->body || e->nargs > 64 || e->type.space != KS_VALUE)
        return e;
    if (is_number && e->kind == KX_LOAD && e->nargs == 1 && stand == CHOSEN)
        return in_each_turn(l, e);
    if (is_number && (product = as_product(l, e, stand)))
        return product;
    for (int i = 0; i < e->nargs; i++) {
        args[i] = moved(l, e->args[i], stand_of(e, i, stand));
        other |= args[i] != e->args[i];
    }
    if (!other)
        return e;
    KirExpr *copy = arena_alloc(l->code->kir->arena, sizeof *copy);
    *copy = *e;
    copy->args = arena_alloc(l->code->kir->arena, sizeof *copy->args * (size_t)e->nargs);
    memcpy(copy->args, args, sizeof *args * (size_t)e->nargs);
    return copy;
}

static void forget(Vars *v, const KirVar *var)
{
    int n = 0;
    for (int i = 0; i < v->len; i++)
        if (v->data[i] != var)
            v->data[n++] = v->data[i];
    v->len = n;
}

static void move_out(Neighbours *l, KirBlock *b)
{
    Arena *arena = l->code->kir->arena;
    KirBlock all = { 0 };
    for (int i = 0; i < b->len; i++) {
        KirStmt *s = b->data[i];
        bool is_real = s->kind == KI_LET && kir_is_real(s->var->type.of) && s->var->type.space == KS_VALUE;
        if (is_real && !varies(l, s->x[0])) {
            vec_push(arena, l->front, s);
            forget(&l->inside, s->var);
            continue;
        }
        if (s->kind == KI_FOR)
            move_out(l, &s->body);
        else if (s->kind == KI_LET || s->kind == KI_VAR)
            s->x[0] = s->x[0] ? moved(l, s->x[0], ALWAYS) : NULL;
        else if (s->kind == KI_ASSIGN || s->kind == KI_STORE)
            s->x[1] = moved(l, s->x[1], ALWAYS);
        for (int j = 0; j < l->turn.len; j++)
            vec_push(arena, &all, l->turn.data[j]);
        vec_push(arena, &all, s);
        l->turn.len = l->read.len = 0;
    }
    *b = all;
}

/* A loop over neighbours, or one whose body is nothing but such loops. */
static bool is_over_neighbours(const KirStmt *s)
{
    bool any = s->n == KIR_LANES;
    for (int i = 0; s->n != KIR_LANES && i < s->body.len; i++) {
        const KirStmt *inner = s->body.data[i];
        bool lanes = inner->kind == KI_FOR && inner->n == KIR_LANES;
        if (!lanes && inner->kind != KI_LET && inner->kind != KI_COMMENT)
            return false;
        any |= lanes;
    }
    return any;
}

static void hoist(Code *x, const Places *places, KirBlock *b)
{
    KirBlock all = { 0 };
    for (int i = 0; i < b->len; i++) {
        KirStmt *s = b->data[i];
        if (s->kind == KI_FOR && is_over_neighbours(s)) {
            Neighbours l = { .code = x, .front = &all };
            vec_push(x->kir->arena, &l.inside, s->var);
            kir_each(&s->body, note, &(Noting){ &l, places });
            move_out(&l, &s->body);
        }
        hoist(x, places, &s->body);
        hoist(x, places, &s->other);
        vec_push(x->kir->arena, &all, s);
    }
    *b = all;
}

void cpu_hoist(Code *x)
{
    Places places = { .arena = x->kir->arena };
    kir_each(&x->head, note_place, &places);
    kir_each(&x->body, note_place, &places);
    hoist(x, &places, &x->body);
}
