/* The operator table against values that do not come from it. In: nothing. Out: one line per failure, then
 * the count. Values: every row's constant folder and its C spelling, compiled in double and in float, against
 * the definition in long double. Derivatives: every row's adjoint against fourth-order central differences of
 * that definition. Then what limits and kinks must be, exactly; and that a zero cotangent stays zero. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emit/emit.h"
#include "ir/ops.h"

typedef long double Real;

static int passed, failed;

static void check(bool ok, const char *fmt, ...)
{
    va_list ap;
    if (ok) {
        passed++;
        return;
    }
    failed++;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
}

/* ---- definitions, written down independently of the table */

static Real pi(void) { return acosl(-1.0L); }
static Real r_sigmoid(Real x) { return 1 / (1 + expl(-x)); }
static Real r_gelu(Real x) { return x * erfcl(-x / sqrtl(2)) / 2; }
/* x/2 (1 + tanh u), where 1 + tanh u = 2/(1 + e^(-2u)) does not cancel */
static Real r_gelu_tanh(Real x) { return x / (1 + expl(-2 * sqrtl(2 / pi()) * (x + 0.044715L * x * x * x))); }

/* The nearest integer, of two the even one. */
static Real r_nearest(Real a)
{
    return fabsl(a - truncl(a)) == 0.5L ? 2 * roundl(a / 2) : roundl(a);
}

/* The nearest number of a type with so many bits, whose smallest normal number is 2^least. */
static Real r_stored(Real a, int bits, int least)
{
    Real step = ldexpl(1, (a == 0 || ilogbl(a) < least ? least : ilogbl(a)) + 1 - bits);
    return r_nearest(a / step) * step;
}

/* sqrt(a + ib) by half the angle, and a power of two. */
static Real r_root_re(Real a, Real b) { return sqrtl(hypotl(a, b)) * cosl(atan2l(b, a) / 2); }
static Real r_root_im(Real a, Real b) { return sqrtl(hypotl(a, b)) * sinl(atan2l(b, a) / 2); }
static Real r_scale(Real a) { return exp2l(-floorl(log2l(fabsl(a))) - 1); }

static Real define(Op op, const Real *x)
{
    Real a = x[0], b = x[1], c = x[2];
    switch (op) {
    case OP_NEG: return -a;
    case OP_ADD: return a + b;
    case OP_SUB: return a - b;
    case OP_MUL: return a * b;
    case OP_DIV: return a / b;
    case OP_POW: return powl(a, b);
    case OP_MAX: return fmaxl(a, b);
    case OP_MIN: return fminl(a, b);
    case OP_ATAN2: return atan2l(a, b);
    case OP_HYPOT: return hypotl(a, b);
    case OP_LOG_HYPOT: return logl(hypotl(a, b));
    case OP_ROOT_RE: return r_root_re(a, b);
    case OP_ROOT_IM: return r_root_im(a, b);
    case OP_EXP_RE: return expl(a) * cosl(b);
    case OP_EXP_IM: return expl(a) * sinl(b);
    case OP_SCALE: return r_scale(a);
    case OP_EXP: return expl(a);
    case OP_LOG: return logl(a);
    case OP_LOG1P: return log1pl(a);
    case OP_EXPM1: return expm1l(a);
    case OP_SQRT: return sqrtl(a);
    case OP_RSQRT: return 1 / sqrtl(a);
    case OP_ABS: return fabsl(a);
    case OP_SIGN: return a > 0 ? 1 : a < 0 ? -1 : 0;
    case OP_FLOOR: return floorl(a);
    case OP_CEIL: return ceill(a);
    case OP_ROUND: return r_nearest(a);
    case OP_TAN: return tanl(a);
    case OP_ATAN: return atanl(a);
    case OP_SINH: return (expl(a) - expl(-a)) / 2;
    case OP_COSH: return (expl(a) + expl(-a)) / 2;
    case OP_SIN: return sinl(a);
    case OP_COS: return cosl(a);
    case OP_TANH: return tanhl(a);
    case OP_SIGMOID: return r_sigmoid(a);
    case OP_LOGSIGMOID: return -log1pl(expl(-a));
    case OP_SILU: return a * r_sigmoid(a);
    case OP_RELU: return a > 0 ? a : 0;
    case OP_GELU: return r_gelu(a);
    case OP_GELU_TANH: return r_gelu_tanh(a);
    case OP_SOFTPLUS: return log1pl(expl(a));
    case OP_SOFTSIGN: return a / (1 + fabsl(a));
    case OP_ELU: return a > 0 ? a : expm1l(a);
    case OP_LEAKY_RELU: return a > 0 ? a : a * b;
    case OP_HARDTANH: return fmaxl(-1, fminl(a, 1));
    case OP_MISH: return a * tanhl(log1pl(expl(a)));
    case OP_REMAINDER: return a - b * floorl(a / b);
    case OP_ERF: return erfl(a);
    case OP_CLAMP: return a < b ? b : a > c ? c : a;
    case OP_IPOW: return powl(a, b);
    case OP_IDIV: return b == 0 ? 0 : floorl(a / b);
    case OP_IMOD: return b == 0 ? 0 : a - b * floorl(a / b);
    case OP_BF16: return r_stored(a, 8, -126);
    case OP_F16: return r_stored(a, 11, -14);
    case OP_REAL: case OP_STOP: case OP_HELD: case OP_STE: case OP_OVERRIDE: return a;
    case OP_SELECT: return a != 0 ? b : c;
    case OP_LT: return a < b;
    case OP_LE: return a <= b;
    case OP_EQ: return a == b;
    case OP_NE: return a != b;
    case OP_AND: return a != 0 && b != 0;
    case OP_OR: return a != 0 || b != 0;
    case OP_NOT: return a == 0;
    case OP_COUNT: break;
    }
    return NAN;
}

