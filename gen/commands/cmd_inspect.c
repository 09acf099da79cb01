/* cmd_inspect.c: `cellc inspect`. In: a shared library that `cellc build` made. Out: the cells in it with
 * their settings, sizes and tensors, how their plans walk the steps, what their kernels take, and at given
 * sizes the memory of a call; as text or as JSON. Guaranteed: what is said comes from the library itself,
 * with neither its spec nor its manifest; a file that is no such library, or one of another cellc, is
 * refused before anything of it is called. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../runtime/cell_plan.h"
#include "base/process.h"
#include "base/say.h"
#include "base/table.h"
#include "base/toolkit.h"
#include "commands.h"
#include "elf_names.h"
#include "options.h"

/* What a kernel takes in the code for one architecture, as cuobjdump says it. */
typedef struct Usage {
    const char *kernel;
    int arch, registers, stack, shared;
} Usage;

typedef size_t bytes_fn(cell_context *ctx, const cell_desc *desc, const int64_t *sizes, size_t *bytes);

typedef struct Inspect {
    Compiler *c;
    const char *path, *sizes;
    bool json, kernels;
    void *library;
    Vec(const cell_desc *) cells;
    Vec(Usage) usage;
    const char *no_usage; /* why there is none; NULL */
} Inspect;

static const CommandHelp help = {
    .name = "inspect",
    .arguments = "LIBRARY",
    .summary = "say which cells a built library has, for which sizes, types and GPUs",
    .about = "LIBRARY is a shared library that `cellc build` made. What is said comes from it alone. "
             "Registers come from\n"
             "the toolkit's cuobjdump, where there is one (CELLC_CUOBJDUMP, or beside nvcc, or in PATH).",
    .examples = "  cellc inspect out/libe79.so\n"
                "  cellc inspect out/libe79.so --sizes B=16,T=512,D=1024\n"
                "  cellc inspect out/libe79.so --kernels\n",
};

static const char *const kinds[] = { "input", "param", "state", "output", "lengths", "starts" };
static const char *const types[] = { "f32", "bf16", "f16", "f64", "i32", "bool", "e4m3", "e5m2" };
enum { N_KINDS = sizeof kinds / sizeof *kinds, N_TYPES = sizeof types / sizeof *types };

/* ---- opening */

static bool has_function(Inspect *in, const char *prefix, const char *suffix)
{
    return dlsym(in->library, intern_f(in->c, "%s%s", prefix, suffix)) != NULL;
}

/* Why the library is none of this cellc's; NULL with in->cells filled. */
static const char *open_cells(Inspect *in)
{
    static const char suffix[] = "_instance";
    ElfNames names = { 0 };
    char real[PATH_MAX];
    const char *why = elf_names(in->c, in->path, suffix, &names);
    if (why)
        return why;
    if (!realpath(in->path, real))
        return strerror(errno);
    in->library = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    if (!in->library)
        return intern_f(in->c, "it does not load: %s", shown_text(in->c, dlerror()));
    for (int i = 0; i < names.len; i++) {
        const char *prefix = intern_n(in->c, names.data[i], strlen(names.data[i]) - (sizeof suffix - 1));
        const cell_desc *(*instance)(void);
        void *symbol = dlsym(in->library, names.data[i]);
        if (!symbol || !has_function(in, prefix, "_forward") ||
            !has_function(in, prefix, "_workspace_bytes") || !has_function(in, prefix, "_reserve_bytes"))
            continue; /* another library's function of that name */
        memcpy(&instance, &symbol, sizeof instance);
        const cell_desc *desc = instance();
        if (desc->plan_version != CELL_PLAN_VERSION)
            return intern_f(in->c,
                            "it was made by another cellc: its plans have version %d, those of this one %d",
                            desc->plan_version, CELL_PLAN_VERSION);
        vec_push(in->c->arena, &in->cells, desc);
    }
    return in->cells.len ? NULL : "it has no cells that `cellc build` made";
}

/* ---- forms: a cell has a plan for calls of some sizes, and others beside it */

/* Is the plan one of those that are offered behind the cell's own? */
static bool is_behind(const cell_desc *d, const cell_desc *form)
{
    for (const cell_desc *f = d->next; f; f = f->next)
        if (f == form)
            return true;
    return false;
}

