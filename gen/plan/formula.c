/* formula.c: whole numbers that are known when a call is made, as trees. In: sizes, facts of the device,
 * kernels. Out: trees; their programs for the launch plan, their words for people, and their values as the
 * runtime computes them (runtime/expr.c). */
#include "formula.h"

#include <string.h>

/* ---- building ---- */

static Formula *new_formula(const Module *m, FormulaKind kind)
{
    Formula *f = arena_alloc(m->arena, sizeof *f);
    f->kind = kind;
    return f;
}

const Formula *formula_leaf(const Module *m, FormulaKind kind, int64_t value)
{
    Formula *f = new_formula(m, kind);
    f->value = value;
    return f;
}

const Formula *formula_const(const Module *m, int64_t v)
{
    return formula_leaf(m, F_CONST, v);
}

const Formula *formula_size_of_rows(const Module *m, const Poly *p, const Formula *rows)
{
    Formula *f = new_formula(m, F_SIZE);
    f->size = p;
    f->a = rows;
    return f;
}

const Formula *formula_size(const Module *m, const Poly *p)
{
    return formula_size_of_rows(m, p, NULL);
}

const Formula *formula_resident(const Module *m, const char *kernel)
{
    Formula *f = new_formula(m, F_RESIDENT);
    f->kernel = kernel;
    return f;
}

const Formula *formula(const Module *m, FormulaKind kind, const Formula *a, const Formula *b)
{
    Formula *f = new_formula(m, kind);
    f->a = a;
    f->b = b;
    return f;
}

const Formula *formula_with(const Module *m, FormulaKind kind, const Formula *a, int64_t b)
{
    return formula(m, kind, a, formula_const(m, b));
}

const Formula *formula_not(const Module *m, const Formula *a)
{
    return formula(m, F_NOT, a, NULL);
}

const Formula *formula_and(const Module *m, const Formula *a, const Formula *b)
{
    return a && b ? formula(m, F_AND, a, b) : a ? a : b;
}

const Formula *formula_multiple(const Module *m, const Poly *p, int64_t of)
{
    return formula_with(m, F_EQ, formula_with(m, F_MOD, formula_size(m, p), of), 0);
}

/* ---- programs of the launch plan ---- */

static void put_codes(const Module *m, const Formula *f, const KernelNames *kernels, Buf *out);
static void postfix_size(const Module *m, const Poly *p, const Formula *rows, Buf *out);

/* The sizes of a call are B, T, the run-time dims, t0. */
static int start_number(const Module *m)
{
    return 2 + m->dims.len;
}

static void postfix_atom(const Module *m, int atom, const Formula *rows, Buf *out)
{
    if (atom == ATOM_T && rows) {
        put_codes(m, rows, NULL, out);
    } else if (atom == ATOM_B || atom == ATOM_T) {
        buf_f(out, "CELL_X_SIZE, %d, ", atom == ATOM_B ? 0 : 1);
    } else if (atom == ATOM_PAST) {
        buf_f(out, "CELL_X_SIZE, 1, CELL_X_SIZE, %d, CELL_X_ADD, ", start_number(m));
    } else if (atom < MAX_DIMS) {
        buf_f(out, "CELL_X_SIZE, %d, ", 2 + atom);
    } else {
        postfix_size(m, m->quotients.data[atom - MAX_DIMS].num, rows, out);
        postfix_size(m, m->quotients.data[atom - MAX_DIMS].den, rows, out);
        buf_f(out, "CELL_X_DIV, ");
    }
}

static void postfix_size(const Module *m, const Poly *p, const Formula *rows, Buf *out)
{
    if (p->nterms == 0)
        buf_f(out, "CELL_X_PUSH, 0, ");
    for (int i = 0; i < p->nterms; i++) {
        const PolyTerm *t = &p->terms[i];
        bool started = t->coef != 1 || t->natoms == 0;
        if (started)
            buf_f(out, "CELL_X_PUSH, %lld, ", (long long)t->coef);
        for (int k = 0; k < t->natoms; k++) {
            postfix_atom(m, t->atoms[k], rows, out);
            if (started)
                buf_f(out, "CELL_X_MUL, ");
            started = true;
        }
        if (i)
            buf_f(out, "CELL_X_ADD, ");
    }
}

