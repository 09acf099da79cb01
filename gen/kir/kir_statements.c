/* kir_statements.c: a kernel and its statements. In come expressions; out goes a kernel that grows where
 * the builder stands. Names are the caller's, and differ from those in scope. */
#include <string.h>

#include "kir.h"

Kir *kir_new(Arena *arena, const char *name, int threads)
{
    Kir *k = arena_alloc(arena, sizeof *k);
    *k = (Kir){ .arena = arena, .name = name, .threads = threads };
    k->at = &k->body;
    return k;
}

KirVar *kir_variable(Kir *k, const char *name, KirType type, bool changes)
{
    KirVar *v = arena_alloc(k->arena, sizeof *v);
    *v = (KirVar){ .name = name, .type = type, .changes = changes };
    return v;
}

static KirStmt *add(Kir *k, KirStmt s)
{
    KirStmt *own = arena_alloc(k->arena, sizeof *own);
    *own = s;
    vec_push(k->arena, k->at, own);
    return own;
}

void kir_add(Kir *k, KirStmt s)
{
    add(k, s);
}

static const KirExpr *declare(Kir *k, KirStmtKind kind, KirVar *v, const KirExpr *value)
{
    add(k, (KirStmt){ .kind = kind, .var = v, .x = { value } });
    return kir_var(k, v);
}

static KirType declared_type(KirScalar as, const KirExpr *value)
{
    return as == KT_VOID ? value->type : kir_value(as);
}

const KirExpr *kir_let(Kir *k, const char *name, KirScalar as, const KirExpr *value)
{
    return declare(k, KI_LET, kir_variable(k, name, declared_type(as, value), false), value);
}

const KirExpr *kir_let_as(Kir *k, const char *name, KirType type, const KirExpr *value)
{
    return declare(k, KI_LET, kir_variable(k, name, type, false), value);
}

const KirExpr *kir_mutable(Kir *k, const char *name, KirScalar as, const KirExpr *value)
{
    return declare(k, KI_VAR, kir_variable(k, name, declared_type(as, value), true), value);
}

const KirExpr *kir_array(Kir *k, const char *name, KirScalar of, const KirExpr *count, bool zero)
{
    KirVar *v = kir_variable(k, name, (KirType){ .of = of, .space = KS_REGISTERS, .written = true }, true);
    v->count = count;
    add(k, (KirStmt){ .kind = KI_ARRAY, .var = v, .n = zero });
    return kir_var(k, v);
}

const KirExpr *kir_array_of_arrays(Kir *k, const char *name, KirScalar of, const KirExpr *rows,
                                   const KirExpr *count)
{
    const KirExpr *array = kir_array(k, name, of, count, false);
    array->var->rows = rows;
    return array;
}

const KirExpr *kir_shared_array(Kir *k, const char *name, KirScalar of, const KirExpr *count)
{
    KirVar *v = kir_variable(k, name, (KirType){ .of = of, .space = KS_SHARED, .written = true }, false);
    v->count = count;
    return declare(k, KI_SHARED, v, NULL);
}

KirVar *kir_place(Kir *k, const char *name, const KirExpr *vectors)
{
    KirVar *v = kir_variable(k, name, kir_value(KT_PLACE), false);
    v->count = vectors;
    return v;
}

const KirExpr *kir_let_var(Kir *k, KirVar *v, const KirExpr *value)
{
    return declare(k, KI_LET, v, value);
}

const KirExpr *kir_row(Kir *k, const char *name, KirLayout layout, KirScalar of, const KirExpr *vectors,
                       const KirExpr *width, const KirExpr *at)
{
    KirType type = { .of = of, .space = KS_ROW, .layout = layout, .written = true };
    KirVar *v = kir_variable(k, name, type, true);
    v->rows = vectors;
    v->count = width;
    return declare(k, KI_ARRAY, v, at);
}

const KirExpr *kir_fragment(Kir *k, const char *name, KirScalar of, KirLayout layout)
{
    KirType type = { .of = of, .space = KS_FRAGMENT, .layout = layout, .written = true };
    return declare(k, KI_ARRAY, kir_variable(k, name, type, true), NULL);
}

void kir_assign(Kir *k, const KirExpr *to, const KirExpr *value)
{
    add(k, (KirStmt){ .kind = KI_ASSIGN, .op = KB_COUNT, .x = { to, value } });
}

void kir_add_to(Kir *k, const KirExpr *to, const KirExpr *value)
{
    add(k, (KirStmt){ .kind = KI_ASSIGN, .op = KB_ADD, .x = { to, value } });
}

void kir_store(Kir *k, const KirExpr *place, const KirExpr *value, const KirExpr *adds)
{
    add(k, (KirStmt){ .kind = KI_STORE, .x = { place, value, adds } });
}

void kir_do(Kir *k, const KirExpr *call)
{
    add(k, (KirStmt){ .kind = KI_CALL, .x = { call } });
}

void kir_statement(Kir *k, KirStmtKind kind)
{
    add(k, (KirStmt){ .kind = kind });
}

void kir_barrier(Kir *k, KirScope of)
{
    add(k, (KirStmt){ .kind = KI_BARRIER, .op = (int)of });
}

void kir_comment(Kir *k, const char *text)
{
    add(k, (KirStmt){ .kind = KI_COMMENT, .text = text });
}

