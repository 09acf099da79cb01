/* build.c: `cellc build`. In: specs and settings. Out: generated files and the library compiled from them,
 * by cc and, for the kernels, nvcc. Guaranteed: nothing is written unless every spec compiles; what could
 * not be built (no nvcc) is said. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/process.h"
#include "base/say.h"
#include "base/toolkit.h"
#include "build.h"
#include "commands.h"
#include "front/ast.h"
#include "generate.h"
#include "gpu.h"
#include "options.h"
#include "pipeline.h"
#include "plan/plan.h"

enum { MAX_JOBS = 1024 };
static const char default_dir[] = "generated";

static const CommandHelp build_help = {
    .name = "build",
    .arguments = "SPEC[:CELL][:NAME=VALUE,...]...",
    .summary = "compile a spec to a library with a C header and a manifest",
    .about =
        "Writes NAME.h, NAME_ref.c, NAME.c, NAME.json, with nvcc NAME.cu, and libNAME.so to the directory\n"
        "of -o, or else to ./generated, and prints their paths. NAME is the cell's. The library holds the\n"
        "runtime as well, so that it is all a program needs to link against. Several specs, or one with\n"
        "several settings, give one library of that many instances, whose names say what was bound\n"
        "(e79_N32_bias_input); NAME.h of the library has a function that finds one. A SPEC is a file or,\n"
        "as a word without a dot or slash, a cell that comes with cellc; of a file with several cells\n"
        "CELL names one. CC names the C compiler. The last line says how a program links with the\n"
        "library. With --static it is libNAME.a instead, which a program has in it and does not need when\n"
        "it runs. AR names the archiver. With --target wasm clang makes NAME.wasm and NAME.mjs, which web\n"
        "pages and Node load, or with --static a library for WASI.",
    .examples = "  cellc build specs/e79.cell -o out\n"
                "  cellc build gru --target wasm -o out\n"
                "  cellc build specs/e79.cell --dim N=32 --set bias=input --dtype bf16 -o out\n"
                "  cellc build e79:N=32,bias=input e79:N=64,dtype=bf16 e88 --name cells -o out\n"
                "  cc -Iout -Iruntime main.c -Lout -le79 -Wl,-rpath,$PWD/out -o main\n",
    .compiles = true,
    .settings = true,
};

/* Has the body, or a branch in it, a dim of that name, or else an option or constant? */
static bool has(const StmtVec *body, const char *name, bool dim)
{
    for (int i = 0; i < body->len; i++) {
        const Stmt *s = body->data[i];
        bool kind = dim ? s->kind == S_DIM : s->kind == S_OPTION || s->kind == S_CONST;
        if ((kind && strcmp(s->name, name) == 0) || has(&s->body, name, dim) || has(&s->other, name, dim))
            return true;
    }
    return false;
}

static bool declares(const Compiler *c, const Ast *ast, const char *name, bool dim)
{
    for (int i = 0; i < ast->items.len; i++) {
        const Stmt *s = ast->items.data[i];
        if (s->kind == S_CELL && (!c->cell || strcmp(s->name, c->cell) == 0) && has(&s->body, name, dim))
            return true;
    }
    return false;
}

/* The first word behind ':' names a cell of the file, or should where it is no setting and there are several. */
static bool names_cell(const Ast *ast, const char *word)
{
    int cells = 0;
    for (int i = 0; i < ast->items.len; i++) {
        if (ast->items.data[i]->kind != S_CELL)
            continue;
        if (strcmp(ast->items.data[i]->name, word) == 0)
            return true;
        cells++;
    }
    return cells > 1 && *word && !strchr(word, '=') && strcmp(word, "reverse") != 0 &&
           strcmp(word, "lengths") != 0 && strcmp(word, "packed") != 0 && strcmp(word, "slots") != 0;
}

static bool is_compile_option(const char *name)
{
    return strcmp(name, "dtype") == 0 || strcmp(name, "schedule") == 0 || strcmp(name, "products") == 0;
}

/* One NAME=VALUE of an operand: a dim of the cell, whatever its name, a type, schedule or form of products, or else an
 * option or constant of the cell. What is a dim in one branch and a constant in another is bound as both: which branch is taken is
 * found out later, and a setting for the other one does nothing. */