static int kernel_number(const Module *m, const KernelNames *kernels, const char *name)
{
    for (int i = 0; kernels && i < kernels->len; i++)
        if (strcmp(kernels->data[i], name) == 0)
            return i;
    bug(m->c, "emit_plan", "a condition on %s, which is no kernel of the plan", name);
}

static const char *code(FormulaKind kind)
{
    switch (kind) {
    case F_CONST: return "CELL_X_PUSH";
    case F_LOOP: return "CELL_X_LOOPVAR";
    case F_DEVICE: return "CELL_X_ATTR";
    case F_ROWS: return "CELL_X_ROWS";
    case F_ROW: return "CELL_X_ROW";
    case F_FORM: return "CELL_X_FORM";
    case F_RESIDENT: return "CELL_X_RESIDENT";
    case F_ADD: return "CELL_X_ADD";
    case F_SUB: return "CELL_X_SUB";
    case F_MUL: case F_AND: return "CELL_X_MUL";
    case F_DIV: return "CELL_X_DIV";
    case F_MOD: return "CELL_X_MOD";
    case F_CEILDIV: return "CELL_X_CEILDIV";
    case F_MIN: return "CELL_X_MIN";
    case F_MAX: case F_OR: return "CELL_X_MAX";
    case F_LT: return "CELL_X_LT";
    case F_LE: return "CELL_X_LE";
    case F_EQ: return "CELL_X_EQ";
    case F_NOT: return "CELL_X_PUSH, 0, CELL_X_EQ";
    case F_START: return "CELL_X_SIZE";
    case F_SIZE: break;
    }
    return NULL;
}

static void put_codes(const Module *m, const Formula *f, const KernelNames *kernels, Buf *out)
{
    static const char *const facts[] = { "CELL_ATTR_SM_COUNT", "CELL_ATTR_SMEM_MAX", "CELL_ATTR_CAPABILITY",
                                         "CELL_ATTR_PRODUCTS_OF_8" };
    switch (f->kind) {
    case F_SIZE:
        postfix_size(m, f->size, f->a, out);
        break;
    case F_DEVICE:
        buf_f(out, "%s, %s, ", code(f->kind), facts[f->value]);
        break;
    case F_RESIDENT:
        buf_f(out, "%s, %d, ", code(f->kind), kernel_number(m, kernels, f->kernel));
        break;
    case F_START:
        buf_f(out, "%s, %d, ", code(f->kind), start_number(m));
        break;
    case F_CONST: case F_LOOP: case F_ROWS: case F_ROW: case F_FORM:
        buf_f(out, "%s, %lld, ", code(f->kind), (long long)f->value);
        break;
    default:
        put_codes(m, f->a, kernels, out);
        if (f->b)
            put_codes(m, f->b, kernels, out);
        buf_f(out, "%s, ", code(f->kind));
    }
}

void formula_postfix(const Module *m, const Formula *f, const KernelNames *kernels, Buf *out)
{
    put_codes(m, f, kernels, out);
    buf_f(out, "CELL_X_END");
}

/* ---- words ---- */

/* How tightly a formula's last operation binds. */
enum { BIND_OR, BIND_AND, BIND_COMPARED, BIND_SUM, BIND_PRODUCT, BIND_ATOM };

static int binding(const Formula *f)
{
    switch (f->kind) {
    case F_OR: return BIND_OR;
    case F_AND: return BIND_AND;
    case F_LT: case F_LE: case F_EQ: return BIND_COMPARED;
    case F_ADD: case F_SUB: return BIND_SUM;
    case F_MUL: case F_MOD: return BIND_PRODUCT;
    case F_SIZE:
        return f->a ? BIND_OR : f->size->nterms > 1 ? BIND_SUM : f->size->is_const ? BIND_ATOM : BIND_PRODUCT;
    default: return BIND_ATOM;
    }
}

