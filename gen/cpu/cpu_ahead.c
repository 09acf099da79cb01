/* cpu_ahead.c: what a row's loops take from memory, asked for ahead. In comes the kernel of a ROW group over
 * all steps, behind cpu_hoist; out goes the same with requests (cell_ahead) for lines of the arrays that it
 * reads and writes a row of. A row of 4 KB is a page, and the processor looks for no line behind the page
 * that it is in, so each row begins by waiting, and what a loop writes waits for its lines as well: from
 * memory softmax takes 1.5 times as long without requests, LayerNorm 1.7 times. They stand in the loop that
 * has the most to compute: for this row, if it goes in front of the array's first use, else for the next
 * row; what is written only in front of it, where there is a loop. */
#include <string.h>

#include "cpu.h"

/* BLOCK: elements between requests. Rows of fewer bytes than LEAST are asked for by the processor in time;
 * those of more than MOST would drive one another out of the first caches. */
/* FUNCTION: slots from which on an operator is one, which takes IN_PLACE times as many here as on a GPU. */
enum { FUNCTION = 8, IN_PLACE = 3 };
enum { MOST_LOOPS = 64, MOST_ARRAYS = 16, BLOCK = CPU_MANY_LANES, LEAST = 1 << 10, MOST = 1 << 15 };

/* A loop along the row, over neighbours or over blocks of them; NULL: what stands there is none. */
typedef struct Along {
    KirStmt *outer, *lanes; /* the same, over neighbours */
    const KirExpr *extent;
    int weight, asks; /* slots of a turn; arrays that it asks for */
} Along;

typedef struct Array {
    const KirExpr *row; /* where this row of it begins */
    int first; /* loop that takes it */
    bool written;
} Array;

typedef struct Ahead {
    Code *code;
    const KirStmt *rows;
    Vec(const KirStmt *) lets; /* of the row */
    Along loop[MOST_LOOPS];
    Array array[MOST_ARRAYS];
    int loops, arrays;
    int at; /* loop that is looked at */
} Ahead;

static void note_let(KirStmt *s, void *data)
{
    Ahead *a = data;
    if (s->kind == KI_LET)
        vec_push(a->code->kir->arena, &a->lets, s);
}

/* A place or a whole number without what is declared in the row; NULL: it is made of more than arithmetic,
 * or takes a quotient. */
static const KirExpr *expanded(Ahead *a, const KirExpr *e)
{
    const KirExpr *args[3];
    bool arithmetic = e->kind == KX_BINARY || e->kind == KX_SELECT || e->kind == KX_CONVERT ||
                      e->kind == KX_NOT || e->kind == KX_NEG;
    for (int i = 0; e->kind == KX_VAR && i < a->lets.len; i++)
        if (a->lets.data[i]->var == e->var)
            return expanded(a, a->lets.data[i]->x[0]);
    if (e->kind == KX_BINARY && (e->op == KB_DIV || e->op == KB_MOD))
        return NULL;
    if (!e->nargs)
        return e->kind == KX_VAR || e->kind == KX_WHOLE || e->kind == KX_SPECIAL || e->kind == KX_TRUTH ||
                       e->kind == KX_NULL
                   ? e
                   : NULL;
    if (!arithmetic || e->nargs > 3 || e->body)
        return NULL;
    for (int i = 0; i < e->nargs; i++)
        if (!(args[i] = expanded(a, e->args[i])))
            return NULL;
    KirExpr *own = arena_alloc(a->code->kir->arena, sizeof *own);
    *own = *e;
    own->args = arena_alloc(a->code->kir->arena, sizeof *own->args * (size_t)e->nargs);
    memcpy(own->args, args, sizeof *args * (size_t)e->nargs);
    return own;
}

/* The sum without these summands, each of which is to be found once; NULL: nothing is left. */
static const KirExpr *without(Ahead *a, const KirExpr *e, const KirVar *const *vars, int *found)
{
    for (int i = 0; i < 2; i++)
        if (e->kind == KX_VAR && e->var == vars[i]) {
            found[i]++;
            return NULL;
        }
    if (e->kind != KX_BINARY || e->op != KB_ADD)
        return e;
    const KirExpr *x = without(a, e->args[0], vars, found), *y = without(a, e->args[1], vars, found);
    return !x ? y : !y ? x : x == e->args[0] && y == e->args[1] ? e : code_add(a->code, x, y);
}

