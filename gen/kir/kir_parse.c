/* kir_parse.c: reads what kir_dump.c prints. In comes text; out goes a kernel, or what is wrong with its
 * line. A name is the variable that is in scope; whether types agree is for the verifier. */
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "kir.h"

typedef struct Parse {
    Kir *k;
    Arena *arena;
    const char *s, *end;          /* what is left; a NUL stands at the end */
    int line, depth;
    const char *error;
    Vec(KirVar *) scope;
    jmp_buf out;
} Parse;

enum { MOST_NESTED = 200 };       /* of expressions and blocks, so that a text takes little stack */

static void fail(Parse *p, const char *fmt, ...) __attribute__((format(printf, 2, 3), noreturn));

static void fail(Parse *p, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const char *what = arena_text(p->arena, fmt, args);
    va_end(args);
    Buf b = { .arena = p->arena };
    buf_f(&b, "line %d: %s", p->line, what);
    p->error = b.data;
    longjmp(p->out, 1);
}

/* ---- words ---- */

static void space(Parse *p)
{
    for (; p->s < p->end && isspace((unsigned char)*p->s); p->s++)
        p->line += *p->s == '\n';
}

static size_t word_length(const Parse *p)
{
    size_t n = 0;
    while (isalnum((unsigned char)p->s[n]) || p->s[n] == '_')
        n++;
    return isdigit((unsigned char)p->s[0]) ? 0 : n;
}

/* Takes the text if it is next: a whole word, or a sign. */
static bool take(Parse *p, const char *what)
{
    space(p);
    size_t n = strlen(what);
    bool word = isalpha((unsigned char)what[0]);
    if (strncmp(p->s, what, n) != 0 || (word && word_length(p) != n))
        return false;
    p->s += n;
    return true;
}

static void expect(Parse *p, const char *what)
{
    if (!take(p, what))
        fail(p, "%s is missing", what);
}

static const char *name(Parse *p)
{
    space(p);
    size_t n = word_length(p);
    if (n == 0)
        fail(p, "a name is missing");
    char *text = arena_alloc(p->arena, n + 1);
    memcpy(text, p->s, n);
    p->s += n;
    return text;
}

static int64_t number(Parse *p)
{
    space(p);
    char *end;
    int64_t v = strtoll(p->s, &end, 10);
    if (end == p->s)
        fail(p, "a number is missing");
    p->s = end;
    return v;
}

static bool scalar_of(const char *word, KirScalar *of)
{
    for (int i = 0; i < KT_COUNT; i++)
        if (strcmp(word, kir_scalar_words[i]) == 0) {
            *of = (KirScalar)i;
            return true;
        }
    return false;
}

static KirScalar scalar(Parse *p)
{
    KirScalar of;
    const char *word = name(p);
    if (!scalar_of(word, &of))
        fail(p, "%s is no type", word);
    return of;
}

static KirType type(Parse *p)
{
    KirType t = { .written = !take(p, "const") };
    t.of = scalar(p);
    if (take(p, "*"))
        t.space = KS_GLOBAL;
    else if (take(p, "shared"))
        t.space = KS_SHARED;
    else
        t.written = false;
    return t;
}

/* ---- expressions ---- */

static const KirExpr *expression(Parse *p);
static void block(Parse *p, const char *end);

enum { MOST_ARGUMENTS = 72 }; /* of a call: sums that are exchanged together */

enum { MOST_TEMPLATES = 64 };

typedef struct Args {
    const KirExpr *of[MOST_ARGUMENTS];
    int n;
} Args;

static Args arguments(Parse *p)
{
    Args a;
    a.n = 0;
    expect(p, "(");
    while (!take(p, ")")) {
        if (a.n)
            expect(p, ",");
        if (a.n == MOST_ARGUMENTS)
            fail(p, "too many arguments");
        a.of[a.n++] = expression(p);
    }
    return a;
}

static KirVar *variable(Parse *p, const char *word)
{
    for (int i = p->scope.len - 1; i >= 0; i--)
        if (strcmp(p->scope.data[i]->name, word) == 0)
            return p->scope.data[i];
    return NULL;
}