static void put_operand(const Module *m, const Formula *f, int within, Buf *out)
{
    bool inside = binding(f) < within;
    buf_f(out, inside ? "(" : "");
    formula_words(m, f, out);
    buf_f(out, inside ? ")" : "");
}

/* The right operand of a difference or a remainder binds more tightly than the left one. */
static void put_infix(const Module *m, const Formula *f, const char *sign, Buf *out)
{
    int own = binding(f);
    put_operand(m, f->a, own, out);
    buf_f(out, " %s ", sign);
    put_operand(m, f->b, f->kind == F_SUB || f->kind == F_MOD || own == BIND_COMPARED ? own + 1 : own, out);
}

static void put_call(const Module *m, const char *name, const Formula *f, const char *between, Buf *out)
{
    buf_f(out, "%s(", name);
    put_operand(m, f->a, *between == ',' ? BIND_OR : BIND_PRODUCT, out);
    buf_f(out, "%s", between);
    put_operand(m, f->b, *between == ',' ? BIND_OR : BIND_ATOM, out);
    buf_f(out, ")");
}

static void put_size(const Module *m, const Formula *f, Buf *out)
{
    poly_print(m, f->size, out);
    if (f->a) {
        buf_f(out, " where T is ");
        formula_words(m, f->a, out);
    }
}

void formula_words(const Module *m, const Formula *f, Buf *out)
{
    static const char *const facts[] = { "the GPU's multiprocessors", "the GPU's shared memory for a block",
                                         "the GPU's capability" };
    switch (f->kind) {
    case F_CONST: buf_f(out, "%lld", (long long)f->value); break;
    case F_SIZE: put_size(m, f, out); break;
    case F_LOOP: buf_f(out, "loop variable %lld", (long long)f->value); break;
    case F_START: buf_f(out, "t0"); break;
    case F_DEVICE: buf_f(out, "%s", facts[f->value]); break;
    case F_RESIDENT: buf_f(out, "the blocks of %s that the GPU holds at once", f->kernel); break;
    case F_ROWS: buf_f(out, "rows(%lld)", (long long)f->value); break;
    case F_ROW: buf_f(out, "row(%lld)", (long long)f->value); break;
    case F_FORM: buf_f(out, "the form taken of operation %lld", (long long)f->value); break;
    case F_ADD: put_infix(m, f, "+", out); break;
    case F_SUB: put_infix(m, f, "-", out); break;
    case F_MUL: put_infix(m, f, "*", out); break;
    case F_MOD: put_infix(m, f, "%", out); break;
    case F_DIV: put_call(m, "floor", f, " / ", out); break;
    case F_CEILDIV: put_call(m, "ceil", f, " / ", out); break;
    case F_MIN: put_call(m, "min", f, ", ", out); break;
    case F_MAX: put_call(m, "max", f, ", ", out); break;
    case F_LT: put_infix(m, f, "<", out); break;
    case F_LE: put_infix(m, f, "<=", out); break;
    case F_EQ: put_infix(m, f, "=", out); break;
    case F_AND: put_infix(m, f, "and", out); break;
    case F_OR: put_infix(m, f, "or", out); break;
    case F_NOT:
        buf_f(out, "not ");
        put_operand(m, f->a, BIND_ATOM, out);
    }
}

/* ---- values ---- */

static bool floor_divide(int64_t a, int64_t b, int64_t *quotient)
{
    if (b == 0 || (b == -1 && a == INT64_MIN))
        return false;
    *quotient = a / b - (a % b != 0 && (a < 0) != (b < 0));
    return true;
}

static bool combine(FormulaKind kind, int64_t a, int64_t b, int64_t *value)
{
    int64_t quotient;
    switch (kind) {
    case F_ADD: return !__builtin_add_overflow(a, b, value);
    case F_SUB: return !__builtin_sub_overflow(a, b, value);
    case F_MUL: case F_AND: return !__builtin_mul_overflow(a, b, value);
    case F_DIV: return floor_divide(a, b, value);
    case F_MOD:
        if (!floor_divide(a, b, &quotient))
            return false;
        *value = a - quotient * b;
        return true;
    case F_CEILDIV:
        if (!floor_divide(a, b, &quotient))
            return false;
        *value = quotient + (a != quotient * b);
        return true;
    case F_MIN: *value = a < b ? a : b; return true;
    case F_MAX: case F_OR: *value = a > b ? a : b; return true;
    case F_LT: *value = a < b; return true;
    case F_LE: *value = a <= b; return true;
    case F_EQ: *value = a == b; return true;
    default: return false;
    }
}

