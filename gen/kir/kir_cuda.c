/* kir_cuda.c: a kernel as CUDA. In comes a kernel that was verified; out goes what nvcc gets, over the
 * names of the device library, with lines to 110 columns. Nothing is decided. */
#include <math.h>
#include <string.h>

#include "base/mutate.h"
#include "emit/emit.h"
#include "kir.h"

static void print_block(const KirBlock *b, Buf *out);
static void print_expr(const KirExpr *e, int needs, Buf *out);

static const char *const scalar_words[KT_COUNT] = { "void",      "bool",      "int",      "uint32_t",
                                                    "int64_t",   "cell_bf16", "cell_f16", "cell_e4m3",
                                                    "cell_e5m2", "float",     "double",   "int64_t" };

const char *kir_cuda_scalar(KirScalar s)
{
    return scalar_words[s];
}

/* With the space in front of a name. */
static const char *type_text(KirType t, Buf *out)
{
    Buf b = { .arena = out->arena };
    const char *of = kir_cuda_scalar(t.of);
    if (t.space == KS_GLOBAL)
        buf_f(&b, "%s%s *", t.written ? "" : "const ", of);
    else
        buf_f(&b, t.space == KS_SHARED ? "cell_smem<%s> " : "%s ", of);
    return b.data;
}

/* Of a local: the type of a place in a row follows from how many vectors of it a thread keeps. */
static const char *local_type(const KirVar *v, Buf *out)
{
    Buf b = { .arena = out->arena };
    if (v->type.of != KT_PLACE)
        return type_text(v->type, out);
    buf_f(&b, "cell_place<");
    print_expr(v->count, 0, &b);
    buf_f(&b, "> ");
    return b.data;
}

/* ---- expressions ---- */

static void print_real(const KirExpr *e, Buf *out)
{
    bool single = e->type.of == KT_F32;
    char digits[64];
    if (isnan(e->real)) {
        buf_f(out, single ? "CELL_NAN_F" : "CELL_NAN");
        return;
    }
    if (isinf(e->real)) {
        buf_f(out, "%sCELL_INF%s", e->real < 0 ? "-" : "", single ? "_F" : "");
        return;
    }
    snprintf(digits, sizeof digits, single ? "%.9g" : "%.17g", e->real);
    bool whole = !strpbrk(digits, ".e");
    buf_f(out, e->real < 0 ? "(%s%s%s)" : "%s%s%s", digits, whole ? ".0" : "", single ? "f" : "");
}

static void print_special(const KirExpr *e, Buf *out)
{
    static const char *const words[KP_COUNT] = {
        [KP_STEP] = "args.t",
        [KP_ADDS] = "args.flags & CELL_KERNEL_ACCUMULATE", [KP_SAVES] = "args.flags & CELL_KERNEL_SAVE",
        [KP_THREAD] = "cell_thread()", [KP_THREADS] = "cell_threads()",
        [KP_LANE] = "cell_lane()", [KP_WARP] = "cell_warp()"
    };
    int which = (int)e->whole;
    if (e->op == KP_SIZE)
        buf_f(out, "args.size[%d]", which);
    else if (e->op == KP_POINTER)
        buf_f(out, "args.ptr[%d]", which);
    else if (e->op == KP_TABLE)
        buf_f(out, "cell_table_%llx", (unsigned long long)e->whole);
    else if (e->op == KP_BLOCK || e->op == KP_BLOCKS)
        buf_f(out, "cell_block_%s(%d)", e->op == KP_BLOCK ? "index" : "count", which);
    else
        buf_f(out, "%s", words[e->op]);
}

static void print_args(const KirExpr *e, int from, Buf *out)
{
    buf_text(out, "(");
    for (int i = from; i < e->nargs; i++) {
        if (i > from)
            buf_text(out, ", ");
        print_expr(e->args[i], 0, out);
    }
    buf_text(out, ")");
}

