/* test_eval.c: the evaluator on small cells whose values are worked out here in C, the derivative of every
 * function against central differences of its own values, and the documented kinks to the last bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/case.h"

static int passed, failed;

static void report(bool ok, const char *what, double got, double want)
{
    if (ok) {
        passed++;
        return;
    }
    failed++;
    printf("failed: %s: got %.17g, want %.17g\n", what, got, want);
}

typedef struct Cell { Compiler *c; Eval *e; } Cell;

static Cell open_cell(const char *text, const char *option, const char *value)
{
    Cell k = {compiler_new(), NULL};
    k.c->import_dir = "specs";
    if (option)
        vec_push(k.c->arena, &k.c->sets, ((Setting){option, value, false}));
    Ast *ast = parse_source(k.c, source_add(k.c, "test.cell", text, strlen(text)));
    k.e = k.c->errors ? NULL : eval_new(k.c, ast, NULL, NULL, 0);
    if (!k.e) {
        diag_print(k.c, stdout);
        report(false, text, 0, 0);
    }
    return k;
}

static void close_cell(Cell k)
{
    compiler_free(k.c);
}

/* One sequence; out has room for all steps. Tangents: along `dx` of the first tensor, if given. */
static bool run(Eval *e, const double *x, const double *dx, int64_t steps, double *out, double *dout)
{
    e->tensors[0].value = x;
    e->tensors[0].tangent[0] = dx;
    EvalTensor *y = eval_find(e, "y");
    y->out = out;
    y->out_tangent[0] = dout;
    if (!eval_run(e, 1, steps, 0)) {
        printf("%s\n", e->run_error);
        return false;
    }
    return true;
}

/* The cell has `input x[N]` first and `output y[M]`; one step. */
static void check_values(const char *what, const char *text, const double *x, const double *want, int n)
{
    double out[64] = {0};
    Cell k = open_cell(text, NULL, NULL);
    if (k.e && run(k.e, x, NULL, 1, out, NULL))
        for (int i = 0; i < n; i++)
            report(fabs(out[i] - want[i]) <= 1e-15 * (1 + fabs(want[i])), what, out[i], want[i]);
    else
        report(false, what, 0, 0);
    close_cell(k);
}

static void check_slope(Eval *e, const char *f, const double *x, int arity)
{
    for (int k = 0; k < arity; k++) {
        double at[3], dx[3] = {0}, up, down, here, slope, h = 1e-5;
        memcpy(at, x, sizeof at);
        dx[k] = 1;
        bool ok = run(e, at, dx, 1, &here, &slope);
        at[k] = x[k] + h;
        ok = ok && run(e, at, NULL, 1, &up, NULL);
        at[k] = x[k] - h;
        ok = ok && run(e, at, NULL, 1, &down, NULL);
        double want = (up - down) / (2 * h);
        report(ok && fabs(slope - want) <= 1e-8 * (1 + fabs(want) + fabs(here)), f, slope, want);
    }
}

static const double three[] = {1, 2, 4};