static int take_setting(Instance *in, const Ast *ast, const char *text)
{
    Compiler *c = in->c;
    const char *eq = strchr(text, '=');
    if (strcmp(text, "reverse") == 0)
        return options_compile(&build_help, c, "--reverse", NULL);
    if (strcmp(text, "lengths") == 0)
        return options_compile(&build_help, c, "--lengths", NULL);
    if (strcmp(text, "packed") == 0)
        return options_compile(&build_help, c, "--packed", NULL);
    if (strcmp(text, "slots") == 0)
        return options_compile(&build_help, c, "--slots", NULL);
    if (!eq)
        return usage_error(&build_help,
                           "expected NAME=VALUE, reverse, lengths, packed or slots after ':', not '%s'",
                           text);
    const char *name = intern_n(c, text, (size_t)(eq - text));
    if (strncmp(name, "dtype.", 6) == 0)
        return options_compile(&build_help, c, "--dtype-of", text + 6);
    bool dim = declares(c, ast, name, true);
    if (!dim && is_compile_option(name))
        return options_compile(&build_help, c, intern_f(c, "--%s", name), eq + 1);
    if (dim) {
        int rc = options_compile(&build_help, c, "--dim", text);
        if (rc >= 0 || !declares(c, ast, name, false))
            return rc;
    }
    return options_compile(&build_help, c, "--set", text);
}

static bool is_word(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9');
}

/* A text as part of a C name: "N=32,bias=input" gives "N32_bias_input". */
static const char *identifier(Compiler *c, const char *text)
{
    char *copy = arena_alloc(c->arena, strlen(text) + 1);
    size_t n = 0;
    for (size_t i = 0; text[i]; i++) {
        bool number = text[i] == '=' && text[i + 1] >= '0' && text[i + 1] <= '9';
        if (!number)
            copy[n++] = is_word(text[i]) ? text[i] : '_';
    }
    return intern_n(c, copy, n);
}

/* Where the settings of an operand begin: behind the longest name of a file that is there, or else behind the
 * first ':'. */
static const char *settings_of(Compiler *c, const char *operand)
{
    const char *first = strchr(operand, ':'), *last = first;
    for (const char *colon = first; colon; colon = strchr(colon + 1, ':'))
        if (access(intern_n(c, operand, (size_t)(colon - operand)), F_OK) == 0)
            last = colon;
    return first && access(operand, F_OK) == 0 ? NULL : last;
}

/* What the settings give to the names of files, which have at most 255 characters: where they are long, their
 * beginning and a hash of all of them. */