/* Of whole numbers C's own operators, of reals the spelling in the operator's row. */
static void print_op(const KirExpr *e, Buf *out)
{
    static const char *const whole[OP_COUNT] = {
        [OP_ADD] = "(%s + %s)", [OP_SUB] = "(%s - %s)", [OP_MUL] = "(%s * %s)", [OP_NEG] = "(-%s)"
    };
    static const char *const conditions[OP_COUNT] = {
        [OP_LT] = "(%s < %s)", [OP_LE] = "(%s <= %s)", [OP_EQ] = "(%s == %s)", [OP_NE] = "(%s != %s)",
        [OP_AND] = "(%s && %s)", [OP_OR] = "(%s || %s)", [OP_NOT] = "!%s", [OP_SELECT] = "(%s ? %s : %s)"
    };
    int op = e->op == OP_SIGMOID && mutate("wrong-spelling") ? OP_TANH : e->op;
    bool is_whole = kir_is_whole(e->type.of);
    if (is_whole && (op == OP_MIN || op == OP_MAX)) {
        const KirExpr *twice[] = { e->args[0], e->args[1], e->args[0], e->args[1] };
        KirExpr four = *e;
        four.args = twice;
        kir_print_filled(op == OP_MIN ? "(%s < %s ? %s : %s)" : "(%s > %s ? %s : %s)", &four, print_expr, out);
        return;
    }
    const char *fast = e->fast ? op_table[op].fast : NULL;
    kir_print_filled(is_whole && whole[op] ? whole[op] : conditions[op] ? conditions[op] : fast ? fast
                 : op_table[op].cuda, e, print_expr, out);
}

static void print_call(const KirExpr *e, Buf *out)
{
    bool method = e->text[0] == '.';
    if (method)
        print_expr(e->args[0], 10, out);
    kir_print_callee(e, scalar_words, out);
    print_args(e, method, out);
}

/* Statements and their value on one line, in a function without a name. */
static void print_within(const KirExpr *e, Buf *out)
{
    Buf inner = { .arena = out->arena };
    print_block(e->body, &inner);
    buf_text(out, "([&] { ");
    for (const char *s = inner.data; s && *s;) {
        size_t n = strcspn(s, "\n");
        size_t in = strspn(s, " ");
        if (s[in] != '/')
            buf_f(out, "%.*s ", (int)(n - in), s + in);
        s += n + (s[n] == '\n');
    }
    buf_release(&inner);
    buf_text(out, "return ");
    print_expr(e->args[0], 0, out);
    buf_text(out, "; }())");
}

static void print_convert(const KirExpr *e, Buf *out)
{
    if (e->type.space == KS_GLOBAL)
        buf_f(out, "reinterpret_cast<%s>(", type_text(e->type, out));
    else
        buf_f(out, "(%s)(", kir_cuda_scalar(e->type.of));
    print_expr(e->args[0], 0, out);
    buf_text(out, ")");
}

static void print_bare(const KirExpr *e, Buf *out)
{
    const KirExpr *const *x = e->args;
    switch (e->kind) {
    case KX_WHOLE: buf_f(out, e->whole < 0 ? "(%lld)" : "%lld", (long long)e->whole); break;
    case KX_REAL: print_real(e, out); break;
    case KX_TRUTH: buf_text(out, e->whole ? "true" : "false"); break;
    case KX_VAR: buf_text(out, e->var->name); break;
    case KX_SPECIAL: print_special(e, out); break;
    case KX_BINARY:
        print_expr(x[0], kir_operand_needs(e, 0), out);
        buf_text(out, " ");
        buf_text(out, kir_binary_words[e->op]);
        buf_text(out, " ");
        print_expr(x[1], kir_operand_needs(e, 1), out);
        break;
    case KX_NEG: case KX_NOT:
        buf_text(out, e->kind == KX_NEG ? "-" : "!");
        print_expr(x[0], e->kind == KX_NEG ? kir_needs_behind_minus(x[0]) : 9, out);
        break;
    case KX_SELECT:
        print_expr(x[0], 2, out);
        buf_text(out, " ? ");
        print_expr(x[1], 2, out);
        buf_text(out, " : ");
        print_expr(x[2], 2, out);
        break;
    case KX_CONVERT: print_convert(e, out); break;
    case KX_LOAD:
        if (e->nargs == 2) {
            print_expr(x[0], 10, out);
            buf_text(out, "[");
            print_expr(x[1], 0, out);
            buf_text(out, "]");
            break;
        }
        buf_f(out, "%s<%s>", e->op == KA_LOAD_RO ? "cell_load_ro" : "cell_load", kir_cuda_scalar(e->type.of));
        print_args(e, 0, out);
        break;
    case KX_OP: print_op(e, out); break;
    case KX_CALL: print_call(e, out); break;
    case KX_APPLY:
        buf_text(out, e->var->name);
        print_args(e, 0, out);
        break;
    case KX_NULL: buf_text(out, "nullptr"); break;
    case KX_WITHIN: print_within(e, out); break;
    case KX_TEXT: buf_text(out, e->text); break;
    }
}

