/* kir_c.c: a kernel as a C function for the CPU. In comes a kernel that was verified, and has no threads,
 * parameters, shared memory, fragments or functions; out goes text over the names of runtime/cpu/cell_cpu.h.
 * A load or store names the type that it finds in memory; numbers are `real` there, float or double. Nothing
 * is decided. */
#include <math.h>
#include <string.h>

#include "emit/emit.h"
#include "kir.h"

static void print_block(const KirBlock *b, Buf *out);
static void print_expr(const KirExpr *e, int needs, Buf *out);

static const char *const scalar_words[KT_COUNT] = { "void",      "bool",      "int32_t",  "uint32_t",
                                                    "int64_t",   "cell_bf16", "cell_f16", "cell_e4m3",
                                                    "cell_e5m2", "float",     "double",   "int64_t" };

/* With the space in front of a name. */
static const char *type_text(KirType t, Buf *out)
{
    Buf b = { .arena = out->arena };
    if (t.space == KS_GLOBAL)
        buf_f(&b, "%s%s *", t.written ? "" : "const ", scalar_words[t.of]);
    else
        buf_f(&b, "%s ", scalar_words[t.of]);
    return b.data;
}

/* ---- expressions ---- */

static void print_real(const KirExpr *e, Buf *out)
{
    bool single = e->type.of == KT_F32;
    char digits[64];
    if (isnan(e->real)) {
        buf_f(out, "(real)NAN");
        return;
    }
    if (isinf(e->real)) {
        buf_f(out, "%s(real)INFINITY", e->real < 0 ? "-" : "");
        return;
    }
    snprintf(digits, sizeof digits, single ? "%.9g" : "%.17g", e->real);
    bool whole = !strpbrk(digits, ".e");
    buf_f(out, e->real < 0 ? "(%s%s%s)" : "%s%s%s", digits, whole ? ".0" : "", single ? "f" : "");
}

static void print_special(const KirExpr *e, Buf *out)
{
    int which = (int)e->whole;
    switch ((KirSpecial)e->op) {
    case KP_SIZE: buf_f(out, "args->size[%d]", which); break;
    case KP_POINTER: buf_f(out, "args->ptr[%d]", which); break;
    case KP_TABLE: buf_f(out, "cell_table_%llx", (unsigned long long)e->whole); break;
    case KP_STEP: buf_f(out, "args->t"); break;
    case KP_ADDS: buf_f(out, "(args->flags & CELL_KERNEL_ACCUMULATE) != 0"); break;
    case KP_SAVES: buf_f(out, "(args->flags & CELL_KERNEL_SAVE) != 0"); break;
    case KP_FIRST: buf_f(out, "first_item"); break;
    case KP_END: buf_f(out, "end_item"); break;
    case KP_SCRATCH: buf_f(out, "scratch"); break;
    default: buf_f(out, "0"); break; /* one thread of one block */
    }
}

static void print_args(const KirExpr *e, Buf *out)
{
    buf_f(out, "(");
    for (int i = 0; i < e->ntemplates; i++)
        buf_f(out, "%lld%s", (long long)e->templates[i].value, i + 1 < e->ntemplates || e->nargs ? ", " : "");
    for (int i = 0; i < e->nargs; i++) {
        buf_f(out, i ? ", " : "");
        print_expr(e->args[i], 0, out);
    }
    buf_f(out, ")");
}

/* Of whole numbers C's own operators, of reals the spelling in the operator's row, as a function of
 * cell_cpu.h. */
static void print_op(const KirExpr *e, Buf *out)
{
    static const char *const whole[OP_COUNT] = {
        [OP_ADD] = "(%s + %s)", [OP_SUB] = "(%s - %s)", [OP_MUL] = "(%s * %s)", [OP_NEG] = "(-%s)"
    };
    static const char *const own[OP_COUNT] = { [OP_LT] = "(%s < %s)",
                                               [OP_LE] = "(%s <= %s)",
                                               [OP_EQ] = "(%s == %s)",
                                               [OP_NE] = "(%s != %s)",
                                               [OP_AND] = "(%s && %s)",
                                               [OP_OR] = "(%s || %s)",
                                               [OP_NOT] = "!%s",
                                               [OP_SELECT] = "(%s ? %s : %s)",
                                               [OP_BF16] = "cell_round_to_bf16(%s)",
                                               [OP_F16] = "cell_round_to_f16(%s)" };
    bool is_whole = kir_is_whole(e->type.of);
    if (is_whole && (e->op == OP_MIN || e->op == OP_MAX)) {
        buf_f(out, "cell_whole_%s", op_table[e->op].name);
        print_args(e, out);
        return;
    }
    kir_print_filled(is_whole && whole[e->op] ? whole[e->op]
                 : own[e->op]             ? own[e->op]
                                          : op_table[e->op].cuda,
                 e, print_expr, out);
}