/* Every function of the language, and where its values are smooth. */
static const struct { const char *f; int arity; double lo, hi; } smooth[] = {
    {"exp(x[0])", 1, -2, 2},
    {"log(x[0])", 1, 0.2, 3},
    {"log1p(x[0])", 1, -0.8, 3},
    {"expm1(x[0])", 1, -2, 2},
    {"sqrt(x[0])", 1, 0.1, 3},
    {"rsqrt(x[0])", 1, 0.2, 3},
    {"abs(x[0])", 1, -2, 2},
    {"sign(x[0])", 1, -2, 2},
    {"floor(x[0])", 1, -2, 2},
    {"ceil(x[0])", 1, -2, 2},
    {"round(x[0])", 1, -2, 2},
    {"tan(x[0])", 1, -1.2, 1.2},
    {"atan(x[0])", 1, -3, 3},
    {"sinh(x[0])", 1, -2, 2},
    {"cosh(x[0])", 1, -2, 2},
    {"sin(x[0])", 1, -3, 3},
    {"cos(x[0])", 1, -3, 3},
    {"tanh(x[0])", 1, -2, 2},
    {"sigmoid(x[0])", 1, -4, 4},
    {"logsigmoid(x[0])", 1, -4, 4},
    {"silu(x[0])", 1, -4, 4},
    {"relu(x[0])", 1, -2, 2},
    {"gelu(x[0])", 1, -3, 3},
    {"gelu_tanh(x[0])", 1, -3, 3},
    {"softplus(x[0])", 1, -4, 4},
    {"softsign(x[0])", 1, -2, 2},
    {"elu(x[0])", 1, -2, 2},
    {"leaky_relu(x[0])", 1, -2, 2},
    {"leaky_relu(x[0], x[1])", 2, -2, 2},
    {"hardtanh(x[0])", 1, -2, 2},
    {"mish(x[0])", 1, -4, 4},
    {"x[0] % x[1]", 2, 0.5, 2},
    {"mod(x[0], -x[1])", 2, 0.5, 2},
    {"mod(2.5, x[0])", 1, -2, -0.3},
    {"erf(x[0])", 1, -2, 2},
    {"pow(x[0], x[1])", 2, 0.3, 2},
    {"x[0]^3", 1, -2, 2},
    {"x[0]^-2", 1, 0.5, 2},
    {"max(x[0], x[1])", 2, -2, 2},
    {"min(x[0], x[1])", 2, -2, 2},
    {"atan2(x[0], x[1])", 2, -2, 2},
    {"clamp(x[0], -0.5, 0.75)", 1, -2, 2},
    {"x[0]/x[1]", 2, 0.5, 2},
    {"x[0]*x[1] - x[1] + 2*x[0]", 2, -2, 2},
    {"prod[i] x[i]", 3, -2, 2},
    {"mean[i] x[i]^2", 3, -2, 2},
    {"max[i] (x[i])", 3, -2, 2},
    {"min[i] (x[i])", 3, -2, 2},
    {"sum[i] sin(x[i])*x[i]", 3, -2, 2},
    {"x[0] > 0 ? x[0]*x[1] : x[1]^2", 2, -2, 2},
};

static void check_functions(void)
{
    Random r = {11};
    for (size_t i = 0; i < sizeof smooth / sizeof *smooth; i++) {
        char text[256];
        snprintf(text, sizeof text, "cell f { input x[3]; output y; y = %s; }", smooth[i].f);
        Cell k = open_cell(text, NULL, NULL);
        for (int n = 0; k.e && n < 8; n++) {
            double x[3];
            for (int j = 0; j < 3; j++)
                x[j] = smooth[i].lo + (smooth[i].hi - smooth[i].lo) * random_uniform(&r);
            check_slope(k.e, smooth[i].f, x, smooth[i].arity);
        }
        close_cell(k);
    }
}

/* Inner gradients: the first is the tangent of the function, and each one's own slope is that of its values. */
static void check_nested(void)
{
    static const char *const forms[] = {"", "grad(", "grad(grad("}, *const ends[] = {"", ", x[%d])",
                                                                                  ", x[%d]), x[%d])"};
    Random r = {12};
    for (size_t i = 0; i < sizeof smooth / sizeof *smooth; i++)
        for (int depth = 1; depth < 3; depth++)
            for (int k = 0; k < smooth[i].arity; k++) {
                char end[64], text[512];
                snprintf(end, sizeof end, ends[depth], k, 0);
                snprintf(text, sizeof text, "cell f { input x[3]; output y, z; y = %s%s%s; z = %s; }",
                         forms[depth], smooth[i].f, end, smooth[i].f);
                Cell c = open_cell(text, NULL, NULL);
                double x[3], dx[3] = {0}, y = 0, z = 0, slope = NAN;
                for (int j = 0; j < 3; j++)
                    x[j] = smooth[i].lo + (smooth[i].hi - smooth[i].lo) * random_uniform(&r);
                dx[k] = 1;
                if (c.e) {
                    EvalTensor *f = eval_find(c.e, "z");
                    check_slope(c.e, text, x, smooth[i].arity);
                    f->out = &z;
                    f->out_tangent[0] = &slope;
                    report(run(c.e, x, dx, 1, &y, NULL), text, 0, 0);
                    if (depth == 1)
                        report(fabs(y - slope) <= 1e-14 * (1 + fabs(slope)), text, y, slope);
                }
                close_cell(c);
            }
}

