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
    .arguments = "SPEC[:NAME=VALUE,...]...",
    .summary = "compile a spec to a library with a C header and a manifest",
    .about = "Writes NAME.h, NAME_ref.c, NAME.c, NAME.json and libNAME.so. The library holds the runtime as well,\n"
             "so that it is all a program needs to link against. Several specs, or one with several settings, give\n"
             "one library of that many instances; NAME.h of the library has a function that finds one of them.\n"
             "A SPEC without a dot or slash is a cell that comes with cellc. CC says which C compiler to use (cc).",
    .examples = "  cellc build specs/e79.cell\n"
                "  cellc build specs/e79.cell --dim N=32 --set bias=input --dtype bf16 -o generated\n"
                "  cellc build e79:N=32,bias=input e79:N=64,dtype=bf16 e88 --name cells -o generated\n"
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

/* One cell with its settings, on its way into a library. Each has a compilation of its own. */
typedef struct Instance {
    Compiler *c;
    Module *m;
    const char *spec;             /* path */
    const char *prefix;           /* of its C names and files */
    const char *objects[N_EMITTERS];
    int n_objects;
} Instance;

typedef struct Build {
    Compiler *c;                  /* of the command line */
    const char *dir;              /* of the output */
    const char *library;          /* --name, or NULL */
    const char *objects;          /* a temporary directory */
    const char *include, *lib;    /* of the runtime */
    bool verbose;
    Instance *instance;
    int n;
} Build;

static const char *c_compiler(void)
{
    const char *cc = getenv("CC");
    return cc && *cc ? cc : "cc";
}

/* A name without a dot or slash is a cell that comes with cellc. */
static const char *spec_path(Compiler *c, const char *name)
{
    if (strpbrk(name, "./") || !c->import_dir)
        return name;
    return intern_f(c, "%s/%s.cell", c->import_dir, name);
}

static bool declares_dim(const Ast *ast, const char *name)
{
    for (int i = 0; i < ast->items.len; i++) {
        const Stmt *cell = ast->items.data[i];
        for (int k = 0; cell->kind == S_CELL && k < cell->body.len; k++)
            if (cell->body.data[k]->kind == S_DIM && strcmp(cell->body.data[k]->name, name) == 0)
                return true;
    }
    return false;
}

/* One NAME=VALUE of an operand: a type, a dim of the cell, or else an option or constant. */
static int take_setting(Instance *in, const Ast *ast, const char *text)
{
    Compiler *c = in->c;
    const char *eq = strchr(text, '=');
    const char *option = "--set";
    if (!eq)
        return usage_error(&build_help, "expected NAME=VALUE after ':', not '%s'", text);
    const char *name = intern_n(c, text, (size_t)(eq - text));
    if (strcmp(name, "dtype") == 0)
        return options_compile(&build_help, c, "--dtype", eq + 1);
    if (strcmp(name, "schedule") == 0)
        return options_compile(&build_help, c, "--schedule", eq + 1);
    if (declares_dim(ast, name))
        option = "--dim";
    return options_compile(&build_help, c, option, text);
}

