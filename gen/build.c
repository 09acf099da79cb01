/* build.c: `cellc emit` and `cellc build`. In: a spec and settings. Out: generated text, and with build the library
 * compiled from it. Guaranteed: nothing is written unless the spec compiles; what could not be built (no nvcc) is said. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"
#include "emit.h"
#include "home.h"
#include "options.h"
#include "process.h"

/* What can be generated. The text of a kind is a function of the module that its passes give. */
typedef struct Emitter {
    const char *kind;
    const char *suffix;           /* of the file: NAME + suffix; NULL: printed only */
    const Pass *passes;
    void (*emit)(const Module *m, Buf *out);
    const char *what;
} Emitter;

static const Emitter emitters[] = {
    { "header", ".h", reference_passes, emit_header, "the C interface of the library" },
    { "c", "_ref.c", reference_passes, emit_c, "the reference: forward, backward and step in plain C" },
    { "host", ".c", reference_passes, emit_host, "the interface's functions, over the runtime" },
    { "manifest", ".json", reference_passes, emit_manifest, "what bindings read: tensors, shapes, options" },
    { "ir", NULL, reference_passes, ir_print, "the IR with the adjoint, as the reference has it" },
};
enum { N_EMITTERS = sizeof emitters / sizeof *emitters };

static const CommandHelp emit_help = {
    .name = "emit",
    .arguments = "SPEC",
    .summary = "print what build would generate, or write it to a directory",
    .about = "KIND is one of c (the default), header, host, manifest, ir.",
    .examples = "  cellc emit specs/e79.cell                      the reference C\n"
                "  cellc emit specs/e79.cell --kind header\n"
                "  cellc emit specs/e79.cell -o generated         every file\n"
                "  cellc emit specs/e79.cell --dump-after differentiate\n",
    .compiles = true,
};

static const CommandHelp build_help = {
    .name = "build",
    .arguments = "SPEC",
    .summary = "compile a spec to a library with a C header and a manifest",
    .about = "Writes NAME.h, NAME_ref.c, NAME.c, NAME.json and libNAME.so. The library holds the runtime as well, so that\n"
             "it is all a program needs to link against. CC says which C compiler to use (cc).",
    .examples = "  cellc build specs/e79.cell\n"
                "  cellc build specs/e79.cell --dim N=32 --set bias=input --dtype bf16 -o generated\n"
                "  cc -Igenerated -Iruntime main.c -Lgenerated -le79 -o main\n",
    .compiles = true,
};

static const Emitter *find_emitter(const char *kind)
{
    for (int i = 0; i < N_EMITTERS; i++)
        if (strcmp(emitters[i].kind, kind) == 0)
            return &emitters[i];
    return NULL;
}

static bool make_dirs(Compiler *c, const char *path)
{
    for (const char *p = path; *p; p++) {
        if (p[1] != '/' && p[1])
            continue;
        const char *part = intern_n(c, path, (size_t)(p + 1 - path));
        if (mkdir(part, 0777) != 0 && errno != EEXIST && errno != EISDIR) {
            fprintf(stderr, "cellc: cannot make the directory %s: %s\n", part, strerror(errno));
            return false;
        }
    }
    return true;
}

static bool write_file(const char *path, const Buf *text)
{
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(text->data, 1, text->len, f) == text->len;
    if (f)
        ok &= fclose(f) == 0;
    if (!ok)
        fprintf(stderr, "cellc: cannot write %s: %s\n", path, strerror(errno));
    return ok;
}

/* Writes every file of the module to `dir`. */
static bool write_all(Compiler *c, const Module *m, const char *dir)
{
    if (!make_dirs(c, dir))
        return false;
    for (int i = 0; i < N_EMITTERS; i++) {
        Buf out = { .arena = c->arena };
        const char *path;
        if (!emitters[i].suffix)
            continue;
        emitters[i].emit(m, &out);
        path = intern_f(c, "%s/%s%s", dir, m->name, emitters[i].suffix);
        if (!write_file(path, &out))
            return false;
        printf("%s\n", path);
    }
    return true;
}

int cmd_emit(int argc, char **argv)
{
    Compiler *c = compiler_new();
    const char *kind = "c", *dir = NULL, *operands[argc + 1];
    const OptionSpec table[] = {
        { "--kind", "KIND", OPT_STRING, &kind, "what to print" },
        { "-o", "DIR", OPT_STRING, &dir, "write all files there instead" },
        { NULL, NULL, OPT_FLAG, NULL, NULL }
    };
    bool dumped = false;
    int n, rc = options_parse(&emit_help, c, argc, argv, table, operands, &n);
    const Emitter *e = find_emitter(kind);
    if (rc < 0 && !e)
        rc = usage_error(&emit_help, "there is no kind '%s'", kind);
    if (rc < 0) {
        Module *m = compile(c, operands[0], e->passes, &dumped);
        diag_print(c, stderr);
        rc = m || dumped ? c->errors > 0 : 1;
        if (m && dir) {
            rc = !write_all(c, m, dir);
        } else if (m) {
            Buf out = { .arena = c->arena };
            e->emit(m, &out);
            fwrite(out.data, 1, out.len, stdout);
        }
    }
    compiler_free(c);
    return rc;
}