/* Statements and their value. */
static void print_within(const KirExpr *e, Buf *out)
{
    Buf inner = { .arena = out->arena };
    print_block(e->body, &inner);
    buf_f(out, "({ ");
    for (const char *s = inner.data; s && *s;) {
        size_t n = strcspn(s, "\n"), in = strspn(s, " ");
        if (s[in] != '/')
            buf_f(out, "%.*s ", (int)(n - in), s + in);
        s += n + (s[n] == '\n');
    }
    buf_release(&inner);
    print_expr(e->args[0], 0, out);
    buf_f(out, "; })");
}

static void print_load(const KirExpr *e, Buf *out)
{
    if (e->nargs == 2) {
        print_expr(e->args[0], 10, out);
        buf_f(out, "[");
        print_expr(e->args[1], 0, out);
        buf_f(out, "]");
        return;
    }
    KirScalar of = e->args[0]->type.of;
    buf_f(out, "cell_load_%s", kir_is_whole(of) ? "i32" : kir_scalar_words[of]);
    print_args(e, out);
}

static void print_bare(const KirExpr *e, Buf *out)
{
    const KirExpr *const *x = e->args;
    switch (e->kind) {
    case KX_WHOLE: buf_f(out, e->whole < 0 ? "(%lld)" : "%lld", (long long)e->whole); break;
    case KX_REAL: print_real(e, out); break;
    case KX_TRUTH: buf_f(out, e->whole ? "true" : "false"); break;
    case KX_VAR: buf_f(out, "%s", e->var->name); break;
    case KX_SPECIAL: print_special(e, out); break;
    case KX_BINARY:
        print_expr(x[0], kir_operand_needs(e, 0), out);
        buf_f(out, " %s ", kir_binary_words[e->op]);
        print_expr(x[1], kir_operand_needs(e, 1), out);
        break;
    case KX_NEG:
    case KX_NOT:
        buf_f(out, e->kind == KX_NEG ? "-" : "!");
        print_expr(x[0], e->kind == KX_NEG ? kir_needs_behind_minus(x[0]) : 9, out);
        break;
    case KX_SELECT:
        print_expr(x[0], 2, out);
        buf_f(out, " ? ");
        print_expr(x[1], 2, out);
        buf_f(out, " : ");
        print_expr(x[2], 2, out);
        break;
    case KX_CONVERT:
        buf_f(out, "(%.*s)(", (int)strlen(type_text(e->type, out)) - (e->type.space != KS_GLOBAL),
              type_text(e->type, out));
        print_expr(x[0], 0, out);
        buf_f(out, ")");
        break;
    case KX_LOAD: print_load(e, out); break;
    case KX_OP: print_op(e, out); break;
    case KX_CALL:
        buf_f(out, "%s", e->text);
        print_args(e, out);
        break;
    case KX_APPLY: break;
    case KX_WITHIN: print_within(e, out); break;
    case KX_NULL: buf_f(out, "NULL"); break;
    case KX_TEXT: buf_f(out, "%s", e->text); break;
    }
}

static void print_expr(const KirExpr *e, int needs, Buf *out)
{
    bool closed = kir_precedence(e) < needs;
    buf_f(out, closed ? "(" : "");
    print_bare(e, out);
    buf_f(out, closed ? ")" : "");
}

void kir_expr_c(const KirExpr *e, Buf *out)
{
    print_expr(e, 9, out);
}

static const char *bare(const KirExpr *e, const Buf *like)
{
    return kir_bare(e, print_expr, like->arena);
}

/* ---- statements ---- */

static void print_declaration(const KirStmt *s, Buf *out)
{
    const KirVar *v = s->var;
    const char *type = type_text(v->type, out), *fixed = s->kind == KI_LET ? "const " : "";
    bool place = v->type.space == KS_GLOBAL;
    if (s->kind == KI_ARRAY)
        buf_line(out, "%s %s[%s]%s;", scalar_words[v->type.of], v->name, bare(v->count, out),
                 s->n ? " = { 0 }" : "");
    else if (!s->x[0])
        buf_line(out, "%s%s;", type, v->name);
    else
        buf_line(out, "%s%s%s%s = %s;", place ? "" : fixed, type, place ? fixed : "", v->name,
                 bare(s->x[0], out));
}