static void print_expr(const KirExpr *e, int needs, Buf *out)
{
    bool closed = kir_precedence(e) < needs;
    if (closed)
        buf_text(out, "(");
    print_bare(e, out);
    if (closed)
        buf_text(out, ")");
}

void kir_expr_cuda(const KirExpr *e, Buf *out)
{
    print_expr(e, 9, out);
}

static const char *bare(const KirExpr *e, const Buf *like)
{
    return kir_bare(e, print_expr, like->arena);
}

/* ---- statements ---- */

static const char *rows_text(const KirVar *v, const Buf *like)
{
    Buf b = { .arena = like->arena };
    if (!v->rows)
        return "";
    buf_f(&b, "[%s]", bare(v->rows, like));
    return b.data;
}

/* What comes ahead takes its part of shared memory from the cursor. */
static void print_row(const KirStmt *s, Buf *out)
{
    static const char *const classes[] = {
        [KL_KEPT] = "cell_row", [KL_AHEAD] = "cell_row_ahead", [KL_COLUMNS] = "cell_column_sums"
    };
    const KirVar *v = s->var;
    Buf given = { .arena = out->arena };
    if (v->type.layout != KL_KEPT)
        buf_f(&given, "(%s)", s->x[0] ? bare(s->x[0], out) : "cursor");
    buf_line(out, "%s<%s, %s, %s> %s%s;", classes[v->type.layout], kir_cuda_scalar(v->type.of),
             bare(v->count, out), bare(v->rows, out), v->name, given.data ? given.data : "");
}

static void print_declaration(const KirStmt *s, Buf *out)
{
    static const char *const fragments[] = { "", "cell_mma_a", "cell_mma_b" };
    const KirVar *v = s->var;
    const char *of = kir_cuda_scalar(v->type.of), *type = local_type(v, out);
    const char *fixed = s->kind == KI_LET ? "const " : "";
    if (v->type.space == KS_ROW)
        print_row(s, out);
    else if (v->type.space == KS_FRAGMENT && v->type.layout == KL_SUM)
        buf_line(out, "cell_mma_c %s;", v->name);
    else if (v->type.space == KS_FRAGMENT)
        buf_line(out, "%s<%s> %s;", fragments[v->type.layout], v->type.of == KT_F32 ? "cell_tf32" : of,
                 v->name);
    else if (s->kind == KI_ARRAY)
        buf_line(out, "%s %s%s[%s]%s;", of, v->name, rows_text(v, out), bare(v->count, out),
                 s->n ? " = {}" : "");
    else if (s->kind == KI_SHARED)
        buf_line(out, "const cell_smem<%s> %s = cell_carve<%s>(cursor, %s);", of, v->name, of,
                 bare(v->count, out));
    else if (!s->x[0])
        buf_line(out, "%s%s;", type, v->name);
    else if (s->x[0]->kind == KX_SPECIAL && s->x[0]->op == KP_POINTER)
        buf_line(out, "%s%s%s = static_cast<%s>(%s);", type, fixed, v->name, type, bare(s->x[0], out));
    else if (v->type.space == KS_GLOBAL)
        buf_line(out, "%s%s%s = %s;", type, fixed, v->name, bare(s->x[0], out));
    else
        buf_line(out, "%s%s%s = %s;", fixed, type, v->name, bare(s->x[0], out));
}

static void print_for_head(const KirStmt *s, const char *end, Buf *out)
{
    const char *name = s->var->name;
    Buf limit = { .arena = out->arena };
    print_expr(s->x[1], kir_binary_precedence[s->op] + 1, &limit);
    const char *next = kir_loop_step(s, print_expr, out->arena);
    if (s->wide)
        buf_line(out, "CELL_UNROLL_BY(%s ? %s : 1)", bare(s->wide, out), bare(s->wide, out));
    else if (s->n)
        buf_line(out, s->n > 0 ? "CELL_UNROLL_BY(%lld)" : "CELL_UNROLL", (long long)s->n);
    buf_line(out, "for (%s%s = %s; %s %s %s; %s)%s", local_type(s->var, out), name, bare(s->x[0], out), name,
             kir_binary_words[s->op], limit.data, next, end);
}

