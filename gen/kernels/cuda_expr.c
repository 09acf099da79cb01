/* cuda_expr.c: prints one scalar expression of the IR as CUDA. In come a node and a printer that knows the
 * current indices and how values are read; out goes text. Pointwise operators are spelled as the operator
 * table says; nothing is decided. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/mutate.h"
#include "emit/emit.h"
#include "ir/ops.h"
#include "plan/plan.h"

static const char *text_f(ExprPrinter *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static const char *text_f(ExprPrinter *p, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    const char *s = arena_text(p->m->arena, fmt, args);
    va_end(args);
    return s;
}

const char *poly_text(ExprPrinter *p, const Poly *e)
{
    size_t place = (uintptr_t)e / 32 % (sizeof p->polys / sizeof *p->polys);
    if (p->polys[place].of == e)
        return p->polys[place].text;
    Buf b = { .arena = p->m->arena };
    api_sizes(p->m);                                              /* poly_print_c has them from the module */
    poly_print_c(p->m, e, &b, "dim_");
    p->polys[place].of = e;
    return p->polys[place].text = b.data;
}

static const char *ix_term_text(ExprPrinter *p, const IxTerm *t, bool wide)
{
    const char *atom;
    if (t->kind == IA_INDEX)
        atom = p->index(p, t->index);
    else
        atom = text_f(p, "%s(%s, %s)", t->kind == IA_DIV ? "cell_floordiv" : "cell_floormod",
                      ix_text(p, t->arg), poly_text(p, t->by));
    const char *cast = wide ? "(int64_t)" : "";
    if (t->coef->is_const && t->coef->value == 1)
        return wide ? text_f(p, "(int64_t)%s", atom) : atom;
    return text_f(p, "%s%s * %s", cast, poly_text(p, t->coef), atom);
}

/* Do the terms over bound extents, whose indices may be ints, need more than 32 bits? */
static bool needs_64_bits(const ExprPrinter *p, const IxExpr *e)
{
    double most = e->offset->is_const ? fabs((double)e->offset->value) : 0;
    for (int i = 0; i < e->nterms; i++) {
        double atom = ix_term_most(p->m, &e->terms[i]);
        most += e->terms[i].coef->is_const && atom < WHOLE_INDEX ? fabs((double)e->terms[i].coef->value) * atom : 0;
    }
    return most >= 0x1p31;
}

const char *ix_text(ExprPrinter *p, const IxExpr *e)
{
    const char *sum = NULL;
    bool wide = needs_64_bits(p, e);
    for (int i = 0; i < e->nterms; i++) {
        const char *t = ix_term_text(p, &e->terms[i], wide);
        sum = sum ? text_f(p, "%s + %s", sum, t) : t;
    }
    if (!sum)
        return poly_text(p, e->offset);
    if (e->offset->nterms)
        sum = text_f(p, "%s + %s", poly_text(p, e->offset), sum);
    bool atom = e->nterms == 1 && !e->offset->nterms && e->terms[0].coef->is_const &&
                e->terms[0].coef->value == 1 && !wide;
    return atom ? sum : text_f(p, "(%s)", sum);
}

static const char *const_text(ExprPrinter *p, double v)
{
    bool single = strcmp(p->real, "float") == 0;
    if (isnan(v))
        return single ? "CELL_NAN_F" : "CELL_NAN";
    if (isinf(v))
        return text_f(p, "%sCELL_INF%s", v < 0 ? "-" : "", single ? "_F" : "");
    const char *s = text_f(p, single ? "%.9g" : "%.17g", v);
    if (!strpbrk(s, ".e"))
        s = text_f(p, "%s.0", s);
    s = single ? text_f(p, "%sf", s) : s;
    return v < 0 ? text_f(p, "(%s)", s) : s;
}

/* "fmt" of the table with its %s replaced by the arguments. */
static const char *fill(ExprPrinter *p, const char *fmt, const char *const *args)
{
    size_t bytes = strlen(fmt) + 1;
    int k = 0;
    for (const char *s = fmt; (s = strstr(s, "%s")); s += 2)
        bytes += strlen(args[k++]);
    char *text = arena_alloc(p->m->arena, bytes), *to = text;
    k = 0;
    for (const char *s = fmt; *s; s++) {
        if (s[0] == '%' && s[1] == 's') {
            to = stpcpy(to, args[k++]);
            s++;
        } else {
            *to++ = *s;
        }
    }
    *to = 0;
    return text;
}

static const char *as_real(ExprPrinter *p, NodeId id)
{
    const Node *n = &p->m->nodes.data[id];
    if (n->kind == N_SIZE && n->size->is_const)
        return const_text(p, (double)n->size->value);
    bool integer = n->type == TY_INT;         /* printing may make nodes, and move them */
    const char *s = expr_text(p, id);
    return integer ? text_f(p, "(%s)(%s)", p->real, s) : s;
}

