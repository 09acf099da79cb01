/* cuda_expr.c: one scalar expression of the IR as an expression of a kernel. In come a node and a printer
 * that knows the current indices and how values are read; out goes a node of the kernel IR, or its text
 * for kernels that are still printed, whose indices and reads are texts. Operators are rows of the
 * operator table; nothing is decided. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "emit/emit.h"
#include "ir/ops.h"
#include "kir/kir.h"
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
        most += e->terms[i].coef->is_const && atom < WHOLE_INDEX ?
            fabs((double)e->terms[i].coef->value) * atom : 0;
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

/* ---- sizes and places as nodes ---- */

static const KirExpr *atom_node(ExprPrinter *p, int atom)
{
    if (atom == ATOM_PAST)
        return kir_binary(p->kir, KB_ADD, p->nodes->start(p), p->nodes->size(p, ATOM_T));
    if (atom < MAX_DIMS)
        return p->nodes->size(p, atom);
    const Quotient *q = &p->m->quotients.data[atom - MAX_DIMS];
    return kir_binary(p->kir, KB_DIV, poly_node(p, q->num), poly_node(p, q->den));
}

const KirExpr *poly_node(ExprPrinter *p, const Poly *e)
{
    const KirExpr *sum = NULL;
    for (int i = 0; i < e->nterms; i++) {
        const PolyTerm *t = &e->terms[i];
        bool minus = t->coef < 0 && sum;
        const KirExpr *term = kir_whole(p->kir, minus ? -t->coef : t->coef);
        for (int k = 0; k < t->natoms; k++)
            term = kir_binary(p->kir, KB_MUL, term, atom_node(p, t->atoms[k]));
        sum = sum ? kir_binary(p->kir, minus ? KB_SUB : KB_ADD, sum, term) : term;
    }
    return sum ? sum : kir_whole(p->kir, 0);
}

const KirExpr *ix_node(ExprPrinter *p, const IxExpr *e)
{
    const KirExpr *sum = poly_node(p, e->offset);
    for (int i = 0; i < e->nterms; i++) {
        const IxTerm *t = &e->terms[i];
        const char *divide = t->kind == IA_DIV ? "cell_floordiv" : "cell_floormod";
        const KirExpr *atom = t->kind == IA_INDEX ? p->nodes->index(p, t->index)
                                                  : kir_call2(p->kir, divide, ix_node(p, t->arg),
                                                              poly_node(p, t->by));
        bool fits = atom->type.of == KT_I64 || atom->type.of == KT_PLACE;
        if (!fits && atom->kind != KX_WHOLE)
            atom = kir_convert(p->kir, kir_value(KT_I64), atom);
        bool minus = !p->adds && t->coef->is_const && t->coef->value < 0, first = kir_is_number(sum, 0);
        const KirExpr *coef = minus ? kir_whole(p->kir, -t->coef->value) : poly_node(p, t->coef);
        const KirExpr *term = kir_binary(p->kir, KB_MUL, coef, atom);
        sum = minus && first ? kir_neg(p->kir, term) : kir_binary(p->kir, minus ? KB_SUB : KB_ADD, sum, term);
    }
    return sum;
}

/* ---- what the printer knows, as nodes ---- */

static KirScalar real_of(const ExprPrinter *p)
{
    return strcmp(p->real, "float") == 0 ? KT_F32 : KT_F64;
}

static KirScalar type_of(const ExprPrinter *p, NodeId id)
{
    NodeType type = p->m->nodes.data[id].type;
    return type == TY_INT ? KT_I64 : type == TY_BOOL ? KT_BOOL : real_of(p);
}

static const KirExpr *known_node(ExprPrinter *p, NodeId id)
{
    if (p->nodes)
        return p->nodes->known(p, id);
    const char *local = p->known ? p->known(p, id) : NULL;
    return local ? kir_text(p->kir, type_of(p, id), local) : NULL;
}

static const KirExpr *leaf_node(ExprPrinter *p, NodeId id)
{
    KirScalar type = type_of(p, id);          /* printing may make nodes, and move them */
    return p->nodes ? p->nodes->leaf(p, id) : kir_text(p->kir, type, p->leaf(p, id));
}

static const KirExpr *inverse_node(ExprPrinter *p, NodeId id)
{
    if (p->nodes)
        return p->fast ? p->nodes->reciprocal(p, id) : NULL;
    const char *inverse = p->fast && p->reciprocal ? p->reciprocal(p, id) : NULL;
    return inverse ? kir_text(p->kir, real_of(p), inverse) : NULL;
}

/* As a whole number of 64 bits, whatever C makes of the constants in it. */
static const KirExpr *size_node(ExprPrinter *p, const Poly *size)
{
    if (!p->nodes)
        return kir_text(p->kir, KT_I64, text_f(p, "(int64_t)%s", poly_text(p, size)));
    const KirExpr *e = poly_node(p, size);
    return e->type.of == KT_I64 ? e : kir_convert(p->kir, kir_value(KT_I64), e);
}

/* ---- expressions ---- */