/* The first of the plans that a call is offered, in the runtime's order (cell_desc.preferred). */
static const cell_desc *first_form(const cell_desc *d)
{
    return d->preferred ? d->preferred : d;
}

/* The plan behind `form`; NULL behind the last. */
static const cell_desc *next_form(const cell_desc *d, const cell_desc *form)
{
    return form != d && !form->next && d->preferred && !is_behind(d, form) ? d : form->next;
}

/* ---- what kernels take */

static const char *cuobjdump(Compiler *c)
{
    const char *own = getenv("CELLC_CUOBJDUMP"), *nvcc = toolkit_nvcc(c),
               *slash = nvcc ? strrchr(nvcc, '/') : NULL;
    if (own && *own)
        return own;
    const char *beside = slash ? intern_f(c, "%.*s/cuobjdump", (int)(slash - nvcc), nvcc) : NULL;
    if (beside && access(beside, X_OK) == 0)
        return beside;
    for (const char *path = getenv("PATH"); path && *path; path += strcspn(path, ":"), path += *path == ':') {
        const char *there = intern_f(c, "%.*s/cuobjdump", (int)strcspn(path, ":"), path);
        if (access(there, X_OK) == 0)
            return there;
    }
    return NULL;
}

/* The number behind "WORD:" in a line. */
static int number_of(const char *line, size_t n, const char *word)
{
    const char *at = strstr(line, word);
    return at && at < line + n ? atoi(at + strlen(word)) : 0;
}

static void read_usage(Inspect *in, const char *text)
{
    static const char arch_word[] = "arch = sm_", function_word[] = " Function ";
    Usage now = { 0 };
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        if (strncmp(text, arch_word, sizeof arch_word - 1) == 0)
            now.arch = atoi(text + sizeof arch_word - 1);
        if (strncmp(text, function_word, sizeof function_word - 1) == 0) {
            const char *name = text + sizeof function_word - 1;
            now.kernel = intern_n(in->c, name, strcspn(name, ":\n"));
        }
        const char *registers = strstr(text, "REG:");
        if (now.kernel && registers && registers < text + n) {
            now.registers = number_of(text, n, "REG:");
            now.stack = number_of(text, n, "STACK:");
            now.shared = number_of(text, n, "SHARED:");
            vec_push(in->c->arena, &in->usage, now);
            now.kernel = NULL;
        }
    }
}

static void find_usage(Inspect *in)
{
    const char *program = cuobjdump(in->c);
    Words w = { 0 };
    if (!program) {
        in->no_usage =
            "registers are not known, since there is no cuobjdump (it comes with the CUDA toolkit, and with "
            "pip install nvidia-cuda-cuobjdump)";
        return;
    }
    words_add(&w, program);
    words_add(&w, "-res-usage");
    words_add(&w, in->path);
    const char *text = words_output(in->c, &w);
    if (text)
        read_usage(in, text);
    if (!in->usage.len)
        in->no_usage =
            intern_f(in->c, "registers are not known, since %s says nothing of this library", program);
}

/* ---- tensors and sizes */

/* A size expression as text: "4*H", "B*(T + 1)". */
static const char *words_of(Compiler *c, const cell_desc *d, cell_expr x)
{
    static const char *const operators[] = {
        [CELL_X_ADD] = "+", [CELL_X_SUB] = "-", [CELL_X_MUL] = "*", [CELL_X_DIV] = "/", [CELL_X_MOD] = "%",
    };
    const char *stack[CELL_MAX_STACK];
    bool single[CELL_MAX_STACK];
    int depth = 0;
    if (!x)
        return "1";
    for (; *x != CELL_X_END; x++) {
        int64_t code = *x;
        if (code == CELL_X_PUSH || code == CELL_X_SIZE) {
            int64_t operand = *++x;
            if (depth == CELL_MAX_STACK || (code == CELL_X_SIZE && (operand < 0 || operand >= d->n_sizes)))
                return "?";
            stack[depth] =
                code == CELL_X_PUSH ? intern_f(c, "%lld", (long long)operand) : d->size_names[operand];
            single[depth++] = true;
            continue;
        }
        if (depth < 2 || code < CELL_X_ADD || code > CELL_X_EQ)
            return "?";
        const char *a = stack[depth - 2], *b = stack[depth - 1];
        bool tight = code == CELL_X_MUL || code == CELL_X_DIV || code == CELL_X_MOD;
        const char *left = tight && !single[depth - 2] ? intern_f(c, "(%s)", a) : a;
        const char *right = !single[depth - 1] && code != CELL_X_ADD ? intern_f(c, "(%s)", b) : b;
        if (code == CELL_X_MIN || code == CELL_X_MAX || code == CELL_X_CEILDIV)
            stack[depth - 2] = intern_f(c, "%s(%s, %s)",
                                        code == CELL_X_MIN   ? "min"
                                        : code == CELL_X_MAX ? "max"
                                                             : "ceildiv",
                                        a, b);
        else if (code >= CELL_X_LT)
            return "?";
        else
            stack[depth - 2] = intern_f(c, tight ? "%s%s%s" : "%s %s %s", left, operators[code], right);
        single[depth - 2] = code != CELL_X_ADD && code != CELL_X_SUB;
        depth--;
    }
    return depth == 1 ? stack[0] : "?";
}

