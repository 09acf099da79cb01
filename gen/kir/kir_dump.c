/* kir_dump.c: a kernel as text that kir_parse.c reads back. In comes a kernel; out go a line per
 * statement, expressions as in C, and the types of declarations, conversions and loads as words. */
#include <math.h>
#include <string.h>

#include "kir.h"

static void dump_block(const KirBlock *b, Buf *out);

static void dump_type(KirType t, Buf *out)
{
    buf_f(out, "%s%s%s", t.space == KS_GLOBAL && !t.written ? "const " : "", kir_scalar_words[t.of],
          t.space == KS_GLOBAL ? "*" : t.space == KS_SHARED ? " shared" : "");
}

static void dump_real(const KirExpr *e, Buf *out)
{
    char digits[64];
    const char *suffix = e->type.of == KT_F32 ? "f" : "";
    if (!isfinite(e->real)) {
        buf_f(out, "%s<%s>", isnan(e->real) ? "nan" : e->real < 0 ? "minus_inf" : "inf",
              kir_scalar_words[e->type.of]);
        return;
    }
    snprintf(digits, sizeof digits, e->type.of == KT_F32 ? "%.9g" : "%.17g", e->real);
    bool whole = !strpbrk(digits, ".e");
    buf_f(out, signbit(e->real) ? "(%s%s%s)" : "%s%s%s", digits, whole ? ".0" : "", suffix);
}

static void dump_expr(const KirExpr *e, int needs, Buf *out);

static void dump_args(const KirExpr *e, int from, Buf *out)
{
    buf_f(out, "(");
    for (int i = from; i < e->nargs; i++) {
        buf_f(out, i > from ? ", " : "");
        dump_expr(e->args[i], 0, out);
    }
    buf_f(out, ")");
}

void kir_print_callee(const KirExpr *e, const char *const *scalars, Buf *out)
{
    buf_f(out, "%s", e->text);
    for (int i = 0; i < e->ntemplates; i++) {
        const KirTemplate *t = &e->templates[i];
        buf_f(out, i ? ", " : "<");
        if (t->of && t->of->kind == KX_VAR)
            buf_f(out, "%s", t->of->var->name);
        else if (t->of)
            buf_f(out, "%lld", (long long)t->of->whole);
        else if (t->type == KT_VOID)
            buf_f(out, "%lld", (long long)t->value);
        else
            buf_f(out, "%s", t->type == KT_BOOL ? (t->value ? "true" : "false") : scalars[t->type]);
    }
    buf_f(out, e->ntemplates ? ">" : "");
}

/* What stands between and around the arguments is theirs, as tightly as it binds. */
static void dump_bare(const KirExpr *e, Buf *out)
{
    int own = kir_precedence(e);
    switch (e->kind) {
    case KX_WHOLE: buf_f(out, e->whole < 0 ? "(%lld)" : "%lld", (long long)e->whole); break;
    case KX_REAL: dump_real(e, out); break;
    case KX_TRUTH: buf_f(out, e->whole ? "true" : "false"); break;
    case KX_VAR: buf_f(out, "%s", e->var->name); break;
    case KX_SPECIAL:
        buf_f(out, "%s(", kir_special_words[e->op]);
        if (e->op == KP_SIZE || e->op == KP_POINTER || e->op == KP_TABLE || e->op == KP_BLOCK ||
            e->op == KP_BLOCKS)
            buf_f(out, "%lld", (long long)e->whole);
        buf_f(out, ")");
        break;
    case KX_BINARY:
        dump_expr(e->args[0], own, out);
        buf_f(out, " %s ", kir_binary_words[e->op]);
        dump_expr(e->args[1], own + 1, out);
        break;
    case KX_NEG: case KX_NOT:
        buf_f(out, e->kind == KX_NEG ? "-" : "!");
        dump_expr(e->args[0], e->args[0]->kind == KX_WHOLE || e->args[0]->kind == KX_REAL ? 11 : own, out);
        break;
    case KX_SELECT:
        dump_expr(e->args[0], 2, out);
        buf_f(out, " ? ");
        dump_expr(e->args[1], 2, out);
        buf_f(out, " : ");
        dump_expr(e->args[2], 2, out);
        break;
    case KX_CONVERT:
        buf_f(out, "as<");
        dump_type(e->type, out);
        buf_f(out, ">");
        dump_args(e, 0, out);
        break;
    case KX_LOAD:
        if (e->nargs == 2) {
            dump_expr(e->args[0], 10, out);
            buf_f(out, "[");
            dump_expr(e->args[1], 0, out);
            buf_f(out, "]");
            break;
        }
        buf_f(out, "%s<%s>", e->op == KA_LOAD_RO ? "load_ro" : "load", kir_scalar_words[e->type.of]);
        dump_args(e, 0, out);
        break;
    case KX_OP:
        buf_f(out, "%s<%s%s>", op_table[e->op].name, kir_scalar_words[e->type.of], e->fast ? ", fast" : "");
        dump_args(e, 0, out);
        break;
    case KX_CALL: {
        bool method = e->text[0] == '.';
        if (method)
            dump_expr(e->args[0], 10, out);
        kir_print_callee(e, kir_scalar_words, out);
        dump_args(e, method, out);
        break;
    }
    case KX_APPLY:
        buf_f(out, "%s", e->var->name);
        dump_args(e, 0, out);
        break;
    case KX_NULL:
        buf_f(out, "null<");
        dump_type(e->type, out);
        buf_f(out, ">");
        break;
    case KX_WITHIN: {
        Buf inner = { .arena = out->arena, .indent = out->indent + 1 };
        dump_block(e->body, &inner);
        buf_f(out, "do {\n%s%*s", inner.data ? inner.data : "", 4 * inner.indent, "");
        buf_f(out, "yield ");
        dump_expr(e->args[0], 0, out);
        buf_f(out, "\n%*s}", 4 * out->indent, "");
        break;
    }
    case KX_TEXT: buf_f(out, "text<%s>(%s)", kir_scalar_words[e->type.of], e->text); break;
    }
}