/* Points of the domain, away from kinks; every row has at least six. */
static bool in_domain(Op op, const Real *x)
{
    switch (op) {
    case OP_DIV: return fabsl(x[1]) > 0.01L;
    case OP_POW: return x[0] > 0.01L || x[1] == 2 || x[1] == 3;
    case OP_LOG: case OP_SQRT: case OP_RSQRT: return x[0] > 0.01L;
    case OP_LOG1P: return x[0] > -0.9L;
    case OP_ABS: case OP_SIGN: case OP_RELU: case OP_ELU: case OP_LEAKY_RELU: return fabsl(x[0]) > 0.01L;
    case OP_TAN: return fabsl(x[0]) < 10;    /* beyond, one is near a pole, where differences are off */
    case OP_HARDTANH: return fabsl(fabsl(x[0]) - 1) > 0.01L;
    case OP_REMAINDER: return fabsl(x[0] / x[1] - roundl(x[0] / x[1])) > 0.01L;
    case OP_FLOOR: case OP_CEIL: return fabsl(x[0] - roundl(x[0])) > 0.01L;
    case OP_ROUND: return fabsl(x[0] - floorl(x[0]) - 0.5L) > 0.01L;
    case OP_MAX: case OP_MIN: return fabsl(x[0] - x[1]) > 0.01L;
    case OP_HYPOT: case OP_LOG_HYPOT: case OP_ROOT_RE: case OP_ROOT_IM:     /* where differences see both */
        return fabsl(x[0]) > 0.05L * fabsl(x[1]) && fabsl(x[1]) > 0.05L * fabsl(x[0]);
    case OP_ATAN2: return fabsl(x[0]) + fabsl(x[1]) > 0.1L;
    case OP_IPOW: return x[0] == floorl(x[0]) && x[1] == floorl(x[1]) && x[1] >= 0 && fabsl(powl(x[0], x[1])) < 0x1p53L;
    case OP_IDIV: case OP_IMOD: return x[0] == floorl(x[0]) && x[1] == floorl(x[1]);
    case OP_CLAMP: return x[1] < x[2] && fabsl(x[0] - x[1]) > 0.01L && fabsl(x[0] - x[2]) > 0.01L;
    default: return true;
    }
}

static const double points[] = { -30,  -7.25, -2.5, -1.125, -0.375, -0.03125, 0.015625,
                                 0.25, 0.75,  1.5,  2,      3,      6.5,      20 };
enum { N_POINTS = sizeof points / sizeof *points };

/* Some triples of points for an operator: all of them for one argument, a spread for more. */
static int draw(Op op, int k, Real *x)
{
    int arity = op_table[op].arity;
    x[0] = points[k % N_POINTS];
    x[1] = arity > 1 ? points[(k / N_POINTS * 5 + k * 3) % N_POINTS] : 0;
    x[2] = arity > 2 ? points[(k / N_POINTS * 3 + k * 7 + 5) % N_POINTS] : 0;
    return in_domain(op, x);
}

enum { N_DRAWS = N_POINTS * 7 };

/* ---- values */

static double relative(Real got, Real want)
{
    Real scale = fabsl(want) > 1e-300L ? fabsl(want) : 1;
    return (double)(fabsl(got - want) / scale);
}

/* How a rounded argument is magnified: the tail of the normal distribution falls as e^(-x^2/2). */
static double conditioning(Op op, const Real *x)
{
    return op == OP_GELU || op == OP_GELU_TANH
               ? (double)(1 + x[0] * x[0]) * (op == OP_GELU ? 1 : 1 + fabs((double)x[0]))
               : 1;
}

static void test_eval(void)
{
    for (int op = 0; op < OP_COUNT; op++)
        for (int k = 0; k < N_DRAWS; k++) {
            Real x[3];
            if (!draw(op, k, x))
                continue;
            double args[3] = { (double)x[0], (double)x[1], (double)x[2] };
            double error = relative(op_table[op].eval(args), define(op, x));
            check(error < 4e-15 * conditioning(op, x), "%s folds (%g, %g, %g) with error %g",
                  op_table[op].name, args[0], args[1], args[2], error);
        }
}

static int placeholders(const char *format)
{
    int n = 0;
    for (const char *p = strstr(format, "%s"); p; p = strstr(p + 2, "%s"))
        n++;
    return n;
}

static void test_rows(void)
{
    for (int op = 0; op < OP_COUNT; op++) {
        const OpRow *row = &op_table[op];
        check(op_find(row->name) == op, "%s is not found by its name", row->name);
        check(placeholders(row->c64) == row->arity && placeholders(row->c32) == row->arity &&
                  placeholders(row->cuda) == row->arity,
              "%s: a spelling does not take %d arguments", row->name, row->arity);
        check(row->doc && *row->doc && row->cost >= 0, "%s has no documentation or cost", row->name);
    }
    check(op_find("no such operator") == -1, "op_find finds what is not there");
}

