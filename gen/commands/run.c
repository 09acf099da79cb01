/* run.c: `cellc run`: evaluates a spec and prints what came out. What comes in is a spec, sizes, and inputs
 * from a vector file or a seed; what goes out is a vector file: outputs, final states, any named value, and
 * with -o the inputs too, so that the file can be read back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/say.h"
#include "base/texts.h"
#include "case.h"
#include "commands.h"
#include "front/front.h"
#include "options.h"

static const CommandHelp run_help = {
    .name = "run",
    .arguments = "SPEC",
    .summary = "evaluate a spec and print outputs, final states and any value",
    .about = "The evaluator walks the spec in double precision; nothing is generated. Inputs come from a\n"
             "vector file or are random. The result is a vector file (see tests/vectors/README.md).",
    .examples = "  cellc run specs/e79.cell --dim N=4 --dim D=6 --batch 1 --steps 3\n"
                "  cellc run specs/lstm.cell --vectors tests/vectors/lstm.vec --print f\n"
                "  cellc run specs/e79.cell --dim N=4 --dim D=6 --print sr --print \"S'\" -o e79.vec\n",
    .compiles = true,
    .draws = true,
    .in_double = "what is run is the evaluator, in double",
    .computes = true,
};

typedef struct Run {
    const char *path, *vectors, *out;
    OptionList print;
    int64_t batch, steps, seed;
} Run;

static int fail(const char *path, const char *what, const char *detail)
{
    say(DIAG_ERROR, "run", "%s: %s%s%s", path, what, detail ? ": " : "", detail ? detail : "");
    return 1;
}

/* Do the passes of the compiler accept the spec? Their diagnostics are better than the evaluator's. */
static bool front_end_accepts(const Compiler *user, const char *path)
{
    Compiler *c = compiler_new();
    c->import_dir = user->import_dir;
    c->library_dir = user->library_dir;
    texts_share(c, user);
    c->reverse = user->reverse;
    c->lengths = user->lengths;
    c->cell = user->cell;
    for (int i = 0; i < user->dims.len; i++)
        vec_push(c->arena, &c->dims, user->dims.data[i]);
    for (int i = 0; i < user->sets.len; i++)
        vec_push(c->arena, &c->sets, user->sets.data[i]);
    for (int i = 0; i < user->types.len; i++)
        vec_push(c->arena, &c->types, user->types.data[i]);
    bool ok = front_end(c, path) != NULL && !c->errors;
    diag_print(c, stderr);
    compiler_free(c);
    return ok;
}

/* Sizes of the file become settings unless the user gave others; open dims get small sizes, each another. */
static void choose_dims(Compiler *c, const EvalOutline *o, const VecFile *f)
{
    for (int i = 0; i < o->nall; i++) {
        const char *name = o->all_dims[i];
        int64_t value;
        bool given = false, open = false;
        for (int k = 0; k < c->dims.len; k++)
            given = given || strcmp(c->dims.data[k].name, name) == 0;
        for (int k = 0; k < o->nopen; k++)
            open = open || strcmp(o->open_dims[k], name) == 0;
        if (given || !((f && vec_size(f, name, &value)) || open))
            continue;
        if (!f || !vec_size(f, name, &value))
            value = 4 + i;
        vec_push(c->arena, &c->dims, ((Setting){name, intern_f(c, "%lld", (long long)value), false}));
    }
}

static bool add(VecFile *out, const Case *k, const EvalTensor *t, VecKind kind, const char *name,
                const double *values)
{
    int64_t shape[EVAL_MAX_RANK + 2];
    int rank = case_shape(k, t, shape);
    VecTensor *v = vec_add(out, kind, name, rank, shape);
    if (v)
        memcpy(v->values, values, sizeof *values * v->count);
    return v != NULL;
}

/* Everything that the run read or wrote, in the file's order: inputs, params, states, outputs, final states,
 * values. */
static VecFile *collect(const Eval *e, const Case *k, bool inputs)
{
    static const VecKind read_as[] = {VK_INPUT, VK_PARAM, VK_STATE},
                         written_as[] = {VK_FINAL, VK_OUTPUT, VK_VALUE};
    VecFile *f = vec_new();
    bool ok =
        f && vec_add_comment(f, e->cell) && vec_add_size(f, "B", k->batch) && vec_add_size(f, "T", k->steps) &&
        (k->first == 0 || vec_add_size(f, "t0", k->first));
    for (int i = 0; ok && i < e->ndims; i++)
        ok = vec_add_size(f, e->dims[i].name, e->dims[i].value);
    for (int i = 0; ok && inputs && i < e->ntensors; i++)
        if (k->value[i])
            ok = add(f, k, &e->tensors[i], read_as[e->tensors[i].kind], e->tensors[i].name, k->value[i]);
    for (int kind = EV_STATE; ok && kind <= EV_WATCH; kind++)
        for (int i = 0; ok && i < e->ntensors; i++) {
            int order[] = {EV_OUTPUT, EV_STATE, EV_WATCH};
            if ((int)e->tensors[i].kind == order[kind - EV_STATE])
                ok = add(f, k, &e->tensors[i], written_as[e->tensors[i].kind - EV_STATE], e->tensors[i].name,
                         e->tensors[i].out);
        }
    if (!ok)
        vec_free(f);
    return ok ? f : NULL;
}