static void dump_expr(const KirExpr *e, int needs, Buf *out)
{
    bool closed = kir_precedence(e) < needs;
    buf_f(out, closed ? "(" : "");
    dump_bare(e, out);
    buf_f(out, closed ? ")" : "");
}

static const char *text_of(const KirExpr *e, const Buf *like)
{
    Buf b = { .arena = like->arena, .indent = like->indent };
    dump_expr(e, 0, &b);
    return b.data;
}

/* Those of a statement, with commas. */
static void dump_line(const char *word, const KirStmt *s, Buf *out)
{
    Buf b = { .arena = out->arena, .indent = out->indent };
    for (int i = 0; i < 3; i++)
        if (s->x[i])
            buf_f(&b, "%s%s", i ? ", " : "", text_of(s->x[i], out));
    buf_line(out, "%s %s", word, b.data);
}

/* The type of a local: of a place in a row with the number of vectors that a thread keeps. */
static const char *local_type(const KirVar *v, const Buf *like)
{
    Buf type = { .arena = like->arena };
    dump_type(v->type, &type);
    if (v->type.of == KT_PLACE)
        buf_f(&type, "(%s)", text_of(v->count, like));
    return type.data;
}

static void dump_row(const KirStmt *s, Buf *out)
{
    static const char *const words[] = {
        [KL_KEPT] = "row", [KL_AHEAD] = "row_ahead", [KL_COLUMNS] = "column_sums"
    };
    const KirVar *v = s->var;
    buf_line(out, "%s %s: %s[%s][%s]%s%s", words[v->type.layout], v->name, kir_scalar_words[v->type.of],
             text_of(v->rows, out), text_of(v->count, out), s->x[0] ? " at " : "",
             s->x[0] ? text_of(s->x[0], out) : "");
}

static void dump_parameter(const KirVar *v, Buf *out)
{
    const char *scalar = kir_scalar_words[v->type.of];
    if (v->type.space == KS_ROW)
        buf_line(out, "parameter %s: row %s[%s]", v->name, scalar, text_of(v->count, out));
    else if (v->type.space == KS_REGISTERS)
        buf_line(out, "parameter %s: %s%s%s%s%s[%s]", v->name, v->type.written ? "" : "const ", scalar,
                 v->rows ? "[" : "", v->rows ? text_of(v->rows, out) : "", v->rows ? "]" : "",
                 text_of(v->count, out));
    else
        buf_line(out, "parameter %s: %s", v->name, local_type(v, out));
}

static void dump_declaration(const KirStmt *s, Buf *out)
{
    static const char *const layouts[] = { "", "left", "right", "sum" };
    const KirVar *v = s->var;
    const char *scalar = kir_scalar_words[v->type.of];
    if (s->kind == KI_PARAMETER)
        dump_parameter(v, out);
    else if (s->kind == KI_ARRAY && v->type.space == KS_ROW)
        dump_row(s, out);
    else if (s->kind == KI_ARRAY && v->type.space == KS_FRAGMENT)
        buf_line(out, "fragment %s: %s %s", v->name, scalar, layouts[v->type.layout]);
    else if (s->kind == KI_ARRAY)
        buf_line(out, "array %s: %s%s%s%s[%s]%s", v->name, scalar, v->rows ? "[" : "",
                 v->rows ? text_of(v->rows, out) : "", v->rows ? "]" : "", text_of(v->count, out),
                 s->n ? " = 0" : "");
    else if (s->kind == KI_SHARED)
        buf_line(out, "shared %s: %s[%s]", v->name, scalar, text_of(v->count, out));
    else if (s->x[0])
        buf_line(out, "%s %s: %s = %s", s->kind == KI_LET ? "let" : "var", v->name, local_type(v, out),
                 text_of(s->x[0], out));
    else
        buf_line(out, "var %s: %s", v->name, local_type(v, out));
}