/* Device functions that rows name must be in the device headers. */
static void test_device_names(void)
{
    static const char *const headers[] = { "runtime/device/cell_device_math.cuh", "runtime/device/cell_device.cuh" };
    static char text[1 << 18];
    size_t length = 0;
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(headers[i], "rb");
        check(f != NULL, "%s is not there: run from the top of the tree", headers[i]);
        if (!f)
            return;
        length += fread(text + length, 1, sizeof text - 1 - length, f);
        fclose(f);
    }
    text[length] = 0;
    for (int op = 0; op < OP_COUNT; op++) {
        char call[64], defined[80];
        const char *name = op_table[op].cuda;
        if (strncmp(name, "cell_", 5) != 0)
            continue;
        size_t n = strcspn(name, "(<");
        snprintf(call, sizeof call, " %.*s(", (int)n, name);
        snprintf(defined, sizeof defined, "CELL_DEFINE_MATH1(%.*s,", (int)n - 5, name + 5);
        check(strstr(text, call) || strstr(text, defined), "%s: the device headers have no%s",
              op_table[op].name, call);
    }
}

/* ---- the C spellings, compiled */

static void print_spelling(FILE *f, const char *format)
{
    static const char *const args[] = { "a", "b", "c" };
    int k = 0;
    for (; *format; format++) {
        if (format[0] == '%' && format[1] == 's') {
            fputs(args[k++], f);
            format++;
        } else {
            fputc(*format, f);
        }
    }
}

static void *compile(Compiler *c, const char *dir, bool is_float)
{
    bool used[OP_COUNT];
    char source[300], object[300], command[1200];
    Buf prelude = { .arena = c->arena };
    const char *cc = getenv("CC");
    memset(used, true, sizeof used);
    ops_prelude(&prelude, used);
    snprintf(source, sizeof source, "%s/ops%d.c", dir, is_float);
    snprintf(object, sizeof object, "%s/ops%d.so", dir, is_float);
    FILE *f = fopen(source, "w");
    if (!f)
        return NULL;
    fprintf(f, "#include <math.h>\n#include <stdint.h>\n#include <tgmath.h>\n#undef I\ntypedef %s real;\n%.*s",
            is_float ? "float" : "double", (int)prelude.len, prelude.data);
    for (int op = 0; op < OP_COUNT; op++) {
        fprintf(f, "double op_%s(double x, double y, double z)\n{\n    real a = x, b = y, c = z;\n"
                   "    (void)a, (void)b, (void)c;\n    return ", op_table[op].name);
        print_spelling(f, is_float ? op_table[op].c32 : op_table[op].c64);
        fprintf(f, ";\n}\n");
    }
    fclose(f);
    snprintf(command, sizeof command,
             "%s -std=c11 -O1 -Wall -Wextra -Werror -Wno-conversion -fPIC -shared -o %s %s -lm",
             cc && *cc ? cc : "cc", object, source);
    void *library = system(command) == 0 ? dlopen(object, RTLD_NOW) : NULL;
    unlink(source);
    unlink(object);
    return library;
}

typedef double (*Fn)(double, double, double);

static Fn spelled(void *library, int op)
{
    char name[64];
    Fn f;
    snprintf(name, sizeof name, "op_%s", op_table[op].name);
    *(void **)&f = dlsym(library, name);
    return f;
}

static void test_spelling(void *library, bool is_float)
{
    double tolerance = is_float ? 3e-6 : 4e-15;
    for (int op = 0; op < OP_COUNT; op++)
        for (int k = 0; k < N_DRAWS; k++) {
            Real x[3];
            if (!draw(op, k, x) || (is_float && fabsl(define(op, x)) > 1e37L) ||
                (is_float && fabsl(define(op, x)) < 1e-37L))
                continue;
            double got = spelled(library, op)((double)x[0], (double)x[1], (double)x[2]);
            check(relative(got, define(op, x)) < tolerance * conditioning(op, x),
                  "%s in %s at (%g, %g, %g): %.17g, wanted %.17Lg", op_table[op].name,
                  is_float ? "float" : "double", (double)x[0], (double)x[1], (double)x[2], got,
                  define(op, x));
        }
}

/* ---- limits, exactly */

typedef struct Limit { Op op; double x[2], want; } Limit;