static void check_grad(void)
{
    check_values("grad", "cell f { input x[3]; output y[3]; l = x[0]*x[1]^2 + x[2]; y[i] = grad(l, x[i]); }", three,
                 (double[]){4, 4, 1}, 3);
    check_values("grad with respect to a definition",
                 "cell f { input x[3]; output y[3]; a[i] = x[i]^2; l = a[0]*a[1] + x[0];\n"
                 "y[i] = grad(l, a[i]); }", three, (double[]){4, 1, 0}, 3);
    check_values("grad through shared definitions",
                 "cell f { input x[3]; output y[3]; a = x[0]*x[1]; b = a*x[2]; l = a*b; y[i] = grad(l, x[i]); }",
                 three, (double[]){32, 16, 4}, 3);
    check_values("a value held",
                 "cell f { input x[3]; output y[3]; o[i] = x[i]*x[0]; y[j] = grad(o[i], x[j]; x[i]); }", three,
                 (double[]){22, 2, 4}, 3);
    check_values("one place each",
                 "cell f { input x[3]; output y[3]; o[i] = x[i]^3; y[i] = grad(o[i], x[i]); }", three,
                 (double[]){3, 12, 48}, 3);
    check_values("grad of grad",
                 "cell f { input x[3]; output y[3]; l = x[0]^2*x[1]; g[i] = grad(l, x[i]); n = sum[i] g[i]^2;\n"
                 "y[i] = grad(n, x[i]); }", three, (double[]){36, 16, 0}, 3);
    check_values("an argument as the variable",
                 "fn slope(u) = grad(u^3, u); fn curve(u) = grad(slope(u), u);\n"
                 "cell f { input x[3]; output y[3]; y[i] = curve(x[i]) + slope(x[0]); }", three,
                 (double[]){9, 15, 27}, 3);
    check_values("only through the argument",
                 "cell f { input x[3]; output y[3]; fn half(u)[i] = grad(sum[j] u[j]*x[j], u[i]);\n"
                 "y[i] = half(x)[i]; }", three, three, 3);
    check_values("through the arguments",
                 "cell f { input x[3]; output y[3]; a[i] = x[i]^2; fn all(u)[i] = grad(sum[j] u[j]*x[j], x[i]);\n"
                 "y[i] = all(a)[i]; }", three, (double[]){3, 12, 48}, 3);
    check_values("what is stopped", "cell f { input x[3]; output y; y = grad(stop(x[0])*x[0]^2, x[0]); }", three,
                 (double[]){2}, 1);
    check_values("a next state",
                 "cell f { input x[3]; state s = 2; output y; s' = s*x[1]; l = s'^2 + s; y = grad(l, s'); }", three,
                 (double[]){8}, 1);
    check_values("grad in a repeat",
                 "cell f { input x[3]; output y; repeat n:2 { carry a = x[1]; l = a^2; a' = a - grad(l, a)/4; }\n"
                 "y = grad(a^2, x[1]) + a; }", three, (double[]){0.75}, 1);
}