/* Is it one statement that takes one line, so that it needs no braces? */
static bool is_single(const KirBlock *b)
{
    KirStmtKind kind = b->len == 1 ? b->data[0]->kind : KI_COMMENT;
    return (kind >= KI_ASSIGN && kind <= KI_STORE_VECTOR) || (kind >= KI_BREAK && kind <= KI_RUN);
}

static void print_inside(const KirBlock *b, Buf *out)
{
    out->indent++;
    print_block(b, out);
    out->indent--;
}

/* A choice whose other way is a choice goes on behind it. */
static void print_conditional(const KirStmt *s, const char *word, Buf *out)
{
    bool chain = s->kind == KI_IF && s->other.len == 1 && s->other.data[0]->kind == KI_IF;
    bool single = is_single(&s->body) && (!s->other.len || chain || is_single(&s->other));
    const char *open = single ? "" : " {";
    if (s->kind == KI_FOR)
        print_for_head(s, open, out);
    else
        buf_line(out, "%s (%s)%s", word, bare(s->x[0], out), open);
    print_inside(&s->body, out);
    if (chain) {
        print_conditional(s->other.data[0], single ? "else if" : "} else if", out);
        return;
    }
    if (s->other.len) {
        buf_line(out, single ? "else" : "} else {");
        print_inside(&s->other, out);
    }
    if (!single)
        buf_line(out, "}");
}

static void print_compound(const KirStmt *s, Buf *out)
{
    print_conditional(s, s->kind == KI_IF ? "if" : "while", out);
}

/* name(x[0], x[1], ...); with the number n of elements or bytes, where it has one. */
static void print_named(const char *name, const KirStmt *s, Buf *out)
{
    Buf b = { .arena = out->arena };
    if (s->wide)
        buf_f(&b, "<%s>", bare(s->wide, out));
    else if (s->n)
        buf_f(&b, "<%lld>", (long long)s->n);
    for (int i = 0; i < 3; i++)
        if (s->x[i])
            buf_f(&b, "%s%s", i ? ", " : "(", bare(s->x[i], out));
    buf_line(out, "%s%s);", name, b.data);
}

static void print_vector_load(const KirStmt *s, Buf *out)
{
    const char *from_constants = s->op == KA_LOAD_RO ? "cell_load_vec_ro" : "cell_load_vec";
    print_named(s->x[2] ? "cell_load_vec_or_zero" : from_constants, s, out);
}

/* The kernel's template with values of its parameters. */
static void print_run(const KirStmt *s, Buf *out)
{
    Buf b = { .arena = out->arena };
    for (int i = 0; i < KIR_PARAMETERS && s->x[i]; i++)
        buf_f(&b, "%s%s", i ? ", " : "", bare(s->x[i], out));
    buf_line(out, "%s_by<%s>(args);", s->text, b.data);
}

/* Arrays and vectors are the caller's. */
static void print_parameter(const KirVar *v, Buf *out)
{
    const char *of = kir_cuda_scalar(v->type.of);
    if (v->type.space == KS_ROW)
        buf_f(out, "cell_row<%s, %s, %s> &%s", of, bare(v->count, out), bare(v->rows, out), v->name);
    else if (v->type.space == KS_REGISTERS)
        buf_f(out, "%s%s (&%s)%s[%s]", v->type.written ? "" : "const ", of, v->name, rows_text(v, out),
              bare(v->count, out));
    else
        buf_f(out, "%s%s", local_type(v, out), v->name);
}

/* Its parameters stand in front of its statements. */
static void print_function(const KirStmt *s, Buf *out)
{
    Buf params = { .arena = out->arena };
    KirBlock inside = s->body;
    for (; inside.len && inside.data[0]->kind == KI_PARAMETER; inside.data++, inside.len--) {
        buf_f(&params, params.len ? ", " : "");
        print_parameter(inside.data[0]->var, &params);
    }
    buf_line(out, "const auto %s = [&](%s) {", s->var->name, params.data ? params.data : "");
    print_inside(&inside, out);
    buf_line(out, "};");
}