static const Limit limits[] = {
    { OP_BF16, { 1 + 0x1p-8, 0 }, 1 },
    { OP_BF16, { 1 + 0x3p-8, 0 }, 1 + 0x1p-6 },
    { OP_BF16, { 1 + 0x1p-8 + 0x1p-20, 0 }, 1 + 0x1p-7 },
    { OP_BF16, { -1.9999, 0 }, -2 },
    { OP_BF16, { 0x1.ffp127, 0 }, INFINITY },
    { OP_BF16, { 0x1p-134, 0 }, 0 },
    { OP_BF16, { 0x1.8p-133, 0 }, 0x1p-132 },
    { OP_BF16, { -INFINITY, 0 }, -INFINITY },
    { OP_BF16, { NAN, 0 }, NAN },
    { OP_F16, { 1 + 0x1p-11, 0 }, 1 },
    { OP_F16, { 1 + 0x3p-11, 0 }, 1 + 0x1p-9 },
    { OP_F16, { 65519, 0 }, 65504 },
    { OP_F16, { -65520, 0 }, -INFINITY },
    { OP_F16, { 0x1p-25, 0 }, 0 },
    { OP_F16, { 0x1.8p-24, 0 }, 0x1p-23 },
    { OP_F16, { INFINITY, 0 }, INFINITY },
    { OP_F16, { NAN, 0 }, NAN },
    { OP_SIGMOID, { 1000, 0 }, 1 },
    { OP_SIGMOID, { -1000, 0 }, 0 },
    { OP_SIGMOID, { 0, 0 }, 0.5 },
    { OP_SIGMOID, { INFINITY, 0 }, 1 },
    { OP_SIGMOID, { -INFINITY, 0 }, 0 },
    { OP_SIGMOID, { NAN, 0 }, NAN },
    { OP_SOFTPLUS, { 1000, 0 }, 1000 },
    { OP_SOFTPLUS, { -1000, 0 }, 0 },
    { OP_SOFTPLUS, { INFINITY, 0 }, INFINITY },
    { OP_SOFTPLUS, { -INFINITY, 0 }, 0 },
    { OP_SOFTPLUS, { NAN, 0 }, NAN },
    { OP_LOGSIGMOID, { -1000, 0 }, -1000 },
    { OP_LOGSIGMOID, { 1000, 0 }, 0 },
    { OP_LOGSIGMOID, { NAN, 0 }, NAN },
    { OP_LOGSIGMOID, { -INFINITY, 0 }, -INFINITY },
    { OP_LOGSIGMOID, { INFINITY, 0 }, 0 },
    { OP_TANH, { 1000, 0 }, 1 },
    { OP_TANH, { -1000, 0 }, -1 },
    { OP_TANH, { -0.0, 0 }, -0.0 },
    { OP_TANH, { NAN, 0 }, NAN },
    { OP_SILU, { 1000, 0 }, 1000 },
    { OP_SILU, { -1000, 0 }, -0.0 },
    { OP_SILU, { NAN, 0 }, NAN },
    { OP_GELU, { 1000, 0 }, 1000 },
    { OP_GELU, { -1000, 0 }, -0.0 },
    { OP_GELU_TANH, { 1000, 0 }, 1000 },
    { OP_GELU_TANH, { -1000, 0 }, -0.0 },
    { OP_RELU, { -0.0, 0 }, 0 },
    { OP_RELU, { NAN, 0 }, NAN },
    { OP_RELU, { INFINITY, 0 }, INFINITY },
    { OP_RELU, { -INFINITY, 0 }, 0 },
    { OP_ELU, { -1000, 0 }, -1 },
    { OP_ELU, { 1000, 0 }, 1000 },
    { OP_ELU, { NAN, 0 }, NAN },
    { OP_SOFTSIGN, { 1000, 0 }, 1000.0 / 1001 },
    { OP_MAX, { NAN, 1 }, NAN },
    { OP_MAX, { 1, NAN }, NAN },
    { OP_MIN, { NAN, 1 }, NAN },
    { OP_MIN, { 1, NAN }, NAN },
    { OP_MAX, { -INFINITY, 2 }, 2 },
    { OP_MIN, { INFINITY, 2 }, 2 },
    { OP_SIGN, { 0, 0 }, 0 },
    { OP_SIGN, { -0.0, 0 }, -0.0 },
    { OP_SIGN, { NAN, 0 }, NAN },
    { OP_SIGN, { -INFINITY, 0 }, -1 },
    { OP_FLOOR, { 3, 0 }, 3 },
    { OP_FLOOR, { -0.25, 0 }, -1 },
    { OP_FLOOR, { -0.0, 0 }, -0.0 },
    { OP_FLOOR, { NAN, 0 }, NAN },
    { OP_FLOOR, { -INFINITY, 0 }, -INFINITY },
    { OP_CEIL, { -3, 0 }, -3 },
    { OP_CEIL, { 0.25, 0 }, 1 },
    { OP_CEIL, { -0.25, 0 }, -0.0 },
    { OP_CEIL, { NAN, 0 }, NAN },
    { OP_CEIL, { INFINITY, 0 }, INFINITY },
    { OP_TAN, { -0.0, 0 }, -0.0 },
    { OP_TAN, { INFINITY, 0 }, NAN },
    { OP_ATAN, { -0.0, 0 }, -0.0 },
    { OP_ATAN, { 0x1p100, 0 }, 1.57079632679489661923 },
    { OP_ATAN, { -INFINITY, 0 }, -1.57079632679489661923 },
    { OP_SINH, { -0.0, 0 }, -0.0 },
    { OP_SINH, { -1000, 0 }, -INFINITY },
    { OP_SINH, { NAN, 0 }, NAN },
    { OP_COSH, { 0, 0 }, 1 },
    { OP_COSH, { -1000, 0 }, INFINITY },
    { OP_LEAKY_RELU, { -8, 0.25 }, -2 },
    { OP_LEAKY_RELU, { INFINITY, 0.25 }, INFINITY },
    { OP_LEAKY_RELU, { -INFINITY, 0.25 }, -INFINITY },
    { OP_LEAKY_RELU, { NAN, 0.25 }, NAN },
    { OP_LEAKY_RELU, { 8, NAN }, 8 },
    { OP_HARDTANH, { 0.25, 0 }, 0.25 },
    { OP_HARDTANH, { -INFINITY, 0 }, -1 },
    { OP_HARDTANH, { 1000, 0 }, 1 },
    { OP_HARDTANH, { NAN, 0 }, NAN },
    { OP_MISH, { 0, 0 }, 0 },
    { OP_MISH, { 1000, 0 }, 1000 },
    { OP_MISH, { 3e38, 0 }, 3e38 },
    { OP_MISH, { -1000, 0 }, 0 },
    { OP_MISH, { -3e38, 0 }, 0 },
    { OP_MISH, { INFINITY, 0 }, INFINITY },
    { OP_MISH, { -INFINITY, 0 }, 0 },
    { OP_MISH, { NAN, 0 }, NAN },
    { OP_REMAINDER, { 7, 3 }, 1 },
    { OP_REMAINDER, { -7, 3 }, 2 },
    { OP_REMAINDER, { 7, -3 }, -2 },
    { OP_REMAINDER, { -7, -3 }, -1 },
    { OP_REMAINDER, { 0x1p60, 3 }, 1 },
    { OP_REMAINDER, { 0x1p100 + 0x1p90, 0x1p95 }, 0x1p90 },
    { OP_REMAINDER, { 5, 0 }, 0 },
    { OP_REMAINDER, { 5, INFINITY }, 5 },
    { OP_REMAINDER, { -5, INFINITY }, INFINITY },
    { OP_REMAINDER, { INFINITY, 2 }, NAN },
    { OP_REMAINDER, { NAN, 2 }, NAN },
    { OP_ROUND, { 0.5, 0 }, 0 },
    { OP_ROUND, { 1.5, 0 }, 2 },
    { OP_ROUND, { -2.5, 0 }, -2 },
    { OP_ROUND, { -0.25, 0 }, -0.0 },
    { OP_ROUND, { NAN, 0 }, NAN },
    { OP_ROUND, { INFINITY, 0 }, INFINITY },
    { OP_ABS, { -0.0, 0 }, 0 },
    { OP_SQRT, { 0, 0 }, 0 },
    { OP_RSQRT, { 0, 0 }, INFINITY },
    { OP_LOG, { 0, 0 }, -INFINITY },
    { OP_LOG1P, { -1, 0 }, -INFINITY },
    { OP_EXP, { 1000, 0 }, INFINITY },
    { OP_EXP, { -1000, 0 }, 0 },
    { OP_EXPM1, { -1000, 0 }, -1 },
    { OP_POW, { 0, 0 }, 1 },
    { OP_POW, { -2, 3 }, -8 },
    { OP_POW, { 0, 2 }, 0 },
    { OP_ATAN2, { 0, 0 }, 0 },
    { OP_ERF, { 1000, 0 }, 1 },
    { OP_DIV, { 1, 0 }, INFINITY },
    { OP_HYPOT, { 0x3p80, 0x4p80 }, 0x5p80 },
    { OP_HYPOT, { 0x3p-90, 0x4p-90 }, 0x5p-90 },
    { OP_ROOT_RE, { -4, 0 }, 0 },
    { OP_ROOT_IM, { -4, 0 }, 2 },
    { OP_ROOT_IM, { -4, -0.0 }, -2 },
    { OP_ROOT_RE, { 0, 0 }, 0 },
    { OP_ROOT_IM, { 0, -0.0 }, -0.0 },
    { OP_ROOT_RE, { 0x1p100, 0 }, 0x1p50 },
    { OP_ROOT_IM, { -0x1p-120, 0 }, 0x1p-60 },
    { OP_LOG_HYPOT, { 0, 0 }, -INFINITY },
    { OP_LOG_HYPOT, { 1, 0x1p-20 }, 0x1p-41 - 0x1p-82 },
    { OP_LOG_HYPOT, { INFINITY, INFINITY }, INFINITY },
    { OP_EXP_RE, { 1000, 0 }, INFINITY },
    { OP_EXP_RE, { 1000, 3 }, -INFINITY },
    { OP_EXP_IM, { 1000, 0 }, 0 },
    { OP_EXP_IM, { 1000, 1 }, INFINITY },
    { OP_SCALE, { 0, 0 }, 1 },
    { OP_SCALE, { 0.75, 0 }, 1 },
    { OP_SCALE, { 3e30, 0 }, 0x1p-102 },
};

