/* build_wasm.c: `cellc build --target wasm`. In: what `cellc build` has written of each cell, and the
 * runtime's sources, which are compiled with it. Out: NAME.wasm with NAME.mjs, which pages and Node load it
 * with; or libNAME.a, for programs in C for WASI. Compilers are clang and what Debian or a WASI SDK bring
 * to it. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/say.h"
#include "build.h"

/* A module's stack: a call has its tables of buffers there. */
#define STACK "-Wl,-z,stack-size=1048576"
/* Vectors, and what every engine that has them has as well. local-exec: older clangs know no other place of
 * errno. */
#define TARGET                                                                                               \
    "--target=wasm32-wasi -msimd128 -mbulk-memory -mnontrapping-fptoint -msign-ext -ftls-model=local-exec"
#define NO_PROCESSES "-D_WASI_EMULATED_GETPID"
#define LIBRARIES "-lwasi-emulated-getpid"

/* WASM_CC, or the clang of WASI_SDK_PATH, or clang: words. */
static const char *wasm_compiler(Compiler *c)
{
    const char *cc = getenv("WASM_CC"), *sdk = getenv("WASI_SDK_PATH");
    if (cc && *cc)
        return cc;
    return sdk && *sdk ? intern_f(c, "%s/bin/clang", sdk) : "clang";
}

static const char *ask_compiler(Compiler *c, const char *question)
{
    Words w = { 0 };
    words_split(c, &w, wasm_compiler(c));
    words_add(&w, "--target=wasm32-wasi");
    words_add(&w, question);
    const char *answer = words_output(c, &w);
    return answer ? intern_n(c, answer, strcspn(answer, "\n")) : NULL;
}

/* Does the compiler answer with the path of a file that is there? */
static bool has_file(Compiler *c, const char *question)
{
    const char *path = ask_compiler(c, question);
    return path && strchr(path, '/') && access(path, R_OK) == 0;
}

static const char *major_of(Compiler *c, const char *version)
{
    return version ? intern_n(c, version, strspn(version, "0123456789")) : "";
}

bool wasm_find(Build *b)
{
    Compiler *c = b->c;
    Buf missing = { .arena = c->arena };
    const char *version = ask_compiler(c, "-dumpversion"), *major = major_of(c, version);
    if (!version)
        buf_f(&missing, " clang");
    if (!version || !has_file(c, "-print-prog-name=wasm-ld"))
        buf_f(&missing, " lld");
    if (b->archive && (!version || !has_file(c, "-print-prog-name=llvm-ar")))
        buf_f(&missing, " llvm");
    if (!version || !has_file(c, "-print-file-name=libc.a"))
        buf_f(&missing, " wasi-libc");
    if (!version || !has_file(c, "-print-libgcc-file-name"))
        buf_f(&missing, " libclang-rt-%s%sdev-wasm32", major, *major ? "-" : "");
    if (!missing.len)
        return true;
    say(DIAG_ERROR, "build",
        "--target wasm wants clang with WASI's C library, or WASI_SDK_PATH; what is missing here: "
        "apt-get install%s",
        missing.data);
    return false;
}

/* A source to an object of that name; those of the runtime have a '-' in theirs, as no cell has. */
static void add_source(Build *b, const char *options, const char *source, const char *object)
{
    Compiler *c = b->c;
    Words w = { 0 };
    const char *path = intern_f(c, "%s/%s.o", b->objects, object);
    words_split(c, &w, wasm_compiler(c));
    words_split(c, &w, TARGET " " NO_PROCESSES " -std=c11 -D_GNU_SOURCE -ffunction-sections -fdata-sections");
    words_split(c, &w, options);
    words_split(c, &w, getenv("WASM_CFLAGS"));
    words_add(&w, intern_f(c, "-I%s", b->include));
    words_add(&w, intern_f(c, "-I%s/cpu", b->include));
    words_add(&w, intern_f(c, "-I%s", b->dir));
    words_add(&w, "-c");
    words_add(&w, source);
    words_add(&w, "-o");
    words_add(&w, path);
    build_add_job(b, &w, path);
}

/* Kernels at -O2: at -O3 clang 14 makes no vectors of the loop of a step of LSTM. Where a loop has a call,
 * it says that it makes none. */
void wasm_compile(Build *b, const char *stem, WasmSource source)
{
    static const char *const options[] = {
        [WASM_KERNELS] =
            "-O2 -ffp-contract=off -fno-math-errno -fno-trapping-math -Wno-psabi -Wno-pass-failed",
        [WASM_BESIDE_KERNELS] = "-O2 -ffp-contract=off -fno-math-errno -DCELL_CPU",
        [WASM_PLAIN] = "-O2 -ffp-contract=off -fno-math-errno",
    };
    add_source(b, options[source], intern_f(b->c, "%s/%s.c", b->dir, stem), stem);
}

/* ---- the runtime */

static const char *sources(Build *b, const char *folder)
{
    return intern_f(b->c, "%s%s", home_dir(b->c, HOME_BACKEND), folder);
}