static void check_kinks(void)
{
    static const struct { const char *f; double x[3], dx[3], want;
    } rows[] = {
        {"relu(x[0])", {0}, {1}, 0},
        {"abs(x[0])", {0}, {1}, 0},
        {"clamp(x[0], 0, 1)", {0}, {1}, 1},
        {"clamp(x[0], 0, 1)", {1}, {1}, 1},
        {"clamp(x[0], 0, 1)", {1.5}, {1}, 0},
        {"max(x[0], x[1])", {2, 2}, {1}, 0.5},
        {"min(x[0], x[1])", {2, 2}, {0, 1}, 0.5},
        {"max[i] (x[i])", {2, 1, 2}, {1}, 0.5},
        {"max[i] (x[i])", {2, 2, 2}, {3}, 1},
        {"sqrt(x[0])", {0}, {1}, 0},
        {"sqrt(x[0])", {0}, {0}, 0},
        {"log(x[0])", {0}, {0}, 0},
        {"pow(x[0], 0.5)", {0}, {0}, 0},
        {"stop(x[0])*x[0]", {3}, {1}, 3},
        {"x[0]^2", {0}, {1}, 0},
        {"x[0]^1", {0}, {1}, 1},
        {"x[0]^0", {0}, {1}, 0},
        {"prod[i] x[i]", {0, 2, 3}, {1}, 6},
        {"prod[i] x[i]", {0, 0, 3}, {1}, 0},
        {"sign(x[0])", {0}, {1}, 0},
        {"floor(x[0])", {-0.25}, {1}, 0},
        {"ceil(x[0])", {0.25}, {1}, 0},
        {"round(x[0])", {1.5}, {1}, 0},
        {"leaky_relu(x[0], 0.25)", {0}, {1}, 0.25},
        {"leaky_relu(x[0])", {-1}, {1}, 0.01},
        {"leaky_relu(x[0], x[1])", {-2, 3}, {0, 1}, -2},
        {"hardtanh(x[0])", {1}, {1}, 0},
        {"hardtanh(x[0])", {-0.5}, {1}, 1},
        {"mish(x[0])", {1000}, {1}, 1},
        {"mish(x[0])", {-1000}, {1}, 0},
        {"x[0] % x[1]", {-7, 3}, {1}, 1},
        {"x[0] % x[1]", {-7, 3}, {0, 1}, 3},
        {"x[0] % x[1]", {7, 0}, {1, 1}, 0},
        {"atan(x[0])", {1e200}, {1}, 0},
        {"silu(x[0])", {-1000}, {1}, 0},
        {"softplus(x[0])", {1000}, {1}, 1},
        {"gelu(x[0])", {-1000}, {1}, 0},
        {"gelu_tanh(x[0])", {1000}, {1}, 1},
        {"tanh(x[0])", {1000}, {1}, 0},
        {"sigmoid(x[0])", {-1000}, {1}, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[256];
        double y = NAN, dy = NAN;
        snprintf(text, sizeof text, "cell f { input x[3]; output y; y = %s; }", rows[i].f);
        Cell k = open_cell(text, NULL, NULL);
        if (k.e)
            run(k.e, rows[i].x, rows[i].dx, 1, &y, &dy);
        report(dy == rows[i].want, rows[i].f, dy, rows[i].want);
        close_cell(k);
    }
}

/* Where the gradient itself is 0, its own slope must not be lost. */
static void check_slope_at_zero(void)
{
    static const char *const texts[] = {
        "a = x[0]*x[1]; y = grad(a/x[2], x[1]);",
        "a = x[0]*x[1]; y = grad(expm1(a)*1, x[1]);",
        "y = grad(x[0]*exp(x[1]), x[1])*exp(-x[1]);",
        "y = grad(x[0]*log(x[1]), x[1])*x[1];",
    };
    double x[] = {0, 1, 2}, dx[] = {1, 0, 0}, want[] = {0.5, 1, 1, 1};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[256];
        double y = NAN, dy = NAN;
        snprintf(text, sizeof text, "cell f { input x[3]; output y; %s }", texts[i]);
        Cell k = open_cell(text, NULL, NULL);
        if (k.e)
            run(k.e, x, dx, 1, &y, &dy);
        report(y == 0 && fabs(dy - want[i]) < 1e-15, text, dy, want[i]);
        close_cell(k);
    }
}

