/* kir_filled.c: formats of the operator table, filled with expressions of the kernel IR, for the printers of C and of
 * CUDA. In: a format with %s for each argument. Out: its text. Guaranteed: a minus in front of an argument never makes
 * a decrement of it. */
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
        buf_f(out, "%.*s", (int)(s - fmt), fmt);
        const KirExpr *arg = e->args[next++];
        print(arg, s > fmt && s[-1] == '-' ? kir_needs_behind_minus(arg) : 9, out);
    }
    buf_f(out, "%s", fmt);
}
