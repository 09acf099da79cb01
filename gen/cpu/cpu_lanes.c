/* cpu_lanes.c: loops over neighbours without conditions on the call. In comes a loop whose turns depend
 * on no other, as it was built; out goes the same with stores that are not always wanted (a pointer that
 * the caller may leave out, the last step only) made always: where they are not wanted, to scratch
 * memory; what may be left out is read always, likewise. Which it is, is chosen in front of the loop. A
 * compiler makes vectors of such a loop on any machine, and of one with conditions at most where stores
 * have masks. */
#include <string.h>

#include "cpu.h"

typedef struct Inside {
    const KirVar *vars[256];
    int n;
    bool full;
} Inside;

static void note(KirStmt *s, void *data)
{
    Inside *in = data;
    if (!s->var)
        return;
    in->full |= in->n == 256;
    if (!in->full)
        in->vars[in->n++] = s->var;
}

/* Does the value depend on what is declared in the loop, or on memory? */
static bool varies(const Inside *in, const KirExpr *e)
{
    if (e->kind == KX_LOAD || e->kind == KX_WITHIN || e->kind == KX_CALL)
        return true;
    for (int i = 0; e->kind == KX_VAR && i < in->n; i++)
        if (in->vars[i] == e->var)
            return true;
    for (int i = 0; i < e->nargs; i++)
        if (varies(in, e->args[i]))
            return true;
    return false;
}

/* The place without the loop's variable, which is a summand of it; NULL: it is not, or not the only one
 * that varies. */
static const KirExpr *without(Code *x, const Inside *in, const KirExpr *place, const KirExpr *var)
{
    if (place->kind != KX_BINARY || place->op != KB_ADD)
        return NULL;
    const KirExpr *a = place->args[0], *b = place->args[1];
    if (b->kind == KX_VAR && b->var == var->var)
        return varies(in, a) ? NULL : a;
    if (a->kind == KX_VAR && a->var == var->var)
        return varies(in, b) ? NULL : b;
    bool left = varies(in, a), right = varies(in, b);
    const KirExpr *rest = left && !right   ? without(x, in, a, var)
                          : right && !left ? without(x, in, b, var)
                                           : NULL;
    return !rest ? NULL : left ? code_add(x, rest, b) : code_add(x, a, rest);
}

/* What is read of an argument that the caller may leave out, as zeros then: read always, of scratch
 * memory where it is not there, and chosen behind that. A read behind a condition may be of a place that
 * exists only where it holds: a condition that does not vary in the loop decides with it, and what stands
 * behind another one is left as it is. */
typedef struct Reads {
    Code *code;
    const Inside *in;
    const KirExpr *var;
    KirBlock begin; /* of a turn: declarations of what is read */
    const KirExpr *when; /* conditions around what is looked at; NULL: none */
    bool again; /* it stands behind a condition that varies: only what is read in each turn anyway */
    const KirExpr *select[16], *value[16], *under[16]; /* reads, their values, and `when` of each */
    int n;
} Reads;

static const KirExpr *optional_base(const Reads *r, const KirExpr *e)
{
    bool is = e->kind == KX_SELECT && e->args[1]->kind == KX_LOAD && e->args[1]->nargs == 1 &&
              e->args[1]->args[0]->type.space == KS_GLOBAL && !varies(r->in, e->args[0]) &&
              (kir_is_number(e->args[2], 0) || (e->args[2]->kind == KX_REAL && e->args[2]->real == 0));
    return is ? without(r->code, r->in, e->args[1]->args[0], r->var) : NULL;
}

static const KirExpr *value_of(Reads *r, const KirExpr *e, const KirExpr *base)
{
    enum { MOST = 16 };
    Code *x = r->code;
    Kir *k = x->kir;
    for (int i = 0; i < r->n; i++)
        if (kir_equal(r->select[i], e) &&
            (r->under[i] == r->when || (r->under[i] && r->when && kir_equal(r->under[i], r->when))))
            return r->value[i];
    if (r->n == MOST || r->again)
        return NULL;
    KirType type = base->type;
    const KirExpr *none = kir_convert(k, type, kir_special(k, KP_SCRATCH, 0));
    const KirExpr *there = r->when ? code_binary(x, KB_AND, r->when, e->args[0]) : e->args[0];
    const KirExpr *from =
        kir_let_as(k, names_fresh(&x->k->locals, "from"), type, kir_select(k, there, base, none));
    KirBlock *outer = kir_enter(k, &r->begin);
    const KirExpr *load =
        kir_load(k, (KirAccess)e->args[1]->op, e->args[1]->type.of, code_add(x, from, r->var));
    const KirExpr *value = kir_let(k, names_fresh(&x->k->locals, "read"), load->type.of, load);
    kir_enter(k, outer);
    r->select[r->n] = e;
    r->under[r->n] = r->when;
    return r->value[r->n++] = value;
}

static const KirExpr *with_reads(Reads *r, const KirExpr *e);