/* Letters, digits and _ of a text; others become _. */
static const char *identifier(Compiler *c, const char *text)
{
    char *copy = arena_alloc(c->arena, strlen(text) + 1);
    for (size_t i = 0; text[i]; i++) {
        bool plain = (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z') ||
                     (text[i] >= '0' && text[i] <= '9');
        copy[i] = plain ? text[i] : '_';
    }
    return intern(c, copy);
}

/* The settings of the command line hold for every instance. */
static void inherit(Compiler *to, const Compiler *from)
{
    for (int i = 0; i < from->dims.len; i++) {
        Setting s = { intern(to, from->dims.data[i].name), intern(to, from->dims.data[i].value), false };
        vec_push(to->arena, &to->dims, s);
    }
    for (int i = 0; i < from->sets.len; i++) {
        Setting s = { intern(to, from->sets.data[i].name), intern(to, from->sets.data[i].value), false };
        vec_push(to->arena, &to->sets, s);
    }
    to->dtype = from->dtype;
    to->schedule = from->schedule;
    to->import_dir = from->import_dir;
    to->dump_after = from->dump_after;
}

/* Reads an operand SPEC[:NAME=VALUE,...]; -1 to go on. */
static int read_operand(Build *b, Instance *in, const char *operand)
{
    Compiler *c = in->c = compiler_new();
    const char *colon = strchr(operand, ':');
    inherit(c, b->c);
    in->spec = spec_path(c, colon ? intern_n(c, operand, (size_t)(colon - operand)) : operand);
    if (!colon)
        return -1;
    int file = source_load(c, in->spec);
    Ast *ast = file < 0 ? NULL : parse_source(c, file);
    for (const char *text = colon + 1; ast && *text;) {
        size_t len = strcspn(text, ",");
        int rc = take_setting(in, ast, intern_n(c, text, len));
        if (rc >= 0)
            return rc;
        text += len + (text[len] == ',');
    }
    /* What parsing said comes again when the instance is compiled. */
    if (ast) {
        c->diags.len = 0;
        c->errors = 0;
    }
    in->prefix = colon[1] ? identifier(c, colon + 1) : NULL;
    return -1;
}

static int compile_instance(Instance *in)
{
    bool dumped = false;
    if (!in->c->errors)
        in->m = compile(in->c, in->spec, reference_passes, &dumped);
    diag_print(in->c, stderr);
    if (!in->m)
        return dumped ? 0 : 1;
    if (in->prefix)
        in->m->name = intern_f(in->c, "%s_%s", in->m->name, in->prefix);
    in->prefix = in->m->name;
    return in->c->errors ? 1 : -1;
}

static int read_instances(Build *b, const char *const *operands, int n)
{
    b->instance = arena_alloc(b->c->arena, sizeof *b->instance * (size_t)n);
    for (b->n = 0; b->n < n;) {
        Instance *in = &b->instance[b->n++];
        int rc = read_operand(b, in, operands[b->n - 1]);
        if (rc < 0)
            rc = compile_instance(in);
        if (rc >= 0)
            return rc;
        for (int i = 0; i + 1 < b->n; i++)
            if (strcmp(b->instance[i].prefix, in->prefix) == 0)
                return usage_error(&build_help, "%s and %s are the same instance", operands[i], operands[b->n - 1]);
    }
    if (n > 1 && !b->library)
        return usage_error(&build_help, "several instances need --name for the library");
    return -1;
}

/* DIR/STEM.c to an object; its path, or NULL. */
static const char *compile_c(Build *b, const char *stem)
{
    Compiler *c = b->c;
    Words w = { 0 };
    const char *object = intern_f(c, "%s/%s.o", b->objects, stem);
    words_split(c, &w, c_compiler());
    words_split(c, &w, "-std=c11 -O3 -fPIC -ffp-contract=off -fno-math-errno");
    words_split(c, &w, getenv("CFLAGS"));
    words_add(&w, intern_f(c, "-I%s", b->include));
    words_add(&w, intern_f(c, "-I%s", b->dir));
    words_add(&w, "-c");
    words_add(&w, intern_f(c, "%s/%s.c", b->dir, stem));
    words_add(&w, "-o");
    words_add(&w, object);
    return run_words(&w, b->verbose) == 0 ? object : NULL;
}

static bool compile_sources(Build *b, Instance *in)
{
    for (int i = 0; i < N_EMITTERS; i++) {
        const char *suffix = emitters[i].suffix, *object;
        size_t len = suffix ? strlen(suffix) : 0;
        if (len < 2 || strcmp(suffix + len - 2, ".c") != 0)
            continue;
        object = compile_c(b, intern_f(b->c, "%s%.*s", in->prefix, (int)len - 2, suffix));
        if (!object)
            return false;
        in->objects[in->n_objects++] = object;
    }
    return true;
}

/* The list of instances that dispatch looks through: NAME.h and NAME.c. */
static bool write_list(Build *b)
{
    Buf h = { .arena = b->c->arena }, t = { .arena = b->c->arena };
    const char *name = b->library, *id = identifier(b->c, name);
    buf_f(&h, "/* %s: the instances in lib%s, for callers that choose one when they run. */\n", name, name);
    buf_f(&h, "#ifndef %s_INSTANCES\n#define %s_INSTANCES\n\n#include \"cell_plan.h\"\n", id, id);
    for (int i = 0; i < b->n; i++)
        buf_f(&h, "#include \"%s.h\"\n", b->instance[i].prefix);
    buf_f(&h, "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n"
              "/* Fills list with up to `room` instances, in the order of the build; gives how many there are. */\n"
              "int %s_instances(const cell_desc **list, int room);\n"
              "/* The first instance of the cell `name` (NULL: of any) that has all the wanted bindings, such as \"N\" \"64\" or\n"
              " * \"dtype\" \"bf16\"; NULL when there is none, and then ctx, which may be NULL, says which there are. Call it with\n"
              " * cell_run_forward and the like. */\n"
              "const cell_desc *%s_find(cell_context *ctx, const char *name, const cell_binding *wanted, int n);\n\n"
              "#ifdef __cplusplus\n}\n#endif\n\n#endif\n", id, id);
    buf_f(&t, "#include \"%s.h\"\n\nenum { COUNT = %d };\n\nint %s_instances(const cell_desc **list, int room)\n{\n"
              "    const cell_desc *all[COUNT] = {\n", name, b->n, id);
    for (int i = 0; i < b->n; i++)
        buf_f(&t, "        %s_instance(),\n", b->instance[i].prefix);
    buf_f(&t, "    };\n    for (int i = 0; i < COUNT && i < room; i++)\n        list[i] = all[i];\n    return COUNT;\n}\n\n"
              "const cell_desc *%s_find(cell_context *ctx, const char *name, const cell_binding *wanted, int n)\n{\n"
              "    const cell_desc *all[COUNT];\n    %s_instances(all, COUNT);\n"
              "    return cell_find_instance(ctx, all, COUNT, name, wanted, n);\n}\n", id, id);
    return write_file(intern_f(b->c, "%s/%s.h", b->dir, name), &h) &&
           write_file(intern_f(b->c, "%s/%s.c", b->dir, name), &t);
}

/* The library holds all of libcell, so that a program links against nothing else. */
static bool link_library(Build *b, const char *list)
{
    Compiler *c = b->c;
    Words w = { 0 };
    const char *path = intern_f(c, "%s/lib%s.so", b->dir, b->library);
    words_split(c, &w, c_compiler());
    words_split(c, &w, getenv("CFLAGS"));
    words_split(c, &w, "-shared -o");
    words_add(&w, path);
    for (int i = 0; i < b->n; i++)
        for (int k = 0; k < b->instance[i].n_objects; k++)
            words_add(&w, b->instance[i].objects[k]);
    if (list)
        words_add(&w, list);
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
    const char *list = NULL;
    for (int i = 0; i < b->n; i++)
        if (!compile_sources(b, &b->instance[i]))
            return false;
    if (b->n > 1 && (!write_list(b) || !(list = compile_c(b, b->library))))
        return false;
    if (!b->library)
        b->library = b->instance[0].prefix;
    bool ok = link_library(b, list);
    if (list)
        unlink(list);
    return ok;
}

static int build_instances(Build *b)
{
    const char *tmp = getenv("TMPDIR");
    char objects[4096];
    if (!find_runtime(b))
        return 1;
    for (int i = 0; i < b->n; i++)
        if (!write_all(b->instance[i].c, b->instance[i].m, b->dir))
            return 1;
    snprintf(objects, sizeof objects, "%s/cellc-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(objects)) {
        fprintf(stderr, "cellc build: cannot make %s: %s\n", objects, strerror(errno));
        return 1;
    }
    b->objects = objects;
    bool ok = compile_all(b);
    for (int i = 0; i < b->n; i++)
        for (int k = 0; k < b->instance[i].n_objects; k++)
            unlink(b->instance[i].objects[k]);
    rmdir(objects);
    if (!ok)
        fprintf(stderr, "cellc build: the generated files in %s were not compiled\n", b->dir);
    return !ok;
}

int cmd_build(int argc, char **argv)
{
    Build b = { .c = compiler_new(), .dir = "generated" };
    const char *operands[argc + 1];
    const OptionSpec table[] = {
        { "-o", "DIR", OPT_STRING, &b.dir, "where the files go (generated)" },
        { "--name", "NAME", OPT_STRING, &b.library, "name of the library (the cell's)" },
        { "-v", NULL, OPT_FLAG, &b.verbose, "show the commands that are run" },
        { NULL, NULL, OPT_FLAG, NULL, NULL }
    };
    int n, rc = options_parse(&build_help, b.c, argc, argv, table, operands, &n);
    if (rc < 0)
        rc = read_instances(&b, operands, n);
    if (rc < 0)
        rc = build_instances(&b);
    for (int i = 0; i < b.n; i++)
        if (b.instance[i].c)
            compiler_free(b.instance[i].c);
    compiler_free(b.c);
    return rc;
}
