/* kir_print.c: what the printers of C (kir_c.c) and of CUDA (kir_cuda.c) share: formats of the operator table,
 * filled with expressions of the kernel IR, and parentheses. In: a format with %s for each argument, or an
 * expression, and how the printer writes one. Out: text. Guaranteed: a minus in front of an argument never
 * makes a decrement of it. */
#include <math.h>
#include <string.h>

#include "kir.h"

/* What an operand of a minus must bind like: a minus behind another would decrement. */
int kir_needs_behind_minus(const KirExpr *e)
{
    bool minus = e->kind == KX_REAL && signbit(e->real) && (e->real == 0 || isinf(e->real));
    return minus ? 11 : e->kind == KX_NEG ? 10 : 9;
}

void kir_print_filled(const char *fmt, const KirExpr *e, KirPrint print, Buf *out)
{
    int next = 0;
    for (const char *s; (s = strstr(fmt, "%s")); fmt = s + 2) {
        buf_bytes(out, fmt, (size_t)(s - fmt));
        const KirExpr *arg = e->args[next++];
        print(arg, s > fmt && s[-1] == '-' ? kir_needs_behind_minus(arg) : 9, out);
    }
    buf_text(out, fmt);
}

/* Operands that C binds as it should, but that one reads twice: && in ||, and arithmetic in &. */
int kir_operand_needs(const KirExpr *e, int i)
{
    int own = kir_precedence(e);
    if (e->op == KB_OR)
        return kir_precedence(e->args[i]) == 3 ? 10 : own + i;
    return e->op == KB_BITS ? 9 : own + i;
}

/* Without the parentheses around the whole that an operator's row has; those of statements with a value stay. */
const char *kir_bare(const KirExpr *e, KirPrint print, Arena *arena)
{
    Buf b = { .arena = arena };
    int open = 0;
    print(e, 0, &b);
    for (size_t i = 0; i < b.len && b.data[0] == '(' && b.data[1] != '{'; i++) {
        open += (b.data[i] == '(') - (b.data[i] == ')');
        if (open == 0 && i == b.len - 1) {
            b.data[i] = 0;
            return b.data + 1;
        }
        if (open == 0)
            break;
    }
    return b.data;
}

const char *kir_loop_step(const KirStmt *s, KirPrint print, Arena *arena)
{
    Buf b = { .arena = arena };
    if (kir_is_number(s->x[2], 1) || kir_is_number(s->x[2], -1))
        buf_f(&b, "%s%s", s->var->name, s->x[2]->whole > 0 ? "++" : "--");
    else
        buf_f(&b, "%s += %s", s->var->name, kir_bare(s->x[2], print, arena));
    return b.data;
}
