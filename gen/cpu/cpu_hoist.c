/* cpu_hoist.c: what is the same for all turns of a loop over neighbours, once in front of it. In comes a
 * kernel as it was built; out goes the same with such parts of its expressions as locals: reads of one
 * number of the row, roots, quotients. A quotient by a number that is the same for all becomes a product
 * with its reciprocal, as on the GPU (code_hoist). A compiler does neither: it does not know that what the
 * loop stores lies elsewhere, and must round each quotient. What is read where numbers choose (a cotangent
 * of 0 stays 0, whatever the slope is) is read in each turn. What stands under a condition on places is
 * moved where it reads no memory, else with its condition. A function of the neighbour alone, in a loop
 * over rows (as of a param whose gradient is summed there), is computed for all neighbours in front of the
 * rows. A function that is the same for all turns of another loop stands in front of that, and one that is
 * the same for all items of a row is computed for the first of them. */
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
    Vec(Moved) moved, read; /* in front of it; in front of the current statement */
    KirBlock *front, turn; /* get the locals' declarations */
    const KirStmt
        *lanes; /* the loop over neighbours inside of it that is looked at; NULL: it is one itself */
    Vars of_lane; /* what is declared there and depends on nothing else that is declared in the loop */
    const KirExpr *count; /* elements of an array that has one for each of these neighbours; NULL: unknown */
    Vec(Moved) columns; /* values of that kind, and the arrays that hold them */
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

/* ---- functions of the neighbour alone, in a loop over rows around the one over neighbours */

/* Is it the same in all turns of the outer loop? */
static bool is_of_lane(Neighbours *l, const KirExpr *e)
{
    Vars all = l->inside;
    l->inside = (Vars){ 0 };
    for (int i = 0; i < all.len; i++)
        if (!among(&l->of_lane, all.data[i]))
            vec_push(l->code->kir->arena, &l->inside, all.data[i]);
    bool is = !varies(l, e);
    l->inside = all;
    return is;
}

static bool has_function(const KirExpr *e)
{
    enum { SLOTS = 8 };
    bool any = e->kind == KX_OP && op_table[e->op].cost >= SLOTS;
    for (int i = 0; i < e->nargs && !any; i++)
        any = has_function(e->args[i]);
    return any;
}

static const KirExpr *with_args(Kir *k, const KirExpr *e, const KirExpr *const *args)
{
    KirExpr *copy = arena_alloc(k->arena, sizeof *copy);
    *copy = *e;
    copy->args = arena_alloc(k->arena, sizeof *copy->args * (size_t)e->nargs);
    memcpy(copy->args, args, sizeof *args * (size_t)e->nargs);
    return copy;
}

/* The expression with another loop's variable, and what is declared in between in its place. */
static const KirExpr *at_lane(const Neighbours *l, const KirExpr *e, const KirExpr *lane)
{
    const KirExpr *args[64] = { NULL };
    if (e->kind == KX_VAR && e->var == l->lanes->var)
        return lane;
    for (int i = 0; e->kind == KX_VAR && i < l->lanes->body.len; i++)
        if (l->lanes->body.data[i]->var == e->var)
            return at_lane(l, l->lanes->body.data[i]->x[0], lane);
    for (int i = 0; i < e->nargs; i++)
        args[i] = at_lane(l, e->args[i], lane);
    return e->nargs ? with_args(l->code->kir, e, args) : e;
}

/* Its element of an array that a loop in front of the outer one fills. */
static const KirExpr *of_column(Neighbours *l, const KirExpr *e)
{
    Kir *k = l->code->kir;
    const KirExpr *array = NULL, *lane, *here = kir_var(k, l->lanes->var);
    for (int i = 0; i < l->columns.len && !array; i++)
        if (kir_equal(l->columns.data[i].value, e))
            array = l->columns.data[i].local;
    if (!array) {
        KirBlock *outer = kir_enter(k, l->front);
        array = kir_array(k, names_fresh(&l->code->k->locals, "per_lane"), e->type.of, l->count, true);
        KirOpen loop = code_for(l->code, names_fresh(&l->code->k->locals, "lane"), l->lanes->x[0],
                                l->lanes->x[1], l->lanes->x[2], &lane);
        loop.statement->n = KIR_LANES;
        kir_assign(k, kir_element(k, array, lane), at_lane(l, e, lane));
        kir_close(k, loop);
        kir_enter(k, outer);
        vec_push(k->arena, &l->columns, ((Moved){ e, array }));
    }
    return kir_element(k, array, here);
}

/* An array beside the loop with an element for each neighbour, such as its sums: how many it has. */
static const KirExpr *count_of(const Neighbours *l, const KirStmt *lanes)
{
    for (int i = 0; i < lanes->body.len; i++) {
        const KirStmt *s = lanes->body.data[i];
        const KirVar *array = s->kind == KI_ASSIGN ? kir_array_var(s->x[0]->args[0]) : NULL;
        if (array && array->count && !among(&l->inside, array) && s->x[0]->args[1]->kind == KX_VAR &&
            s->x[0]->args[1]->var == lanes->var)
            return array->count;
    }
    return NULL;
}

static void enter_lanes(Neighbours *l, const KirStmt *lanes)
{
    Arena *arena = l->code->kir->arena;
    l->lanes = lanes;
    l->of_lane.len = 0;
    l->count = count_of(l, lanes);
    vec_push(arena, &l->of_lane, lanes->var);
    for (int i = 0; i < lanes->body.len; i++)
        if (lanes->body.data[i]->kind == KI_LET && is_of_lane(l, lanes->body.data[i]->x[0]))
            vec_push(arena, &l->of_lane, lanes->body.data[i]->var);
}

/* ---- */

