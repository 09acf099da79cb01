/* cmd_doctor.c: `cellc doctor`. In: this machine, as the commands find it: compilers, toolkit, driver,
 * GPUs, libraries that are opened when they are wanted, variables of the environment. Out: a line for each,
 * what is built and what runs here, and for what does not the reason and the remedy; as text or as JSON.
 * Guaranteed: nothing is changed, and each answer is found as the command or the runtime that needs it
 * finds it. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/home.h"
#include "base/process.h"
#include "base/say.h"
#include "base/toolkit.h"
#include "commands.h"
#include "gpu.h"
#include "options.h"

typedef struct Doctor {
    Compiler *c;
    bool json, gpu;
    const char *cc, *cc_says, *cc_fault; /* its words, its first line of --version; why it is of no use */
    const char *nvcc, *library; /* NULL: none */
    const char *cublas, *cublaslt, *blas, *blas_fault; /* what was opened; NULL: none */
    Gpus gpus;
    const char *no_kernels; /* why no kernel runs here; NULL: they do, on GPU `first` */
    int first;
    Buf remedies; /* a sentence for each line of what is to be done */
} Doctor;

static const CommandHelp help = {
    .name = "doctor",
    .arguments = "",
    .summary = "say what cellc finds on this machine, what runs here, and what is missing",
    .about = "Looks at the C compiler, the CUDA toolkit, the driver and each GPU, cuBLAS, cuBLASLt and the "
             "BLAS of the "
             "host, as\n"
             "`cellc build` and programs that call cells find them. The exit code is 0 where cells can be "
             "built and called,\n"
             "on the CPU at least; with --gpu where a GPU runs them. `python -m cellc doctor` says the same "
             "of Python,\n"
             "PyTorch and JAX besides.",
    .examples = "  cellc doctor\n"
                "  cellc doctor --gpu || echo no GPU\n"
                "  cellc doctor --json\n",
};

/* Variables that change what is found or what runs. */
static const char *const variables[] = {
    "CC",
    "CELLC_HOME",
    "CELLC_NVCC",
    "CUDA_HOME",
    "CUDA_PATH",
    "CELL_BACKEND",
    "CELL_BLAS",
    "CELL_CUBLAS",
    "CELL_CUBLASLT",
    "CELL_VERBOSE",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_ARCHS",
    "NVCCFLAGS",
    "CFLAGS",
};
enum { N_VARIABLES = sizeof variables / sizeof *variables };

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static void remedy(Doctor *d, const char *text)
{
    buf_f(&d->remedies, "%s\n", text);
}

static const char *first_line(Compiler *c, const char *text)
{
    return text ? shown_text(c, intern_n(c, text, strcspn(text, "\n"))) : NULL;
}

/* Does it make a library that calls libm, as the reference does? */
static bool compiles(Doctor *d)
{
    const char *dir = scratch_make(d->c, help.name);
    if (!dir)
        return false;
    const char *source = intern_f(d->c, "%s/probe.c", dir);
    FILE *f = fopen(source, "w");
    bool written = f && fputs("#include <math.h>\n#include <stdlib.h>\n"
                              "double probe(double x) { return tanh(x) + !getenv(\"X\"); }\n",
                              f) >= 0;
    if (f && fclose(f) != 0)
        written = false;
    Words w = { 0 };
    words_split(d->c, &w, d->cc);
    words_split(d->c, &w, "-shared -fPIC -o");
    words_add(&w, intern_f(d->c, "%s/probe.so", dir));
    words_add(&w, source);
    words_split(d->c, &w, "-lm -ldl");
    bool made = written && words_output(d->c, &w) != NULL;
    scratch_remove(dir);
    return made;
}

static void look_at_compilers(Doctor *d)
{
    Words w = { 0 };
    d->cc = c_compiler();
    words_split(d->c, &w, d->cc);
    words_add(&w, "--version");
    d->cc_says = first_line(d->c, words_output(d->c, &w));
    if (!d->cc_says)
        d->cc_fault = "it cannot be run";
    else if (!compiles(d))
        d->cc_fault = "it makes no library of a program of three lines: headers of C or a linker are missing";
    if (d->cc_fault)
        remedy(d, "Install a C compiler (Debian, Ubuntu: apt-get install gcc libc6-dev), or name one in CC.");
    d->library = home_dir(d->c, HOME_LIB);
    if (!d->library)
        remedy(d,
               "libcell.a is not beside cellc: run make in its source tree, or name that, or where cellc is "
               "installed, in CELLC_HOME.");
    d->nvcc = toolkit_nvcc(d->c);
}