static const char *fast_name(Op op)
{
    switch (op) {
    case OP_TANH: return "cell_fast_tanh(%s)";
    case OP_EXP: return "cell_fast_exp(%s)";
    case OP_SIGMOID: return "cell_fast_sigmoid(%s)";
    case OP_LOGSIGMOID: return "cell_fast_logsigmoid(%s)";
    case OP_SQRT: return "cell_fast_sqrt(%s)";
    case OP_SILU: return "cell_fast_silu(%s)";
    case OP_ERF: return "cell_fast_erf(%s)";
    case OP_GELU: return "cell_fast_gelu(%s)";
    case OP_DIV: return "cell_fast_div(%s, %s)";
    default: return NULL;
    }
}

/* The same of numbers, which in a dry run need no text. Integers say what is read. */
static const char *fill_number(ExprPrinter *p, const char *fmt, const char *const *args)
{
    return p->dry ? "" : fill(p, fmt, args);
}

/* Of whole numbers, in 64 bits. An index may be an int: where that is too narrow for the result, and where the
 * result may leave the 64 bits, a function does it. */
static const char *integer_text(ExprPrinter *p, const Node *at)
{
    const char *x[3];
    Node node = *at, *n = &node;              /* printing may make nodes, and move them */
    for (int i = 0; i < n->nargs; i++)
        x[i] = expr_text(p, n->args[i]);
    if (n->most >= 0x1p31 && (n->op == OP_ADD || n->op == OP_SUB || n->op == OP_MUL || n->op == OP_NEG)) {
        const char *name = n->op == OP_ADD ? "sum" : n->op == OP_MUL ? "product" : "difference";
        bool negative = n->op == OP_NEG;
        return text_f(p, "cell_whole_%s(%s, %s)", name, negative ? "0" : x[0], x[!negative]);
    }
    switch (n->op) {
    case OP_NEG: return text_f(p, "(-%s)", x[0]);
    case OP_SELECT: return text_f(p, "(%s ? %s : %s)", x[0], x[1], x[2]);
    case OP_IDIV: case OP_IMOD: case OP_IPOW: return fill(p, op_table[n->op].cuda, x);
    case OP_MIN: case OP_MAX: return text_f(p, "(%s %c %s ? %s : %s)", x[0], n->op == OP_MIN ? '<' : '>', x[1], x[0], x[1]);
    default: return text_f(p, "(%s %c %s)", x[0], n->op == OP_ADD ? '+' : n->op == OP_SUB ? '-' : '*', x[1]);
    }
}

/* Is a number that is printed in place a product, or one's negative? Then of what. */
static bool is_product(ExprPrinter *p, NodeId id, NodeId *factors, bool *negative)
{
    Node n = p->m->nodes.data[id];
    *negative = n.kind == N_MAP && n.type != TY_INT && n.op == OP_NEG && !(p->known && p->known(p, id));
    if (*negative)
        n = p->m->nodes.data[id = n.args[0]];
    if (n.kind != N_MAP || n.type == TY_INT || n.op != OP_MUL || (p->known && p->known(p, id)))
        return false;
    memcpy(factors, n.args, 2 * sizeof *factors);
    return true;
}

const char *expr_rounded(ExprPrinter *p, NodeId id)
{
    NodeId factors[2];
    bool negative;
    if (!is_product(p, id, factors, &negative))
        return as_real(p, id);
    const char *a = as_real(p, factors[0]), *b = as_real(p, factors[1]);
    return p->dry ? "" : text_f(p, "%scell_mul(%s, %s)%s", negative ? "(-" : "", a, b, negative ? ")" : "");
}

/* A sum whose fused multiply-add is written, if there is one: of two products the first. */
static const char *fused_text(ExprPrinter *p, const Node *n)
{
    NodeId x[2] = { n->args[0], n->args[1] }, factors[2];
    bool negative, minus = n->op == OP_SUB;
    int of = is_product(p, x[0], factors, &negative) ? 0 : is_product(p, x[1], factors, &negative) ? 1 : -1;
    if (of < 0) {
        const char *a = as_real(p, x[0]), *b = as_real(p, x[1]);
        return p->dry ? "" : text_f(p, "(%s %c %s)", a, minus ? '-' : '+', b);
    }
    const char *a = as_real(p, factors[0]), *b = as_real(p, factors[1]), *other = expr_rounded(p, x[1 - of]);
    negative ^= minus && of == 1;
    return p->dry ? "" : text_f(p, "cell_fma(%s%s, %s, %s%s)", negative ? "-" : "", a, b, minus && of == 0 ? "-" : "", other);
}

static bool has_product(ExprPrinter *p, const Node *n)
{
    NodeId factors[2];
    bool negative;
    return is_product(p, n->args[0], factors, &negative) || is_product(p, n->args[1], factors, &negative);
}

static bool is_number(ExprPrinter *p, NodeId id, double value)
{
    const Node *n = &p->m->nodes.data[id];
    return n->kind == N_CONST && n->value == value;
}

/* Is it a number that is printed in place, by this operator? Then its arguments. */
static bool is_in_place(ExprPrinter *p, NodeId id, Op op, NodeId *args)
{
    const Node *n = &p->m->nodes.data[id];
    if (n->kind != N_MAP || n->type == TY_INT || n->op != op || (p->known && p->known(p, id)))
        return false;
    memcpy(args, n->args, sizeof *args * (size_t)n->nargs);
    return true;
}