static bool size_value(const Poly *p, const Formula *rows, const FormulaScope *scope, int64_t *value);

static bool atom_value(int atom, const Formula *rows, const FormulaScope *scope, int64_t *value)
{
    if (atom == ATOM_T && rows)
        return formula_value(rows, scope, value);
    if (atom < MAX_DIMS) {
        *value = scope->sizes[atom];
        return true;
    }
    const Quotient *q = &scope->m->quotients.data[atom - MAX_DIMS];
    int64_t num, den;
    return size_value(q->num, rows, scope, &num) && size_value(q->den, rows, scope, &den) &&
           floor_divide(num, den, value);
}

static bool size_value(const Poly *p, const Formula *rows, const FormulaScope *scope, int64_t *value)
{
    *value = 0;
    for (int i = 0; i < p->nterms; i++) {
        int64_t term = p->terms[i].coef, atom;
        for (int k = 0; k < p->terms[i].natoms; k++)
            if (!atom_value(p->terms[i].atoms[k], rows, scope, &atom) || !combine(F_MUL, term, atom, &term))
                return false;
        if (!combine(F_ADD, *value, term, value))
            return false;
    }
    return true;
}

bool formula_value(const Formula *f, const FormulaScope *scope, int64_t *value)
{
    int64_t a, b;
    switch (f->kind) {
    case F_CONST:
        *value = f->value;
        return true;
    case F_SIZE: return size_value(f->size, f->a, scope, value);
    case F_LOOP:
        if (f->value < 0 || f->value >= scope->n_loops)
            return false;
        *value = scope->loop[f->value];
        return true;
    case F_START: return combine(F_SUB, scope->sizes[ATOM_PAST], scope->sizes[ATOM_T], value);
    case F_DEVICE:
        *value = scope->device[f->value];
        return true;
    case F_RESIDENT: return scope->resident && scope->resident(scope->data, f->kernel, value);
    case F_ROWS:
        *value = scope->saving ? scope->sizes[ATOM_T] : f->value;
        return true;
    case F_ROW:
        if (scope->n_loops < 1 || f->value < 1)
            return false;
        *value = scope->saving ? scope->loop[0] : scope->loop[0] % f->value;
        return true;
    case F_FORM: return scope->form && scope->form(scope->data, f->value, value);
    case F_NOT:
        if (!formula_value(f->a, scope, &a))
            return false;
        *value = a == 0;
        return true;
    default:
        return formula_value(f->a, scope, &a) && formula_value(f->b, scope, &b) &&
               combine(f->kind, a, b, value);
    }
}

/* ---- why a condition does not hold ---- */

static bool holds(const Formula *f, const FormulaScope *scope)
{
    int64_t value;
    return !formula_value(f, scope, &value) || value != 0;
}

static const char *comparison(FormulaKind kind)
{
    return kind == F_LT ? "<" : kind == F_LE ? "<=" : "=";
}

static void put_compared(const Formula *f, const FormulaScope *scope, Buf *out)
{
    int64_t a, b;
    formula_words(scope->m, f, out);
    buf_f(out, " does not hold");
    if (formula_value(f->a, scope, &a) && formula_value(f->b, scope, &b))
        buf_f(out, " (%lld %s %lld)", (long long)a, comparison(f->kind), (long long)b);
}

void formula_why_not(const Formula *f, const FormulaScope *scope, Buf *out)
{
    if (holds(f, scope))
        return;
    if (f->kind == F_AND) {
        formula_why_not(holds(f->a, scope) ? f->b : f->a, scope, out);
    } else if (f->kind == F_LT || f->kind == F_LE || f->kind == F_EQ) {
        put_compared(f, scope, out);
    } else {
        formula_words(scope->m, f, out);
        buf_f(out, " does not hold");
    }
}