/* Does the first argument say which of the others has a value? */
static bool decides(const KirExpr *e)
{
    return e->kind == KX_SELECT || (e->kind == KX_BINARY && (e->op == KB_AND || e->op == KB_OR)) ||
           (e->kind == KX_OP && (e->op == OP_SELECT || e->op == OP_AND || e->op == OP_OR));
}

/* Whether argument i has one where the first does not hold. */
static bool otherwise(const KirExpr *e, int i)
{
    return i == 2 || (e->kind == KX_BINARY && e->op == KB_OR) || (e->kind == KX_OP && e->op == OP_OR);
}

/* The same of what has a value where the condition holds, or where it does not. */
static const KirExpr *behind(Reads *r, const KirExpr *condition, const KirExpr *e, bool negated)
{
    const KirExpr *around = r->when;
    const bool again = r->again;
    if (again || varies(r->in, condition)) {
        r->again = true;
        e = with_reads(r, e);
        r->again = again;
        return e;
    }
    if (negated)
        condition = kir_not(r->code->kir, condition);
    r->when = around ? code_binary(r->code, KB_AND, around, condition) : condition;
    e = with_reads(r, e);
    r->when = around;
    return e;
}

static const KirExpr *with_reads(Reads *r, const KirExpr *e)
{
    const KirExpr *base = e ? optional_base(r, e) : NULL, *value = base ? value_of(r, e, base) : NULL;
    const KirExpr *args[64];
    bool other = false;
    if (value)
        return kir_select(r->code->kir, e->args[0], value, e->args[2]);
    if (!e || e->body || e->nargs > 64)
        return e;
    for (int i = 0; i < e->nargs; i++) {
        args[i] =
            i && decides(e) ? behind(r, e->args[0], e->args[i], otherwise(e, i)) : with_reads(r, e->args[i]);
        other |= args[i] != e->args[i];
    }
    if (!other)
        return e;
    KirExpr *copy = arena_alloc(r->code->kir->arena, sizeof *copy);
    *copy = *e;
    copy->args = arena_alloc(r->code->kir->arena, sizeof *copy->args * (size_t)e->nargs);
    memcpy(copy->args, args, sizeof *args * (size_t)e->nargs);
    return copy;
}

static bool read_always(Code *x, const Inside *in, KirStmt *loop, const KirExpr *var)
{
    Kir *k = x->kir;
    Reads r = { .code = x, .in = in, .var = var };
    for (int i = 0; i < loop->body.len; i++)
        for (int j = 0; j < 3 && loop->body.data[i]->kind != KI_COMMENT; j++)
            loop->body.data[i]->x[j] = with_reads(&r, loop->body.data[i]->x[j]);
    KirBlock all = { 0 };
    bool here =
        loop->var == var->var; /* else it is declared in the loop, and what is read stands behind that */
    for (int j = 0; here && j < r.begin.len; j++)
        vec_push(k->arena, &all, r.begin.data[j]);
    for (int i = 0; i < loop->body.len; i++) {
        vec_push(k->arena, &all, loop->body.data[i]);
        for (int j = 0; !here && loop->body.data[i]->var == var->var && j < r.begin.len; j++)
            vec_push(k->arena, &all, r.begin.data[j]);
    }
    loop->body = all;
    return r.n > 0;
}

/* A store at the variable's place under a condition that is the same for the whole loop. What it adds to
 * is read of the scratch memory too, whatever lies there: one question for all stores, which GCC takes
 * out of the loop. */
static const KirExpr *base_of(Code *x, const Inside *in, const KirStmt *s, const KirExpr *var)
{
    bool one = s->kind == KI_IF && s->body.len == 1 && !s->other.len && s->body.data[0]->kind == KI_STORE;
    if (!one || varies(in, s->x[0]) || (s->body.data[0]->x[2] && varies(in, s->body.data[0]->x[2])))
        return NULL;
    return without(x, in, s->body.data[0]->x[0], var);
}

bool cpu_close_lanes(Code *x, KirOpen open, const KirExpr *var)
{
    Kir *k = x->kir;
    KirStmt *loop = open.statement;
    Inside in = { .vars = { loop->var, var->kind == KX_VAR ? var->var : loop->var }, .n = 2 };
    bool any = false;
    kir_each(&loop->body, note, &in);
    kir_close(k, open);
    if (in.full || var->kind != KX_VAR)
        return false;
    KirBlock *block = k->at;
    block->len--; /* what is chosen stands in front of the loop */
    any = read_always(x, &in, loop, var);
    for (int i = 0; i < loop->body.len; i++) {
        KirStmt *s = loop->body.data[i];
        const KirExpr *base = base_of(x, &in, s, var);
        if (!base)
            continue;
        const KirStmt *store = s->body.data[0];
        KirType type = kir_global(base->type.of, true);
        const KirExpr *none = kir_convert(k, type, kir_special(k, KP_SCRATCH, 0));
        const KirExpr *to =
            kir_let_as(k, names_fresh(&x->k->locals, "to"), type, kir_select(k, s->x[0], base, none));
        *s = *store;
        s->x[0] = code_add(x, to, var);
        any = true;
    }
    vec_push(k->arena, block, loop);
    return any;
}