static const char *shape_of(Compiler *c, const cell_desc *d, const cell_tensor *t)
{
    Buf b = { .arena = c->arena };
    bool batched = t->kind != CELL_PARAM, timed = t->kind == CELL_INPUT || t->kind == CELL_OUTPUT;
    const char *rows = !batched ? "" : t->kind == CELL_STARTS ? "B + 1" : timed && d->total ? "total" : timed ? "B, T" : "B";
    buf_f(&b, "[%s", rows);
    for (int i = 0; i < t->rank; i++)
        buf_f(&b, "%s%s", i || batched ? ", " : "", words_of(c, d, t->axes[i]));
    buf_f(&b, "]");
    return b.data;
}

static const char *name_in(const char *const *names, int n, int i)
{
    return i >= 0 && i < n ? names[i] : "?";
}

/* Is there a gradient of it? */
static bool has_gradient(const cell_desc *d, int tensor)
{
    for (int i = 0; i < d->n_backward_args; i++) {
        const cell_arg *a = &d->backward_args[i];
        if (a->tensor == tensor && a->role == CELL_ROLE_D_VALUE && !(a->flags & CELL_ARG_IGNORED))
            return true;
    }
    return false;
}

/* Reads "B=16,T=512" for this cell. A name that another cell of the library has is no mistake. */
static int read_sizes(Inspect *in, const cell_desc *d, int64_t *sizes)
{
    bool given[CELL_MAX_SIZES] = { false };
    for (int i = 0; i < d->n_sizes; i++)
        sizes[i] = 0;
    for (const char *p = in->sizes; *p; p += strcspn(p, ","), p += *p == ',') {
        size_t name = strcspn(p, "=,");
        char *end = NULL;
        int64_t number = p[name] == '=' ? strtoll(p + name + 1, &end, 10) : 0;
        if (number < 1 || number >= 1 << 30 || end != p + strcspn(p, ","))
            return usage_error(&help, "--sizes takes NAME=N,... with N from 1 on, not '%.*s'",
                               (int)strcspn(p, ","), p);
        for (int i = 0; i < d->n_sizes; i++)
            if (strlen(d->size_names[i]) == name && strncmp(d->size_names[i], p, name) == 0)
                sizes[i] = number, given[i] = true;
    }
    for (int i = 0; i < d->n_sizes; i++)
        if (!given[i] && strcmp(d->size_names[i], "t0") != 0)
            return usage_error(&help, "--sizes says nothing of %s, which %s has", d->size_names[i], d->key);
    return 0;
}

/* ---- printing */

static const struct {
    const char *name, *symbol, *what;
} memories[] = {
    { "inference", "cell_inference_bytes", "workspace of forward without a reserve" },
    { "training", "cell_training_bytes", "workspace of forward with a reserve, and of backward" },
    { "reserve", "cell_reserve_bytes", "what forward keeps for backward" },
};
enum { N_MEMORIES = sizeof memories / sizeof *memories };

/* Bytes of one of these at the sizes; false where the cell cannot have them. */
static bool memory_of(Inspect *in, const cell_desc *d, int which, const int64_t *sizes, size_t *bytes)
{
    bytes_fn *ask;
    void *symbol = dlsym(in->library, memories[which].symbol);
    if (!symbol)
        return false;
    memcpy(&ask, &symbol, sizeof ask);
    return ask(NULL, d, sizes, bytes) == CELL_OK;
}