static void print_for_head(const KirStmt *s, const char *end, Buf *out)
{
    const char *name = s->var->name;
    Buf limit = { .arena = out->arena };
    print_expr(s->x[1], kir_binary_precedence[s->op] + 1, &limit);
    const char *next = kir_loop_step(s, print_expr, out->arena);
    if (s->n == KIR_LANES)
        buf_line(out, "CELL_LANES");
    buf_line(out, "for (%s %s = %s; %s %s %s; %s)%s", scalar_words[s->var->type.of], name, bare(s->x[0], out),
             name, kir_binary_words[s->op], limit.data, next, end);
}

static void print_inside(const KirBlock *b, Buf *out)
{
    out->indent++;
    print_block(b, out);
    out->indent--;
}

static void print_compound(const KirStmt *s, Buf *out)
{
    if (s->kind == KI_FOR)
        print_for_head(s, " {", out);
    else
        buf_line(out, "%s (%s) {", s->kind == KI_IF ? "if" : "while", bare(s->x[0], out));
    print_inside(&s->body, out);
    if (s->other.len) {
        buf_line(out, "} else {");
        print_inside(&s->other, out);
    }
    buf_line(out, "}");
}

/* cell_store_TYPE(place, value), or cell_put_TYPE(place, value, adds); of vectors with the number of
 * elements in front. */
static void print_store(const KirStmt *s, Buf *out)
{
    Buf b = { .arena = out->arena };
    KirScalar of = s->x[0]->type.of;
    buf_f(&b, "cell_%s%s_%s(", s->x[2] ? "put" : "store", s->kind == KI_STORE_VECTOR ? "_vec" : "",
          kir_is_whole(of) ? "i32" : kir_scalar_words[of]);
    if (s->kind == KI_STORE_VECTOR)
        buf_f(&b, "%s, ", bare(s->wide, out));
    for (int i = 0; i < 3; i++)
        if (s->x[i])
            buf_f(&b, "%s%s", i ? ", " : "", bare(s->x[i], out));
    buf_line(out, "%s);", b.data);
}

static void print_statement(const KirStmt *s, Buf *out)
{
    switch (s->kind) {
    case KI_LET:
    case KI_VAR:
    case KI_ARRAY: print_declaration(s, out); break;
    case KI_ASSIGN:
        buf_line(out, "%s %s= %s;", bare(s->x[0], out), s->op == KB_COUNT ? "" : kir_binary_words[s->op],
                 bare(s->x[1], out));
        break;
    case KI_STORE:
    case KI_STORE_VECTOR: print_store(s, out); break;
    case KI_FOR:
    case KI_WHILE:
    case KI_IF: print_compound(s, out); break;
    case KI_BREAK: buf_line(out, "break;"); break;
    case KI_CONTINUE: buf_line(out, "continue;"); break;
    case KI_RETURN: buf_line(out, "return;"); break;
    case KI_CALL: buf_line(out, "%s;", bare(s->x[0], out)); break;
    case KI_COMMENT: buf_line(out, "/* %s */", s->text); break;
    case KI_FUNCTION:
    case KI_PARAMETER:
    case KI_SHARED:
    case KI_LOAD_VECTOR:
    case KI_BARRIER:
    case KI_COPY:
    case KI_COMMIT:
    case KI_WAIT:
    case KI_MMA:
    case KI_RUN: break;
    }
}

static void print_block(const KirBlock *b, Buf *out)
{
    for (int i = 0; i < b->len; i++)
        print_statement(b->data[i], out);
}

void kir_print_c(const Kir *k, Buf *out)
{
    Buf text = { .arena = k->arena };
    buf_line(
        &text,
        "static void %s(const cell_kernel_args *args, int64_t first_item, int64_t end_item, void *scratch)",
        k->name);
    buf_line(&text, "{");
    text.indent++;
    buf_line(&text, "(void)args, (void)first_item, (void)end_item, (void)scratch;");
    print_block(&k->body, &text);
    text.indent--;
    buf_f(&text, "}\n\n");
    buf_wrapped(out, &text);
    buf_release(&text);
}
