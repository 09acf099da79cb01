/* generate.c: the table of what can be generated, writing of files, and `cellc emit`. In: a spec and
 * settings. Out: generated text, printed or written. Guaranteed: nothing is written unless the spec
 * compiles. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/say.h"
#include "commands.h"
#include "emit/emit.h"
#include "explain.h"
#include "generate.h"
#include "launch/interface.h"
#include "options.h"
#include "pipeline.h"
#include "plan/plan.h"
#include "reference/reference.h"
#include "tune.h"

const Emitter emitters[] = { { "header", ".h", GEN_ALWAYS, emit_header, SIDE_NONE },
                             { "c", "_ref.c", GEN_ALWAYS, emit_c, SIDE_NONE },
                             { "host", ".c", GEN_HOST, emit_host, SIDE_NONE },
                             { "plan", ".c", GEN_CUDA, NULL, SIDE_PLAN },
                             { "cuda", ".cu", GEN_CUDA, NULL, SIDE_KERNELS },
                             { "cpu", "_cpu.c", GEN_CPU, NULL, SIDE_CPU },
                             { "manifest", ".json", GEN_ALWAYS, emit_manifest, SIDE_NONE },
                             { "ir", NULL, GEN_ALWAYS, ir_print, SIDE_NONE },
                             { NULL, NULL, GEN_ALWAYS, NULL, SIDE_NONE } };

static const CommandHelp help = {
    .name = "emit",
    .arguments = "SPEC",
    .summary = "print what build would generate, or write it to a directory",
    .about = "KIND is one of\n"
             "  c         the reference: forward, backward and step in plain C (the default)\n"
             "  cuda      the kernels\n"
             "  header    the C interface of the library\n"
             "  host      the interface's functions, for a library without kernels\n"
             "  plan      the same for a library with kernels: launch plans, then the functions\n"
             "  cpu       the kernels for the CPU, with their launch plans\n"
             "  manifest  what bindings read: tensors, shapes, options\n"
             "  ir        the IR with the adjoint, as the reference has it",
    .examples = "  cellc emit specs/e79.cell                      the reference C\n"
                "  cellc emit specs/e79.cell --kind header\n"
                "  cellc emit specs/e79.cell -o out         every file\n"
                "  cellc emit specs/e79.cell --dump-after differentiate\n",
    .compiles = true,
};

/* A schedule that was measured once and that this compiler cannot plan any more is none. */
static bool plan_kernels(Generated *g, const Module *lowered)
{
    Compiler *c = g->c;
    int said = c->diags.len;
    g->plan = cuda_plan(lowered, g->m->name);
    if (!g->plan && c->is_tuned) {
        const char *why = "its kernels do not compile";
        for (int i = c->diags.len - 1; i >= said; i--)
            why = c->diags.data[i].level == DIAG_ERROR ? c->diags.data[i].text : why;
        c->diags.len = said;
        c->errors = 0;
        c->is_tuned = false;
        schedule_read(c, "auto");
        diag(c, DIAG_WARNING, (Span){ .file = -1 }, "%s cannot be planned any more: %s; run `cellc tune` again", g->tuned, why);
        g->tuned = NULL;
        g->plan = cuda_plan(lowered, g->m->name);
    }
    if (g->plan && g->tuned)
        buf_f(&g->plan->reasons, "%s\n", g->tuned);
    return g->plan != NULL;
}

bool generate_open(Generated *g, Compiler *c, const char *spec, const char *suffix, bool device)
{
    *g = (Generated){ .c = c };
    g->kernels.arena = g->tables.arena = g->cpu_text.arena = c->arena;
    Module *lowered = compile(c, spec, front_passes);
    g->lowered = lowered;
    g->m = lowered ? compile_lowered(lowered, reference_passes) : NULL;
    if (!g->m || c->errors)
        return false;
    const char *cell = g->m->name;
    c->program = tune_program(g->m);
    g->tuned = device ? tune_take(c, g->m) : NULL;
    if (c->errors)
        return false;
    if (suffix)
        g->m->name = intern_f(c, "%s_%s", cell, suffix);
    if (device && !plan_kernels(g, lowered))
        return false;
    g->m->cell = cell;
    if (g->plan)
        g->plan->m->cell = cell;
    return !c->errors;
}

bool generate_cpu(Generated *g)
{
    const CpuChoice x = cpu_choice(g->lowered, g->m->name);
    g->cpu = x.plan;
    if (g->cpu) {
        g->cpu->how = explain_cpu(g->lowered, &x);
        g->cpu->m->cell = g->m->cell;
    }
    return g->cpu != NULL;
}

bool generate_kernels(Generated *g)
{
    if (g->plan && !g->kernels.data)
        emit_cuda(g->plan, &g->kernels, &g->tables);
    if (g->cpu && !g->cpu_text.data)
        emit_cpu(g->cpu, g->m->name, &g->cpu_text);
    return !g->c->errors;
}