void kir_load_vector(Kir *k, KirAccess how, const KirExpr *registers, const KirExpr *wide,
                     const KirExpr *place, const KirExpr *offset)
{
    add(k,
        (KirStmt){ .kind = KI_LOAD_VECTOR, .op = (int)how, .wide = wide, .x = { registers, place, offset } });
}

void kir_store_vector(Kir *k, const KirExpr *place, const KirExpr *registers, const KirExpr *wide,
                      const KirExpr *adds)
{
    add(k, (KirStmt){ .kind = KI_STORE_VECTOR, .wide = wide, .x = { place, registers, adds } });
}

void kir_append(Kir *k, const KirBlock *statements)
{
    for (int i = 0; i < statements->len; i++)
        vec_push(k->arena, k->at, statements->data[i]);
}

/* ---- parameters ---- */

/* One node, which all that is built of it has: kir_settle makes it a number. */
const KirExpr *kir_unknown(Kir *k, const char *name, KirScalar type)
{
    return kir_var(k, kir_variable(k, name, kir_value(type), false));
}

void kir_parameter(Kir *k, const KirExpr *unknown)
{
    vec_push(k->arena, &k->params, unknown->var);
}

void kir_settle(const KirExpr *unknown, int64_t v)
{
    KirExpr *e = (KirExpr *)unknown;
    bool truth = e->type.of == KT_BOOL;
    *e = (KirExpr){ .kind = truth ? KX_TRUTH : KX_WHOLE, .type = e->type, .whole = v };
}

void kir_run(Kir *k, const KirExpr *const *values)
{
    KirStmt s = { .kind = KI_RUN };
    for (int i = 0; i < k->params.len; i++)
        s.x[i] = values[i];
    add(k, s);
}

/* ---- statements with statements inside ---- */

KirBlock *kir_enter(Kir *k, KirBlock *block)
{
    KirBlock *outer = k->at;
    k->at = block;
    return outer;
}

static KirOpen open_body(Kir *k, KirStmt s)
{
    KirOpen o = { .outer = k->at, .statement = add(k, s) };
    k->at = &o.statement->body;
    return o;
}

KirOpen kir_for(Kir *k, const char *name, KirScalar of, const KirExpr *first, KirBinary op,
                const KirExpr *limit, const KirExpr *by, const KirExpr **var)
{
    KirVar *v = kir_variable(k, name, kir_value(of), false);
    *var = kir_var(k, v);
    return kir_for_var(k, v, first, op, limit, by);
}

KirOpen kir_for_var(Kir *k, KirVar *v, const KirExpr *first, KirBinary op, const KirExpr *limit,
                    const KirExpr *by)
{
    return open_body(k, (KirStmt){ .kind = KI_FOR, .op = (int)op, .var = v, .x = { first, limit, by } });
}

KirOpen kir_while(Kir *k, const KirExpr *condition)
{
    return open_body(k, (KirStmt){ .kind = KI_WHILE, .x = { condition } });
}

KirOpen kir_if(Kir *k, const KirExpr *condition)
{
    return open_body(k, (KirStmt){ .kind = KI_IF, .x = { condition } });
}

KirOpen kir_open_function(Kir *k, const char *name, const KirExpr **function)
{
    KirVar *v = kir_variable(k, name, (KirType){ .space = KS_FUNCTION }, false);
    KirOpen open = open_body(k, (KirStmt){ .kind = KI_FUNCTION, .var = v });
    v->body = &open.statement->body;
    *function = kir_var(k, v);
    return open;
}

const KirExpr *kir_parameter_of(Kir *k, const char *name, KirScalar of)
{
    return declare(k, KI_PARAMETER, kir_variable(k, name, kir_value(of), false), NULL);
}

KirVar *kir_array_given(Kir *k, const char *name, KirScalar of, const KirExpr *rows, const KirExpr *count,
                        bool written)
{
    KirVar *v =
        kir_variable(k, name, (KirType){ .of = of, .space = KS_REGISTERS, .written = written }, written);
    v->rows = rows;
    v->count = count;
    return v;
}

KirVar *kir_vector_given(Kir *k, const char *name, KirScalar of, const KirExpr *count)
{
    KirType type = { .of = of, .space = KS_ROW, .layout = KL_KEPT, .written = true };
    KirVar *v = kir_variable(k, name, type, true);
    v->rows = kir_whole(k, 1);
    v->count = count;
    return v;
}

void kir_apply(Kir *k, const KirExpr *function, const KirExpr *const *args, int n)
{
    kir_do(k, kir_applied(k, function, args, n));
}

void kir_else(Kir *k, KirOpen *open)
{
    k->at = &open->statement->other;
}

void kir_close(Kir *k, KirOpen open)
{
    k->at = open.outer;
}

/* ---- walks ---- */

static void each_within(const KirExpr *e, void (*f)(KirStmt *, void *), void *data)
{
    if (e && e->body)
        kir_each(e->body, f, data);
    for (int i = 0; e && i < e->nargs; i++)
        each_within(e->args[i], f, data);
}

void kir_each(const KirBlock *b, void (*f)(KirStmt *, void *), void *data)
{
    for (int i = 0; i < b->len; i++) {
        KirStmt *s = b->data[i];
        for (int j = 0; j < 3; j++)
            each_within(s->x[j], f, data);
        f(s, data);
        kir_each(&s->body, f, data);
        kir_each(&s->other, f, data);
    }
}