/* ---- build */

typedef struct Build {
    Compiler *c;
    const Module *m;
    const char *dir;              /* of the output */
    const char *objects;          /* a temporary directory */
    const char *include, *lib;    /* of the runtime */
    bool verbose;
} Build;

static const char *c_compiler(void)
{
    const char *cc = getenv("CC");
    return cc && *cc ? cc : "cc";
}

/* One generated C file to an object; its path, or NULL. */
static const char *compile_c(Build *b, const char *suffix)
{
    Compiler *c = b->c;
    Words w = { 0 };
    const char *object = intern_f(c, "%s/%s%s.o", b->objects, b->m->name, suffix);
    words_split(c, &w, c_compiler());
    words_split(c, &w, "-std=c11 -O3 -fPIC -ffp-contract=off -fno-math-errno");
    words_split(c, &w, getenv("CFLAGS"));
    words_add(&w, intern_f(c, "-I%s", b->include));
    words_add(&w, intern_f(c, "-I%s", b->dir));
    words_add(&w, "-c");
    words_add(&w, intern_f(c, "%s/%s%s", b->dir, b->m->name, suffix));
    words_add(&w, "-o");
    words_add(&w, object);
    return run_words(&w, b->verbose) == 0 ? object : NULL;
}

/* The library holds all of libcell, so that a program links against nothing else. */
static bool link_library(Build *b, const char *const *objects, int n)
{
    Compiler *c = b->c;
    Words w = { 0 };
    const char *path = intern_f(c, "%s/lib%s.so", b->dir, b->m->name);
    words_split(c, &w, c_compiler());
    words_split(c, &w, getenv("CFLAGS"));
    words_split(c, &w, "-shared -o");
    words_add(&w, path);
    for (int i = 0; i < n; i++)
        words_add(&w, objects[i]);
    words_add(&w, "-Wl,--whole-archive");
    words_add(&w, intern_f(c, "%s/libcell.a", b->lib));
    words_add(&w, "-Wl,--no-whole-archive");
    words_split(c, &w, home_flags(c, "libs"));
    if (run_words(&w, b->verbose) != 0)
        return false;
    printf("%s\n", path);
    return true;
}

static bool find_runtime(Build *b)
{
    b->include = home_dir(b->c, HOME_INCLUDE);
    b->lib = home_dir(b->c, HOME_LIB);
    if (b->include && b->lib)
        return true;
    fprintf(stderr, "cellc build: the runtime (%s) is not where cellc is; run make, or set CELLC_HOME\n",
            b->include ? "libcell.a" : "cell.h");
    return false;
}

static bool compile_all(Build *b)
{
    const char *objects[N_EMITTERS];
    int n = 0;
    for (int i = 0; i < N_EMITTERS; i++) {
        const char *suffix = emitters[i].suffix;
        if (!suffix || strcmp(suffix + strlen(suffix) - 2, ".c") != 0)
            continue;
        if (!(objects[n++] = compile_c(b, suffix)))
            return false;
    }
    return link_library(b, objects, n);
}

/* Removes the objects and their directory. */
static void remove_objects(Build *b)
{
    for (int i = 0; i < N_EMITTERS; i++)
        if (emitters[i].suffix)
            unlink(intern_f(b->c, "%s/%s%s.o", b->objects, b->m->name, emitters[i].suffix));
    rmdir(b->objects);
}

static int build_module(Compiler *c, const Module *m, const char *dir, bool verbose)
{
    Build b = { .c = c, .m = m, .dir = dir, .verbose = verbose };
    const char *tmp = getenv("TMPDIR");
    char objects[4096];
    if (!find_runtime(&b) || !write_all(c, m, dir))
        return 1;
    snprintf(objects, sizeof objects, "%s/cellc-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(objects)) {
        fprintf(stderr, "cellc build: cannot make %s: %s\n", objects, strerror(errno));
        return 1;
    }
    b.objects = objects;
    bool ok = compile_all(&b);
    remove_objects(&b);
    if (!ok)
        fprintf(stderr, "cellc build: the generated files in %s were not compiled\n", dir);
    return !ok;
}

int cmd_build(int argc, char **argv)
{
    Compiler *c = compiler_new();
    const char *dir = "generated", *operands[argc + 1];
    bool verbose = false, dumped = false;
    const OptionSpec table[] = {
        { "-o", "DIR", OPT_STRING, &dir, "where the files go (generated)" },
        { "-v", NULL, OPT_FLAG, &verbose, "show the commands that are run" },
        { NULL, NULL, OPT_FLAG, NULL, NULL }
    };
    int n, rc = options_parse(&build_help, c, argc, argv, table, operands, &n);
    if (rc < 0) {
        Module *m = compile(c, operands[0], reference_passes, &dumped);
        diag_print(c, stderr);
        rc = m || dumped ? c->errors > 0 : 1;
        if (m)
            rc = build_module(c, m, dir, verbose);
    }
    compiler_free(c);
    return rc;
}