/* The first of these that the loader opens, by the name of the functions that are wanted of it. */
static const char *open_library(const char *const *names, int n, const char *function)
{
    for (int i = 0; i < n; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library && dlsym(library, function))
            return names[i]; /* it stays open to the end of the process */
        if (library)
            dlclose(library);
    }
    return NULL;
}

/* As runtime/cblas.c and runtime/backend_driver.c look for them. */
static void look_at_libraries(Doctor *d)
{
    static const char *const blas[] = { "libopenblas.so.0", "libcblas.so.3", "libblas.so.3" };
    static const char *const cublas[] = { "libcublas.so.13", "libcublas.so.12" };
    static const char *const cublaslt[] = { "libcublasLt.so.13", "libcublasLt.so.12" };
    const char *own = variable("CELL_BLAS"), *own_cublas = variable("CELL_CUBLAS");
    if (!own || strcmp(own, "none") != 0)
        d->blas = own ? open_library(&own, 1, "cblas_sgemm") : open_library(blas, 3, "cblas_sgemm");
    if (own && !d->blas && strcmp(own, "none") != 0) {
        d->blas_fault =
            intern_f(d->c, "CELL_BLAS is '%s', in which cblas_sgemm is not found", shown_text(d->c, own));
        remedy(d, "Calls on the CPU that multiply matrices fail: unset CELL_BLAS, or name a library with "
                  "CBLAS in it.");
    } else if (!d->blas && !own) {
        remedy(d, "Products over all steps on the CPU take up to a fifth longer without a BLAS, and the reference's are "
                  "plain loops: install OpenBLAS (Debian, Ubuntu: apt-get install libopenblas0).");
    }
    d->cublas = own_cublas ? open_library(&own_cublas, 1, "cublasCreate_v2")
                           : open_library(cublas, 2, "cublasCreate_v2");
    const char *own_lt = variable("CELL_CUBLASLT");
    if (!own_lt || strcmp(own_lt, "none") != 0)
        d->cublaslt =
            own_lt ? open_library(&own_lt, 1, "cublasLtMatmul") : open_library(cublaslt, 2, "cublasLtMatmul");
}

/* Why no kernel that is built here runs here, and on which GPU they run. */
static void judge(Doctor *d)
{
    const char *old = d->nvcc ? gpu_driver_too_old(d->c, d->gpus.driver, d->nvcc) : NULL;
    d->first = -1;
    for (int i = 0; i < d->gpus.n && d->first < 0; i++)
        if (!d->gpus.items[i].fault)
            d->first = i;
    d->no_kernels = d->gpus.missing ? d->gpus.missing : old;
    if (!d->no_kernels && d->first < 0)
        d->no_kernels = "none of its GPUs can be used";
    if (old)
        remedy(d,
               intern_f(
                   d->c,
                   "Update the NVIDIA driver to one for CUDA %d, or build with a toolkit of CUDA %d or older "
                   "(CELLC_NVCC names its nvcc).",
                   toolkit_version(d->c, d->nvcc) / 1000, d->gpus.driver / 1000));
    if (d->gpus.driver && d->gpus.missing && variable("CUDA_VISIBLE_DEVICES"))
        remedy(d, "CUDA_VISIBLE_DEVICES is set and may hide the GPUs: unset it.");
    if (!d->no_kernels && !d->nvcc)
        remedy(d, intern_f(d->c,
                           "There is a GPU, but `cellc build` makes no kernels: %s. Install the CUDA "
                           "toolkit, or name its "
                           "nvcc in CELLC_NVCC. (Python needs none: PyTorch and JAX bring NVRTC.)",
                           toolkit_missing(d->c)));
    if (!d->no_kernels && d->first > 0 && !variable("CUDA_VISIBLE_DEVICES"))
        remedy(d, intern_f(d->c, "GPU 0 cannot be used, and is what calls take: set CUDA_VISIBLE_DEVICES=%d.",
                           d->first));
}

