/* expression.c: an expression of the IR as text of the spec, for messages. In: a node. Out: its text, with
 * `...` for what lies deeper than is asked for. Values that have a name in the spec stand there by it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "emit.h"
#include "ir/ops.h"

static void put_index(const Module *m, const IxExpr *e, bool inside, Buf *out);

/* Without the sign. */
static void put_index_term(const Module *m, const IxTerm *t, bool negative, Buf *out)
{
    int64_t times = t->coef->is_const ? negative ? -t->coef->value : t->coef->value : 0;
    if (!t->coef->is_const) {
        buf_f(out, "%s", t->coef->nterms > 1 ? "(" : "");
        poly_print_spec(m, t->coef, out);
        buf_f(out, "%s*", t->coef->nterms > 1 ? ")" : "");
    } else if (times != 1) {
        buf_f(out, "%" PRId64 "*", times);
    }
    if (t->kind == IA_INDEX) {
        buf_f(out, "%s", m->indices.data[t->index].name);
        return;
    }
    buf_f(out, "%s", times != 1 ? "(" : "");
    put_index(m, t->arg, true, out);
    buf_f(out, t->kind == IA_DIV ? "/" : " %% ");
    buf_f(out, "%s", t->by->nterms > 1 ? "(" : "");
    poly_print_spec(m, t->by, out);
    buf_f(out, "%s%s", t->by->nterms > 1 ? ")" : "", times != 1 ? ")" : "");
}

/* Sums of several terms in parentheses where they stand between others. Indices by their names alone. */
static void put_index(const Module *m, const IxExpr *e, bool inside, Buf *out)
{
    bool several = e->nterms + (e->offset->nterms > 0) > 1, any = false;
    buf_f(out, "%s", inside && several ? "(" : "");
    for (int sign = 0; sign < 2; sign++)                  /* what is added comes first */
        for (int i = 0; i < e->nterms; i++) {
            const Poly *coef = e->terms[i].coef;
            bool negative = coef->is_const && coef->value < 0;
            if (negative != (sign == 1))
                continue;
            buf_f(out, "%s", any ? negative ? " - " : " + " : negative ? "-" : "");
            put_index_term(m, &e->terms[i], negative, out);
            any = true;
        }
    bool less = e->offset->is_const && e->offset->value < 0;
    if (any && less)
        buf_f(out, " - %" PRId64, -e->offset->value);
    else if (e->offset->nterms || !any) {
        buf_f(out, "%s", any ? " + " : "");
        poly_print_spec(m, e->offset, out);
    }
    buf_f(out, "%s", inside && several ? ")" : "");
}

/* The fewest digits that read back as the number. */
static void put_number(double v, Buf *out)
{
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    buf_f(out, "%s", text);
}

static void put_places(const Module *m, const IxExpr *const *map, int n, Buf *out)
{
    for (int i = 0; i < n; i++) {
        buf_f(out, "%s", i ? "," : "[");
        put_index(m, map[i], false, out);
    }
    buf_f(out, "%s", n ? "]" : "");
}

/* The next value of state h is h' in a spec. */
static void put_name(const Module *m, const char *name, Buf *out)
{
    static const char next[] = "_next";
    size_t n = strlen(name), behind = strlen(next);
    for (TensorId t = 0; n > behind && strcmp(name + n - behind, next) == 0 && t < m->tensors.len; t++) {
        const Tensor *x = &m->tensors.data[t];
        if (x->kind == T_STATE && strlen(x->name) == n - behind && strncmp(x->name, name, n - behind) == 0) {
            buf_f(out, "%s'", x->name);
            return;
        }
    }
    buf_f(out, "%s", name);
}

static void put_array(const Module *m, const Node *a, const IxExpr *const *map, int depth, Buf *out)
{
    if (!a->name) {
        put_expression(m, a->args[0], depth - 1, true, out);
        return;
    }
    put_name(m, a->name, out);
    for (int i = 0; i < a->naxes; i++) {
        buf_f(out, "%s", i ? "," : "[");
        if (map)
            put_index(m, map[i], false, out);
        else
            buf_f(out, "%s", m->indices.data[a->axes[i]].name);
    }
    buf_f(out, "%s", a->naxes ? "]" : "");
}

static const char *infix(Op op)
{
    switch (op) {
    case OP_ADD: return " + ";
    case OP_SUB: return " - ";
    case OP_MUL: return " * ";
    case OP_DIV: return " / ";
    case OP_LT: return " < ";
    case OP_LE: return " <= ";
    case OP_EQ: return " == ";
    case OP_NE: return " != ";
    case OP_AND: return " && ";
    case OP_OR: return " || ";
    default: return NULL;
    }
}

static void put_map(const Module *m, const Node *n, int depth, bool inside, Buf *out)
{
    const char *between = infix(n->op);
    if (n->op == OP_SELECT) {
        buf_f(out, "%s", inside ? "(" : "");
        put_expression(m, n->args[0], depth - 1, false, out);
        buf_f(out, " ? ");
        put_expression(m, n->args[1], depth - 1, false, out);
        buf_f(out, " : ");
        put_expression(m, n->args[2], depth - 1, false, out);
        buf_f(out, "%s", inside ? ")" : "");
        return;
    }
    if (!between) {
        buf_f(out, "%s%s", n->op == OP_NEG ? "-" : op_table[n->op].name, n->op == OP_NEG ? "" : "(");
        for (int i = 0; i < n->nargs; i++) {
            buf_f(out, "%s", i ? ", " : "");
            put_expression(m, n->args[i], depth - 1, n->op == OP_NEG, out);
        }
        buf_f(out, "%s", n->op == OP_NEG ? "" : ")");
        return;
    }
    buf_f(out, "%s", inside ? "(" : "");
    put_expression(m, n->args[0], depth - 1, true, out);
    buf_f(out, "%s", between);
    put_expression(m, n->args[1], depth - 1, true, out);
    buf_f(out, "%s", inside ? ")" : "");
}

void put_expression(const Module *m, NodeId id, int depth, bool inside, Buf *out)
{
    static const char *const words[] = { "sum", "mean", "max", "min", "prod", "softmax" };
    const Node *n = &m->nodes.data[id];
    if (depth == 0) {
        buf_f(out, "...");
        return;
    }
    switch (n->kind) {
    case N_CONST: put_number(n->value, out); break;
    case N_SIZE: poly_print_spec(m, n->size, out); break;
    case N_INDEX: put_index(m, n->ix, inside, out); break;
    case N_LOAD:
        buf_f(out, "%s", m->tensors.data[n->tensor].name);
        put_places(m, n->map, n->nmap, out);
        break;
    case N_ARRAY: put_array(m, n, NULL, depth, out); break;
    case N_VIEW: put_array(m, &m->nodes.data[n->args[0]], n->map, depth, out); break;
    case N_MAP: put_map(m, n, depth, inside, out); break;
    case N_REDUCE:
        buf_f(out, "(%s[", words[n->reduce]);
        for (int i = 0; i < n->nbound; i++)
            buf_f(out, "%s%s", i ? "," : "", m->indices.data[n->bound[i]].name);
        buf_f(out, "] ");
        put_expression(m, n->args[0], depth - 1, false, out);
        buf_f(out, ")");
        break;
    }
}
