/* The backend `cpu`: plans for the CPU in host memory. Kernels are functions of C that a library has for
 * several levels of its architecture; the best that this machine runs is taken when a context is
 * created. Kernels and products are cut into pieces for the threads of a pool (cpu/pool.h). Everything
 * is done when a call returns, and no result depends on how many threads there are. */
#include "context.h"
#include "cpu/pool.h"
#include "cpu/product.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <stdlib.h>
#include <string.h>

typedef struct Cpu {
    int threads; /* 0: as many as there are */
    int level; /* the highest that the machine has */
    cell_products products;
} Cpu;

#if defined(__x86_64__)
/* Bits of CPUID that compilers' __builtin_cpu_supports has no names for before gcc 11 and clang 15, of what
 * x86-64-v3 allows: MOVBE, F16C, LZCNT. */
static int has_rest_of_v3(void)
{
    unsigned a, b, c, d;
    int movbe_and_f16c = __get_cpuid(1, &a, &b, &c, &d) && c >> 22 & 1 && c >> 29 & 1;
    return movbe_and_f16c && __get_cpuid(0x80000001, &a, &b, &c, &d) && c >> 5 & 1;
}
#endif

int cell_cpu_machine_level(void)
{
    int level = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt"))
        level = 1;
    if (level && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && has_rest_of_v3())
        level = 2;
    if (level == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        level = 3;
#endif
    const char *most = getenv("CELL_CPU_LEVEL");
    int cap = most && *most ? atoi(most) : level;
    return cap < 0 ? 0 : cap < level ? cap : level;
}

static cell_status cpu_create(void **self, int device, cell_error *err)
{
    *self = NULL;
    if (device != 0)
        return cell_fail(err, CELL_NO_DEVICE, "device %d: a host backend has only device 0", device);
    Cpu *cpu = calloc(1, sizeof *cpu);
    if (!cpu)
        return cell_fail(err, CELL_OUT_OF_MEMORY, "out of memory for a context");
    cpu->level = cell_cpu_machine_level();
    *self = cpu;
    return CELL_OK;
}

static void cpu_destroy(void *self)
{
    cell_products_free(&((Cpu *)self)->products);
    free(self);
}

static cell_status cpu_set_stream(void *self, void *stream, cell_error *err)
{
    (void)self, (void)stream, (void)err;
    return CELL_OK;
}

static void cpu_set_threads(void *self, int threads)
{
    ((Cpu *)self)->threads = threads;
}

static int threads_of(const Cpu *cpu)
{
    return cpu->threads > 0 ? cpu->threads : cell_pool_default();
}

static cell_status cpu_sync(void *self, cell_error *err)
{
    (void)self, (void)err;
    return CELL_OK;
}

/* The function for the highest level that library and machine have; NULL: there is none. */
static cell_cpu_fn function_of(const Cpu *cpu, const cell_kernel *kernel)
{
    for (int level = cpu->level; kernel->code && level >= 0; level--)
        if (kernel->code[level])
            return kernel->code[level][kernel->number];
    return NULL;
}

typedef struct Launch {
    cell_cpu_fn function;
    const cell_kernel_args *args;
} Launch;

static void run_items(const void *data, int64_t first, int64_t end, void *scratch)
{
    const Launch *of = data;
    of->function(of->args, first, end, scratch);
}

static cell_status cpu_launch(void *self, const cell_launch *launch, cell_error *err)
{
    const Cpu *cpu = self;
    Launch of = { function_of(cpu, launch->kernel), launch->args };
    if (!of.function)
        return cell_fail(err, CELL_NO_IMAGE, "kernel %s is not in the library for this processor",
                         launch->kernel->name);
    return cell_pool_run(run_items, &of, launch->items, launch->grain, launch->smem, threads_of(cpu), err);
}

/* ---- loops in strands: a thread takes some, and walks all turns */

typedef struct Strands {
    const cell_strands *loop;
    cell_cpu_fn function[CELL_MAX_STRANDED];
    size_t args_bytes;
    int64_t together; /* strands that go through the turns side by side: more are more streams of memory */
} Strands;

/* Scratch memory: each kernel's arguments, whose turn is the thread's own, and what the kernels want. */
static void run_some_strands(const void *data, int64_t first, int64_t end, void *scratch)
{
    const Strands *of = data;
    const cell_strands *loop = of->loop;
    cell_kernel_args *args = scratch;
    void *own = (char *)scratch + of->args_bytes;
    for (int i = 0; i < loop->n; i++)
        args[i] = *loop->launches[i].args;
    for (int64_t strand = first; strand < end; strand += of->together) {
        int64_t behind = strand + of->together < end ? strand + of->together : end;
        for (int64_t turn = loop->from; loop->step > 0 ? turn < loop->to : turn > loop->to;
             turn += loop->step)
            for (int i = 0; i < loop->n; i++) {
                int64_t each = loop->launches[i].items / loop->strands;
                args[i].t = turn;
                of->function[i](&args[i], strand * each, behind * each, own);
            }
    }
}

/* Of what is worth a thread's while: so much is worth a call. */
#define CALL 0.125

static cell_status cpu_strands(void *self, const cell_strands *loop, cell_error *err)
{
    const Cpu *cpu = self;
    Strands of = { .loop = loop };
    size_t scratch = 0;
    double work = 0; /* of a strand and turn, in what is worth a thread's while */
    for (int i = 0; i < loop->n; i++) {
        const cell_launch *launch = &loop->launches[i];
        of.function[i] = function_of(cpu, launch->kernel);
        if (!of.function[i])
            return cell_fail(err, CELL_NO_IMAGE, "kernel %s is not in the library for this processor",
                             launch->kernel->name);
        scratch = launch->smem > scratch ? launch->smem : scratch;
        int64_t each = launch->items / loop->strands;
        work += (double)each / (double)launch->grain;
    }
    of.together = work < CALL ? (int64_t)(CALL / work) + 1 : 1;
    work *= (double)(loop->to - loop->from) / (double)loop->step;
    of.args_bytes = (sizeof(cell_kernel_args) * (size_t)loop->n + 63) / 64 * 64;
    int64_t grain = work < 1 ? (int64_t)(1 / work) + 1 : 1;
    return cell_pool_run(run_some_strands, &of, loop->strands, grain, of.args_bytes + scratch,
                         threads_of(cpu), err);
}

static cell_status cpu_prepare(void *self, const cell_kernel *kernel, size_t smem, cell_error *err)
{
    (void)smem;
    if (function_of(self, kernel))
        return CELL_OK;
    return cell_fail(err, CELL_NO_IMAGE, "kernel %s is not in the library for this processor", kernel->name);
}

static cell_status cpu_gemm(void *self, const cell_gemm_call *call, cell_error *err)
{
    Cpu *cpu = self;
    return cell_cpu_product(&cpu->products, call, cpu->level, threads_of(cpu), err);
}

static void cpu_loop(void *self, int begins)
{
    cell_products_loop(&((Cpu *)self)->products, begins);
}

static int64_t cpu_attribute(void *self, int attribute)
{
    (void)self, (void)attribute;
    return 0;
}

static cell_status cpu_resident(void *self, const cell_kernel *kernel, size_t smem, int64_t *blocks,
                                cell_error *err)
{
    (void)self, (void)kernel, (void)smem, (void)err;
    *blocks = 0;
    return CELL_OK;
}

const cell_backend *cell_cpu_backend(void)
{
    static const cell_backend backend = {
        .name = "cpu",
        .kind = CELL_BACKEND_CPU,
        .host_memory = 1,
        .create = cpu_create,
        .destroy = cpu_destroy,
        .set_stream = cpu_set_stream,
        .set_threads = cpu_set_threads,
        .sync = cpu_sync,
        .alloc = cell_host_alloc,
        .free = cell_host_free,
        .copy = cell_host_copy,
        .transfer = cell_host_copy,
        .fill = cell_host_fill,
        .gemm = cpu_gemm,
        .launch = cpu_launch,
        .loop = cpu_loop,
        .strands = cpu_strands,
        .prepare = cpu_prepare,
        .attribute = cpu_attribute,
        .resident = cpu_resident,
    };
    return &backend;
}