static const KirExpr *literal(Parse *p)
{
    size_t n = strspn(p->s, "0123456789");
    bool real = p->s[n] == '.' || p->s[n] == 'e';
    char *end;
    if (!real)
        return kir_whole(p->k, number(p));
    double v = strtod(p->s, &end);
    p->s = end;
    bool single = *p->s == 'f';
    p->s += single;
    return kir_real(p->k, single ? KT_F32 : KT_F64, v);
}

static const KirExpr *negative(Parse *p)
{
    if (!isdigit((unsigned char)*p->s))
        return NULL;
    KirExpr *e = arena_alloc(p->arena, sizeof *e);
    *e = *literal(p);
    if (e->kind == KX_WHOLE)
        return kir_whole(p->k, -e->whole);
    e->real = -e->real;
    return e;
}

static const KirExpr *within(Parse *p)
{
    KirBlock *body = arena_alloc(p->arena, sizeof *body);
    int from = p->scope.len;
    expect(p, "{");
    KirBlock *outer = kir_enter(p->k, body);
    block(p, "yield");
    const KirExpr *value = expression(p);
    kir_enter(p->k, outer);
    p->scope.len = from;
    expect(p, "}");
    return kir_within(p->k, body, value);
}

/* What stands between < and > of a call. */
static int templates(Parse *p, KirTemplate *t)
{
    int n = 0;
    KirScalar of;
    if (!take(p, "<"))
        return 0;
    do {
        if (n == MOST_TEMPLATES)
            fail(p, "too many arguments of a template");
        space(p);
        if (isdigit((unsigned char)*p->s) || *p->s == '-') {
            t[n++] = (KirTemplate){ .value = number(p) };
            continue;
        }
        const char *word = name(p);
        KirVar *parameter = variable(p, word);
        bool truth = strcmp(word, "true") == 0;
        if (parameter) {
            t[n++] = (KirTemplate){ .of = kir_var(p->k, parameter) };
            continue;
        }
        if (truth || strcmp(word, "false") == 0)
            t[n++] = (KirTemplate){ .type = KT_BOOL, .value = truth };
        else if (scalar_of(word, &of))
            t[n++] = (KirTemplate){ .type = of };
        else
            fail(p, "%s is no type", word);
    } while (take(p, ","));
    expect(p, ">");
    return n;
}

static const KirExpr *special(Parse *p, const char *word)
{
    for (int i = 0; i < KP_COUNT; i++) {
        if (strcmp(word, kir_special_words[i]) != 0)
            continue;
        expect(p, "(");
        int64_t which = take(p, ")") ? 0 : number(p);
        if (p->s[-1] != ')')
            expect(p, ")");
        return kir_special(p->k, (KirSpecial)i, which);
    }
    return NULL;
}

/* name<type>(...): conversions, loads, operators, and what is no number. */
static const KirExpr *typed(Parse *p, const char *word)
{
    bool load = strcmp(word, "load") == 0, ro = strcmp(word, "load_ro") == 0, as = strcmp(word, "as") == 0;
    double v = strcmp(word, "nan") == 0 ? NAN : strcmp(word, "inf") == 0 ? INFINITY
        : strcmp(word, "minus_inf") == 0 ? -INFINITY : 0;
    int op = op_find(word);
    if (!load && !ro && !as && v == 0 && op < 0)
        return NULL;
    expect(p, "<");
    KirType to = type(p);
    bool fast = take(p, ",");
    if (fast)
        expect(p, "fast");
    expect(p, ">");
    if (v != 0)
        return kir_real(p->k, to.of, v);
    Args a = arguments(p);
    if (op >= 0) {
        if (a.n != op_table[op].arity)
            fail(p, "%s with %d arguments", word, a.n);
        return kir_op(p->k, (Op)op, to.of, fast, a.of, a.n);
    }
    if (a.n != 1)
        fail(p, "%s with %d arguments", word, a.n);
    return as ? kir_convert(p->k, to, a.of[0]) : kir_load(p->k, ro ? KA_LOAD_RO : KA_LOAD, to.of, a.of[0]);
}