/* What has no part in a module, or another source of that name in runtime/wasm. */
static bool is_replaced(Build *b, const char *folder, const char *name)
{
    if (strcmp(folder, "/wasm") == 0)
        return strcmp(name, "module.c") == 0;
    return strcmp(name, "backend_cuda.c") == 0 || strcmp(name, "blaslt.c") == 0 ||
           access(intern_f(b->c, "%s/%s", sources(b, "/wasm"), name), R_OK) == 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void compile_folder(Build *b, const char *folder)
{
    enum { MOST = 200 };
    const char *name[MOST];
    int n = 0;
    DIR *d = opendir(sources(b, folder));
    for (struct dirent *e; d && n < MOST && (e = readdir(d));) {
        const char *dot = strrchr(e->d_name, '.');
        if (dot && strcmp(dot, ".c") == 0 && !is_replaced(b, folder, e->d_name))
            name[n++] = intern(b->c, e->d_name);
    }
    if (d)
        closedir(d);
    qsort(name, (size_t)n, sizeof *name, by_name);
    for (int i = 0; i < n; i++)
        add_source(b, strcmp(name[i], "product_level.c") == 0 ? "-O3" : "-O2",
                   intern_f(b->c, "%s/%s", sources(b, folder), name[i]),
                   intern_f(b->c, "runtime-%.*s", (int)strlen(name[i]) - 2, name[i]));
}

void wasm_compile_runtime(Build *b)
{
    Buf cells = { .arena = b->c->arena };
    for (int i = 0; i < b->n; i++)
        buf_f(&cells, "%sCELL(%s)", i ? " " : "", b->instance[i].g.m->name);
    compile_folder(b, "");
    compile_folder(b, "/cpu");
    compile_folder(b, "/wasm");
    if (b->archive)
        return;
    Compiler *c = b->c;
    add_source(b, "-O2", intern_f(c, "%s/module.c", sources(b, "/wasm")), "runtime-module");
    words_add(&b->job.data[b->job.len - 1].words, intern_f(c, "-DCELL_MODULE=%s", cells.data));
}

/* ---- what is made of it */

/* What module.mjs calls beside what module.c exports by itself. */
static const char *const exports[] = {
    "malloc",
    "free",
    "cell_context_create",
    "cell_context_destroy",
    "cell_last_error",
    "cell_backend_name",
    "cell_run_forward",
    "cell_run_backward",
    "cell_run_step",
    "cell_reserve_bytes",
};

static bool link_module(Build *b, const char *path)
{
    Compiler *c = b->c;
    Words w = { 0 };
    words_split(c, &w, wasm_compiler(c));
    words_split(c, &w,
                TARGET " -mexec-model=reactor -Wl,--gc-sections -Wl,--strip-all -Wl,--stack-first " STACK);
    for (size_t i = 0; i < sizeof exports / sizeof *exports; i++)
        words_add(&w, intern_f(c, "-Wl,--export=%s", exports[i]));
    words_add(&w, "-o");
    words_add(&w, path);
    for (int i = 0; i < b->object.len; i++)
        words_add(&w, b->object.data[i]);
    words_split(c, &w, LIBRARIES);
    return run_words(&w, b->verbose) == 0;
}

/* NAME.mjs: runtime/wasm/module.mjs with the library's name in it. */
static bool write_loader(Build *b)
{
    static const char hole[] = "@NAME@";
    Compiler *c = b->c;
    const char *from = intern_f(c, "%s/module.mjs", sources(b, "/wasm"));
    FILE *f = fopen(from, "r");
    char line[4096];
    Buf text = { .arena = c->arena };
    while (f && fgets(line, sizeof line, f)) {
        const char *at = line;
        for (const char *name; (name = strstr(at, hole)); at = name + sizeof hole - 1)
            buf_f(&text, "%.*s%s", (int)(name - at), at, b->library);
        buf_f(&text, "%s", at);
    }
    if (!f)
        say(DIAG_ERROR, "build", "cannot read %s", from);
    else
        fclose(f);
    return f && write_text(intern_f(c, "%s/%s.mjs", b->dir, b->library), &text);
}

static bool archive(Build *b, const char *path)
{
    Compiler *c = b->c;
    Words w = { 0 };
    words_add(&w, ask_compiler(c, "-print-prog-name=llvm-ar"));
    words_add(&w, "rcsD");
    words_add(&w, path);
    for (int i = 0; i < b->object.len; i++)
        words_add(&w, b->object.data[i]);
    unlink(path); /* ar would add to it */
    return run_words(&w, b->verbose) == 0;
}

bool wasm_link(Build *b)
{
    const char *path = intern_f(b->c, "%s/%s", b->dir, build_library_file(b, b->library));
    if (!(b->archive ? archive : link_module)(b, path))
        return false;
    print_shown(path);
    return b->archive || write_loader(b);
}

void wasm_say_usage(const Build *b)
{
    if (b->archive)
        say(DIAG_NOTE, "build",
            "a program for WASI links with it by: %s --target=wasm32-wasi -I%s -I%s main.c %s/%s " LIBRARIES
            " " STACK " -o main.wasm",
            wasm_compiler(b->c), b->dir, b->include, b->dir, build_library_file(b, b->library));
    else
        say(DIAG_NOTE, "build",
            "pages and Node use it by: import { load } from \"./%s.mjs\"; const { %s } = await load();",
            b->library, b->instance[0].g.m->name);
}