static bool identical(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static void test_limits(void *in_double, void *in_float)
{
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const Limit *l = &limits[i];
        const double args[3] = { l->x[0], l->x[1], 0 };
        double folded = op_table[l->op].eval(args), want = l->want;
        double a = spelled(in_double, l->op)(args[0], args[1], 0),
               b = spelled(in_float, l->op)(args[0], args[1], 0);
        const char *name = op_table[l->op].name;
        check(identical(folded, want), "%s folds (%g, %g) to %g, wanted %g", name, args[0], args[1], folded,
              want);
        check(identical(a, want), "%s in double at (%g, %g): %g, wanted %g", name, args[0], args[1], a, want);
        check(identical(b, (double)(float)want), "%s in float at (%g, %g): %g, wanted %g", name, args[0],
              args[1], b, want);
    }
}

/* ---- derivatives: adjoints are evaluated as IR */

typedef struct Point {
    Module *m;
    NodeId x[3], g;
    double value[4];
} Point; /* tensors 0..2: arguments, 3: cotangent */

static double run(const Point *p, NodeId id)
{
    const Node *n = &p->m->nodes.data[id];
    double args[3] = { 0, 0, 0 };
    switch (n->kind) {
    case N_CONST: return n->value;
    case N_LOAD: return p->value[n->tensor];
    case N_MAP: break;
    default: check(false, "an adjoint made a node of kind %d", n->kind); return NAN;
    }
    if (n->op == OP_SELECT)
        return run(p, n->args[run(p, n->args[0]) != 0 ? 1 : 2]);
    for (int i = 0; i < n->nargs; i++)
        args[i] = run(p, n->args[i]);
    /* Of large and small numbers a scale is folded to no number, as it depends on the type. */
    return n->op == OP_SCALE && args[0] != 0 ? ldexp(1, -ilogb(args[0]) - 1) : op_table[n->op].eval(args);
}

