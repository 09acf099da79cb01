/* test_vectors.c: the evaluator against vectors that were made elsewhere. For each file: outputs and final
 * states, and every gradient by <gradient, v> = <cotangents, tangents along v>; once with the spec, once with
 * the equations that the file's own header gives, turned into a spec line by line. Then the reader against
 * broken files. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/case.h"

static int passed, failed;

static void report(bool ok, const char *what, const char *detail, double value)
{
    if (ok) {
        passed++;
        return;
    }
    failed++;
    printf("failed: %s: %s (%g)\n", what, detail, value);
}

/* rms(x - ref) / rms(ref), absolute where the reference is zero; NaN when anything is. */
static double rms_error(const double *x, const double *ref, size_t n)
{
    double diff = 0, base = 0;
    for (size_t i = 0; i < n; i++) {
        diff += (x[i] - ref[i]) * (x[i] - ref[i]);
        base += ref[i] * ref[i];
    }
    return base > 0 ? sqrt(diff / base) : sqrt(diff / (double)(n ? n : 1));
}

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void check_forward(const char *name, Eval *e, const Case *k, const VecFile *f)
{
    for (int i = 0; i < e->ntensors; i++) {
        EvalTensor *t = &e->tensors[i];
        if (t->kind == EV_OUTPUT || t->kind == EV_STATE)
            t->out = calloc((size_t)case_count(k, t) + 1, sizeof *t->out);
    }
    if (!eval_run(e, k->batch, k->steps, 0)) {
        report(false, name, e->run_error, 0);
        return;
    }
    for (int i = 0; i < e->ntensors; i++) {
        EvalTensor *t = &e->tensors[i];
        if (!t->out)
            continue;
        VecTensor *v = vec_find(f, t->kind == EV_OUTPUT ? VK_OUTPUT : VK_FINAL, t->name);
        double error = v ? rms_error(t->out, v->values, v->count) : NAN;
        report(error < 1e-13, name, t->name, error);
        free(t->out);
        t->out = NULL;
    }
}

/* The derivative of L along v, which is not zero in tensor i only. */
static double along(Eval *e, const Case *k, int i, const double *v)
{
    double sum = 0;
    e->tensors[i].tangent[1] = v;
    for (int j = 0; j < e->ntensors; j++)
        if (k->cotangent[j])
            e->tensors[j].out_tangent[1] = calloc((size_t)case_count(k, &e->tensors[j]) + 1, sizeof(double));
    if (!eval_run(e, k->batch, k->steps, 0))
        sum = NAN;
    for (int j = 0; j < e->ntensors; j++) {
        if (!k->cotangent[j])
            continue;
        sum += dot(k->cotangent[j], e->tensors[j].out_tangent[1], (size_t)case_count(k, &e->tensors[j]));
        free(e->tensors[j].out_tangent[1]);
        e->tensors[j].out_tangent[1] = NULL;
    }
    e->tensors[i].tangent[1] = NULL;
    return sum;
}

static void check_gradients(const char *name, Eval *e, const Case *k, const VecFile *f)
{
    Random r = {7};
    for (int i = 0; i < e->ntensors; i++) {
        const EvalTensor *t = &e->tensors[i];
        VecKind kind = t->kind == EV_INPUT ? VK_DINPUT : t->kind == EV_PARAM ? VK_DPARAM : VK_DSTATE;
        VecTensor *g = t->kind == EV_OUTPUT ? NULL : vec_find(f, kind, t->name);
        if (t->kind == EV_OUTPUT)
            continue;
        if (!g) {
            report(false, name, "no gradient in the file", 0);
            continue;
        }
        double *v = malloc(sizeof *v * g->count), scale = 0;
        for (size_t j = 0; j < g->count; j++) {
            v[j] = random_normal(&r);
            scale += fabs(v[j] * g->values[j]);
        }
        double error = fabs(along(e, k, i, v) - dot(g->values, v, g->count)) / scale;
        report(error < 1e-12, name, t->name, error);
        free(v);
    }
}

static void check_cell(const char *name, Compiler *c, int file, VecFile *f)
{
    Ast *ast = file >= 0 ? parse_source(c, file) : NULL;
    EvalOutline o;
    EvalSize sizes[64];
    const char *why = "the spec cannot be read";
    Case *k = NULL;
    if (ast && c->errors == 0 && eval_outline(c, ast, NULL, &o)) {
        Eval *e = eval_new(c, ast, NULL, sizes, case_sizes(&o, f, sizes));
        why = "the evaluator refuses it";
        k = e ? case_from_vec(e, f) : NULL;
        why = e && !k ? f->error : why;
        if (k) {
            case_bind(k, e);
            check_forward(name, e, k, f);
            check_gradients(name, e, k, f);
        }
    }
    if (!k)
        report(false, name, why, 0);
    diag_print(c, stdout);
}

/* The equations in a file's header, as a spec: each line that is indented by three spaces ends in ';'. */
static char *header_spec(const VecFile *f)
{
    size_t size = f->comment_len * 2 + 4096;
    char *text = calloc(1, size), *out = text + sprintf(text, "cell header {\n");
    for (int i = 0; i < f->nsizes; i++)
        if (strcmp(f->sizes[i].name, "B") != 0 && strcmp(f->sizes[i].name, "T") != 0)
            out += sprintf(out, "dim %s;\n", f->sizes[i].name);
    for (const char *line = f->comment; *line; line = strchr(line, '\n') + 1) {
        if (strncmp(line, "#   ", 4) != 0)
            continue;
        const char *end = strchr(line, '\n'), *note = strstr(line, "//");
        if (note && note < end)
            end = note;
        out += sprintf(out, "%.*s;\n", (int)(end - line - 4), line + 4);
    }
    strcpy(out, "}\n");
    return text;
}