static int write_result(const Run *r, const Eval *e, const Case *k)
{
    VecFile *f = collect(e, k, r->out != NULL);
    FILE *out = r->out ? fopen(r->out, "w") : stdout;
    bool ok = f && out && vec_write(f, out);
    if (out && out != stdout)
        ok = fclose(out) == 0 && ok;
    vec_free(f);
    return ok ? 0 : fail(r->out ? r->out : r->path, "cannot write the result", strerror(errno));
}

static int run_eval(const Run *r, Compiler *c, Eval *e, VecFile *f)
{
    for (int i = 0; i < r->print.n; i++)
        if (eval_watch(e, r->print.items[i]) < 0)
            return fail(r->path, "there is no value of this name to print", r->print.items[i]);
    Case *k =
        f ? case_from_vec(e, f)
          : case_random(e, r->batch, r->steps, CASE_STATE_DEFAULT, CASE_INPUT_NORMAL, (uint64_t)r->seed);
    if (!k) {
        vec_print_error(f, r->vectors);
        return 1;
    }
    if (!eval_for_steps(e, k->first + k->steps))
        return fail(r->path, "it cannot be evaluated for so many steps", NULL);
    case_bind(k, e);
    for (int i = 0; i < e->ntensors; i++)
        if (e->tensors[i].kind >= EV_STATE)
            e->tensors[i].out =
                arena_alloc(c->arena, sizeof(double) * (size_t)(case_count(k, &e->tensors[i]) + 1));
    if (!eval_run(e, k->batch, k->steps, k->first)) {
        diag(c, DIAG_ERROR, e->run_error_span, "%s", e->run_error);
        diag_print(c, stderr);
        return 1;
    }
    return write_result(r, e, k);
}

static int run_spec(const Run *r, Compiler *c, VecFile *f)
{
    EvalOutline o;
    int file = source_load(c, r->path);
    Ast *ast = file >= 0 ? parse_source(c, file) : NULL;
    if (!ast || c->errors || !eval_outline(c, ast, NULL, &o)) {
        if (!c->errors)
            ast_cell(c, ast, NULL, true);
        diag_print(c, stderr);
        return 1;
    }
    EvalSize sizes[64];
    int n = f ? case_sizes(&o, f, sizes) : 1;
    if (!f)
        sizes[0] = (EvalSize){"history", r->steps > EVAL_ROOM ? r->steps : EVAL_ROOM};
    if (n < 0) {
        vec_print_error(f, r->vectors);
        return 1;
    }
    choose_dims(c, &o, f);
    if (!front_end_accepts(c, r->path))
        return 1;
    Eval *e = eval_new(c, ast, NULL, sizes, n);
    if (!e) {
        diag_print(c, stderr);
        if (f)
            case_sizes_refused(f, sizes, n);
        if (f)
            vec_print_error(f, r->vectors);
        return 1;
    }
    return run_eval(r, c, e, f);
}

int cmd_run(int argc, char **argv)
{
    Compiler *c = compiler_new();
    Run r = {.batch = 2, .steps = 3, .seed = 1};
    const char *operands[argc + 1];
    VecFile *f = NULL;
    const OptionSpec table[] = {
        {"--vectors", "FILE", OPT_STRING, &r.vectors,
         "take inputs, params, states and sizes from a vector file"},
        {"--print", "NAME", OPT_LIST, &r.print,
         "give this value at every step too; S' is a state's next value"},
        {"--batch", "B", OPT_INT, &r.batch, "sequences, without --vectors (2)"},
        {"--steps", "T", OPT_INT, &r.steps, "steps, without --vectors (3)"},
        {"--seed", "S", OPT_INT, &r.seed, "of random inputs and params (1)"},
        {"-o", "FILE", OPT_STRING, &r.out, "write a vector file that also holds what was read"},
        {NULL, NULL, OPT_FLAG, NULL, NULL},
    };
    int n, rc = options_parse(&run_help, c, argc, argv, table, operands, &n);
    if (rc < 0) {
        r.path = operands[0];
        if (r.vectors)
            f = vec_read(r.vectors);
        if (f && f->error[0]) {
            vec_print_error(f, r.vectors);
            rc = 1;
        } else {
            rc = run_spec(&r, c, f);
        }
    }
    vec_free(f);
    compiler_free(c);
    return rc;
}