static const char *suffix_of(Compiler *c, const char *settings)
{
    enum { LONGEST = 100, KEPT = 80 };
    if (strlen(settings) <= LONGEST)
        return identifier(c, settings);
    uint64_t hash = 14695981039346656037u;                                   /* FNV-1a */
    for (const char *p = settings; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 1099511628211u;
    return intern_f(c, "%s_%016llx", identifier(c, intern_n(c, settings, KEPT)), (unsigned long long)hash);
}

/* Reads an operand SPEC[:CELL][:NAME=VALUE,...], also SPEC:CELL,NAME=VALUE; -1 to go on. What it binds goes into the names of C functions and files
 * where there are several instances; a library of one is called as the cell, however it was bound. */
static int read_operand(Build *b, Instance *in, const char *operand, bool several)
{
    Compiler *c = in->c = compiler_new();
    const char *colon = settings_of(c, operand);
    compiler_inherit(c, b->c);
    in->spec = home_spec(c, colon ? intern_n(c, operand, (size_t)(colon - operand)) : operand);
    if (!colon || !in->spec)
        return -1;
    int file = source_load(c, in->spec);
    Ast *ast = file < 0 ? NULL : parse_source(c, file);
    const char *settings = colon + 1;
    for (const char *text = settings; ast && *text;) {
        size_t len = strcspn(text, text == colon + 1 ? ",:" : ",");
        const char *word = intern_n(c, text, len);
        if (text == colon + 1 && names_cell(ast, word)) {
            c->cell = word;
            settings = text + len + (text[len] != 0);
        } else {
            int rc = take_setting(in, ast, word);
            if (rc >= 0)
                return rc;
        }
        text += len + (text[len] != 0);
    }
    /* What parsing said comes again when the instance is compiled. */
    if (ast) {
        c->diags.len = 0;
        c->errors = 0;
    }
    in->suffix = *settings && several ? suffix_of(c, settings) : NULL;
    return -1;
}

static int compile_instance(Build *b, Instance *in)
{
    bool ok = !in->c->errors && generate_open(&in->g, in->c, in->spec, in->suffix, b->nvcc || b->apart);
    if (ok && b->cpu && !generate_cpu(&in->g))
        say(DIAG_WARNING, "build", "cell %s has no kernels for the CPU: there its reference runs",
            in->g.m->name);
    ok = ok && generate_kernels(&in->g);
    diag_print(in->c, stderr);
    return ok ? -1 : 1;
}

/* The name goes into that of the library's file and, of several instances, into those of C functions. */
static int check_library_name(const Build *b, int instances)
{
    static const char c_name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_",
                      file_name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    const char *name = b->library, *rest = name ? name + strspn(name, c_name) : NULL;
    if (!name)
        return -1;
    if (instances > 1 && (*rest || strspn(name, "0123456789") || !*name))
        return usage_error(&build_help, "--name %s: functions are called after it, so it must be a name in C",
                           name);
    if (instances > 1 && cell_name_fault(b->c, name))
        return usage_error(&build_help, "--name %s: %s", name, cell_name_fault(b->c, name));
    if (is_system_library(name))
        return usage_error(&build_help,
                           "--name %s: programs have a library lib%s.so already, which -l%s means", name,
                           name, name);
    if (!*name || name[strspn(name, file_name)] || *name == '-')
        return usage_error(&build_help, "--name takes letters, digits, _, - and ., not '%s'", name);
    return -1;
}

static const char *c_name(const Build *b, int i)
{
    return b->instance[i].g.m->name;
}

static bool is_reference_of(const char *name, const char *cell)
{
    size_t len = strlen(cell);
    return strncmp(name, cell, len) == 0 && strcmp(name + len, "_ref") == 0;
}

static int read_instances(Build *b, const char *const *operands, int n)
{
    b->instance = arena_alloc(b->c->arena, sizeof *b->instance * (size_t)n);
    for (b->n = 0; b->n < n;) {
        Instance *in = &b->instance[b->n++];
        int rc = read_operand(b, in, operands[b->n - 1], n > 1);
        if (rc < 0)
            rc = compile_instance(b, in);
        if (rc >= 0)
            return rc;
        for (int i = 0; i + 1 < b->n; i++)
            if (strcmp(c_name(b, i), in->g.m->name) == 0)
                return usage_error(&build_help, "%s and %s are the same instance", operands[i],
                                   operands[b->n - 1]);
            else if (is_reference_of(c_name(b, i), in->g.m->name) || is_reference_of(in->g.m->name, c_name(b, i)))
                return usage_error(&build_help, "%s and %s: both would write %s.c, as the reference of a cell is called NAME_ref; "
                                   "give one of the cells another name", operands[i], operands[b->n - 1],
                                   strlen(c_name(b, i)) > strlen(in->g.m->name) ? c_name(b, i) : in->g.m->name);
    }
    int named = check_library_name(b, n);
    if (named >= 0)
        return named;
    if (n > 1 && !b->library)
        return usage_error(&build_help, "several instances need --name for the library");
    for (int i = 0; n > 1 && i < n; i++)
        if (strcmp(b->instance[i].g.m->name, b->library) == 0)
            return usage_error(&build_help, "the library and an instance are both called %s", b->library);
        else if (is_reference_of(b->library, c_name(b, i)))
            return usage_error(&build_help, "--name %s: the reference of the cell %s is called so", b->library, c_name(b, i));
    return -1;
}

void build_add_job(Build *b, const Words *w, const char *object)
{
    Job job = { .words = *w, .log = intern_f(b->c, "%s.log", object) };
    vec_push(b->c->arena, &b->job, job);
    vec_push(b->c->arena, &b->object, object);
}

/* The levels of this machine's architecture (runtime/cpu/cell_cpu.h) that a library has kernels for; native:
 * one, whose number is that of what every machine has. Spelt by what is in them, since -march=x86-64-v3 is too new
 * for compilers that are in use. Processors without AVX2 are old: not worth the time that 64-byte vectors take to
 * be compiled well for them. */
#define V2 "-mcx16 -msahf -mpopcnt -msse3 -mssse3 -msse4.1 -msse4.2"
#define V3 V2 " -mavx -mavx2 -mbmi -mbmi2 -mf16c -mfma -mlzcnt -mmovbe"
#define V4 V3 " -mavx512f -mavx512bw -mavx512cd -mavx512dq -mavx512vl -mprefer-vector-width=512"
static const char *const cpu_levels[] = {
#ifdef __x86_64__
    NULL, V2 " -O1 -ftree-vectorize", V3, V4
#else
    "", NULL, NULL, NULL
#endif
};

/* Where a processor has vectors of 64 bytes, compilers' own choice for it may be 32: a softmax takes 1.2
 * times as long so. */
#ifdef __x86_64__
static const char cpu_native[] = "-march=native -mprefer-vector-width=512";
#else
static const char cpu_native[] = "-march=native";
#endif

/* arch: options of the compiler. */
static void compile_level(Build *b, const char *stem, int level, int mask, const char *arch)
{
    Compiler *c = b->c;
    Words w = { 0 };
    const char *object = intern_f(c, "%s/%s_%d.o", b->objects, stem, level);
    words_split(c, &w, c_compiler());
    words_split(c, &w, "-std=c11 -O3 -fPIC -ffp-contract=off -fno-math-errno -fno-trapping-math -Wno-psabi");
    words_split(c, &w, arch);
    words_split(c, &w, getenv("CFLAGS"));
    words_add(&w, intern_f(c, "-DCELL_CPU_LEVEL=%d", level));
    words_add(&w, intern_f(c, "-DCELL_CPU_LEVELS=%d", mask));
    words_add(&w, intern_f(c, "-I%s", b->include));
    words_add(&w, intern_f(c, "-I%s/cpu", b->include));
    words_add(&w, "-c");
    words_add(&w, intern_f(c, "%s/%s.c", b->dir, stem));
    words_add(&w, "-o");
    words_add(&w, object);
    build_add_job(b, &w, object);
}

/* DIR/STEM.c, kernels for the CPU, to an object for each level. */
static void compile_cpu(Build *b, const char *stem)
{
    int mask = 0;
    if (strcmp(b->cpu, "native") == 0) {
        compile_level(b, stem, 0, 1, cpu_native);
        return;
    }
    for (int i = 0; i < 4; i++)
        mask |= cpu_levels[i] ? 1 << i : 0;
    for (int i = 0; i < 4; i++)
        if (mask >> i & 1)
            compile_level(b, stem, i, mask, cpu_levels[i]);
}

/* DIR/STEM.c to an object. cpu: beside kernels for the CPU. */
static void compile_c(Build *b, const char *stem, bool cpu)
{
    Compiler *c = b->c;
    Words w = { 0 };
    const char *object = intern_f(c, "%s/%s.o", b->objects, stem);
    words_split(c, &w, c_compiler());
    words_split(c, &w, "-std=c11 -O3 -fPIC -ffp-contract=off -fno-math-errno");
    words_split(c, &w, getenv("CFLAGS"));
    words_add(&w, intern_f(c, "-I%s", b->include));
    words_add(&w, intern_f(c, "-I%s", b->dir));
    if (b->nvcc)
        words_add(&w, intern_f(c, "-DCELL_ARCHS=\"%s\"", b->archs));
    if (b->apart)
        words_add(&w, "-DCELL_KERNEL_SYMBOL=extern __attribute__((weak))");
    if (cpu)
        words_add(&w, "-DCELL_CPU");
    words_add(&w, "-c");
    words_add(&w, intern_f(c, "%s/%s.c", b->dir, stem));
    words_add(&w, "-o");
    words_add(&w, object);
    build_add_job(b, &w, object);
}

static const char *backend_object(const Build *b)
{
    return intern_f(b->c, "%s/backend_cuda.o", b->objects);
}

/* The runtime's backend with CUDA, its only part that needs the toolkit's headers, to an object. */
static void compile_backend(Build *b)
{
    Compiler *c = b->c;
    Words w = { 0 };
    const char *object = backend_object(b);
    words_split(c, &w, c_compiler());
    words_split(c, &w, "-std=c11 -D_GNU_SOURCE -O2 -fPIC");
    words_split(c, &w, getenv("CFLAGS"));
    words_add(&w, intern_f(c, "-I%s", b->include));
    toolkit_headers(c, b->nvcc, &w);
    words_add(&w, "-c");
    words_add(&w, intern_f(c, "%s/backend_cuda.c", home_dir(c, HOME_BACKEND)));
    words_add(&w, "-o");
    words_add(&w, object);
    build_add_job(b, &w, object);
}

/* An architecture's machine code may have instructions that no newer one has: tiles (cell_device_mma.cuh) are some of 90's. */
static const char *own_target(Compiler *c, const char *arch, bool tiles)
{
    return tiles && strcmp(arch, "90") == 0 ? intern(c, "90a") : arch;
}

/* -gencode for every architecture of a list such as "80 90": machine code, and for the last one PTX, which
 * newer GPUs take. */
static void add_architectures(Compiler *c, Words *w, const char *list, bool tiles)
{
    const char *name, *here = NULL;
    Words archs = { 0 };
    words_split(c, &archs, list);
    for (int i = 0; i < archs.n; i++) {
        const char *a = archs.items[i];
        if (strcmp(a, "native") == 0) {
            bool own = tiles && gpu_identify(c, &name, &here);
            words_add(w, own ? intern_f(c, "-arch=sm_%s", own_target(c, here, tiles)) : "-arch=native");
            continue;
        }
        const char *own = own_target(c, a, tiles);
        words_add(w, "-gencode");
        words_add(w, intern_f(c, "arch=compute_%s,code=sm_%s", own, own));
        if (i + 1 < archs.n)
            continue;
        words_add(w, "-gencode");
        words_add(w, intern_f(c, "arch=compute_%s,code=compute_%s", a, a));
    }
}

enum { SOURCES, HEADERS, N_LINKS };
static const char *link_path(Build *b, int which)
{
    return intern_f(b->c, "%s/%s", b->objects, which == SOURCES ? "sources" : "headers");
}

/* The directory, or a link to it: nvcc reads its words again as a shell does, so that quotes in them end it. */
static const char *path_for_nvcc(Build *b, const char *dir, int which)
{
    static char full[PATH_MAX];
    if (!dir[strcspn(dir, "\"'`$\\")] || !realpath(dir, full))
        return dir;
    const char *link = link_path(b, which);
    return symlink(full, link) == 0 || errno == EEXIST ? link : dir;
}

/* DIR/STEM.cu to an object. nvcc compiles for several architectures at once when there are more jobs than
 * instances. */
static void compile_cu(Build *b, const char *stem, bool tiles)
{
    Compiler *c = b->c;
    Words w = { 0 };
    const char *object = intern_f(c, "%s/%s.cu.o", b->objects, stem);
    int threads = (int)(b->jobs / b->n);
    words_add(&w, b->nvcc);
    words_split(c, &w, "-std=c++17 -O3 -Xcompiler -fPIC");
    words_split(c, &w, intern_f(c, "--threads %d", threads > 1 ? threads : 1));
    /* Kernels begin with all of their sizes, whether or not they read them. */
    words_split(c, &w, "-diag-suppress 177,550");
    add_architectures(c, &w, b->archs, tiles);
    words_split(c, &w, getenv("NVCCFLAGS"));
    const char *include = path_for_nvcc(b, b->include, HEADERS);
    words_add(&w, intern_f(c, "-I%s", include));
    words_add(&w, intern_f(c, "-I%s/device", include));
    words_add(&w, "-c");
    words_add(&w, intern_f(c, "%s/%s.cu", path_for_nvcc(b, b->dir, SOURCES), stem));
    words_add(&w, "-o");
    words_add(&w, object);
    build_add_job(b, &w, object);
}

/* The kernels first: they take longest. */
static void compile_sources(Build *b, const char *suffix)
{
    for (int i = 0; i < b->n; i++)
        for (const Emitter *e = emitters; e->kind; e++) {
            const char *name = b->instance[i].g.m->name, *dot;
            if (!generate_takes(&b->instance[i].g, e) || !(dot = strrchr(e->suffix, '.')) ||
                strcmp(dot, suffix) != 0)
                continue;
            const char *stem = intern_f(b->c, "%s%.*s", name, (int)(dot - e->suffix), e->suffix);
            if (b->target)
                wasm_compile(b, stem,
                             e->side == SIDE_CPU    ? WASM_KERNELS
                             : b->instance[i].g.cpu ? WASM_BESIDE_KERNELS
                                                    : WASM_PLAIN);
            else if (strcmp(suffix, ".cu") == 0)
                compile_cu(b, stem, plan_has_tiles(b->instance[i].g.plan));
            else if (e->side == SIDE_CPU)
                compile_cpu(b, stem);
            else
                compile_c(b, stem, b->instance[i].g.cpu != NULL);
        }
}

/* The list of instances that dispatch looks through: NAME.h and NAME.c. */
static bool write_list(Build *b)
{
    Buf h = { .arena = b->c->arena }, t = { .arena = b->c->arena };
    const char *name = b->library, *id = identifier(b->c, name);
    buf_f(&h, "/* %s: the instances in lib%s, for callers that choose one when they run. */\n", name, name);
    buf_f(&h, "#ifndef CELLC_%s_INSTANCES\n#define CELLC_%s_INSTANCES\n\n#include \"cell_plan.h\"\n", id, id);
    for (int i = 0; i < b->n; i++)
        buf_f(&h, "#include \"%s.h\"\n", b->instance[i].g.m->name);
    buf_f(&h, "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n"
              "/* Fills list with up to `room` instances; gives how many there are. */\n"
              "int %s_instances(const cell_desc **list, int room);\n"
              "/* The first instance of the cell `name` (NULL: of any) that has all the wanted bindings, such\n"
              " * as \"N\" \"64\" or \"dtype\" \"bf16\"; NULL when there is none, and then ctx, which may be NULL,\n"
              " * says which there are. Call it with cell_run_forward and the like. */\n"
              "const cell_desc *%s_find(cell_context *ctx, const char *name, const cell_binding *wanted,\n"
              "                         int n);\n\n"
              "#ifdef __cplusplus\n}\n#endif\n\n#endif\n", id, id);
    buf_f(&t, "#include \"%s.h\"\n\nenum { COUNT = %d };\n\n"
              "int %s_instances(const cell_desc **list, int room)\n{\n"
              "    const cell_desc *all[COUNT] = {\n", name, b->n, id);
    for (int i = 0; i < b->n; i++)
        buf_f(&t, "        %s_instance(),\n", b->instance[i].g.m->name);
    buf_f(&t, "    };\n    for (int i = 0; i < COUNT && i < room; i++)\n        list[i] = all[i];\n"
              "    return COUNT;\n}\n\n"
              "const cell_desc *%s_find(cell_context *ctx, const char *name, const cell_binding *wanted,\n"
              "                         int n)\n{\n"
              "    const cell_desc *all[COUNT];\n    %s_instances(all, COUNT);\n"
              "    return cell_find_instance(ctx, all, COUNT, name, wanted, n);\n}\n", id, id);
    return write_text(intern_f(b->c, "%s/%s.h", b->dir, name), &h) &&
           write_text(intern_f(b->c, "%s/%s.c", b->dir, name), &t);
}

const char *build_library_file(const Build *b, const char *name)
{
    if (b->target && !b->archive)
        return intern_f(b->c, "%s.wasm", name);
    return intern_f(b->c, "lib%s.%s", name, b->archive ? "a" : "so");
}

static void add_runtime(Build *b, Words *w)
{
    words_add(w, "-Wl,--whole-archive");
    words_add(w, intern_f(b->c, "%s/libcell.a", b->lib));
    words_add(w, "-Wl,--no-whole-archive");
}

/* What a program that has the library in it is linked with besides. */
static void add_libraries(const Build *b, Words *w)
{
    toolkit_libraries(b->c, b->nvcc, w);
    /* What nvcc makes of a kernel's host side is C++. */
    if (b->nvcc)
        words_add(w, "-lstdc++");
}

/* All of libcell, and the backend of CUDA where there are kernels, is one member of the archive: the backend
 * is referred to weakly, for which the linker takes no member by itself. Of two such archives in one program
 * it takes the runtime of the first. */
static bool archive_library(Build *b)
{
    Compiler *c = b->c;
    const char *path = intern_f(c, "%s/%s", b->dir, build_library_file(b, b->library)), *ar = getenv("AR");
    const char *runtime = intern_f(c, "%s/cell_runtime.o", b->objects);
    Words join = { 0 }, w = { 0 };
    words_split(c, &join, c_compiler());
    words_split(c, &join, "-r -nostdlib -o");
    words_add(&join, runtime);
    if (b->nvcc)
        words_add(&join, backend_object(b));
    add_runtime(b, &join);
    words_split(c, &w, ar && *ar ? ar : "ar");
    words_add(&w, "rcsD");
    words_add(&w, path);
    for (int i = 0; i < b->object.len; i++)
        if (!b->nvcc || strcmp(b->object.data[i], backend_object(b)) != 0)
            words_add(&w, b->object.data[i]);
    words_add(&w, runtime);
    unlink(path);                 /* ar would add to it */
    if (run_words(&join, b->verbose) != 0 || run_words(&w, b->verbose) != 0)
        return false;
    print_shown(path);
    return true;
}

/* The library holds all of libcell, so that a program links against nothing else; without kernels it needs
 * the C library alone. */
static bool link_library(Build *b)
{
    Compiler *c = b->c;
    Words w = { 0 };
    const char *path = intern_f(c, "%s/%s", b->dir, build_library_file(b, b->library));
    words_split(c, &w, c_compiler());
    words_split(c, &w, getenv("CFLAGS"));
    words_split(c, &w, "-shared -Wl,-z,defs -o");
    words_add(&w, path);
    for (int i = 0; i < b->object.len; i++)
        words_add(&w, b->object.data[i]);
    add_runtime(b, &w);
    add_libraries(b, &w);
    if (run_words(&w, b->verbose) != 0)
        return false;
    print_shown(path);
    return true;
}

/* A word as a shell reads it. */
static const char *shell_word(Compiler *c, const char *word)
{
    static const char bare[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=,./:@%";
    Buf out = { .arena = c->arena };
    if (*word && !word[strspn(word, bare)])
        return word;
    buf_f(&out, "'");
    for (; *word; word++)
        buf_f(&out, *word == '\'' ? "'\\''" : "%c", *word);
    buf_f(&out, "'");
    return out.data;
}

static void say_static_usage(const Build *b)
{
    Compiler *c = b->c;
    Words w = { 0 };
    Buf libraries = { .arena = c->arena };
    add_libraries(b, &w);
    for (int i = 0; i < w.n; i++)
        buf_f(&libraries, " %s", shell_word(c, w.items[i]));
    say(DIAG_NOTE, "build", "a program links with it by: cc %s %s main.c %s%s -o main",
        shell_word(c, intern_f(c, "-I%s", b->dir)), shell_word(c, intern_f(c, "-I%s", b->include)),
        shell_word(c, intern_f(c, "%s/%s", b->dir, build_library_file(b, b->library))), libraries.data);
}

/* The command that makes a program of main.c and the library. */
static void say_usage(const Build *b)
{
    Compiler *c = b->c;
    char full[PATH_MAX];
    const char *where = realpath(b->dir, full) ? full : b->dir;
    if (b->archive) {
        say_static_usage(b);
        return;
    }
    say(DIAG_NOTE, "build", "a program links with it by: cc %s %s main.c %s -l%s %s -o main",
        shell_word(c, intern_f(c, "-I%s", b->dir)), shell_word(c, intern_f(c, "-I%s", b->include)),
        shell_word(c, intern_f(c, "-L%s", b->dir)), b->library,
        shell_word(c, intern_f(c, "-Wl,-rpath,%s", where)));
}

static bool find_runtime(Build *b)
{
    b->include = home_dir(b->c, HOME_INCLUDE);
    b->lib = home_dir(b->c, HOME_LIB);
    if (b->include && b->lib && home_dir(b->c, HOME_BACKEND))
        return true;
    say(DIAG_ERROR, "build", "the runtime (%s) is not where cellc is; run make, or set CELLC_HOME",
            !b->include ? "cell.h" : !b->lib ? "libcell.a" : "backend_cuda.c");
    return false;
}

static bool compile_all(Build *b)
{
    if (b->n > 1 && !write_list(b))
        return false;
    if (!b->apart)
        compile_sources(b, ".cu");
    compile_sources(b, ".c");
    if (b->nvcc)
        compile_backend(b);
    if (b->n > 1 && b->target)
        wasm_compile(b, b->library, WASM_PLAIN);
    else if (b->n > 1)
        compile_c(b, b->library, false);
    if (!b->library) {
        b->library = library_name(b->c, c_name(b, 0));
        if (b->library != c_name(b, 0))
            say(DIAG_NOTE, "build",
                "the library is %s, as programs have a lib%s.so already; --name gives it another name",
                build_library_file(b, b->library), c_name(b, 0));
    }
    if (b->target)
        wasm_compile_runtime(b);
    return run_jobs(b->job.data, b->job.len, (int)b->jobs, b->verbose) && (b->target    ? wasm_link
                                                                           : b->archive ? archive_library
                                                                                        : link_library)(b);
}

static int build_instances(Build *b)
{
    const char *tmp = getenv("TMPDIR");
    for (int i = 0; i < b->n; i++)
        if (!generate_files(&b->instance[i].g, b->dir))
            return 1;
    /* nvcc gives the names of its temporary files to a shell as they are. */
    if (b->nvcc && tmp && tmp[strcspn(tmp, " \t\"'`$\\;&|<>()*?")]) {
        tmp = "/tmp";
        setenv("TMPDIR", tmp, 1);
    }
    if (!(b->objects = scratch_make(b->c, "build")))
        return 1;
    bool ok = compile_all(b);
    scratch_remove(b->objects);
    if (!ok)
        say(DIAG_ERROR, "build", "the generated files in %s were not compiled", b->dir);
    else if (b->dir == default_dir)
        say(DIAG_NOTE, "build", "the files are in ./%s; -o chooses another directory", b->dir);
    if (ok)
        (b->target ? wasm_say_usage : say_usage)(b);
    return !ok;
}

/* The architectures that nvcc compiles for, "75, 80, ..."; "" when it does not say. */
static const char *nvcc_architectures(Build *b, Words *known)
{
    Words w = { 0 };
    Buf list = { .arena = b->c->arena };
    words_add(&w, b->nvcc);
    words_add(&w, "--list-gpu-arch");
    Words lines = { 0 };
    words_split(b->c, &lines, words_output(b->c, &w));
    for (int i = 0; i < lines.n; i++) {
        const char *number = lines.items[i] + strcspn(lines.items[i], "0123456789");
        if (strncmp(lines.items[i], "compute_", 8) != 0)
            continue;
        words_add(known, number);
        buf_f(&list, "%s%s", list.len ? ", " : "", number);
    }
    return list.len ? list.data : "";
}

static bool is_among(const Words *known, const char *arch, size_t digits)
{
    for (int k = 0; k < known->n; k++)
        if (strlen(known->items[k]) == digits && memcmp(known->items[k], arch, digits) == 0)
            return true;
    return false;
}

/* What "all" stands for: those that this nvcc compiles for, or all where it does not say or none is there. */
static void name_all(Build *b, const Words *known)
{
    Words every = { 0 };
    Buf list = { .arena = b->c->arena };
    words_split(b->c, &every, all_archs);
    for (int i = 0; i < every.n; i++)
        if (!known->n || is_among(known, every.items[i], strlen(every.items[i])))
            buf_f(&list, "%s%s", list.len ? " " : "", every.items[i]);
    b->archs = b->c->archs = list.data;
}

/* -1 to go on. nvcc is asked, so that the message is ours and comes before anything is written. */
static int check_architectures(Build *b)
{
    Words wanted = { 0 }, known = { 0 };
    const char *list = b->nvcc ? nvcc_architectures(b, &known) : "";
    if (strcmp(b->archs, "all") == 0)
        name_all(b, &known);
    int rc = archs_check(&build_help, b->archs);
    if (rc >= 0)
        return rc;
    words_split(b->c, &wanted, b->archs);
    const char *name, *arch;
    for (int i = 0; b->nvcc && i < wanted.n; i++)
        if (strcmp(wanted.items[i], "native") == 0 && !gpu_identify(b->c, &name, &arch)) {
            say(DIAG_ERROR, "build", "--archs native: there is no GPU here; name its architecture, as in --archs 90");
            return 1;
        }
    for (int i = 0; known.n && i < wanted.n; i++) {
        size_t digits = strspn(wanted.items[i], "0123456789");
        if (digits && !is_among(&known, wanted.items[i], digits))
            return usage_error(&build_help, "--archs %s: this nvcc compiles for %s", wanted.items[i], list);
    }
    return -1;
}

static const char *find_nvcc(Build *b, bool unwanted)
{
    const char *nvcc = unwanted ? NULL : toolkit_nvcc(b->c);
    if (!nvcc && !unwanted)
        say(DIAG_WARNING, "build", "%s, so the library has the reference only", toolkit_missing(b->c));
    return nvcc;
}

/* -1 to go on. */
static int check_target(Build *b)
{
    if (strcmp(b->target, "wasm") != 0)
        return usage_error(&build_help, "--target takes wasm, not '%s'", b->target);
    if (b->apart)
        return usage_error(&build_help, "--target wasm and --kernels-apart exclude each other");
    if (b->cpu && strcmp(b->cpu, "native") == 0)
        return usage_error(&build_help,
                           "--target wasm is for no machine, so --cpu native means nothing there");
    return wasm_find(b) ? -1 : 1;
}

int cmd_build(int argc, char **argv)
{
    Build b = { .c = compiler_new(), .dir = default_dir, .archs = getenv("CUDA_ARCHS"), .cpu = "portable" };
    bool no_cuda = false;
    const char *operands[argc + 1];
    const OptionSpec table[] = {
        { "-o", "DIR", OPT_STRING, &b.dir, "where the files go, made if it is not there (./generated)" },
        { "--name", "NAME", OPT_STRING, &b.library, "name of the library's file (the cell's)" },
        { "--archs", "LIST", OPT_STRING, &b.archs, "GPUs: native, all, or e.g. \"80 90\" (80 86 89 90)" },
        { "--jobs", "N", OPT_INT, &b.jobs, "compilers to run at once (as many as there are processors)" },
        { "--no-cuda", NULL, OPT_FLAG, &no_cuda, "leave the kernels out" },
        { "--static", NULL, OPT_FLAG, &b.archive, "make libNAME.a, to be linked into programs" },
        { "--cpu", "FOR", OPT_STRING, &b.cpu, "kernels for the CPU: portable (the default), native or none" },
        { "--target", "wasm", OPT_STRING, &b.target,
          "for WebAssembly: NAME.wasm and NAME.mjs, or with --static libNAME.a" },
        { "--kernels-apart", NULL, OPT_FLAG, &b.apart,
          "without nvcc: NAME.cu is for NVRTC, its image for the context" },
        { "-v", NULL, OPT_FLAG, &b.verbose, "show the commands that are run" },
        { NULL, NULL, OPT_FLAG, NULL, NULL }
    };
    int n, rc = options_parse(&build_help, b.c, argc, argv, table, operands, &n);
    if (rc < 0) {
        b.archs = b.archs && *b.archs ? b.archs : default_archs;
        b.jobs = b.jobs < 1 ? processors() : b.jobs < MAX_JOBS ? b.jobs : MAX_JOBS;
        b.c->archs = b.archs;
        b.c->tuned_dir = b.dir;
        rc = find_runtime(&b) ? -1 : 1;
    }
    if (rc < 0 && b.cpu && strcmp(b.cpu, "none") == 0)
        b.cpu = NULL;
    if (rc < 0 && b.cpu && strcmp(b.cpu, "native") != 0 && strcmp(b.cpu, "portable") != 0)
        rc = usage_error(&build_help, "--cpu takes portable, native or none, not '%s'", b.cpu);
    if (rc < 0 && b.target)
        rc = check_target(&b);
    if (rc < 0 && b.archive && b.apart)
        rc = usage_error(&build_help, "--static and --kernels-apart exclude each other");
    if (rc < 0) {
        if (b.apart && no_cuda)
            rc = usage_error(&build_help, "--kernels-apart and --no-cuda exclude each other");
        b.nvcc = find_nvcc(&b, no_cuda || b.apart || b.target);
    }
    if (rc < 0)
        rc = check_architectures(&b);
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