bool generate_takes(const Generated *g, const Emitter *e)
{
    if (e->when == GEN_CPU)
        return g->cpu != NULL;
    return e->suffix && (e->when == GEN_ALWAYS || (e->when == GEN_CUDA) == (g->plan != NULL));
}

void generate_text(Generated *g, const Emitter *e, Buf *out)
{
    if (e->emit) {
        e->emit(g->m, out);
        return;
    }
    generate_kernels(g);
    if (e->side == SIDE_CPU) {
        buf_f(out, "%s", g->cpu_text.data ? g->cpu_text.data : "");
        return;
    }
    buf_wrapped(out, e->side == SIDE_KERNELS ? &g->kernels : &g->tables);
}

bool make_dirs(Compiler *c, const char *path)
{
    for (const char *p = path; *p; p++) {
        if (p[1] != '/' && p[1])
            continue;
        const char *part = intern_n(c, path, (size_t)(p + 1 - path));
        if (mkdir(part, 0777) != 0 && errno != EEXIST && errno != EISDIR) {
            say(DIAG_ERROR, NULL, "cannot make the directory %s: %s", part, strerror(errno));
            return false;
        }
    }
    return true;
}

bool write_text(const char *path, const Buf *text)
{
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(text->data, 1, text->len, f) == text->len;
    if (f)
        ok &= fclose(f) == 0;
    if (!ok)
        say(DIAG_ERROR, NULL, "cannot write %s: %s", path, strerror(errno));
    else
        print_shown(path);
    return ok;
}

bool generate_files(Generated *g, const char *dir)
{
    if (!generate_kernels(g)) {
        say(DIAG_ERROR, NULL, "%s", g->c->diags.data[g->c->diags.len - 1].text);
        return false;
    }
    if (!make_dirs(g->c, dir))
        return false;
    if (g->tuned)
        say(DIAG_NOTE, NULL, "%s: %s", g->m->name, g->tuned);
    for (const Emitter *e = emitters; e->kind; e++) {
        Buf out = { .arena = g->c->arena };
        if (!generate_takes(g, e))
            continue;
        generate_text(g, e, &out);
        const char *path = intern_f(g->c, "%s/%s%s", dir, g->m->name, e->suffix);
        if (!write_text(path, &out))
            return false;
    }
    return true;
}

static const Emitter *find_emitter(const char *kind)
{
    for (const Emitter *e = emitters; e->kind; e++)
        if (strcmp(e->kind, kind) == 0)
            return e;
    return NULL;
}

static int emit_spec(Compiler *c, const char *spec, const Emitter *e, const char *dir, bool cuda)
{
    Generated g;
    int rc = 1;
    bool device = dir ? cuda : e->side == SIDE_KERNELS || e->side == SIDE_PLAN;
    bool cpu = !dir && e->side == SIDE_CPU;
    bool ok = generate_open(&g, c, spec, NULL, device);
    if (ok && cpu && !generate_cpu(&g))
        diag(c, DIAG_ERROR, g.m->span, "cell %s has no kernels for the CPU", g.m->name);
    ok = ok && !c->errors && generate_kernels(&g);
    diag_print(c, stderr);
    if (ok && dir) {
        rc = !generate_files(&g, dir);
    } else if (ok) {
        Buf out = { .arena = c->arena };
        generate_text(&g, e, &out);
        rc = fwrite(out.data, 1, out.len, stdout) != out.len;
    }
    return rc;
}

int cmd_emit(int argc, char **argv)
{
    Compiler *c = compiler_new();
    const char *kind = "c", *dir = NULL, *operands[argc + 1];
    bool no_cuda = false;
    const OptionSpec table[] = {
        { "--kind", "KIND", OPT_STRING, &kind, "what to print" },
        { "-o", "DIR", OPT_STRING, &dir, "write all files there instead" },
        { "--archs", "LIST", OPT_STRING, &c->archs, "GPUs it is for, e.g. \"80 90\" (those with most memory)" },
        { "--no-cuda", NULL, OPT_FLAG, &no_cuda, "with -o: the files of a library without kernels" },
        { NULL, NULL, OPT_FLAG, NULL, NULL }
    };
    int n, rc = options_parse(&help, c, argc, argv, table, operands, &n);
    const Emitter *e = find_emitter(kind);
    if (rc < 0 && !e)
        rc = usage_error(&help,
                         "there is no kind '%s'; there are c, cuda, header, host, plan, cpu, manifest "
                         "and ir",
                         kind);
    if (rc < 0 && c->archs)
        rc = archs_check(&help, c->archs);
    if (rc < 0 && (c->schedule || c->tuned) && (dir ? no_cuda : !e->side))
        rc = usage_error(&help, "--%s concerns kernels only, and %s has none; --kind cuda shows them",
                         c->tuned ? "tuned" : "schedule", dir ? "a library with --no-cuda" : intern_f(c, "--kind %s", kind));
    c->tuned_dir = dir;
    if (rc < 0)
        rc = emit_spec(c, operands[0], e, dir, !no_cuda);
    compiler_free(c);
    return rc;
}