/* The kernel's registers: one number where all architectures agree, else "80: 40, 90: 38". */
static const char *registers_of(Inspect *in, const char *kernel)
{
    Buf b = { .arena = in->c->arena };
    const Usage *first = NULL;
    bool same = true;
    for (int i = 0; i < in->usage.len; i++) {
        const Usage *u = &in->usage.data[i];
        if (strcmp(u->kernel, kernel) != 0)
            continue;
        first = first ? first : u;
        same = same && u->registers == first->registers && u->stack == first->stack;
        buf_f(&b, "%ssm_%d: %d%s", b.len ? ", " : "", u->arch, u->registers,
              u->stack ? intern_f(in->c, " and %d bytes of stack", u->stack) : "");
    }
    if (first && same)
        return first->stack ? intern_f(in->c, "%d and %d bytes of stack", first->registers, first->stack)
                            : intern_f(in->c, "%d", first->registers);
    return b.data ? b.data : "-";
}

static const char *constant_shared(const cell_kernel *k)
{
    static char text[32];
    if (!k->smem)
        return "";
    if (k->smem[0] != CELL_X_PUSH || k->smem[2] != CELL_X_END)
        return "by sizes";
    snprintf(text, sizeof text, "%lld", (long long)k->smem[1]);
    return text;
}

static void print_kernels(Inspect *in, const cell_desc *d)
{
    Table t = { .right = 1 << 1 | 1 << 3 };
    Buf out = { .arena = in->c->arena };
    table_row(in->c, &t, "  kernel", "threads", "blocks", "shared bytes", "registers", (char *)NULL);
    for (const cell_desc *form = first_form(d); form; form = next_form(d, form))
        for (int i = 0; i < form->n_kernels; i++) {
            const cell_kernel *k = &form->kernels[i];
            const char *blocks = k->cluster > 1   ? intern_f(in->c, "clusters of %d", k->cluster)
                                 : k->cooperative ? "all at once"
                                                  : "any";
            table_row(in->c, &t, intern_f(in->c, "  %s", k->name), intern_f(in->c, "%d", k->threads), blocks,
                      intern(in->c, constant_shared(k)), registers_of(in, k->name), (char *)NULL);
        }
    table_print(&t, &out);
    fputs(out.data, stdout);
}

static void print_memory(Inspect *in, const cell_desc *d, const int64_t *sizes)
{
    for (int i = 0; i < N_MEMORIES; i++) {
        size_t bytes;
        if (memory_of(in, d, i, sizes, &bytes))
            printf("  %-10s %zu bytes: %s\n", memories[i].name, bytes, memories[i].what);
    }
}

/* The levels of an architecture that the kernels for the CPU were compiled for; "" where there are none. */
static const char *cpu_levels(Inspect *in, const cell_desc *d)
{
    static const char *const levels[CELL_CPU_COUNT] = { "the machine that it was built for", "x86-64-v2",
                                                     "x86-64-v3", "x86-64-v4" };
    const char *all = "";
    if (!d->cpu || !d->cpu->n_kernels)
        return all;
    for (int i = 0; i < CELL_CPU_COUNT; i++)
        if (d->cpu->kernels[0].code && d->cpu->kernels[0].code[i])
            all = intern_f(in->c, "%s%s%s", all, *all ? ", " : "", levels[i]);
    return all;
}

static int n_kernels(const cell_desc *d)
{
    int n = 0;
    for (const cell_desc *form = first_form(d); form; form = next_form(d, form))
        n += form->n_kernels;
    return n;
}

/* How a plan walks the steps. A call takes the first plan that takes its sizes (`cellc explain --sizes` says which). */
static void print_form(const cell_desc *d, const cell_desc *form)
{
    printf("  %-10s %s", form == first_form(d) ? "walk" : "or else", form->how ? form->how : "?");
    if (form->block_memory)
        printf("; a block takes up to %lld bytes of shared memory", (long long)form->block_memory);
    printf("\n");
}