static const KirExpr *primary(Parse *p)
{
    space(p);
    if (isdigit((unsigned char)*p->s))
        return literal(p);
    if (take(p, "(")) {
        const KirExpr *e = expression(p);
        expect(p, ")");
        return e;
    }
    const char *word = name(p);
    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0)
        return kir_truth(p->k, word[0] == 't');
    if (strcmp(word, "do") == 0)
        return within(p);
    bool called = *p->s == '(' || *p->s == '<';   /* a comparison has a space in front of its sign */
    if (!called) {
        KirVar *v = variable(p, word);
        if (!v)
            fail(p, "%s is not declared", word);
        return kir_var(p->k, v);
    }
    const KirExpr *e = special(p, word);
    if (!e)
        e = typed(p, word);
    if (e)
        return e;
    KirVar *function = variable(p, word);
    space(p);
    if (function && function->type.space == KS_FUNCTION && *p->s != '(')
        return kir_var(p->k, function);
    if (function && function->type.space == KS_FUNCTION) {
        Args a = arguments(p);
        return kir_applied(p->k, kir_var(p->k, function), a.of, a.n);
    }
    if (strcmp(word, "null") == 0) {
        expect(p, "<");
        e = kir_null(p->k, type(p));
        expect(p, ">");
        return e;
    }
    KirTemplate t[MOST_TEMPLATES];
    int nt = templates(p, t);
    Args a = arguments(p);
    if (!kir_function(word))
        fail(p, "%s is no function", word);
    return kir_call(p->k, word, t, nt, a.of, a.n);
}

/* .name(...) behind a thread's vectors. */
static const KirExpr *method(Parse *p, const KirExpr *of)
{
    expect(p, ".");
    Buf word = { .arena = p->arena };
    buf_f(&word, ".%s", name(p));
    Args a = arguments(p);
    if (!kir_function(word.data))
        fail(p, "%s is no function", word.data);
    if (a.n == MOST_ARGUMENTS)
        fail(p, "too many arguments");
    memmove(a.of + 1, a.of, sizeof *a.of * (size_t)a.n);
    a.of[0] = of;
    return kir_call(p->k, word.data, NULL, 0, a.of, a.n + 1);
}

static const KirExpr *unary(Parse *p)
{
    if (++p->depth > MOST_NESTED)
        fail(p, "too deep");
    const KirExpr *e;
    space(p);
    if (*p->s == '!' && p->s[1] != '=') {
        p->s++;
        e = kir_not(p->k, unary(p));
    } else if (take(p, "-")) {
        e = negative(p);
        e = e ? e : kir_neg(p->k, unary(p));
    } else {
        for (e = primary(p); *p->s == '[' || *p->s == '.';) {
            if (*p->s == '.') {
                e = method(p, e);
                continue;
            }
            expect(p, "[");
            e = kir_element(p->k, e, expression(p));
            expect(p, "]");
        }
    }
    p->depth--;
    return e;
}

/* The binary operator that is next, of two signs before those of one; KB_COUNT: none, or one that binds
 * less. */
static KirBinary operator(Parse *p, int needs)
{
    space(p);
    int found = KB_COUNT;
    for (int i = 0; i < KB_COUNT; i++) {
        size_t n = strlen(kir_binary_words[i]);
        if (strncmp(p->s, kir_binary_words[i], n) == 0 && (found == KB_COUNT || n == 2))
            found = i;
    }
    bool assigns = found != KB_COUNT && strlen(kir_binary_words[found]) == 1 && p->s[1] == '=';
    return found == KB_COUNT || assigns || kir_binary_precedence[found] < needs ? KB_COUNT : (KirBinary)found;
}

static const KirExpr *binary(Parse *p, int needs)
{
    const KirExpr *e = unary(p);
    for (KirBinary op; (op = operator(p, needs)) != KB_COUNT;) {
        p->s += strlen(kir_binary_words[op]);
        e = kir_binary(p->k, op, e, binary(p, kir_binary_precedence[op] + 1));
    }
    return e;
}

static const KirExpr *expression(Parse *p)
{
    const KirExpr *c = binary(p, 0);
    if (!take(p, "?"))
        return c;
    const KirExpr *a = binary(p, 0);
    expect(p, ":");
    return kir_select(p->k, c, a, binary(p, 0));
}

/* ---- statements ---- */