static void check_indices(void)
{
    check_values("neighbours", "cell f { dim N = 3; input x[N]; output y[N]; y[i] = i > 0 ? x[i-1] : -1; }",
                 three, (double[]){-1, 1, 2}, 3);
    check_values("wrap", "cell f { dim N = 3; input x[N]; output y[N]; y[i] = x[(i + 1) % N]; }", three,
                 (double[]){2, 4, 1}, 3);
    check_values("wrap down", "cell f { dim N = 3; input x[N]; output y[N]; y[i] = x[(i - 4) % N]; }", three,
                 (double[]){4, 1, 2}, 3);
    check_values("floor", "cell f { dim N = 3; input x[N]; output y[2*N]; y[i] = x[i / 2]; }", three,
                 (double[]){1, 1, 2, 2, 4, 4}, 6);
    check_values("reverse", "cell f { dim N = 3; input x[N]; output y[N]; y[i] = x[N - 1 - i]; }", three,
                 (double[]){4, 2, 1}, 3);
    check_values("diagonal", "cell f { dim N = 3; input x[N]; output y[N, N]; y[i, j] = i == j ? x[i] : 0; }",
                 three, (double[]){1, 0, 0, 0, 2, 0, 0, 0, 4}, 9);
    check_values("pieces",
                 "cell f { dim N = 3; input x[N]; output y[2, N]; y[1, i] = x[i]; y[0, i] = 2*x[i]; }", three,
                 (double[]){2, 4, 8, 1, 2, 4}, 6);
    check_values("pieces of a definition",
                 "cell f { input x[3]; output y[2]; a[0] = x[2]; a[1] = x[0]; y[i] = a[i]; }", three,
                 (double[]){4, 1}, 2);
    check_values("index as a number", "cell f { input x[3]; output y[3]; y[i] = x[i] + i*10 + 5 % 3; }",
                 three, (double[]){3, 14, 26}, 3);
    check_values("an index named like a value",
                 "cell f { input x[3]; output y[3]; i[i:3] = 2*x[i]; y[i] = i[i]; }", three,
                 (double[]){2, 4, 8}, 3);
    check_values("order is free",
                 "cell f { input x[3]; output y[3]; y[i] = b[i]; b[i] = a[i] + 1; a[i] = x[i]; }", three,
                 (double[]){2, 3, 5}, 3);
    check_values("precedence", "cell f { input x[3]; output y[3]; y[i] = 2 * sum[j] x[j]*x[j] + x[i]; }",
                 three, (double[]){43, 44, 46}, 3);
    check_values("double sum", "cell f { input x[3]; output y; y = sum[i, j:2] x[i]*(j + 1) - -x[0]^2; }",
                 three, (double[]){22}, 1);
}

static void check_softmax(void)
{
    double e0 = exp(-3), e1 = exp(-2), s = e0 + e1 + 1;
    check_values("softmax", "cell f { input x[3]; output y[3]; y[i] = softmax[i] x[i]; }", three,
                 (double[]){e0 / s, e1 / s, 1 / s}, 3);
    check_values("softmax of two axes",
                 "cell f { input x[3]; output y[2]; a[h:2, i] = softmax[i](h*x[i]) * x[i];\n"
                 "y[h] = sum[i] a[h, i]; }",
                 three, (double[]){7.0 / 3, (e0 + 2 * e1 + 4) / s}, 2);
    check_values("softmax far out", "cell f { input x[3]; output y[3]; y[i] = softmax[i](1000*x[i]); }",
                 three, (double[]){0, 0, 1}, 3);
}

static void check_fns(void)
{
    double n = sqrt(21) + 1e-6, m = sqrt(5) + 1e-6, q = sqrt(20) + 1e-6;
    check_values("fn", "cell f { input x[3]; output y[3]; fn l2(u)[i] = u[i]/(sqrt(sum[j] u[j]^2) + 1e-6);\n"
                 "y[i] = l2(x)[i]; }", three, (double[]){1 / n, 2 / n, 4 / n}, 3);
    check_values("fn outside the cell", "fn l2(u)[i] = u[i]/(sqrt(sum[j] u[j]^2) + 1e-6);\n"
                 "cell f { input x[3]; output y[3]; z[i] = l2(x)[i]; y[i] = z[i]; }", three,
                 (double[]){1 / n, 2 / n, 4 / n}, 3);
    check_values("an open axis",
                 "fn l2(u)[i] = u[i]/(sqrt(sum[j] u[j]^2) + 1e-6);\n"
                 "cell f { input x[3]; output y[2, 2]; w[a:2, b:2] = x[a + b]; y[a, b] = l2(w[:, b])[a]; }",
                 three, (double[]){1 / m, 2 / q, 2 / m, 4 / q}, 4);
    check_values("scalar arguments", "fn mix(a, b) = a + 10*b; cell f { input x[3]; output y[3];\n"
                 "y[i] = mix(x[i]*2, mix(i, 1)); }", three, (double[]){102, 114, 128}, 3);
    check_values("fn of fn", "fn twice(u)[i] = 2*u[i]; fn four(u)[i] = twice(twice(u))[i];\n"
                 "cell f { input x[3]; output y[3]; y[i] = four(x)[i] + twice(x)[0]; }", three,
                 (double[]){6, 10, 18}, 3);
    check_values("block",
                 "fn centre(u)[i] { m = mean[j] u[j]; centre[i] = u[i] - m; }\n"
                 "cell f { input x[3]; output y[3]; y[i] = 3*centre(x)[i]; }",
                 three, (double[]){-4, -1, 5}, 3);
    check_values("the cell's names", "cell f { input x[3]; output y[3]; const k = 3; a[i] = x[i]*k;\n"
                 "fn plus(u) = u + a[0] + k; y[i] = plus(x[i]); }", three, (double[]){7, 8, 10}, 3);
}