static const KirExpr *as_real(ExprPrinter *p, NodeId id)
{
    const Node *n = &p->m->nodes.data[id];
    if (n->kind == N_SIZE && n->size->is_const)
        return kir_real(p->kir, real_of(p), (double)n->size->value);
    bool integer = n->type == TY_INT;         /* printing may make nodes, and move them */
    const KirExpr *e = expr_node(p, id);
    return integer ? kir_convert(p->kir, kir_value(real_of(p)), e) : e;
}

static const KirExpr *real_op(ExprPrinter *p, Op op, const KirExpr *const *args, int n)
{
    return kir_op(p->kir, op, real_of(p), p->fast, args, n);
}

/* Of whole numbers, in 64 bits. An index may be an int: where that is too narrow for the result, and where
 * the result may leave the 64 bits, a function does it. */
static const KirExpr *integer_node(ExprPrinter *p, const Node *at)
{
    const KirExpr *x[3] = { NULL };
    Node node = *at, *n = &node;              /* printing may make nodes, and move them */
    for (int i = 0; i < n->nargs; i++)
        x[i] = expr_node(p, n->args[i]);
    if (n->most >= 0x1p31 && (n->op == OP_ADD || n->op == OP_SUB || n->op == OP_MUL || n->op == OP_NEG)) {
        const char *name = n->op == OP_ADD ? "cell_whole_sum" : n->op == OP_MUL ? "cell_whole_product"
                                                                                : "cell_whole_difference";
        bool negative = n->op == OP_NEG;
        return kir_call2(p->kir, name, negative ? kir_whole(p->kir, 0) : x[0], x[!negative]);
    }
    return kir_op(p->kir, n->op, KT_I64, false, x, n->nargs);
}

/* Is a number that is printed in place a product, or one's negative? Then of what. */
static bool is_product(ExprPrinter *p, NodeId id, NodeId *factors, bool *negative)
{
    Node n = p->m->nodes.data[id];
    *negative = n.kind == N_MAP && n.type != TY_INT && n.op == OP_NEG && !known_node(p, id);
    if (*negative)
        n = p->m->nodes.data[id = n.args[0]];
    if (n.kind != N_MAP || n.type == TY_INT || n.op != OP_MUL || known_node(p, id))
        return false;
    memcpy(factors, n.args, 2 * sizeof *factors);
    return true;
}

/* A product of reals is rounded before anything is added to it. */
static const KirExpr *rounded_node(ExprPrinter *p, NodeId id)
{
    NodeId factors[2];
    bool negative;
    if (!is_product(p, id, factors, &negative))
        return as_real(p, id);
    const KirExpr *a = as_real(p, factors[0]);
    const KirExpr *product = kir_call2(p->kir, "cell_mul", a, as_real(p, factors[1]));
    return negative ? real_op(p, OP_NEG, &product, 1) : product;
}

/* A sum whose fused multiply-add is written, if there is one: of two products the first. */
static const KirExpr *fused_node(ExprPrinter *p, const Node *n)
{
    NodeId x[2] = { n->args[0], n->args[1] }, factors[2];
    Op op = n->op;
    bool negative, minus = op == OP_SUB;
    int of = is_product(p, x[0], factors, &negative) ? 0 : is_product(p, x[1], factors, &negative) ? 1 : -1;
    if (of < 0) {
        const KirExpr *a = as_real(p, x[0]);
        return real_op(p, op, (const KirExpr *[]){ a, as_real(p, x[1]) }, 2);
    }
    const KirExpr *a = as_real(p, factors[0]), *b = as_real(p, factors[1]);
    const KirExpr *other = rounded_node(p, x[1 - of]);
    negative ^= minus && of == 1;
    a = negative ? kir_neg(p->kir, a) : a;
    other = minus && of == 0 ? kir_neg(p->kir, other) : other;
    return kir_call(p->kir, "cell_fma", NULL, 0, (const KirExpr *[]){ a, b, other }, 3);
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
    if (n->kind != N_MAP || n->type == TY_INT || n->op != op || known_node(p, id))
        return false;
    memcpy(args, n->args, sizeof *args * (size_t)n->nargs);
    return true;
}

/* Phi(x) + x phi(x), as gelu's derivative is built (d_gelu): its exponential is that of erf too. */
static bool is_gelu_slope(ExprPrinter *p, const Node *n, NodeId *x)
{
    NodeId cdf[2], sum[2], of_erf[1], scaled[2], density[2], bell[2], of_exp[1], of_neg[1], half[2],
        square[2];
    if (n->op != OP_ADD || !is_in_place(p, n->args[0], OP_MUL, cdf) ||
        !is_in_place(p, n->args[1], OP_MUL, density))
        return false;
    *x = density[0];
    return is_in_place(p, cdf[1], OP_ADD, sum) && is_in_place(p, sum[1], OP_ERF, of_erf) &&
           is_in_place(p, of_erf[0], OP_MUL, scaled) && scaled[0] == *x &&
           is_in_place(p, density[1], OP_MUL, bell) && is_in_place(p, bell[1], OP_EXP, of_exp) &&
           is_in_place(p, of_exp[0], OP_NEG, of_neg) && is_in_place(p, of_neg[0], OP_MUL, half) &&
           is_in_place(p, half[1], OP_MUL, square) && square[0] == *x && square[1] == *x &&
           is_number(p, cdf[0], 0.5) && is_number(p, sum[0], 1) && is_number(p, half[0], 0.5) &&
           is_number(p, scaled[1], 0.70710678118654752440) && is_number(p, bell[0], 0.39894228040143267794);
}

