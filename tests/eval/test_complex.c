/* test_complex.c: complex values in the evaluator against C's <complex.h>: every function and operator in all four
 * quadrants and on the axes, its derivative in a random direction against central differences of the C function,
 * and what is promised at 0. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/case.h"

#include <complex.h>              /* last, as it makes a keyword of a member of ours */

static int passed, failed;

static void report(bool ok, const char *what, complex double z, complex double got, complex double want)
{
    if (ok) {
        passed++;
        return;
    }
    failed++;
    printf("failed: %s at %g%+gi: got %.17g%+.17gi, want %.17g%+.17gi\n", what, creal(z), cimag(z), creal(got), cimag(got),
           creal(want), cimag(want));
}

typedef complex double (*Function)(complex double z, complex double w);

static complex double f_first(complex double z, complex double w) { return (void)w, z; }
static complex double f_add(complex double z, complex double w) { return z + w; }
static complex double f_sub(complex double z, complex double w) { return z - w; }
static complex double f_mul(complex double z, complex double w) { return z * w; }
static complex double f_div(complex double z, complex double w) { return z / w; }
static complex double f_neg(complex double z, complex double w) { return (void)w, -z; }
static complex double f_five(complex double z, complex double w) { return (void)w, cpow(z, 5); }
static complex double f_minus_two(complex double z, complex double w) { return (void)w, 1 / (z * z); }
static complex double f_one(complex double z, complex double w) { return (void)w, (void)z, 1; }
static complex double f_exp(complex double z, complex double w) { return (void)w, cexp(z); }
static complex double f_log(complex double z, complex double w) { return (void)w, clog(z); }
static complex double f_sqrt(complex double z, complex double w) { return (void)w, csqrt(z); }
static complex double f_conj(complex double z, complex double w) { return (void)w, conj(z); }
static complex double f_re(complex double z, complex double w) { return (void)w, creal(z); }
static complex double f_im(complex double z, complex double w) { return (void)w, cimag(z); }
static complex double f_abs(complex double z, complex double w) { return (void)w, cabs(z); }
static complex double f_arg(complex double z, complex double w) { return (void)w, carg(z); }
static complex double f_cis(complex double z, complex double w) { return (void)w, cexp(I * creal(z)); }
static complex double f_parts(complex double z, complex double w) { return creal(z) + I * cimag(w); }
static complex double f_real_times(complex double z, complex double w) { return creal(z) * w; }
static complex double f_over_real(complex double z, complex double w) { return z / creal(w); }

static const struct { const char *text; Function f; } functions[] = {
    {"z + w", f_add}, {"z - w", f_sub}, {"z * w", f_mul}, {"z / w", f_div}, {"-z", f_neg}, {"z^5", f_five},
    {"z^-2", f_minus_two}, {"z^0", f_one}, {"exp(z)", f_exp}, {"log(z)", f_log}, {"sqrt(z)", f_sqrt},
    {"conj(z)", f_conj}, {"re(z)", f_re}, {"im(z)", f_im}, {"abs(z)", f_abs}, {"arg(z)", f_arg}, {"cis(re(z))", f_cis},
    {"complex(re(z), im(w))", f_parts}, {"re(z) * w", f_real_times}, {"z / re(w)", f_over_real},
    {"(z + w) - w", f_first},
};

static const double points[][2] = {
    {0.7, 0.4}, {-1.3, 0.6}, {-0.2, -1.1}, {1.9, -0.3}, {1.5, 0}, {0, 0.8}, {0, -2.5}, {30, -0.01}, {-30, 0.01},
};

/* Values and one direction, at one point. */
static void check_at(Eval *e, const char *text, Function f, complex double z, complex double w)
{
    double zv[2] = {creal(z), cimag(z)}, wv[2] = {creal(w), cimag(w)}, dz[2] = {0.8, -0.6}, dw[2] = {-0.5, 0.9};
    double out[2] = {0}, dout[2] = {0}, h = 1e-4;
    complex double a = dz[0] + I * dz[1], b = dw[0] + I * dw[1], want = f(z, w);
    e->tensors[0].value = zv;
    e->tensors[1].value = wv;
    e->tensors[0].tangent[0] = dz;
    e->tensors[1].tangent[0] = dw;
    EvalTensor *y = eval_find(e, "y");
    y->out = out;
    y->out_tangent[0] = dout;
    if (!eval_run(e, 1, 1, 0)) {
        report(false, e->run_error, z, 0, 0);
        return;
    }
    complex double got = out[0] + I * out[1];
    report(cabs(got - want) <= 1e-14 * (1 + cabs(want)), text, z, got, want);
    if (cabs(f(z - h * a, w) - f(z + h * a, w)) > 1)
        return;                       /* across the cut */
    /* Of fourth order: what is left is below h^4 times the fifth derivative, and roundings of the values over h. */
    complex double slope = (8 * (f(z + h * a, w + h * b) - f(z - h * a, w - h * b)) -
                            (f(z + 2 * h * a, w + 2 * h * b) - f(z - 2 * h * a, w - 2 * h * b))) / (12 * h);
    got = dout[0] + I * dout[1];
    report(cabs(got - slope) <= 1e-9 * (1 + cabs(slope) + cabs(want)), text, z, got, slope);
}

static Eval *open_cell(Compiler *c, const char *value)
{
    const char *text = intern_f(c, "cell c { input z : complex, w : c128; output y : c64; y = %s; }\n", value);
    Ast *ast = parse_source(c, source_add(c, "test.cell", text, strlen(text)));
    Eval *e = c->errors ? NULL : eval_new(c, ast, NULL, NULL, 0);
    if (!e) {
        diag_print(c, stdout);
        report(false, value, 0, 0, 0);
    }
    return e;
}

static void check_function(const char *text, Function f)
{
    Compiler *c = compiler_new();
    Eval *e = open_cell(c, text);
    int n = sizeof points / sizeof *points;
    for (int i = 0; e && i < n; i++)
        for (int k = 0; k < 4; k++)
            check_at(e, text, f, points[i][0] + I * points[i][1], points[k][0] + I * points[k][1]);
    compiler_free(c);
}

/* Derivatives at 0: 0 where there is none, as for real numbers. */
static void check_zero(const char *text, complex double want)
{
    Compiler *c = compiler_new();
    Eval *e = open_cell(c, text);
    double zero[2] = {0}, one[2] = {1, 1}, out[2] = {0}, dout[2] = {NAN, NAN};
    if (e) {
        e->tensors[0].value = zero;
        e->tensors[1].value = one;
        e->tensors[0].tangent[0] = one;
        eval_find(e, "y")->out = out;
        eval_find(e, "y")->out_tangent[0] = dout;
        bool ok = eval_run(e, 1, 1, 0) && out[0] == creal(want) && out[1] == cimag(want) && dout[0] == 0 && dout[1] == 0;
        report(ok, text, 0, dout[0] + I * dout[1], 0);
    }
    compiler_free(c);
}

int main(void)
{
    int n = sizeof functions / sizeof *functions;
    for (int i = 0; i < n; i++)
        check_function(functions[i].text, functions[i].f);
    check_zero("abs(z)", 0);
    check_zero("arg(z)", 0);
    check_zero("sqrt(z)", 0);
    check_zero("stop(z) + w", 1 + I);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