static const char *cuda_name(Compiler *c, int version)
{
    return intern_f(c, "%d.%d", version / 1000, version % 1000 / 10);
}

/* What a context takes that the caller leaves to cellc, as runtime/context.c chooses. */
static const char *backend(const Doctor *d)
{
    const char *own = variable("CELL_BACKEND");
    if (own && strcmp(own, "auto") != 0)
        return own;
    return d->no_kernels || !d->nvcc || d->first > 0 ? "cpu" : "cuda";
}

static const char *why_backend(const Doctor *d)
{
    const char *own = variable("CELL_BACKEND");
    if (own && strcmp(own, "auto") != 0)
        return "CELL_BACKEND says so";
    if (d->no_kernels)
        return d->no_kernels;
    if (!d->nvcc)
        return toolkit_missing(d->c);
    return d->first > 0 ? "GPU 0 cannot be used" : NULL;
}

static void row(const char *title, const char *text)
{
    printf("  %-13s ", title);
    put_shown(stdout, text, strlen(text), false);
    printf("\n");
}

static void print_gpus(Doctor *d)
{
    Compiler *c = d->c;
    row("driver", d->gpus.driver ? intern_f(c, "supports CUDA %s", cuda_name(c, d->gpus.driver)) : "none");
    if (d->gpus.missing)
        row("GPUs", intern_f(c, "none: %s", d->gpus.missing));
    for (int i = 0; i < d->gpus.n; i++) {
        const Gpu *g = &d->gpus.items[i];
        row(intern_f(c, "GPU %d", i), intern_f(c, "%s, sm_%d, %d multiprocessors, %.0f GiB%s%s", g->name,
                                               g->arch, g->processors, (double)g->memory / (1 << 30),
                                               g->fault ? ": NOT USABLE: " : "", g->fault ? g->fault : ""));
    }
}

static void print_text(Doctor *d)
{
    Compiler *c = d->c;
    const char *program = home_program(c), *sets = "";
    printf("cellc on this machine\n");
    row("cellc", program ? program : "?");
    row("C compiler", d->cc_fault ? intern_f(c, "%s: NOT USABLE: %s", d->cc, d->cc_fault)
                                  : intern_f(c, "%s: %s", d->cc, d->cc_says));
    row("runtime", d->library ? intern_f(c, "%s/libcell.a", d->library) : "none");
    row("CUDA toolkit", d->nvcc ? intern_f(c, "%s, %s", cuda_name(c, toolkit_version(c, d->nvcc)), d->nvcc)
                                : intern_f(c, "none: %s", toolkit_missing(c)));
    print_gpus(d);
    row("cuBLAS", d->cublas ? intern_f(c, "%s, for libraries that were built without a toolkit", d->cublas)
                            : "none that the loader finds; libraries link with that of their toolkit");
    row("cuBLASLt",
        d->cublaslt
            ? intern_f(c, "%s, for products of two operands of 8 bits", d->cublaslt)
            : "none that the loader finds; that of a program's cuBLAS is taken where it has one, or copies "
              "in 16 bits are multiplied");
    row("BLAS", d->blas_fault ? d->blas_fault
                : d->blas     ? intern_f(c, "%s, for products over all steps on the CPU", d->blas)
                              : "none: products on the CPU are cellc's own code, the reference's plain loops");
    for (int i = 0; i < N_VARIABLES; i++)
        if (variable(variables[i]))
            sets = intern_f(c, "%s%s%s=%s", sets, *sets ? " " : "", variables[i],
                            shown_text(c, variable(variables[i])));
    row("environment", *sets ? sets : "nothing that cellc reads is set");
    if (d->cc_fault || !d->library)
        printf("\nNothing can be built here.\n");
    else
        printf("\n`cellc build` makes %s.\n",
               d->nvcc ? "kernels for GPUs and for the CPU, and reference C"
                         : "kernels for the CPU and reference C, and none for GPUs");
    printf("A call runs on the backend %s%s%s%s.\n", backend(d),
           strcmp(backend(d), "reference") == 0 ? " (plain C, one thread)"
           : strcmp(backend(d), "cpu") == 0     ? " (kernels in C)"
                                                : "",
           why_backend(d) ? ": " : "", why_backend(d) ? why_backend(d) : "");
    if (d->remedies.len)
        printf("\n%s", d->remedies.data);
}