static KirVar *declare(Parse *p, const char *word, KirType t, bool changes)
{
    KirVar *v = kir_variable(p->k, word, t, changes);
    vec_push(p->arena, &p->scope, v);
    return v;
}

/* Of a vector, and of a place in a row: a number, or a parameter. */
static const KirExpr *width(Parse *p)
{
    space(p);
    if (isdigit((unsigned char)*p->s))
        return kir_whole(p->k, number(p));
    const char *word = name(p);
    KirVar *v = variable(p, word);
    if (!v)
        fail(p, "%s is not declared", word);
    return kir_var(p->k, v);
}

/* Behind the type of a place in a row: how many vectors a thread keeps; else NULL. */
static const KirExpr *vectors_of(Parse *p, KirScalar of)
{
    if (of != KT_PLACE)
        return NULL;
    expect(p, "(");
    const KirExpr *n = width(p);
    expect(p, ")");
    return n;
}

static void parameter(Parse *p)
{
    const char *word = name(p);
    expect(p, ":");
    bool vector = take(p, "row"), fixed = !vector && take(p, "const");
    KirScalar of = scalar(p);
    KirVar *v = NULL;
    if (take(p, "[")) {
        const KirExpr *count = width(p), *rows = NULL;
        expect(p, "]");
        if (!vector && take(p, "[")) {
            rows = count;
            count = width(p);
            expect(p, "]");
        }
        v = vector ? kir_vector_given(p->k, word, of, count)
                   : kir_array_given(p->k, word, of, rows, count, !fixed);
        kir_add(p->k, (KirStmt){ .kind = KI_PARAMETER, .var = v });
    } else if (vector || fixed) {
        fail(p, "[ is missing");
    } else {
        v = kir_parameter_of(p->k, word, of)->var;
    }
    vec_push(p->arena, &p->scope, v);
}

static void declaration(Parse *p, KirStmtKind kind)
{
    KirStmt s = { .kind = kind };
    const char *word = name(p);
    expect(p, ":");
    KirType t = type(p);
    const KirExpr *vectors = vectors_of(p, t.of);
    if (kind == KI_LET || take(p, "=")) {
        if (kind == KI_LET)
            expect(p, "=");
        s.x[0] = expression(p);
    }
    s.var = declare(p, word, t, kind == KI_VAR);
    s.var->count = vectors;
    kir_add(p->k, s);
}

static void array(Parse *p, KirSpace space_of)
{
    const char *word = name(p);
    expect(p, ":");
    KirType t = { .of = scalar(p), .space = space_of, .written = true };
    KirStmt s = { .kind = space_of == KS_SHARED ? KI_SHARED : KI_ARRAY };
    if (space_of == KS_FRAGMENT)
        t.layout = take(p, "left") ? KL_LEFT : take(p, "right") ? KL_RIGHT : (expect(p, "sum"), KL_SUM);
    const KirExpr *count = NULL, *rows = NULL;
    if (space_of != KS_FRAGMENT) {
        expect(p, "[");
        count = expression(p);
        expect(p, "]");
    }
    if (space_of == KS_REGISTERS && take(p, "[")) {
        rows = count;
        count = expression(p);
        expect(p, "]");
    }
    if (take(p, "=")) {
        expect(p, "0");
        s.n = 1;
    }
    s.var = declare(p, word, t, space_of != KS_SHARED);
    s.var->count = count;
    s.var->rows = rows;
    kir_add(p->k, s);
}

static void row(Parse *p, KirLayout layout)
{
    const char *word = name(p);
    expect(p, ":");
    KirScalar of = scalar(p);
    expect(p, "[");
    const KirExpr *vectors = width(p), *at = NULL;
    expect(p, "]");
    expect(p, "[");
    const KirExpr *each = width(p);
    expect(p, "]");
    if (take(p, "at"))
        at = expression(p);
    vec_push(p->arena, &p->scope, kir_row(p->k, word, layout, of, vectors, each, at)->var);
}

static void inside(Parse *p, KirBlock *b)
{
    int from = p->scope.len;
    expect(p, "{");
    KirBlock *outer = kir_enter(p->k, b);
    block(p, "}");
    kir_enter(p->k, outer);
    p->scope.len = from;
}