static const KirExpr *map_node(ExprPrinter *p, const Node *n)
{
    Op op = n->op;
    NodeId x[4], slope_of;
    int nargs = n->nargs;
    memcpy(x, n->args, sizeof *x * (size_t)nargs);
    const Node *nodes = p->m->nodes.data;
    bool ints = nargs == 2 && nodes[x[0]].type == TY_INT && nodes[x[1]].type == TY_INT;
    if (n->type == TY_INT)
        return integer_node(p, n);
    bool condition = n->type == TY_BOOL, logic = op == OP_AND || op == OP_OR || op == OP_NOT;
    bool written = p->fuse == FUSE_WRITTEN, sum = op == OP_ADD || op == OP_SUB;
    const KirExpr *inverse = op == OP_DIV ? inverse_node(p, x[1]) : NULL, *args[4] = { NULL };
    if (inverse) {
        args[0] = as_real(p, x[0]);
        return written ? kir_call2(p->kir, "cell_mul", args[0], inverse)
                       : real_op(p, OP_MUL, (const KirExpr *[]){ args[0], inverse }, 2);
    }
    if (p->fast && is_gelu_slope(p, n, &slope_of))
        return kir_call1(p->kir, "cell_fast_gelu_slope", as_real(p, slope_of));
    if (sum && (written || (p->fuse == FUSE_FIRST && has_product(p, n))))
        return fused_node(p, n);
    bool choice = op == OP_SELECT;
    for (int j = 0; j < nargs; j++) {
        int i = choice ? nargs - 1 - j : j;   /* what is read for both ways comes before the condition */
        bool as_is = (condition && (ints || logic)) || (choice && i == 0);
        args[i] = as_is ? expr_node(p, x[i]) : as_real(p, x[i]);
    }
    if (written && op == OP_MUL)
        return kir_call2(p->kir, "cell_mul", args[0], args[1]);
    return condition ? kir_op(p->kir, op, KT_BOOL, false, args, nargs) : real_op(p, op, args, nargs);
}

/* Is it what such a value is rounded to, read where it lies rounded? */
static bool is_rounded_twice(const ExprPrinter *p, const Node *n)
{
    const Node *read = n->nargs == 1 ? &p->m->nodes.data[n->args[0]] : NULL;
    NodeId array = !read ? -1 : read->kind == N_VIEW ? read->args[0] : read->kind == N_ARRAY ? n->args[0]
        : -1;
    return p->rounded && (n->op == OP_BF16 || n->op == OP_F16) && array >= 0 && array < p->n_rounded &&
        p->rounded[array];
}

const KirExpr *expr_node(ExprPrinter *p, NodeId id)
{
    Node n = p->m->nodes.data[id];
    const KirExpr *local = known_node(p, id);
    if (local)
        return local;
    switch (n.kind) {
    case N_CONST: return n.type == TY_BOOL ? kir_truth(p->kir, n.value != 0)
        : kir_real(p->kir, real_of(p), n.value);
    case N_SIZE: return size_node(p, n.size);
    case N_INDEX: return p->nodes ? ix_node(p, n.ix) : kir_text(p->kir, KT_I64, ix_text(p, n.ix));
    case N_MAP: return is_rounded_twice(p, &n) ? expr_node(p, n.args[0]) : map_node(p, &n);
    default: return leaf_node(p, id);
    }
}

/* ---- for kernels that are printed as text ---- */

static const char *text_of(ExprPrinter *p, NodeId id, const KirExpr *(*node)(ExprPrinter *, NodeId))
{
    Kir none = { .arena = p->m->arena }, *outer = p->kir;
    p->kir = outer ? outer : &none;
    const KirExpr *e = node(p, id);
    p->kir = outer;
    if (e->kind == KX_TEXT)
        return e->text;
    Buf b = { .arena = p->m->arena };
    (p->in_c ? kir_expr_c : kir_expr_cuda)(e, &b);
    return b.data;
}

const char *expr_text(ExprPrinter *p, NodeId id)
{
    return text_of(p, id, expr_node);
}

const char *expr_rounded(ExprPrinter *p, NodeId id)
{
    return text_of(p, id, rounded_node);
}

const char *expr_added(ExprPrinter *p, NodeId id, bool minus, const char *sum)
{
    NodeId factors[2];
    bool negative;
    if (!is_product(p, id, factors, &negative))
        return NULL;
    const char *a = text_of(p, factors[0], as_real), *b = text_of(p, factors[1], as_real);
    return intern_f(p->m->c, negative != minus ? "cell_fma(-(%s), %s, %s)" : "cell_fma(%s, %s, %s)", a, b,
                    sum);
}