static void print_statement(const KirStmt *s, Buf *out)
{
    switch (s->kind) {
    case KI_LET: case KI_VAR: case KI_ARRAY: case KI_SHARED: print_declaration(s, out); break;
    case KI_ASSIGN:
        buf_line(out, "%s %s= %s;", bare(s->x[0], out), s->op == KB_COUNT ? "" : kir_binary_words[s->op],
                 bare(s->x[1], out));
        break;
    case KI_STORE: print_named(s->x[2] ? "cell_put" : "cell_store", s, out); break;
    case KI_LOAD_VECTOR: print_vector_load(s, out); break;
    case KI_STORE_VECTOR: print_named(s->x[2] ? "cell_put_vec" : "cell_store_vec", s, out); break;
    case KI_FOR: case KI_WHILE: case KI_IF: print_compound(s, out); break;
    case KI_BREAK: buf_line(out, "break;"); break;
    case KI_CONTINUE: buf_line(out, "continue;"); break;
    case KI_RETURN: buf_line(out, "return;"); break;
    case KI_BARRIER: buf_line(out, s->op == KIR_BLOCK ? "cell_barrier();" : "cell_warp_barrier();"); break;
    case KI_COPY: print_named(s->x[2] ? "cell_cp_async_zfill" : "cell_cp_async", s, out); break;
    case KI_COMMIT: buf_line(out, "cell_cp_async_commit();"); break;
    case KI_WAIT: buf_line(out, "cell_cp_async_wait<%lld>();", (long long)s->n); break;
    case KI_MMA: print_named("cell_mma", s, out); break;
    case KI_CALL: buf_line(out, "%s;", bare(s->x[0], out)); break;
    case KI_FUNCTION: print_function(s, out); break;
    case KI_PARAMETER: break;
    case KI_RUN: print_run(s, out); break;
    case KI_COMMENT: buf_line(out, "// %s", s->text); break;
    }
}

static void print_block(const KirBlock *b, Buf *out)
{
    bool cursor = false;
    for (int i = 0; i < b->len; i++) {
        const KirVar *v = b->data[i]->var;
        bool shared = b->data[i]->kind == KI_SHARED || (v && v->type.layout == KL_AHEAD);
        if (shared && !cursor)
            buf_line(out, "auto cursor = cell_shared();");
        cursor |= shared;
        print_statement(b->data[i], out);
    }
}

static void print_body(const KirBlock *b, bool waits, Buf *out)
{
    buf_line(out, "{");
    out->indent++;
    if (waits)
        buf_line(out, "cell_dependency_wait();");
    print_block(b, out);
    out->indent--;
    buf_f(out, "}\n\n");
}

/* A kernel that the launch knows by this name. */
static void print_head(const Kir *k, const char *name, int resident, Buf *out)
{
    Buf bounds = { .arena = k->arena };
    buf_f(&bounds, k->bound ? "%s" : "%.0s%d", k->bound ? k->bound : "", k->threads);
    if (resident)
        buf_f(&bounds, ", %d", resident);
    buf_line(out, "extern \"C\" __global__ void __launch_bounds__(%s)", bounds.data);
    buf_line(out, "%s(const __grid_constant__ cell_kernel_args args)", name);
}

static void name_run(KirStmt *s, void *data)
{
    const Kir *k = data;
    if (s->kind == KI_RUN)
        s->text = k->name;
}

/* A template, and the kernels that run it. */
static void print_entries(const Kir *k, Buf *out)
{
    Buf params = { .arena = k->arena };
    for (int i = 0; i < k->params.len; i++)
        buf_f(&params, "%s%s %s", i ? ", " : "", kir_cuda_scalar(k->params.data[i]->type.of),
              k->params.data[i]->name);
    buf_line(out, "template <%s>", params.data);
    buf_line(out, "static __device__ __forceinline__ void %s_by(const cell_kernel_args &args)", k->name);
    print_body(&k->body, k->waits, out);
    for (int i = 0; i < k->entries.len; i++) {
        const KirEntry *e = &k->entries.data[i];
        kir_each(&e->body, name_run, (void *)k);
        print_head(k, e->name, i == 0 ? k->resident : 0, out);
        print_body(&e->body, false, out);
    }
}

void kir_print_cuda(const Kir *k, Buf *out)
{
    Buf text = { .arena = k->arena };
    if (k->params.len) {
        print_entries(k, &text);
    } else {
        print_head(k, k->name, k->resident, &text);
        print_body(&k->body, k->waits, &text);
    }
    buf_wrapped(out, &text);
    buf_release(&text);
}