/* Is in scope behind its statements. */
static void function(Parse *p)
{
    const KirExpr *f;
    KirOpen open = kir_open_function(p->k, name(p), &f);
    inside(p, p->k->at);
    kir_close(p->k, open);
    vec_push(p->arena, &p->scope, f->var);
}

static void counted_loop(Parse *p)
{
    KirStmt s = { .kind = KI_FOR };
    const char *word = name(p);
    expect(p, ":");
    KirScalar of = scalar(p);
    const KirExpr *vectors = vectors_of(p, of);
    expect(p, "=");
    s.x[0] = expression(p);
    expect(p, ";");
    KirBinary op = operator(p, 0);
    if (op < KB_LT || op > KB_GE)
        fail(p, "a comparison is missing");
    p->s += strlen(kir_binary_words[op]);
    s.op = (int)op;
    s.x[1] = expression(p);
    expect(p, ";");
    expect(p, "+=");
    s.x[2] = expression(p);
    if (take(p, "unroll")) {
        const KirExpr *by = take(p, "all") ? NULL : width(p);
        s.n = !by ? -1 : by->whole;
        s.wide = by && by->kind == KX_VAR ? by : NULL;
    } else if (take(p, "lanes")) {
        s.n = KIR_LANES;
    }
    int from = p->scope.len;
    s.var = declare(p, word, kir_value(of), false);
    s.var->count = vectors;
    kir_add(p->k, s);
    inside(p, &p->k->at->data[p->k->at->len - 1]->body);
    p->scope.len = from;
}

static void conditional(Parse *p, KirStmtKind kind)
{
    KirStmt s = { .kind = kind, .x = { expression(p) } };
    kir_add(p->k, s);
    KirStmt *own = p->k->at->data[p->k->at->len - 1];
    inside(p, &own->body);
    if (kind == KI_IF && take(p, "else"))
        inside(p, &own->other);
}

/* WORD<n> a, b[, c]: how many operands there are is the kind's. */
static void operands(Parse *p, KirStmt s, bool counted, int least, int at_most)
{
    bool vector = s.kind == KI_LOAD_VECTOR || s.kind == KI_STORE_VECTOR;
    if (counted) {
        expect(p, "<");
        if (vector)
            s.wide = width(p);
        else
            s.n = number(p);
        expect(p, ">");
    }
    for (int i = 0; i < at_most; i++) {
        if (i && i >= least && !take(p, ","))
            break;
        if (i && i < least)
            expect(p, ",");
        s.x[i] = expression(p);
    }
    kir_add(p->k, s);
}

static void vector_load(Parse *p, KirAccess how)
{
    operands(p, (KirStmt){ .kind = KI_LOAD_VECTOR, .op = (int)how }, true, 2, 3);
}

static void assignment(Parse *p)
{
    const KirExpr *to = unary(p);
    KirStmt s = { .kind = KI_ASSIGN, .op = KB_COUNT, .x = { to } };
    space(p);
    for (int i = 0; i < KB_COUNT; i++)
        if (strlen(kir_binary_words[i]) == 1 && p->s[0] == kir_binary_words[i][0] && p->s[1] == '=') {
            s.op = i;
            p->s++;
        }
    expect(p, "=");
    s.x[1] = expression(p);
    kir_add(p->k, s);
}

static void comment(Parse *p)
{
    p->s += *p->s == ' ';
    size_t n = strcspn(p->s, "\n");
    char *text = arena_alloc(p->arena, n + 1);
    memcpy(text, p->s, n);
    p->s += n;
    kir_comment(p->k, text);
}