/* Where the row begins of an array whose neighbours a loop takes; NULL: it takes others. */
static const KirExpr *row_of(Ahead *a, const KirExpr *place)
{
    const Along *l = &a->loop[a->at];
    const KirVar *vars[2] = { l->lanes->var, l->outer == l->lanes ? NULL : l->outer->var };
    int found[2] = { 0, 0 };
    const KirExpr *all = place->type.space == KS_GLOBAL ? expanded(a, place) : NULL;
    const KirExpr *row = all ? without(a, all, vars, found) : NULL;
    bool once = row && found[0] == 1 && found[1] == (vars[1] != NULL);
    return once && kir_mentions(row, a->rows->var) && !kir_mentions(row, vars[0]) &&
                   !(vars[1] && kir_mentions(row, vars[1]))
               ? row
               : NULL;
}

static void take(Ahead *a, const KirExpr *place, bool written)
{
    const KirExpr *row = row_of(a, place);
    for (int i = 0; row && i < a->arrays; i++)
        if (kir_equal(a->array[i].row, row)) {
            a->array[i].written |= written;
            return;
        }
    if (row && a->arrays < MOST_ARRAYS)
        a->array[a->arrays++] = (Array){ row, a->at, written };
}

/* Notes what an expression reads of rows, and gives its slots. What is read under a condition may not be there. */
static int look(Ahead *a, const KirExpr *e, bool always)
{
    const bool chooses = e->kind == KX_SELECT || (e->kind == KX_OP && e->op == OP_SELECT) ||
                         (e->kind == KX_BINARY && (e->op == KB_AND || e->op == KB_OR));
    int cost = e->kind == KX_OP ? op_table[e->op].cost : e->kind == KX_CALL;
    int weight = cost < FUNCTION ? cost : IN_PLACE * cost;
    if (e->kind == KX_LOAD && e->nargs == 1) {
        if (always)
            take(a, e->args[0], false);
        return 0;
    }
    for (int i = 0; i < e->nargs; i++)
        weight += look(a, e->args[i], always && (i == 0 || !chooses));
    return weight;
}

static void look_at(Ahead *a)
{
    Along *l = &a->loop[a->at];
    for (int i = 0; i < l->lanes->body.len; i++) {
        const KirStmt *s = l->lanes->body.data[i];
        if (s->kind == KI_STORE)
            take(a, s->x[0], true);
        for (int j = s->kind == KI_STORE; j < 3; j++)
            l->weight += s->x[j] ? look(a, s->x[j], true) : 0;
    }
}

/* What a loop along the row goes over, of whole blocks n in place of n - n % BLOCK; NULL: it is none. */
static const KirExpr *extent_of(Ahead *a, const KirStmt *s)
{
    const KirExpr *limit = kir_is_number(s->x[0], 0) ? s->x[1] : NULL;
    for (int i = 0; limit && s->n != KIR_LANES && limit->kind == KX_VAR && i < a->lets.len; i++)
        if (a->lets.data[i]->var == limit->var)
            limit = a->lets.data[i]->x[0];
    bool whole = limit && s->n != KIR_LANES && limit->kind == KX_BINARY && limit->op == KB_SUB;
    return limit ? expanded(a, whole ? limit->args[0] : limit) : NULL;
}

static KirStmt *only_loop(const KirStmt *s)
{
    KirStmt *found = NULL;
    for (int i = 0; i < s->body.len; i++) {
        KirStmt *inner = s->body.data[i];
        if (inner->kind == KI_FOR && (found || inner->n != KIR_LANES))
            return NULL;
        found = inner->kind == KI_FOR ? inner : found;
    }
    return found;
}

static void find_loops(Ahead *a, KirBlock *b)
{
    for (int i = 0; i < b->len && a->loops < MOST_LOOPS; i++) {
        KirStmt *s = b->data[i], *lanes = s->kind != KI_FOR ? NULL : s->n == KIR_LANES ? s : only_loop(s);
        const KirExpr *extent = lanes ? extent_of(a, s) : NULL;
        bool steps = extent && (s == lanes ? kir_is_number(s->x[2], 1)
                                           : kir_is_number(s->x[2], BLOCK) && kir_is_number(lanes->x[0], 0));
        if (!steps)
            continue;
        a->at = a->loops++;
        a->loop[a->at] = (Along){ s, lanes, extent, 0, 0 };
        look_at(a);
    }
}