/* Phi(x) + x phi(x), as gelu's derivative is built (d_gelu): its exponential is that of erf too. */
static bool is_gelu_slope(ExprPrinter *p, const Node *n, NodeId *x)
{
    NodeId cdf[2], sum[2], of_erf[1], scaled[2], density[2], bell[2], of_exp[1], of_neg[1], half[2], square[2];
    if (n->op != OP_ADD || !is_in_place(p, n->args[0], OP_MUL, cdf) || !is_in_place(p, n->args[1], OP_MUL, density))
        return false;
    *x = density[0];
    return is_in_place(p, cdf[1], OP_ADD, sum) && is_in_place(p, sum[1], OP_ERF, of_erf) &&
           is_in_place(p, of_erf[0], OP_MUL, scaled) && scaled[0] == *x && is_in_place(p, density[1], OP_MUL, bell) &&
           is_in_place(p, bell[1], OP_EXP, of_exp) && is_in_place(p, of_exp[0], OP_NEG, of_neg) &&
           is_in_place(p, of_neg[0], OP_MUL, half) && is_in_place(p, half[1], OP_MUL, square) && square[0] == *x &&
           square[1] == *x && is_number(p, cdf[0], 0.5) && is_number(p, sum[0], 1) && is_number(p, half[0], 0.5) &&
           is_number(p, scaled[1], 0.70710678118654752440) && is_number(p, bell[0], 0.39894228040143267794);
}

static const char *map_text(ExprPrinter *p, const Node *n)
{
    Op op = n->op;
    NodeId x[4];
    memcpy(x, n->args, sizeof *x * (size_t)n->nargs);
    const Node *nodes = p->m->nodes.data;
    bool ints = n->nargs == 2 && nodes[x[0]].type == TY_INT && nodes[x[1]].type == TY_INT;
    static const char *const compare[OP_COUNT] = {
        [OP_LT] = "<", [OP_LE] = "<=", [OP_EQ] = "==", [OP_NE] = "!=", [OP_AND] = "&&", [OP_OR] = "||"
    };
    if (op == OP_NOT)
        return text_f(p, "!%s", expr_text(p, x[0]));
    if (n->type == TY_INT)
        return integer_text(p, n);
    if (op == OP_SELECT)
        return text_f(p, "(%s ? %s : %s)", expr_text(p, x[0]), as_real(p, x[1]), as_real(p, x[2]));
    if (compare[op]) {
        bool raw = ints || op == OP_AND || op == OP_OR;
        const char *a = raw ? expr_text(p, x[0]) : as_real(p, x[0]);
        return text_f(p, "(%s %s %s)", a, compare[op], raw ? expr_text(p, x[1]) : as_real(p, x[1]));
    }
    const char *inverse = p->fast && op == OP_DIV && p->reciprocal ? p->reciprocal(p, x[1]) : NULL;
    bool written = p->fuse == FUSE_WRITTEN, sum = op == OP_ADD || op == OP_SUB;
    if (inverse)
        return text_f(p, written ? "cell_mul(%s, %s)" : "(%s * %s)", as_real(p, x[0]), inverse);
    NodeId slope_of;
    if (p->fast && is_gelu_slope(p, n, &slope_of)) {
        const char *x = as_real(p, slope_of);
        return fill_number(p, "cell_fast_gelu_slope(%s)", &x);
    }
    if (sum && (written || (p->fuse == FUSE_FIRST && has_product(p, n))))
        return fused_text(p, n);
    const char *args[4];
    for (int i = 0; i < n->nargs; i++)
        args[i] = as_real(p, x[i]);
    const char *fast = written && op == OP_MUL ? "cell_mul(%s, %s)" : p->fast ? fast_name(op) : NULL;
    if (op == OP_SIGMOID && mutate("wrong-spelling"))
        op = OP_TANH;
    return fill_number(p, fast ? fast : op_table[op].cuda, args);
}

/* Is it what such a value is rounded to, read where it lies rounded? */
static bool is_rounded_twice(const ExprPrinter *p, const Node *n)
{
    const Node *read = n->nargs == 1 ? &p->m->nodes.data[n->args[0]] : NULL;
    NodeId array = !read ? -1 : read->kind == N_VIEW ? read->args[0] : read->kind == N_ARRAY ? n->args[0] : -1;
    return p->rounded && (n->op == OP_BF16 || n->op == OP_F16) && array >= 0 && array < p->n_rounded && p->rounded[array];
}

const char *expr_text(ExprPrinter *p, NodeId id)
{
    Node n = p->m->nodes.data[id];
    const char *local = p->known ? p->known(p, id) : NULL;
    if (local)
        return local;
    switch (n.kind) {
    case N_CONST: return const_text(p, n.value);
    case N_SIZE: return text_f(p, "(int64_t)%s", poly_text(p, n.size));
    case N_INDEX: return ix_text(p, n.ix);
    case N_MAP: return is_rounded_twice(p, &n) ? expr_text(p, n.args[0]) : map_text(p, &n);
    default: return p->leaf(p, id);
    }
}
