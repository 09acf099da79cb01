/* complex.c: the reference of complex.cell in float and in double against the table of complex.txt. In: the table's path;
 * both references are linked in. Out: a line for each failure, and the counts. A part of a value, or of a gradient, may
 * be off by 16 roundings of the whole, and by four of the smallest numbers: so those below the smallest normal one
 * count like others. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int f32_forward(const int64_t *sizes, void *const *args, void *reserve, int flags);
int f32_backward(const int64_t *sizes, void *const *args, void *reserve, int flags);
size_t f32_reserve_bytes(const int64_t *sizes);
int f64_forward(const int64_t *sizes, void *const *args, void *reserve, int flags);
int f64_backward(const int64_t *sizes, void *const *args, void *reserve, int flags);
size_t f64_reserve_bytes(const int64_t *sizes);

/* In the order of the cell's declarations. */
static const char *const functions[] = { "size",  "angle", "inverse", "quotient",  "root",
                                         "log_z", "exp_z", "square",  "minus_two", "product" };
enum { FUNCTIONS = sizeof functions / sizeof *functions, REAL = 2 }; /* the first two are real */

static int passed, failed;

typedef struct Numbers { float f[2]; double d[2]; } Numbers;

/* One of a function's inputs, its output or a gradient: memory for either type. */
static void *at(Numbers *n, int wide)
{
    return wide ? (void *)n->d : (void *)n->f;
}

static void set(Numbers *n, double re, double im)
{
    *n = (Numbers){ { (float)re, (float)im }, { re, im } };
}

static void judge(const char *line, const char *what, Numbers *got, int wide, double re, double im)
{
    double size = hypot(re, im), unit = wide ? DBL_EPSILON : FLT_EPSILON, least = wide ? 0x1p-1074 : 0x1p-149;
    double a = wide ? got->d[0] : got->f[0], b = wide ? got->d[1] : got->f[1];
    double limit = isinf(size) ? 32 * unit * fmax(fabs(re), fabs(im)) : 16 * unit * size + 4 * least;
    int ok = fabs(a - re) <= limit && fabs(b - im) <= limit;
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("FAILED %s is %a %a, not %a %a, of %s", what, a, b, re, im, line);
}

/* Forward, and backward from a cotangent of the real and of the imaginary part. */
static void run(const char *line, int wide, int function, const double *x)
{
    const int64_t sizes[] = { 1, 1, 1, 0 };
    Numbers in[FUNCTIONS], w, out[FUNCTIONS], seed[FUNCTIONS], grad[FUNCTIONS];
    void *forward[2 * FUNCTIONS + 1], *backward[3 * FUNCTIONS + 2], *reserve;
    set(&w, x[2], x[3]);
    for (int i = 0; i < FUNCTIONS; i++) {
        set(&in[i], i == function ? x[0] : 1, i == function ? x[1] : 1);
        set(&out[i], 0, 0);
        forward[i] = backward[i] = at(&in[i], wide);
        forward[FUNCTIONS + 1 + i] = at(&out[i], wide);
        backward[FUNCTIONS + 1 + i] = at(&seed[i], wide);
        backward[2 * FUNCTIONS + 1 + i] = at(&grad[i], wide);
    }
    forward[FUNCTIONS] = backward[FUNCTIONS] = at(&w, wide);
    backward[3 * FUNCTIONS + 1] = NULL;
    reserve = malloc((wide ? f64_reserve_bytes : f32_reserve_bytes)(sizes) + 1);
    if (!reserve || (wide ? f64_forward : f32_forward)(sizes, forward, reserve, 0))
        abort();
    judge(line, "the value", &out[function], wide, x[4], x[5]);
    for (int part = 0; part < (function < REAL ? 1 : 2); part++) {
        for (int i = 0; i < FUNCTIONS; i++) {
            set(&seed[i], i == function && !part, i == function && part);
            set(&grad[i], 0, 0);
        }
        if ((wide ? f64_backward : f32_backward)(sizes, backward, reserve, 0))
            abort();
        /* conj(f') times 1 or i */
        double re = x[6], im = function < REAL ? x[7] : -x[7];
        judge(line, part ? "the imaginary part's gradient" : "the gradient", &grad[function], wide, part ? -im : re,
              part ? re : im);
    }
    free(reserve);
}

int main(int argc, char **argv)
{
    char line[512], type[8], name[16], text[8][32];
    FILE *table = argc == 2 ? fopen(argv[1], "r") : NULL;
    while (table && fgets(line, sizeof line, table)) {
        double x[8];
        int function = 0;
        int n = sscanf(line, "%7s %15s %31s %31s %31s %31s %31s %31s %31s %31s", type, name, text[0], text[1], text[2],
                       text[3], text[4], text[5], text[6], text[7]);
        while (n == 10 && function < FUNCTIONS && strcmp(functions[function], name) != 0)
            function++;
        for (int i = 0; n == 10 && i < 8; i++)
            x[i] = strtod(text[i], NULL);
        if (n != 10 || function == FUNCTIONS) {
            printf("FAILED to read %s", line);
            failed++;
            continue;
        }
        run(line, strcmp(type, "f64") == 0, function, x);
    }
    if (table)
        fclose(table);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0 || passed == 0;
}