static void member(Buf *b, const char *name, const char *text)
{
    buf_f(b, "  \"%s\": ", name);
    if (text)
        buf_json(b, text, strlen(text));
    else
        buf_f(b, "null");
    buf_f(b, ",\n");
}

static void print_json(Doctor *d)
{
    Compiler *c = d->c;
    Buf b = { .arena = c->arena };
    const char *comma = "";
    buf_f(&b, "{\n");
    member(&b, "cellc", home_program(c));
    member(&b, "cc", d->cc_fault ? NULL : d->cc);
    member(&b, "cc_version", d->cc_says);
    member(&b, "cc_fault", d->cc_fault);
    member(&b, "runtime", d->library);
    member(&b, "nvcc", d->nvcc);
    member(&b, "toolkit", d->nvcc ? cuda_name(c, toolkit_version(c, d->nvcc)) : NULL);
    member(&b, "no_toolkit", d->nvcc ? NULL : toolkit_missing(c));
    member(&b, "driver", d->gpus.driver ? cuda_name(c, d->gpus.driver) : NULL);
    member(&b, "no_gpu", d->gpus.missing);
    buf_f(&b, "  \"gpus\": [");
    for (int i = 0; i < d->gpus.n; i++) {
        const Gpu *g = &d->gpus.items[i];
        buf_f(&b, "%s\n    {\"name\": ", i ? "," : "");
        buf_json(&b, g->name, strlen(g->name));
        buf_f(&b, ", \"arch\": %d, \"multiprocessors\": %d, \"memory\": %lld, \"shared\": %lld, \"fault\": ",
              g->arch, g->processors, (long long)g->memory, (long long)g->shared);
        if (g->fault)
            buf_json(&b, g->fault, strlen(g->fault));
        else
            buf_f(&b, "null");
        buf_f(&b, "}");
    }
    buf_f(&b, "%s],\n", d->gpus.n ? "\n  " : "");
    member(&b, "cublas", d->cublas);
    member(&b, "cublaslt", d->cublaslt);
    member(&b, "blas", d->blas);
    member(&b, "blas_fault", d->blas_fault);
    buf_f(&b, "  \"environment\": {");
    for (int i = 0; i < N_VARIABLES; i++) {
        if (!variable(variables[i]))
            continue;
        buf_f(&b, "%s\"%s\": ", comma, variables[i]);
        buf_json(&b, variable(variables[i]), strlen(variable(variables[i])));
        comma = ", ";
    }
    buf_f(&b, "},\n");
    member(&b, "backend", backend(d));
    member(&b, "why", why_backend(d));
    buf_f(&b, "  \"remedies\": [");
    for (const char *p = d->remedies.data; p && *p; p += strcspn(p, "\n") + 1) {
        buf_f(&b, "%s\n    ", p == d->remedies.data ? "" : ",");
        buf_json(&b, p, strcspn(p, "\n"));
    }
    buf_f(&b, "%s]\n}\n", d->remedies.len ? "\n  " : "");
    fputs(b.data, stdout);
}

int cmd_doctor(int argc, char **argv)
{
    Doctor d = { .c = compiler_new() };
    const OptionSpec table[] = {
        { "--json", NULL, OPT_FLAG, &d.json, "print an object, for programs" },
        { "--gpu", NULL, OPT_FLAG, &d.gpu, "exit with 1 unless a GPU runs what is built here" },
        { 0 },
    };
    const char **operands = arena_alloc(d.c->arena, (size_t)argc * sizeof *operands);
    int n, code = options_parse(&help, d.c, argc, argv, table, operands, &n);
    if (code < 0) {
        d.remedies.arena = d.c->arena;
        gpus_find(d.c, true, &d.gpus);
        look_at_compilers(&d);
        look_at_libraries(&d);
        judge(&d);
        if (d.json)
            print_json(&d);
        else
            print_text(&d);
        code = d.cc_fault || !d.library || (d.gpu && (d.no_kernels || !d.nvcc));
    }
    compiler_free(d.c);
    return code;
}