static void print_cell(Inspect *in, const cell_desc *d)
{
    Compiler *c = in->c;
    Table t = { 0 };
    Buf out = { .arena = c->arena };
    printf("\n%s\n", d->key);
    table_row(c, &t, "  tensor", "kind", "type", "shape", "gradient", (char *)NULL);
    for (int i = 0; i < d->n_tensors; i++) {
        const cell_tensor *x = &d->tensors[i];
        table_row(c, &t, intern_f(c, "  %s", x->name), name_in(kinds, N_KINDS, (int)x->kind),
                  name_in(types, N_TYPES, (int)x->dtype), shape_of(c, d, x),
                  x->kind == CELL_OUTPUT || x->kind == CELL_LENGTHS || x->kind == CELL_STARTS ? "-"
                  : has_gradient(d, i)                                                        ? "yes"
                                                                                              : "none",
                  (char *)NULL);
    }
    table_print(&t, &out);
    fputs(out.data, stdout);
    if (d->forward && n_kernels(d)) {
        printf("  kernels    %d, for %s%s\n", n_kernels(d), d->archs ? "sm_" : "GPUs that it does not name",
               d->archs ? d->archs : "");
        for (const cell_desc *form = first_form(d); form; form = next_form(d, form))
            print_form(d, form);
    } else {
        printf("  kernels    none\n");
    }
    if (*cpu_levels(in, d))
        printf("  CPU        %d kernels, for %s\n             %s\n", d->cpu->n_kernels, cpu_levels(in, d),
               d->cpu->how ? d->cpu->how : "?");
    else
        printf("  CPU        none: there the plain C runs\n");
    printf("  plain C    %s\n",
           d->ref_forward ? d->ref_backward ? "forward and backward" : "forward" : "none");
}

static int print_text(Inspect *in)
{
    int64_t sizes[CELL_MAX_SIZES];
    print_shown(intern_f(in->c, "%s: %d %s, plans of version %d", in->path, in->cells.len,
                         in->cells.len == 1 ? "cell" : "cells", CELL_PLAN_VERSION));
    for (int i = 0; i < in->cells.len; i++) {
        const cell_desc *d = in->cells.data[i];
        int code = in->sizes ? read_sizes(in, d, sizes) : 0;
        if (code)
            return code;
        print_cell(in, d);
        if (in->sizes)
            print_memory(in, d, sizes);
        if (in->kernels && n_kernels(d))
            print_kernels(in, d);
    }
    if (in->kernels && in->no_usage)
        printf("\n%s\n", in->no_usage);
    return 0;
}

static void text_member(Buf *b, const char *name, const char *text)
{
    buf_f(b, "\"%s\": ", name);
    if (text)
        buf_json(b, text, strlen(text));
    else
        buf_f(b, "null");
}

static void json_kernel(Inspect *in, const cell_kernel *k, const char *between, Buf *b)
{
    const char *comma = "";
    buf_f(b, "%s\n       {", between);
    text_member(b, "name", k->name);
    buf_f(b, ", \"threads\": %d, \"cluster\": %d, \"cooperative\": %s, \"code\": [", k->threads,
          k->cluster > 1 ? k->cluster : 1, k->cooperative ? "true" : "false");
    for (int u = 0; u < in->usage.len; u++) {
        const Usage *x = &in->usage.data[u];
        if (strcmp(x->kernel, k->name) != 0)
            continue;
        buf_f(b, "%s{\"arch\": %d, \"registers\": %d, \"stack\": %d, \"shared\": %d}", comma, x->arch,
              x->registers, x->stack, x->shared);
        comma = ", ";
    }
    buf_f(b, "]}");
}

static void json_kernels(Inspect *in, const cell_desc *d, Buf *b)
{
    buf_f(b, ",\n     \"kernels\": [");
    const char *between = "";
    for (const cell_desc *form = first_form(d); form; form = next_form(d, form))
        for (int i = 0; i < form->n_kernels; i++, between = ",")
            json_kernel(in, &form->kernels[i], between, b);
    buf_f(b, "]");
}