/* The loop that asks for an array, or NULL. */
static Along *asking(Ahead *a, const Array *array)
{
    const bool in_front = array->written && array->first > 0;
    Along *best = NULL;
    for (int i = 0; i < (in_front ? array->first : a->loops); i++) {
        Along *l = &a->loop[i];
        bool heavier = !best || l->weight * (1 + best->asks) > best->weight * (1 + l->asks);
        if (heavier && kir_equal(l->extent, a->loop[array->first].extent))
            best = l;
    }
    return best;
}

/* In a turn of blocks that begins at element `base`. */
static void ask(Ahead *a, Along *l, const Array *array, const KirExpr *base, const KirExpr *count)
{
    Code *x = a->code;
    KirVar *row = (KirVar *)(uintptr_t)a->rows->var;
    const KirReplaced next = { row, code_add(x, kir_var(x->kir, row), code_int(x, 1)) };
    const bool is_next = l - a->loop >= array->first;
    const KirExpr *of = is_next ? kir_replaced(x->kir, array->row, &next, 1) : array->row;
    kir_do(x->kir, kir_call2(x->kir, "cell_ahead", code_move(x, of, base), count));
}

/* A loop over neighbours becomes one over blocks of them. */
static void cut(Ahead *a, Along *l)
{
    Code *x = a->code;
    Kir *k = x->kir;
    KirStmt *lanes = arena_alloc(k->arena, sizeof *lanes);
    KirBlock body = { 0 }, *outer = kir_enter(k, &body);
    const KirExpr *base =
        kir_var(k, kir_variable(k, names_fresh(&x->k->locals, "base"), l->outer->var->type, false));
    const KirExpr *limit = l->outer->x[1], *block = code_int(x, BLOCK), *left = code_sub(x, limit, base);
    *lanes = *l->outer;
    lanes->x[0] = base;
    lanes->x[1] =
        code_let(x, names_fresh(&x->k->locals, "stop"),
                 kir_select(k, code_binary(x, KB_LT, left, block), limit, code_add(x, base, block)));
    vec_push(k->arena, &body, lanes);
    kir_enter(k, outer);
    *l->outer =
        (KirStmt){ .kind = KI_FOR, .op = lanes->op, .var = base->var, .x = { code_int(x, 0), limit, block } };
    l->outer->body = body;
    l->lanes = lanes;
}

/* Elements of a block, or none where rows have no length to ask for. */
static const KirExpr *count_of(Code *x, const KirExpr *extent)
{
    const int64_t bytes = kir_bytes(code_real(x));
    const KirExpr *fits = code_binary(x, KB_AND, code_binary(x, KB_GE, extent, code_int(x, LEAST / bytes)),
                                      code_binary(x, KB_LE, extent, code_int(x, MOST / bytes)));
    return kir_select(x->kir, fits, code_int(x, BLOCK), code_int(x, 0));
}

void cpu_ahead(Code *x, KirStmt *rows)
{
    Kir *k = x->kir;
    Ahead a = { .code = x, .rows = rows };
    Along *by[MOST_ARRAYS];
    kir_each(&rows->body, note_let, &a);
    find_loops(&a, &rows->body);
    for (int i = 0; i < a.arrays; i++)
        if ((by[i] = asking(&a, &a.array[i])))
            by[i]->asks++;
    for (int j = 0; j < a.loops; j++) {
        Along *l = &a.loop[j];
        if (!l->asks)
            continue;
        if (l->outer == l->lanes)
            cut(&a, l);
        KirBlock all = { 0 }, *outer = kir_enter(k, &all);
        const KirExpr *count = count_of(x, l->extent);
        for (int i = 0; i < a.arrays; i++)
            if (by[i] == l)
                ask(&a, l, &a.array[i], kir_var(k, l->outer->var), count);
        kir_enter(k, outer);
        for (int i = 0; i < l->outer->body.len; i++)
            vec_push(k->arena, &all, l->outer->body.data[i]);
        l->outer->body = all;
    }
}