static void check_repeat(void)
{
    check_values("repeat",
                 "cell f { input x[3]; output y[3]; repeat n:4 { carry A[3] = x[i]; b[i] = A[i] + n;\n"
                 "A'[i] = 2*b[i]; } y[i] = A[i]; }",
                 three, (double[]){38, 54, 86}, 3);
    check_values("no iterations", "cell f { input x[3]; output y[3]; repeat n:0 { carry A[3] = x[i];\n"
                 "A'[i] = 2*A[i]; } y[i] = A[i]; }", three, three, 3);
    check_values("two carries swap",
                 "cell f { input x[3]; output y[2]; repeat n:3 { carry a = x[0]; carry b = x[2];\n"
                 "a' = b; b' = a; } y[0] = a; y[1] = b; }",
                 three, (double[]){4, 1}, 2);
    check_values("a condition on n",
                 "cell f { input x[3]; output y; repeat n:3 { carry a = 0;\n"
                 "when n == 1 { k = 100; } else { k = 1; } a' = a + k*x[n]; } y = a; }",
                 three, (double[]){205}, 1);
}

static void check_state(void)
{
    double out[8], dout[8], x[] = {1, 2, 3, 4}, dx[] = {1, 0, 0, 0};
    Cell k = open_cell("cell f { input x; state s = 10; output y; s' = 2*s + x; y = s' + t; }", NULL, NULL);
    if (k.e && run(k.e, x, dx, 4, out, dout)) {
        double want[] = {21, 45, 93, 189}, slope[] = {1, 2, 4, 8};
        for (int i = 0; i < 4; i++) {
            report(out[i] == want[i], "a state", out[i], want[i]);
            report(dout[i] == slope[i], "a state's slope", dout[i], slope[i]);
        }
    }
    close_cell(k);
    double h0[] = {1, 2, 3};
    k = open_cell("cell f { param h0[3]; state h[3] = 2*h0[i]; output y; h'[i] = h[i]; y = h[2]; }", NULL,
                  NULL);
    double d0[] = {0, 0, 1};
    if (k.e && run(k.e, h0, d0, 1, out, dout)) {
        report(out[0] == 6, "a learned initial state", out[0], 6);
        report(dout[0] == 2, "its slope", dout[0], 2);
    }
    close_cell(k);
}

static void check_variants(void)
{
    const char *text =
        "cell f { input x; output y; option a = one | two; const k = 3; when a == two { z = k*x; }\n"
        "else { param p[2]; z = x; } y = z; }";
    double x = 5, y = 0;
    Cell k = open_cell(text, "a", "two");
    if (k.e)
        report(k.e->ntensors == 2 && run(k.e, &x, NULL, 1, &y, NULL) && y == 15, "option", y, 15);
    close_cell(k);
    k = open_cell(text, NULL, NULL);
    if (k.e)
        report(k.e->ntensors == 3 && eval_find(k.e, "p") != NULL, "default option", k.e->ntensors, 3);
    close_cell(k);
}

/* Broken cells must give a diagnostic or a message, never a value. */
static void check_refused(void)
{
    static const char *const texts[] = {
        "cell f { input x[3]; output y[3]; y[i] = a[i]; a[i] = y[i]; }",
        "cell f { input x[3]; output y[3]; y[i] = x[i + 1]; }",
        "cell f { input x[3]; output y[3]; y[i] = z[i]; }",
        "cell f { dim N; input x[N]; output y[N]; y[i] = x[i]; }",
        "cell f { input x[3]; output y[3]; y[i] = x[i, i]; }",
        "cell f { input x[3]; output y; y = sum[k] 1; }",
        "fn f(u) = f(u); cell g { input x[3]; output y; y = f(x[0]); }",
        "cell f { input x[100000, 100000]; output y; y = x[0, 0]; }",
        "cell f { input x[3]; state s; output y; y = x[0]; }",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        Compiler *c = compiler_new();
        Ast *ast = parse_source(c, source_add(c, "bad.cell", texts[i], strlen(texts[i])));
        Eval *e = eval_new(c, ast, NULL, NULL, 0);
        double out[3];
        report(!e || !run(e, three, NULL, 1, out, NULL), texts[i], 0, 0);
        compiler_free(c);
    }
}

