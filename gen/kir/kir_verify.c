/* kir_verify.c: is a kernel one? In comes a kernel that was built or read; out goes NULL, or the first
 * thing that is wrong: a read of what is not declared there, or has no value on some way to it; types that
 * do not agree; a write through a pointer to constants; shared memory that is not what the launch gives.
 * What threads do together is checked behind it (kir_threads.c), on a kernel of which this is known. */
#include <string.h>

#include "kir.h"

typedef struct Verify {
    Kir *k;
    const char *error;
    Vec(KirVar *) scope;
    int loops;                    /* around the statement */
    int depth;                    /* of blocks, and of values with statements */
    int within;
    bool entry;
    int64_t shared;
    int number;
} Verify;

static bool fail(Verify *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static bool fail(Verify *v, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (!v->error)
        v->error = arena_text(v->k->arena, fmt, args);
    va_end(args);
    return false;
}

static const char *type_words(Verify *v, KirType t)
{
    static const char *const layouts[] = { "",     " left fragment", " right fragment", " sum fragment",
                                           " row", " row ahead",     " column sums" };
    static const char *const spaces[] = { "", "*", " shared", " array", "", "", " function" };
    Buf b = { .arena = v->k->arena };
    buf_f(&b, "%s%s%s%s", t.space == KS_GLOBAL && !t.written ? "const " : "", kir_scalar_words[t.of],
          spaces[t.space], layouts[t.layout]);
    return b.data;
}

/* ---- expressions ---- */

static bool check_statements(Verify *v, const KirBlock *b);
static bool check_block(Verify *v, const KirBlock *b);
static bool check_expr(Verify *v, const KirExpr *e);

static void close_scope(Verify *v, int from)
{
    for (int i = from; i < v->scope.len; i++)
        v->scope.data[i]->number = 0;
    v->scope.len = from;
}

static bool is_truth(const KirExpr *e)
{
    return (e->type.of == KT_BOOL && e->type.space == KS_VALUE) || kir_is_place(e->type);
}

static bool is_number(const KirExpr *e)
{
    return e->type.space == KS_VALUE && (kir_is_whole(e->type.of) || kir_is_real(e->type.of));
}

static bool is_whole(const KirExpr *e)
{
    return e->type.space == KS_VALUE && kir_is_whole(e->type.of);
}

/* May e be given where such a value is wanted, without a conversion that is written? */
static bool fits(KirType to, const KirExpr *e)
{
    if (kir_is_place(to))
        return e->type.space == to.space &&
               (e->type.of == to.of ||
                (e->kind == KX_SPECIAL && (e->op == KP_POINTER || e->op == KP_TABLE))) &&
               (e->type.written || !to.written);
    if (e->type.space != KS_VALUE || to.space != KS_VALUE)
        return false;
    bool widens = (to.of == KT_I64 || to.of == KT_PLACE) && kir_is_whole(e->type.of);
    return e->type.of == to.of || widens || (e->kind == KX_WHOLE && to.of != KT_BOOL && to.of != KT_VOID);
}

static bool check_binary(Verify *v, const KirExpr *e)
{
    const KirExpr *a = e->args[0], *b = e->args[1];
    const char *op = kir_binary_words[e->op];
    if (e->op == KB_AND || e->op == KB_OR)
        return (is_truth(a) && is_truth(b)) || fail(v, "%s of what is no condition", op);
    if (kir_is_place(a->type)) {
        bool moved = (e->op == KB_ADD || e->op == KB_SUB) && is_whole(b);
        bool compared = (e->op == KB_EQ || e->op == KB_NE) && kir_same_type(a->type, b->type);
        return moved || compared || fail(v, "%s of a place and %s", op, type_words(v, b->type));
    }
    bool whole = is_whole(a) && is_whole(b), only_whole = e->op == KB_MOD || e->op == KB_BITS;
    bool same = a->type.of == b->type.of || a->kind == KX_WHOLE || b->kind == KX_WHOLE;
    bool right = is_number(a) && is_number(b) && (whole || (same && !only_whole));
    return right || fail(v, "%s of %s and %s", op, type_words(v, a->type), type_words(v, b->type));
}

/* Is it known when the kernel is compiled: a number, or a parameter in scope? */
static bool is_known(const Verify *v, const KirExpr *e)
{
    bool parameter = false;
    for (int i = 0; e->kind == KX_VAR && i < v->k->params.len; i++)
        parameter |= v->k->params.data[i] == e->var && e->var->number;
    return parameter || e->kind == KX_WHOLE || e->kind == KX_TRUTH;
}

/* An array of registers is read where something was written to it before. */
static bool check_given(Verify *v, const KirVar *x)
{
    return x->given || fail(v, "%s is read before it has a value", x->name);
}

static bool check_element(Verify *v, const KirExpr *e, bool read)
{
    const KirExpr *of = e->args[0], *at = e->args[1];
    const KirVar *array = kir_array_var(of);
    if (array) {
        const KirExpr *count = of->kind == KX_VAR && array->rows ? array->rows : array->count;
        if (!array->number)
            return fail(v, "%s is not declared there", array->name);
        if (of->kind == KX_LOAD && !check_element(v, of, false))
            return false;
        if (read && !check_given(v, array))
            return false;
        if (count->kind == KX_WHOLE && at->kind == KX_WHOLE && (at->whole < 0 || at->whole >= count->whole))
            return fail(v, "element %lld of %s, which has %lld", (long long)at->whole, array->name,
                        (long long)count->whole);
    } else if (!kir_is_place(of->type) || !check_expr(v, of)) {
        return fail(v, "an element of %s", type_words(v, of->type));
    }
    return (check_expr(v, at) && is_whole(at)) || fail(v, "the place of an element is %s",
                                                       type_words(v, at->type));
}

static bool check_load(Verify *v, const KirExpr *e)
{
    if (e->nargs == 2)
        return check_element(v, e, true);
    const KirExpr *at = e->args[0];
    if (!check_expr(v, at))
        return false;
    if (!kir_is_place(at->type))
        return fail(v, "a load from %s", type_words(v, at->type));
    if (e->op == KA_LOAD_RO && at->type.space != KS_GLOBAL)
        return fail(v, "a load of constants from shared memory");
    bool whole = kir_is_whole(at->type.of);
    return (whole ? kir_is_whole(e->type.of) : kir_is_real(e->type.of)) ||
           fail(v, "a load of %s as %s", kir_scalar_words[at->type.of], kir_scalar_words[e->type.of]);
}

/* What is written through must be a place that may be written, or an array that changes. */
static bool check_written(Verify *v, const KirExpr *to)
{
    bool whole = to->kind == KX_VAR && (to->type.space == KS_FRAGMENT || to->type.space == KS_ROW);
    KirVar *array = whole ? to->var : kir_array_var(to);
    if (to->kind == KX_VAR && to->type.space == KS_VALUE)
        return (check_expr(v, to) && to->var->changes) || fail(v, "%s does not change", to->var->name);
    if (array) {
        if (!array->number)
            return fail(v, "%s is not declared there", array->name);
        if (!array->changes)
            return fail(v, "%s does not change", array->name);
        if (to->kind == KX_LOAD && !check_element(v, to, false))
            return false;
        array->given = true;
        return true;
    }
    if (!check_expr(v, to))
        return false;
    return (kir_is_place(to->type) && to->type.written) || fail(v, "a write through %s",
                                                                type_words(v, to->type));
}

/* What is called of a thread's vectors must be theirs; the array of neighbours is as long as a vector. */
static bool check_method(Verify *v, const KirExpr *e)
{
    static const struct {
        const char *name;
        unsigned layouts;
    } methods[] = { { ".load", 1 << KL_KEPT | 1 << KL_AHEAD },
                    { ".load_or_zero", 1 << KL_KEPT | 1 << KL_AHEAD },
                    { ".values", 1 << KL_KEPT | 1 << KL_AHEAD },
                    { ".values_or_zero", 1 << KL_KEPT | 1 << KL_AHEAD },
                    { ".turn", 1 << KL_AHEAD },
                    { ".open", 1 << KL_COLUMNS },
                    { ".close", 1 << KL_COLUMNS },
                    { ".flush", 1 << KL_COLUMNS } };
    const KirExpr *of = e->args[0];
    bool has = false;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        has |= strcmp(methods[i].name, e->function->name) == 0 && of->kind == KX_VAR &&
               of->type.space == KS_ROW && methods[i].layouts >> of->type.layout & 1;
    if (!has)
        return fail(v, "%s of %s", e->function->name, type_words(v, of->type));
    KirVar *array = e->nargs > 3 ? kir_array_var(e->args[1]) : NULL;
    return !array || kir_equal(array->count, of->var->count) ||
           fail(v, "a vector in %s, which has another number of elements", array->name);
}

/* Parameters stand in front of a function's statements. */
static bool check_apply(Verify *v, const KirExpr *e)
{
    const KirVar *f = e->var;
    int n = 0;
    if (f->type.space != KS_FUNCTION || !f->number)
        return fail(v, "%s is no function that is declared there", f->name);
    while (n < f->body->len && f->body->data[n]->kind == KI_PARAMETER)
        n++;
    if (n != e->nargs)
        return fail(v, "%s with %d arguments, not %d", f->name, e->nargs, n);
    for (int i = 0; i < n; i++)
        if (!check_expr(v, e->args[i]) || !fits(f->body->data[i]->var->type, e->args[i]))
            return fail(v, "%s gets %s", f->name, type_words(v, e->args[i]->type));
    return true;
}

static bool is_vector(const KirVar *x, bool written, bool rows)
{
    return x->type.space == KS_REGISTERS && x->type.of == KT_F32 && x->type.written == written &&
           !x->rows == !rows && kir_is_number(x->count, 8);
}

/* A function that the device library calls, of a row, a column and `more`: neighbours of a product (n),
 * sums of neighbours (s), or a vector of each of the call's types from `types` on (v). */
static bool check_passed(Verify *v, const KirExpr *e, const KirExpr *function, const char *more, int types)
{
    const KirVar *f = function->var;
    int at = 2;
    if (function->kind != KX_VAR || f->type.space != KS_FUNCTION || !f->number)
        return fail(v, "%s gets what is no function that is declared there", e->text);
    const KirBlock *b = f->body;
    int n = 0;
    while (n < b->len && b->data[n]->kind == KI_PARAMETER)
        n++;
    bool right = n >= 2;
    for (int i = 0; i < 2 && right; i++)
        right = b->data[i]->var->type.space == KS_VALUE && b->data[i]->var->type.of == KT_I64;
    for (; *more && *more != 'v' && right; more++, at++)
        right = at < n && is_vector(b->data[at]->var, *more == 's', *more == 's');
    for (int i = types; *more == 'v' && right && i < e->ntemplates; i++, at++)
        right = at < n && b->data[at]->var->type.space == KS_ROW &&
                b->data[at]->var->type.of == e->templates[i].type &&
                kir_is_number(b->data[at]->var->count, 8);
    return (right && at == n) || fail(v, "%s gets %s, which has other parameters", e->text, f->name);
}

/* What gets functions that it calls. */
static bool check_calls_back(Verify *v, const KirExpr *e)
{
    if (strcmp(e->text, "cell_multiply") == 0)
        return check_passed(v, e, e->args[10], "n", 0);
    if (strcmp(e->text, "cell_multiply_ahead") == 0)
        return check_passed(v, e, e->args[13], "v", 2) && check_passed(v, e, e->args[14], "sv", 2);
    for (int i = 0; i < e->nargs; i++)
        if (e->args[i]->type.space == KS_FUNCTION)
            return fail(v, "%s gets a function", e->text);
    return true;
}

static bool check_call(Verify *v, const KirExpr *e)
{
    const KirFunction *f = e->function;
    if (!f)
        return fail(v, "%s is no function of the device", e->text);
    if ((f->args < 0 ? e->nargs < -f->args : e->nargs != f->args) ||
        (f->templates < 0 ? e->ntemplates < -f->templates : e->ntemplates != f->templates))
        return fail(v, "%s with %d arguments and %d of its template, not %d and %d", f->name, e->nargs,
                    e->ntemplates, f->args < 0 ? -f->args : f->args,
                    f->templates < 0 ? -f->templates : f->templates);
    for (int i = 0; i < e->ntemplates; i++)
        if (e->templates[i].of && !is_known(v, e->templates[i].of))
            return fail(v, "%s with what is no parameter of the kernel", f->name);
    for (int i = 0; i < e->nargs; i++)
        if (!kir_writes(f, i) && !check_expr(v, e->args[i]))
            return false;
    for (int i = 0; i < e->nargs; i++)
        if (kir_writes(f, i) && !check_written(v, e->args[i]))
            return false;
    return check_calls_back(v, e) && (f->name[0] != '.' || check_method(v, e));
}

/* The value stands in the scope of the statements in front of it. */
static bool check_within(Verify *v, const KirExpr *e)
{
    int loops = v->loops, from = v->scope.len;
    v->loops = 0;
    v->within++;
    v->depth++;
    bool right = check_statements(v, e->body) && check_expr(v, e->args[0]);
    close_scope(v, from);
    v->depth--;
    v->within--;
    v->loops = loops;
    return right;
}

static bool check_convert(Verify *v, const KirExpr *e)
{
    KirType from = e->args[0]->type, to = e->type;
    if (kir_is_place(to))
        return (from.space == to.space && (from.written || !to.written)) ||
               fail(v, "a conversion from %s to %s", type_words(v, from), type_words(v, to));
    if (to.of == KT_PLACE)
        return fail(v, "a conversion to a place in a row");
    bool number = is_number(e->args[0]) || (from.of == KT_BOOL && from.space == KS_VALUE);
    return (number && is_number(e)) || fail(v, "a conversion from %s to %s", type_words(v, from),
                                            type_words(v, to));
}

static bool check_kind(Verify *v, const KirExpr *e)
{
    const KirExpr *const *x = e->args;
    switch (e->kind) {
    case KX_BINARY: return check_binary(v, e);
    case KX_NEG: return is_number(x[0]) || fail(v, "the negative of %s", type_words(v, x[0]->type));
    case KX_NOT: return is_truth(x[0]) || fail(v, "! of what is no condition");
    case KX_SELECT:
        if (!is_truth(x[0]))
            return fail(v, "a choice by %s", type_words(v, x[0]->type));
        return (fits(e->type, x[1]) && fits(e->type, x[2])) ||
               fail(v, "a choice between %s and %s", type_words(v, x[1]->type), type_words(v, x[2]->type));
    case KX_CONVERT: return check_convert(v, e);
    case KX_OP:
        return e->nargs == op_table[e->op].arity || fail(v, "%s with %d arguments", op_table[e->op].name,
                                                         e->nargs);
    case KX_TEXT: return fail(v, "text in a kernel: %s", e->text);
    default: return true;
    }
}

static bool check_expr(Verify *v, const KirExpr *e)
{
    if (v->error)
        return false;
    if (e->kind == KX_VAR) {
        if (!e->var->number)
            return fail(v, "%s is not declared there", e->var->name);
        bool needs = e->var->changes && e->type.space != KS_GLOBAL && e->type.space != KS_SHARED;
        return !needs || check_given(v, e->var);
    }
    if (e->kind == KX_LOAD)
        return check_load(v, e);
    if (e->kind == KX_CALL)
        return check_call(v, e);
    if (e->kind == KX_APPLY)
        return check_apply(v, e);
    if (e->kind == KX_WITHIN)
        return check_within(v, e);
    for (int i = 0; i < e->nargs; i++)
        if (!check_expr(v, e->args[i]))
            return false;
    return check_kind(v, e);
}

/* ---- statements ---- */

static bool check_value(Verify *v, KirType to, const KirExpr *e, const char *name)
{
    if (!check_expr(v, e))
        return false;
    return fits(to, e) || fail(v, "%s is %s, and gets %s", name, type_words(v, to), type_words(v, e->type));
}

static bool check_condition(Verify *v, const KirExpr *e)
{
    return check_expr(v, e) && (is_truth(e) || fail(v, "a condition of %s", type_words(v, e->type)));
}

/* Declares; the names in scope differ, so that a text says which one is meant. */
static bool declare(Verify *v, KirVar *x, bool given)
{
    for (int i = 0; i < v->scope.len; i++)
        if (strcmp(v->scope.data[i]->name, x->name) == 0)
            return fail(v, "two variables in scope are called %s", x->name);
    if (x->type.of == KT_PLACE && (x->type.space != KS_VALUE || !x->count || !is_known(v, x->count)))
        return fail(v, "%s is a place in a row of no number of vectors", x->name);
    x->number = ++v->number;
    x->given = given;
    x->when = NULL;
    vec_push(v->k->arena, &v->scope, x);
    return true;
}

static int64_t most_elements(const Verify *v, const KirExpr *e);

/* Which of its vectors have a value is not followed: they are read under the condition that they are loaded
 * under. Two turns of those that come ahead lie in shared memory. */
static bool check_row(Verify *v, const KirStmt *s)
{
    const KirVar *x = s->var;
    if (!is_known(v, x->count) || !is_known(v, x->rows))
        return fail(v, "%s has no number of elements", x->name);
    if ((s->x[0] != NULL) != (x->type.layout == KL_COLUMNS))
        return fail(v, "%s has a place that it needs not, or none", x->name);
    if (s->x[0] && (!check_expr(v, s->x[0]) || !fits(kir_global(x->type.of, true), s->x[0])))
        return fail(v, "sums of %s go to %s", x->name, type_words(v, s->x[0]->type));
    if (x->type.layout == KL_AHEAD) {
        int64_t elements = 2 * most_elements(v, x->rows) * most_elements(v, x->count) * v->k->threads;
        if (v->depth > 1)
            return fail(v, "shared memory %s is declared inside", x->name);
        v->shared += (elements * kir_bytes(x->type.of) + 15) / 16 * 16;
    }
    return declare(v, s->var, true);
}

static bool check_array(Verify *v, const KirStmt *s)
{
    KirVar *x = s->var;
    if (x->type.space == KS_ROW)
        return check_row(v, s);
    bool known = x->count && is_known(v, x->count) && (x->count->kind == KX_VAR || x->count->whole > 0);
    if (x->type.space == KS_REGISTERS && (!known || (x->rows && !is_known(v, x->rows))))
        return fail(v, "%s has no number of elements", x->name);
    return declare(v, x, s->n);
}

/* What the sizes of a call make most of the parameter with this number. */
static int64_t most_of(const KirBlock *b, int parameter)
{
    int64_t most = 0;
    for (int i = 0; i < b->len; i++) {
        const KirStmt *s = b->data[i];
        int64_t here = s->kind == KI_RUN && s->x[parameter] ? s->x[parameter]->whole : 0;
        int64_t body = most_of(&s->body, parameter), other = most_of(&s->other, parameter);
        here = here > body ? here : body;
        here = here > other ? here : other;
        most = most > here ? most : here;
    }
    return most;
}

/* Of a number, a parameter or a product of these, in the entry that the launch gives memory for, the first;
 * 0: it is none. */
static int64_t most_elements(const Verify *v, const KirExpr *e)
{
    if (e->kind == KX_BINARY && e->op == KB_MUL)
        return most_elements(v, e->args[0]) * most_elements(v, e->args[1]);
    for (int i = 0; e->kind == KX_VAR && v->k->entries.len && i < v->k->params.len; i++)
        if (v->k->params.data[i] == e->var)
            return most_of(&v->k->entries.data[0].body, i);
    return e->kind == KX_WHOLE ? e->whole : 0;
}

static bool check_shared(Verify *v, const KirStmt *s)
{
    const KirVar *x = s->var;
    if (v->depth > 1)
        return fail(v, "shared memory %s is declared inside", x->name);
    int64_t elements = most_elements(v, x->count);
    if (elements < 1)
        return fail(v, "%s has no number of elements", x->name);
    v->shared += (elements * kir_bytes(x->type.of) + 15) / 16 * 16;
    return declare(v, s->var, true);
}

static bool check_assign(Verify *v, const KirStmt *s)
{
    const KirExpr *to = s->x[0];
    if (to->kind == KX_VAR) {
        KirVar *x = to->var;
        if (!x->number)
            return fail(v, "%s is not declared there", x->name);
        if (!x->changes)
            return fail(v, "%s is assigned to, and does not change", x->name);
        if ((s->op != KB_COUNT && !check_given(v, x)) || !check_value(v, x->type, s->x[1], x->name))
            return false;
        x->given = true;
        return true;
    }
    if (to->kind != KX_LOAD || to->nargs != 2)
        return fail(v, "an assignment to what is neither a variable nor an element");
    if (!check_element(v, to, s->op != KB_COUNT) || !check_written(v, to->args[0]))
        return false;
    return check_value(v, to->type, s->x[1], "an element");
}

static bool check_store(Verify *v, const KirStmt *s)
{
    const KirExpr *to = s->x[0], *value = s->x[1];
    if (!check_written(v, to) || !check_expr(v, value) || (s->x[2] && !check_condition(v, s->x[2])))
        return false;
    bool whole = kir_is_whole(to->type.of);
    return (is_number(value) && (value->kind == KX_WHOLE || whole == is_whole(value))) ||
           fail(v, "%s is stored as %s", type_words(v, value->type), kir_scalar_words[to->type.of]);
}

static bool check_vector(Verify *v, const KirStmt *s)
{
    bool load = s->kind == KI_LOAD_VECTOR;
    const KirExpr *registers = s->x[!load], *place = s->x[load];
    int64_t n = s->wide->whole;
    const KirVar *array = kir_array_var(registers);
    if (!array || (registers->kind == KX_VAR && array->rows))
        return fail(v, "a vector of %s", type_words(v, registers->type));
    if (!is_known(v, s->wide))
        return fail(v, "the width of a vector is no number");
    if (s->wide->kind == KX_WHOLE && (n < 1 || n * kir_bytes(place->type.of) > 32 || (n & (n - 1))))
        return fail(v, "a vector of %lld elements of %s", (long long)n, kir_scalar_words[place->type.of]);
    if (!kir_equal(array->count, s->wide))
        return fail(v, "a vector in %s, which has another number of elements", array->name);
    if (load)
        return check_expr(v, place) &&
               (kir_is_place(place->type) || fail(v, "a load from %s", type_words(v, place->type))) &&
               (!s->x[2] || (check_expr(v, s->x[2]) &&
                             (is_whole(s->x[2]) || fail(v, "the offset of a vector is no whole number")))) &&
               check_written(v, registers);
    if (!array->number)
        return fail(v, "%s is not declared there", array->name);
    return check_given(v, array) && check_written(v, place) && (!s->x[2] || check_condition(v, s->x[2]));
}

static bool check_copy(Verify *v, const KirStmt *s)
{
    if (s->x[0]->type.space != KS_SHARED || s->x[1]->type.space != KS_GLOBAL)
        return fail(v, "a copy from %s to %s", type_words(v, s->x[1]->type), type_words(v, s->x[0]->type));
    if (s->n != 4 && s->n != 8 && s->n != 16)
        return fail(v, "a copy of %lld bytes", (long long)s->n);
    return check_written(v, s->x[0]) && check_expr(v, s->x[1]) && (!s->x[2] || check_condition(v, s->x[2]));
}

static bool check_mma(Verify *v, const KirStmt *s)
{
    static const KirLayout wanted[] = { KL_SUM, KL_LEFT, KL_RIGHT };
    for (int i = 0; i < 3; i++)
        if (s->x[i]->kind != KX_VAR || s->x[i]->type.layout != wanted[i])
            return fail(v, "a product with %s in place %d", type_words(v, s->x[i]->type), i);
    if (s->x[1]->type.of != s->x[2]->type.of || s->x[0]->type.of != KT_F32)
        return fail(v, "a product of %s and %s as %s", kir_scalar_words[s->x[1]->type.of],
                    kir_scalar_words[s->x[2]->type.of], kir_scalar_words[s->x[0]->type.of]);
    return check_expr(v, s->x[0]) && check_expr(v, s->x[1]) && check_expr(v, s->x[2]);
}

/* The variables in scope that have a value, or have one under a condition; to be given back behind one of two
 * ways. */
typedef struct Given {
    bool *of;
    const KirExpr **when;
    int n;
} Given;

static Given given_now(Verify *v)
{
    Given g = { .of = arena_alloc(v->k->arena, (size_t)v->scope.len + 1), .n = v->scope.len };
    g.when = arena_alloc(v->k->arena, sizeof *g.when * ((size_t)v->scope.len + 1));
    for (int i = 0; i < g.n; i++) {
        g.of[i] = v->scope.data[i]->given;
        g.when[i] = v->scope.data[i]->when;
    }
    return g;
}

static void give(Verify *v, const Given *g, const Given *other)
{
    for (int i = 0; i < g->n; i++) {
        v->scope.data[i]->given = g->of[i] && (!other || other->of[i]);
        v->scope.data[i]->when = other && g->when[i] != other->when[i] ? NULL : g->when[i];
    }
}

/* Behind a condition what was written under it has a value where that holds, as nothing in it changes. */
static void give_under(Verify *v, const KirExpr *condition, const Given *then)
{
    const KirExpr *of = condition->kind == KX_BINARY ? condition->args[0] : NULL;
    bool stays = of && of->kind == KX_VAR && !of->var->changes && condition->args[1]->kind == KX_WHOLE;
    for (int i = 0; stays && i < then->n; i++)
        if (then->of[i] && !v->scope.data[i]->given)
            v->scope.data[i]->when = condition;
}

/* Inside of a loop from 0 up to what is then more than 0. */
static void give_inside(Verify *v, const KirStmt *loop)
{
    bool counts = loop->kind == KI_FOR && loop->op == KB_LT && kir_is_number(loop->x[0], 0);
    for (int i = 0; counts && i < v->scope.len; i++) {
        const KirExpr *when = v->scope.data[i]->when;
        v->scope.data[i]->given |= when && when->op == KB_GT && kir_equal(when->args[0], loop->x[1]) &&
                                   kir_is_number(when->args[1], 0);
    }
}

static bool leaves(const KirBlock *b)
{
    const KirStmt *last = b->len ? b->data[b->len - 1] : NULL;
    return last && (last->kind == KI_BREAK || last->kind == KI_CONTINUE || last->kind == KI_RETURN);
}

static bool check_if(Verify *v, KirStmt *s)
{
    if (!check_condition(v, s->x[0]))
        return false;
    Given before = given_now(v);
    bool right = check_block(v, &s->body);
    Given then = given_now(v);
    give(v, &before, NULL);
    right = right && check_block(v, &s->other);
    Given otherwise = given_now(v);
    if (leaves(&s->body))
        give(v, &otherwise, NULL);
    else
        give(v, &then, leaves(&s->other) ? NULL : &otherwise);
    if (!s->other.len)
        give_under(v, s->x[0], &then);
    return right;
}

static void find_leave(KirStmt *s, void *data)
{
    *(bool *)data |= s->kind == KI_BREAK || s->kind == KI_CONTINUE || s->kind == KI_RETURN;
}

/* Does a loop run its whole body at least once: from 0 to a number, or over the elements of an array? */
static bool runs_once(const Verify *v, const KirStmt *s)
{
    const KirExpr *limit = s->x[1];
    bool more = false, left = false;
    if (s->kind != KI_FOR || !kir_is_number(s->x[0], 0) || s->op != KB_LT)
        return false;
    more = limit->kind == KX_WHOLE && limit->whole > 0;
    for (int i = 0; limit->kind == KX_VAR && i < v->scope.len; i++)
        more |= v->scope.data[i]->type.space == KS_REGISTERS && kir_equal(v->scope.data[i]->count, limit);
    kir_each(&s->body, find_leave, &left);
    return more && !left;
}

static bool check_loop(Verify *v, KirStmt *s)
{
    int from = v->scope.len;
    bool counted = s->kind == KI_FOR, right;
    if (counted) {
        for (int i = 0; i < 3; i++)
            if (!check_expr(v, s->x[i]) || !is_whole(s->x[i]))
                return fail(v, "a limit of the loop over %s is no whole number", s->var->name);
        if (s->wide && !is_known(v, s->wide))
            return fail(v, "the loop over %s is unrolled by what is no parameter", s->var->name);
        if (s->op < KB_LT || s->op > KB_GE)
            return fail(v, "the loop over %s has no comparison", s->var->name);
        right = declare(v, s->var, true);
    } else {
        right = check_condition(v, s->x[0]);
    }
    Given before = given_now(v);
    v->loops++;
    if (right)
        give_inside(v, s);
    right = right && check_block(v, &s->body);
    v->loops--;
    if (!runs_once(v, s))
        give(v, &before, NULL);
    close_scope(v, from);
    return right;
}

/* Of arrays and vectors, what the caller has in them. */
static bool check_parameter(Verify *v, const KirStmt *s)
{
    const KirVar *x = s->var;
    bool counted = x->type.space == KS_REGISTERS || x->type.space == KS_ROW;
    if (counted && (!x->count || !is_known(v, x->count) || kir_is_number(x->count, 0) ||
                    (x->rows && !is_known(v, x->rows))))
        return fail(v, "%s has no number of elements", x->name);
    return declare(v, s->var, true);
}

/* What it gives variables counts for no reader: when it runs is not followed. */
static bool check_function(Verify *v, KirStmt *s)
{
    int loops = v->loops;
    Given before = given_now(v);
    v->loops = 0;
    v->within++;
    bool right = check_block(v, &s->body);
    v->within--;
    v->loops = loops;
    give(v, &before, NULL);
    return right && declare(v, s->var, true);
}

/* An entry runs the kernel with a value for each parameter. */
static bool check_run(Verify *v, const KirStmt *s)
{
    const Kir *k = v->k;
    if (!v->entry)
        return fail(v, "a kernel runs itself");
    for (int i = 0; i < KIR_PARAMETERS; i++) {
        bool there = i < k->params.len;
        if (there != (s->x[i] != NULL))
            return fail(v, "a kernel with %d parameters is run with others", k->params.len);
        bool truth = there && k->params.data[i]->type.of == KT_BOOL;
        if (there && s->x[i]->kind != (truth ? KX_TRUTH : KX_WHOLE))
            return fail(v, "a kernel is run with what is no %s", truth ? "truth" : "number");
    }
    return true;
}

static bool check_statement(Verify *v, KirStmt *s)
{
    switch (s->kind) {
    case KI_LET: return check_value(v, s->var->type, s->x[0], s->var->name) && declare(v, s->var, true);
    case KI_VAR:
        return (!s->x[0] || check_value(v, s->var->type, s->x[0], s->var->name)) &&
               declare(v, s->var, s->x[0] != NULL);
    case KI_ARRAY: return check_array(v, s);
    case KI_SHARED: return check_shared(v, s);
    case KI_ASSIGN: return check_assign(v, s);
    case KI_STORE: return check_store(v, s);
    case KI_LOAD_VECTOR: case KI_STORE_VECTOR: return check_vector(v, s);
    case KI_FOR: case KI_WHILE: return check_loop(v, s);
    case KI_IF: return check_if(v, s);
    case KI_BREAK: case KI_CONTINUE: return v->loops || fail(v, "a loop is left where there is none");
    case KI_RETURN: return !v->within || fail(v, "a kernel ends inside a value");
    case KI_COPY: return check_copy(v, s);
    case KI_WAIT: return s->n >= 0 || fail(v, "all but %lld groups are waited for", (long long)s->n);
    case KI_MMA: return check_mma(v, s);
    case KI_FUNCTION: return check_function(v, s);
    case KI_PARAMETER: return check_parameter(v, s);
    case KI_CALL:
        return s->x[0]->kind == KX_CALL || s->x[0]->kind == KX_APPLY ? check_expr(v, s->x[0])
                                                                     : fail(v, "a call of no function");
    case KI_BARRIER: return s->op == KIR_BLOCK || s->op == KIR_WARP || fail(v, "a barrier of one thread");
    case KI_RUN: return check_run(v, s);
    case KI_COMMIT: case KI_COMMENT: return true;
    }
    return true;
}

static bool check_statements(Verify *v, const KirBlock *b)
{
    for (int i = 0; i < b->len && !v->error; i++)
        check_statement(v, b->data[i]);
    return !v->error;
}

static bool check_block(Verify *v, const KirBlock *b)
{
    int from = v->scope.len;
    v->depth++;
    check_statements(v, b);
    v->depth--;
    close_scope(v, from);
    return !v->error;
}

const char *kir_verify(Kir *k)
{
    Verify v = { .k = k };
    for (int i = 0; i < k->params.len; i++)
        declare(&v, k->params.data[i], true);
    check_block(&v, &k->body);
    v.entry = true;
    for (int i = 0; i < k->entries.len; i++)
        check_block(&v, &k->entries.data[i].body);
    if (!v.error && !k->params.len != !k->entries.len)
        fail(&v, "a kernel has parameters and entries, or neither");
    close_scope(&v, 0);
    if (!v.error && v.shared != k->shared)
        fail(&v, "arrays take %lld bytes of shared memory, and the kernel has %lld", (long long)v.shared,
             (long long)k->shared);
    return v.error ? v.error : kir_verify_threads(k);
}

void kir_check(Compiler *c, Kir *k, const char *pass)
{
    const char *wrong = kir_verify(k);
    if (wrong)
        bug(c, pass, "kernel %s: %s", k->name, wrong);
}