static const KirExpr *moved(Neighbours *l, const KirExpr *e, Stand stand)
{
    const KirExpr *args[64], *product;
    bool other = false, is_number = kir_is_real(e->type.of) && e->type.space == KS_VALUE;
    if (is_number && is_work(e) && !varies(l, e) && (stand != GUARDED || !reads(e)))
        return in_front(l, e);
    if (e->body || e->nargs > 64 || e->type.space != KS_VALUE)
        return e;
    if (is_number && l->count && (stand != GUARDED || !reads(e)) && has_function(e) && is_of_lane(l, e))
        return of_column(l, e);
    if (is_number && e->kind == KX_LOAD && e->nargs == 1 && stand == CHOSEN)
        return in_each_turn(l, e);
    if (is_number && (product = as_product(l, e, stand)))
        return product;
    for (int i = 0; i < e->nargs; i++) {
        args[i] = moved(l, e->args[i], stand_of(e, i, stand));
        other |= args[i] != e->args[i];
    }
    return other ? with_args(l->code->kir, e, args) : e;
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
        if (s->kind == KI_FOR) {
            if (s->n == KIR_LANES)
                enter_lanes(l, s);
            move_out(l, &s->body);
            l->count = NULL;
        } else if (s->kind == KI_LET || s->kind == KI_VAR)
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

/* ---- loops around those */

static bool is_costly_number(const KirStmt *s)
{
    return s->kind == KI_LET && kir_is_real(s->var->type.of) && s->var->type.space == KS_VALUE &&
           has_function(s->x[0]);
}

/* Functions that are the same in all turns of another loop stand in front of it. */
static void move_functions(Code *x, const Places *places, KirStmt *loop, KirBlock *front)
{
    Neighbours l = { .code = x };
    KirBlock all = { 0 };
    vec_push(x->kir->arena, &l.inside, loop->var);
    kir_each(&loop->body, note, &(Noting){ &l, places });
    for (int i = 0; i < loop->body.len; i++) {
        KirStmt *s = loop->body.data[i];
        const bool goes = is_costly_number(s) && !varies(&l, s->x[0]);
        vec_push(x->kir->arena, goes ? front : &all, s);
        if (goes)
            forget(&l.inside, s->var);
    }
    loop->body = all;
}

/* What the local is, computed where the row is not the last one. */
static KirStmt *once(Code *x, const KirExpr *last, KirStmt *let)
{
    Kir *k = x->kir;
    KirBlock block = { 0 };
    KirBlock *outer = kir_enter(k, &block);
    KirOpen other = kir_if(k, code_binary(x, KB_NE, last, x->of_row));
    kir_assign(k, kir_var(k, let->var), let->x[0]);
    kir_close(k, other);
    kir_enter(k, outer);
    return block.data[0];
}

/* Is the row's number declared by one of these statements? */
static bool names_row(const Code *x, const KirBlock *b)
{
    bool any = false;
    for (int i = 0; i < b->len && x->of_row; i++)
        any |= b->data[i]->kind == KI_LET && x->of_row->kind == KX_VAR && b->data[i]->var == x->of_row->var;
    return any;
}

/* Functions that are the same for all items of a row are computed for the first of these: what is computed is
 * kept for the items behind it, beside the row's number. */
static void once_a_row(Code *x, const Places *places, KirStmt *items, KirBlock *front)
{
    Kir *k = x->kir;
    Neighbours l = { .code = x };
    const KirExpr *last = NULL;
    if (!names_row(x, &items->body))
        return;
    vec_push(k->arena, &l.inside, items->var);
    kir_each(&items->body, note, &(Noting){ &l, places });
    forget(&l.inside, x->of_row->var);
    for (int i = 0; i < items->body.len; i++) {
        KirStmt *s = items->body.data[i];
        if (s->kind != KI_LET || s->var == x->of_row->var || varies(&l, s->x[0]))
            continue;
        forget(&l.inside, s->var);
        if (!is_costly_number(s))
            continue;
        KirBlock *outer = kir_enter(k, front);
        if (!last)
            last = kir_mutable(k, names_fresh(&x->k->locals, "last_row"), KT_I64, code_int(x, -1));
        s->var->changes = true;
        kir_add(k, (KirStmt){ .kind = KI_VAR, .var = s->var, .x = { kir_real(k, s->var->type.of, 0) } });
        kir_enter(k, outer);
        items->body.data[i] = once(x, last, s);
    }
    if (!last)
        return;
    KirBlock *outer = kir_enter(k, &items->body);
    kir_assign(k, last, x->of_row);
    kir_enter(k, outer);
}

static void hoist(Code *x, const Places *places, KirBlock *b, int depth)
{
    KirBlock all = { 0 };
    for (int i = 0; i < b->len; i++) {
        KirStmt *s = b->data[i];
        const bool neighbours = s->kind == KI_FOR && is_over_neighbours(s);
        if (neighbours) {
            Neighbours l = { .code = x, .front = &all };
            vec_push(x->kir->arena, &l.inside, s->var);
            kir_each(&s->body, note, &(Noting){ &l, places });
            move_out(&l, &s->body);
        }
        hoist(x, places, &s->body, depth + 1);
        hoist(x, places, &s->other, depth + 1);
        if (s->kind == KI_FOR && !neighbours && depth > 0)
            move_functions(x, places, s, &all);
        if (s->kind == KI_FOR && depth == 0)
            once_a_row(x, places, s, &all);
        vec_push(x->kir->arena, &all, s);
    }
    *b = all;
}

void cpu_hoist(Code *x)
{
    Places places = { .arena = x->kir->arena };
    kir_each(&x->head, note_place, &places);
    kir_each(&x->body, note_place, &places);
    hoist(x, &places, &x->body, 0);
}