/* What tests draw lies inside of the ranges of declarations, whatever the form of the case; integers take every number of
 * theirs; and states that are in reach are those after a run from the cell's own start. */
static void check_draws(void)
{
    Cell k = open_cell("cell f { const K = 2; input dt in (0, 1], u in (-inf, -K), v : f32 in [3, inf), w in [-1, 1], "
                  "id : i32 in (1, 4], at : i32 in [7, inf), z; param a[2] in [0.5, 2), c ~ const(-K * 3); "
                  "state n in (0, inf) = 1, s in [0, 1], P[i:2] in reach = i + 1, Q[2] in reach; output y; "
                  "n' = n + dt; s' = s; P'[i] = P[i] + 1; Q'[i] = 2 * P[i]; d = z * dt; "
                  "y = u[; t - 1] + d[; t - 1] + real(id + at) + v + w + a[0] + c + s + P[0] + Q[0]; }", NULL, NULL);
    static const struct { const char *name; double low, high; } ranges[] = {
        {"dt", 0, 1}, {"u", -INFINITY, -2}, {"v", 3, INFINITY}, {"w", -1, 1}, {"id", 1.5, 4.5}, {"at", 6.5, INFINITY},
        {"a", 0.5, 2}, {"n", 0, INFINITY}, {"s", 0, 1}, {"u_history", -INFINITY, -2}, {"c", -8, -4},
    };
    bool seen[5] = {false};
    for (int form = 0; k.e && form < 9; form++) {
        Case *one = case_random(k.e, 3, 40, (CaseState)(form / 3), (CaseInput)(form % 3), 3);
        for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
            EvalTensor *t = eval_find(k.e, ranges[i].name);
            const double *v = t ? one->value[t - k.e->tensors] : NULL;
            bool zero = form / 3 == CASE_STATE_ZERO;
            report(v || (t && t->kind == EV_STATE && form / 3 != CASE_STATE_RANDOM), ranges[i].name, form, 0);
            for (int64_t j = 0; v && j < case_count(one, t); j++) {
                bool inside = v[j] > ranges[i].low && v[j] < ranges[i].high;
                if (!inside && !(zero && i == 8 && v[j] == 0))
                    report(false, ranges[i].name, v[j], ranges[i].low);
                if (i == 4)
                    seen[(int)v[j]] = true;
            }
        }
        const double *p = one->value[eval_find(k.e, "P") - k.e->tensors], *q = one->value[eval_find(k.e, "Q") - k.e->tensors];
        const double *w = one->value[eval_find(k.e, "w") - k.e->tensors], *z = one->value[eval_find(k.e, "z") - k.e->tensors];
        report(form / 3 != CASE_STATE_RANDOM ? !p && !q : p[0] == 6 && p[1] == 7 && q[0] == 10 && q[5] == 12, "in reach", form, 0);
        report((w[5] == 0) == (form % 3 == CASE_INPUT_ZERO) && (z[5] == 0) == (form % 3 == CASE_INPUT_ZERO), "zero inputs", w[5], 0);
        const double *d = one->value[eval_find(k.e, "d_history") - k.e->tensors];
        report(form / 3 != CASE_STATE_RANDOM ? !d : isfinite(d[0]) && d[0] != 0, "history of a definition", form, 0);
    }
    report(!seen[0] && !seen[1] && seen[2] && seen[3] && seen[4], "integers of a range", 0, 0);
    close_cell(k);
}

int main(void)
{
    check_functions();
    check_nested();
    check_grad();
    check_slope_at_zero();
    check_kinks();
    check_indices();
    check_softmax();
    check_fns();
    check_repeat();
    check_state();
    check_variants();
    check_refused();
    check_draws();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