static void check_spec(const char *vec, const char *spec, const char *bias, VecFile *f)
{
    char path[256], name[600];
    Compiler *c = compiler_new();
    if (bias)
        vec_push(c->arena, &c->sets, ((Setting){"bias", bias, false}));
    snprintf(path, sizeof path, "specs/%s.cell", spec);
    snprintf(name, sizeof name, "%s with %s", vec, path);
    check_cell(name, c, source_load(c, path), f);
    compiler_free(c);
}

static void check_file(const char *vec, const char *spec, const char *bias)
{
    char path[256], name[256];
    snprintf(path, sizeof path, "tests/vectors/%s.vec", vec);
    VecFile *f = vec_read(path);
    report(f->error[0] == 0, path, f->error, f->error_place.line);

    if (spec)
        check_spec(vec, spec, bias, f);
    Compiler *c = compiler_new();
    char *text = header_spec(f);
    snprintf(name, sizeof name, "%s with its header", vec);
    check_cell(name, c, source_add(c, vec, text, strlen(text)), f);
    compiler_free(c);
    free(text);
    vec_free(f);
}

static VecFile *read_text(const char *text, size_t n)
{
    FILE *in = fmemopen((void *)text, n, "rb");
    VecFile *f = vec_read_stream(in);
    fclose(in);
    return f;
}

static void check_broken(const char *text, int line, int column, const char *error)
{
    VecFile *f = read_text(text, strlen(text));
    VecPlace at = f->error_place;
    bool same = at.line == line && at.column == column && strcmp(f->error, error) == 0;
    if (!same)
        printf("%d:%d: %s\n", at.line, at.column, f->error);
    report(same, "a broken file", error, line);
    vec_free(f);
}

static void check_reader(void)
{
    check_broken("tensor input x 2\n1 2\n", 0, 0, "");
    check_broken("tensor input x\n1\n", 0, 0, "");
    check_broken("tensor input x 0 5\n", 0, 0, "");
    check_broken("# sizes: B=2 T\n", 1, 14, "expected NAME=SIZE in the sizes, found 'T'");
    check_broken("# sizes: B=2 T=x\n", 1, 14, "expected a whole number as the size of 'T'");
    check_broken("# sizes: B=2 T=99999999999999999999\n", 1, 14, "this size is too large: 'T'");
    check_broken("# sizes: B=2 B=2\n", 1, 14, "this size is given twice: 'B'");
    check_broken("#\n1 2\n", 2, 1, "expected 'tensor KIND NAME SIZES', found '1'");
    check_broken("tensor inptu x 2\n", 1, 8, "unknown kind of tensor 'inptu'");
    check_broken("tensor input\n", 1, 1, "the tensor's name is missing");
    check_broken("tensor input x -1\n", 1, 16, "expected a size in the tensor's header, found '-1'");
    check_broken("tensor input x 3\n1 2\n", 3, 1, "the file ends after 2 of 3 values of 'x'");
    check_broken("tensor input x 3\n1 2 x\n", 2, 5, "value 2 of x is not a number: 'x'");
    check_broken("tensor input x 1\n1\ntensor input x 1\n1\n", 3, 14, "this tensor is given twice: 'x'");
    check_broken("tensor input x 1\n1 2\n", 2, 3, "expected 'tensor KIND NAME SIZES', found '2'");
    check_broken("tensor input x 4000000000 4000000000 4000000000\n1\n", 1, 14,
                 "the name or the sizes of this tensor are too large: 'x'");
    check_broken("tensor input x 4000000000 400000000\n1\n", 3, 1,
                 "the file ends after 1 of 1600000000000000000 values of 'x'");
}

/* What is written must be read back to the same bits, and a changed byte must never crash the reader. */
static void check_round_trip(void)
{
    VecFile *f = vec_read("tests/vectors/e88.vec");
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    vec_write(f, out);
    fclose(out);
    VecFile *g = read_text(text, n);
    bool same = f->ntensors == g->ntensors && g->error[0] == 0;
    for (int i = 0; same && i < f->ntensors; i++)
        same = f->tensors[i].count == g->tensors[i].count &&
               memcmp(f->tensors[i].values, g->tensors[i].values, sizeof(double) * f->tensors[i].count) == 0;
    report(same, "round trip", "e88.vec", 0);
    vec_free(g);
    Random r = {3};
    for (int i = 0; i < 300; i++) {
        size_t at = (size_t)random_below(&r, i % 2 ? 200 : (int64_t)n);
        char old = text[at];
        text[at] = (char)random_bits(&r);
        vec_free(read_text(text, n));
        text[at] = old;
    }
    report(true, "changed bytes", "", 0);
    free(text);
    vec_free(f);
}

int main(void)
{
    static const char *const cells[][3] = {
        {"e79_fixed", "e79", "fixed"},
        {"e79_none", "e79", "none"},
        {"e79_input", "e79", "input"},
        {"e79_input_T1", "e79", "input"},
        {"e79_input_T2", "e79", "input"},
        {"e0", "e0", NULL},
        {"e1", "e1", NULL},
        {"e75_multihead", "e75", NULL},
        {"e88", "e88", NULL},
        {"gated_delta", "gated_delta", NULL},
        {"gru", "gru", NULL},
        {"lstm", "lstm", NULL},
        {"mingru", "mingru", NULL},
        {"s5", "s5", NULL},
        {"e2", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        check_file(cells[i][0], cells[i][1], cells[i][2]);
    check_reader();
    check_round_trip();
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