static Point point_new(Compiler *c)
{
    static const char *const names[] = { "a", "b", "c", "g" };
    Point p = { .m = module_new(c, "ops") };
    for (int i = 0; i < 4; i++) {
        TensorId t = module_tensor(p.m, (Tensor){ .name = names[i], .kind = T_PARAM });
        NodeId id = node_load(p.m, t, NULL, 0);
        if (i < 3)
            p.x[i] = id;
        else
            p.g = id;
    }
    return p;
}

/* The gradient of argument k; NAN and *none when the row has none. A constant exponent is tried with the
 * constant in place. */
static double gradient(Point *p, Op op, int k, bool constant, bool *none)
{
    NodeId x[3] = { p->x[0], p->x[1], p->x[2] };
    if (constant)
        x[1] = node_const(p->m, p->value[1]);
    NodeId y = node_map(p->m, op, x, op_table[op].arity);
    NodeId d = op_table[op].adjoint(p->m, k, x, y, p->g);
    *none = d < 0;
    return d < 0 ? NAN : run(p, d);
}

static Real difference(Op op, const Real *at, int k)
{
    Real x[3] = { at[0], at[1], at[2] }, h = 5e-5L * fabsl(at[k]), f[4];
    const int steps[] = { -2, -1, 1, 2 };
    for (int i = 0; i < 4; i++) {
        x[k] = at[k] + steps[i] * h;
        bool straight = op == OP_BF16 || op == OP_F16;    /* backwards these are their argument, STE is its second */
        f[i] = op == OP_STE ? x[1] : straight ? x[0] : define(op, x);
    }
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h);
}

static bool flat(Op op)
{
    return op == OP_SCALE || op == OP_SIGN || op == OP_FLOOR || op == OP_CEIL || op == OP_ROUND ||
           op == OP_STOP || op == OP_IDIV || op == OP_IMOD || op == OP_IPOW ||
           op == OP_OVERRIDE || op >= OP_LT;
}

static void test_derivative(Point *p, Op op, const Real *x, int k, bool constant)
{
    bool none;
    p->value[3] = 1.75;
    for (int i = 0; i < 3; i++)
        p->value[i] = (double)x[i];
    double got = gradient(p, op, k, constant, &none);
    Real want = 1.75L * difference(op, x, k);
    Real scale = fabsl(want) > 1e-3L ? fabsl(want) : 1e-3L;
    if (none) {
        check(flat(op) || ((op == OP_SELECT || op == OP_STE) && k == 0) || (constant && x[1] == 0),
              "%s has no gradient of argument %d", op_table[op].name, k);
        return;
    }
    check(fabsl(got - want) < 2e-11L * scale,
          "d %s / d argument %d%s at (%Lg, %Lg, %Lg): %.15g, wanted %.15Lg", op_table[op].name, k,
          constant ? " (constant exponent)" : "", x[0], x[1], x[2], got, want);
}

static void test_derivatives(Point *p)
{
    for (int op = 0; op < OP_COUNT; op++)
        for (int i = 0; i < N_DRAWS; i++) {
            Real x[3];
            if (!draw(op, i, x))
                continue;
            for (int k = 0; k < op_table[op].arity; k++) {
                if (op == OP_POW && (x[0] < 0 || fabsl(define(op, x)) > 1e12L)) {
                    if (k == 0)
                        test_derivative(p, op, x, k, true);
                    continue;
                }
                test_derivative(p, op, x, k, false);
                if (op == OP_POW && k == 0)
                    test_derivative(p, op, x, k, true);
            }
        }
}

/* op, arguments, which one, cotangent, is the exponent a constant, gradient */
typedef struct Kink { Op op; double x[3]; int k; double g; bool constant; double want; } Kink;