static void statement(Parse *p)
{
    static const struct { const char *word; KirStmtKind kind; } alone[] = {
        { "break", KI_BREAK }, { "continue", KI_CONTINUE }, { "return", KI_RETURN }, { "commit", KI_COMMIT }
    };
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        if (take(p, alone[i].word)) {
            kir_statement(p->k, alone[i].kind);
            return;
        }
    if (take(p, "#")) comment(p);
    else if (take(p, "let")) declaration(p, KI_LET);
    else if (take(p, "var")) declaration(p, KI_VAR);
    else if (take(p, "array")) array(p, KS_REGISTERS);
    else if (take(p, "fragment")) array(p, KS_FRAGMENT);
    else if (take(p, "shared")) array(p, KS_SHARED);
    else if (take(p, "row"))
        row(p, KL_KEPT);
    else if (take(p, "row_ahead"))
        row(p, KL_AHEAD);
    else if (take(p, "column_sums"))
        row(p, KL_COLUMNS);
    else if (take(p, "function"))
        function(p);
    else if (take(p, "parameter"))
        parameter(p);
    else if (take(p, "for")) counted_loop(p);
    else if (take(p, "while")) conditional(p, KI_WHILE);
    else if (take(p, "if")) conditional(p, KI_IF);
    else if (take(p, "barrier")) kir_barrier(p->k, KIR_BLOCK);
    else if (take(p, "warp_barrier")) kir_barrier(p->k, KIR_WARP);
    else if (take(p, "store")) operands(p, (KirStmt){ .kind = KI_STORE }, false, 2, 2);
    else if (take(p, "put")) operands(p, (KirStmt){ .kind = KI_STORE }, false, 3, 3);
    else if (take(p, "load_vector")) vector_load(p, KA_LOAD);
    else if (take(p, "load_vector_ro")) vector_load(p, KA_LOAD_RO);
    else if (take(p, "store_vector")) operands(p, (KirStmt){ .kind = KI_STORE_VECTOR }, true, 2, 3);
    else if (take(p, "copy")) operands(p, (KirStmt){ .kind = KI_COPY }, true, 2, 3);
    else if (take(p, "mma")) operands(p, (KirStmt){ .kind = KI_MMA }, false, 3, 3);
    else if (take(p, "call")) operands(p, (KirStmt){ .kind = KI_CALL }, false, 1, 1);
    else if (take(p, "run"))
        operands(p, (KirStmt){ .kind = KI_RUN }, false, 1, KIR_PARAMETERS);
    else if (take(p, "wait")) kir_add(p->k, (KirStmt){ .kind = KI_WAIT, .n = number(p) });
    else assignment(p);
}

/* The statements up to `end`, to where the builder stands. */
static void block(Parse *p, const char *end)
{
    if (++p->depth > MOST_NESTED)
        fail(p, "too deep");
    while (!take(p, end)) {
        if (p->s == p->end)
            fail(p, "%s is missing", end);
        statement(p);
    }
    p->depth--;
}

static void kernel(Parse *p)
{
    expect(p, "kernel");
    p->k = kir_new(p->arena, name(p), 0);
    expect(p, "threads");
    p->k->threads = (int)number(p);
    if (take(p, "as"))
        p->k->bound = name(p);
    if (take(p, "resident"))
        p->k->resident = (int)number(p);
    if (take(p, "shared"))
        p->k->shared = number(p);
    p->k->waits = take(p, "waits");
    if (take(p, "by"))
        do {
            const char *word = name(p);
            expect(p, ":");
            vec_push(p->arena, &p->k->params, declare(p, word, kir_value(scalar(p)), false));
        } while (take(p, ","));
    if (p->k->params.len > KIR_PARAMETERS)
        fail(p, "too many parameters");
    inside(p, &p->k->body);
    p->scope.len = 0;
    while (take(p, "entry")) {
        KirEntry e = { .name = name(p) };
        vec_push(p->arena, &p->k->entries, e);
        inside(p, &p->k->entries.data[p->k->entries.len - 1].body);
    }
    space(p);
    if (p->s != p->end)
        fail(p, "there is more behind the kernel");
}

const char *kir_parse_text(Arena *a, const char *text, size_t len, Kir **out)
{
    char *own = arena_alloc(a, len + 1);
    memcpy(own, text, len);
    Parse *p = arena_alloc(a, sizeof *p);
    *p = (Parse){ .arena = a, .s = own, .end = own + len, .line = 1 };
    if (setjmp(p->out) == 0) {
        kernel(p);
        *out = p->k;
    }
    return p->error;
}

Kir *kir_parse(Compiler *c, const char *text, size_t len)
{
    Kir *k = NULL;
    const char *wrong = kir_parse_text(c->arena, text, len, &k);
    if (wrong)
        diag(c, DIAG_ERROR, (Span){ .file = -1 }, "%s", wrong);
    return wrong ? NULL : k;
}