static void dump_inside(const KirBlock *b, Buf *out)
{
    out->indent++;
    dump_block(b, out);
    out->indent--;
}

static void dump_statement(const KirStmt *s, Buf *out)
{
    const KirExpr *const *x = s->x;
    switch (s->kind) {
    case KI_LET:
    case KI_VAR:
    case KI_ARRAY:
    case KI_SHARED:
    case KI_PARAMETER: dump_declaration(s, out); break;
    case KI_ASSIGN:
        buf_line(out, "%s %s= %s", text_of(x[0], out), s->op == KB_COUNT ? "" : kir_binary_words[s->op],
                 text_of(x[1], out));
        break;
    case KI_STORE: dump_line(x[2] ? "put" : "store", s, out); break;
    case KI_LOAD_VECTOR: case KI_STORE_VECTOR: case KI_COPY: {
        const char *load = s->op == KA_LOAD_RO ? "load_vector_ro" : "load_vector";
        const char *word = s->kind == KI_COPY ? "copy" : s->kind == KI_STORE_VECTOR ? "store_vector" : load;
        const KirExpr *wide = s->wide;
        Buf head = { .arena = out->arena };
        if (wide && wide->kind == KX_VAR)
            buf_f(&head, "%s<%s>", word, wide->var->name);
        else
            buf_f(&head, "%s<%lld>", word, (long long)(wide ? wide->whole : s->n));
        dump_line(head.data, s, out);
        break;
    }
    case KI_FOR: {
        char unroll[48] = "";
        if (s->n > 0)
            snprintf(unroll, sizeof unroll, " unroll %lld", (long long)s->n);
        if (s->wide)
            snprintf(unroll, sizeof unroll, " unroll %s", s->wide->var->name);
        buf_line(out, "for %s: %s = %s; %s %s; += %s%s {", s->var->name, local_type(s->var, out),
                 text_of(x[0], out), kir_binary_words[s->op], text_of(x[1], out), text_of(x[2], out),
                 s->n == KIR_LANES ? " lanes"
                 : s->n < 0        ? " unroll all"
                                   : unroll);
        dump_inside(&s->body, out);
        buf_line(out, "}");
        break;
    }
    case KI_WHILE: case KI_IF:
        buf_line(out, "%s %s {", s->kind == KI_IF ? "if" : "while", text_of(x[0], out));
        dump_inside(&s->body, out);
        if (s->other.len) {
            buf_line(out, "} else {");
            dump_inside(&s->other, out);
        }
        buf_line(out, "}");
        break;
    case KI_BREAK: buf_line(out, "break"); break;
    case KI_CONTINUE: buf_line(out, "continue"); break;
    case KI_RETURN: buf_line(out, "return"); break;
    case KI_BARRIER: buf_line(out, s->op == KIR_BLOCK ? "barrier" : "warp_barrier"); break;
    case KI_COMMIT: buf_line(out, "commit"); break;
    case KI_WAIT: buf_line(out, "wait %lld", (long long)s->n); break;
    case KI_MMA: dump_line("mma", s, out); break;
    case KI_CALL: dump_line("call", s, out); break;
    case KI_FUNCTION:
        buf_line(out, "function %s {", s->var->name);
        dump_inside(&s->body, out);
        buf_line(out, "}");
        break;
    case KI_RUN: dump_line("run", s, out); break;
    case KI_COMMENT: buf_line(out, "# %s", s->text); break;
    }
}

static void dump_block(const KirBlock *b, Buf *out)
{
    for (int i = 0; i < b->len; i++)
        dump_statement(b->data[i], out);
}

void kir_dump(const Kir *k, Buf *out)
{
    buf_f(out, "kernel %s threads %d", k->name, k->threads);
    if (k->bound)
        buf_f(out, " as %s", k->bound);
    if (k->resident)
        buf_f(out, " resident %d", k->resident);
    if (k->shared)
        buf_f(out, " shared %lld", (long long)k->shared);
    buf_f(out, k->waits ? " waits" : "");
    for (int i = 0; i < k->params.len; i++)
        buf_f(out, "%s %s: %s", i ? "," : " by", k->params.data[i]->name,
              kir_scalar_words[k->params.data[i]->type.of]);
    buf_f(out, " {\n");
    dump_inside(&k->body, out);
    buf_line(out, "}");
    for (int i = 0; i < k->entries.len; i++) {
        buf_line(out, "entry %s {", k->entries.data[i].name);
        dump_inside(&k->entries.data[i].body, out);
        buf_line(out, "}");
    }
}