static const Kink kinks[] = {
    { OP_RELU, { 0 }, 0, 3, false, 0 },
    { OP_RELU, { -0.0 }, 0, 3, false, 0 },
    { OP_ABS, { 0 }, 0, 3, false, 0 },
    { OP_CLAMP, { 1, 1, 2 }, 0, 3, false, 3 },
    { OP_CLAMP, { 2, 1, 2 }, 0, 3, false, 3 },
    { OP_CLAMP, { 1, 1, 2 }, 1, 3, false, 0 },
    { OP_CLAMP, { 2, 1, 2 }, 2, 3, false, 0 },
    { OP_CLAMP, { 0, 1, 2 }, 1, 3, false, 3 },
    { OP_CLAMP, { 5, 1, 2 }, 2, 3, false, 3 },
    { OP_CLAMP, { 5, 2, 1 }, 2, 3, false, 3 },
    { OP_CLAMP, { 5, 2, 1 }, 1, 3, false, 0 },
    { OP_STE, { 1, -7 }, 1, 3, false, 3 },
    { OP_LEAKY_RELU, { 0, 0.25 }, 0, 4, false, 1 },
    { OP_LEAKY_RELU, { -0.0, 0.25 }, 0, 4, false, 1 },
    { OP_LEAKY_RELU, { 3, 0.25 }, 1, 4, false, 0 },
    { OP_LEAKY_RELU, { -3, 0.25 }, 1, 4, false, -12 },
    { OP_HARDTANH, { 1 }, 0, 3, false, 0 },
    { OP_HARDTANH, { -1 }, 0, 3, false, 0 },
    { OP_HARDTANH, { 0.5 }, 0, 3, false, 3 },
    { OP_REMAINDER, { 6, 3 }, 0, 5, false, 5 },
    { OP_REMAINDER, { 6, 3 }, 1, 5, false, -10 },
    { OP_REMAINDER, { -7, 3 }, 1, 5, false, 15 },
    { OP_REMAINDER, { 7, -3 }, 1, 5, false, 15 },
    { OP_REMAINDER, { 5, 0 }, 0, 3, false, 0 },
    { OP_REMAINDER, { 5, 0 }, 1, 3, false, 0 },
    { OP_REMAINDER, { 0x1p52 + 1, 0.75 }, 0, 3, false, 3 },
    { OP_ATAN, { 1e200 }, 0, 3, false, 0 },
    { OP_ATAN, { INFINITY }, 0, 3, false, 0 },
    { OP_MAX, { 2, 2 }, 0, 3, false, 1.5 },
    { OP_MAX, { 2, 2 }, 1, 3, false, 1.5 },
    { OP_MIN, { 2, 2 }, 0, 3, false, 1.5 },
    { OP_MIN, { 2, 2 }, 1, 3, false, 1.5 },
    { OP_MAX, { 3, 2 }, 1, 3, false, 0 },
    { OP_MIN, { 3, 2 }, 0, 3, false, 0 },
    { OP_SQRT, { 0 }, 0, 3, false, 0 },
    { OP_ELU, { 0 }, 0, 3, false, 3 },
    { OP_ATAN2, { 0, 0 }, 0, 3, false, 0 },
    { OP_ATAN2, { 0, 0 }, 1, 3, false, 0 },
    { OP_HYPOT, { 0, 0 }, 1, 3, false, 0 },
    { OP_LOG_HYPOT, { 0, 0 }, 1, 3, false, 0 },
    { OP_ROOT_RE, { 0, 0 }, 0, 3, false, 0 },
    { OP_ROOT_IM, { 0, 0 }, 0, 3, false, 0 },
    /* no square on the way */
    { OP_ATAN2, { 0x1p600, 0 }, 1, 3, false, -0x3p-600 },
    { OP_ATAN2, { 0, 0x1p-600 }, 0, 3, false, 0x3p600 },
    { OP_HYPOT, { 0x1p600, 0 }, 0, 3, false, 3 },
    { OP_LOG_HYPOT, { 0x1p600, 0 }, 0, 3, false, 0x3p-600 },
    { OP_LOG_HYPOT, { 0x1p-600, 0 }, 0, 3, false, 0x3p600 },
    { OP_ROOT_RE, { 0x1p600, 0 }, 0, 1, false, 0x1p-301 },
    { OP_ROOT_IM, { -0x1p-600, 0 }, 0, 1, false, -0x1p299 },
    { OP_EXP_RE, { 1000, 1 }, 0, 0, false, 0 },
    { OP_EXP_RE, { 1000, 1 }, 1, 0, false, 0 },
    { OP_EXP_IM, { 1000, 1 }, 0, 0, false, 0 },
    { OP_EXP_IM, { 1000, 1 }, 1, 0, false, 0 },
    { OP_POW, { 0, 2 }, 0, 3, true, 0 },
    { OP_POW, { 0, 2 }, 0, 3, false, 0 },
    { OP_POW, { 0, 1 }, 0, 3, true, 3 },
    { OP_POW, { -2, 3 }, 0, 1, true, 12 },
    { OP_POW, { -2, 3 }, 0, 1, false, 12 },
    { OP_POW, { 0, 2 }, 1, 3, false, 0 },
    { OP_POW, { 0, 0 }, 0, 3, false, 0 },
    { OP_POW, { 0, 0 }, 1, 3, false, 0 },
    /* a zero cotangent stays zero */
    { OP_EXP, { 1000 }, 0, 0, false, 0 },
    { OP_EXPM1, { 1000 }, 0, 0, false, 0 },
    { OP_SINH, { 1000 }, 0, 0, false, 0 },
    { OP_COSH, { -1000 }, 0, 0, false, 0 },
    { OP_LOG, { 0 }, 0, 0, false, 0 },
    { OP_LOG1P, { -1 }, 0, 0, false, 0 },
    { OP_SQRT, { 0 }, 0, 0, false, 0 },
    { OP_RSQRT, { 0 }, 0, 0, false, 0 },
    { OP_SQRT, { -4 }, 0, 0, false, 0 },
    { OP_RSQRT, { -4 }, 0, 0, false, 0 },
    { OP_POW, { -4, 1.5 }, 0, 0, true, 0 },
    { OP_POW, { -4, 1.5 }, 0, 0, false, 0 },
    { OP_POW, { -4, 1.5 }, 1, 0, false, 0 },
    { OP_LOG, { -4 }, 0, 0, false, 0 },
    { OP_LOG1P, { -4 }, 0, 0, false, 0 },
    { OP_DIV, { 1, 0 }, 0, 0, false, 0 },
    { OP_DIV, { 1, 0 }, 1, 0, false, 0 },
    { OP_DIV, { 0, 0 }, 1, 0, false, 0 },
    { OP_POW, { 0, 0.5 }, 0, 0, true, 0 },
    { OP_POW, { 0, 0.5 }, 0, 0, false, 0 },
    { OP_POW, { 0, -1 }, 0, 0, true, 0 },
    { OP_POW, { 0, -1 }, 1, 0, false, 0 },
    /* saturation: no overflow on the way */
    { OP_SIGMOID, { 1000 }, 0, 3, false, 0 },
    { OP_SIGMOID, { -1000 }, 0, 3, false, 0 },
    { OP_TANH, { 1000 }, 0, 3, false, 0 },
    { OP_TANH, { -1000 }, 0, 3, false, 0 },
    { OP_SOFTPLUS, { 1000 }, 0, 3, false, 3 },
    { OP_SOFTPLUS, { -1000 }, 0, 3, false, 0 },
    { OP_LOGSIGMOID, { -1000 }, 0, 3, false, 3 },
    { OP_LOGSIGMOID, { 1000 }, 0, 3, false, 0 },
    { OP_SILU, { 1000 }, 0, 3, false, 3 },
    { OP_SILU, { -1000 }, 0, 3, false, 0 },
    { OP_GELU, { 1000 }, 0, 3, false, 3 },
    { OP_GELU, { -1000 }, 0, 3, false, 0 },
    { OP_GELU_TANH, { 1000 }, 0, 3, false, 3 },
    { OP_GELU_TANH, { -1000 }, 0, 3, false, 0 },
    { OP_GELU_TANH, { 1e200 }, 0, 3, false, 3 },
    { OP_GELU_TANH, { -1e200 }, 0, 3, false, 0 },
    { OP_GELU, { 1e200 }, 0, 3, false, 3 },
    { OP_GELU, { -1e200 }, 0, 3, false, 0 },
    { OP_MISH, { 1000 }, 0, 3, false, 3 },
    { OP_MISH, { -1000 }, 0, 3, false, 0 },
    { OP_MISH, { 1e300 }, 0, 3, false, 3 },
    { OP_MISH, { -1e300 }, 0, 3, false, 0 },
    { OP_SILU, { 1e300 }, 0, 3, false, 3 },
    { OP_SILU, { -1e300 }, 0, 3, false, 0 },
    { OP_ERF, { 1e200 }, 0, 3, false, 0 },
    { OP_SOFTSIGN, { 1e300 }, 0, 3, false, 0 },
    { OP_ELU, { 1000 }, 0, 3, false, 3 },
    { OP_ELU, { -1000 }, 0, 3, false, 0 },
    { OP_ERF, { 1000 }, 0, 3, false, 0 },
};

static void test_kinks(Point *p)
{
    for (size_t i = 0; i < sizeof kinks / sizeof *kinks; i++) {
        const Kink *q = &kinks[i];
        bool none;
        memcpy(p->value, q->x, sizeof q->x);
        p->value[3] = q->g;
        double got = gradient(p, q->op, q->k, q->constant, &none);
        check(!none && got == q->want, "d %s / d argument %d at (%g, %g, %g), cotangent %g: %g, wanted %g",
              op_table[q->op].name, q->k, q->x[0], q->x[1], q->x[2], q->g, got, q->want);
    }
}

int main(void)
{
    Compiler *c = compiler_new();
    char dir[] = "/tmp/cellc-ops-XXXXXX";
    test_rows();
    test_device_names();
    test_eval();
    void *in_double = mkdtemp(dir) ? compile(c, dir, false) : NULL,
         *in_float = in_double ? compile(c, dir, true) : NULL;
    check(in_double && in_float, "the C spellings do not compile");
    if (in_double && in_float) {
        test_spelling(in_double, false);
        test_spelling(in_float, true);
        test_limits(in_double, in_float);
    }
    rmdir(dir);
    Point p = point_new(c);
    test_derivatives(&p);
    test_kinks(&p);
    compiler_free(c);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