static void json_cell(Inspect *in, const cell_desc *d, const int64_t *sizes, Buf *b)
{
    buf_f(b, "    {");
    text_member(b, "key", d->key);
    buf_f(b, ", ");
    text_member(b, "cell", d->name);
    buf_f(b, ",\n     \"settings\": {");
    for (int i = 0; i < d->n_bindings; i++) {
        buf_f(b, "%s", i ? ", " : "");
        text_member(b, d->bindings[i].name, d->bindings[i].value);
    }
    buf_f(b, "},\n     \"sizes\": [");
    for (int i = 0; i < d->n_sizes; i++) {
        buf_f(b, "%s", i ? ", " : "");
        buf_json(b, d->size_names[i], strlen(d->size_names[i]));
    }
    buf_f(b, "],\n     \"tensors\": [");
    for (int i = 0; i < d->n_tensors; i++) {
        const cell_tensor *t = &d->tensors[i];
        buf_f(b, "%s\n       {", i ? "," : "");
        text_member(b, "name", t->name);
        buf_f(b, ", ");
        text_member(b, "kind", name_in(kinds, N_KINDS, (int)t->kind));
        buf_f(b, ", ");
        text_member(b, "dtype", name_in(types, N_TYPES, (int)t->dtype));
        buf_f(b, ", ");
        text_member(b, "shape", shape_of(in->c, d, t));
        buf_f(b, ", \"gradient\": %s}", has_gradient(d, i) ? "true" : "false");
    }
    buf_f(b, "],\n     ");
    text_member(b, "archs", n_kernels(d) ? d->archs : NULL);
    buf_f(b, ", ");
    text_member(b, "walk", n_kernels(d) ? d->how : NULL);
    buf_f(b, ", \"forms\": [");
    for (const cell_desc *form = n_kernels(d) ? first_form(d) : NULL; form; form = next_form(d, form)) {
        buf_f(b, "%s{", form == first_form(d) ? "" : ", ");
        text_member(b, "walk", form->how);
        buf_f(b, ", \"kernels\": %d, \"block_memory\": %lld}", form->n_kernels,
              (long long)form->block_memory);
    }
    buf_f(b, "], ");
    text_member(b, "cpu", *cpu_levels(in, d) ? cpu_levels(in, d) : NULL);
    buf_f(b, ", ");
    text_member(b, "cpu_walk", d->cpu ? d->cpu->how : NULL);
    buf_f(b, ", \"block_memory\": %lld, \"reference\": %s", (long long)d->block_memory,
          d->ref_forward ? "true" : "false");
    for (int i = 0; sizes && i < N_MEMORIES; i++) {
        size_t bytes;
        if (memory_of(in, d, i, sizes, &bytes))
            buf_f(b, ", \"%s\": %zu", memories[i].name, bytes);
    }
    if (in->kernels)
        json_kernels(in, d, b);
    buf_f(b, "}");
}

static int print_json(Inspect *in)
{
    Buf b = { .arena = in->c->arena };
    int64_t sizes[CELL_MAX_SIZES];
    buf_f(&b, "{\"plan_version\": %d, \"cells\": [\n", CELL_PLAN_VERSION);
    for (int i = 0; i < in->cells.len; i++) {
        int code = in->sizes ? read_sizes(in, in->cells.data[i], sizes) : 0;
        if (code)
            return code;
        json_cell(in, in->cells.data[i], in->sizes ? sizes : NULL, &b);
        buf_f(&b, "%s\n", i + 1 < in->cells.len ? "," : "");
    }
    buf_f(&b, "  ]");
    if (in->kernels) {
        buf_f(&b, ",\n  ");
        text_member(&b, "no_registers", in->no_usage);
    }
    buf_f(&b, "}\n");
    fputs(b.data, stdout);
    return 0;
}

int cmd_inspect(int argc, char **argv)
{
    Inspect in = { .c = compiler_new() };
    const OptionSpec table[] = {
        { "--sizes", "LIST", OPT_STRING, &in.sizes, "say the memory of a call, e.g. B=16,T=512,D=1024" },
        { "--kernels", NULL, OPT_FLAG, &in.kernels, "list the kernels: threads, shared memory, registers" },
        { "--json", NULL, OPT_FLAG, &in.json, "print an object, for programs" },
        { 0 },
    };
    const char **operands = arena_alloc(in.c->arena, (size_t)argc * sizeof *operands), *why;
    int n, code = options_parse(&help, in.c, argc, argv, table, operands, &n);
    if (code < 0) {
        in.path = operands[0];
        if ((why = open_cells(&in))) {
            say(DIAG_ERROR, help.name, "%s: %s", in.path, why);
            code = 1;
        } else {
            if (in.kernels)
                find_usage(&in);
            code = in.json ? print_json(&in) : print_text(&in);
        }
    }
    if (in.library)
        dlclose(in.library);
    compiler_free(in.c);
    return code;
}
